// SPDX-License-Identifier: MIT
#include "pair.h"

#include <switchto/switchto.h>

const struct timespec no_time;

struct pair {
	struct worker w[2];
	unsigned int rounds;
};

static void pair_first(struct worker *w)
{
	struct pair *p = w->arg;

	for (unsigned int i = 0; i < p->rounds; i++)
		CHECK_EQ(&w->v, switchto_switch(p->w[1].tid), p->w[1].tid);
}

static void pair_second(struct worker *w)
{
	struct pair *p = w->arg;
	pid_t from = switchto_wait(NULL);

	for (unsigned int i = 1; i < p->rounds; i++) {
		CHECK_EQ(&w->v, from, p->w[0].tid);
		from = switchto_switch(from);
	}
	CHECK_EQ(&w->v, from, p->w[0].tid);
	CHECK_EQ(&w->v, switchto_resume(from), 0);
}

void pair_works(struct verdict *v, unsigned int rounds)
{
	struct pair p = { .rounds = rounds };

	worker_start(&p.w[1], pair_second, &p);
	worker_start(&p.w[0], pair_first, &p);
	workers_join(p.w, 2, v);
}

static void sink_body(struct worker *w)
{
	struct sink *s = w->arg;

	do {
		pid_t from = sleep_this_way(s->way, s->target);

		CHECK(&w->v, from > 0);
		atomic_store(&s->last, from);
		atomic_fetch_add(&s->returns, 1);
	} while (!atomic_load(&s->over));
}

void sink_start(struct sink *s)
{
	worker_start_parked(&s->w, sink_body, s);
}

unsigned int sink_stop(struct sink *s, struct verdict *v)
{
	unsigned int returns;

	/* What it was resumed for before must not end it: it parks first. */
	await_parked(s->w.tid);
	returns = atomic_load(&s->returns);
	atomic_store(&s->over, true);
	CHECK_EQ(v, switchto_resume(s->w.tid), 0);
	workers_join(&s->w, 1, v);
	CHECK_EQ(v, atomic_load(&s->returns), returns + 1);
	return returns;
}

static pid_t call_wait(pid_t target, const struct timespec *time)
{
	return switchto_wait(time);
}

static pid_t call_wait_until(pid_t target, const struct timespec *time)
{
	return switchto_wait_until(time);
}

const struct timed_call timed_calls[4] = {
	{ call_wait, false, false },
	{ call_wait_until, false, true },
	{ switchto_switch_timed, true, false },
	{ switchto_switch_until, true, true },
};

pid_t sleep_this_way(int way, pid_t target)
{
	struct timespec hour = { 3600, 0 };

	switch (way) {
	case WAIT:
		return switchto_wait(NULL);
	case SWITCH:
		return switchto_switch(target);
	}
	if (timed_calls[way - TIMED].absolute)
		hour = to_timespec(now_ns() + 3600 * NSEC_PER_SEC);
	return timed_calls[way - TIMED].call(target, &hour);
}

bool way_switches(int way)
{
	return way == SWITCH || (way >= TIMED && timed_calls[way - TIMED].switches);
}
