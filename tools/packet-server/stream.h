/* SPDX-License-Identifier: MIT */
/*
 * The reliable mode: one side of a stream of bytes over packets that may be lost, doubled and
 * reordered. It is a state machine without system calls. The caller says what time it is, hands it
 * the packets that came, and sends those that it makes.
 *
 * A packet has a header of 24 bytes, numbers in network order, and then the payload:
 *
 *	0  u8	0xa7
 *	1  u8	type: DATA, ACK or FIN
 *	2  u16	size of the payload
 *	4  u32	session, the same in all packets of it
 *	8  u32	sequence number, from 0; of an ACK: unused
 *	12 u32	all packets before this number have arrived
 *	16 u64	bit n: packet n + 1 after that number has arrived, too
 *
 * DATA and FIN have sequence numbers, and are sent again until they are acknowledged.
 */
#ifndef PACKET_STREAM_H
#define PACKET_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	STREAM_HEADER = 24,
	STREAM_PAYLOAD = 1200,
	STREAM_PACKET = STREAM_HEADER + STREAM_PAYLOAD,
	STREAM_WINDOW = 32, /* packets under way, and packets kept until they are read */
	STREAM_TRIES = 20,  /* of one packet; then the other side is taken for gone */
};

enum { STREAM_DATA = 1, STREAM_ACK, STREAM_FIN };

struct stream_packet {
	uint8_t *data; /* STREAM_PAYLOAD bytes, allocated at the first use */
	uint16_t size;
	uint8_t type;
	bool there;	/* in: it has arrived. out: it is not acknowledged */
	uint8_t tries;	/* out, like what follows */
	uint8_t passed; /* how many packets that were sent later have arrived */
	int64_t sent, due;
};

struct stream {
	uint32_t session;
	uint32_t next, acked; /* out: the next new number; all before @acked have arrived */
	uint32_t expected,
		read; /* in: all before @expected have arrived, @read is the next to read */
	struct stream_packet out[STREAM_WINDOW], in[STREAM_WINDOW];
	bool ack_due, gone, no_memory;
	int64_t round_trip, deviation; /* ns; 0: not known yet */
	uint64_t retransmitted;
};

enum stream_input { STREAM_TAKEN, STREAM_SHORT, STREAM_MALFORMED, STREAM_STRAY };

void stream_init(struct stream *stream, uint32_t session);
void stream_end(struct stream *stream);

/* May this be the first packet of a session? Then it says which. */
bool stream_begins(const uint8_t *packet, size_t size, uint32_t *session);

enum stream_input stream_input(struct stream *stream, const uint8_t *packet, size_t size,
			       int64_t now);

/*
 * The next payload in order, valid until the next packet is taken in. -1: there is none; 0: the other
 * side has closed.
 */
int stream_read(struct stream *stream, const uint8_t **data);

bool stream_can_write(const struct stream *stream);
/* @size: at most STREAM_PAYLOAD; 0 closes this side. -1: no memory. */
int stream_write(struct stream *stream, const void *data, size_t size);
/* All that was written has arrived. */
bool stream_all_arrived(const struct stream *stream);

/* Makes the next packet that is to be sent now, STREAM_PACKET bytes at most. 0: there is none. */
size_t stream_output(struct stream *stream, uint8_t *packet, int64_t now);
/* When there may be one without a further call; INT64_MAX: never. */
int64_t stream_due(const struct stream *stream);

#endif /* PACKET_STREAM_H */
