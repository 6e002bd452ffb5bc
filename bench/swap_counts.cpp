/* SPDX-License-Identifier: MIT */
#include "swap_counts.h"

#include <fstream>

#include "check.h"

static const char handoff[] = "handoff";

/* Now and then a tick's reschedule or a signal stops a hand-off. */
static const double claimed = 0.95;

SwapCounts read_swap_counts()
{
	std::ifstream file("/sys/kernel/debug/futex_swap");
	SwapCounts counts;
	std::string name;
	long count;

	while (file >> name >> count)
		counts[name] = count;
	return counts;
}

/* What @name has grown by. */
static long growth(const SwapCounts &before, const SwapCounts &after, const std::string &name)
{
	auto start = before.find(name), end = after.find(name);

	return start == before.end() || end == after.end() ? 0 : end->second - start->second;
}

long handed_off(const SwapCounts &before, const SwapCounts &after)
{
	return before.count(handoff) && after.count(handoff) ? growth(before, after, handoff) : -1;
}

/* The commonest reason why a swap did not hand off. */
static std::string main_reason(const SwapCounts &before, const SwapCounts &after)
{
	std::string reason = "none counted";
	long most = 0;

	for (const auto &[name, count] : after) {
		long grown = growth(before, after, name);

		if (name != handoff && grown > most) {
			most = grown;
			reason = name;
		}
	}
	return reason;
}

void check_hand_offs(benchmark::State &state, HandOffs hand_offs, const SwapCounts &before,
		     const SwapCounts &after)
{
	const long count = handed_off(before, after);

	if (hand_offs == HandOffs::NOT_COUNTED || count < 0)
		return;

	const double per_iteration = double(count) / state.iterations();

	state.counters["handoff_per_iter"] = per_iteration;
	if (hand_offs == HandOffs::CLAIMED && state.iterations() >= enough &&
	    per_iteration < claimed)
		invalid(state, "%.3f hand-offs per iteration, wanted 1 (fell back for: %s)",
			per_iteration, main_reason(before, after).c_str());
}
