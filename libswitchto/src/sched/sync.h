/* SPDX-License-Identifier: MIT */
/* The lock of an object of the library: a mutex that is free soon. */
#ifndef SWITCHTO_SCHED_SYNC_H
#define SWITCHTO_SCHED_SYNC_H

#include "sleep.h"

void switchto_lock_inner(struct switchto_mutex *mutex);
/* Has a thread of this process locked it? */
bool switchto_is_in_use(const struct switchto_mutex *mutex);

/*
 * For the trace: the object that @waiter, of a wait for one of @on, waits for. NULL: it has just been
 * woken. Of a mutex: in a wait with a deadline.
 */
const void *switchto_sync_awaited(const struct waiter *waiter, uint32_t on);
/* The same of a channel. */
const void *switchto_chan_awaited(const struct waiter *waiter);

#endif /* SWITCHTO_SCHED_SYNC_H */
