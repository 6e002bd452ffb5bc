// SPDX-License-Identifier: MIT
/*
 * Descriptors: each slot has an epoll instance. A descriptor is added to one at its first use, and
 * stays there until it is closed: so a wait for it needs no system call of its own.
 *
 * Who may close a descriptor: anybody, also with close(2), of which nobody tells. Then its number may
 * be another one's. But epoll knows: EPOLL_CTL_MOD fails if the number's descriptor is not the one
 * that was added. So marks are verified: the monitor does it for those in which tasks wait.
 *
 * A descriptor that was closed, but not everywhere (dup(2), fork(2)), stays in the epoll instance.
 * There it is a stray: nothing can remove it, and level-triggered, it may be reported for ever. Then
 * the slot makes a new instance, with all that it should have.
 */
#define _GNU_SOURCE
#include "../tsan.h"
#include "dispatch.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/*
 * How many events a poll takes; and if there are ready tasks. What these have not read yet is reported
 * once more then.
 */
enum { EVENTS = 128, LOOK_EVENTS = 32 };

/* When to submit again what the kernel had no memory for. */
enum { RETRY = 1000000 };

/* When to look again at a slot that has tasks, but is busy with them. */
enum { STEAL_AGAIN = 50000 };

/* When to ask a policy again that holds tasks back. */
enum { PICK_AGAIN = 1000000 };

/*
 * All marks, in leaves that stay until the program ends: any thread may look at them at any time.
 * Nothing else does, so the pages of those that nobody uses cost nothing.
 */
_Atomic(struct mark *) switchto_marks[LEAVES];

/* No descriptor with this number or a larger one has a mark. */
static atomic_uint marks_end;

static int add_event(struct slot *slot, int epoll)
{
	/* Edge-triggered: each write is an event, and nobody need read. */
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };

	return epoll_ctl(epoll, EPOLL_CTL_ADD, slot->event, &event);
}

int switchto_poll_begin(struct slot *slot)
{
	pthread_mutex_init(&slot->adds, NULL);
	slot->next_epoll = -1;
	slot->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (slot->epoll == -1)
		return errno;
	slot->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (slot->event == -1 || add_event(slot, slot->epoll))
		return errno;
	return 0;
}

void switchto_poll_end(struct slot *slot)
{
	if (slot->event != -1)
		close(slot->event);
	if (slot->epoll != -1)
		close(slot->epoll);
}

/* With the lock of @mark. */
static struct epoll_event event_of(struct mark *mark)
{
	const uint32_t output = atomic_load(&mark->out.word) == UNARMED ? 0 : EPOLLOUT;
	const uint32_t edge = atomic_load(&mark->edge) ? EPOLLET : 0;

	return (struct epoll_event){
		.events = EPOLLIN | EPOLLRDHUP | output | edge,
		.data.ptr = mark,
	};
}

/* Changes what @slot polls: 0 or an error number. With the lock of @mark. */
static int control(struct slot *slot, int op, struct mark *mark)
{
	struct epoll_event event = event_of(mark);
	int error;

	__tsan_release(&slot->epoll);
	pthread_mutex_lock(&slot->adds);
	error = epoll_ctl(slot->epoll, op, mark->fd, &event) ? errno : 0;
	if (unlikely(slot->next_epoll != -1))
		epoll_ctl(slot->next_epoll, op, mark->fd, &event);
	pthread_mutex_unlock(&slot->adds);
	return error;
}

/* Of a slot that was told so often of what is not its own, all is polled anew. */
enum { STRAYS = 16 };

static void make_edge(struct mark *mark);

/* There was an event, for which nobody waits: @word is what it made of the mark. Inside of @slot. */
static __attribute__((noinline)) void nobody_waits(struct slot *slot, struct mark *mark,
						   uintptr_t word)
{
	bool stray;

	if (word != UNKNOWN && word < (uintptr_t)REPORTS * EVENT)
		return;
	pthread_mutex_lock(&mark->lock);
	stray = mark->slot != slot;
	if (!stray && word != UNKNOWN)
		make_edge(mark);
	pthread_mutex_unlock(&mark->lock);
	/* There may be strays. What is edge-triggered, and slow to be read, counts as well then. */
	if (stray || atomic_load(&slot->strays))
		atomic_fetch_add(&slot->strays, 1);
}

/* @sticky: a short read says nothing, for now. */
static ALWAYS_INLINE void happened(struct slot *inside, struct mark *mark,
				   struct direction *direction, uintptr_t sticky)
{
	_Atomic uintptr_t *word = &direction->word;
	uintptr_t before = atomic_load_explicit(word, memory_order_relaxed), after;
	struct switchto_task *task;

	do {
		task = mark_task(before);
		after = READY | sticky;
		if (unlikely(!task)) {
			if (unlikely(before < NOT_READY && !is_ready(before))) {
				/* One that is not polled for output is not asked for it. */
				if (before == UNKNOWN)
					nobody_waits(inside, mark, before);
				return;
			}
			if (is_ready(before))
				after = (before + EVENT) | sticky;
		}
	} while (unlikely(!atomic_compare_exchange_weak(word, &before, after)));
	window();
	if (likely(task))
		task_wake(inside, task, WAITING, 0, SWITCHTO_IO);
	else
		nobody_waits(inside, mark, after);
}

#ifdef SYS_epoll_wait /* not on newer architectures */
#define EPOLL_WAIT(epoll, events, max, ms) CALL(epoll_wait, epoll, events, max, ms)
#else
#define EPOLL_WAIT(epoll, events, max, ms) CALL(epoll_pwait, epoll, events, max, ms, NULL, 0)
#endif

/* Linux 5.11 has a call that takes nanoseconds. Without it, a millisecond is the least. */
static long wait_for_time(int epoll, struct epoll_event *events, nsec_t timeout)
{
#ifdef SYS_epoll_pwait2
	static atomic_bool missing;

	if (!atomic_load_explicit(&missing, memory_order_relaxed)) {
		struct timespec left = { timeout / NSEC_PER_SEC, timeout % NSEC_PER_SEC };
		long n = CALL(epoll_pwait2, epoll, events, EVENTS, &left, NULL, 0);

		if (n >= 0 || n == -EINTR)
			return n;
		atomic_store_explicit(&missing, true, memory_order_relaxed);
	}
#endif
	timeout = (timeout + 999999) / 1000000;
	return EPOLL_WAIT(epoll, events, EVENTS, timeout < INT32_MAX ? timeout : INT32_MAX);
}

/* @timeout, or less if there is something to do. @steals: others may have tasks for @slot. */
static ALWAYS_INLINE nsec_t begin_sleep(struct slot *slot, nsec_t timeout, bool steals)
{
	/* Paired with the exchange in switchto_slot_wake(). */
	atomic_store(&slot->asleep, 1);
	window();
	if (unlikely(atomic_load(&slot->inbox)) || unlikely(!atomic_load(&slot->sched->tasks)))
		return 0;
	/* It has just tried in vain. */
	if (steals && switchto_can_steal(slot))
		return STEAL_AGAIN < timeout ? STEAL_AGAIN : timeout;
	probe2(poll, slot, timeout);
	return timeout;
}

/* The policy has tasks, and gave none. */
static inline bool holds_back(struct slot *slot)
{
	return atomic_load_explicit(&slot->ready, memory_order_relaxed) != 0;
}

/* @mark to a new instance of epoll. */
static bool add_to(int epoll, struct mark *mark)
{
	struct epoll_event event = event_of(mark);

	/* It may be there already, or have been closed. */
	return !epoll_ctl(epoll, EPOLL_CTL_ADD, mark->fd, &event) || errno == EEXIST ||
	       errno == EBADF || errno == EPERM;
}

/* Has all that @slot polls polled by a new instance of epoll, without strays. */
static __attribute__((noinline)) void poll_anew(struct slot *slot)
{
	const int next = epoll_create1(EPOLL_CLOEXEC);
	const unsigned int end = atomic_load(&marks_end);
	bool good = next != -1 && !add_event(slot, next) && !switchto_ring_poll(slot, next);

	/* If there is no descriptor or memory for it, again after some more. */
	atomic_store(&slot->strays, 0);
	/* What is added from now on is added to both. */
	pthread_mutex_lock(&slot->adds);
	slot->next_epoll = next;
	pthread_mutex_unlock(&slot->adds);
	for (unsigned int fd = 0; good && fd < end; fd++) {
		struct mark *mark = mark_of(fd);

		if (!mark || atomic_load(&mark->sched) != slot->sched)
			continue;
		pthread_mutex_lock(&mark->lock);
		if (mark->slot == slot)
			good = add_to(next, mark);
		pthread_mutex_unlock(&mark->lock);
	}
	pthread_mutex_lock(&slot->adds);
	if (good)
		dup3(next, slot->epoll, O_CLOEXEC);
	slot->next_epoll = -1;
	pthread_mutex_unlock(&slot->adds);
	if (next != -1)
		close(next);
}

/* The tasks whose descriptors have these events are ready. */
static ALWAYS_INLINE void take_events(struct slot *slot, const struct epoll_event *events, long n)
{
	bool others = false;

	/* Their tasks are to run before the next look. */
	if (likely(n > 0))
		atomic_store_explicit(&slot->budget,
				      atomic_load_explicit(&slot->budget, memory_order_relaxed) +
					      (int)n * PICK_COSTS,
				      memory_order_relaxed);
	/* Whoever added a descriptor, maybe while the slot was another's, made its mark before. */
	__tsan_acquire(&slot->epoll);
	atomic_store_explicit(&slot->asleep, 0, memory_order_relaxed);
	for (; n > 0; n--, events++) {
		// NOLINTNEXTLINE(clang-analyzer-core.uninitialized.Assign): the kernel wrote it
		const uint32_t what = events->events;
		struct mark *mark = events->data.ptr;
		uintptr_t sticky;

		if (unlikely(!mark)) { /* the eventfd, or the ring */
			others = true;
			continue;
		}
		sticky = atomic_load_explicit(&mark->edge, memory_order_relaxed) ? STICKY : 0;
		if (unlikely(what & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))) {
			sticky = STICKY;
			if (what & (EPOLLRDHUP | EPOLLHUP))
				atomic_store(&mark->hung_up, true);
		}
		if (likely(what & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)))
			happened(slot, mark, &mark->in, sticky);
		if (unlikely(what & (EPOLLOUT | EPOLLHUP | EPOLLERR)))
			happened(slot, mark, &mark->out, STICKY);
	}
	if (unlikely(atomic_load_explicit(&slot->strays, memory_order_relaxed) >= STRAYS))
		poll_anew(slot);
	if (unlikely(others) && slot->ring)
		switchto_ring_reap(slot);
}

/* Looks for events, and waits for one at most until @deadline: inside. */
static __attribute__((noinline)) void poll_until(struct slot *slot, nsec_t deadline)
{
	const bool steals = slot->sched->flags & SWITCHTO_STEAL;
	struct epoll_event events[EVENTS];
	nsec_t timeout = deadline;
	long n;

	if (deadline && deadline != NEVER) {
		timeout = deadline - switchto_now();
		if (timeout < 0)
			timeout = 0;
	}
	if (unlikely(slot->unsubmitted)) {
		switchto_ring_submit(slot);
		if (!slot->unsubmitted)
			timeout = 0;
		else if (timeout > RETRY)
			timeout = RETRY;
	}
	if (unlikely(holds_back(slot)) && timeout > PICK_AGAIN)
		timeout = PICK_AGAIN;
	if (timeout) {
		timeout = begin_sleep(slot, timeout, steals);
		window();
	}
	if (timeout == 0 || timeout == NEVER)
		n = EPOLL_WAIT(slot->epoll, events, deadline ? EVENTS : LOOK_EVENTS,
			       timeout ? -1 : 0);
	else
		n = wait_for_time(slot->epoll, events, timeout);
	take_events(slot, events, n);
	if (slot->timers.count)
		switchto_timer_expire(slot);
}

/* The same in line, where there is nothing but descriptors to wait for. */
static ALWAYS_INLINE void poll_events(struct slot *slot)
{
	struct epoll_event events[EVENTS];
	nsec_t timeout;

	if (unlikely(slot->timers.count) || unlikely(slot->unsubmitted) ||
	    unlikely(holds_back(slot)) || unlikely(slot->sched->flags & SWITCHTO_STEAL)) {
		poll_until(slot, timer_next(&slot->timers));
		return;
	}
	timeout = begin_sleep(slot, NEVER, false);
	window();
	take_events(slot, events, EPOLL_WAIT(slot->epoll, events, EVENTS, timeout ? -1 : 0));
}

/* After the inbox. */
static ALWAYS_INLINE struct switchto_entry *pick(struct slot *slot)
{
	struct switchto_entry *entry;

	if (unlikely(atomic_load_explicit(&slot->inbox, memory_order_relaxed)))
		switchto_slot_empty_inbox(slot);
	if (likely(slot->is_fifo))
		return fifo_pick(slot->queue);
	entry = slot->pick(slot->queue);
	if (entry)
		change_ready(slot, -1);
	return entry;
}

static ALWAYS_INLINE void count_poll(struct slot *slot)
{
	const unsigned int polls = atomic_load_explicit(&slot->polls, memory_order_relaxed);

	atomic_store_explicit(&slot->budget, slot->full, memory_order_relaxed);
	atomic_store_explicit(&slot->polls, polls + 1, memory_order_relaxed);
}

/* There were events, but for no task. */
static __attribute__((noinline)) struct switchto_entry *poll_again(struct slot *slot)
{
	struct switchto_entry *entry = NULL;

	while (!entry && atomic_load(&slot->sched->tasks)) {
		count_poll(slot);
		poll_until(slot, timer_next(&slot->timers));
		entry = pick(slot);
	}
	return entry;
}

/* What lasts for a quarter of LOOK, if @full lasted for @passed. */
static int next_budget(int full, nsec_t passed)
{
	const nsec_t next = full * (nsec_t)(LOOK / 4) / (passed > 0 ? passed : 1);

	return next < 1 ? 1 : next > BUDGET ? BUDGET : (int)next;
}

/* The budget of @slot has run out, and is full again. Is it time to poll? Inside. */
static bool is_due(struct slot *slot)
{
	const int left = atomic_load_explicit(&slot->budget, memory_order_relaxed);
	const unsigned int polls = atomic_load_explicit(&slot->polls, memory_order_relaxed);
	const nsec_t now = switchto_now();
	bool due = false;

	if (left <= FORCED / 2) {
		slot->full = 1;
		due = true;
	} else if (slot->known_polls != polls) {
		/* It has polled since it last looked at the clock, and may have slept. */
		slot->full = slot->full < BUDGET / 2 ? 2 * slot->full : BUDGET;
		slot->polled = now;
	} else {
		slot->full = next_budget(slot->full, now - slot->checked);
		due = now - slot->polled >= LOOK;
	}
	slot->known_polls = polls;
	slot->checked = now;
	atomic_store_explicit(&slot->budget, slot->full, memory_order_relaxed);
	return due;
}

/* Looks for events, with tasks that are ready. Inside. */
static void look(struct slot *slot)
{
	count_poll(slot);
	poll_until(slot, 0);
	slot->known_polls = atomic_load_explicit(&slot->polls, memory_order_relaxed);
	slot->polled = slot->checked;
}

/* Of a slot that is no FIFO, or has something in its inbox, or has no budget left. */
static __attribute__((noinline)) struct switchto_entry *pick_next(struct slot *slot)
{
	const int left = atomic_load_explicit(&slot->budget, memory_order_relaxed) - PICK_COSTS;

	atomic_store_explicit(&slot->budget, left, memory_order_relaxed);
	if (unlikely(left < 0) && is_due(slot))
		look(slot);
	return pick(slot);
}

__attribute__((noinline)) long switchto_slot_give_way(struct thread *me, long result)
{
	struct slot *slot;

	if (!enter_task(me)) {
		/* In a blocking region. */
		atomic_store_explicit(&me->slot->budget, BUDGET, memory_order_relaxed);
		return result;
	}
	slot = me->slot;
	if (atomic_load_explicit(&slot->budget, memory_order_relaxed) < 0 && is_due(slot)) {
		look(slot);
		enqueue_task(slot, me->task, SWITCHTO_YIELDED);
		dispatch_task(me);
	}
	leave(me);
	return result;
}

/* Here, to have the wait for events in line. */
__attribute__((noinline)) struct switchto_task *switchto_slot_next(struct slot *slot, bool none)
{
	struct switchto_entry *entry = none ? NULL : pick_next(slot);

	if (likely(!entry)) {
		count_poll(slot);
		poll_events(slot);
		entry = pick(slot);
		if (unlikely(!entry))
			entry = poll_again(slot);
	}
	if (likely(entry))
		probe2(run, slot, entry);
	return (struct switchto_task *)entry;
}

/* NULL and errno: none can be. */
static struct mark *get_mark(int number)
{
	const unsigned int fd = (unsigned int)number;
	struct mark *mark = mark_of(fd), *leaf, *other = NULL;
	unsigned int end = atomic_load(&marks_end);

	if (fd >= MARKS * LEAVES) {
		errno = EBADF;
		return NULL;
	}
	if (!mark) {
		leaf = mmap(NULL, MARKS * sizeof(*leaf), PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (leaf == MAP_FAILED) {
			errno = ENOMEM;
			return NULL;
		}
		if (!atomic_compare_exchange_strong(&switchto_marks[fd / MARKS], &other, leaf))
			munmap(leaf, MARKS * sizeof(*leaf));
		mark = mark_of(fd);
	}
	while (end <= fd && !atomic_compare_exchange_weak(&marks_end, &end, fd + 1))
		;
	return mark;
}

/* The mark's word becomes @value. A task in it goes on, with @error. */
static void set_word(struct direction *direction, uintptr_t value, int error)
{
	uintptr_t before = atomic_exchange(&direction->word, value);

	window();
	if (mark_task(before))
		task_wake(NULL, mark_task(before), WAITING, error, SWITCHTO_IO);
}

/* With the lock. Those who wait for their turn get EBADF. */
static void end_turns(struct direction *direction)
{
	struct turn *turn = atomic_load(&direction->first);

	atomic_store(&direction->first, NULL);
	while (turn) {
		struct turn *next = turn->next;

		turn->error = EBADF;
		turn->listed = false;
		switchto_waiter_fire(NULL, &turn->waiter);
		turn = next;
	}
}

/* With the lock: no slot polls @mark any more. Tasks that wait go on, with @error. */
static void drop(struct mark *mark, int error)
{
	set_word(&mark->in, UNKNOWN, error);
	set_word(&mark->out, UNKNOWN, error);
	if (error) {
		end_turns(&mark->in);
		end_turns(&mark->out);
	}
	mark->slot = NULL;
	atomic_store(&mark->sched, NULL);
}

/* Whatever was added may be open elsewhere, and a stray. */
static void expect_strays(struct slot *slot)
{
	atomic_compare_exchange_strong(&slot->strays, &(unsigned int){ 0 }, 1);
}

/*
 * With the lock: the kernel looks at the descriptor anew, and makes an event if there is something. 0
 * or an error number. ESTALE: the number has been given to another descriptor, or to none, since
 * @mark was added. Then @mark is dropped. A task that waits tries again, and has the new one added.
 * But if @mark was verified during the wait, that was a wait for a descriptor that is gone: EBADF.
 */
static int renew(struct mark *mark)
{
	const uintptr_t in = atomic_load(&mark->in.word), out = atomic_load(&mark->out.word);
	const int error = control(mark->slot, EPOLL_CTL_MOD, mark);

	if (error != ENOENT && error != EBADF)
		return error;
	expect_strays(mark->slot);
	drop(mark,
	     (mark_task(in) && in & VERIFIED) || (mark_task(out) && out & VERIFIED) ? EBADF : 0);
	return ESTALE;
}

bool switchto_poll_is_valid(struct mark *mark)
{
	bool valid;

	pthread_mutex_lock(&mark->lock);
	valid = mark->slot && renew(mark) != ESTALE;
	pthread_mutex_unlock(&mark->lock);
	return valid;
}

/* With the lock. */
static void make_edge(struct mark *mark)
{
	int error;

	if (atomic_load(&mark->edge))
		return;
	/* Before: what is reported from now on is STICKY. */
	atomic_store(&mark->edge, true);
	window();
	error = renew(mark);
	if (error && error != ESTALE)
		atomic_store(&mark->edge, false);
}

void switchto_poll_edge(struct mark *mark)
{
	pthread_mutex_lock(&mark->lock);
	if (mark->slot)
		make_edge(mark);
	pthread_mutex_unlock(&mark->lock);
}

/* With the lock: has @mark polled for output, too. 0 or an error number, as renew(). */
static int add_output(struct mark *mark)
{
	const bool edge = atomic_load(&mark->edge);
	int error;

	atomic_store(&mark->edge, true);
	atomic_store(&mark->out.word, READY | STICKY);
	window();
	error = renew(mark);
	if (error && error != ESTALE) {
		/* A task that waits by now finds it so, and tries again. */
		set_word(&mark->out, UNARMED, 0);
		atomic_store(&mark->edge, edge);
	}
	return error;
}

/* A stream socket, or a pipe that does not keep packets apart. */
static bool is_stream(struct mark *mark, int flags)
{
	socklen_t size = sizeof(int);
	struct stat found;
	int type;

	atomic_store(&mark->socket, !getsockopt(mark->fd, SOL_SOCKET, SO_TYPE, &type, &size));
	if (atomic_load(&mark->socket))
		return type == SOCK_STREAM;
	return !fstat(mark->fd, &found) && S_ISFIFO(found.st_mode) && !(flags & O_DIRECT);
}

/*
 * With the lock. @slot is of another scheduler than the one that polls @mark: that ends. 0 or EBUSY,
 * if a task of the other one waits.
 */
static int leave_other(struct mark *mark)
{
	/* Paired with the load in slot_wait_once(). */
	atomic_store(&mark->sched, NULL);
	window();
	if (mark_task(atomic_load(&mark->in.word)) || mark_task(atomic_load(&mark->out.word))) {
		atomic_store(&mark->sched, mark->slot->sched);
		return EBUSY;
	}
	control(mark->slot, EPOLL_CTL_DEL, mark);
	mark->slot = NULL;
	return 0;
}

/* With the lock: 0 or an error number. */
static int add(struct slot *slot, struct mark *mark, bool output)
{
	int error, flags = fcntl(mark->fd, F_GETFL);

	if (flags == -1)
		return errno;
	/* Nobody waits in it. */
	set_word(&mark->in, UNKNOWN, 0);
	set_word(&mark->out, output ? UNKNOWN : UNARMED, 0);
	atomic_store(&mark->in_vain, 0);
	atomic_store(&mark->hung_up, false);
	atomic_store(&mark->readable, (flags & O_ACCMODE) != O_WRONLY);
	atomic_store(&mark->edge, !is_stream(mark, flags) || output);
	error = control(slot, EPOLL_CTL_ADD, mark);
	if (error == EEXIST) /* a stray that is back */
		error = control(slot, EPOLL_CTL_MOD, mark);
	if (!error && !(flags & O_NONBLOCK) && fcntl(mark->fd, F_SETFL, flags | O_NONBLOCK))
		error = errno;
	if (error) {
		drop(mark, 0);
		return error;
	}
	mark->slot = slot;
	/* Only a system call says whether it is ready. */
	set_word(&mark->in, atomic_load(&mark->edge) ? READY | STICKY : READY, 0);
	set_word(&mark->out, output ? READY | STICKY : UNARMED, 0);
	atomic_store(&mark->sched, slot->sched);
	return 0;
}

struct mark *switchto_poll_add(struct slot *slot, int fd, bool output)
{
	struct mark *mark = get_mark(fd);
	int error = 0;

	if (!mark)
		return NULL;
	/* Two tasks may come here at once. */
	pthread_mutex_lock(&mark->lock);
	mark->fd = fd;
	if (mark->slot && mark->slot->sched != slot->sched)
		error = leave_other(mark);
	if (!error && mark->slot && output && atomic_load(&mark->out.word) == UNARMED)
		error = add_output(mark);
	if (error == ESTALE || (!error && !mark->slot))
		error = add(slot, mark, output);
	pthread_mutex_unlock(&mark->lock);
	if (error)
		errno = error;
	return error ? NULL : mark;
}

int switchto_poll_forget(int fd, bool closes)
{
	struct mark *mark = mark_of((unsigned int)fd);
	int result = 0;

	if (mark) {
		/*
		 * Until the number is free: another task may use the descriptor meanwhile, and add
		 * it. close(2) would not remove it if it was duplicated, or a child has it.
		 */
		pthread_mutex_lock(&mark->lock);
		if (mark->slot && control(mark->slot, EPOLL_CTL_DEL, mark))
			expect_strays(mark->slot);
		drop(mark, EBADF);
	}
	if (closes)
		result = close(fd);
	if (mark)
		pthread_mutex_unlock(&mark->lock);
	/* It is closed all the same. */
	return result && errno == EINTR ? 0 : result;
}

void switchto_poll_new(int fd)
{
	struct mark *mark = mark_of((unsigned int)fd);

	if (unlikely(mark && atomic_load_explicit(&mark->sched, memory_order_relaxed)))
		switchto_poll_forget(fd, false);
}

/* --- the monitor's part --- */

/*
 * At a time: so many marks are looked at, and of these, so many are verified that were not during
 * this wait, and so many that were. With few descriptors, that is each of them.
 */
enum { LOOKED_AT = 1024, FIRST_TIME = 16, AGAIN = 2 };

static void set_verified(struct direction *direction)
{
	uintptr_t word = atomic_load(&direction->word);

	if (mark_task(word))
		atomic_compare_exchange_strong(&direction->word, &word, word | VERIFIED);
}

static bool waits_unverified(struct direction *direction)
{
	const uintptr_t word = atomic_load_explicit(&direction->word, memory_order_relaxed);

	return mark_task(word) && !(word & VERIFIED);
}

void switchto_poll_verify(struct switchto_sched *sched)
{
	const unsigned int end = atomic_load(&marks_end);
	unsigned int first = FIRST_TIME, again = AGAIN;

	for (unsigned int n = 0; n < end && n < LOOKED_AT && first; n++) {
		const unsigned int fd = sched->next_mark < end ? sched->next_mark : 0;
		struct mark *mark = mark_of(fd);

		sched->next_mark = fd + 1;
		if (!mark || atomic_load_explicit(&mark->sched, memory_order_relaxed) != sched)
			continue;
		if (waits_unverified(&mark->in) || waits_unverified(&mark->out))
			first--;
		else if (again && (mark_task(atomic_load(&mark->in.word)) ||
				   mark_task(atomic_load(&mark->out.word))))
			again--;
		else
			continue;
		pthread_mutex_lock(&mark->lock);
		if (mark->slot && mark->slot->sched == sched && renew(mark) != ESTALE) {
			set_verified(&mark->in);
			set_verified(&mark->out);
		}
		pthread_mutex_unlock(&mark->lock);
	}
}

void switchto_poll_leave(const struct switchto_sched *sched)
{
	const unsigned int end = atomic_load(&marks_end);

	for (unsigned int fd = 0; fd < end; fd++) {
		struct mark *mark = mark_of(fd);

		if (!mark)
			continue;
		/* Somebody may be closing it. */
		pthread_mutex_lock(&mark->lock);
		if (mark->slot && mark->slot->sched == sched)
			drop(mark, 0);
		pthread_mutex_unlock(&mark->lock);
	}
}

/* The instances of epoll are the parent's, too: nothing may be removed from them. */
void switchto_poll_forked(void)
{
	for (unsigned int fd = 0; fd < atomic_load(&marks_end); fd += MARKS)
		atomic_store(&switchto_marks[fd / MARKS], NULL);
	atomic_store(&marks_end, 0);
}

/* --- several tasks at one descriptor --- */

static void append(struct direction *direction, struct turn *turn)
{
	turn->next = NULL;
	turn->listed = true;
	turn->error = 0;
	if (atomic_load(&direction->first))
		direction->last->next = turn;
	else
		atomic_store(&direction->first, turn);
	direction->last = turn;
}

/* With the lock. The first one looks whether it can go on. */
static void wake_first(struct direction *direction)
{
	struct turn *first = atomic_load(&direction->first);

	if (first)
		switchto_waiter_fire(NULL, &first->waiter);
}

static void take_out(struct direction *direction, struct turn *turn)
{
	struct turn *before = atomic_load(&direction->first);

	if (before == turn) {
		atomic_store(&direction->first, turn->next);
		return;
	}
	while (before->next != turn)
		before = before->next;
	before->next = turn->next;
	if (direction->last == turn)
		direction->last = before;
}

void switchto_turn_end(struct mark *mark, struct direction *direction, struct turn *turn)
{
	pthread_mutex_lock(&mark->lock);
	if (turn && turn->listed) {
		take_out(direction, turn);
		turn->listed = false;
	}
	wake_first(direction);
	pthread_mutex_unlock(&mark->lock);
}

int switchto_turn_wait(struct mark *mark, struct direction *direction, struct turn *turn,
		       const struct timespec *deadline)
{
	const nsec_t until = switchto_deadline(deadline);
	bool go_on;
	int error;

	if (until < 0)
		return EINVAL;
	pthread_mutex_lock(&mark->lock);
	switchto_waiter_begin(&turn->waiter);
	if (!turn->listed)
		append(direction, turn);
	/* Paired with the look at the list at the end of the call that is in the word. */
	go_on = atomic_load(&direction->first) == turn && !mark_task(atomic_load(&direction->word));
	pthread_mutex_unlock(&mark->lock);
	if (go_on)
		return 0;
	error = switchto_waiter_wait(&turn->waiter, until, true);
	return turn->error ? turn->error : error;
}
