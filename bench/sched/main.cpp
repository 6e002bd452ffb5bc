/* SPDX-License-Identifier: MIT */
/*
 * sched-bench: what the calls of the scheduling layer cost, beside Boost.Fiber's. The program
 * goroutines.go has the same rows for Go.
 */
#include <climits>
#include <cstdio>
#include <vector>

#include <benchmark/benchmark.h>

#include "../options.h"
#include "../plan.h"
#include "rows.h"

static void help()
{
	puts("sched-bench [--switches=N] [--benchmark_...]\n"
	     "  --switches=N   N iterations per repetition instead of a minimum time\n"
	     "  other options are google-benchmark's");
	benchmark::PrintDefaultHelp();
}

int main(int argc, char **argv)
{
	std::vector<char *> args(argv, argv + argc);
	std::vector<long> switches;
	Plan plan;
	int status;

	if (!take_numbers(args, "--switches=", "switches", 2, INT_MAX, switches))
		return 1;
	if (!switches.empty())
		plan.switches = switches.back();
	status = begin_benchmarks(args, help, plan.parked);
	if (status >= 0)
		return status;

	add_task_rows(plan);
	add_fiber_rows(plan);
	return benchmark::RunSpecifiedBenchmarks() ? 0 : 1;
}
