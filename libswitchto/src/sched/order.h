/* SPDX-License-Identifier: MIT */
/* What the policies of the library ask of a task, besides its attributes. */
#ifndef SWITCHTO_SCHED_ORDER_H
#define SWITCHTO_SCHED_ORDER_H

#include "types.h"

/*
 * Does @entry go into the queue before its equals? It does if it was woken for a mutex, or given one.
 * Else each of its equals may begin before it, and block on the mutex. After WOKEN_LIMIT in a row one of
 * the others has its turn.
 */
static inline bool goes_first(struct switchto_entry *entry)
{
	struct switchto_task *task = (struct switchto_task *)entry;

	if (__builtin_expect(!atomic_load_explicit(&task->is_next, memory_order_relaxed), 1))
		return false;
	atomic_store_explicit(&task->is_next, false, memory_order_relaxed);
	return true;
}

/* It did, and comes into the queue again. */
static inline void go_first_again(struct switchto_entry *entry)
{
	struct switchto_task *task = (struct switchto_task *)entry;

	atomic_store_explicit(&task->is_next, true, memory_order_relaxed);
}

/* May another slot take it? */
static inline bool is_loose(const struct switchto_entry *entry)
{
	return !((const struct switchto_task *)entry)->bound;
}

/* A steal looks at so many that are bound: a look is a load, and one of a heap is a take. */
enum { MOST_LOOKS = 256, MOST_TAKES = 16 };

/* The first one that another slot may take, or NULL. @looks: how many are left. */
static inline struct switchto_entry *list_take_loose(struct list *list, int *looks)
{
	struct switchto_entry **at = &list->first, *entry, *before = NULL;

	for (; (entry = *at) && !is_loose(entry); at = &entry->next, before = entry)
		if (!(*looks)--)
			return NULL;
	if (!entry)
		return NULL;
	*at = entry->next;
	if (!*at)
		list->last = before;
	return entry;
}

#endif /* SWITCHTO_SCHED_ORDER_H */
