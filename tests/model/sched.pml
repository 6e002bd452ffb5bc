/* SPDX-License-Identifier: MIT */
/*
 * The protocol of libswitchto/src/sched/, for spin: who owns a slot (owner.h), how a task sleeps and
 * wakes (wake.h, sleep.h), how a slot begins and ends (worker.c, scheduler.c).
 *
 * There are TASKS tasks, each with a thread, and SLOTS slots, each with a dispatcher. The first
 * dispatcher is switchto_sched_run(). The monitor takes a slot from a task at any time. Each
 * task makes CALLS calls, any that the switches name, and ends.
 *
 * An atomic sequence is a step: one atomic access to memory that other threads use, or what the
 * kernel does. It has the name of the function that it stands for. Some accesses of the code are
 * one step here: README.md says which, and why. A label inside of an atomic sequence continues
 * the step of the sequence that jumps there.
 *
 * switchto_wait(), switchto_resume() and switchto_switch() are taken for what they promise
 * (switchto.pml): one resume of a thread may be pending.
 *
 * Switches (see configurations):
 *
 *	TASKS=n		(3) tasks
 *	SLOTS=n		(2) slots. Tasks 1 and 2 are on the first slot, task 3 on the second
 *	CALLS=n		calls of each task (1); FIRST=n: of task 1, if not as many
 *	PARK		park and unpark
 *	TIMEOUTS	a park may have a deadline, which passes at any time
 *	YIELD		yield
 *	BUDGET		a call that does not wait has used up the budget, and gives way. A slot with ready
 *			tasks looks for events
 *	WAIT		a wait by a waiter, and a call that fires the waiter of another task
 *	LOCK		a task waits for a mutex, and a call that wakes it, or gives it the mutex
 *	CANCEL		cancel
 *	REGION		blocking regions; an unpark may stand in one
 *	READ		a task blocks in a system call until another task writes
 *	LEND		the dispatchers lend their places, and the kernel tells of tasks that block. Without
 *			RETAKES the monitor takes a slot only while no loan stands
 *	SPAWN		the last task exists when another one has spawned it, on any slot. It has no
 *			thread until it is picked. Each slot has one task more
 *	JOIN		join task 2
 *	OUTSIDE=n	a thread that is no task makes n calls: with PARK unpark, with SPAWN spawn
 *	VISITS=n	the monitor looks into the queues of slots n times at most
 *	STEALS=n	a slot without ready tasks takes one of the other's, n times at most
 *	END		switchto_sched_destroy() after switchto_sched_run(). Threads end
 *	RETAKES=n	the monitor takes slots n times at most; without: any number of times
 *	COARSE		fewer steps, README.md says which
 *	MUTATION_*	a fault, see mutations
 */

#ifndef TASKS
#define TASKS 3
#endif
#ifndef SLOTS
#define SLOTS 2
#endif
#ifndef CALLS
#define CALLS 1
#endif
#ifndef FIRST
#define FIRST CALLS
#endif
#if SLOTS > TASKS || TASKS > 3 || SLOTS > 2
#error 2 or 3 tasks, 1 or 2 slots
#endif

/* Watch has pid 0. A thread's number is its pid: those of the tasks, then the dispatchers. */
#define THREADS (TASKS + SLOTS)
#define me _pid
#define DISPATCHER(slot) (TASKS + 1 + (slot))
#define BIT(number) (1 << ((number) - 1))

/* task->slot */
#if SLOTS == 1
#define HOME(t) 0
#elif TASKS == 2
#define HOME(t) ((t) - 1)
#elif defined(STEALS)
#define HOME(t) home[t]
byte home[TASKS + 1];
byte steals = STEALS; /* that are left */
#elif defined(SPAWN)
#define HOME(t) ((t) == 3 -> home : (t) - 1)
byte home; /* of the task that is spawned */
#else
#define HOME(t) ((t) == 3 -> 1 : 0)
#endif

/* slot->owner */
#define USER 1
#define INSIDE 2
#define BLOCKING 3
#define VISITED 4

/* task->state */
#define TOKEN 1
#define PARKED 2
#define WAITING 4
#define FINISHED 8
#define LOCKING 16
#ifdef MUTATION_SCHED_LOCKING_CLAIMED
#define ASLEEP(t) (state[t] & (PARKED | WAITING | LOCKING))
#else
#define ASLEEP(t) (state[t] & (PARKED | WAITING))
#endif

/* task->woken_by */
#define ETIMEDOUT 1
#define ECANCELED 2

/*
 * What a thread does. NONE: its task, if it has one, is outside. TO_*: the call needs the slot.
 * GIVES: it makes another task ready, from outside.
 */
#define NONE 0
#define TO_PARK 1
#define PARKS 2
#define TO_YIELD 3
#define YIELDS 4
#define TO_WAIT 5
#define WAITS 6
#define TO_BLOCK 7
#define TO_UNBLOCK 8
#define TO_END 9
#define FIRES 10 /* the same, from inside; or its task ends, and another one joins it */
#define ENDS 11
#define GIVES 12
#define TO_LOCK 13
#define LOCKS 14
#define TO_GIVE_WAY 15

/* --- slots --- */

byte owner[SLOTS] = INSIDE;
/*
 * The threads that have the slot's epoch (worker->epoch). A new epoch is one that no thread
 * has. Epochs are only compared with that of the slot, so nothing else of a number matters.
 */
byte current[SLOTS];
byte queue[SLOTS]; /* a set of tasks: the policy may pick any */
byte inbox[SLOTS];
bit asleep[SLOTS];
bit event[SLOTS]; /* of the eventfd, and epoll_wait() has not returned it yet */

/* The thread that may run in the slot: slot->tid. Only switchto_owner_reclaim() looks at it. */
byte holder[SLOTS];

#ifdef LEND
/* The kernel's: who has the place that the slot's dispatcher has lent, and who has lost it. */
byte lent[SLOTS];
byte back[SLOTS];
bit seen[SLOTS]; /* switchto_owner_reclaim() has loaded this epoch */
#ifdef MUTATION_SCHED_LEND_UNTOLD
#define BLOCKS_UNTOLD true
#else
#define BLOCKS_UNTOLD false
#endif
#endif

/* --- threads and tasks --- */

byte granted[THREADS + 1]; /* slot + 1 */
bit pending[THREADS + 1];  /* a resume */
byte task_of[THREADS + 1];
byte thread_of[TASKS + 1];
byte state[TASKS + 1];
byte calls[TASKS + 1]; /* that are left */
byte tasks;	       /* that have not ended */
byte at_work = SLOTS - 1;
bit over;	   /* switchto_sched_run() has found that there are no tasks */
#ifdef END
#if !defined(RETAKES) || RETAKES > 0
bit monitor_ended;
#else
#define monitor_ended true
#endif
byte exits;	   /* the thread that is told to */
byte gone;	   /* threads that have ended */
bit destroyed;
#endif

#ifdef PARK
/*
 * What unparks are good for; no step looks at it. A token that no park has taken; an unpark
 * that ended a sleep, and its park has not returned.
 */
bit owed[TASKS + 1];
bit unparked[TASKS + 1];
#endif
#if defined(TIMEOUTS) || defined(CANCEL)
#define WOKEN_BY
byte woken_by[TASKS + 1];
#endif
#ifdef TIMEOUTS
bit timer[TASKS + 1];
#define HAS_TIMER(t) (timer[t] && HOME(t) == slot)
#endif
#ifdef CANCEL
bit cancelled[TASKS + 1];
#endif
#if defined(WAIT) || defined(JOIN)
#define WAITER
bit fired[TASKS + 1];  /* the task's waiter */
bit waiter[TASKS + 1]; /* is where others find it */
#endif
#ifdef JOIN
byte joiner; /* of task 2 */
#define JOINED 2
#define ENDED 255
#define FREE 254
#endif
#ifdef LOCK
bit pushed[TASKS + 1]; /* where others find it, to wake it: for the mutex */
bit given[TASKS + 1];  /* the mutex */
#endif
#ifdef READ
bit data[TASKS + 1]; /* for the task to read */
bit reads[TASKS + 1];
#endif
#ifdef SPAWN
bit spawned;
byte idle; /* a set of threads */
byte begins[SLOTS];
#endif
#ifdef OUTSIDE
byte visitors;
#ifdef MUTATION_SCHED_NO_VISITORS
#define VISITORS false
#else
#define VISITORS visitors
#endif
byte ended; /* slots that have found no tasks; if all have, the run is over */
#define ALL_ENDED ((1 << SLOTS) - 1)
#else
#define VISITORS false
#endif

#if defined(PARK) || defined(YIELD) || defined(BUDGET) || defined(WAITER) || defined(LOCK)
#define SLEEPS /* there are calls that let other tasks run */
#endif

#if defined(VISITS) || defined(STEALS)
/* is_visited(): the owner waits for the end of the visit. */
#ifdef MUTATION_SCHED_VISITED_LOST
#define IS_VISITED false
#else
#define IS_VISITED (owner[slot] == VISITED && MINE)
#endif
#ifdef MUTATION_SCHED_VISIT_INSIDE
#define MAY_VISIT(slot) (owner[slot] == USER || owner[slot] == INSIDE)
#else
#define MAY_VISIT(slot) (owner[slot] == USER)
#endif
#else
#define IS_VISITED false
#endif

#if defined(PARK) || defined(LOCK) || defined(CANCEL) || (defined(SPAWN) && CALLS > 0)
#define READIES /* there are calls of switchto_wake_ready() */
#endif

#define task task_of[me]
#define MINE (current[slot] & BIT(me))
#define QUEUED(t) ((queue[0] | queue[SLOTS - 1] | inbox[0] | inbox[SLOTS - 1]) & BIT(t))
#ifdef REGION
#define IN_REGION in_region
#else
#define IN_REGION false
#endif

/* Only some tasks can make these calls: so a task may make fewer. */
#if defined(JOIN) || defined(SPAWN)
#define MAY_END true
#else
#define MAY_END (calls[task] == 0)
#endif

/* What a compare and exchange of slot->owner needs to find, by the thread that has the slot. */
#ifdef MUTATION_SCHED_LEAVE_STORE
#define FINDS(from) (from == BLOCKING || (owner[slot] == from && MINE))
#else
#define FINDS(from) (owner[slot] == from && MINE)
#endif
#ifdef MUTATION_SCHED_READY_BLIND
#define MAY_ENTER true
#else
#define MAY_ENTER FINDS(USER)
#endif

/* poll_until() and poll_events() */
#ifdef MUTATION_SCHED_POLL_FOR_NONE
#define MUST_NOT_SLEEP (inbox[slot] != 0)
#else
#define MUST_NOT_SLEEP (inbox[slot] != 0 || tasks == 0)
#endif

inline check_inside()
{
	assert(holder[slot] == me);
	assert(owner[slot] == INSIDE);
	assert(MINE);
	/* switchto_owner_regain() takes it for granted. */
	assert(!task || HOME(task) == slot)
}

/* queue_claimed(), of one's own slot */
inline queue_task(t)
{
	assert(!QUEUED(t));
#if defined(TIMEOUTS) && !defined(MUTATION_SCHED_TIMER_STAYS)
	timer[t] = 0;
#endif
	queue[slot] = queue[slot] | BIT(t)
}

/* To the inbox of @to. */
inline inbox_push(t, to)
{
	assert(!QUEUED(t));
	to = HOME(t);
	inbox[to] = inbox[to] | BIT(t)
}

inline inbox_empty(which)
{
	queue[which] = queue[which] | inbox[which];
#if defined(TIMEOUTS) && !defined(MUTATION_SCHED_TIMER_STAYS)
	timer[1] = timer[1] && !(inbox[which] & BIT(1));
	timer[2] = timer[2] && !(inbox[which] & BIT(2));
#if TASKS > 2
	timer[3] = timer[3] && !(inbox[which] & BIT(3));
#endif
#endif
	inbox[which] = 0
}

/*
 * change(), owner.c, which enter_task() does as well: on with the call, or first to the slot, where
 * the call goes on
 */
inline change(from, to)
{
	if
	:: FINDS(from) ->
		assert(holder[slot] == me);
		owner[slot] = to
	:: !FINDS(from) && !IS_VISITED ->
		/* EDEADLK */
		assert(!(owner[slot] == INSIDE && MINE));
		goto regain
	fi
}

inline enter_task()
{
	change(USER, INSIDE)
}

inline choose_other()
{
	if
	:: task != 1 && state[1] != FINISHED -> other = 1
	:: task != 2 && state[2] != FINISHED -> other = 2
#if TASKS > 2
	:: task != 3 && state[3] != FINISHED -> other = 3
#endif
	/* ESRCH */
	:: tasks == 1 -> goto outside
	fi
}

/* prepare() */
inline prepare(how)
{
	assert(!(state[task] & ~TOKEN));
#ifdef WOKEN_BY
	woken_by[task] = 0;
#endif
#ifdef MUTATION_SCHED_TOKEN_DROPPED
	state[task] = how
#else
	state[task] = state[task] | how
#endif
}

inline claim(t)
{
	state[t] = state[t] & TOKEN
}

#ifdef TIMEOUTS
/* expire() */
inline expire(t)
{
	timer[t] = 0;
	if
	:: ASLEEP(t) ->
		claim(t);
		woken_by[t] = ETIMEDOUT;
		queue_task(t)
	:: else
	fi
}
#endif

/* Watch makes task @t ready. */
inline release(t)
{
	claim(t);
	inbox_push(t, to);
	assert(asleep[to]);
	asleep[to] = 0;
	event[to] = 1;
	to = 0
}

active proctype Watch()
{
	byte t, to;

	atomic {
		/* The first task of each slot runs; or the dispatcher, if there is none. */
		t = 1;
		do
		:: t <= TASKS ->
			calls[t] = (t == 1 -> FIRST : CALLS);
#ifdef SPAWN
			if
			:: t == TASKS ->
				state[t] = FINISHED;
				break
			:: else
			fi;
#endif
			tasks++;
			task_of[t] = t;
			thread_of[t] = t;
#ifdef STEALS
			HOME(t) = (t == 3 -> 1 : 0);
#endif
			to = HOME(t);
			if
			:: !holder[to] ->
				holder[to] = t;
#ifdef LEND
				lent[to] = t;
#endif
				granted[t] = to + 1;
				pending[t] = 1
#if TASKS > SLOTS && !defined(SPAWN)
			:: else -> queue[to] = queue[to] | BIT(t)
#endif
			fi;
			t++
		:: else -> break
		od;
		t = 0;
		to = 0
	};
	do
	:: atomic {
		timeout ->
		/* Nobody can go on: no task is ready, and each one sleeps rightly. */
		assert(!queue[0] && !inbox[0]);
		assert(!queue[SLOTS - 1] && !inbox[SLOTS - 1]);
#if defined(PARK) || defined(WAIT) || defined(LOCK) || defined(READ)
		if
		:: tasks == 0 -> break
		:: else
		fi;
		t = 1;
		do
		:: state[t] == FINISHED -> t++
#ifdef JOIN
		:: state[t] != FINISHED && joiner == t -> t++
#endif
		:: else -> break
		od;
		/* It is let go on now, to see the end as well. */
		if
#ifdef PARK
		:: state[t] == PARKED ->
			assert(!owed[t] && !unparked[t]);
#ifdef CANCEL
			assert(!cancelled[t]);
#endif
			unparked[t] = 1;
			release(t)
#endif
#ifdef WAIT
		:: state[t] & WAITING ->
			assert(waiter[t] && !fired[t]);
#ifdef CANCEL
			assert(!cancelled[t]);
#endif
			waiter[t] = 0;
			fired[t] = 1;
			release(t)
#endif
#ifdef LOCK
		:: state[t] & LOCKING ->
			assert(pushed[t]);
			pushed[t] = 0;
			given[t] = 1;
			state[t] = state[t] & ~LOCKING;
			release(t)
#endif
#ifdef READ
		:: reads[t] ->
			assert(!data[t]);
			data[t] = 1
#endif
		fi;
		t = 0
#else
		assert(tasks == 0);
		break
#endif
	}
	od;
	assert(at_work == 0 && over)
}

active [THREADS] proctype Thread()
{
	byte slot, op, other, next, at;
#ifdef REGION
	bit in_region;
#endif
#ifdef TIMEOUTS
	bit timed;
#endif
#ifdef CANCEL
	bit failed; /* the call, with ECANCELED */
	bit last;   /* a wait that can't be cancelled */
#endif

await:
	if
	:: atomic {
		granted[me] ->
		goto taken_up
	}
	:: atomic {
		!granted[me] ->
#ifdef END
		if
		:: exits == me ->
			gone = gone | BIT(me);
			slot = 0;
			goto done
		:: else
		fi;
#endif
		goto wait
	}
	fi;

	/* switchto_wait(), or that of switchto_switch() */
#ifdef END
wait:
#else
end_wait:
wait:
#endif
	if
	:: atomic {
		pending[me] ->
		pending[me] = 0;
		if
		:: granted[me] -> goto taken_up
#ifdef MUTATION_SCHED_AWAIT_ONCE
		:: else -> goto taken_up
#else
		:: else -> goto await
#endif
		fi
	}
#ifdef LEND
	:: atomic {
		!pending[me] && me > TASKS && back[me - TASKS - 1] ->
		slot = me - TASKS - 1;
		other = back[slot];
		back[slot] = 0;
		if
		:: tasks < 2 ->
			other = 0;
			goto await
		:: tasks >= 2 -> goto reclaim
		fi
	}
#endif
	fi;

#ifdef LEND
	/* switchto_owner_reclaim(): the owner, its TID, take() */
reclaim:
	atomic {
#ifdef MUTATION_SCHED_LEND_TID_FIRST
		if
		:: holder[slot] != other -> goto not_reclaimed
		:: else
		fi
	};
	atomic {
#endif
		if
#ifndef MUTATION_SCHED_LEND_INSIDE
		:: owner[slot] == INSIDE -> goto not_reclaimed
		:: owner[slot] != INSIDE ->
#else
		:: true ->
#endif
			seen[slot] = 1;
			at = owner[slot]
		fi
	};
#if !defined(MUTATION_SCHED_LEND_TID_FIRST)
	atomic {
		if
		:: holder[slot] != other -> goto not_reclaimed
		:: else
		fi
	};
#endif
	atomic {
		if
#ifdef MUTATION_SCHED_LEND_SPLIT
		:: true ->
#else
		:: !seen[slot] || owner[slot] != at -> goto reclaim
		:: seen[slot] && owner[slot] == at ->
#endif
			assert(holder[slot] == other);
			other = 0;
			at = 0;
			seen[slot] = 0;
			current[slot] = BIT(me);
			holder[slot] = me;
			owner[slot] = INSIDE;
			goto dispatch_now
		fi
	};

	atomic {
		skip;
not_reclaimed:
		seen[slot] = 0;
		other = 0;
		at = 0;
		goto await
	};
#endif

	/* The rest of await(), and what comes then */
	atomic {
		skip;
taken_up:
		assert(granted[me]);
		slot = granted[me] - 1;
		granted[me] = 0;
		current[slot] = current[slot] | BIT(me);
		check_inside();
		if
		:: op == NONE && task == 0 -> goto dispatch_now
		:: op == NONE && task != 0 -> goto leave
#ifdef PARK
		:: op == TO_PARK -> goto park
#endif
#ifdef YIELD
		/* yield_late(): while it waited for its slot, all others had their turn. */
		:: op == TO_YIELD -> goto leave
#endif
#ifdef BUDGET
		:: op == TO_GIVE_WAY ->
			/* The same. */
			op = NONE;
			goto give_way
#endif
#ifdef WAITER
		:: op == TO_WAIT -> goto wait_for
#endif
#ifdef LOCK
		:: op == TO_LOCK -> goto lock_inside
#endif
#ifdef REGION
		:: op == TO_BLOCK ->
			owner[slot] = BLOCKING;
			in_region = 1;
			op = NONE;
			goto outside
		:: op == TO_UNBLOCK ->
			in_region = 0;
			goto leave
#endif
		:: op == TO_END -> goto end_task
#ifdef SLEEPS
		:: op == PARKS || op == YIELDS || op == WAITS || op == LOCKS -> goto returned
#endif
		fi
	};

	/* switchto_dispatch() has returned, or switchto_sleep_stay(). */
#ifdef SLEEPS
	atomic {
		skip;
returned:
		if
#ifdef PARK
		:: op == PARKS ->
#ifdef CANCEL
			assert(failed || unparked[task] || woken_by[task]);
			failed = 0;
#elif defined(WOKEN_BY)
			assert(unparked[task] || woken_by[task]);
#else
			assert(unparked[task]);
#endif
			unparked[task] = 0;
			goto leave
#endif
#if defined(YIELD) || defined(BUDGET)
		:: op == YIELDS -> goto leave
#endif
#ifdef LOCK
		:: op == LOCKS ->
			assert(!pushed[task] && !(state[task] & LOCKING));
			if
			:: given[task] ->
				given[task] = 0;
				goto leave
			/* lock_again() */
			:: !given[task] -> goto lock_inside
			fi
#endif
#ifdef WAITER
		:: op == WAITS ->
#ifdef CANCEL
			failed = failed || (woken_by[task] == ECANCELED && !last);
#endif
			goto wait_for
#endif
		fi
	};
#endif

	/* The call is over, or the task begins. */
	atomic {
		skip;
leave:
		check_inside();
		/* It runs: so nobody has made it ready, or is about to. */
		assert(!QUEUED(task));
		assert(!(state[task] & ~TOKEN));
#ifdef TIMEOUTS
		assert(!timer[task]);
#endif
		owner[slot] = USER;
		op = NONE;
		goto outside
	};

dispatch:
	atomic {
		true ->
dispatch_now:
		check_inside();
#if defined(SPAWN) && CALLS > 0
		if
		:: begins[slot] ->
			/* switchto_dispatch_make() */
			assert(me == DISPATCHER(slot) && !thread_of[begins[slot]]);
			next = TASKS;
			thread_of[begins[slot]] = next;
			task_of[next] = begins[slot];
			begins[slot] = 0;
			goto hand_over
		:: else
		fi;
#endif
		asleep[slot] = 0;
#ifdef BUDGET
		/* pick_next(): the budget has run out, or not */
		if
		:: event[slot] -> event[slot] = 0
		:: skip
		fi;
#endif
		inbox_empty(slot);
#ifdef TIMEOUTS
		do
		:: HAS_TIMER(1) -> expire(1)
		:: HAS_TIMER(2) -> expire(2)
#if TASKS > 2
		:: HAS_TIMER(3) -> expire(3)
#endif
		:: break
		od;
#endif
		/* next_task() */
		if
#ifdef STEALS
		:: queue[slot] == 0 && steals && MAY_VISIT(1 - slot) && (queue[1 - slot] || inbox[1 - slot]) ->
			steals--;
			goto visit
#endif
		:: queue[slot] == 0 && tasks == 0 ->
			assert(task == 0);
			next = DISPATCHER(slot)
		:: queue[slot] == 0 && tasks != 0 ->
#if defined(COARSE) && !defined(MUTATION_SCHED_ASLEEP_LATE)
			asleep[slot] = 1;
#endif
			goto poll_events
		:: queue[slot] & BIT(1) -> other = 1
		:: queue[slot] & BIT(2) -> other = 2
#if TASKS > 2
		:: queue[slot] & BIT(3) -> other = 3
#endif
		fi;
#ifdef STEALS
picked:
#endif
		if
		:: other ->
			queue[slot] = queue[slot] & ~BIT(other);
			next = thread_of[other];
#ifdef SPAWN
			if
			:: next == 0 && task == 0 && me <= TASKS ->
				thread_of[other] = me;
				task = other;
				next = me
			:: next == 0 && !(task == 0 && me <= TASKS) ->
				/* switchto_dispatch_begin() */
				if
				:: idle & BIT(1) -> next = 1
				:: idle & BIT(2) -> next = 2
				:: idle == 0 && me > TASKS -> next = TASKS
#if CALLS > 0
				:: idle == 0 && me <= TASKS ->
					begins[slot] = other;
					other = 0;
					next = DISPATCHER(slot);
					goto hand_over
#endif
				fi;
				idle = idle & ~BIT(next);
				thread_of[other] = next;
				task_of[next] = other
			:: next != 0
			fi;
#endif
			other = 0
		:: else
		fi;
		if
		:: next == me && task == 0 ->
			next = 0;
			goto slot_ended
#ifdef SPAWN
		:: next == me && task != 0 && op == NONE ->
			next = 0;
			goto leave
#endif
#ifdef SLEEPS
		:: next == me && op != NONE ->
			next = 0;
			goto returned
#endif
		:: next != me -> goto hand_over
		fi
	};

	atomic {
		skip;
hand_over:
#ifdef SPAWN
		if
		:: task == 0 && me <= TASKS ->
			idle = idle | BIT(me);
			goto pass
		:: else -> goto pass_now
		fi
#else
		goto pass_now
#endif
	};

#ifdef SPAWN
pass:
#endif
	atomic {
		true ->
pass_now:
		current[slot] = 0;
#ifdef LEND
		seen[slot] = 0;
#endif
		assert(!granted[next]);
		holder[slot] = next;
#ifdef MUTATION_SCHED_RESUME_FIRST
		pending[next] = 1
	};
	atomic {
		granted[next] = slot + 1;
		next = 0;
		goto wait
	};
	atomic {
		skip;
#endif
		granted[next] = slot + 1;
#ifdef COARSE
		goto resume_now
#else
		goto resume
#endif
	};

	/* switchto_switch(), up to its wait */
#ifndef COARSE
resume:
#endif
	atomic {
		true ->
resume_now:
#ifdef END
#ifdef MUTATION_SCHED_DESTROY_AT_ONCE
		assert(!(gone & BIT(next)));
#endif
		if
		:: gone & BIT(next) ->
			/* ESRCH */
			next = 0;
			goto await
		:: else
		fi;
#endif
#ifdef LEND
		/* FUTEX_SWAP: @next waits in a swap, and takes the loan; or it does not yet. */
		if
		:: me > TASKS || lent[slot] == me ->
			if
			:: next == DISPATCHER(slot) -> lent[slot] = 0
			:: next != DISPATCHER(slot) ->
				lent[slot] = next;
				back[slot] = (me > TASKS -> 0 : back[slot])
			:: next != DISPATCHER(slot) ->
				lent[slot] = 0;
				back[slot] = (me > TASKS -> 0 : me)
			fi
		:: else
		fi;
#endif
		pending[next] = 1;
		next = 0;
		goto wait
	};

#ifdef STEALS
	/* steal_from(), wrapper.c: @victim's task computes, so a thread without work may look there. */
#define victim (1 - slot)
	atomic {
		skip;
visit:
		owner[victim] = VISITED;
		goto steal
	};
steal:
	atomic {
		inbox_empty(victim);
		if
		:: queue[victim] & BIT(1) -> other = 1
		:: queue[victim] & BIT(2) -> other = 2
		:: queue[victim] & BIT(3) -> other = 3
		fi;
		queue[victim] = queue[victim] & ~BIT(other);
#ifndef MUTATION_SCHED_STEAL_SLOT_STAYS
		home[other] = slot;
#endif
		goto end_visit
	};
end_visit:
	atomic {
		assert(owner[victim] == VISITED);
		owner[victim] = USER;
		goto picked
	};
#endif

poll_events:
#if !defined(COARSE) && !defined(MUTATION_SCHED_ASLEEP_LATE)
	atomic {
		asleep[slot] = 1
	};
#endif
	if
	:: atomic {
		/* and epoll_wait() that does not sleep */
		MUST_NOT_SLEEP ->
		event[slot] = 0;
		goto dispatch_now
	}
	:: atomic {
		!MUST_NOT_SLEEP ->
		goto epoll_wait
	}
	fi;

epoll_wait:
#ifdef MUTATION_SCHED_ASLEEP_LATE
	atomic {
		asleep[slot] = 1
	};
#endif
#ifdef MUTATION_SCHED_LOOK_ASLEEP
	event[slot] = 0;
#endif
	if
	:: atomic {
		event[slot] ->
		event[slot] = 0;
		goto dispatch_now
	}
#ifdef TIMEOUTS
	:: atomic {
		HAS_TIMER(1) ->
		expire(1);
		goto dispatch_now
	}
	:: atomic {
		HAS_TIMER(2) ->
		expire(2);
		goto dispatch_now
	}
#if TASKS > 2
	:: atomic {
		HAS_TIMER(3) ->
		expire(3);
		goto dispatch_now
	}
#endif
#endif
	fi;

outside:
	if
#ifdef LEND
	/* It blocks for a moment, or a fault of a page does. */
	:: atomic {
		lent[slot] == me ->
		lent[slot] = 0;
		back[slot] = me;
		goto outside
	}
#endif
#ifdef PARK
	:: atomic {
		calls[task] && !IN_REGION ->
		calls[task]--;
		op = TO_PARK;
#ifdef TIMEOUTS
		if
		:: timed = 0
		:: timed = 1
		fi;
#endif
		enter_task();
		goto park
	}
	/* switchto_unpark() */
	:: atomic {
		calls[task] ->
		calls[task]--;
		choose_other();
		if
		:: state[other] & TOKEN ->
			other = 0;
			goto outside
		:: state[other] & PARKED ->
#ifdef MUTATION_SCHED_CLAIM_SPLIT
			goto claim_it
		fi
	};
claim_it:
	atomic {
		if
		:: true ->
#endif
			claim(other);
			unparked[other] = 1;
			op = GIVES;
			goto wake_ready
#ifndef MUTATION_SCHED_CLAIM_SPLIT
		:: else ->
			state[other] = state[other] | TOKEN;
			owed[other] = 1;
			other = 0;
			goto outside
#endif
		fi
	}
#endif
#ifdef YIELD
	:: atomic {
		calls[task] && !IN_REGION ->
		calls[task]--;
		op = TO_YIELD;
		enter_task();
		goto yield
	}
#endif
#ifdef BUDGET
	/* switchto_dispatch_give_way(), at the end of a call */
	:: atomic {
		calls[task] && !IN_REGION ->
		calls[task]--;
		op = TO_GIVE_WAY;
#ifndef MUTATION_SCHED_GIVE_WAY_BLIND
		enter_task();
#endif
		goto give_way
	}
#endif
#ifdef WAIT
	:: atomic {
		calls[task] && !IN_REGION ->
		calls[task]--;
		waiter[task] = 1;
		goto waiter_wait
	}
	:: atomic {
		calls[task] && !IN_REGION ->
		calls[task]--;
		choose_other();
		if
		:: waiter[other] ->
			waiter[other] = 0;
			goto waiter_fire
		:: else ->
			other = 0;
			goto outside
		fi
	}
#endif
#ifdef LOCK
	/* lock_in_task(): the mutex is locked */
	:: atomic {
		calls[task] && !IN_REGION ->
		calls[task]--;
#ifdef MUTATION_SCHED_PUSH_OUTSIDE
		pushed[task] = 1;
		op = TO_LOCK;
		goto lock_late
#else
		op = TO_LOCK;
		enter_task();
		goto lock_inside
#endif
	}
	/* switchto_mutex_unlock() */
	:: atomic {
		calls[task] && !IN_REGION ->
		calls[task]--;
		choose_other();
		if
		:: pushed[other] ->
			pushed[other] = 0;
			if
			:: given[other] = 1
			:: skip
			fi;
			goto give
		:: else ->
			other = 0;
			goto outside
		fi
	}
#endif
#ifdef JOIN
	:: atomic {
		calls[task] && task != JOINED ->
		calls[task]--;
		if
		:: joiner == 0 ->
			joiner = task;
			waiter[task] = 1;
			goto waiter_wait
		:: else -> goto outside /* has ended, or EINVAL */
		fi
	}
#endif
#ifdef CANCEL
	:: atomic {
		calls[task] && !IN_REGION ->
		calls[task]--;
		choose_other();
#ifndef MUTATION_SCHED_CANCEL_LATE
		cancelled[other] = 1;
#endif
		goto cancel
	}
#endif
#ifdef REGION
	:: atomic {
		calls[task] && !IN_REGION ->
		calls[task]--;
		/* switchto_owner_block() */
		op = TO_BLOCK;
		change(USER, BLOCKING);
		in_region = 1;
		op = NONE;
		goto outside
	}
	:: atomic {
		IN_REGION ->
		/* switchto_owner_unblock() */
		op = TO_UNBLOCK;
		change(BLOCKING, USER);
		in_region = 0;
		op = NONE;
		goto outside
	}
#endif
#ifdef READ
	:: atomic {
		calls[task] ->
		calls[task]--;
		reads[task] = 1;
		goto read
	}
	:: atomic {
		calls[task] ->
		calls[task]--;
		choose_other();
		data[other] = 1;
		other = 0;
		goto outside
	}
#endif
#if defined(SPAWN) && CALLS > 0
	:: atomic {
		calls[task] && !spawned ->
		calls[task]--;
		home = slot;
		goto spawn
	}
#endif
	:: atomic {
		MAY_END && !IN_REGION ->
		calls[task] = 0;
		op = TO_END;
		enter_task();
		goto end_task
	}
	fi;

#ifdef PARK
	/* switchto_park(), switchto_sleep_pause(), inside */
	atomic {
		skip;
park:
		check_inside();
		assert(((state[task] & TOKEN) != 0) == owed[task]);
		if
		:: state[task] & TOKEN ->
			state[task] = 0;
			owed[task] = 0;
#ifdef TIMEOUTS
			timed = 0;
#endif
			goto leave
		:: else ->
			prepare(PARKED);
			op = PARKS;
#ifdef CANCEL
			goto task_cancelled
#else
			goto sleep
#endif
		fi
	};
#endif

#ifdef BUDGET
	atomic {
		skip;
give_way:
		/* look() */
		asleep[slot] = 0;
		event[slot] = 0;
#ifdef TIMEOUTS
		/* Task 3 is alone on its slot. */
		do
		:: HAS_TIMER(1) -> expire(1)
		:: HAS_TIMER(2) -> expire(2)
		:: break
		od;
#endif
		if
		:: op == TO_GIVE_WAY -> goto yield
		/* It has waited since the budget before, or has a mutex. */
		:: goto leave
		fi
	};
#endif

#if defined(YIELD) || defined(BUDGET)
	/* yield_inside() */
	atomic {
		skip;
yield:
		queue_task(task);
		op = YIELDS;
		goto dispatch_now
	};
#endif

#ifdef LOCK
#ifdef MUTATION_SCHED_PUSH_OUTSIDE
lock_late:
	atomic {
		enter_task();
		goto lock_inside
	};
#endif
	/* lock_inside() */
	atomic {
		skip;
lock_inside:
		check_inside();
		op = LOCKS;
		state[task] = state[task] | LOCKING;
#ifndef MUTATION_SCHED_PUSH_OUTSIDE
		goto push
#else
		goto dispatch
#endif
	};
#ifndef MUTATION_SCHED_PUSH_OUTSIDE
	/* lock_or_push(), lock_or_stay(): another one has locked it, or it is free */
push:
	if
	:: atomic {
		pushed[task] = 1;
		goto dispatch
	}
	:: atomic {
#ifndef MUTATION_SCHED_LOCKING_STAYS
		/* end_locking() */
		state[task] = state[task] & ~LOCKING;
#endif
		goto leave
	}
	fi;
#endif
	/* wake() */
give:
	atomic {
		state[other] = state[other] & ~LOCKING;
		op = GIVES;
		goto wake_ready
	};
#endif

#ifdef WAITER
	/* switchto_waiter_wait() */
waiter_wait:
	atomic {
		true ->
waiter_wait_now:
		op = TO_WAIT;
		enter_task();
wait_for:
		check_inside();
		if
		:: fired[task] ->
			fired[task] = 0;
#ifdef CANCEL
			failed = 0;
			last = 0;
#endif
			goto leave
#ifdef CANCEL
		:: !fired[task] && failed ->
			failed = 0;
			owner[slot] = USER;
			op = NONE;
			goto withdraw
#endif
		:: else -> goto prepare_waiting
		fi
	};

prepare_waiting:
	atomic {
		prepare(WAITING);
		op = WAITS;
#ifdef CANCEL
		if
		:: !last -> goto task_cancelled
		:: else
		fi;
#endif
		goto look_again
	};

look_again:
	if
	:: atomic {
#ifdef MUTATION_SCHED_ONE_LOOK
		false ->
#else
		fired[task] ->
#endif
		goto sleep_stay
	}
	:: atomic {
#ifndef MUTATION_SCHED_ONE_LOOK
		!fired[task] ->
#endif
		goto sleep
	}
	fi;
#endif

#if defined(WAITER) || defined(CANCEL) || defined(TIMEOUTS)
	/* switchto_sleep_stay() */
sleep_stay:
	atomic {
#ifdef TIMEOUTS
		woken_by[task] = (timed && ASLEEP(task) -> ETIMEDOUT : woken_by[task]);
		timed = 0;
#endif
		if
		:: ASLEEP(task) ->
			claim(task);
			goto returned
#ifdef MUTATION_SCHED_STAY_BLIND
		:: else -> goto returned
#else
		:: else -> goto dispatch_now
#endif
		fi
	};
#endif

#ifdef CANCEL
task_cancelled:
	atomic {
		if
		:: cancelled[task] ->
			failed = 1;
#ifdef TIMEOUTS
			timed = 0;
#endif
			goto sleep_stay
#ifdef WAITER
		:: !cancelled[task] && op == WAITS -> goto look_again
#endif
#ifdef PARK
		:: !cancelled[task] && op == PARKS -> goto sleep
#endif
		fi
	};

#ifdef WAITER
	/* The end of switchto_join(), after ECANCELED */
withdraw:
	atomic {
		if
		:: waiter[task] ->
			waiter[task] = 0;
#ifdef JOIN
			joiner = 0;
#endif
			goto outside
		:: else ->
			last = 1;
			goto waiter_wait_now
		fi
	};
#endif

	/* switchto_cancel(): task_wake() */
cancel:
	atomic {
		if
#ifdef MUTATION_SCHED_CANCEL_LATE
		:: !ASLEEP(other) -> goto cancel_late
#endif
		:: ASLEEP(other) ->
#ifdef MUTATION_SCHED_CANCEL_LATE
			cancelled[other] = 1;
#endif
			claim(other);
			woken_by[other] = ECANCELED;
			op = GIVES;
			goto wake_ready
#ifndef MUTATION_SCHED_CANCEL_LATE
		:: else ->
			other = 0;
			goto outside
#endif
		fi
	};
#ifdef MUTATION_SCHED_CANCEL_LATE
cancel_late:
	atomic {
		cancelled[other] = 1;
		other = 0;
		goto outside
	};
#endif
#endif

#if defined(PARK) || defined(WAITER)
	/* sleep_in_line(), switchto_sleep() */
	atomic {
		skip;
sleep:
#ifdef TIMEOUTS
		if
		:: timed -> goto sleep_stay /* the deadline has passed */
		:: skip
		fi;
		timer[task] = timed;
		timed = 0;
#endif
		goto dispatch
	};
#endif

#ifdef WAITER
#ifdef MUTATION_SCHED_STRAY_WAKE
#define WAITS_STILL ASLEEP(other)
#else
#define WAITS_STILL (state[other] & WAITING)
#endif
#endif

#ifdef WAIT
	/* switchto_waiter_fire() */
waiter_fire:
	atomic {
		if
		:: MAY_ENTER ->
			owner[slot] = INSIDE;
			op = FIRES;
			goto fire_inside
		:: else
		fi;
		fired[other] = 1
	};
	/* task_wake(). A slot that is lost stays lost. */
	atomic {
		if
		:: WAITS_STILL ->
			claim(other);
			op = GIVES;
			goto push_it
		:: else ->
			other = 0;
			goto outside
		fi
	};
#endif

#ifdef WAITER
	/* fire(), inside: no configuration has both */
#ifdef JOIN
#define FIRED task_ended_now
#else
#define FIRED leave
#endif
fire:
	atomic {
		true ->
fire_inside:
		fired[other] = 1
	};
	atomic {
		if
		:: WAITS_STILL && HOME(other) == slot ->
			claim(other);
			queue_task(other);
			other = 0;
			goto FIRED
		:: WAITS_STILL && HOME(other) != slot ->
			claim(other);
			op = FIRES;
			goto push_it
		:: else ->
			other = 0;
			goto FIRED
		fi
	};

push_it:
	atomic {
		inbox_push(other, at);
		other = 0;
		goto inbox_wake
	};
#endif

#ifdef READ
read:
	if
	:: atomic {
		data[task] ->
		data[task] = 0;
		reads[task] = 0;
		goto outside
	}
#ifdef LEND
	:: atomic {
		!data[task] && lent[slot] == me && !BLOCKS_UNTOLD ->
		lent[slot] = 0;
		back[slot] = me;
		goto read
	}
#endif
	fi;
#endif

#if defined(SPAWN) && CALLS > 0
	/* switchto_spawn(), up to switchto_wake_ready() */
	atomic {
		skip;
spawn:
		spawned = 1;
		other = TASKS;
		state[other] = 0;
		tasks++;
		op = GIVES;
		goto wake_ready
	};
#endif

#ifdef READIES
	/* switchto_wake_ready() */
wake_ready:
	atomic {
		if
		:: HOME(other) == slot && MAY_ENTER ->
			assert(holder[slot] == me);
			queue_task(other);
			other = 0;
			op = NONE;
			goto outside
		:: else ->
			inbox_push(other, at);
			other = 0;
			goto inbox_wake
		fi
	};
#endif

	/* switchto_owner_regain() */
	atomic {
		skip;
regain:
		inbox_push(task, at);
		goto inbox_wake
	};

inbox_wake:
	if
	:: atomic {
		asleep[at] ->
		asleep[at] = 0;
#if defined(MUTATION_SCHED_NO_WAKE)
		goto woke
#elif defined(COARSE)
		goto write_now
#else
		goto write
#endif
	}
	:: atomic {
		!asleep[at] ->
		goto woke
	}
	fi;

	/* to the eventfd */
#ifndef COARSE
write:
#endif
	atomic {
		true ->
write_now:
		event[at] = 1;
		goto woke
	};

	/* The end of switchto_inbox_wake() */
	atomic {
		skip;
woke:
		if
#if SLOTS > 1
		:: op == ENDS && at + 1 < SLOTS ->
			at++;
			goto inbox_wake
#endif
		:: op == ENDS && at + 1 == SLOTS ->
			at = 0;
			op = NONE;
			goto dispatch
#if defined(READIES) || defined(WAIT)
		:: op == GIVES ->
			at = 0;
			op = NONE;
			goto outside
#endif
#ifdef WAITER
		:: op == FIRES ->
			at = 0;
#ifdef JOIN
			goto task_ended
#else
			goto leave
#endif
#endif
		:: op != ENDS && op != GIVES && op != FIRES ->
			/* switchto_owner_regain() */
			at = 0;
			goto await
		fi
	};

	atomic {
		skip;
end_task:
		check_inside();
		assert(!ASLEEP(task));
		state[task] = FINISHED;
#ifdef JOIN
		if
		:: task == JOINED ->
			task = 0;
			goto join_exchange
		:: else
		fi;
#endif
		task = 0;
		goto task_ended_now
	};

#ifdef JOIN
join_exchange:
	atomic {
		other = joiner;
		/* One that waits has the task from here on: no other call does. */
		joiner = (other -> FREE : ENDED);
		if
		:: other ->
			waiter[other] = 0;
			goto fire
		:: else -> goto task_ended_now
		fi
	};

task_ended:
#endif
	atomic {
		true ->
task_ended_now:
		tasks--;
		if
#ifndef MUTATION_SCHED_LAST_SILENT
		:: tasks == 0 ->
			op = ENDS;
			at = 0;
			goto inbox_wake
#endif
		:: else ->
			op = NONE;
			goto dispatch_now
		fi
	};

slot_ended:
#ifdef OUTSIDE
	/* is_over() */
	atomic {
		if
		:: tasks -> goto dispatch_now
		:: else
		fi;
		ended = ended | BIT(slot + 1)
	};
#ifndef MUTATION_SCHED_SPAWN_AT_END
	if
	:: ended == ALL_ENDED
	:: atomic {
		!(ended & BIT(slot + 1)) ->
		goto dispatch_now
	}
	fi;
#endif
#endif
	if
	:: atomic {
		me != DISPATCHER(0) ->
		at_work--;
		goto await
	}
	/* run_slots(), switchto_sched_run() */
	:: atomic {
		me == DISPATCHER(0) && at_work == 0 ->
#if defined(SPAWN) && defined(OUTSIDE)
		if
		:: tasks ->
			/* again */
			ended = 0;
#if SLOTS > 1
			at_work = SLOTS - 1;
			assert(!granted[DISPATCHER(1)]);
			holder[1] = DISPATCHER(1);
			granted[DISPATCHER(1)] = 2;
			goto run_slots
#else
			goto dispatch_now
#endif
		:: else
		fi;
#endif
		over = 1
	}
	fi;

#ifdef END
	atomic {
		monitor_ended && !VISITORS ->
		gone = gone | BIT(me);
		/* switchto_sched_destroy(), the newest thread first */
		next = THREADS
	};
	do
	:: atomic {
		next == me ->
		next--
	}
	:: atomic {
		next != me && next != 0 ->
		exits = next;
		pending[next] = 1
	   };
	   atomic {
		gone & BIT(next) ->
		next--
	   }
	:: next == 0 -> break
	od;
	destroyed = 1;
#endif
	goto done;

#if defined(SPAWN) && defined(OUTSIDE) && SLOTS > 1
run_slots:
	atomic {
		pending[DISPATCHER(1)] = 1;
		goto dispatch
	};
#endif

done:
	skip
}

#if !defined(RETAKES) || RETAKES > 0
/* switchto_region_take(): take(), and switchto_owner_grant() up to its resume */
inline take(slot)
{
	holder[slot] = DISPATCHER(slot);
#ifndef MUTATION_SCHED_SAME_EPOCH
	current[slot] = 0;
#endif
#ifdef LEND
	seen[slot] = 0;
#endif
	owner[slot] = INSIDE;
	to = DISPATCHER(slot);
	assert(!granted[to]);
	granted[to] = slot + 1
#ifdef RETAKES
	;
	left--
#endif
#ifdef COARSE
	;
#ifndef MUTATION_SCHED_RETAKE_NO_RESUME
	pending[to] = 1;
#endif
	to = 0
#endif
}

#ifdef MUTATION_SCHED_RETAKE_INSIDE
#define TAKEABLE(slot) true
#elif defined(MUTATION_SCHED_RETAKE_VISITED)
#define TAKEABLE(slot) (owner[slot] != INSIDE)
#else
#define TAKEABLE(slot) (owner[slot] == USER || owner[slot] == BLOCKING)
#endif
#ifdef RETAKES
#define MAY_RETAKE(slot) (left != 0 && TAKEABLE(slot))
#elif defined(LEND)
#define MAY_RETAKE(slot) (TAKEABLE(slot) && !lent[slot] && !back[slot])
#else
#define MAY_RETAKE(slot) TAKEABLE(slot)
#endif

active proctype Monitor()
{
	byte to;
#ifdef RETAKES
	byte left = RETAKES;
#endif
#ifdef VISITS
	byte visits = VISITS; /* that are left */
#endif

end_monitor:
	do
	:: atomic {
		MAY_RETAKE(0) ->
#ifdef MUTATION_SCHED_RETAKE_SPLIT
		skip
	   };
	   atomic {
#endif
		take(0)
	   }
#ifndef COARSE
	   ;
	   atomic {
		pending[to] = 1;
		to = 0
	   }
#endif
#if SLOTS > 1
	:: atomic {
		MAY_RETAKE(1) ->
#ifdef MUTATION_SCHED_RETAKE_SPLIT
		skip
	   };
	   atomic {
#endif
		take(1)
	   }
#ifndef COARSE
	   ;
	   atomic {
		pending[to] = 1;
		to = 0
	   }
#endif
#endif
#ifdef VISITS
	/* take_to_work(); it may take the slot then, as at any time */
	:: atomic {
		visits && MAY_VISIT(0) ->
		visits--;
		owner[0] = VISITED
	   };
	   atomic {
		assert(owner[0] == VISITED)
#ifndef MUTATION_SCHED_VISIT_STAYS
		;
		owner[0] = USER
#endif
	   }
	:: atomic {
		visits && MAY_VISIT(1) ->
		visits--;
		owner[1] = VISITED
	   };
	   atomic {
		assert(owner[1] == VISITED);
		owner[1] = USER
	   }
#endif
	:: over -> break
	od
#ifdef END
	;
	monitor_ended = 1
#endif
}
#endif

#ifdef OUTSIDE
/* A thread that is no task. */
active proctype Outside()
{
	byte other, at;
	byte left = OUTSIDE;

	tasks || over;
	do
	:: left == 0 || over -> break
#ifdef PARK
	:: atomic {
		left != 0 && !over ->
		left--;
		if
		:: state[1] != FINISHED -> other = 1
		:: state[2] != FINISHED -> other = 2
#if TASKS > 2
		:: state[3] != FINISHED -> other = 3
#endif
		:: tasks == 0 -> goto next
		fi;
		if
		:: state[other] & PARKED ->
			claim(other);
			unparked[other] = 1;
			goto ready
		:: else ->
			state[other] = state[other] | TOKEN;
			owed[other] = 1;
			other = 0;
			goto next
		fi
	   };
#endif
#ifdef SPAWN
	:: atomic {
		left != 0 && !over && !spawned ->
		left--;
		if
		:: home = 0
		:: home = 1
		fi;
		if
		:: ended == ALL_ENDED
		:: else -> ended = 0
		fi;
		spawned = 1;
		other = TASKS;
		state[other] = 0;
		tasks++;
		goto ready
	   };
#endif
ready:
	   atomic {
		visitors++;
		inbox_push(other, at);
		other = 0
	   };
	   if
	   :: atomic {
		asleep[at] ->
#ifdef END
		assert(!destroyed);
#endif
		asleep[at] = 0
	      };
	      atomic {
#ifdef END
		assert(!destroyed);
#endif
		event[at] = 1
	      }
	   :: atomic {
		!asleep[at] ->
#ifdef END
		assert(!destroyed)
#else
		skip
#endif
	      }
	   fi;
	   atomic {
#ifdef END
		assert(!destroyed);
#endif
		at = 0;
		visitors--
	   };
next:
	   skip
	od
}
#endif
