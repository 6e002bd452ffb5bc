// SPDX-License-Identifier: MIT
/*
 * Channels. A send copies its item into the buffer, or straight to a receiver that waits.
 *
 * A call that waits has a node in each channel that it waits for, and one party. Another call that
 * finds a node claims the party first: that decides for which of its channels the party is done.
 * switchto_select() holds the locks of all its channels while it looks, so nobody claims its party
 * meanwhile.
 *
 * The claimer takes the node out, and wakes the party when it is done with the channel. The woken call
 * does not touch this channel any more: the other side may have destroyed it. From all other channels
 * the party takes its nodes out itself. Until then nobody can destroy these.
 */
#define _GNU_SOURCE
#include "request.h"
#include "sync.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

struct party {
	struct waiter waiter;
	const struct switchto_chan *chan; /* of the last case, for the trace */
	_Atomic size_t done;		  /* the case that happened + 1; 0: none yet */
	bool closed;			  /* because the channel was closed */
};
_Static_assert(offsetof(struct party, chan) == sizeof(struct waiter), "awaited()");

struct node {
	struct node *next, *prev;
	struct party *party;
	size_t index;
	void *item;
	struct nodes *in; /* the list where it is */
};

struct nodes {
	struct node *first, *last;
	unsigned int generation; /* of these */
};

struct switchto_chan {
	struct switchto_mutex lock;
	struct nodes senders, receivers;
	struct nodes passed; /* those met there whose party was done with another channel */
	size_t item_size, capacity;
	size_t count, oldest; /* items in the buffer, and the place of the first */
	bool closed;
	atomic_bool watched; /* exit(3) */
	_Alignas(16) char buffer[];
};

/* --- nodes: with the channel's lock --- */

/* Those who wait in the parent do not wait in its child. */
static inline struct node *first_of(const struct nodes *nodes)
{
	return nodes->first && nodes->generation == switchto_generation ? nodes->first : NULL;
}

static void node_add(struct nodes *nodes, struct node *node)
{
	if (!first_of(nodes))
		*nodes = (struct nodes){ .generation = switchto_generation };
	node->next = NULL;
	node->prev = nodes->last;
	if (nodes->last)
		nodes->last->next = node;
	else
		nodes->first = node;
	nodes->last = node;
	node->in = nodes;
}

static void node_remove(struct node *node)
{
	struct nodes *nodes = node->in;

	if (node->next)
		node->next->prev = node->prev;
	else
		nodes->last = node->prev;
	if (node->prev)
		node->prev->next = node->next;
	else
		nodes->first = node->next;
}

/* The first one whose party is not done yet, out of the queue and claimed; or NULL. */
static struct node *node_claim(struct switchto_chan *chan, struct nodes *nodes)
{
	struct node *node;

	while ((node = first_of(nodes))) {
		size_t none = 0;

		node_remove(node);
		if (atomic_compare_exchange_strong(&node->party->done, &none, node->index + 1))
			return node;
		node_add(&chan->passed, node);
	}
	return NULL;
}

/* --- one channel: with its lock --- */

static char *place(struct switchto_chan *chan, size_t n)
{
	return chan->buffer + (chan->oldest + n) % chan->capacity * chan->item_size;
}

/* Does it, if it can be done at once. @fire: whom to wake when the lock is released. */
static ALWAYS_INLINE bool try_send(struct switchto_chan *chan, const void *item,
				   struct party **fire)
{
	struct node *receiver = node_claim(chan, &chan->receivers);

	if (receiver) {
		memcpy(receiver->item, item, chan->item_size);
		*fire = receiver->party;
		return true;
	}
	if (chan->count == chan->capacity)
		return false;
	memcpy(place(chan, chan->count++), item, chan->item_size);
	return true;
}

static ALWAYS_INLINE bool try_receive(struct switchto_chan *chan, void *item, struct party **fire)
{
	struct node *sender;

	if (chan->count) {
		memcpy(item, place(chan, 0), chan->item_size);
		chan->oldest = (chan->oldest + 1) % chan->capacity;
		chan->count--;
		/* A sender waits only while the buffer is full: now its item goes there. */
		sender = node_claim(chan, &chan->senders);
		if (sender)
			memcpy(place(chan, chan->count++), sender->item, chan->item_size);
	} else {
		sender = node_claim(chan, &chan->senders);
		if (!sender)
			return false;
		memcpy(item, sender->item, chan->item_size);
	}
	if (sender)
		*fire = sender->party;
	return true;
}

/* Can the case be done with? It was done, or its channel is closed. */
static ALWAYS_INLINE bool try_case(struct switchto_case *c, struct party **fire)
{
	if (!c->chan)
		return false;
	if (c->op == SWITCHTO_SEND) {
		c->closed = c->chan->closed;
		return c->closed || try_send(c->chan, c->item, fire);
	}
	c->closed = false;
	if (try_receive(c->chan, c->item, fire))
		return true;
	c->closed = c->chan->closed;
	return c->closed;
}

/* --- the calls --- */

int switchto_chan_create(struct switchto_chan **chan_out, size_t item_size, size_t capacity)
{
	struct switchto_chan *chan;
	size_t size;

	if (!chan_out || !item_size)
		return fail(EINVAL);
	if (__builtin_mul_overflow(item_size, capacity, &size) ||
	    __builtin_add_overflow(size, sizeof(*chan), &size))
		return fail(ENOMEM);
	chan = calloc(1, size);
	if (!chan)
		return fail(ENOMEM);
	chan->item_size = item_size;
	chan->capacity = capacity;
	*chan_out = chan;
	return 0;
}

int switchto_chan_destroy(struct switchto_chan *chan)
{
	if (chan && (first_of(&chan->senders) || first_of(&chan->receivers) ||
		     first_of(&chan->passed) || switchto_is_in_use(&chan->lock)))
		return atomic_load(&switchto_exiting) ? 0 : switchto_dispatch_fail(EBUSY);
	free(chan);
	return 0;
}

int switchto_chan_close(struct switchto_chan *chan)
{
	struct nodes claimed = { 0 };
	struct node *node, *next;
	bool again;

	if (!chan)
		return fail(EINVAL);
	switchto_lock_inner(&chan->lock);
	again = chan->closed;
	chan->closed = true;
	/* Receivers wait only while the buffer is empty: there is nothing left for them. */
	for (int i = 0; i < 2; i++)
		while ((node = node_claim(chan, i ? &chan->receivers : &chan->senders))) {
			node->party->closed = true;
			node_add(&claimed, node);
		}
	switchto_mutex_unlock(&chan->lock);
	for (node = claimed.first; node; node = next) {
		next = node->next;
		switchto_waiter_fire(NULL, &node->party->waiter);
	}
	return again ? switchto_dispatch_fail(EPIPE) : spent_by(switchto_current);
}

/* The next channel of @cases after @last, in the order of addresses, in which they are locked; or NULL. */
static struct switchto_chan *next_chan(struct switchto_case *cases, size_t count,
				       const struct switchto_chan *last)
{
	struct switchto_chan *next = NULL;

	for (size_t i = 0; i < count; i++)
		if (cases[i].chan > last && (!next || cases[i].chan < next))
			next = cases[i].chan;
	return next;
}

static void lock_all(struct switchto_case *cases, size_t count)
{
	struct switchto_chan *chan = NULL;

	while ((chan = next_chan(cases, count, chan)))
		switchto_lock_inner(&chan->lock);
}

static void unlock_all(struct switchto_case *cases, size_t count)
{
	struct switchto_chan *chan = NULL;

	while ((chan = next_chan(cases, count, chan)))
		switchto_mutex_unlock(&chan->lock);
}

static struct nodes *nodes_of(struct switchto_case *c)
{
	return c->op == SWITCHTO_SEND ? &c->chan->senders : &c->chan->receivers;
}

/* With the locks of all channels. */
static void add_all(struct party *party, struct node *nodes, struct switchto_case *cases,
		    size_t count)
{
	for (size_t i = 0; i < count; i++) {
		nodes[i] = (struct node){ .party = party, .index = i, .item = cases[i].item };
		if (!cases[i].chan)
			continue;
		party->chan = cases[i].chan;
		switchto_watch_exit(&cases[i].chan->watched);
		node_add(nodes_of(&cases[i]), &nodes[i]);
	}
}

/* But that of case @done, which is out already. */
static void take_out_all(struct node *nodes, struct switchto_case *cases, size_t count, size_t done)
{
	for (size_t i = 0; i < count; i++) {
		if (i == done || !cases[i].chan)
			continue;
		switchto_lock_inner(&cases[i].chan->lock);
		node_remove(&nodes[i]);
		switchto_mutex_unlock(&cases[i].chan->lock);
	}
}

/* --- descriptors --- */

/* try_case(), which is in line in switchto_select(). */
static __attribute__((noinline)) bool try_one(struct switchto_case *c, struct party **fire)
{
	return try_case(c, fire);
}

/* How often to look at a descriptor for which another task waits, or that epoll does not take. */
#define LOOK_AGAIN (13 * NSEC_PER_SEC / 1000)

/* A case of a descriptor. */
struct watch {
	struct pollfd *poll; /* NULL: none, or it is off */
	struct direction *direction;
	struct mark *mark;
	uintptr_t from; /* the word in which it waits: see switchto_sleep_for() */
	bool armed;	/* the task is in the word */
	bool gone;	/* the descriptor that it waited for */
};

static bool is_good(const struct switchto_case *c)
{
	const struct pollfd *poll = c->item;

	if (c->op != SWITCHTO_POLL)
		return c->op == SWITCHTO_SEND || c->op == SWITCHTO_RECEIVE;
	if (c->chan)
		return false;
	return !poll || poll->fd < 0 || poll->events == POLLOUT ||
	       (poll->events && !(poll->events & ~(POLLIN | POLLRDHUP)));
}

static void begin_watch(struct watch *watch, struct switchto_case *c)
{
	struct pollfd *poll = c->op == SWITCHTO_POLL ? c->item : NULL;

	*watch = (struct watch){ .poll = poll && poll->fd >= 0 ? poll : NULL };
	if (c->op == SWITCHTO_POLL)
		c->closed = false;
	if (poll)
		poll->revents = 0;
}

/* Has it happened? Since closes_now() was @closes, the number may have been closed. */
static bool try_watch(struct watch *watch, uint64_t closes)
{
	long found;

	if (!watch->poll)
		return false;
	found = watch->gone || closed_since(watch->poll->fd, closes) ?
			-EBADF :
			switchto_poll_now(watch->poll->fd, watch->poll->events);
	watch->poll->revents = (short)(found < 0 ? POLLNVAL : found);
	return found;
}

static bool try_watches(struct watch *watches, size_t count, uint64_t closes)
{
	for (size_t i = 0; i < count; i++)
		if (try_watch(&watches[i], closes))
			return true;
	return false;
}

/*
 * Before the task is in the word: 0 or an error number. EALREADY: there was an event. EBUSY: it is to be
 * looked at now and then.
 */
static int begin_to_watch(struct worker *me, struct watch *watch)
{
	const bool output = watch->poll->events == POLLOUT;
	const int fd = watch->poll->fd;
	struct mark *mark = mark_of((unsigned int)fd);
	uintptr_t word = UNKNOWN;
	int error;

	watch->armed = false;
	if (mark && atomic_load(&mark->sched) == me->sched)
		word = atomic_load(output ? &mark->out.word : &mark->in.word);
	if (word == UNKNOWN || word == UNARMED) {
		error = switchto_mark_add(me->slot, fd, output);
		if (error)
			return error == EPERM ? EBUSY : error == EBADF ? EALREADY : error;
		mark = mark_of((unsigned int)fd);
	}
	watch->mark = mark;
	watch->direction = output ? &mark->out : &mark->in;
	watch->from = NOT_READY;
	word = atomic_load(&watch->direction->word);
	if (is_ready(word) && switchto_poll_now(fd, watch->poll->events))
		return EALREADY;
	/* Others have their turn first. */
	if (mark_task(word) || atomic_load(&watch->direction->first))
		return EBUSY;
	if (is_ready(word)) {
		if (watch->poll->events == POLLRDHUP)
			watch->from = word;
		else if (!atomic_compare_exchange_strong(&watch->direction->word, &word, NOT_READY))
			return EALREADY;
		/* What is unread is found again and again, and a hang-up may be all that is wanted. */
		ready_in_vain(mark, word);
	}
	return 0;
}

/* The same of all of them, but for EBUSY. *@looks: some are to be looked at now and then. */
static int begin_all(struct worker *me, struct watch *watches, size_t count, bool *looks)
{
	int error;

	for (size_t i = 0; i < count; i++) {
		watches[i].mark = NULL;
		if (!watches[i].poll)
			continue;
		error = begin_to_watch(me, &watches[i]);
		if (error && error != EBUSY)
			return error;
		if (error) {
			*looks = true;
			watches[i].mark = NULL;
		}
	}
	return 0;
}

/* Puts the task into the word. False: there was an event, or another scheduler has the descriptor. */
static bool arm(struct worker *me, struct watch *watch)
{
	uintptr_t seen = watch->from;
	const uintptr_t unread = is_ready(seen) ? UNREAD : 0;

	watch->armed = atomic_compare_exchange_strong(&watch->direction->word, &seen,
						      (uintptr_t)me->task + unread);
	window();
	/* Paired with the store in leave_other(), mark.c. */
	return (watch->armed || mark_task(seen) == me->task) &&
	       atomic_load(&watch->mark->sched) == me->sched;
}

/* False: there was an event, which may have been the end of the descriptor. */
static bool disarm(struct worker *me, struct watch *watch, int error)
{
	bool none;

	if (!watch->armed)
		return true;
	watch->armed = false;
	none = take_back(me, &watch->direction->word, watch->from);
	watch->gone = !none && error == EBADF && atomic_load(&watch->direction->word) == UNKNOWN;
	return none;
}

/* Whoever waits for its turn, or is at the mark just now with a wake for the caller. */
static void leave_mark(const struct watch *watch)
{
	if (watch->poll && watch->mark &&
	    (atomic_load(&watch->direction->first) ||
	     atomic_load(&watch->direction->word) == UNKNOWN))
		switchto_turn_end(watch->mark, watch->direction, NULL);
}

/* Waits until @party may be done, or there was an event: 0 or an error number. */
static int wait_for_any(struct worker *me, struct party *party, struct watch *watches, size_t count,
			nsec_t deadline)
{
	bool stays = false, looks = false, event = false;
	nsec_t until = deadline;
	int error = begin_all(me, watches, count, &looks);

	if (error)
		return error == EALREADY ? 0 : error;
	if (looks && switchto_now() + LOOK_AGAIN < until)
		until = switchto_now() + LOOK_AGAIN;
	if (!enter_task(me))
		return not_entered(me);
	prepare(me->task, WAITING);
	for (size_t i = 0; i < count; i++)
		if (watches[i].poll && watches[i].mark)
			stays |= !arm(me, &watches[i]);
	if (task_cancelled(me))
		error = cancelled_call(deadline);
	else if (stays || atomic_load(&party->waiter.fired))
		switchto_sleep_stay(me);
	else
		error = switchto_sleep(me, until, WAITING_IO | ON_SELECT, NULL);
	window();
	for (size_t i = 0; i < count; i++)
		event |= !disarm(me, &watches[i], error);
	leave(me);
	for (size_t i = 0; i < count; i++)
		leave_mark(&watches[i]);
	/* What came as well is looked at first, and the error comes after that. */
	if (event || error == EBADF || (error == ETIMEDOUT && until < deadline))
		return 0;
	return error;
}

/* Locks all of @cases, and tries them: which one is done, or @count. */
static size_t lock_and_try(struct switchto_case *cases, struct watch *watches, size_t count,
			   uint64_t closes, struct party **fire)
{
	bool found[SWITCHTO_SELECT_MAX];
	size_t done = 0;

	for (size_t i = 0; i < count; i++)
		found[i] = try_watch(&watches[i], closes);
	lock_all(cases, count);
	while (done < count && !found[done] && !try_one(&cases[done], fire))
		done++;
	return done;
}

/* switchto_select(), with cases of descriptors. */
static __attribute__((noinline)) int select_with(struct switchto_case *cases, size_t count,
						 const struct timespec *deadline)
{
	const nsec_t until = switchto_deadline(deadline);
	const uint64_t closes = closes_now();
	struct worker *me = current_task();
	struct watch watches[SWITCHTO_SELECT_MAX];
	struct node nodes[SWITCHTO_SELECT_MAX];
	struct party party, *fire = NULL;
	size_t done, on = 0;
	int error;

	if (!me)
		return -1;
	for (size_t i = 0; i < count; i++) {
		if (!is_good(&cases[i]))
			return fail(EINVAL);
		begin_watch(&watches[i], &cases[i]);
		on += cases[i].chan || watches[i].poll;
	}
	if (!on && until == NEVER)
		return fail(EINVAL);
	for (;;) {
		done = lock_and_try(cases, watches, count, closes, &fire);
		if (done < count)
			break;
		party = (struct party){ .done = 0 };
		switchto_waiter_begin(&party.waiter);
		add_all(&party, nodes, cases, count);
		unlock_all(cases, count);
		/* It keeps its place among those who wait, whatever else happens to the descriptors. */
		do {
			error = wait_for_any(me, &party, watches, count, until);
			window();
		} while (!error && !atomic_load(&party.done) &&
			 !try_watches(watches, count, closes));
		if (error == EPERM)
			return fail(error);
		done = 0;
		/* Nobody may claim it from now on. */
		if (!atomic_compare_exchange_strong(&party.done, &done, count + 1))
			switchto_waiter_wait(&party.waiter, NEVER, ON_CHAN);
		done = atomic_load(&party.done) - 1;
		take_out_all(nodes, cases, count, done);
		if (done < count) {
			cases[done].closed = party.closed;
			return (int)done;
		}
		if (error)
			return switchto_dispatch_fail(error);
	}
	unlock_all(cases, count);
	if (fire)
		switchto_waiter_fire(NULL, &fire->waiter);
	spent(me, 0);
	/* Those of later cases are not told. */
	for (size_t i = done + 1; i < count; i++)
		if (watches[i].poll)
			watches[i].poll->revents = 0;
	return (int)done;
}

int switchto_select(struct switchto_case *cases, size_t count, const struct timespec *deadline)
{
	nsec_t until = switchto_deadline(deadline);
	struct node nodes[SWITCHTO_SELECT_MAX];
	struct party party = { .done = 0 }, *fire = NULL;
	size_t done = 0, on = 0;
	int error;

	if (until < 0 || !cases || !count || count > SWITCHTO_SELECT_MAX)
		return fail(EINVAL);
	for (size_t i = 0; i < count; i++) {
		if (unlikely((unsigned int)cases[i].op > SWITCHTO_RECEIVE))
			return cases[i].op == SWITCHTO_POLL ? select_with(cases, count, deadline) :
							      fail(EINVAL);
		on += !!cases[i].chan;
	}
	/* Nothing would ever end it. */
	if (!on && until == NEVER)
		return fail(EINVAL);

	lock_all(cases, count);
	while (done < count && !try_case(&cases[done], &fire))
		done++;
	if (done < count) {
		unlock_all(cases, count);
		if (fire)
			switchto_waiter_fire(NULL, &fire->waiter);
		spent_by(switchto_current);
		return (int)done;
	}
	switchto_waiter_begin(&party.waiter);
	add_all(&party, nodes, cases, count);
	unlock_all(cases, count);

	error = switchto_waiter_wait(&party.waiter, until, ON_CHAN | CANCELS);
	window();
	/* A child, where the nodes are in no list any more. */
	if (error == EPERM)
		return fail(error);
	done = 0;
	/* Nobody may claim it from now on. */
	if (error && !atomic_compare_exchange_strong(&party.done, &done, count + 1)) {
		switchto_waiter_wait(&party.waiter, NEVER, ON_CHAN);
		error = 0;
	}
	done = atomic_load(&party.done) - 1;
	take_out_all(nodes, cases, count, done);
	if (error)
		return fail(error);
	cases[done].closed = party.closed;
	return (int)done;
}

int switchto_chan_send(struct switchto_chan *chan, const void *item,
		       const struct timespec *deadline)
{
	struct switchto_case c = { chan, SWITCHTO_SEND, (void *)item, false };

	if (unlikely(!chan))
		return fail(EINVAL);
	if (switchto_select(&c, 1, deadline) == -1)
		return -1;
	return c.closed ? fail(EPIPE) : 0;
}

int switchto_chan_recv(struct switchto_chan *chan, void *item, const struct timespec *deadline)
{
	struct switchto_case c = { chan, SWITCHTO_RECEIVE, item, false };

	if (unlikely(!chan))
		return fail(EINVAL);
	if (switchto_select(&c, 1, deadline) == -1)
		return -1;
	return c.closed ? fail(EPIPE) : 0;
}
