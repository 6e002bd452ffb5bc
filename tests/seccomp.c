// SPDX-License-Identifier: MIT
#include "seccomp.h"

#include "support.h"

#include <endian.h>
#include <linux/filter.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

/* A filter loads 32 bits at a time. */
#if __BYTE_ORDER == __LITTLE_ENDIAN
#define LOW_HALF 0
#else
#define LOW_HALF 4
#endif

static void install(struct sock_filter *code, unsigned short length)
{
	struct sock_fprog filter = { length, code };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter))
		give_up("seccomp: wanted a filter, got %s; the kernel needs CONFIG_SECCOMP_FILTER",
			strerror(errno));
}

void filter_futex(uint32_t op, uint32_t answer)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_futex, 0, 4),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
			 offsetof(struct seccomp_data, args) + 1 * sizeof(uint64_t) + LOW_HALF),
		BPF_STMT(BPF_ALU | BPF_AND | BPF_K, (uint32_t)FUTEX_CMD_MASK),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, op, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, answer),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};

	install(code, sizeof(code) / sizeof(code[0]));
}

void filter_swap(uint32_t answer)
{
	filter_futex(FUTEX_SWAP, answer);
}

void filter_call(long nr, uint32_t answer)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)nr, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, answer),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};

	install(code, sizeof(code) / sizeof(code[0]));
}
