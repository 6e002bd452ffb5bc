// SPDX-License-Identifier: MIT
/*
 * A policy of one's own: the earliest deadline first, with admission. A job that says how long it
 * computes is taken only if all that have been taken can still meet their deadlines; so a job that
 * is refused can go elsewhere at once. The policy is switchto_edf, and a sum around it. Prints how
 * many jobs were taken, refused and late; status 1 if there were none of the first two.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <time.h>

#include <switchto/sched.h>

/* A job gives way every TURN ns. */
enum { BURSTS = 3, JOBS = 20, WHOLE = 1000, TURN = 500000 };

/* The queue of the slot. Other threads touch the atomics only. */
struct admission {
	atomic_uint load; /* of the jobs that were taken, in parts of WHOLE of the slot's time */
	atomic_uint taken, refused;
	_Alignas(max_align_t) char edf[];
};

static void enqueue(void *queue, struct switchto_entry *entry, enum switchto_reason why)
{
	switchto_edf.enqueue(((struct admission *)queue)->edf, entry, why);
}

static struct switchto_entry *pick(void *queue)
{
	return switchto_edf.pick(((struct admission *)queue)->edf);
}

static void change(void *queue, struct switchto_entry *entry, const struct switchto_task_attr *attr)
{
	switchto_edf.change(((struct admission *)queue)->edf, entry, attr);
}

/* The weight of a job is its share of the slot's time. It is free again. */
static void end(void *queue, const struct switchto_entry *entry)
{
	atomic_fetch_sub(&((struct admission *)queue)->load, entry->attr.weight);
}

/* Something has to be left for what takes no deadline. */
static int init(void *queue)
{
	atomic_store(&((struct admission *)queue)->load, WHOLE / 10);
	return 0;
}

static long long time_of(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static long long now(void)
{
	return time_of(CLOCK_MONOTONIC);
}

struct job {
	long long takes, deadline; /* ns */
};

static atomic_int late;

/* Computes. A task has a thread, which may have run others before: the difference counts. */
static void work(void *arg)
{
	struct job *job = arg;
	const long long begun = time_of(CLOCK_THREAD_CPUTIME_ID);
	long long done, turn = 0;

	while ((done = time_of(CLOCK_THREAD_CPUTIME_ID) - begun) < job->takes) {
		if (done < turn)
			continue;
		switchto_yield();
		turn = done + TURN;
	}
	if (now() > job->deadline)
		atomic_fetch_add(&late, 1);
}

/* EAGAIN: the slot has no time for it. */
static int submit(struct switchto_sched *sched, struct job *job)
{
	struct admission *slot = switchto_policy_queue(sched, 0);
	const long long left = job->deadline - now();
	struct switchto_task_attr attr = {
		.deadline = { job->deadline / 1000000000, job->deadline % 1000000000 },
		/* If the shares of all jobs are no more than the whole, each meets its deadline. */
		.weight = left > job->takes ? (unsigned int)(job->takes * WHOLE / left) + 1 : WHOLE,
	};

	if (atomic_fetch_add(&slot->load, attr.weight) + attr.weight > WHOLE) {
		atomic_fetch_sub(&slot->load, attr.weight);
		atomic_fetch_add(&slot->refused, 1);
		errno = EAGAIN;
		return -1;
	}
	if (switchto_spawn(sched, work, job, &attr, NULL)) {
		atomic_fetch_sub(&slot->load, attr.weight);
		return -1;
	}
	atomic_fetch_add(&slot->taken, 1);
	return 0;
}

static struct job jobs[BURSTS][JOBS];

/* More at a time than can be done. When those that were taken have ended, others are taken. */
static void submit_all(void *sched)
{
	switchto_task_name("submit");
	for (int burst = 0; burst < BURSTS; burst++) {
		const long long deadline = now() + 20000000;
		const struct timespec at = { deadline / 1000000000, deadline % 1000000000 };

		for (int i = 0; i < JOBS; i++) {
			jobs[burst][i] = (struct job){ .takes = 2000000, .deadline = deadline };
			if (submit(sched, &jobs[burst][i]) && errno != EAGAIN)
				perror("switchto_spawn");
		}
		switchto_sleep_until(&at);
	}
}

int main(void)
{
	const struct switchto_policy policy = {
		.name = "edf with admission",
		.queue_size = sizeof(struct admission) + switchto_edf.queue_size,
		.enqueue = enqueue,
		.pick = pick,
		.end = end,
		.change = change,
		.inherit = switchto_edf.inherit,
		.init = init,
		.conserving = switchto_edf.conserving,
	};
	const struct switchto_sched_options options = {
		.size = sizeof(options),
		.slots = 1,
		.policy = &policy,
	};
	struct switchto_sched *sched;
	struct admission *slot;
	unsigned int taken, refused;

	if (switchto_sched_create(&sched, &options)) {
		const int status = errno == ENOSYS ? 77 : 1; /* 77: not in this kernel */

		perror("switchto_sched_create");
		return status;
	}
	slot = switchto_policy_queue(sched, 0);
	if (switchto_spawn(sched, submit_all, sched, NULL, NULL) || switchto_sched_run(sched)) {
		perror("switchto_sched_run");
		return 1;
	}
	taken = atomic_load(&slot->taken);
	refused = atomic_load(&slot->refused);
	if (switchto_sched_destroy(sched)) {
		perror("switchto_sched_destroy");
		return 1;
	}
	printf("%u jobs taken, %u refused, %d late\n", taken, refused, atomic_load(&late));
	return taken && refused ? 0 : 1;
}
