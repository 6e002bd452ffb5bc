/* SPDX-License-Identifier: MIT */
/*
 * A task that has a mutex inherits from the tasks of its scheduler that wait for the mutex, if the
 * policy has a function for that: switchto_policy.inherit. A task that waits is in the list of the
 * task that has the mutex, or of the oldest that waits, if unlock has woken that one. If neither is
 * known to be a task of this scheduler, the task that waits is in the scheduler's list. Chains of
 * mutexes are chains of these lists.
 *
 * One lock guards all lists of a scheduler: sched->passing. A task begins to wait, gets the mutex
 * after a wait, gives up, and unlocks a mutex for which others wait, with this lock. In the same
 * section it changes the word of the mutex. So while a task is in a list for a mutex, it is also in
 * that of the mutex, or has just been given it; and no task of the scheduler that has the mutex can
 * unlock it without the lock. Threads and tasks of other schedulers unlock without it: a task that
 * gets the mutex after a wait, or begins to wait, takes the others out of the scheduler's list.
 *
 * entry.attr belongs to the slot: with the lock a task becomes due, and its slot calls change when
 * it next picks a task. That is with the lock, too, since others read entry.attr with it.
 */
#ifndef SWITCHTO_SCHED_INHERIT_H
#define SWITCHTO_SCHED_INHERIT_H

#include "types.h"

static inline void inherit_lock(struct switchto_sched *sched)
{
	window();
	pthread_mutex_lock(&sched->passing);
}

static inline bool inherit_try_lock(struct switchto_sched *sched)
{
	return !pthread_mutex_trylock(&sched->passing);
}

static inline void inherit_unlock(struct switchto_sched *sched)
{
	pthread_mutex_unlock(&sched->passing);
	window();
}

/*
 * With the lock. @holder: the task of the same scheduler that has @mutex, or NULL. The tasks that
 * are in the list of @task, as the oldest, go to @holder, too.
 */
/* @task waits for @mutex, or waits again. */
void switchto_inherit_wait(struct switchto_task *task, const struct switchto_mutex *mutex,
			   struct switchto_task *holder);
/* @task, the oldest that waits for @mutex, has given up. */
void switchto_inherit_leave(struct switchto_task *task, const struct switchto_mutex *mutex,
			    struct switchto_task *holder);
/* @task does not wait for @mutex any more: it has it, or has given up. */
void switchto_inherit_has(struct switchto_task *task, const struct switchto_mutex *mutex);
void switchto_inherit_give_up(struct switchto_task *task);
/* @task has unlocked @mutex, and @next gets it; or NULL: one of another scheduler, or nobody. */
void switchto_inherit_pass(struct switchto_task *task, const struct switchto_mutex *mutex,
			   struct switchto_task *next);

/* Without the lock, inside of the slot of @task. */
/* @task has @attr from now on. */
void switchto_inherit_change(struct slot *slot, struct switchto_task *task,
			     const struct switchto_task_attr *attr);
/* The changes that are due. */
void switchto_inherit_apply(struct slot *slot);
/* @task has inherited, or passed on, and ends: entry.attr is its own again. */
void switchto_inherit_end(struct switchto_task *task);

/* Are there changes that are due? */
static inline bool inherit_is_due(struct slot *slot)
{
	return unlikely(atomic_load_explicit(&slot->due, memory_order_relaxed));
}

#endif /* SWITCHTO_SCHED_INHERIT_H */
