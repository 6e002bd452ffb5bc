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
	for (;;)
		spawn_or_close(accept_one((int)(intptr_t)arg), serve);
}

int main(int argc, char **argv)
{
	struct switchto_sched *sched;

	if (switchto_sched_create(&sched, NULL))
		return no_scheduler();
	switchto_spawn(sched, accept_all, (void *)(intptr_t)listen_at(argc, argv), NULL, NULL);
	return switchto_sched_run(sched) ? no_scheduler() : 0;
}
