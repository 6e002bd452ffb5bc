/* SPDX-License-Identifier: MIT */
/*
 * How a task sleeps and is woken. Inside, it sets its state to PARKED or WAITING (prepare), and then
 * tells others that it waits, or looks whether what it waits for has happened. Then it sleeps
 * (sleep.h): it picks the next task and hands the slot over.
 *
 * A waker claims the task first, by taking PARKED or WAITING away, and makes it ready after that. So
 * only one of several wakers does. The task may be claimed before it has picked, and may pick itself:
 * then it returns without a switch.
 *
 * A task that waits for a mutex is LOCKING, and nobody claims it: the thread that gives it the
 * mutex makes it ready, once.
 *
 * A WAITING task may be woken spuriously: each wait rechecks its condition. The memory of a task is
 * used for tasks until the scheduler is destroyed, so a late wake does no harm.
 */
#ifndef SWITCHTO_SCHED_WAKE_H
#define SWITCHTO_SCHED_WAKE_H

#include "owner.h"

/* prepare() of one that has a token. */
int switchto_wake_prepare_token(struct switchto_task *task, uint32_t how);

/*
 * The first step of a sleep, inside; the next is to sleep, or to stay, if what the task would wait for
 * has happened meanwhile. A task that is to be PARKED and has a token takes it: EALREADY.
 */
static inline int prepare(struct switchto_task *task, uint32_t how)
{
	uint32_t state = 0;

	// NOLINTNEXTLINE(clang-analyzer-core.NullDereference): the caller is a task
	task->woken_by = 0;
	if (likely(atomic_compare_exchange_strong(&task->state, &state, how))) {
		window();
		return 0;
	}
	return switchto_wake_prepare_token(task, how);
}

/* Ends the sleep of @task, if it sleeps as one of @how. Then nobody else does. */
static ALWAYS_INLINE bool claim(struct switchto_task *task, uint32_t how)
{
	/*
	 * In order with what the caller has written before: a cancellation, or that a waiter has fired.
	 * The task sets its state, and then looks for that: one of the two sees the other's.
	 */
	uint32_t state = atomic_load(&task->state);

	do
		if (!(state & how))
			return false;
	while (!atomic_compare_exchange_weak(&task->state, &state, state & TOKEN));
	window();
	return true;
}

/*
 * @task has been claimed: makes it ready. @inside: the slot that the caller is inside of; NULL
 * if it is in none, or does not know.
 */
void switchto_wake_ready(struct slot *inside, struct switchto_task *task, enum switchto_reason why);

/* The same, WOKEN. @inside: the caller is, in the task's slot, and leaves. 0 */
int switchto_wake_woken(struct worker *me, struct switchto_task *task, bool inside);

/* The same, in line if both are of one slot. */
static ALWAYS_INLINE int ready(struct worker *me, struct switchto_task *task,
			       bool may_have_deadline)
{
	struct slot *slot = task->slot;

	if (likely(me) && likely(me->slot == slot) && likely(try_enter(me))) {
		if (unlikely(!slot->is_fifo) || (may_have_deadline && unlikely(task->timer)))
			return switchto_wake_woken(me, task, true);
		probe2(ready, task, SWITCHTO_WOKEN);
		fifo_enqueue(slot->queue, &task->entry, SWITCHTO_WOKEN);
		leave(me);
		return 0;
	}
	return switchto_wake_woken(me, task, false);
}

/*
 * Claims @task, and makes it ready. @inside as for switchto_wake_ready(). A late caller may find the
 * task in another sleep. Only WAITING takes no harm from that.
 */
static ALWAYS_INLINE bool task_wake(struct slot *inside, struct switchto_task *task, uint32_t how,
				    int woken_by, enum switchto_reason why)
{
	if (!claim(task, how))
		return false;
	task->woken_by = woken_by;
	if (likely(inside && inside == task->slot)) {
		probe2(ready, task, why);
		queue_claimed(inside, task, why);
	} else {
		switchto_wake_ready(inside, task, why);
	}
	return true;
}

/* @task is cancelled: it ends the sleep of @task, if it sleeps. */
void switchto_wake_cancel(struct switchto_task *task);

/* When it has fired, it may be gone. */
void switchto_waiter_fire(struct slot *inside, struct waiter *waiter);

#endif /* SWITCHTO_SCHED_WAKE_H */
