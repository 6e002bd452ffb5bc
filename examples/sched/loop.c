// SPDX-License-Identifier: MIT
/*
 * An event loop that has a scheduler in it. The loop is epoll, and has an event of its own, a timer.
 * Other loops do the same with the descriptor: docs/moving.md.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <switchto/sched.h>

static int pair[2];

/* Waits for the loop. */
static void answer(void *arg)
{
	char question;

	switchto_task_name("answer");
	while (switchto_read(pair[0], &question, 1, NULL) == 1)
		printf("task: %c\n", question);
}

static int add(int epoll, int fd)
{
	struct epoll_event event = { .events = EPOLLIN, .data.fd = fd };

	return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

/* Three times, then there is nothing more to come. */
static void tick(int timer)
{
	static int ticks;
	uint64_t expired;

	if (read(timer, &expired, sizeof(expired)) != sizeof(expired))
		return;
	printf("loop: tick\n");
	if (ticks < 3 && write(pair[1], &"abc"[ticks], 1) != 1)
		perror("wanted to ask the task, write");
	else if (ticks == 3)
		close(pair[1]);
	/* One more may come before the task has ended. */
	ticks++;
}

int main(void)
{
	const struct itimerspec often = { { 0, 5000000 }, { 0, 5000000 } };
	const int epoll = epoll_create1(EPOLL_CLOEXEC);
	const int timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
	const struct switchto_sched_options options = { .size = sizeof(options), .slots = 1 };
	struct switchto_sched *sched;
	struct epoll_event event;
	int left = 1;

	if (switchto_sched_create(&sched, &options)) {
		left = errno == ENOSYS ? 77 : 1;
		perror("wanted a scheduler, switchto_sched_create");
		return left;
	}
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) ||
	    switchto_spawn(sched, answer, NULL, NULL, NULL) ||
	    timerfd_settime(timer, 0, &often, NULL) || add(epoll, timer) ||
	    add(epoll, switchto_sched_fd(sched))) {
		perror("wanted a task and three descriptors");
		return 1;
	}
	while (left == 1) {
		if (epoll_wait(epoll, &event, 1, -1) < 1)
			continue;
		if (event.data.fd == timer)
			tick(timer);
		else
			left = switchto_sched_step(sched);
	}
	if (left || switchto_sched_destroy(sched)) {
		perror("wanted a step");
		return 1;
	}
	printf("loop: no tasks\n");
	return 0;
}
