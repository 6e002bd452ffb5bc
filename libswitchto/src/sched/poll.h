/* SPDX-License-Identifier: MIT */
/* What a slot polls: an instance of epoll, and the eventfd that wakes it. */
#ifndef SWITCHTO_SCHED_POLL_H
#define SWITCHTO_SCHED_POLL_H

#include "types.h"

/* 0 or an error number. */
int switchto_poll_begin(struct slot *slot);
void switchto_poll_end(struct slot *slot);

/*
 * Waits for events for @timeout, NEVER without a limit, and makes ready who waits for them: inside.
 * @looks: few events, as there are ready tasks. How many there were, or less than 0.
 */
long switchto_poll_events(struct slot *slot, nsec_t timeout, bool looks);

#endif /* SWITCHTO_SCHED_POLL_H */
