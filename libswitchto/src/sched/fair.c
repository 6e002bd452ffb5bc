// SPDX-License-Identifier: MIT
/*
 * The policy: shares of the slot by weight. A task's key is its virtual time: the time for which
 * it ran, divided by its weight. The least one runs next. A task that has slept does not get
 * the time back for which it did not run.
 */
#define _GNU_SOURCE
#include "list.h"

struct fair {
	struct switchto_entry *heap, *running;
	uint64_t least; /* no ready task is behind this */
	uint64_t since; /* when the running task began */
};

/* Times are shifted left by this before the division. */
enum { FRACTION = 8 };

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static void charge(struct fair *fair)
{
	uint64_t time = now();
	struct switchto_entry *entry = fair->running;

	if (entry)
		entry->key += ((time - fair->since) << FRACTION) /
			      (entry->attr.weight ? entry->attr.weight : 1);
	fair->running = NULL;
	fair->since = time;
}

static void enqueue(void *queue, struct switchto_entry *entry, enum switchto_reason why)
{
	struct fair *fair = queue;

	if (entry == fair->running)
		charge(fair);
	if (why == SWITCHTO_NEW || entry->key < fair->least)
		entry->key = fair->least;
	heap_add(&fair->heap, entry);
}

static struct switchto_entry *pick(void *queue)
{
	struct fair *fair = queue;

	charge(fair);
	fair->running = heap_take(&fair->heap);
	if (fair->running && fair->running->key > fair->least)
		fair->least = fair->running->key;
	return fair->running;
}

static void end(void *queue, const struct switchto_entry *entry)
{
	struct fair *fair = queue;

	if (entry == fair->running)
		charge(fair);
}

const struct switchto_policy switchto_fair = {
	.name = "fair",
	.queue_size = sizeof(struct fair),
	.enqueue = enqueue,
	.pick = pick,
	.end = end,
};
