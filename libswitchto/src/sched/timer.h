/* SPDX-License-Identifier: MIT */
/* The deadlines of a slot: a heap of tasks, the earliest first. */
#ifndef SWITCHTO_SCHED_TIMER_H
#define SWITCHTO_SCHED_TIMER_H

#include "types.h"

static inline nsec_t timer_next(const struct timers *timers)
{
	return unlikely(timers->count) ? timers->heap[0]->deadline : NEVER;
}

/* 0 or ENOMEM */
int switchto_timer_add(struct timers *timers, struct switchto_task *task, nsec_t deadline);
void switchto_timer_remove(struct timers *timers, struct switchto_task *task);

#endif /* SWITCHTO_SCHED_TIMER_H */
