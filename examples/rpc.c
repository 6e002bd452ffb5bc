// SPDX-License-Identifier: MIT
/*
 * rpc: client threads call a server thread. A call is one switch there and one back.
 *
 * Shows an inbox beside the resumes. At most one resume is pending for a thread, so the
 * requests of several clients are kept in a list of their own. The server looks at that
 * list after each return, and a client looks at its request.
 *
 *	cc -std=c11 -O2 rpc.c $(pkg-config --cflags --libs switchto) -pthread
 *	./a.out 10000
 */
#include <err.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include <switchto/switchto.h>

enum { CLIENTS = 3, MOST_CALLS = 40000 };

struct request {
	struct request *next;
	pid_t client;
	long number; /* 0: the client's last request */
	long answer;
	bool answered;
};

static _Atomic(struct request *) inbox;
static pid_t server_tid;
static long calls = 200; /* of each client */

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

/* The request is on the client's stack. It stays there until it is answered. */
static long call_server(long number)
{
	struct request r = { .client = check(switchto_self(), "switchto_self"), .number = number };

	r.next = atomic_load(&inbox);
	while (!atomic_compare_exchange_weak(&inbox, &r.next, &r))
		;
	check(switchto_switch(server_tid), "switchto_switch");
	/* Here only the server resumes a client. With other resumes this goes on waiting. */
	while (!r.answered)
		check(switchto_wait(NULL), "switchto_wait");
	return r.answer;
}

static void *client(void *arg)
{
	(void)arg;
	for (long i = 1; i <= calls; i++) {
		long answer = call_server(i);

		if (answer != i * i)
			errx(EXIT_FAILURE, "wanted %ld * %ld, found %ld", i, i, answer);
	}
	call_server(0);
	return NULL;
}

/* Until all clients have left. Returns the number of calls. */
static long serve(void)
{
	int clients = CLIENTS;
	long served = 0;

	while (clients > 0) {
		struct request *r = atomic_exchange(&inbox, NULL);

		if (!r)
			check(switchto_wait(NULL), "switchto_wait");
		while (r) {
			struct request *next = r->next;
			pid_t tid = r->client;

			if (r->number)
				served++;
			else
				clients--;
			r->answer = r->number * r->number;
			r->answered = true;
			/*
			 * With the resume, the request is gone. The last client of the list
			 * gets this CPU. If another one has called meanwhile, its resume is
			 * pending, and the switch returns at once.
			 */
			r = next;
			if (r || !clients)
				check(switchto_resume(tid), "switchto_resume");
			else
				check(switchto_switch(tid), "switchto_switch");
		}
	}
	return served;
}

int main(int argc, char **argv)
{
	const char *backend = switchto_backend();
	pthread_t threads[CLIENTS];
	long served;
	char *end;

	if (!backend) /* 77: this kernel lacks the backend that SWITCHTO_BACKEND names. */
		err(errno == ENOSYS ? 77 : EXIT_FAILURE, "no backend, see switchto(7)");
	if (argc > 1) {
		calls = strtol(argv[1], &end, 10);
		if (*end || calls < 1 || calls > MOST_CALLS)
			errx(2, "wanted 1 to %d calls, found '%s'", MOST_CALLS, argv[1]);
	}

	server_tid = check(switchto_self(), "switchto_self");
	for (int i = 0; i < CLIENTS; i++) {
		errno = pthread_create(&threads[i], NULL, client, NULL);
		if (errno)
			err(EXIT_FAILURE, "pthread_create");
	}
	served = serve();
	for (int i = 0; i < CLIENTS; i++)
		pthread_join(threads[i], NULL);

	printf("%d clients, %ld calls, backend %s\n", CLIENTS, served, backend);
	return served == CLIENTS * calls ? EXIT_SUCCESS : EXIT_FAILURE;
}
