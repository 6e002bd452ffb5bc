// SPDX-License-Identifier: MIT
/*
 * ping-pong: two threads hand the CPU back and forth, and count.
 *
 * Shows the hand-off, switchto_switch(), how two threads meet, and what a switch costs.
 *
 *	cc -std=c11 -O2 ping-pong.c $(pkg-config --cflags --libs switchto) -pthread
 *	./a.out 100000
 */
#define _POSIX_C_SOURCE 200809L
#include <err.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <switchto/switchto.h>

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

enum { MOST_ROUNDS = 1000000000 };

static long rounds = 2000;

/* A plain variable: what a thread writes before a switch, its target sees after it. */
static long turns;

static void take_turn(long expected)
{
	if (turns++ != expected)
		errx(EXIT_FAILURE, "wanted turn %ld, found %ld", expected, turns - 1);
}

static void *pong(void *arg)
{
	pid_t ping = *(pid_t *)arg;

	/* The first switch says "I am here". It also parks this thread for its first turn. */
	for (long i = 0; i < rounds; i++) {
		check(switchto_switch(ping), "switchto_switch");
		take_turn(2 * i + 1);
	}
	/* The last turn: ping goes on, and this thread ends. */
	check(switchto_resume(ping), "switchto_resume");
	return NULL;
}

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
	const char *backend = switchto_backend();
	pid_t self, other;
	pthread_t thread;
	double start;
	char *end;

	if (!backend) /* 77: this kernel lacks the backend that SWITCHTO_BACKEND names. */
		err(errno == ENOSYS ? 77 : EXIT_FAILURE, "no backend, see switchto(7)");
	if (argc > 1) {
		rounds = strtol(argv[1], &end, 10);
		if (*end || rounds < 1 || rounds > MOST_ROUNDS)
			errx(2, "wanted 1 to %d rounds, found '%s'", MOST_ROUNDS, argv[1]);
	}

	self = check(switchto_self(), "switchto_self");
	errno = pthread_create(&thread, NULL, pong, &self);
	if (errno)
		err(EXIT_FAILURE, "pthread_create");
	/* A wait returns the TID of the thread that ended it: here pong's. */
	other = check(switchto_wait(NULL), "switchto_wait");

	start = seconds();
	for (long i = 0; i < rounds; i++) {
		take_turn(2 * i);
		if (check(switchto_switch(other), "switchto_switch") != other)
			errx(EXIT_FAILURE, "wanted a resume by thread %d, found another", other);
	}
	printf("%ld switches, %.0f per second, backend %s\n", turns,
	       (double)turns / (seconds() - start), backend);
	pthread_join(thread, NULL);
	return turns == 2 * rounds ? EXIT_SUCCESS : EXIT_FAILURE;
}
