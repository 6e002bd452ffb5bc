// SPDX-License-Identifier: MIT
//
// What an echo of 64 bytes over TCP costs a server: as tasks of the scheduling layer, as a loop on
// epoll, and as threads that block.
//
// usage: servers-echo KIND CONNECTIONS REQUESTS
//
// The server is a process of its own. Its clients are this one: each connection sends its next
// request when it has the answer to the last. The figure is the CPU time of the server, which
// under -icount is its instructions. Prints a line of JSON.
#include "../die.h"

#include <switchto/sched.h>
#include <switchto/switchto.h>

#include <arpa/inet.h>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <string>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

constexpr std::size_t size = 64, buffer_size = 512, stack_size = 64 << 10;

// --- servers ---

void *as_argument(int fd)
{
	return reinterpret_cast<void *>(static_cast<std::intptr_t>(fd));
}

int as_fd(void *argument)
{
	return static_cast<int>(reinterpret_cast<std::intptr_t>(argument));
}

void serve_task(void *arg)
{
	const int fd = as_fd(arg);
	char buffer[buffer_size];
	ssize_t n;

	while ((n = switchto_recv(fd, buffer, sizeof(buffer), 0, nullptr)) > 0)
		if (switchto_send(fd, buffer, static_cast<std::size_t>(n), MSG_NOSIGNAL, nullptr) !=
		    n)
			break;
	switchto_close(fd);
}

void accept_tasks(void *arg)
{
	int fd;

	while ((fd = switchto_accept(as_fd(arg), nullptr, nullptr, 0, nullptr)) >= 0)
		if (switchto_spawn(nullptr, serve_task, as_argument(fd), nullptr, nullptr))
			die("switchto_spawn");
	die("switchto_accept");
}

void tasks(int listener)
{
	switchto_sched_options options = {};
	switchto_sched *sched;

	options.size = sizeof(options);
	options.slots = 1;
	options.stack_size = stack_size;
	if (switchto_sched_create(&sched, &options) ||
	    switchto_spawn(sched, accept_tasks, as_argument(listener), nullptr, nullptr) ||
	    switchto_sched_run(sched))
		die("switchto-sched");
}

// Edge-triggered; a short read means that the socket is empty.
void epoll(int listener)
{
	const int poller = epoll_create1(0);
	epoll_event events[128];
	char buffer[buffer_size];

	const auto add = [&](int fd) {
		epoll_event event = {};

		event.events = EPOLLIN | EPOLLRDHUP | EPOLLET;
		event.data.fd = fd;
		if (fcntl(fd, F_SETFL, O_NONBLOCK) || epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event))
			die("epoll_ctl");
	};
	const auto serve = [&](int fd) {
		ssize_t n;

		do {
			n = recv(fd, buffer, sizeof(buffer), 0);
			if (n > 0 &&
			    send(fd, buffer, static_cast<std::size_t>(n), MSG_NOSIGNAL) != n)
				n = 0;
		} while (n == static_cast<ssize_t>(sizeof(buffer)));
		if (n == 0 || (n < 0 && errno != EAGAIN))
			close(fd);
	};

	add(listener);
	for (;;) {
		const int count = epoll_wait(poller, events, 128, -1);

		for (int i = 0; i < count; i++) {
			if (events[i].data.fd != listener) {
				serve(events[i].data.fd);
				continue;
			}
			for (int fd;
			     (fd = accept4(listener, nullptr, nullptr, SOCK_NONBLOCK)) >= 0;)
				add(fd);
		}
	}
}

void *serve_thread(void *arg)
{
	const int fd = as_fd(arg);
	char buffer[buffer_size];
	ssize_t n;

	while ((n = recv(fd, buffer, sizeof(buffer), 0)) > 0)
		if (send(fd, buffer, static_cast<std::size_t>(n), MSG_NOSIGNAL) != n)
			break;
	close(fd);
	return nullptr;
}

void threads(int listener)
{
	pthread_attr_t attributes;
	pthread_t thread;

	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, stack_size);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	for (;;) {
		const int fd = accept(listener, nullptr, nullptr);

		if (fd < 0)
			die("accept");
		errno = pthread_create(&thread, &attributes, serve_thread, as_argument(fd));
		if (errno)
			die("pthread_create");
	}
}

struct {
	const char *name;
	void (*run)(int listener);
} const kinds[] = { { "tasks", tasks }, { "epoll", epoll }, { "threads", threads } };

// --- clients ---

long long read_clock(clockid_t clock)
{
	timespec time;

	if (clock_gettime(clock, &time))
		die("clock_gettime");
	return time.tv_sec * 1000000000LL + time.tv_nsec;
}

class clients {
public:
	clients(const sockaddr_in &address, unsigned int count)
		: poller_(epoll_create1(0))
	{
		for (unsigned int i = 0; i < count; i++)
			sockets_.push_back(connect_to(address));
	}
	clients(const clients &) = delete;
	clients &operator=(const clients &) = delete;
	~clients()
	{
		for (const int fd : sockets_)
			close(fd);
		close(poller_);
	}

	// Each connection has one request under way, until @requests are answered.
	void run(unsigned long requests)
	{
		unsigned long sent = 0, answered = 0;
		epoll_event events[128];

		for (const int fd : sockets_)
			if (sent < requests) {
				request(fd);
				sent++;
			}
		while (answered < requests) {
			const int count = epoll_wait(poller_, events, 128, -1);

			for (int i = 0; i < count; i++) {
				answer(events[i].data.fd);
				answered++;
				if (sent < requests) {
					request(events[i].data.fd);
					sent++;
				}
			}
		}
	}

private:
	int poller_;
	std::vector<int> sockets_;

	int connect_to(const sockaddr_in &address) const
	{
		const int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
		epoll_event event = {};

		if (fd < 0 ||
		    connect(fd, reinterpret_cast<const sockaddr *>(&address), sizeof(address)))
			die("connect");
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		event.events = EPOLLIN;
		event.data.fd = fd;
		if (epoll_ctl(poller_, EPOLL_CTL_ADD, fd, &event))
			die("epoll_ctl");
		return fd;
	}
	static void request(int fd)
	{
		const char text[size] = "echo";

		if (send(fd, text, size, MSG_NOSIGNAL) != static_cast<ssize_t>(size))
			die("send");
	}
	static void answer(int fd)
	{
		char text[size + 1];

		errno = 0;
		if (recv(fd, text, sizeof(text), 0) != static_cast<ssize_t>(size) ||
		    std::memcmp(text, "echo", 5) != 0)
			die("recv: wanted 64 bytes as they were sent");
	}
};

unsigned long number(const char *text, const char *what)
{
	char *end;
	const unsigned long n = std::strtoul(text, &end, 10);

	if (*text < '1' || *text > '9' || *end || n > 1000000000) {
		std::fprintf(stderr, "servers-echo: %s: wanted 1 to 1000000000, found '%s'\n", what,
			     text);
		std::exit(2);
	}
	return n;
}

} // namespace

int main(int argc, char **argv)
{
	const sched_param none = {};
	sockaddr_in address = {};
	socklen_t length = sizeof(address);
	void (*run)(int) = nullptr;
	rlimit files;
	clockid_t clock;

	for (const auto &kind : kinds)
		if (argc == 4 && std::strcmp(argv[1], kind.name) == 0)
			run = kind.run;
	if (!run) {
		std::fprintf(stderr,
			     "usage: servers-echo tasks|epoll|threads CONNECTIONS REQUESTS\n");
		return 2;
	}
	const auto connections = static_cast<unsigned int>(number(argv[2], "CONNECTIONS"));
	const unsigned long requests = number(argv[3], "REQUESTS");

	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
	/* On one CPU, neither side preempts the other in the middle of a batch. */
	if (sched_setscheduler(0, SCHED_BATCH, &none))
		die("sched_setscheduler");

	const int listener = socket(AF_INET, SOCK_STREAM, 0);
	address.sin_family = AF_INET;
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (listener < 0 || bind(listener, reinterpret_cast<sockaddr *>(&address), length) ||
	    listen(listener, 4096) ||
	    getsockname(listener, reinterpret_cast<sockaddr *>(&address), &length))
		die("listen");

	const pid_t server = fork();
	if (server == -1)
		die("fork");
	if (server == 0) {
		run(listener);
		std::_Exit(1);
	}
	close(listener);
	if (clock_getcpuclockid(server, &clock))
		die("clock_getcpuclockid");

	clients all(address, connections);
	/* The first requests meet threads, descriptors and buffers that are new. */
	all.run(10UL * connections);
	const long long begin = read_clock(CLOCK_MONOTONIC), cpu = read_clock(clock);
	all.run(requests);
	const long long used = read_clock(clock) - cpu,
			passed = read_clock(CLOCK_MONOTONIC) - begin;

	std::printf("{\"kind\": \"%s\", \"backend\": \"%s\", \"connections\": %u, "
		    "\"server_ns\": %.1f, \"requests_per_s\": %.0f}\n",
		    argv[1], run == tasks ? switchto_backend() : "", connections,
		    static_cast<double>(used) / static_cast<double>(requests),
		    1e9 * static_cast<double>(requests) / static_cast<double>(passed));
	kill(server, SIGTERM);
	waitpid(server, nullptr, 0);
	return 0;
}
