/* SPDX-License-Identifier: MIT */
/*
 * The word of a mutex of the scheduling layer, libswitchto/src/sched/sync.c: who has it, who is
 * woken, and that nobody is left asleep.
 *
 * THREADS threads (3) lock and unlock a mutex ROUNDS times (2). An atomic sequence is one access to
 * the word, or to what another thread reads. Sleep and wake are taken for what sched.pml verifies: a
 * thread sleeps while asleep[] is set, and a wake clears it once. How long ago one was woken is left
 * open: it may be given the mutex each time.
 *
 *	STRICT		the mutex is given each time
 *	MUTATION_*	a fault, see mutations
 */
#ifndef THREADS
#define THREADS 3
#endif
#ifndef ROUNDS
#define ROUNDS 2
#endif
/* Watch has pid 0. */
#define me _pid

/* mutex->word */
bit locked, woken, on_its_way; /* GIVEN */
byte stack[THREADS], on_stack; /* the newest last */
/* mutex->waiters: of who has the mutex, the oldest first */
byte list[THREADS], in_list;

bit asleep[THREADS + 1];
bit given[THREADS + 1];
byte has; /* the thread that has the mutex; no step looks at it */

inline take()
{
	assert(!has);
	has = me
}

inline remove_first(i)
{
	i = 1;
	do
	:: i < in_list ->
		list[i - 1] = list[i];
		i++
	:: else -> break
	od;
	in_list--;
	list[in_list] = 0;
	i = 0
}

/* The oldest of the stack is its first. */
inline turn_round(i)
{
	do
	:: i < on_stack ->
		list[i] = stack[i];
		stack[i] = 0;
		i++
	:: else -> break
	od;
	in_list = on_stack;
	on_stack = 0;
	i = 0
}

/* All have ended: the word is what it was. Otherwise somebody sleeps for ever: an invalid end state. */
active proctype Watch()
{
	_nr_pr == 1 ->
	assert(!locked && !woken && !on_its_way && !on_stack && !in_list && !has)
}

active [THREADS] proctype Thread()
{
	byte rounds = ROUNDS, first, i;

	do
	:: rounds == 0 -> break
	:: rounds > 0 ->
		asleep[me] = 1;
		/* lock_or_push() */
		if
		:: atomic {
			!locked ->
			locked = 1;
			asleep[me] = 0;
			take();
			goto locked_it
		}
		:: atomic {
			locked ->
			stack[on_stack] = me;
			on_stack++
		}
		fi;
#ifndef STRICT
again:
#endif
		atomic {
			!asleep[me] ->
#ifdef STRICT
			assert(given[me]);
			given[me] = 0
		};
#else
			if
			:: given[me] ->
				given[me] = 0;
				goto locked_it
			:: else
			fi
		};
		/* lock_or_stay() */
#ifndef MUTATION_MUTEX_STAY_FIRST
		asleep[me] = 1;
#endif
		if
		:: atomic {
			!locked || on_its_way ->
			assert(in_list && list[0] == me && woken);
			locked = 1;
			woken = 0;
			asleep[me] = 0;
			if
			:: on_its_way ->
				assert(has == me)
#ifndef MUTATION_MUTEX_GIVEN_STAYS
				;
				on_its_way = 0
#endif
			:: else -> take()
			fi;
			remove_first(i);
			goto locked_it
		}
		:: atomic {
			locked && !on_its_way ->
#ifndef MUTATION_MUTEX_WOKEN_STAYS
			woken = 0
#endif
		}
		fi;
#ifdef MUTATION_MUTEX_STAY_FIRST
		asleep[me] = 1;
#endif
		goto again;
#endif
locked_it:
		assert(has == me && locked);
		rounds--;
		/* unlock_slowly() */
unlock:
		if
		:: atomic {
			in_list == 0 && on_stack ->
			turn_round(i);
			goto unlock
		}
		:: atomic {
#ifdef MUTATION_MUTEX_GIVEN_AWAKE
			in_list ->
#else
			in_list && !woken ->
#endif
			first = list[0];
			remove_first(i);
			has = first;
#ifndef MUTATION_MUTEX_GIVEN_LATE
			given[first] = 1
#endif
		}
#ifndef STRICT
		:: atomic {
			in_list && woken ->
			has = list[0];
			on_its_way = 1
		}
		:: atomic {
			in_list && !woken ->
			first = list[0];
			has = 0;
			locked = 0;
#ifndef MUTATION_MUTEX_WAKES_ALL
			woken = 1
#endif
		}
		:: atomic {
			in_list && woken ->
			has = 0;
			locked = 0
		}
#endif
		:: atomic {
			in_list == 0 && on_stack == 0 ->
			has = 0;
			locked = 0
		}
		fi;
		if
		:: atomic {
			first ->
			assert(asleep[first]);
			asleep[first] = 0;
#ifdef MUTATION_MUTEX_GIVEN_LATE
			i = first
#endif
		}
#ifdef MUTATION_MUTEX_GIVEN_LATE
		if
		:: has == i -> given[i] = 1
		:: else
		fi;
		i = 0
#endif
		:: !first
		fi;
		first = 0
	od
}
