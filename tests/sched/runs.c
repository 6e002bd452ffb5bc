// SPDX-License-Identifier: MIT
/* Runs that are held, and that come after a stop. */
#include "sched.h"

static PER_TEST atomic_int ran;
static atomic_bool released;

static void count(void *arg)
{
	atomic_fetch_add(&ran, 1);
}

/* Each of its tasks is the only one for a while. */
static void spawn_and_release(void *sched)
{
	long long cpu;

	for (int i = 0; i < LOOPS(200); i++) {
		spawn(sched, count, NULL);
		AWAIT(atomic_load(&ran) > i);
	}
	cpu = cpu_ns();
	nanosleep(&(struct timespec){ .tv_nsec = NSEC_PER_SEC / 5 }, NULL);
	CHECK(&verdict, cpu_ns() - cpu < NSEC_PER_SEC / 10);
	CHECK_ERR(&verdict, switchto_sched_destroy(sched), EBUSY);
	CHECK_EQ(&verdict, switchto_sched_release(sched), 0);
	nanosleep(&(struct timespec){ .tv_nsec = NSEC_PER_SEC / 100 }, NULL);
	atomic_store(&released, true);
	CHECK_EQ(&verdict, switchto_sched_release(sched), 0);
}

TEST(held)
{
	struct switchto_sched *sched = new_sched(NULL);
	pthread_t thread;

	atomic_store(&released, false);
	CHECK_ERR(v, switchto_sched_release(sched), EINVAL);
	CHECK_ERR(v, switchto_sched_hold(NULL), EINVAL);
	CHECK_ERR(v, switchto_sched_release(NULL), EINVAL);
	assert_int_equal(switchto_sched_hold(sched), 0);
	assert_int_equal(switchto_sched_hold(sched), 0);
	thread = start_thread(spawn_and_release, sched);
	assert_int_equal(switchto_sched_run(sched), 0);
	assert_true(atomic_load(&released));
	pthread_join(thread, NULL);
	CHECK_ERR(v, switchto_sched_release(sched), EINVAL);
	assert_int_equal(atomic_load(&ran), LOOPS(200));
	run_in_time(sched);
}

/* A hold that begins, or ends, when the slots find no tasks. */
static void hold_now_and_then(void *sched)
{
	for (int i = 0; i < LOOPS(2000); i++) {
		CHECK_EQ(&verdict, switchto_sched_hold(sched), 0);
		if (i % 3 == 0)
			spawn(sched, count, NULL);
		CHECK_EQ(&verdict, switchto_sched_release(sched), 0);
	}
	atomic_store(&released, true);
}

TEST(holds_race)
{
	struct switchto_sched *sched = new_sched(NULL);
	pthread_t thread;

	atomic_store(&released, false);
	thread = start_thread(hold_now_and_then, sched);
	while (!atomic_load(&released))
		assert_int_equal(switchto_sched_run(sched), 0);
	pthread_join(thread, NULL);
	run_in_time(sched);
	assert_int_equal(atomic_load(&ran), (LOOPS(2000) + 2) / 3);
}

static void stop_in_vain(void *sched)
{
	CHECK_ERR(&verdict, switchto_sched_restart(sched), EBUSY);
	CHECK_EQ(&verdict, switchto_sched_stop(sched, SWITCHTO_STOP_CANCEL), 0);
	CHECK_ERR(&verdict, switchto_park(NULL), ECANCELED);
	CHECK_ERR(&verdict, switchto_spawn(NULL, count, NULL, NULL, NULL), ECANCELED);
}

static void park_in_vain(void *arg)
{
	const struct timespec soon = in(1000000);

	CHECK_ERR(&verdict, switchto_park(&soon), ETIMEDOUT);
	atomic_fetch_add(&ran, 1);
}

TEST(run_again)
{
	struct switchto_sched *sched = new_sched(NULL);

	CHECK_ERR(v, switchto_sched_restart(NULL), EINVAL);
	for (int i = 0; i < 5; i++) {
		spawn(sched, stop_in_vain, sched);
		assert_int_equal(switchto_sched_run(sched), 0);
		CHECK_ERR(v, switchto_spawn(sched, count, NULL, NULL, NULL), ECANCELED);
		assert_int_equal(switchto_sched_restart(sched), 0);
		/* Nobody is cancelled any more. */
		spawn(sched, park_in_vain, NULL);
		assert_int_equal(switchto_sched_run(sched), 0);
	}
	assert_int_equal(atomic_load(&ran), 5);
	run_tasks(sched);
}
