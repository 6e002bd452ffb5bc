// SPDX-License-Identifier: MIT
//
// What an echo of 64 bytes over TCP costs a server, and how long its clients wait.
//
// The server is a process of its own, see server.h. Its clients are this one. Prints a line of
// JSON: the CPU time of the server and of the clients per request, which under -icount is their
// instructions, and latencies, in ns.
#include "clients.h"

#include "../die.h"

#include <arpa/inet.h>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <getopt.h>
#include <sched.h>
#include <string>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

namespace {

constexpr int listener_of_server = 3;
const char usage[] =
	"usage: load [options] CONNECTIONS REQUESTS SERVER [ARGUMENT...]\n"
	"  --rate N    open loop: N requests each second, whether or not others are answered\n"
	"  --block US  every 16th request blocks the server for so many microseconds\n"
	"  --cold      every 16th request reads a page of $COLD_FILE that is not in memory\n"
	"  --apart     the server on the first CPU, the clients on the second\n";

struct options {
	unsigned int connections;
	unsigned long rate;
	bool apart;
	struct load load;
	char **server;
};

unsigned long number(const char *text, const char *what)
{
	char *end;
	const unsigned long n = std::strtoul(text, &end, 10);

	if (*text < '1' || *text > '9' || *end || n > 1000000000) {
		std::fprintf(stderr, "load: %s: wanted 1 to 1000000000, found '%s'\n", what, text);
		std::exit(2);
	}
	return n;
}

options parse(int argc, char **argv)
{
	const option names[] = { { "rate", required_argument, nullptr, 'r' },
				 { "block", required_argument, nullptr, 'b' },
				 { "cold", no_argument, nullptr, 'c' },
				 { "apart", no_argument, nullptr, 'a' },
				 { nullptr, 0, nullptr, 0 } };
	options found = {};

	for (int option; (option = getopt_long(argc, argv, "+", names, nullptr)) != -1;)
		if (option == 'r') {
			found.rate = number(optarg, "--rate");
			found.load.interval = 1000000000LL / static_cast<long long>(found.rate);
		} else if (option == 'b') {
			found.load.block_us = static_cast<std::uint32_t>(number(optarg, "--block"));
		} else if (option == 'c') {
			found.load.block_us = read_cold;
		} else if (option == 'a') {
			found.apart = true;
		} else {
			std::fputs(usage, stderr);
			std::exit(2);
		}
	if (argc - optind < 3) {
		std::fputs(usage, stderr);
		std::exit(2);
	}
	found.connections = static_cast<unsigned int>(number(argv[optind], "CONNECTIONS"));
	found.load.requests = number(argv[optind + 1], "REQUESTS");
	found.server = argv + optind + 2;
	return found;
}

// --- CPUs ---

cpu_set_t usable_cpus()
{
	cpu_set_t cpus;

	if (sched_getaffinity(0, sizeof(cpus), &cpus))
		die("sched_getaffinity");
	return cpus;
}

// The caller runs on the @nth of @cpus only.
void stay_on(const cpu_set_t &cpus, int nth)
{
	cpu_set_t one;

	CPU_ZERO(&one);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &cpus) && nth-- == 0)
			CPU_SET(cpu, &one);
	if (sched_setaffinity(0, sizeof(one), &one))
		die("sched_setaffinity");
}

void prepare(bool apart)
{
	const sched_param none = {};
	rlimit files;

	if (apart && CPU_COUNT(&static_cast<const cpu_set_t &>(usable_cpus())) < 2) {
		std::fputs("load: --apart: wanted 2 CPUs, found 1\n", stderr);
		std::exit(2);
	}
	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
	// On one CPU, neither side preempts the other in the middle of a batch.
	if (CPU_COUNT(&static_cast<const cpu_set_t &>(usable_cpus())) == 1 &&
	    sched_setscheduler(0, SCHED_BATCH, &none))
		die("sched_setscheduler");
	// The open loop sends when a request is due, not up to 50 us later.
	prctl(PR_SET_TIMERSLACK, 1);
}

// --- the server ---

int listen_on(sockaddr_in *address)
{
	socklen_t length = sizeof(*address);
	const int listener = socket(AF_INET, SOCK_STREAM, 0);

	address->sin_family = AF_INET;
	address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (listener < 0 || bind(listener, reinterpret_cast<sockaddr *>(address), length) ||
	    listen(listener, 4096) ||
	    getsockname(listener, reinterpret_cast<sockaddr *>(address), &length))
		die("listen");
	return listener;
}

[[noreturn]] void become_server(char **server, int listener, int output)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_TIMERSLACK, 0);
	// First above 3, as one of the two may be 3.
	output = fcntl(output, F_DUPFD_CLOEXEC, listener_of_server + 1);
	listener = fcntl(listener, F_DUPFD_CLOEXEC, listener_of_server + 1);
	if (dup2(output, STDOUT_FILENO) == -1 || dup2(listener, listener_of_server) == -1)
		die("dup2");
	execv(server[0], server);
	dprintf(STDOUT_FILENO, "left out: %s, as execv() says %s\n", basename(server[0]),
		std::strerror(errno));
	_exit(0);
}

// The first line of @fd, without its end.
std::string line_of(int fd)
{
	std::string line;
	char c;

	while (read(fd, &c, 1) == 1 && c != '\n')
		line += c;
	return line;
}

struct server {
	pid_t pid;
	std::string name;
};

server start(const options &options, sockaddr_in *address)
{
	const int listener = listen_on(address);
	int output[2];

	if (pipe2(output, O_CLOEXEC))
		die("pipe2");

	const pid_t pid = fork();
	if (pid == -1)
		die("fork");
	if (pid == 0) {
		if (options.apart)
			stay_on(usable_cpus(), 0);
		become_server(options.server, listener, output[1]);
	}
	close(listener);
	close(output[1]);
	return { pid, line_of(output[0]) };
}

// --- memory ---

// A line of @file that begins with @name, in bytes. The kernel says it in KiB.
long long kib_of(const std::string &file, const std::string &name)
{
	std::ifstream in(file);
	std::string word;
	long long value;

	while (in >> word)
		if (word == name && in >> value)
			return value * 1024;
	std::fprintf(stderr, "load: %s: wanted a line '%s', found none\n", file.c_str(),
		     name.c_str());
	std::exit(1);
}

struct memory {
	long long user;	  // of the server
	long long kernel; // of all; the clients' part is the same beside each server
};

memory used_by(pid_t pid)
{
	memory found = { kib_of("/proc/" + std::to_string(pid) + "/status", "VmRSS:"), 0 };

	for (const char *const name : { "Slab:", "KernelStack:", "PageTables:" })
		found.kernel += kib_of("/proc/meminfo", name);
	return found;
}

// --- what came of it ---

void print_latencies(const char *name, const Histogram &found)
{
	std::printf(", \"%s\": {\"p50\": %llu, \"p99\": %llu, \"p99.9\": %llu, \"max\": %llu}",
		    name, static_cast<unsigned long long>(found.percentile(0.5)),
		    static_cast<unsigned long long>(found.percentile(0.99)),
		    static_cast<unsigned long long>(found.percentile(0.999)),
		    static_cast<unsigned long long>(found.max()));
}

void measure(const options &options, const sockaddr_in &address, const server &server)
{
	clockid_t clock;

	if (clock_getcpuclockid(server.pid, &clock))
		die("clock_getcpuclockid");

	const memory before = used_by(server.pid);
	clients all(address, options.connections);
	// The first requests meet threads, descriptors and buffers that are new.
	all.run({ 10UL * options.connections, 0, 0 });
	const memory idle = used_by(server.pid);
	const long long begin = read_clock(CLOCK_MONOTONIC), cpu = read_clock(clock),
			own = read_clock(CLOCK_PROCESS_CPUTIME_ID);
	const latencies found = all.run(options.load);
	const long long used = read_clock(clock) - cpu,
			clients = read_clock(CLOCK_PROCESS_CPUTIME_ID) - own,
			passed = read_clock(CLOCK_MONOTONIC) - begin;
	const auto requests = static_cast<double>(options.load.requests);

	std::printf(
		"{\"server\": \"%s\", \"connections\": %u, \"rate\": %lu, \"block_us\": %u, "
		"\"apart\": %s, \"server_ns\": %.1f, \"clients_ns\": %.1f, \"requests_per_s\": %.0f",
		server.name.c_str(), options.connections, options.rate, options.load.block_us,
		options.apart ? "true" : "false", static_cast<double>(used) / requests,
		static_cast<double>(clients) / requests,
		1e9 * requests / static_cast<double>(passed));
	std::printf(", \"idle_user\": %.0f, \"idle_kernel\": %.0f",
		    static_cast<double>(idle.user - before.user) / options.connections,
		    static_cast<double>(idle.kernel - before.kernel) / options.connections);
	print_latencies("latency", found.all);
	if (options.load.block_us)
		print_latencies("prompt", found.prompt);
	std::puts("}");
}

} // namespace

int main(int argc, char **argv)
{
	const std::string left_out = "left out: ";
	const options options = parse(argc, argv);
	sockaddr_in address = {};

	prepare(options.apart);
	const server server = start(options, &address);
	if (server.name.empty()) {
		std::fprintf(stderr, "load: %s: wanted a line with its name, found none\n",
			     options.server[0]);
		return 1;
	}
	if (server.name.compare(0, left_out.size(), left_out) == 0) {
		std::printf("{\"left_out\": \"%s\"}\n",
			    server.name.substr(left_out.size()).c_str());
	} else {
		if (options.apart)
			stay_on(usable_cpus(), 1);
		measure(options, address, server);
	}
	kill(server.pid, SIGTERM);
	waitpid(server.pid, nullptr, 0);
	return 0;
}
