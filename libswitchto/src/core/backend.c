// SPDX-License-Identifier: MIT
#define _GNU_SOURCE
#include "backend.h"

#include "../futex.h"

#include <stdlib.h>
#include <string.h>

bool switchto_is_swap;

/*
 * Asks the kernel without an effect: nobody waits on the one word, and the other word does not have
 * the expected value. The patched kernel answers EAGAIN, every other kernel ENOSYS. There are two
 * probes: with a valid hint, and with an invalid one, to which the patched kernel answers EINVAL. A
 * seccomp filter that makes up answers gives the same one to both.
 *
 * 0, or the first unexpected error, or EPERM after an unexpected success.
 */
static int probe_swap(void)
{
	const uint32_t hint = 1, no_hint = ~(uint32_t)FUTEX_TID_MASK;
	futex_word word = 0, wake = 0;
	int error;

	error = futex_swap(&word, 1, NULL, &wake, hint);
	if (error != EAGAIN)
		return error ? error : EPERM;
	error = futex_swap(&word, 1, NULL, &wake, no_hint);
	if (error != EINVAL)
		return error ? error : EPERM;
	return 0;
}

int switchto_choose_backend(void)
{
	const char *forced = secure_getenv("SWITCHTO_BACKEND");

	if (forced && strcmp(forced, "wake-wait") == 0)
		return 0;
	if (forced && strcmp(forced, "swap") != 0)
		return ENOTSUP;

	switch (probe_swap()) {
	case 0:
		switchto_is_swap = true;
		return 0;
	case ENOSYS:
		return forced ? ENOSYS : 0;
	default:
		/*
		 * Neither kernel says this, a seccomp filter does. It may mean
		 * to forbid the operation or not know it: not for us to guess.
		 */
		return EPERM;
	}
}
