/* SPDX-License-Identifier: MIT */
/*
 * What the parts of fuzz_futex share.
 *
 *	futex.c		processes, threads, signals, the watchdog, the summary
 *	calls.c		what is called, with what, and what it may answer
 *	memory.c	where the futexes are, and what happens to that memory
 *	faults.c	the kernel's fault injection
 *
 * The n-th call of worker i follows from the seed, i and n alone, so every call
 * can be made again (--only=i --first=n), and a worker that was killed goes on
 * where it was. What a call means at the time (the TID of a sibling, the value of
 * a word) is only found out when it is made.
 */
#ifndef FUZZ_H
#define FUZZ_H

#include "dice.h"
#include "system.h"

#define EXIT_SKIP 77
#define MOST_WORKERS 64
#define WORDS 8 /* to a page; few, for the workers to meet */

/* --- memory ------------------------------------------------------------------- */

/* A list of X(name, what it is called, how often it is chosen) makes these. */
#define AS_ENUM(name, text, weight) name,
#define AS_TEXT(name, text, weight) text,
#define AS_WEIGHT(name, text, weight) weight,

/* What an address argument may be. */
#define ALL_PLACES(X)                                                                           \
	X(AT_MINE, "mine", 120)		   /* private words: of the worker itself */            \
	X(AT_SIBLING, "sibling", 160)	   /* of another worker of the process */               \
	X(AT_WORD, "word", 100)		   /* of nobody */                                      \
	X(AT_PI, "pi", 60)		   /* the same, where most of the PI operations meet */ \
	X(AT_SHARED, "shared", 80)	   /* shared anonymous memory */                        \
	X(AT_FILE, "file", 60)		   /* a memfd */                                        \
	X(AT_FILE_AGAIN, "file_again", 60) /* the same words by another mapping */              \
	X(AT_FILE_READ, "file_read", 20)   /* and by one that can't be written */               \
	X(AT_READ_ONLY, "read_only", 20)                                                        \
	X(AT_HUGE, "huge", 40)	  /* a huge page now and then */                                \
	X(AT_STORM, "storm", 100) /* private, mapped, protected and discarded at any time */    \
	X(AT_STORM_SHARED, "storm_shared", 40)                                                  \
	X(AT_SERVED, "served", 20) /* userfaultfd */                                            \
	X(AT_STACK, "stack", 10)                                                                \
	X(AT_LOW, "low", 10)   /* below 4 GiB, for the 32-bit system calls */                   \
	X(AT_EDGE, "edge", 20) /* the last word before a hole */                                \
	/* From here on there is nothing to be read, ever. */                                   \
	X(AT_NONE, "none", 15) /* PROT_NONE */                                                  \
	X(AT_HOLE, "hole", 15)                                                                  \
	X(AT_PAST_END, "past_end", 15) /* of a file */                                          \
	X(AT_NULL, "null", 25)                                                                  \
	X(AT_FOUR, "four", 5)                                                                   \
	X(AT_ODD, "odd", 25) /* no multiple of 4 */                                             \
	X(AT_KERNEL, "kernel", 25)

enum place { ALL_PLACES(AS_ENUM) PLACES };

struct where {
	uint8_t place, index;
};

struct worker;

/* Before the first fork(). */
void memory_make(void);

/* In each process: what doesn't come with fork(). */
void memory_make_own(void);

uintptr_t memory_at(struct where where, const struct worker *me);
const char *place_name(enum place place);

static inline bool place_has_words(enum place place)
{
	return place < AT_NONE;
}

static inline bool place_is_steady(enum place place)
{
	return place < AT_HUGE || place == AT_STACK || place == AT_LOW || place == AT_EDGE;
}

/* 32 bits that a fault on the way doesn't harm: false, and *value is 0. */
bool memory_load(const struct worker *me, uintptr_t address, uint32_t *value);
bool memory_store(const struct worker *me, uintptr_t address, uint32_t value);

/* The thread that does to the memory of its process what may be done to it. */
void *weather(void *arg);

/* --- workers ------------------------------------------------------------------ */

enum outcome {
	REFUSED, /* EINVAL, EFAULT, ENOSYS and the like */
	CHANGED, /* EAGAIN */
	SLEPT,	 /* ETIMEDOUT, EINTR */
	WOKEN,	 /* 0 after a wait, or somebody woken by a wake */
	NOBODY,	 /* a wake that found nobody */
	LEFT,	 /* abandoned in a handler */
	OUTCOMES
};

enum counted {
	COUNT_SWAP,
	COUNT_WAIT_ONLY,
	COUNT_WAKE_ONLY,
	COUNT_WAIT,
	COUNT_WAKE,
	COUNT_REQUEUE,
	COUNT_WAKE_OP,
	COUNT_PI,
	COUNT_UNKNOWN,
	COUNT_FUTEX2,
	COUNT_COMPAT,
	COUNT_OTHER,
	COUNTS
};

/* In memory that all processes share. */
struct slot {
	_Atomic pid_t process, tid, former;
	_Atomic uint64_t number; /* of the call the worker is in */
	_Atomic uint64_t done;
	_Atomic long long since; /* when it began, or 0 */
	_Atomic long count[COUNTS][OUTCOMES];
};

/* In the memory of its process. */
struct worker {
	struct slot *slot;
	int index;   /* among all */
	int sibling; /* among those of its process */
	pthread_t thread;
	bool started;
	atomic_bool ended;
	bool is_ending;
	uint64_t next;
	sigjmp_buf out;	  /* of a call that is abandoned */
	sigjmp_buf fault; /* of an access that fails */
	volatile sig_atomic_t in_call;
	volatile sig_atomic_t in_access;
	int class_left; /* calls that its scheduling class still holds */
	uint32_t *stack_word;
	/* Arguments in memory. */
	struct timespec time;
	struct {
		int32_t sec, nsec;
	} time32;
	struct robust_list_head robust;
	struct robust_list robust_entries[4];
	uint64_t waitv[3 * 130];
};

struct settings {
	uint64_t seed, first;
	long calls;
	double seconds;
	int threads, processes, patience, only;
	bool need_swap, machine, faults, print;
	/* Found out. */
	bool has_swap, has_compat, has_robust_unlock;
	int cpus;
	pid_t supervisor;
	char group[128];
	long long end;
};

struct shared {
	atomic_bool stop, failed;
	atomic_bool has_served, has_ring; /* in some process */
	_Atomic long kills, stops, lives, forks, execs, lost;
	struct slot slots[MOST_WORKERS];
};

extern struct settings set;
extern struct shared *shared;
extern _Thread_local struct worker *this_worker;

long long now_ns(void);
void pause_us(long us);

/* One line on standard error, the run fails. */
void found(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The same for what keeps it from running at all. */
_Noreturn void give_up(const char *format, ...) __attribute__((format(printf, 1, 2)));
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* --- calls -------------------------------------------------------------------- */

/* Makes the call of that number, checks the answer and counts it. */
void call_make(struct worker *me, uint64_t number);

/* The call that was abandoned. */
void call_left(struct worker *me);

/* How it reads, without the addresses and values of the day. */
void call_describe(int index, uint64_t number, char *text, size_t size);

/* Probes for the 32-bit entry, in a child process. */
bool compat_works(void);

extern const char *const counted_names[COUNTS];

/* --- faults ------------------------------------------------------------------- */

/* Sets the injection up, for tasks that ask for it. false, aloud: the kernel has none. */
bool faults_begin(void);

/* Faults at random for the tasks that ask for them, from now on. */
bool faults_at_random(void);

/* Lets each point of FUTEX_SWAP, in all its forms, where a fault can be injected fail once. */
void faults_each(void);

/* For the calling thread. */
void faults_here(bool on);

/* Puts the kernel's settings back. */
void faults_end(void);

#endif /* FUZZ_H */
