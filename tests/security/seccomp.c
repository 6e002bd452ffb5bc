// SPDX-License-Identifier: MIT
/*
 * A seccomp filter in front of FUTEX_SWAP: one that forbids it, one that ends who
 * calls it, and one that makes the answer up, success without any effect among them.
 * It may look at the arguments and be about calls with a wait half alone, or about
 * those without one, of which the library's probe has none. Whatever it says, and
 * whether it was there when the backend was chosen or came later, no resume is lost
 * and nothing hangs: the library finds another way, or says EPERM at once, or the
 * process is ended.
 *
 * Arguments: "probe", the filter is there from the start, on any kernel; "later",
 * it comes when the backend swap is in use, on the patched kernel; "raced", it
 * makes an answer up then, while another thread resumes the caller, on any kernel.
 */
#include "pair.h"
#include "seccomp.h"

#include <switchto/switchto.h>

/* For one process of these tests. What hangs does so for ever. */
#define PATIENCE_SECONDS 60

#define ENDED_BY_FILTER (128 + SIGSYS)

#define ROUNDS 50

/* As of filter_swap_forms(). */
struct filter {
	uint32_t with_wait, wake_only;
};

static atomic_uint handled;

static void handler(int sig)
{
	handled++;
}

static void waits_once(struct worker *w)
{
	CHECK_EQ(&w->v, switchto_wait(NULL), w->starter);
}

/* A handler runs in it, and it waits on. */
static void waits_across_a_handler(struct verdict *v)
{
	struct worker w = { 0 };

	atomic_store(&handled, 0);
	set_handler(SIGUSR1, handler);
	worker_start_parked(&w, waits_once, NULL);
	pthread_kill(w.thread, SIGUSR1);
	AWAIT(atomic_load(&handled));
	await_parked(w.tid);
	CHECK_EQ(v, switchto_resume(w.tid), 0);
	workers_join(&w, 1, v);
}

/* "Its time is over" ends a wait that has a time, if that is what the filter says. */
static void times_out(struct verdict *v, pid_t target, const struct filter *f)
{
	const struct timespec time = to_timespec(NSEC_PER_SEC / 50);
	long long before = now_ns();

	CHECK_ERR(v, target ? switchto_switch_timed(target, &time) : switchto_wait(&time),
		  ETIMEDOUT);
	if (f->with_wait != ANSWER(ETIMEDOUT))
		CHECK(v, now_ns() - before >= to_ns(&time));
}

/* Resumes and switches to @s, which is parked. */
static void reaches(struct verdict *v, struct sink *s, const struct filter *f)
{
	unsigned int times = atomic_load(&s->returns);

	times_out(v, s->w.tid, f);
	AWAIT(atomic_load(&s->returns) == times + 1);
	await_parked(s->w.tid);
	CHECK_EQ(v, switchto_resume(s->w.tid), 0);
	AWAIT(atomic_load(&s->returns) == times + 2);
	await_parked(s->w.tid);
}

/* All that a program does with the library, under a filter. Its waits are under it, too. */
static void everything_works(struct verdict *v, const struct filter *f)
{
	CHECK_EQ(v, switchto_self(), gettid());
	pair_works(v, ROUNDS);
	times_out(v, 0, f);
	CHECK_ERR(v, switchto_wait(&no_time), ETIMEDOUT);
	waits_across_a_handler(v);
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
	filter_swap_forms(s->filter.with_wait, s->filter.wake_only);
	exec_self(s->expected);
}

/* A backend, an error, or ENDED: by the filter. */
#define ENDED "ended"

static void expect(const char *variable, uint32_t with_wait, uint32_t wake_only,
		   const char *patched, const char *stock)
{
	const char *expected = has_swap ? patched : stock;
	struct surroundings s = { variable, { with_wait, wake_only }, expected };
	int wanted = strcmp(expected, ENDED) == 0 ? ENDED_BY_FILTER : 0, status;

	watchdog_start("probe");
	status = run_child(run_again, &s);
	watchdog_stop();
	if (status != wanted)
		fail_msg(
			"FUTEX_SWAP answers %#x, without a wait %#x: wanted %s, status %d; found %d",
			with_wait, wake_only, expected, wanted, status);
}

static const int made_up[] = { 0, EAGAIN, EINTR, ETIMEDOUT, EINVAL, EACCES };

#define MADE_UP (sizeof(made_up) / sizeof(made_up[0]))

TEST_IN(probe, probe_forbidden)
{
	expect(NULL, ANSWER(ENOSYS), ANSWER(ENOSYS), "wake-wait", "wake-wait");
	expect(NULL, ANSWER(ENOSYS), 0, "wake-wait", "wake-wait");
	expect(NULL, 0, ANSWER(ENOSYS), "swap", "wake-wait");
	expect("swap", ANSWER(ENOSYS), ANSWER(ENOSYS), "ENOSYS", "ENOSYS");
	expect("swap", 0, ANSWER(ENOSYS), "swap", "ENOSYS");
	expect(NULL, ANSWER(EPERM), ANSWER(EPERM), "EPERM", "EPERM");
	expect(NULL, ANSWER(EPERM), 0, "EPERM", "EPERM");
	expect(NULL, 0, ANSWER(EPERM), "swap", "wake-wait");
	expect("swap", 0, ANSWER(EPERM), "swap", "ENOSYS");
	expect("wake-wait", ANSWER(EPERM), ANSWER(EPERM), "wake-wait", "wake-wait");
}

/* EAGAIN and EINVAL are what the kernel itself would say to one question each. */
TEST_IN(probe, probe_made_up)
{
	for (unsigned int i = 0; i < MADE_UP; i++) {
		uint32_t answer = ANSWER(made_up[i]);

		expect(NULL, answer, answer, "EPERM", "EPERM");
		expect("swap", answer, 0, "EPERM", "EPERM");
		expect(NULL, 0, answer, "swap", "wake-wait");
	}
	expect("wake-wait", ANSWER(0), ANSWER(0), "wake-wait", "wake-wait");
}

TEST_IN(probe, probe_ends_the_process)
{
	expect(NULL, SECCOMP_RET_KILL_PROCESS, SECCOMP_RET_KILL_PROCESS, ENDED, ENDED);
	expect(NULL, SECCOMP_RET_TRAP, SECCOMP_RET_TRAP, ENDED, ENDED);
	expect(NULL, 0, SECCOMP_RET_KILL_PROCESS, ENDED, "wake-wait");
	expect("wake-wait", SECCOMP_RET_KILL_PROCESS, SECCOMP_RET_KILL_PROCESS, "wake-wait",
	       "wake-wait");
}

/* --- the filter comes later ------------------------------------------------------ */

CHILD(filter_comes_later)
{
	const struct filter *f = arg;
	struct sink s = { 0 };

	alarm(PATIENCE_SECONDS);
	/* cmocka has a handler of its own, which the process must not run into. */
	signal(SIGSYS, SIG_DFL);
	CHECK(v, switchto_backend() && strcmp(switchto_backend(), "swap") == 0);
	/* This one began to wait before, and does so without the filter. */
	sink_start(&s);
	filter_swap_forms(f->with_wait, f->wake_only);
	reaches(v, &s, f);
	everything_works(v, f);
	CHECK_EQ(v, sink_stop(&s, v), 2);
}

static void comes_later(uint32_t with_wait, uint32_t wake_only, int wanted)
{
	struct filter f = { with_wait, wake_only };
	int status;

	watchdog_start("later");
	status = run_child(filter_comes_later, &f);
	watchdog_stop();
	if (status != wanted)
		fail_msg("FUTEX_SWAP answers %#x, without a wait %#x: wanted status %d, found %d",
			 with_wait, wake_only, wanted, status);
}

TEST_IN(later, later_forbidden)
{
	comes_later(ANSWER(ENOSYS), ANSWER(ENOSYS), 0);
	comes_later(ANSWER(EPERM), ANSWER(EPERM), 0);
}

TEST_IN(later, later_with_wait_forbidden)
{
	comes_later(ANSWER(ENOSYS), 0, 0);
	comes_later(ANSWER(EPERM), 0, 0);
}

TEST_IN(later, later_wake_only_forbidden)
{
	comes_later(0, ANSWER(ENOSYS), 0);
	comes_later(0, ANSWER(EPERM), 0);
}

TEST_IN(later, later_made_up)
{
	for (unsigned int i = 0; i < MADE_UP; i++)
		comes_later(ANSWER(made_up[i]), ANSWER(made_up[i]), 0);
}

TEST_IN(later, later_with_wait_made_up)
{
	for (unsigned int i = 0; i < MADE_UP; i++)
		comes_later(ANSWER(made_up[i]), 0, 0);
}

TEST_IN(later, later_wake_only_made_up)
{
	for (unsigned int i = 0; i < MADE_UP; i++)
		comes_later(0, ANSWER(made_up[i]), 0);
}

TEST_IN(later, later_ends_the_process)
{
	comes_later(SECCOMP_RET_KILL_PROCESS, SECCOMP_RET_KILL_PROCESS, ENDED_BY_FILTER);
	comes_later(SECCOMP_RET_KILL_PROCESS, 0, ENDED_BY_FILTER);
	comes_later(0, SECCOMP_RET_KILL_PROCESS, ENDED_BY_FILTER);
	comes_later(SECCOMP_RET_TRAP, SECCOMP_RET_TRAP, ENDED_BY_FILTER);
}

/* --- and answers while another thread resumes the caller ---------------------- */

/* A target that has not returned by then sleeps on. */
#define LOST_AFTER_NS (30 * NSEC_PER_SEC)

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

static bool has_wait(const struct seccomp_notif *call)
{
	return call->data.args[0] != 0;
}

/* What the patched kernel says to the two questions of the probe. */
static int answer_to_probe(const struct seccomp_notif *call)
{
	bool is_hint = call->data.args[5] == 1;

	return is_hint ? -EAGAIN : -EINVAL;
}

/*
 * The caller's first swap is answered with r->error and not done, when the caller has
 * been resumed. The wake of its target that then is due, and any other call, is the
 * kernel's, ENOSYS on a stock one.
 */
static void supervises(struct verdict *v, struct raced *r)
{
	int listener = atomic_load(&r->listener);
	unsigned int swaps = 0;
	struct seccomp_notif call;

	while (!atomic_load(&r->over)) {
		if (!next_call(listener, &call))
			continue;
		if (has_wait(&call) && swaps++ == 0) {
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
	CHECK_EQ(&v, sink_stop(&r->target, &v), 1);
	return verdict_status(&v);
}

TEST_IN(raced, raced_switch_made_up)
{
	static pid_t (*const calls[])(pid_t target) = { switchto_switch, switch_for_an_hour };
	static const int errors[] = { EAGAIN, EINTR, ETIMEDOUT };

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
	/* At the first call that the filter is about, which need not be the probe's. */
	if (strcmp(expected, ENDED) == 0)
		return works_as("swap");
	return works_as(expected);
}

int main(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "usage: security_seccomp probe|later|raced\n");
		return EXIT_FAILURE;
	}
	if (strcmp(argv[1], "probe") != 0 && strcmp(argv[1], "later") != 0 &&
	    strcmp(argv[1], "raced") != 0)
		return in_surroundings(argv[1]);

	has_swap = kernel_has_swap();
	if (strcmp(argv[1], "later") == 0) {
		if (lacks_swap("security_seccomp later"))
			return SKIPPED;
		unsetenv("SWITCHTO_BACKEND");
	}
	return run_watched_group(argv[1]);
}
