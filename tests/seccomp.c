// SPDX-License-Identifier: MIT
#include "seccomp.h"

#include "support.h"

#include <endian.h>
#include <linux/filter.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

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

/* @answer to either of two futex operations. */
#define FUTEX_FILTER(op, other, answer)                                                          \
	{                                                                                        \
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),           \
			BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_futex, 0, 5),                    \
			BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args) + \
								   1 * sizeof(uint64_t) +        \
								   LOW_HALF),                    \
			BPF_STMT(BPF_ALU | BPF_AND | BPF_K, (uint32_t)FUTEX_CMD_MASK),           \
			BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, op, 1, 0),                           \
			BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, other, 0, 1),                        \
			BPF_STMT(BPF_RET | BPF_K, answer),                                       \
			BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),                            \
	}

#define CALL_FILTER(call, answer)                                                      \
	{                                                                              \
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)), \
			BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)(call), 0, 1),   \
			BPF_STMT(BPF_RET | BPF_K, answer),                             \
			BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),                  \
	}

void filter_futex(uint32_t op, uint32_t answer)
{
	struct sock_filter code[] = FUTEX_FILTER(op, op, answer);

	install(code, sizeof(code) / sizeof(code[0]));
}

void filter_swap(uint32_t answer)
{
	filter_futex(FUTEX_SWAP, answer);
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
	struct sock_filter code[] = FUTEX_FILTER(FUTEX_SWAP, FUTEX_WAKE_HINT,
						 SECCOMP_RET_USER_NOTIF);

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
