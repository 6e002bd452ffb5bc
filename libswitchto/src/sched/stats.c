// SPDX-License-Identifier: MIT
/* What the wrapper has measured, for the program and for switchto-top. */
#define _GNU_SOURCE
#include "stats.h"
#include "owner.h"
#include "wrapper.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

/* In the order of the program. */
#define READ(count) atomic_load_explicit(&(count), memory_order_acquire)

int switchto_slot_stats(const struct switchto_sched *sched, unsigned int slot,
			struct switchto_slot_stats *stats)
{
	const struct slot_stats *from;

	if (!sched || !stats || slot >= sched->slots)
		return fail(EINVAL);
	if (!(sched->flags & SWITCHTO_MEASURE))
		return fail(ENOTSUP);
	from = &sched->slot[slot].stats;
	*stats = (struct switchto_slot_stats){
		.runs = READ(from->runs),
		.run_ns = READ(from->run_ns),
		.idle_ns = READ(from->idle_ns),
		.steals = READ(from->steals),
		.retakes = READ(from->retakes),
	};
	for (unsigned int i = 0; i < SWITCHTO_READY_BUCKETS; i++)
		stats->ready[i] = READ(from->ready[i]);
	return 0;
}

int switchto_task_stats(const struct switchto_task *task, struct switchto_task_stats *stats)
{
	if (!task || !stats)
		return fail(EINVAL);
	if (!(task->sched->flags & SWITCHTO_MEASURE))
		return fail(ENOTSUP);
	*stats = (struct switchto_task_stats){
		.runs = READ(task->stats.runs),
		.run_ns = READ(task->stats.run_ns),
		.ready_ns = READ(task->stats.ready_ns),
		.blocked_ns = READ(task->stats.blocked_ns),
	};
	return 0;
}

/* --- for switchto-top --- */

bool switchto_stats_wanted(void)
{
	const char *value = secure_getenv("SWITCHTO_STATS");

	return value && strcmp(value, "1") == 0;
}

static size_t size_of(const struct switchto_sched *sched)
{
	return sizeof(struct offer) + sched->slots * sizeof(struct offered_slot);
}

/* 0 or an error number. */
static int open_offer(int *fd, size_t size)
{
	struct rlimit limit;
	int error;

	/* A signal would come with the error. */
	if (!getrlimit(RLIMIT_FSIZE, &limit) && limit.rlim_cur < size)
		return EFBIG;
	*fd = memfd_create("switchto-stats", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (*fd == -1)
		return errno;
	/* Without memory, here is an error, and no SIGBUS later. */
	do
		error = posix_fallocate(*fd, 0, (off_t)size);
	while (error == EINTR);
	/* Nor shall a reader cause one. */
	if (!error && (fchmod(*fd, 0600) ||
		       fcntl(*fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)))
		error = errno;
	if (error)
		sure_close(*fd);
	return error;
}

/* Once: a program may have many schedulers. */
static void refuse(int error)
{
	static atomic_bool said;

	if (!atomic_exchange(&said, true))
		fprintf(stderr, "libswitchto-sched: SWITCHTO_STATS=1: not offered: %s\n",
			strerror(error));
}

void switchto_stats_begin(struct switchto_sched *sched)
{
	const struct switchto_policy *policy = sched->wrapped;
	const size_t size = size_of(sched);
	struct offer *offer;
	int fd, error = open_offer(&fd, size);

	if (error) {
		refuse(error);
		return;
	}
	offer = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	error = offer == MAP_FAILED ? errno : switchto_own(&sched->offered, fd);
	if (error) {
		refuse(error);
		if (offer != MAP_FAILED)
			munmap(offer, size);
		sure_close(fd);
		return;
	}
	offer->pid = (uint32_t)getpid();
	offer->slots = sched->slots;
	memcpy(offer->name, sched->name, sizeof(offer->name));
	strncpy(offer->policy, policy->name ? policy->name : "", sizeof(offer->policy) - 1);
	strncpy(offer->engine, sched->has_rings ? "io_uring" : "epoll", sizeof(offer->engine) - 1);
	sched->offer = offer;
	switchto_stats_write(sched, false);
	memcpy(offer->magic, "SWSTATS1", sizeof(offer->magic));
}

/* Also in the child of a fork, so it writes nothing. */
void switchto_stats_end(struct switchto_sched *sched)
{
	if (!sched->offer)
		return;
	munmap(sched->offer, size_of(sched));
	if (switchto_owns(&sched->offered))
		sure_close(sched->offered.fd);
}

static uint64_t does(const struct slot *slot, uint32_t owner)
{
	if (!atomic_load(&slot->sched->running))
		return SLOT_IDLE;
	if (state_of(owner) == BLOCKING)
		return SLOT_BLOCKS;
	if (state_of(owner) != INSIDE)
		return SLOT_RUNS;
	return READ(slot->asleep) ? SLOT_POLLS : SLOT_SCHEDULES;
}

static void write_name(_Atomic uint64_t *to, const struct switchto_task *task)
{
	for (unsigned int i = 0; i < 2; i++)
		atomic_store(&to[i], task ? atomic_load(&task->name[i]) : 0);
}

enum { MOST_TRIES = 256 };

static void write_slot(struct offered_slot *to, struct slot *slot, bool answers)
{
	const uint32_t owner = atomic_load(&slot->owner);
	struct switchto_slot_stats stats;
	struct switchto_task *task;
	nsec_t since, before;
	unsigned int tries = 0;

	/* A run that ends meanwhile would be in the sums, and still the one that runs. */
	do {
		before = switchto_wrapper_since(slot, &task);
		switchto_slot_stats(slot->sched, (unsigned int)(slot - slot->sched->slot), &stats);
		since = switchto_wrapper_since(slot, &task);
	} while ((since != before || since == CHANGES_NOW) && ++tries < MOST_TRIES);
	/* The one who changes them has lost its CPU: what was true at the last look stays. */
	if (tries == MOST_TRIES)
		return;
	atomic_store(&to->does, answers ? does(slot, owner) : SLOT_IDLE);
	atomic_store(&to->tid, (uint64_t)READ(slot->tid));
	atomic_store(&to->switches, epoch_of(owner) / OWNER_STATES);
	atomic_store(&to->polls, READ(slot->polls));
	atomic_store(&to->task, (uintptr_t)task);
	write_name(to->name, task);
	atomic_store(&to->since, (uint64_t)since);
	atomic_store(&to->stats.runs, stats.runs);
	atomic_store(&to->stats.run_ns, stats.run_ns);
	atomic_store(&to->stats.idle_ns, stats.idle_ns);
	atomic_store(&to->stats.steals, stats.steals);
	atomic_store(&to->stats.retakes, stats.retakes);
	for (unsigned int i = 0; i < SWITCHTO_READY_BUCKETS; i++)
		atomic_store(&to->stats.ready[i], stats.ready[i]);
}

/* Which ownership of which slot. */
static uint64_t ownership(const struct slot *slot, uint32_t epoch)
{
	return (uint64_t)slot->number << 32 | epoch;
}

void switchto_stats_taken(const struct slot *slot, uint32_t owner)
{
	struct switchto_task *task;
	const nsec_t since = switchto_wrapper_since(slot, &task);

	if (!task || !task->worker)
		return;
	atomic_store(&task->worker->lost.task, task);
	atomic_store(&task->worker->lost.since, since);
	atomic_store(&task->worker->lost.when, ownership(slot, epoch_of(owner)));
}

/* The thread that has taken the slot may note that only after this. */
void switchto_stats_regain(struct worker *me)
{
	atomic_store(&me->lost.back, ownership(me->slot, me->epoch));
}

/* With the lock. */
static void write_beside(const struct switchto_sched *sched, struct offer *offer)
{
	const struct worker *longest = NULL;
	uint64_t beside = 0;

	for (const struct worker *at = sched->workers; at; at = at->next) {
		if (READ(at->lost.when) == READ(at->lost.back))
			continue;
		beside++;
		if (!longest || READ(at->lost.since) < READ(longest->lost.since))
			longest = at;
	}
	atomic_store(&offer->beside, beside);
	atomic_store(&offer->tid, longest ? (uint64_t)longest->tid : 0);
	atomic_store(&offer->since, longest ? (uint64_t)READ(longest->lost.since) : 0);
	write_name(offer->longest, longest ? READ(longest->lost.task) : NULL);
}

static void count_tasks(struct switchto_sched *sched, struct offer *offer)
{
	uint64_t awake = 0, parked = 0, waiting = 0, locking = 0;
	const struct switchto_task *task;

	pthread_mutex_lock(&sched->lock);
	task = sched->all_tasks;
	atomic_store(&offer->threads, sched->threads);
	write_beside(sched, offer);
	pthread_mutex_unlock(&sched->lock);
	/* The list grows only at its head. */
	for (; task; task = task->next_of_all) {
		const uint32_t state = READ(task->state);

		parked += !!(state & PARKED);
		waiting += !!(state & WAITING);
		locking += !!(state & LOCKING);
		awake += !(state & (PARKED | WAITING | LOCKING | FINISHED));
	}
	atomic_store(&offer->awake, awake);
	atomic_store(&offer->parked, parked);
	atomic_store(&offer->waiting, waiting);
	atomic_store(&offer->locking, locking);
}

void switchto_stats_write(struct switchto_sched *sched, bool answers)
{
	struct offer *offer = sched->offer;
	uint32_t asked;

	if (likely(!offer))
		return;
	asked = atomic_load(&offer->asked);
	atomic_fetch_add(&offer->version, 1);
	atomic_store(&offer->at, (uint64_t)switchto_now());
	count_tasks(sched, offer);
	for (unsigned int i = 0; i < sched->slots; i++)
		write_slot(&offer->slot[i], &sched->slot[i], answers);
	atomic_store(&offer->answers, answers);
	atomic_fetch_add(&offer->version, 1);
	atomic_store(&offer->answered, asked);
}
