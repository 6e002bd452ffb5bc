/* SPDX-License-Identifier: MIT */
/* A mutex and two condition variables, as POSIX threads are taught. */
#include <pthread.h>

#include "hand_off.h"

namespace {

struct PthreadCond {
	static constexpr Switches rule = Switches::ONE_PER_ITERATION;

	pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
	pthread_cond_t given[2] = { PTHREAD_COND_INITIALIZER, PTHREAD_COND_INITIALIZER };
	bool turn[2] = { false, false };

	static const char *unavailable() { return nullptr; }
	void enter(Side) {}

	/*
	 * Signals with the mutex released: on one CPU the woken thread may preempt
	 * the waker, and would only sleep again for the mutex, two switches for one.
	 */
	void post(Side to)
	{
		pthread_mutex_lock(&mutex);
		turn[to] = true;
		pthread_mutex_unlock(&mutex);
		pthread_cond_signal(&given[to]);
	}

	void wait(Side me)
	{
		pthread_mutex_lock(&mutex);
		while (!turn[me])
			pthread_cond_wait(&given[me], &mutex);
		turn[me] = false;
		pthread_mutex_unlock(&mutex);
	}

	void hand_off(Side me)
	{
		post(other(me));
		wait(me);
	}
};

} // namespace

void add_pthread_cond_rows(const Plan &plan)
{
	add_hand_off_rows<PthreadCond>("BM_PthreadCond", plan);
}
