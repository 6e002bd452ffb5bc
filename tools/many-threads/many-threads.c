// SPDX-License-Identifier: MIT
/*
 * many-threads: park many threads, see what each one costs, resume them all.
 *
 *	many-threads -n 100000
 *
 * What it takes to have 100,000 threads
 * -------------------------------------
 * Limits. Each thread is a TID, so kernel.pid_max (32768 on a small machine),
 * kernel.threads-max, the control group's pids.max and RLIMIT_NPROC have to
 * allow them. When one does not, limits.c says which.
 *
 * Stacks. A stack of the C library's own is a mapping with a guard page, that is
 * two regions, and a process has 65530 (vm.max_map_count). So all stacks are cut
 * from one mapping, which is one region whatever their number, and there is no
 * room for guard pages: a stack that overflows runs into its neighbour, so its
 * size has to be right. 16 KiB is the least that pthread_attr_setstack() takes,
 * and three times what a thread that only calls the library needs. The mapping
 * is never touched as a whole (MAP_NORESERVE). It has no huge pages: each would
 * make 128 stacks resident.
 *
 * Memory. A parked thread keeps its kernel stack, 16 KiB on x86-64, and its
 * task_struct in the kernel. In user space it keeps the pages of its stack that
 * it has ever touched. glibc has two things at the top of a stack: the thread's
 * descriptor, struct pthread, with the thread-local variables below it, and
 * then, below a gap, the first frame. The gap is room for the thread-local
 * variables of libraries that may be loaded later, and it pushes the first frame
 * into another page than the descriptor's. In glibc 2.36 on x86-64 the descriptor
 * is 2368 bytes below the top and the first frame 4400: never in one page. Without
 * the room the first frame is at 2992. That leaves 1100 bytes for all frames, so a
 * thread that calls the library and little else stays in one page: 4 KiB instead
 * of 8. The room is set when a program starts,
 * by GLIBC_TUNABLES in its environment, so this program starts itself once more
 * with
 *
 *	GLIBC_TUNABLES=glibc.rtld.nns=1:glibc.rtld.optional_static_tls=0
 *
 * A program may do so if it needs no dlmopen() and loads no libraries with
 * initial-exec variables later. To run without it: GLIBC_TUNABLES= many-threads
 *
 * Outside the stacks there is, per thread, the table of its thread-local
 * variables' addresses (glibc, about 300 bytes from malloc()), its line in the
 * library's table (64 bytes), and what this program keeps: a TID, a count, a
 * pthread_t.
 *
 * When is a thread parked?
 * ------------------------
 * Each thread announces itself right before switchto_wait(), which is not the
 * same as being asleep in it. To ask /proc for the state of each of 250,000
 * threads takes longer than to make them, and fills the kernel's memory with
 * inodes while that is being measured. But the kernel counts how often a thread
 * goes to sleep: ru_nvcsw of getrusage(), which RUSAGE_SELF adds up over all
 * threads in one call. Before it announces itself a thread adds its own count so
 * far to a sum. From there on it goes to sleep for one reason only, so once the
 * counts of all threads exceed that sum by the number of threads, every one of
 * them has gone to sleep, that is, parked. No other program on the machine
 * makes a difference to that. (Under PREEMPT_RT a thread also sleeps for locks
 * of the kernel, so a few may still be on their way when it is measured. Nothing
 * else depends on it: a resume before the wait stays pending.)
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
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define TUNABLES "glibc.rtld.nns=1:glibc.rtld.optional_static_tls=0"

struct options {
	long threads;
	long storm;   /* seconds; 0: none */
	size_t stack; /* bytes; 0: the smallest */
	uint32_t rounds;
	bool verbose;
};

/* The state of all threads: eight bytes for each, and eight for its pthread_t. */
static _Atomic pid_t *tids;	/* or minus an error number */
static _Atomic uint32_t *given; /* resumes, counted before they are given */
static _Atomic uint32_t rounds;
static pid_t main_tid;

static _Atomic long announced, failed, returned;
static _Atomic long slept_before;

/* Set by the first wrong return from a wait. */
static atomic_flag wrong_said = ATOMIC_FLAG_INIT;
static atomic_bool wrong;

/* ---- a thread ------------------------------------------------------------ */

/* noinline: wait_here()'s frame, which stays while parked, must be small. */
static __attribute__((noinline)) long times_slept(void)
{
	struct rusage usage;

	getrusage(RUSAGE_THREAD, &usage);
	return usage.ru_nvcsw;
}

/* On the small stack: it needs more than a parked thread does, but happens once. */
static __attribute__((noinline, cold)) void say_wrong(long i, pid_t from, int error, uint32_t n)
{
	static char text[300];
	int length;

	atomic_store(&wrong, true);
	if (atomic_flag_test_and_set(&wrong_said))
		return;
	length = snprintf(
		text, sizeof(text),
		"many-threads: thread %ld: wanted return %" PRIu32
		" of its wait to be by TID %d after %" PRIu32
		" resumes, found TID %d (error %d) after %" PRIu32
		"; a bug in the library or the kernel: report it with the kernel's version and SWITCHTO_BACKEND\n",
		i, n, (int)main_tid, n, (int)from, error, atomic_load(&given[i]));
	if (write(STDERR_FILENO, text, (size_t)length) < 0)
		return;
}

static void *wait_here(void *arg)
{
	long i = (long)(intptr_t)arg;
	pid_t from = switchto_self();
	uint32_t n = 0;

	if (from < 0) {
		atomic_store(&tids[i], -errno);
		atomic_fetch_add(&failed, 1);
		atomic_fetch_add(&announced, 1);
		return NULL;
	}
	atomic_store(&tids[i], from);
	atomic_fetch_add(&slept_before, times_slept());
	atomic_fetch_add(&announced, 1);

	while (n < atomic_load(&rounds)) {
		do
			from = switchto_wait(NULL);
		while (from < 0 && errno == EINTR);
		n++;
		if (from != main_tid || atomic_load(&given[i]) != n)
			say_wrong(i, from, from < 0 ? errno : 0, n);
		atomic_fetch_add(&returned, 1);
	}
	return NULL;
}

/* ---- what is measured ---------------------------------------------------- */

struct cache {
	char name[40];
	long active, size;
};

/* In bytes, but for threads and caches. */
struct snapshot {
	long long rss, page_tables;					     /* of this process */
	long long kernel_stack, vmalloc, slab, percpu, taken, unreclaimable; /* of the machine */
	long long threads;
	int n_caches; /* -1: can't be read */
	struct cache caches[1024];
};

static const char *slabinfo_error;

/* "name active_objs num_objs objsize ...", after two lines of heading. */
static void read_caches(struct snapshot *s)
{
	static char text[1 << 18];
	char *line;

	s->n_caches = -1;
	if (!read_text("/proc/slabinfo", text, sizeof(text))) {
		slabinfo_error = errno == ENOENT ?
					 "this kernel has none, it needs CONFIG_SLUB_DEBUG=y" :
				 errno == EACCES ? "only root may read it" :
						   strerror(errno);
		return;
	}
	s->n_caches = 0;
	for (line = text; line && s->n_caches < 1024; line = strchr(line, '\n')) {
		struct cache *c = &s->caches[s->n_caches];

		line += *line == '\n';
		if (sscanf(line, "%39s %ld %*d %ld", c->name, &c->active, &c->size) == 3)
			s->n_caches++;
	}
}

static void take_snapshot(struct snapshot *s)
{
	static char text[16384];

	memset(s, 0, sizeof(*s));
	if (read_text("/proc/self/status", text, sizeof(text))) {
		s->rss = field(text, "VmRSS") * 1024;
		s->page_tables = field(text, "VmPTE") * 1024;
		s->threads = field(text, "Threads");
	}
	if (read_text("/proc/meminfo", text, sizeof(text))) {
		s->kernel_stack = field(text, "KernelStack") * 1024;
		s->vmalloc = field(text, "VmallocUsed") * 1024;
		s->slab = field(text, "Slab") * 1024;
		s->unreclaimable = field(text, "SUnreclaim") * 1024;
		s->percpu = field(text, "Percpu") * 1024;
		s->taken = (field(text, "MemTotal") - field(text, "MemFree") -
			    field(text, "Buffers") - field(text, "Cached")) *
			   1024;
	}
	read_caches(s);
}

static long active_in(const struct snapshot *s, const char *name)
{
	for (int i = 0; i < s->n_caches; i++)
		if (!strcmp(s->caches[i].name, name))
			return s->caches[i].active;
	return 0;
}

/* A name, a figure, what it is. */
static void say(const char *name, double figure, int decimals, const char *what)
{
	printf("%-18s %12.*f%s%s\n", name, decimals, figure, *what ? "  " : "", what);
}

/* Is there an object of this cache for each thread? */
static bool grew_by_threads(const struct snapshot *start, const struct cache *c, long n)
{
	return c->active - active_in(start, c->name) >= n - n / 10;
}

static void say_memory(const struct snapshot *start, const struct snapshot *parked, long n)
{
	double rss = (double)(parked->rss - start->rss) / (double)n;
	double page_tables = (double)(parked->page_tables - start->page_tables) / (double)n;
	double kernel_stack = (double)(parked->kernel_stack - start->kernel_stack) / (double)n;
	double slab = (double)(parked->slab - start->slab) / (double)n;
	double percpu = (double)(parked->percpu - start->percpu) / (double)n;
	double total = (double)(parked->taken - start->taken) / (double)n;
	double sum = rss + page_tables + kernel_stack + slab + percpu;

	puts("memory per parked thread, bytes:");
	say("user_rss", rss, 0, "/proc/self/status, VmRSS");
	say("page_tables", page_tables, 0, "/proc/self/status, VmPTE");
	say("kernel_stack", kernel_stack, 0, "/proc/meminfo, KernelStack");
	say("slab", slab, 0, "/proc/meminfo, Slab");
	say("percpu", percpu, 0, "/proc/meminfo, Percpu");
	say("sum", sum, 0, "of the five above");
	say("other", total - sum, 0,
	    "total - sum: page tables of the kernel; and what else the machine did, / threads");
	say("total", total, 0,
	    "/proc/meminfo, the decrease of MemFree + Buffers + Cached: kernel and user");

	if (parked->n_caches < 0) {
		printf("slab caches: wanted /proc/slabinfo, %s\n", slabinfo_error);
		return;
	}
	puts("slab caches with an object or more per thread:");
	for (int i = 0; i < parked->n_caches; i++) {
		const struct cache *c = &parked->caches[i];

		if (grew_by_threads(start, c, n))
			printf("cache %-24s size %6ld  per_thread %.2f\n", c->name, c->size,
			       (double)(c->active - active_in(start, c->name)) / (double)n);
	}
}

/* ---- stacks -------------------------------------------------------------- */

static char *stacks;
static size_t stack_size, page_size;

static size_t smallest_stack(void)
{
	size_t size = 16384;
	long min = sysconf(_SC_THREAD_STACK_MIN);

	if (min > (long)size)
		size = (size_t)min;
	return (size + page_size - 1) & -page_size;
}

static bool map_stacks(long n)
{
	size_t size = (size_t)n * stack_size;

	stacks = mmap(NULL, size, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
	if (stacks == MAP_FAILED) {
		say_limits(n, 0, "mapping their stacks", errno, size);
		return false;
	}
	/* EINVAL: a kernel without huge pages, which is as good. */
	if (madvise(stacks, size, MADV_NOHUGEPAGE) && errno != EINVAL)
		fprintf(stderr,
			"many-threads: wanted stacks without huge pages (MADV_NOHUGEPAGE), found: %s; the figures may be too high\n",
			strerror(errno));
	return true;
}

/* How many pages of their stacks the threads have touched, by mincore(). */
static void say_stack_pages(long n, bool verbose)
{
	enum { AT_ONCE = 1024, MOST = 1024 };
	size_t pages = stack_size / page_size, touched = 0, by_page[MOST] = { 0 };
	unsigned char *there;

	there = malloc(AT_ONCE * pages);
	for (long i = 0; there && i < n; i += AT_ONCE) {
		size_t now = (size_t)(n - i < AT_ONCE ? n - i : AT_ONCE);

		if (mincore(stacks + (size_t)i * stack_size, now * stack_size, there))
			break;
		for (size_t p = 0; p < now * pages; p++) {
			size_t from_top = pages - 1 - p % pages;

			touched += there[p] & 1;
			by_page[from_top < MOST ? from_top : MOST - 1] += there[p] & 1;
		}
	}
	free(there);

	say("stack_pages", (double)touched / (double)n, 2, "touched per thread, by mincore()");
	for (size_t p = 0; verbose && p < pages && p < MOST; p++)
		if (by_page[p])
			printf("stack_page %-7zu %12zu  threads that touched this page from the top\n",
			       p + 1, by_page[p]);
}

/* ---- the run ------------------------------------------------------------- */

/* Waits until *@counter is @want; false if it stands still for too long. */
static bool await(_Atomic long *counter, long want, const char *what)
{
	struct progress progress = { 0 };
	long now;

	while ((now = atomic_load(counter)) < want) {
		if (stands_still(&progress, now)) {
			fprintf(stderr,
				"many-threads: wanted %ld threads that %s, found %ld and none more for %d s; a resume or a wake-up was lost: report it with the kernel's version and SWITCHTO_BACKEND\n",
				want, what, now, STALL_SECONDS);
			return false;
		}
		nap();
	}
	return true;
}

/* As described at the top. */
static bool await_parked(long n)
{
	struct progress progress = { 0 };

	for (;;) {
		struct rusage all, own;
		long asleep;

		getrusage(RUSAGE_SELF, &all);
		getrusage(RUSAGE_THREAD, &own);
		asleep = all.ru_nvcsw - own.ru_nvcsw - atomic_load(&slept_before);
		if (asleep >= n)
			return true;
		if (stands_still(&progress, asleep)) {
			fprintf(stderr,
				"many-threads: wanted %ld threads asleep in switchto_wait(), found %ld and none more for %d s (ru_nvcsw of getrusage()); a kernel that does not count them?\n",
				n, asleep, STALL_SECONDS);
			return false;
		}
		nap();
	}
}

/* A thread could not make itself known to the library, which takes memory. */
static void say_failed(long wanted, long made)
{
	for (long i = 0; i < made; i++) {
		int error = -atomic_load(&tids[i]);

		if (error > 0) {
			say_limits(wanted, made - atomic_load(&failed), "switchto_self", error,
				   MALLOC_STEP);
			return;
		}
	}
}

/*
 * Returns how many were made; all have announced themselves. If one is missing
 * or has failed, it has been said why. -1: they don't even begin to run.
 */
static long make_threads(long n, pthread_t *threads, bool verbose)
{
	pthread_attr_t attr;
	int error = 0;
	long i;

	pthread_attr_init(&attr);
	for (i = 0; i < n && !atomic_load(&failed); i++) {
		error = pthread_attr_setstack(&attr, stacks + (size_t)i * stack_size, stack_size);
		if (!error)
			error = pthread_create(&threads[i], &attr, wait_here, (void *)(intptr_t)i);
		if (error) {
			say_limits(n, i, "pthread_create", error, MALLOC_STEP);
			break;
		}
		if (verbose && (i + 1) % 10000 == 0)
			fprintf(stderr, "many-threads: made %ld\n", i + 1);
	}
	pthread_attr_destroy(&attr);
	if (!await(&announced, i, "announced themselves"))
		return -1;
	if (!error)
		say_failed(n, i);
	return i;
}

/* Resumes the @made threads once more, and sees them all return. */
static bool resume_all(long made, uint32_t round)
{
	long living = made - atomic_load(&failed);

	for (long i = 0; i < made; i++) {
		pid_t tid = atomic_load(&tids[i]);

		if (tid < 0)
			continue;
		atomic_fetch_add(&given[i], 1);
		if (switchto_resume(tid)) {
			fprintf(stderr,
				"many-threads: thread %ld: wanted to resume TID %d, found: %s; a thread that returned from its wait unresumed, or a bug: report it with the kernel's version and SWITCHTO_BACKEND\n",
				i, (int)tid, strerror(errno));
			return false;
		}
	}
	/* At most one is pending for each: the library does not count resumes. */
	return await(&returned, living * (long)round, "returned from their wait");
}

/*
 * How many more objects than at the start a cache may have without a leak. SLUB
 * keeps free objects in slabs per CPU and counts them as active. Other programs
 * on the machine go on: they add few task_structs, but any number of objects to
 * a shared cache. The kernel also remembers where stacks were, see is_left(), in
 * objects whose cache may have been merged with another.
 */
static long tolerance(const char *cache, long n)
{
	enum { STACKS_IN_32_MIB = 2048, OTHER_TASKS = 500, OTHER_OBJECTS = 2500 };
	long cpus = sysconf(_SC_NPROCESSORS_CONF), slack = n / 100 + 64 * cpus;

	if (!strcmp(cache, "task_struct"))
		return slack + OTHER_TASKS;
	slack += OTHER_OBJECTS;
	for (; cpus; cpus /= 2)
		slack += STACKS_IN_32_MIB;
	return slack;
}

/* Writes the first leftover to @what; false if there is none. */
static bool is_left(const struct snapshot *start, const struct snapshot *parked,
		    const struct snapshot *end, long n, char *what, size_t size)
{
	const long long x86_64_stack = 16 << 10;
	long long stack = (parked->kernel_stack - start->kernel_stack) / n;
	long long slab = parked->unreclaimable - start->unreclaimable;
	long long most;

	/* Threads of other programs may outnumber few threads. */
	if (stack < x86_64_stack)
		stack = x86_64_stack;
	if (slab < 0)
		slab = 0;

	if (end->threads != start->threads) {
		snprintf(what, size, "wanted %lld thread(s) in /proc/self/status, found %lld",
			 start->threads, end->threads);
		return true;
	}

	most = start->kernel_stack + stack * tolerance("task_struct", n);
	if (end->kernel_stack > most) {
		snprintf(what, size,
			 "wanted KernelStack of /proc/meminfo at %lld bytes or less, found %lld",
			 most, end->kernel_stack);
		return true;
	}

	/* Next to nothing where the kernel's stacks are not mapped. */
	most = start->vmalloc + stack * tolerance("task_struct", n);
	if (end->vmalloc > most) {
		snprintf(what, size,
			 "wanted VmallocUsed of /proc/meminfo at %lld bytes or less, found %lld",
			 most, end->vmalloc);
		return true;
	}

	for (int i = 0; i < parked->n_caches; i++) {
		const struct cache *c = &parked->caches[i];
		long before, now;

		/*
		 * The kernel keeps the addresses of former stacks: until a flush
		 * of the TLBs pays off, and since Linux 6.9 for others of that
		 * size (mm/vmalloc.c). VmallocUsed shows that no stack is left.
		 */
		if (!grew_by_threads(start, c, n) || !strcmp(c->name, "vmap_area"))
			continue;
		before = active_in(start, c->name);
		now = active_in(end, c->name);
		if (now > before + tolerance(c->name, n)) {
			snprintf(what, size,
				 "wanted %ld objects or less in slab cache %s, found %ld",
				 before + tolerance(c->name, n), c->name, now);
			return true;
		}
	}

	/* Whole slabs say less: one object keeps a slab, so a part always stays. */
	most = start->unreclaimable + slab / 4 + (4 << 20);
	if (parked->n_caches < 0 && end->unreclaimable > most) {
		snprintf(what, size,
			 "wanted SUnreclaim of /proc/meminfo at %lld bytes or less, found %lld",
			 most, end->unreclaimable);
		return true;
	}
	return false;
}

/*
 * Root may make a cache release its free objects: those in its slabs per CPU,
 * and those in KASAN's quarantine, on a kernel that has it.
 */
static void shrink(const struct snapshot *start, const struct snapshot *parked, long n)
{
	char path[100];
	int fd;

	for (int i = 0; i < parked->n_caches; i++) {
		const struct cache *c = &parked->caches[i];

		if (!grew_by_threads(start, c, n))
			continue;
		snprintf(path, sizeof(path), "/sys/kernel/slab/%s/shrink", c->name);
		fd = open(path, O_WRONLY | O_CLOEXEC);
		if (fd < 0)
			continue;
		/* If it is refused the cache stays as it is, and is judged so. */
		if (write(fd, "1", 1) < 0)
			errno = 0;
		close(fd);
	}
}

/* RCU frees late, and a joined thread may still be exiting. */
static bool nothing_left(const struct snapshot *start, const struct snapshot *parked, long n)
{
	enum { SECONDS = 10 };
	static struct snapshot end;
	uint64_t since = now_ns();
	char what[200];
	bool left;

	for (;;) {
		take_snapshot(&end);
		left = is_left(start, parked, &end, n, what, sizeof(what));
		if (!left || now_ns() - since > SECONDS * NSEC_PER_SEC)
			break;
		nanosleep(&(struct timespec){ .tv_nsec = 200000000 }, NULL);
		shrink(start, parked, n);
	}

	puts("left over after joining:");
	say("left_threads", (double)(end.threads - start->threads), 0, "");
	say("left_kernel_stacks", (double)(end.kernel_stack - start->kernel_stack), 0,
	    "bytes, of the machine");
	say("left_slab", (double)(end.unreclaimable - start->unreclaimable), 0,
	    "bytes, of the machine: SUnreclaim");
	for (int i = 0; i < parked->n_caches; i++) {
		const struct cache *c = &parked->caches[i];

		if (grew_by_threads(start, c, n))
			printf("left_objects %-17s start %8ld  parked %8ld  now %8ld\n", c->name,
			       active_in(start, c->name), c->active, active_in(&end, c->name));
	}
	if (left) {
		fflush(stdout);
		fprintf(stderr,
			"many-threads: %s, %d s after the last thread was joined; if it repeats on a machine with nothing else to do, something leaks\n",
			what, SECONDS);
	}
	return !left;
}

static void *table(long n, size_t each)
{
	void *p = calloc((size_t)n, each);

	if (!p)
		say_limits(n, 0, "a table of them", errno, (size_t)n * each);
	return p;
}

static double rate(double n, uint64_t from, uint64_t to)
{
	return n * 1e9 / (double)(to > from ? to - from : 1);
}

static int run(const struct options *o)
{
	static struct snapshot start, parked;
	uint64_t begin, all_parked, first_resume, last_round, all_returned, end;
	long n = o->threads, made;
	const char *backend = switchto_backend();
	pthread_t *threads;
	bool complete, left;

	if (!backend) {
		fprintf(stderr,
			"many-threads: wanted a backend of libswitchto, found: %s; is SWITCHTO_BACKEND one that this kernel has?\n",
			strerror(errno));
		return EXIT_FAILED;
	}
	main_tid = switchto_self();
	tids = table(n, sizeof(*tids));
	given = tids ? table(n, sizeof(*given)) : NULL;
	threads = given ? table(n, sizeof(*threads)) : NULL;
	if (!threads || !map_stacks(n))
		return EXIT_FAILED;

	printf("%-18s %12s\n", "backend", backend);
	say("threads", (double)n, 0, "");
	say("stack_kib", (double)stack_size / 1024, 0, "");

	/* The first snapshot touches what the second will. */
	take_snapshot(&parked);
	take_snapshot(&start);
	begin = now_ns();
	made = make_threads(n, threads, o->verbose);
	if (made < 0)
		return EXIT_FAILED;
	complete = made == n && !atomic_load(&failed);
	if (complete && !await_parked(n))
		return EXIT_FAILED;
	all_parked = now_ns();
	if (complete)
		take_snapshot(&parked);
	else
		atomic_store(&rounds, 1);

	/* Threads that don't return can't be joined: end without joining. */
	first_resume = last_round = now_ns();
	for (uint32_t round = 1; round <= atomic_load(&rounds); round++) {
		last_round = now_ns();
		if (!resume_all(made, round))
			return EXIT_FAILED;
	}
	all_returned = now_ns();
	for (long i = 0; i < made; i++) {
		int error = pthread_join(threads[i], NULL);

		if (error) {
			fprintf(stderr,
				"many-threads: thread %ld: wanted to join it, found: %s; report it\n",
				i, strerror(error));
			return EXIT_FAILED;
		}
	}
	end = now_ns();
	if (!complete)
		return EXIT_FAILED;

	say("created_per_s", rate((double)n, begin, all_parked), 0, "until all were parked");
	say("resumed_per_s", rate((double)n * o->rounds, first_resume, all_returned), 0,
	    "until all had returned from their wait");
	say("exited_per_s", rate((double)n, last_round, end), 0,
	    "from the first of the last resumes until all were joined");
	say("returned", (double)atomic_load(&returned), 0, "from switchto_wait()");
	say_memory(&start, &parked, n);
	say_stack_pages(n, o->verbose);
	munmap(stacks, (size_t)n * stack_size);
	free(threads);
	free((void *)given);
	free((void *)tids);

	left = !nothing_left(&start, &parked, n);
	return left || atomic_load(&wrong) ? EXIT_FAILED : EXIT_SUCCESS;
}

/* ---- options ------------------------------------------------------------- */

static const char help[] =
	"usage: many-threads [-n N] [-s KIB] [-r ROUNDS] [-v]\n"
	"       many-threads -x SECONDS [-n N]\n"
	"Make N threads, park them all, measure, resume them all, join them all.\n"
	"  -n N        how many threads (1000; with -x 64)\n"
	"  -s KIB      stack of each, in KiB, rounded up to a page (the smallest possible)\n"
	"  -r ROUNDS   how often to resume each (1)\n"
	"  -x SECONDS  instead: resume random ones of N threads that begin, wait and end\n"
	"              all the time, and check that none returns without a resume\n"
	"  -v          more figures, and progress on standard error\n"
	"  -h          this help\n"
	"exit status: 0 every thread was parked, resumed and joined, and nothing is left;\n"
	"             1 otherwise, and a line says why; 2 usage\n";

static long number(int opt, const char *arg, long min, long max)
{
	char *end;
	long n;

	errno = 0;
	n = strtol(arg, &end, 10);
	if (*arg < '0' || *arg > '9' || *end || errno || n < min || n > max) {
		fprintf(stderr,
			"many-threads: -%c wants a number from %ld to %ld, not '%s'; see -h\n", opt,
			min, max, arg);
		exit(EXIT_USAGE);
	}
	return n;
}

/*
 * Starts again with the tunables that keep a thread in one page. Not if there are
 * any already, and not with another user's rights: the program would not get
 * them.
 */
static void restart_with_tunables(char **argv)
{
	if (getenv("GLIBC_TUNABLES") || getauxval(AT_SECURE) ||
	    setenv("GLIBC_TUNABLES", TUNABLES, 1))
		return;
	execv("/proc/self/exe", argv);
	fprintf(stderr,
		"many-threads: wanted to start again with GLIBC_TUNABLES=%s, found: %s; going on with more memory per thread\n",
		TUNABLES, strerror(errno));
}

int main(int argc, char **argv)
{
	struct options o = { .rounds = 1 };
	size_t smallest;
	int opt;

	page_size = (size_t)sysconf(_SC_PAGESIZE);
	smallest = smallest_stack();

	while ((opt = getopt(argc, argv, ":n:s:r:x:vh")) != -1) {
		switch (opt) {
		case 'n':
			o.threads = number(opt, optarg, 1, PID_MAX_LIMIT - 1);
			break;
		case 's':
			o.stack = (size_t)number(opt, optarg, (long)smallest / 1024, 1 << 20) *
				  1024;
			break;
		case 'r':
			o.rounds = (uint32_t)number(opt, optarg, 1, 1000000);
			break;
		case 'x':
			o.storm = number(opt, optarg, 1, 1000000);
			break;
		case 'v':
			o.verbose = true;
			break;
		case 'h':
			fputs(help, stdout);
			return EXIT_SUCCESS;
		case ':':
			fprintf(stderr,
				"many-threads: -%c wants a number, and there is none; see -h\n",
				optopt);
			return EXIT_USAGE;
		default:
			fprintf(stderr,
				"many-threads: wanted one of -n -s -r -x -v -h, found '-%c'; see -h\n",
				optopt);
			return EXIT_USAGE;
		}
	}
	if (optind < argc) {
		fprintf(stderr, "many-threads: wanted options only, found '%s'; see -h\n",
			argv[optind]);
		return EXIT_USAGE;
	}

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (o.storm)
		return storm(o.threads ? o.threads : 64, o.storm);

	restart_with_tunables(argv);
	if (!o.threads)
		o.threads = 1000;
	stack_size = o.stack ? (o.stack + page_size - 1) & -page_size : smallest;
	atomic_store(&rounds, o.rounds);
	opt = run(&o);
	if (ferror(stdout)) {
		fputs("many-threads: standard output did not take all of the results (disk full?); try again with another\n",
		      stderr);
		return EXIT_FAILED;
	}
	return opt;
}
