/* SPDX-License-Identifier: MIT */
/*
 * What the memory orders of libswitchto/src/core/ (switchto.c, thread.c, thread.h) are good
 * for, for spin: what a thread wrote before it resumed another is there for that one
 * when its wait returns, and who finds `early` closed finds that the thread is registered.
 *
 * In switchto.pml whatever is written is seen by all at once. Here a thread sees no more
 * than C11's release and acquire give it:
 *
 *  - each write of a word or of early is a message, which carries what its writer knew,
 *    if it is a release; one that reads and writes (all of the library's do) carries
 *    what the one that it read carried as well (a release sequence);
 *  - who reads a message as an acquire knows from then on what it carries;
 *  - an atomic that only reads, a compare and exchange that fails among them, may find
 *    any older value that the thread does not know to be replaced. That is modelled for
 *    the word of thread 1, which is as good as any; it is the one that registers.
 *
 * What is known is a set of data, one bit for what each thread writes before each of its
 * calls, and how many of the values of thread 1's word are replaced. Accesses that are
 * seq_cst in the code are no more than release and acquire here, so less is taken for
 * granted. What the kernel orders (the lock of a bucket) gives nothing either, but for
 * a sleep: who is woken, or finds the value changed, finds the word as the kernel did.
 *
 * Three threads make any calls: resume, wait, switch; OPS of them (1), thread 1, which
 * registers at its first, FIRST (2). Timeouts, signals, ends, reuse and what becomes
 * of a thread that nobody resumes are switchto.pml's.
 */

#ifndef OPS
#define OPS 1
#endif
#ifndef FIRST
#define FIRST 2
#endif
#if OPS > 2 || FIRST > 2
#error of what a thread writes there are two bits
#endif
#define CALLS(thread) (thread == 1 -> FIRST : OPS)

#define me _pid
#define UNREGISTERED 0
#define RUNNING 1
#define WAITING 2
#define RESUMED 3

#define EARLY_NONE 0
#define EARLY_RESUME 1
#define EARLY_CLOSED 2

#define VALUES 12	/* that thread 1's word may have, one after another */

#define release true
#define acquire true
#define relaxed false

/* The orders in the code, but one of them in a mutation. */
#ifdef MUTATION_ORDER_GIVE
#define GIVE_RELEASES relaxed
#else
#define GIVE_RELEASES release
#endif
#ifdef MUTATION_ORDER_TAKE
#define TAKE_ACQUIRES relaxed
#else
#define TAKE_ACQUIRES acquire
#endif
#ifdef MUTATION_ORDER_EARLY_LEFT
#define EARLY_LEFT_RELEASES relaxed
#else
#define EARLY_LEFT_RELEASES release
#endif
#ifdef MUTATION_ORDER_EARLY_FOUND
#define EARLY_FOUND_ACQUIRES relaxed
#else
#define EARLY_FOUND_ACQUIRES acquire
#endif
#ifdef MUTATION_ORDER_CLOSING
#define CLOSING_RELEASES relaxed
#else
#define CLOSING_RELEASES release
#endif
#ifdef MUTATION_ORDER_CLOSED
#define CLOSED_ACQUIRES relaxed
#else
#define CLOSED_ACQUIRES acquire
#endif

/* The newest message of each word (1 ... 3) and of early (0): value, and what it carries. */
byte value[4] = RUNNING;
byte carries[4];
byte carries_replaced[4];

/* Thread 1's word: all values it has had, and the place of the newest. */
byte had[VALUES];
byte newest;

/* What each thread knows. */
byte known[4];
byte replaced[4];

/* What the resumers of each thread knew, of the resumes not yet taken. */
byte owed[4];

bit queued[4];

inline acquire_from(location, order) {
	if
	:: order ->
		known[me] = known[me] | carries[location];
		if
		:: carries_replaced[location] > replaced[me] ->
			replaced[me] = carries_replaced[location]
		:: else
		fi
	:: else
	fi
}

inline release_to(location, order) {
	if
	:: order ->
		carries[location] = carries[location] | known[me];
		if
		:: replaced[me] > carries_replaced[location] ->
			carries_replaced[location] = replaced[me]
		:: else
		fi
	:: else
	fi
}

/* The write half of an atomic that read the newest message. */
inline write(location, new, order) {
	value[location] = new;
	release_to(location, order)
}

inline write_word(tid, new, order) {
	if
	:: tid == 1 ->
		newest++;
		assert(newest < VALUES);
		had[newest] = new;
		replaced[me] = newest
	:: else
	fi;
	write(tid, new, order)
}

/* A relaxed load of thread 1's word. */
inline load_first(result) {
	at = replaced[me];
	do
	:: at < newest -> at++
	:: break
	od;
	replaced[me] = at;
	result = had[at]
}

inline load(tid, result) {
	if
	:: tid == 1 -> load_first(result)
	:: else -> result = value[tid]
	fi
}

/* thread_give(). ended: the word was found UNREGISTERED. */
inline thread_give(tid) {
	ended = false;
	do
	:: atomic {
		if
		:: seen == value[tid] ->
			acquire_from(tid, acquire);
			write_word(tid, RESUMED, GIVE_RELEASES);
			owed[tid] = owed[tid] | known[me];
			break
		:: else ->
			load(tid, seen);
			if
			:: seen == UNREGISTERED ->
				ended = true;
				break
			:: else
			fi
		fi
	   }
	od
}

/* futex_wake() */
inline thread_wake(tid) {
	atomic { queued[tid] = false }
}

/* switchto_thread_resume_unregistered(), to thread 1, as far as its thread_give(). */
inline resume_unregistered() {
	atomic { early = value[0]; acquire_from(0, CLOSED_ACQUIRES) };
	do
	:: early == EARLY_CLOSED -> break
	:: early != EARLY_CLOSED ->
		atomic {
			if
			:: value[0] == early ->
				acquire_from(0, acquire);
				write(0, EARLY_RESUME, EARLY_LEFT_RELEASES);
				owed[1] = owed[1] | known[me];
				break
			:: else ->
				early = value[0];
				acquire_from(0, CLOSED_ACQUIRES)
			fi
		}
	od;
	if
	:: early == EARLY_CLOSED ->
		/* Its word before anything else is asked of it. */
		atomic {
			load_first(seen);
			/* promised: ESRCH only for a thread that is not there. */
			assert(seen != UNREGISTERED)
		}
	:: else -> pending = true
	fi
}

/* give() and the wake-up of a target that waits, as resume and switch have it. */
inline give(tid) {
	atomic { load(tid, seen) };
	if
	:: seen == UNREGISTERED -> resume_unregistered()
	:: else
	fi;
	if
	:: pending -> pending = false; needs_wake = false
	:: else -> thread_give(tid); assert(!ended); needs_wake = (seen == WAITING)
	fi
}

/* take(): promised: all is there that those who resumed knew of. */
inline take() {
	atomic {
		assert(value[me] == RESUMED);
		acquire_from(me, TAKE_ACQUIRES);
		write_word(me, RUNNING, release);
		assert((owed[me] & ~known[me]) == 0);
		owed[me] = 0
	}
}

/* begin_wait(), and if no resume is pending the sleep, and take(). */
inline begin_wait() {
	atomic {
		if
		:: value[me] == RUNNING ->
			acquire_from(me, acquire);
			write_word(me, WAITING, release);
			resumed = false
		:: else -> resumed = true
		fi
	}
}

inline sleep() {
	do
	:: atomic {
		value[me] == WAITING ->
		queued[me] = true
	   };
	   !queued[me]
	:: value[me] == RESUMED -> break
	od
}

/* switchto_thread_register(), of thread 1 */
inline begin() {
	atomic { write_word(me, RUNNING, release) };
	atomic {
		early = value[0];
		acquire_from(0, EARLY_FOUND_ACQUIRES);
		write(0, EARLY_CLOSED, CLOSING_RELEASES)
	};
	if
	:: early == EARLY_RESUME ->
		atomic {
			if
			:: value[me] == RUNNING ->
				acquire_from(me, acquire);
				write_word(me, RESUMED, release)
			:: else
			fi
		}
	:: else
	fi
}

proctype Thread() {
	byte calls, seen, at, early, target;
	bit ended, pending, needs_wake, resumed;

	if
	:: me == 1 -> begin()
	:: else
	fi;
	do
	:: calls < CALLS(me) ->
		/* What it writes before. */
		atomic {
			calls++;
			known[me] = known[me] | (1 << ((me - 1) * 2 + calls - 1));
			if
			:: target = 1
			:: target = 2
			:: target = 3
			:: target = 0
			fi
		};
		if
		:: target == me
		:: target != me && target != 0 ->
			give(target);
			if
			:: true ->
				/* switchto_resume() */
				if
				:: needs_wake -> thread_wake(target)
				:: else
				fi
			:: true ->
				/* switchto_switch() */
				begin_wait();
				if
				:: needs_wake -> thread_wake(target)
				:: else
				fi;
				if
				:: !resumed -> sleep()
				:: else
				fi;
				take()
			fi
		:: target == 0 ->
			/* switchto_wait() */
			begin_wait();
			if
			:: !resumed -> sleep()
			:: else
			fi;
			take()
		fi
	:: calls == CALLS(me) -> break
	od
}

init {
	atomic {
		value[1] = UNREGISTERED;
		value[0] = EARLY_NONE;
		run Thread();
		run Thread();
		run Thread()
	}
}
