/* SPDX-License-Identifier: MIT */
/*
 * A row says "one iteration is one switch". The kernel counts switches too. Its
 * count goes into the results beside the time. Where the two must agree and
 * don't, the row is invalid and says so.
 */
#ifndef BENCH_CHECK_H
#define BENCH_CHECK_H

#include <initializer_list>
#include <map>
#include <sys/types.h>

#include <benchmark/benchmark.h>

#include "placement.h"

/*
 * What the kernel has counted so far. The previous row's partner has been
 * joined, but may still add its last steps.
 */
struct Census {
	long switches;			  /* the process's, voluntary and involuntary */
	std::map<pid_t, long> migrations; /* by TID; -1: this kernel doesn't tell */
};

/*
 * Only of the row's own @threads: a search through all threads of the process
 * can take longer than the row, when others are parked.
 */
Census take_census(std::initializer_list<pid_t> threads);

/* The same, of the calling thread and of @process, which has one thread. */
Census take_census_with(pid_t process);

/* What the number of context switches says about a row. */
enum class Switches {
	ONE_PER_ITERATION,
	REPORTED, /* spins, or stays in user space: no fixed number */
};

/* Fewer iterations than this are google-benchmark feeling its way. */
static const long enough = 1000;

/* The row shows this text instead of a figure. */
void skip(benchmark::State &state, const char *reason);
void invalid(benchmark::State &state, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/*
 * Adds the counters csw_per_iter and migrations; makes the row invalid on
 * ONE_CPU if a thread migrated, or if there was not one switch per iteration.
 * Free threads that find their answer already there don't sleep for it, so
 * with FREE the number is only reported.
 */
void check(benchmark::State &state, Placement placement, Switches rule, const Census &before,
	   const Census &after);

#endif
