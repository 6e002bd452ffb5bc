// SPDX-License-Identifier: MIT
/*
 * The engine io_uring: each slot has a ring, for what epoll can't wait for. These are files, and
 * any operation that the program asks for. Descriptors that can be polled are polled by epoll with
 * this engine, too: a ring has no cheaper way (docs/scheduler.md).
 *
 * Only the owner of the slot touches its ring, inside. An operation is submitted at once, and often
 * it is complete at once: a read of what is in the page cache. If not, the ring's descriptor is
 * among those that the slot polls, and the poller takes the completions.
 *
 * An operation lives in the call that waits for it. After a deadline or a cancellation, the call
 * asks the kernel to cancel the operation, and waits for its completion all the same: until then
 * the kernel may use the memory that the operation names.
 */
#define _GNU_SOURCE
#include "internal.h"

#include <stdlib.h>

#ifdef SWITCHTO_URING
#include <liburing.h>
#include <sys/epoll.h>

enum { ENTRIES = 64 };

/* Linux 5.6: no completion is dropped, and -1 is the current position of a file. */
static const unsigned int features = IORING_FEAT_NODROP | IORING_FEAT_RW_CUR_POS;

/* Of these, a completion may not come, or others may have to come first. */
static const unsigned int refused = IOSQE_IO_LINK | IOSQE_IO_HARDLINK | IOSQE_IO_DRAIN |
				    IOSQE_CQE_SKIP_SUCCESS;

struct operation {
	struct waiter waiter;
	int result;
	uint32_t flags;
};

int switchto_ring_poll(struct slot *slot, int epoll)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };

	return slot->ring ? epoll_ctl(epoll, EPOLL_CTL_ADD, slot->ring->ring_fd, &event) : 0;
}

int switchto_ring_begin(struct slot *slot)
{
	struct io_uring_params params = { 0 };
	struct io_uring *ring = malloc(sizeof(*ring));
	int error;

	if (!ring)
		return ENOMEM;
	error = -io_uring_queue_init_params(ENTRIES, ring, &params);
	if (error) {
		free(ring);
		return error;
	}
	slot->ring = ring;
	if ((params.features & features) != features)
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

/* Inside. False: the ring is full of what the kernel does not take. */
static bool start(struct slot *slot, const struct io_uring_sqe *wanted, struct operation *operation)
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

/* Has @operation canceled, and waits for the end that it takes. */
static void give_up(struct thread *me, struct operation *operation)
{
	struct io_uring_sqe cancel = { 0 };
	bool started;

	io_uring_prep_cancel(&cancel, operation, 0);
	for (;;) {
		enter_task(me);
		started = start(me->slot, &cancel, NULL);
		leave(me);
		if (started || atomic_load(&operation->waiter.fired))
			break;
		/* No room for it. The operation might never end by itself: so try again. */
		switchto_yield();
	}
	switchto_waiter_wait(&operation->waiter, NEVER, false);
}

int switchto_await(const struct io_uring_sqe *sqe, uint32_t *flags, const struct timespec *deadline)
{
	const nsec_t until = switchto_deadline(deadline);
	struct thread *me = switchto_current;
	struct operation operation = { 0 };
	bool started;
	int error;

	if (!me || !me->task)
		return fail(EPERM);
	if (until < 0 || me->in_region || sqe->flags & refused)
		return fail(EINVAL);
	if (!me->slot->ring)
		return fail(ENOSYS);
	if (atomic_load(&me->task->cancelled))
		return fail(ECANCELED);
	if (!enter_task(me))
		return fail(EDEADLK);
	switchto_waiter_begin(&operation.waiter);
	started = start(me->slot, sqe, &operation);
	leave(me);
	if (!started)
		return fail(EAGAIN);
	/* Only this slot's ring can cancel it. */
	me->task->bound = true;
	error = switchto_waiter_wait(&operation.waiter, until, true);
	if (error)
		give_up(me, &operation);
	me->task->bound = false;
	spent(me, operation.result);
	if (flags)
		*flags = operation.flags;
	if (operation.result >= 0)
		return operation.result;
	/* The kernel has several errors for what was cancelled, and not only ECANCELED. */
	return fail(error ? error : -operation.result);
}

int switchto_ring_call(enum ring_call what, int fd, const void *address, size_t length,
		       off_t offset, int flags, const struct timespec *deadline)
{
	static const uint8_t opcodes[] = {
		[RING_READ] = IORING_OP_READ,	  [RING_WRITE] = IORING_OP_WRITE,
		[RING_READV] = IORING_OP_READV,	  [RING_WRITEV] = IORING_OP_WRITEV,
		[RING_OPENAT] = IORING_OP_OPENAT, [RING_FSYNC] = IORING_OP_FSYNC,
	};
	struct io_uring_sqe sqe = { 0 };

	sqe.opcode = opcodes[what];
	sqe.fd = fd;
	sqe.addr = (uintptr_t)address;
	/* More than an int, the kernel does not do at once in these system calls either. */
	sqe.len = length < INT32_MAX ? (uint32_t)length : INT32_MAX;
	if (what == RING_OPENAT)
		sqe.open_flags = (uint32_t)flags;
	else if (what != RING_FSYNC)
		sqe.off = (uint64_t)offset;
	/* To try it without blocking first would change what it does: a FIFO has another meaning. */
	if (what == RING_OPENAT && offset)
		sqe.flags = IOSQE_ASYNC;
	return switchto_await(&sqe, NULL, deadline);
}
#else /* built without liburing: the engine epoll alone */
int switchto_ring_begin(struct slot *slot)
{
	(void)slot;
	return ENOSYS;
}

void switchto_ring_end(struct slot *slot)
{
	(void)slot;
}

void switchto_ring_reap(struct slot *slot)
{
	(void)slot;
}

void switchto_ring_submit(struct slot *slot)
{
	(void)slot;
}

int switchto_await(const struct io_uring_sqe *sqe, uint32_t *flags, const struct timespec *deadline)
{
	(void)sqe;
	(void)flags;
	(void)deadline;
	return fail(switchto_current ? ENOSYS : EPERM);
}

int switchto_ring_poll(struct slot *slot, int epoll)
{
	(void)slot;
	(void)epoll;
	return 0;
}

int switchto_ring_call(enum ring_call what, int fd, const void *address, size_t length,
		       off_t offset, int flags, const struct timespec *deadline)
{
	(void)offset;
	(void)what;
	(void)fd;
	(void)address;
	(void)length;
	(void)flags;
	(void)deadline;
	return fail(ENOSYS);
}
#endif
