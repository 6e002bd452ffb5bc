/* SPDX-License-Identifier: MIT */
/*
 * What a scheduler offers to tools/switchto-top, if SWITCHTO_STATS is 1: a memfd that the tool finds in
 * /proc/PID/fd. Only those that may look into the process can open it, and it is gone with the process,
 * or its next exec. The monitor writes it when a reader has asked, and when the monitor begins, rests or
 * ends. The scheduler measures for it, as with SWITCHTO_MEASURE, and notes which tasks have lost their
 * slots.
 */
#ifndef SWITCHTO_SCHED_STATS_H
#define SWITCHTO_SCHED_STATS_H

#include "types.h"

/* tools/switchto-top has the same structures, and the same numbers. */
enum { SLOT_IDLE, SLOT_RUNS, SLOT_BLOCKS, SLOT_POLLS, SLOT_SCHEDULES };

struct offered_slot {
	_Atomic uint64_t does, tid, switches, polls;
	_Atomic uint64_t task, name[2], since; /* the running one, 0: none; since when that is so */
	struct slot_stats stats;
};

struct offer {
	char magic[8];
	uint32_t pid, slots;
	char name[16], policy[16], engine[16];
	_Atomic uint32_t asked; /* the reader's: another number */
	_Atomic uint32_t answered;
	_Atomic uint32_t version; /* odd: it is being written */
	_Atomic uint32_t answers; /* 0: the scheduler does not run, and nobody answers */
	_Atomic uint64_t at;	  /* ns */
	_Atomic uint64_t threads, awake, parked, waiting, locking; /* tasks, but for threads */
	_Atomic uint64_t beside; /* that have lost their slots; the one that has run for longest: */
	_Atomic uint64_t longest[2], tid, since;
	struct offered_slot slot[];
};

/* Is what the schedulers do to be offered? Then they are to measure. */
bool switchto_stats_wanted(void);
/* A failure is said on stderr. */
void switchto_stats_begin(struct switchto_sched *sched);
void switchto_stats_end(struct switchto_sched *sched);
/* @slot, which was @owner's, has been taken from its task; @me is about to wait for its slot again. */
void switchto_stats_taken(const struct slot *slot, uint32_t owner);
void switchto_stats_regain(struct worker *me);
/* Of the monitor alone. @answers: it will look whether a reader asks. */
void switchto_stats_write(struct switchto_sched *sched, bool answers);

static inline void switchto_stats_answer(struct switchto_sched *sched)
{
	const struct offer *to = sched->offer;

	if (unlikely(to) && atomic_load(&to->asked) != atomic_load(&to->answered))
		switchto_stats_write(sched, true);
}

#endif /* SWITCHTO_SCHED_STATS_H */
