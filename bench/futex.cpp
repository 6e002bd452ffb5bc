/* SPDX-License-Identifier: MIT */
/* Raw futex(2): two words, two threads. The same protocol, in two calls or in one. */
#include "die.h"
#include "futex_call.h"
#include "hand_off.h"
#include "latency.h"

namespace {

struct FutexPair {
	static constexpr Switches rule = Switches::ONE_PER_ITERATION;

	Word words[2];

	void enter(Side) {}

	void post(Side to)
	{
		words[to].turn.store(1, std::memory_order_release);
		if (futex(words[to], FUTEX_WAKE, 1, nullptr) < 0)
			die("FUTEX_WAKE");
	}

	void wait(Side me)
	{
		while (!words[me].turn.load(std::memory_order_acquire))
			slept(futex(words[me], FUTEX_WAIT, 0, nullptr), "FUTEX_WAIT");
		words[me].turn.store(0, std::memory_order_relaxed);
	}

	/* EAGAIN: the turn came before the sleep. */
	static void slept(long result, const char *call)
	{
		if (result < 0 && errno != EAGAIN && errno != EINTR)
			die(call);
	}
};

struct Futex : FutexPair {
	static const char *unavailable() { return nullptr; }

	void hand_off(Side me)
	{
		post(other(me));
		/* No look at the word before the sleep: FUTEX_SWAP has none either. */
		slept(futex(words[me], FUTEX_WAIT, 0, nullptr), "FUTEX_WAIT");
		wait(me);
	}
};

struct FutexSwap : FutexPair {
	static const char *unavailable()
	{
		return have_futex_swap() ? nullptr : "this kernel has no FUTEX_SWAP";
	}

	void hand_off(Side me)
	{
		words[other(me)].turn.store(1, std::memory_order_release);
		slept(futex(words[me], FUTEX_SWAP, 0, &words[other(me)]), "FUTEX_SWAP");
		wait(me);
	}
};

} // namespace

void add_futex_rows(const Plan &plan)
{
	add_hand_off_rows<Futex>("BM_Futex", plan);
}

void add_futex_swap_rows(const Plan &plan)
{
	add_hand_off_rows<FutexSwap>("BM_FutexSwap", plan, HandOffs::CLAIMED);
}

void add_futex_latency_rows(const Plan &plan)
{
	add_latency_rows<FutexSwap>("BM_StampedFutexSwap", plan, HandOffs::CLAIMED);
	add_latency_rows<Futex>("BM_StampedFutex", plan);
}
