/* SPDX-License-Identifier: MIT */
/* The lock of an object of the library: a mutex that is free soon. */
#ifndef SWITCHTO_SCHED_SYNC_H
#define SWITCHTO_SCHED_SYNC_H

#include "sleep.h"

void switchto_lock_inner(struct switchto_mutex *mutex);
/* Has a thread of this process locked it? */
bool switchto_is_in_use(const struct switchto_mutex *mutex);

#endif /* SWITCHTO_SCHED_SYNC_H */
