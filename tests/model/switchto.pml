/* SPDX-License-Identifier: MIT */
/*
 * The protocol of libswitchto/src/core/ (switchto.c, thread.c, thread.h), for spin.
 *
 * Each thread is a process that makes any calls, one after another, OPS of them.
 * A step is one atomic access of the library to memory that others see, with the
 * computation up to the next one, or one thing that the kernel does under the
 * lock of a bucket. Between two steps anybody else may run. Each has the name of
 * the function that it stands for, as a label or in a comment.
 *
 * Switches (see configurations):
 *
 *	OPS=n		calls of each thread (2)
 *	FIRST=n		calls of thread 1, if not as many
 *	SELF		a thread may resume and switch to itself as well
 *	BACKEND_SWAP	the backend swap; without: wake-wait
 *	VANISH		FUTEX_SWAP may cease to be there at any time
 *	LIES		a seccomp filter that came after the backend was chosen:
 *			FUTEX_SWAP may answer 0, EAGAIN, EINTR or ETIMEDOUT, and
 *			its wake half alone 0, without having done it
 *	TIMEOUTS	a wait, or that of a switch, may have a timeout
 *	SIGNALS=n	n signals to thread 1 (the others do no less than it, so
 *			that is as good as any). The handler may resume a
 *			thread; it may be one with SA_RESTART; it may leave a
 *			sleep with siglongjmp()
 *	LATE_WAKE	the kernel takes a sleeper off the queue in one step and
 *			makes it runnable in another
 *	LIFE		threads register, and thread 1 may end. LIVES=n: n
 *			threads have its TID, one after another. REGISTERED: the
 *			others are registered from the start, and call thread 1 only.
 *			NO_IDENTITY: once, the identity of a thread can't be
 *			had (ENOMEM). KINDS: who asks for an identity may get
 *			one of either kind, each time
 *	ENDLESS		a ring: 1 switches to 2, 2 to 3, 3 to 1, and so on
 *			without an end, for the property `returns`
 *	MUTATION_*	a fault, see mutations
 *
 * The word "promised" marks what switchto.h promises. The other assertions are
 * about the model.
 */

#ifndef OPS
#define OPS 2
#endif
#ifndef FIRST
#define FIRST OPS
#endif

/* The word (thread.h), of fewer bits: state 7 6, generation 5 4, TID 3 ... 0 */
#define UNREGISTERED 0
#define RUNNING 64
#define WAITING 128
#define RESUMED 192
#define STATE(w) ((w) & 192)
#define GENERATION(w) ((w) & 48)
#define GENERATION_ONE 16
#define TID(w) ((w) & 15)

/*
 * thread.early: the identity of a thread above the TID of its resumer. The identity is
 * which of the TID's threads it is (life), and its kind in the lowest bit.
 */
#define EARLY_NONE 0
#define EARLY_CLOSED 255
#define START_TIME 0
#define PIDFD_INODE 1
#define EARLY(life, kind, by) ((life) << 5 | (kind) << 4 | (by))
#define IDENTITY(e) ((e) >> 4)
#define LIFE_OF(e) ((e) >> 5)
#define KIND(e) ((e) >> 4 & 1)
#define IS_RESUME(e) ((e) != EARLY_NONE && (e) != EARLY_CLOSED)
#ifdef MUTATION_KINDS_COMPARED
#define SAME_THREAD(e, other) (IDENTITY(e) == IDENTITY(other))
#else
#define SAME_THREAD(e, other) (IDENTITY(e) == IDENTITY(other) || KIND(e) != KIND(other))
#endif

/* In unregistered_look: is what is there replaced without asking again? */
#ifdef MUTATION_KINDS_REPLACE
#define EQUAL(e, other) SAME_THREAD(e, other)
#else
#define EQUAL(e, other) (IDENTITY(e) == IDENTITY(other))
#endif

/* Monitor has 0, the threads have 1 ... 3. */
#ifdef ENDLESS
#define me (_pid + 1)
#else
#define me _pid
#endif

#ifndef LIFE
byte word[4] = RUNNING;
#elif defined(REGISTERED)
byte word[4] = { UNREGISTERED, UNREGISTERED, RUNNING, RUNNING };
byte early[4] = { EARLY_NONE, EARLY_NONE, EARLY_CLOSED, EARLY_CLOSED };
#else
byte word[4] = UNREGISTERED;
byte early[4] = EARLY_NONE;
#endif

/* The owner of the word sleeps in the queue of that futex. */
bit queued[4];

/*
 * Has a resume of the thread succeeded since a wait of it last returned with
 * one, and whose was the last? What the promises are about. No step looks at it.
 */
bit given[4];
byte giver[4];

/* Nobody can go on, see Monitor. */
bit quiet;

#ifdef LATE_WAKE
bit asleep[4];	/* TASK_INTERRUPTIBLE, so schedule() does not return */
#endif

#ifdef VANISH
bit vanished;
#define VANISHED vanished
#else
#define VANISHED false
#endif

/* May the wake half of FUTEX_SWAP alone answer something else than 1? */
#ifndef LIES
#define HINT_WAKES_NONE (VANISHED || !queued[tid])
#else
#define HINT_WAKES_NONE true
#endif

#ifdef LIES
/*
 * Who gave the thread, when it was WAITING, the resume that it has, and so owes it
 * a wake-up. No step looks at it. EXCUSED: that wake-up need not come, see excuse().
 */
#define EXCUSED 4
byte owes[4];
#define STAYS_ASLEEP (owes[me] == EXCUSED)
#else
#define STAYS_ASLEEP false
#endif

#ifdef SIGNALS
byte signals = SIGNALS;
byte interrupted;	/* the thread in which a handler runs, or 0 */
bit in_kernel;		/* thread 1 is at a place where no handler can run */
bit woken_by_signal;	/* thread 1 is, and a handler has run or runs */
#ifdef BACKEND_SWAP
bit in_futex_wait;	/* thread 1 sleeps in FUTEX_WAIT, not in FUTEX_SWAP */
#define IN_FUTEX_WAIT in_futex_wait
#else
#define IN_FUTEX_WAIT true
#endif
#define GO (interrupted != me)
#else
#define GO true
#endif

#ifdef LIFE
/* What the kernel knows of a TID, and in turn which thread it is that has it. */
#define FREE 0
#define LIVE 1
#define EXITING 2	/* PF_EXITING */
#define FOREIGN 3	/* of another process */
byte task[4] = LIVE;
byte life[4] = 1;

/*
 * Of the call that a thread makes: was its target no live thread (NOT_THERE), or
 * did it cease to be registered, at some time since the call began? Was it a live
 * one (THERE)? What ESRCH and 0 have to be true of.
 */
#define NOT_THERE 1
#define THERE 2
byte been[4];
#define BEEN(t, what) been[t] = (been[t] -> been[t] | (what) : 0)

#ifdef NO_IDENTITY
bit no_identity = 1;
#endif

/* The others have one all the time: thread.running of struct this_thread */
#define running my_running
#define PENDING(t) (STATE(word[t]) == RESUMED || \
		 (IS_RESUME(early[t]) && LIFE_OF(early[t]) == life[t]))
#else
#define running RUNNING
#define PENDING(t) (STATE(word[t]) == RESUMED)
#endif
#define waiting (running ^ (RUNNING ^ WAITING))

#ifdef ENDLESS
#define ONE_LESS left
#else
#define ONE_LESS (left - 1)
#endif

#define WAIT 1
#define RESUME 2
#define SWITCH 3

/* Of a swap with a target only. Of any other sleep it is as good as 0, and is that here. */
#define EAGAIN 1
#define EINTR 2
#define ETIMEDOUT 3
/* sleep_again(): does the error end the wait? */
#ifdef MUTATION_EINTR_GIVES_UP
#define MAY_GIVE_UP
#define GIVES_UP (error == EINTR || error == ETIMEDOUT)
#elif defined(TIMEOUTS)
#define MAY_GIVE_UP
#define GIVES_UP (error == ETIMEDOUT)
#else
#define GIVES_UP false
#endif
/* Of the thread that calls: may the time of its wait be up? */
#ifdef TIMEOUTS
#define TIMED timed
#else
#define TIMED false
#endif

/* Where thread_wake() returns to. */
#define TO_CALLER 0
#define TO_PARK 1
#define TO_TAKE 2
#define TO_BEGIN_WAIT 3
#define TO_SLEEP_AGAIN 4

/* switch_sleep_again(), wake_and_wait(): does the answer to a swap lead to wake_if_resumed()? */
#ifdef MUTATION_LIE_ERROR
#define LOOK_AFTER_TARGET (tid != 0 && STATE(word[me]) != RESUMED)
#else
#define LOOK_AFTER_TARGET (tid != 0 && (error != 0 || STATE(word[me]) != RESUMED))
#endif

/* What an exchange that compares needs to find. */
#ifdef MUTATION_GIVE_SPLIT
#define GIVE_FINDS(now, seen) true
#else
#define GIVE_FINDS(now, seen) ((now) == (seen))
#endif

/* Is one's own word that of a wait which a handler left with siglongjmp()? */
#if defined(SIGNALS) && !defined(MUTATION_WAITING_IS_A_RESUME)
#define LEFT_WAITING (word[me] == waiting)
#else
#define LEFT_WAITING false
#endif

/* Has the owner of the word, as it is, changed since it was @seen? */
#if defined(MUTATION_GIVE_NO_GENERATION)
#define GIVE_TOO_LATE(now, seen) (STATE(now) == UNREGISTERED)
#elif defined(MUTATION_GIVE_TO_UNREGISTERED)
#define GIVE_TOO_LATE(now, seen) (GENERATION(now) != GENERATION(seen))
#else
#define GIVE_TOO_LATE(now, seen) (STATE(now) == UNREGISTERED || GENERATION(now) != GENERATION(seen))
#endif

/* A resume by @by takes the place of what is in the word of @to. */
inline set_resumed(to, by, was)
{
#ifdef LIES
	owes[to] = (STATE(was) == WAITING -> (by) : owes[to]);
#endif
	word[to] = RESUMED | GENERATION(was) | (by);
	given[to] = 1;
	giver[to] = by
}

/* Promised: 0 of a thread that lives, and a TID's new owner gets nothing of the old one. */
inline check_owner()
{
#ifdef LIFE
	assert(STATE(word[tid]) != UNREGISTERED);
	assert(LIFE_OF(meant) == life[tid]);
	assert(been[me] & THERE);
	meant = 0
#else
	skip
#endif
}

/* The kernel, under the lock of the bucket: takes the waiter off, if there is one. */
inline take_off(to)
{
#ifdef LATE_WAKE
	woken = (queued[to] -> to : 0);
#endif
	queued[to] = 0
}

/* The kernel, under the lock of the bucket, which is that of the look at the word. */
inline enqueue()
{
	assert(!queued[me]);
#ifdef LATE_WAKE
	asleep[me] = 1;
#endif
	queued[me] = 1
}

#ifdef LIES
/* A seccomp filter's answer in the place of FUTEX_SWAP's: nothing has been done. */
inline make_up()
{
	if
	:: lied = 1
	/* EAGAIN, or ETIMEDOUT without a timeout: sleep_again() goes on to FUTEX_WAIT. */
	:: error = (tid != 0 -> EAGAIN : 0)
	:: error = EINTR
#ifdef TIMEOUTS
	:: timed -> error = ETIMEDOUT
#endif
	fi
}

/*
 * Not promised: the wake-up of a target that sleeps, if the answer was 0 and the
 * caller then finds a resume in its own word. That is what a switch looks like.
 */
inline excuse()
{
	if
#ifndef MUTATION_LIE_0
	:: lied && tid != 0 && STATE(word[me]) == RESUMED && queued[tid] && owes[tid] == me ->
		owes[tid] = EXCUSED
#endif
	:: else
	fi;
	lied = 0
}
#endif

inline forget_call()
{
	op = 0;
	tid = 0;
	seen = 0;
	wake = 0;
	after = TO_CALLER;
	error = 0;
#ifdef TIMEOUTS
	timed = 0;
#endif
#ifdef LIES
	lied = 0;
#endif
#if defined(SIGNALS) && defined(BACKEND_SWAP)
	in_futex_wait = (me == 1 -> 0 : in_futex_wait);
#endif
#ifdef LIFE
	meant = 0;
	other = 0;
	unregistered = 0;
	been[me] = 0;
#endif
}

inline choose_target()
{
	if
#ifdef ENDLESS
	:: tid = me % 3 + 1
#elif defined(REGISTERED)
	:: me != 1 -> tid = 1
	:: me == 1 -> tid = 2
#ifdef SELF
	:: me == 1 -> tid = me
#endif
#else
	:: me != 1 -> tid = 1
	:: me != 2 -> tid = 2
	:: me != 3 -> tid = 3
#ifdef SELF
	:: tid = me
#endif
#endif
	fi;
#ifdef LIFE
	been[me] = (task[tid] == LIVE -> THERE : NOT_THERE);
#endif
}

inline choose_timeout()
{
#ifdef TIMEOUTS
	if
	:: timed = 0
	:: timed = 1
	fi
#else
	skip
#endif
}

/* register_self(): one's own word, which nobody else makes UNREGISTERED, nor registers */
inline register_self()
{
#ifdef LIFE
	if
	:: STATE(word[me]) == UNREGISTERED -> goto switchto_thread_register
	:: else
	fi
#else
	skip
#endif
}

/* give(), to the load of the word */
inline give()
{
	seen = word[tid];
#ifdef LIFE
	if
	:: STATE(seen) == UNREGISTERED ->
		seen = 0;
		unregistered = 1;
		goto switchto_thread_resume_unregistered
	:: else ->
		meant = EARLY(life[tid], 0, me)
	fi;
#endif
	goto thread_give
}

/* The same where the target can't be unregistered: so that what is never reached is a fault. */
inline give_registered()
{
	seen = word[tid];
#ifdef LIFE
	meant = EARLY(life[tid], 0, me);
#endif
	goto thread_give
}

#ifdef LIFE
/* early_resume() again: is it the same thread still? */
inline ask_again()
{
	if
	:: task[tid] == FREE || life[tid] != LIFE_OF(meant) -> goto no_such_thread
	:: task[tid] != FREE && life[tid] == LIFE_OF(meant)
#ifdef KINDS
	/* This time of the other kind: then it goes on with the newer answer. */
#if defined(MUTATION_KINDS_DIFFER)
	:: task[tid] != FREE -> goto no_such_thread
#elif defined(MUTATION_KINDS_OLD_ANSWER)
	:: task[tid] != FREE
#else
	:: task[tid] != FREE -> meant = EARLY(life[tid], 1 - KIND(meant), me)
#endif
#endif
	fi
}
#endif

/* begin_wait(), the exchange, and what wait_until() does then */
inline begin_wait_alone()
{
	if
#ifdef MUTATION_BEGIN_WAIT_STORE
	:: true -> word[me] = waiting
#else
	:: word[me] == running -> word[me] = waiting
	:: word[me] != running && !LEFT_WAITING -> goto take
#endif
#if defined(SIGNALS) && !defined(MUTATION_WAITING_IS_A_RESUME)
	:: LEFT_WAITING -> skip
#endif
	fi;
	goto park
}

/* begin_wait(), the exchange, and what switch_until() or switchto_switch() does then */
inline begin_wait()
{
	if
#ifdef MUTATION_BEGIN_WAIT_STORE
	:: true -> word[me] = waiting
#else
	:: word[me] == running -> word[me] = waiting
	:: word[me] != running && !LEFT_WAITING ->
		/* switch_resumed() */
#ifdef MUTATION_SWITCH_RESUMED_NO_WAKE
		wake = 0;
#endif
		if
		:: wake ->
			wake = 0;
			after = TO_TAKE;
			goto thread_wake
		:: else ->
			tid = 0;
			goto take
		fi
#endif
#if defined(SIGNALS) && !defined(MUTATION_WAITING_IS_A_RESUME)
	:: LEFT_WAITING -> skip
#endif
	fi;
	if
	/* wake_and_wait() */
#if defined(MUTATION_WAIT_BEFORE_WAKE)
	:: wake -> goto park
#elif defined(BACKEND_SWAP)
	:: wake ->
		wake = 0;
		goto futex_swap
#else
	:: wake ->
		wake = 0;
		after = TO_PARK;
		goto thread_wake
#endif
	:: else ->
		tid = 0;
		goto park
	fi
}

/* thread_wake(), to its end: back to where it was called */
inline after_thread_wake()
{
	if
#ifndef ENDLESS
	:: after == TO_CALLER ->
		forget_call();
		goto idle
#endif
	:: after == TO_PARK ->
		after = TO_CALLER;
		goto park
	:: after == TO_TAKE ->
		after = TO_CALLER;
		goto take
#ifdef LIFE
	:: after == TO_BEGIN_WAIT ->
		after = TO_CALLER;
		goto begin_wait_of_switch
#endif
#ifdef BACKEND_SWAP
	:: after == TO_SLEEP_AGAIN ->
		after = TO_CALLER;
		goto sleep_again
#endif
	fi
}

/* Off the queue. Runnable as well, but for LATE_WAKE. */
inline thread_woke()
{
#ifdef LATE_WAKE
	goto wake_up_q
#else
	after_thread_wake()
#endif
}

#ifndef ENDLESS
active proctype Monitor()
{
	atomic {
		timeout ->
		/* Promised: a resume that no wait has returned for is pending. */
		assert(!given[1] || PENDING(1));
		assert(!given[2] || PENDING(2));
		assert(!given[3] || PENDING(3));
		/*
		 * Nobody can go on. Who sleeps without a resume does so rightly
		 * and leaves now; whoever does not leave is an invalid end.
		 */
		quiet = 1
	}
}
#endif

active [3] proctype Thread()
{
	byte left = (me == 1 -> FIRST : OPS);
	byte op, tid, seen, error, after;
	bit wake;	/* the target waited when it got the resume */
#ifdef TIMEOUTS
	bit timed;
#endif
#ifdef LATE_WAKE
	byte woken;	/* taken off the queue and not made runnable yet */
#endif
#ifdef LIES
	bit lied;	/* The answer to a swap was 0, and nothing had been done. */
#endif
#ifdef LIFE
	byte my_running = RUNNING;
	byte meant;	/* EARLY(of whom the resume is meant for, me) */
	byte other;
	byte lives = LIVES;
	bit unregistered;	/* in switchto_thread_resume_unregistered() */
#endif

idle:
	if
#ifndef ENDLESS
	/* wait_until() */
	:: atomic {
		GO && left > 0 ->
		left = ONE_LESS;
		op = WAIT;
		choose_timeout();
		register_self();
		begin_wait_alone()
	}
	/* switchto_resume() */
	:: atomic {
		GO && left > 0 ->
		left = ONE_LESS;
		op = RESUME;
		choose_target();
		give()
	}
	:: atomic {
		GO && left == 0 ->
#ifdef LIFE
		if
		:: me == 1 && lives > 0 -> goto thread_end
		:: else
		fi;
#endif
		goto done
	}
#endif
#ifdef LIFE
	/* It may end with calls left. */
	:: atomic {
		GO && me == 1 && lives > 0 && left > 0 ->
		goto thread_end
	}
#endif
	/* switch_until() */
	:: atomic {
		GO && left > 0 ->
		left = ONE_LESS;
		op = SWITCH;
		choose_target();
		choose_timeout();
		register_self();
#ifdef BACKEND_SWAP
		/*
		 * switchto_switch(): its own load has found WAITING. If not, it
		 * has done nothing but go on with the general case.
		 */
		if
#ifdef TIMEOUTS
		:: !timed && STATE(word[tid]) == WAITING ->
#else
		:: STATE(word[tid]) == WAITING ->
#endif
			seen = word[tid];
#ifdef LIFE
			meant = EARLY(life[tid], 0, me);
#endif
			goto switchto_switch
		:: true
		fi;
#endif
		give()
	}
	fi;

#ifdef BACKEND_SWAP
switchto_switch:
	if
	:: atomic {
		GO && GIVE_FINDS(word[tid], seen) ->
		check_owner();
		set_resumed(tid, me, seen);
		seen = 0;
		wake = 1;
		goto begin_wait_of_switch
	}
	/* switch_slow(). The exchange failed somewhen before. */
	:: atomic {
		GO && word[tid] != seen ->
		give()
	}
	fi;
#endif

thread_give:
	if
	:: atomic {
		GO && GIVE_FINDS(word[tid], seen) ->
		check_owner();
		wake = (STATE(seen) == WAITING);
		set_resumed(tid, me, seen);
		seen = 0;
#ifdef MUTATION_GIVE_NO_WAKE
		wake = 0;
#endif
		if
#ifndef ENDLESS
		:: op == RESUME && wake ->
			wake = 0;
			goto thread_wake
		:: op == RESUME && !wake ->
			forget_call();
			goto idle
#endif
#ifdef LIFE
		/* The end of switchto_thread_resume_unregistered(), in a switch */
		:: op == SWITCH && unregistered && wake ->
			wake = 0;
			unregistered = 0;
			after = TO_BEGIN_WAIT;
			goto thread_wake
#endif
		:: else -> goto begin_wait_of_switch
		fi
	}
#ifndef MUTATION_GIVE_SPLIT
	:: atomic {
		GO && word[tid] != seen ->
#ifdef LIFE
		if
		:: GIVE_TOO_LATE(word[tid], seen) -> goto no_such_thread
		:: else
		fi;
#endif
		seen = word[tid];
		goto thread_give
	}
#endif
	fi;

begin_wait_of_switch:
	if
	:: atomic {
		GO ->
		begin_wait()
	}
	fi;

thread_wake:
#ifdef BACKEND_SWAP
	/* futex_wake_hinted(): only the owner ever waits on a word. */
	if
	:: atomic {
		GO && !VANISHED && queued[tid] ->
		/* The answer 1 */
		take_off(tid);
		tid = 0;
		thread_woke()
	}
	/* Another */
	:: atomic {
		GO && HINT_WAKES_NONE ->
#ifdef MUTATION_WAKE_ONCE
		tid = 0;
		thread_woke()
#else
		goto futex_wake
#endif
	}
	fi;

futex_wake:
#endif
	/* futex_wake() */
	if
	:: atomic {
		GO ->
		take_off(tid);
		tid = 0;
		thread_woke()
	}
	fi;

#ifdef LATE_WAKE
wake_up_q:
	if
	:: atomic {
		asleep[woken] = 0;
		woken = 0;
		after_thread_wake()
	}
	fi;
#endif

#ifdef BACKEND_SWAP
futex_swap:
	if
	/* futex_swap_queue(): both halves under both locks */
	:: atomic {
		GO && !VANISHED && word[me] == waiting && queued[tid] ->
		take_off(tid);
		enqueue();
#ifdef LATE_WAKE
		goto schedule_handoff
#else
		goto sleep
#endif
	}
	/* futex_swap_plain(): the wake half, futex_swap_wake() */
	:: atomic {
		GO && !VANISHED ->
#ifndef MUTATION_SWAP_NO_WAKE
		take_off(tid);
#endif
#ifdef SIGNALS
		in_kernel = (me == 1 -> 1 : in_kernel);
#endif
		goto futex_swap_wait
	}
#ifdef VANISH
	/* switch_sleep_again(), wake_and_wait(): ENOSYS, swap_woke() is false */
	:: atomic {
		GO && vanished ->
#ifdef MUTATION_SWAP_WOKE
		goto sleep_again
#else
		after = TO_PARK;
		goto thread_wake
#endif
	}
#endif
#ifdef LIES
	/* The same with an answer for which swap_woke() is true */
	:: atomic {
		GO ->
		make_up();
		goto sleep_again
	}
#endif
	fi;

#ifdef LATE_WAKE
schedule_handoff:
	if
	:: atomic {
		asleep[woken] = 0;
		woken = 0;
		goto sleep
	}
	fi;
#endif

futex_swap_wait:
#ifdef LATE_WAKE
	/* wake_up_q_on_current_cpu() comes first. */
	if
	:: atomic {
		asleep[woken] = 0;
		woken = 0;
		goto futex_wait
	}
	fi;
#else
	if
	:: atomic {
		GO ->
#ifdef SIGNALS
		in_kernel = (me == 1 -> 0 : in_kernel);
#endif
		if
		:: word[me] == waiting ->
			enqueue();
			goto sleep
		:: else ->
			error = EAGAIN;
			goto sleep_again
		fi
	}
	fi;
#endif
#endif

park:
	/* FUTEX_SWAP without a target, or FUTEX_WAIT: the same, but for made-up answers */
#ifdef LIES
	if
	:: atomic {
		GO ->
		make_up();
		goto sleep_again
	}
	:: atomic {
		GO ->
		goto futex_wait
	}
	fi;
#endif

futex_wait:
	/* One look, one lock */
	if
	:: atomic {
		GO ->
#ifdef MUTATION_KERNEL_WAIT_SPLIT
		if
		:: word[me] == waiting -> goto kernel_enqueues
		:: else -> goto sleep_again
		fi
	}
	fi;

kernel_enqueues:
	if
	:: atomic {
		GO ->
#endif
		if
#ifdef MUTATION_KERNEL_WAIT_SPLIT
		:: true ->
#else
		:: word[me] == waiting ->
#endif
			enqueue();
			goto sleep
#ifndef MUTATION_KERNEL_WAIT_SPLIT
		:: else ->
			/* EAGAIN. From futex_swap_wait there is a target. */
#if defined(BACKEND_SWAP) && defined(LATE_WAKE)
			error = (tid != 0 -> EAGAIN : 0);
#endif
			goto sleep_again
#endif
		fi
	}
	fi;

sleep:
	if
#ifdef LATE_WAKE
	/* futex_wait_queue(), futex_swap_must_sleep(): not queued any more, or runnable */
	:: atomic {
		!queued[me] || !asleep[me] ->
		goto futex_unqueue
	}
#ifdef TIMEOUTS
	:: atomic {
		timed && queued[me] && asleep[me] ->
		error = ETIMEDOUT;
		goto futex_unqueue
	}
#endif
#elif defined(SIGNALS)
	/* futex_unqueue(): not queued any more, woken */
	:: atomic {
		GO && !queued[me] && !(me == 1 && woken_by_signal) ->
		goto sleep_again
	}
	/* It was, and a handler has run. */
	:: atomic {
		GO && me == 1 && woken_by_signal ->
		woken_by_signal = 0;
		if
		:: error = EINTR;
			goto sleep_again
		/* SA_RESTART: of FUTEX_WAIT without a timeout only */
		:: IN_FUTEX_WAIT && !TIMED ->
#ifdef MUTATION_KERNEL_RESTART_BLIND
			enqueue();
			goto sleep
#else
			goto futex_wait
#endif
		/* siglongjmp() */
		:: forget_call();
			goto idle
		fi
	}
#else
	:: atomic {
		!queued[me] ->
		goto sleep_again
	}
#endif
#if defined(TIMEOUTS) && !defined(LATE_WAKE)
	/* futex_unqueue(): still queued, and the time is up */
	:: atomic {
		GO && timed && queued[me] ->
		queued[me] = 0;
		error = ETIMEDOUT;
		goto sleep_again
	}
#endif
#ifndef ENDLESS
	:: atomic {
		quiet && (!given[me] || STAYS_ASLEEP) ->
		goto done
	}
#endif
	fi;

#ifdef LATE_WAKE
futex_unqueue:
	if
	:: atomic {
		asleep[me] = 0;
		if
		:: !queued[me] ->
			error = 0;
			goto sleep_again
		:: else
		fi;
		queued[me] = 0;
		if
#ifdef TIMEOUTS
		:: error == ETIMEDOUT -> goto sleep_again
#endif
		/* Woken for no reason: the look at the word again */
		:: error == 0 -> goto futex_wait
		fi
	}
	fi;
#endif

sleep_again:
	/*
	 * state_of(me), after any sleep. The callers have looked before. One look is
	 * as good as several in a row, for RESUMED stays what it is until this thread
	 * takes it. After a swap with a target (tid) they are not in a row: if the
	 * first, in wake_and_wait() or switch_sleep_again(), finds no resume, or the
	 * answer was an error, there is wake_if_resumed(), and then the others, which
	 * are this one without tid.
	 *
	 * What sleeps again does so in FUTEX_WAIT.
	 */
	if
#ifdef MUTATION_WAIT_BEFORE_WAKE
	:: atomic {
		GO && wake ->
		wake = 0;
		after = TO_PARK;
		goto thread_wake
	}
#endif
	:: atomic {
#ifdef MUTATION_WAIT_BEFORE_WAKE
		GO && !wake ->
#else
		GO ->
#endif
#ifdef LIFE
		/* That is of a child that a handler forked. */
		assert(STATE(word[me]) != UNREGISTERED);
#endif
#ifdef LIES
		excuse();
#endif
		if
#ifdef MUTATION_WOKEN_IS_RESUMED
		:: error == 0 -> goto take
#elif defined(MUTATION_SLEEP_AGAIN_BLIND)
		:: error == 0 -> goto futex_wait
#endif
#ifndef MUTATION_SLEEP_AGAIN_BLIND
		:: STATE(word[me]) == RESUMED && !LOOK_AFTER_TARGET ->
			error = 0;
			tid = 0;
			goto take
#endif
#ifdef BACKEND_SWAP
		:: LOOK_AFTER_TARGET ->
			error = (error == EAGAIN -> 0 : error);
			goto wake_if_resumed
#endif
		/* 0, EAGAIN or EINTR: no handler ends a wait. */
		:: STATE(word[me]) != RESUMED && tid == 0 && !GIVES_UP ->
			error = 0;
#if defined(SIGNALS) && defined(BACKEND_SWAP)
			in_futex_wait = (me == 1 -> 1 : in_futex_wait);
#endif
			goto futex_wait
#ifdef MAY_GIVE_UP
		:: STATE(word[me]) != RESUMED && tid == 0 && GIVES_UP -> goto give_up
#endif
		fi
	}
	fi;

#ifdef BACKEND_SWAP
wake_if_resumed:
	/* state_of(target), whoever has that TID by now */
	if
	:: atomic {
		GO ->
#ifdef MUTATION_NO_WAKE_IF_RESUMED
		tid = 0;
		goto sleep_again
#else
		if
#ifdef MUTATION_EINTR_BELIEVED
		:: error == EINTR ->
			tid = 0;
			goto sleep_again
#endif
		:: STATE(word[tid]) == RESUMED ->
			after = TO_SLEEP_AGAIN;
			goto thread_wake
		:: else ->
			tid = 0;
			goto sleep_again
		fi
#endif
	}
	fi;
#endif

#ifdef MAY_GIVE_UP
give_up:
	if
	:: atomic {
		GO ->
		if
#ifdef MUTATION_GIVE_UP_STORE
		:: true ->
#else
		:: word[me] == waiting ->
#endif
			word[me] = running;
			/*
			 * Promised: a wait that ends with an error took no resume.
			 * That error is ETIMEDOUT: no handler ends a wait.
			 */
			assert(!given[me]);
			assert(TIMED && error == ETIMEDOUT);
			forget_call();
			goto idle
#ifndef MUTATION_GIVE_UP_STORE
		:: else -> goto sleep_again
#endif
		fi
	}
	fi;
#endif

take:
	if
	:: atomic {
		GO ->
#ifdef MUTATION_TAKE_SPLIT
		seen = word[me];
		goto take_store
	}
	fi;

take_store:
	if
	:: atomic {
		GO ->
#else
		seen = word[me];
#endif
		/* Promised: one resume, one return, with the TID of the last one. */
		assert(STATE(seen) == RESUMED);
		assert(given[me] && giver[me] == TID(seen));
		word[me] = running;
		given[me] = 0;
		giver[me] = 0;
#ifdef LIES
		owes[me] = 0;
#endif
		forget_call();
		goto idle
	}
	fi;

#ifdef LIFE
switchto_thread_register:
	/* Its identity, if it is asked for it, stays what it is. */
	if
	:: atomic {
		other = early[me];
		if
		:: IS_RESUME(other) -> other = EARLY(life[me], PIDFD_INODE, 0)
#ifdef KINDS
		:: IS_RESUME(other) -> other = EARLY(life[me], START_TIME, 0)
#endif
		:: else -> other = EARLY_NONE
		fi;
		goto begin_word
	}
#ifdef NO_IDENTITY
	:: atomic {
		IS_RESUME(early[me]) && no_identity ->
		no_identity = 0;
		forget_call();
		goto idle
	}
#endif
	fi;

begin_word:
#ifdef MUTATION_BEGIN_CLOSED_FIRST
	if
	:: atomic {
		seen = early[me];
		early[me] = EARLY_CLOSED;
		goto begin_word_last
	}
	fi;

begin_word_last:
#endif
	if
	:: atomic {
#ifdef MUTATION_BEGIN_SAME_GENERATION
		my_running = RUNNING | GENERATION(word[me]);
#else
		my_running = RUNNING | GENERATION(word[me] + GENERATION_ONE);
#endif
		word[me] = my_running;
		goto begin_early
	}
	fi;

begin_early:
	if
	:: atomic {
#ifndef MUTATION_BEGIN_CLOSED_FIRST
		seen = early[me];
		early[me] = EARLY_CLOSED;
#endif
#ifdef MUTATION_BEGIN_NO_EARLY
		seen = EARLY_NONE;
#endif
		if
		:: !IS_RESUME(seen) -> goto begun
		:: else
		fi;
		if
		:: other == EARLY_NONE -> other = EARLY(life[me], PIDFD_INODE, 0)
#ifdef KINDS
		:: other == EARLY_NONE -> other = EARLY(life[me], START_TIME, 0)
#endif
#ifdef NO_IDENTITY
		:: other == EARLY_NONE && no_identity ->
			no_identity = 0;
#ifdef MUTATION_BEGIN_GUESS_DROPS
			goto begun
#else
			other = seen
#endif
#endif
		:: else
		fi;
		if
#ifdef MUTATION_BEGIN_NO_IDENTITY
		:: true -> goto begin_resumed
#else
		:: SAME_THREAD(seen, other) -> goto begin_resumed
		:: else -> goto begun
#endif
		fi
	}
	fi;

begin_resumed:
	if
	:: atomic {
		if
		:: word[me] == my_running ->
			/*
			 * Promised: a new thread gets nothing of the old one. Not
			 * so, as it is, if it can't be asked whose it is, or the
			 * two identities can't be compared.
			 */
#if defined(NO_IDENTITY) && !defined(MUTATION_BEGIN_GUESSES)
			assert(LIFE_OF(seen) == life[me] || !no_identity);
#elif defined(KINDS) && !defined(MUTATION_KINDS_GUESSED)
			assert(LIFE_OF(seen) == life[me] || KIND(seen) != KIND(other));
#else
			assert(LIFE_OF(seen) == life[me]);
#endif
			set_resumed(me, TID(seen), my_running)
		:: else
		fi;
		goto begun
	}
	fi;

begun:
	/* wait_until(), or switch_until() from its give() on */
	if
	:: atomic {
		seen = 0;
		other = 0;
		if
		:: op == WAIT -> begin_wait_alone()
#ifdef REGISTERED
		:: op == SWITCH -> give_registered()
#else
		:: op == SWITCH -> give()
#endif
		fi
	}
	fi;

switchto_thread_resume_unregistered:
	/* thread_lives() */
	if
	:: atomic {
#ifndef MUTATION_UNREGISTERED_LIVES
		if
		:: task[tid] != LIVE -> goto no_such_thread
		:: else
		fi;
#endif
		goto early_resume
	}
	fi;

early_resume:
	/* thread_identity() */
	if
	:: atomic {
		if
		:: task[tid] == FREE -> goto no_such_thread
		:: task[tid] != FREE -> meant = EARLY(life[tid], PIDFD_INODE, me)
#ifdef KINDS
		:: task[tid] != FREE -> meant = EARLY(life[tid], START_TIME, me)
#endif
		fi;
		goto unregistered_load
	}
#ifdef NO_IDENTITY
	:: atomic {
		no_identity ->
		no_identity = 0;
		forget_call();
		goto idle
	}
#endif
	fi;

unregistered_load:
	if
	:: atomic {
		other = early[tid];
		goto unregistered_look
	}
	fi;

unregistered_look:
	/* No access: what the loop does with what it has found. */
	if
	:: atomic {
		other == EARLY_CLOSED ->
		other = 0;
		goto unregistered_word
	}
	:: atomic {
		IS_RESUME(other) && !EQUAL(other, meant) ->
#ifndef MUTATION_UNREGISTERED_REPLACES_ANY
		ask_again();
#endif
		goto unregistered_exchange
	}
	:: atomic {
		other == EARLY_NONE || (IS_RESUME(other) && EQUAL(other, meant)) ->
		goto unregistered_exchange
	}
	fi;

unregistered_exchange:
	if
	:: atomic {
#ifdef MUTATION_UNREGISTERED_STORE
		true ->
#else
		early[tid] == other ->
#endif
		early[tid] = meant;
		assert(been[me] & THERE);
		if
		:: task[tid] == LIVE && life[tid] == LIFE_OF(meant) -> given[tid] = 1
		:: else
		fi;
		if
		:: op == RESUME ->
			forget_call();
			goto idle
		:: op == SWITCH ->
			meant = 0;
			other = 0;
			unregistered = 0;
			goto begin_wait_of_switch
		fi
	}
#ifndef MUTATION_UNREGISTERED_STORE
	:: atomic {
		early[tid] != other ->
		other = early[tid];
		goto unregistered_look
	}
#endif
	fi;

unregistered_word:
	if
	:: atomic {
#ifdef MUTATION_UNREGISTERED_IDENTITY_FIRST
		other = (task[tid] != FREE && life[tid] == LIFE_OF(meant));
#else
		seen = word[tid];
#endif
		goto unregistered_again
	}
	fi;

unregistered_again:
	if
	:: atomic {
#ifdef MUTATION_UNREGISTERED_IDENTITY_FIRST
		seen = word[tid];
		if
		:: !other -> goto no_such_thread
		:: else -> other = 0
		fi;
#elif !defined(MUTATION_UNREGISTERED_NO_IDENTITY_AGAIN)
		ask_again();
#if defined(KINDS) && !defined(MUTATION_KINDS_GUESSED)
		/* Of two kinds that is not promised. No step looks at it. */
		meant = EARLY(life[tid], 0, me);
#endif
#endif
		if
		:: STATE(seen) == UNREGISTERED -> goto no_such_thread
		:: else
		fi;
		goto thread_give
	}
	fi;

no_such_thread:
	if
	:: atomic {
		/* Promised: ESRCH only of a thread that was not there. */
		assert(been[me] & NOT_THERE);
		forget_call();
		goto idle
	}
	fi;

thread_end:
	if
	/* Not registered: no destructor. */
	:: atomic {
		STATE(word[me]) == UNREGISTERED ->
		goto do_exit
	}
	:: atomic {
		STATE(word[me]) != UNREGISTERED ->
#ifdef MUTATION_END_UNREGISTERED_FIRST
		word[me] = UNREGISTERED | GENERATION(my_running);
		given[me] = 0;
		BEEN(2, NOT_THERE);
		BEEN(3, NOT_THERE);
#elif !defined(MUTATION_END_STAYS_CLOSED)
		early[me] = EARLY_NONE;
#endif
		goto end_word
	}
	fi;

end_word:
	if
	:: atomic {
#ifdef MUTATION_END_UNREGISTERED_FIRST
		early[me] = EARLY_NONE;
#elif !defined(MUTATION_END_STAYS_REGISTERED)
		word[me] = UNREGISTERED | GENERATION(my_running);
		/* A resume in the word goes with the thread, as promised. */
		given[me] = (IS_RESUME(early[me]) && LIFE_OF(early[me]) == life[me]);
		BEEN(2, NOT_THERE);
		BEEN(3, NOT_THERE);
#endif
		goto ended
	}
	fi;

ended:
	if
#if FIRST > 1
	/* Another destructor, of the first owner, registers it again. */
	:: atomic {
		left > 0 && lives == LIVES ->
		left = left - 1;
		op = WAIT;
		choose_timeout();
		goto switchto_thread_register
	}
#endif
	:: goto do_exit
	fi;

do_exit:
	if
	:: atomic {
		task[me] = EXITING;
		my_running = RUNNING;
		given[me] = 0;
		BEEN(2, NOT_THERE);
		BEEN(3, NOT_THERE);
		goto release_task
	}
	fi;

release_task:
	if
	:: atomic {
		task[me] = FREE;
		lives = lives - 1;
#if LIVES == 1
		goto done
	}
	fi;
#else
		if
		:: lives == 0 -> goto done
		:: else
		fi;
		left = FIRST;
		goto new_thread
	}
	fi;

new_thread:
	if
	:: atomic {
		life[me] = life[me] + 1;
		task[me] = LIVE;
		BEEN(2, THERE);
		BEEN(3, THERE);
		goto idle
	}
	/* The TID is another process's for a while. */
	:: atomic {
		task[me] == FREE && lives == LIVES - 1 ->
		life[me] = life[me] + 1;
		task[me] = FOREIGN
	};
	atomic {
		task[me] = FREE;
		goto new_thread_after_foreign
	}
	fi;

new_thread_after_foreign:
	if
	:: atomic {
		life[me] = life[me] + 1;
		task[me] = LIVE;
		BEEN(2, THERE);
		BEEN(3, THERE);
		goto idle
	}
	fi;
#endif
#endif

#ifndef ENDLESS
done:
	skip
#endif
}

#ifdef SIGNALS
/* The one that runs: a handler that resumes a thread, while its thread stands still. */
active proctype Handler()
{
	byte tid, seen;

idle:
	if
	/* A thread that is not in the kernel, or one that sleeps there. */
	:: atomic {
		signals > 0 && !in_kernel ->
		signals = signals - 1;
		interrupted = 1;
		if
		:: queued[1] ->
			queued[1] = 0;
			woken_by_signal = 1
		:: else
		fi;
		if
		:: interrupted = 0;
			goto idle
		:: tid = 1
		:: tid = 2
		:: tid = 3
		fi;
		/* give() */
		seen = word[tid]
	}
	/* No more signals. */
	:: atomic {
		quiet ->
		goto done
	}
	fi;

thread_give:
	if
	:: atomic {
		GIVE_FINDS(word[tid], seen) ->
		set_resumed(tid, interrupted, seen);
		if
		:: STATE(seen) == WAITING ->
			seen = 0;
			goto thread_wake
		:: else ->
			seen = 0;
			tid = 0;
			interrupted = 0;
			goto idle
		fi
	}
	:: atomic {
		word[tid] != seen ->
		seen = word[tid];
		goto thread_give
	}
	fi;

thread_wake:
#ifdef BACKEND_SWAP
	/* futex_wake_hinted(), and futex_wake() unless the answer is 1 */
	if
	:: atomic {
		!VANISHED && queued[tid] ->
		queued[tid] = 0;
		tid = 0;
		interrupted = 0;
		goto idle
	}
	:: atomic {
		HINT_WAKES_NONE ->
		goto futex_wake
	}
	fi;

futex_wake:
#endif
	if
	:: atomic {
		queued[tid] = 0;
		tid = 0;
		interrupted = 0;
		goto idle
	}
	fi;

done:
	skip
}
#endif

#ifdef VANISH
active proctype Vanish()
{
	vanished = 1
}
#endif

#ifdef ENDLESS
/* Promised: whoever has a resume returns; and the ring never stops. */
ltl returns { []<> given[1] && []<> !given[1] }
#endif
