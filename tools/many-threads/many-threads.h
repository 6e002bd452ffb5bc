/* SPDX-License-Identifier: MIT */
/* What the parts of many-threads share. */
#ifndef MANY_THREADS_H
#define MANY_THREADS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#define PID_MAX_LIMIT 4194304 /* include/linux/threads.h, 64 bits */

enum { EXIT_FAILED = 1, EXIT_USAGE = 2 };

#define NSEC_PER_SEC 1000000000ULL

/* After so long without progress the run has failed. */
#define STALL_SECONDS 60

/* What malloc() asks the kernel for when it has nothing left. */
#define MALLOC_STEP (1 << 20)

/* limits.c */

/*
 * The whole of a file, cut at @size - 1, as a string; NULL if it can't be read.
 * Without stdio: it must also work when no memory is left.
 */
char *read_text(const char *path, char *text, size_t size);

/* The number after @key in lines like "Key:   123 kB"; -1 if there is none. */
long long field(const char *text, const char *key);

/*
 * Prints one line on standard error: how many threads were wanted and made,
 * @error, the limit that was hit, if known, and the other limits. To be called
 * while the threads that were made still live: they are compared with the
 * limits. @bytes is how much memory the failed call wanted.
 */
void say_limits(long wanted, long made, const char *what, int error, size_t bytes);

/* storm.c: an exit status. */
int storm(long threads, long seconds);

static inline uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * NSEC_PER_SEC + (uint64_t)ts.tv_nsec;
}

static inline void nap(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 200000 }, NULL);
}

/* A number that is to change. All 0 at first. */
struct progress {
	long seen;
	uint64_t since;
};

/* Has it been @now for too long? */
static inline bool stands_still(struct progress *p, long now)
{
	if (!p->since || now != p->seen)
		*p = (struct progress){ now, now_ns() };
	return now_ns() - p->since > STALL_SECONDS * NSEC_PER_SEC;
}

#endif /* MANY_THREADS_H */
