// SPDX-License-Identifier: MIT
/*
 * futex-swap-demo: what FUTEX_SWAP does, and what it saves.
 *
 * Two threads take turns. Each has a futex of its own, whose word says whether it may run: MY_TURN,
 * or NOT_MY_TURN, and then it sleeps, or is about to. At any time one of the two words is MY_TURN.
 * Its owner hands the turn over in three steps, whose order is the whole protocol:
 *
 *  1. own word = NOT_MY_TURN. From step 2 on the partner may run, and may give the turn back at
 *     once. Stored later, this would erase that, and both would sleep for ever.
 *  2. partner's word = MY_TURN. With release: the partner reads it with acquire, so it sees what was
 *     done in this turn.
 *  3. wake the partner, and sleep until the own word is MY_TURN. The kernel compares the word once
 *     more before it lets the thread sleep (EAGAIN), so a turn that came back is not slept through.
 *
 * The two modes differ in step 3 only:
 *
 *	wake+wait	futex(partner, FUTEX_WAKE, 1);
 *			futex(own, FUTEX_WAIT, NOT_MY_TURN);
 *	swap		futex(own, FUTEX_SWAP, NOT_MY_TURN, NULL, partner);
 *
 * Every turn adds one to a counter, a plain variable: only the hand-over protects it.
 * This file is the whole program: cc -std=c11 -O2 -pthread futex-swap-demo.c
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <linux/futex.h>

/* Whatever the installed header says: one of the series of 2020 has 13, which is FUTEX_LOCK_PI2. */
#undef FUTEX_SWAP
#define FUTEX_SWAP 96

enum { EXIT_USAGE = 2, EXIT_SKIP = 77 };
enum { NOT_MY_TURN, MY_TURN };

static struct {
	_Alignas(64) _Atomic uint32_t turn; /* in a cache line of its own */
} player[2];
static bool swaps; /* the mode */
static long iterations = 100000, counter;

static _Noreturn void die(const char *what)
{
	fprintf(stderr, "futex-swap-demo: %s: %s\n", what, strerror(errno));
	exit(EXIT_FAILURE);
}

/* EAGAIN and EINTR are about a wait. What was to be woken is awake all the same. */
static int futex(_Atomic uint32_t *uaddr, int op, uint32_t val, _Atomic uint32_t *uaddr2)
{
	if (syscall(SYS_futex, uaddr, op | FUTEX_PRIVATE_FLAG, val, NULL, uaddr2, 0) != -1 ||
	    errno == EAGAIN || errno == EINTR)
		return 0;
	if (errno == ENOSYS)
		return ENOSYS;
	die("futex");
}

static void *play(void *is_second)
{
	const int me = is_second != NULL;

	for (long i = 0; i < iterations; i++) {
		/* After a swap this only looks, unless a signal ended its sleep. */
		while (atomic_load_explicit(&player[me].turn, memory_order_acquire) != MY_TURN)
			futex(&player[me].turn, FUTEX_WAIT, NOT_MY_TURN, NULL);
		if (counter++ != 2 * i + me) {
			fprintf(stderr, "futex-swap-demo: FAIL: wanted turn %ld, found %ld\n",
				2 * i + me, counter - 1);
			exit(EXIT_FAILURE);
		}
		atomic_store_explicit(&player[me].turn, NOT_MY_TURN, memory_order_relaxed);
		atomic_store_explicit(&player[!me].turn, MY_TURN, memory_order_release);
		/* Nobody answers the last turn. */
		if (swaps && !(me && i == iterations - 1))
			futex(&player[me].turn, FUTEX_SWAP, NOT_MY_TURN, &player[!me].turn);
		else
			futex(&player[!me].turn, FUTEX_WAKE, 1, NULL);
	}
	return is_second;
}

static void run(const char *mode)
{
	struct timespec from, to;
	pthread_t second;
	long long ns;

	counter = 0;
	player[0].turn = MY_TURN;
	player[1].turn = NOT_MY_TURN;
	errno = pthread_create(&second, NULL, play, player);
	if (errno)
		die("pthread_create");
	clock_gettime(CLOCK_MONOTONIC, &from);
	play(NULL);
	clock_gettime(CLOCK_MONOTONIC, &to);
	ns = (to.tv_sec - from.tv_sec) * 1000000000LL + to.tv_nsec - from.tv_nsec;
	pthread_join(second, NULL);
	/* There and back are two switches. */
	printf("%s: completed %ld swap and back iterations in %lld ns: %lld ns per swap\nPASS\n",
	       mode, iterations, ns, ns / (2 * iterations));
	if (fflush(stdout))
		die("standard output did not take the results");
}

static const char usage[] =
	"usage: futex-swap-demo [-i ITERATIONS]\n"
	"Two threads take turns: with FUTEX_WAKE and FUTEX_WAIT, then with FUTEX_SWAP.\n"
	"  -i ITERATIONS  how often to swap and back, two switches each (100000)\n"
	"exit status: 0 all passed, 1 something failed, 2 usage, 77 this kernel has no FUTEX_SWAP\n";

int main(int argc, char **argv)
{
	_Atomic uint32_t word = NOT_MY_TURN;
	const bool counts = argc == 3 && strcmp(argv[1], "-i") == 0;
	char *end = "";

	if (argc == 2 && strcmp(argv[1], "-h") == 0)
		return fputs(usage, stdout) < 0;
	if (counts)
		iterations = strtol(argv[2], &end, 10);
	if ((argc > 1 && !counts) || *end || iterations < 1 || iterations > 1000000000) {
		fprintf(stderr, "futex-swap-demo: wanted -i 1 to 1000000000, found '%s'; see -h\n",
			argv[argc - 1]);
		return EXIT_USAGE;
	}

	run("wake+wait");
	swaps = true;
	/* The value doesn't match and nobody waits: a swap without an effect. */
	if (futex(&word, FUTEX_SWAP, MY_TURN, &word) == ENOSYS) {
		fputs("futex-swap-demo: swap: wanted FUTEX_SWAP, this kernel has none; run it with vm/run\n",
		      stderr);
		return EXIT_SKIP;
	}
	run("swap");
	return EXIT_SUCCESS;
}
