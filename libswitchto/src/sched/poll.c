// SPDX-License-Identifier: MIT
/*
 * The wait for events: each slot has an epoll instance, which polls an eventfd, the slot's ring, and
 * the descriptors that mark.c adds. With too many strays in it, the slot makes a new one.
 */
#define _GNU_SOURCE
#include "poll.h"

#include "mark.h"
#include "ring.h"
#include "step.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

static int add_event(struct slot *slot, int epoll)
{
	/* Edge-triggered: each write is an event, and nobody need read. */
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };

	return epoll_ctl(epoll, EPOLL_CTL_ADD, slot->event, &event);
}

int switchto_poll_show(struct slot *slot, int epoll)
{
	/* As long as there is an event in it, whoever has taken the last one. */
	struct epoll_event event = { .events = EPOLLIN };

	if (!slot->steps || slot->steps->epoll == -1)
		return 0;
	return epoll_ctl(slot->steps->epoll, EPOLL_CTL_ADD, epoll, &event);
}

int switchto_poll_begin(struct slot *slot)
{
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
	pthread_mutex_destroy(&slot->adds);
	if (slot->event != -1)
		sure_close(slot->event);
	if (slot->epoll != -1)
		sure_close(slot->epoll);
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

/* Has all that @slot polls polled by a new instance of epoll, without strays. */
static __attribute__((noinline)) void poll_anew(struct slot *slot)
{
	const int next = epoll_create1(EPOLL_CLOEXEC);
	bool good = next != -1 && !add_event(slot, next) && !switchto_ring_poll(slot, next) &&
		    !switchto_poll_show(slot, next);

	atomic_store(&slot->strays, 0);
	/* What is added from now on is added to both. */
	pthread_mutex_lock(&slot->adds);
	slot->next_epoll = next;
	pthread_mutex_unlock(&slot->adds);
	good = good && switchto_mark_add_all(slot, next);
	pthread_mutex_lock(&slot->adds);
	if (good)
		dup3(next, slot->epoll, O_CLOEXEC);
	else /* no descriptor, or no memory for it: again after some more */
		atomic_store(&slot->strays, 1);
	slot->next_epoll = -1;
	pthread_mutex_unlock(&slot->adds);
	if (next != -1)
		sure_close(next);
}

/* The tasks whose descriptors have these events are ready. */
static ALWAYS_INLINE void take_events(struct slot *slot, const struct epoll_event *events, long n)
{
	const uintptr_t polls = atomic_load_explicit(&slot->polls, memory_order_relaxed);
	const uintptr_t event = READY | polls * POLL;
	bool others = false;

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
			mark_event(slot, mark, &mark->in, event | sticky);
		if (unlikely(what & (EPOLLOUT | EPOLLHUP | EPOLLERR)))
			mark_event(slot, mark, &mark->out, event | STICKY);
	}
	if (unlikely(atomic_load_explicit(&slot->strays, memory_order_relaxed) >= STRAYS))
		poll_anew(slot);
	if (unlikely(others) && slot->ring)
		switchto_ring_reap(slot);
}

long switchto_poll_events(struct slot *slot, nsec_t timeout, bool looks)
{
	struct worker *me = switchto_current;
	/* Paired with switchto_trace_attend(): either it is seen, or that sees that the slot sleeps. */
	const bool traced = atomic_load(&slot->looks);
	struct epoll_event events[EVENTS];
	long n;

	if (unlikely(!me))
		switchto_owner_check_fork(slot->sched);
	if (unlikely(traced))
		switchto_trace_poll(slot, timeout);
	if (timeout == 0 || timeout == NEVER)
		n = EPOLL_WAIT(slot->epoll, events, looks ? LOOK_EVENTS : EVENTS, timeout ? -1 : 0);
	else
		n = wait_for_time(slot->epoll, events, timeout);
	if (unlikely(n < 0))
		switchto_owner_check_fork(slot->sched);
	take_events(slot, events, n);
	if (unlikely(traced))
		switchto_trace_polled(slot, n);
	return n;
}
