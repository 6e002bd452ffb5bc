/* SPDX-License-Identifier: MIT */
/*
 * Steps: a scheduler with one slot is a part of another loop, which calls switchto_sched_step().
 *
 * During a step, its caller is the slot's dispatcher. The slot has a policy of its own then, around the
 * scheduler's: when no task is ready, or a step has lasted for LOOK, it gives a pseudo task, whose worker
 * is the caller. So the calls of tasks know nothing of steps.
 *
 * Between steps nobody owns the slot, and its word stays INSIDE: nobody can take it. It is asleep: a
 * thread that puts a task into its inbox writes to its eventfd. The program polls an epoll instance
 * around that of the slot, which changes with strays, and around a timer for the earliest deadline.
 */
#ifndef SWITCHTO_SCHED_STEP_H
#define SWITCHTO_SCHED_STEP_H

#include "types.h"

struct steps {
	struct switchto_task caller;
	int epoll, timer; /* of switchto_sched_fd(); or -1 */
	nsec_t armed;	  /* what the timer is set to; NEVER: it is not */
	nsec_t until;	  /* when no further task is to begin to run; 0: none has */
	bool over;
	bool more;	 /* there may be events that it has not taken */
	bool holds_back; /* the policy has given no task, but has some */
	atomic_bool runs;
	atomic_bool shown; /* there is the descriptor, for good */
};

/* A run ends: the next one to run tasks may be a step. Inside of @slot. */
void switchto_step_ran(struct slot *slot);
void switchto_step_end(struct slot *slot);

#endif /* SWITCHTO_SCHED_STEP_H */
