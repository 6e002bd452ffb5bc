/* SPDX-License-Identifier: MIT */
/* Two fibers in one thread: what leaving the kernel would give, and cost. */
#include "hand_off.h"

#ifdef HAVE_BOOST_CONTEXT
#include <boost/context/fiber.hpp>

static void boost_context_row(benchmark::State &state)
{
	const long rounds = (state.max_iterations + 1) / 2;
	Placed placed(Placement::ONE_CPU);
	bool stop = false;

	boost::context::fiber partner([&stop](boost::context::fiber &&from) {
		while (!stop)
			from = std::move(from).resume();
		return std::move(from);
	});

	partner = std::move(partner).resume();
	while (state.KeepRunningBatch(2 * rounds)) {
		for (long i = rounds; i; i--)
			partner = std::move(partner).resume();
	}

	stop = true;
	std::move(partner).resume();
}

void add_boost_context_rows(const Plan &plan)
{
	/* As for the calls in floor.cpp; a fiber is much cheaper still. */
	plan.add("BM_BoostContext", boost_context_row, 100);
}
#else
void add_boost_context_rows(const Plan &plan)
{
	add_missing_row("BM_BoostContext", plan, "built without Boost.Context");
}
#endif
