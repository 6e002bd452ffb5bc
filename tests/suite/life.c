// SPDX-License-Identifier: MIT
/* How threads and processes begin and end. */
#include "suite.h"

#include <spawn.h>

static void parks(struct worker *w)
{
	CHECK_EQ(&w->v, switchto_wait(NULL), w->starter);
}

/* In the child of a fork(): nobody else is here, nothing is pending, and all calls work. */
struct family {
	pid_t parent, parked, pending;
};

CHILD(child_is_alone)
{
	const struct family *f = arg;

	CHECK_ERR(v, switchto_resume(f->parked), ESRCH);
	CHECK_ERR(v, switchto_switch(f->parked), ESRCH);
	CHECK_ERR(v, switchto_resume(f->pending), ESRCH);
	CHECK_ERR(v, switchto_resume(f->parent), ESRCH);
	CHECK_ERR(v, switchto_wait(&no_time), ETIMEDOUT);
	CHECK_EQ(v, switchto_self(), gettid());
	CHECK_EQ(v, switchto_resume(gettid()), 0);
	CHECK_EQ(v, switchto_wait(NULL), gettid());
#ifndef UNDER_TSAN /* whose runtime in the child still knows the parent's threads */
	pair_works(v, 100);
#endif
}

CHILD(child_has_a_child)
{
	struct family *f = arg;

	CHECK_EQ(v, child_is_alone(f), 0);
	f->parent = getpid();
	CHECK_EQ(v, switchto_resume(getpid()), 0);
	CHECK_EQ(v, run_child(child_is_alone, f), 0);
	CHECK_EQ(v, switchto_wait(&no_time), getpid());
}

static void stands(struct worker *w)
{
	await_release(w);
	CHECK_EQ(&w->v, switchto_wait(&no_time), w->starter);
}

TEST(fork_with_others_parked)
{
	struct worker parked = { 0 }, pending = { 0 };
	struct family f;

	worker_start(&parked, parks, NULL);
	worker_start(&pending, stands, NULL);
	await_parked(parked.tid);
	CHECK_EQ(v, switchto_resume(pending.tid), 0);
	CHECK_EQ(v, switchto_resume(gettid()), 0);
	f = (struct family){ getpid(), parked.tid, pending.tid };

	CHECK_EQ(v, run_child(child_is_alone, &f), 0);
	CHECK_EQ(v, run_child(child_has_a_child, &f), 0);

	/* And the parent has noticed nothing. */
	CHECK_EQ(v, switchto_wait(&no_time), gettid());
	CHECK(v, is_parked(parked.tid));
	CHECK_EQ(v, switchto_resume(parked.tid), 0);
	worker_release(&pending);
	workers_join(&parked, 1, v);
	workers_join(&pending, 1, v);
}

/* fork() by a thread that the library does not know. */
static void forks(struct worker *w)
{
	struct family f = { getpid(), w->starter, w->starter };

	CHECK_EQ(&w->v, run_child(child_is_alone, &f), 0);
	CHECK_ERR(&w->v, switchto_wait(&no_time), ETIMEDOUT);
}

TEST(fork_by_unregistered_thread)
{
	struct worker w = { 0 };

	worker_run(&w, forks, NULL, v);
}

/* The runtimes of gcc 12's sanitizers are left in the child as another thread had them. */
#if !defined(UNDER_TSAN) && !defined(UNDER_ASAN)
#define FORK_AMID_CHURN 1
#endif

#ifdef FORK_AMID_CHURN
CHILD(child_works)
{
	CHECK_ERR(v, switchto_wait(&no_time), ETIMEDOUT);
	pair_works(v, 10);
}

/* fork() in the midst of whatever the library does for other threads. */
struct churn {
	struct worker w[2];
	atomic_bool over;
};

static void registered_and_gone(struct worker *w)
{
	CHECK_EQ(&w->v, switchto_resume(w->starter), 0);
	CHECK_EQ(&w->v, switchto_self(), w->tid);
}

static void churns(struct worker *w)
{
	struct churn *c = w->arg;

	while (!atomic_load(&c->over)) {
		struct worker shortly = { 0 };

		worker_run(&shortly, registered_and_gone, NULL, &w->v);
		CHECK_EQ(&w->v, switchto_wait(&no_time), shortly.tid);
	}
}

TEST(fork_amid_churn)
{
	struct churn c = { 0 };

	worker_start(&c.w[0], churns, &c);
	worker_start(&c.w[1], churns, &c);
	for (int i = 0; i < LOOPS(40); i++)
		CHECK_EQ(v, run_child(child_works, NULL), 0);
	atomic_store(&c.over, true);
	workers_join(c.w, 2, v);
}
#endif

static void cancelled_while_parked(struct worker *w)
{
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
	switchto_wait(NULL);
	CHECK(&w->v, !"wait returned");
}

static void cancelled_while_switching(struct worker *w)
{
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
	switchto_switch(*(pid_t *)w->arg);
	CHECK(&w->v, !"switch returned");
}

/* Asynchronous cancellation ends a parked thread for the library, too. */
TEST(cancel_while_parked)
{
	struct sink s = { 0 };
	pid_t target;

	sink_start(&s);
	target = s.w.tid;
	for (int i = 0; i < LOOPS(200); i++) {
		struct worker w = { 0 };
		void *result;

		worker_start_parked(&w, i & 1 ? cancelled_while_parked : cancelled_while_switching,
				    &target);
		pthread_cancel(w.thread);
		pthread_join(w.thread, &result);
		CHECK(v, result == PTHREAD_CANCELED);
		if (atomic_load(&w.v.failed))
			CHECK_EQ(v, verdict_status(&w.v), 0);
		CHECK_ERR(v, switchto_resume(w.tid), ESRCH);
		CHECK_ERR(v, switchto_switch(w.tid), ESRCH);
		pair_works(v, 1);
	}
	await_parked(target);
	CHECK(v, sink_stop(&s, v) > 0);
}

struct deferred {
	struct worker w;
	pid_t got;
};

static void cancelled_later(struct worker *w)
{
	struct deferred *d = w->arg;

	d->got = switchto_wait(NULL);
	pthread_testcancel();
}

/* The calls are no cancellation points: the wait goes on and takes its resume. */
TEST(wait_is_no_cancellation_point)
{
	struct deferred d = { 0 };
	void *result;

	worker_start_parked(&d.w, cancelled_later, &d);
	pthread_cancel(d.w.thread);
	await_parked(d.w.tid);
	CHECK_EQ(v, switchto_resume(d.w.tid), 0);
	pthread_join(d.w.thread, &result);
	CHECK(v, result == PTHREAD_CANCELED);
	CHECK_EQ(v, d.got, gettid());
}

/* Nor are the others, whatever they do: for threads registered or not, first call or not. */
struct pending {
	struct worker w;
	struct worker registered, unregistered;
	unsigned int calls;
};

static void calls_all(struct worker *w)
{
	struct pending *p = w->arg;
	const pid_t targets[] = { p->unregistered.tid, p->registered.tid, w->tid };

	await_release(w);
	pthread_cancel(pthread_self());
	CHECK_EQ(&w->v, switchto_resume(p->unregistered.tid), 0);
	p->calls++;
	CHECK_EQ(&w->v, switchto_wait(&no_time), w->starter);
	p->calls++;
	for (int i = 0; i < 3; i++) {
		CHECK_EQ(&w->v, switchto_resume(targets[i]), 0);
		p->calls++;
		switchto_switch_timed(targets[i], &no_time);
		p->calls++;
	}
	CHECK(&w->v, switchto_backend() != NULL);
	p->calls++;
	pthread_testcancel();
}

static void registered_and_pending(struct worker *w)
{
	CHECK_EQ(&w->v, switchto_self(), w->tid);
	atomic_store((atomic_bool *)w->arg, true);
	await_release(w);
	CHECK(&w->v, switchto_wait(&no_time) > 0);
}

TEST(no_cancellation_points)
{
	struct pending p = { 0 };
	atomic_bool ready = false;
	void *result;

	worker_start(&p.registered, registered_and_pending, &ready);
	AWAIT(atomic_load(&ready));
	worker_start(&p.unregistered, await_release, NULL);
	worker_start(&p.w, calls_all, &p);
	CHECK_EQ(v, switchto_resume(p.w.tid), 0);
	worker_release(&p.w);
	pthread_join(p.w.thread, &result);
	CHECK(v, result == PTHREAD_CANCELED);
	CHECK_EQ(v, p.calls, 9);
	CHECK_EQ(v, verdict_status(&p.w.v), 0);
	worker_release(&p.registered);
	worker_release(&p.unregistered);
	workers_join(&p.registered, 1, v);
	workers_join(&p.unregistered, 1, v);
}

/*
 * A destructor of the program's that runs after the library's: the thread is
 * registered anew, and what it took before is not there a second time.
 */
static pthread_key_t late_key;

static void calls_late(void *arg)
{
	struct worker *w = arg;

	CHECK_ERR(&w->v, switchto_wait(&no_time), ETIMEDOUT);
	CHECK_EQ(&w->v, switchto_resume(w->tid), 0);
	CHECK_EQ(&w->v, switchto_wait(NULL), w->tid);
	CHECK_EQ(&w->v, switchto_resume(w->tid), 0);
}

static void ends_late(struct worker *w)
{
	await_release(w);
	CHECK_EQ(&w->v, switchto_wait(&no_time), w->starter);
	CHECK_EQ(&w->v, switchto_resume(w->tid), 0);
	pthread_setspecific(late_key, w);
}

TEST(calls_in_destructor)
{
	struct worker w = { 0 };

	/* Keys that come after the library's have their destructors after its own. */
	switchto_self();
	assert_int_equal(pthread_key_create(&late_key, calls_late), 0);
	worker_start(&w, ends_late, NULL);
	CHECK_EQ(v, switchto_resume(w.tid), 0);
	worker_end(&w, v);
	CHECK_ERR(v, switchto_resume(w.tid), ESRCH);
	pthread_key_delete(late_key);
}

/* The main thread leaves; its TID stays, as a zombie, but is no thread any more. */
struct left {
	struct worker parked, last;
	pid_t leader;
};

static void parks_for_last(struct worker *w)
{
	struct left *l = w->arg;
	pid_t from = switchto_wait(NULL);

	CHECK_EQ(&w->v, from, l->last.tid);
	CHECK_EQ(&w->v, switchto_resume(from), 0);
}

static void is_last(struct worker *w)
{
	struct left *l = w->arg;
	struct verdict v = { 0 };

	AWAIT(thread_state(l->leader) == 'Z');
	CHECK_ERR(&v, switchto_resume(l->leader), ESRCH);
	CHECK_ERR(&v, switchto_switch(l->leader), ESRCH);
	CHECK_EQ(&v, switchto_switch(l->parked.tid), l->parked.tid);
	workers_join(&l->parked, 1, &v);
	pair_works(&v, 10);
	_exit(verdict_status(&v));
}

static int main_thread_leaves(void *arg)
{
	static struct left l;

	l.leader = switchto_self();
	worker_start_parked(&l.parked, parks_for_last, &l);
	worker_start(&l.last, is_last, &l);
	pthread_exit(NULL);
}

TEST(pthread_exit_of_main)
{
	CHECK_EQ(v, run_child(main_thread_leaves, NULL), 0);
}

/*
 * A process that ends while its threads sleep, in each of the ways: at once, by
 * its own exit or exec or by a signal, and with nothing left of it.
 */
enum end { END_EXIT_GROUP, END_EXEC, END_EXEC_BY_THREAD, END_SIGKILL, END_SIGTERM, ENDS };

struct asleep {
	struct worker w;
	struct sink sink;
	int way;
};

static void sleeps_for_good(struct worker *w)
{
	struct asleep *a = w->arg;

	sleep_this_way(a->way, a->sink.w.tid);
	/* Nobody resumes it. */
	_exit(1);
}

static void execs_as_thread(struct worker *w)
{
	exec_self("after-exec");
}

static int ends_with_sleepers(void *arg)
{
	static struct asleep a[WAYS];
	struct worker w = { 0 };
	struct verdict v = { 0 };

	for (int way = 0; way < WAYS; way++) {
		a[way].way = way;
		sink_start(&a[way].sink);
		worker_start_parked(&a[way].w, sleeps_for_good, &a[way]);
		await_parked(a[way].sink.w.tid);
	}
	switch (*(enum end *)arg) {
	case END_EXIT_GROUP:
		_exit(42);
	case END_EXEC:
		exec_self("after-exec");
	case END_EXEC_BY_THREAD:
		/* Which becomes the process's only one, with the TID of this. */
		worker_run(&w, execs_as_thread, NULL, &v);
		break;
	case END_SIGKILL:
		kill(getpid(), SIGKILL);
		break;
	case END_SIGTERM:
		kill(getpid(), SIGTERM);
		break;
	default:
		break;
	}
	pause();
	return 1;
}

TEST(process_ends_with_sleepers)
{
	const int status[ENDS] = { 42, 0, 0, 128 + SIGKILL, 128 + SIGTERM };

	for (enum end end = 0; end < ENDS; end++) {
#ifdef UNDER_TSAN /* whose runtime has threads wait for each other in exec */
		if (end == END_EXEC_BY_THREAD)
			continue;
#endif
		CHECK_EQ(v, run_child(ends_with_sleepers, &end), status[end]);
	}
}

/*
 * A robust mutex whose owner ends while it sleeps in the library: the next one
 * has it, and is told. Of a cancelled thread, and of a process that is killed.
 */
struct robust {
	struct worker w;
	struct sink sink;
	pthread_mutex_t mutex;
	_Atomic pid_t ready;
};

static void robust_init(pthread_mutex_t *mutex)
{
	pthread_mutexattr_t attr;

	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
	pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(mutex, &attr);
	pthread_mutexattr_destroy(&attr);
}

static void owns_and_switches(struct worker *w)
{
	struct robust *r = w->arg;

	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
	CHECK_EQ(&w->v, pthread_mutex_lock(&r->mutex), 0);
	switchto_switch(r->sink.w.tid);
	CHECK(&w->v, !"switch returned");
}

static void has_it_after_the_owner(struct verdict *v, pthread_mutex_t *mutex)
{
	CHECK_EQ(v, pthread_mutex_lock(mutex), EOWNERDEAD);
	CHECK_EQ(v, pthread_mutex_consistent(mutex), 0);
	CHECK_EQ(v, pthread_mutex_unlock(mutex), 0);
	pthread_mutex_destroy(mutex);
}

static int owns_in_child(void *arg)
{
	struct robust *r = arg;

	sink_start(&r->sink);
	worker_start_parked(&r->w, owns_and_switches, r);
	atomic_store(&r->ready, 1);
	return pause();
}

TEST(robust_owner_ends_asleep)
{
	struct robust here = { 0 }, *shared;
	pid_t child;

	robust_init(&here.mutex);
	sink_start(&here.sink);
	worker_start_parked(&here.w, owns_and_switches, &here);
	pthread_cancel(here.w.thread);
	workers_join(&here.w, 1, v);
	has_it_after_the_owner(v, &here.mutex);
	CHECK_EQ(v, sink_stop(&here.sink, v), 1);

	shared = map_shared(-1, sizeof(*shared));
	robust_init(&shared->mutex);
	child = start_child(owns_in_child, shared);
	AWAIT(atomic_load(&shared->ready));
	kill(child, SIGKILL);
	has_it_after_the_owner(v, &shared->mutex);
	CHECK_EQ(v, child_status(child), 128 + SIGKILL);
	munmap(shared, sizeof(*shared));
}

/* A program started by posix_spawn(), in which the child runs on its parent's memory. */
TEST(spawn_with_others_parked)
{
	char *const argv[] = { (char *)"test", (char *)"after-exec", NULL };
	struct worker parked = { 0 };
	extern char **environ;
	pid_t child;

	worker_start_parked(&parked, parks, NULL);
	CHECK_EQ(v, switchto_resume(gettid()), 0);
	CHECK_EQ(v, posix_spawn(&child, "/proc/self/exe", NULL, NULL, argv, environ), 0);
	CHECK_EQ(v, child_status(child), 0);
	CHECK_EQ(v, switchto_wait(&no_time), gettid());
	CHECK_EQ(v, switchto_resume(parked.tid), 0);
	workers_join(&parked, 1, v);
}

#if !defined(UNDER_TSAN) && !defined(UNDER_ASAN) && __GLIBC_PREREQ(2, 34)
#define BARE_FORK 1
/* fork() without its handlers: the child finds out for itself that it is another. */
TEST(bare_fork)
{
	struct worker parked = { 0 };
	struct family f;
	pid_t child;

	worker_start_parked(&parked, parks, NULL);
	CHECK_EQ(v, switchto_self(), gettid());
	CHECK_EQ(v, switchto_resume(gettid()), 0);
	f = (struct family){ getpid(), parked.tid, parked.tid };
	child = _Fork();
	if (child == 0) {
		alarm(60);
		_exit(child_is_alone(&f));
	}
	CHECK_EQ(v, child_status(child), 0);
	CHECK_EQ(v, switchto_wait(&no_time), gettid());
	CHECK_EQ(v, switchto_resume(parked.tid), 0);
	workers_join(&parked, 1, v);
}
#endif

int life_after_exec(void)
{
	struct verdict v = { 0 };

	watchdog_start("after exec");
	CHECK_ERR(&v, switchto_wait(&no_time), ETIMEDOUT);
	CHECK_EQ(&v, switchto_self(), gettid());
	pair_works(&v, 100);
	return verdict_status(&v);
}

static int execs(void *arg)
{
	struct worker w = { 0 };

	worker_start_parked(&w, parks, NULL);
	switchto_resume(gettid());
	exec_self("after-exec");
}

TEST(exec_while_parked)
{
	CHECK_EQ(v, run_child(execs, NULL), 0);
}

/* All the first calls of a process at once. */
#define FIRST_THREADS 64

struct first {
	struct worker w[FIRST_THREADS];
	const char *backend[FIRST_THREADS];
	/* Not a flag to be polled: that many who poll hold up a slow machine. */
	pthread_barrier_t go;
};

static void calls_first(struct worker *w)
{
	struct first *f = w->arg;
	unsigned int me = (unsigned int)(w - f->w);
	struct worker *next = &f->w[(me + 1) % FIRST_THREADS];

	pthread_barrier_wait(&f->go);
	switch (me % 4) {
	case 0:
		CHECK_EQ(&w->v, switchto_self(), w->tid);
		break;
	case 1:
		CHECK(&w->v, switchto_backend() != NULL);
		break;
	case 2:
		CHECK_EQ(&w->v, switchto_resume(w->starter), 0);
		break;
	}
	/* All of them in a ring: each is resumed once, by the one before it. */
	CHECK_EQ(&w->v, switchto_switch(next->tid),
		 f->w[(me + FIRST_THREADS - 1) % FIRST_THREADS].tid);
	f->backend[me] = switchto_backend();
}

int life_first_calls(void)
{
	static struct first f;
	struct verdict v = { 0 };

	watchdog_start("first calls");
	pthread_barrier_init(&f.go, NULL, FIRST_THREADS + 1);
	for (unsigned int i = 0; i < FIRST_THREADS; i++)
		worker_start(&f.w[i], calls_first, &f);
	pthread_barrier_wait(&f.go);
	workers_join(f.w, FIRST_THREADS, &v);
	/* One of many resumes, which came before this thread's own first call. */
	CHECK(&v, switchto_wait(&no_time) > 0);
	CHECK_ERR(&v, switchto_wait(&no_time), ETIMEDOUT);
	for (unsigned int i = 0; i < FIRST_THREADS; i++) {
		CHECK(&v, f.backend[i] != NULL);
		CHECK(&v, f.backend[i] == f.backend[0]);
	}
	return verdict_status(&v);
}

static int execs_first_calls(void *arg)
{
	exec_self("first-calls");
}

TEST(first_calls_raced)
{
	for (int i = 0; i < 5; i++)
		CHECK_EQ(v, run_child(execs_first_calls, NULL), 0);
}

/*
 * Handlers of the program's, registered with pthread_atfork() before the library's, so
 * that they run before it in the child. What they do there with the library stays.
 */
static bool resumes_in_child;

static void first_in_child(void)
{
	if (switchto_self() != gettid() || (resumes_in_child && switchto_resume(gettid())))
		_exit(3);
}

CHILD(child_of_atfork)
{
	if (resumes_in_child)
		CHECK_EQ(v, switchto_wait(&no_time), gettid());
	CHECK_ERR(v, switchto_wait(&no_time), ETIMEDOUT);
	CHECK_EQ(v, switchto_self(), gettid());
	CHECK_EQ(v, switchto_switch(gettid()), gettid());
#ifndef UNDER_TSAN /* whose runtime in the child still knows the parent's threads */
	pair_works(v, 10);
#endif
}

CHILD(grandchild_of_atfork)
{
	CHECK_EQ(v, child_of_atfork(arg), 0);
	CHECK_EQ(v, run_child(child_of_atfork, arg), 0);
}

static void forks_with_handlers(struct worker *w)
{
	CHECK_EQ(&w->v, run_child(child_of_atfork, NULL), 0);
	CHECK_EQ(&w->v, switchto_self(), w->tid);
	CHECK_EQ(&w->v, run_child(child_of_atfork, NULL), 0);
	CHECK_EQ(&w->v, switchto_wait(&no_time), w->starter);
}

/* In the program run again, which has not called the library yet. */
int life_atfork(void)
{
	struct verdict v = { 0 };

	watchdog_start("atfork");
	pthread_atfork(NULL, NULL, first_in_child);
	CHECK_EQ(&v, switchto_self(), gettid());
	for (int i = 0; i < 2; i++) {
		struct worker w = { 0 };

		resumes_in_child = i;
		CHECK_EQ(&v, switchto_resume(gettid()), 0);
		CHECK_EQ(&v, run_child(grandchild_of_atfork, NULL), 0);
		CHECK_EQ(&v, switchto_wait(&no_time), gettid());
		/* A thread that is not registered yet, and then is. */
		worker_start(&w, forks_with_handlers, NULL);
		CHECK_EQ(&v, switchto_resume(w.tid), 0);
		workers_join(&w, 1, &v);
	}
	return verdict_status(&v);
}

static int execs_atfork(void *arg)
{
	exec_self("atfork");
}

TEST(atfork_handler_registers)
{
	CHECK_EQ(v, run_child(execs_atfork, NULL), 0);
}

/*
 * Without a file descriptor left a thread that is not registered yet is resumed, or
 * the call says ENOMEM. The first call of a thread works if it has not been resumed
 * and says ENOMEM if it has. The resume is not lost.
 */
/* All that there may be are in use. */
static void open_all(void)
{
	set_limit(RLIMIT_NOFILE, 64);
	while (dup(STDERR_FILENO) >= 0)
		;
}

struct poor {
	struct worker w;
	atomic_bool tried, rich;
};

static void resumed_and_poor(struct worker *w)
{
	struct poor *p = w->arg;

	await_release(w);
	CHECK_ERR(&w->v, switchto_self(), ENOMEM);
	CHECK_ERR(&w->v, switchto_wait(&no_time), ENOMEM);
	CHECK_ERR(&w->v, switchto_switch(w->tid), ENOMEM);
	atomic_store(&p->tried, true);
	AWAIT(atomic_load(&p->rich));
	CHECK_EQ(&w->v, switchto_wait(&no_time), w->starter);
	CHECK_ERR(&w->v, switchto_wait(&no_time), ETIMEDOUT);
}

static void calls_when_poor(struct worker *w)
{
	await_release(w);
	if (w->arg)
		CHECK_EQ(&w->v, switchto_self(), w->tid);
	CHECK_ERR(&w->v, switchto_wait(&no_time), ETIMEDOUT);
	CHECK_EQ(&w->v, switchto_switch(w->tid), w->tid);
	CHECK_EQ(&w->v, switchto_self(), w->tid);
}

CHILD(open_files_run_out)
{
	struct poor p = { 0 };
	struct worker w = { 0 }, unresumed[2] = { 0 };
	int resumed, error;
	rlim_t limit;

	worker_start(&p.w, resumed_and_poor, &p);
	worker_start(&w, stands, NULL);
	worker_start(&unresumed[0], calls_when_poor, NULL);
	worker_start(&unresumed[1], calls_when_poor, &p);
	CHECK_EQ(v, switchto_resume(p.w.tid), 0);

	limit = set_limit(RLIMIT_NOFILE, 0);
	if (*(bool *)arg)
		open_all();
	worker_release(&p.w);
	AWAIT(atomic_load(&p.tried));
	for (int i = 0; i < 2; i++)
		worker_release(&unresumed[i]);
	workers_join(unresumed, 2, v);
	resumed = switchto_resume(w.tid);
	error = errno;
	set_limit(RLIMIT_NOFILE, limit);

	atomic_store(&p.rich, true);
	workers_join(&p.w, 1, v);
	if (resumed != 0) {
		CHECK_EQ(v, error, ENOMEM);
		CHECK_EQ(v, switchto_resume(w.tid), 0);
	}
	worker_end(&w, v);
}

TEST(no_file_descriptors)
{
	for (int i = 0; i < 2; i++) {
		bool in_use = i;

		CHECK_EQ(v, run_child(open_files_run_out, &in_use), 0);
	}
}

/* Registered threads need neither descriptors nor memory, whatever they do with each other. */
struct needless {
	struct worker w[2];
	atomic_uint registered;
};

static void needs_nothing(struct worker *w)
{
	struct needless *n = w->arg;
	bool first = w == &n->w[0];
	pid_t other;

	CHECK_EQ(&w->v, switchto_self(), w->tid);
	atomic_fetch_add(&n->registered, 1);
	await_release(w);
	other = n->w[first].tid;
	for (int i = 0; i < 10; i++) {
		CHECK_EQ(&w->v, first ? switchto_switch(other) : switchto_wait(NULL), other);
		if (!first)
			CHECK_EQ(&w->v, switchto_resume(other), 0);
	}
	CHECK_ERR(&w->v, switchto_wait(&no_time), ETIMEDOUT);
	CHECK_ERR(&w->v, switchto_wait_until(&no_time), ETIMEDOUT);
	CHECK_EQ(&w->v, switchto_resume(w->tid), 0);
	CHECK_EQ(&w->v, switchto_switch_timed(w->tid, &no_time), w->tid);
	CHECK_EQ(&w->v, switchto_switch_until(w->tid, &no_time), w->tid);
	CHECK_EQ(&w->v, switchto_self(), w->tid);
	CHECK(&w->v, switchto_backend() != NULL);
}

TEST_IN_CHILD(registered_thread_needs_nothing)
{
	struct needless n = { 0 };
	rlim_t files;
#if !defined(UNDER_TSAN) && !defined(UNDER_ASAN) /* whose runtimes map memory as they go */
	rlim_t space;
#endif

	for (int i = 0; i < 2; i++)
		worker_start(&n.w[i], needs_nothing, &n);
	AWAIT(atomic_load(&n.registered) == 2);
	files = set_limit(RLIMIT_NOFILE, 0);
#if !defined(UNDER_TSAN) && !defined(UNDER_ASAN)
	space = set_limit(RLIMIT_AS, 0);
#endif
	for (int i = 0; i < 2; i++)
		worker_release(&n.w[i]);
	workers_join(n.w, 2, v);
#if !defined(UNDER_TSAN) && !defined(UNDER_ASAN)
	set_limit(RLIMIT_AS, space);
#endif
	set_limit(RLIMIT_NOFILE, files);
}
