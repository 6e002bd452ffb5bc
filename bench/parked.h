/* SPDX-License-Identifier: MIT */
#ifndef BENCH_PARKED_H
#define BENCH_PARKED_H

#include <string>

#include "crowd.h"

/*
 * Threads that wait in switchto_wait(NULL) beside the rows, from construction
 * to destruction. All waits end up in the kernel's one futex hash, so they also
 * affect rows that don't use the library.
 */
class Parked {
public:
	explicit Parked(long threads);

	/* "", or why there are fewer than were wanted. */
	const std::string &refused() const { return crowd_.refused(); }

private:
	Crowd crowd_;
};

#endif
