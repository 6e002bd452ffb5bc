// SPDX-License-Identifier: MIT
#define _GNU_SOURCE
#include "sleep.h"

bool switchto_sleep_stay(struct worker *me)
{
	struct switchto_task *task = me->task;
	uint32_t state;

	window();
	state = atomic_fetch_and(&task->state, TOKEN);

	/* Claimed meanwhile: it is in a queue, and is its own next one sooner or later. */
	if (likely(state & (PARKED | WAITING)))
		return true;
	if (unlikely(me->slot->lane))
		switchto_trace_sleeps(task, ON_OTHER, NULL);
	switchto_dispatch(me);
	return false;
}

int switchto_sleep(struct worker *me, nsec_t deadline, uint32_t how, const void *object)
{
	struct switchto_task *task = me->task;
	int error = 0;

	if (deadline != NEVER)
		error = deadline <= switchto_now() ?
				ETIMEDOUT :
				switchto_timer_add(&me->slot->timers, task, deadline);
	if (unlikely(error) && switchto_sleep_stay(me))
		return error;
	if (likely(!error)) {
		probe2(sleep, task, how & ON_STATE);
		if (unlikely(me->slot->lane))
			switchto_trace_sleeps(task, how, object);
		switchto_dispatch(me);
	}
	return task->woken_by;
}

void switchto_waiter_begin(struct waiter *waiter)
{
	struct worker *me = switchto_current;

	switchto_waiter_begin_thread(waiter);
	waiter->task = me && !me->in_region ? me->task : NULL;
}

/*
 * A thread that is no task sleeps in a futex of its own. switchto_wait() might take a resume
 * that is meant for the program.
 */
static int thread_wait(struct waiter *waiter, nsec_t deadline)
{
	while (!atomic_load(&waiter->fired)) {
		/* A handler has forked, and its child returned. */
		if (waiter->generation != switchto_generation)
			return EPERM;
		if (switchto_futex_wait(&waiter->fired, 0, deadline) == ETIMEDOUT)
			return atomic_load(&waiter->fired) ? 0 : ETIMEDOUT;
	}
	return 0;
}

int switchto_waiter_wait(struct waiter *waiter, nsec_t deadline, uint32_t how)
{
	struct worker *me = switchto_current;
	uint32_t epoch;
	int error = 0;

	if (!waiter->task) {
		if (how & CANCELS && me && is_between_tasks(me))
			return EDEADLK;
		/* In a region, only a call whose deadline has passed is allowed: it does not wait. */
		if (how & CANCELS && me && deadline > switchto_now())
			return EINVAL;
		return thread_wait(waiter, deadline);
	}
	me = enter();
	if (!me)
		return errno;
	epoch = me->epoch;
	while (!atomic_load(&waiter->fired) && !error) {
		prepare(me->task, WAITING);
		if (how & CANCELS && task_cancelled(me))
			error = cancelled_call(deadline);
		else if (atomic_load(&waiter->fired))
			switchto_sleep_stay(me);
		else if (likely(deadline == NEVER))
			error = sleep_in_line(me, WAITING, how, waiter);
		else
			error = switchto_sleep(me, deadline, WAITING | how, waiter);
		if (error == ECANCELED && !(how & CANCELS))
			error = 0;
	}
	if (atomic_load(&waiter->fired))
		error = 0;
	leave(me);
	if (me->epoch == epoch)
		spent(me, 0);
	return error;
}

int switchto_sleep_for(struct worker *me, struct mark *mark, struct direction *direction,
		       uintptr_t from, const struct timespec *deadline)
{
	uintptr_t now;
	int error;

	do
		error = slot_wait_once(me, mark, direction, from, deadline, &now);
	while (!error && mark_task(now) == me->task);
	return error;
}

int switchto_sleep_pause(uint32_t how, nsec_t deadline)
{
	struct worker *me;
	uint32_t epoch;
	int error;

	if (deadline < 0)
		return EINVAL;
	me = enter();
	if (!me)
		return errno;
	epoch = me->epoch;
	do {
		error = prepare(me->task, how);
		if (error == EALREADY) {
			error = 0;
			break;
		}
		error = task_cancelled(me) ?
				ECANCELED :
				switchto_sleep(me, deadline,
					       how | (how == PARKED ? ON_PARK : ON_TIMER), NULL);
	} while (!error && how == WAITING);
	leave(me);
	if (me->epoch == epoch)
		spent(me, 0);
	return error;
}
