// SPDX-License-Identifier: MIT
/*
 * Blocking regions. A task in one loses its slot when the monitor has seen it there twice; or it gives
 * the slot up at once, if the slot's last region was a long one.
 */
#define _GNU_SOURCE
#include "region.h"
#include "dispatch.h"

/* A region that lasts for longer was worth it to give the slot up, ns. */
#define REGION_IS_LONG 20000LL

bool switchto_region_take(struct slot *slot, uint32_t owner)
{
	if (!take(slot, owner))
		return false;
	atomic_fetch_add_explicit(&slot->stats.retakes, 1, memory_order_relaxed);
	probe2(retake, slot, atomic_load_explicit(&slot->tid, memory_order_relaxed));
	switchto_owner_grant(slot->dispatcher, slot);
	return true;
}

/* A blocking region begins: the monitor is to see it soon. */
static void monitor_wake(struct switchto_sched *sched)
{
	uint32_t asleep = MONITOR_SLEEPS;

	if (atomic_load(&sched->monitor) == MONITOR_SLEEPS &&
	    atomic_compare_exchange_strong(&sched->monitor, &asleep, MONITOR_RUNS))
		switchto_futex_wake(&sched->monitor);
}

int switchto_block_begin(void)
{
	struct worker *me = switchto_current;

	if (!me || !me->task)
		return fail(EPERM);
	if (is_inside(me))
		return fail(EDEADLK);
	if (me->in_region)
		return fail(EINVAL);
	me->in_region = true;
	switchto_owner_block(me);
	probe(block_begin);
	/* As the monitor would, but at once. That saves what the others wait for the monitor. */
	if (atomic_load_explicit(&me->slot->long_regions, memory_order_relaxed)) {
		me->gave_up = switchto_now();
		switchto_region_take(me->slot, owner_word(me->epoch, BLOCKING));
	} else {
		monitor_wake(me->sched);
	}
	return 0;
}

int switchto_block_end(void)
{
	struct worker *me = switchto_current;
	struct slot *slot;
	bool is_long;

	if (!me || !me->task)
		return fail(EPERM);
	if (!me->in_region)
		return fail(EINVAL);
	slot = me->slot;
	is_long = me->gave_up && switchto_now() - me->gave_up >= REGION_IS_LONG;
	if (!switchto_owner_unblock(me) && !me->gave_up)
		is_long = true;
	if (atomic_load_explicit(&slot->long_regions, memory_order_relaxed) != is_long)
		atomic_store_explicit(&slot->long_regions, is_long, memory_order_relaxed);
	me->gave_up = 0;
	me->in_region = false;
	probe(block_end);
	spent(me, 0);
	return 0;
}
