/* SPDX-License-Identifier: MIT */
/*
 * The ping-pong that all hand-off rows share: two threads of which one runs
 * while the other waits. A mechanism ("link") says how it is done:
 *
 *	static const char *unavailable();	// nullptr, or why not here
 *	static constexpr Switches rule;		// see check.h
 *	void enter(Side me);			// before this thread's first call
 *	void post(Side to);			// give the turn away, go on
 *	void wait(Side me);			// until one has the turn
 *	void hand_off(Side me);			// both
 *
 * The loops around hand_off() are part of the figure, so they hold a counter
 * and a flag and nothing else, the same for every row.
 */
#ifndef BENCH_HAND_OFF_H
#define BENCH_HAND_OFF_H

#include <future>
#include <string>
#include <thread>
#include <unistd.h>

#include <benchmark/benchmark.h>

#include "check.h"
#include "placement.h"
#include "plan.h"
#include "swap_counts.h"
#include "terms.h"

/* Hand-offs of each thread before the measurement, to warm up stacks, pages and caches. */
static const long warm_up = 50;

/* @terms: nullptr, those that the process came with. */
template <class Link>
void ping_pong(benchmark::State &state, Placement placement,
	       HandOffs hand_offs = HandOffs::NOT_COUNTED, Terms *terms = nullptr)
{
	/* Whoever asks for an odd number of switches gets one more. */
	const long rounds = (state.max_iterations + 1) / 2;

	if (const char *reason = Link::unavailable())
		return skip(state, reason);
	if (terms && terms->refused())
		return skip(state, terms->refused());
	if (placement != Placement::ONE_CPU && allowed_cpus() < 2)
		return skip(state, "one CPU only, the same as one_cpu");

	Placed placed(placement);
	Link link;
	bool stop = false; /* handed over with the turn, as is all that follows */
	bool partner_placed = false;
	long answers = 0;
	std::promise<pid_t> entered;

	std::thread partner([&] {
		bool held = placed.holds();
		long n = 0;

		if (terms)
			terms->enter(PARTNER);
		link.enter(PARTNER);
		entered.set_value(gettid());
		link.wait(PARTNER);
		while (!stop) {
			link.hand_off(PARTNER);
			n++;
		}
		answers = n;
		partner_placed = held && placed.holds();
	});

	if (terms)
		terms->enter(MAIN);
	link.enter(MAIN);
	const pid_t self = gettid(), partner_tid = entered.get_future().get();
	for (long i = 0; i < warm_up; i++)
		link.hand_off(MAIN);

	SwapCounts swaps_before = read_swap_counts();
	Census before = take_census({ self, partner_tid });
	while (state.KeepRunningBatch(2 * rounds)) {
		for (long i = rounds; i; i--)
			link.hand_off(MAIN);
	}
	Census after = take_census({ self, partner_tid });
	SwapCounts swaps_after = read_swap_counts();

	/* The partner waits, or is about to: this turn is its last. */
	stop = true;
	link.post(PARTNER);
	partner.join();

	check(state, placement, Link::rule, before, after);
	check_hand_offs(state, hand_offs, swaps_before, swaps_after);
	if (terms && terms->refused())
		invalid(state, "%s", terms->refused());
	if (answers != warm_up + rounds)
		invalid(state, "%ld answers to %ld hand-offs", answers, warm_up + rounds);
	if (!partner_placed || !placed.holds())
		invalid(state, "a thread ran on a CPU that is not its own");
}

template <class Link>
void add_hand_off_rows(const std::string &name, const Plan &plan,
		       HandOffs one_cpu = HandOffs::NOT_COUNTED)
{
	plan.add(name + "/free",
		 [](benchmark::State &state) { ping_pong<Link>(state, Placement::FREE); });
	plan.add(name + "/one_cpu", [one_cpu](benchmark::State &state) {
		ping_pong<Link>(state, Placement::ONE_CPU, one_cpu);
	});
}

/* A mechanism that this build lacks: its rows are there, and say so. */
static inline void add_missing_row(const std::string &name, const Plan &plan, const char *reason)
{
	plan.add(name, [reason](benchmark::State &state) { skip(state, reason); });
}

static inline void add_missing_hand_off_rows(const std::string &name, const Plan &plan,
					     const char *reason)
{
	add_missing_row(name + "/free", plan, reason);
	add_missing_row(name + "/one_cpu", plan, reason);
}

#endif
