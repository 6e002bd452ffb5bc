// SPDX-License-Identifier: MIT
/* What the wrapper has measured. */
#define _GNU_SOURCE
#include "types.h"

#define READ(count) atomic_load_explicit(&(count), memory_order_relaxed)

int switchto_slot_stats(const struct switchto_sched *sched, unsigned int slot,
			struct switchto_slot_stats *stats)
{
	const struct slot_stats *from;

	if (!sched || !stats || slot >= sched->slots)
		return fail(EINVAL);
	if (!(sched->flags & SWITCHTO_MEASURE))
		return fail(ENOTSUP);
	from = &sched->slot[slot].stats;
	*stats = (struct switchto_slot_stats){
		.runs = READ(from->runs),
		.run_ns = READ(from->run_ns),
		.idle_ns = READ(from->idle_ns),
		.steals = READ(from->steals),
		.retakes = READ(from->retakes),
	};
	for (unsigned int i = 0; i < SWITCHTO_READY_BUCKETS; i++)
		stats->ready[i] = READ(from->ready[i]);
	return 0;
}

int switchto_task_stats(const struct switchto_task *task, struct switchto_task_stats *stats)
{
	if (!task || !stats)
		return fail(EINVAL);
	if (!(task->sched->flags & SWITCHTO_MEASURE))
		return fail(ENOTSUP);
	*stats = (struct switchto_task_stats){
		.runs = READ(task->stats.runs),
		.run_ns = READ(task->stats.run_ns),
		.ready_ns = READ(task->stats.ready_ns),
		.blocked_ns = READ(task->stats.blocked_ns),
	};
	return 0;
}
