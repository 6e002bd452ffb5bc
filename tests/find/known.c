// SPDX-License-Identifier: MIT
/*
 * usage: known KIND MEMBERS threads|processes
 * A program of which is known who hands over to whom, for find.py. It runs until it is ended.
 * The members pass a turn on in a ring, by KIND: condvar, pipe, eventfd, socketpair, tcp.
 * Or each computes, and nobody sleeps (compute). Or the first one wakes the others, one after the
 * other, and does not sleep itself (wakes).
 */
#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MOST = 100 };

static struct shared {
	pthread_mutex_t lock;
	struct member {
		pthread_cond_t cond;
		bool turn;
		sem_t semaphore;
	} members[MOST];
} * shared;

static const char *kind;
static int count;
static int from[MOST], to[MOST]; /* a member waits on its own `from`; the one before writes `to` */

static void tcp_pair(int *pair)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	socklen_t size = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM, 0);

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	pair[1] = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(listener, (struct sockaddr *)&address, size) == -1 || listen(listener, 1) == -1 ||
	    getsockname(listener, (struct sockaddr *)&address, &size) == -1 ||
	    connect(pair[1], (struct sockaddr *)&address, size) == -1)
		err(1, "tcp");
	pair[0] = accept(listener, NULL, NULL);
	close(listener);
}

static void set_up(int i)
{
	int pair[2] = { -1, -1 };
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_cond_init(&shared->members[i].cond, &attr);
	sem_init(&shared->members[i].semaphore, 1, 0);
	if (!strcmp(kind, "pipe")) {
		if (pipe(pair) == -1)
			err(1, "pipe");
	} else if (!strcmp(kind, "socketpair")) {
		if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == -1)
			err(1, "socketpair");
	} else if (!strcmp(kind, "tcp")) {
		tcp_pair(pair);
	} else if (!strcmp(kind, "eventfd")) {
		pair[0] = pair[1] = eventfd(0, 0);
	}
	from[i] = pair[0];
	to[i] = pair[1];
}

static void wake(int i)
{
	uint64_t one = 1;

	if (to[i] != -1) {
		if (write(to[i], &one, sizeof(one)) != sizeof(one))
			err(1, "write");
		return;
	}
	pthread_mutex_lock(&shared->lock);
	shared->members[i].turn = true;
	pthread_mutex_unlock(&shared->lock);
	pthread_cond_signal(&shared->members[i].cond);
}

static void wait_for_turn(int i)
{
	uint64_t one;

	if (from[i] != -1) {
		if (read(from[i], &one, sizeof(one)) != sizeof(one))
			err(1, "read");
		return;
	}
	pthread_mutex_lock(&shared->lock);
	while (!shared->members[i].turn)
		pthread_cond_wait(&shared->members[i].cond, &shared->lock);
	shared->members[i].turn = false;
	pthread_mutex_unlock(&shared->lock);
}

static void compute(long steps)
{
	for (volatile long i = 0; i < steps; i++)
		continue;
}

static _Noreturn void *play(void *arg)
{
	int i = (int)(intptr_t)arg;
	char name[16];

	snprintf(name, sizeof(name), "member-%d", i);
	prctl(PR_SET_NAME, name);
	if (!strcmp(kind, "compute")) {
		for (;;)
			compute(1000000);
	} else if (!strcmp(kind, "wakes")) {
		for (int next = 0;; next = (next + 1) % count) {
			if (i != 0) {
				sem_wait(&shared->members[i].semaphore);
			} else if (next != 0) {
				compute(200000);
				sem_post(&shared->members[next].semaphore);
			}
		}
	}
	for (bool first = i == 0;; first = false) {
		if (!first)
			wait_for_turn(i);
		wake((i + 1) % count);
	}
}

int main(int argc, char **argv)
{
	pthread_mutexattr_t attr;
	pthread_t thread;

	if (argc != 4 || (count = atoi(argv[2])) < 1 || count > MOST)
		errx(2, "usage: known KIND MEMBERS threads|processes");
	kind = argv[1];
	alarm(60);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (shared == MAP_FAILED)
		err(1, "mmap");
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(&shared->lock, &attr);
	for (int i = 0; i < count; i++)
		set_up(i);
	for (int i = 1; i < count; i++) {
		if (strcmp(argv[3], "processes") != 0) {
			errno = pthread_create(&thread, NULL, play, (void *)(intptr_t)i);
			if (errno)
				err(1, "pthread_create");
		} else if (fork() == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			play((void *)(intptr_t)i);
		}
	}
	play(NULL);
}
