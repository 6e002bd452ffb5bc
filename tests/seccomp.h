/* SPDX-License-Identifier: MIT */
#ifndef SECCOMP_H
#define SECCOMP_H

#include <linux/seccomp.h>

#include <stdint.h>

/* SECCOMP_RET_* with what it carries. 0: no filter. */
#define ANSWER(error) (SECCOMP_RET_ERRNO | (error))

/* From now on, across exec, @answer is what FUTEX_SWAP gets. Nothing else is touched. */
void filter_swap(uint32_t answer);

/* The same for a whole system call. */
void filter_call(long nr, uint32_t answer);

#endif /* SECCOMP_H */
