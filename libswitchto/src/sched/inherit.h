/* SPDX-License-Identifier: MIT */
/*
 * What the task that has a mutex inherits from those that wait for it, if the policy says so: see
 * switchto_policy.inherit. A task that waits is in the list of the one that has the mutex, or gets it
 * next: the oldest, which unlock has woken. If that is a thread, or a task of another scheduler, it is
 * in the list of the scheduler. Chains of mutexes are chains of these lists.
 *
 * All of it is guarded by one lock of the scheduler, sched->passing. Whoever begins to wait for a mutex,
 * gets it after a wait, gives up, or unlocks it while others wait does so with this lock: so the lists
 * and the word of the mutex belong together, but for threads and other schedulers. What one of these
 * unlocks is found by the task that gets it.
 *
 * entry.attr belongs to the slot. So here a task becomes due only, and its slot makes the change when it
 * next picks a task. Each attr is written with the lock, too: others look at it.
 */
#ifndef SWITCHTO_SCHED_INHERIT_H
#define SWITCHTO_SCHED_INHERIT_H

#include "types.h"

static inline void inherit_lock(struct switchto_sched *sched)
{
	window();
	pthread_mutex_lock(&sched->passing);
}

static inline void inherit_unlock(struct switchto_sched *sched)
{
	pthread_mutex_unlock(&sched->passing);
	window();
}

/*
 * With the lock. @holder: the task of the same scheduler that has @mutex, or NULL. What @task would have
 * passed on as the next one to get the mutex is for @holder, too.
 */
/* @task waits for @mutex, or waits again. */
void switchto_inherit_wait(struct switchto_task *task, const struct switchto_mutex *mutex,
			   struct switchto_task *holder);
/* @task, the next one to get @mutex, has given up. */
void switchto_inherit_leave(struct switchto_task *task, const struct switchto_mutex *mutex,
			    struct switchto_task *holder);
/* @task does not wait for @mutex any more: it has it, or has given up. */
void switchto_inherit_has(struct switchto_task *task, const struct switchto_mutex *mutex);
void switchto_inherit_give_up(struct switchto_task *task);
/* @task has unlocked @mutex, which @next gets; or NULL: one of another scheduler, or nobody. */
void switchto_inherit_pass(struct switchto_task *task, const struct switchto_mutex *mutex,
			   struct switchto_task *next);

/* Without the lock, inside of the slot of @task. */
/* @task has @attr from now on. */
void switchto_inherit_change(struct slot *slot, struct switchto_task *task,
			     const struct switchto_task_attr *attr);
/* The changes that are due. */
void switchto_inherit_apply(struct slot *slot);
/* @task is of @slot from now on, which has stolen it. Inside of both slots. */
void switchto_inherit_move(struct switchto_task *task, struct slot *slot);
/* @task has inherited, or passed on, and ends. */
void switchto_inherit_end(struct switchto_task *task);

/* Are there changes that are due? */
static inline bool inherit_is_due(struct slot *slot)
{
	return unlikely(atomic_load_explicit(&slot->due, memory_order_relaxed));
}

#endif /* SWITCHTO_SCHED_INHERIT_H */
