// SPDX-License-Identifier: MIT
/*
 * The policy: the earliest deadline first; of equal ones, first in, first out. Tasks without one come
 * after all that have one.
 */
#include "list.h"
#include "sys.h"

struct edf {
	struct switchto_entry *heap; /* by deadline */
	struct list rest;
	uint64_t enqueued; /* how many: the key of the next one */
};

static bool is_before(const struct switchto_entry *a, const struct switchto_entry *b)
{
	const struct timespec *x = &a->attr.deadline, *y = &b->attr.deadline;

	if (x->tv_sec != y->tv_sec)
		return x->tv_sec < y->tv_sec;
	return x->tv_nsec != y->tv_nsec ? x->tv_nsec < y->tv_nsec : a->key < b->key;
}

static void enqueue(void *queue, struct switchto_entry *entry, enum switchto_reason why)
{
	struct timespec *deadline = &entry->attr.deadline;
	struct edf *edf = queue;

	if (!deadline->tv_sec && !deadline->tv_nsec) {
		list_add(&edf->rest, entry);
		return;
	}
	/* One that can't be is the latest. */
	if (switchto_deadline(deadline) < 0)
		*deadline = (struct timespec){ (time_t)NEVER, NSEC_PER_SEC - 1 };
	entry->key = edf->enqueued++;
	heap_add(&edf->heap, entry, is_before);
}

static struct switchto_entry *pick(void *queue)
{
	struct edf *edf = queue;

	return edf->heap ? heap_take(&edf->heap, is_before) : list_take(&edf->rest);
}

/* Out of the heap and back, and so all others of it: nothing says where in it @entry is. */
static void change(void *queue, struct switchto_entry *entry, const struct switchto_task_attr *attr)
{
	struct edf *edf = queue;
	struct switchto_entry *all = NULL, *next;
	bool queued = list_remove(&edf->rest, entry);

	while ((next = heap_take(&edf->heap, is_before))) {
		queued |= next == entry;
		if (next == entry)
			continue;
		next->next = all;
		all = next;
	}
	for (; all; all = next) {
		next = all->next;
		heap_add(&edf->heap, all, is_before);
	}
	entry->attr = *attr;
	if (queued)
		enqueue(queue, entry, SWITCHTO_YIELDED);
}

const struct switchto_policy switchto_edf = {
	.name = "edf",
	.queue_size = sizeof(struct edf),
	.enqueue = enqueue,
	.pick = pick,
	.steal = pick,
	.change = change,
};
