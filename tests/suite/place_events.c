// SPDX-License-Identifier: MIT
/*
 * switchto_place() and what happens to a program beside its own calls: many threads, a debugger,
 * exec(3); and as root, with the argument "hotplug" a CPU that is switched off, with "cpuset" a
 * cpuset that shrinks. Nothing is stuck, and each thread gets the mask that it would have without the
 * library. As the suite, for the backend that SWITCHTO_BACKEND names.
 */
#include "support.h"

#include <switchto/switchto.h>

#include <grp.h>
#include <sys/ptrace.h>

static cpu_set_t all; /* of the process, at the beginning */
static bool binds;
static unsigned int left_out_here;

static cpu_set_t cpus_of(pid_t tid)
{
	cpu_set_t set;

	if (sched_getaffinity(tid, sizeof(set), &set))
		give_up("sched_getaffinity of thread %d: %s", (int)tid, strerror(errno));
	return set;
}

static bool has(pid_t tid, const cpu_set_t *wanted)
{
	const cpu_set_t set = cpus_of(tid);

	return CPU_EQUAL(&set, wanted);
}

static bool is_bound(pid_t tid)
{
	const cpu_set_t set = cpus_of(tid);

	return CPU_COUNT(&set) == 1;
}

/* --- two threads that switch to each other until they are told --- */

struct pair {
	struct worker w[2];
	int place;
	cpu_set_t mask; /* what the program chooses for them; none: nothing */
	_Atomic unsigned long turns;
	_Atomic unsigned int here;
	atomic_bool over, ended;
	cpu_set_t after[2]; /* their masks when they are free again */
};

static void pair_body(struct worker *w)
{
	struct pair *p = w->arg;
	const unsigned int me = w == &p->w[1];
	pid_t other;

	if (CPU_COUNT(&p->mask))
		CHECK_EQ(&w->v, sched_setaffinity(0, sizeof(p->mask), &p->mask), 0);
	CHECK_EQ(&w->v, switchto_place(p->place), SWITCHTO_FREE);
	atomic_fetch_add(&p->here, 1);
	AWAIT(atomic_load(&p->here) == 2);
	other = p->w[!me].tid;
	if (me)
		CHECK_EQ(&w->v, switchto_wait(NULL), other);
	while (!atomic_load(&p->ended)) {
		atomic_fetch_add(&p->turns, 1);
		if (!me && atomic_load(&p->over)) {
			atomic_store(&p->ended, true);
			CHECK_EQ(&w->v, switchto_resume(other), 0);
			break;
		}
		CHECK_EQ(&w->v, switchto_switch(other), other);
	}
	await_release(w);
	CHECK_EQ(&w->v, switchto_place(SWITCHTO_FREE), p->place);
	p->after[me] = cpus_of(0);
}

static void pair_begin(struct pair *p, int place)
{
	p->place = place;
	for (int i = 0; i < 2; i++)
		worker_start(&p->w[i], pair_body, p);
}

/* They go on, whatever has happened. */
static void await_turns(struct pair *p, unsigned long turns)
{
	const unsigned long before = atomic_load(&p->turns);

	AWAIT(atomic_load(&p->turns) - before >= turns);
}

/* Their masks are @wanted then. */
static void pair_end(struct pair *p, const cpu_set_t *wanted, struct verdict *v)
{
	atomic_store(&p->over, true);
	for (int i = 0; i < 2; i++)
		worker_release(&p->w[i]);
	workers_join(p->w, 2, v);
	for (int i = 0; i < 2; i++)
		CHECK(v, CPU_EQUAL(&p->after[i], wanted));
}

static bool are_bound_to(const struct pair *p, int cpu)
{
	for (int i = 0; i < 2; i++) {
		const cpu_set_t set = cpus_of(p->w[i].tid);

		if (CPU_COUNT(&set) != 1 || !CPU_ISSET(cpu, &set))
			return false;
	}
	return true;
}

static void await_bound(const struct pair *p)
{
	if (binds)
		AWAIT(is_bound(p->w[0].tid) && is_bound(p->w[1].tid));
}

/* --- many threads --- */

enum { CROWD = 1000 };

static struct worker crowd[CROWD];
static cpu_set_t crowd_after[CROWD];
static _Atomic int left;

static void crowd_body(struct worker *w)
{
	uint32_t random = (uint32_t)(w - crowd) * 7919 + 1;

	CHECK(&w->v, switchto_place((int)(random % 3)) != -1);
	switchto_wait(NULL);
	while (atomic_fetch_sub(&left, 1) > 0) {
		const struct timespec soon = { .tv_nsec = 1000 }, longer = { .tv_nsec = 5000000 };
		pid_t other = crowd[random_next(&random) % CROWD].tid;

		switch (random_next(&random) % 16) {
		case 0:
		case 1:
			switchto_resume(other);
			break;
		case 2:
		case 3:
			switchto_wait(&soon);
			break;
		case 4:
			switchto_place((int)(random_next(&random) % 3));
			break;
		default:
			switchto_switch_timed(other, random & 1 ? &soon : &longer);
		}
	}
	switchto_place(SWITCHTO_FREE);
	crowd_after[w - crowd] = cpus_of(0);
}

TEST(a_thousand_at_random)
{
	atomic_store(&left, LOOPS(100000));
	for (int i = 0; i < CROWD; i++)
		worker_start(&crowd[i], crowd_body, NULL);
	/* Some have ended already, if others have switched to them. */
	for (int i = 0; i < CROWD; i++)
		CHECK(v, switchto_resume(crowd[i].tid) == 0 || errno == ESRCH);
	for (int i = 0; i < CROWD; i++)
		workers_join(&crowd[i], 1, v);
	for (int i = 0; i < CROWD; i++)
		CHECK(v, CPU_EQUAL(&crowd_after[i], &all));
	CHECK(v, has(0, &all));
}

/* --- two pairs for two CPUs --- */

/* A thread of each has waited for the other pair, for microseconds at a time. */
TEST(two_pairs_part)
{
	const struct timespec moment = { .tv_nsec = 4000000 };
	struct pair p[2] = { 0 };
	int together, attempts = 0;

	if (!binds)
		skip();
	for (int i = 0; i < 2; i++)
		pair_begin(&p[i], SWITCHTO_TOGETHER);
	/* In an emulator, whose CPUs take long turns, it took them a second to part, now and then. */
	do {
		together = 0;
		for (int look = 0; look < 500; look++) {
			nanosleep(&moment, NULL);
			for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
				together += are_bound_to(&p[0], cpu) && are_bound_to(&p[1], cpu);
		}
	} while (together >= 250 && ++attempts < 5);
	CHECK(v, together < 250);
	for (int i = 0; i < 2; i++)
		pair_end(&p[i], &all, v);
}

/* --- one that computes on the pair's CPU, another CPU is idle --- */

enum { LOOKS = 200, GONE = 10 };

static atomic_bool computes, computed;

static void hog_body(struct worker *w)
{
	const int cpu = *(const int *)w->arg;
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	CHECK_EQ(&w->v, sched_setaffinity(0, sizeof(one), &one), 0);
	atomic_store(&computes, true);
	while (!atomic_load(&computed))
		;
}

/* How long the pair stays beside one that computes on its CPU, in ns. */
static long long beside_a_hog(const struct pair *p, struct verdict *v)
{
	const struct timespec moment = { .tv_nsec = 1000000 };
	struct worker hog = { 0 };
	long long begin, left_at;
	cpu_set_t set;
	int cpu;

	atomic_store(&computes, false);
	atomic_store(&computed, false);
	/* Both on the same. */
	do {
		await_bound(p);
		set = cpus_of(p->w[0].tid);
		for (cpu = 0; cpu < CPU_SETSIZE - 1 && !CPU_ISSET(cpu, &set);)
			cpu++;
	} while (!are_bound_to(p, cpu));
	worker_start(&hog, hog_body, &cpu);
	AWAIT(atomic_load(&computes));
	begin = left_at = now_ns();
	/* Free for a moment only is not gone. */
	for (int look = 0, gone = 0; look < LOOKS && gone < GONE; look++) {
		nanosleep(&moment, NULL);
		gone = are_bound_to(p, cpu) ? 0 : gone + 1;
		if (!gone)
			left_at = now_ns();
	}
	atomic_store(&computed, true);
	workers_join(&hog, 1, v);
	return left_at - begin;
}

TEST(a_hog_is_left)
{
	struct pair p = { 0 };
	int soon = 0;

	if (!binds)
		skip();
	pair_begin(&p, SWITCHTO_TOGETHER);
	await_bound(&p);
	/* Others use the CPUs, too, and may push the pair away, or keep it: half of the time. */
	for (int i = 0; i < 10; i++)
		soon += beside_a_hog(&p, v) <= 50000000;
	CHECK(v, soon >= 5);
	pair_end(&p, &all, v);
}

/* --- exec(3) --- */

struct exec {
	struct worker w;
	bool of_main; /* or of the other thread */
};

static void exec_free(void)
{
	switchto_place(SWITCHTO_FREE);
	exec_self("mask");
}

static void exec_body(struct worker *w)
{
	const struct exec *e = w->arg;

	switchto_place(SWITCHTO_TOGETHER);
	do
		switchto_switch(w->starter);
	while (e->of_main || (binds && !is_bound(0)));
	exec_free();
}

/* Of a thread that is bound; the other one ends with that. */
static int execs(void *of_main)
{
	struct exec e = { .of_main = of_main };

	switchto_place(SWITCHTO_TOGETHER);
	worker_start(&e.w, exec_body, &e);
	switchto_wait(NULL);
	do
		switchto_switch(e.w.tid);
	while (!e.of_main || (binds && !is_bound(0)));
	exec_free();
	return 1;
}

TEST(a_program_has_all_after_free)
{
	for (int i = 0; i < 4; i++)
		assert_int_equal(run_child(execs, i & 1 ? &all : NULL), 0);
}

/* The new program. Its parent is the test, which is bound to nothing. */
static int has_mask_of_parent(void)
{
	const cpu_set_t set = cpus_of(getppid());

	return has(0, &set) ? 0 : 1;
}

/* --- a debugger --- */

struct traced {
	_Atomic pid_t tid[2];
	_Atomic unsigned long turns;
	atomic_bool over;
};

CHILD(pair_of_child)
{
	struct traced *shared = arg;
	struct pair p = { 0 };

	pair_begin(&p, SWITCHTO_TOGETHER);
	await_bound(&p);
	for (int i = 0; i < 2; i++)
		atomic_store(&shared->tid[i], p.w[i].tid);
	while (!atomic_load(&shared->over)) {
		await_turns(&p, 1);
		atomic_store(&shared->turns, atomic_load(&p.turns));
	}
	pair_end(&p, &all, v);
}

/* Stopped in the middle of whatever it does, for a while, and let go. */
static void debug_once(pid_t tid, int turn, struct verdict *v)
{
	const struct timespec moment = { .tv_nsec = 300000 * (turn % 4) };
	const bool seize = turn & 1;
	int status = 0;

	CHECK_EQ(v, ptrace(seize ? PTRACE_SEIZE : PTRACE_ATTACH, tid, NULL, NULL), 0);
	if (seize)
		CHECK_EQ(v, ptrace(PTRACE_INTERRUPT, tid, NULL, NULL), 0);
	CHECK_EQ(v, waitpid(tid, &status, __WALL), tid);
	CHECK(v, WIFSTOPPED(status));
	nanosleep(&moment, NULL);
	CHECK_EQ(v, ptrace(PTRACE_DETACH, tid, NULL, NULL), 0);
}

TEST(a_debugger_stops_one)
{
	struct traced *shared = map_shared(-1, sizeof(*shared));
	unsigned long before;
	pid_t child;

	child = start_child(pair_of_child, shared);
	AWAIT(atomic_load(&shared->tid[1]));
	for (int turn = 0; turn < LOOPS(200) && !atomic_load(&v->failed); turn++) {
		debug_once(shared->tid[turn / 2 % 2], turn, v);
		before = atomic_load(&shared->turns);
		AWAIT(atomic_load(&shared->turns) != before);
	}
	atomic_store(&shared->over, true);
	CHECK_EQ(v, child_status(child), 0);
	verdict_assert(v);
	munmap(shared, sizeof(*shared));
}

/* --- a CPU is switched off: hotplug --- */

/* Of a case: what it wanted and what was found in errno. The case is over with that. */
static void left_out(const char *wanted)
{
	fprintf(stderr,
		"place_events: left out: wanted %s, got %s; run as root on the patched kernel "
		"(vm/test does)\n",
		wanted, strerror(errno));
	left_out_here++;
	skip();
}

static bool set_online(int cpu, bool online)
{
	const char *path = text_of("/sys/devices/system/cpu/cpu%d/online", cpu);

	/* EBUSY: the kernel is at it elsewhere. */
	while (!write_text(path, online ? "1" : "0"))
		if (errno != EBUSY)
			return false;
	return true;
}

static int last_cpu(void)
{
	int last = 0;

	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &all))
			last = cpu;
	return last;
}

/* This thread keeps the first CPU busy, so that they go to the last one. */
static bool await_bound_to(const struct pair *p, int cpu, long long time)
{
	const long long limit = now_ns() + time;

	while (binds && now_ns() < limit)
		if (are_bound_to(p, cpu))
			return true;
	return false;
}

static void pair_without_cpu(struct verdict *v, int place, const cpu_set_t *mask, int cpu)
{
	struct pair p = { .mask = *mask };
	unsigned int bound = 0;

	pair_begin(&p, place);
	pin_to(0, 0);
	for (int turn = 0; turn < 4; turn++) {
		/* Once at least. */
		bound += await_bound_to(&p, cpu, bound ? NSEC_PER_SEC / 5 : 5 * NSEC_PER_SEC);
		CHECK(v, set_online(cpu, false));
		await_turns(&p, 100);
		CHECK(v, set_online(cpu, true));
		/* Now and then it is off again before they have noticed. */
		if (turn % 3)
			await_turns(&p, 100);
	}
	pair_end(&p, CPU_COUNT(mask) ? mask : &all, v);
	CHECK(v, bound || !binds);
	CHECK_EQ(v, sched_setaffinity(0, sizeof(all), &all), 0);
	verdict_assert(v);
}

TEST_IN(hotplug, a_cpu_is_switched_off)
{
	const int cpu = last_cpu();
	cpu_set_t mask;

	/* Only where the machine is there for it: it is the whole machine's. */
	errno = EPERM;
	if (!kernel_has_swap() || !set_online(cpu, true))
		left_out("to switch a CPU off");
	CPU_ZERO(&mask);
	pair_without_cpu(v, SWITCHTO_TOGETHER, &mask, cpu);
	pair_without_cpu(v, SWITCHTO_STAY, &mask, cpu);
	CPU_SET(0, &mask);
	CPU_SET(cpu, &mask);
	pair_without_cpu(v, SWITCHTO_TOGETHER, &mask, cpu);
}

/* --- a cpuset that shrinks: cpuset --- */

#define GROUPS "/sys/fs/cgroup"

/*
 * Made before the first case, and removed after the last one: see the groups of special.c. 0,
 * or why there is none.
 */
static char group[64];
static bool turned_on;

static bool write_group(const char *file, const char *text)
{
	return write_text(text_of("%s/%s", group, file), text);
}

static int make_group(void)
{
	char text[512];

	snprintf(group, sizeof(group), GROUPS "/switchto-place.%d", (int)getpid());
	if (!read_text(GROUPS "/cgroup.subtree_control", text, sizeof(text))) {
		snprintf(group, sizeof(group), GROUPS "/cpuset/switchto-place.%d", (int)getpid());
		return mkdir(group, 0755) || !write_group("cpuset.cpus", "0-1") ||
				       !write_group("cpuset.mems", "0") ?
			       errno :
			       0;
	}
	turned_on = !strstr(text, "cpuset") &&
		    write_text(GROUPS "/cgroup.subtree_control", "+cpuset");
	if (mkdir(group, 0755) || !write_group("cpuset.cpus", "0-1"))
		return errno;
	return 0;
}

static void remove_group(void)
{
	/* What ran in it may be on its way out for a moment. */
	for (int try = 0; rmdir(group) && errno == EBUSY && try < 100; try++)
		nanosleep(&(struct timespec){ 0, 10000000 }, NULL);
	if (turned_on)
		write_text(GROUPS "/cgroup.subtree_control", "-cpuset");
}

/* @mask: what the program chooses; NULL: nothing. Its threads are in many groups. */
CHILD(pair_in_cpuset)
{
	static const char *const cpus[] = { "0", "0-1", "1", "0", "0-1" };
	const struct timespec moment = { .tv_nsec = 20000000 };
	struct pair p = { 0 };
	gid_t groups[200];
	cpu_set_t mine;

	for (gid_t i = 0; i < 200; i++)
		groups[i] = 1000000 + i;
	if (setgroups(200, groups))
		give_up("setgroups: %s", strerror(errno));
	if (arg)
		p.mask = *(cpu_set_t *)arg;
	if (!write_group("cgroup.procs", "0"))
		give_up("cgroup.procs: %s", strerror(errno));
	pair_begin(&p, SWITCHTO_TOGETHER);
	/* All that a cpuset has then is taken for no choice of the program. */
	await_bound(&p);
	await_turns(&p, 20000);
	for (int turn = 0; turn < 20; turn++) {
		CHECK(v, write_group("cpuset.cpus", cpus[turn % 5]));
		await_turns(&p, 20);
		nanosleep(&moment, NULL);
	}
	CHECK(v, write_group("cpuset.cpus", "0-1"));
	await_turns(&p, 20);
	/* This thread has never been bound. */
	mine = cpus_of(0);
	CHECK_EQ(v, CPU_COUNT(&mine), 2);
	pair_end(&p, arg ? arg : &mine, v);
}

static int no_group; /* an error number */

TEST_IN(cpuset, a_cpuset_shrinks)
{
	cpu_set_t mask;

	errno = no_group;
	if (errno)
		left_out("a control group with cpuset");
	assert_int_equal(run_child(pair_in_cpuset, NULL), 0);
	CPU_ZERO(&mask);
	CPU_SET(0, &mask);
	assert_int_equal(run_child(pair_in_cpuset, &mask), 0);
}

static int run_cpuset(void)
{
	int failed;

	no_group = make_group();
	failed = run_group("cpuset", NULL, NULL);
	remove_group();
	return failed;
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";
	int failed;

	if (strcmp(mode, "mask") == 0)
		return has_mask_of_parent();
	if (wants_absent_swap("place_events"))
		return SKIPPED;
	unsetenv("SWITCHTO_PLACE");
	all = cpus_of(0);
	binds = switchto_backend() && strcmp(switchto_backend(), "wake-wait") == 0;
	if (CPU_COUNT(&all) < 2) {
		fprintf(stderr, "place_events: nothing to do: wanted two CPUs, found one\n");
		return 0;
	}
	watchdog_start("place_events");
	if (strcmp(mode, "hotplug") == 0)
		failed = run_group("hotplug", NULL, NULL);
	else if (strcmp(mode, "cpuset") == 0)
		failed = run_cpuset();
	else
		failed = run_group(NULL, NULL, NULL);
	watchdog_stop();
	if (failed)
		return 1;
	return left_out_here ? SKIPPED : 0;
}
