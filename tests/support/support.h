/* SPDX-License-Identifier: MIT */
/*
 * What the test programs share. Nothing here calls the library.
 *
 * An assert of cmocka leaves the test with a longjmp, so it belongs in the main
 * thread and after every other thread has been joined. Until then, and in
 * other threads and processes, what was found goes into a verdict:
 *
 *	struct verdict v = { 0 };
 *	struct worker w = { 0 };
 *
 *	worker_start(&w, body, arg);		// body does CHECK...(&w.v, ...)
 *	CHECK_EQ(&v, switchto_resume(w.tid), 0);
 *	workers_join(&w, 1, &v);
 *	verdict_assert(&v);
 */
#ifndef SUPPORT_H
#define SUPPORT_H

#include "files.h"
#include "system.h"

#include <cmocka.h>

/* The exit status that means: not run, and said why. */
#define SKIPPED 77

#if defined(__SANITIZE_THREAD__)
#define UNDER_TSAN 1
#elif defined(__SANITIZE_ADDRESS__)
#define UNDER_ASAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define UNDER_TSAN 1
#elif __has_feature(address_sanitizer)
#define UNDER_ASAN 1
#endif
#endif

/*
 * TSan's runtime keeps a signal back until the thread makes a call that it knows to
 * block. Of the library's it knows from LLVM 19 on.
 */
#if defined(UNDER_TSAN) && (!defined(__clang__) || __clang_major__ < 19)
#define HANDLERS_RUN_LATE true
#else
#define HANDLERS_RUN_LATE false
#endif

/*
 * How often a loop that widens a race runs. TSan makes everything ten times slower; for
 * a slow kernel TEST_LOOPS_DIVISOR in the environment does the same.
 */
#ifdef UNDER_TSAN
#define LOOPS(n) ((n) / 10)
#else
#define LOOPS(n) loops(n)
#endif
int loops(int n);

#define NSEC_PER_SEC 1000000000LL

/* The first thing that went wrong. */
struct verdict {
	atomic_bool failed;
	char text[300];
};

void check(struct verdict *v, bool ok, const char *what, const char *file, int line);
void check_eq(struct verdict *v, long long got, long long want, const char *what, const char *file,
	      int line);
void check_err(struct verdict *v, long long got, int error, int want, const char *what,
	       const char *file, int line);

#define CHECK(v, condition) check(v, condition, #condition, __FILE__, __LINE__)

/* @got is evaluated first: a call that waits until @want has been set may stand there. */
#define CHECK_EQ(v, got, want)                                          \
	do {                                                            \
		long long check_got = (got);                            \
		check_eq(v, check_got, want, #got, __FILE__, __LINE__); \
	} while (0)

/* @call is to return -1 with errno @want. */
#define CHECK_ERR(v, call, want)                                                 \
	do {                                                                     \
		errno = 0;                                                       \
		long long check_got = (call);                                    \
		check_err(v, check_got, errno, want, #call, __FILE__, __LINE__); \
	} while (0)

/*
 * TEST(name) { ... } is a test. It has a verdict, @v, that is asserted at its end. run_group() runs
 * the tests of the program, file by file, in the order in which they stand there, but those of
 * TEST_FIRST() before the others. TEST_IN() is for one of a group that the program runs by its name.
 */
#define TEST(name) TEST_OF(NULL, false, name)
#define TEST_FIRST(name) TEST_OF(NULL, true, name)
#define TEST_IN(group, name) TEST_OF(#group, false, name)

#define TEST_OF(group, first, name)                                                                \
	static void name(struct verdict *v);                                                       \
	__attribute__((constructor)) static void add_##name(void)                                  \
	{                                                                                          \
		static struct test test = { #name, name, group, __FILE__, __LINE__, first, NULL }; \
		add_test(&test);                                                                   \
	}                                                                                          \
	static void name(struct verdict *v)

struct test {
	const char *name;
	void (*run)(struct verdict *v);
	const char *group;
	const char *file;
	int line;
	bool first;
	struct test *next;
};

void add_test(struct test *test);

/* Of a variable that is zero when a test begins: static PER_TEST atomic_int done; */
#define PER_TEST __attribute__((section("per_test")))

/* NULL, or one that is asserted at the end of each test, too. */
extern struct verdict *shared_verdict;

/*
 * The tests of @group, or if that is NULL all that are in none. 0, or 1 if one failed: the exit
 * status. @start and @end, which may be NULL, stand around each test, with test_name(state).
 */
int run_group(const char *group, CMFixtureFunction start, CMFixtureFunction end);
const char *test_name(void **state);

/* Each under the watchdog. */
int run_watched_group(const char *group);

/* In the main thread, with no other thread left that the test started. */
void verdict_assert(struct verdict *v);

/* In a child process: 0, or 1 after saying what failed. */
int verdict_status(struct verdict *v);

struct worker {
	struct verdict v;
	pthread_t thread;
	_Atomic pid_t tid;
	pid_t starter; /* unless set before, the thread that calls worker_start() */
	atomic_bool released;
	void (*body)(struct worker *w);
	void *arg;
};

/* Returns when the thread runs and w->tid is set. The library does not know it yet. */
void worker_start(struct worker *w, void (*body)(struct worker *w), void *arg);

/* The same; returns when the thread sleeps. */
void worker_start_parked(struct worker *w, void (*body)(struct worker *w), void *arg);

/* The same, but gives back the error number of pthread_create(). */
int worker_try_start(struct worker *w, void (*body)(struct worker *w), void *arg);

/* A thread without all that. */
pthread_t start_thread(void (*fn)(void *arg), void *arg);

/* A gate: the worker stands at await_release() until worker_release(). */
void worker_release(struct worker *w);
void await_release(struct worker *w);

/* Joins @n workers and adds the first failure among them to @v. */
void workers_join(struct worker *w, unsigned int n, struct verdict *v);

/* From the start of one to its end; from its release on. */
void worker_run(struct worker *w, void (*body)(struct worker *w), void *arg, struct verdict *v);
void worker_end(struct worker *w, struct verdict *v);

/*
 * An event is waited for, bounded by the watchdog: a little in a loop, for
 * threads that are to meet; then with naps, not with sched_yield(), which beside
 * other busy programs comes back when they all have had their turn.
 */
void await_pause(unsigned int rounds);

#define AWAIT(condition)                                                \
	do {                                                            \
		for (unsigned int await_n = 0; !(condition); await_n++) \
			await_pause(await_n);                           \
	} while (0)

/* Does thread @tid of this process sleep in a futex wait? Taken from /proc. */
bool is_parked(pid_t tid);
void await_parked(pid_t tid);

/* The state letter of /proc/self/task/TID/stat; 0 if there is no such thread. */
char thread_state(pid_t tid);

/* The address of the futex word that a parked thread sleeps on, as /proc tells it. */
void *parked_on(pid_t tid);

/* The CPUs that this thread may use, at most two of them. How many. */
int two_cpus(int cpu[2]);

/* Only on @cpu from now on; 0 is the calling thread. */
void pin_to(pid_t tid, int cpu);

long long now_ns(void);
struct timespec to_timespec(long long ns);
long long to_ns(const struct timespec *t);

/* xorshift: no lock and the same numbers every time. @state is not 0. */
uint32_t random_next(uint32_t *state);

/* Burns up to @limit short steps, to shift two threads against each other. */
void random_delay(uint32_t *state, uint32_t limit);

/* Says what hangs and ends the process, if it is not stopped in time. */
void watchdog_start(const char *what);
void watchdog_stop(void);

/*
 * CHILD(name) { ... } is a function for run_child() and start_child(), of @arg: with a verdict, @v,
 * that is the exit status.
 */
#define CHILD(name)                                              \
	static void name##_checks(struct verdict *v, void *arg); \
	static int name(void *arg)                               \
	{                                                        \
		struct verdict v = { 0 };                        \
                                                                 \
		name##_checks(&v, arg);                          \
		return verdict_status(&v);                       \
	}                                                        \
	static void name##_checks(struct verdict *v, void *arg)

/* TEST_IN_CHILD(name) { ... } is a test whose checks are a child's. */
#define TEST_IN_CHILD(name)                                    \
	static int name##_child(void *arg);                    \
	TEST(name)                                             \
	{                                                      \
		CHECK_EQ(v, run_child(name##_child, NULL), 0); \
	}                                                      \
	CHILD(name##_child)

/* A process with @body as its only thread's code. Its exit status, 128 + n after signal n. */
int run_child(int (*body)(void *arg), void *arg);

/* fork(), with a child that does not outlive its parent and has a watchdog. */
pid_t start_child(int (*body)(void *arg), void *arg);
int child_status(pid_t child);

/* In a child that is to end by abort(): without a message and a core. */
void abort_quietly(void);

/* Replaces the calling process by this program, with @mode as its argument. */
_Noreturn void exec_self(const char *mode);

/* A handler after which system calls fail with EINTR. */
void set_handler(int signal, void (*handler)(int signal));

/* Returns what the soft limit was. */
rlim_t set_limit(int which, rlim_t limit);

/* Zeros that children share, too; or of file @fd, if that is not -1. */
void *map_shared(int fd, size_t size);

/* For what is no test's subject: one line, and the process ends. */
_Noreturn void give_up(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* By this file's own system call, not by the library. */
bool kernel_has_swap(void);
/*
 * Whether SWITCHTO_BACKEND asks for what this kernel doesn't have; says so, as
 * @program. Then there is nothing to test: SKIPPED.
 */
bool wants_absent_swap(const char *program);

/* Whether the kernel has no FUTEX_SWAP: the same for a program that tests the kernel's. */
bool lacks_swap(const char *program);

#endif /* SUPPORT_H */
