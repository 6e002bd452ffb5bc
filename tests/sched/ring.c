// SPDX-License-Identifier: MIT
/* Operations of io_uring in tasks, and the choice of the engine. */
#include "sched.h"

#include "seccomp.h"

#include <liburing.h>
#include <sys/epoll.h>

static const char *const engine_variable = "SWITCHTO_ENGINE";

static int await_read(int fd, void *buffer, unsigned int size, uint32_t *flags,
		      const struct timespec *deadline)
{
	struct io_uring_sqe sqe = { 0 };

	io_uring_prep_read(&sqe, fd, buffer, size, (uint64_t)-1);
	return switchto_await(&sqe, flags, deadline);
}

/* --- operations --- */

static int ends[2];

TEST_IN_TASK(awaited)
{
	char name[] = "/tmp/switchto-XXXXXX", text[6] = "";
	struct io_uring_sqe sqe = { 0 };
	uint32_t flags = ~0U;
	int fd = mkstemp(name);

	CHECK(&verdict, fd >= 0);
	io_uring_prep_nop(&sqe);
	CHECK_EQ(&verdict, switchto_await(&sqe, &flags, NULL), 0);
	CHECK_EQ(&verdict, flags, 0);
	memset(&sqe, 0, sizeof(sqe));
	io_uring_prep_write(&sqe, fd, "hello", 5, 0);
	CHECK_EQ(&verdict, switchto_await(&sqe, NULL, NULL), 5);
	CHECK_EQ(&verdict, lseek(fd, 0, SEEK_SET), 0);
	CHECK_EQ(&verdict, await_read(fd, text, 5, NULL, NULL), 5);
	CHECK(&verdict, strcmp(text, "hello") == 0);
	CHECK_EQ(&verdict, await_read(fd, text, 5, NULL, NULL), 0);
	CHECK_ERR(&verdict, await_read(-1, text, 5, NULL, NULL), EBADF);
	CHECK_EQ(&verdict, close(fd), 0);
	CHECK_EQ(&verdict, unlink(name), 0);
}

static void refuse(void *arg)
{
	static const unsigned int flags[] = { IOSQE_IO_LINK, IOSQE_IO_HARDLINK, IOSQE_IO_DRAIN,
					      IOSQE_CQE_SKIP_SUCCESS };
	const struct timespec bad = { 0, -1 };
	struct io_uring_sqe sqe = { 0 };

	for (size_t i = 0; i < sizeof(flags) / sizeof(*flags); i++) {
		io_uring_prep_nop(&sqe);
		io_uring_sqe_set_flags(&sqe, flags[i]);
		CHECK_ERR(&verdict, switchto_await(&sqe, NULL, NULL), EINVAL);
	}
	io_uring_prep_nop(&sqe);
	CHECK_ERR(&verdict, switchto_await(&sqe, NULL, &bad), EINVAL);
	CHECK_EQ(&verdict, switchto_block_begin(), 0);
	CHECK_ERR(&verdict, switchto_await(&sqe, NULL, NULL), EINVAL);
	CHECK_EQ(&verdict, switchto_block_end(), 0);
	CHECK_EQ(&verdict, switchto_await(&sqe, NULL, NULL), 0);
	CHECK_EQ(&verdict, switchto_cancel(switchto_task_self()), 0);
	CHECK_ERR(&verdict, switchto_await(&sqe, NULL, NULL), ECANCELED);
}

TEST(refused)
{
	struct io_uring_sqe sqe = { 0 };

	run_task(refuse, NULL);
	io_uring_prep_nop(&sqe);
	CHECK_ERR(v, switchto_await(&sqe, NULL, NULL), EPERM);
}

/* --- an end before the completion --- */

static PER_TEST atomic_uint waiting;
static struct switchto_task *waits;

static void await_in_vain(void *arg)
{
	struct timespec soon = in(NSEC_PER_SEC / 100);
	uint32_t flags;
	char byte = 'a';

	CHECK_ERR(&verdict, await_read(ends[0], &byte, 1, NULL, &soon), ETIMEDOUT);
	/* It has passed, but there is something. */
	CHECK_EQ(&verdict, write(ends[1], "b", 1), 1);
	CHECK_EQ(&verdict, await_read(ends[0], &byte, 1, &flags, &soon), 1);
	CHECK_EQ(&verdict, byte, 'b');
	atomic_store(&waiting, 1);
	CHECK_ERR(&verdict, await_read(ends[0], &byte, 1, NULL, NULL), ECANCELED);
	/* Canceled reads take nothing. */
	CHECK_EQ(&verdict, write(ends[1], "c", 1), 1);
	CHECK_EQ(&verdict, read(ends[0], &byte, 1), 1);
	CHECK_EQ(&verdict, byte, 'c');
}

static void cancel_it(void *arg)
{
	while (!atomic_load(&waiting))
		switchto_yield();
	CHECK_EQ(&verdict, switchto_cancel(waits), 0);
	CHECK_EQ(&verdict, switchto_join(waits), 0);
}

TEST(in_vain)
{
	assert_int_equal(pipe(ends), 0);
	waits = add_handle(await_in_vain, NULL);
	add_task(cancel_it, NULL);
	run_added();
	close_both(ends);
}

/* A thread of the kernel sleeps in open(2), and counts as a reader until it has been woken. */
static void open_in_vain(void *arg)
{
	const char *fifo = arg;
	struct io_uring_sqe sqe = { 0 };

	io_uring_prep_openat(&sqe, AT_FDCWD, fifo, O_RDONLY, 0);
	/* Otherwise it is tried without blocking first, which a FIFO allows. */
	io_uring_sqe_set_flags(&sqe, IOSQE_ASYNC);
	for (int i = 0; i < LOOPS(50); i++) {
		struct timespec soon = in(NSEC_PER_SEC / 1000);

		CHECK_ERR(&verdict, switchto_await(&sqe, NULL, &soon), ETIMEDOUT);
		CHECK_ERR(&verdict, open(fifo, O_WRONLY | O_NONBLOCK), ENXIO);
	}
}

TEST(over_when_it_returns)
{
	char folder[] = "/tmp/switchto-XXXXXX", fifo[64];

	assert_non_null(mkdtemp(folder));
	snprintf(fifo, sizeof(fifo), "%s/fifo", folder);
	assert_int_equal(mkfifo(fifo, 0600), 0);
	run_task(open_in_vain, fifo);
	assert_int_equal(unlink(fifo), 0);
	assert_int_equal(rmdir(folder), 0);
}

/* --- more operations than a ring has room for --- */

enum { MANY = 500 };

static void await_a_byte(void *arg)
{
	char byte = 0;

	atomic_fetch_add(&waiting, 1);
	CHECK_EQ(&verdict, await_read(ends[0], &byte, 1, NULL, NULL), 1);
	CHECK_EQ(&verdict, byte, 'x');
	atomic_fetch_sub(&waiting, 1);
}

static void write_to_all(void *arg)
{
	char bytes[MANY];

	memset(bytes, 'x', sizeof(bytes));
	YIELD_UNTIL(atomic_load(&waiting) >= MANY);
	/* All complete at once. */
	CHECK_EQ(&verdict, write(ends[1], bytes, sizeof(bytes)), MANY);
}

TEST(many_at_once)
{
	struct switchto_sched *sched = SCHED(.slots = slots, .stack_size = 1 << 17);

	assert_int_equal(pipe(ends), 0);
	for (int i = 0; i < MANY; i++)
		spawn(sched, await_a_byte, NULL);
	run_one(sched, write_to_all, NULL);
	assert_int_equal(atomic_load(&waiting), 0);
	close_both(ends);
}

/* --- the choice --- */

/* Of a new scheduler, with @variable, or none if it is NULL: the engine, or NULL and errno. */
static const char *choose(const char *variable)
{
	struct switchto_sched *sched;
	const char *engine = NULL;

	if (variable)
		setenv(engine_variable, variable, 1);
	else
		unsetenv(engine_variable);
	if (switchto_sched_create(&sched, NULL))
		return NULL;
	engine = switchto_sched_engine(sched);
	switchto_sched_destroy(sched);
	return engine;
}

static void await_nothing(void *arg)
{
	struct io_uring_sqe sqe = { 0 };

	io_uring_prep_nop(&sqe);
	CHECK_ERR(&verdict, switchto_await(&sqe, NULL, NULL), ENOSYS);
}

TEST(chosen)
{
	const char *before = getenv(engine_variable);
	char *kept = before ? strdup(before) : NULL;
	struct switchto_sched *sched;

	assert_string_equal(choose(NULL), "io_uring");
	assert_string_equal(choose("io_uring"), "io_uring");
	assert_string_equal(choose("epoll"), "epoll");
	sched = new_sched(NULL);
	run_one(sched, await_nothing, NULL);
	assert_null(choose("kqueue"));
	assert_int_equal(errno, ENOTSUP);
	if (kept)
		setenv(engine_variable, kept, 1);
	else
		unsetenv(engine_variable);
	free(kept);
}

/* In a child: the filter stays. Its status says which check failed. */
static int choose_under_filter(void *arg)
{
	const char *engine;

	filter_call(SYS_io_uring_setup, ANSWER(EPERM));
	engine = choose(NULL);
	if (!engine || strcmp(engine, "epoll") != 0)
		return 1;
	if (choose("io_uring") || errno != EPERM)
		return 2;
	return 0;
}

/* The same, where the call ends the thread. */
static int choose_without_answer(void *arg)
{
	const char *engine;

	filter_call(SYS_io_uring_setup, SECCOMP_RET_KILL_THREAD);
	engine = choose(NULL);
	return !engine || strcmp(engine, "epoll") != 0 || fcntl(0, F_GETFD) == -1;
}

TEST(forbidden)
{
	assert_int_equal(run_child(choose_under_filter, NULL), 0);
	/* Sanitizers would wait for the thread. */
#if !defined(UNDER_TSAN) && !defined(UNDER_ASAN)
	assert_int_equal(run_child(choose_without_answer, NULL), 0);
#else
	(void)choose_without_answer;
#endif
}

/* When a ring ends, the kernel interrupts whoever has made it, at some time. */
static void *wait_after_end(void *arg)
{
	const int epoll = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event event;

	for (int i = 0; i < 5; i++) {
		run_one(new_sched(NULL), refuse, NULL);
		CHECK_EQ(&verdict, epoll_wait(epoll, &event, 1, 50), 0);
	}
	CHECK_EQ(&verdict, close(epoll), 0);
	return arg;
}

TEST(ends_without_interrupt)
{
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, wait_after_end, NULL), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	verdict_assert(&verdict);
}

/* With room for the descriptors of one slot, but not of two. */
TEST(no_descriptors)
{
	const int next = dup(0);

	close(next);
	for (int room = 0; room < 6; room++) {
		const rlim_t old = set_limit(RLIMIT_NOFILE, (rlim_t)next + (rlim_t)room);

		no_sched(&OPTIONS(.slots = 2), EMFILE);
		set_limit(RLIMIT_NOFILE, old);
	}
	assert_int_equal(dup(0), next);
	close(next);
}

int main(int argc, char **argv)
{
	struct io_uring ring;

	/* Forced, it must be there. */
	if (io_uring_queue_init(1, &ring, 0) && !getenv(engine_variable)) {
		fprintf(stderr,
			"sched_ring: skipped, wanted io_uring, found that it is forbidden\n");
		return SKIPPED;
	}
	io_uring_queue_exit(&ring);
	return run_sched_tests(argc, argv);
}
