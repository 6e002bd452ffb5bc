// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdint.h>
#include <time.h>

#include "sched.h"

struct windows windows = { .one_in = 64, .nap = 100000 };

/* A program may have another. */
__attribute__((weak)) void switchto_delay_point(enum switchto_delay where)
{
	static _Thread_local uint32_t dice;
	int saved = errno;
	uint32_t drawn;

	if (!dice)
		dice = ((uint32_t)(uintptr_t)&dice ^ windows.seed) | 1;
	drawn = random_next(&dice) % windows.one_in;
	if (!drawn)
		nanosleep(&(struct timespec){ .tv_nsec = random_next(&dice) % windows.nap }, NULL);
	else if (drawn <= windows.delays)
		random_delay(&dice, 3000);
	errno = saved;
}
