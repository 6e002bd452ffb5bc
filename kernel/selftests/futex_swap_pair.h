/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Pairs for the tests of FUTEX_SWAP: two threads, the sides, that take turns by
 * swaps. Only one side has the turn at any time.
 */
#ifndef _FUTEX_SWAP_PAIR_H
#define _FUTEX_SWAP_PAIR_H

#include <sys/resource.h>
#include <sys/syscall.h>

#include "futex_swap_common.h"

/* A task's priority as the scheduler has it: field 18 of /proc/TID/stat. */
static inline int task_priority(pid_t tid)
{
	char path[64], buf[512], *field;
	int i;

	snprintf(path, sizeof(path), "/proc/%d/stat", tid);
	if (read_file(path, buf, sizeof(buf)) <= 0)
		return INT_MIN;
	field = strrchr(buf, ')');
	for (i = 2; field && i < 18; i++)
		field = strchr(field + 1, ' ');
	return field ? atoi(field) : INT_MIN;
}

#define SIDE_KEEPS_NICE	100

struct side {
	struct pair *pair;
	int me;

	/* How the side is to run. */
	int cpu;		/* the only CPU to run on, or -1 */
	int policy;
	int prio;
	int nice;
	long slice;		/* in ns; 0: what the scheduler gives */
	long busy;		/* in ns, how long each turn takes at least */
	const char *cgroup;	/* the directory of the group to join, or NULL */
	bool alone;		/* to join it as a thread, not as a process */

	/* If not NULL, called at the end of each turn and after each swap that slept. */
	void (*before_swap)(struct side *s, long n);
	void (*after_swap)(struct side *s);

	/* What the side has seen. */
	pid_t pid;		/* its process, if it is one */
	pid_t tid;
	int err;		/* errno if become() failed */
	long slept;		/* swaps that ended with a wakeup */
	long wrong;		/* turns out of order, and errors */
	long strayed;		/* turns on a CPU that is not allowed */
	int priority[2];	/* before and after, as the scheduler has it */
	int policy_after;
	long long cpu_time_before;
	long long cpu_time;
	struct rusage usage;
};

struct pair {
	futex_t word[2];	/* 1: this side's turn */
	long turns;
	long rounds;
	int opflags;
	bool apart;		/* each side is a process, so the futexes are shared */
	int stop;
	struct side side[2];
};

/* The kernel's struct sched_attr, for C libraries that lack it. */
struct deadline_attr {
	uint32_t size;
	uint32_t policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime;
	uint64_t deadline;
	uint64_t period;
};

static inline int take_deadline(void)
{
	struct deadline_attr attr = {
		.size = sizeof(attr),
		.policy = SCHED_DEADLINE,
		.runtime = 20 * NSEC_PER_MSEC,
		.deadline = 100 * NSEC_PER_MSEC,
		.period = 100 * NSEC_PER_MSEC,
	};

	return syscall(SYS_sched_setattr, 0, &attr, 0);
}

static inline int become(struct side *s)
{
	struct sched_param param = { .sched_priority = s->prio };

	if (s->cgroup) {
		char path[512];

		snprintf(path, sizeof(path), "%s/cgroup.%s", s->cgroup,
			 s->alone ? "threads" : "procs");
		if (!write_file(path, "0"))
			return errno;
	}
	if (s->cpu >= 0 && !pin_to(0, s->cpu))
		return errno;
	if (s->policy == SCHED_DEADLINE)
		return take_deadline() ? errno : 0;
	if (s->slice) {
		struct deadline_attr attr = {
			.size = sizeof(attr),
			.policy = SCHED_OTHER,
			.runtime = s->slice,
		};

		return syscall(SYS_sched_setattr, 0, &attr, 0) ? errno : 0;
	}
	if (sched_setscheduler(0, s->policy, &param))
		return errno;
	if (s->nice != SIDE_KEEPS_NICE && setpriority(PRIO_PROCESS, 0, s->nice))
		return errno;
	return 0;
}

static inline void stay_busy(long ns)
{
	const long long end = now() + ns;

	while (now() < end)
		;
}

static inline void *run_side(void *arg)
{
	struct side *s = arg;
	struct pair *p = s->pair;
	futex_t *own = &p->word[s->me], *peer = &p->word[!s->me];
	bool last;
	long n;

	s->tid = syscall(SYS_gettid);
	s->err = become(s);
	s->priority[0] = task_priority(s->tid);
	s->cpu_time_before = read_clock(CLOCK_THREAD_CPUTIME_ID);

	for (n = 0, last = false; !last; n++) {
		/* Needed for the first turn, and after a stray wakeup. */
		while (!__atomic_load_n(own, __ATOMIC_ACQUIRE))
			futex_wait(own, 0, NULL, p->opflags);

		if (p->turns++ != 2 * n + s->me)
			s->wrong++;
		if (s->cpu >= 0 && sched_getcpu() != s->cpu)
			s->strayed++;
		if (s->busy)
			stay_busy(s->busy);

		last = n + 1 == p->rounds ||
		       __atomic_load_n(&p->stop, __ATOMIC_ACQUIRE);
		__atomic_store_n(own, 0, __ATOMIC_RELAXED);
		__atomic_store_n(peer, 1, __ATOMIC_SEQ_CST);
		if (s->before_swap)
			s->before_swap(s, n);
		if (last) {
			futex_wake(peer, 1, p->opflags);
		} else if (!futex_swap(own, 0, NULL, peer, p->opflags)) {
			s->slept++;
			if (s->after_swap)
				s->after_swap(s);
		} else if (errno != EAGAIN && errno != EINTR) {
			s->wrong++;
		}
	}

	s->cpu_time = read_clock(CLOCK_THREAD_CPUTIME_ID);
	s->priority[1] = task_priority(s->tid);
	s->policy_after = sched_getscheduler(0);
	getrusage(RUSAGE_THREAD, &s->usage);
	return NULL;
}

static inline struct pair *make_pair(struct __test_metadata *_metadata, long rounds,
				     int opflags)
{
	struct pair *p;
	int i;

	p = mmap(NULL, sizeof(*p), PROT_READ | PROT_WRITE,
		 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, p);
	p->word[0] = 1;
	p->rounds = rounds;
	p->opflags = opflags;
	for (i = 0; i < 2; i++) {
		p->side[i].pair = p;
		p->side[i].me = i;
		p->side[i].cpu = -1;
		p->side[i].nice = SIDE_KEEPS_NICE;
	}
	return p;
}

static inline void check_pair(struct __test_metadata *_metadata, struct pair *p)
{
	int i;

	EXPECT_EQ(0, p->side[0].wrong);
	EXPECT_EQ(0, p->side[1].wrong);
	EXPECT_EQ(0, p->side[0].strayed);
	EXPECT_EQ(0, p->side[1].strayed);
	/* If no side ever slept, the pair has tested nothing. */
	EXPECT_LT(0, p->side[0].slept + p->side[1].slept);
	for (i = 0; i < 2; i++)
		EXPECT_EQ(p->side[i].priority[0], p->side[i].priority[1]);
	if (!p->stop)
		EXPECT_EQ(2 * p->rounds, p->turns);
}

static inline void start_pair(struct __test_metadata *_metadata, struct pair *p,
			      pthread_t thread[2])
{
	int i;

	for (i = 0; i < 2; i++) {
		struct side *s = &p->side[i];
		pid_t pid;

		if (!p->apart) {
			ASSERT_EQ(0, pthread_create(&thread[i], NULL, run_side, s));
			continue;
		}
		pid = fork_child(_metadata);
		if (!pid) {
			run_side(s);
			_exit(0);
		}
		s->pid = pid;
	}
}

static inline void join_pair(struct __test_metadata *_metadata, struct pair *p,
			     pthread_t thread[2])
{
	int i;

	for (i = 0; i < 2; i++) {
		if (p->apart) {
			ASSERT_EQ(p->side[i].pid, waitpid(p->side[i].pid, NULL, 0));
			continue;
		}
		ASSERT_EQ(0, pthread_join(thread[i], NULL));
	}
	check_pair(_metadata, p);
}

/* Waits until @more turns were taken. False if they take too long. */
static inline bool wait_turns(struct pair *p, long more)
{
	const struct timespec tick = { .tv_nsec = 100000 };
	long until = __atomic_load_n(&p->turns, __ATOMIC_ACQUIRE) + more;
	long long limit = now() + PATIENCE;

	while (__atomic_load_n(&p->turns, __ATOMIC_ACQUIRE) < until) {
		if (now() > limit)
			return false;
		nanosleep(&tick, NULL);
	}
	return true;
}

static inline void *spin(void *arg)
{
	struct side *s = arg;

	s->err = become(s);
	__atomic_store_n(&s->tid, syscall(SYS_gettid), __ATOMIC_RELEASE);
	while (!__atomic_load_n(&s->pair->stop, __ATOMIC_RELAXED))
		;
	s->cpu_time = read_clock(CLOCK_THREAD_CPUTIME_ID);
	getrusage(RUSAGE_THREAD, &s->usage);
	return NULL;
}

#endif /* _FUTEX_SWAP_PAIR_H */
