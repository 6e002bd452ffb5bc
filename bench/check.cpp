/* SPDX-License-Identifier: MIT */
#include "check.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <dirent.h>
#include <fstream>
#include <string>

#include "die.h"

/*
 * Time slices that end and other processes' turns add a switch now and then,
 * and so does a wake-up that preempts the waker. A mechanism that doesn't
 * switch, or that switches twice, is off by far more.
 */
static const double tolerance = 0.05;

/* The sum of the lines of @path that begin with one of the two; -1: none. */
static long sum_of(const std::string &path, const char *first, const char *second)
{
	std::ifstream file(path);
	std::string line;
	long sum = -1;

	while (std::getline(file, line)) {
		if (line.rfind(first, 0) && (!second || line.rfind(second, 0)))
			continue;
		sum = (sum < 0 ? 0 : sum) + atol(line.c_str() + line.find(':') + 1);
	}
	return sum;
}

Census take_census()
{
	static const char tasks[] = "/proc/self/task";
	Census census;
	DIR *dir = opendir(tasks);

	if (!dir)
		die(tasks);

	while (const dirent *entry = readdir(dir)) {
		if (entry->d_name[0] == '.')
			continue;

		std::string task = std::string(tasks) + "/" + entry->d_name;
		long switches = sum_of(task + "/status", "voluntary_ctxt_switches",
				       "nonvoluntary_ctxt_switches");
		long migrations = sum_of(task + "/sched", "se.nr_migrations", nullptr);

		/* A thread that ended in between. */
		if (switches < 0)
			continue;
		census[atoi(entry->d_name)] = { switches, migrations };
	}
	closedir(dir);

	return census;
}

/*
 * Of the threads that were there from beginning to end. The partner of the row
 * before has been joined, and may be seen on its last steps even so.
 */
static Counts difference(const Census &before, const Census &after)
{
	Counts sum = { 0, 0 };

	for (const auto &[tid, end] : after) {
		auto start = before.find(tid);

		if (start == before.end())
			continue;
		sum.switches += end.switches - start->second.switches;
		if (end.migrations < 0 || start->second.migrations < 0)
			sum.migrations = -1;
		else if (sum.migrations >= 0)
			sum.migrations += end.migrations - start->second.migrations;
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

void check(benchmark::State &state, Placement placement, Switches rule,
	   const Census &before, const Census &after)
{
	const Counts counted = difference(before, after);
	const double per_iteration = double(counted.switches) / state.iterations();

	state.counters["csw_per_iter"] = per_iteration;
	if (counted.migrations >= 0)
		state.counters["migrations"] = counted.migrations;

	if (placement != Placement::ONE_CPU)
		return;

	if (counted.migrations > 0)
		invalid(state, "%ld migrations between CPUs, wanted none", counted.migrations);
	else if (rule == Switches::ONE_PER_ITERATION && state.iterations() >= enough &&
		 (per_iteration < 1 - tolerance || per_iteration > 1 + tolerance))
		invalid(state, "%.3f context switches per iteration, wanted 1", per_iteration);
}
