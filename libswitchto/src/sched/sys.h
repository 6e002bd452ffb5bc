/* SPDX-License-Identifier: MIT */
/*
 * The system as the layer uses it: calls, futexes and the clock; and where the tests come in.
 */
#ifndef SWITCHTO_SCHED_SYS_H
#define SWITCHTO_SCHED_SYS_H

#include "../call.h"
#include "../common.h"
#include "../delay.h"
#include "../tsan.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

/* For what is on the hot path, and has a probe: GCC takes one for a hundred instructions. */
#define ALWAYS_INLINE inline __attribute__((always_inline))

#define NEVER INT64_MAX

/* A time on CLOCK_MONOTONIC in ns. */
typedef int64_t nsec_t;

#define window() delay_point(SCHED)

/*
 * The error that system call @number is to fail with instead of being made, or 0. The tests'
 * (tests/sched/faults.h).
 */
#ifdef SWITCHTO_DELAY_POINTS
long switchto_sched_fault(long number);
#define fault(number) switchto_sched_fault(number)
#else
#define fault(number) 0L
#endif

/*
 * Errors, inside of the layer: an error number where there is no other result, a negative one where
 * there is. At its edge -1 and errno: fail(), with_errno().
 */
static inline long with_errno(long result)
{
	return likely(result >= 0) ? result : fail((int)-result);
}

/* The system call: its result, or a negative error number. */
static inline long call6(long number, long a, long b, long c, long d, long e, long f)
{
	const long refused = fault(number);

	if (unlikely(refused))
		return refused;
	return SYSTEM_CALL(number, a, b, c, d, e, f);
}

#define CALL(name, ...) CALL_(SYS_##name, __VA_ARGS__, 0, 0, 0, 0, 0)
#define CALL_(number, a, b, c, d, e, f, ...) \
	call6(number, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))

/*
 * No call of the layer is a cancellation point: to end in the middle of its work would break what
 * others wait for. So where the C library's function is one, the system call is made like this, and
 * never fails by fault(); or a function that does more of the kind begins with NO_CANCELLATION.
 */
#define SURE_CALL(name, ...) SURE_CALL_(SYS_##name, __VA_ARGS__, 0, 0, 0, 0, 0)
#define SURE_CALL_(number, a, b, c, d, e, f, ...) \
	SYSTEM_CALL(number, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))

#define NO_CANCELLATION                                                                \
	__attribute__((cleanup(switchto_set_cancellation), unused)) int cancellation = \
		switchto_no_cancellation()

int switchto_no_cancellation(void);
void switchto_set_cancellation(const int *state);

/* close(2). ThreadSanitizer is to know of it: the number may be another thread's next. */
static inline long sure_close(int fd)
{
#ifdef UNDER_TSAN
	NO_CANCELLATION;

	return close(fd) ? -errno : 0;
#else
	return SURE_CALL(close, fd, 0);
#endif
}

/* A file of the library's own. The program may close the descriptor, and use the number for another file. */
struct own_file {
	int fd;
	dev_t device;
	ino_t inode;
};
/* 0 or an error number. */
int switchto_own(struct own_file *file, int fd);
/* Is the descriptor still that of the file? */
bool switchto_owns(const struct own_file *file);

nsec_t switchto_now(void);
/* Of NULL: NEVER; of a time that can't be: -1. */
nsec_t switchto_deadline(const struct timespec *deadline);

/* For threads that are no tasks. 0 or an error number: ETIMEDOUT, and EAGAIN, EINTR. */
int switchto_futex_wait(_Atomic uint32_t *word, uint32_t value, nsec_t deadline);
/* All that wait for @word. */
void switchto_futex_wake(_Atomic uint32_t *word);

/* How many the caller may use. */
unsigned int switchto_cpus(void);

/* How many forks there were, each in the last one's child, since the library was loaded. */
extern unsigned int switchto_generation;
/* The same as a multiple of GENERATION_SIZE, less than ALL_GENERATIONS: types.h. */
extern unsigned int switchto_generation_offset;

/*
 * What stands for the calling thread, if it is no task: an odd number, which no other thread has. 0:
 * it has none yet.
 */
extern _Thread_local uintptr_t switchto_thread __attribute__((tls_model("initial-exec")));
uintptr_t switchto_new_thread(void);
/* Is @thread such a number, of a thread that the forks have left behind? */
bool switchto_is_gone(uintptr_t thread);
/* In the child of a fork. */
void switchto_sys_forked(void);

/* exit(3) ends the program: destructors of static objects may find them in use. */
extern atomic_bool switchto_exiting;
/*
 * exit(3) sets it before the destructors of what was made before this call, such as the object with
 * @watched in a static one. Once for each object, when it first comes to be in use.
 */
void switchto_watch_exit(atomic_bool *watched);

/* Ends the program: @what, a call, must not fail as errno says. */
_Noreturn void switchto_broken(const char *what);
/* The same: @what is what the program must not do. */
_Noreturn void switchto_misused(const char *what);

#endif /* SWITCHTO_SCHED_SYS_H */
