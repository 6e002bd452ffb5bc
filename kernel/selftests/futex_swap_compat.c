// SPDX-License-Identifier: GPL-2.0
/*
 * FUTEX_SWAP by the system call entries for 32-bit programs, called from a
 * 64-bit program.
 */
#include <sys/resource.h>

#include "futex_swap_common.h"

#ifdef __x86_64__

#define IA32_RESTART_SYSCALL	0
#define IA32_GETPID		20
#define IA32_FUTEX		240
#define IA32_FUTEX_TIME64	422

static long int80(long nr, long a1, long a2, long a3, long a4, long a5, long a6)
{
	register long r12 asm("r12") = a6;
	long ret;

	/* The sixth argument goes in rbp, which the compiler may use. */
	asm volatile("xchg %%rbp, %%r12\n\t"
		     "int $0x80\n\t"
		     "xchg %%rbp, %%r12"
		     : "=a" (ret), "+r" (r12)
		     : "0" (nr), "b" (a1), "c" (a2), "d" (a3), "S" (a4), "D" (a5)
		     : "r8", "r9", "r10", "r11", "memory", "cc");
	return ret;
}

static long enter_int80(struct call *c)
{
	long ret = int80(c->nr, (long)c->uaddr, c->op, c->val, (long)c->timeout,
			 (long)c->uaddr2, c->val3);

	if (ret >= 0)
		return ret;
	errno = -ret;
	return -1;
}

/* Without such an entry in the kernel, the instruction raises a signal. */
static bool have_int80(struct __test_metadata *_metadata)
{
	int status;
	pid_t pid;

	pid = fork_child(_metadata);
	if (!pid) {
		struct rlimit no_core = {};

		setrlimit(RLIMIT_CORE, &no_core);
		_exit(int80(IA32_GETPID, 0, 0, 0, 0, 0, 0) != getpid());
	}
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	return status == 0;
}

FIXTURE(int80) {
};

FIXTURE_VARIANT(int80) {
	int nr;
	int opflags;
};

FIXTURE_VARIANT_ADD(int80, futex) {
	.nr = IA32_FUTEX,
};

FIXTURE_VARIANT_ADD(int80, futex_time64) {
	.nr = IA32_FUTEX_TIME64,
};

FIXTURE_VARIANT_ADD(int80, private_futex) {
	.nr = IA32_FUTEX, .opflags = FUTEX_PRIVATE_FLAG,
};

FIXTURE_VARIANT_ADD(int80, private_futex_time64) {
	.nr = IA32_FUTEX_TIME64, .opflags = FUTEX_PRIVATE_FLAG,
};

FIXTURE_SETUP(int80)
{
	if (!have_int80(_metadata))
		SKIP(return, "this kernel has no 32-bit entry (CONFIG_IA32_EMULATION)");
	make_arena(_metadata, MAP_32BIT);
	/* On one CPU, where swaps of private futexes are hand-offs. */
	ASSERT_TRUE(pin_to(0, sched_getcpu()));
	if (variant->nr == IA32_FUTEX &&
	    int80(variant->nr, (long)&arena->own, FUTEX_WAKE, 1, 0, 0, 0) < 0)
		SKIP(return, "this kernel has no time32 (CONFIG_COMPAT_32BIT_TIME)");
}

FIXTURE_TEARDOWN(int80)
{
	if (host)
		kill(host, SIGKILL);
}

static struct call *prepare_int80(struct call *c, int nr, int opflags)
{
	prepare_swap(c, &arena->own, &arena->peer, opflags);
	c->enter = enter_int80;
	c->nr = nr;
	c->restart_nr = IA32_RESTART_SYSCALL;
	return c;
}

/* Sets a relative timeout in the layout of the entry point. */
static void set_int80_timeout(struct call *c, int sec, int nsec)
{
	if (c->nr == IA32_FUTEX) {
		arena->time32[0] = sec;
		arena->time32[1] = nsec;
		c->timeout = arena->time32;
	} else {
		arena->time64[0] = sec;
		arena->time64[1] = nsec;
		c->timeout = arena->time64;
	}
}

TEST_F(int80, sleeps_and_wakes_one_target)
{
	const int fl = variant->opflags;

	queue_waiters(_metadata, 2, fl);
	START_ASLEEP(prepare_int80(swapper, variant->nr, fl));
	end_waiters(_metadata, 2, 1, fl);
	end_swapper(_metadata, swapper, &arena->own, fl);
}

TEST_F(int80, value_changed_eagain_target_woken)
{
	const int fl = variant->opflags;

	queue_waiters(_metadata, 2, fl);
	prepare_int80(swapper, variant->nr, fl)->val++;
	start(_metadata, swapper);
	ASSERT_RETURNS(-1, EAGAIN, swapper);
	end_waiters(_metadata, 2, 1, fl);
}

TEST_F(int80, etimedout_never_early_target_woken)
{
	const int timeout = 10 * NSEC_PER_MSEC;
	const int fl = variant->opflags;

	queue_waiters(_metadata, 2, fl);
	prepare_int80(swapper, variant->nr, fl);
	set_int80_timeout(swapper, 0, timeout);
	start(_metadata, swapper);
	ASSERT_RETURNS(-1, ETIMEDOUT, swapper);
	EXPECT_LE(timeout, nsec(&swapper->end) - nsec(&swapper->start));
	end_waiters(_metadata, 2, 1, fl);
}

TEST_F(int80, long_timeout_sleeps)
{
	const int fl = variant->opflags;

	prepare_int80(swapper, variant->nr, fl);
	set_int80_timeout(swapper, 1000, 0);
	start(_metadata, swapper);
	end_swapper(_metadata, swapper, &arena->own, fl);
}

TEST_F(int80, bad_timespec_einval_nobody_woken)
{
	static const int bad[][2] = { { -1, 0 }, { 0, -1 }, { 0, NSEC_PER_SEC } };
	const int fl = variant->opflags;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		queue_waiters(_metadata, 2, fl);
		prepare_int80(swapper, variant->nr, fl);
		set_int80_timeout(swapper, bad[i][0], bad[i][1]);
		start(_metadata, swapper);
		ASSERT_RETURNS(-1, EINVAL, swapper);
		end_waiters(_metadata, 2, 0, fl);
	}
}

TEST_F(int80, stopped_and_continued_timed_no_second_wake)
{
	const int fl = variant->opflags;
	int i;

	if (fl)
		start_host(_metadata, sched_getcpu());
	queue_waiters(_metadata, 3, fl);
	prepare_int80(swapper, variant->nr, fl);
	set_int80_timeout(swapper, 1000, 0);
	start_apart(_metadata, swapper);
	ASSERT_ASLEEP(swapper);
	for (i = 0; i < 2; i++) {
		ASSERT_TRUE(stop_by_signal(swapper));
		ASSERT_TRUE(continue_by_signal(swapper));
		ASSERT_ASLEEP(swapper);
		check_woken_and_asleep(_metadata, 3, 1);
	}
	end_swapper(_metadata, swapper, &arena->own, fl);
	end_waiters(_metadata, 3, 1, fl);
}

#else

TEST(int80)
{
	SKIP(return, "32-bit entry points are tested on x86_64 only");
}

#endif

int main(int argc, char **argv)
{
	need_futex_swap();
	return test_harness_run(argc, argv);
}
