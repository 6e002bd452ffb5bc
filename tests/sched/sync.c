// SPDX-License-Identifier: MIT
/* Mutexes, condition variables, semaphores and groups, of tasks and of other threads. */
#include "sched.h"

enum { TASKS = 20, ROUNDS = 200, THREADS = 3 };

static struct switchto_mutex mutex;
static struct switchto_cond cond;
static struct switchto_sem sem;
static struct switchto_group group;

static long counter, holders;
static atomic_bool ready;

static void reset(void)
{
	mutex = (struct switchto_mutex){ 0 };
	cond = (struct switchto_cond){ 0 };
	sem = (struct switchto_sem){ 0 };
	group = (struct switchto_group){ 0 };
	counter = holders = 0;
	atomic_store(&ready, false);
}

/* --- mutexes --- */

static void count_under_lock(void *arg)
{
	for (int i = 0; i < LOOPS(ROUNDS); i++) {
		CHECK_EQ(&verdict, switchto_mutex_lock(&mutex), 0);
		CHECK_EQ(&verdict, holders++, 0);
		/* With the mutex: so that others wait for it. */
		if (switchto_task_self() && i % 2)
			CHECK_EQ(&verdict, switchto_yield(), 0);
		counter++;
		CHECK_EQ(&verdict, --holders, 0);
		CHECK_EQ(&verdict, switchto_mutex_unlock(&mutex), 0);
	}
}

/* @fn in TASKS tasks, every other one @odd, and in THREADS threads, with 0, 1 and so on. */
static void run_in_both(void (*fn)(void *), void (*odd)(void *))
{
	struct switchto_sched *sched = new_sched(NULL);
	pthread_t threads[THREADS];

	for (long i = TASKS - 1; i >= 0; i--)
		spawn(sched, i % 2 ? odd : fn, (void *)i);
	for (long i = 0; i < THREADS; i++)
		threads[i] = start_thread(fn, (void *)(TASKS + i));
	assert_int_equal(switchto_sched_run(sched), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	run_tasks(sched);
}

TEST(one_holder_at_a_time)
{
	reset();
	run_in_both(count_under_lock, count_under_lock);
	assert_int_equal(counter, (TASKS + THREADS) * LOOPS(ROUNDS));
}

static char order[TASKS];

static void lock_and_write(void *letter)
{
	CHECK_EQ(&verdict, switchto_mutex_lock(&mutex), 0);
	order[counter++] = *(char *)letter;
	CHECK_EQ(&verdict, switchto_mutex_unlock(&mutex), 0);
}

static void hold_it(void *arg)
{
	CHECK_EQ(&verdict, switchto_mutex_lock(&mutex), 0);
	for (int i = 0; i < 3; i++)
		CHECK_EQ(&verdict, switchto_yield(), 0);
	CHECK_EQ(&verdict, switchto_mutex_unlock(&mutex), 0);
	/* It went to the oldest one: the caller, who comes later, does not get it. */
	CHECK_ERR(&verdict, switchto_mutex_trylock(&mutex), EBUSY);
}

TEST(oldest_first)
{
	static char letters[] = "abcdef";
	struct switchto_sched *sched;

	if (slots != 1)
		skip();
	sched = new_sched_in_order(NULL);
	reset();
	mutex = (struct switchto_mutex)SWITCHTO_MUTEX_STRICT;
	spawn(sched, hold_it, NULL);
	for (char *c = letters; *c; c++)
		spawn(sched, lock_and_write, c);
	run_tasks(sched);
	assert_memory_equal(order, "abcdef", 6);
}

static void misuse(void *arg)
{
	CHECK_ERR(&verdict, switchto_mutex_unlock(&mutex), EPERM);
	CHECK_EQ(&verdict, switchto_mutex_lock(&mutex), 0);
	CHECK_ERR(&verdict, switchto_mutex_lock(&mutex), EDEADLK);
	CHECK_ERR(&verdict, switchto_mutex_trylock(&mutex), EBUSY);
	CHECK_EQ(&verdict, switchto_mutex_unlock(&mutex), 0);
	CHECK_ERR(&verdict, switchto_cond_wait(&cond, &mutex, NULL), EPERM);
	CHECK_ERR(&verdict, switchto_group_done(&group), EINVAL);
}

TEST(misused)
{
	reset();
	run_task(misuse, NULL);
	misuse(NULL);
	verdict_assert(&verdict);
}

static void lock_in_region(void *arg)
{
	YIELD_UNTIL(atomic_load(&ready));
	CHECK_EQ(&verdict, switchto_block_begin(), 0);
	CHECK_EQ(&verdict, switchto_mutex_lock(&mutex), 0);
	CHECK_ERR(&verdict, switchto_mutex_lock(&mutex), EDEADLK);
	CHECK_EQ(&verdict, switchto_mutex_unlock(&mutex), 0);
	CHECK_EQ(&verdict, switchto_block_end(), 0);
}

static void unlock_when_awaited(void *arg)
{
	CHECK_EQ(&verdict, switchto_mutex_lock(&mutex), 0);
	atomic_store(&ready, true);
	/* Until the word is more than that it is locked. */
	while (__atomic_load_n(&mutex.word, __ATOMIC_RELAXED) == 1)
		CHECK_EQ(&verdict, switchto_yield(), 0);
	CHECK_EQ(&verdict, switchto_mutex_unlock(&mutex), 0);
}

TEST(locked_in_a_region)
{
	reset();
	add_task(unlock_when_awaited, NULL);
	add_task(lock_in_region, NULL);
	run_added();
}

/* --- condition variables --- */

static void wait_for_turn(void *turn)
{
	CHECK_EQ(&verdict, switchto_mutex_lock(&mutex), 0);
	while (counter != (long)turn)
		CHECK_EQ(&verdict, switchto_cond_wait(&cond, &mutex, NULL), 0);
	counter++;
	CHECK_EQ(&verdict, switchto_mutex_unlock(&mutex), 0);
	switchto_cond_broadcast(&cond);
}

TEST(turns_by_condition)
{
	reset();
	run_in_both(wait_for_turn, wait_for_turn);
	assert_int_equal(counter, TASKS + THREADS);
}

static void waits_time_out(void *arg)
{
	struct timespec soon = in(5000000);
	const struct timespec bad = { 0, -1 };

	CHECK_EQ(&verdict, switchto_mutex_lock(&mutex), 0);
	CHECK_ERR(&verdict, switchto_cond_wait(&cond, &mutex, &soon), ETIMEDOUT);
	CHECK_ERR(&verdict, switchto_cond_wait(&cond, &mutex, &bad), EINVAL);
	CHECK_EQ(&verdict, switchto_mutex_unlock(&mutex), 0);
	CHECK_ERR(&verdict, switchto_sem_wait(&sem, &soon), ETIMEDOUT);
	CHECK_ERR(&verdict, switchto_sem_wait(&sem, &bad), EINVAL);
	CHECK_ERR(&verdict, switchto_group_wait(&group, &bad), EINVAL);
	switchto_group_add(&group, 1);
	CHECK_ERR(&verdict, switchto_group_wait(&group, &soon), ETIMEDOUT);
	CHECK_EQ(&verdict, switchto_group_done(&group), 0);
	CHECK_EQ(&verdict, switchto_group_wait(&group, NULL), 0);
	/* Nobody is left in a queue. */
	switchto_sem_post(&sem);
	CHECK_EQ(&verdict, switchto_sem_wait(&sem, &soon), 0);
}

TEST(deadlines)
{
	reset();
	run_task(waits_time_out, NULL);
	waits_time_out(NULL);
	verdict_assert(&verdict);
}

static void wait_for_ever(void *arg)
{
	CHECK_EQ(&verdict, switchto_mutex_lock(&mutex), 0);
	counter++;
	CHECK_ERR(&verdict, switchto_cond_wait(&cond, &mutex, NULL), ECANCELED);
	/* With the mutex. */
	CHECK_EQ(&verdict, switchto_mutex_unlock(&mutex), 0);
	CHECK_ERR(&verdict, switchto_sem_wait(&sem, NULL), ECANCELED);
}

static void cancel_it(void *task)
{
	long waiting;

	/* Who has counted and given the mutex back waits. */
	do {
		CHECK_EQ(&verdict, switchto_yield(), 0);
		CHECK_EQ(&verdict, switchto_mutex_lock(&mutex), 0);
		waiting = counter;
		CHECK_EQ(&verdict, switchto_mutex_unlock(&mutex), 0);
	} while (waiting < 5);
	CHECK_EQ(&verdict, switchto_cancel(task), 0);
	CHECK_EQ(&verdict, switchto_join(task), 0);
}

TEST(cancelled)
{
	reset();
	for (int i = 0; i < 5; i++)
		add_task(cancel_it, add_handle(wait_for_ever, NULL));
	run_added();
}

/* --- semaphores: deadlines and posts at the same moment, and nothing is lost --- */

static void take_one(void *arg)
{
	int failed = 0;

	for (;;) {
		struct timespec soon = in(failed * 20000 % 300000);

		if (switchto_sem_wait(&sem, &soon) == 0)
			break;
		CHECK_EQ(&verdict, errno, ETIMEDOUT);
		failed++;
	}
	CHECK_EQ(&verdict, switchto_group_done(&group), 0);
}

static void post_all(void *arg)
{
	for (int i = 0; i < TASKS; i++) {
		struct timespec soon = in(100000);

		switchto_sem_post(&sem);
		switchto_sleep_until(&soon);
	}
	CHECK_EQ(&verdict, switchto_group_wait(&group, NULL), 0);
	CHECK_EQ(&verdict, sem.count, 0);
}

TEST(posts_and_deadlines)
{
	for (int round = 0; round < LOOPS(20); round++) {
		reset();
		switchto_group_add(&group, TASKS);
		for (int i = 0; i < TASKS; i++)
			add_task(take_one, NULL);
		add_task(post_all, NULL);
		run_added();
	}
}

/* --- who comes first, and who has waited for long --- */

enum { SECTIONS = 20000 };

static void short_sections(void *arg)
{
	for (int i = 0; i < LOOPS(SECTIONS); i++) {
		CHECK_EQ(&verdict, switchto_mutex_lock(&mutex), 0);
		counter++;
		CHECK_EQ(&verdict, switchto_mutex_unlock(&mutex), 0);
		for (volatile int pause = 0; pause < 100; pause++)
			;
	}
}

/* A task that finds the mutex locked sleeps once. It does not sleep for each section from then on. */
TEST(no_convoy)
{
	struct switchto_sched *sched = new_sched_with(NULL, SWITCHTO_MEASURE, slots);
	unsigned long long runs;

	reset();
	for (int i = 0; i < 8; i++)
		spawn(sched, short_sections, NULL);
	assert_int_equal(switchto_sched_run(sched), 0);
	runs = stats_of(sched).runs;
	run_tasks(sched);
	assert_int_equal(counter, 8L * LOOPS(SECTIONS));
	assert_true(runs < 8ULL * LOOPS(SECTIONS) / 4);
}

static void lock_once(void *arg)
{
	CHECK_EQ(&verdict, switchto_mutex_lock(&mutex), 0);
	atomic_store(&ready, true);
	CHECK_EQ(&verdict, switchto_mutex_unlock(&mutex), 0);
}

/* The mutex is free only when nobody else of the slot runs. */
static void lock_all_the_time(void *arg)
{
	const long long end = now_ns() + 20LL * NSEC_PER_SEC;

	while (!atomic_load(&ready) && now_ns() < end) {
		CHECK_EQ(&verdict, switchto_mutex_lock(&mutex), 0);
		CHECK_EQ(&verdict, switchto_yield(), 0);
		CHECK_EQ(&verdict, switchto_mutex_unlock(&mutex), 0);
	}
	CHECK(&verdict, atomic_load(&ready));
}

TEST(nobody_starves)
{
	struct switchto_sched *sched = new_sched(NULL);
	pthread_t thread;

	reset();
	spawn(sched, lock_all_the_time, NULL);
	spawn(sched, lock_once, NULL);
	run_tasks(sched);

	sched = new_sched(NULL);
	reset();
	spawn(sched, lock_all_the_time, NULL);
	thread = start_thread(lock_once, NULL);
	run_tasks(sched);
	pthread_join(thread, NULL);
}

/* The oldest is next on the slot of a task that never leaves it. */
static void lock_without_pause(void *arg)
{
	const long long end = thread_cpu_ns() + 2LL * NSEC_PER_SEC;

	CHECK_EQ(&verdict, switchto_mutex_lock(&mutex), 0);
	spawn(NULL, lock_once, NULL);
	CHECK_EQ(&verdict, switchto_yield(), 0);
	do {
		CHECK_EQ(&verdict, switchto_mutex_unlock(&mutex), 0);
		CHECK_EQ(&verdict, switchto_mutex_lock(&mutex), 0);
	} while (!atomic_load(&ready) && thread_cpu_ns() < end);
	CHECK_EQ(&verdict, switchto_mutex_unlock(&mutex), 0);
	CHECK(&verdict, atomic_load(&ready));
}

TEST(nobody_is_passed_for_long)
{
	reset();
	run_one(without_slices(NULL, 0, slots), lock_without_pause, NULL);
}

/* --- who waits for a mutex, among equals --- */

/* On a busy machine, whoever has the mutex may lose the slot: so often. */
enum { EQUALS = 200, LOST_SLOTS = 10 };

static struct switchto_mutex strict;
static unsigned int most_threads;
static const struct switchto_task_attr *equals; /* NULL: those of who is given the mutex */

static void lock_strict(void *arg)
{
	const unsigned int threads = entries("/proc/self/task");

	if (threads > most_threads)
		most_threads = threads;
	CHECK_EQ(&verdict, switchto_mutex_lock(&strict), 0);
	CHECK_EQ(&verdict, switchto_mutex_unlock(&strict), 0);
}

static void give_beside_equals(void *arg)
{
	CHECK_EQ(&verdict, switchto_mutex_lock(&strict), 0);
	spawn(NULL, lock_strict, NULL);
	while (!strict.waiters && strict.word <= (SWITCHTO_STRICT | 7))
		switchto_yield();
	for (int i = 0; i < EQUALS; i++)
		CHECK_EQ(&verdict, switchto_spawn(NULL, lock_strict, NULL, equals, NULL), 0);
	CHECK_EQ(&verdict, switchto_mutex_unlock(&strict), 0);
}

/* Whoever is given it runs before others begin, and block; also if it is as urgent by inheritance alone. */
TEST(given_before_equals_begin)
{
	static const struct switchto_task_attr sooner = { .priority = 1, .deadline = { 1, 0 } };

	for (int i = 0; i < 8; i++) {
		int tries = 0;

		do {
			struct switchto_sched *sched = without_slices(all_policies[i / 2], 0, 1);

			strict = (struct switchto_mutex)SWITCHTO_MUTEX_STRICT;
			most_threads = 0;
			equals = i % 2 ? &sooner : NULL;
			spawn(sched, give_beside_equals, NULL);
			run_tasks(sched);
			print_message("%s: %u threads\n", all_policies[i / 2]->name, most_threads);
		} while (most_threads >= EQUALS / 4 && ++tries < LOST_SLOTS);
		assert_true(tries < LOST_SLOTS);
	}
}

static void lock_until_ready(void *arg)
{
	while (!atomic_load(&ready)) {
		CHECK_EQ(&verdict, switchto_mutex_lock(&strict), 0);
		counter++;
		CHECK_EQ(&verdict, switchto_mutex_unlock(&strict), 0);
	}
}

/* Three tasks pass the mutex on, with @pass_on, and lock_once() is ready meanwhile. */
static void begin_a_round(void (*pass_on)(void *), void *arg)
{
	CHECK_EQ(&verdict, switchto_mutex_lock(&strict), 0);
	for (int task = 0; task < 2; task++)
		spawn(NULL, pass_on, arg);
	/* They wait for it from then on. */
	switchto_yield();
	spawn(NULL, lock_once, NULL);
	CHECK_EQ(&verdict, switchto_mutex_unlock(&strict), 0);
	pass_on(arg);
}

static void begin_among_equals(void *arg)
{
	begin_a_round(lock_until_ready, arg);
}

/* Those who are given it, again and again, let the others have their turn. */
TEST(equals_have_their_turn)
{
	for (int i = 0; i < 4; i++) {
		int tries = 0;

		do {
			struct switchto_sched *sched = without_slices(all_policies[i], 0, 1);

			reset();
			strict = (struct switchto_mutex)SWITCHTO_MUTEX_STRICT;
			spawn(sched, begin_among_equals, NULL);
			run_in_time(sched);
			print_message("%s: %ld sections before\n", all_policies[i]->name, counter);
		} while (counter >= 100 && ++tries < LOST_SLOTS);
		assert_true(tries < LOST_SLOTS);
	}
}

/* With the fair policy, those who go first pay for it: two that pass a mutex on have two shares of three. */
static long long alone_ns;
static bool others_wait;

static void compute_alone(void *arg)
{
	const long long before = thread_cpu_ns();

	while (!atomic_load(&ready)) {
		const long long end = thread_cpu_ns() + 20000;

		while (thread_cpu_ns() < end)
			;
		switchto_yield();
	}
	alone_ns = thread_cpu_ns() - before;
}

static void compute_in_turn(void *others_ns)
{
	const long long before = thread_cpu_ns();

	while (!atomic_load(&ready)) {
		const long long end = thread_cpu_ns() + 20000;

		CHECK_EQ(&verdict, switchto_mutex_lock(&strict), 0);
		if (!others_wait) {
			/* The other one waits for it from then on. */
			others_wait = true;
			switchto_yield();
		}
		while (thread_cpu_ns() < end)
			;
		CHECK_EQ(&verdict, switchto_mutex_unlock(&strict), 0);
		if (cpu_ns() > counter)
			atomic_store(&ready, true);
	}
	*(long long *)others_ns += thread_cpu_ns() - before;
}

TEST(fair_shares_beside_a_mutex)
{
	struct switchto_sched *sched = without_slices(&switchto_fair, 0, 1);
	long long others_ns = 0;

	reset();
	strict = (struct switchto_mutex)SWITCHTO_MUTEX_STRICT;
	counter = cpu_ns() + NSEC_PER_SEC;
	others_wait = false;
	for (int i = 0; i < 2; i++)
		spawn(sched, compute_in_turn, &others_ns);
	spawn(sched, compute_alone, NULL);
	run_tasks(sched);
	print_message("alone %lld of %lld ms\n", alone_ns / 1000000,
		      (alone_ns + others_ns) / 1000000);
	assert_true(alone_ns > (alone_ns + others_ns) / 5);
}

/* With deadlines, too, when a task with an earlier one comes in between. */
static void nap_often(void *arg)
{
	while (!atomic_load(&ready)) {
		for (int i = 0; i < 8 && !atomic_load(&ready); i++)
			switchto_park(NULL);
		counter++;
	}
}

static void pass_on_and_wake(void *napper)
{
	const long long end = thread_cpu_ns() + 5LL * NSEC_PER_SEC;

	while (!atomic_load(&ready) && thread_cpu_ns() < end) {
		CHECK_EQ(&verdict, switchto_mutex_lock(&strict), 0);
		switchto_unpark(napper);
		CHECK_EQ(&verdict, switchto_mutex_unlock(&strict), 0);
	}
	CHECK(&verdict, atomic_load(&ready));
	switchto_unpark(napper);
}

static void begin_beside_a_deadline(void *napper)
{
	begin_a_round(pass_on_and_wake, napper);
}

TEST(equals_have_their_turn_beside_a_deadline)
{
	const struct switchto_task_attr soon = { .deadline = { 1, 0 } };
	struct switchto_sched *sched = without_slices(&switchto_edf, 0, 1);
	struct switchto_task *napper;

	reset();
	strict = (struct switchto_mutex)SWITCHTO_MUTEX_STRICT;
	assert_int_equal(switchto_spawn(sched, nap_often, NULL, &soon, &napper), 0);
	spawn(sched, begin_beside_a_deadline, napper);
	assert_int_equal(switchto_detach(napper), 0);
	run_in_time(sched);
}

/* --- what is locked within an object --- */

static atomic_bool probe_over;
static int calls_held;

static void use_semaphore(void *arg)
{
	const struct timespec past = { 0 };

	while (!atomic_load(&probe_over))
		for (int i = 0; i < 200; i++) {
			switchto_sem_post(&sem);
			CHECK_EQ(&verdict, switchto_sem_wait(&sem, &past), 0);
		}
}

static void compute_for_long(void *arg)
{
	while (!atomic_load(&probe_over)) {
		const long long end = thread_cpu_ns() + NSEC_PER_SEC / 4;

		while (thread_cpu_ns() < end && !atomic_load(&probe_over))
			;
		switchto_yield();
	}
}

static void time_posts(void *arg)
{
	const struct timespec past = { 0 };
	const long long end = now_ns() + 2 * NSEC_PER_SEC;
	long long before = now_ns(), after;

	for (; before < end; before = after) {
		switchto_sem_post(&sem);
		CHECK_EQ(&verdict, switchto_sem_wait(&sem, &past), 0);
		after = now_ns();
		calls_held += after - before > NSEC_PER_SEC / 5;
	}
	atomic_store(&probe_over, true);
}

/* A post waits for nobody: nor until a task of another slot has its turn. A busy machine may hold it. */
TEST(post_waits_for_no_task)
{
	int attempt = 0;

	do {
		struct switchto_sched *sched = without_slices(NULL, 0, 2);

		reset();
		sem.count = 1000;
		calls_held = 0;
		atomic_store(&probe_over, false);
		for (int i = 0; i < 4; i++)
			assert_int_equal(switchto_spawn_on(sched, 0, use_semaphore, NULL, NULL,
							   NULL),
					 0);
		assert_int_equal(switchto_spawn_on(sched, 0, compute_for_long, NULL, NULL, NULL),
				 0);
		assert_int_equal(switchto_spawn_on(sched, 1, time_posts, NULL, NULL, NULL), 0);
		run_tasks(sched);
	} while (calls_held && ++attempt < 5);
	assert_int_equal(calls_held, 0);
}

/* --- an object may be gone as soon as somebody is woken --- */

static _Atomic(struct switchto_sem *) box;

static void wait_a_moment(void *arg)
{
	for (int i = 0; i < LOOPS(ROUNDS) * 10; i++) {
		struct switchto_sem *mine;
		struct timespec soon = in(30000);

		while (!(mine = atomic_load(&box)))
			;
		if (switchto_sem_wait(mine, &soon))
			CHECK_EQ(&verdict, errno, ETIMEDOUT);
		atomic_store(&box, NULL);
	}
}

/* Posts when the deadline passes. Who has taken the post does not look at the semaphore again. */
TEST(post_and_overwrite)
{
	struct switchto_sem posted;
	pthread_t thread;

	thread = start_thread(wait_a_moment, NULL);
	for (int i = 0; i < LOOPS(ROUNDS) * 10; i++) {
		bool waits;

		posted = (struct switchto_sem){ 0 };
		atomic_store(&box, &posted);
		spin_for(30000 + i % 64 * 1000);
		CHECK_EQ(&verdict, switchto_mutex_lock(&posted.queue.lock), 0);
		waits = posted.queue.first;
		CHECK_EQ(&verdict, switchto_mutex_unlock(&posted.queue.lock), 0);
		switchto_sem_post(&posted);
		if (waits && !posted.count)
			memset(&posted, 0x5a, sizeof(posted));
		while (atomic_load(&box))
			;
	}
	pthread_join(thread, NULL);
	verdict_assert(&verdict);
}

/* Tasks, threads, and tasks in regions: all sections are counted, whoever gives to whom. */
static void lock_in_regions(void *arg)
{
	for (int i = 0; i < LOOPS(ROUNDS); i++) {
		CHECK_EQ(&verdict, switchto_block_begin(), 0);
		CHECK_EQ(&verdict, switchto_mutex_lock(&mutex), 0);
		CHECK_EQ(&verdict, holders++, 0);
		counter++;
		CHECK_EQ(&verdict, --holders, 0);
		CHECK_EQ(&verdict, switchto_mutex_unlock(&mutex), 0);
		CHECK_EQ(&verdict, switchto_block_end(), 0);
	}
}

static void all_kinds_of_holders(struct switchto_mutex kind)
{
	reset();
	mutex = kind;
	run_in_both(count_under_lock, lock_in_regions);
	assert_int_equal(counter, (TASKS + THREADS) * LOOPS(ROUNDS));
	/* It is free again, and as it was. */
	assert_memory_equal(&mutex, &kind, sizeof(mutex));
}

TEST(tasks_regions_and_threads)
{
	all_kinds_of_holders((struct switchto_mutex){ 0 });
	all_kinds_of_holders((struct switchto_mutex)SWITCHTO_MUTEX_STRICT);
}
