/* SPDX-License-Identifier: MIT */
/*
 * What the library knows of a thread, and how a TID leads to it.
 *
 * The word
 * --------
 * One futex word per TID is the whole state of the protocol:
 *
 *	31 30 | 29 ... 22  | 21 ... 0
 *	state | generation | TID of the resumer, in state RESUMED only
 *
 *	UNREGISTERED	no thread that has this TID has called the library, or it ended
 *	RUNNING	not waiting, no resume pending
 *	WAITING	about to sleep on the word, or asleep on it
 *	RESUMED	a resume has been given and not been taken yet: pending if the
 *		thread runs, on its way out of its wait otherwise
 *
 * Changes, and by which thread:
 *
 *	the thread itself	UNREGISTERED -> RUNNING (its first call)
 *				RUNNING -> WAITING -> RUNNING (gives up)
 *				RESUMED -> RUNNING (takes the resume)
 *				any -> UNREGISTERED (ends)
 *	anyone			RUNNING, WAITING, RESUMED -> RESUMED
 *
 * Every change is an atomic read-modify-write. So of several resumes that
 * become one, each is in the release sequence which the taker acquires, and
 * the writes before each of them are visible to it.
 *
 * The generation differs between owners of a TID. It goes up when a new thread takes the
 * word over. So a resume that read the word of the former owner and was held up finds another
 * generation, and fails with ESRCH. It has eight bits: a resume is mistaken only if the TID changes
 * hands 256 times, that is 256 times round the PID space, between two instructions.
 *
 * The table
 * ---------
 * TIDs are below 2^22 (PID_MAX_LIMIT, include/linux/threads.h). Two levels,
 * indexed by the TID: look-up is two loads, whatever the number of threads,
 * and waits for nobody. Leaves are mapped when the first TID in them appears
 * and stay. They are wiped on fork (MADV_WIPEONFORK, Linux 4.14): in the child
 * every word is UNREGISTERED, as the threads they belong to are not there.
 */
#ifndef SWITCHTO_THREAD_H
#define SWITCHTO_THREAD_H

#include "../delay.h"
#include "../futex.h"
#include "backend.h"

#include <stdbool.h>
#include <sys/types.h>

#define WORD_STATE 0xc0000000u
#define WORD_GENERATION 0x3fc00000u
#define WORD_GENERATION_ONE 0x00400000u
#define WORD_TID 0x003fffffu

#define UNREGISTERED 0x00000000u
#define RUNNING 0x40000000u
#define WAITING 0x80000000u
#define RESUMED 0xc0000000u

#define TID_BITS 22
#define TID_LIMIT (1 << TID_BITS)
#define LEAF_BITS 9
#define LEAF_THREADS (1 << LEAF_BITS)

#define EARLY_NONE UINT64_C(0)
#define EARLY_CLOSED UINT64_MAX

_Static_assert(ATOMIC_INT_LOCK_FREE == 2 && ATOMIC_LLONG_LOCK_FREE == 2,
	       "resume from a signal handler needs lock-free atomics");

/* A cache line of its own: two threads' words must not share one. */
struct thread {
	_Alignas(64) futex_word word;
	/*
	 * A pending resume for a thread that is not registered yet: the resumer's TID, and above it
	 * an identity of the thread, since the resume belongs to the thread and not to its TID.
	 * EARLY_NONE if there is none. EARLY_CLOSED while the thread is registered: then a resume
	 * goes to the word.
	 */
	_Atomic uint64_t early;

	/* Of place.h: when it was last switched to, in ms; the phase of its chain. */
	_Atomic uint32_t given, phase;
	/* Its last look: when, in ms; for how long it had run, and waited for a CPU by then, in us. */
	uint32_t looked, ran, waited;
	_Atomic uint32_t moved; /* when it was last bound, in ms */
	/* The CPU to which it is bound, + 1; 0: none; negative: one to which it can't be bound. */
	_Atomic int32_t cpu;
	atomic_uchar place;		   /* SWITCHTO_FREE and so on */
	unsigned char place_before, forks; /* before a fork; how many are being made */
	atomic_uchar moves;		   /* how often it was bound at that time */
	atomic_bool refused;		   /* it may not change masks, its own either */
	/* A lock, of what follows and of changes of the CPU. */
	atomic_uchar placing;
	bool lost;		/* it has all CPUs, as its own can't be had */
	uint32_t odd;		/* a mask that it had, and when: see place.c */
	const struct mask *own; /* what the program chose, if it was ever bound */
};

struct this_thread {
	struct thread *thread; /* NULL: not registered yet */
	struct thread *swap;   /* the same, NULL as well if the backend is another */
	uint32_t running;      /* RUNNING with this thread's generation */
	pid_t tid;
	bool loans; /* takes part in them: switchto_lend() */
};

/* Prefixed nevertheless: in the static library they meet the program's names. */
#define HIDDEN __attribute__((visibility("hidden")))

/*
 * initial-exec: one load instead of a call on the hot path, and safe in a
 * signal handler. Small enough for the static TLS space that the dynamic
 * loader keeps for libraries which are loaded late.
 */
extern HIDDEN _Thread_local struct this_thread switchto_this
	__attribute__((tls_model("initial-exec")));

extern HIDDEN _Atomic(struct thread *) switchto_threads[TID_LIMIT / LEAF_THREADS];

/* NULL if no TID near @tid has ever been registered. @tid is in range. */
static inline struct thread *thread_of(pid_t tid)
{
	uint32_t index = (uint32_t)tid;
	struct thread *leaf = atomic_load_explicit(&switchto_threads[index / LEAF_THREADS],
						   memory_order_acquire);

	return leaf ? &leaf[index % LEAF_THREADS] : NULL;
}

/*
 * Registers the calling thread: switchto_this.thread is set afterwards. 0, or -1 and
 * errno, the initialization errors.
 */
HIDDEN int switchto_thread_register(void);

/*
 * Resumes @tid, in range and found UNREGISTERED, in the name of @by. 0 or an error
 * number: ESRCH, ENOMEM, ENOSYS. Async-signal-safe.
 */
HIDDEN int switchto_thread_resume_unregistered(pid_t tid, pid_t by);

/* The path of what /proc tells in @file of thread @tid of this process. Async-signal-safe. */
#define SWITCHTO_TASK_PATH sizeof("/proc/self/task/4194303/status")
HIDDEN void switchto_task_path(char path[SWITCHTO_TASK_PATH], pid_t tid, const char *file);

/*
 * Sets a resume by @by in @thread, whose word was *@seen, not UNREGISTERED, a moment
 * ago. false if that thread has ended since, and nothing was done. Else *@seen
 * is what was replaced: if its state was WAITING, the thread needs a wake-up.
 */
static inline bool thread_give(struct thread *thread, uint32_t *seen, pid_t by)
{
	uint32_t generation = *seen & WORD_GENERATION;

	while (!atomic_compare_exchange_weak_explicit(&thread->word, seen,
						      RESUMED | generation | (uint32_t)by,
						      memory_order_acq_rel, memory_order_relaxed)) {
		if ((*seen & WORD_STATE) == UNREGISTERED || (*seen & WORD_GENERATION) != generation)
			return false;
	}

	return true;
}

/*
 * Wakes @thread, whose TID is @tid, from its sleep on its word. Unless the kernel
 * says that it has woken one, FUTEX_WAKE has the last word: mostly the thread has
 * not fallen asleep yet and won't, but the answer may be a seccomp filter's, too.
 */
static inline void thread_wake(struct thread *thread, pid_t tid)
{
	delay_point(WAKE);
	if (switchto_is_swap && futex_wake_hinted(&thread->word, (uint32_t)tid) == 1)
		return;
	futex_wake(&thread->word);
}

#endif /* SWITCHTO_THREAD_H */
