/* SPDX-License-Identifier: MIT */
/*
 * What the files of packet-server share.
 *
 * Each slot of the scheduler has sockets of its own (SO_REUSEPORT), and so its own sessions and
 * buffers: slots share nothing but the options. Within a slot, tasks share a struct udp or struct
 * tcp, whose lock they take: a task that blocked may run beside another one of its slot.
 */
#ifndef PACKET_SERVER_H
#define PACKET_SERVER_H

#include <netinet/in.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <switchto/sched.h>

enum what { UDP_ECHO, UDP_RELIABLE, TCP_ECHO, TCP_HTTP };
enum io { IO_PLAIN, IO_MMSG, IO_RING };
enum steer { STEER_HASH, STEER_CPU, STEER_SESSION };
enum cipher { CIPHER_NONE, CIPHER_USER, CIPHER_AFALG };

enum { KEY_SIZE = 32 };

struct options {
	enum what what;
	struct sockaddr_in address;
	unsigned int slots;
	enum io io;
	unsigned int batch; /* messages of one call */
	bool gso, gro;
	enum steer steer;
	const char *xdp;       /* the interface; NULL: sockets */
	unsigned int sessions; /* or connections, of each slot, at most */
	unsigned int idle;     /* seconds until a session or connection without traffic ends */
	enum cipher cipher;
	uint8_t key[KEY_SIZE];
	const char *root; /* of TCP_HTTP */
	bool json, plot;
	const char *trace;     /* a file; NULL: none */
	unsigned int interval; /* seconds from one report to the next; 0: only at the end */
};

/* 0; or the exit status after a message. */
int parse_options(int argc, char **argv, struct options *options);

/* --- counters: stats.c --- */

#define COUNTERS(X)                                                               \
	X(packets_in)                                                             \
	X(bytes_in)                                                               \
	X(packets_out)                                                            \
	X(bytes_out)                                                              \
	X(receives) /* calls that received something */                           \
	X(sends)    /* calls */                                                   \
	X(parks)    /* how often a session gave its slot away */                  \
	X(begun)    /* sessions or connections */                                 \
	X(ended)                                                                  \
	X(timed_out)	  /* of those that ended: the other side was silent */    \
	X(refused)	  /* no room for a session or connection */               \
	X(no_descriptors) /* accept(2) found none left */                         \
	X(short_packets)  /* nothing in it, or less than a header */              \
	X(oversized)	  /* longer than a buffer */                              \
	X(forged)	  /* not sealed with the key */                           \
	X(malformed)	  /* a header or request that makes no sense */           \
	X(strays)	  /* of a session that does not exist, or not any more */ \
	X(retransmitted)                                                          \
	X(unsent)   /* the kernel refused to send it */                           \
	X(requests) /* HTTP, answered with a file */                              \
	X(errors)   /* HTTP, answered with an error */

enum { BATCH_BUCKETS = 8 };

struct counters {
#define X(name) _Atomic uint64_t name;
	COUNTERS(X)
#undef X
	_Atomic uint64_t batches[BATCH_BUCKETS]; /* receives of 1 message, 2, 3 or 4, up to 8, ... */
	_Atomic int fd;				 /* the socket, for the depth of its queue; or -1 */
};

/* By the slot's tasks, with its lock. */
static inline void count_more(_Atomic uint64_t *counter, uint64_t n)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n,
			      memory_order_relaxed);
}

#define count(counters, name, n) count_more(&(counters)->name, (uint64_t)(n))

void count_batch(struct counters *counters, unsigned int messages);

struct stats;
/* NULL: no memory. */
struct stats *stats_new(const struct options *options);
struct counters *stats_of(struct stats *stats, unsigned int slot);
/* Writes what was counted: as a table, or as a line of JSON. */
void stats_report(struct stats *stats, bool last);
void stats_free(struct stats *stats);

/* --- sockets: net.c --- */

/*
 * An open socket of one slot, bound; or -1 after a message. The first slot's is alone on its port:
 * so a second server fails there, and does not take a part of the packets.
 */
int open_socket(const struct options *options, int type, unsigned int slot);

/* --- the end: main.c --- */

/*
 * SIGINT or SIGTERM has come. All tasks are canceled then, but a call that need not wait does not
 * say so. Whatever repeats such calls looks here.
 */
extern atomic_bool server_over;

static inline bool is_server_over(void)
{
	return atomic_load_explicit(&server_over, memory_order_relaxed);
}

/* --- engines: udp.c, tcp.c --- */

struct udp;
struct tcp;
/* The tasks of one slot; they are for switchto_spawn(). NULL after a message. */
struct udp *udp_new(const struct options *options, unsigned int slot, struct counters *counters);
void udp_main(void *udp);
void udp_free(struct udp *udp);
struct tcp *tcp_new(const struct options *options, unsigned int slot, struct counters *counters);
void tcp_main(void *tcp);
void tcp_free(struct tcp *tcp);

/* The calling task's thread runs on the CPU of this slot from now on. */
void stay_on_cpu_of(unsigned int slot);

/* CLOCK_MONOTONIC, ns. */
int64_t now_ns(void);
struct timespec as_timespec(int64_t ns);

/* "packet-server: " and the text, with the reason of errno if @error is not 0. */
void complain(int error, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif /* PACKET_SERVER_H */
