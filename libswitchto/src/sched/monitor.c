// SPDX-License-Identifier: MIT
/*
 * The monitor: a thread that takes a slot away from a task that blocks, and gives it to the
 * slot's dispatcher. The task goes on when it comes back, and waits for its slot when it next
 * enters the scheduler.
 *
 * Blocking regions: region.c. Another task loses its slot if the CPU-time clock of its thread
 * stands still from one look to the next: the thread sleeps, or has no CPU. And it loses it when
 * it has computed for a slice, by the same clock, if there is anything to do for others. Without
 * slices, that is reported.
 *
 * A thread that has no CPU needs not lose its slot. /proc tells such a thread, if it is there. And
 * where that is a process that is stopped, or a machine that is starved, the monitor is late as well:
 * the later it is, the longer a clock has to stand still. But a thread that got no slice of CPU time
 * in several slices, in which the monitor was on time, has a low priority: it loses the slot, too, if
 * there is anything to do for others.
 */
#define _GNU_SOURCE
#include "monitor.h"
#include "dispatch.h"
#include "mark.h"
#include "region.h"
#include "stats.h"
#include "step.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define USEC 1000LL

/* For so long a task may compute without giving way, if it has no slice. */
#define LONG NSEC_PER_SEC

/*
 * How long the monitor sleeps: soon after a region began; while tasks run; while none does. Where
 * each CPU has a slot, the monitor takes time from tasks, and breaks up what they do in one go.
 */
enum { SOON = 20 * USEC, BUSY = 800 * USEC, BUSY_NO_SPARE_CPU = 4000 * USEC, IDLE = 10000 * USEC };

/*
 * After a look at a task that is outside comes another one soon, to see whether it has gone on. A
 * task that has blocked often blocks again: for so many looks after the monitor took a slot from a
 * task that blocked unannounced, all come as soon.
 */
enum { ALERT = 50 * USEC, ALERT_LOOKS = 64, TAKEN = 0 };

/*
 * After so many looks without a task, none runs. Tasks that run for a short time now and then are
 * seldom seen, and a block among them should not last until the end of a long sleep.
 */
enum { PATIENCE = 125 };

/*
 * A clock has to stand still for LATE_TIMES as long as the monitor was late lately, if that was more
 * than ON_TIME, but not longer than STANDS_STILL. STOPPED: all that it saw is too old.
 */
enum { ON_TIME = 200 * USEC, LATE_TIMES = 4, STANDS_STILL = 50000 * USEC, STOPPED = 100000 * USEC };

/* A slice of CPU time takes so many of them, while others have the CPU. */
enum { SLOW_SLICES = 8 };
/* When a thread has had its slot for so long, it need not be on the CPU of the others. */
enum { ALONE = 10000 * USEC };

/* Tasks that wait for longer than this, other slots may steal. */
enum { WAITS_LONG = 50 * USEC };

struct pace {
	bool spare;	    /* a CPU for the monitor */
	bool second;	    /* the next look is */
	unsigned int idle;  /* looks without a task */
	unsigned int alert; /* looks that come soon */
	nsec_t busy;	    /* the pause while tasks run */
	nsec_t late;	    /* how late it was lately */
	nsec_t lost; /* and in all: the process may have been stopped, or the machine starved */
};

/* The CPU time of thread @tid, or -1. */
static nsec_t cpu_time(pid_t tid)
{
	/* As the kernel numbers these clocks, and pthread_getcpuclockid(). */
	const clockid_t clock = (clockid_t)(~(unsigned int)tid << 3 | 6);
	struct timespec time;

	if (clock_gettime(clock, &time))
		return -1;
	return time.tv_sec * NSEC_PER_SEC + time.tv_nsec;
}

/* The state of thread @tid, see proc(5), or 0: there may be no /proc, and no descriptor left. */
static int state_in_proc(pid_t tid)
{
	char path[64], text[512], *state;
	ssize_t length;
	int fd;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd == -1)
		return 0;
	length = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[length > 0 ? length : 0] = '\0';
	state = strrchr(text, ')');
	return state ? state[2] : '\0';
}

static void report(struct slot *slot)
{
	struct switchto_sched *sched = slot->sched;
	char text[128];

	slot->seen.reported = true;
	snprintf(text, sizeof(text),
		 "libswitchto-sched: the task of thread %d keeps slot %td for more than a second",
		 atomic_load_explicit(&slot->tid, memory_order_relaxed), slot - sched->slot);
	if (sched->report)
		sched->report(text);
	else
		fprintf(stderr, "%s\n", text);
}

/* Descriptors may be closed without a word: see switchto_mark_verify(). */
static void verify(struct switchto_sched *sched)
{
	const nsec_t now = switchto_now();

	if (now - sched->verified < IDLE)
		return;
	sched->verified = now;
	switchto_mark_verify(sched);
	if (traces())
		switchto_trace_tick();
}

/* Takes @slot from its task, if there is anything to do. @owner: USER. */
static bool take_to_work(struct slot *slot, uint32_t owner)
{
	struct pollfd events = { .fd = slot->epoll, .events = POLLIN };
	bool work;

	if (atomic_load_explicit(&slot->sched->tasks, memory_order_relaxed) < 2)
		return false;
	work = poll(&events, 1, 0) > 0;
	if (!visit(slot, owner))
		return false;
	window();
	work = work || has_ready(slot) || timer_next(&slot->timers) <= switchto_now() ||
	       (slot->steps && atomic_load(&slot->steps->runs));
	end_visit(slot, owner);
	return work && switchto_region_take(slot, owner, true);
}

/*
 * watch_owner() of one whose thread @tid has not run since the last look. @slow: nor for a slice in
 * several slices.
 */
static nsec_t watch_still(struct slot *slot, uint32_t owner, nsec_t now, const struct pace *pace,
			  pid_t tid, bool slow)
{
	const nsec_t patience = pace->late > ON_TIME ? LATE_TIMES * pace->late : 0;
	int state;

	/* A task that is alone has nothing to lose. */
	if (atomic_load_explicit(&slot->sched->tasks, memory_order_relaxed) < 2 ||
	    now - slot->seen.since < patience)
		return pace->busy;
	state = state_in_proc(tid);
	if (state == 'R' && slow)
		take_to_work(slot, owner);
	if (state == 'T' || state == 't')
		slot->seen.at_first = now - pace->lost;
	if (state == 'R' || state == 'T' || state == 't')
		return pace->busy;
	return switchto_region_take(slot, owner, true) ? TAKEN : pace->busy;
}

/*
 * @slot has the owner that it had at the last look, a task that is outside. How long until the next
 * look.
 */
static nsec_t watch_owner(struct slot *slot, uint32_t owner, nsec_t now, const struct pace *pace)
{
	const pid_t tid = atomic_load_explicit(&slot->tid, memory_order_relaxed);
	const nsec_t cpu = cpu_time(tid);
	const nsec_t slice = slot->sched->slice;
	struct seen *seen = &slot->seen;
	const bool slow = (now - pace->lost - seen->at_first) / SLOW_SLICES >= slice;
	bool blocks;
	nsec_t left;

	if (cpu == seen->cpu)
		return cpu < 0 ? pace->busy : watch_still(slot, owner, now, pace, tid, slow);
	/* Less than half of the CPU: it may block often and briefly. A second look soon sees that. */
	blocks = cpu - seen->cpu < (now - seen->since) / 2;
	seen->cpu = cpu;
	seen->since = now;
	if (slice == NEVER) {
		if (cpu - seen->began >= LONG && !seen->reported &&
		    atomic_load_explicit(&slot->sched->tasks, memory_order_relaxed) >= 2)
			report(slot);
		return blocks ? ALERT : pace->busy;
	}
	/* It may have begun up to a pause before it was seen. */
	left = slice - pace->busy / 2 - (cpu - seen->began);
	if (left > 0 && !slow)
		return blocks || left < ALERT ? ALERT : left < pace->busy ? left : pace->busy;
	take_to_work(slot, owner);
	return pace->busy;
}

/* Do tasks of @slot wait for long? As many as leave in a time, for so long each one waits. */
static void offer(struct slot *slot, nsec_t now)
{
	/* In the inbox, at least one. */
	const unsigned int waiting = atomic_load_explicit(&slot->ready, memory_order_relaxed) +
				     (atomic_load_explicit(&slot->inbox, memory_order_relaxed) !=
				      NULL);
	const uint64_t runs = atomic_load_explicit(&slot->stats.runs, memory_order_relaxed);
	struct seen *seen = &slot->seen;
	const nsec_t passed = now - seen->at;

	if (passed < WAITS_LONG << atomic_load_explicit(&slot->refused, memory_order_relaxed))
		return;
	switchto_inbox_offer(slot, waiting && seen->ready &&
					   passed * waiting / (nsec_t)(runs - seen->runs + 1) >=
						   WAITS_LONG);
	seen->ready = waiting;
	seen->runs = runs;
	seen->at = now;
}

/*
 * A thread that keeps the slot is switched to by nobody, and so the core does not let it go if another
 * one needs its CPU. Alone, it has nobody to be together with.
 */
static void let_go(struct slot *slot, uint32_t owner, nsec_t now)
{
	struct seen *seen = &slot->seen;

	if (seen->epoch != epoch_of(owner)) {
		seen->epoch = epoch_of(owner);
		seen->alone = now;
	} else if (seen->alone != NEVER && now - seen->alone >= ALONE) {
		seen->alone = NEVER;
		switchto_let_go(atomic_load_explicit(&slot->tid, memory_order_relaxed));
	}
}

/* When to look at @slot again. TAKEN: it has been taken from a task that did not compute. */
static nsec_t look_at(struct slot *slot, nsec_t now, const struct pace *pace)
{
	const unsigned int polls = atomic_load_explicit(&slot->polls, memory_order_relaxed);
	const bool asleep = atomic_load_explicit(&slot->asleep, memory_order_relaxed);
	const uint32_t owner = atomic_load(&slot->owner);
	const uint32_t state = state_of(owner);
	struct seen *seen = &slot->seen;
	const bool same = owner == seen->owner, polled = polls != seen->polls;

	if (slot->sched->flags & SWITCHTO_STEAL)
		offer(slot, now);
	let_go(slot, owner, now);
	seen->polls = polls;
	if (polled || asleep)
		seen->polled = now;
	/* The owner may store its own number over this. Then it is for the next look. */
	else if (now - seen->polled >= LOOK)
		atomic_store_explicit(&slot->budget, FORCED, memory_order_relaxed);
	/* It comes out again: then that is no other owner. */
	if (state == INSIDE || state == VISITED)
		return asleep ? IDLE : pace->busy;
	seen->owner = owner;
	if (state == BLOCKING) {
		if (!same)
			return SOON;
		switchto_region_take(slot, owner, true);
		return pace->busy;
	}
	/* One that gives way, but finds nobody to run, has polled. */
	if (!same || polled) {
		seen->cpu = cpu_time(atomic_load_explicit(&slot->tid, memory_order_relaxed));
		seen->began = seen->cpu;
		seen->at_first = now - pace->lost;
		seen->since = now;
		seen->reported = false;
		return same ? pace->busy : ALERT;
	}
	return watch_owner(slot, owner, now, pace);
}

static bool has_region(struct switchto_sched *sched)
{
	for (unsigned int i = 0; i < sched->slots; i++)
		if (state_of(atomic_load(&sched->slot[i].owner)) == BLOCKING)
			return true;
	return false;
}

/* Looks at all slots. How long until the next time. */
static nsec_t look_around(struct switchto_sched *sched, struct pace *pace)
{
	const nsec_t now = switchto_now();
	nsec_t pause = IDLE, calm = pace->busy;

	if (pace->alert)
		pace->alert--;
	for (unsigned int i = 0; i < sched->slots; i++) {
		nsec_t next = look_at(&sched->slot[i], now, pace);

		if (next == TAKEN)
			pace->alert = ALERT_LOOKS;
		else if (next < pause)
			pause = next;
		if (next > ALERT && next < calm)
			calm = next;
	}
	pace->idle = pause == IDLE && !pace->alert ? pace->idle + 1 : 0;
	pace->second = pause == ALERT && !pace->second;
	if (pace->alert)
		return pause < ALERT ? pause : ALERT;
	if (pause == ALERT && !pace->second)
		return calm;
	return pace->idle && pace->idle < PATIENCE && pace->spare ? pace->busy : pause;
}

static void count_lateness(struct switchto_sched *sched, struct pace *pace, nsec_t late)
{
	pace->lost += late;
	pace->late -= pace->late / 16;
	if (late > pace->late)
		pace->late = late < STANDS_STILL / LATE_TIMES ? late : STANDS_STILL / LATE_TIMES;
	if (late >= STOPPED)
		for (unsigned int i = 0; i < sched->slots; i++)
			sched->slot[i].seen = (struct seen){ 0 };
}

static void set_name(const struct switchto_sched *sched)
{
	char name[16];

	snprintf(name, sizeof(name), "%.11s/mon", sched->name);
	pthread_setname_np(pthread_self(), name);
}

/*
 * For so long the monitor rests, or until it is woken. A sleep without a limit would go on after a signal
 * handler, which may have forked.
 */
#define RESTS (3600 * NSEC_PER_SEC)

/* Between steps, without a task. */
static bool has_nothing(struct switchto_sched *sched)
{
	return !atomic_load(&sched->running) && !atomic_load(&sched->tasks);
}

/*
 * How long to sleep. @rests: the monitor may rest. *@word is what sched->monitor is during the sleep: if it
 * is something else by then, somebody has ended the sleep already.
 */
static nsec_t fall_asleep(struct switchto_sched *sched, nsec_t pause, bool rests, uint32_t *word)
{
	uint32_t state = MONITOR_RUNS;

	*word = rests && has_nothing(sched) ? MONITOR_RESTS : MONITOR_SLEEPS;
	window();
	atomic_compare_exchange_strong(&sched->monitor, &state, *word);
	if (*word == MONITOR_RESTS) {
		/* Paired with switchto_monitor_begin(), which comes after running is set. */
		if (has_nothing(sched))
			return RESTS;
		state = MONITOR_RESTS;
		*word = MONITOR_SLEEPS;
		atomic_compare_exchange_strong(&sched->monitor, &state, *word);
	}
	return has_region(sched) ? SOON : pause;
}

static void *monitor(void *arg)
{
	struct switchto_sched *sched = arg;
	struct pace pace = { .spare = switchto_cpus() > sched->slots };

	if (sched->name[0])
		set_name(sched);
	pace.busy = pace.spare ? BUSY : BUSY_NO_SPARE_CPU;
	if (pace.busy > sched->slice)
		pace.busy = sched->slice > ALERT ? sched->slice : ALERT;
	/* The default would make 20 us 70. */
	prctl(PR_SET_TIMERSLACK, 1);
	switchto_stats_write(sched, true);
	for (;;) {
		nsec_t pause = look_around(sched, &pace);
		uint32_t word = MONITOR_RUNS;
		nsec_t when, late;
		bool rests;

		switchto_owner_check_fork(sched);
		verify(sched);
		switchto_stats_answer(sched);
		rests = !switchto_pool_trim(sched);
		/*
		 * A region that begins now ends a long sleep, see switchto_block_begin(). One that has
		 * begun since the look does not: others may have had the CPU for long meanwhile.
		 */
		if (pause > SOON)
			pause = fall_asleep(sched, pause, rests, &word);
		if (word == MONITOR_RESTS)
			switchto_stats_write(sched, false);
		if (atomic_load(&sched->monitor) == MONITOR_ENDS) {
			switchto_stats_write(sched, false);
			return NULL;
		}
		when = switchto_now() + pause;
		switchto_futex_wait(&sched->monitor, word, when);
		/* Also if a signal, or a region, ended the sleep first. */
		late = switchto_now() - when;
		if (late > 0)
			count_lateness(sched, &pace, late);
		/* It was woken for a task, and is to look often. */
		if (word == MONITOR_RESTS) {
			pace.idle = 0;
			switchto_stats_write(sched, true);
		}
		atomic_compare_exchange_strong(&sched->monitor, &word, MONITOR_RUNS);
	}
}

int switchto_monitor_begin(struct switchto_sched *sched)
{
	uint32_t rests = MONITOR_RESTS;
	int error;

	if (sched->monitored) {
		/* If it goes to rest only after this load, it sees that the scheduler runs, and does not. */
		if (atomic_load(&sched->monitor) == MONITOR_RESTS &&
		    atomic_compare_exchange_strong(&sched->monitor, &rests, MONITOR_RUNS))
			switchto_futex_wake(&sched->monitor);
		return 0;
	}
	atomic_store(&sched->monitor, MONITOR_RUNS);
	error = pthread_create(&sched->monitor_thread, NULL, monitor, sched);
	sched->monitored = !error;
	return error;
}

void switchto_monitor_end(struct switchto_sched *sched)
{
	if (!sched->monitored)
		return;
	sched->monitored = false;
	atomic_store(&sched->monitor, MONITOR_ENDS);
	switchto_futex_wake(&sched->monitor);
	pthread_join(sched->monitor_thread, NULL);
}
