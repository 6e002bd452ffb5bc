// SPDX-License-Identifier: MIT
/* UDP: a closed loop, in which sessions wait for their answers, and an open one at a rate. */
#include "load.h"

#include <netinet/udp.h>

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

/* A session sends its next burst when it has all of the last one back, or has waited for long. */
static struct result closed_loop(uint64_t packets)
{
	const int64_t begin = now_ns(), cpu = server_time(), patience = NSEC_PER_SEC;
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
		if (now - progress > (int64_t)options.patience * NSEC_PER_SEC) {
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
	const struct timespec timeout = { left / NSEC_PER_SEC, left % NSEC_PER_SEC },
			      none = { 0, 0 };
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

	forget_latencies();
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
	     result.received < result.sent && now_ns() - last < NSEC_PER_SEC;) {
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

int run_udp(void)
{
	struct result result;

	open_sessions(SOCK_DGRAM);
	/* The first packets meet threads and buffers that are new. */
	closed_loop(2 * options.sessions * options.burst);
	forget_latencies();
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
