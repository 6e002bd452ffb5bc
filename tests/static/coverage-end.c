// SPDX-License-Identifier: MIT
/*
 * For vm/coverage, a part of each test. A process writes its counters when it
 * ends by exit(). With this it also writes them at _exit(), abort() and exec(). A
 * process that is killed writes nothing.
 *
 * Each object that counts has a hidden function that writes its counters. By
 * coverage-end.h it registers that here.
 */
#define _GNU_SOURCE
#include "coverage-end.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

enum { MOST = 8 };

static void (*writers[MOST])(void);
static int n_writers;

void coverage_end(void (*write_counters)(void))
{
	for (int i = 0; i < n_writers; i++)
		if (writers[i] == write_counters)
			return;
	if (n_writers < MOST)
		writers[n_writers++] = write_counters;
}

static void write_all(void)
{
	for (int i = 0; i < n_writers; i++)
		writers[i]();
}

static void *the_real(const char *name)
{
	void *function = dlsym(RTLD_NEXT, name);

	if (!function)
		__builtin_trap();
	return function;
}

/* If exec() fails, the caller sees the error and goes on counting. */
int execve(const char *path, char *const argv[], char *const envp[])
{
	int (*real)(const char *, char *const[], char *const[]) = the_real("execve");

	write_all();
	return real(path, argv, envp);
}

int execv(const char *path, char *const argv[])
{
	return execve(path, argv, environ);
}

_Noreturn void _exit(int status)
{
	void (*real)(int) = the_real("_exit");

	write_all();
	real(status);
	__builtin_unreachable();
}

_Noreturn void abort(void)
{
	void (*real)(void) = the_real("abort");

	write_all();
	real();
	__builtin_unreachable();
}
