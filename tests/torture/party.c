// SPDX-License-Identifier: MIT
/*
 * Parties of threads that hand tokens to each other.
 *
 * To give one: into the target's box, then resume the target. To take: after a
 * return from wait or switch, and at no other time. What is checked all along:
 *
 *  - a token has one owner;
 *  - a return was for a resume, each for one of its own (there may be fewer
 *    returns than resumes, never more), and in a strict party for exactly one;
 *  - the TID that comes back is that of who gave the token, or at least of one of
 *    our threads where several may have done so;
 *  - no error that the header doesn't name, no timeout that comes early.
 *
 * A resume that is lost leaves its token in the box: the watch in torture.c sees
 * that it doesn't move.
 */
#include "files.h"
#include "torture.h"

#include "delay.h"
#include "core/thread.h"

#include <switchto/switchto.h>

#define BOX_CLOSED (UINT64_C(1) << 63)
#define BOX_RESUME (UINT64_C(1) << 32)
#define BOX_TOKENS UINT64_C(0xffffffff)
#define BOX_RESUMES(box) ((long)(((box) & ~BOX_CLOSED) >> 32))

#define IN_BOX(seat) ((seat)->index << 1)
#define IN_HAND(seat) ((seat)->index << 1 | 1)

/* What a thread at a seat knows. */
struct self {
	struct seat *seat;
	struct party *party;
	uint64_t random;
	uint32_t held;
	pid_t tid;
	long returns, resumes;
};

/* How many threads had each TID. */
static _Atomic uint32_t enrolments[TID_LIMIT];

static _Thread_local uint64_t handler_random, delay_random;

bool enrol(uint64_t decisions)
{
	bool reused = atomic_fetch_add(&enrolments[gettid()], 1);

	handler_random = seed_for(decisions, 'h', 0);
	delay_random = seed_for(decisions, 'd', 0);
	return reused;
}

unsigned int enrolment_of(pid_t tid)
{
	return atomic_load(&enrolments[tid]);
}

static inline void bump(struct seat *seat, enum count what)
{
	long now = atomic_load_explicit(&seat->counts[what], memory_order_relaxed);

	atomic_store_explicit(&seat->counts[what], now + 1, memory_order_relaxed);
}

static inline void does(struct self *me, const char *what)
{
	atomic_store_explicit(&me->seat->doing, what, memory_order_relaxed);
}

static inline bool stopping(struct party *party)
{
	return atomic_load_explicit(&party->stop, memory_order_relaxed);
}

/* --- delays --------------------------------------------------------------------- */

#define NAME(name) #name,
static const char *const delay_names[] = { SWITCHTO_DELAY_POINTS_LIST(NAME) };
#define DELAYS (sizeof(delay_names) / sizeof(delay_names[0]))

static _Atomic long delays[DELAYS];

#ifdef SWITCHTO_DELAY_POINTS
/* Mostly as long as another thread needs to come by, rarely as long as a sleep. */
static void delay(uint64_t random)
{
	const struct timespec nap = { 0, 1000 + below(random << 8, 30000) };

	switch (random & 7) {
	case 0:
		clock_nanosleep(CLOCK_MONOTONIC, 0, &nap, NULL);
		break;
	case 1:
	case 2:
		sched_yield();
		break;
	default:
		for (unsigned int n = below(random, 3000); n; n--)
			atomic_signal_fence(memory_order_seq_cst);
	}
}

void switchto_delay_point(enum switchto_delay where)
{
	unsigned int permille = delay_permille;
	uint64_t random;
	int saved;

	if (!permille || !delay_random)
		return;
	/* The others are passed with every switch, these once in a thread's life or so. */
	if (where == SWITCHTO_DELAY_WOKEN || where >= SWITCHTO_DELAY_GIVE_UP)
		permille = permille < 4 ? permille * 125 : 500;
	random = next_random(&delay_random);
	if ((random & 0xffff) * 1000 >> 16 >= permille)
		return;
	saved = errno;
	atomic_fetch_add_explicit(&delays[where], 1, memory_order_relaxed);
	delay(random >> 16);
	errno = saved;
}
#endif

long delays_made(void)
{
	long sum = 0;

	for (size_t i = 0; i < DELAYS; i++)
		sum += delays[i];
	return sum;
}

void print_delays(void)
{
	printf("delays:");
	/* The last is the scheduling layer's. */
	for (size_t i = 0; i < DELAYS - 1; i++)
		printf(" %s %ld", delay_names[i], (long)delays[i]);
	printf("\n");
}

/* --- giving and taking ---------------------------------------------------------- */

static _Noreturn void bad(struct self *me, const char *what, long got, long wanted)
{
	int error = errno;

	broken("party %u, %s, seat %u (TID %d), %s: %s: got %ld, wanted %ld (errno %d, %s)",
	       me->party->number, me->party->plan.name, me->seat->index, me->tid,
	       atomic_load(&me->seat->doing), what, got, wanted, error, strerror(error));
}

/*
 * In a strict party nothing but the library orders what the owners of its token
 * do, for ThreadSanitizer to see whether it does.
 */
static inline uint64_t box_add(struct seat *seat, uint64_t what)
{
	return seat->party->plan.strict ?
		       atomic_fetch_add_explicit(&seat->box, what, memory_order_relaxed) :
		       atomic_fetch_add_explicit(&seat->box, what, memory_order_acq_rel);
}

static inline uint64_t box_empty(struct seat *seat)
{
	return seat->party->plan.strict ?
		       atomic_exchange_explicit(&seat->box, 0, memory_order_relaxed) :
		       atomic_exchange_explicit(&seat->box, 0, memory_order_acq_rel);
}

static inline void change_owner(struct self *me, struct token *token, uint32_t from, uint32_t to)
{
	uint32_t was = atomic_exchange_explicit(&token->owner, to, memory_order_relaxed);

	if (unlikely(was != from))
		bad(me, "a token's owner", was, from);
}

/* Whether it is still there: else whoever sits or sat there has taken it. */
static bool take_back(struct self *me, unsigned int t, struct seat *from)
{
	uint64_t bit = UINT64_C(1) << t;

	if (!(atomic_fetch_and(&from->box, ~bit) & bit))
		return false;
	change_owner(me, &me->party->tokens[t], IN_BOX(from), IN_HAND(me->seat));
	me->held |= (uint32_t)bit;
	return true;
}

/*
 * Into the box, to be followed by the resume of whose TID stands at the seat after
 * that: if the thread there ends in between, it takes the token out first. false:
 * nobody sits there just now.
 */
static inline bool put(struct self *me, unsigned int t, struct seat *to, enum count how)
{
	struct token *token = &me->party->tokens[t];
	uint64_t bit = UINT64_C(1) << t, was;

	atomic_store_explicit(&token->giver, me->tid, memory_order_relaxed);
	change_owner(me, token, IN_HAND(me->seat), IN_BOX(to));
	me->held &= ~(uint32_t)bit;
	was = box_add(to, BOX_RESUME | bit);
	if (unlikely(was & bit))
		bad(me, "a token is in the box already", t, -1);
	if (unlikely(was & BOX_CLOSED) && take_back(me, t, to))
		return false;
	bump(me->seat, how);
	return true;
}

/* The one and only place where tokens are taken. */
static inline void pick_up(struct self *me, uint32_t tokens)
{
	for (; tokens; tokens &= tokens - 1) {
		struct token *token = &me->party->tokens[__builtin_ctz(tokens)];

		change_owner(me, token, IN_BOX(me->seat), IN_HAND(me->seat));
		token->moves++;
		atomic_store_explicit(&token->seen, token->moves, memory_order_relaxed);
		bump(me->seat, TAKEN);
		me->held |= tokens & -tokens;
	}
}

/*
 * Whoever ends the party resumes without a token, and threads end while others still
 * give them one. A read-modify-write gets the last value, whatever orders the reads
 * before it.
 */
static bool is_over(struct party *party)
{
	return atomic_fetch_add(&party->stop, 0);
}

static inline pid_t giver_of(struct self *me, uint32_t tokens)
{
	return atomic_load_explicit(&me->party->tokens[__builtin_ctz(tokens)].giver,
				    memory_order_relaxed);
}

/* After a return for a resume by @from. */
static inline void take(struct self *me, pid_t from)
{
	uint64_t box = box_empty(me->seat);
	uint32_t tokens = (uint32_t)(box & BOX_TOKENS);
	long resumes = BOX_RESUMES(box);

	me->returns++;
	me->resumes += resumes;
	if (unlikely(from <= 0 || from >= TID_LIMIT ||
		     !atomic_load_explicit(&enrolments[from], memory_order_relaxed)))
		bad(me, "no thread of ours has the TID that came back", from, me->tid);
	if (me->party->plan.strict) {
		pid_t giver = tokens ? giver_of(me, tokens) : 0;

		if (unlikely(resumes != 1 || !tokens || (tokens & (tokens - 1))) &&
		    !is_over(me->party))
			bad(me, "a return for anything but one resume with its token", resumes, 1);
		if (unlikely(tokens && from != giver)) {
			if (!is_over(me->party))
				bad(me, "the TID that came back", from, giver);
			/*
			 * Whoever ends the party has come between the token and the
			 * resume that it is to be taken for, so that nothing has
			 * ordered its owners yet. It stays where it is.
			 */
			atomic_fetch_or_explicit(&me->seat->box, tokens, memory_order_relaxed);
			tokens = 0;
		}
	} else if (unlikely(me->resumes < me->returns) && !me->party->plan.mortal &&
		   !is_over(me->party)) {
		/* A seat of mortals may be resumed for who sat there before. */
		bad(me, "returns for fewer resumes", me->resumes, me->returns);
	}
	if (unlikely(!tokens))
		bump(me->seat, EMPTY);
	if (unlikely(resumes > 1))
		bump(me->seat, MERGED);
	pick_up(me, tokens);
}

/* --- what a thread does --------------------------------------------------------- */

/* Another seat of the party. */
static inline struct seat *choose(struct self *me, uint64_t random)
{
	unsigned int seats = me->party->plan.seats;
	unsigned int step = me->party->plan.ring ? 1 : 1 + below(random, seats - 1);
	unsigned int index = me->seat->index + step;

	return &me->party->seats[index < seats ? index : index - seats];
}

/* 0 ... 200 us, about as long as a hand-over takes, on whatever machine. */
static struct timespec short_time(uint64_t random)
{
	static const unsigned int most[] = { 1, 1000, 20000, 200000 };

	return (struct timespec){ 0, below(random, most[random & 3]) };
}

static long long to_ns(const struct timespec *t)
{
	return t->tv_sec * NSEC_PER_SEC + t->tv_nsec;
}

static struct timespec to_timespec(long long ns)
{
	return (struct timespec){ ns / NSEC_PER_SEC, ns % NSEC_PER_SEC };
}

/*
 * What a call that waits returned. A deadline of 0: it may not end with
 * ETIMEDOUT. After an error the box stays as it is: a resume that came at that
 * moment is pending for the next wait.
 */
static inline void came_back(struct self *me, pid_t from, long long deadline)
{
	if (likely(from > 0)) {
		take(me, from);
		return;
	}
	if (from != -1)
		bad(me, "a return value", from, -1);
	if (errno == ETIMEDOUT && deadline) {
		bump(me->seat, TIMEOUTS);
		if (now_ns() < deadline)
			bad(me, "a timeout too early by ns", deadline - now_ns(), 0);
	} else {
		bad(me, "an error", errno, 0);
	}
}

/* Waits for whatever comes. */
static void idle(struct self *me)
{
	uint64_t random = next_random(&me->random);
	struct timespec time;
	long long deadline;

	does(me, "wait");
	if (likely(random & (me->party->plan.wild - 1))) {
		came_back(me, switchto_wait(NULL), 0);
		return;
	}
	time = short_time(random >> 8);
	deadline = now_ns() + to_ns(&time);
	if (random >> 63) {
		does(me, "wait for a time");
		came_back(me, switchto_wait(&time), deadline);
	} else {
		does(me, "wait until");
		time = to_timespec(deadline);
		came_back(me, switchto_wait_until(&time), deadline);
	}
}

/* Who sits where the token is. */
struct target {
	struct seat *seat;
	pid_t tid;
	unsigned int life;
};

static inline struct target target_at(struct seat *seat)
{
	struct target target = { .seat = seat };

	target.life = atomic_load_explicit(&seat->life, memory_order_acquire);
	target.tid = atomic_load_explicit(&seat->tid, memory_order_acquire);
	return target;
}

/* It was there before and is there now: ESRCH was wrong. */
static bool still_there(const struct target *target)
{
	return atomic_load(&target->seat->tid) == target->tid &&
	       atomic_load(&target->seat->life) == target->life;
}

/*
 * The switch or resume of the one for whom a token was put there failed. If it has
 * ended since, it has taken the token first, or another one sits there now and has
 * it or leaves it to us.
 */
static void not_there(struct self *me, unsigned int t, const struct target *target, enum count how)
{
	struct seat *to = target->seat;

	if (errno != ESRCH ||
	    (!is_over(me->party) && (!me->party->plan.mortal || still_there(target))))
		bad(me, "an error of a resume", errno, 0);
	bump(me->seat, GONE);
	if (take_back(me, t, to)) {
		long now = atomic_load_explicit(&me->seat->counts[how], memory_order_relaxed);

		atomic_store_explicit(&me->seat->counts[how], now - 1, memory_order_relaxed);
	}
}

static void give_by_resume(struct self *me, unsigned int t, struct seat *to)
{
	struct target target;

	does(me, "resume");
	if (!put(me, t, to, RESUMES))
		return;
	target = target_at(to);
	if (target.tid && switchto_resume(target.tid))
		not_there(me, t, &target, RESUMES);
}

enum how { PLAIN, TIMED, UNTIL };

static inline void give_by_switch(struct self *me, unsigned int t, struct seat *to, enum how how,
				  uint64_t random)
{
	struct target target;
	struct timespec time;
	long long deadline = 0;
	pid_t from;

	if (how != PLAIN) {
		time = short_time(random);
		deadline = now_ns() + to_ns(&time);
	}
	does(me, how == PLAIN ? "switch" : how == TIMED ? "switch for a time" : "switch until");
	if (!put(me, t, to, SWITCHES))
		return;
	/* 0: who sat there has closed the box, and taken the token, since we put it there. */
	target = target_at(to);
	if (unlikely(!target.tid))
		return;
	switch (how) {
	case PLAIN:
		from = switchto_switch(target.tid);
		break;
	case TIMED:
		from = switchto_switch_timed(target.tid, &time);
		break;
	default:
		time = to_timespec(deadline);
		from = switchto_switch_until(target.tid, &time);
	}
	if (unlikely(from < 0) && errno != ETIMEDOUT)
		not_there(me, t, &target, SWITCHES);
	else
		came_back(me, from, deadline);
}

/* A resume without a token, from where no token is. Async-signal-safe. */
static void nudge(struct seat *to)
{
	struct target target;

	atomic_fetch_add(&to->box, BOX_RESUME);
	target = target_at(to);
	if (target.tid && switchto_resume(target.tid) &&
	    (errno != ESRCH ||
	     (!is_over(to->party) && (!to->party->plan.mortal || still_there(&target)))))
		broken("party %u, seat %u: resume of TID %d: errno %d", to->party->number,
		       to->index, target.tid, errno);
}

static void expect_error(struct self *me, long got, int error)
{
	if (got != -1 || errno != error)
		bad(me, "an error that was asked for", got < 0 ? errno : got, error);
}

/* None of these has an effect, so the token stays in hand. */
static void bad_arguments(struct self *me, struct seat *to, uint64_t random)
{
	const struct timespec negative = { -1, 0 }, too_many = { 0, NSEC_PER_SEC };
	const struct timespec *time = random & 1 ? &negative : &too_many;
	pid_t tid = atomic_load(&to->tid);

	does(me, "bad arguments");
	switch (random >> 1 & 7) {
	case 0:
		expect_error(me, switchto_switch(0), EINVAL);
		break;
	case 1:
		expect_error(me, switchto_switch(-(int)(random >> 40)), EINVAL);
		break;
	case 2:
		expect_error(me, switchto_resume(0), EINVAL);
		break;
	case 3:
		expect_error(me, switchto_resume(TID_LIMIT + (int)(random >> 40)), ESRCH);
		break;
	case 4:
		expect_error(me, switchto_switch(TID_LIMIT), ESRCH);
		break;
	case 5:
		expect_error(me, switchto_wait(time), EINVAL);
		break;
	case 6:
		expect_error(me, switchto_switch_timed(tid, time), EINVAL);
		break;
	case 7:
		expect_error(me, switchto_switch_until(tid, time), EINVAL);
		break;
	}
}

/* Asks for a pending resume. In a strict party there is none: the token is here. */
static void poll_wait(struct self *me)
{
	const struct timespec none = { 0, 0 };
	pid_t from;

	does(me, "poll");
	from = switchto_wait(&none);
	if (from > 0 && me->party->plan.strict && !is_over(me->party))
		bad(me, "a resume that nobody gave, by", from, -1);
	came_back(me, from, 1);
}

/* Tokens are in hand: all but one go by resume. Whether the thread is to end. */
static bool act_wildly(struct self *me, unsigned int t, uint64_t random)
{
	struct seat *to = choose(me, random);
	bool strict = me->party->plan.strict;

	random = next_random(&me->random);
	switch (random >> 8 & 15) {
	case 0:
	case 1:
	case 2:
	case 3:
		give_by_switch(me, t, to, TIMED, random >> 12);
		break;
	case 4:
	case 5:
		give_by_switch(me, t, to, UNTIL, random >> 12);
		break;
	case 9:
		poll_wait(me);
		break;
	case 10:
		does(me, "nudge");
		if (!strict)
			nudge(to);
		break;
	case 11:
		if (strict)
			break;
		does(me, "switch to oneself");
		atomic_fetch_add(&me->seat->box, BOX_RESUME);
		came_back(me, switchto_switch(me->tid), 0);
		break;
	case 12:
		bad_arguments(me, to, random >> 12);
		break;
	case 13:
		does(me, "yield");
		sched_yield();
		break;
	case 14:
		if (me->party->plan.mortal)
			return true;
		/* fallthrough */
	default:
		give_by_resume(me, t, to);
		/* It may have come back: then nobody else has to do with us. */
		if (!me->held)
			idle(me);
	}
	return false;
}

static inline bool act(struct self *me)
{
	uint64_t random = next_random(&me->random);
	unsigned int t;

	while (unlikely(me->held & (me->held - 1))) {
		give_by_resume(me, (unsigned int)__builtin_ctz(me->held), choose(me, random));
		random = next_random(&me->random);
		if (unlikely(stopping(me->party)))
			return false;
	}
	/* The last one may have been given while its target closed its box. */
	if (unlikely(!me->held))
		return false;
	t = (unsigned int)__builtin_ctz(me->held);
	if (unlikely(!(random & (me->party->plan.wild - 1))))
		return act_wildly(me, t, random);
	give_by_switch(me, t, choose(me, random), PLAIN, 0);
	return false;
}

/* --- how they begin and end ----------------------------------------------------- */

struct birth {
	struct seat *seat;
	/* Who sat there before, to be joined; a TID of 0 if nobody did. */
	pthread_t thread;
	pid_t tid;
	unsigned int enrolment;
};

static void *live(void *arg);

/* The TID of a mortal that has been joined, for the next one to have. */
static _Atomic pid_t free_tid;
static atomic_bool tid_chosen;

bool tids_are_chosen(void)
{
	return atomic_load(&tid_chosen);
}

/* The next thread of whatever process gets @tid, if it is free. Not every kernel can. */
static void choose_next_tid(pid_t tid)
{
	if (write_text("/proc/sys/kernel/ns_last_pid", text_of("%d", tid - 1)))
		atomic_store(&tid_chosen, true);
}

static void seat_thread(struct seat *seat, pthread_t before, pid_t tid, unsigned int enrolment)
{
	struct birth *birth = malloc(sizeof(*birth));
	pthread_t thread;
	int error;

	if (!birth)
		die("memory");
	*birth = (struct birth){ seat, before, tid, enrolment };
	if (need_all && atomic_load(&free_tid))
		choose_next_tid(atomic_load(&free_tid));
	for (int try = 0; (error = pthread_create(&thread, NULL, live, birth)); try++) {
		errno = error;
		if (error != EAGAIN || try == 1000)
			die("pthread_create");
		pause_ns(1000000);
	}
}

/* A new thread that has a TID enrols soon; all do. */
static void check_reused(pid_t tid, unsigned int enrolment)
{
	long long deadline = now_ns() + patience * NSEC_PER_SEC;

	while (enrolment_of(tid) == enrolment) {
		if (now_ns() > deadline)
			broken("a resume of TID %d found it alive, but it was joined, and no other thread of ours got it",
			       tid);
		pause_ns(1000000);
	}
}

void resume_the_dead(pid_t tid, unsigned int enrolment)
{
	if (!switchto_resume(tid))
		check_reused(tid, enrolment);
	else if (errno != ESRCH)
		broken("resume of TID %d, which was joined: errno %d, wanted ESRCH", tid, errno);
}

/* The same by a switch, which waits if it doesn't fail. */
static void switch_to_the_dead(struct self *me, pid_t tid, unsigned int enrolment)
{
	struct timespec time = short_time(next_random(&me->random));
	long long deadline = now_ns() + to_ns(&time);
	pid_t from = switchto_switch_timed(tid, &time);

	if (from == -1 && errno == ESRCH)
		return;
	came_back(me, from, deadline);
	check_reused(tid, enrolment);
}

static void bury(struct self *me, const struct birth *birth)
{
	if (!birth->tid)
		return;
	does(me, "join");
	errno = pthread_join(birth->thread, NULL);
	if (errno)
		die("pthread_join");
	atomic_store(&free_tid, birth->tid);
	if (birth->tid == me->tid)
		return;
	if (next_random(&me->random) & 1)
		resume_the_dead(birth->tid, birth->enrolment);
	else
		switch_to_the_dead(me, birth->tid, birth->enrolment);
}

/* All tokens go to others, also those that come meanwhile. Then nobody comes any more. */
static void leave(struct self *me)
{
	do {
		while (me->held) {
			if (stopping(me->party))
				return;
			give_by_resume(me, (unsigned int)__builtin_ctz(me->held),
				       choose(me, next_random(&me->random)));
		}
		does(me, "end");
		pick_up(me, (uint32_t)(atomic_exchange(&me->seat->box, BOX_CLOSED) & BOX_TOKENS));
	} while (me->held);
	atomic_store(&me->seat->tid, 0);
}

/* Time for others to resume a thread which the library doesn't know yet. */
static void unborn(uint64_t random)
{
	if (random & 1)
		pause_ns(below(random, 100000));
	else
		for (unsigned int n = below(random, 20000); n; n--)
			atomic_signal_fence(memory_order_seq_cst);
}

static void *live(void *arg)
{
	const struct birth birth = *(struct birth *)arg;
	struct seat *seat = birth.seat;
	struct party *party = seat->party;
	struct self me = { .seat = seat, .party = party, .tid = gettid() };
	uint64_t decisions = seed_for(party->seed, seat->index + 1,
				      atomic_fetch_add(&seat->life, 1) + 1);
	bool last, buried, ends = false;

	free(arg);
	if (enrol(decisions))
		bump(seat, REUSED);
	me.random = decisions;
	bump(seat, LIVES);
	does(&me, "begin");
	seat->thread = pthread_self();
	/* From here on it is resumed, though it hasn't called the library yet. */
	atomic_store(&seat->tid, me.tid);
	atomic_fetch_and(&seat->box, ~BOX_CLOSED);
	if (party->plan.mortal) {
		unborn(next_random(&me.random));
		buried = me.random & 1;
		if (buried)
			bury(&me, &birth);
		if (me.random & 2 && switchto_self() != me.tid)
			bad(&me, "switchto_self", switchto_self(), me.tid);
		if (!buried) {
			idle(&me);
			bury(&me, &birth);
		}
	}

	while (likely(!stopping(party)) && !ends) {
		if (me.held) {
			ends = act(&me);
		} else {
			idle(&me);
			ends = party->plan.mortal && !me.held && !(next_random(&me.random) & 31);
		}
	}

	if (!stopping(party))
		leave(&me);
	/* Whoever joins it waits: of class SCHED_IDLE, it may take a minute to end. */
	sched_setscheduler(0, SCHED_OTHER, &(struct sched_param){ 0 });
	last = stopping(party);
	seat->left = me.held;
	if (!last)
		seat_thread(seat, pthread_self(), me.tid, enrolment_of(me.tid));
	else
		atomic_store(&seat->over, true);
	return NULL;
}

void party_begin(struct party *party, const struct plan *plan, uint64_t from, unsigned int number)
{
	pid_t self = switchto_self();

	memset(party, 0, sizeof(*party));
	party->plan = *plan;
	party->number = number;
	party->seed = seed_for(from, 'p', number);
	for (unsigned int i = 0; i < plan->seats; i++) {
		party->seats[i].party = party;
		party->seats[i].index = i;
		/*
		 * Until somebody sits there: one of the others may get its token before
		 * that, by a resume of a dead one whose TID it has.
		 */
		party->seats[i].box = BOX_CLOSED;
		atomic_store(&party->seats[i].doing, "nothing");
	}
	for (unsigned int t = 0; t < plan->tokens; t++) {
		struct seat *seat = &party->seats[t % plan->seats];

		party->tokens[t].owner = IN_BOX(seat);
		party->tokens[t].giver = self;
		seat->box += BOX_RESUME | UINT64_C(1) << t;
	}
	for (unsigned int i = 0; i < plan->seats; i++)
		seat_thread(&party->seats[i], pthread_self(), 0, 0);
	/* A seat without a thread is one whose thread has just ended, later on. */
	for (unsigned int i = 0; i < plan->seats; i++)
		while (!atomic_load(&party->seats[i].tid) ||
		       (!plan->mortal && atomic_load(&party->seats[i].box) & BOX_CLOSED))
			pause_ns(100000);
	for (unsigned int t = 0; t < plan->tokens; t++) {
		pid_t tid = atomic_load(&party->seats[t % plan->seats].tid);

		if (tid && switchto_resume(tid) && (errno != ESRCH || !plan->mortal))
			die("the first resume");
	}
}

static void check_books(struct party *party)
{
	long given = 0, taken = 0, moves = 0, in_boxes = 0;

	for (unsigned int t = 0; t < party->plan.tokens; t++) {
		uint32_t bit = UINT32_C(1) << t;
		int places = 0;

		for (unsigned int i = 0; i < party->plan.seats; i++) {
			struct seat *seat = &party->seats[i];

			if (seat->box & bit) {
				places++;
				in_boxes++;
				if (party->tokens[t].owner != IN_BOX(seat))
					places += 100;
			}
			if (seat->left & bit) {
				places++;
				if (party->tokens[t].owner != IN_HAND(seat))
					places += 100;
			}
		}
		if (places != 1)
			broken("party %u, token %u: wanted it in one place, found it in %d%s",
			       party->number, t, places % 100, places > 99 ? ", another's" : "");
		moves += party->tokens[t].moves;
	}
	given = party_handovers(party) + party->plan.tokens;
	taken = party_count(party, TAKEN);
	if (given != taken + in_boxes || moves != taken)
		broken("party %u: %ld tokens given, %ld taken, %ld in boxes, %ld moves: wanted the sums to agree",
		       party->number, given, taken, in_boxes, moves);
}

void party_end(struct party *party)
{
	long long deadline = now_ns() + patience * NSEC_PER_SEC;
	bool all;

	atomic_store(&party->stop, 1);
	do {
		all = true;
		for (unsigned int i = 0; i < party->plan.seats; i++) {
			struct seat *seat = &party->seats[i];
			pid_t tid = atomic_load(&seat->tid);

			if (atomic_load(&seat->over))
				continue;
			all = false;
			if (tid && switchto_resume(tid) && errno != ESRCH)
				broken("party %u: the last resume of TID %d: errno %d",
				       party->number, tid, errno);
		}
		if (now_ns() > deadline)
			broken("party %u: its threads were resumed and didn't end in %d s",
			       party->number, patience);
		pause_ns(1000000);
	} while (!all);
	for (unsigned int i = 0; i < party->plan.seats; i++)
		pthread_join(party->seats[i].thread, NULL);
	check_books(party);
}

long party_count(const struct party *party, enum count what)
{
	long sum = 0;

	for (unsigned int i = 0; i < party->plan.seats; i++)
		sum += atomic_load_explicit(&party->seats[i].counts[what], memory_order_relaxed);
	return sum;
}

long party_handovers(const struct party *party)
{
	return party_count(party, SWITCHES) + party_count(party, RESUMES);
}

const char *party_state(const struct party *party, unsigned int index, char *text, size_t size)
{
	static const char *const states[] = { "unregistered", "running", "waiting", "resumed" };
	const struct seat *seat = &party->seats[index];
	pid_t tid = atomic_load(&seat->tid);
	const struct thread *thread = tid ? thread_of(tid) : NULL;
	uint32_t word = thread ? atomic_load(&thread->word) : 0;

	snprintf(
		text, size,
		"seat %u, TID %d, life %u: %s, box %#llx, word %s (TID %u), %ld switches, %ld resumes, %ld taken",
		index, tid, atomic_load(&seat->life), atomic_load(&seat->doing),
		(unsigned long long)atomic_load(&seat->box), states[word >> 30], word & WORD_TID,
		(long)seat->counts[SWITCHES], (long)seat->counts[RESUMES],
		(long)seat->counts[TAKEN]);
	return text;
}

/* --- elsewhere ------------------------------------------------------------------ */

void resuming_handler(int signal)
{
	int saved = errno;
	uint64_t random;

	if (!handler_random || !atomic_load(&shared->started))
		return;
	random = next_random(&handler_random);
	if (!(random & 3)) {
		struct party *party = &shared->party[below(random, shared->parties)];

		if (!party->plan.strict && !stopping(party))
			nudge(&party->seats[(random >> 2 & 0xffff) % party->plan.seats]);
	}
	errno = saved;
}

void small_party(uint64_t from, long handovers)
{
	static const struct plan plan = { .name = "small", .seats = 3, .tokens = 2, .wild = 8 };
	static struct party party;
	long long last = now_ns();
	long before = 0, now;

	enrol(seed_for(from, 's', 0));
	party_begin(&party, &plan, from, 0);
	while (!handovers || party_handovers(&party) < handovers) {
		pause_ns(1000000);
		now = party_handovers(&party);
		if (now != before) {
			before = now;
			last = now_ns();
		} else if (now_ns() - last > patience * NSEC_PER_SEC) {
			broken("the party of process %d stood still for %d s after %ld hand-overs",
			       (int)getpid(), patience, now);
		}
	}
	party_end(&party);
}
