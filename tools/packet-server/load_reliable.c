// SPDX-License-Identifier: MIT
/* The reliable mode, over a network that loses, doubles and reorders packets. */
#include "load.h"

/* Chance, that is the same each time. */
static uint64_t dice;

enum { LATE = 64 };

/* A packet that is late on purpose. */
static struct late {
	struct session *session;
	bool in;
	size_t size;
	unsigned int after; /* packets */
	uint8_t data[STREAM_PACKET];
} late_packets[LATE];

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

int run_reliable(void)
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
		if (now - progress > (int64_t)options.patience * NSEC_PER_SEC)
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
