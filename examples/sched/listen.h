/* SPDX-License-Identifier: MIT */
/* What the servers share: the listening socket, and accepting when descriptors run out. */
#ifndef EXAMPLE_LISTEN_H
#define EXAMPLE_LISTEN_H

#include <arpa/inet.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

#include <switchto/sched.h>

/* 77 if the kernel lacks the backend that SWITCHTO_BACKEND names. */
static int no_scheduler(void)
{
	const int status = errno == ENOSYS ? 77 : 1;

	perror("wanted a scheduler, switchto-sched");
	return status;
}

/* Prints the port: of 0, the kernel chooses one. */
static int listen_at(int argc, char **argv)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	socklen_t length = sizeof(address);
	const int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char *end = "";

	address.sin_port = htons(argc == 2 ? (uint16_t)strtoul(argv[1], &end, 10) : 0);
	if (argc != 2 || *end) {
		fprintf(stderr, "usage: %s PORT\n", argv[0]);
		exit(2);
	}
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)) || listen(fd, 1000) ||
	    getsockname(fd, (struct sockaddr *)&address, &length)) {
		fprintf(stderr, "wanted to listen at port %s, ", argv[1]);
		perror("can't");
		exit(1);
	}
	printf("%d\n", ntohs(address.sin_port));
	fflush(stdout);
	return fd;
}

static struct timespec seconds_from_now(int seconds)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	time.tv_sec += seconds;
	return time;
}

/* -1: the task was cancelled, or it is no listener. */
static int accept_one(int listener)
{
	for (;;) {
		const int fd = switchto_accept(listener, NULL, NULL, SOCK_CLOEXEC, NULL);
		struct timespec later;

		if (fd >= 0)
			return fd;
		switch (errno) {
		case ECANCELED:
		case EBADF:
		case EINVAL:
		case ENOTSOCK:
			return -1;
		case EMFILE:
		case ENFILE:
		case ENOBUFS:
		case ENOMEM: /* some task will free some */
			later = seconds_from_now(1);
			if (switchto_sleep_until(&later))
				return -1;
			break;
		default: /* the next connection may do better */
			break;
		}
	}
}

/* On each slot in turn. False: there is no memory for a task. */
static bool spawn_or_close(int fd, void (*serve)(void *))
{
	if (switchto_spawn_on(NULL, SWITCHTO_ANY, serve, (void *)(intptr_t)fd, NULL, NULL) == 0)
		return true;
	switchto_close(fd);
	return false;
}

#endif /* EXAMPLE_LISTEN_H */
