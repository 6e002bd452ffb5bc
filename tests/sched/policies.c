// SPDX-License-Identifier: MIT
/* What each policy promises: order, shares, deadlines, and who does not starve. */
#include "sched.h"

/* All on one slot: the order of two slots is nobody's promise. */

static char order[64];
static size_t written;

static void write_letter(void *letter)
{
	order[written++] = *(char *)letter;
}

static void spawn_with(struct switchto_sched *sched, void (*fn)(void *), void *arg,
		       struct switchto_task_attr attr)
{
	CHECK_EQ(&verdict, switchto_spawn(sched, fn, arg, &attr, NULL), 0);
}

/* --- priority --- */

TEST(highest_priority_first)
{
	static const int priorities[] = { 1, 31, 0, 1, 5, -3, 1000, 31 };
	static char letters[] = "abcdefgh";
	struct switchto_sched *sched = new_sched(&switchto_priority);

	written = 0;
	for (int i = 0; i < 8; i++)
		spawn_with(sched, write_letter, &letters[i],
			   (struct switchto_task_attr){ .priority = priorities[i] });
	run_tasks(sched);
	/* 1000 counts as 31, -3 as 0. */
	assert_memory_equal(order, "bgheadcf", 8);
}

/* --- edf --- */

TEST(deadlines_in_order)
{
	static char letters[28];
	struct switchto_sched *sched = new_sched(&switchto_edf);
	static char places[26];
	unsigned int seed = 1;

	written = 0;
	for (int i = 0; i < 26; i++) {
		int j;

		do
			j = rand_r(&seed) % 26;
		while (places[j]);
		places[j] = 1;
		letters[j] = (char)('a' + j);
		spawn_with(sched, write_letter, &letters[j],
			   (struct switchto_task_attr){ .deadline = { 100 + j / 2, j % 2 } });
	}
	letters[26] = 'Y';
	letters[27] = 'Z';
	/* Without a deadline: after all others, in their order. */
	spawn_with(sched, write_letter, &letters[26], (struct switchto_task_attr){ 0 });
	spawn_with(sched, write_letter, &letters[27], (struct switchto_task_attr){ 0 });
	run_tasks(sched);
	assert_memory_equal(order, "abcdefghijklmnopqrstuvwxyzYZ", 28);
}

/* What has passed comes first, also from before the clock began; and never is late, but a time. */
TEST(far_deadlines)
{
	static char letters[] = "abcdef";
	const struct timespec at[] = {
		{ -1, 0 }, { 100, 0 }, { 1000000000, 0 }, { LONG_MAX, 0 }, { 1, -1 }, { 0 },
	};
	struct switchto_sched *sched = new_sched(&switchto_edf);

	written = 0;
	for (int i = 5; i >= 0; i--)
		spawn_with(sched, write_letter, &letters[i],
			   (struct switchto_task_attr){ .deadline = at[i] });
	run_tasks(sched);
	assert_memory_equal(order, "abcdef", 6);
}

/* A task that has lost its slot, or the CPU, on a busy machine may miss some turns. */
enum { EQUALS = 8, TURNS = 100, FEW_TURNS = 20 };

static int turns_of[EQUALS];
static atomic_bool one_has_all;

static void take_turn(void *which)
{
	while (!atomic_load(&one_has_all)) {
		if (++turns_of[(long)which] == TURNS)
			atomic_store(&one_has_all, true);
		CHECK_EQ(&verdict, switchto_yield(), 0);
	}
}

static void in_turn(const struct switchto_policy *policy, struct switchto_task_attr attr)
{
	struct switchto_sched *sched = without_slices(policy, 0, 1);

	memset(turns_of, 0, sizeof(turns_of));
	atomic_store(&one_has_all, false);
	for (long i = 0; i < EQUALS; i++)
		spawn_with(sched, take_turn, (void *)i, attr);
	run_tasks(sched);
	for (int i = 0; i < EQUALS; i++)
		assert_in_range(turns_of[i], FEW_TURNS, TURNS);
}

TEST(equals_take_turns)
{
	in_turn(&switchto_priority, (struct switchto_task_attr){ .priority = 5 });
	in_turn(&switchto_edf, (struct switchto_task_attr){ .deadline = { 1, 1 } });
	in_turn(&switchto_edf, (struct switchto_task_attr){ .deadline = { 1, -1 } });
	in_turn(&switchto_edf, (struct switchto_task_attr){ 0 });
}

/* --- fair --- */

/*
 * It is time that is shared, not turns: steps have different lengths. On a busy machine a step takes
 * as long as the machine likes, so the threads that run tasks have a clock which only steps move.
 */
static _Thread_local bool has_own_clock;
static long long own_clock;

int clock_gettime(clockid_t clock, struct timespec *now)
{
	if (!has_own_clock || clock != CLOCK_MONOTONIC)
		return (int)syscall(SYS_clock_gettime, clock, now);
	*now = (struct timespec){ own_clock / NSEC_PER_SEC, own_clock % NSEC_PER_SEC };
	return 0;
}

static long long ran[3], end_at;
static atomic_bool over;

static void step(void *which)
{
	const long me = (long)which;

	has_own_clock = true;
	while (own_clock < end_at) {
		own_clock += 100000 * (me + 1);
		ran[me] += 100000 * (me + 1);
		CHECK_EQ(&verdict, switchto_yield(), 0);
	}
	has_own_clock = false;
}

TEST(shares_by_weight)
{
	struct switchto_sched *sched = new_sched(&switchto_fair);

	memset(ran, 0, sizeof(ran));
	own_clock = now_ns();
	end_at = own_clock + NSEC_PER_SEC;
	spawn_with(sched, step, (void *)0, (struct switchto_task_attr){ .weight = 1 });
	spawn_with(sched, step, (void *)1, (struct switchto_task_attr){ .weight = 2 });
	spawn_with(sched, step, (void *)2, (struct switchto_task_attr){ .weight = 4 });
	has_own_clock = true;
	run_tasks(sched);
	has_own_clock = false;
	assert_in_range(ran[1] * 100 / ran[0], 198, 202);
	assert_in_range(ran[2] * 100 / ran[0], 396, 404);
}

/* Each spawns the next one, and ends. */
static void step_and_spawn(void *arg)
{
	has_own_clock = true;
	own_clock += 20000;
	ran[0] += 20000;
	if (own_clock < end_at)
		spawn(NULL, step_and_spawn, arg);
}

/* A task that waits is not passed for ever by tasks that begin later, nor by equals with any weight. */
TEST(nobody_starves)
{
	struct switchto_sched *sched = new_sched(&switchto_fair);

	memset(ran, 0, sizeof(ran));
	own_clock = now_ns();
	end_at = own_clock + NSEC_PER_SEC;
	spawn(sched, step, (void *)1);
	spawn(sched, step_and_spawn, NULL);
	has_own_clock = true;
	run_tasks(sched);
	has_own_clock = false;
	assert_in_range(ran[1] * 100 / ran[0], 95, 105);
	in_turn(&switchto_fair, (struct switchto_task_attr){ .weight = UINT_MAX });
}

/* --- fifo: woken tasks run next --- */

enum { WOKEN = 20, READY = 40, IN_A_ROW = 16, ROUNDS = 20 };

struct place {
	int place;	/* among the woken ones */
	int ready_ones; /* that ran before it */
};

static struct place places[WOKEN];
static int woken_ones, ready_ones;
static struct switchto_sem sem;
static struct switchto_cond cond;
static struct switchto_mutex mutex;
static struct timespec times[WOKEN];

static void by_sem(long me)
{
	(void)me;
	CHECK_EQ(&verdict, switchto_sem_wait(&sem, NULL), 0);
}

static void by_cond(long me)
{
	(void)me;
	CHECK_EQ(&verdict, switchto_mutex_lock(&mutex), 0);
	CHECK_EQ(&verdict, switchto_cond_wait(&cond, &mutex, NULL), 0);
	CHECK_EQ(&verdict, switchto_mutex_unlock(&mutex), 0);
}

static void by_time(long me)
{
	CHECK_EQ(&verdict, switchto_sleep_until(&times[me]), 0);
}

static void (*const waits[])(long me) = { by_sem, by_cond, by_time };
/*
 * On a slow machine, wake_all() gives way before it has woken all. And if a task loses its slot, in a
 * page fault for example, those behind it run first. Then another round decides.
 */
static bool gave_way;
static void (*wait_once)(long me);

static void be_woken(void *arg)
{
	const long me = (long)arg;

	wait_once(me);
	places[me] = (struct place){ woken_ones++, ready_ones };
}

static void be_ready(void *arg)
{
	ready_ones++;
}

static void wake_all(void *arg)
{
	const long long begun = now_ns();
	long long end;

	for (long i = 0; i < READY; i++)
		spawn(NULL, be_ready, NULL);
	for (int i = 0; i < WOKEN && wait_once == by_sem; i++)
		switchto_sem_post(&sem);
	if (wait_once == by_cond)
		switchto_cond_broadcast(&cond);
	end = to_ns(&times[WOKEN - 1]);
	while (wait_once == by_time && now_ns() <= end)
		;
	gave_way = ready_ones || woken_ones;
	/* The slot looks at the clock each millisecond: it may have done so just before the end. */
	if (wait_once == by_time && end - begun < 2000000)
		gave_way = true;
}

static void sleep_all(void *arg)
{
	for (long i = 0; i < WOKEN; i++) {
		times[i] = in(20000000 + i * 1000);
		spawn(NULL, be_woken, (void *)i);
	}
	/* When all of them sleep. */
	CHECK_EQ(&verdict, switchto_yield(), 0);
	spawn(NULL, wake_all, NULL);
}

/* In the order of their wakes: 16 of them, then one of the others, and so on. */
TEST(woken_tasks_run_next)
{
	for (int i = 0; i < 3 * ROUNDS; i++) {
		/* At a slice's end, the ready ones could begin between two steps of wake_all(). */
		struct switchto_sched *sched = without_slices(NULL, SWITCHTO_MEASURE, slots);

		wait_once = waits[i / ROUNDS];
		woken_ones = ready_ones = 0;
		spawn(sched, sleep_all, NULL);
		if (!run_undisturbed(sched) || gave_way)
			continue;
		/* The next way to wait. */
		i += ROUNDS - 1 - i % ROUNDS;
		for (int task = 0; task < WOKEN; task++) {
			assert_int_equal(places[task].place, task);
			/* A passed deadline is seen at the next look at the clock. */
			if (wait_once != by_time)
				assert_int_equal(places[task].ready_ones, task / IN_A_ROW);
			else
				assert_true(places[task].ready_ones < READY);
		}
	}
}

/* --- nobody starves --- */

static int turns;

static void wake_each_other(void *other)
{
	struct switchto_task **task = other;

	while (!atomic_load(&over)) {
		switchto_unpark(*task);
		switchto_park(NULL);
	}
	switchto_unpark(*task);
}

static void count_to_ten(void *arg)
{
	for (turns = 0; turns < 10; turns++)
		CHECK_EQ(&verdict, switchto_yield(), 0);
	atomic_store(&over, true);
}

/* Two tasks wake each other for ever. A third one has its turns beside them. */
TEST(woken_tasks_starve_nobody)
{
	const struct switchto_policy *const policies[] = { &switchto_fifo, &switchto_fair };

	for (int i = 0; i < 2; i++) {
		struct switchto_sched *sched = new_sched(policies[i]);
		struct switchto_task *pair[2];

		atomic_store(&over, false);
		turns = 0;
		pair[0] = spawn_handle(sched, wake_each_other, &pair[1]);
		pair[1] = spawn_handle(sched, wake_each_other, &pair[0]);
		spawn(sched, count_to_ten, NULL);
		assert_int_equal(switchto_sched_run(sched), 0);
		CHECK_EQ(&verdict, switchto_join(pair[0]), 0);
		CHECK_EQ(&verdict, switchto_join(pair[1]), 0);
		run_tasks(sched);
		assert_int_equal(turns, 10);
	}
}

/* --- a policy of the program's own: last in, first out --- */

static void push(void *queue, struct switchto_entry *entry, enum switchto_reason why)
{
	struct switchto_entry **first = queue;

	entry->next = *first;
	*first = entry;
}

static struct switchto_entry *pop(void *queue)
{
	struct switchto_entry **first = queue, *entry = *first;

	if (entry)
		*first = entry->next;
	return entry;
}

TEST(own_policy)
{
	static const struct switchto_policy lifo = {
		.name = "lifo", .queue_size = sizeof(void *), .enqueue = push, .pick = pop
	};
	static char letters[] = "abc";
	struct switchto_sched *sched = new_sched(&lifo);

	written = 0;
	for (char *c = letters; *c; c++)
		spawn(sched, write_letter, c);
	run_tasks(sched);
	/* All three came by the inbox, in their order, before the first was picked. */
	assert_memory_equal(order, "cba", 3);
}

int main(int argc, char **argv)
{
	/* As in new_sched_in_order(). */
	setenv("SWITCHTO_BLOCK", "monitor", true);
	return run_sched_tests(argc, argv);
}
