// SPDX-License-Identifier: MIT
/*
 * A hostile other side of a door: before each step that the library takes, its part of the shared
 * memory is overwritten or punched out, by the thread itself at the library's delay points. So the n-th round
 * follows from the seed and n alone, and can be made again:
 *
 *	fuzz_door [--rounds=N] [--seed=N] [--first=N]
 *
 * Each call must return with what the header allows. If it does not, the watchdog ends the
 * process; a crash ends it, too. In the end a door must work.
 */
#include "support.h"

#include <switchto/door.h>
#include <switchto/switchto.h>

#include "delay.h"
#include "dice.h"

static struct dice dice;

static struct {
	uint32_t *memory;
	size_t words;
	bool on;
	unsigned long written;
} hostile;

/* A value that may mean something there: a state of a word, a TID, a stage, bits. */
static uint32_t value(void)
{
	const uint32_t tid = (uint32_t)gettid();

	switch (roll(&dice, 8)) {
	case 0:
		return 0;
	case 1:
		return tid;
	case 2:
		return tid | FUTEX_WAITERS;
	case 3:
		return tid | FUTEX_WAITERS | FUTEX_OWNER_DIED;
	case 4:
		return FUTEX_OWNER_DIED | roll(&dice, 2) * FUTEX_WAITERS;
	case 5:
		return roll(&dice, 5);
	case 6:
		return 1u << roll(&dice, 32);
	default:
		return roll_bits(&dice);
	}
}

/* The used part of each page is its end: see door.c. Mostly of the first three pages. */
static void scribble(void)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE) / sizeof(uint32_t);
	size_t pages = hostile.words / page,
	       at = roll(&dice, 4) ? roll(&dice, 3) : roll(&dice, (uint32_t)pages);

	if (roll(&dice, 16) == 0) /* punched out of the file */
		madvise(&hostile.memory[page * at], page * sizeof(uint32_t), MADV_REMOVE);
	else
		__atomic_store_n(&hostile.memory[page * (at + 1) - 1 - roll(&dice, 32)], value(),
				 __ATOMIC_SEQ_CST);
	hostile.written++;
}

void switchto_delay_point(enum switchto_delay where)
{
	if (hostile.on && roll(&dice, 3) == 0)
		scribble();
}

static bool one_of(int error, const int *errors)
{
	for (; *errors; errors++)
		if (error == *errors)
			return true;
	return false;
}

static int new_door(void)
{
	struct stat stat;
	int fd = switchto_door_create(-1);

	if (fd < 0 || fstat(fd, &stat))
		give_up("switchto_door_create: wanted a door, got %s", strerror(errno));
	hostile.words = (size_t)stat.st_size / sizeof(uint32_t);
	hostile.memory = mmap(NULL, (size_t)stat.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
			      0);
	if (hostile.memory == MAP_FAILED)
		give_up("mmap: wanted the door, got %s", strerror(errno));
	return fd;
}

static struct timespec soon(void)
{
	return to_timespec(now_ns() + (long long)roll(&dice, 4) * 50000);
}

/* Some rounds with handles that stay, of the caller's or of the server's kind, or of both. */
static bool round_of(uint64_t seed, unsigned long n)
{
	static const int call_errors[] = { EOWNERDEAD, ENOTCONN, ETIMEDOUT, EPROTO, 0 };
	static const int begin_errors[] = { EBUSY, EAGAIN, EINVAL, 0 };
	struct switchto_door *door, *server;
	struct switchto_door_message m;
	int fd, error = 0, got = -1;

	dice = dice_of(seed, 0, n);
	hostile.on = false;
	fd = new_door();
	hostile.on = roll(&dice, 8) == 0;
	errno = 0;
	server = roll(&dice, 2) ? switchto_door_serve(fd, 0) : NULL;
	if (!server && errno && !one_of(errno, begin_errors))
		error = errno;
	errno = 0;
	door = switchto_door_connect(fd, 0);
	if (!door && !one_of(errno, begin_errors))
		error = errno;
	hostile.on = true;

	for (int i = 0; i < 12 && !error; i++) {
		struct timespec deadline = soon();

		for (uint32_t k = roll(&dice, 4); k; k--)
			scribble();
		memset(&m, 0, sizeof(m));
		if (door && roll(&dice, 2)) {
			if (switchto_door_call(door, &m, &deadline) && !one_of(errno, call_errors))
				error = errno;
		} else if (server) {
			int answer = got >= 0 ? switchto_door_reply_wait(server, &m, &deadline) :
						switchto_door_wait(server, &m, &deadline);

			if (answer >= SWITCHTO_DOOR_CALLERS || (answer < 0 && errno != ETIMEDOUT))
				error = answer < 0 ? errno : ERANGE;
			got = answer;
		}
	}
	if (error)
		fprintf(stderr, "fuzz_door: round %lu of seed %llu: unexpected error %d (%s)\n", n,
			(unsigned long long)seed, error, strerror(error));
	if (switchto_door_close(door) || switchto_door_close(server)) {
		fprintf(stderr, "fuzz_door: round %lu of seed %llu: close: %s\n", n,
			(unsigned long long)seed, strerror(errno));
		error = errno;
	}
	munmap(hostile.memory, hostile.words * sizeof(uint32_t));
	close(fd);
	return !error;
}

/* The process and its robust list are as they were. */
static bool still_works(void)
{
	struct switchto_door_message m = { { 0 } };
	struct timespec past = { 0 };
	struct switchto_door *door, *server;
	bool works;
	int fd;

	hostile.on = false;
	fd = new_door();
	server = switchto_door_serve(fd, 0);
	door = switchto_door_connect(fd, 0);
	works = server && door && switchto_door_call(door, &m, &past) == -1 && errno == ETIMEDOUT &&
		switchto_door_wait(server, &m, &past) == -1 && errno == ETIMEDOUT &&
		switchto_door_close(door) == 0 && switchto_door_close(server) == 0;
	munmap(hostile.memory, hostile.words * sizeof(uint32_t));
	close(fd);
	return works;
}

int main(int argc, char **argv)
{
	unsigned long rounds = 500, first = 0;
	uint64_t seed = (uint64_t)now_ns();

	for (int i = 1; i < argc; i++) {
		if (sscanf(argv[i], "--rounds=%lu", &rounds) != 1 &&
		    sscanf(argv[i], "--first=%lu", &first) != 1 &&
		    sscanf(argv[i], "--seed=%llu", (unsigned long long *)&seed) != 1)
			give_up("fuzz_door: wanted --rounds=N, --seed=N or --first=N, found '%s'",
				argv[i]);
	}
	if (wants_absent_swap("fuzz_door"))
		return SKIPPED;
	printf("fuzz_door: seed %llu\n", (unsigned long long)seed);
	fflush(stdout);
	watchdog_start("fuzz_door");
	for (unsigned long n = first; n < first + rounds; n++)
		if (!round_of(seed, n))
			return EXIT_FAILURE;
	if (!hostile.written || !still_works()) {
		fprintf(stderr, "fuzz_door: wanted a door that works in the end, found none\n");
		return EXIT_FAILURE;
	}
	printf("fuzz_door: %lu rounds, %lu words overwritten\n", rounds, hostile.written);
	return EXIT_SUCCESS;
}
