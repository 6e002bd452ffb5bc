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

/* Makes this copy the one in use. 0, or ELIBMAX after saying so on standard error. */
__attribute__((visibility("hidden"))) int switchto_copy_use(void);

/*
 * The same for a call that may come from a signal handler. It does not look for other
 * copies, it was told of them.
 */
__attribute__((visibility("hidden"))) int switchto_copy_use_in_handler(void);

#endif /* SWITCHTO_COPY_H */
