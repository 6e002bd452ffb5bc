/* SPDX-License-Identifier: MIT */
/* What the libraries have in common. */
#ifndef SWITCHTO_COMMON_H
#define SWITCHTO_COMMON_H

#include <errno.h>

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

#define NSEC_PER_SEC 1000000000LL

static inline int fail(int error)
{
	errno = error;
	return -1;
}

#endif /* SWITCHTO_COMMON_H */
