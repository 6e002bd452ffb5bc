// SPDX-License-Identifier: MIT
/* The policy: the earliest deadline first. Tasks without one come after all that have one. */
#include "list.h"
#include "sys.h"

struct edf {
	struct switchto_entry *heap; /* by deadline */
	struct list rest;
};

static void enqueue(void *queue, struct switchto_entry *entry, enum switchto_reason why)
{
	const struct timespec *deadline = &entry->attr.deadline;
	struct edf *edf = queue;

	(void)why;
	if (!deadline->tv_sec && !deadline->tv_nsec) {
		list_add(&edf->rest, entry);
		return;
	}
	/* One that can't be is the latest. */
	entry->key = (uint64_t)switchto_deadline(deadline);
	heap_add(&edf->heap, entry);
}

static struct switchto_entry *pick(void *queue)
{
	struct edf *edf = queue;

	return edf->heap ? heap_take(&edf->heap) : list_take(&edf->rest);
}

const struct switchto_policy switchto_edf = {
	.name = "edf",
	.queue_size = sizeof(struct edf),
	.enqueue = enqueue,
	.pick = pick,
	.steal = pick,
};
