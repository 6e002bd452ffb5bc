// SPDX-License-Identifier: MIT
/* What a worker does: it runs tasks, one after the other, or dispatches. */
#define _GNU_SOURCE
#include "worker.h"
#include "dispatch.h"
#include "monitor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

/* How floating-point numbers are rounded, and so on; and in FP_EVENTS what has happened. */
static inline uint64_t fp_state(void)
{
#ifdef __x86_64__
	uint16_t control, status;

	__asm__ volatile("fnstcw %0" : "=m"(control));
	__asm__ volatile("fnstsw %0" : "=a"(status));
	return __builtin_ia32_stmxcsr() | (uint64_t)control << 16 | (uint64_t)(status & 0x3f) << 32;
#elif defined(__aarch64__)
	uint64_t fpcr, fpsr;

	__asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
	__asm__ volatile("mrs %0, fpsr" : "=r"(fpsr));
	return (uint32_t)fpcr | fpsr << 32;
#else
	return 0;
#endif
}

#ifdef __x86_64__
#define FP_EVENTS 0x3f0000003fU
#else
#define FP_EVENTS 0xffffffff00000000U
#endif

/* @fp: without events. */
static void set_fp_state(uint64_t fp)
{
#ifdef __x86_64__
	const uint16_t control = (uint16_t)(fp >> 16);

	__asm__ volatile("fnclex");
	__asm__ volatile("fldcw %0" : : "m"(control));
	__builtin_ia32_ldmxcsr(fp & 0xffffU);
#elif defined(__aarch64__)
	__asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)(uint32_t)fp));
	__asm__ volatile("msr fpsr, %0" : : "r"(fp >> 32));
#endif
}

void switchto_worker_take_model(struct switchto_sched *sched)
{
	pthread_sigmask(SIG_SETMASK, NULL, &sched->mask);
	sched->fp = fp_state() & ~FP_EVENTS;
}

/*
 * A thread keeps what its last task changed, see switchto_spawn(). What can be seen without a system
 * call is put back.
 */
static inline void begin_clean(const struct worker *me)
{
	errno = 0;
	if (unlikely(fp_state() != me->fp))
		set_fp_state(me->fp);
}

void switchto_worker_task_ended(struct switchto_sched *sched)
{
	if (atomic_fetch_sub(&sched->tasks, 1) == 1)
		for (unsigned int i = 0; i < sched->slots; i++)
			switchto_inbox_wake(&sched->slot[i]);
}

/* Is @task of the scheduler of @me? NULL: it is a thread. */
static inline bool is_own(const struct worker *me, const struct switchto_task *task)
{
	return task && task->sched == me->sched;
}

/* The thread has its own name again. */
static __attribute__((noinline)) void forget_name(const struct worker *me,
						  struct switchto_task *task)
{
	prctl(PR_SET_NAME, me->name);
	atomic_store(&task->name[0], 0);
}

/* Inside, and stays there. */
static void end_task(struct worker *me)
{
	struct switchto_task *task = me->task;
	struct waiter *joiner;

	if (unlikely(task->held)) {
		fprintf(stderr,
			"libswitchto-sched: wanted a task to end with no mutex locked, found %u\n",
			task->held);
		abort();
	}
	probe1(task_end, task);
	if (unlikely(me->slot->lane))
		switchto_trace_event(me->slot, TRACE_END, task, 0);
	if (unlikely(atomic_load_explicit(&task->name[0], memory_order_relaxed)))
		forget_name(me, task);
	if (unlikely(task->inherit))
		switchto_inherit_end(task);
	me->task = NULL;
	if (me->sched->policy->end)
		me->sched->policy->end(me->slot->queue, &task->entry);
	atomic_store(&task->state, FINISHED);
	if (me->sched->slots > 1)
		atomic_fetch_sub_explicit(&task->slot->tasks, 1, memory_order_relaxed);
	window();
	/*
	 * Whoever comes second, this or the call that gives the handle back, frees the task. If that
	 * call waits already, no other one may give the handle back.
	 */
	joiner = atomic_load(&task->joiner);
	while (!atomic_compare_exchange_weak(&task->joiner, &joiner, joiner ? FREE : ENDED))
		;
	if (joiner == DETACHED || joiner == DROPPED)
		switchto_pool_free_task(task);
	else if (joiner)
		switchto_waiter_fire(is_own(me, joiner->task) ? me->slot : NULL, joiner);
	if (joiner != DROPPED)
		switchto_worker_task_ended(me->sched);
}

static void run_task(struct worker *me)
{
	struct switchto_task *task = me->task;
	task_fn *fn;

	begin_clean(me);
	leave(me);
	probe1(task_begin, task);
	fn = atomic_exchange_explicit(&task->fn, NULL, memory_order_relaxed);
	task->begun = fn;
	fn(task->arg);
	if (unlikely(switchto_current != me))
		switchto_misused("the child of a fork() returned from the function of its task: "
				 "end it with _exit() or exec");
	/* A task may end in a blocking region. */
	while (!enter())
		switchto_block_end();
	end_task(me);
}

/* The thread of a task ends: it was cancelled, or by pthread_exit(). */
static void thread_exits(void *arg)
{
	switchto_misused("a task ended its thread, by pthread_exit() or pthread_cancel(): "
			 "return from the task's function instead");
}

/*
 * A dispatcher has found no tasks. All end together, or none: so no slot is idle for the rest of a run,
 * if another thread spawns just now. False: there are tasks again, and it goes on.
 */
static bool is_over(struct switchto_sched *sched)
{
	uint32_t round;

	pthread_mutex_lock(&sched->lock);
	round = atomic_load(&sched->round);
	if (atomic_load(&sched->tasks)) {
		pthread_mutex_unlock(&sched->lock);
		return false;
	}
	if (++sched->waiting == sched->slots) {
		atomic_store(&sched->over, true);
		switchto_worker_next_round(sched);
	}
	pthread_mutex_unlock(&sched->lock);
	while (atomic_load(&sched->round) == round) {
		window();
		switchto_owner_check_fork(sched);
		switchto_futex_wait(&sched->round, round, NEVER);
	}
	return atomic_load(&sched->over);
}

void switchto_worker_next_round(struct switchto_sched *sched)
{
	sched->waiting = 0;
	atomic_fetch_add(&sched->round, 1);
	switchto_futex_wake(&sched->round);
}

static inline bool dispatch_once(struct worker *me)
{
	atomic_store_explicit(&me->slot->is_lent, me->lends, memory_order_relaxed);
	return unlikely(me->slot->begins) ? switchto_dispatch_make(me) : switchto_dispatch(me);
}

/* Until there are no tasks left. */
static void dispatch(struct worker *me)
{
	while (dispatch_once(me) || !is_over(me->sched))
		;
}

/* The dispatcher of a slot lends it to tasks, and is told of those that block. */
static void begin_lending(struct worker *me)
{
	me->lends = me->sched->lends && !switchto_lend(SWITCHTO_LENDS, NULL);
}

static void end_lending(struct worker *me)
{
	if (me->lends)
		switchto_lend(SWITCHTO_LENDS_NOT, NULL);
}

int switchto_worker_begin_run(struct worker *me, int *place)
{
	struct switchto_sched *sched = me->sched;

	if (switchto_current || is_parents(sched) || atomic_load(&sched->ends))
		return EPERM;
	if (atomic_exchange(&sched->running, true))
		return EBUSY;
	switchto_watch_exit(&sched->watched);
	switchto_worker_take_model(sched);
	*place = switchto_place(SWITCHTO_FREE);
	switchto_current = me;
	if (sched->together)
		switchto_place(SWITCHTO_STAY);
	return 0;
}

int switchto_worker_begin_threads(struct switchto_sched *sched)
{
	struct worker *worker;
	const int error = switchto_monitor_begin(sched);

	/* With one, all tasks can run. */
	if (error || sched->has_worker)
		return error;
	worker = switchto_pool_create(sched, RUNS_TASKS);
	if (!worker)
		return errno;
	switchto_pool_idle(worker);
	sched->has_worker = true;
	return 0;
}

void switchto_worker_end_run(const struct worker *me, int place)
{
	switchto_current = NULL;
	/* Also with SWITCHTO_PLACE=together, it has its own mask again. */
	switchto_place(SWITCHTO_FREE);
	switchto_place(place);
	atomic_store(&me->sched->running, false);
}

void switchto_worker_dispatch(struct worker *me, struct slot *slot)
{
	slot->dispatcher = me;
	switchto_owner_begin(me, slot);
	begin_lending(me);
	dispatch(me);
	end_lending(me);
}

void switchto_worker_step(struct worker *me, const bool *over)
{
	begin_lending(me);
	while (!*over)
		dispatch_once(me);
	end_lending(me);
}

/* The task of @me has ended. False: the thread is to end. */
static inline bool take_next(struct worker *me)
{
	struct switchto_task *task;

	if (unlikely(atomic_load_explicit(&me->sched->wants_worker, memory_order_relaxed))) {
		/* Its own slot could go on with it for ever. */
		if (is_short_of_workers(me->sched))
			return hand_over(me, me->slot, me->slot->dispatcher, false);
		task = switchto_pool_take_held(me);
		if (!task)
			return hand_over(me, me->slot, me->slot->dispatcher, false);
		queue_task(me->slot, task, SWITCHTO_NEW);
	}
	return switchto_dispatch(me);
}

/* Runs tasks, or dispatches, until the thread is to end. */
static void serve(struct worker *me)
{
	while (switchto_owner_await(me)) {
		if (unlikely(me->gives_back)) {
			me->gives_back = false;
			if (!hand_over(me, me->slot, me->slot->dispatcher, true))
				return;
		}
		if (me != me->slot->dispatcher) {
			do
				run_task(me);
			while (take_next(me));
			return;
		}
		begin_lending(me);
		dispatch(me);
		if (atomic_fetch_sub(&me->sched->at_work, 1) == 1)
			switchto_futex_wake(&me->sched->at_work);
	}
}

/* The first 15 bytes count. */
static void set_name(const struct worker *me)
{
	char slot[16] = "", name[32];

	if (me->serves != RUNS_TASKS)
		snprintf(slot, sizeof(slot), "/%d", me->serves);
	snprintf(name, sizeof(name), "%.*s%s", 15 - (int)strlen(slot), me->sched->name, slot);
	pthread_setname_np(pthread_self(), name);
}

void *switchto_worker_main(void *worker)
{
	struct worker *me = worker;

	if (me->sched->name[0])
		set_name(me);
	me->tid = switchto_self();
	sem_post(me->begun);
	if (me->tid == -1)
		return NULL;
	/* Without the option, SWITCHTO_PLACE=together could bind it. */
	switchto_place(me->sched->together ? SWITCHTO_STAY : SWITCHTO_FREE);
	switchto_current = me;
	/* Without memory for it, the place goes back whenever it comes to this thread. */
	if (me->sched->lends) {
		sleeps_on_purpose(me, 1);
		switchto_lend(SWITCHTO_TAKES, &me->keeps);
		/* The first resume is taken here. Else the wait in which a loan is to come ends at once. */
		if (switchto_wait(NULL) < 0) {
			switchto_owner_check_fork(me->sched);
			switchto_broken("switchto_wait");
		}
	}
	pthread_cleanup_push(thread_exits, NULL);
	serve(me);
	pthread_cleanup_pop(false);
	/* For destructors of thread-local variables. */
	switchto_current = NULL;
	return NULL;
}
