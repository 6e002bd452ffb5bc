// SPDX-License-Identifier: MIT
//
// Boost.Fiber: a fiber for each connection, on one thread. Boost.Fiber has no I/O of its own: as
// its documentation says, an algorithm polls when no fiber is ready. Edge-triggered, as epoll.cpp.
#include "server.h"

#include <boost/fiber/all.hpp>
#include <chrono>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace {

using boost::fibers::context;

struct descriptor {
	int fd;
	bool ready; // there was an event since the fiber last waited
	context *waiter;
};

int poller;

class polling : public boost::fibers::algo::algorithm {
public:
	void awakened(context *fiber) noexcept override { fiber->ready_link(ready_); }

	context *pick_next() noexcept override
	{
		if (ready_.empty())
			return nullptr;

		context *fiber = &ready_.front();
		ready_.pop_front();
		return fiber;
	}

	bool has_ready_fibers() const noexcept override { return !ready_.empty(); }

	// No fiber sleeps here, so @until is never.
	void suspend_until(const std::chrono::steady_clock::time_point &) noexcept override
	{
		epoll_event events[128];
		const int count = epoll_wait(poller, events, 128, -1);

		for (int i = 0; i < count; i++) {
			auto *found = static_cast<descriptor *>(events[i].data.ptr);

			found->ready = true;
			if (found->waiter)
				context::active()->schedule(found->waiter);
			found->waiter = nullptr;
		}
	}

	// For other threads: there are none.
	void notify() noexcept override {}

private:
	boost::fibers::scheduler::ready_queue_type ready_;
};

void add(descriptor *of)
{
	epoll_event event = {};

	event.events = EPOLLIN | EPOLLRDHUP | EPOLLET;
	event.data.ptr = of;
	if (epoll_ctl(poller, EPOLL_CTL_ADD, of->fd, &event))
		die("epoll_ctl");
}

void wait_for(descriptor *of)
{
	if (!of->ready) {
		of->waiter = context::active();
		context::active()->suspend();
	}
	of->ready = false;
}

void serve(int fd)
{
	descriptor mine = { fd, false, nullptr };
	char buffer[buffer_size];
	ssize_t n;

	add(&mine);
	for (;;) {
		n = recv(fd, buffer, sizeof(buffer), 0);
		if (n == 0 || (n < 0 && errno != EAGAIN))
			break;
		if (n > 0) {
			block_if_asked(buffer);
			if (send(fd, buffer, static_cast<std::size_t>(n), MSG_NOSIGNAL) != n)
				break;
		}
		if (n != static_cast<ssize_t>(sizeof(buffer)))
			wait_for(&mine);
	}
	close(fd);
}

} // namespace

int main()
{
	descriptor mine = { listener, false, nullptr };
	int fd;

	poller = epoll_create1(0);
	boost::fibers::use_scheduling_algorithm<polling>();
	set_nonblocking(listener);
	add(&mine);
	be_ready("fiber");
	for (;;) {
		wait_for(&mine);
		while ((fd = accept4(listener, nullptr, nullptr, SOCK_NONBLOCK)) >= 0)
			boost::fibers::fiber(boost::fibers::launch::post, std::allocator_arg,
					     boost::fibers::fixedsize_stack(stack_size), serve, fd)
				.detach();
	}
}
