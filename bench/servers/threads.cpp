// SPDX-License-Identifier: MIT
// A thread for each connection, which blocks.
#include "server.h"

#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

namespace {

void *serve(void *arg)
{
	const int fd = static_cast<int>(reinterpret_cast<std::intptr_t>(arg));
	char buffer[buffer_size];
	ssize_t n;

	while ((n = recv(fd, buffer, sizeof(buffer), 0)) > 0) {
		block_if_asked(buffer);
		if (send(fd, buffer, static_cast<std::size_t>(n), MSG_NOSIGNAL) != n)
			break;
	}
	close(fd);
	return nullptr;
}

} // namespace

int main()
{
	pthread_attr_t attributes;
	pthread_t thread;

	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, stack_size);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	be_ready("threads");
	for (;;) {
		const std::intptr_t fd = accept(listener, nullptr, nullptr);

		if (fd < 0)
			die("accept");
		errno = pthread_create(&thread, &attributes, serve, reinterpret_cast<void *>(fd));
		if (errno)
			die("pthread_create");
	}
}
