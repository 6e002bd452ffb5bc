// SPDX-License-Identifier: MIT
/*
 * Operations of io_uring that a task waits for. An operation lives in the call that waits for it.
 * After a deadline or a cancellation, the call asks the kernel to cancel the operation, and waits for
 * its completion all the same: until then the kernel may use the memory that the operation names.
 */
#define _GNU_SOURCE
#include "await.h"

#include "ring.h"
#include "sleep.h"

#ifdef SWITCHTO_URING
#include <liburing.h>

/* Of these, a completion may not come, or others may have to come first. */
static const unsigned int refused = IOSQE_IO_LINK | IOSQE_IO_HARDLINK | IOSQE_IO_DRAIN |
				    IOSQE_CQE_SKIP_SUCCESS;

/* Has @operation canceled, and waits for the end that it takes. */
static void give_up(struct worker *me, struct operation *operation)
{
	struct io_uring_sqe cancel = { 0 };
	bool started;

	io_uring_prep_cancel(&cancel, operation, 0);
	for (;;) {
		enter_task(me);
		started = switchto_ring_start(me->slot, &cancel, NULL) ||
			  atomic_load(&operation->waiter.fired);
		/* No room for it. The operation might never end by itself: so try again. */
		if (!started)
			yield_inside(me);
		leave(me);
		if (started)
			break;
	}
	switchto_waiter_wait(&operation->waiter, NEVER, ON_AWAIT);
}

/* The result, or a negative error number. */
static long await(const struct io_uring_sqe *sqe, uint32_t *flags, const struct timespec *deadline)
{
	const nsec_t until = switchto_deadline(deadline);
	struct worker *me = switchto_current;
	struct operation operation = { 0 };
	bool started;
	int error;

	if (!me || !me->task)
		return -EPERM;
	if (until < 0 || me->in_region || sqe->flags & refused)
		return -EINVAL;
	if (!me->slot->ring)
		return -ENOSYS;
	if (is_cancelled(me->task))
		return -ECANCELED;
	if (!enter_task(me))
		return -EDEADLK;
	switchto_waiter_begin(&operation.waiter);
	started = switchto_ring_start(me->slot, sqe, &operation);
	leave(me);
	if (!started)
		return -EAGAIN;
	/* Only this slot's ring can cancel it. */
	me->task->bound |= BY_CALL;
	error = switchto_waiter_wait(&operation.waiter, until, ON_AWAIT | CANCELS);
	if (error)
		give_up(me, &operation);
	me->task->bound &= BY_SPAWN;
	spent(me, operation.result);
	if (flags)
		*flags = operation.flags;
	/* The kernel has several errors for what was cancelled, and not only ECANCELED. */
	return operation.result < 0 && error ? -error : operation.result;
}

int switchto_await(const struct io_uring_sqe *sqe, uint32_t *flags, const struct timespec *deadline)
{
	return (int)with_errno(await(sqe, flags, deadline));
}

static uint8_t opcode_of(long number)
{
	switch (number) {
	case SYS_pread64:
		return IORING_OP_READ;
	case SYS_pwrite64:
		return IORING_OP_WRITE;
	case SYS_preadv:
		return IORING_OP_READV;
	case SYS_pwritev:
		return IORING_OP_WRITEV;
	default:
		return IORING_OP_FSYNC;
	}
}

long switchto_await_file(long number, int fd, long a, long b, long c,
			 const struct timespec *deadline)
{
	struct io_uring_sqe sqe = {
		.opcode = opcode_of(number),
		.fd = fd,
		.addr = (uint64_t)a,
	};

	if (number != SYS_fsync) {
		/* More than an int, the kernel does not do at once in these system calls either. */
		sqe.len = (size_t)b < INT32_MAX ? (uint32_t)b : INT32_MAX;
		sqe.off = (uint64_t)c;
	}
	return await(&sqe, NULL, deadline);
}
#else /* built without liburing: no slot has a ring */
int switchto_await(const struct io_uring_sqe *sqe, uint32_t *flags, const struct timespec *deadline)
{
	return fail(switchto_current ? ENOSYS : EPERM);
}

long switchto_await_file(long number, int fd, long a, long b, long c,
			 const struct timespec *deadline)
{
	return -ENOSYS;
}
#endif
