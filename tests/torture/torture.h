/* SPDX-License-Identifier: MIT */
/*
 * The torture program, of three parts: party.c, the threads and what they
 * check; meddle.c, what happens to them; torture.c, options and watch.
 *
 * Two processes: the worker is that of the threads, its parent stops and traces it.
 */
#ifndef TORTURE_H
#define TORTURE_H

#include "common.h"
#include "system.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define UNDER_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define UNDER_SANITIZER 1
#endif
#endif

#define CACHE_LINE 64
#define MOST_PARTIES 64
#define MOST_SEATS 16

/*
 * What goes round. Whoever takes or gives it exchanges the owner, so that two who
 * have it at a time meet there.
 */
struct token {
	_Alignas(CACHE_LINE) _Atomic uint32_t owner;
	/* The owner's alone, without any atomic: the library's ordering is all it has. */
	long moves;
	/* At the end also read by who was resumed for another reason than the token. */
	_Atomic pid_t giver;
	/* moves, for the others to look at */
	_Atomic long seen;
};

enum count {
	SWITCHES, /* tokens given by a switch of any kind */
	RESUMES,  /* tokens given by a resume */
	TAKEN,	  /* tokens taken out of the box */
	TIMEOUTS,
	MERGED, /* returns that answered several resumes */
	EMPTY,	/* returns whose token an earlier return had found */
	GONE,	/* targets that had just ended */
	LIVES,	/* threads that sat here */
	REUSED, /* ... with a TID that another thread had before */
	COUNTS
};

/*
 * A place in a party, where a thread sits, or one after the other. A token for it
 * goes into its box, then the thread is resumed. So a thread that a resume made
 * return looks there, and no other: what a lost resume was for stays there.
 */
struct seat {
	/* Tokens, how many resumes were given since it was last emptied, BOX_CLOSED. */
	_Alignas(CACHE_LINE) _Atomic uint64_t box;
	_Atomic pid_t tid;	   /* 0: nobody sits here */
	_Atomic unsigned int life; /* how many threads have sat here */
	struct party *party;
	unsigned int index;

	/* The thread's own. */
	_Alignas(CACHE_LINE) _Atomic long counts[COUNTS];
	_Atomic(const char *) doing;
	uint32_t left; /* tokens in hand when it ended */
	pthread_t thread;
	atomic_bool over;
};

struct plan {
	const char *name;
	unsigned int seats, tokens;
	unsigned int wild; /* of so many acts one is no plain switch; a power of 2 */
	bool ring;	   /* to the next, else to anybody */
	bool strict;	   /* one token, so each return is for it and for nothing else */
	bool mortal;	   /* threads end and others take their seats */
};

struct party {
	struct plan plan;
	uint64_t seed;
	unsigned int number;
	atomic_int stop;
	struct seat seats[MOST_SEATS];
	struct token tokens[MOST_SEATS];
};

/* Meddlers' counts, in memory that all processes share. */
enum deed {
	SIGNALS,
	STOPS,
	TRACES,
	KILLS,
	EXITS,
	FORKS,
	CANCELS,
	CHANGES,
	MOVES,
	FREEZES,
	HOTPLUGS,
	HASHES,
	DEEDS
};

struct shared {
	_Atomic long deeds[DEEDS];
	_Atomic long started; /* the worker's parties are there */
	atomic_bool over;     /* no more meddling */
	atomic_bool failed;
	unsigned int parties;
	struct party party[MOST_PARTIES];
};

extern struct shared *shared;
extern uint64_t seed;
extern int patience;
extern bool need_all;
extern unsigned int delay_permille, calm_percent;

/* --- torture.c ------------------------------------------------------------------ */

/* The library or the kernel did what it must not: says so, and all there is to see. */
_Noreturn void broken(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* What the program needs and didn't get. */
_Noreturn void die(const char *what);

/* Something that this machine or user doesn't let us do is left out, aloud. */
void left_out(const char *what);
bool hash_can_be_replaced(void);

void pause_ns(long long ns);
long long now_ns(void);

/* xorshift with 64 bits. A state is never 0. */
static inline uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* 0 ... @sides - 1, of a number of which the upper bits have not been used yet. */
static inline unsigned int below(uint64_t random, unsigned int sides)
{
	return (unsigned int)(((random >> 32) * sides) >> 32);
}

/* The state of one who decides: of the run's seed, and who it is. */
uint64_t seed_for(uint64_t from, uint64_t kind, uint64_t index);

/* --- party.c -------------------------------------------------------------------- */

/* Each thread of ours is known here before it resumes any other. Was another of its TID? */
bool enrol(uint64_t decisions);

void party_begin(struct party *party, const struct plan *plan, uint64_t from, unsigned int number);

/* The party's threads end, and its books are checked. */
void party_end(struct party *party);

long party_count(const struct party *party, enum count what);
long party_handovers(const struct party *party);
const char *party_state(const struct party *party, unsigned int seat, char *text, size_t size);

/* A party for a process of its own: for so many hand-overs, 0: for ever. */
void small_party(uint64_t from, long handovers);

/* Whether a mortal's successors get the TIDs of those that have ended. */
bool tids_are_chosen(void);

/* Whoever had @tid then has been joined: that it is not resumed is checked. */
void resume_the_dead(pid_t tid, unsigned int enrolment);
unsigned int enrolment_of(pid_t tid);

/* The handler of SIGUSR1 and SIGUSR2. */
void resuming_handler(int signal);

/* How often each of the library's delay points was one. */
void print_delays(void);
long delays_made(void);

/* --- meddle.c ------------------------------------------------------------------- */

/* --only and --without; false if there is no such meddler. */
bool meddlers_choose(const char *names, bool only);
const char *meddlers_names(void);

/* In the worker: threads. */
void meddlers_begin(void);
void meddlers_end(void);

/* When the threads are gone, too. */
void meddlers_clean_up(void);

/* In the worker's parent. Returns its wait status. */
int meddle_with(pid_t worker);

/* Forked by the parent, before the worker; 0 if it is not wanted. */
pid_t children_begin(void);

#endif /* TORTURE_H */
