// SPDX-License-Identifier: MIT
/*
 * Channels. A send copies its item into the buffer, or straight to a receiver that waits.
 *
 * Who waits has a node in each channel that it waits for, and one party. Who finds a node claims
 * its party first: that decides for which of its channels it is done. switchto_select() holds the
 * locks of all its channels while it looks, so nobody claims it meanwhile.
 *
 * A claim takes the node out, and wakes its party when it is done with the channel. The woken one does
 * not touch this channel any more: the other side may have destroyed it. From all other channels only
 * their party takes its nodes out. Until then nobody can destroy these.
 */
#define _GNU_SOURCE
#include "sync.h"

#include <stdlib.h>
#include <string.h>

struct party {
	struct waiter waiter;
	_Atomic size_t done; /* the case that happened + 1; 0: none yet */
	bool closed;	     /* because the channel was closed */
};

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
static bool try_send(struct switchto_chan *chan, const void *item, struct party **fire)
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

static bool try_receive(struct switchto_chan *chan, void *item, struct party **fire)
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
static bool try_case(struct switchto_case *c, struct party **fire)
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

/* The channel of @cases, if it has one, after @last in the order of addresses, or NULL: all are locked in it. */
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
		switchto_watch_exit(&cases[i].chan->watched);
		node_add(nodes_of(&cases[i]), &nodes[i]);
	}
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
		if (cases[i].op != SWITCHTO_SEND && cases[i].op != SWITCHTO_RECEIVE)
			return fail(EINVAL);
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

	error = switchto_waiter_wait(&party.waiter, until, true);
	window();
	/* A child, where the nodes are in no list any more. */
	if (error == EPERM)
		return fail(error);
	done = 0;
	/* Nobody may claim it from now on. */
	if (error && !atomic_compare_exchange_strong(&party.done, &done, count + 1)) {
		switchto_waiter_wait(&party.waiter, NEVER, false);
		error = 0;
	}
	done = atomic_load(&party.done) - 1;
	for (size_t i = 0; i < count; i++) {
		if (i == done || !cases[i].chan)
			continue;
		switchto_lock_inner(&cases[i].chan->lock);
		node_remove(&nodes[i]);
		switchto_mutex_unlock(&cases[i].chan->lock);
	}
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
