// SPDX-License-Identifier: MIT
/*
 * A web server with one page: as straight code, with time limits, a task for each connection.
 * usage: http-hello PORT
 */
#include "listen.h"

#include <string.h>

enum { IDLE_SECONDS = 10 };

static const char page[] = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
			   "Content-Length: 6\r\n\r\nhello\n";
static const char too_long[] = "HTTP/1.1 431 Request Header Fields Too Large\r\n"
			       "Content-Length: 0\r\nConnection: close\r\n\r\n";

static bool send_all(int fd, const char *text, size_t length)
{
	const struct timespec deadline = seconds_from_now(IDLE_SECONDS);

	return switchto_send(fd, text, length, MSG_NOSIGNAL, &deadline) == (ssize_t)length;
}

static void serve(void *arg)
{
	const int fd = (int)(intptr_t)arg;
	char request[8192];
	size_t length = 0;

	for (;;) {
		const struct timespec deadline = seconds_from_now(IDLE_SECONDS);
		ssize_t n = switchto_recv(fd, request + length, sizeof(request) - length, 0,
					  &deadline);
		char *end;

		if (n <= 0)
			break;
		length += (size_t)n;
		/* Several requests may come in one piece. */
		while ((end = memmem(request, length, "\r\n\r\n", 4))) {
			if (!send_all(fd, page, sizeof(page) - 1))
				goto out;
			end += 4;
			length -= (size_t)(end - request);
			memmove(request, end, length);
		}
		if (length == sizeof(request)) {
			send_all(fd, too_long, sizeof(too_long) - 1);
			break;
		}
	}
out:
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
	const struct switchto_sched_options options = {
		.size = sizeof(options),
		.stack_size = 128 * 1024, /* many connections: 8 MiB of addresses each is much */
	};
	struct switchto_sched *sched;
	int listener;

	if (switchto_sched_create(&sched, &options))
		return no_scheduler();
	listener = listen_at(argc, argv);
	if (switchto_spawn(sched, accept_all, (void *)(intptr_t)listener, NULL, NULL) ||
	    switchto_sched_run(sched))
		return no_scheduler();
	return 0;
}
