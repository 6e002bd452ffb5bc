// SPDX-License-Identifier: GPL-2.0
/*
 * FUTEX_SWAP and the end of tasks: kill, exit_group, execve, robust lists and
 * fork while a task sleeps in a swap.
 */
#include "futex_swap_common.h"
#include "futex_swap_pair.h"

TEST(sigkill_of_a_sleeping_swapper)
{
	int status;

	make_arena(_metadata, 0);
	queue_waiters(_metadata, 3, 0);
	start_process(_metadata,
		      prepare_swap(swapper, &arena->own, &arena->peer, 0));
	ASSERT_ASLEEP(swapper);
	ASSERT_EQ(0, kill(swapper->pid, SIGKILL));
	ASSERT_EQ(swapper->pid, waitpid(swapper->pid, &status, 0));
	EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	EXPECT_EQ(0, futex_wake(&arena->own, INT_MAX, 0));
	end_waiters(_metadata, 3, 1, 0);
}

/* The first waiter was killed, so the swap wakes the next. */
TEST(sigkill_of_a_sleeping_target)
{
	struct call *target;

	make_arena(_metadata, 0);
	target = &arena->other;
	start_process(_metadata, prepare_wait(target, &arena->peer, 0));
	ASSERT_ASLEEP(target);
	queue_waiters(_metadata, 2, 0);
	ASSERT_EQ(0, kill(target->pid, SIGKILL));
	ASSERT_EQ(target->pid, waitpid(target->pid, NULL, 0));

	START_ASLEEP(prepare_swap(swapper, &arena->own, &arena->peer, 0));
	end_waiters(_metadata, 2, 1, 0);
	end_swapper(_metadata, swapper, &arena->own, 0);
}

/* Forks a child in which one thread sleeps in a swap and another calls @end. */
static pid_t fork_beside_swapper(struct __test_metadata *_metadata,
				 void (*end)(void))
{
	pid_t pid;

	prepare_swap(swapper, &arena->own, &arena->peer, 0);
	pid = fork_child(_metadata);
	if (!pid) {
		if (!pthread_create(&swapper->thread, NULL, run_thread, swapper) &&
		    wait_asleep(swapper))
			end();
		_exit(99);
	}
	return pid;
}

static void end_by_exit(void)
{
	syscall(SYS_exit_group, 7);
}

/*
 * Starts this program again. With "-h" it prints its help and exits with
 * KSFT_SKIP.
 */
static void end_by_exec(void)
{
	int null = open("/dev/null", O_WRONLY);

	dup2(null, 1);
	dup2(null, 2);
	execl("/proc/self/exe", "futex_swap", "-h", NULL);
}

static void check_end_beside_swapper(struct __test_metadata *_metadata,
				     void (*end)(void), int code)
{
	int status;
	pid_t pid;

	queue_waiters(_metadata, 3, 0);
	pid = fork_beside_swapper(_metadata, end);
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	ASSERT_TRUE(WIFEXITED(status));
	EXPECT_EQ(code, WEXITSTATUS(status));
	EXPECT_EQ(0, futex_wake(&arena->own, INT_MAX, 0));
	end_waiters(_metadata, 3, 1, 0);
}

TEST(exit_group_beside_a_sleeping_swapper)
{
	make_arena(_metadata, 0);
	check_end_beside_swapper(_metadata, end_by_exit, 7);
}

TEST(exec_beside_a_sleeping_swapper)
{
	make_arena(_metadata, 0);
	check_end_beside_swapper(_metadata, end_by_exec, KSFT_SKIP);
}

struct robust {
	struct robust_list_head head;
	struct robust_list entry;
};

/* Makes the caller the owner of @word, with FUTEX_WAITERS set. */
static void own_robustly(struct robust *r, futex_t *word)
{
	r->entry.next = &r->head.list;
	r->head.list.next = &r->entry;
	r->head.futex_offset = (char *)word - (char *)&r->entry;
	r->head.list_op_pending = NULL;
	*word = syscall(SYS_gettid) | FUTEX_WAITERS;
	syscall(SYS_set_robust_list, &r->head, sizeof(r->head));
}

static long enter_own_and_wait(struct call *c)
{
	own_robustly(c->arg, &arena->own);
	return futex_wait(c->uaddr, c->val, NULL, 0);
}

TEST(robust_owner_dies_sleeping_swapper_woken)
{
	struct call *owner;
	struct robust robust;

	make_arena(_metadata, 0);
	owner = &arena->other;
	prepare_wait(owner, &arena->spare, 0);
	owner->enter = enter_own_and_wait;
	owner->arg = &robust;
	START_ASLEEP(owner);

	queue_waiters(_metadata, 2, 0);
	START_ASLEEP(prepare_swap(swapper, &arena->own, &arena->peer, 0));
	ASSERT_EQ(1, futex_wake(&arena->spare, 1, 0));
	ASSERT_RETURNS(0, 0, swapper);
	EXPECT_TRUE(arena->own & FUTEX_OWNER_DIED);
	end_waiters(_metadata, 2, 1, 0);
}

static long enter_own_and_swap(struct call *c)
{
	own_robustly(c->arg, &arena->spare);
	return futex(c->uaddr, c->op, c->val, c->timeout, c->uaddr2, c->val3, 0);
}

TEST(robust_swapper_killed_asleep_waiter_woken)
{
	struct call *waiter;
	struct robust robust;

	make_arena(_metadata, 0);
	waiter = &arena->other;
	queue_waiters(_metadata, 2, 0);
	prepare_swap(swapper, &arena->own, &arena->peer, 0);
	swapper->enter = enter_own_and_swap;
	swapper->arg = &robust;
	start_process(_metadata, swapper);
	ASSERT_ASLEEP(swapper);
	START_ASLEEP(prepare_wait(waiter, &arena->spare, 0));

	ASSERT_EQ(0, kill(swapper->pid, SIGKILL));
	ASSERT_RETURNS(0, 0, waiter);
	EXPECT_TRUE(arena->spare & FUTEX_OWNER_DIED);
	end_waiters(_metadata, 2, 1, 0);
}

/* A process with a sleeping swapper and a parked thread ends. */
FIXTURE(end) {
};

FIXTURE_VARIANT(end) {
	void (*end)(void);
	int status;
	bool hinted;
};

static void end_by_sigkill(void)
{
	kill(getpid(), SIGKILL);
}

FIXTURE_VARIANT_ADD(end, exit_group) {
	.end = end_by_exit, .status = 7 << 8,
};

FIXTURE_VARIANT_ADD(end, exec) {
	.end = end_by_exec, .status = KSFT_SKIP << 8,
};

FIXTURE_VARIANT_ADD(end, sigkill) {
	.end = end_by_sigkill, .status = SIGKILL,
};

FIXTURE_VARIANT_ADD(end, exit_group_hinted) {
	.end = end_by_exit, .status = 7 << 8, .hinted = true,
};

FIXTURE_VARIANT_ADD(end, exec_hinted) {
	.end = end_by_exec, .status = KSFT_SKIP << 8, .hinted = true,
};

FIXTURE_VARIANT_ADD(end, sigkill_hinted) {
	.end = end_by_sigkill, .status = SIGKILL, .hinted = true,
};

FIXTURE_SETUP(end)
{
	make_arena(_metadata, 0);
}

FIXTURE_TEARDOWN(end)
{
}

TEST_F(end, beside_private_sleepers)
{
	struct call *target = &arena->other;
	const int fl = FUTEX_PRIVATE_FLAG;
	int i, status;
	pid_t pid;

	for (i = 0; i < 10; i++) {
		pid = fork_child(_metadata);
		if (!pid) {
			pin_to(0, sched_getcpu());
			/* The target sleeps, is woken, and sleeps again. */
			park(_metadata, target, &arena->peer);
			prepare_swap(swapper, &arena->own, &arena->peer, fl);
			swapper->val3 = variant->hinted ? target->tid : 0;
			start(_metadata, swapper);
			if (!wait_asleep(swapper) || !wait_done(target))
				_exit(99);
			park(_metadata, target, &arena->peer);
			variant->end();
			_exit(98);
		}
		ASSERT_EQ(pid, waitpid(pid, &status, 0));
		EXPECT_EQ(variant->status, status);
	}
}

/*
 * A thread other than the first calls execve() and takes over the TID of the
 * first.
 */
static void *exec_thread(void *arg)
{
	futex_t own = 0;

	/* The thread gets its swap state. */
	futex_swap(&own, 1, NULL, &own, FUTEX_PRIVATE_FLAG);
	end_by_exec();
	return NULL;
}

TEST(exec_by_another_thread_than_the_first)
{
	pthread_t thread;
	int status;
	pid_t pid;

	make_arena(_metadata, 0);
	pid = fork_child(_metadata);
	if (!pid) {
		park(_metadata, &arena->other, &arena->peer);
		pthread_create(&thread, NULL, exec_thread, NULL);
		pthread_join(thread, NULL);
		_exit(99);
	}
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(KSFT_SKIP << 8, status);
}

/* A child does not inherit the swap state: its first swap makes its own. */
TEST(fork_amid_swaps_child_swaps)
{
	struct pair *p = make_pair(_metadata, LONG_MAX, FUTEX_PRIVATE_FLAG);
	pthread_t thread[2];
	int i, status;
	pid_t pid;

	start_pair(_metadata, p, thread);
	for (i = 0; i < 20; i++) {
		ASSERT_TRUE(wait_turns(p, 20));
		pid = fork_child(_metadata);
		if (!pid) {
			struct pair *own = make_pair(_metadata, 200, FUTEX_PRIVATE_FLAG);
			pthread_t t[2];

			start_pair(_metadata, own, t);
			join_pair(_metadata, own, t);
			_exit(!__test_passed(_metadata));
		}
		ASSERT_EQ(pid, waitpid(pid, &status, 0));
		EXPECT_EQ(0, status);
	}
	__atomic_store_n(&p->stop, 1, __ATOMIC_RELEASE);
	join_pair(_metadata, p, thread);
}

int main(int argc, char **argv)
{
	need_futex_swap();
	return test_harness_run(argc, argv);
}
