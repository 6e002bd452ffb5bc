/* SPDX-License-Identifier: MIT */
#ifndef BENCH_OPTIONS_H
#define BENCH_OPTIONS_H

#include <vector>

/*
 * Takes @option, as "--switches=", with a number of @what out of @args. false
 * if one is not a number from @least to @most.
 */
bool take_numbers(std::vector<char *> &args, const char *option, const char *what, long least,
		  long most, std::vector<long> &numbers);

/*
 * Gives @args to google-benchmark, and adds the context of the results, see context.h. The library
 * chooses its backend before any row: an error is not a result. -1, or what main() is to return.
 */
int begin_benchmarks(std::vector<char *> &args, void (*help)(), long parked);

#endif
