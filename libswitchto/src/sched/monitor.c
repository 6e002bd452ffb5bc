// SPDX-License-Identifier: MIT
/*
 * The monitor: a thread that takes a slot away from a task that blocks, and gives it to the
 * slot's dispatcher. The task goes on when it comes back, and waits for its slot when it next
 * enters the scheduler.
 *
 * A task in a blocking region loses its slot when the monitor has seen it there twice; or it gives
 * the slot up at once, if the slot's last region was a long one. Another task loses it if the monitor
 * has seen it twice without a switch in between, and its thread sleeps.
 * One that computes keeps its slot. If it does so for long, and there are others, that is reported.
 */
#define _GNU_SOURCE
#include "internal.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define USEC 1000LL

/* For so long a task may compute without giving way. */
#define LONG NSEC_PER_SEC

/*
 * How long the monitor sleeps: soon after a region began; while tasks run; while none does. Where
 * each CPU has a slot, the monitor takes time from tasks, and breaks up what they do in one go.
 */
enum { SOON = 20 * USEC, BUSY = 800 * USEC, BUSY_NO_SPARE_CPU = 4000 * USEC, IDLE = 10000 * USEC };

/*
 * After a look at a task that is outside comes another one soon, to see whether it has gone on. And
 * who blocks once often does it again: for so many looks after the monitor took a slot from a task
 * that blocked unannounced, all come as soon.
 */
enum { ALERT = 50 * USEC, ALERT_LOOKS = 64, TAKEN = 0 };

/*
 * After so many looks without a task, none runs. Tasks that run for a short time now and then are
 * seldom seen, and a block among them should not last until the end of a long sleep.
 */
enum { PATIENCE = 125 };

/*
 * S and D of proc(5): its thread sleeps. If the program has no descriptor left, the monitor takes the
 * one that it keeps: tasks that wait for the one that blocks may be what holds the others.
 */
static bool sleeps(struct switchto_sched *sched, pid_t tid)
{
	char path[64], text[512], *state;
	ssize_t length;
	int fd;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd == -1 && sched->reserve != -1) {
		close(sched->reserve);
		sched->reserve = -1;
		fd = open(path, O_RDONLY | O_CLOEXEC);
	}
	if (fd == -1)
		return false;
	length = read(fd, text, sizeof(text) - 1);
	if (sched->reserve == -1)
		sched->reserve = fd;
	else
		close(fd);
	if (length <= 0)
		return false;
	text[length] = '\0';
	state = strrchr(text, ')');
	return state && (state[2] == 'S' || state[2] == 'D');
}

/* @owner of @slot computes, and did when the monitor last looked. */
static void watch_owner(struct slot *slot, uint32_t owner)
{
	const unsigned int picks = atomic_load_explicit(&slot->picks, memory_order_relaxed);
	const unsigned int polls = atomic_load_explicit(&slot->polls, memory_order_relaxed);
	struct switchto_sched *sched = slot->sched;
	const nsec_t now = switchto_now();
	char text[128];

	/* One that gives way, but finds nobody to run, changes these numbers. */
	if (slot->kept_by != owner || slot->kept_picks != picks || slot->kept_polls != polls) {
		slot->kept_by = owner;
		slot->kept_picks = picks;
		slot->kept_polls = polls;
		slot->kept_since = now;
	}
	if (now - slot->kept_since < LONG ||
	    atomic_load_explicit(&sched->tasks, memory_order_relaxed) < 2)
		return;
	slot->kept_since = NEVER; /* once */
	snprintf(text, sizeof(text),
		 "libswitchto-sched: the task of thread %d keeps slot %td for more than a second",
		 atomic_load_explicit(&slot->tid, memory_order_relaxed), slot - sched->slot);
	if (sched->report)
		sched->report(text);
	else
		fprintf(stderr, "%s\n", text);
}

/* From the task of @owner, which is outside. False: it is inside by now, or has lost the slot. */
static bool take(struct slot *slot, uint32_t owner)
{
	window();
	if (!atomic_compare_exchange_strong(&slot->owner, &owner,
					    ((owner | (OWNER_STATES - 1)) + 1) | INSIDE))
		return false;
	atomic_fetch_add_explicit(&slot->stats.retakes, 1, memory_order_relaxed);
	probe2(retake, slot, atomic_load_explicit(&slot->tid, memory_order_relaxed));
	switchto_thread_grant(slot->dispatcher, slot);
	return true;
}

/* When to look at @slot again. TAKEN: it has been taken from a task. */
static nsec_t look_at(struct slot *slot, nsec_t busy)
{
	uint32_t owner = atomic_load(&slot->owner);
	uint32_t state = owner & (OWNER_STATES - 1);
	uint32_t before = slot->seen;

	slot->seen = owner;
	if (state == INSIDE || state == VISITED)
		return atomic_load_explicit(&slot->asleep, memory_order_relaxed) ? IDLE : busy;
	if (owner != before)
		return state == BLOCKING ? SOON : ALERT;
	if (state == USER &&
	    !sleeps(slot->sched, atomic_load_explicit(&slot->tid, memory_order_relaxed))) {
		watch_owner(slot, owner);
		return busy;
	}
	return take(slot, owner) && state == USER ? TAKEN : busy;
}

static bool has_region(struct switchto_sched *sched)
{
	for (unsigned int i = 0; i < sched->slots; i++)
		if ((atomic_load(&sched->slot[i].owner) & (OWNER_STATES - 1)) == BLOCKING)
			return true;
	return false;
}

struct pace {
	bool spare;	    /* a CPU for the monitor */
	bool second;	    /* the next look is */
	unsigned int idle;  /* looks without a task */
	unsigned int alert; /* looks that come soon */
};

/* Looks at all slots. How long until the next time. */
static nsec_t look_around(struct switchto_sched *sched, struct pace *pace)
{
	const nsec_t busy = pace->spare ? BUSY : BUSY_NO_SPARE_CPU;
	nsec_t pause = IDLE;

	if (pace->alert)
		pace->alert--;
	for (unsigned int i = 0; i < sched->slots; i++) {
		nsec_t next = look_at(&sched->slot[i], busy);

		if (next == TAKEN)
			pace->alert = ALERT_LOOKS;
		else if (next < pause)
			pause = next;
	}
	pace->idle = pause == IDLE && !pace->alert ? pace->idle + 1 : 0;
	pace->second = pause == ALERT && !pace->second;
	if (pace->alert)
		return pause < ALERT ? pause : ALERT;
	if (pause == ALERT && !pace->second)
		return busy;
	return pace->idle && pace->idle < PATIENCE && pace->spare ? busy : pause;
}

static void *monitor(void *arg)
{
	struct switchto_sched *sched = arg;
	struct pace pace = { .spare = switchto_cpus() > sched->slots };

	/* The default would make 20 us 70. */
	prctl(PR_SET_TIMERSLACK, 1);
	for (;;) {
		nsec_t pause = look_around(sched, &pace);
		uint32_t word;

		/*
		 * A region that begins now ends a long sleep, see switchto_block_begin(). One that has
		 * begun since the look does not: others may have had the CPU for long meanwhile.
		 */
		window();
		if (pause > SOON) {
			atomic_compare_exchange_strong(&sched->monitor, &(uint32_t){ MONITOR_RUNS },
						       MONITOR_SLEEPS);
			if (has_region(sched))
				pause = SOON;
		}
		word = atomic_load(&sched->monitor);
		if (word == MONITOR_ENDS)
			return NULL;
		switchto_futex_wait(&sched->monitor, word, switchto_now() + pause);
		atomic_compare_exchange_strong(&sched->monitor, &(uint32_t){ MONITOR_SLEEPS },
					       MONITOR_RUNS);
	}
}

int switchto_monitor_begin(struct switchto_sched *sched)
{
	atomic_store(&sched->monitor, MONITOR_RUNS);
	return pthread_create(&sched->monitor_thread, NULL, monitor, sched);
}

void switchto_monitor_end(struct switchto_sched *sched)
{
	atomic_store(&sched->monitor, MONITOR_ENDS);
	switchto_futex_wake(&sched->monitor);
	pthread_join(sched->monitor_thread, NULL);
}

/* --- blocking regions --- */

/* False: the slot was taken, and @me has it again. */
static bool change_owner(struct thread *me, uint32_t from, uint32_t to)
{
	uint32_t owner;

	window();
	do {
		owner = me->user - USER + from;
		if (atomic_compare_exchange_strong(&me->slot->owner, &owner, me->user - USER + to))
			return true;
	} while (owner == (me->user - USER + VISITED) && !sched_yield());
	/* The slot was taken. */
	switchto_slot_regain(me);
	/* A region's begin is seen by the monitor, or sees that it sleeps: has_region(). */
	atomic_store(&me->slot->owner, me->user - USER + to);
	return false;
}

int switchto_block_begin(void)
{
	struct thread *me = switchto_current;
	uint32_t asleep = MONITOR_SLEEPS;

	if (!me || !me->task)
		return fail(EPERM);
	if (atomic_load(&me->slot->owner) == (me->user - USER + INSIDE))
		return fail(EDEADLK);
	if (me->in_region)
		return fail(EINVAL);
	me->in_region = true;
	change_owner(me, USER, BLOCKING);
	probe(block_begin);
	/* As the monitor would, but at once. That saves what the others wait for the monitor. */
	if (atomic_load_explicit(&me->slot->long_regions, memory_order_relaxed)) {
		me->gave_up = switchto_now();
		take(me->slot, me->user - USER + BLOCKING);
	} else if (atomic_load(&me->sched->monitor) == MONITOR_SLEEPS &&
		   atomic_compare_exchange_strong(&me->sched->monitor, &asleep, MONITOR_RUNS)) {
		switchto_futex_wake(&me->sched->monitor);
	}
	return 0;
}

int switchto_block_end(void)
{
	struct thread *me = switchto_current;
	struct slot *slot;
	bool is_long;

	if (!me || !me->task)
		return fail(EPERM);
	if (!me->in_region)
		return fail(EINVAL);
	slot = me->slot;
	is_long = me->gave_up && switchto_now() - me->gave_up >= SOON;
	if (!change_owner(me, BLOCKING, USER) && !me->gave_up)
		is_long = true;
	if (atomic_load_explicit(&slot->long_regions, memory_order_relaxed) != is_long)
		atomic_store_explicit(&slot->long_regions, is_long, memory_order_relaxed);
	me->gave_up = 0;
	me->in_region = false;
	probe(block_end);
	return 0;
}
