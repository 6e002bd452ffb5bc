/* SPDX-License-Identifier: MIT */
/* The sessions of a slot, by the other side's address. Its size is fixed. */
#ifndef PACKET_TABLE_H
#define PACKET_TABLE_H

#include <netinet/in.h>
#include <stdint.h>

struct key {
	uint32_t address;
	uint16_t port;
};

struct table {
	struct entry {
		struct key key;
		void *value; /* NULL: free */
	} * entries;
	uint32_t mask, count, limit;
	uint64_t seed; /* so that nobody can choose keys that collide */
};

/* 0, or -1: no memory. */
int table_init(struct table *table, uint32_t limit);
void *table_find(const struct table *table, const struct key *key);
/* -1: the table is full. The key must not be there. */
int table_add(struct table *table, const struct key *key, void *value);
void table_remove(struct table *table, const struct key *key);

static inline struct key key_of(const struct sockaddr_in *peer)
{
	return (struct key){ peer->sin_addr.s_addr, peer->sin_port };
}

#endif /* PACKET_TABLE_H */
