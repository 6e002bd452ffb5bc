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
#include <termios.h>

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
		if (unlikely(atomic_load_explicit(&mark->in.first, memory_order_relaxed)) ||
		    unlikely(atomic_load_explicit(&mark->waits_first, memory_order_relaxed) !=
			     WAITS_FIRST))
			return false;
		p->closes = closes_now();
		p->error = slot_wait_once(me, mark, &mark->in, NOT_READY, deadline, &word);
		if (unlikely(p->error))
			return false;
		p->waited = true;
		if (unlikely(is_closed_since(mark, p->closes)))
			return false;
	}
	if (unlikely(!is_ready(word)))
		return false;
	p->word = word;
	p->result = CALL(recvfrom, fd, buffer, size, flags | MSG_DONTWAIT, NULL, NULL);
	if (unlikely(p->result < 0))
		return false;
	if ((size_t)p->result < size && (likely(!(word & STICKY)) || switchto_mark_calm(mark)))
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

enum { AT_ONCE = MSG_DONTWAIT | MSG_ERRQUEUE | MSG_OOB };

/*
 * With one of these flags a call does not wait, and what it says is not said of the socket's data. But
 * some sockets have no queue of errors, or no urgent data, and do not look at the flag.
 */
static bool is_at_once(int fd, int flags)
{
	int domain;

	if (flags & MSG_DONTWAIT)
		return true;
	if (flags & MSG_OOB)
		return switchto_socket_type(fd) != SOCK_DGRAM;
	domain = switchto_socket_option(fd, SO_DOMAIN);
	return domain != AF_UNIX && domain != AF_NETLINK;
}

static long call_once(const struct request *r)
{
	long result;

	do
		result = make_call(r);
	while (result == -EINTR);
	return result;
}

/* The system call, once. */
static __attribute__((noinline)) ssize_t once(const struct request *r)
{
	struct worker *me = current_task();

	return me ? end_call(me, call_once(r)) : -1;
}

/* --- calls that go on after a part --- */

/* The kernel takes no more parts or messages (UIO_MAXIOV). */
enum { MESSAGES = 1024 };

static size_t length_of(const struct iovec *parts, size_t count)
{
	size_t length = 0;

	for (size_t i = 0; i < count; i++)
		length += parts[i].iov_len;
	return limited(length);
}

/* So many parts go at once after the first part. */
enum { PARTS = 64 };

/* What is left of @parts when @done bytes are done, as far as it fits, goes to @rest: how many. */
static size_t rest_of(const struct iovec *parts, size_t count, size_t done,
		      struct iovec rest[PARTS])
{
	size_t n = 0;

	for (; count && n < PARTS; parts++, count--) {
		if (done >= parts->iov_len) {
			done -= parts->iov_len;
			continue;
		}
		rest[n].iov_base = (char *)parts->iov_base + done;
		rest[n++].iov_len = parts->iov_len - done;
		done = 0;
	}
	return n;
}

/* Room for what holds for all of a message: a sender (SCM_CREDENTIALS), a type of record (TLS). */
enum { CONTROL = 128 };

/* Copies that from @message to @control, but no descriptors: these went with the first part. */
static size_t control_of_rest(const struct msghdr *message, char control[CONTROL])
{
	struct msghdr all = *message;
	size_t size = 0;

	for (struct cmsghdr *part = CMSG_FIRSTHDR(&all); part; part = CMSG_NXTHDR(&all, part)) {
		const bool rights = part->cmsg_level == SOL_SOCKET && part->cmsg_type == SCM_RIGHTS;

		if (rights || CMSG_ALIGN(part->cmsg_len) > CONTROL - size)
			continue;
		memcpy(control + size, part, part->cmsg_len);
		size += CMSG_ALIGN(part->cmsg_len);
	}
	return size;
}

/*
 * Sends what is left of @whole, when @done bytes are done since closes_now() was @closes, as a call on
 * a descriptor that blocks: until all is done, or there is an error, the deadline, a cancellation, or
 * the end. Returns how much is done then.
 */
static __attribute__((noinline)) long send_rest(struct worker *me, int fd,
						const struct msghdr *whole, size_t done, int flags,
						const struct timespec *deadline, uint64_t closes)
{
	const bool socket = switchto_socket_type(fd) != 0;
	const size_t length = length_of(whole->msg_iov, whole->msg_iovlen);
	_Alignas(struct cmsghdr) char control[CONTROL];
	struct iovec rest[PARTS];
	struct msghdr message = {
		.msg_iov = rest,
		.msg_control = control,
		.msg_controllen = control_of_rest(whole, control),
	};

	while (done < length) {
		struct request r;
		long result;

		/* What a pipe of packets keeps together does not depend on where the parts end. */
		message.msg_iovlen = rest_of(whole->msg_iov, whole->msg_iovlen, done, rest);
		/* Once something went, an error has no signal. */
		r = socket ? REQUEST(OUTPUT | REST, fd, deadline, sendmsg, &message,
				     (flags & ~MSG_FASTOPEN) | MSG_DONTWAIT | MSG_NOSIGNAL) :
			     REQUEST(OUTPUT | REST | PLAIN, fd, deadline, writev, rest,
				     message.msg_iovlen);
		result = switchto_request_go_on(me, &r, closes);
		if (result <= 0)
			break;
		done += (size_t)result;
	}
	return (long)done;
}

/* The result of a call for output of @message that had @result. */
static inline long whole(struct worker *me, int fd, const struct msghdr *message, long result,
			 int flags, const struct timespec *deadline, uint64_t closes)
{
	if (likely(result <= 0) ||
	    (size_t)result >= length_of(message->msg_iov, message->msg_iovlen))
		return result;
	return send_rest(me, fd, message, (size_t)result, flags, deadline, closes);
}

/* --- reads --- */

/* Of a raw terminal: for how many bytes a read is to wait (VMIN), and for how long (VTIME). */
static void ask_terminal(int fd, size_t *least, nsec_t *time)
{
	struct termios how;
	const bool raw = !tcgetattr(fd, &how) && !(how.c_lflag & ICANON);

	*least = raw ? how.c_cc[VMIN] : 1;
	*time = raw ? how.c_cc[VTIME] * (NSEC_PER_SEC / 10) : 0;
}

/*
 * The time is for the first byte if VMIN is 0, or else between two. Without a time, poll(2) says nothing
 * of fewer bytes than VMIN: so they are looked for again and again.
 */
static __attribute__((noinline)) long read_terminal(struct worker *me, int fd,
						    const struct iovec *parts, size_t count,
						    const struct timespec *deadline)
{
	const size_t size = length_of(parts, count);
	const nsec_t until = switchto_deadline(deadline);
	const uint64_t closes = closes_now();
	unsigned int naps = 0;
	struct iovec rest[PARTS];
	size_t done = 0, least;
	nsec_t time, limit;
	long result;

	if (until < 0)
		return -EINVAL;
	ask_terminal(fd, &least, &time);
	limit = time && !least ? switchto_now() + time : NEVER;
	do {
		const bool looks = !time && least > 1;
		const nsec_t end = looks ? 0 : limit < until ? limit : until;
		const struct timespec at = { end / NSEC_PER_SEC, end % NSEC_PER_SEC };

		result = switchto_request_perform_or_block(
			me, &REQUEST(PLAIN, fd, end == NEVER ? NULL : &at, readv, rest,
				     rest_of(parts, count, done, rest)));
		if (result > 0) {
			done += (size_t)result;
			naps = 0;
			limit = time ? switchto_now() + time : NEVER;
		} else if (result == -ETIMEDOUT && looks) {
			result = switchto_request_nap(&naps, deadline);
		} else if (result == -ETIMEDOUT && limit <= until) {
			return (long)done;
		} else {
			break;
		}
	} while (result >= 0 && done < least && done < size && !closed_since(fd, closes));
	return done ? (long)done : result;
}

/* A read that has not been tried, of @parts. With no @count, it is one that waits for nothing. */
static long read_plainly(struct worker *me, const struct request *r, const struct iovec *parts,
			 size_t count)
{
	const struct mark *mark = mark_of((unsigned int)r->fd);

	/* As the request would: so it is known what it is. */
	if ((!mark || !atomic_load(&mark->sched)) &&
	    switchto_mark_add(me->slot, r->fd, false) == EPERM)
		return switchto_request_block(me, r);
	mark = mark_of((unsigned int)r->fd);
	if (count && mark && atomic_load(&mark->terminal))
		return read_terminal(me, r->fd, parts, count, r->deadline);
	return switchto_request_perform_or_block(me, r);
}

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
	return end_call(me,
			read_plainly(me, &r, &(struct iovec){ buffer, size }, (ssize_t)size > 0));
}

ssize_t switchto_read(int fd, void *buffer, size_t size, const struct timespec *deadline)
{
	struct worker *me = current_task();
	struct progress p = no_progress;

	if (unlikely(!me))
		return -1;
	/* One of no bytes waits for nothing, but with recv(2) it does. A negative size is an error. */
	if (unlikely(!is_socket(fd)) || unlikely((ssize_t)size <= 0))
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
	const bool good = count > 0 && count <= MESSAGES;

	return likely(me) ? end_call(me, read_plainly(me, &r, parts, good ? (size_t)count : 0)) :
			    -1;
}

/* --- receives --- */

/*
 * What @message brought of new descriptors. True: it brought some. One of a process (SO_PASSPIDFD) is
 * for this part only, so it ends a receive with MSG_WAITALL as well.
 */
static bool take_descriptors(struct msghdr *message)
{
	enum { PIDFD = 4 }; /* SCM_PIDFD */
	bool found = false;

	if (!message->msg_control)
		return false;
	for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part;
	     part = CMSG_NXTHDR(message, part)) {
		if (part->cmsg_level != SOL_SOCKET ||
		    (part->cmsg_type != SCM_RIGHTS && part->cmsg_type != PIDFD))
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

/* recvmsg(2) with MSG_PEEK, which leaves SO_PEEK_OFF as it is. @next: from the next byte on. */
static long look_at_message(int fd, struct msghdr *message, int flags, bool next)
{
	const int none = -1;
	socklen_t size = sizeof(int);
	int offset = none;
	long result;

	/* Some sockets have no such option. */
	getsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &offset, &size);

	if (offset >= 0 && next)
		setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &none, sizeof(none));
	result = CALL(recvmsg, fd, message, flags | MSG_PEEK);
	if (offset >= 0)
		setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &offset, sizeof(offset));
	return result;
}

/* A receive with MSG_WAITALL of a stream. */
struct receipt {
	struct msghdr message; /* the next part */
	bool goes_on;	       /* there was a part before it */
	bool senders; /* the socket tells who they are (SO_PASSCRED): it may be from one only */
	struct ucred sender;
	bool descriptors; /* this part has some, whether there is room for them or not */
};

/*
 * The next part. Its sender is asked for before it is taken. That answer has no room for descriptors,
 * which says whether there are any.
 */
static long receive_part(const struct request *r)
{
	struct receipt *receipt = pointer(r->a);
	_Alignas(struct cmsghdr) char answer[CMSG_SPACE(sizeof(struct ucred))] = { 0 };
	struct msghdr question = receipt->message;
	struct ucred sender;
	long result;

	if (receipt->senders) {
		question.msg_name = NULL;
		question.msg_control = answer;
		question.msg_controllen = sizeof(answer);
		result = look_at_message(r->fd, &question, (int)r->b, true);
		if (result <= 0)
			return result;
		memcpy(&sender, answer + CMSG_LEN(0), sizeof(sender));
		if (receipt->goes_on && memcmp(&sender, &receipt->sender, sizeof(sender)) != 0)
			return 0;
		receipt->sender = sender;
		receipt->descriptors = question.msg_flags & MSG_CTRUNC;
	}
	return CALL(recvmsg, r->fd, &receipt->message, r->b);
}

/* @message has one part more. What belongs to one part (the sender, a time) is the last one's. */
static void add_part(struct msghdr *message, const struct msghdr *part)
{
	message->msg_flags |= part->msg_flags;
	if (part->msg_controllen)
		message->msg_controllen = part->msg_controllen;
}

/*
 * Receives @message from a stream until it is full, but no further than the system call would: that
 * ends at urgent data, after descriptors, and where another sender begins.
 */
static __attribute__((noinline)) long receive_all(struct worker *me, int fd, struct msghdr *message,
						  int flags, unsigned int how,
						  const struct timespec *deadline)
{
	const bool local = switchto_socket_option(fd, SO_DOMAIN) == AF_UNIX;
	struct receipt receipt = {
		.message = *message,
		.senders = local && switchto_socket_option(fd, SO_PASSCRED),
	};
	struct request r = REQUEST_OF(how, fd, deadline, receive_part, &receipt,
				      flags | MSG_DONTWAIT);
	const size_t room = message->msg_controllen;
	struct msghdr *part = &receipt.message;
	const uint64_t closes = closes_now();
	size_t done = 0;
	struct iovec rest[PARTS];

	for (;;) {
		int at_mark = 0;
		bool seam;
		long result;

		result = switchto_request_go_on(me, &r, closes);
		if (result < 0 || (!result && done))
			return done ? (long)done : result;
		seam = take_descriptors(part);
		if (local)
			seam |= receipt.senders ? receipt.descriptors :
						  part->msg_flags & MSG_CTRUNC;
		if (done)
			add_part(message, part);
		else
			*message = *part;
		done += (size_t)result;
		if (!result || seam || done >= length_of(message->msg_iov, message->msg_iovlen) ||
		    (!ioctl(fd, SIOCATMARK, &at_mark) && at_mark))
			return (long)done;
		*part = (struct msghdr){
			.msg_iov = rest,
			.msg_iovlen = rest_of(message->msg_iov, message->msg_iovlen, done, rest),
			.msg_control = message->msg_control,
			.msg_controllen = room,
		};
		receipt.goes_on = true;
		r.how = REST;
	}
}

/* Does MSG_PEEK with MSG_WAITALL wait for all? On a stream of UNIX it does not. */
static bool peeks_all(int fd)
{
	const int domain = switchto_socket_option(fd, SO_DOMAIN);

	return (domain == AF_INET || domain == AF_INET6) && switchto_socket_type(fd) == SOCK_STREAM;
}

/* Has a peek of @size found all before urgent data, or before the end? */
static bool is_before_seam(int fd, size_t size)
{
	const long found = poll_if_possible(fd, POLLRDHUP | POLLPRI);
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
	const long result = look_at_message(r->fd, &message, (int)r->c | MSG_DONTWAIT, false);

	if (result <= 0 || (size_t)result >= length_of(message.msg_iov, message.msg_iovlen) ||
	    is_before_seam(r->fd, (size_t)result))
		return result;
	return -EAGAIN;
}

/* The result of @r when @parts are there. If the wait for that fails, a part is more than an error. */
static long peek(struct worker *me, const struct request *r, const struct iovec *parts,
		 size_t count, int flags)
{
	const struct request all = REQUEST_OF(PICKY, r->fd, r->deadline, peek_all, parts, count,
					      flags);
	const uint64_t closes = closes_now();
	long result, there;

	/* Each part that comes is an event, though the first is there. */
	if (!switchto_mark_add(me->slot, r->fd, false))
		switchto_mark_edge(mark_of((unsigned int)r->fd));
	do {
		result = switchto_request_go_on(me, &all, closes);
		if (result == -EBADF)
			return result;
		there = make_call(r);
		/* Another thread may have taken what was there. */
	} while (there == -EAGAIN && result >= 0);
	return there > 0 || result >= 0 ? there : result;
}

static __attribute__((noinline)) ssize_t receive_specially(struct worker *me, int fd, void *buffer,
							   size_t size, int flags,
							   struct sockaddr *address,
							   socklen_t *length,
							   const struct timespec *deadline)
{
	/* What is before SO_PEEK_OFF is for others. */
	const struct request r = REQUEST((flags & MSG_PEEK) ? PICKY : INPUT, fd, deadline, recvfrom,
					 buffer, size, flags | MSG_DONTWAIT, address, length);
	struct iovec part = { buffer, limited(size) };
	struct msghdr message = { .msg_name = address, .msg_iov = &part, .msg_iovlen = 1 };
	long result;

	if (flags & AT_ONCE && is_at_once(fd, flags))
		return end_call(me, call_once(&r));
	if (flags & MSG_WAITALL && flags & MSG_PEEK && peeks_all(fd))
		return end_call(me, peek(me, &r, &part, 1, flags));
	if (!(flags & MSG_WAITALL) || flags & MSG_PEEK || switchto_socket_type(fd) != SOCK_STREAM ||
	    (address && !length))
		return end_call(me, switchto_request_perform(me, &r));
	if (address)
		message.msg_namelen = *length;
	result = receive_all(me, fd, &message, flags, 0, deadline);
	if (address && result >= 0)
		*length = message.msg_namelen;
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
		return receive_specially(me, fd, buffer, size, flags, NULL, NULL, deadline);
	mark = mark_of((unsigned int)fd);
	if (likely(mark) && likely(atomic_load_explicit(&mark->socket, memory_order_relaxed)) &&
	    likely(try_receive(me, mark, fd, buffer, size, flags, deadline, &p)))
		return end_call(me, p.result);
	return receive_slowly(me, fd, buffer, size, flags, deadline, p);
}

ssize_t switchto_recvfrom(int fd, void *buffer, size_t size, int flags, struct sockaddr *address,
			  socklen_t *length, const struct timespec *deadline)
{
	struct worker *me;

	/* Only datagrams have an address. */
	if (!address)
		return switchto_recv(fd, buffer, size, flags, deadline);
	me = current_task();
	if (!me)
		return -1;
	return receive_specially(me, fd, buffer, size, flags, address, length, deadline);
}

/* @how: REST, if a message went before. */
static ALWAYS_INLINE long receive_message(struct worker *me, int fd, struct msghdr *message,
					  int flags, unsigned int how,
					  const struct timespec *deadline)
{
	const struct request r = REQUEST(how | ((flags & MSG_PEEK) ? PICKY : 0), fd, deadline,
					 recvmsg, message, flags | MSG_DONTWAIT);
	const bool all = flags & MSG_WAITALL && message && switchto_socket_type(fd) == SOCK_STREAM;
	long result;

	if (unlikely(flags & AT_ONCE) && is_at_once(fd, flags))
		result = call_once(&r);
	else if (unlikely(all) && !(flags & MSG_PEEK))
		return receive_all(me, fd, message, flags, how, deadline);
	else if (unlikely(all) && peeks_all(fd))
		result = peek(me, &r, message->msg_iov, message->msg_iovlen, flags);
	else
		result = switchto_request_perform(me, &r);
	if (result >= 0)
		take_descriptors(message);
	return result;
}

ssize_t switchto_recvmsg(int fd, struct msghdr *message, int flags, const struct timespec *deadline)
{
	struct worker *me = current_task();

	if (unlikely(!me))
		return -1;
	return end_call(me, receive_message(me, fd, message, flags, 0, deadline));
}

/* --- sends and writes --- */

/*
 * Most sockets take all at once. So a send is tried before anything is polled. EINPROGRESS: with TCP
 * Fast Open, it has begun a connection instead.
 */
static inline bool is_to_wait(long result)
{
	return result == -EAGAIN || result == -EINTR || result == -EINPROGRESS;
}

/* Performs @r, a send that had @result since closes_now() was @closes. */
static __attribute__((noinline)) long send_again(struct worker *me, struct request r, long result,
						 uint64_t closes)
{
	/* An error ends the wait, too. */
	const struct request connection = REQUEST_OF(OUTPUT, r.fd, r.deadline, switchto_poll_call,
						     POLLOUT);

	if (result != -EINPROGRESS)
		return switchto_request_go_on(me, &r, closes);
	result = switchto_request_go_on(me, &connection, closes);
	if (result < 0)
		return result;
	/* The connection is there, and is not to be made again. */
	*(r.number == SYS_sendmsg ? &r.b : &r.c) &= ~MSG_FASTOPEN;
	return switchto_request_go_on(me, &r, closes);
}

static long send_or_wait(struct worker *me, const struct request *r, uint64_t closes)
{
	const long result = make_call(r);

	return is_to_wait(result) ? send_again(me, *r, result, closes) : result;
}

static __attribute__((noinline)) long send_later(struct worker *me, int fd, const void *buffer,
						 size_t size, int flags, long result,
						 const struct timespec *deadline, uint64_t closes)
{
	struct iovec part = { (void *)buffer, limited(size) };
	const struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
	const struct request r = REQUEST(OUTPUT, fd, deadline, sendto, buffer, size,
					 flags | MSG_DONTWAIT);

	if (result < 0)
		result = send_again(me, r, result, closes);
	return whole(me, fd, &message, result, flags, deadline, closes);
}

static ALWAYS_INLINE long send_now(struct worker *me, int fd, const void *buffer, size_t size,
				   int flags, const struct timespec *deadline)
{
	const uint64_t closes = closes_now();
	const long result = CALL(sendto, fd, buffer, size, flags | MSG_DONTWAIT, NULL, 0);

	if (likely((size_t)result == size) || flags & MSG_DONTWAIT ||
	    (result < 0 && !is_to_wait(result)))
		return result;
	return send_later(me, fd, buffer, size, flags, result, deadline, closes);
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
	struct iovec part = { (void *)buffer, limited(size) };
	const struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
	const uint64_t closes = closes_now();
	struct worker *me;

	if (!address)
		return switchto_send(fd, buffer, size, flags, deadline);
	if (flags & MSG_DONTWAIT)
		return once(&r);
	me = current_task();
	if (!me)
		return -1;
	return end_call(me, whole(me, fd, &message, send_or_wait(me, &r, closes), flags, deadline,
				  closes));
}

/* A write of @parts, which has been tried in no other way. */
static __attribute__((noinline)) ssize_t write_slowly(struct worker *me, const struct request *r,
						      const struct iovec *parts, size_t count)
{
	const struct msghdr message = { .msg_iov = (struct iovec *)parts, .msg_iovlen = count };
	const uint64_t closes = closes_now();
	long result = switchto_request_go_on(me, r, closes);

	if (result == NOT_POLLED)
		return end_call(me, switchto_request_block(me, r));
	if (result == -EINPROGRESS)
		result = send_again(me, *r, result, closes);
	return end_call(me, whole(me, r->fd, &message, result, 0, r->deadline, closes));
}

ssize_t switchto_write(int fd, const void *buffer, size_t size, const struct timespec *deadline)
{
	struct worker *me = current_task();
	long result;

	if (unlikely(!me))
		return -1;
	/* Of a negative size, send(2) would send what memory there is. */
	if (likely(is_socket(fd)) && likely((ssize_t)size >= 0)) {
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

/* A message until it is whole. The system call sees first whether there is one. */
static long send_message(struct worker *me, int fd, const struct msghdr *message, int flags,
			 const struct timespec *deadline, uint64_t closes)
{
	struct request r = REQUEST(OUTPUT, fd, deadline, sendmsg, message, flags | MSG_DONTWAIT);
	long result = make_call(&r);

	if (is_to_wait(result)) {
		r.how |= message->msg_name ? ADDRESS : 0;
		result = send_again(me, r, result, closes);
	}
	if (result <= 0)
		return result;
	return whole(me, fd, message, result, flags, deadline, closes);
}

ssize_t switchto_sendmsg(int fd, const struct msghdr *message, int flags,
			 const struct timespec *deadline)
{
	struct worker *me;

	if (unlikely(flags & MSG_DONTWAIT))
		return once(&REQUEST(OUTPUT, fd, NULL, sendmsg, message, flags));
	me = current_task();
	return likely(me) ?
		       end_call(me, send_message(me, fd, message, flags, deadline, closes_now())) :
		       -1;
}

/* --- several messages --- */

static inline unsigned int at_most(unsigned int a, unsigned int b)
{
	return a < b ? a : b;
}

/* With MSG_WAITALL of a stream, each message is full. */
static __attribute__((noinline)) long receive_full(struct worker *me, int fd,
						   struct mmsghdr *messages, unsigned int count,
						   int flags, const struct timespec *deadline)
{
	const uint64_t closes = closes_now();
	unsigned int done = 0;
	long result = 0;

	while (done < count && !closed_since(fd, closes)) {
		result = receive_message(me, fd, &messages[done].msg_hdr, flags & ~MSG_WAITFORONE,
					 done ? REST : 0, deadline);
		if (result < 0)
			break;
		messages[done++].msg_len = (unsigned int)result;
		if (flags & MSG_WAITFORONE)
			flags |= MSG_DONTWAIT;
	}
	return done ? (long)done : result;
}

int switchto_recvmmsg(int fd, struct mmsghdr *messages, unsigned int count, int flags,
		      const struct timespec *deadline)
{
	unsigned int done = 0, how = (flags & MSG_PEEK) ? PICKY : EMPTIES;
	const uint64_t closes = closes_now();
	struct worker *me = current_task();
	long result;

	if (unlikely(!me))
		return -1;
	count = at_most(count, INT_MAX);
	if (unlikely(flags & MSG_WAITALL) && !(flags & AT_ONCE) &&
	    switchto_socket_type(fd) == SOCK_STREAM)
		return (int)end_call(me, receive_full(me, fd, messages, count, flags, deadline));
	if (unlikely(flags & AT_ONCE) && is_at_once(fd, flags)) {
		result = call_once(
			&REQUEST(INPUT, fd, NULL, recvmmsg, messages, count, flags | MSG_DONTWAIT));
		for (long i = 0; i < result; i++)
			take_descriptors(&messages[i].msg_hdr);
		return (int)end_call(me, result);
	}
	do {
		const struct request r = REQUEST(how, fd, deadline, recvmmsg, messages + done,
						 count - done,
						 (flags | MSG_DONTWAIT) & ~MSG_WAITFORONE);

		result = switchto_request_go_on(me, &r, closes);
		for (long i = 0; i < result; i++)
			take_descriptors(&messages[done + (unsigned int)i].msg_hdr);
		if (result <= 0)
			break;
		done += (unsigned int)result;
		/* An error in between is for the next call. */
		how |= REST;
	} while (done < count && !(flags & MSG_WAITFORONE));
	return (int)end_call(me, done ? (long)done : result);
}

/*
 * After @sent messages the kernel has ended: of a message of IP, because of an error, which it keeps to
 * itself, or because there is no room. Of UNIX, room says nothing: a receiver may be full.
 */
static bool has_failed(int fd, long sent)
{
	return sent && switchto_socket_type(fd) != SOCK_STREAM &&
	       switchto_socket_option(fd, SO_DOMAIN) != AF_UNIX &&
	       poll_if_possible(fd, POLLOUT) & POLLOUT;
}

/* Is all of @message sent? */
static bool is_whole(const struct mmsghdr *message)
{
	return message->msg_len >= length_of(message->msg_hdr.msg_iov, message->msg_hdr.msg_iovlen);
}

/* The last message that the kernel took: of a stream, it may have gone in part. False: the rest can't go. */
static inline bool is_sent(struct worker *me, int fd, struct mmsghdr *message, int flags,
			   const struct timespec *deadline, uint64_t closes)
{
	if (unlikely(!is_whole(message)))
		message->msg_len = (unsigned int)whole(me, fd, &message->msg_hdr, message->msg_len,
						       flags, deadline, closes);
	return is_whole(message);
}

/* A socket of UDP that is polled for output has an event for each message that is gone. */
int switchto_sendmmsg(int fd, struct mmsghdr *messages, unsigned int count, int flags,
		      const struct timespec *deadline)
{
	unsigned int done = 0;
	struct worker *me = current_task();
	const uint64_t closes = closes_now();
	long result;

	if (unlikely(!me))
		return -1;
	count = at_most(count, MESSAGES);
	do {
		struct mmsghdr *next = messages + done;

		result = CALL(sendmmsg, fd, next, count - done, flags | MSG_DONTWAIT);
		if (likely(result >= 0)) {
			done += (unsigned int)result;
			if (flags & MSG_DONTWAIT || (done < count && has_failed(fd, result)))
				break;
			next += result;
			if ((result && !is_sent(me, fd, &next[-1], flags, deadline, closes)) ||
			    likely(done == count))
				break;
		} else if (!is_to_wait(result) || flags & MSG_DONTWAIT) {
			break;
		}
		window();
		if (done && closed_since(fd, closes))
			break;
		/* This waits. */
		result = send_message(me, fd, &next->msg_hdr, flags, deadline, closes);
		if (result < 0)
			break;
		next->msg_len = (unsigned int)result;
		if (++done == count || !is_whole(next))
			break;
	} while (!closed_since(fd, closes));
	return (int)end_call(me, done ? (long)done : result);
}
