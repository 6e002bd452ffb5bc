// SPDX-License-Identifier: MIT
/*
 * The policy: the earliest deadline first; of equal ones, first in, first out, but see goes_first().
 * Tasks without one come after all that have one.
 */
#define _GNU_SOURCE
#include "order.h"
#include "sys.h"

/* entry->key: the place among equal ones, with OTHERS unless it goes first; 0: it is not in the queue. */
struct edf {
	struct switchto_entry *heap; /* by deadline */
	struct list next, rest;	     /* those without one */
	uint64_t enqueued;	     /* how many: what the key of the last one is made of */
	unsigned int in_a_row;	     /* that went first; the deadline of the last of them */
	struct timespec first;
};

#define OTHERS (UINT64_C(1) << 63)

static bool is_earlier(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec != b->tv_sec ? a->tv_sec < b->tv_sec : a->tv_nsec < b->tv_nsec;
}

static bool is_before(const struct switchto_entry *a, const struct switchto_entry *b)
{
	const struct timespec *x = &a->attr.deadline, *y = &b->attr.deadline;

	return is_earlier(x, y) || (!is_earlier(y, x) && a->key < b->key);
}

static bool is_deadline(const struct timespec *time)
{
	return time->tv_sec || time->tv_nsec;
}

static bool has_deadline(const struct switchto_task_attr *attr)
{
	return is_deadline(&attr->deadline);
}

/* The same as is_earlier() of deadlines that may be none. */
static bool is_sooner(const struct timespec *a, const struct timespec *b)
{
	return is_deadline(a) && (!is_deadline(b) || is_earlier(a, b));
}

/* An invalid deadline counts as the latest. */
static void limit(struct switchto_task_attr *attr)
{
	if (switchto_deadline(&attr->deadline) < 0)
		attr->deadline = (struct timespec){ (time_t)NEVER, NSEC_PER_SEC - 1 };
}

static void enqueue(void *queue, struct switchto_entry *entry, enum switchto_reason why)
{
	struct edf *edf = queue;
	const bool first = goes_first(entry) && edf->in_a_row < WOKEN_LIMIT;

	entry->key = ++edf->enqueued | (first ? 0 : OTHERS);
	if (!has_deadline(&entry->attr)) {
		list_add(first ? &edf->next : &edf->rest, entry);
		return;
	}
	limit(&entry->attr);
	heap_add(&edf->heap, entry, is_before);
}

static struct switchto_entry *pick(void *queue)
{
	struct edf *edf = queue;
	struct switchto_entry *entry = edf->heap ?
					       heap_take(&edf->heap, is_before) :
					       list_take(edf->next.first ? &edf->next : &edf->rest);

	if (!entry)
		return NULL;
	if (!(entry->key & OTHERS)) {
		edf->in_a_row++;
		edf->first = entry->attr.deadline;
	} else if (!is_sooner(&entry->attr.deadline, &edf->first)) {
		edf->in_a_row = 0;
	}
	entry->key = 0;
	return entry;
}

static struct switchto_entry *steal(void *queue)
{
	struct edf *edf = queue;
	struct switchto_entry *bound = NULL, *entry = NULL, *next;
	int looks = MOST_LOOKS;

	for (int takes = 0; takes < MOST_TAKES; takes++) {
		entry = heap_take(&edf->heap, is_before);
		if (!entry || is_loose(entry))
			break;
		entry->next = bound;
		bound = entry;
		entry = NULL;
	}
	for (; bound; bound = next) {
		next = bound->next;
		heap_add(&edf->heap, bound, is_before);
	}
	if (!entry)
		entry = list_take_loose(&edf->next, &looks);
	if (!entry && looks >= 0)
		entry = list_take_loose(&edf->rest, &looks);
	if (entry)
		entry->key = 0;
	return entry;
}

/* Out of the heap and back, and so all others of it: nothing says where in it @entry is. */
static void take_out(struct edf *edf, const struct switchto_entry *entry)
{
	struct switchto_entry *all = NULL, *next;

	while ((next = heap_take(&edf->heap, is_before))) {
		if (next == entry)
			continue;
		next->next = all;
		all = next;
	}
	for (; all; all = next) {
		next = all->next;
		heap_add(&edf->heap, all, is_before);
	}
}

static void change(void *queue, struct switchto_entry *entry, const struct switchto_task_attr *attr)
{
	struct edf *edf = queue;
	const bool queued = entry->key, first = queued && !(entry->key & OTHERS);

	if (queued && !list_remove(&edf->next, entry) && !list_remove(&edf->rest, entry))
		take_out(edf, entry);
	entry->attr = *attr;
	if (has_deadline(attr))
		limit(&entry->attr);
	if (first)
		go_first_again(entry);
	if (queued)
		enqueue(queue, entry, SWITCHTO_YIELDED);
}

static void inherit(struct switchto_task_attr *attr, const struct switchto_task_attr *from)
{
	struct switchto_task_attr limited = *from;

	if (!has_deadline(from))
		return;
	limit(&limited);
	if (has_deadline(attr))
		limit(attr);
	if (!has_deadline(attr) || is_earlier(&limited.deadline, &attr->deadline))
		attr->deadline = limited.deadline;
}

const struct switchto_policy switchto_edf = {
	.name = "edf",
	.queue_size = sizeof(struct edf),
	.enqueue = enqueue,
	.pick = pick,
	.steal = steal,
	.change = change,
	.inherit = inherit,
	.conserving = true,
};
