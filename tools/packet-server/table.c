// SPDX-License-Identifier: MIT
#include "table.h"

#include <stdbool.h>
#include <stdlib.h>
#include <sys/random.h>

int table_init(struct table *table, uint32_t limit)
{
	uint32_t size = 16;

	while (size < limit * 2)
		size *= 2;
	*table = (struct table){ calloc(size, sizeof(*table->entries)), size - 1, 0, limit, 0 };
	if (!table->entries)
		return -1;
	return getrandom(&table->seed, sizeof(table->seed), 0) == sizeof(table->seed) ? 0 : -1;
}

static uint32_t place_of(const struct table *table, const struct key *key)
{
	uint64_t hash = table->seed ^ ((uint64_t)key->address << 16 | key->port);

	hash = (hash ^ hash >> 32) * 0x9e3779b97f4a7c15ULL;
	hash = (hash ^ hash >> 29) * 0xbf58476d1ce4e5b9ULL;
	return (uint32_t)(hash >> 32) & table->mask;
}

static bool same(const struct key *a, const struct key *b)
{
	return a->address == b->address && a->port == b->port;
}

void *table_find(const struct table *table, const struct key *key)
{
	for (uint32_t i = place_of(table, key); table->entries[i].value; i = (i + 1) & table->mask)
		if (same(&table->entries[i].key, key))
			return table->entries[i].value;
	return NULL;
}

int table_add(struct table *table, const struct key *key, void *value)
{
	uint32_t i = place_of(table, key);

	if (table->count == table->limit)
		return -1;
	while (table->entries[i].value)
		i = (i + 1) & table->mask;
	table->entries[i] = (struct entry){ *key, value };
	table->count++;
	return 0;
}

void table_remove(struct table *table, const struct key *key)
{
	uint32_t hole = place_of(table, key);

	while (table->entries[hole].value && !same(&table->entries[hole].key, key))
		hole = (hole + 1) & table->mask;
	if (!table->entries[hole].value)
		return;
	/* Entries after the hole that a search would not reach any more move into it. */
	for (uint32_t i = (hole + 1) & table->mask; table->entries[i].value;
	     i = (i + 1) & table->mask) {
		const uint32_t place = place_of(table, &table->entries[i].key);

		if (((i - place) & table->mask) >= ((i - hole) & table->mask)) {
			table->entries[hole] = table->entries[i];
			hole = i;
		}
	}
	table->entries[hole].value = NULL;
	table->count--;
}
