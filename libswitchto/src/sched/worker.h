/* SPDX-License-Identifier: MIT */
/* The threads that run tasks. */
#ifndef SWITCHTO_SCHED_WORKER_H
#define SWITCHTO_SCHED_WORKER_H

#include "types.h"

/* Those that are made from now on are as the caller is. */
void switchto_worker_take_model(struct switchto_sched *sched);
/* The main function of those threads. */
void *switchto_worker_main(void *worker);
/*
 * @me, the caller, is a dispatcher until the end, and nobody else can be that of the first slot. 0 or an
 * error number. *@place: for the end.
 */
int switchto_worker_begin_run(struct worker *me, int *place);
void switchto_worker_end_run(const struct worker *me, int place);
/* The threads that tasks need: 0 or an error number. */
int switchto_worker_begin_threads(struct switchto_sched *sched);
/* @me is the dispatcher of @slot until there are no tasks left. */
void switchto_worker_dispatch(struct worker *me, struct slot *slot);
/* @me owns a slot, and is its dispatcher until *@over. */
void switchto_worker_step(struct worker *me, const bool *over);
/* Ends the wait of dispatchers that have found no tasks: with the scheduler's lock. */
void switchto_worker_next_round(struct switchto_sched *sched);
/* A task counts no longer. */
void switchto_worker_task_ended(struct switchto_sched *sched);

#endif /* SWITCHTO_SCHED_WORKER_H */
