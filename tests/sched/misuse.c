// SPDX-License-Identifier: MIT
/*
 * What a program must not do is an error, or ends the program with a sentence: it never hangs, and
 * does not go on with something broken. And what children of fork(), and tasks that end, leave.
 */
#include "sched.h"

#include <fenv.h>

static PER_TEST atomic_int runs;

static void run_once(void *arg)
{
	atomic_fetch_add(&runs, 1);
}

static void park_until_cancelled(void *arg)
{
	CHECK_ERR(&verdict, switchto_park(NULL), ECANCELED);
	atomic_fetch_add(&runs, 1);
}

/* For run_aborting_child(): runs a task. */
static int run_child_task(void *fn)
{
	struct switchto_sched *sched = new_sched(NULL);

	spawn(sched, *(void (**)(void *))fn, NULL);
	switchto_sched_run(sched);
	return 0;
}

/* --- options --- */

TEST(bad_options)
{
	const struct switchto_policy empty = { .name = "empty" };
	struct switchto_policy large = switchto_fifo;
	struct switchto_task_stats task_stats;
	struct switchto_slot_stats stats;
	struct switchto_sched *sched;

	/* With the memory that the measurements take it would be a few bytes. */
	large.queue_size = SIZE_MAX - 8;
	no_sched(&OPTIONS(.policy = &large, .flags = SWITCHTO_MEASURE), ENOMEM);
	no_sched(&OPTIONS(.policy = &empty), EINVAL);
	no_sched(&OPTIONS(.stack_size = 1), EINVAL);
	no_sched(&OPTIONS(.stack_size = 4096), EINVAL);
	/* More than there are addresses. */
	CHECK_EQ(v, switchto_sched_create(&sched, &OPTIONS(.stack_size = (size_t)1 << 60)), -1);
	no_sched(&OPTIONS(.slice = SWITCHTO_NO_SLICE - 1), EINVAL);
	no_sched(&OPTIONS(.slice = INT64_MIN), EINVAL);
	CHECK_ERR(v, switchto_sched_create(NULL, &OPTIONS(.slots = slots)), EINVAL);
	CHECK(v, !switchto_sched_engine(NULL) && errno == EINVAL);
	CHECK_ERR(v, switchto_slot_stats(NULL, 0, &stats), EINVAL);
	CHECK_ERR(v, switchto_task_stats(NULL, &task_stats), EINVAL);
	CHECK_ERR(v, switchto_sched_run(NULL), EINVAL);
	CHECK_ERR(v, switchto_sched_stop(NULL, 0), EINVAL);
	CHECK_ERR(v, switchto_sched_destroy(NULL), EINVAL);
	sched = SCHED(.slots = slots, .stack_size = 1 << 20);
	run_one(sched, run_once, NULL);
}

/* --- handles --- */

TEST_IN_TASK(handles)
{
	struct switchto_task *task = spawn_handle(NULL, run_once, NULL), *other;

	CHECK_EQ(&verdict, switchto_join(task), 0);
	CHECK_ERR(&verdict, switchto_join(task), EINVAL);
	CHECK_ERR(&verdict, switchto_detach(task), EINVAL);
	CHECK_ERR(&verdict, switchto_end(task), EINVAL);
	CHECK_ERR(&verdict, switchto_cancel(task), ESRCH);
	CHECK_ERR(&verdict, switchto_unpark(task), ESRCH);
	/* The handle has not been given back twice: so no two tasks get it. */
	task = spawn_handle(NULL, run_once, NULL);
	other = spawn_handle(NULL, run_once, NULL);
	CHECK(&verdict, task != other);
	CHECK_EQ(&verdict, switchto_join(task), 0);
	CHECK_EQ(&verdict, switchto_detach(other), 0);
	CHECK_ERR(&verdict, switchto_detach(other), EINVAL);
	CHECK_ERR(&verdict, switchto_join(other), EINVAL);

	CHECK_ERR(&verdict, switchto_join(NULL), EINVAL);
	CHECK_ERR(&verdict, switchto_detach(NULL), EINVAL);
	CHECK_ERR(&verdict, switchto_end(NULL), EINVAL);
	CHECK_ERR(&verdict, switchto_cancel(NULL), EINVAL);
	CHECK_ERR(&verdict, switchto_unpark(NULL), EINVAL);
	CHECK_ERR(&verdict, switchto_spawn(NULL, NULL, NULL, NULL, NULL), EINVAL);
	CHECK_ERR(&verdict, switchto_end(switchto_task_self()), EDEADLK);
}

static PER_TEST atomic_bool late_one_waits;
static struct switchto_task *late_one;

static void wake_late_one(void *arg)
{
	YIELD_UNTIL(atomic_load(&late_one_waits));
	CHECK_EQ(&verdict, switchto_unpark(late_one), 0);
}

/* When @task has ended, and before the one runs that has waited for that. */
static void join_late(void *task)
{
	atomic_store(&late_one_waits, true);
	CHECK_EQ(&verdict, switchto_park(NULL), 0);
	CHECK_ERR(&verdict, switchto_join(task), EINVAL);
	CHECK_ERR(&verdict, switchto_detach(task), EINVAL);
	CHECK_ERR(&verdict, switchto_end(task), EINVAL);
}

TEST_IN_TASK(joined_by_the_first)
{
	struct switchto_task *task = spawn_handle(NULL, wake_late_one, NULL);

	late_one = spawn_handle(NULL, join_late, task);
	CHECK_EQ(&verdict, switchto_join(task), 0);
	CHECK_EQ(&verdict, switchto_join(late_one), 0);
}

static struct switchto_task *couple[2];
static atomic_int deadlocks;

static void join_each_other(void *other)
{
	if (switchto_join(*(struct switchto_task **)other) == 0) {
		atomic_fetch_add(&runs, 1);
	} else {
		CHECK_EQ(&verdict, errno, EDEADLK);
		atomic_fetch_add(&deadlocks, 1);
	}
}

/* At least one of them must not wait. */
TEST(couples)
{
	for (int i = 0; i < LOOPS(200); i++) {
		atomic_store(&runs, 0);
		atomic_store(&deadlocks, 0);
		for (int j = 0; j < 2; j++)
			couple[j] = add_handle(join_each_other, &couple[!j]);
		run_added();
		assert_true(atomic_load(&deadlocks) >= 1);
		assert_int_equal(atomic_load(&runs) + atomic_load(&deadlocks), 2);
	}
}

/* --- counts --- */

static int post_too_often(void *arg)
{
	struct switchto_sem sem = { .count = -1UL };

	switchto_sem_post(&sem);
	return 0;
}

static int add_less_than_none(void *arg)
{
	struct switchto_group group = { .count = 1 };

	switchto_group_add(&group, -1UL);
	return 0;
}

/* Who waits would wait for ever. */
TEST(counts)
{
	assert_int_equal(run_aborting_child(post_too_often, NULL), 128 + SIGABRT);
	assert_int_equal(run_aborting_child(add_less_than_none, NULL), 128 + SIGABRT);
}

/* --- destructors of a scheduler's threads --- */

static void destroy_again(void *sched)
{
	CHECK_ERR(&verdict, switchto_sched_destroy(sched), EBUSY);
	CHECK_ERR(&verdict, switchto_sched_run(sched), EPERM);
	CHECK_ERR(&verdict, switchto_spawn(sched, run_once, NULL, NULL, NULL), ECANCELED);
	atomic_fetch_add(&runs, 1);
}

static pthread_key_t key;

static void have_it_destroyed_again(void *sched)
{
	CHECK_EQ(&verdict, pthread_setspecific(key, sched), 0);
}

TEST(destructors)
{
	struct switchto_sched *sched = new_sched(NULL);

	assert_int_equal(pthread_key_create(&key, destroy_again), 0);
	run_one(sched, have_it_destroyed_again, sched);
	assert_int_equal(atomic_load(&runs), 1);
	pthread_key_delete(key);
}

/* --- switchto_end() --- */

static void end_one_that_sleeps(void *arg)
{
	struct switchto_task *task = spawn_handle(NULL, park_until_cancelled, NULL);

	CHECK_EQ(&verdict, switchto_end(task), 0);
	CHECK_EQ(&verdict, atomic_load(&runs), 1);
	/* Also if the caller is cancelled. */
	CHECK_EQ(&verdict, switchto_cancel(switchto_task_self()), 0);
	task = spawn_handle(NULL, park_until_cancelled, NULL);
	CHECK_EQ(&verdict, switchto_end(task), 0);
	CHECK_EQ(&verdict, atomic_load(&runs), 2);
}

/* With one that starves others: a caller that gave way again and again would never let them run. */
TEST(ends)
{
	const struct switchto_task_attr high = { .priority = 10 };
	const struct switchto_policy *const policies[] = { &switchto_fifo, &switchto_priority };

	for (int i = 0; i < 2; i++) {
		struct switchto_sched *sched = new_sched(policies[i]);

		atomic_store(&runs, 0);
		CHECK_EQ(&verdict, switchto_spawn(sched, end_one_that_sleeps, NULL, &high, NULL),
			 0);
		run_tasks(sched);
		assert_int_equal(atomic_load(&runs), 2);
	}
}

TEST(ends_one_that_never_began)
{
	struct switchto_sched *sched = new_sched(NULL);
	struct switchto_task *task = spawn_handle(sched, run_once, NULL);

	assert_int_equal(switchto_end(task), 0);
	/* It does not count. */
	assert_int_equal(switchto_sched_destroy(sched), 0);

	/* And does not run, among others that do. */
	sched = new_sched(NULL);
	task = spawn_handle(sched, run_once, NULL);
	for (int i = 0; i < 10; i++)
		spawn(sched, run_once, NULL);
	assert_int_equal(switchto_end(task), 0);
	assert_int_equal(switchto_sched_run(sched), 0);
	run_one(sched, run_once, NULL);
	assert_int_equal(atomic_load(&runs), 11);
}

/* --- threads of tasks --- */

static void pthread_exit_in_it(void *arg)
{
	pthread_exit(NULL);
}

static void cancel_itself(void *arg)
{
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
	pthread_cancel(pthread_self());
}

TEST(thread_that_ends)
{
	void (*ends[])(void *) = { pthread_exit_in_it, cancel_itself };
	int count = 2;

	/* Sanitizers do not expect an end between any two instructions. */
#if defined(UNDER_TSAN) || defined(UNDER_ASAN)
	count = 1;
#endif
	for (int i = 0; i < count; i++)
		assert_int_equal(run_aborting_child(run_child_task, &ends[i]), 128 + SIGABRT);
}

static void round_up(void *arg)
{
	fesetround(FE_UPWARD);
	feraiseexcept(FE_DIVBYZERO);
	errno = ENOENT;
}

static void check_environment(void *arg)
{
	CHECK_EQ(&verdict, errno, 0);
	CHECK_EQ(&verdict, fegetround(), FE_TONEAREST);
	CHECK_EQ(&verdict, fetestexcept(FE_ALL_EXCEPT), 0);
	atomic_fetch_add(&runs, 1);
}

TEST_IN_TASK(environment_is_new)
{
	for (int i = 0; i < 3; i++) {
		CHECK_EQ(&verdict, switchto_join(spawn_handle(NULL, round_up, NULL)), 0);
		CHECK_EQ(&verdict, switchto_join(spawn_handle(NULL, check_environment, NULL)), 0);
		CHECK_EQ(&verdict, atomic_load(&runs), i + 1);
	}
}

static void check_mask(void *arg)
{
	sigset_t mask;

	pthread_sigmask(SIG_SETMASK, NULL, &mask);
	CHECK_EQ(&verdict, sigismember(&mask, SIGUSR1), 0);
	CHECK_EQ(&verdict, sigismember(&mask, SIGUSR2), 1);
}

/* What a thread has of the one that makes it. */
static void change_all(void)
{
	cpu_set_t one;

	switchto_place(SWITCHTO_FREE);
	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	CHECK_EQ(&verdict, sched_setaffinity(0, sizeof(one), &one), 0);
	CHECK_EQ(&verdict, prctl(PR_SET_NAME, "changed"), 0);
	CHECK_EQ(&verdict, prctl(PR_SET_TIMERSLACK, 123456), 0);
	CHECK_EQ(&verdict, setpriority(PRIO_PROCESS, (id_t)gettid(), 19), 0);
	fesetround(FE_UPWARD);
}

static struct model {
	char name[16];
	int cpus, slack, nice;
} model;

static struct model look_at_me(void)
{
	struct model seen = { .slack = prctl(PR_GET_TIMERSLACK),
			      .nice = getpriority(PRIO_PROCESS, (id_t)gettid()) };
	int place = switchto_place(SWITCHTO_FREE);
	cpu_set_t cpus;

	CHECK_EQ(&verdict, sched_getaffinity(0, sizeof(cpus), &cpus), 0);
	seen.cpus = CPU_COUNT(&cpus);
	switchto_place(place);
	CHECK_EQ(&verdict, prctl(PR_GET_NAME, seen.name), 0);
	return seen;
}

static void be_as_the_run(void *arg)
{
	const struct model seen = look_at_me();

	CHECK_EQ(&verdict, memcmp(&seen, &model, sizeof(seen)), 0);
	check_environment(arg);
	/* So that others do not get this thread. */
	if (arg)
		CHECK_EQ(&verdict, switchto_park(NULL), 0);
}

static void change_and_spawn(void *arg)
{
	struct switchto_task *task[3];

	change_all();
	for (int i = 0; i < 3; i++)
		task[i] = spawn_handle(NULL, be_as_the_run, arg);
	/* All the ways to sleep make room for them. */
	CHECK_EQ(&verdict, switchto_sleep_until(&(struct timespec){ 0 }), 0);
	CHECK_EQ(&verdict, switchto_yield(), 0);
	for (int i = 0; i < 3; i++) {
		CHECK_EQ(&verdict, switchto_unpark(task[i]), 0);
		CHECK_EQ(&verdict, switchto_join(task[i]), 0);
	}
}

static void change_and_spawn_outside(void *sched)
{
	change_all();
	spawn(sched, be_as_the_run, NULL);
}

/* A task that begins is no heir of those that live, nor of who spawned it. */
TEST(threads_are_of_the_run)
{
	struct switchto_sched *sched;

	model = look_at_me();
	run_task(change_and_spawn, &model);

	/* Also the first one. */
	sched = new_sched(NULL);
	pthread_join(start_thread(change_and_spawn_outside, sched), NULL);
	run_tasks(sched);
}

/* The task that sleeps needs a new thread, but not in its image. */
static void block_and_sleep(void *arg)
{
	struct switchto_task *task;
	sigset_t mask;

	sigemptyset(&mask);
	sigaddset(&mask, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &mask, NULL);
	task = spawn_handle(NULL, check_mask, NULL);
	CHECK_EQ(&verdict, switchto_join(task), 0);
}

TEST(mask_of_the_run)
{
	sigset_t mask, before;

	add_task(block_and_sleep, NULL);
	sigemptyset(&mask);
	sigaddset(&mask, SIGUSR2);
	pthread_sigmask(SIG_BLOCK, &mask, &before);
	run_added();
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* --- channels --- */

static void destroy_while_awaited(void *arg)
{
	struct switchto_case cases[2] = { { .op = SWITCHTO_RECEIVE }, { .op = SWITCHTO_RECEIVE } };
	struct timespec soon = in(2000000);
	struct switchto_chan *chan;
	int item;

	/* A case without a channel never happens. */
	CHECK_ERR(&verdict, switchto_select(cases, 2, NULL), EINVAL);
	CHECK_ERR(&verdict, switchto_select(cases, 2, &soon), ETIMEDOUT);
	CHECK_ERR(&verdict, switchto_chan_send(NULL, &item, NULL), EINVAL);
	CHECK_ERR(&verdict, switchto_chan_recv(NULL, &item, NULL), EINVAL);
	CHECK_ERR(&verdict, switchto_chan_close(NULL), EINVAL);
	CHECK_ERR(&verdict, switchto_chan_create(NULL, sizeof(item), 1), EINVAL);
	CHECK_ERR(&verdict, switchto_select(NULL, 1, NULL), EINVAL);
	CHECK_EQ(&verdict, switchto_chan_create(&chan, sizeof(item), 1), 0);
	cases[1].chan = chan;
	cases[1].item = &item;
	soon = in(2000000);
	CHECK_ERR(&verdict, switchto_select(cases, 2, &soon), ETIMEDOUT);
	CHECK_EQ(&verdict, switchto_chan_send(chan, &(int){ 7 }, NULL), 0);
	CHECK_EQ(&verdict, switchto_select(cases, 2, NULL), 1);
	CHECK_EQ(&verdict, item, 7);
	CHECK_EQ(&verdict, switchto_chan_destroy(chan), 0);
	CHECK_EQ(&verdict, switchto_chan_destroy(NULL), 0);
}

static atomic_bool receives;

static void receive_nothing(void *chan)
{
	int item;

	atomic_store(&receives, true);
	CHECK_ERR(&verdict, switchto_chan_recv(chan, &item, NULL), EPIPE);
}

static void close_when_awaited(void *chan)
{
	struct switchto_task *task = spawn_handle(NULL, receive_nothing, chan);

	/* On a busy machine it begins late. A while later, it waits. */
	YIELD_UNTIL(atomic_load(&receives));
	sleep_for(50000000);
	if (slots == 1)
		CHECK_ERR(&verdict, switchto_chan_destroy(chan), EBUSY);
	CHECK_EQ(&verdict, switchto_chan_close(chan), 0);
	CHECK_EQ(&verdict, switchto_join(task), 0);
	CHECK_EQ(&verdict, switchto_chan_destroy(chan), 0);
}

TEST(channels)
{
	struct switchto_chan *chan;

	assert_int_equal(switchto_chan_create(&chan, sizeof(int), 0), 0);
	add_task(destroy_while_awaited, NULL);
	add_task(close_when_awaited, chan);
	run_added();
}

/* --- a policy that destroys a scheduler --- */

static struct switchto_sched *another;

static void destroy_and_enqueue(void *queue, struct switchto_entry *entry, enum switchto_reason why)
{
	if (another)
		CHECK_ERR(&verdict, switchto_sched_destroy(another), EDEADLK);
	switchto_fifo.enqueue(queue, entry, why);
}

static void yield_once(void *arg)
{
	CHECK_EQ(&verdict, switchto_yield(), 0);
}

TEST(policies)
{
	struct switchto_policy policy = switchto_fifo;
	struct switchto_sched *sched;

	policy.enqueue = destroy_and_enqueue;
	sched = new_sched(&policy);
	spawn(sched, yield_once, NULL);
	another = new_sched(NULL);
	run_tasks(sched);
	assert_int_equal(switchto_sched_destroy(another), 0);
}

/* The queue counts what happens to it. */
struct counts {
	atomic_int begun, enqueued;
};

static int inits, init_fails_at, destroys;

static int count_init(void *queue)
{
	struct counts *counts = queue;

	CHECK_EQ(&verdict, counts->begun, 0);
	counts->begun = 1;
	return ++inits == init_fails_at ? EPROTO : 0;
}

static void count_destroy(void *queue)
{
	CHECK_EQ(&verdict, ((struct counts *)queue)->begun, 1);
	destroys++;
}

static void count_enqueue(void *queue, struct switchto_entry *entry, enum switchto_reason why)
{
	struct counts *counts = queue;

	CHECK_EQ(&verdict, counts->begun, 1);
	atomic_fetch_add(&counts->enqueued, 1);
	switchto_priority.enqueue(counts + 1, entry, why);
}

static struct switchto_entry *pick_behind(void *queue)
{
	return switchto_priority.pick((struct counts *)queue + 1);
}

static struct switchto_policy counting(void)
{
	return (struct switchto_policy){ .name = "counting",
					 .queue_size = sizeof(struct counts) +
						       switchto_priority.queue_size,
					 .enqueue = count_enqueue,
					 .pick = pick_behind,
					 .init = count_init,
					 .destroy = count_destroy,
					 .conserving = true };
}

static int destroy_in_child(void *sched)
{
	if (switchto_policy_queue(sched, 0) || errno != EPERM)
		return 1;
	destroys = 0;
	return switchto_sched_destroy(sched) || destroys != (int)slots;
}

TEST(policy_begins_and_ends)
{
	const struct switchto_policy policy = counting();
	const struct switchto_sched_options options = OPTIONS(.slots = slots, .policy = &policy);
	struct switchto_sched *sched;
	int enqueued;

	for (int i = 0; i < 2; i++) {
		inits = destroys = init_fails_at = enqueued = 0;
		sched = new_sched_with(&policy, i ? SWITCHTO_MEASURE : 0, slots);
		assert_int_equal(inits, slots);
		spawn(sched, yield_once, NULL);
		assert_int_equal(switchto_sched_run(sched), 0);
		for (unsigned int j = 0; j < slots; j++) {
			struct counts *counts = switchto_policy_queue(sched, j);

			assert_non_null(counts);
			enqueued += atomic_load(&counts->enqueued);
		}
		assert_true(enqueued >= 2);
		assert_null(switchto_policy_queue(sched, slots));
		assert_int_equal(errno, EINVAL);
		assert_null(switchto_policy_queue(NULL, 0));
		assert_int_equal(errno, EINVAL);
		assert_int_equal(destroys, 0);
		assert_int_equal(run_child(destroy_in_child, sched), 0);
		assert_int_equal(switchto_sched_destroy(sched), 0);
		assert_int_equal(destroys, slots);
		verdict_assert(&verdict);
	}
	inits = destroys = 0;
	init_fails_at = (int)slots;
	CHECK_ERR(v, switchto_sched_create(&sched, &options), EPROTO);
	assert_int_equal(destroys, slots - 1);
}

static struct switchto_entry *pick_none(void *queue)
{
	return NULL;
}

static int run_none(void *arg)
{
	struct switchto_policy policy = counting();
	struct switchto_sched *sched;

	inits = init_fails_at = 0;
	policy.pick = pick_none;
	sched = new_sched(&policy);
	spawn(sched, yield_once, NULL);
	return switchto_sched_run(sched);
}

TEST(conserving_policy)
{
	assert_int_equal(run_aborting_child(run_none, NULL), 128 + SIGABRT);
}

static void compute_and_yield(void *arg)
{
	for (int i = 0; i < 5; i++) {
		compute_for(2 * MSEC);
		CHECK_EQ(&verdict, switchto_yield(), 0);
	}
}

/* Thieves take tasks out of its queues, and put those back that are bound to a slot. */
TEST(conserving_beside_thieves)
{
	struct switchto_sched *sched = new_sched_with(&switchto_priority, SWITCHTO_STEAL, slots);

	for (int i = 0; i < 8; i++) {
		struct switchto_task *task;

		assert_int_equal(switchto_spawn_on(sched, i % 2 ? 0 : SWITCHTO_ANY,
						   compute_and_yield, NULL, NULL, &task),
				 0);
		assert_int_equal(switchto_detach(task), 0);
	}
	run_tasks(sched);
}

/* --- a handler that interrupts the scheduler --- */

static PER_TEST struct switchto_mutex mutex;

static struct {
	struct switchto_task *task;
	struct switchto_sem sem;
	struct switchto_chan *chan;
	pthread_t poller;
	atomic_bool polls, over;
} handler;

static void wait_in_a_handler(int signal_number)
{
	const struct timespec soon = in(1000000);
	const int before = errno;
	int item;

	CHECK_ERR(&verdict, switchto_mutex_lock(&mutex), EDEADLK);
	CHECK_ERR(&verdict, switchto_mutex_lock_until(&mutex, &soon), EDEADLK);
	CHECK_ERR(&verdict, switchto_sem_wait(&handler.sem, NULL), EDEADLK);
	CHECK_ERR(&verdict, switchto_chan_recv(handler.chan, &item, NULL), EDEADLK);
	CHECK_ERR(&verdict, switchto_join(handler.task), EDEADLK);
	CHECK_ERR(&verdict, switchto_end(handler.task), EDEADLK);
	errno = before;
	atomic_store(&handler.over, true);
}

static void lock_and_park(void *arg)
{
	CHECK_EQ(&verdict, switchto_mutex_lock(&mutex), 0);
	CHECK_EQ(&verdict, switchto_park(NULL), 0);
	CHECK_EQ(&verdict, switchto_mutex_unlock(&mutex), 0);
}

/* Its thread has no task then, and polls. */
static void end_last(void *arg)
{
	sleep_for(10000000);
	handler.poller = pthread_self();
	atomic_store(&handler.polls, true);
}

static void interrupt_poller(void *arg)
{
	AWAIT(atomic_load(&handler.polls));
	usleep(50000);
	pthread_kill(handler.poller, SIGUSR1);
	AWAIT(atomic_load(&handler.over));
	CHECK_EQ(&verdict, switchto_unpark(handler.task), 0);
	CHECK_EQ(&verdict, switchto_join(handler.task), 0);
}

TEST(handler_between_tasks)
{
	struct switchto_sched *sched;

	if (HANDLERS_RUN_LATE)
		skip();
	sched = new_sched(NULL);
	set_handler(SIGUSR1, wait_in_a_handler);
	assert_int_equal(switchto_chan_create(&handler.chan, sizeof(int), 0), 0);
	handler.task = spawn_handle(sched, lock_and_park, NULL);
	spawn(sched, end_last, NULL);
	run_with_thread(sched, interrupt_poller, NULL);
	signal(SIGUSR1, SIG_DFL);
	assert_int_equal(switchto_chan_destroy(handler.chan), 0);
}

/* --- calls that are not to wait --- */

/* So they may be made where one that waits fails. */
static void try_all(struct switchto_task *task, struct switchto_chan *chan)
{
	const struct timespec past = { 0 };
	struct switchto_group group = { .count = 1 };
	struct switchto_sem sem = { 0 };
	int item = 0;
	struct switchto_case receive = { .chan = chan, .op = SWITCHTO_RECEIVE, .item = &item };

	CHECK_ERR(&verdict, switchto_sem_wait(&sem, &past), ETIMEDOUT);
	CHECK_ERR(&verdict, switchto_group_wait(&group, &past), ETIMEDOUT);
	CHECK_ERR(&verdict, switchto_chan_recv(chan, &item, &past), ETIMEDOUT);
	CHECK_ERR(&verdict, switchto_chan_send(chan, &item, &past), ETIMEDOUT);
	CHECK_ERR(&verdict, switchto_select(&receive, 1, &past), ETIMEDOUT);
	CHECK_ERR(&verdict, switchto_join_until(task, &past), ETIMEDOUT);
}

TEST_IN_TASK(tries_when_cancelled)
{
	struct switchto_task *task = spawn_handle(NULL, park_until_cancelled, NULL);
	struct switchto_chan *chan;

	CHECK_EQ(&verdict, switchto_chan_create(&chan, sizeof(int), 0), 0);
	CHECK_EQ(&verdict, switchto_cancel(switchto_task_self()), 0);
	try_all(task, chan);
	CHECK_EQ(&verdict, switchto_end(task), 0);
	CHECK_EQ(&verdict, switchto_chan_destroy(chan), 0);
}

/* --- blocking regions --- */

TEST_IN_TASK(waits_in_a_region)
{
	const struct timespec past = { 0 };
	struct switchto_task *task = spawn_handle(NULL, park_until_cancelled, NULL);
	struct switchto_group group = { .count = 1 };
	struct switchto_cond cond = { 0 };
	struct switchto_sem sem = { 0 };
	struct switchto_chan *chan;
	int item, ends[2];

	CHECK_EQ(&verdict, switchto_chan_create(&chan, sizeof(int), 0), 0);
	CHECK_EQ(&verdict, pipe(ends), 0);
	CHECK_EQ(&verdict, switchto_mutex_lock(&mutex), 0);
	CHECK_EQ(&verdict, switchto_block_begin(), 0);
	CHECK_ERR(&verdict, switchto_yield(), EINVAL);
	CHECK_ERR(&verdict, switchto_park(NULL), EINVAL);
	CHECK_ERR(&verdict, switchto_sleep_until(&past), EINVAL);
	CHECK_ERR(&verdict, switchto_sem_wait(&sem, NULL), EINVAL);
	CHECK_ERR(&verdict, switchto_cond_wait(&cond, &mutex, NULL), EINVAL);
	CHECK_ERR(&verdict, switchto_group_wait(&group, NULL), EINVAL);
	CHECK_ERR(&verdict, switchto_chan_recv(chan, &item, NULL), EINVAL);
	CHECK_ERR(&verdict, switchto_chan_send(chan, &item, NULL), EINVAL);
	CHECK_ERR(&verdict, switchto_join(task), EINVAL);
	CHECK_ERR(&verdict, switchto_read(ends[0], &item, 1, NULL), EINVAL);
	try_all(task, chan);
	switchto_sem_post(&sem);
	CHECK_EQ(&verdict, switchto_sem_wait(&sem, NULL), 0);
	CHECK_EQ(&verdict, switchto_end(task), 0);
	CHECK_EQ(&verdict, switchto_block_end(), 0);
	CHECK_EQ(&verdict, switchto_mutex_unlock(&mutex), 0);
	CHECK_EQ(&verdict, switchto_chan_destroy(chan), 0);
	close_known(ends);
}

/* --- fork() --- */

/* In a child whose parent has locked it. */
CHILD(lock_there)
{
	CHECK_ERR(v, switchto_mutex_lock(&mutex), EPERM);
	CHECK_ERR(v, switchto_mutex_trylock(&mutex), EBUSY);
	CHECK_ERR(v, switchto_mutex_unlock(&mutex), EPERM);
}

static void lock_there_in_a_task(void *arg)
{
	*(int *)arg = lock_there(NULL);
}

static int lock_there_in_a_scheduler(void *arg)
{
	struct switchto_sched *sched = new_sched(NULL);
	int status = 1;

	spawn(sched, lock_there_in_a_task, &status);
	return switchto_sched_run(sched) || switchto_sched_destroy(sched) ? 2 : status;
}

static void lock_and_fork(void *arg)
{
	CHECK_EQ(&verdict, switchto_mutex_lock(&mutex), 0);
	CHECK_EQ(&verdict, run_child(lock_there, NULL), 0);
	CHECK_EQ(&verdict, run_child(lock_there_in_a_scheduler, NULL), 0);
	CHECK_EQ(&verdict, switchto_mutex_unlock(&mutex), 0);
}

static void hold_it(void *arg)
{
	CHECK_EQ(&verdict, switchto_mutex_lock(&mutex), 0);
	pthread_barrier_wait(arg);
	pthread_barrier_wait(arg);
	CHECK_EQ(&verdict, switchto_mutex_unlock(&mutex), 0);
}

CHILD(unlock_there)
{
	CHECK_ERR(v, switchto_mutex_lock(&mutex), EDEADLK);
	CHECK_EQ(v, switchto_mutex_unlock(&mutex), 0);
	CHECK_EQ(v, switchto_mutex_lock(&mutex), 0);
	CHECK_EQ(v, switchto_mutex_unlock(&mutex), 0);
}

/* Another thread has it. */
static void fork_beside_a_holder(void)
{
	pthread_barrier_t barrier;
	pthread_t thread;

	pthread_barrier_init(&barrier, NULL, 2);
	thread = start_thread(hold_it, &barrier);
	pthread_barrier_wait(&barrier);
	CHECK_EQ(&verdict, run_child(lock_there, NULL), 0);
	pthread_barrier_wait(&barrier);
	pthread_join(thread, NULL);
	pthread_barrier_destroy(&barrier);
}

/* There has been no scheduler. */
TEST_FIRST(mutex_before_a_scheduler)
{
	fork_beside_a_holder();
}

static int lock_deep_down(void *forks)
{
	const intptr_t left = (intptr_t)forks - 1;

	return left ? run_child(lock_deep_down, (void *)left) : lock_there(NULL);
}

TEST_IN_TASK(mutex_of_an_ancestor)
{
	CHECK_EQ(&verdict, switchto_mutex_lock(&mutex), 0);
	for (intptr_t forks = 1; forks <= 15; forks++)
		CHECK_EQ(&verdict, run_child(lock_deep_down, (void *)forks), 0);
	CHECK_EQ(&verdict, switchto_mutex_unlock(&mutex), 0);
}

static void lock_and_end(void *arg)
{
	CHECK_EQ(&verdict, switchto_mutex_lock(&mutex), 0);
}

static void unlock_anothers(void *arg)
{
	CHECK_ERR(&verdict, switchto_mutex_unlock(&mutex), EPERM);
	CHECK_ERR(&verdict, switchto_mutex_trylock(&mutex), EBUSY);
}

/* A later thread, which is where that was, does not have it. */
TEST(mutex_of_an_ended_thread)
{
	pthread_join(start_thread(lock_and_end, NULL), NULL);
	pthread_join(start_thread(unlock_anothers, NULL), NULL);
}

/* Objects for which tasks of the parent wait, and then threads of the child. */
static PER_TEST struct {
	struct switchto_mutex mutex, strict, guard;
	struct switchto_sem sem;
	struct switchto_cond cond;
	struct switchto_group group;
	struct switchto_chan *in, *out;
	int level; /* with guard */
} awaited;

static void wait_for_level(void *level)
{
	CHECK_EQ(&verdict, switchto_mutex_lock(&awaited.guard), 0);
	while (awaited.level < (int)(intptr_t)level)
		CHECK_EQ(&verdict, switchto_cond_wait(&awaited.cond, &awaited.guard, NULL), 0);
	CHECK_EQ(&verdict, switchto_mutex_unlock(&awaited.guard), 0);
}

static void wait_for_sem(void *arg)
{
	CHECK_EQ(&verdict, switchto_sem_wait(&awaited.sem, NULL), 0);
}

static void wait_for_group(void *arg)
{
	CHECK_EQ(&verdict, switchto_group_wait(&awaited.group, NULL), 0);
}

static void wait_for_item(void *arg)
{
	int item = 0;

	CHECK_EQ(&verdict, switchto_chan_recv(awaited.in, &item, NULL), 0);
	CHECK_EQ(&verdict, item, 7);
}

static void wait_for_receiver(void *arg)
{
	const int item = 8;

	CHECK_EQ(&verdict, switchto_chan_send(awaited.out, &item, NULL), 0);
}

static void wait_for_mutex(void *mutex)
{
	for (int i = 0; i < 100; i++) {
		CHECK_EQ(&verdict, switchto_mutex_lock(mutex), 0);
		usleep(10);
		CHECK_EQ(&verdict, switchto_mutex_unlock(mutex), 0);
	}
}

static const struct {
	void (*fn)(void *);
	void *arg;
} waits[] = {
	{ wait_for_mutex, &awaited.mutex }, { wait_for_mutex, &awaited.strict },
	{ wait_for_level, (void *)1 },	    { wait_for_sem, NULL },
	{ wait_for_group, NULL },	    { wait_for_item, NULL },
	{ wait_for_receiver, NULL },
};

enum { WAITS = sizeof(waits) / sizeof(*waits) };

static void end_waits(int level)
{
	int item = 7;

	CHECK_EQ(&verdict, switchto_mutex_lock(&awaited.guard), 0);
	awaited.level = level;
	switchto_cond_signal(&awaited.cond);
	CHECK_EQ(&verdict, switchto_mutex_unlock(&awaited.guard), 0);
	switchto_sem_post(&awaited.sem);
	CHECK_EQ(&verdict, switchto_group_done(&awaited.group), 0);
	CHECK_EQ(&verdict, switchto_chan_send(awaited.in, &item, NULL), 0);
	CHECK_EQ(&verdict, switchto_chan_recv(awaited.out, &item, NULL), 0);
	CHECK_EQ(&verdict, item, 8);
}

static void overwrite_stack(void *arg)
{
	volatile char memory[256 << 10];

	for (size_t i = 0; i < sizeof(memory); i++)
		memory[i] = 0x41;
}

/* @fn in each, or if that is NULL the waits, and their end. */
static void in_threads(void (*fn)(void *))
{
	pthread_t thread[WAITS];

	for (int i = 0; i < WAITS; i++)
		thread[i] = start_thread(fn ? fn : waits[i].fn, waits[i].arg);
	if (!fn) {
		usleep(20000);
		end_waits(1);
	}
	for (int i = 0; i < WAITS; i++)
		pthread_join(thread[i], NULL);
}

static int use_awaited(void *arg)
{
	const struct timespec past = { 0 };
	int item = 0;

	/* On a busy machine, the parent may have locked one already, or still. */
	if (awaited.mutex.owner || awaited.strict.owner)
		return 0;
	/* These get the stacks of the parent's threads, with all that waits there. */
	in_threads(overwrite_stack);
	CHECK_ERR(&verdict, switchto_chan_send(awaited.in, &item, &past), ETIMEDOUT);
	CHECK_ERR(&verdict, switchto_chan_recv(awaited.out, &item, &past), ETIMEDOUT);
	CHECK_ERR(&verdict, switchto_sem_wait(&awaited.sem, &past), ETIMEDOUT);
	in_threads(NULL);
	return verdict_status(&verdict);
}

static int destroy_awaited(void *arg)
{
	CHECK_EQ(&verdict, switchto_chan_destroy(awaited.in), 0);
	CHECK_EQ(&verdict, switchto_chan_destroy(awaited.out), 0);
	return verdict_status(&verdict);
}

static void fork_when_awaited(void *arg)
{
	struct switchto_task *tasks[WAITS];

	CHECK_EQ(&verdict, switchto_mutex_lock(&awaited.mutex), 0);
	for (int i = 0; i < WAITS; i++)
		tasks[i] = spawn_handle(NULL, waits[i].fn, waits[i].arg);
	sleep_for(50000000);
	/* Whoever waits for it is on its way, or waits still. */
	CHECK_EQ(&verdict, switchto_mutex_unlock(&awaited.mutex), 0);
	if (slots == 1)
		CHECK_EQ(&verdict, run_child(use_awaited, NULL), 0);
	for (int i = 0; i < 2; i++)
		CHECK_EQ(&verdict, switchto_join(tasks[i]), 0);
	CHECK_EQ(&verdict, run_child(use_awaited, NULL), 0);
	CHECK_EQ(&verdict, run_child(destroy_awaited, NULL), 0);
	end_waits(1);
	for (int i = 2; i < WAITS; i++)
		CHECK_EQ(&verdict, switchto_join(tasks[i]), 0);
}

TEST(objects_of_the_parent)
{
	awaited.strict = (struct switchto_mutex)SWITCHTO_MUTEX_STRICT;
	awaited.group.count = 1;
	assert_int_equal(switchto_chan_create(&awaited.in, sizeof(int), 0), 0);
	assert_int_equal(switchto_chan_create(&awaited.out, sizeof(int), 0), 0);
	run_task(fork_when_awaited, NULL);
	assert_int_equal(switchto_chan_destroy(awaited.in), 0);
	assert_int_equal(switchto_chan_destroy(awaited.out), 0);
}

TEST(mutex_of_the_parent)
{
	run_task(lock_and_fork, NULL);
	fork_beside_a_holder();

	/* The thread that forks is in the child, too. */
	assert_int_equal(switchto_mutex_lock(&mutex), 0);
	CHECK_EQ(&verdict, run_child(unlock_there, NULL), 0);
	assert_int_equal(switchto_mutex_unlock(&mutex), 0);
}

static void return_in_the_child(void *arg)
{
	int status;
	pid_t child = fork();

	if (child == 0)
		return;
	CHECK_EQ(&verdict, waitpid(child, &status, 0), child);
	_exit(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT ? 0 : 1);
}

TEST(child_that_returns)
{
	void (*fn)(void *) = return_in_the_child;

	assert_int_equal(run_aborting_child(run_child_task, &fn), 0);
}

/* --- a handler forks while its thread waits: in the child, that wait ends --- */

static atomic_int handlers_child;
static pthread_t waiting_thread;

static void fork_in_a_handler(int signal_number)
{
	const pid_t child = fork();

	if (child == 0)
		alarm(240);
	atomic_store(&handlers_child, child);
}

static int lock_it(void)
{
	return switchto_mutex_lock(&mutex) ? -1 : switchto_mutex_unlock(&mutex);
}

static int wait_for_it(void)
{
	return switchto_sem_wait(&handler.sem, NULL);
}

static int receive_it(void)
{
	int item;

	return switchto_chan_recv(handler.chan, &item, NULL);
}

static int lock_it_in_a_region(void)
{
	int result;

	CHECK_EQ(&verdict, switchto_block_begin(), 0);
	result = lock_it();
	/* In the child there is no region to end. */
	if (!result)
		CHECK_EQ(&verdict, switchto_block_end(), 0);
	return result;
}

static void wait_here(void *wait)
{
	int result;

	waiting_thread = pthread_self();
	atomic_store(&handler.polls, true);
	result = (*(int (**)(void))wait)();
	if (!atomic_load(&handlers_child))
		_exit(result == -1 && errno == EPERM ? verdict_status(&verdict) : 1);
	CHECK_EQ(&verdict, result, 0);
}

static void wait_in_a_task(void *wait)
{
	run_task(wait_here, wait);
}

TEST(handler_forks)
{
	int (*const waits_here[])(void) = { lock_it, wait_for_it, receive_it, lock_it_in_a_region };
	pthread_t thread;
	int status;

	if (HANDLERS_RUN_LATE)
		skip();
	set_handler(SIGUSR1, fork_in_a_handler);
	assert_int_equal(switchto_chan_create(&handler.chan, sizeof(int), 0), 0);
	for (int i = 0; i < 4; i++) {
		atomic_store(&handlers_child, -1);
		atomic_store(&handler.polls, false);
		assert_int_equal(switchto_mutex_lock(&mutex), 0);
		thread = start_thread(i < 3 ? wait_here : wait_in_a_task, (void *)&waits_here[i]);
		AWAIT(atomic_load(&handler.polls));
		usleep(50000);
		pthread_kill(waiting_thread, SIGUSR1);
		AWAIT(atomic_load(&handlers_child) != -1);
		CHECK_EQ(&verdict, waitpid(atomic_load(&handlers_child), &status, 0),
			 atomic_load(&handlers_child));
		CHECK_EQ(&verdict, status, 0);
		assert_int_equal(switchto_mutex_unlock(&mutex), 0);
		if (i == 1)
			switchto_sem_post(&handler.sem);
		if (i == 2)
			CHECK_EQ(&verdict, switchto_chan_send(handler.chan, &i, NULL), 0);
		pthread_join(thread, NULL);
	}
	signal(SIGUSR1, SIG_DFL);
	assert_int_equal(switchto_chan_destroy(handler.chan), 0);
}

static struct {
	struct switchto_sched *sched;
	struct switchto_task *task;
} parents;

static void set_it(void *arg)
{
	*(bool *)arg = true;
}

CHILD(use_parents)
{
	struct switchto_sched *sched;
	bool ran = false;

	CHECK_ERR(v, switchto_spawn(parents.sched, run_once, NULL, NULL, NULL), EPERM);
	CHECK_ERR(v, switchto_sched_run(parents.sched), EPERM);
	CHECK_ERR(v, switchto_sched_stop(parents.sched, SWITCHTO_STOP_CANCEL), EPERM);
	CHECK_ERR(v, switchto_join(parents.task), EPERM);
	CHECK_ERR(v, switchto_end(parents.task), EPERM);
	CHECK_ERR(v, switchto_detach(parents.task), EPERM);
	CHECK_ERR(v, switchto_cancel(parents.task), EPERM);
	CHECK_ERR(v, switchto_unpark(parents.task), EPERM);
	CHECK_ERR(v, switchto_unpark(parents.task), EPERM);
	CHECK_EQ(v, switchto_sched_destroy(parents.sched), 0);
	/* One of its own works. */
	CHECK_EQ(v, switchto_sched_create(&sched, NULL), 0);
	CHECK_EQ(v, switchto_spawn(sched, set_it, &ran, NULL, NULL), 0);
	CHECK_EQ(v, switchto_sched_run(sched), 0);
	CHECK_EQ(v, switchto_sched_destroy(sched), 0);
	CHECK(v, ran);
}

static void use_parents_in_a_task(void *arg)
{
	CHECK_EQ(&verdict, run_child(use_parents, NULL), 0);
	CHECK_EQ(&verdict, switchto_unpark(parents.task), 0);
}

static void park_once(void *arg)
{
	CHECK_EQ(&verdict, switchto_park(NULL), 0);
}

/* Before it has run, and while it runs. */
TEST(scheduler_of_the_parent)
{
	parents.sched = new_sched(NULL);
	parents.task = spawn_handle(parents.sched, park_once, NULL);
	assert_int_equal(run_child(use_parents, NULL), 0);
	spawn(parents.sched, use_parents_in_a_task, NULL);
	assert_int_equal(switchto_sched_run(parents.sched), 0);
	assert_int_equal(switchto_join(parents.task), 0);
	run_tasks(parents.sched);
}

/* --- cancellation --- */

static struct {
	struct switchto_sched *sched;
	struct switchto_task *task;
	struct switchto_sem sem;
	struct switchto_chan *chan;
	int ends[2];
	atomic_bool all_done;
} cancelled;

static void wait_for_each(void *arg)
{
	char byte;
	int item;

	CHECK_EQ(&verdict, switchto_park(NULL), 0);
	CHECK_EQ(&verdict, switchto_sem_wait(&cancelled.sem, NULL), 0);
	CHECK_EQ(&verdict, switchto_chan_recv(cancelled.chan, &item, NULL), 0);
	CHECK_ERR(&verdict, switchto_read(cancelled.ends[0], &byte, 1, NULL), EBADF);
}

/* Until the slot polls. */
static void wait_for_the_poller(void)
{
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	usleep(20000);
	pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
}

static void call_when_cancelled(void *arg)
{
	struct switchto_sched *sched;

	pthread_cancel(pthread_self());
	wait_for_the_poller();
	CHECK_EQ(&verdict, switchto_unpark(cancelled.task), 0);
	wait_for_the_poller();
	switchto_sem_post(&cancelled.sem);
	wait_for_the_poller();
	CHECK_EQ(&verdict, switchto_chan_send(cancelled.chan, &(int){ 1 }, NULL), 0);
	wait_for_the_poller();
	CHECK_EQ(&verdict, switchto_spawn(cancelled.sched, run_once, NULL, NULL, NULL), 0);
	/* That lets the last task end. */
	CHECK_EQ(&verdict, switchto_close(cancelled.ends[0]), 0);
	CHECK_EQ(&verdict, switchto_join(cancelled.task), 0);

	CHECK_EQ(&verdict, switchto_sched_create(&sched, NULL), 0);
	CHECK_EQ(&verdict, switchto_spawn(sched, run_once, NULL, NULL, NULL), 0);
	CHECK_EQ(&verdict, switchto_sched_run(sched), 0);
	CHECK_EQ(&verdict, switchto_sched_stop(sched, SWITCHTO_STOP_CANCEL), 0);
	CHECK_EQ(&verdict, switchto_sched_destroy(sched), 0);
	atomic_store(&cancelled.all_done, true);
	pthread_testcancel();
}

static void poll_when_cancelled(void *arg)
{
	pthread_cancel(pthread_self());
	CHECK_EQ(&verdict, switchto_poll(cancelled.ends[1], POLLOUT, NULL), POLLOUT);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
}

TEST(no_cancellation_points)
{
	struct switchto_sched *sched = new_sched(NULL);
	pthread_t thread;
	void *result;

	cancelled.sched = sched;
	assert_int_equal(pipe(cancelled.ends), 0);
	assert_int_equal(switchto_chan_create(&cancelled.chan, sizeof(int), 0), 0);
	cancelled.task = spawn_handle(sched, wait_for_each, NULL);
	spawn(sched, poll_when_cancelled, NULL);
	thread = start_thread(call_when_cancelled, NULL);
	assert_int_equal(switchto_sched_run(sched), 0);
	pthread_join(thread, &result);
	assert_true(result == PTHREAD_CANCELED);
	assert_true(atomic_load(&cancelled.all_done));
	assert_int_equal(atomic_load(&runs), 2);
	run_tasks(sched);
	assert_int_equal(switchto_chan_destroy(cancelled.chan), 0);
	close(cancelled.ends[1]);
}

/* --- exit() --- */

static struct switchto_sched *at_exit_sched;

static void destroy_at_exit(void)
{
	/* There are tasks, and the program ends all the same. */
	if (switchto_sched_destroy(at_exit_sched))
		_exit(3);
}

static void exit_in_it(void *arg)
{
	spawn(NULL, park_until_cancelled, NULL);
	switchto_yield();
	exit(42); // NOLINT(concurrency-mt-unsafe): what is tested
}

static int run_until_exit(void *arg)
{
	at_exit_sched = new_sched(NULL);
	atexit(destroy_at_exit);
	spawn(at_exit_sched, exit_in_it, NULL);
	switchto_sched_run(at_exit_sched);
	return 1;
}

/* As a static object that is made in a task. */
static struct switchto_chan *at_exit_chan;

static void destroy_chan_at_exit(void)
{
	if (switchto_chan_destroy(at_exit_chan))
		_exit(3);
}

static void receive_at_exit(void *arg)
{
	int item;

	switchto_chan_recv(at_exit_chan, &item, NULL);
}

static void exit_when_it_waits(void *arg)
{
	const struct timespec soon = in(50000000);

	switchto_chan_create(&at_exit_chan, sizeof(int), 0);
	atexit(destroy_chan_at_exit);
	spawn(NULL, receive_at_exit, NULL);
	switchto_sleep_until(&soon);
	exit(42); // NOLINT(concurrency-mt-unsafe): what is tested
}

static int exit_before_the_run(void *arg)
{
	at_exit_sched = new_sched(NULL);
	atexit(destroy_at_exit);
	spawn(at_exit_sched, run_once, NULL);
	exit(42); // NOLINT(concurrency-mt-unsafe): what is tested
}

TEST(exit_in_a_task)
{
	void (*fn)(void *) = exit_when_it_waits;

	assert_int_equal(run_child(run_until_exit, NULL), 42);
	assert_int_equal(run_child(run_child_task, &fn), 42);
	assert_int_equal(run_child(exit_before_the_run, NULL), 42);
}
