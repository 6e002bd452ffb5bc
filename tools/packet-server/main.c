// SPDX-License-Identifier: MIT
/*
 * A server of UDP and TCP as straight code: a task for each session or connection, a slot for each
 * CPU, and system calls that move many packets.
 */
#define _GNU_SOURCE
#include "server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

/* The largest buffer on a stack is that of HTTP's files. */
enum { STACK = 64 << 10 };

struct server {
	const struct options *options;
	struct switchto_sched *sched;
	struct stats *stats;
	int signals;
	void **slots; /* struct udp or struct tcp */
};

static bool is_udp(const struct options *options)
{
	return options->what == UDP_ECHO || options->what == UDP_RELIABLE;
}

/* Waits for SIGINT or SIGTERM, and reports meanwhile. */
static void watch(void *arg)
{
	struct server *server = arg;
	const int64_t interval = (int64_t)server->options->interval * 1000000000;
	struct timespec next = as_timespec(now_ns() + interval);
	struct signalfd_siginfo info;

	while (switchto_read(server->signals, &info, sizeof(info), interval ? &next : NULL) == -1 &&
	       errno == ETIMEDOUT) {
		stats_report(server->stats, false);
		next = as_timespec(now_ns() + interval);
	}
	switchto_sched_stop(server->sched, SWITCHTO_STOP_CANCEL);
}

/* A slot that keeps the CPU does its work; only its packets wait. */
static void ignore(const char *text)
{
	(void)text;
}

/* All sockets before the first packet: the group of SO_REUSEPORT must be whole. */
static int open_slots(struct server *server, struct options *options)
{
	for (unsigned int i = 0; i < options->slots; i++) {
		struct counters *counters = stats_of(server->stats, i);
		socklen_t length = sizeof(options->address);

		server->slots[i] = is_udp(options) ? (void *)udp_new(options, i, counters) :
						     (void *)tcp_new(options, i, counters);
		if (!server->slots[i])
			return -1;
		/* The others take the port that the first one got. */
		if (i == 0 && getsockname(atomic_load(&counters->fd),
					  (struct sockaddr *)&options->address, &length)) {
			complain(errno, "getsockname");
			return -1;
		}
	}
	return 0;
}

static int run(struct server *server, const struct options *options)
{
	if (switchto_spawn(server->sched, watch, server, NULL, NULL))
		return -1;
	/* One after the other, they go to the slots one after the other. */
	for (unsigned int i = 0; i < options->slots; i++)
		if (switchto_spawn(server->sched, is_udp(options) ? udp_main : tcp_main,
				   server->slots[i], NULL, NULL))
			return -1;
	printf("listening on %s:%d\n", inet_ntoa(options->address.sin_addr),
	       ntohs(options->address.sin_port));
	fflush(stdout);
	return switchto_sched_run(server->sched);
}

int main(int argc, char **argv)
{
	struct options options;
	struct switchto_sched_options sched = { .size = sizeof(sched),
						.stack_size = STACK,
						.report = ignore };
	struct server server = { .options = &options };
	struct rlimit files;
	int status = parse_options(argc, argv, &options);
	sigset_t signals;

	if (status)
		return status;
	sigemptyset(&signals);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	signal(SIGPIPE, SIG_IGN);
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	server.signals = signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC);
	server.stats = stats_new(&options);
	server.slots = calloc(options.slots, sizeof(*server.slots));
	sched.slots = options.slots;
	status = 1;
	if (server.signals == -1 || !server.stats || !server.slots)
		complain(errno, "start");
	else if (switchto_sched_create(&server.sched, &sched))
		complain(errno, "switchto_sched_create");
	else if (open_slots(&server, &options) == 0) {
		if (run(&server, &options)) {
			complain(errno, "switchto_sched_run");
		} else {
			stats_report(server.stats, true);
			status = 0;
		}
	}
	if (server.sched && status == 0)
		switchto_sched_destroy(server.sched);
	for (unsigned int i = 0; server.slots && i < options.slots; i++) {
		if (is_udp(&options))
			udp_free(server.slots[i]);
		else
			tcp_free(server.slots[i]);
	}
	free(server.slots);
	stats_free(server.stats);
	return status;
}
