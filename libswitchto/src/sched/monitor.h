/* SPDX-License-Identifier: MIT */
/* The watcher of a scheduler: a thread. */
#ifndef SWITCHTO_SCHED_MONITOR_H
#define SWITCHTO_SCHED_MONITOR_H

#include "types.h"

/* 0 or an error number. */
int switchto_monitor_begin(struct switchto_sched *sched);
void switchto_monitor_end(struct switchto_sched *sched);

/* A blocking region begins: the monitor is to see it soon. */
static inline void monitor_wake(struct switchto_sched *sched)
{
	uint32_t asleep = MONITOR_SLEEPS;

	if (atomic_load(&sched->monitor) == MONITOR_SLEEPS &&
	    atomic_compare_exchange_strong(&sched->monitor, &asleep, MONITOR_RUNS))
		switchto_futex_wake(&sched->monitor);
}

#endif /* SWITCHTO_SCHED_MONITOR_H */
