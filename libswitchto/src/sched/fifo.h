/* SPDX-License-Identifier: MIT */
/*
 * The policy: two lists, each first in, first out. Tasks that were woken come first: such a task is
 * often the one that the running task works with, and what they share is in the cache. After
 * WOKEN_LIMIT of them in a row, while others are ready, one of these has its turn, so nobody starves.
 *
 * A task whose descriptor is ready is one of the others. A poll finds many of them at once, and each
 * is a job for itself: before a woken task, they would delay what has begun.
 *
 * In line, as it is the default.
 */
#ifndef SWITCHTO_SCHED_FIFO_H
#define SWITCHTO_SCHED_FIFO_H

#include "list.h"

enum { WOKEN_LIMIT = 16 };

struct fifo {
	struct list woken, others;
	unsigned int in_a_row;
};

static inline void fifo_enqueue(void *queue, struct switchto_entry *entry, enum switchto_reason why)
{
	struct fifo *fifo = queue;

	list_add(why == SWITCHTO_WOKEN ? &fifo->woken : &fifo->others, entry);
}

static inline struct switchto_entry *fifo_pick(void *queue)
{
	struct fifo *fifo = queue;

	if (fifo->woken.first &&
	    (__builtin_expect(!fifo->others.first, 1) || ++fifo->in_a_row <= WOKEN_LIMIT))
		return list_take(&fifo->woken);
	fifo->in_a_row = 0;
	return list_take(&fifo->others);
}

#endif /* SWITCHTO_SCHED_FIFO_H */
