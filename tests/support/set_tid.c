// SPDX-License-Identifier: MIT
/*
 * The system call in pthread_create() is amended: a seccomp filter in the creating
 * thread reports its clone3(2) to the calling thread, which writes the TID wanted
 * into the arguments (set_tid, Linux 5.5) and lets the call go on.
 */
#include "set_tid.h"

#include "seccomp.h"

#include <linux/sched.h>

struct creation {
	struct worker creator;
	struct worker *w;
	void (*body)(struct worker *w);
	void *arg;
	_Atomic int listener;
	atomic_bool done;
	int error;
};

static void creates(struct worker *w)
{
	struct creation *c = w->arg;
	int listener = supervise_call(SYS_clone3);

	c->error = listener < 0 ? errno : 0;
	atomic_store(&c->listener, listener);
	if (listener >= 0)
		c->error = worker_try_start(c->w, c->body, c->arg);
	atomic_store(&c->done, true);
}

int try_start_as(pid_t tid, struct worker *w, void (*body)(struct worker *w), void *arg)
{
	struct creation c = { .w = w, .body = body, .arg = arg, .listener = -2 };
	struct seccomp_notif call = { 0 };
	struct clone_args *args;
	bool called = false;

	w->starter = gettid();
	worker_start(&c.creator, creates, &c);
	AWAIT(atomic_load(&c.listener) != -2);
	if (c.listener >= 0) {
		while (!(called = next_call(c.listener, &call)) && !atomic_load(&c.done))
			;
		if (called) {
			args = (struct clone_args *)(uintptr_t)call.data.args[0];
			args->set_tid = (uintptr_t)&tid;
			args->set_tid_size = 1;
			if (!allow_call(c.listener, &call))
				give_up("seccomp: wanted clone3 to go on, got %s", strerror(errno));
		}
	}
	pthread_join(c.creator.thread, NULL);
	/* On arm64, glibc 2.36 does not call clone3. Where a filter refuses clone3, no C library does. */
	if (c.listener >= 0 && !called && !c.error) {
		fprintf(stderr, "skipped: wanted a call of clone3 by pthread_create(), found none; "
				"use a newer C library\n");
		exit(77);
	}
	if (c.listener >= 0)
		close(c.listener);
	return c.error;
}

/* As thread_identity() does it: by number from Linux 6.9 on, else by start time. */
static bool threads_are_numbered(void)
{
	int fd = (int)syscall(SYS_pidfd_open, gettid(), O_EXCL);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

void start_as(pid_t tid, struct worker *w, void (*body)(struct worker *w), void *arg)
{
	const struct timespec ticks = { 0, 20000000 };
	int error;

	/* Two of the same start time are one to the library. */
	if (!threads_are_numbered())
		nanosleep(&ticks, NULL);

	/* A thread that was joined may hold its TID for a moment longer. */
	do
		error = try_start_as(tid, w, body, arg);
	while (error == EEXIST);
	if (error)
		give_up("pthread_create: wanted a thread with TID %d, got %s", (int)tid,
			strerror(error));
}

bool cannot_choose_tids(const char *program)
{
	struct worker w = { 0 };
	struct verdict v = { 0 };
	pid_t tid;
	int error;

	worker_start(&w, await_release, NULL);
	tid = w.tid;
	worker_release(&w);
	workers_join(&w, 1, &v);
	do
		error = try_start_as(tid, &w, await_release, NULL);
	while (error == EEXIST);
	if (!error) {
		worker_release(&w);
		workers_join(&w, 1, &v);
		return false;
	}
	fprintf(stderr,
		"%s: skipped: to choose a thread's TID it needs root (CAP_SYS_ADMIN) and "
		"seccomp with user notification, got %s\n",
		program, strerror(error));
	return true;
}
