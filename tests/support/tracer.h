/* SPDX-License-Identifier: MIT */
/* A child process whose system calls are looked at, between its own marks. */
#ifndef TRACER_H
#define TRACER_H

#include <sys/ptrace.h>
#include <stdbool.h>
#include <sys/types.h>

#define MOST_TRACEES 3

struct tracee {
	pid_t tid;
	bool counting;			    /* between two marks */
	struct __ptrace_syscall_info entry; /* of its last system call */
	long value;			    /* for the observer's use */
};

struct observer {
	/* At a mark, with ->counting as it is from there on. */
	void (*mark)(struct tracee *t, void *arg);
	/* At the entry of a system call between two marks; and at its exit, or NULL. */
	void (*entry)(struct tracee *t, const struct __ptrace_syscall_info *info, void *arg);
	void (*exit)(struct tracee *t, const struct __ptrace_syscall_info *info, void *arg);
	void *arg;
};

/* The child's: lets its parent begin. */
void tracer_attach(void);
void tracer_mark(bool begin);

/* Traces @child, of MOST_TRACEES threads at most, to its end. Returns its exit status. */
int tracer_run(pid_t child, const struct observer *o);

#endif /* TRACER_H */
