// SPDX-License-Identifier: MIT
/* Two tasks that take turns: each unparks the other one, and parks. */
#include <errno.h>
#include <stdio.h>

#include <switchto/sched.h>

enum { TURNS = 100000 };

static struct switchto_task *tasks[2];
static long turns[2];

static void play(void *arg)
{
	const int me = *(int *)arg;

	switchto_task_name(me ? "pong" : "ping");
	for (; turns[me] < TURNS; turns[me]++) {
		if (me == 1)
			switchto_park(NULL);
		switchto_unpark(tasks[!me]);
		if (me == 0)
			switchto_park(NULL);
	}
}

int main(void)
{
	/* On one slot, a turn is one switch. */
	const struct switchto_sched_options options = { .size = sizeof(options), .slots = 1 };
	int names[] = { 0, 1 };
	struct switchto_sched *sched;

	if (switchto_sched_create(&sched, &options)) {
		const int status = errno == ENOSYS ? 77 : 1; /* 77: not in this kernel */

		perror("switchto_sched_create");
		return status;
	}
	for (int i = 0; i < 2; i++)
		if (switchto_spawn(sched, play, &names[i], NULL, &tasks[i])) {
			perror("switchto_spawn");
			return 1;
		}
	if (switchto_sched_run(sched)) {
		perror("switchto_sched_run");
		return 1;
	}
	for (int i = 0; i < 2; i++)
		switchto_join(tasks[i]);
	printf("%ld turns\n", turns[0] + turns[1]);
	return switchto_sched_destroy(sched) || turns[0] != TURNS || turns[1] != TURNS;
}
