/* SPDX-License-Identifier: MIT */
/* What the tests of the scheduling layer share. */
#ifndef TEST_SCHED_H
#define TEST_SCHED_H

#include "support.h"

#include <switchto/sched.h>
#include <switchto/switchto.h>

#define USEC 1000LL
#define MSEC (1000 * USEC)

/* How many slots the scheduler of each test has: the program's argument. */
extern unsigned int slots;

/* Runs the program's tests, with its arguments. */
int run_sched_tests(int argc, char **argv);

/* What a task checks goes here; run_tasks() asserts it. */
extern struct verdict verdict;

/* Options, and a scheduler with them: SCHED(.slots = 1, .flags = SWITCHTO_MEASURE). */
#define OPTIONS(...)                                                                     \
	((struct switchto_sched_options){ .size = sizeof(struct switchto_sched_options), \
					  __VA_ARGS__ })
#define SCHED(...) sched_with(&OPTIONS(__VA_ARGS__))
struct switchto_sched *sched_with(const struct switchto_sched_options *options);
/* Of which only the monitor, not the kernel, says that a task has blocked. */
struct switchto_sched *monitored(const struct switchto_sched_options *options);
/* There is none with these. */
void no_sched(const struct switchto_sched_options *options, int error);

/* The same with @slots slots and @policy, or NULL for the default. */
struct switchto_sched *new_sched(const struct switchto_policy *policy);
struct switchto_sched *new_sched_with(const struct switchto_policy *policy, unsigned int flags,
				      unsigned int slots_wanted);
struct switchto_sched *without_slices(const struct switchto_policy *policy, unsigned int flags,
				      unsigned int slots_wanted);
/* The same with one slot, for tests of order: a task keeps its turn in a page fault. */
struct switchto_sched *new_sched_in_order(const struct switchto_policy *policy);

/* Holds tasks back: picks one in 5 ms. */
extern const struct switchto_policy throttled;

/* The four of the layer. */
extern const struct switchto_policy *const all_policies[4];

/* The sum of all slots' runs, steals and retakes. Needs SWITCHTO_MEASURE. */
struct switchto_slot_stats stats_of(struct switchto_sched *sched);
/* How often the monitor, or a region's begin, took a slot. */
unsigned long long retakes_of(struct switchto_sched *sched);

/* A task of @sched without a handle. In a task, @sched may be NULL. */
void spawn(struct switchto_sched *sched, void (*fn)(void *), void *arg);
struct switchto_task *spawn_handle(struct switchto_sched *sched, void (*fn)(void *), void *arg);

/* As switchto_sched_run() of a scheduler with one slot, in a loop: *@steps, how many there were. */
int run_by_steps(struct switchto_sched *sched, unsigned int *steps);
/* switchto_sched_run(); or with TEST_STEPS in the environment, the steps, if there is one slot. */
int run_or_step(struct switchto_sched *sched);
/* The same; then destroys @sched, and asserts the verdict. */
void run_tasks(struct switchto_sched *sched);
/* The same with one task more. */
void run_one(struct switchto_sched *sched, void (*fn)(void *), void *arg);
/*
 * The same, of one slot with SWITCHTO_MEASURE. False: a task lost the slot, as on a busy machine, so
 * others may have run before it went on.
 */
bool run_undisturbed(struct switchto_sched *sched);
/* The same, beside a thread that runs @fn. */
void run_with_thread(struct switchto_sched *sched, void (*fn)(void *), void *arg);

/* The same in the scheduler of the test, which the first of them makes, with the default policy. */
void add_task(void (*fn)(void *), void *arg);
struct switchto_task *add_handle(void (*fn)(void *), void *arg);
void run_added(void);
void run_added_in_time(void);

/* Adds one task and runs it. */
void run_task(void (*fn)(void *), void *arg);
void run_task_in_time(void (*fn)(void *), void *arg);

/* TEST_IN_TASK(name) { ... } is a test that is a task. */
#define TEST_IN_TASK(name)                           \
	static void name##_task(void *arg);          \
	TEST(name)                                   \
	{                                            \
		run_task_in_time(name##_task, NULL); \
	}                                            \
	static void name##_task(void *arg)

/* As run_tasks(), in two minutes: what ends only by a deadline that is later was missed before. */
void run_in_time(struct switchto_sched *sched);
void run_one_in_time(struct switchto_sched *sched, void (*fn)(void *), void *arg);

/* How many entries folder @path has, with . and .. */
unsigned int entries(const char *path);

#ifdef SWITCHTO_DELAY_POINTS /* sched_*_windows */
#include "delay.h"

/* Of @one_in windows, one sleeps for @nap ns at most, and @delays burn some steps. */
extern struct windows {
	uint32_t one_in, nap, delays, seed;
} windows;
#endif

/* A clock's time; the CPU time of the process, and of the calling thread. */
long long time_of(clockid_t clock);
long long cpu_ns(void);
long long thread_cpu_ns(void);

/* Computes for @ns of the thread's CPU time, or until @ns have passed. */
void compute_for(long long ns);
void spin_for(long long ns);

/* A time on CLOCK_MONOTONIC, @ns from now. */
struct timespec in(long long ns);
bool has_passed(const struct timespec *time);

/* The task sleeps for @ns. */
void sleep_for(long long ns);

/* The task gives way until then. */
#define YIELD_UNTIL(condition)                                   \
	do {                                                     \
		while (!(condition))                             \
			CHECK_EQ(&verdict, switchto_yield(), 0); \
	} while (0)

/* The status of a child that runs @fn, as run_child() has it; one that aborts says nothing. */
int run_aborting_child(int (*fn)(void *), void *arg);

void close_both(const int ends[2]);
/* The same by switchto_close(). */
void close_known(const int ends[2]);

/* For qsort() of long long. */
int compare_times(const void *a, const void *b);

/* Reads from the page of @fd that begins at @at, which the kernel is told to drop before. */
void touch_cold_page(int fd, off_t at);

#endif /* TEST_SCHED_H */
