// SPDX-License-Identifier: MIT
/* Schedulers: how they begin, run, stop and end. */
#define _GNU_SOURCE
#include "dispatch.h"
#include "mark.h"
#include "monitor.h"
#include "poll.h"
#include "ring.h"
#include "stats.h"
#include "step.h"
#include "worker.h"
#include "wrapper.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The default. */
enum { SLICE = 10000000 };

/* --- slots --- */

/*
 * A slot's ring, if there are to be any. The first slot decides: there may be no io_uring here, or
 * a sysctl or a seccomp filter may forbid it. 0 or an error number.
 */
static int begin_ring(struct switchto_sched *sched, struct slot *slot)
{
	const char *engine = secure_getenv("SWITCHTO_ENGINE");
	int error;

	if (engine && strcmp(engine, "epoll") == 0)
		return 0;
	if (engine && strcmp(engine, "io_uring") != 0)
		return ENOTSUP;
	if (slot != sched->slot && !sched->has_rings)
		return 0;
	error = switchto_ring_begin(slot);
	if (!error)
		sched->has_rings = true;
	if (!engine && !sched->has_rings && error != EMFILE && error != ENFILE)
		return 0;
	return error;
}

/* 0 or an error number. */
static int begin_slot(struct slot *slot, struct switchto_sched *sched)
{
	size_t size;
	int error;

	slot->sched = sched;
	slot->enqueue = sched->policy->enqueue;
	slot->pick = sched->policy->pick;
	slot->is_fifo = sched->policy == &switchto_fifo;
	switchto_trace_begin_slot(slot);
	if (!__builtin_add_overflow(sched->policy->queue_size,
				    sched->wrapped ? sched->wrapped->queue_size : 0, &size))
		slot->queue = calloc(1, size);
	switchto_dispatch_begin_slot(slot);
	slot->epoll = slot->event = -1;
	pthread_mutex_init(&slot->adds, NULL);
	/* Nobody owns it, and nobody may take it. */
	atomic_init(&slot->owner, owner_word(0, INSIDE));
	atomic_init(&slot->budget, BUDGET);
	slot->full = BUDGET;
	atomic_init(&slot->turn, (unsigned int)(slot - sched->slot));
	if (!slot->queue)
		return ENOMEM;
	if (sched->wrapped)
		switchto_wrapper_begin(slot);
	error = sched->policy->init ? sched->policy->init(slot->queue) : 0;
	if (error)
		return error;
	slot->has_policy = true;
	error = switchto_poll_begin(slot);
	return error ? error : begin_ring(sched, slot);
}

static void end_slot(struct slot *slot)
{
	switchto_inbox_end(slot);
	switchto_step_end(slot);
	switchto_ring_end(slot);
	switchto_poll_end(slot);
	free(slot->timers.heap);
	if (slot->has_policy && slot->sched->policy->destroy)
		slot->sched->policy->destroy(slot->queue);
	free(slot->queue);
}

/* Those that can run, in this process. */
static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static struct switchto_sched *all;

/* To a thread of any priority: it is to go on a bit. */
static void give_time(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 50000 }, NULL);
}

/* May the owner of @slot, which was @owner, still take events that it had then? */
static bool takes_events(struct slot *slot, uint32_t owner)
{
	return state_of(owner) == INSIDE && atomic_load(&slot->owner) == owner &&
	       !atomic_load(&slot->asleep) && !atomic_load(&slot->sched->over) &&
	       atomic_load(&slot->sched->running);
}

/*
 * Another scheduler may have an event in hand for a descriptor that @sched polls since, or that a task
 * of @sched has just found with it. It has taken that task out of the mark, and is to look whether the
 * task still sleeps. The task is over, but its memory must stay until then.
 */
static void leave_others(struct switchto_sched *sched)
{
	struct switchto_sched **at = &all;

	pthread_mutex_lock(&all_lock);
	while (*at && *at != sched)
		at = &(*at)->next;
	if (*at)
		*at = sched->next;
	for (struct switchto_sched *other = all; other; other = other->next) {
		/* It may look at a task of @sched that had a mutex. */
		inherit_lock(other);
		inherit_unlock(other);
		for (unsigned int i = 0; i < other->slots; i++) {
			const uint32_t owner = atomic_load(&other->slot[i].owner);

			while (takes_events(&other->slot[i], owner))
				give_time();
		}
	}
	pthread_mutex_unlock(&all_lock);
}

void switchto_sched_each(void (*fn)(struct switchto_sched *sched))
{
	pthread_mutex_lock(&all_lock);
	for (struct switchto_sched *sched = all; sched; sched = sched->next)
		fn(sched);
	pthread_mutex_unlock(&all_lock);
}

static void free_sched(struct switchto_sched *sched)
{
	switchto_mark_leave(sched);
	switchto_stats_end(sched);
	for (unsigned int i = 0; i < sched->slots; i++)
		end_slot(&sched->slot[i]);
	switchto_pool_free_tasks(sched);
	pthread_mutex_destroy(&sched->lock);
	pthread_mutex_destroy(&sched->passing);
	free(sched);
}

/* --- forks and exits --- */

/* After forked() of owner.c. */
static void forked(void)
{
	switchto_mark_forked();
	pthread_mutex_init(&all_lock, NULL);
	all = NULL;
}

static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, forked);
}

/* --- the calls --- */

/* Can there be threads with such a stack? Also of the C library's own, and for thread-local storage. */
static int try_stack(struct switchto_sched *sched)
{
	pthread_attr_t attr;
	int error = pthread_attr_init(&attr);

	if (!error) {
		error = sched->stack_size ? pthread_attr_setstacksize(&attr, sched->stack_size) : 0;
		pthread_attr_destroy(&attr);
	}
	if (error)
		return error;
	if (!switchto_pool_create(sched, RUNS_TASKS))
		return errno;
	/* The first run makes its own. */
	switchto_pool_end(sched);
	return 0;
}

static bool is_possible(const struct switchto_sched_options *options)
{
	return options->slots <= 1024 &&
	       !(options->flags & ~(unsigned int)(SWITCHTO_STEAL | SWITCHTO_MEASURE)) &&
	       (!options->place || options->place == SWITCHTO_NO_PLACE) &&
	       options->slice >= SWITCHTO_NO_SLICE && options->guard_size >= SWITCHTO_NO_GUARD &&
	       options->policy->enqueue && options->policy->pick &&
	       (!(options->flags & SWITCHTO_STEAL) || options->policy->steal);
}

/* The variable can only turn it off: a program that chooses to be free has its reasons. */
static bool keeps_together(const struct switchto_sched_options *options)
{
	const char *place = secure_getenv("SWITCHTO_PLACE");

	return !options->place && (!place || strcmp(place, "free") != 0);
}

/* Whether the kernel is to tell of tasks that block: if it can. 0 or an error number. */
static int choose_block(struct switchto_sched *sched)
{
	const char *block = secure_getenv("SWITCHTO_BLOCK");

	if (block && strcmp(block, "monitor") == 0)
		return 0;
	if (block && strcmp(block, "kernel") != 0)
		return ENOTSUP;
	/* A word that is nowhere: the caller keeps what it has chosen. */
	// NOLINTNEXTLINE(performance-no-int-to-ptr): it is not to be an address
	sched->lends = switchto_lend(SWITCHTO_TAKES, (const void *)-4L) && errno == EFAULT;
	return sched->lends || !block ? 0 : ENOSYS;
}

int switchto_sched_create(struct switchto_sched **sched_out,
			  const struct switchto_sched_options *options)
{
	// cppcheck-suppress unreadVariable
	NO_CANCELLATION;
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct switchto_sched_options chosen = { 0 };
	pthread_mutexattr_t recursive;
	const bool offers = switchto_stats_wanted();
	struct switchto_sched *sched;
	size_t size;
	int error = 0;

	if (!sched_out)
		return fail(EINVAL);
	if (options) {
		if (options->size < sizeof(size_t) || options->size > sizeof(chosen))
			return fail(EINVAL);
		memcpy(&chosen, options, options->size);
	}
	if (!switchto_backend())
		return -1;
	if (!chosen.slots) {
		int before = switchto_place(SWITCHTO_FREE);

		chosen.slots = switchto_cpus();
		switchto_place(before);
	}
	if (!chosen.policy)
		chosen.policy = &switchto_fifo;
	if (!is_possible(&chosen))
		return fail(EINVAL);
	pthread_once(&once, watch_forks);
	switchto_trace_by_variable();
	if (offers)
		chosen.flags |= SWITCHTO_MEASURE;

	size = sizeof(*sched) + chosen.slots * sizeof(struct slot);
	sched = aligned_alloc(64, (size + 63) / 64 * 64);
	if (!sched)
		return fail(ENOMEM);
	memset(sched, 0, size);
	sched->policy = chosen.flags ? &switchto_wrapper : chosen.policy;
	sched->wrapped = chosen.flags ? chosen.policy : NULL;
	sched->inherit = chosen.policy->change ? chosen.policy->inherit : NULL;
	sched->conserving = chosen.policy->conserving;
	sched->flags = chosen.flags;
	sched->main = switchto_worker_main;
	sched->report = chosen.report;
	sched->stack_size = chosen.stack_size;
	sched->guard_size = chosen.guard_size;
	sched->max_threads = chosen.max_threads;
	sched->idle_threads = chosen.idle_threads;
	if (chosen.name)
		strncpy(sched->name, chosen.name, sizeof(sched->name) - 1);
	sched->slice = chosen.slice < 0 ? NEVER : chosen.slice ? chosen.slice : SLICE;
	sched->generation = switchto_generation;
	sched->together = keeps_together(&chosen);
	error = choose_block(sched);
	switchto_worker_take_model(sched);
	pthread_mutex_init(&sched->lock, NULL);
	pthread_mutexattr_init(&recursive);
	pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
	pthread_mutex_init(&sched->passing, &recursive);
	pthread_mutexattr_destroy(&recursive);
	while (!error && sched->slots < chosen.slots) {
		error = begin_slot(&sched->slot[sched->slots++], sched);
	}
	if (!error && (sched->stack_size || sched->guard_size))
		error = try_stack(sched);
	if (error) {
		free_sched(sched);
		return fail(error);
	}
	if (offers)
		switchto_stats_begin(sched);
	pthread_mutex_lock(&all_lock);
	sched->next = all;
	all = sched;
	switchto_trace_begin_sched(sched);
	pthread_mutex_unlock(&all_lock);
	*sched_out = sched;
	return 0;
}

unsigned int switchto_sched_slots(const struct switchto_sched *sched)
{
	if (!sched) {
		errno = EINVAL;
		return 0;
	}
	return sched->slots;
}

const char *switchto_sched_engine(const struct switchto_sched *sched)
{
	if (!sched) {
		errno = EINVAL;
		return NULL;
	}
	return sched->has_rings ? "io_uring" : "epoll";
}

/* 0 or an error number. */
static int bad_sched(const struct switchto_sched *sched)
{
	return !sched ? EINVAL : is_parents(sched) ? EPERM : 0;
}

void *switchto_policy_queue(struct switchto_sched *sched, unsigned int slot)
{
	const int error = bad_sched(sched);

	if (error || slot >= sched->slots) {
		errno = error ? error : EINVAL;
		return NULL;
	}
	return sched->wrapped ? switchto_wrapper_queue(&sched->slot[slot]) :
				sched->slot[slot].queue;
}

/* A slot for each dispatcher, and then the caller as that of the first. 0 or an error number. */
static int run_slots(struct switchto_sched *sched, struct worker *me)
{
	uint32_t left;
	const int error = switchto_worker_begin_threads(sched);

	if (error)
		return error;
	for (unsigned int i = 1; i < sched->slots; i++) {
		struct slot *slot = &sched->slot[i];

		if (!slot->dispatcher)
			slot->dispatcher = switchto_pool_create(sched, (int)i);
		if (!slot->dispatcher)
			return errno;
	}
	atomic_store(&sched->at_work, sched->slots - 1);
	pthread_mutex_lock(&sched->lock);
	atomic_store(&sched->over, false);
	pthread_mutex_unlock(&sched->lock);
	for (unsigned int i = 1; i < sched->slots; i++)
		switchto_owner_grant(sched->slot[i].dispatcher, &sched->slot[i]);

	switchto_worker_dispatch(me, &sched->slot[0]);
	while ((left = atomic_load(&sched->at_work))) {
		switchto_owner_check_fork(sched);
		switchto_futex_wait(&sched->at_work, left, NEVER);
	}
	return 0;
}

int switchto_sched_run(struct switchto_sched *sched)
{
	// cppcheck-suppress unreadVariable
	NO_CANCELLATION;
	struct worker me = { .sched = sched, .tid = switchto_self() };
	int error, place;

	if (!sched)
		return fail(EINVAL);
	if (me.tid == -1)
		return -1;
	error = switchto_worker_begin_run(&me, &place);
	if (error)
		return fail(error);
	/* Another thread may have spawned a task when the slots had found none. */
	while (!error && atomic_load(&sched->tasks))
		error = run_slots(sched, &me);
	switchto_step_ran(&sched->slot[0]);
	switchto_monitor_end(sched);
	switchto_worker_end_run(&me, place);
	return error ? fail(error) : 0;
}

int switchto_sched_stop(struct switchto_sched *sched, int flags)
{
	if (!sched || flags & ~SWITCHTO_STOP_CANCEL)
		return fail(EINVAL);
	if (is_parents(sched))
		return fail(EPERM);
	if (flags & SWITCHTO_STOP_CANCEL)
		atomic_store(&sched->cancels, true);
	atomic_store(&sched->stopping, true);
	if (flags & SWITCHTO_STOP_CANCEL) {
		pthread_mutex_lock(&sched->lock);
		for (struct switchto_task *task = sched->all_tasks; task; task = task->next_of_all)
			if (atomic_load(&task->state) != FINISHED)
				switchto_wake_cancel(task);
		pthread_mutex_unlock(&sched->lock);
	}
	return 0;
}

int switchto_sched_restart(struct switchto_sched *sched)
{
	const int error = bad_sched(sched);

	if (error)
		return fail(error);
	if (atomic_load(&sched->running))
		return switchto_dispatch_fail(EBUSY);
	atomic_store(&sched->cancels, false);
	atomic_store(&sched->stopping, false);
	return 0;
}

int switchto_sched_hold(struct switchto_sched *sched)
{
	const int error = bad_sched(sched);

	if (error)
		return fail(error);
	/* As a task that another thread spawns: dispatchers may be about to end just now. */
	pthread_mutex_lock(&sched->lock);
	atomic_fetch_add(&sched->holds, 1);
	atomic_fetch_add(&sched->tasks, 1);
	if (sched->waiting)
		switchto_worker_next_round(sched);
	pthread_mutex_unlock(&sched->lock);
	return spent_by(switchto_current);
}

int switchto_sched_release(struct switchto_sched *sched)
{
	const int error = bad_sched(sched);
	unsigned int holds;

	if (error)
		return fail(error);
	holds = atomic_load(&sched->holds);
	do
		if (!holds)
			return switchto_dispatch_fail(EINVAL);
	while (!atomic_compare_exchange_weak(&sched->holds, &holds, holds - 1));
	/* Its run may return at once, and the scheduler be destroyed. */
	atomic_fetch_add(&sched->visitors, 1);
	switchto_worker_task_ended(sched);
	atomic_fetch_sub(&sched->visitors, 1);
	return spent_by(switchto_current);
}

int switchto_sched_destroy(struct switchto_sched *sched)
{
	// cppcheck-suppress unreadVariable
	NO_CANCELLATION;

	if (!sched)
		return fail(EINVAL);
	if (is_parents(sched)) {
		/* None of its threads is here, whatever they were doing. */
		free_sched(sched);
		return 0;
	}
	if (atomic_load(&sched->running) || atomic_load(&sched->tasks))
		return atomic_load(&switchto_exiting) ? 0 : switchto_dispatch_fail(EBUSY);
	/* A signal handler, or a policy: leave_others() would wait for the caller. */
	if (switchto_current && switchto_current->slot && is_inside(switchto_current))
		return fail(EDEADLK);
	/* The end of its threads runs the program's destructors, which may come back here. */
	if (atomic_exchange(&sched->ends, true))
		return fail(EBUSY);
	atomic_store(&sched->stopping, true);
	while (atomic_load(&sched->visitors))
		give_time();
	/* Steps leave it there. */
	switchto_monitor_end(sched);
	switchto_pool_end(sched);
	leave_others(sched);
	free_sched(sched);
	return 0;
}
