/* SPDX-License-Identifier: MIT */
/*
 * The futex(2) operations that the libraries issue, on private futexes. Those whose names end in
 * _shared are on shared ones, for door.c. Each returns 0 or the error number, except futex_answer()
 * and futex_wake_hinted(), see there. errno may change.
 */
#ifndef SWITCHTO_FUTEX_H
#define SWITCHTO_FUTEX_H

#include "call.h"

#include <linux/futex.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>

/*
 * kernel/patches/: wake one waiter on uaddr2, then wait on uaddr; either address may
 * be NULL. The number is far from those that Linux gives out one after the other. So
 * a kernel without the patches answers ENOSYS, whatever it comes to have: 13, which
 * the series of 2020 used, became FUTEX_LOCK_PI2 in Linux 5.14. For the same reason
 * this is not whatever a header calls FUTEX_SWAP.
 */
#define SWITCHTO_FUTEX_SWAP 96

typedef _Atomic uint32_t futex_word;

/*
 * ThreadSanitizer keeps a signal back until the thread makes a call that it knows to
 * block. These hooks tell it of the system calls that are made here (from LLVM 19 on;
 * before that the hooks do nothing, and GCC has none).
 */
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#include <sanitizer/linux_syscall_hooks.h>
#endif
#endif
#ifndef __sanitizer_syscall_pre_futex
#define __sanitizer_syscall_pre_futex(word, op, val, timeout, word2, val3) ((void)0)
#define __sanitizer_syscall_post_futex(ret, word, op, val, timeout, word2, val3) ((void)0)
#endif

/*
 * On 32-bit machines SYS_futex takes a 32-bit time, whatever time_t is, and
 * SYS_futex_time64 is there from Linux 5.1 on only.
 */
static inline long futex_number(const struct timespec *timeout)
{
#if defined(SYS_futex_time64)
	if (timeout && sizeof(timeout->tv_sec) > sizeof(long))
		return SYS_futex_time64;
#endif
	return SYS_futex;
}

/* futex(2) itself: its answer, or minus the error number. */
static inline long futex_answer(futex_word *word, int op, uint32_t val,
				const struct timespec *timeout, futex_word *word2, uint32_t val3)
{
	return SYSTEM_CALL(futex_number(timeout), word, op, val, timeout, word2, val3);
}

static inline int futex_call(futex_word *word, int op, uint32_t val, const struct timespec *timeout,
			     futex_word *word2, uint32_t val3)
{
	long ret = futex_answer(word, op, val, timeout, word2, val3);

	return ret < 0 ? (int)-ret : 0;
}

/* The same of an operation that may sleep. That of FUTEX_SWAP may be minus a TID: futex_swap(). */
static inline int futex_sleep(futex_word *word, int op, uint32_t val,
			      const struct timespec *timeout, futex_word *word2, uint32_t val3)
{
	int error;

	__sanitizer_syscall_pre_futex(word, op, val, timeout, word2, val3);
	error = (int)-futex_answer(word, op, val, timeout, word2, val3);
	__sanitizer_syscall_post_futex(error, word, op, val, timeout, word2, val3);
	return error;
}

/* Wakes at most one. That nobody waited is no error. */
static inline int futex_wake(futex_word *word)
{
	return futex_call(word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* Sleeps while *word is @val, until @deadline on CLOCK_MONOTONIC if not NULL. */
static inline int futex_wait(futex_word *word, uint32_t val, const struct timespec *deadline)
{
	/* FUTEX_WAIT is some instructions cheaper but its timeout is relative. */
	if (!deadline)
		return futex_sleep(word, FUTEX_WAIT_PRIVATE, val, NULL, NULL, 0);

	return futex_sleep(word, FUTEX_WAIT_BITSET_PRIVATE, val, deadline, NULL,
			   FUTEX_BITSET_MATCH_ANY);
}

/*
 * Wakes at most one sleeper on @wake, by its TID @hint, then sleeps while *word is @val, for
 * @timeout (relative) at most. The sleeper has been woken if the answer is 0, EAGAIN, EINTR or
 * ETIMEDOUT, or minus a TID: then the caller's place has come back from that thread, see
 * switchto_lend(). With NULL for @wake it only sleeps, as futex_wait() does, and a hint finds the
 * caller.
 */
static inline int futex_swap(futex_word *word, uint32_t val, const struct timespec *timeout,
			     futex_word *wake, uint32_t hint)
{
	return futex_sleep(word, SWITCHTO_FUTEX_SWAP | FUTEX_PRIVATE_FLAG, val, timeout, wake,
			   hint);
}

/*
 * futex_wake() with a hint: FUTEX_SWAP without a wait. How many the kernel says it
 * has woken, 0 or 1, or minus the error number.
 */
static inline long futex_wake_hinted(futex_word *wake, uint32_t hint)
{
	return futex_answer(NULL, SWITCHTO_FUTEX_SWAP | FUTEX_PRIVATE_FLAG, 0, NULL, wake, hint);
}

static inline int futex_wake_shared(futex_word *word)
{
	return futex_call(word, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static inline int futex_wait_shared(futex_word *word, uint32_t val, const struct timespec *deadline)
{
	if (!deadline)
		return futex_sleep(word, FUTEX_WAIT, val, NULL, NULL, 0);

	return futex_sleep(word, FUTEX_WAIT_BITSET, val, deadline, NULL, FUTEX_BITSET_MATCH_ANY);
}

static inline int futex_swap_shared(futex_word *word, uint32_t val, const struct timespec *timeout,
				    futex_word *wake, uint32_t hint)
{
	return futex_sleep(word, SWITCHTO_FUTEX_SWAP, val, timeout, wake, hint);
}

#endif /* SWITCHTO_FUTEX_H */
