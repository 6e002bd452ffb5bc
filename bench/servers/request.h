/* SPDX-License-Identifier: MIT */
// What goes over the connections: the answer is the same bytes. server.go has it once more.
#ifndef BENCH_SERVERS_REQUEST_H
#define BENCH_SERVERS_REQUEST_H

#include <cstdint>

struct request {
	std::uint32_t block_us; // so long the server blocks before it answers; or:
	std::uint32_t number;
	char rest[56];
};

// The server reads a page of the file that the environment calls COLD_FILE, not in the page cache.
constexpr std::uint32_t read_cold = UINT32_MAX;
constexpr std::uint32_t cold_page = 4096, cold_pages = 4096;

static_assert(sizeof(request) == 64, "an echo of 64 bytes");

#endif
