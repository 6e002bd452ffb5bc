// SPDX-License-Identifier: MIT
#define _GNU_SOURCE
#include "timer.h"

#include <stdlib.h>

static void place(struct timers *timers, size_t at, struct switchto_task *task)
{
	timers->heap[at] = task;
	task->timer = at + 1;
}

/* @task may be too early for @at, or too late: moves it to where it belongs. */
static void settle(struct timers *timers, size_t at, struct switchto_task *task)
{
	size_t child;

	while (at > 0 && task->deadline < timers->heap[(at - 1) / 2]->deadline) {
		place(timers, at, timers->heap[(at - 1) / 2]);
		at = (at - 1) / 2;
	}
	while ((child = 2 * at + 1) < timers->count) {
		if (child + 1 < timers->count &&
		    timers->heap[child + 1]->deadline < timers->heap[child]->deadline)
			child++;
		if (task->deadline <= timers->heap[child]->deadline)
			break;
		place(timers, at, timers->heap[child]);
		at = child;
	}
	place(timers, at, task);
}

int switchto_timer_add(struct timers *timers, struct switchto_task *task, nsec_t deadline)
{
	if (timers->count == timers->size) {
		size_t size = timers->size ? 2 * timers->size : 16;
		struct switchto_task **heap = reallocarray(timers->heap, size,
							   sizeof(struct switchto_task *));

		if (!heap)
			return ENOMEM;
		timers->heap = heap;
		timers->size = size;
	}
	task->deadline = deadline;
	settle(timers, timers->count++, task);
	return 0;
}

void switchto_timer_remove(struct timers *timers, struct switchto_task *task)
{
	size_t at = task->timer - 1;
	struct switchto_task *last = timers->heap[--timers->count];

	task->timer = 0;
	if (last != task)
		settle(timers, at, last);
}
