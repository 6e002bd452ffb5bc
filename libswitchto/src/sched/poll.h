/* SPDX-License-Identifier: MIT */
/* What a slot polls: an instance of epoll, and the eventfd that wakes it. */
#ifndef SWITCHTO_SCHED_POLL_H
#define SWITCHTO_SCHED_POLL_H

#include "types.h"

/*
 * How many events a poll takes; and if there are ready tasks. What these have not read yet is reported
 * once more then.
 */
enum { EVENTS = 128, LOOK_EVENTS = 32 };

/* 0 or an error number. */
int switchto_poll_begin(struct slot *slot);
void switchto_poll_end(struct slot *slot);

/* Has @epoll, the instance of @slot, polled by that of switchto_sched_fd(), if any: 0, or -1 and errno. */
int switchto_poll_show(struct slot *slot, int epoll);

/*
 * Waits for events for @timeout, NEVER without a limit, and makes the tasks ready that wait for them:
 * inside.
 * @looks: few events, as there are ready tasks. How many there were, or less than 0.
 */
long switchto_poll_events(struct slot *slot, nsec_t timeout, bool looks);

#endif /* SWITCHTO_SCHED_POLL_H */
