// SPDX-License-Identifier: MIT
/*
 * A server of UDP and TCP as straight code: a task for each session or connection, a slot for each
 * CPU, and system calls that move many packets.
 */
#include "server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

/* The largest buffer on a stack is that of HTTP's files. On arm64, 128 KiB is PTHREAD_STACK_MIN. */
#ifdef __aarch64__
enum { STACK = 128 << 10 };
#else
enum { STACK = 64 << 10 };
#endif

/*
 * From a signal on, in ns: until the last report, if tasks have not ended by then; until the process
 * ends, whatever keeps it. The rest of a second is for the kernel, to end all threads.
 */
enum { REPORT = 500000000, END = 800000000 };

struct server {
	const struct options *options;
	struct switchto_sched *sched;
	struct stats *stats;
	pthread_t watcher;
	sigset_t signals;
	struct switchto_sem told; /* there was a signal */
	struct switchto_sem done; /* all tasks have ended */
	struct switchto_sem gone; /* all else is done */
	void **slots;		  /* struct udp or struct tcp */
};

atomic_bool server_over;

static bool is_udp(const struct options *options)
{
	return options->what == UDP_ECHO || options->what == UDP_RELIABLE;
}

/*
 * Waits for SIGINT or SIGTERM. It is no task: however busy the slots are, the kernel lets it run. And
 * it prints nothing: nobody may read that.
 */
static void *watch(void *arg)
{
	struct server *server = arg;
	struct timespec end;

	/* EINTR: it was stopped for a while, say. */
	while (sigwaitinfo(&server->signals, NULL) == -1)
		;
	end = as_timespec(now_ns() + END);
	atomic_store(&server_over, true);
	switchto_sched_stop(server->sched, SWITCHTO_STOP_CANCEL);
	switchto_sem_post(&server->told);
	/* Whatever waits for a task, for who reads the reports or for a busy CPU: no longer. */
	if (switchto_sem_wait(&server->gone, &end))
		_exit(0);
	return NULL;
}

/* Until there is a signal, and all tasks have ended. */
static void *report(void *arg)
{
	struct server *server = arg;
	const int64_t interval = (int64_t)server->options->interval * 1000000000;
	struct timespec next = as_timespec(now_ns() + interval), last;

	while (switchto_sem_wait(&server->told, interval ? &next : NULL) && errno == ETIMEDOUT) {
		stats_report(server->stats, false);
		next = as_timespec(now_ns() + interval);
	}
	last = as_timespec(now_ns() + REPORT);
	switchto_sem_wait(&server->done, &last);
	stats_report(server->stats, true);
	return NULL;
}

/* A slot that keeps the CPU does its work; only its packets wait. */
static void ignore(const char *text) {}

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
	pthread_t reporter;
	int status;

	/* One after the other, they go to the slots one after the other. */
	for (unsigned int i = 0; i < options->slots; i++)
		if (switchto_spawn(server->sched, is_udp(options) ? udp_main : tcp_main,
				   server->slots[i], NULL, NULL) &&
		    !is_server_over())
			return -1;
	printf("listening on %s:%d\n", inet_ntoa(options->address.sin_addr),
	       ntohs(options->address.sin_port));
	fflush(stdout);
	errno = pthread_create(&reporter, NULL, report, server);
	if (errno)
		return -1;
	status = switchto_sched_run(server->sched);
	/* Without a signal, it has failed, and this is the end of the process. */
	if (status == 0) {
		switchto_sem_post(&server->done);
		pthread_join(reporter, NULL);
	}
	return status;
}

/* By the thousand, they end sooner with the process than one after the other. */
static bool has_many_threads(const struct server *server)
{
	uint64_t begun = 0;

	for (unsigned int i = 0; i < server->options->slots; i++)
		begun += atomic_load(&stats_of(server->stats, i)->begun);
	return begun > 1000;
}

int main(int argc, char **argv)
{
	/* The thread that waits for signals may be the last one to use it. */
	static struct server server;
	struct options options;
	struct switchto_sched_options sched = { .size = sizeof(sched),
						.stack_size = STACK,
						.report = ignore };
	struct rlimit files;
	int status = parse_options(argc, argv, &options), fd;

	if (status)
		return status;
	/* What is printed must not go to a socket that got the number of a closed stream. */
	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd >= 0)
		close(fd);
	sigemptyset(&server.signals);
	sigaddset(&server.signals, SIGINT);
	sigaddset(&server.signals, SIGTERM);
	sigprocmask(SIG_SETMASK, &server.signals, NULL);
	signal(SIGPIPE, SIG_IGN);
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	server.options = &options;
	server.stats = stats_new(&options);
	server.slots = calloc(options.slots, sizeof(*server.slots));
	sched.slots = options.slots;
	status = 1;
	if (!server.stats || !server.slots)
		complain(errno, "start");
	else if (options.trace && switchto_trace_start(options.trace, 0))
		complain(errno, "--trace %s", options.trace);
	else if (switchto_sched_create(&server.sched, &sched))
		complain(errno, "switchto_sched_create");
	else if ((errno = pthread_create(&server.watcher, NULL, watch, &server)))
		complain(errno, "pthread_create");
	else if (open_slots(&server, &options) == 0) {
		if (run(&server, &options)) {
			complain(errno, "switchto_sched_run");
		} else {
			if (options.trace)
				switchto_trace_stop();
			if (has_many_threads(&server))
				_exit(0);
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
	if (status == 0) {
		switchto_sem_post(&server.gone);
		pthread_join(server.watcher, NULL);
	}
	stats_free(server.stats);
	server.options = NULL;
	return status;
}
