/* SPDX-License-Identifier: MIT */
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <benchmark/benchmark.h>
#include <switchto/switchto.h>

#include "context.h"
#include "plan.h"

/* The status by which test drivers know "this kernel can't". */
static const int exit_skip = 77;

static const char switches_option[] = "--switches=";

/*
 * Takes --switches=N out of @args. A count that is fixed is what -icount wants:
 * google-benchmark's minimum time would be half a virtual second, 500 million
 * instructions.
 */
static bool take_switches(std::vector<char *> &args, Plan &plan)
{
	const size_t length = strlen(switches_option);

	for (auto arg = args.begin(); arg != args.end();) {
		char *end;

		if (strncmp(*arg, switches_option, length)) {
			++arg;
			continue;
		}

		errno = 0;
		plan.switches = strtol(*arg + length, &end, 10);
		if (end == *arg + length || *end || errno || plan.switches < 2 ||
		    plan.switches > INT_MAX) {
			fprintf(stderr, "switchto-bench: --switches wants a number of switches, 2 or more, not '%s'\n",
				*arg + length);
			return false;
		}
		arg = args.erase(arg);
	}
	return true;
}

/* The library's choice, once and before any row: a refusal is not a result. */
static const char *choose_backend(int &status)
{
	const char *backend = switchto_backend();

	if (backend)
		return backend;

	const char *asked = getenv("SWITCHTO_BACKEND");

	status = errno == ENOSYS ? exit_skip : 1;
	fprintf(stderr, "switchto-bench: no backend (SWITCHTO_BACKEND is %s): %s%s\n",
		asked ? asked : "not set", strerror(errno),
		errno == ENOSYS ? "; swap needs the patched kernel" :
		errno == ENOTSUP ? "; it may be swap or wake-wait" : "");
	return nullptr;
}

static void help()
{
	puts("switchto-bench [--switches=N] [--benchmark_...]\n"
	     "  --switches=N   N switches per repetition instead of a minimum time\n"
	     "  other options are google-benchmark's; 7 repetitions, interleaved at random,\n"
	     "  unless --benchmark_repetitions, --benchmark_enable_random_interleaving say else:\n");
	benchmark::PrintDefaultHelp();
}

int main(int argc, char **argv)
{
	/* Our defaults first: of an option given twice the later one counts. */
	char repetitions[] = "--benchmark_repetitions=7";
	char interleaving[] = "--benchmark_enable_random_interleaving=true";
	std::vector<char *> args = { argv[0], repetitions, interleaving };
	Plan plan = { 0 };
	int status = 1;

	args.insert(args.end(), argv + 1, argv + argc);
	if (!take_switches(args, plan))
		return 1;
	argc = args.size();
	args.push_back(nullptr);
	benchmark::Initialize(&argc, args.data(), help);
	if (benchmark::ReportUnrecognizedArguments(argc, args.data()))
		return 1;

	const char *backend = choose_backend(status);
	if (!backend)
		return status;

	if (const char *wrong = add_context(backend)) {
		fprintf(stderr, "switchto-bench: %s\n", wrong);
		return 1;
	}

	add_futex_rows(plan);
	add_absl_mutex_rows(plan);
	add_switchto_rows(plan);
	add_futex_swap_rows(plan);
	add_pthread_cond_rows(plan);
	add_semaphore_rows(plan);
	add_fd_rows(plan);
	add_io_uring_rows(plan);
	add_floor_rows(plan);
	add_boost_context_rows(plan);
	add_share_rows(plan);

	return benchmark::RunSpecifiedBenchmarks() ? 0 : 1;
}
