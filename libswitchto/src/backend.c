// SPDX-License-Identifier: MIT
#define _GNU_SOURCE
#include "backend.h"

#include "futex.h"

#include <stdlib.h>
#include <string.h>

bool switchto_is_swap;

/*
 * Asks the kernel without an effect: nobody waits on the one word, and the
 * value of the other is not the one expected. EAGAIN comes from the patched
 * kernel alone, ENOSYS from every other. With a hint, as the library gives one.
 */
static int probe_swap(void)
{
	enum { TID_HINT = 1 };
	futex_word word = 0, wake = 0;

	int error = futex_swap(&word, 1, NULL, &wake, TID_HINT);

	/* The two come together: who forbids one of them is told now, not later. */
	if (error == EAGAIN && (error = futex_wake_hint(&wake, TID_HINT)) == 0)
		error = EAGAIN;
	return error;
}

int switchto_choose_backend(void)
{
	const char *forced = secure_getenv("SWITCHTO_BACKEND");

	if (forced && strcmp(forced, "wake-wait") == 0)
		return 0;
	if (forced && strcmp(forced, "swap") != 0)
		return ENOTSUP;

	switch (probe_swap()) {
	case EAGAIN:
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
