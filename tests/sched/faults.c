// SPDX-License-Identifier: MIT
#ifndef FAULTS_IN_LIBRARY
#define FAULTS_IN_LIBRARY
#endif
#include "faults.h"

#include <errno.h>
#include <linux/futex.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>

/* The functions themselves. */
#undef malloc
#undef calloc
#undef aligned_alloc
#undef reallocarray
#undef free
#undef pthread_create
#undef pthread_join
#undef pthread_tryjoin_np
#undef epoll_create1
#undef eventfd
#undef timerfd_create
#undef epoll_ctl
#undef open
#undef syscall

enum { ERRORS = 200, CHOICE = 5 };

/* In the place of an error: the operation or the call is cut short. */
enum { SHORT = ERRORS - 1 };

/* What the kernel and the C library have for each kind. */
static const int errors[FAULTS][CHOICE] = {
	[FAULT_MEMORY] = { ENOMEM },
	[FAULT_THREAD] = { EAGAIN },
	[FAULT_DESCRIPTOR] = { EMFILE, ENFILE, ENOMEM },
	[FAULT_EPOLL_CTL] = { ENOMEM, ENOSPC },
	[FAULT_EPOLL_WAIT] = { EINTR },
	[FAULT_SETUP] = { ENOMEM, EPERM, ENOSYS, EMFILE, ENFILE },
	[FAULT_SUBMIT] = { EAGAIN, EINTR, EBUSY, ENOMEM },
	[FAULT_FEW] = { SHORT },
	[FAULT_COMPLETE] = { EINTR },
	[FAULT_OPERATION] = { EBADF, SHORT },
	[FAULT_CALL] = { EINTR, ENOMEM, ENOBUFS },
	[FAULT_FUTEX] = { EINTR, EAGAIN },
	[FAULT_OPEN] = { EMFILE, ENFILE, ENOMEM },
};

static struct {
	atomic_uint one_in;
	uint64_t seed;
	atomic_uint kind;
	unsigned long first, last;
	atomic_ulong calls[FAULTS], made[ERRORS];
} plan;

static atomic_long left;

static void begin(void)
{
	atomic_store(&plan.one_in, 0);
	atomic_store(&plan.kind, FAULTS);
	for (unsigned int i = 0; i < FAULTS; i++)
		atomic_store(&plan.calls[i], 0);
	for (unsigned int i = 0; i < ERRORS; i++)
		atomic_store(&plan.made[i], 0);
}

void faults_random(uint64_t seed, unsigned int one_in)
{
	begin();
	plan.seed = seed;
	atomic_store(&plan.one_in, one_in);
}

void faults_from_to(enum fault kind, unsigned long first, unsigned long last)
{
	begin();
	plan.first = first;
	plan.last = last;
	atomic_store(&plan.kind, kind);
}

unsigned long faults_made(int error)
{
	return atomic_load(&plan.made[error]);
}

long faults_left(void)
{
	return atomic_load(&left);
}

static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return x ^ x >> 31;
}

/* The error of the next call of @kind, or 0. */
static int next_fault(enum fault kind)
{
	const unsigned int one_in = atomic_load(&plan.one_in);
	unsigned long number;
	uint64_t dice;
	int error = 0;

	if (!one_in && atomic_load(&plan.kind) != kind)
		return 0;
	number = atomic_fetch_add(&plan.calls[kind], 1) + 1;
	dice = mix(plan.seed + mix(number * FAULTS + kind));
	if (one_in ? dice % one_in : number < plan.first || number > plan.last)
		return 0;
	/* Numbers that follow each other have each error in turn. */
	for (dice = one_in ? dice >> 32 : number; !error; dice++)
		error = errors[kind][dice % CHOICE];
	atomic_fetch_add(&plan.made[error], 1);
	atomic_fetch_add(&plan.made[0], 1);
	return error;
}

/* As next_fault(). With an error, errno is that. */
static bool fails(enum fault kind)
{
	const int error = next_fault(kind);

	if (error)
		errno = error;
	return error != 0;
}

/* --- memory and threads --- */

static void *counted(void *memory)
{
	if (memory)
		atomic_fetch_add(&left, 1);
	return memory;
}

void *faulty_malloc(size_t size)
{
	return fails(FAULT_MEMORY) ? NULL : counted(malloc(size));
}

void *faulty_calloc(size_t count, size_t size)
{
	return fails(FAULT_MEMORY) ? NULL : counted(calloc(count, size));
}

void *faulty_aligned_alloc(size_t align, size_t size)
{
	return fails(FAULT_MEMORY) ? NULL : counted(aligned_alloc(align, size));
}

void *faulty_reallocarray(void *old, size_t count, size_t size)
{
	void *memory = fails(FAULT_MEMORY) ? NULL : reallocarray(old, count, size);

	return old ? memory : counted(memory);
}

void faulty_free(void *memory)
{
	if (memory) {
		atomic_fetch_sub(&left, 1);
		/* Who uses it from now on is to notice. */
		memset(memory, 0xdd, malloc_usable_size(memory));
		__asm__ volatile("" : : : "memory");
	}
	free(memory);
}

int faulty_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *),
			  void *arg)
{
	int error = next_fault(FAULT_THREAD);

	if (!error)
		error = pthread_create(thread, attr, fn, arg);
	if (!error)
		atomic_fetch_add(&left, 1);
	return error;
}

int faulty_pthread_join(pthread_t thread, void **result)
{
	atomic_fetch_sub(&left, 1);
	return pthread_join(thread, result);
}

int faulty_pthread_tryjoin_np(pthread_t thread, void **result)
{
	const int error = pthread_tryjoin_np(thread, result);

	if (!error)
		atomic_fetch_sub(&left, 1);
	return error;
}

/* --- descriptors and system calls --- */

int faulty_epoll_create1(int flags)
{
	return fails(FAULT_DESCRIPTOR) ? -1 : epoll_create1(flags);
}

int faulty_eventfd(unsigned int count, int flags)
{
	return fails(FAULT_DESCRIPTOR) ? -1 : eventfd(count, flags);
}

int faulty_timerfd_create(clockid_t clock, int flags)
{
	return fails(FAULT_DESCRIPTOR) ? -1 : timerfd_create(clock, flags);
}

int faulty_epoll_ctl(int epoll, int op, int fd, struct epoll_event *event)
{
	/* To remove one takes nothing that might not be there. */
	if (op != EPOLL_CTL_DEL && fails(FAULT_EPOLL_CTL))
		return -1;
	return epoll_ctl(epoll, op, fd, event);
}

int faulty_open(const char *path, int flags)
{
	return fails(FAULT_OPEN) ? -1 : open(path, flags);
}

long faulty_syscall(long number, ...)
{
	long arg[6];
	va_list list;

	va_start(list, number);
	for (unsigned int i = 0; i < 6; i++)
		arg[i] = va_arg(list, long);
	va_end(list);
	if (number == SYS_futex && (arg[1] & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET &&
	    fails(FAULT_FUTEX))
		return -1;
	return syscall(number, arg[0], arg[1], arg[2], arg[3], arg[4], arg[5]);
}

long switchto_sched_fault(long number);

long switchto_sched_fault(long number)
{
	switch (number) {
#ifdef SYS_epoll_wait
	case SYS_epoll_wait:
#endif
	case SYS_epoll_pwait:
#ifdef SYS_epoll_pwait2
	case SYS_epoll_pwait2:
#endif
		return -next_fault(FAULT_EPOLL_WAIT);
	default:
		return -next_fault(FAULT_CALL);
	}
}

/* --- io_uring --- */

#ifdef SWITCHTO_URING
#undef io_uring_queue_init_params
#undef io_uring_submit
#undef io_uring_peek_cqe

int faulty_queue_init_params(unsigned int entries, struct io_uring *ring,
			     struct io_uring_params *params)
{
	const int error = next_fault(FAULT_SETUP);

	return error ? -error : io_uring_queue_init_params(entries, ring, params);
}

/* Of the newest operation, which is not a cancellation of the layer's. */
static void spoil(struct io_uring *ring)
{
	struct io_uring_sqe *sqe = &ring->sq.sqes[(ring->sq.sqe_tail - 1) & ring->sq.ring_mask];

	if (!io_uring_sq_ready(ring) || sqe->opcode == IORING_OP_ASYNC_CANCEL)
		return;
	switch (next_fault(FAULT_OPERATION)) {
	case 0:
		break;
	case SHORT:
		if (sqe->opcode == IORING_OP_READ || sqe->opcode == IORING_OP_WRITE)
			sqe->len = 1;
		break;
	default:
		sqe->fd = -1;
		break;
	}
}

int faulty_submit(struct io_uring *ring)
{
	const unsigned int tail = ring->sq.sqe_tail;
	int error, done;

	spoil(ring);
	error = next_fault(FAULT_SUBMIT);
	if (error)
		return -error;
	if (ring->sq.sqe_head != tail && next_fault(FAULT_FEW))
		ring->sq.sqe_tail = ring->sq.sqe_head + 1;
	done = io_uring_submit(ring);
	ring->sq.sqe_tail = tail;
	return done;
}

int faulty_peek_cqe(struct io_uring *ring, struct io_uring_cqe **cqe)
{
	const int error = next_fault(FAULT_COMPLETE);

	return error ? -error : io_uring_peek_cqe(ring, cqe);
}
#endif
