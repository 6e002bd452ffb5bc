// SPDX-License-Identifier: MIT
/*
 * A TID that the kernel gives to a new thread receives nothing that was meant
 * for its former owner. To have it back at once instead of after a walk round the
 * PID space: set_tid.h.
 */
#include "pair.h"
#include "set_tid.h"

#include <switchto/switchto.h>

static void unregistered(struct worker *w)
{
	await_release(w);
}

static void registered(struct worker *w)
{
	CHECK_EQ(&w->v, switchto_self(), gettid());
	worker_release(w);
	AWAIT(atomic_load((atomic_bool *)w->arg));
}

static void cancelled(struct worker *w)
{
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
	switchto_wait(NULL);
	CHECK(&w->v, !"wait returned");
}

/* Ends its registration, and then lives on in a destructor of the program's. */
static pthread_key_t last_key;

static void last_words(void *arg)
{
	struct worker *w = arg;

	worker_release(w);
	AWAIT(atomic_load((atomic_bool *)w->arg));
}

static void lives_on(struct worker *w)
{
	CHECK_EQ(&w->v, switchto_self(), gettid());
	pthread_setspecific(last_key, w);
}

/* The new owner: nothing is pending for it, and then it is as good as any thread. */
static void new_owner(struct worker *w)
{
	CHECK_ERR(&w->v, switchto_wait(&no_time), ETIMEDOUT);
	CHECK_EQ(&w->v, switchto_self(), gettid());
	worker_release(w);
	CHECK_EQ(&w->v, switchto_wait(NULL), w->starter);
	CHECK_ERR(&w->v, switchto_wait(&no_time), ETIMEDOUT);
}

static void succeeds(pid_t tid, struct verdict *v)
{
	struct worker w = { 0 };

	start_as(tid, &w, new_owner, NULL);
	CHECK_EQ(v, w.tid, tid);
	await_release(&w);
	await_parked(tid);
	CHECK_EQ(v, switchto_resume(tid), 0);
	workers_join(&w, 1, v);
}

TEST(after_unregistered_owner)
{
	struct worker w = { 0 };

	worker_start(&w, unregistered, NULL);
	CHECK_EQ(v, switchto_resume(w.tid), 0);
	worker_end(&w, v);
	succeeds(w.tid, v);
}

TEST(after_registered_owner)
{
	struct worker w = { 0 };
	atomic_bool over = false;

	worker_start(&w, registered, &over);
	await_release(&w);
	CHECK_EQ(v, switchto_resume(w.tid), 0);
	atomic_store(&over, true);
	workers_join(&w, 1, v);
	succeeds(w.tid, v);
}

TEST(after_cancelled_owner)
{
	struct worker w = { 0 };

	worker_start_parked(&w, cancelled, NULL);
	pthread_cancel(w.thread);
	workers_join(&w, 1, v);
	succeeds(w.tid, v);
}

/* It is registered no more, but alive: its resume is pending for it, and goes with it. */
TEST(after_owner_in_destructor)
{
	struct worker w = { 0 };
	atomic_bool over = false;

	/* After the library's own key, so that this destructor runs after the library's. */
	switchto_self();
	assert_int_equal(pthread_key_create(&last_key, last_words), 0);
	worker_start(&w, lives_on, &over);
	await_release(&w);
	CHECK_EQ(v, switchto_resume(w.tid), 0);
	atomic_store(&over, true);
	workers_join(&w, 1, v);
	pthread_key_delete(last_key);
	succeeds(w.tid, v);
}

static void takes_first(struct worker *w)
{
	await_release(w);
	CHECK_EQ(&w->v, switchto_wait(&no_time), w->starter);
	CHECK_ERR(&w->v, switchto_wait(&no_time), ETIMEDOUT);
}

/* What was pending for the former owner is gone, what is for the new one is not. */
TEST(resume_before_new_owner_registers)
{
	struct worker former = { 0 }, other = { 0 }, w = { 0 };
	atomic_bool over = true;

	worker_start(&former, unregistered, NULL);
	CHECK_EQ(v, switchto_resume(former.tid), 0);
	worker_end(&former, v);

	start_as(former.tid, &w, takes_first, NULL);
	CHECK_EQ(v, switchto_resume(former.tid), 0);
	worker_end(&w, v);

	/* And where the owner in between was registered. */
	start_as(former.tid, &other, registered, &over);
	workers_join(&other, 1, v);
	start_as(former.tid, &w, takes_first, NULL);
	CHECK_EQ(v, switchto_resume(former.tid), 0);
	worker_end(&w, v);
}

#ifndef UNDER_TSAN /* whose runtime in the child still knows the parent's threads */
/* In the child of a fork() the TID of a thread that was the parent's. */
CHILD(succeeds_in_child)
{
	succeeds(*(pid_t *)arg, v);
}

TEST(after_parents_thread)
{
	struct worker w = { 0 };
	pid_t tid, child;
	int go[2];
	char byte = 0;

	worker_start(&w, unregistered, NULL);
	CHECK_EQ(v, switchto_resume(w.tid), 0);
	tid = w.tid;
	if (pipe(go))
		give_up("pipe: wanted one, got %s", strerror(errno));
	child = fork();
	if (child == 0) {
		watchdog_start("AfterParentsThread, child");
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		/* The parent's thread has to end before its TID is free. */
		_exit(read(go[0], &byte, 1) == 1 ? succeeds_in_child(&tid) : 1);
	}
	worker_end(&w, v);
	CHECK_EQ(v, write(go[1], &byte, 1), 1);
	CHECK_EQ(v, child_status(child), 0);
	close(go[0]);
	close(go[1]);
}
#endif

/*
 * One owner is resumed at any moment of its life and its end, the next one not
 * at all: whatever the resume met, the next owner has nothing pending.
 */
struct estate {
	struct worker resumer;
	pid_t tid;
	unsigned int rounds;
	_Atomic unsigned int begun, done;
};

static void resumes_each(struct worker *w)
{
	struct estate *e = w->arg;
	uint32_t seed = 19;

	for (unsigned int i = 1; i <= e->rounds; i++) {
		AWAIT(atomic_load(&e->begun) == i);
		random_delay(&seed, 60000);
		CHECK(&w->v, switchto_resume(e->tid) == 0 || errno == ESRCH);
		atomic_store(&e->done, i);
	}
}

static void owns_for_a_while(struct worker *w)
{
	uint32_t seed = (uint32_t)(uintptr_t)w->arg;

	random_delay(&seed, 20000);
	if (seed & 1)
		CHECK_EQ(&w->v, switchto_self(), gettid());
	random_delay(&seed, 20000);
}

static void has_nothing(struct worker *w)
{
	CHECK_ERR(&w->v, switchto_wait(&no_time), ETIMEDOUT);
}

TEST(resumed_while_it_ends)
{
	struct estate e = { .rounds = LOOPS(200) };
	struct worker first = { 0 };

	worker_start(&first, unregistered, NULL);
	worker_end(&first, v);
	e.tid = first.tid;
	worker_start(&e.resumer, resumes_each, &e);
	for (unsigned int i = 1; i <= e.rounds; i++) {
		struct worker w = { 0 };

		start_as(e.tid, &w, owns_for_a_while, (void *)(uintptr_t)i);
		atomic_store(&e.begun, i);
		workers_join(&w, 1, v);
		AWAIT(atomic_load(&e.done) == i);
		start_as(e.tid, &w, has_nothing, NULL);
		workers_join(&w, 1, v);
	}
	workers_join(&e.resumer, 1, v);
}

int main(void)
{
	if (wants_absent_swap("tid_reuse"))
		return SKIPPED;
	watchdog_start("tid_reuse");
	if (cannot_choose_tids("tid_reuse"))
		return SKIPPED;
	return run_watched_group(NULL);
}
