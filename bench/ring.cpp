/* SPDX-License-Identifier: MIT */
/*
 * One turn that goes round through many threads. Each switch is to the thread
 * that has waited longest: its stack, state and place in the kernel are as
 * cold as the other threads left them.
 */
#include <algorithm>
#include <cstring>
#include <string>

#include <benchmark/benchmark.h>
#include <switchto/switchto.h>

#include "check.h"
#include "crowd.h"
#include "die.h"
#include "placement.h"
#include "plan.h"
#include "swap_counts.h"

namespace {

/* What goes round with the turn. */
struct Turn {
	bool stop = false;
	long switches = 0;
	bool strayed = false; /* a thread was on a CPU that is not its own */

	void hand_to(pid_t next)
	{
		switches++;
		if (switchto_switch(next) < 0)
			die("switchto_switch");
	}
};

void ring(benchmark::State &state, long threads, HandOffs hand_offs)
{
	/* Whole rounds only, and a short ring more than once. */
	const long warm_up = (100 + threads - 1) / threads;
	const long rounds = (state.max_iterations + threads - 1) / threads;

	Placed placed(Placement::ONE_CPU);
	const pid_t self = switchto_self();
	Turn turn;

	if (self < 0)
		die("switchto_self");

	Crowd others(threads - 1, [&](const Crowd &crowd, long me) {
		const bool held = placed.holds();

		if (switchto_wait(nullptr) < 0)
			die("switchto_wait");

		const pid_t next = me + 1 < crowd.size() ? crowd.tid(me + 1) : self;

		while (!turn.stop)
			turn.hand_to(next);
		/* Each is resumed and joined before the next one is. */
		turn.strayed = turn.strayed || !held || !placed.holds();
	});

	if (!others.refused().empty()) {
		turn.stop = true; /* for those that could be made */
		return skip(state, others.refused().c_str());
	}

	for (long i = 0; i < warm_up; i++)
		turn.hand_to(others.tid(0));

	SwapCounts swaps_before = read_swap_counts();
	Census before = take_census({ self });
	while (state.KeepRunningBatch(rounds * threads)) {
		for (long i = rounds; i; i--)
			turn.hand_to(others.tid(0));
	}
	Census after = take_census({ self });
	SwapCounts swaps_after = read_swap_counts();

	turn.stop = true;
	others.dismiss();

	/*
	 * With wake + wait, a woken thread that preempts its waker may hand on
	 * before the waker sleeps: a switch more, so no fixed number.
	 */
	check(state, Placement::ONE_CPU,
	      hand_offs == HandOffs::CLAIMED ? Switches::ONE_PER_ITERATION : Switches::REPORTED,
	      before, after);
	check_hand_offs(state, hand_offs, swaps_before, swaps_after);
	if (turn.switches != (warm_up + rounds) * threads)
		invalid(state, "the turn was handed over %ld times, wanted %ld", turn.switches,
			(warm_up + rounds) * threads);
	if (turn.strayed || !placed.holds())
		invalid(state, "a thread ran on a CPU that is not its own");
}

} // namespace

void add_ring_rows(const Plan &plan)
{
	const HandOffs claim = strcmp(switchto_backend(), "swap") ? HandOffs::NOT_COUNTED :
								    HandOffs::CLAIMED;

	for (long threads : plan.rings) {
		plan.add_crowded(
			"BM_Ring/one_cpu/threads:" + std::to_string(threads),
			[=](benchmark::State &state) { ring(state, threads, claim); },
			plan.switches ? std::max(plan.switches, threads) : 0);
	}
}
