/* SPDX-License-Identifier: MIT */
/* The suite that every backend passes, in parts. Each returns its number of failed cases. */
#ifndef SUITE_H
#define SUITE_H

#include "pair.h"

#include <switchto/switchto.h>

int suite_handoff(void); /* threads that switch to each other, and how it can interleave */
int suite_resume(void);	 /* resumes kept, merged, refused */
int suite_time(void);	 /* timeouts and deadlines */
int suite_signal(void);	 /* signals that meet a wait, and resumes from handlers */
int suite_life(void);	 /* how threads and processes begin and end */

/* Bodies that run after exec, by name. */
int life_after_exec(void);
int life_first_calls(void);
int life_atfork(void);

/* A case with a name, under the watchdog, that leaves no resume with the main thread. */
int case_start(void **state);
int case_end(void **state);

/* clang-format off */
#define CASE(name, function) { name, function, case_start, case_end, (void *)(uintptr_t)name }
/* clang-format on */

#define RUN_CASES(name, cases) cmocka_run_group_tests_name(name, cases, NULL, NULL)

#endif /* SUITE_H */
