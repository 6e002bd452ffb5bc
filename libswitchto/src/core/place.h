/* SPDX-License-Identifier: MIT */
/*
 * Where a thread runs after a switch to it. FUTEX_SWAP leaves it on the caller's CPU. With
 * FUTEX_WAKE the kernel chooses, and prefers an idle CPU. The switch then costs the interrupt
 * that ends that CPU's sleep: ten times the switch itself.
 *
 * So with the backend wake-wait, a switch binds its target to the caller's CPU, by affinity, if
 * both threads are willing. It does so once, when the two are apart. After that the threads stay
 * together, and their switches make no system call for it.
 *
 * Some switches let the target go instead: it gets the mask that the program chose, the kernel
 * places it, and the others follow it. So the load balancer has its say. A target is let go:
 *
 *  - if two ticks have passed since the caller was switched to or resumed. The caller has computed
 *    or slept, so the price of the kernel's choice does not matter;
 *  - if the caller has waited for its CPU about as long as it has run, because another thread needs
 *    the CPU. It looks once per tick at most. If another CPU is idle, the kernel chooses that one,
 *    and the chain goes there;
 *  - for PLACE_FREE_PERIOD, if that did not help. Where no CPU is idle, free threads lose nothing,
 *    and get a share of each CPU;
 *  - every PLACE_PERIOD of a chain of switches, for any other reason to move. Not more often: each
 *    thread of the chain is bound anew then.
 *
 * A resume lets its target go, too: the two are to run at the same time. A target that is
 * SWITCHTO_STAY stays: for threads of the scheduling layer, a resume gives a slot.
 */
#ifndef SWITCHTO_PLACE_H
#define SWITCHTO_PLACE_H

#include "switchto/switchto.h"

#include "../sleep.h"
#include "thread.h"

#include <sched.h>

/*
 * The phase of a chain of switches: when it began, in ms, and PLACE_FREE if all its switches
 * let their targets go. How long each kind of phase lasts, in ms:
 */
enum { PLACE_FREE = 1, PLACE_PERIOD = 1000, PLACE_FREE_PERIOD = 100 };

/* How long a thread adds up its waits before it judges them, in ms. */
enum { PLACE_LOOK = 16 };

extern HIDDEN int switchto_place_default;   /* what a new thread is: SWITCHTO_FREE and so on */
extern HIDDEN uint32_t switchto_place_long; /* ms */

/* What SWITCHTO_PLACE says. 0, or ENOTSUP: it names no placement. */
HIDDEN int switchto_place_choose(void);

/*
 * Binds @thread, whose TID is @tid, to CPU @cpu - 1 if the program lets it run there; 0: lets it
 * go. Does nothing if @thread has ended, or has its lock taken. Async-signal-safe.
 */
HIDDEN void switchto_place_move(struct thread *thread, pid_t tid, int cpu);

/*
 * A tick has come since @me was switched to. Is its target to be let go? @phase is the phase of
 * the chain, and may change.
 */
HIDDEN bool switchto_place_tick(struct thread *me, uint32_t now, uint32_t *phase);

/* Lets the calling thread go. Waits while another thread has its lock. */
HIDDEN void switchto_place_leave(void);

/* Around a fork(2): the child is not bound, nor is the caller at that moment. */
HIDDEN void switchto_place_fork(void);
HIDDEN void switchto_place_forked(void);

/* The calling thread ends: lets it go, and keeps others off until @me is nobody's. */
HIDDEN void switchto_place_end(struct thread *me);

static inline uint32_t place_now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
	return (uint32_t)time.tv_sec * 1000 + (uint32_t)time.tv_nsec / 1000000;
}

/* @me has taken a resume without a wait: so the resuming thread runs, too. */
static inline void place_pending(struct thread *me)
{
	if (unlikely(atomic_load_explicit(&me->cpu, memory_order_relaxed) > 0) &&
	    atomic_load_explicit(&me->place, memory_order_relaxed) != SWITCHTO_STAY)
		switchto_place_leave();
}

/* @me has waited in vain. Short waits in between do not matter. */
static inline void place_timed_out(struct thread *me)
{
	if (unlikely(atomic_load_explicit(&me->cpu, memory_order_relaxed) > 0) &&
	    place_now() - atomic_load_explicit(&me->given, memory_order_relaxed) >=
		    switchto_place_long)
		switchto_place_leave();
}

/* @target is about to be woken by a resume. FUTEX_SWAP binds nobody. */
static inline void place_resumed(struct thread *target, pid_t tid)
{
	int place;

	if (switchto_is_swap)
		return;
	place = atomic_load_explicit(&target->place, memory_order_relaxed);
	if (likely(place == SWITCHTO_FREE))
		return;
	atomic_store_explicit(&target->given, place_now(), memory_order_relaxed);
	if (place != SWITCHTO_STAY && atomic_load_explicit(&target->cpu, memory_order_relaxed) > 0)
		switchto_place_move(target, tid, 0);
}

/* @target is about to be woken by a switch of @me. */
static inline void place_switched(struct thread *me, struct thread *target, pid_t tid)
{
	uint32_t now, phase;
	int cpu = 0, bound;

	if (!atomic_load_explicit(&target->place, memory_order_relaxed))
		return;
	if (unlikely(!atomic_load_explicit(&me->place, memory_order_relaxed))) {
		place_resumed(target, tid);
		return;
	}
	now = place_now();
	phase = atomic_load_explicit(&me->phase, memory_order_relaxed);
	if (unlikely(now != atomic_load_explicit(&me->given, memory_order_relaxed)) &&
	    switchto_place_tick(me, now, &phase))
		cpu = 0;
	else if (likely(!(phase & PLACE_FREE)))
		cpu = sched_getcpu() + 1;
	atomic_store_explicit(&target->phase, phase, memory_order_relaxed);
	atomic_store_explicit(&target->given, now, memory_order_relaxed);
	bound = atomic_load_explicit(&target->cpu, memory_order_relaxed);
	if (unlikely(bound != cpu) && bound != -cpu)
		switchto_place_move(target, tid, cpu);
}

#endif /* SWITCHTO_PLACE_H */
