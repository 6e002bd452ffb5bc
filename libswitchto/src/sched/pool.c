// SPDX-License-Identifier: MIT
#define _GNU_SOURCE
#include "pool.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* --- workers --- */

/* With the lock. */
static inline bool has_room(const struct switchto_sched *sched)
{
	return !sched->max_threads || sched->threads < sched->max_threads;
}

/* One more for tasks. False: there are as many as there may be. */
static bool count_one(struct switchto_sched *sched)
{
	bool room;

	pthread_mutex_lock(&sched->lock);
	room = has_room(sched);
	sched->threads += room;
	pthread_mutex_unlock(&sched->lock);
	return room;
}

static void count_back(struct switchto_sched *sched)
{
	pthread_mutex_lock(&sched->lock);
	sched->threads--;
	pthread_mutex_unlock(&sched->lock);
}

static void set_attr(const struct switchto_sched *sched, pthread_attr_t *attr, int *error)
{
	if (sched->stack_size)
		*error = pthread_attr_setstacksize(attr, sched->stack_size);
	if (!*error && sched->guard_size)
		*error = pthread_attr_setguardsize(attr, sched->guard_size > 0 ?
								 (size_t)sched->guard_size :
								 0);
}

struct worker *switchto_pool_create(struct switchto_sched *sched, int serves)
{
	// cppcheck-suppress unreadVariable
	NO_CANCELLATION;
	struct worker *worker;
	pthread_attr_t attr;
	sigset_t mask;
	sem_t begun;
	int error, place;

	if (serves == RUNS_TASKS && !count_one(sched)) {
		errno = EBUSY;
		return NULL;
	}
	worker = calloc(1, sizeof(*worker));
	if (!worker) {
		if (serves == RUNS_TASKS)
			count_back(sched);
		errno = ENOMEM;
		return NULL;
	}
	/* It would have the mask of a caller that is bound. */
	place = switchto_place(SWITCHTO_FREE);
	worker->sched = sched;
	worker->serves = serves;
	worker->fp = sched->fp;
	worker->gives_back = sched->lends && serves == RUNS_TASKS;
	worker->begun = &begun;
	sem_init(&begun, 0, 0);
	/* That of the caller may be of an earlier run. */
	pthread_sigmask(SIG_SETMASK, &sched->mask, &mask);
	error = pthread_attr_init(&attr);
	if (!error) {
		set_attr(sched, &attr, &error);
		if (!error)
			error = pthread_create(&worker->pthread, &attr, sched->main, worker);
		pthread_attr_destroy(&attr);
	}
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
	if (!error) {
		while (sem_wait(&begun))
			;
		if (worker->tid == -1) {
			pthread_join(worker->pthread, NULL);
			error = EAGAIN;
		}
	}
	sem_destroy(&begun);
	if (place > SWITCHTO_FREE)
		switchto_place(place);
	if (error) {
		free(worker);
		if (serves == RUNS_TASKS)
			count_back(sched);
		errno = error;
		return NULL;
	}
	pthread_mutex_lock(&sched->lock);
	worker->next = sched->workers;
	sched->workers = worker;
	pthread_mutex_unlock(&sched->lock);
	return worker;
}

/* With the lock. What it was told when it was idle, it is told no more: a resume would end another wait. */
static struct worker *take_idle(struct switchto_sched *sched)
{
	struct worker *worker = sched->idle;

	if (worker) {
		sched->idle = worker->next_idle;
		atomic_store_explicit(&worker->told, GOES_ON, memory_order_relaxed);
	}
	return worker;
}

struct worker *switchto_pool_take(struct switchto_sched *sched)
{
	struct worker *worker;

	pthread_mutex_lock(&sched->lock);
	worker = take_idle(sched);
	pthread_mutex_unlock(&sched->lock);
	return worker;
}

struct worker *switchto_pool_hold(struct switchto_sched *sched, struct switchto_task *task,
				  bool *holds)
{
	struct worker *worker;

	pthread_mutex_lock(&sched->lock);
	worker = take_idle(sched);
	*holds = !worker && !has_room(sched);
	if (*holds) {
		task->next = NULL;
		if (sched->first_held)
			sched->last_held->next = task;
		else
			sched->first_held = task;
		sched->last_held = task;
		atomic_fetch_or(&sched->wants_worker, TASKS_HELD);
	}
	pthread_mutex_unlock(&sched->lock);
	return worker;
}

/* With the lock. */
static struct switchto_task *first_held(struct switchto_sched *sched)
{
	struct switchto_task *task = sched->first_held;

	if (likely(!task))
		return NULL;
	sched->first_held = task->next;
	if (!sched->first_held)
		atomic_fetch_and(&sched->wants_worker, ~(unsigned int)TASKS_HELD);
	return task;
}

static struct switchto_task *take_held(struct worker *worker)
{
	struct switchto_task *task = first_held(worker->sched);

	if (unlikely(task)) {
		task->worker = worker;
		worker->task = task;
	}
	return task;
}

struct switchto_task *switchto_pool_let_go(struct switchto_sched *sched)
{
	struct switchto_task *task;

	pthread_mutex_lock(&sched->lock);
	task = first_held(sched);
	pthread_mutex_unlock(&sched->lock);
	return task;
}

struct switchto_task *switchto_pool_take_held(struct worker *worker)
{
	struct switchto_sched *sched = worker->sched;
	struct switchto_task *task = NULL;

	pthread_mutex_lock(&sched->lock);
	/* Owner of one slot, it must not have a task of another one. */
	if (sched->first_held && sched->first_held->slot == worker->slot)
		task = take_held(worker);
	pthread_mutex_unlock(&sched->lock);
	return task;
}

struct switchto_task *switchto_pool_idle(struct worker *worker)
{
	struct switchto_sched *sched = worker->sched;
	struct switchto_task *task;

	pthread_mutex_lock(&sched->lock);
	task = take_held(worker);
	if (likely(!task)) {
		worker->next_idle = sched->idle;
		sched->idle = worker;
	}
	pthread_mutex_unlock(&sched->lock);
	return task;
}

/*
 * With the lock: those that were idle at the last look, too, beyond what is to stay. Of the others,
 * @shrink are told to give their stacks back. *@more: some were not idle then.
 */
static struct worker *take_old(struct switchto_sched *sched, bool *shrink, bool *more)
{
	struct worker **at = &sched->idle, *worker, *old = NULL;
	unsigned int stay = sched->idle_threads ? sched->idle_threads : UINT_MAX;

	*shrink = *more = false;
	while ((worker = *at)) {
		if (worker->seen_epoch != worker->epoch)
			worker->seen = 0;
		worker->seen_epoch = worker->epoch;
		if (!worker->seen) {
			*more = true;
		} else if (!stay) {
			*at = worker->next_idle;
			worker->next_idle = old;
			old = worker;
			sched->threads--;
			atomic_store(&worker->told, EXITS);
			continue;
		} else if (worker->seen == 1) {
			atomic_store(&worker->told, SHRINKS);
			*shrink = true;
		}
		worker->seen += worker->seen < 2;
		stay -= stay > 0;
		at = &worker->next_idle;
	}
	for (at = &sched->workers; old && (worker = *at);)
		if (atomic_load(&worker->told) == EXITS)
			*at = worker->next;
		else
			at = &worker->next;
	return old;
}

/* What the frames below the caller's took once. */
static __attribute__((noinline)) void give_stack_back(void)
{
	const int error = errno;
	pthread_attr_t attr;
	size_t size;
	void *low;
	char *end;

	if (pthread_getattr_np(pthread_self(), &attr)) {
		errno = error;
		return;
	}
	if (!pthread_attr_getstack(&attr, &low, &size)) {
		/* This function's frame is in the page above. */
		end = (char *)__builtin_frame_address(0) - 2 * sysconf(_SC_PAGESIZE);
		end -= (uintptr_t)end % (size_t)sysconf(_SC_PAGESIZE);
		/* If it is locked in memory, it stays. */
		if (end > (char *)low)
			madvise(low, (size_t)(end - (char *)low), MADV_DONTNEED);
	}
	pthread_attr_destroy(&attr);
	errno = error;
}

bool switchto_pool_stays(struct worker *me)
{
	unsigned int told = SHRINKS;

	if (atomic_compare_exchange_strong(&me->told, &told, GOES_ON))
		give_stack_back();
	return told != EXITS;
}

/* Looks at the idle ones so often. */
#define IDLE_FOR NSEC_PER_SEC

bool switchto_pool_trim(struct switchto_sched *sched)
{
	struct worker **at = &sched->ending, *worker, *next, *all;
	const nsec_t now = switchto_now();
	bool shrink, more;

	if (now - sched->trimmed < IDLE_FOR)
		return sched->idle_threads;
	sched->trimmed = now;
	/* Destructors of thread-local variables may take long: nobody waits for them here. */
	while ((worker = *at)) {
		if (pthread_tryjoin_np(worker->pthread, NULL)) {
			at = &worker->next_idle;
		} else {
			*at = worker->next_idle;
			free(worker);
		}
	}
	pthread_mutex_lock(&sched->lock);
	worker = take_old(sched, &shrink, &more);
	all = sched->workers;
	pthread_mutex_unlock(&sched->lock);
	for (; worker; worker = next) {
		next = worker->next_idle;
		worker->next_idle = sched->ending;
		sched->ending = worker;
		switchto_resume(worker->tid);
	}
	/* Not with the lock. New ones come before @all, and only this thread takes some away. */
	for (worker = shrink ? all : NULL; worker; worker = worker->next)
		if (atomic_load(&worker->told) == SHRINKS)
			switchto_resume(worker->tid);
	/* For stacks alone, nobody stays awake. */
	return (more && sched->idle_threads) || sched->ending;
}

static void join_worker(struct worker *worker)
{
	pthread_join(worker->pthread, NULL);
	free(worker);
}

void switchto_pool_end(struct switchto_sched *sched)
{
	struct worker *worker;

	/* All at once: on a busy machine, each takes some milliseconds to end. */
	for (worker = sched->workers; worker; worker = worker->next) {
		atomic_store(&worker->told, EXITS);
		switchto_resume(worker->tid);
	}
	while ((worker = sched->workers)) {
		sched->workers = worker->next;
		join_worker(worker);
	}
	while ((worker = sched->ending)) {
		sched->ending = worker->next_idle;
		join_worker(worker);
	}
	sched->threads = 0;
}

/* --- tasks --- */

/* At a time. All have the offset of the generation, so one alone would take twice the memory. */
enum { TASKS = 15, TASK_SIZE = -(-(int)sizeof(struct switchto_task) & -ALL_GENERATIONS) };

static struct switchto_task *new_task(struct switchto_sched *sched)
{
	struct switchto_task *first, *last = NULL;
	char *memory = aligned_alloc(ALL_GENERATIONS, TASKS * TASK_SIZE + ALL_GENERATIONS);

	if (!memory)
		return NULL;
	memset(memory, 0, TASKS * TASK_SIZE + ALL_GENERATIONS);
	memory += switchto_generation_offset;
	first = (struct switchto_task *)memory;
	for (size_t i = 0; i < TASKS; i++) {
		struct switchto_task *task = (struct switchto_task *)(memory + i * TASK_SIZE);

		atomic_init(&task->state, FINISHED);
		atomic_init(&task->joiner, FREE);
		task->sched = sched;
		task->next = task->next_of_all = last;
		last = task;
	}
	/* In the child of a fork, all or none of them are in the list. */
	pthread_mutex_lock(&sched->lock);
	first->next_of_all = sched->all_tasks;
	((struct switchto_task *)(memory + TASK_SIZE))->next = sched->free_tasks;
	sched->all_tasks = sched->free_tasks = last;
	pthread_mutex_unlock(&sched->lock);
	return first;
}

struct switchto_task *switchto_pool_task(struct switchto_sched *sched)
{
	struct switchto_task *task;

	pthread_mutex_lock(&sched->lock);
	task = sched->free_tasks;
	if (task)
		sched->free_tasks = task->next;
	pthread_mutex_unlock(&sched->lock);
	return likely(task) ? task : new_task(sched);
}

void switchto_pool_free_task(struct switchto_task *task)
{
	struct switchto_sched *sched = task->sched;

	window();
	atomic_store_explicit(&task->joiner, FREE, memory_order_relaxed);
	pthread_mutex_lock(&sched->lock);
	task->next = sched->free_tasks;
	sched->free_tasks = task;
	pthread_mutex_unlock(&sched->lock);
}

void switchto_pool_free_tasks(struct switchto_sched *sched)
{
	struct switchto_task *task;

	while ((task = sched->all_tasks)) {
		/* The last one of new_task(): the first one is where the memory begins. */
		for (int i = 1; i < TASKS; i++)
			task = task->next_of_all;
		sched->all_tasks = task->next_of_all;
		free((char *)task - (uintptr_t)task % ALL_GENERATIONS);
	}
}
