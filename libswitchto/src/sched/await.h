/* SPDX-License-Identifier: MIT */
/* Waits for operations of io_uring. */
#ifndef SWITCHTO_SCHED_AWAIT_H
#define SWITCHTO_SCHED_AWAIT_H

#include "types.h"

/*
 * On the slot's ring: system call @number of a file, with its arguments. Its result, or a negative error
 * number.
 */
long switchto_await_file(long number, int fd, long a, long b, long c,
			 const struct timespec *deadline);

#endif /* SWITCHTO_SCHED_AWAIT_H */
