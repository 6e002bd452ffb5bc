// SPDX-License-Identifier: MIT
/*
 * Random sequences of calls on a pair of descriptors, or on a file. Each is made twice: with the
 * system calls, by threads, on descriptors that block; and with the layer's calls, by tasks. Results,
 * data and errors must agree.
 *
 *	sched_differential SLOTS [SEQUENCES [SEED]]
 *
 * A sequence has two sides, each with an end. They act one after the other. A call that would wait is
 * one for which the other side does something meanwhile: it writes what is missing, or reads what is
 * too much. Whether a call would wait, the sides ask poll(2): so if all before agreed, both runs do the
 * same.
 */
#include "sched.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <semaphore.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <termios.h>

enum kind { TCP, STREAM, DGRAM, SEQPACKET, UDP, PIPE, PACKETS, PTY, LINES, COUNTED, A_FILE, KINDS };

static const char *const kinds[] = {
	"TCP",	"stream of UNIX",  "datagrams of UNIX", "packets of UNIX", "UDP",
	"pipe", "pipe of packets", "raw pty",		"pty of lines",	   "pty with VMIN 3",
	"file",
};

enum call {
	WRITE,
	WRITEV,
	SEND,
	SENDTO,
	SENDMSG,
	SENDMMSG,
	SEND_MORE,
	SEND_OOB,
	SEND_RIGHTS,
	WRITE_MUCH,
	WRITE_NEGATIVE,
	READ,
	READV,
	RECV,
	RECVFROM,
	RECVFROM_ALL,
	RECVMSG,
	RECVMMSG,
	RECV_PEEK,
	RECV_ALL,
	RECV_PEEK_ALL,
	RECVMSG_ALL,
	RECV_DONTWAIT,
	READ_FAULT,
	READ_NOTHING,
	READ_NEGATIVE,
	WAIT_IN,
	WAIT_OUT,
	PREAD,
	PREADV,
	PWRITE,
	PWRITEV,
	SEEK,
	CONNECT,
	SHUT_WRITE,
	SHUT_BOTH,
	CLOSE,
	CALLS
};

static const char *const calls[] = {
	"write",
	"writev",
	"send",
	"sendto",
	"sendmsg",
	"sendmmsg",
	"send MORE",
	"send OOB",
	"send RIGHTS",
	"write much",
	"write a negative size",
	"read",
	"readv",
	"recv",
	"recvfrom",
	"recvfrom ALL",
	"recvmsg",
	"recvmmsg",
	"recv PEEK",
	"recv ALL",
	"recv PEEK ALL",
	"recvmsg ALL",
	"recv DONTWAIT",
	"read to a fault",
	"read nothing",
	"read a negative size",
	"poll IN",
	"poll OUT",
	"pread",
	"preadv",
	"pwrite",
	"pwritev",
	"lseek",
	"connect",
	"shutdown WR",
	"shutdown RDWR",
	"close",
};

#define LATE (20 * NSEC_PER_SEC)

enum { MUCH = 300000, MOST = 1000, ACTIONS = 20, BATCH = 100, COUNT = 3 };

/* What came of an action. */
struct outcome {
	long result;
	int error;
	bool skipped, late;
	uint64_t data;
	long helped; /* what the other side did meanwhile */
};

struct action {
	enum call call;
	unsigned int side;
	size_t size;
	struct outcome outcome[2]; /* of threads, of tasks */
};

struct sequence {
	enum kind kind;
	unsigned int count;
	struct action action[ACTIONS];
};

/* The run of a batch: all that both sides share. */
static struct run {
	struct sequence *batch;
	unsigned int sequences;
	bool tasks;
	int fd[2];
	bool closed[2], silent[2]; /* silent: it has shut down its writing */
	/* Of the action that is under way. */
	atomic_uint at; /* its number */
	atomic_bool helps, done, helped;
	size_t wanted;
	sem_t changed[2]; /* of a thread */
	struct switchto_task *task[2];
	char *buffer[2]; /* of each side, followed by a page that is not there */
} run;

/* --- the two kinds of calls --- */

/* Long after a call should have ended. */
static const struct timespec *late(void)
{
	static _Thread_local struct timespec time;

	time = in(LATE);
	return &time;
}

#define EITHER(name, ...) \
	(run.tasks ? (long)switchto_##name(__VA_ARGS__, late()) : (long)name(__VA_ARGS__))

/* Something has changed for @side. */
static void tell(unsigned int side)
{
	if (run.tasks)
		switchto_unpark(run.task[side]);
	else
		sem_post(&run.changed[side]);
}

/* Until something has changed for @side. */
static void await_change(unsigned int side)
{
	if (run.tasks)
		switchto_park(NULL);
	else
		while (sem_wait(&run.changed[side]))
			;
}

/* Lets the other side go on, a little. */
static void give_way(void)
{
	if (run.tasks)
		switchto_yield();
	else
		sched_yield();
}

/* Waits for input at @fd, or a little. */
static short wait_a_little(int fd)
{
	struct pollfd poller = { .fd = fd, .events = POLLIN };
	const struct timespec time = in(NSEC_PER_SEC / 1000);

	if (run.tasks)
		switchto_poll(fd, POLLIN, &time);
	return poll(&poller, 1, run.tasks ? 0 : 1) == 1 ? poller.revents : 0;
}

static long poll_one(int fd, short events)
{
	struct pollfd poller = { .fd = fd, .events = events };
	struct switchto_case c = { .op = SWITCHTO_POLL, .item = &poller };

	if (run.tasks && fd % 2)
		return switchto_select(&c, 1, late()) == 0 ? poller.revents : -1;
	if (run.tasks)
		return switchto_poll(fd, events, late());
	return poll(&poller, 1, -1) == 1 ? poller.revents : -1;
}

static short ready(int fd, short events)
{
	struct pollfd poller = { .fd = fd, .events = events };

	return poll(&poller, 1, 0) == 1 ? poller.revents : 0;
}

static bool is_tty(enum kind kind)
{
	return kind == PTY || kind == LINES || kind == COUNTED;
}

static size_t available(int fd)
{
	int n = 0;

	return ioctl(fd, FIONREAD, &n) || n < 0 ? 0 : (size_t)n;
}

static uint64_t hash(uint64_t before, const void *data, long size)
{
	const unsigned char *byte = data;

	for (long i = 0; i < size; i++)
		before = (before ^ byte[i]) * 0x100000001b3;
	return before;
}

/* --- ends --- */

static void no_delay(int fd)
{
	const int on = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

static void open_inet(int type)
{
	struct sockaddr_in address[2] = { { .sin_family = AF_INET }, { .sin_family = AF_INET } };
	socklen_t length = sizeof(address[0]);
	int fd[2];

	for (int i = 0; i < 2; i++) {
		fd[i] = socket(AF_INET, type, 0);
		address[i].sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		CHECK_EQ(&verdict, bind(fd[i], (struct sockaddr *)&address[i], length), 0);
		CHECK_EQ(&verdict, getsockname(fd[i], (struct sockaddr *)&address[i], &length), 0);
	}
	if (type == SOCK_STREAM)
		CHECK_EQ(&verdict, listen(fd[0], 1), 0);
	CHECK_EQ(&verdict, connect(fd[1], (struct sockaddr *)&address[0], length), 0);
	if (type == SOCK_STREAM) {
		run.fd[0] = accept(fd[0], NULL, NULL);
		close(fd[0]);
		no_delay(run.fd[0]);
		no_delay(fd[1]);
	} else {
		CHECK_EQ(&verdict, connect(fd[0], (struct sockaddr *)&address[1], length), 0);
		run.fd[0] = fd[0];
	}
	run.fd[1] = fd[1];
}

static void open_pty(enum kind kind)
{
	struct termios how;

	run.fd[0] = posix_openpt(O_RDWR | O_NOCTTY);
	CHECK(&verdict, run.fd[0] >= 0);
	CHECK_EQ(&verdict, grantpt(run.fd[0]), 0);
	CHECK_EQ(&verdict, unlockpt(run.fd[0]), 0);
	run.fd[1] = open(ptsname(run.fd[0]), O_RDWR | O_NOCTTY);
	CHECK_EQ(&verdict, tcgetattr(run.fd[1], &how), 0);
	cfmakeraw(&how);
	if (kind == LINES)
		how.c_lflag |= ICANON;
	else if (kind == COUNTED)
		how.c_cc[VMIN] = COUNT;
	CHECK_EQ(&verdict, tcsetattr(run.fd[1], TCSANOW, &how), 0);
}

static void open_file(void)
{
	char name[] = "/tmp/switchto-differential-XXXXXX";

	run.fd[0] = mkstemp(name);
	run.fd[1] = dup(run.fd[0]);
	CHECK_EQ(&verdict, unlink(name), 0);
}

static void open_ends(enum kind kind)
{
	memset(run.closed, 0, sizeof(run.closed));
	memset(run.silent, 0, sizeof(run.silent));
	switch (kind) {
	case TCP:
	case UDP:
		open_inet(kind == TCP ? SOCK_STREAM : SOCK_DGRAM);
		break;
	case STREAM:
	case DGRAM:
	case SEQPACKET:
		CHECK_EQ(&verdict,
			 socketpair(AF_UNIX,
				    kind == STREAM ? SOCK_STREAM :
				    kind == DGRAM  ? SOCK_DGRAM :
						     SOCK_SEQPACKET,
				    0, run.fd),
			 0);
		break;
	case PIPE:
	case PACKETS:
		CHECK_EQ(&verdict, pipe2(run.fd, kind == PACKETS ? O_DIRECT : 0), 0);
		break;
	case PTY:
	case LINES:
	case COUNTED:
		open_pty(kind);
		break;
	default:
		open_file();
	}
}

static void close_end(unsigned int side)
{
	if (run.tasks)
		switchto_close(run.fd[side]);
	else
		close(run.fd[side]);
	run.closed[side] = true;
}

/* --- actions --- */

static bool writes(enum call call)
{
	return call <= WRITE_MUCH || call == PWRITE || call == PWRITEV;
}

static bool waits_for_input(enum call call)
{
	return (call >= READ && call <= READ_FAULT && call != RECV_DONTWAIT) || call == WAIT_IN;
}

static bool is_stream(enum kind kind)
{
	return kind == TCP || kind == STREAM;
}

/* Of a stream of UNIX, a peek takes what is there. */
static bool needs_all(enum call call, enum kind kind)
{
	return (is_stream(kind) &&
		(call == RECV_ALL || call == RECVFROM_ALL || call == RECVMSG_ALL)) ||
	       (kind == TCP && call == RECV_PEEK_ALL);
}

/*
 * What @kind carries in the background: until the other side has it. Of TCP, some bytes are never
 * counted, so only for some ms. Those of a tty come all, on a busy machine later.
 */
static void settle(enum kind kind, int to, size_t before, long written)
{
	const long long until = now_ns() + (is_tty(kind) ? NSEC_PER_SEC : NSEC_PER_SEC / 200);

	if (written <= 0)
		return;
	if (kind == TCP || is_tty(kind))
		while (available(to) < before + (size_t)written && now_ns() < until)
			sched_yield();
	else if (kind == UDP)
		while (!ready(to, POLLIN) && now_ns() < until)
			sched_yield();
}

static void fill(char *buffer, size_t size, unsigned int seed, enum kind kind)
{
	for (size_t i = 0; i < size; i++)
		buffer[i] = (char)('a' + (seed * 7 + i * 11) % 26);
	/* What is no line, nobody can read. */
	if (kind == LINES)
		buffer[size - 1] = '\n';
}

static long send_rights(int fd, char *buffer, size_t size)
{
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int))];
	} control = { .header = { .cmsg_len = CMSG_LEN(sizeof(int)),
				  .cmsg_level = SOL_SOCKET,
				  .cmsg_type = SCM_RIGHTS } };
	struct iovec part = { buffer, size };
	struct msghdr message = {
		.msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};

	memcpy(CMSG_DATA(&control.header), &(int){ STDERR_FILENO }, sizeof(int));
	return EITHER(sendmsg, fd, &message, 0);
}

/* Its family and length go into @data: ports differ from run to run. */
static long receive_address(int fd, char *buffer, size_t size, int flags, uint64_t *data)
{
	struct sockaddr_storage from = { .ss_family = AF_UNSPEC };
	socklen_t length = sizeof(from);
	const long result = EITHER(recvfrom, fd, buffer, size, flags, (struct sockaddr *)&from,
				   &length);

	*data = length * 31 + from.ss_family;
	return result;
}

/* With room for descriptors. How many came goes into @data. */
static long receive_message(int fd, char *buffer, size_t size, int flags, uint64_t *data)
{
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(2 * sizeof(int))];
	} control;
	struct iovec parts[] = { { buffer, size / 3 }, { buffer + size / 3, size - size / 3 } };
	struct msghdr message = {
		.msg_iov = parts,
		.msg_iovlen = 2,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	const long result = EITHER(recvmsg, fd, &message, flags);
	const int error = errno;

	if (result < 0)
		return result;
	*data = (uint64_t)(message.msg_flags & ~MSG_CMSG_CLOEXEC);
	for (struct cmsghdr *at = CMSG_FIRSTHDR(&message); at; at = CMSG_NXTHDR(&message, at)) {
		*data = *data * 31 + at->cmsg_len;
		for (size_t i = 0;
		     at->cmsg_type == SCM_RIGHTS && CMSG_LEN((i + 1) * sizeof(int)) <= at->cmsg_len;
		     i++) {
			int fd_got;

			memcpy(&fd_got, CMSG_DATA(at) + i * sizeof(int), sizeof(int));
			close(fd_got);
		}
	}
	errno = error;
	return result;
}

static long many_messages(int fd, char *buffer, size_t size, bool output, uint64_t *data)
{
	struct iovec parts[] = { { buffer, size / 2 }, { buffer + size / 2, size - size / 2 } };
	struct mmsghdr messages[2] = { 0 };
	long result;

	for (int i = 0; i < 2; i++) {
		messages[i].msg_hdr.msg_iov = &parts[i];
		messages[i].msg_hdr.msg_iovlen = 1;
	}
	if (output)
		return EITHER(sendmmsg, fd, messages, 2, 0);
	result = run.tasks ? switchto_recvmmsg(fd, messages, 2, MSG_WAITFORONE, late()) :
			     recvmmsg(fd, messages, 2, MSG_WAITFORONE, NULL);
	for (long i = 0; i < result; i++)
		*data = hash(*data * 31 + messages[i].msg_len, parts[i].iov_base,
			     messages[i].msg_len);
	return result;
}

static long shut_down(unsigned int side, int how)
{
	run.silent[side] = true;
	return shutdown(run.fd[side], how);
}

/* To the address of the other side, or to one that is not there. */
static long connect_again(int fd)
{
	union {
		struct sockaddr any;
		struct sockaddr_un un;
		struct sockaddr_storage storage;
	} address;
	socklen_t length = sizeof(address);

	memset(&address, 0, sizeof(address));
	if (getpeername(fd, &address.any, &length) || address.any.sa_family != AF_INET) {
		address.un = (struct sockaddr_un){ AF_UNIX, "/there/is/none" };
		length = sizeof(address.un);
	}
	return EITHER(connect, fd, &address.any, length);
}

static long make(struct action *a, unsigned int number, enum kind kind, uint64_t *data)
{
	static char much[MUCH];
	const int fd = run.fd[a->side];
	const size_t size = a->size;
	char *buffer = run.buffer[a->side];
	struct iovec parts[] = { { buffer, size / 3 }, { buffer + size / 3, size - size / 3 } };
	long result;

	if (writes(a->call))
		fill(buffer, size, number, kind);
	switch (a->call) {
	case WRITE:
		return EITHER(write, fd, buffer, size);
	case WRITEV:
		return EITHER(writev, fd, parts, 2);
	case SEND:
		return EITHER(send, fd, buffer, size, 0);
	case SENDTO:
		return EITHER(sendto, fd, buffer, size, 0, NULL, 0);
	case SENDMSG:
		return EITHER(sendmsg, fd, (&(struct msghdr){ .msg_iov = parts, .msg_iovlen = 2 }),
			      0);
	case SENDMMSG:
		return many_messages(fd, buffer, size, true, data);
	case SEND_MORE:
		/* Without a second one, it would come later. */
		result = EITHER(send, fd, buffer, size, MSG_MORE);
		return result < 0 ? result : EITHER(send, fd, buffer, size, 0);
	case SEND_OOB:
		return EITHER(send, fd, buffer, size, MSG_OOB);
	case SEND_RIGHTS:
		return send_rights(fd, buffer, size);
	case WRITE_MUCH:
		for (size_t i = 0; i < MUCH; i++)
			much[i] = (char)('a' + i % 23);
		return EITHER(write, fd, much, MUCH);
	case WRITE_NEGATIVE:
		return EITHER(write, fd, buffer, (size_t)-size);
	case READ_NEGATIVE:
		return EITHER(read, fd, buffer, (size_t)-size);
	case READ_FAULT:
		return EITHER(read, fd, buffer + MOST - size / 2, size);
	case READ_NOTHING:
		return EITHER(read, fd, buffer, 0);
	case WAIT_IN:
		return poll_one(fd, POLLIN);
	case WAIT_OUT:
		return poll_one(fd, POLLOUT);
	case SEEK:
		return lseek(fd, (off_t)size / 2, SEEK_SET);
	case CONNECT:
		return connect_again(fd);
	case SHUT_WRITE:
		return shut_down(a->side, SHUT_WR);
	case SHUT_BOTH:
		return shut_down(a->side, SHUT_RDWR);
	case CLOSE:
		close_end(a->side);
		return 0;
	case PWRITE:
		return EITHER(pwrite, fd, buffer, size, (off_t)size);
	case PWRITEV:
		return EITHER(pwritev, fd, parts, 2, (off_t)size);
	case RECVMSG:
		result = receive_message(fd, buffer, size, 0, data);
		break;
	case RECVMSG_ALL:
		result = receive_message(fd, buffer, size, MSG_WAITALL, data);
		break;
	case RECVMMSG:
		return many_messages(fd, buffer, size, false, data);
	case READV:
		result = EITHER(readv, fd, parts, 2);
		break;
	case RECV:
		result = EITHER(recv, fd, buffer, size, 0);
		break;
	case RECVFROM:
		result = receive_address(fd, buffer, size, 0, data);
		break;
	case RECVFROM_ALL:
		result = receive_address(fd, buffer, size, MSG_WAITALL, data);
		break;
	case RECV_PEEK:
		result = EITHER(recv, fd, buffer, size, MSG_PEEK);
		break;
	case RECV_ALL:
		result = EITHER(recv, fd, buffer, size, MSG_WAITALL);
		break;
	case RECV_PEEK_ALL:
		result = EITHER(recv, fd, buffer, size, MSG_WAITALL | MSG_PEEK);
		break;
	case RECV_DONTWAIT:
		result = EITHER(recv, fd, buffer, size, MSG_DONTWAIT);
		break;
	case PREAD:
		result = EITHER(pread, fd, buffer, size, (off_t)size / 2);
		break;
	case PREADV:
		result = EITHER(preadv, fd, parts, 2, (off_t)size / 2);
		break;
	default:
		result = EITHER(read, fd, buffer, size);
	}
	*data = hash(*data, buffer, result);
	return result;
}

/* Reads and writes of this end fail at once. */
static bool is_one_way(enum kind kind)
{
	return kind == PIPE || kind == PACKETS;
}

static bool is_socket(enum kind kind)
{
	return kind <= UDP;
}

/* A call of a socket on what is none fails at once. */
static bool fails_at_once(const struct action *a, enum kind kind)
{
	if (kind == A_FILE)
		return true;
	if (is_one_way(kind) && a->side == 1 && a->call != WAIT_IN)
		return true;
	return !is_socket(kind) && a->call >= RECV && a->call <= RECVMSG_ALL;
}

/* Is @a possible? Then, how many bytes it will wait for goes to run.wanted. */
static bool prepare(const struct action *a, enum kind kind)
{
	const int fd = run.fd[a->side], other = run.fd[!a->side];
	const bool helpless = run.closed[!a->side] || run.silent[!a->side] || is_one_way(kind);
	const size_t room = is_tty(kind) ? 1000 : 20000;
	size_t there;

	run.wanted = 0;
	if (run.closed[a->side])
		return false;
	/* How much comes before the fault depends on which segments the kernel has merged. */
	if ((kind == TCP || kind == COUNTED) && a->call == READ_FAULT)
		return false;
	/* Its first part is empty: an urgent byte ends its wait, and the other side may be late. */
	if (kind == TCP && a->call == RECVMMSG && a->size < 2)
		return false;
	if (a->call == WRITE_MUCH)
		/* A tty takes only so much; and packets of a pipe are many. */
		return !run.closed[!a->side] && !is_tty(kind) && kind != PACKETS;
	/* Nobody reads, so there must be room for all. */
	if (writes(a->call) && !run.closed[!a->side] && kind != A_FILE)
		return !(is_one_way(kind) && a->side == 0) && kind != DGRAM && kind != SEQPACKET &&
				       kind != UDP ?
			       available(other) + 2 * a->size < room :
			       true;
	if (a->call == WAIT_OUT)
		return ready(fd, POLLOUT);
	if (!waits_for_input(a->call) || fails_at_once(a, kind))
		return true;
	there = available(fd);
	if (kind == COUNTED && a->side == 1) {
		const size_t least = a->size < COUNT && a->call != WAIT_IN ? a->size : COUNT;

		run.wanted = there < least ? least - there : 0;
	} else if (needs_all(a->call, kind)) {
		if (ready(fd, POLLRDHUP) & (POLLRDHUP | POLLHUP | POLLERR) || there >= a->size)
			return true;
		run.wanted = a->size - there;
	} else if (!ready(fd, POLLIN)) {
		run.wanted = a->size / 2 + 1;
	}
	return !run.wanted || !helpless || (is_one_way(kind) && a->side == 0 && !run.closed[1]);
}

/* The other side's part, while the one of @a waits. */
static long help(const struct action *a, enum kind kind)
{
	const int fd = run.fd[!a->side];
	char *buffer = run.buffer[!a->side];
	long total = 0, n;

	if (a->call != WRITE_MUCH) {
		const size_t half = needs_all(a->call, kind) ? (run.wanted + 1) / 2 : run.wanted;

		fill(buffer, run.wanted, 3, kind);
		n = EITHER(write, fd, buffer, half);
		if (n < 0 || half == run.wanted)
			return n;
		/* So that the first part is mostly read alone. */
		for (int i = 0; i < 3; i++)
			give_way();
		return n + EITHER(write, fd, buffer + half, run.wanted - half);
	}
	for (;;) {
		const bool over = atomic_load(&run.done);
		const short found = wait_a_little(fd);

		if (!(found & POLLIN) && (found || over))
			break;
		if (!found)
			continue;
		n = EITHER(read, fd, buffer, MOST);
		if (n <= 0)
			break;
		total = (long)(hash((uint64_t)total, buffer, n) & LONG_MAX);
	}
	return total;
}

static void act(struct action *a, unsigned int number, enum kind kind)
{
	struct outcome *outcome = &a->outcome[run.tasks];
	const int other = run.fd[!a->side];
	size_t before = 0;
	long long began;

	outcome->skipped = !prepare(a, kind);
	if (outcome->skipped)
		return;
	if ((a->call == WRITE_MUCH && kind != A_FILE) || run.wanted) {
		atomic_store(&run.helps, true);
		tell(!a->side);
	}
	if (writes(a->call) && !run.closed[!a->side])
		before = available(other);
	outcome->data = 1;
	errno = 0;
	began = now_ns();
	outcome->result = make(a, number, kind, &outcome->data);
	outcome->error = outcome->result < 0 ? errno : 0;
	/* Found only when the deadline had passed, although nothing told of it. */
	outcome->late = now_ns() - began >= LATE / 2;
	if (writes(a->call) && a->call != WRITE_MUCH && !run.closed[!a->side])
		settle(kind, other, before, outcome->result);
}

/* All sequences of the batch, by one side. */
static void play(unsigned int side)
{
	unsigned int at = 0;

	for (unsigned int i = 0; i < run.sequences; i++) {
		struct sequence *s = &run.batch[i];

		for (unsigned int j = 0; j < s->count; j++, at++) {
			struct action *a = &s->action[j];

			while (atomic_load(&run.at) != at)
				await_change(side);
			if (a->side != side) {
				while (!atomic_load(&run.done) && !atomic_load(&run.helps))
					await_change(side);
				if (atomic_load(&run.helps))
					a->outcome[run.tasks].helped = help(a, s->kind);
				atomic_store(&run.helped, true);
				tell(!side);
				continue;
			}
			if (j == 0)
				open_ends(s->kind);
			act(a, j, s->kind);
			atomic_store(&run.done, true);
			tell(!side);
			while (!atomic_load(&run.helped))
				await_change(side);
			if (j == s->count - 1)
				for (unsigned int k = 0; k < 2; k++)
					if (!run.closed[k])
						close_end(k);
			atomic_store(&run.done, false);
			atomic_store(&run.helps, false);
			atomic_store(&run.helped, false);
			atomic_store(&run.at, at + 1);
			tell(!side);
		}
	}
}

static void play_task(void *side)
{
	play((unsigned int)(uintptr_t)side);
}

static void *play_thread(void *side)
{
	play((unsigned int)(uintptr_t)side);
	return NULL;
}

static void play_all(struct sequence *batch, unsigned int sequences, bool tasks)
{
	run.batch = batch;
	run.sequences = sequences;
	run.tasks = tasks;
	atomic_store(&run.at, 0);
	if (tasks) {
		struct switchto_sched *sched = new_sched(NULL);

		for (uintptr_t side = 0; side < 2; side++)
			// NOLINTNEXTLINE(performance-no-int-to-ptr)
			run.task[side] = spawn_handle(sched, play_task, (void *)side);
		assert_int_equal(run_or_step(sched), 0);
		for (unsigned int side = 0; side < 2; side++)
			switchto_join(run.task[side]);
		run_tasks(sched);
	} else {
		pthread_t threads[2];

		for (unsigned int side = 0; side < 2; side++)
			sem_init(&run.changed[side], 0, 0);
		for (uintptr_t side = 0; side < 2; side++)
			assert_int_equal(pthread_create(&threads[side], NULL, play_thread,
							// NOLINTNEXTLINE(performance-no-int-to-ptr)
							(void *)side),
					 0);
		for (unsigned int side = 0; side < 2; side++)
			pthread_join(threads[side], NULL);
	}
}

/* --- sequences --- */

static uint32_t dice;

static unsigned int roll(unsigned int sides)
{
	return random_next(&dice) % sides;
}

static void generate(struct sequence *s)
{
	memset(s, 0, sizeof(*s));
	s->kind = roll(KINDS);
	s->count = 4 + roll(ACTIONS - 3);
	for (unsigned int i = 0; i < s->count; i++) {
		struct action *a = &s->action[i];

		a->call = roll(CALLS);
		/* What ends all comes late, and what takes long seldom. */
		while ((a->call >= SHUT_WRITE && i < s->count / 2) ||
		       (a->call == WRITE_MUCH && roll(10)) ||
		       /* Of UNIX, FIONREAD counts this byte, which no read returns. */
		       (a->call == SEND_OOB && s->kind == STREAM))
			a->call = roll(CALLS);
		a->side = roll(2);
		/* Where only one direction is possible, mostly that one. */
		if (is_one_way(s->kind) && roll(8))
			a->side = writes(a->call);
		a->size = 1 + roll(roll(3) ? 20 : is_tty(s->kind) ? 100 : MOST);
	}
}

// NOLINTBEGIN(bugprone-signal-handler,cert-sig30-c): the watchdog ends the program
static void print_outcome(const char *who, const struct outcome *o)
{
	if (o->skipped)
		printf("  %s: skipped", who);
	else
		printf("  %s: %ld %s data %" PRIx64 " helped %ld%s", who, o->result,
		       o->error ? strerror(o->error) : "", o->data, o->helped,
		       o->late ? ", late" : "");
}

static void print_sequence(const struct sequence *s)
{
	printf("%s:\n", kinds[s->kind]);
	for (unsigned int i = 0; i < s->count; i++) {
		const struct action *a = &s->action[i];

		printf("%2u: side %u: %s %zu", i, a->side, calls[a->call], a->size);
		print_outcome("threads", &a->outcome[0]);
		print_outcome("tasks", &a->outcome[1]);
		printf("\n");
	}
	fflush(stdout);
}

static bool is_same(const struct outcome *a, const struct outcome *b)
{
	return a->result == b->result && a->error == b->error && a->data == b->data &&
	       a->helped == b->helped && a->late == b->late && a->skipped == b->skipped;
}

/* The other side's reset may come before a call of TCP or after it: from then on, both are right. */
static bool is_reset(const struct sequence *s, const struct action *a)
{
	return s->kind == TCP &&
	       (a->outcome[0].error == ECONNRESET || a->outcome[1].error == ECONNRESET);
}

static bool agrees(const struct sequence *s)
{
	for (unsigned int i = 0; i < s->count && !is_reset(s, &s->action[i]); i++)
		if (!is_same(&s->action[i].outcome[0], &s->action[i].outcome[1]))
			return false;
	return true;
}

static uint64_t seed;

static void watchdog(int number)
{
	printf("sched_differential: a batch took too long, with %s; seed %" PRIu64 "\n",
	       run.tasks ? "tasks" : "threads", seed);
	for (unsigned int i = 0, at = 0; i < run.sequences; at += run.batch[i++].count)
		if (at + run.batch[i].count > atomic_load(&run.at)) {
			printf("at %u of ", atomic_load(&run.at) - at);
			print_sequence(&run.batch[i]);
			break;
		}
	abort();
}
// NOLINTEND(bugprone-signal-handler,cert-sig30-c)

static void new_buffers(void)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);

	for (unsigned int i = 0; i < 2; i++) {
		char *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		mprotect(pages + page, page, PROT_NONE);
		run.buffer[i] = pages + page - MOST;
	}
}

int main(int argc, char **argv)
{
	static struct sequence batch[BATCH];
	const unsigned long wanted = argc > 2 ? strtoul(argv[2], NULL, 10) :
						(unsigned long)LOOPS(2000);
	unsigned long done = 0;

	slots = argc > 1 ? (unsigned int)atoi(argv[1]) : 1;
	seed = argc > 3 ? strtoull(argv[3], NULL, 10) : (uint64_t)time(NULL);
	if (!switchto_backend() && errno == ENOSYS)
		return SKIPPED;
	signal(SIGPIPE, SIG_IGN);
	signal(SIGALRM, watchdog);
	new_buffers();
	while (done < wanted) {
		const unsigned int n = wanted - done < BATCH ? (unsigned int)(wanted - done) :
							       BATCH;

		/* Each batch can be made again: its seed is the first one's and its number. */
		dice = (uint32_t)((seed + done) * 2654435761U) | 1;
		for (unsigned int i = 0; i < n; i++)
			generate(&batch[i]);
		alarm(120);
		play_all(batch, n, false);
		play_all(batch, n, true);
		for (unsigned int i = 0; i < n; i++)
			if (!agrees(&batch[i])) {
				printf("sched_differential: wanted that both agree, found that they "
				       "do not; repeat it with SLOTS %u %" PRIu64 "\n",
				       n, seed + done);
				print_sequence(&batch[i]);
				return 1;
			}
		if (atomic_load(&verdict.failed)) {
			printf("sched_differential: %s; seed %" PRIu64 "\n", verdict.text,
			       seed + done);
			return 1;
		}
		done += n;
	}
	printf("sched_differential: ok sequences=%lu seed=%" PRIu64 "\n", done, seed);
	return 0;
}
