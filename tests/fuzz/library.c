// SPDX-License-Identifier: MIT
/*
 * The library's own calls with everything that can be passed to them, from many
 * threads, their signal handlers and children of fork(), each answer held to what
 * switchto.h promises:
 *
 *  - refused arguments have their error number and no effect;
 *  - what a thread returns with was a resume by that thread, which no return and
 *    no end of a thread had taken before;
 *  - a pending resume is taken by the next wait, whatever that waits for;
 *  - a wait ends with ETIMEDOUT when its time has come and not before, and not
 *    because a handler ran;
 *  - a resume that succeeds leaves errno alone;
 *  - nothing hangs: two of the threads are sent no signals, so that the wake-up of
 *    a resume is all that ends their waits.
 *
 * The n-th call of a thread's seat follows from the seed, the seat and n.
 */
#include "dice.h"
#include "support.h"

#include <switchto/switchto.h>

#include <getopt.h>

#define NAME "fuzz_library"
#define MOST_SEATS 32
#define TID_LIMIT (1 << 22)
#define GONE 64
#define UNDISTURBED 2

struct seat {
	/* Odd while its thread lives; the TID is that thread's then. */
	_Atomic uint32_t life;
	_Atomic pid_t tid;
	_Atomic uint64_t number; /* of the call it is in */
	_Atomic long long since;
	_Atomic uint64_t done;
	atomic_bool ended;
	pthread_t thread;
	/* Resumes for this one by each seat, the ticker last: begun, and succeeded. */
	_Atomic long tried[MOST_SEATS + 1];
	_Atomic long given[MOST_SEATS + 1];
	/*
	 * ->given as it was when the last wait began that returned with a resume.
	 * That took all of them, so another return needs one that is not among them.
	 */
	long taken[MOST_SEATS + 1];
	/* Its thread's and its handlers' own. */
	atomic_bool pending;
	_Atomic long handled;
	volatile sig_atomic_t may_jump;
	bool is_registered; /* the thread's first call is over: that is not to be left */
	sigjmp_buf out;
	long calls, resumed, refused, timed_out;
};

static struct seat seats[MOST_SEATS];
static int n_seats = 6;
static double seconds = 5;
static long most_calls;
static int patience = 60;
static uint64_t seed;
static int64_t only = -1, first;

/* Whose TID it is or was, + 1. */
static _Atomic uint8_t seat_of[TID_LIMIT];
static _Atomic pid_t gone[GONE];
static _Atomic uint32_t n_gone;
static pid_t ticker, silent, elsewhere;
static const char *backend;
static atomic_bool stop, failed;
static long long end;
static _Thread_local struct seat *mine;

/* One write(), for it may be said by a handler. The first is the one to read. */
static void found(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void found(const char *format, ...)
{
	char text[500] = NAME ": FOUND: ";
	size_t length = strlen(text);
	va_list args;

	va_start(args, format);
	vsnprintf(text + length, sizeof(text) - length - 1, format, args);
	va_end(args);
	strcat(text, "\n");
	atomic_store(&stop, true);
	if (atomic_exchange(&failed, true))
		return;
	if (write(STDERR_FILENO, text, strlen(text)) < 0)
		_exit(1);
}

/* --- what is called, and with what ----------------------------------------------- */

enum call {
	SELF,
	BACKEND,
	WAIT,
	WAIT_UNTIL,
	RESUME,
	SWITCH,
	SWITCH_TIMED,
	SWITCH_UNTIL,
	FORK,
	END,
	CALLS
};

static const char *const call_names[CALLS] = {
	"self",	  "backend",	  "wait",	  "wait_until", "resume",
	"switch", "switch_timed", "switch_until", "fork",	"end",
};

/* Per 1000. */
static const uint16_t call_weights[CALLS] = { 20, 10, 180, 120, 300, 130, 130, 100, 2, 8 };

/* Whom a TID names. */
enum whom {
	SIBLING,
	OWN,
	TICKER,
	SILENT,
	ELSEWHERE,
	INIT,
	EXITED,
	NEGATIVE,
	LEAST,
	NONE,
	PAST_LARGEST,
	LARGEST_INT,
	OTHER_BITS,
	WHOMS
};

static const char *const whom_names[WHOMS] = {
	"sibling", "itself", "ticker", "silent",  "elsewhere",	       "init", "exited", "negative",
	"INT_MIN", "0",	     "2^22",   "INT_MAX", "more than 22 bits",
};

static const uint16_t whom_weights[WHOMS] = { 600, 60, 20, 20, 20, 10, 60, 30, 10, 20, 20, 20, 20 };

enum when {
	NEVER,
	AT_ONCE,
	TINY,
	SHORT,
	LONG_AWAY,
	LARGEST,
	NEGATIVE_SEC,
	NEGATIVE_NSEC,
	NSEC_BIG,
	NSEC_LARGEST,
	WHENS
};

static const char *const when_names[WHENS] = {
	"NULL",	    "0",	"tiny",	    "short",	 "in hours",
	"LONG_MAX", "negative", "nsec < 0", "nsec 10^9", "nsec LONG_MAX",
};

static const uint16_t when_weights[WHENS] = { 250, 150, 200, 200, 50, 30, 30, 30, 30, 30 };

struct request {
	enum call call;
	enum whom whom;
	enum when when;
	uint32_t chance[3];
};

static struct request request_of(uint64_t seat, uint64_t number)
{
	struct dice dice = dice_of(seed, seat, number);
	struct request request;

	request.call = (enum call)weighted(&dice, call_weights, CALLS);
	request.whom = (enum whom)weighted(&dice, whom_weights, WHOMS);
	request.when = (enum when)weighted(&dice, when_weights, WHENS);
	for (int i = 0; i < 3; i++)
		request.chance[i] = roll_bits(&dice);
	return request;
}

static bool is_deadline(enum call call)
{
	return call == WAIT_UNTIL || call == SWITCH_UNTIL;
}

/* The time to pass, NULL for none; *due is when it has come, LLONG_MAX for never. */
static const struct timespec *time_of(const struct request *request, struct timespec *time,
				      long long *due)
{
	long long ns = 0;

	*due = LLONG_MAX;
	switch (request->when) {
	case NEVER:
		return NULL;
	case AT_ONCE:
		break;
	case TINY:
		ns = 1 + request->chance[0] % 2000;
		break;
	case SHORT:
		ns = 1 + request->chance[0] % 2000000;
		break;
	case LONG_AWAY:
		ns = 3600 * NSEC_PER_SEC * (1 + request->chance[0] % 24);
		break;
	case LARGEST:
		*time = (struct timespec){ LONG_MAX - request->chance[0] % 3, 999999999 };
		return time;
	case NEGATIVE_SEC:
		*time = (struct timespec){ request->chance[0] % 2 ? -1 : LONG_MIN, 5 };
		return time;
	case NEGATIVE_NSEC:
		*time = (struct timespec){ 1, request->chance[0] % 2 ? -1 : LONG_MIN };
		return time;
	case NSEC_BIG:
		*time = (struct timespec){ 0, NSEC_PER_SEC };
		return time;
	default:
		*time = (struct timespec){ 0, LONG_MAX };
		return time;
	}
	/* AT_ONCE as a deadline is a time long past. */
	if (is_deadline(request->call) && ns)
		ns += now_ns();
	*due = is_deadline(request->call) ? ns : now_ns() + ns;
	*time = to_timespec(ns);
	return time;
}

static bool is_bad_time(enum when when)
{
	return when >= NEGATIVE_SEC;
}

/* What is known of a target before the call, to be compared after it. */
struct target {
	struct seat *seat; /* NULL: no seat's */
	int by;		   /* index of the caller in ->tried */
	pid_t tid;
	uint32_t life;
	bool is_counted;
};

static bool is_some_seats(pid_t tid)
{
	for (int i = 0; i < n_seats; i++)
		if (atomic_load(&seats[i].tid) == tid)
			return true;
	return false;
}

static struct target target_of(enum whom whom, uint32_t chance, int by)
{
	struct target target = { .by = by };

	switch (whom) {
	case SIBLING:
		target.seat = &seats[chance % (uint32_t)n_seats];
		break;
	case OWN:
		target.seat = by < n_seats ? &seats[by] : NULL;
		target.tid = ticker;
		break;
	case TICKER:
		target.tid = ticker;
		break;
	case SILENT:
		target.tid = silent;
		break;
	case ELSEWHERE:
		target.tid = elsewhere;
		break;
	case INIT:
		target.tid = 1;
		break;
	case EXITED:
		target.tid = atomic_load(&gone[chance % GONE]);
		break;
	case NEGATIVE:
		target.tid = -1 - (pid_t)(chance % INT_MAX);
		break;
	case LEAST:
		target.tid = INT_MIN;
		break;
	case PAST_LARGEST:
		target.tid = TID_LIMIT;
		break;
	case LARGEST_INT:
		target.tid = INT_MAX;
		break;
	case OTHER_BITS:
		/* The lower ones name a thread that is there. */
		target.tid = atomic_load(&seats[chance % (uint32_t)n_seats].tid) |
			     (pid_t)(TID_LIMIT << (chance >> 16) % 9);
		break;
	default:
		break;
	}
	if (target.seat) {
		target.life = atomic_load(&target.seat->life);
		target.tid = atomic_load(&target.seat->tid);
		/* First: the return may be over before the resume is. */
		atomic_fetch_add(&target.seat->tried[by], 1);
		target.is_counted = true;
	}
	return target;
}

/* If it had no effect, no return may come of it. */
static void settle(const struct target *target, bool is_given)
{
	if (!target->is_counted)
		return;
	if (is_given)
		atomic_fetch_add(&target->seat->given[target->by], 1);
	else
		atomic_fetch_sub(&target->seat->tried[target->by], 1);
}

/* The errors that @target must be, or may be, refused with; 0: none. */
static int must_refuse(enum whom whom, const struct target *target)
{
	switch (whom) {
	case ELSEWHERE:
	case INIT:
	case PAST_LARGEST:
	case LARGEST_INT:
	case OTHER_BITS:
		return ESRCH;
	case EXITED:
		/* Before the first has ended it is 0. */
		return target->tid ? ESRCH : EINVAL;
	case NEGATIVE:
	case LEAST:
	case NONE:
		return EINVAL;
	default:
		return 0;
	}
}

static bool may_refuse(enum whom whom, const struct target *target)
{
	/* A seat's thread that ended at that time, or had not begun. */
	return target->seat && whom != OWN &&
	       (!(target->life & 1) || atomic_load(&target->seat->life) != target->life);
}

/* NULL, or what is wrong with it. */
static const char *refusal_fault(enum whom whom, const struct target *target, int error)
{
	int must = must_refuse(whom, target);

	if (whom == EXITED && is_some_seats(target->tid))
		return NULL;
	if (must)
		return error == must ? NULL : "wanted to be refused, otherwise";
	if (!error)
		return NULL;
	if (target->seat && target->tid == 0)
		return error == EINVAL ? NULL : "wanted EINVAL of TID 0";
	if (error != ESRCH)
		return "not an error for a TID";
	return may_refuse(whom, target) ? NULL : "the thread lives";
}

/* --- a resume, by a thread or by a handler of it ----------------------------------- */

static void do_resume(enum whom whom, uint32_t chance, int by)
{
	enum { UNTOUCHED = 12345 };
	struct target target = target_of(whom, chance, by);
	const char *fault;
	int saved = errno, ret, error;

	errno = UNTOUCHED;
	ret = switchto_resume(target.tid);
	error = errno;
	errno = saved;

	if (ret == 0 && error != UNTOUCHED)
		found("resume(%d, %s) succeeded and changed errno to %d", target.tid,
		      whom_names[whom], error);
	if (ret != 0 && ret != -1)
		found("resume(%d, %s) returned %d", target.tid, whom_names[whom], ret);
	settle(&target, ret == 0);
	if (ret == 0 && whom == OWN && mine)
		atomic_store(&mine->pending, true);
	fault = refusal_fault(whom, &target, ret ? error : 0);
	if (fault)
		found("%s: resume(%d, %s) = %d, error %d", fault, target.tid, whom_names[whom], ret,
		      ret ? error : 0);
}

static void on_signal(int sig)
{
	static const enum whom whoms[] = { SIBLING, SIBLING, OWN, EXITED, NONE, PAST_LARGEST };
	uint32_t chance;

	if (!mine)
		return;
	chance = (uint32_t)atomic_fetch_add(&mine->handled, 1) * 2654435761u;
	if (chance >> 30)
		do_resume(whoms[(chance >> 8) % 6], chance >> 16, (int)(mine - seats));
}

/* "Leaving a handler that interrupted a wait with siglongjmp() gives that wait up." */
static void on_jump(int sig)
{
	if (!mine)
		return;
	atomic_fetch_add(&mine->handled, 1);
	if (mine->may_jump) {
		mine->may_jump = 0;
		siglongjmp(mine->out, 1);
	}
}

/* --- a wait or a switch -------------------------------------------------------------- */

static pid_t call_it(const struct request *request, pid_t tid, const struct timespec *time)
{
	pid_t ret;

	switch (request->call) {
	case WAIT:
	case WAIT_UNTIL:
		mine->may_jump = mine->is_registered;
		ret = request->call == WAIT ? switchto_wait(time) : switchto_wait_until(time);
		mine->may_jump = 0;
		return ret;
	case SWITCH:
		return switchto_switch(tid);
	case SWITCH_TIMED:
		return switchto_switch_timed(tid, time);
	default:
		return switchto_switch_until(tid, time);
	}
}

static void look_at_given(const struct seat *seat, long *given)
{
	for (int i = 0; i <= n_seats; i++)
		given[i] = atomic_load(&seat->given[i]);
}

/* @given: what had been given when the wait began. */
static void check_return(struct seat *seat, pid_t from, const long *given)
{
	int by = from > 0 && from < TID_LIMIT ? atomic_load(&seat_of[from]) - 1 : -1;

	seat->resumed++;
	if (by < 0)
		found("seat %d was resumed by %d, which never was a thread of ours",
		      (int)(seat - seats), from);
	else if (atomic_load(&seat->tried[by]) <= seat->taken[by])
		found("seat %d returned with a resume by seat %d, of which it had taken all %ld",
		      (int)(seat - seats), by, seat->taken[by]);
	memcpy(seat->taken, given, (size_t)(n_seats + 1) * sizeof(*given));
}

static void do_wait(const struct request *request)
{
	bool is_switch = request->call >= SWITCH, has_time = request->call != SWITCH, was_pending;
	struct timespec store;
	const struct timespec *time = NULL;
	struct target target = { 0 };
	long long due = LLONG_MAX;
	const char *fault = NULL;
	long given[MOST_SEATS + 1];
	pid_t ret;
	int error;

	look_at_given(mine, given);
	if (is_switch)
		target = target_of(request->whom, request->chance[1], (int)(mine - seats));
	was_pending = atomic_load(&mine->pending);
	if (has_time)
		time = time_of(request, &store, &due);

	errno = 0;
	ret = call_it(request, target.tid, time);
	error = ret < 0 ? errno : 0;

	if (ret >= 0) {
		atomic_store(&mine->pending, false);
		check_return(mine, ret, given);
	}
	settle(&target, error != EINVAL && error != ESRCH);
	if (error == EINVAL || error == ESRCH) {
		mine->refused++;
		if (has_time && is_bad_time(request->when))
			return;
		fault = is_switch ? refusal_fault(request->whom, &target, error) :
				    "there is nothing wrong";
	} else if (has_time && is_bad_time(request->when)) {
		fault = "wanted EINVAL for the time";
	} else if (is_switch && refusal_fault(request->whom, &target, 0)) {
		fault = "wanted to be refused for the TID";
	} else if (ret < -1) {
		fault = "neither a TID nor -1";
	} else if (error == ETIMEDOUT) {
		mine->timed_out++;
		if (due == LLONG_MAX)
			fault = "timed out without a timeout";
		else if (now_ns() < due)
			fault = "timed out early";
	} else if (error) {
		fault = "not an error of this call";
	}
	if (!fault && was_pending && error == ETIMEDOUT)
		fault = "there was a resume pending";
	if (fault)
		found("%s: seat %d: %s(%s %d, %s) = %d, error %d (%s)", fault, (int)(mine - seats),
		      call_names[request->call], is_switch ? whom_names[request->whom] : "-",
		      target.tid, has_time ? when_names[request->when] : "-", ret, error,
		      strerror(error));
}

/* --- the rest -------------------------------------------------------------------------- */

static int child_fault(pid_t sibling, pid_t parent)
{
	const struct timespec none = { 0 };
	pid_t self = switchto_self();

	if (self != gettid())
		return 2;
	if (!switchto_backend() || strcmp(switchto_backend(), backend) != 0)
		return 3;
	if (sibling && (switchto_resume(sibling) != -1 || errno != ESRCH))
		return 4;
	if (switchto_switch(parent) != -1 || errno != ESRCH)
		return 5;
	/* What was pending for the parent isn't for the child. */
	if (switchto_wait(&none) != -1 || errno != ETIMEDOUT)
		return 6;
	if (switchto_resume(self) != 0 || switchto_wait_until(&none) != self)
		return 7;
	return 0;
}

static void do_fork(const struct request *request)
{
	pid_t sibling = atomic_load(&seats[request->chance[0] % (uint32_t)n_seats].tid), child;
	pid_t parent = getpid();
	int status;

	child = fork();
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		mine = NULL;
		_exit(child_fault(sibling, parent));
	}
	if (child < 0)
		return;
	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			return;
	if (status)
		found("the child of a fork ended with status %#x (see child_fault())", status);
}

static void make(const struct request *request)
{
	const char *name;

	switch (request->call) {
	case SELF:
		if (switchto_self() != gettid())
			found("self() is not %d", gettid());
		break;
	case BACKEND:
		name = switchto_backend();
		if (!name || strcmp(name, backend) != 0)
			found("backend() is %s, was %s", name ? name : "NULL", backend);
		break;
	case RESUME:
		do_resume(request->whom, request->chance[1], (int)(mine - seats));
		break;
	case FORK:
		do_fork(request);
		break;
	case END:
		break;
	default:
		do_wait(request);
	}
}

static bool is_over(const struct seat *seat)
{
	if (atomic_load(&stop) || (end && now_ns() >= end))
		return true;
	return most_calls && atomic_load(&seat->done) >= (uint64_t)(most_calls + first);
}

static void unblock_signals(void)
{
	sigset_t none;

	sigemptyset(&none);
	pthread_sigmask(SIG_SETMASK, &none, NULL);
}

static void *sit(void *arg)
{
	struct seat *seat = arg;
	pid_t tid = gettid();
	struct request request;
	uint64_t number;

	atomic_store(&seat_of[tid], (uint8_t)(seat - seats + 1));
	atomic_store(&seat->pending, false);
	seat->is_registered = false;
	/* What was pending for the thread before is gone with it. */
	look_at_given(seat, seat->taken);
	atomic_store(&seat->tid, tid);
	atomic_fetch_add(&seat->life, 1);
	mine = seat;

	/* A wait that was left comes back here; what it took of resumes isn't known. */
	if (sigsetjmp(seat->out, 0)) {
		unblock_signals();
		atomic_store(&mine->pending, false);
	}
	while (!is_over(mine)) {
		number = atomic_fetch_add(&mine->done, 1);
		atomic_store(&mine->number, number);
		atomic_store(&mine->since, now_ns());
		request = request_of((uint64_t)(mine - seats), number);
		make(&request);
		mine->calls++;
		mine->is_registered = mine->is_registered || request.call != RESUME;
		atomic_store(&mine->since, 0);
		if (request.call == END)
			break;
	}
	seat = mine;
	atomic_store(&seat->since, 0);
	/* From here on a resume may find it gone. */
	atomic_fetch_add(&seat->life, 1);
	mine = NULL;
	atomic_store(&seat->ended, true);
	return NULL;
}

static void *be_silent(void *arg)
{
	atomic_store((_Atomic pid_t *)arg, gettid());
	AWAIT(atomic_load(&stop));
	return NULL;
}

/* --- the ticker -------------------------------------------------------------------------- */

static void start(pthread_t *thread, void *(*function)(void *), void *arg)
{
	int error = pthread_create(thread, NULL, function, arg);

	if (error)
		give_up(NAME ": pthread_create: wanted a thread, got %s", strerror(error));
}

static bool keep_seats(bool *is_seated)
{
	bool is_any = false;

	for (int i = 0; i < n_seats; i++) {
		if (is_seated[i] && atomic_load(&seats[i].ended)) {
			pid_t tid = atomic_load(&seats[i].tid);

			pthread_join(seats[i].thread, NULL);
			is_seated[i] = false;
			/* Not before: its TID is a live thread's until then. */
			atomic_store(&seats[i].tid, 0);
			atomic_store(&gone[atomic_fetch_add(&n_gone, 1) % GONE], tid);
		}
		if (!is_seated[i] && !is_over(&seats[i]) && (only < 0 || only == i)) {
			atomic_store(&seats[i].ended, false);
			start(&seats[i].thread, sit, &seats[i]);
			is_seated[i] = true;
		}
		is_any = is_any || is_seated[i];
	}
	return is_any;
}

/* So that every wait ends. */
static void tick(struct dice *dice)
{
	struct seat *seat = &seats[roll(dice, (uint32_t)n_seats)];
	uint32_t what = roll(dice, 16), life = atomic_load(&seat->life);
	int sig = what < 10 ? SIGUSR1 : what < 15 ? SIGUSR2 : SIGRTMIN;

	if (roll(dice, 2)) {
		do_resume(SIBLING, (uint32_t)(seat - seats), n_seats);
		return;
	}
	/* pthread_kill() needs a thread that is not joined, and only we join. */
	if (life & 1 && seat - seats >= UNDISTURBED)
		syscall(SYS_tgkill, getpid(), atomic_load(&seat->tid), sig);
}

static void watch(void)
{
	struct request request;

	for (int i = 0; i < n_seats; i++) {
		long long since = atomic_load(&seats[i].since);

		if (!since || now_ns() - since < patience * NSEC_PER_SEC)
			continue;
		fprintf(stderr, NAME ": FOUND: seat %d hangs; seed=%#llx\n", i,
			(unsigned long long)seed);
		for (int j = 0; j < n_seats; j++) {
			uint64_t number = atomic_load(&seats[j].number);

			since = atomic_load(&seats[j].since);
			request = request_of((uint64_t)j, number);
			fprintf(stderr,
				"  seat %d, thread %d, for %lld ms in call %llu: %s(%s, %s)\n", j,
				atomic_load(&seats[j].tid),
				since ? (now_ns() - since) / 1000000 : 0,
				(unsigned long long)number, call_names[request.call],
				whom_names[request.whom], when_names[request.when]);
		}
		_exit(1);
	}
}

static long number_of(const char *text, long least)
{
	char *rest;
	long number;

	errno = 0;
	number = strtol(text, &rest, 0);
	if (errno || *rest || rest == text || number < least)
		give_up(NAME ": wanted a number from %ld on, found '%s'", least, text);
	return number;
}

static void parse(int argc, char **argv)
{
	static const struct option options[] = {
		{ "seconds", required_argument, NULL, 's' },
		{ "calls", required_argument, NULL, 'c' },
		{ "threads", required_argument, NULL, 't' },
		{ "seed", required_argument, NULL, 'r' },
		{ "patience", required_argument, NULL, 'w' },
		{ "only", required_argument, NULL, 'o' },
		{ "first", required_argument, NULL, 'F' },
		{ 0 },
	};
	int option;

	while ((option = getopt_long(argc, argv, "", options, NULL)) >= 0) {
		switch (option) {
		case 's':
			seconds = (double)number_of(optarg, 1);
			break;
		case 'c':
			most_calls = number_of(optarg, 1);
			seconds = 0;
			break;
		case 't':
			n_seats = (int)number_of(optarg, 1);
			break;
		case 'r':
			seed = strtoull(optarg, NULL, 0);
			break;
		case 'w':
			patience = (int)number_of(optarg, 1);
			break;
		case 'o':
			only = number_of(optarg, 0);
			break;
		case 'F':
			first = number_of(optarg, 0);
			break;
		default:
			give_up("usage: " NAME
				" [--seconds=S | --calls=N] [--threads=N] [--seed=N]\n"
				"	[--patience=SECONDS] [--only=SEAT] [--first=N]");
		}
	}
	if (n_seats > MOST_SEATS || only >= n_seats)
		give_up(NAME ": wanted at most %d threads, and --only one of them", MOST_SEATS);
}

static void set_handlers(void)
{
	struct sigaction action = { .sa_handler = on_signal };

	/* A resume that is left in the middle could not be accounted for. */
	sigaddset(&action.sa_mask, SIGRTMIN);
	sigaction(SIGUSR1, &action, NULL);
	action.sa_flags = SA_RESTART;
	sigaction(SIGUSR2, &action, NULL);
	action.sa_flags = 0;
	action.sa_handler = HANDLERS_RUN_LATE ? SIG_IGN : on_jump;
	sigaction(SIGRTMIN, &action, NULL);
}

static int sleep_for_ever(void *arg)
{
	while (pause() < 0)
		;
	return 1;
}

int main(int argc, char **argv)
{
	struct seat sum = { 0 };
	bool is_seated[MOST_SEATS] = { false };
	_Atomic pid_t silent_tid = 0;
	pthread_t silent_thread;
	struct dice dice;

	seed = (uint64_t)now_ns() ^ (uint64_t)getpid() << 40;
	parse(argc, argv);
	backend = switchto_backend();
	if (!backend && errno == ENOSYS) {
		fprintf(stderr, NAME
			": skipped: SWITCHTO_BACKEND=swap, and this kernel has no FUTEX_SWAP\n");
		return SKIPPED;
	}
	if (!backend)
		give_up(NAME ": wanted a backend, got %s", strerror(errno));
	printf("seed=%#llx backend %s\n", (unsigned long long)seed, backend);
	fflush(stdout);

	elsewhere = start_child(sleep_for_ever, NULL);
	ticker = gettid();
	atomic_store(&seat_of[ticker], (uint8_t)(n_seats + 1));
	start(&silent_thread, be_silent, &silent_tid);
	AWAIT(atomic_load(&silent_tid));
	silent = atomic_load(&silent_tid);
	set_handlers();
	for (int i = 0; i < n_seats; i++)
		atomic_store(&seats[i].done, (uint64_t)first);
	if (seconds > 0)
		end = now_ns() + (long long)(seconds * NSEC_PER_SEC);

	dice = dice_of(seed, UINT64_MAX, 0);
	while (keep_seats(is_seated)) {
		tick(&dice);
		watch();
		nanosleep(&(struct timespec){ 0, 50000 }, NULL);
	}
	atomic_store(&stop, true);
	pthread_join(silent_thread, NULL);
	kill(elsewhere, SIGKILL);
	child_status(elsewhere);

	for (int i = 0; i < n_seats; i++) {
		sum.calls += seats[i].calls;
		sum.resumed += seats[i].resumed;
		sum.refused += seats[i].refused;
		sum.timed_out += seats[i].timed_out;
		atomic_fetch_add(&sum.handled, atomic_load(&seats[i].handled));
	}
	printf("summary seed=%#llx backend=%s calls=%ld resumed=%ld refused=%ld timed_out=%ld "
	       "handlers=%ld lives=%u\n",
	       (unsigned long long)seed, backend, sum.calls, sum.resumed, sum.refused,
	       sum.timed_out, atomic_load(&sum.handled), atomic_load(&n_gone));
	if (!sum.calls)
		give_up(NAME ": wanted calls, made none");
	return atomic_load(&failed) ? 1 : 0;
}
