// SPDX-License-Identifier: MIT
/* Resumes that are pending, become one with another, or are refused. */
#include "seccomp.h"
#include "suite.h"

/* A thread that runs, registered or not, until it is released and takes what is pending. */
struct late {
	struct worker w;
	pid_t got[2];
	int error;
	bool registered;
	atomic_bool ready;
};

static void late_body(struct worker *w)
{
	struct late *l = w->arg;

	if (l->registered)
		CHECK_EQ(&w->v, switchto_self(), w->tid);
	atomic_store(&l->ready, true);
	await_release(w);
	for (int i = 0; i < 2; i++) {
		l->got[i] = switchto_wait(&no_time);
		l->error = errno;
	}
}

static void late_start(struct late *l, bool registered)
{
	l->registered = registered;
	worker_start(&l->w, late_body, l);
	AWAIT(atomic_load(&l->ready));
}

/* @want is the TID of the one resume that it is to find. */
static void late_finish(struct late *l, struct verdict *v, pid_t want)
{
	worker_end(&l->w, v);
	CHECK_EQ(v, l->got[0], want);
	CHECK(v, l->got[1] == -1 && l->error == ETIMEDOUT);
}

TEST(two_resumes_one_return)
{
	struct late l = { 0 };

	late_start(&l, true);
	CHECK_EQ(v, switchto_resume(l.w.tid), 0);
	CHECK_EQ(v, switchto_resume(l.w.tid), 0);
	late_finish(&l, v, gettid());
}

static void resumes(struct worker *w)
{
	CHECK_EQ(&w->v, switchto_resume(*(pid_t *)w->arg), 0);
}

/* The one return names the later of the two. */
static void resumed_by_two(struct verdict *v, bool registered)
{
	struct late l = { 0 };
	struct worker r = { 0 };
	pid_t target;

	late_start(&l, registered);
	CHECK_EQ(v, switchto_resume(l.w.tid), 0);
	target = l.w.tid;
	worker_run(&r, resumes, &target, v);
	late_finish(&l, v, r.tid);
}

TEST(later_resume_gives_the_name)
{
	resumed_by_two(v, true);
}

TEST(unregistered_thread_has_it_pending)
{
	struct late l = { 0 };

	late_start(&l, false);
	CHECK_EQ(v, switchto_resume(l.w.tid), 0);
	late_finish(&l, v, gettid());
}

TEST(unregistered_thread_gets_one_of_two)
{
	resumed_by_two(v, false);
}

/* Resumed while it makes its first call, in every phase of it. */
static void first_wait(struct worker *w)
{
	await_release(w);
	CHECK_EQ(&w->v, switchto_wait(NULL), w->starter);
	CHECK_ERR(&w->v, switchto_wait(&no_time), ETIMEDOUT);
}

TEST(resume_races_with_first_wait)
{
	uint32_t seed = 5;

	for (int i = 0; i < LOOPS(1000); i++) {
		struct worker w = { 0 };

		worker_start(&w, first_wait, NULL);
		worker_release(&w);
		random_delay(&seed, 20000);
		CHECK_EQ(v, switchto_resume(w.tid), 0);
		workers_join(&w, 1, v);
	}
}

/*
 * Threads with a seccomp filter of their own, that forbids to ask who another thread
 * is: one that has such a filter and one that has none know an unregistered thread by
 * different things. What is pending for it is its all the same.
 */
static void forbid_pidfd_open(void)
{
#ifdef SYS_pidfd_open
	filter_call(SYS_pidfd_open, ANSWER(EPERM));
#endif
}

struct filtered {
	struct late l;
	bool filter;
};

static void filtered_late_body(struct worker *w)
{
	struct filtered *f = w->arg;

	await_release(w);
	if (f->filter)
		forbid_pidfd_open();
	for (int i = 0; i < 2; i++) {
		f->l.got[i] = switchto_wait(&no_time);
		f->l.error = errno;
	}
}

struct resumer {
	struct worker w;
	pid_t target;
	bool filter;
};

static void resumes_filtered(struct worker *w)
{
	struct resumer *r = w->arg;

	if (r->filter)
		forbid_pidfd_open();
	CHECK_EQ(&w->v, switchto_resume(r->target), 0);
}

/* Resumed early by one or two threads, with or without a filter each, and so is the thread. */
TEST(early_resume_then_own_filter)
{
	for (unsigned int filters = 0; filters < 8; filters++) {
		for (unsigned int resumers = 1; resumers <= 2; resumers++) {
			struct filtered f = { .filter = filters & 4 };
			pid_t later = 0;

			worker_start(&f.l.w, filtered_late_body, &f);
			for (unsigned int i = 0; i < resumers; i++) {
				struct resumer r = { .target = f.l.w.tid,
						     .filter = filters >> i & 1 };

				worker_run(&r.w, resumes_filtered, &r, v);
				later = r.w.tid;
			}
			late_finish(&f.l, v, later);
		}
	}
}

/* A thread that the library has never heard of, and does not after. */
TEST(resumed_by_unregistered_thread)
{
	struct sink s = { 0 };
	struct worker r = { 0 };
	pid_t target;

	sink_start(&s);
	target = s.w.tid;
	worker_run(&r, resumes, &target, v);
	AWAIT(atomic_load(&s.returns) == 1);
	CHECK_EQ(v, s.last, r.tid);
	CHECK_EQ(v, sink_stop(&s, v), 1);
}

static void resumes_with_signals_blocked(struct worker *w)
{
	struct sink *s = w->arg;
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, NULL);
	CHECK_EQ(&w->v, switchto_resume(s->w.tid), 0);
	AWAIT(atomic_load(&s->returns) == 1);
	await_parked(s->w.tid);
	CHECK_EQ(&w->v, switchto_switch(s->w.tid), w->starter);
}

TEST(all_signals_blocked)
{
	struct sink s = { 0 };
	struct worker r = { 0 };

	sink_start(&s);
	worker_start(&r, resumes_with_signals_blocked, &s);
	AWAIT(atomic_load(&s.returns) == 2);
	CHECK_EQ(v, s.last, r.tid);
	await_parked(r.tid);
	pthread_kill(r.thread, SIGURG);
	CHECK_EQ(v, switchto_resume(r.tid), 0);
	workers_join(&r, 1, v);
	CHECK_EQ(v, sink_stop(&s, v), 2);
}

TEST(switch_to_running_thread)
{
	struct late registered = { 0 }, unregistered = { 0 };

	late_start(&registered, true);
	late_start(&unregistered, false);
	CHECK_ERR(v, switchto_switch_timed(registered.w.tid, &no_time), ETIMEDOUT);
	CHECK_ERR(v, switchto_switch_timed(unregistered.w.tid, &no_time), ETIMEDOUT);
	late_finish(&registered, v, gettid());
	late_finish(&unregistered, v, gettid());
}

/*
 * All calls refuse @target with @error, at once, and take nothing: the resume
 * that is pending for the caller is still there.
 */
static void refused(struct verdict *v, pid_t target, int error)
{
	const struct timespec hour = { 3600, 0 };
	pid_t self = gettid();

	CHECK_EQ(v, switchto_resume(self), 0);
	CHECK_ERR(v, switchto_resume(target), error);
	CHECK_ERR(v, switchto_switch(target), error);
	CHECK_ERR(v, switchto_switch_timed(target, NULL), error);
	CHECK_ERR(v, switchto_switch_timed(target, &hour), error);
	CHECK_ERR(v, switchto_switch_until(target, NULL), error);
	CHECK_ERR(v, switchto_switch_until(target, &hour), error);
	CHECK_EQ(v, switchto_wait(&no_time), self);
}

static void is_registered(struct worker *w)
{
	CHECK_EQ(&w->v, switchto_self(), w->tid);
}

static void is_unregistered(struct worker *w) {}

TEST(exited_thread)
{
	for (int i = 0; i < LOOPS(500); i++) {
		struct worker w = { 0 };

		worker_run(&w, i & 1 ? is_registered : is_unregistered, NULL, v);
		refused(v, w.tid, ESRCH);
	}
}

TEST(never_existed)
{
	pid_t none;

	/* Whoever gets this number while the test runs, it is no thread of this process. */
	for (none = 4194303; kill(none, 0) == 0 || errno != ESRCH; none--)
		;
	refused(v, none, ESRCH);
}

static int sleeps(void *arg)
{
	return pause();
}

TEST(other_process)
{
	pid_t child = start_child(sleeps, NULL);

	refused(v, child, ESRCH);
	refused(v, getppid(), ESRCH);
	refused(v, 1, ESRCH);
	kill(child, SIGKILL);
	child_status(child);
}

TEST(oneself)
{
	const struct timespec hour = { 3600, 0 };
	pid_t self = gettid();

	CHECK_EQ(v, switchto_switch(self), self);
	CHECK_EQ(v, switchto_switch_timed(self, &hour), self);
	CHECK_EQ(v, switchto_switch_timed(self, &no_time), self);
	CHECK_EQ(v, switchto_switch_until(self, &hour), self);
	CHECK_ERR(v, switchto_wait(&no_time), ETIMEDOUT);

	CHECK_EQ(v, switchto_resume(self), 0);
	CHECK_EQ(v, switchto_wait(NULL), self);
	CHECK_ERR(v, switchto_wait(&no_time), ETIMEDOUT);

	/* One that is pending becomes one with it. */
	CHECK_EQ(v, switchto_resume(self), 0);
	CHECK_EQ(v, switchto_switch(self), self);
	CHECK_ERR(v, switchto_wait(&no_time), ETIMEDOUT);
}

TEST(no_tid)
{
	refused(v, 0, EINVAL);
	refused(v, -1, EINVAL);
	refused(v, -gettid(), EINVAL);
	refused(v, INT_MIN, EINVAL);
}

/* PID_MAX_LIMIT of the kernel: no TID can be that large. */
TEST(too_large)
{
	refused(v, 4194304, ESRCH);
	refused(v, 4194305, ESRCH);
	/* The low 22 bits are the caller's own. */
	refused(v, 4194304 + gettid(), ESRCH);
	refused(v, INT_MAX, ESRCH);
}

TEST(errno_is_left_alone)
{
	struct late registered = { 0 }, unregistered = { 0 };
	struct sink s = { 0 };
	pid_t targets[4];

	late_start(&registered, true);
	late_start(&unregistered, false);
	sink_start(&s);
	targets[0] = registered.w.tid;
	targets[1] = unregistered.w.tid;
	targets[2] = s.w.tid;
	targets[3] = gettid();
	for (int i = 0; i < 4; i++) {
		int ret;

		errno = 12345;
		ret = switchto_resume(targets[i]);
		CHECK_EQ(v, errno, 12345);
		CHECK_EQ(v, ret, 0);
	}
	CHECK_EQ(v, switchto_wait(NULL), gettid());
	late_finish(&registered, v, gettid());
	late_finish(&unregistered, v, gettid());
	AWAIT(atomic_load(&s.returns) == 1);
	sink_stop(&s, v);
}
