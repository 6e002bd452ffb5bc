// SPDX-License-Identifier: MIT
/*
 * A call of the layer is the system call of its name, on a descriptor that blocks: where the kernel
 * ends a call early, where it waits for what no event tells of, and what it gives back in the end.
 * tests/sched/differential.c compares the two at random.
 */
#include "sched.h"

#include <arpa/inet.h>
#include <linux/net_tstamp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/sendfile.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <termios.h>

/* Long enough for any machine, and short enough for a test that hangs. */
static struct timespec late(void)
{
	return in(240 * NSEC_PER_SEC);
}

static struct timespec soon(void)
{
	return in(NSEC_PER_SEC / 100);
}

static int ends[2];

/* A connection of TCP: ends[0] is accepted. */
static void connect_tcp(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	socklen_t length = sizeof(address);

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(bind(listener, (struct sockaddr *)&address, length), 0);
	assert_int_equal(listen(listener, 1), 0);
	assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &length), 0);
	ends[1] = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(connect(ends[1], (struct sockaddr *)&address, length), 0);
	ends[0] = accept(listener, NULL, NULL);
	assert_true(ends[0] >= 0);
	close(listener);
}

static void close_ends(void)
{
	switchto_close(ends[0]);
	switchto_close(ends[1]);
}

/* --- a short read hides nothing --- */

/* What ends a read early, and is written in one go: so one event tells of all of it. */
static void send_urgent(void)
{
	CHECK_EQ(&verdict, send(ends[1], "abc", 3, 0), 3);
	CHECK_EQ(&verdict, send(ends[1], "X", 1, MSG_OOB), 1);
	CHECK_EQ(&verdict, send(ends[1], "def", 3, 0), 3);
}

union control {
	struct cmsghdr header;
	char room[CMSG_SPACE(sizeof(int))];
};

/* @part, with a descriptor in @control. */
static struct msghdr with_descriptor(struct iovec *part, union control *control)
{
	*control = (union control){ .header = { .cmsg_len = CMSG_LEN(sizeof(int)),
						.cmsg_level = SOL_SOCKET,
						.cmsg_type = SCM_RIGHTS } };
	memcpy(CMSG_DATA(&control->header), &ends[1], sizeof(ends[1]));
	return (struct msghdr){
		.msg_iov = part,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(*control),
	};
}

static void send_descriptor(const char *text)
{
	struct iovec part = { (void *)(uintptr_t)text, 3 };
	union control control;
	const struct msghdr message = with_descriptor(&part, &control);

	CHECK_EQ(&verdict, sendmsg(ends[1], &message, 0), 3);
}

static void send_descriptors(void)
{
	send_descriptor("abc");
	send_descriptor("def");
}

static void send_packets(void)
{
	CHECK_EQ(&verdict, fcntl(ends[1], F_SETFL, O_DIRECT), 0);
	CHECK_EQ(&verdict, write(ends[1], "abc", 3), 3);
	CHECK_EQ(&verdict, write(ends[1], "def", 3), 3);
}

static void send_twice(void)
{
	CHECK_EQ(&verdict, write(ends[1], "abc", 3), 3);
	CHECK_EQ(&verdict, write(ends[1], "def", 3), 3);
}

struct seam {
	void (*send)(void);
	bool receive; /* with recv(2) */
	bool fault;   /* the buffer ends after three bytes */
};

static void sender(void *arg)
{
	const struct seam *seam = arg;

	seam->send();
}

static void read_across(void *arg)
{
	const struct seam *seam = arg;
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			   0);
	char *buffer = pages + page - 3, got[8] = "";
	struct timespec time = soon();
	ssize_t n, total = 0;

	if (seam->fault)
		CHECK_EQ(&verdict, mprotect(pages + page, page, PROT_NONE), 0);
	/* The descriptor is known, and empty. */
	CHECK_ERR(&verdict, switchto_read(ends[0], buffer, 3, &time), ETIMEDOUT);
	spawn(NULL, sender, arg);
	time = late();
	while (total < 6) {
		n = seam->receive ? switchto_recv(ends[0], buffer, 100, 0, &time) :
				    switchto_read(ends[0], buffer, 100, &time);
		CHECK_EQ(&verdict, n, 3);
		if (n != 3)
			break;
		memcpy(got + total, buffer, 3);
		total += n;
	}
	CHECK(&verdict, strcmp(got, "abcdef") == 0);
	munmap(pages, 2 * page);
}

enum { READS = 20 };

/* The rest is found at once, and not when the monitor looks at the descriptor. */
static void read_at_once(void *arg)
{
	struct timespec time = soon();
	long long least = NSEC_PER_SEC;
	char buffer[8];

	/* The descriptor is known, and empty. */
	CHECK_ERR(&verdict, switchto_recv(ends[0], buffer, 8, 0, &time), ETIMEDOUT);
	time = late();
	/* Others use the CPU, too: once is enough. */
	for (int i = 0; i < 10 && least >= NSEC_PER_SEC / 10; i++) {
		const long long before = now_ns();

		for (int j = 0; j < READS; j++) {
			send_descriptors();
			CHECK_EQ(&verdict, switchto_recv(ends[0], buffer, 8, 0, &time), 3);
			CHECK_EQ(&verdict, switchto_recv(ends[0], buffer, 8, 0, &time), 3);
		}
		if (now_ns() - before < least)
			least = now_ns() - before;
	}
	CHECK(&verdict, least < NSEC_PER_SEC / 10);
}

TEST(rest_at_once)
{
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	run_task_in_time(read_at_once, NULL);
	close_ends();
}

TEST(short_reads)
{
	for (int receive = 0; receive < 2; receive++) {
		connect_tcp();
		run_task_in_time(read_across, &(struct seam){ send_urgent, receive, false });
		close_ends();
		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
		run_task_in_time(read_across, &(struct seam){ send_descriptors, receive, false });
		close_ends();
		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
		run_task_in_time(read_across, &(struct seam){ send_twice, receive, true });
		close_ends();
	}
	assert_int_equal(pipe(ends), 0);
	run_task_in_time(read_across, &(struct seam){ send_packets, false, false });
	close_ends();
}

/* --- data that nobody reads --- */

static void leave_unread(void *arg)
{
	const long long before = cpu_ns();
	struct timespec time = soon();
	char byte;

	CHECK_ERR(&verdict, switchto_recv(ends[0], &byte, 1, 0, &time), ETIMEDOUT);
	CHECK_EQ(&verdict, write(ends[1], "abc", 3), 3);
	if (arg)
		CHECK_EQ(&verdict, shutdown(ends[1], SHUT_WR), 0);
	time = in(NSEC_PER_SEC / 2);
	CHECK_EQ(&verdict, switchto_sleep_until(&time), 0);
	CHECK(&verdict, cpu_ns() - before < NSEC_PER_SEC / 20);
	time = late();
	for (int i = 0; i < 3; i++)
		CHECK_EQ(&verdict, switchto_recv(ends[0], &byte, 1, 0, &time), 1);
	if (arg)
		CHECK_EQ(&verdict, switchto_recv(ends[0], &byte, 1, 0, &time), 0);
	/* What comes from now on is found as well. */
	else
		for (int i = 0; i < 3; i++) {
			CHECK_EQ(&verdict, write(ends[1], "ab", 2), 2);
			CHECK_EQ(&verdict, switchto_recv(ends[0], &byte, 1, 0, &time), 1);
			CHECK_EQ(&verdict, switchto_recv(ends[0], &byte, 1, 0, &time), 1);
			time = soon();
			CHECK_ERR(&verdict, switchto_recv(ends[0], &byte, 1, 0, &time), ETIMEDOUT);
			time = late();
		}
}

TEST(unread)
{
	for (int hangs_up = 0; hangs_up < 2; hangs_up++) {
		connect_tcp();
		run_task_in_time(leave_unread, hangs_up ? ends : NULL);
		close_ends();
	}
}

/* --- an entry in the queue of errors --- */

static int pipes[2];

static void wait_beside_error(void *arg)
{
	const long long before = cpu_ns();
	struct timespec time = in(NSEC_PER_SEC / 2);
	char byte;

	if (arg)
		CHECK_ERR(&verdict, switchto_recv(ends[0], &byte, 1, 0, &time), ETIMEDOUT);
	else
		CHECK_ERR(&verdict, switchto_splice(ends[0], NULL, pipes[1], NULL, 10, 0, &time),
			  ETIMEDOUT);
	CHECK(&verdict, cpu_ns() - before < NSEC_PER_SEC / 20);
	CHECK_EQ(&verdict, switchto_poll(ends[0], POLLIN, NULL), POLLERR);
	CHECK_EQ(&verdict, write(ends[1], "x", 1), 1);
	time = late();
	CHECK_EQ(&verdict, switchto_splice(ends[0], NULL, pipes[1], NULL, 10, 0, &time), 1);
}

TEST(errors_queued)
{
	const int on = SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE;

	for (int receive = 0; receive < 2; receive++) {
		struct pollfd poller;

		connect_tcp();
		assert_int_equal(pipe(pipes), 0);
		assert_int_equal(setsockopt(ends[0], SOL_SOCKET, SO_TIMESTAMPING, &on, sizeof(on)),
				 0);
		assert_int_equal(send(ends[0], "x", 1, 0), 1);
		poller = (struct pollfd){ .fd = ends[0] };
		assert_int_equal(poll(&poller, 1, 60000), 1);
		run_task_in_time(wait_beside_error, receive ? ends : NULL);
		close_ends();
		switchto_close(pipes[0]);
		switchto_close(pipes[1]);
	}
}

/* --- whole writes and receives --- */

enum { MUCH = 4 << 20 };

static char much[MUCH];

static void *drain(void *arg)
{
	static char buffer[65536];
	size_t total = 0;
	ssize_t n;

	usleep(20000);
	while ((n = read(ends[0], buffer, sizeof(buffer))) > 0)
		for (ssize_t i = 0; i < n; i++, total++)
			CHECK_EQ(&verdict, (unsigned char)buffer[i], total % 251);
	CHECK_EQ(&verdict, total, MUCH);
	return arg;
}

enum how { WRITE, WRITEV, SEND, SENDMSG, SENDMMSG, SENDMMSG_ONE, HOWS };

static void write_whole(void *arg)
{
	const enum how how = *(enum how *)arg;
	struct iovec parts[] = { { much, 1000 },
				 { much + 1000, 0 },
				 { much + 1000, MUCH - 5000 },
				 { much + MUCH - 4000, 1000 },
				 { much + MUCH - 3000, 3000 } };
	struct msghdr message = { .msg_iov = parts, .msg_iovlen = 5 };
	struct mmsghdr messages[] = { { .msg_hdr = { .msg_iov = parts, .msg_iovlen = 3 } },
				      { .msg_hdr = { .msg_iov = parts + 3, .msg_iovlen = 2 } } };
	struct timespec time = late();

	switch (how) {
	case WRITE:
		CHECK_EQ(&verdict, switchto_write(ends[1], much, MUCH, &time), MUCH);
		break;
	case WRITEV:
		CHECK_EQ(&verdict, switchto_writev(ends[1], parts, 5, &time), MUCH);
		break;
	case SEND:
		CHECK_EQ(&verdict, switchto_send(ends[1], much, MUCH, 0, &time), MUCH);
		break;
	case SENDMSG: {
		/* There, poll(2) fails, as it would in a loop that steps. */
		const bool limits = !getenv("TEST_STEPS");
		const rlim_t old = limits ? set_limit(RLIMIT_NOFILE, 0) : 0;

		CHECK_EQ(&verdict, switchto_sendmsg(ends[1], &message, 0, &time), MUCH);
		if (limits)
			set_limit(RLIMIT_NOFILE, old);
		break;
	}
	case SENDMMSG:
		CHECK_EQ(&verdict, switchto_sendmmsg(ends[1], messages, 2, 0, &time), 2);
		CHECK_EQ(&verdict, messages[0].msg_len, MUCH - 4000);
		CHECK_EQ(&verdict, messages[1].msg_len, 4000);
		break;
	default:
		messages[0].msg_hdr = message;
		CHECK_EQ(&verdict, switchto_sendmmsg(ends[1], messages, 1, 0, &time), 1);
		CHECK_EQ(&verdict, messages[0].msg_len, MUCH);
	}
	CHECK_EQ(&verdict, switchto_close(ends[1]), 0);
}

TEST(whole_writes)
{
	for (unsigned int i = 0; i < MUCH; i++)
		much[i] = (char)(i % 251);
	for (int kind = 0; kind < 3; kind++)
		for (enum how how = 0; how < (kind == 2 ? SEND : HOWS); how++) {
			pthread_t thread;

			if (kind == 0)
				connect_tcp();
			else if (kind == 1)
				assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
			else
				assert_int_equal(pipe(ends), 0);
			assert_int_equal(pthread_create(&thread, NULL, drain, NULL), 0);
			run_task_in_time(write_whole, &how);
			pthread_join(thread, NULL);
			verdict_assert(&verdict);
			close(ends[0]);
		}
}

enum { SOMEBODY = 1234 };

/* Counts what comes from SOMEBODY. */
static void *read_from_somebody(void *arg)
{
	static char buffer[4096];
	char control[CMSG_SPACE(sizeof(struct ucred))];
	struct iovec part = { buffer, sizeof(buffer) };
	struct ucred sender;
	size_t total = 0;

	usleep(20000);
	for (;;) {
		struct msghdr message = { .msg_iov = &part,
					  .msg_iovlen = 1,
					  .msg_control = control,
					  .msg_controllen = sizeof(control) };
		const ssize_t n = recvmsg(ends[0], &message, 0);

		if (n <= 0)
			break;
		memcpy(&sender, control + CMSG_LEN(0), sizeof(sender));
		total += sender.uid == SOMEBODY ? (size_t)n : 0;
	}
	CHECK_EQ(&verdict, total, MUCH);
	return arg;
}

static void send_as_somebody(void *arg)
{
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(struct ucred))];
	} control = { .header = { CMSG_LEN(sizeof(struct ucred)), SOL_SOCKET, SCM_CREDENTIALS } };
	const struct ucred sender = { getpid(), SOMEBODY, SOMEBODY };
	struct iovec part = { much, MUCH };
	const struct msghdr message = { .msg_iov = &part,
					.msg_iovlen = 1,
					.msg_control = &control,
					.msg_controllen = sizeof(control) };

	memcpy(CMSG_DATA(&control.header), &sender, sizeof(sender));
	CHECK_EQ(&verdict, switchto_sendmsg(ends[1], &message, 0, NULL), MUCH);
	CHECK_EQ(&verdict, switchto_close(ends[1]), 0);
}

TEST(sender_of_all)
{
	const int on = 1;
	pthread_t thread;

	if (geteuid() != 0)
		skip();
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	assert_int_equal(setsockopt(ends[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)), 0);
	assert_int_equal(pthread_create(&thread, NULL, read_from_somebody, NULL), 0);
	run_task_in_time(send_as_somebody, NULL);
	pthread_join(thread, NULL);
	verdict_assert(&verdict);
	close(ends[0]);
}

static atomic_bool writes;

/* It says how much went, and then the error. */
static void write_in_part(void *arg)
{
	struct timespec time = in(NSEC_PER_SEC / 20);
	ssize_t n = switchto_write(ends[1], much, MUCH, &time);

	CHECK(&verdict, n > 0 && n < MUCH);
	CHECK_ERR(&verdict, switchto_write(ends[1], much, MUCH, &time), ETIMEDOUT);
	atomic_store(&writes, true);
	CHECK_EQ(&verdict, read(ends[0], arg, 65536), 65536);
	n = switchto_write(ends[1], much, MUCH, NULL);
	CHECK(&verdict, n > 0 && n < MUCH);
	CHECK_ERR(&verdict, switchto_write(ends[1], much, MUCH, NULL), ECANCELED);
}

static void cancel_it(void *task)
{
	struct timespec time;

	while (!atomic_load(&writes)) {
		time = soon();
		CHECK_EQ(&verdict, switchto_sleep_until(&time), 0);
	}
	time = in(NSEC_PER_SEC / 10);
	CHECK_EQ(&verdict, switchto_sleep_until(&time), 0);
	CHECK_EQ(&verdict, switchto_cancel(task), 0);
	CHECK_EQ(&verdict, switchto_join(task), 0);
}

TEST(parts_of_writes)
{
	static char buffer[65536];

	assert_int_equal(pipe(ends), 0);
	atomic_store(&writes, false);
	add_task(cancel_it, add_handle(write_in_part, buffer));
	run_added_in_time();
	close_ends();
}

/* The peer goes in the middle of a write: how much went, and the next call has the error. */
static void write_to_leaver(void *arg)
{
	ssize_t n = switchto_send(ends[1], much, MUCH, 0, NULL);

	CHECK(&verdict, n > 0 && n < MUCH);
	CHECK_EQ(&verdict, switchto_send(ends[1], much, MUCH, MSG_NOSIGNAL, NULL), -1);
	CHECK_EQ(&verdict, errno, ECONNRESET);
}

static void leave(void *arg)
{
	struct timespec time;

	CHECK_EQ(&verdict, switchto_poll(ends[0], POLLIN, NULL), POLLIN);
	time = in(NSEC_PER_SEC / 20);
	CHECK_EQ(&verdict, switchto_sleep_until(&time), 0);
	CHECK_EQ(&verdict, switchto_close(ends[0]), 0);
}

TEST(peer_leaves)
{
	/* Nothing but the error may tell of it. */
	signal(SIGPIPE, SIG_DFL);
	connect_tcp();
	add_task(write_to_leaver, NULL);
	add_task(leave, NULL);
	run_added();
	close(ends[1]);
}

static void send_later(void *arg)
{
	struct timespec time = soon();

	CHECK_EQ(&verdict, switchto_sleep_until(&time), 0);
	CHECK_EQ(&verdict, write(ends[1], arg, strlen(arg)), strlen(arg));
}

static void wait_for_all(void *arg)
{
	struct timespec time = late();
	char buffer[8], tail[4];
	struct iovec parts[] = { { buffer, 5 }, { tail, 3 } };
	struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2 };

	/* On a stream of UNIX, a peek takes what is there: so says the system call. */
	for (int peek = 0; peek < (arg ? 2 : 1); peek++) {
		CHECK_EQ(&verdict, write(ends[1], "abcd", 4), 4);
		spawn(NULL, send_later, "efgh");
		CHECK_EQ(&verdict,
			 switchto_recv(ends[0], buffer, 8, MSG_WAITALL | (peek ? MSG_PEEK : 0),
				       &time),
			 8);
		CHECK(&verdict, memcmp(buffer, "abcdefgh", 8) == 0);
	}
	if (arg) {
		CHECK_EQ(&verdict,
			 switchto_recvmsg(ends[0], &message, MSG_WAITALL | MSG_PEEK, &time), 8);
		CHECK(&verdict, memcmp(tail, "fgh", 3) == 0);
		CHECK_EQ(&verdict, switchto_recv(ends[0], buffer, 8, MSG_WAITALL, &time), 8);
	}
	CHECK_EQ(&verdict, write(ends[1], "abc", 3), 3);
	spawn(NULL, send_later, "defgh");
	CHECK_EQ(&verdict, switchto_recvmsg(ends[0], &message, MSG_WAITALL, &time), 8);
	CHECK(&verdict, memcmp(buffer, "abcde", 5) == 0 && memcmp(tail, "fgh", 3) == 0);
	/* What there is when the time is over, and at the end. */
	CHECK_EQ(&verdict, write(ends[1], "abc", 3), 3);
	time = soon();
	CHECK_EQ(&verdict, switchto_recv(ends[0], buffer, 8, MSG_WAITALL, &time), 3);
	CHECK_ERR(&verdict, switchto_recv(ends[0], buffer, 8, MSG_WAITALL, &time), ETIMEDOUT);
	CHECK_EQ(&verdict, write(ends[1], "ab", 2), 2);
	CHECK_EQ(&verdict, shutdown(ends[1], SHUT_WR), 0);
	CHECK_EQ(&verdict, switchto_recv(ends[0], buffer, 8, MSG_WAITALL, NULL), 2);
	CHECK_EQ(&verdict, switchto_recv(ends[0], buffer, 8, MSG_WAITALL, NULL), 0);
}

/* It ends at a seam. */
static void wait_for_part(void *arg)
{
	struct timespec time = late();
	char buffer[8];

	if (arg) {
		send_descriptor("abc");
	} else {
		CHECK_EQ(&verdict, send(ends[1], "abc", 3, 0), 3);
		CHECK_EQ(&verdict, send(ends[1], "X", 1, MSG_OOB), 1);
	}
	CHECK_EQ(&verdict, switchto_recv(ends[0], buffer, 8, MSG_WAITALL, &time), 3);
}

static void close_later(void *fd)
{
	struct timespec time = soon();

	CHECK_EQ(&verdict, switchto_sleep_until(&time), 0);
	CHECK_EQ(&verdict, switchto_close(*(int *)fd), 0);
}

/* A part is there, but that is of a descriptor that is gone. */
static void peek_until_closed(void *arg)
{
	struct timespec time = late();
	char buffer[8];

	CHECK_EQ(&verdict, write(ends[1], "abc", 3), 3);
	spawn(NULL, close_later, &ends[0]);
	CHECK_ERR(&verdict, switchto_recv(ends[0], buffer, 8, MSG_PEEK | MSG_WAITALL, &time),
		  EBADF);
}

TEST(all_received)
{
	connect_tcp();
	run_task_in_time(wait_for_all, ends);
	close_ends();
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	run_task_in_time(wait_for_all, NULL);
	close_ends();
	connect_tcp();
	run_task_in_time(wait_for_part, NULL);
	close_ends();
	connect_tcp();
	run_task_in_time(peek_until_closed, NULL);
	close(ends[1]);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	run_task_in_time(wait_for_part, ends);
	close_ends();
}

/* --- several messages --- */

static void receive_messages(void *arg)
{
	int numbers[4] = { 0 };
	struct iovec parts[4];
	struct mmsghdr messages[4] = { 0 };
	struct timespec time = late();

	for (int i = 0; i < 4; i++) {
		parts[i] = (struct iovec){ &numbers[i], sizeof(int) };
		messages[i].msg_hdr.msg_iov = &parts[i];
		messages[i].msg_hdr.msg_iovlen = 1;
	}
	CHECK_EQ(&verdict, write(ends[1], "abc", 3), 3);
	CHECK_EQ(&verdict, switchto_recvmmsg(ends[0], messages, 4, MSG_WAITFORONE, &time), 1);
	CHECK_EQ(&verdict, write(ends[1], "abc", 3), 3);
	CHECK_EQ(&verdict, switchto_recvmmsg(ends[0], messages, 4, MSG_DONTWAIT, NULL), 1);
	CHECK_EQ(&verdict, write(ends[1], "abc", 3), 3);
	spawn(NULL, send_later, "d");
	spawn(NULL, send_later, "e");
	CHECK_EQ(&verdict, switchto_recvmmsg(ends[0], messages, 3, 0, &time), 3);
	CHECK_EQ(&verdict, write(ends[1], "abc", 3), 3);
	time = soon();
	CHECK_EQ(&verdict, switchto_recvmmsg(ends[0], messages, 3, 0, &time), 1);
	CHECK_ERR(&verdict, switchto_recvmmsg(ends[0], messages, 3, 0, &time), ETIMEDOUT);
}

/* More than sendmmsg(2) takes in one call. */
enum { MANY = 1200 };

static void send_many(void *arg)
{
	struct timespec time = late();

	for (int i = 0; i < MANY; i++)
		CHECK_EQ(&verdict, switchto_send(ends[1], "m", 1, 0, &time), 1);
}

static void receive_many(void *arg)
{
	static struct mmsghdr messages[MANY];
	struct timespec time = late();

	memset(messages, 0, sizeof(messages));
	spawn(NULL, send_many, NULL);
	CHECK_EQ(&verdict, switchto_recvmmsg(ends[0], messages, MANY, 0, &time), MANY);
}

/* Of a stream, each message is full, and the one that the end cuts short is the next to last. */
static void receive_full_messages(void *arg)
{
	char room[3][4];
	struct iovec parts[3];
	struct mmsghdr messages[3] = { 0 };
	struct timespec time = late();

	for (int i = 0; i < 3; i++) {
		parts[i] = (struct iovec){ room[i], sizeof(room[i]) };
		messages[i].msg_hdr.msg_iov = &parts[i];
		messages[i].msg_hdr.msg_iovlen = 1;
	}
	CHECK_EQ(&verdict, write(ends[1], "abc", 3), 3);
	spawn(NULL, send_later, "defgh");
	CHECK_EQ(&verdict, switchto_recvmmsg(ends[0], messages, 2, MSG_WAITALL, &time), 2);
	CHECK_EQ(&verdict, messages[0].msg_len, 4);
	CHECK_EQ(&verdict, messages[1].msg_len, 4);
	CHECK_EQ(&verdict, write(ends[1], "ab", 2), 2);
	spawn(NULL, send_later, "cdef");
	CHECK_EQ(&verdict,
		 switchto_recvmmsg(ends[0], messages, 3, MSG_WAITALL | MSG_WAITFORONE, &time), 2);
	CHECK_EQ(&verdict, messages[0].msg_len, 4);
	CHECK_EQ(&verdict, messages[1].msg_len, 2);
	CHECK_EQ(&verdict, write(ends[1], "abcde", 5), 5);
	CHECK_EQ(&verdict, shutdown(ends[1], SHUT_WR), 0);
	CHECK_EQ(&verdict, switchto_recvmmsg(ends[0], messages, 3, MSG_WAITALL, &time), 3);
	CHECK_EQ(&verdict, messages[1].msg_len, 1);
	CHECK_EQ(&verdict, messages[2].msg_len, 0);
	CHECK_EQ(&verdict, shutdown(ends[0], SHUT_WR), 0);
	CHECK_EQ(&verdict, switchto_recvmmsg(ends[0], messages, 3, MSG_WAITALL, &time), 3);
}

TEST(messages_received)
{
	connect_tcp();
	run_task_in_time(receive_full_messages, NULL);
	close_ends();
	assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends), 0);
	run_task_in_time(receive_messages, NULL);
	run_task_in_time(receive_many, NULL);
	close_ends();
}

/* --- connections --- */

static struct sockaddr_un un;
static socklen_t un_length;
static struct sockaddr_in in_address;
static int listener;
static atomic_uint connected;

static int bind_unix(int type)
{
	int fd = socket(AF_UNIX, type, 0);

	un = (struct sockaddr_un){ .sun_family = AF_UNIX };
	un_length = sizeof(un);
	/* The kernel chooses a name. */
	CHECK_EQ(&verdict, bind(fd, (struct sockaddr *)&un, sizeof(sa_family_t)), 0);
	CHECK_EQ(&verdict, getsockname(fd, (struct sockaddr *)&un, &un_length), 0);
	return fd;
}

enum { CLIENTS = 10 };

static void connect_to_full(void *arg)
{
	struct timespec time = late();
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	CHECK_EQ(&verdict, switchto_connect(fd, (struct sockaddr *)&un, un_length, &time), 0);
	atomic_fetch_add(&connected, 1);
	CHECK_EQ(&verdict, switchto_close(fd), 0);
}

static void accept_late(void *arg)
{
	const struct timespec bad = { 0, -1 };
	const long long before = cpu_ns();
	struct timespec time = soon();
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	for (int i = 0; i < CLIENTS; i++)
		spawn(NULL, connect_to_full, NULL);
	CHECK_EQ(&verdict, switchto_yield(), 0);
	time = in(NSEC_PER_SEC / 5);
	CHECK_ERR(&verdict, switchto_connect(fd, (struct sockaddr *)&un, un_length, &time),
		  ETIMEDOUT);
	CHECK_ERR(&verdict, switchto_connect(fd, (struct sockaddr *)&un, un_length, &bad), EINVAL);
	CHECK(&verdict, atomic_load(&connected) < CLIENTS);
	CHECK(&verdict, cpu_ns() - before < NSEC_PER_SEC / 10);
	CHECK_EQ(&verdict, switchto_close(fd), 0);
	time = late();
	for (int i = 0; i < CLIENTS; i++) {
		fd = switchto_accept(listener, NULL, NULL, 0, &time);
		CHECK(&verdict, fd >= 0);
		CHECK_EQ(&verdict, switchto_close(fd), 0);
	}
}

TEST(full_backlog)
{
	atomic_store(&connected, 0);
	listener = bind_unix(SOCK_STREAM);
	assert_int_equal(listen(listener, 1), 0);
	run_task_in_time(accept_late, NULL);
	assert_int_equal(atomic_load(&connected), CLIENTS);
	switchto_close(listener);
}

static void connect_again(void *arg)
{
	const struct sockaddr *to = (struct sockaddr *)&in_address;
	const socklen_t size = sizeof(in_address);
	int fd = socket(AF_INET, SOCK_STREAM, 0), other;
	struct sockaddr none = { .sa_family = AF_UNSPEC };
	struct timespec time = late();
	char byte;

	CHECK_ERR(&verdict, switchto_connect(fd, to, size, &time), ECONNREFUSED);
	CHECK_EQ(&verdict, listen(listener, 1), 0);
	CHECK_EQ(&verdict, switchto_connect(fd, to, size, &time), 0);
	CHECK_ERR(&verdict, switchto_connect(fd, to, size, &time), EISCONN);
	other = switchto_accept(listener, NULL, NULL, 0, &time);
	CHECK(&verdict, other >= 0);
	CHECK_EQ(&verdict, switchto_send(other, "x", 1, 0, &time), 1);
	CHECK_EQ(&verdict, switchto_recv(fd, &byte, 1, 0, &time), 1);
	CHECK_EQ(&verdict, switchto_connect(fd, &none, sizeof(none), &time), 0);
	CHECK_EQ(&verdict, switchto_connect(fd, to, size, &time), 0);
	CHECK_EQ(&verdict, switchto_close(other), 0);
	CHECK_EQ(&verdict, switchto_close(fd), 0);
	/* Datagrams: at once, and again. */
	fd = socket(AF_INET, SOCK_DGRAM, 0);
	CHECK_EQ(&verdict, switchto_connect(fd, to, size, &time), 0);
	CHECK_EQ(&verdict, switchto_connect(fd, to, size, &time), 0);
	CHECK_EQ(&verdict, switchto_close(fd), 0);
}

static void connect_as_well(void *fd)
{
	struct timespec time = late();

	/* On a busy machine it may begin when the connection is there. */
	CHECK(&verdict, !switchto_connect(*(int *)fd, (struct sockaddr *)&in_address,
					  sizeof(in_address), &time) ||
				errno == EISCONN);
}

/* The listener's queue is full: the kernel drops what comes, and sends it again after a second. */
static void connect_in_vain(void *arg)
{
	const struct sockaddr *to = (struct sockaddr *)&in_address;
	const socklen_t size = sizeof(in_address);
	struct switchto_task *other;
	struct timespec time;
	int fds[6], waits = -1, fd;

	for (int i = 0; i < 6 && waits < 0; i++) {
		fds[i] = socket(AF_INET, SOCK_STREAM, 0);
		time = in(NSEC_PER_SEC / 20);
		if (switchto_connect(fds[i], to, size, &time)) {
			CHECK_EQ(&verdict, errno, ETIMEDOUT);
			waits = i;
		}
	}
	CHECK(&verdict, waits > 0);
	if (waits < 0)
		return;
	time = soon();
	CHECK_ERR(&verdict, switchto_connect(fds[waits], to, size, &time), ETIMEDOUT);
	fd = socket(AF_INET, SOCK_STREAM, 0);
	time = soon();
	CHECK_EQ(&verdict, switchto_sendto(fd, "x", 1, MSG_FASTOPEN, to, size, &time), -1);
	/* The latter by net.ipv4.tcp_fastopen. */
	CHECK(&verdict, errno == ETIMEDOUT || errno == EOPNOTSUPP);
	CHECK_EQ(&verdict, switchto_close(fd), 0);
	other = spawn_handle(NULL, connect_as_well, &fds[waits]);
	CHECK_EQ(&verdict, switchto_yield(), 0);
	time = late();
	for (int i = 0; i < waits; i++) {
		fd = switchto_accept(listener, NULL, NULL, 0, &time);
		CHECK_EQ(&verdict, switchto_close(fd), 0);
		CHECK_EQ(&verdict, switchto_close(fds[i]), 0);
	}
	/* A further call waits for the first one's connection. */
	CHECK_EQ(&verdict, switchto_connect(fds[waits], to, size, &time), 0);
	CHECK_EQ(&verdict, switchto_join(other), 0);
	CHECK_ERR(&verdict, switchto_connect(fds[waits], to, size, &time), EISCONN);
	CHECK_EQ(&verdict, switchto_close(fds[waits]), 0);
}

static void bind_listener(void)
{
	socklen_t length = sizeof(in_address);

	listener = socket(AF_INET, SOCK_STREAM, 0);
	in_address = (struct sockaddr_in){ .sin_family = AF_INET };
	in_address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(bind(listener, (struct sockaddr *)&in_address, length), 0);
	assert_int_equal(getsockname(listener, (struct sockaddr *)&in_address, &length), 0);
}

TEST(connections)
{
	bind_listener();
	run_task_in_time(connect_again, NULL);
	close(listener);
	bind_listener();
	assert_int_equal(listen(listener, 0), 0);
	run_task_in_time(connect_in_vain, NULL);
	close(listener);
}

/* --- a receiver of datagrams that is full --- */

static int receiver;

enum { DATAGRAMS = 100 };

static void receive_slowly(void *arg)
{
	struct timespec time = in(NSEC_PER_SEC / 5);
	char buffer[8];

	CHECK_EQ(&verdict, switchto_sleep_until(&time), 0);
	time = late();
	for (int i = 0; i < DATAGRAMS; i++)
		CHECK_EQ(&verdict, switchto_recv(receiver, buffer, sizeof(buffer), 0, &time), 1);
}

static void send_to_full(void *arg)
{
	const long long before = cpu_ns();
	const struct sockaddr *to = (struct sockaddr *)&un;
	struct iovec part = { "x", 1 };
	struct msghdr message = {
		.msg_name = &un, .msg_namelen = un_length, .msg_iov = &part, .msg_iovlen = 1
	};
	int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
	struct timespec time = in(NSEC_PER_SEC / 10);
	int sent = 0;

	if (arg)
		CHECK_EQ(&verdict, switchto_connect(fd, to, un_length, NULL), 0);
	for (;; sent++)
		if ((arg      ? switchto_send(fd, "x", 1, 0, &time) :
		     sent % 2 ? switchto_sendto(fd, "x", 1, 0, to, un_length, &time) :
				switchto_sendmsg(fd, &message, 0, &time)) != 1)
			break;
	CHECK_EQ(&verdict, errno, ETIMEDOUT);
	CHECK(&verdict, sent > 0 && sent < DATAGRAMS);
	CHECK(&verdict, cpu_ns() - before < NSEC_PER_SEC / 20);
	time = late();
	for (; sent < DATAGRAMS; sent++)
		CHECK_EQ(&verdict,
			 arg ? switchto_send(fd, "x", 1, 0, &time) :
			       switchto_sendto(fd, "x", 1, 0, to, un_length, &time),
			 1);
	CHECK_EQ(&verdict, switchto_close(fd), 0);
}

TEST(full_receiver)
{
	for (int connects = 0; connects < 2; connects++) {
		receiver = bind_unix(SOCK_DGRAM);
		add_task(receive_slowly, NULL);
		add_task(send_to_full, connects ? &un : NULL);
		run_added();
		switchto_close(receiver);
	}
}

/* --- files --- */

static char folder[] = "/tmp/switchto-XXXXXX", path[64];
static atomic_int opened;

static void make_path(void)
{
	strcpy(folder + sizeof(folder) - 7, "XXXXXX");
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/file", folder);
}

static void remove_path(void)
{
	assert_int_equal(unlink(path), 0);
	assert_int_equal(rmdir(folder), 0);
}

static void open_reader(void *arg)
{
	struct timespec time = late();
	char text[8];
	int fd = switchto_openat(AT_FDCWD, path, O_RDONLY, 0);

	CHECK(&verdict, fd >= 0);
	atomic_store(&opened, 1);
	CHECK_EQ(&verdict, switchto_read(fd, text, sizeof(text), &time), 5);
	CHECK_EQ(&verdict, switchto_read(fd, text, sizeof(text), &time), 0);
	CHECK_EQ(&verdict, switchto_close(fd), 0);
}

static void open_writer(void *arg)
{
	struct timespec time = in(NSEC_PER_SEC / 20);
	int fd;

	CHECK_EQ(&verdict, switchto_sleep_until(&time), 0);
	CHECK_EQ(&verdict, atomic_load(&opened), 0);
	fd = switchto_openat(AT_FDCWD, path, O_WRONLY, 0);
	CHECK(&verdict, fd >= 0);
	time = late();
	CHECK_EQ(&verdict, switchto_write(fd, "hello", 5, &time), 5);
	CHECK_EQ(&verdict, switchto_close(fd), 0);
}

/* What a thread has of its own (CLONE_FS) counts. */
static void open_as_thread(void *arg)
{
	struct stat found;
	int fd;

	/* After the first one, a ring would have another thread. */
	for (int own = 0; own < 2; own++) {
		fd = switchto_openat(AT_FDCWD, path, O_RDWR | O_CREAT | O_EXCL, 0666);
		CHECK_EQ(&verdict, fstat(fd, &found), 0);
		CHECK_EQ(&verdict, switchto_close(fd), 0);
		if (own)
			break;
		CHECK_EQ(&verdict, unlink(path), 0);
		CHECK_EQ(&verdict, unshare(CLONE_FS), 0);
		umask(0);
	}
	CHECK_EQ(&verdict, found.st_mode & 0777, 0666);
}

TEST(own_umask)
{
	make_path();
	run_task_in_time(open_as_thread, NULL);
	remove_path();
}

/* The end is told each time, and poll(2) says nothing. */
static void read_without_writer(void *arg)
{
	const int fd = open(path, O_RDONLY | O_NONBLOCK);
	struct timespec time = late();
	char text[8];

	for (int i = 0; i < 2; i++) {
		CHECK_EQ(&verdict, switchto_read(fd, text, sizeof(text), &time), 0);
		CHECK_EQ(&verdict, switchto_read(fd, text, sizeof(text), &time), 0);
		time = soon();
		CHECK_ERR(&verdict, switchto_poll(fd, POLLIN, &time), ETIMEDOUT);
		time = late();
	}
	CHECK_EQ(&verdict, switchto_close(fd), 0);
}

TEST(fifo)
{
	make_path();
	assert_int_equal(mkfifo(path, 0600), 0);
	run_task_in_time(read_without_writer, NULL);
	atomic_store(&opened, 0);
	add_task(open_reader, NULL);
	add_task(open_writer, NULL);
	run_added();
	remove_path();
}

enum { RECORDS = 2000, READERS = 8 };

static atomic_uchar seen[RECORDS];
static int file;

/* Each record is read once, whoever does it. */
static void read_records(void *arg)
{
	uint32_t record[4];
	ssize_t n;

	while ((n = switchto_read(file, record, sizeof(record), NULL)) == sizeof(record)) {
		CHECK(&verdict, record[0] < RECORDS && record[0] == record[3]);
		if (record[0] < RECORDS)
			atomic_fetch_add(&seen[record[0]], 1);
	}
	CHECK_EQ(&verdict, n, 0);
}

static void write_records(void *arg)
{
	const uint32_t first = (uint32_t)(uintptr_t)arg;

	for (uint32_t i = first; i < RECORDS; i += READERS) {
		const uint32_t record[4] = { i, i, i, i };

		CHECK_EQ(&verdict, switchto_write(file, record, sizeof(record), NULL),
			 sizeof(record));
	}
}

TEST(positions)
{
	for (int append = 0; append < 2; append++) {
		struct switchto_sched *sched = new_sched_with(NULL, 0, 4);

		make_path();
		file = open(path, O_RDWR | O_CREAT | (append ? O_APPEND : 0), 0600);
		assert_true(file >= 0);
		for (uintptr_t i = 0; i < READERS; i++)
			// NOLINTNEXTLINE(performance-no-int-to-ptr)
			spawn(sched, write_records, (void *)i);
		run_tasks(sched);
		assert_int_equal(lseek(file, 0, SEEK_CUR), RECORDS * 16);
		assert_int_equal(lseek(file, 0, SEEK_SET), 0);
		memset((void *)seen, 0, sizeof(seen));
		sched = new_sched_with(NULL, 0, 4);
		for (int i = 0; i < READERS; i++)
			spawn(sched, read_records, NULL);
		run_tasks(sched);
		for (int i = 0; i < RECORDS; i++)
			assert_int_equal(seen[i], 1);
		close(file);
		remove_path();
	}
}

static void use_offsets(void *arg)
{
	char head[4] = "", tail[4] = "";
	struct iovec parts[] = { { head, 3 }, { tail, 3 } };
	const int root = open("/", O_RDONLY);
	struct timespec time = late();
	off_t offset = 1;
	char text[8] = "";

	CHECK_EQ(&verdict, switchto_pwrite(file, "abcdef", 6, 2, NULL), 6);
	CHECK_EQ(&verdict, switchto_pread(file, text, 8, 3, NULL), 5);
	CHECK(&verdict, strcmp(text, "bcdef") == 0);
	CHECK_EQ(&verdict, switchto_preadv(file, parts, 2, 2, NULL), 6);
	CHECK(&verdict, strcmp(head, "abc") == 0 && strcmp(tail, "def") == 0);
	CHECK_EQ(&verdict, switchto_pwritev(file, parts, 2, 0, NULL), 6);
	CHECK_ERR(&verdict, switchto_pread(file, text, 8, -1, NULL), EINVAL);
	CHECK_ERR(&verdict, switchto_pread(ends[0], text, 8, 0, NULL), ESPIPE);
	CHECK_ERR(&verdict, switchto_pread(-1, text, 8, 0, NULL), EBADF);
	/* What a ring would not say. */
	CHECK_ERR(&verdict, switchto_pread(root, text, 0, 0, NULL), EISDIR);
	CHECK_EQ(&verdict, close(root), 0);
	/* The file's own position is where it was. */
	CHECK_EQ(&verdict, switchto_read(file, text, 3, NULL), 3);
	CHECK(&verdict, memcmp(text, "abc", 3) == 0);
	CHECK_EQ(&verdict, switchto_sendfile(ends[1], file, &offset, 5, &time), 5);
	CHECK_EQ(&verdict, offset, 6);
	CHECK_EQ(&verdict, switchto_recv(ends[0], text, 8, 0, &time), 5);
	CHECK(&verdict, memcmp(text, "bcdef", 5) == 0);
	/* To the end of the file. */
	CHECK_EQ(&verdict, switchto_sendfile(ends[1], file, NULL, 100, &time), 5);
	CHECK_EQ(&verdict, switchto_sendfile(ends[1], file, NULL, 100, &time), 0);
}

TEST(offsets)
{
	make_path();
	file = open(path, O_RDWR | O_CREAT, 0600);
	assert_true(file >= 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	run_task_in_time(use_offsets, NULL);
	close_ends();
	close(file);
	remove_path();
}

/* The kernel moves no more in one call. Around this place the file has data, and before it a hole. */
#define LIMIT (INT_MAX & -(long)getpagesize())
#define HOLE (LIMIT - MUCH / 2)

static ssize_t moved[2];

/* Twice more than there is. With the system call, or with the layer and an @offset or without. */
static void send_file(void *arg)
{
	const bool calls = arg == NULL;
	off_t *offset = arg == &ends ? NULL : arg;
	struct timespec time = late();

	for (int i = 0; i < 2; i++) {
		if (calls)
			CHECK_EQ(&verdict, switchto_block_begin(), 0);
		moved[i] = calls ? sendfile(ends[1], file, NULL, 2 * LIMIT) :
				   switchto_sendfile(ends[1], file, offset, 2 * LIMIT, &time);
		if (calls)
			CHECK_EQ(&verdict, switchto_block_end(), 0);
	}
	CHECK_EQ(&verdict, offset ? *offset : lseek(file, 0, SEEK_CUR), HOLE + MUCH);
	CHECK_EQ(&verdict, switchto_close(ends[1]), 0);
}

static void drain_file(void *null)
{
	static char buffer[65536];
	struct timespec time = late();
	long total = 0;
	ssize_t n;

	while (total < HOLE && (n = switchto_splice(ends[0], NULL, pipes[1], NULL,
						    (size_t)(HOLE - total), 0, &time)) > 0)
		for (total += n; n > 0;)
			n -= switchto_splice(pipes[0], NULL, *(int *)null, NULL, (size_t)n, 0,
					     &time);
	while ((n = switchto_read(ends[0], buffer, sizeof(buffer), &time)) > 0)
		for (ssize_t i = 0; i < n; i++, total++)
			CHECK_EQ(&verdict, (unsigned char)buffer[i], (total - HOLE) % 251);
	CHECK_EQ(&verdict, total, HOLE + MUCH);
}

TEST(whole_files)
{
	int null = open("/dev/null", O_WRONLY);
	off_t offset = 0;
	void *const how[] = { NULL, &ends, &offset };

	file = memfd_create("whole_files", 0);
	assert_int_equal(pwrite(file, much, MUCH, HOLE), MUCH);
	assert_int_equal(pipe(pipes), 0);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(lseek(file, 0, SEEK_SET), 0);
		connect_tcp();
		add_task(send_file, how[i]);
		add_task(drain_file, &null);
		run_added_in_time();
		assert_int_equal(moved[0], LIMIT);
		assert_int_equal(moved[1], MUCH / 2);
		switchto_close(ends[0]);
	}
	switchto_close(pipes[0]);
	switchto_close(pipes[1]);
	switchto_close(null);
	close(file);
}

/* --- addresses --- */

static void use_addresses(void *arg)
{
	struct sockaddr_un from;
	socklen_t length = sizeof(from);
	struct timespec time = soon();
	int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
	char text[8];

	CHECK_EQ(&verdict,
		 bind(fd, &(struct sockaddr){ .sa_family = AF_UNIX }, sizeof(sa_family_t)), 0);
	CHECK_ERR(&verdict,
		  switchto_recvfrom(receiver, text, 8, 0, (struct sockaddr *)&from, &length, &time),
		  ETIMEDOUT);
	CHECK_EQ(&verdict,
		 switchto_sendto(fd, "abc", 3, 0, (struct sockaddr *)&un, un_length, NULL), 3);
	length = sizeof(from);
	CHECK_EQ(&verdict,
		 switchto_recvfrom(receiver, text, 8, 0, (struct sockaddr *)&from, &length, NULL),
		 3);
	CHECK_EQ(&verdict,
		 switchto_sendto(fd, "f", 1, MSG_DONTWAIT, (struct sockaddr *)&un, un_length, NULL),
		 1);
	CHECK_EQ(&verdict, switchto_recv(receiver, text, 8, 0, NULL), 1);
	CHECK_EQ(&verdict,
		 switchto_sendto(receiver, "de", 2, 0, (struct sockaddr *)&from, length, NULL), 2);
	CHECK_EQ(&verdict, switchto_recvfrom(fd, text, 8, 0, NULL, NULL, NULL), 2);
	CHECK_EQ(&verdict, switchto_close(fd), 0);
}

TEST(addresses)
{
	receiver = bind_unix(SOCK_DGRAM);
	run_task_in_time(use_addresses, NULL);
	switchto_close(receiver);
}

/* --- children --- */

static pid_t child_that_exits(unsigned int ms, int status)
{
	pid_t child = fork();

	if (child == 0) {
		usleep(ms * 1000);
		_exit(status);
	}
	return child;
}

static void wait_for_children(void *arg)
{
	struct timespec time = soon();
	siginfo_t info;
	pid_t child = child_that_exits(100, 7), other;

	CHECK_ERR(&verdict, switchto_waitid(P_PID, (id_t)child, &info, WEXITED, &time), ETIMEDOUT);
	time = late();
	CHECK_EQ(&verdict, switchto_waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT, &time), 0);
	CHECK_EQ(&verdict, switchto_waitid(P_PID, (id_t)child, &info, WEXITED, &time), 0);
	CHECK_EQ(&verdict, info.si_pid, child);
	CHECK_EQ(&verdict, info.si_status, 7);
	CHECK_ERR(&verdict, switchto_waitid(P_PID, (id_t)child, NULL, WEXITED, &time), ECHILD);
	other = child_that_exits(50, 3);
	CHECK_EQ(&verdict, switchto_waitid(P_ALL, 0, &info, WEXITED, &time), 0);
	CHECK_EQ(&verdict, info.si_pid, other);
	CHECK_ERR(&verdict, switchto_waitid(P_ALL, 0, &info, WEXITED, &time), ECHILD);
}

TEST(children)
{
	run_task_in_time(wait_for_children, NULL);
}

/* --- signals --- */

static atomic_bool over;
static pthread_t target;
static atomic_bool aimed;
/* A splice to it is interrupted, even if there is nothing to wait for. */
static int terminal;

static void handle(int number) {}

static void *shoot(void *arg)
{
	while (!atomic_load(&aimed))
		usleep(100);
	while (!atomic_load(&over))
		pthread_kill(target, SIGUSR1);
	return arg;
}

static void open_later(void *arg)
{
	struct timespec time = soon();
	int fd;

	CHECK_EQ(&verdict, switchto_sleep_until(&time), 0);
	fd = switchto_openat(AT_FDCWD, path, O_WRONLY, 0);
	CHECK_EQ(&verdict, fd >= 0 ? 0 : errno, 0);
	CHECK_EQ(&verdict, switchto_close(fd), 0);
}

static void call_under_fire(void *arg)
{
	const long long until = now_ns() + NSEC_PER_SEC / 2;
	char byte;
	int fifo;

	target = pthread_self();
	atomic_store(&aimed, true);
	/* Of all that is done in a region, this can be interrupted. */
	spawn(NULL, open_later, NULL);
	fifo = switchto_openat(AT_FDCWD, path, O_RDONLY, 0);
	CHECK_EQ(&verdict, fifo >= 0 ? 0 : errno, 0);
	CHECK_EQ(&verdict, switchto_close(fifo), 0);
	while (now_ns() < until) {
		struct timespec time = in(NSEC_PER_SEC / 2000);
		int fd = socket(AF_INET, SOCK_STREAM, 0), pair[2];

		CHECK_ERR(&verdict, switchto_poll(ends[0], POLLIN, &time), ETIMEDOUT);
		time = in(NSEC_PER_SEC / 2000);
		CHECK_ERR(&verdict, switchto_read(ends[0], &byte, 1, &time), ETIMEDOUT);
		CHECK_ERR(&verdict,
			  switchto_connect(fd, (struct sockaddr *)&in_address, sizeof(in_address),
					   NULL),
			  ECONNREFUSED);
		CHECK_EQ(&verdict, switchto_close(fd), 0);
		CHECK_EQ(&verdict, socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
		CHECK_EQ(&verdict, switchto_write(pair[0], "x", 1, NULL), 1);
		CHECK_EQ(&verdict, switchto_read(pair[1], &byte, 1, NULL), 1);
		CHECK_EQ(&verdict, switchto_write(ends[1], "x", 1, NULL), 1);
		CHECK_EQ(&verdict, switchto_splice(ends[0], NULL, terminal, NULL, 1, 0, NULL), 1);
		CHECK_EQ(&verdict, switchto_close(pair[0]), 0);
		CHECK_EQ(&verdict, switchto_close(pair[1]), 0);
		fd = switchto_openat(AT_FDCWD, "/dev/null", O_RDONLY, 0);
		CHECK_EQ(&verdict, fd >= 0 ? 0 : errno, 0);
		CHECK_EQ(&verdict, switchto_read(fd, &byte, 1, NULL), 0);
		CHECK_EQ(&verdict, switchto_close(fd), 0);
	}
	atomic_store(&over, true);
}

TEST(under_fire)
{
	const struct sigaction action = { .sa_handler = handle };
	socklen_t length = sizeof(in_address);
	pthread_t thread;
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (HANDLERS_RUN_LATE)
		skip();
	in_address = (struct sockaddr_in){ .sin_family = AF_INET };
	in_address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	/* Nobody listens there. */
	assert_int_equal(bind(fd, (struct sockaddr *)&in_address, length), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&in_address, &length), 0);
	sigaction(SIGUSR1, &action, NULL);
	atomic_store(&over, false);
	atomic_store(&aimed, false);
	assert_int_equal(pipe(ends), 0);
	terminal = posix_openpt(O_RDWR | O_NOCTTY);
	assert_true(terminal >= 0);
	make_path();
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(pthread_create(&thread, NULL, shoot, NULL), 0);
	run_task_in_time(call_under_fire, NULL);
	pthread_join(thread, NULL);
	remove_path();
	close_ends();
	switchto_close(terminal);
	close(fd);
}

/* --- deadlines --- */

static void use_past(void *arg)
{
	const struct timespec past[] = { { 0, 0 }, { -1, 0 } };
	char byte;

	for (int i = 0; i < 2; i++) {
		/* Known and empty, so that the next call would wait at once. */
		CHECK_ERR(&verdict, switchto_recv(ends[0], &byte, 1, 0, &past[i]), ETIMEDOUT);
		CHECK_EQ(&verdict, write(ends[1], "x", 1), 1);
		CHECK_EQ(&verdict, switchto_recv(ends[0], &byte, 1, 0, &past[i]), 1);
		CHECK_EQ(&verdict, write(ends[1], "x", 1), 1);
		CHECK_EQ(&verdict, switchto_poll(ends[0], POLLIN, &past[i]), POLLIN);
		CHECK_EQ(&verdict, switchto_read(ends[0], &byte, 1, &past[i]), 1);
		CHECK_ERR(&verdict, switchto_recv(ends[0], &byte, 1, 0, &past[i]), ETIMEDOUT);
	}
}

TEST(past_deadlines)
{
	connect_tcp();
	run_task_in_time(use_past, NULL);
	close_ends();
}

/* --- what a system call says when it blocks --- */

static int pair[2];

/* Two sockets of UDP that are connected to each other: pair[0] and pair[1]. */
static void connect_udp(void)
{
	struct sockaddr_in address[2];
	socklen_t length = sizeof(address[0]);

	for (int i = 0; i < 2; i++) {
		address[i] = (struct sockaddr_in){ .sin_family = AF_INET };
		address[i].sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		pair[i] = socket(AF_INET, SOCK_DGRAM, 0);
		CHECK_EQ(&verdict, bind(pair[i], (struct sockaddr *)&address[i], length), 0);
		CHECK_EQ(&verdict, getsockname(pair[i], (struct sockaddr *)&address[i], &length),
			 0);
	}
	for (int i = 0; i < 2; i++)
		CHECK_EQ(&verdict, connect(pair[i], (struct sockaddr *)&address[!i], length), 0);
}

static void close_pair(void)
{
	switchto_close(pair[0]);
	switchto_close(pair[1]);
}

static void nap(unsigned int ms)
{
	struct timespec time = in(ms * (NSEC_PER_SEC / 1000));

	CHECK_EQ(&verdict, switchto_sleep_until(&time), 0);
}

/* As another process may, which shares the file. */
static void block_again(void *fd)
{
	nap(20);
	CHECK_EQ(&verdict, fcntl(*(int *)fd, F_SETFL, 0), 0);
}

static void make_room(void *arg)
{
	nap(40);
	CHECK_EQ(&verdict, read(ends[0], arg, 65536), 65536);
}

static void use_what_blocks(void *arg)
{
	struct timespec time = in(NSEC_PER_SEC / 10);
	char byte;

	spawn(NULL, block_again, &ends[0]);
	CHECK_ERR(&verdict, switchto_read(ends[0], &byte, 1, &time), ETIMEDOUT);
	spawn(NULL, block_again, &ends[1]);
	spawn(NULL, make_room, arg);
	time = in(NSEC_PER_SEC / 5);
	CHECK_EQ(&verdict, switchto_write(ends[1], much, MUCH, &time), 2 * 65536);
}

TEST(flags_changed)
{
	static char buffer[65536];

	assert_int_equal(pipe(ends), 0);
	/* As it is with pages of 4 KiB. */
	assert_int_equal(fcntl(ends[1], F_SETPIPE_SZ, 65536), 65536);
	run_task_in_time(use_what_blocks, buffer);
	close_ends();
}

/* No byte of the memory after them may be sent. */
static void use_negative_sizes(void *arg)
{
	const size_t negative = (size_t)-1;
	struct timespec time = soon();
	char byte = 'x';

	CHECK_ERR(&verdict, switchto_recv(ends[0], &byte, 1, 0, &time), ETIMEDOUT);
	CHECK_ERR(&verdict, switchto_write(ends[0], &byte, negative, &time), EFAULT);
	CHECK_ERR(&verdict, switchto_read(ends[0], &byte, negative, &time), EFAULT);
	CHECK_EQ(&verdict, recv(ends[1], &byte, 1, MSG_DONTWAIT), -1);
	CHECK_ERR(&verdict, switchto_pwrite(file, &byte, negative, 0, NULL), EFAULT);
	CHECK_ERR(&verdict, switchto_pread(file, &byte, negative, 0, NULL), EFAULT);
	CHECK_EQ(&verdict, lseek(file, 0, SEEK_END), 0);
	CHECK_ERR(&verdict, switchto_sendmsg(ends[0], NULL, 0, NULL), EFAULT);
	CHECK_ERR(&verdict, switchto_recvmsg(ends[0], NULL, MSG_WAITALL, NULL), EFAULT);
	CHECK_ERR(&verdict, switchto_sendfile(ends[0], file, NULL, negative, NULL), EINVAL);
	CHECK_EQ(&verdict, switchto_splice(-1, NULL, -1, NULL, 0, 0, NULL), 0);
	CHECK_ERR(&verdict, switchto_splice(-1, NULL, -1, NULL, 1, 0x100, NULL), EINVAL);
}

TEST(negative_sizes)
{
	make_path();
	file = open(path, O_RDWR | O_CREAT, 0600);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	assert_int_equal(write(ends[1], "y", 1), 1);
	assert_int_equal(read(ends[0], &(char){ 0 }, 1), 1);
	run_task_in_time(use_negative_sizes, NULL);
	close_ends();
	close(file);
	remove_path();
}

/* These sockets do not look at these flags, and wait. */
static void receive_with_odd_flags(void *arg)
{
	struct timespec time = late();
	char buffer[8];

	spawn(NULL, send_later, "abc");
	CHECK_EQ(&verdict, switchto_recv(ends[0], buffer, 8, MSG_ERRQUEUE, &time), 3);
	close_ends();
	CHECK_EQ(&verdict, switchto_recv(pair[0], buffer, 8, MSG_ERRQUEUE, &time), -1);
	CHECK_EQ(&verdict, errno, EAGAIN);
	ends[0] = dup(pair[0]);
	ends[1] = dup(pair[1]);
	spawn(NULL, send_later, "abc");
	CHECK_EQ(&verdict, switchto_recv(ends[0], buffer, 8, MSG_OOB, &time), 3);
}

TEST(odd_flags)
{
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	connect_udp();
	run_task_in_time(receive_with_odd_flags, NULL);
	close_pair();
	close_ends();
}

/* A look of the layer's own is no peek of the program's: the next one goes on after its last one. */
static void peek_on(void *arg)
{
	const int offset = 0, on = 1;
	struct timespec time = late();
	char buffer[8];

	if (arg)
		CHECK_EQ(&verdict, setsockopt(ends[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)),
			 0);
	CHECK_EQ(&verdict, write(ends[1], "abc", 3), 3);
	if (setsockopt(ends[0], SOL_SOCKET, SO_PEEK_OFF, &offset, sizeof(offset)))
		return; /* TCP: since Linux 6.9 */
	CHECK_EQ(&verdict, switchto_recv(ends[0], buffer, 2, MSG_PEEK, &time), 2);
	spawn(NULL, send_later, "def");
	if (!arg)
		CHECK_EQ(&verdict, switchto_recv(ends[0], buffer, 3, MSG_PEEK | MSG_WAITALL, &time),
			 3);
	CHECK_EQ(&verdict, switchto_recv(ends[0], buffer, 5, MSG_WAITALL, &time), 5);
	CHECK_EQ(&verdict, switchto_recv(ends[0], buffer, 8, MSG_PEEK, &time), 1);
	CHECK_EQ(&verdict, buffer[0], 'f');
}

TEST(peek_offsets)
{
	connect_tcp();
	run_task_in_time(peek_on, NULL);
	close_ends();
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	run_task_in_time(peek_on, ends);
	close_ends();
}

static void send_descriptor_later(void *arg)
{
	nap(20);
	send_descriptor("def");
}

/* Another sender, so that these bytes are not glued to those of this process. */
static void send_as_other(void *arg)
{
	pid_t child;

	nap(20);
	child = fork();
	if (child == 0)
		_exit(write(ends[1], "def", 3) == 3 ? 0 : 1);
	CHECK_EQ(&verdict, waitpid(child, NULL, 0), child);
}

/* A receive with MSG_WAITALL of 6 bytes: "abc" is there, and the rest comes later. */
static ssize_t receive_rest(void (*rest)(void *), char *control, size_t *room)
{
	struct timespec time = in(NSEC_PER_SEC / 2);
	struct iovec part = { (char[8]){ 0 }, 6 };
	struct msghdr message = {
		.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = *room
	};
	ssize_t n;

	CHECK_EQ(&verdict, write(ends[1], "abc", 3), 3);
	spawn(NULL, rest, "def");
	n = switchto_recvmsg(ends[0], &message, MSG_WAITALL, &time);
	*room = message.msg_controllen;
	CHECK_EQ(&verdict, message.msg_flags & MSG_CTRUNC, 0);
	return n;
}

static void receive_from_unix(void *arg)
{
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(sizeof(int))];
	} control;
	const int on = 1;
	size_t room = CMSG_SPACE(sizeof(int));
	char text[8];
	int fd;

	CHECK_EQ(&verdict, receive_rest(send_descriptor_later, control.room, &room), 6);
	CHECK_EQ(&verdict, room, CMSG_SPACE(sizeof(int)));
	CHECK_EQ(&verdict, control.header.cmsg_type, SCM_RIGHTS);
	memcpy(&fd, CMSG_DATA(&control.header), sizeof(fd));
	CHECK_EQ(&verdict, close(fd), 0);
	CHECK_EQ(&verdict, setsockopt(ends[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)), 0);
	room = sizeof(control);
	CHECK_EQ(&verdict, receive_rest(send_later, control.room, &room), 6);
	CHECK_EQ(&verdict, room, CMSG_SPACE(sizeof(struct ucred)));
	room = sizeof(control);
	CHECK_EQ(&verdict, receive_rest(send_descriptor_later, control.room, &room), 6);
	CHECK_EQ(&verdict, room, sizeof(control));
	memcpy(&fd, control.room + CMSG_SPACE(sizeof(struct ucred)) + CMSG_LEN(0), sizeof(fd));
	CHECK_EQ(&verdict, close(fd), 0);
	room = sizeof(control);
	CHECK_EQ(&verdict, receive_rest(send_as_other, control.room, &room), 3);
	CHECK_EQ(&verdict, switchto_recv(ends[0], text, 3, MSG_WAITALL, NULL), 3);
	CHECK_EQ(&verdict, write(ends[1], "abc", 3), 3);
	spawn(NULL, send_as_other, NULL);
	CHECK_EQ(&verdict, switchto_recv(ends[0], text, 6, MSG_WAITALL, NULL), 3);
	CHECK_EQ(&verdict, switchto_recv(ends[0], text, 3, MSG_WAITALL, NULL), 3);
}

static void send_much_with_a_descriptor(void *arg)
{
	struct iovec part = { much, sizeof(much) };
	union control control;
	const struct msghdr message = with_descriptor(&part, &control);

	CHECK_EQ(&verdict, switchto_sendmsg(ends[1], &message, 0, NULL), sizeof(much));
}

/* It goes with the first part, and once. */
static void receive_much_with_a_descriptor(void *arg)
{
	int descriptors = 0;

	spawn(NULL, send_much_with_a_descriptor, NULL);
	for (size_t got = 0; got < sizeof(much);) {
		union {
			struct cmsghdr header;
			char room[CMSG_SPACE(2 * sizeof(int))];
		} control;
		struct iovec part = { much, sizeof(much) };
		struct msghdr message = { .msg_iov = &part,
					  .msg_iovlen = 1,
					  .msg_control = control.room,
					  .msg_controllen = sizeof(control) };
		const ssize_t n = switchto_recvmsg(ends[0], &message, 0, NULL);
		int fd;

		CHECK(&verdict, n > 0);
		if (n <= 0)
			return;
		got += (size_t)n;
		if (!CMSG_FIRSTHDR(&message))
			continue;
		descriptors++;
		memcpy(&fd, CMSG_DATA(&control.header), sizeof(fd));
		CHECK_EQ(&verdict, close(fd), 0);
	}
	CHECK_EQ(&verdict, descriptors, 1);
}

/* The time is not what ends it. */
static void receive_with_time(void *arg)
{
	struct timespec time = late();
	const int on = 1;
	char text[8];

	CHECK_EQ(&verdict, setsockopt(ends[0], SOL_SOCKET, SO_TIMESTAMP, &on, sizeof(on)), 0);
	CHECK_EQ(&verdict, write(ends[1], "abc", 3), 3);
	spawn(NULL, send_later, "def");
	CHECK_EQ(&verdict, switchto_recv(ends[0], text, 6, MSG_WAITALL, &time), 6);
}

static void receive_address(void *arg)
{
	struct sockaddr_storage from = { 0 };
	socklen_t length = sizeof(from);
	char text[8];

	CHECK_EQ(&verdict, write(pair[1], "abc", 3), 3);
	CHECK_EQ(&verdict,
		 switchto_recvfrom(pair[0], text, 8, MSG_WAITALL, (struct sockaddr *)&from, &length,
				   NULL),
		 3);
	CHECK_EQ(&verdict, from.ss_family, AF_INET);
	CHECK_EQ(&verdict, length, sizeof(struct sockaddr_in));
	/* Of a stream of TCP there is none. */
	CHECK_EQ(&verdict, write(ends[1], "abc", 3), 3);
	CHECK_EQ(&verdict,
		 switchto_recvfrom(ends[0], text, 3, MSG_WAITALL, (struct sockaddr *)&from, &length,
				   NULL),
		 3);
	CHECK_EQ(&verdict, length, 0);
}

TEST(rest_received)
{
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	run_task_in_time(receive_from_unix, NULL);
	close_ends();
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	run_task_in_time(receive_much_with_a_descriptor, NULL);
	close_ends();
	connect_tcp();
	run_task_in_time(receive_with_time, NULL);
	connect_udp();
	run_task_in_time(receive_address, NULL);
	close_pair();
	close_ends();
}

static void *read_packets(void *arg)
{
	char buffer[8192];

	usleep(20000);
	CHECK_EQ(&verdict, read(ends[0], buffer, sizeof(buffer)), 4096);
	CHECK_EQ(&verdict, read(ends[0], buffer, sizeof(buffer)), 3904);
	return arg;
}

static void write_packets(void *arg)
{
	struct iovec parts[] = { { much, 3000 }, { much, 2000 }, { much, 3000 } };
	struct timespec time = late();

	CHECK_EQ(&verdict, switchto_writev(ends[1], parts, 3, &time), 8000);
}

/* A pipe that holds one packet. */
TEST(packets_written)
{
	pthread_t thread;

	if (sysconf(_SC_PAGESIZE) != 4096)
		skip();
	assert_int_equal(pipe2(ends, O_DIRECT), 0);
	assert_int_equal(fcntl(ends[1], F_SETPIPE_SZ, 4096), 4096);
	assert_int_equal(pthread_create(&thread, NULL, read_packets, NULL), 0);
	run_task_in_time(write_packets, NULL);
	pthread_join(thread, NULL);
	close_ends();
}

static void fill_pipe(void *arg)
{
	struct timespec time = late();

	CHECK_EQ(&verdict, switchto_sendfile(pipes[1], file, NULL, MUCH, &time), 65536);
	time = in(NSEC_PER_SEC / 10);
	CHECK_ERR(&verdict, switchto_sendfile(pipes[1], file, NULL, MUCH, &time), ETIMEDOUT);
}

TEST(pipe_filled)
{
	make_path();
	file = open(path, O_RDWR | O_CREAT, 0600);
	assert_int_equal(ftruncate(file, MUCH), 0);
	assert_int_equal(pipe(pipes), 0);
	assert_int_equal(fcntl(pipes[1], F_SETPIPE_SZ, 65536), 65536);
	run_task_in_time(fill_pipe, NULL);
	switchto_close(pipes[0]);
	switchto_close(pipes[1]);
	close(file);
	remove_path();
}

/* A message, and then an error: nobody receives what this side sends. */
static void refuse(void *arg)
{
	nap(20);
	CHECK_EQ(&verdict, write(pair[1], "a", 1), 1);
	nap(50);
	CHECK_EQ(&verdict, close(pair[1]), 0);
	CHECK_EQ(&verdict, send(pair[0], "z", 1, 0), 1);
}

static void receive_before_error(void *arg)
{
	char bytes[2];
	struct iovec parts[] = { { bytes, 1 }, { bytes + 1, 1 } };
	struct mmsghdr messages[] = { { .msg_hdr = { .msg_iov = parts, .msg_iovlen = 1 } },
				      { .msg_hdr = { .msg_iov = parts + 1, .msg_iovlen = 1 } } };
	struct timespec time = in(10 * NSEC_PER_SEC);

	spawn(NULL, refuse, NULL);
	CHECK_EQ(&verdict, switchto_recvmmsg(pair[0], messages, 2, 0, &time), 1);
	CHECK_ERR(&verdict, switchto_recv(pair[0], bytes, 1, 0, &time), ECONNREFUSED);
}

/* Of UNIX, the send that waited takes the error. */
static void write_to_unix_leaver(void *arg)
{
	ssize_t n = switchto_send(ends[1], much, MUCH, 0, NULL);

	CHECK(&verdict, n > 0 && n < MUCH);
	CHECK_ERR(&verdict, switchto_send(ends[1], much, 1, MSG_NOSIGNAL, NULL), EPIPE);
	CHECK_EQ(&verdict, switchto_recv(ends[1], much, 1, 0, NULL), 0);
}

TEST(errors_kept)
{
	connect_udp();
	run_task_in_time(receive_before_error, NULL);
	switchto_close(pair[0]);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	add_task(write_to_unix_leaver, NULL);
	add_task(leave, NULL);
	run_added_in_time();
	close(ends[1]);
}

static void shut_later(void *arg)
{
	nap(20);
	CHECK_EQ(&verdict, shutdown(*(int *)arg, SHUT_RD), 0);
}

static void shut_output_later(void *arg)
{
	nap(20);
	CHECK_EQ(&verdict, shutdown(*(int *)arg, SHUT_WR), 0);
}

/* No event says so while it is full. A send that has waited makes no signal. */
static void send_until_shut(void *arg)
{
	struct timespec time = in(10 * NSEC_PER_SEC);

	while (send(ends[0], much, 1000, MSG_DONTWAIT) > 0)
		;
	spawn(NULL, arg ? shut_output_later : shut_later, arg ? &ends[0] : &ends[1]);
	CHECK_ERR(&verdict, switchto_write(ends[0], much, 1000, &time), EPIPE);
}

/* The same, of a splice. */
static void splice_until_shut(void *arg)
{
	struct timespec time = in(10 * NSEC_PER_SEC);

	while (send(ends[0], much, 1000, MSG_DONTWAIT) > 0)
		;
	CHECK_EQ(&verdict, pipe(pair), 0);
	CHECK_EQ(&verdict, write(pair[1], "abc", 3), 3);
	spawn(NULL, shut_output_later, &ends[0]);
	CHECK_ERR(&verdict, switchto_splice(pair[0], NULL, ends[0], NULL, 3, 0, &time), EPIPE);
	close_pair();
}

/* The peer has not read all: that error is the first one. */
static void send_until_left(void *arg)
{
	struct timespec time = in(10 * NSEC_PER_SEC);
	char byte;

	while (send(ends[0], much, 1000, MSG_DONTWAIT) > 0)
		;
	spawn(NULL, close_later, &ends[1]);
	CHECK_ERR(&verdict, switchto_write(ends[0], much, 1000, &time), ECONNRESET);
	CHECK_EQ(&verdict, switchto_read(ends[0], &byte, 1, &time), 0);
}

static void wait_for_shutdown(void *arg)
{
	struct sockaddr_in from;
	socklen_t length = sizeof(from);
	struct timespec time = in(10 * NSEC_PER_SEC);
	char byte;
	struct iovec part = { &byte, 1 };
	struct msghdr message = {
		.msg_name = &from, .msg_namelen = sizeof(from), .msg_iov = &part, .msg_iovlen = 1
	};

	for (int packets = 0; packets < 2; packets++) {
		int fd = bind_unix(packets ? SOCK_SEQPACKET : SOCK_STREAM);

		CHECK_EQ(&verdict, listen(fd, 1), 0);
		spawn(NULL, shut_later, &fd);
		CHECK_ERR(&verdict, switchto_accept(fd, NULL, NULL, 0, &time), EINVAL);
		CHECK_EQ(&verdict, switchto_close(fd), 0);
	}
	spawn(NULL, shut_later, pair);
	CHECK_EQ(&verdict,
		 switchto_recvfrom(pair[0], &byte, 1, 0, (struct sockaddr *)&from, &length, &time),
		 0);
	CHECK_EQ(&verdict, length, 0);
	CHECK_EQ(&verdict, switchto_recvmsg(pair[0], &message, 0, &time), 0);
	CHECK_EQ(&verdict, message.msg_namelen, 0);
}

TEST(shut_down)
{
	connect_udp();
	run_task_in_time(wait_for_shutdown, NULL);
	close_pair();
	signal(SIGPIPE, SIG_DFL);
	for (int kind = 0; kind < 5; kind++) {
		const int type = kind / 2 ? SOCK_STREAM : SOCK_SEQPACKET;

		assert_int_equal(socketpair(AF_UNIX, type, 0, ends), 0);
		run_task_in_time(kind == 4 ? splice_until_shut : send_until_shut,
				 kind % 2 ? ends : NULL);
		close_ends();
	}
	for (int packets = 0; packets < 2; packets++) {
		assert_int_equal(socketpair(AF_UNIX, packets ? SOCK_SEQPACKET : SOCK_STREAM, 0,
					    ends),
				 0);
		run_task_in_time(send_until_left, NULL);
		close(ends[0]);
	}
}

static void send_fast(void *arg)
{
	enum { FASTOPEN_CONNECT = 30, FASTOPEN_NO_COOKIE = 34 }; /* TCP_ */
	struct timespec time = in(10 * NSEC_PER_SEC);
	const int on = 1;
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	ssize_t n = switchto_sendto(fd, "abc", 3, MSG_FASTOPEN, (struct sockaddr *)&in_address,
				    sizeof(in_address), &time);

	if (n != -1 || errno != EOPNOTSUPP) /* by net.ipv4.tcp_fastopen */
		CHECK_EQ(&verdict, n, 3);
	CHECK_EQ(&verdict, switchto_close(fd), 0);
	/* The first write makes the connection, which one of nothing does not do at once. */
	fd = socket(AF_INET, SOCK_STREAM, 0);
	setsockopt(fd, IPPROTO_TCP, FASTOPEN_CONNECT, &on, sizeof(on));
	setsockopt(fd, IPPROTO_TCP, FASTOPEN_NO_COOKIE, &on, sizeof(on));
	CHECK_EQ(&verdict,
		 switchto_connect(fd, (struct sockaddr *)&in_address, sizeof(in_address), &time),
		 0);
	CHECK_EQ(&verdict, switchto_write(fd, "", 0, &time), 0);
	CHECK_EQ(&verdict, switchto_write(fd, "abc", 3, &time), 3);
	CHECK_EQ(&verdict, switchto_close(fd), 0);
}

static void send_without_port(void *arg)
{
	enum { LOCAL_PORT_RANGE = 51 /* IP_LOCAL_PORT_RANGE */ };
	struct sockaddr_in taken = { .sin_family = AF_INET };
	struct timespec time = in(10 * NSEC_PER_SEC);
	socklen_t length = sizeof(taken);
	int fd = socket(AF_INET, SOCK_DGRAM, 0), other = socket(AF_INET, SOCK_DGRAM, 0);
	uint32_t range;

	CHECK_EQ(&verdict, bind(other, (struct sockaddr *)&taken, length), 0);
	CHECK_EQ(&verdict, getsockname(other, (struct sockaddr *)&taken, &length), 0);
	range = ntohs(taken.sin_port) * 0x10001U;
	if (!setsockopt(fd, IPPROTO_IP, LOCAL_PORT_RANGE, &range, sizeof(range)))
		CHECK_ERR(&verdict,
			  switchto_sendto(fd, "x", 1, 0, (struct sockaddr *)&in_address,
					  sizeof(in_address), &time),
			  EAGAIN);
	CHECK_EQ(&verdict, switchto_close(fd), 0);
	CHECK_EQ(&verdict, switchto_close(other), 0);
}

TEST(sent_to_addresses)
{
	bind_listener();
	assert_int_equal(listen(listener, 1), 0);
	run_task_in_time(send_fast, NULL);
	run_task_in_time(send_without_port, NULL);
	close(listener);
}

static void send_messages(void *arg)
{
	struct iovec part = { "x", 1 };
	struct mmsghdr messages[DATAGRAMS] = { 0 };
	struct timespec time = late();
	int fd = socket(AF_UNIX, SOCK_DGRAM, 0);

	for (int i = 0; i < DATAGRAMS; i++)
		messages[i].msg_hdr = (struct msghdr){
			.msg_name = &un, .msg_namelen = un_length, .msg_iov = &part, .msg_iovlen = 1
		};
	CHECK_EQ(&verdict, switchto_sendmmsg(fd, messages, DATAGRAMS, 0, &time), DATAGRAMS);
	CHECK_EQ(&verdict, switchto_close(fd), 0);
}

/* A message that goes in part is the last one, also if there is room again for the next. */
static void send_in_part(void *arg)
{
	struct iovec part = { much, MUCH / 64 };
	const struct timespec past = { 0, 0 };
	struct mmsghdr messages[4] = { 0 };
	long long until = now_ns() + NSEC_PER_SEC / 4;

	for (int i = 0; i < 4; i++)
		messages[i].msg_hdr = (struct msghdr){ .msg_iov = &part, .msg_iovlen = 1 };
	while (now_ns() < until) {
		const int n = switchto_sendmmsg(ends[1], messages, 4, MSG_NOSIGNAL, &past);

		for (int i = 0; i < n - 1; i++)
			CHECK_EQ(&verdict, messages[i].msg_len, part.iov_len);
	}
	CHECK_EQ(&verdict, shutdown(ends[1], SHUT_RDWR), 0);
}

static void *read_all(void *arg)
{
	static char buffer[65536];

	while (read(ends[0], buffer, sizeof(buffer)) > 0)
		;
	return arg;
}

TEST(messages_sent)
{
	struct switchto_sched *sched = new_sched(NULL);
	pthread_t thread;

	receiver = bind_unix(SOCK_DGRAM);
	spawn(sched, receive_slowly, NULL);
	spawn(sched, send_messages, NULL);
	run_tasks(sched);
	switchto_close(receiver);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	assert_int_equal(pthread_create(&thread, NULL, read_all, NULL), 0);
	run_task_in_time(send_in_part, NULL);
	pthread_join(thread, NULL);
	close_ends();
}

static void set_terminal(int fd, unsigned int least, unsigned int time)
{
	struct termios how;

	CHECK_EQ(&verdict, tcgetattr(fd, &how), 0);
	cfmakeraw(&how);
	how.c_cc[VMIN] = (cc_t)least;
	how.c_cc[VTIME] = (cc_t)time;
	CHECK_EQ(&verdict, tcsetattr(fd, TCSANOW, &how), 0);
}

/* ends[1] is the other side of the terminal. */
static void read_raw(void *arg)
{
	struct timespec time = late();
	const long long before = now_ns();
	const struct timespec bad = { 0, -1 };
	char text[16];
	struct iovec parts[] = { { text, 4 }, { text + 4, 12 } };

	set_terminal(ends[0], 0, 0);
	CHECK_EQ(&verdict, switchto_read(ends[0], text, 16, &time), 0);
	CHECK_ERR(&verdict, switchto_read(ends[0], text, 16, &bad), EINVAL);
	set_terminal(ends[0], 0, 1);
	CHECK_EQ(&verdict, switchto_read(ends[0], text, 16, &time), 0);
	CHECK(&verdict, now_ns() - before >= NSEC_PER_SEC / 10);
	spawn(NULL, send_later, "abc");
	CHECK_EQ(&verdict, switchto_read(ends[0], text, 16, &time), 3);
	for (int vtime = 0; vtime < 2; vtime++) {
		/* With a time, long after the second part. */
		set_terminal(ends[0], 6, vtime ? 255 : 0);
		CHECK_EQ(&verdict, write(ends[1], "abc", 3), 3);
		spawn(NULL, send_later, "def");
		CHECK_EQ(&verdict, switchto_read(ends[0], text, 16, &time), 6);
		CHECK_EQ(&verdict, write(ends[1], "a", 1), 1);
		spawn(NULL, send_later, "b");
		CHECK_EQ(&verdict, switchto_read(ends[0], text, 2, &time), 2);
		CHECK_EQ(&verdict, write(ends[1], "abc", 3), 3);
		spawn(NULL, send_later, "def");
		CHECK_EQ(&verdict, switchto_readv(ends[0], parts, 2, &time), 6);
		CHECK(&verdict, memcmp(text, "abcdef", 6) == 0);
	}
	set_terminal(ends[0], 6, 1);
	CHECK_EQ(&verdict, write(ends[1], "abc", 3), 3);
	CHECK_EQ(&verdict, switchto_read(ends[0], text, 16, &time), 3);
	set_terminal(ends[0], 6, 0);
	CHECK_EQ(&verdict, write(ends[1], "abc", 3), 3);
	time = soon();
	CHECK_EQ(&verdict, switchto_read(ends[0], text, 16, &time), 3);
	CHECK_ERR(&verdict, switchto_read(ends[0], text, 16, &time), ETIMEDOUT);
}

TEST(raw_terminal)
{
	ends[1] = posix_openpt(O_RDWR | O_NOCTTY);
	assert_true(ends[1] >= 0);
	assert_int_equal(grantpt(ends[1]), 0);
	assert_int_equal(unlockpt(ends[1]), 0);
	ends[0] = open(ptsname(ends[1]), O_RDWR | O_NOCTTY);
	assert_true(ends[0] >= 0);
	run_task_in_time(read_raw, NULL);
	close_ends();
}

/* epoll takes this file, but that says nothing of a read. */
static void use_polled_file(void *arg)
{
	struct timespec time = soon();
	int fd = open("/proc/self/mounts", O_RDONLY);
	char text[16];

	CHECK(&verdict, switchto_read(fd, text, sizeof(text), &time) > 0);
	CHECK_EQ(&verdict, fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
	CHECK(&verdict, switchto_poll(fd, POLLIN, &time) & POLLIN);
	CHECK_EQ(&verdict, switchto_close(fd), 0);
	time = soon();
	CHECK_ERR(&verdict, switchto_poll(file, POLLRDHUP, &time), ETIMEDOUT);
	CHECK(&verdict, switchto_poll(file, POLLIN, &time) & POLLIN);
}

TEST(polled_file)
{
	make_path();
	file = open(path, O_RDWR | O_CREAT, 0600);
	run_task_in_time(use_polled_file, NULL);
	close(file);
	remove_path();
}

/* --- what fails whatever there is --- */

static int new_listener(int domain)
{
	const int fd = socket(domain, SOCK_STREAM, 0);
	const struct sockaddr_un address = { AF_UNIX, "" };

	if (domain == AF_UNIX)
		CHECK_EQ(&verdict, bind(fd, (const struct sockaddr *)&address, sizeof(sa_family_t)),
			 0);
	CHECK_EQ(&verdict, listen(fd, 1), 0);
	return fd;
}

/* A wait in vain before that says that nothing is there; the plain call still fails at once. */
static void fail_at_once(int fd, bool receives)
{
	const struct timespec now = { 0 }, later = late();
	char bytes[4];
	ssize_t plain;
	int error;

	switchto_poll(fd, POLLIN, &now);
	switchto_accept(fd, NULL, NULL, 0, &now);
	plain = receives ? recv(fd, bytes, sizeof(bytes), 0) : read(fd, bytes, sizeof(bytes));
	error = errno;
	CHECK_EQ(&verdict, plain, -1);
	CHECK_ERR(&verdict,
		  receives ? switchto_recv(fd, bytes, sizeof(bytes), 0, &later) :
			     switchto_read(fd, bytes, sizeof(bytes), &later),
		  error);
	switchto_close(fd);
}

static void fail_all_at_once(void *unused)
{
	sigset_t signals;

	sigemptyset(&signals);
	fail_at_once(eventfd(0, 0), false);
	fail_at_once(timerfd_create(CLOCK_MONOTONIC, 0), false);
	fail_at_once(signalfd(-1, &signals, 0), false);
	fail_at_once(epoll_create1(0), false);
	fail_at_once((int)syscall(SYS_pidfd_open, getpid(), 0), false);
	for (int receives = 0; receives < 2; receives++) {
		fail_at_once(new_listener(AF_INET), receives);
		fail_at_once(new_listener(AF_UNIX), receives);
	}
}

TEST(errors_at_once)
{
	run_task_in_time(fail_all_at_once, NULL);
}
