/* SPDX-License-Identifier: MIT */
#ifndef BENCH_CROWD_H
#define BENCH_CROWD_H

#include <atomic>
#include <cstddef>
#include <functional>
#include <pthread.h>
#include <string>
#include <sys/types.h>
#include <vector>

/*
 * Many threads that use the library, as many as the machine allows. They run
 * where their maker may run.
 */
class Crowd {
public:
	/*
	 * What thread @me does, from 0 on. It begins with switchto_wait(); when
	 * that returns, the crowd is complete. When the crowd ends, the wait
	 * that the thread is in is resumed, and the thread must return.
	 */
	using Body = std::function<void(const Crowd &crowd, long me)>;

	/* Returns when all threads are registered and wait. */
	Crowd(long size, Body body);
	~Crowd();
	Crowd(const Crowd &) = delete;
	Crowd &operator=(const Crowd &) = delete;

	/*
	 * "", or how far it came and which limits may have stopped it, in one
	 * line. The threads that could be made wait all the same.
	 */
	const std::string &refused() const { return refused_; }

	/* Ends the crowd, for callers that can't leave it to the destructor. */
	void dismiss();

	long size() const { return members_.size(); }
	pid_t tid(long member) const { return members_[member].tid; }

private:
	struct Member {
		Crowd *crowd;
		pthread_t thread;
		pid_t tid;
	};

	static void *begin(void *member);
	void map_stacks(long size);
	void make(long size);
	void wait_for_arrivals();
	void refuse(long wanted, const char *call, int error);

	const Body body_;
	std::string refused_;
	char *stacks_ = nullptr;
	size_t stack_size_;
	size_t stacks_size_;
	std::vector<Member> members_; /* never moved: threads have pointers into it */
	std::atomic<long> arrived_{ 0 };
};

#endif
