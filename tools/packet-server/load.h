/* SPDX-License-Identifier: MIT */
/* What the parts of packet-load share. */
#ifndef LOAD_H
#define LOAD_H

#include "batch.h"
#include "crypto.h"
#include "stream.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

#define NSEC_PER_SEC 1000000000LL

enum mode { UDP, RELIABLE, TCP };

struct options {
	enum mode mode;
	unsigned long sessions, size, burst, packets, rate, seconds, bytes, seed, patience;
	unsigned long lose, reorder, twice;
	bool plain, apart, search, sealed, kernel;
	uint8_t key[32];
	const char *name;
	char **server;
	struct sockaddr_in address;
};

extern struct options options;

/* load_server.c: the process that is measured, and the clocks. */
_Noreturn void die(const char *what);
int64_t clock_of(clockid_t clock);
int64_t now_ns(void);
void *allocate(size_t count, size_t size);
void stay_on(int nth);
extern pid_t server_pid; /* 0: somebody else has started it */
bool start_server(void);
void stop_server(void);
int64_t server_time(void);

/* load_session.c: sockets, what their packets hold, and latencies. */
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

extern struct session *sessions;
extern struct crypto *crypto;
extern int poller;
extern uint8_t *buffer; /* a burst */
extern uint64_t wrong;

size_t packet_size(void);
void make_pattern(void);
void open_sessions(int type);
void close_sessions(void);
const uint8_t *pattern(uint32_t session, uint32_t number, size_t at);
void fill(uint8_t *packet, const struct head *head);
bool is_right(const uint8_t *packet, size_t size, uint32_t session, struct head *head);
size_t receive(int fd, size_t *segment);
void add_latency(int64_t ns);
void forget_latencies(void);

struct result {
	uint64_t sent, received;
	int64_t ns, server_ns;
};

void print_result(const char *mode, const struct result *result);

/* The modes, each in its file. An exit status. */
int run_udp(void);
int run_reliable(void);
int run_tcp(void);

#endif /* LOAD_H */
