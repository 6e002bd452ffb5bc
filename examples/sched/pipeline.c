// SPDX-License-Identifier: MIT
/* Three stages with channels between them: numbers, two tasks that square them, and their sum. */
#include <errno.h>
#include <stdio.h>

#include <switchto/sched.h>

enum { NUMBERS = 10000, SQUARERS = 2 };

static struct switchto_chan *numbers, *squares;
static struct switchto_group squarers;

static void count(void *unused)
{
	switchto_task_name("count");
	(void)unused;
	for (long i = 1; i <= NUMBERS; i++)
		switchto_chan_send(numbers, &i, NULL);
	switchto_chan_close(numbers);
}

static void square(void *unused)
{
	long n;

	switchto_task_name("square");
	(void)unused;
	while (switchto_chan_recv(numbers, &n, NULL) == 0) {
		n *= n;
		switchto_chan_send(squares, &n, NULL);
	}
	switchto_group_done(&squarers);
}

static void close_squares(void *unused)
{
	switchto_task_name("close squares");
	(void)unused;
	switchto_group_wait(&squarers, NULL);
	switchto_chan_close(squares);
}

static void add(void *sum)
{
	long n;

	switchto_task_name("add");
	while (switchto_chan_recv(squares, &n, NULL) == 0)
		*(long *)sum += n;
}

int main(void)
{
	struct switchto_sched *sched;
	long sum = 0;

	if (switchto_sched_create(&sched, NULL)) {
		const int status = errno == ENOSYS ? 77 : 1; /* 77: not in this kernel */

		perror("switchto_sched_create");
		return status;
	}
	if (switchto_chan_create(&numbers, sizeof(long), 16) ||
	    switchto_chan_create(&squares, sizeof(long), 16)) {
		perror("switchto_chan_create");
		return 1;
	}
	switchto_group_add(&squarers, SQUARERS);
	switchto_spawn(sched, count, NULL, NULL, NULL);
	for (int i = 0; i < SQUARERS; i++)
		switchto_spawn(sched, square, NULL, NULL, NULL);
	switchto_spawn(sched, close_squares, NULL, NULL, NULL);
	switchto_spawn(sched, add, &sum, NULL, NULL);
	if (switchto_sched_run(sched) || switchto_sched_destroy(sched)) {
		perror("switchto_sched_run");
		return 1;
	}
	switchto_chan_destroy(numbers);
	switchto_chan_destroy(squares);
	printf("%ld\n", sum);
	return sum == (long)NUMBERS * (NUMBERS + 1) * (2 * NUMBERS + 1) / 6 ? 0 : 1;
}
