// SPDX-License-Identifier: MIT
/*
 * Descriptors belong to the process: several tasks, schedulers, threads and libraries use them, hand
 * them on, close them, and use their numbers again. No wait is lost, and none is left.
 */
#include "sched.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>

static int ends[2];
static atomic_uint waiting, step;

static struct timespec late(void)
{
	return in(240 * NSEC_PER_SEC);
}

static void new_pair(void)
{
	CHECK_EQ(&verdict, socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
}

static void tcp_pair(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	socklen_t size = sizeof(address);

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(bind(listener, (struct sockaddr *)&address, size), 0);
	assert_int_equal(listen(listener, 1), 0);
	assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &size), 0);
	ends[1] = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(connect(ends[1], (struct sockaddr *)&address, size), 0);
	ends[0] = accept(listener, NULL, NULL);
	assert_true(ends[0] >= 0);
	close(listener);
}

static void close_ends(void)
{
	CHECK_EQ(&verdict, switchto_close(ends[0]), 0);
	CHECK_EQ(&verdict, switchto_close(ends[1]), 0);
}

static void nap(long long ns)
{
	struct timespec time = in(ns);

	if (switchto_task_self())
		CHECK_EQ(&verdict, switchto_sleep_until(&time), 0);
	else
		usleep((useconds_t)(ns / 1000));
}

/* Until as many wait as are to: nothing says that they do, but some time later they will. */
static void until_waiting(unsigned int wanted)
{
	while (atomic_load(&waiting) < wanted)
		nap(NSEC_PER_SEC / 1000);
	nap(NSEC_PER_SEC / 50);
}

static void write_later(void *arg)
{
	nap(NSEC_PER_SEC / 50);
	CHECK_EQ(&verdict, write(ends[1], "x", 1), 1);
}

/* A call that finds something has nothing polled. */
static void have_polled(void)
{
	struct timespec time = in(NSEC_PER_SEC / 1000);
	char byte;

	CHECK_ERR(&verdict, switchto_recv(ends[0], &byte, 1, 0, &time), ETIMEDOUT);
}

/* --- several tasks at one descriptor --- */

enum { READERS = 6 };

static char turns[READERS];
static atomic_uint served;

static void read_in_turn(void *arg)
{
	struct timespec time = late();

	atomic_fetch_add(&waiting, 1);
	CHECK_EQ(&verdict, switchto_read(ends[0], &turns[(uintptr_t)arg], 1, &time), 1);
	atomic_fetch_add(&served, 1);
}

static void give_up_turn(void *arg)
{
	struct timespec time = in(NSEC_PER_SEC / 50);
	char byte;

	atomic_fetch_add(&waiting, 1);
	CHECK_ERR(&verdict, switchto_read(ends[0], &byte, 1, arg ? NULL : &time),
		  arg ? ECANCELED : ETIMEDOUT);
}

static void serve_in_order(void *arg)
{
	const struct timespec bad = { 0, -1 };
	struct switchto_task *cancelled;
	char byte;

	have_polled();
	for (uintptr_t i = 0; i < READERS; i++) {
		// NOLINTNEXTLINE(performance-no-int-to-ptr)
		spawn(NULL, read_in_turn, (void *)i);
		until_waiting((unsigned int)i + 1);
		/* The order in which they wait is what counts. */
		nap(NSEC_PER_SEC / 10);
		if (i != 2)
			continue;
		CHECK_ERR(&verdict, switchto_read(ends[0], &byte, 1, &bad), EINVAL);
		/* Between the others, and before them. */
		spawn(NULL, give_up_turn, NULL);
		cancelled = spawn_handle(NULL, give_up_turn, ends);
		while (atomic_load(&waiting) < 5)
			nap(NSEC_PER_SEC / 1000);
		nap(NSEC_PER_SEC / 10);
		CHECK_EQ(&verdict, switchto_cancel(cancelled), 0);
		CHECK_EQ(&verdict, switchto_join(cancelled), 0);
		atomic_fetch_sub(&waiting, 2);
	}
	for (unsigned int i = 0; i < READERS; i++) {
		/* One at a time, and then all. */
		CHECK_EQ(&verdict, write(ends[1], &"abcdef"[i], i < 3 ? 1 : READERS - 3),
			 i < 3 ? 1 : READERS - 3);
		while (atomic_load(&served) < (i < 3 ? i + 1 : READERS))
			nap(NSEC_PER_SEC / 1000);
		if (i == 3)
			break;
	}
	for (unsigned int i = 0; i < READERS; i++)
		CHECK_EQ(&verdict, turns[i], 'a' + (int)i);
}

TEST(in_order)
{
	atomic_store(&waiting, 0);
	atomic_store(&served, 0);
	new_pair();
	run_task_in_time(serve_in_order, NULL);
	close_ends();
}

enum { BYTES = 20000, MANY = 20 };

static atomic_uint got;

static void read_some(void *arg)
{
	char buffer[7];
	ssize_t n;

	while ((n = switchto_read(ends[0], buffer, sizeof(buffer), NULL)) > 0)
		atomic_fetch_add(&got, (unsigned int)n);
	CHECK_EQ(&verdict, n, 0);
	if (atomic_fetch_add(&served, 1) == MANY - 1)
		CHECK_EQ(&verdict, switchto_close(ends[0]), 0);
}

static void write_some(void *arg)
{
	for (int i = 0; i < BYTES / MANY / 5; i++) {
		CHECK_EQ(&verdict, switchto_write(ends[1], "abcde", 5, NULL), 5);
		if (i % 7 == 0)
			CHECK_EQ(&verdict, switchto_yield(), 0);
	}
	if (atomic_fetch_add(&step, 1) == MANY - 1)
		CHECK_EQ(&verdict, switchto_close(ends[1]), 0);
}

TEST(many)
{
	atomic_store(&got, 0);
	atomic_store(&served, 0);
	atomic_store(&step, 0);
	assert_int_equal(pipe(ends), 0);
	for (int i = 0; i < MANY; i++) {
		add_task(read_some, NULL);
		add_task(write_some, NULL);
	}
	run_added_in_time();
	assert_int_equal(atomic_load(&got), BYTES);
}

/* One that waits gives up, by its deadline or cancelled: then it is the next one's turn. */
static void take_turn(void *arg)
{
	struct timespec time = late();
	char byte;

	until_waiting(1);
	CHECK_EQ(&verdict, switchto_recv(ends[0], &byte, 1, 0, &time), 1);
}

static void receive_in_vain(void *arg)
{
	struct timespec time = in(NSEC_PER_SEC / 10);
	char byte;

	atomic_fetch_add(&waiting, 1);
	/* The second time, it is the other one's turn, which has not run yet. */
	for (int i = 0; i < 2; i++)
		CHECK_ERR(&verdict, switchto_recv(ends[0], &byte, 1, 0, arg ? NULL : &time),
			  arg ? ECANCELED : ETIMEDOUT);
}

static void leave_turn(void *arg)
{
	struct timespec time = late();
	struct switchto_task *first;
	char byte;

	/* From now on a receive waits before it tries. */
	CHECK_EQ(&verdict, write(ends[1], "a", 1), 1);
	CHECK_EQ(&verdict, switchto_recv(ends[0], &byte, 1, 0, &time), 1);
	time = in(NSEC_PER_SEC / 1000);
	CHECK_ERR(&verdict, switchto_recv(ends[0], &byte, 1, 0, &time), ETIMEDOUT);
	first = spawn_handle(NULL, receive_in_vain, arg);
	spawn(NULL, take_turn, NULL);
	until_waiting(1);
	nap(NSEC_PER_SEC / 50);
	if (arg)
		CHECK_EQ(&verdict, switchto_cancel(first), 0);
	CHECK_EQ(&verdict, switchto_join(first), 0);
	CHECK_EQ(&verdict, write(ends[1], "b", 1), 1);
}

TEST(turns_left)
{
	for (int cancelled = 0; cancelled < 2; cancelled++) {
		new_pair();
		atomic_store(&waiting, 0);
		run_task_in_time(leave_turn, cancelled ? ends : NULL);
		close_ends();
	}
}

/* What comes is not for the first that waits, but for the next. */
static void watch_in_vain(void *arg)
{
	char buffer[64];

	atomic_fetch_add(&waiting, 1);
	if (!arg)
		CHECK_ERR(&verdict, switchto_poll(ends[0], POLLRDHUP, NULL), ECANCELED);
	else /* a part is there then */
		CHECK_EQ(&verdict, switchto_recv(ends[0], buffer, 64, MSG_PEEK | MSG_WAITALL, NULL),
			 1);
}

static void watch_and_read(void *arg)
{
	struct timespec time = in(10 * NSEC_PER_SEC);
	struct switchto_task *watchers[2];
	long long used;
	char byte;

	for (unsigned int i = 0; i < 2; i++) {
		watchers[i] = spawn_handle(NULL, watch_in_vain, arg);
		until_waiting(i + 1);
	}
	spawn(NULL, write_later, NULL);
	CHECK_EQ(&verdict, switchto_recv(ends[0], &byte, 1, 0, &time), 1);
	/* What nobody wants goes from one to the other once. */
	CHECK_EQ(&verdict, write(ends[1], "x", 1), 1);
	used = cpu_ns();
	nap(NSEC_PER_SEC / 4);
	CHECK(&verdict, cpu_ns() - used < NSEC_PER_SEC / 20);
	for (unsigned int i = 0; i < 2; i++) {
		CHECK_EQ(&verdict, switchto_cancel(watchers[i]), 0);
		CHECK_EQ(&verdict, switchto_join(watchers[i]), 0);
	}
}

TEST(turns_passed_on)
{
	for (int peeks = 0; peeks < 2; peeks++) {
		tcp_pair();
		atomic_store(&waiting, 0);
		run_task_in_time(watch_and_read, peeks ? ends : NULL);
		close_ends();
	}
}

/* --- a reader behind one that takes nothing: again and again --- */

enum { ROUNDS = 50 };

static void watch_for_the_end(void *arg)
{
	const struct timespec time = late();

	CHECK_EQ(&verdict, switchto_poll(ends[0], POLLRDHUP, &time) & POLLRDHUP, POLLRDHUP);
}

static void answer_bytes(void *arg)
{
	const struct timespec time = late();
	char byte;

	while (switchto_recv(ends[0], &byte, 1, 0, &time) == 1)
		CHECK_EQ(&verdict, switchto_send(ends[0], &byte, 1, 0, &time), 1);
}

static void ask_and_leave(void *arg)
{
	const struct timespec time = late();
	char byte = 'b';

	for (int i = 0; i < ROUNDS && !atomic_load(&verdict.failed); i++) {
		CHECK_EQ(&verdict, switchto_send(ends[1], &byte, 1, 0, &time), 1);
		CHECK_EQ(&verdict, switchto_recv(ends[1], &byte, 1, 0, &time), 1);
	}
	CHECK_EQ(&verdict, switchto_close(ends[1]), 0);
}

TEST(reader_behind_a_watcher)
{
	tcp_pair();
	add_task(watch_for_the_end, NULL);
	add_task(answer_bytes, NULL);
	add_task(ask_and_leave, NULL);
	run_added_in_time();
	close(ends[0]);
}

/*
 * Many connections, each with a task that waits for the end only, by a poll or a select. The monitor
 * comes to each of them now and then, and would help a reader that sleeps beside what is there.
 */
enum { WATCHED = 200, LOOKS = 9 };

static int watched[WATCHED][2];

static void watch_one(void *pair)
{
	struct pollfd poll = { .fd = *(int *)pair, .events = POLLRDHUP };
	struct switchto_case c = { .op = SWITCHTO_POLL, .item = &poll };
	const struct timespec time = late();

	CHECK_EQ(&verdict, switchto_select(&c, 1, &time), 0);
	CHECK_EQ(&verdict, poll.revents & POLLRDHUP, POLLRDHUP);
}

static void poll_one(void *pair)
{
	const struct timespec time = late();

	CHECK_EQ(&verdict, switchto_poll(*(int *)pair, POLLRDHUP, &time) & POLLRDHUP, POLLRDHUP);
}

static long long times[LOOKS];

static bool most_are_quick(void)
{
	int quick = 0;

	for (int i = 0; i < LOOKS; i++)
		quick += times[i] < 5 * MSEC;
	return quick > LOOKS / 2;
}

/* What is there for long, and was seen by who does not want it. */
static void read_of_each(const struct timespec *time)
{
	char byte;

	nap(NSEC_PER_SEC / 5);
	for (int n = 0; n < WATCHED; n++)
		CHECK_EQ(&verdict, write(watched[n][1], "b", 1), 1);
	nap(NSEC_PER_SEC / 2);
	for (int i = 0; i < LOOKS; i++) {
		times[i] = -now_ns();
		CHECK_EQ(&verdict, switchto_read(watched[i * WATCHED / LOOKS][0], &byte, 1, time),
			 1);
		times[i] += now_ns();
	}
}

static void read_after_watchers(void *select)
{
	const struct timespec time = late();
	char byte;

	for (int n = 0; n < WATCHED; n++) {
		CHECK_EQ(&verdict, socketpair(AF_UNIX, SOCK_STREAM, 0, watched[n]), 0);
		/* From now on, the kernel tells once. */
		CHECK(&verdict, switchto_poll(watched[n][0], POLLOUT, &time) & POLLOUT);
		/* A read has succeeded: the next one waits before it makes a call. */
		CHECK_EQ(&verdict, write(watched[n][1], "a", 1), 1);
		CHECK_EQ(&verdict, switchto_read(watched[n][0], &byte, 1, &time), 1);
		spawn(NULL, select ? watch_one : poll_one, watched[n]);
	}
	read_of_each(&time);
	for (int n = 0; n < WATCHED; n++)
		CHECK_EQ(&verdict, switchto_close(watched[n][1]), 0);
}

TEST(readers_after_watchers)
{
	for (int select = 0; select < 2; select++) {
		int tries = 0;

		do {
			run_task_in_time(read_after_watchers, select ? ends : NULL);
			for (int n = 0; n < WATCHED; n++)
				close(watched[n][0]);
		} while (!most_are_quick() && ++tries < 5);
		assert_true(tries < 5);
	}
}

/* --- closed by anybody --- */

static void wait_until_gone(void *arg)
{
	char byte;

	atomic_fetch_add(&waiting, 1);
	CHECK_ERR(&verdict, switchto_read(ends[0], &byte, 1, NULL), EBADF);
	atomic_fetch_add(&served, 1);
}

enum closer { CLOSE, FORGET, PLAIN_CLOSE, CLOSERS };

static void *close_here(void *arg)
{
	const enum closer how = *(enum closer *)arg;

	if (how == CLOSE)
		CHECK_EQ(&verdict, switchto_close(ends[0]), 0);
	if (how == FORGET)
		CHECK_EQ(&verdict, switchto_forget(ends[0]), 0);
	/* ThreadSanitizer, which knows close(2), would complain of who looks at the descriptor. */
	if (how != CLOSE)
		CHECK_EQ(&verdict, syscall(SYS_close, ends[0]), 0);
	return NULL;
}

static void *wait_and_close(void *arg)
{
	until_waiting(3);
	/* Whoever closes it without a word may also do so long after that. */
	usleep(100000);
	return close_here(arg);
}

TEST(closed_by_threads)
{
	for (enum closer how = 0; how < CLOSERS; how++) {
		struct switchto_sched *sched = new_sched(NULL);
		pthread_t thread;

		new_pair();
		atomic_store(&waiting, 0);
		for (int i = 0; i < 3; i++)
			spawn(sched, wait_until_gone, NULL);
		assert_int_equal(pthread_create(&thread, NULL, wait_and_close, &how), 0);
		run_in_time(sched);
		pthread_join(thread, NULL);
		verdict_assert(&verdict);
		close(ends[1]);
	}
}

/* The number of a descriptor that was closed in any way, used again. */
static void use_again(void *arg)
{
	enum closer how = *(enum closer *)arg;
	char buffer[8];

	for (int i = 0; i < 24; i++) {
		struct timespec time = in(NSEC_PER_SEC / 1000);
		const int flags = i & 8 ? SOCK_NONBLOCK : 0;

		/* Sockets and pipes by turns. */
		if (i % 3)
			CHECK_EQ(&verdict, socketpair(AF_UNIX, SOCK_STREAM | flags, 0, ends), 0);
		else
			CHECK_EQ(&verdict, pipe2(ends, i & 8 ? O_NONBLOCK : 0), 0);
		if (i & 1)
			CHECK_ERR(&verdict, switchto_read(ends[0], buffer, 1, &time), ETIMEDOUT);
		time = late();
		CHECK_EQ(&verdict, switchto_write(ends[1], "abcd", 4, &time), 4);
		CHECK_EQ(&verdict, switchto_read(ends[0], buffer, 3, &time), 3);
		if (i & 2)
			CHECK_EQ(&verdict, switchto_read(ends[0], buffer, 8, &time), 1);
		if (i & 4) {
			CHECK_EQ(&verdict, switchto_close(ends[1]), 0);
			CHECK_EQ(&verdict, switchto_read(ends[0], buffer, 8, &time), i & 2 ? 0 : 1);
		} else {
			CHECK_EQ(&verdict, close(ends[1]), 0);
		}
		close_here(&how);
	}
}

/* The mark says that the old one is empty: so a read of the new one waits at once. */
static void use_again_waiting(void *arg)
{
	enum closer how = *(enum closer *)arg;
	char buffer[8];

	for (int i = 0; i < 6; i++) {
		struct timespec time = late();

		new_pair();
		spawn(NULL, write_later, NULL);
		CHECK_EQ(&verdict, switchto_recv(ends[0], buffer, 8, 0, &time), 1);
		if (i % 2)
			CHECK_EQ(&verdict, switchto_write(ends[0], "ab", 2, &time), 2);
		close_here(&how);
		CHECK_EQ(&verdict, close(ends[1]), 0);
	}
}

TEST(used_again)
{
	for (enum closer how = 0; how < CLOSERS; how++) {
		struct switchto_sched *sched = new_sched(NULL);

		spawn(sched, use_again, &how);
		run_in_time(sched);
		sched = new_sched(NULL);
		spawn(sched, use_again_waiting, &how);
		run_in_time(sched);
	}
}

/*
 * A task is about to go on when its descriptor is closed: there was an event, or it is to try again
 * soon. At once, the number is another descriptor's.
 */
enum goer { RECEIVES, SENDS, SENDS_TO, CONNECTS, GOERS };

enum { NAME_SIZE = sizeof(sa_family_t) + 11 };

/* Abstract, and of this process. */
static struct sockaddr_un server_name = { .sun_family = AF_UNIX };
static int go[2], next[2];

static void go_on(void *arg)
{
	static char big[1 << 20];
	const enum goer how = *(enum goer *)arg;
	const struct sockaddr *name = (const struct sockaddr *)&server_name;
	struct timespec time = in(5 * NSEC_PER_SEC);
	char byte = 'o';
	ssize_t n = 0;

	atomic_fetch_add(&waiting, 1);
	if (how == SENDS) {
		n = switchto_write(ends[0], big, sizeof(big), &time);
		CHECK(&verdict, n > 0 && n < (ssize_t)sizeof(big));
		return;
	}
	if (how == RECEIVES)
		n = switchto_recv(ends[0], &byte, 1, 0, &time);
	while (how == SENDS_TO && n >= 0)
		n = switchto_sendto(ends[0], "x", 1, 0, name, NAME_SIZE, &time);
	if (how == CONNECTS)
		n = switchto_connect(ends[0], name, NAME_SIZE, &time);
	/* With several slots, it may have been faster. */
	if (how == RECEIVES && n == 1)
		CHECK_EQ(&verdict, byte, 'o');
	else
		CHECK(&verdict, n == -1 && errno == EBADF);
}

/* A new pair, of which the first has @number, which is free. */
static void use_number(int number, int type)
{
	CHECK_EQ(&verdict, socketpair(AF_UNIX, type, 0, next), 0);
	if (next[1] == number) {
		next[1] = next[0];
	} else if (next[0] != number) {
		CHECK_EQ(&verdict, dup2(next[0], number), number);
		CHECK_EQ(&verdict, close(next[0]), 0);
	}
	next[0] = number;
}

static void close_and_use(void *arg)
{
	char byte;

	CHECK_EQ(&verdict, switchto_read(go[0], &byte, 1, NULL), 1);
	CHECK_EQ(&verdict, switchto_close(ends[0]), 0);
	use_number(ends[0], *(enum goer *)arg == SENDS_TO ? SOCK_DGRAM : SOCK_STREAM);
	CHECK_EQ(&verdict, write(next[1], "n", 1), 1);
}

static void let_go_on(void *arg)
{
	static char buffer[1 << 20];
	const enum goer how = *(enum goer *)arg;
	struct switchto_task *goer, *closer = spawn_handle(NULL, close_and_use, arg);

	if (how == RECEIVES)
		have_polled();
	goer = spawn_handle(NULL, go_on, arg);
	until_waiting(1);
	/* In one poll, in this order. */
	CHECK_EQ(&verdict, write(go[1], "x", 1), 1);
	if (how == RECEIVES)
		CHECK_EQ(&verdict, write(ends[1], "o", 1), 1);
	if (how == SENDS)
		CHECK(&verdict, read(ends[1], buffer, sizeof(buffer)) > 0);
	CHECK_EQ(&verdict, switchto_join(closer), 0);
	CHECK_EQ(&verdict, switchto_join(goer), 0);
	CHECK_ERR(&verdict, recv(next[1], buffer, 1, MSG_DONTWAIT), EAGAIN);
}

TEST(closed_before_they_go_on)
{
	const struct sockaddr *name = (const struct sockaddr *)&server_name;

	snprintf(server_name.sun_path + 1, NAME_SIZE, "%010d", getpid());
	for (enum goer how = 0; how < GOERS; how++) {
		const int type = how == SENDS_TO ? SOCK_DGRAM : SOCK_STREAM;
		int server = socket(AF_UNIX, type, 0), client = socket(AF_UNIX, type, 0);

		new_pair();
		assert_int_equal(pipe(go), 0);
		atomic_store(&waiting, 0);
		assert_int_equal(bind(server, name, NAME_SIZE), 0);
		if (how == CONNECTS) {
			assert_int_equal(listen(server, 0), 0);
			assert_int_equal(connect(client, name, NAME_SIZE), 0);
		}
		if (how >= SENDS_TO) {
			close(ends[0]);
			assert_int_equal(dup2(socket(AF_UNIX, type, 0), ends[0]), ends[0]);
		}
		run_task_in_time(let_go_on, &how);
		close(server);
		close(client);
		close(go[0]);
		close(go[1]);
		close(next[1]);
		close_ends();
	}
}

/* A close that waits until all is sent, or for some time. */
static void close_slowly(void *arg)
{
	const long long begin = now_ns();

	CHECK_EQ(&verdict, switchto_close(ends[0]), 0);
	CHECK(&verdict, now_ns() - begin > NSEC_PER_SEC / 2);
	atomic_store(&served, 1);
}

/* @in_time: all was done before close_slowly(). */
static void close_lingering(void *in_time)
{
	static char big[8 << 20];
	const struct linger linger = { 1, 1 };
	const int number = ends[0], end = ends[1];
	struct timespec time = in(NSEC_PER_SEC / 10);
	struct switchto_task *closer;
	char byte;

	atomic_store(&served, 0);
	CHECK_EQ(&verdict, setsockopt(number, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)), 0);
	CHECK(&verdict, switchto_send(number, big, sizeof(big), 0, &time) > 0);
	closer = spawn_handle(NULL, close_slowly, NULL);
	/* It is free at once. */
	while (fcntl(number, F_GETFD) != -1)
		nap(NSEC_PER_SEC / 1000);
	use_number(number, SOCK_STREAM);
	ends[1] = next[1];
	spawn(NULL, write_later, NULL);
	CHECK_EQ(&verdict, switchto_recv(number, &byte, 1, 0, NULL), 1);
	*(bool *)in_time = !atomic_load(&served);
	CHECK_EQ(&verdict, switchto_join(closer), 0);
	close(end);
}

TEST(closed_slowly)
{
	bool in_time = false;

	/* On a busy machine more than once. */
	for (int tries = 0; tries < 10 && !in_time; tries++) {
		tcp_pair();
		run_task_in_time(close_lingering, &in_time);
		close_ends();
	}
	assert_true(in_time);
}

/* A wait that has lasted goes with its descriptor, though the number is in use again. */
static void *close_and_reuse(void *arg)
{
	int other[2];

	until_waiting(1);
	usleep(300000);
	CHECK_EQ(&verdict, socketpair(AF_UNIX, SOCK_STREAM, 0, other), 0);
	CHECK_EQ(&verdict, dup2(other[0], ends[0]), ends[0]);
	CHECK_EQ(&verdict, write(other[1], "x", 1), 1);
	while (!atomic_load(&served))
		usleep(1000);
	/* Nobody took it. */
	CHECK_EQ(&verdict, read(other[0], arg, 1), 1);
	close(other[0]);
	close(other[1]);
	return NULL;
}

TEST(old_wait)
{
	struct switchto_sched *sched = new_sched(NULL);
	pthread_t thread;
	char byte;

	new_pair();
	atomic_store(&waiting, 0);
	atomic_store(&served, 0);
	spawn(sched, wait_until_gone, NULL);
	assert_int_equal(pthread_create(&thread, NULL, close_and_reuse, &byte), 0);
	run_in_time(sched);
	pthread_join(thread, NULL);
	verdict_assert(&verdict);
	close(ends[0]);
	close(ends[1]);
}

/* Each of many waits that have lasted is looked at in its turn. */
enum { OLD_WAITS = 24 };

static int old[OLD_WAITS][2];

static void wait_old(void *arg)
{
	const struct timespec time = late();
	int *pair = arg;
	char byte;

	if (pair == old[OLD_WAITS / 2])
		CHECK_ERR(&verdict, switchto_read(pair[0], &byte, 1, &time), EBADF);
	else
		CHECK_EQ(&verdict, switchto_read(pair[0], &byte, 1, &time), 0);
	atomic_fetch_add(&served, 1);
}

/* For room that comes no more. */
static void write_old(void *arg)
{
	struct timespec time = in(5 * NSEC_PER_SEC);
	static char much[1 << 20];

	signal(SIGPIPE, SIG_IGN);
	CHECK(&verdict, switchto_write(ends[1], much, sizeof(much), &time) < (ssize_t)sizeof(much));
	CHECK(&verdict, !has_passed(&time));
}

static void have_old_waits(void *arg)
{
	struct timespec time = in(NSEC_PER_SEC / 5);

	for (int i = 0; i < OLD_WAITS; i++) {
		CHECK_EQ(&verdict, socketpair(AF_UNIX, SOCK_STREAM, 0, old[i]), 0);
		spawn(NULL, wait_old, old[i]);
	}
	new_pair();
	spawn(NULL, write_old, NULL);
	CHECK_EQ(&verdict, switchto_sleep_until(&time), 0);
	/* ThreadSanitizer, see close_here(). */
	CHECK_EQ(&verdict, syscall(SYS_close, old[OLD_WAITS / 2][0]), 0);
	CHECK_EQ(&verdict, shutdown(ends[0], SHUT_RD), 0);
	YIELD_UNTIL(atomic_load(&served) == 1);
	for (int i = 0; i < OLD_WAITS; i++)
		CHECK_EQ(&verdict, switchto_close(old[i][1]), 0);
}

TEST(many_old_waits)
{
	atomic_store(&served, 0);
	run_task_in_time(have_old_waits, NULL);
	for (int i = 0; i < OLD_WAITS; i++)
		if (i != OLD_WAITS / 2)
			close(old[i][0]);
	close(ends[0]);
	close(ends[1]);
}

/* The number goes to a file, of which nothing can be polled. */
static void use_for_file(void *arg)
{
	FILE *file = tmpfile();
	struct timespec time = late();
	char buffer[8];

	CHECK_EQ(&verdict, write(fileno(file), "abcdef", 6), 6);
	CHECK_EQ(&verdict, lseek(fileno(file), 0, SEEK_SET), 0);
	new_pair();
	have_polled();
	CHECK_EQ(&verdict, write(ends[1], "x", 1), 1);
	CHECK_EQ(&verdict, switchto_recv(ends[0], buffer, 8, 0, &time), 1);
	CHECK_EQ(&verdict, syscall(SYS_dup3, fileno(file), ends[0], 0), ends[0]);
	time = in(10 * NSEC_PER_SEC);
	CHECK_EQ(&verdict, switchto_read(ends[0], buffer, 2, &time), 2);
	CHECK_EQ(&verdict, switchto_pread(ends[0], buffer, 2, 3, &time), 2);
	CHECK_EQ(&verdict, buffer[0], 'd');
	CHECK_EQ(&verdict, switchto_write(ends[0], "g", 1, &time), 1);
	CHECK_ERR(&verdict, switchto_recv(ends[0], buffer, 1, 0, &time), ENOTSOCK);
	CHECK_EQ(&verdict, fclose(file), 0);
	close_ends();
}

static void *close_for_file(void *file)
{
	until_waiting(1);
	usleep(300000);
	syscall(SYS_dup3, fileno(file), ends[0], 0);
	return NULL;
}

TEST(files)
{
	struct switchto_sched *sched = new_sched(NULL);
	FILE *file = tmpfile();
	pthread_t thread;

	spawn(sched, use_for_file, NULL);
	run_in_time(sched);
	/* A wait that has lasted. */
	sched = new_sched(NULL);
	new_pair();
	atomic_store(&waiting, 0);
	spawn(sched, wait_until_gone, NULL);
	assert_int_equal(pthread_create(&thread, NULL, close_for_file, file), 0);
	run_in_time(sched);
	pthread_join(thread, NULL);
	verdict_assert(&verdict);
	fclose(file);
	close_ends();
}

/* That ends the old wait only, and not one of a task that writes to the new descriptor. */
static int drained;

static void drain(void *arg)
{
	static char buffer[65536];

	nap(NSEC_PER_SEC / 5);
	while (switchto_read(drained, buffer, sizeof(buffer), NULL) > 0)
		;
	CHECK_EQ(&verdict, switchto_close(drained), 0);
}

static void write_to_next(void *arg)
{
	static char big[1 << 20];
	struct timespec time = in(NSEC_PER_SEC / 100);
	int other[2];

	CHECK(&verdict, switchto_write(ends[0], big, sizeof(big), &time) > 0);
	spawn(NULL, wait_until_gone, NULL);
	until_waiting(1);
	nap(NSEC_PER_SEC / 5);
	/* One that has just begun goes on with the new descriptor, until that is closed. */
	spawn(NULL, wait_until_gone, NULL);
	CHECK_EQ(&verdict, switchto_yield(), 0);
	CHECK_EQ(&verdict, socketpair(AF_UNIX, SOCK_STREAM, 0, other), 0);
	CHECK_EQ(&verdict, syscall(SYS_dup3, other[0], ends[0], 0), ends[0]);
	CHECK_EQ(&verdict, switchto_close(other[0]), 0);
	drained = other[1];
	spawn(NULL, drain, NULL);
	time = late();
	CHECK_EQ(&verdict, switchto_write(ends[0], big, sizeof(big), &time), sizeof(big));
	close_ends();
}

TEST(old_wait_only)
{
	new_pair();
	atomic_store(&waiting, 0);
	run_task_in_time(write_to_next, NULL);
}

/* The new descriptor blocks, and the mark says that the old one is ready. */
static void splice_next(void *arg)
{
	struct timespec time = late();
	int target[2], number;
	char byte;

	new_pair();
	have_polled();
	CHECK_EQ(&verdict, write(ends[1], "a", 1), 1);
	CHECK_EQ(&verdict, switchto_recv(ends[0], &byte, 1, 0, &time), 1);
	number = ends[0];
	CHECK_EQ(&verdict, close(ends[1]), 0);
	/* Of TCP, where the flag of the call is not enough. */
	tcp_pair();
	CHECK_EQ(&verdict, syscall(SYS_dup3, ends[0], number, 0), number);
	CHECK_EQ(&verdict, close(ends[0]), 0);
	ends[0] = number;
	CHECK_EQ(&verdict, pipe(target), 0);
	time = in(NSEC_PER_SEC / 20);
	CHECK_ERR(&verdict, switchto_splice(ends[0], NULL, target[1], NULL, 10, 0, &time),
		  ETIMEDOUT);
	CHECK_EQ(&verdict, switchto_close(target[0]), 0);
	CHECK_EQ(&verdict, switchto_close(target[1]), 0);
	close_ends();
}

TEST(spliced_again)
{
	run_task_in_time(splice_next, NULL);
}

/* It is closed, but not everywhere: the kernel goes on to tell of what it has. */
static void leave_stray(void *arg)
{
	struct timespec time = late();
	long long before;
	int other, quiet[2];
	char byte;

	/* By the time that all is polled anew, this number is another descriptor's. */
	new_pair();
	have_polled();
	quiet[0] = ends[0];
	quiet[1] = ends[1];
	CHECK_EQ(&verdict, syscall(SYS_dup3, quiet[1], quiet[0], 0), quiet[0]);
	new_pair();
	have_polled();
	CHECK_EQ(&verdict, write(ends[1], "abcd", 4), 4);
	CHECK_EQ(&verdict, switchto_recv(ends[0], &byte, 1, 0, &time), 1);
	other = dup(ends[0]);
	/* Back with its number, the kernel has it still. */
	CHECK_EQ(&verdict, close(ends[0]), 0);
	CHECK_EQ(&verdict, switchto_forget(ends[0]), 0);
	CHECK_EQ(&verdict, syscall(SYS_dup3, other, ends[0], 0), ends[0]);
	CHECK_EQ(&verdict, switchto_read(ends[0], &byte, 1, &time), 1);
	CHECK_EQ(&verdict, close(ends[0]), 0);
	before = cpu_ns();
	nap(NSEC_PER_SEC / 2);
	CHECK(&verdict, cpu_ns() - before < NSEC_PER_SEC / 20);
	CHECK_EQ(&verdict, switchto_recv(other, &byte, 1, 0, &time), 1);
	CHECK_EQ(&verdict, close(ends[1]), 0);
	/* The number again, while the old one has something. */
	new_pair();
	spawn(NULL, write_later, NULL);
	before = cpu_ns();
	CHECK_EQ(&verdict, switchto_recv(ends[0], &byte, 1, 0, &time), 1);
	nap(NSEC_PER_SEC / 2);
	CHECK(&verdict, cpu_ns() - before < NSEC_PER_SEC / 20);
	CHECK_EQ(&verdict, switchto_recv(other, &byte, 1, 0, &time), 1);
	CHECK_EQ(&verdict, switchto_recv(other, &byte, 1, 0, &time), 0);
	CHECK_EQ(&verdict, switchto_close(other), 0);
	close(quiet[0]);
	close(quiet[1]);
	close_ends();
}

TEST(strays)
{
	run_task_in_time(leave_stray, NULL);
}

/* The same, and a task waits at the new descriptor until its deadline. */
static void wait_with_stray(void *arg)
{
	struct timespec time = late();
	long long used;
	char byte;
	int other;

	new_pair();
	have_polled();
	CHECK_EQ(&verdict, write(ends[1], "a", 1), 1);
	CHECK_EQ(&verdict, switchto_recv(ends[0], &byte, 1, 0, &time), 1);
	other = dup(ends[0]);
	CHECK_EQ(&verdict, close(ends[0]), 0);
	CHECK_EQ(&verdict, write(ends[1], "abc", 3), 3);
	CHECK_EQ(&verdict, close(ends[1]), 0);
	new_pair();
	used = cpu_ns();
	time = in(NSEC_PER_SEC);
	CHECK_ERR(&verdict, switchto_recv(ends[0], &byte, 1, 0, &time), ETIMEDOUT);
	/* Beside much load, a slot that spins gets little more. TSan makes it slower. */
#ifdef UNDER_TSAN
	CHECK(&verdict, cpu_ns() - used < NSEC_PER_SEC / 4);
#else
	CHECK(&verdict, cpu_ns() - used < NSEC_PER_SEC / 20);
#endif
	CHECK_EQ(&verdict, close(other), 0);
	close_ends();
}

TEST(stray_and_deadline)
{
	run_task_in_time(wait_with_stray, NULL);
}

/* --- several schedulers --- */

static void read_a_byte(void *arg)
{
	struct timespec time = late();
	char byte = 0;

	atomic_fetch_add(&waiting, 1);
	CHECK_EQ(&verdict, switchto_read(ends[0], &byte, 1, &time), 1);
	CHECK_EQ(&verdict, byte, *(char *)arg);
}

static void poll_once(void *arg)
{
	have_polled();
}

TEST(handed_over)
{
	struct switchto_sched *first = new_sched(NULL), *second = new_sched(NULL);

	new_pair();
	for (int i = 0; i < 4; i++) {
		/* One after the other: the first one has no tasks, and nobody polls for it. */
		CHECK_EQ(&verdict, write(ends[1], "a", 1), 1);
		spawn(first, read_a_byte, "a");
		assert_int_equal(switchto_sched_run(first), 0);
		/* To the first one it is empty: then the second one's task waits before it tries. */
		spawn(first, poll_once, NULL);
		assert_int_equal(switchto_sched_run(first), 0);
		spawn(second, write_later, NULL);
		spawn(second, read_a_byte, "x");
		assert_int_equal(switchto_sched_run(second), 0);
	}
	assert_int_equal(switchto_sched_destroy(first), 0);
	CHECK_EQ(&verdict, write(ends[1], "a", 1), 1);
	spawn(second, read_a_byte, "a");
	run_tasks(second);
	close_ends();
}

/* The mark says that there was something. */
static void receive_one(void *arg)
{
	char byte;

	have_polled();
	CHECK_EQ(&verdict, write(ends[1], "x", 1), 1);
	CHECK_EQ(&verdict, switchto_recv(ends[0], &byte, 1, 0, NULL), 1);
}

/* In another scheduler, the number is a file's, and then that of a listener that blocks. */
static void send_and_accept(void *arg)
{
	const struct sockaddr *name = (const struct sockaddr *)&server_name;
	int file = memfd_create("file", 0), server = socket(AF_UNIX, SOCK_STREAM, 0);
	int client = socket(AF_UNIX, SOCK_STREAM, 0);
	off_t offset = 0;

	CHECK_EQ(&verdict, pwrite(file, "x", 1, 0), 1);
	CHECK_EQ(&verdict, dup2(file, ends[0]), ends[0]);
	CHECK_EQ(&verdict, socketpair(AF_UNIX, SOCK_STREAM, 0, next), 0);
	CHECK_EQ(&verdict, switchto_sendfile(next[0], ends[0], &offset, 1, NULL), 1);
	CHECK_EQ(&verdict, bind(server, name, NAME_SIZE), 0);
	CHECK_EQ(&verdict, listen(server, 1), 0);
	CHECK_EQ(&verdict, connect(client, name, NAME_SIZE), 0);
	CHECK_EQ(&verdict, dup2(server, ends[0]), ends[0]);
	close(file);
	close(server);
	file = switchto_accept(ends[0], NULL, NULL, 0, NULL);
	CHECK(&verdict, file >= 0);
	CHECK(&verdict, fcntl(ends[0], F_GETFL) & O_NONBLOCK);
	close(file);
	close(client);
	close(next[0]);
	close(next[1]);
}

TEST(file_elsewhere)
{
	struct switchto_sched *first = new_sched(NULL), *second = new_sched(NULL);

	snprintf(server_name.sun_path + 1, NAME_SIZE, "%010d", getpid());
	new_pair();
	spawn(first, receive_one, NULL);
	assert_int_equal(switchto_sched_run(first), 0);
	spawn(second, send_and_accept, NULL);
	run_in_time(second);
	run_tasks(first);
	close_ends();
}

static void *run_here(void *sched)
{
	CHECK_EQ(&verdict, switchto_sched_run(sched), 0);
	return NULL;
}

static char filler[1 << 20];

static void fill(void *arg)
{
	struct timespec time = late();

	CHECK_EQ(&verdict, switchto_write(ends[0], filler, sizeof(filler), &time), sizeof(filler));
	atomic_fetch_add(&step, 1);
}

static void read_some_bytes(void *arg)
{
	struct timespec time = late();
	char byte;

	for (int i = 0; i < 20; i++)
		CHECK_EQ(&verdict, switchto_read(ends[0], &byte, 1, &time), 1);
	atomic_fetch_add(&step, 1);
}

/* Two schedulers at once: one reads, one writes, and both do the same. */
TEST(shared)
{
	static char buffer[65536];

	for (int same = 0; same < 2; same++) {
		struct switchto_sched *first = new_sched(NULL), *second = new_sched(NULL);
		pthread_t threads[2];

		new_pair();
		atomic_store(&step, 0);
		spawn(first, read_some_bytes, NULL);
		spawn(second, same ? read_some_bytes : fill, NULL);
		assert_int_equal(pthread_create(&threads[0], NULL, run_here, first), 0);
		assert_int_equal(pthread_create(&threads[1], NULL, run_here, second), 0);
		usleep(20000);
		for (int i = 0; i < (same ? 40 : 20); i++) {
			assert_int_equal(write(ends[1], "x", 1), 1);
			usleep(1000);
		}
		for (size_t total = 0; !same && total < sizeof(filler);) {
			ssize_t n = read(ends[1], buffer, sizeof(buffer));

			assert_true(n > 0);
			total += (size_t)n;
		}
		pthread_join(threads[0], NULL);
		pthread_join(threads[1], NULL);
		assert_int_equal(atomic_load(&step), 2);
		assert_int_equal(switchto_sched_destroy(first), 0);
		run_tasks(second);
		close_ends();
	}
}

/* Some give up, and what they have received then goes back. All that are left are served. */
static void read_for_a_while(void *arg)
{
	const uintptr_t ms = (uintptr_t)arg;
	struct timespec time = ms ? in((long long)ms * NSEC_PER_SEC / 1000) : late();
	struct iovec part = { &(char){ 0 }, 1 };
	const ssize_t n = switchto_readv(ends[0], &part, 1, &time);

	if (n == 1 && ms)
		CHECK_EQ(&verdict, switchto_write(ends[1], "x", 1, NULL), 1);
	else if (n != 1)
		CHECK(&verdict, ms && n == -1 && errno == ETIMEDOUT);
	if (!ms)
		atomic_fetch_add(&served, 1);
}

static void stay_until_end(void *arg)
{
	while (!atomic_load(&step))
		nap(NSEC_PER_SEC / 100);
}

TEST(served_by_turns)
{
	struct switchto_sched *scheds[] = { new_sched(NULL), new_sched(NULL) };
	const long long end = now_ns() + NSEC_PER_SEC;
	pthread_t threads[2];
	unsigned int dice = 1;

	new_pair();
	atomic_store(&step, 0);
	for (int i = 0; i < 2; i++) {
		spawn(scheds[i], stay_until_end, NULL);
		assert_int_equal(pthread_create(&threads[i], NULL, run_here, scheds[i]), 0);
	}
	while (now_ns() < end) {
		unsigned int staying = 0;

		atomic_store(&served, 0);
		for (int i = 0; i < 6; i++) {
			uintptr_t ms;

			dice = dice * 1103515245 + 12345;
			ms = dice >> 16 & 3;
			staying += !ms;
			// NOLINTNEXTLINE(performance-no-int-to-ptr)
			spawn(scheds[dice >> 18 & 1], read_for_a_while, (void *)ms);
		}
		usleep(8000);
		for (unsigned int i = 0; i < staying; i++)
			assert_int_equal(write(ends[1], "x", 1), 1);
		while (atomic_load(&served) < staying && now_ns() < end + 20 * NSEC_PER_SEC)
			usleep(1000);
		assert_int_equal(atomic_load(&served), staying);
	}
	atomic_store(&step, 1);
	for (int i = 0; i < 2; i++) {
		pthread_join(threads[i], NULL);
		assert_int_equal(switchto_sched_destroy(scheds[i]), 0);
	}
	verdict_assert(&verdict);
	close_ends();
}

/* The slot that polls a descriptor is over, as there were no tasks for a moment. */
static void receive_soon(void *arg)
{
	struct timespec time = in(NSEC_PER_SEC);
	char byte;

	CHECK_EQ(&verdict, switchto_recv(*(int *)arg, &byte, 1, 0, &time), 1);
	if (atomic_fetch_add(&served, 1) % 20 == 0)
		nap(NSEC_PER_SEC / 10000);
}

static void end_at_once(void *arg) {}

enum { PAIRS = 16 };

static int pairs[PAIRS][2];

static void *spawn_now_and_then(void *sched)
{
	unsigned int dice = 1;

	for (unsigned int i = 0; i < 500; i++) {
		int *pair;

		dice = dice * 1103515245 + 12345;
		pair = pairs[(dice >> 16) % PAIRS];
		spawn(sched, receive_soon, pair);
		usleep(200 + (dice >> 8) % 100);
		CHECK_EQ(&verdict, write(pair[1], "x", 1), 1);
		while (atomic_load(&served) <= i)
			usleep(10);
	}
	atomic_store(&step, 1);
	return NULL;
}

TEST(slots_over)
{
	struct switchto_sched *sched = new_sched(NULL);
	pthread_t thread;

	atomic_store(&served, 0);
	atomic_store(&step, 0);
	for (int i = 0; i < PAIRS; i++)
		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pairs[i]), 0);
	spawn(sched, end_at_once, NULL);
	assert_int_equal(pthread_create(&thread, NULL, spawn_now_and_then, sched), 0);
	while (!atomic_load(&step))
		assert_int_equal(switchto_sched_run(sched), 0);
	pthread_join(thread, NULL);
	run_tasks(sched);
	for (int i = 0; i < PAIRS; i++) {
		close(pairs[i][0]);
		close(pairs[i][1]);
	}
}

/* The slot that polls it has a task that computes, and is not interrupted. */
static void poll_and_compute(void *arg)
{
	struct timespec time = late();
	long long end;
	char byte;

	CHECK_EQ(&verdict, write(ends[1], "a", 1), 1);
	CHECK_EQ(&verdict, switchto_recv(ends[0], &byte, 1, 0, &time), 1);
	have_polled();
	atomic_store(&step, 1);
	end = thread_cpu_ns() + 2 * NSEC_PER_SEC;
	while (thread_cpu_ns() < end && !atomic_load(&served))
		;
	CHECK(&verdict, atomic_load(&served));
}

static void receive_elsewhere(void *arg)
{
	struct timespec time = late();
	char byte;

	while (!atomic_load(&step))
		nap(NSEC_PER_SEC / 1000);
	CHECK_EQ(&verdict, switchto_recv(ends[0], &byte, 1, 0, &time), 1);
	atomic_store(&served, 1);
}

static void *write_soon(void *arg)
{
	while (!atomic_load(&step))
		usleep(1000);
	usleep(100000);
	CHECK_EQ(&verdict, write(ends[1], "x", 1), 1);
	return NULL;
}

TEST(slot_computes)
{
	const struct switchto_sched_options options = {
		.size = sizeof(options),
		.slots = 2,
		.slice = SWITCHTO_NO_SLICE,
	};
	struct switchto_sched *sched;
	pthread_t thread;

	new_pair();
	atomic_store(&step, 0);
	atomic_store(&served, 0);
	assert_int_equal(switchto_sched_create(&sched, &options), 0);
	spawn(sched, poll_and_compute, NULL);
	spawn(sched, receive_elsewhere, NULL);
	assert_int_equal(pthread_create(&thread, NULL, write_soon, NULL), 0);
	run_in_time(sched);
	pthread_join(thread, NULL);
	close_ends();
}

/* A child has copies of all descriptors, and of what is polled: it must remove nothing from that. */
static void close_in_child(void *arg)
{
	struct timespec time = late();
	char byte;
	int status;
	pid_t child;

	have_polled();
	CHECK_EQ(&verdict, write(ends[1], "x", 1), 1);
	CHECK_EQ(&verdict, switchto_recv(ends[0], &byte, 1, 0, &time), 1);
	child = fork();
	if (child == 0)
		_exit(switchto_close(ends[0]) || switchto_forget(ends[1]));
	CHECK_EQ(&verdict, waitpid(child, &status, 0), child);
	CHECK_EQ(&verdict, status, 0);
	spawn(NULL, write_later, NULL);
	CHECK_EQ(&verdict, switchto_recv(ends[0], &byte, 1, 0, &time), 1);
}

TEST(child_closes)
{
	new_pair();
	run_task_in_time(close_in_child, NULL);
	close_ends();
}

/* What nobody reads is no event for this wait, but the kernel tells of it again and again. */
static void select_hang_up(void *arg)
{
	struct pollfd poll = { .fd = ends[0], .events = POLLRDHUP };
	struct switchto_case c = { .op = SWITCHTO_POLL, .item = &poll };
	const struct timespec at = in(200000000);
	const long long before = cpu_ns();

	CHECK_ERR(&verdict, switchto_select(&c, 1, &at), ETIMEDOUT);
	CHECK(&verdict, cpu_ns() - before < 100000000);
	CHECK_EQ(&verdict, shutdown(ends[1], SHUT_WR), 0);
	CHECK_EQ(&verdict, switchto_select(&c, 1, NULL), 0);
	CHECK(&verdict, poll.revents & POLLRDHUP);
	close_ends();
}

TEST(hang_up_beside_what_is_unread)
{
	tcp_pair();
	assert_int_equal(write(ends[1], "x", 1), 1);
	run_task_in_time(select_hang_up, NULL);
}

/* Is @fd polled edge-triggered? */
static bool is_edge(int fd)
{
	char name[64], line[128];
	unsigned int events, found = 0;
	int target;

	for (int epoll = 0; epoll < 100 && !found; epoll++) {
		FILE *file;

		snprintf(name, sizeof(name), "/proc/self/fdinfo/%d", epoll);
		file = fopen(name, "re");
		while (file && fgets(line, sizeof(line), file))
			if (sscanf(line, "tfd: %d events: %x", &target, &events) == 2 &&
			    target == fd)
				found = events;
		if (file)
			fclose(file);
	}
	CHECK(&verdict, found);
	return found & EPOLLET;
}

static void read_often(void)
{
	char text[8];

	for (int i = 0; i < 100; i++) {
		struct timespec time = late();

		CHECK_EQ(&verdict, write(ends[1], "x", 1), 1);
		CHECK(&verdict, switchto_recv(ends[0], text, sizeof(text), 0, &time) > 0);
		time = in(0);
		CHECK_ERR(&verdict, switchto_recv(ends[0], text, sizeof(text), 0, &time),
			  ETIMEDOUT);
	}
}

static void leave_unread_for_a_while(void)
{
	CHECK_EQ(&verdict, write(ends[1], "x", 1), 1);
	for (int i = 0; i < 20; i++)
		nap(NSEC_PER_SEC / 1000);
	CHECK(&verdict, is_edge(ends[0]));
}

/* What nobody reads is no event for long. Later, an event and a short read are enough again. */
TEST_IN_TASK(unread_for_a_while)
{
	static const char much[4 << 20];
	struct timespec time = in(0);
	char text[8];

	new_pair();
	CHECK_ERR(&verdict, switchto_recv(ends[0], text, sizeof(text), 0, &time), ETIMEDOUT);
	CHECK(&verdict, !is_edge(ends[0]));
	leave_unread_for_a_while();
	read_often();
	CHECK(&verdict, !is_edge(ends[0]));
	leave_unread_for_a_while();
	/* Not if it waits for room, too: that would be an event all the time, when it is there. */
	time = in(NSEC_PER_SEC / 1000);
	CHECK(&verdict,
	      switchto_send(ends[0], much, sizeof(much), 0, &time) < (ssize_t)sizeof(much));
	read_often();
	CHECK(&verdict, is_edge(ends[0]));
	close_ends();
}

static struct switchto_sched *other;

static void *run_other(void *arg)
{
	CHECK_EQ(&verdict, switchto_sched_run(other), 0);
	return arg;
}

static void read_until_closed(void *arg)
{
	char byte;

	atomic_fetch_add(&waiting, 1);
	CHECK_EQ(&verdict, switchto_read(ends[0], &byte, 1, NULL), 0);
}

static void *drain_slowly(void *size)
{
	char buffer[4096];
	ssize_t n;

	for (size_t left = *(size_t *)size; left; left -= (size_t)n) {
		n = read(ends[1], buffer, sizeof(buffer));
		CHECK(&verdict, n > 0);
		if (n <= 0)
			break;
	}
	return size;
}

static void write_beside_reader(void *size)
{
	struct timespec time = late();
	char *bytes = calloc(1, *(size_t *)size);

	until_waiting(1);
	CHECK_EQ(&verdict, switchto_write(ends[0], bytes, *(size_t *)size, &time),
		 (ssize_t) * (size_t *)size);
	free(bytes);
}

/* One scheduler's slot polls it, and not for what the other one's task waits for. */
TEST(writer_beside_a_reader_elsewhere)
{
	size_t size = 1000000;
	pthread_t runner, drainer;

	atomic_store(&waiting, 0);
	new_pair();
	other = new_sched(NULL);
	spawn(other, read_until_closed, NULL);
	assert_int_equal(pthread_create(&runner, NULL, run_other, NULL), 0);
	assert_int_equal(pthread_create(&drainer, NULL, drain_slowly, &size), 0);
	run_task_in_time(write_beside_reader, &size);
	assert_int_equal(pthread_join(drainer, NULL), 0);
	assert_int_equal(shutdown(ends[1], SHUT_WR), 0);
	assert_int_equal(pthread_join(runner, NULL), 0);
	assert_int_equal(switchto_sched_destroy(other), 0);
	verdict_assert(&verdict);
	close(ends[0]);
	close(ends[1]);
}
