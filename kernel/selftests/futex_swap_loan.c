// SPDX-License-Identifier: GPL-2.0
/*
 * A thread may lend its place on the CPU by FUTEX_SWAP. The place comes back when the
 * thread that holds it blocks, or cannot pass it on.
 *
 * The lender waits on own. A holder parks on a futex until it is given the place, and
 * then does what its test asks for.
 */
#include <linux/seccomp.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>

#include "futex_swap_common.h"
#include "futex_swap_pair.h"

#ifndef PR_FUTEX_LOAN
#define PR_FUTEX_LOAN		0x4c4f414e
#define PR_FUTEX_LOAN_OFF	0
#define PR_FUTEX_LOAN_TAKE	1
#define PR_FUTEX_LOAN_LEND	2
#endif

static int loan(int how, const void *keeps)
{
	return prctl(PR_FUTEX_LOAN, how, keeps, 0, 0);
}

enum ending {
	SLEEPS, SWAPS_HOME, SWAPS_ON, SWAPS_TO_NOBODY, PARKS, EXITS, FORKS, SHARES,
	THEN_HOME, VFORKS, WAITS, LOCKS, FAULTS, MAPS, SPINS, MOVES, EXECS, HAS_DEADLINE,
	LENDS, WRITES, DUMPS, IS_DUMPED, IS_KILLED,
};

/* A thread that holds the place for a while. */
struct holder {
	struct call call;
	futex_t word;		/* it parks here */
	futex_t keeps;		/* it says this of its sleep */
	bool outsider;		/* it takes no part */
	bool lends;		/* it lends its own place */
	bool apart;		/* it is a process, in the memory of the test */
	bool fifo;
	bool given;
	bool go_on;
	enum ending ending;
	struct holder *next;
	int cpu;		/* it moves there */
	futex_t *futex;		/* it waits for it, locks it, or faults there */
	void *keeps_there;	/* instead of &keeps */
	int fd;			/* it writes there */
};

/* Where it sleeps. */
static int pipes[3][2];

/* Not that of the variant one_cpu. */
static int other_cpu;

/* In shared memory, for the host. */
static struct holder *holders;

static long sleep_in_pipe(struct holder *h)
{
	char byte;

	return read(pipes[h - holders][0], &byte, 1);
}

static pid_t start_in_our_memory(int (*run)(void *), void *arg)
{
	char *stack = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return stack == MAP_FAILED ? -1 : clone(run, stack + 65536, CLONE_VM | SIGCHLD, arg);
}

static int dump_core(void *arg)
{
	__builtin_trap();
}

static void wait_to_go_on(struct holder *h)
{
	while (!__atomic_load_n(&h->go_on, __ATOMIC_ACQUIRE))
		;
}

static long spin_and_sleep(struct holder *h)
{
	wait_to_go_on(h);
	return sleep_in_pipe(h);
}

static long be_holder(struct call *c)
{
	struct holder *h = c->arg;
	const void *keeps = h->keeps_there ?: (void *)&h->keeps;
	void *map;
	int i;

	if (h->lends ? loan(PR_FUTEX_LOAN_LEND, NULL) :
		       !h->outsider && loan(PR_FUTEX_LOAN_TAKE, keeps))
		return -1;
	if (futex_swap(&h->word, 0, NULL, NULL, FUTEX_PRIVATE_FLAG))
		return -1;
	__atomic_store_n(&h->given, true, __ATOMIC_RELEASE);

	switch (h->ending) {
	case SLEEPS:
		return sleep_in_pipe(h);
	case SWAPS_HOME:
		if (futex_swap(&h->word, 0, NULL, &arena->own, FUTEX_PRIVATE_FLAG))
			return -1;
		return sleep_in_pipe(h);
	case SWAPS_ON:
		if (futex_swap(&h->word, 0, NULL, &h->next->word, FUTEX_PRIVATE_FLAG))
			return -1;
		return sleep_in_pipe(h);
	case SWAPS_TO_NOBODY:
		if (futex_swap(&h->word, 0, NULL, &arena->spare, FUTEX_PRIVATE_FLAG))
			return -1;
		h->keeps = 0;
		return sleep_in_pipe(h);
	case PARKS:
		if (futex_swap(&h->word, 0, NULL, NULL, FUTEX_PRIVATE_FLAG))
			return -1;
		return sleep_in_pipe(h);
	case THEN_HOME:
		if (sleep_in_pipe(h) != 1 ||
		    futex_swap(&h->word, 0, NULL, &arena->own, FUTEX_PRIVATE_FLAG))
			return -1;
		return sleep_in_pipe(h);
	case EXITS:
		return 0;
	case FORKS:
		if (!fork()) {
			sleep_in_pipe(&holders[1]);
			_exit(0);
		}
		return spin_and_sleep(h);
	case MAPS:
		for (i = 0; i < 100; i++) {
			map = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
			if (map == MAP_FAILED || munmap(map, 4096))
				return -1;
		}
		return spin_and_sleep(h);
	case SPINS:
		return spin_and_sleep(h);
	case SHARES:
		futex_swap(&h->word, 0, NULL, &arena->spare, 0);
		return 0;
	case VFORKS:
		/* The child sleeps. The parent does so uninterruptibly. */
		if (!vfork()) {
			sleep_in_pipe(h);
			_exit(0);
		}
		wait(NULL);
		return sleep_in_pipe(h);
	case WAITS:
		if (futex_wait(h->futex, *h->futex, NULL, FUTEX_PRIVATE_FLAG))
			return -1;
		return sleep_in_pipe(h);
	case LOCKS:
		if (futex_lock_pi(h->futex, NULL, 0, FUTEX_PRIVATE_FLAG) ||
		    futex_unlock_pi(h->futex, FUTEX_PRIVATE_FLAG))
			return -1;
		return sleep_in_pipe(h);
	case FAULTS:
		__atomic_load_n(h->futex, __ATOMIC_RELAXED);
		return sleep_in_pipe(h);
	case MOVES:
		if (!pin_to(0, h->cpu))
			return -1;
		return sleep_in_pipe(h);
	case HAS_DEADLINE:
		if (take_deadline())
			return -1;
		return sleep_in_pipe(h);
	case LENDS:
		if (loan(PR_FUTEX_LOAN_LEND, NULL))
			return -1;
		return futex_swap(&h->word, 0, NULL, &h->next->word, FUTEX_PRIVATE_FLAG);
	case WRITES:
		if (write(h->fd, "x", 1) != 1)
			return -1;
		return sleep_in_pipe(h);
	case DUMPS:
		/* Not before the host has started the lender. */
		wait_to_go_on(h);
		return dump_core(NULL);
	case IS_DUMPED:
		if (start_in_our_memory(dump_core, NULL) < 0)
			return -1;
		return spin_and_sleep(h);
	case IS_KILLED:
		/* Any other call than read() and write() ends this thread alone. */
		if (!prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT))
			getppid();
		return -1;
	case EXECS:
		wait_to_go_on(h);
		execl("/proc/self/exe", "futex_swap_loan", "--nothing", NULL);
		return -1;
	}
	return -1;
}

static long be_lender(struct call *c)
{
	if (loan(PR_FUTEX_LOAN_LEND, NULL))
		return -1;
	return futex_swap(c->uaddr, c->val, c->timeout, c->uaddr2, FUTEX_PRIVATE_FLAG);
}

static int be_apart(void *call)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	run(call);
	return 0;
}

static void start_holder(struct __test_metadata *_metadata, struct holder *h,
			 enum ending ending)
{
	struct call *c = prepare_park(&h->call, &h->word);

	h->ending = ending;
	c->enter = be_holder;
	c->arg = h;
	c->fifo = h->fifo;
	if (!h->apart)
		start(_metadata, c);
	else
		ASSERT_LT(0, start_in_our_memory(be_apart, c));
	ASSERT_ASLEEP(c);
	/* From now on it shows as asleep in the pipe. */
	c->nr = SYS_read;
	c->arg0 = pipes[h - holders][0];
}

static struct call *start_lender(struct __test_metadata *_metadata, struct holder *h)
{
	struct call *c = prepare_swap(&arena->other, &arena->own, &h->word, FUTEX_PRIVATE_FLAG);

	c->enter = be_lender;
	start(_metadata, c);
	return c;
}

/* What the first swap of lend_and_wait_again() has returned, or minus its errno. */
static long lent_before;

static long lend_and_wait(struct call *c, int opflags)
{
	long ret = be_lender(c);

	lent_before = ret < 0 ? -errno : ret;
	__atomic_store_n(&arena->go, 1, __ATOMIC_RELEASE);
	return futex_swap(c->uaddr, c->val, NULL, NULL, opflags);
}

static long lend_and_wait_again(struct call *c)
{
	return lend_and_wait(c, FUTEX_PRIVATE_FLAG);
}

static long lend_and_wait_shared(struct call *c)
{
	return lend_and_wait(c, 0);
}

/*
 * As start_lender(). The lender waits once more, in the same thread: to register anew would
 * end all that there was.
 */
static struct call *start_lender_twice(struct __test_metadata *_metadata, struct holder *h)
{
	struct call *c = prepare_swap(&arena->other, &arena->own, &h->word, FUTEX_PRIVATE_FLAG);

	c->enter = lend_and_wait_again;
	start(_metadata, c);
	return c;
}

static void wait_lends_again(struct __test_metadata *_metadata, struct call *lender)
{
	const long long limit = now() + PATIENCE;

	while (!__atomic_load_n(&arena->go, __ATOMIC_ACQUIRE)) {
		ASSERT_LT(now(), limit);
		usleep(100);
	}
	ASSERT_ASLEEP(lender);
}

/* @lender is told that holders[@i] has blocked. */
#define ASSERT_TOLD(i, lender)	ASSERT_RETURNS(holders[i].call.tid, 0, lender)

static void end_holder(struct __test_metadata *_metadata, struct holder *h)
{
	ASSERT_EQ(1, write(pipes[h - holders][1], "x", 1));
	ASSERT_RETURNS(1, 0, &h->call);
}

static void wait_given(struct __test_metadata *_metadata, struct holder *h)
{
	const long long limit = now() + PATIENCE;

	while (!__atomic_load_n(&h->given, __ATOMIC_ACQUIRE)) {
		ASSERT_LT(now(), limit);
		usleep(100);
	}
}

static void go_on(struct holder *h)
{
	__atomic_store_n(&h->go_on, true, __ATOMIC_RELEASE);
}

/* The thread of @c, which sleeps on own, is not told, and ends when it is woken. */
static void expect_untold(struct __test_metadata *_metadata, struct call *c)
{
	usleep(10000);
	end_swapper(_metadata, c, &arena->own, FUTEX_PRIVATE_FLAG);
}

FIXTURE(loan) {
};

/* Threads on one CPU hand over, others are woken. */
FIXTURE_VARIANT(loan) {
	bool one_cpu;
};

FIXTURE_VARIANT_ADD(loan, free) {
};

FIXTURE_VARIANT_ADD(loan, one_cpu) {
	.one_cpu = true,
};

FIXTURE_SETUP(loan)
{
	int cpu[2], i;

	if (loan(PR_FUTEX_LOAN_OFF, NULL))
		SKIP(return, "this kernel has no PR_FUTEX_LOAN");
	make_arena(_metadata, 0);
	holders = mmap(NULL, 3 * sizeof(*holders), PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, (void *)holders);
	for (i = 0; i < 3; i++)
		ASSERT_EQ(0, pipe2(pipes[i], O_CLOEXEC));
	other_cpu = two_cpus(cpu) ? cpu[1] : cpu[0];
	if (variant->one_cpu)
		pin_to(0, cpu[0]);
}

FIXTURE_TEARDOWN(loan)
{
	int i;

	if (host)
		kill(host, SIGKILL);
	for (i = 0; i < 1000 && rmdir("/sys/fs/cgroup/futex_swap_loan") && errno == EBUSY; i++)
		usleep(1000);
}

TEST_F(loan, holder_sleeps_lender_told)
{
	start_holder(_metadata, &holders[0], SLEEPS);
	ASSERT_TOLD(0, start_lender(_metadata, &holders[0]));
	EXPECT_STILL_ASLEEP(&holders[0].call);
	end_holder(_metadata, &holders[0]);
}

TEST_F(loan, each_of_several_told)
{
	long handed = swap_count("handoff");
	struct call *lender;
	int i;

	for (i = 0; i < 3; i++) {
		start_holder(_metadata, &holders[i], SLEEPS);
		lender = start_lender(_metadata, &holders[i]);
		ASSERT_TOLD(i, lender);
	}
	for (i = 0; i < 3; i++)
		end_holder(_metadata, &holders[i]);
	/* On one CPU each place goes by a hand-off, if any does, and some come back by one. */
	handed = swap_count("handoff") - handed;
	if (variant->one_cpu && handed)
		EXPECT_LT(3, handed);
}

TEST_F(loan, swap_passes_it_on)
{
	struct call *lender;

	holders[0].next = &holders[1];
	start_holder(_metadata, &holders[1], SLEEPS);
	start_holder(_metadata, &holders[0], SWAPS_ON);
	lender = start_lender_twice(_metadata, &holders[0]);
	wait_lends_again(_metadata, lender);
	EXPECT_EQ(holders[1].call.tid, lent_before);
	EXPECT_STILL_ASLEEP(&holders[1].call);
	end_holder(_metadata, &holders[1]);

	/* The first one has nothing any more. */
	EXPECT_EQ(1, futex_wake(&holders[0].word, 1, FUTEX_PRIVATE_FLAG));
	ASSERT_ASLEEP(&holders[0].call);
	expect_untold(_metadata, lender);
	end_holder(_metadata, &holders[0]);
}

TEST_F(loan, swap_home_ends_it)
{
	struct call *lender;

	start_holder(_metadata, &holders[0], SWAPS_HOME);
	lender = start_lender_twice(_metadata, &holders[0]);
	wait_lends_again(_metadata, lender);
	EXPECT_EQ(0, lent_before);
	EXPECT_EQ(1, futex_wake(&holders[0].word, 1, FUTEX_PRIVATE_FLAG));
	ASSERT_ASLEEP(&holders[0].call);
	expect_untold(_metadata, lender);
	end_holder(_metadata, &holders[0]);
}

TEST_F(loan, sleeps_on_purpose_keeps_it)
{
	struct call *lender;

	holders[0].keeps = 1;
	start_holder(_metadata, &holders[0], SLEEPS);
	lender = start_lender(_metadata, &holders[0]);
	ASSERT_ASLEEP(&holders[0].call);
	expect_untold(_metadata, lender);
	end_holder(_metadata, &holders[0]);
}

/* The word is read in schedule(), which can wait for no page. */
TEST_F(loan, word_is_not_there)
{
	const size_t size = sysconf(_SC_PAGESIZE);
	int *word = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	ASSERT_NE(MAP_FAILED, word);
	*word = 1;
	ASSERT_EQ(0, madvise(word, size, MADV_DONTNEED));
	holders[0].keeps_there = word;
	start_holder(_metadata, &holders[0], SLEEPS);
	ASSERT_TOLD(0, start_lender(_metadata, &holders[0]));
	EXPECT_EQ(1, *word);
	end_holder(_metadata, &holders[0]);
}

/* The holder keeps the place in a swap, and not in the sleep after it. */
static void told_after_the_swap(struct __test_metadata *_metadata, enum ending ending)
{
	struct call *lender;

	start_holder(_metadata, &holders[0], ending);
	lender = start_lender(_metadata, &holders[0]);
	ASSERT_ASLEEP(lender);
	wait_given(_metadata, &holders[0]);
	usleep(10000);
	EXPECT_STILL_ASLEEP(lender);
	EXPECT_EQ(1, futex_wake(&holders[0].word, 1, FUTEX_PRIVATE_FLAG));
	ASSERT_TOLD(0, lender);
	end_holder(_metadata, &holders[0]);
}

TEST_F(loan, parks_keeps_it)
{
	told_after_the_swap(_metadata, PARKS);
}

/* Its target may be on the way to a swap of its own. */
TEST_F(loan, swap_to_nobody_on_purpose_keeps_it)
{
	holders[0].keeps = 1;
	told_after_the_swap(_metadata, SWAPS_TO_NOBODY);
}

TEST_F(loan, swap_to_nobody_gives_it_back)
{
	const long long limit = now() + PATIENCE;

	start_holder(_metadata, &holders[0], SWAPS_TO_NOBODY);
	ASSERT_TOLD(0, start_lender(_metadata, &holders[0]));
	/* It may not sleep yet. */
	while (!futex_wake(&holders[0].word, 1, FUTEX_PRIVATE_FLAG)) {
		ASSERT_LT(now(), limit);
		usleep(100);
	}
	end_holder(_metadata, &holders[0]);
}

TEST_F(loan, holder_exits_lender_told)
{
	struct call *lender;

	start_holder(_metadata, &holders[0], EXITS);
	lender = start_lender(_metadata, &holders[0]);
	ASSERT_TOLD(0, lender);
	ASSERT_RETURNS(0, 0, &holders[0].call);
}

TEST_F(loan, holder_killed_alone)
{
	struct call *lender;

	start_holder(_metadata, &holders[0], IS_KILLED);
	lender = start_lender(_metadata, &holders[0]);
	ASSERT_TOLD(0, lender);
	ASSERT_EQ(0, pthread_join(holders[0].call.thread, NULL));
	if (is_done(&holders[0].call))
		SKIP(return, "no seccomp (CONFIG_SECCOMP)");
}

/* One that lends its own place from now on has no other. */
TEST_F(loan, holder_lends_its_own)
{
	struct call *lender;

	holders[0].next = &holders[1];
	start_holder(_metadata, &holders[1], SLEEPS);
	start_holder(_metadata, &holders[0], LENDS);
	lender = start_lender(_metadata, &holders[0]);
	ASSERT_TOLD(0, lender);
	ASSERT_TOLD(1, &holders[0].call);
	end_holder(_metadata, &holders[1]);
}

/* The holder keeps the place, whatever it does before it spins, until it sleeps. */
static void told_only_at_the_end(struct __test_metadata *_metadata, enum ending ending)
{
	struct call *lender;

	start_holder(_metadata, &holders[0], ending);
	lender = start_lender(_metadata, &holders[0]);
	wait_given(_metadata, &holders[0]);
	usleep(50000);
	EXPECT_STILL_ASLEEP(lender);
	go_on(&holders[0]);
	ASSERT_TOLD(0, lender);
	end_holder(_metadata, &holders[0]);
}

/* The child sleeps at once. */
TEST_F(loan, child_of_the_holder_has_none)
{
	told_only_at_the_end(_metadata, FORKS);
	ASSERT_EQ(1, write(pipes[1][1], "x", 1));
	ASSERT_LT(0, wait(NULL));
}

/* On PREEMPT_RT even who takes a free rwsem for writing gets ready to sleep. */
TEST_F(loan, free_lock_is_no_block)
{
	told_only_at_the_end(_metadata, MAPS);
}

/* A holder that is as @one is given no place. */
static void expect_refused(struct __test_metadata *_metadata, struct holder one)
{
	struct call *lender;

	/* By the lender itself: nothing is lent. */
	holders[0] = one;
	start_holder(_metadata, &holders[0], SLEEPS);
	lender = start_lender(_metadata, &holders[0]);
	ASSERT_ASLEEP(&holders[0].call);
	expect_untold(_metadata, lender);
	end_holder(_metadata, &holders[0]);

	/* By a holder: the place comes back. */
	memset(holders, 0, 3 * sizeof(*holders));
	holders[1] = one;
	start_holder(_metadata, &holders[1], SLEEPS);
	holders[0].next = &holders[1];
	start_holder(_metadata, &holders[0], SWAPS_ON);
	lender = start_lender(_metadata, &holders[0]);
	ASSERT_TOLD(0, lender);
	end_holder(_metadata, &holders[1]);
	EXPECT_EQ(1, futex_wake(&holders[0].word, 1, FUTEX_PRIVATE_FLAG));
	end_holder(_metadata, &holders[0]);
}

TEST_F(loan, target_takes_no_part)
{
	expect_refused(_metadata, (struct holder){ .outsider = true });
}

/* Two processes in one memory have the same private futexes. */
TEST_F(loan, target_is_of_another_process)
{
	expect_refused(_metadata, (struct holder){ .apart = true });
}

static long take_and_park(struct call *c)
{
	if (loan(PR_FUTEX_LOAN_TAKE, NULL))
		return -1;
	return futex_swap(c->uaddr, c->val, NULL, NULL, 0);
}

TEST_F(loan, swap_on_a_shared_futex_gives_it_back)
{
	struct call *waiter = prepare_swap(&arena->waiter[0], &arena->spare, NULL, 0), *lender;

	waiter->enter = take_and_park;
	START_ASLEEP(waiter);
	start_holder(_metadata, &holders[0], SHARES);
	lender = start_lender(_metadata, &holders[0]);
	ASSERT_TOLD(0, lender);
	ASSERT_RETURNS(0, 0, waiter);
	EXPECT_EQ(1, futex_wake(&holders[0].word, 1, 0));
	ASSERT_RETURNS(0, 0, &holders[0].call);
}

static long lend_to_another(struct call *c)
{
	long ret = be_lender(c);

	if (ret != -1 || errno != EINTR)
		return 99;
	return futex_swap(c->uaddr, c->val, NULL, &holders[1].word, FUTEX_PRIVATE_FLAG);
}

/* A loan that was followed by another one is over, and its holder's sleep does not end that one. */
TEST_F(loan, lender_interrupted_lends_again)
{
	struct call *lender;

	handle(_metadata, SIGUSR1, 0);
	holders[0].keeps = 1;
	holders[1].keeps = 1;
	start_holder(_metadata, &holders[0], SLEEPS);
	start_holder(_metadata, &holders[1], SLEEPS);
	lender = prepare_swap(&arena->other, &arena->own, &holders[0].word, FUTEX_PRIVATE_FLAG);
	lender->enter = lend_to_another;
	start(_metadata, lender);
	wait_given(_metadata, &holders[0]);
	ASSERT_ASLEEP(lender);
	signal_thread(_metadata, lender, SIGUSR1);
	wait_given(_metadata, &holders[1]);
	ASSERT_ASLEEP(lender);
	ASSERT_ASLEEP(&holders[1].call);
	/* It sleeps once more when its call has ended. */
	holders[0].keeps = 0;
	end_holder(_metadata, &holders[0]);
	expect_untold(_metadata, lender);
	end_holder(_metadata, &holders[1]);
}

/* A lender that was interrupted is told if it waits again, on a shared futex, too. */
static void wait_again(struct __test_metadata *_metadata, long (*enter)(struct call *c))
{
	struct call *lender;

	handle(_metadata, SIGUSR1, 0);
	start_holder(_metadata, &holders[0], PARKS);
	lender = prepare_swap(&arena->other, &arena->own, &holders[0].word, FUTEX_PRIVATE_FLAG);
	lender->enter = enter;
	start(_metadata, lender);
	wait_given(_metadata, &holders[0]);
	ASSERT_ASLEEP(lender);
	signal_thread(_metadata, lender, SIGUSR1);
	wait_lends_again(_metadata, lender);
	EXPECT_EQ(-EINTR, lent_before);
	EXPECT_EQ(1, futex_wake(&holders[0].word, 1, FUTEX_PRIVATE_FLAG));
	ASSERT_TOLD(0, lender);
	end_holder(_metadata, &holders[0]);
}

TEST_F(loan, lender_interrupted_waits_again)
{
	wait_again(_metadata, lend_and_wait_again);
}

TEST_F(loan, lender_interrupted_waits_on_a_shared_futex)
{
	wait_again(_metadata, lend_and_wait_shared);
}

#if LINUX_AT_LEAST(6, 16)
#ifndef PR_FUTEX_HASH
#define PR_FUTEX_HASH			78
#define PR_FUTEX_HASH_SET_SLOTS		1
#endif

static void *replace_hash(void *stop)
{
	int slots = 16;

	while (!__atomic_load_n((int *)stop, __ATOMIC_RELAXED)) {
		prctl(PR_FUTEX_HASH, PR_FUTEX_HASH_SET_SLOTS, slots, 0, 0);
		slots = 48 - slots;
	}
	return NULL;
}

TEST_F(loan, lender_told_while_the_hash_is_replaced)
{
	struct call *lender;
	pthread_t replacer;
	int i, stop = 0;

	ASSERT_EQ(0, prctl(PR_FUTEX_HASH, PR_FUTEX_HASH_SET_SLOTS, 16, 0, 0));
	ASSERT_EQ(0, pthread_create(&replacer, NULL, replace_hash, &stop));
	for (i = 0; i < 50; i++) {
		start_holder(_metadata, &holders[0], SLEEPS);
		lender = start_lender(_metadata, &holders[0]);
		ASSERT_TOLD(0, lender);
		end_holder(_metadata, &holders[0]);
		memset(holders, 0, sizeof(*holders));
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	ASSERT_EQ(0, pthread_join(replacer, NULL));
}
#endif

static long lend_three_times(struct call *c)
{
	if (be_lender(c) != -1 || errno != EINTR)
		return 98;
	__atomic_store_n(&arena->go, 1, __ATOMIC_RELEASE);
	if (futex_swap(c->uaddr, c->val, NULL, &holders[1].word, FUTEX_PRIVATE_FLAG))
		return 99;
	return futex_swap(c->uaddr, c->val, NULL, &holders[2].word, FUTEX_PRIVATE_FLAG);
}

/* A place of an old loan that comes home is not lent again. */
TEST_F(loan, old_loan_comes_home)
{
	struct call *lender;

	handle(_metadata, SIGUSR1, 0);
	holders[0].keeps = 1;
	holders[1].keeps = 1;
	start_holder(_metadata, &holders[0], THEN_HOME);
	start_holder(_metadata, &holders[1], SLEEPS);
	start_holder(_metadata, &holders[2], SLEEPS);
	lender = prepare_swap(&arena->other, &arena->own, &holders[0].word, FUTEX_PRIVATE_FLAG);
	lender->enter = lend_three_times;
	start(_metadata, lender);
	ASSERT_ASLEEP(&holders[0].call);
	ASSERT_ASLEEP(lender);
	signal_thread(_metadata, lender, SIGUSR1);
	while (!__atomic_load_n(&arena->go, __ATOMIC_ACQUIRE))
		usleep(100);
	ASSERT_ASLEEP(&holders[1].call);
	ASSERT_ASLEEP(lender);
	ASSERT_EQ(1, write(pipes[0][1], "x", 1));
	ASSERT_TOLD(2, lender);

	EXPECT_EQ(1, futex_wake(&holders[0].word, 1, FUTEX_PRIVATE_FLAG));
	end_holder(_metadata, &holders[0]);
	end_holder(_metadata, &holders[1]);
	end_holder(_metadata, &holders[2]);
}

TEST_F(loan, lender_is_gone)
{
	struct timespec ts = { .tv_nsec = 20 * NSEC_PER_MSEC };
	struct call *lender;

	holders[0].keeps = 1;
	start_holder(_metadata, &holders[0], SLEEPS);
	lender = prepare_swap(&arena->other, &arena->own, &holders[0].word, FUTEX_PRIVATE_FLAG);
	lender->enter = be_lender;
	lender->timeout = &ts;
	start(_metadata, lender);
	ASSERT_RETURNS(-1, ETIMEDOUT, lender);
	ASSERT_EQ(0, pthread_join(lender->thread, NULL));
	/* Until its task_struct is freed, a wakeup of it goes unnoticed. */
	usleep(200000);
	end_holder(_metadata, &holders[0]);
}

/* What is true of the read of a pipe is true of other sleeps. */
TEST_F(loan, holder_sleeps_uninterruptibly)
{
	start_holder(_metadata, &holders[0], VFORKS);
	ASSERT_TOLD(0, start_lender(_metadata, &holders[0]));
	/* For the child and for the parent. */
	ASSERT_EQ(1, write(pipes[0][1], "x", 1));
	end_holder(_metadata, &holders[0]);
}

TEST_F(loan, holder_waits_on_a_futex)
{
	holders[0].futex = &arena->peer;
	start_holder(_metadata, &holders[0], WAITS);
	ASSERT_TOLD(0, start_lender(_metadata, &holders[0]));
	ASSERT_EQ(1, futex_wake(&arena->peer, 1, FUTEX_PRIVATE_FLAG));
	end_holder(_metadata, &holders[0]);
}

TEST_F(loan, holder_waits_for_a_pi_futex)
{
	holders[0].futex = &arena->peer;
	ASSERT_EQ(0, futex_lock_pi(&arena->peer, NULL, 0, FUTEX_PRIVATE_FLAG));
	start_holder(_metadata, &holders[0], LOCKS);
	ASSERT_TOLD(0, start_lender(_metadata, &holders[0]));
	ASSERT_EQ(0, futex_unlock_pi(&arena->peer, FUTEX_PRIVATE_FLAG));
	end_holder(_metadata, &holders[0]);
}

/* A page that is not there until serve_page(), or NULL. */
static void *make_absent_page(struct __test_metadata *_metadata, int *fd)
{
	const size_t size = sysconf(_SC_PAGESIZE);
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register reg = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	void *page;

	*fd = syscall(SYS_userfaultfd, O_CLOEXEC);
	if (*fd < 0)
		SKIP(return NULL, "no userfaultfd (CONFIG_USERFAULTFD), or not for this user");
	page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	EXPECT_NE(MAP_FAILED, page);
	EXPECT_EQ(0, ioctl(*fd, UFFDIO_API, &api));
	reg.range.start = (unsigned long)page;
	reg.range.len = size;
	EXPECT_EQ(0, ioctl(*fd, UFFDIO_REGISTER, &reg));
	return page;
}

static void serve_page(struct __test_metadata *_metadata, int fd, void *page)
{
	struct uffdio_zeropage zero = {
		.range = { .start = (unsigned long)page, .len = sysconf(_SC_PAGESIZE) },
	};

	ASSERT_EQ(0, ioctl(fd, UFFDIO_ZEROPAGE, &zero));
}

TEST_F(loan, holder_waits_for_a_page)
{
	int fd;
	void *page = make_absent_page(_metadata, &fd);

	if (!page)
		return;
	holders[0].futex = page;
	start_holder(_metadata, &holders[0], FAULTS);
	ASSERT_TOLD(0, start_lender(_metadata, &holders[0]));
	serve_page(_metadata, fd, page);
	end_holder(_metadata, &holders[0]);
}

static long write_page(struct call *c)
{
	return write(c->arg0, c->arg, 1);
}

/* Another thread waits for a page in the midst of a write to @file, with its lock. */
static void wait_for_the_lock_of(struct __test_metadata *_metadata, int file)
{
	struct call *owner = prepare(&arena->waker, NULL, 0);
	int fd;

	ASSERT_LE(0, file);
	owner->arg = make_absent_page(_metadata, &fd);
	if (!owner->arg)
		return;
	owner->enter = write_page;
	owner->nr = SYS_write;
	owner->arg0 = file;
	START_ASLEEP(owner);

	holders[0].fd = file;
	start_holder(_metadata, &holders[0], WRITES);
	ASSERT_TOLD(0, start_lender(_metadata, &holders[0]));
	EXPECT_FALSE(is_done(owner));
	serve_page(_metadata, fd, owner->arg);
	ASSERT_RETURNS(1, 0, owner);
	end_holder(_metadata, &holders[0]);
}

TEST_F(loan, holder_waits_for_a_mutex)
{
	wait_for_the_lock_of(_metadata, pipes[2][1]);
}

TEST_F(loan, holder_waits_for_an_rwsem)
{
	wait_for_the_lock_of(_metadata, memfd_create("futex_swap_loan", MFD_CLOEXEC));
}

/* To be preempted is no sleep, and to be stopped is one. */
TEST_F(loan, holder_traced_and_stopped)
{
	struct call *lender;

	start_host(_metadata, variant->one_cpu ? sched_getcpu() : -1);
	start_holder(_metadata, &holders[0], SPINS);
	lender = start_lender(_metadata, &holders[0]);
	wait_given(_metadata, &holders[0]);
	usleep(20000);
	EXPECT_STILL_ASLEEP(lender);
	ASSERT_EQ(0, ptrace(PTRACE_SEIZE, holders[0].call.tid, NULL, NULL));
	ASSERT_EQ(0, ptrace(PTRACE_INTERRUPT, holders[0].call.tid, NULL, NULL));
	ASSERT_TRUE(wait_stopped(holders[0].call.tid));
	ASSERT_TOLD(0, lender);
	go_on(&holders[0]);
	ASSERT_EQ(0, ptrace(PTRACE_DETACH, holders[0].call.tid, NULL, NULL));
	ASSERT_ASLEEP(&holders[0].call);
	end_holder(_metadata, &holders[0]);
}

/* As are all threads, when their process is stopped. The lender is told afterwards. */
TEST_F(loan, process_stopped_and_continued)
{
	struct call *lender;

	start_host(_metadata, variant->one_cpu ? sched_getcpu() : -1);
	start_holder(_metadata, &holders[0], SPINS);
	lender = start_lender(_metadata, &holders[0]);
	wait_given(_metadata, &holders[0]);
	ASSERT_TRUE(stop_by_signal(&holders[0].call));
	go_on(&holders[0]);
	ASSERT_TRUE(continue_by_signal(&holders[0].call));
	ASSERT_TOLD(0, lender);
	end_holder(_metadata, &holders[0]);
}

static bool set_group(const char *file, const char *text)
{
	char path[128];

	snprintf(path, sizeof(path), "/sys/fs/cgroup/futex_swap_loan/%s", file);
	return write_file(path, text);
}

/* A move to another control group is no sleep. To be frozen is one, as to be stopped. */
TEST_F(loan, process_moved_and_frozen)
{
	const long long limit = now() + PATIENCE;
	struct call *lender;
	char text[512];

	if (mkdir("/sys/fs/cgroup/futex_swap_loan", 0755) && errno != EEXIST)
		SKIP(return, "can't make a control group: %s", strerror(errno));
	start_host(_metadata, variant->one_cpu ? sched_getcpu() : -1);
	start_holder(_metadata, &holders[0], SPINS);
	lender = start_lender(_metadata, &holders[0]);
	wait_given(_metadata, &holders[0]);
	snprintf(text, sizeof(text), "%d", host);
	ASSERT_TRUE(set_group("cgroup.procs", text));
	usleep(20000);
	EXPECT_STILL_ASLEEP(lender);

	ASSERT_TRUE(set_group("cgroup.freeze", "1"));
	do {
		ASSERT_LT(now(), limit);
		ASSERT_LT(0, read_file("/sys/fs/cgroup/futex_swap_loan/cgroup.events", text,
				       sizeof(text)));
	} while (!strstr(text, "frozen 1"));
	go_on(&holders[0]);
	ASSERT_TRUE(set_group("cgroup.freeze", "0"));
	ASSERT_TOLD(0, lender);
	end_holder(_metadata, &holders[0]);
}

/* The process of holder and lender dies, by @sig if that is not 0. */
static void expect_death(struct __test_metadata *_metadata, enum ending ending, int sig)
{
	int status;

	start_host(_metadata, -1);
	start_holder(_metadata, &holders[0], ending);
	start_lender(_metadata, &holders[0]);
	wait_given(_metadata, &holders[0]);
	if (!sig)
		go_on(&holders[0]);
	else
		ASSERT_EQ(0, kill(host, sig));
	ASSERT_EQ(host, waitpid(host, &status, 0));
	EXPECT_TRUE(WIFSIGNALED(status));
	host = 0;
}

/* Then the two are of different groups: the place comes back by a wakeup. */
TEST_F(loan, holder_moved_alone)
{
	struct call *lender;
	char text[32];

	if ((mkdir("/sys/fs/cgroup/futex_swap_loan", 0755) && errno != EEXIST) ||
	    !set_group("cgroup.type", "threaded"))
		SKIP(return, "can't make a control group of threads: %s", strerror(errno));
	start_holder(_metadata, &holders[0], SPINS);
	lender = start_lender(_metadata, &holders[0]);
	wait_given(_metadata, &holders[0]);
	snprintf(text, sizeof(text), "%d", holders[0].call.tid);
	ASSERT_TRUE(set_group("cgroup.threads", text));
	usleep(20000);
	EXPECT_STILL_ASLEEP(lender);
	go_on(&holders[0]);
	ASSERT_TOLD(0, lender);
	end_holder(_metadata, &holders[0]);
}

TEST_F(loan, process_killed)
{
	expect_death(_metadata, SPINS, SIGKILL);
}

#define CORES	"/tmp/futex_swap.XXXXXX"

/* From now on cores go into the folder @cores, until remove_cores(). */
static void allow_cores(struct __test_metadata *_metadata, char *cores)
{
	const struct rlimit limit = { .rlim_cur = 1 << 20, .rlim_max = 1 << 20 };

	ASSERT_NE(NULL, mkdtemp(cores));
	ASSERT_EQ(0, chdir(cores));
	ASSERT_EQ(0, setrlimit(RLIMIT_CORE, &limit));
}

static void remove_cores(const char *cores, pid_t pid)
{
	char name[64];

	snprintf(name, sizeof(name), "core.%d", pid);
	unlink(name);
	unlink("core");
	rmdir(cores);
}

TEST_F(loan, holder_dumps_core)
{
	char cores[] = CORES;

	allow_cores(_metadata, cores);
	expect_death(_metadata, DUMPS, 0);
	remove_cores(cores, holders[0].call.pid);
}

/* Another thread does, and the holder has to stop for that. */
TEST_F(loan, process_dumps_core)
{
	char cores[] = CORES;

	allow_cores(_metadata, cores);
	expect_death(_metadata, SPINS, SIGABRT);
	remove_cores(cores, holders[0].call.pid);
}

/* A process in the memory of the holder dumps it, and the holder goes on. */
TEST_F(loan, memory_of_the_holder_dumped)
{
	char cores[] = CORES;
	int status;

	allow_cores(_metadata, cores);
	told_only_at_the_end(_metadata, IS_DUMPED);
	remove_cores(cores, wait(&status));
	EXPECT_TRUE(WIFSIGNALED(status));
}

TEST_F(loan, holder_calls_exec)
{
	int status;

	start_host(_metadata, variant->one_cpu ? sched_getcpu() : -1);
	start_holder(_metadata, &holders[0], EXECS);
	start_lender(_metadata, &holders[0]);
	wait_given(_metadata, &holders[0]);
	go_on(&holders[0]);
	ASSERT_EQ(host, waitpid(host, &status, 0));
	EXPECT_TRUE(WIFEXITED(status));
	EXPECT_EQ(0, WEXITSTATUS(status));
	host = 0;
}

/* A change of affinity that moves the holder lets it sleep for a moment. */
TEST_F(loan, holder_moves_to_another_cpu)
{
	struct call *lender;
	int cpu[2];

	if (!two_cpus(cpu) && !variant->one_cpu)
		SKIP(return, "needs two CPUs");
	start_holder(_metadata, &holders[0], MOVES);
	holders[0].cpu = variant->one_cpu ? cpu[0] : cpu[1];
	lender = start_lender(_metadata, &holders[0]);
	ASSERT_TOLD(0, lender);
	end_holder(_metadata, &holders[0]);
}

/* No hand-off is possible then. */
TEST_F(loan, holder_is_real_time)
{
	holders[0].fifo = true;
	start_holder(_metadata, &holders[0], SLEEPS);
	ASSERT_TOLD(0, start_lender(_metadata, &holders[0]));
	end_holder(_metadata, &holders[0]);
}

/* It may have to sleep to become one: then the lender is told of that. */
TEST_F(loan, holder_has_a_deadline)
{
	/* The scheduler admits none that is bound to a part of the CPUs. */
	if (variant->one_cpu)
		return;
	start_holder(_metadata, &holders[0], HAS_DEADLINE);
	ASSERT_TOLD(0, start_lender(_metadata, &holders[0]));
	end_holder(_metadata, &holders[0]);
}

TEST_F(loan, lender_is_real_time)
{
	struct call *lender = prepare_swap(&arena->other, &arena->own, &holders[0].word,
					   FUTEX_PRIVATE_FLAG);

	start_holder(_metadata, &holders[0], SLEEPS);
	lender->enter = be_lender;
	lender->fifo = true;
	start(_metadata, lender);
	ASSERT_TOLD(0, lender);
	end_holder(_metadata, &holders[0]);
}

TEST_F(loan, lender_takes_no_place)
{
	expect_refused(_metadata, (struct holder){ .lends = true });
}

/*
 * By turns, a timer and a thread on another CPU wake the holder while it goes to sleep. It
 * may have given the place back by then. If not, it does so in the sleep after that, from
 * which only the lender wakes it. So the lender is told each time, and once.
 */
static struct {
	futex_t word;
	futex_t wakes;
	futex_t told;
	futex_t ends;
} race;

static void set_and_wake(futex_t *word, futex_t value)
{
	__atomic_store_n(word, value, __ATOMIC_SEQ_CST);
	futex_wake(word, INT_MAX, FUTEX_PRIVATE_FLAG);
}

static void *wake_all_the_time(void *arg)
{
	pin_to(0, other_cpu);
	while (!race.ends) {
		futex_wait(&race.wakes, 0, NULL, FUTEX_PRIVATE_FLAG);
		set_and_wake(&race.word, race.word + 1);
	}
	return NULL;
}

static long sleep_twice(struct call *c)
{
	struct timespec timeout;
	int i;

	if (loan(PR_FUTEX_LOAN_TAKE, NULL) || prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0))
		return -1;
	for (i = 0; !futex_swap(c->uaddr, 0, NULL, NULL, FUTEX_PRIVATE_FLAG) && !race.ends; i++) {
		timeout = (struct timespec){ .tv_nsec = i % 2 ? NSEC_PER_MSEC : i * 12 };
		futex_wait(&race.word, race.word, &timeout, FUTEX_PRIVATE_FLAG);
		while (!race.told)
			futex_wait(&race.told, 0, NULL, FUTEX_PRIVATE_FLAG);
	}
	return 0;
}

static long lend_to_sleeper(struct call *c)
{
	struct timespec soon = { .tv_nsec = 1 }, late = { .tv_sec = 10 };
	struct call *holder = &holders[0].call;
	int i;

	if (loan(PR_FUTEX_LOAN_LEND, NULL))
		return -1;
	for (i = 0; i < 300; i++) {
		race.told = 0;
		if (i % 2)
			set_and_wake(&race.wakes, 1);
		if (futex_swap(&arena->own, 0, &late, &holders[0].word, FUTEX_PRIVATE_FLAG) !=
		    holder->tid)
			return -1;
		race.wakes = 0;
		set_and_wake(&race.told, 1);
		if (!poll_call(holder, is_asleep) ||
		    futex_swap(&arena->own, 0, &soon, NULL, FUTEX_PRIVATE_FLAG) != -1)
			return -1;
	}
	return i;
}

TEST_F(loan, woken_while_it_goes_to_sleep)
{
	struct call *lender = prepare(&arena->other, &arena->own, FUTEX_SWAP);
	struct call *holder = prepare_park(&holders[0].call, &holders[0].word);
	pthread_t waker;

	ASSERT_EQ(0, pthread_create(&waker, NULL, wake_all_the_time, NULL));
	holder->enter = sleep_twice;
	START_ASLEEP(holder);
	lender->enter = lend_to_sleeper;
	start(_metadata, lender);
	while (!is_done(lender))
		usleep(10000);
	EXPECT_EQ(300, lender->ret);

	race.ends = 1;
	set_and_wake(&race.wakes, 1);
	ASSERT_EQ(0, pthread_join(waker, NULL));
	end_swapper(_metadata, holder, &holders[0].word, FUTEX_PRIVATE_FLAG);
}

/*
 * Many blocks: one lender gives its place to whichever holder is parked, and each holder
 * sleeps, swaps home or swaps on. A word says whose the place is. A holder that has slept
 * cannot know whether the lender was told: it may have been woken before it slept. So it
 * asks the word, which the lender changes when it is told. FUTEX_SWAP_LOANS=N in the
 * environment: how many times the lender lends.
 */
enum { CROWD = 6, HOME = CROWD };

static struct {
	futex_t word;
	int parked;
	pthread_t thread;
} crowd[CROWD];

static int crowd_ends, place = HOME;

static bool change(int *word, int from, int to)
{
	return __atomic_compare_exchange_n(word, &from, to, false, __ATOMIC_SEQ_CST,
					   __ATOMIC_SEQ_CST);
}

static bool claim(int i)
{
	return change(&crowd[i].parked, 1, 0);
}

static void give(futex_t *word)
{
	__atomic_store_n(word, 0, __ATOMIC_SEQ_CST);
}

/*
 * Parks, or hands the place over to @word. Returns true if a place has come with a loan. A
 * thread that was given it before it slept has none.
 */
static bool wait_for_place(int i, futex_t *word)
{
	long ret = -1;

	__atomic_store_n(&crowd[i].word, 1, __ATOMIC_SEQ_CST);
	__atomic_store_n(&crowd[i].parked, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&crowd[i].word, __ATOMIC_SEQ_CST)) {
		ret = futex_swap(&crowd[i].word, 1, NULL, word, FUTEX_PRIVATE_FLAG);
		word = NULL;
	}
	return !ret;
}

static void *be_crowd(void *arg)
{
	const int i = (long)arg;
	futex_t *next = NULL;
	unsigned int seed = i;
	int other;

	loan(PR_FUTEX_LOAN_TAKE, NULL);
	for (;;) {
		const bool lent = wait_for_place(i, next);

		if (__atomic_load_n(&crowd_ends, __ATOMIC_SEQ_CST))
			return NULL;
		next = NULL;
		switch (lent ? rand_r(&seed) % 4 : 0) {
		case 0:
			break;
		case 1:
			other = rand_r(&seed) % CROWD;
			if (other == i || !claim(other))
				break;
			next = &crowd[other].word;
			if (!change(&place, i, other)) {
				__atomic_store_n(&crowd[other].parked, 1, __ATOMIC_SEQ_CST);
				next = NULL;
			}
			break;
		case 2:
			usleep(rand_r(&seed) % 50);
			break;
		case 3:
			nanosleep(&(struct timespec){ .tv_nsec = 1 }, NULL);
			break;
		}
		if (!next && change(&place, i, HOME))
			next = &arena->own;
		if (next)
			give(next);
	}
}

static long lend_to_crowd(struct call *c)
{
	const struct timespec limit = { .tv_sec = 60 };
	const char *times = getenv("FUTEX_SWAP_LOANS");
	long n = times ? atol(times) : 3000, told = 0, ret;
	unsigned int seed = 7;

	if (loan(PR_FUTEX_LOAN_LEND, NULL))
		return -1;
	while (n) {
		const int i = rand_r(&seed) % CROWD;

		if (!claim(i)) {
			/* Those that have woken up go on. */
			usleep(1);
			continue;
		}
		n--;
		__atomic_store_n(&place, i, __ATOMIC_SEQ_CST);
		__atomic_store_n(&arena->own, 1, __ATOMIC_SEQ_CST);
		give(&crowd[i].word);
		ret = futex_swap(&arena->own, 1, (void *)&limit, &crowd[i].word,
				 FUTEX_PRIVATE_FLAG);
		while (__atomic_load_n(&place, __ATOMIC_SEQ_CST) != HOME) {
			if (ret > 0) {
				told++;
				__atomic_store_n(&place, HOME, __ATOMIC_SEQ_CST);
				break;
			}
			if (ret < 0 && errno == ETIMEDOUT)
				return -1;
			ret = futex_swap(&arena->own, 1, (void *)&limit, NULL,
					 FUTEX_PRIVATE_FLAG);
		}
	}
	return told;
}

TEST_F_TIMEOUT(loan, many_blocks_all_told, 36000)
{
	struct call *lender = prepare(&arena->other, &arena->own, FUTEX_SWAP);
	long i;

	for (i = 0; i < CROWD; i++)
		ASSERT_EQ(0, pthread_create(&crowd[i].thread, NULL, be_crowd, (void *)i));
	lender->enter = lend_to_crowd;
	start(_metadata, lender);
	while (!is_done(lender))
		usleep(10000);
	ASSERT_LT(0, lender->ret);

	__atomic_store_n(&crowd_ends, 1, __ATOMIC_SEQ_CST);
	for (i = 0; i < CROWD; i++) {
		while (pthread_tryjoin_np(crowd[i].thread, NULL)) {
			give(&crowd[i].word);
			futex_wake(&crowd[i].word, 1, FUTEX_PRIVATE_FLAG);
			usleep(1000);
		}
	}
}

TEST_F(loan, bad_arguments)
{
	futex_t word = 0;

	EXPECT_EQ(-1, loan(3, NULL));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(-1, loan(PR_FUTEX_LOAN_LEND, (void *)&word));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(-1, loan(PR_FUTEX_LOAN_OFF, (void *)&word));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(-1, loan(PR_FUTEX_LOAN_TAKE, (char *)&word + 1));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(-1, loan(PR_FUTEX_LOAN_TAKE, (void *)(LONG_MIN)));
	EXPECT_EQ(EFAULT, errno);
	EXPECT_EQ(-1, prctl(PR_FUTEX_LOAN, PR_FUTEX_LOAN_TAKE, 0, 1, 0));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(0, loan(PR_FUTEX_LOAN_TAKE, NULL));
	EXPECT_EQ(0, loan(PR_FUTEX_LOAN_LEND, NULL));
	EXPECT_EQ(0, loan(PR_FUTEX_LOAN_OFF, NULL));
}

int main(int argc, char **argv)
{
	/* Called by itself: see EXECS. */
	if (argc == 2 && !strcmp(argv[1], "--nothing"))
		return 0;
	need_futex_swap();
	return test_harness_run(argc, argv);
}
