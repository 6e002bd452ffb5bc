/* SPDX-License-Identifier: MIT */
/* What switchto.c and door.c share: how a sleep ends, and times. */
#ifndef SWITCHTO_SLEEP_H
#define SWITCHTO_SLEEP_H

#include "common.h"

#include <stdbool.h>
#include <time.h>

static inline bool valid_time(const struct timespec *time)
{
	return time->tv_sec >= 0 && time->tv_nsec >= 0 && time->tv_nsec < NSEC_PER_SEC;
}

/* How long it is to @deadline, 0 if it has passed: FUTEX_SWAP's is relative. */
static inline void time_left(const struct timespec *deadline, struct timespec *left)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	left->tv_sec = deadline->tv_sec - now.tv_sec;
	left->tv_nsec = deadline->tv_nsec - now.tv_nsec;
	if (left->tv_nsec < 0) {
		left->tv_nsec += NSEC_PER_SEC;
		left->tv_sec--;
	}
	if (left->tv_sec < 0)
		*left = (struct timespec){ 0 };
}

/*
 * Is @error an answer that the kernel gives to FUTEX_SWAP after it has woken the target? It may
 * give the same answer without having done so: see wake_if_resumed() of switchto.c.
 */
static inline bool swap_woke(int error)
{
	switch (error) {
	case 0:
	case EAGAIN:
	case EINTR:
	case ETIMEDOUT:
		return true;
	}
	if (error < 0)
		return true;
	/*
	 * The probe found the operation, and now it is gone: the process was moved to another
	 * kernel, or got a filter. The target has not been woken.
	 */
	return false;
}

#endif /* SWITCHTO_SLEEP_H */
