/* SPDX-License-Identifier: MIT */
#ifndef FUTEX_SWAP_H
#define FUTEX_SWAP_H

/* The patched kernel's, whatever an installed header says: see libswitchto/src/futex.h. */
#undef FUTEX_SWAP
#define FUTEX_SWAP 96

#endif /* FUTEX_SWAP_H */
