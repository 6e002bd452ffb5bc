// SPDX-License-Identifier: MIT
/*
 * Locks. A mutex is one word: flags, and the newest waiter. The waiters form a stack. The thread that
 * has the mutex turns the stack round into a list of its own, the oldest first, when that list is
 * empty. So unlock finds the oldest without another lock.
 *
 * Unlock wakes the oldest, and whoever comes first may lock the mutex: mostly a task that runs.
 * The oldest stays in the list meanwhile. While it is on its way (WOKEN), nobody else is woken. If
 * it finds the mutex locked, it sleeps again. For long after it was first woken, unlock gives it
 * the mutex, also while it is on its way (GIVEN): it may be the next one on the slot of a task
 * that locks the mutex again and again. The time before that does not count: after a pause in
 * which many have come, each would be given the mutex, and that costs switches, which make more
 * wait. A mutex that is STRICT is always given: then each short section that is contended costs a
 * switch, or a wake-up of another slot.
 *
 * Where tasks inherit (inherit.h), each step but an uncontended lock or unlock is done with that
 * lock. The oldest that was woken inherits, too: it must run before the others can be served.
 *
 * mutex->owner names the task or thread that has the mutex. It is NULL for a moment after each lock
 * and before each unlock. UNSURE with a task: unlock gives the mutex to that task, which may leave
 * instead.
 */
#define _GNU_SOURCE
#include "sync.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum {
	LOCKED = 1,
	WOKEN = 2,
	GIVEN = 4, /* with WOKEN: LOCKED is that of the oldest */
	STRICT = SWITCHTO_STRICT,
	FLAGS = 15,
};

/* In mutex->owner, with a task: it may be gone, and is not looked at. */
#define UNSURE ((uintptr_t)2)

/* So long after the oldest was first woken, others may come first. */
#define PATIENCE (NSEC_PER_SEC / 1000)

/* To look at the clock costs as much as a section. After a short time, so many unlocks do not look. */
enum { SHORT = 20000, UNSEEN = 16 };

struct queued {
	_Alignas(FLAGS + 1) struct waiter waiter;
	void *who; /* for a mutex: who waits; in a queue: that, or NULL once it is claimed */
	struct queued *next, *prev;
	nsec_t since; /* when it was first woken for the mutex; 0: not yet */
	nsec_t seen;  /* when unlock looked at the clock; and how many do not look from then on */
	unsigned int unseen;
	bool given;		     /* the mutex; set before it is woken */
	_Atomic unsigned char timed; /* UNTIMED, or how far a wait with a deadline is */
};

/*
 * A wait with a deadline may be left. Only the thread that has the mutex takes a waiter out of the
 * list; so what is left stays there until then, in memory of its own. It is claimed before it is
 * woken. Each thread has one, and takes it up again when it next waits for the same mutex: so a
 * thread that tries again and again keeps its place, and takes no more memory.
 */
enum {
	UNTIMED,
	WAITS,	 /* in the list */
	CLAIMED, /* in the list, to be woken or given the mutex */
	LEFT,	 /* in the list, but not waiting */
	ORPHAN,	 /* the same, and whoever takes it out frees it */
	OUT,	 /* of all lists */
};

struct timed {
	_Alignas(ALL_GENERATIONS) char memory[ALL_GENERATIONS + sizeof(struct queued)];
	struct waiter waiter; /* that of the struct queued in memory is not used */
	const struct switchto_mutex *mutex;
	unsigned int generation;
};
_Static_assert(offsetof(struct queued, who) == sizeof(struct waiter) &&
		       offsetof(struct timed, mutex) ==
			       offsetof(struct timed, waiter) + sizeof(struct waiter),
	       "awaited()");

/* Where a call has its struct queued: at the address of this generation. */
struct place {
	_Alignas(ALL_GENERATIONS) char memory[ALL_GENERATIONS + sizeof(struct queued)];
};

static inline struct queued *queued_in(struct place *place)
{
	return (struct queued *)(place->memory + switchto_generation_offset);
}

static inline struct queued *queued_of(struct timed *timed)
{
	return (struct queued *)(timed->memory + switchto_generation_offset);
}

static inline struct timed *timed_of(struct queued *queued)
{
	return (struct timed *)((char *)queued - switchto_generation_offset);
}

/* @queued, of a list of an object, or NULL: those who wait in the parent do not wait here. */
static inline struct queued *own(struct queued *queued)
{
	return unlikely(switchto_generation) && is_ancestors(queued) ? NULL : queued;
}

static __attribute__((noinline)) void *this_thread(void)
{
	// NOLINTNEXTLINE(performance-no-int-to-ptr): never dereferenced
	return (void *)(likely(switchto_thread) ? switchto_thread : switchto_new_thread());
}

/* A task, or another thread. */
static inline void *myself(struct worker *me)
{
	return likely(me && me->task) ? (void *)me->task : this_thread();
}

/* Has @me locked @mutex? */
static inline bool has_locked(const struct switchto_mutex *mutex, struct worker *me)
{
	return __atomic_load_n(&mutex->owner, __ATOMIC_RELAXED) == myself(me);
}

/* Is @owner of a mutex in a process whose child this is? */
static inline bool owned_before_fork(const void *owner)
{
	if (likely(!switchto_generation))
		return false;
	if ((uintptr_t)owner & 1)
		return switchto_is_gone((uintptr_t)owner);
	return owner && is_ancestors((const char *)owner - ((uintptr_t)owner & UNSURE));
}

/* @who can't lock @mutex: an error number, or 0: it is worth waiting. */
static inline int bad_lock(struct switchto_mutex *mutex, const void *who)
{
	const void *owner = __atomic_load_n(&mutex->owner, __ATOMIC_RELAXED);

	if (unlikely(owner == who))
		return EDEADLK;
	return unlikely(owned_before_fork(owner)) ? EPERM : 0;
}

/* --- mutexes --- */

/* If not, acquires what @word is then. */
static inline bool change(struct switchto_mutex *mutex, uintptr_t *word, uintptr_t to, int order)
{
	return __atomic_compare_exchange_n(&mutex->word, word, to, false, order, __ATOMIC_ACQUIRE);
}

/* A release: as_task() reads task->sched, which may have been written since the last unlock. */
static inline void set_owner(struct switchto_mutex *mutex, void *who)
{
	__atomic_store_n(&mutex->owner, who, __ATOMIC_RELEASE);
}

static inline void set_no_owner(struct switchto_mutex *mutex)
{
	__atomic_store_n(&mutex->owner, NULL, __ATOMIC_RELAXED);
}

/* Locks @mutex unless it is locked; some may wait for it. */
static inline bool try_lock(struct switchto_mutex *mutex, void *who)
{
	uintptr_t word = 0;

	if (unlikely(!change(mutex, &word, LOCKED, __ATOMIC_ACQUIRE)))
		do
			if (word & LOCKED)
				return false;
		while (!change(mutex, &word, word | LOCKED, __ATOMIC_ACQUIRE));
	set_owner(mutex, who);
	return true;
}

/*
 * Locks @mutex, or puts @queued on its stack. Acquires what the one that has it knew: holder_of().
 */
static inline bool lock_or_push(struct switchto_mutex *mutex, struct queued *queued, void *who)
{
	uintptr_t word = __atomic_load_n(&mutex->word, __ATOMIC_RELAXED);

	queued->since = 0;
	queued->unseen = 0;
	queued->given = false;
	for (;;) {
		if (unlikely(!(word & LOCKED))) {
			if (try_lock(mutex, who))
				return true;
			word = __atomic_load_n(&mutex->word, __ATOMIC_RELAXED);
			continue;
		}
		// NOLINTNEXTLINE(performance-no-int-to-ptr)
		queued->next = own((struct queued *)(word & ~(uintptr_t)FLAGS));
		if (likely(change(mutex, &word, (uintptr_t)queued | (word & FLAGS),
				  __ATOMIC_ACQ_REL)))
			return false;
	}
}

/* @queued, the oldest, has been woken: locks @mutex. False: it is to sleep, and can be woken. */
static bool lock_or_stay(struct switchto_mutex *mutex, struct queued *queued)
{
	uintptr_t word = __atomic_load_n(&mutex->word, __ATOMIC_RELAXED);

	for (;;) {
		window();
		if (!(word & LOCKED) || word & GIVEN) {
			if (!change(mutex, &word, (word | LOCKED) & ~(uintptr_t)(WOKEN | GIVEN),
				    __ATOMIC_ACQUIRE))
				continue;
			set_owner(mutex, queued->who);
			mutex->waiters = queued->next;
			return true;
		}
		if (change(mutex, &word, word & ~(uintptr_t)WOKEN, __ATOMIC_ACQ_REL))
			return false;
	}
}

/* --- mutexes, where tasks inherit --- */

/* @me, which may be NULL: is it a task of such a scheduler? */
static inline bool inherits(const struct worker *me)
{
	return me && me->sched->inherit && me->task;
}

/* @who of a mutex: as a task of @sched, or NULL. It has the mutex, or waits for it. */
static struct switchto_task *as_task(const struct switchto_sched *sched, void *who)
{
	struct switchto_task *task = who;

	return task && !((uintptr_t)who & (1 | UNSURE)) && task->sched == sched ? task : NULL;
}

/* So often holder_of() looks: first at once, then every 50 us. */
enum { LOOKS_AT_ONCE = 10, LOOKS = 30 };

/*
 * The task of @sched that has @mutex, or NULL. The caller is, or was just now, in the list of
 * @mutex, and has the lock: a task of @sched that has @mutex does not unlock it as long as others
 * wait. A thread that has just locked it stores its name next; one that was preempted there, or is
 * gone since a fork, is not waited for: what the caller passes on, others take up that begin to
 * wait.
 */
static struct switchto_task *holder_of(const struct switchto_sched *sched,
				       const struct switchto_mutex *mutex)
{
	void *owner;

	for (int i = 0; i < LOOKS; i++) {
		owner = __atomic_load_n(&mutex->owner, __ATOMIC_ACQUIRE);
		if (owner)
			return as_task(sched, owner);
		if (!(__atomic_load_n(&mutex->word, __ATOMIC_ACQUIRE) & LOCKED))
			break;
		if (i < LOOKS_AT_ONCE)
			sched_yield();
		else
			nanosleep(&(struct timespec){ .tv_nsec = 50000 }, NULL);
	}
	return NULL;
}

static __attribute__((noinline)) bool inherit_or_push(struct switchto_mutex *mutex,
						      struct queued *queued,
						      struct switchto_task *task)
{
	bool locked;

	inherit_lock(task->sched);
	locked = lock_or_push(mutex, queued, task);
	window();
	if (locked)
		switchto_inherit_has(task, mutex);
	else
		switchto_inherit_wait(task, mutex, holder_of(task->sched, mutex));
	inherit_unlock(task->sched);
	return locked;
}

/* @leaves: it does not sleep again. */
static __attribute__((noinline)) bool inherit_or_stay(struct switchto_mutex *mutex,
						      struct queued *queued,
						      struct switchto_task *task, bool leaves)
{
	bool locked;

	inherit_lock(task->sched);
	locked = lock_or_stay(mutex, queued);
	window();
	if (locked)
		switchto_inherit_has(task, mutex);
	else if (leaves)
		switchto_inherit_leave(task, mutex, holder_of(task->sched, mutex));
	else
		switchto_inherit_wait(task, mutex, holder_of(task->sched, mutex));
	inherit_unlock(task->sched);
	return locked;
}

/* It was given @mutex. */
static __attribute__((noinline)) void inherit_given(const struct switchto_mutex *mutex,
						    struct switchto_task *task)
{
	inherit_lock(task->sched);
	switchto_inherit_has(task, mutex);
	inherit_unlock(task->sched);
}

/* Its deadline has passed. False: it has been claimed, and somebody is about to wake it. */
static __attribute__((noinline)) bool inherit_not(struct queued *queued, struct switchto_task *task)
{
	unsigned char waits = WAITS;
	bool left;

	inherit_lock(task->sched);
	left = atomic_compare_exchange_strong(&queued->timed, &waits, LEFT);
	window();
	if (left)
		switchto_inherit_give_up(task);
	inherit_unlock(task->sched);
	return left;
}

/* It has taken its place among those that wait again. */
static __attribute__((noinline)) void inherit_again(const struct switchto_mutex *mutex,
						    struct switchto_task *task)
{
	inherit_lock(task->sched);
	switchto_inherit_wait(task, mutex, holder_of(task->sched, mutex));
	inherit_unlock(task->sched);
}

/* --- mutexes, when they are locked --- */

/* @who is a thread, or a task in a blocking region: it waits as any thread does. */
static __attribute__((noinline)) int lock_in_thread(struct switchto_mutex *mutex, void *who)
{
	struct worker *me = switchto_current;
	struct switchto_task *task = inherits(me) ? me->task : NULL;
	struct place place;
	struct queued *queued = queued_in(&place);
	int error = bad_lock(mutex, who);

	if (!error && is_between_tasks(switchto_current))
		error = EDEADLK;
	if (error)
		return fail(error);
	switchto_waiter_begin_thread(&queued->waiter);
	queued->who = who;
	atomic_init(&queued->timed, UNTIMED);
	if (task ? inherit_or_push(mutex, queued, task) : lock_or_push(mutex, queued, who))
		return 0;
	do {
		error = switchto_waiter_wait(&queued->waiter, NEVER, ON_MUTEX);
		if (error)
			return fail(error);
		atomic_store(&queued->waiter.fired, false);
		if (queued->given) {
			if (task)
				inherit_given(mutex, task);
			return 0;
		}
	} while (!(task ? inherit_or_stay(mutex, queued, task, false) :
			  lock_or_stay(mutex, queued)));
	return 0;
}

static inline void begin_locking(struct switchto_task *task)
{
	atomic_fetch_or_explicit(&task->state, LOCKING, memory_order_relaxed);
}

static inline void end_locking(struct switchto_task *task)
{
	atomic_fetch_and_explicit(&task->state, ~(uint32_t)LOCKING, memory_order_relaxed);
}

/* lock_inside() of one that was woken, and was not given the mutex. */
static __attribute__((noinline)) void lock_again(struct switchto_mutex *mutex, struct worker *me,
						 struct queued *queued)
{
	do {
		begin_locking(me->task);
		if (lock_or_stay(mutex, queued)) {
			end_locking(me->task);
			return;
		}
		window();
		sleep_in_line(me, LOCKING, ON_MUTEX | LOCKING, mutex);
	} while (!queued->given);
}

/* Inside, and leaves. 0 */
static ALWAYS_INLINE int lock_inside(struct switchto_mutex *mutex, struct worker *me,
				     struct switchto_task *task)
{
	struct place place;
	struct queued *queued = queued_in(&place);

	queued->waiter.task = task;
	queued->who = task;
	atomic_init(&queued->timed, UNTIMED);
	begin_locking(task);
	if (likely(!lock_or_push(mutex, queued, task))) {
		window();
		sleep_in_line(me, LOCKING, ON_MUTEX | LOCKING, mutex);
		if (!queued->given)
			lock_again(mutex, me, queued);
	} else {
		end_locking(task);
	}
	task->held++;
	leave(me);
	return 0;
}

/* The same, where tasks inherit. */
static __attribute__((noinline)) int lock_inheriting(struct switchto_mutex *mutex,
						     struct worker *me, struct switchto_task *task)
{
	struct place place;
	struct queued *queued = queued_in(&place);
	bool locked;

	queued->waiter.task = task;
	queued->who = task;
	atomic_init(&queued->timed, UNTIMED);
	begin_locking(task);
	locked = inherit_or_push(mutex, queued, task);
	/*
	 * Once it is in the list, it is woken, and made ready for that: also if that was before it
	 * sleeps.
	 */
	while (!locked) {
		window();
		sleep_in_line(me, LOCKING, ON_MUTEX | LOCKING, mutex);
		if (queued->given)
			break;
		begin_locking(task);
		locked = inherit_or_stay(mutex, queued, task, false);
	}
	if (locked)
		end_locking(task);
	else
		inherit_given(mutex, task);
	task->held++;
	leave(me);
	return 0;
}

static ALWAYS_INLINE int lock_entered(struct switchto_mutex *mutex, struct worker *me,
				      struct switchto_task *task)
{
	return unlikely(me->sched->inherit) ? lock_inheriting(mutex, me, task) :
					      lock_inside(mutex, me, task);
}

/* Of a task that has lost its slot, is in a blocking region, or in the scheduler already. */
static __attribute__((noinline)) int lock_late(struct switchto_mutex *mutex, struct worker *me,
					       struct switchto_task *task)
{
	if (enter_task(me))
		return lock_entered(mutex, me, task);
	if (!me->in_region)
		return fail(EDEADLK);
	if (lock_in_thread(mutex, task))
		return -1;
	task->held++;
	return 0;
}

static __attribute__((noinline)) int lock_in_task(struct switchto_mutex *mutex, struct worker *me,
						  struct switchto_task *task)
{
	const int error = bad_lock(mutex, task);

	if (unlikely(error))
		return fail(error);
	return likely(try_enter(me)) ? lock_entered(mutex, me, task) : lock_late(mutex, me, task);
}

int switchto_mutex_lock(struct switchto_mutex *mutex)
{
	struct worker *me = switchto_current;
	struct switchto_task *task = likely(me) ? me->task : NULL;

	if (unlikely(!task))
		return try_lock(mutex, this_thread()) ? 0 : lock_in_thread(mutex, this_thread());
	if (unlikely(!try_lock(mutex, task)))
		return lock_in_task(mutex, me, task);
	/* A task that has locked one must not end. */
	task->held++;
	return 0;
}

int switchto_mutex_trylock(struct switchto_mutex *mutex)
{
	struct worker *me = switchto_current;

	if (!try_lock(mutex, myself(me)))
		return switchto_dispatch_fail(EBUSY);
	if (me && me->task)
		me->task->held++;
	return 0;
}

/* False: somebody waits for @mutex, or it is STRICT. */
static inline bool try_unlock(struct switchto_mutex *mutex)
{
	uintptr_t word = LOCKED;

	if (__atomic_load_n(&mutex->word, __ATOMIC_RELAXED) != word)
		return false;
	set_no_owner(mutex);
	window();
	return change(mutex, &word, 0, __ATOMIC_RELEASE);
}

/* The stack that begins with @newest, turned round. */
static inline struct queued *turn_round(struct queued *newest)
{
	struct queued *list = NULL, *older;

	for (; (older = newest->next); newest = older) {
		newest->next = list;
		list = newest;
	}
	newest->next = list;
	return newest;
}

/* @first is to be woken now, or has been: for too long? */
static bool is_late(struct queued *first)
{
	nsec_t now;

	if (first->unseen) {
		first->unseen--;
		return false;
	}
	now = switchto_now();
	if (!first->since)
		first->since = now;
	else if (now - first->seen < SHORT)
		first->unseen = UNSEEN;
	first->seen = now;
	return now - first->since >= PATIENCE;
}

/* Of a thread, or of a wait with a deadline. */
static __attribute__((noinline)) void wake_waiter(struct queued *queued)
{
	struct waiter *waiter = atomic_load(&queued->timed) ? &timed_of(queued)->waiter :
							      &queued->waiter;

	if (waiter->task)
		atomic_store_explicit(&waiter->task->is_next, true, memory_order_relaxed);
	switchto_waiter_fire(NULL, waiter);
}

/* 0 */
static ALWAYS_INLINE int wake(struct worker *me, struct queued *queued)
{
	struct switchto_task *task = queued->waiter.task;

	window();
	if (unlikely(!task)) {
		wake_waiter(queued);
		return 0;
	}
	end_locking(task);
	atomic_store_explicit(&task->is_next, true, memory_order_relaxed);
	window();
	return ready(me, task, false);
}

/* Drops those who wait for @mutex in the parent of this process. The caller has it. */
static void drop_ancestors(struct switchto_mutex *mutex)
{
	uintptr_t word;

	if (likely(!switchto_generation))
		return;
	/* The flags are of the oldest. */
	if (!own(mutex->waiters)) {
		mutex->waiters = NULL;
		__atomic_fetch_and(&mutex->word, ~(uintptr_t)(WOKEN | GIVEN), __ATOMIC_RELAXED);
	}
	word = __atomic_load_n(&mutex->word, __ATOMIC_RELAXED);
	// NOLINTNEXTLINE(performance-no-int-to-ptr)
	while (!own((struct queued *)(word & ~(uintptr_t)FLAGS)) &&
	       !change(mutex, &word, word & FLAGS, __ATOMIC_ACQUIRE))
		;
}

static inline bool is_timed(struct queued *queued)
{
	return atomic_load_explicit(&queued->timed, memory_order_relaxed) != UNTIMED;
}

/* The first one of @mutex is timed, and to be woken. False: it has been left, and is out. */
static __attribute__((noinline)) bool claim_timed(struct switchto_mutex *mutex)
{
	struct queued *first = mutex->waiters, *next = first->next;
	unsigned char state = atomic_load(&first->timed);

	while (state != CLAIMED) {
		if (state == ORPHAN)
			break;
		window();
		if (atomic_compare_exchange_weak(&first->timed, &state,
						 state == WAITS ? CLAIMED : OUT))
			break;
	}
	if (state == CLAIMED || state == WAITS)
		return true;
	mutex->waiters = next;
	if (state == ORPHAN)
		free(timed_of(first));
	return false;
}

/* Of a step of an unlock, that is neither 0 nor -1. */
enum {
	AGAIN = 1, /* the word has changed */
	TIMED,	   /* the first one is timed: for unlock_timed() */
};

/* An unlock where tasks inherit. */
struct passing {
	struct switchto_task *task; /* that unlocks */
	struct queued *to_wake;	    /* afterwards, or NULL */
};

/* If @first is NULL, and some have come: these. 0 or AGAIN */
static ALWAYS_INLINE int take_new(struct switchto_mutex *mutex, struct queued **first,
				  uintptr_t *word)
{
	if (*first || *word <= FLAGS)
		return 0;
	if (!change(mutex, word, *word & FLAGS, __ATOMIC_ACQUIRE))
		return AGAIN;
	// NOLINTNEXTLINE(performance-no-int-to-ptr)
	*first = turn_round((struct queued *)(*word & ~(uintptr_t)FLAGS));
	mutex->waiters = *first;
	*word &= FLAGS;
	return 0;
}

/*
 * Where tasks inherit, with the lock: @who gets the mutex next, or NULL. If that is no task of this
 * scheduler, it may have it already. @to_wake is woken without the lock.
 */
static int pass_on(const struct switchto_mutex *mutex, struct passing *passing, void *who,
		   struct queued *to_wake)
{
	window();
	switchto_inherit_pass(passing->task, mutex, as_task(passing->task->sched, who));
	passing->to_wake = to_wake;
	return 0;
}

/* @who, which is on its way, does not leave if it has to take the lock of @passing for that. */
static inline void *name_of_next(void *who, const struct passing *passing)
{
	if ((uintptr_t)who & 1 || (passing && as_task(passing->task->sched, who)))
		return who;
	return (char *)who + UNSURE;
}

/* @first has the mutex now. */
static ALWAYS_INLINE int give(struct switchto_mutex *mutex, struct worker *me, struct queued *first,
			      uintptr_t *word, struct passing *passing)
{
	void *who = first->who;

	if (*word & WOKEN) {
		set_owner(mutex, name_of_next(who, passing));
		if (!change(mutex, word, *word | GIVEN, __ATOMIC_RELEASE))
			return AGAIN;
		return passing ? pass_on(mutex, passing, who, NULL) : 0;
	}
	set_owner(mutex, who);
	mutex->waiters = first->next;
	first->given = true;
	return passing ? pass_on(mutex, passing, who, first) : wake(me, first);
}

/* Whoever comes first may lock the mutex now; @first, or NULL, is woken for that. */
static ALWAYS_INLINE int set_free(struct switchto_mutex *mutex, struct worker *me,
				  struct queued *first, uintptr_t *word, struct passing *passing)
{
	const uintptr_t unlocked = *word & ~(uintptr_t)LOCKED;
	void *who = passing && first ? first->who : NULL;

	/* From now on the mutex may be locked, and be gone, unless somebody is to be woken. */
	set_no_owner(mutex);
	if (!first || *word & WOKEN) {
		if (!change(mutex, word, unlocked, __ATOMIC_RELEASE))
			return AGAIN;
		return passing ? pass_on(mutex, passing, who, NULL) : 0;
	}
	if (!change(mutex, word, unlocked | WOKEN, __ATOMIC_ACQ_REL))
		return AGAIN;
	return passing ? pass_on(mutex, passing, who, first) : wake(me, first);
}

/*
 * unlock_slowly(); without @timed, TIMED if the first one is timed. @passing: where tasks inherit.
 */
static ALWAYS_INLINE int unlock_with(struct switchto_mutex *mutex, struct worker *me, bool timed,
				     struct passing *passing)
{
	/* Acquires from the oldest, when it is to be woken: it may have slept again. */
	uintptr_t word = __atomic_load_n(&mutex->word, __ATOMIC_ACQUIRE);
	struct queued *first = mutex->waiters;
	int result;

	do {
		result = take_new(mutex, &first, &word);
		if (unlikely(result))
			continue;
		if (first && unlikely(is_timed(first))) {
			if (!timed)
				return TIMED;
			if (!(word & WOKEN) && !claim_timed(mutex)) {
				first = mutex->waiters;
				result = AGAIN;
				continue;
			}
		}
		if (likely(first) && (word & STRICT || unlikely(is_late(first))))
			result = give(mutex, me, first, &word, passing);
		else
			result = set_free(mutex, me, first, &word, passing);
	} while (unlikely(result == AGAIN));
	return result;
}

static __attribute__((noinline)) int unlock_timed(struct switchto_mutex *mutex, struct worker *me)
{
	return unlock_with(mutex, me, true, NULL);
}

static __attribute__((noinline)) int unlock_passing(struct switchto_mutex *mutex, struct worker *me)
{
	uintptr_t word = LOCKED | STRICT;
	struct passing passing = { .task = me->task };

	if (!mutex->waiters && __atomic_load_n(&mutex->word, __ATOMIC_RELAXED) == word) {
		set_no_owner(mutex);
		window();
		if (change(mutex, &word, STRICT, __ATOMIC_RELEASE))
			return 0;
	}
	/* An unlock in vain may have said that nobody has it: holder_of() would wait for that. */
	set_owner(mutex, me->task);
	inherit_lock(me->sched);
	unlock_with(mutex, me, true, &passing);
	inherit_unlock(me->sched);
	return passing.to_wake ? wake(me, passing.to_wake) : 0;
}

/* unlock() of a mutex for which somebody waits, or which is STRICT. The caller has it. 0 */
static __attribute__((noinline)) int unlock_slowly(struct switchto_mutex *mutex, struct worker *me)
{
	int result;

	drop_ancestors(mutex);
	if (unlikely(inherits(me)))
		return unlock_passing(mutex, me);
	result = unlock_with(mutex, me, false, NULL);
	return unlikely(result == TIMED) ? unlock_timed(mutex, me) : result;
}

static __attribute__((noinline)) int not_owner(void)
{
	return fail(EPERM);
}

static inline int unlock(struct switchto_mutex *mutex, struct worker *me)
{
	return likely(!mutex->waiters) && likely(try_unlock(mutex)) ? 0 : unlock_slowly(mutex, me);
}

static __attribute__((noinline)) int unlock_in_thread(struct switchto_mutex *mutex,
						      struct worker *me)
{
	return has_locked(mutex, me) ? unlock(mutex, me) : not_owner();
}

int switchto_mutex_unlock(struct switchto_mutex *mutex)
{
	struct worker *me = switchto_current;
	struct switchto_task *task = likely(me) ? me->task : NULL;

	if (unlikely(!task))
		return unlock_in_thread(mutex, me);
	if (unlikely(__atomic_load_n(&mutex->owner, __ATOMIC_RELAXED) != task))
		return not_owner();
	task->held--;
	return unlock(mutex, me);
}

/* --- mutexes, with a deadline --- */

static pthread_key_t timed_key;
static bool has_timed_key;

/* @timed is not the calling thread's any more. */
static void let_go(struct timed *timed)
{
	/* In the child of a fork, no list has it: own(). */
	if (timed->generation != switchto_generation ||
	    atomic_exchange(&queued_of(timed)->timed, ORPHAN) == OUT)
		free(timed);
}

static void thread_ends(void *timed)
{
	let_go(timed);
}

static void begin_timed(void)
{
	has_timed_key = !pthread_key_create(&timed_key, thread_ends);
}

/* That of the calling thread, which is in no list; or it has taken its place in that of @mutex again. */
static struct timed *get_timed(const struct switchto_mutex *mutex, void *who, bool *in_list)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	unsigned char left = LEFT;
	struct timed *timed;

	pthread_once(&once, begin_timed);
	if (!has_timed_key)
		return NULL;
	timed = pthread_getspecific(timed_key);
	if (timed && timed->generation == switchto_generation) {
		struct queued *queued = queued_of(timed);

		*in_list = timed->mutex == mutex;
		if (*in_list) {
			/* Another task of this thread may have left it. It is not looked at before it waits. */
			queued->who = who;
			switchto_waiter_begin(&timed->waiter);
			if (atomic_compare_exchange_strong(&queued->timed, &left, WAITS))
				return timed;
			*in_list = false;
		}
		if (atomic_load(&queued->timed) == OUT)
			return timed;
	}
	/* It is left in the list of another mutex. */
	if (timed)
		let_go(timed);
	timed = aligned_alloc(ALL_GENERATIONS, sizeof(*timed));
	if (timed) {
		memset(timed, 0, sizeof(*timed));
		timed->generation = switchto_generation;
		atomic_init(&queued_of(timed)->timed, OUT);
	}
	if (pthread_setspecific(timed_key, timed)) {
		free(timed);
		timed = NULL;
	}
	return timed;
}

/* Puts @timed in the list of @mutex, unless it locks that: true. @task: one that inherits, or NULL. */
static bool push_timed(struct switchto_mutex *mutex, struct timed *timed, void *who,
		       struct switchto_task *task)
{
	struct queued *queued = queued_of(timed);

	timed->mutex = mutex;
	switchto_waiter_begin(&timed->waiter);
	queued->who = who;
	atomic_store(&queued->timed, WAITS);
	return task ? inherit_or_push(mutex, queued, task) : lock_or_push(mutex, queued, who);
}

/* The deadline has passed. False: it has been claimed, and somebody is about to wake it. */
static bool leave_timed(struct queued *queued, struct switchto_task *task)
{
	unsigned char waits = WAITS;

	return task ? inherit_not(queued, task) :
		      atomic_compare_exchange_strong(&queued->timed, &waits, LEFT);
}

/* It was woken. Does it have @mutex? @leaves: it does not sleep again. */
static bool woken_timed(struct switchto_mutex *mutex, struct timed *timed,
			struct switchto_task *task, bool leaves)
{
	struct queued *queued = queued_of(timed);

	if (queued->given) {
		if (task)
			inherit_given(mutex, task);
		return true;
	}
	atomic_store(&timed->waiter.fired, false);
	/* While it is WOKEN, nobody else looks at that. */
	atomic_store(&queued->timed, leaves ? LEFT : WAITS);
	return task ? inherit_or_stay(mutex, queued, task, leaves) : lock_or_stay(mutex, queued);
}

/* The caller may have been woken when its deadline had made it ready already. */
static void wait_is_over(void)
{
	struct worker *me = switchto_current;

	if (me && me->task)
		atomic_store_explicit(&me->task->is_next, false, memory_order_relaxed);
}

/* Waits for @mutex, which was locked: 0 or an error number. */
static int lock_timed(struct switchto_mutex *mutex, void *who, nsec_t deadline)
{
	struct worker *me = switchto_current;
	struct switchto_task *task = inherits(me) ? me->task : NULL;
	bool in_list = false, locked;
	struct timed *timed = get_timed(mutex, who, &in_list);
	struct queued *queued;
	int error = 0;

	if (!timed)
		return ENOMEM;
	queued = queued_of(timed);
	if (in_list && task)
		inherit_again(mutex, task);
	locked = !in_list && push_timed(mutex, timed, who, task);
	while (!locked && !error) {
		error = switchto_waiter_wait(&timed->waiter, deadline, ON_MUTEX);
		window();
		/* In the child of a fork, others may have had the lock. */
		if (error && task && is_parents(task->sched))
			task = NULL;
		if (error && leave_timed(queued, task))
			return error;
		/* Unless a handler has forked, and this is the child, somebody is about to wake it. */
		if (error && switchto_waiter_wait(&timed->waiter, NEVER, ON_MUTEX))
			return error;
		locked = woken_timed(mutex, timed, task, error);
	}
	wait_is_over();
	if (!locked)
		return error;
	atomic_store(&queued->timed, OUT);
	return 0;
}

int switchto_mutex_lock_until(struct switchto_mutex *mutex, const struct timespec *deadline)
{
	const nsec_t until = switchto_deadline(deadline);
	struct worker *me = switchto_current;
	int error;

	if (until < 0)
		return fail(EINVAL);
	if (until == NEVER)
		return switchto_mutex_lock(mutex);
	if (!try_lock(mutex, myself(me))) {
		error = bad_lock(mutex, myself(me));
		if (!error && is_between_tasks(me))
			error = EDEADLK;
		if (!error && until <= switchto_now())
			error = ETIMEDOUT;
		if (!error)
			error = lock_timed(mutex, myself(me), until);
		if (error)
			return switchto_dispatch_fail(error);
	}
	if (me && me->task)
		me->task->held++;
	return 0;
}

bool switchto_is_in_use(const struct switchto_mutex *mutex)
{
	const void *owner = __atomic_load_n(&mutex->owner, __ATOMIC_RELAXED);

	return __atomic_load_n(&mutex->word, __ATOMIC_ACQUIRE) && !owned_before_fork(owner) &&
	       (!mutex->waiters || own(mutex->waiters));
}

/*
 * What is locked here is short, and waits for no slot. So a task that finds it locked waits as a thread,
 * and keeps its slot: as a task, it would be ready among others, and all that use the object would wait
 * until it has its turn.
 */
static __attribute__((noinline)) int lock_inner_late(struct switchto_mutex *mutex,
						     struct worker *me, void *who)
{
	const bool keeps = me && me->task && owns_slot(me);
	int error;

	for (int tries = 0; tries < 100; tries++) {
		if (!(__atomic_load_n(&mutex->word, __ATOMIC_RELAXED) & LOCKED) &&
		    try_lock(mutex, who))
			return 0;
	}
	if (keeps)
		sleeps_on_purpose(me, 1);
	error = lock_in_thread(mutex, who);
	if (keeps)
		sleeps_on_purpose(me, 0);
	return error;
}

void switchto_lock_inner(struct switchto_mutex *mutex)
{
	struct worker *me = switchto_current;
	void *who = myself(me);

	if (unlikely(!try_lock(mutex, who)) && unlikely(lock_inner_late(mutex, me, who)))
		switchto_misused(errno == EPERM ?
					 "the child of a fork() uses what its parent was changing" :
					 "a signal handler calls the library");
	/* The unlock counts it. */
	if (likely(me) && likely(me->task))
		me->task->held++;
}

/* --- queues --- */

static void append(struct switchto_queue *queue, struct queued *queued)
{
	struct queued *last = own(queue->last);

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
}

/*
 * Is @queued to be woken, or does its own wait end with an error? The first one to ask decides. A
 * waiter that is to be woken does not touch the queue any more, which may be gone then.
 */
static inline bool queued_claim(struct queued *queued)
{
	return __atomic_exchange_n(&queued->who, NULL, __ATOMIC_RELAXED);
}

static struct queued *take_first(struct switchto_queue *queue)
{
	struct queued *first = queue->first;

	if (first)
		first = own(first);
	while (first && !queued_claim(first))
		first = first->next;
	if (first)
		take_out(queue, first);
	return first;
}

/* The caller has queue->lock, and does not afterwards. 0 or an error number. */
static ALWAYS_INLINE int wait_in(struct switchto_queue *queue, nsec_t deadline,
				 struct switchto_mutex *mutex, uint32_t on)
{
	struct place place;
	struct queued *queued = queued_in(&place);
	int error;

	switchto_waiter_begin(&queued->waiter);
	append(queue, queued);
	switchto_mutex_unlock(&queue->lock);
	if (mutex)
		switchto_mutex_unlock(mutex);
	error = switchto_waiter_wait(&queued->waiter, deadline, on | CANCELS);
	/* A child, where this is in no list any more. */
	if (error == EPERM)
		return error;
	if (error && !queued_claim(queued)) {
		/* The thread that has claimed it will fire. */
		switchto_waiter_wait(&queued->waiter, NEVER, on);
		error = 0;
	}
	if (error) {
		switchto_lock_inner(&queue->lock);
		take_out(queue, queued);
		switchto_mutex_unlock(&queue->lock);
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
	if (!has_locked(mutex, switchto_current))
		return fail(EPERM);
	switchto_lock_inner(&cond->queue.lock);
	error = wait_in(&cond->queue, until, mutex, ON_COND);
	switchto_mutex_lock(mutex);
	return error ? fail(error) : 0;
}

void switchto_cond_signal(struct switchto_cond *cond)
{
	struct queued *first;

	switchto_lock_inner(&cond->queue.lock);
	first = take_first(&cond->queue);
	switchto_mutex_unlock(&cond->queue.lock);
	if (first)
		switchto_waiter_fire(NULL, &first->waiter);
	spent_by(switchto_current);
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
	struct queued *first, *last, *next;

	for (first = last = take_first(queue); last; last = next) {
		next = take_first(queue);
		last->next = next;
	}
	return first;
}

void switchto_cond_broadcast(struct switchto_cond *cond)
{
	struct queued *all;

	switchto_lock_inner(&cond->queue.lock);
	all = take_all(&cond->queue);
	switchto_mutex_unlock(&cond->queue.lock);
	fire_all(all);
	spent_by(switchto_current);
}

/* --- semaphores --- */

int switchto_sem_wait(struct switchto_sem *sem, const struct timespec *deadline)
{
	nsec_t until = switchto_deadline(deadline);
	int error;

	if (until < 0)
		return fail(EINVAL);
	switchto_lock_inner(&sem->queue.lock);
	if (sem->count) {
		sem->count--;
		switchto_mutex_unlock(&sem->queue.lock);
		spent_by(switchto_current);
		return 0;
	}
	error = wait_in(&sem->queue, until, NULL, ON_SEM);
	return error ? fail(error) : 0;
}

void switchto_sem_post(struct switchto_sem *sem)
{
	struct queued *first;

	switchto_lock_inner(&sem->queue.lock);
	first = take_first(&sem->queue);
	if (!first && unlikely(++sem->count == 0))
		switchto_misused("switchto_sem_post(): the count was ULONG_MAX already");
	switchto_mutex_unlock(&sem->queue.lock);
	if (first)
		switchto_waiter_fire(NULL, &first->waiter);
	spent_by(switchto_current);
}

/* --- groups --- */

void switchto_group_add(struct switchto_group *group, unsigned long count)
{
	switchto_lock_inner(&group->queue.lock);
	if (unlikely(__builtin_add_overflow(group->count, count, &group->count)))
		switchto_misused("switchto_group_add(): the count was to pass ULONG_MAX; "
				 "was it to be reduced? That is switchto_group_done()");
	switchto_mutex_unlock(&group->queue.lock);
	spent_by(switchto_current);
}

int switchto_group_done(struct switchto_group *group)
{
	struct queued *all = NULL;
	bool bad;

	switchto_lock_inner(&group->queue.lock);
	bad = !group->count;
	if (!bad && !--group->count)
		all = take_all(&group->queue);
	switchto_mutex_unlock(&group->queue.lock);
	fire_all(all);
	return bad ? fail(EINVAL) : spent_by(switchto_current);
}

int switchto_group_wait(struct switchto_group *group, const struct timespec *deadline)
{
	nsec_t until = switchto_deadline(deadline);
	int error;

	if (until < 0)
		return fail(EINVAL);
	switchto_lock_inner(&group->queue.lock);
	if (!group->count) {
		switchto_mutex_unlock(&group->queue.lock);
		return spent_by(switchto_current);
	}
	error = wait_in(&group->queue, until, NULL, ON_GROUP);
	return error ? fail(error) : 0;
}
