// SPDX-License-Identifier: MIT
#define _GNU_SOURCE
#include "owner.h"

#include <sched.h>

_Thread_local struct worker *switchto_current __attribute__((tls_model("initial-exec")));

/* The only thread of a child is no task: its scheduler's threads are not there. */
static void forked(void)
{
	switchto_current = NULL;
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
	begin(worker, slot);
	window();
	atomic_store_explicit(&worker->granted, slot, memory_order_release);
	switchto_resume(worker->tid);
}

bool switchto_owner_await(struct worker *me)
{
	struct slot *slot;

	while (!(slot = atomic_exchange_explicit(&me->granted, NULL, memory_order_acquire))) {
		if (atomic_load_explicit(&me->exits, memory_order_relaxed))
			return false;
		if (unlikely(switchto_wait(NULL) == -1)) {
			switchto_owner_check_fork(me->sched);
			switchto_broken("switchto_wait");
		}
	}
	window();
	me->slot = slot;
	return true;
}

void switchto_owner_regain(struct worker *me)
{
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
