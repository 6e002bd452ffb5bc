/* SPDX-License-Identifier: MIT */
/*
 * How long each switch takes, not only the median. A ping-pong stamps the time
 * before each hand_off(). The other thread makes the next stamp: in between are
 * one switch, one way, and one stamp.
 */
#ifndef BENCH_LATENCY_H
#define BENCH_LATENCY_H

#include <string>

#include "hand_off.h"

/* Both threads call it, in turn: the links let only one of them run. */
void stamp();

/* Forgets all, and the first @ignored intervals to come. */
void begin_stamps(long ignored);

/* Adds the counters p50, p99, p99.9 and max, in ns. */
void report_stamps(benchmark::State &state);

template <class Link>
struct Stamped : Link {
	void hand_off(Side me)
	{
		stamp();
		Link::hand_off(me);
	}
};

template <class Link>
void add_latency_row(const std::string &name, const Plan &plan, Placement placement,
		     HandOffs hand_offs)
{
	const long enough_for_tails = 100000;

	plan.add_crowded(
		    name,
		    [=](benchmark::State &state) {
			    /* Between the warm-up and the first switch that counts is the census. */
			    begin_stamps(2 * warm_up);
			    ping_pong<Stamped<Link>>(state, placement, hand_offs);
			    report_stamps(state);
		    },
		    plan.switches ? plan.switches : enough_for_tails)
		->Repetitions(1);
}

template <class Link>
void add_latency_rows(const std::string &name, const Plan &plan,
		      HandOffs one_cpu = HandOffs::NOT_COUNTED)
{
	add_latency_row<Link>(name + "/free", plan, Placement::FREE, HandOffs::NOT_COUNTED);
	add_latency_row<Link>(name + "/one_cpu", plan, Placement::ONE_CPU, one_cpu);
}

/* Instead of the other rows: those of this kind, and what prints them. */
void add_switchto_latency_rows(const Plan &plan);
void add_futex_latency_rows(const Plan &plan);
benchmark::BenchmarkReporter *latency_table();

#endif
