/* SPDX-License-Identifier: MIT */
#ifndef PAIR_H
#define PAIR_H

#include "support.h"

extern const struct timespec no_time;

/* Two new threads switch to each other @rounds times each. Does the library work here? */
void pair_works(struct verdict *v, unsigned int rounds);

/* A thread that waits, over and over, and counts what ends its waits. */
struct sink {
	struct worker w;
	int way; /* see sleep_this_way() */
	pid_t target;
	_Atomic unsigned int returns;
	_Atomic pid_t last;
	atomic_bool over;
};

/* Returns when it is parked. */
void sink_start(struct sink *s);

/* Ends it, with one more resume, and joins it. Its @returns without that last one. */
unsigned int sink_stop(struct sink *s, struct verdict *v);

/* The calls that take a time. Those that do not switch ignore the target. */
struct timed_call {
	pid_t (*call)(pid_t target, const struct timespec *time);
	bool switches;
	bool absolute;
};

extern const struct timed_call timed_calls[4];

#define FOR_EACH_TIMED_CALL(c) \
	for (const struct timed_call *c = timed_calls; c < timed_calls + 4; c++)

/* Every way to sleep: the two calls without a time, then the timed ones in their order. */
enum { WAIT, SWITCH, TIMED, WAYS = TIMED + 4 };

/* Those that take a time are given an hour. */
pid_t sleep_this_way(int way, pid_t target);
bool way_switches(int way);

#endif /* PAIR_H */
