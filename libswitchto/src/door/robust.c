// SPDX-License-Identifier: MIT
#define _GNU_SOURCE
#include "robust.h"
#include "../tsan.h"

#include <linux/futex.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/*
 * Locks a robust mutex at @mutex. 0 or an error number. ThreadSanitizer is not to see the lock: no
 * other thread ever wants it. The child of a fork does not have its pages, and ThreadSanitizer
 * would take another mutex at the same address for it.
 */
static int lock_robust(pthread_mutex_t *mutex)
{
	pthread_mutexattr_t attr;
	int error = pthread_mutexattr_init(&attr);

	if (error)
		return error;
	pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
	error = pthread_mutex_init(mutex, &attr);
	pthread_mutexattr_destroy(&attr);
	if (!error)
		error = pthread_mutex_lock(mutex);
	if (!error) {
		__tsan_mutex_pre_unlock(mutex, 0);
		__tsan_mutex_post_unlock(mutex, 0);
	}
	return error;
}

/*
 * Is the first entry of this thread's list at or behind @end, and its word at @word? Then
 * the C library puts a new entry first, and nothing but the mutex's beginning is before @end.
 */
static bool is_first(const char *word, const char *end)
{
	struct robust_list_head *head;
	const char *entry;
	size_t size;

	/* NULL: the thread was not made by the C library, or by a bare clone(2). */
	if (syscall(SYS_get_robust_list, 0, &head, &size) || !head || size != sizeof(*head))
		return false;
	entry = (const char *)head->list.next;
	return entry >= end && entry < word + sizeof(pthread_mutex_t) &&
	       entry + head->futex_offset == word;
}

int switchto_robust_begin(struct robust *robust, int fd, off_t page, size_t before)
{
	size_t size = (size_t)sysconf(_SC_PAGESIZE);
	pthread_mutex_t *mutex;
	int error;
	char *pages;

	pages = mmap(NULL, 2 * size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (pages == MAP_FAILED)
		return map_error();
	mutex = (void *)(pages + size - before);
	error = lock_robust(mutex);
	if (error) {
		munmap(pages, 2 * size);
		return error;
	}

	robust->before = before;
	memcpy(robust->saved, mutex, before);
	if (!is_first((char *)mutex, pages + size))
		error = ENOTSUP;
	/* Not in a child, which has no use for the mapping and would not unmap it. */
	else if (madvise(pages, 2 * size, MADV_DONTFORK) ||
		 mmap(pages, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
		      page * (off_t)size) == MAP_FAILED ||
		 madvise(pages, size, MADV_DONTFORK))
		error = map_error();
	robust->pages = pages;
	if (error)
		switchto_robust_end(robust);
	return error;
}

void switchto_robust_end(struct robust *robust)
{
	size_t size = (size_t)sysconf(_SC_PAGESIZE);
	pthread_mutex_t *mutex;

	if (!robust->pages)
		return;
	/*
	 * The beginning of the mutex as the C library left it, not as the other side did. Without
	 * memory for that, entry and pages stay: the word does not have this thread's TID any more.
	 */
	if (mmap(robust->pages, size, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED) {
		mutex = (void *)(robust->pages + size - robust->before);
		memcpy(mutex, robust->saved, robust->before);
		__tsan_mutex_pre_lock(mutex, 0);
		__tsan_mutex_post_lock(mutex, 0, 0);
		pthread_mutex_unlock(mutex);
		pthread_mutex_destroy(mutex);
		munmap(robust->pages, 2 * size);
	}
	robust->pages = NULL;
}
