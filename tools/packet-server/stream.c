// SPDX-License-Identifier: MIT
#include "stream.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

enum { MAGIC = 0xa7, PASSED = 3 };
enum { TYPE = 1, SIZE = 2, SESSION = 4, SEQUENCE = 8, ACK = 12, SELECTIVE = 16 };

#define MS 1000000LL
static const int64_t first_timeout = 100 * MS, least_timeout = 20 * MS, largest_timeout = 1000 * MS;

static uint32_t get32(const uint8_t *from)
{
	uint32_t n;

	memcpy(&n, from, sizeof(n));
	return be32toh(n);
}

static void put32(uint8_t *to, uint32_t n)
{
	n = htobe32(n);
	memcpy(to, &n, sizeof(n));
}

void stream_init(struct stream *stream, uint32_t session)
{
	*stream = (struct stream){ .session = session };
}

void stream_end(struct stream *stream)
{
	for (int i = 0; i < STREAM_WINDOW; i++) {
		free(stream->out[i].data);
		free(stream->in[i].data);
	}
}

/* The size of the payload, if the header makes sense; else -1. */
static int payload_of(const uint8_t *packet, size_t size)
{
	const uint8_t type = packet[TYPE];
	const int payload = packet[SIZE] << 8 | packet[SIZE + 1];

	if (packet[0] != MAGIC || type < STREAM_DATA || type > STREAM_FIN ||
	    (size_t)payload + STREAM_HEADER != size || payload > STREAM_PAYLOAD)
		return -1;
	/* Only DATA has a payload, and always. */
	return (payload != 0) == (type == STREAM_DATA) ? payload : -1;
}

bool stream_begins(const uint8_t *packet, size_t size, uint32_t *session)
{
	if (size < STREAM_HEADER || payload_of(packet, size) < 0 || packet[TYPE] == STREAM_ACK ||
	    get32(packet + SEQUENCE) >= STREAM_WINDOW || get32(packet + ACK) != 0)
		return false;
	*session = get32(packet + SESSION);
	return true;
}

static struct stream_packet *slot_of(struct stream_packet *packets, uint32_t number)
{
	return &packets[number % STREAM_WINDOW];
}

static void measure(struct stream *stream, int64_t took)
{
	int64_t off;

	if (!stream->round_trip) {
		stream->round_trip = took;
		stream->deviation = took / 2;
		return;
	}
	off = took - stream->round_trip;
	stream->round_trip += off / 8;
	stream->deviation += ((off < 0 ? -off : off) - stream->deviation) / 4;
}

static int64_t timeout_of(const struct stream *stream, unsigned int tries)
{
	int64_t timeout = stream->round_trip ? stream->round_trip + 4 * stream->deviation :
					       first_timeout;

	if (timeout < least_timeout)
		timeout = least_timeout;
	while (--tries && timeout < largest_timeout)
		timeout *= 2;
	return timeout < largest_timeout ? timeout : largest_timeout;
}

static void arrived(struct stream *stream, uint32_t number, int64_t now, int64_t *newest)
{
	struct stream_packet *out = slot_of(stream->out, number);

	if (!out->there)
		return;
	out->there = false;
	if (out->tries == 1) /* else nobody knows which one has arrived */
		measure(stream, now - out->sent);
	if (out->sent > *newest)
		*newest = out->sent;
}

/* What the other side says that it has. False: it says what can't be. */
static bool take_acks(struct stream *stream, uint32_t ack, uint64_t selective, int64_t now)
{
	const uint32_t under_way = stream->next - stream->acked;
	int64_t newest = -1;

	if (ack - stream->acked > under_way)
		/* An old packet that was late; or a number of the future. */
		return stream->acked - ack <= 2 * STREAM_WINDOW;
	for (uint32_t number = stream->acked; number != ack; number++)
		arrived(stream, number, now, &newest);
	for (uint32_t i = 0; i < 64 && selective; i++, selective >>= 1)
		if (selective & 1 && ack + 1 + i - stream->acked < under_way)
			arrived(stream, ack + 1 + i, now, &newest);
	stream->acked = ack;
	if (newest < 0)
		return true;
	/* What was sent before, and is not there, has been passed: after three times it is lost. */
	for (uint32_t number = ack; number != stream->next; number++) {
		struct stream_packet *out = slot_of(stream->out, number);

		if (out->there && out->tries && out->sent < newest && ++out->passed >= PASSED) {
			out->passed = 0;
			out->due = 0;
		}
	}
	return true;
}

static void take_payload(struct stream *stream, const uint8_t *packet, int size)
{
	const uint32_t number = get32(packet + SEQUENCE);
	struct stream_packet *in = slot_of(stream->in, number);

	/* Also if it came before: the acknowledgement may have been lost. */
	stream->ack_due = true;
	if (number - stream->read >= STREAM_WINDOW || number - stream->expected >= STREAM_WINDOW ||
	    in->there)
		return;
	if (size && !in->data && !(in->data = malloc(STREAM_PAYLOAD)))
		return; /* as if it had been lost */
	if (size)
		memcpy(in->data, packet + STREAM_HEADER, (size_t)size);
	in->size = (uint16_t)size;
	in->type = packet[TYPE];
	in->there = true;
	while (stream->expected - stream->read < STREAM_WINDOW &&
	       slot_of(stream->in, stream->expected)->there)
		stream->expected++;
}

enum stream_input stream_input(struct stream *stream, const uint8_t *packet, size_t size,
			       int64_t now)
{
	uint64_t selective;
	int payload;

	if (size < STREAM_HEADER)
		return STREAM_SHORT;
	payload = payload_of(packet, size);
	if (payload < 0)
		return STREAM_MALFORMED;
	if (get32(packet + SESSION) != stream->session)
		return STREAM_STRAY;
	memcpy(&selective, packet + SELECTIVE, sizeof(selective));
	if (!take_acks(stream, get32(packet + ACK), be64toh(selective), now))
		return STREAM_MALFORMED;
	if (packet[TYPE] != STREAM_ACK)
		take_payload(stream, packet, payload);
	return STREAM_TAKEN;
}

int stream_read(struct stream *stream, const uint8_t **data)
{
	struct stream_packet *in = slot_of(stream->in, stream->read);

	if (stream->read == stream->expected)
		return -1;
	if (in->type == STREAM_FIN)
		return 0; /* it stays: nothing comes after it */
	in->there = false;
	stream->read++;
	*data = in->data;
	return in->size;
}

bool stream_can_write(const struct stream *stream)
{
	return stream->next - stream->acked < STREAM_WINDOW;
}

int stream_write(struct stream *stream, const void *data, size_t size)
{
	struct stream_packet *out = slot_of(stream->out, stream->next);

	if (size && !out->data && !(out->data = malloc(STREAM_PAYLOAD)))
		return -1;
	if (size)
		memcpy(out->data, data, size);
	out->size = (uint16_t)size;
	out->type = size ? STREAM_DATA : STREAM_FIN;
	out->there = true;
	out->tries = out->passed = 0;
	out->due = 0;
	stream->next++;
	return 0;
}

bool stream_all_arrived(const struct stream *stream)
{
	return stream->acked == stream->next;
}

static size_t make(const struct stream *stream, uint8_t *packet, uint8_t type, uint32_t number,
		   const struct stream_packet *out)
{
	const uint16_t size = out ? out->size : 0;
	uint64_t selective = 0;

	for (uint32_t i = 0; i + 1 < STREAM_WINDOW; i++) {
		const uint32_t other = stream->expected + 1 + i;

		if (other - stream->read < STREAM_WINDOW && stream->in[other % STREAM_WINDOW].there)
			selective |= 1ULL << i;
	}
	packet[0] = MAGIC;
	packet[TYPE] = type;
	packet[SIZE] = (uint8_t)(size >> 8);
	packet[SIZE + 1] = (uint8_t)size;
	put32(packet + SESSION, stream->session);
	put32(packet + SEQUENCE, number);
	put32(packet + ACK, stream->expected);
	selective = htobe64(selective);
	memcpy(packet + SELECTIVE, &selective, sizeof(selective));
	if (size)
		memcpy(packet + STREAM_HEADER, out->data, size);
	return STREAM_HEADER + (size_t)size;
}

size_t stream_output(struct stream *stream, uint8_t *packet, int64_t now)
{
	for (uint32_t number = stream->acked; number != stream->next; number++) {
		struct stream_packet *out = slot_of(stream->out, number);

		if (!out->there || out->due > now)
			continue;
		if (out->tries == STREAM_TRIES) {
			stream->gone = true;
			return 0;
		}
		if (out->tries++)
			stream->retransmitted++;
		out->sent = now;
		out->due = now + timeout_of(stream, out->tries);
		stream->ack_due = false;
		return make(stream, packet, out->type, number, out);
	}
	if (!stream->ack_due)
		return 0;
	stream->ack_due = false;
	return make(stream, packet, STREAM_ACK, 0, NULL);
}

int64_t stream_due(const struct stream *stream)
{
	int64_t due = INT64_MAX;

	if (stream->ack_due)
		return 0;
	for (uint32_t number = stream->acked; number != stream->next; number++) {
		const struct stream_packet *out = &stream->out[number % STREAM_WINDOW];

		if (out->there && out->due < due)
			due = out->due;
	}
	return due;
}
