// SPDX-License-Identifier: MIT
/*
 * switchto_place(): who is bound to a CPU, and that each thread gets its own mask back. As
 * the suite, for the backend that SWITCHTO_BACKEND names: with swap nobody is ever bound.
 *
 * On a busy host the library lets threads go as often as not. So no case expects a switch to
 * bind: it switches until one has.
 */
#include "seccomp.h"
#include "support.h"

#include <switchto/switchto.h>

static cpu_set_t all; /* of the process, at the beginning */
static bool binds;

static cpu_set_t cpus_of(pid_t tid)
{
	cpu_set_t set;

	if (sched_getaffinity(tid, sizeof(set), &set))
		give_up("sched_getaffinity of thread %d: %s", (int)tid, strerror(errno));
	return set;
}

static bool is_bound(pid_t tid)
{
	const cpu_set_t set = cpus_of(tid);

	return CPU_COUNT(&set) == 1;
}

static bool has_all(pid_t tid)
{
	const cpu_set_t set = cpus_of(tid);

	return CPU_EQUAL(&set, &all);
}

/* --- a thread that switches back, and does what it is told before it does --- */

static struct {
	struct worker w;
	pid_t main;
	int place;
	void (*todo)(void);
	bool ends;
	cpu_set_t seen;
	int status;
} partner;

static void partner_body(struct worker *w)
{
	CHECK_EQ(&w->v, switchto_place(partner.place), SWITCHTO_FREE);
	/* The first resume: it is here. */
	CHECK_EQ(&w->v, switchto_resume(partner.main), 0);
	CHECK_EQ(&w->v, switchto_wait(NULL), partner.main);
	while (!partner.ends) {
		if (partner.todo)
			partner.todo();
		partner.todo = NULL;
		CHECK_EQ(&w->v, switchto_switch(partner.main), partner.main);
	}
	switchto_place(partner.place);
}

static void begin(int place)
{
	memset(&partner, 0, sizeof(partner));
	partner.main = switchto_self();
	partner.place = place;
	assert_int_equal(switchto_place(SWITCHTO_TOGETHER), SWITCHTO_FREE);
	worker_start(&partner.w, partner_body, NULL);
	assert_int_equal(switchto_wait(NULL), partner.w.tid);
	assert_int_equal(switchto_switch(partner.w.tid), partner.w.tid);
}

static void begin_bound(int place)
{
	if (!binds)
		skip();
	begin(place);
}

static void end(struct verdict *v)
{
	partner.ends = true;
	CHECK_EQ(v, switchto_resume(partner.w.tid), 0);
	workers_join(&partner.w, 1, v);
	CHECK(v, switchto_place(SWITCHTO_FREE) != SWITCHTO_FREE);
	CHECK(v, has_all(0));
	verdict_assert(v);
}

static void tell(void (*todo)(void))
{
	partner.todo = todo;
	switchto_switch(partner.w.tid);
}

/* Until the two are bound, which is soon. */
static void switch_until_bound(void)
{
	do
		switchto_switch(partner.w.tid);
	while (!is_bound(partner.w.tid) || !is_bound(0));
}

static void see(void)
{
	partner.seen = cpus_of(0);
}

/* --- the cases --- */

TEST(nobody_is_bound_unless_told)
{
	begin(SWITCHTO_FREE);
	for (int i = 0; i < LOOPS(3000); i++) {
		CHECK_EQ(v, switchto_switch(partner.w.tid), partner.w.tid);
		CHECK(v, has_all(partner.w.tid) && has_all(0));
	}
	end(v);
}

TEST(nobody_is_bound_with_swap)
{
	if (binds)
		skip();
	begin(SWITCHTO_TOGETHER);
	for (int i = 0; i < LOOPS(3000); i++) {
		CHECK_EQ(v, switchto_switch(partner.w.tid), partner.w.tid);
		CHECK(v, has_all(partner.w.tid) && has_all(0));
	}
	end(v);
}

TEST(two_that_switch_are_on_one_cpu)
{
	cpu_set_t mine, its;

	begin_bound(SWITCHTO_TOGETHER);
	for (;;) {
		switch_until_bound();
		mine = cpus_of(0);
		its = cpus_of(partner.w.tid);
		/* They may be apart for a switch, when they have just been let go. */
		if (CPU_EQUAL(&mine, &its))
			break;
	}
	end(v);
}

/* If it was not asleep yet, it may go on before the resume is done. */
static void await_all(void)
{
	while (!has_all(0))
		sched_yield();
}

TEST(a_resume_gives_the_mask_back)
{
	begin_bound(SWITCHTO_TOGETHER);
	for (int i = 0; i < LOOPS(200); i++) {
		switch_until_bound();
		partner.todo = await_all;
		CHECK_EQ(v, switchto_resume(partner.w.tid), 0);
		/* It sees its mask, and switches back. */
		CHECK_EQ(v, switchto_wait(NULL), partner.w.tid);
	}
	end(v);
}

TEST(a_resume_leaves_those_that_stay)
{
	begin_bound(SWITCHTO_STAY);
	switch_until_bound();
	partner.todo = see;
	CHECK_EQ(v, switchto_resume(partner.w.tid), 0);
	CHECK_EQ(v, switchto_wait(NULL), partner.w.tid);
	CHECK_EQ(v, CPU_COUNT(&partner.seen), 1);
	end(v);
}

static void time_out(void)
{
	const struct timespec soon = { .tv_nsec = 50000000 };

	CHECK_ERR(&partner.w.v, switchto_wait(&soon), ETIMEDOUT);
	partner.seen = cpus_of(0);
}

TEST(a_timeout_gives_it_back)
{
	begin_bound(SWITCHTO_STAY);
	switch_until_bound();
	tell(time_out);
	CHECK(v, CPU_EQUAL(&partner.seen, &all));
	end(v);
}

static void time_out_soon(void)
{
	const struct timespec soon = { .tv_nsec = 100000 };

	CHECK_ERR(&partner.w.v, switchto_wait(&soon), ETIMEDOUT);
	partner.seen = cpus_of(0);
}

/* Unless this machine is busy: then it was a long one. */
TEST(a_short_timeout_leaves_it)
{
	begin_bound(SWITCHTO_TOGETHER);
	do {
		switch_until_bound();
		tell(time_out_soon);
	} while (CPU_COUNT(&partner.seen) != 1);
	end(v);
}

static void wait_with_pending(void)
{
	CHECK_EQ(&partner.w.v, switchto_resume(partner.w.tid), 0);
	CHECK_EQ(&partner.w.v, switchto_wait(NULL), partner.w.tid);
	CHECK(&partner.w.v, has_all(0));
}

static atomic_bool goes_on_too;

static void switch_with_pending(void)
{
	CHECK_EQ(&partner.w.v, switchto_resume(partner.w.tid), 0);
	CHECK_EQ(&partner.w.v, switchto_switch(partner.main), partner.w.tid);
	CHECK(&partner.w.v, has_all(0));
	/* Two resumes would be one. */
	AWAIT(atomic_load(&goes_on_too));
}

TEST(a_pending_resume_gives_it_back)
{
	begin_bound(SWITCHTO_TOGETHER);
	for (int i = 0; i < LOOPS(100); i++) {
		switch_until_bound();
		tell(wait_with_pending);
		switch_until_bound();
		atomic_store(&goes_on_too, false);
		tell(switch_with_pending);
		await_all(); /* as it was maybe not asleep */
		atomic_store(&goes_on_too, true);
		CHECK_EQ(v, switchto_wait(NULL), partner.w.tid);
	}
	end(v);
}

static pid_t small_target;

static void resume_on_small_stack(int sig)
{
	switchto_resume(small_target);
}

/* Below it is a page that can't be touched. */
TEST(a_handler_has_a_small_stack)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	const size_t size = (size_t)sysconf(_SC_MINSIGSTKSZ) + 2048;
	const struct sigaction action = { .sa_handler = resume_on_small_stack,
					  .sa_flags = SA_ONSTACK };
	stack_t stack;
	char *memory;

#if defined(UNDER_ASAN) || defined(UNDER_TSAN)
	skip(); /* They need more themselves. */
#endif
	if (!binds)
		skip();
	memory = mmap(NULL, page + size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		      0);
	assert_ptr_not_equal(memory, MAP_FAILED);
	assert_int_equal(mprotect(memory, page, PROT_NONE), 0);
	stack = (stack_t){ .ss_sp = memory + page, .ss_size = size };
	begin(SWITCHTO_TOGETHER);
	small_target = partner.w.tid;
	assert_int_equal(sigaltstack(&stack, NULL), 0);
	assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0);
	for (int i = 0; i < 10; i++) {
		switch_until_bound();
		partner.todo = await_all;
		CHECK_EQ(v, raise(SIGUSR1), 0);
		CHECK_EQ(v, switchto_wait(NULL), partner.w.tid);
	}
	signal(SIGUSR1, SIG_DFL);
	stack.ss_flags = SS_DISABLE;
	assert_int_equal(sigaltstack(&stack, NULL), 0);
	munmap(memory, page + size);
	end(v);
}

static void be_free(void)
{
	CHECK_EQ(&partner.w.v, switchto_place(SWITCHTO_FREE), SWITCHTO_TOGETHER);
	CHECK(&partner.w.v, has_all(0));
	CHECK_EQ(&partner.w.v, switchto_place(SWITCHTO_TOGETHER), SWITCHTO_FREE);
}

TEST(the_call_gives_it_back)
{
	assert_int_equal(switchto_place(3), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(switchto_place(-1), -1);
	begin(SWITCHTO_TOGETHER);
	if (binds)
		switch_until_bound();
	tell(be_free);
	end(v);
}

/* Another thread does it, and the thread itself. The next switches bind it again. */
TEST(another_gives_it_back)
{
	CHECK_ERR(v, switchto_let_go(0), ESRCH);
	CHECK_ERR(v, switchto_let_go(-1), ESRCH);
	CHECK_ERR(v, switchto_let_go(INT_MAX), ESRCH);
	/* The initial thread of another process. */
	CHECK_ERR(v, switchto_let_go(1), ESRCH);
	begin(SWITCHTO_STAY);
	for (int i = 0; i < 3; i++) {
		if (binds)
			switch_until_bound();
		CHECK_EQ(v, switchto_let_go(partner.w.tid), 0);
		CHECK(v, has_all(partner.w.tid));
		CHECK_EQ(v, switchto_let_go(switchto_self()), 0);
		CHECK(v, has_all(0));
	}
	end(v);
	CHECK_ERR(v, switchto_let_go(partner.w.tid), ESRCH);
}

static int child_has_all(void *arg)
{
	return has_all(0) && switchto_self() == gettid() &&
			       switchto_place(SWITCHTO_FREE) == SWITCHTO_FREE ?
		       0 :
		       1;
}

static void fork_here(void)
{
	partner.status = run_child(child_has_all, NULL);
	CHECK(&partner.w.v, has_all(0));
}

TEST(a_child_is_not_bound)
{
	begin(SWITCHTO_TOGETHER);
	if (binds)
		switch_until_bound();
	tell(fork_here);
	CHECK_EQ(v, partner.status, 0);
	end(v);
}

static void be_free_and_see(void)
{
	switchto_place(SWITCHTO_FREE);
	partner.seen = cpus_of(0);
	switchto_place(SWITCHTO_TOGETHER);
}

/* The partner may use @one only, as the program wants it. */
static void switch_to_pinned(const cpu_set_t *one, struct verdict *v)
{
	for (int i = 0; i < LOOPS(2000); i++) {
		const cpu_set_t set = cpus_of(partner.w.tid);

		CHECK(v, CPU_EQUAL(&set, one));
		CHECK_EQ(v, switchto_switch(partner.w.tid), partner.w.tid);
	}
	tell(be_free_and_see);
	CHECK(v, CPU_EQUAL(&partner.seen, one));
}

TEST(a_mask_of_the_program_holds)
{
	cpu_set_t one;
	int cpu[2];

	assert_int_equal(two_cpus(cpu), 2);
	begin(SWITCHTO_FREE);
	pin_to(partner.w.tid, cpu[1]);
	CPU_ZERO(&one);
	CPU_SET(cpu[1], &one);
	tell(be_free_and_see);
	switch_to_pinned(&one, v);
	end(v);
}

TEST(so_does_one_that_comes_later)
{
	cpu_set_t set, one;
	int cpu[2];

	if (!binds)
		skip();
	assert_int_equal(two_cpus(cpu), 2);
	begin(SWITCHTO_TOGETHER);
	switch_until_bound();
	/* To where it is not bound. */
	set = cpus_of(partner.w.tid);
	CPU_ZERO(&one);
	CPU_SET(cpu[CPU_ISSET(cpu[0], &set) ? 1 : 0], &one);
	pin_to(partner.w.tid, cpu[CPU_ISSET(cpu[0], &set) ? 1 : 0]);
	switch_to_pinned(&one, v);
	end(v);
}

/* --- what a filter refuses, in a process of its own --- */

struct refusal {
	long call;
	bool of_both; /* or only of the partner */
};

static long refused;

static void be_together_refused(void)
{
	filter_call(refused, ANSWER(EPERM));
	CHECK_EQ(&partner.w.v, switchto_place(SWITCHTO_TOGETHER), SWITCHTO_FREE);
}

static int goes_on(void *arg)
{
	const struct refusal *refusal = arg;
	struct verdict v = { 0 };

	refused = refusal->call;
	begin(SWITCHTO_FREE);
	if (refusal->of_both)
		filter_call(refused, ANSWER(EPERM));
	tell(be_together_refused);
	for (int i = 0; i < LOOPS(300); i++) {
		CHECK_EQ(&v, switchto_switch(partner.w.tid), partner.w.tid);
		CHECK(&v, !refusal->of_both || (has_all(partner.w.tid) && has_all(0)));
	}
	end(&v);
	return 0;
}

/* Nobody is bound, and all else is as ever. */
TEST_FIRST(a_filter_may_refuse_to_bind)
{
	struct refusal refusal = { SYS_sched_setaffinity, true };

	assert_int_equal(run_child(goes_on, &refusal), 0);
}

/* No case before has bound a thread: there is no mask yet. */
TEST_FIRST(the_memory_for_masks_may_be_missing)
{
	struct refusal refusal = { SYS_mmap, true };

#if defined(UNDER_ASAN) || defined(UNDER_TSAN)
	skip(); /* Their runtimes need memory, too. */
#endif
	assert_int_equal(run_child(goes_on, &refusal), 0);
}

TEST_FIRST(the_cpus_that_are_on_may_be_secret)
{
	struct refusal refusals[] = { { SYS_openat, false }, { SYS_read, false } };

	for (int i = 0; i < 2; i++)
		assert_int_equal(run_child(goes_on, &refusals[i]), 0);
}

static void be_free_refused(void)
{
	filter_call(SYS_sched_setaffinity, ANSWER(EPERM));
	CHECK_EQ(&partner.w.v, switchto_place(SWITCHTO_FREE), SWITCHTO_TOGETHER);
}

static int stays_bound(void *arg)
{
	struct verdict v = { 0 };

	begin(SWITCHTO_TOGETHER);
	switch_until_bound();
	tell(be_free_refused);
	partner.place = SWITCHTO_FREE;
	end(&v);
	return 0;
}

TEST_FIRST(a_filter_may_refuse_to_let_go)
{
	if (!binds)
		skip();
	assert_int_equal(run_child(stays_bound, NULL), 0);
}

/* Each change of a mask is between two calls of this. They are counted, and not done. */
static _Atomic int blocked;

static void count_blocked(int sig)
{
	atomic_fetch_add(&blocked, 1);
}

static void trap_blocked(void)
{
	filter_call(SYS_rt_sigprocmask, SECCOMP_RET_TRAP);
}

enum unbound { REFUSED, UNREADABLE, APART };

static int makes_no_calls(void *arg)
{
	const enum unbound why = *(enum unbound *)arg;
	const struct sigaction action = { .sa_handler = count_blocked };
	struct verdict v = { 0 };
	int cpu[2], before;

	refused = why == REFUSED ? SYS_sched_setaffinity : SYS_sched_getaffinity;
	sigaction(SIGSYS, &action, NULL);
	two_cpus(cpu);
	begin(why == APART ? SWITCHTO_TOGETHER : SWITCHTO_FREE);
	if (why == APART) {
		pin_to(0, cpu[0]);
		pin_to(partner.w.tid, cpu[1]);
	} else {
		filter_call(refused, ANSWER(EPERM));
		tell(be_together_refused);
	}
	tell(trap_blocked);
	trap_blocked();
	for (int i = 0; i < 100; i++)
		switchto_switch(partner.w.tid);
	before = atomic_load(&blocked);
	for (int i = 0; i < 1000; i++)
		CHECK_EQ(&v, switchto_switch(partner.w.tid), partner.w.tid);
	/* A few, each second, and where a thread is on another CPU than before. */
	CHECK(&v, atomic_load(&blocked) - before < 500);
	/* Join and end would wait for signals. */
	_exit(verdict_status(&v));
}

TEST(a_switch_that_changes_nothing_makes_no_call)
{
	enum unbound why;

#if defined(UNDER_ASAN) || defined(UNDER_TSAN)
	skip(); /* Their runtimes block signals, too. */
#endif
	for (why = REFUSED; why <= APART; why++)
		assert_int_equal(run_child(makes_no_calls, &why), 0);
}

static void be_another_user(void)
{
	/* Of this thread alone: the C library does it for all. */
	CHECK_EQ(&partner.w.v, syscall(SYS_setresuid, -1, 65534, -1), 0);
}

static void be_root(void)
{
	CHECK_EQ(&partner.w.v, syscall(SYS_setresuid, -1, 0, -1), 0);
}

/* One thread must not place another one, which says nothing of the rest. */
static int is_another_user(void *arg)
{
	struct verdict v = { 0 };

	begin(SWITCHTO_TOGETHER);
	tell(be_another_user);
	for (int i = 0; i < 300; i++) {
		switchto_place(SWITCHTO_FREE);
		switchto_place(SWITCHTO_TOGETHER);
		CHECK_EQ(&v, switchto_switch(partner.w.tid), partner.w.tid);
	}
	tell(be_root);
	switch_until_bound();
	end(&v);
	return 0;
}

TEST(one_thread_is_another_users)
{
	if (!binds || geteuid() != 0)
		skip();
	assert_int_equal(run_child(is_another_user, NULL), 0);
}

/* --- SWITCHTO_PLACE, each time in a process that has made no call yet --- */

static int says(void *value)
{
	setenv("SWITCHTO_PLACE", value, 1);
	if (strcmp(value, "nonsense") == 0)
		return switchto_self() == -1 && errno == ENOTSUP &&
				       switchto_place(SWITCHTO_FREE) == -1 && errno == ENOTSUP ?
			       0 :
			       1;
	return switchto_place(SWITCHTO_FREE) ==
			       (strcmp(value, "free") == 0 ? SWITCHTO_FREE : SWITCHTO_TOGETHER) ?
		       0 :
		       1;
}

TEST_IN(variable, the_variable_says_what_threads_are)
{
	assert_int_equal(run_child(says, "free"), 0);
	assert_int_equal(run_child(says, "together"), 0);
	assert_int_equal(run_child(says, "nonsense"), 0);
}

int main(void)
{
	int failed;

	if (wants_absent_swap("place"))
		return SKIPPED;
	unsetenv("SWITCHTO_PLACE");
	failed = run_group("variable", NULL, NULL);
	all = cpus_of(0);
	binds = switchto_backend() && strcmp(switchto_backend(), "wake-wait") == 0;
	if (CPU_COUNT(&all) < 2) {
		fprintf(stderr, "place: left out: wanted two CPUs, found one\n");
		return SKIPPED;
	}
	watchdog_start("place");
	failed |= run_group(NULL, NULL, NULL);
	watchdog_stop();
	return failed;
}
