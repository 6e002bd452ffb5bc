// SPDX-License-Identifier: MIT
/*
 * What a place that is lent costs (PR_FUTEX_LOAN), on one CPU. Under -icount, in instructions:
 *
 *	vm/run --icount --cpus 1 -- build/bench/bench/loans
 *
 * The last two rows have one look at the clock in them, and each figure what is around the calls.
 */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* The patched kernel's, whatever an installed header says. */
#undef FUTEX_SWAP
#define FUTEX_SWAP 96
#ifndef PR_FUTEX_LOAN
#define PR_FUTEX_LOAN 0x4c4f414e
#define PR_FUTEX_LOAN_OFF 0
#define PR_FUTEX_LOAN_TAKE 1
#define PR_FUTEX_LOAN_LEND 2
#endif

enum { ROUNDS = 9, CALLS = 1000, BLOCKS = 200 };
enum { LENDER, LEFT, RIGHT };

/* Where each of them waits: 1 when it is its turn. */
static struct {
	_Alignas(64) _Atomic uint32_t turn;
} word[3];
static atomic_bool over;
static bool takes;

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
}

/* -1: nobody. Returns when it is the turn of @me, or the TID of who has blocked, to a lender. */
static long swap_to(int me, int target)
{
	long result = 0;

	if (target >= 0)
		atomic_store(&word[target].turn, 1);
	while (!atomic_load(&word[me].turn)) {
		result = syscall(SYS_futex, &word[me].turn, FUTEX_SWAP | FUTEX_PRIVATE_FLAG, 0,
				 NULL, target < 0 ? NULL : &word[target].turn, 0);
		if (result > 0)
			return result;
		target = -1;
	}
	atomic_store(&word[me].turn, 0);
	return 0;
}

static void loan(int how)
{
	if (prctl(PR_FUTEX_LOAN, how, 0, 0, 0)) {
		perror("loans: PR_FUTEX_LOAN");
		exit(1);
	}
}

static int by_size(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void *answer(void *unused)
{
	if (takes)
		loan(PR_FUTEX_LOAN_TAKE);
	swap_to(RIGHT, -1);
	while (!atomic_load(&over))
		swap_to(RIGHT, LEFT);
	return unused;
}

/* Begins when it is given the place: the cheapest of some rounds, without a tick. */
static void *ask(void *least)
{
	if (takes)
		loan(PR_FUTEX_LOAN_TAKE);
	swap_to(LEFT, -1);
	for (int round = 0; round < ROUNDS; round++) {
		double time = now();

		for (int i = 0; i < CALLS / 2; i++)
			swap_to(LEFT, RIGHT);
		time = (now() - time) / CALLS;
		if (!round || time < *(double *)least)
			*(double *)least = time;
	}
	atomic_store(&over, true);
	atomic_store(&word[RIGHT].turn, 1);
	syscall(SYS_futex, &word[RIGHT].turn, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1);
	return NULL;
}

/* Both threads sleep in their swaps by the time that the caller, who may lend, goes on. */
static void start(pthread_t *thread, void *(*left)(void *), void *(*right)(void *), void *arg)
{
	atomic_store(&over, false);
	for (int i = 0; i < 3; i++)
		atomic_store(&word[i].turn, 0);
	pthread_create(&thread[0], NULL, left, arg);
	pthread_create(&thread[1], NULL, right, arg);
	usleep(10000);
}

static double ping_pong(bool take, bool lend)
{
	pthread_t thread[2];
	double least = 0;

	takes = take;
	start(thread, ask, answer, &least);
	loan(lend ? PR_FUTEX_LOAN_LEND : PR_FUTEX_LOAN_OFF);
	atomic_store(&word[LEFT].turn, 1);
	if (lend) {
		/* Until the place is back, which is at the end. */
		syscall(SYS_futex, &word[LENDER].turn, FUTEX_SWAP | FUTEX_PRIVATE_FLAG, 0, NULL,
			&word[LEFT].turn, 0);
	} else {
		syscall(SYS_futex, &word[LEFT].turn, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1);
	}
	pthread_join(thread[0], NULL);
	pthread_join(thread[1], NULL);
	loan(PR_FUTEX_LOAN_OFF);
	return least;
}

static double began, went_on;

static void *block(void *unused)
{
	const struct timespec moment = { .tv_nsec = 100000 };

	loan(PR_FUTEX_LOAN_TAKE);
	for (;;) {
		swap_to(LEFT, -1);
		if (atomic_load(&over))
			return unused;
		began = now();
		nanosleep(&moment, NULL);
	}
}

static void *go_on(void *unused)
{
	loan(PR_FUTEX_LOAN_TAKE);
	swap_to(RIGHT, -1);
	while (!atomic_load(&over)) {
		went_on = now();
		swap_to(RIGHT, LENDER);
	}
	return unused;
}

static void blocks(void)
{
	static double told[BLOCKS], next[BLOCKS];
	pthread_t thread[2];

	start(thread, block, go_on, NULL);
	loan(PR_FUTEX_LOAN_LEND);
	for (int i = 0; i < BLOCKS; i++) {
		if (swap_to(LENDER, LEFT) <= 0) {
			fputs("loans: wanted to be told of each block, was not\n", stderr);
			exit(1);
		}
		told[i] = now() - began;
		swap_to(LENDER, RIGHT);
		next[i] = went_on - began;
		usleep(1000);
	}
	atomic_store(&over, true);
	loan(PR_FUTEX_LOAN_OFF);
	for (int side = LEFT; side <= RIGHT; side++) {
		atomic_store(&word[side].turn, 1);
		syscall(SYS_futex, &word[side].turn, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1);
		pthread_join(thread[side - LEFT], NULL);
	}
	qsort(told, BLOCKS, sizeof(*told), by_size);
	qsort(next, BLOCKS, sizeof(*next), by_size);
	printf("%-50s %8.1f\n", "from before nanosleep(2) to the lender's return",
	       told[BLOCKS / 2]);
	printf("%-50s %8.1f\n", "... to the first instruction of the next thread",
	       next[BLOCKS / 2]);
}

int main(void)
{
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	sched_setaffinity(0, sizeof(one), &one);
	printf("%-50s %8.1f\n", "a private swap, no loan in the program", ping_pong(false, false));
	printf("%-50s %8.1f\n", "... of threads that take part, without a place",
	       ping_pong(true, false));
	printf("%-50s %8.1f\n", "... that passes a place on", ping_pong(true, true));
	blocks();
	return 0;
}
