/* SPDX-License-Identifier: MIT */
#include "placement.h"

#include "die.h"

static cpu_set_t current_affinity()
{
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set))
		die("sched_getaffinity");
	return set;
}

static void set_affinity(const cpu_set_t &set)
{
	if (sched_setaffinity(0, sizeof(set), &set))
		die("sched_setaffinity");
}

int allowed_cpus()
{
	cpu_set_t set = current_affinity();

	return CPU_COUNT(&set);
}

Placed::Placed(Placement placement)
	: before_(current_affinity()),
	  during_(before_)
{
	int cpu = 0;

	if (placement != Placement::ONE_CPU)
		return;

	while (!CPU_ISSET(cpu, &before_))
		cpu++;
	CPU_ZERO(&during_);
	CPU_SET(cpu, &during_);
	set_affinity(during_);
}

Placed::~Placed()
{
	set_affinity(before_);
}

bool Placed::holds() const
{
	return CPU_ISSET(sched_getcpu(), &during_);
}
