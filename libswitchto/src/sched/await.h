/* SPDX-License-Identifier: MIT */
/* Waits for operations of io_uring. */
#ifndef SWITCHTO_SCHED_AWAIT_H
#define SWITCHTO_SCHED_AWAIT_H

#include "types.h"

enum file_call { FILE_READ, FILE_WRITE, FILE_READV, FILE_WRITEV, FILE_OPENAT, FILE_FSYNC };

/*
 * The system call of that name, for a file, at @offset, on the slot's ring: its result or a negative
 * error number. @length: bytes, vectors or the mode. @flags: of FILE_OPENAT.
 */
long switchto_await_file(enum file_call what, int fd, const void *address, size_t length,
			 off_t offset, int flags, const struct timespec *deadline);

#endif /* SWITCHTO_SCHED_AWAIT_H */
