// SPDX-License-Identifier: MIT
/*
 * How the backend is chosen. A seccomp filter makes any kernel one without
 * FUTEX_SWAP, so what the library does there is tested everywhere.
 *
 * Each case runs this program again, in the surroundings of the case, to make
 * its first calls there.
 */
#include "pair.h"
#include "seccomp.h"

#include <switchto/switchto.h>

/* In the program run again: the backend is @name, and does its work. */
static int works_as(const char *name)
{
	struct verdict v = { 0 };
	const char *backend = switchto_backend();

	CHECK(&v, backend && strcmp(backend, name) == 0);
	CHECK_EQ(&v, switchto_self(), gettid());
	CHECK_ERR(&v, switchto_wait(&no_time), ETIMEDOUT);
	pair_works(&v, 100);

	/* It stays what it is, whatever becomes of the environment. */
	setenv("SWITCHTO_BACKEND", "nonsense", 1);
	CHECK(&v, switchto_backend() == backend);
	pair_works(&v, 10);
	return verdict_status(&v);
}

/* In the program run again: every call but resume says @error, the first and the next. */
static int fails_with(int error)
{
	struct verdict v = { 0 };
	pid_t self = gettid();

	for (int i = 0; i < 2; i++) {
		errno = 0;
		CHECK(&v, switchto_backend() == NULL);
		CHECK_EQ(&v, errno, error);
		if (atomic_load(&v.failed))
			break;
		CHECK_ERR(&v, switchto_self(), error);
		CHECK_ERR(&v, switchto_wait(NULL), error);
		CHECK_ERR(&v, switchto_wait(&no_time), error);
		CHECK_ERR(&v, switchto_wait_until(NULL), error);
		CHECK_ERR(&v, switchto_wait_until(&no_time), error);
		CHECK_ERR(&v, switchto_switch(self), error);
		CHECK_ERR(&v, switchto_switch_timed(self, &no_time), error);
		CHECK_ERR(&v, switchto_switch_until(self, &no_time), error);
		CHECK_EQ(&v, switchto_resume(self), 0);
		CHECK_ERR(&v, switchto_resume(0), EINVAL);
		CHECK_ERR(&v, switchto_resume(4194304), ESRCH);
	}
	return verdict_status(&v);
}

/* The number of 2020, which Linux then took for another, as it may those after it. */
#define FIRST_OTHER 13

struct surroundings {
	const char *variable; /* NULL: unset */
	uint32_t filter;
	uint32_t filter_wake_only; /* of FUTEX_SWAP that only wakes */
	bool others_kill;	   /* operations FIRST_OTHER and on, up to FUTEX_SWAP */
	const char *expected;
};

static int run_again(void *arg)
{
	const struct surroundings *s = arg;

	if (s->variable)
		setenv("SWITCHTO_BACKEND", s->variable, 1);
	else
		unsetenv("SWITCHTO_BACKEND");
	if (s->filter)
		filter_swap(s->filter);
	if (s->filter_wake_only)
		filter_swap_forms(0, s->filter_wake_only);
	if (s->others_kill)
		filter_futex_range(FIRST_OTHER, FUTEX_SWAP - 1, SECCOMP_RET_KILL_PROCESS);
	exec_self(s->expected);
}

static void expect_in(struct surroundings s)
{
	watchdog_start(s.expected);
	assert_int_equal(run_child(run_again, &s), 0);
	watchdog_stop();
}

static void expect(const char *variable, uint32_t filter, const char *expected)
{
	expect_in((struct surroundings){ variable, filter, .expected = expected });
}

/* What the tests found out for themselves. */
static bool has_swap;

TEST(unset)
{
	expect(NULL, 0, has_swap ? "swap" : "wake-wait");
}

TEST(forced_wake_wait)
{
	expect("wake-wait", 0, "wake-wait");
}

TEST(forced_swap)
{
	expect("swap", 0, has_swap ? "swap" : "ENOSYS");
}

TEST(unknown_name)
{
	const char *const names[] = { "",	   "Swap",	     "swap ", " swap",
				      "wake_wait", "wake-wait,swap", "1" };

	for (unsigned int i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		expect(names[i], 0, "ENOTSUP");
}

TEST(filter_says_enosys)
{
	expect(NULL, ANSWER(ENOSYS), "wake-wait");
	expect("wake-wait", ANSWER(ENOSYS), "wake-wait");
	expect("swap", ANSWER(ENOSYS), "ENOSYS");
	expect("nonsense", ANSWER(ENOSYS), "ENOTSUP");
}

TEST(filter_says_eperm)
{
	expect(NULL, ANSWER(EPERM), "EPERM");
	expect("swap", ANSWER(EPERM), "EPERM");
	expect("wake-wait", ANSWER(EPERM), "wake-wait");
}

/* No undocumented errno: what the filter makes up does not get out. */
TEST(filter_says_another)
{
	expect(NULL, ANSWER(EACCES), "EPERM");
	expect("swap", ANSWER(EINVAL), "EPERM");
	expect(NULL, ANSWER(0), "EPERM");
}

static void expect_wake_only(const char *variable, uint32_t filter, const char *expected)
{
	expect_in((struct surroundings){ variable, .filter_wake_only = filter,
					 .expected = expected });
}

/* The probe waits as well, so it does not hear of this: each resume does. */
TEST(filter_of_wake_only)
{
	static const int errors[] = { ENOSYS, EPERM, 0 };

	for (int i = 0; i < 3; i++) {
		uint32_t filter = ANSWER(errors[i]);

		expect_wake_only(NULL, filter, has_swap ? "swap" : "wake-wait");
		expect_wake_only("swap", filter, has_swap ? "swap" : "ENOSYS");
		expect_wake_only("wake-wait", filter, "wake-wait");
	}
	expect_wake_only("wake-wait", SECCOMP_RET_KILL_PROCESS, "wake-wait");
}

/*
 * The numbers up to FUTEX_SWAP may be given to other operations, or be in use in
 * another patched kernel. The library makes none of these calls, not even to ask.
 */
static int asks_other(void *arg)
{
	uint32_t word = 0;

	filter_futex_range(FIRST_OTHER, FUTEX_SWAP - 1, SECCOMP_RET_KILL_PROCESS);
	syscall(SYS_futex, &word, *(int *)arg | FUTEX_PRIVATE_FLAG, 1, NULL, &word, 0);
	return 0;
}

TEST(other_operation_not_asked)
{
	int others[] = { FIRST_OTHER, 14, FUTEX_SWAP - 1 }, known[] = { FUTEX_WAKE, FUTEX_SWAP };
	struct surroundings s = { .others_kill = true };

	for (int i = 0; i < 3; i++)
		assert_int_equal(run_child(asks_other, &others[i]), 128 + SIGSYS);
	for (int i = 0; i < 2; i++)
		assert_int_equal(run_child(asks_other, &known[i]), 0);

	s.filter = ANSWER(ENOSYS);
	s.expected = "wake-wait";
	expect_in(s);
	s.variable = "swap";
	s.expected = "ENOSYS";
	expect_in(s);

	s.filter = 0;
	s.expected = has_swap ? "swap" : "ENOSYS";
	expect_in(s);
	s.variable = NULL;
	s.expected = has_swap ? "swap" : "wake-wait";
	expect_in(s);
}

/*
 * A kernel that gains the operation while the program runs, as one that it was
 * moved to: the choice stands. A supervisor says ENOSYS to the first questions and
 * lets the rest pass to a kernel that may have it.
 */
struct gaining {
	struct worker user;
	_Atomic int listener;
	_Atomic unsigned int asked;
	atomic_bool chosen, over;
};

static void uses_before_and_after(struct worker *w)
{
	struct gaining *g = w->arg;

	atomic_store(&g->listener, supervise_swap());
	CHECK(&w->v, switchto_backend() && strcmp(switchto_backend(), "wake-wait") == 0);
	atomic_store(&g->chosen, true);
	/* And now it is there: nobody asks for it. */
	pair_works(&w->v, 100);
	CHECK(&w->v, strcmp(switchto_backend(), "wake-wait") == 0);
	/* A wait that nothing ends: a time, so that a filter's error can't hang it. */
	CHECK_ERR(&w->v, switchto_wait(&no_time), ETIMEDOUT);
}

static void answers_the_filter(struct worker *w)
{
	struct gaining *g = w->arg;
	struct seccomp_notif call;

	AWAIT(atomic_load(&g->listener) != -2);
	while (!atomic_load(&g->over)) {
		if (!next_call(g->listener, &call))
			continue;
		atomic_fetch_add(&g->asked, 1);
		CHECK(&w->v, atomic_load(&g->chosen) ? allow_call(g->listener, &call) :
						       answer_call(g->listener, &call, -ENOSYS));
	}
}

TEST_IN_CHILD(operation_is_gained)
{
	struct gaining g = { .listener = -2 };
	struct worker supervisor = { 0 };

	unsetenv("SWITCHTO_BACKEND");
	worker_start(&supervisor, answers_the_filter, &g);
	worker_run(&g.user, uses_before_and_after, &g, v);
	atomic_store(&g.over, true);
	workers_join(&supervisor, 1, v);
	CHECK(v, g.listener >= 0);
	/* The probe, and nothing after it. */
	CHECK_EQ(v, atomic_load(&g.asked), 1);
}

/* Forced wake-wait does not even try. */
TEST(filter_kills)
{
	expect("wake-wait", SECCOMP_RET_KILL_PROCESS, "wake-wait");
}

/*
 * A kernel older than Linux 6.9 has no pidfd of a thread: a thread that is not
 * registered yet is resumed all the same, and errno does not tell of the attempt.
 */
static void takes_when_released(struct worker *w)
{
	await_release(w);
	CHECK_EQ(&w->v, switchto_wait(&no_time), w->starter);
	CHECK_ERR(&w->v, switchto_wait(&no_time), ETIMEDOUT);
}

CHILD(resumes_without_pidfd)
{
	struct worker w = { 0 };
	int ret;

	filter_call(SYS_pidfd_open, ANSWER(*(int *)arg));
	worker_start(&w, takes_when_released, NULL);
	errno = 12345;
	ret = switchto_resume(w.tid);
	CHECK_EQ(v, errno, 12345);
	CHECK_EQ(v, ret, 0);
	worker_end(&w, v);
	CHECK_ERR(v, switchto_resume(w.tid), ESRCH);
}

TEST(no_pidfd)
{
	int errors[] = { ENOSYS, EINVAL, EPERM };

	for (int i = 0; i < 3; i++)
		assert_int_equal(run_child(resumes_without_pidfd, &errors[i]), 0);
}

/*
 * Older still: neither a pidfd of a thread nor a /proc to tell one from the next by
 * (ENOSYS), or one that can't be opened for want of a descriptor (ENOMEM). Nothing
 * has happened then, to a thread that is there; of one that has ended that is said.
 */
struct lost_identity {
	int of_open, wanted;
};

static void takes_nothing(struct worker *w)
{
	await_release(w);
	CHECK_ERR(&w->v, switchto_wait(&no_time), ETIMEDOUT);
}

struct asker {
	const struct lost_identity *lost;
	pid_t target;
};

/* A thread of its own, for the process to be able to open files. */
static void asks_in_vain(struct worker *w)
{
	const struct asker *a = w->arg;

	CHECK(&w->v, switchto_backend() != NULL);
	filter_call(SYS_pidfd_open, ANSWER(ENOSYS));
	filter_call(SYS_openat, ANSWER(a->lost->of_open));
	CHECK_ERR(&w->v, switchto_resume(a->target), a->lost->wanted);
	CHECK_ERR(&w->v, switchto_switch(a->target), a->lost->wanted);
}

CHILD(resumes_without_identity)
{
	struct worker target = { 0 }, w = { 0 };
	struct asker a = { .lost = arg };

	worker_start(&target, takes_nothing, NULL);
	a.target = target.tid;
	worker_run(&w, asks_in_vain, &a, v);
	worker_end(&target, v);
}

TEST(no_identity)
{
	struct lost_identity lost[] = {
		{ ENOENT, ENOSYS }, { EMFILE, ENOMEM }, { ENFILE, ENOMEM }, { ENOMEM, ENOMEM }
	};

	for (int i = 0; i < 4; i++)
		assert_int_equal(run_child(resumes_without_identity, &lost[i]), 0);
}

/*
 * Nor does the library do its work without a place to keep what it knows of a thread,
 * or with one that a fork can't wipe.
 */
struct no_place {
	long call;
	int error, wanted;
};

CHILD(begins_without_place)
{
	const struct no_place *n = arg;

	filter_call(n->call, ANSWER(n->error));
	CHECK_ERR(v, switchto_self(), n->wanted);
	CHECK_ERR(v, switchto_wait(&no_time), n->wanted);
	CHECK_ERR(v, switchto_resume(gettid()), n->wanted);
}

TEST(no_place_to_keep_it)
{
	struct no_place places[] = {
/* TSan's own runtime maps memory whenever it has need of it, and dies when it can't. */
#ifndef UNDER_TSAN
		{ SYS_mmap, ENOMEM, ENOMEM },
#endif
		{ SYS_madvise, EINVAL, ENOSYS },
		{ SYS_madvise, ENOMEM, ENOMEM },
		{ SYS_madvise, EAGAIN, ENOMEM },
	};

	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
		assert_int_equal(run_child(begins_without_place, &places[i]), 0);
}

/*
 * Whoever refuses futex(2) altogether leaves nothing to wait with: that is said, and no
 * more. A resume has been given all the same.
 */
struct refusal {
	int standard_error;
	int way; /* WAYS: a resume */
};

static int waits_without_futex(void *arg)
{
	const struct refusal *r = arg;
	struct sink target = { 0 };

	/* cmocka has a handler of its own. */
	signal(SIGABRT, SIG_DFL);
	if (dup2(r->standard_error, STDERR_FILENO) < 0)
		return EXIT_FAILURE;
	sink_start(&target);
	filter_call(SYS_futex, ANSWER(EPERM));
	if (r->way == WAYS)
		return switchto_resume(target.w.tid) ? EXIT_FAILURE : EXIT_SUCCESS;
	sleep_this_way(r->way, target.w.tid);
	return EXIT_FAILURE;
}

TEST(no_futex)
{
	for (struct refusal r = { .way = 0 }; r.way <= WAYS; r.way++) {
		char text[200] = "";
		int ends[2];

		assert_int_equal(pipe(ends), 0);
		r.standard_error = ends[1];
		assert_int_equal(run_child(waits_without_futex, &r),
				 r.way == WAYS ? 0 : 128 + SIGABRT);
		close(ends[1]);
		assert_true(read(ends[0], text, sizeof(text) - 1) >= 0);
		if (r.way < WAYS)
			assert_non_null(
				strstr(text, "libswitchto: FUTEX_WAIT: unexpected error 1 "));
		else
			assert_string_equal(text, "");
		close(ends[0]);
	}
}

static int fails_without_key(void *arg)
{
	pthread_key_t key;

	while (pthread_key_create(&key, NULL) == 0)
		;
	return fails_with(EAGAIN);
}

TEST(no_key)
{
	assert_int_equal(run_child(fails_without_key, NULL), 0);
}

int main(int argc, char **argv)
{
	const struct {
		const char *name;
		int error;
	} failures[] = { { "ENOTSUP", ENOTSUP }, { "ENOSYS", ENOSYS }, { "EPERM", EPERM } };

	if (argc == 2) {
		watchdog_start(argv[1]);
		for (int i = 0; i < 3; i++)
			if (strcmp(argv[1], failures[i].name) == 0)
				return fails_with(failures[i].error);
		return works_as(argv[1]);
	}

	has_swap = kernel_has_swap();
	return run_watched_group(NULL);
}
