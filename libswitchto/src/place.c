// SPDX-License-Identifier: MIT
/* Binds threads, and lets them go: see place.h. Nothing here is on the hot path. */
#define _GNU_SOURCE
#include "place.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* 8,192 CPUs, as many as Linux 6.12 can be built for on x86-64. */
enum { CPUS = 8192, WORD_BITS = 8 * sizeof(unsigned long), WORDS = CPUS / WORD_BITS };

/*
 * A mask that the program chose for a thread, or had. They are few, are never changed, and
 * stay.
 *
 * A thread for which it has chosen none is given all CPUs back, and so those, too, that are
 * switched on later.
 */
struct mask {
	const struct mask *next;
	bool all;
	unsigned long cpus[WORDS]; /* what sched_getaffinity(2) says of it */
};

int switchto_place_default;
uint32_t switchto_place_long;

static _Atomic(const struct mask *) masks;
static atomic_bool refused; /* by a seccomp filter */

int switchto_place_choose(void)
{
	const char *place = secure_getenv("SWITCHTO_PLACE");
	struct timespec tick;

	clock_getres(CLOCK_MONOTONIC_COARSE, &tick);
	switchto_place_long = 2 * (uint32_t)tick.tv_nsec / 1000000;
	if (!place || strcmp(place, "free") == 0)
		return 0;
	if (strcmp(place, "together") != 0)
		return ENOTSUP;
	switchto_place_default = SWITCHTO_TOGETHER;
	return 0;
}

/* System calls and not their wrappers: a resume in a signal handler leaves errno alone. */
static bool get_cpus(pid_t tid, unsigned long cpus[WORDS])
{
	int saved = errno;
	bool done;

	memset(cpus, 0, WORDS * sizeof(*cpus));
	done = syscall(SYS_sched_getaffinity, tid, WORDS * sizeof(*cpus), cpus) > 0;
	errno = saved;
	return done;
}

static bool set_cpus(pid_t tid, const unsigned long cpus[WORDS])
{
	int saved = errno;
	bool done = syscall(SYS_sched_setaffinity, tid, WORDS * sizeof(*cpus), cpus) == 0;

	/* Others are of this thread or CPU alone, such as that it is off. */
	if (!done && (errno == EPERM || errno == ENOSYS))
		atomic_store(&refused, true);
	errno = saved;
	return done;
}

static void only(int cpu, unsigned long cpus[WORDS])
{
	memset(cpus, 0, WORDS * sizeof(*cpus));
	cpus[cpu / WORD_BITS] = 1UL << cpu % WORD_BITS;
}

static bool has(const unsigned long cpus[WORDS], int cpu)
{
	return cpus[cpu / WORD_BITS] >> cpu % WORD_BITS & 1;
}

static bool same(const unsigned long a[WORDS], const unsigned long b[WORDS])
{
	return memcmp(a, b, WORDS * sizeof(*a)) == 0;
}

/* Mapped and not allocated: this may be a signal handler. NULL: there is no memory. */
static const struct mask *keep(const unsigned long cpus[WORDS], bool all)
{
	const struct mask *found;
	int saved = errno;
	struct mask *mask;

	for (found = atomic_load(&masks); found; found = found->next)
		if (found->all == all && same(found->cpus, cpus))
			return found;
	mask = mmap(NULL, sizeof(*mask), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		    0);
	errno = saved;
	if (mask == MAP_FAILED)
		return NULL;
	mask->all = all;
	memcpy(mask->cpus, cpus, sizeof(mask->cpus));
	mask->next = atomic_load(&masks);
	while (!atomic_compare_exchange_weak(&masks, &mask->next, mask))
		;
	return mask;
}

/* As much of the file as there is room for. False: it can't be read, or is empty. */
static bool read_text(const char *path, char *text, size_t size)
{
	int saved = errno;
	long length = -1;
	int fd;

	fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		length = syscall(SYS_read, fd, text, size - 1);
		syscall(SYS_close, fd);
	}
	errno = saved;
	if (length <= 0)
		return false;
	text[length] = '\0';
	return true;
}

/* The CPUs that are on, as a list like "0-3,6". False: it can't be read. */
static bool get_online(unsigned long cpus[WORDS])
{
	char text[1024], *at = text;

	if (!read_text("/sys/devices/system/cpu/online", text, sizeof(text)))
		return false;
	memset(cpus, 0, WORDS * sizeof(*cpus));
	while (*at >= '0' && *at <= '9') {
		unsigned long cpu = strtoul(at, &at, 10), last = cpu;

		if (*at == '-')
			last = strtoul(at + 1, &at, 10);
		for (; cpu <= last && cpu < CPUS; cpu++)
			cpus[cpu / WORD_BITS] |= 1UL << cpu % WORD_BITS;
		if (*at == ',')
			at++;
	}
	return true;
}

/*
 * The whole mask of thread @tid: sched_getaffinity(2) leaves out the CPUs that are off. False:
 * it can't be read.
 */
static bool get_mask(pid_t tid, unsigned long cpus[WORDS])
{
	char path[SWITCHTO_TASK_PATH], text[2048], *at, *end;
	unsigned int bit = 0;

	switchto_task_path(path, tid, "status");
	if (!read_text(path, text, sizeof(text)))
		return false;
	at = strstr(text, "\nCpus_allowed:\t");
	end = at ? strchr(at + 1, '\n') : NULL;
	if (!end)
		return false;
	memset(cpus, 0, WORDS * sizeof(*cpus));
	/* Hexadecimal, with commas, the last CPUs first. */
	while (*--end != '\t' && bit < CPUS) {
		if (*end == ',')
			continue;
		cpus[bit / WORD_BITS] |= (*end <= '9' ? *end - '0' + 0UL : *end - 'a' + 10UL)
					 << bit % WORD_BITS;
		bit += 4;
	}
	return true;
}

static bool set_all(pid_t tid)
{
	unsigned long every[WORDS];

	memset(every, 0xff, sizeof(every));
	return set_cpus(tid, every);
}

/* Are all of @a in @b? */
static bool within(const unsigned long a[WORDS], const unsigned long b[WORDS])
{
	for (unsigned int i = 0; i < WORDS; i++)
		if (a[i] & ~b[i])
			return false;
	return true;
}

static bool meet(const unsigned long a[WORDS], const unsigned long b[WORDS])
{
	for (unsigned int i = 0; i < WORDS; i++)
		if (a[i] & b[i])
			return true;
	return false;
}

/*
 * Has the program chosen no mask for a thread that has @cpus? It has not if these are all that
 * are on. To find out what a cpuset allows, one would have to let the thread run where the
 * program may not want it to.
 */
static bool has_all(const unsigned long cpus[WORDS])
{
	unsigned long online[WORDS];

	return get_online(online) && within(online, cpus);
}

/*
 * The same of a thread for which it had chosen none before, and which has fewer CPUs now. Has a
 * cpuset done that, there are no more to be had, and the thread shall get them back from it.
 */
static bool has_most(pid_t tid, const unsigned long cpus[WORDS])
{
	unsigned long most[WORDS];

	if (!set_all(tid))
		return false;
	/* If some are gone, the cpuset has changed again. */
	if (get_mask(tid, most) && (same(most, cpus) || !within(cpus, most)))
		return true;
	set_cpus(tid, cpus);
	return false;
}

/*
 * Finds out what the program has chosen for @thread, which has been bound to CPU @bound - 1 if
 * that is positive. Returns @bound; or 0 if the thread has its own mask. -1: can't be found out.
 */
static int find_own(struct thread *thread, pid_t tid, int bound)
{
	const struct mask *own = thread->own;
	unsigned long seen[WORDS], cpus[WORDS], one[WORDS];
	const unsigned long *wanted = one;

	if (!get_cpus(tid, seen))
		return -1;
	if (bound > 0)
		only(bound - 1, one);
	else if (own)
		wanted = own->cpus;
	if (own && same(seen, wanted))
		return bound;
	/* Only now, as it takes longer. */
	if (!get_mask(tid, cpus))
		memcpy(cpus, seen, sizeof(cpus));
	if (own && same(cpus, wanted))
		return bound;
	/* The kernel lets a thread run anywhere if its only CPU is switched off. */
	if (own && bound > 0 && has(cpus, bound - 1) && !has(seen, bound - 1) &&
	    meet(own->cpus, seen))
		return bound;
	if (has_all(cpus) || (own && own->all && has_most(tid, cpus)))
		thread->own = keep(seen, true);
	else
		thread->own = keep(cpus, false);
	return 0;
}

static bool let_go(struct thread *thread, pid_t tid)
{
	return thread->own->all ? set_all(tid) : set_cpus(tid, thread->own->cpus);
}

/*
 * With the lock of @thread. The program, a cpuset or the end of a CPU may have changed its
 * mask since this last did: then that is what it has chosen.
 */
static void move(struct thread *thread, pid_t tid, int cpu)
{
	int bound = atomic_load_explicit(&thread->cpu, memory_order_relaxed);
	unsigned long one[WORDS];

	if (atomic_load(&refused))
		cpu = 0;
	if (bound == cpu || bound == -cpu)
		return;
	bound = find_own(thread, tid, bound > 0 ? bound : 0);
	if (bound < 0)
		return;
	if (cpu && thread->own && has(thread->own->cpus, cpu - 1)) {
		only(cpu - 1, one);
		if (set_cpus(tid, one)) {
			atomic_store_explicit(&thread->cpu, cpu, memory_order_relaxed);
			return;
		}
	}
	if (bound > 0 && !let_go(thread, tid))
		return;
	/* Not tried again on this CPU. */
	atomic_store_explicit(&thread->cpu, -cpu, memory_order_relaxed);
}

/* For how long the calling thread has waited for a CPU, in us; 0: it can't be read. */
static uint32_t waited_us(void)
{
	char text[128], *at;

	/* The time that it ran, and the time that it waited, in ns: sched-stats.rst. */
	if (!read_text("/proc/thread-self/schedstat", text, sizeof(text)))
		return 0;
	at = strchr(text, ' ');
	return at ? (uint32_t)(strtoull(at, NULL, 10) / 1000) : 0;
}

bool switchto_place_tick(struct thread *me, uint32_t now, uint32_t *phase)
{
	const uint32_t given = atomic_load_explicit(&me->given, memory_order_relaxed);
	const uint32_t length = *phase & PLACE_FREE ? PLACE_FREE_PERIOD : PLACE_PERIOD;
	const bool is_long = now - given >= switchto_place_long;
	const uint32_t waited = waited_us();
	const uint32_t since_look = waited && me->waited ? waited - me->waited : 0;
	/*
	 * Each switch makes its target wait as well, for up to a microsecond. Two threads look
	 * every second tick, and have waited for half of that time at most.
	 */
	uint32_t by_switches = (given - me->looked) * 1000 / 2;

	if (by_switches > 4000)
		by_switches = 4000;
	me->waited = waited;
	me->looked = now;
	if (given && is_long && since_look >= 2000 + by_switches) {
		*phase = now | PLACE_FREE;
		return true;
	}
	if (now - *phase > length) {
		*phase = now & ~(uint32_t)PLACE_FREE;
		return true;
	}
	return is_long;
}

/*
 * With all signals blocked, those of the C library as well: a handler that leaves with
 * siglongjmp(), or forks, and a cancellation would leave the lock behind.
 */
static void block_signals(uint64_t *before)
{
	const uint64_t every = UINT64_MAX;
	int saved = errno;

	syscall(SYS_rt_sigprocmask, SIG_BLOCK, &every, before, sizeof(every));
	errno = saved;
}

static void unblock_signals(const uint64_t *before)
{
	int saved = errno;

	syscall(SYS_rt_sigprocmask, SIG_SETMASK, before, NULL, sizeof(*before));
	errno = saved;
}

static bool try_lock(struct thread *thread)
{
	return !atomic_exchange_explicit(&thread->placing, true, memory_order_acquire);
}

static void unlock(struct thread *thread)
{
	atomic_store_explicit(&thread->placing, false, memory_order_release);
}

/* That of the calling thread, with signals blocked. Another thread has it for a moment. */
static void lock_own(struct thread *me)
{
	/* Who has it may need this CPU, and have a lower priority. */
	const struct timespec moment = { .tv_nsec = 50000 };
	int saved = errno;

	for (int i = 0; !try_lock(me); i++) {
		if (i < 100)
			sched_yield();
		else
			syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &moment, NULL);
	}
	errno = saved;
}

void switchto_place_move(struct thread *thread, pid_t tid, int cpu)
{
	uint64_t signals;
	uint32_t word;

	block_signals(&signals);
	if (try_lock(thread)) {
		/*
		 * While it is locked it does not end, and its TID stays its own. It has its
		 * resume already: it may have gone on, and wait for somebody else by now.
		 */
		word = atomic_load(&thread->word);
		if (cpu ? atomic_load(&thread->place) != SWITCHTO_FREE &&
				    (word & WORD_STATE) == RESUMED &&
				    (word & WORD_TID) == (uint32_t)switchto_this.tid :
			  (word & WORD_STATE) != UNKNOWN)
			move(thread, tid, cpu);
		unlock(thread);
	}
	unblock_signals(&signals);
}

void switchto_place_leave(void)
{
	struct thread *me = switchto_this.thread;
	uint64_t signals;

	block_signals(&signals);
	lock_own(me);
	move(me, switchto_this.tid, 0);
	unlock(me);
	unblock_signals(&signals);
}

void switchto_place_fork(void)
{
	struct thread *me = switchto_this.thread;

	/* A handler that forks may have interrupted a fork. */
	if (!me || me->forks++)
		return;
	me->place_before = atomic_exchange(&me->place, SWITCHTO_FREE);
	if (me->place_before != SWITCHTO_FREE)
		switchto_place_leave();
}

void switchto_place_forked(void)
{
	struct thread *me = switchto_this.thread;

	if (me && me->forks && !--me->forks)
		atomic_store(&me->place, me->place_before);
}

void switchto_place_end(struct thread *me)
{
	uint64_t signals;

	/* Nobody is at it who would change it, or will be: see switchto_place_move(). */
	if (atomic_load(&me->place) == SWITCHTO_FREE && !me->own && try_lock(me))
		return;
	block_signals(&signals);
	lock_own(me);
	atomic_store(&me->place, SWITCHTO_FREE);
	move(me, switchto_this.tid, 0);
	me->own = NULL;
	unblock_signals(&signals);
}

int switchto_place(int place)
{
	struct thread *me;
	int before;

	if (switchto_self() == -1)
		return -1;
	if (place < SWITCHTO_FREE || place > SWITCHTO_STAY)
		return fail(EINVAL);
	me = switchto_this.thread;
	before = atomic_exchange(&me->place, (unsigned char)place);
	if (place == SWITCHTO_FREE && (before != SWITCHTO_FREE || atomic_load(&me->cpu)))
		switchto_place_leave();
	return before;
}

int switchto_let_go(pid_t tid)
{
	struct thread *thread = tid > 0 && tid < TID_LIMIT ? thread_of(tid) : NULL;

	if (!thread || (atomic_load(&thread->word) & WORD_STATE) == UNKNOWN)
		return fail(ESRCH);
	if (atomic_load_explicit(&thread->cpu, memory_order_relaxed) > 0)
		switchto_place_move(thread, tid, 0);
	return 0;
}
