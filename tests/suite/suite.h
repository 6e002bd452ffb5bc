/* SPDX-License-Identifier: MIT */
/* The suite that every backend passes: each test leaves no resume with the main thread. */
#ifndef SUITE_H
#define SUITE_H

#include "pair.h"

#include <switchto/switchto.h>

/* Bodies that run after exec, by name. */
int life_after_exec(void);
int life_first_calls(void);
int life_atfork(void);

#endif /* SUITE_H */
