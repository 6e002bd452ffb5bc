// SPDX-License-Identifier: MIT
/* Sockets, time and messages. */
#include "server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <sched.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#ifndef UDP_GRO
#define UDP_GRO 104
#endif

enum { QUEUE = 4 << 20 }; /* bytes; the kernel allows less without a privilege */

void complain(int error, const char *format, ...)
{
	char text[256];
	va_list list;

	va_start(list, format);
	vsnprintf(text, sizeof(text), format, list);
	va_end(list);
	if (error)
		fprintf(stderr, "packet-server: %s: %s\n", text, strerror(error));
	else
		fprintf(stderr, "packet-server: %s\n", text);
}

int64_t now_ns(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

struct timespec as_timespec(int64_t ns)
{
	return (struct timespec){ ns / 1000000000, ns % 1000000000 };
}

static int nth_cpu(unsigned int nth)
{
	cpu_set_t cpus;

	if (sched_getaffinity(getpid(), sizeof(cpus), &cpus))
		return -1;
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &cpus) && nth-- == 0)
			return cpu;
	return -1;
}

/* The main thread is never bound, so its CPUs are all that the process may use. */
void stay_on_cpu_of(unsigned int slot)
{
	const int cpu = nth_cpu(slot);
	cpu_set_t one;

	if (cpu == -1)
		return;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	sched_setaffinity(0, sizeof(one), &one);
}

/*
 * Which socket of the group takes a packet, or connection: the number of the CPU that receives it,
 * or the packet's session. Without a program, the kernel takes a hash of the addresses.
 */
static int steer(int fd, const struct options *options)
{
	/* In the payload; stream.h has where the session is. */
	const uint32_t where = options->steer == STEER_CPU ? (uint32_t)(SKF_AD_OFF + SKF_AD_CPU) :
							     4;
	struct sock_filter program[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, where),
		BPF_STMT(BPF_ALU | BPF_MOD | BPF_K, options->slots),
		BPF_STMT(BPF_RET | BPF_A, 0),
	};
	const struct sock_fprog all = { sizeof(program) / sizeof(*program), program };

	if (options->steer == STEER_HASH)
		return 0;
	return setsockopt(fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &all, sizeof(all));
}

/* What a user may do about it that no socket could be bound. */
static const char *remedy(int error)
{
	switch (error) {
	case EADDRINUSE:
		return "; end the other server there, or take another port";
	case EADDRNOTAVAIL:
		return "; take an address of this machine (ip address)";
	case EACCES:
		return "; take a port from 1024 on, or run as root";
	default:
		return "";
	}
}

int open_socket(const struct options *options, int type, unsigned int slot)
{
	const int one = 1, queue = QUEUE;
	const int fd = socket(AF_INET, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	const char *what = "socket";
	int error;

	if (fd == -1) {
		complain(errno, "%s", what);
		return -1;
	}
	setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &queue, sizeof(queue));
	setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &queue, sizeof(queue));
	if (type == SOCK_STREAM)
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (slot && setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one)))
		what = "SO_REUSEPORT";
	else if (bind(fd, (const struct sockaddr *)&options->address, sizeof(options->address)) ||
		 (type == SOCK_STREAM && listen(fd, SOMAXCONN)))
		what = "bind";
	/* The first one takes the others in when the port is its own. */
	else if (options->slots > 1 && !slot &&
		 setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one)))
		what = "SO_REUSEPORT";
	/* From the second one on, there is a group. */
	else if (slot == 1 && steer(fd, options))
		what = "SO_ATTACH_REUSEPORT_CBPF";
	else if (options->gro && type == SOCK_DGRAM && !options->xdp &&
		 setsockopt(fd, SOL_UDP, UDP_GRO, &one, sizeof(one)))
		what = "UDP_GRO";
	else
		return fd;
	error = errno;
	if (strcmp(what, "bind") == 0)
		complain(0, "wanted %s:%d, can't have it: %s%s",
			 inet_ntoa(options->address.sin_addr), ntohs(options->address.sin_port),
			 strerror(error), remedy(error));
	else
		complain(error, "%s", what);
	close(fd);
	return -1;
}
