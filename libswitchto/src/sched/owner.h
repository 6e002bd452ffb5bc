/* SPDX-License-Identifier: MIT */
/*
 * Who owns a slot: the word slot->owner says it. Only these functions change it.
 *
 * Its state: outside, a task of the owner runs (USER), or is in a blocking region (BLOCKING). Then
 * anybody may take the slot away, as the monitor does. Inside the scheduler (INSIDE) nobody may. In
 * VISITED, somebody else looks into the queue for a moment, and the owner waits if it wants to enter.
 *
 * The epoch in the other bits changes with every owner, and a worker knows its own. So a worker that
 * has lost its slot finds out when it next enters, whoever has the slot then: the word it expects is
 * not there, and comes back after 2^30 owners only. A slot that nobody has been given is INSIDE.
 *
 *	function	from		to		who may call it
 *	try_enter	USER		INSIDE		the owner
 *	leave		INSIDE		USER		the owner
 *	pass		INSIDE		INSIDE, next	the owner, to another worker
 *	take		USER, BLOCKING	INSIDE, next	any thread; then it grants the slot
 *	grant, begin	INSIDE		INSIDE		that thread, or the beginner of the slot
 *	visit		USER		VISITED		any thread of the scheduler
 *	end_visit	VISITED		USER		the same
 *	block		USER		BLOCKING	the owner
 *	unblock		BLOCKING	USER		the owner
 *
 * Nothing is lost when a slot is taken: the task goes on outside, and when it enters, it puts itself
 * into the slot's inbox and waits for its turn. Then it is INSIDE, and block or unblock goes on from
 * there. A change from USER or BLOCKING compares and exchanges. One from INSIDE or VISITED is a store:
 * only one thread can make it.
 */
#ifndef SWITCHTO_SCHED_OWNER_H
#define SWITCHTO_SCHED_OWNER_H

#include "inbox.h"

/* A number, and a multiple of OWNER_STATES, as a sum: compilers don't know that an OR is one. */
enum { USER, INSIDE, BLOCKING, VISITED, OWNER_STATES };

static inline uint32_t owner_word(uint32_t epoch, uint32_t state)
{
	return epoch + state;
}

static inline uint32_t epoch_of(uint32_t owner)
{
	return owner & ~(uint32_t)(OWNER_STATES - 1);
}

static inline uint32_t state_of(uint32_t owner)
{
	return owner & (OWNER_STATES - 1);
}

/*
 * Inside, @me sleeps on purpose: nobody may take the slot, so the kernel is not to tell that it has
 * blocked. Only the kernel reads this, in the same thread.
 */
static inline void sleeps_on_purpose(struct worker *me, uint32_t yes)
{
	atomic_store_explicit(&me->keeps, yes, memory_order_relaxed);
}

/* The rest of enter_task(), when the word was @owner. */
bool switchto_owner_enter_late(struct worker *me, uint32_t owner);

/* False: @me does not own its slot, or is not in USER. */
static inline bool try_enter(struct worker *me)
{
	uint32_t owner = owner_word(me->epoch, USER);

	if (!atomic_compare_exchange_strong_explicit(&me->slot->owner, &owner,
						     owner_word(me->epoch, INSIDE),
						     memory_order_acquire, memory_order_relaxed))
		return false;
	sleeps_on_purpose(me, 1);
	return true;
}

/*
 * The same of one that has a task: it waits until it has its slot again. False: it is inside already,
 * or in a blocking region.
 */
static inline bool enter_task(struct worker *me)
{
	uint32_t owner = owner_word(me->epoch, USER);

	window();
	if (unlikely(!atomic_compare_exchange_strong_explicit(&me->slot->owner, &owner,
							      owner_word(me->epoch, INSIDE),
							      memory_order_acquire,
							      memory_order_relaxed)) &&
	    !switchto_owner_enter_late(me, owner))
		return false;
	sleeps_on_purpose(me, 1);
	return true;
}

/* What is wrong if it returned false: an error number. */
static inline int not_entered(const struct worker *me)
{
	return me->in_region ? EINVAL : EDEADLK;
}

/* The same of the calling task: its worker, or NULL with errno EPERM, EINVAL or EDEADLK. */
static inline struct worker *enter(void)
{
	struct worker *me = switchto_current;

	if (unlikely(!me || !me->task)) {
		errno = EPERM;
		return NULL;
	}
	if (unlikely(!enter_task(me))) {
		errno = not_entered(me);
		return NULL;
	}
	return me;
}

static inline void leave(struct worker *me)
{
	sleeps_on_purpose(me, 0);
	atomic_store_explicit(&me->slot->owner, owner_word(me->epoch, USER), memory_order_release);
}

/* Outside: has @me, a task, still its slot? */
static inline bool owns_slot(struct worker *me)
{
	return atomic_load_explicit(&me->slot->owner, memory_order_relaxed) ==
	       owner_word(me->epoch, USER);
}

static inline bool is_inside(struct worker *me)
{
	return atomic_load(&me->slot->owner) == owner_word(me->epoch, INSIDE);
}

/*
 * @next, which waits for a slot, has @slot from now on. @epoch: the owner's, + OWNER_STATES. The TID of
 * @next: it is to be switched to.
 */
static inline pid_t pass(struct slot *slot, uint32_t epoch, struct worker *next)
{
	const pid_t tid = next->tid;

	/* A release: whoever sees another epoch sees what the owner did inside, leave_others(). */
	atomic_store_explicit(&slot->owner, owner_word(epoch, INSIDE), memory_order_release);
	atomic_store_explicit(&slot->tid, tid, memory_order_relaxed);
	next->epoch = epoch;
	window();
	atomic_store_explicit(&next->granted, slot, memory_order_release);
	window();
	return tid;
}

/* False: the word is not @owner any more. */
static inline bool take(struct slot *slot, uint32_t owner)
{
	window();
	return atomic_compare_exchange_strong(&slot->owner, &owner,
					      owner_word(epoch_of(owner) + OWNER_STATES, INSIDE));
}

/* False: the owner is not in USER, or the word is not @owner any more. */
static inline bool visit(struct slot *slot, uint32_t owner)
{
	return state_of(owner) == USER &&
	       atomic_compare_exchange_strong(&slot->owner, &owner,
					      owner_word(epoch_of(owner), VISITED));
}

static inline void end_visit(struct slot *slot, uint32_t owner)
{
	window();
	atomic_store(&slot->owner, owner);
}

/* Ends the program in a child that a handler has forked, and that has returned into @sched. */
void switchto_owner_check_fork(const struct switchto_sched *sched);
/* Makes @worker, which waits for a slot, the owner of @slot, and wakes it. */
void switchto_owner_grant(struct worker *worker, struct slot *slot);
/* The caller has taken @slot, whose word was @owner, from thread @tid, and grants it next. */
void switchto_owner_taken(struct slot *slot, uint32_t owner, pid_t tid);
/* @me, the caller, owns @slot from now on. */
void switchto_owner_begin(struct worker *me, struct slot *slot);
/* @me has no slot: waits until it is given one. False if it is to end. */
bool switchto_owner_await(struct worker *me);
/*
 * @me, a dispatcher, was told that thread @tid has blocked: takes the slot from it. False: the thread
 * has passed the slot on meanwhile, or is inside, or alone. Then the slot has no loan until a dispatcher
 * runs again, and the monitor sees who blocks. The same holds, unknown to the layer, after a switch to
 * a thread that was not asleep yet: the loan stays with the thread that switched.
 */
bool switchto_owner_reclaim(struct worker *me, pid_t tid);
/* Waits for its slot, which was taken: inside afterwards. */
void switchto_owner_regain(struct worker *me);

/* False: the slot had been taken, and @me has waited for it. */
bool switchto_owner_block(struct worker *me);
bool switchto_owner_unblock(struct worker *me);

#endif /* SWITCHTO_SCHED_OWNER_H */
