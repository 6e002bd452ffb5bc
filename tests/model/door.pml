/* SPDX-License-Identifier: MIT */
/*
 * The protocol of libswitchto/src/door/door.c, for spin: two callers and a server, each of which
 * may die at any step, or a deadline may pass. A step is one access to the shared memory, or what
 * the kernel does under the lock of a bucket.
 *
 * Promised (assertions, and no invalid end state):
 *
 *  - a call that returns has the answer to this call, and it was served once;
 *  - a call that was taken back is not served;
 *  - a call of a caller that lives returns: the server answers or dies;
 *  - the place of a caller that died can be taken.
 *
 * With -DSERVER_DIES the server dies at any step, and has a second life, with -DSAME_TID under the
 * same TID. With -DCALLER_DIES caller 0 dies at any step, and another caller takes its place.
 * -DTIMED: a call may have a deadline, which passes at any time. Not here: the order of calls (tickets), which changes only whom the
 * server chooses; signals, which end a sleep as a stray wake-up does; a hostile side; memory
 * orders, which are x86's.
 */

/* Of each life of caller 0. The other one makes one call. */
#ifndef CALLS
#define CALLS 1
#endif
#define LAST(first) (me == 0 -> first + CALLS : first + 1)

#define IDLE 0
#define POSTED 1
#define TAKEN 2
#define DONE 3

/* The word, by the TID of the server (1, 2) that it names. */
#define WAITS(tid) (tid)
#define ANSWERED(tid) ((tid) + 4)
#define DEAD_WORD 8
#define IS_WAITING(w) ((w) == 1 || (w) == 2)

#define DEAD 8		/* in `server` */
#define ANSWER 16	/* is added to a number */

#ifdef MUTATION_DOOR_ANSWER_BARE
#define ANSWERED_WORD(tid) 0
#else
#define ANSWERED_WORD(tid) ANSWERED(tid)
#endif

byte server;
bit pending[2];
byte stage[2];
byte word[2];
byte message[2];

bit queued[2];		/* a caller sleeps on its word */
bit server_queued;	/* the server sleeps on `pending` */

bit kill_caller, kill_server;

/* By the number of a call. No step looks at these. */
bit served[9];
bit back[9];

inline take_back(ok) {
	d_step {
		if
		:: stage[me] == POSTED ->
			stage[me] = IDLE;
			back[number] = posted;
			ok = true
		:: else -> ok = false
		fi
	}
}

/* FUTEX_WAIT on the own word while it is @value; may end early if the call has a deadline. */
inline sleep(value) {
	d_step {
		if
		:: word[me] == value -> queued[me] = true
		:: else
		fi
	};
	if
	:: !queued[me] -> expired = false
#ifdef TIMED
	:: timed -> d_step { queued[me] = false; expired = true }
#endif
	fi
}

/* settle(). ok: the place is free for a call. */
inline settle() {
	do
	:: true ->
#ifdef CALLER_DIES
		/* Without a death or a siglongjmp() the call is never there to be taken back. */
		take_back(ok);
		if
		:: ok -> break
		:: else
		fi;
#endif
		w = word[me];
		if
		:: IS_WAITING(w) && server == w ->
			sleep(w);
#ifdef TIMED
			if
			:: expired -> atomic { ok = false; break }
			:: else
			fi
#endif
		:: else ->
			d_step { stage[me] = IDLE; ok = true };
			break
		fi
	od
}

inline returns_answer() {
	d_step {
		assert(message[me] == number + ANSWER && served[number])
	};
	stage[me] = IDLE
}

/* switchto_door_call() and call_again() */
inline call() {
	d_step { s = server; ok = (s != 0 && s != DEAD) };
#if !defined(MUTATION_DOOR_NO_SETTLE) && !defined(MUTATION_DOOR_NO_SETTLE_DEATH) && (CALLS > 1 || defined(CALLER_DIES))
	if
	:: ok && stage[me] != IDLE -> settle()
	:: else
	fi;
#endif
	if
	:: !ok
	:: else ->
		message[me] = number;
		word[me] = WAITS(s);
		d_step { stage[me] = POSTED; posted = true };
		pending[me] = true;
		d_step { server_queued = false };
		do
		:: word[me] == ANSWERED_WORD(s) -> returns_answer(); break
#ifdef SERVER_DIES
		:: word[me] == DEAD_WORD ->
			if
			:: stage[me] == DONE -> returns_answer()
			:: else -> stage[me] = IDLE
			fi;
			break
#endif
		:: word[me] == WAITS(s) ->
#if defined(SERVER_DIES) && !defined(MUTATION_DOOR_NO_RECHECK)
			if
			:: server != s ->
				take_back(ok);
				if
				:: ok -> break
				:: else
				fi
			:: else
			fi;
#endif
			sleep(WAITS(s));
#ifdef TIMED
			if
			:: expired ->
				take_back(ok);
				if
				:: ok -> break
				:: else
				fi;
				if
				:: word[me] == WAITS(s) -> break
				:: else
				fi
			:: else
			fi
#else
			skip
#endif
		od
	fi
}

inline calls(first) {
	number = first;
	do
	:: number < LAST(first) ->
#ifdef TIMED
		if
		:: timed = false
		:: timed = true
		fi;
#endif
		call();
		atomic { number++; s = 0; w = 0; ok = false; expired = false; posted = false }
	:: else -> break
	od
}

proctype Caller(byte me; byte first) {
	byte number, s, w;
	bit ok, timed, expired, posted, lived;

#ifndef CALLER_DIES
	calls(first)
#else
begin:
	{
		calls(first)
	} unless {
		me == 0 && kill_caller && !lived
	};
	if
	:: me == 0 && kill_caller && !lived ->
		/* The kernel: its owner word says so. Then somebody else takes the place. */
		d_step { queued[me] = false; posted = false; timed = false; lived = true };
		s = stage[me];
		do
		:: s == TAKEN || s == DONE ->
			w = word[me];
			if
			:: !(IS_WAITING(w) && server == w) -> break
			:: else -> s = stage[me]
			fi
		:: else -> break
		od;
		first = first + CALLS;
		goto begin
	:: else
	fi
#endif
}

/* What the kernel does for a server that died, and switchto_door_close() for one that leaves. */
inline mark(place, tid) {
	d_step {
		if
		:: word[place] == WAITS(tid) || word[place] == ANSWERED(tid) ->
			word[place] = DEAD_WORD;
			queued[place] = false
		:: else
		fi
	}
}

inline mark_server(tid) {
	d_step {
		if
		:: server == tid -> server = DEAD
		:: else
		fi
	}
}

/* take_call(). ok: there was one. */
inline take_call(place) {
	ok = false;
#ifndef MUTATION_DOOR_CLEAR_LATE
	pending[place] = false;
#endif
	if
	:: word[place] == WAITS(tid) ->
#ifdef MUTATION_DOOR_TAKE_SPLIT
		if
		:: stage[place] == POSTED -> stage[place] = TAKEN; ok = true
		:: else
		fi
#else
		d_step {
			if
			:: stage[place] == POSTED -> stage[place] = TAKEN; ok = true
			:: else
			fi
		}
#endif
	:: else
	fi;
#ifdef MUTATION_DOOR_CLEAR_LATE
	pending[place] = false;
#endif
	if
	:: ok ->
		d_step {
			got = message[place];
			assert(got != 0 && got < ANSWER);
			assert(!served[got] && !back[got]);
			served[got] = true
		}
	:: else
	fi
}

/* put_answer(), and the wake half of FUTEX_SWAP. */
inline put_answer(place) {
	message[place] = got + ANSWER;
#ifdef MUTATION_DOOR_WORD_FIRST
	word[place] = ANSWERED_WORD(tid);
	stage[place] = DONE;
#else
	stage[place] = DONE;
	word[place] = ANSWERED_WORD(tid);
#endif
	d_step { queued[place] = false }
}

inline serve(place) {
	take_call(place);
	if
	:: ok -> put_answer(place); d_step { got = 0; ok = false }
	:: else
	fi
}

inline life() {
	server = tid;
	do
	:: pending[0] -> serve(0)
	:: pending[1] -> serve(1)
	:: d_step { !pending[0] && !pending[1] -> server_queued = true };
end_wait:	!server_queued
	od
}

active proctype Server() {
	byte tid = 1, got;
	bit ok, lived;

#ifndef SERVER_DIES
	life()
#else
begin:
	{
		life()
	} unless {
		kill_server && !lived
	};
	d_step { server_queued = false; lived = true };
#ifdef MUTATION_DOOR_WALK_ORDER
	mark(0, tid);
	mark(1, tid);
	mark_server(tid);
#else
	mark_server(tid);
	mark(1, tid);
	mark(0, tid);
#endif
#ifndef SAME_TID
	tid = 2;
#endif
	goto begin
#endif
}

#if defined(SERVER_DIES) || defined(CALLER_DIES)
active proctype Killer() {
#ifdef CALLER_DIES
	kill_caller = true
#else
	kill_server = true
#endif
}
#endif

init {
	atomic {
		run Caller(0, 1);
		run Caller(1, 5)
	}
}
