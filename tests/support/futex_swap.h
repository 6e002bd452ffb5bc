/* SPDX-License-Identifier: MIT */
#ifndef FUTEX_SWAP_H
#define FUTEX_SWAP_H

/* The patched kernel's, whatever an installed header says: see libswitchto/src/futex.h. */
#undef FUTEX_SWAP
#define FUTEX_SWAP 96

/* Since Linux 6.16 a process has a hash of its own for its private futexes. */
#ifndef PR_FUTEX_HASH
#define PR_FUTEX_HASH 78
#define PR_FUTEX_HASH_SET_SLOTS 1
#define PR_FUTEX_HASH_GET_SLOTS 2
#endif

#endif /* FUTEX_SWAP_H */
