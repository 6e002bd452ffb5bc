// SPDX-License-Identifier: MIT
/*
 * GLib and tasks, both ways, as in libuv.c: the default main loop has a scheduler in it, and one of its
 * tasks runs another main loop, whose poll function lets other tasks run.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <time.h>

#include <glib-unix.h>

#include <switchto/sched.h>

#include "deadline.h"

/* --- a loop in a task --- */

/*
 * As poll(2), for input and output: a source that waits for neither is looked at when another one has
 * something. For SWITCHTO_SELECT_MAX of both at most. GPollFD is a struct pollfd.
 */
static gint poll_in_task(GPollFD *fds, guint count, gint ms)
{
	const struct timespec deadline = ms_from_now(ms);
	struct switchto_case cases[SWITCHTO_SELECT_MAX];
	struct pollfd directions[SWITCHTO_SELECT_MAX];
	size_t used = 0;

	for (guint i = 0; i < count; i++) {
		static const short masks[] = { POLLIN, POLLOUT };

		for (int j = 0; j < 2; j++) {
			if (!(fds[i].events & masks[j]))
				continue;
			if (used == SWITCHTO_SELECT_MAX) {
				errno = EINVAL;
				return -1;
			}
			directions[used] = (struct pollfd){ fds[i].fd, masks[j], 0 };
			cases[used] = (struct switchto_case){ .op = SWITCHTO_POLL,
							      .item = &directions[used] };
			used++;
		}
	}
	if (ms != 0 && switchto_select(cases, used, ms < 0 ? NULL : &deadline) == -1 &&
	    errno != ETIMEDOUT)
		return -1;
	return poll((struct pollfd *)fds, count, 0);
}

static gboolean tick(gpointer loop)
{
	printf("timer in a task\n");
	g_main_loop_quit(loop);
	return G_SOURCE_REMOVE;
}

static void have_a_loop(void *arg)
{
	GMainContext *context = g_main_context_new();
	GMainLoop *loop = g_main_loop_new(context, FALSE);
	GSource *timer = g_timeout_source_new(10);

	switchto_task_name("loop");
	g_main_context_set_poll_func(context, poll_in_task);
	g_source_set_callback(timer, tick, loop, NULL);
	g_source_attach(timer, context);
	g_main_loop_run(loop);
	g_source_unref(timer);
	g_main_loop_unref(loop);
	g_main_context_unref(context);
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

struct host {
	struct switchto_sched *sched;
	GMainLoop *loop;
};

static gboolean step(gint fd, GIOCondition condition, gpointer data)
{
	const struct host *host = data;
	const int left = switchto_sched_step(host->sched);

	if (left == 1)
		return G_SOURCE_CONTINUE;
	if (left == -1)
		perror("wanted a step");
	g_main_loop_quit(host->loop);
	return G_SOURCE_REMOVE;
}

int main(void)
{
	const struct switchto_sched_options options = { .size = sizeof(options), .slots = 1 };
	struct host host;

	if (switchto_sched_create(&host.sched, &options)) {
		const int status = errno == ENOSYS ? 77 : 1;

		perror("wanted a scheduler, switchto_sched_create");
		return status;
	}
	if (switchto_spawn(host.sched, have_a_loop, NULL, NULL, NULL) ||
	    switchto_spawn(host.sched, count, NULL, NULL, NULL)) {
		perror("wanted two tasks, switchto_spawn");
		return 1;
	}
	host.loop = g_main_loop_new(NULL, FALSE);
	g_unix_fd_add(switchto_sched_fd(host.sched), G_IO_IN, step, &host);
	g_main_loop_run(host.loop);
	g_main_loop_unref(host.loop);
	if (switchto_sched_destroy(host.sched)) {
		perror("wanted that all tasks have ended");
		return 1;
	}
	return 0;
}
