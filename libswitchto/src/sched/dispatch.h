/* SPDX-License-Identifier: MIT */
/*
 * Who runs next in a slot, and how the slot goes to its worker: in line, for the calls that are on the
 * hot path. What is seldom is a function of dispatch.c, which keeps registers free here.
 */
#ifndef SWITCHTO_SCHED_DISPATCH_H
#define SWITCHTO_SCHED_DISPATCH_H

#include "pool.h"
#include "wake.h"

/*
 * The budget. A task that never waits, because what it asks for is always there, would keep the
 * slot's timers and descriptors waiting. So picks and calls that do not wait take from a budget.
 * When nothing is left of it, the slot looks at the clock. If it has not polled for LOOK, it polls,
 * and a call gives way, unless its task has waited since the budget before. The next budget is what
 * lasts for a quarter of LOOK.
 *
 * The monitor takes all of the budget (FORCED) of a slot that it has not seen to poll.
 */
enum { LOOK = 1000000, BUDGET = 256, PICK_COSTS = 8, CALL_COSTS = 2, FORCED = -0x1000000 };

/* The budget has run out, in a call of @me. Outside. Returns @result, to keep registers free. */
long switchto_dispatch_give_way(struct worker *me, long result);

/*
 * At the end of a call of @me, a task: more of the budget for more bytes. May give way. Returns
 * @result.
 */
static ALWAYS_INLINE long spent(struct worker *me, long result)
{
	_Atomic int *budget = &me->slot->budget;
	const int bytes = (int)((uint64_t)result >> 12); /* -1, if it is an error */
	const int left = atomic_load_explicit(budget, memory_order_relaxed) - CALL_COSTS - bytes;

	/* Another thread may do so as well, if @me has lost the slot: no harm. */
	atomic_store_explicit(budget, left, memory_order_relaxed);
	return unlikely(left < 0) ? switchto_dispatch_give_way(me, result) : result;
}

/* The same of a call that other threads make, too. 0 */
static inline int spent_by(struct worker *me)
{
	return me && me->task ? (int)spent(me, 0) : 0;
}

/*
 * fail() of a call that may fail again and again: it counts, as the holder of a mutex may be of this
 * slot.
 */
int switchto_dispatch_fail(int error);

/*
 * Runs others until it is @me's turn: inside, before and after. False: @me is a dispatcher, and there
 * are no tasks left; or it is to end.
 */
bool switchto_dispatch(struct worker *me);

/* @slot is new. */
void switchto_dispatch_begin_slot(struct slot *slot);

/* The end of hand_over(), if there is no grant yet. @result is that of switchto_switch(). */
bool switchto_dispatch_switched(struct worker *me, pid_t result);

/*
 * next_task(), whatever there is to do before: the inbox, or events. @none: the policy has just said
 * that there is none.
 */
struct switchto_task *switchto_dispatch_next(struct slot *slot, bool none);

/*
 * @task is the next one, and has not run yet: the worker that is to run it. If there is none, or a new
 * one, that is the slot's dispatcher, which is to call switchto_dispatch_make().
 */
struct worker *switchto_dispatch_begin(struct slot *slot, struct switchto_task *task);

/*
 * @me, a dispatcher, makes a worker for slot->begins, and gives it the slot. If it can't, the task
 * waits for a worker. False as switchto_dispatch().
 */
bool switchto_dispatch_make(struct worker *me);

/* For a step: looks for events. Are there perhaps more? Inside. */
bool switchto_dispatch_look(struct slot *slot);

/* The policy gave none. Does it hold tasks back? If it says that it never does, that ends the program. */
bool switchto_dispatch_none(struct slot *slot);

/* @me has no task any more. If one is held, it takes that, which is ready then. Inside of @slot. */
void switchto_dispatch_idle(struct worker *me, struct slot *slot);

/* Another slot has found no worker, nor made one. */
static inline bool is_short_of_workers(struct switchto_sched *sched)
{
	return unlikely(atomic_load_explicit(&sched->wants_worker, memory_order_relaxed) & TOO_FEW);
}

/*
 * @me, which has a task or not, gives @slot to @next, and waits until it is given one again. False:
 * it is to end.
 */
static ALWAYS_INLINE bool hand_over(struct worker *me, struct slot *slot, struct worker *next,
				    bool has_task)
{
	/* Now: once @me is idle, another slot may take it, and set its epoch. */
	const uint32_t epoch = me->epoch + OWNER_STATES;
	pid_t result;

	if (!has_task && me != slot->dispatcher) {
		if (likely(!slot->spare))
			slot->spare = me;
		else
			switchto_dispatch_idle(me, slot);
		window();
	}
	result = switchto_switch(pass(slot, epoch, next));
	slot = atomic_exchange_explicit(&me->granted, NULL, memory_order_acquire);
	if (unlikely(!slot))
		return switchto_dispatch_switched(me, result);
	window();
	me->slot = slot;
	return true;
}

/* NULL: there are no tasks left. */
static ALWAYS_INLINE struct switchto_task *next_task(struct slot *slot)
{
	const int left = atomic_load_explicit(&slot->budget, memory_order_relaxed) - PICK_COSTS;
	struct switchto_entry *entry;

	if (unlikely(left < 0) || unlikely(!slot->is_fifo) ||
	    unlikely(atomic_load_explicit(&slot->inbox, memory_order_relaxed)))
		return switchto_dispatch_next(slot, false);
	atomic_store_explicit(&slot->budget, left, memory_order_relaxed);
	entry = fifo_pick(slot->queue);
	if (unlikely(!entry))
		return switchto_dispatch_next(slot, true);
	probe2(run, slot, entry);
	return (struct switchto_task *)entry;
}

/* switchto_dispatch() of a worker that has a task: so there are tasks, and it does not end. */
static ALWAYS_INLINE void dispatch_task(struct worker *me)
{
	struct slot *slot = me->slot;
	struct switchto_task *task = next_task(slot);
	struct worker *next = task->worker;

	if (unlikely(!next))
		next = switchto_dispatch_begin(slot, task);
	if (next != me)
		hand_over(me, slot, next, true);
}

/* @me lets others run: inside, before and after. */
static ALWAYS_INLINE void yield_inside(struct worker *me)
{
	queue_task(me->slot, me->task, SWITCHTO_YIELDED);
	dispatch_task(me);
}

#endif /* SWITCHTO_SCHED_DISPATCH_H */
