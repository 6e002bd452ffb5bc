/* SPDX-License-Identifier: MIT */
/*
 * How a slot goes from one thread to the next, in line: for the calls that are on the hot path.
 * What is seldom is a function of slot.c, which keeps registers free here.
 */
#ifndef SWITCHTO_SCHED_DISPATCH_H
#define SWITCHTO_SCHED_DISPATCH_H

#include "mark.h"

/* The end of hand_over(), if there is no grant yet. @result is that of switchto_switch(). */
bool switchto_slot_switched(struct thread *me, pid_t result);

/*
 * next_task(), whatever there is to do before: the inbox, or events. @none: the policy has just said
 * that there is none.
 */
struct switchto_task *switchto_slot_next(struct slot *slot, bool none);

/*
 * @task is the next one, and has not run yet: the thread that is to run it. If there is none, @task
 * waits, and it is the thread of another one.
 */
struct thread *switchto_slot_begin_task(struct slot *slot, struct switchto_task *task);

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
	if (!has_task && me != slot->dispatcher) {
		if (likely(!slot->spare))
			slot->spare = me;
		else
			switchto_thread_idle(me);
	}
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
	const int left = atomic_load_explicit(&slot->budget, memory_order_relaxed) - PICK_COSTS;
	struct switchto_entry *entry;

	if (unlikely(left < 0) || unlikely(!slot->is_fifo) ||
	    unlikely(atomic_load_explicit(&slot->inbox, memory_order_relaxed)))
		return switchto_slot_next(slot, false);
	atomic_store_explicit(&slot->budget, left, memory_order_relaxed);
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

	if (unlikely(!next))
		next = switchto_slot_begin_task(slot, task);
	if (next != me)
		hand_over(me, slot, next, true);
}

/* The task of @me does not wait in @word any more, if no event has taken it out already. */
static inline bool take_back(struct thread *me, _Atomic uintptr_t *word)
{
	uintptr_t seen = atomic_load(word);

	do
		if (mark_task(seen) != me->task)
			return false;
	while (!atomic_compare_exchange_weak(word, &seen, NOT_READY));
	return true;
}

/*
 * Waits once, as switchto_slot_wait_for(). @now: with 0, what the word is. If that is still the task,
 * it has been woken for nothing.
 */
static ALWAYS_INLINE int slot_wait_once(struct thread *me, struct mark *mark,
					struct direction *direction,
					const struct timespec *deadline, uintptr_t *now)
{
	struct switchto_task *task = me->task;
	_Atomic uintptr_t *word = &direction->word;
	uintptr_t seen = NOT_READY;
	int error;

	if (unlikely(deadline) && switchto_deadline(deadline) < 0)
		return EINVAL;
	if (unlikely(!enter_task(me)))
		return EDEADLK;
	task_prepare(task, WAITING);
	if (unlikely(!atomic_compare_exchange_strong(word, &seen, (uintptr_t)task) &&
		     mark_task(seen) != task)) {
		switchto_task_stay(me);
		leave(me);
		*now = seen;
		return mark_task(seen) ? EBUSY : 0;
	}
	window();
	/* Paired with the store in move(). */
	if (unlikely(atomic_load(&mark->sched) != me->sched)) {
		take_back(me, word);
		switchto_task_stay(me);
		leave(me);
		return task->woken_by == EBADF ? EBADF : ESTALE;
	}
	if (unlikely(task_cancelled(me))) {
		error = ECANCELED;
	} else if (unlikely(deadline)) {
		error = task_sleep(me, switchto_deadline(deadline), WAITING_IO);
	} else {
		/* The same, in line. */
		probe2(sleep, task, WAITING_IO);
		dispatch_task(me);
		error = task->woken_by;
	}
	window();
	/* If an event came as well, the call is tried once more, and the error comes after that. */
	if (unlikely(error) && error != EBADF && !take_back(me, word))
		error = 0;
	*now = atomic_load(word);
	leave(me);
	return error;
}

#endif /* SWITCHTO_SCHED_DISPATCH_H */
