// SPDX-License-Identifier: MIT
/* The policy: the highest priority first; within one, first in, first out. */
#include "list.h"

struct levels {
	uint64_t filled; /* a bit for each level */
	struct list level[SWITCHTO_PRIORITIES];
};

_Static_assert(SWITCHTO_PRIORITIES <= 64, "levels.filled has a bit for each");

static void enqueue(void *queue, struct switchto_entry *entry, enum switchto_reason why)
{
	struct levels *levels = queue;
	int priority = entry->attr.priority;

	if (priority < 0)
		priority = 0;
	if (priority >= SWITCHTO_PRIORITIES)
		priority = SWITCHTO_PRIORITIES - 1;
	list_add(&levels->level[priority], entry);
	levels->filled |= UINT64_C(1) << priority;
}

static struct switchto_entry *pick(void *queue)
{
	struct levels *levels = queue;
	struct switchto_entry *entry;
	int highest;

	if (!levels->filled)
		return NULL;
	highest = 63 - __builtin_clzll(levels->filled);
	entry = list_take(&levels->level[highest]);
	if (!levels->level[highest].first)
		levels->filled &= ~(UINT64_C(1) << highest);
	return entry;
}

const struct switchto_policy switchto_priority = {
	.name = "priority",
	.queue_size = sizeof(struct levels),
	.enqueue = enqueue,
	.pick = pick,
	.steal = pick,
};
