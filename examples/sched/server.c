// SPDX-License-Identifier: MIT
/*
 * A web server as it is run: with time limits, a limit of connections, a graceful end at SIGTERM or
 * SIGINT, and figures at /metrics. usage: server PORT
 */
#include "listen.h"

#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/signalfd.h>

enum {
	MAX_CONNECTIONS = 64, /* further ones wait in the queue of listen(2) */
	IDLE_SECONDS = 60,    /* until a request begins */
	REQUEST_SECONDS = 10, /* until it is there, and until the answer is sent */
	END_SECONDS = 5,      /* until what has begun is cancelled */
};

struct server {
	struct switchto_sched *sched;
	struct switchto_chan *ending; /* closed: the server ends */
	struct switchto_sem places;
	struct switchto_group connections;
	int listener, signals;
	atomic_ulong requests, timeouts;
};
static struct server server = { .places.count = MAX_CONNECTIONS };

/* False: none comes, or the server ends. */
static bool await_request(int fd)
{
	const struct timespec deadline = seconds_from_now(IDLE_SECONDS);
	struct pollfd input = { .fd = fd, .events = POLLIN };
	char unused;
	/* Of two that are possible, the first one counts: also a busy client sees the end. */
	struct switchto_case cases[] = {
		{ .op = SWITCHTO_RECEIVE, .chan = server.ending, .item = &unused },
		{ .op = SWITCHTO_POLL, .item = &input },
	};

	return switchto_select(cases, 2, &deadline) == 1;
}

/*
 * One deadline for all parts of the request: a slow client gains nothing. What comes after it,
 * before its answer, is dropped: this server knows no pipelining.
 */
static bool read_request(int fd, char *request, size_t size)
{
	const struct timespec deadline = seconds_from_now(REQUEST_SECONDS);
	size_t length = 0;

	while (length < size - 1) {
		const ssize_t n = switchto_recv(fd, request + length, size - 1 - length, 0,
						&deadline);

		if (n <= 0) {
			if (n < 0 && errno == ETIMEDOUT)
				server.timeouts++;
			return false;
		}
		length += (size_t)n;
		request[length] = '\0';
		if (strstr(request, "\r\n\r\n"))
			return true;
	}
	return false;
}

static void write_metrics(FILE *out)
{
	struct switchto_slot_stats stats;

	fprintf(out, "requests %lu\ntimeouts %lu\n", server.requests, server.timeouts);
	for (unsigned int i = 0; i < switchto_sched_slots(server.sched); i++)
		if (switchto_slot_stats(server.sched, i, &stats) == 0)
			fprintf(out, "runs{slot=\"%u\"} %ju\nidle_ns{slot=\"%u\"} %ju\n", i,
				(uintmax_t)stats.runs, i, (uintmax_t)stats.idle_ns);
}

static bool send_text(int fd, const char *text, size_t length)
{
	const struct timespec deadline = seconds_from_now(REQUEST_SECONDS);
	char head[200];
	const int head_length = snprintf(head, sizeof(head),
					 "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
					 "Content-Length: %zu\r\n\r\n",
					 length);

	return switchto_send(fd, head, (size_t)head_length, MSG_NOSIGNAL | MSG_MORE, &deadline) ==
		       head_length &&
	       switchto_send(fd, text, length, MSG_NOSIGNAL, &deadline) == (ssize_t)length;
}

static bool answer(int fd, const char *request)
{
	char *text = NULL;
	size_t length = 0;
	FILE *out;
	bool sent;

	server.requests++;
	if (strncmp(request, "GET /metrics ", 13) != 0)
		return send_text(fd, "hello\n", 6);
	out = open_memstream(&text, &length);
	if (!out)
		return false;
	write_metrics(out);
	sent = fclose(out) == 0 && send_text(fd, text, length);
	free(text);
	return sent;
}

static void serve(void *arg)
{
	const int fd = (int)(intptr_t)arg;
	char request[8192];

	while (await_request(fd) && read_request(fd, request, sizeof(request)) &&
	       answer(fd, request))
		;
	switchto_close(fd);
	switchto_sem_post(&server.places);
	switchto_group_done(&server.connections);
}

static void accept_all(void *unused)
{
	int fd;

	switchto_task_name("accept");
	(void)unused;
	while (switchto_sem_wait(&server.places, NULL) == 0 &&
	       (fd = accept_one(server.listener)) >= 0) {
		switchto_group_add(&server.connections, 1);
		if (!spawn_or_close(fd, serve)) {
			switchto_sem_post(&server.places);
			switchto_group_done(&server.connections);
		}
	}
}

static void wait_for_end(void *acceptor)
{
	struct signalfd_siginfo info;
	struct timespec deadline;

	switchto_task_name("wait for end");
	switchto_read(server.signals, &info, sizeof(info), NULL);
	switchto_end(acceptor);
	switchto_close(server.listener);
	switchto_chan_close(server.ending);
	deadline = seconds_from_now(END_SECONDS);
	if (switchto_group_wait(&server.connections, &deadline))
		switchto_sched_stop(server.sched, SWITCHTO_STOP_CANCEL);
}

int main(int argc, char **argv)
{
	const struct switchto_sched_options options = {
		.size = sizeof(options),
		.stack_size = 128 * 1024,
		.flags = SWITCHTO_MEASURE,
		.name = "server",
	};
	struct switchto_task *acceptor;
	sigset_t ends;

	/* Before the first thread: all have this mask, and the descriptor gets the signals. */
	sigemptyset(&ends);
	sigaddset(&ends, SIGTERM);
	sigaddset(&ends, SIGINT);
	sigprocmask(SIG_BLOCK, &ends, NULL);
	server.signals = signalfd(-1, &ends, SFD_CLOEXEC);
	if (server.signals < 0 || switchto_sched_create(&server.sched, &options) ||
	    switchto_chan_create(&server.ending, 1, 0))
		return no_scheduler();
	server.listener = listen_at(argc, argv);
	if (switchto_spawn(server.sched, accept_all, NULL, NULL, &acceptor) ||
	    switchto_spawn(server.sched, wait_for_end, acceptor, NULL, NULL) ||
	    switchto_sched_run(server.sched) || switchto_sched_destroy(server.sched) ||
	    switchto_chan_destroy(server.ending))
		return no_scheduler();
	fprintf(stderr, "%lu requests, %lu timeouts\n", server.requests, server.timeouts);
	return 0;
}
