/* SPDX-License-Identifier: MIT */
/*
 * libswitchto-sched: schedule kernel threads in user space.
 *
 * A scheduler has slots. A slot is the right to run one task at a time. A task is a
 * function with a kernel thread of its own, which runs only while it owns a slot. A task
 * that waits, for a resume, a time or a descriptor, gives its slot to the next ready task
 * with switchto_switch(): on a kernel with FUTEX_SWAP that is a hand-off of the CPU.
 *
 * Tasks share data as threads do: with locks or atomics, also if the scheduler has only one slot.
 * So that no task stops the others, a task loses its slot when it blocks in another call, or computes
 * for longer than a slice (10 ms, see struct switchto_sched_options). A block is noticed at once if
 * the kernel tells of it, else within some milliseconds: switchto_sched_create(). The task goes on
 * beside the other tasks of the slot, until its next call of this library that may wait, or spawns. A
 * call that has nothing to wait for, such as switchto_mutex_lock() of a free mutex, or
 * switchto_sem_post(), may not count.
 *
 * The thread of a task that waits may wait for the events of its whole slot, until another task is
 * ready. So a task with a low priority (nice(2), SCHED_IDLE) makes the others late when it waits, or
 * calls this library. Compute at a low priority in a thread that is no task.
 *
 * A task whose calls never have to wait, because there is always more to read for example, gives
 * way in one of these calls about every millisecond, as with switchto_yield(). With a mutex
 * locked, that is every two milliseconds. All calls count that a program may make for ever, such
 * as spawn, unpark, cancel, close and those of semaphores and channels; in vain, too, such as
 * switchto_mutex_trylock() while others have the mutex. But to lock and unlock a mutex does not count,
 * so that this takes a few instructions only. In a call that has waited, a task does not give way.
 *
 * A task begins on the thread of a task that has ended, if there is one, and finds what that task
 * has changed of the thread: see switchto_spawn().
 *
 *	static void serve(void *fd)
 *	{
 *		char buffer[512];
 *		ssize_t n;
 *
 *		while ((n = switchto_read((intptr_t)fd, buffer, sizeof(buffer), NULL)) > 0)
 *			switchto_write((intptr_t)fd, buffer, n, NULL);
 *		switchto_close((intptr_t)fd);
 *	}
 *
 *	static void accept_all(void *listener)
 *	{
 *		int fd;
 *
 *		while ((fd = switchto_accept((intptr_t)listener, NULL, NULL, 0, NULL)) >= 0)
 *			switchto_spawn(NULL, serve, (void *)(intptr_t)fd, NULL, NULL);
 *	}
 *
 *	switchto_sched_create(&sched, NULL);
 *	switchto_spawn(sched, accept_all, (void *)(intptr_t)listener, NULL, NULL);
 *	switchto_sched_run(sched);
 *	switchto_sched_destroy(sched);
 *
 * Errors
 * ------
 * Calls return -1 and set errno. These have the same cause everywhere:
 *
 *	EPERM		the call is for tasks, and the caller is not a task: it is another
 *			thread, or the child of a fork()
 *	EDEADLK		the caller is a signal handler that interrupted the scheduler itself
 *	EINVAL		the call would wait, and the task is in a blocking region
 *	ETIMEDOUT	the deadline has passed. What the call waits for has not happened
 *	ECANCELED	the task has been cancelled, see switchto_cancel()
 *	ENOMEM		no memory for the deadline, or for what the call makes
 *	EINVAL		an argument can't be; also a scheduler, task, channel, place for the result or
 *			list of cases that is NULL. Other pointers, to a mutex or an item for example, are
 *			not checked
 *
 * Deadlines are absolute times on CLOCK_MONOTONIC; NULL is never, except for
 * switchto_sleep_until(). A call reads its deadline before it sleeps, and does not keep the
 * pointer. With a deadline that has passed, a call does only what is possible without waiting: the
 * task keeps its slot.
 *
 * No call is a cancellation point of pthread_cancel(3): a call of a thread that is to be cancelled does
 * all of its work.
 *
 * Signal handlers must not call this library: such a call may fail with EDEADLK, or never return. A
 * handler must not leave a call of this library by siglongjmp(). It ends no wait, and no call fails
 * with EINTR.
 *
 * The call that wakes a task or thread releases to it, and the woken call acquires. exit(3) in a
 * task ends the program, while other tasks may still run.
 *
 * The child of a fork()
 * ---------------------
 * None of the parent's tasks and threads exists there. The child of a task is no task. It may call
 * exec or _exit(), and it may create a scheduler of its own. Of the parent's schedulers it may only
 * call switchto_sched_destroy(), which frees them in the child. Other calls for them, and for their
 * tasks, fail with EPERM. A mutex that was locked then stays locked: to lock or unlock it in the child
 * fails with EPERM, but a thread that was no task still has its mutexes. In the child nobody waits for
 * a mutex, condition variable, semaphore, group or channel: it works there, with the count or the items
 * that it had. If another thread was changing it at that moment, its use ends the child by abort(3). A
 * child that returns from the function of its task, or from a signal handler into the scheduler, is
 * ended by abort(3), too.
 *
 * All this holds for what was locked or awaited up to 15 forks ago, each in the last one's child. The
 * child of vfork(), or of a fork that runs no handlers, as _Fork() and clone(2) do, must not call this
 * library.
 */
#ifndef SWITCHTO_SCHED_H
#define SWITCHTO_SCHED_H

#include <sched.h> /* struct timespec, also in C99 without POSIX */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

struct switchto_sched;
struct switchto_task;
struct io_uring_sqe; /* <liburing.h> */
struct mmsghdr;	     /* <sys/socket.h>, with _GNU_SOURCE */

/* --- policies --- */

/* Why a task is ready. */
enum switchto_reason {
	SWITCHTO_NEW,	    /* it was spawned */
	SWITCHTO_WOKEN,	    /* its wait ended: by an unpark or another call, or its deadline */
	SWITCHTO_YIELDED,   /* it gave way */
	SWITCHTO_IO,	    /* its descriptor is ready */
	SWITCHTO_UNBLOCKED, /* it blocked, its slot was taken, and it comes back */
};

/* What a caller of switchto_spawn() says of a task, for policies. */
struct switchto_task_attr {
	int priority;		  /* larger is sooner; switchto_priority */
	unsigned int weight;	  /* share of the slot, 0 as 1; switchto_fair */
	struct timespec deadline; /* CLOCK_MONOTONIC, 0 for none; switchto_edf. As other deadlines */
};

/* The part of a task that belongs to the policy of its slot. */
struct switchto_entry {
	struct switchto_entry *next, *prev; /* for the policy alone */
	uint64_t key;			    /* for the policy alone; 0 in a new task */
	struct switchto_task_attr attr;
};

/*
 * A policy decides the order in which the ready tasks of a slot run. Its functions are
 * called by one thread at a time for each slot. They must not call the library, nor block.
 * A policy has at least enqueue and pick.
 *
 * A policy may hold tasks back: pick returns NULL, although there are entries in the queue. Then the
 * slot asks again when something happens to it (a task becomes ready, an event, a deadline), and
 * after a millisecond at the latest. A policy that never does so says it: conserving.
 */
struct switchto_policy {
	const char *name;
	size_t queue_size; /* bytes of a slot's queue, all 0 at first */
	/* Puts @entry, which is ready and in no queue, into the queue. */
	void (*enqueue)(void *queue, struct switchto_entry *entry, enum switchto_reason why);
	/* Takes the next entry out and returns it, or NULL. */
	struct switchto_entry *(*pick)(void *queue);
	/* @entry has ended, and will be used for another task. May be NULL. */
	void (*end)(void *queue, const struct switchto_entry *entry);
	/*
	 * Takes an entry out for another slot and returns it, or NULL. After NULL it is not asked for
	 * a while, 13 ms at most. If this member is NULL, the policy can't be used with SWITCHTO_STEAL.
	 */
	struct switchto_entry *(*steal)(void *queue);
	/*
	 * @entry, which may be in the queue or not, has @attr from now on: copies it to
	 * entry->attr, and puts the entry where it belongs. If this member is NULL,
	 * switchto_task_set_attr() fails. With a member inherit, write entry->attr here only.
	 */
	void (*change)(void *queue, struct switchto_entry *entry,
		       const struct switchto_task_attr *attr);
	/*
	 * A task with @attr has a mutex for which a task with @from waits. Makes @attr as urgent as
	 * @from, or leaves it: the maximum of the two. So the outcome is the same in any order, and
	 * if it is called again. Any thread calls it, also while others call the other functions:
	 * it uses its arguments only. change is called with the result, and after the unlock with
	 * the task's own attributes. If this member is NULL, or change is, tasks inherit nothing.
	 */
	void (*inherit)(struct switchto_task_attr *attr, const struct switchto_task_attr *from);
	/*
	 * Before the first use of a slot's queue, in switchto_sched_create(): 0, or the error
	 * number with which that call fails. May be NULL.
	 */
	int (*init)(void *queue);
	/*
	 * After the last use of a queue, if its init has not failed: in switchto_sched_destroy(),
	 * or if switchto_sched_create() fails. Entries of tasks that never ran may be in it. In the
	 * child of a fork(), the queue may be half changed: free only what init made. May be NULL.
	 */
	void (*destroy)(void *queue);
	/*
	 * pick returns an entry whenever there is one in the queue: the policy is work-conserving.
	 * If it doesn't, a task is lost, and that ends the program, by abort(3). Those of the
	 * library are; a copy of one with a pick that holds tasks back is not.
	 */
	bool conserving;
};

/*
 * First in, first out. But tasks that were woken run next, in the order of their wakes: at most 16 of
 * them in a row, then one of the others. Nobody starves. A task whose descriptor is ready is one of
 * the others: it runs after those that were ready before it.
 */
extern const struct switchto_policy switchto_fifo;

/*
 * The highest priority first, and within one priority, first in, first out. But a task that is woken
 * for a mutex goes before its equals, as others may wait for it: 16 in a row at most. A priority outside
 * 0 to 31 counts as the nearest of these. A task starves while there are ready tasks with a higher one.
 * But a task that has computed for a slice loses its slot to any ready task, also to one with a
 * lower priority, and goes on beside it. A task that has a mutex inherits the priority of those
 * that wait for it: see switchto_mutex_lock().
 */
extern const struct switchto_policy switchto_priority;
enum { SWITCHTO_PRIORITIES = 32 };

/*
 * The earliest deadline first, then tasks without a deadline; of equal ones, first in, first out, but
 * for those that are woken for a mutex, as with switchto_priority. If a slot can meet all deadlines,
 * and tasks give way often, it does. A deadline that has passed still counts as early. Tasks with later
 * deadlines may starve. After a slice, a task loses its slot to any ready task, also to one with a
 * later deadline. A task that has a mutex inherits the earliest deadline of those that wait for it: see
 * switchto_mutex_lock().
 */
extern const struct switchto_policy switchto_edf;

/*
 * Shares of the slot's time by weight. Nobody starves. A task that is woken for a mutex runs sooner, as
 * with switchto_priority, and its time is charged all the same. The policy reads the clock at every
 * switch. It can't be used with SWITCHTO_STEAL: shares hold within one slot only. A task is not charged
 * for what it computes beside its slot, after a slice or in a blocking region. So tasks that compute
 * for much longer than a slice at a time get equal shares, if there are CPUs for them.
 */
extern const struct switchto_policy switchto_fair;

/* --- schedulers --- */

struct switchto_sched_options {
	size_t size;			      /* sizeof(struct switchto_sched_options) */
	unsigned int slots;		      /* 1 to 1024; 0: one for each CPU of the caller */
	const struct switchto_policy *policy; /* NULL: &switchto_fifo. Outlives the scheduler */
	/*
	 * Of each task's thread, at least PTHREAD_STACK_MIN and room for thread-local storage; 0:
	 * pthread's default.
	 */
	size_t stack_size;
	/*
	 * Only without slices: called once, with one line of text, when a task computes for more
	 * than a second and keeps its slot from other tasks. A thread of the library calls it, and
	 * it must not call the library. NULL: the text goes to stderr.
	 */
	void (*report)(const char *text);
	unsigned int flags; /* see below */
	/*
	 * How long a task may compute, in ns of CPU time, until it loses its slot to the other
	 * tasks of the slot, if these have anything to do, whatever the policy says of them. It goes on
	 * beside them. 0: 10 ms; SWITCHTO_NO_SLICE: it keeps its slot. Other negative numbers: EINVAL. Not
	 * exact: it may be some milliseconds more. If others have the CPU meanwhile, it loses the slot
	 * after eight times as much time on the clock. If a slot whose task keeps it polls a descriptor
	 * for which a task of another slot waits, the other slot takes it over after about 100 ms;
	 * with many such descriptors, later.
	 */
	int64_t slice;
	/*
	 * 0: on a kernel without FUTEX_SWAP the threads of a slot are bound to one CPU, see
	 * switchto_sched_create(). SWITCHTO_NO_PLACE: the kernel places them, as suits tasks that
	 * compute much and switch seldom.
	 */
	int place;
	/*
	 * How many threads there may be for tasks; 0: as many as there are tasks that have begun. When
	 * there are so many, further tasks begin as others end, in the order in which they were first
	 * picked. If all threads have tasks that wait for a task that has not begun, they wait for ever.
	 * Each slot has one thread more, for its dispatcher, and the scheduler has one.
	 */
	unsigned int max_threads;
	/*
	 * How many of these stay while they have no task; 0: all. The others end when they have had none
	 * for one to two seconds. Two more may stay for each slot: a spare one, and one that polls. The
	 * destructors of thread-local variables run then. Those that stay give the memory of their stacks
	 * back by then.
	 */
	unsigned int idle_threads;
	/* Bytes below each stack that can't be used. 0: pthread's default; SWITCHTO_NO_GUARD: none. */
	ssize_t guard_size;
	/*
	 * Of the scheduler's threads, for debuggers and top(1): NAME of those that run tasks, NAME/0, NAME/1
	 * and so on of the slots' dispatchers, NAME/mon of the monitor. The first 15 bytes count, of NAME
	 * fewer. The caller of switchto_sched_run() keeps its name. Copied. NULL: they are as their creators.
	 */
	const char *name;
};

enum { SWITCHTO_NO_SLICE = -1 }; /* slice */
enum { SWITCHTO_NO_PLACE = -1 }; /* place */
enum { SWITCHTO_NO_GUARD = -1 }; /* guard_size */

enum {
	SWITCHTO_STEAL = 1,   /* a slot without a ready task runs a task that is ready on another
				 slot, and has been so for a while. Each switch takes some 15 ns
				 more, also if nothing is stolen */
	SWITCHTO_MEASURE = 2, /* for switchto_slot_stats() and switchto_task_stats(); reads the
				 clock at every switch */
};

/**
 * switchto_sched_create() - make a scheduler
 * @sched_out:	where it goes; free it with switchto_sched_destroy()
 * @options:	NULL for the defaults
 *
 * The environment variable SWITCHTO_ENGINE chooses the engine: "epoll", or "io_uring", which is the
 * default where the system allows it. Descriptors that can be polled are polled by epoll with both.
 *
 * If the kernel has PR_FUTEX_LOAN, it tells when a task blocks in a system call of its own, in a page
 * fault or on a lock, and other tasks run at once. So a task also loses its slot by a sleep of some
 * microseconds. Elsewhere a monitor sees it later. SWITCHTO_BLOCK in the environment demands one:
 * "kernel" or "monitor".
 *
 * On a kernel without FUTEX_SWAP the threads of a slot are bound to one CPU, which may change:
 * SWITCHTO_STAY in switchto.h. A task that starts a thread or a program makes its own thread
 * SWITCHTO_FREE before that, or they are bound, too. The option SWITCHTO_NO_PLACE leaves all threads
 * free, and so does SWITCHTO_PLACE=free in the environment, whatever the option is.
 *
 * Return: 0, or -1 and errno: EINVAL, an option is not possible, or the policy can't be used with
 * SWITCHTO_STEAL (switchto_fair), or has no function enqueue or pick; ENOMEM; EAGAIN, no thread
 * with a stack of this size; EMFILE, ENFILE, no descriptor left (three for each slot); ENOSPC, no
 * watch of epoll left; ENOTSUP, SWITCHTO_ENGINE names no engine, or SWITCHTO_BLOCK neither of the two;
 * EPERM, ENOSYS, SWITCHTO_ENGINE is "io_uring", and a sysctl or a seccomp filter forbids io_uring,
 * Linux is older than 5.6, or the library was built without it; ENOSYS, SWITCHTO_BLOCK is "kernel",
 * and the kernel cannot tell; or an initialization error of the core (switchto.h).
 */
int switchto_sched_create(struct switchto_sched **sched_out,
			  const struct switchto_sched_options *options);

/* How many there are. 0 and EINVAL, if @sched is NULL. */
unsigned int switchto_sched_slots(const struct switchto_sched *sched);

/* The engine, a constant string: "io_uring" or "epoll". NULL and EINVAL, if @sched is NULL. */
const char *switchto_sched_engine(const struct switchto_sched *sched);

/*
 * The queue of the policy of slot @slot, for what the policy counts in it. Other threads use it at
 * the same time: touch atomics only. NULL and EINVAL, if there is no such slot or scheduler; NULL
 * and EPERM in the child of a fork().
 */
void *switchto_policy_queue(struct switchto_sched *sched, unsigned int slot);

/*
 * With the variable SWITCHTO_STATS=1, which a set-user-ID program ignores, all new schedulers have
 * SWITCHTO_MEASURE, and tools/switchto-top shows what they do, live. Then each has one more descriptor,
 * of memory that only the user of the process, or root, can open. If that fails, a line on stderr says
 * so once, and the program runs without.
 */

enum { SWITCHTO_READY_BUCKETS = 24 };

/* Since the scheduler was created. */
struct switchto_slot_stats {
	uint64_t runs;	  /* how often a task began to run, or went on */
	uint64_t run_ns;  /* the time of all runs that have ended, with their blocking regions */
	uint64_t idle_ns; /* the time without a ready task */
	uint64_t steals;  /* how many of the runs were of stolen tasks */
	uint64_t retakes; /* how often it was taken from a task that blocked, or computed for long */
	/* How long tasks were ready before they ran: less than 1 us, 2 us, 4 us, ...; the rest. */
	uint64_t ready[SWITCHTO_READY_BUCKETS];
};

/* Since the task was spawned, without the run that has not ended yet. */
struct switchto_task_stats {
	uint64_t runs, run_ns;
	uint64_t ready_ns;   /* how long it was ready before its runs */
	uint64_t blocked_ns; /* from when its slot was taken until it wanted the slot again */
};

/* For C++, the functions hide the constructors of the structures. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"

/**
 * switchto_slot_stats() - what a slot has done
 *
 * Any thread may call it, at any time. Each number is right, but they are not all of one moment.
 *
 * Return: 0, or -1 and errno: EINVAL, there is no slot @slot; ENOTSUP, the scheduler was made
 * without SWITCHTO_MEASURE.
 */
int switchto_slot_stats(const struct switchto_sched *sched, unsigned int slot,
			struct switchto_slot_stats *stats);
/* The same for a task, which may have ended. Its handle must not have been given back. */
int switchto_task_stats(const struct switchto_task *task, struct switchto_task_stats *stats);

#pragma GCC diagnostic pop

/**
 * switchto_sched_run() - run tasks until there are none
 *
 * The caller's thread becomes the dispatcher of the first slot; the other slots get threads
 * of their own. Returns when the last task has ended. New threads for tasks have the signal mask,
 * credentials, CPUs and so on of this thread, see switchto_spawn().
 *
 * If there is no thread left for a task, the task waits until another task has ended, and tries again
 * every millisecond. A thread for tasks that is left serves all slots in turn.
 *
 * Return: 0, or -1 and errno: EBUSY, the scheduler runs already; EPERM, the caller is a task, or the
 * scheduler was created before a fork() in the parent; EINVAL, @sched is NULL; EAGAIN, ENOMEM, there are
 * tasks, and no thread for a slot, or none for tasks; or an initialization error of the core
 * (switchto.h).
 */
int switchto_sched_run(struct switchto_sched *sched);

enum {
	SWITCHTO_STOP_CANCEL = 1, /* cancel all tasks; without it, they are waited for */
};

/**
 * switchto_sched_stop() - let no further tasks in
 *
 * From now on, until switchto_sched_restart(), switchto_spawn() fails with ECANCELED. Any thread may
 * call it, also a task.
 *
 * Return: 0, or -1 and errno: EINVAL, @flags, or @sched is NULL; EPERM, the child of a fork().
 */
int switchto_sched_stop(struct switchto_sched *sched, int flags);

/**
 * switchto_sched_restart() - let tasks in again, after switchto_sched_stop()
 *
 * Then the scheduler can be run again. Tasks that were cancelled stay so.
 *
 * Return: 0, or -1 and errno: EBUSY, it runs; EINVAL, @sched is NULL; EPERM, the child of a fork().
 */
int switchto_sched_restart(struct switchto_sched *sched);

/**
 * switchto_sched_hold() - keep switchto_sched_run() from returning
 *
 * Until as many calls of switchto_sched_release(), the run waits for tasks of other threads when it has
 * none, without using a CPU. A hold counts like a task: switchto_sched_stop() does not end it, so the run
 * returns when it is released; and switchto_sched_destroy() fails with EBUSY. Any thread may call both.
 *
 * Return: 0, or -1 and errno: EINVAL, @sched is NULL, or there is nothing to release; EPERM, the child of
 * a fork().
 */
int switchto_sched_hold(struct switchto_sched *sched);
int switchto_sched_release(struct switchto_sched *sched);

/**
 * switchto_sched_step() - run what is ready, without waiting, and return
 *
 * For a program with a loop of its own, and a scheduler with one slot: call this whenever the descriptor
 * of switchto_sched_fd() is readable, instead of switchto_sched_run(). The caller waits meanwhile. Tasks
 * run until none is ready, or for about a millisecond. If a task computes for longer, or blocks, the
 * step ends when the task gives way or loses its slot, as it would to other tasks; then it may go on
 * beside the loop. A task that computes loses its slot after its slice, 10 ms by default, and never with
 * SWITCHTO_NO_SLICE: then the loop stands still. Between two steps no other task runs, and idle_ns of
 * switchto_slot_stats() goes on. The scheduler's monitor, a thread, stays after a step, and sleeps while
 * there are neither tasks nor holds. The end of a switchto_sched_run() and switchto_sched_destroy() end it.
 *
 * The caller's thread is as that of switchto_sched_run(), but each step may be of another thread, one at
 * a time. It must not wait for a task between two steps, by switchto_join(), by switchto_end() of a task
 * that has begun, or with a mutex for example: nobody would run the task. A loop that is to end calls
 * switchto_sched_stop() with SWITCHTO_STOP_CANCEL, and goes on until a step returns 0. A step may take a
 * switchto_resume() of the caller's thread as its own: then that resume is lost. switchto_sched_run() may
 * follow steps, and runs the tasks that are left.
 *
 * Return: 1, there are tasks or holds left; 0, there are none, and switchto_sched_destroy() is possible;
 * or -1 and errno: EBUSY, another call steps or runs the scheduler, or makes its descriptor; EPERM, the
 * caller is a task, or the scheduler was created before a fork() in the parent; EINVAL, @sched is NULL;
 * ENOTSUP, it has several slots; EAGAIN, ENOMEM, there are tasks, and no thread for them; or an
 * initialization error of the core (switchto.h). After an error the tasks are as before, and the step is
 * to be repeated: at once after EBUSY, as the event may be gone; some time later after EAGAIN and ENOMEM,
 * as the descriptor stays readable.
 */
int switchto_sched_step(struct switchto_sched *sched);

/**
 * switchto_sched_fd() - a descriptor that is readable when a step has something to do
 *
 * When a task is ready, also by a call of another thread, a deadline has passed, a descriptor of a task
 * is ready, or the last task has ended. A step makes it unreadable, if it leaves nothing to do. It may be
 * readable without need a few times, for example while a descriptor has what no task reads. The program
 * polls for input, level- or edge-triggered, and steps once for each event.
 *
 * The descriptor is an instance of epoll(7), the same for each call, close-on-exec. It is the
 * scheduler's: only poll it, and do so no longer when the scheduler is destroyed. It takes two of the five
 * levels to which instances of epoll can be nested. Any thread may call this, also a task.
 *
 * Return: the descriptor, or -1 and errno: EBUSY, there is none yet, and another call steps or runs the
 * scheduler, or makes it; EPERM, the scheduler was created before a fork() in the parent; EINVAL, @sched
 * is NULL; ENOTSUP, it has several slots; EMFILE, ENFILE, ENOMEM, ENOSPC, no descriptor, memory or watch
 * of epoll left. It takes two descriptors.
 */
int switchto_sched_fd(struct switchto_sched *sched);

/**
 * switchto_sched_destroy() - free a scheduler and its threads
 *
 * In the child of a fork() it frees a scheduler of the parent, which may run there. If it is called
 * while exit(3) ends the program, and there are tasks, it does nothing. This is so for the destructor
 * of a static object, or a function of atexit(3), that was registered before the scheduler had its
 * first task of another thread, or first ran. In a program that makes more than 1,000 schedulers and
 * channels, this holds for the first 1,000 that come into use.
 *
 * It waits for a moment, until other schedulers have no event in hand for tasks of @sched, and no
 * other thread is in a call for such a task.
 *
 * Handles of tasks end with it, also those that have not been given back: no call may use them any
 * more. The threads end, so destructors of thread-local variables run. There, @sched can't be used.
 *
 * Return: 0, or -1 and errno: EBUSY, switchto_sched_run() has not returned, or there are tasks, or
 * another call destroys it; EDEADLK, the caller is a function of another scheduler's policy; EINVAL,
 * @sched is NULL.
 */
int switchto_sched_destroy(struct switchto_sched *sched);

/* --- tasks --- */

/**
 * switchto_spawn() - start a task
 * @sched:	NULL in a task: the caller's scheduler
 * @fn:		the function that the task runs, with @arg
 * @attr:	for the policy; NULL: all 0. Copied.
 * @task_out:	where the handle goes; give it back with switchto_join() or switchto_detach().
 *		NULL: detached from the start
 *
 * The task becomes ready; it runs when the policy of its slot picks it. If the caller is a task, that
 * is the caller's slot, unless another slot has fewer tasks by three or more. When the task begins, it
 * gets the thread of a task that has ended, or a new one; until then it takes some hundred bytes. @fn
 * must return: a task that ends its thread by pthread_exit() or pthread_cancel() ends the program, by
 * abort(3). @fn must not be left by an exception.
 *
 * What a task changes of its thread, the next task on this thread finds changed, but no other one: the
 * signal mask and signal stack, the CPUs, the name, the nice value and scheduling policy, the timer
 * slack, credentials, namespaces, the cancel state, the locale, and thread-local variables. So a task
 * puts back what it has changed. Only errno and the floating-point environment, with its exception
 * flags, are put back by the library, since this takes no system call. A new thread has what the
 * caller of switchto_sched_run() has at the call.
 *
 * Return: 0, or -1 and errno: ENOMEM; ECANCELED, the scheduler stops; EPERM, @sched is NULL outside a
 * task, or the parent's in the child of a fork(); EINVAL, @fn is NULL.
 */
int switchto_spawn(struct switchto_sched *sched, void (*fn)(void *), void *arg,
		   const struct switchto_task_attr *attr, struct switchto_task **task_out);

/* Instead of a number of a slot. */
enum {
	SWITCHTO_NEAR = -1, /* as switchto_spawn() */
	SWITCHTO_THIS = -2, /* that of the caller, a task of @sched */
	SWITCHTO_ANY = -3,  /* each in turn: spreads what is spawned over all */
};

/**
 * switchto_spawn_on() - start a task on a slot of one's choice
 * @slot:	its number, less than switchto_sched_slots(); or SWITCHTO_NEAR and so on
 *
 * A task that was spawned on a slot by its number, or with SWITCHTO_THIS, stays there, also with
 * SWITCHTO_STEAL. All else is as with switchto_spawn().
 *
 * Return: 0, or -1 and errno: as switchto_spawn(); EINVAL, @slot.
 */
int switchto_spawn_on(struct switchto_sched *sched, int slot, void (*fn)(void *), void *arg,
		      const struct switchto_task_attr *attr, struct switchto_task **task_out);

/*
 * The slot of a task, from 0 on. With SWITCHTO_STEAL it may be another one at once. -1 and errno: EINVAL,
 * @task is NULL; EPERM, a task of the parent in the child of a fork().
 */
int switchto_task_slot(const struct switchto_task *task);

/**
 * switchto_task_set_attr() - change the priority, weight or deadline of a task
 * @attr:	copied
 *
 * All of the three count: what is 0 in @attr is 0 then. With switchto_fair, a new weight counts from the
 * end of the next run on.
 *
 * Of a task of another slot, or if the caller is no task, it counts when that slot next picks a task.
 * A task that is ready gets its new place, behind those that are equal. With switchto_edf, this takes the
 * longer the more tasks are ready. Any thread may call it.
 *
 * Return: 0, or -1 and errno: ESRCH, @task has ended; ENOTSUP, the policy has no function change; ENOMEM;
 * EINVAL, @task or @attr is NULL; EPERM, a task of the parent in the child of a fork().
 */
int switchto_task_set_attr(struct switchto_task *task, const struct switchto_task_attr *attr);

/**
 * switchto_join() - wait until a task has ended, and give its handle back
 *
 * Tasks and other threads may call it. What the task wrote is seen afterwards.
 *
 * Return: 0, or -1 and errno: EDEADLK, @task is the caller, or a task that joins the caller (a longer
 * circle waits for ever); EINVAL, another call joins it already, it is detached, @task is NULL, or the
 * handle was given back and no later task has it; ECANCELED; EPERM, a task of the parent in the child
 * of a fork(). After an error the handle is still the caller's.
 */
int switchto_join(struct switchto_task *task);

/**
 * switchto_join_until() - the same, but wait until a time at most
 * @deadline:	NULL: for ever
 *
 * Return: 0, or -1 and errno: as switchto_join(), and ETIMEDOUT, ENOMEM; EINVAL, @deadline.
 */
int switchto_join_until(struct switchto_task *task, const struct timespec *deadline);

/**
 * switchto_end() - cancel a task, wait until it has ended, and give its handle back
 *
 * As switchto_cancel() and switchto_join(), but it also waits if the caller is cancelled. A task that
 * has not begun, and whose scheduler does not run now, is not waited for, and will never run. Two tasks
 * that end each other wait for ever.
 *
 * Return: 0, or -1 and errno: as switchto_join(), but not ECANCELED.
 */
int switchto_end(struct switchto_task *task);

/**
 * switchto_detach() - give a task's handle back, without waiting
 *
 * Return: 0, or -1 and errno: EINVAL, EPERM, as switchto_join().
 */
int switchto_detach(struct switchto_task *task);

/**
 * switchto_cancel() - ask a task to end
 *
 * From now on, each call of @task that would wait fails with ECANCELED instead. This includes the
 * call in which @task is, but not a wait for a mutex. A call whose deadline has passed would not wait:
 * it fails with ETIMEDOUT. Any thread may call switchto_cancel().
 *
 * Return: 0, or -1 and errno: ESRCH, @task has ended; EINVAL, @task is NULL; EPERM, a task of the
 * parent in the child of a fork().
 */
int switchto_cancel(struct switchto_task *task);

/**
 * switchto_shield_begin() - hold off the cancellation of the caller
 *
 * For a clean-up that waits: to send what is left, or to join tasks. Until switchto_shield_end(),
 * calls of this task work as if it had not been cancelled, also if it was before. switchto_end() and
 * SWITCHTO_STOP_CANCEL wait that long. Shields nest.
 *
 * Return: 0, or -1 and errno: EPERM.
 */
int switchto_shield_begin(void);

/**
 * switchto_shield_end() - end a shield
 *
 * After the last one, the next call that would wait fails with ECANCELED if the task has been
 * cancelled, before the shield or during it.
 *
 * Return: 0, or -1 and errno: EPERM; EINVAL, there is no shield.
 */
int switchto_shield_end(void);

/* The calling task, or NULL. */
struct switchto_task *switchto_task_self(void);

/**
 * switchto_task_name() - name the calling task
 * @name:	the first 15 bytes count. Copied. "": it has no name any more
 *
 * The name is in traces, and is that of the task's thread for debuggers and top(1), until the task ends.
 * Two system calls, and one more at the end of the task.
 *
 * Return: 0, or -1 and errno: EPERM; EINVAL, @name is NULL.
 */
int switchto_task_name(const char *name);

/* --- traces --- */

/**
 * switchto_trace_start() - record what all schedulers of the process do
 * @file:	path of a regular file. It is created, readable by its owner, or overwritten
 * @bytes:	its size at most; 0: 64 MiB. Each event takes 32 bytes
 *
 * tools/switchto-trace shows the file. The events are in rings: if there are more, the oldest are
 * overwritten, and switchto-trace says how many. What is recorded is in the file at once, and stays
 * there if the program dies. Names that tasks have are recorded, whenever they got them.
 *
 * With the variable SWITCHTO_TRACE=FILE, which a set-user-ID program ignores, the first
 * switchto_sched_create() of a program starts a trace, and exit(3) stops it; if FILE can't be recorded,
 * a line on stderr says so.
 *
 * A slot begins to record when it next polls, after a millisecond of work at most. An event costs
 * less than 60 instructions with switchto_fifo, and two or three make a switch. The child of a fork()
 * records nothing. execve(2) ends a trace as death does; a program that is run with SWITCHTO_TRACE then
 * overwrites FILE. Do not truncate the file meanwhile: the program would end by SIGBUS. Each trace of a
 * process takes its size of address space for ever.
 *
 * Any thread may call it, but no signal handler.
 *
 * Return: 0, or -1 and errno: EBUSY, a trace is being recorded, here or in @file by another process;
 * EINVAL, @file is NULL or no regular file, or @bytes are too few (64 KiB are enough for 16 CPUs, 1 MiB
 * for all); EFBIG, RLIMIT_FSIZE; ENODEV, the file system can't share a mapping with a file (9p); ENOSPC,
 * ENOMEM, or as open(2).
 */
int switchto_trace_start(const char *file, size_t bytes);

/**
 * switchto_trace_stop() - end the trace, and close its file
 *
 * If memory is short (mlockall(2)), the file stays open, and can't be recorded into again before the
 * process ends.
 *
 * Any thread may call it, but no signal handler.
 *
 * Return: 0, or -1 and errno: EINVAL, no trace is being recorded.
 */
int switchto_trace_stop(void);

/**
 * switchto_yield() - let the other ready tasks of this slot run
 *
 * Return: 0, or -1 and errno: EPERM, EDEADLK; ECANCELED, after the others have run.
 */
int switchto_yield(void);

/**
 * switchto_park() - wait until another thread unparks this task
 *
 * In a cancelled task it fails with ECANCELED, also if @deadline has passed.
 *
 * Return: 0, or -1 and errno: ETIMEDOUT, ECANCELED; EINVAL, @deadline; EPERM, EDEADLK.
 */
int switchto_park(const struct timespec *deadline);

/**
 * switchto_unpark() - end a task's park
 *
 * If the task is not parked, the next switchto_park() returns at once. At most one such
 * unpark is pending. Any thread may call it.
 *
 * Return: 0, or -1 and errno: ESRCH, @task has ended; EINVAL, @task is NULL; EPERM, a task of the
 * parent in the child of a fork().
 */
int switchto_unpark(struct switchto_task *task);

/**
 * switchto_sleep_until() - wait until a time on CLOCK_MONOTONIC
 *
 * In a cancelled task it fails with ECANCELED, also if @deadline has passed.
 *
 * Return: 0, or -1 and errno: ECANCELED, EPERM, EDEADLK; EINVAL, @deadline, which can't be NULL.
 */
int switchto_sleep_until(const struct timespec *deadline);

/**
 * switchto_block_begin() - begin a blocking region
 *
 * In it the task may block, or compute for long, without stopping its slot. If the region takes
 * more than some 20 us, the other tasks of the slot go on. If the slot's last region took so long,
 * they go on at once. Where the kernel tells of tasks that sleep, they go on as soon as the region
 * sleeps; but if it computes, within 10 ms, and at once if the slot's last region did, too. In a
 * region, call only what never waits, such as switchto_unpark(), and switchto_block_end(). What would
 * wait fails with EINVAL there; switchto_park(), switchto_sleep_until() and calls for descriptors do so
 * in any case. But switchto_mutex_lock() and switchto_end() wait, since no cancellation ends them
 * anyway. Regions do not nest.
 *
 * Return: 0, or -1 and errno: EPERM, EDEADLK; EINVAL, in a region.
 */
int switchto_block_begin(void);

/**
 * switchto_block_end() - end a blocking region
 *
 * Waits for the slot, if another task has it.
 *
 * Return: 0, or -1 and errno: EPERM; EINVAL, in no region.
 */
int switchto_block_end(void);

/* --- synchronisation --- */

/*
 * Between tasks, and between tasks and other threads. The task or thread that has waited longest is
 * served first. But a mutex may be locked by a later one that runs, for at most a millisecond after
 * an unlock has first woken the oldest: the next unlock gives it to the oldest. All these objects
 * are ready for use when zeroed, need no end, and must not be moved, freed or zeroed while in use.
 * switchto_cancel() ends no wait for a mutex, but all other waits. A task that ends with a mutex
 * locked ends the program, by abort(3): nobody could ever lock that mutex again.
 */

struct switchto_mutex {
	uintptr_t word;
	void *waiters, *owner;
};

/*
 * A mutex that unlock gives to the one that has waited longest, each time. For order, not for speed:
 * each contended section costs a switch, however short it is.
 *
 *	struct switchto_mutex mutex = SWITCHTO_MUTEX_STRICT;
 */
enum { SWITCHTO_STRICT = 8 };
#define SWITCHTO_MUTEX_STRICT               \
	{                                   \
		SWITCHTO_STRICT, NULL, NULL \
	}

/**
 * switchto_mutex_lock() - lock a mutex
 *
 * With switchto_priority and switchto_edf, a task that has a mutex inherits from each task that
 * waits for it: it is as urgent as the most urgent of them. It passes on what it inherits if it
 * waits for a mutex itself, along 1,024 tasks at most. The task that unlock has woken inherits,
 * too. All that ends with the unlock, or when the other task gives up at its deadline; a
 * cancellation ends no wait for a mutex. It counts when the task's slot next picks a task. An
 * uncontended lock costs nothing more. A contended unlock takes the longer, the more tasks wait.
 *
 * Only tasks of one scheduler inherit from each other. Not all do at once, and a task in between
 * may make the others wait meanwhile:
 *	- A thread, or a task of another scheduler, unlocks the mutex. The task that is woken
 *	  inherits from the others when it has the mutex.
 *	- A task locks the mutex before the one that was woken. It inherits from the others when the
 *	  task that was woken has run and found the mutex locked. If a thread or a task of another
 *	  scheduler was woken, it inherits when the next task begins to wait.
 *
 * Return: 0, or -1 and errno: EDEADLK, the caller has it; EPERM, it was locked before a fork(), and
 * this is the child. Without contention, no system call.
 */
int switchto_mutex_lock(struct switchto_mutex *mutex);

/* Return: 0, or -1 and errno: EBUSY, it is locked. */
int switchto_mutex_trylock(struct switchto_mutex *mutex);

/**
 * switchto_mutex_lock_until() - lock a mutex, but wait until a time at most
 * @deadline:	NULL: for ever
 *
 * A thread that tries again, without a timed lock of another mutex in between, keeps its place in the
 * order of those that wait, unless the mutex was unlocked meanwhile and the place was the first. After
 * a timed lock of another mutex, some 500 bytes stay allocated until the first one is unlocked. No
 * cancellation ends the wait. It may return 0 after @deadline, if it was given the mutex just then.
 *
 * Return: 0, or -1 and errno: as switchto_mutex_lock(), and ETIMEDOUT, ENOMEM; EINVAL, @deadline.
 */
int switchto_mutex_lock_until(struct switchto_mutex *mutex, const struct timespec *deadline);

/**
 * switchto_mutex_unlock() - unlock a mutex, and wake whoever has waited longest
 *
 * Return: 0, or -1 and errno: EPERM, the caller does not have it.
 */
int switchto_mutex_unlock(struct switchto_mutex *mutex);

/* The waiting tasks and threads of the objects below. */
struct switchto_queue {
	struct switchto_mutex lock;
	void *first, *last;
};

struct switchto_cond {
	struct switchto_queue queue;
};

/**
 * switchto_cond_wait() - unlock @mutex, wait for a signal, and lock @mutex again
 * @deadline:	NULL: for ever
 *
 * Return: 0, or -1 and errno: ETIMEDOUT, ECANCELED: the caller has @mutex again; EINVAL
 * (@deadline), EPERM, the caller does not have @mutex: nothing is done.
 */
int switchto_cond_wait(struct switchto_cond *cond, struct switchto_mutex *mutex,
		       const struct timespec *deadline);
/* Wakes the one that has waited longest, or all. The caller need not have the mutex. */
void switchto_cond_signal(struct switchto_cond *cond);
void switchto_cond_broadcast(struct switchto_cond *cond);

struct switchto_sem {
	struct switchto_queue queue;
	unsigned long count; /* set it before the first use */
};

/**
 * switchto_sem_wait() - wait until the count is not 0, and reduce it by one
 *
 * Return: 0, or -1 and errno: ETIMEDOUT, ECANCELED, EINVAL (@deadline).
 */
int switchto_sem_wait(struct switchto_sem *sem, const struct timespec *deadline);
/* A count that would pass ULONG_MAX ends the program, by abort(3). */
void switchto_sem_post(struct switchto_sem *sem);

/* A count of jobs. Others wait until it is 0. */
struct switchto_group {
	struct switchto_queue queue;
	unsigned long count;
};

/* The same, also for a "negative" @count: switchto_group_done() reduces the count. */
void switchto_group_add(struct switchto_group *group, unsigned long count);
/* Return: 0, or -1 and errno: EINVAL, the count is 0 already. */
int switchto_group_done(struct switchto_group *group);
/* Return: 0, or -1 and errno: ETIMEDOUT, ECANCELED, EINVAL (@deadline). */
int switchto_group_wait(struct switchto_group *group, const struct timespec *deadline);

/*
 * A channel carries items of one size from senders to receivers, by copy. It holds @capacity items;
 * with 0, a send waits until a receiver takes the item.
 */
struct switchto_chan;

/* Return: 0, or -1 and errno: EINVAL, @item_size is 0, or @chan_out NULL; ENOMEM. */
int switchto_chan_create(struct switchto_chan **chan_out, size_t item_size, size_t capacity);
/*
 * NULL: does nothing. Return: 0, or -1 and EBUSY: somebody is in a call for the channel. While
 * exit(3) ends the program, it does nothing then: in the destructor of a static object, or a
 * function of atexit(3), that was registered before the first wait for the channel. When a send,
 * receive or close has returned, the other side does not touch the channel any more, though its
 * call may return later.
 */
int switchto_chan_destroy(struct switchto_chan *chan);

/**
 * switchto_chan_send() - send an item
 *
 * Return: 0, or -1 and errno: EPIPE, the channel is closed; ETIMEDOUT, ECANCELED, EINVAL
 * (@deadline).
 */
int switchto_chan_send(struct switchto_chan *chan, const void *item,
		       const struct timespec *deadline);

/**
 * switchto_chan_recv() - receive an item
 *
 * Return: 0, or -1 and errno: EPIPE, the channel is closed and empty; ETIMEDOUT, ECANCELED,
 * EINVAL (@deadline).
 */
int switchto_chan_recv(struct switchto_chan *chan, void *item, const struct timespec *deadline);

/* Ends all waits for it. Items in it can still be received. -1 and EPIPE: it was closed before; EINVAL. */
int switchto_chan_close(struct switchto_chan *chan);

enum switchto_op { SWITCHTO_SEND, SWITCHTO_RECEIVE, SWITCHTO_POLL };

struct switchto_case {
	struct switchto_chan
		*chan; /* NULL: the case is off, it never happens. With SWITCHTO_POLL: NULL */
	enum switchto_op op;
	/*
	 * The item to send, or where the received one goes. With SWITCHTO_POLL: a struct pollfd of poll(2),
	 * or NULL; then the case is off, and also if fd is negative.
	 */
	void *item;
	bool closed; /* the result: the channel is closed, and nothing was sent or received */
};

enum { SWITCHTO_SELECT_MAX = 64 };

/**
 * switchto_select() - do the first of several sends, receives and polls that is possible
 * @cases:	if several are possible, the first in this order
 * @count:	1 to SWITCHTO_SELECT_MAX
 *
 * SWITCHTO_POLL waits for a descriptor as switchto_poll() does, with the same events: for both
 * directions, there are two cases. revents of the case that was done says what there is: POLLNVAL, if the
 * descriptor was closed. revents of the others says nothing. Reading and writing is the caller's; the
 * descriptor is set to O_NONBLOCK. While another task waits for the same descriptor and direction, this
 * one looks at it every 13 ms only: a thousand such tasks take a whole CPU. switchto_poll() need not
 * look. Each such case costs a poll(2) at each wake-up. With such cases, only tasks may call.
 *
 * Return: the index of the case that was done, or whose channel is closed; or -1 and errno:
 * ETIMEDOUT, ECANCELED; EINVAL, @deadline, @count, an op or events, or all cases are off and @deadline is
 * NULL; with SWITCHTO_POLL, also EPERM, and the errors of switchto_poll().
 */
int switchto_select(struct switchto_case *cases, size_t count, const struct timespec *deadline);

/* --- I/O --- */

/*
 * As the system calls of these names on a descriptor that blocks. Instead of blocking, they let other
 * tasks run. So a write or send ends when all is written: no loop around it is needed. If an error, the
 * deadline or a cancellation comes first, it returns how much was written, and an error if nothing was.
 * A read returns what there is. With MSG_WAITALL, a receive waits until it has all, or for the end, as a
 * write does. MSG_DONTWAIT and SPLICE_F_NONBLOCK mean what they always do.
 *
 * A socket, pipe or other descriptor that can be polled is set to O_NONBLOCK at its first use, and
 * stays so. The flag is of the open file, which other processes may share: standard input and output,
 * a terminal. Their calls fail with EAGAIN then. Open such a file anew (/dev/tty, /dev/stdin), or call
 * the system call in a blocking region.
 *
 * If several tasks wait to read from a descriptor, or to write, they are served in the order in which
 * they began to wait. A call that begins when there is something may be served before them. A call
 * that does not take what there is lets the others look: switchto_poll(), or MSG_PEEK with
 * MSG_WAITALL.
 *
 * On a file or folder, a call is done in a blocking region, and neither a deadline nor a cancellation
 * ends it. So is switchto_openat(). Calls with an offset and switchto_fsync() go to io_uring instead, as
 * with switchto_await(), if that is the engine. A regular file is a file also if it can be polled
 * (FUSE, /proc/kmsg, trace_pipe): call switchto_poll() first if the wait is to end by a deadline. That
 * looks at such a file at most every 13 ms.
 *
 * These differ from the system calls:
 * - Limits of time that are options of a socket (SO_RCVTIMEO, SO_SNDTIMEO) are not observed. Deadlines
 *   are.
 * - SO_RCVLOWAT counts for the wait only: a receive that need not wait returns less, and a small one
 *   waits for as many bytes. Use MSG_WAITALL instead.
 * - VMIN and VTIME of a raw terminal are observed. But if VMIN is above 1 and VTIME is 0, bytes are
 *   looked for at most every 13 ms.
 * - Long writes of several tasks to a terminal may mix. A read that waits when a terminal is hung up
 *   returns 0, as later ones do, and not EIO.
 * - A send that waits finds out in up to 20 ms that a socket of UNIX was shut down, or in 1 ms for each
 *   send that waits.
 * - A signalfd tells of signals to the process. Those to one thread may be found late, or never.
 * - With MSG_ZEROCOPY, each part of a send has a notification of its own.
 * - With SO_PASSPIDFD or SO_INQ, a receive from a stream of UNIX may end after a part, also with
 *   MSG_WAITALL.
 * - switchto_sendmmsg() of datagrams may return fewer than it was given, also without an error.
 * - With RLIMIT_NOFILE at 0, poll(2) fails with EINVAL, and so do calls that wait by means of it:
 *   connects, polls, splices. For a descriptor, switchto_select() finds POLLNVAL.
 * - switchto_write() to a SOCK_SEQPACKET socket sets no MSG_EOR. switchto_send() sets it if told to.
 * - A write by io_uring beyond RLIMIT_FSIZE fails with EFBIG, but there is no SIGXFSZ.
 *
 * A descriptor may be used by tasks of several schedulers, also at once. While a task of one waits for
 * it, a call of another one that has to wait may look at it every 13 ms only. Any thread may close it with
 * switchto_close(), which ends all waits for it with EBADF. No call that has waited, or is between two
 * parts, goes on with the next descriptor of that number. A library that closes a descriptor itself
 * does not know of tasks: call switchto_forget() before. If nobody does, calls find out what became of
 * the descriptor. If there is none with this number any more, a wait ends with EBADF. If there is
 * another one, a call that has just begun goes on with that, and a wait that has lasted for long ends
 * with EBADF. That takes up to 20 ms, or 5 ms for each descriptor for which tasks wait, or 10 ms for
 * each 1,024 numbers that are in use, whichever is most.
 *
 * errno: as the system call, or EPERM, EDEADLK, ETIMEDOUT, ECANCELED; ENOMEM, also for the mark of
 * the descriptor, which a number of 4,194,304 or more never has; ENOSPC, no watch of epoll left
 * (/proc/sys/fs/epoll/max_user_watches); EINVAL, the deadline, or the task is in a blocking region.
 */
ssize_t switchto_read(int fd, void *buffer, size_t size, const struct timespec *deadline);
ssize_t switchto_write(int fd, const void *buffer, size_t size, const struct timespec *deadline);
ssize_t switchto_readv(int fd, const struct iovec *parts, int count,
		       const struct timespec *deadline);
ssize_t switchto_writev(int fd, const struct iovec *parts, int count,
			const struct timespec *deadline);
ssize_t switchto_pread(int fd, void *buffer, size_t size, off_t offset,
		       const struct timespec *deadline);
ssize_t switchto_pwrite(int fd, const void *buffer, size_t size, off_t offset,
			const struct timespec *deadline);
ssize_t switchto_preadv(int fd, const struct iovec *parts, int count, off_t offset,
			const struct timespec *deadline);
ssize_t switchto_pwritev(int fd, const struct iovec *parts, int count, off_t offset,
			 const struct timespec *deadline);
ssize_t switchto_recv(int fd, void *buffer, size_t size, int flags,
		      const struct timespec *deadline);
ssize_t switchto_send(int fd, const void *buffer, size_t size, int flags,
		      const struct timespec *deadline);
ssize_t switchto_recvfrom(int fd, void *buffer, size_t size, int flags, struct sockaddr *address,
			  socklen_t *length, const struct timespec *deadline);
ssize_t switchto_sendto(int fd, const void *buffer, size_t size, int flags,
			const struct sockaddr *address, socklen_t length,
			const struct timespec *deadline);
ssize_t switchto_recvmsg(int fd, struct msghdr *message, int flags,
			 const struct timespec *deadline);
ssize_t switchto_sendmsg(int fd, const struct msghdr *message, int flags,
			 const struct timespec *deadline);
/*
 * Several messages in one call. It ends when all are received or sent, or with an error, the deadline
 * or a cancellation; with MSG_WAITFORONE, when one is received and there are no more. An entry in the
 * socket's queue of errors (MSG_ERRQUEUE) ends a receive after its first messages, too. Return: how
 * many, at least 1.
 */
int switchto_recvmmsg(int fd, struct mmsghdr *messages, unsigned int count, int flags,
		      const struct timespec *deadline);
int switchto_sendmmsg(int fd, struct mmsghdr *messages, unsigned int count, int flags,
		      const struct timespec *deadline);
/* As accept4(2). The new descriptor does not block. */
int switchto_accept(int fd, struct sockaddr *address, socklen_t *length, int flags,
		    const struct timespec *deadline);
/* After a deadline, the connection may still be made. A further call waits for that. */
int switchto_connect(int fd, const struct sockaddr *address, socklen_t length,
		     const struct timespec *deadline);
/*
 * One of the two descriptors must be a pipe, as for splice(2). If the other one is a file, the call
 * is done in a blocking region with both engines.
 */
ssize_t switchto_splice(int from, off_t *from_offset, int to, off_t *to_offset, size_t size,
			unsigned int flags, const struct timespec *deadline);
ssize_t switchto_sendfile(int to, int from, off_t *offset, size_t size,
			  const struct timespec *deadline);

/**
 * switchto_close() - close a descriptor
 *
 * Ends all waits for it with EBADF. Any thread may call it. A close that may wait is done in a
 * blocking region: of a file, or of a device or a socket with SO_LINGER, whose number is free at
 * once. If no number is left (EMFILE), the close of the last two keeps its slot, and the number,
 * until it ends.
 *
 * Return: 0, or -1 and errno: as close(2), but not EINTR.
 */
int switchto_close(int fd);

/**
 * switchto_forget() - a descriptor is going to be closed by close(2)
 *
 * For libraries that close their descriptors themselves. Ends all waits for @fd with EBADF, and removes
 * what the library knows about it. @fd stays open. Any thread may call it.
 *
 * Return: 0.
 */
int switchto_forget(int fd);

/**
 * switchto_poll() - wait until a descriptor is ready, for libraries that make the calls themselves
 * @events:	as for poll(2): either POLLOUT, or POLLIN, POLLRDHUP or both of these
 *
 * Return: the events, as in revents of poll(2); or -1 and errno: EINVAL, @events, or as above.
 */
int switchto_poll(int fd, short events, const struct timespec *deadline);

/* In a blocking region. */
int switchto_openat(int folder, const char *path, int flags, mode_t mode);
/* By io_uring, or in a blocking region, as calls on a file. */
int switchto_fsync(int fd);

/* POSIX.1-2008. musl has WEXITED without it, but no siginfo_t. */
#if defined(WEXITED) && (defined(__GLIBC__) || defined(SI_USER))
/* A wait for the end of one process (P_PID) ends at once. For others, it looks at most every 13 ms. */
int switchto_waitid(idtype_t idtype, id_t id, siginfo_t *info, int options,
		    const struct timespec *deadline);
#endif

/**
 * switchto_await() - do an operation of io_uring, and let other tasks run meanwhile
 * @sqe:	as functions such as io_uring_prep_read() fill it in. Copied; user_data is not used.
 * @flags:	where the flags of the completion go; may be NULL
 *
 * For an operation with one completion, or with a second one that says that memory is free again (a
 * send without a copy). After the deadline, and after a cancellation, the call asks the kernel to
 * cancel the operation. The call returns when the operation is over. Then the memory of the
 * operation is the caller's again, also after an error. The kernel can't cancel everything that has
 * begun, for example a read from a disk.
 *
 * Return: the result of the completion, 0 or more; or -1 and errno: the error of the completion, or
 * EPERM, EDEADLK, ETIMEDOUT, ECANCELED; ENOSYS, the engine is epoll; EAGAIN, no memory for more;
 * EINVAL, @deadline, or a flag that ties the operation to others (IOSQE_IO_LINK,
 * IOSQE_IO_HARDLINK, IOSQE_IO_DRAIN, IOSQE_CQE_SKIP_SUCCESS), or the task is in a blocking region.
 */
int switchto_await(const struct io_uring_sqe *sqe, uint32_t *flags,
		   const struct timespec *deadline);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif /* SWITCHTO_SCHED_H */
