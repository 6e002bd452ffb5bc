// SPDX-License-Identifier: MIT
#define _GNU_SOURCE
#include "inherit.h"

/* A longer chain passes nothing on, so that it ends even if a policy's inherit never settles. */
enum { LONGEST_CHAIN = 1024 };

/* What @task inherits: the task has begun, and has not ended. */
static struct inherit *of_task(struct switchto_task *task)
{
	if (!task->inherit) {
		task->inherit = &task->worker->inherit;
		task->inherit->task = task;
	}
	return task->inherit;
}

static bool same_attr(const struct switchto_task_attr *a, const struct switchto_task_attr *b)
{
	return a->priority == b->priority && a->weight == b->weight &&
	       a->deadline.tv_sec == b->deadline.tv_sec &&
	       a->deadline.tv_nsec == b->deadline.tv_nsec;
}

/* What it counts as: its own, and what it inherits. */
static struct switchto_task_attr attr_of(const struct inherit *of)
{
	struct switchto_task_attr attr = of->raised ? of->own : of->task->entry.attr;

	for (const struct inherit *one = of->waits; one; one = one->next)
		of->task->sched->inherit(&attr, &one->passes_on);
	return attr;
}

static void unlink_due(struct inherit *of, struct slot *slot)
{
	struct inherit *before = atomic_load_explicit(&slot->due, memory_order_relaxed);

	if (before == of) {
		atomic_store_explicit(&slot->due, of->next_due, memory_order_relaxed);
		return;
	}
	while (before->next_due != of)
		before = before->next_due;
	before->next_due = of->next_due;
}

static void make_due(struct inherit *of)
{
	struct slot *slot = __atomic_load_n(&of->task->slot, __ATOMIC_RELAXED);

	if (of->due)
		return;
	of->due = true;
	of->next_due = atomic_load_explicit(&slot->due, memory_order_relaxed);
	atomic_store_explicit(&slot->due, of, memory_order_relaxed);
}

/* What @of inherits has changed: so may what it passes on, and so on. */
static void update(struct inherit *of)
{
	struct switchto_task_attr attr;

	for (int i = 0; of && i < LONGEST_CHAIN; i++, of = of->holder) {
		make_due(of);
		if (!of->mutex)
			return;
		attr = attr_of(of);
		if (same_attr(&attr, &of->passes_on))
			return;
		of->passes_on = attr;
	}
}

static void link_to(struct inherit *of, struct inherit *holder)
{
	struct inherit **list = holder ? &holder->waits : &of->task->sched->waits;

	of->holder = holder;
	of->next = *list;
	*list = of;
}

/* @of waits no longer. */
static void unlink_wait(struct inherit *of)
{
	struct inherit **at = of->holder ? &of->holder->waits : &of->task->sched->waits;

	while (*at != of)
		at = &(*at)->next;
	*at = of->next;
	of->mutex = NULL;
	update(of->holder);
}

/*
 * Those in *@list that wait for @mutex, or NULL: for any, to @holder. False: there are none; then
 * @holder may have ended, and is not looked at.
 */
static bool move(struct inherit **list, const struct switchto_mutex *mutex,
		 struct switchto_task *holder)
{
	struct inherit *of, *rest = NULL;

	while ((of = *list)) {
		/* It may have just been given the mutex by a thread, and not know yet. */
		if ((mutex && of->mutex != mutex) || (holder && of->task == holder)) {
			list = &of->next;
			continue;
		}
		*list = of->next;
		of->next = rest;
		rest = of;
	}
	if (!rest)
		return false;
	for (; rest; rest = of) {
		of = rest->next;
		link_to(rest, holder ? of_task(holder) : NULL);
	}
	return true;
}

void switchto_inherit_give_up(struct switchto_task *task)
{
	if (task->inherit && task->inherit->mutex)
		unlink_wait(task->inherit);
}

void switchto_inherit_leave(struct switchto_task *task, const struct switchto_mutex *mutex,
			    struct switchto_task *holder)
{
	struct inherit *of = of_task(task);
	bool any;

	switchto_inherit_give_up(task);
	/* As long as others wait, @holder does not unlock without the lock, and is there. */
	any = holder && move(&task->sched->waits, mutex, holder);
	if (move(&of->waits, mutex, holder)) {
		make_due(of);
		any = true;
	}
	if (holder && any)
		update(of_task(holder));
}

/* @holder has @mutex: those of the scheduler's list that wait for it are its own. */
static bool take_waits(struct switchto_task *holder, const struct switchto_mutex *mutex)
{
	if (holder->inherit && holder->inherit->mutex == mutex)
		unlink_wait(holder->inherit);
	return move(&holder->sched->waits, mutex, holder);
}

void switchto_inherit_wait(struct switchto_task *task, const struct switchto_mutex *mutex,
			   struct switchto_task *holder)
{
	struct inherit *of = of_task(task);

	/* A thread has given it the mutex just now. */
	if (holder == task)
		return;
	switchto_inherit_leave(task, mutex, holder);
	if (holder)
		take_waits(holder, mutex);
	of->mutex = mutex;
	of->passes_on = attr_of(of);
	link_to(of, holder ? of_task(holder) : NULL);
	update(of->holder);
}

void switchto_inherit_has(struct switchto_task *task, const struct switchto_mutex *mutex)
{
	switchto_inherit_give_up(task);
	if (take_waits(task, mutex))
		make_due(of_task(task));
}

void switchto_inherit_pass(struct switchto_task *task, const struct switchto_mutex *mutex,
			   struct switchto_task *next)
{
	struct inherit *of = task->inherit;
	bool any;

	if (next)
		switchto_inherit_give_up(next);
	any = move(&task->sched->waits, mutex, next);
	if (of && move(&of->waits, mutex, next)) {
		make_due(of);
		any = true;
	}
	if (next && any)
		make_due(of_task(next));
}

/* Inside of its slot. */
static void set_attr(struct inherit *of)
{
	struct switchto_task *task = of->task;
	struct switchto_task_attr attr;

	if (!of->raised)
		of->own = task->entry.attr;
	of->raised = true;
	attr = attr_of(of);
	of->raised = of->waits != NULL;
	if (!same_attr(&attr, &task->entry.attr))
		task->sched->policy->change(task->slot->queue, &task->entry, &attr);
}

void switchto_inherit_apply(struct slot *slot)
{
	struct inherit *of;

	inherit_lock(slot->sched);
	while ((of = atomic_load_explicit(&slot->due, memory_order_relaxed))) {
		unlink_due(of, slot);
		of->due = false;
		set_attr(of);
	}
	inherit_unlock(slot->sched);
}

void switchto_inherit_change(struct slot *slot, struct switchto_task *task,
			     const struct switchto_task_attr *attr)
{
	struct inherit *of;

	inherit_lock(slot->sched);
	of = task->inherit;
	if (of && of->raised) {
		of->own = *attr;
		set_attr(of);
	} else {
		slot->sched->policy->change(slot->queue, &task->entry, attr);
	}
	if (of && of->mutex)
		update(of);
	inherit_unlock(slot->sched);
}

void switchto_inherit_end(struct switchto_task *task)
{
	struct inherit *of = task->inherit;

	inherit_lock(task->sched);
	switchto_inherit_give_up(task);
	move(&of->waits, NULL, NULL);
	if (of->due)
		unlink_due(of, task->slot);
	if (of->raised)
		set_attr(of);
	*of = (struct inherit){ 0 };
	task->inherit = NULL;
	inherit_unlock(task->sched);
}
