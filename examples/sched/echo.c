// SPDX-License-Identifier: MIT
/* A task for each connection, which sends back what it receives. usage: echo PORT */
#include "listen.h"

#include <switchto/sched.h>

static void serve(void *arg)
{
	const int fd = (int)(intptr_t)arg;
	char buffer[4096];
	ssize_t n;

	while ((n = switchto_recv(fd, buffer, sizeof(buffer), 0, NULL)) > 0)
		if (switchto_send(fd, buffer, (size_t)n, MSG_NOSIGNAL, NULL) < n)
			break;
	switchto_close(fd);
}

static void accept_all(void *arg)
{
	int fd;

	switchto_task_name("accept");
	while ((fd = accept_one((int)(intptr_t)arg)) >= 0)
		spawn_or_close(fd, serve);
}

int main(int argc, char **argv)
{
	struct switchto_sched *sched;
	int listener;

	if (switchto_sched_create(&sched, NULL))
		return no_scheduler();
	listener = listen_at(argc, argv);
	if (switchto_spawn(sched, accept_all, (void *)(intptr_t)listener, NULL, NULL) ||
	    switchto_sched_run(sched))
		return no_scheduler();
	return 0;
}
