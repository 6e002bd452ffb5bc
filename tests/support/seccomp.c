// SPDX-License-Identifier: MIT
#include "seccomp.h"

#include "support.h"

#include <endian.h>
#include <linux/filter.h>
#include <sys/ioctl.h>

/* A filter loads 32 bits at a time. */
#if __BYTE_ORDER == __LITTLE_ENDIAN
#define LOW_HALF 0
#else
#define LOW_HALF 4
#endif

static unsigned int install_flags;

void filter_all_threads(void)
{
	install_flags = SECCOMP_FILTER_FLAG_TSYNC;
}

static void install(struct sock_filter *code, unsigned short length)
{
	struct sock_fprog filter = { length, code };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, install_flags, &filter))
		give_up("seccomp: wanted a filter, got %s; the kernel needs CONFIG_SECCOMP_FILTER",
			strerror(errno));
}

#define ARG(n) (offsetof(struct seccomp_data, args) + (n) * sizeof(uint64_t))

#define LOAD(offset) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offset)

/* Without its flags. If the call is another, what comes next is left out: @on steps. */
#define LOAD_FUTEX_OP(on)                                                    \
	LOAD(offsetof(struct seccomp_data, nr)),                             \
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_futex, 0, (on) + 2), \
		LOAD(ARG(1) + LOW_HALF),                                     \
		BPF_STMT(BPF_ALU | BPF_AND | BPF_K, (uint32_t)FUTEX_CMD_MASK)

/* uaddr, all 64 bits of it, tells the two forms apart. */
#define SWAP_FILTER(with_wait, wake_only)                                                \
	{                                                                                \
		LOAD_FUTEX_OP(7), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, FUTEX_SWAP, 0, 6), \
			LOAD(ARG(0)), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 3),      \
			LOAD(ARG(0) + 4), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 1),  \
			BPF_STMT(BPF_RET | BPF_K, wake_only),                            \
			BPF_STMT(BPF_RET | BPF_K, with_wait),                            \
			BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),                    \
	}

#define CALL_FILTER(call, answer)                                                      \
	{                                                                              \
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)), \
			BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)(call), 0, 1),   \
			BPF_STMT(BPF_RET | BPF_K, answer),                             \
			BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),                  \
	}

static uint32_t or_allow(uint32_t answer)
{
	return answer ? answer : SECCOMP_RET_ALLOW;
}

void filter_swap_forms(uint32_t with_wait, uint32_t wake_only)
{
	struct sock_filter code[] = SWAP_FILTER(or_allow(with_wait), or_allow(wake_only));

	install(code, sizeof(code) / sizeof(code[0]));
}

void filter_swap(uint32_t answer)
{
	filter_swap_forms(answer, answer);
}

void filter_futex_range(uint32_t first, uint32_t last, uint32_t answer)
{
	struct sock_filter code[] = {
		LOAD_FUTEX_OP(3),
		BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, first, 0, 2),
		BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, last, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, answer),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};

	install(code, sizeof(code) / sizeof(code[0]));
}

void filter_call(long nr, uint32_t answer)
{
	struct sock_filter code[] = CALL_FILTER(nr, answer);

	install(code, sizeof(code) / sizeof(code[0]));
}

void filter_all_but(const long *nrs, unsigned int n, uint32_t answer)
{
	struct sock_filter code[64];
	unsigned short length = 0;

	if (n > sizeof(code) / sizeof(code[0]) - 3)
		give_up("filter_all_but: wanted at most %zu calls, found %u",
			sizeof(code) / sizeof(code[0]) - 3, n);
	code[length++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
						      offsetof(struct seccomp_data, nr));
	for (unsigned int i = 0; i < n; i++)
		code[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K,
							      (uint32_t)nrs[i], (uint8_t)(n - i),
							      0);
	code[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, answer);
	code[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	install(code, length);
}

static int supervise(struct sock_filter *code, unsigned short length)
{
	struct sock_fprog filter = { length, code };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return -1;
	return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER,
			    &filter);
}

int supervise_swap(void)
{
	struct sock_filter code[] = SWAP_FILTER(SECCOMP_RET_USER_NOTIF, SECCOMP_RET_USER_NOTIF);

	return supervise(code, sizeof(code) / sizeof(code[0]));
}

int supervise_call(long nr)
{
	struct sock_filter code[] = CALL_FILTER(nr, SECCOMP_RET_USER_NOTIF);

	return supervise(code, sizeof(code) / sizeof(code[0]));
}

bool next_call(int listener, struct seccomp_notif *call)
{
	struct pollfd question = { .fd = listener, .events = POLLIN };

	if (poll(&question, 1, 10) != 1 || !(question.revents & POLLIN))
		return false;
	memset(call, 0, sizeof(*call));
	/* ENOENT: who asked is gone. */
	return ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, call) == 0;
}

static bool respond(int listener, const struct seccomp_notif *call, int answer, uint32_t flags)
{
	struct seccomp_notif_resp response = { .id = call->id, .error = answer, .flags = flags };

	return ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &response) == 0;
}

bool answer_call(int listener, const struct seccomp_notif *call, int answer)
{
	return respond(listener, call, answer, 0);
}

bool allow_call(int listener, const struct seccomp_notif *call)
{
	return respond(listener, call, 0, SECCOMP_USER_NOTIF_FLAG_CONTINUE);
}
