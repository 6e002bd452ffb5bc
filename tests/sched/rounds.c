// SPDX-License-Identifier: MIT
/*
 * rounds KIND ROUNDS: two tasks of one slot that yield, unpark and park, send and receive, or spawn. The
 * instructions of a round are the difference of two runs.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <switchto/sched.h>

static long rounds;
static struct switchto_task *first, *second;
static struct switchto_chan *chan;
static bool ends;

/*
 * Instead of the C library's: else, a slot of a slow machine would look at the clock more often. Far in
 * the future, so nobody waits in vain for it.
 */
int clock_gettime(clockid_t clock, struct timespec *now)
{
	static _Atomic long calls;
	const long us = calls++;

	now->tv_sec = 1000000000 + us / 1000000;
	now->tv_nsec = us % 1000000 * 1000;
	return 0;
}

static void yields(void *second_one)
{
	for (long i = 0; i < rounds; i++)
		switchto_yield();
}

static void parks(void *second_one)
{
	struct switchto_task *other = second_one ? first : second;

	if (second_one)
		switchto_park(NULL);
	for (long i = 0; i < rounds; i++) {
		switchto_unpark(other);
		switchto_park(NULL);
	}
	/* The other one waits for it. */
	if (!ends) {
		ends = true;
		switchto_unpark(other);
	}
}

static void chats(void *second_one)
{
	long item = 0;

	for (long i = 0; i < rounds; i++)
		if (second_one)
			switchto_chan_recv(chan, &item, NULL);
		else
			switchto_chan_send(chan, &item, NULL);
}

static void nothing(void *unused) {}

/* Some at a time: the next ones have the memory of these. */
static void spawns(void *second_one)
{
	for (long i = 0; i < rounds; i++) {
		if (switchto_spawn(NULL, nothing, NULL, NULL, NULL))
			abort();
		if (i % 100 == 0)
			switchto_yield();
	}
}

static void both(void *arg)
{
	void (*const *kind)(void *arg) = arg;

	if (switchto_spawn(NULL, *kind, NULL, NULL, &first) ||
	    switchto_spawn(NULL, *kind, &second, NULL, &second))
		abort();
	switchto_join(second);
	switchto_join(first);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*fn)(void *arg);
	} kinds[] = {
		{ "yield", yields }, { "park", parks }, { "channel", chats }, { "spawn", spawns }
	};
	struct switchto_sched_options options = { .size = sizeof(options), .slots = 1 };
	struct switchto_sched *sched;
	void (*fn)(void *arg) = NULL;

	for (size_t i = 0; argc == 3 && i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (!strcmp(kinds[i].name, argv[1]))
			fn = kinds[i].fn;
	if (!fn)
		return 2;
	rounds = strtol(argv[2], NULL, 10);
	if (switchto_sched_create(&sched, &options) ||
	    switchto_chan_create(&chan, sizeof(long), 0) ||
	    switchto_spawn(sched, both, &fn, NULL, NULL) || switchto_sched_run(sched))
		return 1;
	switchto_chan_destroy(chan);
	return switchto_sched_destroy(sched) ? 1 : 0;
}
