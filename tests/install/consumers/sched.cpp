/* SPDX-License-Identifier: MIT */
#include <cstdio>
#include <switchto/sched.hpp>

int main()
{
	switchto::scheduler sched;
	int counted = 0;

	sched.spawn_detached([&] { counted++; });
	sched.run();
	std::printf("C++, tasks: %d\n", counted);
	return counted != 1;
}
