// SPDX-License-Identifier: MIT
/*
 * The parts of packet-server that know no tasks: streams on a bad network, batches, the table of
 * sessions, and the ciphers with vectors that NIST has published.
 */
#include "batch.h"
#include "crypto.h"
#include "stream.h"
#include "support.h"
#include "table.h"

/* --- streams --- */

enum { BYTES = 100000, FLYING = 128, STEP = 1000000 };

static uint64_t dice;

static unsigned int roll(unsigned int sides)
{
	dice = dice * 6364136223846793005ULL + 1442695040888963407ULL;
	return (unsigned int)(dice >> 33) % sides;
}

/* A network: packets arrive in any order, twice, or never. */
struct network {
	unsigned int lose, twice, count;
	struct flying {
		bool to_b;
		size_t size;
		uint8_t data[STREAM_PACKET];
	} flying[FLYING];
};

static void put_in(struct network *network, bool to_b, const uint8_t *data, size_t size)
{
	if (roll(100) < network->lose || network->count == FLYING)
		return;
	network->flying[network->count].to_b = to_b;
	network->flying[network->count].size = size;
	memcpy(network->flying[network->count++].data, data, size);
	if (roll(100) < network->twice)
		put_in(network, to_b, data, size);
}

static void send_all(struct network *network, bool to_b, struct stream *stream, int64_t now)
{
	uint8_t packet[STREAM_PACKET];
	size_t size;

	while ((size = stream_output(stream, packet, now)))
		put_in(network, to_b, packet, size);
}

/* Half of what is there arrives, in any order. */
static void deliver(struct network *network, struct stream *a, struct stream *b, int64_t now)
{
	for (unsigned int n = (network->count + 1) / 2; n; n--) {
		const unsigned int which = roll(network->count);
		struct flying *flying = &network->flying[which];

		assert_int_equal(stream_input(flying->to_b ? b : a, flying->data, flying->size,
					      now),
				 STREAM_TAKEN);
		*flying = network->flying[--network->count];
	}
}

static uint8_t nth_byte(size_t n)
{
	return (uint8_t)(n * 31 + (n >> 8));
}

static void transfer(uint64_t seed, unsigned int lose, unsigned int twice)
{
	struct network *network = calloc(1, sizeof(*network));
	struct stream a, b;
	size_t written = 0, checked = 0;
	bool closed = false, ended = false;
	int64_t now = 1;

	dice = seed;
	network->lose = lose;
	network->twice = twice;
	stream_init(&a, 7);
	stream_init(&b, 7);
	for (int turn = 0; turn < 1000000 && !(ended && stream_all_arrived(&a)); turn++) {
		const uint8_t *data;
		int n;

		while (!closed && stream_can_write(&a)) {
			uint8_t bytes[STREAM_PAYLOAD];
			size_t size = 1 + roll(STREAM_PAYLOAD);

			if (size > BYTES - written)
				size = BYTES - written;
			for (size_t i = 0; i < size; i++)
				bytes[i] = nth_byte(written++);
			assert_int_equal(stream_write(&a, bytes, size), 0);
			closed = size == 0;
		}
		send_all(network, true, &a, now);
		deliver(network, &a, &b, now);
		while ((n = stream_read(&b, &data)) > 0)
			for (int i = 0; i < n; i++)
				assert_int_equal(data[i], nth_byte(checked++));
		ended = n == 0;
		send_all(network, false, &b, now);
		assert_false(a.gone);
		now += STEP;
	}
	assert_true(ended);
	assert_int_equal(checked, BYTES);
	if (lose)
		assert_true(a.retransmitted > 0);
	stream_end(&a);
	stream_end(&b);
	free(network);
}

TEST(streams_survive)
{
	transfer(1, 0, 0);
	for (uint64_t seed = 2; seed < 2 + (uint64_t)LOOPS(10); seed++)
		transfer(seed, 20, 10);
}

TEST(nobody_answers)
{
	uint8_t packet[STREAM_PACKET];
	struct stream stream;
	int64_t now = 1;

	stream_init(&stream, 1);
	assert_int_equal(stream_due(&stream), INT64_MAX);
	assert_int_equal(stream_write(&stream, "x", 1), 0);
	for (int i = 0; i < STREAM_TRIES; i++) {
		assert_int_equal(stream_output(&stream, packet, now), STREAM_HEADER + 1);
		assert_int_equal(stream_output(&stream, packet, now), 0);
		assert_true(stream_due(&stream) > now);
		now = stream_due(&stream);
	}
	assert_int_equal(stream_output(&stream, packet, now), 0);
	assert_true(stream.gone);
	stream_end(&stream);
}

/* A reader that does not read stops the writer: no memory for more than the window. */
TEST(nobody_reads)
{
	uint8_t packet[STREAM_PACKET];
	struct stream a, b;
	size_t size;

	stream_init(&a, 1);
	stream_init(&b, 1);
	for (int i = 0; i < STREAM_WINDOW; i++)
		assert_int_equal(stream_write(&a, "x", 1), 0);
	assert_false(stream_can_write(&a));
	while ((size = stream_output(&a, packet, 1)))
		assert_int_equal(stream_input(&b, packet, size, 1), STREAM_TAKEN);
	size = stream_output(&b, packet, 1);
	assert_int_equal(stream_input(&a, packet, size, 2), STREAM_TAKEN);
	assert_true(stream_can_write(&a));
	assert_int_equal(stream_write(&a, "y", 1), 0);
	size = stream_output(&a, packet, 3);
	assert_int_equal(stream_input(&b, packet, size, 3), STREAM_TAKEN);
	assert_int_equal(b.expected, STREAM_WINDOW);
	stream_end(&a);
	stream_end(&b);
}

TEST(bad_packets)
{
	uint8_t packet[STREAM_PACKET + 1] = { 0 }, good[STREAM_PACKET];
	struct stream a, b;
	uint32_t session;
	size_t size;

	stream_init(&a, 5);
	stream_init(&b, 5);
	assert_int_equal(stream_write(&a, "hello", 5), 0);
	size = stream_output(&a, good, 1);
	assert_true(stream_begins(good, size, &session));
	assert_int_equal(session, 5);
	assert_int_equal(stream_input(&b, good, STREAM_HEADER - 1, 1), STREAM_SHORT);
	assert_int_equal(stream_input(&b, good, size - 1, 1), STREAM_MALFORMED);
	assert_int_equal(stream_input(&b, packet, sizeof(packet), 1), STREAM_MALFORMED);
	/* It acknowledges what was never sent. */
	memcpy(packet, good, size);
	packet[12] = 0x40;
	assert_int_equal(stream_input(&b, packet, size, 1), STREAM_MALFORMED);
	assert_false(stream_begins(packet, size, &session));
	/* Another session; a number far off. */
	memcpy(packet, good, size);
	packet[7] ^= 1;
	assert_int_equal(stream_input(&b, packet, size, 1), STREAM_STRAY);
	memcpy(packet, good, size);
	packet[8] = 0x7f;
	assert_false(stream_begins(packet, size, &session));
	assert_int_equal(stream_input(&b, packet, size, 1), STREAM_TAKEN);
	assert_int_equal(b.expected, 0);
	/* Anything at all: no crash, and nothing is taken for what it is not. */
	for (int i = 0; i < LOOPS(100000); i++) {
		size = roll(sizeof(packet));
		for (size_t k = 0; k < size && k < 64; k++)
			packet[k] = (uint8_t)roll(256);
		packet[0] = 0xa7;
		packet[1] = (uint8_t)roll(5);
		stream_input(&b, packet, size, 1);
		assert_true(b.expected - b.read <= STREAM_WINDOW);
		assert_true(b.next - b.acked <= STREAM_WINDOW);
	}
	stream_end(&a);
	stream_end(&b);
}

/* --- the table --- */

TEST(table_holds)
{
	static int values[1000];
	struct table table;

	assert_int_equal(table_init(&table, 500), 0);
	for (int turn = 0; turn < LOOPS(50000); turn++) {
		const unsigned int n = roll(1000);
		const struct key key = { n / 100, (uint16_t)(n % 100) };
		void *found = table_find(&table, &key);

		assert_ptr_equal(found, values[n] ? &values[n] : NULL);
		if (found) {
			table_remove(&table, &key);
			values[n] = 0;
		} else if (table_add(&table, &key, &values[n]) == 0) {
			values[n] = 1;
		} else {
			assert_int_equal(table.count, 500);
		}
	}
	free(table.entries);
}

/* --- batches --- */

static void check_gather(bool gso, unsigned int messages_wanted, unsigned int bursts)
{
	struct batch *batch = batch_new(64, gso, true);
	struct refuse refuse = { 0, 0 };
	struct sockaddr_in peer = { .sin_family = AF_INET };
	unsigned int messages = 0, packets = 0, n, now;
	size_t bytes = 0;

	for (unsigned int i = 0; i < bursts; i++) {
		batch_set(batch, i, batch->in_parts[i].iov_base, 950, 0, &peer, NULL, &refuse);
		batch->bursts[i].segment = 100;
		batch->bursts[i].answer = i % 2 ? 950 : 0;
	}
	batch->received = bursts;
	while ((n = batch_gather(batch, &now))) {
		for (unsigned int i = 0; i < n; i++) {
			const struct msghdr *message = &batch->out[i].msg_hdr;
			unsigned int segments = batch_segments(message);

			while (segments--) {
				struct iovec part;

				batch_one(message, segments, &part);
				assert_true(part.iov_len == 100 || part.iov_len == 50);
				bytes += part.iov_len;
			}
		}
		messages += n;
		packets += now;
	}
	assert_int_equal(bytes, bursts / 2 * 950);
	assert_int_equal(packets, bursts / 2 * 10);
	assert_int_equal(messages, messages_wanted);
	batch_free(batch);
}

TEST(answers_are_gathered)
{
	check_gather(true, 32, 64);
	check_gather(false, 320, 64);
}

/* --- ciphers --- */

struct vector {
	const char *key, *nonce, *text, *cipher, *tag;
};

/* AES-256-GCM of 96-bit nonces without further data: cases 13 to 15 of the GCM specification that
 * NIST has, and one of CAVP's gcmEncryptExtIV256. */
static const struct vector vectors[] = {
	{ "0000000000000000000000000000000000000000000000000000000000000000",
	  "000000000000000000000000", "", "", "530f8afbc74536b9a963b4f1c4cb738b" },
	{ "0000000000000000000000000000000000000000000000000000000000000000",
	  "000000000000000000000000", "00000000000000000000000000000000",
	  "cea7403d4d606b6e074ec5d3baf39d18", "d0d1c8a799996bf0265b98b5d48ab919" },
	{ "feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308",
	  "cafebabefacedbaddecaf888",
	  "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
	  "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b391aafd255",
	  "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa"
	  "8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662898015ad",
	  "b094dac5d93471bdec1a502270e3cc6c" },
	{ "31bdadd96698c204aa9ce1448ea94ae1fb4a9a0b3c9d773b51bb1822666b8f22",
	  "0d18e06c7c725ac9e362e1ce", "2db5168e932556f8089a0622981d017d",
	  "fa4362189661d163fcd6a56d8bf0405a", "d636ac1bbedd5cc3ee727dc2ab4a9489" },
};

static size_t bytes_of(const char *hex, uint8_t *to)
{
	size_t size = strlen(hex) / 2;

	for (size_t i = 0; i < size; i++) {
		unsigned int byte;

		assert_int_equal(sscanf(hex + 2 * i, "%2x", &byte), 1);
		to[i] = (uint8_t)byte;
	}
	return size;
}

static void check_cipher(bool kernel)
{
	uint8_t key[32], nonce[NONCE_SIZE], text[64], wanted[64], cipher[64], tag[TAG_SIZE],
		found[TAG_SIZE], packet[64 + CRYPTO_OVERHEAD];
	struct crypto *server, *client;
	const char *reason;

	for (size_t i = 0; i < sizeof(vectors) / sizeof(*vectors); i++) {
		const struct vector *vector = &vectors[i];
		size_t size;

		bytes_of(vector->key, key);
		bytes_of(vector->nonce, nonce);
		size = bytes_of(vector->text, wanted);
		bytes_of(vector->cipher, cipher);
		bytes_of(vector->tag, tag);
		server = crypto_new(kernel, key, true, &reason);
		if (!server && i == 0) {
			printf("left out: %s\n", reason);
			skip();
		}
		/* The kernel's interface has no operation on nothing. */
		if (size || !kernel) {
			memcpy(text, wanted, sizeof(text));
			assert_int_equal(crypto_encrypt(server, nonce, text, size, found), 0);
			assert_memory_equal(text, cipher, size);
			assert_memory_equal(found, tag, TAG_SIZE);
			assert_int_equal(crypto_decrypt(server, nonce, text, size, tag), 0);
			assert_memory_equal(text, wanted, size);
		}
		crypto_free(server);
	}
	/* Packets: from the other side alone, and as they were. */
	server = crypto_new(kernel, key, true, &reason);
	client = crypto_new(kernel, key, false, &reason);
	memcpy(packet + NONCE_SIZE, wanted, 16);
	assert_int_equal(crypto_seal(client, packet, 16), 0);
	assert_int_equal(crypto_open(client, packet, 16 + CRYPTO_OVERHEAD), -1);
	assert_int_equal(crypto_open(server, packet, CRYPTO_OVERHEAD - 1), -1);
	assert_int_equal(crypto_open(server, packet, 16 + CRYPTO_OVERHEAD), 16);
	assert_memory_equal(packet + NONCE_SIZE, wanted, 16);
	assert_int_equal(crypto_seal(client, packet, 16), 0);
	packet[20] ^= 1;
	assert_int_equal(crypto_open(server, packet, 16 + CRYPTO_OVERHEAD), -1);
	crypto_free(server);
	crypto_free(client);
}

TEST(by_library)
{
	check_cipher(false);
}

TEST(by_kernel)
{
	check_cipher(true);
}

int main(void)
{
	return run_group(NULL, NULL, NULL);
}
