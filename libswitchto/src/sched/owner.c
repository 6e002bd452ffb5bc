// SPDX-License-Identifier: MIT
#define _GNU_SOURCE
#include "owner.h"
#include "pool.h"
#include "stats.h"

#include <sched.h>

_Thread_local struct worker *switchto_current __attribute__((tls_model("initial-exec")));

/* The only thread of a child is no task: its scheduler's threads are not there. */
static void forked(void)
{
	switchto_current = NULL;
	switchto_trace_forked();
	switchto_sys_forked();
	switchto_generation_offset = switchto_generation % GENERATIONS * GENERATION_SIZE;
}

/* When the library is loaded: threads may lock a mutex before there is a scheduler. */
static __attribute__((constructor)) void watch_forks(void)
{
	pthread_atfork(NULL, NULL, forked);
}

void switchto_owner_check_fork(const struct switchto_sched *sched)
{
	if (is_parents(sched))
		switchto_misused("the child of a fork() in a signal handler returned from the "
				 "handler: end it with _exit() or exec");
}

/* @worker knows its epoch, and others whose CPU time to look at. */
static void begin(struct worker *worker, struct slot *slot)
{
	worker->epoch = epoch_of(atomic_load(&slot->owner));
	atomic_store_explicit(&slot->tid, worker->tid, memory_order_relaxed);
}

void switchto_owner_begin(struct worker *me, struct slot *slot)
{
	me->slot = slot;
	begin(me, slot);
}

void switchto_owner_grant(struct worker *worker, struct slot *slot)
{
	/* The worker may be gone once it has been granted the slot: a step's caller. */
	const pid_t tid = worker->tid;

	begin(worker, slot);
	window();
	atomic_store_explicit(&worker->granted, slot, memory_order_release);
	switchto_resume(tid);
}

bool switchto_owner_await(struct worker *me)
{
	struct slot *slot;
	pid_t by;

	while (!(slot = atomic_exchange_explicit(&me->granted, NULL, memory_order_acquire))) {
		if (unlikely(atomic_load_explicit(&me->told, memory_order_relaxed)) &&
		    !switchto_pool_stays(me))
			return false;
		by = switchto_wait(NULL);
		if (unlikely(by < 0)) {
			switchto_owner_check_fork(me->sched);
			if (errno != EINPROGRESS)
				switchto_broken("switchto_wait");
			if (switchto_owner_reclaim(me, -by))
				return true;
		}
	}
	window();
	me->slot = slot;
	return true;
}

void switchto_owner_taken(struct slot *slot, uint32_t owner, pid_t tid)
{
	atomic_fetch_add_explicit(&slot->stats.retakes, 1, memory_order_relaxed);
	if (unlikely(slot->sched->offer))
		switchto_stats_taken(slot, owner);
	probe2(retake, slot, tid);
	if (traces())
		switchto_trace_event(slot, TRACE_RETAKE, NULL, (uint64_t)tid);
}

bool switchto_owner_reclaim(struct worker *me, pid_t tid)
{
	struct slot *slot = me->slot;
	uint32_t owner;

	if (me != slot->dispatcher)
		return false;
	atomic_store_explicit(&slot->is_lent, false, memory_order_relaxed);
	/* A task that is alone has nothing to lose. */
	if (atomic_load_explicit(&me->sched->tasks, memory_order_relaxed) < 2)
		return false;
	do {
		owner = atomic_load(&slot->owner);
		/* The TID belongs to the owner, or to a later one: then the word has changed. */
		if (state_of(owner) == INSIDE ||
		    atomic_load_explicit(&slot->tid, memory_order_relaxed) != tid)
			return false;
		/* A visit is short. */
		if (state_of(owner) == VISITED)
			sched_yield();
	} while (state_of(owner) == VISITED || !take(slot, owner));
	switchto_owner_taken(slot, owner, tid);
	switchto_owner_begin(me, slot);
	return true;
}

void switchto_owner_regain(struct worker *me)
{
	if (unlikely(me->sched->offer))
		switchto_stats_regain(me);
	probe2(ready, me->task, SWITCHTO_UNBLOCKED);
	switchto_inbox_push(me->slot, me->task, SWITCHTO_UNBLOCKED);
	switchto_owner_await(me);
}

/* A visit is short, but the visitor may have lost its CPU. @owner: what the word was. */
static bool is_visited(const struct worker *me, uint32_t owner)
{
	if (owner != owner_word(me->epoch, VISITED))
		return false;
	sched_yield();
	return true;
}

bool switchto_owner_enter_late(struct worker *me, uint32_t owner)
{
	if (owner == owner_word(me->epoch, INSIDE) || me->in_region)
		return false;
	while (is_visited(me, owner)) {
		owner = owner_word(me->epoch, USER);
		if (atomic_compare_exchange_strong(&me->slot->owner, &owner,
						   owner_word(me->epoch, INSIDE)))
			return true;
	}
	switchto_owner_regain(me);
	return true;
}

static bool change(struct worker *me, uint32_t from, uint32_t to)
{
	uint32_t owner;

	window();
	do {
		owner = owner_word(me->epoch, from);
		if (atomic_compare_exchange_strong(&me->slot->owner, &owner,
						   owner_word(me->epoch, to)))
			return true;
	} while (is_visited(me, owner));
	switchto_owner_regain(me);
	/* Paired with has_region(), monitor.c: it sees BLOCKING, or monitor_wake() that it sleeps. */
	atomic_store(&me->slot->owner, owner_word(me->epoch, to));
	return false;
}

bool switchto_owner_block(struct worker *me)
{
	return change(me, USER, BLOCKING);
}

bool switchto_owner_unblock(struct worker *me)
{
	return change(me, BLOCKING, USER);
}
