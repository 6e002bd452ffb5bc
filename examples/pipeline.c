// SPDX-License-Identifier: MIT
/*
 * pipeline: the sieve of Eratosthenes. Each prime is a stage, and each stage is a thread.
 *
 * Shows a chain of hand-offs. A number goes from stage to stage on one CPU, as if each
 * stage called the next one. A stage that drops the number goes straight back to the
 * source. The source makes a new stage of each number that no stage dropped.
 *
 *	cc -std=c11 -O2 pipeline.c $(pkg-config --cflags --libs switchto) -pthread
 *	./a.out 1000
 */
#include <err.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include <switchto/switchto.h>

enum { MOST_NUMBERS = 10000, MOST_PRIMES = 1229 };

struct stage {
	pthread_t thread;
	pid_t tid;
	long prime;
};

/*
 * No lock: one thread runs at a time, and a switch hands over what it wrote. What the
 * program does next depends on these variables, not on the TID that a switch returns.
 */
static struct stage stages[MOST_PRIMES];
static int count;
static pid_t source;
static long number; /* on its way through the stages; 0: dropped */
static bool over;

/*
 * There is no retry after EINTR: a signal handler does not end a wait or a switch. A call
 * fails with EINTR only in the child of a handler that forked, which must not wait again.
 */
static pid_t check(pid_t result, const char *call)
{
	if (result == -1)
		err(EXIT_FAILURE, "%s", call);
	return result;
}

static void *sieve(void *arg)
{
	struct stage *me = arg;
	pid_t next = source; /* The first switch says "I am here". */

	for (;;) {
		check(switchto_switch(next), "switchto_switch");
		if (over)
			return NULL;
		if (number % me->prime == 0)
			number = 0;
		next = number && me + 1 < stages + count ? me[1].tid : source;
	}
}

static void add_stage(long prime)
{
	struct stage *new = &stages[count];

	new->prime = prime;
	errno = pthread_create(&new->thread, NULL, sieve, new);
	if (errno)
		err(EXIT_FAILURE, "pthread_create");
	/* A wait returns the TID of the thread that ended it: here the new one's. */
	new->tid = check(switchto_wait(NULL), "switchto_wait");
	count++;
}

static bool is_prime(long n)
{
	for (long i = 2; i * i <= n; i++)
		if (n % i == 0)
			return false;
	return true;
}

int main(int argc, char **argv)
{
	const char *backend = switchto_backend();
	long limit = 100;
	char *end;

	if (!backend) /* 77: this kernel lacks the backend that SWITCHTO_BACKEND names. */
		err(errno == ENOSYS ? 77 : EXIT_FAILURE, "no backend, see switchto(7)");
	if (argc > 1) {
		limit = strtol(argv[1], &end, 10);
		if (*end || limit < 2 || limit > MOST_NUMBERS)
			errx(2, "wanted 2 to %d numbers, found '%s'", MOST_NUMBERS, argv[1]);
	}

	source = check(switchto_self(), "switchto_self");
	for (long n = 2; n <= limit; n++) {
		number = n;
		if (count)
			check(switchto_switch(stages[0].tid), "switchto_switch");
		if ((number != 0) != is_prime(n))
			errx(EXIT_FAILURE, "%ld: found the wrong answer", n);
		if (number)
			add_stage(n);
	}

	over = true;
	for (int i = 0; i < count; i++) {
		check(switchto_resume(stages[i].tid), "switchto_resume");
		pthread_join(stages[i].thread, NULL);
	}
	printf("%d primes up to %ld, the last is %ld, backend %s\n", count, limit,
	       stages[count - 1].prime, backend);
	return EXIT_SUCCESS;
}
