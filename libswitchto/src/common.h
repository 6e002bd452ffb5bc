/* SPDX-License-Identifier: MIT */
/* What the libraries have in common. */
#ifndef SWITCHTO_COMMON_H
#define SWITCHTO_COMMON_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

#define NSEC_PER_SEC 1000000000LL

static inline int fail(int error)
{
	errno = error;
	return -1;
}

/* The kernel refused what it never refuses: nothing that is promised holds any more. */
static inline __attribute__((cold)) _Noreturn void unexpected(const char *library, const char *what,
							      int error)
{
	fprintf(stderr, "%s: %s: unexpected error %d (%s), giving up\n", library, what, error,
		strerror(error));
	abort();
}

#endif /* SWITCHTO_COMMON_H */
