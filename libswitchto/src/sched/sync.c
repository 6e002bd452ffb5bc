// SPDX-License-Identifier: MIT
/*
 * Locks that hand over. A mutex is one word: 0, LOCKED, or the newest of those who wait for it,
 * who form a stack. Who has the mutex turns the stack round into a list of its own, the oldest
 * first, when that list is empty. So unlock gives the mutex to the oldest without another lock.
 */
#include "dispatch.h"

#define UNLOCKED NULL
#define LOCKED ((void *)1)

struct queued {
	struct waiter waiter;
	struct queued *next, *prev;
	void *who; /* for a mutex: the thread that will have it; in a queue: not NULL while it is there */
};

/* A task, or another thread. */
static inline void *myself(struct thread *me)
{
	return likely(me && me->task) ? (void *)me->task : (void *)&switchto_current;
}

/* --- mutexes --- */

/* A task that has locked one must not end. */
static inline void count_held(struct thread *me, unsigned int more)
{
	if (likely(me && me->task))
		me->task->held += more;
}

static inline bool try_lock(struct switchto_mutex *mutex, void *who)
{
	void *word = UNLOCKED;

	if (!__atomic_compare_exchange_n(&mutex->word, &word, LOCKED, false, __ATOMIC_ACQUIRE,
					 __ATOMIC_RELAXED))
		return false;
	__atomic_store_n(&mutex->owner, who, __ATOMIC_RELAXED);
	return true;
}

/*
 * Locks @mutex, or puts @queued on its stack: then who unlocks it makes @who its owner. The last
 * one's next is LOCKED.
 */
static inline bool lock_or_push(struct switchto_mutex *mutex, struct queued *queued, void *who)
{
	void *word = __atomic_load_n(&mutex->word, __ATOMIC_RELAXED);

	for (;;) {
		if (unlikely(word == UNLOCKED)) {
			if (try_lock(mutex, who))
				return true;
			word = __atomic_load_n(&mutex->word, __ATOMIC_RELAXED);
			continue;
		}
		queued->next = word;
		if (likely(__atomic_compare_exchange_n(&mutex->word, &word, queued, false,
						       __ATOMIC_RELEASE, __ATOMIC_RELAXED)))
			return false;
	}
}

/* @who is a thread, or a task in a blocking region: it waits as any thread does. */
static __attribute__((noinline)) int lock_in_thread(struct switchto_mutex *mutex, void *who)
{
	struct queued queued = { .who = who };

	if (__atomic_load_n(&mutex->owner, __ATOMIC_RELAXED) == who)
		return fail(EDEADLK);
	if (!lock_or_push(mutex, &queued, who))
		switchto_waiter_wait(&queued.waiter, NEVER, false);
	return 0;
}

static inline void end_locking(struct switchto_task *task)
{
	task->held++;
	atomic_fetch_and_explicit(&task->state, ~(uint32_t)LOCKING, memory_order_relaxed);
}

/* Inside, and leaves. 0 */
static ALWAYS_INLINE int lock_inside(struct switchto_mutex *mutex, struct thread *me,
				     struct switchto_task *task)
{
	struct queued queued;

	queued.waiter.task = task;
	atomic_fetch_or_explicit(&task->state, LOCKING, memory_order_relaxed);
	if (likely(!lock_or_push(mutex, &queued, task))) {
		window();
		probe2(sleep, task, LOCKING);
		dispatch_task(me);
	} else {
		end_locking(task);
	}
	leave(me);
	return 0;
}

/* Of a task that has lost its slot, is in a blocking region, or in the scheduler already. */
static __attribute__((noinline)) int lock_late(struct switchto_mutex *mutex, struct thread *me,
					       struct switchto_task *task)
{
	if (enter_task(me))
		return lock_inside(mutex, me, task);
	if (!me->in_region || lock_in_thread(mutex, task))
		return fail(EDEADLK);
	task->held++;
	return 0;
}

static __attribute__((noinline)) int lock_in_task(struct switchto_mutex *mutex, struct thread *me,
						  struct switchto_task *task)
{
	if (unlikely(__atomic_load_n(&mutex->owner, __ATOMIC_RELAXED) == task))
		return fail(EDEADLK);
	return likely(try_enter(me)) ? lock_inside(mutex, me, task) : lock_late(mutex, me, task);
}

int switchto_mutex_lock(struct switchto_mutex *mutex)
{
	struct thread *me = switchto_current;
	struct switchto_task *task = likely(me) ? me->task : NULL;

	if (unlikely(!task))
		return try_lock(mutex, &switchto_current) ?
			       0 :
			       lock_in_thread(mutex, &switchto_current);
	if (unlikely(!try_lock(mutex, task)))
		return lock_in_task(mutex, me, task);
	task->held++;
	return 0;
}

int switchto_mutex_trylock(struct switchto_mutex *mutex)
{
	struct thread *me = switchto_current;

	if (!try_lock(mutex, myself(me)))
		return fail(EBUSY);
	count_held(me, 1);
	return 0;
}

/* The oldest of those who wait for @mutex. The others become the list. */
static inline struct queued *take_oldest(struct switchto_mutex *mutex)
{
	struct queued *newest = __atomic_exchange_n(&mutex->word, LOCKED, __ATOMIC_ACQUIRE);
	struct queued *list = NULL, *older;

	if (likely(newest->next == LOCKED))
		return newest;
	for (; (older = newest->next) != LOCKED; newest = older) {
		newest->next = list;
		list = newest;
	}
	mutex->waiters = list;
	return newest;
}

/* False: somebody has come to wait for @mutex. */
static inline bool try_unlock(struct switchto_mutex *mutex)
{
	void *word = LOCKED;

	if (__atomic_load_n(&mutex->word, __ATOMIC_RELAXED) != word)
		return false;
	__atomic_store_n(&mutex->owner, NULL, __ATOMIC_RELAXED);
	window();
	return __atomic_compare_exchange_n(&mutex->word, &word, UNLOCKED, false, __ATOMIC_RELEASE,
					   __ATOMIC_RELAXED);
}

/* Gives @mutex, which the caller has, to @next. 0 */
static __attribute__((noinline)) int give_to_thread(struct switchto_mutex *mutex,
						    struct queued *next)
{
	__atomic_store_n(&mutex->owner, next->who, __ATOMIC_RELAXED);
	switchto_waiter_fire(NULL, &next->waiter);
	return 0;
}

static ALWAYS_INLINE int give(struct switchto_mutex *mutex, struct thread *me, struct queued *next)
{
	struct switchto_task *task = next->waiter.task;

	window();
	if (unlikely(!task))
		return give_to_thread(mutex, next);
	__atomic_store_n(&mutex->owner, task, __ATOMIC_RELAXED);
	end_locking(task);
	window();
	return ready(me, task, false);
}

static __attribute__((noinline)) int not_owner(void)
{
	return fail(EPERM);
}

int switchto_mutex_unlock(struct switchto_mutex *mutex)
{
	struct thread *me = switchto_current;
	struct queued *next = mutex->waiters;

	if (unlikely(__atomic_load_n(&mutex->owner, __ATOMIC_RELAXED) != myself(me)))
		return not_owner();
	count_held(me, -1U);
	if (unlikely(next)) {
		mutex->waiters = next->next;
		return give(mutex, me, next);
	}
	return likely(try_unlock(mutex)) ? 0 : give(mutex, me, take_oldest(mutex));
}

/* --- queues --- */

static void append(struct switchto_queue *queue, struct queued *queued)
{
	struct queued *last = queue->last;

	queued->next = NULL;
	queued->prev = last;
	if (last)
		last->next = queued;
	else
		queue->first = queued;
	queue->last = queued;
	queued->who = queue;
}

static void take_out(struct switchto_queue *queue, struct queued *queued)
{
	if (queued->next)
		queued->next->prev = queued->prev;
	else
		queue->last = queued->prev;
	if (queued->prev)
		queued->prev->next = queued->next;
	else
		queue->first = queued->next;
	queued->who = NULL;
}

static struct queued *take_first(struct switchto_queue *queue)
{
	struct queued *first = queue->first;

	if (first)
		take_out(queue, first);
	return first;
}

/* The caller has queue->lock, and does not afterwards. 0 or an error number. */
static int wait_in(struct switchto_queue *queue, nsec_t deadline, struct switchto_mutex *mutex)
{
	struct queued queued;
	int error;

	switchto_waiter_begin(&queued.waiter);
	append(queue, &queued);
	switchto_mutex_unlock(&queue->lock);
	if (mutex)
		switchto_mutex_unlock(mutex);
	error = switchto_waiter_wait(&queued.waiter, deadline, true);
	if (error) {
		bool still_there;

		switchto_mutex_lock(&queue->lock);
		still_there = queued.who;
		if (still_there)
			take_out(queue, &queued);
		switchto_mutex_unlock(&queue->lock);
		if (!still_there) {
			/* Who has taken it out will fire. */
			switchto_waiter_wait(&queued.waiter, NEVER, false);
			error = 0;
		}
	}
	return error;
}

/* --- condition variables --- */

int switchto_cond_wait(struct switchto_cond *cond, struct switchto_mutex *mutex,
		       const struct timespec *deadline)
{
	nsec_t until = switchto_deadline(deadline);
	int error;

	if (until < 0)
		return fail(EINVAL);
	if (__atomic_load_n(&mutex->owner, __ATOMIC_RELAXED) != myself(switchto_current))
		return fail(EPERM);
	switchto_mutex_lock(&cond->queue.lock);
	error = wait_in(&cond->queue, until, mutex);
	switchto_mutex_lock(mutex);
	return error ? fail(error) : 0;
}

void switchto_cond_signal(struct switchto_cond *cond)
{
	struct queued *first;

	switchto_mutex_lock(&cond->queue.lock);
	first = take_first(&cond->queue);
	switchto_mutex_unlock(&cond->queue.lock);
	if (first)
		switchto_waiter_fire(NULL, &first->waiter);
}

/* @first and those behind it, which have been taken out together. */
static void fire_all(struct queued *first)
{
	for (struct queued *next; first; first = next) {
		next = first->next;
		switchto_waiter_fire(NULL, &first->waiter);
	}
}

static struct queued *take_all(struct switchto_queue *queue)
{
	struct queued *first = queue->first;

	for (struct queued *queued = first; queued; queued = queued->next)
		queued->who = NULL;
	queue->first = queue->last = NULL;
	return first;
}

void switchto_cond_broadcast(struct switchto_cond *cond)
{
	struct queued *all;

	switchto_mutex_lock(&cond->queue.lock);
	all = take_all(&cond->queue);
	switchto_mutex_unlock(&cond->queue.lock);
	fire_all(all);
}

/* --- semaphores --- */

int switchto_sem_wait(struct switchto_sem *sem, const struct timespec *deadline)
{
	nsec_t until = switchto_deadline(deadline);
	int error;

	if (until < 0)
		return fail(EINVAL);
	switchto_mutex_lock(&sem->queue.lock);
	if (sem->count) {
		sem->count--;
		switchto_mutex_unlock(&sem->queue.lock);
		spent_by(switchto_current);
		return 0;
	}
	error = wait_in(&sem->queue, until, NULL);
	return error ? fail(error) : 0;
}

void switchto_sem_post(struct switchto_sem *sem)
{
	struct queued *first;

	switchto_mutex_lock(&sem->queue.lock);
	first = take_first(&sem->queue);
	if (!first)
		sem->count++;
	switchto_mutex_unlock(&sem->queue.lock);
	if (first)
		switchto_waiter_fire(NULL, &first->waiter);
}

/* --- groups --- */

void switchto_group_add(struct switchto_group *group, unsigned long count)
{
	switchto_mutex_lock(&group->queue.lock);
	group->count += count;
	switchto_mutex_unlock(&group->queue.lock);
}

int switchto_group_done(struct switchto_group *group)
{
	struct queued *all = NULL;
	bool bad;

	switchto_mutex_lock(&group->queue.lock);
	bad = !group->count;
	if (!bad && !--group->count)
		all = take_all(&group->queue);
	switchto_mutex_unlock(&group->queue.lock);
	fire_all(all);
	return bad ? fail(EINVAL) : 0;
}

int switchto_group_wait(struct switchto_group *group, const struct timespec *deadline)
{
	nsec_t until = switchto_deadline(deadline);
	int error;

	if (until < 0)
		return fail(EINVAL);
	switchto_mutex_lock(&group->queue.lock);
	if (!group->count) {
		switchto_mutex_unlock(&group->queue.lock);
		return 0;
	}
	error = wait_in(&group->queue, until, NULL);
	return error ? fail(error) : 0;
}
