/* SPDX-License-Identifier: MIT */
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <sys/prctl.h>
#include <vector>

#include <benchmark/benchmark.h>

#include "latency.h"
#include "options.h"
#include "parked.h"
#include "plan.h"

/* TIDs are below this: PID_MAX_LIMIT, include/linux/threads.h. */
static const long most_threads = 1 << 22;

#ifndef PR_FUTEX_HASH
#define PR_FUTEX_HASH 78
#define PR_FUTEX_HASH_SET_SLOTS 1
#endif

/* Takes @option, which has no value, out of @args. */
static bool take_flag(std::vector<char *> &args, const char *option)
{
	bool found = false;

	for (auto arg = args.begin(); arg != args.end();) {
		bool same = !strcmp(*arg, option);

		found |= same;
		arg = same ? args.erase(arg) : arg + 1;
	}
	return found;
}

/*
 * -icount needs a fixed count of switches: google-benchmark's minimum time
 * would be half a virtual second, 500 million instructions.
 */
static bool take_plan(std::vector<char *> &args, Plan &plan)
{
	std::vector<long> switches, parked, buckets;

	if (!take_numbers(args, "--switches=", "switches", 2, INT_MAX, switches) ||
	    !take_numbers(args, "--parked=", "threads", 0, most_threads, parked) ||
	    !take_numbers(args, "--buckets=", "buckets", 2, most_threads, buckets) ||
	    !take_numbers(args, "--ring=", "threads", 2, most_threads, plan.rings))
		return false;

	if (!switches.empty())
		plan.switches = switches.back();
	if (!parked.empty())
		plan.parked = parked.back();
	if (!buckets.empty())
		plan.buckets = buckets.back();
	plan.percentiles = take_flag(args, "--percentiles");
	if (plan.percentiles && !plan.rings.empty()) {
		fprintf(stderr, "switchto-bench: --percentiles with --ring: wanted one of them\n");
		return false;
	}
	if (plan.percentiles && getenv("SWITCHTO_UNIT") &&
	    !strcmp(getenv("SWITCHTO_UNIT"), "insn")) {
		fprintf(stderr,
			"switchto-bench: --percentiles: wanted a clock that tells time, found instructions (-icount); run it without -icount\n");
		return false;
	}
	if (plan.parked && !plan.rings.empty()) {
		fprintf(stderr,
			"switchto-bench: --ring with --parked: a ring's threads are parked but for one; give each a run of its own\n");
		return false;
	}
	return true;
}

static void help()
{
	puts("switchto-bench [--switches=N] [--parked=N] [--buckets=N] [--ring=N]... [--percentiles]\n"
	     "    [--benchmark_...]\n"
	     "  --switches=N   N switches per repetition instead of a minimum time\n"
	     "  --parked=N     N threads parked beside all rows\n"
	     "  --buckets=N    N buckets, a power of two, in the hash of the process's futexes;\n"
	     "                 needs Linux 6.16\n"
	     "  --ring=N       add a row: a ring of N threads (repeatable)\n"
	     "  --percentiles  other rows: p50, p99, p99.9 and the maximum of a switch; each\n"
	     "                 once, 100000 switches unless --switches; not under -icount\n"
	     "  other options are google-benchmark's; 7 repetitions, interleaved at random,\n"
	     "  unless --benchmark_repetitions, --benchmark_enable_random_interleaving say else:\n");
	benchmark::PrintDefaultHelp();
}

static void add_all_rows(const Plan &plan)
{
	add_futex_rows(plan);
	add_absl_mutex_rows(plan);
	add_switchto_rows(plan);
	add_futex_swap_rows(plan);
	add_futex_shared_rows(plan);
	add_pthread_cond_rows(plan);
	add_semaphore_rows(plan);
	add_fd_rows(plan);
	add_io_uring_rows(plan);
	add_floor_rows(plan);
	add_boost_context_rows(plan);
	add_share_rows(plan);
	add_ring_rows(plan);
	add_process_rows(plan);
}

int main(int argc, char **argv)
{
	/* Our defaults first: of an option given twice the later one counts. */
	char repetitions[] = "--benchmark_repetitions=7";
	char interleaving[] = "--benchmark_enable_random_interleaving=true";
	char in_order[] = "--benchmark_enable_random_interleaving=false";
	std::vector<char *> args = { argv[0], repetitions, interleaving };
	Plan plan;
	int status;

	args.insert(args.end(), argv + 1, argv + argc);
	if (!take_plan(args, plan))
		return 1;
	if (plan.percentiles)
		args[2] = in_order;
	status = begin_benchmarks(args, help, plan.parked);
	if (status >= 0)
		return status;

	if (plan.percentiles) {
		add_switchto_latency_rows(plan);
		add_futex_latency_rows(plan);
	} else {
		add_all_rows(plan);
	}

	if (plan.buckets && prctl(PR_FUTEX_HASH, PR_FUTEX_HASH_SET_SLOTS, plan.buckets, 0L, 0L)) {
		fprintf(stderr,
			"switchto-bench: --buckets: wanted a power of two, and Linux 6.16 or newer; found: %s\n",
			strerror(errno));
		return 1;
	}
	Parked parked(plan.parked);
	if (!parked.refused().empty()) {
		fprintf(stderr, "switchto-bench: --parked: %s\n", parked.refused().c_str());
		return 1;
	}

	auto *reporter = plan.percentiles ? latency_table() : nullptr;
	return benchmark::RunSpecifiedBenchmarks(reporter) ? 0 : 1;
}
