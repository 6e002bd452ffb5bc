/* SPDX-License-Identifier: MIT */
// What the servers share. Each is a program: its descriptor 3 is the listening socket, and it
// writes a line with its name when it is ready; or "left out: " and a reason, before it ends.
#ifndef BENCH_SERVERS_SERVER_H
#define BENCH_SERVERS_SERVER_H

#include "../die.h"
#include "request.h"

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <string>
#include <unistd.h>

constexpr int listener = 3;
constexpr std::size_t buffer_size = 512, stack_size = 64 << 10;

inline void be_ready(const std::string &name)
{
	std::puts(name.c_str());
	std::fflush(stdout);
}

[[noreturn]] inline void leave_out(const std::string &reason)
{
	be_ready("left out: " + reason);
	std::_Exit(0);
}

// How long the request in @buffer, which may be shorter than a whole one, wants to block.
inline std::uint32_t block_of(const char *buffer)
{
	std::uint32_t us;

	std::memcpy(&us, buffer + offsetof(request, block_us), sizeof(us));
	return us;
}

inline void block(std::uint32_t us)
{
	timespec left = { us / 1000000, us % 1000000 * 1000L };

	while (nanosleep(&left, &left))
		if (errno != EINTR)
			die("nanosleep");
}

inline int open_cold()
{
	const char *const name = std::getenv("COLD_FILE");
	const int fd = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;

	if (fd < 0)
		die("COLD_FILE");
	return fd;
}

// The next page of @fd to read, after it has left the page cache.
inline off_t next_cold(int fd)
{
	static std::atomic<std::uint32_t> page;
	const off_t at = static_cast<off_t>(page++ % cold_pages) * cold_page;

	if (posix_fadvise(fd, at, cold_page, POSIX_FADV_DONTNEED))
		die("posix_fadvise");
	return at;
}

// Not in line: its page would be part of each stack.
[[gnu::noinline]] inline void read_cold_page()
{
	static const int fd = open_cold();
	char page[cold_page];

	if (pread(fd, page, sizeof(page), next_cold(fd)) != static_cast<ssize_t>(sizeof(page)))
		die("pread");
}

// As most servers do: whoever waits for the answer, waits.
inline void block_if_asked(const char *buffer)
{
	const std::uint32_t us = block_of(buffer);

	if (us == read_cold)
		read_cold_page();
	else if (us)
		block(us);
}

inline void set_nonblocking(int fd)
{
	if (fcntl(fd, F_SETFL, O_NONBLOCK))
		die("fcntl");
}

#endif
