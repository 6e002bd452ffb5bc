/* SPDX-License-Identifier: MIT */
/* What the parts of UDP share: sessions, the one of them that leads, and the batch. */
#ifndef PACKET_UDP_H
#define PACKET_UDP_H

#include "batch.h"
#include "crypto.h"
#include "ring.h"
#include "server.h"
#include "stream.h"
#include "table.h"
#include "xdp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

struct udp {
	const struct options *options;
	unsigned int slot;
	struct counters *counters;
	int fd;
	struct xdp *xdp;   /* instead of the socket */
	struct ring *ring; /* instead of recvmmsg(2) */
	struct crypto *crypto;
	struct switchto_task *main;

	struct switchto_mutex lock; /* of the rest */
	struct batch *batch;
	struct table table;
	atomic_uint busy;   /* sessions that are not done with their packets */
	bool led;	    /* a task receives */
	unsigned int taken; /* packets since the leader gave way */
	atomic_bool over;
	uint32_t epoch; /* the reaper's */
	uint32_t hand;	/* where take_over() looks next */
};

struct session {
	struct udp *udp;
	struct sockaddr_in peer;
	struct switchto_task *task;
	struct session *next;	    /* among those that have packets of the batch */
	struct burst *first, *last; /* its packets of the batch */
	atomic_bool busy, ready;    /* it has packets; it may take them */
	bool taken;		    /* they are in its hands */
	atomic_bool idle;	    /* it is to end */
	uint32_t epoch;		    /* when it last had packets */
	struct stream *stream;	    /* of the reliable mode */
};

static inline void lock(struct udp *udp)
{
	switchto_mutex_lock(&udp->lock);
}

static inline void unlock(struct udp *udp)
{
	switchto_mutex_unlock(&udp->lock);
}

/* udp_io.c */

/* With the lock: sends all answers, and what sessions made. */
void udp_flush(struct udp *udp);

/* The next batch: the number of messages, or -1. Without the lock; only the leader calls it. */
int udp_receive(struct udp *udp, const struct timespec *deadline);

/* udp_sessions.c: the tasks. */
void echo_session(void *session);
void reliable_session(void *session);

/* udp.c */

/*
 * Ends @session's work with its packets, and waits for the next ones. NULL: it is to end, or
 * @deadline has passed. All but the last session of a batch need no lock.
 */
struct burst *next_bursts(struct session *session, const struct timespec *deadline);
void end_session(struct session *session);

#endif /* PACKET_UDP_H */
