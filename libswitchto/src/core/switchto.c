// SPDX-License-Identifier: MIT
/*
 * The hot path: resume, wait, switch. See thread.h for the word they work on.
 *
 * A switch is three steps, in this order:
 *
 *  1. give the target its resume. First, because it can fail (no such thread),
 *     and then nothing must have happened;
 *  2. RUNNING -> WAITING in one's own word. Fails if a resume is pending: that is
 *     taken, and the target, if it waits, is woken all the same;
 *  3. wake the target and sleep on one's own word while it is WAITING, in one
 *     system call where the kernel has it. A resume that comes between 2 and 3
 *     changes the word, so the kernel refuses to sleep (EAGAIN).
 *
 * Two threads may switch to each other at the same time. Each gives its resume (1) before it looks
 * at its own word (2). If both have given before either looks, both find a resume. Otherwise the
 * later resume finds a word that is WAITING, and the wake-up in 3 ends that wait. So neither sleeps
 * for ever.
 */
#define _GNU_SOURCE
#include "switchto/switchto.h"

#include "../delay.h"
#include "../probes.h"
#include "../sleep.h"
#include "backend.h"
#include "place.h"
#include "thread.h"

#include <stdbool.h>
#include <sys/prctl.h>

static inline uint32_t state_of(const struct thread *thread)
{
	return atomic_load_explicit(&thread->word, memory_order_relaxed) & WORD_STATE;
}

/*
 * Is the calling thread registered? Its word is UNREGISTERED in a child forked without handlers, as
 * by _Fork() or clone(2): the thread has a new TID there.
 */
static inline bool is_registered_as(const struct thread *me)
{
	atomic_signal_fence(memory_order_acquire);
	return likely(me) && likely(state_of(me) != UNREGISTERED);
}

static inline bool is_registered(void)
{
	return is_registered_as(switchto_this.thread);
}

static inline bool register_self(void)
{
	return is_registered() || switchto_thread_register() == 0;
}

/*
 * There was no resume: a handler forked in the middle of the call, and this is the
 * child. The word belongs to the parent's TID, and stays unregistered.
 */
static __attribute__((cold, noinline)) pid_t taken_in_a_child(struct thread *me, uint32_t word)
{
	atomic_store(&me->word, word);
	errno = EINTR;
	return -1;
}

/* Takes the resume that is in one's own word, which is @running after it. */
static inline pid_t take_running(struct thread *me, uint32_t running)
{
	uint32_t word;

	delay_point(TAKE);
	word = atomic_exchange_explicit(&me->word, running, memory_order_acq_rel);
	if (unlikely(!(word & WORD_TID)))
		return taken_in_a_child(me, word);
	probe_tid(wait_return, (pid_t)(word & WORD_TID));
	return (pid_t)(word & WORD_TID);
}

static inline pid_t take(struct thread *me)
{
	return take_running(me, switchto_this.running);
}

/*
 * @running, one's own, -> WAITING; false if a resume is pending. If the word is WAITING already,
 * a handler left a wait with siglongjmp().
 */
static inline bool begin_wait(struct thread *me, uint32_t running)
{
	uint32_t waiting = running ^ (RUNNING ^ WAITING);

	delay_point(GIVEN);
	if (likely(atomic_compare_exchange_strong_explicit(&me->word, &running, waiting,
							   memory_order_acq_rel,
							   memory_order_relaxed)))
		return true;
	return running == waiting;
}

/* WAITING -> RUNNING; false if a resume has come: it wins over the timeout. */
static bool give_up(struct thread *me, uint32_t waiting)
{
	delay_point(GIVE_UP);
	return atomic_compare_exchange_strong_explicit(&me->word, &waiting, switchto_this.running,
						       memory_order_acq_rel, memory_order_relaxed);
}

/*
 * Sleeps while one's own word is @waiting. In FUTEX_SWAP where the kernel has it: a hint finds
 * such a sleeper, however many others are parked.
 */
static inline int park(struct thread *me, uint32_t waiting, const struct timespec *deadline)
{
	if (likely(switchto_is_swap)) {
		struct timespec left;
		int error;

		if (unlikely(deadline))
			time_left(deadline, &left);
		delay_point(SLEEP);
		error = futex_swap(&me->word, waiting, deadline ? &left : NULL, NULL, 0);
		if (likely(swap_woke(error)))
			return error;
	}

	delay_point(SLEEP);
	return futex_wait(&me->word, waiting, deadline);
}

/*
 * Sleeps on until there is a resume. @error is how the sleep before ended, and
 * a sleep can end like this:
 *
 *	0		woken: by the resume that is now in the word, or by a
 *			stray wake-up (a late FUTEX_WAKE of a resume that was
 *			taken already): then sleep again
 *	EAGAIN		the word was no longer WAITING: there is a resume, or
 *			this is a child that a handler forked
 *	EINTR		a handler ran: sleep again. From FUTEX_SWAP it comes after any
 *			handler, from FUTEX_WAIT only without SA_RESTART. So the one
 *			rule for both is: no handler ends a wait. The other rule would
 *			take a timer in FUTEX_WAIT, 501 insn (BM_SwitchTo, wake-wait,
 *			-icount)
 *	ETIMEDOUT	give up, unless a resume came in that instant: then
 *			return it, not the error
 *	-TID		the same, of a thread that lends: its place is back
 *
 * Or the answer comes from a seccomp filter that was added after the backend was chosen, and there
 * was no sleep (ETIMEDOUT without a deadline can only be such an answer). Such a filter could keep
 * this loop busy. So the next sleep is in FUTEX_WAIT, where each wake-up finds the thread, though no
 * hint does. A thread that takes part in loans gets a place only in FUTEX_SWAP. So it sleeps there
 * again, and in FUTEX_WAIT for a millisecond after each SLEEPS_IN_SWAP sleeps.
 */
enum { SLEEPS_IN_SWAP = 100, NAP = 1000000 };

/* Sleeps in FUTEX_WAIT, for NAP ns at most: 0 if that time is over before @deadline. */
static int nap(struct thread *me, uint32_t waiting, const struct timespec *deadline)
{
	struct timespec end, left;
	int error;

	if (deadline) {
		time_left(deadline, &left);
		if (!left.tv_sec && left.tv_nsec < NAP)
			return futex_wait(&me->word, waiting, deadline);
	}
	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_nsec += NAP;
	if (end.tv_nsec >= NSEC_PER_SEC) {
		end.tv_nsec -= NSEC_PER_SEC;
		end.tv_sec++;
	}
	error = futex_wait(&me->word, waiting, &end);
	return error == ETIMEDOUT ? 0 : error;
}

static pid_t sleep_again(struct thread *me, uint32_t waiting, const struct timespec *deadline,
			 int error)
{
	for (unsigned int again = 1;; again++) {
		delay_point(WOKEN);
		switch (state_of(me)) {
		case RESUMED:
			return take(me);
		case UNREGISTERED:
			return fail(EINTR);
		}

		switch (error) {
		case 0:
		case EAGAIN:
		case EINTR:
			break;
		case ETIMEDOUT:
			if (!deadline)
				break;
			if (give_up(me, waiting)) {
				place_timed_out(me);
				probe_tid(wait_return, -1);
				return fail(ETIMEDOUT);
			}
			continue;
		default:
			if (error > 0)
				unexpected("libswitchto", "FUTEX_WAIT", error);
			if (give_up(me, waiting)) {
				probe_tid(wait_return, -1);
				errno = EINPROGRESS;
				return error;
			}
			continue;
		}

		delay_point(SLEEP);
		if (likely(!switchto_this.loans))
			error = futex_wait(&me->word, waiting, deadline);
		else if (again % SLEEPS_IN_SWAP)
			error = park(me, waiting, deadline);
		else
			error = nap(me, waiting, deadline);
	}
}

/* Inlined always: GCC would take its probes for a hundred instructions. */
static inline __attribute__((always_inline)) pid_t wait_until(const struct timespec *deadline)
{
	uint32_t waiting = switchto_this.running ^ (RUNNING ^ WAITING);
	struct thread *me = switchto_this.thread;
	int error;

	if (!begin_wait(me, switchto_this.running)) {
		place_pending(me);
		return take(me);
	}
	probe(wait);

	error = park(me, waiting, deadline);
	if (likely(state_of(me) == RESUMED))
		return take(me);
	return sleep_again(me, waiting, deadline, error);
}

/*
 * After a swap that has woken @target, by its answer. If @target has not taken its resume, it may
 * still be asleep: the answer came from a seccomp filter. Or it has not run yet: a short time is
 * over, a signal came, or the caller was resumed before it slept. Then two more calls are made, the
 * wake half alone, which finds nobody, and FUTEX_WAKE.
 *
 * This is done for every error, even if the caller has been resumed: the resume did not end its
 * sleep, and there may have been no sleep. The answer 0 with a resume of the caller is believed,
 * because that is what a switch normally ends with.
 */
static inline void wake_if_resumed(struct thread *target, pid_t tid)
{
	if (state_of(target) == RESUMED)
		thread_wake(target, tid);
}

/* Step 3 of a switch. What park() would return. */
static inline int wake_and_wait(struct thread *target, pid_t tid, struct thread *me,
				uint32_t waiting, const struct timespec *deadline)
{
	if (likely(switchto_is_swap)) {
		struct timespec left;
		int error;

		if (unlikely(deadline))
			time_left(deadline, &left);
		delay_point(SLEEP);
		error = futex_swap(&me->word, waiting, deadline ? &left : NULL, &target->word,
				   (uint32_t)tid);
		if (likely(swap_woke(error))) {
			if (unlikely(error || state_of(me) != RESUMED))
				wake_if_resumed(target, tid);
			return error;
		}
	} else {
		place_switched(me, target, tid);
	}

	thread_wake(target, tid);
	return park(me, waiting, deadline);
}

static inline bool tid_in_range(pid_t tid)
{
	return tid > 0 && tid < TID_LIMIT;
}

/* 0 or an error number. *@target is set if it waits and needs a wake-up. */
static inline int give(pid_t tid, pid_t by, struct thread **target)
{
	struct thread *thread;
	uint32_t seen;

	*target = NULL;
	if (unlikely(!tid_in_range(tid)))
		return tid > 0 ? ESRCH : EINVAL;

	thread = thread_of(tid);
	seen = thread ? atomic_load_explicit(&thread->word, memory_order_relaxed) : UNREGISTERED;
	if (unlikely((seen & WORD_STATE) == UNREGISTERED))
		return switchto_thread_resume_unregistered(tid, by);
	delay_point(SEEN);
	if (unlikely(!thread_give(thread, &seen, by)))
		return ESRCH;

	if (likely((seen & WORD_STATE) == WAITING))
		*target = thread;
	return 0;
}

/* Step 2 found a resume: the target is woken all the same, if it waits. */
static __attribute__((noinline, cold)) pid_t switch_resumed(struct thread *me,
							    struct thread *target, pid_t tid)
{
	probe_tid(switch, tid);
	if (target) {
		place_resumed(target, tid);
		thread_wake(target, tid);
	}
	place_pending(me);
	return take(me);
}

static inline pid_t switch_until(pid_t tid, const struct timespec *deadline)
{
	uint32_t waiting = switchto_this.running ^ (RUNNING ^ WAITING);
	struct thread *me = switchto_this.thread, *target;
	int error;

	error = give(tid, switchto_this.tid, &target);
	if (unlikely(error))
		return fail(error);

	if (!begin_wait(me, switchto_this.running))
		return switch_resumed(me, target, tid);

	if (likely(target)) {
		probe_tid(switch, tid);
		error = wake_and_wait(target, tid, me, waiting, deadline);
	} else {
		probe_tid(switch, tid);
		error = park(me, waiting, deadline);
	}

	if (likely(state_of(me) == RESUMED))
		return take(me);
	return sleep_again(me, waiting, deadline, error);
}

/*
 * From now until @timeout has passed. A time too far away for a timespec is as
 * good as never: *@deadline becomes NULL.
 */
static void deadline_after(const struct timespec *timeout, struct timespec *store,
			   const struct timespec **deadline)
{
	clock_gettime(CLOCK_MONOTONIC, store);
	store->tv_nsec += timeout->tv_nsec;
	if (store->tv_nsec >= NSEC_PER_SEC) {
		store->tv_nsec -= NSEC_PER_SEC;
		store->tv_sec++;
	}
	*deadline = store;
	if (__builtin_add_overflow(store->tv_sec, timeout->tv_sec, &store->tv_sec))
		*deadline = NULL;
}

/* Linux with the patches: include/uapi/linux/prctl.h. */
#define FUTEX_LOAN 0x4c4f414e

int switchto_lend(int how, const void *keeps)
{
	if (unlikely(!register_self()))
		return -1;
	if (!switchto_is_swap)
		return fail(ENOSYS);
	if (prctl(FUTEX_LOAN, (unsigned long)how, keeps, 0UL, 0UL))
		return -1;
	switchto_this.loans = how != SWITCHTO_LENDS_NOT;
	return 0;
}

pid_t switchto_self(void)
{
	return register_self() ? switchto_this.tid : -1;
}

pid_t switchto_wait(const struct timespec *timeout)
{
	struct timespec store;
	const struct timespec *deadline = NULL;

	if (unlikely(!register_self()))
		return -1;

	if (timeout) {
		if (!valid_time(timeout))
			return fail(EINVAL);
		deadline_after(timeout, &store, &deadline);
	}

	return wait_until(deadline);
}

pid_t switchto_wait_until(const struct timespec *deadline)
{
	if (unlikely(!register_self()))
		return -1;

	if (deadline && !valid_time(deadline))
		return fail(EINVAL);

	return wait_until(deadline);
}

int switchto_resume(pid_t tid)
{
	pid_t by = is_registered() ? switchto_this.tid : (pid_t)syscall(SYS_gettid);
	int saved = errno;
	struct thread *target;
	int error;

	error = give(tid, by, &target);
	if (unlikely(error))
		return fail(error);

	if (target) {
		probe_tid(resume, tid);
		place_resumed(target, tid);
		thread_wake(target, tid);
	} else {
		probe_tid(resume, tid);
	}
	errno = saved;
	return 0;
}

/* All steps, for a switch that is not the common case. */
static __attribute__((noinline, cold)) pid_t switch_slow(pid_t tid)
{
	if (unlikely(!register_self()))
		return -1;

	return switch_until(tid, NULL);
}

/* What is left to do after FUTEX_SWAP returned @error, if not: woken by a resume. */
static __attribute__((noinline, cold)) pid_t switch_sleep_again(struct thread *me, uint32_t waiting,
								int error, struct thread *target,
								pid_t tid)
{
	if (!swap_woke(error)) {
		thread_wake(target, tid);
		error = park(me, waiting, NULL);
	} else if (error || state_of(me) != RESUMED) {
		wake_if_resumed(target, tid);
	}
	return sleep_again(me, waiting, NULL, error);
}

/*
 * The common case of switch_until() from beginning to end: both threads are registered, the target
 * waits, no thread has resumed the caller, and the kernel has FUTEX_SWAP. Every other case is a
 * tail call, so nothing has to be kept on the stack for it.
 */
pid_t switchto_switch(pid_t tid)
{
	struct thread *me = switchto_this.swap, *target;
	uint32_t seen, waiting;
	int error;

	/* 0 is in range here: no thread has that word. */
	if (unlikely(!is_registered_as(me)) || unlikely((uint32_t)tid >= TID_LIMIT))
		return switch_slow(tid);

	target = thread_of(tid);
	if (unlikely(!target))
		return switch_slow(tid);

	/* Step 1, which changes nothing if it fails. */
	seen = atomic_load_explicit(&target->word, memory_order_relaxed);
	delay_point(SEEN);
	if (unlikely((seen & WORD_STATE) != WAITING) ||
	    unlikely(!atomic_compare_exchange_strong_explicit(
		    &target->word, &seen, seen | (WAITING ^ RESUMED) | (uint32_t)switchto_this.tid,
		    memory_order_acq_rel, memory_order_relaxed)))
		return switch_slow(tid);

	/* Step 2 */
	waiting = switchto_this.running ^ (RUNNING ^ WAITING);
	if (unlikely(!begin_wait(me, waiting ^ (RUNNING ^ WAITING))))
		return switch_resumed(me, target, tid);

	/* Step 3 */
	probe_tid(switch, tid);
	delay_point(SLEEP);
	error = futex_swap(&me->word, waiting, NULL, &target->word, (uint32_t)tid);
	/*
	 * So that the compiler computes RUNNING from it anew instead of saving
	 * two registers to keep both: 5 insn.
	 */
	__asm__("" : "+r"(waiting));
	if (unlikely(error) || unlikely(state_of(me) != RESUMED))
		return switch_sleep_again(me, waiting, error, target, tid);
	return take_running(me, waiting ^ (RUNNING ^ WAITING));
}

pid_t switchto_switch_timed(pid_t tid, const struct timespec *timeout)
{
	struct timespec store;
	const struct timespec *deadline = NULL;

	if (unlikely(!register_self()))
		return -1;

	if (timeout) {
		if (!valid_time(timeout))
			return fail(EINVAL);
		deadline_after(timeout, &store, &deadline);
	}

	return switch_until(tid, deadline);
}

pid_t switchto_switch_until(pid_t tid, const struct timespec *deadline)
{
	if (unlikely(!register_self()))
		return -1;

	if (deadline && !valid_time(deadline))
		return fail(EINVAL);

	return switch_until(tid, deadline);
}

const char *switchto_backend(void)
{
	if (!register_self())
		return NULL;

	return switchto_is_swap ? "swap" : "wake-wait";
}

#define STRING_OF(x) #x
#define DOTTED(major, minor, patch) STRING_OF(major) "." STRING_OF(minor) "." STRING_OF(patch)

const char *switchto_version(void)
{
	return DOTTED(SWITCHTO_VERSION_MAJOR, SWITCHTO_VERSION_MINOR, SWITCHTO_VERSION_PATCH);
}
