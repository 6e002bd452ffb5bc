// SPDX-License-Identifier: GPL-2.0
/*
 * FUTEX_SWAP and CPU time: clocks, shares of a CPU, timers and limits of CPU
 * time, and what /proc, perf and tracepoints report of swaps.
 */
#include <linux/perf_event.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/time.h>

#include "futex_swap_common.h"
#include "futex_swap_pair.h"

TEST(thread_cpu_times_and_switches_add_up)
{
	long long wall = 0, process, threads, turns = 0;
	int try, i;

	/* Other load, also on a guest's host, may disturb several tries in a row. */
	for (try = 0; try < 10 && (!try || turns < wall * 8 / 10); try++) {
		struct pair *p = make_pair(_metadata, 10000, FUTEX_PRIVATE_FLAG);
		pthread_t thread[2];

		p->side[0].cpu = sched_getcpu();
		p->side[1].cpu = p->side[0].cpu;

		process = read_clock(CLOCK_PROCESS_CPUTIME_ID);
		threads = -read_clock(CLOCK_THREAD_CPUTIME_ID);
		wall = now();
		start_pair(_metadata, p, thread);
		join_pair(_metadata, p, thread);
		wall = now() - wall;
		threads += read_clock(CLOCK_THREAD_CPUTIME_ID);
		process = read_clock(CLOCK_PROCESS_CPUTIME_ID) - process;

		for (turns = 0, i = 0; i < 2; i++) {
			struct side *s = &p->side[i];

			threads += s->cpu_time;
			turns += s->cpu_time - s->cpu_time_before;
			EXPECT_LT(0, s->cpu_time - s->cpu_time_before);
			/*
			 * One switch for each sleep, and a few for the waits at
			 * the start.
			 */
			EXPECT_LE(s->slept, s->usage.ru_nvcsw + s->usage.ru_nivcsw);
			EXPECT_GE(s->slept + 100, s->usage.ru_nvcsw);
		}
		/* The rest is what the two threads take to end. */
		EXPECT_LE(threads, process);
		EXPECT_GE(threads, process * 8 / 10);
		/* Both share one CPU. The clocks may differ a little. */
		EXPECT_LE(turns, wall + wall / 100);
	}
	/* One of them always runs. */
	EXPECT_GE(turns, wall * 8 / 10);
}

/*
 * A thread is woken during a swap and runs when the slice of the pair ends at a
 * hand-off. It must be charged for all of its burst. Nothing updates the clock
 * of its run queue before it sleeps: the burst is shorter than a tick, and the
 * thread reads its CPU time again only after the sleep. The thread's slice is
 * shorter than the pair's, so that it runs at once (PREEMPT_SHORT). The slice
 * is longer than the burst: at its end, HRTICK would preempt the thread.
 */
TEST(burst_beside_a_pair_charged)
{
	struct deadline_attr attr = {
		.size = sizeof(attr),
		.policy = SCHED_OTHER,
		.runtime = NSEC_PER_MSEC * 6 / 10,
	};
	struct pair *p = make_pair(_metadata, LONG_MAX, FUTEX_PRIVATE_FLAG);
	const long burst = NSEC_PER_MSEC / 2;
	const int cpu = sched_getcpu();
	int i, whole = 0, lost = 0;
	pthread_t thread[2];

	ASSERT_TRUE(pin_to(0, cpu));
	p->side[0].cpu = cpu;
	p->side[1].cpu = cpu;
	start_pair(_metadata, p, thread);
	ASSERT_TRUE(wait_turns(p, 2));
	/* An older kernel ignores the slice. There the thread runs later. */
	syscall(SYS_sched_setattr, 0, &attr, 0);

	for (i = 0; i < 2000; i++) {
		struct timespec pause = { .tv_nsec = burst + i * 977 % burst };
		struct rusage before, after;
		long long charged;

		nanosleep(&pause, NULL);
		charged = -read_clock(CLOCK_THREAD_CPUTIME_ID);
		getrusage(RUSAGE_THREAD, &before);
		stay_busy(burst);
		getrusage(RUSAGE_THREAD, &after);
		nanosleep(&pause, NULL);
		charged += read_clock(CLOCK_THREAD_CPUTIME_ID);

		/* The thread was not preempted during the burst. */
		if (after.ru_nivcsw == before.ru_nivcsw) {
			whole++;
			lost += charged < burst * 9 / 10;
		}
	}
	ksft_print_msg("bursts: %d, not charged: %d\n", whole, lost);
	EXPECT_LT(100, whole);
	EXPECT_EQ(0, lost);
	__atomic_store_n(&p->stop, 1, __ATOMIC_RELEASE);
	join_pair(_metadata, p, thread);
}

/* Field @n of /proc/self/task/TID/stat, for times in ticks. */
static long stat_field(pid_t tid, int n)
{
	char path[64], buf[512], *field;
	int i;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", tid);
	if (read_file(path, buf, sizeof(buf)) <= 0)
		return -1;
	field = strrchr(buf, ')');
	for (i = 2; field && i < n; i++)
		field = strchr(field + 1, ' ');
	return field ? atol(field) : -1;
}

/*
 * The side that runs is charged: one side takes long turns, the other side only
 * hands them back.
 */
TEST(cpu_time_is_of_who_ran)
{
	struct pair *p = make_pair(_metadata, 500, FUTEX_PRIVATE_FLAG);
	const long handed = swap_count("handoff");
	long long time[2];
	pthread_t thread[2];
	int i;

	p->side[0].cpu = sched_getcpu();
	p->side[1].cpu = p->side[0].cpu;
	p->side[1].busy = 2 * NSEC_PER_MSEC;
	start_pair(_metadata, p, thread);
	join_pair(_metadata, p, thread);
	for (i = 0; i < 2; i++)
		time[i] = p->side[i].cpu_time - p->side[i].cpu_time_before;
	EXPECT_LT(2 * time[0], time[1]);
	EXPECT_COUNTED("handoff", handed);
}

static long long switches_of(pid_t tid)
{
	char path[64], buf[4096], *field;
	long long sum;

	snprintf(path, sizeof(path), "/proc/self/task/%d/status", tid);
	if (read_file(path, buf, sizeof(buf)) <= 0)
		return -1;
	field = strstr(buf, "\nvoluntary_ctxt_switches:");
	if (!field)
		return -1;
	sum = atoll(strchr(field, ':') + 1);
	/* Preemption between the wake half and the sleep is a switch, too. */
	field = strstr(buf, "\nnonvoluntary_ctxt_switches:");
	return field ? sum + atoll(strchr(field, ':') + 1) : -1;
}

/* What /proc reports of two threads while they do nothing but swap. */
TEST(proc_stat_times_add_up)
{
	struct pair *p = make_pair(_metadata, LONG_MAX, FUTEX_PRIVATE_FLAG);
	const long long tick = NSEC_PER_SEC / sysconf(_SC_CLK_TCK);
	long long shown, clock, slept;
	pthread_t thread[2];
	clockid_t id;
	int i;

	p->side[0].cpu = sched_getcpu();
	p->side[1].cpu = p->side[0].cpu;
	start_pair(_metadata, p, thread);
	sleep_until(now() + 2 * NSEC_PER_SEC);

	for (i = 0; i < 2; i++) {
		/* The value in /proc lies between two readings of the clock. */
		ASSERT_EQ(0, pthread_getcpuclockid(thread[i], &id));
		clock = read_clock(id);
		shown = stat_field(p->side[i].tid, 14) + stat_field(p->side[i].tid, 15);
		EXPECT_LE(clock / tick - 2, shown);
		clock = read_clock(id);
		EXPECT_GE(clock / tick + 2, shown);
		EXPECT_LT(NSEC_PER_SEC / 4, clock);

		slept = __atomic_load_n(&p->side[i].slept, __ATOMIC_RELAXED);
		EXPECT_LE(slept, switches_of(p->side[i].tid) + 1);
	}
	__atomic_store_n(&p->stop, 1, __ATOMIC_RELEASE);
	join_pair(_metadata, p, thread);
}

static int open_counter(__u64 config)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.size = sizeof(attr),
		.config = config,
	};

	return syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

struct counted_side {
	struct side *side;
	int err;
	__u64 switches;
	__u64 task_clock;
};

static void *run_counted_side(void *arg)
{
	struct counted_side *c = arg;
	int switches = open_counter(PERF_COUNT_SW_CONTEXT_SWITCHES);
	int clock = open_counter(PERF_COUNT_SW_TASK_CLOCK);

	c->err = switches < 0 || clock < 0 ? errno : 0;
	run_side(c->side);
	if (!c->err && (read(switches, &c->switches, sizeof(__u64)) != sizeof(__u64) ||
			read(clock, &c->task_clock, sizeof(__u64)) != sizeof(__u64)))
		c->err = EIO;
	return NULL;
}

TEST(perf_counts_switches_and_time)
{
	struct pair *p = make_pair(_metadata, 1000, FUTEX_PRIVATE_FLAG);
	struct counted_side c[2] = { { &p->side[0] }, { &p->side[1] } };
	const long busy = NSEC_PER_MSEC / 2;
	/*
	 * One CPU for both: else a side that is woken before it sleeps does not
	 * switch.
	 */
	const int cpu = sched_getcpu();
	pthread_t thread[2];
	int i;

	for (i = 0; i < 2; i++) {
		p->side[i].cpu = cpu;
		p->side[i].busy = busy;
		ASSERT_EQ(0, pthread_create(&thread[i], NULL, run_counted_side, &c[i]));
	}
	join_pair(_metadata, p, thread);
	for (i = 0; i < 2; i++) {
		struct side *s = &p->side[i];
		long long ran = s->cpu_time - s->cpu_time_before;

		if ((c[i].err == errno_of_unknown() || c[i].err == ENOENT ||
		     c[i].err == EACCES) && _metadata->exit_code == KSFT_PASS)
			SKIP(return, "no perf events: %s", strerror(c[i].err));
		ASSERT_EQ(0, c[i].err);
		EXPECT_LE(s->slept, c[i].switches);
		/*
		 * perf counts from a little before the first turn to a little
		 * after the last. It does not count the switch itself, so the
		 * turns are long.
		 */
		EXPECT_LE(1000 * busy * 8 / 10, ran);
		EXPECT_LE(ran * 8 / 10, c[i].task_clock);
		EXPECT_GE(ran * 12 / 10 + 50 * NSEC_PER_MSEC, c[i].task_clock);
	}
}

#define TRACEFS	"/sys/kernel/tracing"
#define TRACING	TRACEFS "/instances/futex_swap"

/* A trace buffer and events of its own. */
FIXTURE(tracing) {
};

FIXTURE_SETUP(tracing)
{
	if (access(TRACEFS "/trace", F_OK) &&
	    mount("tracefs", TRACEFS, "tracefs", 0, NULL))
		SKIP(return, "no tracefs: %s", strerror(errno));
	if (mkdir(TRACING, 0700) && errno != EEXIST)
		SKIP(return, "may not trace: %s", strerror(errno));
}

FIXTURE_TEARDOWN(tracing)
{
	rmdir(TRACING);
}

/*
 * A hand-off is traced like any switch: one sched_waking, one sched_wakeup and
 * one sched_switch.
 */
TEST_F(tracing, sched_switch_is_traced)
{
	struct pair *p = make_pair(_metadata, 50, FUTEX_PRIVATE_FLAG);
	static const char * const events[] = { "sched_switch", "sched_waking", "sched_wakeup" };
	static char path[128], text[256], line[512];
	long seen[ARRAY_SIZE(events)][2] = {};
	pthread_t thread[2];
	unsigned int e, i;
	FILE *trace;

	write_file(TRACING "/buffer_size_kb", "8192");
	for (e = 0; e < ARRAY_SIZE(events); e++) {
		snprintf(path, sizeof(path), TRACING "/events/sched/%s/enable", events[e]);
		ASSERT_TRUE(write_file(path, "1"));
	}
	p->side[0].cpu = sched_getcpu();
	p->side[1].cpu = p->side[0].cpu;
	start_pair(_metadata, p, thread);
	join_pair(_metadata, p, thread);
	write_file(TRACING "/events/sched/enable", "0");

	trace = fopen(TRACING "/trace", "re");
	ASSERT_NE(NULL, trace);
	while (fgets(line, sizeof(line), trace)) {
		for (i = 0; i < 2; i++) {
			/* A switch from this side to the other. */
			snprintf(text, sizeof(text), " prev_pid=%d prev_prio=120 prev_state=S ==>",
				 p->side[i].tid);
			snprintf(path, sizeof(path), " next_pid=%d ", p->side[!i].tid);
			if (strstr(line, "sched_switch:") && strstr(line, text) &&
			    strstr(line, path))
				seen[0][i]++;
			snprintf(text, sizeof(text), " pid=%d ", p->side[i].tid);
			if (strstr(line, "sched_waking:") && strstr(line, text))
				seen[1][i]++;
			if (strstr(line, "sched_wakeup:") && strstr(line, text))
				seen[2][i]++;
		}
	}
	fclose(trace);
	for (i = 0; i < 2; i++) {
		const struct side *s = &p->side[i];

		/*
		 * Another task may have run between the sides in some of the 50
		 * rounds.
		 */
		EXPECT_LE(40, seen[0][i]);
		for (e = 1; e < 3; e++) {
			EXPECT_LE(s->slept, seen[e][i]);
			/*
			 * At most one wakeup for each switch away from this
			 * side, and two before.
			 */
			EXPECT_GE(s->usage.ru_nvcsw + s->usage.ru_nivcsw + 2, seen[e][i]);
		}
	}
}

/* Each hand-off, and each one that is refused, is traced with its result. */
TEST_F(tracing, handoff_is_traced)
{
	static const char * const results[] = { "handoff", "weight" };
	static char text[256], line[512];
	pthread_t thread[2];
	unsigned int r, i;
	FILE *trace;

	write_file(TRACING "/buffer_size_kb", "8192");
	for (r = 0; r < ARRAY_SIZE(results); r++) {
		struct pair *p = make_pair(_metadata, 50, FUTEX_PRIVATE_FLAG);
		long seen[2] = {};

		p->side[0].cpu = sched_getcpu();
		p->side[1].cpu = p->side[0].cpu;
		p->side[1].nice = r;
		ASSERT_TRUE(write_file(TRACING "/events/sched/sched_handoff/enable", "1"));
		start_pair(_metadata, p, thread);
		join_pair(_metadata, p, thread);
		write_file(TRACING "/events/sched/sched_handoff/enable", "0");

		trace = fopen(TRACING "/trace", "re");
		ASSERT_NE(NULL, trace);
		while (fgets(line, sizeof(line), trace)) {
			for (i = 0; i < 2; i++) {
				snprintf(text, sizeof(text), " prev_pid=%d ", p->side[i].tid);
				if (!strstr(line, "sched_handoff:") || !strstr(line, text))
					continue;
				snprintf(text, sizeof(text), " next_pid=%d result=%s\n",
					 p->side[!i].tid, results[r]);
				seen[i] += !!strstr(line, text);
			}
		}
		fclose(trace);
		/* In some of the 50 rounds the sides may have met another task. */
		EXPECT_LE(40, seen[0]);
		EXPECT_LE(40, seen[1]);
	}
}

#define RING	256

/* Threads that take turns by swaps, each after the one before it. */
struct ring_of_swaps {
	futex_t word[RING];	/* 1: this one's turn */
	int threads;
	int stop;
	long turns;		/* written by who has the turn */
};

struct seat {
	struct ring_of_swaps *ring;
	int me;
};

static void *take_turns(void *arg)
{
	struct seat *s = arg;
	struct ring_of_swaps *r = s->ring;
	futex_t *own = &r->word[s->me];
	futex_t *next = &r->word[(s->me + 1) % r->threads];
	bool last = false;

	while (!last) {
		while (!__atomic_load_n(own, __ATOMIC_ACQUIRE))
			futex_wait(own, 0, NULL, FUTEX_PRIVATE_FLAG);
		__atomic_store_n(&r->turns, r->turns + 1, __ATOMIC_RELAXED);
		last = __atomic_load_n(&r->stop, __ATOMIC_RELAXED);
		__atomic_store_n(own, 0, __ATOMIC_RELAXED);
		__atomic_store_n(next, 1, __ATOMIC_SEQ_CST);
		if (last)
			futex_wake(next, 1, FUTEX_PRIVATE_FLAG);
		else
			futex_swap(own, 0, NULL, next, FUTEX_PRIVATE_FLAG);
	}
	return NULL;
}

static int compare_longs(const void *a, const void *b)
{
	const long x = *(const long *)a, y = *(const long *)b;

	return (x > y) - (x < y);
}

/*
 * Returns how late, in ns, the caller runs after its timer, beside a ring of
 * @threads on its CPU: the 90th percentile. The caller's slice is short, so that
 * it preempts at once (PREEMPT_SHORT). In @lap: the time, in ns, in which each
 * thread of the ring has one turn.
 */
static long runs_late_by(struct __test_metadata *_metadata, int threads,
			 long *lap)
{
	struct deadline_attr attr = {
		.size = sizeof(attr),
		.policy = SCHED_OTHER,
		.runtime = NSEC_PER_MSEC / 10,
	};
	struct ring_of_swaps r = { .word = { 1 }, .threads = threads };
	struct seat seat[RING];
	pthread_t thread[RING];
	long late[400], turns;
	long long begin;
	int i;

	ASSERT_TRUE(pin_to(0, sched_getcpu()));
	for (i = 0; i < threads; i++) {
		seat[i] = (struct seat){ .ring = &r, .me = i };
		ASSERT_EQ(0, pthread_create(&thread[i], NULL, take_turns,
					    &seat[i]));
	}
	sleep_until(now() + 200 * NSEC_PER_MSEC);
	ASSERT_EQ(0, prctl(PR_SET_TIMERSLACK, 1));
	ASSERT_EQ(0, syscall(SYS_sched_setattr, 0, &attr, 0));
	begin = now();
	turns = __atomic_load_n(&r.turns, __ATOMIC_RELAXED);
	for (i = 0; i < 400; i++) {
		const long long when = now() + NSEC_PER_MSEC +
				       i * 977 % 1000 * 1000;

		sleep_until(when);
		late[i] = now() - when;
	}
	turns = __atomic_load_n(&r.turns, __ATOMIC_RELAXED) - turns;
	ASSERT_LT(0, turns);
	*lap = (now() - begin) * threads / turns;
	__atomic_store_n(&r.stop, 1, __ATOMIC_RELAXED);
	attr.runtime = 0;
	ASSERT_EQ(0, syscall(SYS_sched_setattr, 0, &attr, 0));
	for (i = 0; i < threads; i++)
		ASSERT_EQ(0, pthread_join(thread[i], NULL));
	qsort(late, 400, sizeof(late[0]), compare_longs);
	return late[360];
}

/*
 * A thread of a ring may be asked to make way while it is on its way to a
 * hand-off. If it hands off all the same, the request stays with it until its
 * next turn, a lap later. So a thread that is woken must not run later beside a
 * large ring than beside a pair, not even by half a lap. The host of a guest
 * may disturb a try, so one good try of five is enough.
 */
TEST(ring_of_swaps_makes_way)
{
	const long handed = swap_count("handoff");
	long pair = 0, ring = 0, lap = 0;
	int try;

	for (try = 0; try < 5; try++) {
		pair = runs_late_by(_metadata, 2, &lap);
		ring = runs_late_by(_metadata, RING, &lap);
		if (ring <= pair + lap / 2)
			break;
		ksft_print_msg("ns beside 2: %ld, beside %d: %ld; lap: %ld\n",
			       pair, RING, ring, lap);
	}
	EXPECT_GE(pair + lap / 2, ring);
	EXPECT_COUNTED("handoff", handed);
}

FIXTURE(share) {
};

FIXTURE_VARIANT(share) {
	int hogs;
	int policy;
	int nice;
	long weight;		/* of a side; a hog's is 1024 */
	bool processes;
};

FIXTURE_VARIANT_ADD(share, one_hog) {
	.hogs = 1, .weight = 1024,
};

FIXTURE_VARIANT_ADD(share, three_hogs) {
	.hogs = 3, .weight = 1024,
};

FIXTURE_VARIANT_ADD(share, nice_5) {
	.hogs = 1, .nice = 5, .weight = 335,
};

FIXTURE_VARIANT_ADD(share, processes) {
	.hogs = 1, .weight = 1024, .processes = true,
};

FIXTURE_VARIANT_ADD(share, idle) {
	.hogs = 1, .policy = SCHED_IDLE, .weight = 3,
};

FIXTURE_SETUP(share)
{
}

FIXTURE_TEARDOWN(share)
{
}

/*
 * Only one side of the pair runs at a time, so the pair gets the share of one
 * thread, within 3 points of 100. The host of a guest may disturb a try, so one
 * good try of three is enough.
 */
TEST_F_TIMEOUT(share, chain_of_swaps_weighs_one_thread, 120)
{
	long long chain, sum, least, share = 0, wanted;
	long turns, handed;
	int try, h, i;

	if (variant->processes && !has_vma_locks())
		SKIP(return, NO_VMA_LOCKS);
	wanted = variant->weight * 1000 / (variant->weight + variant->hogs * 1024);
	for (try = 0; try < 3; try++) {
		struct pair *p = make_pair(_metadata, LONG_MAX,
					   variant->processes ? 0 : FUTEX_PRIVATE_FLAG);
		struct side hog[3];
		pthread_t thread[5];
		int cpu = sched_getcpu();

		for (h = 0; h < variant->hogs; h++) {
			hog[h] = (struct side){ .pair = p, .nice = SIDE_KEEPS_NICE, .cpu = cpu };
			ASSERT_EQ(0, pthread_create(&thread[2 + h], NULL, spin, &hog[h]));
		}
		for (i = 0; i < 2; i++) {
			p->side[i].cpu = cpu;
			p->side[i].policy = variant->policy;
			p->side[i].nice = variant->policy ? SIDE_KEEPS_NICE : variant->nice;
		}
		p->apart = variant->processes;
		handed = swap_count("handoff");
		start_pair(_metadata, p, thread);
		sleep_until(now() + 2 * NSEC_PER_SEC);
		/* With SCHED_IDLE a side may not have run in this time. */
		EXPECT_TRUE(wait_turns(p, 4));
		__atomic_store_n(&p->stop, 1, __ATOMIC_RELEASE);
		join_pair(_metadata, p, thread);
		/* All turns but the first ones are hand-offs. */
		if (handed >= 0)
			EXPECT_LE(p->turns * 9 / 10, swap_count("handoff") - handed + 4);

		chain = p->side[0].cpu_time + p->side[1].cpu_time;
		sum = chain;
		least = LLONG_MAX;
		for (h = 0; h < variant->hogs; h++) {
			ASSERT_EQ(0, pthread_join(thread[2 + h], NULL));
			EXPECT_EQ(0, hog[h].err);
			sum += hog[h].cpu_time;
			if (hog[h].cpu_time < least)
				least = hog[h].cpu_time;
		}
		share = chain * 1000 / sum;
		/* No thread may starve. */
		EXPECT_LT(0, chain);
		EXPECT_LT(sum / 10, least);
		/*
		 * A thread that overruns its slice pays for it later, so shares
		 * are right with slices of any length. So check the number of
		 * slices as well: a slice is about 3 ms or a tick long. A
		 * SCHED_IDLE pair runs too rarely for this check.
		 */
		turns = hog[0].usage.ru_nivcsw;
		if (llabs(share - wanted) <= 30 && (turns >= 20 || variant->weight < 100))
			return;
		ksft_print_msg("try %d: %lld of 1000, not %lld, or too few turns: %ld\n",
			       try, share, wanted, turns);
	}
	EXPECT_GE(wanted + 30, share);
	EXPECT_LE(wanted - 30, share);
}

/* What /proc says of a thread's estimated utilization, or -1. */
static long estimate_of(pid_t tid)
{
	char path[64], text[8192], *field;

	snprintf(path, sizeof(path), "/proc/self/task/%d/sched", tid);
	if (read_file(path, text, sizeof(text)) <= 0)
		return -1;
	field = strstr(text, "se.avg.util_est");
	field = field ? strchr(field, ':') : NULL;
	return field ? atol(field + 1) : -1;
}

struct estimates {
	futex_t word[2];
	pid_t tid[2];
	int cpu;
	long before[2], after[2];
};

/* Sleeps after much work, until it is handed the CPU by a thread that works little. */
static void *work_and_sleep(void *arg)
{
	struct estimates *e = arg;
	int i;

	pin_to(0, e->cpu);
	stay_busy(300 * NSEC_PER_MSEC);
	__atomic_store_n(&e->tid[0], syscall(SYS_gettid), __ATOMIC_RELEASE);
	while (!__atomic_load_n(&e->word[0], __ATOMIC_ACQUIRE))
		futex_wait(&e->word[0], 0, NULL, FUTEX_PRIVATE_FLAG);
	for (i = 0; i < 2; i++)
		e->after[i] = estimate_of(e->tid[i]);
	__atomic_store_n(&e->word[1], 1, __ATOMIC_SEQ_CST);
	futex_wake(&e->word[1], 1, FUTEX_PRIVATE_FLAG);
	return NULL;
}

/* What a thread is expected to use does not change with the place that it gets. */
TEST(estimate_stays_with_its_thread)
{
	struct estimates e = { .cpu = sched_getcpu(), .tid = { 0, syscall(SYS_gettid) } };
	const long handed = swap_count("handoff");
	pthread_t thread;
	int i;

	if (estimate_of(e.tid[1]) < 0)
		SKIP(return, "no /proc/PID/sched with se.avg.util_est");
	ASSERT_EQ(0, pthread_create(&thread, NULL, work_and_sleep, &e));
	while (!__atomic_load_n(&e.tid[0], __ATOMIC_ACQUIRE) || task_state(e.tid[0]) != 'S')
		sleep_until(now() + NSEC_PER_MSEC);
	ASSERT_TRUE(pin_to(0, e.cpu));
	sleep_until(now() + NSEC_PER_MSEC);
	for (i = 0; i < 2; i++)
		e.before[i] = estimate_of(e.tid[i]);
	__atomic_store_n(&e.word[0], 1, __ATOMIC_SEQ_CST);
	while (!__atomic_load_n(&e.word[1], __ATOMIC_ACQUIRE))
		futex_swap(&e.word[1], 0, NULL, &e.word[0], FUTEX_PRIVATE_FLAG);
	ASSERT_EQ(0, pthread_join(thread, NULL));
	ksft_print_msg("estimates: %ld and %ld, then %ld and %ld\n",
		       e.before[0], e.before[1], e.after[0], e.after[1]);
	/* Each is still its own, or nearer to that than to the other one's. */
	EXPECT_NE(e.before[0], e.before[1]);
	for (i = 0; i < 2; i++)
		EXPECT_LE(labs(e.after[i] - e.before[i]), labs(e.after[i] - e.before[!i]));
	EXPECT_COUNTED("handoff", handed);
}

static void use_cpu_time(long long ns)
{
	const long long end = read_clock(CLOCK_THREAD_CPUTIME_ID) + ns;

	while (read_clock(CLOCK_THREAD_CPUTIME_ID) < end)
		;
}

/* Called again and again, uses up its time and more before it waits by itself. */
static void run_debtor(struct pair *p)
{
	become(&p->side[1]);
	while (!__atomic_load_n(&p->stop, __ATOMIC_ACQUIRE)) {
		while (!__atomic_load_n(&p->word[1], __ATOMIC_ACQUIRE))
			futex_wait(&p->word[1], 0, NULL, 0);
		use_cpu_time(p->side[1].busy);
		__atomic_store_n(&p->word[1], 0, __ATOMIC_RELEASE);
	}
	p->side[1].cpu_time = read_clock(CLOCK_THREAD_CPUTIME_ID);
}

/* A hog that sleeps now and then. Meanwhile ->rounds is 1. */
static void *spin_and_nap(void *arg)
{
	struct side *s = arg;

	s->err = become(s);
	while (!__atomic_load_n(&s->pair->stop, __ATOMIC_RELAXED)) {
		use_cpu_time(3 * NSEC_PER_MSEC);
		__atomic_store_n(&s->pair->rounds, 1, __ATOMIC_RELEASE);
		usleep(1000);
		__atomic_store_n(&s->pair->rounds, 0, __ATOMIC_RELEASE);
	}
	s->cpu_time = read_clock(CLOCK_THREAD_CPUTIME_ID);
	return NULL;
}

/*
 * Calls whenever the debtor waits, and does not wait for an answer. With @alone, only while
 * the hog sleeps.
 */
static void run_caller(struct pair *p, bool swap, bool alone)
{
	struct timespec pause = { .tv_nsec = 50000 };

	become(&p->side[0]);
	while (!__atomic_load_n(&p->stop, __ATOMIC_ACQUIRE)) {
		use_cpu_time(NSEC_PER_MSEC / 5);
		if (alone && !__atomic_load_n(&p->rounds, __ATOMIC_ACQUIRE))
			continue;
		if (!__atomic_exchange_n(&p->word[1], 1, __ATOMIC_SEQ_CST)) {
			if (swap) {
				futex_swap(&p->word[0], 0, &pause, &p->word[1], 0);
				continue;
			}
			futex_wake(&p->word[1], 1, 0);
		}
		futex_wait(&p->word[0], 0, &pause, 0);
	}
	p->side[0].cpu_time = read_clock(CLOCK_THREAD_CPUTIME_ID);
}

/* Returns the share of the caller, in thousandths, beside the debtor and a hog. */
static long long share_of_caller(struct __test_metadata *_metadata, bool swap, bool alone)
{
	struct pair *p = make_pair(_metadata, 0, 0);
	struct side hog = p->side[0];
	pid_t caller, debtor;
	pthread_t thread;

	/* In a long slice there is much to owe. */
	hog.cpu = sched_getcpu();
	hog.slice = alone ? 10 * NSEC_PER_MSEC : 0;
	hog.busy = alone ? 8 * NSEC_PER_MSEC : NSEC_PER_MSEC;
	p->side[0] = hog;
	p->side[1] = hog;
	p->word[0] = 0;
	ASSERT_EQ(0, pthread_create(&thread, NULL, alone ? spin_and_nap : spin, &hog));
	debtor = fork_child(_metadata);
	if (!debtor) {
		run_debtor(p);
		_exit(0);
	}
	caller = fork_child(_metadata);
	if (!caller) {
		run_caller(p, swap, alone);
		_exit(0);
	}
	sleep_until(now() + 2 * NSEC_PER_SEC);
	__atomic_store_n(&p->stop, 1, __ATOMIC_RELEASE);
	ASSERT_EQ(caller, waitpid(caller, NULL, 0));
	__atomic_store_n(&p->word[1], 1, __ATOMIC_SEQ_CST);
	futex_wake(&p->word[1], 1, 0);
	ASSERT_EQ(debtor, waitpid(debtor, NULL, 0));
	ASSERT_EQ(0, pthread_join(thread, NULL));
	return p->side[0].cpu_time * 1000 /
	       (p->side[0].cpu_time + p->side[1].cpu_time + hog.cpu_time);
}

/*
 * A target of another process sleeps with a debt to the scheduler, again and again. The
 * caller must not have to pay for it: it gets what it gets if it wakes and waits, within 3
 * points of 100. One good try of three is enough.
 */
static void check_share_of_caller(struct __test_metadata *_metadata, bool alone)
{
	long long plain = 0, swap = 0;
	int try;

	for (try = 0; try < 3; try++) {
		plain = share_of_caller(_metadata, false, alone);
		swap = share_of_caller(_metadata, true, alone);
		ksft_print_msg("share of the caller: %lld by swaps, %lld by wakes\n", swap, plain);
		if (swap >= plain - 30)
			break;
	}
	EXPECT_LE(plain - 30, swap);
}

TEST(debt_stays_in_its_process)
{
	const long refused = swap_count("debt");

	check_share_of_caller(_metadata, false);
	if (has_vma_locks())
		EXPECT_COUNTED("debt", refused);
}

/* While nobody else is there, the debt is forgotten. */
TEST(debt_is_forgotten_alone)
{
	check_share_of_caller(_metadata, true);
}

/*
 * The timer fires about as often as the CPU time of both sides demands. A
 * signal that is due while another one is pending is lost: on a busy host half
 * of them and more. The timer counts ticks.
 */
TEST(itimer_prof_fires_in_a_chain_of_swaps)
{
	const long long every = 20 * NSEC_PER_MSEC;
	struct itimerval timer = {
		.it_interval.tv_usec = every / 1000,
		.it_value.tv_usec = every / 1000,
	};
	const struct itimerval off = {};
	const long handed = swap_count("handoff");
	long long due = 0, fired = 0;
	int try;

	make_arena(_metadata, 0);
	handle(_metadata, SIGPROF, SA_RESTART);
	for (try = 0; try < 3 && (!try || fired < due / 2); try++) {
		struct pair *p = make_pair(_metadata, LONG_MAX, FUTEX_PRIVATE_FLAG);
		pthread_t thread[2];

		p->side[0].cpu = sched_getcpu();
		p->side[1].cpu = p->side[0].cpu;
		arena->handled = 0;
		due = -read_clock(CLOCK_PROCESS_CPUTIME_ID);
		ASSERT_EQ(0, setitimer(ITIMER_PROF, &timer, NULL));
		start_pair(_metadata, p, thread);
		sleep_until(now() + 2 * NSEC_PER_SEC);
		__atomic_store_n(&p->stop, 1, __ATOMIC_RELEASE);
		join_pair(_metadata, p, thread);
		ASSERT_EQ(0, setitimer(ITIMER_PROF, &off, NULL));
		due += read_clock(CLOCK_PROCESS_CPUTIME_ID);
		due /= every;
		fired = __atomic_load_n(&arena->handled, __ATOMIC_RELAXED);
		ksft_print_msg("SIGPROF %lld times, %lld due\n", fired, due);
	}
	EXPECT_LT(20, due);
	EXPECT_GE(due * 3 / 2, fired);
	EXPECT_LE(due / 5, fired);
	EXPECT_COUNTED("handoff", handed);
}

/* Each process pays for its own turns, so one of them reaches its limit. */
TEST(rlimit_cpu_ends_one_process_of_two)
{
	struct pair *p = make_pair(_metadata, LONG_MAX, 0);
	struct rlimit one_second = { .rlim_cur = 1, .rlim_max = 5 };
	const long handed = swap_count("handoff");
	struct rlimit no_core = {};
	struct rusage used[2];
	long long ran[2];
	pid_t pid, partner;
	int status, i;

	p->side[0].cpu = sched_getcpu();
	p->side[1].cpu = p->side[0].cpu;
	p->side[0].busy = NSEC_PER_MSEC;
	p->side[1].busy = 3 * NSEC_PER_MSEC;
	partner = fork_child(_metadata);
	if (!partner) {
		run_side(&p->side[1]);
		_exit(0);
	}
	pid = fork_child(_metadata);
	if (!pid) {
		setrlimit(RLIMIT_CORE, &no_core);
		setrlimit(RLIMIT_CPU, &one_second);
		run_side(&p->side[0]);
		_exit(0);
	}
	ASSERT_EQ(pid, wait4(pid, &status, 0, &used[0]));
	EXPECT_TRUE(WIFSIGNALED(status));
	EXPECT_EQ(SIGXCPU, WTERMSIG(status));
	EXPECT_LT(0, p->turns);
	EXPECT_EQ(0, waitpid(partner, &status, WNOHANG));
	kill(partner, SIGKILL);
	ASSERT_EQ(partner, wait4(partner, &status, 0, &used[1]));
	for (i = 0; i < 2; i++)
		ran[i] = (used[i].ru_utime.tv_sec + used[i].ru_stime.tv_sec) * NSEC_PER_SEC +
			 (used[i].ru_utime.tv_usec + used[i].ru_stime.tv_usec) * 1000LL;
	/* The partner's turns are three times as long. */
	EXPECT_LT(ran[0] * 3 / 2, ran[1]);
	if (has_vma_locks())
		EXPECT_COUNTED("handoff", handed);
}

TEST(rlimit_cpu_ends_a_chain_of_swaps)
{
	struct pair *p = make_pair(_metadata, LONG_MAX, FUTEX_PRIVATE_FLAG);
	struct rlimit one_second = { .rlim_cur = 1, .rlim_max = 5 };
	struct rlimit no_core = {};
	pthread_t thread;
	int status;
	pid_t pid;

	pid = fork_child(_metadata);
	if (!pid) {
		setrlimit(RLIMIT_CORE, &no_core);
		setrlimit(RLIMIT_CPU, &one_second);
		pthread_create(&thread, NULL, run_side, &p->side[1]);
		run_side(&p->side[0]);
		_exit(0);
	}
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_TRUE(WIFSIGNALED(status));
	EXPECT_EQ(SIGXCPU, WTERMSIG(status));
	EXPECT_LT(0, p->turns);
}

int main(int argc, char **argv)
{
	need_futex_swap();
	return test_harness_run(argc, argv);
}
