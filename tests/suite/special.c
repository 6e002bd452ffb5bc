// SPDX-License-Identifier: MIT
/*
 * What takes root, and a machine that may be set up for it: scheduling classes,
 * control groups that are frozen or out of quota or have CPUs of their own, time
 * namespaces, the highest TIDs. As the suite, for the backend that
 * SWITCHTO_BACKEND names.
 *
 * What can't be had here is said, and the exit status is then that of a test
 * that was skipped.
 */
#include "pair.h"
#include "set_tid.h"

#include <switchto/switchto.h>

#include <dirent.h>
#include <linux/sched.h>
#include <sys/mount.h>

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x00000080
#endif

static unsigned int left_out_here;

/* Of a case: what it wanted and what was found in errno. The case is over with that. */
static void left_out(const char *wanted)
{
	fprintf(stderr,
		"special: left out: wanted %s, got %s; run as root on the patched kernel "
		"(vm/test does)\n",
		wanted, strerror(errno));
	left_out_here++;
	skip();
}

/* --- two threads that take turns, each with something of its own ---------------- */

struct side {
	struct worker w;
	struct turns *t;
	bool (*become)(struct side *s);
	const void *as; /* for become() */
	int cpu;	/* the only one it may be on, or -1 */
	int error;
};

struct turns {
	struct side side[2];
	unsigned int rounds;
	unsigned int count; /* of whoever has the turn */
	unsigned int work;  /* steps in each turn */
	_Atomic unsigned int ready;
};

static void side_body(struct worker *w)
{
	struct side *s = w->arg;
	struct turns *t = s->t;
	unsigned int me = (unsigned int)(s - t->side);
	pid_t other;

	if (s->become && !s->become(s))
		s->error = errno ? errno : EPERM;
	atomic_fetch_add(&t->ready, 1);
	AWAIT(atomic_load(&t->ready) == 2);
	if (t->side[0].error || t->side[1].error)
		return;

	other = t->side[!me].w.tid;
	if (me == 1)
		CHECK_EQ(&w->v, switchto_wait(NULL), other);
	for (unsigned int i = 0; i < t->rounds; i++) {
		CHECK_EQ(&w->v, t->count++, 2 * i + me);
		if (s->cpu >= 0)
			CHECK_EQ(&w->v, sched_getcpu(), s->cpu);
		for (unsigned int n = t->work; n; n--)
			atomic_signal_fence(memory_order_seq_cst);
		if (me == 1 && i == t->rounds - 1) {
			CHECK_EQ(&w->v, switchto_resume(other), 0);
			return;
		}
		CHECK_EQ(&w->v, switchto_switch(other), other);
	}
}

static void turns_init(struct turns *t, unsigned int rounds)
{
	*t = (struct turns){ .rounds = rounds };
	for (int i = 0; i < 2; i++) {
		t->side[i].t = t;
		t->side[i].cpu = -1;
	}
}

/* 0, or why a side could not become what it is to be. */
static int turns_run(struct turns *t, struct verdict *v)
{
	for (int i = 1; i >= 0; i--)
		worker_start(&t->side[i].w, side_body, &t->side[i]);
	for (int i = 0; i < 2; i++)
		workers_join(&t->side[i].w, 1, v);
	if (!t->side[0].error && !t->side[1].error)
		CHECK_EQ(v, t->count, 2 * t->rounds);
	return t->side[0].error ? t->side[0].error : t->side[1].error;
}

/* --- scheduling classes --------------------------------------------------------- */

/* sched_setattr(2), for which not every C library has the struct. */
struct class {
	uint32_t size;
	uint32_t policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime, deadline, period;
};

#define MS 1000000ULL

static const struct class classes[] = {
	{ .policy = SCHED_OTHER },
	{ .policy = SCHED_OTHER, .nice = 19 },
	{ .policy = SCHED_OTHER, .nice = -20 },
	{ .policy = SCHED_BATCH },
	{ .policy = SCHED_IDLE },
	{ .policy = SCHED_FIFO, .priority = 10 },
	{ .policy = SCHED_FIFO, .priority = 20 },
	{ .policy = SCHED_RR, .priority = 10 },
	{ .policy = SCHED_DEADLINE, .runtime = 20 * MS, .deadline = 100 * MS, .period = 100 * MS },
};

#define CLASSES (sizeof(classes) / sizeof(classes[0]))

static bool set_class(pid_t tid, const struct class *class)
{
	const long long limit = now_ns() + 5 * NSEC_PER_SEC;
	const struct timespec nap = { 0, 10000000 };
	struct class copy = *class;

	copy.size = sizeof(copy);
	/* EBUSY: what another had of the deadline class's time is not free at once. */
	while (syscall(SYS_sched_setattr, tid, &copy, 0)) {
		if (errno != EBUSY || now_ns() > limit)
			return false;
		nanosleep(&nap, NULL);
	}
	return true;
}

static void check_class(struct verdict *v, pid_t tid, const struct class *want)
{
	struct class is = { 0 };

	CHECK_EQ(v, syscall(SYS_sched_getattr, tid, &is, sizeof(is), 0), 0);
	CHECK_EQ(v, is.policy, want->policy);
	CHECK_EQ(v, is.priority, want->priority);
	/* The others keep what they had before, whoever runs this. */
	if (want->policy == SCHED_OTHER || want->policy == SCHED_BATCH)
		CHECK_EQ(v, is.nice, want->nice);
	/* Of a class without one, Linux from 6.12 on tells its slice there. */
	if (want->runtime)
		CHECK_EQ(v, is.runtime, want->runtime);
}

static bool become_class(struct side *s)
{
	return set_class(0, s->as);
}

static void side_and_class(struct worker *w)
{
	struct side *s = w->arg;

	side_body(w);
	if (!s->error)
		check_class(&w->v, 0, s->as);
}

/* Every class on either side: the turns are taken, and nobody's class is another after. */
TEST(class_on_either_side)
{
	int error = 0;

	for (unsigned int a = 0; a < CLASSES && !error; a++) {
		for (unsigned int b = 0; b < CLASSES && !error; b++) {
			struct turns t;

			turns_init(&t, 20);
			for (int i = 0; i < 2; i++) {
				t.side[i].become = become_class;
				t.side[i].as = &classes[i ? b : a];
			}
			for (int i = 1; i >= 0; i--)
				worker_start(&t.side[i].w, side_and_class, &t.side[i]);
			for (int i = 0; i < 2; i++)
				workers_join(&t.side[i].w, 1, v);
			error = t.side[0].error ? t.side[0].error : t.side[1].error;
			if (!error)
				CHECK_EQ(v, t.count, 2 * t.rounds);
		}
	}
	verdict_assert(v);
	if (error) {
		errno = error;
		left_out("to set scheduling classes");
	}
}

/*
 * The class of a thread that is parked changes, and it is switched to as what it
 * is then. It goes back itself: of the deadline class's time, what a thread had
 * that is taken out of the class in its sleep is not given back (seen with Linux
 * 6.18; the machine runs out of it).
 */
struct reclassed {
	struct worker w;
	const struct class *_Atomic class;
	unsigned int rounds;
};

static void is_reclassed(struct worker *w)
{
	struct reclassed *r = w->arg;
	pid_t from;

	for (unsigned int i = 0; i < r->rounds; i++) {
		from = switchto_wait(NULL);
		CHECK_EQ(&w->v, from, w->starter);
		check_class(&w->v, 0, atomic_load(&r->class));
		CHECK(&w->v, set_class(0, &classes[0]));
		CHECK_EQ(&w->v, switchto_resume(from), 0);
	}
}

TEST(class_changes_while_parked)
{
	const struct timespec hour = { 3600, 0 };
	struct reclassed r = { .rounds = 3 * CLASSES };
	bool allowed = set_class(0, &classes[CLASSES - 1]) && set_class(0, &classes[0]);

	if (!allowed)
		left_out("to set scheduling classes");
	worker_start(&r.w, is_reclassed, &r);
	for (unsigned int i = 0; i < r.rounds; i++) {
		atomic_store(&r.class, &classes[i % CLASSES]);
		await_parked(r.w.tid);
		CHECK(v, set_class(r.w.tid, &classes[i % CLASSES]));
		CHECK_EQ(v,
			 i & 1 ? switchto_switch_timed(r.w.tid, &hour) : switchto_switch(r.w.tid),
			 r.w.tid);
	}
	workers_join(&r.w, 1, v);
}

/* --- control groups -------------------------------------------------------------- */

/*
 * Of this program, made once and not for each case: the first group of a machine
 * with a quota or with CPUs of its own, the first that is frozen, and the last of
 * each, patch the kernel's code by way of int3. With several CPUs under QEMU 7.2's
 * TCG one was seen to execute that int3 when it was gone from memory already, in
 * get_page_from_freelist() here: the kernel can only oops. So one group has all of
 * it, and nobody in it, from the first case to the last.
 */
#define ROOT "/sys/fs/cgroup"

static char home[128];
static bool have_groups;
static int no_groups_error;

/* A case's own below that, and in it its threads' groups. */
static char inner[sizeof(home) + 16];
static const char *const groups[] = { "a", "b" };

static const char *in_group(const char *group, const char *file)
{
	return text_of("%s/%s/%s", inner, group, file);
}

static bool in_list(const char *list, const char *word)
{
	size_t length = strlen(word);

	for (const char *at = strstr(list, word); at; at = strstr(at + 1, word))
		if ((at == list || at[-1] == ' ') && (!at[length] || strchr(" \n", at[length])))
			return true;
	return false;
}

/* Turned on by this program, so to be turned off by it: the machine's are not ours. */
static const char *turned_on[2];

static bool have_controllers(void)
{
	static const char *const wanted[2] = { "cpu", "cpuset" };
	char text[512];

	if (!read_text(ROOT "/cgroup.controllers", text, sizeof(text)))
		return false;
	for (int i = 0; i < 2; i++) {
		errno = ENODEV;
		if (!in_list(text, wanted[i]))
			return false;
	}
	if (!read_text(ROOT "/cgroup.subtree_control", text, sizeof(text)))
		return false;
	for (int i = 0; i < 2; i++) {
		if (in_list(text, wanted[i]))
			continue;
		if (!write_text(ROOT "/cgroup.subtree_control", text_of("+%s", wanted[i])))
			return false;
		turned_on[i] = wanted[i];
	}
	return true;
}

/* In a child: it goes into the case's group, where its threads may go to groups[]. */
static bool enter_groups(void)
{
	for (int i = 0; i < 2; i++)
		if (mkdir(text_of("%s/%s", inner, groups[i]), 0755) ||
		    !write_text(in_group(groups[i], "cgroup.type"), "threaded"))
			return false;
	return write_text(text_of("%s/cgroup.procs", inner), "0") &&
	       write_text(text_of("%s/cgroup.subtree_control", inner), "+cpu +cpuset");
}

/* What ran in it may be on its way out for a moment. */
static void remove_group(const char *path)
{
	for (int try = 0; rmdir(path) && errno == EBUSY && try < 100; try++)
		nanosleep(&(struct timespec){ 0, 10000000 }, NULL);
}

static void leave_groups(void)
{
	for (int i = 0; i < 2; i++)
		remove_group(text_of("%s/%s", inner, groups[i]));
	remove_group(inner);
}

static bool make_home(void)
{
	snprintf(home, sizeof(home), ROOT "/switchto.%d", (int)getpid());
	return have_controllers() && !mkdir(home, 0755) &&
	       write_text(text_of("%s/cgroup.subtree_control", home), "+cpu +cpuset") &&
	       !mkdir(text_of("%s/hold", home), 0755) &&
	       write_text(text_of("%s/hold/cpu.max", home), "10000 10000");
}

static void remove_home(void)
{
	remove_group(text_of("%s/hold", home));
	remove_group(home);
	for (int i = 0; i < 2; i++)
		if (turned_on[i])
			write_text(ROOT "/cgroup.subtree_control", text_of("-%s", turned_on[i]));
}

static int (*grouped_body)(struct verdict *v);

/* What a body returns to say that it could not be had; the reason is in errno. */
#define NOT_HERE 76

static int in_groups(void *arg)
{
	struct verdict v = { 0 };

	if (!enter_groups()) {
		fprintf(stderr, "special: wanted control groups below %s, got %s\n", inner,
			strerror(errno));
		return NOT_HERE;
	}
	if (grouped_body(&v) == NOT_HERE)
		return NOT_HERE;
	return verdict_status(&v);
}

static void run_in_groups(int (*body)(struct verdict *v))
{
	int status;

	errno = no_groups_error;
	if (!have_groups)
		left_out("control groups of our own (version 2, with cpu and cpuset)");
	grouped_body = body;
	snprintf(inner, sizeof(inner), "%s/case", home);
	status = mkdir(inner, 0755) ? NOT_HERE : run_child(in_groups, NULL);
	leave_groups();
	if (status == NOT_HERE) {
		errno = ENOTSUP;
		left_out("a control group with threads in groups of their own");
	}
	assert_int_equal(status, 0);
}

static bool join_group(pid_t tid, const char *group)
{
	return write_text(in_group(group, "cgroup.threads"), text_of("%d", (int)tid));
}

static bool become_member(struct side *s)
{
	return join_group(gettid(), s->as);
}

static int pair_in_groups(struct verdict *v, const char *first, const char *second,
			  unsigned int rounds, unsigned int work)
{
	struct turns t;

	turns_init(&t, rounds);
	t.work = work;
	t.side[0].become = t.side[1].become = become_member;
	t.side[0].as = first;
	t.side[1].as = second;
	CHECK_EQ(v, turns_run(&t, v), 0);
	return 0;
}

static int different_groups(struct verdict *v)
{
	return pair_in_groups(v, "a", "b", 500, 0);
}

TEST(threads_in_different_groups)
{
	run_in_groups(different_groups);
}

/* From one group to another and back, each time it is parked. */
static int moved_about(struct verdict *v)
{
	struct sink s = { 0 };

	sink_start(&s);
	for (unsigned int i = 1; i <= 50; i++) {
		await_parked(s.w.tid);
		CHECK(v, join_group(s.w.tid, groups[i & 1]));
		CHECK_EQ(v, switchto_resume(gettid()), 0);
		CHECK_EQ(v, switchto_switch(s.w.tid), gettid());
		AWAIT(atomic_load(&s.returns) == i);
	}
	sink_stop(&s, v);
	return 0;
}

TEST(group_changes_while_parked)
{
	run_in_groups(moved_about);
}

/* How often the group has been out of quota. */
static long times_throttled(const char *group)
{
	char text[1024], *field;

	if (!read_text(in_group(group, "cpu.stat"), text, sizeof(text)))
		return -1;
	field = strstr(text, "nr_throttled ");
	return field ? atol(field + strlen("nr_throttled ")) : -1;
}

/* As many rounds as it takes for the quota to be used up. */
static int pair_under_quota(struct verdict *v, const char *other)
{
	if (!write_text(in_group("b", "cpu.max"), "2000 20000"))
		return NOT_HERE;
	for (unsigned int rounds = 50; !times_throttled("b") && !atomic_load(&v->failed);
	     rounds *= 2)
		pair_in_groups(v, other, "b", rounds, 10000);
	CHECK(v, times_throttled("b") > 0);
	return 0;
}

static int target_throttled(struct verdict *v)
{
	return pair_under_quota(v, "a");
}

TEST(target_in_throttled_group)
{
	run_in_groups(target_throttled);
}

static int both_throttled(struct verdict *v)
{
	return pair_under_quota(v, "b");
}

TEST(both_in_throttled_group)
{
	run_in_groups(both_throttled);
}

static bool set_frozen(const char *group, bool frozen)
{
	char text[256];

	if (!write_text(in_group(group, "cgroup.freeze"), frozen ? "1" : "0"))
		return false;
	AWAIT(read_text(in_group(group, "cgroup.events"), text, sizeof(text)) &&
	      strstr(text, frozen ? "frozen 1" : "frozen 0"));
	return true;
}

/* What is frozen with, and whether it can be: version 2's, then version 1's. */
struct freezer {
	bool (*join)(pid_t tid);
	bool (*freeze)(bool frozen);
};

struct asking {
	struct worker w;
	pid_t target;
};

static void asks_target(struct worker *w)
{
	struct asking *a = w->arg;

	CHECK_EQ(&w->v, switchto_switch(a->target), a->target);
}

static void answers(struct worker *w)
{
	pid_t from = switchto_wait(NULL);

	atomic_store((_Atomic pid_t *)w->arg, from);
	CHECK_EQ(&w->v, switchto_resume(from), 0);
}

/*
 * A frozen target: who switches to it sleeps, or gives up when its time is over,
 * and the resume is pending for when it is thawed.
 */
static int frozen_target(struct verdict *v, const struct freezer *f)
{
	const struct timespec soon = to_timespec(NSEC_PER_SEC / 20);
	struct worker target = { 0 };
	struct asking a = { 0 };
	_Atomic pid_t from = 0;
	struct sink s = { 0 };

	sink_start(&s);
	worker_start_parked(&target, answers, &from);
	if (!f->join(target.tid) || !f->join(s.w.tid) || !f->freeze(true)) {
		fprintf(stderr, "special: wanted a frozen group, got %s\n", strerror(errno));
		return NOT_HERE;
	}
	a.target = target.tid;
	worker_start_parked(&a.w, asks_target, &a);
	CHECK_ERR(v, switchto_switch_timed(s.w.tid, &soon), ETIMEDOUT);
	CHECK(v, is_parked(a.w.tid));
	CHECK_EQ(v, atomic_load(&from), 0);
	CHECK_EQ(v, atomic_load(&s.returns), 0);
	CHECK(v, f->freeze(false));
	workers_join(&a.w, 1, v);
	workers_join(&target, 1, v);
	CHECK_EQ(v, atomic_load(&from), a.w.tid);
	AWAIT(atomic_load(&s.returns) == 1);
	CHECK_EQ(v, s.last, gettid());
	CHECK_EQ(v, sink_stop(&s, v), 1);
	return 0;
}

struct chilled {
	struct worker w;
	struct sink sink;
	int way;
};

static void sleeps_in_the_cold(struct worker *w)
{
	struct chilled *c = w->arg;

	CHECK_EQ(&w->v, sleep_this_way(c->way, c->sink.w.tid), w->starter);
}

/* Whoever is frozen in its sleep and thawed has not noticed; resumed meanwhile or not. */
static int frozen_sleepers(struct verdict *v, const struct freezer *f)
{
	for (int resumed = 0; resumed < 2; resumed++) {
		struct chilled c[WAYS] = { 0 };

		for (int way = 0; way < WAYS; way++) {
			c[way].way = way;
			sink_start(&c[way].sink);
			worker_start_parked(&c[way].w, sleeps_in_the_cold, &c[way]);
			if (!f->join(c[way].w.tid)) {
				fprintf(stderr, "special: wanted a thread in a group, got %s\n",
					strerror(errno));
				return NOT_HERE;
			}
		}
		if (!f->freeze(true))
			return NOT_HERE;
		for (int way = 0; way < WAYS && resumed; way++)
			CHECK_EQ(v, switchto_resume(c[way].w.tid), 0);
		CHECK(v, f->freeze(false));
		for (int way = 0; way < WAYS; way++) {
			if (!resumed) {
				await_parked(c[way].w.tid);
				CHECK_EQ(v, switchto_resume(c[way].w.tid), 0);
			}
			workers_join(&c[way].w, 1, v);
			CHECK_EQ(v, sink_stop(&c[way].sink, v), way_switches(way));
		}
	}
	return 0;
}

static bool join_v2(pid_t tid)
{
	return join_group(tid, "a");
}

static bool freeze_v2(bool frozen)
{
	return set_frozen("a", frozen);
}

static const struct freezer freezer_v2 = { join_v2, freeze_v2 };

static int target_frozen_v2(struct verdict *v)
{
	return frozen_target(v, &freezer_v2);
}

TEST(target_in_frozen_group)
{
	run_in_groups(target_frozen_v2);
}

static int sleepers_frozen_v2(struct verdict *v)
{
	return frozen_sleepers(v, &freezer_v2);
}

TEST(sleepers_in_frozen_group)
{
	run_in_groups(sleepers_frozen_v2);
}

/*
 * The freezer of version 1 leaves who sleeps in a futex where it is, as suspend
 * does, while that of version 2 wakes it first and keeps it in its signals.
 */
static char freezer_mount[] = "/tmp/switchto.freezer.XXXXXX";
static char freezer_group[sizeof(freezer_mount) + 64];
static bool have_freezer;
static int no_freezer_error;

static bool write_freezer(const char *file, const char *text)
{
	return write_text(text_of("%s/%s", freezer_group, file), text);
}

static bool join_v1(pid_t tid)
{
	return write_freezer("tasks", text_of("%d", (int)tid));
}

static bool freeze_v1(bool frozen)
{
	char text[32];

	if (!write_freezer("freezer.state", frozen ? "FROZEN" : "THAWED"))
		return false;
	AWAIT(read_text(text_of("%s/freezer.state", freezer_group), text, sizeof(text)) &&
	      strcmp(text, frozen ? "FROZEN\n" : "THAWED\n") == 0);
	return true;
}

static const struct freezer freezer_v1 = { join_v1, freeze_v1 };

typedef int freezer_body(struct verdict *v, const struct freezer *f);

static int in_freezer(void *arg)
{
	freezer_body *body = *(freezer_body **)arg;
	struct verdict v = { 0 };

	if (body(&v, &freezer_v1) == NOT_HERE)
		return NOT_HERE;
	return verdict_status(&v);
}

static void name_freezer_group(const char *name)
{
	snprintf(freezer_group, sizeof(freezer_group), "%s/switchto.%d.%s", freezer_mount,
		 (int)getpid(), name);
}

static bool make_freezer(void)
{
	if (!mkdtemp(freezer_mount) || mount("switchto", freezer_mount, "cgroup", 0, "freezer"))
		return false;
	name_freezer_group("hold");
	return !mkdir(freezer_group, 0755) && freeze_v1(true);
}

static void remove_freezer(void)
{
	name_freezer_group("hold");
	remove_group(freezer_group);
	umount2(freezer_mount, MNT_DETACH);
	rmdir(freezer_mount);
}

static void run_in_freezer(freezer_body *body)
{
	int status = NOT_HERE;

	errno = no_freezer_error;
	if (!have_freezer)
		left_out("the freezer of control groups, version 1 (CONFIG_CGROUP_FREEZER)");
	name_freezer_group("case");
	if (mkdir(freezer_group, 0755) == 0)
		status = run_child(in_freezer, &body);
	remove_group(freezer_group);
	if (status == NOT_HERE) {
		errno = ENOTSUP;
		left_out("a group of our own in the freezer, version 1");
	}
	assert_int_equal(status, 0);
}

TEST(target_in_freezer_v1)
{
	run_in_freezer(frozen_target);
}

TEST(sleepers_in_freezer_v1)
{
	run_in_freezer(frozen_sleepers);
}

static bool set_cpuset(const char *group, int cpu)
{
	return write_text(in_group(group, "cpuset.cpus"), text_of("%d", cpu));
}

static int apart_by_cpuset(struct verdict *v)
{
	struct turns t;
	int cpu[2];

	two_cpus(cpu);
	turns_init(&t, 500);
	for (int i = 0; i < 2; i++) {
		if (!set_cpuset(groups[i], cpu[i]))
			return NOT_HERE;
		t.side[i].become = become_member;
		t.side[i].as = groups[i];
		t.side[i].cpu = cpu[i];
	}
	CHECK_EQ(v, turns_run(&t, v), 0);
	return 0;
}

TEST_IN(two_cpus, cpuset_excludes_this_cpu)
{
	run_in_groups(apart_by_cpuset);
}

/* Parked on the one CPU, and woken where it may be by then. */
struct displaced {
	struct worker w;
	unsigned int rounds;
	_Atomic int cpu;
};

static void wakes_where_it_may(struct worker *w)
{
	struct displaced *d = w->arg;
	pid_t from;

	for (unsigned int i = 0; i < d->rounds; i++) {
		from = switchto_wait(NULL);
		CHECK_EQ(&w->v, sched_getcpu(), atomic_load(&d->cpu));
		CHECK_EQ(&w->v, switchto_resume(from), 0);
	}
}

static int moved_by_cpuset(struct verdict *v)
{
	struct displaced d = { .rounds = 30 };
	int cpu[2];

	two_cpus(cpu);
	worker_start_parked(&d.w, wakes_where_it_may, &d);
	if (!join_group(d.w.tid, "a"))
		return NOT_HERE;
	pin_to(0, cpu[0]);
	for (unsigned int i = 0; i < d.rounds; i++) {
		await_parked(d.w.tid);
		atomic_store(&d.cpu, cpu[!(i & 1)]);
		CHECK(v, set_cpuset("a", cpu[!(i & 1)]));
		CHECK_EQ(v, switchto_switch(d.w.tid), d.w.tid);
		CHECK_EQ(v, sched_getcpu(), cpu[0]);
	}
	workers_join(&d.w, 1, v);
	return 0;
}

TEST_IN(two_cpus, cpuset_changes_while_parked)
{
	run_in_groups(moved_by_cpuset);
}

/* --- time namespaces --------------------------------------------------------------- */

static void far_in_namespace(struct worker *w)
{
	const struct timespec in_an_hour = to_timespec(now_ns() + 3600 * NSEC_PER_SEC);

	CHECK_EQ(&w->v, switchto_wait_until(&in_an_hour), w->starter);
}

/* A clock as it was outside of a namespace, and by how much it is to be off within. */
struct shifted {
	long long outside;
	long long by;
};

/* Whose clock is another one: times are its own, and neither early nor much later. */
CHILD(in_time_namespace)
{
	const long long times[] = { 0, 500, NSEC_PER_SEC / 100 };
	const struct shifted *shifted = arg;
	struct worker w = { 0 };
	struct sink s = { 0 };

	/* It is off by nearly all that it was to be: or all this proved nothing. */
	CHECK(v, llabs(now_ns() - shifted->outside) > shifted->by / 2);
	sink_start(&s);
	FOR_EACH_TIMED_CALL (c) {
		for (int i = 0; i < 9; i++) {
			long long before = now_ns();
			struct timespec time =
				to_timespec(times[i % 3] + (c->absolute ? before : 0));

			CHECK_ERR(v, c->call(s.w.tid, &time), ETIMEDOUT);
			CHECK(v, now_ns() - before >= times[i % 3]);
		}
	}
	worker_start_parked(&w, far_in_namespace, NULL);
	CHECK_EQ(v, switchto_resume(w.tid), 0);
	workers_join(&w, 1, v);
	sink_stop(&s, v);
}

static int makes_time_namespace(void *arg)
{
	const long long *seconds = arg;
	struct shifted shifted = { now_ns(), llabs(*seconds) * NSEC_PER_SEC };

	if (unshare(CLONE_NEWTIME) ||
	    !write_text("/proc/self/timens_offsets", text_of("monotonic %lld 0\n", *seconds))) {
		fprintf(stderr, "special: wanted a time namespace, got %s\n", strerror(errno));
		return NOT_HERE;
	}
	return run_child(in_time_namespace, &shifted);
}

static void run_in_time_namespace(long long seconds)
{
	int status;

	status = run_child(makes_time_namespace, &seconds);
	if (status == NOT_HERE) {
		errno = EPERM;
		left_out("a time namespace (CONFIG_TIME_NS)");
	}
	assert_int_equal(status, 0);
}

TEST(time_namespace)
{
	run_in_time_namespace(86400);
	/* Behind, and no further than the clock has come, which must not be negative. */
	AWAIT(now_ns() > 8 * NSEC_PER_SEC);
	run_in_time_namespace(-(now_ns() / NSEC_PER_SEC * 3 / 4));
}

/* --- the highest TIDs --------------------------------------------------------------- */

#define PID_MAX "/proc/sys/kernel/pid_max"
#define HIGHEST_TID 4194303

static void gets_pending_then_parks(struct worker *w)
{
	CHECK_EQ(&w->v, gettid(), *(pid_t *)w->arg);
	await_release(w);
	CHECK_EQ(&w->v, switchto_wait(&no_time), w->starter);
	CHECK_EQ(&w->v, switchto_self(), gettid());
	CHECK_EQ(&w->v, switchto_wait(NULL), w->starter);
	CHECK_ERR(&w->v, switchto_wait(&no_time), ETIMEDOUT);
}

/* A thread like any other, whatever its number, and the number as a resumer's name. */
static void asks_with_its_tid(struct worker *w)
{
	const struct timespec hour = { 3600, 0 };
	pid_t other = *(pid_t *)w->arg;

	CHECK_EQ(&w->v, switchto_switch_timed(other, &hour), other);
	CHECK_EQ(&w->v, switchto_switch(other), other);
}

static void answers_twice(struct worker *w)
{
	pid_t from = switchto_wait(NULL);

	CHECK_EQ(&w->v, switchto_switch(from), from);
	CHECK_EQ(&w->v, switchto_resume(from), 0);
}

static void works_at(struct verdict *v, pid_t tid, pid_t other)
{
	struct worker w = { 0 }, pair[2] = { 0 };
	pid_t want = tid, answering = other;

	start_as(tid, &w, gets_pending_then_parks, &want);
	CHECK_EQ(v, switchto_resume(tid), 0);
	worker_release(&w);
	await_parked(tid);
	CHECK_EQ(v, switchto_resume(tid), 0);
	workers_join(&w, 1, v);
	CHECK_ERR(v, switchto_resume(tid), ESRCH);

	start_as(other, &pair[1], answers_twice, NULL);
	await_parked(other);
	start_as(tid, &pair[0], asks_with_its_tid, &answering);
	workers_join(pair, 2, v);
	CHECK_ERR(v, switchto_switch(tid), ESRCH);
	CHECK_ERR(v, switchto_switch(other), ESRCH);
}

TEST(highest_tids)
{
	/* Both ends of a piece of the table, the middle of all numbers, the last ones. */
	static const pid_t tids[] = {
		(1 << 21) - 1, 1 << 21,		(1 << 21) + 1, 4193791,
		4193792,       HIGHEST_TID - 1, HIGHEST_TID,
	};
	struct worker w = { 0 };
	char before[32];
	int error;

	if (!read_text(PID_MAX, before, sizeof(before)))
		left_out("kernel.pid_max");
	/* Only where the machine is there for it: it is the whole machine's. */
	if (atoi(before) <= HIGHEST_TID &&
	    (!kernel_has_swap() || !write_text(PID_MAX, "4194304"))) {
		errno = ERANGE;
		left_out("kernel.pid_max of 4194304");
	}
	/* Its TID, or a thread's that is there already, and may be made by whom? */
	error = try_start_as(tids[0], &w, await_release, NULL);
	if (!error) {
		worker_end(&w, v);
		for (unsigned int i = 0; i < sizeof(tids) / sizeof(tids[0]); i++)
			works_at(v, tids[i], tids[(i + 3) % (sizeof(tids) / sizeof(tids[0]))]);
		CHECK_ERR(v, switchto_resume(HIGHEST_TID + 1), ESRCH);
	}
	if (atoi(before) <= HIGHEST_TID)
		write_text(PID_MAX, before);
	verdict_assert(v);
	if (error) {
		errno = error;
		left_out("to choose a thread's TID (CAP_SYS_ADMIN)");
	}
}

/* --- all of it ------------------------------------------------------------------------ */

int main(void)
{
	int cpu[2], failed;

	if (wants_absent_swap("special"))
		return SKIPPED;
	have_groups = make_home();
	no_groups_error = errno;
	have_freezer = make_freezer();
	no_freezer_error = errno;
	failed = run_watched_group(NULL);
	/* Of one CPU nobody can be kept away. */
	if (two_cpus(cpu) == 2)
		failed |= run_watched_group("two_cpus");
	remove_home();
	remove_freezer();
	if (failed)
		return EXIT_FAILURE;
	return left_out_here ? SKIPPED : EXIT_SUCCESS;
}
