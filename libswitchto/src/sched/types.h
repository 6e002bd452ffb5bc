/* SPDX-License-Identifier: MIT */
/*
 * Schedulers, slots, workers and tasks: what the files of the layer share. Each file owns one thing,
 * and calls those below it only:
 *
 *	scheduler step			schedulers; steps of other loops
 *	task io file connect chan	the public calls of tasks
 *	await sync			the same, also for those: operations of io_uring; locks
 *	request				how a system call is made, and waited for
 *	worker				the main loop of a thread; its pool has a pointer to it
 *	monitor, region			who takes slots away; blocking regions
 *	turn				several tasks at one descriptor
 *	sleep				how a task sleeps, until when
 *	dispatch			who runs next, and the hand-over
 *	poll				the wait for events: epoll
 *	mark, ring			what is known of descriptors; io_uring
 *	pool				idle workers, memory of tasks
 *	wake				who is claimed, and made ready
 *	owner				the word that says who owns a slot
 *	inbox				the queue of a slot, and the way into it
 *	inherit				what a task that has a mutex inherits from those that wait for it
 *	timer				the heap of deadlines
 *	trace, stats			what is recorded of all that, and measured
 *	sys				system calls, clock
 *
 * Policies are called by pointers: fifo, priority, edf, fair; and wrapper, which measures and steals.
 * Around these may be the functions of steps, and around all those of a trace.
 *
 * Who may touch what: a slot's queue, timers and poller belong to the worker that owns the slot, and
 * only inside the scheduler (owner.h). Others reach a slot by its inbox. So few things need a lock:
 * lists of schedulers, workers and tasks, what tasks inherit, and what is polled when that changes.
 *
 * The worker that owns a slot and has nothing to run waits for descriptors and deadlines itself. There
 * is no thread in between.
 */
#ifndef SWITCHTO_SCHED_TYPES_H
#define SWITCHTO_SCHED_TYPES_H

#include "switchto/sched.h"
#include "switchto/switchto.h"

#include "fifo.h"
#include "sys.h"

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

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>

/* task->state. 0 or TOKEN: the task runs, is ready, or has been claimed. */
enum {
	TOKEN = 1,    /* an unpark is pending; not with PARKED */
	PARKED = 2,   /* sleeps in switchto_park() */
	WAITING = 4,  /* sleeps in another call */
	FINISHED = 8, /* has ended; a new task begins so */
	LOCKING = 16, /* sleeps until it is given a mutex */
};

/* task->cancelled. With a shield, a cancellation does not count yet: is_cancelled(). */
enum { CANCELLED = 1, SHIELD = 2 };

/* task->bound */
enum { BY_CALL = 1, BY_SPAWN = 2 };

/* In the probe sleep: WAITING for a descriptor. */
enum { WAITING_IO = 6 };

/* For the trace, what a task sleeps for: in the bits of a state above those, or of a wait's flags. */
enum {
	ON_OTHER = 0,
	ON_PARK = 0x100,
	ON_TIMER = 0x200,
	ON_FD = 0x300,
	ON_MUTEX = 0x400,
	ON_COND = 0x500,
	ON_SEM = 0x600,
	ON_GROUP = 0x700,
	ON_CHAN = 0x800,
	ON_SELECT = 0x900,
	ON_JOIN = 0xa00,
	ON_AWAIT = 0xb00,
	ON_TURN = 0xc00,
	ON_WORKER = 0xd00,
	ON_STATE = 0xff,
};

typedef void task_fn(void *arg);

/* Where a task, or another thread, waits for a wake: sleep.h, wake.h. */
struct waiter {
	struct switchto_task *task; /* NULL: another thread */
	_Atomic uint32_t fired;
	unsigned int generation; /* of a thread: the process that it waits in */
};

/*
 * For the trace: what @waiter waits for, a mutex (with a deadline), a queue or a channel. The pointer
 * is behind it. NULL: it has just been woken.
 */
static inline const void *awaited(const struct waiter *waiter)
{
	return __atomic_load_n((void *const *)(waiter + 1), __ATOMIC_RELAXED);
}

struct switchto_task {
	struct switchto_entry entry; /* first: the policy's pointer is the task's */
	_Atomic uint32_t state;
	atomic_uint cancelled;	/* CANCELLED, and SHIELD for each shield */
	atomic_uint cancellers; /* threads that are about to wake it for that */
	atomic_bool is_next;	/* woken for a mutex: before its equals, see goes_first() */
	unsigned char bound;	/* not to be stolen: BY_CALL, BY_SPAWN */
	unsigned int held;	/* mutexes that it has locked */
	int woken_by;		/* 0, ETIMEDOUT, ECANCELED or EBADF: set by its claimer */
	struct slot *slot;
	struct switchto_sched *sched;
	struct worker *worker;	    /* NULL: it has not run yet */
	struct switchto_task *next; /* in an inbox, or among the free ones */
	struct switchto_task *next_of_all;
	_Atomic(task_fn *) fn; /* NULL: it has begun */
	task_fn *begun;	       /* fn, for debuggers */
	void *arg;
	nsec_t deadline;
	size_t timer; /* its place among the slot's timers + 1; 0: none */
	enum switchto_reason why;
	_Atomic(struct waiter *) joiner;
	struct waiter joins;	  /* of its own call of switchto_join() */
	_Atomic uint32_t serial;  /* how often this memory has been a task's */
	_Atomic uint64_t name[2]; /* switchto_task_name(): 15 bytes and a 0 */
	struct inherit
		*inherit; /* that of its worker, if it has inherited or passed on. With a lock */
	nsec_t since;	  /* of the wrapper: when it became ready, or stopped running */
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

static inline bool is_cancelled(const struct switchto_task *task)
{
	return atomic_load(&task->cancelled) == CANCELLED;
}

/* What the task of a worker inherits from others, and passes on: inherit.h. */
struct inherit {
	struct switchto_task *task;
	const struct switchto_mutex *mutex;  /* for which it waits, or NULL */
	struct inherit *holder;		     /* in whose list it is then; NULL: the scheduler's */
	struct inherit *next;		     /* in that */
	struct inherit *waits;		     /* the first that waits for a mutex of this one */
	struct switchto_task_attr passes_on; /* while it waits */
	struct switchto_task_attr own;	     /* if raised: entry.attr has what it inherits, too */
	struct inherit *next_due;	     /* slot->due */
	bool raised, due;
};

/* A kernel thread that runs tasks, one after the other; or a slot's dispatcher. */
struct worker {
	_Atomic(struct slot *) granted; /* a slot that it has been given and not taken yet */
	pid_t tid;
	struct slot *slot; /* that it owns, unless the monitor took it */
	uint32_t epoch;	   /* of slot->owner; set by whoever gives it the slot */
	/* Epochs in which, in a call, there was no budget; in which it did not give way, though due. */
	uint32_t ran_out, put_off;
	struct switchto_task *task;
	_Atomic uint32_t keeps;		 /* it may sleep, and keeps its slot: sleeps_on_purpose() */
	bool in_region;			 /* a blocking one */
	bool gives_back;		 /* a new one gives its first slot back at once */
	bool lends;			 /* a dispatcher that does so: begin_lending() */
	nsec_t gave_up;			 /* when it began, and gave the slot up; 0: it did not */
	struct worker *next_idle, *next; /* among the idle ones; among all */
	struct switchto_sched *sched;
	pthread_t pthread;
	sem_t *begun; /* of its creator: tid is known */
	int serves;   /* the slot whose dispatcher it is; or RUNS_TASKS */
	/* Of an idle one: its epoch at the pool's last look, and how many looks found it with that. */
	uint32_t seen_epoch;
	unsigned char seen;
	uint64_t fp; /* that of the scheduler, when it was created */
	struct inherit inherit;
	atomic_uint told; /* GOES_ON and so on */
	char name[16];	  /* of the thread, while its task has one */
	/* With which task it last lost a slot, in which word of the owner; and got it back. stats.h */
	struct {
		_Atomic(struct switchto_task *) task;
		_Atomic nsec_t since; /* the task ran */
		_Atomic uint64_t when, back;
	} lost;
};

/* worker->serves */
enum { RUNS_TASKS = -1 };

/* worker->told, of an idle one: nothing; to give its stack back; to end. */
enum { GOES_ON, SHRINKS, EXITS };

struct timers {
	struct switchto_task **heap;
	size_t count, size;
};

// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): others write only the last line
struct slot {
	_Atomic uint32_t owner; /* owner.h */
	_Atomic pid_t tid;	/* of the owner, for the monitor */
	struct switchto_sched *sched;
	struct worker *dispatcher;
	struct worker *spare; /* an idle one, for the next task that begins: needs no lock */
	struct switchto_task *begins; /* its dispatcher is to make or to meet its worker */
	bool waited;		      /* its last task that was to begin found no worker */
	struct steps *steps;	      /* NULL: it runs without steps */
	void *queue;
	bool is_fifo; /* the policy, whose functions are in line then; never after a step, or traced */
	bool has_policy; /* its queue is ready for use */
	/* The policy's. */
	void (*enqueue)(void *queue, struct switchto_entry *entry, enum switchto_reason why);
	struct switchto_entry *(*pick)(void *queue);
	const struct trace_lane *lane; /* NULL: it has no trace */
	atomic_bool looks; /* it is to look for a trace at its next poll; while it has one */
	uint32_t number;   /* of all slots of this process */
	/* What it has without a trace, and that it is in a poll. */
	struct {
		void (*enqueue)(void *queue, struct switchto_entry *entry,
				enum switchto_reason why);
		struct switchto_entry *(*pick)(void *queue);
		bool is_fifo, polls; /* false without a trace */
	} traced;
	/* What is left until it looks at the clock, see spent(); and how often it has polled. */
	_Atomic int budget;
	_Atomic unsigned int polls;
	_Atomic(struct inherit *)
		due; /* whose attributes are to be changed. Written with sched->passing */
	int full;    /* what the budget begins with */
	unsigned int known_polls; /* when it last looked at the clock */
	nsec_t checked, polled;	  /* when that was; when it polled at the latest */
	atomic_uchar last_region; /* how long it was: REGION_SHORT and so on */
	atomic_bool is_lent;	  /* by all that is known: then the kernel tells of a block */
	struct timers timers;
	int epoll, event;      /* what it polls, and the eventfd that wakes it */
	int next_epoll;	       /* will be epoll, when all descriptors are in it; or -1 */
	atomic_uint strays;    /* events of descriptors that the slot does not poll any more */
	pthread_mutex_t adds;  /* held to change what epoll polls */
	struct io_uring *ring; /* NULL: the engine is epoll */
	bool unsubmitted;      /* the kernel has not taken all that is in the ring */

	atomic_uint tasks;     /* that have not ended, if there are several slots */
	atomic_uint neighbour; /* the slot that the next spawn looks at */
	atomic_uint turn;      /* the same with SWITCHTO_ANY, which begins with this slot */
	atomic_uint ready;     /* tasks in the queue, unless is_fifo */
	atomic_bool stealable; /* they wait for so long that others may take them */
	atomic_uint refused; /* how often the policy gave none since it gave one; not more than 8 */
	struct slot_stats {
		_Atomic uint64_t runs, run_ns, idle_ns, steals, retakes;
		_Atomic uint64_t ready[SWITCHTO_READY_BUCKETS];
	} stats;

	_Alignas(64) _Atomic(struct switchto_task *) inbox;
	_Atomic uint32_t asleep;

	/* The monitor's, see look_at() and switchto_mark_verify(). */
	struct seen {
		uint32_t owner;
		unsigned int polls, ready;
		uint64_t runs;
		nsec_t cpu;	 /* the CPU time of the owner's thread */
		nsec_t since;	 /* when it was that: the thread stands still since then */
		nsec_t began;	 /* its CPU time when it was first seen to have the slot */
		nsec_t at_first; /* when that was, without the time for which the monitor was late */
		nsec_t polled;	 /* when it had just polled, or was asleep */
		nsec_t at;	 /* when the monitor looked at ready and runs */
		nsec_t alone;	 /* since when the owner has epoch; NEVER: it has been let go */
		uint32_t epoch;
		bool reported;
	} seen;
};

enum { REGION_SHORT, REGION_LONG, REGION_VERY_LONG };

/* RESTS: between steps, as there is no task. */
enum { MONITOR_RUNS, MONITOR_SLEEPS, MONITOR_RESTS, MONITOR_ENDS };

/* sched->wants_worker: a slot has found no worker and could not make one; max_threads are in use. */
enum { TOO_FEW = 1, TASKS_HELD = 2 };

struct switchto_sched {
	struct switchto_sched *next; /* among all */
	const struct switchto_policy *policy;
	const struct switchto_policy *wrapped; /* if the policy is the wrapper: the program's */
	unsigned int flags;
	void *(*main)(void *worker); /* of its threads */
	bool has_rings;		     /* the engine is io_uring */
	bool together;		     /* the threads of a slot are to be on one CPU */
	void (*report)(const char *text);
	size_t stack_size;
	ssize_t guard_size;			/* SWITCHTO_NO_GUARD; 0: pthread's default */
	char name[16];				/* as long as that of a thread may be */
	unsigned int max_threads, idle_threads; /* for tasks; 0: all */
	unsigned int threads;			/* for tasks; with the lock */
	nsec_t trimmed;				/* when the idle ones were looked at */
	struct worker *ending;			/* that were told to end, and are to be joined */
	unsigned int generation;		/* of the process that made it */
	atomic_bool has_worker;			/* for tasks */
	atomic_uint wants_worker;		/* TOO_FEW and TASKS_HELD */
	sigset_t mask;	     /* of new workers: that of the caller of switchto_sched_run() */
	uint64_t fp;	     /* the same: fp_state() without what has happened */
	atomic_bool watched; /* exit(3) */
	atomic_uint tasks;   /* that have not ended, holds, and a step */
	atomic_uint holds;   /* of switchto_sched_hold() */
	atomic_bool running, stopping, cancels, ends;
	atomic_uint visitors;	  /* threads that are in a call and hold no task */
	_Atomic uint32_t monitor; /* MONITOR_RUNS and so on */
	bool monitored;		  /* there is that thread. Changed with running, or at the end */
	pthread_t monitor_thread;
	nsec_t slice;		  /* NEVER: tasks have no slices */
	bool lends;		  /* the kernel tells of tasks that block: switchto_lend() */
	_Atomic uint32_t at_work; /* dispatchers that have not ended, but the first */
	/* Changed with the lock: see is_over(), worker.c. */
	atomic_bool over;	/* all dispatchers have found no tasks, and end */
	_Atomic uint32_t round; /* changes when those go on that wait for the others */
	unsigned int waiting;
	unsigned int next_mark[3]; /* that the monitor verifies, of each kind: mark.c */
	nsec_t verified;	   /* when it did so */
	struct offer *offer;	   /* stats.h */
	struct own_file offered;

	bool conserving; /* the policy */
	/* The policy's, if it has it, and a function change. */
	void (*inherit)(struct switchto_task_attr *attr, const struct switchto_task_attr *from);
	pthread_mutex_t passing; /* inherit.h. Recursive: a thief has it as it empties an inbox */
	struct inherit *waits;	 /* for mutexes that threads have, or tasks of other schedulers */

	pthread_mutex_t lock; /* of the rest */
	struct worker *idle, *workers;
	struct switchto_task *free_tasks, *all_tasks;
	struct switchto_task *first_held, *last_held; /* until a worker has ended its task */
	unsigned int next_slot;			      /* of tasks that other threads spawn */

	unsigned int slots;
	struct slot slot[];
};

/* The calling thread, if it is a worker. */
extern _Thread_local struct worker *switchto_current __attribute__((tls_model("initial-exec")));

/* Is @sched one of the parent, of which there are no threads here? */
static inline bool is_parents(const struct switchto_sched *sched)
{
	return unlikely(sched->generation != switchto_generation);
}

/*
 * The address of a task, and of a struct queued (sync.c), says which generation they are of: so what
 * an object points to, which may be gone in the child of a fork, need not be asked. The number of
 * generations that can be told apart is in sched.h.
 */
enum { GENERATIONS = 16, GENERATION_SIZE = 16, ALL_GENERATIONS = GENERATIONS * GENERATION_SIZE };

/* Is @address that of a process whose child this is? */
static inline bool is_ancestors(const void *address)
{
	return (uintptr_t)address % ALL_GENERATIONS != switchto_generation_offset;
}

#endif /* SWITCHTO_SCHED_TYPES_H */
