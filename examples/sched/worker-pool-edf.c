// SPDX-License-Identifier: MIT
/*
 * Jobs with deadlines: the policy runs the most urgent one first, whatever the order in which they
 * came. Prints how many were late; status 1 if they ended in another order. On a busy machine a job
 * may lose its slot and go on later: then one out of ten may be late for its place.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <switchto/sched.h>

enum { JOBS = 100, WORK_US = 500 };

static struct job {
	struct timespec deadline;
	long long late; /* ns; negative: early */
	int place;	/* 0: it ended first */
} jobs[JOBS];
static atomic_int ended;

static long long now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static void work(void *arg)
{
	struct job *job = arg;
	const long long end = now() + WORK_US * 1000LL;

	switchto_task_name("job");
	/* Between two steps, a job that is more urgent may run. */
	while (now() < end)
		switchto_yield();
	job->late = now() - (job->deadline.tv_sec * 1000000000LL + job->deadline.tv_nsec);
	job->place = atomic_fetch_add(&ended, 1);
}

int main(void)
{
	const struct switchto_sched_options options = {
		.size = sizeof(options),
		.slots = 1,
		.policy = &switchto_edf,
	};
	struct switchto_sched *sched;
	long long begin = now(), worst = 0;
	int late = 0, disorder = 0;

	if (switchto_sched_create(&sched, &options)) {
		const int status = errno == ENOSYS ? 77 : 1; /* 77: not in this kernel */

		perror("switchto_sched_create");
		return status;
	}
	for (int i = 0; i < JOBS; i++) {
		/* The last ones are the most urgent: 5 ms each, when 0.5 would do. */
		const long long at = begin + (JOBS - i) * 5000000LL + 200000000LL;
		struct switchto_task_attr attr = { .priority = 0 };

		jobs[i].deadline = (struct timespec){ at / 1000000000, at % 1000000000 };
		attr.deadline = jobs[i].deadline;
		if (switchto_spawn(sched, work, &jobs[i], &attr, NULL)) {
			perror("switchto_spawn");
			return 1;
		}
	}
	if (switchto_sched_run(sched) || switchto_sched_destroy(sched)) {
		perror("switchto_sched_run");
		return 1;
	}
	for (int i = 0; i < JOBS; i++) {
		late += jobs[i].late > 0;
		disorder += i && jobs[i].place > jobs[i - 1].place;
		worst = jobs[i].late > worst ? jobs[i].late : worst;
	}
	printf("%d jobs, %d late, the worst by %lld us\n", JOBS, late, worst / 1000);
	return disorder > JOBS / 10 ? 1 : 0;
}
