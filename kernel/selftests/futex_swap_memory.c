// SPDX-License-Identifier: GPL-2.0
/*
 * FUTEX_SWAP and memory: futexes in several mappings and processes, page faults
 * on uaddr, injected faults, and a swapper that gets no memory for its state.
 */
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>

#include "futex_swap_common.h"

/* Kinds of memory, and processes. */

FIXTURE(memory) {
	struct arena *here;	/* the swapper's mapping of the futexes */
	struct arena *there;	/* the mapping of all other tasks */
};

FIXTURE_VARIANT(memory) {
	bool memfd;
	bool processes;
};

FIXTURE_VARIANT_ADD(memory, shared_anonymous_in_two_processes) {
	.processes = true,
};

FIXTURE_VARIANT_ADD(memory, memfd_in_two_mappings) {
	.memfd = true,
};

FIXTURE_VARIANT_ADD(memory, memfd_in_two_mappings_in_two_processes) {
	.memfd = true,
	.processes = true,
};

FIXTURE_SETUP(memory)
{
	const int absent = errno_of_unknown();
	int fd;

	make_arena(_metadata, 0);
	self->here = arena;
	self->there = arena;
	if (!variant->memfd)
		return;

	fd = memfd_create("futex_swap", MFD_CLOEXEC);
	if (fd < 0 && errno == absent)
		SKIP(return, "this kernel has no memfd_create (CONFIG_MEMFD_CREATE)");
	ASSERT_LE(0, fd);
	ASSERT_EQ(0, ftruncate(fd, sizeof(*arena)));
	self->here = mmap(NULL, sizeof(*arena), PROT_READ | PROT_WRITE,
			  MAP_SHARED, fd, 0);
	self->there = mmap(NULL, sizeof(*arena), PROT_READ | PROT_WRITE,
			   MAP_SHARED, fd, 0);
	ASSERT_NE(MAP_FAILED, self->here);
	ASSERT_NE(MAP_FAILED, self->there);
	ASSERT_NE(self->here, self->there);
}

FIXTURE_TEARDOWN(memory)
{
}

TEST_F(memory, shared_crosses)
{
	struct call *target = &arena->waiter[0];

	START_ASLEEP(prepare_wait(target, &self->there->peer, 0));
	prepare_swap(swapper, &self->here->own, &self->here->peer, 0);
	if (variant->processes)
		start_process(_metadata, swapper);
	else
		START_ASLEEP(swapper);
	ASSERT_RETURNS(0, 0, target);
	end_swapper(_metadata, swapper, &self->there->own, 0);
}

TEST_F(memory, private_does_not_cross)
{
	const int fl = FUTEX_PRIVATE_FLAG;
	struct call *target = &arena->waiter[0];

	/* Both sides swap, so that both use the same kind of private key. */
	START_ASLEEP(prepare_swap(target, &self->there->peer, &self->there->spare, fl));
	prepare_swap(swapper, &self->here->own, &self->here->peer, fl);
	if (variant->processes)
		start_process(_metadata, swapper);
	else
		START_ASLEEP(swapper);
	EXPECT_STILL_ASLEEP(target);
	EXPECT_EQ(1, futex_wake(&self->there->peer, INT_MAX, fl));
	ASSERT_RETURNS(0, 0, target);
}

/* After fork() private memory holds two futexes, even for shared operations. */
TEST(private_memory_after_fork_and_copy_on_write)
{
	struct call *target;
	futex_t *mem;

	make_arena(_metadata, 0);
	target = &arena->waiter[0];
	mem = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, (void *)mem);
	mem[2] = 1;

	START_ASLEEP(prepare_wait(target, &mem[1], 0));

	start_process(_metadata, prepare_swap(swapper, &mem[0], &mem[1], 0));
	ASSERT_ASLEEP(swapper);
	EXPECT_STILL_ASLEEP(target);
	EXPECT_EQ(0, futex_wake(&mem[0], INT_MAX, 0));
	EXPECT_STILL_ASLEEP(swapper);
	ASSERT_EQ(0, kill(swapper->pid, SIGKILL));
	ASSERT_EQ(swapper->pid, waitpid(swapper->pid, NULL, 0));

	/*
	 * This write puts a new page at the address that the target waits on.
	 */
	mem[2] = 2;
	START_ASLEEP(prepare_swap(swapper, &mem[0], &mem[1], 0));
	ASSERT_RETURNS(0, 0, target);
	end_swapper(_metadata, swapper, &mem[0], 0);
}

/* A page fault on uaddr that the target serves, so the target must run first. */

struct fault_server {
	int fd;
	size_t size;
	void *page;
	void *contents;		/* NULL: unmap the page instead */
};

static long enter_wait_then_serve(struct call *c)
{
	struct fault_server *s = c->arg;
	struct uffdio_range range = {};
	struct uffdio_copy copy = {};
	struct uffd_msg msg;
	long ret;

	ret = futex_wait(c->uaddr, c->val, NULL, c->op & FUTEX_PRIVATE_FLAG);
	if (ret)
		return ret;

	if (read(s->fd, &msg, sizeof(msg)) != sizeof(msg))
		return -1;
	if (msg.event != UFFD_EVENT_PAGEFAULT) {
		errno = EPROTO;
		return -1;
	}

	copy.dst = (uintptr_t)s->page;
	copy.src = (uintptr_t)s->contents;
	copy.len = s->size;
	if (s->contents)
		return ioctl(s->fd, UFFDIO_COPY, &copy);

	range.start = (uintptr_t)s->page;
	range.len = s->size;
	if (munmap(s->page, s->size))
		return -1;
	return ioctl(s->fd, UFFDIO_WAKE, &range);
}

FIXTURE(fault) {
	struct fault_server server;
};

FIXTURE_VARIANT(fault) {
	int opflags;
};

FIXTURE_VARIANT_ADD(fault, private) {
	.opflags = FUTEX_PRIVATE_FLAG,
};

FIXTURE_VARIANT_ADD(fault, shared) {
	.opflags = 0,
};

FIXTURE_SETUP(fault)
{
	const int absent = errno_of_unknown();
	struct fault_server *s = &self->server;
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register reg = { .mode = UFFDIO_REGISTER_MODE_MISSING };

	make_arena(_metadata, 0);
	s->fd = syscall(SYS_userfaultfd, O_CLOEXEC);
	if (s->fd < 0 && errno == absent)
		SKIP(return, "this kernel has no userfaultfd (CONFIG_USERFAULTFD)");
	if (s->fd < 0 && errno == EPERM)
		SKIP(return, "may not use userfaultfd: see vm.unprivileged_userfaultfd");
	ASSERT_LE(0, s->fd);
	ASSERT_EQ(0, ioctl(s->fd, UFFDIO_API, &api));

	s->size = sysconf(_SC_PAGESIZE);
	s->contents = calloc(1, s->size);
	ASSERT_NE(NULL, s->contents);
	s->page = mmap(NULL, s->size, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, s->page);
	reg.range.start = (uintptr_t)s->page;
	reg.range.len = s->size;
	ASSERT_EQ(0, ioctl(s->fd, UFFDIO_REGISTER, &reg));
}

FIXTURE_TEARDOWN(fault)
{
}

/* Swaps to a target that serves the fault, with another waiter behind it. */
static void swap_on_missing_page(struct __test_metadata *_metadata,
				 struct fault_server *s, int fl)
{
	struct call *target = &arena->other;

	prepare_wait(target, &arena->peer, fl);
	target->enter = enter_wait_then_serve;
	target->arg = s;
	START_ASLEEP(target);
	queue_waiters(_metadata, 1, fl);

	prepare_swap(swapper, NULL, &arena->peer, fl);
	swapper->uaddr = s->page;
	swapper->arg0 = (uintptr_t)s->page;
	start(_metadata, swapper);
	ASSERT_RETURNS(0, 0, target);
}

TEST_F(fault, served_by_the_target_sleeps)
{
	const int fl = variant->opflags;

	swap_on_missing_page(_metadata, &self->server, fl);
	ASSERT_ASLEEP(swapper);
	end_waiters(_metadata, 1, 0, fl);
	end_swapper(_metadata, swapper, self->server.page, fl);
}

TEST_F(fault, served_by_the_target_value_changed_eagain)
{
	const int fl = variant->opflags;

	*(futex_t *)self->server.contents = 1;
	swap_on_missing_page(_metadata, &self->server, fl);
	ASSERT_RETURNS(-1, EAGAIN, swapper);
	end_waiters(_metadata, 1, 0, fl);
}

TEST_F(fault, uaddr_unmapped_meanwhile_efault_target_woken)
{
	const int fl = variant->opflags;

	self->server.contents = NULL;
	swap_on_missing_page(_metadata, &self->server, fl);
	ASSERT_RETURNS(-1, EFAULT, swapper);
	end_waiters(_metadata, 1, 0, fl);
}

/* Faults that the kernel injects. */

#define FAULTS	"/sys/kernel/debug/"

struct setting {
	const char *name;
	const char *value;
};

/* Injects faults into tasks that ask for it, each time and without messages. */
static bool inject(const char *what, const struct setting *more)
{
	static const struct setting common[] = {
		{ "task-filter", "Y" }, { "verbose", "0" }, { "times", "-1" },
		{ "interval", "1" }, { "space", "0" }, { "probability", "100" }, {},
	};
	const struct setting *s;
	char path[128];
	int i;

	for (i = 0; i < 2; i++) {
		for (s = i ? common : more; s->name; s++) {
			snprintf(path, sizeof(path), FAULTS "%s/%s", what, s->name);
			if (!write_file(path, s->value))
				return false;
		}
	}
	return true;
}

/* Restores the settings that the kernel starts with. */
static void inject_no_more(const char *what)
{
	static const struct setting none[] = {
		{ "probability", "0" }, { "task-filter", "N" }, { "times", "1" },
		{ "verbose", "2" }, { "ignore-gfp-wait", "Y" }, { "ignore-private", "N" }, {},
	};
	const struct setting *s;
	char path[128];

	for (s = none; s->name; s++) {
		snprintf(path, sizeof(path), FAULTS "%s/%s", what, s->name);
		write_file(path, s->value);
	}
}

static long enter_swap_with_faults(struct call *c)
{
	char path[64];
	long ret;
	int err;

	snprintf(path, sizeof(path), "/proc/self/task/%d/make-it-fail", c->tid);
	if (!write_file(path, "1"))
		return -2;
	ret = futex(c->uaddr, c->op, c->val, c->timeout, c->uaddr2, c->val3, 0);
	err = errno;
	write_file(path, "0");
	errno = err;
	return ret;
}

FIXTURE(fail_futex) {
};

FIXTURE_VARIANT(fail_futex) {
	int opflags;
	bool timed;
};

FIXTURE_VARIANT_ADD(fail_futex, private) {
	.opflags = FUTEX_PRIVATE_FLAG,
};

FIXTURE_VARIANT_ADD(fail_futex, private_timed) {
	.opflags = FUTEX_PRIVATE_FLAG, .timed = true,
};

FIXTURE_VARIANT_ADD(fail_futex, shared) {
	.opflags = 0,
};

FIXTURE_VARIANT_ADD(fail_futex, shared_timed) {
	.timed = true,
};

FIXTURE_SETUP(fail_futex)
{
	static const struct setting all[] = { { "ignore-private", "N" }, {} };

	make_arena(_metadata, 0);
	if (!inject("fail_futex", all))
		SKIP(return, "no " FAULTS "fail_futex: %s", strerror(errno));
}

FIXTURE_TEARDOWN(fail_futex)
{
	inject_no_more("fail_futex");
}

TEST_F(fail_futex, efault_nobody_woken_not_asleep)
{
	const int fl = variant->opflags;

	queue_waiters(_metadata, 2, fl);
	prepare_swap(swapper, &arena->own, &arena->peer, fl);
	arena->ts.tv_sec = 1000;
	if (variant->timed)
		swapper->timeout = &arena->ts;
	swapper->enter = enter_swap_with_faults;
	start(_metadata, swapper);
	ASSERT_RETURNS(-1, EFAULT, swapper);
	end_waiters(_metadata, 2, 0, fl);
	EXPECT_EQ(0, futex_wake(&arena->own, INT_MAX, fl));
}

FIXTURE(failslab) {
};

FIXTURE_VARIANT(failslab) {
	const char *only_atomic;	/* "Y": only allocations that must not sleep fail */
};

FIXTURE_VARIANT_ADD(failslab, all) {
	.only_atomic = "N",
};

/*
 * A swap allocates its state before the wakeup and must not sleep for it. So
 * this allocation fails in this variant, too.
 */
FIXTURE_VARIANT_ADD(failslab, atomic) {
	.only_atomic = "Y",
};

FIXTURE_SETUP(failslab)
{
	const struct setting which[] = { { "ignore-gfp-wait", variant->only_atomic }, {} };

	make_arena(_metadata, 0);
	if (!inject("failslab", which))
		SKIP(return, "no " FAULTS "failslab: %s", strerror(errno));
}

FIXTURE_TEARDOWN(failslab)
{
	inject_no_more("failslab");
}

/* Without its state a swapper cannot hand off. All else must work. */
TEST_F(failslab, no_memory_swaps_all_the_same)
{
	struct call *parked = &arena->swapper[1];
	const int fl = FUTEX_PRIVATE_FLAG;
	long counted;

	counted = swap_count("no_memory");
	queue_waiters(_metadata, 2, fl);
	prepare_swap(swapper, &arena->own, &arena->peer, fl);
	swapper->enter = enter_swap_with_faults;
	START_ASLEEP(swapper);
	check_woken(_metadata, 2, 1);
	prepare_park(parked, &arena->own2)->enter = enter_swap_with_faults;
	START_ASLEEP(parked);
	inject_no_more("failslab");
	EXPECT_COUNTED("no_memory", counted);

	/* The parked task is woken even if the hint does not find it. */
	EXPECT_EQ(1, wake_with_hint(&arena->own2, parked->tid));
	ASSERT_RETURNS(0, 0, parked);
	end_waiters(_metadata, 2, 1, fl);
	end_swapper(_metadata, swapper, &arena->own, fl);
}

int main(int argc, char **argv)
{
	need_futex_swap();
	return test_harness_run(argc, argv);
}
