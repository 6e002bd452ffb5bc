// SPDX-License-Identifier: MIT
/* The deadlines of a slot: a heap of tasks, the earliest first. */
#define _GNU_SOURCE
#include "internal.h"

#include <stdlib.h>

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

void switchto_timer_expire(struct slot *slot)
{
	struct timers *timers = &slot->timers;
	nsec_t now = switchto_now();

	while (timers->count && timers->heap[0]->deadline <= now) {
		struct switchto_task *task = timers->heap[0];

		switchto_timer_remove(timers, task);
		task_wake(slot, task, PARKED | WAITING, ETIMEDOUT, SWITCHTO_WOKEN);
	}
}
