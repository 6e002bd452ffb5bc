// SPDX-License-Identifier: MIT
/*
 * The windows of the protocol, one by one: a thread is held up between two of its
 * atomic steps (delay.h), something comes in between, it goes on. What the torture
 * meets by chance is arranged here, and what is owed is certain.
 */
#include "delay.h"
#include "pair.h"
#include "set_tid.h"
#include "core/thread.h"

#include <switchto/switchto.h>

/* --- who is held up, and where ---------------------------------------------------- */

/* One passage of one thread: the others, and its later ones, are free. */
struct hold {
	_Atomic pid_t tid; /* 0: of nobody */
	_Atomic int where;
	atomic_bool taken, arrived, open;
	/*
	 * To be cancelled there, asleep: the runtime of a sanitizer may have a lock
	 * while it does anything else.
	 */
	atomic_bool for_good;
	/* To fork there and go on in both processes. The child, 0 in the child. */
	atomic_bool forks;
	_Atomic pid_t child;
};

static struct hold holds[4];

void switchto_delay_point(enum switchto_delay where)
{
	int saved = errno;

	for (struct hold *h = holds; h < holds + 4; h++) {
		if (atomic_load(&h->tid) != gettid() || atomic_load(&h->where) != (int)where ||
		    atomic_exchange(&h->taken, true))
			continue;
		if (atomic_load(&h->for_good)) {
			atomic_store(&h->arrived, true);
			for (;;)
				syscall(SYS_ppoll, NULL, 0, NULL, NULL);
		}
		if (atomic_load(&h->forks)) {
			atomic_store(&h->child, fork());
			continue;
		}
		atomic_store(&h->arrived, true);
		AWAIT(atomic_load(&h->open));
	}
	errno = saved;
}

static struct hold *hold(unsigned int which, pid_t tid, enum switchto_delay where)
{
	struct hold *h = &holds[which];

	atomic_store(&h->tid, 0);
	atomic_store(&h->where, (int)where);
	atomic_store(&h->taken, false);
	atomic_store(&h->arrived, false);
	atomic_store(&h->open, false);
	atomic_store(&h->for_good, false);
	atomic_store(&h->forks, false);
	atomic_store(&h->tid, tid);
	return h;
}

static void await_held(struct hold *h)
{
	AWAIT(atomic_load(&h->arrived));
}

static void let_go(struct hold *h)
{
	atomic_store(&h->open, true);
}

/* Released, and held up at @where. */
static struct hold *held_up(struct worker *w, enum switchto_delay where)
{
	struct hold *h = hold(0, w->tid, where);

	worker_release(w);
	await_held(h);
	return h;
}

static int setup(void **state)
{
	watchdog_start(test_name(state));
	for (unsigned int i = 0; i < 4; i++)
		hold(i, 0, 0);
	return 0;
}

/* Parked by the library: a sanitizer's runtime sleeps in futexes, too. */
static bool waits(pid_t tid)
{
	return (atomic_load(&thread_of(tid)->word) & WORD_STATE) == WAITING && is_parked(tid);
}

static void sink_waits(struct sink *s)
{
	sink_start(s);
	AWAIT(waits(s->w.tid));
}

/* --- who acts --------------------------------------------------------------------- */

/* What the acting thread does when it is released, and what came of it. */
enum act { RESUME, SWITCH_TIMED, SWITCH_PLAIN, WAIT_PLAIN, WAIT_TIMED, ACTS };

struct actor {
	struct worker w;
	enum act act;
	pid_t target;
	atomic_bool registered, done;
	long result;
	int error;
	bool more; /* a resume was left over */
};

static const struct timespec moment = { 0, 2000000 };

static void acts(struct worker *w)
{
	struct actor *a = w->arg;

	CHECK_EQ(&w->v, switchto_self(), gettid());
	atomic_store(&a->registered, true);
	await_release(w);
	errno = 0;
	switch (a->act) {
	case RESUME:
		a->result = switchto_resume(a->target);
		break;
	case SWITCH_TIMED:
		a->result = switchto_switch_timed(a->target, &moment);
		break;
	case SWITCH_PLAIN:
		a->result = switchto_switch(a->target);
		break;
	case WAIT_PLAIN:
		a->result = switchto_wait(NULL);
		break;
	case WAIT_TIMED:
		a->result = switchto_wait(&moment);
		break;
	case ACTS:
		break;
	}
	a->error = errno;
	atomic_store(&a->done, true);
	a->more = switchto_wait(&no_time) > 0;
}

/* Registered, and standing before its act. */
static void actor_start(struct actor *a, enum act act, pid_t target)
{
	*a = (struct actor){ .act = act, .target = target };
	worker_start(&a->w, acts, a);
	AWAIT(atomic_load(&a->registered));
}

/* Has the resume been given? A plain switch waits if so, and is ended here. */
static bool actor_gave(struct actor *a, struct verdict *v)
{
	if (a->act == SWITCH_PLAIN) {
		AWAIT(atomic_load(&a->done) || waits(a->w.tid));
		if (!atomic_load(&a->done))
			CHECK_EQ(v, switchto_resume(a->w.tid), 0);
	}
	workers_join(&a->w, 1, v);
	CHECK(v, !a->more);
	if (a->result == -1 && a->error == ESRCH)
		return false;
	if (a->act == RESUME)
		CHECK_EQ(v, a->result, 0);
	else if (a->act == SWITCH_TIMED)
		CHECK(v, a->result == -1 && a->error == ETIMEDOUT);
	else
		CHECK_EQ(v, a->result, gettid());
	return true;
}

/* A thread with the TID in question: when it registers is for the test to say. */
struct owner {
	struct worker w;
	bool waits;   /* once it is registered, for one resume */
	bool lingers; /* registered no more, in a destructor of the program's */
	atomic_bool begin, registered, end, forgotten, gone;
	_Atomic pid_t first; /* what its wait returned */
};

static pthread_key_t last_key;

static void last_words(void *arg)
{
	struct owner *o = arg;

	atomic_store(&o->forgotten, true);
	AWAIT(atomic_load(&o->gone));
}

static void owns(struct worker *w)
{
	struct owner *o = w->arg;

	AWAIT(atomic_load(&o->begin) || atomic_load(&o->end));
	if (atomic_load(&o->begin)) {
		CHECK_EQ(&w->v, switchto_self(), gettid());
		atomic_store(&o->registered, true);
		if (o->waits)
			atomic_store(&o->first, switchto_wait(NULL));
	}
	AWAIT(atomic_load(&o->end));
	if (o->lingers)
		pthread_setspecific(last_key, o);
}

static void owner_registers(struct owner *o)
{
	atomic_store(&o->begin, true);
	AWAIT(atomic_load(&o->registered));
	if (o->waits)
		AWAIT(waits(o->w.tid));
}

static void owner_ends(struct owner *o, struct verdict *v)
{
	if (o->waits && !atomic_load(&o->first))
		CHECK_EQ(v, switchto_resume(o->w.tid), 0);
	atomic_store(&o->end, true);
	workers_join(&o->w, 1, v);
}

/* The next owner: looks whether there is something for it when it is told to. */
struct heir {
	struct worker w;
	bool registered, waits; /* before that */
	atomic_bool ready, returned;
	pid_t got;
};

static void inherits(struct worker *w)
{
	struct heir *h = w->arg;

	if (h->registered)
		CHECK_EQ(&w->v, switchto_self(), gettid());
	atomic_store(&h->ready, true);
	if (h->waits) {
		h->got = switchto_wait(NULL);
		atomic_store(&h->returned, true);
	} else {
		await_release(w);
		h->got = switchto_wait(&no_time);
	}
	CHECK_ERR(&w->v, switchto_wait(&no_time), ETIMEDOUT);
}

static void heir_start(struct heir *h, pid_t tid)
{
	start_as(tid, &h->w, inherits, h);
	AWAIT(atomic_load(&h->ready));
	if (h->waits)
		AWAIT(waits(tid));
}

/* It has got one resume, by @from, or none. */
static void heir_has(struct heir *h, bool one, pid_t from, struct verdict *v)
{
	if (h->waits && one)
		AWAIT(atomic_load(&h->returned));
	else if (h->waits)
		CHECK_EQ(v, switchto_resume(h->w.tid), 0);
	worker_end(&h->w, v);
	CHECK_EQ(v, h->got, one ? from : h->waits ? gettid() : -1);
}

static void succeed(struct owner *former, struct heir *heir, struct verdict *v)
{
	owner_ends(former, v);
	heir_start(heir, former->w.tid);
}

/* @act of @a on @former, which is held up at @where. */
static struct hold *held_at(struct actor *a, enum act act, const struct owner *former,
			    enum switchto_delay where)
{
	actor_start(a, act, former->w.tid);
	return held_up(&a->w, where);
}

/* The same, and @heir has the TID by the time that it goes on. Did it give the resume? */
static bool inherited_at(enum act act, struct owner *former, struct heir *heir,
			 enum switchto_delay where, pid_t *by, struct verdict *v)
{
	struct actor actor;
	struct hold *h = held_at(&actor, act, former, where);

	*by = actor.w.tid;
	succeed(former, heir, v);
	let_go(h);
	return actor_gave(&actor, v);
}

/* --- a TID changes hands in the middle of a resume ---------------------------------- */

/*
 * @act of a registered owner, held up after its word was read. But for a plain switch, which
 * looks once more at who has the TID, that is for the former owner: ESRCH.
 */
static void owner_changes_after_its_word(struct verdict *v, enum act act, bool waits,
					 bool heir_waits)
{
	struct owner former = { .waits = waits };
	struct heir heir = { .registered = true, .waits = heir_waits };
	bool gave;
	pid_t by;

	worker_start(&former.w, owns, &former);
	owner_registers(&former);
	gave = inherited_at(act, &former, &heir, SWITCHTO_DELAY_SEEN, &by, v);
	heir_has(&heir, gave, by, v);
	if (act != SWITCH_PLAIN)
		CHECK(v, !gave);
	verdict_assert(v);
}

TEST_IN(tids, owner_changes_after_its_word_was_read)
{
	for (enum act act = RESUME; act <= SWITCH_PLAIN; act++)
		for (int i = 0; i < 4; i++)
			owner_changes_after_its_word(v, act, i & 1, i & 2);
}

/* The same of an owner that isn't registered, at each step of what is done for one. */
static void unregistered_owner_changes(struct verdict *v, enum act act, enum switchto_delay where,
				       bool registered, bool waits)
{
	struct owner former = { 0 };
	struct heir heir = { .registered = registered, .waits = waits };
	bool gave;
	pid_t by;

	worker_start(&former.w, owns, &former);
	gave = inherited_at(act, &former, &heir, where, &by, v);
	/* Who it is had not been asked yet: then it is for whoever has the TID now. */
	heir_has(&heir, where == SWITCHTO_DELAY_EARLY_LIVES && gave, by, v);
	verdict_assert(v);
}

TEST_IN(tids, unregistered_owner_changes_amid_a_resume)
{
	static const enum switchto_delay points[] = { SWITCHTO_DELAY_EARLY_LIVES,
						      SWITCHTO_DELAY_EARLY_ASKED,
						      SWITCHTO_DELAY_EARLY_SEEN };

	for (enum act act = RESUME; act <= SWITCH_PLAIN; act++) {
		for (unsigned int i = 0; i < sizeof(points) / sizeof(points[0]); i++) {
			unregistered_owner_changes(v, act, points[i], false, false);
			unregistered_owner_changes(v, act, points[i], true, false);
			unregistered_owner_changes(v, act, points[i], true, true);
		}
	}
}

/*
 * And the new one, not registered either, has a resume of its own by the time that one goes
 * on: that is its, and what comes late must not take its place.
 */
TEST_IN(tids, heir_is_resumed_amid_a_resume)
{
	static const enum switchto_delay points[] = { SWITCHTO_DELAY_EARLY_ASKED,
						      SWITCHTO_DELAY_EARLY_SEEN };

	for (unsigned int i = 0; i < 4; i++) {
		struct owner former = { 0 };
		struct heir heir = { 0 };
		struct actor actor;
		struct hold *h;

		worker_start(&former.w, owns, &former);
		h = held_at(&actor, i & 2 ? SWITCH_TIMED : RESUME, &former, points[i & 1]);
		succeed(&former, &heir, v);
		CHECK_EQ(v, switchto_resume(heir.w.tid), 0);
		let_go(h);
		CHECK(v, !actor_gave(&actor, v));
		heir_has(&heir, true, gettid(), v);
		verdict_assert(v);
	}
}

/* @o registers in the middle of @act of @a on it, which is then held up at @where. */
static struct hold *registers_amid(struct owner *o, struct actor *a, enum act act,
				   enum switchto_delay where)
{
	struct hold *early, *late;

	worker_start(&o->w, owns, o);
	actor_start(a, act, o->w.tid);
	late = hold(1, a->w.tid, where);
	early = held_up(&a->w, SWITCHTO_DELAY_EARLY_ASKED);
	owner_registers(o);
	let_go(early);
	await_held(late);
	return late;
}

/*
 * Its word is the place then. @where: it is found so, or its word has been read
 * already. Then it ends, or doesn't.
 */
static void owner_registers_amid(struct verdict *v, enum act act, enum switchto_delay where,
				 bool waits, bool ends)
{
	struct owner former = { .waits = waits };
	struct heir heir = { .registered = true };
	struct actor actor;
	struct hold *late = registers_amid(&former, &actor, act, where);
	const pid_t by = actor.w.tid;
	bool gave;

	if (ends)
		succeed(&former, &heir, v);
	let_go(late);
	gave = actor_gave(&actor, v);
	CHECK_EQ(v, gave, !ends);
	if (ends) {
		heir_has(&heir, false, by, v);
	} else {
		if (waits) {
			AWAIT(atomic_load(&former.first));
			CHECK_EQ(v, former.first, by);
		}
		owner_ends(&former, v);
	}
	verdict_assert(v);
}

TEST_IN(tids, owner_registers_amid_a_resume)
{
	for (enum act act = RESUME; act <= SWITCH_PLAIN; act++) {
		for (int i = 0; i < 4; i++) {
			owner_registers_amid(v, act, SWITCHTO_DELAY_EARLY_CLOSED, i & 1, i & 2);
			owner_registers_amid(v, act, SWITCHTO_DELAY_EARLY_WORD, i & 1, i & 2);
		}
	}
}

/* It registers, and has ended by the time that it is looked at: no such thread. */
TEST(owner_comes_and_goes_amid_a_resume)
{
	struct owner owner = { .lingers = true };
	struct actor actor;
	struct hold *late;

	/* After the library's own key, so that this destructor runs after the library's. */
	switchto_self();
	assert_int_equal(pthread_key_create(&last_key, last_words), 0);
	late = registers_amid(&owner, &actor, RESUME, SWITCHTO_DELAY_EARLY_CLOSED);
	atomic_store(&owner.end, true);
	AWAIT(atomic_load(&owner.forgotten));
	let_go(late);
	CHECK(v, !actor_gave(&actor, v));
	atomic_store(&owner.gone, true);
	workers_join(&owner.w, 1, v);
	pthread_key_delete(last_key);
}

/* A thread that ends: a resume meanwhile may find it or not, the heir has nothing. */
TEST_IN(tids, resumed_while_it_ends)
{
	static const enum switchto_delay points[] = { SWITCHTO_DELAY_END_FORGOTTEN,
						      SWITCHTO_DELAY_END_EARLY };

	for (unsigned int i = 0; i < sizeof(points) / sizeof(points[0]); i++) {
		struct owner former = { 0 };
		struct heir heir = { 0 };
		struct hold *h;

		worker_start(&former.w, owns, &former);
		owner_registers(&former);
		h = hold(0, former.w.tid, points[i]);
		atomic_store(&former.end, true);
		await_held(h);
		CHECK(v, switchto_resume(former.w.tid) == 0 || errno == ESRCH);
		let_go(h);
		workers_join(&former.w, 1, v);
		heir_start(&heir, former.w.tid);
		heir_has(&heir, false, 0, v);
		verdict_assert(v);
	}
}

/* --- a thread registers ------------------------------------------------------------ */

static void registers(struct worker *w)
{
	CHECK_EQ(&w->v, switchto_self(), gettid());
	CHECK_EQ(&w->v, switchto_wait(NULL), w->starter);
	CHECK_ERR(&w->v, switchto_wait(&no_time), ETIMEDOUT);
}

static void gated(struct worker *w)
{
	await_release(w);
	registers(w);
}

/* A resume at each step, beside one of before or alone: it returns from one wait. */
TEST(resumed_while_it_begins)
{
	for (int point = SWITCHTO_DELAY_BEGIN_ASKED; point <= SWITCHTO_DELAY_BEGIN_EARLY; point++) {
		for (int early = 0; early < 2; early++) {
			struct worker w = { 0 };
			struct hold *h;

			/* They are passed only if there is one of before. */
			if (!early && point >= SWITCHTO_DELAY_BEGIN_CLOSED)
				continue;
			worker_start(&w, gated, NULL);
			if (early)
				CHECK_EQ(v, switchto_resume(w.tid), 0);
			h = held_up(&w, (enum switchto_delay)point);
			CHECK_EQ(v, switchto_resume(w.tid), 0);
			let_go(h);
			workers_join(&w, 1, v);
			verdict_assert(v);
		}
	}
}

/* For the code that asks who a thread is there are no descriptors left. */
static rlim_t descriptors;

static void take_descriptors(void)
{
	descriptors = set_limit(RLIMIT_NOFILE, 0);
}

static void give_descriptors_back(void)
{
	set_limit(RLIMIT_NOFILE, descriptors);
}

/* A resume comes after the look for one, and then nobody can tell whose it is: ours. */
TEST(resumed_and_no_descriptor_while_it_begins)
{
	struct worker w = { 0 };
	struct hold *h;

	worker_start(&w, gated, NULL);
	h = held_up(&w, SWITCHTO_DELAY_BEGIN_ASKED);
	CHECK_EQ(v, switchto_resume(w.tid), 0);
	take_descriptors();
	let_go(h);
	workers_join(&w, 1, v);
	give_descriptors_back();
}

/* The other way round: who resumes can't ask again whether it is still the same. */
TEST(registers_and_no_descriptor_amid_a_resume)
{
	struct owner owner = { 0 };
	struct actor actor;
	struct hold *late = registers_amid(&owner, &actor, RESUME, SWITCHTO_DELAY_EARLY_WORD);

	take_descriptors();
	let_go(late);
	workers_join(&actor.w, 1, v);
	give_descriptors_back();
	CHECK(v, actor.result == -1 && actor.error == ENOMEM);
	owner_ends(&owner, v);
}

/* --- a thread that waits -------------------------------------------------------------- */

/* A resume at each step of a wait, up to the one that would end it with an error. */
TEST(resumed_amid_a_wait)
{
	static const struct {
		enum act act;
		enum switchto_delay where;
	} cases[] = {
		{ WAIT_PLAIN, SWITCHTO_DELAY_GIVEN }, { WAIT_TIMED, SWITCHTO_DELAY_GIVEN },
		{ WAIT_PLAIN, SWITCHTO_DELAY_SLEEP }, { WAIT_TIMED, SWITCHTO_DELAY_SLEEP },
		{ WAIT_TIMED, SWITCHTO_DELAY_WOKEN }, { WAIT_TIMED, SWITCHTO_DELAY_GIVE_UP },
	};

	for (unsigned int i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct actor actor;
		struct hold *h;

		actor_start(&actor, cases[i].act, 0);
		h = held_up(&actor.w, cases[i].where);
		CHECK_EQ(v, switchto_resume(actor.w.tid), 0);
		let_go(h);
		workers_join(&actor.w, 1, v);
		CHECK_EQ(v, actor.result, gettid());
		CHECK(v, !actor.more);
		verdict_assert(v);
	}
}

/* The same of a switch, whose target is to be resumed and woken whatever happens. */
TEST(resumed_amid_a_switch)
{
	static const struct {
		enum act act;
		enum switchto_delay where;
	} cases[] = {
		{ SWITCH_PLAIN, SWITCHTO_DELAY_SEEN },	{ SWITCH_TIMED, SWITCHTO_DELAY_SEEN },
		{ SWITCH_PLAIN, SWITCHTO_DELAY_GIVEN }, { SWITCH_TIMED, SWITCHTO_DELAY_GIVEN },
		{ SWITCH_PLAIN, SWITCHTO_DELAY_SLEEP }, { SWITCH_TIMED, SWITCHTO_DELAY_SLEEP },
		{ SWITCH_TIMED, SWITCHTO_DELAY_WOKEN }, { SWITCH_TIMED, SWITCHTO_DELAY_GIVE_UP },
	};

	for (unsigned int i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct sink target = { 0 };
		struct actor actor;
		struct hold *h;
		pid_t by;

		sink_waits(&target);
		actor_start(&actor, cases[i].act, target.w.tid);
		by = actor.w.tid;
		h = held_up(&actor.w, cases[i].where);
		CHECK_EQ(v, switchto_resume(by), 0);
		let_go(h);
		workers_join(&actor.w, 1, v);
		CHECK_EQ(v, actor.result, gettid());
		CHECK(v, !actor.more);
		AWAIT(atomic_load(&target.returns) == 1);
		CHECK_EQ(v, atomic_load(&target.last), by);
		CHECK_EQ(v, sink_stop(&target, v), 1);
		verdict_assert(v);
	}
}

/* Both are in their switches before either has gone on: both come back, from each other. */
TEST(switches_cross)
{
	static const enum switchto_delay points[] = { SWITCHTO_DELAY_SEEN, SWITCHTO_DELAY_GIVEN };

	for (unsigned int i = 0; i < 4; i++) {
		const unsigned int first = i & 1;
		struct actor actor[2];
		struct hold *h[2];
		pid_t tid[2];

		for (int j = 0; j < 2; j++)
			actor_start(&actor[j], SWITCH_PLAIN, 0);
		for (int j = 0; j < 2; j++) {
			tid[j] = actor[j].w.tid;
			actor[j].target = actor[!j].w.tid;
			h[j] = hold((unsigned int)j, tid[j], points[i / 2]);
		}
		for (int j = 0; j < 2; j++)
			worker_release(&actor[j].w);
		for (int j = 0; j < 2; j++)
			await_held(h[j]);
		let_go(h[first]);
		let_go(h[!first]);
		for (int j = 0; j < 2; j++)
			workers_join(&actor[j].w, 1, v);
		for (int j = 0; j < 2; j++) {
			CHECK_EQ(v, actor[j].result, tid[!j]);
			CHECK(v, !actor[j].more);
		}
		verdict_assert(v);
	}
}

/* The first is about to sleep when it is switched to: that one comes back at once. */
TEST(switched_to_before_it_sleeps)
{
	struct actor first, second;
	struct hold *h;
	pid_t tid[2];

	actor_start(&second, SWITCH_PLAIN, 0);
	actor_start(&first, SWITCH_PLAIN, second.w.tid);
	tid[0] = first.w.tid;
	tid[1] = second.w.tid;
	second.target = tid[0];
	h = held_up(&first.w, SWITCHTO_DELAY_SLEEP);
	worker_end(&second.w, v);
	CHECK_EQ(v, second.result, tid[0]);
	CHECK(v, !second.more);
	let_go(h);
	workers_join(&first.w, 1, v);
	CHECK_EQ(v, first.result, tid[1]);
	CHECK(v, !first.more);
}

/* Two resumes before the first has been taken are one, by the later one. */
TEST(resumed_again_before_it_is_taken)
{
	struct actor waiter, resumer;
	struct hold *h;

	actor_start(&waiter, WAIT_PLAIN, 0);
	actor_start(&resumer, RESUME, waiter.w.tid);
	h = hold(0, waiter.w.tid, SWITCHTO_DELAY_TAKE);
	worker_release(&waiter.w);
	worker_end(&resumer.w, v);
	CHECK_EQ(v, resumer.result, 0);
	await_held(h);
	CHECK_EQ(v, switchto_resume(waiter.w.tid), 0);
	let_go(h);
	workers_join(&waiter.w, 1, v);
	CHECK_EQ(v, waiter.result, gettid());
	CHECK(v, !waiter.more);
}

static void nothing(int signal) {}

/* A wake-up so late that its resume has been taken, and its target waits for the next. */
TEST(wakes_late)
{
	struct sink target = { 0 };
	struct actor resumer;
	struct hold *h;
	pid_t by;

	set_handler(SIGUSR1, nothing);
	sink_waits(&target);
	actor_start(&resumer, RESUME, target.w.tid);
	by = resumer.w.tid;
	h = held_up(&resumer.w, SWITCHTO_DELAY_WAKE);
	/* Asleep still, until a signal has it look. */
	CHECK_EQ(v, atomic_load(&target.returns), 0);
	pthread_kill(target.w.thread, SIGUSR1);
	AWAIT(atomic_load(&target.returns) == 1);
	CHECK_EQ(v, atomic_load(&target.last), by);
	AWAIT(waits(target.w.tid));
	let_go(h);
	workers_join(&resumer.w, 1, v);
	CHECK_EQ(v, resumer.result, 0);
	CHECK_EQ(v, sink_stop(&target, v), 1);
}

/* --- a thread is cancelled asynchronously ---------------------------------------------- */

/*
 * At the points of a resume or a switch at which it must not be: the target may sleep
 * on. But it has its resume, if the point is after that was given, and returns with it
 * when its sleep ends for whatever reason.
 */
struct cancelled {
	struct worker w;
	bool switches;
	pid_t target;
};

static void is_cancelled(struct worker *w)
{
	struct cancelled *c = w->arg;

	CHECK_EQ(&w->v, switchto_self(), gettid());
	await_release(w);
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
	if (c->switches)
		switchto_switch(c->target);
	else
		switchto_resume(c->target);
	CHECK(&w->v, !"the call returned");
}

static pid_t cancel_at(enum switchto_delay where, bool switches, pid_t target, struct verdict *v)
{
	struct cancelled c = { .switches = switches, .target = target };
	struct hold *h;
	void *result;

	worker_start(&c.w, is_cancelled, &c);
	h = hold(0, c.w.tid, where);
	atomic_store(&h->for_good, true);
	worker_release(&c.w);
	await_held(h);
	AWAIT(thread_state(c.w.tid) == 'S');
	pthread_cancel(c.w.thread);
	pthread_join(c.w.thread, &result);
	CHECK(v, result == PTHREAD_CANCELED);
	if (atomic_load(&c.w.v.failed))
		CHECK_EQ(v, verdict_status(&c.w.v), 0);
	CHECK_ERR(v, switchto_resume(c.w.tid), ESRCH);
	CHECK_ERR(v, switchto_switch(c.w.tid), ESRCH);
	return c.w.tid;
}

struct times {
	struct worker w;
	struct timespec time;
	pid_t got;
	int error;
};

static void waits_for_a_time(struct worker *w)
{
	struct times *t = w->arg;

	t->got = switchto_wait(&t->time);
	t->error = errno;
}

/* The target's sleep ends with its time, which is long enough for the rest to be over. */
static void cancelled_and_target_times_out(struct verdict *v, enum switchto_delay where,
					   bool switches)
{
	struct times t = { .time = { 2, 0 } };
	pid_t by;

	worker_start(&t.w, waits_for_a_time, &t);
	AWAIT(thread_of(t.w.tid) && waits(t.w.tid));
	by = cancel_at(where, switches, t.w.tid, v);
	workers_join(&t.w, 1, v);
	if (where == SWITCHTO_DELAY_SEEN)
		CHECK(v, t.got == -1 && t.error == ETIMEDOUT);
	else
		CHECK_EQ(v, t.got, by);
	pair_works(v, 1);
	verdict_assert(v);
}

/* Or with a signal that comes later. */
static void cancelled_and_target_has_a_signal(enum switchto_delay where, bool switches)
{
	struct sink target = { 0 };
	struct verdict v = { 0 };
	pid_t by;

	sink_waits(&target);
	by = cancel_at(where, switches, target.w.tid, &v);
	pthread_kill(target.w.thread, SIGUSR1);
	if (where != SWITCHTO_DELAY_SEEN) {
		AWAIT(atomic_load(&target.returns) == 1);
		CHECK_EQ(&v, atomic_load(&target.last), by);
	}
	AWAIT(waits(target.w.tid));
	pair_works(&v, 1);
	CHECK_EQ(&v, sink_stop(&target, &v), where != SWITCHTO_DELAY_SEEN);
	verdict_assert(&v);
}

TEST(async_cancel)
{
	static const struct {
		enum switchto_delay where;
		bool switches;
	} cases[] = {
		{ SWITCHTO_DELAY_SEEN, false }, { SWITCHTO_DELAY_WAKE, false },
		{ SWITCHTO_DELAY_SEEN, true },	{ SWITCHTO_DELAY_GIVEN, true },
		{ SWITCHTO_DELAY_WAKE, true },	{ SWITCHTO_DELAY_SLEEP, true },
	};
	bool swap = strcmp(switchto_backend(), "swap") == 0;

	set_handler(SIGUSR1, nothing);
	for (unsigned int i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		/* A switch does both in one call there. */
		if (swap && cases[i].switches && cases[i].where == SWITCHTO_DELAY_WAKE)
			continue;
		cancelled_and_target_has_a_signal(cases[i].where, cases[i].switches);
		cancelled_and_target_times_out(v, cases[i].where, cases[i].switches);
	}
}

/* In the child of a fork in the middle of a call there is nobody to be resumed by. */
static void forks_in(enum switchto_delay where, bool pending, bool switches)
{
	struct hold *h = hold(0, gettid(), where);
	struct sink target = { 0 };
	struct verdict v = { 0 };
	pid_t self = switchto_self(), got;
	int error;

	sink_waits(&target);
	if (pending)
		CHECK_EQ(&v, switchto_resume(self), 0);
	atomic_store(&h->forks, true);
	got = switches ? switchto_switch_timed(target.w.tid, &moment) : switchto_wait(&moment);
	error = errno;
	if (gettid() != self) {
		alarm(60);
		CHECK(&v, got == -1 && error == EINTR);
		CHECK_ERR(&v, switchto_resume(target.w.tid), ESRCH);
		CHECK_EQ(&v, thread_of(self)->word & WORD_STATE, UNREGISTERED);
		CHECK_EQ(&v, switchto_self(), gettid());
		CHECK_ERR(&v, switchto_wait(&moment), ETIMEDOUT);
		_exit(verdict_status(&v));
	}
	if (pending)
		CHECK_EQ(&v, got, self);
	else
		CHECK(&v, got == -1 && error == ETIMEDOUT);
	CHECK(&v, atomic_load(&h->child) > 0);
	CHECK_EQ(&v, child_status(atomic_load(&h->child)), 0);
	CHECK_EQ(&v, sink_stop(&target, &v), switches);
	verdict_assert(&v);
}

TEST(handler_forks_amid_a_call)
{
	for (int switches = 0; switches < 2; switches++) {
		forks_in(SWITCHTO_DELAY_GIVEN, false, switches);
		forks_in(SWITCHTO_DELAY_TAKE, true, switches);
		forks_in(SWITCHTO_DELAY_GIVE_UP, false, switches);
	}
}

int main(int argc, char **argv)
{
	if (wants_absent_swap("delay_points"))
		return SKIPPED;
	watchdog_start("delay_points");
	if (argc == 1)
		return run_group(NULL, setup, NULL);
	if (strcmp(argv[1], "tids"))
		give_up("delay_points: wanted nothing or tids, found '%s'", argv[1]);
	if (cannot_choose_tids("delay_points"))
		return SKIPPED;
	return run_group("tids", setup, NULL);
}
