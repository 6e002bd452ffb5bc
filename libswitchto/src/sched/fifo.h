/* SPDX-License-Identifier: MIT */
/*
 * The policy: first in, first out; but a task that was woken runs next. It is often the one that
 * the running task works with, and what they share is in the cache. After LIFO_LIMIT such tasks
 * in a row, while others are ready, the oldest one has its turn, so nobody starves.
 *
 * In line, as it is the default.
 */
#ifndef SWITCHTO_SCHED_FIFO_H
#define SWITCHTO_SCHED_FIFO_H

#include "list.h"

enum { LIFO_LIMIT = 16 };

struct fifo {
	struct list list;
	struct switchto_entry *woken;
	unsigned int in_a_row;
};

static inline void fifo_enqueue(void *queue, struct switchto_entry *entry, enum switchto_reason why)
{
	struct fifo *fifo = queue;

	if (why == SWITCHTO_WOKEN) {
		struct switchto_entry *before = fifo->woken;

		fifo->woken = entry;
		if (!before)
			return;
		entry = before;
	}
	list_add(&fifo->list, entry);
}

static inline struct switchto_entry *fifo_pick(void *queue)
{
	struct fifo *fifo = queue;
	struct switchto_entry *entry = fifo->woken;

	if (entry && (__builtin_expect(!fifo->list.first, 1) || ++fifo->in_a_row <= LIFO_LIMIT)) {
		fifo->woken = NULL;
		return entry;
	}
	fifo->in_a_row = 0;
	return list_take(&fifo->list);
}

#endif /* SWITCHTO_SCHED_FIFO_H */
