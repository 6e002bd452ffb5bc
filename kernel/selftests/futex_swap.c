// SPDX-License-Identifier: GPL-2.0
/*
 * FUTEX_SWAP: wake one waiter on uaddr2, then wait on uaddr, in one call.
 *
 * Tests what each half does: which waiter is woken, arguments, timeouts, calls
 * with one half left out, and waiters that do not wait by FUTEX_WAIT.
 */
#include <linux/io_uring.h>

#include "futex_swap_common.h"
#include "futex_swap_pair.h"
#include "futex2test.h"

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME	0x00000080
#endif

/* Nothing is mapped there, and it is not NULL. */
#define LOW_FUTEX	((futex_t *)(1UL << 12))

/* The same number on every architecture. */
#ifndef SYS_futex_wake
#define SYS_futex_wake		454
#define SYS_futex_requeue	456
#endif

#ifndef FUTEX2_SIZE_U32
#define FUTEX2_SIZE_U32		0x02
#define FUTEX2_PRIVATE		FUTEX_PRIVATE_FLAG
#endif

FIXTURE(threads) {
};

FIXTURE_VARIANT(threads) {
	int opflags;
	bool one_cpu;		/* where a swap may be a hand-off */
};

FIXTURE_VARIANT_ADD(threads, private) {
	.opflags = FUTEX_PRIVATE_FLAG,
};

FIXTURE_VARIANT_ADD(threads, private_one_cpu) {
	.opflags = FUTEX_PRIVATE_FLAG, .one_cpu = true,
};

FIXTURE_VARIANT_ADD(threads, shared) {
	.opflags = 0,
};

FIXTURE_SETUP(threads)
{
	make_arena(_metadata, 0);
	if (variant->one_cpu)
		ASSERT_TRUE(pin_to(0, sched_getcpu()));
}

FIXTURE_TEARDOWN(threads)
{
}

TEST_F(threads, sleeps_and_wakes_one_target)
{
	const long handed = swap_count("handoff");
	const int fl = variant->opflags;

	queue_waiters(_metadata, 2, fl);
	START_ASLEEP(prepare_swap(swapper, &arena->own, &arena->peer, fl));
	end_waiters(_metadata, 2, 1, fl);
	end_swapper(_metadata, swapper, &arena->own, fl);
	if (variant->one_cpu)
		EXPECT_COUNTED("handoff", handed);
}

TEST_F(threads, value_changed_eagain_target_woken)
{
	const int fl = variant->opflags;

	queue_waiters(_metadata, 2, fl);
	start(_metadata, prepare_swap_changed(swapper, &arena->own, &arena->peer, fl));
	ASSERT_RETURNS(-1, EAGAIN, swapper);
	end_waiters(_metadata, 2, 1, fl);
	EXPECT_EQ(0, futex_wake(&arena->own, INT_MAX, fl));
}

TEST_F(threads, nobody_waits_sleeps_all_the_same)
{
	const int fl = variant->opflags;

	start(_metadata, prepare_swap(swapper, &arena->own, &arena->peer, fl));
	end_swapper(_metadata, swapper, &arena->own, fl);
}

TEST_F(threads, waiter_on_neighbouring_word_not_woken)
{
	const int fl = variant->opflags;

	START_ASLEEP(prepare_wait(&arena->other, &arena->peer_neighbour, fl));
	START_ASLEEP(prepare_swap(swapper, &arena->own, &arena->peer, fl));
	EXPECT_STILL_ASLEEP(&arena->other);
	EXPECT_EQ(1, futex_wake(&arena->peer_neighbour, INT_MAX, fl));
	end_swapper(_metadata, swapper, &arena->own, fl);
}

TEST_F(threads, same_address_alone_never_wakes_itself)
{
	const int fl = variant->opflags;

	start(_metadata, prepare_swap(swapper, &arena->own, &arena->own, fl));
	end_swapper(_metadata, swapper, &arena->own, fl);
}

TEST_F(threads, same_address_wakes_another_then_sleeps)
{
	const int fl = variant->opflags;

	queue_waiters(_metadata, 2, fl);
	START_ASLEEP(prepare_swap(swapper, &arena->peer, &arena->peer, fl));
	check_woken(_metadata, 2, 1);

	/* The swapper is queued behind the waiter that is left. */
	EXPECT_EQ(1, futex_wake(&arena->peer, 1, fl));
	check_woken(_metadata, 2, 2);
	end_swapper(_metadata, swapper, &arena->peer, fl);
}

/* One swap. It sleeps, or if @changed it finds that its value has changed. */
static void swap_once(struct __test_metadata *_metadata, bool changed, int fl)
{
	prepare_swap(swapper, &arena->own, &arena->peer, fl);
	if (changed)
		swapper->val++;
	start(_metadata, swapper);
	if (changed)
		ASSERT_RETURNS(-1, EAGAIN, swapper);
	else
		end_swapper(_metadata, swapper, &arena->own, fl);
}

TEST_F(threads, several_waiters_one_each_in_futex_order)
{
	const int fl = variant->opflags;
	int i, changed;

	for (changed = 0; changed < 2; changed++) {
		queue_waiters(_metadata, MAX_WAITERS, fl);
		for (i = 1; i < MAX_WAITERS; i++) {
			swap_once(_metadata, changed, fl);
			check_woken(_metadata, MAX_WAITERS, i);
		}
		end_waiters(_metadata, MAX_WAITERS, i - 1, fl);
	}
}

TEST_F(threads, several_waiters_realtime_first)
{
	struct call *fifo = &arena->other;
	const int fl = variant->opflags;
	int changed;

	if (!become_fifo(0))
		SKIP(return, "may not set SCHED_FIFO: %s", strerror(errno));
	ASSERT_EQ(0, sched_setscheduler(0, SCHED_OTHER, &(struct sched_param){}));

	for (changed = 0; changed < 2; changed++) {
		queue_waiters(_metadata, 2, fl);
		prepare_wait(fifo, &arena->peer, fl);
		fifo->fifo = true;
		START_ASLEEP(fifo);

		swap_once(_metadata, changed, fl);
		ASSERT_RETURNS(0, 0, fifo);
		end_waiters(_metadata, 2, 0, fl);
	}
}

TEST_F(threads, waiter_with_bitset_woken)
{
	struct call *w = &arena->other;
	const int fl = variant->opflags;

	prepare(w, &arena->peer, FUTEX_WAIT_BITSET | fl)->val3 = 1U << 31;
	START_ASLEEP(w);
	START_ASLEEP(prepare_swap(swapper, &arena->own, &arena->peer, fl));
	ASSERT_RETURNS(0, 0, w);
	end_swapper(_metadata, swapper, &arena->own, fl);
}

/* The target sleeps in a swap, too: A wakes B, after B woke C. */
TEST_F(threads, target_is_a_swapper)
{
	struct call *a = &arena->swapper[0], *b = &arena->swapper[1];
	const int fl = variant->opflags;

	queue_waiters(_metadata, 2, fl);
	START_ASLEEP(prepare_swap(b, &arena->own2, &arena->peer, fl));
	START_ASLEEP(prepare_swap(a, &arena->own, &arena->own2, fl));
	ASSERT_RETURNS(0, 0, b);
	end_waiters(_metadata, 2, 1, fl);
	end_swapper(_metadata, a, &arena->own, fl);
}

TEST_F(threads, uaddr_unmapped_efault_target_woken)
{
	const int fl = variant->opflags;
	long page = sysconf(_SC_PAGESIZE);
	futex_t *gone;

	gone = mmap(NULL, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, (void *)gone);

	queue_waiters(_metadata, 3, fl);
	prepare_swap(swapper, gone, &arena->peer, fl);
	ASSERT_EQ(0, munmap((void *)gone, page));
	/* The hole must not be used for a thread's stack. */
	ASSERT_EQ((void *)gone, mmap((void *)gone, page, PROT_NONE,
				     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
	start(_metadata, swapper);
	ASSERT_RETURNS(-1, EFAULT, swapper);

	prepare_swap(swapper, NULL, &arena->peer, fl);
	swapper->uaddr = LOW_FUTEX;
	start(_metadata, swapper);
	ASSERT_RETURNS(-1, EFAULT, swapper);
	end_waiters(_metadata, 3, 2, fl);
}

TEST_F(threads, pi_waiter_einval_nobody_woken)
{
	struct call *w = &arena->other;
	const int fl = variant->opflags, absent = errno_of_unknown();

	if (futex_lock_pi(&arena->peer, NULL, 0, fl)) {
		ASSERT_EQ(absent, errno);
		SKIP(return, "this kernel has no PI futexes (CONFIG_FUTEX_PI)");
	}
	START_ASLEEP(prepare(w, &arena->peer, FUTEX_LOCK_PI | fl));

	start(_metadata, prepare_swap(swapper, &arena->own, &arena->peer, fl));
	ASSERT_RETURNS(-1, EINVAL, swapper);
	EXPECT_STILL_ASLEEP(w);

	/* The PI waiter is found before the value is read. */
	start(_metadata, prepare_swap_changed(swapper, &arena->own, &arena->peer, fl));
	ASSERT_RETURNS(-1, EINVAL, swapper);
	EXPECT_STILL_ASLEEP(w);

	give_up_pi_lock(_metadata, &arena->peer, w, fl);
}

TEST_F(threads, requeue_pi_waiter_einval_nobody_woken)
{
	struct call *w = &arena->other;
	const int fl = variant->opflags, absent = errno_of_unknown();

	if (futex_lock_pi(&arena->spare, NULL, 0, fl)) {
		ASSERT_EQ(absent, errno);
		SKIP(return, "this kernel has no PI futexes (CONFIG_FUTEX_PI)");
	}
	prepare(w, &arena->peer, FUTEX_WAIT_REQUEUE_PI | fl);
	w->uaddr2 = (void *)&arena->spare;
	START_ASLEEP(w);

	start(_metadata, prepare_swap(swapper, &arena->own, &arena->peer, fl));
	ASSERT_RETURNS(-1, EINVAL, swapper);
	EXPECT_STILL_ASLEEP(w);

	/* The waiter can still be requeued, so the swap has not changed it. */
	ASSERT_EQ(1, futex_cmp_requeue_pi(&arena->peer, arena->peer,
					  &arena->spare, 1, 0, fl));
	give_up_pi_lock(_metadata, &arena->spare, w, fl);
}

/* Puts a swapper to sleep on own. It wakes a waiter on peer. */
static void put_swapper_to_sleep(struct __test_metadata *_metadata, struct call *c,
				 int fl)
{
	queue_waiters(_metadata, 1, fl);
	START_ASLEEP(c);
	check_woken(_metadata, 1, 1);
}

/* Puts a swapper to sleep on own and requeues it to spare. */
static void requeue_swapper(struct __test_metadata *_metadata, struct call *c,
			    int fl)
{
	put_swapper_to_sleep(_metadata, c, fl);
	ASSERT_EQ(1, futex_cmp_requeue(&arena->own, arena->own, &arena->spare,
				       0, 1, fl));
	EXPECT_EQ(0, futex_wake(&arena->own, INT_MAX, fl));
	EXPECT_STILL_ASLEEP(c);
}

TEST_F(threads, sleeper_cmp_requeued_follows)
{
	const int fl = variant->opflags;

	prepare_swap(swapper, &arena->own, &arena->peer, fl);
	requeue_swapper(_metadata, swapper, fl);
	end_swapper(_metadata, swapper, &arena->spare, fl);
}

TEST_F(threads, sleeper_requeued_follows)
{
	const int fl = variant->opflags;

	prepare_swap(swapper, &arena->own, &arena->peer, fl);
	put_swapper_to_sleep(_metadata, swapper, fl);
	ASSERT_EQ(1, futex_requeue(&arena->own, &arena->spare, 0, 1, fl));
	EXPECT_EQ(0, futex_wake(&arena->own, INT_MAX, fl));
	end_swapper(_metadata, swapper, &arena->spare, fl);
}

TEST_F(threads, sleeper_requeued_times_out)
{
	struct timespec timeout = { .tv_sec = 1 };
	const int fl = variant->opflags;

	prepare_swap(swapper, &arena->own, &arena->peer, fl);
	swapper->timeout = &timeout;
	requeue_swapper(_metadata, swapper, fl);
	ASSERT_RETURNS(-1, ETIMEDOUT, swapper);
	EXPECT_LE(nsec(&timeout), nsec(&swapper->end) - nsec(&swapper->start));
	EXPECT_EQ(0, futex_wake(&arena->spare, INT_MAX, fl));
}

TEST_F(threads, sleeper_requeued_takes_signals)
{
	const int fl = variant->opflags;

	handle(_metadata, SIGUSR1, 0);
	prepare_swap(swapper, &arena->own, &arena->peer, fl);
	requeue_swapper(_metadata, swapper, fl);
	signal_thread(_metadata, swapper, SIGUSR1);
	ASSERT_RETURNS(-1, EINTR, swapper);
	EXPECT_EQ(0, futex_wake(&arena->spare, INT_MAX, fl));
}

/* A swapper does not wait in FUTEX_WAIT_REQUEUE_PI, so it is not requeued. */
TEST_F(threads, sleeper_not_requeued_to_pi)
{
	const int fl = variant->opflags, absent = errno_of_unknown();

	prepare_swap(swapper, &arena->own, &arena->peer, fl);
	put_swapper_to_sleep(_metadata, swapper, fl);
	ASSERT_EQ(-1, futex_cmp_requeue_pi(&arena->own, arena->own, &arena->spare,
					   1, 0, fl));
	if (errno != absent)
		EXPECT_EQ(EINVAL, errno);
	EXPECT_STILL_ASLEEP(swapper);
	end_swapper(_metadata, swapper, &arena->own, fl);
}

TEST_F(threads, sleeper_woken_by_wake_op)
{
	const int fl = variant->opflags;

	prepare_swap(swapper, &arena->own, &arena->peer, fl);
	put_swapper_to_sleep(_metadata, swapper, fl);
	/* Adds 0 to spare. As spare was 0, it wakes one waiter on own. */
	EXPECT_EQ(1, futex_wake_op(&arena->spare, &arena->own, 1, 1,
				   FUTEX_OP(FUTEX_OP_ADD, 0, FUTEX_OP_CMP_EQ, 0), fl));
	ASSERT_RETURNS(0, 0, swapper);
}

/* futex_wake(2) and futex_requeue(2), Linux 6.7 */
TEST_F(threads, sleeper_woken_and_requeued_by_futex2)
{
	const int fl = variant->opflags;
	const unsigned int flags = FUTEX2_SIZE_U32 | (fl ? FUTEX2_PRIVATE : 0);
	struct futex_waitv v[2] = {
		{ .uaddr = (uintptr_t)&arena->own, .flags = flags },
		{ .uaddr = (uintptr_t)&arena->spare, .flags = flags },
	};

	prepare_swap(swapper, &arena->own, &arena->peer, fl);
	put_swapper_to_sleep(_metadata, swapper, fl);
	ASSERT_EQ(1, syscall(SYS_futex_requeue, v, 0, 0, 1));
	EXPECT_EQ(0, futex_wake(&arena->own, INT_MAX, fl));
	EXPECT_STILL_ASLEEP(swapper);
	EXPECT_EQ(1, syscall(SYS_futex_wake, &arena->spare, FUTEX_BITSET_MATCH_ANY,
			     INT_MAX, flags));
	ASSERT_RETURNS(0, 0, swapper);
}

TEST_F(threads, target_requeued_to_uaddr2_woken)
{
	const int fl = variant->opflags;

	queue_waiters_on(_metadata, &arena->spare, 2, fl);
	ASSERT_EQ(2, futex_cmp_requeue(&arena->spare, arena->spare,
				       &arena->peer, 0, 2, fl));
	START_ASLEEP(prepare_swap(swapper, &arena->own, &arena->peer, fl));
	end_waiters(_metadata, 2, 1, fl);
	end_swapper(_metadata, swapper, &arena->own, fl);
}

static long enter_waitv(struct call *c)
{
	/* futex_waitv() of futex2test.h does not take NULL on each kernel. */
	return syscall(SYS_futex_waitv, c->arg, 2, 0, NULL, CLOCK_MONOTONIC);
}

/* Waits on spare and on peer. @v must last as long as the call. */
static struct call *prepare_waitv(struct call *c, struct futex_waitv *v, int fl)
{
	int i;

	for (i = 0; i < 2; i++)
		v[i] = (struct futex_waitv) {
			.uaddr = (uintptr_t)(i ? &arena->peer : &arena->spare),
			.flags = FUTEX_32 | fl,
		};
	prepare(c, NULL, 0);
	c->enter = enter_waitv;
	c->arg = v;
	c->nr = SYS_futex_waitv;
	c->arg0 = (uintptr_t)v;
	return c;
}

TEST_F(threads, waitv_waiter_completed_once)
{
	struct call *waitv = &arena->other;
	const int fl = variant->opflags;
	struct futex_waitv v[2];

	START_ASLEEP(prepare_waitv(waitv, v, fl));
	queue_waiters(_metadata, 2, fl);

	START_ASLEEP(prepare_swap(swapper, &arena->own, &arena->peer, fl));
	ASSERT_RETURNS(1, 0, waitv);
	check_woken(_metadata, 2, 0);
	end_swapper(_metadata, swapper, &arena->own, fl);

	START_ASLEEP(prepare_swap(swapper, &arena->own, &arena->peer, fl));
	end_waiters(_metadata, 2, 1, fl);
	end_swapper(_metadata, swapper, &arena->own, fl);
}

static long enter_swap_on_go(struct call *c)
{
	while (!__atomic_load_n(&arena->go, __ATOMIC_ACQUIRE))
		sched_yield();
	return futex(c->uaddr, c->op, c->val, c->timeout, c->uaddr2, c->val3, 0);
}

/* Lets two swappers start at the same time. Both wake waiters on peer. */
static void start_two_swappers(struct __test_metadata *_metadata, int fl)
{
	int i;

	__atomic_store_n(&arena->go, 0, __ATOMIC_RELEASE);
	for (i = 0; i < 2; i++) {
		struct call *c = &arena->swapper[i];

		prepare_swap(c, i ? &arena->own2 : &arena->own, &arena->peer, fl);
		c->enter = enter_swap_on_go;
		start(_metadata, c);
	}
	for (i = 0; i < 2; i++)
		while (!__atomic_load_n(&arena->swapper[i].tid, __ATOMIC_ACQUIRE))
			sched_yield();
	__atomic_store_n(&arena->go, 1, __ATOMIC_RELEASE);
}

TEST_F(threads, two_swappers_one_target)
{
	const int fl = variant->opflags;
	int round;

	for (round = 0; round < 30; round++) {
		queue_waiters(_metadata, 1, fl);
		start_two_swappers(_metadata, fl);
		ASSERT_ASLEEP(&arena->swapper[0]);
		ASSERT_ASLEEP(&arena->swapper[1]);
		end_waiters(_metadata, 1, 1, fl);
		end_swapper(_metadata, &arena->swapper[0], &arena->own, fl);
		end_swapper(_metadata, &arena->swapper[1], &arena->own2, fl);
	}
}

/* Three tasks try to wake one waiter. Only one of them does. */
TEST_F(threads, two_swappers_and_a_waker_one_target)
{
	const int fl = variant->opflags;
	int round, woken;

	for (round = 0; round < 30; round++) {
		queue_waiters(_metadata, 1, fl);
		start_two_swappers(_metadata, fl);
		woken = futex_wake(&arena->peer, INT_MAX, fl);
		EXPECT_LE(0, woken);
		EXPECT_GE(1, woken);
		ASSERT_ASLEEP(&arena->swapper[0]);
		ASSERT_ASLEEP(&arena->swapper[1]);
		end_waiters(_metadata, 1, 1, fl);
		end_swapper(_metadata, &arena->swapper[0], &arena->own, fl);
		end_swapper(_metadata, &arena->swapper[1], &arena->own2, fl);
	}
}

TEST_F(threads, two_swappers_and_a_waker_one_wake_each)
{
	const int fl = variant->opflags;
	int round;

	for (round = 0; round < 30; round++) {
		queue_waiters(_metadata, 4, fl);
		start_two_swappers(_metadata, fl);
		EXPECT_EQ(1, futex_wake(&arena->peer, 1, fl));
		ASSERT_ASLEEP(&arena->swapper[0]);
		ASSERT_ASLEEP(&arena->swapper[1]);
		end_waiters(_metadata, 4, 3, fl);
		end_swapper(_metadata, &arena->swapper[0], &arena->own, fl);
		end_swapper(_metadata, &arena->swapper[1], &arena->own2, fl);
	}
}

static void *do_nothing(void *arg)
{
	return arg;
}

/*
 * How many more tasks exist than @before. Waits until these are @enough or
 * fewer, for two seconds at most.
 */
static long tasks_left(long before, long enough)
{
	long long limit = now() + 2 * NSEC_PER_SEC;
	long left;

	do {
		sleep_until(now() + 50 * NSEC_PER_MSEC);
		left = slab_objects("task_struct") - before;
	} while (left > enough && now() < limit);
	return left;
}

/*
 * Two swappers race for one target, and all three end. A leaked reference to
 * one of them would keep its task_struct. KASAN delays the freeing of objects,
 * so threads that do nothing show first how many are delayed.
 */
TEST_F_TIMEOUT(threads, two_swappers_leak_no_task, 120)
{
	const int fl = variant->opflags, rounds = 200;
	long before = slab_objects("task_struct"), usual;
	pthread_t thread;
	int i, k;

	if (before < 0)
		SKIP(return, "/proc/slabinfo can't be read, or has no task_struct");
	for (i = 0; i < 3 * rounds; i++) {
		ASSERT_EQ(0, pthread_create(&thread, NULL, do_nothing, NULL));
		pthread_join(thread, NULL);
	}
	usual = tasks_left(before, rounds / 4);
	if (usual < 0)
		usual = 0;

	before = slab_objects("task_struct");
	for (i = 0; i < rounds; i++) {
		queue_waiters(_metadata, 1, fl);
		start_two_swappers(_metadata, fl);
		ASSERT_RETURNS(0, 0, &arena->waiter[0]);
		for (k = 0; k < 2; k++)
			end_swapper(_metadata, &arena->swapper[k],
				    k ? &arena->own2 : &arena->own, fl);
		pthread_join(arena->waiter[0].thread, NULL);
		for (k = 0; k < 2; k++)
			pthread_join(arena->swapper[k].thread, NULL);
	}
	EXPECT_GE(usual + rounds / 4, tasks_left(before, usual + rounds / 4));
}

/* Arguments: a call that is refused has woken nobody. */

FIXTURE(arguments) {
};

FIXTURE_VARIANT(arguments) {
	int err;
	bool unknown;		/* refused like an unknown operation */
	int opflags;
	unsigned int val3;
	int misalign;
	int misalign2;
	unsigned long uaddr;
	unsigned long uaddr2;
	bool timed;
	bool timeout_unmapped;
	struct timespec timeout;
};

FIXTURE_VARIANT_ADD(arguments, uaddr_misaligned_by_1) {
	.err = EINVAL, .misalign = 1,
};

FIXTURE_VARIANT_ADD(arguments, uaddr_misaligned_by_2) {
	.err = EINVAL, .misalign = 2,
};

FIXTURE_VARIANT_ADD(arguments, uaddr_misaligned_by_3) {
	.err = EINVAL, .misalign = 3,
};

FIXTURE_VARIANT_ADD(arguments, uaddr2_misaligned_by_1) {
	.err = EINVAL, .misalign2 = 1,
};

FIXTURE_VARIANT_ADD(arguments, uaddr2_misaligned_by_2) {
	.err = EINVAL, .misalign2 = 2,
};

FIXTURE_VARIANT_ADD(arguments, uaddr2_misaligned_by_3) {
	.err = EINVAL, .misalign2 = 3,
};

FIXTURE_VARIANT_ADD(arguments, uaddr_out_of_range) {
	.err = EFAULT, .uaddr = ~0UL << 12,
};

FIXTURE_VARIANT_ADD(arguments, uaddr_at_the_end_of_all_addresses) {
	.err = EFAULT, .uaddr = ~3UL,
};

#ifdef __x86_64__
/*
 * In the first entry of the IDT, which is mapped at the same address on all machines: a word
 * that is 0, as @own is. If the range is not checked, the caller finds its value and sleeps.
 */
FIXTURE_VARIANT_ADD(arguments, uaddr_in_the_kernel) {
	.err = EFAULT, .uaddr = 0xfffffe000000000cUL,
};
#endif

FIXTURE_VARIANT_ADD(arguments, uaddr2_out_of_range) {
	.err = EFAULT, .uaddr2 = ~0UL << 12,
};

FIXTURE_VARIANT_ADD(arguments, uaddr2_at_the_end_of_all_addresses) {
	.err = EFAULT, .uaddr2 = ~3UL,
};

FIXTURE_VARIANT_ADD(arguments, uaddr_not_canonical) {
	.uaddr = 1UL << (sizeof(long) * 8 - 1), .err = EFAULT,
};

FIXTURE_VARIANT_ADD(arguments, uaddr2_not_canonical) {
	.uaddr2 = 1UL << (sizeof(long) * 8 - 1), .err = EFAULT,
};

FIXTURE_VARIANT_ADD(arguments, val3_beyond_a_tid) {
	.err = EINVAL, .val3 = 0x40000000,
};

FIXTURE_VARIANT_ADD(arguments, val3_bitset_match_any) {
	.err = EINVAL, .val3 = FUTEX_BITSET_MATCH_ANY,
};

FIXTURE_VARIANT_ADD(arguments, clock_realtime) {
	.unknown = true, .opflags = FUTEX_CLOCK_REALTIME,
};

FIXTURE_VARIANT_ADD(arguments, unknown_flag) {
	.unknown = true, .opflags = FUTEX_CLOCK_REALTIME << 1,
};

FIXTURE_VARIANT_ADD(arguments, timespec_negative_seconds) {
	.err = EINVAL, .timed = true, .timeout = { -1, 0 },
};

FIXTURE_VARIANT_ADD(arguments, timespec_negative_nanoseconds) {
	.err = EINVAL, .timed = true, .timeout = { 0, -1 },
};

FIXTURE_VARIANT_ADD(arguments, timespec_1e9_nanoseconds) {
	.err = EINVAL, .timed = true, .timeout = { 0, NSEC_PER_SEC },
};

FIXTURE_VARIANT_ADD(arguments, timespec_unmapped) {
	.err = EFAULT, .timed = true, .timeout_unmapped = true,
};

FIXTURE_SETUP(arguments)
{
	make_arena(_metadata, 0);
}

FIXTURE_TEARDOWN(arguments)
{
}

TEST_F(arguments, refused_nobody_woken)
{
	const int err = variant->unknown ? errno_of_unknown() : variant->err;
	int i;

	for (i = 0; i < 4; i++) {
		const int fl = i & 1 ? FUTEX_PRIVATE_FLAG : 0;

		queue_waiters(_metadata, 2, fl);
		prepare_swap(swapper, &arena->own, &arena->peer,
			     fl | variant->opflags);
		/* Refused whether or not the wait half would sleep. */
		if (i & 2)
			swapper->val++;
		swapper->val3 = variant->val3;
		swapper->uaddr = (futex_t *)((char *)swapper->uaddr + variant->misalign);
		swapper->uaddr2 = (char *)swapper->uaddr2 + variant->misalign2;
		if (variant->uaddr)
			swapper->uaddr = (futex_t *)variant->uaddr;
		if (variant->uaddr2)
			swapper->uaddr2 = (void *)variant->uaddr2;
		if (variant->timed) {
			arena->ts = variant->timeout;
			swapper->timeout = &arena->ts;
		}
		if (variant->timeout_unmapped) {
			swapper->timeout = mmap(NULL, 4096, PROT_NONE,
						MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
			ASSERT_NE(MAP_FAILED, swapper->timeout);
		}
		start(_metadata, swapper);
		ASSERT_RETURNS(-1, err, swapper);
		end_waiters(_metadata, 2, 0, fl);
	}
}

static futex_t *unmapped_futex(struct __test_metadata *_metadata)
{
	void *page = mmap(NULL, sysconf(_SC_PAGESIZE), PROT_NONE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ASSERT_NE(MAP_FAILED, page);
	return page;
}

TEST(uaddr2_unmapped_shared_efault_not_asleep)
{
	make_arena(_metadata, 0);
	start(_metadata, prepare_swap(swapper, &arena->own, LOW_FUTEX, 0));
	ASSERT_RETURNS(-1, EFAULT, swapper);

	prepare_swap(swapper, &arena->own, NULL, 0);
	swapper->uaddr2 = (void *)unmapped_futex(_metadata);
	start(_metadata, swapper);
	ASSERT_RETURNS(-1, EFAULT, swapper);
	EXPECT_EQ(0, futex_wake(&arena->own, INT_MAX, 0));
}

/*
 * A private key is made of the address alone, so this is no error. Nobody can
 * wait there.
 */
TEST(uaddr2_unmapped_private_sleeps)
{
	make_arena(_metadata, 0);
	start(_metadata, prepare_swap(swapper, &arena->own, LOW_FUTEX, FUTEX_PRIVATE_FLAG));
	end_swapper(_metadata, swapper, &arena->own, FUTEX_PRIVATE_FLAG);

	prepare_swap(swapper, &arena->own, NULL, FUTEX_PRIVATE_FLAG);
	swapper->uaddr2 = (void *)unmapped_futex(_metadata);
	start(_metadata, swapper);
	end_swapper(_metadata, swapper, &arena->own, FUTEX_PRIVATE_FLAG);
}

/* Timeouts. */

FIXTURE(timeout) {
};

FIXTURE_VARIANT(timeout) {
	long nsec;
};

FIXTURE_VARIANT_ADD(timeout, zero) {
	.nsec = 0,
};

FIXTURE_VARIANT_ADD(timeout, 500_ns) {
	.nsec = 500,
};

FIXTURE_VARIANT_ADD(timeout, 10_ms) {
	.nsec = 10 * NSEC_PER_MSEC,
};

FIXTURE_SETUP(timeout)
{
	make_arena(_metadata, 0);
	/* On one CPU, where swaps of private futexes are hand-offs. */
	ASSERT_TRUE(pin_to(0, sched_getcpu()));
}

FIXTURE_TEARDOWN(timeout)
{
}

TEST_F(timeout, etimedout_never_early_target_woken)
{
	struct timespec timeout = { .tv_nsec = variant->nsec };
	int i;

	for (i = 0; i < 2; i++) {
		const int fl = i ? FUTEX_PRIVATE_FLAG : 0;

		queue_waiters(_metadata, 2, fl);
		prepare_swap(swapper, &arena->own, &arena->peer, fl);
		swapper->timeout = &timeout;
		start(_metadata, swapper);
		ASSERT_RETURNS(-1, ETIMEDOUT, swapper);
		EXPECT_LE(variant->nsec,
			  nsec(&swapper->end) - nsec(&swapper->start));
		end_waiters(_metadata, 2, 1, fl);
		EXPECT_EQ(0, futex_wake(&arena->own, INT_MAX, fl));
	}
}

/* A timeout beyond the clock's range must not wrap to a time in the past. */
TEST(timeout_beyond_the_clock_sleeps)
{
	struct timespec timeout = {
		.tv_sec = sizeof(time_t) == 8 ? INT64_MAX : INT32_MAX,
		.tv_nsec = NSEC_PER_SEC - 1,
	};

	make_arena(_metadata, 0);
	queue_waiters(_metadata, 2, 0);
	prepare_swap(swapper, &arena->own, &arena->peer, 0);
	swapper->timeout = &timeout;
	START_ASLEEP(swapper);
	end_waiters(_metadata, 2, 1, 0);
	end_swapper(_metadata, swapper, &arena->own, 0);
}

FIXTURE(time_namespace) {
};

FIXTURE_VARIANT(time_namespace) {
	int opflags;
};

FIXTURE_VARIANT_ADD(time_namespace, shared) {
	.opflags = 0,
};

FIXTURE_VARIANT_ADD(time_namespace, private) {
	.opflags = FUTEX_PRIVATE_FLAG,
};

FIXTURE_SETUP(time_namespace)
{
	make_arena(_metadata, 0);
	if (unshare(CLONE_NEWTIME))
		SKIP(return, "no time namespaces: %s", strerror(errno));
}

FIXTURE_TEARDOWN(time_namespace)
{
}

static void in_time_namespace(struct __test_metadata *_metadata, long offset, int fl)
{
	struct timespec timeout = { .tv_nsec = 50 * NSEC_PER_MSEC };
	long long took;
	char text[64];

	snprintf(text, sizeof(text), "monotonic %ld 0\n", offset);
	ASSERT_TRUE(write_file("/proc/self/timens_offsets", text));

	if (fl)
		start_host(_metadata, sched_getcpu());
	queue_waiters(_metadata, 2, fl);
	prepare_swap(swapper, &arena->own, &arena->peer, fl);
	arena->ts = timeout;
	swapper->timeout = &arena->ts;
	start_apart(_metadata, swapper);
	ASSERT_RETURNS(-1, ETIMEDOUT, swapper);
	took = nsec(&swapper->end) - nsec(&swapper->start);
	EXPECT_LE(nsec(&timeout), took);
	EXPECT_GT(labs(offset) * NSEC_PER_SEC, took);
	end_waiters(_metadata, 2, 1, fl);

	/* Check that the child was in the namespace. */
	EXPECT_LT(labs(offset) * NSEC_PER_SEC / 2,
		  llabs(nsec(&swapper->end) - now()));
	if (host)
		kill(host, SIGKILL);
}

TEST_F(time_namespace, timeout_ahead)
{
	in_time_namespace(_metadata, 86400, variant->opflags);
}

TEST_F(time_namespace, timeout_behind)
{
	/* The namespace's clock may not be negative. */
	in_time_namespace(_metadata, -(long)(now() / NSEC_PER_SEC * 3 / 4),
			  variant->opflags);
}

/* One half left out. */

TEST(no_uaddr_arguments)
{
	static struct timespec good = {}, bad = { .tv_nsec = -1 };
	const int shared = 0, private = FUTEX_PRIVATE_FLAG;
	futex_t *peer;

	make_arena(_metadata, 0);
	peer = &arena->peer;
	queue_waiters(_metadata, 2, private);

#define EXPECT_REFUSED(_err, _val, _timeout, _uaddr2, _val3, _flags) do {	\
	EXPECT_EQ(-1, futex(NULL, FUTEX_SWAP, _val, _timeout,		\
			    (futex_t *)(_uaddr2), _val3, _flags));	\
	EXPECT_EQ(_err, errno);						\
} while (0)
	EXPECT_REFUSED(EINVAL, 0, NULL, NULL, 0, private);
	EXPECT_REFUSED(EINVAL, 0, NULL, NULL, 0, shared);
	EXPECT_REFUSED(EINVAL, 1, NULL, peer, 0, private);
	EXPECT_REFUSED(EINVAL, INT_MAX, NULL, peer, 0, private);
	EXPECT_REFUSED(EINVAL, 0, &good, peer, 0, private);
	EXPECT_REFUSED(EINVAL, 0, &bad, peer, 0, private);
	EXPECT_REFUSED(EFAULT, 0, (void *)1, peer, 0, private);
	EXPECT_REFUSED(EINVAL, 0, NULL, peer, 0x40000000, private);
	EXPECT_REFUSED(EINVAL, 0, NULL, peer, FUTEX_BITSET_MATCH_ANY, private);
	EXPECT_REFUSED(EINVAL, 0, NULL, (char *)peer + 2, 0, private);
	EXPECT_REFUSED(EFAULT, 0, NULL, ~0UL << 12, 0, private);
	EXPECT_REFUSED(EFAULT, 0, NULL, 1UL << 12, 0, shared);
	EXPECT_REFUSED(errno_of_unknown(), 0, NULL, peer, 0,
		       private | FUTEX_CLOCK_REALTIME);
#undef EXPECT_REFUSED

	check_woken(_metadata, 2, 0);
	EXPECT_EQ(0, futex(NULL, FUTEX_SWAP, 0, NULL, peer, 0, shared));
	EXPECT_EQ(1, wake_with_hint(peer, 0));
	end_waiters(_metadata, 2, 1, private);
	EXPECT_EQ(0, wake_with_hint(peer, 0));
}

TEST(no_uaddr_shared)
{
	struct call *c;

	make_arena(_metadata, 0);
	c = &arena->other;
	start_process(_metadata, prepare_swap(c, &arena->peer, &arena->spare, 0));
	ASSERT_ASLEEP(c);
	EXPECT_EQ(1, futex(NULL, FUTEX_SWAP, 0, NULL, &arena->peer, c->tid, 0));
	ASSERT_RETURNS(0, 0, c);
	ASSERT_EQ(c->pid, waitpid(c->pid, NULL, 0));
}

TEST(no_uaddr2_shared)
{
	struct call *c;

	make_arena(_metadata, 0);
	c = &arena->other;
	start_process(_metadata, prepare_swap(c, &arena->peer, NULL, 0));
	ASSERT_ASLEEP(c);
	EXPECT_EQ(1, futex_wake(&arena->peer, INT_MAX, 0));
	ASSERT_RETURNS(0, 0, c);
	ASSERT_EQ(c->pid, waitpid(c->pid, NULL, 0));
	EXPECT_EQ(-1, futex_swap(&arena->peer, 1, NULL, NULL, 0));
	EXPECT_EQ(EAGAIN, errno);
	EXPECT_EQ(-1, futex_swap((futex_t *)(1UL << 12), 0, NULL, NULL, 0));
	EXPECT_EQ(EFAULT, errno);
}

/* The wait half alone does what FUTEX_WAIT does. */
TEST(no_uaddr2_value_changed_eagain)
{
	struct call *c;

	make_arena(_metadata, 0);
	c = prepare_park(&arena->other, &arena->own);
	c->val++;
	start(_metadata, c);
	ASSERT_RETURNS(-1, EAGAIN, c);
}

TEST(no_uaddr2_uaddr_unmapped_efault)
{
	struct call *c;

	make_arena(_metadata, 0);
	c = prepare_park(&arena->other, NULL);
	c->uaddr = unmapped_futex(_metadata);
	start(_metadata, c);
	ASSERT_RETURNS(-1, EFAULT, c);
}

TEST(no_uaddr2_timeout_etimedout)
{
	struct call *c;

	make_arena(_metadata, 0);
	c = prepare_park(&arena->other, &arena->own);
	arena->ts = (struct timespec){ .tv_nsec = 5 * NSEC_PER_MSEC };
	c->timeout = &arena->ts;
	start(_metadata, c);
	ASSERT_RETURNS(-1, ETIMEDOUT, c);
	EXPECT_LE(5 * NSEC_PER_MSEC, nsec(&c->end) - nsec(&c->start));
	EXPECT_EQ(0, futex_wake(&arena->own, INT_MAX, FUTEX_PRIVATE_FLAG));
}

TEST(no_uaddr2_1000_timeouts_never_early)
{
	struct timespec timeout = {};
	futex_t own = 0;
	int i;

	for (i = 0; i < 1000; i++) {
		long long before = now();

		timeout.tv_nsec = i * 500 % 100000;
		EXPECT_EQ(-1, futex_swap(&own, 0, &timeout, NULL, FUTEX_PRIVATE_FLAG));
		EXPECT_EQ(ETIMEDOUT, errno);
		EXPECT_LE(timeout.tv_nsec, now() - before);
	}
}

TEST(no_uaddr2_arguments)
{
	static struct timespec bad[] = { { -1, 0 }, { 0, -1 }, { 0, NSEC_PER_SEC } };
	const int fl = FUTEX_PRIVATE_FLAG;
	futex_t own[2] = {};
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		EXPECT_EQ(-1, futex_swap(own, 0, &bad[i], NULL, fl));
		EXPECT_EQ(EINVAL, errno);
	}
	EXPECT_EQ(-1, futex_swap((futex_t *)((char *)own + 1), 0, NULL, NULL, fl));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(-1, futex_swap((futex_t *)(~0UL << 12), 0, NULL, NULL, fl));
	EXPECT_EQ(EFAULT, errno);
	EXPECT_EQ(-1, futex(own, FUTEX_SWAP, 0, NULL, NULL, 0x40000000, fl));
	EXPECT_EQ(EINVAL, errno);
	/* A hint is an argument of the wake half. */
	EXPECT_EQ(-1, futex(own, FUTEX_SWAP, 1, NULL, NULL, gettid(), fl));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(-1, futex(own, FUTEX_SWAP, 1, NULL, NULL, gettid(), 0));
	EXPECT_EQ(EINVAL, errno);
}

/* io_uring: a waiter without a task that sleeps. */

struct ring {
	int fd;
	unsigned int *sq_tail;
	unsigned int *sq_mask;
	unsigned int *sq_array;
	unsigned int *cq_head;
	unsigned int *cq_tail;
	unsigned int *cq_mask;
	struct io_uring_sqe *sqes;
	struct io_uring_cqe *cqes;
};

static int ring_enter(struct ring *r, unsigned int submit)
{
	return syscall(SYS_io_uring_enter, r->fd, submit, 0,
		       IORING_ENTER_GETEVENTS, NULL, 0);
}

static int ring_submit(struct ring *r, const struct io_uring_sqe *sqe)
{
	unsigned int tail = *r->sq_tail, slot = tail & *r->sq_mask;

	r->sqes[slot] = *sqe;
	r->sq_array[slot] = slot;
	__atomic_store_n(r->sq_tail, tail + 1, __ATOMIC_RELEASE);
	return ring_enter(r, 1);
}

/* How many completions have not been taken yet. */
static unsigned int ring_completions(struct ring *r)
{
	ring_enter(r, 0);
	return __atomic_load_n(r->cq_tail, __ATOMIC_ACQUIRE) - *r->cq_head;
}

/* Waits for the only completion and returns its result. */
static int ring_take(struct __test_metadata *_metadata, struct ring *r)
{
	const struct timespec tick = { .tv_nsec = 100000 };
	long long limit = now() + PATIENCE;
	int res;

	while (!ring_completions(r) && now() < limit)
		nanosleep(&tick, NULL);
	ASSERT_EQ(1, ring_completions(r));
	res = r->cqes[*r->cq_head & *r->cq_mask].res;
	__atomic_store_n(r->cq_head, *r->cq_head + 1, __ATOMIC_RELEASE);
	return res;
}

FIXTURE(io_uring) {
	struct ring ring;
};

FIXTURE_VARIANT(io_uring) {
	int opflags;
};

FIXTURE_VARIANT_ADD(io_uring, private) {
	.opflags = FUTEX_PRIVATE_FLAG,
};

FIXTURE_VARIANT_ADD(io_uring, shared) {
	.opflags = 0,
};

FIXTURE_SETUP(io_uring)
{
	const int absent = errno_of_unknown();
	struct io_uring_params p = {};
	struct ring *r = &self->ring;
	size_t size, cq_size;
	char *mem;

	make_arena(_metadata, 0);
	r->fd = syscall(SYS_io_uring_setup, 4, &p);
	if (r->fd < 0 && errno == absent)
		SKIP(return, "this kernel has no io_uring (CONFIG_IO_URING)");
	if (r->fd < 0 && errno == EPERM)
		SKIP(return, "may not use io_uring: see kernel.io_uring_disabled");
	ASSERT_LE(0, r->fd);
	ASSERT_TRUE(p.features & IORING_FEAT_SINGLE_MMAP);

	size = p.sq_off.array + p.sq_entries * sizeof(unsigned int);
	cq_size = p.cq_off.cqes + p.cq_entries * sizeof(*r->cqes);
	if (cq_size > size)
		size = cq_size;
	mem = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
		   r->fd, IORING_OFF_SQ_RING);
	ASSERT_NE(MAP_FAILED, mem);
	r->sqes = mmap(NULL, p.sq_entries * sizeof(*r->sqes),
		       PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
		       r->fd, IORING_OFF_SQES);
	ASSERT_NE(MAP_FAILED, r->sqes);
	r->sq_tail = (void *)(mem + p.sq_off.tail);
	r->sq_mask = (void *)(mem + p.sq_off.ring_mask);
	r->sq_array = (void *)(mem + p.sq_off.array);
	r->cq_head = (void *)(mem + p.cq_off.head);
	r->cq_tail = (void *)(mem + p.cq_off.tail);
	r->cq_mask = (void *)(mem + p.cq_off.ring_mask);
	r->cqes = (void *)(mem + p.cq_off.cqes);

	/*
	 * From Linux 6.16 on a process gets a hash of its own for private
	 * futexes when it starts its second thread. A request queued earlier is
	 * not found any more. That is not tested here, so start a thread first.
	 */
	START_ASLEEP(prepare_wait(&arena->other, &arena->spare, 0));
}

FIXTURE_TEARDOWN(io_uring)
{
}

/* Queues a request on peer, then two threads. Swaps twice. */
static void swap_to_request(struct __test_metadata *_metadata, struct ring *r,
			    const struct io_uring_sqe *sqe, int res, int fl)
{
	ASSERT_EQ(1, ring_submit(r, sqe));
	if (ring_completions(r)) {
		ASSERT_EQ(-EINVAL, ring_take(_metadata, r));
		SKIP(return, "this kernel's io_uring has no operation %d", sqe->opcode);
	}
	queue_waiters(_metadata, 2, fl);

	START_ASLEEP(prepare_swap(swapper, &arena->own, &arena->peer, fl));
	EXPECT_EQ(res, ring_take(_metadata, r));
	check_woken(_metadata, 2, 0);
	end_swapper(_metadata, swapper, &arena->own, fl);

	START_ASLEEP(prepare_swap(swapper, &arena->own, &arena->peer, fl));
	EXPECT_EQ(0, ring_completions(r));
	end_waiters(_metadata, 2, 1, fl);
	end_swapper(_metadata, swapper, &arena->own, fl);
	EXPECT_EQ(0, ring_completions(r));
}

TEST_F(io_uring, futex_wait_completed_once_swapper_sleeps)
{
	struct io_uring_sqe sqe = {
		.opcode = IORING_OP_FUTEX_WAIT,
		.fd = FUTEX2_SIZE_U32 | variant->opflags,
		.addr = (uintptr_t)&arena->peer,
		.addr2 = arena->peer,
		.addr3 = FUTEX_BITSET_MATCH_ANY,
	};

	swap_to_request(_metadata, &self->ring, &sqe, 0, variant->opflags);
}

TEST_F(io_uring, futex_waitv_completed_once_swapper_sleeps)
{
	struct futex_waitv v[2];
	struct call waitv;
	struct io_uring_sqe sqe = {
		.opcode = IORING_OP_FUTEX_WAITV,
		.addr = (uintptr_t)v,
		.len = 2,
	};

	prepare_waitv(&waitv, v, variant->opflags);
	swap_to_request(_metadata, &self->ring, &sqe, 1, variant->opflags);
}

/* Two sides that take turns. */

FIXTURE(ping_pong) {
};

FIXTURE_VARIANT(ping_pong) {
	int opflags;
};

FIXTURE_VARIANT_ADD(ping_pong, private) {
	.opflags = FUTEX_PRIVATE_FLAG,
};

FIXTURE_VARIANT_ADD(ping_pong, shared) {
	.opflags = 0,
};

FIXTURE_SETUP(ping_pong)
{
}

FIXTURE_TEARDOWN(ping_pong)
{
}

TEST_F_TIMEOUT(ping_pong, 100000_swaps_every_turn_counted, 120)
{
	struct pair *p = make_pair(_metadata, 50000, variant->opflags);
	pthread_t thread[2];

	start_pair(_metadata, p, thread);
	join_pair(_metadata, p, thread);
}

TEST_F(ping_pong, two_processes)
{
	struct pair *p = make_pair(_metadata, 2000, 0);
	int i, status;
	pid_t pid[2];

	for (i = 0; i < 2; i++) {
		pid[i] = fork_child(_metadata);
		if (!pid[i]) {
			run_side(&p->side[i]);
			_exit(0);
		}
	}
	for (i = 0; i < 2; i++) {
		ASSERT_EQ(pid[i], waitpid(pid[i], &status, 0));
		EXPECT_EQ(0, status);
	}
	check_pair(_metadata, p);
}

int main(int argc, char **argv)
{
	need_futex_swap();
	return test_harness_run(argc, argv);
}
