/* SPDX-License-Identifier: MIT */
/*
 * What the files of the scheduling layer share.
 *
 * Who may touch what: a slot's queue, timers and poller belong to the thread that owns the
 * slot, and only inside the scheduler (enter() ... leave()). Other threads reach a slot by
 * its inbox. So nothing here needs a lock but the list of idle threads, and the marks of
 * descriptors when they are made and removed.
 *
 * Who owns a slot: the word slot->owner says it. Its owner changes it between USER and
 * INSIDE. In USER and BLOCKING, the monitor may take the slot away; in INSIDE nobody may. From USER,
 * a thread of another slot may change it to VISITED, to steal a task; the owner waits meanwhile.
 * The epoch in it changes with every owner, so a thread that lost its slot finds out when it
 * next enters, whoever has the slot then.
 *
 * How a task sleeps: inside, it sets its state to PARKED or WAITING (prepare), and then tells
 * others that it waits, or looks whether what it waits for has happened. Then it picks the next
 * task and hands the slot over (sleep). Who wakes it claims it, by taking PARKED or WAITING
 * away, and makes it ready after that. So one of several that would wake it does. The task may
 * be claimed before it has picked, and may pick itself: then it returns without a switch.
 *
 * A task that waits for a mutex is LOCKING, and nobody claims it: only who gives it the mutex makes
 * it ready, once.
 *
 * Wakes of a WAITING task may come too many: each wait looks at its own condition again. The
 * memory of a task is used for tasks until the scheduler is destroyed, so a late one does no harm.
 *
 * Who has nothing to run polls: the thread that owns the slot, whatever it was before, waits
 * for descriptors and deadlines itself. There is no thread in between.
 */
#ifndef SWITCHTO_SCHED_INTERNAL_H
#define SWITCHTO_SCHED_INTERNAL_H

#include "switchto/sched.h"
#include "switchto/switchto.h"

#include "fifo.h"

/*
 * Static probes, as in ../probes.h, of a provider of their own: no name can meet one of the core's.
 * @task and @slot are pointers to the structures below.
 *
 *	task_begin(task)	the calling thread begins @task
 *	task_end(task)		@task has returned
 *	sleep(task, how)	the caller, @task, sleeps: PARKED, WAITING, WAITING_IO or LOCKING
 *	ready(task, reason)	@task is ready: enum switchto_reason
 *	run(slot, task)		the caller has picked @task: it runs on @slot from now on
 *	poll(slot, ns)		the caller, who owns @slot, sleeps until there is an event, or for
 *				@ns; NEVER: without a limit
 *	retake(slot, tid)	@slot was taken from thread @tid, or given up for a region
 *	block_begin()		the calling task is in a blocking region
 *	block_end()		it has left that, and has its slot
 *
 * A task that is woken early is ready before it sleeps. Arguments are what is in registers anyway.
 */
#define PROBE_PROVIDER switchto_sched
#include "../probes.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
/* For what is on the hot path, and has a probe: GCC takes one for a hundred instructions. */
#define ALWAYS_INLINE inline __attribute__((always_inline))

#define NSEC_PER_SEC 1000000000LL
#define NEVER INT64_MAX

/* A time on CLOCK_MONOTONIC in ns. */
typedef int64_t nsec_t;

/* task->state. None but TOKEN: it runs, is ready, or has been claimed. */
enum {
	TOKEN = 1,    /* an unpark is pending; not with PARKED */
	PARKED = 2,   /* sleeps in switchto_park() */
	WAITING = 4,  /* sleeps in another call */
	FINISHED = 8, /* has ended; a new task begins so */
	LOCKING = 16, /* sleeps until it is given a mutex */
};

/* In the probe sleep: WAITING for a descriptor. */
enum { WAITING_IO = 6 };

typedef void task_fn(void *arg);

struct switchto_task {
	struct switchto_entry entry; /* first: the policy's pointer is the task's */
	_Atomic uint32_t state;
	atomic_bool cancelled;
	bool bound;	   /* not to be stolen */
	unsigned int held; /* mutexes that it has locked */
	int woken_by;	   /* 0, ETIMEDOUT, ECANCELED or EBADF: set by who claims it */
	struct slot *slot;
	struct switchto_sched *sched;
	struct thread *thread;	    /* NULL: it has not run yet */
	struct switchto_task *next; /* in an inbox, or among the free ones */
	struct switchto_task *next_of_all;
	_Atomic(task_fn *) fn; /* NULL: it has begun */
	task_fn *begun;	       /* fn, for debuggers */
	void *arg;
	nsec_t deadline;
	size_t timer; /* its place among the slot's timers + 1; 0: none */
	enum switchto_reason why;
	_Atomic(struct waiter *) joiner;
	nsec_t since; /* of the wrapper: when it became ready, or stopped running */
	struct task_stats {
		_Atomic uint64_t runs, run_ns, ready_ns, blocked_ns;
	} stats;
};

/*
 * task->joiner of a task that has ended; whose handle was given back, or never taken; of one that is
 * not to run any more, and does not count; of no task.
 */
#define ENDED ((struct waiter *)1)
#define DETACHED ((struct waiter *)2)
#define DROPPED ((struct waiter *)3)
#define FREE ((struct waiter *)4)

/* A kernel thread that runs tasks, one after the other; or a slot's dispatcher. */
struct thread {
	_Atomic(struct slot *) granted; /* a slot that it has been given and not taken yet */
	pid_t tid;
	struct slot *slot; /* that it owns, unless the monitor took it */
	uint32_t user;	   /* slot->owner while it is outside; set by who grants it the slot */
	struct switchto_task *task;
	bool in_region;			 /* a blocking one */
	nsec_t gave_up;			 /* when it began, and gave the slot up; 0: it did not */
	struct thread *next_idle, *next; /* among the idle ones; among all */
	struct switchto_sched *sched;
	pthread_t pthread;
	sem_t *begun; /* of who creates it: tid is known */
	uint32_t fp;  /* fp_control() when it began */
	atomic_bool exits;
};

/*
 * slot->owner: the state, and the epoch in the other bits, as a sum: compilers don't know that an OR
 * is one. 0 before the first owner.
 */
enum { VISITED, USER, INSIDE, BLOCKING, OWNER_STATES };

struct timers {
	struct switchto_task **heap;
	size_t count, size;
};

static inline nsec_t timer_next(const struct timers *timers)
{
	return unlikely(timers->count) ? timers->heap[0]->deadline : NEVER;
}

// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): others write only the last line
struct slot {
	_Atomic uint32_t owner;
	_Atomic pid_t tid; /* of the owner, for the monitor */
	struct switchto_sched *sched;
	struct thread *dispatcher;
	struct thread *spare; /* an idle one, for the next task that begins: needs no lock */
	void *queue;
	bool is_fifo; /* the policy, whose functions are in line then */
	/* The policy's. */
	void (*enqueue)(void *queue, struct switchto_entry *entry, enum switchto_reason why);
	struct switchto_entry *(*pick)(void *queue);
	atomic_bool
		over; /* its dispatcher found no tasks, and ended. Set with the scheduler's lock */
	/* What is left until it looks at the clock, see spent(); and how often it has polled. */
	_Atomic int budget;
	_Atomic unsigned int polls;
	int full;		  /* what the budget begins with */
	unsigned int known_polls; /* when it last looked at the clock */
	nsec_t checked, polled;	  /* when that was; when it polled at the latest */
	atomic_bool long_regions; /* the last blocking region was one, see switchto_block_begin() */
	struct timers timers;
	int epoll, event;      /* what it polls, and the eventfd that wakes it */
	int next_epoll;	       /* will be epoll, when all descriptors are in it; or -1 */
	atomic_uint strays;    /* events of descriptors that the slot does not poll any more */
	pthread_mutex_t adds;  /* held by who changes what epoll polls */
	struct io_uring *ring; /* NULL: the engine is epoll */
	bool unsubmitted;      /* the kernel has not taken all that is in the ring */

	atomic_uint tasks;     /* that have not ended, if there are several slots */
	atomic_uint neighbour; /* the slot that the next spawn looks at */
	atomic_uint ready;     /* tasks in the queue, unless is_fifo */
	atomic_bool stealable; /* they wait for so long that others may take them */
	struct slot_stats {
		_Atomic uint64_t runs, run_ns, idle_ns, steals, retakes;
		_Atomic uint64_t ready[SWITCHTO_READY_BUCKETS];
	} stats;

	_Alignas(64) _Atomic(struct switchto_task *) inbox;
	_Atomic uint32_t asleep;

	/* The monitor's, see look_at(). */
	struct seen {
		uint32_t owner;
		unsigned int polls, ready;
		uint64_t runs;
		nsec_t cpu;    /* the CPU time of the owner's thread */
		nsec_t since;  /* when it was that: the thread stands still since then */
		nsec_t began;  /* its CPU time when it was first seen to have the slot */
		nsec_t polled; /* when it had just polled, or was asleep */
		nsec_t at;     /* when the monitor looked at ready and runs */
		bool reported;
	} seen;
};

enum { MONITOR_RUNS, MONITOR_SLEEPS, MONITOR_ENDS };

struct switchto_sched {
	const struct switchto_policy *policy;
	const struct switchto_policy *wrapped; /* if the policy is the wrapper: the program's */
	unsigned int flags;
	bool has_rings; /* the engine is io_uring */
	bool together;	/* the threads of a slot are to be on one CPU */
	void (*report)(const char *text);
	size_t stack_size;
	unsigned int generation; /* of the process that made it */
	atomic_bool has_thread;	 /* for tasks */
	sigset_t mask;		 /* of its threads, from the first run on */
	bool has_mask;
	bool watched;	   /* exit(3) */
	atomic_uint tasks; /* that have not ended */
	atomic_bool running, stopping, cancels;
	atomic_uint visitors;	  /* threads that are in a call and hold no task */
	_Atomic uint32_t monitor; /* MONITOR_RUNS and so on */
	pthread_t monitor_thread;
	nsec_t slice;		  /* NEVER: tasks have no slices */
	_Atomic uint32_t at_work; /* slots whose dispatcher has not found that it is over */
	unsigned int next_mark;	  /* that the monitor verifies: poll.c */
	nsec_t verified;	  /* when it did so */

	pthread_mutex_t lock; /* of the rest */
	struct thread *idle, *threads;
	struct switchto_task *free_tasks, *all_tasks;
	unsigned int next_slot; /* of tasks that other threads spawn */

	unsigned int slots;
	struct slot slot[];
};

extern _Thread_local struct thread *switchto_current __attribute__((tls_model("initial-exec")));

/* How many forks there were, each in the last one's child, since the library was loaded. */
extern unsigned int switchto_generation;

/* exit(3) ends the program: destructors of static objects may find them in use. */
extern atomic_bool switchto_exiting;

/* Is @sched one of the parent, of which there are no threads here? */
static inline bool is_parents(const struct switchto_sched *sched)
{
	return unlikely(sched->generation != switchto_generation);
}

/*
 * The address of a task, and of what stands for a thread that is none, says which generation they are
 * of, see GENERATIONS: so the owner of a mutex, which may be gone, need not be asked.
 */
enum { GENERATIONS = 4, GENERATION_SIZE = 16, ALL_GENERATIONS = GENERATIONS * GENERATION_SIZE };

/* That of this process: a multiple of GENERATION_SIZE, less than ALL_GENERATIONS. */
extern unsigned int switchto_generation_offset;

/*
 * window(): a place between two atomic steps, where another thread may come in between. The tests
 * build the layer with a hook that stays there for a while: tests/sched/torture.c. fault(): the
 * error that system call @number is to fail with instead of being made, or 0: tests/sched/faults.h.
 */
#ifdef SWITCHTO_SCHED_WINDOWS
void switchto_sched_window(void);
long switchto_sched_fault(long number);
#define window() switchto_sched_window()
#define fault(number) switchto_sched_fault(number)
#else
#define window() ((void)0)
#define fault(number) 0L
#endif

static inline int fail(int error)
{
	errno = error;
	return -1;
}

/* @result, or a negative error number, as a function of the C library returns it. */
static inline long with_errno(long result)
{
	return likely(result >= 0) ? result : fail((int)-result);
}

/* --- system calls --- */

/*
 * The system call: its result, or a negative error number. Without the C library's wrappers, which
 * are cancellation points: in a program with threads they cost some fifty instructions each.
 */
static inline long call6(long number, long a, long b, long c, long d, long e, long f)
{
	const long refused = fault(number);

#if defined(__x86_64__) && defined(__LP64__)
	register long arg4 __asm__("r10") = d;
	register long arg5 __asm__("r8") = e;
	register long arg6 __asm__("r9") = f;
	long result;

	if (unlikely(refused))
		return refused;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "0"(number), "D"(a), "S"(b), "d"(c), "r"(arg4), "r"(arg5), "r"(arg6)
			 : "rcx", "r11", "memory");
	return result;
#else
	long result;

	if (unlikely(refused))
		return refused;
	result = syscall(number, a, b, c, d, e, f);
	return result == -1 ? -errno : result;
#endif
}

#define CALL(name, ...) CALL_(SYS_##name, __VA_ARGS__, 0, 0, 0, 0, 0)
#define CALL_(number, a, b, c, d, e, f, ...) \
	call6(number, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))

/* --- time: timer.c --- */

nsec_t switchto_now(void);
/* Of NULL: NEVER; of a time that can't be: -1. */
nsec_t switchto_deadline(const struct timespec *deadline);
/* 0 or ENOMEM */
int switchto_timer_add(struct timers *timers, struct switchto_task *task, nsec_t deadline);
void switchto_timer_remove(struct timers *timers, struct switchto_task *task);
/* Wakes the tasks whose time has come: inside of @slot. */
void switchto_timer_expire(struct slot *slot);

/* --- ownership: slot.c --- */

/* Takes the slot back from who has it meanwhile. */
void switchto_slot_regain(struct thread *me);

/* enter_task() of one whose owner word is not what it was. */
bool switchto_slot_enter_late(struct thread *me, uint32_t owner);

/* False: @me does not own its slot, or is inside already. */
static inline bool try_enter(struct thread *me)
{
	uint32_t owner = me->user;

	return atomic_compare_exchange_strong_explicit(&me->slot->owner, &owner,
						       owner - USER + INSIDE, memory_order_acquire,
						       memory_order_relaxed);
}

/* @me has a task. False: it is inside already, or in a blocking region. */
static inline bool enter_task(struct thread *me)
{
	uint32_t owner = me->user;

	window();
	if (unlikely(!atomic_compare_exchange_strong_explicit(&me->slot->owner, &owner,
							      owner - USER + INSIDE,
							      memory_order_acquire,
							      memory_order_relaxed)))
		return switchto_slot_enter_late(me, owner);
	return true;
}

/*
 * Into the scheduler: the calling task's thread, or NULL with errno EPERM or EDEADLK.
 */
static inline struct thread *enter(void)
{
	struct thread *me = switchto_current;

	if (unlikely(!me || !me->task)) {
		errno = EPERM;
		return NULL;
	}
	if (unlikely(!enter_task(me))) {
		errno = EDEADLK;
		return NULL;
	}
	return me;
}

static inline void leave(struct thread *me)
{
	atomic_store_explicit(&me->slot->owner, me->user, memory_order_release);
}

/*
 * Runs others until it is @me's turn: inside, before and after. False if @me is a dispatcher,
 * and there are no tasks left.
 */
bool switchto_slot_dispatch(struct thread *me);

/*
 * Waits until there was an event on @mark, if it is NOT_READY: 0 or an error number. EBUSY: another
 * task waits. ESTALE: no slot of this scheduler polls it. In a task, outside. The path of each
 * request that has to wait.
 */
struct mark;
struct direction;
int switchto_slot_wait_for(struct thread *me, struct mark *mark, struct direction *direction,
			   const struct timespec *deadline);

/* @me has no slot: waits until it is given one. False if it is to end. */
bool switchto_slot_await(struct thread *me);

/*
 * The budget. A task that never waits, because what it asks for is always there, would keep the
 * slot's timers and descriptors waiting. So picks and calls that do not wait take from a budget.
 * When nothing is left of it, the slot looks at the clock. If it has not polled for LOOK, it polls,
 * and a call gives way. The next budget is what lasts for a quarter of LOOK.
 *
 * The monitor takes all of the budget (FORCED) of a slot that it has not seen to poll.
 */
enum { LOOK = 500000, BUDGET = 256, PICK_COSTS = 8, CALL_COSTS = 2, FORCED = -0x1000000 };

/* The budget has run out, in a call of @me. Outside. Returns @result, to keep registers free. */
long switchto_slot_give_way(struct thread *me, long result);

/*
 * At the end of a call of @me, a task, which has not waited: more of the budget for more bytes. May
 * give way. Returns @result.
 */
static ALWAYS_INLINE long spent(struct thread *me, long result)
{
	_Atomic int *budget = &me->slot->budget;
	const int bytes = (int)((uint64_t)result >> 12); /* -1, if it is an error */
	const int left = atomic_load_explicit(budget, memory_order_relaxed) - CALL_COSTS - bytes;

	/* Another thread may do so as well, if @me has lost the slot: no harm. */
	atomic_store_explicit(budget, left, memory_order_relaxed);
	return unlikely(left < 0) ? switchto_slot_give_way(me, result) : result;
}

/* The same of a call that other threads make, too. */
static inline void spent_by(struct thread *me)
{
	if (me && me->task)
		spent(me, 0);
}

/* Inside, or by a visitor. */
static inline void change_ready(struct slot *slot, int n)
{
	const unsigned int waiting = atomic_load_explicit(&slot->ready, memory_order_relaxed);

	atomic_store_explicit(&slot->ready, waiting + (unsigned int)n, memory_order_relaxed);
}

/* @task, which has no deadline, into the queue of @slot, inside of it. */
static inline void enqueue_task(struct slot *slot, struct switchto_task *task,
				enum switchto_reason why)
{
	probe2(ready, task, why);
	if (likely(slot->is_fifo)) {
		fifo_enqueue(slot->queue, &task->entry, why);
	} else {
		slot->enqueue(slot->queue, &task->entry, why);
		change_ready(slot, 1);
	}
}

/* The same of one that has been claimed, and may have a deadline. */
static inline void slot_enqueue(struct slot *slot, struct switchto_task *task,
				enum switchto_reason why)
{
	if (unlikely(task->timer))
		switchto_timer_remove(&slot->timers, task);
	enqueue_task(slot, task, why);
}

/*
 * @task has been claimed: makes it ready. @inside: the slot that the caller is inside of; NULL
 * if it is in none, or does not know.
 */
void switchto_slot_ready(struct slot *inside, struct switchto_task *task, enum switchto_reason why);

/* The same, WOKEN. @inside: the caller is, in the task's slot, and leaves. 0 */
int switchto_slot_ready_woken(struct thread *me, struct switchto_task *task, bool inside);

/* The same, in line if both are of one slot. */
static ALWAYS_INLINE int ready(struct thread *me, struct switchto_task *task,
			       bool may_have_deadline)
{
	struct slot *slot = task->slot;

	if (likely(me) && likely(me->slot == slot) && likely(slot->is_fifo) &&
	    likely(try_enter(me))) {
		if (may_have_deadline && unlikely(task->timer))
			return switchto_slot_ready_woken(me, task, true);
		probe2(ready, task, SWITCHTO_WOKEN);
		fifo_enqueue(slot->queue, &task->entry, SWITCHTO_WOKEN);
		leave(me);
		return 0;
	}
	return switchto_slot_ready_woken(me, task, false);
}

/* Into the queue of @slot, inside of it. */
void switchto_slot_empty_inbox(struct slot *slot);

/* The dispatcher of @slot has found no tasks. False: there are some again, and it goes on. */
bool switchto_slot_is_over(struct slot *slot);

/* Ends the sleep of the slot's poller, if it sleeps. */
void switchto_slot_wake(struct slot *slot);

/* 0 or an error number. */
int switchto_slot_begin(struct slot *slot, struct switchto_sched *sched);
void switchto_slot_end(struct slot *slot);

/* --- tasks: task.c --- */

/*
 * The steps of a sleep, inside: prepare, then sleep; or stay, if what the task would wait for
 * has happened meanwhile. A task that is to be PARKED and has a token takes it: EALREADY.
 */
int switchto_task_prepare_token(struct switchto_task *task, uint32_t how);

static inline int task_prepare(struct switchto_task *task, uint32_t how)
{
	uint32_t state = 0;

	// NOLINTNEXTLINE(clang-analyzer-core.NullDereference): the caller is a task
	task->woken_by = 0;
	if (likely(atomic_compare_exchange_strong(&task->state, &state, how))) {
		window();
		return 0;
	}
	return switchto_task_prepare_token(task, how);
}

void switchto_task_stay(struct thread *me);

/*
 * Prepared: is the task cancelled? Then it stays. switchto_cancel() sets it first and claims
 * then: one of the two sees the other's.
 */
static inline bool task_cancelled(struct thread *me)
{
	if (likely(!atomic_load(&me->task->cancelled)))
		return false;
	switchto_task_stay(me);
	return true;
}

/* 0, ETIMEDOUT, ECANCELED, or ENOMEM: no memory for the deadline. */
static ALWAYS_INLINE int task_sleep(struct thread *me, nsec_t deadline, uint32_t how)
{
	struct switchto_task *task = me->task;

	if (unlikely(deadline != NEVER) && switchto_timer_add(&me->slot->timers, task, deadline)) {
		switchto_task_stay(me);
		return ENOMEM;
	}
	probe2(sleep, task, how);
	switchto_slot_dispatch(me);
	return task->woken_by;
}

/*
 * Claims @task if it sleeps as one of @how, and makes it ready. @inside as for
 * switchto_slot_ready(). Who comes late finds the task in another sleep: only WAITING takes no
 * harm from that.
 */
static ALWAYS_INLINE bool task_wake(struct slot *inside, struct switchto_task *task, uint32_t how,
				    int woken_by, enum switchto_reason why)
{
	uint32_t state = atomic_load_explicit(&task->state, memory_order_relaxed);

	do
		if (!(state & how))
			return false;
	while (!atomic_compare_exchange_weak(&task->state, &state, state & TOKEN));
	window();
	task->woken_by = woken_by;
	if (likely(inside && inside == task->slot)) {
		probe2(ready, task, why);
		slot_enqueue(inside, task, why);
	} else {
		switchto_slot_ready(inside, task, why);
	}
	return true;
}

/* Ends the program: @what is what the program must not do. */
_Noreturn void switchto_misused(const char *what);

/* An idle thread, or a new one; or NULL and errno. */
struct thread *switchto_thread_get(struct switchto_sched *sched);
/* A new thread, parked; or NULL and errno. Its TID is known: somebody will switch to it. */
struct thread *switchto_thread_create(struct switchto_sched *sched);
/* @slot has no owner: gives it to @thread, which is parked. */
void switchto_thread_grant(struct thread *thread, struct slot *slot);
/* @thread has no task: it may get one of anybody. */
void switchto_thread_idle(struct thread *thread);

/* 0 or an error number: ETIMEDOUT, and EAGAIN, EINTR. */
int switchto_futex_wait(_Atomic uint32_t *word, uint32_t value, nsec_t deadline);
void switchto_futex_wake(_Atomic uint32_t *word);

/* The lock of an object of the library: sync.c. */
void switchto_lock_inner(struct switchto_mutex *mutex);

/* Where a task, or another thread, waits until it is told to go on. */
struct waiter {
	struct switchto_task *task; /* NULL: another thread */
	_Atomic uint32_t fired;
};

void switchto_waiter_begin(struct waiter *waiter);
/* 0 if it fired; ETIMEDOUT, ENOMEM; ECANCELED, if the task is cancelled and @cancels. */
int switchto_waiter_wait(struct waiter *waiter, nsec_t deadline, bool cancels);
/* When it has fired, it may be gone. */
void switchto_waiter_fire(struct slot *inside, struct waiter *waiter);

/* How many the caller may use. */
unsigned int switchto_cpus(void);

/* --- options: wrapper.c --- */

/* The policy of a scheduler that measures or steals. */
extern const struct switchto_policy switchto_wrapper;
/* The queue of @slot is there, and all 0. */
void switchto_wrapper_begin(struct slot *slot);
/* Is there a task for @slot in another slot? */
bool switchto_can_steal(struct slot *slot);
/* The monitor has seen that tasks of @slot wait for long, or that they do not. */
void switchto_offer(struct slot *slot, bool stealable);

/* --- the monitor: monitor.c --- */

/* 0 or an error number. */
int switchto_monitor_begin(struct switchto_sched *sched);
void switchto_monitor_end(struct switchto_sched *sched);

/* --- descriptors: poll.c --- */

int switchto_poll_begin(struct slot *slot);
void switchto_poll_end(struct slot *slot);

#endif /* SWITCHTO_SCHED_INTERNAL_H */
