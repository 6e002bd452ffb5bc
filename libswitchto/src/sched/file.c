// SPDX-License-Identifier: MIT
/*
 * Files, which can't be polled, and what goes from one descriptor to another. The slot's ring reads
 * and writes a file at an offset; what uses the file's own position, which only the system calls
 * share as they should, is done in a blocking region.
 */
#define _GNU_SOURCE
#include "await.h"
#include "request.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>

/*
 * On a ring, if there is one, or else in a blocking region. The kernel cancels an operation by itself if
 * signals keep it from making a thread for that.
 */
static long on_ring(struct worker *me, const struct request *r)
{
	long result;

	if (me->slot->ring) {
		do
			result = switchto_await_file(r->number, r->fd, r->a, r->b, r->c,
						     r->deadline);
		while (result == -EINTR);
		if (result != -ECANCELED || is_cancelled(me->task))
			return result;
	}
	return switchto_request_block(me, r);
}

/* pread(2) and its like. */
static ssize_t at_offset(const struct request *r)
{
	struct worker *me = current_task();
	long result;

	if (!me)
		return -1;
	/* To a ring, this is the file's own position. */
	if (r->c < 0)
		return end_call(me, -EINVAL);
	/* Of a size or count of 0 or less, only the system call says what is wrong with it. */
	if (r->b <= 0)
		return end_call(me, make_call(r));
	result = switchto_request_perform(me, r);
	return end_call(me, result == NOT_POLLED ? on_ring(me, r) : result);
}

ssize_t switchto_pread(int fd, void *buffer, size_t size, off_t offset,
		       const struct timespec *deadline)
{
	return at_offset(&REQUEST(PLAIN, fd, deadline, pread64, buffer, size, offset));
}

ssize_t switchto_pwrite(int fd, const void *buffer, size_t size, off_t offset,
			const struct timespec *deadline)
{
	return at_offset(&REQUEST(OUTPUT | PLAIN, fd, deadline, pwrite64, buffer, size, offset));
}

ssize_t switchto_preadv(int fd, const struct iovec *parts, int count, off_t offset,
			const struct timespec *deadline)
{
	return at_offset(&REQUEST(PLAIN, fd, deadline, preadv, parts, count, offset));
}

ssize_t switchto_pwritev(int fd, const struct iovec *parts, int count, off_t offset,
			 const struct timespec *deadline)
{
	return at_offset(&REQUEST(OUTPUT | PLAIN, fd, deadline, pwritev, parts, count, offset));
}

/* The threads of a ring may have another folder, umask or /proc/thread-self. */
int switchto_openat(int folder, const char *path, int flags, mode_t mode)
{
	struct worker *me = current_task();
	long result;

	if (!me)
		return -1;
	result = switchto_request_block(me,
					&REQUEST(INPUT, folder, NULL, openat, path, flags, mode));
	if (result >= 0)
		switchto_mark_new((int)result);
	return (int)end_call(me, result);
}

int switchto_fsync(int fd)
{
	struct worker *me = current_task();

	return me ? (int)end_call(me, on_ring(me, &REQUEST(INPUT, fd, NULL, fsync, 0))) : -1;
}

/* --- from one descriptor to another --- */

/* Can @fd be polled? 1 or 0, or a negative error number. */
static int is_polled(struct worker *me, int fd, bool output)
{
	int error = switchto_mark_add(me->slot, fd, output);

	/* What was known of the number may be of another descriptor. */
	if ((!error || error == EBUSY) && !switchto_request_unblock(fd, mark_of((unsigned int)fd)))
		error = switchto_mark_add(me->slot, fd, output);
	if (!error || error == EBUSY)
		return 1;
	return error == EPERM ? 0 : -error;
}

/* The events of @r that count. A message in the queue of errors does not. */
static long ready_call(const struct request *r)
{
	const long found = switchto_poll_now(r->fd, (short)r->a);

	if (found < 0 || found & r->b)
		return found;
	return r->b & POLLOUT && switchto_mark_is_shut(r->fd) ? POLLHUP : -EAGAIN;
}

/* The call said EAGAIN: waits for the end that is not ready. 0 or a negative error number. */
static long wait_for_end(struct worker *me, int from, int to, unsigned int *waits,
			 unsigned int *naps, const struct timespec *deadline)
{
	/* Of a pipe, an error is that nobody reads. */
	const short broken = switchto_socket_type(to) ? 0 : POLLERR;
	const struct request source = REQUEST_OF(INPUT, from, deadline, ready_call, POLLIN,
						 POLLIN | POLLHUP | POLLNVAL);
	const struct request target = REQUEST_OF(OUTPUT, to, deadline, ready_call, POLLOUT,
						 POLLOUT | POLLHUP | POLLNVAL | broken);
	const bool empty = make_call(&source) == -EAGAIN;
	long result;

	/* Both may be ready, but not for each other. */
	if (!empty && make_call(&target) != -EAGAIN && ++*waits > 2)
		return switchto_request_nap(naps, deadline);
	result = switchto_request_perform(me, empty ? &source : &target);
	if (result < 0)
		return result;
	return empty ? 0 : switchto_send_error(to);
}

/*
 * @r, which is splice(2) or sendfile(2). @wait: for the end that is not ready. @closes: closes_now()
 * before the first part.
 */
static long transfer(struct worker *me, int from, int to, bool wait, const struct request *r,
		     uint64_t closes)
{
	const int source = is_polled(me, from, false), target = is_polled(me, to, true);
	unsigned int waits = 0, naps = 0;
	long result, error;

	if (source < 0 || target < 0)
		return source < 0 ? source : target;
	for (;;) {
		if (closed_since(from, closes) || closed_since(to, closes))
			return -EBADF;
		/* Of a file it blocks, whatever the flags. */
		result = source && target ? make_call(r) : switchto_request_block(me, r);
		if (result == -EINTR)
			continue;
		if (result != -EAGAIN || !wait)
			return result;
		error = wait_for_end(me, from, to, &waits, &naps, r->deadline);
		if (error == -ETIMEDOUT) /* once more */
			wait = false;
		else if (error)
			return error;
	}
}

/* Has @from, a pipe, more for @to, a socket? Then splice(2) goes on. */
static bool goes_on(int from, int to)
{
	int there = 0;

	return switchto_socket_type(to) && !switchto_socket_type(from) &&
	       !ioctl(from, FIONREAD, &there) && there > 0;
}

enum { FLAGS = SPLICE_F_MOVE | SPLICE_F_NONBLOCK | SPLICE_F_MORE | SPLICE_F_GIFT };

ssize_t switchto_splice(int from, off_t *from_offset, int to, off_t *to_offset, size_t size,
			unsigned int flags, const struct timespec *deadline)
{
	const bool wait = !(flags & SPLICE_F_NONBLOCK);
	const uint64_t closes = closes_now();
	struct worker *me = current_task();
	long done = 0, result;

	if (!me)
		return -1;
	/* Then it does not look at the descriptors. */
	if (!size || flags & ~(unsigned int)FLAGS)
		return end_call(me, size ? -EINVAL : 0);
	do {
		result = transfer(me, from, to, wait,
				  &REQUEST(INPUT, from, deadline, splice, from_offset, to,
					   to_offset, size - (size_t)done,
					   flags | SPLICE_F_NONBLOCK),
				  closes);
		if (result > 0)
			done += result;
	} while (result > 0 && (size_t)done < size && wait && goes_on(from, to));
	return end_call(me, done ? done : result == -EAGAIN && wait ? -ETIMEDOUT : result);
}

/* A pipe takes what it has room for, once. */
static bool is_pipe(int fd)
{
	return fcntl(fd, F_GETPIPE_SZ) != -1;
}

ssize_t switchto_sendfile(int to, int from, off_t *offset, size_t size,
			  const struct timespec *deadline)
{
	const uint64_t closes = closes_now();
	struct worker *me = current_task();
	long done = 0, result;

	if (!me)
		return -1;
	/* A negative one is an error. */
	if ((ssize_t)size > 0)
		size = limited(size);
	do {
		result = transfer(me, from, to, true,
				  &REQUEST(OUTPUT, to, deadline, sendfile, from, offset,
					   size - (size_t)done),
				  closes);
		if (result > 0)
			done += result;
	} while (result > 0 && (size_t)done < size && !is_pipe(to));
	return end_call(me, done ? done : result == -EAGAIN ? -ETIMEDOUT : result);
}
