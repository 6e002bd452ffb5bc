// SPDX-License-Identifier: MIT
#include "load.h"

#include <netinet/tcp.h>
#include <netinet/udp.h>

/* Latencies: a histogram with 16 steps for each power of two. */
enum { STEPS = 16, LATENCIES = 60 * STEPS };

static uint64_t latencies[LATENCIES];

void add_latency(int64_t ns)
{
	unsigned int power = 0;
	uint64_t value = ns > 0 ? (uint64_t)ns : 0;

	while (value >> power >= 2 * STEPS)
		power++;
	latencies[value < STEPS ? value : power * STEPS + (value >> power)]++;
}

void forget_latencies(void)
{
	memset(latencies, 0, sizeof(latencies));
}

/* The upper end of the step in which it is. */
static uint64_t percentile(double part)
{
	uint64_t all = 0, passed = 0;

	for (int i = 0; i < LATENCIES; i++)
		all += latencies[i];
	for (int i = 0; i < LATENCIES; i++) {
		passed += latencies[i];
		if (all && (double)passed >= part * (double)all)
			return i < 2 * STEPS ?
				       (uint64_t)i :
				       ((uint64_t)(i % STEPS + STEPS + 1) << (i / STEPS - 1)) - 1;
	}
	return 0;
}

struct session *sessions;
struct crypto *crypto;
int poller;
uint8_t *buffer;
uint64_t wrong;

size_t packet_size(void)
{
	return options.size + (options.sealed ? CRYPTO_OVERHEAD : 0);
}

void open_sessions(int type)
{
	sessions = allocate(options.sessions, sizeof(*sessions));
	poller = epoll_create1(EPOLL_CLOEXEC);
	for (unsigned long i = 0; i < options.sessions; i++) {
		struct epoll_event event = { .events = EPOLLIN, .data.u32 = (uint32_t)i };
		const int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0), one = 1,
			  queue = options.sessions > 100 ? 1 << 20 : 4 << 20;

		if (fd == -1 ||
		    connect(fd, (struct sockaddr *)&options.address, sizeof(options.address)))
			die("connect");
		if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &queue, sizeof(queue)))
			setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &queue, sizeof(queue));
		if (type == SOCK_STREAM)
			setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		else if (!options.plain)
			setsockopt(fd, SOL_UDP, UDP_GRO, &one, sizeof(one));
		if (epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event))
			die("epoll_ctl");
		sessions[i].fd = fd;
	}
}

void close_sessions(void)
{
	for (unsigned long i = 0; i < options.sessions; i++)
		close(sessions[i].fd);
	close(poller);
	free(sessions);
}

/* 0, 1, 2 and so on: the content of a packet is a part of them. */
static uint8_t counted[256 + PACKET_MAX];

void make_pattern(void)
{
	for (size_t i = 0; i < sizeof(counted); i++)
		counted[i] = (uint8_t)i;
}

const uint8_t *pattern(uint32_t session, uint32_t number, size_t at)
{
	return counted + (session * 7 + number * 13) % 256 + at;
}

void fill(uint8_t *packet, const struct head *head)
{
	memcpy(packet, head, sizeof(*head));
	memcpy(packet + sizeof(*head), pattern(head->session, head->number, sizeof(*head)),
	       options.size - sizeof(*head));
}

bool is_right(const uint8_t *packet, size_t size, uint32_t session, struct head *head)
{
	if (size != options.size)
		return false;
	memcpy(head, packet, sizeof(*head));
	return head->session == session &&
	       memcmp(packet + sizeof(*head), pattern(session, head->number, sizeof(*head)),
		      size - sizeof(*head)) == 0;
}

/* The next datagrams of a socket: bytes, and the size of each; 0: there is none. */
size_t receive(int fd, size_t *segment)
{
	union {
		struct cmsghdr header;
		// cppcheck-suppress unusedStructMember
		char space[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec part = { buffer, GRO_MAX };
	struct msghdr message = { .msg_iov = &part,
				  .msg_iovlen = 1,
				  .msg_control = &control,
				  .msg_controllen = sizeof(control) };
	const ssize_t n = recvmsg(fd, &message, MSG_DONTWAIT);
	const struct cmsghdr *header = n > 0 ? CMSG_FIRSTHDR(&message) : NULL;
	int size = 0;

	if (n <= 0)
		return 0;
	if (header && header->cmsg_level == SOL_UDP && header->cmsg_type == UDP_GRO)
		memcpy(&size, CMSG_DATA(header), sizeof(size));
	*segment = size > 0 ? (size_t)size : (size_t)n;
	return (size_t)n;
}

void print_result(const char *mode, const struct result *result)
{
	printf("{\"server\": \"%s\", \"mode\": \"%s\", \"sessions\": %lu, \"burst\": %lu, "
	       "\"size\": %lu, \"sent\": %lu, \"received\": %lu, \"wrong\": %lu, "
	       "\"packets_per_s\": %.0f",
	       options.name, mode, options.sessions, options.burst, options.size,
	       (unsigned long)result->sent, (unsigned long)result->received, (unsigned long)wrong,
	       1e9 * (double)result->received / (double)(result->ns ? result->ns : 1));
	if (server_pid > 0 && result->received)
		printf(", \"server_ns\": %.1f",
		       (double)result->server_ns / (double)result->received);
	printf(", \"p50\": %lu, \"p99\": %lu", (unsigned long)percentile(0.5),
	       (unsigned long)percentile(0.99));
}
