/* SPDX-License-Identifier: MIT */
/* Threads whose TID the test chooses. Takes CAP_SYS_ADMIN, and seccomp with user notification. */
#ifndef SET_TID_H
#define SET_TID_H

#include "support.h"

/*
 * 0 or the error number of pthread_create(): EEXIST while the kernel has not let
 * go of @tid, EINVAL if it is beyond kernel.pid_max, EPERM.
 */
int try_start_as(pid_t tid, struct worker *w, void (*body)(struct worker *w), void *arg);

/* Until it is free; anything else ends the process. */
void start_as(pid_t tid, struct worker *w, void (*body)(struct worker *w), void *arg);

/* Says so, as @program. */
bool cannot_choose_tids(const char *program);

#endif /* SET_TID_H */
