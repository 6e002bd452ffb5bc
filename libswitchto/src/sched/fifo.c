// SPDX-License-Identifier: MIT
#define _GNU_SOURCE
#include "order.h"

/* One of the others first: what was woken shares the cache with the task that runs. */
static struct switchto_entry *steal(void *queue)
{
	struct fifo *fifo = queue;
	int looks = MOST_LOOKS;
	struct switchto_entry *entry = list_take_loose(&fifo->others, &looks);

	return entry || looks < 0 ? entry : list_take_loose(&fifo->woken, &looks);
}

static void change(void *queue, struct switchto_entry *entry, const struct switchto_task_attr *attr)
{
	entry->attr = *attr;
}

const struct switchto_policy switchto_fifo = {
	.name = "fifo",
	.queue_size = sizeof(struct fifo),
	.enqueue = fifo_enqueue,
	.pick = fifo_pick,
	.change = change,
	.steal = steal,
	.conserving = true,
};
