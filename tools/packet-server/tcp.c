// SPDX-License-Identifier: MIT
/* TCP: a task for each connection, for an echo or a small static server of HTTP/1.1. */
#include "http.h"
#include "server.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct tcp {
	const struct options *options;
	unsigned int slot;
	struct counters *counters;
	int fd;			    /* the listening socket */
	int spare;		    /* a descriptor to give up when there is none left */
	int root;		    /* the folder of HTTP */
	struct switchto_mutex lock; /* of the counters and what follows */
	unsigned int connections;
};

struct connection {
	struct tcp *tcp;
	int fd;
	int64_t idle;
};

/* How long the other side may take to read an answer after which the connection ends. */
static const int64_t linger = 1000000000;

static void counted(struct tcp *tcp, _Atomic uint64_t *counter, uint64_t n)
{
	switchto_mutex_lock(&tcp->lock);
	count_more(counter, n);
	switchto_mutex_unlock(&tcp->lock);
}

static struct timespec deadline_of(const struct connection *connection)
{
	return as_timespec(now_ns() + connection->idle);
}

/* All of it. -1 and errno: ETIMEDOUT, the other side does not read. */
static int send_all(struct connection *connection, const char *data, size_t size, int flags)
{
	const struct timespec deadline = deadline_of(connection);

	while (size) {
		const ssize_t n = switchto_send(connection->fd, data, size, flags | MSG_NOSIGNAL,
						&deadline);

		if (n < 0)
			return -1;
		counted(connection->tcp, &connection->tcp->counters->bytes_out, (uint64_t)n);
		data += n;
		size -= (size_t)n;
	}
	return 0;
}

static ssize_t receive(struct connection *connection, void *buffer, size_t size,
		       const struct timespec *deadline)
{
	const ssize_t n = switchto_recv(connection->fd, buffer, size, 0, deadline);

	if (n > 0)
		counted(connection->tcp, &connection->tcp->counters->bytes_in, (uint64_t)n);
	return n;
}

static void echo(struct connection *connection)
{
	char buffer[4096];

	while (!is_server_over()) {
		const struct timespec deadline = deadline_of(connection);
		const ssize_t n = receive(connection, buffer, sizeof(buffer), &deadline);

		if (n <= 0 || send_all(connection, buffer, (size_t)n, 0))
			return;
	}
}

/* Sends @size bytes of @file. False: the connection is to end at once. */
static bool send_file(struct connection *connection, int file, off_t size)
{
	char buffer[8192];

	while (size > 0) {
		ssize_t n = switchto_read(file, buffer, sizeof(buffer), NULL);

		if (n > size)
			n = size;
		/* A file that became shorter: only the end of the connection says so. */
		if (n <= 0 || send_all(connection, buffer, (size_t)n, n < size ? MSG_MORE : 0))
			return false;
		size -= n;
		if (is_server_over())
			return false;
	}
	return true;
}

/* The file of a request, or its error. False: the connection is to end at once. */
static bool answer(struct connection *connection, const struct http_request *request)
{
	struct tcp *tcp = connection->tcp;
	char buffer[512];
	int file = -1, status = request->status, length;
	off_t size = 0;
	bool sent;

	if (status == 200)
		status = http_open(tcp->root, request->path, &file, &size);
	counted(tcp, status == 200 ? &tcp->counters->requests : &tcp->counters->errors, 1);
	length = http_head(buffer, sizeof(buffer), status, size, request);
	if (request->head_only)
		size = 0;
	sent = send_all(connection, buffer, (size_t)length, size ? MSG_MORE : 0) == 0 &&
	       send_file(connection, file, size);
	if (file != -1)
		switchto_close(file);
	return sent;
}

/*
 * A close(2) with bytes that nobody has received resets the connection, and the other side may lose
 * the answer. So it is told that this side has ended, and has a while to end as well.
 */
static void end_politely(struct connection *connection, char *buffer, size_t size)
{
	const int64_t until = now_ns() + linger;
	const struct timespec deadline = as_timespec(until);

	shutdown(connection->fd, SHUT_WR);
	while (!is_server_over() && now_ns() < until &&
	       receive(connection, buffer, size, &deadline) > 0)
		;
	errno = 0;
}

static void serve_http(struct connection *connection)
{
	char buffer[HTTP_HEAD_MAX];
	size_t start = 0, end = 0;
	struct timespec deadline = deadline_of(connection);

	while (!is_server_over()) {
		struct http_request request;
		const size_t head = http_parse(buffer + start, end - start, &request);
		ssize_t n;

		if (head) {
			if (!answer(connection, &request))
				return;
			if (!request.keep) {
				end_politely(connection, buffer, sizeof(buffer));
				return;
			}
			start += head;
			deadline = deadline_of(connection);
			continue;
		}
		memmove(buffer, buffer + start, end - start);
		end -= start;
		start = 0;
		n = receive(connection, buffer + end, sizeof(buffer) - end, &deadline);
		if (n <= 0)
			return;
		/* So long for the whole of a head, from its first byte, and not for each byte. */
		if (!end)
			deadline = deadline_of(connection);
		end += (size_t)n;
	}
}

static void serve(void *arg)
{
	struct connection *connection = arg;
	struct tcp *tcp = connection->tcp;
	bool timed_out;

	stay_on_cpu_of(tcp->slot);
	/* That takes longer than many a connection. */
	if (tcp->options->trace)
		switchto_task_name("connection");
	errno = 0;
	if (tcp->options->what == TCP_HTTP)
		serve_http(connection);
	else
		echo(connection);
	timed_out = errno == ETIMEDOUT;
	switchto_close(connection->fd);
	switchto_mutex_lock(&tcp->lock);
	count(tcp->counters, ended, 1);
	if (timed_out)
		count(tcp->counters, timed_out, 1);
	tcp->connections--;
	switchto_mutex_unlock(&tcp->lock);
	free(connection);
}

static void begin(struct tcp *tcp, int fd)
{
	struct connection *connection = NULL;
	bool full;

	switchto_mutex_lock(&tcp->lock);
	full = tcp->connections == tcp->options->sessions;
	switchto_mutex_unlock(&tcp->lock);
	if (!full)
		connection = malloc(sizeof(*connection));
	if (connection) {
		const int one = 1;

		*connection = (struct connection){ tcp, fd,
						   (int64_t)tcp->options->idle * 1000000000 };
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		switchto_mutex_lock(&tcp->lock);
		tcp->connections++;
		count(tcp->counters, begun, 1);
		switchto_mutex_unlock(&tcp->lock);
		if (switchto_spawn(NULL, serve, connection, NULL, NULL) == 0)
			return;
		switchto_mutex_lock(&tcp->lock);
		tcp->connections--;
		count(tcp->counters, ended, 1);
		switchto_mutex_unlock(&tcp->lock);
		free(connection);
	}
	switchto_close(fd);
	counted(tcp, &tcp->counters->refused, 1);
}

static int open_spare(void)
{
	return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static void pause_soon(void)
{
	const struct timespec soon = as_timespec(now_ns() + 10000000);

	switchto_sleep_until(&soon);
}

/*
 * There is no descriptor left for the connection that waits. With the spare one it is accepted and
 * closed, so that its client knows. If others took that one meanwhile, a pause.
 */
static void turn_away(struct tcp *tcp)
{
	int fd = -1;

	counted(tcp, &tcp->counters->no_descriptors, 1);
	if (tcp->spare != -1) {
		close(tcp->spare);
		fd = accept4(tcp->fd, NULL, NULL, SOCK_CLOEXEC);
		if (fd != -1)
			close(fd);
	}
	tcp->spare = open_spare();
	/* Who is turned away may not keep others from running. */
	if (fd == -1)
		pause_soon();
	else
		switchto_yield();
}

/*
 * Whether @fd, a new connection, leaves a descriptor to spare. If others took that one when it was
 * given up, it comes before the connection: without it all further clients would wait.
 */
static bool leaves_spare(struct tcp *tcp, int fd)
{
	if (tcp->spare == -1)
		tcp->spare = open_spare();
	if (tcp->spare != -1)
		return true;
	switchto_close(fd);
	tcp->spare = open_spare();
	counted(tcp, &tcp->counters->no_descriptors, 1);
	return false;
}

void tcp_main(void *arg)
{
	struct tcp *tcp = arg;

	stay_on_cpu_of(tcp->slot);
	switchto_task_name("accept");
	while (!is_server_over()) {
		const int fd = switchto_accept(tcp->fd, NULL, NULL, SOCK_CLOEXEC, NULL);

		if (fd >= 0) {
			if (leaves_spare(tcp, fd))
				begin(tcp, fd);
		} else if (errno == EMFILE || errno == ENFILE) {
			turn_away(tcp);
		} else if (errno == ENOMEM || errno == ENOBUFS) {
			pause_soon();
		} else if (errno == ECANCELED || errno == EBADF) {
			return;
		} /* Else it is an error of a connection that ended before it was accepted. */
	}
}

struct tcp *tcp_new(const struct options *options, unsigned int slot, struct counters *counters)
{
	struct tcp *tcp = calloc(1, sizeof(*tcp));

	if (!tcp)
		return NULL;
	tcp->options = options;
	tcp->slot = slot;
	tcp->counters = counters;
	tcp->root = -1;
	tcp->spare = open_spare();
	tcp->fd = open_socket(options, SOCK_STREAM, slot);
	atomic_store(&counters->fd, tcp->fd);
	if (tcp->fd != -1 && options->what == TCP_HTTP) {
		tcp->root = open(options->root, O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (tcp->root == -1)
			complain(errno, "--root: wanted a folder, found '%s'", options->root);
	}
	if (tcp->fd != -1 && (tcp->root != -1 || options->what != TCP_HTTP))
		return tcp;
	tcp_free(tcp);
	return NULL;
}

void tcp_free(struct tcp *tcp)
{
	if (!tcp)
		return;
	if (tcp->fd != -1)
		close(tcp->fd);
	if (tcp->spare != -1)
		close(tcp->spare);
	if (tcp->root != -1)
		close(tcp->root);
	free(tcp);
}
