/* SPDX-License-Identifier: MIT */
/* Slots that lose their task: for a region, because the task blocks, or because its slice is over. */
#ifndef SWITCHTO_SCHED_REGION_H
#define SWITCHTO_SCHED_REGION_H

#include "owner.h"

/*
 * False: the owner of @slot, whose word was @owner, is inside by now, or has lost it. @lets_go: its
 * thread may use all of its CPUs.
 */
bool switchto_region_take(struct slot *slot, uint32_t owner, bool lets_go);
/* switchto_block_begin() for system call @number; -1: of the program. */
int switchto_region_begin(long number);

#endif /* SWITCHTO_SCHED_REGION_H */
