// SPDX-License-Identifier: MIT
/*
 * The engine io_uring: each slot has a ring, for what epoll can't wait for. These are files, and
 * any operation that the program asks for. Descriptors that can be polled are polled by epoll with
 * this engine, too: a ring has no cheaper way (docs/scheduler.md).
 *
 * An operation is submitted at once, and often it is complete at once: a read of what is in the page
 * cache. If not, the ring's descriptor is among those that the slot polls, and the poller takes the
 * completions.
 */
#define _GNU_SOURCE
#include "ring.h"

#include <stdlib.h>

#ifdef SWITCHTO_URING
#include <liburing.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>

enum { ENTRIES = 64 };

/* Linux 5.6: no completion is dropped, and -1 is the current position of a file. */
static const unsigned int features = IORING_FEAT_NODROP | IORING_FEAT_RW_CUR_POS;

int switchto_ring_poll(struct slot *slot, int epoll)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };

	return slot->ring ? epoll_ctl(epoll, EPOLL_CTL_ADD, slot->ring->ring_fd, &event) : 0;
}

struct start {
	struct io_uring *ring;
	struct io_uring_params params;
	int error;
};

static void *start_ring(void *arg)
{
	struct start *start = arg;

	start->error = -io_uring_queue_init_params(ENTRIES, start->ring, &start->params);
	return NULL;
}

/*
 * When a ring has ended, the kernel interrupts each thread that has made or entered it, without a signal,
 * and at some time: then a wait in a system call fails with EINTR (io_ring_exit_work(), 6.12 and 7.3). So a
 * thread of its own makes it. That thread has ended before the ring does, and so have the workers.
 */
static int start_in_thread(struct start *start)
{
	sigset_t all, mask;
	pthread_t thread;
	int error;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &mask);
	error = pthread_create(&thread, NULL, start_ring, start);
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
	if (error)
		return error;
	pthread_join(thread, NULL);
	return start->error;
}

int switchto_ring_begin(struct slot *slot)
{
	struct io_uring *ring = malloc(sizeof(*ring));
	/* A sandbox may end the thread instead of an answer. */
	struct start start = { .ring = ring, .error = EPERM };
	int error;

	if (!ring)
		return ENOMEM;
	error = start_in_thread(&start);
	if (error) {
		free(ring);
		return error;
	}
	slot->ring = ring;
	if ((start.params.features & features) != features)
		error = ENOSYS;
	else if (switchto_ring_poll(slot, slot->epoll))
		error = errno;
	if (error)
		switchto_ring_end(slot);
	return error;
}

void switchto_ring_end(struct slot *slot)
{
	if (!slot->ring)
		return;
	io_uring_queue_exit(slot->ring);
	free(slot->ring);
	slot->ring = NULL;
}

void switchto_ring_reap(struct slot *slot)
{
	struct io_uring_cqe *cqe;
	int error;

	/* To take what did not fit into the ring is a system call, which EINTR may end. */
	while (!(error = io_uring_peek_cqe(slot->ring, &cqe)) || error == -EINTR) {
		struct operation *operation;
		uint32_t flags;

		if (error)
			continue;
		operation = io_uring_cqe_get_data(cqe);
		flags = cqe->flags;

		/* A send without a copy has a second completion, which says that it is over. */
		if (operation && !(flags & IORING_CQE_F_NOTIF)) {
			operation->result = cqe->res;
			operation->flags = flags;
		}
		io_uring_cqe_seen(slot->ring, cqe);
		if (operation && !(flags & IORING_CQE_F_MORE))
			switchto_waiter_fire(slot, &operation->waiter);
	}
}

void switchto_ring_submit(struct slot *slot)
{
	io_uring_submit(slot->ring);
	/* The kernel may have no memory for it just now. The poller tries again. */
	slot->unsubmitted = io_uring_sq_ready(slot->ring) != 0;
	switchto_ring_reap(slot);
}

bool switchto_ring_start(struct slot *slot, const struct io_uring_sqe *wanted,
			 struct operation *operation)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(slot->ring);

	if (unlikely(!sqe)) {
		switchto_ring_submit(slot);
		sqe = io_uring_get_sqe(slot->ring);
	}
	if (!sqe)
		return false;
	*sqe = *wanted;
	io_uring_sqe_set_data(sqe, operation);
	switchto_ring_submit(slot);
	return true;
}
#endif
