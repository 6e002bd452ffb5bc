/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <switchto/sched.h>

static void count(void *arg)
{
	if (!switchto_yield())
		++*(int *)arg;
}

int main(void)
{
	struct switchto_sched *sched;
	int counted = 0;

	if (switchto_sched_create(&sched, NULL) ||
	    switchto_spawn(sched, count, &counted, NULL, NULL) || switchto_sched_run(sched) ||
	    switchto_sched_destroy(sched))
		return 1;
	printf("C, tasks: %d\n", counted);
	return counted != 1;
}
