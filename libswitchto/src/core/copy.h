/* SPDX-License-Identifier: MIT */
/*
 * Two copies of the library in one process, one linked statically into the program
 * and one shared by a plugin, say. Each has a table of threads of its own, so a resume
 * through one copy never reaches a thread of the other. The copy that is called first
 * is in use; every call of the others fails with ELIBMAX.
 *
 * Not found: a copy in another namespace of the dynamic linker (dlmopen(3)).
 */
#ifndef SWITCHTO_COPY_H
#define SWITCHTO_COPY_H

/*
 * Makes this copy the one in use, if it is not. 0, or ELIBMAX after saying so on
 * standard error. Async-signal-safe.
 */
__attribute__((visibility("hidden"))) int switchto_copy_use(void);

#endif /* SWITCHTO_COPY_H */
