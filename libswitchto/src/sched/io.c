// SPDX-License-Identifier: MIT
/*
 * Reads and writes of tasks: what the system call of that name does on a descriptor that blocks. What
 * is common to all calls is in request.c.
 */
#define _GNU_SOURCE
#include "request.h"

#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

/*
 * The path of a request: recvfrom(2) of a descriptor that has a mark, with a wait in line if there
 * is nothing. False: to be performed, from @p on.
 */
static ALWAYS_INLINE bool try_receive(struct worker *me, struct mark *mark, int fd, void *buffer,
				      size_t size, int flags, const struct timespec *deadline,
				      struct progress *p)
{
	uintptr_t word = atomic_load_explicit(&mark->in.word, memory_order_acquire);

	if (likely(word == NOT_READY)) {
		if (unlikely(atomic_load_explicit(&mark->in.first, memory_order_relaxed)))
			return false;
		p->noted = true;
		p->closes = atomic_load_explicit(&mark->closes, memory_order_relaxed);
		p->error = slot_wait_once(me, mark, &mark->in, deadline, &word);
		if (unlikely(p->error))
			return false;
		p->waited = true;
		if (unlikely(atomic_load_explicit(&mark->closes, memory_order_relaxed) !=
			     p->closes))
			return false;
	}
	if (unlikely(!is_ready(word)))
		return false;
	p->word = word;
	p->result = CALL(recvfrom, fd, buffer, size, flags | MSG_DONTWAIT, NULL, NULL);
	if (unlikely(p->result < 0))
		return false;
	if ((size_t)p->result < size && likely(!(word & STICKY)))
		atomic_compare_exchange_strong(&mark->in.word, &word, NOT_READY);
	if (unlikely(atomic_load(&mark->in.first)) && p->waited)
		switchto_turn_end(mark, &mark->in, NULL);
	return true;
}

/* Is @fd known to be a socket? Then a flag can say that the call is not to block. */
static inline bool is_socket(int fd)
{
	const struct mark *mark = mark_of((unsigned int)fd);

	return mark && atomic_load_explicit(&mark->sched, memory_order_relaxed) &&
	       atomic_load_explicit(&mark->socket, memory_order_relaxed);
}

/* A call found that @fd is no socket any more. */
static void no_socket(int fd)
{
	switchto_mark_is_valid(mark_of((unsigned int)fd));
}

/* With these flags a call does not wait, and what it says is not said of the socket's data. */
enum { AT_ONCE = MSG_DONTWAIT | MSG_ERRQUEUE | MSG_OOB };

/* The system call, once. */
static __attribute__((noinline)) ssize_t once(const struct request *r)
{
	struct worker *me = current_task();
	long result;

	if (!me)
		return -1;
	do
		result = make_call(r);
	while (result == -EINTR);
	return end_call(me, result);
}

/* --- calls that go on after a part --- */

static size_t length_of(const struct iovec *parts, size_t count)
{
	size_t length = 0;

	for (size_t i = 0; i < count; i++)
		length += parts[i].iov_len;
	return length;
}

/*
 * Was a receive with MSG_WAITALL cut short by what is between two parts of the stream: urgent data,
 * descriptors, or another sender? @flags: of the message.
 */
static bool is_between(int fd, int flags)
{
	socklen_t size = sizeof(int);
	int at_mark = 0, credentials = 0, there = 0;

	if (!ioctl(fd, SIOCATMARK, &at_mark) && at_mark)
		return true;
	if (!(flags & MSG_CTRUNC))
		return false;
	if (getsockopt(fd, SOL_SOCKET, SO_PASSCRED, &credentials, &size) || !credentials)
		return true;
	return !ioctl(fd, FIONREAD, &there) && there;
}

/* Sends or receives @message, or its parts if @fd is no socket, after another part of the stream. */
static long do_part(struct worker *me, int fd, bool output, bool socket, struct msghdr *message,
		    int flags, const struct timespec *deadline, unsigned int closes)
{
	const struct iovec *parts = message->msg_iov;
	const size_t count = message->msg_iovlen;
	struct request r;

	if (!socket)
		r = output ? REQUEST(OUTPUT | REST, fd, deadline, writev, parts, count) :
			     REQUEST(REST, fd, deadline, readv, parts, count);
	else if (!output)
		r = REQUEST(REST, fd, deadline, recvmsg, message, flags | MSG_DONTWAIT);
	else /* Once something went, an error has no signal. */
		r = REQUEST(OUTPUT | REST, fd, deadline, sendmsg, message,
			    flags | MSG_DONTWAIT | MSG_NOSIGNAL);
	return switchto_request_go_on(me, &r, closes);
}

/*
 * Sends or receives what is left, when @done bytes of @parts are done, as a call on a descriptor that
 * blocks: until all is done, or there is an error, the deadline, a cancellation, or the end. Returns
 * how much is done then.
 */
static __attribute__((noinline)) long do_rest(struct worker *me, int fd, bool output,
					      const struct iovec *parts, size_t count, size_t done,
					      int flags, const struct timespec *deadline)
{
	const unsigned int closes = switchto_mark_closes(fd);
	const bool socket = switchto_socket_type(fd) != 0;
	size_t before = 0;

	for (size_t i = 0; i < count;) {
		struct iovec part = parts[i];
		struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
		long result;

		if (done >= before + part.iov_len) {
			before += part.iov_len;
			i++;
			continue;
		}
		if (done == before) {
			/* All that are left, as they are. */
			message.msg_iov = (struct iovec *)&parts[i];
			message.msg_iovlen = count - i < 1024 ? count - i : 1024;
		} else {
			part.iov_base = (char *)part.iov_base + (done - before);
			part.iov_len -= done - before;
		}
		result = do_part(me, fd, output, socket, &message, flags, deadline, closes);
		if (result <= 0)
			break;
		done += (size_t)result;
		if (!output && is_between(fd, message.msg_flags))
			break;
	}
	return (long)done;
}

/* The result of a call for output that had @result. */
static inline long whole(struct worker *me, int fd, const struct iovec *parts, size_t count,
			 long result, int flags, const struct timespec *deadline)
{
	if (likely(result <= 0) || (size_t)result >= length_of(parts, count))
		return result;
	return do_rest(me, fd, true, parts, count, (size_t)result, flags, deadline);
}

/* --- reads --- */

/* @socket: @fd is one, and @p says how far it is as recv(2). */
static __attribute__((noinline)) ssize_t read_slowly(struct worker *me, int fd, void *buffer,
						     size_t size, const struct timespec *deadline,
						     bool socket, struct progress p)
{
	struct request r;
	long result;

	if (socket) {
		r = REQUEST(EMPTIES, fd, deadline, recvfrom, buffer, size, MSG_DONTWAIT);
		result = switchto_request_resume(me, &r, p);
		if (result != -ENOTSOCK)
			return end_call(me, result);
		no_socket(fd);
	}
	r = REQUEST(PLAIN | EMPTIES, fd, deadline, read, buffer, size);
	return end_call(me, switchto_request_perform_or_block(me, &r));
}

ssize_t switchto_read(int fd, void *buffer, size_t size, const struct timespec *deadline)
{
	struct worker *me = current_task();
	struct progress p = no_progress;

	if (unlikely(!me))
		return -1;
	/* One of no bytes waits for nothing, but with recv(2) it does. */
	if (unlikely(!is_socket(fd)) || unlikely(!size))
		return read_slowly(me, fd, buffer, size, deadline, false, p);
	if (likely(try_receive(me, mark_of((unsigned int)fd), fd, buffer, size, 0, deadline, &p)))
		return end_call(me, p.result);
	return read_slowly(me, fd, buffer, size, deadline, true, p);
}

ssize_t switchto_readv(int fd, const struct iovec *parts, int count,
		       const struct timespec *deadline)
{
	const struct request r = REQUEST(PLAIN, fd, deadline, readv, parts, count);
	struct worker *me = current_task();

	return likely(me) ? end_call(me, switchto_request_perform_or_block(me, &r)) : -1;
}

/* --- receives --- */

/* Does MSG_PEEK with MSG_WAITALL wait for all? On a stream of UNIX it does not. */
static bool peeks_all(int fd)
{
	socklen_t size = sizeof(int);
	int domain;

	return !getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) &&
	       (domain == AF_INET || domain == AF_INET6) && switchto_socket_type(fd) == SOCK_STREAM;
}

/* Has a peek of @size found all before urgent data, or before the end? */
static bool is_before_seam(int fd, size_t size)
{
	const long found = switchto_poll_now(fd, POLLRDHUP | POLLPRI);
	int at_mark = 0, there = 0;

	if (found & (POLLRDHUP | POLLHUP))
		return true;
	return found & POLLPRI && !ioctl(fd, SIOCATMARK, &at_mark) && !at_mark &&
	       !ioctl(fd, FIONREAD, &there) && size >= (size_t)there;
}

/* MSG_PEEK with MSG_WAITALL: all at once, or what there is before a seam. */
static long peek_all(const struct request *r)
{
	struct msghdr message = { .msg_iov = pointer(r->a), .msg_iovlen = (size_t)r->b };
	const long result = CALL(recvmsg, r->fd, &message, r->c | MSG_DONTWAIT);

	if (result <= 0 || (size_t)result >= length_of(message.msg_iov, message.msg_iovlen) ||
	    is_before_seam(r->fd, (size_t)result))
		return result;
	return -EAGAIN;
}

/* The result of @r when @parts are there. If the wait for that fails, a part is more than an error. */
static long peek(struct worker *me, const struct request *r, const struct iovec *parts,
		 size_t count, int flags)
{
	const struct request all = REQUEST_OF(INPUT, r->fd, r->deadline, peek_all, parts, count,
					      flags);
	long result, there;

	/* Each part that comes is an event, though the first is there. */
	if (!switchto_mark_add(me->slot, r->fd, false))
		switchto_mark_edge(mark_of((unsigned int)r->fd));
	result = switchto_request_perform(me, &all);
	if (result == -EBADF)
		return result;
	there = make_call(r);
	return there > 0 || result >= 0 ? there : result;
}

static __attribute__((noinline)) ssize_t receive_specially(struct worker *me, int fd, void *buffer,
							   size_t size, int flags,
							   const struct timespec *deadline)
{
	struct iovec part = { buffer, size };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
	struct request r = REQUEST(INPUT, fd, deadline, recvfrom, buffer, size,
				   flags | MSG_DONTWAIT);
	const bool all = flags & MSG_WAITALL;
	long result;

	if (flags & AT_ONCE)
		return once(&r);
	if (all && flags & MSG_PEEK && peeks_all(fd))
		return end_call(me, peek(me, &r, &part, 1, flags));
	if (!all || flags & MSG_PEEK || switchto_socket_type(fd) != SOCK_STREAM)
		return end_call(me, switchto_request_perform(me, &r));
	/* This says where the stream has a seam. */
	r = REQUEST(INPUT, fd, deadline, recvmsg, &message, flags | MSG_DONTWAIT);
	result = switchto_request_perform(me, &r);
	if (result > 0 && (size_t)result < size && !is_between(fd, message.msg_flags))
		result = do_rest(me, fd, false, &part, 1, (size_t)result, flags, deadline);
	return end_call(me, result);
}

static __attribute__((noinline)) ssize_t receive_slowly(struct worker *me, int fd, void *buffer,
							size_t size, int flags,
							const struct timespec *deadline,
							struct progress p)
{
	const struct request r = REQUEST(EMPTIES, fd, deadline, recvfrom, buffer, size,
					 flags | MSG_DONTWAIT);

	return end_call(me, switchto_request_resume(me, &r, p));
}

ssize_t switchto_recv(int fd, void *buffer, size_t size, int flags, const struct timespec *deadline)
{
	struct worker *me = current_task();
	struct progress p = no_progress;
	struct mark *mark;

	if (unlikely(!me))
		return -1;
	if (unlikely(flags & (AT_ONCE | MSG_PEEK | MSG_WAITALL)))
		return receive_specially(me, fd, buffer, size, flags, deadline);
	mark = mark_of((unsigned int)fd);
	if (likely(mark) && likely(atomic_load_explicit(&mark->socket, memory_order_relaxed)) &&
	    likely(try_receive(me, mark, fd, buffer, size, flags, deadline, &p)))
		return end_call(me, p.result);
	return receive_slowly(me, fd, buffer, size, flags, deadline, p);
}

ssize_t switchto_recvfrom(int fd, void *buffer, size_t size, int flags, struct sockaddr *address,
			  socklen_t *length, const struct timespec *deadline)
{
	const struct request r = REQUEST(INPUT, fd, deadline, recvfrom, buffer, size,
					 flags | MSG_DONTWAIT, address, length);
	struct worker *me;

	/* Only datagrams have an address. */
	if (!address || flags & MSG_WAITALL)
		return switchto_recv(fd, buffer, size, flags, deadline);
	if (flags & AT_ONCE)
		return once(&r);
	me = current_task();
	return me ? end_call(me, switchto_request_perform(me, &r)) : -1;
}

/* What @message brought of new descriptors. True: it brought some, or they had no room. */
static bool take_descriptors(struct msghdr *message)
{
	bool found = message->msg_flags & MSG_CTRUNC;

	if (!message->msg_control)
		return found;
	for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part;
	     part = CMSG_NXTHDR(message, part)) {
		if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS)
			continue;
		found = true;
		for (size_t i = 0; CMSG_LEN((i + 1) * sizeof(int)) <= part->cmsg_len; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(fd));
			switchto_mark_new(fd);
		}
	}
	return found;
}

ssize_t switchto_recvmsg(int fd, struct msghdr *message, int flags, const struct timespec *deadline)
{
	const struct request r = REQUEST(INPUT, fd, deadline, recvmsg, message,
					 flags | MSG_DONTWAIT);
	struct worker *me;
	long result;
	bool seam;

	if (unlikely(flags & AT_ONCE))
		return once(&r);
	me = current_task();
	if (unlikely(!me))
		return -1;
	if (unlikely(flags & MSG_WAITALL && flags & MSG_PEEK) && peeks_all(fd))
		result = peek(me, &r, message->msg_iov, message->msg_iovlen, flags);
	else
		result = switchto_request_perform(me, &r);
	if (result < 0)
		return end_call(me, result);
	seam = take_descriptors(message);
	if (unlikely(flags & MSG_WAITALL) && result && !seam && !(flags & MSG_PEEK) &&
	    (size_t)result < length_of(message->msg_iov, message->msg_iovlen) &&
	    switchto_socket_type(fd) == SOCK_STREAM && !is_between(fd, 0))
		result = do_rest(me, fd, false, message->msg_iov, message->msg_iovlen,
				 (size_t)result, flags, deadline);
	return end_call(me, result);
}

/* --- sends and writes --- */

/* Most sockets take all at once. So a send is tried before anything is polled. */
static inline bool is_to_wait(long result)
{
	return result == -EAGAIN || result == -EINTR;
}

static long send_or_wait(struct worker *me, const struct request *r)
{
	const long result = make_call(r);

	return is_to_wait(result) ? switchto_request_perform(me, r) : result;
}

static __attribute__((noinline)) long send_later(struct worker *me, int fd, const void *buffer,
						 size_t size, int flags, long result,
						 const struct timespec *deadline)
{
	const struct iovec part = { (void *)buffer, size };
	const struct request r = REQUEST(OUTPUT, fd, deadline, sendto, buffer, size,
					 flags | MSG_DONTWAIT);

	if (result < 0)
		result = switchto_request_perform(me, &r);
	return whole(me, fd, &part, 1, result, flags, deadline);
}

static ALWAYS_INLINE long send_now(struct worker *me, int fd, const void *buffer, size_t size,
				   int flags, const struct timespec *deadline)
{
	const long result = CALL(sendto, fd, buffer, size, flags | MSG_DONTWAIT, NULL, 0);

	if (likely((size_t)result == size) || flags & MSG_DONTWAIT ||
	    (result < 0 && !is_to_wait(result)))
		return result;
	return send_later(me, fd, buffer, size, flags, result, deadline);
}

ssize_t switchto_send(int fd, const void *buffer, size_t size, int flags,
		      const struct timespec *deadline)
{
	struct worker *me = current_task();

	if (unlikely(!me))
		return -1;
	return end_call(me, send_now(me, fd, buffer, size, flags, deadline));
}

ssize_t switchto_sendto(int fd, const void *buffer, size_t size, int flags,
			const struct sockaddr *address, socklen_t length,
			const struct timespec *deadline)
{
	const struct request r = REQUEST(OUTPUT | ADDRESS, fd, deadline, sendto, buffer, size,
					 flags | MSG_DONTWAIT, address, length);
	const struct iovec part = { (void *)buffer, size };
	struct worker *me;

	if (!address)
		return switchto_send(fd, buffer, size, flags, deadline);
	if (flags & MSG_DONTWAIT)
		return once(&r);
	me = current_task();
	if (!me)
		return -1;
	return end_call(me, whole(me, fd, &part, 1, send_or_wait(me, &r), flags, deadline));
}

/* A write of @parts, which has been tried in no other way. */
static __attribute__((noinline)) ssize_t write_slowly(struct worker *me, const struct request *r,
						      const struct iovec *parts, size_t count)
{
	const long result = switchto_request_perform(me, r);

	if (result == NOT_POLLED)
		return end_call(me, switchto_request_block(me, r));
	return end_call(me, whole(me, r->fd, parts, count, result, 0, r->deadline));
}

ssize_t switchto_write(int fd, const void *buffer, size_t size, const struct timespec *deadline)
{
	struct worker *me = current_task();
	long result;

	if (unlikely(!me))
		return -1;
	if (likely(is_socket(fd))) {
		result = send_now(me, fd, buffer, size, 0, deadline);
		if (likely(result != -ENOTSOCK))
			return end_call(me, result);
		no_socket(fd);
	}
	return write_slowly(me, &REQUEST(OUTPUT | PLAIN, fd, deadline, write, buffer, size),
			    &(struct iovec){ (void *)buffer, size }, 1);
}

ssize_t switchto_writev(int fd, const struct iovec *parts, int count,
			const struct timespec *deadline)
{
	const struct request r = REQUEST(OUTPUT | PLAIN, fd, deadline, writev, parts, count);
	struct worker *me = current_task();

	return likely(me) ? write_slowly(me, &r, parts, (size_t)count) : -1;
}

/* A message until it is whole. */
static long send_message(struct worker *me, int fd, const struct msghdr *message, int flags,
			 const struct timespec *deadline)
{
	const struct request r = REQUEST(OUTPUT | (message->msg_name ? ADDRESS : 0), fd, deadline,
					 sendmsg, message, flags | MSG_DONTWAIT);

	return whole(me, fd, message->msg_iov, message->msg_iovlen, send_or_wait(me, &r), flags,
		     deadline);
}

ssize_t switchto_sendmsg(int fd, const struct msghdr *message, int flags,
			 const struct timespec *deadline)
{
	struct worker *me;

	if (unlikely(flags & MSG_DONTWAIT))
		return once(&REQUEST(OUTPUT, fd, NULL, sendmsg, message, flags));
	me = current_task();
	return likely(me) ? end_call(me, send_message(me, fd, message, flags, deadline)) : -1;
}

/* --- several messages --- */

/* The kernel takes no more messages in one call (UIO_MAXIOV). */
enum { MESSAGES = 1024 };

static inline unsigned int at_most(unsigned int a, unsigned int b)
{
	return a < b ? a : b;
}

int switchto_recvmmsg(int fd, struct mmsghdr *messages, unsigned int count, int flags,
		      const struct timespec *deadline)
{
	unsigned int done = 0, how = EMPTIES, closes = 0;
	struct worker *me;
	long result;

	count = at_most(count, MESSAGES);
	if (unlikely(flags & AT_ONCE))
		return (int)once(
			&REQUEST(INPUT, fd, NULL, recvmmsg, messages, count, flags | MSG_DONTWAIT));
	me = current_task();
	if (unlikely(!me))
		return -1;
	do {
		const struct request r = REQUEST(how, fd, deadline, recvmmsg, messages + done,
						 count - done,
						 (flags | MSG_DONTWAIT) & ~MSG_WAITFORONE);

		result = done ? switchto_request_go_on(me, &r, closes) :
				switchto_request_perform(me, &r);
		for (long i = 0; i < result; i++)
			take_descriptors(&messages[done + (unsigned int)i].msg_hdr);
		if (result <= 0)
			break;
		if (!done)
			closes = switchto_mark_closes(fd);
		done += (unsigned int)result;
		/* An error in between is for the next call. */
		how |= REST;
	} while (done < count && !(flags & MSG_WAITFORONE));
	return (int)end_call(me, done ? (long)done : result);
}

/* A socket of UDP that is polled for output has an event for each message that is gone. */
int switchto_sendmmsg(int fd, struct mmsghdr *messages, unsigned int count, int flags,
		      const struct timespec *deadline)
{
	unsigned int done = 0, closes;
	struct worker *me = current_task();
	long result;

	if (unlikely(!me))
		return -1;
	count = at_most(count, MESSAGES);
	for (;;) {
		struct mmsghdr *last = messages + done;

		result = CALL(sendmmsg, fd, last, count - done, flags | MSG_DONTWAIT);
		if (likely(result >= 0)) {
			done += (unsigned int)result;
			if (likely(done == count) || flags & MSG_DONTWAIT)
				break;
			/* It may have ended with an error, too, which the kernel keeps to itself. */
			if (result && switchto_socket_type(fd) != SOCK_STREAM &&
			    switchto_poll_now(fd, POLLOUT) & POLLOUT)
				break;
			/* Of a stream, the last message may have gone in part. */
			closes = switchto_mark_closes(fd);
			last += result;
			if (result && last[-1].msg_len)
				last[-1].msg_len =
					(unsigned int)whole(me, fd, last[-1].msg_hdr.msg_iov,
							    last[-1].msg_hdr.msg_iovlen,
							    last[-1].msg_len, flags, deadline);
			if (switchto_mark_closes(fd) != closes)
				break;
		} else if (!is_to_wait(result) || flags & MSG_DONTWAIT) {
			break;
		}
		/* This waits. */
		result = send_message(me, fd, &last->msg_hdr, flags, deadline);
		if (result < 0)
			break;
		last->msg_len = (unsigned int)result;
		if (++done == count)
			break;
	}
	return (int)end_call(me, done ? (long)done : result);
}
