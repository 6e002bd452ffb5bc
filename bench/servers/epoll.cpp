// SPDX-License-Identifier: MIT
// A loop on epoll, level-triggered, with one read for each event: what is left is found again. That is
// the rule of the scheduling layer, too. With edge-triggered events, each read must go on until EAGAIN:
// a short one does not say that the socket is empty.
#include "server.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace {

void add(int poller, int fd)
{
	epoll_event event = {};

	event.events = EPOLLIN | EPOLLRDHUP;
	event.data.fd = fd;
	if (epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event))
		die("epoll_ctl");
}

void serve(int fd)
{
	char buffer[buffer_size];
	ssize_t n = recv(fd, buffer, sizeof(buffer), 0);

	if (n > 0) {
		block_if_asked(buffer);
		if (send(fd, buffer, static_cast<std::size_t>(n), MSG_NOSIGNAL) != n)
			n = 0;
	}
	if (n == 0 || (n < 0 && errno != EAGAIN))
		close(fd);
}

} // namespace

int main()
{
	const int poller = epoll_create1(0);
	epoll_event events[128];

	set_nonblocking(listener);
	add(poller, listener);
	be_ready("epoll");
	for (;;) {
		const int count = epoll_wait(poller, events, 128, -1);

		for (int i = 0; i < count; i++) {
			if (events[i].data.fd != listener) {
				serve(events[i].data.fd);
				continue;
			}
			for (int fd;
			     (fd = accept4(listener, nullptr, nullptr, SOCK_NONBLOCK)) >= 0;)
				add(poller, fd);
		}
	}
}
