// SPDX-License-Identifier: MIT
#include "sched.h"

#include <dirent.h>
#include <sys/mman.h>

unsigned int slots = 1;
struct verdict verdict;

static PER_TEST struct switchto_sched *added; /* of the test, until it has run */

static int begin_test(void **state)
{
	verdict = (struct verdict){ 0 };
	return 0;
}

int run_sched_tests(int argc, char **argv)
{
	slots = argc > 1 ? (unsigned int)atoi(argv[1]) : 1;
	if (slots < 1 || slots > 64) {
		fprintf(stderr, "%s: wanted a number of slots, 1 to 64, found '%s'\n", argv[0],
			argv[1]);
		return 2;
	}
	if (!switchto_backend() && errno == ENOSYS)
		return SKIPPED;
	shared_verdict = &verdict;
	return run_group(NULL, begin_test, NULL);
}

struct switchto_sched *new_sched(const struct switchto_policy *policy)
{
	return new_sched_with(policy, 0, slots);
}

struct switchto_sched *sched_with(const struct switchto_sched_options *options)
{
	struct switchto_sched *sched;

	assert_int_equal(switchto_sched_create(&sched, options), 0);
	return sched;
}

void no_sched(const struct switchto_sched_options *options, int error)
{
	struct switchto_sched *sched;

	CHECK_ERR(&verdict, switchto_sched_create(&sched, options), error);
}

struct switchto_sched *new_sched_with(const struct switchto_policy *policy, unsigned int flags,
				      unsigned int slots_wanted)
{
	return SCHED(.policy = policy, .flags = flags, .slots = slots_wanted);
}

struct switchto_sched *monitored(const struct switchto_sched_options *options)
{
	struct switchto_sched *sched;

	setenv("SWITCHTO_BLOCK", "monitor", true);
	sched = sched_with(options);
	unsetenv("SWITCHTO_BLOCK");
	return sched;
}

struct switchto_sched *new_sched_in_order(const struct switchto_policy *policy)
{
	return monitored(&OPTIONS(.policy = policy, .slots = 1));
}

struct switchto_sched *without_slices(const struct switchto_policy *policy, unsigned int flags,
				      unsigned int slots_wanted)
{
	return SCHED(.policy = policy, .flags = flags, .slots = slots_wanted,
		     .slice = SWITCHTO_NO_SLICE);
}

const struct switchto_policy *const all_policies[4] = { &switchto_fifo, &switchto_priority,
							&switchto_edf, &switchto_fair };

struct switchto_slot_stats stats_of(struct switchto_sched *sched)
{
	struct switchto_slot_stats all = { 0 };

	for (unsigned int i = 0; i < switchto_sched_slots(sched); i++) {
		struct switchto_slot_stats stats = { 0 };

		CHECK_EQ(&verdict, switchto_slot_stats(sched, i, &stats), 0);
		all.runs += stats.runs;
		all.steals += stats.steals;
		all.retakes += stats.retakes;
	}
	return all;
}

unsigned long long retakes_of(struct switchto_sched *sched)
{
	return stats_of(sched).retakes;
}

struct switchto_task *spawn_handle(struct switchto_sched *sched, void (*fn)(void *), void *arg)
{
	struct switchto_task *task = NULL;

	CHECK_EQ(&verdict, switchto_spawn(sched, fn, arg, NULL, &task), 0);
	return task;
}

void spawn(struct switchto_sched *sched, void (*fn)(void *), void *arg)
{
	CHECK_EQ(&verdict, switchto_spawn(sched, fn, arg, NULL, NULL), 0);
}

int run_by_steps(struct switchto_sched *sched, unsigned int *steps)
{
	struct pollfd events = { .fd = switchto_sched_fd(sched), .events = POLLIN };
	int left = switchto_sched_step(sched);

	for (*steps = 1; left == 1; ++*steps) {
		/* None of the tests lasts so long: a wakeup was lost. */
		if (poll(&events, 1, 120000) != 1)
			give_up("wanted something to do for a step, found nothing");
		left = switchto_sched_step(sched);
	}
	return left;
}

int run_or_step(struct switchto_sched *sched)
{
	unsigned int steps;

	return getenv("TEST_STEPS") && switchto_sched_slots(sched) == 1 ?
		       run_by_steps(sched, &steps) :
		       switchto_sched_run(sched);
}

void run_tasks(struct switchto_sched *sched)
{
	assert_int_equal(run_or_step(sched), 0);
	assert_int_equal(switchto_sched_destroy(sched), 0);
	verdict_assert(&verdict);
}

void run_one(struct switchto_sched *sched, void (*fn)(void *), void *arg)
{
	spawn(sched, fn, arg);
	run_tasks(sched);
}

bool run_undisturbed(struct switchto_sched *sched)
{
	unsigned long long retakes;

	assert_int_equal(run_or_step(sched), 0);
	retakes = retakes_of(sched);
	assert_int_equal(switchto_sched_destroy(sched), 0);
	verdict_assert(&verdict);
	return !retakes;
}

void run_with_thread(struct switchto_sched *sched, void (*fn)(void *), void *arg)
{
	const pthread_t thread = start_thread(fn, arg);

	assert_int_equal(run_or_step(sched), 0);
	pthread_join(thread, NULL);
	run_tasks(sched);
}

void touch_cold_page(int fd, off_t at)
{
	const volatile char *page;

	posix_fadvise(fd, at, 0, POSIX_FADV_DONTNEED);
	page = mmap(NULL, 1, PROT_READ, MAP_PRIVATE, fd, at);
	if (page == MAP_FAILED)
		return;
	(void)*page;
	munmap((void *)page, 1);
}

struct timespec in(long long ns)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	ns += time.tv_nsec;
	time.tv_sec += ns / NSEC_PER_SEC;
	time.tv_nsec = ns % NSEC_PER_SEC;
	return time;
}

bool has_passed(const struct timespec *time)
{
	return now_ns() >= to_ns(time);
}

void sleep_for(long long ns)
{
	const struct timespec time = in(ns);

	CHECK_EQ(&verdict, switchto_sleep_until(&time), 0);
}

void compute_for(long long ns)
{
	const long long end = thread_cpu_ns() + ns;

	while (thread_cpu_ns() < end)
		;
}

void spin_for(long long ns)
{
	const long long end = now_ns() + ns;

	while (now_ns() < end)
		;
}

struct aborting {
	int (*fn)(void *);
	void *arg;
};

static int aborting(void *arg)
{
	const struct aborting *child = arg;

	abort_quietly();
	return child->fn(child->arg);
}

int run_aborting_child(int (*fn)(void *), void *arg)
{
	return run_child(aborting, &(struct aborting){ fn, arg });
}

void close_both(const int ends[2])
{
	close(ends[0]);
	close(ends[1]);
}

void close_known(const int ends[2])
{
	for (int i = 0; i < 2; i++)
		CHECK_EQ(&verdict, switchto_close(ends[i]), 0);
}

void run_in_time(struct switchto_sched *sched)
{
	const long long begin = now_ns();

	run_tasks(sched);
	assert_true(now_ns() - begin < 120 * NSEC_PER_SEC);
}

void run_one_in_time(struct switchto_sched *sched, void (*fn)(void *), void *arg)
{
	spawn(sched, fn, arg);
	run_in_time(sched);
}

static struct switchto_sched *of_test(void)
{
	if (!added)
		added = new_sched(NULL);
	return added;
}

struct switchto_task *add_handle(void (*fn)(void *), void *arg)
{
	return spawn_handle(of_test(), fn, arg);
}

void add_task(void (*fn)(void *), void *arg)
{
	spawn(of_test(), fn, arg);
}

void run_added(void)
{
	run_tasks(added);
	added = NULL;
}

void run_added_in_time(void)
{
	run_in_time(added);
	added = NULL;
}

void run_task(void (*fn)(void *), void *arg)
{
	add_task(fn, arg);
	run_added();
}

void run_task_in_time(void (*fn)(void *), void *arg)
{
	add_task(fn, arg);
	run_added_in_time();
}

unsigned int entries(const char *path)
{
	DIR *dir = opendir(path);
	unsigned int count = 0;

	CHECK(&verdict, dir);
	while (dir && readdir(dir))
		count++;
	if (dir)
		closedir(dir);
	return count;
}

struct throttle {
	struct switchto_entry *first;
	long long next;
};

static void throttle_enqueue(void *queue, struct switchto_entry *entry, enum switchto_reason why)
{
	struct throttle *throttle = queue;

	entry->next = throttle->first;
	throttle->first = entry;
}

static struct switchto_entry *throttle_pick(void *queue)
{
	struct throttle *throttle = queue;
	struct switchto_entry *entry = throttle->first;
	const long long now = now_ns();

	if (!entry || now < throttle->next)
		return NULL;
	throttle->next = now + 5 * MSEC;
	throttle->first = entry->next;
	return entry;
}

const struct switchto_policy throttled = {
	.name = "throttle",
	.queue_size = sizeof(struct throttle),
	.enqueue = throttle_enqueue,
	.pick = throttle_pick,
	.steal = throttle_pick,
};

long long time_of(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return to_ns(&time);
}

long long cpu_ns(void)
{
	return time_of(CLOCK_PROCESS_CPUTIME_ID);
}

long long thread_cpu_ns(void)
{
	return time_of(CLOCK_THREAD_CPUTIME_ID);
}

int compare_times(const void *a, const void *b)
{
	const long long x = *(const long long *)a, y = *(const long long *)b;

	return (x > y) - (x < y);
}
