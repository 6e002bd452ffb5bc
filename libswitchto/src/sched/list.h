/* SPDX-License-Identifier: MIT */
/* Queues for policies: a list, first in, first out; and a heap. */
#ifndef SWITCHTO_SCHED_LIST_H
#define SWITCHTO_SCHED_LIST_H

#include "switchto/sched.h"

struct list {
	struct switchto_entry *first, *last;
};

static inline void list_add(struct list *list, struct switchto_entry *entry)
{
	entry->next = NULL;
	if (list->first)
		list->last->next = entry;
	else
		list->first = entry;
	list->last = entry;
}

static inline struct switchto_entry *list_take(struct list *list)
{
	struct switchto_entry *entry = list->first;

	if (entry)
		list->first = entry->next;
	return entry;
}

/* False: @entry is not in @list. */
static inline bool list_remove(struct list *list, struct switchto_entry *entry)
{
	struct switchto_entry **at = &list->first, *before = NULL;

	for (; *at && *at != entry; at = &before->next)
		before = *at;
	if (!*at)
		return false;
	*at = entry->next;
	if (!*at)
		list->last = before;
	return true;
}

/*
 * A skew heap (Sleator and Tarjan, 1986): next and prev are the two children. Each step of a merge
 * exchanges them, which makes it logarithmic on average over the calls. Of two that are equal, either
 * may come first, again and again: so no policy has any.
 */
typedef bool before_fn(const struct switchto_entry *a, const struct switchto_entry *b);

static inline struct switchto_entry *heap_merge(struct switchto_entry *a, struct switchto_entry *b,
						before_fn *before)
{
	struct switchto_entry *root = NULL, **at = &root;

	while (a && b) {
		struct switchto_entry *less = before(b, a) ? b : a;

		if (less == b)
			b = a;
		a = less->prev;
		less->prev = less->next;
		*at = less;
		at = &less->next;
	}
	*at = a ? a : b;
	return root;
}

static inline void heap_add(struct switchto_entry **heap, struct switchto_entry *entry,
			    before_fn *before)
{
	entry->next = entry->prev = NULL;
	*heap = heap_merge(*heap, entry, before);
}

static inline struct switchto_entry *heap_take(struct switchto_entry **heap, before_fn *before)
{
	struct switchto_entry *entry = *heap;

	if (entry)
		*heap = heap_merge(entry->next, entry->prev, before);
	return entry;
}

#endif /* SWITCHTO_SCHED_LIST_H */
