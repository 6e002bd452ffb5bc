// SPDX-License-Identifier: MIT
#define _GNU_SOURCE
#include "dispatch.h"
#include "poll.h"
#include "ring.h"

/* Value of slot->spare if there is a limit of threads: an idle thread is for any slot then. */
#define NO_SPARE ((struct worker *)1)

static inline bool is_spare(const struct worker *spare)
{
	return (uintptr_t)spare > (uintptr_t)NO_SPARE;
}

void switchto_dispatch_begin_slot(struct slot *slot)
{
	if (slot->sched->max_threads)
		slot->spare = NO_SPARE;
}

/* --- what is to be done before a task is picked --- */

/* When to submit again what the kernel had no memory for. */
enum { RETRY = 1000000 };

/* When to look again at a slot that has tasks, but is busy with them. */
enum { STEAL_AGAIN = 50000 };

/* When to ask a policy again that holds tasks back. */
enum { PICK_AGAIN = 1000000 };

/* The tasks whose time has come. */
static ALWAYS_INLINE void expire(struct slot *slot)
{
	struct timers *timers = &slot->timers;
	nsec_t now = switchto_now();

	while (timers->count && timers->heap[0]->deadline <= now) {
		struct switchto_task *task = timers->heap[0];

		switchto_timer_remove(timers, task);
		task_wake(slot, task, PARKED | WAITING, ETIMEDOUT, SWITCHTO_WOKEN);
	}
}

/* Has @slot a worker that it does not need? Its poller may be one. */
static __attribute__((noinline)) bool has_worker_for_others(const struct slot *slot)
{
	const struct worker *me = switchto_current;

	return is_spare(slot->spare) || (!me->task && me != slot->dispatcher);
}

/* @timeout, or less if there is something to do. @steals: others may have tasks for @slot. */
static ALWAYS_INLINE nsec_t begin_sleep(struct slot *slot, nsec_t timeout, bool steals)
{
	/* Paired with the exchange in switchto_inbox_wake(). */
	atomic_store(&slot->asleep, 1);
	window();
	if (unlikely(atomic_load(&slot->inbox)) || unlikely(!atomic_load(&slot->sched->tasks)) ||
	    unlikely(atomic_load(&slot->sched->wants_worker) && has_worker_for_others(slot)))
		return 0;
	/* It has just tried in vain. */
	if (steals && switchto_inbox_can_steal(slot))
		return STEAL_AGAIN < timeout ? STEAL_AGAIN : timeout;
	probe2(poll, slot, timeout);
	return timeout;
}

/* The policy has tasks, and gave none. */
static inline bool holds_back(struct slot *slot)
{
	return atomic_load_explicit(&slot->ready, memory_order_relaxed) != 0;
}

__attribute__((noinline)) bool switchto_dispatch_none(struct slot *slot)
{
	const bool holds = holds_back(slot);

	if (holds && slot->sched->conserving)
		switchto_misused("a policy that is conserving has tasks, and its pick gave none");
	return holds;
}

/* With so many events, the budget may run out before the next poll. */
enum { CROWD = 8 };

/*
 * There were @n events: their tasks are to run before the next look, unless they take long. If the
 * slot did not know when it found a crowd, it would look too soon, and find what is in its queue.
 */
static ALWAYS_INLINE void more_budget(struct slot *slot, long n)
{
	const int more = (int)n * PICK_COSTS;

	if (unlikely(n <= 0))
		return;
	atomic_store_explicit(&slot->budget, slot->full + (more < slot->full ? more : slot->full),
			      memory_order_relaxed);
	if (n >= CROWD && more >= slot->full) {
		slot->checked = slot->polled = switchto_now();
		slot->known_polls = atomic_load_explicit(&slot->polls, memory_order_relaxed);
	}
}

/* Looks for events, and waits for one at most until @deadline: inside. */
static __attribute__((noinline)) void poll_until(struct slot *slot, nsec_t deadline)
{
	const bool steals = slot->sched->flags & SWITCHTO_STEAL;
	nsec_t timeout = deadline;

	if (deadline && deadline != NEVER) {
		timeout = deadline - switchto_now();
		if (timeout < 0)
			timeout = 0;
	}
	if (unlikely(slot->unsubmitted)) {
		switchto_ring_submit(slot);
		if (!slot->unsubmitted)
			timeout = 0;
		else if (timeout > RETRY)
			timeout = RETRY;
	}
	if (unlikely(holds_back(slot)) && timeout > PICK_AGAIN)
		timeout = PICK_AGAIN;
	if (timeout) {
		timeout = begin_sleep(slot, timeout, steals);
		window();
	}
	more_budget(slot, switchto_poll_events(slot, timeout, !deadline));
	if (slot->timers.count)
		expire(slot);
}

/* The same in line, where there is nothing but descriptors to wait for. */
static ALWAYS_INLINE void poll_events(struct slot *slot)
{
	nsec_t timeout;

	if (unlikely(slot->timers.count) || unlikely(slot->unsubmitted) ||
	    unlikely(holds_back(slot)) || unlikely(slot->sched->flags & SWITCHTO_STEAL)) {
		poll_until(slot, timer_next(&slot->timers));
		return;
	}
	timeout = begin_sleep(slot, NEVER, false);
	window();
	more_budget(slot, switchto_poll_events(slot, timeout, false));
}

/* --- who is next --- */

/* After the inbox. */
static ALWAYS_INLINE struct switchto_entry *pick(struct slot *slot)
{
	struct switchto_entry *entry;

	if (unlikely(atomic_load_explicit(&slot->inbox, memory_order_relaxed)))
		switchto_inbox_empty(slot);
	if (likely(slot->is_fifo))
		return fifo_pick(slot->queue);
	if (inherit_is_due(slot))
		switchto_inherit_apply(slot);
	entry = slot->pick(slot->queue);
	if (entry)
		change_ready(slot, -1);
	else if (unlikely(holds_back(slot)))
		switchto_dispatch_none(slot);
	return entry;
}

static ALWAYS_INLINE void count_poll(struct slot *slot)
{
	const unsigned int polls = atomic_load_explicit(&slot->polls, memory_order_relaxed);

	atomic_store_explicit(&slot->budget, slot->full, memory_order_relaxed);
	atomic_store_explicit(&slot->polls, polls + 1, memory_order_relaxed);
}

/* @task is held no longer: it has a worker, or tries again. Inside of @slot. */
static inline void ready_held(struct slot *slot, struct switchto_task *task)
{
	if (task)
		switchto_wake_ready(slot, task, SWITCHTO_NEW);
}

void switchto_dispatch_idle(struct worker *me, struct slot *slot)
{
	ready_held(slot, switchto_pool_idle(me));
}

/* The spare worker is for any slot. */
static void give_spare(struct slot *slot)
{
	if (!is_spare(slot->spare))
		return;
	ready_held(slot, switchto_pool_idle(slot->spare));
	slot->spare = NULL;
}

/* Others need workers. Does the owner of @slot, the caller, have nothing to do but to wait here? */
static bool is_needed_elsewhere(struct slot *slot)
{
	const struct worker *me = switchto_current;

	give_spare(slot);
	return !me->task && me != slot->dispatcher;
}

/* There were events, but for no task. NULL: there are no tasks left, or the caller is needed. */
static __attribute__((noinline)) struct switchto_entry *poll_again(struct slot *slot)
{
	struct switchto_entry *entry = NULL;

	while (!entry && atomic_load(&slot->sched->tasks)) {
		if (unlikely(atomic_load(&slot->sched->wants_worker)) && is_needed_elsewhere(slot))
			break;
		count_poll(slot);
		poll_until(slot, timer_next(&slot->timers));
		entry = pick(slot);
	}
	return entry;
}

/*
 * The budget that lasts for a quarter of LOOK, if @full lasted for @passed. At most twice @full, as the
 * next jobs may take longer.
 */
static int next_budget(int full, nsec_t passed)
{
	const nsec_t next = full * (nsec_t)(LOOK / 4) / (passed > 0 ? passed : 1);
	const int most = full < BUDGET / 2 ? 2 * full : BUDGET;

	return next < 1 ? 1 : next > most ? most : (int)next;
}

/* The budget of @slot has run out, and is full again. Is it time to poll? Inside. */
static bool is_due(struct slot *slot)
{
	const int left = atomic_load_explicit(&slot->budget, memory_order_relaxed);
	const unsigned int polls = atomic_load_explicit(&slot->polls, memory_order_relaxed);
	const bool forced = left <= FORCED / 2;
	const nsec_t now = switchto_now();
	nsec_t passed = now - slot->checked;

	/* It has polled since it last looked at the clock, who knows when, and may have slept. */
	if (slot->known_polls != polls) {
		slot->polled = slot->checked;
		passed = 0;
	}
	slot->full = forced ? 1 : next_budget(slot->full, passed);
	slot->known_polls = polls;
	slot->checked = now;
	atomic_store_explicit(&slot->budget, slot->full, memory_order_relaxed);
	return forced || now - slot->polled >= LOOK;
}

/* Looks for events, with tasks that are ready. Inside. */
static void look(struct slot *slot)
{
	count_poll(slot);
	poll_until(slot, 0);
	slot->known_polls = atomic_load_explicit(&slot->polls, memory_order_relaxed);
	slot->polled = slot->checked;
}

bool switchto_dispatch_look(struct slot *slot)
{
	long n;

	count_poll(slot);
	if (unlikely(slot->unsubmitted))
		switchto_ring_submit(slot);
	n = switchto_poll_events(slot, 0, false);
	more_budget(slot, n);
	if (slot->timers.count)
		expire(slot);
	return n < 0 || n == EVENTS;
}

/* Of a slot that is no FIFO, or has something in its inbox, or has no budget left. */
static __attribute__((noinline)) struct switchto_entry *pick_next(struct slot *slot)
{
	const int left = atomic_load_explicit(&slot->budget, memory_order_relaxed) - PICK_COSTS;

	atomic_store_explicit(&slot->budget, left, memory_order_relaxed);
	if (unlikely(left < 0) && is_due(slot))
		look(slot);
	return pick(slot);
}

__attribute__((noinline)) long switchto_dispatch_give_way(struct worker *me, long result)
{
	struct slot *slot;
	bool waited;

	/* In a blocking region: what is left is for the owner, who may be another one by now. */
	if (!enter_task(me))
		return result;
	slot = me->slot;
	/* If it has waited since, or has just got the slot back, others have had their turn. */
	waited = me->ran_out != me->epoch;
	me->ran_out = me->epoch;
	if (atomic_load_explicit(&slot->budget, memory_order_relaxed) < 0 && is_due(slot)) {
		look(slot);
		/* Others may want a mutex that it has: it may unlock that first, but not much later. */
		if (!waited && (!me->task->held || me->put_off == me->epoch))
			yield_inside(me);
		else
			me->put_off = me->epoch;
	}
	leave(me);
	return result;
}

__attribute__((noinline)) int switchto_dispatch_fail(int error)
{
	spent_by(switchto_current);
	return fail(error);
}

/* @entry, or if that is NULL, what a poll makes ready. */
static struct switchto_task *next_or_polled(struct slot *slot, struct switchto_entry *entry)
{
	if (likely(!entry)) {
		count_poll(slot);
		poll_events(slot);
		entry = pick(slot);
		if (unlikely(!entry))
			entry = poll_again(slot);
	}
	if (likely(entry))
		probe2(run, slot, entry);
	return (struct switchto_task *)entry;
}

/* next_task() in a slot whose trace has the policy in line. */
static __attribute__((noinline)) struct switchto_task *next_traced(struct slot *slot)
{
	const int left = atomic_load_explicit(&slot->budget, memory_order_relaxed) - PICK_COSTS;
	struct switchto_entry *entry;

	if (unlikely(left < 0) ||
	    unlikely(atomic_load_explicit(&slot->inbox, memory_order_relaxed)))
		return next_or_polled(slot, pick_next(slot));
	atomic_store_explicit(&slot->budget, left, memory_order_relaxed);
	entry = fifo_pick(slot->queue);
	if (unlikely(!entry))
		return next_or_polled(slot, NULL);
	change_ready(slot, -1);
	probe2(run, slot, entry);
	return switchto_trace_run(slot, (struct switchto_task *)entry);
}

__attribute__((noinline)) struct switchto_task *switchto_dispatch_next(struct slot *slot, bool none)
{
	if (unlikely(slot->traced.is_fifo) && !none)
		return next_traced(slot);
	return next_or_polled(slot, none ? NULL : pick_next(slot));
}

/* --- the hand-over --- */

/* So long a task waits for a worker, before it looks again. */
#define NO_WORKER (NSEC_PER_SEC / 1000)

static struct worker *begin_with(struct worker *worker, struct slot *slot,
				 struct switchto_task *task)
{
	if (unlikely(slot->waited) || is_short_of_workers(slot->sched)) {
		slot->waited = false;
		atomic_fetch_and(&slot->sched->wants_worker, ~(unsigned int)TOO_FEW);
	}
	task->worker = worker;
	worker->task = task;
	return worker;
}

__attribute__((noinline)) struct worker *switchto_dispatch_begin(struct slot *slot,
								 struct switchto_task *task)
{
	struct worker *worker = NULL;

	/* Where workers are few, the slots take turns. */
	if (is_short_of_workers(slot->sched) && !slot->waited) {
		give_spare(slot);
	} else {
		worker = slot->spare;
		if (unlikely(!is_spare(worker)))
			worker = switchto_pool_take(slot->sched);
		else
			slot->spare = NULL;
	}
	if (likely(worker) && likely(!worker->gives_back))
		return begin_with(worker, slot, task);
	slot->begins = task;
	task->worker = worker;
	return slot->dispatcher;
}

/* The spare worker of a slot whose task computes, or NULL. Wakes the slots that sleep. */
static struct worker *take_from_others(struct slot *slot)
{
	struct switchto_sched *sched = slot->sched;
	struct worker *worker = NULL;

	for (unsigned int i = 0; i < sched->slots && !worker; i++) {
		struct slot *other = &sched->slot[i];
		const uint32_t owner = atomic_load(&other->owner);

		if (other == slot)
			continue;
		if (visit(other, owner)) {
			if (is_spare(other->spare)) {
				worker = other->spare;
				other->spare = NULL;
			}
			end_visit(other, owner);
		} else {
			switchto_inbox_wake(other);
		}
	}
	return worker;
}

/* A worker for @task: a new one, or an idle one. NULL: @task is held, or with *@fails, there is none. */
static struct worker *make_worker(struct slot *slot, struct switchto_task *task, bool *fails)
{
	struct switchto_sched *sched = slot->sched;
	struct worker *worker;
	bool holds = false;

	do {
		worker = switchto_pool_create(sched, RUNS_TASKS);
		*fails = !worker && errno != EBUSY;
		if (worker || *fails)
			return worker;
		worker = switchto_pool_hold(sched, task, &holds);
	} while (!worker && !holds);
	if (holds && unlikely(slot->lane))
		switchto_trace_sleeps(task, ON_WORKER, NULL);
	/* Those that sleep may have a worker for it. */
	for (unsigned int i = 0; holds && i < sched->slots; i++)
		if (&sched->slot[i] != slot)
			switchto_inbox_wake(&sched->slot[i]);
	return worker;
}

bool switchto_dispatch_make(struct worker *me)
{
	struct slot *slot = me->slot;
	struct switchto_task *task = slot->begins;
	bool fails = false;
	struct worker *worker = task->worker ? task->worker : make_worker(slot, task, &fails);

	slot->begins = NULL;
	if (fails) {
		/* This one may have been counted, when another one was held for that. */
		ready_held(slot, switchto_pool_let_go(slot->sched));
		atomic_fetch_or(&slot->sched->wants_worker, TOO_FEW);
		worker = take_from_others(slot);
	} else if (!worker) {
		return true;
	}
	if (worker) {
		/*
		 * A place can be lent only to a thread that waits in a swap, as a new one does not
		 * yet. A thread that has the slot without the loan passes none on: then the kernel
		 * would tell of nobody.
		 */
		if (worker->gives_back && !hand_over(me, slot, worker, false))
			return false;
		return hand_over(me, slot, begin_with(worker, slot, task), false);
	}
	slot->waited = true;
	/* As if it slept; without memory, it is behind the others. */
	prepare(task, WAITING);
	if (unlikely(slot->lane))
		switchto_trace_sleeps(task, ON_WORKER, NULL);
	if (switchto_timer_add(&slot->timers, task, switchto_now() + NO_WORKER))
		task_wake(slot, task, WAITING, 0, SWITCHTO_YIELDED);
	return true;
}

bool switchto_dispatch_switched(struct worker *me, pid_t result)
{
	if (result < 0) {
		switchto_owner_check_fork(me->sched);
		if (errno == EINPROGRESS) {
			if (switchto_owner_reclaim(me, -result))
				return true;
		} else if (errno != ESRCH) {
			/* The next one may have taken the slot, ended with the scheduler, and be gone. */
			switchto_broken("switchto_switch");
		}
	}
	return switchto_owner_await(me);
}

bool switchto_dispatch(struct worker *me)
{
	struct slot *slot = me->slot;
	struct switchto_task *task = next_task(slot);
	struct worker *next;

	if (unlikely(!task))
		return me != slot->dispatcher &&
		       hand_over(me, slot, slot->dispatcher, me->task != NULL);
	next = task->worker;
	if (unlikely(!next)) {
		/* A worker without a task runs it itself: that saves a switch. */
		if (!me->task && me != slot->dispatcher) {
			task->worker = me;
			me->task = task;
			return true;
		}
		next = switchto_dispatch_begin(slot, task);
	}
	return next == me || hand_over(me, slot, next, me->task != NULL);
}
