// SPDX-License-Identifier: MIT
/*
 * init: the only program in User-mode Linux. With the kernel's argument calls=N it calls
 * getpid() N times and prints how long that took. With tests=yes it tests what happens beside
 * a turn of the kernel and the stub: signals, and the end of a process. Then it powers off.
 */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/reboot.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CHILDREN = 3, TICKS = 200 };

static volatile sig_atomic_t ticks;

static double now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void measure(long wanted)
{
	long sum = 0;
	double seconds;

	/* The first calls find pages that are not there. */
	for (int i = 0; i < 100; i++)
		syscall(SYS_getpid);
	seconds = -now();
	for (long i = 0; i < wanted; i++)
		sum += syscall(SYS_getpid);
	seconds += now();
	printf("%ld calls, sum %ld\n", wanted, sum);
	/* The host's time. User-mode Linux and this program run in turn, and never wait. */
	printf("measured %.9f s, CPU %.9f s\n", seconds, seconds);
}

static void count(int signal)
{
	(void)signal;
	ticks++;
}

/* The kernel has the stub map and unmap @page, and does so while signals arrive. */
static void interrupted(void)
{
	const struct itimerval often = { { 0, 2000 }, { 0, 2000 } };
	const pid_t pid = getpid();

	signal(SIGALRM, count);
	setitimer(ITIMER_REAL, &often, NULL);
	for (int i = 0; ticks < TICKS; i++) {
		int *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
				 -1, 0);

		if (page == MAP_FAILED || *page)
			_exit(1);
		*page = i;
		if (syscall(SYS_getpid) != pid || *page != i || munmap(page, 4096))
			_exit(1);
	}
}

static void busy(void)
{
	for (;;)
		__asm__ volatile("");
}

static void calling(void)
{
	for (;;)
		syscall(SYS_getpid);
}

static pid_t start(void (*program)(void))
{
	const pid_t pid = fork();

	if (!pid) {
		program();
		_exit(0);
	}
	return pid;
}

static bool ended_by(int signal, pid_t child)
{
	int status;

	return waitpid(child, &status, 0) == child && WIFSIGNALED(status) &&
	       WTERMSIG(status) == signal;
}

static bool can_be_killed(void (*program)(void))
{
	const pid_t child = start(program);

	usleep(50000);
	kill(child, SIGKILL);
	return ended_by(SIGKILL, child);
}

static void verdict(bool good, const char *name)
{
	printf("%s %s\n", good ? "ok" : "not ok", name);
	fflush(stdout);
}

static void test(void)
{
	pid_t child;
	bool good = true;
	int status;

	for (int i = 0; i < CHILDREN; i++)
		start(interrupted);
	for (int i = 0; i < CHILDREN; i++)
		good &= wait(&status) > 0 && WIFEXITED(status) && !WEXITSTATUS(status);
	verdict(good, "interrupted-children");

	verdict(can_be_killed(busy), "kill-busy-child");
	verdict(can_be_killed(calling), "kill-calling-child");

	/* The host kills the child's stub now. */
	child = start(calling);
	puts("kill the newest stub");
	fflush(stdout);
	verdict(ended_by(SIGSEGV, child), "lost-stub");
}

int main(void)
{
	const char *calls = getenv("calls");

	if (calls)
		measure(atol(calls));
	else if (getenv("tests"))
		test();
	fflush(stdout);
	reboot(RB_POWER_OFF);
	return EXIT_FAILURE;
}
