/* SPDX-License-Identifier: MIT */
/* Workers that have nothing to do, and the memory of tasks. */
#ifndef SWITCHTO_SCHED_POOL_H
#define SWITCHTO_SCHED_POOL_H

#include "types.h"

/*
 * A new worker, parked; or NULL and errno. Its TID is known: somebody will switch to it. The caller is
 * no task: a thread begins with the credentials, CPUs and so on of the one that makes it.
 */
struct worker *switchto_pool_create(struct switchto_sched *sched);
/* An idle one, or NULL. */
struct worker *switchto_pool_take(struct switchto_sched *sched);
/* @worker has no task: it may get one of anybody. */
void switchto_pool_idle(struct worker *worker);
/* Ends them all. */
void switchto_pool_end(struct switchto_sched *sched);

/* A task, used before or new; or NULL and errno. */
struct switchto_task *switchto_pool_task(struct switchto_sched *sched);
void switchto_pool_free_task(struct switchto_task *task);
void switchto_pool_free_tasks(struct switchto_sched *sched);

#endif /* SWITCHTO_SCHED_POOL_H */
