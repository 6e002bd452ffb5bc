/* SPDX-License-Identifier: MIT */
/* The policy of a scheduler that measures or steals. */
#ifndef SWITCHTO_SCHED_WRAPPER_H
#define SWITCHTO_SCHED_WRAPPER_H

#include "types.h"

extern const struct switchto_policy switchto_wrapper;

/* The queue of @slot is there, and all 0. */
void switchto_wrapper_begin(struct slot *slot);
/* Nobody runs in @slot until the next pick. */
void switchto_wrapper_pause(struct slot *slot);
/*
 * *@running: the task that runs, or NULL: none does; since when that is so. 0: never. CHANGES_NOW: a run
 * is being added to the sums.
 */
#define CHANGES_NOW NEVER
nsec_t switchto_wrapper_since(const struct slot *slot, struct switchto_task **running);
/* The queue of the program's policy. */
void *switchto_wrapper_queue(struct slot *slot);

#endif /* SWITCHTO_SCHED_WRAPPER_H */
