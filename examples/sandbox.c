// SPDX-License-Identifier: MIT
/*
 * sandbox: a server answers the calls of a process that has no other way out.
 *
 * Shows a door between two processes. The server treats what the sandbox sends as numbers, and
 * uses none of them as an index or an address. A server is not told that a caller died, so it
 * looks after each second without a call.
 *
 *	cc -std=c11 -O2 sandbox.c $(pkg-config --cflags --libs switchto-door) -pthread
 *	./a.out 10000
 */
#define _POSIX_C_SOURCE 200809L
#include <err.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <switchto/door.h>

enum { ADD, PRINT };

/* The sandbox. It has the door, and no more than it wants to have. */
static int sandbox(int fd, unsigned long calls)
{
	struct switchto_door *door = switchto_door_connect(fd, 0);
	struct switchto_door_message m = { { ADD } };

	if (!door)
		err(EXIT_FAILURE, "switchto_door_connect");
	for (unsigned long i = 1; i <= calls; i++) {
		m.word[0] = ADD;
		m.word[2] = i;
		if (switchto_door_call(door, &m, NULL))
			err(EXIT_FAILURE, "switchto_door_call");
	}
	m.word[0] = PRINT;
	return switchto_door_call(door, &m, NULL) ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* Answers the call before, but for the first time, and waits for the next one. */
static void next_call(struct switchto_door *door, struct switchto_door_message *m, pid_t child,
		      int first)
{
	struct timespec deadline;
	int got;

	clock_gettime(CLOCK_MONOTONIC, &deadline);
	deadline.tv_sec++;
	got = first ? switchto_door_wait(door, m, &deadline) :
		      switchto_door_reply_wait(door, m, &deadline);
	while (got < 0) {
		if (errno != ETIMEDOUT)
			err(EXIT_FAILURE, "wanted a call");
		if (waitpid(child, NULL, WNOHANG) == child)
			errx(EXIT_FAILURE, "wanted a call, found the sandbox dead");
		deadline.tv_sec++;
		got = switchto_door_wait(door, m, &deadline);
	}
}

int main(int argc, char **argv)
{
	unsigned long calls = argc > 1 ? strtoul(argv[1], NULL, 10) : 1000;
	int fd = switchto_door_create(-1), status;
	struct switchto_door_message m;
	struct switchto_door *door;
	pid_t child;

	door = fd < 0 ? NULL : switchto_door_serve(fd, 0);
	if (!door && errno == ENOSYS)
		return 77; /* SWITCHTO_BACKEND=swap, on a kernel without FUTEX_SWAP */
	if (!door)
		err(EXIT_FAILURE, "wanted a door");
	child = fork();
	if (child == 0)
		return sandbox(fd, calls);
	if (child == -1)
		err(EXIT_FAILURE, "fork");

	next_call(door, &m, child, 1);
	while (m.word[0] == ADD) {
		m.word[1] += m.word[2]; /* any numbers: nothing here trusts them */
		next_call(door, &m, child, 0);
	}
	printf("%lu calls, the sum is %llu\n", calls, (unsigned long long)m.word[1]);
	switchto_door_reply(door, &m);
	switchto_door_close(door);
	if (waitpid(child, &status, 0) != child || status != 0)
		errx(EXIT_FAILURE, "wanted the sandbox to end well");
	return m.word[1] == calls * (calls + 1) / 2 ? EXIT_SUCCESS : EXIT_FAILURE;
}
