// SPDX-License-Identifier: MIT
/*
 * One suite for every backend. The one to test is named by SWITCHTO_BACKEND, as
 * for any program; without it the library's own choice is tested, and that it
 * is the right one for this kernel.
 */
#include "suite.h"

static int case_start(void **state)
{
	watchdog_start(test_name(state));
	return 0;
}

static int case_end(void **state)
{
	pid_t left = switchto_wait(&no_time);

	watchdog_stop();
	if (left == -1 && errno == ETIMEDOUT)
		return 0;

	fprintf(stderr, "%s: wanted no resume left with the main thread, found %d (%s)\n",
		test_name(state), (int)left, strerror(errno));
	return -1;
}

TEST(backend_is_the_right_one)
{
	const char *wanted = getenv("SWITCHTO_BACKEND");

	if (!wanted)
		wanted = kernel_has_swap() ? "swap" : "wake-wait";

	assert_non_null(switchto_backend());
	assert_string_equal(switchto_backend(), wanted);
}

int main(int argc, char **argv)
{
	int cpu[2], failed;

	if (argc == 2 && strcmp(argv[1], "after-exec") == 0)
		return life_after_exec();
	if (argc == 2 && strcmp(argv[1], "first-calls") == 0)
		return life_first_calls();
	if (argc == 2 && strcmp(argv[1], "atfork") == 0)
		return life_atfork();

	if (wants_absent_swap("suite"))
		return SKIPPED;

	failed = run_group(NULL, case_start, case_end);
	/* Of one CPU nobody can be kept away. */
	if (two_cpus(cpu) == 2)
		failed |= run_group("two_cpus", case_start, case_end);
	if (!HANDLERS_RUN_LATE)
		failed |= run_group("signals", case_start, case_end);
	else
		fprintf(stderr, "signal: skipped: wanted a TSan that runs handlers in parked "
				"threads, found none; build with Clang 19 or newer\n");
	return failed;
}
