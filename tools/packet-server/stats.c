// SPDX-License-Identifier: MIT
/* What the slots have counted, on the terminal and as JSON. */
#include "server.h"

#include <linux/sock_diag.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#ifndef SO_MEMINFO
#define SO_MEMINFO 55
#endif

enum { PLOT = 60 };

struct stats {
	const struct options *options;
	int64_t begin, last;
	struct slot_stats {
		struct counters counters;
		uint64_t last_in;
		uint64_t rates[PLOT]; /* packets or requests a second, the latest last */
	} slots[];
};

void count_batch(struct counters *counters, unsigned int messages)
{
	unsigned int bucket = 0;

	while (bucket < BATCH_BUCKETS - 1 && 1U << bucket < messages)
		bucket++;
	count(counters, batches[bucket], 1);
}

struct stats *stats_new(const struct options *options)
{
	struct stats *stats = calloc(1, sizeof(*stats) + options->slots * sizeof(*stats->slots));

	if (!stats)
		return NULL;
	stats->options = options;
	stats->begin = stats->last = now_ns();
	for (unsigned int i = 0; i < options->slots; i++)
		atomic_store(&stats->slots[i].counters.fd, -1);
	return stats;
}

struct counters *stats_of(struct stats *stats, unsigned int slot)
{
	return &stats->slots[slot].counters;
}

/* What waits in the socket, in bytes, and what it has dropped, in packets. As /proc/net/udp has it. */
static void queue_of(const struct counters *counters, uint32_t *depth, uint32_t *drops)
{
	uint32_t info[SK_MEMINFO_VARS] = { 0 };
	socklen_t size = sizeof(info);
	const int fd = atomic_load(&counters->fd);

	if (fd == -1 || getsockopt(fd, SOL_SOCKET, SO_MEMINFO, info, &size))
		memset(info, 0, sizeof(info));
	*depth = info[SK_MEMINFO_RMEM_ALLOC];
	*drops = info[SK_MEMINFO_DROPS];
}

static uint64_t moved(const struct counters *counters)
{
	return atomic_load(&counters->packets_in) + atomic_load(&counters->requests);
}

static void print_json(const struct counters *counters, unsigned int slot)
{
	uint32_t depth, drops;

	printf("%s{\"slot\": %u", slot ? ", " : "", slot);
#define X(name) printf(", \"" #name "\": %lu", (unsigned long)atomic_load(&counters->name));
	COUNTERS(X)
#undef X
	queue_of(counters, &depth, &drops);
	printf(", \"queue_bytes\": %u, \"drops\": %u, \"batches\": [", depth, drops);
	for (int i = 0; i < BATCH_BUCKETS; i++)
		printf("%s%lu", i ? ", " : "", (unsigned long)atomic_load(&counters->batches[i]));
	printf("]}");
}

static void print_row(const struct slot_stats *slot, unsigned int number)
{
	const struct counters *counters = &slot->counters;
	const uint64_t receives = atomic_load(&counters->receives);
	uint64_t faults = 0;
	uint32_t depth, drops;

	queue_of(counters, &depth, &drops);
	faults += atomic_load(&counters->short_packets) + atomic_load(&counters->oversized) +
		  atomic_load(&counters->forged) + atomic_load(&counters->malformed) +
		  atomic_load(&counters->strays);
	printf("%4u %12lu %12lu %8.1f %10lu %8lu %8lu %10u %8u %8lu\n", number,
	       (unsigned long)slot->rates[PLOT - 1], (unsigned long)moved(counters),
	       receives ? (double)atomic_load(&counters->packets_in) / (double)receives : 0.0,
	       (unsigned long)atomic_load(&counters->parks),
	       (unsigned long)(atomic_load(&counters->begun) - atomic_load(&counters->ended)),
	       (unsigned long)atomic_load(&counters->refused), depth, drops, (unsigned long)faults);
}

/* One character for each interval, eight steps up to the largest. */
static void print_plot(const struct slot_stats *slot, unsigned int number)
{
	static const char *const steps[] = { " ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█" };
	uint64_t largest = 1;

	for (int i = 0; i < PLOT; i++)
		if (slot->rates[i] > largest)
			largest = slot->rates[i];
	printf("%4u ", number);
	for (int i = 0; i < PLOT; i++)
		fputs(steps[(slot->rates[i] * 8 + largest - 1) / largest], stdout);
	printf(" %lu/s\n", (unsigned long)largest);
}

void stats_report(struct stats *stats, bool last)
{
	const struct options *options = stats->options;
	const int64_t now = now_ns();
	const double seconds = (double)(now - stats->last) / 1e9;

	for (unsigned int i = 0; i < options->slots; i++) {
		struct slot_stats *slot = &stats->slots[i];
		const uint64_t in = moved(&slot->counters);

		memmove(slot->rates, slot->rates + 1, sizeof(slot->rates) - sizeof(*slot->rates));
		slot->rates[PLOT - 1] = seconds > 0 ?
						(uint64_t)((double)(in - slot->last_in) / seconds) :
						0;
		slot->last_in = in;
	}
	stats->last = now;
	if (options->json) {
		printf("{\"seconds\": %.3f, \"last\": %s, \"slots\": [",
		       (double)(now - stats->begin) / 1e9, last ? "true" : "false");
		for (unsigned int i = 0; i < options->slots; i++)
			print_json(&stats->slots[i].counters, i);
		puts("]}");
	} else {
		printf("%4s %12s %12s %8s %10s %8s %8s %10s %8s %8s\n", "slot", "packets/s",
		       "packets", "batch", "parks", "sessions", "refused", "queue, B", "drops",
		       "faults");
		for (unsigned int i = 0; i < options->slots; i++)
			print_row(&stats->slots[i], i);
		for (unsigned int i = 0; options->plot && i < options->slots; i++)
			print_plot(&stats->slots[i], i);
	}
	fflush(stdout);
}

void stats_free(struct stats *stats)
{
	free(stats);
}
