/* SPDX-License-Identifier: MIT */
/*
 * Words in shared memory that the kernel changes when the calling thread ends, is killed, or calls
 * execve() as the first thread of its process (a robust futex,
 * Documentation/locking/robust-futex-ABI.rst). If such a word has the thread's TID in
 * FUTEX_TID_MASK, the kernel replaces the TID by FUTEX_OWNER_DIED, and wakes one waiter if
 * FUTEX_WAITERS is set.
 *
 * The kernel knows the words by a list in the thread's memory, and the C library owns the list:
 * its entries are robust mutexes. An entry must not be in the shared memory, where the other side
 * could turn its pointers. The kernel finds the word of an entry at a fixed distance before
 * it. So a robust mutex is laid across the end of a page, the word in that page and the entry in the
 * next one. When the mutex is locked, the page of the word is replaced by the page of the shared
 * memory. The C library goes on with the entry only.
 */
#ifndef SWITCHTO_ROBUST_H
#define SWITCHTO_ROBUST_H

#include <errno.h>
#include <stdint.h>
#include <sys/types.h>

#define ROBUST_LONGEST 16

struct robust {
	char *pages; /* NULL: none */
	size_t before;
	char saved[ROBUST_LONGEST]; /* the part of the mutex that was replaced */
};

/* After mmap(2). EAGAIN is about mlockall(2) there: to try again would not help. */
static inline int map_error(void)
{
	return errno == EAGAIN ? ENOMEM : errno;
}

/*
 * Makes robust the word that is @before bytes, a multiple of 8 and at most ROBUST_LONGEST, before
 * the end of page @page of the file @fd. 0 or an error number: ENOTSUP if the C library's robust
 * mutexes have another form, ENOMEM, the errors of mmap(2). Words that were made robust later come
 * first when the kernel goes through them.
 */
int switchto_robust_begin(struct robust *robust, int fd, off_t page, size_t before);

/* In the same thread. Does nothing if there is none. */
void switchto_robust_end(struct robust *robust);

#endif /* SWITCHTO_ROBUST_H */
