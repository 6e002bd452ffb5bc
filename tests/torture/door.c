// SPDX-License-Identifier: MIT
/*
 * A door whose server and callers are killed, stopped, continued and exec'ed all the time.
 *
 *	torture_door [--seconds=N] [--seed=N]
 *
 * Each answer must be that to the call, whoever answers. After the time nobody is killed any more:
 * then each caller must get answers again, and when all have been killed, all places must be free.
 */
#include "support.h"

#include <switchto/door.h>
#include <switchto/switchto.h>

enum { CALLERS = 4, PEOPLE = CALLERS + 1, SERVER = CALLERS };

/* In memory of all processes. */
static struct party {
	int fd;
	char text[200]; /* what went wrong first */
	atomic_bool failed;
	atomic_ulong answers[CALLERS], calls[CALLERS];
	atomic_ulong dead, late;
} * party;

static const char *const self_exec = "sleep";

static _Noreturn void fail_with(const char *what, int error)
{
	if (!atomic_exchange(&party->failed, true))
		snprintf(party->text, sizeof(party->text), "%s: %s", what, strerror(error));
	_exit(1);
}

/* From now on it does nothing, and nobody can know but by the kernel. */
static void execs(int signal)
{
	execl("/proc/self/exe", "torture_door", self_exec, (char *)NULL);
	_exit(1);
}

static void work(struct switchto_door_message *m)
{
	for (int i = 0; i < SWITCHTO_DOOR_WORDS; i++)
		m->word[i] = m->word[i] * 5 + 1;
}

static _Noreturn int serves(void *arg)
{
	struct switchto_door *door = switchto_door_serve(party->fd, 0);
	struct switchto_door_message m;
	uint32_t seed = (uint32_t)getpid() | 1;
	int place;

	signal(SIGUSR1, execs);
	watchdog_stop(); /* the parent's watches */
	if (!door)
		fail_with("switchto_door_serve", errno);
	place = switchto_door_wait(door, &m, NULL);
	for (;;) {
		struct timespec soon;

		if (place < 0 && errno != ETIMEDOUT)
			fail_with("server", errno);
		soon = to_timespec(now_ns() + random_next(&seed) % 1000000);
		if (place < 0) {
			place = switchto_door_wait(door, &m, random_next(&seed) & 1 ? &soon : NULL);
			continue;
		}
		work(&m);
		random_delay(&seed, 3000);
		place = switchto_door_reply_wait(door, &m, random_next(&seed) & 3 ? NULL : &soon);
		/* It leaves now and then, and comes again. */
		if (random_next(&seed) % 1000 == 0) {
			switchto_door_close(door);
			door = switchto_door_serve(party->fd, 0);
			if (!door)
				fail_with("switchto_door_serve again", errno);
			place = switchto_door_wait(door, &m, NULL);
		}
	}
}

static _Noreturn int calls(void *arg)
{
	const int me = *(int *)arg;
	struct switchto_door *door = switchto_door_connect(party->fd, 0);
	uint32_t seed = (uint32_t)getpid() | 1;
	struct switchto_door_message m, want;

	signal(SIGUSR1, execs);
	watchdog_stop(); /* the parent's watches */
	if (!door)
		fail_with("switchto_door_connect", errno);
	for (;;) {
		uint64_t number = (uint64_t)me << 56 | atomic_fetch_add(&party->calls[me], 1);
		struct timespec soon = to_timespec(now_ns() + random_next(&seed) % 2000000);

		for (int i = 0; i < SWITCHTO_DOOR_WORDS; i++)
			m.word[i] = number + (uint64_t)i;
		want = m;
		work(&want);
		if (!switchto_door_call(door, &m, random_next(&seed) & 1 ? &soon : NULL)) {
			if (memcmp(&m, &want, sizeof(m)) != 0)
				fail_with("an answer to another call", EPROTO);
			atomic_fetch_add(&party->answers[me], 1);
		} else if (errno == EOWNERDEAD || errno == ENOTCONN) {
			atomic_fetch_add(&party->dead, 1);
			await_pause(2000);
		} else if (errno == ETIMEDOUT) {
			atomic_fetch_add(&party->late, 1);
		} else {
			fail_with("switchto_door_call", errno);
		}
		if (random_next(&seed) % 500 == 0) {
			switchto_door_close(door);
			door = switchto_door_connect(party->fd, 0);
			if (!door)
				fail_with("switchto_door_connect again", errno);
		}
	}
}

static pid_t people[PEOPLE];

static void start(int who)
{
	people[who] = start_child(who == SERVER ? serves : calls, &who);
}

static void end(int who)
{
	kill(people[who], SIGKILL);
	child_status(people[who]);
}

static void meddle(uint32_t *seed, unsigned long *kills)
{
	const struct timespec nap = { 0, random_next(seed) % 2000000 };
	int who = (int)(random_next(seed) % (PEOPLE + 2));

	if (who > SERVER)
		who = SERVER;
	nanosleep(&nap, NULL);
	switch (random_next(seed) % 4) {
	case 0:
		kill(people[who], SIGSTOP);
		nanosleep(&nap, NULL);
		kill(people[who], SIGCONT);
		return;
	case 1:
		kill(people[who], SIGUSR1);
		nanosleep(&nap, NULL);
		break;
	}
	end(who);
	start(who);
	++*kills;
}

/* In the end all callers get answers. */
static void all_go_on(void)
{
	for (int i = 0; i < CALLERS; i++) {
		unsigned long before = atomic_load(&party->answers[i]);

		AWAIT(atomic_load(&party->failed) ||
		      atomic_load(&party->answers[i]) >= before + 10);
	}
}

static bool all_places_are_free(void)
{
	for (int i = 0; i < SWITCHTO_DOOR_CALLERS; i++)
		if (!switchto_door_connect(party->fd, 0))
			return false;
	return true;
}

int main(int argc, char **argv)
{
	unsigned long seconds = 4, kills = 0, answers = 0;
	unsigned int seed = (unsigned int)now_ns() | 1;
	uint32_t random;
	long long until;

	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], self_exec) == 0)
			for (;;)
				pause();
		if (sscanf(argv[i], "--seconds=%lu", &seconds) != 1 &&
		    sscanf(argv[i], "--seed=%u", &seed) != 1)
			give_up("torture_door: wanted --seconds=N or --seed=N, found '%s'",
				argv[i]);
	}
	if (wants_absent_swap("torture_door"))
		return SKIPPED;
	printf("torture_door: seed %u\n", seed);
	party = map_shared(-1, sizeof(*party));
	party->fd = switchto_door_create(-1);
	if (party->fd < 0)
		give_up("switchto_door_create: wanted a door, got %s", strerror(errno));

	for (int who = 0; who < PEOPLE; who++)
		start(who);
	random = seed ? seed : 1;
	until = now_ns() + (long long)seconds * NSEC_PER_SEC;
	while (now_ns() < until && !atomic_load(&party->failed))
		meddle(&random, &kills);

	watchdog_start("torture_door");
	all_go_on();
	for (int who = 0; who < PEOPLE; who++)
		end(who);
	if (!atomic_load(&party->failed) && !all_places_are_free()) {
		atomic_store(&party->failed, true);
		snprintf(party->text, sizeof(party->text), "a place is lost");
	}
	for (int i = 0; i < CALLERS; i++)
		answers += atomic_load(&party->answers[i]);
	printf("torture_door: %s; %lu answers, %lu times dead, %lu late, %lu killed\n",
	       atomic_load(&party->failed) ? party->text : "ok", answers, atomic_load(&party->dead),
	       atomic_load(&party->late), kills);
	return atomic_load(&party->failed) ? EXIT_FAILURE : EXIT_SUCCESS;
}
