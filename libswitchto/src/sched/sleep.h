/* SPDX-License-Identifier: MIT */
/* How a task sleeps, inside, when it has prepared itself: wake.h. */
#ifndef SWITCHTO_SCHED_SLEEP_H
#define SWITCHTO_SCHED_SLEEP_H

#include "dispatch.h"
#include "mark.h"

/* Prepared: it does not sleep. False: it was claimed meanwhile, and task->woken_by says why. */
bool switchto_sleep_stay(struct worker *me);

/*
 * Prepared: is the task cancelled? Then it stays. switchto_cancel() sets it first and claims
 * then: one of the two sees the other's.
 */
static inline bool task_cancelled(struct worker *me)
{
	if (likely(!is_cancelled(me->task)))
		return false;
	switchto_sleep_stay(me);
	return true;
}

/*
 * 0, ETIMEDOUT, ECANCELED, or ENOMEM: no memory for the deadline. After a deadline that has passed, it
 * does not sleep. @how with ON_PARK and so on; @object: as switchto_trace_sleeps().
 */
int switchto_sleep(struct worker *me, nsec_t deadline, uint32_t how, const void *object);

/* The same without a deadline, in line. */
static ALWAYS_INLINE int sleep_in_line(struct worker *me, uint32_t how, uint32_t on,
				       const void *object)
{
	struct switchto_task *task = me->task;

	probe2(sleep, task, how);
	if (unlikely(me->slot->lane))
		switchto_trace_sleeps(task, on, object);
	dispatch_task(me);
	return task->woken_by;
}

/* The calling task parks, or with WAITING sleeps, where no unpark is for: 0 or an error number. */
int switchto_sleep_pause(uint32_t how, nsec_t deadline);

/*
 * Is @me a worker without a task? Then the caller is a handler that interrupted the scheduler, or a
 * policy. If it waited as a thread, the slot would stand.
 */
static inline bool is_between_tasks(const struct worker *me)
{
	return me && !me->task;
}

/* The caller is to wait, as a task or as a thread, such as a task in a blocking region. */
void switchto_waiter_begin(struct waiter *waiter);
/* The same, as a thread. */
static inline void switchto_waiter_begin_thread(struct waiter *waiter)
{
	*waiter = (struct waiter){ .generation = switchto_generation };
}

/*
 * 0 if it fired; ETIMEDOUT, ENOMEM; EDEADLK; EPERM: a handler has forked, and this is the child. @how:
 * ON_JOIN and so on; with CANCELS, also ECANCELED, or EINVAL in a blocking region, where nothing would
 * end the wait.
 */
int switchto_waiter_wait(struct waiter *waiter, nsec_t deadline, uint32_t how);
enum { CANCELS = 1 };

/*
 * The task of @me does not wait in @word any more, if no event has taken it out already. @from: what the
 * word was.
 */
static inline bool take_back(struct worker *me, _Atomic uintptr_t *word, uintptr_t from)
{
	uintptr_t seen = atomic_load(word);

	do
		if (mark_task(seen) != me->task)
			return false;
	while (!atomic_compare_exchange_weak(word, &seen, is_unread(seen) ? from : NOT_READY));
	return true;
}

/*
 * Waits until there was an event on @mark, if it is @from: 0 or an error number. That is NOT_READY; or
 * ready, for what the caller does not want. EBUSY: another task waits. ESTALE: no slot of this scheduler
 * polls it. In a task, outside. The path of each request that has to wait.
 */
int switchto_sleep_for(struct worker *me, struct mark *mark, struct direction *direction,
		       uintptr_t from, const struct timespec *deadline);

/* What a call of a cancelled task fails with: without the cancellation, it might not have waited. */
static inline int cancelled_call(nsec_t deadline)
{
	return deadline <= switchto_now() ? ETIMEDOUT : ECANCELED;
}

/*
 * Waits once, as switchto_sleep_for(). @now: with 0, what the word is. If that is still the task,
 * it has been woken for nothing.
 */
static ALWAYS_INLINE int slot_wait_once(struct worker *me, struct mark *mark,
					struct direction *direction, uintptr_t from,
					const struct timespec *deadline, uintptr_t *now)
{
	struct switchto_task *task = me->task;
	_Atomic uintptr_t *word = &direction->word;
	uintptr_t seen = from;
	int error;

	if (unlikely(deadline) && switchto_deadline(deadline) < 0)
		return EINVAL;
	if (unlikely(!enter_task(me)))
		return not_entered(me);
	prepare(task, WAITING);
	if (unlikely(!atomic_compare_exchange_strong(
			     word, &seen, (uintptr_t)task + (is_ready(from) ? UNREAD : 0)) &&
		     mark_task(seen) != task)) {
		switchto_sleep_stay(me);
		leave(me);
		*now = seen;
		return mark_task(seen) ? EBUSY : 0;
	}
	window();
	/* Paired with the store in leave_other(), mark.c. */
	if (unlikely(atomic_load(&mark->sched) != me->sched)) {
		take_back(me, word, from);
		switchto_sleep_stay(me);
		leave(me);
		return task->woken_by == EBADF ? EBADF : ESTALE;
	}
	if (unlikely(task_cancelled(me))) {
		error = cancelled_call(switchto_deadline(deadline));
	} else if (unlikely(deadline)) {
		error = switchto_sleep(me, switchto_deadline(deadline), WAITING_IO | ON_FD, mark);
	} else {
		error = sleep_in_line(me, WAITING_IO, ON_FD, mark);
	}
	window();
	/* If an event came as well, the call is tried once more, and the error comes after that. */
	if (unlikely(error) && error != EBADF && !take_back(me, word, from))
		error = 0;
	*now = atomic_load(word);
	leave(me);
	return error;
}

#endif /* SWITCHTO_SCHED_SLEEP_H */
