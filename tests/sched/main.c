// SPDX-License-Identifier: MIT
/* The program of a file of tests. */
#include "sched.h"

int main(int argc, char **argv)
{
	return run_sched_tests(argc, argv);
}
