// SPDX-License-Identifier: MIT
/* Options of a scheduler: how many threads, for how long, and what they are. */
#include "sched.h"

#include <dirent.h>
#include <sys/mman.h>

/* --- threads --- */

static unsigned int threads(void)
{
	/* Without . and .. */
	return entries("/proc/self/task") - 2;
}

static struct switchto_sched *with_threads(unsigned int most, unsigned int idle, unsigned int flags)
{
	return SCHED(.slots = slots, .flags = flags, .max_threads = most, .idle_threads = idle);
}

enum { MOST = 3, CAPPED = 1000 };

static PER_TEST atomic_int begun, ended;
static unsigned int others; /* threads that run no tasks */

static void use_a_thread(void *arg)
{
	CHECK(&verdict, atomic_fetch_add(&begun, 1) < MOST);
	CHECK(&verdict, threads() <= others + MOST);
	if ((uintptr_t)arg % 3 == 0)
		CHECK_EQ(&verdict, switchto_yield(), 0);
	if ((uintptr_t)arg % 5 == 0)
		sleep_for(20000);
	atomic_fetch_sub(&begun, 1);
	atomic_fetch_add(&ended, 1);
}

static void spawn_more(void *arg)
{
	for (uintptr_t i = 0; i < CAPPED / 10; i++)
		spawn(NULL, use_a_thread, (void *)i);
}

static void cap_threads(unsigned int flags)
{
	struct switchto_sched *sched = with_threads(MOST, 0, flags);

	atomic_store(&begun, 0);
	atomic_store(&ended, 0);
	/* The dispatchers, of which this thread is one, and the monitor; ThreadSanitizer has one, too. */
	others = threads() + slots;
#ifdef UNDER_TSAN
	others++;
#endif
	for (uintptr_t i = 0; i < CAPPED; i++)
		spawn(sched, use_a_thread, (void *)i);
	run_one_in_time(sched, spawn_more, NULL);
	assert_int_equal(atomic_load(&ended), CAPPED + CAPPED / 10);
}

TEST(threads_capped)
{
	cap_threads(0);
	cap_threads(SWITCHTO_STEAL | SWITCHTO_MEASURE);
}

static struct switchto_task *parkers[MOST];

static void park_told_or_cancelled(void *arg)
{
	atomic_fetch_add(&begun, 1);
	if (switchto_park(NULL))
		CHECK_EQ(&verdict, errno, ECANCELED);
}

static void say_cancelled(void *arg)
{
	CHECK_ERR(&verdict, switchto_yield(), ECANCELED);
	atomic_fetch_add(&ended, 1);
}

static void say_unparked(void *arg)
{
	CHECK_EQ(&verdict, switchto_park(NULL), 0);
	atomic_fetch_add(&ended, 1);
}

/* All threads are taken, by tasks of any slots. Those of all others wait for them. */
static void unpark_them(void *sched)
{
	struct switchto_task *cancelled, *unparked;

	AWAIT(atomic_load(&begun) >= MOST);
	cancelled = spawn_handle(sched, say_cancelled, NULL);
	unparked = spawn_handle(sched, say_unparked, NULL);
	for (uintptr_t i = 0; i < 10; i++)
		spawn(sched, say_cancelled, NULL);
	nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
	CHECK_EQ(&verdict, atomic_load(&ended), 0);
	CHECK_EQ(&verdict, switchto_cancel(cancelled), 0);
	CHECK_EQ(&verdict, switchto_unpark(unparked), 0);
	CHECK_EQ(&verdict, switchto_sched_stop(sched, SWITCHTO_STOP_CANCEL), 0);
	CHECK_EQ(&verdict, switchto_join(cancelled), 0);
	CHECK_EQ(&verdict, switchto_join(unparked), 0);
}

TEST(tasks_held)
{
	struct switchto_sched *sched = with_threads(MOST, 0, 0);
	pthread_t thread;

	atomic_store(&ended, 0);
	for (int i = 0; i < MOST; i++)
		spawn(sched, park_told_or_cancelled, NULL);
	thread = start_thread(unpark_them, sched);
	assert_int_equal(switchto_sched_run(sched), 0);
	pthread_join(thread, NULL);
	assert_int_equal(switchto_sched_destroy(sched), 0);
	assert_int_equal(atomic_load(&ended), 12);
	verdict_assert(&verdict);
}

/* The last thread that has a task is not of the slot whose tasks wait. */
static void unpark_one_by_one(void *sched)
{
	AWAIT(atomic_load(&begun) >= MOST);
	for (uintptr_t i = 0; i < 20; i++)
		spawn(sched, park_told_or_cancelled, NULL);
	for (int i = 0; i < MOST; i++) {
		const int before = atomic_load(&begun);

		CHECK_EQ(&verdict, switchto_unpark(parkers[i]), 0);
		AWAIT(atomic_load(&begun) != before);
	}
	CHECK_EQ(&verdict, switchto_sched_stop(sched, SWITCHTO_STOP_CANCEL), 0);
}

TEST(threads_go_to_other_slots)
{
	struct switchto_sched *sched = with_threads(MOST, 0, 0);

	for (int i = 0; i < MOST; i++)
		parkers[i] = spawn_handle(sched, park_told_or_cancelled, NULL);
	run_with_thread(sched, unpark_one_by_one, sched);
}

static void park_at_once(void *arg)
{
	CHECK_EQ(&verdict, switchto_park(NULL), 0);
}

static void end_at_once(void *arg)
{
	atomic_fetch_add(&ended, 1);
}

static void unpark_first(void *arg)
{
	CHECK_EQ(&verdict, switchto_unpark(parkers[0]), 0);
}

/* When the other thread has nothing to do, and waits for events of its slot. */
static void spawn_on_another(void *sched)
{
	AWAIT(atomic_load(&ended));
	nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
	CHECK_EQ(&verdict, switchto_spawn_on(sched, (int)slots - 1, unpark_first, NULL, NULL, NULL),
		 0);
}

TEST(free_thread_goes_to_another_slot)
{
	struct switchto_sched *sched = with_threads(2, 0, 0);
	pthread_t thread;

	assert_int_equal(switchto_spawn_on(sched, 0, park_at_once, NULL, NULL, &parkers[0]), 0);
	assert_int_equal(switchto_spawn_on(sched, 0, end_at_once, NULL, NULL, NULL), 0);
	thread = start_thread(spawn_on_another, sched);
	run_in_time(sched);
	pthread_join(thread, NULL);
}

enum { BURST = 40 };

static pthread_key_t key;
static PER_TEST atomic_int destroyed;

static void count_destroyed(void *value)
{
	atomic_fetch_add(&destroyed, 1);
}

static void take_a_thread(void *arg)
{
	CHECK_EQ(&verdict, pthread_setspecific(key, &key), 0);
	atomic_fetch_add(&begun, 1);
	CHECK_EQ(&verdict, switchto_park(NULL), 0);
}

/* Twice: what has ended is made again. */
static void have_bursts(void *arg)
{
	const unsigned int before = threads();
	struct switchto_task *tasks[BURST];

	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < BURST; i++)
			tasks[i] = spawn_handle(NULL, take_a_thread, NULL);
		while (atomic_load(&begun) < (round + 1) * BURST)
			CHECK_EQ(&verdict, switchto_yield(), 0);
		CHECK(&verdict, threads() >= before + BURST / 2);
		for (int i = 0; i < BURST; i++)
			CHECK_EQ(&verdict, switchto_unpark(tasks[i]), 0);
		for (int i = 0; i < BURST; i++)
			CHECK_EQ(&verdict, switchto_join(tasks[i]), 0);
		do {
			sleep_for(NSEC_PER_SEC / 10);
		} while (threads() > before + 2 + 2 * slots);
	}
	CHECK(&verdict, atomic_load(&destroyed) >= 2 * (BURST - 2 - 2 * (int)slots));
}

TEST(idle_threads_end)
{
	struct switchto_sched *sched = with_threads(0, 2, 0);

	assert_int_equal(pthread_key_create(&key, count_destroyed), 0);
	atomic_store(&begun, 0);
	run_one_in_time(sched, have_bursts, NULL);
	pthread_key_delete(key);
}

/* --- stacks and names --- */

enum { DEEP = 65536, STACKS = 8 };

static PER_TEST _Atomic(char *) deep[STACKS];

static void use_its_stack(void *arg)
{
	volatile char stack[DEEP];

	for (int i = 0; i < DEEP; i++)
		stack[i] = 1;
	atomic_store((_Atomic(char *) *)arg, (char *)stack);
	CHECK_EQ(&verdict, switchto_park(NULL), 0);
	CHECK_EQ(&verdict, stack[DEEP / 2], 1);
}

/* Half of them end. */
static void look_at_stacks(void *arg)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct switchto_task *tasks[STACKS];
	unsigned int in_memory;

	for (int i = 0; i < STACKS; i++)
		tasks[i] = spawn_handle(NULL, use_its_stack, &deep[i]);
	for (int i = 0; i < STACKS; i++)
		YIELD_UNTIL(atomic_load(&deep[i]));
	for (int i = 0; i < STACKS / 2; i++) {
		CHECK_EQ(&verdict, switchto_unpark(tasks[i]), 0);
		CHECK_EQ(&verdict, switchto_join(tasks[i]), 0);
	}
	do {
		sleep_for(NSEC_PER_SEC / 10);
		in_memory = 0;
		for (int i = 0; i < STACKS; i++) {
			unsigned char has;
			char *middle = atomic_load(&deep[i]) + DEEP / 2;

			CHECK_EQ(&verdict, mincore(middle - (uintptr_t)middle % page, 1, &has), 0);
			in_memory += has & 1;
		}
		/* A spare thread may be left for each slot. */
	} while (in_memory > STACKS / 2 + slots);
	for (int i = STACKS / 2; i < STACKS; i++) {
		CHECK_EQ(&verdict, switchto_unpark(tasks[i]), 0);
		CHECK_EQ(&verdict, switchto_join(tasks[i]), 0);
	}
}

TEST(stacks_of_idle_threads_given_back)
{
	run_one_in_time(SCHED(.slots = slots), look_at_stacks, NULL);
}

static size_t guard;

static void look_at_guard(void *arg)
{
	pthread_attr_t attr;

	CHECK_EQ(&verdict, pthread_getattr_np(pthread_self(), &attr), 0);
	CHECK_EQ(&verdict, pthread_attr_getguardsize(&attr, &guard), 0);
	pthread_attr_destroy(&attr);
}

static size_t guard_with(ssize_t guard_size)
{
	const struct switchto_sched_options options = OPTIONS(.slots = slots,
							      .guard_size = guard_size);
	struct switchto_sched *sched;

	if (switchto_sched_create(&sched, &options))
		return SIZE_MAX;
	run_one(sched, look_at_guard, NULL);
	return guard;
}

TEST(guards)
{
	assert_int_equal(guard_with(SWITCHTO_NO_GUARD), 0);
	assert_int_equal(guard_with(65536), 65536);
	assert_int_equal(guard_with(-2), SIZE_MAX);
	assert_int_equal(errno, EINVAL);
	/* More than there is. */
	assert_int_equal(guard_with(SSIZE_MAX), SIZE_MAX);
	assert_true(errno == EINVAL || errno == EAGAIN || errno == ENOMEM);
}

/* How many threads have this name? */
static unsigned int named(const char *name)
{
	DIR *dir = opendir("/proc/self/task");
	struct dirent *entry;
	unsigned int count = 0;

	while ((entry = readdir(dir))) {
		char text[32];

		if (!read_text(text_of("/proc/self/task/%s/comm", entry->d_name), text,
			       sizeof(text)))
			continue;
		text[strcspn(text, "\n")] = '\0';
		count += strcmp(text, name) == 0;
	}
	closedir(dir);
	return count;
}

static void look_at_names(void *arg)
{
	CHECK_EQ(&verdict, named("server-with-a-l"), 1);
	YIELD_UNTIL(named("server-with/mon"));
	for (unsigned int i = 1; i < slots; i++) {
		char name[32];

		snprintf(name, sizeof(name), "server-with-a/%u", i);
		CHECK_EQ(&verdict, named(name), 1);
	}
	CHECK_EQ(&verdict, named("server-with-a/0"), 0);
}

TEST(names)
{
	char name[] = "server-with-a-long-name";
	struct switchto_sched *sched = SCHED(.slots = slots, .name = name);

	memset(name, 0, sizeof(name));
	run_one(sched, look_at_names, NULL);
}
