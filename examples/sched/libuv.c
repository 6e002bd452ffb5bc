// SPDX-License-Identifier: MIT
/*
 * libuv and tasks, both ways: a loop of libuv has a scheduler in it, and one of its tasks has another
 * loop of libuv in it.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <time.h>
#include <uv.h>

#include <switchto/sched.h>

#include "deadline.h"

/* --- a loop in a task: uv_run() that lets other tasks run while it would wait --- */

static void run_in_task(uv_loop_t *loop)
{
	while (uv_run(loop, UV_RUN_NOWAIT)) {
		const int ms = uv_backend_timeout(loop);
		const struct timespec deadline = ms_from_now(ms);

		/* -1 at the deadline, or if the task is cancelled: then the handles are to be closed. */
		if (switchto_poll(uv_backend_fd(loop), POLLIN, ms < 0 ? NULL : &deadline) == -1 &&
		    errno != ETIMEDOUT)
			return;
	}
}

static void tick(uv_timer_t *timer)
{
	const int *number = timer->data;

	printf("timer %d\n", *number);
	uv_close((uv_handle_t *)timer, NULL);
}

static void have_a_loop(void *arg)
{
	uv_loop_t loop;
	uv_timer_t timer;
	int number = 1;

	switchto_task_name("loop");
	uv_loop_init(&loop);
	uv_timer_init(&loop, &timer);
	timer.data = &number;
	uv_timer_start(&timer, tick, 10, 0);
	run_in_task(&loop);
	uv_loop_close(&loop);
}

static void count(void *arg)
{
	switchto_task_name("count");
	for (int i = 0; i < 3; i++) {
		const struct timespec time = ms_from_now(2);

		switchto_sleep_until(&time);
		printf("task\n");
	}
}

/* --- a scheduler in a loop --- */

static void step(uv_poll_t *poll, int status, int events)
{
	const int left = switchto_sched_step(poll->data);

	if (left == -1)
		perror("wanted a step");
	/* One that goes on for ever would stay, and wait for tasks of others. */
	if (left != 1)
		uv_close((uv_handle_t *)poll, NULL);
}

int main(void)
{
	const struct switchto_sched_options options = { .size = sizeof(options), .slots = 1 };
	uv_loop_t *loop = uv_default_loop();
	struct switchto_sched *sched;
	uv_timer_t timer;
	uv_poll_t poll;
	int number = 2;

	if (switchto_sched_create(&sched, &options)) {
		const int status = errno == ENOSYS ? 77 : 1;

		perror("wanted a scheduler, switchto_sched_create");
		return status;
	}
	if (switchto_spawn(sched, have_a_loop, NULL, NULL, NULL) ||
	    switchto_spawn(sched, count, NULL, NULL, NULL) ||
	    uv_poll_init(loop, &poll, switchto_sched_fd(sched))) {
		fprintf(stderr, "wanted two tasks, and a descriptor in the loop\n");
		return 1;
	}
	poll.data = sched;
	uv_poll_start(&poll, UV_READABLE, step);
	uv_timer_init(loop, &timer);
	timer.data = &number;
	uv_timer_start(&timer, tick, 20, 0);
	uv_run(loop, UV_RUN_DEFAULT);
	uv_loop_close(loop);
	if (switchto_sched_destroy(sched)) {
		perror("wanted that all tasks have ended");
		return 1;
	}
	return 0;
}
