/* SPDX-License-Identifier: MIT */
/*
 * A mark for each descriptor number, in one table for the process: descriptors travel between
 * schedulers. For each direction, it has a word and a list of turns.
 *
 * The word is one of these:
 *
 *	UNKNOWN		no slot polls the descriptor
 *	UNARMED		a slot polls it, but not for output: most sockets are never full
 *	NOT_READY	there is nothing, or an event will come if there is something
 *	an odd number	a system call is to say what there is; counts the events since NOT_READY, and
 *			has the number of the last one's poll: so each event makes another word
 *	a task		it waits for an event; VERIFIED: see switchto_mark_verify(). UNREAD: there may
 *			be something all the same, which is not what this task waits for
 *
 * Input of streams is polled level-triggered: a slot that polls finds the descriptor again as long as
 * it has something. So after a read that returned less than it asked for the mark is NOT_READY,
 * whatever ended that read. If nobody reads, it would be found again and again. So a mark that was
 * reported REPORTS times is edge-triggered until CALM short reads have come. One that is polled for
 * output, or was ready in vain IN_VAIN times, is edge-triggered for its lifetime. Then a short read says
 * nothing, which STICKY in the word says, and a task reads until EAGAIN. So it is from the start for all
 * but streams: of these, a short read mostly leaves more.
 *
 * Events change a word while a task makes its system call. So a task that has emptied the descriptor
 * sets NOT_READY only if the word is what it was before the call. What is edge-triggered has an event
 * after that change, if there is something: so a word that is older has changed by then.
 */
#ifndef SWITCHTO_SCHED_MARK_H
#define SWITCHTO_SCHED_MARK_H

#include "wake.h"

enum {
	UNKNOWN,
	UNARMED = 4,
	NOT_READY = 8,
	READY = 1,
	STICKY = 2,
	EVENT = 4,
	REPORTS = 8,
	CALM = 64,
	IN_VAIN = 64
};
/* Of a word that is READY: the polls, and below the rest. */
enum { POLL = 0x10000 };
enum { UNREAD = 2, VERIFIED = 4 };

static inline bool is_ready(uintptr_t word)
{
	return word & 1;
}

/*
 * A call that waits for its turn: until no other one is in the word, nor before it in the list. The
 * first of the list stays in it until its call is done.
 */
struct turn {
	struct waiter waiter;
	struct turn *next, *before;
	bool listed;
	bool verified;	  /* as VERIFIED of a task in the word */
	bool picky;	  /* what there is may be for others: PICKY of a request */
	atomic_int error; /* EBADF: the descriptor is gone; also set while it does not wait */
};

struct direction {
	_Atomic uintptr_t word;
	_Atomic(struct turn *) first; /* with the mark's lock; the last, too */
	struct turn *last;
};

/* With the mark's lock. */
static inline void append_turn(struct direction *direction, struct turn *turn)
{
	turn->next = NULL;
	turn->before = atomic_load(&direction->first) ? direction->last : NULL;
	if (turn->before)
		turn->before->next = turn;
	else
		atomic_store(&direction->first, turn);
	direction->last = turn;
}

/* The first one looks whether it can go on. With the mark's lock. */
static inline void wake_first(struct direction *direction)
{
	struct turn *first = atomic_load(&direction->first);

	if (first)
		switchto_waiter_fire(NULL, &first->waiter);
}

/*
 * May a read wait before it makes a call, if the slot knows that nothing is there? Only after another
 * read has succeeded or said EAGAIN: a read of a listening socket fails at once. And only of a stream:
 * whether a read of an eventfd fails depends on the size.
 */
enum { NEVER_FIRST, NOT_YET_FIRST, WAITS_FIRST };

struct mark {
	struct direction in, out;
	/* The one whose slot polls the descriptor. A task in a word is of this scheduler. */
	_Atomic(struct switchto_sched *) sched;
	/* With the lock: */
	struct slot *slot;
	pthread_mutex_t lock;
	int fd;
	_Atomic uint64_t closed; /* closes_now() when the number was last closed */
	atomic_uchar in_vain;	 /* how often it was ready, and the call said EAGAIN */
	atomic_bool edge;
	/*
	 * If it is edge-triggered for a while: how many short reads there were. 0: level-triggered, or
	 * edge-triggered for its lifetime.
	 */
	atomic_uchar calm;
	atomic_bool socket, terminal;
	atomic_uchar waits_first; /* NEVER_FIRST and so on */
	atomic_bool hung_up;	  /* there was such an event */
} __attribute__((aligned(128)));

static inline struct switchto_task *mark_task(uintptr_t word)
{
	if (is_ready(word) || word <= NOT_READY)
		return NULL;
	// NOLINTNEXTLINE(performance-no-int-to-ptr)
	return (struct switchto_task *)(word & ~(uintptr_t)(VERIFIED | UNREAD));
}

static inline bool is_unread(uintptr_t word)
{
	return mark_task(word) && word & UNREAD;
}

/* The marks are in a table of leaves. */
#define LEAVES 4096U
#define MARKS 1024U /* of a leaf */

extern _Atomic(struct mark *) switchto_marks[LEAVES];

/* NULL: no descriptor with a number near @fd was ever used. */
static inline struct mark *mark_of(unsigned int fd)
{
	struct mark *leaf;

	if (unlikely(fd >= MARKS * LEAVES))
		return NULL;
	leaf = atomic_load_explicit(&switchto_marks[fd / MARKS], memory_order_acquire);
	return likely(leaf) ? &leaf[fd % MARKS] : NULL;
}

/* How often any number was closed by switchto_mark_forget(), and never 0. */
extern _Atomic uint64_t switchto_mark_closes;

/* Before the first system call of a call that may go on with @fd after that: for closed_since(). */
static inline uint64_t closes_now(void)
{
	return atomic_load_explicit(&switchto_mark_closes, memory_order_acquire);
}

static inline bool is_closed_since(const struct mark *mark, uint64_t closes)
{
	return atomic_load_explicit(&mark->closed, memory_order_acquire) > closes;
}

/* Was @fd closed since closes_now() was @closes? To go on would be for another descriptor. */
static inline bool closed_since(int fd, uint64_t closes)
{
	const struct mark *mark = mark_of((unsigned int)fd);

	return mark && is_closed_since(mark, closes);
}

/*
 * Has @fd polled by a slot of the caller's scheduler, also for @output: 0 or an error number. EPERM: it
 * can't be polled. EBUSY: a task of another scheduler waits for the other direction.
 */
int switchto_mark_add(struct slot *slot, int fd, bool output);
/* Edge-triggered, for its lifetime. */
void switchto_mark_edge(struct mark *mark);
/* A call found nothing, and the word was STICKY, or ready IN_VAIN times. */
void switchto_mark_in_vain(struct mark *mark);
/* A read of what is STICKY was short. True: there is an event from now on if there is more. */
bool switchto_mark_calm(struct mark *mark);
/* Is @mark still one of the descriptor that has the number now? If not, it is UNKNOWN afterwards. */
bool switchto_mark_is_valid(struct mark *mark);
/*
 * Ends the waits for @fd with EBADF, and removes its mark. With @left, it is closed then: 0 or an error
 * number. *@left: a descriptor that is left to be closed, which may take long; or -1.
 */
int switchto_mark_forget(int fd, int *left);
/* @fd is new: what is known of its number is of another descriptor. */
void switchto_mark_new(int fd);
/*
 * Is @fd a socket of UNIX that was shut down for output, by either side? While it is full, no event
 * says so.
 */
bool switchto_mark_is_shut(int fd);
/* Of the monitor: verifies some marks in which tasks of @sched wait, or ends the wait of such a socket. */
void switchto_mark_verify(struct switchto_sched *sched);
/* @sched ends. */
void switchto_mark_leave(const struct switchto_sched *sched);
/* In the child of a fork. */
void switchto_mark_forked(void);

/*
 * There was an event, for which nobody waits: @word is what the event made of @mark. Inside of @slot.
 */
void switchto_mark_unawaited(struct slot *slot, struct mark *mark, uintptr_t word);
/* Adds all that @slot polls to @epoll. False: there is no room. */
bool switchto_mark_add_all(struct slot *slot, int epoll);

/* There was an event on @mark, inside of a slot. @event: READY, its poll, and perhaps STICKY. */
static ALWAYS_INLINE void mark_event(struct slot *inside, struct mark *mark,
				     struct direction *direction, uintptr_t event)
{
	_Atomic uintptr_t *word = &direction->word;
	uintptr_t before = atomic_load_explicit(word, memory_order_relaxed), after;
	struct switchto_task *task;

	do {
		task = mark_task(before);
		after = event;
		if (unlikely(!task)) {
			if (unlikely(before < NOT_READY && !is_ready(before))) {
				/* One that is not polled for output is not asked for it. */
				if (before == UNKNOWN)
					switchto_mark_unawaited(inside, mark, before);
				return;
			}
			if (is_ready(before))
				after |= (before + EVENT) % POLL;
		}
	} while (unlikely(!atomic_compare_exchange_weak(word, &before, after)));
	window();
	if (likely(task))
		task_wake(inside, task, WAITING, 0, SWITCHTO_IO);
	else
		switchto_mark_unawaited(inside, mark, after);
}

#endif /* SWITCHTO_SCHED_MARK_H */
