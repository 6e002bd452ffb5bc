// SPDX-License-Identifier: MIT
/* A scheduler in the loop of somebody else: switchto_sched_fd() and switchto_sched_step(). */
#include "sched.h"

#include <sys/epoll.h>

/* Nothing here takes so long. */
enum { MINUTE = 60000 };

/* Is there something to do, within @ms? */
static bool is_readable(int fd, int ms)
{
	struct pollfd events = { .fd = fd, .events = POLLIN };

	return poll(&events, 1, ms) == 1;
}

/* Until there are no tasks. How many steps it took. */
static unsigned int loop(struct switchto_sched *sched)
{
	unsigned int steps;

	assert_int_equal(run_by_steps(sched, &steps), 0);
	return steps;
}

static void end(struct switchto_sched *sched)
{
	assert_int_equal(switchto_sched_destroy(sched), 0);
	verdict_assert(&verdict);
}

/* Now and then there may be an event too many: not for long. */
static void settle(struct switchto_sched *sched)
{
	const int fd = switchto_sched_fd(sched);

	for (int steps = 0; is_readable(fd, 0); steps++) {
		assert_true(switchto_sched_step(sched) >= 0);
		assert_true(steps < 100);
	}
}

static unsigned int count_steps(struct switchto_sched *sched)
{
	const int fd = switchto_sched_fd(sched);
	const long long until = now_ns() + 100 * MSEC;
	unsigned int steps = 0;
	long long left;

	while ((left = until - now_ns()) > 0)
		if (is_readable(fd, (int)((left + MSEC - 1) / MSEC))) {
			assert_true(switchto_sched_step(sched) >= 0);
			steps++;
		}
	return steps;
}

/* How many steps there are in 100 ms, of a few times the least. */
static unsigned int steps_in_100_ms(struct switchto_sched *sched)
{
	unsigned int least = count_steps(sched);

	for (int tries = 0; least && tries < 4; tries++) {
		const unsigned int steps = count_steps(sched);

		least = steps < least ? steps : least;
	}
	return least;
}

/* epoll_wait(2) also ends for work of io_uring that the kernel gives the thread. */
static int await_event(int epoll, struct epoll_event *event, int timeout)
{
	int n;

	do
		n = epoll_wait(epoll, event, 1, timeout);
	while (n == -1 && errno == EINTR);
	return n;
}

static void nap_until(struct timespec time)
{
	CHECK_EQ(&verdict, switchto_sleep_until(&time), 0);
}

/* --- what it does --- */

static PER_TEST atomic_int ran;

static void nothing(void *arg) {}

static void count(void *arg)
{
	atomic_fetch_add(&ran, 1);
}

TEST(readable_when_there_is_work)
{
	struct switchto_sched *sched = SCHED(.slots = 1);
	const int fd = switchto_sched_fd(sched);

	assert_true(fd >= 0);
	assert_int_equal(switchto_sched_fd(sched), fd);
	assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	assert_false(is_readable(fd, 0));
	assert_int_equal(switchto_sched_step(sched), 0);
	assert_false(is_readable(fd, 0));
	for (int i = 0; i < 3; i++) {
		spawn(sched, count, NULL);
		spawn(sched, count, NULL);
		CHECK_ERR(v, switchto_sched_destroy(sched), EBUSY);
		assert_true(is_readable(fd, 0));
		loop(sched);
		assert_int_equal(atomic_load(&ran), 2 * i + 2);
		settle(sched);
		assert_int_equal(steps_in_100_ms(sched), 0);
	}
	end(sched);
}

/* What was there before the descriptor. */
TEST(descriptor_comes_later)
{
	struct switchto_sched *sched = SCHED(.slots = 1);

	spawn(sched, count, NULL);
	assert_true(is_readable(switchto_sched_fd(sched), 0));
	loop(sched);
	end(sched);

	sched = SCHED(.slots = 1);
	spawn(sched, count, NULL);
	assert_int_equal(switchto_sched_hold(sched), 0);
	assert_int_equal(switchto_sched_step(sched), 1);
	assert_int_equal(atomic_load(&ran), 2);
	spawn(sched, count, NULL);
	assert_true(is_readable(switchto_sched_fd(sched), 0));
	assert_int_equal(switchto_sched_step(sched), 1);
	assert_int_equal(atomic_load(&ran), 3);
	assert_int_equal(switchto_sched_release(sched), 0);
	loop(sched);
	end(sched);
}

static atomic_int early;

static void sleep_some(void *ms)
{
	for (int i = 0; i < 5; i++) {
		const struct timespec time = in((long long)(intptr_t)ms * MSEC);

		nap_until(time);
		if (now_ns() < to_ns(&time))
			atomic_fetch_add(&early, 1);
	}
	count(NULL);
}

TEST(deadlines)
{
	struct switchto_sched *sched = SCHED(.slots = 1);
	const long long begun = now_ns();
	unsigned int steps;

	for (intptr_t i = 0; i < 20; i++)
		spawn(sched, sleep_some, (void *)i);
	steps = loop(sched);
	assert_int_equal(atomic_load(&ran), 20);
	assert_int_equal(atomic_load(&early), 0);
	assert_true(now_ns() - begun >= 5 * 19 * MSEC);
	/* One for each deadline, and on a busy machine for each millisecond. */
	assert_true(steps <= 20 * 5 + 10 + (now_ns() - begun) / MSEC);
	settle(sched);
	assert_int_equal(steps_in_100_ms(sched), 0);
	end(sched);
}

/* --- descriptors --- */

enum { CLIENTS = 8, ROUNDS = 50 };

static int ends[CLIENTS][2];

static void echo(void *number)
{
	const int fd = ends[(intptr_t)number][0];
	char text[64];
	ssize_t n;

	while ((n = switchto_read(fd, text, sizeof(text), NULL)) > 0)
		CHECK_EQ(&verdict, switchto_write(fd, text, (size_t)n, NULL), n);
	CHECK_EQ(&verdict, n, 0);
	CHECK_EQ(&verdict, switchto_close(fd), 0);
}

/* The loop has the clients, too. */
static void be_clients(struct switchto_sched *sched, struct pollfd events[CLIENTS + 1])
{
	int rounds[CLIENTS] = { 0 }, left = CLIENTS;
	char text[64];

	for (int i = 0; i < CLIENTS; i++)
		assert_int_equal(write(ends[i][1], "hello", 5), 5);
	while (left) {
		assert_true(poll(events, CLIENTS + 1, MINUTE) > 0);
		for (int i = 0; i < CLIENTS; i++) {
			if (!events[i].revents)
				continue;
			assert_int_equal(read(events[i].fd, text, sizeof(text)), 5);
			if (++rounds[i] < ROUNDS) {
				assert_int_equal(write(events[i].fd, "hello", 5), 5);
			} else {
				close(events[i].fd);
				events[i].fd = -1;
				left--;
			}
		}
		if (events[CLIENTS].revents)
			assert_true(switchto_sched_step(sched) >= 0);
	}
}

TEST(descriptors)
{
	struct switchto_sched *sched = SCHED(.slots = 1);
	struct pollfd events[CLIENTS + 1] = { 0 };

	for (intptr_t i = 0; i < CLIENTS; i++) {
		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends[i]), 0);
		events[i] = (struct pollfd){ .fd = ends[i][1], .events = POLLIN };
		spawn(sched, echo, (void *)i);
	}
	events[CLIENTS] = (struct pollfd){ .fd = switchto_sched_fd(sched), .events = POLLIN };
	be_clients(sched, events);
	loop(sched);
	end(sched);
}

/* More descriptors are ready at once than a look takes. */
enum { CROWD = 140 };

static int crowd[CROWD][2];

/* Its slot polls all of them, and it waits for the last one. */
static void read_each(void *arg)
{
	char byte;

	for (int i = 0; i <= CROWD; i++) {
		CHECK_EQ(&verdict, switchto_read(crowd[i < CROWD ? i : 0][0], &byte, 1, NULL), 1);
		count(NULL);
	}
}

/*
 * With a loop that hears of each event once. No task is ready after the first look: it is not because
 * of such a task that there is one more event.
 */
TEST(edge_triggered)
{
	struct switchto_sched *sched = SCHED(.slots = 1);
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };
	const int epoll = epoll_create1(EPOLL_CLOEXEC);

	assert_int_equal(epoll_ctl(epoll, EPOLL_CTL_ADD, switchto_sched_fd(sched), &event), 0);
	for (int i = 0; i < CROWD; i++)
		assert_int_equal(pipe(crowd[i]), 0);
	spawn(sched, read_each, NULL);
	for (int i = 0; i < CROWD; i++) {
		assert_int_equal(write(crowd[i][1], "a", 1), 1);
		while (atomic_load(&ran) <= i) {
			assert_int_equal(await_event(epoll, &event, MINUTE), 1);
			assert_int_equal(switchto_sched_step(sched), 1);
		}
	}
	while (await_event(epoll, &event, 100))
		assert_int_equal(switchto_sched_step(sched), 1);
	for (int i = CROWD - 1; i >= 0; i--)
		assert_int_equal(write(crowd[i][1], "a", 1), 1);
	do
		assert_int_equal(await_event(epoll, &event, MINUTE), 1);
	while (switchto_sched_step(sched));
	assert_int_equal(atomic_load(&ran), CROWD + 1);
	for (int i = 0; i < CROWD; i++)
		close_both(crowd[i]);
	close(epoll);
	end(sched);
}

/* --- no lost wakeup --- */

static atomic_int unparked;

static void park_often(void *arg)
{
	for (int i = 0; i < LOOPS(5000); i++) {
		CHECK_EQ(&verdict, switchto_park(NULL), 0);
		atomic_fetch_add(&ran, 1);
	}
}

static void unpark_often(void *task)
{
	uint32_t dice = 1;

	for (int i = 0; i < LOOPS(5000); i++) {
		CHECK_EQ(&verdict, switchto_unpark(task), 0);
		/* It has gone on only if nobody has missed that. */
		AWAIT(atomic_load(&ran) > i);
		random_delay(&dice, 3000);
	}
}

TEST(woken_by_threads)
{
	struct switchto_sched *sched = SCHED(.slots = 1);
	struct switchto_task *task;
	pthread_t thread;

	task = spawn_handle(sched, park_often, NULL);
	thread = start_thread(unpark_often, task);
	loop(sched);
	pthread_join(thread, NULL);
	assert_int_equal(atomic_load(&ran), LOOPS(5000));
	assert_int_equal(switchto_join(task), 0);
	end(sched);
}

/* A thread spawns, holds and releases, as steps find that there is nothing left. */
static void hold_and_spawn(void *sched)
{
	for (int i = 0; i < LOOPS(1000); i++) {
		CHECK_EQ(&verdict, switchto_sched_hold(sched), 0);
		spawn(sched, count, NULL);
		AWAIT(atomic_load(&ran) > i);
		CHECK_EQ(&verdict, switchto_sched_release(sched), 0);
	}
}

TEST(spawned_by_threads)
{
	struct switchto_sched *sched = SCHED(.slots = 1);
	pthread_t thread;

	thread = start_thread(hold_and_spawn, sched);
	while (atomic_load(&ran) < LOOPS(1000)) {
		assert_true(is_readable(switchto_sched_fd(sched), MINUTE));
		assert_true(switchto_sched_step(sched) >= 0);
	}
	pthread_join(thread, NULL);
	assert_true(switchto_sched_step(sched) >= 0);
	end(sched);
}

static struct switchto_mutex mutex;
static struct switchto_chan *chan;

static void send_some(void *arg)
{
	for (int i = 0; i < 1000; i++) {
		CHECK_EQ(&verdict, switchto_mutex_lock(&mutex), 0);
		if (i % 10 == 0 && switchto_task_self())
			CHECK_EQ(&verdict, switchto_yield(), 0);
		CHECK_EQ(&verdict, switchto_mutex_unlock(&mutex), 0);
		CHECK_EQ(&verdict, switchto_chan_send(chan, &i, NULL), 0);
	}
	count(NULL);
}

static void receive_all(void *arg)
{
	int item;

	while (switchto_chan_recv(chan, &item, NULL) == 0)
		atomic_fetch_add(&unparked, 1);
}

TEST(channels_and_mutexes)
{
	struct switchto_sched *sched = SCHED(.slots = 1);
	pthread_t thread;

	atomic_store(&unparked, 0);
	assert_int_equal(switchto_chan_create(&chan, sizeof(int), 3), 0);
	for (int i = 0; i < 3; i++)
		spawn(sched, send_some, NULL);
	spawn(sched, receive_all, NULL);
	thread = start_thread(send_some, NULL);
	while (atomic_load(&ran) < 4) {
		is_readable(switchto_sched_fd(sched), 10);
		assert_int_equal(switchto_sched_step(sched), 1);
	}
	pthread_join(thread, NULL);
	assert_int_equal(switchto_chan_close(chan), 0);
	loop(sched);
	assert_int_equal(atomic_load(&unparked), 4000);
	assert_int_equal(switchto_chan_destroy(chan), 0);
	end(sched);
}

/* --- the loop is not kept waiting, nor kept busy --- */

static PER_TEST atomic_bool over;

static void yield_until_over(void *arg)
{
	YIELD_UNTIL(atomic_load(&over));
}

static void compute(void *ms)
{
	compute_for((intptr_t)ms * MSEC);
	atomic_store(&over, true);
	CHECK_EQ(&verdict, switchto_yield(), 0);
	count(NULL);
}

static void block(void *region)
{
	char byte;

	if (region)
		CHECK_EQ(&verdict, switchto_block_begin(), 0);
	CHECK_EQ(&verdict, read(ends[0][0], &byte, 1), 1);
	if (region)
		CHECK_EQ(&verdict, switchto_block_end(), 0);
	CHECK_EQ(&verdict, switchto_yield(), 0);
	count(NULL);
}

/* The longest step, until the loop has had @steps of them. */
static long long longest(struct switchto_sched *sched, int steps)
{
	long long most = 0;

	while (steps--) {
		const long long begun = now_ns();

		assert_true(is_readable(switchto_sched_fd(sched), MINUTE));
		assert_int_equal(switchto_sched_step(sched), 1);
		if (now_ns() - begun > most)
			most = now_ns() - begun;
	}
	return most;
}

TEST(steps_are_short)
{
	struct switchto_sched *sched = SCHED(.slots = 1, .flags = SWITCHTO_MEASURE);
	long long least = MINUTE * MSEC;

	spawn(sched, yield_until_over, NULL);
	spawn(sched, yield_until_over, NULL);
	/* On a busy machine, some are longer. */
	for (int i = 0; i < 20; i++) {
		const long long most = longest(sched, 5);

		if (most < least)
			least = most;
	}
	print_message("the longest of five steps, at best: %lld us\n", least / 1000);
	assert_true(least < 50 * MSEC);
	atomic_store(&over, true);
	loop(sched);
	end(sched);
}

/* It is alone, but for the loop. */
TEST(computing_task_does_not_keep_the_loop)
{
	struct switchto_sched *sched = SCHED(.slots = 1, .flags = SWITCHTO_MEASURE);

	atomic_store(&over, false);
	spawn(sched, compute, (void *)300L);
	assert_int_equal(switchto_sched_step(sched), 1);
	assert_false(atomic_load(&over));
	assert_true(retakes_of(sched) >= 1);
	loop(sched);
	assert_int_equal(atomic_load(&ran), 1);
	end(sched);
}

/* How often threads of the process have gone to sleep. */
static long sleeps(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_nvcsw;
}

/* It is there for the next task that computes. */
TEST(monitor_rests_without_tasks)
{
	struct switchto_sched *sched = SCHED(.slots = 1);

	for (int i = 0; i < 3; i++) {
		long before;

		atomic_store(&over, false);
		spawn(sched, compute, (void *)200L);
		assert_int_equal(switchto_sched_step(sched), 1);
		assert_false(atomic_load(&over));
		loop(sched);
		/* It looks once more. */
		usleep(50000);
		before = sleeps();
		/* With a task, it looks every 10 ms. */
		usleep(500000);
		assert_true(sleeps() - before < 20);
	}
	end(sched);
}

static void park(void *arg)
{
	CHECK_EQ(&verdict, switchto_park(NULL), 0);
}

/* The monitor ends threads that have been idle for long, also when there are no tasks any more. */
TEST(threads_end_without_tasks)
{
	enum { TASKS = 20 };
	struct switchto_sched *sched = SCHED(.slots = 1, .idle_threads = 1);
	struct switchto_task *tasks[TASKS];
	unsigned int before;

	before = entries("/proc/self/task");
	for (int i = 0; i < TASKS; i++)
		tasks[i] = spawn_handle(sched, park, NULL);
	assert_int_equal(switchto_sched_step(sched), 1);
	settle(sched);
	assert_true(entries("/proc/self/task") >= before + TASKS);
	for (int i = 0; i < TASKS; i++)
		assert_int_equal(switchto_unpark(tasks[i]), 0);
	loop(sched);
	for (int i = 0; i < TASKS; i++)
		assert_int_equal(switchto_join(tasks[i]), 0);
	/* The monitor, the one that is to stay, a spare one, and one that polls. */
	for (int waits = 0; entries("/proc/self/task") > before + 4; waits++) {
		assert_true(waits < 600);
		usleep(100000);
	}
	end(sched);
}

TEST(blocking_task_does_not_keep_the_loop)
{
	for (intptr_t region = 0; region < 2; region++) {
		struct switchto_sched *sched = SCHED(.slots = 1);

		atomic_store(&ran, 0);
		assert_int_equal(pipe(ends[0]), 0);
		spawn(sched, block, (void *)region);
		assert_int_equal(switchto_sched_step(sched), 1);
		settle(sched);
		assert_int_equal(steps_in_100_ms(sched), 0);
		assert_int_equal(write(ends[0][1], "a", 1), 1);
		loop(sched);
		assert_int_equal(atomic_load(&ran), 1);
		close_both(ends[0]);
		end(sched);
	}
}

static void wait_in_many_ways(void *way)
{
	const struct timespec late = in(3600 * NSEC_PER_SEC);
	char text[2];

	switch ((intptr_t)way) {
	case 0:
		CHECK_ERR(&verdict, switchto_park(NULL), ECANCELED);
		break;
	case 1:
		CHECK_ERR(&verdict, switchto_sleep_until(&late), ECANCELED);
		break;
	case 2: /* and there is more that nobody reads */
		CHECK_EQ(&verdict, switchto_read(ends[0][0], text, 1, NULL), 1);
		CHECK_ERR(&verdict, switchto_park(NULL), ECANCELED);
		break;
	case 3:
		CHECK_ERR(&verdict, switchto_read(ends[1][0], text, 2, &late), ECANCELED);
		break;
	default:
		CHECK_ERR(&verdict, switchto_chan_recv(chan, text, &late), ECANCELED);
		break;
	}
	count(NULL);
}

TEST(idle_loop_sleeps)
{
	struct switchto_sched *sched = SCHED(.slots = 1);
	long long used;

	assert_int_equal(switchto_chan_create(&chan, 1, 0), 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends[i]), 0);
	assert_int_equal(write(ends[0][1], "abc", 3), 3);
	for (intptr_t way = 0; way < 5; way++)
		spawn(sched, wait_in_many_ways, (void *)way);
	assert_int_equal(switchto_sched_step(sched), 1);
	settle(sched);
	used = cpu_ns();
	assert_true(steps_in_100_ms(sched) <= 1);
	assert_true(cpu_ns() - used < 50 * MSEC);
	assert_int_equal(switchto_sched_stop(sched, SWITCHTO_STOP_CANCEL), 0);
	loop(sched);
	assert_int_equal(atomic_load(&ran), 5);
	assert_int_equal(switchto_chan_destroy(chan), 0);
	for (int i = 0; i < 2; i++)
		close_both(ends[i]);
	end(sched);
}

/* A loop that polls @epoll has nothing to do: after a few steps, it sleeps. */
static void settle_loop(struct switchto_sched *sched, int epoll)
{
	struct epoll_event event;

	for (int steps = 0; await_event(epoll, &event, 0) == 1; steps++) {
		assert_int_equal(switchto_sched_step(sched), 0);
		assert_true(steps < 3);
	}
}

/* What is in the queue then, nobody takes out. */
TEST(dropped_between_steps)
{
	for (int edge = 0; edge < 2; edge++) {
		struct switchto_sched *sched = SCHED(.slots = 1);
		struct epoll_event event = { .events = EPOLLIN | (edge ? EPOLLET : 0) };
		const int epoll = epoll_create1(EPOLL_CLOEXEC);

		atomic_store(&ran, 0);
		assert_int_equal(epoll_ctl(epoll, EPOLL_CTL_ADD, switchto_sched_fd(sched), &event),
				 0);
		for (int i = 0; i < 3; i++) {
			assert_int_equal(switchto_end(spawn_handle(sched, count, NULL)), 0);
			settle_loop(sched, epoll);
		}
		assert_int_equal(atomic_load(&ran), 0);
		spawn(sched, count, NULL);
		loop(sched);
		assert_int_equal(atomic_load(&ran), 1);
		close(epoll);
		end(sched);
	}
}

static struct switchto_task *_Atomic changed;

/* The last changes come as the task ends. */
static void change_always(void *arg)
{
	const struct switchto_task_attr attr = { .priority = 1 };

	while (!atomic_load(&over)) {
		struct switchto_task *task = atomic_exchange(&changed, NULL);

		if (!task)
			continue;
		while (switchto_task_set_attr(task, &attr) == 0)
			;
		CHECK_EQ(&verdict, errno, ESRCH);
		atomic_fetch_add(&ran, 1);
	}
}

TEST(changed_at_the_end)
{
	struct switchto_sched *sched = SCHED(.slots = 1, .policy = &switchto_priority);
	pthread_t thread;

	atomic_store(&over, false);
	thread = start_thread(change_always, NULL);
	for (int i = 0; i < LOOPS(300); i++) {
		struct switchto_task *task = spawn_handle(sched, nothing, NULL);

		atomic_store(&changed, task);
		loop(sched);
		AWAIT(atomic_load(&ran) > i);
		settle(sched);
		assert_int_equal(switchto_join(task), 0);
	}
	atomic_store(&over, true);
	pthread_join(thread, NULL);
	end(sched);
}

/* So many events of a descriptor that was closed here, and lives on there, that the slot polls anew. */
static void leave_strays(void *arg)
{
	char byte;

	CHECK_EQ(&verdict, switchto_recv(ends[0][0], &byte, 1, 0, NULL), 1);
	*(int *)arg = dup(ends[0][0]);
	CHECK_EQ(&verdict, close(ends[0][0]), 0);
	CHECK_EQ(&verdict, switchto_forget(ends[0][0]), 0);
	CHECK_EQ(&verdict, switchto_recv(ends[1][0], &byte, 1, 0, NULL), 1);
	count(NULL);
}

TEST(polled_anew)
{
	struct switchto_sched *sched = SCHED(.slots = 1);
	const int fd = switchto_sched_fd(sched);
	int other;

	for (int i = 0; i < 2; i++)
		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends[i]), 0);
	spawn(sched, leave_strays, &other);
	/* It waits, so its slot polls the descriptor. */
	assert_int_equal(switchto_sched_step(sched), 1);
	assert_int_equal(write(ends[0][1], "abc", 3), 3);
	while (is_readable(fd, 200))
		assert_int_equal(switchto_sched_step(sched), 1);
	assert_int_equal(steps_in_100_ms(sched), 0);
	assert_int_equal(switchto_sched_fd(sched), fd);
	assert_int_equal(write(ends[1][1], "a", 1), 1);
	assert_true(is_readable(fd, MINUTE));
	loop(sched);
	assert_int_equal(atomic_load(&ran), 1);
	close(other);
	close(ends[0][1]);
	close_both(ends[1]);
	end(sched);
}

/* --- beside runs, holds and policies --- */

TEST(held)
{
	struct switchto_sched *sched = SCHED(.slots = 1);
	const int fd = switchto_sched_fd(sched);

	assert_int_equal(switchto_sched_hold(sched), 0);
	assert_int_equal(switchto_sched_step(sched), 1);
	settle(sched);
	assert_false(is_readable(fd, 0));
	assert_int_equal(switchto_sched_release(sched), 0);
	loop(sched);
	end(sched);
}

static void step_in_a_thread(void *sched)
{
	CHECK(&verdict, switchto_sched_step(sched) >= 0);
}

TEST(any_thread_and_run)
{
	struct switchto_sched *sched = SCHED(.slots = 1);

	for (int round = 0; round < 3; round++) {
		for (intptr_t i = 0; i < 5; i++)
			spawn(sched, sleep_some, (void *)i);
		for (int i = 0; i < 10; i++)
			pthread_join(start_thread(step_in_a_thread, sched), NULL);
		assert_int_equal(switchto_sched_run(sched), 0);
		assert_int_equal(atomic_load(&ran), 5 * round + 5);
		settle(sched);
	}
	spawn(sched, count, NULL);
	loop(sched);
	assert_int_equal(atomic_load(&ran), 16);
	end(sched);
}

TEST(each_policy)
{
	for (int i = 0; i < 8; i++) {
		struct switchto_sched *sched = new_sched_with(all_policies[i / 2],
							      i % 2 ? SWITCHTO_MEASURE : 0, 1);

		atomic_store(&ran, 0);
		atomic_store(&over, false);
		spawn(sched, yield_until_over, NULL);
		spawn(sched, compute, (void *)30L);
		for (intptr_t ms = 0; ms < 5; ms++)
			spawn(sched, sleep_some, (void *)ms);
		loop(sched);
		assert_int_equal(atomic_load(&ran), 6);
		end(sched);
	}
}

TEST(policy_holds_back)
{
	struct switchto_sched *sched = SCHED(.slots = 1, .policy = &throttled);
	const long long begun = now_ns();
	unsigned int steps;

	for (int i = 0; i < 10; i++)
		spawn(sched, count, NULL);
	steps = loop(sched);
	assert_int_equal(atomic_load(&ran), 10);
	assert_true(now_ns() - begun >= 9 * 5 * MSEC);
	assert_true(steps <= (now_ns() - begun) / MSEC + 20);
	end(sched);
}

static PER_TEST struct switchto_sched *destroyed;
static PER_TEST atomic_bool picks;

static void destroy_other(void *arg)
{
	AWAIT(atomic_load(&picks));
	CHECK_EQ(&verdict, switchto_sched_destroy(destroyed), 0);
	atomic_store(&over, true);
}

/* It may still have a task of the other scheduler in hand. */
static struct switchto_entry *pick_slowly(void *queue)
{
	const struct timespec time = { .tv_nsec = 100 * MSEC };

	if (destroyed && !atomic_exchange(&picks, true)) {
		nanosleep(&time, NULL);
		CHECK(&verdict, !atomic_load(&over));
	}
	return switchto_fifo.pick(queue);
}

/* As it waits for a run. */
TEST(destruction_waits_for_a_step)
{
	struct switchto_policy policy = switchto_fifo;
	struct switchto_sched *sched;
	pthread_t thread;

	atomic_store(&over, false);
	policy.pick = pick_slowly;
	sched = SCHED(.slots = 1, .policy = &policy);
	/* All was over then. */
	spawn(sched, nothing, NULL);
	assert_int_equal(switchto_sched_run(sched), 0);
	destroyed = SCHED(.slots = 1);
	spawn(sched, nothing, NULL);
	thread = start_thread(destroy_other, NULL);
	loop(sched);
	pthread_join(thread, NULL);
	assert_true(atomic_load(&over));
	end(sched);
}

static void *lose_it(void *queue)
{
	return queue ? NULL : queue;
}

static struct switchto_entry *lose(void *queue)
{
	return lose_it(queue);
}

/* As in a run. */
CHILD(lose_a_task)
{
	struct switchto_policy policy = switchto_fifo;
	struct switchto_sched *sched;

	policy.pick = lose;
	sched = SCHED(.slots = 1, .policy = &policy);
	spawn(sched, count, NULL);
	switchto_sched_step(sched);
}

TEST(conserving_policy)
{
	assert_int_equal(run_child(lose_a_task, NULL), 128 + SIGABRT);
}

static void use_files(void *arg)
{
	char name[] = "/tmp/switchto-XXXXXX", text[6] = "";
	const int fd = mkstemp(name);

	CHECK(&verdict, fd >= 0);
	for (int i = 0; i < 100; i++) {
		CHECK_EQ(&verdict, switchto_pwrite(fd, "hello", 5, 5 * i, NULL), 5);
		CHECK_EQ(&verdict, switchto_fsync(fd), 0);
		CHECK_EQ(&verdict, switchto_pread(fd, text, 5, 5 * i, NULL), 5);
	}
	CHECK_EQ(&verdict, switchto_close(fd), 0);
	CHECK_EQ(&verdict, unlink(name), 0);
	count(NULL);
}

TEST(files)
{
	struct switchto_sched *sched = SCHED(.slots = 1);

	for (int i = 0; i < 3; i++)
		spawn(sched, use_files, NULL);
	loop(sched);
	assert_int_equal(atomic_load(&ran), 3);
	end(sched);
}

/* --- errors --- */

static int known_fd;

/* It can be had at any time, but not made. */
static void use_fd(struct switchto_sched *sched)
{
	if (known_fd == -1)
		CHECK_ERR(&verdict, switchto_sched_fd(sched), EBUSY);
	else
		CHECK_EQ(&verdict, switchto_sched_fd(sched), known_fd);
}

static void use_meanwhile(void *sched)
{
	AWAIT(atomic_load(&picks));
	CHECK_ERR(&verdict, switchto_sched_step(sched), EBUSY);
	use_fd(sched);
	CHECK_ERR(&verdict, switchto_sched_run(sched), EBUSY);
	CHECK_ERR(&verdict, switchto_sched_destroy(sched), EBUSY);
	atomic_store(&over, true);
}

/* A task may lose its slot on a busy machine, and the step be over. Not so while one is picked. */
static struct switchto_entry *pick_and_wait(void *queue)
{
	struct switchto_entry *entry = switchto_fifo.pick(queue);

	if (entry && !atomic_exchange(&picks, true))
		AWAIT(atomic_load(&over));
	return entry;
}

static void use_in_a_task(void *sched)
{
	struct switchto_sched *other = SCHED(.slots = 1);

	CHECK_ERR(&verdict, switchto_sched_step(sched), EPERM);
	CHECK_ERR(&verdict, switchto_sched_step(other), EPERM);
	use_fd(sched);
	CHECK(&verdict, switchto_sched_fd(other) >= 0);
	CHECK_EQ(&verdict, switchto_sched_destroy(other), 0);
	count(NULL);
}

CHILD(use_in_a_child)
{
	struct switchto_sched *sched = arg;

	CHECK_ERR(v, switchto_sched_step(sched), EPERM);
	CHECK_ERR(v, switchto_sched_fd(sched), EPERM);
	CHECK_EQ(v, switchto_sched_destroy(sched), 0);
}

TEST(misuse)
{
	struct switchto_sched *sched = new_sched_with(NULL, 0, 2);
	struct switchto_policy policy = switchto_fifo;
	pthread_t thread;

	CHECK_ERR(v, switchto_sched_step(NULL), EINVAL);
	CHECK_ERR(v, switchto_sched_fd(NULL), EINVAL);
	CHECK_ERR(v, switchto_sched_step(sched), ENOTSUP);
	CHECK_ERR(v, switchto_sched_fd(sched), ENOTSUP);
	end(sched);

	known_fd = -1;
	policy.pick = pick_and_wait;
	sched = SCHED(.slots = 1, .policy = &policy);
	for (int i = 0; i < 2; i++) {
		atomic_store(&picks, false);
		atomic_store(&over, false);
		spawn(sched, use_in_a_task, sched);
		thread = start_thread(use_meanwhile, sched);
		if (i)
			loop(sched);
		else
			assert_int_equal(switchto_sched_run(sched), 0);
		pthread_join(thread, NULL);
		known_fd = switchto_sched_fd(sched);
	}
	assert_int_equal(atomic_load(&ran), 2);
	spawn(sched, sleep_some, (void *)1L);
	assert_int_equal(switchto_sched_step(sched), 1);
	assert_int_equal(run_child(use_in_a_child, sched), 0);
	loop(sched);
	end(sched);
}

TEST(no_descriptor)
{
	struct switchto_sched *sched = SCHED(.slots = 1);
	const unsigned int before = entries("/proc/self/fd");
	const int next = dup(0);

	close(next);
	for (int left = 0; left < 2; left++) {
		const rlim_t limit = set_limit(RLIMIT_NOFILE, (rlim_t)next + (rlim_t)left);

		CHECK_ERR(v, switchto_sched_fd(sched), EMFILE);
		set_limit(RLIMIT_NOFILE, limit);
		assert_int_equal(entries("/proc/self/fd"), before);
	}
	spawn(sched, count, NULL);
	loop(sched);
	assert_int_equal(entries("/proc/self/fd"), before + 2);
	end(sched);
}
