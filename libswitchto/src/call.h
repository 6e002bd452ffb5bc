/* SPDX-License-Identifier: MIT */
/*
 * A system call in line: its result, or a negative error number. The C library's function takes some
 * 16 instructions more (bench/, BM_SwitchTo, -icount), and its wrappers, which are cancellation
 * points, fifty. errno may change.
 *
 * A macro, as each argument keeps its type: to widen them to long costs instructions, too.
 */
#ifndef SWITCHTO_CALL_H
#define SWITCHTO_CALL_H

#include <errno.h>
#include <unistd.h>

#if defined(__x86_64__) && defined(__LP64__)
/* The number first: a call, where it is one (-O0), may change the registers below. */
#define SYSTEM_CALL(number, a, b, c, d, e, f)                                                 \
	__extension__({                                                                       \
		long result_ = (number);                                                      \
		register __typeof__(d) arg4_ __asm__("r10") = (d);                            \
		register __typeof__(e) arg5_ __asm__("r8") = (e);                             \
		register __typeof__(f) arg6_ __asm__("r9") = (f);                             \
                                                                                              \
		__asm__ volatile("syscall"                                                    \
				 : "+a"(result_)                                              \
				 : "D"(a), "S"(b), "d"(c), "r"(arg4_), "r"(arg5_), "r"(arg6_) \
				 : "rcx", "r11", "memory");                                   \
		result_;                                                                      \
	})
#elif defined(__aarch64__) && defined(__LP64__)
#define SYSTEM_CALL(number, a, b, c, d, e, f)                                                     \
	__extension__({                                                                           \
		register long number_ __asm__("x8") = (number);                                   \
		register long x0_ __asm__("x0") = (long)(a);                                      \
		register __typeof__(b) x1_ __asm__("x1") = (b);                                   \
		register __typeof__(c) x2_ __asm__("x2") = (c);                                   \
		register __typeof__(d) x3_ __asm__("x3") = (d);                                   \
		register __typeof__(e) x4_ __asm__("x4") = (e);                                   \
		register __typeof__(f) x5_ __asm__("x5") = (f);                                   \
                                                                                                  \
		__asm__ volatile("svc #0"                                                         \
				 : "+r"(x0_)                                                      \
				 : "r"(number_), "r"(x1_), "r"(x2_), "r"(x3_), "r"(x4_), "r"(x5_) \
				 : "memory");                                                     \
		x0_;                                                                              \
	})
#else
#define SYSTEM_CALL(number, a, b, c, d, e, f)                                   \
	__extension__({                                                         \
		long result_ = syscall((number), (a), (b), (c), (d), (e), (f)); \
                                                                                \
		result_ < 0 ? -errno : result_;                                 \
	})
#endif

#endif /* SWITCHTO_CALL_H */
