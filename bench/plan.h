/* SPDX-License-Identifier: MIT */
#ifndef BENCH_PLAN_H
#define BENCH_PLAN_H

#include <string>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

/* What the command line asks for. */
struct Plan {
	long switches = 0; /* 0: google-benchmark finds a number for each row */
	long parked = 0;
	long buckets = 0; /* 0: as many as the kernel chooses */
	std::vector<long> rings;
	bool percentiles = false;

	/* One iteration is one switch, one way, or one call. */
	template <class Row>
	void add(const std::string &name, Row &&row, long factor = 1) const
	{
		auto *added = add_crowded(name, std::forward<Row>(row), switches * factor);

		if (!parked)
			added->MeasureProcessCPUTime();
	}

	/*
	 * For a row among many threads. Runs @iterations of it, if not 0. The
	 * kernel reads a process's CPU clock by asking all its threads, and
	 * google-benchmark does so within the time that it measures. So CPU time
	 * is the main thread's here.
	 */
	template <class Row>
	benchmark::internal::Benchmark *add_crowded(const std::string &name, Row &&row,
						    long iterations) const
	{
		auto *added = benchmark::RegisterBenchmark(name.c_str(), std::forward<Row>(row));

		added->UseRealTime();
		if (iterations)
			added->Iterations(iterations);
		return added;
	}

	/* One iteration is seconds long, and says all: no repetitions. */
	template <class Row>
	void add_once(const std::string &name, Row &&row) const
	{
		benchmark::RegisterBenchmark(name.c_str(), std::forward<Row>(row))
			->UseRealTime()
			->Iterations(1)
			->Repetitions(1);
	}
};

/* One function per file of rows; main() calls them in the table's order. */
void add_futex_rows(const Plan &plan);
void add_absl_mutex_rows(const Plan &plan);
void add_switchto_rows(const Plan &plan);
void add_futex_swap_rows(const Plan &plan);
void add_futex_shared_rows(const Plan &plan);
void add_pthread_cond_rows(const Plan &plan);
void add_semaphore_rows(const Plan &plan);
void add_fd_rows(const Plan &plan);
void add_io_uring_rows(const Plan &plan);
void add_floor_rows(const Plan &plan);
void add_boost_context_rows(const Plan &plan);
void add_share_rows(const Plan &plan);
void add_ring_rows(const Plan &plan);
void add_process_rows(const Plan &plan);

#endif
