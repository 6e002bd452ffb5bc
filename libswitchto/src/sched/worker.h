/* SPDX-License-Identifier: MIT */
/* The threads that run tasks. */
#ifndef SWITCHTO_SCHED_WORKER_H
#define SWITCHTO_SCHED_WORKER_H

#include "types.h"

/* Those that are made from now on are as the caller is. */
void switchto_worker_take_model(struct switchto_sched *sched);
/* The main function of those threads. */
void *switchto_worker_main(void *worker);
/* @me, the caller, is the dispatcher of @slot until there are no tasks left. */
void switchto_worker_dispatch(struct worker *me, struct slot *slot);
/* Ends the wait of dispatchers that have found no tasks: with the scheduler's lock. */
void switchto_worker_next_round(struct switchto_sched *sched);
/* A task counts no longer. */
void switchto_worker_task_ended(struct switchto_sched *sched);

#endif /* SWITCHTO_SCHED_WORKER_H */
