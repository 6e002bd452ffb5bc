// SPDX-License-Identifier: MIT
/* Of programs with the layer that calls this between two atomic steps. Others may come in there. */
#include "sched.h"

void switchto_sched_window(void);

void switchto_sched_window(void)
{
	static _Thread_local uint32_t dice;
	int saved = errno;

	if (!dice)
		dice = (uint32_t)(uintptr_t)&dice | 1;
	if (!(random_next(&dice) % 64))
		nanosleep(&(struct timespec){ .tv_nsec = random_next(&dice) % 100000 }, NULL);
	errno = saved;
}
