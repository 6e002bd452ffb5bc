/* SPDX-License-Identifier: MIT */
#ifndef SECCOMP_H
#define SECCOMP_H

#include <linux/seccomp.h>

#include <stdbool.h>
#include <stdint.h>

/* SECCOMP_RET_* with what it carries. 0: no filter. ANSWER(0) is success without effect. */
#define ANSWER(error) (SECCOMP_RET_ERRNO | (error))

/*
 * From now on, across exec, @answer is what the calling thread, and threads and
 * processes that it starts, get from FUTEX_SWAP. Nothing else is touched.
 */
void filter_swap(uint32_t answer);

/*
 * The same, but a filter can tell by an argument which halves the call has:
 * @with_wait for one that waits, @wake_only for one that does not (uaddr is NULL).
 * 0 lets it through.
 */
void filter_swap_forms(uint32_t with_wait, uint32_t wake_only);

/* The same for the futex operations from @first to @last. */
void filter_futex_range(uint32_t first, uint32_t last, uint32_t answer);

/* The filters after this are for the threads that there are already, too. */
void filter_all_threads(void);

/* The same for a whole system call. */
void filter_call(long nr, uint32_t answer);

/* The other way: @answer to every system call but these @n. */
void filter_all_but(const long *nrs, unsigned int n, uint32_t answer);

/*
 * From now on FUTEX_SWAP of the calling thread, and of threads that it starts, waits
 * for a supervisor's answer. Where that hears of it, or -1.
 */
int supervise_swap(void);

/* The same for a whole system call. */
int supervise_call(long nr);

/* false if there is none for a while. */
bool next_call(int listener, struct seccomp_notif *call);

/* 0 or minus an error number, without doing it; or whatever the kernel says. */
bool answer_call(int listener, const struct seccomp_notif *call, int answer);
bool allow_call(int listener, const struct seccomp_notif *call);

#endif /* SECCOMP_H */
