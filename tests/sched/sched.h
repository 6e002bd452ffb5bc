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

/* A scheduler with @slots slots and @policy, or NULL for the default. */
struct switchto_sched *new_sched(const struct switchto_policy *policy);
struct switchto_sched *new_sched_with(const struct switchto_policy *policy, unsigned int flags,
				      unsigned int slots_wanted);
struct switchto_sched *without_slices(const struct switchto_policy *policy, unsigned int flags,
				      unsigned int slots_wanted);
/* With one slot, for tests of order. By the kernel's word, a task loses its turn in a page fault. */
struct switchto_sched *new_sched_in_order(const struct switchto_policy *policy);

/* Holds tasks back: picks one in 5 ms. */
extern const struct switchto_policy throttled;

/* How often the monitor, or a region's begin, took the first slot. Needs SWITCHTO_MEASURE. */
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
/*
 * The same, of one slot with SWITCHTO_MEASURE. False: a task lost the slot, as on a busy machine, so
 * others may have run before it went on.
 */
bool run_undisturbed(struct switchto_sched *sched);
/* The same, beside a thread that runs @fn. */
void run_with_thread(struct switchto_sched *sched, void *(*fn)(void *), void *arg);

/* The same in the scheduler of the test, which the first of them makes, with the default policy. */
void add_task(void (*fn)(void *), void *arg);
struct switchto_task *add_handle(void (*fn)(void *), void *arg);
void run_added(void);
void run_added_in_time(void);

/* Adds one task and runs it. */
void run_task(void (*fn)(void *), void *arg);
void run_task_in_time(void (*fn)(void *), void *arg);

/* As run_tasks(), in two minutes: what ends only by a deadline that is later was missed before. */
void run_in_time(struct switchto_sched *sched);

/* How many entries folder @path has, with . and .. */
unsigned int entries(const char *path);

#ifdef SWITCHTO_DELAY_POINTS /* sched_*_windows */
#include "delay.h"

/* Of @one_in windows, one sleeps for @nap ns at most, and @delays burn some steps. */
extern struct windows {
	uint32_t one_in, nap, delays, seed;
} windows;
#endif

/* The CPU time of the process, and of the calling thread. */
long long cpu_ns(void);
long long thread_cpu_ns(void);

/* A time on CLOCK_MONOTONIC, @ns from now. */
struct timespec in(long long ns);

/* Reads from the page of @fd that begins at @at, which the kernel is told to drop before. */
void touch_cold_page(int fd, off_t at);

#endif /* TEST_SCHED_H */
