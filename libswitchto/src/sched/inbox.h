/* SPDX-License-Identifier: MIT */
/*
 * The queue of a slot, which is its policy's, and the inbox: a stack, by which others put tasks into
 * that queue. The poller empties it, and sleeps no longer once something is in it.
 */
#ifndef SWITCHTO_SCHED_INBOX_H
#define SWITCHTO_SCHED_INBOX_H

#include "inherit.h"
#include "timer.h"
#include "trace.h"

/* Inside, or by a visitor. */
static inline void change_ready(struct slot *slot, int n)
{
	const unsigned int waiting = atomic_load_explicit(&slot->ready, memory_order_relaxed);

	atomic_store_explicit(&slot->ready, waiting + (unsigned int)n, memory_order_relaxed);
}

/* @task, which has no deadline, into the queue of @slot, inside of it. */
static inline void queue_task(struct slot *slot, struct switchto_task *task,
			      enum switchto_reason why)
{
	probe2(ready, task, why);
	if (likely(slot->is_fifo)) {
		fifo_enqueue(slot->queue, &task->entry, why);
	} else {
		slot->enqueue(slot->queue, &task->entry, why);
		change_ready(slot, 1);
	}
}

/* The same of one that has been claimed, and may have a deadline. */
static inline void queue_claimed(struct slot *slot, struct switchto_task *task,
				 enum switchto_reason why)
{
	if (unlikely(task->timer))
		switchto_timer_remove(&slot->timers, task);
	queue_task(slot, task, why);
}

/* Has @slot ready tasks? Inside, or by a visitor. */
static inline bool has_ready(struct slot *slot)
{
	const struct fifo *fifo = slot->queue;

	if (atomic_load(&slot->inbox))
		return true;
	return slot->is_fifo ? fifo->woken.first || fifo->others.first :
			       atomic_load_explicit(&slot->ready, memory_order_relaxed);
}

/* @task, which has been claimed, into the inbox of @slot: any thread. */
void switchto_inbox_push(struct slot *slot, struct switchto_task *task, enum switchto_reason why);
/* The changes that are left in it: the scheduler ends. */
void switchto_inbox_end(struct slot *slot);
/* All of the inbox into the queue, inside of @slot. */
void switchto_inbox_empty(struct slot *slot);
/*
 * New attributes of the task @whose, on their way to its slot in the place of a task. @serial tells
 * whether @whose is still that task. Freed when the change is made.
 */
struct change {
	struct switchto_task task; /* entry.attr: the new ones; next, why */
	struct switchto_task *whose;
	uint32_t serial;
};

/* task->why of it. */
#define CHANGES ((enum switchto_reason)16)

/* @task, of @slot, has @attr from now on: inside of the slot. */
static inline void change_attr(struct slot *slot, struct switchto_task *task,
			       const struct switchto_task_attr *attr)
{
	if (slot->sched->inherit)
		switchto_inherit_change(slot, task, attr);
	else
		slot->sched->policy->change(slot->queue, &task->entry, attr);
}

/* Ends the sleep of the poller, if it sleeps. */
void switchto_inbox_wake(struct slot *slot);

/* Is there a task for @slot in another slot? */
bool switchto_inbox_can_steal(struct slot *slot);
/* The monitor has seen that tasks of @slot wait for long, or that they do not. */
void switchto_inbox_offer(struct slot *slot, bool stealable);

/*
 * Only what the monitor has seen to wait for long: a task that runs next on its own slot is faster
 * there, and a visit costs both slots time.
 */
static inline bool can_steal_from(struct slot *victim)
{
	return atomic_load(&victim->stealable) &&
	       (atomic_load_explicit(&victim->ready, memory_order_relaxed) ||
		atomic_load_explicit(&victim->inbox, memory_order_relaxed));
}

#endif /* SWITCHTO_SCHED_INBOX_H */
