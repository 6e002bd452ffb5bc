// SPDX-License-Identifier: MIT
/*
 * The system call in pthread_create() is amended: a seccomp filter in the creating
 * thread reports its clone3(2) to the calling thread, which writes the TID wanted
 * into the arguments (set_tid, Linux 5.5) and lets the call go on.
 */
#include "set_tid.h"

#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

struct creation {
	struct worker creator;
	struct worker *w;
	void (*body)(struct worker *w);
	void *arg;
	_Atomic int listener;
	int error;
};

static int report_clone3(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = { sizeof(code) / sizeof(code[0]), code };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return -1;
	return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER,
			    &filter);
}

static void creates(struct worker *w)
{
	struct creation *c = w->arg;
	int listener = report_clone3();

	c->error = listener < 0 ? errno : 0;
	atomic_store(&c->listener, listener);
	if (listener >= 0)
		c->error = worker_try_start(c->w, c->body, c->arg);
}

int try_start_as(pid_t tid, struct worker *w, void (*body)(struct worker *w), void *arg)
{
	struct creation c = { .w = w, .body = body, .arg = arg, .listener = -2 };
	struct seccomp_notif call = { 0 };
	struct seccomp_notif_resp response = { 0 };
	struct clone_args *args;

	w->starter = gettid();
	worker_start(&c.creator, creates, &c);
	AWAIT(atomic_load(&c.listener) != -2);
	if (c.listener >= 0) {
		if (ioctl(c.listener, SECCOMP_IOCTL_NOTIF_RECV, &call))
			give_up("seccomp: wanted a report of clone3, got %s", strerror(errno));
		args = (struct clone_args *)(uintptr_t)call.data.args[0];
		args->set_tid = (uintptr_t)&tid;
		args->set_tid_size = 1;
		response.id = call.id;
		response.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
		if (ioctl(c.listener, SECCOMP_IOCTL_NOTIF_SEND, &response))
			give_up("seccomp: wanted clone3 to go on, got %s", strerror(errno));
	}
	pthread_join(c.creator.thread, NULL);
	if (c.listener >= 0)
		close(c.listener);
	return c.error;
}

void start_as(pid_t tid, struct worker *w, void (*body)(struct worker *w), void *arg)
{
	int error;

	/* A thread that was joined may hold its TID for a moment longer. */
	do
		error = try_start_as(tid, w, body, arg);
	while (error == EEXIST);
	if (error)
		give_up("pthread_create: wanted a thread with TID %d, got %s", (int)tid,
			strerror(error));
}
