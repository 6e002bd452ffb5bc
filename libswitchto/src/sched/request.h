/* SPDX-License-Identifier: MIT */
/*
 * A system call on a descriptor that a task makes and waits for. Inside, results are those of system
 * calls: a negative one is an error number. The public calls end in end_call(), which sets errno.
 */
#ifndef SWITCHTO_SCHED_REQUEST_H
#define SWITCHTO_SCHED_REQUEST_H

#include "sleep.h"
#include "turn.h"

#include <limits.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	INPUT = 0,
	OUTPUT = 1,
	/* No flag of the call says that it is not to block: the descriptor must say so. */
	PLAIN = 2,
	/* A result that is less than argument b has emptied a stream. */
	EMPTIES = 4,
	/* A part went before, and an error is not to be taken from the next call. */
	REST = 8,
	/* It has an address, so to poll the descriptor does not say whether it is possible. */
	ADDRESS = 16,
	/* If it says EAGAIN, there may be something for other calls. */
	PICKY = 32,
};

struct request {
	int fd;
	unsigned int how; /* see above */
	const struct timespec *deadline;
	/* Instead of the system call. */
	long (*call)(const struct request *request);
	/* The system call: fd is its first argument. */
	long number, a, b, c, d, e;
};

/* The system call @name, with its arguments after @fd, of which there is one at least. */
#define REQUEST(how, fd, deadline, name, ...) \
	REQUEST_(how, fd, deadline, NULL, SYS_##name, __VA_ARGS__, 0, 0, 0, 0, 0)
/* The same for function @call. */
#define REQUEST_OF(how, fd, deadline, call, ...) \
	REQUEST_(how, fd, deadline, call, -1, __VA_ARGS__, 0, 0, 0, 0, 0)
#define REQUEST_(how_, fd_, deadline_, call_, number_, a_, b_, c_, d_, e_, ...) \
	((struct request){                                                      \
		.fd = (fd_),                                                    \
		.how = (how_),                                                  \
		.deadline = (deadline_),                                        \
		.call = (call_),                                                \
		.number = (number_),                                            \
		.a = (long)(a_),                                                \
		.b = (long)(b_),                                                \
		.c = (long)(c_),                                                \
		.d = (long)(d_),                                                \
		.e = (long)(e_),                                                \
	})

/* How far a request is. */
struct progress {
	bool waited;	 /* in the mark: others may wait for their turn */
	int error;	 /* of that wait */
	uint64_t closes; /* closes_now(), before the first wait; 0: there was none */
	uintptr_t word;	 /* of the mark, before the last call */
	long result;	 /* of the last call; -EINTR: there was none */
};

static const struct progress no_progress = { .result = -EINTR };

/* @mark was ready, as @word says, but not for what is asked for. */
static inline void ready_in_vain(struct mark *mark, uintptr_t word)
{
	if (word & STICKY || atomic_fetch_add(&mark->in_vain, 1) >= IN_VAIN)
		switchto_mark_in_vain(mark);
}

/* A result that no call has: the descriptor can't be polled. */
enum { NOT_POLLED = -4000 };

/* Makes the call until it is done: its result, or NOT_POLLED. */
long switchto_request_perform(struct worker *me, const struct request *r);
/* The same, from @progress on. By value: so a call that need not wait keeps it in registers. */
long switchto_request_resume(struct worker *me, const struct request *r, struct progress progress);
/* The same after a part: EBADF, if the descriptor was closed since closes_now() was @closes. */
long switchto_request_go_on(struct worker *me, const struct request *r, uint64_t closes);
/* The system call, in a blocking region. */
long switchto_request_block(struct worker *me, const struct request *r);
/* switchto_request_perform(), and switchto_request_block() if the descriptor can't be polled. */
long switchto_request_perform_or_block(struct worker *me, const struct request *r);

/* Sets @fd to O_NONBLOCK if it is not. False: @mark is of another descriptor, see mark.h. */
bool switchto_request_unblock(int fd, struct mark *mark);

/*
 * Where nothing says when to try again, a call is tried again and again: soon, and then later. @count:
 * how often it was. 0 or a negative error number.
 */
long switchto_request_nap(unsigned int *count, const struct timespec *deadline);

/*
 * What of @events is so now; 0: nothing. Or a negative error number: EBADF; or EINVAL, in a sandbox with an
 * RLIMIT_NOFILE of 0.
 */
long switchto_poll_now(int fd, short events);
/* The same, where an error is nothing. */
static inline long poll_if_possible(int fd, short events)
{
	const long found = switchto_poll_now(fd, events);

	return found == -EBADF ? POLLNVAL : found < 0 ? 0 : found;
}

/* The same as the call of a request, which waits for one of events a. */
long switchto_poll_call(const struct request *r);

/*
 * The error of a send to @fd that has waited, if @fd is a socket of UNIX that is shut down: the one that
 * is pending there is told first, and there is no signal. 0: it is not over.
 */
long switchto_send_error(int fd);

/* 0: it is no socket, or the option is off. */
int switchto_socket_option(int fd, int option);

static inline int switchto_socket_type(int fd)
{
	return switchto_socket_option(fd, SO_TYPE);
}

/* The kernel moves no more in one call (MAX_RW_COUNT): INT_MAX, without the last page. */
static inline size_t limited(size_t size)
{
	size_t most;

	/* With the largest pages, of 64 KiB. */
	if (likely(size <= 0x7fff0000))
		return size;
	most = (size_t)INT_MAX & ~((size_t)getpagesize() - 1);
	return size < most ? size : most;
}

/* @argument of a system call. */
static inline void *pointer(long argument)
{
	return (void *)argument; // NOLINT(performance-no-int-to-ptr)
}

static inline long make_call(const struct request *r)
{
	return r->call ? r->call(r) : call6(r->number, r->fd, r->a, r->b, r->c, r->d, r->e);
}

/* NULL and errno: the caller is no task. */
static inline struct worker *current_task(void)
{
	struct worker *me = switchto_current;

	if (likely(me && me->task))
		return me;
	errno = EPERM;
	return NULL;
}

/* Each call that was done ends here, also one that did not wait. */
static inline long end_call(struct worker *me, long result)
{
	return with_errno(spent(me, result));
}

#endif /* SWITCHTO_SCHED_REQUEST_H */
