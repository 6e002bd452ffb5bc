// SPDX-License-Identifier: MIT
#include "tracer.h"
#include "support.h"

#include <sys/ptrace.h>

#define MARK 0x73776974

void tracer_attach(void)
{
	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
		give_up("ptrace: wanted to be traced, got %s", strerror(errno));
	raise(SIGSTOP);
}

void tracer_mark(bool begin)
{
	syscall(SYS_getppid, MARK, begin);
}

static void look(struct tracee *t, const struct observer *o)
{
	struct __ptrace_syscall_info info;

	if (ptrace(PTRACE_GET_SYSCALL_INFO, t->tid, sizeof(info), &info) <= 0)
		return;
	if (info.op == PTRACE_SYSCALL_INFO_EXIT) {
		if (t->counting && o->exit)
			o->exit(t, &info, o->arg);
		return;
	}
	if (info.op != PTRACE_SYSCALL_INFO_ENTRY)
		return;
	t->entry = info;
	if (info.entry.nr == SYS_getppid && info.entry.args[0] == MARK) {
		t->counting = info.entry.args[1];
		o->mark(t, o->arg);
	} else if (t->counting) {
		o->entry(t, &info, o->arg);
	}
}

int tracer_run(pid_t child, const struct observer *o)
{
	struct tracee tracees[MOST_TRACEES] = { 0 };
	int status, signal;
	unsigned int i;
	pid_t tid;

	if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status) ||
	    ptrace(PTRACE_SETOPTIONS, child, NULL,
		   PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL) ||
	    ptrace(PTRACE_SYSCALL, child, NULL, NULL))
		give_up("ptrace: wanted to trace a child, got %s", strerror(errno));

	for (;;) {
		tid = waitpid(-1, &status, __WALL);
		if (tid < 0)
			give_up("waitpid: wanted a traced thread, got %s", strerror(errno));
		if (!WIFSTOPPED(status)) {
			if (tid == child)
				return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
			continue;
		}

		signal = 0;
		if (WSTOPSIG(status) == (SIGTRAP | 0x80)) {
			for (i = 0; i < MOST_TRACEES && tracees[i].tid && tracees[i].tid != tid;
			     i++)
				;
			if (i == MOST_TRACEES)
				give_up("wanted %d threads to trace, found one more", MOST_TRACEES);
			tracees[i].tid = tid;
			look(&tracees[i], o);
		} else if (WSTOPSIG(status) != SIGSTOP && WSTOPSIG(status) != SIGTRAP) {
			signal = WSTOPSIG(status);
		}
		ptrace(PTRACE_SYSCALL, tid, NULL, (void *)(intptr_t)signal);
	}
}
