// SPDX-License-Identifier: MIT
/*
 * Where the futexes of fuzz_futex are. All of it lies far below where mmap() puts
 * things on its own, so that a hole stays one, and nobody else's memory comes to
 * lie where the weather unmaps and maps.
 */
#include "fuzz.h"

#include <linux/userfaultfd.h>
#include <sys/ioctl.h>

#define BASE 0x200000000000ul
#define APART (4ul << 20)
#define PAGE 4096ul
#define HUGE (2ul << 20)
#define STORM_PAGES 8

enum area {
	WORDS_AREA,
	SHARED_AREA,
	FILE_AREA,
	FILE_AGAIN_AREA,
	FILE_READ_AREA,
	READ_ONLY_AREA,
	HUGE_AREA,
	STORM_AREA,
	STORM_SHARED_AREA,
	SERVED_AREA,
	EDGE_AREA,
	NONE_AREA,
	HOLE_AREA,
	AREAS
};

static char *low;
static int file = -1, served = -1;

static char *area(enum area which)
{
	return (char *)(BASE + which * APART);
}

static void map(enum area which, size_t size, int prot, int flags, int fd)
{
	void *at = area(which);

	if (mmap(at, size, prot, flags | MAP_FIXED_NOREPLACE, fd, 0) != at)
		give_up("mmap: wanted %zu bytes at %p, got %s", size, at, strerror(errno));
}

void memory_make(void)
{
	const int both = PROT_READ | PROT_WRITE, private = MAP_PRIVATE | MAP_ANONYMOUS;

	file = (int)syscall(SYS_memfd_create, "fuzz_futex", 1u /* MFD_CLOEXEC */);
	if (file < 0 || ftruncate(file, PAGE))
		give_up("memfd_create: wanted a page of memory, got %s", strerror(errno));

	map(WORDS_AREA, PAGE, both, private, -1);
	map(SHARED_AREA, PAGE, both, MAP_SHARED | MAP_ANONYMOUS, -1);
	map(FILE_AREA, 2 * PAGE, both, MAP_SHARED, file);
	map(FILE_AGAIN_AREA, 2 * PAGE, both, MAP_SHARED, file);
	map(FILE_READ_AREA, PAGE, PROT_READ, MAP_SHARED, file);
	map(READ_ONLY_AREA, PAGE, PROT_READ, private, -1);
	map(HUGE_AREA, HUGE, both, private, -1);
	map(STORM_AREA, STORM_PAGES * PAGE, both, private, -1);
	map(STORM_SHARED_AREA, STORM_PAGES * PAGE, both, MAP_SHARED | MAP_ANONYMOUS, -1);
	map(SERVED_AREA, STORM_PAGES * PAGE, both, private, -1);
	map(EDGE_AREA, PAGE, both, private, -1);
	map(NONE_AREA, PAGE, PROT_NONE, private, -1);
	madvise(area(HUGE_AREA), HUGE, MADV_HUGEPAGE);
#ifdef MAP_32BIT
	low = mmap(NULL, PAGE, both, private | MAP_32BIT, -1, 0);
	if (low == MAP_FAILED)
		low = NULL;
#endif
	if (!low)
		low = area(WORDS_AREA);
}

static int make_served(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register range = {
		.range = { (uintptr_t)area(SERVED_AREA), STORM_PAGES * PAGE },
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);

	if (fd < 0)
		return -1;
	if (ioctl(fd, UFFDIO_API, &api) || ioctl(fd, UFFDIO_REGISTER, &range)) {
		close(fd);
		return -1;
	}
	return fd;
}

void memory_make_own(void)
{
	served = make_served();
	if (served >= 0)
		atomic_store(&shared->has_served, true);
}

uintptr_t memory_at(struct where where, const struct worker *me)
{
	/* A word in one of several pages of an area. */
	const size_t word = where.index % WORDS * 64,
		     page = where.index / WORDS % STORM_PAGES * PAGE;
	char *words = area(WORDS_AREA);

	switch ((enum place)where.place) {
	case AT_MINE:
		return (uintptr_t)(words + me->sibling * 64);
	case AT_SIBLING:
		return (uintptr_t)(words + (me->sibling + 1 + where.index) % set.threads * 64);
	case AT_WORD:
		return (uintptr_t)(words + 2048 + word);
	case AT_PI:
		return (uintptr_t)(words + 3072 + where.index % 4 * 64);
	case AT_SHARED:
		return (uintptr_t)(area(SHARED_AREA) + word);
	case AT_FILE:
		return (uintptr_t)(area(FILE_AREA) + word);
	case AT_FILE_AGAIN:
		return (uintptr_t)(area(FILE_AGAIN_AREA) + word);
	case AT_FILE_READ:
		return (uintptr_t)(area(FILE_READ_AREA) + word);
	case AT_READ_ONLY:
		return (uintptr_t)(area(READ_ONLY_AREA) + word);
	case AT_HUGE:
		return (uintptr_t)(area(HUGE_AREA) + word + page * 16);
	case AT_STORM:
		return (uintptr_t)(area(STORM_AREA) + word + page);
	case AT_STORM_SHARED:
		return (uintptr_t)(area(STORM_SHARED_AREA) + word + page);
	case AT_SERVED:
		return (uintptr_t)(area(SERVED_AREA) + word + page);
	case AT_STACK:
		return (uintptr_t)me->stack_word;
	case AT_LOW:
		return (uintptr_t)(low + word);
	case AT_EDGE:
		return (uintptr_t)(area(EDGE_AREA) + PAGE - 4);
	case AT_NONE:
		return (uintptr_t)(area(NONE_AREA) + word);
	case AT_HOLE:
		return (uintptr_t)(area(HOLE_AREA) + word);
	case AT_PAST_END:
		return (uintptr_t)(area(FILE_AREA) + PAGE + word);
	case AT_NULL:
		return 0;
	case AT_FOUR:
		return 4;
	case AT_ODD:
		switch (where.index % 4) {
		case 0:
			return (uintptr_t)area(EDGE_AREA) + PAGE - 1 - where.index / 4 % 3;
		case 1:
			return UINTPTR_MAX - where.index / 4 % 3;
		default:
			return (uintptr_t)words + 1 + where.index / 4 % 3;
		}
	case AT_KERNEL:
		switch (where.index % 4) {
		case 0:
			return UINTPTR_MAX - 3;
		case 1:
			return 0xffff888000000000ul + word;
		case 2:
			return 0x8000000000000000ul + word;
		default:
			return 0xffffffff81000000ul + word;
		}
	default:
		return 0;
	}
}

const char *place_name(enum place place)
{
	static const char *const names[PLACES] = { ALL_PLACES(AS_TEXT) };

	return names[place];
}

/* The handler of SIGSEGV and SIGBUS leaves by ->fault while ->in_access is set. */
bool memory_load(const struct worker *me, uintptr_t address, uint32_t *value)
{
	struct worker *own = (struct worker *)me;

	*value = 0;
	if (sigsetjmp(own->fault, 0)) {
		own->in_access = 0;
		return false;
	}
	own->in_access = 1;
	*value = atomic_load_explicit((_Atomic uint32_t *)address, memory_order_relaxed);
	own->in_access = 0;
	return true;
}

bool memory_store(const struct worker *me, uintptr_t address, uint32_t value)
{
	struct worker *own = (struct worker *)me;

	if (sigsetjmp(own->fault, 0)) {
		own->in_access = 0;
		return false;
	}
	own->in_access = 1;
	atomic_store_explicit((_Atomic uint32_t *)address, value, memory_order_relaxed);
	own->in_access = 0;
	return true;
}

/* --- the weather --------------------------------------------------------------- */

static void serve_faults(struct dice *dice)
{
	struct uffd_msg message;

	if (served < 0)
		return;
	while (read(served, &message, sizeof(message)) == sizeof(message)) {
		struct uffdio_zeropage zero = {
			.range = { message.arg.pagefault.address & -PAGE, PAGE },
		};

		if (message.event != UFFD_EVENT_PAGEFAULT)
			continue;
		if (!roll(dice, 8))
			pause_us(200);
		if (ioctl(served, UFFDIO_ZEROPAGE, &zero) && errno == EEXIST)
			ioctl(served, UFFDIO_WAKE, &zero.range);
	}
	if (!roll(dice, 4))
		madvise(area(SERVED_AREA) + roll(dice, STORM_PAGES) * PAGE, PAGE, MADV_DONTNEED);
}

/*
 * What is unmapped here is a hole for a while: nobody else maps in this region. The hash
 * of the futexes is memory, too.
 */
static void blow(struct dice *dice)
{
	static const int prots[] = { PROT_NONE, PROT_READ, PROT_READ | PROT_WRITE,
				     PROT_READ | PROT_WRITE };
	bool is_shared = roll(dice, 4) == 0;
	char *page = area(is_shared ? STORM_SHARED_AREA : STORM_AREA) +
		     roll(dice, STORM_PAGES) * PAGE;
	int map_flags = (is_shared ? MAP_SHARED : MAP_PRIVATE) | MAP_ANONYMOUS | MAP_FIXED;

	switch (roll(dice, 11)) {
	case 0:
	case 1:
		munmap(page, PAGE);
		break;
	case 2:
	case 3:
		mmap(page, PAGE, PROT_READ | PROT_WRITE, map_flags, -1, 0);
		break;
	case 4:
	case 5:
		mprotect(page, PAGE, prots[roll(dice, 4)]);
		break;
	case 6:
		madvise(page, PAGE, roll(dice, 2) ? MADV_DONTNEED : MADV_FREE);
		break;
	case 7:
		/* Away and back, over what is there. */
		if (mremap(page, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED,
			   area(HOLE_AREA) + APART / 2) == area(HOLE_AREA) + APART / 2)
			mremap(area(HOLE_AREA) + APART / 2, PAGE, PAGE,
			       MREMAP_MAYMOVE | MREMAP_FIXED, page);
		break;
	case 8:
		switch (roll(dice, 4)) {
		case 0:
			madvise(area(HUGE_AREA), HUGE, MADV_DONTNEED);
			break;
		case 1:
			madvise(area(HUGE_AREA), HUGE,
				roll(dice, 2) ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
			break;
		case 2:
			madvise(area(HUGE_AREA), HUGE, 25 /* MADV_COLLAPSE */);
			break;
		default:
			/* Splits it. */
			madvise(area(HUGE_AREA) + HUGE / 2, PAGE, MADV_DONTNEED);
		}
		break;
	case 9:
		/* Rarely: it takes two grace periods of RCU. */
		if (roll(dice, 8) == 0)
			prctl(PR_FUTEX_HASH, PR_FUTEX_HASH_SET_SLOTS, 2UL << roll(dice, 10), 0UL,
			      0UL);
		break;
	default:
		fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE);
	}
}

/*
 * A ring of io_uring, whose requests are waiters without a task of their own. The
 * headers that programs are built with may be older than these requests.
 */
#define RING_ENTRIES 8
#define RING_FUTEX_WAIT 51
#define RING_FUTEX_WAKE 52

struct ring_sqe {
	uint8_t opcode, flags;
	uint16_t ioprio;
	int32_t fd;
	uint64_t addr2, addr;
	uint32_t len, futex_flags;
	uint64_t user_data;
	uint64_t unused[1];
	uint64_t addr3, pad;
};

struct ring_params {
	uint32_t sq_entries, cq_entries, flags, sq_thread_cpu, sq_thread_idle, features, wq_fd,
		resv[3];
	struct {
		uint32_t head, tail, mask, entries, flags, dropped, array, resv;
		uint64_t addr;
	} sq;
	struct {
		uint32_t head, tail, mask, entries, overflow, cqes, flags, resv;
		uint64_t addr;
	} cq;
};

struct ring {
	int fd;
	char *queues, *sqes;
	size_t size;
	struct ring_params p;
};

static bool ring_open(struct ring *ring)
{
	enum { OFFSET_QUEUES = 0, OFFSET_SQES = 0x10000000 };

	*ring = (struct ring){ .fd = -1 };
	ring->fd = (int)syscall(425, RING_ENTRIES, &ring->p);
	if (ring->fd < 0)
		return false;
	ring->size = ring->p.sq.array + ring->p.sq_entries * sizeof(uint32_t);
	if (ring->size < ring->p.cq.cqes + ring->p.cq_entries * 16)
		ring->size = ring->p.cq.cqes + ring->p.cq_entries * 16;
	ring->queues = mmap(NULL, ring->size, PROT_READ | PROT_WRITE, MAP_SHARED, ring->fd,
			    OFFSET_QUEUES);
	ring->sqes = mmap(NULL, RING_ENTRIES * sizeof(struct ring_sqe), PROT_READ | PROT_WRITE,
			  MAP_SHARED, ring->fd, OFFSET_SQES);
	if (ring->queues != MAP_FAILED && ring->sqes != MAP_FAILED)
		return true;
	close(ring->fd);
	ring->fd = -1;
	return false;
}

static void ring_close(struct ring *ring)
{
	if (ring->fd < 0)
		return;
	munmap(ring->queues, ring->size);
	munmap(ring->sqes, RING_ENTRIES * sizeof(struct ring_sqe));
	close(ring->fd);
	ring->fd = -1;
}

static _Atomic uint32_t *ring_word(struct ring *ring, uint32_t offset)
{
	return (_Atomic uint32_t *)(ring->queues + offset);
}

static void ring_turn(struct ring *ring, struct dice *dice, const struct worker *nobody)
{
	static const uint8_t places[] = { AT_SIBLING, AT_SIBLING, AT_WORD,
					  AT_SHARED,  AT_FILE,	  AT_STORM };
	struct where where = { places[roll(dice, 6)], (uint8_t)roll(dice, 64) };
	uint32_t tail, slot;
	struct ring_sqe *sqe;

	if (ring->fd < 0)
		return;

	tail = atomic_load(ring_word(ring, ring->p.sq.tail));
	slot = tail & (ring->p.sq_entries - 1);
	sqe = (struct ring_sqe *)ring->sqes + slot;
	*sqe = (struct ring_sqe){
		.opcode = roll(dice, 4) ? RING_FUTEX_WAIT : RING_FUTEX_WAKE,
		/* FUTEX2_SIZE_U32, and FUTEX2_PRIVATE mostly. */
		.fd = 2 | (roll(dice, 4) ? 128 : 0),
		.addr = memory_at(where, nobody),
		.addr2 = roll(dice, 2),
		.addr3 = FUTEX_BITSET_MATCH_ANY,
	};
	atomic_store(ring_word(ring, ring->p.sq.array + slot * 4), slot);
	atomic_store(ring_word(ring, ring->p.sq.tail), tail + 1);
	syscall(426, ring->fd, 1, 0, 0, NULL, 0);
	/* What is done has been looked at. */
	atomic_store(ring_word(ring, ring->p.cq.head),
		     atomic_load(ring_word(ring, ring->p.cq.tail)));
}

void *weather(void *arg)
{
	struct worker nobody = { .sibling = 0 };
	struct dice dice = dice_of(set.seed, UINT64_MAX, (uintptr_t)arg);
	uint32_t word = 0;
	struct ring ring;

	nobody.stack_word = &word;
	if (ring_open(&ring))
		atomic_store(&shared->has_ring, true);
	while (!atomic_load(&shared->stop)) {
		serve_faults(&dice);
		blow(&dice);
		if (!roll(&dice, 3))
			ring_turn(&ring, &dice, &nobody);
		if (atomic_load(&shared->has_ring) && !roll(&dice, 200)) {
			ring_close(&ring);
			ring_open(&ring);
		}
		pause_us(300);
	}
	/* Whoever waits for a page of it goes on. */
	if (served >= 0)
		close(served);
	ring_close(&ring);
	return arg;
}
