/* SPDX-License-Identifier: MIT */
#ifndef SECCOMP_H
#define SECCOMP_H

#include <linux/seccomp.h>

#include <stdint.h>

/* SECCOMP_RET_* with what it carries. 0: no filter. ANSWER(0) is success without effect. */
#define ANSWER(error) (SECCOMP_RET_ERRNO | (error))

/*
 * From now on, across exec, @answer is what the calling thread, and threads and
 * processes that it starts, get from futex operation @op. Nothing else is touched.
 */
void filter_futex(uint32_t op, uint32_t answer);

/* The same of FUTEX_SWAP. */
void filter_swap(uint32_t answer);

/* The same for a whole system call. */
void filter_call(long nr, uint32_t answer);

#endif /* SECCOMP_H */
