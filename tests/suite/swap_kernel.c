// SPDX-License-Identifier: MIT
/*
 * What only the patched kernel can show. The operation itself is tested in the
 * series; here is what the library builds on, and what it makes of it.
 */
#include "pair.h"
#include "seccomp.h"
#include "tracer.h"

#include <switchto/switchto.h>

#include <sys/ptrace.h>

TEST_IN(also_forced, chosen_by_itself)
{
	assert_string_equal(switchto_backend(), "swap");
}

/* Raw futexes, without the library. */
static void waits_on(struct worker *w)
{
	CHECK_EQ(&w->v, syscall(SYS_futex, w->arg, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0), 0);
}

static long raw_swap(void *word, uint32_t value, const struct timespec *timeout, void *wake,
		     unsigned int val3)
{
	return syscall(SYS_futex, word, FUTEX_SWAP | FUTEX_PRIVATE_FLAG, value, timeout, wake,
		       val3);
}

TEST(changed_value_wakes)
{
	struct worker w = { 0 };
	uint32_t word = 1, wake = 0;

	worker_start_parked(&w, waits_on, &wake);
	CHECK_ERR(v, raw_swap(&word, 0, NULL, &wake, 0), EAGAIN);
	workers_join(&w, 1, v);
}

TEST(timeout_wakes)
{
	const struct timespec time = to_timespec(NSEC_PER_SEC / 100);
	struct worker w = { 0 };
	uint32_t word = 0, wake = 0;
	long long before;

	worker_start_parked(&w, waits_on, &wake);
	before = now_ns();
	CHECK_ERR(v, raw_swap(&word, 0, &time, &wake, 0), ETIMEDOUT);
	CHECK(v, now_ns() - before >= to_ns(&time));
	workers_join(&w, 1, v);
}

/*
 * What is wrong with the arguments is said before anybody is woken. Those of the
 * wait half must not be there without it.
 */
TEST(arguments_before_effects)
{
	const struct timespec time = to_timespec(NSEC_PER_SEC);
	static const struct timespec bad_times[] = { { -1, 0 }, { 0, -1 }, { 0, NSEC_PER_SEC } };
	struct worker w = { 0 };
	uint32_t word[2] = { 0 }, wake = 0;
	char *kernel_address = (char *)(uintptr_t)(ULONG_MAX & ~0xfffUL);

	worker_start_parked(&w, waits_on, &wake);
	for (int i = 0; i < 3; i++)
		CHECK_ERR(v, raw_swap(word, 0, &bad_times[i], &wake, 0), EINVAL);
	CHECK_ERR(v, raw_swap((char *)word + 1, 0, NULL, &wake, 0), EINVAL);
	CHECK_ERR(v, raw_swap(kernel_address, 0, NULL, &wake, 0), EFAULT);
	CHECK_ERR(v, raw_swap(word, 0, NULL, (char *)&wake + 1, 0), EINVAL);
	CHECK_ERR(v, raw_swap(word, 0, NULL, kernel_address, 0), EFAULT);
	CHECK_ERR(v, raw_swap(word, 0, NULL, &wake, 1U << 31), EINVAL);
	CHECK_ERR(v, raw_swap(NULL, 1, NULL, &wake, 0), EINVAL);
	CHECK_ERR(v, raw_swap(NULL, 0, &time, &wake, 0), EINVAL);
	for (int i = 0; i < 3; i++)
		CHECK_ERR(v, raw_swap(NULL, 0, &bad_times[i], &wake, 0), EINVAL);
	CHECK_ERR(v, raw_swap(NULL, 0, NULL, &wake, 1U << 31), EINVAL);
	CHECK_ERR(v, raw_swap(NULL, 0, NULL, (char *)&wake + 1, 0), EINVAL);
	CHECK_ERR(v, raw_swap(NULL, 0, NULL, kernel_address, 0), EFAULT);
	CHECK_ERR(v, raw_swap(NULL, 0, NULL, NULL, 0), EINVAL);
	CHECK(v, is_parked(w.tid));
	CHECK_EQ(v, raw_swap(NULL, 0, NULL, &wake, 0), 1);
	workers_join(&w, 1, v);
}

/*
 * One system call per switch: two threads that switch to each other run under a
 * tracer, which counts between two marks what each of them calls. Each switches
 * when it has seen the other parked, as threads in a hand-off mostly do.
 */
#define TRACED_ROUNDS 100

static void traced_body(struct worker *w)
{
	struct worker *both = w->arg;
	unsigned int me = (unsigned int)(w - both);
	pid_t other;

	/* A thread's first call has more to do. */
	CHECK_EQ(&w->v, switchto_self(), w->tid);
	if (me == 1)
		CHECK_EQ(&w->v, switchto_wait(NULL), both[0].tid);
	AWAIT(atomic_load(&both[!me].tid));
	other = both[!me].tid;
	for (int i = 0; i < TRACED_ROUNDS; i++) {
		await_parked(other);
		if (me == 1 && i == TRACED_ROUNDS - 1) {
			CHECK_EQ(&w->v, switchto_resume(other), 0);
			return;
		}
		tracer_mark(true);
		CHECK_EQ(&w->v, switchto_switch(other), other);
		tracer_mark(false);
	}
}

CHILD(traced_child)
{
	struct worker both[2] = { 0 };

	tracer_attach();
	worker_start(&both[1], traced_body, both);
	worker_start(&both[0], traced_body, both);
	workers_join(both, 2, v);
}

struct counts {
	unsigned int switches, calls, swaps;
};

static void count_mark(struct tracee *t, void *arg)
{
	struct counts *c = arg;

	c->switches += !t->counting;
}

static void count_call(struct tracee *t, const struct __ptrace_syscall_info *info, void *arg)
{
	struct counts *c = arg;

	c->calls++;
	if (info->entry.nr == SYS_futex && (info->entry.args[1] & FUTEX_CMD_MASK) == FUTEX_SWAP)
		c->swaps++;
}

TEST(one_system_call_per_switch)
{
	struct counts c = { 0 };
	const struct observer observer = { count_mark, count_call, NULL, &c };

	assert_int_equal(tracer_run(start_child(traced_child, NULL), &observer), 0);
	assert_int_equal(c.switches, 2 * TRACED_ROUNDS - 1);
	assert_int_equal(c.swaps, c.switches);
	assert_int_equal(c.calls, c.switches);
}

/*
 * The operation was there when it was probed for and is not any more, as after
 * the process has been moved to another kernel: no hang, and nothing is lost. Nor
 * for who parked in it before. A filter that looks at the arguments may leave one
 * half of it.
 */
struct loss {
	uint32_t with_wait, wake_only; /* 0: that form stays */
	bool for_all;		       /* also for the threads that are parked already */
};

CHILD(loses_operation)
{
	const struct loss *loss = arg;
	struct sink partner = { 0 }, sinks[WAYS + 1] = { 0 };
	const struct timespec time = to_timespec(NSEC_PER_SEC / 100);
	unsigned int given = 0;

	CHECK(v, switchto_backend() && strcmp(switchto_backend(), "swap") == 0);
	/* Parked before, in every way; and the last one after it. */
	sink_start(&partner);
	for (int way = 0; way < WAYS; way++) {
		sinks[way].way = way;
		sinks[way].target = partner.w.tid;
		sink_start(&sinks[way]);
		given += way_switches(way);
		AWAIT(atomic_load(&partner.returns) == given);
	}
	if (loss->for_all)
		filter_all_threads();
	filter_swap_forms(loss->with_wait, loss->wake_only);
	pair_works(v, 100);
	sink_start(&sinks[WAYS]);
	for (unsigned int i = 1; i <= 10; i++) {
		for (int way = 0; way <= WAYS; way++) {
			struct sink *s = &sinks[way];

			await_parked(s->w.tid);
			if (i & 1)
				CHECK_ERR(v, switchto_switch_timed(s->w.tid, &time), ETIMEDOUT);
			else
				CHECK_EQ(v, switchto_resume(s->w.tid), 0);
			AWAIT(atomic_load(&s->returns) == i);
			given += way_switches(s->way);
			AWAIT(atomic_load(&partner.returns) == given);
		}
	}
	for (int way = 0; way <= WAYS; way++) {
		CHECK_EQ(v, sink_stop(&sinks[way], v), 10);
	}
	CHECK_EQ(v, sink_stop(&partner, v), given);
}

TEST_IN(also_forced, operation_is_lost)
{
	static const struct loss losses[] = {
		{ .with_wait = ANSWER(ENOSYS), .wake_only = ANSWER(ENOSYS) },
		{ .with_wait = ANSWER(EPERM), .wake_only = ANSWER(EPERM) },
		{ .with_wait = ANSWER(ENOSYS) },
		{ .wake_only = ANSWER(EPERM) },
		{ .with_wait = ANSWER(ENOSYS), .wake_only = ANSWER(ENOSYS), .for_all = true },
		{ .with_wait = ANSWER(EPERM), .wake_only = ANSWER(EPERM), .for_all = true },
		{ .with_wait = ANSWER(EPERM), .for_all = true },
		{ .wake_only = ANSWER(ENOSYS), .for_all = true },
	};

	for (unsigned int i = 0; i < sizeof(losses) / sizeof(losses[0]); i++) {
		struct loss loss = losses[i];

		assert_int_equal(run_child(loses_operation, &loss), 0);
	}
}

/*
 * Threads that switch round and round weigh as one, beside others that only spin
 * on the same CPU, and what they all used is what the process did.
 */
#define CHAIN_MOST 8
#define CHAIN_SECONDS 1

struct chain {
	struct worker ring[CHAIN_MOST], hogs[3];
	unsigned int threads;
	int cpu;
	_Atomic unsigned int ready;
	atomic_bool go, over;
	_Atomic long long ring_time, hog_time;
};

static long long cpu_time(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return to_ns(&time);
}

static void goes_round(struct worker *w)
{
	struct chain *c = w->arg;
	unsigned int me = (unsigned int)(w - c->ring);
	long long before;
	pid_t next;

	pin_to(0, c->cpu);
	CHECK_EQ(&w->v, switchto_self(), w->tid);
	before = cpu_time(CLOCK_THREAD_CPUTIME_ID);
	atomic_fetch_add(&c->ready, 1);
	if (!me)
		AWAIT(atomic_load(&c->go));
	if (me)
		CHECK(&w->v, switchto_wait(NULL) > 0);
	/* There by now: the turn begins when all are. */
	next = c->ring[(me + 1) % c->threads].tid;
	while (!atomic_load_explicit(&c->over, memory_order_relaxed))
		CHECK(&w->v, switchto_switch(next) > 0);
	/* Of the last one the next has ended. */
	switchto_resume(next);
	atomic_fetch_add(&c->ring_time, cpu_time(CLOCK_THREAD_CPUTIME_ID) - before);
}

static void only_spins(struct worker *w)
{
	struct chain *c = w->arg;
	long long before;

	pin_to(0, c->cpu);
	before = cpu_time(CLOCK_THREAD_CPUTIME_ID);
	atomic_fetch_add(&c->ready, 1);
	AWAIT(atomic_load(&c->go));
	while (!atomic_load_explicit(&c->over, memory_order_relaxed))
		;
	atomic_fetch_add(&c->hog_time, cpu_time(CLOCK_THREAD_CPUTIME_ID) - before);
}

/* Of 1000; -1 if what they used is not what the process used */
static int share_of_ring(struct verdict *v, unsigned int threads, unsigned int hogs)
{
	struct chain c = { .threads = threads };
	const struct timespec while_running = { CHAIN_SECONDS, 0 };
	long long process, sum;
	int cpus[2], share;

	two_cpus(cpus);
	c.cpu = cpus[0];
	for (unsigned int i = 0; i < hogs; i++)
		worker_start(&c.hogs[i], only_spins, &c);
	for (unsigned int i = threads; i-- > 0;)
		worker_start(&c.ring[i], goes_round, &c);
	/* All at the same time, or the first ones have more. */
	AWAIT(atomic_load(&c.ready) == threads + hogs);
	process = -cpu_time(CLOCK_PROCESS_CPUTIME_ID);
	atomic_store(&c.go, true);
	nanosleep(&while_running, NULL);
	atomic_store(&c.over, true);
	workers_join(c.hogs, hogs, v);
	workers_join(c.ring, threads, v);
	process += cpu_time(CLOCK_PROCESS_CPUTIME_ID);

	sum = c.ring_time + c.hog_time;
	share = (int)(1000 * c.ring_time / sum);
	print_message("a ring of %u beside %u hogs: %d of 1000, all together %lld of 1000 of the "
		      "process's time\n",
		      threads, hogs, share, 1000 * sum / process);
	/*
	 * The rest is what this thread did, and the beginnings and ends of the others. The
	 * threads began to count a little before.
	 */
	if (sum > process + process / 20 || sum < process * 95 / 100)
		return -1;
	return share;
}

/* A busy host stops the VM's CPU, and charges it to who runs just then: not each time. */
static void weighs_as_one(struct verdict *v, unsigned int threads, unsigned int hogs)
{
	const int fair = 1000 / ((int)hogs + 1);
	int share = -1;

	for (int tries = 0; tries < 5 && abs(share - fair) > 30; tries++)
		share = share_of_ring(v, threads, hogs);
	CHECK(v, abs(share - fair) <= 30);
}

TEST(chain_weighs_one_thread)
{
	weighs_as_one(v, 2, 1);
	weighs_as_one(v, 2, 3);
	weighs_as_one(v, CHAIN_MOST, 1);
	weighs_as_one(v, CHAIN_MOST, 3);
}

int main(int argc, char **argv)
{
	if (lacks_swap("swap_kernel"))
		return SKIPPED;
	if (argc == 2 && !strcmp(argv[1], "forced")) {
		setenv("SWITCHTO_BACKEND", "swap", 1);
		return run_watched_group("also_forced");
	}
	unsetenv("SWITCHTO_BACKEND");
	return run_watched_group("also_forced") | run_watched_group(NULL);
}
