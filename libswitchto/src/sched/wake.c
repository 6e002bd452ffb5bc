// SPDX-License-Identifier: MIT
#define _GNU_SOURCE
#include "wake.h"

/* A PARKED task takes its token, a WAITING one keeps it. */
int switchto_wake_prepare_token(struct switchto_task *task, uint32_t how)
{
	if (how == PARKED) {
		atomic_fetch_and_explicit(&task->state, ~TOKEN, memory_order_acquire);
		return EALREADY;
	}
	atomic_store(&task->state, how | TOKEN);
	return 0;
}

void switchto_wake_ready(struct slot *inside, struct switchto_task *task, enum switchto_reason why)
{
	struct worker *me = switchto_current;
	struct slot *slot = task->slot;
	struct switchto_sched *sched = slot->sched;

	probe2(ready, task, why);
	if (inside == slot) {
		queue_claimed(slot, task, why);
		return;
	}
	/* The caller's own slot, but not if this is a handler that interrupted the scheduler. */
	if (!inside && me && me->slot == slot && try_enter(me)) {
		queue_claimed(slot, task, why);
		leave(me);
		return;
	}
	/*
	 * The task may run and end at once, as the last one, and the scheduler be destroyed before
	 * this has looked whether to wake the poller. Not while one of its own threads is here.
	 */
	if (!me || me->sched != sched)
		atomic_fetch_add(&sched->visitors, 1);
	switchto_inbox_push(slot, task, why);
	if (!me || me->sched != sched)
		atomic_fetch_sub(&sched->visitors, 1);
}

int switchto_wake_woken(struct worker *me, struct switchto_task *task, bool inside)
{
	if (inside && unlikely(me->slot->traced.is_fifo) && !task->timer) {
		probe2(ready, task, SWITCHTO_WOKEN);
		return switchto_trace_woken(me, task);
	}
	if (is_parents(task->sched)) {
		if (inside)
			leave(me);
		return fail(EPERM);
	}
	switchto_wake_ready(inside ? me->slot : NULL, task, SWITCHTO_WOKEN);
	if (inside)
		leave(me);
	return 0;
}

void switchto_wake_cancel(struct switchto_task *task)
{
	atomic_fetch_add(&task->cancellers, 1);
	if (atomic_fetch_or(&task->cancelled, CANCELLED) < SHIELD) {
		window();
		task_wake(NULL, task, PARKED | WAITING, ECANCELED, SWITCHTO_WOKEN);
	}
	atomic_fetch_sub(&task->cancellers, 1);
}

static inline void fire(struct slot *inside, struct waiter *waiter)
{
	struct switchto_task *task = waiter->task;

	atomic_store(&waiter->fired, true);
	window();
	task_wake(inside, task, WAITING, 0, SWITCHTO_WOKEN);
}

void switchto_waiter_fire(struct slot *inside, struct waiter *waiter)
{
	struct switchto_task *task = waiter->task;
	struct worker *me = switchto_current;
	struct switchto_sched *sched;

	if (inside && task) {
		fire(inside, waiter);
	} else if (!task) {
		/* A wake-up too many, of the next user of the memory, does no harm. */
		atomic_store(&waiter->fired, true);
		switchto_futex_wake(&waiter->fired);
	} else if (likely(me && me->sched == task->sched && try_enter(me))) {
		fire(me->slot, waiter);
		leave(me);
	} else {
		/* The task may go on, and its scheduler be destroyed, before it is woken. */
		sched = task->sched;
		atomic_fetch_add(&sched->visitors, 1);
		fire(NULL, waiter);
		atomic_fetch_sub(&sched->visitors, 1);
	}
}
