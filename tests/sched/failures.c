// SPDX-License-Identifier: MIT
/*
 * Each call that the layer makes fails once, in a program that uses most of what there is. The
 * program gets the error that is documented, or goes on; and nothing is left.
 */
#include "faults.h"
#include "sched.h"

#include <linux/io_uring.h>
#include <netinet/in.h>
#include <sys/ioctl.h>

/* A thread that is not the monitor. */
static _Thread_local bool others;
/* How often the monitor is still to look before it is held between its look and its sleep. */
static atomic_int looks;
static PER_TEST atomic_bool begun;
static int wakes[2];

/* What this thread does, and how many windows before that. */
static _Thread_local void (*at_window)(void);
static _Thread_local unsigned int skipped;
static _Thread_local atomic_bool *flag;

static void set_flag(void)
{
	atomic_store(flag, true);
}

/* At its next window but @n. */
static void at_window_after(unsigned int n, void (*act)(void))
{
	skipped = n;
	at_window = act;
}

static void set_at_window_after(unsigned int n, atomic_bool *which)
{
	flag = which;
	at_window_after(n, set_flag);
}

void switchto_delay_point(enum switchto_delay where)
{
	void (*act)(void) = at_window;

	if (act && !skipped--) {
		at_window = NULL;
		act();
	}
	if (others || !atomic_load(&looks) || atomic_fetch_sub(&looks, 1) > 1)
		return;
	CHECK_EQ(&verdict, write(wakes[1], "", 1), 1);
	AWAIT(atomic_load(&begun));
}

/* Of a call that may fail: is it done? If not, the error is one that was put in. */
static bool done(long result)
{
	if (result >= 0)
		return true;
	/* These two, the layer tries again. */
	CHECK(&verdict, errno != EINTR && errno != EBUSY && faults_made(errno));
	return false;
}

enum { GREAT = 1 << 20 };

static char great[GREAT];

static void nothing(void *arg) {}

static void try_tasks(void)
{
	const struct timespec soon = in(NSEC_PER_SEC / 10000);
	struct switchto_task *task;
	struct switchto_chan *chan;

	if (done(switchto_spawn(NULL, nothing, NULL, NULL, &task)))
		CHECK_EQ(&verdict, switchto_join(task), 0);
	CHECK_EQ(&verdict, switchto_park(&soon), -1);
	CHECK(&verdict, errno == ETIMEDOUT || !done(-1));
	done(switchto_sleep_until(&soon));
	if (done(switchto_chan_create(&chan, sizeof(int), 1))) {
		int item = 1;

		CHECK_EQ(&verdict, switchto_chan_send(chan, &item, NULL), 0);
		CHECK_EQ(&verdict, switchto_chan_send(chan, &item, &soon), -1);
		CHECK(&verdict, errno == ETIMEDOUT || !done(-1));
		switchto_chan_destroy(chan);
	}
}

static void try_sockets(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	socklen_t length = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM, 0), fd = -1, other;
	char data[16] = "data";
	ssize_t n;

	CHECK_EQ(&verdict, bind(listener, (struct sockaddr *)&address, length), 0);
	CHECK_EQ(&verdict, listen(listener, 1), 0);
	CHECK_EQ(&verdict, getsockname(listener, (struct sockaddr *)&address, &length), 0);
	other = socket(AF_INET, SOCK_STREAM, 0);
	if (done(switchto_connect(other, (struct sockaddr *)&address, length, NULL)))
		while (!done(fd = switchto_accept(listener, NULL, NULL, 0, NULL)))
			;
	if (fd >= 0) {
		while (!done(n = switchto_send(fd, data, 4, 0, NULL)))
			;
		CHECK_EQ(&verdict, n, 4);
		while (!done(n = switchto_recv(other, data, sizeof(data), 0, NULL)))
			;
		CHECK_EQ(&verdict, n, 4);
		CHECK_EQ(&verdict, switchto_close(fd), 0);
		while (!done(n = switchto_recv(other, data, sizeof(data), 0, NULL)))
			;
		CHECK_EQ(&verdict, n, 0);
	}
	CHECK_EQ(&verdict, switchto_close(other), 0);
	CHECK_EQ(&verdict, switchto_close(listener), 0);
}

static int await_read(int fd, const struct timespec *deadline)
{
	static char byte;
	const struct io_uring_sqe sqe = {
		.opcode = IORING_OP_READ,
		.fd = fd,
		.addr = (uintptr_t)&byte,
		.len = 1,
		.off = (uint64_t)-1,
	};

	return switchto_await(&sqe, NULL, deadline);
}

/* A wait for output where there was one for input, and descriptors closed, but not everywhere. */
static void try_strays(void)
{
	struct timespec soon;
	int pair[2], other;

	for (int output = 0; output < 2; output++) {
		CHECK_EQ(&verdict, socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
		soon = in(NSEC_PER_SEC / 10000);
		CHECK_EQ(&verdict, switchto_recv(pair[0], great, 1, 0, &soon), -1);
		CHECK(&verdict, errno == ETIMEDOUT || !done(-1));
		if (output && switchto_send(pair[0], great, GREAT, 0, &soon) == -1)
			done(-1);
		CHECK_EQ(&verdict, write(pair[1], "x", 1), 1);
		other = dup(pair[0]);
		/* Not close(): the monitor may look at the descriptor, which TSan takes for a race. */
		CHECK_EQ(&verdict, syscall(SYS_close, pair[0]), 0);
		soon = in(NSEC_PER_SEC / 2000);
		done(switchto_sleep_until(&soon));
		CHECK_EQ(&verdict, close(pair[1]), 0);
		CHECK_EQ(&verdict, close(other), 0);
	}
}

/* An operation of the ring, if there is one, and its deadline; a file. */
static void try_ring(struct switchto_sched *sched)
{
	const struct timespec soon = in(NSEC_PER_SEC / 10000);
	char data[16];
	int ends[2], fd;

	CHECK_EQ(&verdict, pipe(ends), 0);
	if (strcmp(switchto_sched_engine(sched), "io_uring") == 0) {
		CHECK_EQ(&verdict, await_read(ends[0], &soon), -1);
		CHECK(&verdict, errno == ETIMEDOUT || !done(-1));
		CHECK_EQ(&verdict, write(ends[1], "", 1), 1);
		while (!done(await_read(ends[0], NULL)))
			;
	}
	CHECK_EQ(&verdict, close(ends[0]), 0);
	CHECK_EQ(&verdict, close(ends[1]), 0);
	if (done(fd = switchto_openat(AT_FDCWD, "/dev/zero", O_RDONLY, 0))) {
		done(switchto_read(fd, data, sizeof(data), NULL));
		CHECK_EQ(&verdict, switchto_close(fd), 0);
	}
}

static void try_all(void *arg)
{
	try_tasks();
	try_sockets();
	try_strays();
	try_ring(arg);
}

/* As switchto_sched_run(): a step without the descriptor, and then with it. */
static int run_stepped(struct switchto_sched *sched)
{
	struct pollfd events = { .events = POLLIN };
	int left = switchto_sched_step(sched);

	while (left > 0 && !done(events.fd = switchto_sched_fd(sched)))
		;
	while (left > 0) {
		poll(&events, 1, -1);
		left = switchto_sched_step(sched);
	}
	return left;
}

/* Until the scheduler is made and has run, or that fails. */
static void play(bool steps)
{
	const struct switchto_sched_options options = OPTIONS(.slots = steps ? 1 : slots);
	const unsigned int files = entries("/proc/self/fd");
	struct switchto_sched *sched;

	if (done(switchto_sched_create(&sched, &options))) {
		while (!done(switchto_spawn(sched, try_all, sched, NULL, NULL)))
			;
		while (!done(steps ? run_stepped(sched) : switchto_sched_run(sched)))
			;
		assert_int_equal(switchto_sched_destroy(sched), 0);
	}
	verdict_assert(&verdict);
	assert_int_equal(entries("/proc/self/fd"), files);
	assert_int_equal(faults_left(), 0);
}

static const char *const names[] = {
	[FAULT_MEMORY] = "memory",
	[FAULT_THREAD] = "thread",
	[FAULT_DESCRIPTOR] = "descriptor",
	[FAULT_EPOLL_CTL] = "epoll_ctl",
	[FAULT_EPOLL_WAIT] = "epoll_wait",
	[FAULT_SETUP] = "io_uring_setup",
	[FAULT_SUBMIT] = "submit",
	[FAULT_FEW] = "few",
	[FAULT_COMPLETE] = "complete",
	[FAULT_OPERATION] = "operation",
	[FAULT_CALL] = "call",
	[FAULT_FUTEX] = "futex",
	[FAULT_OPEN] = "open",
};

/* The calls of each kind, one after the other; then two in a row, and so on. */
static void fail_each(bool steps)
{
	for (enum fault kind = 0; kind < FAULTS; kind++) {
		unsigned long first = 1;

		for (unsigned long many = 1; many <= 5; many += 4) {
			for (first = 1; first < 200; first++) {
				faults_from_to(kind, first, first + many - 1);
				play(steps);
				if (!faults_made(0))
					break;
			}
		}
		printf("%s: %lu calls\n", names[kind], first - 1);
	}
}

TEST(each_call)
{
	fail_each(false);
	fail_each(true);
}

/* --- the kernel takes no operation for a while --- */

enum { MANY = 100, ENTRIES = 64 };

static int ends[2];
static atomic_uint full, read_, timed_out;

static void read_one(void *arg)
{
	const struct timespec soon = in(NSEC_PER_SEC / 100);
	int n = await_read(ends[0], arg ? &soon : NULL);

	if (n == 1)
		atomic_fetch_add(&read_, 1);
	else if (errno == EAGAIN)
		atomic_fetch_add(&full, 1);
	else if (errno == ETIMEDOUT)
		atomic_fetch_add(&timed_out, 1);
	else
		CHECK_EQ(&verdict, errno, 0);
}

static void fill(void *arg)
{
	struct switchto_task *task[MANY];
	char bytes[MANY] = "";

	for (unsigned int i = 0; i < MANY; i++)
		task[i] = spawn_handle(NULL, read_one, i % 2 ? arg : NULL);
	/* Meanwhile the ring is full, and deadlines pass. To cancel takes room, too. */
	for (int i = 0; i < 200 && (!i || atomic_load(&full) < MANY - ENTRIES); i++)
		sleep_for(NSEC_PER_SEC / 20);
	CHECK(&verdict, atomic_load(&full) >= MANY - ENTRIES);
	faults_random(0, 0);
	/* Those with a deadline end without data. */
	for (unsigned int i = 1; arg && i < MANY; i += 2)
		CHECK_EQ(&verdict, switchto_join(task[i]), 0);
	CHECK_EQ(&verdict, write(ends[1], bytes, sizeof(bytes)), sizeof(bytes));
	for (unsigned int i = 0; i < MANY; i++)
		if (!arg || i % 2 == 0)
			CHECK_EQ(&verdict, switchto_join(task[i]), 0);
}

/* @with_deadlines: every second one has a deadline. */
static void full_ring(bool with_deadlines)
{
	struct switchto_sched *sched;
	char byte;
	unsigned int left = 0;

	slots = 1;
	sched = new_sched(NULL);
	if (strcmp(switchto_sched_engine(sched), "io_uring") != 0) {
		switchto_sched_destroy(sched);
		skip();
	}
	full = read_ = timed_out = 0;
	assert_int_equal(pipe(ends), 0);
	faults_from_to(FAULT_SUBMIT, 1, -1UL);
	run_one(sched, fill, with_deadlines ? sched : NULL);
	assert_int_equal(fcntl(ends[0], F_SETFL, O_NONBLOCK), 0);
	while (read(ends[0], &byte, 1) == 1)
		left++;
	assert_int_equal(atomic_load(&read_) + left, MANY);
	assert_int_equal(atomic_load(&read_) + atomic_load(&timed_out) + atomic_load(&full), MANY);
	assert_int_equal(atomic_load(&timed_out) != 0, with_deadlines);
	close_both(ends);
	assert_int_equal(faults_left(), 0);
}

TEST(full_ring_waits)
{
	full_ring(false);
}

TEST(full_ring_times_out)
{
	full_ring(true);
}

/* --- a region that begins when the monitor has looked, and does not sleep yet --- */

static long long kept_ns;

static void begin_region(void *sched)
{
	unsigned long long before;
	long long from;
	char byte;

	others = true;
	/* By the third look the slot sleeps. */
	atomic_store(&looks, 3);
	CHECK_EQ(&verdict, switchto_read(wakes[0], &byte, 1, NULL), 1);
	before = retakes_of(sched);
	CHECK_EQ(&verdict, switchto_block_begin(), 0);
	from = now_ns();
	atomic_store(&begun, true);
	while (retakes_of(sched) == before)
		usleep(100);
	kept_ns = now_ns() - from;
	CHECK_EQ(&verdict, switchto_block_end(), 0);
}

/* Without a CPU to spare for it, the monitor of a slot that sleeps would sleep for 10 ms. */
TEST(monitor_does_not_oversleep)
{
	long long least = NSEC_PER_SEC;
	cpu_set_t all;

	assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
	pin_to(0, sched_getcpu());
	others = true;
	/* Once is enough: others use the CPU, too. */
	for (int i = 0; i < 20 && least >= NSEC_PER_SEC / 200; i++) {
		struct switchto_sched *sched = new_sched_with(NULL, SWITCHTO_MEASURE, 1);

		assert_int_equal(pipe(wakes), 0);
		atomic_store(&begun, false);
		run_one(sched, begin_region, sched);
		close_both(wakes);
		if (kept_ns < least)
			least = kept_ns;
	}
	assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
	assert_true(least < NSEC_PER_SEC / 200);
}

/* --- a step that begins when the monitor goes to rest --- */

static atomic_bool computed;

static void compute(void *arg)
{
	atomic_store(&begun, true);
	compute_for(300 * NSEC_PER_SEC / 1000);
	atomic_store(&computed, true);
}

/* If it did rest, the task would keep the loop. */
TEST(monitor_rests_not_beside_a_step)
{
	struct switchto_sched *sched = new_sched_with(NULL, 0, 1);
	struct pollfd held = { .events = POLLIN };
	unsigned int steps;
	char byte;

	others = true;
	assert_int_equal(pipe(wakes), 0);
	held.fd = wakes[0];
	for (int i = 0; i < 3; i++) {
		atomic_store(&begun, false);
		atomic_store(&computed, false);
		/* It looks on as long as there is the hold. It may rest before it is to be held. */
		do {
			assert_int_equal(switchto_sched_hold(sched), 0);
			spawn(sched, nothing, NULL);
			assert_int_equal(switchto_sched_step(sched), 1);
			assert_int_equal(switchto_sched_release(sched), 0);
			atomic_store(&looks, 1);
		} while (poll(&held, 1, 100) != 1);
		assert_int_equal(read(wakes[0], &byte, 1), 1);
		spawn(sched, compute, NULL);
		assert_int_equal(switchto_sched_step(sched), 1);
		assert_false(atomic_load(&computed));
		assert_int_equal(run_by_steps(sched, &steps), 0);
	}
	close_both(wakes);
	assert_int_equal(switchto_sched_destroy(sched), 0);
}

/* --- a task in a blocking region makes calls, and its slot is another one's --- */

static struct switchto_sem posted;
static atomic_uint asked, answered;
static atomic_bool ticked;

/* More than a budget, each time that the other one asks for it. */
static void post_in_a_region(void *arg)
{
	others = true;
	CHECK_EQ(&verdict, switchto_block_begin(), 0);
	for (unsigned int n = 0; !atomic_load(&begun); n++) {
		for (int i = 0; n && i < 200; i++)
			switchto_sem_post(&posted);
		atomic_store(&answered, n);
		while (atomic_load(&asked) == n && !atomic_load(&begun))
			sched_yield();
	}
	CHECK_EQ(&verdict, switchto_block_end(), 0);
}

static void tick_once(void *arg)
{
	sleep_for(NSEC_PER_SEC / 1000);
	atomic_store(&ticked, true);
}

static void post_now_and_then(void *arg)
{
	int there = 0;

	others = true;
	/* The monitor is not to look after the slot. */
	atomic_store(&looks, 1);
	while (!there)
		CHECK_EQ(&verdict, ioctl(wakes[0], FIONREAD, &there), 0);
	switchto_sem_post(&posted);
	spawn(NULL, tick_once, arg);
	CHECK_EQ(&verdict, switchto_yield(), 0);
	for (unsigned int n = 1; n <= 100 && !atomic_load(&ticked); n++) {
		compute_for(NSEC_PER_SEC / 10000);
		atomic_store(&asked, n);
		while (atomic_load(&answered) != n)
			sched_yield();
		switchto_sem_post(&posted);
	}
	CHECK(&verdict, atomic_load(&ticked));
	atomic_store(&begun, true);
}

/* They are not to fill its budget again. */
TEST(region_fills_no_budget)
{
	/* The region computes, so the monitor is to take its slot, in the looks that it has here. */
	struct switchto_sched *sched = monitored(&OPTIONS(.slots = 1, .slice = SWITCHTO_NO_SLICE));

	assert_int_equal(pipe(wakes), 0);
	others = true;
	spawn(sched, post_in_a_region, NULL);
	spawn(sched, post_now_and_then, NULL);
	run_tasks(sched);
	close_both(wakes);
}

/* --- a handler that interrupts the scheduler, and calls it --- */

static struct switchto_mutex taken;
static struct switchto_sem sem;
static bool has_ring;

static void call_from_within(void)
{
	char byte;

	CHECK_ERR(&verdict, switchto_block_begin(), EDEADLK);
	CHECK_ERR(&verdict, switchto_mutex_lock(&taken), EDEADLK);
	CHECK_ERR(&verdict, switchto_sem_wait(&sem, NULL), EDEADLK);
	CHECK_ERR(&verdict, switchto_read(ends[0], &byte, 1, NULL), EDEADLK);
	if (has_ring)
		CHECK_ERR(&verdict, await_read(ends[0], NULL), EDEADLK);
}

static void park_and_call(void *arg)
{
	const struct timespec past = { 0 };
	char byte;

	CHECK_ERR(&verdict, switchto_read(ends[0], &byte, 1, &past), ETIMEDOUT);
	/* The first one is before the task is inside. */
	at_window_after(1, call_from_within);
	CHECK_ERR(&verdict, switchto_park(&past), ETIMEDOUT);
	CHECK(&verdict, !at_window);
}

TEST(interrupted)
{
	struct switchto_sched *sched = new_sched(NULL);

	has_ring = strcmp(switchto_sched_engine(sched), "io_uring") == 0;
	assert_int_equal(switchto_mutex_lock(&taken), 0);
	assert_int_equal(pipe(ends), 0);
	run_one(sched, park_and_call, NULL);
	close_both(ends);
	assert_int_equal(switchto_mutex_unlock(&taken), 0);
}

/* --- a thread is still in a call when the scheduler is destroyed --- */

static struct switchto_task *sleeper;
static atomic_bool parked, awake, inside, destroys, leaves;

static void stay(void)
{
	atomic_store(&inside, true);
	AWAIT(atomic_load(&destroys));
	usleep(10000);
	atomic_store(&leaves, true);
}

/* The slot does not sleep, so nobody need wake it. */
static void keep_busy(void *arg)
{
	YIELD_UNTIL(atomic_load(&awake));
}

static void sleep_once(void *arg)
{
	spawn(NULL, keep_busy, arg);
	set_at_window_after(1, &parked);
	CHECK_EQ(&verdict, switchto_park(NULL), 0);
	atomic_store(&awake, true);
}

static void end_meanwhile(void *arg)
{
	atomic_store(&parked, true);
	while (!atomic_load(&inside))
		switchto_yield();
}

/* Mostly after the call has begun. */
static void end_soon(void *arg)
{
	atomic_store(&parked, true);
	usleep(1000);
}

static const struct visit {
	int (*call)(struct switchto_task *task);
	void (*task)(void *arg);
	unsigned int window; /* where the task has what it needs to end, or has ended */
	bool is_done;	     /* the call touches nothing after that */
} visits[] = {
	{ switchto_unpark, sleep_once, 1, false },    { switchto_unpark, end_meanwhile, 0, true },
	{ switchto_cancel, end_meanwhile, 0, false }, { switchto_end, end_meanwhile, 0, false },
	{ switchto_join, end_soon, 0, false },	      { switchto_detach, nothing, 0, false },
};

static void call_and_stay(void *visit)
{
	const struct visit *v = visit;

	AWAIT(atomic_load(&parked));
	at_window_after(v->window, stay);
	CHECK_EQ(&verdict, v->call(sleeper), 0);
	CHECK(&verdict, !at_window);
}

TEST(destroy_waits)
{
	for (size_t i = 0; i < sizeof(visits) / sizeof(*visits); i++) {
		struct switchto_sched *sched = new_sched_with(NULL, 0, 1);
		struct visit visit = visits[i];
		pthread_t thread;

		parked = awake = inside = destroys = leaves = false;
		sleeper = spawn_handle(sched, visit.task, NULL);
		thread = start_thread(call_and_stay, &visit);
		assert_int_equal(switchto_sched_run(sched), 0);
		atomic_store(&parked, true);
		AWAIT(atomic_load(&inside));
		atomic_store(&destroys, true);
		assert_int_equal(switchto_sched_destroy(sched), 0);
		CHECK(&verdict, visit.is_done || atomic_load(&leaves));
		pthread_join(thread, NULL);
		verdict_assert(&verdict);
	}
}

/* --- a descriptor is closed just when the wait for it ends --- */

static PER_TEST atomic_bool reads, reads_too, closed, returned;

/* So that a wait for it passes through the same windows each time. */
static void have_polled(int fd)
{
	const struct timespec past = { 0 };
	char byte;

	CHECK_ERR(&verdict, switchto_read(fd, &byte, 1, &past), ETIMEDOUT);
}

static void read_first(void *arg)
{
	char byte;

	have_polled(ends[0]);
	set_at_window_after(2, &reads);
	CHECK_ERR(&verdict, switchto_read(ends[0], &byte, 1, NULL), EBADF);
}

static void read_second(void *arg)
{
	char byte;

	set_at_window_after(0, &reads_too);
	CHECK_ERR(&verdict, switchto_read(ends[0], &byte, 1, NULL), EBADF);
	atomic_store(&returned, true);
}

/* In the thread that closes, which has ended the turn of the second, and is about to wake it. */
static void cancel_second(void)
{
	CHECK_EQ(&verdict, switchto_cancel(sleeper), 0);
	for (int i = 0; i < 100 && !atomic_load(&returned); i++)
		usleep(100);
	CHECK(&verdict, !atomic_load(&returned));
}

static void close_for_both(void *sched)
{
	AWAIT(atomic_load(&reads));
	/* In the other slot: the first one may wait for the lock of the mark. */
	sleeper = spawn_handle(sched, read_second, NULL);
	AWAIT(atomic_load(&reads_too));
	at_window_after(4, cancel_second);
	CHECK_EQ(&verdict, switchto_close(ends[0]), 0);
	/* On a busy machine, the mark may have been dropped, and these were not the windows. */
	at_window = NULL;
	CHECK_EQ(&verdict, switchto_join(sleeper), 0);
}

/* Its turn is on the stack of the second one. */
TEST(turn_ends_twice)
{
	struct switchto_sched *sched = new_sched_with(NULL, 0, 2);

	assert_int_equal(pipe(ends), 0);
	atomic_store(&reads_too, false);
	atomic_store(&returned, false);
	spawn(sched, read_first, NULL);
	run_with_thread(sched, close_for_both, sched);
	close(ends[1]);
}

static void until_closed(void)
{
	atomic_store(&reads_too, true);
	AWAIT(atomic_load(&closed));
}

/* Its first wait ends by the deadline, and that is all. */
static void read_and_sleep(void *arg)
{
	struct timespec soon = in(NSEC_PER_SEC / 500);
	char byte;

	have_polled(ends[0]);
	set_at_window_after(2, &reads);
	CHECK_EQ(&verdict, switchto_read(ends[0], &byte, 1, &soon), -1);
	/* If the other thread was late. */
	CHECK(&verdict, errno == EBADF || errno == ETIMEDOUT);
	soon = in(NSEC_PER_SEC / 10000);
	at_window_after(1, until_closed);
	CHECK_EQ(&verdict, switchto_sleep_until(&soon), 0);
	CHECK(&verdict, !at_window);
}

/* In the thread that closes, which has ended the wait, and is about to wake the task. */
static void until_next(void)
{
	for (int i = 0; i < 200 && !atomic_load(&reads_too); i++)
		usleep(100);
}

static void close_late(void *arg)
{
	AWAIT(atomic_load(&reads));
	at_window_after(0, until_next);
	CHECK_EQ(&verdict, switchto_close(ends[0]), 0);
	CHECK(&verdict, !at_window);
	atomic_store(&closed, true);
}

TEST(error_comes_late)
{
	struct switchto_sched *sched = new_sched_with(NULL, 0, 1);

	assert_int_equal(pipe(ends), 0);
	atomic_store(&reads_too, false);
	atomic_store(&closed, false);
	spawn(sched, read_and_sleep, NULL);
	run_with_thread(sched, close_late, NULL);
	close(ends[1]);
}

/* --- the number is another descriptor's before a call goes on after a part --- */

enum { MANY_PACKETS = 1000 };

static int next[2];

/* The first of it has little room. */
static void make_pair(int type)
{
	const int little = 4096;

	CHECK_EQ(&verdict, socketpair(AF_UNIX, type, 0, ends), 0);
	CHECK_EQ(&verdict, setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &little, sizeof(little)), 0);
}

static void close_and_use_again(void)
{
	CHECK_EQ(&verdict, switchto_close(ends[0]), 0);
	CHECK_EQ(&verdict, socketpair(AF_UNIX, SOCK_STREAM, 0, next), 0);
	CHECK_EQ(&verdict, next[0], ends[0]);
	CHECK_EQ(&verdict, write(next[1], "n", 1), 1);
}

static void send_part(void)
{
	const struct timespec soon = in(NSEC_PER_SEC / 10);
	const ssize_t n = switchto_send(ends[0], great, GREAT, 0, &soon);

	CHECK(&verdict, n > 0 && n < GREAT);
}

static void send_parts(void)
{
	struct iovec part = { great, 1 };
	struct mmsghdr messages[MANY_PACKETS];

	for (int i = 0; i < MANY_PACKETS; i++)
		messages[i] = (struct mmsghdr){ .msg_hdr = { .msg_iov = &part, .msg_iovlen = 1 } };
	/* Of packets, as there is room for few of these. */
	CHECK_EQ(&verdict, close(ends[0]), 0);
	CHECK_EQ(&verdict, close(ends[1]), 0);
	make_pair(SOCK_DGRAM);
	CHECK(&verdict, switchto_sendmmsg(ends[0], messages, MANY_PACKETS, 0, NULL) < MANY_PACKETS);
}

static void receive_part(void)
{
	CHECK_EQ(&verdict, write(ends[1], "o", 1), 1);
	skipped = 1;
	CHECK_EQ(&verdict, switchto_recv(ends[0], great, 2, MSG_WAITALL, NULL), 1);
}

static void receive_parts(void)
{
	struct iovec part = { great, 1 };
	struct mmsghdr messages[] = {
		{ .msg_hdr = { .msg_iov = &part, .msg_iovlen = 1 } },
		{ .msg_hdr = { .msg_iov = &part, .msg_iovlen = 1 } },
	};

	CHECK_EQ(&verdict, write(ends[1], "o", 1), 1);
	skipped = 1;
	CHECK_EQ(&verdict, switchto_recvmmsg(ends[0], messages, 2, 0, NULL), 1);
}

static void use_again(void *part)
{
	at_window_after(0, close_and_use_again);
	(*(void (**)(void))part)();
	CHECK(&verdict, !at_window);
}

TEST(number_used_again)
{
	void (*parts[])(void) = { send_part, send_parts, receive_part, receive_parts };

	for (unsigned int i = 0; i < 4; i++) {
		make_pair(SOCK_STREAM);
		run_one(new_sched_with(NULL, 0, 1), use_again, &parts[i]);
		/* What is there has not been received, and nothing was sent. */
		assert_int_equal(recv(next[0], great, 2, MSG_DONTWAIT), 1);
		assert_int_equal(recv(next[1], great, 1, MSG_DONTWAIT), -1);
		assert_int_equal(switchto_close(next[0]), 0);
		close(next[1]);
		close(ends[1]);
	}
}

/* --- a device, of which a close may take long, is closed --- */

static int device;

/* And the task is about to be in a region. */
static void is_free(void)
{
	CHECK_ERR(&verdict, switchto_block_begin(), EINVAL);
	CHECK_ERR(&verdict, fcntl(device, F_GETFD), EBADF);
}

TEST_IN_TASK(device_closed)
{
	device = open("/dev/null", O_RDONLY);
	CHECK(&verdict, device >= 0);
	/* Of the mark, for input and output; and then of the region. */
	at_window_after(2, is_free);
	CHECK_EQ(&verdict, switchto_close(device), 0);
	CHECK(&verdict, !at_window);
}

/* --- a handler forks when its thread, a dispatcher, has found no task, and another one still looks --- */

static atomic_bool ends_last, ended_last, forked;

static void fork_at_the_end(void)
{
	int status;
	pid_t child;

	if (!atomic_load(&ends_last)) {
		at_window_after(0, fork_at_the_end);
		return;
	}
	AWAIT(atomic_load(&ended_last));
	child = fork();
	if (child == 0) {
		abort_quietly();
		alarm(20);
		return;
	}
	CHECK_EQ(&verdict, waitpid(child, &status, 0), child);
	CHECK(&verdict, WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	atomic_store(&forked, true);
}

static void until_forked(void)
{
	atomic_store(&ended_last, true);
	AWAIT(atomic_load(&forked));
}

static void end_last(void *arg)
{
	/* When its slot looks for others, and there is none. */
	at_window_after(3, until_forked);
	atomic_store(&ends_last, true);
}

TEST(child_of_a_dispatcher_ends)
{
	struct switchto_sched *sched;

#ifdef UNDER_TSAN
	/* It ends a child of several threads in its own way. */
	skip();
#endif
	sched = without_slices(NULL, 0, 2);
	spawn(sched, nothing, NULL);
	spawn(sched, end_last, NULL);
	at_window_after(0, fork_at_the_end);
	run_tasks(sched);
	assert_true(atomic_load(&forked));
}

/* --- an event in the hand of one scheduler is for a task of another one, which ends --- */

static int kept[2];
static atomic_bool polled, offered, held, let_go;

/* In the thread that takes the event, when it is to wake the task. */
static void hold(void)
{
	if (!atomic_load(&offered)) {
		at_window_after(0, hold);
		return;
	}
	atomic_store(&held, true);
	usleep(50000);
	atomic_store(&let_go, true);
}

static void have_it_polled(void *arg)
{
	char byte;

	have_polled(ends[0]);
	at_window_after(0, hold);
	atomic_store(&polled, true);
	CHECK_EQ(&verdict, switchto_read(kept[0], &byte, 1, NULL), 1);
}

static void offer(void)
{
	atomic_store(&offered, true);
	CHECK_EQ(&verdict, write(ends[1], "x", 1), 1);
	for (int i = 0; i < 50000 && !atomic_load(&held); i++)
		usleep(100);
}

/* Between the steps with which it begins to wait, before it sees that another one's slot polls. */
static void wait_there(void *arg)
{
	char byte;

	at_window_after(*(unsigned int *)arg, offer);
	CHECK_EQ(&verdict, switchto_read(ends[0], &byte, 1, NULL), 1);
	CHECK(&verdict, !at_window);
}

static void run_here(void *sched)
{
	CHECK_EQ(&verdict, switchto_sched_run(sched), 0);
}

TEST(event_in_hand)
{
	for (unsigned int window = 0; window < 3; window++) {
		struct switchto_sched *first = new_sched_with(NULL, 0, 1);
		struct switchto_sched *second = new_sched_with(NULL, 0, 1);
		pthread_t thread;

		assert_int_equal(pipe(ends), 0);
		assert_int_equal(pipe(kept), 0);
		polled = offered = held = let_go = false;
		spawn(first, have_it_polled, NULL);
		thread = start_thread(run_here, first);
		AWAIT(atomic_load(&polled));
		/* Mostly, it sleeps then. */
		usleep(20000);
		spawn(second, wait_there, &window);
		run_tasks(second);
		/* To the memory of the task, the event still points. */
		assert_true(atomic_load(&let_go));
		assert_int_equal(write(kept[1], "x", 1), 1);
		pthread_join(thread, NULL);
		run_tasks(first);
		close_known(ends);
		close_known(kept);
	}
}

/* --- there is no thread for a task, for a while --- */

enum { REFUSED = 5 };

static void set_it(void *arg)
{
	*(bool *)arg = true;
}

static void join_one_without_thread(void *arg)
{
	struct switchto_task *task;

	faults_from_to(FAULT_THREAD, 1, REFUSED);
	task = spawn_handle(NULL, set_it, arg);
	/* The others go on meanwhile. */
	sleep_for(NSEC_PER_SEC / 1000);
	CHECK_EQ(&verdict, switchto_join(task), 0);
	CHECK_EQ(&verdict, faults_made(EAGAIN), REFUSED);
	faults_from_to(FAULT_THREAD, 1, 0);
}

TEST(waits_for_a_thread)
{
	struct switchto_sched *sched;
	bool ran = false;

	faults_from_to(FAULT_THREAD, 1, 0);
	sched = new_sched_with(NULL, 0, 1);
	run_one(sched, join_one_without_thread, &ran);
	assert_true(ran);

	/* Without any, that of the monitor being there, tasks would wait for ever. */
	sched = new_sched_with(NULL, 0, 1);
	ran = false;
	spawn(sched, set_it, &ran);
	faults_from_to(FAULT_THREAD, 2, 2);
	CHECK_ERR(v, switchto_sched_run(sched), EAGAIN);
	assert_false(ran);
	run_tasks(sched);
	assert_true(ran);
	faults_from_to(FAULT_THREAD, 1, 0);
}

/* --- two slots, and few threads for both --- */

enum { MANY_SHORT = 20 };

static atomic_uint short_ones;
static atomic_bool other_slot_ran;

static void be_short(void *arg)
{
	atomic_fetch_add(&short_ones, 1);
}

static void spawn_short_ones(void *arg)
{
	for (int i = 0; i < MANY_SHORT; i++)
		spawn(NULL, be_short, NULL);
}

/* In the first slot, whose worker ends one task and begins the next one. */
static void go_on_until_it_ran(void *arg)
{
	if (!atomic_load(&other_slot_ran))
		spawn(NULL, go_on_until_it_ran, NULL);
}

static void run_in_the_other_slot(void *arg)
{
	atomic_store(&other_slot_ran, true);
}

/* Its slot has a worker that waits for a task, and is not there to give it up. */
static void compute_beside_a_spare(void *arg)
{
	CHECK_EQ(&verdict, switchto_join(spawn_handle(NULL, be_short, NULL)), 0);
	spawn_short_ones(arg);
	while (!atomic_load(&short_ones) || atomic_load(&short_ones) == 1)
		usleep(0);
}

/* @workers, beside the monitor and the second dispatcher: the system has no more threads. */
static void run_with_few(unsigned int workers, void (*first)(void *), void (*second)(void *))
{
	struct switchto_sched *sched = without_slices(NULL, 0, 2);

	atomic_store(&short_ones, 0);
	atomic_store(&other_slot_ran, false);
	spawn(sched, first, NULL);
	if (second)
		spawn(sched, second, NULL);
	faults_from_to(FAULT_THREAD, 3 + workers, -1UL);
	run_in_time(sched);
	faults_from_to(FAULT_THREAD, 1, 0);
}

TEST(few_threads)
{
	for (int i = 0; i < LOOPS(20); i++) {
		run_with_few(1, spawn_short_ones, NULL);
		assert_int_equal(atomic_load(&short_ones), MANY_SHORT);
		run_with_few(1, go_on_until_it_ran, run_in_the_other_slot);
	}
	run_with_few(2, compute_beside_a_spare, NULL);
	assert_int_equal(atomic_load(&short_ones), MANY_SHORT + 1);
}
