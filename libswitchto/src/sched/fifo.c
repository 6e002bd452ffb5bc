// SPDX-License-Identifier: MIT
#include "fifo.h"

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
	.enqueue = fifo_enqueue,
	.pick = fifo_pick,
	.steal = steal,
};
