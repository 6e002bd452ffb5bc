/* SPDX-License-Identifier: MIT */
/* What ThreadSanitizer can't see by itself. Nothing without it. */
#ifndef SWITCHTO_TSAN_H
#define SWITCHTO_TSAN_H

#if defined(__SANITIZE_THREAD__)
#define UNDER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define UNDER_TSAN 1
#endif
#endif
#ifdef UNDER_TSAN
#include <sanitizer/tsan_interface.h>
#else
#define __tsan_acquire(address) ((void)0)
#define __tsan_release(address) ((void)0)
#define __tsan_mutex_pre_lock(mutex, flags) ((void)0)
#define __tsan_mutex_post_lock(mutex, flags, recursion) ((void)0)
#define __tsan_mutex_pre_unlock(mutex, flags) ((void)0)
#define __tsan_mutex_post_unlock(mutex, flags) ((void)0)
#endif

#endif /* SWITCHTO_TSAN_H */
