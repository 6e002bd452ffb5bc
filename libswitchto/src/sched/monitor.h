/* SPDX-License-Identifier: MIT */
/* The watcher of a scheduler: a thread. */
#ifndef SWITCHTO_SCHED_MONITOR_H
#define SWITCHTO_SCHED_MONITOR_H

#include "types.h"

/* 0 or an error number. */
int switchto_monitor_begin(struct switchto_sched *sched);
void switchto_monitor_end(struct switchto_sched *sched);

#endif /* SWITCHTO_SCHED_MONITOR_H */
