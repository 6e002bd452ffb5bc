// SPDX-License-Identifier: MIT
/*
 * The wait for events: each slot has an epoll instance, which polls an eventfd, the slot's ring, and
 * the descriptors that mark.c adds. With too many strays in it, the slot makes a new one.
 */
#define _GNU_SOURCE
#include "../tsan.h"
#include "dispatch.h"
#include "ring.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
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

/* Of a slot that was told so often of what is not its own, all is polled anew. */
enum { STRAYS = 16 };

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

/* Has all that @slot polls polled by a new instance of epoll, without strays. */
static __attribute__((noinline)) void poll_anew(struct slot *slot)
{
	const int next = epoll_create1(EPOLL_CLOEXEC);
	bool good = next != -1 && !add_event(slot, next) && !switchto_ring_poll(slot, next);

	/* If there is no descriptor or memory for it, again after some more. */
	atomic_store(&slot->strays, 0);
	/* What is added from now on is added to both. */
	pthread_mutex_lock(&slot->adds);
	slot->next_epoll = next;
	pthread_mutex_unlock(&slot->adds);
	good = good && switchto_mark_add_all(slot, next);
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
			mark_event(slot, mark, &mark->in, sticky);
		if (unlikely(what & (EPOLLOUT | EPOLLHUP | EPOLLERR)))
			mark_event(slot, mark, &mark->out, STICKY);
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
