/* SPDX-License-Identifier: MIT */
/*
 * Places between two atomic steps, where another thread can come in between. In the
 * libraries that are installed they are nothing. The tests build them with
 * SWITCHTO_DELAY_POINTS, and a hook that stays there for a while, so that others do
 * come in between (tests/torture/torture.c, tests/sched/windows.c).
 */
#ifndef SWITCHTO_DELAY_H
#define SWITCHTO_DELAY_H

#define SWITCHTO_DELAY_POINTS_LIST(X)                                                \
	X(SEEN)		 /* a target's word has been read, no resume given yet */    \
	X(GIVEN)	 /* the resume is given, one's own word not looked at */     \
	X(SLEEP)	 /* one's own word is WAITING, nothing sleeps yet */         \
	X(WAKE)		 /* a target was WAITING and is not woken yet */             \
	X(WOKEN)	 /* the sleep is over, its reason is not looked at */        \
	X(TAKE)		 /* there is a resume in one's own word, not taken yet */    \
	X(GIVE_UP)	 /* a timeout or signal is to end the wait, not yet has */   \
	X(END_FORGOTTEN) /* a thread ends, and its TLS is cleared already */         \
	X(END_EARLY)	 /* its place for early resumes is open, its word stays */   \
	X(BEGIN_LEAF)	 /* a part of the table is mapped, not in its place yet */   \
	X(BEGIN_ASKED)	 /* a new thread has looked for an early resume */           \
	X(BEGIN_SET)	 /* its TLS is set, its word is not published yet */         \
	X(BEGIN_WORD)	 /* the word is published, early resumes are not closed */   \
	X(BEGIN_CLOSED)	 /* an early resume was there: whose is it? */               \
	X(BEGIN_EARLY)	 /* it is for this thread, but not in its word yet */        \
	X(EARLY_LIVES)	 /* an unregistered target lives: which thread is it? */     \
	X(EARLY_ASKED)	 /* its identity is known, its early resume not seen */      \
	X(EARLY_SEEN)	 /* its early resume has been seen, not replaced yet */      \
	X(EARLY_CLOSED)	 /* a resume goes to its word by now */                      \
	X(EARLY_WORD)	 /* its word has been read: still the same thread? */        \
	X(DOOR_MESSAGE)	 /* a caller has written its message, the call not yet */    \
	X(DOOR_POSTED)	 /* a call is posted, its bit is not set */                  \
	X(DOOR_RUNG)	 /* the bit is set, nobody is woken */                       \
	X(DOOR_BACK)	 /* a caller's sleep is over, its reason is not looked at */ \
	X(DOOR_LATE)	 /* a call's time is over, it is to be withdrawn */          \
	X(DOOR_SEEN)	 /* a server has seen a bit, and not cleared it */           \
	X(DOOR_CLEARED)	 /* the bit is cleared, the call is not taken */             \
	X(DOOR_TAKEN)	 /* a call is taken, its message not copied */               \
	X(DOOR_ANSWER)	 /* an answer is written, its call not marked */             \
	X(DOOR_ANSWERED) /* the call is marked, its caller is not woken */           \
	X(DOOR_CLAIM)	 /* a place is chosen, not taken yet */                      \
	X(DOOR_SERVE)	 /* a server is ready, its TID not in the door yet */        \
	X(DOOR_CLOSE)	 /* a server has left, its callers are not woken */          \
	X(SCHED)	 /* window(): the scheduling layer's have no names */

#ifdef SWITCHTO_DELAY_POINTS
#define SWITCHTO_DELAY_NAME(name) SWITCHTO_DELAY_##name,
enum switchto_delay { SWITCHTO_DELAY_POINTS_LIST(SWITCHTO_DELAY_NAME) SWITCHTO_DELAYS };
#undef SWITCHTO_DELAY_NAME

/* The test's. Async-signal-safe, leaves errno alone. */
void switchto_delay_point(enum switchto_delay where);

#define delay_point(name) switchto_delay_point(SWITCHTO_DELAY_##name)
#else
#define delay_point(name) ((void)0)
#endif

#endif /* SWITCHTO_DELAY_H */
