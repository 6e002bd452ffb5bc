// SPDX-License-Identifier: MIT
/* Threads that switch to each other, in every order in which the steps can meet. */
#include "suite.h"

#define TEN_MS (NSEC_PER_SEC / 100)

static void waits_for_starter(struct worker *w)
{
	CHECK_EQ(&w->v, switchto_wait(NULL), w->starter);
	CHECK_ERR(&w->v, switchto_wait(&no_time), ETIMEDOUT);
}

TEST(block_resume)
{
	struct worker w = { 0 };

	worker_start_parked(&w, waits_for_starter, NULL);
	CHECK_EQ(v, switchto_resume(w.tid), 0);
	workers_join(&w, 1, v);
}

/* Registered, and resumed before it waits: there is nothing to wait for, so no time passes. */
static void registered_then_waits(struct worker *w)
{
	atomic_bool *resumed = w->arg;

	CHECK_EQ(&w->v, switchto_self(), w->tid);
	worker_release(w);
	AWAIT(atomic_load(resumed));
	CHECK_EQ(&w->v, switchto_wait(&no_time), w->starter);
	CHECK_ERR(&w->v, switchto_wait(&no_time), ETIMEDOUT);
}

TEST(resume_block)
{
	struct worker w = { 0 };
	atomic_bool resumed = false;

	worker_start(&w, registered_then_waits, &resumed);
	await_release(&w);
	CHECK_EQ(v, switchto_resume(w.tid), 0);
	atomic_store(&resumed, true);
	workers_join(&w, 1, v);
}

struct meeting {
	struct worker w[2];
	_Atomic unsigned int arrived;
	unsigned int rounds;
	bool timed;
};

static void switches_to_other(struct worker *w)
{
	struct meeting *m = w->arg;
	unsigned int me = (unsigned int)(w - m->w);
	const struct timespec long_time = { 3600, 0 };
	uint32_t seed = me + 1;
	pid_t other;

	AWAIT(atomic_load(&m->w[!me].tid));
	other = m->w[!me].tid;
	for (unsigned int i = 1; i <= m->rounds; i++) {
		atomic_fetch_add(&m->arrived, 1);
		AWAIT(atomic_load(&m->arrived) >= 2 * i);
		random_delay(&seed, 300);
		CHECK_EQ(&w->v,
			 m->timed && (i & 1) ? switchto_switch_timed(other, &long_time) :
					       switchto_switch(other),
			 other);
	}
	CHECK_ERR(&w->v, switchto_wait(&no_time), ETIMEDOUT);
}

static void swap_swap_rounds(struct verdict *v, bool timed)
{
	struct meeting m = { .rounds = LOOPS(5000), .timed = timed };

	worker_start(&m.w[0], switches_to_other, &m);
	worker_start(&m.w[1], switches_to_other, &m);
	workers_join(m.w, 2, v);
	verdict_assert(v);
}

TEST(swap_swap)
{
	swap_swap_rounds(v, false);
}

TEST(swap_swap_timed)
{
	swap_swap_rounds(v, true);
}

struct switcher {
	pid_t target;
	pid_t expected;
};

static void switches_once(struct worker *w)
{
	struct switcher *s = w->arg;

	CHECK_EQ(&w->v, switchto_switch(s->target), s->expected);
	CHECK_ERR(&w->v, switchto_wait(&no_time), ETIMEDOUT);
}

/* A is parked; B switches to it; then A is where B's return comes from. */
static void answers_with_resume(struct worker *w)
{
	pid_t from = switchto_wait(NULL);

	CHECK(&w->v, from > 0 && from != w->starter);
	await_parked(from);
	CHECK_EQ(&w->v, switchto_resume(from), 0);
}

TEST(block_swap_resume)
{
	struct worker w[2] = { 0 };
	struct switcher s;

	worker_start_parked(&w[0], answers_with_resume, NULL);
	s = (struct switcher){ w[0].tid, w[0].tid };
	worker_start(&w[1], switches_once, &s);
	workers_join(w, 2, v);
}

static void switches_when_released(struct worker *w)
{
	await_release(w);
	switches_once(w);
}

/* A resume is pending for A; A switches to B: does not sleep, and B is woken all the same. */
TEST(resume_swap_block)
{
	struct sink b = { 0 };
	struct worker a = { 0 };
	struct switcher s;

	sink_start(&b);
	s = (struct switcher){ b.w.tid, gettid() };
	worker_start(&a, switches_when_released, &s);
	CHECK_EQ(v, switchto_resume(a.tid), 0);
	worker_end(&a, v);
	AWAIT(atomic_load(&b.returns) == 1);
	CHECK_EQ(v, b.last, a.tid);
	CHECK_EQ(v, sink_stop(&b, v), 1);
}

static void times_out(struct worker *w)
{
	const struct timespec time = to_timespec(TEN_MS);
	long long before = now_ns();

	CHECK_ERR(&w->v, switchto_wait(&time), ETIMEDOUT);
	CHECK(&w->v, now_ns() - before >= TEN_MS);
	worker_release(w);
	CHECK_EQ(&w->v, switchto_wait(NULL), w->starter);
}

/* After a wait that timed out the next one is as good as the first. */
TEST(block_timeout)
{
	struct worker w = { 0 };

	worker_start(&w, times_out, NULL);
	await_release(&w);
	await_parked(w.tid);
	CHECK_EQ(v, switchto_resume(w.tid), 0);
	workers_join(&w, 1, v);
}

/* A is parked; B switches to it with a timeout, and nobody comes back. */
TEST(block_swap_timeout)
{
	const struct timespec time = to_timespec(TEN_MS);
	struct sink a = { 0 };
	long long before;

	sink_start(&a);
	before = now_ns();
	CHECK_ERR(v, switchto_switch_timed(a.w.tid, &time), ETIMEDOUT);
	CHECK(v, now_ns() - before >= TEN_MS);
	AWAIT(atomic_load(&a.returns) == 1);
	CHECK_EQ(v, a.last, gettid());
	/* A resume that comes too late for the switch is there for the next wait. */
	CHECK_EQ(v, switchto_resume(gettid()), 0);
	CHECK_EQ(v, switchto_wait(NULL), gettid());
	CHECK_EQ(v, sink_stop(&a, v), 1);
}

static void times_out_then_answers(struct worker *w)
{
	const struct timespec time = to_timespec(TEN_MS);
	pid_t from;

	CHECK_ERR(&w->v, switchto_wait(&time), ETIMEDOUT);
	worker_release(w);
	AWAIT(is_parked(w->starter));
	from = switchto_wait(&no_time);
	CHECK_EQ(&w->v, from, w->starter);
	CHECK_EQ(&w->v, switchto_resume(w->starter), 0);
}

/* A's wait has timed out; B switches to it: the resume is pending, A answers. */
TEST(block_timeout_swap)
{
	struct worker a = { 0 };

	worker_start(&a, times_out_then_answers, NULL);
	await_release(&a);
	CHECK_EQ(v, switchto_switch(a.tid), a.tid);
	workers_join(&a, 1, v);
}

/*
 * Tokens that wander between more threads than there are CPUs, by all calls in
 * random order and with random delays. A wake-up that gets lost stops them for
 * ever; one that is doubled or made up shows as a return too many.
 */
#define STRESS_THREADS 6
#define STRESS_TOKENS 3

struct stress {
	struct worker w[STRESS_THREADS];
	struct {
		_Atomic unsigned int tokens;
		_Atomic unsigned int resumes;
	} box[STRESS_THREADS];
	_Atomic unsigned int hops;
	unsigned int limit;
	atomic_bool over;
};

static bool stress_owns(const struct stress *s, pid_t tid)
{
	for (unsigned int i = 0; i < STRESS_THREADS; i++)
		if (s->w[i].tid == tid)
			return true;
	return false;
}

static pid_t stress_leave(struct stress *s, unsigned int to, uint32_t *seed)
{
	const struct timespec time = to_timespec(random_next(seed) % 100000);
	pid_t tid = s->w[to].tid;

	random_delay(seed, 200);
	switch (random_next(seed) % 4) {
	case 0:
		return switchto_switch(tid);
	case 1:
		return switchto_switch_timed(tid, &time);
	case 2:
		return switchto_resume(tid) ? -1 : switchto_wait(NULL);
	default:
		return switchto_resume(tid) ? -1 : switchto_wait(&time);
	}
}

static void stress_body(struct worker *w)
{
	struct stress *s = w->arg;
	unsigned int me = (unsigned int)(w - s->w), to, held, returns = 0;
	uint32_t seed = 7919 * (me + 1);
	pid_t from;

	await_release(w);
	for (;;) {
		held = atomic_exchange(&s->box[me].tokens, 0);
		if (!held) {
			from = switchto_wait(NULL);
		} else {
			for (;;) {
				to = (me + 1 + random_next(&seed) % (STRESS_THREADS - 1)) %
				     STRESS_THREADS;
				if (atomic_fetch_add(&s->hops, 1) == s->limit)
					goto over;
				atomic_fetch_add(&s->box[to].tokens, 1);
				atomic_fetch_add(&s->box[to].resumes, 1);
				if (!--held)
					break;
				/* At the end it may be gone. */
				CHECK(&w->v,
				      switchto_resume(s->w[to].tid) == 0 || atomic_load(&s->over));
			}
			from = stress_leave(s, to, &seed);
		}

		if (atomic_load(&s->over))
			return;
		if (from == -1) {
			CHECK_EQ(&w->v, errno, ETIMEDOUT);
			continue;
		}
		CHECK(&w->v, stress_owns(s, from));
		CHECK(&w->v, ++returns <= atomic_load(&s->box[me].resumes));
	}

over:
	atomic_store(&s->over, true);
	for (to = 0; to < STRESS_THREADS; to++)
		switchto_resume(s->w[to].tid);
}

TEST(stress_loop)
{
	struct stress s = { .limit = LOOPS(40000) };

	for (unsigned int i = 0; i < STRESS_THREADS; i++)
		worker_start(&s.w[i], stress_body, &s);
	for (unsigned int i = 0; i < STRESS_TOKENS; i++)
		atomic_store(&s.box[i].tokens, 1);
	for (unsigned int i = 0; i < STRESS_THREADS; i++)
		worker_release(&s.w[i]);
	workers_join(s.w, STRESS_THREADS, v);
}

#define RING_THREADS 8

struct ring {
	struct worker w[RING_THREADS];
	/* Plain: what one holder of the token writes, the next must see. */
	unsigned int passed;
	unsigned int limit;
};

static void ring_body(struct worker *w)
{
	struct ring *r = w->arg;
	unsigned int me = (unsigned int)(w - r->w),
		     previous = (me + RING_THREADS - 1) % RING_THREADS;
	struct worker *next = &r->w[(me + 1) % RING_THREADS];
	pid_t from = switchto_wait(NULL);

	if (me == 0)
		CHECK_EQ(&w->v, from, w->starter);
	for (;;) {
		if (r->passed == r->limit)
			break;
		CHECK_EQ(&w->v, r->passed % RING_THREADS, me);
		r->passed++;
		from = switchto_switch(next->tid);
		CHECK_EQ(&w->v, from, r->w[previous].tid);
	}
	/* All others are parked, or gone through here before. */
	switchto_resume(next->tid);
}

TEST(ring)
{
	struct ring r = { .limit = LOOPS(20000) };

	for (unsigned int i = 0; i < RING_THREADS; i++)
		worker_start(&r.w[i], ring_body, &r);
	for (unsigned int i = 0; i < RING_THREADS; i++)
		await_parked(r.w[i].tid);
	CHECK_EQ(v, switchto_resume(r.w[0].tid), 0);
	workers_join(r.w, RING_THREADS, v);
	CHECK_EQ(v, r.passed, r.limit);
}

/*
 * Two threads resume a third, which learns from nothing but its one return that
 * both have. Their data is plain, and the flags that say "done" order nothing:
 * what makes it visible can only be the resume, also the one whose TID was
 * replaced by the other's. On x86 any order of stores is kept; TSan knows better.
 */
struct merged {
	struct worker w[2];
	unsigned int data[2];
	_Atomic unsigned int go;
	_Atomic unsigned int done[2];
	unsigned int rounds;
};

static void writes_and_resumes(struct worker *w)
{
	struct merged *m = w->arg;
	unsigned int me = (unsigned int)(w - m->w);

	for (unsigned int i = 1; i <= m->rounds; i++) {
		AWAIT(atomic_load(&m->go) == i);
		m->data[me] = i;
		CHECK_EQ(&w->v, switchto_resume(w->starter), 0);
		atomic_store_explicit(&m->done[me], i, memory_order_relaxed);
	}
}

TEST(merged_resumes_order_memory)
{
	struct merged m = { .rounds = LOOPS(8000) };

	worker_start(&m.w[0], writes_and_resumes, &m);
	worker_start(&m.w[1], writes_and_resumes, &m);
	for (unsigned int i = 1; i <= m.rounds; i++) {
		pid_t from;

		atomic_store(&m.go, i);
		AWAIT(atomic_load_explicit(&m.done[0], memory_order_relaxed) == i &&
		      atomic_load_explicit(&m.done[1], memory_order_relaxed) == i);
		from = switchto_wait(&no_time);
		CHECK(v, from == m.w[0].tid || from == m.w[1].tid);
		CHECK_EQ(v, m.data[0], i);
		CHECK_EQ(v, m.data[1], i);
		CHECK_ERR(v, switchto_wait(&no_time), ETIMEDOUT);
	}
	workers_join(m.w, 2, v);
}

/* Each of two threads counts up and resumes; a return must show the count before it. */
struct counters {
	struct worker w[2];
	_Atomic unsigned int count[2];
	_Atomic unsigned int seen[2];
	unsigned int limit;
};

static void counts_and_resumes(struct worker *w)
{
	struct counters *c = w->arg;
	unsigned int me = (unsigned int)(w - c->w);
	uint32_t seed = me + 1;

	for (unsigned int i = 1; i <= c->limit; i++) {
		atomic_store_explicit(&c->count[me], i, memory_order_relaxed);
		random_delay(&seed, 100);
		CHECK_EQ(&w->v, switchto_resume(w->starter), 0);
		/* Only the reader's own word can tell that it has looked: no lost wake-up. */
		AWAIT(atomic_load_explicit(&c->seen[me], memory_order_relaxed) == i);
	}
}

TEST(every_resume_is_answered)
{
	struct counters c = { .limit = LOOPS(10000) };
	unsigned int answered = 0;

	worker_start(&c.w[0], counts_and_resumes, &c);
	worker_start(&c.w[1], counts_and_resumes, &c);
	while (answered < 2 * c.limit) {
		pid_t from = switchto_wait(NULL);
		unsigned int news = 0;

		CHECK(v, from == c.w[0].tid || from == c.w[1].tid);
		for (unsigned int i = 0; i < 2; i++) {
			unsigned int count = atomic_load_explicit(&c.count[i],
								  memory_order_relaxed);

			news += count - c.seen[i];
			atomic_store_explicit(&c.seen[i], count, memory_order_relaxed);
		}
		answered += news;
	}
	workers_join(c.w, 2, v);
	/* The data of a resume may be seen before the resume itself. */
	switchto_wait(&no_time);
}

/*
 * Two threads that switch to the same one at the same time: it has one return or
 * two, by one or the other of them, and both sleep until they are resumed.
 */
struct crossing {
	struct worker w[2];
	struct sink target;
	_Atomic unsigned int arrived;
	unsigned int rounds;
};

static void switches_to_target(struct worker *w)
{
	struct crossing *c = w->arg;
	uint32_t seed = 1 + (uint32_t)(w - c->w);

	for (unsigned int i = 1; i <= c->rounds; i++) {
		atomic_fetch_add(&c->arrived, 1);
		AWAIT(atomic_load(&c->arrived) >= 2 * i);
		random_delay(&seed, 300);
		CHECK_EQ(&w->v, switchto_switch(c->target.w.tid), w->starter);
	}
	CHECK_ERR(&w->v, switchto_wait(&no_time), ETIMEDOUT);
}

TEST(two_switch_to_one)
{
	struct crossing c = { .rounds = LOOPS(200) };
	unsigned int before = 0, after;

	sink_start(&c.target);
	worker_start(&c.w[0], switches_to_target, &c);
	worker_start(&c.w[1], switches_to_target, &c);
	for (unsigned int i = 1; i <= c.rounds; i++) {
		AWAIT(atomic_load(&c.arrived) >= 2 * i);
		await_parked(c.w[0].tid);
		await_parked(c.w[1].tid);
		await_parked(c.target.w.tid);
		after = atomic_load(&c.target.returns);
		CHECK(v, after == before + 1 || after == before + 2);
		CHECK(v, c.target.last == c.w[0].tid || c.target.last == c.w[1].tid);
		before = after;
		CHECK_EQ(v, switchto_resume(c.w[0].tid), 0);
		CHECK_EQ(v, switchto_resume(c.w[1].tid), 0);
	}
	workers_join(c.w, 2, v);
	sink_stop(&c.target, v);
}

/*
 * Where the target may not run on the caller's CPU it runs elsewhere: two threads
 * on CPUs of their own, which change places while they are parked.
 */
struct places {
	struct worker w[2];
	int cpu[2];
	unsigned int rounds;
};

static void stays_on_its_cpu(struct worker *w)
{
	struct places *p = w->arg;
	unsigned int me = (unsigned int)(w - p->w);
	pid_t other;

	pin_to(0, p->cpu[me]);
	AWAIT(atomic_load(&p->w[!me].tid));
	other = p->w[!me].tid;
	if (me == 1)
		CHECK_EQ(&w->v, switchto_wait(NULL), other);
	for (unsigned int i = 0; i < p->rounds; i++) {
		CHECK_EQ(&w->v, sched_getcpu(), p->cpu[me]);
		if (me == 1 && i == p->rounds - 1) {
			CHECK_EQ(&w->v, switchto_resume(other), 0);
			return;
		}
		CHECK_EQ(&w->v, switchto_switch(other), other);
	}
}

TEST_IN(two_cpus, affinity_excludes_this_cpu)
{
	struct places p = { .rounds = LOOPS(2000) };

	two_cpus(p.cpu);
	worker_start(&p.w[1], stays_on_its_cpu, &p);
	worker_start(&p.w[0], stays_on_its_cpu, &p);
	workers_join(p.w, 2, v);
}

static void wakes_on_its_cpu(struct worker *w)
{
	struct places *p = w->arg;
	pid_t from;

	for (unsigned int i = 0; i < p->rounds; i++) {
		pin_to(0, p->cpu[i & 1]);
		/* Parked on one CPU, and moved to the other before it is woken. */
		from = switchto_wait(NULL);
		CHECK(&w->v, from > 0);
		CHECK_EQ(&w->v, sched_getcpu(), p->cpu[!(i & 1)]);
		CHECK_EQ(&w->v, switchto_resume(from), 0);
	}
}

static void moves_and_switches(struct worker *w)
{
	struct places *p = w->arg;
	pid_t other = p->w[1].tid;

	for (unsigned int i = 0; i < p->rounds; i++) {
		pin_to(0, p->cpu[i & 1]);
		await_parked(other);
		pin_to(other, p->cpu[!(i & 1)]);
		CHECK_EQ(&w->v, switchto_switch(other), other);
		CHECK_EQ(&w->v, sched_getcpu(), p->cpu[i & 1]);
	}
}

TEST_IN(two_cpus, affinity_changes_while_parked)
{
	struct places p = { .rounds = LOOPS(200) };

	two_cpus(p.cpu);
	worker_start(&p.w[1], wakes_on_its_cpu, &p);
	worker_start(&p.w[0], moves_and_switches, &p);
	workers_join(p.w, 2, v);
}
