// SPDX-License-Identifier: MIT
#define _GNU_SOURCE
#include "sys.h"

#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <unistd.h>

unsigned int switchto_generation, switchto_generation_offset;

atomic_bool switchto_exiting;

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
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1);
}

unsigned int switchto_cpus(void)
{
	cpu_set_t cpus;

	/* There may be more than a cpu_set_t has. */
	return (unsigned int)(sched_getaffinity(0, sizeof(cpus), &cpus) ? get_nprocs() :
									  CPU_COUNT(&cpus));
}

void switchto_broken(const char *what)
{
	fprintf(stderr, "libswitchto-sched: %s: %s, giving up\n", what, strerror(errno));
	abort();
}

void switchto_misused(const char *what)
{
	fprintf(stderr, "libswitchto-sched: %s\n", what);
	abort();
}
