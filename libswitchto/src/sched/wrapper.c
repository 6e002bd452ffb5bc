// SPDX-License-Identifier: MIT
/*
 * A policy around the policy of the program. It measures, and steals tasks of other slots. A
 * scheduler without these options does not have it, and pays nothing for them.
 *
 * A slot without a ready task takes one out of another slot's queue, if the monitor has seen that
 * tasks wait there. Only a slot whose task computes is visited.
 */
#define _GNU_SOURCE
#include "wrapper.h"
#include "owner.h"

#include <stddef.h>

struct wrapper {
	struct slot *slot;
	_Atomic(struct switchto_entry *) running;
	_Atomic nsec_t
		since; /* when it began; if there is none, the slot has been idle since then */
	_Alignas(max_align_t) char queue[];
};

/* By one thread at a time, and read by others: who sees the sum sees what was stored before. */
static void add(_Atomic uint64_t *count, uint64_t n)
{
	atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + n,
			      memory_order_release);
}

/* --- measures --- */

static void count_ready(struct slot *slot, struct switchto_task *task, nsec_t now)
{
	const uint64_t waited = (uint64_t)(now - task->since);
	unsigned int bucket = 0;

	while (bucket < SWITCHTO_READY_BUCKETS - 1 && waited >> bucket >= 1000)
		bucket++;
	add(&slot->stats.ready[bucket], 1);
	add(&task->stats.ready_ns, waited);
	add(&task->stats.runs, 1);
}

static struct switchto_entry *running(const struct wrapper *wrapper)
{
	return atomic_load_explicit(&wrapper->running, memory_order_relaxed);
}

/* The time until now is the running task's, or idle. */
static void charge(struct wrapper *wrapper, nsec_t now)
{
	struct switchto_task *task = (struct switchto_task *)running(wrapper);
	const nsec_t since = atomic_load_explicit(&wrapper->since, memory_order_relaxed);
	const uint64_t passed = (uint64_t)(now - since);

	atomic_store_explicit(&wrapper->since, CHANGES_NOW, memory_order_relaxed);
	if (task) {
		add(&task->stats.run_ns, passed);
		add(&wrapper->slot->stats.run_ns, passed);
		task->since = now;
	} else if (since) {
		add(&wrapper->slot->stats.idle_ns, passed);
	}
	atomic_store_explicit(&wrapper->running, NULL, memory_order_relaxed);
	/* Then the sums have the run. */
	atomic_store_explicit(&wrapper->since, now, memory_order_release);
}

static void measure_ready(struct wrapper *wrapper, struct switchto_task *task,
			  enum switchto_reason why)
{
	const nsec_t now = switchto_now();

	if (why == SWITCHTO_UNBLOCKED)
		add(&task->stats.blocked_ns, (uint64_t)(now - task->since));
	if (running(wrapper) == &task->entry)
		charge(wrapper, now);
	task->since = now;
}

static void measure_pick(struct wrapper *wrapper, struct switchto_entry *entry)
{
	const nsec_t now = switchto_now();

	charge(wrapper, now);
	atomic_store_explicit(&wrapper->running, entry, memory_order_relaxed);
	if (entry)
		count_ready(wrapper->slot, (struct switchto_task *)entry, now);
}

/* --- steals --- */

/* A power of two: 13 ms, see offer(). */
enum { MOST_REFUSED = 8 };

static struct switchto_entry *steal_from(struct slot *victim, struct slot *thief)
{
	const struct switchto_policy *policy = victim->sched->wrapped;
	const bool inherits = victim->sched->inherit;
	const uint32_t owner = atomic_load(&victim->owner);
	struct switchto_task *task;
	void *queue = ((struct wrapper *)victim->queue)->queue;
	unsigned int refused;

	if (!visit(victim, owner))
		return NULL;
	window();
	/* Nobody is to wait for a lock in a visit: the thief comes again. */
	if (inherits && !inherit_try_lock(victim->sched)) {
		end_visit(victim, owner);
		return NULL;
	}
	if (atomic_load_explicit(&victim->inbox, memory_order_relaxed))
		switchto_inbox_empty(victim);
	/*
	 * So nothing is due in the list of the victim for the task that it loses, as long as the
	 * lock is held.
	 */
	if (inherit_is_due(victim))
		switchto_inherit_apply(victim);
	task = (struct switchto_task *)policy->steal(queue);
	if (task && task->bound) {
		policy->enqueue(queue, &task->entry, SWITCHTO_YIELDED);
		task = NULL;
	}
	/* They are kept there: to be offered again, ever later. */
	if (!task)
		atomic_store(&victim->stealable, false);
	refused = atomic_load_explicit(&victim->refused, memory_order_relaxed);
	atomic_store_explicit(&victim->refused, task ? 0 : refused + (refused < MOST_REFUSED),
			      memory_order_relaxed);
	if (task) {
		change_ready(victim, -1);
		if (traces())
			switchto_trace_event(thief, TRACE_STEAL, task, victim->number);
		/* As if it had been in the thief's queue. */
		change_ready(thief, 1);
		__atomic_store_n(&task->slot, thief, __ATOMIC_RELAXED);
		atomic_fetch_sub_explicit(&victim->tasks, 1, memory_order_relaxed);
		atomic_fetch_add_explicit(&thief->tasks, 1, memory_order_relaxed);
	}
	if (inherits)
		inherit_unlock(victim->sched);
	end_visit(victim, owner);
	return task ? &task->entry : NULL;
}

static struct switchto_entry *steal(struct slot *thief)
{
	struct switchto_sched *sched = thief->sched;
	struct switchto_entry *entry = NULL;

	for (unsigned int i = 1; !entry && i < sched->slots; i++) {
		struct slot *victim = &sched->slot[(thief - sched->slot + i) % sched->slots];

		if (can_steal_from(victim))
			entry = steal_from(victim, thief);
	}
	if (entry)
		add(&thief->stats.steals, 1);
	return entry;
}

/* --- the policy --- */

static void enqueue(void *queue, struct switchto_entry *entry, enum switchto_reason why)
{
	struct wrapper *wrapper = queue;
	struct slot *slot = wrapper->slot;

	if (slot->sched->flags & SWITCHTO_MEASURE)
		measure_ready(wrapper, (struct switchto_task *)entry, why);
	slot->sched->wrapped->enqueue(wrapper->queue, entry, why);
}

static struct switchto_entry *pick(void *queue)
{
	struct wrapper *wrapper = queue;
	struct slot *slot = wrapper->slot;
	struct switchto_entry *entry = slot->sched->wrapped->pick(wrapper->queue);

	if (!entry && slot->sched->flags & SWITCHTO_STEAL)
		entry = steal(slot);
	if (entry)
		add(&slot->stats.runs, 1);
	if (slot->sched->flags & SWITCHTO_MEASURE)
		measure_pick(wrapper, entry);
	return entry;
}

static void change(void *queue, struct switchto_entry *entry, const struct switchto_task_attr *attr)
{
	struct wrapper *wrapper = queue;

	wrapper->slot->sched->wrapped->change(wrapper->queue, entry, attr);
}

static void end(void *queue, const struct switchto_entry *entry)
{
	struct wrapper *wrapper = queue;
	const struct switchto_policy *policy = wrapper->slot->sched->wrapped;

	if (wrapper->slot->sched->flags & SWITCHTO_MEASURE && running(wrapper) == entry)
		charge(wrapper, switchto_now());
	if (policy->end)
		policy->end(wrapper->queue, entry);
}

static int init(void *queue)
{
	struct wrapper *wrapper = queue;
	const struct switchto_policy *policy = wrapper->slot->sched->wrapped;

	return policy->init ? policy->init(wrapper->queue) : 0;
}

static void destroy(void *queue)
{
	struct wrapper *wrapper = queue;
	const struct switchto_policy *policy = wrapper->slot->sched->wrapped;

	if (policy->destroy)
		policy->destroy(wrapper->queue);
}

const struct switchto_policy switchto_wrapper = {
	.name = "wrapper",
	.queue_size = sizeof(struct wrapper),
	.enqueue = enqueue,
	.pick = pick,
	.end = end,
	.change = change,
	.init = init,
	.destroy = destroy,
};

void switchto_wrapper_pause(struct slot *slot)
{
	charge(slot->queue, switchto_now());
}

void switchto_wrapper_begin(struct slot *slot)
{
	((struct wrapper *)slot->queue)->slot = slot;
}

nsec_t switchto_wrapper_since(const struct slot *slot, struct switchto_task **running)
{
	const struct wrapper *wrapper = slot->queue;

	*running = (struct switchto_task *)atomic_load(&wrapper->running);
	return atomic_load(&wrapper->since);
}

void *switchto_wrapper_queue(struct slot *slot)
{
	return ((struct wrapper *)slot->queue)->queue;
}
