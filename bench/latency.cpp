/* SPDX-License-Identifier: MIT */
#include "latency.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "die.h"
#include "histogram.h"

namespace {

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
