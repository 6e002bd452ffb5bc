// SPDX-License-Identifier: MIT
/* UDP: the tasks of sessions, which echo packets or read and write a reliable stream. */
#include "udp.h"

/* How long a session stays when it is over, for what the other side may send again. */
static const int64_t linger = 1000000000;

/* --- echo --- */

/* Sends @burst back as it came. */
static void answer(struct udp *udp, struct burst *burst)
{
	uint32_t size;

	/* The lock is the cipher's, too. */
	if (udp->crypto) {
		lock(udp);
		for (uint32_t offset = 0; offset < burst->size; offset += size) {
			size = segment_size(burst, offset);
			crypto_seal(udp->crypto, burst->data + offset, size - CRYPTO_OVERHEAD);
		}
		unlock(udp);
	}
	burst->answer = burst->size;
}

void echo_session(void *arg)
{
	struct session *session = arg;
	struct burst *burst;

	stay_on_cpu_of(session->udp->slot);
	if (session->udp->options->trace)
		switchto_task_name("session");
	while ((burst = next_bursts(session, NULL)))
		for (; burst; burst = burst->next)
			answer(session->udp, burst);
	end_session(session);
}

/* --- the reliable mode --- */

static void take_packets(struct session *session, const struct burst *burst)
{
	const uint32_t head = session->udp->crypto ? NONCE_SIZE : 0,
		       more = session->udp->crypto ? CRYPTO_OVERHEAD : 0;
	struct counters *counters = session->udp->counters;
	const int64_t now = now_ns();

	for (uint32_t offset = 0, size; offset < burst->size; offset += size) {
		enum stream_input what;

		size = segment_size(burst, offset);
		what = size < more ? STREAM_SHORT :
				     stream_input(session->stream, burst->data + offset + head,
						  size - more, now);
		if (what == STREAM_TAKEN)
			continue;
		lock(session->udp);
		if (what == STREAM_SHORT)
			count(counters, short_packets, 1);
		else if (what == STREAM_MALFORMED)
			count(counters, malformed, 1);
		else
			count(counters, strays, 1);
		unlock(session->udp);
	}
}

/* Makes the packets that are to be sent now. They leave with the batch. */
static void make_packets(struct session *session)
{
	struct udp *udp = session->udp;
	const int64_t now = now_ns();
	uint8_t packet[STREAM_PACKET];
	size_t size;

	while ((size = stream_output(session->stream, packet, now))) {
		const uint32_t head = udp->crypto ? NONCE_SIZE : 0,
			       more = udp->crypto ? CRYPTO_OVERHEAD : 0;
		uint8_t *room;

		lock(udp);
		room = batch_make(udp->batch, &session->peer, (uint32_t)size + more);
		if (!room) {
			udp_flush(udp);
			room = batch_make(udp->batch, &session->peer, (uint32_t)size + more);
		}
		if (room) {
			memcpy(room + head, packet, size);
			if (udp->crypto)
				crypto_seal(udp->crypto, room, size);
		}
		unlock(udp);
	}
}

/* Sends what is due, and waits for packets or the time of the next one. False: it is over. */
static bool pump(struct session *session, int64_t until)
{
	struct burst *burst;
	struct timespec deadline;
	int64_t due;

	make_packets(session);
	if (session->stream->gone)
		return false;
	due = stream_due(session->stream);
	if (due > until)
		due = until;
	deadline = as_timespec(due);
	burst = next_bursts(session, due == INT64_MAX ? NULL : &deadline);
	for (; burst; burst = burst->next)
		take_packets(session, burst);
	return !session->idle && !session->udp->over;
}

/* As read(2), of one packet: 0 is the end, -1 a session that is over. */
static int reliable_read(struct session *session, uint8_t *buffer)
{
	const uint8_t *data;
	int n;

	while ((n = stream_read(session->stream, &data)) == -1)
		if (!pump(session, INT64_MAX))
			return -1;
	if (n > 0)
		memcpy(buffer, data, (size_t)n);
	return n;
}

/* All of it, as one packet. */
static int reliable_write(struct session *session, const void *data, size_t size)
{
	while (!stream_can_write(session->stream))
		if (!pump(session, INT64_MAX))
			return -1;
	return stream_write(session->stream, data, size);
}

static void reliable_close(struct session *session)
{
	int64_t until;

	if (reliable_write(session, NULL, 0))
		return;
	while (!stream_all_arrived(session->stream))
		if (!pump(session, INT64_MAX))
			return;
	/* The other side may not know yet that its last packets have arrived. */
	for (until = now_ns() + linger; now_ns() < until;)
		if (!pump(session, until))
			return;
}

void reliable_session(void *arg)
{
	struct session *session = arg;
	uint8_t buffer[STREAM_PAYLOAD];
	int n;

	stay_on_cpu_of(session->udp->slot);
	if (session->udp->options->trace)
		switchto_task_name("session");
	while ((n = reliable_read(session, buffer)) > 0)
		if (reliable_write(session, buffer, (size_t)n))
			break;
	if (n == 0)
		reliable_close(session);
	end_session(session);
}
