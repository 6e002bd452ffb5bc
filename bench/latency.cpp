/* SPDX-License-Identifier: MIT */
#include "latency.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <vector>

#include "die.h"

namespace {

/*
 * Counts of intervals, log-linear: exact below 128 ns, and above in 64 steps
 * from one power of two to the next, so within 1.6 %.
 */
class Histogram {
public:
	void add(uint64_t value)
	{
		counts_[bucket(value)]++;
		total_++;
		max_ = std::max(max_, value);
	}

	long total() const { return total_; }
	uint64_t max() const { return max_; }

	/* The end of the bucket up to which @part of all values are. */
	uint64_t percentile(double part) const
	{
		double left = part * total_;
		size_t i = 0;

		while (i + 1 < counts_.size() && (left -= counts_[i]) > 0)
			i++;
		return std::min(last_of(i), max_);
	}

private:
	static const int bits = 6;

	static size_t bucket(uint64_t value)
	{
		int shift = 0;

		if (value >> (bits + 1))
			shift = 63 - __builtin_clzll(value) - bits;
		return (size_t(shift) << bits) + (value >> shift);
	}

	static uint64_t last_of(size_t bucket)
	{
		int shift = std::max(0, int(bucket >> bits) - 1);

		return ((bucket - (size_t(shift) << bits) + 1) << shift) - 1;
	}

	std::vector<uint64_t> counts_ = std::vector<uint64_t>((65 - bits) << bits);
	long total_ = 0;
	uint64_t max_ = 0;
};

Histogram histogram;
uint64_t last; /* 0: there was no stamp */
long ignored;

uint64_t now()
{
	timespec time;

	if (clock_gettime(CLOCK_MONOTONIC, &time))
		die("clock_gettime");
	return time.tv_sec * 1000000000ull + time.tv_nsec;
}

/* A stamp's cost: from one to the next with nothing in between. */
uint64_t stamp_cost()
{
	begin_stamps(1000);
	for (int i = 0; i < 20000; i++)
		stamp();
	return histogram.percentile(0.5);
}

/* Versions of google-benchmark differ in the name of the member with the reason. */
template <class Run>
auto reason(const Run &run, int) -> decltype(run.skip_message)
{
	return run.skip_message;
}

template <class Run>
auto reason(const Run &run, long) -> decltype(run.error_message)
{
	return run.error_message;
}

class Table : public benchmark::BenchmarkReporter {
public:
	bool ReportContext(const Context &context) override
	{
		const char *accel = getenv("SWITCHTO_ACCEL");

		PrintBasicContext(&GetErrorStream(), context);
		printf("ns%s, one switch, one way, with a stamp of %llu ns in each figure\n"
		       "%-28s %10s %10s %10s %10s\n",
		       accel && !strcmp(accel, "tcg") ? " under TCG" : "",
		       (unsigned long long)stamp_cost(), "row", "p50", "p99", "p99.9", "max");
		return true;
	}

	void ReportRuns(const std::vector<Run> &runs) override
	{
		for (const Run &run : runs) {
			std::string name = run.run_name.function_name;
			std::string why = reason(run, 0);

			printf("%-28s", name.c_str());
			if (!why.empty()) {
				printf(" %s\n", why.c_str());
				continue;
			}
			for (const char *counter : { "p50", "p99", "p99.9", "max" })
				printf(" %10.0f", double(run.counters.at(counter)));
			putchar('\n');
		}
		fflush(stdout);
	}
};

} // namespace

void begin_stamps(long to_ignore)
{
	histogram = Histogram();
	last = 0;
	ignored = to_ignore;
}

void stamp()
{
	uint64_t time = now();

	if (last && ignored)
		ignored--;
	else if (last)
		histogram.add(time > last ? time - last : 0);
	last = time;
}

void report_stamps(benchmark::State &state)
{
	/* Skipped, or invalid before it was measured. */
	if (!histogram.total())
		return;

	/* The last switch ends with no stamp. */
	if (histogram.total() != state.iterations() - 1)
		invalid(state, "%ld intervals of %ld switches", histogram.total(),
			long(state.iterations()));
	state.counters["p50"] = histogram.percentile(0.5);
	state.counters["p99"] = histogram.percentile(0.99);
	state.counters["p99.9"] = histogram.percentile(0.999);
	state.counters["max"] = histogram.max();
}

benchmark::BenchmarkReporter *latency_table()
{
	static Table table;

	return &table;
}
