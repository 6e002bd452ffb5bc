/* SPDX-License-Identifier: MIT */
#ifndef EXAMPLE_DEADLINE_H
#define EXAMPLE_DEADLINE_H

#include <time.h>

static struct timespec ms_from_now(int ms)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	time.tv_sec += ms / 1000;
	time.tv_nsec += ms % 1000 * 1000000L;
	if (time.tv_nsec >= 1000000000) {
		time.tv_sec++;
		time.tv_nsec -= 1000000000;
	}
	return time;
}

#endif
