// SPDX-License-Identifier: MIT
/* Tasks: how they begin, sleep, wake and end. */
#define _GNU_SOURCE
#include "dispatch.h"

#include <linux/futex.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* See slot_near(). */
enum { CROWD = 3 };

/* --- futexes of threads that are no tasks --- */

int switchto_futex_wait(_Atomic uint32_t *word, uint32_t value, nsec_t deadline)
{
	struct timespec at = { deadline / NSEC_PER_SEC, deadline % NSEC_PER_SEC };

	return syscall(SYS_futex, word, FUTEX_WAIT_BITSET_PRIVATE, value,
		       deadline == NEVER ? NULL : &at, NULL, FUTEX_BITSET_MATCH_ANY) ?
		       errno :
		       0;
}

void switchto_futex_wake(_Atomic uint32_t *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1);
}

void switchto_misused(const char *what)
{
	fprintf(stderr, "libswitchto-sched: %s\n", what);
	abort();
}

/* --- sleep and wake --- */

/* A PARKED task takes its token, a WAITING one keeps it. */
int switchto_task_prepare_token(struct switchto_task *task, uint32_t how)
{
	if (how == PARKED) {
		atomic_fetch_and_explicit(&task->state, ~TOKEN, memory_order_acquire);
		return EALREADY;
	}
	atomic_store(&task->state, how | TOKEN);
	return 0;
}

void switchto_task_stay(struct thread *me)
{
	struct switchto_task *task = me->task;
	uint32_t state;

	window();
	state = atomic_fetch_and(&task->state, TOKEN);

	/* Claimed meanwhile: it is in a queue, and is its own next one sooner or later. */
	if (unlikely(!(state & (PARKED | WAITING))))
		switchto_slot_dispatch(me);
}

/* --- waiters --- */

void switchto_waiter_begin(struct waiter *waiter)
{
	struct thread *me = switchto_current;

	/* In a blocking region a task waits as any thread does. */
	*waiter = (struct waiter){ .task = me && !me->in_region ? me->task : NULL };
}

/*
 * A thread that is no task sleeps in a futex of its own. switchto_wait() might take a resume
 * that is meant for the program.
 */
static int thread_wait(struct waiter *waiter, nsec_t deadline)
{
	while (!atomic_load(&waiter->fired))
		if (switchto_futex_wait(&waiter->fired, 0, deadline) == ETIMEDOUT)
			return atomic_load(&waiter->fired) ? 0 : ETIMEDOUT;
	return 0;
}

int switchto_waiter_wait(struct waiter *waiter, nsec_t deadline, bool cancels)
{
	struct thread *me;
	int error = 0;

	if (!waiter->task)
		return thread_wait(waiter, deadline);
	me = enter();
	if (!me)
		return errno;
	while (!atomic_load(&waiter->fired) && !error) {
		task_prepare(me->task, WAITING);
		if (cancels && task_cancelled(me))
			error = ECANCELED;
		else if (atomic_load(&waiter->fired))
			switchto_task_stay(me);
		else
			error = task_sleep(me, deadline, WAITING);
		if (error == ECANCELED && !cancels)
			error = 0;
	}
	if (atomic_load(&waiter->fired))
		error = 0;
	leave(me);
	spent(me, 0);
	return error;
}

static inline void fire(struct slot *inside, struct waiter *waiter)
{
	struct switchto_task *task = waiter->task;

	atomic_store(&waiter->fired, true);
	window();
	task_wake(inside, task, WAITING, 0, SWITCHTO_WOKEN);
}

void switchto_waiter_fire(struct slot *inside, struct waiter *waiter)
{
	struct switchto_task *task = waiter->task;
	struct thread *me = switchto_current;
	struct switchto_sched *sched;

	if (inside && task) {
		fire(inside, waiter);
	} else if (!task) {
		/* A wake-up too many, of who uses the memory next, does no harm. */
		atomic_store(&waiter->fired, true);
		switchto_futex_wake(&waiter->fired);
	} else if (likely(me && me->sched == task->sched && try_enter(me))) {
		fire(me->slot, waiter);
		leave(me);
	} else {
		/* The task may go on, and its scheduler be destroyed, before it is woken. */
		sched = task->sched;
		atomic_fetch_add(&sched->visitors, 1);
		fire(NULL, waiter);
		atomic_fetch_sub(&sched->visitors, 1);
	}
}

/* --- threads and tasks --- */

void switchto_thread_idle(struct thread *thread)
{
	struct switchto_sched *sched = thread->sched;

	pthread_mutex_lock(&sched->lock);
	thread->next_idle = sched->idle;
	sched->idle = thread;
	pthread_mutex_unlock(&sched->lock);
}

static struct switchto_task *new_task(struct switchto_sched *sched)
{
	const size_t all = ALL_GENERATIONS;
	struct switchto_task *task;
	/* The address is that of the memory, and the offset. */
	char *memory = aligned_alloc(all, (sizeof(*task) + 2 * all - GENERATION_SIZE - 1) & -all);

	if (!memory)
		return NULL;
	task = (struct switchto_task *)(memory + switchto_generation_offset);
	memset(task, 0, sizeof(*task));
	atomic_init(&task->state, FINISHED);
	task->sched = sched;
	pthread_mutex_lock(&sched->lock);
	task->next_of_all = sched->all_tasks;
	sched->all_tasks = task;
	pthread_mutex_unlock(&sched->lock);
	// cppcheck-suppress memleak
	return task;
}

static void free_task(struct switchto_sched *sched, struct switchto_task *task)
{
	atomic_store_explicit(&task->joiner, FREE, memory_order_relaxed);
	pthread_mutex_lock(&sched->lock);
	task->next = sched->free_tasks;
	sched->free_tasks = task;
	pthread_mutex_unlock(&sched->lock);
}

static void task_ended(struct switchto_sched *sched)
{
	if (atomic_fetch_sub(&sched->tasks, 1) == 1)
		for (unsigned int i = 0; i < sched->slots; i++)
			switchto_slot_wake(&sched->slot[i]);
}

/* Inside, and stays there. */
static void end_task(struct thread *me)
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
	me->task = NULL;
	if (me->sched->policy->end)
		me->sched->policy->end(me->slot->queue, &task->entry);
	atomic_store(&task->state, FINISHED);
	if (me->sched->slots > 1)
		atomic_fetch_sub_explicit(&task->slot->tasks, 1, memory_order_relaxed);
	window();
	/* Whoever comes second, this or the call that gives the handle back, frees the task. */
	joiner = atomic_exchange(&task->joiner, ENDED);
	if (joiner == DETACHED || joiner == DROPPED)
		free_task(me->sched, task);
	else if (joiner)
		switchto_waiter_fire(me->slot, joiner);
	if (joiner != DROPPED)
		task_ended(me->sched);
}

/* Of a task that is not to run. */
static void run_nothing(void *arg)
{
	(void)arg;
}

/* How floating-point numbers are rounded, and so on, without what has happened. */
static inline uint32_t fp_control(void)
{
#ifdef __x86_64__
	uint16_t x87;

	__asm__ volatile("fnstcw %0" : "=m"(x87));
	return (__builtin_ia32_stmxcsr() & 0xffc0U) | (uint32_t)x87 << 16;
#elif defined(__aarch64__)
	uint64_t fpcr;

	__asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
	return (uint32_t)fpcr;
#else
	return 0;
#endif
}

static void set_fp_control(uint32_t fp)
{
#ifdef __x86_64__
	const uint16_t x87 = (uint16_t)(fp >> 16);

	__asm__ volatile("fldcw %0" : : "m"(x87));
	__builtin_ia32_ldmxcsr(fp & 0xffffU);
#elif defined(__aarch64__)
	__asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)fp));
#else
	(void)fp;
#endif
}

/*
 * A thread keeps what its last task changed, see switchto_spawn(). What can be seen without a system
 * call is put back.
 */
static inline void begin_clean(const struct thread *me)
{
	errno = 0;
	if (unlikely(fp_control() != me->fp))
		set_fp_control(me->fp);
}

static void run_task(struct thread *me)
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
	(void)arg;
	switchto_misused("a task ended its thread, by pthread_exit() or pthread_cancel(): "
			 "return from the task's function instead");
}

/* Runs tasks, or dispatches, until the thread is to end. */
static void serve(struct thread *me)
{
	while (switchto_slot_await(me)) {
		do
			if (me->task)
				run_task(me);
		while (switchto_slot_dispatch(me) ||
		       (me == me->slot->dispatcher && !switchto_slot_is_over(me->slot)));
		/* A thread that is to end does not own its last slot any more. */
		if (me != me->slot->dispatcher)
			break;
		/* A dispatcher, and there are no tasks left. */
		if (atomic_fetch_sub(&me->sched->at_work, 1) == 1)
			switchto_futex_wake(&me->sched->at_work);
	}
}

static void *thread_main(void *arg)
{
	struct thread *me = arg;

	me->tid = switchto_self();
	sem_post(me->begun);
	if (me->tid == -1)
		return NULL;
	if (me->sched->together)
		switchto_place(SWITCHTO_STAY);
	switchto_current = me;
	me->fp = fp_control();
	pthread_cleanup_push(thread_exits, NULL);
	serve(me);
	pthread_cleanup_pop(false);
	return NULL;
}

void switchto_thread_grant(struct thread *thread, struct slot *slot)
{
	uint32_t epoch = atomic_load(&slot->owner) & ~(OWNER_STATES - 1);

	window();
	atomic_store(&slot->owner, epoch + INSIDE);
	thread->user = epoch + USER;
	atomic_store_explicit(&slot->tid, thread->tid, memory_order_relaxed);
	atomic_store_explicit(&thread->granted, slot, memory_order_release);
	switchto_resume(thread->tid);
}

struct thread *switchto_thread_create(struct switchto_sched *sched)
{
	struct thread *thread = calloc(1, sizeof(*thread));
	pthread_attr_t attr;
	sigset_t mask;
	sem_t begun;
	int error, place;

	if (!thread)
		return NULL;
	/* It would have the mask of a caller that is bound. */
	place = switchto_place(SWITCHTO_FREE);
	thread->sched = sched;
	thread->begun = &begun;
	sem_init(&begun, 0, 0);
	/* Not that of whatever task sleeps just now. */
	if (sched->has_mask)
		pthread_sigmask(SIG_SETMASK, &sched->mask, &mask);
	error = pthread_attr_init(&attr);
	if (!error) {
		if (sched->stack_size)
			error = pthread_attr_setstacksize(&attr, sched->stack_size);
		if (!error)
			error = pthread_create(&thread->pthread, &attr, thread_main, thread);
		pthread_attr_destroy(&attr);
	}
	if (sched->has_mask)
		pthread_sigmask(SIG_SETMASK, &mask, NULL);
	if (!error) {
		while (sem_wait(&begun))
			;
		if (thread->tid == -1) {
			pthread_join(thread->pthread, NULL);
			error = EAGAIN;
		}
	}
	sem_destroy(&begun);
	if (place > SWITCHTO_FREE)
		switchto_place(place);
	if (error) {
		free(thread);
		errno = error;
		return NULL;
	}
	pthread_mutex_lock(&sched->lock);
	thread->next = sched->threads;
	sched->threads = thread;
	pthread_mutex_unlock(&sched->lock);
	return thread;
}

struct thread *switchto_thread_get(struct switchto_sched *sched)
{
	struct thread *thread;

	pthread_mutex_lock(&sched->lock);
	thread = sched->idle;
	if (thread)
		sched->idle = thread->next_idle;
	pthread_mutex_unlock(&sched->lock);
	return thread ? thread : switchto_thread_create(sched);
}

/* A task, used before or new, of a scheduler with a thread at least; or NULL and errno. */
static struct switchto_task *get_task(struct switchto_sched *sched)
{
	struct switchto_task *task;

	if (unlikely(!atomic_load_explicit(&sched->has_thread, memory_order_relaxed))) {
		struct thread *thread = switchto_thread_create(sched);

		if (!thread)
			return NULL;
		switchto_thread_idle(thread);
		atomic_store(&sched->has_thread, true);
	}
	pthread_mutex_lock(&sched->lock);
	task = sched->free_tasks;
	if (task)
		sched->free_tasks = task->next;
	pthread_mutex_unlock(&sched->lock);
	return likely(task) ? task : new_task(sched);
}

/* --- the calls --- */

bool switchto_slot_is_over(struct slot *slot)
{
	struct switchto_sched *sched = slot->sched;
	bool over;

	pthread_mutex_lock(&sched->lock);
	slot->over = over = !atomic_load(&sched->tasks);
	pthread_mutex_unlock(&sched->lock);
	return over;
}

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
		    atomic_load_explicit(&other->tasks, memory_order_relaxed) + CROWD &&
	    !atomic_load(&other->over))
		slot = other;
	atomic_fetch_add_explicit(&slot->tasks, 1, memory_order_relaxed);
	return slot;
}

/* The slot of a new task, which counts from now on. */
static struct slot *slot_for(struct switchto_sched *sched)
{
	struct thread *me = switchto_current;
	struct slot *slot = NULL;

	if (me && me->sched == sched) {
		atomic_fetch_add(&sched->tasks, 1);
		return likely(sched->slots == 1) ? me->slot : slot_near(sched, me->slot);
	}
	/* Slots may be ending just now. One that is not over stays, once the task counts. */
	pthread_mutex_lock(&sched->lock);
	for (unsigned int i = 0; i < sched->slots && (!slot || slot->over); i++)
		slot = &sched->slot[sched->next_slot++ % sched->slots];
	atomic_fetch_add(&sched->tasks, 1);
	atomic_fetch_add_explicit(&slot->tasks, 1, memory_order_relaxed);
	pthread_mutex_unlock(&sched->lock);
	return slot;
}

int switchto_spawn(struct switchto_sched *sched, void (*fn)(void *), void *arg,
		   const struct switchto_task_attr *attr, struct switchto_task **task_out)
{
	struct thread *me = switchto_current;
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
	if (atomic_load(&sched->stopping))
		return fail(ECANCELED);
	task = get_task(sched);
	if (!task)
		return -1;
	task->entry = (struct switchto_entry){ 0 };
	if (attr)
		task->entry.attr = *attr;
	if (unlikely(sched->flags & SWITCHTO_MEASURE))
		memset(&task->stats, 0, sizeof(task->stats));
	atomic_store_explicit(&task->fn, fn, memory_order_relaxed);
	task->arg = arg;
	task->thread = NULL;
	task->timer = 0;
	atomic_store(&task->cancelled, false);
	atomic_store(&task->joiner, task_out ? NULL : DETACHED);
	atomic_store(&task->state, 0);
	task->slot = slot_for(sched);
	if (task_out)
		*task_out = task;
	/* Paired with switchto_sched_stop(), which cancels the tasks that it sees. */
	if (unlikely(atomic_load(&sched->cancels)))
		atomic_store(&task->cancelled, true);
	switchto_slot_ready(NULL, task, SWITCHTO_NEW);
	return 0;
}

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
	free_task(task->sched, task);
	return 0;
}

/* @task will not run: it counts no longer. Its scheduler may be destroyed then. */
static void drop(struct switchto_task *task)
{
	struct switchto_sched *sched = task->sched;

	atomic_fetch_add(&sched->visitors, 1);
	task_ended(sched);
	atomic_fetch_sub(&sched->visitors, 1);
}

/*
 * Waits until @task has ended, and frees it. @ends: cancels it; if it has not begun, and can't begin
 * now, it is not waited for, and does not run. 0 or an error number.
 */
static ALWAYS_INLINE int join(struct switchto_task *task, bool ends)
{
	struct thread *me = switchto_current;
	struct waiter waiter, *other = NULL;
	int error = bad_task(task);

	if (unlikely(error))
		return error;
	if (me && me->task == task)
		return EDEADLK;
	switchto_waiter_begin(&waiter);
	if (!atomic_compare_exchange_strong(&task->joiner, &other, &waiter))
		return give_back(task);
	if (ends) {
		other = &waiter;
		switchto_cancel(task);
		window();
		if (!atomic_load(&task->sched->running) && atomic_load(&task->fn) &&
		    atomic_exchange(&task->fn, run_nothing) &&
		    atomic_compare_exchange_strong(&task->joiner, &other, DROPPED)) {
			drop(task);
			return 0;
		}
	}
	error = switchto_waiter_wait(&waiter, NEVER, !ends);
	if (error) {
		other = &waiter;
		window();
		if (atomic_compare_exchange_strong(&task->joiner, &other, NULL))
			return error;
		/* It ends just now, and will fire. */
		switchto_waiter_wait(&waiter, NEVER, false);
	}
	free_task(task->sched, task);
	return 0;
}

int switchto_join(struct switchto_task *task)
{
	const int error = join(task, false);

	return unlikely(error) ? fail(error) : 0;
}

int switchto_end(struct switchto_task *task)
{
	const int error = join(task, true);

	return error ? fail(error) : 0;
}

int switchto_detach(struct switchto_task *task)
{
	struct waiter *other = NULL;
	int error = bad_task(task);

	if (!error && !atomic_compare_exchange_strong(&task->joiner, &other, DETACHED))
		error = give_back(task);
	return error ? fail(error) : 0;
}

int switchto_cancel(struct switchto_task *task)
{
	const int error = bad_task(task);

	if (error)
		return fail(error);
	if (atomic_load(&task->state) == FINISHED)
		return fail(ESRCH);
	atomic_store(&task->cancelled, true);
	window();
	task_wake(NULL, task, PARKED | WAITING, ECANCELED, SWITCHTO_WOKEN);
	return 0;
}

struct switchto_task *switchto_task_self(void)
{
	return switchto_current ? switchto_current->task : NULL;
}

/* Parked, or with WAITING asleep, where no unpark is for. */
static int pause_task(uint32_t how, nsec_t deadline)
{
	struct thread *me;
	int error;

	if (deadline < 0)
		return fail(EINVAL);
	me = enter();
	if (!me)
		return -1;
	do {
		error = task_prepare(me->task, how);
		if (error == EALREADY) {
			error = 0;
			break;
		}
		error = task_cancelled(me) ? ECANCELED : task_sleep(me, deadline, how);
	} while (!error && how == WAITING);
	leave(me);
	spent(me, 0);
	return error ? fail(error) : 0;
}

int switchto_park(const struct timespec *deadline)
{
	struct switchto_task *task;
	struct thread *me;
	int error;

	if (unlikely(deadline))
		return pause_task(PARKED, switchto_deadline(deadline));
	/* The same, in line. */
	me = enter();
	if (unlikely(!me))
		return -1;
	task = me->task;
	if (unlikely(task_prepare(task, PARKED))) {
		leave(me);
		spent(me, 0);
		return 0;
	}
	if (unlikely(task_cancelled(me))) {
		error = ECANCELED;
	} else {
		probe2(sleep, task, PARKED);
		dispatch_task(me);
		error = task->woken_by;
	}
	leave(me);
	return unlikely(error) ? fail(error) : 0;
}

int switchto_sleep_until(const struct timespec *deadline)
{
	if (!deadline)
		return fail(EINVAL);
	return pause_task(WAITING, switchto_deadline(deadline)) && errno != ETIMEDOUT ? -1 : 0;
}

int switchto_unpark(struct switchto_task *task)
{
	uint32_t state;

	if (unlikely(!task))
		return fail(EINVAL);
	state = atomic_load(&task->state);
	do {
		if (state & FINISHED)
			return fail(ESRCH);
		if (state & TOKEN)
			return 0;
	} while (!atomic_compare_exchange_weak(&task->state, &state,
					       state & PARKED ? 0 : state | TOKEN));
	window();
	if (!(state & PARKED))
		return 0;
	return ready(switchto_current, task, true);
}
