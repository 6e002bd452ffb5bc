// SPDX-License-Identifier: MIT
/* What the sanitizers of all test programs are told. */
#include "support.h"

#ifdef UNDER_ASAN
const char *__asan_default_options(void);

/*
 * Cancellation leaves the stack poisoned, and the runtime then finds fault with
 * its own buffer when it gives the alternate signal stack back.
 */
const char *__asan_default_options(void)
{
	return "use_sigaltstack=0";
}
#endif

#ifdef UNDER_TSAN
const char *__tsan_default_options(void);

/* Tests of fork() start threads in the child of a process that has several. */
const char *__tsan_default_options(void)
{
	return "die_after_fork=0";
}
#endif
