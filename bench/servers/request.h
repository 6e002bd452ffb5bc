/* SPDX-License-Identifier: MIT */
// What goes over the connections: the answer is the same bytes. server.go has it once more.
#ifndef BENCH_SERVERS_REQUEST_H
#define BENCH_SERVERS_REQUEST_H

#include <cstdint>

struct request {
	std::uint32_t block_us; // so long the server blocks before it answers
	std::uint32_t number;
	char rest[56];
};

static_assert(sizeof(request) == 64, "an echo of 64 bytes");

#endif
