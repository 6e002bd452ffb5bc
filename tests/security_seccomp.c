// SPDX-License-Identifier: MIT
/*
 * A seccomp filter in front of FUTEX_SWAP or FUTEX_WAKE_HINT: one that forbids
 * them, one that ends who calls them, and one that makes the answer up, success
 * without any effect among them. Whatever it says, and whether it was there when
 * the backend was chosen or came later, no resume is lost and nothing hangs: the
 * library finds another way, or says EPERM at once, or the process is ended.
 *
 * Arguments: "probe", the filter is there from the start, on any kernel; "later",
 * it comes when the backend swap is in use, on the patched kernel; "raced", it
 * makes an answer up then, while another thread resumes the caller, on any kernel.
 */
#include "pair.h"
#include "seccomp.h"

#include <switchto/switchto.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* For one process of these tests. What hangs does so for ever. */
#define PATIENCE_SECONDS 60

#define ENDED_BY_FILTER (128 + SIGSYS)

#define ROUNDS 50

struct filter {
	uint32_t swap, wake_hint; /* 0: none */
};

static void install_filter(const struct filter *f)
{
	if (f->swap)
		filter_futex(FUTEX_SWAP, f->swap);
	if (f->wake_hint)
		filter_futex(FUTEX_WAKE_HINT, f->wake_hint);
}

/* "A handler ran", if that is what the filter says, ends waits that go on. */
static bool lies_about(const struct filter *f, int error)
{
	return f->swap == ANSWER(error);
}

static pid_t wait_on(pid_t from)
{
	while (from < 0 && errno == EINTR)
		from = switchto_wait(NULL);
	return from;
}

static void first_of_two(struct worker *w)
{
	struct worker *other = (struct worker *)w->arg + 1;

	for (int i = 0; i < ROUNDS; i++)
		CHECK_EQ(&w->v, wait_on(switchto_switch(other->tid)), other->tid);
}

static void second_of_two(struct worker *w)
{
	struct worker *other = w->arg;
	pid_t from = wait_on(switchto_wait(NULL));

	for (int i = 1; i < ROUNDS; i++) {
		CHECK_EQ(&w->v, from, other->tid);
		from = wait_on(switchto_switch(other->tid));
	}
	CHECK_EQ(&w->v, from, other->tid);
	CHECK_EQ(&w->v, switchto_resume(from), 0);
}

static void two_take_turns(struct verdict *v)
{
	struct worker both[2] = { 0 };

	worker_start(&both[1], second_of_two, both);
	worker_start(&both[0], first_of_two, both);
	workers_join(both, 2, v);
}

static atomic_uint handled;

static void handler(int sig)
{
	(void)sig;
	handled++;
}

static void waits_until_interrupted(struct worker *w)
{
	CHECK_ERR(&w->v, switchto_wait(NULL), EINTR);
	CHECK_EQ(&w->v, atomic_load(&handled), 1);
}

static void signal_ends_wait(struct verdict *v)
{
	struct sigaction action = { .sa_handler = handler };
	struct worker w = { 0 };

	atomic_store(&handled, 0);
	sigaction(SIGUSR1, &action, NULL);
	worker_start(&w, waits_until_interrupted, NULL);
	await_parked(w.tid);
	pthread_kill(w.thread, SIGUSR1);
	workers_join(&w, 1, v);
}

static void waits_once(struct worker *w)
{
	CHECK_EQ(&w->v, wait_on(switchto_wait(NULL)), w->starter);
}

/* Resumes and switches to @s, which is parked. @times: how often it has returned. */
static void reaches(struct verdict *v, struct sink *s, const struct filter *f)
{
	const struct timespec time = to_timespec(NSEC_PER_SEC / 50);
	unsigned int times = atomic_load(&s->returns);
	long long before = now_ns();

	CHECK_ERR(v, switchto_switch_timed(s->w.tid, &time),
		  lies_about(f, EINTR) ? EINTR : ETIMEDOUT);
	if (!lies_about(f, EINTR) && !lies_about(f, ETIMEDOUT))
		CHECK(v, now_ns() - before >= to_ns(&time));
	AWAIT(atomic_load(&s->returns) == times + 1);
	await_parked(s->w.tid);
	CHECK_EQ(v, switchto_resume(s->w.tid), 0);
	AWAIT(atomic_load(&s->returns) == times + 2);
	await_parked(s->w.tid);
}

/* All that a program does with the library, under a filter. */
static void everything_works(struct verdict *v, const struct filter *f)
{
	const struct timespec time = to_timespec(NSEC_PER_SEC / 50);
	struct worker w = { 0 };
	long long before;

	CHECK_EQ(v, switchto_self(), gettid());
	two_take_turns(v);

	/* Its waits are under the filter as well. A wait that spins is not parked. */
	worker_start(&w, waits_once, NULL);
	if (!lies_about(f, EINTR))
		await_parked(w.tid);
	CHECK_EQ(v, switchto_resume(w.tid), 0);
	workers_join(&w, 1, v);

	before = now_ns();
	CHECK_ERR(v, switchto_wait(&time), lies_about(f, EINTR) ? EINTR : ETIMEDOUT);
	if (!lies_about(f, EINTR) && !lies_about(f, ETIMEDOUT))
		CHECK(v, now_ns() - before >= to_ns(&time));
	CHECK_ERR(v, switchto_wait(&no_time), lies_about(f, EINTR) ? EINTR : ETIMEDOUT);
	if (!lies_about(f, EINTR))
		signal_ends_wait(v);
}

/* --- the filter is there from the start ---------------------------------------- */

static bool has_swap;

/* In the program run again. */
static int works_as(const char *name)
{
	const struct filter none = { 0 };
	struct verdict v = { 0 };
	const char *backend = switchto_backend();

	CHECK(&v, backend && strcmp(backend, name) == 0);
	everything_works(&v, &none);
	return verdict_status(&v);
}

static int fails_with(int error)
{
	struct verdict v = { 0 };

	CHECK(&v, switchto_backend() == NULL);
	CHECK_EQ(&v, errno, error);
	CHECK_ERR(&v, switchto_wait(&no_time), error);
	CHECK_ERR(&v, switchto_switch(gettid()), error);
	return verdict_status(&v);
}

struct surroundings {
	const char *variable; /* NULL: unset */
	struct filter filter;
	const char *expected;
};

static int run_again(void *arg)
{
	const struct surroundings *s = arg;

	if (s->variable)
		setenv("SWITCHTO_BACKEND", s->variable, 1);
	else
		unsetenv("SWITCHTO_BACKEND");
	install_filter(&s->filter);
	exec_self(s->expected);
}

/* A backend, an error, or ENDED: by the filter. */
#define ENDED "ended"

static void expect(const char *variable, uint32_t swap, uint32_t wake_hint, const char *patched,
		   const char *stock)
{
	const char *expected = has_swap ? patched : stock;
	struct surroundings s = { variable, { swap, wake_hint }, expected };
	int wanted = strcmp(expected, ENDED) == 0 ? ENDED_BY_FILTER : 0, status;

	watchdog_start("probe");
	status = run_child(run_again, &s);
	watchdog_stop();
	if (status != wanted)
		fail_msg(
			"FUTEX_SWAP answers %#x, FUTEX_WAKE_HINT %#x: wanted %s, status %d; found %d",
			swap, wake_hint, expected, wanted, status);
}

static const int made_up[] = { 0, EAGAIN, EINTR, ETIMEDOUT, EINVAL, EACCES };

#define MADE_UP (sizeof(made_up) / sizeof(made_up[0]))

static void probe_forbidden(void **state)
{
	(void)state;
	expect(NULL, ANSWER(ENOSYS), 0, "wake-wait", "wake-wait");
	expect(NULL, 0, ANSWER(ENOSYS), "wake-wait", "wake-wait");
	expect(NULL, ANSWER(ENOSYS), ANSWER(ENOSYS), "wake-wait", "wake-wait");
	expect("swap", 0, ANSWER(ENOSYS), "ENOSYS", "ENOSYS");
	expect(NULL, ANSWER(EPERM), 0, "EPERM", "EPERM");
	expect(NULL, 0, ANSWER(EPERM), "EPERM", "wake-wait");
	expect("swap", 0, ANSWER(EPERM), "EPERM", "ENOSYS");
	expect("wake-wait", ANSWER(EPERM), ANSWER(EPERM), "wake-wait", "wake-wait");
}

/* EAGAIN and 0 are what the kernel itself would say to one question each. */
static void probe_made_up(void **state)
{
	(void)state;
	for (unsigned int i = 0; i < MADE_UP; i++) {
		expect(NULL, ANSWER(made_up[i]), 0, "EPERM", "EPERM");
		expect(NULL, 0, ANSWER(made_up[i]), "EPERM", "wake-wait");
		expect("swap", ANSWER(made_up[i]), ANSWER(0), "EPERM", "EPERM");
	}
	expect("wake-wait", ANSWER(0), ANSWER(0), "wake-wait", "wake-wait");
	expect(NULL, ANSWER(EAGAIN), ANSWER(0), "EPERM", "EPERM");
}

static void probe_ends_the_process(void **state)
{
	(void)state;
	expect(NULL, SECCOMP_RET_KILL_PROCESS, 0, ENDED, ENDED);
	expect(NULL, 0, SECCOMP_RET_KILL_PROCESS, ENDED, "wake-wait");
	expect(NULL, SECCOMP_RET_TRAP, 0, ENDED, ENDED);
	expect("wake-wait", SECCOMP_RET_KILL_PROCESS, SECCOMP_RET_KILL_PROCESS, "wake-wait",
	       "wake-wait");
}

/* --- the filter comes later ------------------------------------------------------ */

static int filter_comes_later(void *arg)
{
	const struct filter *f = arg;
	struct verdict v = { 0 };
	struct sink s = { 0 };
	unsigned int returns;

	alarm(PATIENCE_SECONDS);
	/* cmocka has a handler of its own, which the process must not run into. */
	signal(SIGSYS, SIG_DFL);
	CHECK(&v, switchto_backend() && strcmp(switchto_backend(), "swap") == 0);
	/* This one began to wait before, and does so without the filter. */
	sink_start(&s);
	install_filter(f);
	reaches(&v, &s, f);
	everything_works(&v, f);
	sink_stop(&s, &v, &returns);
	CHECK_EQ(&v, returns, 2);
	return verdict_status(&v);
}

static void comes_later(uint32_t swap, uint32_t wake_hint, int wanted)
{
	struct filter f = { swap, wake_hint };
	int status;

	watchdog_start("later");
	status = run_child(filter_comes_later, &f);
	watchdog_stop();
	if (status != wanted)
		fail_msg("FUTEX_SWAP answers %#x, FUTEX_WAKE_HINT %#x: wanted status %d, found %d",
			 swap, wake_hint, wanted, status);
}

static void later_swap_forbidden(void **state)
{
	(void)state;
	comes_later(ANSWER(ENOSYS), 0, 0);
	comes_later(ANSWER(EPERM), 0, 0);
}

static void later_wake_hint_forbidden(void **state)
{
	(void)state;
	comes_later(0, ANSWER(ENOSYS), 0);
	comes_later(0, ANSWER(EPERM), 0);
}

static void later_both_forbidden(void **state)
{
	(void)state;
	comes_later(ANSWER(ENOSYS), ANSWER(ENOSYS), 0);
	comes_later(ANSWER(EPERM), ANSWER(EPERM), 0);
}

static void later_swap_made_up(void **state)
{
	(void)state;
	for (unsigned int i = 0; i < MADE_UP; i++)
		comes_later(ANSWER(made_up[i]), 0, 0);
}

static void later_wake_hint_made_up(void **state)
{
	(void)state;
	for (unsigned int i = 0; i < MADE_UP; i++)
		comes_later(0, ANSWER(made_up[i]), 0);
}

static void later_both_made_up(void **state)
{
	(void)state;
	for (unsigned int i = 0; i < MADE_UP; i++)
		comes_later(ANSWER(made_up[i]), ANSWER(made_up[i]), 0);
}

static void later_ends_the_process(void **state)
{
	(void)state;
	comes_later(SECCOMP_RET_KILL_PROCESS, 0, ENDED_BY_FILTER);
	comes_later(0, SECCOMP_RET_KILL_PROCESS, ENDED_BY_FILTER);
	comes_later(SECCOMP_RET_TRAP, 0, ENDED_BY_FILTER);
}

/* --- and answers while another thread resumes the caller ---------------------- */

/* A target that has not returned by then sleeps on. */
#define LOST_AFTER_NS (10 * NSEC_PER_SEC)

struct raced {
	pid_t (*call)(pid_t target);
	int error;
	struct worker caller;
	struct sink target;
	_Atomic int listener;
	atomic_bool chosen, over;
};

static pid_t switch_for_an_hour(pid_t target)
{
	const struct timespec hour = { 3600, 0 };

	return switchto_switch_timed(target, &hour);
}

static void switches_once(struct worker *w)
{
	struct raced *r = w->arg;

	atomic_store(&r->listener, supervise_swap());
	CHECK(&w->v, switchto_backend() && strcmp(switchto_backend(), "swap") == 0);
	atomic_store(&r->chosen, true);
	await_release(w);
	CHECK_EQ(&w->v, r->call(r->target.w.tid), w->starter);
	atomic_store(&r->over, true);
}

static bool is_swap(const struct seccomp_notif *call)
{
	return ((uint32_t)call->data.args[1] & (uint32_t)FUTEX_CMD_MASK) == FUTEX_SWAP;
}

/* What the patched kernel says to the four questions of the probe. */
static int answer_to_probe(const struct seccomp_notif *call)
{
	bool is_hint = call->data.args[5] == 1;

	if (!is_hint)
		return -EINVAL;
	return is_swap(call) ? -EAGAIN : 0;
}

/*
 * The caller's first swap is answered with r->error and not done, when the caller has
 * been resumed. All others are the kernel's, ENOSYS on a stock one.
 */
static void supervises(struct verdict *v, struct raced *r)
{
	int listener = atomic_load(&r->listener);
	unsigned int swaps = 0;
	struct seccomp_notif call;

	while (!atomic_load(&r->over)) {
		if (!next_call(listener, &call))
			continue;
		if (is_swap(&call) && swaps++ == 0) {
			CHECK_EQ(v, switchto_resume(r->caller.tid), 0);
			CHECK(v, answer_call(listener, &call, -r->error));
		} else {
			CHECK(v, allow_call(listener, &call));
		}
	}
	CHECK_EQ(v, swaps, 1);
}

static int resumed_before_the_answer(void *arg)
{
	struct raced *r = arg;
	struct verdict v = { 0 };
	struct seccomp_notif call;
	unsigned int returns;
	long long since;

	unsetenv("SWITCHTO_BACKEND");
	worker_start(&r->caller, switches_once, r);
	AWAIT(atomic_load(&r->listener) != -2);
	if (atomic_load(&r->listener) < 0)
		give_up("seccomp: wanted a filter with a supervisor, got none");
	while (!atomic_load(&r->chosen))
		if (next_call(r->listener, &call))
			CHECK(&v, answer_call(r->listener, &call, answer_to_probe(&call)));
	sink_start(&r->target);

	worker_release(&r->caller);
	supervises(&v, r);
	workers_join(&r->caller, 1, &v);
	since = now_ns();
	AWAIT(atomic_load(&r->target.returns) || now_ns() - since > LOST_AFTER_NS);
	CHECK_EQ(&v, atomic_load(&r->target.returns), 1);
	if (verdict_status(&v))
		return EXIT_FAILURE;
	CHECK_EQ(&v, atomic_load(&r->target.last), r->caller.tid);
	sink_stop(&r->target, &v, &returns);
	CHECK_EQ(&v, returns, 1);
	return verdict_status(&v);
}

static void raced_switch_made_up(void **state)
{
	static pid_t (*const calls[])(pid_t target) = { switchto_switch, switch_for_an_hour };
	static const int errors[] = { EAGAIN, EINTR, ETIMEDOUT };

	(void)state;
	for (unsigned int i = 0; i < 6; i++) {
		struct raced r = { .call = calls[i / 3], .error = errors[i % 3], .listener = -2 };
		int status;

		watchdog_start("raced");
		status = run_child(resumed_before_the_answer, &r);
		watchdog_stop();
		if (status)
			fail_msg("%s, FUTEX_SWAP answers error %d: wanted status 0, found %d",
				 i / 3 ? "with a time" : "without a time", r.error, status);
	}
}

/* In the program run again. */
static int in_surroundings(const char *expected)
{
	watchdog_start(expected);
	alarm(PATIENCE_SECONDS);
	if (strcmp(expected, "EPERM") == 0)
		return fails_with(EPERM);
	if (strcmp(expected, "ENOSYS") == 0)
		return fails_with(ENOSYS);
	if (strcmp(expected, ENDED) == 0)
		return switchto_backend() != NULL;
	return works_as(expected);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest probe[] = {
		cmocka_unit_test(probe_forbidden),
		cmocka_unit_test(probe_made_up),
		cmocka_unit_test(probe_ends_the_process),
	};
	const struct CMUnitTest later[] = {
		cmocka_unit_test(later_swap_forbidden),
		cmocka_unit_test(later_wake_hint_forbidden),
		cmocka_unit_test(later_both_forbidden),
		cmocka_unit_test(later_swap_made_up),
		cmocka_unit_test(later_wake_hint_made_up),
		cmocka_unit_test(later_both_made_up),
		cmocka_unit_test(later_ends_the_process),
	};
	const struct CMUnitTest raced[] = {
		cmocka_unit_test(raced_switch_made_up),
	};
	int failed;

	if (argc != 2) {
		fprintf(stderr, "usage: security_seccomp probe|later|raced\n");
		return EXIT_FAILURE;
	}
	if (strcmp(argv[1], "probe") != 0 && strcmp(argv[1], "later") != 0 &&
	    strcmp(argv[1], "raced") != 0)
		return in_surroundings(argv[1]);

	has_swap = kernel_has_swap();
	if (strcmp(argv[1], "later") == 0) {
		if (!has_swap) {
			fprintf(stderr,
				"security_seccomp later: skipped: needs the patched kernel, this "
				"one has no FUTEX_SWAP (vm/test runs it there)\n");
			return SKIPPED;
		}
		unsetenv("SWITCHTO_BACKEND");
		failed = cmocka_run_group_tests_name("a filter comes later", later, NULL, NULL);
	} else if (strcmp(argv[1], "raced") == 0) {
		failed = cmocka_run_group_tests_name("a filter and a resume", raced, NULL, NULL);
	} else {
		failed = cmocka_run_group_tests_name("a filter at the probe", probe, NULL, NULL);
	}
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
