// SPDX-License-Identifier: MIT
/*
 * The policy: shares of the slot by weight. A task's key is its virtual time: the time for which
 * it ran, divided by its weight. The least one runs next. A task that has slept does not get
 * the time back for which it did not run.
 *
 * A new one begins as if it had run for as long as the last task that has ended did. Before all others,
 * each of an endless row of short tasks would run, and none of those that wait.
 *
 * Those of goes_first() run sooner and pay for it, so they may not be much ahead of the others.
 */
#define _GNU_SOURCE
#include "order.h"

#include "../common.h"

struct fair {
	struct switchto_entry *heap, *running;
	struct list next;
	unsigned int in_a_row;
	uint64_t least; /* no ready task is behind this */
	uint64_t since; /* when the running task began */
	uint64_t last;	/* the last run of a task that has ended, or LONGEST */
};

/* Times are shifted left by this before the division. */
enum { FRACTION = 8 };

/* A new task is not to wait for longer than a slice of each of the others. */
enum { LONGEST = 10000000 };

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * NSEC_PER_SEC + (uint64_t)time.tv_nsec;
}

static bool is_before(const struct switchto_entry *a, const struct switchto_entry *b)
{
	return a->key < b->key;
}

/* Each run costs something, however large the weight is: so the others have their turn. */
static uint64_t cost(const struct switchto_entry *entry, uint64_t ran)
{
	return (ran << FRACTION) / (entry->attr.weight ? entry->attr.weight : 1) + 1;
}

/* Returns how long the task has run, if there is one. */
static uint64_t charge(struct fair *fair)
{
	const uint64_t time = now(), ran = time - fair->since;

	if (fair->running)
		fair->running->key += cost(fair->running, ran);
	fair->running = NULL;
	fair->since = time;
	return ran;
}

static void enqueue(void *queue, struct switchto_entry *entry, enum switchto_reason why)
{
	struct fair *fair = queue;

	if (entry == fair->running)
		charge(fair);
	if (why == SWITCHTO_NEW)
		entry->key = fair->least + cost(entry, fair->last);
	else if (entry->key < fair->least)
		entry->key = fair->least;
	if (goes_first(entry) && entry->key - fair->least <= cost(entry, LONGEST))
		list_add(&fair->next, entry);
	else
		heap_add(&fair->heap, entry, is_before);
}

static struct switchto_entry *pick(void *queue)
{
	struct fair *fair = queue;

	charge(fair);
	if (fair->next.first && (!fair->heap || ++fair->in_a_row <= WOKEN_LIMIT)) {
		fair->running = list_take(&fair->next);
		return fair->running;
	}
	fair->in_a_row = 0;
	fair->running = heap_take(&fair->heap, is_before);
	if (fair->running && fair->running->key > fair->least)
		fair->least = fair->running->key;
	return fair->running;
}

static void end(void *queue, const struct switchto_entry *entry)
{
	struct fair *fair = queue;

	if (entry != fair->running)
		return;
	fair->last = charge(fair);
	if (fair->last > LONGEST)
		fair->last = LONGEST;
}

/* A weight counts from the end of the next run on: nothing in the heap depends on it. */
static void change(void *queue, struct switchto_entry *entry, const struct switchto_task_attr *attr)
{
	entry->attr = *attr;
}

const struct switchto_policy switchto_fair = {
	.name = "fair",
	.queue_size = sizeof(struct fair),
	.enqueue = enqueue,
	.pick = pick,
	.end = end,
	.change = change,
	.conserving = true,
};
