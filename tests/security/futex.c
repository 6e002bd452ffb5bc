// SPDX-License-Identifier: MIT
/*
 * Whom FUTEX_SWAP wakes, be it alone or before a wait: who shares the futex word,
 * and nobody else, whatever the hint says. A hint that names a stranger, be it
 * another process's thread, another user's, one of another PID namespace, a kernel
 * thread or nobody at all, has one and the same answer, and no effect on the one it
 * names.
 *
 * Whether a task was woken is read from outside, in /proc: it sleeps on in its
 * futex(2) and has not been switched to. So all this needs root, and no library.
 *
 * Argument "timing": what a call takes by whom its hint names, for vm/run --icount,
 * where 1 ns is one instruction.
 */
#include "support.h"

#include <glob.h>

#define SHARED 0
#define PRIVATE FUTEX_PRIVATE_FLAG

#define NOBODY 65534
#define SOMEBODY_ELSE 12345

#define COUNTS "/sys/kernel/debug/futex_swap"

struct words {
	uint32_t word, neighbour;
	uint32_t own;
};

/* The same addresses in every process, each in memory of another kind. */
static struct words *private_memory, *shared_memory;

static long futex(uint32_t *word, int op, uint32_t value, const struct timespec *timeout,
		  uint32_t *word2, uint32_t val3)
{
	return syscall(SYS_futex, word, op, value, timeout, word2, val3);
}

static void *memory(int flags)
{
	void *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		give_up("mmap: wanted a page, got %s", strerror(errno));
	return at;
}

/* --- sleepers ------------------------------------------------------------------ */

enum way { BY_WAIT, BY_SWAP };

/* What a sleeper writes itself, in memory that all see. */
struct diary {
	_Atomic pid_t tid; /* by its own numbers */
	atomic_bool woken;
};

struct sleeper {
	uint32_t *word;
	int flags; /* PRIVATE or SHARED */
	enum way way;
	uid_t uid;
	pid_t pid, tid; /* by the test's own numbers */
	struct diary *diary;
};

/* What /proc says to anybody of how a task fares. */
struct glance {
	char state;
	long voluntary, involuntary;
};

static struct glance look(const struct sleeper *s)
{
	const char *path = text_of("/proc/%d/task/%d/status", (int)s->pid, (int)s->tid);
	struct glance g = { 0 };
	char text[4096], *at;

	if (!read_text(path, text, sizeof(text)))
		return g;
	at = strstr(text, "\nState:\t");
	if (at)
		g.state = at[strlen("\nState:\t")];
	at = strstr(text, "\nvoluntary_ctxt_switches:");
	if (!at || sscanf(at, " voluntary_ctxt_switches: %ld nonvoluntary_ctxt_switches: %ld",
			  &g.voluntary, &g.involuntary) != 2)
		give_up("%s: wanted the counts of switches, found '%s'", path, text);
	return g;
}

/* Asleep in a futex(2) on its word: only who may trace it gets to know that. */
static bool sleeps(const struct sleeper *s)
{
	const char *path = text_of("/proc/%d/task/%d/syscall", (int)s->pid, (int)s->tid);
	unsigned long word;
	char text[256];
	long nr;

	return read_text(path, text, sizeof(text)) && sscanf(text, "%ld %lx", &nr, &word) == 2 &&
	       nr == SYS_futex && word == (uintptr_t)s->word && look(s).state == 'S';
}

static void await_sleep(const struct sleeper *s)
{
	AWAIT(sleeps(s));
}

static void sleep_on(struct sleeper *s)
{
	atomic_store(&s->diary->tid, gettid());
	if (s->way == BY_WAIT)
		futex(s->word, FUTEX_WAIT | s->flags, 0, NULL, NULL, 0);
	else
		futex(s->word, FUTEX_SWAP | s->flags, 0, NULL, NULL, 0);
	atomic_store(&s->diary->woken, true);
}

static void make_diary(struct sleeper *s)
{
	s->diary = memory(MAP_SHARED);
}

static int sleep_as_process(void *arg)
{
	struct sleeper *s = arg;

	alarm(0);
	if (s->uid && setresuid(s->uid, s->uid, s->uid))
		give_up("setresuid: wanted user %d, got %s", (int)s->uid, strerror(errno));
	/* Also after a change of user, for it not to outlive the tests. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	sleep_on(s);
	return 0;
}

static void process_start(struct sleeper *s)
{
	make_diary(s);
	s->pid = s->tid = start_child(sleep_as_process, s);
	await_sleep(s);
}

/* A second thread of a process, of which the first waits for it. */
static void *sleep_as_second(void *arg)
{
	sleep_on(arg);
	return NULL;
}

static int sleep_in_second(void *arg)
{
	pthread_t thread;

	alarm(0);
	if (pthread_create(&thread, NULL, sleep_as_second, arg))
		give_up("pthread_create: wanted a thread");
	pthread_join(thread, NULL);
	return 0;
}

static void second_start(struct sleeper *s)
{
	make_diary(s);
	s->pid = start_child(sleep_in_second, s);
	AWAIT(atomic_load(&s->diary->tid));
	s->tid = atomic_load(&s->diary->tid);
	await_sleep(s);
}

static int start_in_namespace(void *arg)
{
	struct sleeper *s = arg;

	if (unshare(CLONE_NEWPID))
		give_up("unshare: wanted a PID namespace, got %s", strerror(errno));
	s->diary[1].tid = start_child(sleep_as_process, s);
	child_status(s->diary[1].tid);
	return 0;
}

/* Number 1 in a PID namespace of its own. */
static pid_t namespace_start(struct sleeper *s)
{
	pid_t between;

	make_diary(s);
	between = start_child(start_in_namespace, s);
	AWAIT(atomic_load(&s->diary[1].tid));
	s->pid = s->tid = atomic_load(&s->diary[1].tid);
	await_sleep(s);
	return between;
}

static void process_end(pid_t pid)
{
	kill(pid, SIGKILL);
	child_status(pid);
}

/* A thread of the test's own process. */
struct own {
	struct sleeper s;
	struct worker w;
};

static void own_body(struct worker *w)
{
	sleep_on(w->arg);
}

static void own_start(struct own *o)
{
	make_diary(&o->s);
	worker_start(&o->w, own_body, &o->s);
	o->s.pid = getpid();
	o->s.tid = o->w.tid;
	await_sleep(&o->s);
}

static void own_end(struct own *o, struct verdict *v)
{
	CHECK_EQ(v, futex(o->s.word, FUTEX_WAKE | o->s.flags, 1, NULL, NULL, 0), 1);
	workers_join(&o->w, 1, v);
	munmap(o->s.diary, 4096);
}

/* --- calls ---------------------------------------------------------------------- */

static const struct timespec soon = { 0, 2000000 };

/* Each with @word as what is to be woken. They differ in how the kernel gets there. */
enum call {
	WAKE_ONLY,    /* no first word */
	SWAP,	      /* times out */
	SWAP_CHANGED, /* EAGAIN */
	WAIT_ONLY,    /* no second word: times out; refused with a hint, which names nobody then */
	CALLS
};

static long do_call(enum call call, struct words *m, uint32_t *word, int flags, uint32_t hint)
{
	switch (call) {
	case WAKE_ONLY:
		return futex(NULL, FUTEX_SWAP | flags, 0, NULL, word, hint);
	case SWAP:
		return futex(&m->own, FUTEX_SWAP | flags, 0, &soon, word, hint);
	case SWAP_CHANGED:
		return futex(&m->own, FUTEX_SWAP | flags, 1, NULL, word, hint);
	default:
		return futex(&m->own, FUTEX_SWAP | flags, 0, &soon, NULL, hint);
	}
}

/* The answer of a call that has nobody to wake. */
static void check_nobody(struct verdict *v, enum call call, uint32_t hint, long answer)
{
	const int errors[] = { 0, ETIMEDOUT, EAGAIN, hint ? EINVAL : ETIMEDOUT };
	int error = errno;

	if (call == WAKE_ONLY) {
		CHECK_EQ(v, answer, 0);
	} else {
		CHECK_EQ(v, answer, -1);
		CHECK_EQ(v, error, errors[call]);
	}
}

/* --- who shares the word ---------------------------------------------------------- */

struct relation {
	const char *name;
	bool shared_memory, process, neighbour;
	int sleeps, calls; /* PRIVATE or SHARED */
	bool same;	   /* is it the same futex? */
};

static const struct relation relations[] = {
	{ "thread, private", false, false, false, PRIVATE, PRIVATE, true },
	{ "thread, shared", false, false, false, SHARED, SHARED, true },
	{ "process, shared", true, true, false, SHARED, SHARED, true },
	{ "thread, neighbouring word, private", false, false, true, PRIVATE, PRIVATE, false },
	{ "thread, neighbouring word, shared", true, false, true, SHARED, SHARED, false },
	{ "thread, sleeps private, called shared", true, false, false, PRIVATE, SHARED, false },
	{ "thread, sleeps shared, called private", true, false, false, SHARED, PRIVATE, false },
	{ "process, its own memory, private", false, true, false, PRIVATE, PRIVATE, false },
	{ "process, its own memory, shared", false, true, false, SHARED, SHARED, false },
	{ "process, shared memory, private", true, true, false, PRIVATE, PRIVATE, false },
	{ "process, sleeps private, called shared", true, true, false, PRIVATE, SHARED, false },
	{ "process, sleeps shared, called private", true, true, false, SHARED, PRIVATE, false },
	{ "process, neighbouring word, shared", true, true, true, SHARED, SHARED, false },
};

static void relation_start(const struct relation *r, struct own *o)
{
	if (r->process)
		process_start(&o->s);
	else
		own_start(o);
}

/* The call wakes it, and the next one needs another. */
static void check_wakes(struct verdict *v, const struct relation *r, struct own *o, enum call call,
			long answer)
{
	if (call == WAKE_ONLY)
		CHECK_EQ(v, answer, 1);
	AWAIT(atomic_load(&o->s.diary->woken));
	if (r->process)
		child_status(o->s.pid);
	else
		workers_join(&o->w, 1, v);
	munmap(o->s.diary, 4096);
	relation_start(r, o);
}

static void check_relation(struct verdict *v, const struct relation *r, enum way way)
{
	struct words *m = r->shared_memory ? shared_memory : private_memory;
	struct own o = { .s = { &m->word, r->sleeps, way, 0, 0, 0, NULL } };
	uint32_t *called = r->neighbour ? &m->neighbour : &m->word;
	struct glance before, after;

	relation_start(r, &o);
	for (int call = 0; call < CALLS; call++) {
		/* With a hint that is right but for the futex, and without. */
		for (int hinted = 0; hinted < 2; hinted++) {
			uint32_t hint = hinted ? (uint32_t)o.s.tid : 0;
			long answer;

			before = look(&o.s);
			answer = do_call(call, m, called, r->calls, hint);
			if (r->same && call != WAIT_ONLY) {
				check_wakes(v, r, &o, call, answer);
				continue;
			}
			check_nobody(v, call, hint, answer);
			after = look(&o.s);
			CHECK_EQ(v, after.state, 'S');
			CHECK_EQ(v, after.voluntary, before.voluntary);
			CHECK(v, !atomic_load(&o.s.diary->woken));
		}
	}
	if (r->process) {
		process_end(o.s.pid);
		munmap(o.s.diary, 4096);
	} else {
		own_end(&o, v);
	}
	if (atomic_load(&v->failed))
		print_error("%s, asleep in %s\n", r->name,
			    way == BY_WAIT ? "FUTEX_WAIT" : "FUTEX_SWAP");
}

TEST(only_who_shares_the_word)
{
	for (unsigned int i = 0; i < sizeof(relations) / sizeof(relations[0]); i++) {
		check_relation(v, &relations[i], BY_WAIT);
		check_relation(v, &relations[i], BY_SWAP);
		verdict_assert(v);
	}
}

/* --- hints that name a stranger ---------------------------------------------------- */

#define MOST_STRANGERS 16

static struct {
	struct stranger {
		const char *name;
		uint32_t hint;
		struct sleeper s; /* .pid 0: not to be looked at */
	} who[MOST_STRANGERS];
	int n;
	pid_t pids[MOST_STRANGERS];
	int processes;
	struct own own;
} strangers;

static struct stranger *add(const char *name, uint32_t hint)
{
	struct stranger *s = &strangers.who[strangers.n++];

	*s = (struct stranger){ name,
				hint,
				{ &private_memory->word, PRIVATE, BY_SWAP, 0, 0, 0, NULL } };
	return s;
}

static void is_process(struct stranger *s, pid_t pid)
{
	s->hint = (uint32_t)s->s.tid;
	strangers.pids[strangers.processes++] = pid;
}

static int ends_at_once(void *arg)
{
	return 0;
}

/* The first is nobody: what the others are compared with. */
static void strangers_start(void)
{
	struct stranger *s;
	pid_t gone;

	watchdog_start("strangers");
	gone = start_child(ends_at_once, NULL);
	child_status(gone);
	if (kill(gone, 0) == 0 || errno != ESRCH)
		give_up("kill: wanted nobody at PID %d, found somebody", (int)gone);
	add("of a process that has ended", (uint32_t)gone);
	add("beyond all PIDs", FUTEX_TID_MASK);
	add("of process 1", 1);
	add("of a kernel thread", 2);

	s = add("of a process", 0);
	process_start(&s->s);
	is_process(s, s->s.pid);
	s = add("of a process's second thread", 0);
	second_start(&s->s);
	is_process(s, s->s.pid);
	s = add("of a process in FUTEX_WAIT", 0);
	s->s.way = BY_WAIT;
	process_start(&s->s);
	is_process(s, s->s.pid);
	s = add("of another user's process", 0);
	s->s.uid = SOMEBODY_ELSE;
	process_start(&s->s);
	is_process(s, s->s.pid);
	s = add("of a process in shared memory", 0);
	s->s.word = &shared_memory->word;
	s->s.flags = SHARED;
	process_start(&s->s);
	is_process(s, s->s.pid);
	s = add("of a process in another PID namespace", 0);
	is_process(s, namespace_start(&s->s));
	add("of the same by its own number", (uint32_t)atomic_load(&s->s.diary->tid));

	/* Of the same process, unless the calls are another's, but on another word. */
	s = add("of a thread on another word", 0);
	strangers.own.s =
		(struct sleeper){ &private_memory->neighbour, PRIVATE, BY_SWAP, 0, 0, 0, NULL };
	own_start(&strangers.own);
	s->s = strangers.own.s;
	s->hint = (uint32_t)s->s.tid;
	watchdog_stop();
}

static int strangers_end(void)
{
	struct verdict v = { 0 };

	for (int i = 0; i < strangers.processes; i++)
		process_end(strangers.pids[i]);
	own_end(&strangers.own, &v);
	return verdict_status(&v);
}

/* Who makes the calls, and what came of them: all in memory that both see. */
struct caller {
	uid_t uid;
	int namespaces;		/* for unshare(2) */
	_Atomic int turn, done; /* call number turn - 1 is to be made, was made */
	struct verdict v;
	struct answer {
		long ret;
		int error;
		long switches;
	} answers[MOST_STRANGERS][CALLS + 1];
};

_Static_assert(sizeof(struct caller) <= 4096, "a page is what memory() gives");

/* Call number CALLS is one with a waiter to wake. */
static void *own_waiter(void *arg)
{
	futex(&private_memory->word, FUTEX_WAIT | PRIVATE, 0, NULL, NULL, 0);
	return arg;
}

static long voluntary_switches(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return u.ru_nvcsw;
}

static void make_call(struct caller *c, int who, int call)
{
	struct answer *a = &c->answers[who][call];
	uint32_t hint = strangers.who[who].hint;
	pthread_t thread;

	if (call < CALLS) {
		a->switches = -voluntary_switches();
		errno = 0;
		a->ret = do_call(call, private_memory, &private_memory->word, PRIVATE, hint);
		a->error = errno;
		a->switches += voluntary_switches();
		/* Of calls that sleep the number depends on when the timer goes off. */
		if (call == SWAP || call == WAIT_ONLY)
			a->switches = 0;
		return;
	}

	/* The bucket is not empty, so the kernel follows the hint. */
	if (pthread_create(&thread, NULL, own_waiter, NULL))
		give_up("pthread_create: wanted a thread");
	do {
		errno = 0;
		a->ret = do_call(WAKE_ONLY, private_memory, &private_memory->word, PRIVATE, hint);
	} while (a->ret == 0);
	a->error = errno;
	pthread_join(thread, NULL);
}

static int caller_main(void *arg)
{
	struct caller *c = arg;
	int turn = 0;

	if (c->uid && setresuid(c->uid, c->uid, c->uid))
		give_up("setresuid: wanted user %d, got %s", (int)c->uid, strerror(errno));
	while (turn < strangers.n * (CALLS + 1)) {
		AWAIT(atomic_load(&c->turn) > turn);
		make_call(c, turn / (CALLS + 1), turn % (CALLS + 1));
		atomic_store(&c->done, ++turn);
	}
	return 0;
}

static int caller_in_namespaces(void *arg)
{
	struct caller *c = arg;

	if (c->uid && setresuid(c->uid, c->uid, c->uid))
		give_up("setresuid: wanted user %d, got %s", (int)c->uid, strerror(errno));
	c->uid = 0;
	if (unshare(c->namespaces))
		give_up("unshare: wanted namespaces, got %s", strerror(errno));
	return run_child(caller_main, c);
}

/* How the kernel's own counters have changed, as one line. */
static void count_since(char *line, size_t size, const char *before, const char *after)
{
	size_t used = 0;
	char name[32];
	long was, is;
	int length;

	line[0] = '\0';
	while (sscanf(before, "%31s %ld", name, &was) == 2 && sscanf(after, "%*s %ld", &is) == 1) {
		length = snprintf(line + used, size - used, "%s +%ld, ", name, is - was);
		if (is != was && used + (size_t)length < size)
			used += (size_t)length;
		line[used] = '\0';
		before = strchr(before, '\n') + 1;
		after = strchr(after, '\n') + 1;
	}
}

static void check_same_answer(struct verdict *v, struct caller *c, int who, int call)
{
	struct answer *a = &c->answers[who][call], *nobody = &c->answers[0][call];

	CHECK_EQ(v, a->ret, nobody->ret);
	CHECK_EQ(v, a->error, nobody->error);
	CHECK_EQ(v, a->switches, nobody->switches);
	if (call < CALLS) {
		errno = a->error;
		check_nobody(v, call, strangers.who[who].hint, a->ret);
	} else {
		CHECK_EQ(v, a->ret, 1);
	}
}

static void calls_of(const char *name, uid_t uid, int namespaces)
{
	static char counted[CALLS][200];
	char before_text[2048], after_text[2048], line[200];
	struct caller *c = memory(MAP_SHARED);
	struct glance before[MOST_STRANGERS], after;
	struct verdict v = { 0 };
	int turn = 0;
	pid_t pid;

	watchdog_start(name);
	c->uid = uid;
	c->namespaces = namespaces;
	pid = start_child(namespaces ? caller_in_namespaces : caller_main, c);
	for (int who = 0; who < strangers.n; who++) {
		struct stranger *s = &strangers.who[who];

		for (int i = 0; i < strangers.n; i++)
			if (strangers.who[i].s.pid)
				before[i] = look(&strangers.who[i].s);
		for (int call = 0; call <= CALLS; call++) {
			if (!read_text(COUNTS, before_text, sizeof(before_text)))
				give_up("%s: wanted the counts, got %s", COUNTS, strerror(errno));
			atomic_store(&c->turn, ++turn);
			AWAIT(atomic_load(&c->done) == turn);
			read_text(COUNTS, after_text, sizeof(after_text));
			check_same_answer(&v, c, who, call);
			count_since(line, sizeof(line), before_text, after_text);
			if (call < CALLS && who == 0)
				strcpy(counted[call], line);
			if (call < CALLS && strcmp(line, counted[call]) != 0) {
				print_error("counts: %sfor nobody: %s\n", line, counted[call]);
				CHECK(&v, !"the same counts");
			}
		}
		for (int i = 0; i < strangers.n; i++) {
			if (!strangers.who[i].s.pid)
				continue;
			after = look(&strangers.who[i].s);
			CHECK_EQ(&v, after.state, 'S');
			CHECK_EQ(&v, after.voluntary, before[i].voluntary);
			CHECK_EQ(&v, after.involuntary, before[i].involuntary);
			CHECK(&v, sleeps(&strangers.who[i].s));
			CHECK(&v, !atomic_load(&strangers.who[i].s.diary->woken));
		}
		if (atomic_load(&v.failed)) {
			print_error("%s: hint %s\n", name, s->name);
			process_end(pid);
			verdict_assert(&v);
		}
	}
	assert_int_equal(child_status(pid), 0);
	munmap(c, 4096);
	watchdog_stop();
}

TEST_IN(hints, hint_of_a_stranger_by_root)
{
	calls_of("root", 0, 0);
}

TEST_IN(hints, hint_of_a_stranger_by_a_user)
{
	calls_of("a user", NOBODY, 0);
}

/* There the numbers are others: 1 and 2 are the caller and its thread. */
TEST_IN(hints, hint_of_a_stranger_in_a_pid_namespace)
{
	calls_of("root in a PID namespace", 0, CLONE_NEWPID);
	calls_of("a user in a user and PID namespace", NOBODY, CLONE_NEWUSER | CLONE_NEWPID);
}

/* The counts are of the whole machine, so they are not for everybody. */
static int reads_counts_as_user(void *arg)
{
	if (setresuid(NOBODY, NOBODY, NOBODY))
		give_up("setresuid: wanted user %d, got %s", NOBODY, strerror(errno));
	if (open(COUNTS, O_RDONLY | O_CLOEXEC) >= 0 || errno != EACCES)
		give_up("%s: wanted it closed to users (EACCES), it opened or said %s", COUNTS,
			strerror(errno));
	return 0;
}

TEST(counts_are_not_for_users)
{
	struct stat counts;
	char text[2048];

	assert_true(read_text(COUNTS, text, sizeof(text)));
	/* Its own, for debugfs may be mounted for everybody. */
	assert_int_equal(stat(COUNTS, &counts), 0);
	assert_int_equal(counts.st_mode & 07777, 0400);
	assert_int_equal(run_child(reads_counts_as_user, NULL), 0);
}

/* --- what a swap keeps --------------------------------------------------------------- */

#define CROWD 2000
#define CROWD_STACK (64 << 10)

static uint32_t crowd_word;
static atomic_uint crowd_ready, crowd_done;
static atomic_bool crowd_go, crowd_over;

/* Asleep before and after its one swap, which is all that asks for memory between. */
static void *crowd_body(void *arg)
{
	uint32_t own = 0;

	atomic_fetch_add(&crowd_ready, 1);
	while (!atomic_load(&crowd_go))
		futex(&crowd_word, FUTEX_WAIT | PRIVATE, 0, NULL, NULL, 0);
	futex(&own, FUTEX_SWAP | PRIVATE, 1, NULL, &own, (uint32_t)gettid());
	atomic_fetch_add(&crowd_done, 1);
	while (!atomic_load(&crowd_over))
		futex(&crowd_word, FUTEX_WAIT | PRIVATE, 1, NULL, NULL, 0);
	return arg;
}

static void crowd_wake(uint32_t value)
{
	__atomic_store_n(&crowd_word, value, __ATOMIC_RELEASE);
	futex(&crowd_word, FUTEX_WAKE | PRIVATE, CROWD, NULL, NULL, 0);
}

/*
 * Bytes of small objects that are charged to @group, or, without one, of the machine: those of 192
 * bytes, and of 256 as on Linux 7.3 with PREEMPT_RT.
 */
static long long kept_bytes(const char *group)
{
	long long bytes = 0, sum = 0, lines = 0, of;
	const char *path = group[0] ? text_of("%s/memory.stat", group) : "/proc/slabinfo";
	FILE *file = fopen(path, "re");
	char *line = NULL;
	size_t size = 0;

	if (!file)
		give_up("%s: wanted to read it, got %s", path, strerror(errno));
	while (getline(&line, &size, file) > 0) {
		if (sscanf(line, "slab_unreclaimable %lld", &bytes) == 1)
			sum += bytes;
		else if ((sscanf(line, "kmalloc-%lld %lld", &of, &bytes) == 2 ||
			  sscanf(line, "kmalloc-cg-%lld %lld", &of, &bytes) == 2) &&
			 (of == 192 || of == 256))
			sum += bytes * of;
		else
			continue;
		lines++;
	}
	free(line);
	fclose(file);
	if (!lines)
		give_up("%s: wanted slab_unreclaimable or kmalloc-192, found neither", path);
	return sum;
}

/* Has the allocator give back what is free; KASAN keeps that as well, to see who uses it. */
static void shrink_caches(void)
{
	glob_t found;

	if (glob("/sys/kernel/slab/*kmalloc-*/shrink", 0, NULL, &found))
		return;
	for (size_t i = 0; i < found.gl_pathc; i++)
		write_text(found.gl_pathv[i], "1");
	globfree(&found);
}

static bool comes_down_to(const char *group, long long most)
{
	const struct timespec pause = { 0, 100000000 };

	for (int i = 0; i < 300; i++) {
		shrink_caches();
		if (kept_bytes(group) < most)
			return true;
		nanosleep(&pause, NULL);
	}
	return false;
}

/* The kernel sums up what is charged to a group every two seconds. */
static long long settled_bytes(const char *group)
{
	const struct timespec time = { 2, 500000000 };

	if (group[0])
		nanosleep(&time, NULL);
	return kept_bytes(group);
}

/* So many lives of a process, each of which swaps once and then calls execve(). */
#define EXECS "1000"

static int begin_exec_chain(void *arg)
{
	char path[300];
	ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - sizeof("exec_chain"));

	if (length < 0)
		give_up("/proc/self/exe: wanted its path, got %s", strerror(errno));
	path[length] = '\0';
	strcpy(strrchr(path, '/') + 1, "exec_chain");
	execl(path, path, EXECS, (char *)NULL);
	give_up("%s: wanted to run it, got %s", path, strerror(errno));
}

static int crowd_main(void *arg)
{
	/*
	 * A page of 21 objects more or less for each list that the slab keeps; and
	 * what the allocator adds to each, with KASAN more than 64 bytes. A
	 * kernel for one CPU keeps less, as its locks take no memory.
	 */
	const long long all = CROWD * 192LL, slack = all / 3;
	static pthread_t threads[CROWD];
	const char *group = arg;
	pthread_attr_t attributes;
	struct verdict v = { 0 };
	long long before, kept;

	if (group[0] && !write_text(text_of("%s/cgroup.procs", group), "0"))
		give_up("%s: wanted to enter it, got %s", group, strerror(errno));
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, CROWD_STACK);
	for (int i = 0; i < CROWD; i++)
		if (pthread_create(&threads[i], &attributes, crowd_body, NULL))
			give_up("pthread_create: wanted %d threads, got %d", CROWD, i);
	AWAIT(atomic_load(&crowd_ready) == CROWD);
	before = settled_bytes(group);
	atomic_store(&crowd_go, true);
	crowd_wake(1);
	AWAIT(atomic_load(&crowd_done) == CROWD);
	kept = settled_bytes(group) - before;
	CHECK(&v, kept > (sysconf(_SC_NPROCESSORS_CONF) > 1 ? all - slack : all / 2));
	CHECK(&v, kept < 2 * all);
	atomic_store(&crowd_over, true);
	crowd_wake(2);
	for (int i = 0; i < CROWD; i++)
		pthread_join(threads[i], NULL);
	print_message("%d threads that have swapped keep %lld bytes each, %s\n", CROWD,
		      kept / CROWD,
		      group[0] ? "charged to their control group" : "by /proc/slabinfo");
	/* The kernel frees it some seconds after the last reader. */
	CHECK(&v, comes_down_to(group, before + slack));
	/* The kernel with such groups is the debug one, to which an exec is long work. */
	if (group[0])
		return verdict_status(&v);
	before = kept_bytes(group);
	CHECK_EQ(&v, run_child(begin_exec_chain, NULL), 0);
	/* Were it kept, that would be half of all. */
	CHECK(&v, comes_down_to(group, before + slack));
	return verdict_status(&v);
}

#define ROOT "/sys/fs/cgroup"

TEST_IN(kept, kept_memory_is_bounded_charged_and_freed)
{
	char group[100] = "", text[300];
	int status;

	/* A kernel without CONFIG_MEMCG has nobody to charge. */
	if (read_text(ROOT "/cgroup.controllers", text, sizeof(text)) && strstr(text, "memory")) {
		snprintf(group, sizeof(group), ROOT "/security.%d", (int)getpid());
		if (!write_text(ROOT "/cgroup.subtree_control", "+memory") || mkdir(group, 0755))
			give_up(ROOT ": wanted a control group with +memory, got %s",
				strerror(errno));
	}
	status = run_child(crowd_main, group);
	if (group[0])
		rmdir(group);
	assert_int_equal(status, 0);
}

/* --- timing ------------------------------------------------------------------------- */

#define FOREIGN 1000
#define REPEATS 5
#define CALLS_PER_REPEAT 200

static void *foreign_body(void *arg)
{
	uint32_t own = 0;

	*(_Atomic pid_t *)arg = gettid();
	futex(&own, FUTEX_SWAP | PRIVATE, 0, NULL, NULL, 0);
	return NULL;
}

static int foreign_main(void *arg)
{
	pthread_attr_t attributes;
	pthread_t thread;

	alarm(0);
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, CROWD_STACK);
	for (int i = 0; i < FOREIGN; i++)
		if (pthread_create(&thread, &attributes, foreign_body, (_Atomic pid_t *)arg + i))
			give_up("pthread_create: wanted %d threads, got %d", FOREIGN, i);
	pthread_join(thread, NULL);
	return 0;
}

/* For each bucket of the futex hash to hold somebody, or no hint is followed. */
static void *filler_body(void *arg)
{
	uint32_t own = 0;

	atomic_fetch_add(&crowd_ready, 1);
	futex(&own, FUTEX_WAIT | PRIVATE, 0, NULL, NULL, 0);
	return arg;
}

static double ns_per_call(uint32_t hint)
{
	double best = 1e9, ns;
	long long before;

	for (int i = 0; i < REPEATS; i++) {
		before = now_ns();
		for (int j = 0; j < CALLS_PER_REPEAT; j++)
			futex(NULL, FUTEX_SWAP | PRIVATE, 0, NULL, &private_memory->word, hint);
		ns = (double)(now_ns() - before) / CALLS_PER_REPEAT;
		best = ns < best ? ns : best;
	}
	return best;
}

static int by_size(const void *a, const void *b)
{
	return (*(const double *)a > *(const double *)b) -
	       (*(const double *)a < *(const double *)b);
}

static int timing(void)
{
	_Atomic pid_t *foreign = map_shared(-1, FOREIGN * sizeof(pid_t));
	const struct timespec moment = { 0, 100000000 };
	static double ns[FOREIGN];
	pthread_attr_t attributes;
	pthread_t thread;
	pid_t gone, pid;

	gone = start_child(ends_at_once, NULL);
	child_status(gone);
	pid = start_child(foreign_main, foreign);
	AWAIT(atomic_load(&foreign[FOREIGN - 1]));
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, CROWD_STACK);
	for (int i = 0; i < CROWD; i++)
		if (pthread_create(&thread, &attributes, filler_body, NULL))
			give_up("pthread_create: wanted %d threads, got %d", CROWD, i);
	AWAIT(atomic_load(&crowd_ready) == CROWD);
	nanosleep(&moment, NULL);

	printf("FUTEX_SWAP without a wait that wakes nobody, ns per call "
	       "(vm/run --icount: instructions)\n");
	printf("%8.1f  no hint\n", ns_per_call(0));
	printf("%8.1f  hint: ended process\n", ns_per_call((uint32_t)gone));
	printf("%8.1f  hint: beyond all PIDs\n", ns_per_call(FUTEX_TID_MASK));
	printf("%8.1f  hint: process 1\n", ns_per_call(1));
	printf("%8.1f  hint: kernel thread\n", ns_per_call(2));
	for (int i = 0; i < FOREIGN; i++)
		ns[i] = ns_per_call((uint32_t)atomic_load(&foreign[i]));
	qsort(ns, FOREIGN, sizeof(ns[0]), by_size);
	printf("%8.1f  hint: another process's parked thread, least of %d\n", ns[0], FOREIGN);
	printf("%8.1f  the same, median\n", ns[FOREIGN / 2]);
	printf("%8.1f  the same, 20th from the top\n", ns[FOREIGN - 20]);
	printf("%8.1f  the same, most\n", ns[FOREIGN - 1]);
	process_end(pid);
	return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
	const char *part = argc > 1 ? argv[1] : "";
	int failed;

	if (argc > 2 || (*part && strcmp(part, "timing") != 0 && strcmp(part, "memory") != 0)) {
		fprintf(stderr, "usage: security_futex [timing | memory]\n");
		return EXIT_FAILURE;
	}
	if (lacks_swap("security_futex"))
		return SKIPPED;
	if (geteuid() != 0) {
		fprintf(stderr, "security_futex: skipped: needs root, who may look at the tasks of "
				"others (vm/test runs it as root)\n");
		return SKIPPED;
	}
	private_memory = memory(MAP_PRIVATE);
	shared_memory = memory(MAP_SHARED);
	if (strcmp(part, "timing") == 0)
		return timing();
	failed = run_watched_group("kept");
	if (*part)
		return failed;
	failed |= run_watched_group(NULL);
	strangers_start();
	failed |= run_watched_group("hints");
	return failed | strangers_end();
}
