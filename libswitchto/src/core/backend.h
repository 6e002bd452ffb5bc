/* SPDX-License-Identifier: MIT */
#ifndef SWITCHTO_BACKEND_H
#define SWITCHTO_BACKEND_H

#include <stdbool.h>

/* Chosen by switchto_choose_backend(), constant from then on. */
extern __attribute__((visibility("hidden"))) bool switchto_is_swap;

/* The backend for this process. 0 or an error number, see "Initialization errors". */
__attribute__((visibility("hidden"))) int switchto_choose_backend(void);

#endif /* SWITCHTO_BACKEND_H */
