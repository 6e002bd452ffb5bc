// SPDX-License-Identifier: MIT
/* Signals that meet a wait, and resumes that come from handlers. */
#include "suite.h"

#include <signal.h>
#include <sys/wait.h>

static _Atomic unsigned int handled;

static void handler(int signal)
{
	(void)signal;
	atomic_fetch_add(&handled, 1);
}

static void install(void (*function)(int), int flags)
{
	struct sigaction action = { .sa_handler = function, .sa_flags = flags };

	sigaction(SIGUSR1, &action, NULL);
}

/* Every way to sleep. */
enum { WAIT, SWITCH, TIMED, WAYS = TIMED + 4 };

static pid_t sleep_this_way(int way, pid_t target)
{
	struct timespec hour = { 3600, 0 };

	switch (way) {
	case WAIT:
		return switchto_wait(NULL);
	case SWITCH:
		return switchto_switch(target);
	}
	if (timed_calls[way - TIMED].absolute)
		hour = to_timespec(now_ns() + 3600 * NSEC_PER_SEC);
	return timed_calls[way - TIMED].call(target, &hour);
}

static bool way_switches(int way)
{
	return way == SWITCH || (way >= TIMED && timed_calls[way - TIMED].switches);
}

struct sleeper {
	struct worker w;
	struct sink sink;
	int way;
	unsigned int returned;
	_Atomic unsigned int interrupted, seen;
	atomic_bool over;
};

static void interrupted_once(struct worker *w)
{
	struct sleeper *s = w->arg;

	CHECK_ERR(&w->v, sleep_this_way(s->way, s->sink.w.tid), EINTR);
	worker_release(w);
	CHECK_EQ(&w->v, switchto_wait(NULL), w->starter);
}

/* A handler without SA_RESTART ends the wait; the target of a switch has its one resume. */
static void handler_ends_wait(void **state)
{
	struct verdict v = { 0 };

	(void)state;
	install(handler, 0);
	for (int way = 0; way < WAYS; way++) {
		struct sleeper s = { .way = way };
		unsigned int returns;

		sink_start(&s.sink);
		worker_start(&s.w, interrupted_once, &s);
		await_parked(s.w.tid);
		pthread_kill(s.w.thread, SIGUSR1);
		await_release(&s.w);
		await_parked(s.w.tid);
		CHECK_EQ(&v, switchto_resume(s.w.tid), 0);
		workers_join(&s.w, 1, &v);
		sink_stop(&s.sink, &v, &returns);
		CHECK_EQ(&v, returns, way_switches(way));
	}
	verdict_assert(&v);
}

static void interrupted_or_restarted(struct worker *w)
{
	struct sleeper *s = w->arg;
	pid_t got = sleep_this_way(s->way, s->sink.w.tid);

	while (got == -1 && errno == EINTR) {
		atomic_fetch_add(&s->interrupted, 1);
		got = switchto_wait(NULL);
	}
	CHECK_EQ(&w->v, got, w->starter);
}

/* However the kernel restarts what a handler with SA_RESTART interrupted: one resume. */
static void restart_resumes_nobody_again(void **state)
{
	struct verdict v = { 0 };

	(void)state;
	install(handler, SA_RESTART);
	for (int way = 0; way < WAYS; way++) {
		struct sleeper s = { .way = way };
		unsigned int returns;

		sink_start(&s.sink);
		worker_start(&s.w, interrupted_or_restarted, &s);
		for (int i = 0; i < 20; i++) {
			unsigned int before = atomic_load(&handled);

			await_parked(s.w.tid);
			pthread_kill(s.w.thread, SIGUSR1);
#ifndef UNDER_TSAN /* which runs handlers late */
			AWAIT(atomic_load(&handled) != before);
#else
			(void)before;
#endif
		}
		await_parked(s.w.tid);
		CHECK_EQ(&v, switchto_resume(s.w.tid), 0);
		workers_join(&s.w, 1, &v);
		CHECK(&v, atomic_load(&s.interrupted) <= 20);
		sink_stop(&s.sink, &v, &returns);
		CHECK_EQ(&v, returns, way_switches(way));
	}
	verdict_assert(&v);
}

/* Stop and continue run no handler: every way to sleep goes on as if nothing had been. */
struct stopped {
	int ready, go;
};

static int stopped_body(void *arg)
{
	const struct stopped *pipes = arg;
	struct sleeper s[WAYS] = { 0 };
	struct verdict v = { 0 };
	unsigned int returns;
	char byte = 0;

	for (int way = 0; way < WAYS; way++) {
		s[way].way = way;
		sink_start(&s[way].sink);
		worker_start(&s[way].w, interrupted_or_restarted, &s[way]);
		await_parked(s[way].w.tid);
		await_parked(s[way].sink.w.tid);
	}
	CHECK_EQ(&v, write(pipes->ready, &byte, 1), 1);
	CHECK_EQ(&v, read(pipes->go, &byte, 1), 1);
	for (int way = 0; way < WAYS; way++) {
		await_parked(s[way].w.tid);
		CHECK_EQ(&v, switchto_resume(s[way].w.tid), 0);
		workers_join(&s[way].w, 1, &v);
		CHECK_EQ(&v, atomic_load(&s[way].interrupted), 0);
		sink_stop(&s[way].sink, &v, &returns);
		CHECK_EQ(&v, returns, way_switches(way));
	}
	return verdict_status(&v);
}

static void stop_is_not_noticed(void **state)
{
	struct verdict v = { 0 };
	struct stopped pipes;
	int ready[2], go[2], status;
	char byte = 0;
	pid_t child;

	(void)state;
	if (pipe(ready) || pipe(go))
		give_up("pipe: wanted two");
	pipes = (struct stopped){ ready[1], go[0] };
	child = start_child(stopped_body, &pipes);
	close(ready[1]);
	close(go[0]);
	if (read(ready[0], &byte, 1) == 1) {
		for (int i = 0; i < 10; i++) {
			kill(child, SIGSTOP);
			CHECK_EQ(&v, waitpid(child, &status, WUNTRACED), child);
			CHECK(&v, WIFSTOPPED(status));
			kill(child, SIGCONT);
			CHECK_EQ(&v, waitpid(child, &status, WCONTINUED), child);
			CHECK(&v, WIFCONTINUED(status));
		}
		CHECK_EQ(&v, write(go[1], &byte, 1), 1);
	}
	CHECK_EQ(&v, child_status(child), 0);
	close(ready[0]);
	close(go[1]);
	verdict_assert(&v);
}

/*
 * A resume and a signal at the same instant: the resume is what the call
 * returns or what the next wait does. As in the race with a timeout, no two
 * resumes are under way at a time, so the counts must agree.
 */
static void interrupted_often(struct worker *w)
{
	struct sleeper *s = w->arg;

	do {
		pid_t got = sleep_this_way(s->way, s->sink.w.tid);

		/* After EINTR the target has its resume: go on waiting. */
		while (got == -1 && errno == EINTR) {
			atomic_fetch_add(&s->interrupted, 1);
			got = switchto_wait(NULL);
		}
		s->returned++;
		CHECK_EQ(&w->v, got, w->starter);
		atomic_fetch_add(&s->seen, 1);
	} while (!atomic_load(&s->over) && !atomic_load(&w->v.failed));
	CHECK_ERR(&w->v, switchto_wait(&no_time), ETIMEDOUT);
}

static void resume_races_with_signal(void **state)
{
	struct verdict v = { 0 };
	uint32_t seed = 13;

	(void)state;
	install(handler, 0);
	for (int way = 0; way < WAYS; way++) {
		struct sleeper s = { .way = way };
		unsigned int resumes, rounds = LOOPS(1000), returns;

		sink_start(&s.sink);
		worker_start(&s.w, interrupted_often, &s);
		for (resumes = 1; resumes <= rounds && !atomic_load(&s.w.v.failed); resumes++) {
			bool signal_first = random_next(&seed) & 1;

			/* The last round's signal must not meet a thread that is gone. */
			if (resumes == rounds)
				atomic_store(&s.over, true);
			if (signal_first && resumes < rounds)
				pthread_kill(s.w.thread, SIGUSR1);
			random_delay(&seed, 2000);
			CHECK_EQ(&v, switchto_resume(s.w.tid), 0);
			random_delay(&seed, 2000);
			if (!signal_first && resumes < rounds)
				pthread_kill(s.w.thread, SIGUSR1);
			AWAIT(atomic_load(&s.seen) >= resumes || atomic_load(&s.w.v.failed));
		}
		workers_join(&s.w, 1, &v);
		CHECK_EQ(&v, s.seen, rounds);
		CHECK(&v, atomic_load(&s.interrupted) < rounds);
		sink_stop(&s.sink, &v, &returns);
		if (way_switches(way))
			CHECK(&v, returns > 0 && returns <= s.returned);
		else
			CHECK_EQ(&v, returns, 0);
	}
	verdict_assert(&v);
}

static _Atomic pid_t handler_target;
static atomic_int handler_result;

static void resuming_handler(int signal)
{
	int saved = errno;

	(void)signal;
	errno = 12345;
	atomic_store(&handler_result, switchto_resume(handler_target) == 0 && errno == 12345 ? 1 : -1);
	errno = saved;
	atomic_fetch_add(&handled, 1);
}

static void resume_from_handler(void **state)
{
	struct verdict v = { 0 };
	struct sink s = { 0 };
	unsigned int returns;

	(void)state;
	install(resuming_handler, 0);
	sink_start(&s);
	handler_target = s.w.tid;
	atomic_store(&handler_result, 0);
	raise(SIGUSR1);
	CHECK_EQ(&v, atomic_load(&handler_result), 1);
	AWAIT(atomic_load(&s.returns) == 1);
	CHECK_EQ(&v, s.last, gettid());
	sink_stop(&s, &v, &returns);
	CHECK_EQ(&v, returns, 1);
	verdict_assert(&v);
}

/* Of a thread that the library does not know, for one that it does not know either. */
static void raises(struct worker *w)
{
	(void)w;
	raise(SIGUSR1);
}

static void takes_one(struct worker *w)
{
	await_release(w);
	CHECK_EQ(&w->v, switchto_wait(&no_time), *(_Atomic pid_t *)w->arg);
}

static void resume_from_unknown_handler(void **state)
{
	struct worker target = { 0 }, raiser = { 0 };
	struct verdict v = { 0 };

	(void)state;
	install(resuming_handler, 0);
	worker_start(&target, takes_one, &raiser.tid);
	handler_target = target.tid;
	atomic_store(&handler_result, 0);
	worker_start(&raiser, raises, NULL);
	workers_join(&raiser, 1, &v);
	CHECK_EQ(&v, atomic_load(&handler_result), 1);
	worker_release(&target);
	workers_join(&target, 1, &v);
	verdict_assert(&v);
}

/* A handler that resumes the very thread whose wait it interrupts: not lost. */
static void resumed_by_own_handler(struct worker *w)
{
	const struct timespec while_long = { 0, NSEC_PER_SEC / 50 };
	pid_t got;

	do
		got = switchto_wait(&while_long);
	while (got == -1 && (errno == EINTR || errno == ETIMEDOUT));
	CHECK_EQ(&w->v, got, w->tid);
	CHECK_ERR(&w->v, switchto_wait(&no_time), ETIMEDOUT);
}

static void handler_resumes_its_own_thread(void **state)
{
	struct verdict v = { 0 };

	(void)state;
	install(resuming_handler, 0);
	for (int i = 0; i < LOOPS(200); i++) {
		struct worker w = { 0 };

		worker_start(&w, resumed_by_own_handler, NULL);
		handler_target = w.tid;
		await_parked(w.tid);
		pthread_kill(w.thread, SIGUSR1);
		workers_join(&w, 1, &v);
	}
	verdict_assert(&v);
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
	_Atomic unsigned int interrupted;
};

static void storm_switches(struct worker *w)
{
	struct storm *s = w->arg;
	pid_t other = s->pair[w == &s->pair[0]].tid, got;

	while (!atomic_load(&s->over)) {
		got = switchto_switch(other);
		while (got == -1 && errno == EINTR) {
			atomic_fetch_add(&s->interrupted, 1);
			got = switchto_wait(NULL);
		}
		CHECK_EQ(&w->v, got, other);
	}
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

static void handlers_resume_amid_switches(void **state)
{
	struct storm s = { .signals = LOOPS(2000) };
	struct verdict v = { 0 };
	unsigned int returns;

	(void)state;
	install(resuming_handler, 0);
	sink_start(&s.sink);
	handler_target = s.sink.w.tid;
	worker_start(&s.pair[1], storm_answers, &s);
	worker_start(&s.pair[0], storm_switches, &s);
	worker_start(&s.sender, storm_sends, &s);
	workers_join(&s.sender, 1, &v);
	workers_join(s.pair, 2, &v);
	sink_stop(&s.sink, &v, &returns);
	CHECK_EQ(&v, returns, s.signals);
	verdict_assert(&v);
}

int suite_signal(void)
{
	const struct CMUnitTest cases[] = {
		CASE("HandlerEndsWait", handler_ends_wait),
		CASE("RestartResumesNobodyAgain", restart_resumes_nobody_again),
		CASE("StopIsNotNoticed", stop_is_not_noticed),
		CASE("ResumeRacesWithSignal", resume_races_with_signal),
		CASE("ResumeFromHandler", resume_from_handler),
		CASE("ResumeFromUnknownHandler", resume_from_unknown_handler),
		CASE("HandlerResumesItsOwnThread", handler_resumes_its_own_thread),
		CASE("HandlersResumeAmidSwitches", handlers_resume_amid_switches),
	};

	return RUN_CASES("signal", cases);
}
