/* SPDX-License-Identifier: MIT */
/* absl::Mutex, each side waiting for its own condition. */
#include "hand_off.h"

#ifdef HAVE_ABSL
#include <absl/synchronization/mutex.h>

namespace {

struct GoogleMutex {
	/* Tries for a while before it sleeps, and wakes with the lock held. */
	static constexpr Switches rule = Switches::REPORTED;

	absl::Mutex mutex;
	bool turn[2] = { false, false };
	absl::Condition mine[2] = { absl::Condition(&turn[MAIN]), absl::Condition(&turn[PARTNER]) };

	static const char *unavailable() { return nullptr; }
	void enter(Side) {}

	void post(Side to)
	{
		absl::MutexLock lock(&mutex);

		turn[to] = true;
	}

	void wait(Side me)
	{
		absl::MutexLock lock(&mutex);

		take(me);
	}

	void hand_off(Side me)
	{
		absl::MutexLock lock(&mutex);

		turn[other(me)] = true;
		take(me);
	}

	void take(Side me)
	{
		mutex.Await(mine[me]);
		turn[me] = false;
	}
};

} // namespace

void add_absl_mutex_rows(const Plan &plan)
{
	add_hand_off_rows<GoogleMutex>("BM_GoogleMutex", plan);
}
#else
void add_absl_mutex_rows(const Plan &plan)
{
	add_missing_hand_off_rows("BM_GoogleMutex", plan, "built without Abseil");
}
#endif
