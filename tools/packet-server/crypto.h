/* SPDX-License-Identifier: MIT */
/*
 * Packets sealed with AES-256-GCM, by the kernel (AF_ALG) or by libcrypto. A sealed packet is
 *
 *	nonce, 12 bytes | ciphertext | tag, 16 bytes
 *
 * Both sides have the same key. So that neither takes its own packets for those of the other side,
 * the first bit of a nonce says who made it.
 */
#ifndef PACKET_CRYPTO_H
#define PACKET_CRYPTO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	NONCE_SIZE = 12,
	TAG_SIZE = 16,
	CRYPTO_OVERHEAD = NONCE_SIZE + TAG_SIZE,
};

struct crypto;

/* NULL and *@reason: it can't be. @key has 32 bytes. */
struct crypto *crypto_new(bool kernel, const uint8_t *key, bool server, const char **reason);
void crypto_free(struct crypto *crypto);

/* In place: @packet has room for the nonce, @size bytes of text after it, and room for the tag. */
int crypto_seal(struct crypto *crypto, uint8_t *packet, size_t size);
/* The size of the text, at @packet + NONCE_SIZE; or -1: it is not from the other side. */
int crypto_open(struct crypto *crypto, uint8_t *packet, size_t size);

/* The ciphers alone: @text becomes the ciphertext, or the other way; -1: a failure or a wrong tag. */
int crypto_encrypt(struct crypto *crypto, const uint8_t *nonce, uint8_t *text, size_t size,
		   uint8_t *tag);
int crypto_decrypt(struct crypto *crypto, const uint8_t *nonce, uint8_t *text, size_t size,
		   const uint8_t *tag);

#endif /* PACKET_CRYPTO_H */
