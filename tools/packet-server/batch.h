/* SPDX-License-Identifier: MIT */
/*
 * Packets of one receive and the answers to them. Buffers are allocated once. An answer is sent
 * from the buffer that its packet came in, so nothing is copied. This file knows no tasks: an event
 * loop can use it, too (bench/servers/).
 */
#ifndef PACKET_BATCH_H
#define PACKET_BATCH_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

enum {
	PACKET_MAX = 2048,     /* without GRO */
	GRO_MAX = 65536,       /* bytes of a burst */
	SEGMENTS_MAX = 64,     /* that the kernel sends as one */
	SEGMENTED_MAX = 65000, /* the same in bytes */
	OUT_MAX = 256,	       /* messages of one send */
	MADE_MAX = 256,	       /* packets that are no answers, in one send */
};

/* A received message: one packet; with GRO, several packets of one sender. */
struct burst {
	uint8_t *data;
	uint32_t size;
	uint32_t segment; /* size of each packet but the last, which may be shorter */
	uint32_t answer;  /* bytes of @data to send back, in packets of @segment */
	struct sockaddr_in peer;
	struct burst *next; /* the owner's */
	uint64_t frame;	    /* of AF_XDP: the address in the shared memory */
};

struct batch {
	unsigned int capacity, received, made_count;
	unsigned int used; /* of @in, since batch_prepare() */
	bool gso, gro;
	size_t buffer_size;
	uint8_t *buffers, *made_buffers;
	struct mmsghdr *in, *out;
	struct iovec *in_parts, *out_parts;
	union control *in_controls, *out_controls;
	struct sockaddr_in *peers;
	struct burst *bursts, *made;
	unsigned int gathered, offset; /* how far batch_gather() is */
	size_t bytes;		       /* of what it gathered */
};

/* NULL: no memory. */
struct batch *batch_new(unsigned int capacity, bool gso, bool gro);
void batch_free(struct batch *batch);

/* Makes batch->in ready for recvmmsg(2). */
void batch_prepare(struct batch *batch);

/* What batch_take() did not take. */
struct refuse {
	unsigned int empty, oversized;
};

/* batch->in has @count messages: makes batch->bursts of them. Returns the number of packets. */
unsigned int batch_take(struct batch *batch, unsigned int count, struct refuse *refuse);

/* Makes burst @n of batch->bursts of a message with its control data. False: it is refused. */
bool batch_set(struct batch *batch, unsigned int n, uint8_t *data, size_t size, int flags,
	       const struct sockaddr_in *peer, struct msghdr *control, struct refuse *refuse);

/* A packet that is no answer. NULL: there is no room, send first. */
uint8_t *batch_make(struct batch *batch, const struct sockaddr_in *peer, uint32_t size);

/*
 * Gathers answers in batch->out, for sendmmsg(2). Returns how many messages there are; 0: that was
 * all, and the batch is as good as new. @packets: of these messages.
 */
unsigned int batch_gather(struct batch *batch, unsigned int *packets);

/* The number of packets in a message of batch->out, to send them one by one. */
unsigned int batch_segments(const struct msghdr *message);
/* Packet @n of it as a message of its own. */
struct msghdr batch_one(const struct msghdr *message, unsigned int n, struct iovec *part);

static inline uint32_t segment_size(const struct burst *burst, uint32_t offset)
{
	const uint32_t left = burst->size - offset;

	return left < burst->segment ? left : burst->segment;
}

static inline unsigned int packets_of(const struct burst *burst)
{
	return burst->size == burst->segment ? 1 :
					       (burst->size + burst->segment - 1) / burst->segment;
}

#endif /* PACKET_BATCH_H */
