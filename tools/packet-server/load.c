// SPDX-License-Identifier: MIT
/*
 * The other side of packet-server: sessions that send packets, check what comes back, and count
 * what is lost. It can start the server, and then also says how much CPU time a packet took there.
 */
#define _GNU_SOURCE
#include "batch.h"
#include "crypto.h"
#include "stream.h"

#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

static const char usage[] =
	"usage: packet-load [options] udp|reliable|tcp ADDRESS:PORT\n"
	"       packet-load [options] udp|reliable|tcp -- SERVER [ARGUMENT...]\n"
	"Prints a line of JSON. With SERVER, starts it, and measures its CPU time, too.\n"
	"  --sessions N         each with a socket of its own (64)\n"
	"  --size BYTES         of the payload of a packet (64)\n"
	"  --burst N            packets that a session sends at once (1)\n"
	"  --packets N          how many to have answered, in all (100000)\n"
	"  --rate N             udp: so many each second, whether or not others are answered\n"
	"  --search             udp: find the highest rate without loss, then run at 0.9 of it\n"
	"  --seconds N          of a run with a rate (60)\n"
	"  --plain              without UDP_SEGMENT and UDP_GRO\n"
	"  --bytes N            reliable: of each session (100000)\n"
	"  --lose, --reorder, --double PERCENT\n"
	"                       reliable: of the packets, in both directions\n"
	"  --seed N             of what is lost (1)\n"
	"  --patience SECONDS   until a run without progress fails (60)\n"
	"  --crypto user|afalg, --key FILE  as the server\n"
	"  --apart              the server on the first CPU, this program on the second\n"
	"  --name TEXT          of the row\n";

enum mode { UDP, RELIABLE, TCP };

static struct {
	enum mode mode;
	unsigned long sessions, size, burst, packets, rate, seconds, bytes, seed, patience;
	unsigned long lose, reorder, twice;
	bool plain, apart, search, sealed, kernel;
	uint8_t key[32];
	const char *name;
	char **server;
	struct sockaddr_in address;
} options = { .sessions = 64,
	      .size = 64,
	      .burst = 1,
	      .packets = 100000,
	      .seconds = 60,
	      .bytes = 100000,
	      .seed = 1,
	      .patience = 60,
	      .name = "" };

static pid_t server_pid;

static _Noreturn void die(const char *what)
{
	fprintf(stderr, "packet-load: %s: %s\n", what, strerror(errno));
	exit(1);
}

static int64_t clock_of(clockid_t clock)
{
	struct timespec time;

	if (clock_gettime(clock, &time))
		die("clock_gettime");
	return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static int64_t now_ns(void)
{
	return clock_of(CLOCK_MONOTONIC);
}

static void *allocate(size_t count, size_t size)
{
	void *made = calloc(count, size);

	if (!made)
		die("calloc");
	return made;
}

/* --- chance, that is the same each time --- */

static uint64_t dice;

static uint64_t next_dice(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15ULL;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ z >> 27) * 0x94d049bb133111ebULL;
	return z ^ z >> 31;
}

static bool chance(unsigned long percent)
{
	return percent && next_dice(&dice) % 100 < percent;
}

/* --- latencies: a histogram with 16 steps for each power of two --- */

enum { STEPS = 16, LATENCIES = 60 * STEPS };

static uint64_t latencies[LATENCIES];

static void add_latency(int64_t ns)
{
	unsigned int power = 0;
	uint64_t value = ns > 0 ? (uint64_t)ns : 0;

	while (value >> power >= 2 * STEPS)
		power++;
	latencies[value < STEPS ? value : power * STEPS + (value >> power)]++;
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

/* --- the server --- */

static void stay_on(int nth)
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
static bool start_server(void)
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

static void stop_server(void)
{
	if (server_pid > 0) {
		kill(server_pid, SIGTERM);
		waitpid(server_pid, NULL, 0);
	}
}

static int64_t server_time(void)
{
	clockid_t clock;

	if (server_pid <= 0 || clock_getcpuclockid(server_pid, &clock))
		return 0;
	return clock_of(clock);
}

/* --- sessions --- */

/* At the start of each packet of udp. */
struct head {
	uint32_t session, number;
	int64_t sent;
};

enum { MISSING = 8192 }; /* a packet that comes back after so many others counts as lost */

struct session {
	int fd;
	uint32_t number;     /* of the next packet */
	uint32_t first, got; /* of the burst under way; how many have come back */
	int64_t begun;
	uint64_t missing[MISSING / 64]; /* a bit for each packet that has not come back */
	/* reliable */
	struct stream stream;
	uint64_t written, checked; /* bytes */
	uint64_t dice_out, dice_in;
	bool closed, over;
	/* tcp */
	size_t received;
};

/* A packet that is late on purpose. */
struct late {
	struct session *session;
	bool in;
	size_t size;
	unsigned int after; /* packets */
	uint8_t data[STREAM_PACKET];
};

static struct session *sessions;
static struct crypto *crypto;
static int poller;
static uint8_t *buffer; /* a burst */
static uint64_t wrong;

static size_t packet_size(void)
{
	return options.size + (options.sealed ? CRYPTO_OVERHEAD : 0);
}

static void open_sessions(int type)
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

static void close_sessions(void)
{
	for (unsigned long i = 0; i < options.sessions; i++)
		close(sessions[i].fd);
	close(poller);
	free(sessions);
}

/* 0, 1, 2 and so on: the content of a packet is a part of them. */
static uint8_t counted[256 + PACKET_MAX];

static const uint8_t *pattern(uint32_t session, uint32_t number, size_t at)
{
	return counted + (session * 7 + number * 13) % 256 + at;
}

static void fill(uint8_t *packet, const struct head *head)
{
	memcpy(packet, head, sizeof(*head));
	memcpy(packet + sizeof(*head), pattern(head->session, head->number, sizeof(*head)),
	       options.size - sizeof(*head));
}

static bool is_right(const uint8_t *packet, size_t size, uint32_t session, struct head *head)
{
	if (size != options.size)
		return false;
	memcpy(head, packet, sizeof(*head));
	return head->session == session &&
	       memcmp(packet + sizeof(*head), pattern(session, head->number, sizeof(*head)),
		      size - sizeof(*head)) == 0;
}

static void send_packets(struct session *session, unsigned long count, uint8_t *data, size_t size)
{
	union {
		struct cmsghdr header;
		// cppcheck-suppress unusedStructMember
		char space[CMSG_SPACE(sizeof(uint16_t))];
	} control = { .header = { CMSG_LEN(sizeof(uint16_t)), SOL_UDP, UDP_SEGMENT } };
	const uint16_t segment = (uint16_t)size;

	memcpy(CMSG_DATA(&control.header), &segment, sizeof(segment));
	while (count) {
		unsigned long now = options.plain ? 1 : count;
		struct iovec part;
		struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };

		if (now > SEGMENTS_MAX)
			now = SEGMENTS_MAX;
		if (now * size > SEGMENTED_MAX)
			now = SEGMENTED_MAX / size;
		part = (struct iovec){ data, now * size };
		if (now > 1) {
			message.msg_control = &control;
			message.msg_controllen = sizeof(control);
		}
		/* A refusal of an earlier packet is reported here; the packet counts as lost. */
		if (sendmsg(session->fd, &message, 0) < 0 && errno != ECONNREFUSED)
			die("sendmsg");
		data += now * size;
		count -= now;
	}
}

static void send_burst(struct session *session)
{
	const size_t offset = options.sealed ? NONCE_SIZE : 0;
	struct head head = { (uint32_t)(session - sessions), 0, now_ns() };
	uint8_t *packet = buffer;

	session->first = session->number;
	session->got = 0;
	session->begun = head.sent;
	for (unsigned long i = 0; i < options.burst; i++, packet += packet_size()) {
		head.number = session->number++;
		session->missing[head.number % MISSING / 64] |= 1ULL << head.number % 64;
		fill(packet + offset, &head);
		if (options.sealed)
			crypto_seal(crypto, packet, options.size);
	}
	send_packets(session, options.burst, buffer, packet_size());
}

/* The next datagrams of a socket: bytes, and the size of each; 0: there is none. */
static size_t receive(int fd, size_t *segment)
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

/* False: it has come back before. */
static bool was_missing(struct session *session, uint32_t number)
{
	uint64_t *bits = &session->missing[number % MISSING / 64];
	const uint64_t bit = 1ULL << number % 64;
	const bool missing = *bits & bit;

	*bits &= ~bit;
	return missing;
}

/* What @session has got back. Returns the number of right packets. */
static unsigned long take_answers(struct session *session)
{
	const uint32_t number = (uint32_t)(session - sessions);
	unsigned long count = 0;
	size_t size, segment;

	while ((size = receive(session->fd, &segment))) {
		const int64_t now = now_ns();

		for (size_t offset = 0; offset < size; offset += segment) {
			const size_t here = size - offset < segment ? size - offset : segment;
			uint8_t *packet = buffer + offset;
			int text = (int)here;
			struct head head;

			if (options.sealed) {
				text = crypto_open(crypto, packet, here);
				packet += NONCE_SIZE;
			}
			if (text < 0 || !is_right(packet, (size_t)text, number, &head)) {
				wrong++;
				continue;
			}
			if (!was_missing(session, head.number)) {
				wrong++;
				continue;
			}
			add_latency(now - head.sent);
			if (head.number - session->first < options.burst)
				session->got++;
			count++;
		}
		if (!options.rate && session->got >= options.burst)
			break;
	}
	return count;
}

struct result {
	uint64_t sent, received;
	int64_t ns, server_ns;
};

/* A session sends its next burst when it has all of the last one back, or has waited for long. */
static struct result closed_loop(uint64_t packets)
{
	const int64_t begin = now_ns(), cpu = server_time(), patience = 1000000000;
	struct result result = { 0, 0, 0, 0 };
	struct epoll_event events[128];
	int64_t looked = begin, progress = begin;

	for (unsigned long i = 0; i < options.sessions; i++, result.sent += options.burst)
		send_burst(&sessions[i]);
	while (result.received < packets) {
		const int count = epoll_wait(poller, events, 128, 200);
		const int64_t now = now_ns();

		for (int i = 0; i < count; i++) {
			struct session *session = &sessions[events[i].data.u32];

			result.received += take_answers(session);
			progress = now;
			if (session->got >= options.burst && result.received < packets) {
				send_burst(session);
				result.sent += options.burst;
			}
		}
		if (now - progress > (int64_t)options.patience * 1000000000) {
			fprintf(stderr, "packet-load: no answer in %lu s\n", options.patience);
			exit(1);
		}
		if (now - looked < patience)
			continue;
		looked = now;
		for (unsigned long i = 0; i < options.sessions; i++)
			if (now - sessions[i].begun > patience) {
				send_burst(&sessions[i]);
				result.sent += options.burst;
			}
	}
	result.server_ns = server_time() - cpu;
	result.ns = now_ns() - begin;
	/* What is on its way belongs to this run: not lost, and not the next one's. */
	for (bool more = true; more;) {
		const int count = epoll_wait(poller, events, 128, 200);

		more = count > 0;
		for (int i = 0; i < count; i++)
			result.received += take_answers(&sessions[events[i].data.u32]);
	}
	return result;
}

/* --- a rate --- */

/*
 * What waits in the server's sockets, in bytes, as /proc/net/udp has it: that of the server, which
 * may be in another network namespace.
 */
static unsigned long queue_of_server(unsigned long *drops)
{
	unsigned long all = 0, bytes, dropped;
	unsigned int port;
	char line[256];
	FILE *file;

	snprintf(line, sizeof(line), "/proc/%d/net/udp", server_pid > 0 ? server_pid : getpid());
	file = fopen(line, "re");
	*drops = 0;
	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line,
			   " %*d: %*x:%x %*x:%*x %*x %*x:%lx %*x:%*x %*x %*d %*d %*d %*d %*x %lu",
			   &port, &bytes, &dropped) == 3 &&
		    htons((uint16_t)port) == options.address.sin_port) {
			all += bytes;
			*drops += dropped;
		}
	if (file)
		fclose(file);
	return all;
}

/* Waits for answers until @deadline, at most. */
static void take_all(struct result *result, int64_t deadline)
{
	const int64_t left = deadline - now_ns();
	const struct timespec timeout = { left / 1000000000, left % 1000000000 }, none = { 0, 0 };
	struct epoll_event events[128];
	const int count = epoll_pwait2(poller, events, 128, left > 0 ? &timeout : &none, NULL);

	if (count == -1 && errno != EINTR)
		die("epoll_pwait2");
	for (int i = 0; i < count; i++)
		result->received += take_answers(&sessions[events[i].data.u32]);
}

/* Packets that have no answer yet, wherever they wait: the most in each half of a run. */
struct backlog {
	uint64_t first, second;
	unsigned long queue; /* the most in the server's sockets, in bytes */
};

static struct result open_loop(unsigned long rate, double seconds, struct backlog *backlog)
{
	const int64_t begin = now_ns(), cpu = server_time(), end = begin + (int64_t)(seconds * 1e9);
	const double interval = 1e9 * (double)options.burst / (double)rate;
	struct result result = { 0, 0, 0, 0 };
	int64_t looked = begin, last, due;
	uint64_t bursts = 0, before;
	unsigned long drops, queue;

	memset(latencies, 0, sizeof(latencies));
	*backlog = (struct backlog){ 0, 0, 0 };
	for (int64_t now = begin; now < end; now = now_ns()) {
		uint64_t *most = now - begin < end - now ? &backlog->first : &backlog->second;

		while ((due = begin + (int64_t)((double)bursts * interval)) <= now) {
			send_burst(&sessions[bursts++ % options.sessions]);
			result.sent += options.burst;
			if (bursts % 16 == 0)
				take_all(&result, 0);
		}
		if (now - looked > 20000000) {
			queue = queue_of_server(&drops);
			if (queue > backlog->queue)
				backlog->queue = queue;
			looked = now;
		}
		take_all(&result, due < end ? due : end);
		if (result.sent - result.received > *most)
			*most = result.sent - result.received;
	}
	result.ns = now_ns() - begin;
	result.server_ns = server_time() - cpu;
	/* Until all are there, or none has come for a second. */
	for (last = now_ns(), before = result.received;
	     result.received < result.sent && now_ns() - last < 1000000000;) {
		take_all(&result, now_ns() + 50000000);
		if (result.received != before) {
			before = result.received;
			last = now_ns();
		}
	}
	return result;
}

/*
 * Without loss, and really at that rate. A backlog that grows is twice as long at the end as in the
 * middle: such a run only ends before the queue is full.
 */
static bool holds(unsigned long rate)
{
	struct backlog backlog;
	const struct result result = open_loop(rate, 1, &backlog);

	return result.received == result.sent && (double)result.sent > 0.98 * (double)rate &&
	       backlog.second < backlog.first + backlog.first / 2 + 16 * options.burst;
}

/* @near: that of a closed loop, to begin with. */
static unsigned long highest_rate(unsigned long near)
{
	unsigned long good = 0, bad = near / 2 + options.burst;

	while (bad < 100000000 && holds(bad)) {
		good = bad;
		bad *= 2;
	}
	for (int i = 0; i < 6; i++) {
		const unsigned long middle = good + (bad - good) / 2;

		if (middle && holds(middle))
			good = middle;
		else
			bad = middle;
	}
	return good;
}

/* --- reports --- */

static void print_result(const char *mode, const struct result *result)
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

static int run_udp(void)
{
	struct result result;

	open_sessions(SOCK_DGRAM);
	/* The first packets meet threads and buffers that are new. */
	closed_loop(2 * options.sessions * options.burst);
	memset(latencies, 0, sizeof(latencies));
	wrong = 0;
	if (options.rate || options.search) {
		unsigned long rate = options.rate, highest = 0, before, after;
		struct backlog backlog;

		if (options.search) {
			result = closed_loop(options.packets);
			wrong = 0;
			options.rate = 1;
			highest = highest_rate(
				(unsigned long)(1e9 * (double)result.received / (double)result.ns));
			rate = highest - highest / 10;
		}
		if (!rate) {
			fputs("packet-load: --search: even the lowest rate loses packets\n",
			      stderr);
			return 1;
		}
		queue_of_server(&before);
		result = open_loop(rate, (double)options.seconds, &backlog);
		queue_of_server(&after);
		print_result("rate", &result);
		printf(", \"rate\": %lu, \"highest\": %lu, \"backlog\": %lu, "
		       "\"queue_bytes\": %lu, \"drops\": %lu}\n",
		       rate, highest,
		       (unsigned long)(backlog.first > backlog.second ? backlog.first :
									backlog.second),
		       backlog.queue, after - before);
	} else {
		result = closed_loop(options.packets);
		print_result("udp", &result);
		puts("}");
	}
	close_sessions();
	return wrong ? 1 : 0;
}

/* --- reliable --- */

enum { LATE = 64 };

static struct late late_packets[LATE];

static void deliver(struct session *session, bool in, uint8_t *data, size_t size)
{
	if (in) {
		stream_input(&session->stream, data, size, now_ns());
		return;
	}
	if (options.sealed) {
		uint8_t sealed[STREAM_PACKET + CRYPTO_OVERHEAD];

		memcpy(sealed + NONCE_SIZE, data, size);
		crypto_seal(crypto, sealed, size);
		if (send(session->fd, sealed, size + CRYPTO_OVERHEAD, 0) < 0 &&
		    errno != ECONNREFUSED)
			die("send");
	} else if (send(session->fd, data, size, 0) < 0 && errno != ECONNREFUSED) {
		die("send");
	}
}

/* A packet on its way, as a bad network has it. */
static void pass(struct session *session, bool in, uint8_t *data, size_t size)
{
	for (int i = 0; i < LATE; i++) {
		struct late *late = &late_packets[i];

		if (late->session && --late->after == 0) {
			struct session *whose = late->session;

			late->session = NULL;
			deliver(whose, late->in, late->data, late->size);
		}
	}
	if (chance(options.lose))
		return;
	if (chance(options.twice))
		deliver(session, in, data, size);
	if (chance(options.reorder))
		for (int i = 0; i < LATE; i++) {
			struct late *late = &late_packets[i];

			if (late->session || size > sizeof(late->data))
				continue;
			*late = (struct late){
				session, in, size, 1 + (unsigned int)(next_dice(&dice) % 8), { 0 }
			};
			memcpy(late->data, data, size);
			return;
		}
	deliver(session, in, data, size);
}

/* Writes as much as there is room for, reads and checks what has come, sends what is due. */
static void go_on(struct session *session)
{
	uint8_t packet[STREAM_PACKET];
	const uint8_t *data;
	size_t size;
	int n;

	while (!session->closed && stream_can_write(&session->stream)) {
		size = options.bytes - session->written;
		if (size > STREAM_PAYLOAD)
			size = 1 + next_dice(&dice) % STREAM_PAYLOAD;
		for (size_t i = 0; i < size; i++)
			packet[i] = (uint8_t)next_dice(&session->dice_out);
		if (stream_write(&session->stream, packet, size))
			die("stream_write");
		session->written += size;
		session->closed = size == 0;
	}
	while ((n = stream_read(&session->stream, &data)) > 0)
		for (int i = 0; i < n; i++, session->checked++)
			if (data[i] != (uint8_t)next_dice(&session->dice_in))
				wrong++;
	if (n == 0 && stream_all_arrived(&session->stream))
		session->over = true;
	while ((size = stream_output(&session->stream, packet, now_ns())))
		pass(session, false, packet, size);
}

static void take_stream(struct session *session)
{
	size_t size, segment;

	while ((size = receive(session->fd, &segment)))
		for (size_t offset = 0; offset < size; offset += segment) {
			const size_t here = size - offset < segment ? size - offset : segment;
			uint8_t *packet = buffer + offset;
			int text = (int)here;

			if (options.sealed) {
				text = crypto_open(crypto, packet, here);
				packet += NONCE_SIZE;
			}
			if (text > 0)
				pass(session, true, packet, (size_t)text);
		}
}

static int run_reliable(void)
{
	const int64_t begin = now_ns(), cpu = server_time();
	unsigned long over = 0, gone = 0, bytes = 0, again = 0;
	int64_t progress = begin;

	dice = options.seed;
	open_sessions(SOCK_DGRAM);
	for (unsigned long i = 0; i < options.sessions; i++) {
		stream_init(&sessions[i].stream, (uint32_t)(options.seed * 65536 + i));
		sessions[i].dice_out = sessions[i].dice_in = options.seed + i;
		go_on(&sessions[i]);
	}
	while (over + gone < options.sessions) {
		struct epoll_event events[128];
		const int count = epoll_wait(poller, events, 128, 5);
		const int64_t now = now_ns();

		for (int i = 0; i < count; i++)
			take_stream(&sessions[events[i].data.u32]);
		over = gone = 0;
		for (unsigned long i = 0; i < options.sessions; i++) {
			struct session *session = &sessions[i];
			const uint64_t before = session->checked;

			if (!session->over)
				go_on(session);
			else if (stream_due(&session->stream) <= now)
				go_on(session); /* its last acknowledgement, once more */
			if (session->checked != before)
				progress = now;
			over += session->over;
			gone += !session->over && session->stream.gone;
		}
		if (now - progress > (int64_t)options.patience * 1000000000)
			break;
	}
	for (unsigned long i = 0; i < options.sessions; i++) {
		bytes += sessions[i].checked;
		again += sessions[i].stream.retransmitted;
		stream_end(&sessions[i].stream);
	}
	printf("{\"server\": \"%s\", \"mode\": \"reliable\", \"sessions\": %lu, \"over\": %lu, "
	       "\"bytes\": %lu, \"wrong\": %lu, \"retransmitted\": %lu, \"seconds\": %.3f, "
	       "\"server_s\": %.3f}\n",
	       options.name, options.sessions, over, bytes, (unsigned long)wrong, again,
	       (double)(now_ns() - begin) / 1e9, (double)(server_time() - cpu) / 1e9);
	close_sessions();
	return over == options.sessions && bytes == options.sessions * options.bytes && !wrong ? 0 :
												 1;
}

/* --- tcp --- */

static void send_request(struct session *session)
{
	const struct head head = { (uint32_t)(session - sessions), session->number, now_ns() };

	fill(buffer, &head);
	session->begun = head.sent;
	session->received = 0;
	if (send(session->fd, buffer, options.size, MSG_NOSIGNAL) != (ssize_t)options.size)
		die("send");
}

/* True: the answer is whole. */
static bool take_bytes(struct session *session)
{
	const uint32_t number = (uint32_t)(session - sessions);
	const ssize_t n = recv(session->fd, buffer, options.size - session->received, 0);

	if (n <= 0)
		die("recv");
	for (ssize_t i = 0; i < n; i++, session->received++)
		if (session->received >= sizeof(struct head) &&
		    buffer[i] != *pattern(number, session->number, session->received))
			wrong++;
	if (session->received < options.size)
		return false;
	add_latency(now_ns() - session->begun);
	session->number++;
	return true;
}

static int run_tcp(void)
{
	struct result result = { 0, 0, 0, 0 };
	int64_t begin, cpu;

	open_sessions(SOCK_STREAM);
	begin = now_ns();
	cpu = server_time();
	for (unsigned long i = 0; i < options.sessions; i++, result.sent++)
		send_request(&sessions[i]);
	while (result.received < options.packets) {
		struct epoll_event events[128];
		const int count = epoll_wait(poller, events, 128, (int)(options.patience * 1000));

		if (count == 0) {
			fprintf(stderr, "packet-load: no answer in %lu s\n", options.patience);
			return 1;
		}
		for (int i = 0; i < count; i++)
			if (take_bytes(&sessions[events[i].data.u32])) {
				result.received++;
				send_request(&sessions[events[i].data.u32]);
				result.sent++;
			}
	}
	result.ns = now_ns() - begin;
	result.server_ns = server_time() - cpu;
	print_result("tcp", &result);
	puts("}");
	close_sessions();
	return wrong ? 1 : 0;
}

/* --- the command line --- */

static _Noreturn void bad_usage(const char *option, const char *wanted, const char *found)
{
	fprintf(stderr, "packet-load: %s: wanted %s, found '%s'\n", option, wanted, found);
	exit(2);
}

static void read_key(const char *path)
{
	FILE *file = fopen(path, "re");

	if (!file || fread(options.key, 1, sizeof(options.key), file) != sizeof(options.key))
		bad_usage("--key", "a file of 32 bytes", path);
	fclose(file);
}

static void parse_address(const char *text)
{
	const char *colon = strrchr(text, ':');
	char host[INET_ADDRSTRLEN] = "";

	if (!colon || (size_t)(colon - text) >= sizeof(host))
		bad_usage("address", "ADDRESS:PORT", text);
	memcpy(host, text, (size_t)(colon - text));
	options.address.sin_family = AF_INET;
	if (inet_pton(AF_INET, host, &options.address.sin_addr) != 1)
		bad_usage("address", "ADDRESS:PORT", text);
	options.address.sin_port = htons((uint16_t)atol(colon + 1));
}

static const struct option names[] = {
	{ "sessions", required_argument, NULL, 0 }, { "size", required_argument, NULL, 1 },
	{ "burst", required_argument, NULL, 2 },    { "packets", required_argument, NULL, 3 },
	{ "rate", required_argument, NULL, 4 },	    { "seconds", required_argument, NULL, 5 },
	{ "bytes", required_argument, NULL, 6 },    { "lose", required_argument, NULL, 7 },
	{ "reorder", required_argument, NULL, 8 },  { "double", required_argument, NULL, 9 },
	{ "seed", required_argument, NULL, 10 },    { "patience", required_argument, NULL, 11 },
	{ "plain", no_argument, NULL, 'p' },	    { "search", no_argument, NULL, 's' },
	{ "apart", no_argument, NULL, 'a' },	    { "crypto", required_argument, NULL, 'c' },
	{ "key", required_argument, NULL, 'k' },    { "name", required_argument, NULL, 'n' },
	{ "help", no_argument, NULL, 'h' },	    { NULL, 0, NULL, 0 },
};

static void parse_option(int which)
{
	unsigned long *const numbers[] = {
		&options.sessions, &options.size,    &options.burst, &options.packets,
		&options.rate,	   &options.seconds, &options.bytes, &options.lose,
		&options.reorder,  &options.twice,   &options.seed,  &options.patience,
	};

	switch (which) {
	case 'p':
		options.plain = true;
		break;
	case 's':
		options.search = true;
		break;
	case 'a':
		options.apart = true;
		break;
	case 'c':
		options.sealed = true;
		options.kernel = strcmp(optarg, "afalg") == 0;
		if (!options.kernel && strcmp(optarg, "user") != 0)
			bad_usage("--crypto", "user or afalg", optarg);
		break;
	case 'k':
		read_key(optarg);
		break;
	case 'n':
		options.name = optarg;
		break;
	case 'h':
		fputs(usage, stdout);
		exit(0);
	case '?':
		fputs(usage, stderr);
		exit(2);
	default: {
		char *end;

		*numbers[which] = strtoul(optarg, &end, 10);
		if (*optarg < '0' || *optarg > '9' || *end || *numbers[which] > 1000000000 ||
		    (which < 4 && *numbers[which] == 0))
			bad_usage(names[which].name, "a number up to 1000000000", optarg);
	}
	}
}

static void parse(int argc, char **argv)
{
	static const char *const modes[] = { "udp", "reliable", "tcp" };
	int n, mode = 3;

	while ((n = getopt_long(argc, argv, "+", names, NULL)) != -1)
		parse_option(n);
	if (argc - optind >= 2)
		for (mode = 0; mode < 3 && strcmp(argv[optind], modes[mode]) != 0;)
			mode++;
	if (mode == 3 || options.size < sizeof(struct head) || options.size > PACKET_MAX ||
	    options.burst > GRO_MAX / options.size || options.burst * packet_size() > GRO_MAX) {
		fputs(usage, stderr);
		exit(2);
	}
	options.mode = (enum mode)mode;
	if (strcmp(argv[optind + 1], "--") == 0 && argc - optind >= 3)
		options.server = argv + optind + 2;
	else
		parse_address(argv[optind + 1]);
}

/* On one CPU, neither side preempts the other in the middle of a batch. */
static void prepare(void)
{
	const struct sched_param none = { 0 };
	struct rlimit files;
	cpu_set_t cpus;

	if (sched_getaffinity(0, sizeof(cpus), &cpus) == 0 && CPU_COUNT(&cpus) == 1)
		sched_setscheduler(0, SCHED_BATCH, &none);
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	prctl(PR_SET_TIMERSLACK, 1);
}

int main(int argc, char **argv)
{
	const char *reason;
	int status;

	parse(argc, argv);
	prepare();
	if (options.server && !start_server())
		return 0;
	if (options.apart)
		stay_on(1);
	buffer = allocate(1, GRO_MAX + CRYPTO_OVERHEAD);
	for (size_t i = 0; i < sizeof(counted); i++)
		counted[i] = (uint8_t)i;
	if (options.sealed) {
		crypto = crypto_new(options.kernel, options.key, false, &reason);
		if (!crypto) {
			fprintf(stderr, "packet-load: --crypto: %s\n", reason);
			return 1;
		}
	}
	status = options.mode == UDP	  ? run_udp() :
		 options.mode == RELIABLE ? run_reliable() :
					    run_tcp();
	stop_server();
	crypto_free(crypto);
	free(buffer);
	return status;
}
