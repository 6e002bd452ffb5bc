/* SPDX-License-Identifier: MIT */
/*
 * How a slot goes from one thread to the next, in line: for the calls that are on the hot path.
 * What is seldom is a function of slot.c, which keeps registers free here.
 */
#ifndef SWITCHTO_SCHED_DISPATCH_H
#define SWITCHTO_SCHED_DISPATCH_H

#include "internal.h"

/* The end of hand_over(), if there is no grant yet. @result is that of switchto_switch(). */
bool switchto_slot_switched(struct thread *me, pid_t result);

/*
 * next_task(), whatever there is to do before: the inbox, or events. @none: the policy has just said
 * that there is none.
 */
struct switchto_task *switchto_slot_next(struct slot *slot, bool none);

/*
 * @me, which has a task or not, gives @slot to @next, and waits until it is given one again. False:
 * it is to end.
 */
static ALWAYS_INLINE bool hand_over(struct thread *me, struct slot *slot, struct thread *next,
				    bool has_task)
{
	const uint32_t user = me->user + OWNER_STATES;
	const pid_t tid = next->tid;
	pid_t result;

	atomic_store_explicit(&slot->owner, user - USER + INSIDE, memory_order_relaxed);
	atomic_store_explicit(&slot->tid, tid, memory_order_relaxed);
	next->user = user;
	if (!has_task && me != slot->dispatcher)
		switchto_thread_idle(me);
	window();
	atomic_store_explicit(&next->granted, slot, memory_order_release);
	window();
	result = switchto_switch(tid);
	slot = atomic_exchange_explicit(&me->granted, NULL, memory_order_acquire);
	if (unlikely(!slot))
		return switchto_slot_switched(me, result);
	window();
	me->slot = slot;
	return true;
}

/* NULL: there are no tasks left. */
static ALWAYS_INLINE struct switchto_task *next_task(struct slot *slot)
{
	const unsigned int picks = atomic_load_explicit(&slot->picks, memory_order_relaxed) - 1;
	struct switchto_entry *entry;

	if (unlikely(!picks) || unlikely(!slot->is_fifo) ||
	    unlikely(atomic_load_explicit(&slot->inbox, memory_order_relaxed)))
		return switchto_slot_next(slot, false);
	atomic_store_explicit(&slot->picks, picks, memory_order_relaxed);
	entry = fifo_pick(slot->queue);
	if (unlikely(!entry))
		return switchto_slot_next(slot, true);
	probe2(run, slot, entry);
	return (struct switchto_task *)entry;
}

/* switchto_slot_dispatch() of a thread that has a task: so there are tasks, and it does not end. */
static ALWAYS_INLINE void dispatch_task(struct thread *me)
{
	struct slot *slot = me->slot;
	struct switchto_task *task = next_task(slot);
	struct thread *next = task->thread;

	if (next != me)
		hand_over(me, slot, next, true);
}

#endif /* SWITCHTO_SCHED_DISPATCH_H */
