// SPDX-License-Identifier: MIT
/*
 * For gdb.sh: tasks in each state, on one slot. gdb stops the program in stop_here(), which the
 * last task calls when the others sleep; TIDs and the descriptor are in variables. gdb unparks
 * `ready` from there.
 */
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <switchto/sched.h>
#include <switchto/switchto.h>

pid_t parked, sleeping, reading, locking, running, ready;
_Atomic pid_t blocked, stuck;
int pipe_fds[2];
struct switchto_task *to_unpark;
struct switchto_sched *sched;

static struct switchto_mutex mutex;

static struct timespec in_1000_seconds(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	time.tv_sec += 1000;
	return time;
}

static void park_here(void *unused)
{
	parked = switchto_self();
	switchto_park(NULL);
}

static void sleep_here(void *unused)
{
	const struct timespec later = in_1000_seconds();

	sleeping = switchto_self();
	switchto_sleep_until(&later);
}

static void read_here(void *unused)
{
	const struct timespec later = in_1000_seconds();
	char byte;

	reading = switchto_self();
	switchto_read(pipe_fds[0], &byte, 1, &later);
}

static void lock_here(void *unused)
{
	locking = switchto_self();
	switchto_mutex_lock(&mutex);
	switchto_mutex_unlock(&mutex);
}

/* The slot is taken from this one, and from the next. */
static void block_here(void *unused)
{
	switchto_block_begin();
	atomic_store(&blocked, switchto_self());
	pause();
	switchto_block_end();
}

static void get_stuck_here(void *unused)
{
	atomic_store(&stuck, switchto_self());
	while (pause())
		;
}

static void get_ready_here(void *unused)
{
	ready = switchto_self();
	switchto_park(NULL);
}

static void begin_here(void *unused) {}

__attribute__((noinline)) void stop_here(void)
{
	__asm__ volatile("" : : : "memory");
}

static void spawn(void (*fn)(void *), struct switchto_task **task)
{
	/* It runs until it sleeps. */
	if (switchto_spawn(NULL, fn, NULL, NULL, task) || switchto_yield())
		abort();
}

static void run_here(void *unused)
{
	struct switchto_task *blocking;

	running = switchto_self();
	switchto_mutex_lock(&mutex);
	spawn(park_here, NULL);
	spawn(sleep_here, NULL);
	spawn(read_here, NULL);
	spawn(lock_here, NULL);
	spawn(get_ready_here, &to_unpark);
	/* They do not give way: this goes on because the monitor takes the slot. */
	spawn(block_here, &blocking);
	spawn(get_stuck_here, NULL);
	if (switchto_cancel(blocking) || switchto_spawn(NULL, begin_here, NULL, NULL, NULL) ||
	    switchto_unpark(switchto_task_self()))
		abort();
	stop_here();
	/* Now nobody is ready but `ready` and the one that has not begun. */
	while (!switchto_park(NULL))
		;
}

int main(void)
{
	const struct switchto_sched_options options = { .size = sizeof(options), .slots = 1 };

	alarm(100);
	if (pipe(pipe_fds) || switchto_sched_create(&sched, &options) ||
	    switchto_spawn(sched, run_here, NULL, NULL, NULL))
		abort();
	return switchto_sched_run(sched) ? 1 : 0;
}
