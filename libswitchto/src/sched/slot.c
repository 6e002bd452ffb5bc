// SPDX-License-Identifier: MIT
/* The hot path: who owns a slot, who runs next, and how the slot goes from one to the other. */
#define _GNU_SOURCE
#include "dispatch.h"
#include "ring.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Thread_local struct thread *switchto_current __attribute__((tls_model("initial-exec")));

static _Noreturn void broken(const char *what)
{
	fprintf(stderr, "libswitchto-sched: %s: %s, giving up\n", what, strerror(errno));
	abort();
}

/* --- from outside: the inbox --- */

static void inbox_push(struct slot *slot, struct switchto_task *task, enum switchto_reason why)
{
	struct switchto_task *first = atomic_load_explicit(&slot->inbox, memory_order_relaxed);

	task->why = why;
	do
		task->next = first;
	while (!atomic_compare_exchange_weak(&slot->inbox, &first, task));
	window();
	switchto_slot_wake(slot);
}

void switchto_slot_wake(struct slot *slot)
{
	const uint64_t one = 1;
	int error = errno;

	/* Paired with the store in begin_sleep(): one of the two sees the other's. */
	if (atomic_load(&slot->asleep) && atomic_exchange(&slot->asleep, 0) &&
	    write(slot->event, &one, sizeof(one)) < 0)
		broken("write to an eventfd");
	errno = error;
}

/* In the order in which they came. */
__attribute__((noinline)) void switchto_slot_empty_inbox(struct slot *slot)
{
	struct switchto_task *newest = atomic_exchange_explicit(&slot->inbox, NULL,
								memory_order_acquire);
	struct switchto_task *oldest = NULL, *next;

	for (; newest; newest = next) {
		next = newest->next;
		newest->next = oldest;
		oldest = newest;
	}
	for (; oldest; oldest = next) {
		next = oldest->next;
		slot_enqueue(slot, oldest, oldest->why);
	}
}

void switchto_slot_ready(struct slot *inside, struct switchto_task *task, enum switchto_reason why)
{
	struct thread *me = switchto_current;
	struct slot *slot = task->slot;
	struct switchto_sched *sched = slot->sched;

	probe2(ready, task, why);
	if (inside == slot) {
		slot_enqueue(slot, task, why);
		return;
	}
	/* The caller's own slot, but not if this is a handler that interrupted the scheduler. */
	if (!inside && me && me->slot == slot && try_enter(me)) {
		slot_enqueue(slot, task, why);
		leave(me);
		return;
	}
	/*
	 * The task may run and end at once, as the last one, and the scheduler be destroyed before
	 * this has looked whether to wake the poller. Not while one of its own threads is here.
	 */
	if (!me || me->sched != sched)
		atomic_fetch_add(&sched->visitors, 1);
	inbox_push(slot, task, why);
	if (!me || me->sched != sched)
		atomic_fetch_sub(&sched->visitors, 1);
}

int switchto_slot_ready_woken(struct thread *me, struct switchto_task *task, bool inside)
{
	if (is_parents(task->sched))
		return fail(EPERM);
	switchto_slot_ready(inside ? me->slot : NULL, task, SWITCHTO_WOKEN);
	if (inside)
		leave(me);
	return 0;
}

/* --- ownership --- */

bool switchto_slot_await(struct thread *me)
{
	struct slot *slot;

	while (!(slot = atomic_exchange_explicit(&me->granted, NULL, memory_order_acquire))) {
		if (atomic_load_explicit(&me->exits, memory_order_relaxed))
			return false;
		if (unlikely(switchto_wait(NULL) == -1))
			broken("switchto_wait");
	}
	window();
	me->slot = slot;
	return true;
}

bool switchto_slot_switched(struct thread *me, pid_t result)
{
	/* The next one may have taken the slot already, ended with the scheduler, and be gone. */
	if (result == -1 && errno != ESRCH)
		broken("switchto_switch");
	return switchto_slot_await(me);
}

void switchto_slot_regain(struct thread *me)
{
	probe2(ready, me->task, SWITCHTO_UNBLOCKED);
	inbox_push(me->slot, me->task, SWITCHTO_UNBLOCKED);
	switchto_slot_await(me);
}

bool switchto_slot_enter_late(struct thread *me, uint32_t owner)
{
	if (owner == (me->user - USER + INSIDE) || me->in_region)
		return false;
	/* A visit is short, but the visitor may have lost its CPU. */
	while (owner == (me->user - USER + VISITED)) {
		sched_yield();
		owner = me->user;
		if (atomic_compare_exchange_strong(&me->slot->owner, &owner,
						   me->user - USER + INSIDE))
			return true;
	}
	switchto_slot_regain(me);
	return true;
}

/* --- who is next --- */

/* So long a task waits for a thread, before it looks again. */
#define NO_THREAD (NSEC_PER_SEC / 1000)

__attribute__((noinline)) struct thread *switchto_slot_begin_task(struct slot *slot,
								  struct switchto_task *task)
{
	struct thread *thread = slot->spare;

	slot->spare = NULL;
	while (unlikely(!thread) && !(thread = switchto_thread_get(slot->sched))) {
		/* As if it slept; without memory, it is behind the others. */
		task_prepare(task, WAITING);
		if (switchto_timer_add(&slot->timers, task, switchto_now() + NO_THREAD))
			task_wake(slot, task, WAITING, 0, SWITCHTO_YIELDED);
		task = next_task(slot);
		if (task->thread)
			return task->thread;
	}
	task->thread = thread;
	thread->task = task;
	return thread;
}

bool switchto_slot_dispatch(struct thread *me)
{
	struct slot *slot = me->slot;
	struct switchto_task *task = next_task(slot);
	struct thread *next;

	if (unlikely(!task))
		return me != slot->dispatcher &&
		       hand_over(me, slot, slot->dispatcher, me->task != NULL);
	next = task->thread;
	if (unlikely(!next)) {
		/* A thread without a task runs it itself: that saves a switch. */
		if (!me->task && me != slot->dispatcher) {
			task->thread = me;
			me->task = task;
			return true;
		}
		next = switchto_slot_begin_task(slot, task);
	}
	return next == me || hand_over(me, slot, next, me->task != NULL);
}

int switchto_yield(void)
{
	struct thread *me = enter();
	bool cancelled;

	if (!me)
		return -1;
	enqueue_task(me->slot, me->task, SWITCHTO_YIELDED);
	dispatch_task(me);
	cancelled = atomic_load_explicit(&me->task->cancelled, memory_order_relaxed);
	leave(me);
	return unlikely(cancelled) ? fail(ECANCELED) : 0;
}

int switchto_slot_wait_for(struct thread *me, struct mark *mark, struct direction *direction,
			   const struct timespec *deadline)
{
	uintptr_t now;
	int error;

	do
		error = slot_wait_once(me, mark, direction, deadline, &now);
	while (!error && mark_task(now) == me->task);
	return error;
}

/* --- begin and end --- */

int switchto_slot_begin(struct slot *slot, struct switchto_sched *sched)
{
	slot->sched = sched;
	slot->enqueue = sched->policy->enqueue;
	slot->pick = sched->policy->pick;
	slot->is_fifo = sched->policy == &switchto_fifo;
	slot->queue = calloc(1, sched->policy->queue_size +
					(sched->wrapped ? sched->wrapped->queue_size : 0));
	slot->epoll = slot->event = -1;
	atomic_init(&slot->budget, BUDGET);
	slot->full = BUDGET;
	if (!slot->queue)
		return ENOMEM;
	if (sched->wrapped)
		switchto_wrapper_begin(slot);
	return switchto_poll_begin(slot);
}

void switchto_slot_end(struct slot *slot)
{
	switchto_ring_end(slot);
	switchto_poll_end(slot);
	free(slot->timers.heap);
	free(slot->queue);
}
