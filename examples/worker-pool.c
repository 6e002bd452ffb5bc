// SPDX-License-Identifier: MIT
/*
 * worker-pool: a pool of threads that runs the shortest job first.
 *
 * Shows a policy of the program's own. Jobs give way from time to time, from anywhere in
 * their call stack. A dispatcher then chooses the worker whose job has the least left to
 * do, and switches to that worker. So a short job overtakes a long one that came before.
 *
 *	cc -std=c11 -O2 worker-pool.c $(pkg-config --cflags --libs switchto) -pthread
 *	./a.out
 */
#include <err.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <switchto/switchto.h>

enum { WORKERS = 3, JOBS = 6 };

struct job {
	char name;
	int arrives; /* when, in steps */
	int left;    /* how much to do, in steps */
	bool taken;
};

struct worker {
	pthread_t thread;
	pid_t tid;
	struct job *job; /* NULL: idle */
};

/* The order in which they end. By order of arrival it would be abcdef. */
static const char expected[] = "cdbeaf";

/* No lock: one thread runs at a time, and a switch hands over what it wrote. */
static struct job jobs[JOBS] = {
	{ .name = 'a', .arrives = 0, .left = 10 }, { .name = 'b', .arrives = 2, .left = 4 },
	{ .name = 'c', .arrives = 3, .left = 1 },  { .name = 'd', .arrives = 4, .left = 2 },
	{ .name = 'e', .arrives = 5, .left = 7 },  { .name = 'f', .arrives = 30, .left = 1 },
};
static struct worker workers[WORKERS];
static pid_t dispatcher;

/*
 * There is no retry after EINTR: a signal handler does not end a wait or a switch. A call
 * fails with EINTR only in the child of a handler that forked, which must not wait again.
 */
static pid_t check(pid_t result, const char *call)
{
	if (result == -1)
		err(EXIT_FAILURE, "%s", call);
	return result;
}

/* --- the policy: with another one, the jobs end in another order --- */

static bool goes_first(const struct job *job, const struct job *other)
{
	return !other || job->left < other->left;
}

/* For an idle worker. */
static struct job *next_job(int now)
{
	struct job *next = NULL;

	for (struct job *j = jobs; j < jobs + JOBS; j++)
		if (!j->taken && j->arrives <= now && goes_first(j, next))
			next = j;
	return next;
}

static struct worker *next_worker(void)
{
	struct worker *next = NULL;

	for (struct worker *w = workers; w < workers + WORKERS; w++)
		if (w->job && goes_first(w->job, next ? next->job : NULL))
			next = w;
	return next;
}

/* --- the pool --- */

static void give_way(void)
{
	check(switchto_switch(dispatcher), "switchto_switch");
}

static void run(struct job *job)
{
	while (job->left > 0) {
		job->left--; /* A real job works here. */
		give_way();
	}
}

static void *work(void *arg)
{
	struct worker *me = arg;

	give_way(); /* "I am here" */
	while (me->job)
		run(me->job);
	return NULL;
}

static void start(struct worker *w)
{
	errno = pthread_create(&w->thread, NULL, work, w);
	if (errno)
		err(EXIT_FAILURE, "pthread_create");
	/*
	 * One worker at a time: resumes are not counted, so two workers that begin at once
	 * could end one wait. The wait returns the worker's TID.
	 */
	w->tid = check(switchto_wait(NULL), "switchto_wait");
}

static void dispatch(char *ended)
{
	int left = JOBS;

	for (int now = 0; left > 0; now++) {
		struct worker *chosen;

		for (struct worker *w = workers; w < workers + WORKERS; w++)
			if (!w->job && (w->job = next_job(now)))
				w->job->taken = true;
		chosen = next_worker();
		if (!chosen)
			continue; /* No job has arrived. */
		check(switchto_switch(chosen->tid), "switchto_switch");
		if (chosen->job->left == 0) {
			*ended++ = chosen->job->name;
			chosen->job = NULL;
			left--;
		}
	}
}

int main(void)
{
	const char *backend = switchto_backend();
	char ended[JOBS + 1] = "";

	if (!backend) /* 77: this kernel lacks the backend that SWITCHTO_BACKEND names. */
		err(errno == ENOSYS ? 77 : EXIT_FAILURE, "no backend, see switchto(7)");

	dispatcher = check(switchto_self(), "switchto_self");
	for (struct worker *w = workers; w < workers + WORKERS; w++)
		start(w);
	dispatch(ended);
	/* A worker that is resumed without a job ends. */
	for (struct worker *w = workers; w < workers + WORKERS; w++) {
		check(switchto_resume(w->tid), "switchto_resume");
		pthread_join(w->thread, NULL);
	}

	printf("the jobs ended in the order %s, backend %s\n", ended, backend);
	if (strcmp(ended, expected) != 0)
		errx(EXIT_FAILURE, "wanted the order %s, found %s", expected, ended);
	return EXIT_SUCCESS;
}
