// SPDX-License-Identifier: MIT
#include "clients.h"

#include "../die.h"

#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

namespace {

constexpr unsigned long blocks_every = 16;

request nth_request(unsigned long n, std::uint32_t block_us)
{
	request made = {};

	made.block_us = n % blocks_every == blocks_every - 1 ? block_us : 0;
	made.number = static_cast<std::uint32_t>(n);
	return made;
}

} // namespace

long long read_clock(clockid_t clock)
{
	timespec time;

	if (clock_gettime(clock, &time))
		die("clock_gettime");
	return time.tv_sec * 1000000000LL + time.tv_nsec;
}

clients::clients(const sockaddr_in &address, unsigned int count)
	: poller_(epoll_create1(0)),
	  connections_(count)
{
	for (connection &each : connections_) {
		epoll_event event = {};

		each.fd = connect_to(address);
		event.events = EPOLLIN;
		event.data.ptr = &each;
		if (epoll_ctl(poller_, EPOLL_CTL_ADD, each.fd, &event))
			die("epoll_ctl");
		free_.push_back(&each);
	}
}

clients::~clients()
{
	for (const connection &each : connections_)
		close(each.fd);
	close(poller_);
}

int clients::connect_to(const sockaddr_in &address) const
{
	const int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;

	if (fd < 0 || connect(fd, reinterpret_cast<const sockaddr *>(&address), sizeof(address)))
		die("connect");
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return fd;
}

void clients::receive(const connection &from)
{
	char answer[sizeof(request) + 1];

	errno = 0;
	if (recv(from.fd, answer, sizeof(answer), 0) != static_cast<ssize_t>(sizeof(request)) ||
	    std::memcmp(answer, &from.sent, sizeof(request)) != 0)
		die("recv: wanted 64 bytes as they were sent");
}

latencies clients::run(const load &load)
{
	const long long begin = read_clock(CLOCK_MONOTONIC);
	unsigned long sent = 0, answered = 0;
	epoll_event events[128];
	latencies found;

	// Sends what is due at @now. Returns how long until the next is; -1: until there is an answer.
	const auto send_due = [&](long long now) {
		for (; sent < load.requests && !free_.empty(); sent++) {
			connection *const to = free_.front();

			to->due = load.interval ?
					  begin + static_cast<long long>(sent) * load.interval :
					  now;
			if (to->due > now)
				return to->due - now;
			free_.pop_front();
			to->sent = nth_request(sent, load.block_us);
			if (send(to->fd, &to->sent, sizeof(to->sent), MSG_NOSIGNAL) !=
			    static_cast<ssize_t>(sizeof(to->sent)))
				die("send");
		}
		return -1LL;
	};

	for (long long pause = send_due(begin); answered < load.requests;) {
		const timespec limit = { pause / 1000000000, pause % 1000000000 };
		const int count = epoll_pwait2(poller_, events, 128, pause < 0 ? nullptr : &limit,
					       nullptr);

		for (int i = 0; i < count; i++) {
			auto *const from = static_cast<connection *>(events[i].data.ptr);

			receive(*from);

			const long long now = read_clock(CLOCK_MONOTONIC);
			const auto latency = static_cast<std::uint64_t>(now - from->due);
			found.all.add(latency);
			if (!from->sent.block_us)
				found.prompt.add(latency);
			answered++;
			free_.push_back(from);
			pause = send_due(now);
		}
		if (count <= 0)
			pause = send_due(read_clock(CLOCK_MONOTONIC));
	}
	return found;
}
