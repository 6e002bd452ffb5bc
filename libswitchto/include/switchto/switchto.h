/* SPDX-License-Identifier: MIT */
/*
 * libswitchto: hand the CPU from one thread to another.
 *
 * A program decides itself which of its threads runs next. The threads are ordinary kernel
 * threads: gdb, perf, TLS and blocking system calls work in them as in any other thread.
 *
 * A thread is named by its kernel TID. A wait parks the calling thread until another thread
 * resumes it. A switch is both in one step: it resumes another thread and waits.
 *
 * FUTEX_SWAP is an operation of futex(2) in Linux 6.12 and 7.3 with kernel/patches/ of the
 * sources. There the backend is "swap", on all other kernels "wake-wait". switchto(7) has
 * deployment: kernels, backends, seccomp filters, limits, sanitizers. This header has the
 * rules of use.
 *
 *	// Two threads that take turns. Errors are left out.
 *
 *	static void *second(void *first_tid)
 *	{
 *		pid_t first = *(pid_t *)first_tid;
 *
 *		switchto_resume(first);			// "I am here"
 *		switchto_wait(NULL);
 *		answer_the_request();
 *		switchto_resume(first);			// and end
 *		return NULL;
 *	}
 *
 *	pid_t self = switchto_self(), tid;
 *	pthread_create(&thread, NULL, second, &self);
 *	tid = switchto_wait(NULL);			// the second thread's TID
 *	prepare_a_request();
 *	switchto_switch(tid);				// park until it resumes us
 *
 * One resume, one return
 * ----------------------
 *  - A resume that comes before the wait stays pending, and the wait returns at once. So
 *    the order of a resume and a wait does not matter.
 *  - At most one resume is pending; resumes are not counted. Two resumes before one wait
 *    cause one return, with the TID of the later resume. Keep the reason for a resume in
 *    your own data, and look at that data after each return.
 *  - A wait that ends with ETIMEDOUT took no resume. A resume that arrives at that moment
 *    is either returned instead of the error, or stays pending for the next wait.
 *  - There are no spurious returns: a wait returns for a resume, or with -1 and an error.
 *
 * Memory ordering
 * ---------------
 * A thread writes to memory, then resumes or switches to another thread. The other thread
 * sees these writes after its wait or switch has returned. If one return answers several
 * resumes, this holds for each of them.
 *
 * Which threads
 * -------------
 * Threads of one process. A thread is registered by its first call of any function except
 * switchto_resume() and switchto_version(), until it ends. A resume of a live thread that
 * is not registered yet stays pending for it. A thread must end by returning,
 * pthread_exit() or cancellation. A pending resume ends with its thread; switchto(7) names
 * the rare cases in which a new thread with a recycled TID may receive a stray resume.
 *
 * Registration can fail: it needs memory, and a file descriptor if a resume is pending.
 * Call switchto_self() when a thread starts, and check its result. After that, no call of
 * this thread fails for want of memory or a file descriptor for itself. (Placement uses both;
 * without them, a thread may stay where it is: switchto_place().) A resume of, or a switch to,
 * a thread that is not registered needs both.
 *
 * The child of a fork() has one thread, not registered, without a pending resume. Do not
 * call the library in a child of vfork(). Use one copy of the library per process.
 *
 * Signals
 * -------
 * A handler may call switchto_resume() and switchto_version(), and no other function of
 * the library. A handler does not end a wait or a switch, nor move a deadline, with or without
 * SA_RESTART, on either backend: no call needs a loop for EINTR. (EINTR has one cause: a handler
 * forked during the call and returned in the child, where no thread resumes the caller.) Stopping
 * and continuing the process does not end a wait either.
 *
 * A handler that is to end the wait of its own thread sets a flag and resumes that thread,
 * whose TID gettid(2) returns. Look at the flag after each return: the wait may also return
 * the TID of another thread that resumed it after the handler. If a handler's resume ended
 * a switch, wait for the target's answer with switchto_wait(), not with another switch.
 *
 * A handler may siglongjmp() out of a wait. The wait is given up, and with it a resume that
 * it had just taken. A handler must not siglongjmp() out of a thread's first call,
 * switchto_backend(), a resume or a switch: the target may not have been woken.
 *
 * Cancellation: the calls are not cancellation points. To end a thread's wait, set a flag
 * and resume the thread. Asynchronous cancellation is safe only in switchto_wait() and
 * switchto_wait_until(), and only after the thread has called switchto_self(). Elsewhere a target
 * may sleep on although it has its resume, and first calls of other threads may block.
 *
 * Initialization errors
 * ---------------------
 * Every call except switchto_resume() and switchto_version() can fail with one of these,
 * before it has any effect. switchto(7) says what to do.
 *
 *	ENOSYS	SWITCHTO_BACKEND=swap, and this kernel has no FUTEX_SWAP; or the kernel is
 *		older than Linux 4.14; or it is older than 6.9, and there is no /proc
 *	EPERM	a seccomp filter refuses the probe for FUTEX_SWAP
 *	ENOTSUP	SWITCHTO_BACKEND names no backend, or SWITCHTO_PLACE no placement
 *	ENOMEM	no memory for the thread's state, or no file descriptor
 *	EAGAIN	no thread-specific data key left (PTHREAD_KEYS_MAX)
 *	ELIBMAX	another copy of the library is in use in this process
 *
 * Test switchto_backend() for NULL at start-up, to meet them there. Later, ENOMEM and
 * ENOSYS may come from a thread's first call, and from a resume of or a switch to a thread
 * that is not registered. After ENOMEM the call may be repeated; the others are for good.
 */
#ifndef SWITCHTO_SWITCHTO_H
#define SWITCHTO_SWITCHTO_H

#include <sys/types.h>
#include <time.h>

#define SWITCHTO_VERSION_MAJOR 0
#define SWITCHTO_VERSION_MINOR 3
#define SWITCHTO_VERSION_PATCH 0

struct timespec; /* under -std=c99 time.h has none */

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

/**
 * switchto_self() - register the calling thread, and return its TID
 *
 * Return: the kernel TID (gettid(2)), or -1 and errno: the initialization errors.
 *
 * Thread-safe. Not async-signal-safe. No system call after a thread's first call.
 */
pid_t switchto_self(void);

/**
 * switchto_wait() - park the calling thread until another thread resumes it
 * @timeout:	how long at most, relative, CLOCK_MONOTONIC; NULL: for ever. Read before the
 *		call sleeps, never kept. 0: only take a pending resume.
 *
 * Return: the TID of the thread that resumed this one, or -1 and errno.
 *
 * errno: ETIMEDOUT, not before the time has passed; EINVAL, @timeout is negative or its
 * tv_nsec is not in 0 ... 999999999; the initialization errors.
 *
 * Thread-safe. Not async-signal-safe. Acquires what the resuming threads released.
 *
 * One futex(2) call: FUTEX_SWAP without a target (backend swap), or FUTEX_WAIT or
 * FUTEX_WAIT_BITSET (wake-wait). None if a resume was pending. A bound thread, see
 * switchto_place(), makes four more or, seldom, some ten: to give its mask back.
 */
pid_t switchto_wait(const struct timespec *timeout);

/**
 * switchto_wait_until() - switchto_wait() with an absolute deadline
 * @deadline:	a time on CLOCK_MONOTONIC; NULL: for ever. A time that has passed: only take
 *		a pending resume. If the wait is repeated, the deadline stays the same.
 *
 * Return, errno, safety, ordering: as switchto_wait().
 */
pid_t switchto_wait_until(const struct timespec *deadline);

/**
 * switchto_resume() - make a thread runnable
 * @tid:	a thread of this process, by its kernel TID; may be the calling thread
 *
 * If @tid waits, it is woken, and its wait returns the caller's TID. If not, the resume
 * stays pending for its next wait.
 *
 * Return: 0, or -1 and errno. After an error nothing has happened.
 *
 * errno: ESRCH, no live thread of this process has this TID; EINVAL, @tid is not positive;
 * ENOMEM, ENOSYS or ELIBMAX (see the initialization errors), if @tid is not registered.
 *
 * Thread-safe. Async-signal-safe; a handler saves errno if the call may fail. Not
 * async-cancel-safe. The caller need not be registered. Does not wait. Releases to @tid.
 *
 * One futex(2) call if @tid waits: FUTEX_SWAP that only wakes, followed by FUTEX_WAKE if
 * @tid has not fallen asleep yet (backend swap), or FUTEX_WAKE (wake-wait). No system call
 * if @tid does not wait. More if @tid or the caller is not registered: switchto(7); or if
 * @tid is bound: switchto_place().
 */
int switchto_resume(pid_t tid);

/**
 * switchto_switch() - resume a thread and wait, in one step
 * @tid:	a thread of this process, by its kernel TID
 *
 * The hand-off: switchto_resume(@tid), then switchto_wait(NULL), without another thread in
 * between if kernel and scheduling allow. If @tid does not wait, the resume stays pending
 * for it, and the caller still waits. If a resume is pending for the caller, @tid is
 * resumed, and the call returns at once: so two threads that switch to each other at the
 * same time both return. A switch to oneself returns the caller's TID at once.
 *
 * Return: the TID of the thread that resumed this one, or -1 and errno.
 *
 * errno: ESRCH, EINVAL as switchto_resume(), and the initialization errors. After these
 * nothing has happened, and the call may be repeated.
 *
 * Thread-safe. Not async-signal-safe, not async-cancel-safe. Releases to @tid, acquires
 * from the thread that resumes the caller.
 *
 * If @tid waits: one futex(2) call, FUTEX_SWAP (backend swap), or FUTEX_WAKE and
 * FUTEX_WAIT (wake-wait). switchto_switch(3) and switchto_place() have the exceptions.
 */
pid_t switchto_switch(pid_t tid);

/**
 * switchto_switch_timed() - switchto_switch() that waits for a limited time
 * @tid:	as for switchto_switch()
 * @timeout:	as for switchto_wait()
 *
 * Return, errno: as switchto_switch(), and ETIMEDOUT: @tid has been resumed, but nobody
 * resumed the caller in time. A later resume stays pending, and the next wait or switch
 * returns at once: number your requests. EINVAL of a bad @timeout: nothing has happened.
 *
 * Safety, ordering: as switchto_switch().
 */
pid_t switchto_switch_timed(pid_t tid, const struct timespec *timeout);

/**
 * switchto_switch_until() - switchto_switch() with an absolute deadline
 * @tid:	as for switchto_switch()
 * @deadline:	as for switchto_wait_until()
 *
 * Return, errno, safety, ordering: as switchto_switch_timed().
 */
pid_t switchto_switch_until(pid_t tid, const struct timespec *deadline);

/**
 * switchto_place() - choose where the calling thread may run after a switch to it
 * @place:	SWITCHTO_FREE: on any CPU that it may use. SWITCHTO_TOGETHER: where the thread
 *		that switches to it runs, unless that one is SWITCHTO_FREE. SWITCHTO_STAY: the
 *		same, and a resume leaves it there, too.
 *
 * For the backend wake-wait. (With the backend swap a switch keeps the two threads on one
 * CPU, whatever is chosen here.) What a thread has before its first call of this is in
 * SWITCHTO_PLACE, "free" or "together"; without that it is SWITCHTO_FREE.
 *
 * A switch to a free thread on an idle CPU takes many times as long as one to a thread on the
 * caller's CPU. To keep threads together, the library binds them, by sched_setaffinity(2), to
 * one of the CPUs that the program lets them use. It lets them go now and then, so that the
 * kernel can place them anew, and for a while if another thread needs their CPU. A thread
 * gets its own mask back with a resume (not with SWITCHTO_STAY), also with a pending one; when
 * a wait or switch of it times out, if two ticks (8 ms with CONFIG_HZ=250) have passed since
 * the resume before; when it forks or ends; and by this call with SWITCHTO_FREE. A mask that
 * a cpuset or the program sets meanwhile is respected. But it may be lost if it
 * has only the CPU to which the thread is bound, or if it is set at the moment another thread
 * switches to this one. Make a thread SWITCHTO_FREE before its mask is set.
 *
 * Until then the thread's affinity is one CPU. The thread sees that itself, and so do the
 * threads and programs that it starts, except by fork(2). (A child of _Fork() or clone(2) has
 * the one CPU.) Call this with SWITCHTO_FREE before pthread_create(3), posix_spawn(3),
 * system(3), vfork(2) or execve(2). A thread that computes for long beside others should be
 * SWITCHTO_FREE, too, or be let go: switchto_let_go(). A bound thread can't become
 * SCHED_DEADLINE (EPERM).
 *
 * Return: what it was before, or -1 and errno: EINVAL, @place is none of the three; the
 * initialization errors.
 *
 * Thread-safe. Not async-signal-safe, not async-cancel-safe.
 */
int switchto_place(int place);

/**
 * switchto_let_go() - give a thread its own mask back, if switchto_place() has bound it
 * @tid:	a registered thread of this process, also the caller
 *
 * For schedulers, when a thread computes or blocks beside others. What the thread has chosen with
 * switchto_place() stays: the next switch to it may bind it again.
 *
 * Return: 0, or -1 and errno: ESRCH, there is no such thread.
 *
 * Thread-safe, async-signal-safe.
 */
int switchto_let_go(pid_t tid);

enum { SWITCHTO_FREE, SWITCHTO_TOGETHER, SWITCHTO_STAY };

/**
 * switchto_lend() - learn when a thread blocks to which the caller has handed its place
 * @how:	SWITCHTO_LENDS: each switch of the caller lends its place on the CPU to the
 *		target, each switch of the target passes it on, and a switch to the caller
 *		brings it home.
 *		SWITCHTO_TAKES: the caller can have a place that is lent.
 *		SWITCHTO_LENDS_NOT: neither, as at first
 * @keeps:	with SWITCHTO_TAKES, a word of 32 bits, or NULL. While the word is not 0, the caller
 *		sleeps on purpose, and keeps the place. The kernel reads it until the thread ends
 *		or calls this again
 *
 * For schedulers. The place comes back if the thread that has it goes to sleep anywhere but in a
 * switch or a wait of this library, or ends. Then the lender's switch or wait fails with
 * EINPROGRESS, and returns minus the TID of that thread. If the lender was resumed as well, its
 * call returns for the resume instead. The thread that went to sleep learns nothing of this, and
 * goes on when it wakes up. Its sleep may be over already. A task of the scheduling layer must not
 * call this.
 *
 * A place is lent only to a thread that takes part, belongs to the same process, and waits already
 * when it is switched to. If a thread that has a place switches to any other thread, the place comes
 * back; but if that does not wait yet, and the word @keeps is not 0, the caller keeps it.
 *
 * Return: 0, or -1 and errno: EINVAL, a bad argument, or this kernel has no PR_FUTEX_LOAN; ENOSYS,
 * the backend is another one; EFAULT, @keeps is outside the address space; ENOMEM; the
 * initialization errors.
 *
 * Rests on prctl(PR_FUTEX_LOAN), kernel/futex/loan.c of the patches for Linux 6.12 and 7.3. Takes
 * some 20 instructions for each switch that passes a place on. Thread-safe. Not async-signal-safe.
 * It orders nothing: the switches of the threads order what they share.
 */
int switchto_lend(int how, const void *keeps);

enum { SWITCHTO_LENDS_NOT, SWITCHTO_TAKES, SWITCHTO_LENDS };

/**
 * switchto_backend() - name the backend in use
 *
 * Return: "swap" or "wake-wait", a constant string; or NULL: the initialization errors.
 *
 * Thread-safe. Not async-signal-safe.
 */
const char *switchto_backend(void);

/**
 * switchto_version() - name the version of the library that is loaded
 *
 * SWITCHTO_VERSION_MAJOR, _MINOR and _PATCH name the version of this header.
 *
 * Return: "MAJOR.MINOR.PATCH", a constant string. No errors.
 *
 * Thread-safe. Async-signal-safe.
 */
const char *switchto_version(void);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif /* SWITCHTO_SWITCHTO_H */
