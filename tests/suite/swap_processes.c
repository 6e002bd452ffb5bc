// SPDX-License-Identifier: MIT
/*
 * FUTEX_SWAP between two processes, without the library, and what it must leave right:
 * each process's concurrency IDs, and the mapping of the futex words.
 */
#include "support.h"

#include <sys/auxv.h>

#define PAIRS 3

/* Two threads, one of each process, take turns. */
struct pair {
	_Atomic uint32_t turn[2];
	_Atomic long turns;
};

/* Of both processes. */
struct arena {
	struct pair pairs[PAIRS];
	atomic_bool over;
};

static struct arena *arena;

static long raw_futex(_Atomic uint32_t *word, int op, uint32_t value,
		      const struct timespec *timeout, _Atomic uint32_t *other)
{
	return syscall(SYS_futex, word, op, value, timeout, other, 0);
}

/* --- concurrency IDs ------------------------------------------------------------------ */

#ifndef AT_RSEQ_FEATURE_SIZE
#define AT_RSEQ_FEATURE_SIZE 27
#endif

/* glibc's, from 2.35 on; another C library has none. */
extern const ptrdiff_t __rseq_offset __attribute__((weak));
extern const unsigned int __rseq_size __attribute__((weak));

/* The kernel's struct rseq: older headers end before mm_cid. */
struct rseq_area {
	uint32_t cpu_id_start, cpu_id;
	uint64_t rseq_cs;
	uint32_t flags, node_id, mm_cid;
};

struct rseq_section {
	uint32_t version, flags;
	uint64_t start, length, abort;
} __attribute__((aligned(32)));

static struct rseq_section elsewhere;

#if defined(__x86_64__) && defined(__LP64__)
#define HAS_AREA 1
/* The signature before the abort address is the one that glibc registers. */
__asm__(".pushsection .text\n"
	"section_elsewhere: nop\n"
	".long 0x53053053\n"
	"abort_elsewhere: ud2\n"
	".popsection\n");
extern char section_elsewhere[] __attribute__((visibility("hidden")));
extern char abort_elsewhere[] __attribute__((visibility("hidden")));

static volatile struct rseq_area *own_area(void)
{
	char *self;

	__asm__("mov %%fs:0, %0" : "=r"(self));
	return (volatile struct rseq_area *)(self + __rseq_offset);
}

static void elsewhere_make(void)
{
	elsewhere.start = (uintptr_t)section_elsewhere;
	elsewhere.length = 1;
	elsewhere.abort = (uintptr_t)abort_elsewhere;
}
#else
#define HAS_AREA 0
static volatile struct rseq_area *own_area(void)
{
	return NULL;
}

static void elsewhere_make(void) {}
#endif

#define SPINNERS 2
#define THREADS (PAIRS + SPINNERS)
#define MOST_CPUS 1024
#define KEPT 64

/*
 * A look at the thread's ID: it marks the ID as its own, works a little, and finds its own
 * mark there. Only a look that was not interrupted by a context switch counts. While a
 * thread runs outside of a critical section, a context switch clears rseq_cs.
 */
struct look {
	_Atomic uint64_t mark;
	_Atomic bool whole;
};

struct looker {
	struct worker w;
	unsigned int index;
	int side;
	uint64_t n;
	long whole;
	struct look looks[KEPT];
};

/* Of this process. */
static struct looker lookers[THREADS];
static _Atomic uint64_t marks[MOST_CPUS];
static unsigned int ids;

/* Whether the look with @mark, of another thread, was a whole one. False if it takes long. */
static bool was_whole(uint64_t mark)
{
	struct look *look = &lookers[mark % THREADS].looks[mark / THREADS % KEPT];
	uint64_t found = 0;

	for (int i = 0; i < 10000 && found < mark; i++)
		found = atomic_load(&look->mark);
	return found == mark && atomic_load(&look->whole);
}

static void look_at_id(struct looker *l)
{
	volatile struct rseq_area *area = own_area();
	const uint64_t mark = ++l->n * THREADS + l->index;
	struct look *look = &l->looks[l->n % KEPT];
	uint64_t found;
	uint32_t id, later;
	bool whole;

	area->rseq_cs = (uintptr_t)&elsewhere;
	atomic_signal_fence(memory_order_seq_cst);
	id = area->mm_cid;
	if (id >= ids) {
		CHECK_EQ(&l->w.v, id, ids - 1);
		return;
	}
	atomic_store(&marks[id], mark);
	for (int i = 0; i < 100; i++)
		atomic_signal_fence(memory_order_seq_cst);
	found = atomic_load(&marks[id]);
	later = area->mm_cid;
	atomic_signal_fence(memory_order_seq_cst);
	whole = area->rseq_cs != 0;
	area->rseq_cs = 0;

	atomic_store(&look->whole, whole);
	atomic_store(&look->mark, mark);
	if (!whole)
		return;
	l->whole++;
	CHECK_EQ(&l->w.v, later, id);
	CHECK(&l->w.v, found == mark || !was_whole(found));
}

static void take_turns(struct worker *w)
{
	struct looker *l = w->arg;
	struct pair *p = &arena->pairs[l->index];
	_Atomic uint32_t *own = &p->turn[l->side], *other = &p->turn[!l->side];

	while (!atomic_load(&arena->over)) {
		while (!atomic_load(own))
			raw_futex(own, FUTEX_WAIT, 0, NULL, NULL);
		look_at_id(l);
		atomic_fetch_add(&p->turns, 1);
		atomic_store(own, 0);
		atomic_store(other, 1);
		raw_futex(own, FUTEX_SWAP, 0, NULL, other);
	}
	atomic_store(other, 1);
	raw_futex(other, FUTEX_WAKE, 1, NULL, NULL);
}

static void spin(struct worker *w)
{
	struct looker *l = w->arg;

	while (!atomic_load(&arena->over))
		look_at_id(l);
}

CHILD(one_side)
{
	const int side = *(int *)arg;
	long whole = 0;

	for (unsigned int i = 0; i < THREADS; i++) {
		lookers[i].index = i;
		lookers[i].side = side;
		worker_start(&lookers[i].w, i < PAIRS ? take_turns : spin, &lookers[i]);
	}
	for (int i = 0; i < PAIRS; i++)
		AWAIT(atomic_load(&arena->pairs[i].turns) >= LOOPS(3000));
	atomic_store(&arena->over, true);
	for (unsigned int i = 0; i < THREADS; i++) {
		workers_join(&lookers[i].w, 1, v);
		whole += lookers[i].whole;
	}
	CHECK(v, whole > 0);
}

/* Each is below the number of CPUs. No two threads of a process that run have the same one. */
TEST(concurrency_ids_stay_apart)
{
	int sides[2] = { 0, 1 }, status[2];
	pid_t child[2];

	if (!HAS_AREA || !&__rseq_size || !__rseq_size) {
		fprintf(stderr, "swap_processes: left out: wanted x86-64 and a C library that "
				"registers rseq areas, found none\n");
		skip();
	}
	assert_in_range(getauxval(AT_RSEQ_FEATURE_SIZE), offsetof(struct rseq_area, mm_cid) + 4,
			UINT_MAX);
	ids = (unsigned int)sysconf(_SC_NPROCESSORS_CONF);
	assert_in_range(ids, 1, MOST_CPUS);
	elsewhere_make();
	arena = map_shared(-1, sizeof(*arena));
	for (int i = 0; i < PAIRS; i++)
		atomic_store(&arena->pairs[i].turn[0], 1);
	for (int i = 0; i < 2; i++)
		child[i] = start_child(one_side, &sides[i]);
	for (int i = 0; i < 2; i++)
		status[i] = child_status(child[i]);
	assert_int_equal(status[0], 0);
	assert_int_equal(status[1], 0);
	munmap(arena, sizeof(*arena));
}

/* --- the mapping of the words ---------------------------------------------------------- */

/*
 * One process reaches the words of @pair by a mapping that another of its threads changes,
 * and reads and writes them by one that stays.
 */
struct changing {
	struct worker w;
	struct pair *pair, *seen;
	int side, file;
	/* What the calls said. */
	long returned, failed;
};

static struct pair *map_words(void *at, int protection, int flags, int fd)
{
	void *map = mmap(at, (size_t)sysconf(_SC_PAGESIZE), protection, flags, fd, 0);

	if (map == MAP_FAILED)
		give_up("mmap: wanted a page, got %s", strerror(errno));
	return map;
}

static int make_file(void)
{
	int fd = (int)syscall(SYS_memfd_create, "words", 0);

	if (fd < 0 || ftruncate(fd, sysconf(_SC_PAGESIZE)))
		give_up("memfd_create: wanted a page of shared memory, got %s", strerror(errno));
	return fd;
}

/*
 * While the page is another one, or none, a swap may reach nobody. So whoever waits looks
 * again after some milliseconds.
 */
static void swap_amid_changes(struct worker *w)
{
	struct changing *c = w->arg;
	const struct timespec time = to_timespec(NSEC_PER_SEC / 500);
	const int own = c->side, other = !own;
	long result;

	while (!atomic_load(&arena->over)) {
		while (!atomic_load(&c->pair->turn[own]) && !atomic_load(&arena->over))
			raw_futex(&c->pair->turn[own], FUTEX_WAIT, 0, &time, NULL);
		atomic_fetch_add(&c->pair->turns, 1);
		atomic_store(&c->pair->turn[own], 0);
		atomic_store(&c->pair->turn[other], 1);
		result = raw_futex(&c->seen->turn[own], FUTEX_SWAP, 0, &time,
				   &c->seen->turn[other]);
		if (!result)
			c->returned++;
		else if (errno == EFAULT)
			c->failed++;
		else
			CHECK(&w->v, errno == EAGAIN || errno == ETIMEDOUT || errno == EINTR);
	}
}

/* Sleeps on the same offset of another file, which is mapped nowhere else. */
static void sleeps_elsewhere(struct worker *w)
{
	_Atomic uint32_t *word = w->arg;

	CHECK_EQ(&w->v, raw_futex(word, FUTEX_WAIT, 0, NULL, NULL), 0);
	CHECK_EQ(&w->v, atomic_load(word), 1);
}

enum change { PROTECT, REPLACE, MOVE, UNMAP, MAKE_PRIVATE, CHANGES };

/* The page, for a moment: not readable, of another file, moved away, unmapped, private. */
static void change_mapping(struct changing *c, enum change change, int other)
{
	const size_t size = (size_t)sysconf(_SC_PAGESIZE);
	const int all = PROT_READ | PROT_WRITE;
	void *page = c->seen, *away;

	switch (change) {
	case PROTECT:
		mprotect(page, size, PROT_NONE);
		break;
	case REPLACE:
		map_words(page, all, MAP_SHARED | MAP_FIXED, other);
		break;
	case MOVE:
		away = map_words(NULL, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
		if (mremap(page, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, away) != away)
			give_up("mremap: wanted the page elsewhere, got %s", strerror(errno));
		munmap(away, size);
		break;
	case UNMAP:
		munmap(page, size);
		break;
	case MAKE_PRIVATE:
		map_words(page, all, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1);
		break;
	case CHANGES:
		break;
	}
	sched_yield();
	map_words(page, all, MAP_SHARED | MAP_FIXED, c->file);
}

CHILD(swaps_on_a_mapping_that_stays)
{
	struct changing *c = arg;

	c->side = 1;
	worker_run(&c->w, swap_amid_changes, c, v);
	CHECK_EQ(v, c->failed, 0);
}

TEST(mapping_of_the_words_changes)
{
	struct changing c = { .file = make_file() };
	int elsewhere_file = make_file(), other = make_file(), status;
	const int all = PROT_READ | PROT_WRITE;
	struct pair *bystander = map_words(NULL, all, MAP_SHARED, elsewhere_file);
	struct worker sleeper = { 0 };
	long turns;
	pid_t child;

	arena = map_shared(-1, sizeof(*arena));
	c.pair = map_words(NULL, all, MAP_SHARED, c.file);
	c.seen = map_words(NULL, all, MAP_SHARED, c.file);
	atomic_store(&c.pair->turn[0], 1);
	child = start_child(swaps_on_a_mapping_that_stays, &c);
	worker_start_parked(&sleeper, sleeps_elsewhere, &bystander->turn[0]);
	worker_start(&c.w, swap_amid_changes, &c);
	for (int i = 0; i < LOOPS(1000); i++) {
		change_mapping(&c, (enum change)(i % CHANGES), other);
		if (i % 3 == 0) {
			turns = atomic_load(&c.pair->turns);
			AWAIT(atomic_load(&c.pair->turns) > turns + 1);
		}
	}
	/* From now on the words are where they were. */
	turns = atomic_load(&c.pair->turns);
	AWAIT(atomic_load(&c.pair->turns) > turns + 100);
	atomic_store(&arena->over, true);
	workers_join(&c.w, 1, v);
	status = child_status(child);
	print_message("%ld turns, %ld swaps returned 0, %ld EFAULT\n", atomic_load(&c.pair->turns),
		      c.returned, c.failed);
	CHECK(v, c.returned > 0);
	CHECK(v, is_parked(sleeper.tid));
	atomic_store(&bystander->turn[0], 1);
	raw_futex(&bystander->turn[0], FUTEX_WAKE, 1, NULL, NULL);
	workers_join(&sleeper, 1, v);
	verdict_assert(v);
	assert_int_equal(status, 0);
}

int main(void)
{
	return lacks_swap("swap_processes") ? SKIPPED : run_watched_group(NULL);
}
