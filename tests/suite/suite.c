// SPDX-License-Identifier: MIT
/*
 * One suite for every backend. The one to test is named by SWITCHTO_BACKEND, as
 * for any program; without it the library's own choice is tested, and that it
 * is the right one for this kernel.
 */
#include "suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int case_start(void **state)
{
	watchdog_start(*state);
	return 0;
}

int case_end(void **state)
{
	pid_t left = switchto_wait(&no_time);

	watchdog_stop();
	if (left == -1 && errno == ETIMEDOUT)
		return 0;

	fprintf(stderr, "%s: wanted no resume left with the main thread, found %d (%s)\n",
		(const char *)*state, (int)left, strerror(errno));
	return -1;
}

static void backend_is_the_right_one(void **state)
{
	const char *wanted = getenv("SWITCHTO_BACKEND");

	(void)state;
	if (!wanted)
		wanted = kernel_has_swap() ? "swap" : "wake-wait";

	assert_non_null(switchto_backend());
	assert_string_equal(switchto_backend(), wanted);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest backend[] = {
		CASE("BackendIsTheRightOne", backend_is_the_right_one),
	};

	if (argc == 2 && strcmp(argv[1], "after-exec") == 0)
		return life_after_exec();
	if (argc == 2 && strcmp(argv[1], "first-calls") == 0)
		return life_first_calls();
	if (argc == 2 && strcmp(argv[1], "atfork") == 0)
		return life_atfork();

	if (wants_absent_swap("suite"))
		return SKIPPED;

	return RUN_CASES("backend", backend) + suite_handoff() + suite_resume() + suite_time() +
			       suite_signal() + suite_life() ?
		       EXIT_FAILURE :
		       EXIT_SUCCESS;
}
