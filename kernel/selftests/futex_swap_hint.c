// SPDX-License-Identifier: GPL-2.0
/*
 * The hint of FUTEX_SWAP: val3 may name the waiter to wake by its TID. A right
 * hint leads to that waiter, a wrong one changes nothing.
 */
#include <sys/mount.h>

#include "futex_swap_common.h"
#include "futex2test.h"

enum how { SWAP_CHANGED, SWAP_ASLEEP, WAKE };

/* Wakes one waiter on peer in the way @how, and the swapper if it sleeps. */
static void wake_peer(struct __test_metadata *_metadata, enum how how,
		      unsigned int hint)
{
	switch (how) {
	case WAKE:
		ASSERT_EQ(1, wake_with_hint(&arena->peer, hint));
		break;
	case SWAP_CHANGED:
		prepare_swap_changed(swapper, &arena->own, &arena->peer,
				     FUTEX_PRIVATE_FLAG)->val3 = hint;
		start(_metadata, swapper);
		ASSERT_RETURNS(-1, EAGAIN, swapper);
		break;
	case SWAP_ASLEEP:
		prepare_swap(swapper, &arena->own, &arena->peer,
			     FUTEX_PRIVATE_FLAG)->val3 = hint;
		start(_metadata, swapper);
		end_swapper(_metadata, swapper, &arena->own, FUTEX_PRIVATE_FLAG);
		break;
	}
}

FIXTURE(hint) {
};

FIXTURE_VARIANT(hint) {
	enum how how;
};

/* A swap that does not sleep, as the value of its own futex has changed. */
FIXTURE_VARIANT_ADD(hint, swap_changed) {
	.how = SWAP_CHANGED,
};

FIXTURE_VARIANT_ADD(hint, swap) {
	.how = SWAP_ASLEEP,
};

FIXTURE_VARIANT_ADD(hint, wake) {
	.how = WAKE,
};

FIXTURE_SETUP(hint)
{
	make_arena(_metadata, 0);
}

FIXTURE_TEARDOWN(hint)
{
}

TEST_F(hint, right_wakes_that_one)
{
	struct call *target = park(_metadata, &arena->other, &arena->peer);
	pid_t tid = target->tid;
	int i;

	wake_peer(_metadata, variant->how, tid);
	ASSERT_RETURNS(0, 0, target);

	/* Again: from now on the kernel remembers the waiter. */
	for (i = 0; i < 3; i++) {
		queue_waiters_on(_metadata, &arena->spare, 2, FUTEX_PRIVATE_FLAG);
		park(_metadata, target, &arena->peer);
		wake_peer(_metadata, variant->how, target->tid);
		ASSERT_RETURNS(0, 0, target);
		EXPECT_EQ(2, futex_wake(&arena->spare, INT_MAX, FUTEX_PRIVATE_FLAG));
		check_woken(_metadata, 2, 2);
	}
}

/* The hint wins over the order, which futex(2) does not promise. */
TEST_F(hint, names_a_later_one_of_several)
{
	struct call *target;

	queue_waiters(_metadata, 2, FUTEX_PRIVATE_FLAG);
	target = park(_metadata, &arena->other, &arena->peer);
	wake_peer(_metadata, variant->how, target->tid);
	ASSERT_RETURNS(0, 0, target);
	end_waiters(_metadata, 2, 0, FUTEX_PRIVATE_FLAG);
}

TEST_F(hint, realtime_waiter_first_all_the_same)
{
	struct call *fifo = &arena->waiter[0], *target;

	if (!become_fifo(0))
		SKIP(return, "may not set SCHED_FIFO: %s", strerror(errno));
	ASSERT_EQ(0, sched_setscheduler(0, SCHED_OTHER, &(struct sched_param){}));

	target = park(_metadata, &arena->other, &arena->peer);
	prepare_wait(fifo, &arena->peer, FUTEX_PRIVATE_FLAG)->fifo = true;
	START_ASLEEP(fifo);

	wake_peer(_metadata, variant->how, target->tid);
	ASSERT_RETURNS(0, 0, fifo);
	EXPECT_STILL_ASLEEP(target);
	wake_peer(_metadata, variant->how, target->tid);
	ASSERT_RETURNS(0, 0, target);
}

/* Each wrong hint in turn. No hint finds the two waiters in FUTEX_WAIT. */
TEST_F(hint, wrong_is_no_hint)
{
	unsigned int hints[] = {
		0,
		gettid(),		/* the test, or the waker itself */
		1,			/* another process */
		2,			/* a kernel thread */
		0x3fffffff,		/* no task */
		0,			/* a waiter in FUTEX_WAIT */
		0,			/* parked, but on another futex */
		0,			/* parked here before, but not any more */
	};
	const int nr = ARRAY_SIZE(hints);
	struct call *away = park(_metadata, &arena->other, &arena->spare);
	struct call *gone = park(_metadata, &arena->swapper[1], &arena->peer);
	int i;

	EXPECT_EQ(1, wake_with_hint(&arena->peer, gone->tid));
	ASSERT_RETURNS(0, 0, gone);
	hints[nr - 1] = gone->tid;
	hints[nr - 2] = away->tid;

	for (i = 0; i < nr; i++) {
		queue_waiters(_metadata, 2, FUTEX_PRIVATE_FLAG);
		if (i == nr - 3)
			hints[i] = arena->waiter[1].tid;
		wake_peer(_metadata, variant->how, hints[i]);
		end_waiters(_metadata, 2, 1, FUTEX_PRIVATE_FLAG);
		EXPECT_STILL_ASLEEP(away);
	}
	EXPECT_EQ(1, wake_with_hint(&arena->spare, away->tid));
	ASSERT_RETURNS(0, 0, away);
}

/* The same address in another process is another private futex. */
TEST_F(hint, foreign_process_not_woken)
{
	struct call *foreign = &arena->other;

	start_process(_metadata, prepare_park(foreign, &arena->peer));
	ASSERT_ASLEEP(foreign);
	EXPECT_EQ(0, wake_with_hint(&arena->peer, foreign->tid));

	queue_waiters(_metadata, 2, FUTEX_PRIVATE_FLAG);
	wake_peer(_metadata, variant->how, foreign->tid);
	end_waiters(_metadata, 2, 1, FUTEX_PRIVATE_FLAG);
	EXPECT_STILL_ASLEEP(foreign);

	ASSERT_EQ(0, kill(foreign->pid, SIGKILL));
	ASSERT_EQ(foreign->pid, waitpid(foreign->pid, NULL, 0));
}

/* The caller's TID in the PID namespace of the mount @proc. */
static pid_t tid_of_proc(int proc)
{
	char text[64];
	ssize_t length = readlinkat(proc, "thread-self", text, sizeof(text) - 1);
	int tid;

	text[length > 0 ? length : 0] = '\0';
	return sscanf(text, "%*d/task/%d", &tid) == 1 ? tid : 0;
}

struct named {
	int proc;
	pid_t tid;
};

static long enter_swap_named(struct call *c)
{
	struct named *outside = c->arg;

	outside->tid = tid_of_proc(outside->proc);
	return futex(c->uaddr, c->op, c->val, c->timeout, c->uaddr2, c->val3, 0);
}

/*
 * A hint is a TID in the caller's PID namespace. The TID in the outer namespace
 * is a wrong hint.
 */
TEST_F(hint, of_the_callers_pid_namespace)
{
	int status;
	pid_t pid;

	if (unshare(CLONE_NEWPID))
		SKIP(return, "may not make a PID namespace: %s", strerror(errno));
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		struct call *target = &arena->other;
		struct named outside = {
			.proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC),
		};
		int i;

		/* is_asleep() asks /proc, which is the outer namespace's. */
		ASSERT_LE(0, outside.proc);
		ASSERT_EQ(0, unshare(CLONE_NEWNS));
		ASSERT_EQ(0, mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
		ASSERT_EQ(0, mount("proc", "/proc", "proc", 0, NULL));

		/*
		 * A waiter in FUTEX_WAIT is queued first. Without a right hint
		 * it is woken.
		 */
		for (i = 0; i < 2; i++) {
			queue_waiters(_metadata, 1, FUTEX_PRIVATE_FLAG);
			prepare_park(target, &arena->peer)->enter = enter_swap_named;
			target->arg = &outside;
			START_ASLEEP(target);
			ASSERT_GT(20, target->tid);
			ASSERT_LT(20, outside.tid);

			/* The outer TID names no task in here. */
			if (!i) {
				wake_peer(_metadata, variant->how, outside.tid);
				check_woken(_metadata, 1, 1);
				EXPECT_STILL_ASLEEP(target);
				EXPECT_EQ(1, wake_with_hint(&arena->peer, 0));
				ASSERT_RETURNS(0, 0, target);
			} else {
				wake_peer(_metadata, variant->how, target->tid);
				ASSERT_RETURNS(0, 0, target);
				end_waiters(_metadata, 1, 0, FUTEX_PRIVATE_FLAG);
			}
		}
		_exit(!__test_passed(_metadata));
	}
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(0, status);
}

TEST_F(hint, requeued_is_found_where_it_is)
{
	struct call *target = park(_metadata, &arena->other, &arena->peer);

	EXPECT_EQ(1, futex(&arena->peer, FUTEX_CMP_REQUEUE, 0,
			   (void *)(unsigned long)INT_MAX, &arena->spare, 0,
			   FUTEX_PRIVATE_FLAG));
	EXPECT_EQ(0, wake_with_hint(&arena->peer, target->tid));

	queue_waiters(_metadata, 2, FUTEX_PRIVATE_FLAG);
	wake_peer(_metadata, variant->how, target->tid);
	end_waiters(_metadata, 2, 1, FUTEX_PRIVATE_FLAG);
	EXPECT_STILL_ASLEEP(target);

	EXPECT_EQ(1, wake_with_hint(&arena->spare, target->tid));
	ASSERT_RETURNS(0, 0, target);
}

/* The named waiter has left by a timeout. */
TEST_F(hint, timed_out_is_not_there)
{
	struct call *target = prepare_park(&arena->other, &arena->peer);
	int i;

	arena->ts = (struct timespec){ .tv_nsec = NSEC_PER_MSEC };
	target->timeout = &arena->ts;
	start(_metadata, target);
	ASSERT_RETURNS(-1, ETIMEDOUT, target);
	EXPECT_EQ(0, wake_with_hint(&arena->peer, target->tid));

	for (i = 0; i < 2; i++) {
		queue_waiters(_metadata, 2, FUTEX_PRIVATE_FLAG);
		wake_peer(_metadata, variant->how, target->tid);
		end_waiters(_metadata, 2, 1, FUTEX_PRIVATE_FLAG);
	}
}

TEST_F(hint, sleeper_of_a_swap_is_found)
{
	struct call *target = &arena->other;

	queue_waiters_on(_metadata, &arena->spare, 1, FUTEX_PRIVATE_FLAG);
	prepare_swap(target, &arena->peer, &arena->spare, FUTEX_PRIVATE_FLAG);
	START_ASLEEP(target);
	check_woken(_metadata, 1, 1);
	wake_peer(_metadata, variant->how, target->tid);
	ASSERT_RETURNS(0, 0, target);
}

/* Four times the hint names a waiter that is neither first nor last. */
TEST_F(hint, remembered_among_several)
{
	struct call *target = &arena->other, *late = &arena->swapper[1];
	int i;

	for (i = 0; i < 4; i++) {
		queue_waiters(_metadata, 2, FUTEX_PRIVATE_FLAG);
		park(_metadata, target, &arena->peer);
		park(_metadata, late, &arena->peer);
		wake_peer(_metadata, variant->how, target->tid);
		ASSERT_RETURNS(0, 0, target);
		EXPECT_STILL_ASLEEP(late);
		wake_peer(_metadata, variant->how, late->tid);
		ASSERT_RETURNS(0, 0, late);
		end_waiters(_metadata, 2, 0, FUTEX_PRIVATE_FLAG);
	}
}

/*
 * Two sides take turns with hints. So many others wait that the chains of
 * waiters in the hash have other members, too.
 */
#define CROWD_THREADS	24
#define CROWD_ROUNDS	3000

static futex_t crowd_words[CROWD_THREADS][FUTEX_WAITV_MAX];
static futex_t crowd_word[2];
static unsigned int crowd_tid[2];
static long crowd_turns, crowd_wrong;

static void *crowd_wait(void *arg)
{
	futex_t *words = arg;
	struct futex_waitv v[FUTEX_WAITV_MAX];
	int i;

	for (i = 0; i < FUTEX_WAITV_MAX; i++) {
		v[i] = (struct futex_waitv) {
			.uaddr = (uintptr_t)&words[i],
			.flags = FUTEX_32 | FUTEX_PRIVATE_FLAG,
		};
	}
	/* futex_waitv() of futex2test.h does not take NULL on each kernel. */
	syscall(SYS_futex_waitv, v, FUTEX_WAITV_MAX, 0, NULL, CLOCK_MONOTONIC);
	return NULL;
}

FIXTURE(hint_crowd) {
	pthread_t thread[CROWD_THREADS];
};

FIXTURE_VARIANT(hint_crowd) {
	bool right;
	bool wrong;
};

FIXTURE_VARIANT_ADD(hint_crowd, none) {
	.right = false,
};

FIXTURE_VARIANT_ADD(hint_crowd, right) {
	.right = true,
};

FIXTURE_VARIANT_ADD(hint_crowd, wrong) {
	.wrong = true,
};

FIXTURE_VARIANT_ADD(hint_crowd, all_in_turn) {
	.right = true, .wrong = true,
};

FIXTURE_SETUP(hint_crowd)
{
	int i;

	for (i = 0; i < CROWD_THREADS; i++)
		ASSERT_EQ(0, pthread_create(&self->thread[i], NULL, crowd_wait,
					    (void *)crowd_words[i]));
	usleep(100000);
}

FIXTURE_TEARDOWN(hint_crowd)
{
	int i;

	for (i = 0; i < CROWD_THREADS; i++) {
		crowd_words[i][0] = 1;
		futex_wake(&crowd_words[i][0], 1, FUTEX_PRIVATE_FLAG);
		pthread_join(self->thread[i], NULL);
	}
}

struct crowd_side {
	int me;
	bool right;
	bool wrong;
};

static void *crowd_side(void *arg)
{
	struct crowd_side *s = arg;
	futex_t *own = &crowd_word[s->me], *peer = &crowd_word[!s->me];
	unsigned int hint;
	long n;

	__atomic_store_n(&crowd_tid[s->me], gettid(), __ATOMIC_RELEASE);
	for (n = 0; n < CROWD_ROUNDS; n++) {
		while (!__atomic_load_n(own, __ATOMIC_ACQUIRE))
			futex(own, FUTEX_SWAP, 0, NULL, NULL, 0, FUTEX_PRIVATE_FLAG);
		if (crowd_turns++ != 2 * n + s->me)
			crowd_wrong++;

		hint = s->right ? __atomic_load_n(&crowd_tid[!s->me], __ATOMIC_ACQUIRE) : 0;
		if (s->wrong && (!s->right || n % 3))
			hint = n % 2 ? crowd_tid[s->me] : getpid();
		__atomic_store_n(own, 0, __ATOMIC_RELAXED);
		__atomic_store_n(peer, 1, __ATOMIC_SEQ_CST);
		if (n + 1 == CROWD_ROUNDS)
			wake_with_hint(peer, hint);
		else if (futex(own, FUTEX_SWAP, 0, NULL, peer, hint, FUTEX_PRIVATE_FLAG) &&
			 errno != EAGAIN)
			crowd_wrong++;
	}
	return NULL;
}

TEST_F(hint_crowd, turns_taken)
{
	struct crowd_side side[2];
	pthread_t thread[2];
	cpu_set_t set;
	int i;

	/* On one CPU, where each swap finds the other side asleep. */
	ASSERT_EQ(0, sched_getaffinity(0, sizeof(set), &set));
	pin_to(0, sched_getcpu());
	crowd_word[0] = 1;
	for (i = 0; i < 2; i++) {
		side[i] = (struct crowd_side) { i, variant->right, variant->wrong };
		ASSERT_EQ(0, pthread_create(&thread[i], NULL, crowd_side, &side[i]));
	}
	for (i = 0; i < 2; i++)
		ASSERT_EQ(0, pthread_join(thread[i], NULL));
	ASSERT_EQ(0, sched_setaffinity(0, sizeof(set), &set));

	EXPECT_EQ(0, crowd_wrong);
	EXPECT_EQ(2 * CROWD_ROUNDS, crowd_turns);
}

/* execve() frees the caller's swap state and its reference to another one. */
TEST(hint_exec_with_one_remembered)
{
	struct call *target;
	int i, status;
	pid_t pid;

	make_arena(_metadata, 0);
	for (i = 0; i < 20; i++) {
		pid = fork_child(_metadata);
		if (!pid) {
			struct timespec soon = { .tv_nsec = NSEC_PER_MSEC };

			/* A hint is remembered only with several waiters. */
			park(_metadata, &arena->swapper[0], &arena->peer);
			target = park(_metadata, &arena->other, &arena->peer);
			arena->own = 0;
			futex(&arena->own, FUTEX_SWAP, 0, &soon, &arena->peer,
			      target->tid, FUTEX_PRIVATE_FLAG);
			if (!wait_done(target))
				_exit(1);
			park(_metadata, target, &arena->peer);
			execl("/bin/true", "true", NULL);
			_exit(2);
		}
		ASSERT_EQ(pid, waitpid(pid, &status, 0));
		EXPECT_EQ(0, status);
	}
}

TEST(hint_after_fork_and_exec_of_others)
{
	struct call *target;
	int i, status;
	pid_t pid;

	make_arena(_metadata, 0);
	target = park(_metadata, &arena->other, &arena->peer);
	for (i = 0; i < 20; i++) {
		pid = fork_child(_metadata);
		if (!pid) {
			if (wake_with_hint(&arena->peer, target->tid))
				_exit(1);
			execl("/bin/true", "true", NULL);
			_exit(2);
		}
		ASSERT_EQ(pid, waitpid(pid, &status, 0));
		EXPECT_EQ(0, status);
	}
	EXPECT_EQ(1, wake_with_hint(&arena->peer, target->tid));
	ASSERT_RETURNS(0, 0, target);
}

/*
 * A hint that names a PI waiter is wrong. The search without the hint finds the
 * PI waiter and returns EINVAL.
 */
TEST_F(hint, names_a_pi_waiter_einval)
{
	struct call *w = &arena->other;
	const int fl = FUTEX_PRIVATE_FLAG, absent = errno_of_unknown();

	if (futex_lock_pi(&arena->peer, NULL, 0, fl)) {
		ASSERT_EQ(absent, errno);
		SKIP(return, "this kernel has no PI futexes (CONFIG_FUTEX_PI)");
	}
	START_ASLEEP(prepare(w, &arena->peer, FUTEX_LOCK_PI | fl));

	if (variant->how == WAKE) {
		EXPECT_EQ(-1, wake_with_hint(&arena->peer, w->tid));
		EXPECT_EQ(EINVAL, errno);
	} else {
		prepare_swap(swapper, &arena->own, &arena->peer, fl);
		swapper->val += variant->how == SWAP_CHANGED;
		swapper->val3 = w->tid;
		start(_metadata, swapper);
		ASSERT_RETURNS(-1, EINVAL, swapper);
	}
	EXPECT_STILL_ASLEEP(w);
	give_up_pi_lock(_metadata, &arena->peer, w, fl);
}

/*
 * Some threads park on a few futexes with short timeouts, end, and start again.
 * Other threads wake there, with the TID of any of the first as a hint. The
 * number of wakeups that the wakers count must be the number of sleeps that
 * ended with a wakeup.
 */
#define STORM_FUTEXES	3
#define STORM_PARKERS	6
#define STORM_WAKERS	3
#define STORM_ROUNDS	2000

static struct storm {
	futex_t word[STORM_FUTEXES];
	unsigned int tid[STORM_PARKERS];
	unsigned long slept;
	unsigned long woken;
	unsigned long odd;
	int parkers;
} storm;

static unsigned int dice(unsigned int *seed, unsigned int sides)
{
	*seed = *seed * 1103515245 + 12345;
	return (*seed >> 16) % sides;
}

static void *storm_park(void *arg)
{
	unsigned int *tid = arg, seed = gettid();
	struct timespec soon = {};
	unsigned long slept = 0;
	int i;

	__atomic_store_n(tid, gettid(), __ATOMIC_RELAXED);
	for (i = 0; i < 50; i++) {
		futex_t *word = &storm.word[dice(&seed, STORM_FUTEXES)];

		soon.tv_nsec = 1000 * (1 + dice(&seed, 2000));
		if (!futex(word, FUTEX_SWAP, 0, &soon, NULL, 0, FUTEX_PRIVATE_FLAG))
			slept++;
		else if (errno != ETIMEDOUT)
			__atomic_add_fetch(&storm.odd, 1, __ATOMIC_RELAXED);
	}
	__atomic_add_fetch(&storm.slept, slept, __ATOMIC_RELAXED);
	return NULL;
}

static void *storm_parkers(void *arg)
{
	pthread_t thread;
	int i;

	for (i = 0; i < STORM_ROUNDS / 50; i++) {
		if (pthread_create(&thread, NULL, storm_park, arg))
			__atomic_add_fetch(&storm.odd, 1, __ATOMIC_RELAXED);
		else
			pthread_join(thread, NULL);
	}
	__atomic_sub_fetch(&storm.parkers, 1, __ATOMIC_RELEASE);
	return NULL;
}

static void *storm_wake(void *arg)
{
	unsigned int seed = gettid();
	unsigned long woken = 0;
	futex_t own = 0;
	int ret;

	while (__atomic_load_n(&storm.parkers, __ATOMIC_ACQUIRE)) {
		futex_t *word = &storm.word[dice(&seed, STORM_FUTEXES)];
		unsigned int hint = storm.tid[dice(&seed, STORM_PARKERS)];

		/* A disturbance: a swap does not say how many it woke. */
		if (!dice(&seed, 8)) {
			struct timespec soon = { .tv_nsec = 1000 };

			futex(&own, FUTEX_SWAP, 0, &soon, &own, hint, FUTEX_PRIVATE_FLAG);
			continue;
		}
		ret = wake_with_hint(word, hint);
		if (ret < 0)
			__atomic_add_fetch(&storm.odd, 1, __ATOMIC_RELAXED);
		else
			woken += ret;
	}
	__atomic_add_fetch(&storm.woken, woken, __ATOMIC_RELAXED);
	return NULL;
}

FIXTURE(hint_storm) {
};

FIXTURE_SETUP(hint_storm)
{
}

FIXTURE_TEARDOWN(hint_storm)
{
}

TEST_F_TIMEOUT(hint_storm, every_wake_ends_one_sleep, 120)
{
	pthread_t thread[STORM_PARKERS + STORM_WAKERS];
	int i;

	storm.parkers = STORM_PARKERS;
	for (i = 0; i < STORM_PARKERS; i++)
		ASSERT_EQ(0, pthread_create(&thread[i], NULL, storm_parkers,
					    &storm.tid[i]));
	for (; i < STORM_PARKERS + STORM_WAKERS; i++)
		ASSERT_EQ(0, pthread_create(&thread[i], NULL, storm_wake, NULL));
	for (i = 0; i < STORM_PARKERS + STORM_WAKERS; i++)
		ASSERT_EQ(0, pthread_join(thread[i], NULL));

	EXPECT_EQ(0, storm.odd);
	EXPECT_EQ(storm.woken, storm.slept);
	EXPECT_LT(0, storm.woken);
}

/* How many objects of the size of a swap state are in use, or -1. */
static long states_kept(void)
{
	static const char * const caches[] = { "kmalloc-192", "kmalloc-cg-192" };
	long objects, sum = -1;
	unsigned int i;
	char path[64];

	for (i = 0; i < ARRAY_SIZE(caches); i++) {
		/* Free unused objects, even those that KASAN keeps. */
		snprintf(path, sizeof(path), "/sys/kernel/slab/%s/shrink", caches[i]);
		write_file(path, "1");
		objects = slab_objects(caches[i]);
		if (objects >= 0)
			sum = objects + (sum < 0 ? 0 : sum);
	}
	return sum;
}

/*
 * A task keeps a reference to the swap state that its last hint led to, and to
 * no other.
 */
TEST(hint_holds_on_to_one)
{
	const long rounds = 400;
	long long limit;
	long before, left, i;
	futex_t own = 0;

	make_arena(_metadata, 0);
	/* Make the swap state that stores this reference. */
	EXPECT_EQ(-1, futex_swap(&own, 1, NULL, &own, FUTEX_PRIVATE_FLAG));
	/* Objects freed earlier must be gone, or they would hide a leak. */
	limit = now() + PATIENCE;
	do {
		before = states_kept();
		sleep_until(now() + NSEC_PER_SEC);
	} while (states_kept() < before && now() < limit);
	before = states_kept();
	if (before < 0)
		SKIP(return, "/proc/slabinfo can't be read, or has no kmalloc-192");
	for (i = 0; i < rounds; i++) {
		struct call *target = park(_metadata, &arena->other, &arena->peer);

		ASSERT_EQ(1, wake_with_hint(&arena->peer, target->tid));
		ASSERT_RETURNS(0, 0, target);
		ASSERT_EQ(0, pthread_join(target->thread, NULL));
	}
	/* Freeing after a grace period may take some seconds. */
	limit = now() + 2 * PATIENCE;
	do {
		sleep_until(now() + 100 * NSEC_PER_MSEC);
		left = states_kept() - before;
	} while (left > rounds / 2 && now() < limit);
	EXPECT_GE(rounds / 2, left);
}

int main(int argc, char **argv)
{
	need_futex_swap();
	return test_harness_run(argc, argv);
}
