// SPDX-License-Identifier: MIT
/* The policy: the highest priority first; within one, first in, first out. */
#include "list.h"

struct levels {
	uint64_t filled; /* a bit for each level */
	struct list level[SWITCHTO_PRIORITIES];
};

/* entry->key */
enum { QUEUED = 1 };

_Static_assert(SWITCHTO_PRIORITIES <= 64, "levels.filled has a bit for each");

static int level_of(const struct switchto_entry *entry)
{
	const int priority = entry->attr.priority;

	if (priority < 0)
		return 0;
	return priority < SWITCHTO_PRIORITIES ? priority : SWITCHTO_PRIORITIES - 1;
}

static void enqueue(void *queue, struct switchto_entry *entry, enum switchto_reason why)
{
	struct levels *levels = queue;
	const int priority = level_of(entry);

	list_add(&levels->level[priority], entry);
	levels->filled |= UINT64_C(1) << priority;
	entry->key = QUEUED;
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
	entry->key = 0;
	if (!levels->level[highest].first)
		levels->filled &= ~(UINT64_C(1) << highest);
	return entry;
}

static void change(void *queue, struct switchto_entry *entry, const struct switchto_task_attr *attr)
{
	struct levels *levels = queue;
	const int before = level_of(entry);
	const bool queued = entry->key == QUEUED && list_remove(&levels->level[before], entry);

	if (!levels->level[before].first)
		levels->filled &= ~(UINT64_C(1) << before);
	entry->attr = *attr;
	if (queued)
		enqueue(queue, entry, SWITCHTO_YIELDED);
}

static void inherit(struct switchto_task_attr *attr, const struct switchto_task_attr *from)
{
	if (from->priority > attr->priority)
		attr->priority = from->priority;
}

const struct switchto_policy switchto_priority = {
	.name = "priority",
	.queue_size = sizeof(struct levels),
	.enqueue = enqueue,
	.pick = pick,
	.steal = pick,
	.change = change,
	.inherit = inherit,
	.conserving = true,
};
