/* SPDX-License-Identifier: MIT */
/*
 * The lower bounds: a switch that the scheduler is merely asked for, a system
 * call that does nothing, a wake that finds nobody.
 */
#include <atomic>
#include <future>
#include <sched.h>
#include <thread>
#include <unistd.h>

#include "die.h"
#include "futex_call.h"
#include "hand_off.h"

namespace {

/*
 * A yield need not switch: the scheduler may find that the caller is still the
 * one to run. So the threads count how often the turn really changed. One
 * iteration is one change.
 */
class Turns {
public:
	void yield(Side me)
	{
		if (last_.load(std::memory_order_relaxed) != me) {
			last_.store(me, std::memory_order_relaxed);
			changes_.store(changes() + 1, std::memory_order_relaxed);
		}
		sched_yield();
	}

	long changes() const { return changes_.load(std::memory_order_relaxed); }

private:
	std::atomic<Side> last_{ MAIN };
	std::atomic<long> changes_{ 0 };
};

void sched_yield_row(benchmark::State &state)
{
	const long warm_up = 100;
	Placed placed(Placement::ONE_CPU);
	std::atomic<bool> stop{ false };
	Turns turns;
	std::promise<pid_t> entered;
	long yields = 0;

	std::thread partner([&] {
		entered.set_value(gettid());
		while (!stop.load(std::memory_order_relaxed))
			turns.yield(PARTNER);
	});

	const pid_t self = gettid(), partner_tid = entered.get_future().get();
	while (turns.changes() < warm_up)
		turns.yield(MAIN);

	Census before = take_census({ self, partner_tid });
	while (state.KeepRunningBatch(state.max_iterations)) {
		long end = turns.changes() + state.max_iterations;

		for (; turns.changes() < end; yields++)
			turns.yield(MAIN);
	}
	Census after = take_census({ self, partner_tid });

	stop = true;
	partner.join();

	/* 0.5: the main thread yields, the partner yields, that is two switches. */
	state.counters["main_yields_per_iter"] = double(yields) / state.iterations();
	check(state, Placement::ONE_CPU, Switches::ONE_PER_ITERATION, before, after);
}

template <class Call>
void call_row(benchmark::State &state, Call call)
{
	Placed placed(Placement::ONE_CPU);

	while (state.KeepRunningBatch(state.max_iterations)) {
		for (long i = state.max_iterations; i; i--)
			call();
	}
}

void null_syscall_row(benchmark::State &state)
{
	call_row(state, [] { getppid(); });
}

void futex_wake_none_row(benchmark::State &state)
{
	Word word;

	call_row(state, [&word] {
		if (futex(word, FUTEX_WAKE, 1, nullptr) != 0)
			die("FUTEX_WAKE with nobody waiting");
	});
}

} // namespace

void add_floor_rows(const Plan &plan)
{
	/*
	 * A timer tick falls into some runs and not into others. With ten times
	 * the iterations it weighs as little on a call as it does on a switch.
	 */
	const long calls_per_switch = 10;

	plan.add("BM_SchedYield/one_cpu", sched_yield_row);
	plan.add("BM_FutexWakeNone", futex_wake_none_row, calls_per_switch);
	plan.add("BM_NullSyscall", null_syscall_row, calls_per_switch);
}
