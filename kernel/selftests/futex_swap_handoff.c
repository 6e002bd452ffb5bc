// SPDX-License-Identifier: GPL-2.0
/*
 * The hand-off of FUTEX_SWAP: the kernel switches from the caller to the target
 * without a pick by the scheduler. Tests when a swap is a hand-off, when it must
 * not be one, and what a hand-off must not change.
 */
#include <dlfcn.h>
#include <linux/rseq.h>
#include <stddef.h>

#include "futex_swap_common.h"
#include "futex_swap_pair.h"

FIXTURE(handoff) {
};

FIXTURE_VARIANT(handoff) {
	const char *outcome;
	int policy[2];
	int nice;
	bool cpus_differ;
	bool processes;
	bool slices_differ;
};

FIXTURE_VARIANT_ADD(handoff, equals) {
	.outcome = "handoff",
};

FIXTURE_VARIANT_ADD(handoff, nice_differs) {
	.outcome = "weight", .nice = 5,
};

FIXTURE_VARIANT_ADD(handoff, slices_differ) {
	.outcome = "weight", .slices_differ = true,
};

FIXTURE_VARIANT_ADD(handoff, other_and_batch) {
	.outcome = "handoff", .policy = { SCHED_OTHER, SCHED_BATCH },
};

FIXTURE_VARIANT_ADD(handoff, both_idle) {
	.outcome = "handoff", .policy = { SCHED_IDLE, SCHED_IDLE },
};

FIXTURE_VARIANT_ADD(handoff, other_and_idle) {
	.outcome = "weight", .policy = { SCHED_OTHER, SCHED_IDLE },
};

FIXTURE_VARIANT_ADD(handoff, other_and_fifo) {
	.outcome = "class", .policy = { SCHED_OTHER, SCHED_FIFO },
};

FIXTURE_VARIANT_ADD(handoff, processes) {
	.outcome = "handoff", .processes = true,
};

FIXTURE_VARIANT_ADD(handoff, processes_nice_differs) {
	.outcome = "weight", .processes = true, .nice = 5,
};

FIXTURE_VARIANT_ADD(handoff, cpus_differ) {
	.outcome = "cpu", .cpus_differ = true,
};

FIXTURE_SETUP(handoff)
{
	if (swap_count("handoff") < 0)
		SKIP(return, "needs root, debugfs and " SWAP_COUNTS);
}

FIXTURE_TEARDOWN(handoff)
{
}

TEST_F(handoff, outcome_counted)
{
	struct pair *p = make_pair(_metadata, 5000,
				   variant->processes ? 0 : FUTEX_PRIVATE_FLAG);
	pthread_t thread[2];
	long before, others;
	int cpu[2], i;

	if (variant->cpus_differ && !two_cpus(cpu))
		SKIP(return, "needs two CPUs");
	if (variant->processes && !has_vma_locks())
		SKIP(return, NO_VMA_LOCKS);
	if (!variant->cpus_differ) {
		cpu[0] = sched_getcpu();
		cpu[1] = cpu[0];
	}
	for (i = 0; i < 2; i++) {
		p->side[i].cpu = cpu[i];
		p->side[i].policy = variant->policy[i];
		p->side[i].prio = variant->policy[i] == SCHED_FIFO ? 10 : 0;
	}
	p->side[1].nice = variant->nice;
	if (variant->slices_differ)
		p->side[1].slice = 2 * NSEC_PER_MSEC;
	p->apart = variant->processes;

	before = swap_count(variant->outcome);
	others = swap_count("handoff");
	start_pair(_metadata, p, thread);
	join_pair(_metadata, p, thread);
	before = swap_count(variant->outcome) - before;
	others = swap_count("handoff") - others;
	EXPECT_EQ(0, p->side[0].err);
	EXPECT_EQ(0, p->side[1].err);

	/*
	 * Without a hand-off a turn may end before the other side is asleep.
	 * That is another outcome.
	 */
	if (strcmp(variant->outcome, "handoff"))
		EXPECT_EQ(0, others);
	EXPECT_LT(others ? 5000 : 0, before);
}

/*
 * Do both CPUs have their largest cache in common? Where sysfs tells nothing of caches,
 * or not of a CPU, the kernel has no reason to tell them apart.
 */
static bool share_cache(int a, int b)
{
	char path[128], list[2][256];
	bool same = true;
	int i, index;

	for (index = 0; ; index++) {
		for (i = 0; i < 2; i++) {
			snprintf(path, sizeof(path),
				 "/sys/devices/system/cpu/cpu%d/cache/index%d/shared_cpu_list",
				 i ? b : a, index);
			if (read_file(path, list[i], sizeof(list[i])) <= 0)
				return same;
		}
		same = !strcmp(list[0], list[1]);
	}
}

/* Keeps the test on the CPUs that share a cache with the first one. */
static void stay_in_one_cache(void)
{
	int cpu, first = -1;
	cpu_set_t set;

	sched_getaffinity(0, sizeof(set), &set);
	for (cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &set))
			continue;
		if (first < 0)
			first = cpu;
		if (!share_cache(first, cpu))
			CPU_CLR(cpu, &set);
	}
	sched_setaffinity(0, sizeof(set), &set);
}

/* Two sides that have met on one CPU stay there, wherever they started. */
TEST(free_threads_come_together)
{
	struct pair *p = make_pair(_metadata, 10000, FUTEX_PRIVATE_FLAG);
	pthread_t thread[2];
	long done;

	stay_in_one_cache();
	done = swap_count("handoff");
	if (done < 0)
		SKIP(return, "needs root, debugfs and " SWAP_COUNTS);
	start_pair(_metadata, p, thread);
	join_pair(_metadata, p, thread);
	EXPECT_LT(10000, swap_count("handoff") - done);
}

/*
 * The target is woken on the CPU that the caller gives up, even if the previous
 * CPU of the target is idle, if both share a cache. So the sides meet at once.
 */
TEST(threads_of_two_cpus_come_together)
{
	struct pair *p = make_pair(_metadata, LONG_MAX, FUTEX_PRIVATE_FLAG);
	long before, apart = 0;
	pthread_t thread[2];
	cpu_set_t all;
	int cpu[2], i, try;

	if (swap_count("cpu") < 0)
		SKIP(return, "needs root, debugfs and " SWAP_COUNTS);
	stay_in_one_cache();
	if (!two_cpus(cpu))
		SKIP(return, "needs two CPUs");
	ASSERT_EQ(0, sched_getaffinity(0, sizeof(all), &all));
	start_pair(_metadata, p, thread);
	ASSERT_TRUE(wait_turns(p, 1));
	for (try = 0; try < 20; try++) {
		for (i = 0; i < 2; i++)
			ASSERT_TRUE(pin_to(p->side[i].tid, cpu[i]));
		ASSERT_TRUE(wait_turns(p, 50));
		for (i = 0; i < 2; i++)
			ASSERT_EQ(0, sched_setaffinity(p->side[i].tid, sizeof(all), &all));
		before = swap_count("cpu");
		ASSERT_TRUE(wait_turns(p, 200));
		apart += swap_count("cpu") - before;
	}
	ksft_print_msg("swaps between two CPUs: %ld of 4000\n", apart);
	EXPECT_GT(400, apart);
	__atomic_store_n(&p->stop, 1, __ATOMIC_RELEASE);
	join_pair(_metadata, p, thread);
}

/*
 * A target sleeps on the second CPU and may run on both, and the first one wakes it.
 * Returns how many of 100 were woken on the second CPU.
 */
static int woken_where_they_slept(struct __test_metadata *_metadata, const int cpu[2],
				  bool value_changed)
{
	struct call *target;
	cpu_set_t both;
	int i, n = 0;

	make_arena(_metadata, 0);
	target = &arena->other;
	CPU_ZERO(&both);
	CPU_SET(cpu[0], &both);
	CPU_SET(cpu[1], &both);
	ASSERT_TRUE(pin_to(0, cpu[0]));
	for (i = 0; i < 100; i++) {
		const int fl = i % 2 ? FUTEX_PRIVATE_FLAG : 0;

		prepare_wait(target, &arena->peer, fl)->cpu = cpu[1];
		START_ASLEEP(target);
		ASSERT_EQ(0, sched_setaffinity(target->tid, sizeof(both), &both));
		prepare_swap(swapper, &arena->own, &arena->peer, fl)->cpu = cpu[0];
		swapper->val += value_changed;
		start(_metadata, swapper);
		ASSERT_RETURNS(0, 0, target);
		n += target->cpu_after == cpu[1];
		if (value_changed)
			ASSERT_RETURNS(-1, EAGAIN, swapper);
		else
			end_swapper(_metadata, swapper, &arena->own, fl);
	}
	ksft_print_msg("woken on the CPU where they slept: %d of 100\n", n);
	return n;
}

/* A caller that finds the value changed does not sleep, and keeps its CPU. */
TEST(value_changed_target_not_behind_the_caller)
{
	int cpu[2];

	if (!two_cpus(cpu))
		SKIP(return, "needs two CPUs");
	EXPECT_LE(80, woken_where_they_slept(_metadata, cpu, true));
}

static long spin_and_swap(struct call *c)
{
	while (!__atomic_load_n(&arena->go, __ATOMIC_ACQUIRE))
		;
	/* An emulator's CPUs may take turns: the other one is idle by then. */
	stay_busy(10 * NSEC_PER_MSEC);
	return futex_swap(c->uaddr, c->val, NULL, c->uaddr2, FUTEX_PRIVATE_FLAG);
}

static long wait_and_hog(struct call *c)
{
	const long ret = futex_wait(c->uaddr, c->val, NULL, FUTEX_PRIVATE_FLAG);

	stay_busy(NSEC_PER_MSEC);
	return ret;
}

/* A real-time caller sleeps, and another real-time thread runs on its CPU next. */
TEST(target_not_behind_another_real_time_thread)
{
	struct call *target, *hog;
	int cpu[2], i, there = 0;
	cpu_set_t both;

	if (!two_cpus(cpu))
		SKIP(return, "needs two CPUs");
	stay_in_one_cache();
	make_arena(_metadata, 0);
	target = &arena->other;
	hog = &arena->waiter[0];
	CPU_ZERO(&both);
	CPU_SET(cpu[0], &both);
	CPU_SET(cpu[1], &both);
	ASSERT_TRUE(pin_to(0, cpu[1]));
	for (i = 0; i < 20; i++) {
		__atomic_store_n(&arena->go, 0, __ATOMIC_RELEASE);
		prepare_wait(hog, &arena->spare, FUTEX_PRIVATE_FLAG)->cpu = cpu[0];
		hog->enter = wait_and_hog;
		hog->fifo = true;
		START_ASLEEP(hog);
		prepare_wait(target, &arena->peer, FUTEX_PRIVATE_FLAG);
		START_ASLEEP(target);
		ASSERT_EQ(0, sched_setaffinity(target->tid, sizeof(both), &both));
		prepare_swap(swapper, &arena->own, &arena->peer, FUTEX_PRIVATE_FLAG)->cpu = cpu[0];
		swapper->enter = spin_and_swap;
		swapper->fifo = true;
		start(_metadata, swapper);
		while (sched_getscheduler(swapper->tid) != SCHED_FIFO)
			sched_yield();
		EXPECT_EQ(1, futex_wake(&arena->spare, 1, FUTEX_PRIVATE_FLAG));
		__atomic_store_n(&arena->go, 1, __ATOMIC_RELEASE);
		usleep(20000);
		ASSERT_RETURNS(0, 0, target);
		there += target->cpu_after == cpu[1];
		end_swapper(_metadata, swapper, &arena->own, FUTEX_PRIVATE_FLAG);
		ASSERT_RETURNS(0, 0, hog);
	}
	/* At a tick, the idle CPU may have taken it from the other one. */
	ksft_print_msg("on the idle CPU: %d of 20\n", there);
	EXPECT_LE(16, there);
}

/* Without a hand-off, a target whose CPU has another cache stays there. */
TEST(target_of_another_cache_stays)
{
	int cpu[2];

	if (!two_cpus(cpu))
		SKIP(return, "needs two CPUs");
	while (share_cache(cpu[0], cpu[1])) {
		if (++cpu[1] == CPU_SETSIZE)
			SKIP(return, "all CPUs share a cache");
	}
	if (!pin_to(0, cpu[1]))
		SKIP(return, "may not run on CPU %d", cpu[1]);
	EXPECT_LE(80, woken_where_they_slept(_metadata, cpu, false));
}

/*
 * The target is asleep, but still on another CPU's run queue (DELAY_DEQUEUE).
 * The load balancer may move it during the swap.
 */
struct drifter {
	futex_t turn, back;
	int cpu;
	bool stop;
};

static void *drift(void *arg)
{
	struct drifter *d = arg;
	cpu_set_t all;

	sched_getaffinity(0, sizeof(all), &all);
	while (!__atomic_load_n(&d->stop, __ATOMIC_ACQUIRE)) {
		/* Use more than a fair share of the CPU, beside a hog. */
		pin_to(0, d->cpu);
		stay_busy(3 * NSEC_PER_MSEC);
		sched_setaffinity(0, sizeof(all), &all);
		__atomic_store_n(&d->back, 1, __ATOMIC_SEQ_CST);
		futex_wake(&d->back, 1, FUTEX_PRIVATE_FLAG);
		while (!__atomic_load_n(&d->turn, __ATOMIC_ACQUIRE))
			futex_wait(&d->turn, 0, NULL, FUTEX_PRIVATE_FLAG);
		__atomic_store_n(&d->turn, 0, __ATOMIC_SEQ_CST);
	}
	return NULL;
}

TEST(target_moved_while_it_sleeps_delayed)
{
	struct pair *p = make_pair(_metadata, 1, FUTEX_PRIVATE_FLAG);
	struct drifter d = {};
	pthread_t hog, drifter;
	int cpu[2], i;

	if (!two_cpus(cpu))
		SKIP(return, "needs two CPUs");
	d.cpu = cpu[1];
	p->side[0].cpu = cpu[1];
	ASSERT_EQ(0, pthread_create(&hog, NULL, spin, &p->side[0]));
	ASSERT_EQ(0, pthread_create(&drifter, NULL, drift, &d));
	ASSERT_TRUE(pin_to(0, cpu[0]));
	for (i = 0; i < 300; i++) {
		struct timespec pause = { .tv_nsec = i * 977000LL % (5 * NSEC_PER_MSEC) };
		struct timespec soon = { .tv_sec = 1 };

		while (!__atomic_load_n(&d.back, __ATOMIC_ACQUIRE))
			futex_wait(&d.back, 0, NULL, FUTEX_PRIVATE_FLAG);
		__atomic_store_n(&d.back, 0, __ATOMIC_SEQ_CST);
		/* The drifter falls asleep and may be moved. */
		nanosleep(&pause, NULL);
		if (i == 299)
			__atomic_store_n(&d.stop, true, __ATOMIC_RELEASE);
		__atomic_store_n(&d.turn, 1, __ATOMIC_SEQ_CST);
		futex_swap(&d.back, 0, &soon, &d.turn, FUTEX_PRIVATE_FLAG);
	}
	ASSERT_EQ(0, pthread_join(drifter, NULL));
	__atomic_store_n(&p->stop, 1, __ATOMIC_RELEASE);
	ASSERT_EQ(0, pthread_join(hog, NULL));
	EXPECT_EQ(0, p->side[0].err);
}

enum { HAS_THE_TURN, COMPETES, FALLS_ASLEEP };

/*
 * Falls asleep after turns of different lengths, while another thread wants the
 * CPU.
 */
static void *sleep_amid_competition(void *arg)
{
	struct drifter *d = arg;
	int i;

	pin_to(0, d->cpu);
	for (i = 0; ; i++) {
		while (!__atomic_load_n(&d->turn, __ATOMIC_ACQUIRE))
			futex_wait(&d->turn, 0, NULL, FUTEX_PRIVATE_FLAG);
		if (__atomic_load_n(&d->stop, __ATOMIC_ACQUIRE))
			return NULL;
		__atomic_store_n(&d->turn, 0, __ATOMIC_RELAXED);
		__atomic_store_n(&d->back, COMPETES, __ATOMIC_SEQ_CST);
		futex_wake(&d->back, 1, FUTEX_PRIVATE_FLAG);
		stay_busy(NSEC_PER_MSEC + i * 977000LL % (15 * NSEC_PER_MSEC));
		__atomic_store_n(&d->back, FALLS_ASLEEP, __ATOMIC_RELEASE);
	}
}

/*
 * A task that has had more than its share when it falls asleep stays on the run
 * queue for a while (DELAY_DEQUEUE). About half of these targets do.
 */
TEST(delayed_sleeper_is_handed_the_cpu)
{
	const int rounds = 100;
	long queued = -swap_count("target_queued"), handed = -swap_count("handoff");
	struct drifter d = { .cpu = sched_getcpu() };
	pthread_t sleeper;
	int i;

	if (handed > 0)
		SKIP(return, "needs root, debugfs and " SWAP_COUNTS);
	ASSERT_TRUE(pin_to(0, d.cpu));
	ASSERT_EQ(0, pthread_create(&sleeper, NULL, sleep_amid_competition, &d));
	for (i = 0; i < rounds; i++) {
		__atomic_store_n(&d.back, HAS_THE_TURN, __ATOMIC_RELAXED);
		__atomic_store_n(&d.turn, 1, __ATOMIC_SEQ_CST);
		futex_swap(&d.back, HAS_THE_TURN, NULL, &d.turn, FUTEX_PRIVATE_FLAG);
		/* Compete for the CPU. */
		while (__atomic_load_n(&d.back, __ATOMIC_ACQUIRE) != FALLS_ASLEEP)
			;
	}
	__atomic_store_n(&d.stop, true, __ATOMIC_RELEASE);
	__atomic_store_n(&d.turn, 1, __ATOMIC_SEQ_CST);
	futex_wake(&d.turn, 1, FUTEX_PRIVATE_FLAG);
	ASSERT_EQ(0, pthread_join(sleeper, NULL));
	handed += swap_count("handoff");
	queued += swap_count("target_queued");
	ksft_print_msg("handed off: %ld, target still queued: %ld\n", handed, queued);
	EXPECT_LE(rounds * 8 / 10, handed);
	/* Some targets lose the CPU before they are quite asleep. */
	EXPECT_GE(rounds / 10, queued);
}

/* CPUs: affinity and hotplug. */

TEST(affinity_excludes_this_cpu)
{
	struct pair *p = make_pair(_metadata, 5000, FUTEX_PRIVATE_FLAG);
	pthread_t thread[2];
	int cpu[2];

	if (!two_cpus(cpu))
		SKIP(return, "needs two CPUs");
	p->side[0].cpu = cpu[0];
	p->side[1].cpu = cpu[1];
	start_pair(_metadata, p, thread);
	join_pair(_metadata, p, thread);
	EXPECT_EQ(0, p->side[0].err);
	EXPECT_EQ(0, p->side[1].err);
}

/* The target fell asleep on the swapper's CPU, but may not run there now. */
TEST(affinity_changed_while_the_target_sleeps)
{
	struct call *target;
	long refused;
	int cpu[2], i;

	if (!two_cpus(cpu))
		SKIP(return, "needs two CPUs");
	make_arena(_metadata, 0);
	target = &arena->other;

	refused = swap_count("cpu");
	for (i = 0; i < 100; i++) {
		const int fl = i & 2 ? FUTEX_PRIVATE_FLAG : 0;

		prepare_wait(target, &arena->peer, fl)->cpu = cpu[i % 2];
		START_ASLEEP(target);
		ASSERT_TRUE(pin_to(target->tid, cpu[!(i % 2)]));

		prepare_swap(swapper, &arena->own, &arena->peer, fl)->cpu = cpu[i % 2];
		start(_metadata, swapper);
		ASSERT_RETURNS(0, 0, target);
		EXPECT_EQ(cpu[!(i % 2)], target->cpu_after);
		end_swapper(_metadata, swapper, &arena->own, fl);
		EXPECT_EQ(cpu[i % 2], swapper->cpu_after);
	}
	EXPECT_COUNTED("cpu", refused);
}

FIXTURE(hotplug) {
	int cpu;
	char online[64];
};

FIXTURE_SETUP(hotplug)
{
	int cpu[2];

	if (!two_cpus(cpu))
		SKIP(return, "needs two CPUs");
	make_arena(_metadata, 0);
	self->cpu = cpu[1];
	snprintf(self->online, sizeof(self->online),
		 "/sys/devices/system/cpu/cpu%d/online", self->cpu);
	if (!write_file(self->online, "1"))
		SKIP(return, "can't take CPU %d offline: %s", self->cpu, strerror(errno));
}

FIXTURE_TEARDOWN(hotplug)
{
	write_file(self->online, "1");
}

TEST_F(hotplug, cpu_goes_offline_during_swaps)
{
	struct pair *p = make_pair(_metadata, LONG_MAX, FUTEX_PRIVATE_FLAG);
	pthread_t thread[2];
	int i, refused = 0;

	start_pair(_metadata, p, thread);
	for (i = 0; i < 3; i++) {
		ASSERT_TRUE(wait_turns(p, 100));
		ASSERT_TRUE(pin_to(p->side[0].tid, self->cpu));
		ASSERT_TRUE(pin_to(p->side[1].tid, self->cpu));
		ASSERT_TRUE(wait_turns(p, 100));
		if (!write_file(self->online, "0")) {
			refused = errno;
			break;
		}
		EXPECT_TRUE(wait_turns(p, 100));
		ASSERT_TRUE(write_file(self->online, "1"));
	}
	__atomic_store_n(&p->stop, 1, __ATOMIC_RELEASE);
	join_pair(_metadata, p, thread);
	if (refused && _metadata->exit_code == KSFT_PASS)
		SKIP(return, "can't take CPU %d offline: %s", self->cpu, strerror(refused));
}

/* The target's CPU went offline, and in every second round came back. */
TEST_F(hotplug, cpu_goes_offline_while_the_target_sleeps)
{
	struct call *target = &arena->other;
	const int fl = FUTEX_PRIVATE_FLAG;
	int i;

	for (i = 0; i < 4; i++) {
		prepare_wait(target, &arena->peer, fl)->cpu = self->cpu;
		START_ASLEEP(target);
		if (!write_file(self->online, "0"))
			SKIP(return, "can't take CPU %d offline: %s", self->cpu,
			     strerror(errno));
		if (i % 2)
			ASSERT_TRUE(write_file(self->online, "1"));

		prepare_swap(swapper, &arena->own, &arena->peer, fl);
		if (i % 2)
			swapper->cpu = self->cpu;
		start(_metadata, swapper);
		ASSERT_RETURNS(0, 0, target);
		if (!(i % 2))
			EXPECT_NE(self->cpu, target->cpu_after);
		end_swapper(_metadata, swapper, &arena->own, fl);
		write_file(self->online, "1");
	}
}

/* Scheduling classes and priorities. */

FIXTURE(class) {
};

FIXTURE_VARIANT(class) {
	struct {
		int policy;
		int prio;
		int nice;
	} side[2];
};

#define OTHER	{ SCHED_OTHER, 0, SIDE_KEEPS_NICE }

FIXTURE_VARIANT_ADD(class, target_fifo) {
	.side = { OTHER, { SCHED_FIFO, 10, SIDE_KEEPS_NICE } },
};

FIXTURE_VARIANT_ADD(class, swapper_fifo) {
	.side = { { SCHED_FIFO, 10, SIDE_KEEPS_NICE }, OTHER },
};

FIXTURE_VARIANT_ADD(class, both_fifo) {
	.side = { { SCHED_FIFO, 10, SIDE_KEEPS_NICE },
		  { SCHED_FIFO, 20, SIDE_KEEPS_NICE } },
};

FIXTURE_VARIANT_ADD(class, target_rr) {
	.side = { OTHER, { SCHED_RR, 10, SIDE_KEEPS_NICE } },
};

FIXTURE_VARIANT_ADD(class, swapper_rr) {
	.side = { { SCHED_RR, 10, SIDE_KEEPS_NICE }, OTHER },
};

FIXTURE_VARIANT_ADD(class, target_deadline) {
	.side = { OTHER, { SCHED_DEADLINE, 0, SIDE_KEEPS_NICE } },
};

FIXTURE_VARIANT_ADD(class, swapper_deadline) {
	.side = { { SCHED_DEADLINE, 0, SIDE_KEEPS_NICE }, OTHER },
};

FIXTURE_VARIANT_ADD(class, both_rr) {
	.side = { { SCHED_RR, 10, SIDE_KEEPS_NICE },
		  { SCHED_RR, 10, SIDE_KEEPS_NICE } },
};

FIXTURE_VARIANT_ADD(class, both_deadline) {
	.side = { { SCHED_DEADLINE, 0, SIDE_KEEPS_NICE },
		  { SCHED_DEADLINE, 0, SIDE_KEEPS_NICE } },
};

FIXTURE_VARIANT_ADD(class, both_batch) {
	.side = { { SCHED_BATCH, 0, SIDE_KEEPS_NICE },
		  { SCHED_BATCH, 0, SIDE_KEEPS_NICE } },
};

FIXTURE_VARIANT_ADD(class, both_nice_5) {
	.side = { { SCHED_OTHER, 0, 5 }, { SCHED_OTHER, 0, 5 } },
};

FIXTURE_VARIANT_ADD(class, target_idle) {
	.side = { OTHER, { SCHED_IDLE, 0, SIDE_KEEPS_NICE } },
};

FIXTURE_VARIANT_ADD(class, swapper_idle) {
	.side = { { SCHED_IDLE, 0, SIDE_KEEPS_NICE }, OTHER },
};

FIXTURE_VARIANT_ADD(class, both_idle) {
	.side = { { SCHED_IDLE, 0, SIDE_KEEPS_NICE },
		  { SCHED_IDLE, 0, SIDE_KEEPS_NICE } },
};

FIXTURE_VARIANT_ADD(class, target_batch) {
	.side = { OTHER, { SCHED_BATCH, 0, SIDE_KEEPS_NICE } },
};

FIXTURE_VARIANT_ADD(class, swapper_batch) {
	.side = { { SCHED_BATCH, 0, SIDE_KEEPS_NICE }, OTHER },
};

FIXTURE_VARIANT_ADD(class, nice_differs) {
	.side = { { SCHED_OTHER, 0, 19 }, { SCHED_OTHER, 0, -20 } },
};

FIXTURE_SETUP(class)
{
}

FIXTURE_TEARDOWN(class)
{
}

TEST_F(class, turns_taken_priorities_kept)
{
	struct pair *p = make_pair(_metadata, 1000, FUTEX_PRIVATE_FLAG);
	pthread_t thread[2];
	int i;

	for (i = 0; i < 2; i++) {
		p->side[i].policy = variant->side[i].policy;
		p->side[i].prio = variant->side[i].prio;
		p->side[i].nice = variant->side[i].nice;
	}
	start_pair(_metadata, p, thread);
	join_pair(_metadata, p, thread);
	for (i = 0; i < 2; i++) {
		/* A skip would hide a failure that join_pair() has found. */
		if ((p->side[i].err == EPERM || p->side[i].err == EACCES) &&
		    _metadata->exit_code == KSFT_PASS)
			SKIP(return, "may not set scheduling policy %d",
			     p->side[i].policy);
		EXPECT_EQ(0, p->side[i].err);
		EXPECT_EQ(p->side[i].policy, p->side[i].policy_after);
	}
}

/* The target has its new class and nice value when it is woken. */
TEST(class_changed_while_the_target_sleeps)
{
	static const struct {
		int policy, prio, nice, priority;
	} to[] = {
		{ SCHED_FIFO, 10, 0, -11 }, { SCHED_OTHER, 0, 5, 25 },
		{ SCHED_RR, 20, 0, -21 }, { SCHED_IDLE, 0, 0, 20 },
		{ SCHED_BATCH, 0, 10, 30 }, { SCHED_OTHER, 0, -5, 15 },
	};
	struct call *target;
	const int fl = FUTEX_PRIVATE_FLAG;
	unsigned int i;

	make_arena(_metadata, 0);
	target = &arena->other;
	if (!become_fifo(0))
		SKIP(return, "may not set SCHED_FIFO: %s", strerror(errno));
	ASSERT_EQ(0, sched_setscheduler(0, SCHED_OTHER, &(struct sched_param){}));

	for (i = 0; i < ARRAY_SIZE(to); i++) {
		struct sched_param param = { .sched_priority = to[i].prio };
		const char *outcome = to[i].prio ? "class" : "weight";
		long refused;

		/* On one CPU: without the change this would be a hand-off. */
		prepare_wait(target, &arena->peer, fl)->cpu = sched_getcpu();
		START_ASLEEP(target);
		ASSERT_EQ(0, sched_setscheduler(target->tid, to[i].policy, &param));
		ASSERT_EQ(0, setpriority(PRIO_PROCESS, target->tid, to[i].nice));
		EXPECT_EQ(to[i].priority, task_priority(target->tid));

		refused = swap_count(outcome);
		prepare_swap(swapper, &arena->own, &arena->peer, fl)->cpu = target->cpu;
		start(_metadata, swapper);
		ASSERT_RETURNS(0, 0, target);
		EXPECT_COUNTED(outcome, refused);
		EXPECT_EQ(20, task_priority(swapper->tid));
		end_swapper(_metadata, swapper, &arena->own, fl);
	}
}

/*
 * Makes its call as the owner of the PI lock spare. Before the call it sleeps
 * on the futex @arg, if there is one.
 */
static long enter_as_owner(struct call *c)
{
	const int fl = FUTEX_PRIVATE_FLAG;
	long ret;
	int err;

	if (futex_lock_pi(&arena->spare, NULL, 0, fl))
		return -2;
	if (c->arg)
		futex_wait(c->arg, 0, NULL, fl);
	ret = futex(c->uaddr, c->op, c->val, c->timeout, c->uaddr2, c->val3, 0);
	err = errno;
	if (futex_unlock_pi(&arena->spare, fl))
		return -3;
	errno = err;
	return ret;
}

FIXTURE(boosted) {
};

FIXTURE_VARIANT(boosted) {
	bool swapper;
};

FIXTURE_VARIANT_ADD(boosted, swapper) {
	.swapper = true,
};

FIXTURE_VARIANT_ADD(boosted, target) {
	.swapper = false,
};

FIXTURE_SETUP(boosted)
{
	make_arena(_metadata, 0);
}

FIXTURE_TEARDOWN(boosted)
{
}

/*
 * One side owns a lock that a real-time task waits for. As long as it owns the
 * lock it has the priority of that task, asleep or awake. A swap must neither
 * give this priority to the other side nor take it away.
 */
TEST_F(boosted, priority_stays_with_the_owner)
{
	struct call *target = &arena->other;
	struct call *owner = variant->swapper ? swapper : target;
	struct call *fifo = &arena->waiter[0];
	const int fl = FUTEX_PRIVATE_FLAG, absent = errno_of_unknown();
	const int cpu = sched_getcpu();
	long refused;

	if (!become_fifo(0))
		SKIP(return, "may not set SCHED_FIFO: %s", strerror(errno));
	ASSERT_EQ(0, sched_setscheduler(0, SCHED_OTHER, &(struct sched_param){}));
	if (futex_unlock_pi(&arena->spare, fl) && errno == absent)
		SKIP(return, "this kernel has no PI futexes (CONFIG_FUTEX_PI)");

	prepare_wait(target, &arena->peer, fl)->cpu = cpu;
	prepare_swap(swapper, &arena->own, &arena->peer, fl)->cpu = cpu;
	owner->enter = enter_as_owner;
	START_ASLEEP(target);
	if (variant->swapper) {
		swapper->arg = (void *)&arena->own2;
		swapper->arg0 = (unsigned long)&arena->own2;
		START_ASLEEP(swapper);
		swapper->arg0 = (unsigned long)&arena->own;
	}
	prepare(fifo, &arena->spare, FUTEX_LOCK_PI | fl)->fifo = true;
	fifo->cpu = cpu;
	START_ASLEEP(fifo);
	EXPECT_EQ(-11, task_priority(owner->tid));

	refused = swap_count("class");
	if (variant->swapper)
		futex_wake(&arena->own2, 1, fl);
	else
		start(_metadata, swapper);
	ASSERT_RETURNS(0, 0, target);
	ASSERT_ASLEEP(swapper);
	EXPECT_COUNTED("class", refused);
	EXPECT_EQ(variant->swapper ? -11 : 20, task_priority(swapper->tid));
	end_swapper(_metadata, swapper, &arena->own, fl);
	ASSERT_RETURNS(0, 0, fifo);
}

struct sleeper {
	int cpu;
	int err;
	long long latest;
};

/* A real-time thread that sleeps 2000 times and records its largest delay. */
static void *sleep_and_wake(void *arg)
{
	struct sleeper *s = arg;
	long long when, late, until;
	int i;

	if (!pin_to(0, s->cpu) || !become_fifo(0)) {
		s->err = errno;
		return NULL;
	}
	s->latest = 0;
	until = now() + PATIENCE;
	for (i = 0; i < 2000 && now() < until; i++) {
		when = now() + NSEC_PER_MSEC;
		sleep_until(when);
		late = now() - when;
		if (late > s->latest)
			s->latest = late;
	}
	return NULL;
}

/*
 * A timer may wake the real-time thread in the middle of a hand-off. The thread
 * must run at once. It must not wait until the scheduler picks a task the next
 * time, because a chain of hand-offs may run for a second without a pick. A
 * guest's busy host causes shorter delays, and not in each try.
 */
TEST(realtime_thread_does_not_wait_for_a_chain)
{
	const long long much = 300 * NSEC_PER_MSEC;
	struct sleeper s = { .cpu = sched_getcpu() };
	const long handed = swap_count("handoff");
	int try;

	for (try = 0; try < 3 && (!try || s.latest >= much); try++) {
		struct pair *p = make_pair(_metadata, LONG_MAX, FUTEX_PRIVATE_FLAG);
		pthread_t thread[2], rt;

		p->side[0].cpu = s.cpu;
		p->side[1].cpu = s.cpu;
		start_pair(_metadata, p, thread);
		ASSERT_TRUE(wait_turns(p, 2));
		ASSERT_EQ(0, pthread_create(&rt, NULL, sleep_and_wake, &s));
		ASSERT_EQ(0, pthread_join(rt, NULL));
		__atomic_store_n(&p->stop, 1, __ATOMIC_RELEASE);
		join_pair(_metadata, p, thread);
		/* A skip would hide a failure that join_pair() has found. */
		if (s.err && _metadata->exit_code == KSFT_PASS)
			SKIP(return, "may not set SCHED_FIFO: %s", strerror(s.err));
		ASSERT_EQ(0, s.err);
		ksft_print_msg("late by %lld us at the most\n", s.latest / 1000);
	}
	EXPECT_GT(much, s.latest);
	EXPECT_COUNTED("handoff", handed);
}

static long hogged;

/* Counts as long as it has the CPU. A real-time hog takes a third of the CPU. */
static void *hog(void *arg)
{
	struct side *s = arg;

	s->err = become(s);
	while (!__atomic_load_n(&s->pair->stop, __ATOMIC_RELAXED)) {
		const long long start = now();

		while (now() < start + NSEC_PER_MSEC)
			__atomic_add_fetch(&hogged, 1, __ATOMIC_RELAXED);
		if (s->policy == SCHED_FIFO)
			sleep_until(3 * now() - 2 * start);
	}
	return NULL;
}

/*
 * Does the side whose turn comes next sleep, but on no futex? To requeue a waiter to its
 * own futex only tells whether there is one.
 */
static bool next_side_in_limbo(struct pair *p, long turns)
{
	struct side *s = &p->side[turns % 2];
	futex_t *word = &p->word[s->me];

	return task_state(s->tid) == 'S' &&
	       !futex(word, FUTEX_REQUEUE, 0, (void *)1, word, 0, p->opflags) &&
	       task_state(s->tid) == 'S' &&
	       __atomic_load_n(&p->turns, __ATOMIC_ACQUIRE) == turns;
}

/*
 * A swap takes the target off its futex, and a moment later hands the CPU to it or wakes
 * it. No other task may get the CPU in between: no FUTEX_WAKE would find the target, until
 * the caller runs again. A real-time task is due at any moment, and then there is no
 * hand-off. @why there is none.
 */
static void check_limbo(struct __test_metadata *_metadata, struct pair *p, const char *why)
{
	const long long start = now();
	long refused = swap_count(why), limbo = 0;
	pthread_t thread[2], hogs[3];
	struct side hog_side[3];
	int cpu[2], i;

	if (!two_cpus(cpu))
		SKIP(return, "needs two CPUs");
	for (i = 0; i < 2; i++)
		p->side[i].cpu = cpu[0];
	start_pair(_metadata, p, thread);
	for (i = 0; i < 3; i++) {
		hog_side[i] = (struct side){ .pair = p, .nice = SIDE_KEEPS_NICE, .cpu = cpu[0],
					     .policy = i ? SCHED_OTHER : SCHED_FIFO,
					     .prio = i ? 0 : 10 };
		ASSERT_EQ(0, pthread_create(&hogs[i], NULL, hog, &hog_side[i]));
	}
	ASSERT_TRUE(pin_to(0, cpu[1]));
	EXPECT_TRUE(wait_turns(p, 2));
	/* On a busy host the task may not be due during a swap in a guest's second. */
	while (now() < start + NSEC_PER_SEC ||
	       (now() < start + PATIENCE && swap_count(why) == refused)) {
		const long turns = __atomic_load_n(&p->turns, __ATOMIC_ACQUIRE);
		long before;

		if (!next_side_in_limbo(p, turns))
			continue;
		before = __atomic_load_n(&hogged, __ATOMIC_RELAXED);
		stay_busy(NSEC_PER_MSEC / 10);
		limbo += __atomic_load_n(&hogged, __ATOMIC_RELAXED) != before &&
			 next_side_in_limbo(p, turns);
	}
	EXPECT_EQ(0, limbo);
	__atomic_store_n(&p->stop, 1, __ATOMIC_RELEASE);
	join_pair(_metadata, p, thread);
	for (i = 0; i < 3; i++)
		ASSERT_EQ(0, pthread_join(hogs[i], NULL));
	if (hog_side[0].err && _metadata->exit_code == KSFT_PASS)
		SKIP(return, "may not set SCHED_FIFO: %s", strerror(hog_side[0].err));
	EXPECT_COUNTED(why, refused);
}

TEST(nobody_runs_before_the_target_is_woken)
{
	check_limbo(_metadata, make_pair(_metadata, LONG_MAX, FUTEX_PRIVATE_FLAG), "higher_class");
}

/* Shared futexes in private memory: the target is woken before the caller waits. */
TEST(nobody_runs_before_the_target_is_woken_alone)
{
	struct pair *p = make_pair(_metadata, LONG_MAX, 0), pair = *p;

	ASSERT_EQ((void *)p, mmap(p, sizeof(*p), PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
	*p = pair;
	check_limbo(_metadata, p, "shared");
}

#if LINUX_AT_LEAST(6, 16)
/* The hash of the process's private futexes is replaced amid the swaps. */

#ifndef PR_FUTEX_HASH
#define PR_FUTEX_HASH			78
#define PR_FUTEX_HASH_SET_SLOTS		1
#endif

static int set_hash_slots(unsigned int slots)
{
	return prctl(PR_FUTEX_HASH, PR_FUTEX_HASH_SET_SLOTS, slots, 0, 0);
}

TEST(hash_replaced_amid_swaps)
{
	const int last = 40, fl = FUTEX_PRIVATE_FLAG;
	const long replaced = swap_count("hash");
	struct pair *p = make_pair(_metadata, LONG_MAX, fl);
	struct call *parked;
	pthread_t thread[2];
	long handed;
	int i;

	if (set_hash_slots(16)) {
		ASSERT_EQ(EINVAL, errno);
		SKIP(return, "no private hash (CONFIG_FUTEX_PRIVATE_HASH)");
	}
	make_arena(_metadata, 0);
	parked = &arena->swapper[0];
	START_ASLEEP(prepare_swap(parked, &arena->own, &arena->peer, fl));
	p->side[0].cpu = sched_getcpu();
	p->side[1].cpu = p->side[0].cpu;
	start_pair(_metadata, p, thread);
	for (i = 1; i <= last; i++) {
		/* 0: the global hash, which a process cannot leave again. */
		ASSERT_EQ(0, set_hash_slots(i < last ? 2 << i * 7 % 11 : 0));
		ASSERT_TRUE(wait_turns(p, 100));
		handed = swap_count("handoff");
		ASSERT_TRUE(wait_turns(p, 100));
		EXPECT_COUNTED("handoff", handed);
	}
	__atomic_store_n(&p->stop, 1, __ATOMIC_RELEASE);
	join_pair(_metadata, p, thread);
	end_swapper(_metadata, parked, &arena->own, fl);
	EXPECT_COUNTED("hash", replaced);
}
#endif

/* Restartable sequences. */

#define RSEQ_MARK	0x80000000U

/* The thread's rseq area, if the C library has registered one. */
static struct rseq *rseq_area(void)
{
	const unsigned int *size = dlsym(RTLD_DEFAULT, "__rseq_size");
	const ptrdiff_t *offset = dlsym(RTLD_DEFAULT, "__rseq_offset");

	if (!size || !*size || !offset)
		return NULL;
	return (struct rseq *)((char *)__builtin_thread_pointer() + *offset);
}

#define RSEQ_LEGACY_SIZE 32
/* With which the C library registers the area: RSEQ_SIG of its <sys/rseq.h>. */
#ifdef __aarch64__
#define RSEQ_SIGNATURE 0xd428bc00U
#else
#define RSEQ_SIGNATURE 0x53053053U
#endif

/* Why there is no area of the first version; NULL if there is one. */
static const char *no_legacy_rseq(void)
{
	if (!rseq_area())
		return "the C library has registered no rseq area";
	if ((int)rseq_area()->cpu_id < 0)
		return "this kernel has no rseq";
	if (*(const unsigned int *)dlsym(RTLD_DEFAULT, "__rseq_size") > RSEQ_LEGACY_SIZE)
		return "the C library has registered an area of the second version";
	return NULL;
}

static long still_marked[2];

#if LINUX_AT_LEAST(6, 19)
static void mark_before_swap(struct side *s, long n)
{
	__atomic_or_fetch(&rseq_area()->cpu_id_start, RSEQ_MARK, __ATOMIC_RELAXED);
}

static void look_after_swap(struct side *s)
{
	still_marked[s->me] += !!(__atomic_load_n(&rseq_area()->cpu_id_start, __ATOMIC_RELAXED) &
				  RSEQ_MARK);
}

/*
 * A thread that was off the CPU finds the number of its CPU in cpu_id_start, whatever
 * it wrote there. User space is not meant to write there, but TCMalloc does, and the
 * kernel keeps that promise to who registers an area of the first version, of 32 bytes.
 */
#else
/*
 * The abort handler of the sequence. Never executed, but the kernel checks its
 * signature.
 */
static const struct {
	uint32_t signature;
	uint32_t abort;
} rseq_abort = { .signature = RSEQ_SIGNATURE };

static const char rseq_code[16];
static const struct rseq_cs rseq_sequence = {
	.start_ip = (uintptr_t)rseq_code,
	.post_commit_offset = sizeof(rseq_code),
	.abort_ip = (uintptr_t)&rseq_abort.abort,
};

/*
 * The kernel overwrites both fields when the thread leaves the CPU. rseq_cs may
 * also be left from a sequence that has ended: nobody has to clear it.
 */
static void mark_rseq_area(struct rseq *area, bool sequence)
{
	if (sequence)
		__atomic_store_n(&area->rseq_cs, (uintptr_t)&rseq_sequence,
				 __ATOMIC_RELAXED);
	else
		__atomic_or_fetch(&area->cpu_id_start, RSEQ_MARK, __ATOMIC_RELAXED);
}

static bool rseq_area_marked(struct rseq *area)
{
	return __atomic_load_n(&area->rseq_cs, __ATOMIC_RELAXED) ||
	       __atomic_load_n(&area->cpu_id_start, __ATOMIC_RELAXED) & RSEQ_MARK;
}

static void mark_before_swap(struct side *s, long n)
{
	mark_rseq_area(rseq_area(), n % 2);
}

static void look_after_swap(struct side *s)
{
	still_marked[s->me] += rseq_area_marked(rseq_area());
}

/*
 * A thread that was off the CPU finds the number of its CPU in cpu_id_start,
 * whatever it wrote there, and rseq_cs clear. User space is not meant to write
 * cpu_id_start, but TCMalloc does.
 */
#endif
TEST(rseq_mark_removed_by_a_swap)
{
	struct pair *p = make_pair(_metadata, 2000, FUTEX_PRIVATE_FLAG);
	const char *why = no_legacy_rseq();
	pthread_t thread[2];
	int i;

	if (why)
		SKIP(return, "%s", why);
	for (i = 0; i < 2; i++) {
		p->side[i].cpu = sched_getcpu();
		p->side[i].before_swap = mark_before_swap;
		p->side[i].after_swap = look_after_swap;
	}
	start_pair(_metadata, p, thread);
	join_pair(_metadata, p, thread);
	EXPECT_EQ(0, still_marked[0]);
	EXPECT_EQ(0, still_marked[1]);
}

/*
 * A swap whose caller has unmapped its rseq area sleeps all the same. The kernel finds
 * that out when it writes there, after the sleep, and sends SIGSEGV.
 */
TEST(rseq_area_unmapped_sleeps)
{
	const unsigned int sig = RSEQ_SIGNATURE;
	const long swaps = swap_count("no_target");
	const char *why = no_legacy_rseq();
	int i, status;

	if (why)
		SKIP(return, "%s", why);
	/* Any other switch finds it out, too: not each child comes to its swap. */
	for (i = 0; i < 10; i++) {
		const long long limit = now() + PATIENCE;
		pid_t child = fork_child(_metadata), ended;

		if (!child) {
			struct timespec soon = { .tv_nsec = 20 * NSEC_PER_MSEC };
			void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
					  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
			futex_t word = 0;

			if (syscall(SYS_rseq, rseq_area(), RSEQ_LEGACY_SIZE,
				    RSEQ_FLAG_UNREGISTER, sig) ||
			    syscall(SYS_rseq, page, RSEQ_LEGACY_SIZE, 0, sig))
				_exit(KSFT_SKIP);
			munmap(page, 4096);
			/* If the time is up before the sleep, there is no switch. */
			while (futex_swap(&word, 0, &soon, NULL, FUTEX_PRIVATE_FLAG) &&
			       errno == ETIMEDOUT)
				;
			_exit(KSFT_FAIL);
		}
		while (!(ended = waitpid(child, &status, WNOHANG)) && now() < limit)
			sleep_until(now() + NSEC_PER_MSEC);
		ASSERT_EQ(child, ended);
		if (WIFEXITED(status) && WEXITSTATUS(status) == KSFT_SKIP)
			SKIP(return, "the area has another signature or length");
		EXPECT_TRUE(WIFSIGNALED(status));
		EXPECT_EQ(SIGSEGV, WTERMSIG(status));
	}
	EXPECT_COUNTED("no_target", swaps);
}

/* Task groups and core scheduling. */

#define AUTOGROUP	"/proc/sys/kernel/sched_autogroup_enabled"

/*
 * All threads of a process are in one autogroup, so there is a hand-off. Between
 * two processes in two autogroups there is none.
 */
TEST(autogroups_differ)
{
	struct pair *p = make_pair(_metadata, 2000, 0);
	const long handed = swap_count("handoff"), differed = swap_count("group");
	const int cpu = sched_getcpu();
	char (*group)[64];	/* "/autogroup-N nice N" */
	long between = -1;
	int i, status[3];
	char before[16];
	pid_t pid[3];

	if (access("/proc/self/autogroup", R_OK))
		SKIP(return, "no autogroups (CONFIG_SCHED_AUTOGROUP)");
	group = mmap(NULL, sizeof(*group) * 3, PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, group);
	ASSERT_LT(0, read_file(AUTOGROUP, before, sizeof(before)));
	write_file(AUTOGROUP, "1");
	for (i = 0; i < 3; i++) {
		if (i == 2) {
			/* Only these two swap until now. */
			waitpid(pid[0], &status[0], 0);
			waitpid(pid[1], &status[1], 0);
			between = swap_count("handoff");
		}
		pid[i] = fork_child(_metadata);
		if (!pid[i]) {
			struct pair *own;
			pthread_t t[2];

			setsid();
			read_file("/proc/self/autogroup", group[i], sizeof(group[i]));
			if (i < 2) {
				p->side[i].cpu = cpu;
				run_side(&p->side[i]);
				_exit(0);
			}
			own = make_pair(_metadata, 200, FUTEX_PRIVATE_FLAG);
			own->side[0].cpu = cpu;
			own->side[1].cpu = cpu;
			start_pair(_metadata, own, t);
			join_pair(_metadata, own, t);
			_exit(!__test_passed(_metadata));
		}
	}
	waitpid(pid[2], &status[2], 0);
	write_file(AUTOGROUP, before);
	for (i = 0; i < 3; i++) {
		EXPECT_EQ(0, status[i]);
		EXPECT_EQ(0, strncmp(group[i], "/autogroup-", 11));
		EXPECT_STRNE(group[i], group[(i + 1) % 3]);
	}
	check_pair(_metadata, p);
	EXPECT_EQ(handed, between);
	if (has_vma_locks())
		EXPECT_COUNTED("group", differed);
	EXPECT_COUNTED("handoff", between);
}

#ifndef PR_SCHED_CORE
#define PR_SCHED_CORE		62
#define PR_SCHED_CORE_CREATE	1
#endif

struct cookie_side {
	struct side *side;
	bool cookie;
	int err;
};

static void *run_cookie_side(void *arg)
{
	struct cookie_side *c = arg;

	/* Scope 0: the cookie is for this thread alone. */
	if (c->cookie && prctl(PR_SCHED_CORE, PR_SCHED_CORE_CREATE, 0, 0, 0))
		c->err = errno;
	run_side(c->side);
	return NULL;
}

FIXTURE(core) {
};

FIXTURE_VARIANT(core) {
	bool cookie[2];
	bool same;
};

/* Threads with different cookies may not share a core. */
FIXTURE_VARIANT_ADD(core, cookies_differ) {
	.cookie = { true, true },
};

FIXTURE_VARIANT_ADD(core, swapper_has_one) {
	.cookie = { true, false },
};

FIXTURE_VARIANT_ADD(core, target_has_one) {
	.cookie = { false, true },
};

FIXTURE_VARIANT_ADD(core, one_for_both) {
	.same = true,
};

FIXTURE_SETUP(core)
{
}

FIXTURE_TEARDOWN(core)
{
}

/*
 * While any task has a cookie, one CPU alone cannot decide which task runs. So
 * there are no hand-offs.
 */
TEST_F(core, cookies_no_handoff)
{
	struct pair *p = make_pair(_metadata, 300, FUTEX_PRIVATE_FLAG);
	struct cookie_side c[2] = {
		{ &p->side[0], variant->cookie[0] }, { &p->side[1], variant->cookie[1] },
	};
	long handed, counted = swap_count("core");
	pthread_t thread[2];
	int i, err = 0;

	/* A thread starts with the cookie of its creator. */
	if (variant->same && prctl(PR_SCHED_CORE, PR_SCHED_CORE_CREATE, 0, 0, 0))
		err = errno;
	p->side[0].cpu = sched_getcpu();
	p->side[1].cpu = p->side[0].cpu;
	handed = swap_count("handoff");
	for (i = 0; i < 2; i++)
		ASSERT_EQ(0, pthread_create(&thread[i], NULL, run_cookie_side, &c[i]));
	join_pair(_metadata, p, thread);
	for (i = 0; i < 2; i++) {
		if (!err)
			err = c[i].err;
		if ((err == EINVAL || err == ENODEV) && _metadata->exit_code == KSFT_PASS)
			SKIP(return, "no core scheduling, or no core of several CPUs");
		EXPECT_EQ(0, err);
	}
	if (counted >= 0) {
		EXPECT_LT(counted, swap_count("core"));
		/*
		 * The first turns may be hand-offs, as a thread may have had no
		 * cookie yet.
		 */
		EXPECT_GT(handed + 15, swap_count("handoff"));
	}
}

int main(int argc, char **argv)
{
	need_futex_swap();
	return test_harness_run(argc, argv);
}
