// SPDX-License-Identifier: MIT
#define _GNU_SOURCE
#include "inherit.h"

/* That of @task, which has begun. */
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

static void link_due(struct inherit *of, struct slot *slot)
{
	of->next_due = atomic_load_explicit(&slot->due, memory_order_relaxed);
	atomic_store_explicit(&slot->due, of, memory_order_relaxed);
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
	if (of->due)
		return;
	of->due = true;
	link_due(of, __atomic_load_n(&of->task->slot, __ATOMIC_RELAXED));
}

/* What @of inherits is another: so is what it passes on, and so on. A circle ends, as nothing changes. */
static void update(struct inherit *of)
{
	struct switchto_task_attr attr;

	for (; of; of = of->holder) {
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

/* Those in *@list that wait for @mutex, to @holder. False: there are none. */
static bool move(struct inherit **list, const struct switchto_mutex *mutex, struct inherit *holder)
{
	struct inherit *of, *rest = NULL;
	bool any = false;

	while ((of = *list)) {
		if (of->mutex != mutex) {
			list = &of->next;
			continue;
		}
		*list = of->next;
		of->next = rest;
		rest = of;
		any = true;
	}
	for (; rest; rest = of) {
		of = rest->next;
		link_to(rest, holder);
	}
	return any;
}

static struct inherit *of_holder(struct switchto_task *holder)
{
	return holder ? of_task(holder) : NULL;
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

	switchto_inherit_give_up(task);
	if (!move(&of->waits, mutex, of_holder(holder)))
		return;
	make_due(of);
	if (holder)
		update(of_task(holder));
}

void switchto_inherit_wait(struct switchto_task *task, const struct switchto_mutex *mutex,
			   struct switchto_task *holder)
{
	struct inherit *of = of_task(task);

	/* A thread has given it the mutex just now. */
	if (holder == task)
		return;
	switchto_inherit_leave(task, mutex, holder);
	of->mutex = mutex;
	of->passes_on = attr_of(of);
	link_to(of, of_holder(holder));
	update(of->holder);
}

void switchto_inherit_has(struct switchto_task *task, const struct switchto_mutex *mutex)
{
	switchto_inherit_give_up(task);
	if (task->sched->waits && move(&task->sched->waits, mutex, of_task(task)))
		make_due(of_task(task));
}

void switchto_inherit_pass(struct switchto_task *task, const struct switchto_mutex *mutex,
			   struct switchto_task *next)
{
	struct inherit *of = task->inherit, *to = of_holder(next);
	bool any;

	if (to)
		switchto_inherit_give_up(next);
	any = move(&task->sched->waits, mutex, to);
	if (of && move(&of->waits, mutex, to)) {
		make_due(of);
		any = true;
	}
	if (to && any)
		make_due(to);
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

/* With the lock: those who make it due find the slot whose list it is in. */
void switchto_inherit_move(struct switchto_task *task, struct slot *slot)
{
	inherit_lock(slot->sched);
	if (task->inherit && task->inherit->due) {
		unlink_due(task->inherit, task->slot);
		link_due(task->inherit, slot);
	}
	__atomic_store_n(&task->slot, slot, __ATOMIC_RELAXED);
	inherit_unlock(slot->sched);
}

void switchto_inherit_end(struct switchto_task *task)
{
	struct inherit *of = task->inherit;

	inherit_lock(task->sched);
	if (of->due)
		unlink_due(of, task->slot);
	*of = (struct inherit){ 0 };
	task->inherit = NULL;
	inherit_unlock(task->sched);
}
