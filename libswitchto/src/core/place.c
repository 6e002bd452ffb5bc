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

/* How often a thread is bound within a tick. A thread of several chains is free then. */
enum { MOVES = 4 };

/* What thread.placing is. AGAIN: the thread is to be let go before the lock is. */
enum { IDLE, BUSY, AGAIN };

/*
 * A mask that the program chose for a thread, or had. They are few, are never changed, and
 * stay.
 *
 * A thread without such a mask is given all CPUs back, also those that are switched on later.
 */
struct mask {
	const struct mask *next;
	bool all;
	unsigned long cpus[WORDS]; /* what sched_getaffinity(2) says of it */
};

/* A file of any length. */
struct reader {
	int fd;
	int at, length; /* of @text */
	char text[1024];
};

/*
 * What a change of a mask needs. Not on the stack, which may be as small as PTHREAD_STACK_MIN, or
 * a signal handler's. There are as many as were ever in use at the same time, and they stay.
 */
struct work {
	struct work *next;
	atomic_bool busy;
	int error; /* errno before */
	uint64_t signals;
	struct reader file;
	unsigned long seen[WORDS], cpus[WORDS], wanted[WORDS], most[WORDS];
};

int switchto_place_default;
uint32_t switchto_place_long;

static _Atomic(const struct mask *) masks;
static struct work first_work;
static _Atomic(struct work *) works = &first_work;

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

/* Mapped and not allocated: this may be a signal handler. NULL: there is no memory. */
static void *map(size_t size)
{
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return memory == MAP_FAILED ? NULL : memory;
}

static struct work *take_work(void)
{
	struct work *work;

	for (work = atomic_load(&works); work; work = work->next)
		if (!atomic_exchange_explicit(&work->busy, true, memory_order_acquire))
			return work;
	work = map(sizeof(*work));
	if (!work)
		return NULL;
	atomic_store_explicit(&work->busy, true, memory_order_relaxed);
	work->next = atomic_load(&works);
	while (!atomic_compare_exchange_weak(&works, &work->next, work))
		;
	return work;
}

static void unblock_signals(const uint64_t *signals, int error)
{
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, signals, NULL, sizeof(*signals));
	errno = error;
}

/*
 * Blocks all signals, also the C library's own: a handler that leaves with siglongjmp() or forks,
 * or a cancellation, would leave the lock behind. NULL: there is no memory.
 */
static struct work *begin_work(void)
{
	const uint64_t every = UINT64_MAX;
	const int error = errno;
	struct work *work;
	uint64_t signals;

	syscall(SYS_rt_sigprocmask, SIG_BLOCK, &every, &signals, sizeof(every));
	work = take_work();
	if (work) {
		work->signals = signals;
		work->error = error;
	} else {
		unblock_signals(&signals, error);
	}
	return work;
}

static void end_work(struct work *work)
{
	const uint64_t signals = work->signals;
	const int error = work->error;

	atomic_store_explicit(&work->busy, false, memory_order_release);
	unblock_signals(&signals, error);
}

/* System calls and not their wrappers, here and below: those may be cancellation points. */
static bool get_cpus(pid_t tid, unsigned long cpus[WORDS])
{
	memset(cpus, 0, WORDS * sizeof(*cpus));
	return syscall(SYS_sched_getaffinity, tid, WORDS * sizeof(*cpus), cpus) > 0;
}

/*
 * errno says why not. With EINVAL the thread may have another mask than before: a cpuset has
 * changed at that moment.
 */
static bool set_cpus(pid_t tid, const unsigned long cpus[WORDS])
{
	struct thread *me = switchto_this.thread;
	int error;

	if (syscall(SYS_sched_setaffinity, tid, WORDS * sizeof(*cpus), cpus) == 0)
		return true;
	error = errno;
	/*
	 * Is this thread refused, for example as one of another user, or does a seccomp filter
	 * refuse the call? Ask for no CPU for the caller itself: the kernel says EINVAL, or EBUSY.
	 */
	if (error != EINVAL && error != ESRCH && me && syscall(SYS_sched_setaffinity, 0, 0, NULL) &&
	    errno != EINVAL && errno != EBUSY)
		atomic_store_explicit(&me->refused, true, memory_order_relaxed);
	errno = error;
	return false;
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

/* NULL: there is no memory. */
static const struct mask *keep(const unsigned long cpus[WORDS], bool all)
{
	const struct mask *found;
	struct mask *mask;

	for (found = atomic_load(&masks); found; found = found->next)
		if (found->all == all && same(found->cpus, cpus))
			return found;
	mask = map(sizeof(*mask));
	if (!mask)
		return NULL;
	mask->all = all;
	memcpy(mask->cpus, cpus, sizeof(mask->cpus));
	mask->next = atomic_load(&masks);
	while (!atomic_compare_exchange_weak(&masks, &mask->next, mask))
		;
	return mask;
}

/* '\0': at the end. */
static char next_of(struct reader *file)
{
	if (file->at == file->length) {
		file->at = 0;
		file->length = (int)syscall(SYS_read, file->fd, file->text, sizeof(file->text));
	}
	if (file->length <= 0) {
		file->length = 0;
		return '\0';
	}
	return file->text[file->at++];
}

/* The line that begins with @name, which has no second '\n'; to behind it. */
static bool find_line(struct reader *file, const char *name)
{
	size_t fits = 0;
	char c;

	while (name[fits]) {
		c = next_of(file);
		if (!c)
			return false;
		if (c == name[fits])
			fits++;
		else
			fits = c == '\n';
	}
	return true;
}

/* A list like "0-3,6". */
static void read_list(struct reader *file, unsigned long cpus[WORDS])
{
	unsigned int first = CPUS, cpu = 0;
	char c;

	memset(cpus, 0, WORDS * sizeof(*cpus));
	do {
		c = next_of(file);
		if (c >= '0' && c <= '9') {
			cpu = cpu * 10 + (unsigned int)(c - '0');
		} else if (c == '-') {
			first = cpu;
			cpu = 0;
		} else {
			for (first = first < cpu ? first : cpu; first <= cpu && first < CPUS;
			     first++)
				cpus[first / WORD_BITS] |= 1UL << first % WORD_BITS;
			first = CPUS;
			cpu = 0;
		}
	} while (c && c != '\n');
}

/*
 * The whole mask of thread @tid, from /proc: sched_getaffinity(2) leaves out the CPUs that are off.
 * It is used only if the file can't be read.
 */
static void get_mask(pid_t tid, unsigned long cpus[WORDS], struct reader *file)
{
	char path[SWITCHTO_TASK_PATH];
	bool found = false;

	switchto_task_path(path, tid, "status");
	file->at = file->length = 0;
	file->fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
	if (file->fd >= 0) {
		found = find_line(file, "\nCpus_allowed_list:\t");
		if (found)
			read_list(file, cpus);
		syscall(SYS_close, file->fd);
	}
	if (!found)
		get_cpus(tid, cpus);
}

static bool set_all(pid_t tid, struct work *work)
{
	memset(work->most, 0xff, sizeof(work->most));
	return set_cpus(tid, work->most);
}

/*
 * Thread @tid has been given all CPUs, to find out what its cpuset allows. It sleeps, or is the
 * caller. Did the program give it the mask @work->cpus? Or is that mask @work->wanted, cut by a
 * cpuset that has changed since?
 */
static bool is_chosen(pid_t tid, struct work *work)
{
	get_mask(tid, work->most, &work->file);
	/* The cpuset has changed again. */
	if (!within(work->cpus, work->most))
		return false;
	/* The kernel lets a thread run anywhere in a cpuset that has none of its CPUs. */
	if (!meet(work->wanted, work->most))
		return !same(work->cpus, work->most);
	for (unsigned int i = 0; i < WORDS; i++)
		work->wanted[i] &= work->most[i];
	return !same(work->cpus, work->wanted);
}

/*
 * Has @thread had these CPUs for a while? A cpuset changes before its threads do, which change one
 * after the other: what is found out in between is wrong.
 */
static bool is_lasting(struct thread *thread, const unsigned long cpus[WORDS])
{
	uint32_t odd = 0;

	for (unsigned int i = 0; i < WORDS; i++)
		odd = odd * 31 + (uint32_t)(cpus[i] ^ cpus[i] >> 32);
	/* And when, in 8 ms. */
	odd = odd << 8 | (place_now() / 8 & 0xff);
	if ((odd ^ thread->odd) >> 8 == 0)
		return odd != thread->odd;
	thread->odd = odd;
	return false;
}

enum found { KNOWN, UNREADABLE, CHANGING };

/*
 * Finds out what the program has chosen for @thread. The choice has changed if the thread does not
 * have the mask that the library gave it. CHANGING: leave the thread as it is.
 */
static enum found find_own(struct thread *thread, pid_t tid, struct work *work)
{
	const int bound = atomic_load_explicit(&thread->cpu, memory_order_relaxed);
	const struct mask *own = thread->own;

	if (!get_cpus(tid, work->seen))
		return UNREADABLE;
	if (bound > 0)
		only(bound - 1, work->wanted);
	else if (own)
		memcpy(work->wanted, own->cpus, sizeof(work->wanted));
	if (own && same(work->seen, work->wanted))
		return KNOWN;
	/* Comes last because it takes longer. */
	get_mask(tid, work->cpus, &work->file);
	if (own && same(work->cpus, work->wanted))
		return KNOWN;
	/* The kernel lets a thread run anywhere if its only CPU is switched off. */
	if (own && bound > 0 && has(work->cpus, bound - 1) && !has(work->seen, bound - 1) &&
	    meet(own->cpus, work->seen))
		return KNOWN;
	/* A thread that leaves does not come back. */
	if (own && thread != switchto_this.thread &&
	    (!is_lasting(thread, work->cpus) || !get_cpus(tid, work->most) ||
	     !same(work->most, work->seen)))
		return CHANGING;

	atomic_store_explicit(&thread->cpu, 0, memory_order_relaxed);
	/* It has the mask of the program, also if another thread has given it back. */
	if (own && !own->all && same(work->cpus, own->cpus))
		return KNOWN;
	if (!own || (bound <= 0 && (own->all || thread->lost)))
		memset(work->wanted, 0xff, sizeof(work->wanted));
	if (!set_all(tid, work)) {
		thread->lost = errno == EINVAL;
		return UNREADABLE;
	}
	if (is_chosen(tid, work)) {
		set_cpus(tid, work->cpus);
		thread->lost = false;
		thread->own = keep(work->cpus, same(work->cpus, work->most));
		return KNOWN;
	}
	/* It has all CPUs now. */
	thread->lost = true;
	if (!own || own->all)
		thread->own = get_cpus(tid, work->seen) ? keep(work->seen, true) : NULL;
	return KNOWN;
}

static bool let_go(struct thread *thread, pid_t tid, struct work *work)
{
	const struct mask *own = thread->own;

	thread->lost = false;
	if (!own || own->all)
		return set_all(tid, work);
	if (set_cpus(tid, own->cpus))
		return true;
	/* EINVAL: the thread can have none of these CPUs at the moment. */
	thread->lost = errno == EINVAL;
	return thread->lost && set_all(tid, work);
}

static bool bind_to(struct thread *thread, pid_t tid, int cpu, struct work *work)
{
	if (!thread->own || !has(thread->own->cpus, cpu - 1))
		return false;
	only(cpu - 1, work->wanted);
	if (!set_cpus(tid, work->wanted)) {
		thread->lost |= errno == EINVAL;
		return false;
	}
	thread->lost = false;
	atomic_store_explicit(&thread->cpu, cpu, memory_order_relaxed);
	return true;
}

/*
 * With the lock of @thread. The program, a cpuset or the end of a CPU may have changed the mask
 * since the last call: then the mask is taken for the program's choice.
 */
static void move(struct thread *thread, pid_t tid, int cpu, struct work *work)
{
	int bound = atomic_load_explicit(&thread->cpu, memory_order_relaxed);
	enum found found;

	/* It could not let itself go. */
	if (atomic_load_explicit(&thread->refused, memory_order_relaxed))
		cpu = 0;
	if ((bound == cpu || bound == -cpu) && (cpu || !thread->lost))
		return;
	found = find_own(thread, tid, work);
	if (found == CHANGING)
		return;
	if (found == KNOWN && cpu && bind_to(thread, tid, cpu, work))
		return;
	bound = atomic_load_explicit(&thread->cpu, memory_order_relaxed);
	if ((bound > 0 || thread->lost) && !let_go(thread, tid, work))
		return;
	/* Not tried again on this CPU. */
	atomic_store_explicit(&thread->cpu, -cpu, memory_order_relaxed);
}

/*
 * For how long the calling thread has run, and has waited for a CPU, in us: sched-stats.rst.
 * False: it can't be read.
 */
static bool get_times(uint32_t *ran, uint32_t *waited)
{
	char text[64], *at = text;
	const int error = errno;
	long length = -1;
	int fd;

	fd = (int)syscall(SYS_openat, AT_FDCWD, "/proc/thread-self/schedstat",
			  O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		length = syscall(SYS_read, fd, text, sizeof(text) - 1);
		syscall(SYS_close, fd);
	}
	text[length > 0 ? length : 0] = '\0';
	*ran = (uint32_t)(strtoull(at, &at, 10) / 1000);
	*waited = (uint32_t)(strtoull(at, NULL, 10) / 1000);
	errno = error;
	return length > 0;
}

/*
 * Does another thread have the CPU of @me? A switch makes its target wait as well, for half as
 * long as it runs if the two do nothing else (x86-64, Linux 6.18).
 */
static bool is_crowded(struct thread *me, uint32_t now, uint32_t phase)
{
	uint32_t ran, waited, ran_since, waited_since;
	bool crowded;

	if (!get_times(&ran, &waited))
		return false;
	ran_since = ran - me->ran;
	waited_since = waited - me->waited;
	/* The chain has been let go since, perhaps to another CPU: what was added up is old. */
	crowded = (int32_t)(me->looked - phase) >= 0 && waited_since >= 2000 &&
		  waited_since >= ran_since / 4 * 3;
	if (crowded || (int32_t)(me->looked - phase) < 0 || now - me->looked >= PLACE_LOOK) {
		me->ran = ran;
		me->waited = waited;
		me->looked = now;
	}
	return crowded;
}

bool switchto_place_tick(struct thread *me, uint32_t now, uint32_t *phase)
{
	const uint32_t given = atomic_load_explicit(&me->given, memory_order_relaxed);
	const uint32_t age = now - *phase;
	const bool is_free = *phase & PLACE_FREE;

	if (age > (is_free ? PLACE_FREE_PERIOD : PLACE_PERIOD)) {
		*phase = now & ~(uint32_t)PLACE_FREE;
		return true;
	}
	if (is_free)
		return false;
	if (is_crowded(me, now, *phase)) {
		/* Has it been of no use to let one go? */
		*phase = age < PLACE_FREE_PERIOD ? now | PLACE_FREE : now & ~(uint32_t)PLACE_FREE;
		return true;
	}
	return now - given >= switchto_place_long;
}

/* @again: if another thread has the lock, that thread lets @thread go before it unlocks. */
static bool try_lock(struct thread *thread, bool again)
{
	unsigned char seen = IDLE;

	do {
		if (seen != IDLE && !again)
			return false;
	} while (!atomic_compare_exchange_weak(&thread->placing, &seen,
					       seen == IDLE ? BUSY : AGAIN));
	return seen == IDLE;
}

static void unlock(struct thread *thread, pid_t tid, struct work *work)
{
	unsigned char seen = BUSY;

	while (!atomic_compare_exchange_strong(&thread->placing, &seen, IDLE)) {
		atomic_store(&thread->placing, BUSY);
		if ((atomic_load(&thread->word) & WORD_STATE) != UNREGISTERED)
			move(thread, tid, 0, work);
		seen = BUSY;
	}
}

/* Takes the lock of the calling thread, with signals blocked. Others have it for a moment only. */
static void lock_own(struct thread *me)
{
	/* The thread that has it may need this CPU, and have a lower priority. */
	const struct timespec moment = { .tv_nsec = 50000 };

	for (int i = 0; !try_lock(me, false); i++) {
		if (i < 100)
			sched_yield();
		else
			syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &moment, NULL);
	}
}

/* Has @thread been bound so often within this tick that it is to stay free? */
static bool is_moved_enough(struct thread *thread)
{
	const uint32_t now = place_now();
	unsigned char moves = atomic_load_explicit(&thread->moves, memory_order_relaxed);

	if (atomic_exchange_explicit(&thread->moved, now, memory_order_relaxed) != now)
		moves = 0;
	if (moves >= MOVES)
		return true;
	atomic_store_explicit(&thread->moves, moves + 1, memory_order_relaxed);
	return false;
}

void switchto_place_move(struct thread *thread, pid_t tid, int cpu)
{
	struct thread *me = switchto_this.thread;
	struct work *work;
	uint32_t word;

	if (me && atomic_load_explicit(&me->refused, memory_order_relaxed))
		return;
	if (cpu && is_moved_enough(thread)) {
		if (atomic_load_explicit(&thread->cpu, memory_order_relaxed) <= 0)
			return;
		cpu = 0;
	}
	work = begin_work();
	if (!work)
		return;
	if (try_lock(thread, !cpu)) {
		/*
		 * While it is locked it does not end, and its TID stays its own. It has its
		 * resume already: it may have gone on, and wait for somebody else by now.
		 */
		word = atomic_load(&thread->word);
		if (cpu ? atomic_load(&thread->place) != SWITCHTO_FREE &&
				    (word & WORD_STATE) == RESUMED &&
				    (word & WORD_TID) == (uint32_t)switchto_this.tid :
			  (word & WORD_STATE) != UNREGISTERED)
			move(thread, tid, cpu, work);
		unlock(thread, tid, work);
	}
	end_work(work);
}

void switchto_place_leave(void)
{
	struct thread *me = switchto_this.thread;
	struct work *work = begin_work();

	if (!work)
		return;
	lock_own(me);
	move(me, switchto_this.tid, 0, work);
	unlock(me, switchto_this.tid, work);
	end_work(work);
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
	struct work *work;

	/* No other thread changes it now, or will: see switchto_place_move(). */
	if (atomic_load(&me->place) == SWITCHTO_FREE && !me->own && try_lock(me, false))
		return;
	/* Without memory, it ends as it is. */
	work = begin_work();
	lock_own(me);
	atomic_store(&me->place, SWITCHTO_FREE);
	if (work)
		move(me, switchto_this.tid, 0, work);
	me->own = NULL;
	if (work)
		end_work(work);
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

	if (!thread || (atomic_load(&thread->word) & WORD_STATE) == UNREGISTERED)
		return fail(ESRCH);
	if (atomic_load_explicit(&thread->cpu, memory_order_relaxed) > 0)
		switchto_place_move(thread, tid, 0);
	return 0;
}
