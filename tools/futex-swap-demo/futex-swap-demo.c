// SPDX-License-Identifier: MIT
/*
 * futex-swap-demo: what FUTEX_SWAP does, and what it saves.
 *
 * Two threads, A and B, take turns. Each has a futex of its own, whose word
 * says whether it may run:
 *
 *	MY_TURN		its owner runs
 *	NOT_MY_TURN	its owner sleeps, or is on its way to
 *
 * At any time one of the two words is MY_TURN. Its owner hands the turn over in
 * three steps, whose order is the whole protocol:
 *
 *  1. own word = NOT_MY_TURN. Before step 2, for from then on the partner may
 *     run, and may give the turn back at once. Stored later, this would erase
 *     that, and both would sleep for ever.
 *  2. partner's word = MY_TURN. With release, so that whatever was done in this
 *     turn is seen by the next; the partner reads it with acquire.
 *  3. wake the partner, and sleep until the own word is MY_TURN. The kernel
 *     compares the word once more before it lets the thread sleep, so a turn
 *     that came back already is not slept through (EAGAIN).
 *
 * The two modes differ in step 3 only:
 *
 *	wake+wait	futex(partner, FUTEX_WAKE, 1);
 *			futex(own, FUTEX_WAIT, NOT_MY_TURN);
 *	swap		futex(own, FUTEX_SWAP, NOT_MY_TURN, NULL, partner);
 *
 * Every turn finds a counter as the turn before left it, and adds one. The
 * counter is a plain variable: nothing but the hand-over protects it. A turn
 * that both threads have, or that comes too early, shows as a wrong number;
 * one that got lost shows as a program that hangs.
 *
 * This file is the whole program: cc -std=c11 -O2 -pthread futex-swap-demo.c
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include <linux/futex.h>

/*
 * Whatever the installed header says: one of the series of 2020 has 13, which
 * is FUTEX_LOCK_PI2 today.
 */
#undef FUTEX_SWAP
#define FUTEX_SWAP 96

enum { EXIT_USAGE = 2, EXIT_SKIP = 77 };
enum { NOT_MY_TURN, MY_TURN };

struct player {
	/* A cache line each: no false sharing between the words. */
	_Alignas(64) _Atomic uint32_t turn;
	const char *name;
};

struct game {
	struct player a, b;
	bool swap; /* the mode */
	bool validate;
	bool explain;
	uint64_t iterations; /* from A to B and back */
	uint64_t counter;    /* belongs to whose turn it is */
};

static void die(const char *what)
{
	fprintf(stderr, "futex-swap-demo: %s: %s\n", what, strerror(errno));
	exit(EXIT_FAILURE);
}

static long futex(_Atomic uint32_t *uaddr, int op, uint32_t val, _Atomic uint32_t *uaddr2)
{
	return syscall(SYS_futex, uaddr, op | FUTEX_PRIVATE_FLAG, val, NULL, uaddr2, 0);
}

static void wait_turn(struct player *me)
{
	while (atomic_load_explicit(&me->turn, memory_order_acquire) != MY_TURN)
		if (futex(&me->turn, FUTEX_WAIT, NOT_MY_TURN, NULL) == -1 && errno != EAGAIN &&
		    errno != EINTR)
			die("FUTEX_WAIT");
}

static void give_turn(struct player *to)
{
	atomic_store_explicit(&to->turn, MY_TURN, memory_order_release);
}

static void wake(struct player *to)
{
	if (futex(&to->turn, FUTEX_WAKE, 1, NULL) == -1)
		die("FUTEX_WAKE");
}

/* EAGAIN and EINTR are about the wait: the partner was woken all the same. */
static void swap(struct player *me, struct player *to)
{
	if (futex(&me->turn, FUTEX_SWAP, NOT_MY_TURN, &to->turn) == -1 && errno != EAGAIN &&
	    errno != EINTR)
		die("FUTEX_SWAP");
}

static void hand_over(struct game *g, struct player *me, struct player *to)
{
	const char *m = me->name, *t = to->name;

	if (g->explain && g->swap)
		printf("  %s: %s = NOT_MY_TURN; %s = MY_TURN; FUTEX_SWAP wakes %s and sleeps on %s, one system call\n",
		       m, m, t, t, m);
	else if (g->explain)
		printf("  %s: %s = NOT_MY_TURN; %s = MY_TURN; FUTEX_WAKE wakes %s; FUTEX_WAIT sleeps on %s, two system calls\n",
		       m, m, t, t, m);

	atomic_store_explicit(&me->turn, NOT_MY_TURN, memory_order_relaxed);
	give_turn(to);

	if (g->swap)
		swap(me, to);
	else
		wake(to);

	/* After a swap this only looks, unless a signal ended its sleep. */
	wait_turn(me);
}

static void expect(struct game *g, struct player *me, uint64_t expected)
{
	if (g->explain)
		printf("  %s: my turn\n", me->name);
	if (!g->validate)
		return;
	if (g->explain)
		printf("  %s: the counter should be %" PRIu64 ", and is %" PRIu64 "\n", me->name,
		       expected, g->counter);

	if (g->counter != expected) {
		fprintf(stderr,
			"futex-swap-demo: FAIL: %s expected the counter at %" PRIu64
			" and found %" PRIu64 "\n",
			me->name, expected, g->counter);
		exit(EXIT_FAILURE);
	}
	g->counter = expected + 1;
}

static void *play_b(void *arg)
{
	struct game *g = arg;

	wait_turn(&g->b);
	for (uint64_t i = 0; i < g->iterations; i++) {
		expect(g, &g->b, 2 * i + 1);
		hand_over(g, &g->b, &g->a);
	}
	return NULL;
}

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

/* Returns how long it took, from A's first turn to its last. */
static uint64_t play(struct game *g, uint64_t iterations, bool explain)
{
	uint64_t start, end;
	pthread_t b;

	g->a = (struct player){ .turn = MY_TURN, .name = "A" };
	g->b = (struct player){ .turn = NOT_MY_TURN, .name = "B" };
	g->iterations = iterations;
	g->explain = explain;
	g->counter = 0;

	errno = pthread_create(&b, NULL, play_b, g);
	if (errno)
		die("pthread_create");

	start = now_ns();
	for (uint64_t i = 0; i < g->iterations; i++) {
		expect(g, &g->a, 2 * i);
		hand_over(g, &g->a, &g->b);
	}
	end = now_ns();

	/* B sleeps in its last hand-over: one more turn, to end it. */
	expect(g, &g->a, 2 * g->iterations);
	give_turn(&g->b);
	wake(&g->b);
	pthread_join(b, NULL);

	return end - start;
}

/* The value doesn't match and nobody waits: a swap without an effect. */
static bool kernel_has_swap(void)
{
	_Atomic uint32_t word = NOT_MY_TURN;
	struct utsname u;

	if (futex(&word, FUTEX_SWAP, MY_TURN, &word) == -1 && errno == EAGAIN)
		return true;
	if (errno != ENOSYS)
		die("FUTEX_SWAP, asking the kernel whether it has it");

	uname(&u);
	fprintf(stderr,
		"futex-swap-demo: swap: this kernel (%s) has no FUTEX_SWAP; to run on one that has: vm/run -- futex-swap-demo, in the libswitchto sources\n",
		u.release);
	return false;
}

static void run(struct game *g, uint64_t iterations, bool explain)
{
	uint64_t ns;

	printf("%s:\n", g->swap ? "swap" : "wake+wait");
	if (explain)
		play(g, 2, true); /* not timed: printing takes longer */
	ns = play(g, iterations, false);

	/* There and back are two switches. */
	printf("completed %" PRIu64 " swap and back iterations in %" PRIu64 " ns: %" PRIu64
	       " ns per swap\n",
	       iterations, ns, ns / (2 * iterations));
	if (g->validate)
		puts("PASS");
}

static uint64_t number(int opt, const char *arg, uint64_t min, uint64_t max)
{
	uint64_t n;
	char *end;

	errno = 0;
	n = strtoull(arg, &end, 10);
	if (*arg < '0' || *arg > '9' || *end || errno || n < min || n > max) {
		fprintf(stderr,
			"futex-swap-demo: -%c wants a number from %" PRIu64 " to %" PRIu64
			", not '%s'; see -h\n",
			opt, min, max, arg);
		exit(EXIT_USAGE);
	}
	return n;
}

static void pin(int cpu, const char *arg)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set)) {
		fprintf(stderr,
			"futex-swap-demo: -c wants a CPU that this process may run on, not '%s' (%s); taskset -cp $$ lists them\n",
			arg, strerror(errno));
		exit(EXIT_USAGE);
	}
}

static const char help[] =
	"usage: futex-swap-demo [-n] [-v] [-i ITERATIONS] [-c CPU]\n"
	"Two threads take turns: with FUTEX_WAKE and FUTEX_WAIT, then with FUTEX_SWAP.\n"
	"  -i ITERATIONS  how often to swap and back, two switches each (100000)\n"
	"  -c CPU         pin both threads to this CPU\n"
	"  -n             don't validate the hand-overs (and print no PASS)\n"
	"  -v             explain what happens, step by step, before each timed run\n"
	"  -h             this help\n"
	"exit status: 0 all passed, 1 something failed, 2 usage,\n"
	"             77 this kernel has no FUTEX_SWAP and nothing else failed\n";

int main(int argc, char **argv)
{
	struct game g = { .validate = true };
	uint64_t iterations = 100000;
	int opt, status = EXIT_SUCCESS;
	bool explain = false;

	while ((opt = getopt(argc, argv, ":i:c:nvh")) != -1) {
		switch (opt) {
		case 'i':
			iterations = number(opt, optarg, 1, 1000000000);
			break;
		case 'c':
			pin((int)number(opt, optarg, 0, CPU_SETSIZE - 1), optarg);
			break;
		case 'n':
			g.validate = false;
			break;
		case 'v':
			explain = true;
			break;
		case 'h':
			fputs(help, stdout);
			return EXIT_SUCCESS;
		case ':':
			fprintf(stderr,
				"futex-swap-demo: -%c wants a number, and there is none; see -h\n",
				optopt);
			return EXIT_USAGE;
		default:
			fprintf(stderr,
				"futex-swap-demo: wanted one of -i -c -n -v -h, found '-%c'; see -h\n",
				optopt);
			return EXIT_USAGE;
		}
	}
	if (optind < argc) {
		fprintf(stderr, "futex-swap-demo: wanted options only, found '%s'; see -h\n",
			argv[optind]);
		return EXIT_USAGE;
	}

	/* Flush each line: the output stays if a lost turn makes this hang. */
	setvbuf(stdout, NULL, _IOLBF, 0);

	run(&g, iterations, explain);
	g.swap = true;
	if (kernel_has_swap())
		run(&g, iterations, explain);
	else
		status = EXIT_SKIP;

	if (ferror(stdout)) {
		fputs("futex-swap-demo: standard output did not take all of the results (disk full?); try again with another\n",
		      stderr);
		return EXIT_FAILURE;
	}
	return status;
}
