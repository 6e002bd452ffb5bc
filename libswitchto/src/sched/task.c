// SPDX-License-Identifier: MIT
/* The calls that begin, end and stop tasks. */
#define _GNU_SOURCE
#include "sleep.h"
#include "worker.h"

#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

/* --- spawn --- */

/* See slot_near(). */
enum { CROWD = 3 };

/*
 * For a task that one of @slot spawns: this slot, which is the fastest; but another one if that has
 * fewer tasks by CROWD. Each time one of the others is looked at.
 */
static struct slot *slot_near(struct switchto_sched *sched, struct slot *slot)
{
	const unsigned int i = atomic_load_explicit(&slot->neighbour, memory_order_relaxed);
	struct slot *other = &sched->slot[i % sched->slots];

	atomic_store_explicit(&slot->neighbour, i + 1, memory_order_relaxed);
	if (atomic_load_explicit(&slot->tasks, memory_order_relaxed) >=
	    atomic_load_explicit(&other->tasks, memory_order_relaxed) + CROWD)
		slot = other;
	atomic_fetch_add_explicit(&slot->tasks, 1, memory_order_relaxed);
	return slot;
}

/* For a task that one of @slot spawns: each slot in turn. */
static struct slot *slot_in_turn(struct switchto_sched *sched, struct slot *slot)
{
	const unsigned int i = atomic_load_explicit(&slot->turn, memory_order_relaxed);

	atomic_store_explicit(&slot->turn, i + 1, memory_order_relaxed);
	return &sched->slot[i % sched->slots];
}

/* The slot of a new task, which counts from now on. @which: its number, or SWITCHTO_NEAR and so on. */
static ALWAYS_INLINE struct slot *slot_for(struct switchto_sched *sched, int which)
{
	struct worker *me = switchto_current;
	struct slot *slot;

	if (me && me->sched == sched) {
		atomic_fetch_add(&sched->tasks, 1);
		if (likely(which == SWITCHTO_NEAR))
			return likely(sched->slots == 1) ? me->slot : slot_near(sched, me->slot);
		slot = which == SWITCHTO_ANY  ? slot_in_turn(sched, me->slot) :
		       which == SWITCHTO_THIS ? me->slot :
						&sched->slot[which];
		atomic_fetch_add_explicit(&slot->tasks, 1, memory_order_relaxed);
		return slot;
	}
	switchto_watch_exit(&sched->watched);
	/* Dispatchers may be about to end just now: not once the task counts, unless all are. */
	pthread_mutex_lock(&sched->lock);
	slot = &sched->slot[which >= 0 ? (unsigned int)which : sched->next_slot++ % sched->slots];
	atomic_fetch_add(&sched->tasks, 1);
	if (unlikely(sched->waiting))
		switchto_worker_next_round(sched);
	atomic_fetch_add_explicit(&slot->tasks, 1, memory_order_relaxed);
	pthread_mutex_unlock(&sched->lock);
	return slot;
}

static ALWAYS_INLINE int spawn_on(struct switchto_sched *sched, int which, task_fn *fn, void *arg,
				  const struct switchto_task_attr *attr,
				  struct switchto_task **task_out)
{
	struct worker *me = switchto_current;
	struct switchto_task *task;

	if (!sched) {
		if (!me || !me->task)
			return fail(EPERM);
		sched = me->sched;
	}
	if (unlikely(!fn))
		return fail(EINVAL);
	if (is_parents(sched))
		return fail(EPERM);
	if (which < SWITCHTO_ANY || (which >= 0 && (unsigned int)which >= sched->slots) ||
	    (which == SWITCHTO_THIS && (!me || !me->task || me->sched != sched)))
		return fail(EINVAL);
	if (atomic_load(&sched->stopping))
		return switchto_dispatch_fail(ECANCELED);
	task = switchto_pool_task(sched);
	if (!task)
		return switchto_dispatch_fail(ENOMEM);
	task->entry = (struct switchto_entry){ 0 };
	if (attr)
		task->entry.attr = *attr;
	if (unlikely(sched->flags & SWITCHTO_MEASURE))
		memset(&task->stats, 0, sizeof(task->stats));
	atomic_store_explicit(&task->fn, fn, memory_order_relaxed);
	task->arg = arg;
	task->worker = NULL;
	task->timer = 0;
	atomic_store(&task->cancelled, 0);
	atomic_store(&task->joiner, task_out ? NULL : DETACHED);
	/* First: make_change() finds the state of the old task, or the number of the new one. */
	atomic_store_explicit(&task->serial,
			      atomic_load_explicit(&task->serial, memory_order_relaxed) + 1,
			      memory_order_relaxed);
	atomic_store(&task->state, 0);
	task->bound = which >= 0 || which == SWITCHTO_THIS ? BY_SPAWN : 0;
	atomic_store_explicit(&task->is_next, false, memory_order_relaxed);
	/* A release: a thread that sees it sees the serial number. */
	__atomic_store_n(&task->slot, slot_for(sched, which), __ATOMIC_RELEASE);
	if (task_out)
		*task_out = task;
	/* Paired with switchto_sched_stop(), which cancels the tasks that it sees. */
	if (unlikely(atomic_load(&sched->cancels)))
		atomic_fetch_or(&task->cancelled, CANCELLED);
	if (traces())
		switchto_trace_event(task->slot, TRACE_SPAWN, task, (uintptr_t)fn);
	switchto_wake_ready(NULL, task, SWITCHTO_NEW);
	/* One that has lost its slot might fill the memory with tasks, faster than these can run. */
	if (me && me->task && unlikely(!owns_slot(me)))
		return (int)switchto_dispatch_give_way(me, 0);
	return spent_by(me);
}

int switchto_spawn(struct switchto_sched *sched, void (*fn)(void *), void *arg,
		   const struct switchto_task_attr *attr, struct switchto_task **task_out)
{
	return spawn_on(sched, SWITCHTO_NEAR, fn, arg, attr, task_out);
}

int switchto_spawn_on(struct switchto_sched *sched, int slot, void (*fn)(void *), void *arg,
		      const struct switchto_task_attr *attr, struct switchto_task **task_out)
{
	return spawn_on(sched, slot, fn, arg, attr, task_out);
}

/* --- join, end, detach --- */

/* Of a task that is not to run. */
static void run_nothing(void *arg) {}

/* Is @task none of this process? An error number. */
static inline int bad_task(const struct switchto_task *task)
{
	return unlikely(!task) ? EINVAL : is_parents(task->sched) ? EPERM : 0;
}

/* @task has ended: the call that comes first frees it. 0 or an error number. */
static int give_back(struct switchto_task *task)
{
	struct waiter *ended = ENDED;

	if (!atomic_compare_exchange_strong(&task->joiner, &ended, FREE))
		return EINVAL;
	switchto_pool_free_task(task);
	return 0;
}

/* @task will not run: it counts no longer. Its scheduler may be destroyed then. */
static void drop(struct switchto_task *task)
{
	struct switchto_sched *sched = task->sched;

	atomic_fetch_add(&sched->visitors, 1);
	switchto_worker_task_ended(sched);
	atomic_fetch_sub(&sched->visitors, 1);
}

/*
 * The caller goes on with @task although it may have ended. If it is none of its scheduler's tasks, that
 * scheduler is not to be destroyed before end_visit_of(). NULL: it is.
 */
static inline struct switchto_sched *visit_sched(const struct switchto_task *task)
{
	struct switchto_sched *sched = task->sched;

	if (likely(switchto_current) && likely(switchto_current->sched == sched))
		return NULL;
	atomic_fetch_add(&sched->visitors, 1);
	return sched;
}

static inline void end_visit_of(struct switchto_sched *sched)
{
	if (unlikely(sched))
		atomic_fetch_sub(&sched->visitors, 1);
}

/*
 * Waits until @task has ended, and frees it. @ends: cancels it; if it has not begun, and can't begin
 * now, it is not waited for, and does not run. 0 or an error number.
 */
static ALWAYS_INLINE int join(struct switchto_task *task, nsec_t deadline, bool ends)
{
	struct worker *me = switchto_current;
	struct switchto_task *self = me ? me->task : NULL;
	// cppcheck-suppress uninitvar
	struct waiter outside, *waiter = self ? &self->joins : &outside, *other = NULL;
	int error;

	if (me && (self == task || !self))
		return EDEADLK;
	switchto_waiter_begin(waiter);
	if (!atomic_compare_exchange_strong(&task->joiner, &other, waiter))
		return give_back(task);
	if (ends) {
		other = waiter;
		switchto_wake_cancel(task);
		window();
		if (!atomic_load(&task->sched->running) && atomic_load(&task->fn) &&
		    atomic_exchange(&task->fn, run_nothing) &&
		    atomic_compare_exchange_strong(&task->joiner, &other, DROPPED)) {
			drop(task);
			return 0;
		}
	}
	/* Each of two tasks sets its waiter first: so one of them sees the other's. */
	if (!ends && self && unlikely(atomic_load(&self->joiner) == &task->joins))
		error = EDEADLK;
	else
		error = switchto_waiter_wait(waiter, deadline, ends ? ON_JOIN : ON_JOIN | CANCELS);
	if (error) {
		other = waiter;
		window();
		if (atomic_compare_exchange_strong(&task->joiner, &other, NULL))
			return error;
		/* It ends just now, and will fire. */
		switchto_waiter_wait(waiter, NEVER, ON_JOIN);
	}
	switchto_pool_free_task(task);
	return 0;
}

static ALWAYS_INLINE int join_in_visit(struct switchto_task *task, nsec_t deadline, bool ends)
{
	struct switchto_sched *sched;
	int error = bad_task(task);

	if (unlikely(error))
		return error;
	sched = visit_sched(task);
	error = join(task, deadline, ends);
	end_visit_of(sched);
	return error;
}

int switchto_join(struct switchto_task *task)
{
	const int error = join_in_visit(task, NEVER, false);

	return unlikely(error) ? fail(error) : 0;
}

int switchto_join_until(struct switchto_task *task, const struct timespec *deadline)
{
	const nsec_t until = switchto_deadline(deadline);
	const int error = until < 0 ? EINVAL : join_in_visit(task, until, false);

	return error ? switchto_dispatch_fail(error) : 0;
}

int switchto_end(struct switchto_task *task)
{
	const int error = join_in_visit(task, NEVER, true);

	return error ? fail(error) : 0;
}

int switchto_detach(struct switchto_task *task)
{
	struct waiter *other = NULL;
	int error = bad_task(task);
	struct switchto_sched *sched;

	if (error)
		return fail(error);
	sched = visit_sched(task);
	if (!atomic_compare_exchange_strong(&task->joiner, &other, DETACHED))
		error = give_back(task);
	end_visit_of(sched);
	return error ? fail(error) : 0;
}

int switchto_cancel(struct switchto_task *task)
{
	const int error = bad_task(task);
	struct switchto_sched *sched;

	if (error)
		return fail(error);
	if (atomic_load(&task->state) == FINISHED)
		return switchto_dispatch_fail(ESRCH);
	sched = visit_sched(task);
	switchto_wake_cancel(task);
	end_visit_of(sched);
	return spent_by(switchto_current);
}

int switchto_shield_begin(void)
{
	struct worker *me = switchto_current;

	if (!me || !me->task)
		return fail(EPERM);
	atomic_fetch_add(&me->task->cancelled, SHIELD);
	window();
	/*
	 * One that came before may be about to end a wait: not one of those that are shielded. It may be
	 * a thread of less priority, so to yield would not do.
	 */
	while (atomic_load(&me->task->cancellers))
		nanosleep(&(struct timespec){ .tv_nsec = 50000 }, NULL);
	return spent_by(me);
}

int switchto_shield_end(void)
{
	struct worker *me = switchto_current;

	if (!me || !me->task)
		return fail(EPERM);
	if (atomic_load(&me->task->cancelled) < SHIELD)
		return fail(EINVAL);
	atomic_fetch_sub(&me->task->cancelled, SHIELD);
	return spent_by(me);
}

int switchto_task_slot(const struct switchto_task *task)
{
	const int error = bad_task(task);

	if (error)
		return fail(error);
	return (int)(__atomic_load_n(&task->slot, __ATOMIC_RELAXED) - task->sched->slot);
}

/* The same of a task that may be of another slot, or scheduler: 0 or an error number. */
static int send_change(struct switchto_task *task, const struct switchto_task_attr *attr)
{
	struct change *change = calloc(1, sizeof(*change));

	if (!change)
		return ENOMEM;
	change->task.entry.attr = *attr;
	change->whose = task;
	change->serial = atomic_load(&task->serial);
	switchto_inbox_push(__atomic_load_n(&task->slot, __ATOMIC_RELAXED), &change->task, CHANGES);
	return 0;
}

int switchto_task_set_attr(struct switchto_task *task, const struct switchto_task_attr *attr)
{
	struct worker *me = switchto_current;
	int error = attr ? bad_task(task) : EINVAL;
	struct switchto_sched *sched;

	if (error)
		return fail(error);
	if (!task->sched->policy->change || (task->sched->wrapped && !task->sched->wrapped->change))
		return fail(ENOTSUP);
	if (atomic_load(&task->state) == FINISHED)
		return switchto_dispatch_fail(ESRCH);
	sched = visit_sched(task);
	if (me && me->task && try_enter(me)) {
		const bool own = __atomic_load_n(&task->slot, __ATOMIC_RELAXED) == me->slot;

		if (own)
			change_attr(me->slot, task, attr);
		leave(me);
		if (own)
			return spent_by(me);
	}
	error = send_change(task, attr);
	end_visit_of(sched);
	return error ? fail(error) : spent_by(me);
}

struct switchto_task *switchto_task_self(void)
{
	return switchto_current ? switchto_current->task : NULL;
}

int switchto_task_name(const char *name)
{
	struct worker *me = switchto_current;
	char text[sizeof(me->name)] = "";
	uint64_t part;

	if (!name)
		return fail(EINVAL);
	if (!me || !me->task)
		return fail(EPERM);
	strncpy(text, name, sizeof(text) - 1);
	if (!me->task->name[0])
		prctl(PR_GET_NAME, me->name);
	for (int i = 0; i < 2; i++) {
		memcpy(&part, text + i * sizeof(part), sizeof(part));
		atomic_store_explicit(&me->task->name[i], part, memory_order_relaxed);
	}
	prctl(PR_SET_NAME, me->task->name[0] ? text : me->name);
	if (traces())
		switchto_trace_name(me->task);
	return 0;
}

/* --- yield, park, sleep --- */

/* switchto_yield() of a task that is not in its slot. */
static __attribute__((noinline)) struct worker *yield_late(void)
{
	struct worker *me = switchto_current;
	const uint32_t epoch = me ? me->epoch : 0;

	me = enter();
	/* While it waited for its slot, all others had their turn. */
	if (me && me->epoch == epoch)
		yield_inside(me);
	return me;
}

int switchto_yield(void)
{
	struct worker *me = switchto_current;
	bool cancelled;

	window();
	if (likely(me) && likely(me->task) && likely(try_enter(me)))
		yield_inside(me);
	else if (!(me = yield_late()))
		return -1;
	cancelled = atomic_load_explicit(&me->task->cancelled, memory_order_relaxed) == CANCELLED;
	leave(me);
	return unlikely(cancelled) ? fail(ECANCELED) : 0;
}

int switchto_park(const struct timespec *deadline)
{
	struct worker *me;
	int error;

	if (unlikely(deadline)) {
		error = switchto_sleep_pause(PARKED, switchto_deadline(deadline));
		return error ? fail(error) : 0;
	}
	/* The same, in line. */
	me = enter();
	if (unlikely(!me))
		return -1;
	if (unlikely(prepare(me->task, PARKED))) {
		leave(me);
		spent(me, 0);
		return 0;
	}
	error = unlikely(task_cancelled(me)) ? ECANCELED : sleep_in_line(me, PARKED, ON_PARK, NULL);
	leave(me);
	return unlikely(error) ? switchto_dispatch_fail(error) : 0;
}

int switchto_sleep_until(const struct timespec *deadline)
{
	int error;

	if (!deadline)
		return fail(EINVAL);
	error = switchto_sleep_pause(WAITING, switchto_deadline(deadline));
	return error && error != ETIMEDOUT ? fail(error) : 0;
}

int switchto_unpark(struct switchto_task *task)
{
	struct worker *me = switchto_current;
	uint32_t state;
	bool parents;

	if (unlikely(!task))
		return fail(EINVAL);
	/* With a token, the task may end, and its scheduler be gone. */
	parents = is_parents(task->sched);
	state = atomic_load(&task->state);
	do {
		if (state & FINISHED)
			return switchto_dispatch_fail(ESRCH);
		if (state & TOKEN)
			break;
	} while (!atomic_compare_exchange_weak(&task->state, &state,
					       state & PARKED ? 0 : state | TOKEN));
	window();
	if (!(state & PARKED))
		return unlikely(parents) ? fail(EPERM) : spent_by(me);
	/* That one's turn costs as much. */
	return ready(me, task, true);
}
