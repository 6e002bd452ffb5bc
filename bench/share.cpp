/* SPDX-License-Identifier: MIT */
/*
 * The CPU share of a chain of threads that hand the CPU to each other, beside
 * threads that spin. One of the chain runs at a time, so the chain should get
 * the share of one thread of its weight: a hand-off gives no new claim. The run
 * times of all threads must add up to the time that has passed.
 */
#include <atomic>
#include <cstring>
#include <future>
#include <pthread.h>
#include <string>
#include <sys/resource.h>
#include <thread>
#include <time.h>
#include <vector>

#include <benchmark/benchmark.h>
#include <switchto/switchto.h>

#include "check.h"
#include "die.h"
#include "placement.h"
#include "plan.h"
#include "swap_counts.h"

namespace {

/* Many slices and many ticks of each thread; -icount takes 10 s for them. */
const double seconds = 2;

/* The scheduler's weights of the nice values in use. */
const double weight_nice0 = 1024, weight_nice5 = 335;

struct Shape {
	const char *name;
	int chain;
	int nice; /* of the chain; the hogs have 0 */
	int hogs;
};

const Shape shapes[] = {
	{ "pair", 2, 0, 0 },  { "pair", 2, 0, 1 },  { "pair", 2, 0, 3 },
	{ "ring8", 8, 0, 1 }, { "ring8", 8, 0, 3 }, { "pair_nice5", 2, 5, 1 },
};

double read_clock(clockid_t clock)
{
	timespec now;

	if (clock_gettime(clock, &now))
		die("clock_gettime");
	return now.tv_sec + now.tv_nsec / 1e9;
}

/* What @thread has run for since its creation. */
double cpu_time(pthread_t thread)
{
	clockid_t clock;

	if (int error = pthread_getcpuclockid(thread, &clock))
		die("pthread_getcpuclockid", error);
	return read_clock(clock);
}

/* A thread of the chain, in its own cache line to avoid false sharing. */
struct alignas(64) Member {
	pid_t tid;
	/* Written by the member only, read by the main thread any time. */
	std::atomic<long> switches{ 0 };
	bool placed;
	std::promise<void> entered;
	std::thread thread;
};

struct Sums {
	double chain, all; /* CPU time in seconds */
	double at;
	long switches;
	SwapCounts swaps;
};

class Contest {
public:
	Contest(const Shape &shape, const Placed &placed);

	void begin();
	Sums sum() const;
	Sums sum_at_once() const;
	/* -> did each thread of the chain stay on its CPU? */
	bool end();

private:
	void pass_on(int me);
	void spin() const;

	const Shape &shape_;
	const Placed &placed_;
	std::vector<Member> chain_;
	std::vector<std::thread> hogs_;
	std::promise<void> begin_;
	std::shared_future<void> begun_;
	std::atomic<bool> stop_{ false };
	int gone_ = 0; /* handed over with the turn */
};

Contest::Contest(const Shape &shape, const Placed &placed)
	: shape_(shape),
	  placed_(placed),
	  chain_(shape.chain),
	  begun_(begin_.get_future())
{
	for (int i = 0; i < shape.chain; i++) {
		chain_[i].thread = std::thread([this, i] { pass_on(i); });
		chain_[i].entered.get_future().wait();
	}
	for (int i = 0; i < shape.hogs; i++)
		hogs_.emplace_back([this] { spin(); });
}

void Contest::pass_on(int me)
{
	Member &self = chain_[me];
	const Member &next = chain_[(me + 1) % shape_.chain];

	self.placed = placed_.holds();
	if (setpriority(PRIO_PROCESS, 0, shape_.nice))
		die("setpriority");
	self.tid = switchto_self();
	if (self.tid < 0)
		die("switchto_self");
	self.entered.set_value();

	if (switchto_wait(nullptr) < 0)
		die("switchto_wait");
	while (!stop_.load(std::memory_order_relaxed)) {
		self.switches.store(self.switches.load(std::memory_order_relaxed) + 1,
				    std::memory_order_relaxed);
		if (switchto_switch(next.tid) < 0)
			die("switchto_switch");
	}

	/* The turn goes round once more, and each leaves with it. */
	self.placed = self.placed && placed_.holds();
	if (++gone_ < shape_.chain && switchto_resume(next.tid))
		die("switchto_resume");
}

void Contest::spin() const
{
	begun_.wait();
	while (!stop_.load(std::memory_order_relaxed))
		;
}

/* The hogs come to run when the main thread sleeps, and not before. */
void Contest::begin()
{
	begin_.set_value();
	if (switchto_resume(chain_[0].tid))
		die("switchto_resume");
}

Sums Contest::sum() const
{
	Sums sums = { 0, 0, 0, 0, {} };

	for (const Member &member : chain_) {
		sums.chain += cpu_time(const_cast<std::thread &>(member.thread).native_handle());
		sums.switches += member.switches.load(std::memory_order_relaxed);
	}
	sums.all = sums.chain + read_clock(CLOCK_THREAD_CPUTIME_ID);
	for (const std::thread &hog : hogs_)
		sums.all += cpu_time(const_cast<std::thread &>(hog).native_handle());
	sums.at = read_clock(CLOCK_MONOTONIC);
	return sums;
}

/* No other thread runs while main has the CPU. Again, if main lost it. */
Sums Contest::sum_at_once() const
{
	const SwapCounts swaps = read_swap_counts();
	double begun;
	Sums sums;

	do {
		begun = read_clock(CLOCK_MONOTONIC);
		sums = sum();
	} while (sums.at - begun > 0.001);
	sums.swaps = swaps;
	return sums;
}

bool Contest::end()
{
	bool placed = true;

	stop_.store(true, std::memory_order_relaxed);
	for (Member &member : chain_) {
		member.thread.join();
		placed = placed && member.placed;
	}
	for (std::thread &hog : hogs_)
		hog.join();
	return placed;
}

void sleep_for(double time)
{
	timespec left = { time_t(time), long((time - time_t(time)) * 1e9) };

	while (clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR)
		;
}

void share(benchmark::State &state, const Shape &shape)
{
	const double weight = shape.nice ? weight_nice5 : weight_nice0;
	const double expected = weight / (weight + shape.hogs * weight_nice0);

	Placed placed(Placement::ONE_CPU);
	Contest contest(shape, placed);
	Sums before, after;

	while (state.KeepRunning()) {
		contest.begin();
		before = contest.sum_at_once();
		sleep_for(seconds);
		after = contest.sum_at_once();
	}

	if (!contest.end() || !placed.holds())
		invalid(state, "a thread ran on a CPU that is not its own");

	const double wall = after.at - before.at;
	const long switches = after.switches - before.switches;
	const long hand_offs = handed_off(before.swaps, after.swaps);

	state.counters["share"] = 100 * (after.chain - before.chain) / wall;
	state.counters["expected"] = 100 * expected;
	state.counters["accounted"] = 100 * (after.all - before.all) / wall;
	state.counters["switches"] = switches;
	if (hand_offs >= 0)
		state.counters["handoff_per_switch"] = switches ? double(hand_offs) / switches : 0;
}

} // namespace

void add_share_rows(const Plan &plan)
{
	/* Without the hand-off each switch is a sleep, which the scheduler knows. */
	if (strcmp(switchto_backend(), "swap"))
		return;

	for (const Shape &shape : shapes) {
		plan.add_once(std::string("BM_Share/") + shape.name +
				      "/hogs:" + std::to_string(shape.hogs),
			      [&shape](benchmark::State &state) { share(state, shape); });
	}
}
