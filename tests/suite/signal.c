// SPDX-License-Identifier: MIT
/* Signals that meet a wait, and resumes that come from handlers. */
#include "suite.h"

#include <sys/ptrace.h>

static _Atomic unsigned int handled;

static void handler(int signal)
{
	atomic_fetch_add(&handled, 1);
}

static void install(void (*function)(int), int flags)
{
	struct sigaction action = { .sa_handler = function, .sa_flags = flags };

	sigaction(SIGUSR1, &action, NULL);
}

static const int all_flags[] = { 0, SA_RESTART };

#define FOR_EACH_FLAGS(flags) for (const int *flags = all_flags; flags < all_flags + 2; flags++)

struct sleeper {
	struct worker w;
	struct sink sink;
	int way;
	unsigned int rounds;
	unsigned int returned;
	_Atomic unsigned int seen;
};

static void sleeps_once(struct worker *w)
{
	struct sleeper *s = w->arg;

	CHECK_EQ(&w->v, sleep_this_way(s->way, s->sink.w.tid), w->starter);
}

static void runs_a_handler(pthread_t thread)
{
	unsigned int before = atomic_load(&handled);

	pthread_kill(thread, SIGUSR1);
	AWAIT(atomic_load(&handled) != before);
}

/* It runs, at once, and its thread sleeps on. The target of a switch has its one resume. */
TEST_IN(signals, handler_does_not_end_wait)
{
	FOR_EACH_FLAGS(flags)
	{
		install(handler, *flags);
		for (int way = 0; way < WAYS; way++) {
			struct sleeper s = { .way = way };

			sink_start(&s.sink);
			worker_start(&s.w, sleeps_once, &s);
			for (int i = 0; i < 20 && !atomic_load(&s.w.v.failed); i++) {
				AWAIT(is_parked(s.w.tid) || atomic_load(&s.w.v.failed));
				runs_a_handler(s.w.thread);
			}
			AWAIT(is_parked(s.w.tid) || atomic_load(&s.w.v.failed));
			CHECK_EQ(v, switchto_resume(s.w.tid), 0);
			workers_join(&s.w, 1, v);
			CHECK_EQ(v, sink_stop(&s.sink, v), way_switches(way));
		}
	}
}

/*
 * A child process that this one disturbs: what it is to do comes to it by a pipe,
 * and what became of that goes back by another.
 */
struct talk {
	int to_child[2], to_parent[2];
	pid_t child;
};

static void say(int fd, int value)
{
	if (write(fd, &value, sizeof(value)) != sizeof(value))
		give_up("pipe: wanted to write a number, got %s", strerror(errno));
}

/* -1 if the other side has ended. */
static int hear(int fd)
{
	int value;

	return read(fd, &value, sizeof(value)) == sizeof(value) ? value : -1;
}

static int heard_in_child(struct talk *t)
{
	return hear(t->to_child[0]);
}

static void say_in_child(struct talk *t, int value)
{
	say(t->to_parent[1], value);
}

/* @arg is a struct that begins with @t. */
static void talk_start(struct talk *t, int (*body)(void *arg), void *arg)
{
	if (pipe(t->to_child) || pipe(t->to_parent))
		give_up("pipe: wanted two, got %s", strerror(errno));
	t->child = start_child(body, arg);
	close(t->to_child[0]);
	close(t->to_parent[1]);
}

static int talk_end(struct talk *t)
{
	close(t->to_child[1]);
	close(t->to_parent[0]);
	return child_status(t->child);
}

static void stop_tracee(pid_t tid, bool seize)
{
	int status;

	if (seize ? ptrace(PTRACE_SEIZE, tid, NULL, PTRACE_O_TRACESYSGOOD) ||
			    ptrace(PTRACE_INTERRUPT, tid, NULL, NULL) :
		    ptrace(PTRACE_ATTACH, tid, NULL, NULL))
		give_up("ptrace: wanted to trace a thread of a child, got %s", strerror(errno));
	if (waitpid(tid, &status, __WALL) != tid || !WIFSTOPPED(status))
		give_up("ptrace: wanted thread %d stopped, found status %x", (int)tid, status);
}

static void let_go(pid_t tid)
{
	if (ptrace(PTRACE_DETACH, tid, NULL, NULL))
		give_up("ptrace: wanted to let thread %d go, got %s", (int)tid, strerror(errno));
}

/* What runs no handler is not noticed: every way to sleep goes on as if nothing had been. */
CHILD(disturbed_body)
{
	struct sleeper s[WAYS] = { 0 };
	struct talk *t = arg;

	for (int way = 0; way < WAYS; way++) {
		s[way].way = way;
		sink_start(&s[way].sink);
		worker_start_parked(&s[way].w, sleeps_once, &s[way]);
		await_parked(s[way].sink.w.tid);
	}
	for (int way = 0; way < WAYS; way++)
		say_in_child(t, s[way].w.tid);
	CHECK(v, heard_in_child(t) >= 0);
	for (int way = 0; way < WAYS; way++) {
		await_parked(s[way].w.tid);
		CHECK_EQ(v, switchto_resume(s[way].w.tid), 0);
		workers_join(&s[way].w, 1, v);
		CHECK_EQ(v, sink_stop(&s[way].sink, v), way_switches(way));
	}
}

static void not_noticed(struct verdict *v,
			void (*disturb)(struct verdict *v, pid_t child, const pid_t *tids))
{
	struct talk t;
	pid_t tids[WAYS];

	talk_start(&t, disturbed_body, &t);
	for (int way = 0; way < WAYS; way++)
		tids[way] = hear(t.to_parent[0]);
	if (tids[WAYS - 1] > 0) {
		disturb(v, t.child, tids);
		say(t.to_child[1], 0);
	}
	CHECK_EQ(v, talk_end(&t), 0);
	verdict_assert(v);
}

static void by_stop(struct verdict *v, pid_t child, const pid_t *tids)
{
	int status;

	for (int i = 0; i < 10; i++) {
		kill(child, SIGSTOP);
		CHECK_EQ(v, waitpid(child, &status, WUNTRACED), child);
		CHECK(v, WIFSTOPPED(status));
		kill(child, SIGCONT);
		CHECK_EQ(v, waitpid(child, &status, WCONTINUED), child);
		CHECK(v, WIFCONTINUED(status));
	}
}

TEST_IN(signals, stop_is_not_noticed)
{
	not_noticed(v, by_stop);
}

static void by_tracer(struct verdict *v, pid_t child, const pid_t *tids)
{
	for (int i = 0; i < 6; i++) {
		for (int way = 0; way < WAYS; way++) {
			stop_tracee(tids[way], i & 1);
			let_go(tids[way]);
		}
	}
}

TEST_IN(signals, tracer_is_not_noticed)
{
	not_noticed(v, by_tracer);
}

/*
 * A wait with a time ends when that was up at its beginning, however long it was
 * stopped meanwhile: not before, and not by the stop later.
 */
static long long stopped_wait;

/* The status of a child whose waits took too long, which on a busy machine they may. */
#define LATE 3

struct timed_sleeper {
	struct worker w;
	struct sink sink;
	const struct timed_call *c;
	long long length, began;
	_Atomic long long ended;
};

static void times_out_once(struct worker *w)
{
	struct timed_sleeper *s = w->arg;
	struct timespec time;

	s->began = now_ns();
	time = to_timespec(s->length + (s->c->absolute ? s->began : 0));
	CHECK_ERR(&w->v, s->c->call(s->sink.w.tid, &time), ETIMEDOUT);
	atomic_store(&s->ended, now_ns());
}

static int stopped_timed_body(void *arg)
{
	struct timed_sleeper s[4] = { 0 };
	struct verdict v = { 0 };
	struct talk *t = arg;
	long long stopped;
	bool late = false;

	for (int i = 0; i < 4; i++) {
		s[i].c = &timed_calls[i];
		s[i].length = stopped_wait;
		sink_start(&s[i].sink);
		worker_start_parked(&s[i].w, times_out_once, &s[i]);
	}
	say_in_child(t, 0);
	stopped = heard_in_child(t);
	for (int i = 0; i < 4; i++) {
		workers_join(&s[i].w, 1, &v);
		CHECK(&v, s[i].ended - s[i].began >= stopped_wait);
		/* Had the stop begun it anew, it would not be over yet. */
		late |= s[i].ended - s[i].began >= stopped_wait + stopped * 1000000LL;
		CHECK_EQ(&v, sink_stop(&s[i].sink, &v), timed_calls[i].switches);
	}
	if (verdict_status(&v))
		return 1;
	return late ? LATE : 0;
}

TEST_IN(signals, stop_keeps_the_deadline)
{
	int result = LATE;

	stopped_wait = 3 * NSEC_PER_SEC;
	for (int tries = 0; tries < 5 && result == LATE; tries++, stopped_wait *= 2) {
		const struct timespec while_stopped = to_timespec(stopped_wait / 2);
		long long began;
		struct talk t;
		int status;

		talk_start(&t, stopped_timed_body, &t);
		if (hear(t.to_parent[0]) == 0) {
			began = now_ns();
			kill(t.child, SIGSTOP);
			CHECK_EQ(v, waitpid(t.child, &status, WUNTRACED), t.child);
			nanosleep(&while_stopped, NULL);
			kill(t.child, SIGCONT);
			say(t.to_child[1], (int)((now_ns() - began) / 1000000));
		}
		result = talk_end(&t);
	}
	CHECK_EQ(v, result, 0);
}

/* The same with handlers that run meanwhile, however many. */
#define HANDLED_WAIT (NSEC_PER_SEC / 5)
#define WERE_IT_BEGUN_ANEW (300 * HANDLED_WAIT)

TEST_IN(signals, handlers_keep_the_deadline)
{
	const struct timespec between = to_timespec(HANDLED_WAIT / 20);

	FOR_EACH_FLAGS(flags)
	{
		struct timed_sleeper s[4] = { 0 };
		unsigned int before = atomic_load(&handled);
		long long until = now_ns() + WERE_IT_BEGUN_ANEW;

		install(handler, *flags);
		for (int i = 0; i < 4; i++) {
			s[i].c = &timed_calls[i];
			s[i].length = HANDLED_WAIT;
			sink_start(&s[i].sink);
			worker_start(&s[i].w, times_out_once, &s[i]);
		}
		for (int i = 0; i < 4;) {
			if (atomic_load(&s[i].ended) || now_ns() > until) {
				i++;
				continue;
			}
			for (int j = i; j < 4; j++)
				pthread_kill(s[j].w.thread, SIGUSR1);
			nanosleep(&between, NULL);
		}
		CHECK(v, atomic_load(&handled) != before);
		for (int i = 0; i < 4; i++) {
			workers_join(&s[i].w, 1, v);
			CHECK(v, s[i].ended - s[i].began >= HANDLED_WAIT);
			CHECK(v, s[i].ended < until);
			CHECK_EQ(v, sink_stop(&s[i].sink, v), timed_calls[i].switches);
		}
	}
}

/*
 * A target that a tracer holds can't run: who switches to it sleeps, and its
 * resume is pending for when it is let go, or the process is killed where it is.
 */
struct held {
	struct talk t;
	bool timed;
};

static void answers_once(struct worker *w)
{
	pid_t from = switchto_wait(NULL);

	atomic_store((_Atomic pid_t *)w->arg, from);
	CHECK_EQ(&w->v, switchto_resume(from), 0);
}

struct asks {
	struct worker w;
	pid_t target;
	bool timed;
};

static void asks_once(struct worker *w)
{
	const struct timespec hour = { 3600, 0 };
	struct asks *a = w->arg;

	CHECK_EQ(&w->v,
		 a->timed ? switchto_switch_timed(a->target, &hour) : switchto_switch(a->target),
		 a->target);
}

static int held_body(void *arg)
{
	struct held *h = arg;
	struct asks a = { .timed = h->timed };
	struct worker target = { 0 };
	_Atomic pid_t from = 0;
	struct verdict v = { 0 };

	worker_start_parked(&target, answers_once, &from);
	say_in_child(&h->t, target.tid);
	if (heard_in_child(&h->t) < 0)
		return 1;
	a.target = target.tid;
	worker_start_parked(&a.w, asks_once, &a);
	CHECK_EQ(&v, atomic_load(&from), 0);
	CHECK_EQ(&v, thread_state(target.tid), 't');
	say_in_child(&h->t, verdict_status(&v));
	workers_join(&a.w, 1, &v);
	workers_join(&target, 1, &v);
	CHECK_EQ(&v, atomic_load(&from), a.w.tid);
	return verdict_status(&v);
}

TEST_IN(signals, target_held_by_tracer)
{
	for (int i = 0; i < 8; i++) {
		struct held h = { .timed = i & 1 };
		bool killed = i & 2;
		pid_t target;

		talk_start(&h.t, held_body, &h);
		target = hear(h.t.to_parent[0]);
		if (target <= 0)
			give_up("a child that was to be traced has ended");
		stop_tracee(target, i & 4);
		say(h.t.to_child[1], 0);
		CHECK_EQ(v, hear(h.t.to_parent[0]), 0);
		if (killed)
			kill(h.t.child, SIGKILL);
		else
			let_go(target);
		/* A tracee's end is told first, even if it is not the leader. */
		if (killed)
			CHECK_EQ(v, waitpid(target, NULL, __WALL), target);
		CHECK_EQ(v, talk_end(&h.t), killed ? 128 + SIGKILL : 0);
	}
}

#ifndef UNDER_TSAN /* whose runtime makes futex calls of its own, which are counted here */
/*
 * A thread that is held at the entry of its futex call, and what comes there: a
 * signal, so that it is pending as the call begins; a resume, so that the value
 * has changed; both. The thread has its one resume all the same, and the target of
 * its switch, too.
 */
enum { SIGNAL_COMES = 1, RESUME_COMES = 2 };

struct entry {
	struct talk t;
	int way, flags;
};

static void enters(struct worker *w)
{
	struct sleeper *s = w->arg;

	CHECK_EQ(&w->v, switchto_self(), w->tid);
	atomic_store(&s->seen, 1);
	await_release(w);
	sleeps_once(w);
	CHECK_ERR(&w->v, switchto_wait(&no_time), ETIMEDOUT);
}

CHILD(entry_body)
{
	struct entry *e = arg;
	struct sleeper s = { .way = e->way };
	bool resumed = false;
	int command;

	atomic_store(&handled, 0);
	install(handler, e->flags);
	sink_start(&s.sink);
	worker_start(&s.w, enters, &s);
	AWAIT(atomic_load(&s.seen));
	say_in_child(&e->t, s.w.tid);
	while ((command = heard_in_child(&e->t)) != 'e') {
		if (command == 'r') {
			CHECK_EQ(v, switchto_resume(s.w.tid), 0);
			resumed = true;
		} else {
			worker_release(&s.w);
			if (command == 'p')
				await_parked(s.w.tid);
		}
		say_in_child(&e->t, 0);
	}
	if (!resumed) {
		await_parked(s.w.tid);
		CHECK_EQ(v, switchto_resume(s.w.tid), 0);
	}
	workers_join(&s.w, 1, v);
	CHECK_EQ(v, sink_stop(&s.sink, v), way_switches(e->way));
	say_in_child(&e->t, atomic_load(&handled));
}

/* Of a stopped tracee: is it about to enter a futex call? */
static bool enters_futex(pid_t tid)
{
	struct __ptrace_syscall_info info;

	if (ptrace(PTRACE_GET_SYSCALL_INFO, tid, sizeof(info), &info) <= 0)
		give_up("ptrace: wanted the system call of thread %d, got %s", (int)tid,
			strerror(errno));
	return info.op == PTRACE_SYSCALL_INFO_ENTRY && info.entry.nr == SYS_futex;
}

/* Runs until the @nth futex call of thread @tid, and stops there. */
static void run_to_futex(pid_t tid, int nth)
{
	int status;

	for (;;) {
		if (ptrace(PTRACE_SYSCALL, tid, NULL, NULL) ||
		    waitpid(tid, &status, __WALL) != tid || !WIFSTOPPED(status))
			give_up("ptrace: wanted thread %d at a system call, got %s", (int)tid,
				strerror(errno));
		if (WSTOPSIG(status) == (SIGTRAP | 0x80) && enters_futex(tid) && !nth--)
			return;
	}
}

static void comes_at_entry(struct verdict *v, int way, int nth, int events, int flags)
{
	struct entry e = { .way = way, .flags = flags };
	pid_t tid;

	talk_start(&e.t, entry_body, &e);
	tid = hear(e.t.to_parent[0]);
	if (tid <= 0)
		give_up("a child that was to be traced has ended");
	stop_tracee(tid, true);
	say(e.t.to_child[1], 'g');
	CHECK_EQ(v, hear(e.t.to_parent[0]), 0);
	run_to_futex(tid, nth);
	if (events & SIGNAL_COMES)
		CHECK_EQ(v, syscall(SYS_tgkill, e.t.child, tid, SIGUSR1), 0);
	if (events & RESUME_COMES) {
		say(e.t.to_child[1], 'r');
		CHECK_EQ(v, hear(e.t.to_parent[0]), 0);
	}
	let_go(tid);
	say(e.t.to_child[1], 'e');
	CHECK_EQ(v, hear(e.t.to_parent[0]), !!(events & SIGNAL_COMES));
	CHECK_EQ(v, talk_end(&e.t), 0);
}

/* A switch is one call with the one backend and two with the other. */
static void for_each_entry(struct verdict *v, int events, int flags)
{
	bool swap = strcmp(switchto_backend(), "swap") == 0;

	for (int way = 0; way < WAYS; way++)
		for (int nth = 0; nth < (swap || !way_switches(way) ? 1 : 2); nth++)
			comes_at_entry(v, way, nth, events, flags);
	verdict_assert(v);
}

TEST_IN(signals, signal_pending_on_entry)
{
	for_each_entry(v, SIGNAL_COMES, 0);
	for_each_entry(v, SIGNAL_COMES, SA_RESTART);
}

TEST_IN(signals, value_changed_on_entry)
{
	for_each_entry(v, RESUME_COMES, 0);
}

TEST_IN(signals, resume_and_signal_on_entry)
{
	for_each_entry(v, SIGNAL_COMES | RESUME_COMES, 0);
	for_each_entry(v, SIGNAL_COMES | RESUME_COMES, SA_RESTART);
}

/*
 * A thread that is stopped in its sleep, resumed there, and has a signal when it
 * goes on: it comes out of the kernel with EINTR and finds the resume.
 */
TEST_IN(signals, resume_and_signal_while_stopped)
{
	for (int i = 0; i < 4 * WAYS; i++) {
		struct entry e = { .way = i / 4 };
		bool signal_first = i & 1;
		pid_t tid;

		talk_start(&e.t, entry_body, &e);
		tid = hear(e.t.to_parent[0]);
		if (tid <= 0)
			give_up("a child that was to be traced has ended");
		say(e.t.to_child[1], 'p');
		CHECK_EQ(v, hear(e.t.to_parent[0]), 0);
		stop_tracee(tid, i & 2);
		if (signal_first)
			CHECK_EQ(v, syscall(SYS_tgkill, e.t.child, tid, SIGUSR1), 0);
		say(e.t.to_child[1], 'r');
		CHECK_EQ(v, hear(e.t.to_parent[0]), 0);
		if (!signal_first)
			CHECK_EQ(v, syscall(SYS_tgkill, e.t.child, tid, SIGUSR1), 0);
		let_go(tid);
		say(e.t.to_child[1], 'e');
		CHECK_EQ(v, hear(e.t.to_parent[0]), 1);
		CHECK_EQ(v, talk_end(&e.t), 0);
	}
}
#endif

/* A handler that does not come back: the wait it interrupted is given up. */
static _Thread_local sigjmp_buf way_out;

static void leaving_handler(int signal)
{
	siglongjmp(way_out, 1);
}

static void is_left(struct worker *w)
{
	struct sleeper *s = w->arg;

	if (!sigsetjmp(way_out, 1)) {
		sleep_this_way(s->way, s->sink.w.tid);
		CHECK(&w->v, !"the call returned");
	}
	atomic_store(&s->seen, 1);
	await_release(w);
	/* Resumed or not meanwhile, it waits as ever. */
	CHECK_EQ(&w->v, switchto_wait(NULL), w->starter);
	CHECK_ERR(&w->v, switchto_wait(&no_time), ETIMEDOUT);
}

TEST_IN(signals, handler_leaves_the_wait)
{
	for (int i = 0; i < 4 * WAYS; i++) {
		struct sleeper s = { .way = i / 4 };
		bool at_once = i & 1;

		install(leaving_handler, all_flags[i / 2 % 2]);
		sink_start(&s.sink);
		worker_start_parked(&s.w, is_left, &s);
		pthread_kill(s.w.thread, SIGUSR1);
		AWAIT(atomic_load(&s.seen));
		if (at_once)
			CHECK_EQ(v, switchto_resume(s.w.tid), 0);
		worker_release(&s.w);
		if (!at_once) {
			await_parked(s.w.tid);
			CHECK_EQ(v, switchto_resume(s.w.tid), 0);
		}
		workers_join(&s.w, 1, v);
		CHECK_EQ(v, sink_stop(&s.sink, v), way_switches(s.way));
	}
}

/* A handler that forks: in the child alone the wait ends, for who would end it is not there. */
static _Thread_local pid_t handlers_child;

static void forking_handler(int signal)
{
	int saved = errno;

	handlers_child = fork();
	atomic_fetch_add(&handled, 1);
	errno = saved;
}

static void is_forked(struct worker *w)
{
	struct sleeper *s = w->arg;
	pid_t parent = getpid(), got;
	int error;

	handlers_child = -1;
	got = sleep_this_way(s->way, s->sink.w.tid);
	error = errno;
	if (getpid() != parent) {
		struct verdict v = { 0 };

		alarm(60);
		CHECK(&v, got == -1 && error == EINTR);
		CHECK_EQ(&v, switchto_self(), gettid());
		CHECK_ERR(&v, switchto_resume(s->sink.w.tid), ESRCH);
		CHECK_ERR(&v, switchto_wait(&no_time), ETIMEDOUT);
		pair_works(&v, 10);
		_exit(verdict_status(&v));
	}
	CHECK_EQ(&w->v, got, w->starter);
	CHECK(&w->v, handlers_child > 0);
	CHECK_EQ(&w->v, child_status(handlers_child), 0);
}

TEST_IN(signals, handler_forks_in_a_wait)
{
	FOR_EACH_FLAGS(flags)
	{
		install(forking_handler, *flags);
		for (int way = 0; way < WAYS; way++) {
			struct sleeper s = { .way = way };

			sink_start(&s.sink);
			worker_start_parked(&s.w, is_forked, &s);
			await_parked(s.sink.w.tid);
			runs_a_handler(s.w.thread);
			CHECK_EQ(v, switchto_resume(s.w.tid), 0);
			workers_join(&s.w, 1, v);
			CHECK_EQ(v, sink_stop(&s.sink, v), way_switches(way));
		}
	}
}

/* A resume and a signal at the same instant: it is what the call returns. */
static void interrupted_often(struct worker *w)
{
	struct sleeper *s = w->arg;

	while (s->returned < s->rounds && !atomic_load(&w->v.failed)) {
		CHECK_EQ(&w->v, sleep_this_way(s->way, s->sink.w.tid), w->starter);
		s->returned++;
		atomic_fetch_add(&s->seen, 1);
	}
	CHECK_ERR(&w->v, switchto_wait(&no_time), ETIMEDOUT);
}

TEST_IN(signals, resume_races_with_signal)
{
	uint32_t seed = 13;

	for (int i = 0; i < 2 * WAYS; i++) {
		struct sleeper s = { .way = i / 2, .rounds = LOOPS(1000) };
		unsigned int resumes, returns;

		install(handler, all_flags[i & 1]);
		sink_start(&s.sink);
		worker_start(&s.w, interrupted_often, &s);
		for (resumes = 1; resumes <= s.rounds && !atomic_load(&s.w.v.failed); resumes++) {
			bool signal_first = random_next(&seed) & 1;

			/* The last round's signal must not meet a thread that is gone. */
			if (signal_first && resumes < s.rounds)
				pthread_kill(s.w.thread, SIGUSR1);
			random_delay(&seed, 2000);
			CHECK_EQ(v, switchto_resume(s.w.tid), 0);
			random_delay(&seed, 2000);
			if (!signal_first && resumes < s.rounds)
				pthread_kill(s.w.thread, SIGUSR1);
			AWAIT(atomic_load(&s.seen) >= resumes || atomic_load(&s.w.v.failed));
		}
		workers_join(&s.w, 1, v);
		CHECK_EQ(v, s.seen, s.rounds);
		returns = sink_stop(&s.sink, v);
		if (way_switches(s.way))
			CHECK(v, returns > 0 && returns <= s.returned);
		else
			CHECK_EQ(v, returns, 0);
	}
}

static _Atomic pid_t handler_target;
static atomic_int handler_result;

static void resuming_handler(int signal)
{
	int saved = errno;

	errno = 12345;
	atomic_store(&handler_result,
		     switchto_resume(handler_target) == 0 && errno == 12345 ? 1 : -1);
	errno = saved;
	atomic_fetch_add(&handled, 1);
}

TEST_IN(signals, resume_from_handler)
{
	struct sink s = { 0 };

	install(resuming_handler, 0);
	sink_start(&s);
	handler_target = s.w.tid;
	atomic_store(&handler_result, 0);
	raise(SIGUSR1);
	CHECK_EQ(v, atomic_load(&handler_result), 1);
	AWAIT(atomic_load(&s.returns) == 1);
	CHECK_EQ(v, s.last, gettid());
	CHECK_EQ(v, sink_stop(&s, v), 1);
}

/* Of a thread that the library does not know, for one that it does not know either. */
static void raises(struct worker *w)
{
	raise(SIGUSR1);
}

static void takes_one(struct worker *w)
{
	await_release(w);
	CHECK_EQ(&w->v, switchto_wait(&no_time), *(_Atomic pid_t *)w->arg);
}

TEST_IN(signals, resume_from_unregistered_handler)
{
	struct worker target = { 0 }, raiser = { 0 };

	install(resuming_handler, 0);
	worker_start(&target, takes_one, &raiser.tid);
	handler_target = target.tid;
	atomic_store(&handler_result, 0);
	worker_run(&raiser, raises, NULL, v);
	CHECK_EQ(v, atomic_load(&handler_result), 1);
	worker_end(&target, v);
}

/* How a handler ends a wait: it resumes its thread. Not lost if it comes just before. */
static void resumed_by_own_handler(struct worker *w)
{
	struct sleeper *s = w->arg;

	await_release(w);
	CHECK_EQ(&w->v, sleep_this_way(s->way, s->sink.w.tid), w->tid);
	CHECK_ERR(&w->v, switchto_wait(&no_time), ETIMEDOUT);
}

TEST_IN(signals, handler_resumes_its_own_thread)
{
	uint32_t seed = 19;

	for (int i = 0; i < LOOPS(50) * 4 * WAYS; i++) {
		struct sleeper s = { .way = i / 4 % WAYS };

		install(resuming_handler, all_flags[i & 1]);
		sink_start(&s.sink);
		worker_start(&s.w, resumed_by_own_handler, &s);
		handler_target = s.w.tid;
		worker_release(&s.w);
		if (i & 2)
			await_parked(s.w.tid);
		else
			random_delay(&seed, 20000);
		pthread_kill(s.w.thread, SIGUSR1);
		workers_join(&s.w, 1, v);
		CHECK_EQ(v, sink_stop(&s.sink, v), way_switches(s.way));
	}
}

/*
 * Handlers that resume at any point of other calls of the same thread. The next
 * signal is sent when the last one's resume was taken, so none becomes one with
 * another.
 */
struct storm {
	struct worker pair[2];
	struct worker sender;
	struct sink sink;
	unsigned int signals;
	atomic_bool over;
};

static void storm_switches(struct worker *w)
{
	struct storm *s = w->arg;
	pid_t other = s->pair[w == &s->pair[0]].tid;

	while (!atomic_load(&s->over))
		CHECK_EQ(&w->v, switchto_switch(other), other);
	switchto_resume(other);
}

static void storm_answers(struct worker *w)
{
	struct storm *s = w->arg;
	pid_t other = switchto_wait(NULL);

	CHECK_EQ(&w->v, other, s->pair[0].tid);
	while (!atomic_load(&s->over))
		CHECK_EQ(&w->v, switchto_switch(other), other);
	/* It may have gone before. */
	switchto_resume(other);
}

static void storm_sends(struct worker *w)
{
	struct storm *s = w->arg;
	uint32_t seed = 17;

	for (unsigned int i = 1; i <= s->signals; i++) {
		random_delay(&seed, 2000);
		pthread_kill(s->pair[0].thread, SIGUSR1);
		AWAIT(atomic_load(&s->sink.returns) >= i);
		CHECK_EQ(&w->v, atomic_load(&s->sink.returns), i);
	}
	atomic_store(&s->over, true);
}

TEST_IN(signals, handlers_resume_amid_switches)
{
	struct storm s = { .signals = LOOPS(2000) };

	install(resuming_handler, 0);
	sink_start(&s.sink);
	handler_target = s.sink.w.tid;
	worker_start(&s.pair[1], storm_answers, &s);
	worker_start(&s.pair[0], storm_switches, &s);
	worker_run(&s.sender, storm_sends, &s, v);
	workers_join(s.pair, 2, v);
	CHECK_EQ(v, sink_stop(&s.sink, v), s.signals);
}
