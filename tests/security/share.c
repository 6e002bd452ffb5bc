// SPDX-License-Identifier: MIT
/*
 * Threads that hand the CPU on get no more of it than one thread may have, by
 * whatever it is limited: weight, class, quota, RLIMIT_CPU, cpuset, affinity. And
 * each of them pays for what it has used itself.
 *
 * A chain is a ring of threads in which one turn goes round. Who has it works a
 * little and switches to the next. All of them, and the threads that only spin
 * beside them, are on one CPU; what counts are shares of it, not times.
 *
 * Needs the patched kernel, root, and the cpu and cpuset controllers in
 * /sys/fs/cgroup.
 */
#include "support.h"

#include <switchto/switchto.h>

#define MOST 8

/* Steps of work in a turn. */
#define SHORT 10
#define LONG 20000

#define ROOT "/sys/fs/cgroup"

static char group[100];
/* The first stays as long as the tests run, see groups_start(). */
static const char *const groups[] = { "/kept", "/quota", "/set" };

static void write_in(const char *folder, const char *file, const char *text)
{
	const char *path = text_of("%s%s/%s", group, folder, file);

	if (!write_text(path, text))
		give_up("%s: wanted to write '%s', got %s", path, text, strerror(errno));
}

struct seat {
	struct worker w;
	struct chain *chain;
	int index;
	/* What it is. */
	int nice, policy;
	const char *group; /* NULL: where the process is */
	uint32_t work;
	/* What it did: the first two are its own, the last the chain's to look at. */
	long wrong_cpu;
	_Atomic int cpu; /* where it has to run, -1: not looked at */
	_Atomic long turns;
};

struct chain {
	struct seat seats[MOST], hogs[MOST];
	int threads, nhogs, cpu;
	pthread_barrier_t start;
	atomic_bool over;
};

static void work(uint32_t steps)
{
	for (uint32_t i = 0; i < steps; i++)
		atomic_signal_fence(memory_order_seq_cst);
}

/* Pinned last: a cpuset may have other CPUs than the one it has come from. */
static void become(struct seat *s)
{
	const struct sched_param none = { 0 };

	if (s->group)
		write_in(s->group, "cgroup.threads", text_of("%d", (int)s->w.tid));
	if (s->policy && sched_setscheduler(0, s->policy, &none))
		give_up("sched_setscheduler: wanted class %d, got %s", s->policy, strerror(errno));
	if (s->nice && setpriority(PRIO_PROCESS, (id_t)s->w.tid, s->nice))
		give_up("setpriority: wanted nice %d, got %s", s->nice, strerror(errno));
	if (s->chain->cpu >= 0)
		pin_to(0, s->chain->cpu);
}

static void check_cpu(struct seat *s)
{
	int cpu = atomic_load_explicit(&s->cpu, memory_order_relaxed);

	if (cpu >= 0 && sched_getcpu() != cpu)
		s->wrong_cpu++;
}

static void sit(struct worker *w)
{
	struct seat *s = w->arg, *next;
	struct chain *c = s->chain;

	next = &c->seats[(s->index + 1) % c->threads];
	become(s);
	CHECK_EQ(&w->v, switchto_self(), w->tid);
	pthread_barrier_wait(&c->start);
	if (s->index)
		CHECK(&w->v, switchto_wait(NULL) > 0);
	while (!atomic_load_explicit(&c->over, memory_order_relaxed)) {
		work(s->work);
		check_cpu(s);
		atomic_fetch_add_explicit(&s->turns, 1, memory_order_relaxed);
		CHECK(&w->v, switchto_switch(next->w.tid) > 0);
	}
	/* The last finds that the first has ended: ESRCH. */
	switchto_resume(next->w.tid);
}

static void spin(struct worker *w)
{
	struct seat *s = w->arg;

	become(s);
	pthread_barrier_wait(&s->chain->start);
	while (!atomic_load_explicit(&s->chain->over, memory_order_relaxed))
		work(1000);
}

static void chain_init(struct chain *c, int threads, int nhogs)
{
	int cpu[2];

	memset(c, 0, sizeof(*c));
	c->threads = threads;
	c->nhogs = nhogs;
	c->cpu = cpu[two_cpus(cpu) - 1];
	for (int i = 0; i < MOST; i++) {
		c->seats[i].index = i;
		c->seats[i].work = SHORT;
		c->seats[i].cpu = -1;
	}
}

static void chain_start(struct chain *c)
{
	pthread_barrier_init(&c->start, NULL, (unsigned int)(c->threads + c->nhogs + 1));
	for (int i = 0; i < c->threads; i++) {
		c->seats[i].chain = c;
		worker_start(&c->seats[i].w, sit, &c->seats[i]);
	}
	for (int i = 0; i < c->nhogs; i++) {
		c->hogs[i].chain = c;
		worker_start(&c->hogs[i].w, spin, &c->hogs[i]);
	}
	pthread_barrier_wait(&c->start);
}

static void pause_ms(long ms)
{
	const struct timespec time = to_timespec(ms * 1000000LL);

	nanosleep(&time, NULL);
}

/* On a busy machine a SCHED_IDLE thread beside a hog needs seconds for its first turn. */
static void await_first_turns(struct chain *c)
{
	for (int i = 0, tries = 0; i < c->threads && tries < 2000; tries++)
		if (atomic_load(&c->seats[i].turns))
			i++;
		else
			pause_ms(10);
}

static void chain_end(struct chain *c, struct verdict *v)
{
	await_first_turns(c);
	atomic_store(&c->over, true);
	for (int i = 0; i < c->threads; i++)
		workers_join(&c->seats[i].w, 1, v);
	for (int i = 0; i < c->nhogs; i++)
		workers_join(&c->hogs[i].w, 1, v);
	pthread_barrier_destroy(&c->start);
	for (int i = 0; i < c->threads; i++)
		CHECK(v, atomic_load(&c->seats[i].turns) > 0);
}

static long long cpu_time(struct seat *s)
{
	struct timespec time;
	clockid_t clock;

	if (pthread_getcpuclockid(s->w.thread, &clock) || clock_gettime(clock, &time))
		give_up("pthread_getcpuclockid: wanted a thread's CPU time, got %s",
			strerror(errno));
	return to_ns(&time);
}

/* CPU time between two moments. */
struct shares {
	double seat[MOST];  /* of all threads', percent */
	double chain, hogs; /* likewise */
	double wall;	    /* the chain's, of the time that passed, percent */
	double first_wall;  /* its first thread's, likewise */
};

static struct shares chain_measure(struct chain *c, long ms)
{
	long long seats[MOST] = { 0 }, hogs = 0, chain = 0, wall, first;
	struct shares s = { 0 };

	/* Not the beginning, where those that start early have a lead. */
	pause_ms(200);
	wall = -now_ns();
	for (int i = 0; i < c->threads; i++)
		seats[i] = -cpu_time(&c->seats[i]);
	for (int i = 0; i < c->nhogs; i++)
		hogs -= cpu_time(&c->hogs[i]);
	pause_ms(LOOPS((int)ms));
	for (int i = 0; i < c->threads; i++) {
		seats[i] += cpu_time(&c->seats[i]);
		chain += seats[i];
	}
	for (int i = 0; i < c->nhogs; i++)
		hogs += cpu_time(&c->hogs[i]);
	wall += now_ns();
	first = seats[0];

	for (int i = 0; i < c->threads; i++)
		s.seat[i] = 100.0 * (double)seats[i] / (double)(chain + hogs);
	s.chain = 100.0 * (double)chain / (double)(chain + hogs);
	s.hogs = 100.0 - s.chain;
	s.wall = 100.0 * (double)chain / (double)wall;
	s.first_wall = 100.0 * (double)first / (double)wall;
	return s;
}

static struct shares chain_run(struct chain *c, long ms)
{
	struct verdict v = { 0 };
	struct shares s;

	chain_start(c);
	s = chain_measure(c, ms);
	chain_end(c, &v);
	verdict_assert(&v);
	return s;
}

/* The first share of a case that is not as wanted. */
static char off[200];

#define want_between(low, got, high)                                                           \
	do {                                                                                   \
		double got_ = (got);                                                           \
		print_message("%s %.1f %%\n", #got, got_);                                     \
		if ((got_ < (low) || got_ > (high)) && !off[0])                                \
			snprintf(off, sizeof(off), "%s is %.1f %%, wanted %.1f to %.1f", #got, \
				 got_, (double)(low), (double)(high));                         \
	} while (0)

/*
 * A busy host stops the VM's CPU, and the time is charged to the thread on it. So a case
 * whose shares are off runs again, up to five times: a fault is there each time.
 */
static void up_to_five_times(void (*run)(void))
{
	for (int i = 0; i < 5; i++) {
		off[0] = '\0';
		run();
		if (!off[0])
			return;
		print_message("run %d of 5: %s\n", i + 1, off);
	}
	fail_msg("%s, in the last of 5 runs", off);
}

#define TEST_SHARES(name)                      \
	static void name##_once(void);         \
	TEST(name)                             \
	{                                      \
		up_to_five_times(name##_once); \
	}                                      \
	static void name##_once(void)

/* --- weight ------------------------------------------------------------------------ */

/* A chain is one thread among the others. */
static void check_weighs_one(int threads, int nhogs, uint32_t steps)
{
	double one = 100.0 / (nhogs + 1);
	struct chain c;
	struct shares s;

	chain_init(&c, threads, nhogs);
	for (int i = 0; i < threads; i++)
		c.seats[i].work = steps;
	s = chain_run(&c, 1500);
	want_between(one - 3, s.chain, one + 3);
}

TEST_SHARES(chain_weighs_one_thread)
{
	check_weighs_one(2, 1, SHORT);
	check_weighs_one(8, 3, SHORT);
	check_weighs_one(3, 1, LONG);
}

/* Weights: nice 10 110, nice 0 1024, SCHED_IDLE 3 (kernel/sched/core.c, Linux 6.12). */
TEST_SHARES(nice_is_kept)
{
	struct chain c;
	struct shares s;

	chain_init(&c, 2, 1);
	c.seats[0].nice = c.seats[1].nice = 10;
	s = chain_run(&c, 1000);
	want_between(6.7, s.chain, 12.7);
}

/* A thread of high priority has another do the work: that one has its own. */
TEST_SHARES(nice_is_not_lent)
{
	struct chain c;
	struct shares s;

	chain_init(&c, 2, 1);
	c.seats[0].nice = 19;
	c.seats[0].work = LONG;
	c.seats[1].nice = -10;
	s = chain_run(&c, 1000);
	want_between(0, s.seat[0], 10);
	want_between(0, s.chain, 15);
}

TEST_SHARES(idle_class_is_kept)
{
	struct chain c;
	struct shares s;

	chain_init(&c, 2, 1);
	c.seats[0].policy = c.seats[1].policy = SCHED_IDLE;
	s = chain_run(&c, 1000);
	want_between(0, s.chain, 3);
}

TEST_SHARES(idle_class_is_not_left_by_a_switch)
{
	struct chain c;
	struct shares s;

	chain_init(&c, 2, 1);
	c.seats[0].policy = SCHED_IDLE;
	c.seats[0].work = LONG;
	s = chain_run(&c, 1000);
	want_between(0, s.seat[0], 5);
	want_between(90, s.hogs, 100);
}

/* --- quota and RLIMIT_CPU ----------------------------------------------------------- */

TEST_SHARES(quota_holds)
{
	struct chain c;
	struct shares s;

	write_in("/quota", "cpu.max", "20000 100000");
	chain_init(&c, 2, 0);
	c.seats[0].group = c.seats[1].group = "/quota";
	s = chain_run(&c, 1500);
	want_between(10, s.wall, 30);
}

/* One thread without quota goes on in the place of one that has it. */
TEST_SHARES(quota_holds_for_who_has_it)
{
	struct chain c;
	struct shares s;

	write_in("/quota", "cpu.max", "20000 100000");
	chain_init(&c, 2, 0);
	c.seats[0].group = "/quota";
	c.seats[0].work = c.seats[1].work = LONG;
	s = chain_run(&c, 1500);
	want_between(10, s.first_wall, 30);
}

static void limit_cpu_time(void)
{
	const struct rlimit limit = { 1, 10 };

	/* cmocka has a handler of its own. */
	signal(SIGXCPU, SIG_DFL);
	set_limit(RLIMIT_CORE, 0);
	setrlimit(RLIMIT_CPU, &limit);
}

static int chain_spends_its_limit(void *arg)
{
	struct verdict v = { 0 };
	struct chain *c = arg;

	limit_cpu_time();
	chain_start(c);
	pause_ms(100000);
	chain_end(c, &v);
	return 0;
}

static int loner_spends_its_limit(void *arg)
{
	const struct chain *c = arg;
	const long long end = now_ns() + 100 * NSEC_PER_SEC;

	limit_cpu_time();
	pin_to(0, c->cpu);
	while (now_ns() < end)
		work(1000);
	return 0;
}

/* The CPU time, in seconds, that a process has used when its limit ends it. */
static double seconds_of(pid_t child)
{
	struct rusage usage;
	int status;

	assert_int_equal(wait4(child, &status, 0, &usage), child);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGXCPU);
	return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
	       (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

/*
 * CPU time that no timer tick meets is charged, too. RLIMIT_CPU counts ticks, and a VM on a busy
 * host loses some, so that any process exceeds its limit. Hence the comparison with a single thread
 * that has the same limit. The two run one after the other: beside a chain, the ticks would meet
 * the single thread. The host may take more from one than from the other, so one good try of three
 * is enough.
 */
TEST_SHARES(rlimit_cpu_holds)
{
	double chain, loner;
	struct chain c;

	for (int try = 0; try < 3; try++) {
		chain_init(&c, 2, 0);
		chain = seconds_of(start_child(chain_spends_its_limit, &c));
		loner = seconds_of(start_child(loner_spends_its_limit, &c));
		if (chain <= 1.5 * loner)
			break;
	}
	want_between(0, 100 * chain / loner, 150);
	want_between(90, 100 * chain, 1000);
}

/* --- where it runs -------------------------------------------------------------------- */

/* From now on; one turn may be under way. */
static void runs_on(struct seat *s, int cpu)
{
	long turns = atomic_load(&s->turns);

	AWAIT(atomic_load(&s->turns) > turns + 1);
	atomic_store(&s->cpu, cpu);
}

static void take_turns(struct chain *c, long n)
{
	long turns = atomic_load(&c->seats[0].turns);

	AWAIT(atomic_load(&c->seats[0].turns) > turns + n);
}

/* After the chain has ended. */
static void check_places(struct chain *c, struct verdict *v)
{
	for (int i = 0; i < c->threads; i++)
		CHECK_EQ(v, c->seats[i].wrong_cpu, 0);
}

static bool need_two_cpus(int cpu[2])
{
	if (two_cpus(cpu) == 2)
		return true;
	print_message("one CPU: there is nowhere else to run\n");
	return false;
}

TEST(affinity_holds)
{
	struct chain c;
	int cpu[2];

	if (!need_two_cpus(cpu))
		skip();
	chain_init(&c, 3, 0);
	chain_start(&c);
	for (int n = 0; n < 8; n++) {
		for (int i = 0; i < 3; i++) {
			atomic_store(&c.seats[i].cpu, -1);
			/* Whoever it is, it may be asleep or running just now. */
			take_turns(&c, 2);
			pin_to(c.seats[i].w.tid, cpu[n >> i & 1]);
			runs_on(&c.seats[i], cpu[n >> i & 1]);
		}
		take_turns(&c, 100);
	}
	chain_end(&c, v);
	check_places(&c, v);
}

TEST(cpuset_holds)
{
	struct chain c;
	int cpu[2];

	if (!need_two_cpus(cpu))
		skip();
	write_in("/set", "cpuset.cpus", text_of("%d", cpu[0]));
	chain_init(&c, 2, 0);
	c.cpu = -1;
	/* The second is outside, on the other CPU. */
	c.seats[0].group = "/set";
	chain_start(&c);
	pin_to(c.seats[1].w.tid, cpu[1]);
	runs_on(&c.seats[1], cpu[1]);
	for (int n = 0; n < 6; n++) {
		atomic_store(&c.seats[0].cpu, -1);
		take_turns(&c, 2);
		write_in("/set", "cpuset.cpus", text_of("%d", cpu[n & 1]));
		runs_on(&c.seats[0], cpu[n & 1]);
		take_turns(&c, 100);
	}
	chain_end(&c, v);
	check_places(&c, v);
}

/* --- who pays --------------------------------------------------------------------------- */

/* The first works three times as long as the second, who goes on in its place. */
TEST_SHARES(who_runs_pays)
{
	struct chain c;
	struct shares s;

	chain_init(&c, 2, 0);
	c.seats[0].work = 60 * LONG;
	c.seats[1].work = 20 * LONG;
	s = chain_run(&c, 1000);
	want_between(68, s.seat[0], 82);
	/* One CPU's time, and not more. */
	want_between(50, s.wall, 102);
}

/* --- around it ---------------------------------------------------------------------------- */

static char controllers_before[200];

static void make_group(const char *path)
{
	if (mkdir(path, 0755))
		give_up("%s: wanted to make it, got %s", path, strerror(errno));
}

static void groups_start(void)
{
	static const char path[] = ROOT "/cgroup.subtree_control";

	if (!read_text(path, controllers_before, sizeof(controllers_before)))
		give_up("%s: wanted cgroup v2, got %s", path, strerror(errno));
	if (!write_text(path, "+cpu +cpuset"))
		give_up("%s: wanted the controllers cpu and cpuset, got %s", path, strerror(errno));
	snprintf(group, sizeof(group), ROOT "/security.%d", (int)getpid());
	make_group(group);
	for (int i = 0; i < 3; i++) {
		make_group(text_of("%s%s", group, groups[i]));
		write_in(groups[i], "cgroup.type", "threaded");
	}
	write_in("", "cgroup.procs", "0");
	write_in("", "cgroup.subtree_control", "+cpu +cpuset");
	/*
	 * Begin and end of quota in the system patch the scheduler's code, which
	 * QEMU's TCG with several CPUs does not always survive: see
	 * tests/torture/meddle.c. So one is there from beginning to end.
	 */
	write_in("/kept", "cpu.max", "10000 10000");
}

static void groups_end(void)
{
	write_text(ROOT "/cgroup.procs", "0");
	for (int i = 0; i < 3; i++)
		if (rmdir(text_of("%s%s", group, groups[i])))
			give_up("%s%s: wanted to remove it, got %s", group, groups[i],
				strerror(errno));
	rmdir(group);
	if (!strstr(controllers_before, "cpuset"))
		write_text(ROOT "/cgroup.subtree_control", "-cpuset");
	/* "cpu" is the beginning of "cpuset". */
	if (strncmp(controllers_before, "cpu ", 4) && strncmp(controllers_before, "cpu\n", 4) &&
	    !strstr(controllers_before, " cpu ") && !strstr(controllers_before, " cpu\n"))
		write_text(ROOT "/cgroup.subtree_control", "-cpu");
}

int main(void)
{
	int failed;

	if (lacks_swap("security_share"))
		return SKIPPED;
	if (geteuid() != 0) {
		fprintf(stderr, "security_share: skipped: needs root, who may make control groups "
				"(vm/test runs it as root)\n");
		return SKIPPED;
	}
	unsetenv("SWITCHTO_BACKEND");
	groups_start();
	failed = run_watched_group(NULL);
	groups_end();
	return failed;
}
