/* SPDX-License-Identifier: MIT */
/* Several tasks that would wait at one descriptor take turns. */
#ifndef SWITCHTO_SCHED_TURN_H
#define SWITCHTO_SCHED_TURN_H

#include "mark.h"

/* Waits until it is the turn of @turn, @last behind all others: 0 or an error number. */
int switchto_turn_wait(struct mark *mark, struct direction *direction, struct turn *turn, bool last,
		       const struct timespec *deadline);
/* The call is done. @turn: NULL, or listed. */
void switchto_turn_end(struct mark *mark, struct direction *direction, struct turn *turn);

#endif /* SWITCHTO_SCHED_TURN_H */
