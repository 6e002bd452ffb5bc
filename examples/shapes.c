// SPDX-License-Identifier: MIT
/*
 * shapes: the usual ways to hand over to another thread, and the switch that replaces them.
 *
 * Shows a condition variable per thread, a semaphore per worker and a pair of eventfds: a
 * thread wakes another one, then waits. switchto_switch() does both. docs/adopters.md says
 * what to look at before a program is changed so.
 *
 *	cc -std=c11 -O2 shapes.c $(pkg-config --cflags --libs switchto) -pthread
 *	./a.out 100000
 */
#define _POSIX_C_SOURCE 200809L
#include <err.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>

#include <switchto/switchto.h>

struct thread {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool turn;
	sem_t semaphore;
	int event;
	pid_t tid;
};

static void check(bool good, const char *call)
{
	if (!good)
		err(EXIT_FAILURE, "%s", call);
}

/* --- a condition variable per thread --- */

static void cond_wake(struct thread *next)
{
	pthread_mutex_lock(&next->lock);
	next->turn = true;
	pthread_cond_signal(&next->cond);
	pthread_mutex_unlock(&next->lock);
}

static void cond_wait(struct thread *me)
{
	pthread_mutex_lock(&me->lock);
	while (!me->turn)
		pthread_cond_wait(&me->cond, &me->lock);
	me->turn = false;
	pthread_mutex_unlock(&me->lock);
}

/* --- a semaphore per worker --- */

static void semaphore_wake(struct thread *worker)
{
	sem_post(&worker->semaphore);
}

static void semaphore_wait(struct thread *me)
{
	int result;

	do {
		result = sem_wait(&me->semaphore);
	} while (result == -1 && errno == EINTR);
}

/* --- a pair of eventfds --- */

static void event_wake(struct thread *peer)
{
	check(eventfd_write(peer->event, 1) == 0, "eventfd_write");
}

static void event_wait(struct thread *me)
{
	eventfd_t count;

	check(eventfd_read(me->event, &count) == 0, "eventfd_read");
}

/* --- with libswitchto, instead of any of them --- */

static void wake(struct thread *next)
{
	check(switchto_resume(next->tid) == 0, "switchto_resume");
}

static void wait_for_turn(struct thread *me)
{
	check(switchto_wait(NULL) != -1, "switchto_wait");
}

static void hand_over(struct thread *next)
{
	check(switchto_switch(next->tid) != -1, "switchto_switch");
}

/* --- two threads that hand over to each other, and count --- */

static const struct way {
	const char *name;
	void (*wake)(struct thread *next);
	void (*wait)(struct thread *me);
	void (*hand_over)(struct thread *next); /* NULL: wake, then wait */
	int place;
} ways[] = {
	{ "condition variable", cond_wake, cond_wait, NULL, SWITCHTO_FREE },
	{ "semaphore", semaphore_wake, semaphore_wait, NULL, SWITCHTO_FREE },
	{ "eventfd", event_wake, event_wait, NULL, SWITCHTO_FREE },
	{ "switch, free", wake, wait_for_turn, hand_over, SWITCHTO_FREE },
	{ "switch, together", wake, wait_for_turn, hand_over, SWITCHTO_TOGETHER },
};

enum { MOST_ROUNDS = 1000000000 };

static const struct way *way;
static struct thread ping, pong;
static long rounds = 2000;
static long turns; /* No lock: the thread that has the turn counts. */

static void pass_turn(struct thread *me, struct thread *next)
{
	turns++;
	if (way->hand_over) {
		way->hand_over(next);
	} else {
		way->wake(next);
		way->wait(me);
	}
}

static void set_up(struct thread *me)
{
	errno = pthread_mutex_init(&me->lock, NULL);
	check(!errno, "pthread_mutex_init");
	errno = pthread_cond_init(&me->cond, NULL);
	check(!errno, "pthread_cond_init");
	check(sem_init(&me->semaphore, 0, 0) == 0, "sem_init");
	me->event = eventfd(0, EFD_CLOEXEC);
	check(me->event != -1, "eventfd");
}

static void *answer(void *arg)
{
	pong.tid = switchto_self();
	check(pong.tid != -1, "switchto_self");
	check(switchto_place(way->place) != -1, "switchto_place");
	way->wake(&ping); /* "I am here": ping knows the TID now. */
	way->wait(&pong);
	for (long i = 1; i < rounds; i++)
		pass_turn(&pong, &ping);
	turns++;
	way->wake(&ping); /* The last turn: this thread ends. */
	return NULL;
}

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Nanoseconds for each turn. */
static double play(void)
{
	pthread_t thread;
	double start;

	turns = 0;
	errno = pthread_create(&thread, NULL, answer, NULL);
	check(!errno, "pthread_create");
	way->wait(&ping);
	/* Not before pthread_create(): a new thread inherits the one CPU of a bound one. */
	check(switchto_place(way->place) != -1, "switchto_place");
	start = seconds();
	for (long i = 0; i < rounds; i++)
		pass_turn(&ping, &pong);
	start = seconds() - start;
	check(switchto_place(SWITCHTO_FREE) != -1, "switchto_place");
	pthread_join(thread, NULL);
	if (turns != 2 * rounds)
		errx(EXIT_FAILURE, "wanted %ld turns, found %ld", 2 * rounds, turns);
	return start * 1e9 / (double)turns;
}

int main(int argc, char **argv)
{
	const char *backend = switchto_backend();
	char *end;

	if (!backend) /* 77: this kernel lacks the backend that SWITCHTO_BACKEND names. */
		err(errno == ENOSYS ? 77 : EXIT_FAILURE, "no backend, see switchto(7)");
	if (argc > 1) {
		rounds = strtol(argv[1], &end, 10);
		if (*end || rounds < 1 || rounds > MOST_ROUNDS)
			errx(2, "wanted 1 to %d rounds, found '%s'", MOST_ROUNDS, argv[1]);
	}
	set_up(&ping);
	set_up(&pong);
	ping.tid = switchto_self();
	check(ping.tid != -1, "switchto_self");
	for (way = ways; way < ways + sizeof(ways) / sizeof(*ways); way++)
		printf("%-18s %8.0f ns\n", way->name, play());
	printf("backend %s\n", backend);
	return EXIT_SUCCESS;
}
