/* SPDX-License-Identifier: MIT */
/*
 * The word of a mark and the list of turns, libswitchto/src/sched/ (mark.h, turn.c, request.c,
 * sleep.h): which of several tasks that read from one descriptor sleeps in the word, which wait in
 * the list, and that none is left asleep while there is something to read.
 *
 * READERS tasks (2) read once, task 1 FIRST times (2), and for each read there is a write. A read of
 * task 1 may have a deadline, which passes at any time. An atomic sequence is one access to the word,
 * the list or the descriptor. Sleep and wake are taken for what sched.pml verifies: a task sleeps
 * while asleep[] is set. A wake may come late, and end the next sleep.
 *
 *	EDGE		the descriptor is polled edge-triggered from the start
 *	MUTATION_*	a fault, see mutations
 */
#ifndef READERS
#define READERS 2
#endif
#ifndef FIRST
#define FIRST 2
#endif
/* Writer has pid 0, the poller the last one. */
#define me _pid
#define BIT(number) (1 << ((number) - 1))

/* direction->word: a task, or one of these */
#define NOT_READY 0
#define IS_TASK(seen) (seen != NOT_READY && seen <= READERS)
#define READY (READERS + 1)
#define REPORTS 1 /* 8 in the code: then it is polled edge-triggered */
byte word = READY, reports; /* events since NOT_READY */
/*
 * The readers that find READY as it was when they looked. In the code, the word has the number of the
 * poll that had the event.
 */
byte same;
#ifdef MUTATION_TURN_SAME_EVENT
#define IS_SAME (word == READY && reports == was && sticky == was_sticky)
#else
#define IS_SAME (same & BIT(me))
#endif
#ifdef EDGE
bit sticky = 1;
bit edge = 1, kernel_edge = 1;
#else
bit sticky;
bit edge, kernel_edge; /* mark->edge, and what the kernel was told last */
bit edging; /* set_edge(), with the mark's lock */
#endif

/* direction->first, the oldest first */
byte list[READERS], in_list;
bit lock;

byte data; /* to be read: one at a time */
bit event; /* the kernel has one, edge-triggered */
bit asleep[READERS + 1];
bit fired[READERS + 1]; /* turn->waiter */

inline set_word(value)
{
	word = value;
	same = 0
}

inline set_not_ready()
{
	set_word(NOT_READY);
	reports = 0;
	sticky = 0
}

inline remove(task, i)
{
	i = 0;
	do
	:: list[i] == task -> break
	:: else -> i++
	od;
	do
	:: i + 1 < in_list ->
		list[i] = list[i + 1];
		i++
	:: else -> break
	od;
	in_list--;
	list[in_list] = 0;
	i = 0
}

active proctype Writer()
{
	byte left = READERS - 1 + FIRST;

	do
	:: atomic {
		left ->
		left--;
		data++;
		event = 1
	   }
	:: !left -> break
	od
}

active [READERS] proctype Reader()
{
	byte left = (me == 1 -> FIRST : 1), i;
#if defined(MUTATION_TURN_SAME_EVENT) || defined(MUTATION_TURN_WORD_FIRST)
	byte was;
#endif
	bit was_sticky, listed, was_listed, waited, timed, late, is_short;

look:
	atomic {
		left ->
		if
		:: me == 1 -> timed = 1
		:: skip
		fi;
look_now:
#ifdef MUTATION_TURN_SAME_EVENT
		was = reports;
#endif
		if
		:: word == READY ->
			same = same | BIT(me);
			was_sticky = sticky;
			goto call
		:: word != READY && late -> goto call
		:: IS_TASK(word) && word != me && !late -> goto turn_wait
		:: (word == NOT_READY || word == me) && !late -> goto wait_in_mark
		fi
	};

look_again:
	atomic {
		true -> goto look_now
	};

wait_in_mark:
	if
	:: atomic {
		in_list && !listed && !waited ->
		goto turn_wait
	}
	:: atomic {
		!(in_list && !listed && !waited) ->
		goto wait_once
	}
	fi;

	/* slot_wait_once() */
wait_once:
	asleep[me] = 1;
	atomic {
		if
		:: word == NOT_READY || word == me -> set_word(me)
		:: else ->
			/* EBUSY, or an event came */
			waited = waited || !IS_TASK(word);
			goto stay
		fi
	};
	if
	:: !asleep[me]
	:: atomic {
		timed && asleep[me] ->
		asleep[me] = 0;
		goto take_back
	}
	fi;
	waited = 1;
	if
	:: atomic {
		word == me ->
		/* It was woken for nothing. */
		goto wait_once
	}
	:: atomic {
		word != me ->
		goto look_now
	}
	fi;

stay:
	atomic {
		asleep[me] = 0;
		goto look_again
	};

take_back:
	atomic {
		waited = 1;
		if
		:: word == me ->
			set_not_ready();
			late = 1
		:: else
		fi;
		goto look_again
	};

	/* switchto_turn_wait() */
turn_wait:
	was_listed = 1;
#ifdef MUTATION_TURN_WORD_FIRST
	was = word;
#endif
	atomic {
		!lock ->
		lock = 1;
		fired[me] = 0;
		if
		:: !listed ->
			list[in_list] = me;
			in_list++;
			listed = 1
		:: else
		fi
	};
	atomic {
		lock = 0;
		if
#if defined(MUTATION_TURN_NO_LOOK)
		:: false
#elif defined(MUTATION_TURN_WORD_FIRST)
		:: !IS_TASK(was) && list[0] == me -> goto look_again
#else
		:: !IS_TASK(word) && list[0] == me -> goto look_again
#endif
		:: else
		fi
	};
	if
	:: atomic {
		fired[me] -> goto look_now
	}
	:: atomic {
		timed && !fired[me] ->
		late = 1;
		goto look_now
	}
	fi;

call:
	if
	:: atomic {
		data ->
		/* In order, but for those that came when the word was ready. */
		assert(!listed || late || list[0] == me);
		data--;
		if
		:: data == 0 -> is_short = 1
		:: skip
		fi;
		goto read_it
	}
	:: atomic {
		!data ->
		goto found_nothing
	}
	fi;

read_it:
#ifndef EDGE
	/* switchto_mark_calm(), after any number of short reads */
	if
	:: atomic {
		is_short && was_sticky && edge && !edging ->
		edging = 1;
		edge = 0
	   };
	   atomic {
		kernel_edge = 0;
		event = 0
	   };
	   atomic {
		edging = 0;
		was_sticky = 0
	   }
	:: true
	fi;
#endif
	atomic {
#ifndef EDGE
		if
#ifdef MUTATION_TURN_SHORT_STORE
		:: is_short && !was_sticky ->
#else
		:: is_short && !was_sticky && IS_SAME ->
#endif
			set_not_ready()
		:: else
		fi;
#endif
		is_short = 0;
		goto done
	};

found_nothing:
	atomic {
		if
		:: late -> goto done
		:: !late && IS_SAME ->
			set_not_ready()
		:: else
		fi;
		same = same & ~BIT(me);
		was_sticky = 0;
		goto look_again
	};

done:
	atomic {
		same = same & ~BIT(me);
		was_sticky = 0;
		if
#ifdef MUTATION_TURN_WAITED_SILENT
		:: was_listed -> goto turn_end
#else
		:: was_listed || (waited && in_list) -> goto turn_end
#endif
		:: else -> goto next
		fi
	};

	/* switchto_turn_end() */
turn_end:
	atomic {
		!lock ->
		if
		:: listed ->
			remove(me, i);
			listed = 0
		:: else
		fi;
#ifdef MUTATION_TURN_LATE_SILENT
		fired[list[0]] = fired[list[0]] || (in_list && !late);
#else
		fired[list[0]] = fired[list[0]] || in_list;
#endif
		goto next
	};

next:
	atomic {
		left--;
		waited = 0;
		was_listed = 0;
		timed = 0;
		late = 0;
		if
		:: left -> goto look
		:: else
		fi
	}
}

active proctype Poller()
{
	byte task;
	bit is_sticky;

end_poll:
	do
	:: atomic {
		(kernel_edge -> event : data) ->
		event = 0
	   };
	   is_sticky = edge;
	   /* mark_event() */
	   atomic {
		if
		:: IS_TASK(word) -> task = word
		:: word == NOT_READY
		:: word == READY -> reports = (reports < REPORTS -> reports + 1 : reports)
		fi;
		set_word(READY);
		sticky = sticky || is_sticky;
		is_sticky = 0;
		if
		:: task -> goto task_wake
#ifndef EDGE
		:: !task && reports >= REPORTS && !edge -> goto make_edge
#endif
		:: else -> goto end_poll
		fi
	   };
task_wake:
	   atomic {
		asleep[task] = 0;
		task = 0;
		goto end_poll
	   };
#ifndef EDGE
make_edge:
	   if
	   :: atomic {
		!edging && !edge ->
		edging = 1;
		edge = 1
	      };
	      /* renew() */
	      atomic {
		kernel_edge = 1;
		event = data != 0;
		edging = 0
	      }
	   :: !edging && edge
	   fi
#endif
	od
}
