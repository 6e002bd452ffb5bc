// SPDX-License-Identifier: MIT
/* Tasks: spawn, join, yield, park, sleep, cancel, blocking regions, and the end. */
#include "sched.h"

enum { TURNS = 1000 };

static PER_TEST atomic_int ended;

static void end(void *arg)
{
	atomic_fetch_add(&ended, 1);
}

/* --- order --- */

static char order[16];
static PER_TEST size_t written;

static void write_twice(void *letter)
{
	order[written++] = *(char *)letter;
	CHECK_EQ(&verdict, switchto_yield(), 0);
	order[written++] = *(char *)letter;
}

TEST(fifo_order)
{
	static char letters[] = "abcd";
	struct switchto_sched *sched;

	if (slots != 1)
		skip();
	sched = new_sched_in_order(&switchto_fifo);
	for (char *c = letters; *c; c++)
		spawn(sched, write_twice, c);
	run_tasks(sched);
	assert_memory_equal(order, "abcdabcd", 8);
}

/* --- spawn and join --- */

TEST_IN_TASK(joined_task_has_ended)
{
	for (int i = 0; i < LOOPS(TURNS); i++) {
		struct switchto_task *task = spawn_handle(NULL, end, NULL);

		CHECK_EQ(&verdict, switchto_join(task), 0);
		CHECK_EQ(&verdict, atomic_load(&ended), i + 1);
	}
}

static void run_sched(void *sched)
{
	CHECK_EQ(&verdict, switchto_sched_run(sched), 0);
}

TEST(another_thread_joins)
{
	struct switchto_sched *sched = new_sched(NULL);
	struct switchto_task *task = spawn_handle(sched, end, NULL);
	pthread_t thread;

	thread = start_thread(run_sched, sched);
	assert_int_equal(switchto_join(task), 0);
	assert_int_equal(atomic_load(&ended), 1);
	pthread_join(thread, NULL);
	run_tasks(sched);
}

static void join_itself(void *arg)
{
	CHECK_ERR(&verdict, switchto_join(switchto_task_self()), EDEADLK);
}

static void join_other(void *task)
{
	CHECK_EQ(&verdict, switchto_join(task), 0);
}

static void join_second(void *task)
{
	CHECK_ERR(&verdict, switchto_join(task), EINVAL);
	CHECK_ERR(&verdict, switchto_detach(task), EINVAL);
	CHECK_EQ(&verdict, switchto_unpark(task), 0);
}

static void park_once(void *arg)
{
	CHECK_EQ(&verdict, switchto_park(NULL), 0);
}

TEST(join_twice)
{
	struct switchto_sched *sched;
	struct switchto_task *task;

	if (slots != 1)
		skip();
	sched = new_sched(NULL);
	task = spawn_handle(sched, park_once, NULL);
	spawn(sched, join_itself, NULL);
	spawn(sched, join_other, task);
	spawn(sched, join_second, task);
	run_tasks(sched);
}

TEST(ended_task)
{
	struct switchto_sched *sched = new_sched(NULL);
	struct switchto_task *task = spawn_handle(sched, end, NULL);

	assert_int_equal(switchto_sched_run(sched), 0);
	CHECK_ERR(&verdict, switchto_unpark(task), ESRCH);
	CHECK_ERR(&verdict, switchto_cancel(task), ESRCH);
	CHECK_EQ(&verdict, switchto_join(task), 0);
	task = spawn_handle(sched, end, NULL);
	assert_int_equal(switchto_sched_run(sched), 0);
	CHECK_EQ(&verdict, switchto_detach(task), 0);
	run_tasks(sched);
}

/* --- park and unpark --- */

static void park_often(void *arg)
{
	for (int i = 0; i < LOOPS(TURNS); i++)
		CHECK_EQ(&verdict, switchto_park(NULL), 0);
	atomic_store(&ended, 1);
}

static void unpark_until_ended(void *task)
{
	while (!atomic_load(&ended)) {
		switchto_unpark(task);
		switchto_yield();
	}
	CHECK_EQ(&verdict, switchto_join(task), 0);
}

TEST(unpark_by_a_task)
{
	add_task(unpark_until_ended, add_handle(park_often, NULL));
	run_added();
}

TEST(unpark_by_a_thread)
{
	struct switchto_sched *sched = new_sched(NULL);
	struct switchto_task *task = spawn_handle(sched, park_often, NULL);
	pthread_t thread;

	thread = start_thread(run_sched, sched);
	while (!atomic_load(&ended))
		switchto_unpark(task);
	assert_int_equal(switchto_join(task), 0);
	pthread_join(thread, NULL);
	run_tasks(sched);
}

static void unpark_comes_first(void *arg)
{
	/* Later than the clock can say. */
	const struct timespec never = { .tv_sec = LONG_MAX };
	struct timespec now = in(0);

	CHECK_EQ(&verdict, switchto_unpark(switchto_task_self()), 0);
	CHECK_EQ(&verdict, switchto_unpark(switchto_task_self()), 0);
	CHECK_EQ(&verdict, switchto_park(NULL), 0);
	CHECK_EQ(&verdict, switchto_unpark(switchto_task_self()), 0);
	CHECK_EQ(&verdict, switchto_park(&never), 0);
	CHECK_ERR(&verdict, switchto_park(&now), ETIMEDOUT);
}

/* A sleep is not ended by an unpark, and does not take it away. */
static void unpark_during_a_sleep(void *arg)
{
	struct timespec soon = in(20000000);

	CHECK_EQ(&verdict, switchto_sleep_until(&soon), 0);
	CHECK(&verdict, has_passed(&soon));
	CHECK_EQ(&verdict, switchto_park(NULL), 0);
}

static void unpark_at_once(void *task)
{
	CHECK_EQ(&verdict, switchto_unpark(task), 0);
	CHECK_EQ(&verdict, switchto_join(task), 0);
}

TEST(unpark_stays_pending)
{
	add_task(unpark_comes_first, NULL);
	add_task(unpark_at_once, add_handle(unpark_during_a_sleep, NULL));
	run_added();
}

/* --- time --- */

static void sleep_in_order(void *ms)
{
	struct timespec then = in((long)ms * 1000000);
	struct timespec now;

	CHECK_EQ(&verdict, switchto_sleep_until(&then), 0);
	now = in(0);
	CHECK(&verdict, now.tv_sec > then.tv_sec ||
				(now.tv_sec == then.tv_sec && now.tv_nsec >= then.tv_nsec));
	CHECK_ERR(&verdict, switchto_park(&then), ETIMEDOUT);
}

TEST(never_early)
{
	for (long i = 0; i < 50; i++)
		add_task(sleep_in_order, (void *)(i * 37 % 50));
	run_added();
}

TEST_IN_TASK(bad_time)
{
	const struct timespec bad[] = { { 0, -1 }, { 0, 1000000000 } };

	for (int i = 0; i < 2; i++) {
		CHECK_ERR(&verdict, switchto_park(&bad[i]), EINVAL);
		CHECK_ERR(&verdict, switchto_sleep_until(&bad[i]), EINVAL);
	}
	CHECK_ERR(&verdict, switchto_sleep_until(NULL), EINVAL);
	/* Before the clock began: that has passed, as any other time. */
	CHECK_EQ(&verdict, switchto_sleep_until(&(struct timespec){ -5, 0 }), 0);
	CHECK_ERR(&verdict, switchto_park(&(struct timespec){ -5, 0 }), ETIMEDOUT);
}

/* --- cancellation and the end --- */

static void wait_for_ever(void *how)
{
	const struct timespec late = in(3600000000000LL);

	switch ((long)how) {
	case 0:
		CHECK_ERR(&verdict, switchto_park(NULL), ECANCELED);
		break;
	case 1:
		CHECK_ERR(&verdict, switchto_park(&late), ECANCELED);
		break;
	case 2:
		CHECK_ERR(&verdict, switchto_sleep_until(&late), ECANCELED);
		break;
	}
	/* And from now on at once. */
	CHECK_ERR(&verdict, switchto_park(NULL), ECANCELED);
	CHECK_ERR(&verdict, switchto_yield(), ECANCELED);
}

static void cancel_soon(void *task)
{
	switchto_yield();
	CHECK_EQ(&verdict, switchto_cancel(task), 0);
	CHECK_EQ(&verdict, switchto_join(task), 0);
}

TEST(cancelled_waits_end)
{
	for (long how = 0; how < 3; how++)
		add_task(cancel_soon, add_handle(wait_for_ever, (void *)how));
	run_added();
}

static void stop_all(void *sched)
{
	switchto_yield();
	CHECK_ERR(&verdict, switchto_sched_stop(sched, 64), EINVAL);
	CHECK_EQ(&verdict, switchto_sched_stop(sched, SWITCHTO_STOP_CANCEL), 0);
	CHECK_ERR(&verdict, switchto_spawn(NULL, end, NULL, NULL, NULL), ECANCELED);
}

TEST(stop_cancels)
{
	struct switchto_sched *sched = new_sched(NULL);

	for (long how = 0; how < 3; how++)
		spawn(sched, wait_for_ever, (void *)how);
	run_one(sched, stop_all, sched);
}

/* --- blocking regions --- */

enum { FEW_DESCRIPTORS = 100 };

static atomic_int turns;

/* Not at scheduling points: until the other task has had three more turns, or for 20 s. */
static void block_meanwhile(void)
{
	const int before = atomic_load(&turns);

	for (int ms = 0; atomic_load(&turns) < before + 3 && ms < 20000; ms++)
		usleep(1000);
	CHECK(&verdict, atomic_load(&turns) >= before + 3);
}

static void block_in_regions(void *arg)
{
	for (int i = 0; i < 10; i++) {
		CHECK_EQ(&verdict, switchto_block_begin(), 0);
		block_meanwhile();
		CHECK_EQ(&verdict, switchto_block_end(), 0);
	}
	atomic_store(&ended, 1);
}

static void block_unannounced(void *arg)
{
	for (int i = 0; i < 10; i++) {
		block_meanwhile();
		CHECK_EQ(&verdict, switchto_yield(), 0);
	}
	atomic_store(&ended, 1);
}

/*
 * The same with no descriptor left in the process. In the first round the monitor may have one
 * open while this task takes the others, so the task takes them again when it has lost the slot.
 * Not in all rounds: it must not get the one that the monitor closes to open another.
 */
static void block_without_descriptor(void *arg)
{
	const rlim_t all = set_limit(RLIMIT_NOFILE, FEW_DESCRIPTORS);
	int fds[FEW_DESCRIPTORS], n = 0;

	for (int i = 0; i < 10; i++) {
		if (i < 3) {
			while ((fds[n] = dup(STDOUT_FILENO)) != -1)
				n++;
			CHECK_EQ(&verdict, errno, EMFILE);
		}
		CHECK_EQ(&verdict, switchto_yield(), 0);
		block_meanwhile();
	}
	atomic_store(&ended, 1);
	while (n)
		close(fds[--n]);
	set_limit(RLIMIT_NOFILE, all);
}

/* The monitor's first looks are over, and each block is shorter than the time between two later ones. */
static void block_briefly(void *arg)
{
	for (int i = 0; i < 5; i++) {
		const int before = atomic_load(&turns);
		int blocks = 0;

		spin_for(1000000);
		while (atomic_load(&turns) < before + 3 && blocks++ < 2000)
			usleep(500);
		CHECK(&verdict, atomic_load(&turns) >= before + 3);
		CHECK_EQ(&verdict, switchto_yield(), 0);
	}
	atomic_store(&ended, 1);
}

static void count_turns(void *arg)
{
	while (!atomic_load(&ended)) {
		atomic_fetch_add(&turns, 1);
		sleep_for(10000);
	}
}

static PER_TEST atomic_uint reports;
static struct switchto_task *waits;
static char reported[200];

static void take_report(const char *text)
{
	snprintf(reported, sizeof(reported), "%s", text);
	atomic_fetch_add(&reports, 1);
}

/* @fn and count_turns(), in one slot, without slices. */
static void run_beside_turns(void (*fn)(void *), void *arg, void (*report)(const char *text))
{
	struct switchto_sched *sched;

	if (slots != 1)
		skip();
	sched = SCHED(.slots = 1, .report = report, .slice = SWITCHTO_NO_SLICE);
	spawn(sched, fn, arg);
	spawn(sched, count_turns, NULL);
	run_tasks(sched);
}

/* The other task has a turn only if the blocked one has lost the slot. */
static void others_go_on_beside(void (*block)(void *))
{
	run_beside_turns(block, NULL, NULL);
}

TEST(others_go_on_beside_a_region)
{
	others_go_on_beside(block_in_regions);
}

TEST(others_go_on_unannounced)
{
	others_go_on_beside(block_unannounced);
}

TEST(others_go_on_beside_brief_blocks)
{
	others_go_on_beside(block_briefly);
}

TEST(others_go_on_without_descriptor)
{
	others_go_on_beside(block_without_descriptor);
}

/* --- a mutex of the C library --- */

enum { LOCKERS = 20 };

static pthread_mutex_t plain = PTHREAD_MUTEX_INITIALIZER;
static int inside;

static void lock_across_waits(void *arg)
{
	CHECK_EQ(&verdict, pthread_mutex_lock(&plain), 0);
	CHECK_EQ(&verdict, inside++, 0);
	CHECK_EQ(&verdict, switchto_yield(), 0);
	sleep_for(MSEC);
	CHECK_EQ(&verdict, --inside, 0);
	CHECK_EQ(&verdict, pthread_mutex_unlock(&plain), 0);
	atomic_fetch_add(&ended, 1);
}

/* The one that has the mutex is behind others that block on it, one after the other. */
TEST(pthread_mutex_across_waits)
{
	for (int i = 0; i < LOCKERS; i++)
		add_task(lock_across_waits, NULL);
	run_added_in_time();
	assert_int_equal(atomic_load(&ended), LOCKERS);
}

TEST_IN_TASK(bad_regions)
{
	CHECK_ERR(&verdict, switchto_block_end(), EINVAL);
	CHECK_EQ(&verdict, switchto_block_begin(), 0);
	CHECK_ERR(&verdict, switchto_block_begin(), EINVAL);
	CHECK_EQ(&verdict, switchto_block_end(), 0);
	/* And a task may end in one. */
	CHECK_EQ(&verdict, switchto_block_begin(), 0);
}

/* --- bad calls --- */

CHILD(calls_fail_outside)
{
	struct sockaddr address = { 0 };
	struct timespec now = in(0);
	socklen_t length = 0;

	CHECK_ERR(v, switchto_yield(), EPERM);
	CHECK_ERR(v, switchto_park(NULL), EPERM);
	CHECK_ERR(v, switchto_sleep_until(&now), EPERM);
	CHECK_ERR(v, switchto_block_begin(), EPERM);
	CHECK_ERR(v, switchto_block_end(), EPERM);
	CHECK_ERR(v, switchto_spawn(NULL, end, NULL, NULL, NULL), EPERM);
	CHECK_ERR(v, switchto_read(0, NULL, 0, NULL), EPERM);
	CHECK_ERR(v, switchto_write(0, NULL, 0, NULL), EPERM);
	CHECK_ERR(v, switchto_pread(0, NULL, 0, 0, NULL), EPERM);
	CHECK_ERR(v, switchto_send(0, NULL, 0, 0, NULL), EPERM);
	CHECK_ERR(v, switchto_sendto(0, NULL, 0, 0, &address, 0, NULL), EPERM);
	CHECK_ERR(v, switchto_recvfrom(0, NULL, 0, 0, &address, &length, NULL), EPERM);
	CHECK_ERR(v, switchto_recvmsg(0, NULL, 0, NULL), EPERM);
	CHECK_ERR(v, switchto_accept(0, NULL, NULL, 0, NULL), EPERM);
	CHECK_ERR(v, switchto_splice(0, NULL, 0, NULL, 0, 0, NULL), EPERM);
	CHECK_ERR(v, switchto_sendfile(0, 0, NULL, 0, NULL), EPERM);
	CHECK_ERR(v, switchto_waitid(P_ALL, 0, NULL, WEXITED, NULL), EPERM);
	/* Any thread may close. */
	CHECK_ERR(v, switchto_close(-1), EBADF);
	CHECK(v, switchto_task_self() == NULL);
}

TEST(outside_a_task)
{
	CHECK_EQ(v, calls_fail_outside(NULL), 0);
}

TEST_IN_TASK(child_of_a_fork_is_no_task)
{
	CHECK_EQ(&verdict, run_child(calls_fail_outside, NULL), 0);
}

/* --- a handler that forks while its thread waits for a slot --- */

static PER_TEST struct {
	pthread_t thread;
	atomic_int tid;
	atomic_bool taken, over, poller;
	pid_t child;
} forker;

/* ThreadSanitizer ends a child of several threads in its own way. */
#ifdef UNDER_TSAN
enum { FORKS_MISLEAD = 1 };
#else
enum { FORKS_MISLEAD = 0 };
#endif

/* In the child, the handler returns into a wait that nobody ends. */
static void fork_in_a_handler(int signal_number)
{
	forker.child = fork();
	if (forker.child == 0) {
		abort_quietly();
		alarm(240);
		return;
	}
	atomic_store(&forker.over, true);
}

static void wait_in_a_switch(void *arg)
{
	forker.thread = pthread_self();
	atomic_store(&forker.tid, gettid());
	CHECK_EQ(&verdict, switchto_park(NULL), 0);
}

static void wait_for_the_slot(void *arg)
{
	forker.thread = pthread_self();
	CHECK_EQ(&verdict, switchto_block_begin(), 0);
	AWAIT(atomic_load(&forker.taken));
	atomic_store(&forker.tid, gettid());
	CHECK_EQ(&verdict, switchto_block_end(), 0);
}

static void interrupt_thread(void)
{
	int status;

	pthread_kill(forker.thread, SIGUSR1);
	AWAIT(atomic_load(&forker.over));
	CHECK_EQ(&verdict, waitpid(forker.child, &status, 0), forker.child);
	CHECK(&verdict, WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

static void interrupt_it(void *task)
{
	atomic_store(&forker.taken, true);
	AWAIT(atomic_load(&forker.tid));
	await_parked(atomic_load(&forker.tid));
	interrupt_thread();
	switchto_unpark(task);
	CHECK_EQ(&verdict, switchto_join(task), 0);
}

/* Its thread, which has no task then, polls. */
static void end_last(void *arg)
{
	sleep_for(10000000);
	forker.thread = pthread_self();
	atomic_store(&forker.poller, true);
}

static void interrupt_poller(void *task)
{
	AWAIT(atomic_load(&forker.poller));
	usleep(50000);
	interrupt_thread();
	/* The child does not take this. */
	switchto_unpark(task);
	CHECK_EQ(&verdict, switchto_join(task), 0);
}

TEST(child_of_a_waiting_thread_ends)
{
	static void (*const waits_in[])(void *) = { wait_in_a_switch, wait_for_the_slot };

	if (slots != 1 || HANDLERS_RUN_LATE || FORKS_MISLEAD)
		skip();
	/* By the kernel's word, usleep() of the one makes the thread of the other one poll. */
	setenv("SWITCHTO_BLOCK", "monitor", true);
	set_handler(SIGUSR1, fork_in_a_handler);
	for (int i = 0; i < 2; i++) {
		memset(&forker, 0, sizeof(forker));
		add_task(interrupt_it, add_handle(waits_in[i], NULL));
		run_added();
	}
	signal(SIGUSR1, SIG_DFL);
	unsetenv("SWITCHTO_BLOCK");
}

TEST(child_of_a_poller_ends)
{
	struct switchto_sched *sched;
	struct switchto_task *task;

	if (HANDLERS_RUN_LATE || FORKS_MISLEAD)
		skip();
	sched = new_sched(NULL);
	task = spawn_handle(sched, wait_in_a_switch, NULL);
	set_handler(SIGUSR1, fork_in_a_handler);
	spawn(sched, end_last, NULL);
	run_with_thread(sched, interrupt_poller, task);
	signal(SIGUSR1, SIG_DFL);
}

TEST(bad_options)
{
	struct switchto_sched *sched;

	no_sched(&OPTIONS(.slots = 100000), EINVAL);
	no_sched(&(struct switchto_sched_options){ .size = 10000 }, EINVAL);
	/* Shorter than the monitor's pause. */
	sched = SCHED(.slice = 1);
	run_one(sched, end, NULL);
}

static void compute_until_reported(void *arg)
{
	char tid[40];

	/* It loses its slot if it does not get the CPU. Then it begins again. */
	while (!atomic_load(&reports)) {
		for (long long until = thread_cpu_ns() + NSEC_PER_SEC * 3 / 2;
		     thread_cpu_ns() < until && !atomic_load(&reports);)
			;
		if (!atomic_load(&reports))
			CHECK_EQ(&verdict, switchto_yield(), 0);
	}
	/* Only once. */
	spin_for(NSEC_PER_SEC * 3 / 2);
	snprintf(tid, sizeof(tid), " thread %d ", gettid());
	CHECK(&verdict, strstr(reported, tid));
	CHECK_EQ(&verdict, atomic_load(&reports), 1);
	atomic_store(&ended, 1);
}

TEST(one_that_never_gives_way_is_reported)
{
	run_beside_turns(compute_until_reported, NULL, take_report);
}

static void compute_until_readable(void *fd)
{
	struct pollfd report = { .fd = (int)(long)fd, .events = POLLIN };

	while (poll(&report, 1, 0) == 0)
		;
	atomic_store(&ended, 1);
}

/* Where the program has no function for reports. */
TEST(reported_on_stderr)
{
	const int before = dup(STDERR_FILENO);
	char text[200] = "";
	int ends[2];

	if (slots != 1)
		skip();
	assert_int_equal(pipe(ends), 0);
	dup2(ends[1], STDERR_FILENO);
	run_beside_turns(compute_until_readable, (void *)(long)ends[0], NULL);
	dup2(before, STDERR_FILENO);
	close(before);
	assert_true(read(ends[0], text, sizeof(text) - 1) > 0);
	close_both(ends);
	assert_non_null(strstr(text, "keeps slot 0 for more than a second\n"));
}

static void compute_and_poll(void *arg)
{
	const long long until = thread_cpu_ns() + NSEC_PER_SEC * 3 / 2;

	while (thread_cpu_ns() < until) {
		/* The monitor looks several times meanwhile. */

		spin_for(NSEC_PER_SEC / 50);
		sleep_for(NSEC_PER_SEC / 50 + NSEC_PER_SEC / 10000);
	}
	CHECK_EQ(&verdict, switchto_cancel(waits), 0);
	CHECK_EQ(&verdict, switchto_detach(waits), 0);
}

static void park_until_cancelled(void *arg)
{
	CHECK_ERR(&verdict, switchto_park(NULL), ECANCELED);
}

/* It gives way, but there is never another one that is ready. */
TEST(one_that_polls_is_not_reported)
{
	struct switchto_sched *sched;

	if (slots != 1)
		skip();
	sched = SCHED(.slots = 1, .report = take_report, .slice = SWITCHTO_NO_SLICE);
	waits = spawn_handle(sched, park_until_cancelled, NULL);
	run_one(sched, compute_and_poll, NULL);
	assert_int_equal(atomic_load(&reports), 0);
}

static void end_with_a_mutex(void *mutex)
{
	switchto_mutex_lock(mutex);
}

static int run_to_the_end(void *mutex)
{
	struct switchto_sched *sched = new_sched(NULL);

	spawn(sched, end_with_a_mutex, mutex);
	switchto_sched_run(sched);
	return 0;
}

TEST(end_with_a_mutex_ends_the_program)
{
	struct switchto_mutex mutex = { 0 };

	assert_int_equal(run_aborting_child(run_to_the_end, &mutex), 128 + SIGABRT);
}

static void run_beside(void *sched)
{
	CHECK_ERR(&verdict, switchto_sched_run(sched), EBUSY);
}

static void run_twice(void *sched)
{
	CHECK_ERR(&verdict, switchto_sched_run(sched), EPERM);
	pthread_join(start_thread(run_beside, sched), NULL);
	CHECK_ERR(&verdict, switchto_sched_destroy(sched), EBUSY);
}

TEST(run_within)
{
	struct switchto_sched *sched = new_sched(NULL);

	run_one(sched, run_twice, sched);
}
