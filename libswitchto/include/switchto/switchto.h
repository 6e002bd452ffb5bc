/* SPDX-License-Identifier: MIT */
/*
 * libswitchto: hand the CPU from one thread to another.
 *
 * The threads are ordinary kernel threads: gdb, perf, TLS and blocking system
 * calls work in them as ever. (ThreadSanitizer needs a library that is built
 * with it, cmake -DSWITCHTO_SANITIZE=thread, to see what a resume orders; and Clang
 * 19 or newer, to run handlers in parked threads at once.) What the library adds is
 * that a program decides itself which of them runs next.
 *
 * A thread is named by its kernel TID. It leaves the schedule with wait, is
 * made runnable with resume, and with switch does both at once: it resumes
 * another thread and waits in its place.
 *
 *	// Two threads that take turns. The second one's TID comes with its
 *	// first resume; errors are left out.
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
 *	tid = switchto_wait(NULL);			// the second's TID
 *	prepare_a_request();
 *	switchto_switch(tid);				// park until it resumes us
 *
 * One resume, one return
 * ----------------------
 * Each thread has one word of state: running, waiting, or resumed by TID.
 *
 *  - A resume that comes before the wait is kept, and the wait returns at once.
 *    So resume and wait commute: whoever sees "I am about to wait" published
 *    may resume, without asking whether the wait has begun.
 *  - One resume is kept, not a count of them. Of two resumes before one wait,
 *    one return comes out (with the TID of the later one). Keep what the
 *    resumes are *for* in your own data, and look at it after each return.
 *  - A wait that ends with ETIMEDOUT took no resume. One that arrives in that
 *    instant is either returned instead of the error or kept for the next wait,
 *    never lost and never seen twice.
 *  - There are no spurious returns: a thread returns from wait because a
 *    thread resumed it, or with -1 and one of the errors named below.
 *
 * Memory ordering
 * ---------------
 * What a thread did before its resume or switch of T is visible to T after the
 * wait or switch that returns for it. That holds for every one of several
 * resumes which one return answers, not just for the one whose TID it returns.
 *
 * Which threads
 * -------------
 * Threads of one process. A thread is known to the library from its first
 * call other than resume on, and until it ends. That call may fail: it needs memory
 * and, if a resume came before it, a file descriptor. A thread that calls
 * switchto_self() when it starts meets this there; no later call of it needs either.
 * Resume of a live thread of
 * this process that is not known yet is kept for it all the same. A resume that
 * is kept when its thread ends is gone: a new thread to which the kernel gives
 * the TID never receives it. This takes threads that end by returning,
 * pthread_exit() or cancellation (a bare SYS_exit runs no destructors and so
 * never tells the library), and no calls of the library from a thread-specific
 * data destructor that arms itself again until the C library gives up on it. A
 * TID that the program itself holds on to for longer than the thread lives may
 * be another thread's by the time it is used, as with tgkill(2). And if the TID
 * changes hands in the middle of a resume of a thread that is not known, while
 * the process has no file descriptor left for the new thread to be told from the
 * old one by, the new one may return from one wait for it. The same goes for two
 * threads that begin in the same 10 ms and have the same TID, the first of which is
 * resumed before it is known, where the kernel does not number threads (before
 * Linux 6.9, or with a seccomp filter that refuses pidfd_open(2)); and for any two
 * such threads if the filter is in force for only one of resumer and thread.
 *
 * One copy of the library per process. Two copies (one linked statically into the
 * program, one shared by a plugin) do not see each other's threads. So the copy that is
 * called first is in use, and each call of another copy fails with ELIBMAX. For code
 * that is unloaded with dlclose() use the shared library, which stays.
 *
 * In the child of a fork() there is one thread, no kept resume, and a
 * new TID: take it with switchto_self(). (Should a handler fork and return in
 * the child while its thread waits, the wait ends there with EINTR.) exec()
 * leaves nothing behind. The calls are not to be made in a child of vfork(), which
 * runs on its parent's memory.
 *
 * The calls are not cancellation points, and not async-cancel-safe: a thread whose
 * cancellation type is PTHREAD_CANCEL_ASYNCHRONOUS must not be cancelled in a resume or
 * in a switch. The thread that it resumes would have its resume, but might sleep on
 * until its timeout or a signal. A thread that is parked can be cancelled so.
 *
 * Signals
 * -------
 * A handler may call switchto_resume(), and switchto_version(), and may call nothing
 * else of the library. A handler does not end the wait of the thread that it runs in,
 * with or without SA_RESTART, on either backend. One that is to end it resumes that
 * thread: the wait returns the thread's own TID. Unlike EINTR this is not lost if the
 * signal comes just before the wait.
 *
 * Leaving a handler that interrupted a wait with siglongjmp() gives that wait up.
 * Don't leave one so that interrupted a resume or a switch before it slept: whom it
 * had resumed may not have been woken yet. Stopping and continuing the process is not
 * noticed.
 *
 * Backends
 * --------
 * `swap`: FUTEX_SWAP of the patched kernel, one system call per switch. A wait is a
 * FUTEX_SWAP that wakes nobody, a resume one that does not wait. A switch and a resume
 * tell the kernel the TID, so their cost does not depend on how many threads are
 * parked. But the kernel walks a chain of those, as with wake-wait, if the target has
 * not fallen asleep yet, or went back to sleep after a stray wake-up or a signal
 * handler (in FUTEX_WAIT, where no TID leads to it).
 * `wake-wait`: FUTEX_WAKE, then FUTEX_WAIT, on any Linux from 4.14 on.
 * Meaning and errors are the same.
 * Should FUTEX_SWAP vanish later (a process moved to another kernel, a seccomp
 * filter), each call falls back to FUTEX_WAKE or FUTEX_WAIT. A wait that is
 * refused these too says so on standard error and aborts; a resume returns 0 all
 * the same. The choice is made once, at the first call, with a probe that changes
 * nothing. The environment variable SWITCHTO_BACKEND=swap or
 * SWITCHTO_BACKEND=wake-wait forces it (ignored in set-user-ID programs).
 *
 * Initialization errors
 * ---------------------
 * Every call but switchto_resume() and switchto_version() can fail, before it has
 * any effect, with
 *
 *	ENOSYS	SWITCHTO_BACKEND=swap, and this kernel has no FUTEX_SWAP; or
 *		no MADV_WIPEONFORK (older than Linux 4.14); or no way to tell
 *		threads apart that follow each other (older than 6.9, no /proc)
 *	EPERM	a seccomp filter answers the probe with EPERM (or another error
 *		than ENOSYS): let it pass, have it answer ENOSYS, or set
 *		SWITCHTO_BACKEND=wake-wait
 *	ENOTSUP	SWITCHTO_BACKEND names no backend
 *	ENOMEM	no memory for the thread's state (one cache line of a mapping
 *		that 512 TIDs share; RLIMIT_AS), or no file descriptor to look
 *		a thread up with (RLIMIT_NOFILE)
 *	EAGAIN	no thread-specific data key left (PTHREAD_KEYS_MAX)
 *	ELIBMAX	another copy of the library is in use in this process; a line on
 *		standard error says so
 *
 * They are called "the initialization errors" below. A program that makes its
 * first call at start-up meets them there and not later, but for ENOMEM, which
 * any thread's first call may meet: test switchto_backend() for NULL. Once
 * initialization has failed it stays so for the process.
 */
#ifndef SWITCHTO_SWITCHTO_H
#define SWITCHTO_SWITCHTO_H

#include <sys/types.h>
#include <time.h>

#define SWITCHTO_VERSION_MAJOR 0
#define SWITCHTO_VERSION_MINOR 2
#define SWITCHTO_VERSION_PATCH 0

struct timespec; /* under -std=c99 time.h has none */

#ifdef __cplusplus
extern "C" {
#endif

/* The library itself is built with -fvisibility=hidden. */
#pragma GCC visibility push(default)

/**
 * switchto_self() - the calling thread's TID, known to the library from now on
 *
 * Called early in a thread, it is where a lack of memory or file descriptors shows:
 * after it has succeeded, no call of this thread needs either for the thread itself.
 *
 * Return: the kernel TID (gettid(2)), or -1 and errno.
 *
 * errno: the initialization errors.
 *
 * Thread-safe. Not async-signal-safe. No system call after a thread's first.
 */
pid_t switchto_self(void);

/**
 * switchto_wait() - leave the schedule until another thread resumes this one
 * @timeout:	how long at most, relative, CLOCK_MONOTONIC; NULL: for ever.
 *		Read before the call sleeps, never kept.
 *
 * Returns at once if a resume is kept for the calling thread. A timeout of 0
 * asks for just that.
 *
 * Return: the TID of the thread that resumed this one, or -1 and errno.
 *
 * errno: ETIMEDOUT, not before the time has passed; EINVAL, @timeout is negative or
 * its tv_nsec is not in 0 ... 999999999; the initialization errors. A signal handler
 * does not end the wait, and does not prolong it. (EINTR in the child of a handler
 * that forks, see "Which threads".)
 *
 * Thread-safe. Not async-signal-safe. Acquires what the resuming threads
 * released (see "Memory ordering").
 *
 * One futex(2): FUTEX_WAIT (FUTEX_WAIT_BITSET with a timeout), or FUTEX_SWAP
 * without a target with the backend swap; none if a resume was kept.
 */
pid_t switchto_wait(const struct timespec *timeout);

/**
 * switchto_wait_until() - switchto_wait() with an absolute deadline
 * @deadline:	a time on CLOCK_MONOTONIC; NULL: for ever. A time that has
 *		passed: only take a resume that is kept.
 *
 * Prefer it where a wait is repeated: the deadline stays where it is, a relative
 * timeout would begin anew.
 *
 * Return, errno, safety, ordering: as switchto_wait().
 */
pid_t switchto_wait_until(const struct timespec *deadline);

/**
 * switchto_resume() - make a thread runnable
 * @tid:	a thread of this process, by its kernel TID; may be the
 *		calling thread
 *
 * If @tid waits, it is woken, and its wait returns the caller's TID. If it
 * does not, the resume is kept for its next wait.
 *
 * Return: 0, or -1 and errno.
 *
 * errno: ESRCH, no live thread of this process has this TID; EINVAL, @tid is
 * not positive; ENOMEM, ENOSYS or ELIBMAX, as in the initialization errors, for a
 * thread that is not known yet. Nothing has happened in these cases.
 *
 * Thread-safe. Async-signal-safe; not async-cancel-safe. Leaves errno alone when it
 * returns 0. The
 * caller need not be known to the library. Never waits for another thread.
 * Releases the caller's writes to the thread that is resumed.
 *
 * One futex(2) if @tid waits, FUTEX_WAKE or, with the backend swap, FUTEX_SWAP
 * that only wakes, and FUTEX_WAKE after that if it had not fallen asleep yet; no
 * system call otherwise; a few more for a thread that is not known yet (openat,
 * read, close, pidfd_open, fstat, getpid, tgkill, mmap, madvise, munmap), and a
 * gettid(2) if the caller is not.
 */
int switchto_resume(pid_t tid);

/**
 * switchto_switch() - resume a thread and wait in its place, in one step
 * @tid:	a thread of this process, by its kernel TID
 *
 * The hand-off: switchto_resume(@tid), then switchto_wait(NULL), without
 * another thread in between where kernel and scheduling allow. If @tid does
 * not wait, the resume is kept for it and the caller still waits. If a resume
 * is kept for the caller, @tid is resumed all the same and the call returns
 * at once: two threads that switch to each other at the same time both return.
 * A switch to oneself leaves the calling thread one resume and takes it: it
 * returns the caller's TID at once.
 *
 * Return: the TID of the thread that resumed this one, or -1 and errno.
 *
 * errno: ESRCH, EINVAL as switchto_resume(), and the initialization errors: nothing
 * has happened, so the call may be repeated. (EINTR in the child of a handler that
 * forks, see "Which threads": @tid has been resumed, go on with switchto_wait().)
 *
 * Thread-safe. Not async-signal-safe, not async-cancel-safe. Releases to @tid,
 * acquires from whoever resumes the caller.
 *
 * If @tid waits: backend swap, one futex(2) FUTEX_SWAP (kernel/patches/ in the
 * sources, Linux 6.12), and if that ends with EINTR or ETIMEDOUT, or with EAGAIN as
 * the caller was resumed before it slept, and @tid has not run and taken its resume
 * by then, one that only wakes and FUTEX_WAKE after it; backend wake-wait, FUTEX_WAKE
 * and FUTEX_WAIT. If it does not, what switchto_wait() does.
 */
pid_t switchto_switch(pid_t tid);

/**
 * switchto_switch_timed() - switchto_switch() that waits for a limited time
 * @tid:	as for switchto_switch()
 * @timeout:	as for switchto_wait()
 *
 * Return, errno: as switchto_switch(), and ETIMEDOUT: nobody resumed the
 * caller in time, @tid has been resumed. EINVAL of a bad @timeout: nothing
 * has happened.
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
 * switchto_backend() - name the backend in use
 *
 * Return: "swap" or "wake-wait", a constant string; or NULL and errno.
 *
 * errno: the initialization errors.
 *
 * Thread-safe. Not async-signal-safe.
 */
const char *switchto_backend(void);

/**
 * switchto_version() - name the version of the library that is loaded
 *
 * SWITCHTO_VERSION_MAJOR, _MINOR and _PATCH are those of the header, with which the
 * program was compiled.
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
