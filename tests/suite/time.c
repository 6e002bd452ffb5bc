// SPDX-License-Identifier: MIT
/* Timeouts and deadlines. */
#include "suite.h"

/* What @c takes to end @ns from now. */
static struct timespec from_now(const struct timed_call *c, long long ns)
{
	return to_timespec(c->absolute ? now_ns() + ns : ns);
}

TEST(never_early)
{
	const long long times[] = { 0, 500, NSEC_PER_SEC / 100 };
	struct sink s = { 0 };

	sink_start(&s);
	FOR_EACH_TIMED_CALL (c) {
		for (int i = 0; i < 30; i++) {
			long long ns = times[i % 3], before = now_ns();
			struct timespec time = from_now(c, ns);

			CHECK_ERR(v, c->call(s.w.tid, &time), ETIMEDOUT);
			CHECK(v, now_ns() - before >= ns);
		}
	}
	CHECK(v, sink_stop(&s, v) > 0);
}

/* A deadline that has passed still takes what is pending, and resumes the target. */
TEST(deadline_in_the_past)
{
	struct sink s = { 0 };
	unsigned int returns = 0;

	sink_start(&s);
	FOR_EACH_TIMED_CALL (c) {
		const struct timespec past[] = { { 0, 0 }, from_now(c, c->absolute ? -1 : 0) };

		for (int i = 0; i < 2; i++) {
			CHECK_ERR(v, c->call(s.w.tid, &past[i]), ETIMEDOUT);
			returns += c->switches;
			AWAIT(atomic_load(&s.returns) == returns);

			CHECK_EQ(v, switchto_resume(gettid()), 0);
			CHECK_EQ(v, c->call(s.w.tid, &past[i]), gettid());
			returns += c->switches;
			AWAIT(atomic_load(&s.returns) == returns);
			await_parked(s.w.tid);
		}
	}
	sink_stop(&s, v);
}

static const struct timespec bad_times[] = {
	{ -1, 0 },	 { 0, -1 },	  { 0, NSEC_PER_SEC }, { -1, NSEC_PER_SEC - 1 },
	{ 1, LONG_MAX }, { LONG_MIN, 0 },
};

static void takes_what_is_pending(struct worker *w)
{
	await_release(w);
	CHECK_ERR(&w->v, switchto_wait(&no_time), ETIMEDOUT);
}

/* Refused before any effect, whether the target is parked or not, even with a resume pending. */
TEST(bad_time)
{
	struct sink parked = { 0 };
	struct worker running = { 0 };

	sink_start(&parked);
	worker_start(&running, takes_what_is_pending, NULL);
	CHECK_EQ(v, switchto_resume(gettid()), 0);
	FOR_EACH_TIMED_CALL (c) {
		for (unsigned int i = 0; i < sizeof(bad_times) / sizeof(bad_times[0]); i++) {
			CHECK_ERR(v, c->call(parked.w.tid, &bad_times[i]), EINVAL);
			CHECK_ERR(v, c->call(running.tid, &bad_times[i]), EINVAL);
		}
	}
	CHECK_EQ(v, switchto_wait(&no_time), gettid());
	worker_end(&running, v);
	CHECK_EQ(v, sink_stop(&parked, v), 0);
}

struct far {
	struct worker w;
	const struct timed_call *c;
	pid_t target;
	struct timespec time;
};

static void sleeps_long(struct worker *w)
{
	struct far *f = w->arg;

	CHECK_EQ(&w->v, f->c->call(f->target, &f->time), w->starter);
}

/* Further away than any clock goes is as good as for ever, and no overflow makes it now. */
TEST(very_far_away)
{
	const struct timespec far[] = {
		{ LONG_MAX, NSEC_PER_SEC - 1 },
		{ LONG_MAX / NSEC_PER_SEC, NSEC_PER_SEC - 1 },
		{ LONG_MAX / NSEC_PER_SEC - 1, 0 },
		{ INT_MAX, 0 },
	};
	struct sink s = { 0 };

	sink_start(&s);
	FOR_EACH_TIMED_CALL (c) {
		for (int i = 0; i < 4; i++) {
			struct far f = { .c = c, .target = s.w.tid, .time = far[i] };

			worker_start_parked(&f.w, sleeps_long, &f);
			CHECK_EQ(v, switchto_resume(f.w.tid), 0);
			workers_join(&f.w, 1, v);
		}
	}
	sink_stop(&s, v);
}

#ifndef UNDER_TSAN /* which does not know that a thread seen asleep has read it */
/* The caller may change or give up the timespec while the call sleeps. */
TEST(time_is_not_kept)
{
	struct sink s = { 0 };

	sink_start(&s);
	FOR_EACH_TIMED_CALL (c) {
		struct far f = { .c = c, .target = s.w.tid };

		f.time = from_now(c, 3600 * NSEC_PER_SEC);
		worker_start_parked(&f.w, sleeps_long, &f);
		f.time = bad_times[0];
		CHECK_EQ(v, switchto_resume(f.w.tid), 0);
		workers_join(&f.w, 1, v);
	}
	sink_stop(&s, v);
}
#endif

/*
 * A resume that meets the end of a timed wait is either what the call returns
 * or what the next one does. The next resume comes when this one was counted,
 * so none can become one with another, and the counts must agree.
 */
struct race {
	struct worker w;
	struct sink sink;
	const struct timed_call *c;
	_Atomic unsigned int seen, timeouts;
	atomic_bool over;
};

static void times_out_often(struct worker *w)
{
	struct race *r = w->arg;
	uint32_t seed = 3;
	pid_t got;

	while (!atomic_load(&r->over) && !atomic_load(&w->v.failed)) {
		struct timespec time = from_now(r->c, random_next(&seed) % 60000);

		errno = 0;
		got = r->c->call(r->sink.w.tid, &time);
		if (got == w->starter) {
			atomic_fetch_add(&r->seen, 1);
		} else {
			CHECK(&w->v, got == -1 && errno == ETIMEDOUT);
			atomic_fetch_add(&r->timeouts, 1);
		}
	}
	CHECK_ERR(&w->v, switchto_wait(&no_time), ETIMEDOUT);
}

TEST(resume_races_with_timeout)
{
	uint32_t seed = 11;

	FOR_EACH_TIMED_CALL (c) {
		struct race r = { .c = c };
		unsigned int resumes, returns;

		sink_start(&r.sink);
		worker_start(&r.w, times_out_often, &r);
		for (resumes = 0;
		     resumes < (unsigned int)LOOPS(800) && !atomic_load(&r.w.v.failed);) {
			unsigned int before = atomic_load(&r.timeouts);

			/* Half of them right after a wait has begun anew. */
			if (resumes & 1)
				AWAIT(atomic_load(&r.timeouts) != before ||
				      atomic_load(&r.w.v.failed));
			random_delay(&seed, 30000);
			CHECK_EQ(v, switchto_resume(r.w.tid), 0);
			resumes++;
			AWAIT(atomic_load(&r.seen) >= resumes || atomic_load(&r.w.v.failed));
		}
		atomic_store(&r.over, true);
		workers_join(&r.w, 1, v);
		CHECK_EQ(v, atomic_load(&r.seen), resumes);
		CHECK(v, atomic_load(&r.timeouts) >= resumes / 2);
		returns = sink_stop(&r.sink, v);
		if (c->switches)
			CHECK(v, returns > 0 && returns <= r.seen + r.timeouts);
		else
			CHECK_EQ(v, returns, 0);
	}
}

/*
 * Wake-ups that are nobody's resume, as a futex may have them: no call returns for
 * one, and a deadline is neither passed early nor moved by any number of them.
 */
#define STRAY_TIME (2 * NSEC_PER_SEC)

struct strayed {
	struct worker w;
	struct sink sink;
	const struct timed_call *c; /* NULL: for ever */
	long long began;
	_Atomic long long ended;
	bool switches;
};

static void sleeps_through(struct worker *w)
{
	struct strayed *s = w->arg;
	struct timespec time;

	if (!s->c) {
		CHECK_EQ(&w->v, s->switches ? switchto_switch(s->sink.w.tid) : switchto_wait(NULL),
			 w->starter);
		return;
	}
	s->began = now_ns();
	time = to_timespec(STRAY_TIME + (s->c->absolute ? s->began : 0));
	CHECK_ERR(&w->v, s->c->call(s->sink.w.tid, &time), ETIMEDOUT);
	atomic_store(&s->ended, now_ns());
}

static void wake_nobody(void *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

TEST(stray_wake_ups)
{
	struct strayed s[6] = { 0 };
	long long until;
	void *words[6];

	for (int i = 0; i < 6; i++) {
		s[i].c = i < 4 ? &timed_calls[i] : NULL;
		s[i].switches = i < 4 ? s[i].c->switches : i == 5;
		sink_start(&s[i].sink);
		worker_start(&s[i].w, sleeps_through, &s[i]);
		words[i] = parked_on(s[i].w.tid);
	}
	/* Were each wake-up to begin it anew, it would not end. */
	until = now_ns() + 60 * NSEC_PER_SEC;
	for (int ended = 0; ended < 4 && now_ns() < until;) {
		const struct timespec nap = { 0, 300000 };

		if (atomic_load(&s[ended].ended)) {
			ended++;
			continue;
		}
		for (int i = 0; i < 6; i++)
			wake_nobody(words[i]);
		nanosleep(&nap, NULL);
	}
	for (int i = 4; i < 6; i++) {
		await_parked(s[i].w.tid);
		CHECK_EQ(v, switchto_resume(s[i].w.tid), 0);
	}
	for (int i = 0; i < 6; i++) {
		workers_join(&s[i].w, 1, v);
		CHECK_EQ(v, sink_stop(&s[i].sink, v), s[i].switches);
	}
	for (int i = 0; i < 4; i++) {
		CHECK(v, s[i].ended - s[i].began >= STRAY_TIME);
		CHECK(v, s[i].ended < until);
	}
}
