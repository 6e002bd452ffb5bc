// SPDX-License-Identifier: MIT
/* Waits with a deadline, waits that a cancellation does not end, and waits for several things. */
#include "sched.h"

#include <malloc.h>

static PER_TEST struct switchto_mutex mutex;
static struct switchto_task *target;

static struct timespec long_ago(void)
{
	return (struct timespec){ .tv_sec = 1 };
}

/* --- timed joins --- */

static void doze(void *ns)
{
	const struct timespec at = in((long long)(intptr_t)ns);

	if (switchto_sleep_until(&at))
		CHECK_EQ(&verdict, errno, ECANCELED);
}

static void join_in_time(void *arg)
{
	const struct timespec bad = { .tv_nsec = -1 }, past = long_ago();
	struct timespec at = in(5 * MSEC);
	struct switchto_task *task = spawn_handle(NULL, doze, (void *)(50 * MSEC));

	CHECK_ERR(&verdict, switchto_join_until(task, &bad), EINVAL);
	CHECK_ERR(&verdict, switchto_join_until(task, &past), ETIMEDOUT);
	CHECK_ERR(&verdict, switchto_join_until(task, &at), ETIMEDOUT);
	CHECK(&verdict, has_passed(&at));
	/* The handle is still the caller's. */
	CHECK_EQ(&verdict, switchto_join_until(task, NULL), 0);
	CHECK_ERR(&verdict, switchto_join_until(task, NULL), EINVAL);
	CHECK_ERR(&verdict, switchto_join_until(switchto_task_self(), NULL), EDEADLK);
	CHECK_ERR(&verdict, switchto_join_until(NULL, NULL), EINVAL);

	/* One that has ended is joined, however late it is. */
	task = spawn_handle(NULL, doze, 0);
	YIELD_UNTIL(switchto_unpark(task));
	CHECK_EQ(&verdict, switchto_join_until(task, &past), 0);
}

static void join_as_a_thread(void *task)
{
	const struct timespec at = in(5 * MSEC);

	CHECK_ERR(&verdict, switchto_join_until(task, &at), ETIMEDOUT);
	CHECK_EQ(&verdict, switchto_join_until(task, NULL), 0);
}

TEST(timed_joins)
{
	pthread_t thread;

	add_task(join_in_time, NULL);
	thread = start_thread(join_as_a_thread, add_handle(doze, (void *)(200 * MSEC)));
	run_added_in_time();
	pthread_join(thread, NULL);
	verdict_assert(&verdict);
}

/* Some deadlines pass just when the task ends. */
static void join_at_the_end(void *arg)
{
	uint32_t dice = 1;

	for (int i = 0; i < LOOPS(2000); i++) {
		struct switchto_task *task = spawn_handle(NULL, doze,
							  (void *)(random_next(&dice) % 50 * USEC));
		int result;

		do {
			const struct timespec at = in(random_next(&dice) % 50 * USEC);

			result = switchto_join_until(task, &at);
			if (result)
				CHECK_EQ(&verdict, errno, ETIMEDOUT);
		} while (result);
	}
}

TEST(joins_race)
{
	for (int i = 0; i < 4; i++)
		add_task(join_at_the_end, NULL);
	run_added_in_time();
}

/* --- timed locks --- */

static void hold(void *ns)
{
	CHECK_EQ(&verdict, switchto_mutex_lock(&mutex), 0);
	doze(ns);
	CHECK_EQ(&verdict, switchto_mutex_unlock(&mutex), 0);
}

TEST_IN_TASK(timed_locks)
{
	const struct timespec bad = { .tv_nsec = NSEC_PER_SEC }, past = long_ago();
	struct switchto_task *holder;
	struct timespec at;

	CHECK_ERR(&verdict, switchto_mutex_lock_until(&mutex, &bad), EINVAL);
	CHECK_EQ(&verdict, switchto_mutex_lock_until(&mutex, &past), 0);
	CHECK_ERR(&verdict, switchto_mutex_lock_until(&mutex, &past), EDEADLK);
	CHECK_EQ(&verdict, switchto_mutex_unlock(&mutex), 0);

	holder = spawn_handle(NULL, hold, (void *)(50 * MSEC));
	while (!switchto_mutex_trylock(&mutex)) {
		CHECK_EQ(&verdict, switchto_mutex_unlock(&mutex), 0);
		CHECK_EQ(&verdict, switchto_yield(), 0);
	}
	at = in(5 * MSEC);
	CHECK_ERR(&verdict, switchto_mutex_lock_until(&mutex, &past), ETIMEDOUT);
	CHECK_ERR(&verdict, switchto_mutex_lock_until(&mutex, &at), ETIMEDOUT);
	CHECK(&verdict, has_passed(&at));
	/* Nothing but its deadline ends it. */
	at = in(10 * MSEC);
	CHECK_EQ(&verdict, switchto_cancel(switchto_task_self()), 0);
	CHECK_ERR(&verdict, switchto_mutex_lock_until(&mutex, &at), ETIMEDOUT);
	CHECK_EQ(&verdict, switchto_block_begin(), 0);
	at = in(5 * MSEC);
	CHECK_ERR(&verdict, switchto_mutex_lock_until(&mutex, &at), ETIMEDOUT);
	CHECK_EQ(&verdict, switchto_block_end(), 0);
	at = in(100 * NSEC_PER_SEC);
	CHECK_EQ(&verdict, switchto_mutex_lock_until(&mutex, &at), 0);
	CHECK_EQ(&verdict, switchto_mutex_unlock(&mutex), 0);
	/* What was left is gone with the last unlock. */
	CHECK_EQ(&verdict, mutex.word, 0);
	CHECK(&verdict, !mutex.waiters);
	CHECK_EQ(&verdict, switchto_detach(holder), 0);
}

enum { LOCKERS = 8, LOCKING_THREADS = 2 };

static long counter;
static int holders;

static void count(uint32_t *dice)
{
	CHECK_EQ(&verdict, holders++, 0);
	counter++;
	if (switchto_task_self() && random_next(dice) % 2)
		CHECK_EQ(&verdict, switchto_yield(), 0);
	CHECK_EQ(&verdict, --holders, 0);
	CHECK_EQ(&verdict, switchto_mutex_unlock(&mutex), 0);
}

/* Some with a deadline, which passes now and then, and some without. */
static void lock_now_and_then(void *arg)
{
	uint32_t dice = (uint32_t)(uintptr_t)arg * 2 + 1;
	long counted = 0;

	while (counted < LOOPS(1000)) {
		struct timespec at = random_next(&dice) % 8 ? in(random_next(&dice) % 60 * USEC) :
							      long_ago();

		if (switchto_mutex_lock_until(&mutex, random_next(&dice) % 4 ? &at : NULL)) {
			CHECK_EQ(&verdict, errno, ETIMEDOUT);
			if (switchto_task_self() && !(random_next(&dice) % 16))
				doze(0);
			continue;
		}
		count(&dice);
		counted++;
	}
}

static void locks_race_with(struct switchto_mutex kind)
{
	pthread_t threads[LOCKING_THREADS];

	mutex = kind;
	counter = holders = 0;
	for (uintptr_t i = 0; i < LOCKERS; i++)
		add_task(lock_now_and_then, (void *)i);
	for (uintptr_t i = 0; i < LOCKING_THREADS; i++)
		threads[i] = start_thread(lock_now_and_then, (void *)(i + 100));
	run_added_in_time();
	for (int i = 0; i < LOCKING_THREADS; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(counter, (LOCKERS + LOCKING_THREADS) * LOOPS(1000));
	assert_int_equal(mutex.word, kind.word);
	assert_null(mutex.waiters);
	verdict_assert(&verdict);
}

TEST(locks_race)
{
	locks_race_with((struct switchto_mutex){ 0 });
	locks_race_with((struct switchto_mutex)SWITCHTO_MUTEX_STRICT);
}

static PER_TEST char order[8];

static void lock_and_say(void *name)
{
	CHECK_EQ(&verdict, switchto_mutex_lock(&mutex), 0);
	strncat(order, name, 1);
	CHECK_EQ(&verdict, switchto_mutex_unlock(&mutex), 0);
}

static PER_TEST atomic_int late;
static _Atomic pid_t again;

/* @name tells when it has been late once. */
static void lock_at_second_try(void *name)
{
	struct timespec at = in(MSEC);

	CHECK_ERR(&verdict, switchto_mutex_lock_until(&mutex, &at), ETIMEDOUT);
	atomic_fetch_add(&late, 1);
	CHECK_EQ(&verdict, switchto_park(NULL), 0);
	at = in(100 * NSEC_PER_SEC);
	atomic_store(&again, gettid());
	CHECK_EQ(&verdict, switchto_mutex_lock_until(&mutex, &at), 0);
	strncat(order, name, 1);
	CHECK_EQ(&verdict, switchto_mutex_unlock(&mutex), 0);
}

static void lock_once_in_vain(void *arg)
{
	const struct timespec at = in(MSEC);

	CHECK_ERR(&verdict, switchto_mutex_lock_until(&mutex, &at), ETIMEDOUT);
	atomic_fetch_add(&late, 1);
}

static void keep_places(void *arg)
{
	struct switchto_task *first, *task;
	uintptr_t before;

	CHECK_EQ(&verdict, switchto_mutex_lock(&mutex), 0);
	spawn(NULL, lock_once_in_vain, NULL);
	first = spawn_handle(NULL, lock_at_second_try, "a");
	while (atomic_load(&late) < 2)
		doze((void *)MSEC);
	before = __atomic_load_n(&mutex.word, __ATOMIC_RELAXED);
	task = spawn_handle(NULL, lock_and_say, "b");
	while (__atomic_load_n(&mutex.word, __ATOMIC_RELAXED) == before)
		doze((void *)MSEC);
	CHECK_EQ(&verdict, switchto_unpark(first), 0);
	while (!atomic_load(&again) || thread_state(atomic_load(&again)) != 'S')
		doze((void *)MSEC);
	CHECK_EQ(&verdict, switchto_mutex_unlock(&mutex), 0);
	CHECK_EQ(&verdict, switchto_join(first), 0);
	CHECK_EQ(&verdict, switchto_join(task), 0);
	CHECK(&verdict, strcmp(order, "ab") == 0);
}

TEST(places_kept)
{
	mutex = (struct switchto_mutex)SWITCHTO_MUTEX_STRICT;
	atomic_store(&again, 0);
	run_task_in_time(keep_places, NULL);
}

static struct switchto_mutex others[4];

/* What is left in the lists of locked mutexes is one for each thread. */
static void try_for_long(void *arg)
{
	size_t before = mallinfo2().uordblks;

	for (int i = 0; i < LOOPS(20000); i++) {
		const struct timespec at = in(USEC);
		struct switchto_mutex *one = i % 1000 ? &mutex : &others[i / 1000 % 4];

		CHECK_ERR(&verdict, switchto_mutex_lock_until(one, &at), ETIMEDOUT);
	}
	CHECK(&verdict, mallinfo2().uordblks < before + 100000);
	CHECK_EQ(&verdict, switchto_unpark(target), 0);
}

TEST_IN_TASK(nothing_piles_up)
{
	CHECK_EQ(&verdict, switchto_mutex_lock(&mutex), 0);
	for (int i = 0; i < 4; i++)
		CHECK_EQ(&verdict, switchto_mutex_lock(&others[i]), 0);
	target = switchto_task_self();
	spawn(NULL, try_for_long, NULL);
	CHECK_EQ(&verdict, switchto_park(NULL), 0);
	CHECK_EQ(&verdict, switchto_mutex_unlock(&mutex), 0);
	for (int i = 0; i < 4; i++)
		CHECK_EQ(&verdict, switchto_mutex_unlock(&others[i]), 0);
	for (int i = 0; i < 4; i++)
		CHECK_EQ(&verdict, others[i].word, 0);
}

/* --- shields --- */

static void wait_in_a_shield(void *arg)
{
	const struct timespec soon = in(MSEC);
	struct switchto_task *self = switchto_task_self(), *task;
	int pipes[2];
	char byte = 0;

	CHECK_ERR(&verdict, switchto_shield_end(), EINVAL);
	CHECK_EQ(&verdict, switchto_cancel(self), 0);
	CHECK_ERR(&verdict, switchto_yield(), ECANCELED);
	CHECK_EQ(&verdict, switchto_shield_begin(), 0);
	CHECK_EQ(&verdict, switchto_shield_begin(), 0);
	CHECK_EQ(&verdict, switchto_yield(), 0);
	CHECK_ERR(&verdict, switchto_park(&soon), ETIMEDOUT);
	CHECK_EQ(&verdict, switchto_sleep_until(&soon), 0);
	task = spawn_handle(NULL, doze, (void *)(5 * MSEC));
	/* A join that no cancellation ends. */
	CHECK_EQ(&verdict, switchto_join(task), 0);
	CHECK_EQ(&verdict, pipe(pipes), 0);
	task = spawn_handle(NULL, doze, (void *)MSEC);
	CHECK_ERR(&verdict, switchto_read(pipes[0], &byte, 1, &soon), ETIMEDOUT);
	CHECK_EQ(&verdict, switchto_shield_end(), 0);
	CHECK_EQ(&verdict, switchto_join(task), 0);
	CHECK_EQ(&verdict, switchto_cancel(self), 0);
	CHECK_EQ(&verdict, switchto_yield(), 0);
	CHECK_EQ(&verdict, switchto_shield_end(), 0);
	CHECK_ERR(&verdict, switchto_shield_end(), EINVAL);
	CHECK_ERR(&verdict, switchto_yield(), ECANCELED);
	CHECK_ERR(&verdict, switchto_park(NULL), ECANCELED);
	CHECK_ERR(&verdict, switchto_read(pipes[0], &byte, 1, NULL), ECANCELED);
	close_known(pipes);
}

TEST(shields)
{
	CHECK_ERR(v, switchto_shield_begin(), EPERM);
	CHECK_ERR(v, switchto_shield_end(), EPERM);
	run_task_in_time(wait_in_a_shield, NULL);
}

static void cancel_once(void *task)
{
	if (switchto_cancel(task))
		CHECK_EQ(&verdict, errno, ESRCH);
}

/* Its cancellation comes before the shield, at its begin, in it, or at its end. */
static void shield_now(void *arg)
{
	uint32_t dice = (uint32_t)(uintptr_t)arg * 2 + 1;
	struct timespec at;
	bool cancelled;

	for (unsigned int i = random_next(&dice) % 4; i; i--)
		doze((void *)(random_next(&dice) % 20 * USEC));
	CHECK_EQ(&verdict, switchto_shield_begin(), 0);
	at = in(random_next(&dice) % 50 * USEC);
	CHECK_ERR(&verdict, switchto_park(&at), ETIMEDOUT);
	sleep_for(random_next(&dice) % 50 * USEC);
	CHECK_EQ(&verdict, switchto_shield_end(), 0);
	do {
		at = in(NSEC_PER_SEC / 10);
		cancelled = switchto_park(&at) && errno == ECANCELED;
	} while (!cancelled);
}

static void cancel_many(void *arg)
{
	uint32_t dice = (uint32_t)(uintptr_t)arg * 2 + 1;

	for (int i = 0; i < LOOPS(1000); i++) {
		struct switchto_task *task = spawn_handle(NULL, shield_now,
							  (void *)(uintptr_t)random_next(&dice));
		struct switchto_task *other;

		if (random_next(&dice) % 2)
			doze((void *)(random_next(&dice) % 60 * USEC));
		other = spawn_handle(NULL, cancel_once, task);
		CHECK_EQ(&verdict, switchto_join(other), 0);
		CHECK_EQ(&verdict, switchto_join(task), 0);
	}
}

TEST(shields_race)
{
	for (uintptr_t i = 0; i < 4; i++)
		add_task(cancel_many, (void *)i);
	run_added_in_time();
}

/* --- cases that are off --- */

TEST_IN_TASK(cases_off)
{
	struct switchto_chan *chan;
	int item = 7, got = 0;
	struct switchto_case cases[] = {
		{ .chan = NULL, .op = SWITCHTO_RECEIVE, .item = &got },
		{ .chan = NULL, .op = SWITCHTO_RECEIVE, .item = &got },
		{ .chan = NULL, .op = SWITCHTO_SEND, .item = &item },
	};
	const struct timespec soon = in(MSEC), past = long_ago();

	CHECK_EQ(&verdict, switchto_chan_create(&chan, sizeof(int), 1), 0);
	CHECK_ERR(&verdict, switchto_select(cases, 3, NULL), EINVAL);
	CHECK_ERR(&verdict, switchto_select(cases, 3, &past), ETIMEDOUT);
	CHECK_ERR(&verdict, switchto_select(cases, 3, &soon), ETIMEDOUT);
	CHECK(&verdict, has_passed(&soon));
	cases[1].chan = chan;
	CHECK_ERR(&verdict, switchto_select(cases, 3, &past), ETIMEDOUT);
	CHECK_EQ(&verdict, switchto_chan_send(chan, &item, NULL), 0);
	CHECK_EQ(&verdict, switchto_select(cases, 3, NULL), 1);
	CHECK_EQ(&verdict, got, item);
	CHECK_EQ(&verdict, switchto_chan_destroy(chan), 0);
	CHECK_ERR(&verdict, switchto_chan_send(NULL, &item, &soon), EINVAL);
	CHECK_ERR(&verdict, switchto_chan_recv(NULL, &got, &soon), EINVAL);
}

/* --- descriptors and channels --- */

static struct switchto_chan *chan;
static int pipes[2];

static void open_both(void)
{
	assert_int_equal(pipe(pipes), 0);
	assert_int_equal(switchto_chan_create(&chan, sizeof(int), 0), 0);
}

static void end_both(void)
{
	close_both(pipes);
	assert_int_equal(switchto_chan_destroy(chan), 0);
}

static void write_later(void *arg)
{
	doze((void *)MSEC);
	CHECK_EQ(&verdict, switchto_write(pipes[1], "x", 1, NULL), 1);
}

static void send_later(void *arg)
{
	const int item = 7;

	doze((void *)MSEC);
	CHECK_EQ(&verdict, switchto_chan_send(chan, &item, NULL), 0);
}

static void select_either(void *arg)
{
	struct pollfd poll_in = { .fd = pipes[0], .events = POLLIN };
	struct pollfd poll_out = { .fd = pipes[1], .events = POLLOUT };
	struct pollfd off = { .fd = -1, .events = POLLIN };
	const struct timespec past = long_ago();
	struct timespec soon = in(3 * MSEC);
	int item = 0;
	char bytes[4096] = { 0 };
	ssize_t n;
	struct switchto_case cases[] = {
		{ .op = SWITCHTO_POLL, .item = &poll_in },
		{ .op = SWITCHTO_POLL, .item = NULL },
		{ .op = SWITCHTO_RECEIVE, .chan = chan, .item = &item },
		{ .op = SWITCHTO_POLL, .item = &off },
	};
	struct switchto_case out = { .op = SWITCHTO_POLL, .item = &poll_out };

	CHECK_ERR(&verdict, switchto_select(cases, 4, &past), ETIMEDOUT);
	CHECK_ERR(&verdict, switchto_select(cases, 4, &soon), ETIMEDOUT);
	CHECK(&verdict, has_passed(&soon));
	spawn(NULL, write_later, NULL);
	CHECK_EQ(&verdict, switchto_select(cases, 4, NULL), 0);
	CHECK_EQ(&verdict, poll_in.revents, POLLIN);
	CHECK_EQ(&verdict, switchto_select(cases, 4, &past), 0);
	CHECK_EQ(&verdict, switchto_read(pipes[0], bytes, 1, NULL), 1);
	spawn(NULL, send_later, NULL);
	CHECK_EQ(&verdict, switchto_select(cases, 4, NULL), 2);
	CHECK_EQ(&verdict, item, 7);
	CHECK_EQ(&verdict, poll_in.revents, 0);
	/* For output, with and without a wait. */
	CHECK_EQ(&verdict, switchto_select(&out, 1, NULL), 0);
	CHECK_EQ(&verdict, poll_out.revents, POLLOUT);
	/* That of a case after it is not left as it was. */
	poll_in.revents = POLLNVAL;
	CHECK_EQ(&verdict, switchto_select((struct switchto_case[]){ out, cases[0] }, 2, NULL), 0);
	CHECK_EQ(&verdict, poll_in.revents, 0);
	while (switchto_write(pipes[1], bytes, sizeof(bytes), &past) > 0)
		;
	soon = in(3 * MSEC);
	CHECK_ERR(&verdict, switchto_select(&out, 1, &soon), ETIMEDOUT);
	while ((n = switchto_read(pipes[0], bytes, sizeof(bytes), &past)) > 0)
		CHECK_EQ(&verdict, n, 4096);

	CHECK_ERR(&verdict, switchto_select(cases + 1, 1, NULL), EINVAL);
	CHECK_ERR(&verdict, switchto_select(cases + 3, 1, &past), ETIMEDOUT);
	poll_in.events = POLLIN | POLLOUT;
	CHECK_ERR(&verdict, switchto_select(cases, 1, NULL), EINVAL);
	poll_in.events = 0;
	CHECK_ERR(&verdict, switchto_select(cases, 1, NULL), EINVAL);
	poll_in.events = POLLIN;
	cases[0].chan = chan;
	CHECK_ERR(&verdict, switchto_select(cases, 1, NULL), EINVAL);
	cases[0].chan = NULL;
	CHECK_EQ(&verdict, switchto_block_begin(), 0);
	CHECK_ERR(&verdict, switchto_select(cases, 1, NULL), EINVAL);
	CHECK_EQ(&verdict, switchto_block_end(), 0);
	CHECK_EQ(&verdict, switchto_cancel(switchto_task_self()), 0);
	CHECK_ERR(&verdict, switchto_select(cases, 4, NULL), ECANCELED);
	off.fd = 12345;
	CHECK_EQ(&verdict, switchto_select(cases, 4, NULL), 3);
	CHECK_EQ(&verdict, off.revents, POLLNVAL);
}

TEST(either)
{
	struct switchto_case c = { .op = SWITCHTO_POLL };

	open_both();
	CHECK_ERR(v, switchto_select(&c, 1, NULL), EPERM);
	run_task_in_time(select_either, NULL);
	end_both();
}

/* The descriptor is closed meanwhile, and its number used at once. */
static void close_later(void *arg)
{
	doze((void *)MSEC);
	CHECK_EQ(&verdict, switchto_close(pipes[0]), 0);
	CHECK_EQ(&verdict, dup2(pipes[1], pipes[0]), pipes[0]);
}

static void select_closed(void *arg)
{
	struct pollfd poll = { .fd = pipes[0], .events = POLLIN };
	struct switchto_case c = { .op = SWITCHTO_POLL, .item = &poll };

	spawn(NULL, close_later, NULL);
	CHECK_EQ(&verdict, switchto_select(&c, 1, NULL), 0);
	CHECK_EQ(&verdict, poll.revents, POLLNVAL);
}

TEST(closed_in_select)
{
	open_both();
	run_task_in_time(select_closed, NULL);
	end_both();
}

/* Several wait for the same descriptor: with a select, with a read. */
static void read_one(void *arg)
{
	char byte;

	CHECK_EQ(&verdict, switchto_read(pipes[0], &byte, 1, NULL), 1);
}

static void select_one(void *arg)
{
	struct pollfd poll = { .fd = pipes[0], .events = POLLIN };
	struct switchto_case c = { .op = SWITCHTO_POLL, .item = &poll };

	CHECK_EQ(&verdict, switchto_select(&c, 1, NULL), 0);
	CHECK_EQ(&verdict, poll.revents, POLLIN);
}

static void share(void *arg)
{
	struct switchto_task *tasks[6];

	for (int i = 0; i < 6; i++)
		tasks[i] = spawn_handle(NULL, i % 2 ? read_one : select_one, NULL);
	doze((void *)(5 * MSEC));
	/* For the readers, and one that stays. */
	CHECK_EQ(&verdict, switchto_write(pipes[1], "1234", 4, NULL), 4);
	for (int i = 0; i < 6; i++)
		CHECK_EQ(&verdict, switchto_join(tasks[i]), 0);
}

TEST(select_shares)
{
	open_both();
	run_task_in_time(share, NULL);
	end_both();
}

/* A look at a descriptor for which another task waits does not cost a place among receivers. */
static PER_TEST int by_receive, by_select;

static void receive_often(void *arg)
{
	int item;

	while (!switchto_chan_recv(chan, &item, NULL))
		by_receive++;
}

static void select_often(void *arg)
{
	struct pollfd poll = { .fd = pipes[0], .events = POLLIN };
	int item;
	struct switchto_case cases[] = {
		{ .op = SWITCHTO_POLL, .item = &poll },
		{ .op = SWITCHTO_RECEIVE, .chan = chan, .item = &item },
	};

	while (switchto_select(cases, 2, NULL) == 1 && !cases[1].closed)
		by_select++;
}

static void send_seldom(void *arg)
{
	struct switchto_task *reader = spawn_handle(NULL, read_one, NULL);

	spawn(NULL, receive_often, NULL);
	spawn(NULL, select_often, NULL);
	for (int i = 0; i < 20; i++) {
		doze((void *)(30 * MSEC));
		CHECK_EQ(&verdict, switchto_chan_send(chan, &i, NULL), 0);
	}
	CHECK_EQ(&verdict, switchto_chan_close(chan), 0);
	CHECK_EQ(&verdict, switchto_write(pipes[1], "x", 1, NULL), 1);
	CHECK_EQ(&verdict, switchto_join(reader), 0);
}

TEST(select_keeps_its_place)
{
	open_both();
	run_task_in_time(send_seldom, NULL);
	assert_int_equal(by_receive + by_select, 20);
	assert_true(by_select > 5);
	end_both();
}

/* Bytes and items come at any moment. Each is taken once. */
enum { THINGS = 3000, FEEDERS = 2 };

static PER_TEST atomic_int taken;

static void feed(void *arg)
{
	uint32_t dice = (uint32_t)(uintptr_t)arg * 2 + 1;

	for (int i = 0; i < LOOPS(THINGS); i++) {
		if (random_next(&dice) % 2)
			CHECK_EQ(&verdict, switchto_write(pipes[1], "x", 1, NULL), 1);
		else
			CHECK_EQ(&verdict, switchto_chan_send(chan, &i, NULL), 0);
		if (!(random_next(&dice) % 4))
			doze((void *)(random_next(&dice) % 30 * USEC));
	}
}

static void take_all(void *arg)
{
	uint32_t dice = (uint32_t)(uintptr_t)arg * 2 + 1;
	struct pollfd poll = { .fd = pipes[0], .events = POLLIN };
	const struct timespec past = long_ago();
	int item;
	struct switchto_case cases[] = {
		{ .op = SWITCHTO_POLL, .item = &poll },
		{ .op = SWITCHTO_RECEIVE, .chan = chan, .item = &item },
	};

	while (atomic_load(&taken) < FEEDERS * LOOPS(THINGS)) {
		const struct timespec at = in(random_next(&dice) % 100 * USEC);
		const int done = switchto_select(cases, 2, &at);
		char byte;

		if (done < 0)
			CHECK_EQ(&verdict, errno, ETIMEDOUT);
		else if (done == 1)
			atomic_fetch_add(&taken, 1);
		else if (switchto_read(pipes[0], &byte, 1, &past) == 1)
			atomic_fetch_add(&taken, 1);
		else
			CHECK_EQ(&verdict, errno, ETIMEDOUT);
	}
}

TEST(select_races)
{
	open_both();
	for (uintptr_t i = 0; i < FEEDERS; i++) {
		add_task(feed, (void *)i);
		add_task(take_all, (void *)(i + 10));
	}
	run_added_in_time();
	assert_int_equal(atomic_load(&taken), FEEDERS * LOOPS(THINGS));
	end_both();
}
