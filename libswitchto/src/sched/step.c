// SPDX-License-Identifier: MIT
#define _GNU_SOURCE
#include "step.h"
#include "dispatch.h"
#include "poll.h"
#include "worker.h"
#include "wrapper.h"

#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>

/* When to come again, if a policy holds tasks back, or the kernel had no memory for an operation. */
enum { AGAIN = 1000000 };

/* --- what a slot picks --- */

/* After at least one task. */
static bool has_lasted(struct steps *steps)
{
	const nsec_t now = switchto_now();

	if (!steps->until)
		steps->until = now + LOOK;
	return now >= steps->until;
}

static struct switchto_entry *pick(void *queue)
{
	struct slot *slot = switchto_current->slot;
	const struct switchto_sched *sched = slot->sched;
	struct steps *steps = slot->steps;
	struct switchto_entry *entry;

	/* A switchto_sched_run() after steps. */
	if (!atomic_load_explicit(&steps->runs, memory_order_relaxed))
		return sched->policy->pick(queue);
	if (!has_lasted(steps)) {
		entry = sched->policy->pick(queue);
		if (entry)
			return entry;
		steps->holds_back = switchto_dispatch_none(slot);
	} else if (sched->flags & SWITCHTO_MEASURE) {
		switchto_wrapper_pause(slot);
	}
	steps->over = true;
	/* As if it had been in the queue. */
	change_ready(slot, 1);
	return &steps->caller.entry;
}

/* --- between steps --- */

/* When the caller is to come again, whatever happens. */
static nsec_t next_time(const struct slot *slot)
{
	const nsec_t next = timer_next(&slot->timers);
	nsec_t again;

	if (!slot->steps->holds_back && !slot->unsubmitted)
		return next;
	again = switchto_now() + AGAIN;
	return again < next ? again : next;
}

/* What the kernel counts of a time that has come is 0 again, if there is a new one. */
static void arm(struct steps *steps, nsec_t time)
{
	const struct itimerspec at = { .it_value = { time / NSEC_PER_SEC, time % NSEC_PER_SEC } };
	const struct itimerspec none = { 0 };

	if (steps->timer == -1 || time == steps->armed)
		return;
	timerfd_settime(steps->timer, TFD_TIMER_ABSTIME, time == NEVER ? &none : &at, NULL);
	steps->armed = time;
}

/*
 * Nobody polls from now on but the program. If only @own tasks count, the caller's, none of those in the
 * inbox and the queue is to run, and no step would take them out: a task that counts pushes later.
 */
static void rest(struct slot *slot, unsigned int own)
{
	struct steps *steps = slot->steps;

	arm(steps, next_time(slot));
	/* Paired with the exchange in switchto_inbox_wake(), as in begin_sleep(). */
	atomic_store(&slot->asleep, 1);
	window();
	if (atomic_load(&slot->sched->tasks) <= own)
		return;
	/* An event even if the descriptor is readable: a loop may poll edge-triggered. */
	if (atomic_load(&slot->inbox) || steps->more || (has_ready(slot) && !steps->holds_back))
		switchto_inbox_wake(slot);
}

void switchto_step_ran(struct slot *slot)
{
	if (!slot->steps)
		return;
	slot->steps->more = slot->steps->holds_back = false;
	rest(slot, 0);
}

/* --- the calls --- */

/* 0 or an error number. */
static int cannot_step(const struct switchto_sched *sched)
{
	if (!sched)
		return EINVAL;
	if (is_parents(sched))
		return EPERM;
	return sched->slots > 1 ? ENOTSUP : 0;
}

/* NULL: there is no memory. */
static struct steps *steps_of(struct slot *slot)
{
	struct steps *steps = slot->steps;

	if (steps)
		return steps;
	steps = calloc(1, sizeof(*steps));
	if (!steps)
		return NULL;
	steps->epoll = steps->timer = -1;
	steps->armed = NEVER;
	/* For known_fd(). */
	__atomic_store_n(&slot->steps, steps, __ATOMIC_RELEASE);
	return steps;
}

static void end_fd(struct steps *steps)
{
	if (steps->timer != -1)
		sure_close(steps->timer);
	if (steps->epoll != -1)
		sure_close(steps->epoll);
	steps->epoll = steps->timer = -1;
}

void switchto_step_end(struct slot *slot)
{
	if (slot->steps)
		end_fd(slot->steps);
	free(slot->steps);
}

/* 0 or an error number. */
static int begin_fd(struct slot *slot)
{
	struct epoll_event event = { .events = EPOLLIN };
	struct steps *steps = steps_of(slot);
	int error;

	if (!steps)
		return ENOMEM;
	if (steps->epoll != -1)
		return 0;
	steps->epoll = epoll_create1(EPOLL_CLOEXEC);
	steps->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (steps->epoll == -1 || steps->timer == -1 ||
	    epoll_ctl(steps->epoll, EPOLL_CTL_ADD, steps->timer, &event) ||
	    switchto_poll_show(slot, slot->epoll)) {
		error = errno;
		end_fd(steps);
		return error;
	}
	rest(slot, 0);
	atomic_store(&steps->shown, true);
	return 0;
}

/* Whatever the scheduler does meanwhile: if @running were set, a step would fail. */
static int known_fd(struct slot *slot)
{
	struct steps *steps = __atomic_load_n(&slot->steps, __ATOMIC_ACQUIRE);

	return steps && atomic_load(&steps->shown) ? steps->epoll : -1;
}

int switchto_sched_fd(struct switchto_sched *sched)
{
	struct slot *slot;
	int error = cannot_step(sched), fd;

	if (error)
		return fail(error);
	slot = &sched->slot[0];
	fd = known_fd(slot);
	if (fd != -1)
		return fd;
	if (atomic_exchange(&sched->running, true))
		return fail(EBUSY);
	error = begin_fd(slot);
	atomic_store(&sched->running, false);
	return error ? fail(error) : slot->steps->epoll;
}

/* 0 or an error number. */
static int begin_step(struct worker *me, struct slot *slot)
{
	struct steps *steps = steps_of(slot);

	if (!steps)
		return ENOMEM;
	/* Its queue is empty: no task has run yet, or all have ended. */
	switchto_trace_set_pick(slot, pick);
	slot->dispatcher = me;
	switchto_owner_begin(me, slot);
	steps->caller.worker = me;
	steps->until = 0;
	steps->over = steps->holds_back = false;
	/* After a run. The destruction of another scheduler is to wait for this step, too. */
	atomic_store(&slot->sched->over, false);
	return 0;
}

/* 0 or an error number. *@left: there are still tasks. */
static int step(struct worker *me, struct slot *slot, bool *left)
{
	struct switchto_sched *sched = me->sched;
	int error = begin_step(me, slot);

	*left = true;
	if (error)
		return error;
	slot->steps->more = switchto_dispatch_look(slot);
	/* It counts as a task: others have to wait for the one that runs. */
	if (atomic_fetch_add(&sched->tasks, 1)) {
		error = switchto_worker_begin_threads(sched);
		if (!error) {
			atomic_store(&slot->steps->runs, true);
			switchto_worker_step(me, &slot->steps->over);
			atomic_store(&slot->steps->runs, false);
		}
	}
	/* Before it counts no longer: the end of a hold is an event from now on. */
	rest(slot, 1);
	/* It is not in the scheduler, whatever its TID is for. */
	atomic_store_explicit(&slot->tid, 0, memory_order_relaxed);
	*left = atomic_fetch_sub(&sched->tasks, 1) > 1;
	return error;
}

int switchto_sched_step(struct switchto_sched *sched)
{
	// cppcheck-suppress unreadVariable
	NO_CANCELLATION;
	struct worker me = { .sched = sched, .tid = switchto_self() };
	int error = cannot_step(sched), place;
	bool left;

	if (error)
		return fail(error);
	if (me.tid == -1)
		return -1;
	error = switchto_worker_begin_run(&me, &place);
	if (error)
		return fail(error);
	error = step(&me, &sched->slot[0], &left);
	switchto_worker_end_run(&me, place);
	return error ? fail(error) : left;
}
