/* SPDX-License-Identifier: MIT */
#include "check.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <sys/resource.h>

#include "die.h"

/*
 * Time slices that end and other processes' turns add a switch now and then,
 * and so does a wake-up that preempts the waker. A mechanism that doesn't
 * switch, or that switches twice, is off by far more.
 */
static const double tolerance = 0.05;

/* What follows the colon in the line of @path that begins with @key. -1: there is none. */
static long number_in(const std::string &path, const char *key)
{
	std::ifstream file(path);
	std::string line;

	while (std::getline(file, line)) {
		if (!line.rfind(key, 0))
			return atol(line.c_str() + line.find(':') + 1);
	}
	return -1;
}

/* -1: it ended, or this kernel doesn't tell. */
static long migrations_of(pid_t thread)
{
	return number_in("/proc/self/task/" + std::to_string(thread) + "/sched",
			 "se.nr_migrations");
}

Census take_census(std::initializer_list<pid_t> threads)
{
	Census census;
	rusage usage;

	for (pid_t thread : threads)
		census.migrations[thread] = migrations_of(thread);
	if (getrusage(RUSAGE_SELF, &usage))
		die("getrusage");
	census.switches = usage.ru_nvcsw + usage.ru_nivcsw;

	return census;
}

Census take_census_with(pid_t process)
{
	const std::string folder = "/proc/" + std::to_string(process);
	Census census = take_census({ gettid() });

	census.migrations[process] = number_in(folder + "/sched", "se.nr_migrations");
	census.switches += number_in(folder + "/status", "voluntary_ctxt_switches") +
			   number_in(folder + "/status", "nonvoluntary_ctxt_switches");
	return census;
}

/* -1: unknown for one of them. */
static long migrations_between(const Census &before, const Census &after)
{
	long sum = 0;

	for (const auto &[thread, end] : after.migrations) {
		long start = before.migrations.at(thread);

		if (start < 0 || end < 0)
			return -1;
		sum += end - start;
	}
	return sum;
}

void skip(benchmark::State &state, const char *reason)
{
	state.SkipWithError((std::string("skipped: ") + reason).c_str());
}

void invalid(benchmark::State &state, const char *format, ...)
{
	char reason[200];
	va_list args;

	va_start(args, format);
	vsnprintf(reason, sizeof(reason), format, args);
	va_end(args);
	state.SkipWithError((std::string("invalid: ") + reason).c_str());
}

void check(benchmark::State &state, Placement placement, Switches rule, const Census &before,
	   const Census &after)
{
	const long migrations = migrations_between(before, after);
	const double per_iteration = double(after.switches - before.switches) / state.iterations();

	state.counters["csw_per_iter"] = per_iteration;
	if (migrations >= 0)
		state.counters["migrations"] = migrations;

	if (placement != Placement::ONE_CPU)
		return;

	if (migrations > 0)
		invalid(state, "%ld migrations between CPUs, wanted none", migrations);
	else if (rule == Switches::ONE_PER_ITERATION && state.iterations() >= enough &&
		 (per_iteration < 1 - tolerance || per_iteration > 1 + tolerance))
		invalid(state, "%.3f context switches per iteration, wanted 1", per_iteration);
}
