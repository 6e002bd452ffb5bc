/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the tests of FUTEX_SWAP have in common.
 *
 * A swapper is a task that calls FUTEX_SWAP. A target is a waiter on uaddr2 that
 * a swap wakes. The wake half of a swap is the part that wakes a waiter on
 * uaddr2, the wait half is the part that waits on uaddr. A task is parked if it
 * sleeps in a swap without uaddr2.
 *
 * Most tests queue more waiters on uaddr2 than the call may wake, and count the
 * waiters that are left. So they notice a lost wakeup as well as a second one.
 *
 * The tests do not conclude from elapsed time that a task sleeps. They read
 * /proc/TID/syscall, which names the system call and its first argument only
 * while the task is off the CPU.
 */
#ifndef _FUTEX_SWAP_COMMON_H
#define _FUTEX_SWAP_COMMON_H

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../kselftest_harness.h"
#include "futextest.h"

#define NSEC_PER_MSEC	1000000LL
#define NSEC_PER_SEC	1000000000LL

/* How long a test waits for an event before it fails. */
#define PATIENCE	(10 * NSEC_PER_SEC)

/* A debug kernel in an emulator takes up to half of that. */
#undef TEST_TIMEOUT_DEFAULT
#define TEST_TIMEOUT_DEFAULT 90

#define MAX_WAITERS	4

/* One task that makes one system call, and the result. */
struct call {
	/* The call to make. Not changed after the task has started. */
	futex_t *uaddr;
	int op;
	futex_t val;
	void *timeout;
	void *uaddr2;
	unsigned int val3;
	long (*enter)(struct call *c);	/* NULL: futex(2) with the above */
	void *arg;			/* for enter() */
	int cpu;			/* the only CPU to run on, or -1 */
	bool fifo;			/* to run as SCHED_FIFO */

	/* How the sleeping task shows in /proc/TID/syscall. */
	long nr;
	long restart_nr;
	unsigned long arg0;

	/* The result. */
	pthread_t thread;
	pid_t pid;			/* 0: a thread of the test itself */
	pid_t tid;
	long ret;
	int err;
	int cpu_after;
	struct timespec start;
	struct timespec end;
	int done;
};

/*
 * The futexes and calls of a test, in memory that the test's children share.
 * The swappers wait on @own and wake waiters on @peer.
 */
struct arena {
	futex_t own;
	futex_t own2;
	futex_t peer;
	futex_t peer_neighbour;
	futex_t spare;
	int go;
	int handled;
	struct timespec ts;
	struct call waiter[MAX_WAITERS];
	struct call other;
	struct call swapper[2];
	struct call waker;
	struct call *order;	/* for the host to start */
	int32_t time32[2];
	int64_t time64[2];
};

static struct arena *arena;
/* The first of the swappers. Most tests have only one. */
static struct call *swapper;

static inline long long nsec(const struct timespec *ts)
{
	return ts->tv_sec * NSEC_PER_SEC + ts->tv_nsec;
}

static inline long long read_clock(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return nsec(&ts);
}

static inline long long now(void)
{
	return read_clock(CLOCK_MONOTONIC);
}

static inline void sleep_until(long long when)
{
	struct timespec ts = {
		.tv_sec = when / NSEC_PER_SEC,
		.tv_nsec = when % NSEC_PER_SEC,
	};

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL))
		;
}

/* Reads the first @size - 1 bytes of a file. Returns the length, or -1. */
static inline int read_file(const char *path, char *buf, size_t size)
{
	ssize_t len;
	int fd;

	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	len = read(fd, buf, size - 1);
	close(fd);
	buf[len > 0 ? len : 0] = '\0';
	return len;
}

static inline bool write_file(const char *path, const char *text)
{
	ssize_t len;
	int fd;

	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	len = write(fd, text, strlen(text));
	close(fd);
	return len == (ssize_t)strlen(text);
}

static inline char task_state(pid_t tid)
{
	char path[64], buf[512], *end;

	snprintf(path, sizeof(path), "/proc/%d/stat", tid);
	if (read_file(path, buf, sizeof(buf)) <= 0)
		return '?';
	end = strrchr(buf, ')');
	return end ? end[2] : '?';
}

static inline bool is_done(struct call *c)
{
	return __atomic_load_n(&c->done, __ATOMIC_ACQUIRE);
}

/* Is the task off the CPU and asleep in the expected system call? */
static inline bool is_asleep(struct call *c)
{
	pid_t tid = __atomic_load_n(&c->tid, __ATOMIC_ACQUIRE);
	char path[64], buf[256];
	unsigned long arg0;
	long nr;

	if (!tid || is_done(c) || task_state(tid) != 'S')
		return false;

	snprintf(path, sizeof(path), "/proc/%d/syscall", tid);
	if (read_file(path, buf, sizeof(buf)) <= 0)
		return false;
	if (sscanf(buf, "%ld %lx", &nr, &arg0) != 2)
		return false;

	return nr == c->restart_nr || (nr == c->nr && arg0 == c->arg0);
}

static inline bool is_asleep_or_done(struct call *c)
{
	return is_done(c) || is_asleep(c);
}

static inline bool poll_call(struct call *c, bool (*event)(struct call *c))
{
	const struct timespec tick = { .tv_nsec = 100000 };
	long long limit = now() + PATIENCE;

	while (!event(c)) {
		if (now() > limit)
			return event(c);
		nanosleep(&tick, NULL);
	}
	return true;
}

static inline bool wait_asleep(struct call *c)
{
	bool seen = poll_call(c, is_asleep_or_done);

	if (is_done(c))
		ksft_print_msg("task %d should sleep, but returned %ld, errno %d\n",
			       c->tid, c->ret, c->err);
	else if (!seen)
		ksft_print_msg("task %d should sleep, but is in state %c\n",
			       c->tid, task_state(c->tid));
	return seen && !is_done(c);
}

static inline bool wait_done(struct call *c)
{
	bool seen = poll_call(c, is_done);

	if (!seen)
		ksft_print_msg("task %d should return, but is in state %c%s\n",
			       c->tid, task_state(c->tid),
			       is_asleep(c) ? ", asleep in its futex" : "");
	return seen;
}

#define ASSERT_ASLEEP(call)	ASSERT_TRUE(wait_asleep(call))
#define START_ASLEEP(_call) do {			\
	struct call *__c = (_call);			\
							\
	start(_metadata, __c);				\
	ASSERT_ASLEEP(__c);				\
} while (0)
#define EXPECT_STILL_ASLEEP(call)	EXPECT_TRUE(is_asleep(call))
#define ASSERT_RETURNS(_ret, _err, _call) do {		\
	struct call *__c = (_call);			\
							\
	ASSERT_TRUE(wait_done(__c));			\
	EXPECT_EQ(_ret, __c->ret);			\
	EXPECT_EQ(_err, __c->err);			\
} while (0)

#define SWAP_COUNTS	"/sys/kernel/debug/futex_swap"

/*
 * How often the kernel counted @outcome of a swap, or -1 if the counts cannot
 * be read. A hand-off is counted when the task that handed off runs again.
 */
static inline long swap_count(const char *outcome)
{
	char text[1024], *line;
	size_t length = strlen(outcome);

	if (read_file(SWAP_COUNTS, text, sizeof(text)) <= 0)
		return -1;
	for (line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
		if (!strncmp(line, outcome, length) && line[length] == ' ')
			return atol(line + length);
	}
	return -1;
}

/*
 * Expects the count of @outcome to have grown, if the counts can be read. So a
 * test sees that it has tested what it is meant to test.
 */
#define EXPECT_COUNTED(outcome, before) do {			\
	long __before = (before);				\
								\
	if (__before >= 0)					\
		EXPECT_LT(__before, swap_count(outcome));	\
} while (0)

/*
 * Swaps on shared memory are handed off only if the kernel has locks per VMA
 * (CONFIG_PER_VMA_LOCK), which it has if it is for several CPUs.
 */
static inline bool has_vma_locks(void)
{
	struct utsname name;

	return !uname(&name) && strstr(name.version, " SMP");
}

#define NO_VMA_LOCKS	"no locks per VMA (CONFIG_PER_VMA_LOCK)"

static inline void make_arena(struct __test_metadata *_metadata, int flags)
{
	arena = mmap(NULL, sizeof(*arena), PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS | flags, -1, 0);
	ASSERT_NE(MAP_FAILED, arena);
	swapper = &arena->swapper[0];
}

/* The error for an operation that the kernel does not have. */
static inline int errno_of_unknown(void)
{
	futex_t word = 0;

	return futex(&word, 127, 0, NULL, NULL, 0, 0) ? errno : 0;
}

static inline bool pin_to(pid_t tid, int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	return !sched_setaffinity(tid, sizeof(set), &set);
}

/* Two CPUs that this process may use. False if there is only one. */
static inline bool two_cpus(int cpu[2])
{
	cpu_set_t set;
	int i, n = 0;

	if (sched_getaffinity(0, sizeof(set), &set))
		return false;
	for (i = 0; i < CPU_SETSIZE && n < 2; i++)
		if (CPU_ISSET(i, &set))
			cpu[n++] = i;
	return n == 2;
}

static inline bool become_fifo(pid_t tid)
{
	struct sched_param param = { .sched_priority = 10 };

	return !sched_setscheduler(tid, SCHED_FIFO, &param);
}

static inline struct call *prepare(struct call *c, futex_t *uaddr, int op)
{
	memset(c, 0, sizeof(*c));
	c->uaddr = uaddr;
	c->op = op;
	c->val = uaddr ? *uaddr : 0;
	c->cpu = -1;
	c->nr = SYS_futex;
	c->restart_nr = SYS_restart_syscall;
	c->arg0 = (unsigned long)uaddr;
	return c;
}

static inline struct call *prepare_wait(struct call *c, futex_t *uaddr, int opflags)
{
	return prepare(c, uaddr, FUTEX_WAIT | opflags);
}

static inline struct call *prepare_swap(struct call *c, futex_t *uaddr,
					futex_t *uaddr2, int opflags)
{
	prepare(c, uaddr, FUTEX_SWAP | opflags);
	c->uaddr2 = (void *)uaddr2;
	return c;
}

/* A swap that finds that the value at @uaddr has changed. */
static inline struct call *prepare_swap_changed(struct call *c, futex_t *uaddr,
						futex_t *uaddr2, int opflags)
{
	prepare_swap(c, uaddr, uaddr2, opflags);
	c->val++;
	return c;
}

static inline void run(struct call *c)
{
	if (c->cpu >= 0)
		pin_to(0, c->cpu);
	if (c->fifo)
		become_fifo(0);

	clock_gettime(CLOCK_MONOTONIC, &c->start);
	__atomic_store_n(&c->tid, syscall(SYS_gettid), __ATOMIC_RELEASE);

	if (c->enter)
		c->ret = c->enter(c);
	else
		c->ret = futex(c->uaddr, c->op, c->val, c->timeout, c->uaddr2,
			       c->val3, 0);

	c->err = c->ret < 0 ? errno : 0;
	c->cpu_after = sched_getcpu();
	clock_gettime(CLOCK_MONOTONIC, &c->end);
	__atomic_store_n(&c->done, 1, __ATOMIC_RELEASE);
}

static inline void *run_thread(void *arg)
{
	run(arg);
	return NULL;
}

/* Forks a child that dies with the test, however the test ends. */
static inline pid_t fork_child(struct __test_metadata *_metadata)
{
	pid_t pid = fork();

	ASSERT_LE(0, pid);
	if (!pid)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	return pid;
}

/*
 * A test that stops or kills threads which share private futexes needs a
 * process for these threads: the host. If there is a host, start() makes the
 * calls in threads of the host, else in threads of the test.
 */
static pid_t host;

static inline void start_host(struct __test_metadata *_metadata, int cpu)
{
	struct call *c;

	host = fork_child(_metadata);
	if (host)
		return;
	if (cpu >= 0)
		pin_to(0, cpu);
	for (;;) {
		c = __atomic_load_n(&arena->order, __ATOMIC_ACQUIRE);
		if (!c) {
			usleep(100);
			continue;
		}
		c->pid = getpid();
		if (pthread_create(&c->thread, NULL, run_thread, c))
			_exit(1);
		__atomic_store_n(&arena->order, NULL, __ATOMIC_RELEASE);
	}
}

static inline void start(struct __test_metadata *_metadata, struct call *c)
{
	long long limit = now() + PATIENCE;

	if (!host) {
		ASSERT_EQ(0, pthread_create(&c->thread, NULL, run_thread, c));
		return;
	}
	__atomic_store_n(&arena->order, c, __ATOMIC_RELEASE);
	while (__atomic_load_n(&arena->order, __ATOMIC_ACQUIRE)) {
		ASSERT_LT(now(), limit);
		usleep(100);
	}
}

static inline void start_process(struct __test_metadata *_metadata, struct call *c)
{
	pid_t pid = fork_child(_metadata);

	if (!pid) {
		run(c);
		_exit(0);
	}
	c->pid = pid;
}

/* Starts a call outside the process of the test. */
static inline void start_apart(struct __test_metadata *_metadata, struct call *c)
{
	if (host)
		start(_metadata, c);
	else
		start_process(_metadata, c);
}

/* Wakes all waiters on @uaddr, from within their process. Returns how many. */
static inline int wake_all(struct __test_metadata *_metadata, futex_t *uaddr, int opflags)
{
	struct call *c = &arena->waker;

	if (!host)
		return futex_wake(uaddr, INT_MAX, opflags);
	prepare(c, uaddr, FUTEX_WAKE | opflags)->val = INT_MAX;
	start(_metadata, c);
	return wait_done(c) ? c->ret : -1;
}

/* Puts @nr threads to sleep on @uaddr, in the order of arena->waiter[]. */
static inline void queue_waiters_on(struct __test_metadata *_metadata, futex_t *uaddr,
				    int nr, int opflags)
{
	int i;

	for (i = 0; i < nr; i++) {
		start(_metadata,
		      prepare_wait(&arena->waiter[i], uaddr, opflags));
		ASSERT_ASLEEP(&arena->waiter[i]);
	}
}

static inline void queue_waiters(struct __test_metadata *_metadata, int nr, int opflags)
{
	queue_waiters_on(_metadata, &arena->peer, nr, opflags);
}

/* Checks that the first @woken waiters returned 0 and the others sleep. */
static inline void check_woken(struct __test_metadata *_metadata, int nr, int woken)
{
	int i;

	for (i = 0; i < woken; i++)
		ASSERT_RETURNS(0, 0, &arena->waiter[i]);
	for (; i < nr; i++)
		EXPECT_STILL_ASLEEP(&arena->waiter[i]);
}

/* Does check_woken(), checks that the others are queued, and wakes them. */
static inline void end_waiters(struct __test_metadata *_metadata, int nr, int woken,
			       int opflags)
{
	check_woken(_metadata, nr, woken);
	EXPECT_EQ(nr - woken, wake_all(_metadata, &arena->peer, opflags));
	check_woken(_metadata, nr, nr);
}

/* Wakes a swapper that must be the only task asleep on @uaddr. */
static inline void end_swapper(struct __test_metadata *_metadata, struct call *c,
			       futex_t *uaddr, int opflags)
{
	ASSERT_ASLEEP(c);
	EXPECT_EQ(1, wake_all(_metadata, uaddr, opflags));
	ASSERT_RETURNS(0, 0, c);
}

static inline void on_signal(int sig)
{
	__atomic_add_fetch(&arena->handled, 1, __ATOMIC_RELAXED);
}

static inline void handle(struct __test_metadata *_metadata, int sig, int flags)
{
	struct sigaction sa = {
		.sa_handler = on_signal,
		.sa_flags = flags,
	};

	ASSERT_EQ(0, sigaction(sig, &sa, NULL));
}

static inline void signal_thread(struct __test_metadata *_metadata, struct call *c,
				 int sig)
{
	ASSERT_EQ(0, syscall(SYS_tgkill, c->pid ?: getpid(), c->tid, sig));
}

/* Unlocks a PI futex that the caller owns. The waiter gets it. */
static inline void give_up_pi_lock(struct __test_metadata *_metadata, futex_t *lock,
				   struct call *waiter, int opflags)
{
	ASSERT_EQ(0, futex_unlock_pi(lock, opflags));
	ASSERT_RETURNS(0, 0, waiter);
}

static inline bool wait_stopped(pid_t tid)
{
	int status;

	return waitpid(tid, &status, WUNTRACED | __WALL) == tid && WIFSTOPPED(status);
}

static inline bool stop_by_signal(struct call *c)
{
	return !kill(c->pid, SIGSTOP) && wait_stopped(c->pid);
}

static inline bool continue_by_signal(struct call *c)
{
	return !kill(c->pid, SIGCONT);
}

/* Does check_woken() after a stop, when the waiters may not sleep again yet. */
static inline void check_woken_and_asleep(struct __test_metadata *_metadata, int nr, int woken)
{
	int i;

	for (i = woken; i < nr; i++)
		ASSERT_ASLEEP(&arena->waiter[i]);
	check_woken(_metadata, nr, woken);
}

/* A call that parks on @uaddr, where a hint finds it. */
static inline struct call *prepare_park(struct call *c, futex_t *uaddr)
{
	return prepare_swap(c, uaddr, NULL, FUTEX_PRIVATE_FLAG);
}

static inline struct call *park(struct __test_metadata *_metadata, struct call *c,
				futex_t *uaddr)
{
	start(_metadata, prepare_park(c, uaddr));
	if (!wait_asleep(c))
		c->tid = 0;
	EXPECT_NE(0, c->tid);
	return c;
}

/* Does the wake half alone. */
static inline int wake_with_hint(futex_t *uaddr, unsigned int hint)
{
	return futex(NULL, FUTEX_SWAP, 0, NULL, uaddr, hint, FUTEX_PRIVATE_FLAG);
}

/*
 * How many objects of a cache are in use, or -1 if that cannot be read. Free
 * ones that the CPUs keep for themselves would count: they go back first.
 */
static inline long slab_objects(const char *cache)
{
	char line[256], name[64];
	long objects = -1, n;
	FILE *info;

	snprintf(line, sizeof(line), "/sys/kernel/slab/%s/shrink", cache);
	info = fopen(line, "we");
	if (info) {
		fputc('1', info);
		fclose(info);
	}
	info = fopen("/proc/slabinfo", "re");
	while (info && fgets(line, sizeof(line), info)) {
		if (sscanf(line, "%63s %ld", name, &n) == 2 && !strcmp(name, cache))
			objects = n;
	}
	if (info)
		fclose(info);
	return objects;
}

/*
 * Skips the program without FUTEX_SWAP. A swap with a value that does not match
 * returns EAGAIN.
 */
static inline void need_futex_swap(void)
{
	const int absent = errno_of_unknown();
	futex_t own = 0, peer = 0;

	if (!futex_swap(&own, 1, NULL, &peer, FUTEX_PRIVATE_FLAG))
		ksft_exit_fail_msg("FUTEX_SWAP slept on a changed value\n");
	if (errno == absent)
		ksft_exit_skip("this kernel has no FUTEX_SWAP\n");
	if (errno != EAGAIN)
		ksft_exit_fail_msg("FUTEX_SWAP on a changed value: %s, not EAGAIN\n",
				   strerror(errno));
	if (access("/proc/self/syscall", R_OK))
		ksft_exit_skip("no /proc/PID/syscall, which shows that a task sleeps\n");
}

#endif /* _FUTEX_SWAP_COMMON_H */
