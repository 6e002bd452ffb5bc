/* SPDX-License-Identifier: MIT */
/* std::counting_semaphore. Compiled as C++20 where the compiler can. */
#include "hand_off.h"

#if __has_include(<semaphore>)
#include <semaphore>
#endif

#ifdef __cpp_lib_semaphore
namespace {

struct StdSemaphore {
	/* libstdc++ yields a few times before it sleeps. */
	static constexpr Switches rule = Switches::REPORTED;

	std::counting_semaphore<> turn[2] = { std::counting_semaphore<>(0),
					      std::counting_semaphore<>(0) };

	static const char *unavailable() { return nullptr; }
	void enter(Side) {}
	void post(Side to) { turn[to].release(); }
	void wait(Side me) { turn[me].acquire(); }

	void hand_off(Side me)
	{
		post(other(me));
		wait(me);
	}
};

} // namespace

void add_semaphore_rows(const Plan &plan)
{
	add_hand_off_rows<StdSemaphore>("BM_StdSemaphore", plan);
}
#else
void add_semaphore_rows(const Plan &plan)
{
	add_missing_hand_off_rows("BM_StdSemaphore", plan,
				  "the compiler has no C++20 std::counting_semaphore");
}
#endif
