/* SPDX-License-Identifier: MIT */
/* For vm/coverage, which includes it before each source of the library. */
#ifndef COVERAGE_END_H
#define COVERAGE_END_H

/* In coverage-end.c. It is called at the end of a process that does not end by exit(). */
__attribute__((weak)) void coverage_end(void (*write_counters)(void));

#ifdef COVERAGE_COUNTS
/* From GCC's gcc/libgcov.h: adds the counts to the file; sets them to 0. */
void __gcov_dump(void);
void __gcov_reset(void);

/* One for all sources of an object. */
__attribute__((weak, visibility("hidden"))) void coverage_write(void);
__attribute__((weak, visibility("hidden"))) void coverage_write(void)
{
	__gcov_dump();
	__gcov_reset();
}

__attribute__((constructor)) static void coverage_begin(void)
{
	if (coverage_end)
		coverage_end(coverage_write);
}
#endif

#endif /* COVERAGE_END_H */
