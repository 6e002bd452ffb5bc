/* SPDX-License-Identifier: MIT */
#ifndef BENCH_PLACEMENT_H
#define BENCH_PLACEMENT_H

#include <sched.h>

enum class Placement {
	FREE,	  /* on any CPU that this process may use */
	TOGETHER, /* the same, but the row asks the library to keep its threads on one */
	ONE_CPU,  /* all threads of the row on one of them */
};

/* How many CPUs this process was given. */
int allowed_cpus();

/*
 * Places the calling thread, and the threads that it creates meanwhile; puts
 * it back on destruction. The one CPU is the first that the process may use:
 * the same one in each repetition, and taskset(1) chooses another.
 */
class Placed {
public:
	explicit Placed(Placement placement);
	~Placed();
	Placed(const Placed &) = delete;
	Placed &operator=(const Placed &) = delete;

	/* Is the calling thread where it belongs? */
	bool holds() const;

private:
	cpu_set_t before_;
	cpu_set_t during_;
};

#endif
