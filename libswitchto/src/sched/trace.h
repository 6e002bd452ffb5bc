/* SPDX-License-Identifier: MIT */
/*
 * The trace: a mapped file of lanes, each a ring of events. A slot writes to the lane of its number;
 * names go to a lane of their own, so that many events do not drive them out; and threads without a
 * slot share one. docs/scheduler.md has the format.
 *
 * Without a trace a switch costs nothing but the test in a sleep: a slot that takes a trace puts
 * functions around its policy's. It does so itself, when it polls, so no other thread is in its queue.
 *
 * An event is written before others can see what it tells: a task is in the trace as ready before it is
 * in an inbox. So an event that a thread has not written yet, when the trace ends, is missed by nobody.
 * A thread may be late by any time, in a write to a trace that has ended: such a trace keeps its
 * addresses for ever, as memory that belongs to no file.
 */
#ifndef SWITCHTO_SCHED_TRACE_H
#define SWITCHTO_SCHED_TRACE_H

#include "types.h"

/* tools/switchto-trace has the same numbers. 0 is no event. */
enum trace_kind {
	TRACE_SPAWN = 1, /* argument: the function */
	TRACE_READY,	 /* by which task or TID; 0: an event that a poll found */
	TRACE_RUN,
	TRACE_SLEEP, /* on which object, or descriptor */
	TRACE_END,
	TRACE_BLOCK, /* in which system call + 1; 0: a region of the program */
	TRACE_UNBLOCK,
	TRACE_RETAKE, /* from which TID */
	TRACE_STEAL,  /* from which slot */
	TRACE_POLL,   /* for so many ns; NEVER: without a limit */
	TRACE_POLLED, /* so many events */
	TRACE_SLOT,   /* of this index; task: its scheduler; detail 1: it has taken the trace now */
	TRACE_TEXT,   /* 8 bytes of a name */
};

/* In the detail of TRACE_READY, above enum switchto_reason: the wait ended with an error. */
enum { TRACE_TIMED_OUT = 8, TRACE_CANCELLED = 16, TRACE_CLOSED = 24 };
/* In the detail of TRACE_TEXT, beside the number of the part. */
enum { TRACE_TASK = 0, TRACE_SCHED = 2, TRACE_POLICY = 4 };

struct trace_lane {
	_Atomic uint64_t *next;
	_Atomic uint64_t *places;
	uint32_t mask; /* of the number of a place */
	bool in_ns;    /* the CPU's counter is of no use */
};

struct trace;
extern _Atomic(struct trace *) switchto_trace;

/* May there be a trace? */
static inline bool traces(void)
{
	return unlikely(atomic_load_explicit(&switchto_trace, memory_order_relaxed) != NULL);
}

/* For calls that are not on the hot path, of any thread. @slot: the task's, or the one that is meant. */
void switchto_trace_event(const struct slot *slot, enum trace_kind kind, const void *task,
			  uint64_t argument);
/* @task, which is on its way into the inbox of @slot, is ready. */
void switchto_trace_pushed(const struct slot *slot, const struct switchto_task *task,
			   enum switchto_reason why);
/* Inside: @task sleeps for @on, on @object or one that @object, a waiter, belongs to. */
void switchto_trace_sleeps(const struct switchto_task *task, uint32_t on, const void *object);
/* @task has another name. */
void switchto_trace_name(const struct switchto_task *task);

/*
 * With slot->traced.is_fifo the policy is in line, too. The end of ready() then, of @task, which has no
 * deadline, when @me is inside, in the same slot: 0.
 */
int switchto_trace_woken(struct worker *me, struct switchto_task *task);
/* @task runs next in @slot: @task. */
struct switchto_task *switchto_trace_run(struct slot *slot, struct switchto_task *task);

/* Inside of @slot, or before it has an owner: takes a trace, or leaves one that has ended. */
void switchto_trace_look(struct slot *slot);
/* The same, and it is about to poll for @timeout. */
void switchto_trace_poll(struct slot *slot, nsec_t timeout);
void switchto_trace_polled(struct slot *slot, long events);
/*
 * Begins and ends that tasks go into the queue of @slot which the trace has as ready already. Inside, or
 * a visitor.
 */
static inline void switchto_trace_mute(struct slot *slot)
{
	void (*const other)(void *queue, struct switchto_entry *entry,
			    enum switchto_reason why) = slot->enqueue;

	if (unlikely(slot->lane)) {
		slot->enqueue = slot->traced.enqueue;
		slot->traced.enqueue = other;
	}
}
/* The policy's function of @slot, or one around it. Inside. */
void switchto_trace_set_pick(struct slot *slot, struct switchto_entry *(*step)(void *queue));

/* @sched is new, or a trace has begun or ended: its slots are to look. */
void switchto_trace_begin_slot(struct slot *slot);
void switchto_trace_begin_sched(struct switchto_sched *sched);
void switchto_trace_attend(struct switchto_sched *sched);
/* Names of @sched, its slots and tasks. */
void switchto_trace_describe(struct switchto_sched *sched);
/* Calls @fn with all schedulers that can run. */
void switchto_sched_each(void (*fn)(struct switchto_sched *sched));

/* SWITCHTO_TRACE, once. */
void switchto_trace_by_variable(void);
/* The monitor's, now and then: how long is a tick? */
void switchto_trace_tick(void);
/* In the child of a fork. */
void switchto_trace_forked(void);

#endif /* SWITCHTO_SCHED_TRACE_H */
