/* SPDX-License-Identifier: MIT */
#ifndef BENCH_FUTEX_CALL_H
#define BENCH_FUTEX_CALL_H

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The patched kernel's, whatever an installed header says. */
#undef FUTEX_SWAP
#define FUTEX_SWAP 96

/* A turn to be taken: 1 from when it is given to when it is taken. */
struct alignas(64) Word {
	std::atomic<uint32_t> turn{ 0 };
};
static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t), "a futex is 32 bits");

static inline long futex(Word &word, int op, uint32_t val, Word *word2)
{
	return syscall(SYS_futex, &word.turn, op | FUTEX_PRIVATE_FLAG, val, nullptr,
		       word2 ? &word2->turn : nullptr, 0);
}

/* Does the kernel have FUTEX_SWAP? errno says why not. Has no effect. */
static inline bool have_futex_swap()
{
	Word a, b;

	/* The value differs: a kernel with the operation says EAGAIN. */
	return futex(a, FUTEX_SWAP, 1, &b) < 0 && errno == EAGAIN;
}

#endif
