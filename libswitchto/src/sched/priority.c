// SPDX-License-Identifier: MIT
/* The policy: the highest priority first; within one, first in, first out, but see goes_first(). */
#define _GNU_SOURCE
#include "order.h"

struct levels {
	uint64_t filled; /* a bit for each level */
	struct level {
		struct list next, others;
		unsigned int in_a_row;
	} level[SWITCHTO_PRIORITIES];
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
	struct level *level = &levels->level[priority];

	list_add(goes_first(entry) ? &level->next : &level->others, entry);
	levels->filled |= UINT64_C(1) << priority;
	entry->key = QUEUED;
}

/* One of @priority was taken out, or another one. */
static void taken(struct levels *levels, int priority, struct switchto_entry *entry)
{
	entry->key = 0;
	if (!levels->level[priority].next.first && !levels->level[priority].others.first)
		levels->filled &= ~(UINT64_C(1) << priority);
}

static struct switchto_entry *pick(void *queue)
{
	struct levels *levels = queue;
	struct switchto_entry *entry;
	struct level *level;
	int highest;

	if (!levels->filled)
		return NULL;
	highest = 63 - __builtin_clzll(levels->filled);
	level = &levels->level[highest];
	if (level->next.first && (!level->others.first || ++level->in_a_row <= WOKEN_LIMIT)) {
		entry = list_take(&level->next);
	} else {
		level->in_a_row = 0;
		entry = list_take(&level->others);
	}
	taken(levels, highest, entry);
	return entry;
}

static struct switchto_entry *steal(void *queue)
{
	struct levels *levels = queue;
	int looks = MOST_LOOKS;

	for (uint64_t left = levels->filled; left && looks >= 0;) {
		const int priority = 63 - __builtin_clzll(left);
		struct level *level = &levels->level[priority];
		struct switchto_entry *entry = list_take_loose(&level->next, &looks);

		if (!entry && looks >= 0)
			entry = list_take_loose(&level->others, &looks);
		if (entry) {
			taken(levels, priority, entry);
			return entry;
		}
		left &= ~(UINT64_C(1) << priority);
	}
	return NULL;
}

static void change(void *queue, struct switchto_entry *entry, const struct switchto_task_attr *attr)
{
	struct levels *levels = queue;
	const int before = level_of(entry);
	struct level *level = &levels->level[before];
	const bool first = entry->key == QUEUED && list_remove(&level->next, entry);
	const bool queued = first || (entry->key == QUEUED && list_remove(&level->others, entry));

	if (queued)
		taken(levels, before, entry);
	entry->attr = *attr;
	if (first)
		go_first_again(entry);
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
	.steal = steal,
	.change = change,
	.inherit = inherit,
	.conserving = true,
};
