/* SPDX-License-Identifier: MIT */
#ifndef COPIES_H
#define COPIES_H

#include <sys/types.h>
#include <time.h>

/* The calls of one copy of the library. */
struct calls {
	pid_t (*self)(void);
	pid_t (*wait)(const struct timespec *timeout);
	pid_t (*wait_until)(const struct timespec *deadline);
	int (*resume)(pid_t tid);
	pid_t (*switch_)(pid_t tid);
	pid_t (*switch_timed)(pid_t tid, const struct timespec *timeout);
	pid_t (*switch_until)(pid_t tid, const struct timespec *deadline);
	const char *(*backend)(void);
	const char *(*version)(void);
};

#endif /* COPIES_H */
