// SPDX-License-Identifier: MIT
/*
 * Resumes of threads that begin and end at that very moment.
 *
 * Main keeps a number of threads alive: each lives for one of the short lives
 * below, and is replaced as soon as it has ended. One thread, the resumer, does
 * nothing but resume TIDs: those of the threads, which may have ended since, and
 * those that the kernel is about to give to the next ones. What must hold:
 *
 *  - a resume returns 0, or -1 with ESRCH;
 *  - a wait returns the resumer's TID, and only if the resumer has resumed this
 *    thread: none that was meant for another thread that had the same TID.
 *
 * A lost resume is no mistake here: its thread may end without another wait.
 *
 * The kernel reuses a TID only after all others. For reuse at once, run this as
 * root and as the first process of a PID namespace. There it may set the TID to
 * go on from (ns_last_pid) without disturbing others:
 *
 *	unshare --fork --pid --mount-proc many-threads -x 10
 *
 * How a thread knows whether it was resumed
 * -----------------------------------------
 * The resumer numbers its resumes. Before each it writes into the account of
 * the TID: the resume's number, the previous number, and how many there were.
 * After each it publishes its number as done. Before main makes a thread, it
 * notes the last number done. Resumes up to that number were over before the
 * thread existed, so none of them may reach it. When a thread returns for the
 * n-th time, the account must show n resumes with higher numbers.
 *
 * That count begins when the thread first looks at its account. Of the resumes
 * between its creation and that moment at most two can still make it return:
 * one pending and one in progress. For these, the account has the last two
 * numbers.
 */
#include "many-threads.h"

#include <switchto/switchto.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

struct account {
	_Atomic uint64_t last, before_last; /* numbers of resumes */
	_Atomic uint64_t count;
	atomic_bool had_owner;
};

struct slot {
	pthread_t thread;
	uint64_t done_before; /* number of the last resume done before the thread was made */
	uint32_t life;
	bool used;
	_Atomic pid_t tid; /* stays when the thread has ended, until the next one's */
	atomic_bool ended;
};

enum life { ENDS_AT_ONCE, ENDS_KNOWN, WAITS_SHORTLY, WAITS, WAITS_OFTEN, LIVES };

static struct account *accounts;
static struct slot *slots;
static long n_slots;

static _Atomic uint64_t done;
static _Atomic pid_t newest, resumer_tid;
static atomic_bool over, wrong;
static _Atomic long resumes, gone, returns, timeouts, reused;

/* The file to set the next TID; -1: the kernel decides. */
static int last_pid = -1;

static uint32_t random_next(uint32_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 17;
	*state ^= *state << 5;
	return *state;
}

static void say_wrong(const char *what, pid_t tid, long long found, const char *wanted)
{
	if (!atomic_exchange(&wrong, true))
		fprintf(stderr,
			"many-threads: storm: %s, TID %d: wanted %s, found %lld; a bug in the library or the kernel: report it with the kernel's version and SWITCHTO_BACKEND\n",
			what, (int)tid, wanted, found);
}

/* The most returns that this thread may have had by now. */
static uint64_t resumes_of(const struct account *a, uint64_t count_at_start, uint64_t early)
{
	return early + atomic_load(&a->count) - count_at_start;
}

/* Keeps TIDs below a few times the number of threads. */
static void go_round(void)
{
	static const char first[] = "100";

	if (last_pid >= 0 && atomic_load(&newest) > 100 + 2 * n_slots &&
	    pwrite(last_pid, first, sizeof(first) - 1, 0) < 0)
		last_pid = -1;
}

static void *lives(void *arg)
{
	struct slot *slot = arg;
	pid_t tid = (pid_t)syscall(SYS_gettid), from;
	struct account *a = &accounts[tid];
	/* Read before the numbers: a resume in between counts twice, none is missed. */
	uint64_t count = atomic_load(&a->count), n = 0, early;
	const struct timespec shortly = { .tv_nsec = slot->life % 200000 };
	enum life life = slot->life % LIVES;
	uint64_t waits = life == WAITS_OFTEN ? 4 : life >= WAITS_SHORTLY;

	early = (atomic_load(&a->last) > slot->done_before) +
		(atomic_load(&a->before_last) > slot->done_before);
	atomic_fetch_add(&reused, atomic_exchange(&a->had_owner, true));
	atomic_store(&slot->tid, tid);
	atomic_store(&newest, tid);

	if (life != ENDS_AT_ONCE && switchto_self() != tid)
		say_wrong("switchto_self", tid, errno, "its TID");
	while (n < waits) {
		from = switchto_wait(life == WAITS_SHORTLY ? &shortly : NULL);
		if (from < 0 && errno == EINTR)
			continue;
		if (from < 0 && errno == ETIMEDOUT && life == WAITS_SHORTLY) {
			atomic_fetch_add(&timeouts, 1);
			break;
		}
		n++;
		atomic_fetch_add(&returns, 1);
		if (from != atomic_load(&resumer_tid))
			say_wrong("switchto_wait", tid, from < 0 ? -errno : from,
				  "the resumer's TID");
		if (n > resumes_of(a, count, early))
			say_wrong("switchto_wait", tid, (long long)n,
				  "no more returns than resumes");
	}
	atomic_store(&slot->ended, true);
	return NULL;
}

static pid_t random_tid(uint32_t *state)
{
	uint32_t r = random_next(state);
	pid_t tid = atomic_load(&slots[r % (uint32_t)n_slots].tid);

	/* One in eight: the TID of a thread that is being born, or of none. */
	if ((r >> 24) % 8 == 0)
		tid = atomic_load(&newest) + 1 + (pid_t)((r >> 27) % 4);
	return tid < PID_MAX_LIMIT ? tid : 0;
}

static void *resume_them(void *arg)
{
	uint32_t state = 2463534242;
	uint64_t number = 0;

	atomic_store(&resumer_tid, switchto_self());
	while (!atomic_load(&over)) {
		pid_t tid = random_tid(&state);
		struct account *a = &accounts[tid];
		int result;

		if (tid <= 0)
			continue;
		number++;
		atomic_store(&a->before_last, atomic_load(&a->last));
		atomic_store(&a->last, number);
		atomic_fetch_add(&a->count, 1);
		result = switchto_resume(tid);
		atomic_store(&done, number);

		atomic_fetch_add(&resumes, 1);
		if (result && errno == ESRCH)
			atomic_fetch_add(&gone, 1);
		else if (result)
			say_wrong("switchto_resume", tid, errno, "0 or the error ESRCH");
	}
	return NULL;
}

/* Joins ended threads and, unless @closing, replaces them. Returns how many live. */
static long look_round(uint32_t *state, bool closing, long *made, int *error)
{
	long living = 0;

	for (long i = 0; i < n_slots; i++) {
		struct slot *s = &slots[i];

		if (s->used && atomic_load(&s->ended)) {
			pthread_join(s->thread, NULL);
			s->used = false;
		}
		if (!s->used && !closing && !*error) {
			s->life = random_next(state);
			atomic_store(&s->ended, false);
			go_round();
			s->done_before = atomic_load(&done);
			*error = pthread_create(&s->thread, NULL, lives, s);
			s->used = !*error;
			*made += s->used;
			if (*error)
				say_limits(n_slots, living, "pthread_create", *error, MALLOC_STEP);
		}
		living += s->used;
	}
	return living;
}

int storm(long threads, long seconds)
{
	uint32_t state = 88172645;
	long made = 0, living;
	struct progress progress = { 0 };
	uint64_t end;
	pthread_t resumer;
	int error;

	n_slots = threads;
	slots = calloc((size_t)n_slots, sizeof(*slots));
	/* One for every possible TID; a page exists once a TID in it is used. */
	accounts = mmap(NULL, PID_MAX_LIMIT * sizeof(*accounts), PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (!slots || accounts == MAP_FAILED) {
		say_limits(n_slots, 0, "tables of them", errno, PID_MAX_LIMIT * sizeof(*accounts));
		return EXIT_FAILED;
	}
	if (!switchto_backend()) {
		fprintf(stderr,
			"many-threads: wanted a backend of libswitchto, found: %s; is SWITCHTO_BACKEND one that this kernel has?\n",
			strerror(errno));
		return EXIT_FAILED;
	}

	if (getpid() == 1)
		last_pid = open("/proc/sys/kernel/ns_last_pid", O_WRONLY | O_CLOEXEC);
	error = pthread_create(&resumer, NULL, resume_them, NULL);
	if (error) {
		say_limits(n_slots, 0, "pthread_create", error, MALLOC_STEP);
		return EXIT_FAILED;
	}

	/* Long enough, on a slow machine too, to resume some ended threads. */
	end = now_ns() + (uint64_t)seconds * NSEC_PER_SEC;
	while ((now_ns() < end || (made < 4 * n_slots && now_ns() < end + 60 * NSEC_PER_SEC)) &&
	       !error && !atomic_load(&wrong))
		look_round(&state, false, &made, &error);

	/* The resumer goes on until those that wait have all been resumed. */
	while ((living = look_round(&state, true, &made, &error))) {
		if (stands_still(&progress, living)) {
			fprintf(stderr,
				"many-threads: storm: wanted every thread to end, found %ld that do not return from their wait, resumed for %d s; a wake-up was lost: report it with the kernel's version and SWITCHTO_BACKEND\n",
				living, STALL_SECONDS);
			return EXIT_FAILED;
		}
		nap();
	}
	atomic_store(&over, true);
	pthread_join(resumer, NULL);

	printf("%-18s %12s\n", "backend", switchto_backend());
	printf("%-18s %12ld  at a time\n", "storm_threads", n_slots);
	printf("%-18s %12ld  in all, each joined\n", "storm_made", made);
	printf("%-18s %12ld  of them with the TID of one before\n", "storm_reused",
	       atomic_load(&reused));
	printf("%-18s %12ld\n", "storm_resumes", atomic_load(&resumes));
	printf("%-18s %12ld  resumes of a thread that had ended: ESRCH\n", "storm_gone",
	       atomic_load(&gone));
	printf("%-18s %12ld  from a wait, each resumed\n", "storm_returns", atomic_load(&returns));
	printf("%-18s %12ld  waits that ended with ETIMEDOUT\n", "storm_timeouts",
	       atomic_load(&timeouts));
	return error || atomic_load(&wrong) ? EXIT_FAILED : EXIT_SUCCESS;
}
