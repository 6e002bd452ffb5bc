/* SPDX-License-Identifier: MIT */
// The clients of a server: connections, each with one request under way at a time.
#ifndef BENCH_SERVERS_CLIENTS_H
#define BENCH_SERVERS_CLIENTS_H

#include "../histogram.h"
#include "request.h"

#include <ctime>
#include <deque>
#include <netinet/in.h>
#include <vector>

long long read_clock(clockid_t clock);

struct load {
	unsigned long requests;
	// Every 16th request blocks the server for so long; 0: none does.
	std::uint32_t block_us;
	// Open loop: a request is due each so many ns, whether or not others are answered. Closed
	// loop: 0, a connection sends its next request when it has the answer to the last.
	long long interval;
};

// In ns, from the time when a request was due: one that has to wait for a connection, or for a
// client that is late, is not let off that.
struct latencies {
	Histogram all;
	Histogram prompt; // those that ask for no block
};

class clients {
public:
	clients(const sockaddr_in &address, unsigned int count);
	clients(const clients &) = delete;
	clients &operator=(const clients &) = delete;
	~clients();

	latencies run(const load &load);

private:
	struct connection {
		int fd;
		long long due;
		request sent;
	};

	int poller_;
	std::vector<connection> connections_;
	std::deque<connection *> free_;

	int connect_to(const sockaddr_in &address) const;
	static void receive(const connection &from);
};

#endif
