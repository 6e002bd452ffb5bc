// SPDX-License-Identifier: MIT
/* Connections, events, children, and the end of descriptors: calls that wait, and move no data. */
#define _GNU_SOURCE
#include "request.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>

int switchto_accept(int fd, struct sockaddr *address, socklen_t *length, int flags,
		    const struct timespec *deadline)
{
	const struct request r = REQUEST(PLAIN, fd, deadline, accept4, address, length,
					 flags | SOCK_NONBLOCK);
	struct worker *me = current_task();
	long result;

	if (unlikely(!me))
		return -1;
	result = switchto_request_perform(me, &r);
	if (result == NOT_POLLED)
		result = -ENOTSOCK;
	if (likely(result >= 0))
		switchto_mark_new((int)result);
	return (int)end_call(me, result);
}

int switchto_poll(int fd, short events, const struct timespec *deadline)
{
	const bool output = events & POLLOUT;
	const unsigned int how = output ? OUTPUT : (events & POLLIN) ? INPUT : PICKY;
	const struct request r = REQUEST_OF(how, fd, deadline, switchto_poll_call, events);
	struct mark *mark = mark_of((unsigned int)fd);
	struct worker *me = current_task();
	struct progress p = no_progress;

	if (!me)
		return -1;
	/* A task waits in one place. */
	if (output == !!(events & (POLLIN | POLLRDHUP)) || events & ~(POLLIN | POLLRDHUP | POLLOUT))
		return fail(EINVAL);
	if (mark)
		p.word = atomic_load(output ? &mark->out.word : &mark->in.word);
	p.result = make_call(&r);
	if (p.result == -EAGAIN && !mark)
		p.result = -EINTR;
	return (int)end_call(me, switchto_request_resume(me, &r, p));
}

int switchto_connect(int fd, const struct sockaddr *address, socklen_t length,
		     const struct timespec *deadline)
{
	/* An error ends the wait, too. */
	const struct request r = REQUEST_OF(OUTPUT, fd, deadline, switchto_poll_call, POLLOUT);
	struct mark *mark = mark_of((unsigned int)fd);
	struct worker *me = current_task();
	unsigned int naps = 0, waits = 0;
	uint64_t closes;
	long result, flags;

	if (!me)
		return -1;
	/* Before it is polled: to epoll, a socket without a connection is one that was hung up. */
	flags = SURE_CALL(fcntl, fd, F_GETFL, 0);
	if (flags < 0)
		return (int)end_call(me, flags);
	/* A new socket, maybe with an old number. */
	if (mark && atomic_load(&mark->sched))
		switchto_mark_is_valid(mark);
	if (!(flags & O_NONBLOCK))
		SURE_CALL(fcntl, fd, F_SETFL, flags | O_NONBLOCK);
	closes = closes_now();
	for (;;) {
		long error = 0;

		result = CALL(connect, fd, address, length);
		if (result == -EISCONN && waits)
			result = 0;
		if (result == -EINPROGRESS || result == -EALREADY)
			error = waits++ < 2 || waits % 2 ? switchto_request_perform(me, &r) :
							   switchto_request_nap(&naps, deadline);
		else if (result == -EAGAIN && address->sa_family == AF_UNIX)
			error = switchto_request_nap(&naps, deadline);
		else if (result != -EINTR)
			return (int)end_call(me, result);
		if (closed_since(fd, closes))
			error = -EBADF;
		if (error < 0)
			return (int)end_call(me, error);
	}
}

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
			error = switchto_request_nap(&naps, deadline);
		result = waitid_now((int)idtype, id, info, options);
		if (result == -EAGAIN && error)
			result = error;
		/* Another one of its threads may still run. */
		else if (result == -EAGAIN && pidfd >= 0 && naps++)
			switchto_request_nap(&naps, deadline);
	}
	if (pidfd >= 0)
		switchto_close(pidfd);
	return (int)end_call(me, result);
}

/* In a region: it may wait until all is sent, or a file is written. An error number. */
static int close_slowly(int fd)
{
	const bool in_region = !switchto_block_begin();
	const int error = (int)-sure_close(fd);

	if (in_region)
		switchto_block_end();
	return error == EINTR ? 0 : error;
}

int switchto_close(int fd)
{
	int left, error = switchto_mark_forget(fd, &left);

	if (left != -1)
		error = close_slowly(left);
	return error ? switchto_dispatch_fail(error) : spent_by(switchto_current);
}

int switchto_forget(int fd)
{
	const int error = switchto_mark_forget(fd, NULL);

	return error ? fail(error) : spent_by(switchto_current);
}
