// SPDX-License-Identifier: MIT
/*
 * Descriptors: each slot has an epoll instance. A descriptor is added to one at its first use,
 * edge-triggered and for both directions, and stays there until it is closed: so a wait for it
 * needs no system call of its own.
 */
#define _GNU_SOURCE
#include "internal.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { EVENTS = 128 };

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
	event.data.fd = -1;
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

static inline void happened(struct slot *inside, _Atomic uintptr_t *mark, bool hung_up)
{
	uintptr_t before = atomic_load_explicit(mark, memory_order_relaxed), after;

	do {
		if (before == HUNG_UP)
			return;
		after = hung_up ? HUNG_UP : before & READY ? before + EVENT : READY;
	} while (!atomic_compare_exchange_weak(mark, &before, after));
	if (mark_task(before))
		task_wake(inside, mark_task(before), 0, SWITCHTO_IO);
}

/* Linux 5.11 has a call that takes nanoseconds. Without it, a millisecond is the least. */
static int wait_for_events(int epoll, struct epoll_event *events, nsec_t timeout)
{
	if (timeout == 0)
		return (int)syscall(SYS_epoll_pwait, epoll, events, EVENTS, 0, NULL, 0);
	if (timeout == NEVER)
		return (int)syscall(SYS_epoll_pwait, epoll, events, EVENTS, -1, NULL, 0);
#ifdef SYS_epoll_pwait2
	static atomic_bool missing;

	if (!atomic_load_explicit(&missing, memory_order_relaxed)) {
		struct timespec left = { timeout / NSEC_PER_SEC, timeout % NSEC_PER_SEC };
		int n = (int)syscall(SYS_epoll_pwait2, epoll, events, EVENTS, &left, NULL, 0);

		if (n >= 0 || errno == EINTR)
			return n;
		atomic_store_explicit(&missing, true, memory_order_relaxed);
	}
#endif
	timeout = (timeout + 999999) / 1000000;
	return epoll_wait(epoll, events, EVENTS, timeout < INT32_MAX ? (int)timeout : INT32_MAX);
}

void switchto_poll_events(struct slot *slot, nsec_t deadline)
{
	struct epoll_event events[EVENTS];
	nsec_t timeout = deadline;
	int n;

	if (deadline && deadline != NEVER) {
		timeout = deadline - switchto_now();
		if (timeout < 0)
			timeout = 0;
	}
	if (timeout) {
		/* Paired with the exchange in switchto_slot_wake(). */
		atomic_store(&slot->asleep, 1);
		if (atomic_load(&slot->inbox) || !atomic_load(&slot->sched->tasks))
			timeout = 0;
	}
	n = wait_for_events(slot->epoll, events, timeout);
	atomic_store_explicit(&slot->asleep, 0, memory_order_relaxed);

	for (int i = 0; i < n; i++) {
		const uint32_t what = events[i].events;
		struct mark *mark;

		if (events[i].data.fd == -1)
			continue;
		mark = mark_of(slot->sched, (unsigned int)events[i].data.fd);
		if (what & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))
			happened(slot, &mark->in, what & (EPOLLRDHUP | EPOLLHUP));
		if (what & (EPOLLOUT | EPOLLHUP | EPOLLERR))
			happened(slot, &mark->out, what & EPOLLHUP);
	}
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

struct mark *switchto_poll_add(struct slot *slot, int fd)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET };
	struct mark *mark;
	int flags, error = 0;

	flags = fcntl(fd, F_GETFL);
	if (flags == -1 || (!(flags & O_NONBLOCK) && fcntl(fd, F_SETFL, flags | O_NONBLOCK)))
		return NULL;
	mark = get_mark(slot->sched, fd);
	if (!mark)
		return NULL;
	/* Two tasks may come here at once: neither waits before the marks are set. */
	pthread_mutex_lock(&mark->lock);
	if (!atomic_load(&mark->slot)) {
		/* Tried before anything is known of it: only a system call says whether it is ready. */
		atomic_store(&mark->in, READY);
		atomic_store(&mark->out, READY);
		event.data.fd = fd;
		if (epoll_ctl(slot->epoll, EPOLL_CTL_ADD, fd, &event))
			error = errno;
		if (error == EPERM) { /* a file or directory */
			error = 0;
			atomic_store(&mark->in, BLOCKS);
			atomic_store(&mark->out, BLOCKS);
		}
		if (!error)
			atomic_store_explicit(&mark->slot, slot, memory_order_release);
	}
	pthread_mutex_unlock(&mark->lock);
	if (error)
		errno = error;
	return error ? NULL : mark;
}

static void forget(_Atomic uintptr_t *mark)
{
	uintptr_t before = atomic_exchange(mark, UNKNOWN);

	if (mark_task(before))
		task_wake(NULL, mark_task(before), EBADF, SWITCHTO_IO);
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
	slot = atomic_exchange(&mark->slot, NULL);
	/* close(2) would not do it if the descriptor was duplicated, or a child has it. */
	if (slot && atomic_load(&mark->in) != BLOCKS)
		epoll_ctl(slot->epoll, EPOLL_CTL_DEL, fd, NULL);
	forget(&mark->in);
	forget(&mark->out);
	result = close(fd);
	pthread_mutex_unlock(&mark->lock);
	return result;
}
