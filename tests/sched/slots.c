// SPDX-License-Identifier: MIT
/* Where a task runs, and what its policy knows of it. */
#include "sched.h"

enum { EACH = 10 };

static atomic_int ran[64];

static void count_slot(void *wanted)
{
	const int slot = switchto_task_slot(switchto_task_self());

	if ((intptr_t)wanted >= 0)
		CHECK_EQ(&verdict, slot, (intptr_t)wanted);
	atomic_fetch_add(&ran[slot], 1);
	CHECK_EQ(&verdict, switchto_yield(), 0);
	if ((intptr_t)wanted >= 0)
		CHECK_EQ(&verdict, switchto_task_slot(switchto_task_self()), (intptr_t)wanted);
}

static void spawn_everywhere(void *sched)
{
	const int slot = sched ? -1 : switchto_task_slot(switchto_task_self());

	for (int i = 0; i < EACH; i++)
		for (intptr_t on = 0; on < (intptr_t)slots; on++) {
			CHECK_EQ(&verdict,
				 switchto_spawn_on(sched, (int)on, count_slot, (void *)on, NULL,
						   NULL),
				 0);
			CHECK_EQ(&verdict,
				 switchto_spawn_on(sched, SWITCHTO_ANY, count_slot, (void *)-1,
						   NULL, NULL),
				 0);
			if (sched)
				continue;
			CHECK_EQ(&verdict,
				 switchto_spawn_on(NULL, SWITCHTO_THIS, count_slot,
						   (void *)(intptr_t)slot, NULL, NULL),
				 0);
		}
}

static void spread(unsigned int flags)
{
	struct switchto_sched *sched = new_sched_with(NULL, flags, slots);
	struct switchto_task *task;

	for (unsigned int i = 0; i < slots; i++)
		atomic_store(&ran[i], 0);
	assert_int_equal(switchto_sched_slots(sched), slots);
	spawn_everywhere(sched);
	CHECK_ERR(&verdict, switchto_spawn_on(sched, SWITCHTO_THIS, count_slot, NULL, NULL, NULL),
		  EINVAL);
	CHECK_ERR(&verdict, switchto_spawn_on(sched, -4, count_slot, NULL, NULL, NULL), EINVAL);
	CHECK_ERR(&verdict, switchto_spawn_on(sched, (int)slots, count_slot, NULL, NULL, NULL),
		  EINVAL);
	CHECK_ERR(&verdict, switchto_spawn_on(NULL, 0, count_slot, NULL, NULL, NULL), EPERM);
	assert_int_equal(switchto_spawn_on(sched, SWITCHTO_NEAR, count_slot, (void *)-1, NULL,
					   &task),
			 0);
	assert_int_equal(switchto_detach(task), 0);
	assert_int_equal(switchto_spawn_on(sched, 0, spawn_everywhere, NULL, NULL, NULL), 0);
	run_in_time(sched);
	/* By number, and in turn, from outside and from the task; and the task's own slot. */
	for (unsigned int i = 0; i < slots && !flags; i++)
		assert_true(atomic_load(&ran[i]) >= 4 * EACH);
}

TEST(chosen_slots)
{
	spread(0);
	spread(SWITCHTO_STEAL);
	CHECK_ERR(v, switchto_task_slot(NULL), EINVAL);
	assert_int_equal(switchto_sched_slots(NULL), 0);
	assert_int_equal(errno, EINVAL);
}

/* --- other attributes --- */

static char order[64];
static PER_TEST size_t written;
/* Every change succeeded. */
static bool changed;

static void write_letter(void *letter)
{
	order[written++] = *(char *)letter;
	order[written] = '\0';
}

static struct switchto_task_attr attr_of(const struct switchto_policy *policy, int urgency)
{
	if (policy == &switchto_edf)
		return (struct switchto_task_attr){
			.deadline = { .tv_sec = urgency ? 1000 - urgency : 0 }
		};
	return (struct switchto_task_attr){ .priority = urgency };
}

/* All are ready, and change places: also those without a deadline. */
static void change_places(void *arg)
{
	static char letters[] = "abcdefg";
	const struct switchto_policy *policy = arg;
	struct switchto_task *tasks[7];

	for (int i = 0; i < 7; i++) {
		const struct switchto_task_attr attr = attr_of(policy, i == 6 ? 0 : 10 - i);

		CHECK_EQ(&verdict,
			 switchto_spawn_on(NULL, SWITCHTO_THIS, write_letter, &letters[i], &attr,
					   &tasks[i]),
			 0);
	}
	/* Of the task that calls, too: so it does not give way before. */
	for (int i = 0; i < 3; i++) {
		static const int urgencies[] = { 1, 20, 15 };
		static const int which[] = { 0, 4, 6 };
		const struct switchto_task_attr attr = attr_of(policy, urgencies[i]);

		changed = switchto_task_set_attr(tasks[which[i]], &attr) == 0 && changed;
	}
	for (int i = 0; i < 7; i++)
		CHECK_EQ(&verdict, switchto_join(tasks[i]), 0);
}

static void places_change_in(const struct switchto_policy *policy, unsigned int flags)
{
	const long long end = now_ns() + 30LL * NSEC_PER_SEC;
	bool undisturbed = false;

	while (!undisturbed && now_ns() < end) {
		struct switchto_sched *sched = new_sched_with(policy, flags | SWITCHTO_MEASURE, 1);

		written = 0;
		changed = true;
		spawn(sched, change_places, (void *)policy);
		undisturbed = run_undisturbed(sched);
	}
	assert_true(undisturbed && changed);
	assert_string_equal(order, "egbcdfa");
}

TEST(places_change)
{
	places_change_in(&switchto_priority, 0);
	places_change_in(&switchto_edf, 0);
	places_change_in(&switchto_edf, SWITCHTO_STEAL);
}

/* From a thread, before they run. What has ended has no attributes any more. */
TEST(changed_from_outside)
{
	static char letters[] = "ab";
	struct switchto_policy plain = switchto_fifo;
	struct switchto_sched *sched = new_sched_in_order(&switchto_priority);
	const struct switchto_task_attr high = { .priority = 9 };
	struct switchto_task *first, *second;

	first = spawn_handle(sched, write_letter, &letters[0]);
	second = spawn_handle(sched, write_letter, &letters[1]);
	assert_int_equal(switchto_task_set_attr(second, &high), 0);
	CHECK_ERR(v, switchto_task_set_attr(NULL, &high), EINVAL);
	CHECK_ERR(v, switchto_task_set_attr(second, NULL), EINVAL);
	assert_int_equal(switchto_sched_run(sched), 0);
	assert_string_equal(order, "ba");
	CHECK_ERR(v, switchto_task_set_attr(second, &high), ESRCH);
	assert_int_equal(switchto_join(first), 0);
	assert_int_equal(switchto_join(second), 0);
	/* What comes too late is not for the next task that has the memory; and is freed. */
	first = spawn_handle(sched, write_letter, &letters[0]);
	assert_int_equal(switchto_task_set_attr(first, &high), 0);
	assert_int_equal(switchto_end(first), 0);
	assert_int_equal(switchto_sched_destroy(sched), 0);

	plain.change = NULL;
	sched = new_sched_with(&plain, 0, 1);
	first = spawn_handle(sched, write_letter, &letters[0]);
	CHECK_ERR(v, switchto_task_set_attr(first, &high), ENOTSUP);
	assert_int_equal(switchto_detach(first), 0);
	run_tasks(sched);
	sched = new_sched_with(&plain, SWITCHTO_MEASURE, 1);
	first = spawn_handle(sched, write_letter, &letters[0]);
	CHECK_ERR(v, switchto_task_set_attr(first, &high), ENOTSUP);
	assert_int_equal(switchto_detach(first), 0);
	run_tasks(sched);
}

/* --- while they run, end, sleep and are stolen --- */

static void live_for_a_while(void *arg)
{
	uint32_t dice = (uint32_t)(uintptr_t)arg * 2 + 1;

	for (unsigned int i = random_next(&dice) % 6; i; i--) {
		if (random_next(&dice) % 2)
			CHECK_EQ(&verdict, switchto_yield(), 0);
		else
			sleep_for(random_next(&dice) % 20000);
	}
}

static void change_many(void *arg)
{
	uint32_t dice = (uint32_t)(uintptr_t)arg * 2 + 1;

	for (int i = 0; i < LOOPS(500); i++) {
		struct switchto_task *tasks[4];

		for (int j = 0; j < 4; j++)
			CHECK_EQ(&verdict,
				 switchto_spawn_on(NULL, SWITCHTO_ANY, live_for_a_while,
						   (void *)(uintptr_t)random_next(&dice), NULL,
						   &tasks[j]),
				 0);
		for (int j = 0; j < 12; j++) {
			const struct switchto_task_attr attr = {
				.priority = (int)(random_next(&dice) % 32),
				.weight = random_next(&dice) % 5,
				.deadline = { .tv_sec = random_next(&dice) % 3 },
			};

			if (switchto_task_set_attr(tasks[j % 4], &attr))
				CHECK_EQ(&verdict, errno, ESRCH);
			if (!(random_next(&dice) % 4))
				CHECK_EQ(&verdict, switchto_yield(), 0);
		}
		for (int j = 0; j < 4; j++)
			CHECK_EQ(&verdict, switchto_join(tasks[j]), 0);
	}
}

TEST(changes_race)
{
	for (int i = 0; i < 8; i++) {
		const bool steals = i >= 4 && all_policies[i % 4]->steal;
		struct switchto_sched *sched = new_sched_with(all_policies[i % 4],
							      steals ? SWITCHTO_STEAL : 0, slots);

		for (uintptr_t j = 0; j < 3; j++)
			spawn(sched, change_many, (void *)j);
		run_in_time(sched);
	}
}
