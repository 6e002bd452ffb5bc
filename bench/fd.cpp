/* SPDX-License-Identifier: MIT */
/* Hand-offs through file descriptors: eventfd(2) and pipe(2), one per side. */
#include <cstdint>
#include <sys/eventfd.h>
#include <unistd.h>

#include "die.h"
#include "hand_off.h"

namespace {

template <class Message>
struct FdPair {
	static constexpr Switches rule = Switches::ONE_PER_ITERATION;

	int readable[2];
	int writable[2];

	static const char *unavailable() { return nullptr; }
	void enter(Side) {}

	void post(Side to)
	{
		Message message = 1;

		if (write(writable[to], &message, sizeof(message)) != sizeof(message))
			die("write");
	}

	void wait(Side me)
	{
		Message message;

		if (read(readable[me], &message, sizeof(message)) != sizeof(message))
			die("read");
	}

	void hand_off(Side me)
	{
		post(other(me));
		wait(me);
	}
};

struct Eventfd : FdPair<uint64_t> {
	Eventfd()
	{
		for (Side side : { MAIN, PARTNER }) {
			readable[side] = writable[side] = eventfd(0, EFD_CLOEXEC);
			if (readable[side] < 0)
				die("eventfd");
		}
	}

	~Eventfd()
	{
		close(readable[MAIN]);
		close(readable[PARTNER]);
	}
};

struct Pipe : FdPair<char> {
	Pipe()
	{
		for (Side side : { MAIN, PARTNER }) {
			int ends[2];

			if (pipe(ends))
				die("pipe");
			readable[side] = ends[0];
			writable[side] = ends[1];
		}
	}

	~Pipe()
	{
		for (Side side : { MAIN, PARTNER }) {
			close(readable[side]);
			close(writable[side]);
		}
	}
};

} // namespace

void add_fd_rows(const Plan &plan)
{
	add_hand_off_rows<Eventfd>("BM_Eventfd", plan);
	add_hand_off_rows<Pipe>("BM_Pipe", plan);
}
