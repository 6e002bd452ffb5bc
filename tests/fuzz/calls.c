// SPDX-License-Identifier: MIT
/*
 * What fuzz_futex calls: how a call follows from its number, how it is made, and
 * what it may answer. FUTEX_SWAP is held to libswitchto/man/futex_swap.2, the others
 * to futex(2).
 */
#include "files.h"
#include "fuzz.h"

/* FUTEX_LOCK_PI2, which not every header has. The last of Linux 6.12. */
#define LOCK_PI2 13
/* Newer kernels: FUTEX_ROBUST_UNLOCK and FUTEX_ROBUST_LIST32. */
#define ROBUST_FLAGS 0x600u

enum {
	NR_COMPAT_FUTEX = 240,
	NR_COMPAT_FUTEX_TIME64 = 422,
	NR_FUTEX_WAITV = 449,
	NR_FUTEX_WAKE = 454,
	NR_FUTEX_WAIT = 455,
	NR_FUTEX_REQUEUE = 456,
};

enum kind {
	FUTEX,
	COMPAT,
	WAITV,
	WAKE2,
	WAIT2,
	REQUEUE2,
	STORE,
	ROBUST,
	GET_ROBUST,
	AFFINITY,
	CLASS,
	GROUP,
	YIELD,
	FORK,
	END,
	EXEC,
	KINDS
};

static const char *const kind_names[KINDS] = {
	"futex",	   "compat",	    "futex_waitv", "futex_wake",
	"futex_wait",	   "futex_requeue", "store",	   "set_robust_list",
	"get_robust_list", "affinity",	    "class",	   "group",
	"yield",	   "fork",	    "end",	   "exec",
};

/* In 10,000 calls. */
static const uint16_t kind_weights[KINDS] = {
	[FUTEX] = 8250,	   [COMPAT] = 400,   [WAITV] = 200, [WAKE2] = 150,
	[WAIT2] = 150,	   [REQUEUE2] = 100, [STORE] = 500, [ROBUST] = 70,
	[GET_ROBUST] = 20, [AFFINITY] = 60,  [CLASS] = 40,  [GROUP] = 30,
	[YIELD] = 10,	   [FORK] = 4,	     [END] = 15,    [EXEC] = 1,
};

/* What a number may be; its name, and how often it is chosen. */
#define ALL_VALUES(X)                                                \
	X(CURRENT, "current", 30) /* what the word at uaddr holds */ \
	X(NOT_CURRENT, "not_current", 5)                             \
	X(ZERO, "0", 20)                                             \
	X(ONE, "1", 15)                                              \
	X(TWO, "2", 3)                                               \
	X(MANY, "INT_MAX", 3)                                        \
	X(ALL_BITS, "~0", 2)                                         \
	X(TID_SELF, "own_tid", 4)                                    \
	X(TID_SIBLING, "sibling_tid", 12)                            \
	X(TID_ANY, "any_tid", 5)                                     \
	X(TID_FORMER, "former_tid", 3)                               \
	X(TID_SELF_WAITERS, "own_tid|WAITERS", 2)                    \
	X(TID_SIBLING_DIED, "sibling_tid|OWNER_DIED", 2)             \
	X(TID_SUPERVISOR, "supervisor", 1)                           \
	X(TID_LARGEST, "TID_MASK", 2)                                \
	X(TID_TOO_LARGE, "TID_MASK+1", 2)                            \
	X(RANDOM, "random", 4)

enum value { ALL_VALUES(AS_ENUM) VALUES };

static const char *const value_names[VALUES] = { ALL_VALUES(AS_TEXT) };
static const uint16_t value_weights[VALUES] = { ALL_VALUES(AS_WEIGHT) };

/* The same of the fourth argument. */
#define ALL_MOMENTS(X)                                                  \
	X(NEVER, "NULL", 40)                                            \
	X(AT_ONCE, "0", 6)                                              \
	X(TINY, "tiny", 20)                                             \
	X(SHORT, "short", 20)                                           \
	X(LONGER, "longer", 10)                                         \
	X(HUGE_TIME, "huge", 3)                                         \
	X(SOON, "soon", 8)                                              \
	X(PAST, "past", 4)                                              \
	X(NEGATIVE, "negative", 3)                                      \
	X(NSEC_BIG, "nsec>=1e9", 3)                                     \
	X(NSEC_NEGATIVE, "nsec<0", 2) /* no timespec */                 \
	X(IN_HOLE, "hole", 2)                                           \
	X(IN_NONE, "none", 2)                                           \
	X(IN_KERNEL, "kernel", 2)                                       \
	X(ACROSS_EDGE, "edge", 2)                                       \
	X(IN_STORM, "storm", 2) /* a number, as FUTEX_REQUEUE has it */ \
	X(NUMBER, "number", 6)                                          \
	X(NUMBER_MAX, "INT_MAX", 1)                                     \
	X(NUMBER_ALL_BITS, "~0", 1)                                     \
	X(NUMBER_HIGH, "1<<32", 2)

enum moment { ALL_MOMENTS(AS_ENUM) MOMENTS };

static const char *const moment_names[MOMENTS] = { ALL_MOMENTS(AS_TEXT) };
static const uint16_t moment_weights[MOMENTS] = { ALL_MOMENTS(AS_WEIGHT) };

struct call {
	enum kind kind;
	uint32_t op;
	struct where uaddr, uaddr2;
	enum value val, val3;
	enum moment moment;
	uint32_t chance[4]; /* for what is not named above */
};

/* The same as of now. */
struct request {
	uintptr_t uaddr, uaddr2, time;
	uint32_t val, val3;
	long long least; /* ns that must pass before ETIMEDOUT; -1: unknown */
};

struct answer {
	long ret;
	int error;
	long long ns;
};

const char *const counted_names[COUNTS] = {
	"swap",	   "wait_only", "wake_only", "wait",   "wake",	 "requeue",
	"wake_op", "pi",	"unknown",   "futex2", "compat", "other",
};

/* --- how a call follows from its number ---------------------------------------- */

static struct where any_place(struct dice *dice)
{
	static const uint16_t weights[PLACES] = { ALL_PLACES(AS_WEIGHT) };
	struct where where;

	where.place = (uint8_t)weighted(dice, weights, PLACES);
	where.index = (uint8_t)roll(dice, 64);
	return where;
}

static enum value any_value(struct dice *dice)
{
	return (enum value)weighted(dice, value_weights, VALUES);
}

static enum moment any_moment(struct dice *dice)
{
	return (enum moment)weighted(dice, moment_weights, MOMENTS);
}

static enum moment sane_moment(struct dice *dice)
{
	static const uint16_t weights[MOMENTS] = {
		[NEVER] = 10, [TINY] = 4, [SHORT] = 4, [LONGER] = 2
	};

	return (enum moment)weighted(dice, weights, MOMENTS);
}

static struct where place(enum place place, uint32_t index)
{
	return (struct where){ (uint8_t)place, (uint8_t)index };
}

/* Which halves a swap has: an address that is NULL leaves its half out. */
enum form { BOTH, WAIT_ONLY, WAKE_ONLY, NEITHER, FORMS };

static enum form form_of(const struct call *call)
{
	const bool waits = call->uaddr.place != AT_NULL, wakes = call->uaddr2.place != AT_NULL;

	if (waits)
		return wakes ? BOTH : WAIT_ONLY;
	return wakes ? WAKE_ONLY : NEITHER;
}

/* A turn handed to a sibling, as the library does it. */
static void make_hand_off(struct call *call, struct dice *dice)
{
	call->op |= FUTEX_PRIVATE_FLAG;
	call->op &= ~(uint32_t)FUTEX_CLOCK_REALTIME;
	call->uaddr = place(AT_MINE, 0);
	call->val = CURRENT;
	call->uaddr2 = place(AT_SIBLING, roll(dice, 64));
	call->val3 = roll(dice, 4) ? TID_SIBLING : any_value(dice);
	call->chance[3] = call->uaddr2.index;
	call->moment = sane_moment(dice);
}

/* Strange places, but nothing that is refused before them. */
static void make_strange(struct call *call, struct dice *dice)
{
	call->val = CURRENT;
	call->val3 = roll(dice, 2) ? ZERO : TID_SIBLING;
	call->moment = sane_moment(dice);
	call->op &= ~(uint32_t)FUTEX_CLOCK_REALTIME;
	if (!roll(dice, 4))
		call->uaddr2 = call->uaddr;
}

/* For a call that is refused, to be so for one argument alone. */
static void spoil_one(struct call *call, struct dice *dice)
{
	switch (roll(dice, 4)) {
	case 0:
		call->val = any_value(dice);
		break;
	case 1:
		call->moment = any_moment(dice);
		break;
	case 2:
		call->val3 = any_value(dice);
		break;
	default:
		call->op |= FUTEX_CLOCK_REALTIME;
	}
}

static void make_swap(struct call *call, struct dice *dice)
{
	static const uint16_t weights[FORMS] = {
		[BOTH] = 55, [WAIT_ONLY] = 15, [WAKE_ONLY] = 27, [NEITHER] = 3
	};
	const enum form form = (enum form)weighted(dice, weights, FORMS);
	const uint32_t which = roll(dice, 100);
	const bool is_sane = which < 80;

	if (which < 50)
		make_hand_off(call, dice);
	else if (is_sane)
		make_strange(call, dice);
	if (form == WAKE_ONLY || form == NEITHER) {
		call->uaddr = place(AT_NULL, 0);
		if (is_sane) {
			call->val = ZERO;
			call->moment = NEVER;
		}
	}
	if (form == WAIT_ONLY || form == NEITHER)
		call->uaddr2 = place(AT_NULL, 0);
	if (is_sane && !roll(dice, 6))
		spoil_one(call, dice);
}

static enum moment number_moment(struct dice *dice)
{
	return roll(dice, 3) ? NUMBER_MAX : NUMBER;
}

/* The other operations, mostly as they are meant: their refusals are not ours. */
static void make_other(struct call *call, struct dice *dice)
{
	const uint32_t cmd = call->op & FUTEX_CMD_MASK;

	if (!roll(dice, 3))
		return;
	call->op &= ~(uint32_t)FUTEX_CLOCK_REALTIME;
	switch (cmd) {
	case FUTEX_WAIT:
	case FUTEX_WAIT_BITSET:
		call->val = CURRENT;
		call->val3 = roll(dice, 2) ? ALL_BITS : RANDOM;
		call->moment = cmd == FUTEX_WAIT ? sane_moment(dice) : roll(dice, 2) ? SOON : NEVER;
		break;
	case FUTEX_WAKE:
	case FUTEX_WAKE_BITSET:
		call->val = roll(dice, 3) ? ONE : MANY;
		call->val3 = roll(dice, 2) ? ALL_BITS : RANDOM;
		break;
	case FUTEX_REQUEUE:
	case FUTEX_CMP_REQUEUE:
		call->val = roll(dice, 2) ? ZERO : ONE;
		call->val3 = CURRENT;
		call->moment = number_moment(dice);
		break;
	case FUTEX_WAKE_OP:
		call->val = ONE;
		call->moment = NUMBER;
		break;
	case FUTEX_LOCK_PI:
	case LOCK_PI2:
		call->moment = roll(dice, 3) ? SOON : NEVER;
		call->uaddr = place(AT_PI, roll(dice, 64));
		break;
	case FUTEX_UNLOCK_PI:
	case FUTEX_TRYLOCK_PI:
		call->uaddr = place(AT_PI, roll(dice, 64));
		break;
	case FUTEX_WAIT_REQUEUE_PI:
		call->uaddr = place(AT_WORD, roll(dice, 2));
		call->uaddr2 = place(AT_PI, roll(dice, 2));
		call->val = CURRENT;
		call->moment = SOON;
		break;
	case FUTEX_CMP_REQUEUE_PI:
		call->uaddr = place(AT_WORD, roll(dice, 2));
		call->uaddr2 = place(AT_PI, roll(dice, 2));
		call->val = ONE;
		call->val3 = CURRENT;
		call->moment = number_moment(dice);
		break;
	}
}

/* Mostly one that is next to those that are known. */
static uint32_t unknown_op(struct dice *dice)
{
	switch (roll(dice, 4)) {
	case 0:
		return LOCK_PI2 + 1 + roll(dice, 2);
	case 1:
		return LOCK_PI2 + 1 + roll(dice, 127 - LOCK_PI2);
	case 2:
		return FUTEX_SWAP - 1 + 2 * roll(dice, 2);
	default:
		return roll_bits(dice);
	}
}

static uint32_t any_op(struct dice *dice)
{
	/* The last two are no operation's number. */
	enum { CHOOSE_SWAP = 14, CHOOSE_UNKNOWN, CHOICES };
	static const uint16_t weights[CHOICES] = {
		[FUTEX_WAIT] = 60,	     [FUTEX_WAKE] = 60,	       [FUTEX_FD] = 3,
		[FUTEX_REQUEUE] = 15,	     [FUTEX_CMP_REQUEUE] = 35, [FUTEX_WAKE_OP] = 15,
		[FUTEX_LOCK_PI] = 20,	     [FUTEX_UNLOCK_PI] = 30,   [FUTEX_TRYLOCK_PI] = 10,
		[FUTEX_WAIT_BITSET] = 25,    [FUTEX_WAKE_BITSET] = 15, [FUTEX_WAIT_REQUEUE_PI] = 15,
		[FUTEX_CMP_REQUEUE_PI] = 20, [LOCK_PI2] = 10,	       [CHOOSE_SWAP] = 600,
		[CHOOSE_UNKNOWN] = 15,
	};
	uint32_t op = (uint32_t)weighted(dice, weights, CHOICES);

	if (op == CHOOSE_SWAP)
		op = FUTEX_SWAP;
	else if (op == CHOOSE_UNKNOWN)
		op = unknown_op(dice);
	if (roll(dice, 10) < 7)
		op |= FUTEX_PRIVATE_FLAG;
	if (!roll(dice, 20))
		op |= FUTEX_CLOCK_REALTIME;
	if (!roll(dice, 50))
		op |= 1u << (9 + roll(dice, 23));
	/* There are robust unlocks, which write where no futex need be. Not what is tested. */
	if (set.has_robust_unlock && (op & FUTEX_CMD_MASK & ~ROBUST_FLAGS) != FUTEX_SWAP)
		op &= ~ROBUST_FLAGS;
	return op;
}

static bool is_pi(uint32_t cmd)
{
	switch (cmd) {
	case FUTEX_LOCK_PI:
	case FUTEX_UNLOCK_PI:
	case FUTEX_TRYLOCK_PI:
	case FUTEX_WAIT_REQUEUE_PI:
	case FUTEX_CMP_REQUEUE_PI:
	case LOCK_PI2:
		return true;
	}
	return false;
}

static bool writes(uint32_t cmd)
{
	return is_pi(cmd) || cmd == FUTEX_WAKE_OP;
}

static struct call call_of(int index, uint64_t number)
{
	struct dice dice = dice_of(set.seed, (uint64_t)index, number);
	struct call call;

	call.kind = (enum kind)weighted(&dice, kind_weights, KINDS);
	call.op = any_op(&dice);
	call.uaddr = any_place(&dice);
	call.uaddr2 = any_place(&dice);
	call.val = any_value(&dice);
	call.val3 = any_value(&dice);
	call.moment = any_moment(&dice);
	for (int i = 0; i < 4; i++)
		call.chance[i] = roll_bits(&dice);

	/*
	 * An operation that writes to the word has its page faulted in without
	 * being able to wait for it. Of userfaultfd's, the kernel with
	 * CONFIG_DEBUG_VM complains then, with a call trace; that is as it was.
	 */
	if (call.kind == ROBUST || (call.kind == FUTEX && writes(call.op & FUTEX_CMD_MASK))) {
		if (call.uaddr.place == AT_SERVED)
			call.uaddr.place = AT_STORM;
		if (call.uaddr2.place == AT_SERVED)
			call.uaddr2.place = AT_STORM;
	}

	if ((call.op & FUTEX_CMD_MASK) == FUTEX_SWAP)
		make_swap(&call, &dice);
	else
		make_other(&call, &dice);
	return call;
}

/* --- what it means now ---------------------------------------------------------- */

static pid_t tid_of(int index)
{
	return atomic_load(&shared->slots[index].tid);
}

/* The one that AT_SIBLING with the same index belongs to. */
static int sibling_of(const struct worker *me, uint32_t index)
{
	return me->index - me->sibling +
	       (int)((me->sibling + 1 + index % 64) % (uint32_t)set.threads);
}

static uint32_t value_now(const struct worker *me, enum value value, uint32_t chance,
			  uint32_t sibling, struct where uaddr)
{
	const int others = set.threads * set.processes;
	uint32_t word = 0;

	if (value == CURRENT || value == NOT_CURRENT) {
		if (place_has_words((enum place)uaddr.place) && uaddr.place != AT_SERVED)
			memory_load(me, memory_at(uaddr, me), &word);
		return value == CURRENT ? word : ~word;
	}

	switch (value) {
	case ONE:
		return 1;
	case TWO:
		return 2;
	case MANY:
		return INT_MAX;
	case ALL_BITS:
		return UINT32_MAX;
	case TID_SELF:
		return (uint32_t)tid_of(me->index);
	case TID_SIBLING:
		return (uint32_t)tid_of(sibling_of(me, sibling));
	case TID_ANY:
		return (uint32_t)tid_of((int)(chance % (uint32_t)others));
	case TID_FORMER:
		return (uint32_t)atomic_load(&shared->slots[chance % (uint32_t)others].former);
	case TID_SELF_WAITERS:
		return (uint32_t)tid_of(me->index) | FUTEX_WAITERS;
	case TID_SIBLING_DIED:
		return (uint32_t)tid_of(sibling_of(me, sibling)) | FUTEX_OWNER_DIED;
	case TID_SUPERVISOR:
		return (uint32_t)set.supervisor;
	case TID_LARGEST:
		return FUTEX_TID_MASK;
	case TID_TOO_LARGE:
		return FUTEX_TID_MASK + 1;
	case RANDOM:
		return chance;
	default:
		return 0;
	}
}

static long long random_ns(enum moment moment, uint32_t chance)
{
	switch (moment) {
	case TINY:
		return 1 + chance % 2000;
	case SHORT:
		return 1 + chance % 200000;
	case LONGER:
	case SOON:
		return 1 + chance % 5000000;
	default:
		return 0;
	}
}

/* The timespec is written, and *least is how long it is as a relative one. */
static uintptr_t time_now(struct worker *me, enum moment moment, uint32_t chance, long long *least)
{
	long long ns = random_ns(moment, chance);

	*least = -1;
	switch (moment) {
	case NEVER:
		return 0;
	case AT_ONCE:
	case TINY:
	case SHORT:
	case LONGER:
		*least = ns;
		me->time = (struct timespec){ 0, ns };
		break;
	case SOON:
		ns += now_ns();
		*least = ns;
		me->time = (struct timespec){ ns / 1000000000, ns % 1000000000 };
		break;
	case PAST:
		*least = 1000000000;
		me->time = (struct timespec){ 1, 0 };
		break;
	case HUGE_TIME:
		*least = LLONG_MAX;
		me->time = (struct timespec){ LONG_MAX - chance, 999999999 };
		break;
	case NEGATIVE:
		me->time = (struct timespec){ -1 - (long)(chance % 3), chance % 1000000000 };
		break;
	case NSEC_BIG:
		me->time = (struct timespec){ 0, chance % 2 ? 1000000000 : LONG_MAX };
		break;
	case NSEC_NEGATIVE:
		me->time = (struct timespec){ 0, chance % 2 ? -1 : LONG_MIN };
		break;
	case IN_HOLE:
		return memory_at(place(AT_HOLE, 0), me);
	case IN_NONE:
		return memory_at(place(AT_NONE, 0), me);
	case IN_KERNEL:
		return memory_at(place(AT_KERNEL, chance), me);
	case ACROSS_EDGE:
		return memory_at(place(AT_EDGE, 0), me) - 4;
	case IN_STORM:
		return memory_at(place(AT_STORM, chance), me);
	case NUMBER:
		return chance % 4;
	case NUMBER_MAX:
		return INT_MAX;
	case NUMBER_ALL_BITS:
		return UINTPTR_MAX;
	default:
		return (uintptr_t)1 << 32;
	}
	return (uintptr_t)&me->time;
}

static struct request request_now(struct worker *me, const struct call *call)
{
	struct request request;

	request.uaddr = memory_at(call->uaddr, me);
	request.uaddr2 = memory_at(call->uaddr2, me);
	request.val = value_now(me, call->val, call->chance[0], call->chance[3], call->uaddr);
	request.val3 = value_now(me, call->val3, call->chance[1], call->chance[3], call->uaddr);
	request.time = time_now(me, call->moment, call->chance[2], &request.least);
	if ((call->op & FUTEX_CMD_MASK) == FUTEX_WAKE_OP && call->chance[1] % 8)
		request.val3 = FUTEX_OP(call->chance[1] >> 8 & 7, call->chance[1] >> 16 & 31,
					call->chance[1] >> 12 & 7, call->chance[1] >> 24 & 3);
	return request;
}

/* --- what it may answer ---------------------------------------------------------- */

/* The error that an argument alone calls for; 0: none; -1: can't be said. */
static int address_refused(uintptr_t address, struct where where, bool is_shared)
{
	if (address % 4)
		return EINVAL;
	if (where.place == AT_KERNEL)
		return EFAULT;
	if (is_shared && !place_has_words((enum place)where.place))
		return EFAULT;
	return 0;
}

static int time_refused(const struct call *call, const struct request *request)
{
	if (!request->time)
		return 0;
	switch (call->moment) {
	case IN_HOLE:
	case IN_NONE:
	case IN_KERNEL:
	case ACROSS_EDGE:
	case NUMBER:
	case NUMBER_ALL_BITS:
		return EFAULT;
	case NEGATIVE:
	case NSEC_BIG:
	case NSEC_NEGATIVE:
		return EINVAL;
	case IN_STORM:
	case NUMBER_MAX:
	case NUMBER_HIGH:
		return -1;
	default:
		return 0;
	}
}

/* In the order of "Order of checks and effects", for every form. */
static int swap_refused(const struct call *call, const struct request *request)
{
	bool is_shared = !(call->op & FUTEX_PRIVATE_FLAG);
	int error = time_refused(call, request);

	if (error)
		return error;
	if (call->op & (FUTEX_CLOCK_REALTIME | ROBUST_FLAGS))
		return ENOSYS;
	if (request->val3 & ~FUTEX_TID_MASK)
		return EINVAL;
	/* The hint names a waiter to wake. */
	if (!request->uaddr2 && request->val3)
		return EINVAL;
	/* Without a wait there is nothing for a value and a time to be of. */
	if (!request->uaddr && (!request->uaddr2 || request->val || request->time))
		return EINVAL;
	/* That uaddr is unmapped is found out later. */
	if (request->uaddr)
		error = address_refused(request->uaddr, call->uaddr, false);
	if (error || !request->uaddr2)
		return error;
	return address_refused(request->uaddr2, call->uaddr2, is_shared);
}

static bool is_wait(uint32_t cmd)
{
	return cmd == FUTEX_WAIT || cmd == FUTEX_WAIT_BITSET;
}

static bool is_one_of(int error, const int *errors)
{
	for (; *errors; errors++)
		if (error == *errors)
			return true;
	return false;
}

/* May an operation that was there before answer so? */
static bool other_may(uint32_t cmd, long ret, int error)
{
	static const int pi[] = { EINVAL, EFAULT,    ENOSYS, EAGAIN, EDEADLK, EPERM,
				  ESRCH,  ETIMEDOUT, EINTR,  ENOMEM, 0 };
	static const int wait[] = { EINVAL, EFAULT, ENOSYS, EAGAIN, ETIMEDOUT, EINTR, 0 };
	static const int wake[] = { EINVAL, EFAULT, ENOSYS, EAGAIN, 0 };

	if (is_pi(cmd))
		return ret >= 0 || is_one_of(error, pi);
	if (is_wait(cmd))
		return ret == 0 || (ret < 0 && is_one_of(error, wait));
	return ret >= 0 || is_one_of(error, wake);
}

/* Injected faults look like this, whatever else is wrong. */
static bool is_injected(int error)
{
	return set.faults && (error == EFAULT || error == ENOMEM);
}

/* NULL, or what is wrong with the answer of a swap that waits; @must: swap_refused(). */
static const char *wait_fault(const struct call *call, const struct request *request,
			      const struct answer *answer, int must)
{
	static const int known[] = { EAGAIN, EFAULT, EINTR, ETIMEDOUT, EINVAL, 0 };
	const int error = answer->ret < 0 ? answer->error : 0;

	if (error && !is_one_of(error, known))
		return "not an error of this operation";
	if (must < 0)
		return NULL;
	if (error == EINVAL && !request->uaddr2)
		return "there is no waiter to be refused for";
	if (!place_has_words((enum place)call->uaddr.place) && error != EFAULT && error != EINVAL)
		return "wanted EFAULT, uaddr can't be read";
	if (error == ETIMEDOUT && !request->time)
		return "timed out without a timeout";
	if (error == ETIMEDOUT && answer->ns < request->least)
		return "timed out early";
	if (error == EFAULT && call->op & FUTEX_PRIVATE_FLAG &&
	    place_is_steady((enum place)call->uaddr.place))
		return "uaddr can be read, and what is at uaddr2 doesn't matter";
	return NULL;
}

/* The same of one that only wakes, or does neither. */
static const char *wake_only_fault(const struct call *call, const struct answer *answer, int must)
{
	const int error = answer->ret < 0 ? answer->error : 0;

	if (error && error != EINVAL && error != EFAULT)
		return "not an error of this operation";
	if (must < 0)
		return error ? NULL : "wanted to be refused, a timeout is of a wait";
	if (error == EFAULT && call->op & FUTEX_PRIVATE_FLAG)
		return "a private futex need not be mapped to be woken";
	return NULL;
}

static const char *swap_fault(const struct call *call, const struct request *request,
			      const struct answer *answer)
{
	const int must = swap_refused(call, request);

	if (answer->ret > (request->uaddr ? 0 : 1))
		return request->uaddr ? "wanted 0 or an error" : "wanted 0, 1 or an error";
	if (answer->ret < 0 && is_injected(answer->error))
		return NULL;
	if (must > 0)
		return answer->ret < 0 && answer->error == must ? NULL :
								  "wanted to be refused, otherwise";
	/* A timeout that could be read after all leads on to what is refused next. */
	if (must < 0 && answer->ret < 0 && answer->error == ENOSYS &&
	    call->op & (FUTEX_CLOCK_REALTIME | ROBUST_FLAGS))
		return NULL;
	return request->uaddr ? wait_fault(call, request, answer, must) :
				wake_only_fault(call, answer, must);
}

static bool is_operation(uint32_t cmd)
{
	if (cmd == FUTEX_SWAP)
		return set.has_swap;
	return cmd <= LOCK_PI2 && cmd != FUTEX_FD;
}

static const char *futex_fault(const struct call *call, const struct request *request,
			       const struct answer *answer)
{
	/* A kernel that knows the flags of robust unlocks looks at the time first, as above. */
	const uint32_t flags = set.has_robust_unlock ? ROBUST_FLAGS : 0;
	const uint32_t cmd = call->op & FUTEX_CMD_MASK & ~flags;

	if (!is_operation(cmd))
		return answer->ret < 0 && answer->error == ENOSYS ? NULL : "wanted ENOSYS";
	if (cmd == FUTEX_SWAP)
		return swap_fault(call, request, answer);
	if (answer->ret < 0 && is_injected(answer->error))
		return NULL;
	return other_may(cmd, answer->ret, answer->error) ? NULL :
							    "not an answer of this operation";
}

/* Of all entries: that it is an answer at all. */
static const char *answer_fault(const struct call *call, const struct request *request,
				const struct answer *answer)
{
	/* What the kernel says to itself (ERESTARTSYS and its like) must stay there. */
	if (answer->ret < -1 || (answer->ret < 0 && answer->error >= 256))
		return "not an error number";
	return call->kind == FUTEX ? futex_fault(call, request, answer) : NULL;
}

/* --- making it ------------------------------------------------------------------ */

static long futex(uintptr_t uaddr, uint32_t op, uint32_t val, uintptr_t time, uintptr_t uaddr2,
		  uint32_t val3)
{
	return syscall(SYS_futex, uaddr, op, val, time, uaddr2, val3);
}

#if defined(__x86_64__) && defined(__LP64__)
#define HAS_COMPAT 1

/* The entry of 32-bit programs. The sixth argument is in the frame pointer's register. */
static long compat_futex(long nr, const uint32_t *arg)
{
	int32_t ret;

	__asm__ volatile("mov %%rbp, %%r12\n\t"
			 "mov (%[arg]), %%ebx\n\t"
			 "mov 4(%[arg]), %%ecx\n\t"
			 "mov 8(%[arg]), %%edx\n\t"
			 "mov 12(%[arg]), %%esi\n\t"
			 "mov 16(%[arg]), %%edi\n\t"
			 "mov 20(%[arg]), %%ebp\n\t"
			 "int $0x80\n\t"
			 "mov %%r12, %%rbp"
			 : "=a"(ret)
			 : "0"((int32_t)nr), [arg] "r"(arg)
			 : "rbx", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12",
			   "memory", "cc");
	if (ret >= 0 || ret < -4095)
		return ret;
	errno = -ret;
	return -1;
}
#else
#define HAS_COMPAT 0

static long compat_futex(long nr, const uint32_t *arg)
{
	errno = ENOSYS;
	return -1;
}
#endif

bool compat_works(void)
{
	const uint32_t arg[6] = { 0, FUTEX_WAKE, 1, 0, 0, 0 };
	int status;
	pid_t child;

	if (!HAS_COMPAT || memory_at(place(AT_LOW, 0), NULL) > UINT32_MAX)
		return false;
	child = fork();
	if (child == 0) {
		signal(SIGSEGV, SIG_DFL);
		compat_futex(NR_COMPAT_FUTEX, arg);
		_exit(errno != EFAULT);
	}
	return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

/* With words, and with a timespec, in the 32 bits that it can say. */
static long make_compat(struct worker *me, const struct call *call, const struct request *request)
{
	const bool is_time64 = call->chance[0] % 2;
	const uintptr_t time = memory_at(place(AT_LOW, 0), me) + 2048 + (uintptr_t)me->sibling * 16;
	const struct where word = { AT_LOW, call->uaddr.index },
			   word2 = { AT_LOW, call->uaddr2.index };
	uint32_t arg[6], now = 0;

	memory_load(me, memory_at(word, me), &now);
	arg[0] = (uint32_t)(call->uaddr.place == AT_ODD || call->uaddr.place == AT_NULL ?
				    request->uaddr :
				    memory_at(word, me));
	arg[1] = call->op;
	arg[2] = call->val == CURRENT ? now : request->val;
	arg[3] = request->time == (uintptr_t)&me->time ? (uint32_t)time : (uint32_t)request->time;
	arg[4] = (uint32_t)(call->uaddr2.place == AT_NULL ? 0 : memory_at(word2, me));
	arg[5] = request->val3;
	if (is_time64)
		memcpy((void *)time, &me->time, sizeof(me->time));
	else
		memcpy((void *)time,
		       &(int32_t[]){ (int32_t)me->time.tv_sec, (int32_t)me->time.tv_nsec }, 8);

	return compat_futex(is_time64 ? NR_COMPAT_FUTEX_TIME64 : NR_COMPAT_FUTEX, arg);
}

/* struct futex_waitv, which the headers need not know: value, address, flags. */
static long make_waitv(struct worker *me, const struct call *call, const struct request *request)
{
	struct dice dice = { call->chance[0] };
	uint32_t n = roll(&dice, 10) ? 1 + roll(&dice, 5) : roll(&dice, 131);
	uintptr_t array = call->chance[1] % 32 ? (uintptr_t)me->waitv : request->uaddr;

	for (uint32_t i = 0; i < n && i < 130; i++) {
		struct where where = any_place(&dice);
		uint32_t now = value_now(me, roll(&dice, 8) ? CURRENT : RANDOM, 1, 0, where);
		uint32_t flags = roll(&dice, 16) ? 2 | roll(&dice, 2) * 128 : roll_bits(&dice);

		me->waitv[3 * i] = now;
		me->waitv[3 * i + 1] = memory_at(where, me);
		me->waitv[3 * i + 2] = flags;
	}
	return syscall(NR_FUTEX_WAITV, array, n, call->chance[2] % 32 ? 0 : call->chance[3],
		       request->time, call->chance[3] % 3);
}

static uint32_t futex2_flags(const struct call *call)
{
	return call->chance[0] % 16 ? 2 | (call->op & FUTEX_PRIVATE_FLAG) : call->chance[1];
}

static long make_requeue2(struct worker *me, const struct call *call, const struct request *request)
{
	me->waitv[0] = request->val;
	me->waitv[1] = request->uaddr;
	me->waitv[2] = futex2_flags(call);
	me->waitv[3] = call->chance[2];
	me->waitv[4] = request->uaddr2;
	me->waitv[5] = futex2_flags(call);
	return syscall(NR_FUTEX_REQUEUE, me->waitv, 0, call->chance[2] % 3, call->chance[3] % 3);
}

static void make_store(struct worker *me, const struct call *call, const struct request *request)
{
	const enum place place = (enum place)call->uaddr.place;

	/* Who touches this waits in user space, where nothing is to be learned. */
	if (place == AT_SERVED || request->uaddr % 4)
		return;
	memory_store(me, request->uaddr, request->val3);
}

/* Is looked at when the thread ends. */
static void make_robust(struct worker *me, const struct call *call, const struct request *request)
{
	struct robust_list *entry = me->robust_entries;
	uintptr_t bad = (uintptr_t)&entry[3];
	uintptr_t head = (uintptr_t)&me->robust;

	switch (call->chance[0] % 8) {
	case 0:
		bad = request->uaddr2;
		break;
	case 1:
		bad = (uintptr_t)&entry[0]; /* for ever */
		break;
	case 2:
		bad = (uintptr_t)&entry[3] | 1; /* PI */
		break;
	}
	entry[0].next = &entry[1];
	entry[1].next = &entry[2];
	entry[2].next = (struct robust_list *)bad;
	entry[3].next = &me->robust.list;
	me->robust.list.next = &entry[0];
	me->robust.list_op_pending = call->chance[1] % 2 ? NULL :
							   (struct robust_list *)request->uaddr2;
	/* The first entry's word is then the one at uaddr. */
	me->robust.futex_offset = call->chance[1] % 3 ?
					  (long)(request->uaddr - (uintptr_t)&entry[0]) :
					  (long)call->chance[2] - INT_MAX;
	if (call->chance[2] % 8 == 0)
		head = request->uaddr2;
	syscall(SYS_set_robust_list, head, call->chance[3] % 16 ? sizeof(me->robust) : 1);
}

static void make_affinity(const struct call *call)
{
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	if (call->chance[0] % 4)
		/* Mostly the first: a hand-off is between two of one CPU. */
		CPU_SET(call->chance[0] % 4 == 1 ? call->chance[1] % (uint32_t)set.cpus : 0, &cpus);
	else
		for (int i = 0; i < set.cpus; i++)
			CPU_SET(i, &cpus);
	sched_setaffinity(0, sizeof(cpus), &cpus);
}

static void ordinary_class(void)
{
	const struct sched_param none = { 0 };

	sched_setscheduler(0, SCHED_OTHER, &none);
}

static void make_class(struct worker *me, const struct call *call)
{
	const struct sched_param param = { 1 + (int)(call->chance[1] % 3) }, none = { 0 };
	struct {
		uint32_t size, policy;
		uint64_t flags;
		int32_t nice;
		uint32_t priority;
		uint64_t runtime, deadline, period;
	} attr = {
		.size = 48,
		.policy = 6 /* SCHED_DEADLINE */,
		.runtime = 500000,
		.deadline = 10000000,
		.period = 10000000,
	};

	if (!set.machine)
		return;
	switch (call->chance[0] % 8) {
	case 0:
		sched_setscheduler(0, SCHED_FIFO, &param);
		break;
	case 1:
		sched_setscheduler(0, SCHED_RR, &param);
		break;
	case 2:
		syscall(SYS_sched_setattr, 0, &attr, 0);
		break;
	case 3:
		sched_setscheduler(0, SCHED_IDLE, &none);
		break;
	case 4:
		sched_setscheduler(0, SCHED_BATCH, &none);
		break;
	default:
		ordinary_class();
	}
	me->class_left = 1 + (int)(call->chance[2] % 50);
}

static void make_group(const struct call *call)
{
	static const char *const groups[] = { "", "/a", "/b" };

	if (set.machine)
		write_text(text_of("%s%s/cgroup.threads", set.group, groups[call->chance[0] % 3]),
			   "0");
}

/* A child that sleeps and wakes where its parent does. */
static void make_fork(struct worker *me, const struct call *call)
{
	struct timespec time = { 0, 1 + call->chance[0] % 2000000 };
	uint32_t hint = value_now(me, TID_SIBLING, 0, call->chance[3], call->uaddr);
	struct where mine = { AT_MINE, 0 }, common = { AT_SHARED, call->uaddr.index };
	uint32_t val = 0;
	pid_t child;

	faults_here(false);
	child = _Fork();
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		memory_load(me, memory_at(mine, me), &val);
		futex(memory_at(mine, me), FUTEX_SWAP | FUTEX_PRIVATE_FLAG, val, (uintptr_t)&time,
		      memory_at(place(AT_SIBLING, call->chance[3]), me), hint);
		memory_load(me, memory_at(common, me), &val);
		futex(memory_at(common, me), FUTEX_SWAP, val, (uintptr_t)&time,
		      memory_at(place(AT_SHARED, call->chance[1] % 64), me), hint);
		futex(0, FUTEX_SWAP | FUTEX_PRIVATE_FLAG, 0, 0, memory_at(mine, me), hint);
		_exit(0);
	}
	if (child > 0) {
		atomic_fetch_add(&shared->forks, 1);
		while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
			;
	}
	faults_here(set.faults);
}

static _Noreturn void make_exec(void)
{
	char *const argv[] = { "fuzz_futex", "--nothing", NULL };

	atomic_fetch_add(&shared->execs, 1);
	faults_here(false);
	/* Handlers don't outlive it, and the supervisor goes on with its signals. */
	signal(SIGUSR1, SIG_IGN);
	signal(SIGUSR2, SIG_IGN);
	signal(SIGRTMIN, SIG_IGN);
	execve("/proc/self/exe", argv, (char *[]){ NULL });
	give_up("execve: wanted this program, got %s", strerror(errno));
}

static void make_end(struct worker *me, const struct call *call)
{
	atomic_fetch_add(&shared->lives, 1);
	atomic_store(&me->slot->former, atomic_load(&me->slot->tid));
	/* Returns, or is gone at once. pthread_exit() would have to read a file first. */
	me->is_ending = call->chance[0] % 2;
	if (me->is_ending)
		return;
	faults_here(false);
	atomic_store(&me->ended, true);
	syscall(SYS_exit, 0);
}

static void make(struct worker *me, const struct call *call, const struct request *request,
		 struct answer *answer)
{
	long long start;

	answer->ret = 0;
	errno = 0;
	start = now_ns();
	me->in_call = 1;
	switch (call->kind) {
	case FUTEX:
		answer->ret = futex(request->uaddr, call->op, request->val, request->time,
				    request->uaddr2, request->val3);
		break;
	case COMPAT:
		if (set.has_compat)
			answer->ret = make_compat(me, call, request);
		break;
	case WAITV:
		answer->ret = make_waitv(me, call, request);
		break;
	case WAKE2:
		answer->ret = syscall(NR_FUTEX_WAKE, request->uaddr, (unsigned long)call->chance[2],
				      request->val, futex2_flags(call));
		break;
	case WAIT2:
		answer->ret = syscall(NR_FUTEX_WAIT, request->uaddr, (unsigned long)request->val,
				      ~0ul, futex2_flags(call), request->time, call->chance[3] % 3);
		break;
	case REQUEUE2:
		answer->ret = make_requeue2(me, call, request);
		break;
	case ROBUST:
		make_robust(me, call, request);
		break;
	case GET_ROBUST:
		syscall(SYS_get_robust_list, (long)request->val3, &me->waitv[0], &me->waitv[1]);
		break;
	case AFFINITY:
		make_affinity(call);
		break;
	case CLASS:
		make_class(me, call);
		break;
	case YIELD:
		sched_yield();
		break;
	default:
		me->in_call = 0;
	}
	me->in_call = 0;
	answer->error = errno;
	answer->ns = now_ns() - start;

	switch (call->kind) {
	case STORE:
		make_store(me, call, request);
		break;
	case GROUP:
		make_group(call);
		break;
	case FORK:
		make_fork(me, call);
		break;
	case END:
		make_end(me, call);
		break;
	case EXEC:
		make_exec();
	default:
		break;
	}
}

/* --- counting and telling --------------------------------------------------------- */

static enum counted counted_as(const struct call *call)
{
	static const enum counted counted[FORMS] = {
		[BOTH] = COUNT_SWAP,
		[WAIT_ONLY] = COUNT_WAIT_ONLY,
		[WAKE_ONLY] = COUNT_WAKE_ONLY,
		[NEITHER] = COUNT_SWAP,
	};
	const uint32_t cmd = call->op & FUTEX_CMD_MASK;

	switch (call->kind) {
	case FUTEX:
		break;
	case COMPAT:
		return COUNT_COMPAT;
	case WAITV:
	case WAKE2:
	case WAIT2:
	case REQUEUE2:
		return COUNT_FUTEX2;
	default:
		return COUNT_OTHER;
	}
	if (is_pi(cmd))
		return COUNT_PI;
	switch (cmd) {
	case FUTEX_SWAP:
		return counted[form_of(call)];
	case FUTEX_WAIT:
	case FUTEX_WAIT_BITSET:
		return COUNT_WAIT;
	case FUTEX_WAKE:
	case FUTEX_WAKE_BITSET:
		return COUNT_WAKE;
	case FUTEX_REQUEUE:
	case FUTEX_CMP_REQUEUE:
		return COUNT_REQUEUE;
	case FUTEX_WAKE_OP:
		return COUNT_WAKE_OP;
	default:
		return COUNT_UNKNOWN;
	}
}

static bool may_sleep(const struct call *call)
{
	const uint32_t cmd = call->op & FUTEX_CMD_MASK;

	return cmd == FUTEX_SWAP ? call->uaddr.place != AT_NULL : is_wait(cmd);
}

static enum outcome outcome_of(const struct call *call, const struct answer *answer)
{
	if (answer->ret > 0)
		return WOKEN;
	if (answer->ret == 0)
		return call->kind == FUTEX && may_sleep(call) ? WOKEN : NOBODY;
	switch (answer->error) {
	case EAGAIN:
		return CHANGED;
	case ETIMEDOUT:
	case EINTR:
		return SLEPT;
	default:
		return REFUSED;
	}
}

static void count(struct worker *me, const struct call *call, enum outcome outcome)
{
	_Atomic long *counter = &me->slot->count[counted_as(call)][outcome];

	/* Its own: no other writes there. */
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + 1,
			      memory_order_relaxed);
}

static void describe(const struct call *call, char *text, size_t size)
{
	snprintf(text, size, "%s(%s[%d], op %#x, %s, time %s, %s[%d], %s)", kind_names[call->kind],
		 place_name((enum place)call->uaddr.place), call->uaddr.index, call->op,
		 value_names[call->val], moment_names[call->moment],
		 place_name((enum place)call->uaddr2.place), call->uaddr2.index,
		 value_names[call->val3]);
}

void call_describe(int index, uint64_t number, char *text, size_t size)
{
	struct call call = call_of(index, number);

	describe(&call, text, size);
}

static void tell(struct worker *me, uint64_t number, const struct call *call,
		 const struct request *request, const struct answer *answer, const char *fault)
{
	char text[300];

	describe(call, text, sizeof(text));
	if (fault)
		found("%s: worker %d call %llu: %s = futex(%#lx, %#x, %#x, %#lx, %#lx, %#x) = %ld, "
		      "error %d (%s), after %lld ns",
		      fault, me->index, (unsigned long long)number, text, request->uaddr, call->op,
		      request->val, request->time, request->uaddr2, request->val3, answer->ret,
		      answer->ret < 0 ? answer->error : 0,
		      answer->ret < 0 ? strerror(answer->error) : "none", answer->ns);
	else
		say("%d %llu %s = (%#lx, %#x, %#x, %#lx, %#lx, %#x) = %ld %s", me->index,
		    (unsigned long long)number, text, request->uaddr, call->op, request->val,
		    request->time, request->uaddr2, request->val3, answer->ret,
		    answer->ret < 0 ? strerror(answer->error) : "");
}

void call_left(struct worker *me)
{
	struct call call = call_of(me->index, atomic_load(&me->slot->number));

	count(me, &call, LEFT);
}

void call_make(struct worker *me, uint64_t number)
{
	const struct call call = call_of(me->index, number);
	const struct request request = request_now(me, &call);
	const char *fault;
	struct answer answer;

	if (me->class_left && --me->class_left == 0)
		ordinary_class();
	make(me, &call, &request, &answer);
	count(me, &call, outcome_of(&call, &answer));

	fault = answer_fault(&call, &request, &answer);
	if (fault || set.print)
		tell(me, number, &call, &request, &answer, fault);
}
