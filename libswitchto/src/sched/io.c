// SPDX-License-Identifier: MIT
/*
 * I/O of tasks: what the system call of that name does on a descriptor that blocks. The call is made
 * on one that does not block, and waits if that says EAGAIN. A read of less than was asked for has
 * emptied a stream: then the next one waits at once, and saves the call that would say so. If there
 * was more, that wait is over as soon as the slot polls: internal.h says why.
 *
 * A file can't be polled. The slot's ring reads and writes it at an offset; what uses the file's own
 * position, which only the system calls share as they should, is done in a blocking region.
 */
#define _GNU_SOURCE
#include "await.h"
#include "sleep.h"
#include "turn.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* A result that no call has: the descriptor can't be polled. */
enum { NOT_POLLED = -4000 };

/* After so many times in vain, a descriptor is polled edge-triggered. */
enum { IN_VAIN = 64 };

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

/* --- what blocks --- */

/* Before a call that blocks. An error number: it may not be made. */
static int begin_to_block(struct worker *me, const struct timespec *deadline)
{
	if (switchto_deadline(deadline) < 0)
		return EINVAL;
	if (atomic_load(&me->task->cancelled))
		return ECANCELED;
	return switchto_block_begin() ? errno : 0;
}

/* The system call, in a blocking region. */
static __attribute__((noinline)) long in_region(struct worker *me, const struct timespec *deadline,
						long number, long a, long b, long c, long d, long e,
						long f)
{
	long result;
	int error;

	do {
		error = begin_to_block(me, deadline);
		if (error)
			return -error;
		result = call6(number, a, b, c, d, e, f);
		switchto_block_end();
	} while (result == -EINTR);
	return result;
}

#define IN_REGION(me, deadline, name, ...) \
	IN_REGION_(me, deadline, SYS_##name, __VA_ARGS__, 0, 0, 0, 0)
#define IN_REGION_(me, deadline, number, a, b, c, d, e, ...) \
	in_region(me, deadline, number, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), 0)

/*
 * The same on a ring, if there is one. The kernel cancels an operation by itself if signals keep it
 * from making a thread for that.
 */
static long on_ring(struct worker *me, enum file_call what, long number, int fd,
		    const void *address, size_t length, off_t offset, int flags,
		    const struct timespec *deadline)
{
	long result;

	if (me->slot->ring) {
		do
			result = switchto_await_file(what, fd, address, length, offset, flags,
						     deadline);
		while (result == -EINTR);
		if (result != -ECANCELED || atomic_load(&me->task->cancelled))
			return result;
	}
	if (what == FILE_OPENAT)
		return in_region(me, deadline, number, fd, (long)address, flags, (long)length, 0,
				 0);
	return in_region(me, deadline, number, fd, (long)address, (long)length, offset, 0, 0);
}

/* --- what waits --- */

/* A system call on a descriptor, which is polled for it. */
struct request {
	int fd;
	bool output;
	bool plain;   /* no flag says that it is not to block: the descriptor must say so */
	bool rest;    /* a part went before, and an error is not to be taken from the next call */
	bool address; /* it has one, so to poll the descriptor does not say whether it is possible */
	size_t size;  /* a shorter result has emptied a stream; 0: no result says so */
	const struct timespec *deadline;
	/* Instead of the system call. */
	long (*call)(const struct request *request);
	long number, a, b, c, d, e;
};

/* How far it is. */
struct progress {
	bool waited;	/* in the mark: others may wait for their turn */
	int error;	/* of that wait */
	uintptr_t word; /* before the last call */
	long result;	/* of the last call; -EINTR: there was none */
};

static const struct progress no_progress = { .result = -EINTR };

/* @argument of a system call. */
static inline void *pointer(long argument)
{
	return (void *)argument; // NOLINT(performance-no-int-to-ptr)
}

static long make_call(const struct request *r)
{
	return r->call ? r->call(r) : call6(r->number, r->fd, r->a, r->b, r->c, r->d, r->e);
}

static int socket_type(int fd)
{
	socklen_t size = sizeof(int);
	int type;

	return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) ? 0 : type;
}

/* What of @events is so now; 0: nothing; or a negative error number. */
static long poll_now(int fd, short events)
{
	struct pollfd poller = { .fd = fd, .events = events };
	int n;

	/* With a signal, it fails even if it need not wait. */
	do
		n = poll(&poller, 1, 0);
	while (n == -1 && errno == EINTR);
	if (n == -1)
		return -errno;
	return n && poller.revents & POLLNVAL ? -EBADF : poller.revents;
}

/*
 * Where nothing says when to try again, a call is tried again and again: soon, and then later.
 * @count: how often it was. 0 or a negative error number.
 */
static long nap(unsigned int *count, const struct timespec *deadline)
{
	const nsec_t until = switchto_deadline(deadline), now = switchto_now();
	nsec_t at = now + (50000LL << (*count < 8 ? *count : 8));

	if (until < 0)
		return -EINVAL;
	if (until <= now)
		return -ETIMEDOUT;
	++*count;
	if (at > until)
		at = until;
	return switchto_sleep_until(&(struct timespec){ at / NSEC_PER_SEC, at % NSEC_PER_SEC }) ?
		       -errno :
		       0;
}

/*
 * The descriptor of @r was ready before the call: is it still the one that it was, and does it not
 * block? Another process, or whoever closed it, may have changed that.
 */
static void look_at_flags(const struct request *r, struct mark *mark)
{
	const long flags = CALL(fcntl, r->fd, F_GETFL, 0);

	if (flags >= 0 && !(flags & O_NONBLOCK) && switchto_mark_is_valid(mark))
		CALL(fcntl, r->fd, F_SETFL, flags | O_NONBLOCK);
}

/* Was the rest refused, or is there no rest? Then the part that went before is the result. */
static bool is_over(const struct request *r)
{
	int there = 0;

	if (!(poll_now(r->fd, r->output ? POLLOUT : POLLIN) & (POLLHUP | POLLNVAL)))
		return false;
	return r->output || ioctl(r->fd, FIONREAD, &there) || !there;
}

/* Waits, if need be, for an event or for the turn. 0: look again; or a negative error number. */
static long wait_for(struct worker *me, const struct request *r, struct mark **mark,
		     struct progress *p, struct turn *turn, unsigned int *naps)
{
	struct direction *direction;
	int error;

	if (*mark) {
		direction = r->output ? &(*mark)->out : &(*mark)->in;
		if (mark_task(p->word) ||
		    (atomic_load(&direction->first) && !turn->listed && !p->waited))
			return -switchto_turn_wait(*mark, direction, turn, r->deadline);
		if (p->word == NOT_READY) {
			error = switchto_sleep_for(me, *mark, direction, r->deadline);
			if (error == EBUSY) /* another task came in between */
				return 0;
			if (error != ESTALE) {
				p->waited = true;
				return -error;
			}
		}
	}
	if (switchto_mark_add(me->slot, r->fd, r->output))
		error = 0;
	else if (errno == EBUSY)
		error = (int)-nap(naps, r->deadline);
	else
		error = errno == EPERM ? -NOT_POLLED : errno;
	*mark = mark_of((unsigned int)r->fd);
	return -error;
}

/*
 * Of a socket of datagrams that was shut down, a receive that blocks says 0, and one that does not
 * says EAGAIN.
 */
static bool is_shut_down(const struct request *r, struct mark *mark)
{
	return !r->output && !r->call && atomic_load(&mark->hung_up) &&
	       socket_type(r->fd) == SOCK_DGRAM &&
	       poll_now(r->fd, POLLRDHUP) & (POLLRDHUP | POLLHUP);
}

static void clear(struct msghdr *message)
{
	message->msg_namelen = 0;
	message->msg_controllen = 0;
	message->msg_flags = 0;
}

/* The result of @r then. */
static long receive_nothing(const struct request *r)
{
	struct mmsghdr *messages = pointer(r->a);

	if (r->number == SYS_recvmsg)
		clear(pointer(r->a));
	if (r->number != SYS_recvmmsg)
		return 0;
	clear(&messages->msg_hdr);
	messages->msg_len = 0;
	return 1;
}

/*
 * The last call said EAGAIN: what @mark says of it. 0: try again, and after a wait if it says so; or
 * a negative error number. @again: without a wait in @mark.
 */
static long after_nothing(const struct request *r, struct mark *mark, struct direction *direction,
			  uintptr_t word, unsigned int *naps, bool *again)
{
	if (r->address && poll_now(r->fd, POLLOUT) & POLLOUT) {
		*again = true;
		return nap(naps, r->deadline);
	}
	if (!is_ready(word) || !atomic_compare_exchange_strong(&direction->word, &word, NOT_READY))
		return 0;
	/* An error may make it ready, or what this call can't take: and does so again. */
	if (word & STICKY || atomic_fetch_add(&mark->in_vain, 1) >= IN_VAIN)
		switchto_mark_edge(mark);
	return 0;
}

/*
 * A call may fail whatever there is, so it is tried before any wait. But a read of what is known to be
 * possible may wait at once if there was nothing.
 */
static bool may_wait_first(const struct request *r, struct mark *mark)
{
	return r->size && mark && atomic_load(&mark->sched) && atomic_load(&mark->readable) &&
	       (r->plain || atomic_load(&mark->socket));
}

/*
 * Makes the call until it is done: its result, a negative error number, or NOT_POLLED. The loop is
 * one function: each step leaves to the next what it has found.
 */
// NOLINTNEXTLINE(readability-function-cognitive-complexity)
static __attribute__((noinline)) long perform(struct worker *me, const struct request *r,
					      struct progress p)
{
	struct mark *mark = mark_of((unsigned int)r->fd);
	struct direction *direction = NULL;
	struct turn turn = { .listed = false };
	bool checked = !r->plain, late = p.error == ETIMEDOUT, again;
	unsigned int naps = 0;
	long error = 0;

	if (p.error && !late && p.error != EBUSY && p.error != ESTALE)
		p.result = -p.error;
	again = late || !may_wait_first(r, mark);
	while (p.result == -EINTR || p.result == -EAGAIN) {
		if (mark)
			direction = r->output ? &mark->out : &mark->in;
		if (p.result == -EAGAIN && mark && is_shut_down(r, mark)) {
			p.result = receive_nothing(r);
			break;
		}
		if (p.result == -EAGAIN) {
			/* After the deadline, it was tried once more. */
			error = late ? -ETIMEDOUT :
				       after_nothing(r, mark, direction, p.word, &naps, &again);
			p.result = error ? error : -EINTR;
			continue;
		}
		p.word = UNKNOWN;
		if (mark)
			p.word = atomic_load_explicit(&direction->word, memory_order_acquire);
		if (!is_ready(p.word) && (!again || (p.word == UNKNOWN && r->plain))) {
			error = wait_for(me, r, &mark, &p, &turn, &naps);
			late = again = error == -ETIMEDOUT;
			if (!error && !turn.listed)
				checked = true; /* by an event, or when it was added */
			if (error && !late)
				p.result = error;
			continue;
		}
		if (!checked) {
			checked = true;
			look_at_flags(r, mark);
			continue;
		}
		again = false;
		p.result = r->rest && is_over(r) ? -EPIPE : make_call(r);
		if (p.result >= 0 && (size_t)p.result < r->size && is_ready(p.word) &&
		    !(p.word & STICKY))
			atomic_compare_exchange_strong(&direction->word, &p.word, NOT_READY);
	}
	if (p.waited || turn.listed) {
		direction = r->output ? &mark->out : &mark->in;
		if (atomic_load(&direction->first))
			switchto_turn_end(mark, direction, &turn);
	}
	return p.result;
}

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
		p->error = slot_wait_once(me, mark, &mark->in, deadline, &word);
		if (unlikely(p->error))
			return false;
		p->waited = true;
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

/* --- calls that go on after a part --- */

/* Does MSG_PEEK with MSG_WAITALL wait for all? On a stream of UNIX it does not. */
static bool peeks_all(int fd)
{
	socklen_t size = sizeof(int);
	int domain;

	return !getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) &&
	       (domain == AF_INET || domain == AF_INET6) && socket_type(fd) == SOCK_STREAM;
}

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

/*
 * Sends or receives what is left, when @done bytes of @parts are done, as a call on a descriptor that
 * blocks: until all is done, or there is an error, the deadline, a cancellation, or the end. Returns
 * how much is done then.
 */
static __attribute__((noinline)) long do_rest(struct worker *me, int fd, bool output,
					      const struct iovec *parts, size_t count, size_t done,
					      int flags, const struct timespec *deadline)
{
	const bool socket = socket_type(fd) != 0;
	size_t before = 0;

	for (size_t i = 0; i < count;) {
		const size_t left = count - i < 1024 ? count - i : 1024;
		struct iovec part = parts[i];
		struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
		struct request r = {
			.fd = fd,
			.output = output,
			.rest = true,
			.deadline = deadline,
			.number = output ? SYS_writev : SYS_readv,
		};
		long result;

		if (done >= before + part.iov_len) {
			before += part.iov_len;
			i++;
			continue;
		}
		if (done == before) {
			/* All that are left, as they are. */
			message.msg_iov = (struct iovec *)&parts[i];
			message.msg_iovlen = left;
		} else {
			part.iov_base = (char *)part.iov_base + (done - before);
			part.iov_len -= done - before;
		}
		r.a = (long)message.msg_iov;
		r.b = (long)message.msg_iovlen;
		if (socket) {
			/* Once something went, an error has no signal. */
			r.number = output ? SYS_sendmsg : SYS_recvmsg;
			r.a = (long)&message;
			r.b = flags | MSG_DONTWAIT | (output ? MSG_NOSIGNAL : 0);
		}
		result = perform(me, &r, no_progress);
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

/* --- reads and writes --- */

ssize_t switchto_read(int fd, void *buffer, size_t size, const struct timespec *deadline)
{
	struct request r = {
		.fd = fd,
		.plain = true,
		.size = size,
		.deadline = deadline,
		.number = SYS_read,
		.a = (long)buffer,
		.b = (long)size,
	};
	struct worker *me = current_task();
	struct progress p = no_progress;
	long result;

	if (unlikely(!me))
		return -1;
	/* One of no bytes waits for nothing, but with recv(2) it does. */
	if (likely(is_socket(fd)) && likely(size)) {
		struct request receive = r;

		if (likely(try_receive(me, mark_of((unsigned int)fd), fd, buffer, size, 0, deadline,
				       &p)))
			return end_call(me, p.result);
		receive.plain = false;
		receive.number = SYS_recvfrom;
		receive.c = MSG_DONTWAIT;
		result = perform(me, &receive, p);
		if (result != -ENOTSOCK)
			return end_call(me, result);
		no_socket(fd);
	}
	result = perform(me, &r, no_progress);
	if (result == NOT_POLLED)
		result = IN_REGION(me, deadline, read, fd, buffer, size);
	return end_call(me, result);
}

ssize_t switchto_readv(int fd, const struct iovec *parts, int count,
		       const struct timespec *deadline)
{
	struct request r = {
		.fd = fd,
		.plain = true,
		.deadline = deadline,
		.number = SYS_readv,
		.a = (long)parts,
		.b = count,
	};
	struct worker *me = current_task();
	long result;

	if (unlikely(!me))
		return -1;
	result = perform(me, &r, no_progress);
	if (result == NOT_POLLED)
		result = IN_REGION(me, deadline, readv, fd, parts, count);
	return end_call(me, result);
}

/* With these flags a call does not wait, and what it says is not said of the socket's data. */
enum { AT_ONCE = MSG_DONTWAIT | MSG_ERRQUEUE | MSG_OOB };

/* A system call with its arguments, once. */
static __attribute__((noinline)) ssize_t once(long number, int fd, const void *address, long third,
					      int fourth, const void *fifth, const void *sixth)
{
	struct worker *me = current_task();
	long result;

	if (!me)
		return -1;
	do
		result = call6(number, fd, (long)address, third, fourth, (long)fifth, (long)sixth);
	while (result == -EINTR);
	return end_call(me, result);
}

/* Has a peek of @size found all before urgent data, or before the end? */
static bool is_before_seam(int fd, size_t size)
{
	const long found = poll_now(fd, POLLRDHUP | POLLPRI);
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

/* Waits until @parts are there: 0 or a negative error number. */
static long wait_for_peek(struct worker *me, int fd, const struct iovec *parts, size_t count,
			  int flags, const struct timespec *deadline)
{
	const struct request r = {
		.fd = fd,
		.deadline = deadline,
		.call = peek_all,
		.a = (long)parts,
		.b = (long)count,
		.c = flags,
	};
	struct mark *mark = switchto_mark_add(me->slot, fd, false);
	long result;

	/* Each part that comes is an event, though the first is there. */
	if (mark)
		switchto_mark_edge(mark);
	result = perform(me, &r, no_progress);
	return result < 0 ? result : 0;
}

/* Of @result of a wait for all, and what is @there: a part is more than an error. */
static long part_or(long there, long result)
{
	return there > 0 || !result ? there : result;
}

static __attribute__((noinline)) ssize_t receive_specially(struct worker *me, int fd, void *buffer,
							   size_t size, int flags,
							   const struct timespec *deadline)
{
	struct iovec part = { buffer, size };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
	struct request r = {
		.fd = fd,
		.deadline = deadline,
		.number = SYS_recvfrom,
		.a = (long)buffer,
		.b = (long)size,
		.c = flags | MSG_DONTWAIT,
	};
	const bool peek = flags & MSG_PEEK;
	const bool all = flags & MSG_WAITALL &&
			 (peek ? peeks_all(fd) : socket_type(fd) == SOCK_STREAM);
	long result;

	if (flags & AT_ONCE)
		return once(SYS_recvfrom, fd, buffer, (long)size, flags | MSG_DONTWAIT, NULL, NULL);
	if (all && peek) {
		result = wait_for_peek(me, fd, &part, 1, flags, deadline);
		return end_call(me, part_or(make_call(&r), result));
	}
	if (!all) /* MSG_PEEK leaves all there */
		return end_call(me, perform(me, &r, no_progress));
	/* This says where the stream has a seam. */
	r.number = SYS_recvmsg;
	r.a = (long)&message;
	r.b = flags | MSG_DONTWAIT;
	result = perform(me, &r, no_progress);
	if (result > 0 && (size_t)result < size && !is_between(fd, message.msg_flags))
		result = do_rest(me, fd, false, &part, 1, (size_t)result, flags, deadline);
	return end_call(me, result);
}

ssize_t switchto_recv(int fd, void *buffer, size_t size, int flags, const struct timespec *deadline)
{
	struct worker *me = current_task();
	struct progress p = no_progress;
	struct request r;
	struct mark *mark;

	if (unlikely(!me))
		return -1;
	if (unlikely(flags & (AT_ONCE | MSG_PEEK | MSG_WAITALL)))
		return receive_specially(me, fd, buffer, size, flags, deadline);
	mark = mark_of((unsigned int)fd);
	if (likely(mark) && likely(atomic_load_explicit(&mark->socket, memory_order_relaxed)) &&
	    likely(try_receive(me, mark, fd, buffer, size, flags, deadline, &p)))
		return end_call(me, p.result);
	r = (struct request){
		.fd = fd,
		.size = size,
		.deadline = deadline,
		.number = SYS_recvfrom,
		.a = (long)buffer,
		.b = (long)size,
		.c = flags | MSG_DONTWAIT,
	};
	return end_call(me, perform(me, &r, p));
}

ssize_t switchto_recvfrom(int fd, void *buffer, size_t size, int flags, struct sockaddr *address,
			  socklen_t *length, const struct timespec *deadline)
{
	struct worker *me;
	struct request r = {
		.fd = fd,
		.deadline = deadline,
		.number = SYS_recvfrom,
		.a = (long)buffer,
		.b = (long)size,
		.c = flags | MSG_DONTWAIT,
		.d = (long)address,
		.e = (long)length,
	};

	/* Only datagrams have an address. */
	if (!address || flags & MSG_WAITALL)
		return switchto_recv(fd, buffer, size, flags, deadline);
	if (flags & AT_ONCE)
		return once(SYS_recvfrom, fd, buffer, (long)size, flags | MSG_DONTWAIT, address,
			    length);
	me = current_task();
	return me ? end_call(me, perform(me, &r, no_progress)) : -1;
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
	struct request r = {
		.fd = fd,
		.deadline = deadline,
		.number = SYS_recvmsg,
		.a = (long)message,
		.b = flags | MSG_DONTWAIT,
	};
	struct worker *me;
	long result;
	bool seam;

	if (unlikely(flags & AT_ONCE))
		return once(SYS_recvmsg, fd, message, flags | MSG_DONTWAIT, 0, NULL, NULL);
	me = current_task();
	if (unlikely(!me))
		return -1;
	if (unlikely(flags & MSG_WAITALL && flags & MSG_PEEK) && peeks_all(fd)) {
		result = wait_for_peek(me, fd, message->msg_iov, message->msg_iovlen, flags,
				       deadline);
		result = part_or(make_call(&r), result);
	} else {
		result = perform(me, &r, no_progress);
	}
	if (result < 0)
		return end_call(me, result);
	seam = take_descriptors(message);
	if (unlikely(flags & MSG_WAITALL) && result && !seam && !(flags & MSG_PEEK) &&
	    (size_t)result < length_of(message->msg_iov, message->msg_iovlen) &&
	    socket_type(fd) == SOCK_STREAM && !is_between(fd, 0))
		result = do_rest(me, fd, false, message->msg_iov, message->msg_iovlen,
				 (size_t)result, flags, deadline);
	return end_call(me, result);
}

static __attribute__((noinline)) ssize_t send_later(struct worker *me, int fd, const void *buffer,
						    size_t size, int flags, long result,
						    const struct timespec *deadline)
{
	const struct iovec part = { (void *)buffer, size };
	struct request r = {
		.fd = fd,
		.output = true,
		.deadline = deadline,
		.number = SYS_sendto,
		.a = (long)buffer,
		.b = (long)size,
		.c = flags | MSG_DONTWAIT,
	};

	if (result < 0)
		result = perform(me, &r, no_progress);
	return whole(me, fd, &part, 1, result, flags, deadline);
}

/* Most sockets take all at once. So it is tried before anything is polled. */
static ALWAYS_INLINE long send_now(struct worker *me, int fd, const void *buffer, size_t size,
				   int flags, const struct timespec *deadline)
{
	const long result = CALL(sendto, fd, buffer, size, flags | MSG_DONTWAIT, NULL, 0);

	if (likely((size_t)result == size) || flags & MSG_DONTWAIT ||
	    (result < 0 && result != -EAGAIN && result != -EINTR))
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
	struct request r = {
		.fd = fd,
		.output = true,
		.address = true,
		.deadline = deadline,
		.number = SYS_sendto,
		.a = (long)buffer,
		.b = (long)size,
		.c = flags | MSG_DONTWAIT,
		.d = (long)address,
		.e = length,
	};
	const struct iovec part = { (void *)buffer, size };
	struct worker *me;
	long result;

	if (!address)
		return switchto_send(fd, buffer, size, flags, deadline);
	if (flags & MSG_DONTWAIT)
		return once(SYS_sendto, fd, buffer, (long)size, flags, address,
			    pointer((long)length));
	me = current_task();
	if (!me)
		return -1;
	result = CALL(sendto, fd, buffer, size, flags | MSG_DONTWAIT, address, length);
	if (result == -EAGAIN || result == -EINTR)
		result = perform(me, &r, no_progress);
	return end_call(me, whole(me, fd, &part, 1, result, flags, deadline));
}

ssize_t switchto_write(int fd, const void *buffer, size_t size, const struct timespec *deadline)
{
	struct iovec part = { (void *)buffer, size };
	struct request r = {
		.fd = fd,
		.output = true,
		.plain = true,
		.deadline = deadline,
		.number = SYS_write,
		.a = (long)buffer,
		.b = (long)size,
	};
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
	result = perform(me, &r, no_progress);
	if (result == NOT_POLLED)
		return end_call(me, IN_REGION(me, deadline, write, fd, buffer, size));
	return end_call(me, whole(me, fd, &part, 1, result, 0, deadline));
}

ssize_t switchto_writev(int fd, const struct iovec *parts, int count,
			const struct timespec *deadline)
{
	struct request r = {
		.fd = fd,
		.output = true,
		.plain = true,
		.deadline = deadline,
		.number = SYS_writev,
		.a = (long)parts,
		.b = count,
	};
	struct worker *me = current_task();
	long result;

	if (unlikely(!me))
		return -1;
	result = perform(me, &r, no_progress);
	if (result == NOT_POLLED)
		return end_call(me, IN_REGION(me, deadline, writev, fd, parts, count));
	return end_call(me, whole(me, fd, parts, (size_t)count, result, 0, deadline));
}

/* A message until it is whole: the result, or a negative error number. */
static long send_message(struct worker *me, int fd, const struct msghdr *message, int flags,
			 const struct timespec *deadline)
{
	struct request r = {
		.fd = fd,
		.output = true,
		.address = message->msg_name,
		.deadline = deadline,
		.number = SYS_sendmsg,
		.a = (long)message,
		.b = flags | MSG_DONTWAIT,
	};
	long result = CALL(sendmsg, fd, message, flags | MSG_DONTWAIT);

	if (result == -EAGAIN || result == -EINTR)
		result = perform(me, &r, no_progress);
	return whole(me, fd, message->msg_iov, message->msg_iovlen, result, flags, deadline);
}

ssize_t switchto_sendmsg(int fd, const struct msghdr *message, int flags,
			 const struct timespec *deadline)
{
	struct worker *me;

	if (unlikely(flags & MSG_DONTWAIT))
		return once(SYS_sendmsg, fd, message, flags, 0, NULL, NULL);
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
	struct request r = {
		.fd = fd,
		.deadline = deadline,
		.number = SYS_recvmmsg,
		.c = (flags | MSG_DONTWAIT) & ~MSG_WAITFORONE,
	};
	unsigned int done = 0;
	struct worker *me;
	long result;

	count = at_most(count, MESSAGES);
	if (unlikely(flags & AT_ONCE))
		return (int)once(SYS_recvmmsg, fd, messages, count, flags | MSG_DONTWAIT, NULL,
				 NULL);
	me = current_task();
	if (unlikely(!me))
		return -1;
	do {
		r.a = (long)(messages + done);
		r.b = (long)(count - done);
		r.size = count - done;
		result = perform(me, &r, no_progress);
		for (long i = 0; i < result; i++)
			take_descriptors(&messages[done + (unsigned int)i].msg_hdr);
		if (result <= 0)
			break;
		done += (unsigned int)result;
		/* An error in between is for the next call. */
		r.rest = true;
	} while (done < count && !(flags & MSG_WAITFORONE));
	return (int)end_call(me, done ? (long)done : result);
}

/* A socket of UDP that is polled for output has an event for each message that is gone. */
int switchto_sendmmsg(int fd, struct mmsghdr *messages, unsigned int count, int flags,
		      const struct timespec *deadline)
{
	unsigned int done = 0;
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
			if (result && socket_type(fd) != SOCK_STREAM &&
			    poll_now(fd, POLLOUT) & POLLOUT)
				break;
			/* Of a stream, the last message may have gone in part. */
			last += result;
			if (result && last[-1].msg_len)
				last[-1].msg_len =
					(unsigned int)whole(me, fd, last[-1].msg_hdr.msg_iov,
							    last[-1].msg_hdr.msg_iovlen,
							    last[-1].msg_len, flags, deadline);
		} else if ((result != -EAGAIN && result != -EINTR) || flags & MSG_DONTWAIT) {
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

/* --- connections --- */

int switchto_accept(int fd, struct sockaddr *address, socklen_t *length, int flags,
		    const struct timespec *deadline)
{
	struct request r = {
		.fd = fd,
		.plain = true,
		.deadline = deadline,
		.number = SYS_accept4,
		.a = (long)address,
		.b = (long)length,
		.c = flags | SOCK_NONBLOCK,
	};
	struct worker *me = current_task();
	long result;

	if (unlikely(!me))
		return -1;
	result = perform(me, &r, no_progress);
	if (result == NOT_POLLED)
		result = -ENOTSOCK;
	if (likely(result >= 0))
		switchto_mark_new((int)result);
	return (int)end_call(me, result);
}

static long poll_call(const struct request *r)
{
	const long found = poll_now(r->fd, (short)r->a);

	return found ? found : -EAGAIN;
}

int switchto_poll(int fd, short events, const struct timespec *deadline)
{
	struct request r = {
		.fd = fd,
		.output = events & POLLOUT,
		.deadline = deadline,
		.call = poll_call,
		.a = events,
	};
	struct worker *me = current_task();
	struct progress p = no_progress;
	struct mark *mark = mark_of((unsigned int)fd);

	if (!me)
		return -1;
	/* A task waits in one place. */
	if (r.output == !!(events & (POLLIN | POLLRDHUP)) ||
	    events & ~(POLLIN | POLLRDHUP | POLLOUT))
		return fail(EINVAL);
	if (mark)
		p.word = atomic_load(r.output ? &mark->out.word : &mark->in.word);
	p.result = poll_call(&r);
	if (p.result == -EAGAIN && !mark)
		p.result = -EINTR;
	return (int)end_call(me, perform(me, &r, p));
}

int switchto_connect(int fd, const struct sockaddr *address, socklen_t length,
		     const struct timespec *deadline)
{
	/* An error ends the wait, too. */
	const struct request r = {
		.fd = fd,
		.output = true,
		.deadline = deadline,
		.call = poll_call,
		.a = POLLOUT,
	};
	struct mark *mark = mark_of((unsigned int)fd);
	struct worker *me = current_task();
	unsigned int naps = 0, waits = 0;
	long result, flags;

	if (!me)
		return -1;
	/* Before it is polled: to epoll, a socket without a connection is one that was hung up. */
	flags = CALL(fcntl, fd, F_GETFL, 0);
	if (flags < 0)
		return (int)end_call(me, flags);
	/* A new socket, maybe with an old number. */
	if (mark && atomic_load(&mark->sched))
		switchto_mark_is_valid(mark);
	if (!(flags & O_NONBLOCK))
		CALL(fcntl, fd, F_SETFL, flags | O_NONBLOCK);
	for (;;) {
		long error = 0;

		result = CALL(connect, fd, address, length);
		if (result == -EISCONN && waits)
			result = 0;
		if (result == -EINPROGRESS || result == -EALREADY)
			error = waits++ < 2 || waits % 2 ? perform(me, &r, no_progress) :
							   nap(&naps, deadline);
		else if (result == -EAGAIN && address->sa_family == AF_UNIX)
			error = nap(&naps, deadline);
		else if (result != -EINTR)
			return (int)end_call(me, result);
		if (error < 0)
			return (int)end_call(me, error);
	}
}

/* --- from one descriptor to another --- */

/* Can @fd be polled? 1 or 0, or a negative error number. */
static int is_polled(struct worker *me, int fd, bool output)
{
	if (switchto_mark_add(me->slot, fd, output) || errno == EBUSY)
		return 1;
	return errno == EPERM ? 0 : -errno;
}

/* The events of @r that count. A message in the queue of errors does not. */
static long ready_call(const struct request *r)
{
	const long found = poll_now(r->fd, (short)r->a);

	return found < 0 || found & r->b ? found : -EAGAIN;
}

/* The call said EAGAIN: waits for the end that is not ready. 0 or a negative error number. */
static long wait_for_end(struct worker *me, int from, int to, unsigned int *waits,
			 unsigned int *naps, const struct timespec *deadline)
{
	struct request source = {
		.fd = from,
		.deadline = deadline,
		.call = ready_call,
		.a = POLLIN,
		.b = POLLIN | POLLHUP | POLLNVAL,
	};
	struct request target = {
		.fd = to,
		.output = true,
		.deadline = deadline,
		.call = ready_call,
		.a = POLLOUT,
		/* Of a pipe, an error is that nobody reads. */
		.b = POLLOUT | POLLHUP | POLLNVAL | (socket_type(to) ? 0 : POLLERR),
	};
	const struct request *wait = ready_call(&source) == -EAGAIN ? &source : &target;
	long result;

	/* Both may be ready, but not for each other. */
	if (wait == &target && ready_call(&target) != -EAGAIN && ++*waits > 2)
		return nap(naps, deadline);
	result = perform(me, wait, no_progress);
	return result < 0 ? result : 0;
}

/* splice(2) or sendfile(2), and waits for the end that is not ready. */
static long move(struct worker *me, int from, int to, bool wait, const struct timespec *deadline,
		 long number, long a, long b, long c, long d, long e, long f)
{
	const int source = is_polled(me, from, false), target = is_polled(me, to, true);
	unsigned int waits = 0, naps = 0;
	long result, error;

	if (source < 0 || target < 0)
		return source < 0 ? source : target;
	for (;;) {
		/* Of a file it blocks, whatever the flags. */
		if (source && target)
			result = call6(number, a, b, c, d, e, f);
		else
			result = in_region(me, deadline, number, a, b, c, d, e, f);
		if (result == -EINTR)
			continue;
		if (result != -EAGAIN || !wait)
			return result;
		error = wait_for_end(me, from, to, &waits, &naps, deadline);
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

	return socket_type(to) && !socket_type(from) && !ioctl(from, FIONREAD, &there) && there > 0;
}

ssize_t switchto_splice(int from, off_t *from_offset, int to, off_t *to_offset, size_t size,
			unsigned int flags, const struct timespec *deadline)
{
	const bool wait = !(flags & SPLICE_F_NONBLOCK);
	struct worker *me = current_task();
	long done = 0, result;

	if (!me)
		return -1;
	do {
		result = move(me, from, to, wait, deadline, SYS_splice, from, (long)from_offset, to,
			      (long)to_offset, (long)(size - (size_t)done),
			      flags | SPLICE_F_NONBLOCK);
		if (result > 0)
			done += result;
	} while (result > 0 && (size_t)done < size && wait && goes_on(from, to));
	return end_call(me, done ? done : result == -EAGAIN && wait ? -ETIMEDOUT : result);
}

ssize_t switchto_sendfile(int to, int from, off_t *offset, size_t size,
			  const struct timespec *deadline)
{
	struct worker *me = current_task();
	long done = 0, result;

	if (!me)
		return -1;
	do {
		result = move(me, from, to, true, deadline, SYS_sendfile, to, from, (long)offset,
			      (long)(size - (size_t)done), 0, 0);
		if (result > 0)
			done += result;
	} while (result > 0 && (size_t)done < size);
	return end_call(me, done ? done : result == -EAGAIN ? -ETIMEDOUT : result);
}

/* --- files --- */

/* pread(2) and its like: on a ring, if that is a file. @vectors: @length counts vectors. */
static ssize_t at_offset(enum file_call what, long number, bool output, int fd, const void *address,
			 size_t length, off_t offset, const struct timespec *deadline)
{
	const struct request r = {
		.fd = fd,
		.output = output,
		.plain = true,
		.deadline = deadline,
		.number = number,
		.a = (long)address,
		.b = (long)length,
		.c = offset,
	};
	struct worker *me = current_task();
	long result;

	if (!me)
		return -1;
	/* To a ring, this is the file's own position. */
	if (offset < 0)
		return end_call(me, -EINVAL);
	result = perform(me, &r, no_progress);
	if (result == NOT_POLLED)
		result = on_ring(me, what, number, fd, address, length, offset, 0, deadline);
	return end_call(me, result);
}

ssize_t switchto_pread(int fd, void *buffer, size_t size, off_t offset,
		       const struct timespec *deadline)
{
	return at_offset(FILE_READ, SYS_pread64, false, fd, buffer, size, offset, deadline);
}

ssize_t switchto_pwrite(int fd, const void *buffer, size_t size, off_t offset,
			const struct timespec *deadline)
{
	return at_offset(FILE_WRITE, SYS_pwrite64, true, fd, buffer, size, offset, deadline);
}

ssize_t switchto_preadv(int fd, const struct iovec *parts, int count, off_t offset,
			const struct timespec *deadline)
{
	return at_offset(FILE_READV, SYS_preadv, false, fd, parts, (size_t)count, offset, deadline);
}

ssize_t switchto_pwritev(int fd, const struct iovec *parts, int count, off_t offset,
			 const struct timespec *deadline)
{
	return at_offset(FILE_WRITEV, SYS_pwritev, true, fd, parts, (size_t)count, offset,
			 deadline);
}

int switchto_openat(int folder, const char *path, int flags, mode_t mode)
{
	struct worker *me = current_task();
	struct stat found;
	bool blocks = false;
	long result;

	if (!me)
		return -1;
	/* A FIFO waits for the other side, and a ring would try it without that first. */
	if (me->slot->ring)
		blocks = !fstatat(folder, path, &found, 0) && !S_ISREG(found.st_mode) &&
			 !S_ISDIR(found.st_mode);
	result = on_ring(me, FILE_OPENAT, SYS_openat, folder, path, mode, blocks, flags, NULL);
	if (result >= 0)
		switchto_mark_new((int)result);
	return (int)end_call(me, result);
}

int switchto_fsync(int fd)
{
	struct worker *me = current_task();

	if (!me)
		return -1;
	return (int)end_call(me, on_ring(me, FILE_FSYNC, SYS_fsync, fd, NULL, 0, 0, 0, NULL));
}

/* --- children --- */

/* Did waitid(2) find a child? It says 0 also if there is none in that state. */
static long waitid_now(int idtype, id_t id, siginfo_t *info, int options)
{
	siginfo_t found = { 0 };
	long result;

	do
		result = CALL(waitid, idtype, id, &found, options | WNOHANG, NULL);
	while (result == -EINTR);
	if (result)
		return result;
	if (!found.si_pid && !(options & WNOHANG))
		return -EAGAIN;
	if (info)
		*info = found;
	return 0;
}

int switchto_waitid(idtype_t idtype, id_t id, siginfo_t *info, int options,
		    const struct timespec *deadline)
{
	struct worker *me = current_task();
	unsigned int naps = 0;
	int pidfd = -1;
	long result;

	if (!me)
		return -1;
	result = waitid_now((int)idtype, id, info, options);
	/* The descriptor of a process says that it has ended, and nothing else. */
	if (result == -EAGAIN && idtype == P_PID && (options & (WSTOPPED | WCONTINUED)) == 0) {
		pidfd = (int)CALL(pidfd_open, id, 0);
		if (pidfd >= 0)
			switchto_mark_new(pidfd);
	}
	while (result == -EAGAIN) {
		long error;

		if (pidfd >= 0)
			error = switchto_poll(pidfd, POLLIN, deadline) == -1 ? -errno : 0;
		else
			error = nap(&naps, deadline);
		result = waitid_now((int)idtype, id, info, options);
		if (result == -EAGAIN && error)
			result = error;
		/* Another one of its threads may still run. */
		else if (result == -EAGAIN && pidfd >= 0 && naps++)
			nap(&naps, deadline);
	}
	if (pidfd >= 0)
		switchto_close(pidfd);
	return (int)end_call(me, result);
}

/* --- the end --- */

int switchto_close(int fd)
{
	return switchto_mark_forget(fd, true);
}

int switchto_forget(int fd)
{
	return switchto_mark_forget(fd, false);
}
