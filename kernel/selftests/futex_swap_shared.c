// SPDX-License-Identifier: GPL-2.0
/*
 * FUTEX_SWAP on shared memory. The kernel remembers the keys of shared futexes from one
 * swap to the next, and hands the CPU over between processes. Tests that it does so,
 * that the remembered keys are those of the other futex operations, that they are
 * forgotten in time, and that either process may end at any time.
 */
#include <sys/ipc.h>
#include <sys/shm.h>

#include "futex_swap_common.h"
#include "futex_swap_pair.h"

#define MEMORY_SIZE	65536

enum kind { ANONYMOUS, MEMFD, TWO_OFFSETS, SYSV, PRIVATE, PRIVATE_FILE };

/* One piece of memory, mapped twice if its kind allows. */
struct memory {
	char *here;
	char *there;
};

static int make_memfd(size_t size)
{
	int fd = memfd_create("futex_swap", MFD_CLOEXEC);

	if (fd >= 0 && ftruncate(fd, size)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

static char *map_file(int fd, size_t size, off_t offset, int flags)
{
	return mmap(NULL, size, PROT_READ | PROT_WRITE, flags, fd, offset);
}

/* Returns NULL, or what is missing. */
static const char *make_memory(struct memory *m, enum kind kind)
{
	const size_t page = sysconf(_SC_PAGESIZE);
	int fd, id;

	switch (kind) {
	case ANONYMOUS:
	case PRIVATE:
		m->here = map_file(-1, MEMORY_SIZE, 0, MAP_ANONYMOUS |
				   (kind == PRIVATE ? MAP_PRIVATE : MAP_SHARED));
		m->there = m->here;
		break;
	case SYSV:
		id = shmget(IPC_PRIVATE, MEMORY_SIZE, 0600);
		if (id < 0)
			return "no System V shared memory";
		m->here = shmat(id, NULL, 0);
		m->there = shmat(id, NULL, 0);
		shmctl(id, IPC_RMID, NULL);
		break;
	default:
		fd = make_memfd(2 * MEMORY_SIZE);
		if (fd < 0)
			return "this kernel has no memfd_create (CONFIG_MEMFD_CREATE)";
		m->there = map_file(fd, MEMORY_SIZE, page, MAP_SHARED);
		m->here = map_file(fd, MEMORY_SIZE, page,
				   kind == PRIVATE_FILE ? MAP_PRIVATE : MAP_SHARED);
		if (kind == TWO_OFFSETS)
			m->here = map_file(fd, MEMORY_SIZE, 0, MAP_SHARED) + page;
		if (kind == PRIVATE_FILE)
			m->there = m->here;
		close(fd);
	}
	return m->here == MAP_FAILED || m->there == MAP_FAILED ? "no memory" : NULL;
}

/* The hand-off */

FIXTURE(shared) {
	struct memory memory;
};

FIXTURE_VARIANT(shared) {
	enum kind kind;
	const char *outcome;
	bool apart;		/* two processes */
	bool one_word;
};

FIXTURE_VARIANT_ADD(shared, threads) {
	.outcome = "handoff",
};

FIXTURE_VARIANT_ADD(shared, processes) {
	.outcome = "handoff", .apart = true,
};

FIXTURE_VARIANT_ADD(shared, one_word) {
	.outcome = "handoff", .one_word = true,
};

FIXTURE_VARIANT_ADD(shared, one_word_of_processes) {
	.outcome = "handoff", .one_word = true, .apart = true,
};

FIXTURE_VARIANT_ADD(shared, memfd_of_processes) {
	.kind = MEMFD, .outcome = "handoff", .apart = true,
};

FIXTURE_VARIANT_ADD(shared, memfd_at_two_offsets) {
	.kind = TWO_OFFSETS, .outcome = "handoff",
};

FIXTURE_VARIANT_ADD(shared, sysv_of_processes) {
	.kind = SYSV, .outcome = "handoff", .apart = true,
};

/* Here only the page tells the key. */
FIXTURE_VARIANT_ADD(shared, private_memory) {
	.kind = PRIVATE, .outcome = "shared",
};

FIXTURE_VARIANT_ADD(shared, private_mapping_of_a_file) {
	.kind = PRIVATE_FILE, .outcome = "shared",
};

FIXTURE_SETUP(shared)
{
	const char *missing = make_memory(&self->memory, variant->kind);

	if (swap_count("handoff") < 0)
		SKIP(return, "needs root, debugfs and " SWAP_COUNTS);
	if (missing)
		SKIP(return, "%s", missing);
	if (!has_vma_locks())
		SKIP(return, NO_VMA_LOCKS);
	make_arena(_metadata, 0);
}

FIXTURE_TEARDOWN(shared)
{
}

/* Two sides that take turns. The word says whose turn it is, or each side has a word. */
struct taker {
	futex_t *own;
	futex_t *peer;
	futex_t mine;		/* the value that says that it is this side's turn */
	futex_t others;
	int cpu;
	long turns;
	long slept;
	int err;
};

static void *take_turns(void *arg)
{
	struct taker *t = arg;
	long n;

	pin_to(0, t->cpu);
	for (n = 0; n < t->turns && !t->err; n++) {
		while (__atomic_load_n(t->own, __ATOMIC_ACQUIRE) != t->mine)
			futex_wait(t->own, t->others, NULL, 0);
		__atomic_store_n(t->own, t->others, __ATOMIC_SEQ_CST);
		if (t->peer != t->own)
			__atomic_store_n(t->peer, t->mine, __ATOMIC_SEQ_CST);
		if (n + 1 == t->turns)
			futex_wake(t->peer, 1, 0);
		else if (!futex_swap(t->own, t->others, NULL, t->peer, 0))
			t->slept++;
		else if (errno != EAGAIN && errno != EINTR)
			t->err = errno;
	}
	return NULL;
}

TEST_F(shared, turns_taken)
{
	const long turns = 2000;
	futex_t *here = (futex_t *)self->memory.here, *there = (futex_t *)self->memory.there;
	long counted = -swap_count(variant->outcome), handed = -swap_count("handoff");
	struct taker *side = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
				  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_t thread;
	int status = 0;
	pid_t pid = 0;

	ASSERT_NE(MAP_FAILED, (void *)side);
	side[0] = (struct taker){
		.own = &here[0], .peer = &here[variant->one_word ? 0 : 1], .mine = 1,
		.turns = turns, .cpu = sched_getcpu(),
	};
	side[1] = (struct taker){
		.own = &there[variant->one_word ? 0 : 1], .peer = &there[0], .mine = 1,
		.turns = turns, .cpu = side[0].cpu,
	};
	if (variant->one_word) {
		side[1].mine = 0;
		side[1].others = 1;
	}
	here[0] = 1;

	if (variant->apart) {
		pid = fork_child(_metadata);
		if (!pid) {
			take_turns(&side[1]);
			_exit(0);
		}
	} else {
		ASSERT_EQ(0, pthread_create(&thread, NULL, take_turns, &side[1]));
	}
	take_turns(&side[0]);
	ASSERT_EQ(pid, variant->apart ? waitpid(pid, &status, 0) : pthread_join(thread, NULL));
	EXPECT_EQ(0, status);
	EXPECT_EQ(0, side[0].err);
	EXPECT_EQ(0, side[1].err);
	EXPECT_LT(0, side[0].slept + side[1].slept);

	counted += swap_count(variant->outcome);
	handed += swap_count("handoff");
	/* A slice may end amid a swap, and others may run. */
	EXPECT_LT(turns, counted);
	if (strcmp(variant->outcome, "handoff"))
		EXPECT_EQ(0, handed);
}

/* A swapper is queued where FUTEX_WAKE and FUTEX_CMP_REQUEUE look for it. */
TEST_F(shared, waiters_of_all_operations_meet)
{
	futex_t *here = (futex_t *)self->memory.here, *there = (futex_t *)self->memory.there;
	struct call *next = &arena->swapper[1];
	struct call *target = &arena->waiter[0];

	START_ASLEEP(prepare_wait(target, &there[1], 0));
	START_ASLEEP(prepare_swap(swapper, &here[0], &here[1], 0));
	ASSERT_RETURNS(0, 0, target);

	EXPECT_EQ(1, futex_cmp_requeue(&there[0], 0, &there[2], 0, 1, 0));
	EXPECT_EQ(0, futex_wake(&there[0], 1, 0));
	/* One swapper wakes the other where it is now. */
	START_ASLEEP(prepare_swap(next, &there[3], &there[2], 0));
	ASSERT_RETURNS(0, 0, swapper);
	EXPECT_EQ(0, futex_wake(&here[2], 1, 0));
	EXPECT_EQ(1, futex_wake(&here[3], INT_MAX, 0));
	ASSERT_RETURNS(0, 0, next);
}

/* A hint finds a sleeper on a shared futex, if that sleeps in a swap. */
TEST(hint_names_a_later_sleeper_on_shared_memory)
{
	futex_t *here, *there;
	struct memory m;
	int i;

	if (!has_vma_locks())
		SKIP(return, NO_VMA_LOCKS);
	if (make_memory(&m, TWO_OFFSETS))
		SKIP(return, "this kernel has no memfd_create (CONFIG_MEMFD_CREATE)");
	here = (futex_t *)m.here;
	there = (futex_t *)m.there;
	make_arena(_metadata, 0);
	for (i = 0; i < 3; i++)
		START_ASLEEP(prepare_swap(&arena->waiter[i], &there[1], NULL, 0));
	EXPECT_EQ(1, futex(NULL, FUTEX_SWAP, 0, NULL, &here[1], arena->waiter[1].tid, 0));
	ASSERT_RETURNS(0, 0, &arena->waiter[1]);
	EXPECT_STILL_ASLEEP(&arena->waiter[0]);
	EXPECT_STILL_ASLEEP(&arena->waiter[2]);
	EXPECT_EQ(2, futex_wake(&here[1], INT_MAX, 0));
	ASSERT_RETURNS(0, 0, &arena->waiter[0]);
	ASSERT_RETURNS(0, 0, &arena->waiter[2]);
}

/* What is remembered is forgotten in time. */

enum change { REPLACED, MOVED, UNMAPPED, PROTECTED, TRUNCATED_AND_CHANGED, TRUNCATED, GUARDED };

struct files {
	char *mapped[2];	/* two files, where the waiters wait */
	char *page;		/* the first file, where the swapper swaps */
	int fd[2];
	size_t size;
};

FIXTURE(change) {
	struct files files;
};

FIXTURE_VARIANT(change) {
	enum change change;
	int err;		/* of the second swap */
	bool old_woken, new_woken;
};

FIXTURE_VARIANT_ADD(change, replaced) {
	.change = REPLACED, .new_woken = true,
};

FIXTURE_VARIANT_ADD(change, moved) {
	.change = MOVED, .new_woken = true,
};

FIXTURE_VARIANT_ADD(change, unmapped) {
	.change = UNMAPPED, .err = EFAULT,
};

FIXTURE_VARIANT_ADD(change, protected) {
	.change = PROTECTED, .err = EFAULT,
};

FIXTURE_VARIANT_ADD(change, truncated_and_changed) {
	.change = TRUNCATED_AND_CHANGED, .err = EFAULT,
};

/* FUTEX_WAKE says EFAULT here. A truncation is not noticed: the waiter is woken. */
FIXTURE_VARIANT_ADD(change, truncated) {
	.change = TRUNCATED, .old_woken = true,
};

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif

/* Nor is a guard, which is put into the page table, and not on the mapping. */
FIXTURE_VARIANT_ADD(change, guarded) {
	.change = GUARDED, .old_woken = true,
};

FIXTURE_SETUP(change)
{
	struct files *f = &self->files;
	int i;

	make_arena(_metadata, 0);
	f->size = sysconf(_SC_PAGESIZE);
	for (i = 0; i < 2; i++) {
		f->fd[i] = make_memfd(f->size);
		if (f->fd[i] < 0)
			SKIP(return, "this kernel has no memfd_create (CONFIG_MEMFD_CREATE)");
		f->mapped[i] = map_file(f->fd[i], f->size, 0, MAP_SHARED);
		ASSERT_NE(MAP_FAILED, (void *)f->mapped[i]);
	}
	f->page = map_file(f->fd[0], f->size, 0, MAP_SHARED);
	ASSERT_NE(MAP_FAILED, (void *)f->page);
}

FIXTURE_TEARDOWN(change)
{
}

struct changer {
	struct files *files;
	enum change change;
};

static bool make_change(struct files *f, enum change change)
{
	char *page = f->page, *other;

	switch (change) {
	case REPLACED:
		return mmap(page, f->size, PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_FIXED, f->fd[1], 0) == page;
	case MOVED:
		other = map_file(f->fd[1], f->size, 0, MAP_SHARED);
		return mremap(other, f->size, f->size,
			      MREMAP_MAYMOVE | MREMAP_FIXED, page) == page;
	case UNMAPPED:
		return !munmap(page, f->size);
	case PROTECTED:
		return !mprotect(page, f->size, PROT_NONE);
	case GUARDED:
		return !madvise(page, f->size, MADV_GUARD_INSTALL);
	case TRUNCATED:
	case TRUNCATED_AND_CHANGED:
		if (ftruncate(f->fd[0], 0))
			return false;
		return change == TRUNCATED || map_file(-1, f->size, 0,
			       MAP_PRIVATE | MAP_ANONYMOUS) != MAP_FAILED;
	}
	return false;
}

/* Swaps twice with the same addresses, in one thread. */
static long enter_swap_change_swap(struct call *c)
{
	struct changer *ch = c->arg;

	if (futex_swap(c->uaddr, c->val, NULL, c->uaddr2, 0))
		return -1;
	if (!make_change(ch->files, ch->change))
		return -2;
	__atomic_store_n(&arena->go, 1, __ATOMIC_RELEASE);
	return futex_swap(c->uaddr, c->val, NULL, c->uaddr2, 0);
}

static bool has_gone_on(struct call *c)
{
	return __atomic_load_n(&arena->go, __ATOMIC_ACQUIRE);
}

/* By a signal, as the word of a truncated file can't be reached. */
static void end_waiter(struct __test_metadata *_metadata, struct call *c, bool woken)
{
	if (woken) {
		ASSERT_RETURNS(0, 0, c);
		return;
	}
	EXPECT_STILL_ASLEEP(c);
	signal_thread(_metadata, c, SIGUSR1);
	ASSERT_RETURNS(-1, EINTR, c);
}

TEST_F(change, noticed_by_the_next_swap)
{
	struct call *first = &arena->waiter[0], *old = &arena->waiter[1];
	struct call *new = &arena->waiter[2];
	struct changer changer = { .files = &self->files, .change = variant->change };

	if (variant->old_woken && !has_vma_locks())
		SKIP(return, NO_VMA_LOCKS);
	/* Of shared memory, since Linux 6.15. */
	if (variant->change == GUARDED && madvise(NULL, 0, MADV_GUARD_INSTALL))
		SKIP(return, "this kernel has no MADV_GUARD_INSTALL");

	/* Waiters on the same word of both files. The first swap wakes the first. */
	START_ASLEEP(prepare_wait(first, (futex_t *)self->files.mapped[0], 0));
	START_ASLEEP(prepare_wait(old, (futex_t *)self->files.mapped[0], 0));
	START_ASLEEP(prepare_wait(new, (futex_t *)self->files.mapped[1], 0));

	prepare_swap(swapper, &arena->own, (futex_t *)self->files.page, 0);
	swapper->enter = enter_swap_change_swap;
	swapper->arg = &changer;
	START_ASLEEP(swapper);
	ASSERT_RETURNS(0, 0, first);
	EXPECT_EQ(1, futex_wake(&arena->own, 1, 0));
	ASSERT_TRUE(poll_call(swapper, has_gone_on));

	if (variant->old_woken) {
		EXPECT_EQ(-1, futex_wake((futex_t *)self->files.page, 1, 0));
		EXPECT_EQ(EFAULT, errno);
	}
	if (variant->err) {
		ASSERT_RETURNS(-1, variant->err, swapper);
	} else {
		ASSERT_ASLEEP(swapper);
		EXPECT_EQ(1, futex_wake(&arena->own, INT_MAX, 0));
		ASSERT_RETURNS(0, 0, swapper);
	}
	handle(_metadata, SIGUSR1, 0);
	end_waiter(_metadata, old, variant->old_woken);
	end_waiter(_metadata, new, variant->new_woken);
}

/* An address that is none is not taken for one that has been forgotten. */
TEST(unaligned_address_after_a_change)
{
	futex_t *const none = (futex_t *)~0UL;
	struct call *target;

	make_arena(_metadata, 0);
	target = &arena->waiter[0];
	EXPECT_EQ(-1, futex_swap(&arena->own, 1, NULL, &arena->peer, 0));
	EXPECT_EQ(EAGAIN, errno);
	START_ASLEEP(prepare_wait(target, &arena->peer, 0));
	ASSERT_NE(MAP_FAILED, (void *)map_file(-1, MEMORY_SIZE, 0, MAP_PRIVATE | MAP_ANONYMOUS));
	EXPECT_EQ(-1, futex_swap(&arena->own, 0, NULL, none, 0));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(-1, futex_swap(none, 0, NULL, &arena->peer, 0));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(-1, futex_swap(none, 0, NULL, none, 0));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_STILL_ASLEEP(target);
	EXPECT_EQ(1, futex_wake(&arena->peer, INT_MAX, 0));
	ASSERT_RETURNS(0, 0, target);
}

/* Another thread changes the mappings all the time. */
static void *map_and_unmap(void *arg)
{
	struct pair *p = arg;
	char *m;

	while (!__atomic_load_n(&p->stop, __ATOMIC_ACQUIRE)) {
		m = map_file(-1, MEMORY_SIZE, 0, MAP_PRIVATE | MAP_ANONYMOUS);
		if (m != MAP_FAILED)
			munmap(m, MEMORY_SIZE);
	}
	return NULL;
}

TEST(mappings_change_amid_swaps)
{
	struct pair *p = make_pair(_metadata, LONG_MAX, 0);
	pthread_t thread[2], mapper;
	long handed = -swap_count("handoff");

	start_pair(_metadata, p, thread);
	ASSERT_EQ(0, pthread_create(&mapper, NULL, map_and_unmap, p));
	EXPECT_TRUE(wait_turns(p, 2000));
	__atomic_store_n(&p->stop, 1, __ATOMIC_RELEASE);
	ASSERT_EQ(0, pthread_join(mapper, NULL));
	join_pair(_metadata, p, thread);
	if (handed <= 0 && has_vma_locks())
		EXPECT_LT(0, handed + swap_count("handoff"));
}

/* One process ends amid the swaps, at any point. */

enum end { BY_EXIT, BY_EXEC, BY_SIGKILL };

FIXTURE(partner) {
};

FIXTURE_VARIANT(partner) {
	enum end end;
};

FIXTURE_VARIANT_ADD(partner, exits) {
	.end = BY_EXIT,
};

FIXTURE_VARIANT_ADD(partner, calls_exec) {
	.end = BY_EXEC,
};

FIXTURE_VARIANT_ADD(partner, is_killed) {
	.end = BY_SIGKILL,
};

FIXTURE_SETUP(partner)
{
	make_arena(_metadata, 0);
}

FIXTURE_TEARDOWN(partner)
{
}

/* Answers until it is killed or has had its turns. Does not wake anybody at the end. */
static void answer(long turns)
{
	long n;

	for (n = 0; n < turns; n++) {
		while (!__atomic_load_n(&arena->peer, __ATOMIC_ACQUIRE))
			futex_wait(&arena->peer, 0, NULL, 0);
		__atomic_store_n(&arena->peer, 0, __ATOMIC_SEQ_CST);
		__atomic_add_fetch(&arena->go, 1, __ATOMIC_SEQ_CST);
		__atomic_store_n(&arena->own, 1, __ATOMIC_SEQ_CST);
		if (n + 1 < turns)
			futex_swap(&arena->peer, 0, NULL, &arena->own, 0);
	}
}

/* One process goes on, with a partner that ends, and then with the next partner. */
TEST_F_TIMEOUT(partner, ends_amid_swaps, 120)
{
	const struct timespec soon = { .tv_nsec = 20 * NSEC_PER_MSEC };
	long handed = -swap_count("handoff"), slept = 0;
	int cpu = sched_getcpu(), i, status;
	long long limit;
	pid_t pid;

	ASSERT_TRUE(pin_to(0, cpu));
	for (i = 0; i < 20; i++) {
		struct timespec patience = soon;

		arena->own = 0;
		arena->peer = 0;
		arena->go = 0;
		pid = fork_child(_metadata);
		if (!pid) {
			answer(variant->end == BY_SIGKILL ? LONG_MAX : 10 + i);
			if (variant->end == BY_EXEC) {
				close(1);
				close(2);
				execl("/proc/self/exe", "futex_swap_shared", "-h", NULL);
			}
			_exit(0);
		}
		/* The answer may never come: a timeout ends the wait then. */
		limit = now() + PATIENCE;
		while (waitpid(pid, &status, WNOHANG) != pid) {
			ASSERT_LT(now(), limit);
			__atomic_store_n(&arena->own, 0, __ATOMIC_SEQ_CST);
			__atomic_store_n(&arena->peer, 1, __ATOMIC_SEQ_CST);
			slept += !futex_swap(&arena->own, 0, &patience, &arena->peer, 0);
			if (variant->end == BY_SIGKILL &&
			    __atomic_load_n(&arena->go, __ATOMIC_ACQUIRE) > 10 + i)
				kill(pid, SIGKILL);
		}
		EXPECT_EQ(0, futex_wake(&arena->peer, INT_MAX, 0));
	}
	EXPECT_LT(0, slept);
	if (handed <= 0 && has_vma_locks())
		EXPECT_LT(0, handed + swap_count("handoff"));
}

int main(int argc, char **argv)
{
	need_futex_swap();
	return test_harness_run(argc, argv);
}
