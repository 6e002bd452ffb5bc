// SPDX-License-Identifier: MIT
/* System calls that a seccomp filter forbids. Each case is a process of its own: filters stay. */
#include "sched.h"

#include "seccomp.h"

static struct switchto_sched *sched;

#if !defined(UNDER_TSAN) && !defined(UNDER_ASAN) /* they use madvise(2) themselves */
static void nothing(void *arg) {}

static atomic_bool refused;

static void run_in_vain(void *arg)
{
	if (switchto_sched_run(sched) == 0)
		return;
	CHECK_EQ(&verdict, errno, ENOMEM);
	atomic_store(&refused, true);
}

/* The core library has memory for threads with TIDs near those that it has seen. */
static int register_in_vain(void *arg)
{
	struct switchto_task *task;
	pthread_t thread;

	sched = new_sched(NULL);
	CHECK(&verdict, switchto_self() > 0);
	filter_call(SYS_madvise, ANSWER(ENOMEM));
	for (int i = 0; i < 10000 && !atomic_load(&refused); i++) {
		thread = start_thread(run_in_vain, NULL);
		pthread_join(thread, NULL);
	}
	CHECK(&verdict, atomic_load(&refused));
	/* The caller is registered. The thread for the task would not be. */
	task = spawn_handle(sched, nothing, NULL);
	CHECK_ERR(&verdict, switchto_sched_run(sched), EAGAIN);
	CHECK_EQ(&verdict, switchto_end(task), 0);
	CHECK_EQ(&verdict, switchto_sched_destroy(sched), 0);
	return verdict_status(&verdict);
}

TEST(threads_not_registered)
{
	assert_int_equal(run_child(register_in_vain, NULL), 0);
}

/* What the layer knows of a descriptor is beside 1023 others. */
static void read_without_memory(void *arg)
{
	const struct timespec past = { 0 };
	struct rlimit limit;
	int ends[2], high;
	char byte;

	CHECK_EQ(&verdict, getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = limit.rlim_max;
	CHECK_EQ(&verdict, setrlimit(RLIMIT_NOFILE, &limit), 0);
	CHECK_EQ(&verdict, pipe(ends), 0);
	high = fcntl(ends[0], F_DUPFD, 1024);
	if (high >= 0)
		CHECK_ERR(&verdict, switchto_read(high, &byte, 1, &past), ETIMEDOUT);
	filter_call(SYS_mmap, ANSWER(ENOMEM));
	CHECK_ERR(&verdict, switchto_read(ends[0], &byte, 1, &past), ENOMEM);
	if (high >= 0)
		CHECK_ERR(&verdict, switchto_read(high, &byte, 1, &past), ETIMEDOUT);
}

static int run_without_memory(void *arg)
{
	sched = new_sched(NULL);
	spawn(sched, read_without_memory, NULL);
	CHECK_EQ(&verdict, switchto_sched_run(sched), 0);
	CHECK_EQ(&verdict, switchto_sched_destroy(sched), 0);
	return verdict_status(&verdict);
}

TEST(no_memory_for_descriptors)
{
	assert_int_equal(run_child(run_without_memory, NULL), 0);
}
#endif

static void sleep_shortly(void *arg)
{
	const struct timespec soon = in(3000000);
	struct timespec now;

	CHECK_EQ(&verdict, switchto_sleep_until(&soon), 0);
	now = in(0);
	CHECK(&verdict, now.tv_sec > soon.tv_sec ||
				(now.tv_sec == soon.tv_sec && now.tv_nsec >= soon.tv_nsec));
}

static int sleep_without(void *arg)
{
#ifdef SYS_epoll_pwait2
	filter_call(SYS_epoll_pwait2, ANSWER(ENOSYS));
#endif
	sched = new_sched(NULL);
	spawn(sched, sleep_shortly, NULL);
	CHECK_EQ(&verdict, switchto_sched_run(sched), 0);
	return verdict_status(&verdict);
}

/* Linux 5.10 and older. */
TEST(no_epoll_pwait2)
{
	assert_int_equal(run_child(sleep_without, NULL), 0);
}
