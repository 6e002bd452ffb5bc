// SPDX-License-Identifier: GPL-2.0
/*
 * FUTEX_SWAP in control groups: groups and quotas of the cpu controller, cpusets,
 * and the freezers of both versions.
 */
#include <sys/mount.h>
#include <sys/stat.h>

#include "futex_swap_common.h"
#include "futex_swap_pair.h"

/* Waits until a hog spins in its group and on its CPU. */
static bool wait_until_there(const struct side *s)
{
	const long long limit = now() + PATIENCE;

	while (!__atomic_load_n(&s->tid, __ATOMIC_ACQUIRE)) {
		if (now() > limit)
			return false;
		sleep_until(now() + NSEC_PER_MSEC);
	}
	return true;
}

FIXTURE(cgroup) {
	char root[256];
	char group[2][300];
	char sub[310];		/* in the first, made by the test that needs it */
	bool enabled_here[2];	/* cpu, cpuset */
};

static bool enable_controller(const char *root, const char *name, bool *enabled_here)
{
	char path[300], text[512], word[32];

	snprintf(path, sizeof(path), "%s/cgroup.subtree_control", root);
	if (read_file(path, text, sizeof(text)) < 0)
		return false;
	/* The names are separated by spaces. */
	text[strcspn(text, "\n")] = ' ';
	snprintf(word, sizeof(word), "%s ", name);
	if (!strncmp(text, word, strlen(word)))
		return true;
	snprintf(word, sizeof(word), " %s ", name);
	if (strstr(text, word))
		return true;
	snprintf(word, sizeof(word), "+%s", name);
	*enabled_here = write_file(path, word);
	return *enabled_here;
}

static void remove_group(const char *group)
{
	char path[512];
	int i;

	snprintf(path, sizeof(path), "%s/cgroup.freeze", group);
	write_file(path, "0");
	snprintf(path, sizeof(path), "%s/cgroup.kill", group);
	write_file(path, "1");
	for (i = 0; i < 1000 && rmdir(group) && errno == EBUSY; i++)
		usleep(1000);
}

static bool join_group(const char *group, pid_t pid)
{
	char path[512], text[32];

	snprintf(path, sizeof(path), "%s/cgroup.procs", group);
	snprintf(text, sizeof(text), "%d", pid);
	return write_file(path, text);
}

FIXTURE_SETUP(cgroup)
{
	char line[512], dir[256], text[512];
	FILE *mounts;
	int i;

	make_arena(_metadata, 0);
	mounts = fopen("/proc/mounts", "re");
	ASSERT_NE(NULL, mounts);
	while (fgets(line, sizeof(line), mounts))
		if (sscanf(line, "%*s %255s %511s", dir, text) == 2 &&
		    !strcmp(text, "cgroup2"))
			snprintf(self->root, sizeof(self->root), "%s", dir);
	fclose(mounts);
	if (!self->root[0])
		SKIP(return, "no cgroup2 file system is mounted");

	/* From the root, threads may go to threaded groups below it. */
	if (!join_group(self->root, getpid()))
		SKIP(return, "may not enter %s: %s", self->root, strerror(errno));
	if (!enable_controller(self->root, "cpu", &self->enabled_here[0]))
		SKIP(return, "no cpu controller in %s: %s",
		     self->root, strerror(errno));
	for (i = 0; i < 2; i++) {
		snprintf(self->group[i], sizeof(self->group[i]),
			 "%s/futex_swap.%d.%d", self->root, getpid(), i);
		if (mkdir(self->group[i], 0755)) {
			int err = errno;

			if (i)
				rmdir(self->group[0]);
			SKIP(return, "can't make %s: %s", self->group[i],
			     strerror(err));
		}
	}
}

/* In the parent, as threads of the test itself may be in the groups. */
FIXTURE_TEARDOWN_PARENT(cgroup)
{
	char path[512];
	int i;

	if (self->sub[0])
		remove_group(self->sub);
	for (i = 0; i < 2; i++)
		remove_group(self->group[i]);
	snprintf(path, sizeof(path), "%s/cgroup.subtree_control", self->root);
	if (self->enabled_here[1])
		write_file(path, "-cpuset");
	if (self->enabled_here[0])
		write_file(path, "-cpu");
}

static void run_pair_in_groups(struct __test_metadata *_metadata, struct pair *p,
			       const char *group0, const char *group1)
{
	int i, status;
	pid_t pid[2];

	p->side[0].cgroup = group0;
	p->side[1].cgroup = group1;
	for (i = 0; i < 2; i++) {
		pid[i] = fork_child(_metadata);
		if (!pid[i]) {
			run_side(&p->side[i]);
			_exit(0);
		}
	}
	for (i = 0; i < 2; i++) {
		ASSERT_EQ(pid[i], waitpid(pid[i], &status, 0));
		EXPECT_EQ(0, status);
		ASSERT_EQ(0, p->side[i].err);
	}
	check_pair(_metadata, p);
}

static long times_throttled(const char *group)
{
	char path[512], text[1024], *field;

	snprintf(path, sizeof(path), "%s/cpu.stat", group);
	if (read_file(path, text, sizeof(text)) <= 0)
		return -1;
	field = strstr(text, "nr_throttled ");
	return field ? atol(field + strlen("nr_throttled ")) : -1;
}

TEST_F(cgroup, swapper_and_target_in_different_groups)
{
	const long handed = swap_count("handoff"), differed = swap_count("group");
	struct pair *p = make_pair(_metadata, 2000, 0);
	char path[512];

	p->side[0].cpu = sched_getcpu();
	p->side[1].cpu = p->side[0].cpu;
	run_pair_in_groups(_metadata, p, self->group[0], self->group[1]);
	/* Without CONFIG_FAIR_GROUP_SCHED the scheduler knows no groups. */
	snprintf(path, sizeof(path), "%s/cpu.weight", self->group[0]);
	if (!access(path, F_OK)) {
		EXPECT_EQ(handed, swap_count("handoff"));
		if (has_vma_locks())
			EXPECT_COUNTED("group", differed);
	}
}

/*
 * Doubles the rounds until the group is throttled. A fixed number would be too
 * small for a fast machine, or take a slow debug kernel a minute at this quota.
 */
static void run_pair_until_throttled(struct __test_metadata *_metadata,
				     const char *group0, const char *group1)
{
	long long limit = now() + PATIENCE;
	long rounds = 50;

	do {
		run_pair_in_groups(_metadata, make_pair(_metadata, rounds, 0),
				   group0, group1);
		rounds *= 2;
	} while (!times_throttled(group1) && now() < limit);
	EXPECT_LT(0, times_throttled(group1));
}

TEST_F(cgroup, target_in_a_throttled_group)
{
	char path[512];

	snprintf(path, sizeof(path), "%s/cpu.max", self->group[1]);
	if (!write_file(path, "1000 10000"))
		SKIP(return, "no cpu.max (CONFIG_CFS_BANDWIDTH): %s", strerror(errno));
	run_pair_until_throttled(_metadata, self->group[0], self->group[1]);
}

TEST_F(cgroup, both_in_a_throttled_group)
{
	char path[512];

	snprintf(path, sizeof(path), "%s/cpu.max", self->group[0]);
	if (!write_file(path, "1000 10000"))
		SKIP(return, "no cpu.max (CONFIG_CFS_BANDWIDTH): %s", strerror(errno));
	run_pair_until_throttled(_metadata, self->group[0], self->group[0]);
}

/*
 * Makes a group for single threads, so that threads of one process with private
 * futexes can be in different groups. Skips the test and returns false if the
 * kernel refuses.
 */
static bool make_threaded(struct __test_metadata *_metadata, const char *group)
{
	char path[512];

	snprintf(path, sizeof(path), "%s/cgroup.type", group);
	if (!write_file(path, "threaded"))
		SKIP(return false, "no threaded groups: %s", strerror(errno));
	return true;
}

static bool join_threaded(const char *group, pid_t tid)
{
	char path[512], text[32];

	snprintf(path, sizeof(path), "%s/cgroup.threads", group);
	snprintf(text, sizeof(text), "%d", tid);
	return write_file(path, text);
}

/* Starts a pair on one CPU, each side in its group. */
static void start_pair_in_groups(struct __test_metadata *_metadata, struct pair *p,
				 const char *group0, const char *group1,
				 pthread_t thread[2])
{
	const int cpu = sched_getcpu();
	int i;

	for (i = 0; i < 2; i++) {
		p->side[i].cgroup = i ? group1 : group0;
		p->side[i].alone = true;
		p->side[i].cpu = cpu;
	}
	start_pair(_metadata, p, thread);
}

TEST_F(cgroup, threads_in_different_groups)
{
	struct pair *p = make_pair(_metadata, 2000, FUTEX_PRIVATE_FLAG);
	long handed, counted = swap_count("group");
	pthread_t thread[2];
	char path[512];

	if (!make_threaded(_metadata, self->group[0]) ||
	    !make_threaded(_metadata, self->group[1]))
		return;
	handed = swap_count("handoff");
	start_pair_in_groups(_metadata, p, self->group[0], self->group[1], thread);
	join_pair(_metadata, p, thread);
	EXPECT_EQ(0, p->side[0].err);
	EXPECT_EQ(0, p->side[1].err);
	/* Without CONFIG_FAIR_GROUP_SCHED the scheduler knows no groups. */
	snprintf(path, sizeof(path), "%s/cpu.weight", self->group[0]);
	if (counted >= 0 && !access(path, F_OK)) {
		EXPECT_LT(counted, swap_count("group"));
		EXPECT_EQ(handed, swap_count("handoff"));
	}
}

/* Moves the sides between two groups and back while they swap. */
TEST_F(cgroup, thread_moved_among_groups_while_it_swaps)
{
	struct pair *p = make_pair(_metadata, LONG_MAX, FUTEX_PRIVATE_FLAG);
	pthread_t thread[2];
	int i;

	if (!make_threaded(_metadata, self->group[0]) ||
	    !make_threaded(_metadata, self->group[1]))
		return;
	start_pair_in_groups(_metadata, p, self->group[0], self->group[0], thread);
	for (i = 0; i < 50; i++) {
		ASSERT_TRUE(wait_turns(p, 20));
		ASSERT_TRUE(join_threaded(self->group[!(i % 3)], p->side[i % 2].tid));
	}
	__atomic_store_n(&p->stop, 1, __ATOMIC_RELEASE);
	join_pair(_metadata, p, thread);
}

TEST_F(cgroup, thread_moved_while_the_target_sleeps)
{
	struct call *target = &arena->other;
	const long refused = swap_count("group");
	const int fl = FUTEX_PRIVATE_FLAG;
	char path[512];
	int i;

	if (!make_threaded(_metadata, self->group[0]))
		return;
	for (i = 0; i < 20; i++) {
		prepare_wait(target, &arena->peer, fl)->cpu = sched_getcpu();
		START_ASLEEP(target);
		ASSERT_TRUE(join_threaded(self->group[0], target->tid));
		prepare_swap(swapper, &arena->own, &arena->peer, fl)->cpu = target->cpu;
		start(_metadata, swapper);
		ASSERT_RETURNS(0, 0, target);
		end_swapper(_metadata, swapper, &arena->own, fl);
	}
	/* Without CONFIG_FAIR_GROUP_SCHED the scheduler knows no groups. */
	snprintf(path, sizeof(path), "%s/cpu.weight", self->group[0]);
	if (!access(path, F_OK))
		EXPECT_COUNTED("group", refused);
}

static long long cpu_stat(const char *group, const char *name)
{
	char path[512], text[1024], *field;

	snprintf(path, sizeof(path), "%s/cpu.stat", group);
	if (read_file(path, text, sizeof(text)) <= 0)
		return -1;
	field = strstr(text, name);
	return field ? atoll(field + strlen(name)) : -1;
}

/* Limits a pair, which would use a whole CPU, to a fifth of it. */
static void run_chain_in_quota(struct __test_metadata *_metadata,
			       const char *group0, const char *group1)
{
	struct pair *p = make_pair(_metadata, LONG_MAX, FUTEX_PRIVATE_FLAG);
	long long wall, charged;
	pthread_t thread[2];
	char path[512];
	int i;

	if (!make_threaded(_metadata, group0) ||
	    (group0 != group1 && !make_threaded(_metadata, group1)))
		return;
	snprintf(path, sizeof(path), "%s/cpu.max", group1);
	if (!write_file(path, "10000 50000"))
		SKIP(return, "no cpu.max (CONFIG_CFS_BANDWIDTH): %s", strerror(errno));
	charged = -cpu_stat(group1, "usage_usec ");
	wall = -now();
	start_pair_in_groups(_metadata, p, group0, group1, thread);
	for (i = 0; i < 20 && cpu_stat(group1, "nr_throttled ") < 10; i++)
		sleep_until(now() + NSEC_PER_SEC / 2);
	charged += cpu_stat(group1, "usage_usec ");
	wall += now();
	EXPECT_LE(10, cpu_stat(group1, "nr_throttled "));
	/*
	 * The limit is a fifth, but the group may use more for a while: the
	 * measurement may begin and end within a period, and the group runs on
	 * until a tick notices that the quota is used up. That is paid back in
	 * later periods. A guest's ticks come late on a busy host. A pair
	 * without a quota would use the whole CPU.
	 */
	EXPECT_LE(charged * 1000, wall / 3 + 2 * 10 * NSEC_PER_MSEC);
	__atomic_store_n(&p->stop, 1, __ATOMIC_RELEASE);
	join_pair(_metadata, p, thread);
	EXPECT_EQ(0, p->side[0].err);
	EXPECT_EQ(0, p->side[1].err);
}

TEST_F(cgroup, both_threads_in_a_throttled_group)
{
	run_chain_in_quota(_metadata, self->group[0], self->group[0]);
}

TEST_F(cgroup, target_thread_in_a_throttled_group)
{
	run_chain_in_quota(_metadata, self->group[0], self->group[1]);
}

static long enter_wait_in_group(struct call *c)
{
	if (!join_threaded(c->arg, c->tid))
		return -1;
	return futex_wait(c->uaddr, c->val, NULL, c->op & ~FUTEX_CMD_MASK);
}

static long enter_swap_in_group(struct call *c)
{
	if (!join_threaded(c->arg, c->tid))
		return -1;
	return futex(c->uaddr, c->op, c->val, c->timeout, c->uaddr2, c->val3, 0);
}

/*
 * Both sides of a pair weigh as one thread in their group, and the group is
 * charged for both. So the pair and the hogs get the shares that their weights
 * demand.
 */
static void weigh_chain_in_group(struct __test_metadata *_metadata, const char *group, int nice,
				 const char *const *hog_groups, int hogs, long long wanted)
{
	long long chain, sum, share = 0;
	clockid_t clock;
	int try, h;

	for (try = 0; try < 3; try++) {
		struct pair *p = make_pair(_metadata, LONG_MAX, FUTEX_PRIVATE_FLAG);
		const long handed = swap_count("handoff");
		long long before[4];
		pthread_t thread[4];
		struct side hog[2];

		for (h = 0; h < 2; h++)
			p->side[h].nice = nice;
		start_pair_in_groups(_metadata, p, group, group, thread);
		/*
		 * On the CPU of the pair. This thread is not pinned and may
		 * have moved.
		 */
		for (h = 0; h < hogs; h++) {
			hog[h] = (struct side){ .pair = p, .nice = SIDE_KEEPS_NICE,
						.cpu = p->side[0].cpu,
						.cgroup = hog_groups[h], .alone = true };
			ASSERT_EQ(0, pthread_create(&thread[2 + h], NULL, spin, &hog[h]));
		}
		/* Measure from when all run. */
		for (h = 0; h < hogs; h++)
			ASSERT_TRUE(wait_until_there(&hog[h]));
		EXPECT_TRUE(wait_turns(p, 2));
		for (h = 0; h < 2 + hogs; h++) {
			ASSERT_EQ(0, pthread_getcpuclockid(thread[h], &clock));
			before[h] = read_clock(clock);
		}
		sleep_until(now() + 2 * NSEC_PER_SEC);
		__atomic_store_n(&p->stop, 1, __ATOMIC_RELEASE);
		join_pair(_metadata, p, thread);
		ASSERT_EQ(0, p->side[0].err);
		ASSERT_EQ(0, p->side[1].err);
		chain = p->side[0].cpu_time + p->side[1].cpu_time - before[0] - before[1];
		sum = chain;
		for (h = 0; h < hogs; h++) {
			ASSERT_EQ(0, pthread_join(thread[2 + h], NULL));
			ASSERT_EQ(0, hog[h].err);
			sum += hog[h].cpu_time - before[2 + h];
		}
		EXPECT_COUNTED("handoff", handed);
		share = chain * 1000 / sum;
		ksft_print_msg("try %d: %lld of 1000, wanted: %lld\n", try, share, wanted);
		if (llabs(share - wanted) <= 30)
			return;
	}
	EXPECT_GE(wanted + 30, share);
	EXPECT_LE(wanted - 30, share);
}

TEST_F(cgroup, chain_in_a_group_weighs_one_thread)
{
	const char *const groups[] = { self->group[1], self->group[0] };
	char path[512];

	/* Without CONFIG_FAIR_GROUP_SCHED there are no shares of groups. */
	snprintf(path, sizeof(path), "%s/cpu.weight", self->group[0]);
	if (access(path, F_OK))
		SKIP(return, "no cpu.weight (CONFIG_FAIR_GROUP_SCHED)");
	if (!make_threaded(_metadata, self->group[0]) ||
	    !make_threaded(_metadata, self->group[1]))
		return;
	/*
	 * First with a hog in the other group, then with a second hog in its
	 * own group.
	 */
	weigh_chain_in_group(_metadata, self->group[0], 0, groups, 1, 500);
	weigh_chain_in_group(_metadata, self->group[0], 0, groups, 2, 250);
}

/*
 * A chain of nice 5 gets the share of its weight of what its group may use, whether or
 * not the group uses up its quota, and if the quota is that of the group above.
 */
TEST_F(cgroup, chain_in_a_quota_weighs_one_thread)
{
	static const char * const quotas[] = { "200000 100000", "50000 100000" };
	const char *group = self->group[0];
	char path[512];
	int i;

	if (!make_threaded(_metadata, group))
		return;
	snprintf(path, sizeof(path), "%s/cpu.max", group);
	for (i = 0; i < 3; i++) {
		if (i < 2 && !write_file(path, quotas[i]))
			SKIP(return, "no cpu.max (CONFIG_CFS_BANDWIDTH): %s", strerror(errno));
		if (i == 2) {
			snprintf(path, sizeof(path), "%s/cgroup.subtree_control", group);
			ASSERT_TRUE(write_file(path, "+cpu"));
			snprintf(self->sub, sizeof(self->sub), "%s/sub", group);
			group = self->sub;
			ASSERT_EQ(0, mkdir(group, 0755));
			if (!make_threaded(_metadata, group))
				return;
		}
		weigh_chain_in_group(_metadata, group, 5, &group, 1, 335 * 1000 / (335 + 1024));
	}
	/* The last two quotas were used up. */
	EXPECT_LT(10, cpu_stat(self->group[0], "nr_throttled "));
}

/*
 * The target's group has used up its quota. The target is woken, and runs when
 * the group has quota again. The period is a second, so that this takes a
 * while. The quota is large enough to pay back in the next period what was
 * overdrawn before a tick came.
 */
TEST_F(cgroup, target_asleep_in_a_throttled_group)
{
	struct call *target = &arena->other;
	struct pair *p = make_pair(_metadata, LONG_MAX, FUTEX_PRIVATE_FLAG);
	struct side hog = { .pair = p, .nice = SIDE_KEEPS_NICE, .cpu = sched_getcpu(),
			    .cgroup = self->group[1], .alone = true };
	long long limit = now() + PATIENCE, used, before;
	const int fl = FUTEX_PRIVATE_FLAG;
	pthread_t thread;
	char path[512];

	if (!make_threaded(_metadata, self->group[1]))
		return;
	snprintf(path, sizeof(path), "%s/cpu.max", self->group[1]);
	if (!write_file(path, "max 1000000"))
		SKIP(return, "no cpu.max (CONFIG_CFS_BANDWIDTH): %s", strerror(errno));
	prepare_wait(target, &arena->peer, fl)->enter = enter_wait_in_group;
	target->arg = self->group[1];
	target->cpu = hog.cpu;
	START_ASLEEP(target);

	ASSERT_TRUE(write_file(path, "100000 1000000"));
	before = cpu_stat(self->group[1], "usage_usec ");
	ASSERT_EQ(0, pthread_create(&thread, NULL, spin, &hog));
	/* Wait until the group has run and is throttled. */
	do {
		used = cpu_stat(self->group[1], "usage_usec ");
		sleep_until(now() + 50 * NSEC_PER_MSEC);
	} while ((used < before + 90000 ||
		  used != cpu_stat(self->group[1], "usage_usec ")) && now() < limit);
	prepare_swap(swapper, &arena->own, &arena->peer, fl)->cpu = hog.cpu;
	START_ASLEEP(swapper);
	EXPECT_EQ(0, futex_wake(&arena->peer, 1, fl));
	EXPECT_FALSE(is_done(target));

	__atomic_store_n(&p->stop, 1, __ATOMIC_RELEASE);
	ASSERT_RETURNS(0, 0, target);
	ASSERT_EQ(0, pthread_join(thread, NULL));
	EXPECT_EQ(0, hog.err);
	end_swapper(_metadata, swapper, &arena->own, fl);
}

static bool is_throttled(const char *group, long long *used)
{
	long long before = *used;

	*used = cpu_stat(group, "usage_usec ");
	return *used >= 0 && *used == before;
}

#if LINUX_AT_LEAST(6, 18)
static long enter_wait_when_told(struct call *c)
{
	if (!join_threaded(c->arg, c->tid))
		return -1;
	while (!__atomic_load_n(&arena->go, __ATOMIC_ACQUIRE))
		;
	return futex_wait(c->uaddr, c->val, NULL, c->op & ~FUTEX_CMD_MASK);
}

/*
 * The target is throttled as it returns to user space, becomes a real-time task, goes
 * to sleep as one, and comes back to its class asleep. A hand-off to it has to forget
 * that it was throttled: else the scheduler believes that it is still off the run queue
 * when it sleeps the next time. Only the kernel notices that. Another group must have a
 * quota meanwhile, as with the last quota the kernel forgets about throttling.
 */
TEST_F(cgroup, target_left_its_class_while_throttled)
{
	struct call *target = &arena->other;
	const struct sched_param other = { };
	const int cpu = sched_getcpu(), fl = FUTEX_PRIVATE_FLAG;
	const long handed = swap_count("handoff");
	char path[2][512];
	int try;

	for (try = 0; try < 2; try++) {
		if (!make_threaded(_metadata, self->group[try]))
			return;
		snprintf(path[try], sizeof(path[try]), "%s/cpu.max", self->group[try]);
		if (!write_file(path[try], "10000 1000000"))
			SKIP(return, "no cpu.max (CONFIG_CFS_BANDWIDTH): %s", strerror(errno));
	}
	/* Until there was a hand-off, if the hand-offs can be counted. */
	for (try = 0; try < 10 && swap_count("handoff") == handed; try++) {
		long long limit = now() + PATIENCE, used = -1;

		ASSERT_TRUE(write_file(path[1], "10000 1000000"));
		__atomic_store_n(&arena->go, 0, __ATOMIC_RELEASE);
		prepare_wait(target, &arena->peer, fl)->enter = enter_wait_when_told;
		target->arg = self->group[1];
		target->cpu = cpu;
		start(_metadata, target);
		while ((!is_throttled(self->group[1], &used) || !used) && now() < limit)
			sleep_until(now() + 50 * NSEC_PER_MSEC);
		/* It sees this first when it runs again, as a real-time task. */
		__atomic_store_n(&arena->go, 1, __ATOMIC_RELEASE);
		ASSERT_TRUE(become_fifo(target->tid));
		ASSERT_ASLEEP(target);
		ASSERT_EQ(0, sched_setscheduler(target->tid, SCHED_OTHER, &other));
		ASSERT_TRUE(write_file(path[1], "max 1000000"));

		prepare_swap(swapper, &arena->own, &arena->peer, fl)->enter =
			enter_swap_in_group;
		swapper->arg = self->group[1];
		swapper->cpu = cpu;
		start(_metadata, swapper);
		ASSERT_RETURNS(0, 0, target);
		end_swapper(_metadata, swapper, &arena->own, fl);
	}
	EXPECT_COUNTED("handoff", handed);
}
#endif

/*
 * A caller can be killed while the group of its target is throttled. The wakeup
 * of the target is not lost.
 */
TEST_F(cgroup, target_in_a_throttled_group_caller_can_be_killed)
{
	struct call *target = &arena->other;
	const int cpu = sched_getcpu();
	bool throttled = false;
	char path[512];
	int try, status;

	snprintf(path, sizeof(path), "%s/cpu.max", self->group[1]);
	if (!write_file(path, "max 1000000"))
		SKIP(return, "no cpu.max (CONFIG_CFS_BANDWIDTH): %s", strerror(errno));
	for (try = 0; try < 5 && !throttled; try++) {
		long long limit = now() + PATIENCE, used = -1;
		pid_t hog;

		ASSERT_TRUE(write_file(path, "max 1000000"));
		prepare_wait(target, &arena->peer, 0)->cpu = cpu;
		start_process(_metadata, target);
		ASSERT_ASLEEP(target);
		ASSERT_TRUE(join_group(self->group[1], target->pid));
		hog = fork_child(_metadata);
		if (!hog) {
			pin_to(0, cpu);
			for (;;)
				;
		}
		ASSERT_TRUE(join_group(self->group[1], hog));
		ASSERT_TRUE(write_file(path, "100000 1000000"));
		while (!is_throttled(self->group[1], &used) && now() < limit)
			sleep_until(now() + 50 * NSEC_PER_MSEC);

		prepare_swap(swapper, &arena->own, &arena->peer, 0)->cpu = cpu;
		start_process(_metadata, swapper);
		ASSERT_ASLEEP(swapper);
		EXPECT_EQ(0, futex_wake(&arena->peer, INT_MAX, 0));
		ASSERT_EQ(0, kill(swapper->pid, SIGKILL));
		ASSERT_EQ(swapper->pid, waitpid(swapper->pid, &status, 0));
		EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
		/*
		 * If not, a new period has begun, and the order is not known.
		 * Try again. The target itself may have run, but not in user space.
		 */
		throttled = cpu_stat(self->group[1], "usage_usec ") < used + 20000 &&
			    !is_done(target);

		ASSERT_EQ(0, kill(hog, SIGKILL));
		ASSERT_RETURNS(0, 0, target);
		ASSERT_EQ(hog, waitpid(hog, NULL, 0));
		ASSERT_EQ(target->pid, waitpid(target->pid, NULL, 0));
	}
	EXPECT_TRUE(throttled);
}

/*
 * The target's cpuset loses the CPU of the swap. The cpuset is a group below
 * the group of the cpu controller that both are in, so the hand-off is refused
 * for the CPU alone.
 */
TEST_F(cgroup, cpuset_changed_while_the_target_sleeps)
{
	struct call *target = &arena->other;
	const long refused = swap_count("cpu");
	const int fl = FUTEX_PRIVATE_FLAG;
	char path[512], text[32];
	int cpu[2], i;

	if (!two_cpus(cpu))
		SKIP(return, "needs two CPUs");
	if (!enable_controller(self->root, "cpuset", &self->enabled_here[1]))
		SKIP(return, "no cpuset controller: %s", strerror(errno));
	if (!make_threaded(_metadata, self->group[0]))
		return;
	snprintf(path, sizeof(path), "%s/cgroup.subtree_control", self->group[0]);
	ASSERT_TRUE(write_file(path, "+cpuset"));
	snprintf(self->sub, sizeof(self->sub), "%s/sub", self->group[0]);
	ASSERT_EQ(0, mkdir(self->sub, 0755));
	if (!make_threaded(_metadata, self->sub))
		return;
	snprintf(path, sizeof(path), "%s/cpuset.cpus", self->sub);

	for (i = 0; i < 20; i++) {
		const int here = cpu[i % 2], there = cpu[!(i % 2)];

		snprintf(text, sizeof(text), "%d", here);
		ASSERT_TRUE(write_file(path, text));
		prepare_wait(target, &arena->peer, fl)->enter = enter_wait_in_group;
		target->arg = self->sub;
		START_ASLEEP(target);

		snprintf(text, sizeof(text), "%d", there);
		ASSERT_TRUE(write_file(path, text));
		prepare_swap(swapper, &arena->own, &arena->peer, fl)->cpu = here;
		swapper->enter = enter_swap_in_group;
		swapper->arg = self->group[0];
		start(_metadata, swapper);
		ASSERT_RETURNS(0, 0, target);
		EXPECT_EQ(there, target->cpu_after);
		end_swapper(_metadata, swapper, &arena->own, fl);
		EXPECT_EQ(here, swapper->cpu_after);
	}
	EXPECT_COUNTED("cpu", refused);
}

static bool set_frozen(const char *group, bool frozen)
{
	const struct timespec tick = { .tv_nsec = 100000 };
	long long limit = now() + PATIENCE;
	char path[512], text[512];

	snprintf(path, sizeof(path), "%s/cgroup.freeze", group);
	if (!write_file(path, frozen ? "1" : "0"))
		return false;
	snprintf(path, sizeof(path), "%s/cgroup.events", group);
	while (now() < limit) {
		if (read_file(path, text, sizeof(text)) > 0 &&
		    strstr(text, frozen ? "frozen 1" : "frozen 0"))
			return true;
		nanosleep(&tick, NULL);
	}
	return false;
}

TEST_F(cgroup, target_frozen_caller_sleeps_and_can_be_killed)
{
	struct call *target = &arena->other;
	int status;

	start_process(_metadata, prepare_wait(target, &arena->peer, 0));
	ASSERT_ASLEEP(target);
	ASSERT_TRUE(join_group(self->group[0], target->pid));
	ASSERT_TRUE(set_frozen(self->group[0], true));

	arena->peer++;
	start_process(_metadata,
		      prepare_swap(swapper, &arena->own, &arena->peer, 0));
	ASSERT_ASLEEP(swapper);
	EXPECT_FALSE(is_done(target));

	ASSERT_EQ(0, kill(swapper->pid, SIGKILL));
	ASSERT_EQ(swapper->pid, waitpid(swapper->pid, &status, 0));
	EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	EXPECT_FALSE(is_done(target));

	ASSERT_TRUE(set_frozen(self->group[0], false));
	ASSERT_RETURNS(-1, EAGAIN, target);
}

/* A swapper that is frozen and thawed goes on with its wait. */
TEST_F(cgroup, swapper_frozen_and_thawed_no_second_wake)
{
	queue_waiters(_metadata, 3, 0);
	start_process(_metadata,
		      prepare_swap(swapper, &arena->own, &arena->peer, 0));
	ASSERT_ASLEEP(swapper);
	ASSERT_TRUE(join_group(self->group[0], swapper->pid));
	ASSERT_TRUE(set_frozen(self->group[0], true));
	ASSERT_TRUE(set_frozen(self->group[0], false));
	ASSERT_ASLEEP(swapper);
	end_swapper(_metadata, swapper, &arena->own, 0);
	end_waiters(_metadata, 3, 1, 0);
}

FIXTURE(freezer_v1) {
	char dir[64];
	char group[96];
};

FIXTURE_VARIANT(freezer_v1) {
	int opflags;
};

FIXTURE_VARIANT_ADD(freezer_v1, private) {
	.opflags = FUTEX_PRIVATE_FLAG,
};

FIXTURE_VARIANT_ADD(freezer_v1, shared) {
	.opflags = 0,
};

FIXTURE_SETUP(freezer_v1)
{
	make_arena(_metadata, 0);
	snprintf(self->dir, sizeof(self->dir), "/tmp/futex_swap.XXXXXX");
	ASSERT_NE(NULL, mkdtemp(self->dir));
	snprintf(self->group, sizeof(self->group), "%s/group", self->dir);
	if (mount("cgroup", self->dir, "cgroup", 0, "freezer")) {
		int err = errno;

		rmdir(self->dir);
		SKIP(return, "no freezer of cgroup v1: %s", strerror(err));
	}
	if (mkdir(self->group, 0755)) {
		umount(self->dir);
		rmdir(self->dir);
	}
	ASSERT_EQ(0, access(self->group, F_OK));
}

static bool set_state_v1(const char *group, const char *wanted)
{
	long long limit = now() + PATIENCE;
	char path[128], text[64] = "";

	snprintf(path, sizeof(path), "%s/freezer.state", group);
	if (!write_file(path, wanted))
		return false;
	while (now() < limit) {
		if (read_file(path, text, sizeof(text)) > 0 &&
		    !strncmp(text, wanted, strlen(wanted)))
			return true;
		usleep(100);
	}
	return false;
}

static bool join_v1(const char *group, pid_t tid)
{
	char path[128], text[32];

	snprintf(path, sizeof(path), "%s/tasks", group);
	snprintf(text, sizeof(text), "%d", tid);
	return write_file(path, text);
}

FIXTURE_TEARDOWN(freezer_v1)
{
	int i;

	/* Tasks frozen by this version cannot be killed. */
	set_state_v1(self->group, "THAWED");
	for (i = 0; i < 1000 && rmdir(self->group) && errno == EBUSY; i++)
		usleep(1000);
	umount(self->dir);
	rmdir(self->dir);
}

/* The target is woken when it is thawed. */
TEST_F(freezer_v1, target_frozen_asleep_woken_when_thawed)
{
	struct call *target = &arena->other;
	const int fl = variant->opflags;
	long handed, awake;

	prepare_wait(target, &arena->peer, fl)->cpu = sched_getcpu();
	START_ASLEEP(target);
	ASSERT_TRUE(join_v1(self->group, target->tid));
	ASSERT_TRUE(set_state_v1(self->group, "FROZEN"));

	handed = swap_count("handoff");
	awake = swap_count("target_awake");
	prepare_swap(swapper, &arena->own, &arena->peer, fl)->cpu = target->cpu;
	START_ASLEEP(swapper);
	/* Give the target time to run, which it must not do. */
	usleep(20000);
	EXPECT_FALSE(is_done(target));
	EXPECT_EQ(0, futex_wake(&arena->peer, INT_MAX, fl));

	ASSERT_TRUE(set_state_v1(self->group, "THAWED"));
	ASSERT_RETURNS(0, 0, target);
	end_swapper(_metadata, swapper, &arena->own, fl);
	if (fl) {
		EXPECT_EQ(handed, swap_count("handoff"));
		EXPECT_COUNTED("target_awake", awake);
	}
}

TEST_F(freezer_v1, swapper_frozen_asleep_woken_when_thawed)
{
	const int fl = variant->opflags;

	queue_waiters(_metadata, 3, fl);
	START_ASLEEP(prepare_swap(swapper, &arena->own, &arena->peer, fl));
	ASSERT_TRUE(join_v1(self->group, swapper->tid));
	ASSERT_TRUE(set_state_v1(self->group, "FROZEN"));
	EXPECT_EQ(1, futex_wake(&arena->own, INT_MAX, fl));
	usleep(20000);
	EXPECT_FALSE(is_done(swapper));
	ASSERT_TRUE(set_state_v1(self->group, "THAWED"));
	ASSERT_RETURNS(0, 0, swapper);
	end_waiters(_metadata, 3, 1, fl);
}

TEST_F(freezer_v1, swapper_frozen_asleep_times_out_when_thawed)
{
	const int fl = variant->opflags;

	queue_waiters(_metadata, 3, fl);
	prepare_swap(swapper, &arena->own, &arena->peer, fl);
	arena->ts.tv_sec = 2;
	swapper->timeout = &arena->ts;
	START_ASLEEP(swapper);
	ASSERT_TRUE(join_v1(self->group, swapper->tid));
	ASSERT_TRUE(set_state_v1(self->group, "FROZEN"));
	sleep_until(nsec(&swapper->start) + 2100 * NSEC_PER_MSEC);
	EXPECT_FALSE(is_done(swapper));
	ASSERT_TRUE(set_state_v1(self->group, "THAWED"));
	ASSERT_RETURNS(-1, ETIMEDOUT, swapper);
	end_waiters(_metadata, 3, 1, fl);
}

int main(int argc, char **argv)
{
	need_futex_swap();
	return test_harness_run(argc, argv);
}
