// SPDX-License-Identifier: MIT
/*
 * What each futex operation costs by itself: private, nobody waiting, no sleep
 * that lasts. Under -icount, in instructions, on the stock and on the patched
 * kernel, it shows what the patches cost those who don't use them:
 *
 *	vm/run --icount --stock -- build/bench/bench/futex-ops
 *	vm/run --icount -- build/bench/bench/futex-ops
 *
 * The system call and a few instructions around it are part of each figure.
 */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef FUTEX_LOCK_PI2
#define FUTEX_LOCK_PI2 13
#endif

static uint32_t word, other;
static struct timespec past = { .tv_nsec = 1 }, none;

struct operation {
	const char *name;
	int op;
	uint32_t val;
	void *timeout; /* or val2 */
	uint32_t *uaddr2;
	uint32_t val3;
	int owned; /* the word begins as the caller's TID */
};

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
}

/* The cheapest of some rounds: the one without a timer tick. */
static double cost(const struct operation *o)
{
	const int rounds = 9, calls = 1000;
	uint32_t begin = o->owned ? (uint32_t)gettid() : 0;
	double least = 0;

	for (int round = 0; round < rounds; round++) {
		double time = now();

		for (int i = 0; i < calls; i++) {
			*(volatile uint32_t *)&word = begin;
			syscall(SYS_futex, &word, o->op | FUTEX_PRIVATE_FLAG, o->val, o->timeout,
				o->uaddr2, o->val3);
		}
		time = (now() - time) / calls;
		if (!round || time < least)
			least = time;
	}
	return least;
}

/* Of a process as small as this one. Some futex state belongs to each task. */
static double fork_and_exit(void)
{
	const int rounds = 9, calls = 100;
	double least = 0;

	for (int round = 0; round < rounds; round++) {
		double time = now();

		for (int i = 0; i < calls; i++) {
			pid_t child = fork();

			if (!child)
				_exit(0);
			waitpid(child, NULL, 0);
		}
		time = (now() - time) / calls;
		if (!round || time < least)
			least = time;
	}
	return least;
}

int main(void)
{
	void *one = (void *)1;
	const struct operation operations[] = {
		{ .name = "WAKE", .op = FUTEX_WAKE, .val = 1 },
		{ .name = "WAKE_BITSET", .op = FUTEX_WAKE_BITSET, .val = 1, .val3 = ~0u },
		{ .name = "WAIT, value changed", .op = FUTEX_WAIT, .val = 1 },
		{ .name = "WAIT, timeout 0", .op = FUTEX_WAIT, .timeout = &none },
		{ .name = "WAIT_BITSET, value changed",
		  .op = FUTEX_WAIT_BITSET,
		  .val = 1,
		  .val3 = ~0u },
		{ .name = "WAIT_BITSET, value changed, deadline",
		  .op = FUTEX_WAIT_BITSET,
		  .val = 1,
		  .timeout = &past,
		  .val3 = ~0u },
		{ .name = "REQUEUE",
		  .op = FUTEX_REQUEUE,
		  .val = 1,
		  .timeout = one,
		  .uaddr2 = &other },
		{ .name = "CMP_REQUEUE",
		  .op = FUTEX_CMP_REQUEUE,
		  .val = 1,
		  .timeout = one,
		  .uaddr2 = &other },
		{ .name = "WAKE_OP",
		  .op = FUTEX_WAKE_OP,
		  .val = 1,
		  .timeout = one,
		  .uaddr2 = &other },
		{ .name = "LOCK_PI", .op = FUTEX_LOCK_PI },
		{ .name = "LOCK_PI, deadline", .op = FUTEX_LOCK_PI, .timeout = &past },
		{ .name = "LOCK_PI2, deadline", .op = FUTEX_LOCK_PI2, .timeout = &past },
		{ .name = "TRYLOCK_PI", .op = FUTEX_TRYLOCK_PI },
		{ .name = "UNLOCK_PI", .op = FUTEX_UNLOCK_PI, .owned = 1 },
		{ .name = "CMP_REQUEUE_PI",
		  .op = FUTEX_CMP_REQUEUE_PI,
		  .val = 1,
		  .timeout = one,
		  .uaddr2 = &other },
		{ .name = "WAIT_REQUEUE_PI, value changed",
		  .op = FUTEX_WAIT_REQUEUE_PI,
		  .val = 1,
		  .uaddr2 = &other },
		{ .name = "an operation that is not one", .op = 127 },
	};

	for (size_t i = 0; i < sizeof(operations) / sizeof(operations[0]); i++)
		printf("%-38s %8.1f\n", operations[i].name, cost(&operations[i]));
	printf("%-38s %8.1f\n", "(fork, _exit and waitpid)", fork_and_exit());
	return 0;
}
