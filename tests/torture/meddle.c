// SPDX-License-Identifier: MIT
/*
 * What happens to the threads, from within their process and from without. Each
 * meddler does one thing, rests, and does it again; the rests are such that it
 * takes up little time also where all is slow. And there are calm times, in which
 * all rest and all threads are equals again: then most switches are hand-offs.
 */
#include "files.h"
#include "torture.h"

#include <switchto/switchto.h>

#include <linux/sched.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/time.h>

#define MS 1000000LL

static void did(enum deed what)
{
	atomic_fetch_add_explicit(&shared->deeds[what], 1, memory_order_relaxed);
}

static bool over(void)
{
	return atomic_load(&shared->over);
}

/* --- who ------------------------------------------------------------------------ */

static unsigned int roll(uint64_t *dice, unsigned int sides)
{
	return below(next_random(dice), sides);
}

/* A thread of some party, or 0 if there is none just now. It may end any time. */
static pid_t somebody(uint64_t *dice)
{
	struct party *party = &shared->party[roll(dice, shared->parties)];

	return atomic_load(&party->seats[roll(dice, party->plan.seats)].tid);
}

/*
 * The same, or mostly all threads of one party: a hand-off is between equals, so
 * if each were changed for itself there would be few left.
 */
static unsigned int some(uint64_t *dice, pid_t *tids)
{
	struct party *party = &shared->party[roll(dice, shared->parties)];

	if (!roll(dice, 8)) {
		tids[0] = somebody(dice);
		return 1;
	}
	for (unsigned int i = 0; i < party->plan.seats; i++)
		tids[i] = atomic_load(&party->seats[i].tid);
	return party->plan.seats;
}

static void for_all(void (*change)(pid_t tid))
{
	for (unsigned int p = 0; p < shared->parties; p++) {
		for (unsigned int i = 0; i < shared->party[p].plan.seats; i++) {
			pid_t tid = atomic_load(&shared->party[p].seats[i].tid);

			if (tid)
				change(tid);
		}
	}
}

static bool allowed(int result, const char *what)
{
	if (result == 0 || errno == ESRCH)
		return true;
	left_out(what);
	return false;
}

/* --- in the process of the threads ------------------------------------------------ */

/* How fast its CPU has to be at most, of 1,024. Without CONFIG_UCLAMP_TASK the kernel refuses. */
static void clamp(pid_t tid, uint32_t most)
{
	const struct {
		uint32_t size, policy;
		uint64_t flags, unused[4];
		uint32_t least, most;
	} attr = { .size = sizeof(attr),
		   .flags = SCHED_FLAG_KEEP_ALL | SCHED_FLAG_UTIL_CLAMP_MAX,
		   .most = most };

	syscall(SYS_sched_setattr, tid, &attr, 0);
}

static bool change_nice(uint64_t *dice)
{
	static const int values[] = { 0, 0, 0, 5, 5, -5, 10, 19 };
	pid_t tids[MOST_SEATS];
	unsigned int n = some(dice, tids);
	int value = values[roll(dice, 8)];

	for (unsigned int i = 0; i < n; i++) {
		if (!tids[i])
			continue;
		if (!allowed(setpriority(PRIO_PROCESS, (id_t)tids[i], value), "nice values"))
			return false;
		clamp(tids[i], roll(dice, 1025));
	}
	did(CHANGES);
	return true;
}

static void undo_nice(pid_t tid)
{
	setpriority(PRIO_PROCESS, (id_t)tid, 0);
	clamp(tid, 1024);
}

static bool change_affinity(uint64_t *dice)
{
	unsigned int cpus = (unsigned int)sysconf(_SC_NPROCESSORS_CONF);
	pid_t tids[MOST_SEATS];
	unsigned int n = some(dice, tids);
	cpu_set_t set;

	CPU_ZERO(&set);
	if (roll(dice, 2))
		CPU_SET(roll(dice, cpus), &set);
	else
		for (unsigned int i = 0; i < cpus; i++)
			CPU_SET(i, &set);
	/* EINVAL: of these CPUs none is there. */
	for (unsigned int i = 0; i < n; i++)
		if (tids[i] && sched_setaffinity(tids[i], sizeof(set), &set) && errno != EINVAL &&
		    !allowed(-1, "affinity"))
			return false;
	did(CHANGES);
	return true;
}

static void undo_affinity(pid_t tid)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	for (int i = 0; i < sysconf(_SC_NPROCESSORS_CONF); i++)
		CPU_SET(i, &set);
	sched_setaffinity(tid, sizeof(set), &set);
}

static bool change_class(uint64_t *dice)
{
	static const int policies[] = { SCHED_OTHER, SCHED_OTHER, SCHED_BATCH, SCHED_IDLE };
	const struct sched_param none = { 0 }, lowest = { 1 };
	pid_t tid = somebody(dice);

	if (!tid)
		return true;
	/* Not for long: a party of them leaves nothing to anybody else. */
	if (!roll(dice, 3)) {
		if (!allowed(sched_setscheduler(tid, roll(dice, 2) ? SCHED_FIFO : SCHED_RR,
						&lowest),
			     "real-time classes"))
			return false;
		pause_ns(2 * MS);
	}
	did(CHANGES);
	return allowed(sched_setscheduler(tid, policies[roll(dice, 4)], &none), "classes");
}

static void undo_class(pid_t tid)
{
	const struct sched_param none = { 0 };

	sched_setscheduler(tid, SCHED_OTHER, &none);
}

static bool send_signal(uint64_t *dice)
{
	pid_t tid = somebody(dice);

	if (tid && !syscall(SYS_tgkill, getpid(), tid, roll(dice, 2) ? SIGUSR1 : SIGUSR2))
		did(SIGNALS);
	return true;
}

static bool hog(uint64_t *dice)
{
	long long end = now_ns() + (2 + roll(dice, 10)) * MS;

	while (now_ns() < end && !over())
		;
	return true;
}

static char group[256];
#define ROOT "/sys/fs/cgroup"

/* Where threads go; the last one is empty, see make_groups(). */
static const char *const groups[] = { "", "/a", "/b", "/b/c", "/quota" };

static const char *in_group(const char *sub, const char *file)
{
	return text_of("%s%s%s", group, sub, file);
}

static bool make_groups(void)
{
	if (!write_text(ROOT "/cgroup.subtree_control", "+cpu"))
		return false;
	snprintf(group, sizeof(group), ROOT "/torture.%d", getpid());
	for (int i = 0; i < 5; i++) {
		if (mkdir(in_group(groups[i], ""), 0755))
			return false;
		if (i && !write_text(in_group(groups[i], "/cgroup.type"), "threaded"))
			return false;
	}
	if (!write_text(in_group("", "/cgroup.procs"), "0"))
		return false;
	for (int i = 0; i < 3; i += 2)
		if (!write_text(in_group(groups[i], "/cgroup.subtree_control"), "+cpu"))
			return false;

	/*
	 * The first quota in the system and the end of the last one patch the
	 * code of the scheduler, by way of int3. In QEMU 7.2's TCG with several
	 * CPUs, one was seen to execute that int3 when it was gone from memory
	 * already, with interrupts off, so before the other could be told that
	 * all CPUs are past it; the kernel can only oops. So one quota is there
	 * from before the first switch to after the last.
	 */
	return write_text(in_group("/quota", "/cpu.max"), "10000 10000");
}

static void remove_groups(void)
{
	if (!group[0])
		return;
	write_text(ROOT "/cgroup.procs", "0");
	for (int i = 4; i >= 0; i--) {
		/* Whoever ended in it may be on the way out for a moment. */
		for (int try = 0; rmdir(in_group(groups[i], "")) && errno == EBUSY && try < 100;
		     try++)
			pause_ns(10 * MS);
	}
}

static bool change_group(uint64_t *dice)
{
	pid_t tids[MOST_SEATS];
	unsigned int n = some(dice, tids);
	const char *to = groups[roll(dice, 4)];

	for (unsigned int i = 0; i < n; i++)
		if (tids[i] &&
		    !write_text(in_group(to, "/cgroup.threads"), text_of("%d", tids[i])) &&
		    !allowed(-1, in_group(to, "/cgroup.threads")))
			return false;
	did(MOVES);
	if (!roll(dice, 10) &&
	    !write_text(in_group("/a", "/cpu.max"), roll(dice, 2) ? "max 10000" : "4000 10000"))
		left_out(in_group("/a", "/cpu.max"));
	if (!roll(dice, 10) &&
	    !write_text(in_group("/b", "/cpu.weight"), roll(dice, 2) ? "100" : "300"))
		left_out(in_group("/b", "/cpu.weight"));
	if (!roll(dice, 8) || !atomic_load(&shared->deeds[FREEZES])) {
		if (!write_text(in_group("/b/c", "/cgroup.freeze"), "1"))
			left_out(in_group("/b/c", "/cgroup.freeze"));
		pause_ns(roll(dice, 3000000));
		write_text(in_group("/b/c", "/cgroup.freeze"), "0");
		did(FREEZES);
	}
	return true;
}

static void undo_group(pid_t tid)
{
	write_text(in_group("", "/cgroup.threads"), text_of("%d", tid));
}

static bool set_online(unsigned int cpu, bool online)
{
	return write_text(text_of("/sys/devices/system/cpu/cpu%u/online", cpu), online ? "1" : "0");
}

static bool change_cpus(uint64_t *dice)
{
	unsigned int cpus = (unsigned int)sysconf(_SC_NPROCESSORS_CONF), cpu;

	if (cpus < 2)
		return false;
	cpu = 1 + roll(dice, cpus - 1);
	/* EBUSY: the kernel is at it elsewhere. */
	if (!set_online(cpu, false) && errno != EBUSY) {
		left_out("CPU hotplug");
		return false;
	}
	pause_ns((20 + roll(dice, 80)) * MS);
	while (!set_online(cpu, true) && errno == EBUSY)
		;
	did(HOTPLUGS);
	return true;
}

static const char pid_max[] = "/proc/sys/kernel/pid_max";
static char pid_max_before[32];

/* So few TIDs that each soon is another thread's. */
static bool leave_few_tids(uint64_t *dice)
{
	char text[128];
	int tasks;

	if ((!pid_max_before[0] && !read_text(pid_max, pid_max_before, sizeof(pid_max_before))) ||
	    !read_text("/proc/loadavg", text, sizeof(text)) ||
	    sscanf(text, "%*f %*f %*f %*d/%d", &tasks) != 1) {
		left_out(pid_max);
		return false;
	}
	/* The least that the kernel takes is 301. */
	snprintf(text, sizeof(text), "%d", tasks + 300);
	return allowed(write_text(pid_max, text) ? 0 : -1, pid_max);
}

/* Threads that park, with nobody to resume them, and are cancelled. */
struct sleeper {
	_Atomic pid_t tid;
	unsigned int enrolment;
	uint64_t decisions;
	bool deferred;
};

static void *sleep_on(void *arg)
{
	struct sleeper *sleeper = arg;
	pid_t tid;
	int old;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
	enrol(sleeper->decisions);
	sleeper->enrolment = enrolment_of(gettid());
	tid = switchto_self();
	if (!sleeper->deferred)
		pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &old);
	pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &old);
	/* Not before: who is cancelled while it must not be ends with no result (glibc 2.36). */
	atomic_store(&sleeper->tid, tid);
	for (;;) {
		if (switchto_wait(NULL) < 0)
			broken("wait of a thread that is to be cancelled: errno %d", errno);
		pthread_testcancel();
	}
}

static bool cancel_sleepers(uint64_t *dice)
{
	struct sleeper sleeper = { .decisions = next_random(dice), .deferred = roll(dice, 2) };
	pthread_t thread;
	void *result;
	pid_t tid;

	errno = pthread_create(&thread, NULL, sleep_on, &sleeper);
	if (errno)
		die("pthread_create");
	while (!(tid = atomic_load(&sleeper.tid)))
		pause_ns(50000);
	for (unsigned int n = roll(dice, 3); n; n--)
		if (switchto_resume(tid))
			broken("resume of a thread that is to be cancelled: errno %d", errno);
	if (roll(dice, 2))
		pause_ns(roll(dice, 300000));
	pthread_cancel(thread);
	/* The calls are no cancellation points. */
	if (sleeper.deferred)
		switchto_resume(tid);
	pthread_join(thread, &result);
	if (result != PTHREAD_CANCELED)
		broken("a thread that was cancelled returned");
	resume_the_dead(tid, sleeper.enrolment);
	did(CANCELS);
	return true;
}

/* fork() with all of them about; the child has threads of its own. */
static bool fork_amid(uint64_t *dice)
{
	uint64_t decisions = next_random(dice);
	pid_t child = fork();
	int status;

	if (child < 0) {
		/* Those few TIDs are all taken just now. */
		if (errno == EAGAIN)
			return true;
		left_out("fork");
		return false;
	}
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		small_party(decisions, 200);
		_exit(0);
	}
	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			die("waitpid");
	if (status)
		broken("the child of a fork() amid the switches: wait status %#x", status);
	did(FORKS);
	return true;
}

bool hash_can_be_replaced(void)
{
	return prctl(PR_FUTEX_HASH, PR_FUTEX_HASH_GET_SLOTS, 0UL, 0UL, 0UL) > 0;
}

static bool replace_hash(uint64_t *dice)
{
	if (!hash_can_be_replaced())
		return false;
	if (prctl(PR_FUTEX_HASH, PR_FUTEX_HASH_SET_SLOTS, 2UL << roll(dice, 10), 0UL, 0UL)) {
		left_out("another hash of the futexes");
		return false;
	}
	did(HASHES);
	return true;
}

/* --- from without ----------------------------------------------------------------- */

static pid_t the_worker;

static bool stop_and_continue(uint64_t *dice)
{
	kill(the_worker, SIGSTOP);
	pause_ns(roll(dice, 2000000));
	kill(the_worker, SIGCONT);
	did(STOPS);
	return true;
}

/* Waits for @tid to stop for us. false: it has ended. */
static bool stopped(pid_t tid, int *status)
{
	while (waitpid(tid, status, __WALL) < 0)
		if (errno != EINTR)
			return false;
	return WIFSTOPPED(*status);
}

/* The signal with which a stop is to be left: the one that was the reason for it. */
static long its_signal(int status)
{
	int sig = WSTOPSIG(status);

	return status >> 16 || sig == SIGTRAP || sig == (SIGTRAP | 0x80) || sig == SIGSTOP ? 0 :
											     sig;
}

static bool trace(uint64_t *dice)
{
	pid_t tid = somebody(dice);
	bool seize = roll(dice, 2);
	unsigned int steps = roll(dice, 2) ? 0 : roll(dice, 6);
	int status;

	if (!tid)
		return true;
	if (ptrace(seize ? PTRACE_SEIZE : PTRACE_ATTACH, tid, NULL, NULL)) {
		/* EPERM as well: it is just ending. */
		if (errno == ESRCH || (errno == EPERM && shared->deeds[TRACES]))
			return true;
		left_out("ptrace");
		return false;
	}
	if (seize)
		ptrace(PTRACE_INTERRUPT, tid, NULL, NULL);
	if (!stopped(tid, &status))
		return true;
	/* Of PTRACE_ATTACH the SIGSTOP is to come before the thread is left alone. */
	while (!seize && WSTOPSIG(status) != SIGSTOP) {
		ptrace(PTRACE_CONT, tid, NULL, its_signal(status));
		if (!stopped(tid, &status))
			return true;
	}
	/* From call to call, as strace does. A parked thread would not come to one. */
	while (steps--) {
		ptrace(PTRACE_SYSCALL, tid, NULL, its_signal(status));
		pause_ns(200000);
		if (waitpid(tid, &status, __WALL | WNOHANG) == 0) {
			ptrace(PTRACE_INTERRUPT, tid, NULL, NULL);
			/* Not of an attached one, which can't be interrupted so. */
			if (!seize)
				syscall(SYS_tgkill, the_worker, tid, SIGUSR2);
			if (!stopped(tid, &status))
				return true;
		} else if (!WIFSTOPPED(status)) {
			return true;
		}
	}
	ptrace(PTRACE_DETACH, tid, NULL, its_signal(status));
	did(TRACES);
	return true;
}

/* A process with a party of its own that ends in one of three ways. */
static bool run_a_child(uint64_t *dice)
{
	uint64_t decisions = next_random(dice);
	enum { ENDS, EXITS_AMID, IS_KILLED } how = roll(dice, 3);
	long long time = roll(dice, 30000000);
	pid_t child;
	int status;

	/* A short run on a slow machine has few of them. */
	if (!atomic_load(&shared->deeds[KILLS]))
		how = IS_KILLED;
	child = fork();
	if (child < 0) {
		/* Those few TIDs are all taken just now. */
		if (errno == EAGAIN)
			return true;
		left_out("fork");
		return false;
	}
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (how == EXITS_AMID) {
			struct itimerval timer = { .it_value.tv_usec = 1 + time / 1000 };

			/* From a handler, with threads parked and others amid a switch. */
			signal(SIGALRM, _exit);
			setitimer(ITIMER_REAL, &timer, NULL);
		}
		small_party(decisions, how == ENDS ? 200 : 0);
		_exit(0);
	}
	if (how == IS_KILLED) {
		pause_ns(time);
		kill(child, SIGKILL);
	}
	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			die("waitpid");
	if (status != (how == ENDS ? 0 : how == EXITS_AMID ? SIGALRM << 8 : SIGKILL)) {
		fprintf(stderr, "torture: a child that was to %s: wait status %#x\n",
			how == ENDS	  ? "end" :
			how == EXITS_AMID ? "exit" :
					    "be killed",
			status);
		atomic_store(&shared->failed, true);
		return false;
	}
	did(how == IS_KILLED ? KILLS : EXITS);
	return true;
}

/* --- all of them ------------------------------------------------------------------ */

static struct meddler {
	const char *name;
	bool (*act)(uint64_t *dice); /* false: it can't be done here */
	long long rest;
	void (*undo)(pid_t tid);
	enum { WITHIN, WITHOUT, CHILDREN } where;
	bool machine;	   /* changes what is not ours: with --need-all only */
	bool no_sanitizer; /* would leave its runtime as whatever thread it was had it */
	bool left_out;
	pthread_t thread;
	uint64_t dice;
	long long next;
} meddlers[] = {
	{ .name = "nice", .act = change_nice, .undo = undo_nice, .rest = 5 * MS },
	{ .name = "affinity", .act = change_affinity, .undo = undo_affinity, .rest = 7 * MS },
	{ .name = "class", .act = change_class, .undo = undo_class, .rest = 10 * MS },
	{ .name = "signals", .act = send_signal, .rest = 2 * MS },
	{ .name = "hog", .act = hog, .rest = 60 * MS },
	{ .name = "groups",
	  .act = change_group,
	  .undo = undo_group,
	  .rest = 8 * MS,
	  .machine = true },
	{ .name = "hotplug", .act = change_cpus, .rest = 300 * MS, .machine = true },
	{ .name = "tids", .act = leave_few_tids, .rest = 1000 * MS, .machine = true },
	{ .name = "cancel", .act = cancel_sleepers, .rest = 10 * MS, .no_sanitizer = true },
	{ .name = "fork", .act = fork_amid, .rest = 200 * MS, .no_sanitizer = true },
	{ .name = "hash", .act = replace_hash, .rest = 20 * MS },
	{ .name = "stop", .act = stop_and_continue, .rest = 100 * MS, .where = WITHOUT },
	{ .name = "trace", .act = trace, .rest = 20 * MS, .where = WITHOUT },
	{ .name = "children", .act = run_a_child, .rest = 50 * MS, .where = CHILDREN },
};

#define MEDDLERS (sizeof(meddlers) / sizeof(meddlers[0]))

const char *meddlers_names(void)
{
	static char text[256];

	text[0] = '\0';
	for (struct meddler *m = meddlers; m < meddlers + MEDDLERS; m++)
		strcat(strcat(text, *text ? "," : ""), m->name);
	return text;
}

bool meddlers_choose(const char *names, bool only)
{
	char *copy = strdup(names), *at = copy, *name;
	bool all = true;

	for (struct meddler *m = meddlers; only && m < meddlers + MEDDLERS; m++)
		m->left_out = true;
	while ((name = strsep(&at, ","))) {
		bool found = false;

		for (struct meddler *m = meddlers; m < meddlers + MEDDLERS; m++) {
			if (strcmp(m->name, name))
				continue;
			m->left_out = !only;
			found = true;
		}
		/* --only= and nothing: none */
		all &= found || !*name;
	}
	free(copy);
	return all;
}

static bool wanted(struct meddler *m)
{
	m->dice = seed_for(seed, 'm', (uint64_t)(m - meddlers));
	if (m->left_out)
		return false;
	if (m->machine && !need_all) {
		printf("left out without --need-all: %s\n", m->name);
		m->left_out = true;
	}
#ifdef UNDER_SANITIZER
	if (m->no_sanitizer && !m->left_out) {
		printf("left out with a sanitizer: %s\n", m->name);
		m->left_out = true;
	}
#endif
	return !m->left_out;
}

/*
 * What a deed costs the threads: the CPU's time that it took; or where others ran
 * for it, or nobody could, all of the time. The hog is there to take time.
 */
static long long cost_until_now(const struct meddler *m)
{
	struct timespec t;

	if (m->act == hog)
		return 0;
	clock_gettime(m->where != WITHIN || m->act == fork_amid ? CLOCK_MONOTONIC :
								  CLOCK_THREAD_CPUTIME_ID,
		      &t);
	return t.tv_sec * NSEC_PER_SEC + t.tv_nsec;
}

/* At least twenty times as long as that, but so that it does go on. */
static long long rest_after(struct meddler *m, long long cost)
{
	long long rest = m->rest / 2 + (long long)(next_random(&m->dice) % (uint64_t)m->rest);

	if (rest < 20 * cost)
		rest = 20 * cost;
	return rest < 3000 * MS ? rest : 3000 * MS;
}

/* Whether it is calm, the same for all of them. */
static bool calm(void)
{
	const long long period = 4 * NSEC_PER_SEC;

	return now_ns() % period < period / 100 * calm_percent;
}

static void *meddle(void *arg)
{
	struct meddler *m = arg;
	bool undone = false;

	enrol(m->dice);
	while (!over()) {
		long long before = cost_until_now(m), rest;

		if (calm()) {
			if (m->undo && !undone)
				for_all(m->undo);
			undone = true;
			pause_ns(20 * MS);
			continue;
		}
		undone = false;
		if (!m->act(&m->dice))
			break;
		rest = rest_after(m, cost_until_now(m) - before);
		for (; rest > 0 && !over(); rest -= 20 * MS)
			pause_ns(rest < 20 * MS ? rest : 20 * MS);
	}
	/* Of class SCHED_IDLE they would take their time to end on a busy machine. */
	if (m->undo)
		for_all(m->undo);
	return NULL;
}

void meddlers_begin(void)
{
	for (struct meddler *m = meddlers; m < meddlers + MEDDLERS; m++) {
		if (m->where != WITHIN || !wanted(m))
			continue;
		if (m->act == change_group && !make_groups()) {
			left_out("control groups");
			m->left_out = true;
		}
	}
	for (struct meddler *m = meddlers; m < meddlers + MEDDLERS; m++) {
		if (m->where != WITHIN || m->left_out)
			continue;
		errno = pthread_create(&m->thread, NULL, meddle, m);
		if (errno)
			die("pthread_create");
	}
}

void meddlers_end(void)
{
	atomic_store(&shared->over, true);
	for (struct meddler *m = meddlers; m < meddlers + MEDDLERS; m++)
		if (m->where == WITHIN && !m->left_out)
			pthread_join(m->thread, NULL);
}

void meddlers_clean_up(void)
{
	if (pid_max_before[0])
		write_text(pid_max, pid_max_before);
	remove_groups();
}

int meddle_with(pid_t worker)
{
	int status;

	the_worker = worker;
	for (struct meddler *m = meddlers; m < meddlers + MEDDLERS; m++)
		if (m->where == WITHOUT)
			wanted(m);
	for (;;) {
		pid_t done = waitpid(worker, &status, WNOHANG);

		if (done == worker && !WIFSTOPPED(status))
			return status;
		if (done < 0 && errno != EINTR)
			die("waitpid");
		if (atomic_load(&shared->failed)) {
			kill(worker, SIGKILL);
			continue;
		}
		for (struct meddler *m = meddlers; m < meddlers + MEDDLERS; m++) {
			long long before = cost_until_now(m);

			if (m->where != WITHOUT || m->left_out || over() || calm() ||
			    !atomic_load(&shared->started) || before < m->next)
				continue;
			m->left_out = !m->act(&m->dice);
			m->next = now_ns() + rest_after(m, cost_until_now(m) - before);
		}
		pause_ns(5 * MS);
	}
}

pid_t children_begin(void)
{
	struct meddler *m = &meddlers[MEDDLERS - 1];
	pid_t child;

	if (!wanted(m))
		return 0;
	fflush(NULL);
	child = fork();
	if (child < 0)
		die("fork");
	if (child)
		return child;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (!atomic_load(&shared->started) && !over())
		pause_ns(MS);
	meddle(m);
	_exit(atomic_load(&shared->failed));
}
