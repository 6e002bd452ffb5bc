// SPDX-License-Identifier: MIT
/*
 * How a request is performed. The call is made on a descriptor that does not block, and waits if that
 * says EAGAIN. A read of less than was asked for has emptied a stream: then the next one waits at
 * once, and saves the call that would say so. If there was more, that wait is over as soon as the slot
 * polls: mark.h says why.
 */
#define _GNU_SOURCE
#include "region.h"
#include "request.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

/* After so many naps, a send to an address of IP fails. */
enum { IN_VAIN_TO_IP = 4 };

int switchto_socket_option(int fd, int option)
{
	socklen_t size = sizeof(int);
	int value;

	return getsockopt(fd, SOL_SOCKET, option, &value, &size) ? 0 : value;
}

long switchto_poll_now(int fd, short events)
{
	struct pollfd poller = { .fd = fd, .events = events };
	struct timespec none;
	long n;

	/* With a signal, it fails even if it need not wait. */
	do {
		none = (struct timespec){ 0 };
		n = SURE_CALL(ppoll, &poller, 1, &none, NULL, 0);
	} while (n == -EINTR);
	if (n < 0)
		return n;
	return n && poller.revents & POLLNVAL ? -EBADF : poller.revents;
}

long switchto_poll_call(const struct request *r)
{
	const long found = switchto_poll_now(r->fd, (short)r->a);

	return found ? found : -EAGAIN;
}

long switchto_request_nap(unsigned int *count, const struct timespec *deadline)
{
	const nsec_t until = switchto_deadline(deadline), now = switchto_now();
	nsec_t at = now + (50000LL << (*count < 8 ? *count : 8));
	int error;

	if (until < 0)
		return -EINVAL;
	if (until <= now)
		return -ETIMEDOUT;
	++*count;
	if (at > until)
		at = until;
	error = switchto_sleep_pause(WAITING, at);
	return error == ETIMEDOUT ? 0 : -error;
}

/* Before a call that blocks. An error number: it may not be made. */
static int begin_to_block(struct worker *me, const struct request *r)
{
	if (switchto_deadline(r->deadline) < 0)
		return EINVAL;
	if (is_cancelled(me->task))
		return ECANCELED;
	return switchto_region_begin(r->number) ? errno : 0;
}

__attribute__((noinline)) long switchto_request_block(struct worker *me, const struct request *r)
{
	long result;
	int error;

	do {
		error = begin_to_block(me, r);
		if (error)
			return -error;
		result = make_call(r);
		switchto_block_end();
	} while (result == -EINTR);
	return result;
}

/* --- the steps of a request --- */

enum step {
	LOOKS,	 /* at the mark: is a call to be made? */
	WAITS,	 /* for an event, or for the turn; then it looks */
	CHECKS,	 /* whether the descriptor does not block; then it looks */
	CALLS,	 /* if that is interrupted, it looks */
	NOTHING, /* was there: the call said EAGAIN; then it looks */
	DONE,	 /* there is a result: each step may find an error */
};

struct performance {
	struct worker *me;
	const struct request *r;
	struct mark *mark; /* NULL: the number never had one */
	struct progress at;
	struct turn turn;
	bool checked;
	bool tries;	  /* the next call is made whatever the mark says, unless that may block */
	bool late;	  /* the deadline has passed: that call is the last one */
	bool passes;	  /* the turn on, as what there is is not for this call */
	bool was_listed;  /* for a turn */
	bool cleared;	  /* UNREAD, before the next call */
	uintptr_t passed; /* the word when it did so */
	unsigned int naps;
};

static inline struct direction *direction_of(const struct performance *p)
{
	return p->r->how & OUTPUT ? &p->mark->out : &p->mark->in;
}

static inline enum step done(struct performance *p, long result)
{
	p->at.result = result;
	return DONE;
}

/* May there be something that another task, which waits, does not want? */
static inline bool may_take(const struct performance *p)
{
	return is_unread(p->at.word) && mark_task(p->at.word) != p->me->task &&
	       !(p->r->how & PICKY);
}

static inline enum step look(struct performance *p)
{
	p->at.word = UNKNOWN;
	if (p->mark)
		p->at.word = atomic_load_explicit(&direction_of(p)->word, memory_order_acquire);
	if (!is_ready(p->at.word) && !may_take(p) &&
	    (!p->tries || (p->at.word == UNKNOWN && p->r->how & PLAIN)))
		return WAITS;
	return p->checked ? CALLS : CHECKS;
}

static inline bool is_gone(const struct performance *p)
{
	return closed_since(p->r->fd, p->at.closes);
}

/* The call was in the word for a moment: others may have seen it there, and wait for their turn. */
static void leave_word(struct performance *p)
{
	if (atomic_load(&direction_of(p)->first))
		switchto_turn_end(p->mark, direction_of(p), NULL);
}

/* 0, or a negative error number. */
static long wait_in_mark(struct performance *p)
{
	const struct request *r = p->r;
	int error;

	p->tries = false;
	if (p->mark) {
		struct direction *direction = direction_of(p);
		/* If that is the caller, it has been woken for nothing. */
		struct switchto_task *task = mark_task(p->at.word);

		if ((task && task != p->me->task) || p->passes ||
		    (atomic_load(&direction->first) && !p->turn.listed && !p->at.waited)) {
			p->was_listed = true;
			return -switchto_turn_wait(p->mark, direction, &p->turn, p->passes,
						   r->deadline);
		}
		if (task || p->at.word == NOT_READY || is_ready(p->at.word)) {
			error = switchto_sleep_for(p->me, p->mark, direction,
						   is_ready(p->at.word) ? p->at.word : NOT_READY,
						   r->deadline);
			if (error == EBUSY) /* another task came in between */
				return 0;
			if (error != ESTALE) {
				p->at.waited = true;
				return -error;
			}
			leave_word(p);
		}
	}
	error = switchto_mark_add(p->me->slot, r->fd, r->how & OUTPUT);
	p->mark = mark_of((unsigned int)r->fd);
	if (error == EPERM && r->how & PLAIN)
		return NOT_POLLED;
	/*
	 * A file: the call may say that this is no socket. Or the slot of another scheduler polls the
	 * descriptor, but perhaps not for this.
	 */
	p->tries = error == EPERM || error == EBUSY;
	return error == EBUSY || error == EPERM ? switchto_request_nap(&p->naps, r->deadline) :
						  -error;
}

static inline enum step wait_once(struct performance *p)
{
	long error;

	error = wait_in_mark(p);
	if (is_gone(p))
		error = -EBADF;
	p->passes = false;
	p->late = error == -ETIMEDOUT;
	if (error && !p->late)
		return done(p, error);
	p->tries |= p->late;
	/*
	 * By an event, or when it was added. But a call that blocks after all, because another process
	 * has changed the flag, would wait beyond the deadline, or until all is written.
	 */
	if (p->late || p->r->how & OUTPUT)
		p->checked = !(p->r->how & PLAIN);
	else if (!error && !p->turn.listed)
		p->checked = true;
	return LOOKS;
}

bool switchto_request_unblock(int fd, struct mark *mark)
{
	const long flags = SURE_CALL(fcntl, fd, F_GETFL, 0);

	if (flags < 0 || flags & O_NONBLOCK)
		return true;
	if (!switchto_mark_is_valid(mark))
		return false;
	SURE_CALL(fcntl, fd, F_SETFL, flags | O_NONBLOCK);
	return true;
}

/*
 * The descriptor was ready before the call: is it still the one that it was, and does it not block?
 * Another process, or whoever closed it, may have changed that.
 */
static enum step check(struct performance *p)
{
	p->checked = true;
	switchto_request_unblock(p->r->fd, p->mark);
	return LOOKS;
}

/*
 * A reset of TCP sets the error, then frees what was to be sent, which wakes a writer, and then ends the
 * connection. It has the lock of the socket meanwhile, for which this waits: the kernel's tcp_reset() and
 * tcp_get_info(), 6.12 and 7.3.
 */
static void let_reset_end(int fd)
{
	char info;
	socklen_t size = sizeof(info);

	SURE_CALL(getsockopt, fd, IPPROTO_TCP, TCP_INFO, &info, &size);
}

/*
 * Was the rest refused, or is there no rest? Then the part that went before is the result, and an error
 * stays for the next call. But a send of UNIX that goes in part takes the error with it. An error that
 * comes after this look is taken by the call that follows, and lost if a part went.
 */
static bool is_over(const struct request *r)
{
	const bool output = r->how & OUTPUT;
	const short wanted = output ? POLLOUT : POLLIN;
	long found = poll_if_possible(r->fd, wanted);
	int there = 0;

	/* In the middle of a stream, an error is in the queue of errors, and hurts nobody. */
	if (found & POLLERR && r->number == SYS_recvmmsg)
		return true;
	if (found & POLLERR && !(found & POLLHUP)) {
		let_reset_end(r->fd);
		found = poll_if_possible(r->fd, wanted);
	}
	if (!(found & (POLLHUP | POLLNVAL)))
		return false;
	if (output && switchto_socket_option(r->fd, SO_DOMAIN) == AF_UNIX)
		switchto_socket_option(r->fd, SO_ERROR);
	/* The end of the input is no error. */
	return output ||
	       (found & (POLLERR | POLLNVAL) && (ioctl(r->fd, FIONREAD, &there) || !there));
}

long switchto_send_error(int fd)
{
	int error;

	if (!switchto_mark_is_shut(fd))
		return 0;
	error = switchto_socket_option(fd, SO_ERROR);
	return error ? -error : -EPIPE;
}

/* The same, after a wait. */
static long send_error(const struct performance *p)
{
	const bool waited = p->at.waited || p->was_listed;

	return waited && p->r->how & OUTPUT && !p->r->call && atomic_load(&p->mark->hung_up) ?
		       switchto_send_error(p->r->fd) :
		       0;
}

/*
 * A read has succeeded, or said EAGAIN: the next one may wait before it makes a call. Not after the end of
 * a FIFO that nobody has opened for writing: poll(2) does not tell of it.
 */
static inline void may_wait_next_time(struct mark *mark, bool ended)
{
	unsigned char before = NOT_YET_FIRST;

	if (unlikely(ended))
		atomic_store(&mark->waits_first, NEVER_FIRST);
	else if (unlikely(atomic_load_explicit(&mark->waits_first, memory_order_relaxed) ==
			  NOT_YET_FIRST))
		atomic_compare_exchange_strong(&mark->waits_first, &before, WAITS_FIRST);
}

/*
 * @p has cleared UNREAD, and then found something. A call that saw the word in between sleeps: it is to
 * look again.
 */
static void set_unread(struct performance *p)
{
	_Atomic uintptr_t *word = &direction_of(p)->word;
	uintptr_t before = atomic_load(word);

	while ((mark_task(before) && !is_unread(before)) || before == NOT_READY)
		if (atomic_compare_exchange_weak(word, &before,
						 before == NOT_READY ? READY | STICKY :
								       before + UNREAD))
			break;
	/* Whoever waits for its turn is woken at the end. */
	p->was_listed = true;
}

static inline enum step call(struct performance *p)
{
	const struct request *r = p->r;
	long result = r->how & REST && is_over(r) ? -EPIPE : send_error(p);

	if (!result)
		result = make_call(r);
	p->tries = result == -EINTR && p->cleared;
	if (result == -EINTR)
		return LOOKS;
	if ((result >= 0 || result == -EAGAIN) && r->how & EMPTIES && p->mark)
		may_wait_next_time(p->mark, !result && r->b > 0 && !atomic_load(&p->mark->socket));
	if (result == -EAGAIN)
		return NOTHING;
	if (unlikely(p->cleared))
		set_unread(p);
	if (result >= 0 && r->how & EMPTIES && (size_t)result < (size_t)r->b &&
	    is_ready(p->at.word) && (!(p->at.word & STICKY) || switchto_mark_calm(p->mark)))
		atomic_compare_exchange_strong(&direction_of(p)->word, &p->at.word, NOT_READY);
	return done(p, result);
}

/*
 * Some sockets that were shut down say EAGAIN to a call that does not block, and to one that does they
 * say that it is over: 0, or EINVAL of a listener.
 */
static bool is_shut_down(const struct request *r, struct mark *mark)
{
	return !(r->how & OUTPUT) && !r->call && atomic_load(&mark->hung_up) &&
	       switchto_socket_type(r->fd) &&
	       poll_if_possible(r->fd, POLLRDHUP) & (POLLRDHUP | POLLHUP);
}

static void clear(struct msghdr *message)
{
	if (message->msg_name)
		message->msg_namelen = 0;
	message->msg_controllen = 0;
	message->msg_flags = 0;
}

/* The result of @r then. */
static long receive_nothing(const struct request *r)
{
	struct mmsghdr *messages = pointer(r->a);
	long result;

	/* Something may have come before that, and after the last call. */
	do
		result = make_call(r);
	while (result == -EINTR);
	if (result != -EAGAIN)
		return result;
	if (r->number == SYS_accept4)
		return -EINVAL;
	if (r->number == SYS_recvfrom && r->d && r->e)
		*(socklen_t *)pointer(r->e) = 0;
	if (r->number == SYS_recvmsg)
		clear(pointer(r->a));
	if (r->number != SYS_recvmmsg)
		return 0;
	clear(&messages->msg_hdr);
	messages->msg_len = 0;
	return 1;
}

/*
 * There is room, but not for this address: the receiver of UNIX is full. With IP there is no such
 * thing: either there was no room before, or there is no free port, which is an error.
 */
static enum step found_no_room(struct performance *p)
{
	const struct request *r = p->r;
	const int domain = switchto_socket_option(r->fd, SO_DOMAIN);
	long error;

	if (p->naps >= IN_VAIN_TO_IP && (domain == AF_INET || domain == AF_INET6))
		return done(p, -EAGAIN);
	p->tries = true;
	error = switchto_request_nap(&p->naps, r->deadline);
	if (is_gone(p))
		error = -EBADF;
	return error ? done(p, error) : LOOKS;
}

static enum step found_nothing(struct performance *p)
{
	const struct request *r = p->r;
	struct mark *mark = p->mark;
	uintptr_t word = p->at.word;

	if (mark && is_shut_down(r, mark))
		return done(p, receive_nothing(r));
	/* Events of a stray come again and again: no wait lasts until the deadline then. */
	if (p->late || ((p->at.waited || p->turn.listed) && r->deadline &&
			switchto_deadline(r->deadline) <= switchto_now()))
		return done(p, -ETIMEDOUT);
	if (r->how & ADDRESS && poll_if_possible(r->fd, POLLOUT) & POLLOUT)
		return found_no_room(p);
	/*
	 * What there is may be for another call that waits, and that takes it. If all have looked, the
	 * word is what it was.
	 */
	if ((r->call || r->how & PICKY) && is_ready(word) && atomic_load(&direction_of(p)->first) &&
	    word != p->passed) {
		p->passed = word;
		p->passes = true;
		return WAITS;
	}
	p->cleared = may_take(p);
	if (p->cleared) {
		/* After that call, an event may have made the same word again: the call is made once more. */
		atomic_compare_exchange_strong(&direction_of(p)->word, &word, word - UNREAD);
		p->tries = true;
		return LOOKS;
	}
	if (!is_ready(word) ||
	    (!(r->how & PICKY) &&
	     !atomic_compare_exchange_strong(&direction_of(p)->word, &word, NOT_READY)))
		return LOOKS;
	/* An error may make it ready, or what this call can't take: and does so again. */
	ready_in_vain(mark, word);
	return r->how & PICKY ? WAITS : LOOKS;
}

/*
 * A call may fail whatever there is, so it is tried before any wait. But a read of what is known to be
 * possible may wait at once if there was nothing.
 */
static bool may_wait_first(const struct request *r, struct mark *mark)
{
	return r->how & EMPTIES && r->b > 0 && mark && atomic_load(&mark->sched) &&
	       atomic_load(&mark->waits_first) == WAITS_FIRST &&
	       (r->how & PLAIN || atomic_load(&mark->socket));
}

/* Where a request begins that has been tried, or not. */
static enum step first_step(struct performance *p)
{
	const int error = p->at.error;

	if (!p->at.closes)
		p->at.closes = closes_now();
	if (error == ESTALE)
		leave_word(p);
	p->late = error == ETIMEDOUT;
	p->tries = p->late || !may_wait_first(p->r, p->mark);
	if (is_gone(p))
		return done(p, -EBADF);
	if (error && !p->late && error != EBUSY && error != ESTALE)
		return done(p, -error);
	if (p->at.result == -EAGAIN)
		return NOTHING;
	return p->at.result == -EINTR ? LOOKS : DONE;
}

/*
 * Once it was listed, another thread may be at the list, and at the turn, just now. And whoever made the
 * word UNKNOWN may be about to wake the caller with EBADF: not in its next wait. Both hold the lock.
 */
static bool is_touched(const struct performance *p)
{
	struct direction *direction;

	if (p->was_listed)
		return true;
	if (!p->at.waited && !p->at.error)
		return false;
	direction = direction_of(p);
	return atomic_load(&direction->first) || atomic_load(&direction->word) == UNKNOWN;
}

__attribute__((noinline)) long switchto_request_resume(struct worker *me, const struct request *r,
						       struct progress progress)
{
	struct performance p = {
		.me = me,
		.r = r,
		.mark = mark_of((unsigned int)r->fd),
		.at = progress,
		.checked = !(r->how & PLAIN),
		.turn.picky = r->how & PICKY,
	};
	enum step step = first_step(&p);

	while (step != DONE) {
		if (step == LOOKS)
			step = look(&p);
		else if (step == WAITS)
			step = wait_once(&p);
		else if (step == CHECKS)
			step = check(&p);
		else
			step = step == CALLS ? call(&p) : found_nothing(&p);
	}
	if (is_touched(&p))
		switchto_turn_end(p.mark, direction_of(&p), &p.turn);
	return p.at.result;
}

long switchto_request_perform(struct worker *me, const struct request *r)
{
	return switchto_request_resume(me, r, no_progress);
}

long switchto_request_go_on(struct worker *me, const struct request *r, uint64_t closes)
{
	struct progress p = no_progress;

	window();
	p.closes = closes;
	return switchto_request_resume(me, r, p);
}

long switchto_request_perform_or_block(struct worker *me, const struct request *r)
{
	const long result = switchto_request_perform(me, r);

	return result == NOT_POLLED ? switchto_request_block(me, r) : result;
}
