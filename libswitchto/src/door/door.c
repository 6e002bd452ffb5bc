// SPDX-License-Identifier: MIT
/*
 * Doors. What is in the shared memory, and what is said about it in the comments, is what honest
 * threads make of it. Any of it may change at any time to anything, so
 *
 *  - nothing that is kept in the handle comes from there, but for the TID of a call;
 *  - a value is read once, checked, and used; no value is an index or an address;
 *  - each turn of a loop takes a write or a wake-up by the other side, and looks at the deadline.
 *
 * The memory
 * ----------
 * A page for the entrance and one for each place. What is used is the end of the page, for a
 * word can be made robust only there (robust.h). All pages together are one mapping; each robust word
 * has one more, of its page, which only the kernel uses when a thread ends.
 *
 * A place belongs to the caller whose TID is in its `owner`; the kernel sets FUTEX_OWNER_DIED when
 * that thread dies. A call goes through
 *
 *	stage	IDLE -> POSTED			the caller, when message and word are written
 *		POSTED -> TAKEN			the server
 *		POSTED -> IDLE			the caller, which gives the call up
 *		TAKEN -> DONE			the server, when the answer is written
 *		any -> IDLE			the caller, when the word says that the server has
 *						answered or died
 *
 *	word	WAITERS | T			the call waits for the server with TID T
 *		WAITERS | OWNER_DIED | T	it is answered, the caller may not know yet
 *		WAITERS | OWNER_DIED		the server died, or closed the door
 *		anything			if the stage is IDLE
 *
 * The caller sleeps on the word while it is WAITERS | T. The word is robust in the server, for
 * all places: so the kernel wakes all callers when the server dies. It does so for an answered call
 * as well: the server may have died between answer and wake-up.
 *
 * `pending` has a bit for each place, which is set after a call was posted, and is what the server
 * sleeps on while it is 0. A bit without a call may stay behind; the server clears it and finds
 * nothing. The stage says which side has the call. Where both sides may change it, they do so by
 * compare and exchange.
 *
 * `server` is the TID of the server, 0 before the first, OWNER_DIED after its end. It is robust
 * in the server, too, and the kernel comes to it before it comes to the words. A caller
 * writes its word, then looks at `server`; the kernel changes `server`, then looks at the word. So
 * either the caller sees that the server has died, or the kernel sees that the caller waits.
 */
#define _GNU_SOURCE
#include "switchto/door.h"
#include "switchto/switchto.h"

#include "../delay.h"
#include "../futex.h"
#include "../probes.h"
#include "../sleep.h"
#include "robust.h"

#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define PLACES SWITCHTO_DOOR_CALLERS
#define MAGIC UINT64_C(0x7377746f646f6f01) /* the last byte is the version of the layout */

#define SEALS (F_SEAL_SHRINK | F_SEAL_SEAL)

#define WAITS FUTEX_WAITERS
#define DEAD FUTEX_OWNER_DIED
#define STATE (FUTEX_WAITERS | FUTEX_OWNER_DIED)

enum { IDLE, POSTED, TAKEN, DONE };

/* At the end of the first page. */
struct entrance {
	uint64_t magic;
	uint32_t page_size;
	uint32_t unused1[13];
	/* A cache line: what every call uses. */
	futex_word pending;
	_Atomic uint32_t tickets;
	uint32_t unused2[12];
	futex_word server; /* robust: SERVER_BEFORE */
	uint32_t unused3;
};

/* At the end of each of the other pages. */
struct place {
	struct switchto_door_message message;
	_Atomic uint32_t ticket; /* calls are served in this order */
	_Atomic uint32_t stage;
	uint32_t unused1[10];
	_Atomic uint32_t owner; /* robust: OWNER_BEFORE */
	uint32_t unused2;
	futex_word word; /* robust: WORD_BEFORE */
	uint32_t unused3;
};

#define SERVER_BEFORE (sizeof(struct entrance) - offsetof(struct entrance, server))
#define OWNER_BEFORE (sizeof(struct place) - offsetof(struct place, owner))
#define WORD_BEFORE (sizeof(struct place) - offsetof(struct place, word))

_Static_assert(sizeof(struct entrance) == 128 && sizeof(struct place) == 128 &&
		       SERVER_BEFORE == 8 && WORD_BEFORE == 8 && OWNER_BEFORE == 16 &&
		       OWNER_BEFORE <= ROBUST_LONGEST,
	       "the layout is the same in all processes");
_Static_assert(PLACES == 32, "a bit for each place in a futex word");

/*
 * A struct switchto_door, which has no definition: what is in it is no part of the ABI.
 * A handle is in pages of its own, which are empty in the child of a fork: nothing there is a
 * thread's.
 */
struct handle {
	pid_t not_caller; /* ~ the TID of the thread that calls, 0 in a server's */
	pid_t not_server; /* ~ the TID of the thread that serves, 0 in a caller's */
	struct entrance *entrance;
	struct place *place; /* the caller's, or of the call that is being served, or NULL */
	uint32_t number;     /* of that place */
	uint32_t bit;	     /* a caller's, in `pending` */
	uint32_t waiting;    /* a server's: the word of a call that waits for it */
	char *places;	     /* the first one; they are a page apart */
	char *memory;
	size_t size, page_size;
	struct robust server;
	struct robust words[PLACES]; /* a caller has the first only, for its owner */
};

/* The calling thread's TID, from its first handle on. initial-exec: see core/thread.h. */
static _Thread_local pid_t own_tid __attribute__((tls_model("initial-exec")));

/* The core's backend, from the first handle on. */
static bool is_swap;
static pthread_once_t chosen = PTHREAD_ONCE_INIT;

static void choose(void)
{
	is_swap = strcmp(switchto_backend(), "swap") == 0;
}

static inline struct handle *handle_of(struct switchto_door *door)
{
	return (struct handle *)door;
}

static inline bool is_callers(const struct handle *door)
{
	return likely(~door->not_caller == own_tid);
}

static inline bool is_servers(const struct handle *door)
{
	return likely(~door->not_server == own_tid);
}

static __attribute__((cold, noinline)) int misused(const struct handle *door)
{
	return fail(is_callers(door) || is_servers(door) ? EINVAL : EPERM);
}

static inline struct place *place_at(const struct handle *door, uint32_t number)
{
	return (struct place *)(door->places + door->page_size * number);
}

/*
 * Between a write of a word and the read of another that both sides do crosswise. After a
 * read-modify-write, which on x86 is a full barrier itself.
 */
static inline void barrier_after_atomic(void)
{
#if defined(__x86_64__) || defined(__i386__)
	atomic_signal_fence(memory_order_seq_cst);
#else
	atomic_thread_fence(memory_order_seq_cst);
#endif
}

/* The copies are made where they stand, and once: the memory is not ours alone. */
static inline void copy_message(struct switchto_door_message *to,
				const struct switchto_door_message *from)
{
	atomic_signal_fence(memory_order_seq_cst);
	*to = *from;
	atomic_signal_fence(memory_order_seq_cst);
}

static bool has_passed(const struct timespec *deadline)
{
	struct timespec left;

	if (!deadline)
		return false;
	time_left(deadline, &left);
	return left.tv_sec == 0 && left.tv_nsec == 0;
}

/* Wakes one on @wake, and sleeps while *@word is @val. What the sleep ended with. */
static int wake_and_sleep(futex_word *wake, uint32_t hint, futex_word *word, uint32_t val,
			  const struct timespec *deadline)
{
	if (is_swap) {
		struct timespec left;
		int error;

		if (deadline)
			time_left(deadline, &left);
		error = futex_swap_shared(word, val, deadline ? &left : NULL, wake,
					  wake ? hint : 0);
		if (likely(swap_woke(error)))
			return error;
	}
	if (wake)
		futex_wake_shared(wake);
	return futex_wait_shared(word, val, deadline);
}

/* Callers */

static inline uint32_t server_of(const struct handle *door)
{
	return atomic_load_explicit(&door->entrance->server, memory_order_acquire);
}

static bool take_back(struct place *place)
{
	uint32_t stage = POSTED;

	delay_point(DOOR_LATE);
	return atomic_compare_exchange_strong(&place->stage, &stage, IDLE);
}

static int answer(struct place *place, struct switchto_door_message *message)
{
	copy_message(message, &place->message);
	atomic_store_explicit(&place->stage, IDLE, memory_order_relaxed);
	return 0;
}

/*
 * May a sleep that ended with @error be repeated? Else the kernel is a bad one, or a filter. EFAULT:
 * the other side has just punched the page out of the file; the next look at the word brings it back.
 */
static inline bool may_repeat(int error)
{
	return error <= 0 || error == EAGAIN || error == EINTR || error == ETIMEDOUT ||
	       error == EFAULT;
}

/* Is it too late, after a sleep that ended with @error? ETIMEDOUT without a deadline is a filter's. */
static inline bool is_late(const struct timespec *deadline, int error)
{
	return error == ETIMEDOUT ? deadline != NULL : has_passed(deadline);
}

/* The call does not wait any more: its word is @now, not what it waits with. */
static int call_ended(struct place *place, struct switchto_door_message *message, uint32_t word,
		      uint32_t now)
{
	/* After its answer a server may have died, or just ended. */
	if (now == (word | DEAD) ||
	    (now == (WAITS | DEAD) &&
	     atomic_load_explicit(&place->stage, memory_order_acquire) == DONE))
		return answer(place, message);
	atomic_store(&place->stage, IDLE);
	return fail(now == (WAITS | DEAD) ? EOWNERDEAD : EPROTO);
}

/*
 * The rest of a call whose sleep ended with @error and is not simply answered. @word is
 * what it waits with.
 */
static __attribute__((cold, noinline)) int call_again(struct handle *door,
						      struct switchto_door_message *message,
						      const struct timespec *deadline,
						      uint32_t word, int error)
{
	struct place *place = door->place;

	for (;;) {
		uint32_t now = atomic_load_explicit(&place->word, memory_order_acquire);

		delay_point(DOOR_BACK);
		if (now != word)
			return call_ended(place, message, word, now);

		/*
		 * A server that has taken the call and is gone has not been seen by the
		 * kernel yet: it is about to wake us.
		 */
		if (server_of(door) != (word & FUTEX_TID_MASK) && take_back(place))
			return fail(EOWNERDEAD);

		if (is_late(deadline, error)) {
			if (take_back(place))
				return fail(ETIMEDOUT);
			now = atomic_load(&place->word);
			return now == word ? fail(ETIMEDOUT) :
					     call_ended(place, message, word, now);
		}
		if (!may_repeat(error)) {
			take_back(place);
			return fail(error);
		}

		/* Was the server woken? The answer may have been a filter's. */
		if (atomic_load(&door->entrance->pending) & door->bit)
			futex_wake_shared(&door->entrance->pending);
		error = futex_wait_shared(&place->word, word, deadline);
	}
}

/*
 * The last call was given up while the server had it. Waits until it is done, whatever its
 * answer is. 0 or an error number.
 */
static __attribute__((cold, noinline)) int settle(struct handle *door,
						  const struct timespec *deadline)
{
	struct place *place = door->place;

	while (!take_back(place)) {
		uint32_t word = atomic_load_explicit(&place->word, memory_order_acquire);
		int error;

		if ((word & STATE) != WAITS || server_of(door) != (word & FUTEX_TID_MASK))
			break;
		error = futex_wait_shared(&place->word, word, deadline);
		if (error == ETIMEDOUT || has_passed(deadline))
			return ETIMEDOUT;
		if (!may_repeat(error))
			return error;
	}
	atomic_store(&place->stage, IDLE);
	return 0;
}

/* Before a call that can't be posted at once: 0 if it can be now, or an error number. */
static __attribute__((cold, noinline)) int prepare(struct handle *door, uint32_t server,
						   const struct timespec *deadline)
{
	if (deadline && !valid_time(deadline))
		return EINVAL;
	if (server == 0)
		return ENOTCONN;
	if (server & ~FUTEX_TID_MASK)
		return EOWNERDEAD;
	if (atomic_load(&door->place->stage) != IDLE)
		return settle(door, deadline);
	return 0;
}

int switchto_door_call(struct switchto_door *door, struct switchto_door_message *message,
		       const struct timespec *deadline)
{
	struct handle *handle = handle_of(door);
	struct entrance *entrance;
	struct place *place;
	uint32_t server, word;
	int error;

	if (unlikely(!is_callers(handle)))
		return misused(handle);

	entrance = handle->entrance;
	place = handle->place;
	server = server_of(handle);
	/* 0 is not less either. */
	if (unlikely(server - 1 >= FUTEX_TID_MASK) || unlikely(deadline) ||
	    unlikely(atomic_load_explicit(&place->stage, memory_order_relaxed) != IDLE)) {
		error = prepare(handle, server, deadline);
		if (error)
			return fail(error);
	}

	word = server | WAITS;
	copy_message(&place->message, message);
	atomic_store_explicit(&place->ticket,
			      atomic_fetch_add_explicit(&entrance->tickets, 1,
							memory_order_relaxed),
			      memory_order_relaxed);
	atomic_store_explicit(&place->word, word, memory_order_relaxed);
	delay_point(DOOR_MESSAGE);
	atomic_store_explicit(&place->stage, POSTED, memory_order_release);
	delay_point(DOOR_POSTED);
	atomic_fetch_or(&entrance->pending, handle->bit);
	barrier_after_atomic();
	delay_point(DOOR_RUNG);
	if (unlikely(atomic_load(&entrance->server) != server))
		return call_again(handle, message, deadline, word, EAGAIN);

	probe_tid(door_call, (pid_t)server);
	if (likely(is_swap) && likely(!deadline)) {
		error = futex_swap_shared(&place->word, word, NULL, &entrance->pending, server);
		if (unlikely(!swap_woke(error)))
			error = wake_and_sleep(&entrance->pending, server, &place->word, word,
					       NULL);
	} else {
		error = wake_and_sleep(&entrance->pending, server, &place->word, word, deadline);
	}

	if (likely(atomic_load_explicit(&place->word, memory_order_acquire) == (word | DEAD)))
		return answer(place, message);
	return call_again(handle, message, deadline, word, error);
}

/* Servers */

/*
 * Takes the call of place @number, whose bit was seen, if there is one. The bit is cleared before
 * the look at the place: a call that is posted after the look sets it again.
 */
static inline bool take_call(struct handle *door, uint32_t number,
			     struct switchto_door_message *message)
{
	struct place *place = place_at(door, number);
	uint32_t stage = POSTED;

	delay_point(DOOR_SEEN);
	atomic_fetch_and(&door->entrance->pending, ~(1u << number));
	delay_point(DOOR_CLEARED);
	/* If not: no call, or one for a former server, whose caller finds out itself. */
	if (unlikely(atomic_load_explicit(&place->word, memory_order_acquire) != door->waiting) ||
	    unlikely(!atomic_compare_exchange_strong_explicit(&place->stage, &stage, TAKEN,
							      memory_order_acq_rel,
							      memory_order_relaxed)))
		return false;
	delay_point(DOOR_TAKEN);
	copy_message(message, &place->message);
	door->place = place;
	door->number = number;
	return true;
}

/* Of the places in @pending, at least two, the one that called first. */
static __attribute__((cold, noinline)) uint32_t first_of(const struct handle *door,
							 uint32_t pending)
{
	uint32_t first = (uint32_t)__builtin_ctz(pending);
	uint32_t ticket = atomic_load_explicit(&place_at(door, first)->ticket,
					       memory_order_relaxed);

	while (pending &= pending - 1) {
		uint32_t number = (uint32_t)__builtin_ctz(pending);
		uint32_t other = atomic_load_explicit(&place_at(door, number)->ticket,
						      memory_order_relaxed);

		if ((int32_t)(other - ticket) < 0) {
			first = number;
			ticket = other;
		}
	}
	return first;
}

static inline uint32_t pending_of(const struct handle *door)
{
	return atomic_load_explicit(&door->entrance->pending, memory_order_acquire);
}

/* The rest of a wait whose sleep ended with @error, without a call that could be taken. */
static __attribute__((cold, noinline)) int wait_again(struct handle *door,
						      struct switchto_door_message *message,
						      const struct timespec *deadline, int error)
{
	for (;;) {
		uint32_t pending = pending_of(door);

		if (pending) {
			if (take_call(door, first_of(door, pending), message))
				return (int)door->number;
			error = EAGAIN;
		}
		if (is_late(deadline, error))
			return fail(ETIMEDOUT);
		if (!may_repeat(error))
			return fail(error);
		if (!pending)
			error = futex_wait_shared(&door->entrance->pending, 0, deadline);
	}
}

/* After a sleep that ended with @error, or without one. @pending was there just now. */
static inline int receive(struct handle *door, struct switchto_door_message *message,
			  const struct timespec *deadline, int error, uint32_t pending)
{
	if (likely(pending) && likely(!(pending & (pending - 1))) &&
	    likely(take_call(door, (uint32_t)__builtin_ctz(pending), message)))
		return (int)door->number;
	return wait_again(door, message, deadline, error);
}

/* Writes the answer. Returns the place, by which the caller is to be woken. */
static inline struct place *put_answer(struct handle *door,
				       const struct switchto_door_message *message)
{
	struct place *place = door->place;

	copy_message(&place->message, message);
	delay_point(DOOR_ANSWER);
	atomic_store_explicit(&place->stage, DONE, memory_order_release);
	atomic_store_explicit(&place->word, door->waiting | DEAD, memory_order_release);
	delay_point(DOOR_ANSWERED);
	door->place = NULL;
	return place;
}

int switchto_door_wait(struct switchto_door *door, struct switchto_door_message *message,
		       const struct timespec *deadline)
{
	struct handle *handle = handle_of(door);
	int error = EAGAIN;

	if (unlikely(!is_servers(handle)))
		return misused(handle);
	if (deadline && !valid_time(deadline))
		return fail(EINVAL);
	if (handle->place)
		return fail(EBUSY);

	if (!pending_of(handle))
		error = wake_and_sleep(NULL, 0, &handle->entrance->pending, 0, deadline);
	return receive(handle, message, deadline, error, pending_of(handle));
}

int switchto_door_reply_wait(struct switchto_door *door, struct switchto_door_message *message,
			     const struct timespec *deadline)
{
	struct handle *handle = handle_of(door);
	uint32_t hint, pending;
	struct place *place;
	int error;

	if (unlikely(!is_servers(handle)) || unlikely(!handle->place))
		return misused(handle);
	if (unlikely(deadline) && !valid_time(deadline))
		return fail(EINVAL);

	place = put_answer(handle, message);
	hint = atomic_load_explicit(&place->owner, memory_order_relaxed) & FUTEX_TID_MASK;
	probe_tid(door_reply, (pid_t)hint);
	pending = pending_of(handle);
	if (unlikely(pending)) {
		futex_wake_shared(&place->word);
		return receive(handle, message, deadline, EAGAIN, pending);
	}
	if (likely(is_swap) && likely(!deadline)) {
		error = futex_swap_shared(&handle->entrance->pending, 0, NULL, &place->word, hint);
		if (unlikely(!swap_woke(error)))
			error = wake_and_sleep(&place->word, hint, &handle->entrance->pending, 0,
					       NULL);
	} else {
		error = wake_and_sleep(&place->word, hint, &handle->entrance->pending, 0, deadline);
	}
	/* The answer may have been a filter's. */
	pending = pending_of(handle);
	if (unlikely(error) || unlikely(!pending))
		futex_wake_shared(&place->word);
	return receive(handle, message, deadline, error, pending);
}

int switchto_door_reply(struct switchto_door *door, const struct switchto_door_message *message)
{
	struct handle *handle = handle_of(door);
	if (unlikely(!is_servers(handle)) || unlikely(!handle->place))
		return misused(handle);

	futex_wake_shared(&put_answer(handle, message)->word);
	return 0;
}

/* Beginning and end */

int switchto_door_create(int fd)
{
	size_t page_size = (size_t)sysconf(_SC_PAGESIZE);
	int error = 0, made = -1;
	struct entrance *entrance;
	struct stat stat;
	char *page;

	if (fd == -1) {
#ifdef MFD_NOEXEC_SEAL
		const unsigned int noexec = MFD_NOEXEC_SEAL;
#else
		const unsigned int noexec = 0x8; /* linux/memfd.h, Linux 6.3 */
#endif
		const unsigned int how = MFD_CLOEXEC | MFD_ALLOW_SEALING;

		fd = made = memfd_create("switchto-door", how | noexec);
		if (fd < 0 && errno == EINVAL)
			fd = made = memfd_create("switchto-door", how);
		if (fd < 0)
			return -1;
	}

	if (fstat(fd, &stat) || (!stat.st_size && ftruncate(fd, (off_t)(page_size * (PLACES + 1)))))
		error = errno;
	else if (stat.st_size)
		error = EEXIST;
	if (!error) {
		page = mmap(NULL, page_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (page == MAP_FAILED) {
			error = errno;
		} else {
			entrance = (struct entrance *)(page + page_size - sizeof(*entrance));
			entrance->page_size = (uint32_t)page_size;
			/* Last: a thread that finds it finds the rest. */
			__atomic_store_n(&entrance->magic, MAGIC, __ATOMIC_RELEASE);
			munmap(page, page_size);
		}
	}
	/* SEAL: otherwise a process that has the file could forbid new callers to write. */
	if (!error && made >= 0 &&
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		error = errno;
	if (error) {
		/* close() is a cancellation point. */
		if (made >= 0)
			syscall(SYS_close, made);
		return fail(error);
	}
	return fd;
}

/*
 * 0 or an error number. The seal before the size, which then stays. And no more seals: one against
 * writing would come between two mappings of a handle.
 */
static int check_file(int fd, unsigned int flags, size_t size)
{
	struct stat stat;
	int seals;

	if (flags & ~SWITCHTO_DOOR_UNSEALED)
		return EINVAL;
	seals = fcntl(fd, F_GET_SEALS);
	if (seals < 0 && errno == EBADF)
		return EBADF;
	if (!(flags & SWITCHTO_DOOR_UNSEALED) && (seals < 0 || (seals & SEALS) != SEALS))
		return EPERM;
	if (fstat(fd, &stat))
		return errno;
	return S_ISREG(stat.st_mode) && stat.st_size >= (off_t)size ? 0 : EINVAL;
}

static size_t handle_size(size_t page_size)
{
	return (sizeof(struct handle) + page_size - 1) & ~(page_size - 1);
}

/* Once its words are not robust any more. */
static void free_handle(struct handle *door)
{
	munmap(door->memory, door->size);
	munmap(door, handle_size(door->page_size));
}

/* A handle for nobody yet. NULL and errno. */
static struct handle *new_handle(int fd, unsigned int flags)
{
	size_t page_size = (size_t)sysconf(_SC_PAGESIZE);
	size_t size = page_size * (PLACES + 1);
	pid_t tid = switchto_self();
	struct handle *door;
	int error;

	if (tid == -1)
		return NULL;
	own_tid = tid;
	pthread_once(&chosen, choose);
	error = check_file(fd, flags, size);
	if (error) {
		errno = error;
		return NULL;
	}

	door = mmap(NULL, handle_size(page_size), PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (door == MAP_FAILED) {
		errno = map_error();
		return NULL;
	}
	door->page_size = page_size;
	door->size = size;
	door->memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (door->memory == MAP_FAILED) {
		error = map_error();
		munmap(door, handle_size(page_size));
		errno = error;
		return NULL;
	}
	door->places = door->memory + 2 * page_size - sizeof(struct place);
	door->entrance = (struct entrance *)(door->memory + page_size - sizeof(struct entrance));

	if (madvise(door, handle_size(page_size), MADV_WIPEONFORK) ||
	    madvise(door->memory, size, MADV_DONTFORK))
		error = errno == EINVAL ? ENOSYS : map_error();
	else if (__atomic_load_n(&door->entrance->magic, __ATOMIC_ACQUIRE) != MAGIC ||
		 door->entrance->page_size != page_size)
		error = EINVAL;
	if (error) {
		free_handle(door);
		errno = error;
		return NULL;
	}
	return door;
}

/* Nobody serves, or EBUSY. */
static int check_server(uint32_t server)
{
	return server && !(server & DEAD) ? EBUSY : 0;
}

static void no_robust_words(struct handle *door)
{
	switchto_robust_end(&door->server);
	for (uint32_t i = 0; i < PLACES; i++)
		switchto_robust_end(&door->words[i]);
}

/* What the kernel does to the words of a server that dies. */
static void end_calls(struct handle *door)
{
	for (uint32_t i = 0; i < PLACES; i++) {
		struct place *place = place_at(door, i);
		uint32_t word = door->waiting;

		if (atomic_compare_exchange_strong(&place->word, &word, WAITS | DEAD))
			futex_wake_shared(&place->word);
	}
}

struct switchto_door *switchto_door_serve(int fd, unsigned int flags)
{
	struct handle *door = new_handle(fd, flags);
	uint32_t server;
	int error;

	if (!door)
		return NULL;
	door->waiting = (uint32_t)own_tid | WAITS;
	/*
	 * Before any word is robust, too. Killed with robust words, this thread would end the
	 * service of a server that has the same TID in another PID namespace.
	 */
	error = check_server(atomic_load(&door->entrance->server));
	for (uint32_t i = 0; i < PLACES && !error; i++)
		error = switchto_robust_begin(&door->words[i], fd, (off_t)i + 1, WORD_BEFORE);
	/* Last, so the kernel comes to it first. */
	if (!error)
		error = switchto_robust_begin(&door->server, fd, 0, SERVER_BEFORE);
	if (!error) {
		server = atomic_load(&door->entrance->server);
		error = check_server(server);
	}
	if (!error) {
		delay_point(DOOR_SERVE);
		if (!atomic_compare_exchange_strong(&door->entrance->server, &server,
						    (uint32_t)own_tid))
			error = EBUSY;
	}
	if (error) {
		no_robust_words(door);
		free_handle(door);
		errno = error;
		return NULL;
	}
	door->not_server = ~own_tid;
	return (struct switchto_door *)door;
}

/*
 * May a caller have this place? Nobody calls from it, and no server is at work for it. A call
 * that a dead caller has posted can be taken back.
 */
static bool is_free(const struct handle *door, const struct place *place, uint32_t owner)
{
	uint32_t stage, word;

	if (owner && !(owner & DEAD))
		return false;
	stage = atomic_load(&place->stage);
	if (stage != TAKEN && stage != DONE)
		return true;
	word = atomic_load(&place->word);
	return (word & STATE) != WAITS || (word & FUTEX_TID_MASK) != server_of(door);
}

struct switchto_door *switchto_door_connect(int fd, unsigned int flags)
{
	struct handle *door = new_handle(fd, flags);
	int error = EAGAIN;

	if (!door)
		return NULL;
	for (uint32_t i = 0; i < PLACES; i++) {
		struct place *place = place_at(door, i);
		uint32_t owner = atomic_load(&place->owner);

		if (!is_free(door, place, owner))
			continue;
		error = switchto_robust_begin(&door->words[0], fd, (off_t)i + 1, OWNER_BEFORE);
		if (error)
			break;
		delay_point(DOOR_CLAIM);
		if (atomic_compare_exchange_strong(&place->owner, &owner, (uint32_t)own_tid)) {
			door->place = place;
			door->number = i;
			door->bit = 1u << i;
			door->not_caller = ~own_tid;
			return (struct switchto_door *)door;
		}
		switchto_robust_end(&door->words[0]);
		error = EAGAIN;
	}
	free_handle(door);
	errno = error;
	return NULL;
}

int switchto_door_close(struct switchto_door *door)
{
	struct handle *handle = handle_of(door);
	if (!handle)
		return 0;
	if (is_servers(handle)) {
		uint32_t server = (uint32_t)own_tid;

		/* As the kernel does when the thread dies, and in that order. */
		atomic_compare_exchange_strong(&handle->entrance->server, &server, DEAD);
		barrier_after_atomic();
		delay_point(DOOR_CLOSE);
		end_calls(handle);
	} else if (is_callers(handle)) {
		take_back(handle->place);
		atomic_store(&handle->place->owner, 0);
	} else {
		return fail(EPERM);
	}
	no_robust_words(handle);
	free_handle(handle);
	return 0;
}
