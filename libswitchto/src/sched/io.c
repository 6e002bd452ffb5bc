// SPDX-License-Identifier: MIT
/*
 * I/O of tasks: the system call of that name on a descriptor that does not block, and a wait
 * if it says EAGAIN. A read of less than was asked for has emptied the descriptor: then the next
 * one waits at once, and saves the call that would say so. On a file, which can't be polled, it
 * is done in a blocking region.
 */
#define _GNU_SOURCE
#include "internal.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Waits until there was an event on @mark, if it is NOT_READY: 0, or -1 and errno. */
static int wait_for(_Atomic uintptr_t *mark, const struct timespec *deadline)
{
	nsec_t until = switchto_deadline(deadline);
	struct switchto_task *task;
	struct thread *me;
	uintptr_t seen;
	int error = 0;

	if (until < 0)
		return fail(EINVAL);
	me = enter();
	if (!me)
		return -1;
	task = me->task;
	do {
		task_prepare(task, WAITING);
		seen = NOT_READY;
		if (!atomic_compare_exchange_strong(mark, &seen, (uintptr_t)task) &&
		    seen != (uintptr_t)task) {
			switchto_task_stay(me);
			error = mark_task(seen) ? EBUSY : seen == UNKNOWN ? EBADF : 0;
			break;
		}
		error = task_cancelled(me) ? ECANCELED : task_sleep(me, until);
		seen = (uintptr_t)task;
	} while (!error && atomic_load(mark) == seen);
	/* If an event came as well, the call is tried once more, and the error comes after that. */
	if (error && error != EBUSY && error != EBADF &&
	    !atomic_compare_exchange_strong(mark, &seen, NOT_READY))
		error = 0;
	leave(me);
	return unlikely(error) ? fail(error) : 0;
}

static inline struct mark *mark_for(int fd)
{
	struct thread *me = switchto_current;
	struct mark *mark;

	if (unlikely(!me || !me->task)) {
		errno = EPERM;
		return NULL;
	}
	mark = mark_of(me->sched, (unsigned int)fd);
	if (likely(mark && atomic_load_explicit(&mark->slot, memory_order_acquire)))
		return mark;
	return switchto_poll_add(me->slot, fd);
}

/*
 * Without the C library's wrappers, which are cancellation points: in a program with threads
 * they cost some fifty instructions each.
 */
#define system_call(name, ...) syscall(SYS_##name, __VA_ARGS__)

/*
 * Is a call done that had @result, with @mark as @before? @emptied: it has left nothing there, so
 * that the next one waits at once.
 */
static inline bool is_done(_Atomic uintptr_t *mark, uintptr_t before, ssize_t result, bool emptied)
{
	if (likely(result >= 0)) {
		if (emptied && before & READY)
			atomic_compare_exchange_strong(mark, &before, NOT_READY);
		return true;
	}
	if (errno == EAGAIN && before != UNKNOWN && !mark_task(before))
		atomic_compare_exchange_strong(mark, &before, NOT_READY);
	return errno != EAGAIN && errno != EINTR;
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

/* @call, until it is done. A macro, so that each call is a direct one. */
#define UNTIL_DONE(fd, direction, emptied, deadline, call)                              \
	do {                                                                            \
		struct mark *mark = mark_for(fd);                                       \
                                                                                        \
		if (unlikely(!mark))                                                    \
			return -1;                                                      \
		do {                                                                    \
			uintptr_t before = atomic_load_explicit(&mark->direction,       \
								memory_order_acquire);  \
                                                                                        \
			if (likely(before != NOT_READY && before != BLOCKS)) {          \
				ssize_t result = call;                                  \
                                                                                        \
				if (is_done(&mark->direction, before, result, emptied)) \
					return result;                                  \
			} else if (before == BLOCKS) {                                  \
				return BLOCKING(deadline, call);                        \
			}                                                               \
		} while (!wait_for(&mark->direction, deadline));                        \
		return -1;                                                              \
	} while (0)

ssize_t switchto_read(int fd, void *buffer, size_t size, const struct timespec *deadline)
{
	UNTIL_DONE(fd, in, (size_t)result < size, deadline, system_call(read, fd, buffer, size));
}

ssize_t switchto_write(int fd, const void *buffer, size_t size, const struct timespec *deadline)
{
	UNTIL_DONE(fd, out, false, deadline, system_call(write, fd, buffer, size));
}

ssize_t switchto_recv(int fd, void *buffer, size_t size, int flags, const struct timespec *deadline)
{
	UNTIL_DONE(fd, in, (size_t)result < size, deadline,
		   system_call(recvfrom, fd, buffer, size, flags, NULL, NULL));
}

static __attribute__((noinline)) ssize_t send_later(int fd, const void *buffer, size_t size,
						    int flags, const struct timespec *deadline)
{
	UNTIL_DONE(fd, out, false, deadline, system_call(sendto, fd, buffer, size, flags, NULL, 0));
}

ssize_t switchto_send(int fd, const void *buffer, size_t size, int flags,
		      const struct timespec *deadline)
{
	if (likely(switchto_current && switchto_current->task)) {
		ssize_t result = system_call(sendto, fd, buffer, size, flags | MSG_DONTWAIT, NULL,
					     0);

		if (likely(result >= 0))
			return result;
		if (errno != EAGAIN && errno != EINTR)
			return -1;
	}
	return send_later(fd, buffer, size, flags, deadline);
}

ssize_t switchto_readv(int fd, const struct iovec *parts, int count,
		       const struct timespec *deadline)
{
	UNTIL_DONE(fd, in, false, deadline, system_call(readv, fd, parts, count));
}

ssize_t switchto_writev(int fd, const struct iovec *parts, int count,
			const struct timespec *deadline)
{
	UNTIL_DONE(fd, out, false, deadline, system_call(writev, fd, parts, count));
}

ssize_t switchto_recvmsg(int fd, struct msghdr *message, int flags, const struct timespec *deadline)
{
	UNTIL_DONE(fd, in, false, deadline, system_call(recvmsg, fd, message, flags));
}

ssize_t switchto_sendmsg(int fd, const struct msghdr *message, int flags,
			 const struct timespec *deadline)
{
	UNTIL_DONE(fd, out, false, deadline, system_call(sendmsg, fd, message, flags));
}

int switchto_accept(int fd, struct sockaddr *address, socklen_t *length, int flags,
		    const struct timespec *deadline)
{
	UNTIL_DONE(fd, in, false, deadline,
		   system_call(accept4, fd, address, length, flags | SOCK_NONBLOCK));
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
static int wait_after(_Atomic uintptr_t *mark, uintptr_t before, const struct timespec *deadline)
{
	if (before != NOT_READY && before != UNKNOWN && !mark_task(before))
		atomic_compare_exchange_strong(mark, &before, NOT_READY);
	return wait_for(mark, deadline);
}

int switchto_poll(int fd, short events, const struct timespec *deadline)
{
	const bool input = events & (POLLIN | POLLRDHUP);
	_Atomic uintptr_t *direction;
	struct mark *mark;

	/* A task waits in one place. */
	if (input == !!(events & POLLOUT) || events & ~(POLLIN | POLLRDHUP | POLLOUT))
		return fail(EINVAL);
	mark = mark_for(fd);
	if (!mark)
		return -1;
	direction = input ? &mark->in : &mark->out;
	for (;;) {
		uintptr_t before = atomic_load(direction);
		int found = poll_now(fd, events);

		if (found)
			return found;
		if (wait_after(direction, before, deadline))
			return -1;
	}
}

int switchto_connect(int fd, const struct sockaddr *address, socklen_t length,
		     const struct timespec *deadline)
{
	socklen_t size = sizeof(int);
	int flags, error;

	if (!switchto_current || !switchto_current->task)
		return fail(EPERM);
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

ssize_t switchto_splice(int from, off_t *from_offset, int to, off_t *to_offset, size_t size,
			unsigned int flags, const struct timespec *deadline)
{
	struct mark *source = mark_for(from), *target = source ? mark_for(to) : NULL;

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
		if (result >= 0 || (errno != EAGAIN && errno != EINTR))
			return result;
		/* Which of the two is it? If neither any more, try again. */
		if (in != BLOCKS && !poll_now(from, POLLIN)) {
			if (wait_after(&source->in, in, deadline))
				return -1;
		} else if (out != BLOCKS && !poll_now(to, POLLOUT)) {
			if (wait_after(&target->out, out, deadline))
				return -1;
		}
	}
}

int switchto_openat(int folder, const char *path, int flags, mode_t mode)
{
	if (!switchto_task_self())
		return fail(EPERM);
	return (int)BLOCKING(NULL, openat(folder, path, flags, mode));
}

int switchto_fsync(int fd)
{
	if (!switchto_task_self())
		return fail(EPERM);
	return (int)BLOCKING(NULL, fsync(fd));
}

int switchto_close(int fd)
{
	struct thread *me = switchto_current;

	if (!me || !me->task)
		return fail(EPERM);
	return switchto_poll_close(me->sched, fd);
}
