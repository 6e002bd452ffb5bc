/* SPDX-License-Identifier: MIT */
/* Workers that have nothing to do, and the memory of tasks. */
#ifndef SWITCHTO_SCHED_POOL_H
#define SWITCHTO_SCHED_POOL_H

#include "types.h"

/*
 * A new worker, parked, for tasks or for slot @serves; or NULL and errno. EBUSY: there are as many for
 * tasks as there may be. Its TID is known: somebody will switch to it. The caller is no task: a thread
 * begins with the credentials, CPUs and so on of the one that makes it.
 */
struct worker *switchto_pool_create(struct switchto_sched *sched, int serves);
/* An idle one, or NULL. */
struct worker *switchto_pool_take(struct switchto_sched *sched);
/*
 * An idle one for @task; or NULL, and with *@holds, @task is held until there is one. Else one may be
 * created by now.
 */
struct worker *switchto_pool_hold(struct switchto_sched *sched, struct switchto_task *task,
				  bool *holds);
/* One that is held, or NULL: it is to be made ready, to try again. */
struct switchto_task *switchto_pool_let_go(struct switchto_sched *sched);
/*
 * @worker has no task: it may get one of anybody. If one is held, it gets that, and the caller, who is
 * inside of @slot, makes it ready.
 */
struct switchto_task *switchto_pool_idle(struct worker *worker);
/* The same of one that goes on otherwise. NULL: the next one is not held for its slot. */
struct switchto_task *switchto_pool_take_held(struct worker *worker);
/*
 * Ends those that have been idle for long, beyond what is to stay; the others give the memory of their
 * stacks back. Of the monitor. True: call it again, as there may be more to end.
 */
bool switchto_pool_trim(struct switchto_sched *sched);
/* @me, the caller, was told something. False: to end. */
bool switchto_pool_stays(struct worker *me);
/* Ends them all. */
void switchto_pool_end(struct switchto_sched *sched);

/* A task, used before or new; or NULL and errno. */
struct switchto_task *switchto_pool_task(struct switchto_sched *sched);
void switchto_pool_free_task(struct switchto_task *task);
void switchto_pool_free_tasks(struct switchto_sched *sched);

#endif /* SWITCHTO_SCHED_POOL_H */
