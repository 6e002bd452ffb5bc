// SPDX-License-Identifier: MIT
/*
 * Blocking regions. A task in one loses its slot when the monitor has seen it there twice; or it gives
 * the slot up at once, if the slot's last region was a long one. If the kernel tells of tasks that
 * block, nobody is woken to look.
 */
#define _GNU_SOURCE
#include "region.h"
#include "dispatch.h"

/* A region that lasts for longer was worth it to give the slot up, ns. */
#define REGION_IS_LONG 20000LL
/* And one that does for so long, to let the thread go. That takes some 10 us, with the way back. */
#define REGION_NEEDS_CPU 1000000LL

bool switchto_region_take(struct slot *slot, uint32_t owner, bool lets_go)
{
	pid_t tid;

	if (!take(slot, owner))
		return false;
	tid = atomic_load_explicit(&slot->tid, memory_order_relaxed);
	switchto_owner_taken(slot, owner, tid);
	switchto_owner_grant(slot->dispatcher, slot);
	/* It may compute: not on the CPU of the others. */
	if (lets_go)
		switchto_let_go(tid);
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

int switchto_region_begin(long number)
{
	struct worker *me = switchto_current;
	unsigned char last;
	bool told;

	if (!me || !me->task)
		return fail(EPERM);
	if (is_inside(me))
		return fail(EDEADLK);
	if (me->in_region)
		return fail(EINVAL);
	me->in_region = true;
	switchto_owner_block(me);
	probe(block_begin);
	if (traces())
		switchto_trace_event(me->slot, TRACE_BLOCK, me->task, (uint64_t)(number + 1));
	/* As the monitor would, but at once. That saves what the others wait for the monitor. */
	last = atomic_load_explicit(&me->slot->last_region, memory_order_relaxed);
	/* The kernel tells if it sleeps. But after a very long one it may compute. */
	told = atomic_load_explicit(&me->slot->is_lent, memory_order_relaxed);
	if (last == REGION_VERY_LONG || (last != REGION_SHORT && !told)) {
		me->gave_up = switchto_now();
		switchto_region_take(me->slot, owner_word(me->epoch, BLOCKING),
				     last == REGION_VERY_LONG);
	} else if (!told) {
		monitor_wake(me->sched);
	}
	return 0;
}

int switchto_block_begin(void)
{
	return switchto_region_begin(-1);
}

int switchto_block_end(void)
{
	struct worker *me = switchto_current;
	unsigned char length = REGION_SHORT;
	struct slot *slot;
	nsec_t lasted;

	if (!me || !me->task)
		return fail(EPERM);
	if (!me->in_region)
		return fail(EINVAL);
	slot = me->slot;
	if (me->gave_up) {
		lasted = switchto_now() - me->gave_up;
		length = lasted >= REGION_NEEDS_CPU ? REGION_VERY_LONG :
			 lasted >= REGION_IS_LONG   ? REGION_LONG :
						      REGION_SHORT;
	}
	/* That of the monitor is not known: the next one will say. */
	if (!switchto_owner_unblock(me) && !me->gave_up)
		length = REGION_VERY_LONG;
	if (atomic_load_explicit(&slot->last_region, memory_order_relaxed) != length)
		atomic_store_explicit(&slot->last_region, length, memory_order_relaxed);
	me->gave_up = 0;
	me->in_region = false;
	probe(block_end);
	if (traces())
		switchto_trace_event(slot, TRACE_UNBLOCK, me->task, 0);
	spent(me, 0);
	return 0;
}
