/* SPDX-License-Identifier: MIT */
/* Links through file descriptors, one for each side: of two threads, or of two processes. */
#ifndef BENCH_DESCRIPTORS_H
#define BENCH_DESCRIPTORS_H

#include <cstdint>
#include <sys/eventfd.h>
#include <unistd.h>

#include "die.h"
#include "hand_off.h"

template <class Message>
struct Descriptors {
	int readable[2];
	int writable[2];

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

	~Descriptors()
	{
		for (Side side : { MAIN, PARTNER }) {
			close(readable[side]);
			if (writable[side] != readable[side])
				close(writable[side]);
		}
	}
};

struct Eventfd : Descriptors<uint64_t> {
	Eventfd()
	{
		for (Side side : { MAIN, PARTNER }) {
			readable[side] = writable[side] = eventfd(0, EFD_CLOEXEC);
			if (readable[side] < 0)
				die("eventfd");
		}
	}
};

struct Pipe : Descriptors<char> {
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
};

#endif /* BENCH_DESCRIPTORS_H */
