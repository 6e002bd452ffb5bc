// SPDX-License-Identifier: MIT
#define _GNU_SOURCE
#include "inbox.h"

#include <stdlib.h>

void switchto_inbox_wake(struct slot *slot)
{
	const uint64_t one = 1;
	int error = errno;
	long result;

	/* Paired with the store in begin_sleep(): one of the two sees the other's. */
	if (atomic_load(&slot->asleep) && atomic_exchange(&slot->asleep, 0)) {
		result = SURE_CALL(write, slot->event, &one, sizeof(one));
		if (result < 0) {
			errno = (int)-result;
			switchto_broken("write to an eventfd");
		}
	}
	errno = error;
}

void switchto_inbox_push(struct slot *slot, struct switchto_task *task, enum switchto_reason why)
{
	struct switchto_task *first = atomic_load_explicit(&slot->inbox, memory_order_relaxed);

	task->why = why;
	if (traces() && why != CHANGES)
		switchto_trace_pushed(slot, task, why);
	do
		task->next = first;
	while (!atomic_compare_exchange_weak(&slot->inbox, &first, task));
	window();
	switchto_inbox_wake(slot);
}

/* The task may have ended since, and its memory be another one's; or another slot has stolen it. */
static __attribute__((noinline)) void make_change(struct slot *slot, struct change *change)
{
	struct switchto_task *task = change->whose;
	struct slot *now = __atomic_load_n(&task->slot, __ATOMIC_ACQUIRE);
	const bool same = atomic_load(&task->state) != FINISHED &&
			  atomic_load(&task->serial) == change->serial;

	/* One of this slot ends in this slot: not just now. */
	if (same && now != slot) {
		switchto_inbox_push(now, &change->task, CHANGES);
		return;
	}
	if (same)
		change_attr(slot, task, &change->task.entry.attr);
	free(change);
}

void switchto_inbox_end(struct slot *slot)
{
	struct switchto_task *task = atomic_load(&slot->inbox), *next;

	for (; task; task = next) {
		next = task->next;
		if (task->why == CHANGES)
			free(task);
	}
}

/* In the order in which they came. */
__attribute__((noinline)) void switchto_inbox_empty(struct slot *slot)
{
	struct switchto_task *newest = atomic_exchange_explicit(&slot->inbox, NULL,
								memory_order_acquire);
	struct switchto_task *oldest = NULL, *next;

	switchto_trace_mute(slot);
	for (; newest; newest = next) {
		next = newest->next;
		newest->next = oldest;
		oldest = newest;
	}
	for (; oldest; oldest = next) {
		next = oldest->next;
		if (unlikely(oldest->why == CHANGES))
			make_change(slot, (struct change *)oldest);
		else
			queue_claimed(slot, oldest, oldest->why);
	}
	switchto_trace_mute(slot);
}

/* Also from a slot that is in the scheduler just now. */
bool switchto_inbox_can_steal(struct slot *slot)
{
	struct switchto_sched *sched = slot->sched;

	for (unsigned int i = 0; i < sched->slots; i++)
		if (&sched->slot[i] != slot && can_steal_from(&sched->slot[i]))
			return true;
	return false;
}

void switchto_inbox_offer(struct slot *slot, bool stealable)
{
	struct switchto_sched *sched = slot->sched;

	/* Paired with the store of asleep in begin_sleep(): one sees the other's. */
	atomic_store(&slot->stealable, stealable);
	for (unsigned int i = 0; stealable && i < sched->slots; i++)
		if (atomic_load(&sched->slot[i].asleep)) {
			switchto_inbox_wake(&sched->slot[i]);
			return;
		}
}
