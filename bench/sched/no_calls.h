/* SPDX-License-Identifier: MIT */
/*
 * Does a piece of code make system calls? The kernel sends SIGSYS for each that the calling thread
 * makes between forbid() and allow(): syscall user dispatch, Linux 5.11, x86-64. Code that makes
 * none is as fast as ever.
 */
#ifndef BENCH_SCHED_NO_CALLS_H
#define BENCH_SCHED_NO_CALLS_H

#include <csignal>
#include <sys/prctl.h>
#include <ucontext.h>

#include <benchmark/benchmark.h>

#include "../check.h"
#include "../die.h"

class NoCalls {
public:
#if defined(__x86_64__) && defined(PR_SET_SYSCALL_USER_DISPATCH)
	NoCalls()
	{
		struct sigaction action = {};

		action.sa_sigaction = caught;
		action.sa_flags = SA_SIGINFO;
		if (sigaction(SIGSYS, &action, &before_))
			die("sigaction");
		made_ = false;
		watched_ = !prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, 0, 0,
				  &selector_);
	}
	~NoCalls()
	{
		prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_OFF, 0, 0, 0);
		sigaction(SIGSYS, &before_, nullptr);
	}

	void forbid()
	{
		selector_ = SYSCALL_DISPATCH_FILTER_BLOCK;
	}
	void allow()
	{
		selector_ = SYSCALL_DISPATCH_FILTER_ALLOW;
	}

private:
	static inline volatile char selector_ = SYSCALL_DISPATCH_FILTER_ALLOW;
	static inline volatile sig_atomic_t made_;
	struct sigaction before_;

	/* One is enough to know. It is made after all, and so are those that follow. */
	static void caught(int, siginfo_t *, void *context)
	{
		const int length = 2; /* of the instruction syscall */

		selector_ = SYSCALL_DISPATCH_FILTER_ALLOW;
		made_ = true;
		static_cast<ucontext_t *>(context)->uc_mcontext.gregs[REG_RIP] -= length;
	}
#else
	NoCalls() = default;

	void forbid() {}
	void allow() {}

private:
	static constexpr bool made_ = false;
#endif
	bool watched_ = false;

public:
	NoCalls(const NoCalls &) = delete;
	NoCalls &operator=(const NoCalls &) = delete;

	/* Without a counter, this machine doesn't tell. */
	void check(benchmark::State &state) const
	{
		if (watched_)
			state.counters["calls"] = made_;
		if (made_)
			invalid(state, "a system call, wanted none");
	}
};

#endif
