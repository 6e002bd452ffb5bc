/* SPDX-License-Identifier: MIT */
#ifndef BENCH_DIE_H
#define BENCH_DIE_H

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <unistd.h>

/*
 * A call that can't fail did. There is a second thread somewhere in the middle
 * of a hand-off, so nothing is unwound.
 */
[[noreturn]] inline void die(const char *what, int error = errno)
{
	fprintf(stderr, "%s: %s failed: %s\n", program_invocation_short_name, what,
		strerror(error));
	_exit(1);
}

#endif
