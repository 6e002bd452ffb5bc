/* SPDX-License-Identifier: MIT */
/* The library: switch, and its two halves as two calls. */
#include <cstring>
#include <string>

#include <switchto/switchto.h>

#include "die.h"
#include "hand_off.h"
#include "latency.h"

namespace {

struct Library {
	static constexpr Switches rule = Switches::ONE_PER_ITERATION;

	pid_t tids[2];

	/* main() has chosen the backend, or has ended. */
	static const char *unavailable() { return nullptr; }

	void enter(Side me)
	{
		tids[me] = switchto_self();
		if (tids[me] < 0)
			die("switchto_self");
	}

	void post(Side to)
	{
		if (switchto_resume(tids[to]))
			die("switchto_resume");
	}

	void wait(Side)
	{
		if (switchto_wait(nullptr) < 0)
			die("switchto_wait");
	}
};

struct SwitchTo : Library {
	void hand_off(Side me)
	{
		if (switchto_switch(tids[other(me)]) < 0)
			die("switchto_switch");
	}
};

/* The library keeps the two on one CPU. On the patched kernel FUTEX_SWAP does. */
struct SwitchTogether : SwitchTo {
	static const char *unavailable()
	{
		return strcmp(switchto_backend(), "swap") ? nullptr :
							    "the backend is swap: the same as free";
	}

	void enter(Side me)
	{
		SwitchTo::enter(me);
		if (switchto_place(SWITCHTO_TOGETHER) < 0)
			die("switchto_place");
	}

	/* The next row is another's. */
	~SwitchTogether() { switchto_place(SWITCHTO_FREE); }
};

struct SwitchResume : Library {
	void hand_off(Side me)
	{
		post(other(me));
		wait(me);
	}
};

bool swap_backend()
{
	return !strcmp(switchto_backend(), "swap");
}

/* BM_SwitchTo on one CPU once more, on @On's terms, made anew for each run. */
template <class On, class... Args>
void add_row_on_terms(const std::string &variant, const Plan &plan, HandOffs hand_offs,
		      Args... args)
{
	plan.add("BM_SwitchTo/one_cpu/" + variant, [=](benchmark::State &state) {
		if (!swap_backend())
			return skip(state, "the backend is not swap: nothing to hand off");

		On terms(args...);
		ping_pong<SwitchTo>(state, Placement::ONE_CPU, hand_offs, &terms);
	});
}

HandOffs claim()
{
	return swap_backend() ? HandOffs::CLAIMED : HandOffs::NOT_COUNTED;
}

} // namespace

void add_switchto_latency_rows(const Plan &plan)
{
	add_latency_rows<SwitchTo>("BM_StampedSwitchTo", plan, claim());
	add_latency_row<SwitchTogether>("BM_StampedSwitchTo/together", plan, Placement::TOGETHER,
					HandOffs::NOT_COUNTED);
}

void add_switchto_rows(const Plan &plan)
{
	add_hand_off_rows<SwitchTo>("BM_SwitchTo", plan, claim());
	plan.add("BM_SwitchTo/together", [](benchmark::State &state) {
		ping_pong<SwitchTogether>(state, Placement::TOGETHER);
	});
	/* Nested groups and equal weights are handed off; the others are not. */
	add_row_on_terms<OneGroup>("depth:4", plan, HandOffs::CLAIMED, 4);
	add_row_on_terms<TwoGroups>("groups:2", plan, HandOffs::SHOWN);
	add_row_on_terms<Nice>("nice:5", plan, HandOffs::CLAIMED, 5, 5);
	add_row_on_terms<Nice>("nice:0,5", plan, HandOffs::SHOWN, 0, 5);
	add_hand_off_rows<SwitchResume>("BM_SwitchResume", plan);
}
