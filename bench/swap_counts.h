/* SPDX-License-Identifier: MIT */
/*
 * The patched kernel counts what became of each FUTEX_SWAP: handed off, or the
 * reason why it was wake and schedule() instead. A row that claims the
 * hand-off proves it.
 */
#ifndef BENCH_SWAP_COUNTS_H
#define BENCH_SWAP_COUNTS_H

#include <map>
#include <string>

#include <benchmark/benchmark.h>

/* Of the whole machine, by the kernel's names; empty: not readable. */
using SwapCounts = std::map<std::string, long>;

SwapCounts read_swap_counts();

/* How many were handed off in between, -1: not known. */
long handed_off(const SwapCounts &before, const SwapCounts &after);

enum class HandOffs {
	NOT_COUNTED, /* does without FUTEX_SWAP */
	CLAIMED,     /* each iteration is one, or the row is invalid */
	SHOWN,	     /* made to fall back, and says how often it didn't */
};

/* Adds the counter handoff_per_iter, where it is known. */
void check_hand_offs(benchmark::State &state, HandOffs hand_offs, const SwapCounts &before,
		     const SwapCounts &after);

#endif
