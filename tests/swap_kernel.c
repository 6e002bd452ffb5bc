// SPDX-License-Identifier: MIT
/*
 * What only the patched kernel can show. The operation itself is tested in the
 * series; here is what the library builds on, and what it makes of it.
 */
#include "pair.h"
#include "seccomp.h"

#include <switchto/switchto.h>

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static void chosen_by_itself(void **state)
{
	(void)state;
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
	return syscall(SYS_futex, word, FUTEX_SWAP | FUTEX_PRIVATE_FLAG, value, timeout, wake, val3);
}

static void changed_value_wakes(void **state)
{
	struct worker w = { 0 };
	struct verdict v = { 0 };
	uint32_t word = 1, wake = 0;

	(void)state;
	watchdog_start("ChangedValueWakes");
	worker_start(&w, waits_on, &wake);
	await_parked(w.tid);
	CHECK_ERR(&v, raw_swap(&word, 0, NULL, &wake, 0), EAGAIN);
	workers_join(&w, 1, &v);
	verdict_assert(&v);
}

static void timeout_wakes(void **state)
{
	const struct timespec time = to_timespec(NSEC_PER_SEC / 100);
	struct worker w = { 0 };
	struct verdict v = { 0 };
	uint32_t word = 0, wake = 0;
	long long before;

	(void)state;
	watchdog_start("TimeoutWakes");
	worker_start(&w, waits_on, &wake);
	await_parked(w.tid);
	before = now_ns();
	CHECK_ERR(&v, raw_swap(&word, 0, &time, &wake, 0), ETIMEDOUT);
	CHECK(&v, now_ns() - before >= to_ns(&time));
	workers_join(&w, 1, &v);
	verdict_assert(&v);
}

/* What is wrong with the arguments is said before anybody is woken. */
static void arguments_before_effects(void **state)
{
	static const struct timespec bad_times[] = { { -1, 0 }, { 0, -1 }, { 0, NSEC_PER_SEC } };
	struct worker w = { 0 };
	struct verdict v = { 0 };
	uint32_t word[2] = { 0 }, wake = 0;
	char *kernel_address = (char *)(uintptr_t)(ULONG_MAX & ~0xfffUL);

	(void)state;
	watchdog_start("ArgumentsBeforeEffects");
	worker_start(&w, waits_on, &wake);
	await_parked(w.tid);
	for (int i = 0; i < 3; i++)
		CHECK_ERR(&v, raw_swap(word, 0, &bad_times[i], &wake, 0), EINVAL);
	CHECK_ERR(&v, raw_swap((char *)word + 1, 0, NULL, &wake, 0), EINVAL);
	CHECK_ERR(&v, raw_swap(kernel_address, 0, NULL, &wake, 0), EFAULT);
	CHECK_ERR(&v, raw_swap(word, 0, NULL, (char *)&wake + 1, 0), EINVAL);
	CHECK_ERR(&v, raw_swap(word, 0, NULL, kernel_address, 0), EFAULT);
	CHECK_ERR(&v, raw_swap(word, 0, NULL, &wake, 1U << 31), EINVAL);
	CHECK(&v, is_parked(w.tid));
	CHECK_EQ(&v, syscall(SYS_futex, &wake, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0), 1);
	workers_join(&w, 1, &v);
	verdict_assert(&v);
}

/*
 * One system call per switch: two threads that switch to each other run under a
 * tracer, which counts between two marks what each of them calls. Each switches
 * when it has seen the other parked, as threads in a hand-off mostly do.
 */
#define TRACED_ROUNDS 100
#define MARK 0x73776974

static void mark(bool begin)
{
	syscall(SYS_getppid, MARK, begin);
}

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
		mark(true);
		CHECK_EQ(&w->v, switchto_switch(other), other);
		mark(false);
	}
}

static int traced_child(void *arg)
{
	struct worker both[2] = { 0 };
	struct verdict v = { 0 };

	(void)arg;
	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
		give_up("ptrace: wanted to be traced, got %s", strerror(errno));
	raise(SIGSTOP);
	worker_start(&both[1], traced_body, both);
	worker_start(&both[0], traced_body, both);
	workers_join(both, 2, &v);
	return verdict_status(&v);
}

struct counts {
	unsigned int switches, calls, swaps;
};

/* Of each thread, whether it is between two marks. */
struct tracee {
	pid_t tid;
	bool counting;
};

static void count_call(struct tracee *t, struct counts *c)
{
	struct __ptrace_syscall_info info;

	if (ptrace(PTRACE_GET_SYSCALL_INFO, t->tid, sizeof(info), &info) <= 0 ||
	    info.op != PTRACE_SYSCALL_INFO_ENTRY)
		return;

	if (info.entry.nr == SYS_getppid && info.entry.args[0] == MARK) {
		t->counting = info.entry.args[1];
		c->switches += !t->counting;
	} else if (t->counting) {
		c->calls++;
		if (info.entry.nr == SYS_futex &&
		    (info.entry.args[1] & FUTEX_CMD_MASK) == FUTEX_SWAP)
			c->swaps++;
	}
}

static int trace(pid_t child, struct counts *c)
{
	struct tracee tracees[3] = { 0 };
	int status, signal;
	unsigned int i;
	pid_t tid;

	if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status) ||
	    ptrace(PTRACE_SETOPTIONS, child, NULL,
		   PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL) ||
	    ptrace(PTRACE_SYSCALL, child, NULL, NULL))
		give_up("ptrace: wanted to trace a child, got %s", strerror(errno));

	for (;;) {
		tid = waitpid(-1, &status, __WALL);
		if (tid < 0)
			give_up("waitpid: wanted a traced thread, got %s", strerror(errno));
		if (!WIFSTOPPED(status)) {
			if (tid == child)
				return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
			continue;
		}

		signal = 0;
		if (WSTOPSIG(status) == (SIGTRAP | 0x80)) {
			for (i = 0; i < 2 && tracees[i].tid && tracees[i].tid != tid; i++)
				;
			tracees[i].tid = tid;
			count_call(&tracees[i], c);
		} else if (WSTOPSIG(status) != SIGSTOP && WSTOPSIG(status) != SIGTRAP) {
			signal = WSTOPSIG(status);
		}
		ptrace(PTRACE_SYSCALL, tid, NULL, (void *)(intptr_t)signal);
	}
}

static void one_system_call_per_switch(void **state)
{
	struct counts c = { 0 };

	(void)state;
	watchdog_start("OneSystemCallPerSwitch");
	assert_int_equal(trace(start_child(traced_child, NULL), &c), 0);
	assert_int_equal(c.switches, 2 * TRACED_ROUNDS - 1);
	assert_int_equal(c.swaps, c.switches);
	assert_int_equal(c.calls, c.switches);
}

/*
 * The operation was there when it was probed for and is not any more, as after
 * the process has been moved to another kernel: no hang, and nothing is lost.
 */
static int loses_operation(void *arg)
{
	const uint32_t *answer = arg;
	struct verdict v = { 0 };
	struct sink s = { 0 };
	const struct timespec time = to_timespec(NSEC_PER_SEC / 100);
	unsigned int returns;

	CHECK(&v, switchto_backend() && strcmp(switchto_backend(), "swap") == 0);
	filter_swap(*answer);
	pair_works(&v, 100);
	sink_start(&s);
	CHECK_ERR(&v, switchto_switch_timed(s.w.tid, &time), ETIMEDOUT);
	sink_stop(&s, &v, &returns);
	CHECK_EQ(&v, returns, 1);
	return verdict_status(&v);
}

static void operation_is_lost(void **state)
{
	uint32_t answers[] = { ANSWER(ENOSYS), ANSWER(EPERM) };

	(void)state;
	watchdog_start("OperationIsLost");
	assert_int_equal(run_child(loses_operation, &answers[0]), 0);
	assert_int_equal(run_child(loses_operation, &answers[1]), 0);
}

int main(void)
{
	const struct CMUnitTest cases[] = {
		cmocka_unit_test(chosen_by_itself),
		cmocka_unit_test(changed_value_wakes),
		cmocka_unit_test(timeout_wakes),
		cmocka_unit_test(arguments_before_effects),
		cmocka_unit_test(one_system_call_per_switch),
		cmocka_unit_test(operation_is_lost),
	};

	if (!kernel_has_swap()) {
		fprintf(stderr, "swap_kernel: skipped: needs the patched kernel, this one has no "
				"FUTEX_SWAP (vm/test runs it there)\n");
		return SKIPPED;
	}
	unsetenv("SWITCHTO_BACKEND");
	return cmocka_run_group_tests_name("patched kernel", cases, NULL, NULL) ? EXIT_FAILURE :
										  EXIT_SUCCESS;
}
