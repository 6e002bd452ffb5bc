// SPDX-License-Identifier: MIT
/*
 * For gdb.sh: threads in each state. gdb stops the program in stop_here(), with the TIDs
 * in variables, and resumes `resumed` from there.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <switchto/switchto.h>

_Atomic pid_t by_main, waiting, timed, switching, resumed, busy, stranger;

static pid_t announce(_Atomic pid_t *tid)
{
	pid_t self = switchto_self();

	pthread_setname_np(pthread_self(), "worker");
	atomic_store(tid, self);
	return self;
}

static void *wait_here(void *tid)
{
	announce(tid);
	while (atomic_load((_Atomic pid_t *)tid))
		switchto_wait(NULL);
	return NULL;
}

static void *wait_with_timeout(void *tid)
{
	announce(tid);
	while (atomic_load((_Atomic pid_t *)tid))
		switchto_wait(&(struct timespec){ .tv_sec = 1000 });
	return NULL;
}

static void *switch_here(void *tid)
{
	announce(tid);
	while (atomic_load((_Atomic pid_t *)tid))
		switchto_switch(waiting);
	return NULL;
}

static void *work_here(void *tid)
{
	announce(tid);
	while (atomic_load((_Atomic pid_t *)tid))
		pause();
	return NULL;
}

static void *never_call(void *tid)
{
	atomic_store((_Atomic pid_t *)tid, (pid_t)syscall(SYS_gettid));
	while (atomic_load((_Atomic pid_t *)tid))
		pause();
	return NULL;
}

__attribute__((noinline)) void stop_here(void)
{
	__asm__ volatile("" : : : "memory");
}

static void start(void *(*run)(void *), _Atomic pid_t *tid)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, run, tid) != 0)
		abort();
	while (!atomic_load(tid))
		usleep(1000);
}

/* Asleep in futex(2): parked, as far as the kernel tells. */
static void await_asleep(pid_t tid)
{
	char path[64], call[16];
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", (int)tid);
	for (;;) {
		file = fopen(path, "re");
		if (!file)
			abort();
		if (fscanf(file, "%15s", call) == 1 && atoi(call) == SYS_futex) {
			fclose(file);
			return;
		}
		fclose(file);
		usleep(1000);
	}
}

int main(void)
{
	alarm(100);
	by_main = switchto_self();
	start(wait_here, &waiting);
	start(wait_with_timeout, &timed);
	start(switch_here, &switching);
	start(wait_here, &resumed);
	start(work_here, &busy);
	start(never_call, &stranger);
	await_asleep(timed);
	await_asleep(switching);
	await_asleep(resumed);
	await_asleep(waiting);
	if (switchto_resume(busy) == -1 || switchto_resume(stranger) == -1)
		abort();
	stop_here();
	return 0;
}
