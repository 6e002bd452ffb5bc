// SPDX-License-Identifier: MIT
//
// A task of the scheduling layer for each connection, on one slot.
//
// usage: tasks [announced] [parked] [slots] [--trace FILE]
//
// announced: a request that blocks does so in a blocking region. parked: beside 100,000 tasks that
// are parked. slots: a slot for each CPU. --trace: records what the slots do, for switchto-trace.
//
// The name has the backend and the engine that are in use: SWITCHTO_BACKEND and SWITCHTO_ENGINE
// choose them.
#include "server.h"

#include <switchto/sched.h>
#include <switchto/switchto.h>

namespace {

switchto_sched *sched;
bool announced, parked;
constexpr int crowd = 100000;

void *as_argument(int fd)
{
	return reinterpret_cast<void *>(static_cast<std::intptr_t>(fd));
}

int as_fd(void *argument)
{
	return static_cast<int>(reinterpret_cast<std::intptr_t>(argument));
}

void block_announced(std::uint32_t us)
{
	if (switchto_block_begin())
		die("switchto_block_begin");
	block(us);
	if (switchto_block_end())
		die("switchto_block_end");
}

// By the layer: it knows that a file blocks. A descriptor has one position, so each task has its own.
[[gnu::noinline]] void read_page(int *fd)
{
	char page[cold_page];

	if (*fd < 0)
		*fd = open_cold();
	if (lseek(*fd, next_cold(*fd), SEEK_SET) < 0 ||
	    switchto_read(*fd, page, sizeof(page), nullptr) != static_cast<ssize_t>(sizeof(page)))
		die("switchto_read");
}

void serve(void *arg)
{
	const int fd = as_fd(arg);
	int cold = -1;
	char buffer[buffer_size];
	ssize_t n;

	while ((n = switchto_recv(fd, buffer, sizeof(buffer), 0, nullptr)) > 0) {
		const std::uint32_t us = block_of(buffer);

		if (us == read_cold)
			read_page(&cold);
		else if (us)
			announced ? block_announced(us) : block(us);
		if (switchto_send(fd, buffer, static_cast<std::size_t>(n), MSG_NOSIGNAL, nullptr) !=
		    n)
			break;
	}
	switchto_close(fd);
	if (cold >= 0)
		switchto_close(cold);
}

void park(void *)
{
	switchto_park(nullptr);
	die("switchto_park");
}

void accept_all(void *)
{
	int fd;

	be_ready("tasks " + std::string(switchto_backend()) + " " + switchto_sched_engine(sched) +
		 (announced ? " announced" : "") + (parked ? " parked" : ""));
	while ((fd = switchto_accept(listener, nullptr, nullptr, 0, nullptr)) >= 0)
		if (switchto_spawn(nullptr, serve, as_argument(fd), nullptr, nullptr))
			die("switchto_spawn");
	die("switchto_accept");
}

} // namespace

int main(int argc, char **argv)
{
	const char *wanted = std::getenv("SWITCHTO_ENGINE");
	switchto_sched_options options = {};

	options.size = sizeof(options);
	options.slots = 1;
	for (int i = 1; i < argc; i++)
		if (std::strcmp(argv[i], "announced") == 0)
			announced = true;
		else if (std::strcmp(argv[i], "parked") == 0)
			parked = true;
		else if (std::strcmp(argv[i], "slots") == 0)
			options.slots = 0;
		else if (std::strcmp(argv[i], "--trace") == 0 && i + 1 < argc &&
			 switchto_trace_start(argv[++i], 0))
			die("switchto_trace_start");
	options.stack_size = stack_size;
	if (switchto_sched_create(&sched, &options)) {
		if (wanted)
			leave_out("tasks with SWITCHTO_ENGINE=" + std::string(wanted) +
				  ", as switchto_sched_create() says " + std::strerror(errno));
		die("switchto_sched_create");
	}
	// They run first.
	for (int i = 0; parked && i < crowd; i++)
		if (switchto_spawn(sched, park, nullptr, nullptr, nullptr))
			die("switchto_spawn");
	if (switchto_spawn(sched, accept_all, nullptr, nullptr, nullptr) ||
	    switchto_sched_run(sched))
		die("switchto-sched");
}
