/* SPDX-License-Identifier: MIT */
/*
 * The rows of sched-bench, the same for tasks and for fibers. A runtime says how each is done:
 *
 *	template <class F> static void run(F &f);	// f() as a task, until all have ended
 *	template <class F> class Task;			// runs f(): Task(F &f), join()
 *	static void yield();
 *	class Mutex;					// lock(), unlock()
 *	class StrictMutex;				// one that hands over, if there is one
 *	static void give_way();				// see hand_over_row()
 *	static void settle();				// see yield_row()
 *	class Channel;					// Channel(capacity), send(long), receive()
 *	static Switches switches();			// of the kernel, see check.h
 *	static HandOffs hand_offs();			// see swap_counts.h
 *
 * All are on one CPU, and on one slot. Only one task runs at a time, so what they share needs no
 * atomics. A partner counts what it has done: a row whose counts don't agree is invalid.
 */
#ifndef BENCH_SCHED_ROWS_H
#define BENCH_SCHED_ROWS_H

#include <cstddef>
#include <string>
#include <type_traits>
#include <unistd.h>

#include <benchmark/benchmark.h>

#include "../check.h"
#include "../placement.h"
#include "../plan.h"
#include "../swap_counts.h"
#include "no_calls.h"

/* Turns before the measurement. They fill the largest channel, and wrap it round. */
static const long warm_turns = 200;

static inline void check_count(benchmark::State &state, const char *what, long found, long wanted)
{
	if (found != wanted)
		invalid(state, "%ld %s, wanted %ld", found, what, wanted);
}

/*
 * Measures turns of @per_turn iterations each. Returns how many there were, with the warm-up.
 * @count(): what is to be one more after each turn.
 */
template <class Turn, class Count = std::nullptr_t>
long measure(benchmark::State &state, long per_turn, Switches rule, HandOffs hand_offs, Turn turn,
	     Count count = nullptr)
{
	constexpr bool counts = !std::is_null_pointer_v<Count>;
	const long turns = (state.max_iterations + per_turn - 1) / per_turn;

	for (long i = warm_turns; i; i--)
		turn();

	SwapCounts swaps_before = read_swap_counts();
	Census before = take_census({ gettid() });
	long counted = 0;
	while (state.KeepRunningBatch(turns * per_turn)) {
		if constexpr (counts)
			counted -= count();
		for (long i = turns; i; i--)
			turn();
		if constexpr (counts)
			counted += count();
		else
			counted += turns;
	}
	Census after = take_census({ gettid() });
	SwapCounts swaps_after = read_swap_counts();

	check(state, Placement::ONE_CPU, rule, before, after);
	check_hand_offs(state, hand_offs, swaps_before, swaps_after);
	check_count(state, "turns of the partner", counted, turns);
	return warm_turns + turns;
}

template <class Runtime, class F>
using TaskOf = typename Runtime::template Task<F>;

/*
 * Two yield to each other. An iteration is one switch. Outside the measurement, where the main one
 * reads files, the partner may get its slot and yield alone. After settle(), it has it again.
 */
template <class Runtime>
void yield_row(benchmark::State &state)
{
	long answers = 0;
	bool stop = false;
	auto partner = [&] {
		while (!stop) {
			answers++;
			Runtime::yield();
		}
	};
	auto main = [&] {
		TaskOf<Runtime, decltype(partner)> task(partner);

		/* It has begun its first yield. */
		Runtime::yield();
		measure(
			state, 2, Runtime::switches(), Runtime::hand_offs(),
			[] { Runtime::yield(); },
			[&] {
				Runtime::settle();
				return answers;
			});
		stop = true;
		task.join();
	};
	Placed placed(Placement::ONE_CPU);

	Runtime::run(main);
}

/* An iteration is lock and unlock, and nobody else wants the mutex. */
template <class Runtime>
void mutex_row(benchmark::State &state)
{
	auto main = [&] {
		typename Runtime::Mutex mutex;
		NoCalls calls;

		while (state.KeepRunningBatch(state.max_iterations)) {
			calls.forbid();
			for (long i = state.max_iterations; i; i--) {
				mutex.lock();
				mutex.unlock();
			}
			calls.allow();
		}
		calls.check(state);
	};
	Placed placed(Placement::ONE_CPU);

	Runtime::run(main);
}

/*
 * Two want the same mutex: one has it, the other waits for it. An iteration is one change of hands.
 *
 * A mutex that hands over needs no more than lock and unlock. With one that is merely free after
 * unlock, a task that has unlocked it could lock it again at once. There give_way() lets the other
 * one run: after lock, to find the mutex taken and wait, and after unlock, to take it.
 */
template <class Runtime>
void hand_over_row(benchmark::State &state)
{
	typename Runtime::StrictMutex mutex;
	const void *owner = nullptr;
	long changes = 0;
	bool stop = false;
	const auto turn = [&](const void *me) {
		mutex.lock();
		changes += owner != me;
		owner = me;
		Runtime::give_way();
		mutex.unlock();
		Runtime::give_way();
	};
	auto partner = [&] {
		while (!stop)
			turn(&stop);
	};
	auto main = [&] {
		long turns;

		mutex.lock();
		TaskOf<Runtime, decltype(partner)> task(partner);
		/* It waits for the mutex. */
		Runtime::yield();
		mutex.unlock();
		turns = measure(state, 2, Runtime::switches(), Runtime::hand_offs(),
				[&] { turn(&mutex); });
		check_count(state, "changes of hands", changes, 2 * turns);
		stop = true;
		task.join();
	};
	Placed placed(Placement::ONE_CPU);

	Runtime::run(main);
}

/* An iteration is spawn, run and join of a task that does nothing. */
template <class Runtime>
void spawn_row(benchmark::State &state)
{
	long runs = 0;
	auto nothing = [&] {
		runs++;
	};
	auto main = [&] {
		long turns = measure(state, 1, Switches::REPORTED, HandOffs::SHOWN, [&] {
			TaskOf<Runtime, decltype(nothing)> task(nothing);

			task.join();
		});

		check_count(state, "runs", runs, turns);
	};
	Placed placed(Placement::ONE_CPU);

	Runtime::run(main);
}

/* An iteration is an item from one to the other: a send, a receive, and what switches that takes. */
template <class Runtime>
void channel_row(benchmark::State &state, std::size_t capacity)
{
	typename Runtime::Channel channel(capacity);
	const long end = -1;
	long received = 0, in_order = 0;
	auto partner = [&] {
		for (long item; (item = channel.receive()) != end; received++)
			in_order += item == received;
	};
	auto main = [&] {
		TaskOf<Runtime, decltype(partner)> task(partner);
		long item = 0, turns;

		turns = measure(state, 1, Switches::REPORTED, HandOffs::SHOWN,
				[&] { channel.send(item++); });
		channel.send(end);
		task.join();
		check_count(state, "items", received, turns);
		check_count(state, "items in order", in_order, turns);
	};
	Placed placed(Placement::ONE_CPU);

	Runtime::run(main);
}

template <class Runtime>
void add_rows(const std::string &prefix, const Plan &plan, long factor)
{
	/* A timer tick falls into some runs and not into others: many iterations of what is short. */
	const long calls_per_switch = 10;

	plan.add(prefix + "Yield/one_cpu", yield_row<Runtime>, factor);
	plan.add(prefix + "Mutex/one_cpu", mutex_row<Runtime>, calls_per_switch);
	plan.add(prefix + "HandOver/one_cpu", hand_over_row<Runtime>, factor);
	plan.add(prefix + "Spawn/one_cpu", spawn_row<Runtime>, factor);
	for (std::size_t capacity : { 0, 64 })
		plan.add(
			prefix + "Channel" + std::to_string(capacity) + "/one_cpu",
			[=](benchmark::State &state) { channel_row<Runtime>(state, capacity); },
			factor);
}

/* One function per runtime, which main() calls. */
void add_task_rows(const Plan &plan);
void add_fiber_rows(const Plan &plan);

#endif
