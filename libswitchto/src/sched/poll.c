// SPDX-License-Identifier: MIT
/*
 * Descriptors: each slot has an epoll instance. A descriptor is added to one at its first use,
 * edge-triggered, and stays there until it is closed: so a wait for it needs no system call of its
 * own.
 */
#define _GNU_SOURCE
#include "internal.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { EVENTS = 128 };

/* When to submit again what the kernel had no memory for. */
enum { RETRY = 1000000 };

/* When to look again at a slot that has tasks, but is busy with them. */
enum { STEAL_AGAIN = 50000 };

int switchto_poll_begin(struct slot *slot)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };

	slot->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (slot->epoll == -1)
		return errno;
	/* Edge-triggered: each write is an event, and nobody need read. */
	slot->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (slot->event == -1)
		return errno;
	event.data.ptr = NULL;
	if (epoll_ctl(slot->epoll, EPOLL_CTL_ADD, slot->event, &event))
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

static ALWAYS_INLINE void happened(struct slot *inside, _Atomic uintptr_t *mark, bool hung_up)
{
	uintptr_t before = atomic_load_explicit(mark, memory_order_relaxed), after;

	do {
		if (before < NOT_READY)
			return;
		after = hung_up ? HUNG_UP : is_ready(before) ? before + EVENT : READY;
	} while (!atomic_compare_exchange_weak(mark, &before, after));
	window();
	if (mark_task(before))
		task_wake(inside, mark_task(before), WAITING, 0, SWITCHTO_IO);
}

#ifdef SYS_epoll_wait /* not on newer architectures */
#define EPOLL_WAIT(epoll, events, ms) CALL(epoll_wait, epoll, events, EVENTS, ms)
#else
#define EPOLL_WAIT(epoll, events, ms) CALL(epoll_pwait, epoll, events, EVENTS, ms, NULL, 0)
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
	return EPOLL_WAIT(epoll, events, timeout < INT32_MAX ? timeout : INT32_MAX);
}

/* @timeout, or less if there is something to do. */
static ALWAYS_INLINE nsec_t begin_sleep(struct slot *slot, nsec_t timeout)
{
	/* Paired with the exchange in switchto_slot_wake(). */
	atomic_store(&slot->asleep, 1);
	window();
	if (atomic_load(&slot->inbox) || !atomic_load(&slot->sched->tasks))
		return 0;
	/* It has just tried in vain. */
	if (unlikely(slot->sched->flags & SWITCHTO_STEAL) && switchto_can_steal(slot))
		return STEAL_AGAIN < timeout ? STEAL_AGAIN : timeout;
	probe2(poll, slot, timeout);
	return timeout;
}

void switchto_poll_events(struct slot *slot, nsec_t deadline)
{
	struct epoll_event events[EVENTS];
	nsec_t timeout = deadline;
	bool others = false;
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
	if (timeout) {
		timeout = begin_sleep(slot, timeout);
		window();
	}
	if (timeout == 0 || timeout == NEVER)
		n = EPOLL_WAIT(slot->epoll, events, timeout ? -1 : 0);
	else
		n = wait_for_time(slot->epoll, events, timeout);
	atomic_store_explicit(&slot->asleep, 0, memory_order_relaxed);

	for (int i = 0; i < n; i++) {
		// NOLINTNEXTLINE(clang-analyzer-core.uninitialized.Assign): the kernel wrote it
		const uint32_t what = events[i].events;
		struct mark *mark = events[i].data.ptr;

		if (!mark) { /* the eventfd, or the ring */
			others = true;
			continue;
		}
		if (what & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))
			happened(slot, &mark->in, what & (EPOLLRDHUP | EPOLLHUP));
		if (what & (EPOLLOUT | EPOLLHUP | EPOLLERR))
			happened(slot, &mark->out, what & EPOLLHUP);
	}
	if (others && slot->ring)
		switchto_ring_reap(slot);
	if (unlikely(slot->timers.count))
		switchto_timer_expire(slot);
}

/* NULL and errno: none can be. */
static struct mark *get_mark(struct switchto_sched *sched, int number)
{
	const unsigned int fd = (unsigned int)number;
	struct mark *mark = mark_of(sched, fd), *leaf, *other = NULL;

	if (mark)
		return mark;
	if (fd >= MARKS * LEAVES) {
		errno = EBADF;
		return NULL;
	}
	leaf = calloc(MARKS, sizeof(*leaf));
	if (!leaf) {
		errno = ENOMEM;
		return NULL;
	}
	if (!atomic_compare_exchange_strong(&sched->marks[fd / MARKS], &other, leaf))
		free(leaf);
	return mark_of(sched, fd);
}

/* A stream socket, or a pipe that does not keep packets apart. */
static bool is_stream(int fd, int flags)
{
	socklen_t size = sizeof(int);
	struct stat found;
	int type;

	if (!getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size))
		return type == SOCK_STREAM;
	return !fstat(fd, &found) && S_ISFIFO(found.st_mode) && !(flags & O_DIRECT);
}

static struct slot *slot_of(uintptr_t word)
{
	return (struct slot *)(word & ~(uintptr_t)STREAM); // NOLINT(performance-no-int-to-ptr)
}

/* With the mark's lock. @flags: of the descriptor. 0 or an error number. */
static int arm(struct slot *slot, struct mark *mark, int fd, int flags, bool output)
{
	const uintptr_t added = atomic_load(&mark->slot);
	struct epoll_event event = { .events = EPOLLIN | EPOLLRDHUP | EPOLLET, .data.ptr = mark };
	uintptr_t in = UNKNOWN, out = atomic_load(&mark->out);

	if (output)
		event.events |= EPOLLOUT;
	if (added) {
		slot = slot_of(added);
		if (!output || out != UNARMED)
			return 0; /* somebody else was faster */
	}
	if (epoll_ctl(slot->epoll, added ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &event)) {
		if (errno != EPERM)
			return errno;
		/* a file or directory */
		atomic_store(&mark->in, BLOCKS);
		atomic_store(&mark->out, BLOCKS);
		return 0;
	}
	if (!added)
		atomic_store(&mark->slot, (uintptr_t)slot + (is_stream(fd, flags) ? STREAM : 0));
	/* Nobody waits before it is polled. Only a system call says whether it is ready. */
	atomic_compare_exchange_strong(&mark->in, &in, READY);
	atomic_store(&mark->out, output ? READY : UNARMED);
	return 0;
}

struct mark *switchto_poll_add(struct slot *slot, int fd, bool output)
{
	struct mark *mark;
	int flags, error;

	flags = fcntl(fd, F_GETFL);
	if (flags == -1 || (!(flags & O_NONBLOCK) && fcntl(fd, F_SETFL, flags | O_NONBLOCK)))
		return NULL;
	mark = get_mark(slot->sched, fd);
	if (!mark)
		return NULL;
	/* Two tasks may come here at once. */
	pthread_mutex_lock(&mark->lock);
	error = arm(slot, mark, fd, flags, output);
	pthread_mutex_unlock(&mark->lock);
	if (error)
		errno = error;
	return error ? NULL : mark;
}

static void forget(_Atomic uintptr_t *mark)
{
	uintptr_t before = atomic_exchange(mark, UNKNOWN);

	window();
	if (mark_task(before))
		task_wake(NULL, mark_task(before), WAITING, EBADF, SWITCHTO_IO);
}

int switchto_poll_close(struct switchto_sched *sched, int fd)
{
	struct mark *mark = get_mark(sched, fd);
	struct slot *slot;
	int result;

	if (!mark)
		return close(fd);
	/* Until the number is free: another task may use the descriptor meanwhile, and add it. */
	pthread_mutex_lock(&mark->lock);
	slot = slot_of(atomic_exchange(&mark->slot, 0));
	/* close(2) would not do it if the descriptor was duplicated, or a child has it. */
	if (slot)
		epoll_ctl(slot->epoll, EPOLL_CTL_DEL, fd, NULL);
	forget(&mark->in);
	forget(&mark->out);
	result = close(fd);
	pthread_mutex_unlock(&mark->lock);
	return result;
}
