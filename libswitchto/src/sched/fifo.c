// SPDX-License-Identifier: MIT
/*
 * The policy: first in, first out; but a task that was woken runs next. It is often the one that
 * the running task works with, and what they share is in the cache. After LIFO_LIMIT such tasks
 * in a row the oldest one has its turn, so nobody starves.
 */
#include "list.h"

enum { LIFO_LIMIT = 16 };

struct fifo {
	struct list list;
	struct switchto_entry *woken;
	unsigned int in_a_row;
};

static void enqueue(void *queue, struct switchto_entry *entry, enum switchto_reason why)
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

static struct switchto_entry *pick(void *queue)
{
	struct fifo *fifo = queue;
	struct switchto_entry *entry = fifo->woken;

	if (entry && (++fifo->in_a_row <= LIFO_LIMIT || !fifo->list.first)) {
		fifo->woken = NULL;
		return entry;
	}
	fifo->in_a_row = 0;
	return list_take(&fifo->list);
}

/* The oldest one: what was woken last shares the cache with the task that runs. */
static struct switchto_entry *steal(void *queue)
{
	struct fifo *fifo = queue;
	struct switchto_entry *entry = list_take(&fifo->list);

	if (!entry) {
		entry = fifo->woken;
		fifo->woken = NULL;
	}
	return entry;
}

const struct switchto_policy switchto_fifo = {
	.name = "fifo",
	.queue_size = sizeof(struct fifo),
	.enqueue = enqueue,
	.pick = pick,
	.steal = steal,
};
