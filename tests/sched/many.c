// SPDX-License-Identifier: MIT
/* Many tasks, and many schedulers, that begin and end at once: nothing is left of them. */
#include "sched.h"

#include <linux/io_uring.h>
#include <malloc.h>
#include <sys/socket.h>

enum { MANY = 1000 };

static PER_TEST atomic_int runs;

static void run_once(void *arg)
{
	atomic_fetch_add(&runs, 1);
}

/* --- threads of tasks --- */

static unsigned int threads(void)
{
	return entries("/proc/self/task");
}

enum { WAITING = 100000 };

/* What waits to run has no thread, and little memory. */
TEST(many_before_the_run)
{
	struct switchto_sched *sched = new_sched(NULL);
	const unsigned int before = threads();
	const size_t memory = mallinfo2().uordblks;

	for (int i = 0; i < WAITING; i++)
		spawn(sched, run_once, NULL);
	assert_true(threads() <= before);
	assert_true(mallinfo2().uordblks - memory <= (size_t)WAITING * 400);
	run_tasks(sched);
	assert_int_equal(atomic_load(&runs), WAITING);
}

static atomic_uint most_threads;

static void spawn_many(void *arg)
{
	for (int i = 0; i < WAITING; i++) {
		spawn(NULL, run_once, NULL);
		if (i % 1000 == 0 && threads() > atomic_load(&most_threads))
			atomic_store(&most_threads, threads());
	}
}

/* They run one after the other on one thread of each slot. Others have blocked, or are about to end. */
TEST(many_by_a_task)
{
	const unsigned int before = threads();

	atomic_store(&most_threads, 0);
	run_task(spawn_many, NULL);
	assert_int_equal(atomic_load(&runs), WAITING);
	assert_true(atomic_load(&most_threads) <= before + 64);
}

/* --- all are cancelled while they wait --- */

/* Nothing comes to read from this pair, and there is no room to write. */
static int pair[2];
/* Until it is closed, regions last. */
static int gate[2];
static struct switchto_mutex held, mutex;
static struct switchto_cond cond;
static struct switchto_sem sem;
static struct switchto_group group;
static struct switchto_chan *empty, *full;
static atomic_uint begun, ended;

static struct timespec never(void)
{
	return in(1000000 * NSEC_PER_SEC);
}

static long wait_in_region(void)
{
	char c;

	CHECK_EQ(&verdict, switchto_block_begin(), 0);
	CHECK_EQ(&verdict, read(gate[0], &c, 1), 0);
	CHECK_EQ(&verdict, switchto_block_end(), 0);
	return switchto_park(NULL);
}

/* Blocks without a word: the monitor takes the slot. */
static long wait_unannounced(void)
{
	char c;

	CHECK_EQ(&verdict, read(gate[0], &c, 1), 0);
	return switchto_park(NULL);
}

/* No cancellation ends the wait for a mutex, but whoever has it is cancelled. */
static long wait_for_mutex(void)
{
	CHECK_EQ(&verdict, switchto_mutex_lock(&held), 0);
	CHECK_ERR(&verdict, switchto_park(NULL), ECANCELED);
	CHECK_EQ(&verdict, switchto_mutex_unlock(&held), 0);
	return switchto_park(NULL);
}

static long wait_for_cond(void)
{
	const struct timespec time = never();

	CHECK_EQ(&verdict, switchto_mutex_lock(&mutex), 0);
	CHECK_ERR(&verdict, switchto_cond_wait(&cond, &mutex, &time), ECANCELED);
	CHECK_EQ(&verdict, switchto_mutex_unlock(&mutex), 0);
	return switchto_park(NULL);
}

static long wait_for_some(void)
{
	char item = 0;
	struct switchto_case cases[] = { { empty, SWITCHTO_RECEIVE, &item, false },
					 { full, SWITCHTO_SEND, &item, false } };

	return switchto_select(cases, 2, NULL);
}

static long wait_for_own_pipe(void)
{
	const struct timespec time = never();
	int ends[2];
	char c;

	CHECK_EQ(&verdict, pipe(ends), 0);
	CHECK_ERR(&verdict, switchto_read(ends[0], &c, 1, &time), ECANCELED);
	close_known(ends);
	return switchto_park(NULL);
}

static long wait_for_ring(void)
{
	const struct io_uring_sqe sqe = {
		.opcode = IORING_OP_POLL_ADD,
		.fd = pair[0],
		.poll_events = POLLIN,
	};
	const long result = switchto_await(&sqe, NULL, NULL);

	return result == -1 && errno == ENOSYS ? switchto_park(NULL) : result;
}

static void park(void *arg)
{
	CHECK_ERR(&verdict, switchto_park(NULL), ECANCELED);
}

/* If all are cancelled, it may end before the join is. */
static long wait_for_child(void)
{
	struct switchto_task *child;

	if (switchto_spawn(NULL, park, NULL, NULL, &child) == 0 && switchto_join(child))
		CHECK_EQ(&verdict, switchto_end(child), 0);
	return switchto_park(NULL);
}

static long wait_somehow(unsigned int how)
{
	const struct timespec time = never();
	char c = 0;

	switch (how) {
	case 0:
		return wait_in_region();
	case 1:
		return wait_for_mutex();
	case 2:
		return wait_for_cond();
	case 3:
		return wait_for_some();
	case 4:
		return wait_for_own_pipe();
	case 5:
		return wait_for_ring();
	case 6:
		return wait_for_child();
	case 7:
		return switchto_park(&time);
	case 8:
		return switchto_sleep_until(&time);
	case 9:
		return switchto_recv(pair[0], &c, 1, 0, NULL);
	case 10:
		return switchto_send(pair[0], &c, 1, 0, &time);
	case 11:
		return switchto_poll(pair[0], POLLIN, &time);
	case 12:
		return switchto_sem_wait(&sem, NULL);
	case 13:
		return switchto_group_wait(&group, &time);
	case 14:
		return switchto_chan_recv(empty, &c, NULL);
	case 15:
		return switchto_chan_send(full, &c, &time);
	default:
		return switchto_park(NULL);
	}
}

static void wait_until_cancelled(void *number)
{
	const unsigned int n = (unsigned int)(uintptr_t)number;

	atomic_fetch_add(&begun, 1);
	/* The monitor needs some milliseconds for each of the former. */
	CHECK_ERR(&verdict, n % 100 == 99 ? wait_unannounced() : wait_somehow(n % 17), ECANCELED);
	atomic_fetch_add(&ended, 1);
}

static void begin_all(void)
{
	char c = 0;

	group = (struct switchto_group){ .count = 1 };
	atomic_store(&begun, 0);
	atomic_store(&ended, 0);
	assert_int_equal(switchto_chan_create(&empty, 1, 0), 0);
	assert_int_equal(switchto_chan_create(&full, 1, 1), 0);
	assert_int_equal(switchto_chan_send(full, &c, NULL), 0);
	assert_int_equal(pipe(gate), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
	while (write(pair[0], &c, 1) == 1)
		;
}

static void end_all(void)
{
	assert_int_equal(switchto_chan_destroy(empty), 0);
	assert_int_equal(switchto_chan_destroy(full), 0);
	close(gate[0]);
	for (int i = 0; i < 2; i++)
		switchto_close(pair[i]);
}

/* What there is before and after a round. */
struct kept {
	unsigned int threads, files;
	size_t memory;
	long long time;
};

static struct kept count_kept(void)
{
	return (struct kept){ threads(), entries("/proc/self/fd"), mallinfo2().uordblks, cpu_ns() };
}

/* The caches of malloc() keep some thousand bytes. */
enum { CACHED = 16 << 10 };

/* @again: there was such a round before, so tables have their size. */
static void assert_nothing_left(const struct kept *before, bool again)
{
	struct kept after;

	/* A thread that has been joined is in the folder for a moment. */
	AWAIT(threads() <= before->threads);
	after = count_kept();
	assert_int_equal(after.files, before->files);
	if (again)
		assert_in_range(after.memory, 0, before->memory + CACHED);
	assert_in_range(after.time - before->time, 0, 60 * NSEC_PER_SEC);
}

static struct switchto_task *handles[MANY];

static bool have_begun(void)
{
	return atomic_load(&begun) == (unsigned int)LOOPS(MANY);
}

static void stop(void *sched)
{
	CHECK_EQ(&verdict, switchto_sched_stop(sched, SWITCHTO_STOP_CANCEL), 0);
	close(gate[1]);
}

static void stop_as_task(void *sched)
{
	YIELD_UNTIL(have_begun());
	CHECK_EQ(&verdict, switchto_yield(), 0);
	stop(sched);
}

static void stop_as_thread(void *sched)
{
	AWAIT(have_begun());
	stop(sched);
}

static void end_one_by_one(void *arg)
{
	AWAIT(have_begun());
	close(gate[1]);
	for (int i = 0; i < LOOPS(MANY); i++)
		CHECK_EQ(&verdict, switchto_cancel(handles[i]), 0);
	for (int i = 0; i < LOOPS(MANY); i++)
		CHECK_EQ(&verdict, switchto_join(handles[i]), 0);
}

/* @ender: a thread that ends all tasks; NULL: a task does. */
static void end_at_once(void (*ender)(void *), bool again)
{
	const struct kept before = count_kept();
	struct switchto_sched *sched = new_sched(NULL);
	pthread_t thread;

	begin_all();
	/* Some are detached, and of the others the handle is not given back, unless they are joined. */
	for (uintptr_t i = 0; i < (uintptr_t)LOOPS(MANY); i++)
		if (i % 3 || ender == end_one_by_one)
			handles[i] = spawn_handle(sched, wait_until_cancelled, (void *)i);
		else
			spawn(sched, wait_until_cancelled, (void *)i);
	if (ender)
		thread = start_thread(ender, sched);
	else
		spawn(sched, stop_as_task, sched);
	assert_int_equal(switchto_sched_run(sched), 0);
	if (ender)
		pthread_join(thread, NULL);
	assert_int_equal(switchto_sched_destroy(sched), 0);
	verdict_assert(&verdict);
	assert_int_equal(atomic_load(&ended), LOOPS(MANY));
	end_all();
	assert_nothing_left(&before, again);
}

TEST(ended_at_once)
{
	end_at_once(NULL, false);
	end_at_once(stop_as_thread, true);
	end_at_once(end_one_by_one, true);
}

/* --- many schedulers end at the same time --- */

enum { SCHEDULERS = 30, EACH = 20 };

static void run_and_destroy(void *sched)
{
	CHECK_EQ(&verdict, switchto_sched_run(sched), 0);
	CHECK_EQ(&verdict, switchto_sched_destroy(sched), 0);
}

static atomic_uint ticks;
static atomic_bool over;

static void tick(void *arg)
{
	while (!atomic_load(&over)) {
		sleep_for(NSEC_PER_SEC / 1000);
		atomic_fetch_add(&ticks, 1);
	}
}

/* They wait for the same objects and descriptors. Another scheduler goes on. */
static void end_schedulers(bool again)
{
	const struct kept before = count_kept();
	struct switchto_sched *scheds[SCHEDULERS], *other = new_sched(NULL);
	pthread_t threads[SCHEDULERS + 1];
	unsigned int before_end;

	begin_all();
	atomic_store(&over, false);
	spawn(other, tick, NULL);
	for (int i = 0; i < SCHEDULERS; i++)
		scheds[i] = new_sched(NULL);
	threads[SCHEDULERS] = start_thread(run_and_destroy, other);
	for (uintptr_t i = 0; i < SCHEDULERS; i++) {
		for (uintptr_t j = 0; j < EACH; j++)
			spawn(scheds[i], wait_until_cancelled, (void *)(i * EACH + j));
		threads[i] = start_thread(run_and_destroy, scheds[i]);
	}
	AWAIT(atomic_load(&begun) == SCHEDULERS * EACH);
	for (int i = 0; i < SCHEDULERS; i++)
		CHECK_EQ(&verdict, switchto_sched_stop(scheds[i], SWITCHTO_STOP_CANCEL), 0);
	close(gate[1]);
	for (int i = 0; i < SCHEDULERS; i++)
		pthread_join(threads[i], NULL);
	before_end = atomic_load(&ticks);
	AWAIT(atomic_load(&ticks) > before_end + 2);
	atomic_store(&over, true);
	pthread_join(threads[SCHEDULERS], NULL);
	verdict_assert(&verdict);
	assert_int_equal(atomic_load(&ended), SCHEDULERS * EACH);
	end_all();
	assert_nothing_left(&before, again);
}

TEST(schedulers_end_at_once)
{
	for (int i = 0; i < 3; i++)
		end_schedulers(i > 0);
}

int main(int argc, char **argv)
{
	/* How many arenas there are depends on how threads meet in malloc(). */
	mallopt(M_ARENA_MAX, 1);
	return run_sched_tests(argc, argv);
}
