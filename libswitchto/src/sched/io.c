// SPDX-License-Identifier: MIT
/*
 * I/O of tasks: the system call of that name on a descriptor that does not block, and a wait
 * if it says EAGAIN. A read of less than was asked for has emptied a stream: then the next one
 * waits at once, and saves the call that would say so. On a file, which can't be polled, the
 * slot's ring does it; without a ring, it is done in a blocking region.
 */
#define _GNU_SOURCE
#include "dispatch.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

static inline struct thread *current_task(void)
{
	struct thread *me = switchto_current;

	if (likely(me && me->task))
		return me;
	errno = EPERM;
	return NULL;
}

/* Before a call that blocks. False, and errno: it may not be made. */
static bool begin_to_block(const struct timespec *deadline)
{
	if (switchto_deadline(deadline) < 0)
		errno = EINVAL;
	else if (atomic_load(&switchto_current->task->cancelled))
		errno = ECANCELED;
	else
		return !switchto_block_begin();
	return false;
}

static ssize_t end_to_block(ssize_t result)
{
	int error = errno;

	switchto_block_end();
	errno = error;
	return result;
}

#define BLOCKING(deadline, call) (begin_to_block(deadline) ? end_to_block(call) : -1)

/* The result of CALL() as a function returns it. */
static inline long with_errno(long result)
{
	return likely(result >= 0) ? result : fail((int)-result);
}

/* A call on a file: by the ring, if there is one. */
static ssize_t on_file(enum ring_call what, long number, int fd, const void *address, size_t length,
		       const struct timespec *deadline)
{
	if (switchto_current->slot->ring)
		return switchto_ring_call(what, fd, address, length, 0, deadline);
	return BLOCKING(deadline,
			with_errno(call6(number, fd, (long)address, (long)length, 0, 0, 0)));
}

/* The kernel takes no more messages in one call (UIO_MAXIOV). */
enum { MESSAGES = 1024 };

enum next { CALL_IT, LOOK_AGAIN, FAIL, BLOCK };

/* What to do with a mark that is neither ready nor NOT_READY. */
static __attribute__((noinline)) enum next look_at(struct thread *me, int fd, uintptr_t before,
						   bool output)
{
	if (before == HUNG_UP)
		return CALL_IT;
	if (before == BLOCKS)
		return BLOCK;
	if (before == UNKNOWN || before == UNARMED)
		return switchto_poll_add(me->slot, fd, output) ? LOOK_AGAIN : FAIL;
	errno = EBUSY;
	return FAIL;
}

/*
 * What to do with a mark that is not ready: waits, if there was no event. @before: the mark, and
 * what it is afterwards.
 */
static ALWAYS_INLINE enum next make_ready(struct thread *me, int fd, struct mark *mark,
					  uintptr_t *before, bool output, bool in_line,
					  const struct timespec *deadline)
{
	_Atomic uintptr_t *direction = output ? &mark->out : &mark->in;
	enum next next = LOOK_AGAIN;
	int error;

	if (likely(*before == NOT_READY)) {
		if (in_line) {
			error = slot_wait_once(me, direction, deadline, before);
			if (likely(!error) && likely(is_ready(*before)))
				return CALL_IT;
		}
		if (!in_line || (!error && mark_task(*before)))
			error = switchto_slot_wait_for(me, direction, deadline);
		if (unlikely(error)) {
			errno = error;
			return FAIL;
		}
	} else {
		next = look_at(me, fd, *before, output);
	}
	if (next == LOOK_AGAIN)
		*before = atomic_load_explicit(direction, memory_order_acquire);
	return next;
}

/*
 * Is a call done that had @result, with mark @before? @emptied: it has left nothing there, so that
 * the next one waits at once. Otherwise @before is what the mark is now.
 */
static inline bool is_done(_Atomic uintptr_t *mark, uintptr_t *before, long result, bool emptied)
{
	uintptr_t expected = *before;

	if (likely(result >= 0)) {
		if (emptied && likely(is_ready(expected)))
			atomic_compare_exchange_strong(mark, &expected, NOT_READY);
		return true;
	}
	if (result != -EAGAIN && result != -EINTR)
		return true;
	if (result == -EAGAIN)
		atomic_compare_exchange_strong(mark, &expected, NOT_READY);
	*before = atomic_load_explicit(mark, memory_order_acquire);
	return false;
}

/* @call, until it is done. A macro, so that each call is a direct one. */
#define UNTIL_DONE(fd, direction, emptied, deadline, call)           \
	UNTIL_DONE_OR(fd, direction, false, emptied, deadline, call, \
		      BLOCKING(deadline, with_errno(call)))

/* The same, but @on_file if it can't be polled. @in_line: the wait is. */
#define UNTIL_DONE_OR(fd, direction, in_line, emptied, deadline, call, on_file)                  \
	do {                                                                                     \
		const bool output = offsetof(struct mark, direction) != 0;                       \
		struct thread *me = current_task();                                              \
		struct mark *mark;                                                               \
		uintptr_t before;                                                                \
                                                                                                 \
		if (unlikely(!me))                                                               \
			return -1;                                                               \
		mark = mark_of(me->sched, (unsigned int)(fd));                                   \
		if (unlikely(!mark) && !(mark = switchto_poll_add(me->slot, fd, output)))        \
			return -1;                                                               \
		before = atomic_load_explicit(&mark->direction, memory_order_acquire);           \
		for (;;) {                                                                       \
			enum next next = CALL_IT;                                                \
                                                                                                 \
			if (!is_ready(before))                                                   \
				next = make_ready(me, fd, mark, &before, output, in_line,        \
						  deadline);                                     \
			if (likely(next == CALL_IT)) {                                           \
				long result = call;                                              \
                                                                                                 \
				if (likely(is_done(&mark->direction, &before, result, emptied))) \
					return with_errno(spent(me, result));                    \
			} else if (next == BLOCK) {                                              \
				return on_file;                                                  \
			} else if (next == FAIL) {                                               \
				return -1;                                                       \
			}                                                                        \
		}                                                                                \
	} while (0)

ssize_t switchto_read(int fd, void *buffer, size_t size, const struct timespec *deadline)
{
	UNTIL_DONE_OR(fd, in, false, was_emptied(mark, result, size), deadline,
		      CALL(read, fd, buffer, size),
		      on_file(RING_READ, SYS_read, fd, buffer, size, deadline));
}

ssize_t switchto_write(int fd, const void *buffer, size_t size, const struct timespec *deadline)
{
	UNTIL_DONE_OR(fd, out, false, false, deadline, CALL(write, fd, buffer, size),
		      on_file(RING_WRITE, SYS_write, fd, buffer, size, deadline));
}

/* With these flags a call does not wait, and what it says is not said of the socket's data. */
enum { AT_ONCE = MSG_DONTWAIT | MSG_ERRQUEUE | MSG_OOB };

/* A system call with its arguments, once. */
static __attribute__((noinline)) ssize_t once(long number, int fd, const void *address, long third,
					      int fourth)
{
	struct thread *me = current_task();

	if (!me)
		return -1;
	return with_errno(spent(me, call6(number, fd, (long)address, third, fourth, 0, 0)));
}

static __attribute__((noinline)) ssize_t recv_specially(int fd, void *buffer, size_t size,
							int flags, const struct timespec *deadline)
{
	if (flags & AT_ONCE)
		return once(SYS_recvfrom, fd, buffer, (long)size, flags | MSG_DONTWAIT);
	/* A short one leaves all there. */
	UNTIL_DONE(fd, in, false, deadline, CALL(recvfrom, fd, buffer, size, flags, NULL, NULL));
}

ssize_t switchto_recv(int fd, void *buffer, size_t size, int flags, const struct timespec *deadline)
{
	if (unlikely(flags & (AT_ONCE | MSG_PEEK)))
		return recv_specially(fd, buffer, size, flags, deadline);
	UNTIL_DONE_OR(fd, in, true, was_emptied(mark, result, size), deadline,
		      CALL(recvfrom, fd, buffer, size, flags, NULL, NULL),
		      BLOCKING(deadline,
			       with_errno(CALL(recvfrom, fd, buffer, size, flags, NULL, NULL))));
}

static __attribute__((noinline)) ssize_t send_later(int fd, const void *buffer, size_t size,
						    int flags, const struct timespec *deadline)
{
	UNTIL_DONE(fd, out, false, deadline, CALL(sendto, fd, buffer, size, flags, NULL, 0));
}

ssize_t switchto_send(int fd, const void *buffer, size_t size, int flags,
		      const struct timespec *deadline)
{
	struct thread *me = switchto_current;

	if (likely(me && me->task)) {
		long result = CALL(sendto, fd, buffer, size, flags | MSG_DONTWAIT, NULL, 0);

		if (likely(result >= 0))
			return spent(me, result);
		if ((result != -EAGAIN && result != -EINTR) || flags & MSG_DONTWAIT)
			return fail((int)-spent(me, result));
	}
	return send_later(fd, buffer, size, flags, deadline);
}

ssize_t switchto_readv(int fd, const struct iovec *parts, int count,
		       const struct timespec *deadline)
{
	UNTIL_DONE_OR(fd, in, false, false, deadline, CALL(readv, fd, parts, count),
		      on_file(RING_READV, SYS_readv, fd, parts, (size_t)count, deadline));
}

ssize_t switchto_writev(int fd, const struct iovec *parts, int count,
			const struct timespec *deadline)
{
	UNTIL_DONE_OR(fd, out, false, false, deadline, CALL(writev, fd, parts, count),
		      on_file(RING_WRITEV, SYS_writev, fd, parts, (size_t)count, deadline));
}

ssize_t switchto_recvmsg(int fd, struct msghdr *message, int flags, const struct timespec *deadline)
{
	if (unlikely(flags & AT_ONCE))
		return once(SYS_recvmsg, fd, message, flags | MSG_DONTWAIT, 0);
	UNTIL_DONE(fd, in, false, deadline, CALL(recvmsg, fd, message, flags));
}

ssize_t switchto_sendmsg(int fd, const struct msghdr *message, int flags,
			 const struct timespec *deadline)
{
	if (unlikely(flags & MSG_DONTWAIT))
		return once(SYS_sendmsg, fd, message, flags, 0);
	UNTIL_DONE(fd, out, false, deadline, CALL(sendmsg, fd, message, flags));
}

static inline unsigned int at_most(unsigned int a, unsigned int b)
{
	return a < b ? a : b;
}

/*
 * It takes messages until there are no more: fewer than @count have emptied the socket. An error in
 * between is an event of its own.
 */
int switchto_recvmmsg(int fd, struct mmsghdr *messages, unsigned int count, int flags,
		      const struct timespec *deadline)
{
	count = at_most(count, MESSAGES);
	if (unlikely(flags & AT_ONCE))
		return (int)once(SYS_recvmmsg, fd, messages, count, flags | MSG_DONTWAIT);
	UNTIL_DONE(fd, in, (unsigned long)result < count, deadline,
		   CALL(recvmmsg, fd, messages, count, flags & ~MSG_WAITFORONE, NULL));
}

static __attribute__((noinline)) int send_many_later(int fd, struct mmsghdr *messages,
						     unsigned int count, int flags,
						     const struct timespec *deadline)
{
	UNTIL_DONE(fd, out, false, deadline, CALL(sendmmsg, fd, messages, count, flags));
}

/* A socket of UDP that is polled for output has an event for each message that is gone. */
int switchto_sendmmsg(int fd, struct mmsghdr *messages, unsigned int count, int flags,
		      const struct timespec *deadline)
{
	struct thread *me = switchto_current;

	if (likely(me && me->task)) {
		long result = CALL(sendmmsg, fd, messages, count, flags | MSG_DONTWAIT);

		if (likely(result >= 0))
			return (int)spent(me, result);
		if ((result != -EAGAIN && result != -EINTR) || flags & MSG_DONTWAIT)
			return fail((int)-spent(me, result));
	}
	return send_many_later(fd, messages, count, flags, deadline);
}

int switchto_accept(int fd, struct sockaddr *address, socklen_t *length, int flags,
		    const struct timespec *deadline)
{
	UNTIL_DONE(fd, in, false, deadline,
		   CALL(accept4, fd, address, length, flags | SOCK_NONBLOCK));
}

/* What of @events is so now; 0: nothing; -1 and errno. */
static int poll_now(int fd, short events)
{
	struct pollfd poller = { .fd = fd, .events = events };
	int n = poll(&poller, 1, 0);

	if (n == 1 && poller.revents & POLLNVAL)
		return fail(EBADF);
	return n == 1 ? poller.revents : n;
}

/* Waits for an event on @mark after the one that made it @before: 0, or -1 and errno. */
static int wait_after(struct thread *me, _Atomic uintptr_t *mark, uintptr_t before,
		      const struct timespec *deadline)
{
	int error;

	if (is_ready(before) || before == HUNG_UP)
		atomic_compare_exchange_strong(mark, &before, NOT_READY);
	error = switchto_slot_wait_for(me, mark, deadline);
	return error ? fail(error) : 0;
}

/* Polled, for @output or input. NULL and errno: it can't be. */
static struct mark *mark_for(struct thread *me, int fd, bool output)
{
	struct mark *mark = mark_of(me->sched, (unsigned int)fd);
	uintptr_t before = UNKNOWN;

	if (mark)
		before = atomic_load(output ? &mark->out : &mark->in);
	return before == UNKNOWN || before == UNARMED ? switchto_poll_add(me->slot, fd, output) :
							mark;
}

int switchto_poll(int fd, short events, const struct timespec *deadline)
{
	const bool output = events & POLLOUT;
	struct thread *me = current_task();
	_Atomic uintptr_t *direction;
	struct mark *mark;

	if (!me)
		return -1;
	/* A task waits in one place. */
	if (output == !!(events & (POLLIN | POLLRDHUP)) || events & ~(POLLIN | POLLRDHUP | POLLOUT))
		return fail(EINVAL);
	mark = mark_for(me, fd, output);
	if (!mark)
		return -1;
	direction = output ? &mark->out : &mark->in;
	for (;;) {
		uintptr_t before = atomic_load(direction);
		int found = poll_now(fd, events);

		if (found)
			return found > 0 ? (int)spent(me, found) : -1;
		if (before == UNKNOWN)
			return fail(EBADF);
		if (wait_after(me, direction, before, deadline))
			return -1;
	}
}

int switchto_connect(int fd, const struct sockaddr *address, socklen_t length,
		     const struct timespec *deadline)
{
	socklen_t size = sizeof(int);
	int flags, error;

	if (!current_task())
		return -1;
	/* Before it is polled: to epoll, a socket without a connection is one that was hung up. */
	flags = fcntl(fd, F_GETFL);
	if (flags == -1 || fcntl(fd, F_SETFL, flags | O_NONBLOCK))
		return -1;
	if (connect(fd, address, length) == 0)
		return 0;
	if (errno != EINPROGRESS && errno != EINTR)
		return -1;
	if (switchto_poll(fd, POLLOUT, deadline) == -1)
		return -1;
	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size))
		return -1;
	return error ? fail(error) : 0;
}

/* Waits for one end of a splice, if it is the one that is not ready: 0, or -1 and errno. */
static int wait_for_end(struct thread *me, int fd, struct mark *mark, uintptr_t before, bool output,
			const struct timespec *deadline)
{
	if (before == UNKNOWN)
		return fail(EBADF);
	if (before == BLOCKS || poll_now(fd, output ? POLLOUT : POLLIN))
		return 0;
	return wait_after(me, output ? &mark->out : &mark->in, before, deadline);
}

ssize_t switchto_splice(int from, off_t *from_offset, int to, off_t *to_offset, size_t size,
			unsigned int flags, const struct timespec *deadline)
{
	struct thread *me = current_task();
	struct mark *source = me ? mark_for(me, from, false) : NULL;
	struct mark *target = source ? mark_for(me, to, true) : NULL;

	if (!target)
		return -1;
	for (;;) {
		uintptr_t in = atomic_load(&source->in), out = atomic_load(&target->out);
		ssize_t result;

		/* Between a pipe and a file it blocks, whatever the flags. */
		if (in == BLOCKS || out == BLOCKS)
			result = BLOCKING(deadline, splice(from, from_offset, to, to_offset, size,
							   flags | SPLICE_F_NONBLOCK));
		else
			result = splice(from, from_offset, to, to_offset, size,
					flags | SPLICE_F_NONBLOCK);
		if (result >= 0)
			return spent(me, result);
		if (errno != EAGAIN && errno != EINTR)
			return result;
		if (wait_for_end(me, from, source, in, false, deadline) ||
		    wait_for_end(me, to, target, out, true, deadline))
			return -1;
	}
}

int switchto_openat(int folder, const char *path, int flags, mode_t mode)
{
	if (!current_task())
		return -1;
	if (switchto_current->slot->ring)
		return switchto_ring_call(RING_OPENAT, folder, path, mode, flags, NULL);
	return (int)BLOCKING(NULL, openat(folder, path, flags, mode));
}

int switchto_fsync(int fd)
{
	if (!current_task())
		return -1;
	return (int)on_file(RING_FSYNC, SYS_fsync, fd, NULL, 0, NULL);
}

int switchto_close(int fd)
{
	struct thread *me = switchto_current;

	if (!me || !me->task)
		return fail(EPERM);
	return switchto_poll_close(me->sched, fd);
}
