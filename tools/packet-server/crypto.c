// SPDX-License-Identifier: MIT
#include "crypto.h"

#include <linux/if_alg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#ifdef HAVE_LIBCRYPTO
#include <openssl/evp.h>
#endif

#ifndef SOL_ALG
#define SOL_ALG 279
#endif

enum { KEY_SIZE = 32, OURS = 0x80 };

struct crypto {
	int algorithm, operation; /* sockets; -1: libcrypto does it */
	void *context;
	uint8_t side;
	uint8_t prefix[4]; /* of nonces */
	uint64_t counter;
};

/* --- the kernel --- */

static const char *kernel_begin(struct crypto *crypto, const uint8_t *key)
{
	struct sockaddr_alg address = { .salg_family = AF_ALG };

	memcpy(address.salg_type, "aead", sizeof("aead"));
	memcpy(address.salg_name, "gcm(aes)", sizeof("gcm(aes)"));
	crypto->algorithm = socket(AF_ALG, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (crypto->algorithm == -1)
		return "this kernel has no AF_ALG (CONFIG_CRYPTO_USER_API_AEAD)";
	if (bind(crypto->algorithm, (struct sockaddr *)&address, sizeof(address)))
		return "this kernel has no gcm(aes) (CONFIG_CRYPTO_GCM), or forbids it (crypto.af_alg_restrict)";
	if (setsockopt(crypto->algorithm, SOL_ALG, ALG_SET_KEY, key, KEY_SIZE) ||
	    setsockopt(crypto->algorithm, SOL_ALG, ALG_SET_AEAD_AUTHSIZE, NULL, TAG_SIZE))
		return "the kernel does not take the key";
	crypto->operation = accept4(crypto->algorithm, NULL, NULL, SOCK_CLOEXEC);
	return crypto->operation == -1 ? "the kernel has no room for an operation" : NULL;
}

static void set_control(struct cmsghdr *header, int type, const void *data, size_t size)
{
	header->cmsg_level = SOL_ALG;
	header->cmsg_type = type;
	header->cmsg_len = CMSG_LEN(size);
	memcpy(CMSG_DATA(header), data, size);
}

/* Sends @in and receives into @out; both have parts for the text and the tag. */
static int kernel_do(struct crypto *crypto, uint32_t operation, const uint8_t *nonce,
		     struct iovec *in, int ins, struct iovec *out, int outs, size_t wanted)
{
	struct {
		// cppcheck-suppress unusedStructMember
		uint32_t length;
		uint8_t nonce[NONCE_SIZE];
	} iv = { .length = NONCE_SIZE };
	union {
		struct cmsghdr header;
		// cppcheck-suppress unusedStructMember
		char space[CMSG_SPACE(sizeof(operation)) + CMSG_SPACE(sizeof(iv))];
	} control = { .space = "" };
	struct msghdr message = { .msg_iov = in,
				  .msg_iovlen = (size_t)ins,
				  .msg_control = &control,
				  .msg_controllen = sizeof(control) };
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);

	memcpy(iv.nonce, nonce, NONCE_SIZE);
	set_control(header, ALG_SET_OP, &operation, sizeof(operation));
	set_control(CMSG_NXTHDR(&message, header), ALG_SET_IV, &iv, sizeof(iv));
	/* The kernel's software ciphers do the operation within the read. */
	if (sendmsg(crypto->operation, &message, 0) < 0)
		return -1;
	return readv(crypto->operation, out, outs) == (ssize_t)wanted ? 0 : -1;
}

/* --- libcrypto --- */

#ifdef HAVE_LIBCRYPTO
static const char *library_begin(struct crypto *crypto, const uint8_t *key)
{
	EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new();

	crypto->context = context;
	if (!context || !EVP_CipherInit_ex(context, EVP_aes_256_gcm(), NULL, key, NULL, 1))
		return "libcrypto has no AES-256-GCM";
	return NULL;
}

static void library_end(struct crypto *crypto)
{
	EVP_CIPHER_CTX_free(crypto->context);
}

static int library_do(struct crypto *crypto, int encrypt, const uint8_t *nonce, uint8_t *text,
		      size_t size, uint8_t *tag)
{
	EVP_CIPHER_CTX *context = crypto->context;
	int length;

	if (!EVP_CipherInit_ex(context, NULL, NULL, NULL, nonce, encrypt) ||
	    (!encrypt && !EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_GCM_SET_TAG, TAG_SIZE, tag)) ||
	    (size && !EVP_CipherUpdate(context, text, &length, text, (int)size)) ||
	    EVP_CipherFinal_ex(context, text + size, &length) <= 0)
		return -1;
	if (encrypt && !EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_GCM_GET_TAG, TAG_SIZE, tag))
		return -1;
	return 0;
}
#else
static const char *library_begin(struct crypto *crypto, const uint8_t *key)
{
	return "built without libcrypto (Debian: libssl-dev)";
}

static void library_end(struct crypto *crypto) {}

static int library_do(struct crypto *crypto, int encrypt, const uint8_t *nonce, uint8_t *text,
		      size_t size, uint8_t *tag)
{
	return -1;
}
#endif

/* --- both --- */

struct crypto *crypto_new(bool kernel, const uint8_t *key, bool server, const char **reason)
{
	struct crypto *crypto = calloc(1, sizeof(*crypto));
	struct timespec time;

	*reason = "no memory";
	if (!crypto)
		return NULL;
	crypto->algorithm = crypto->operation = -1;
	crypto->side = server ? OURS : 0;
	*reason = kernel ? kernel_begin(crypto, key) : library_begin(crypto, key);
	/*
	 * A nonce must never be used twice with a key: not by two slots or clients either, nor after
	 * a restart. So it is random, and goes on from the time.
	 */
	clock_gettime(CLOCK_REALTIME, &time);
	crypto->counter = (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
	if (!*reason &&
	    getrandom(crypto->prefix, sizeof(crypto->prefix), 0) != sizeof(crypto->prefix))
		*reason = "no random numbers";
	if (!*reason)
		return crypto;
	crypto_free(crypto);
	return NULL;
}

void crypto_free(struct crypto *crypto)
{
	if (!crypto)
		return;
	if (crypto->operation != -1)
		close(crypto->operation);
	if (crypto->algorithm != -1)
		close(crypto->algorithm);
	library_end(crypto);
	free(crypto);
}

int crypto_encrypt(struct crypto *crypto, const uint8_t *nonce, uint8_t *text, size_t size,
		   uint8_t *tag)
{
	struct iovec in = { text, size }, out[] = { { text, size }, { tag, TAG_SIZE } };

	if (crypto->operation == -1)
		return library_do(crypto, 1, nonce, text, size, tag);
	return kernel_do(crypto, ALG_OP_ENCRYPT, nonce, &in, 1, out, 2, size + TAG_SIZE);
}

int crypto_decrypt(struct crypto *crypto, const uint8_t *nonce, uint8_t *text, size_t size,
		   const uint8_t *tag)
{
	uint8_t wanted[TAG_SIZE];
	struct iovec in[] = { { text, size }, { wanted, TAG_SIZE } }, out = { text, size };

	memcpy(wanted, tag, TAG_SIZE);
	if (crypto->operation == -1)
		return library_do(crypto, 0, nonce, text, size, wanted);
	return kernel_do(crypto, ALG_OP_DECRYPT, nonce, in, 2, &out, 1, size);
}

int crypto_seal(struct crypto *crypto, uint8_t *packet, size_t size)
{
	const uint64_t counter = crypto->counter++;

	memcpy(packet, crypto->prefix, sizeof(crypto->prefix));
	memcpy(packet + sizeof(crypto->prefix), &counter, sizeof(counter));
	packet[0] = (uint8_t)((packet[0] & ~OURS) | crypto->side);
	return crypto_encrypt(crypto, packet, packet + NONCE_SIZE, size,
			      packet + NONCE_SIZE + size);
}

int crypto_open(struct crypto *crypto, uint8_t *packet, size_t size)
{
	const size_t text = size - CRYPTO_OVERHEAD;

	if (size < CRYPTO_OVERHEAD || (packet[0] & OURS) == crypto->side)
		return -1;
	if (crypto_decrypt(crypto, packet, packet + NONCE_SIZE, text, packet + NONCE_SIZE + text))
		return -1;
	return (int)text;
}
