// SPDX-License-Identifier: MIT
#define _GNU_SOURCE
#include "sys.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <sys/uio.h>
#include <unistd.h>

unsigned int switchto_generation, switchto_generation_offset;

_Thread_local uintptr_t switchto_thread __attribute__((tls_model("initial-exec")));
static _Atomic uintptr_t next_thread = 1;

/* Numbers below @first are of threads of the parent. One of them has forked. */
static uintptr_t first, forker;

uintptr_t switchto_new_thread(void)
{
	switchto_thread = atomic_fetch_add(&next_thread, 2);
	return switchto_thread;
}

bool switchto_is_gone(uintptr_t thread)
{
	return thread < first && thread != forker;
}

void switchto_sys_forked(void)
{
	switchto_generation++;
	first = atomic_load(&next_thread);
	forker = switchto_thread;
}

atomic_bool switchto_exiting;

/* Each takes memory for ever, so what is made by the thousand is not watched. */
enum { MOST_WATCHED = 1000 };

int switchto_no_cancellation(void)
{
	int state;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	return state;
}

void switchto_set_cancellation(const int *state)
{
	pthread_setcancelstate(*state, NULL);
}

nsec_t switchto_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * NSEC_PER_SEC + now.tv_nsec;
}

nsec_t switchto_deadline(const struct timespec *deadline)
{
	if (!deadline)
		return NEVER;
	if (deadline->tv_nsec < 0 || deadline->tv_nsec >= NSEC_PER_SEC)
		return -1;
	/* In the past, as any time before the clock began. */
	if (deadline->tv_sec < 0)
		return 0;
	if (deadline->tv_sec >= NEVER / NSEC_PER_SEC)
		return NEVER;
	return deadline->tv_sec * NSEC_PER_SEC + deadline->tv_nsec;
}

int switchto_futex_wait(_Atomic uint32_t *word, uint32_t value, nsec_t deadline)
{
	struct timespec at = { deadline / NSEC_PER_SEC, deadline % NSEC_PER_SEC };

	return syscall(SYS_futex, word, FUTEX_WAIT_BITSET_PRIVATE, value,
		       deadline == NEVER ? NULL : &at, NULL, FUTEX_BITSET_MATCH_ANY) ?
		       errno :
		       0;
}

void switchto_futex_wake(_Atomic uint32_t *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX);
}

int switchto_own(struct own_file *file, int fd)
{
	struct stat status;

	if (fstat(fd, &status))
		return errno;
	*file = (struct own_file){ .fd = fd, .device = status.st_dev, .inode = status.st_ino };
	return 0;
}

bool switchto_owns(const struct own_file *file)
{
	struct own_file now;

	return !switchto_own(&now, file->fd) && now.device == file->device &&
	       now.inode == file->inode;
}

unsigned int switchto_cpus(void)
{
	cpu_set_t cpus;

	/* There may be more than a cpu_set_t has. */
	return (unsigned int)(sched_getaffinity(0, sizeof(cpus), &cpus) ? get_nprocs() :
									  CPU_COUNT(&cpus));
}

static void at_exit(void)
{
	atomic_store(&switchto_exiting, true);
}

void switchto_watch_exit(atomic_bool *watched)
{
	static atomic_uint times;

	if (!atomic_load(watched) && !atomic_exchange(watched, true) &&
	    atomic_load(&times) < MOST_WATCHED && atomic_fetch_add(&times, 1) < MOST_WATCHED)
		atexit(at_exit);
}

void switchto_broken(const char *what)
{
	switchto_no_cancellation();
	unexpected("libswitchto-sched", what, errno);
}

void switchto_misused(const char *what)
{
	const struct iovec parts[] = {
		{ "libswitchto-sched: ", sizeof("libswitchto-sched: ") - 1 },
		{ (void *)what, strlen(what) },
		{ "\n", 1 },
	};

	switchto_no_cancellation();
	/* In a thread that an asynchronous cancellation ends, the C library's calls may wait for ever. */
	SURE_CALL(writev, STDERR_FILENO, parts, sizeof(parts) / sizeof(parts[0]));
	abort();
}
