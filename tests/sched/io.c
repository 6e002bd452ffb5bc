// SPDX-License-Identifier: MIT
/* I/O of tasks: sockets and pipes, deadlines, cancellation, and descriptors that go away. */
#include "sched.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/un.h>

enum { CONNECTIONS = 50, SIZE = 100 };

static struct sockaddr_in address;

/* --- a server and its clients --- */

static void serve(void *arg)
{
	const int fd = (int)(long)arg;
	char buffer[512];
	ssize_t n;

	while ((n = switchto_recv(fd, buffer, sizeof(buffer), 0, NULL)) > 0)
		CHECK_EQ(&verdict, switchto_send(fd, buffer, (size_t)n, 0, NULL), n);
	CHECK_EQ(&verdict, n, 0);
	CHECK_EQ(&verdict, switchto_close(fd), 0);
}

static void accept_all(void *arg)
{
	const int listener = (int)(long)arg;

	for (int i = 0; i < CONNECTIONS; i++) {
		int fd = switchto_accept(listener, NULL, NULL, 0, NULL);

		CHECK(&verdict, fd >= 0);
		spawn(NULL, serve, (void *)(long)fd);
	}
	CHECK_EQ(&verdict, switchto_close(listener), 0);
}

static void be_client(void *arg)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	char sent[SIZE], got[SIZE];

	memset(sent, 'a' + (int)(long)arg % 26, sizeof(sent));
	CHECK_EQ(&verdict, switchto_connect(fd, (struct sockaddr *)&address, sizeof(address), NULL),
		 0);
	for (int i = 0; i < LOOPS(50); i++) {
		ssize_t n, length = 0;

		CHECK_EQ(&verdict, switchto_write(fd, sent, SIZE, NULL), SIZE);
		while (length < SIZE &&
		       (n = switchto_read(fd, got + length, (size_t)(SIZE - length), NULL)) > 0)
			length += n;
		CHECK_EQ(&verdict, length, SIZE);
		CHECK(&verdict, memcmp(sent, got, SIZE) == 0);
	}
	CHECK_EQ(&verdict, switchto_close(fd), 0);
}

/* A socket whose port is @address. */
static int bound(void)
{
	socklen_t length = sizeof(address);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	address = (struct sockaddr_in){ .sin_family = AF_INET };
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &length), 0);
	return fd;
}

static int new_listener(void)
{
	int fd = bound();

	assert_int_equal(listen(fd, CONNECTIONS), 0);
	return fd;
}

TEST(server_and_clients)
{
	add_task(accept_all, (void *)(long)new_listener());
	for (long i = 0; i < CONNECTIONS; i++)
		add_task(be_client, (void *)i);
	run_added();
}

static void connect_to_nobody(void *arg)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	CHECK_ERR(&verdict,
		  switchto_connect(fd, (struct sockaddr *)&address, sizeof(address), NULL),
		  ECONNREFUSED);
	CHECK_EQ(&verdict, switchto_close(fd), 0);
	CHECK_ERR(&verdict, switchto_connect(-1, NULL, 0, NULL), EBADF);
}

/* The port is taken as long as that lasts, so no other program's socket answers. */
TEST(refused)
{
	int fd = bound();

	run_task(connect_to_nobody, NULL);
	close(fd);
}

/* A socket of AF_UNIX is connected at once, or never. */
TEST_IN_TASK(connected_at_once)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX }, none = { AF_UNIX, "/there/is/none" };
	int listener = socket(AF_UNIX, SOCK_STREAM, 0), fd = socket(AF_UNIX, SOCK_STREAM, 0);
	socklen_t length = sizeof(name);

	/* The kernel chooses a name. */
	CHECK_EQ(&verdict, bind(listener, (struct sockaddr *)&name, sizeof(sa_family_t)), 0);
	CHECK_EQ(&verdict, getsockname(listener, (struct sockaddr *)&name, &length), 0);
	CHECK_EQ(&verdict, listen(listener, 1), 0);
	CHECK_ERR(&verdict, switchto_connect(fd, (struct sockaddr *)&none, sizeof(none), NULL),
		  ENOENT);
	CHECK_EQ(&verdict, switchto_connect(fd, (struct sockaddr *)&name, length, NULL), 0);
	CHECK_EQ(&verdict, switchto_close(fd), 0);
	CHECK_EQ(&verdict, switchto_close(listener), 0);
}

/* --- a full pipe --- */

enum { BYTES = 300000 };

static int ends[2];
static PER_TEST atomic_bool last_step;

static void write_much(void *arg)
{
	char buffer[7777];
	ssize_t n;

	for (int written = 0; written < BYTES; written += (int)n) {
		int length = BYTES - written < (int)sizeof(buffer) ? BYTES - written :
								     (int)sizeof(buffer);

		for (int i = 0; i < length; i++)
			buffer[i] = (char)((written + i) % 251);
		n = switchto_write(ends[1], buffer, (size_t)length, NULL);
		CHECK(&verdict, n > 0);
		if (n <= 0)
			break;
	}
	CHECK_EQ(&verdict, switchto_close(ends[1]), 0);
}

static void read_much(void *arg)
{
	const int fd = *(int *)arg;
	char buffer[3333];
	int length = 0;
	ssize_t n;

	while ((n = switchto_read(fd, buffer, sizeof(buffer), NULL)) > 0)
		for (int i = 0; i < n; i++, length++)
			CHECK_EQ(&verdict, buffer[i], (char)(length % 251));
	CHECK_EQ(&verdict, n, 0);
	CHECK_EQ(&verdict, length, BYTES);
	CHECK_EQ(&verdict, switchto_close(fd), 0);
}

TEST(full_pipe)
{
	assert_int_equal(pipe(ends), 0);
	add_task(write_much, NULL);
	add_task(read_much, &ends[0]);
	run_added();
}

TEST_IN_TASK(broken_pipe)
{
	signal(SIGPIPE, SIG_IGN);
	CHECK_EQ(&verdict, pipe(ends), 0);
	CHECK_EQ(&verdict, switchto_close(ends[0]), 0);
	CHECK_ERR(&verdict, switchto_write(ends[1], "", 1, NULL), EPIPE);
	CHECK_EQ(&verdict, switchto_close(ends[1]), 0);
}

/* --- waits that end without data --- */

static void read_in_vain(void *arg)
{
	struct timespec soon = in(3000000), now = in(0);
	const struct timespec bad = { 0, -1 };
	char byte;

	CHECK_ERR(&verdict, switchto_read(ends[0], &byte, 1, &soon), ETIMEDOUT);
	CHECK(&verdict, has_passed(&soon));
	CHECK_ERR(&verdict, switchto_read(ends[0], &byte, 1, &now), ETIMEDOUT);
	CHECK_ERR(&verdict, switchto_read(ends[0], &byte, 1, &bad), EINVAL);
	/* And with data, the descriptor still works. */
	CHECK_EQ(&verdict, switchto_write(ends[1], "x", 1, NULL), 1);
	CHECK_EQ(&verdict, switchto_read(ends[0], &byte, 1, &now), 1);
	atomic_store(&last_step, true);
	CHECK_ERR(&verdict, switchto_read(ends[0], &byte, 1, NULL), ECANCELED);
}

static void cancel_it(void *task)
{
	YIELD_UNTIL(atomic_load(&last_step));
	CHECK_EQ(&verdict, switchto_cancel(task), 0);
	CHECK_EQ(&verdict, switchto_join(task), 0);
	close_known(ends);
}

TEST(in_vain)
{
	assert_int_equal(pipe(ends), 0);
	add_task(cancel_it, add_handle(read_in_vain, NULL));
	run_added();
}

static void read_until_closed(void *arg)
{
	char byte;

	CHECK_EQ(&verdict, switchto_read(ends[0], &byte, 1, NULL), -1);
	CHECK_EQ(&verdict, errno, EBADF);
}

static void close_it(void *task)
{
	struct timespec soon = in(1000000);
	char byte;

	/* Both wait, one after the other. */
	CHECK_ERR(&verdict, switchto_read(ends[0], &byte, 1, &soon), ETIMEDOUT);
	CHECK_EQ(&verdict, switchto_close(ends[0]), 0);
	CHECK_EQ(&verdict, switchto_join(task), 0);
	CHECK_EQ(&verdict, switchto_close(ends[1]), 0);
	CHECK_ERR(&verdict, switchto_close(ends[1]), EBADF);
	CHECK_ERR(&verdict, switchto_close(1 << 30), EBADF);
	CHECK_ERR(&verdict, switchto_read(-1, &byte, 1, NULL), EBADF);
	CHECK_ERR(&verdict, switchto_read(1 << 30, &byte, 1, NULL), EBADF);
}

/* Again and again: both use the descriptor for the first time, maybe at once. */
TEST(closed_during_a_read)
{
	for (int i = 0; i < LOOPS(100); i++) {
		assert_int_equal(pipe(ends), 0);
		add_task(close_it, add_handle(read_until_closed, NULL));
		run_added();
	}
}

/* --- the same number, another descriptor --- */

static void read_until_gone(void *arg)
{
	char byte;

	CHECK_ERR(&verdict, switchto_read(ends[0], &byte, 1, NULL), EBADF);
}

/* Whatever the other one is at: its last use must leave nothing for who has the number next. */
static void close_at_once(void *task)
{
	struct timespec soon = in(100000);
	char byte;

	CHECK_EQ(&verdict, switchto_close(ends[0]), 0);
	CHECK_EQ(&verdict, switchto_join(task), 0);
	CHECK_EQ(&verdict, switchto_close(ends[1]), 0);
	CHECK_EQ(&verdict, pipe(ends), 0);
	CHECK_ERR(&verdict, switchto_read(ends[0], &byte, 1, &soon), ETIMEDOUT);
	CHECK_EQ(&verdict, switchto_write(ends[1], "x", 1, NULL), 1);
	soon = in(10000000000);
	CHECK_EQ(&verdict, switchto_read(ends[0], &byte, 1, &soon), 1);
	close_known(ends);
}

TEST(closed_while_somebody_comes)
{
	for (int i = 0; i < LOOPS(100); i++) {
		assert_int_equal(pipe(ends), 0);
		add_task(close_at_once, add_handle(read_until_gone, NULL));
		run_added();
	}
}

static void reuse(void *arg)
{
	char byte = 0;

	for (int i = 0; i < LOOPS(500); i++) {
		int pair[2];

		CHECK_EQ(&verdict, socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
		CHECK_EQ(&verdict, switchto_write(pair[0], "y", 1, NULL), 1);
		CHECK_EQ(&verdict, switchto_read(pair[1], &byte, 1, NULL), 1);
		CHECK_EQ(&verdict, byte, 'y');
		CHECK_EQ(&verdict, switchto_close(pair[0]), 0);
		CHECK_EQ(&verdict, switchto_read(pair[1], &byte, 1, NULL), 0);
		CHECK_EQ(&verdict, switchto_close(pair[1]), 0);
	}
}

TEST(numbers_are_used_again)
{
	for (int i = 0; i < 8; i++)
		add_task(reuse, NULL);
	run_added();
}

/* --- the other calls --- */

static void write_in_parts(void *arg)
{
	struct iovec parts[] = { { "abc", 3 }, { "defg", 4 } };
	struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2 };

	CHECK_EQ(&verdict, switchto_writev(ends[1], parts, 2, NULL), 7);
	CHECK_EQ(&verdict, switchto_sendmsg(ends[1], &message, 0, NULL), 7);
}

TEST_IN_TASK(in_parts)
{
	char head[4] = "", tail[4] = "";
	struct iovec parts[] = { { head, 3 }, { tail, 4 } };
	struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2 };
	struct timespec soon;

	CHECK_EQ(&verdict, socketpair(AF_UNIX, SOCK_DGRAM, 0, ends), 0);
	soon = in(1000000);
	CHECK_ERR(&verdict, switchto_readv(ends[0], parts, 2, &soon), ETIMEDOUT);
	soon = in(1000000);
	CHECK_ERR(&verdict, switchto_recvmsg(ends[0], &message, 0, &soon), ETIMEDOUT);
	spawn(NULL, write_in_parts, NULL);
	CHECK_EQ(&verdict, switchto_readv(ends[0], parts, 2, NULL), 7);
	CHECK(&verdict, memcmp(head, "abc", 3) == 0 && memcmp(tail, "defg", 4) == 0);
	memset(head, 0, sizeof(head));
	CHECK_EQ(&verdict, switchto_recvmsg(ends[0], &message, 0, NULL), 7);
	CHECK(&verdict, memcmp(head, "abc", 3) == 0);
	close_known(ends);
}

/* --- many messages at once --- */

enum { MANY = 1500, AT_ONCE = 1100 };

struct many {
	struct mmsghdr messages[AT_ONCE];
	struct iovec parts[AT_ONCE];
	int numbers[AT_ONCE];
};

static struct many *new_many(void)
{
	struct many *made = calloc(1, sizeof(*made));

	for (int i = 0; i < AT_ONCE; i++) {
		made->parts[i] = (struct iovec){ &made->numbers[i], sizeof(int) };
		made->messages[i].msg_hdr.msg_iov = &made->parts[i];
		made->messages[i].msg_hdr.msg_iovlen = 1;
	}
	return made;
}

/* The socket takes fewer than that at a time. */
static void send_many(void *arg)
{
	struct many *many = new_many();

	for (int sent = 0, n; sent < MANY; sent += n) {
		for (int i = 0; i < AT_ONCE; i++)
			many->numbers[i] = sent + i;
		n = MANY - sent < AT_ONCE ? MANY - sent : AT_ONCE;
		n = switchto_sendmmsg(ends[1], many->messages, (unsigned int)n, 0, NULL);
		CHECK(&verdict, n > 0);
		if (n <= 0)
			break;
	}
	free(many);
}

static void receive_many(void *arg)
{
	struct many *many = new_many();
	struct timespec soon = in(1000000);

	CHECK_ERR(&verdict, switchto_recvmmsg(ends[0], many->messages, 2, 0, &soon), ETIMEDOUT);
	spawn(NULL, send_many, NULL);
	/* Without MSG_WAITFORONE, it would wait for all. */
	for (int got = 0, n; got < MANY; got += n) {
		n = switchto_recvmmsg(ends[0], many->messages, AT_ONCE, MSG_WAITFORONE, NULL);
		CHECK(&verdict, n > 0);
		if (n <= 0)
			break;
		for (int i = 0; i < n; i++)
			CHECK_EQ(&verdict, many->numbers[i], got + i);
	}
	free(many);
	close_known(ends);
	CHECK_ERR(&verdict, switchto_recvmmsg(ends[0], NULL, 1, 0, NULL), EBADF);
	CHECK_ERR(&verdict, switchto_sendmmsg(ends[1], NULL, 1, 0, NULL), EBADF);
}

TEST(many_messages)
{
	assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends), 0);
	run_task(receive_many, NULL);
	CHECK_ERR(v, switchto_recvmmsg(0, NULL, 0, 0, NULL), EPERM);
	CHECK_ERR(v, switchto_sendmmsg(0, NULL, 0, 0, NULL), EPERM);
}

/* --- what a short read does not say --- */

/* All is there before the first read: no event comes in between. */
static void read_short(void *arg)
{
	const int fd = (int)(long)arg;
	const struct timespec late = in(60 * NSEC_PER_SEC);
	char buffer[16];

	CHECK_EQ(&verdict, switchto_recv(fd, buffer, sizeof(buffer), MSG_PEEK, &late), 3);
	CHECK_EQ(&verdict, switchto_recv(fd, buffer, sizeof(buffer), MSG_PEEK, &late), 3);
	CHECK_EQ(&verdict, switchto_recv(fd, buffer, sizeof(buffer), 0, &late), 3);
	CHECK(&verdict, memcmp(buffer, "abc", 3) == 0);
}

static void read_datagrams(void *arg)
{
	const struct timespec late = in(60 * NSEC_PER_SEC);
	char buffer[16];

	read_short(arg);
	CHECK_EQ(&verdict, switchto_recv(ends[0], buffer, sizeof(buffer), 0, &late), 2);
	CHECK(&verdict, memcmp(buffer, "de", 2) == 0);
	CHECK_EQ(&verdict, switchto_read(ends[0], buffer, sizeof(buffer), &late), 1);
	CHECK_EQ(&verdict, switchto_read(ends[0], buffer, sizeof(buffer), &late), 1);
	CHECK(&verdict, buffer[0] == 'g');
	close_known(ends);
}

static void no_wait(void *arg)
{
	struct msghdr message = { 0 };
	struct mmsghdr messages = { 0 };
	char byte = 'x';

	CHECK_ERR(&verdict, switchto_recv(ends[0], &byte, 1, MSG_DONTWAIT, NULL), EAGAIN);
	CHECK_ERR(&verdict, switchto_recvmsg(ends[0], &message, MSG_DONTWAIT, NULL), EAGAIN);
	CHECK_ERR(&verdict, switchto_recvmmsg(ends[0], &messages, 1, MSG_DONTWAIT, NULL), EAGAIN);
	CHECK_EQ(&verdict, switchto_send(ends[1], &byte, 1, MSG_DONTWAIT, NULL), 1);
	CHECK_EQ(&verdict, switchto_recv(ends[0], &byte, 1, 0, NULL), 1);
	while (switchto_send(ends[1], &byte, 1, MSG_DONTWAIT, NULL) == 1)
		;
	CHECK_EQ(&verdict, errno, EAGAIN);
	CHECK_ERR(&verdict, switchto_sendmsg(ends[1], &message, MSG_DONTWAIT, NULL), EAGAIN);
	CHECK_ERR(&verdict, switchto_sendmmsg(ends[1], &messages, 1, MSG_DONTWAIT, NULL), EAGAIN);
	close_known(ends);
}

/* That the queue of errors is empty says nothing of the data. */
static void no_errors(void *arg)
{
	const int fd = socket(AF_INET, SOCK_DGRAM, 0);
	struct sockaddr_in self = { .sin_family = AF_INET };
	socklen_t length = sizeof(self);
	char byte = 'x';

	/* Connected to itself. */
	self.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK_EQ(&verdict, bind(fd, (struct sockaddr *)&self, length), 0);
	CHECK_EQ(&verdict, getsockname(fd, (struct sockaddr *)&self, &length), 0);
	CHECK_EQ(&verdict, connect(fd, (struct sockaddr *)&self, length), 0);
	CHECK_EQ(&verdict, switchto_send(fd, &byte, 1, 0, NULL), 1);
	CHECK_EQ(&verdict, switchto_recv(fd, &byte, 1, MSG_PEEK, NULL), 1);
	CHECK_ERR(&verdict, switchto_recv(fd, &byte, 1, MSG_ERRQUEUE, NULL), EAGAIN);
	CHECK_EQ(&verdict, switchto_recv(fd, &byte, 1, 0, NULL), 1);
	CHECK_EQ(&verdict, switchto_close(fd), 0);
}

TEST(short_reads)
{
	struct switchto_sched *sched = new_sched(NULL);

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	assert_int_equal(send(ends[1], "abc", 3, 0), 3);
	run_one(sched, read_short, (void *)(long)ends[0]);
	close_both(ends);

	sched = new_sched(NULL);
	assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends), 0);
	assert_int_equal(send(ends[1], "abc", 3, 0), 3);
	assert_int_equal(send(ends[1], "de", 2, 0), 2);
	assert_int_equal(send(ends[1], "f", 1, 0), 1);
	assert_int_equal(send(ends[1], "g", 1, 0), 1);
	run_one(sched, read_datagrams, (void *)(long)ends[0]);

	sched = new_sched(NULL);
	assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends), 0);
	spawn(sched, no_wait, NULL);
	spawn(sched, no_errors, NULL);
	run_tasks(sched);
}

static void write_one(void *arg)
{
	CHECK_EQ(&verdict, switchto_write(ends[1], "x", 1, NULL), 1);
}

TEST_IN_TASK(polled)
{
	struct timespec soon = in(1000000);
	rlim_t old;
	int other;

	CHECK_EQ(&verdict, pipe(ends), 0);
	/* A number that nobody else is given. */
	other = fcntl(ends[1], F_DUPFD, 500);
	CHECK_ERR(&verdict, switchto_poll(ends[0], POLLIN, &soon), ETIMEDOUT);
	/* What poll(2) itself says. */
	old = set_limit(RLIMIT_NOFILE, 0);
	CHECK_ERR(&verdict, switchto_poll(ends[0], POLLIN, NULL), EINVAL);
	set_limit(RLIMIT_NOFILE, old);
	CHECK_EQ(&verdict, switchto_poll(ends[1], POLLOUT, NULL), POLLOUT);
	CHECK_ERR(&verdict, switchto_poll(ends[1], POLLIN | POLLOUT, NULL), EINVAL);
	CHECK_ERR(&verdict, switchto_poll(ends[1], POLLPRI, NULL), EINVAL);
	CHECK_ERR(&verdict, switchto_poll(ends[1], 0, NULL), EINVAL);
	CHECK_ERR(&verdict, switchto_poll(-1, POLLIN, NULL), EBADF);
	CHECK_EQ(&verdict, switchto_poll(other, POLLOUT, NULL), POLLOUT);
	CHECK_EQ(&verdict, close(other), 0);
	CHECK_ERR(&verdict, switchto_poll(other, POLLOUT, NULL), EBADF);
	spawn(NULL, write_one, NULL);
	CHECK_EQ(&verdict, switchto_poll(ends[0], POLLIN, NULL), POLLIN);
	/* It took nothing: it is so again. */
	CHECK_EQ(&verdict, switchto_poll(ends[0], POLLIN, NULL), POLLIN);
	CHECK_EQ(&verdict, switchto_close(ends[1]), 0);
	CHECK_EQ(&verdict, switchto_poll(ends[0], POLLIN, NULL), POLLIN | POLLHUP);
	CHECK_EQ(&verdict, switchto_close(ends[0]), 0);
}

/* --- splice --- */

static int other_ends[2];

static void splice_all(void *arg)
{
	ssize_t n;

	while ((n = switchto_splice(ends[0], NULL, other_ends[1], NULL, 1 << 20, 0, NULL)) > 0)
		;
	CHECK_EQ(&verdict, n, 0);
	CHECK_EQ(&verdict, switchto_close(ends[0]), 0);
	CHECK_EQ(&verdict, switchto_close(other_ends[1]), 0);
}

/* While the splice waits for the other end. */
static void close_target(void *source)
{
	sleep_for(10000000);
	CHECK_EQ(&verdict, switchto_close(other_ends[1]), 0);
	CHECK_EQ(&verdict, write(*(int *)source, "x", 1), 1);
}

static void splice_now(void *arg)
{
	int save[2] = { ends[0], ends[1] };
	const struct timespec bad = { 0, -1 };
	struct timespec soon = in(1000000);

	CHECK_ERR(&verdict, switchto_splice(save[0], NULL, other_ends[1], NULL, 1, 0, &soon),
		  ETIMEDOUT);
	CHECK_ERR(&verdict, switchto_splice(save[0], NULL, other_ends[1], NULL, 1, 0, &bad),
		  EINVAL);
	CHECK_ERR(&verdict, switchto_splice(-1, NULL, other_ends[1], NULL, 1, 0, NULL), EBADF);
	CHECK_EQ(&verdict, switchto_write(save[1], "x", 1, NULL), 1);
	/* Somebody has made it block since it was known. */
	CHECK_EQ(&verdict, fcntl(save[0], F_SETFL, 0), 0);
	CHECK_EQ(&verdict, switchto_splice(save[0], NULL, other_ends[1], NULL, 10, 0, NULL), 1);
	CHECK(&verdict, fcntl(save[0], F_GETFL) & O_NONBLOCK);
	spawn(NULL, close_target, &save[1]);
	CHECK_ERR(&verdict, switchto_splice(save[0], NULL, other_ends[1], NULL, 1, 0, NULL), EBADF);
	close_known(save);
	CHECK_EQ(&verdict, switchto_close(other_ends[0]), 0);
}

TEST(spliced)
{
	struct switchto_sched *sched = new_sched(NULL);

	assert_int_equal(pipe(ends), 0);
	assert_int_equal(pipe(other_ends), 0);
	run_one(sched, splice_now, NULL);

	/* More than both pipes hold. */
	sched = new_sched(NULL);
	assert_int_equal(pipe(ends), 0);
	assert_int_equal(pipe(other_ends), 0);
	spawn(sched, write_much, NULL);
	spawn(sched, splice_all, NULL);
	spawn(sched, read_much, &other_ends[0]);
	run_tasks(sched);
}

/* --- files --- */

static void use_file(void *arg)
{
	const struct timespec past = { -1, 0 }, bad = { 0, -1 };
	char name[] = "/tmp/switchto-XXXXXX", text[6] = "";
	int fd = mkstemp(name), pair[2];
	off_t start = 0;

	CHECK(&verdict, fd >= 0);
	CHECK_EQ(&verdict, switchto_write(fd, "hello", 5, NULL), 5);
	CHECK_EQ(&verdict, switchto_fsync(fd), 0);
	CHECK_EQ(&verdict, switchto_close(fd), 0);
	/* The number of one that is known, and was closed without a word. */
	CHECK_EQ(&verdict, pipe(pair), 0);
	CHECK_ERR(&verdict, switchto_read(pair[0], text, 1, &past), ETIMEDOUT);
	CHECK_EQ(&verdict, close(pair[0]), 0);
	fd = switchto_openat(AT_FDCWD, name, O_RDONLY, 0);
	CHECK_EQ(&verdict, fd, pair[0]);
	CHECK_EQ(&verdict, close(pair[1]), 0);
	CHECK_ERR(&verdict, switchto_accept(fd, NULL, NULL, 0, NULL), ENOTSOCK);
	/* Nothing to wait for: that the deadline has passed does not matter. */
	CHECK_EQ(&verdict, switchto_read(fd, text, 5, &past), 5);
	CHECK(&verdict, strcmp(text, "hello") == 0);
	CHECK_EQ(&verdict, switchto_read(fd, text, 5, NULL), 0);
	CHECK_ERR(&verdict, switchto_read(fd, text, 5, &bad), EINVAL);
	CHECK_EQ(&verdict, switchto_poll(fd, POLLIN, NULL), POLLIN);
	CHECK_EQ(&verdict, pipe(pair), 0);
	CHECK_EQ(&verdict, switchto_splice(fd, &start, pair[1], NULL, 5, 0, NULL), 5);
	CHECK_EQ(&verdict, switchto_read(pair[0], text, 5, NULL), 5);
	CHECK(&verdict, strcmp(text, "hello") == 0);
	close_known(pair);
	CHECK_EQ(&verdict, switchto_block_begin(), 0);
	CHECK_ERR(&verdict, switchto_read(fd, text, 5, NULL), EINVAL);
	CHECK_EQ(&verdict, switchto_block_end(), 0);
	CHECK_EQ(&verdict, switchto_close(fd), 0);
	CHECK_ERR(&verdict, switchto_openat(AT_FDCWD, "/there/is/none", O_RDONLY, 0), ENOENT);
	CHECK_ERR(&verdict, switchto_fsync(-1), EBADF);
	CHECK_EQ(&verdict, unlink(name), 0);
	CHECK_EQ(&verdict, switchto_cancel(switchto_task_self()), 0);
	CHECK_ERR(&verdict, switchto_openat(AT_FDCWD, "/", O_RDONLY, 0), ECANCELED);
}

TEST(file)
{
	char byte;

	run_task(use_file, NULL);
	CHECK_ERR(v, switchto_openat(AT_FDCWD, "/", O_RDONLY, 0), EPERM);
	CHECK_ERR(v, switchto_fsync(0), EPERM);
	CHECK_ERR(v, switchto_read(0, &byte, 1, NULL), EPERM);
	CHECK_ERR(v, switchto_recv(0, &byte, 1, MSG_DONTWAIT, NULL), EPERM);
	CHECK_ERR(v, switchto_poll(0, POLLIN, NULL), EPERM);
	CHECK_ERR(v, switchto_connect(0, NULL, 0, NULL), EPERM);
}

/* --- no descriptors left --- */

TEST(no_descriptors)
{
	const rlim_t old = set_limit(RLIMIT_NOFILE, 3);

	no_sched(NULL, EMFILE);
	set_limit(RLIMIT_NOFILE, old);
}
