// SPDX-License-Identifier: MIT
#include "load.h"

#include <arpa/inet.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

pid_t server_pid;

_Noreturn void die(const char *what)
{
	fprintf(stderr, "packet-load: %s: %s\n", what, strerror(errno));
	exit(1);
}

int64_t clock_of(clockid_t clock)
{
	struct timespec time;

	if (clock_gettime(clock, &time))
		die("clock_gettime");
	return (int64_t)time.tv_sec * NSEC_PER_SEC + time.tv_nsec;
}

int64_t now_ns(void)
{
	return clock_of(CLOCK_MONOTONIC);
}

void *allocate(size_t count, size_t size)
{
	void *made = calloc(count, size);

	if (!made)
		die("calloc");
	return made;
}

void stay_on(int nth)
{
	cpu_set_t cpus, one;

	if (sched_getaffinity(0, sizeof(cpus), &cpus))
		die("sched_getaffinity");
	CPU_ZERO(&one);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &cpus) && nth-- == 0)
			CPU_SET(cpu, &one);
	if (sched_setaffinity(0, sizeof(one), &one))
		die("--apart: sched_setaffinity");
}

/* The server's first line has the address. False: it is left out, and has said why. */
bool start_server(void)
{
	char line[256] = "", host[64];
	unsigned int port;
	char *const *const server = options.server;
	FILE *output;
	int ends[2];

	if (pipe(ends))
		die("pipe");
	server_pid = fork();
	if (server_pid == -1)
		die("fork");
	if (server_pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (options.apart)
			stay_on(0);
		dup2(ends[1], STDOUT_FILENO);
		close(ends[0]);
		close(ends[1]);
		execvp(server[0], server);
		printf("left out: %s, as execvp() says %s\n", server[0], strerror(errno));
		fflush(stdout);
		_exit(0);
	}
	close(ends[1]);
	output = fdopen(ends[0], "r");
	if (!output || !fgets(line, sizeof(line), output)) {
		fprintf(stderr, "packet-load: wanted a line with an address of %s, found none\n",
			options.server[0]);
		exit(1);
	}
	line[strcspn(line, "\n")] = 0;
	if (strncmp(line, "left out: ", 10) == 0) {
		printf("{\"left_out\": \"%s\"}\n", line + 10);
		return false;
	}
	if (sscanf(line, "listening on %63[0-9.]:%u", host, &port) != 2 ||
	    inet_pton(AF_INET, host, &options.address.sin_addr) != 1) {
		fprintf(stderr, "packet-load: wanted 'listening on ADDRESS:PORT', found '%s'\n",
			line);
		exit(1);
	}
	options.address.sin_family = AF_INET;
	options.address.sin_port = htons((uint16_t)port);
	return true;
}

void stop_server(void)
{
	if (server_pid > 0) {
		kill(server_pid, SIGTERM);
		waitpid(server_pid, NULL, 0);
	}
}

int64_t server_time(void)
{
	clockid_t clock;

	if (server_pid <= 0 || clock_getcpuclockid(server_pid, &clock))
		return 0;
	return clock_of(clock);
}
