// SPDX-License-Identifier: MIT
/* What a task that has a mutex inherits from those that wait for it, and for how long. */
#include "sched.h"

/* --- the order, on one slot --- */

static const struct switchto_policy *policy;
static char order[16];
static size_t written;
static struct switchto_mutex mutexes[2];

static void write_letter(char letter)
{
	order[written++] = letter;
	order[written] = '\0';
}

static struct switchto_task_attr urgency(int urgency)
{
	if (policy == &switchto_edf)
		return (struct switchto_task_attr){
			.deadline = { .tv_sec = urgency ? 1000 - urgency : 0 }
		};
	return (struct switchto_task_attr){ .priority = urgency };
}

static struct switchto_task *urgent_handle(struct switchto_sched *sched, void (*fn)(void *),
					   int how)
{
	const struct switchto_task_attr attr = urgency(how);
	struct switchto_task *task;

	CHECK_EQ(&verdict, switchto_spawn(sched, fn, NULL, &attr, &task), 0);
	return task;
}

static void spawn_urgent(struct switchto_sched *sched, void (*fn)(void *), int how)
{
	CHECK_EQ(&verdict, switchto_detach(urgent_handle(sched, fn, how)), 0);
}

static void lock(int which)
{
	CHECK_EQ(&verdict, switchto_mutex_lock(&mutexes[which]), 0);
}

static void unlock(int which)
{
	CHECK_EQ(&verdict, switchto_mutex_unlock(&mutexes[which]), 0);
}

static void yield(void)
{
	CHECK_EQ(&verdict, switchto_yield(), 0);
}

static void middle(void *arg)
{
	write_letter('m');
}

static void high(void *arg)
{
	lock(0);
	write_letter('h');
	unlock(0);
}

static void low(void *arg)
{
	lock(0);
	spawn_urgent(NULL, high, 9);
	spawn_urgent(NULL, middle, 5);
	yield();
	write_letter('l');
	unlock(0);
	/* It has given back what it inherited. */
	yield();
	write_letter('L');
}

/* The high one waits for the second mutex, whose holder waits for the first one. */
static void high_in_chain(void *arg)
{
	lock(1);
	write_letter('h');
	unlock(1);
}

static void link_of_chain(void *arg)
{
	lock(1);
	spawn_urgent(NULL, high_in_chain, 9);
	spawn_urgent(NULL, middle, 5);
	lock(0);
	write_letter('2');
	unlock(0);
	unlock(1);
}

static void chain(void *arg)
{
	lock(0);
	spawn_urgent(NULL, link_of_chain, 2);
	yield();
	yield();
	write_letter('1');
	unlock(0);
}

/* The oldest is low. It is to run soon, since a high one waits behind it. */
static void second(void *arg)
{
	lock(0);
	write_letter('2');
	unlock(0);
}

static void first_of_three(void *arg)
{
	lock(0);
	spawn_urgent(NULL, second, 2);
	yield();
	spawn_urgent(NULL, high, 9);
	spawn_urgent(NULL, middle, 5);
	yield();
	write_letter('1');
	unlock(0);
}

/* Tries for a while only: when it gives up, the other one gives back what it inherited. */
static atomic_bool gave_up;

static void impatient(void *arg)
{
	const struct timespec at = in(20000000);

	CHECK_EQ(&verdict, switchto_mutex_lock_until(&mutexes[0], &at), -1);
	CHECK_EQ(&verdict, errno, ETIMEDOUT);
	write_letter('t');
	atomic_store(&gave_up, true);
}

static void slow(void *arg)
{
	atomic_store(&gave_up, false);
	lock(0);
	spawn_urgent(NULL, impatient, 9);
	spawn_urgent(NULL, middle, 5);
	while (!atomic_load(&gave_up))
		yield();
	yield();
	write_letter('l');
	unlock(0);
}

/* The one that waits becomes urgent; the other's own urgency changes, and counts afterwards. */
static void third(void *arg)
{
	lock(0);
	write_letter('w');
	unlock(0);
}

static void set_urgency(struct switchto_task *task, int how)
{
	const struct switchto_task_attr attr = urgency(how);

	CHECK_EQ(&verdict, switchto_task_set_attr(task, &attr), 0);
}

static void changed(void *arg)
{
	struct switchto_task *waits;

	lock(0);
	waits = urgent_handle(NULL, third, 3);
	yield();
	spawn_urgent(NULL, middle, 5);
	set_urgency(waits, 9);
	set_urgency(switchto_task_self(), 4);
	yield();
	write_letter('l');
	unlock(0);
	spawn_urgent(NULL, middle, 3);
	yield();
	write_letter('L');
	CHECK_EQ(&verdict, switchto_join(waits), 0);
}

static void in_order(void (*begin)(void *), const char *wanted)
{
	bool undisturbed = false;

	/* Whoever naps between two steps would lose the slot if the kernel told of it. */
	setenv("SWITCHTO_BLOCK", "monitor", true);
	for (int i = 0; i < 100 && !undisturbed; i++) {
		struct switchto_sched *sched = without_slices(policy, SWITCHTO_MEASURE, 1);

		written = 0;
		spawn_urgent(sched, begin, 1);
		undisturbed = run_undisturbed(sched);
	}
	unsetenv("SWITCHTO_BLOCK");
	assert_true(undisturbed);
	assert_string_equal(order, wanted);
}

static void with_policy(const struct switchto_policy *chosen)
{
	policy = chosen;
	in_order(low, "lhmL");
	in_order(chain, "12hm");
	in_order(first_of_three, "12hm");
	in_order(slow, "tml");
	in_order(changed, "lwmLm");
}

TEST(holder_runs_first)
{
	with_policy(&switchto_priority);
	with_policy(&switchto_edf);
	/* Without priorities: in line. */
	policy = &switchto_fifo;
	in_order(low, "mlhL");
}

/* --- at the end, each task has what is its own: many at once, in all ways --- */

enum { TASKS = 12, MUTEXES = 3 };

static atomic_int noted[TASKS + 1];
static struct switchto_mutex shared[MUTEXES];

/* The weight says which task it is. */
static void note(void *queue, struct switchto_entry *entry, enum switchto_reason why)
{
	atomic_store(&noted[entry->attr.weight], entry->attr.priority);
	switchto_priority.enqueue(queue, entry, why);
}

static bool lock_somehow(struct switchto_mutex *mutex, uint32_t *dice)
{
	const struct timespec at = in(random_next(dice) % 200000);

	switch (random_next(dice) % 6) {
	case 0:
	case 1:
		if (!switchto_mutex_lock_until(mutex, &at))
			return true;
		CHECK_EQ(&verdict, errno, ETIMEDOUT);
		return false;
	case 2:
		CHECK_EQ(&verdict, switchto_block_begin(), 0);
		CHECK_EQ(&verdict, switchto_mutex_lock(mutex), 0);
		CHECK_EQ(&verdict, switchto_block_end(), 0);
		return true;
	default:
		CHECK_EQ(&verdict, switchto_mutex_lock(mutex), 0);
		return true;
	}
}

static void lock_all(uint32_t *dice)
{
	bool has[MUTEXES] = { false };

	for (int i = 0; i < MUTEXES; i++) {
		if (random_next(dice) % 2)
			continue;
		has[i] = lock_somehow(&shared[i], dice);
		if (!(random_next(dice) % 3))
			CHECK_EQ(&verdict, switchto_yield(), 0);
	}
	for (int i = 0; i < MUTEXES; i++)
		if (has[i])
			CHECK_EQ(&verdict, switchto_mutex_unlock(&shared[i]), 0);
}

static void lock_often(void *arg)
{
	const unsigned int me = (unsigned int)(uintptr_t)arg;
	uint32_t dice = me * 2 + 1;

	for (int i = 0; i < LOOPS(400); i++) {
		struct switchto_task_attr attr = {
			.priority = (int)(random_next(&dice) % SWITCHTO_PRIORITIES), .weight = me
		};

		CHECK_EQ(&verdict, switchto_task_set_attr(switchto_task_self(), &attr), 0);
		lock_all(&dice);
		/* The first pick makes the change; it may be that of another task. */
		for (int j = 0; j < 3; j++)
			CHECK_EQ(&verdict, switchto_yield(), 0);
		CHECK_EQ(&verdict, atomic_load(&noted[me]), attr.priority);
	}
}

static atomic_bool over;

/* A thread has no priority, and passes nothing on. */
static void lock_in_thread(void *arg)
{
	uint32_t dice = 1;

	while (!atomic_load(&over)) {
		struct switchto_mutex *mutex = &shared[random_next(&dice) % MUTEXES];

		CHECK_EQ(&verdict, switchto_mutex_lock(mutex), 0);
		random_delay(&dice, 20000);
		CHECK_EQ(&verdict, switchto_mutex_unlock(mutex), 0);
		random_delay(&dice, 100000);
	}
}

static void race(unsigned int flags, bool strict)
{
	struct switchto_policy noting = switchto_priority;
	struct switchto_sched *sched;
	pthread_t thread;

	noting.enqueue = note;
	sched = new_sched_with(&noting, flags, slots);
	for (int i = 0; i < MUTEXES; i++)
		shared[i] = strict ? (struct switchto_mutex)SWITCHTO_MUTEX_STRICT :
				     (struct switchto_mutex){ 0 };
	for (uintptr_t i = 1; i <= TASKS; i++)
		spawn(sched, lock_often, (void *)i);
	atomic_store(&over, false);
	thread = start_thread(lock_in_thread, NULL);
	run_in_time(sched);
	atomic_store(&over, true);
	pthread_join(thread, NULL);
	for (int i = 0; i < MUTEXES; i++)
		assert_true(shared[i].word == (strict ? SWITCHTO_STRICT : 0) && !shared[i].waiters);
}

TEST(each_has_its_own_again)
{
	race(0, false);
	race(0, true);
	race(SWITCHTO_STEAL, false);
}

/* --- tasks that end --- */

/* The weight says what the task's own priority is. */
static void check_own(void *queue, const struct switchto_entry *entry)
{
	CHECK_EQ(&verdict, entry->attr.priority, entry->attr.weight);
}

static struct switchto_policy checking(void)
{
	struct switchto_policy policy = switchto_priority;

	policy.end = check_own;
	return policy;
}

static struct switchto_task *weighted_handle(struct switchto_sched *sched, void (*fn)(void *),
					     void *arg, unsigned int priority)
{
	const struct switchto_task_attr attr = { .priority = (int)priority, .weight = priority };
	struct switchto_task *task;

	CHECK_EQ(&verdict, switchto_spawn(sched, fn, arg, &attr, &task), 0);
	return task;
}

static void lock_once(void *arg)
{
	lock(0);
	unlock(0);
}

static void end_when_raised(void *arg)
{
	struct switchto_task *waits;

	lock(0);
	waits = weighted_handle(NULL, lock_once, NULL, 9);
	yield();
	CHECK_EQ(&verdict, switchto_detach(waits), 0);
	unlock(0);
}

TEST(policy_ends_own_attributes)
{
	const struct switchto_policy policy = checking();
	struct switchto_sched *sched = new_sched_with(&policy, 0, 1);

	assert_int_equal(switchto_detach(weighted_handle(sched, end_when_raised, NULL, 1)), 0);
	run_tasks(sched);
}

static void try_briefly(void *seed)
{
	uint32_t dice = (uint32_t)(uintptr_t)seed | 1;
	struct switchto_mutex *mutex = &shared[random_next(&dice) % MUTEXES];
	const struct timespec at = in(random_next(&dice) % 50000);

	if (!(random_next(&dice) % 4)) {
		CHECK_EQ(&verdict, switchto_mutex_lock(mutex), 0);
	} else if (switchto_mutex_lock_until(mutex, &at)) {
		CHECK_EQ(&verdict, errno, ETIMEDOUT);
		return;
	}
	if (random_next(&dice) % 2)
		CHECK_EQ(&verdict, switchto_yield(), 0);
	CHECK_EQ(&verdict, switchto_mutex_unlock(mutex), 0);
}

static void spawn_brief(void *seed)
{
	uint32_t dice = (uint32_t)(uintptr_t)seed;
	struct switchto_task *tasks[8];

	for (int i = 0; i < LOOPS(300); i++) {
		for (int j = 0; j < 8; j++)
			tasks[j] = weighted_handle(NULL, try_briefly,
						   (void *)(uintptr_t)random_next(&dice),
						   random_next(&dice) % SWITCHTO_PRIORITIES);
		for (int j = 0; j < 8; j++)
			CHECK_EQ(&verdict, switchto_join(tasks[j]), 0);
	}
}

static void run_other(void *sched)
{
	CHECK_EQ(&verdict, switchto_sched_run(sched), 0);
	CHECK_EQ(&verdict, switchto_sched_destroy(sched), 0);
}

static void race_briefly(unsigned int flags, bool strict)
{
	const struct switchto_policy policy = checking();
	struct switchto_sched *sched = new_sched_with(&policy, flags, slots);
	struct switchto_sched *other = new_sched_with(&policy, 0, 1);
	pthread_t thread, runs;

	for (int i = 0; i < MUTEXES; i++)
		shared[i] = strict ? (struct switchto_mutex)SWITCHTO_MUTEX_STRICT :
				     (struct switchto_mutex){ 0 };
	for (uintptr_t i = 1; i <= 2; i++)
		assert_int_equal(switchto_detach(weighted_handle(sched, spawn_brief, (void *)i, 3)),
				 0);
	assert_int_equal(switchto_detach(weighted_handle(other, spawn_brief, (void *)3, 3)), 0);
	atomic_store(&over, false);
	thread = start_thread(lock_in_thread, NULL);
	runs = start_thread(run_other, other);
	run_in_time(sched);
	pthread_join(runs, NULL);
	atomic_store(&over, true);
	pthread_join(thread, NULL);
	verdict_assert(&verdict);
	for (int i = 0; i < MUTEXES; i++)
		assert_true(shared[i].word == (strict ? SWITCHTO_STRICT : 0) && !shared[i].waiters);
}

/* Also of two schedulers, and beside a thread. */
TEST(brief_tasks_give_up)
{
	race_briefly(0, false);
	race_briefly(0, true);
	race_briefly(SWITCHTO_STEAL, false);
}

/* --- a task that is stolen --- */

static atomic_bool has_mutex, was_served;

static void be_stolen(void *arg)
{
	lock(0);
	atomic_store(&has_mutex, true);
	yield();
	unlock(0);
}

static void wait_for_stolen(void *arg)
{
	lock(0);
	unlock(0);
	atomic_store(&was_served, true);
}

static void spawn_at(int slot, void (*fn)(void *), int priority)
{
	const struct switchto_task_attr attr = { .priority = priority };
	struct switchto_task *task;

	CHECK_EQ(&verdict, switchto_spawn_on(NULL, slot, fn, NULL, &attr, &task), 0);
	CHECK_EQ(&verdict, switchto_detach(task), 0);
}

/* Its slot does not pick a task until the other slot has. */
static void compute_beside(void *arg)
{
	const long long end = now_ns() + 20 * NSEC_PER_SEC;

	spawn_at(SWITCHTO_NEAR, be_stolen, 1);
	while (!atomic_load(&has_mutex))
		yield();
	spawn_at(1, wait_for_stolen, 9);
	while (!atomic_load(&was_served) && now_ns() < end)
		;
	CHECK(&verdict, atomic_load(&was_served));
}

TEST(stolen_when_due)
{
	for (int i = 0; i < 5 && slots > 1; i++) {
		struct switchto_sched *sched = without_slices(&switchto_priority, SWITCHTO_STEAL,
							      2);
		const struct switchto_task_attr attr = { .priority = 1 };
		struct switchto_task *task;

		atomic_store(&has_mutex, false);
		atomic_store(&was_served, false);
		assert_int_equal(switchto_spawn_on(sched, 0, compute_beside, NULL, &attr, &task),
				 0);
		assert_int_equal(switchto_detach(task), 0);
		run_in_time(sched);
	}
}

/* --- a policy that is wrong --- */

static void inherit_more(struct switchto_task_attr *attr, const struct switchto_task_attr *from)
{
	attr->priority = from->priority + 1;
}

static PER_TEST atomic_int arrived;

/* Two wait for each other, until their deadlines. */
static void in_circle(void *arg)
{
	const int mine = arg != NULL;
	const struct timespec at = in(20000000);

	lock(mine);
	atomic_fetch_add(&arrived, 1);
	while (atomic_load(&arrived) < 2)
		yield();
	CHECK_ERR(&verdict, switchto_mutex_lock_until(&mutexes[!mine], &at), ETIMEDOUT);
	atomic_fetch_add(&arrived, 1);
	/* It is as urgent as can be: the other one runs while this one sleeps. */
	while (atomic_load(&arrived) < 4)
		sleep_for(1000000);
	unlock(mine);
}

TEST(circle_ends)
{
	struct switchto_policy policy = switchto_priority;
	struct switchto_sched *sched;

	policy.inherit = inherit_more;
	sched = new_sched_with(&policy, 0, slots);
	spawn(sched, in_circle, NULL);
	spawn(sched, in_circle, &policy);
	run_in_time(sched);
}
