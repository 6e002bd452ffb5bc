// SPDX-License-Identifier: MIT
/*
 * Many switches, and beside them everything that could get in their way: nice
 * values, affinity, scheduling classes, control groups and their quota, signals,
 * CPUs that go and come back, threads that end, CPU hogs.
 *
 * The threads form rings. In each of them one turn goes round: who has it counts
 * it, without any lock, and switches to the next. So two threads that run at a
 * time, a switch that is lost, and one that is done twice all show in the sum or
 * as a ring that stands still. Whether the kernel's own books are right is for
 * its checks to say (CONFIG_SCHED_DEBUG), which this turns on where they are.
 */
#include <switchto/switchto.h>

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define RINGS 5
#define MOST_THREADS 8
#define EXIT_SKIP 77

/* One turn of a ring is over after so many switches: then its threads end. */
#define SWITCHES_PER_LIFE 20000

struct ring {
	int threads;
	pthread_t pthreads[MOST_THREADS];
	_Atomic pid_t tids[MOST_THREADS];
	/* Only who has the turn touches these. */
	long turns;
	long limit;
	/* For the others to look at. */
	_Atomic long seen;
	_Atomic long done;	/* in lives that are over */
	pthread_barrier_t start;
};

struct seat {
	struct ring *ring;
	int index;
	long turns;
};

static struct ring rings[RINGS] = {
	{ .threads = 2 }, { .threads = 2 }, { .threads = 3 }, { .threads = 5 }, { .threads = 8 },
};

static atomic_bool stop;
static long switches = 200000;
static int patience = 60;
static bool need_all;
static char group[256];

static _Noreturn void fail(const char *what)
{
	fprintf(stderr, "handoff_stress: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* Something that this machine or user doesn't let us do is left out, aloud. */
static void left_out(const char *what)
{
	fprintf(stderr, "handoff_stress: %s: %s: %s\n", need_all ? "wanted" : "left out", what,
		strerror(errno));
	if (need_all)
		exit(1);
}

static bool write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	ssize_t written;

	if (fd < 0)
		return false;
	written = write(fd, text, strlen(text));
	close(fd);
	return written == (ssize_t)strlen(text);
}

static bool read_file(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t length;

	if (fd < 0)
		return false;
	length = read(fd, text, size - 1);
	close(fd);
	if (length < 0)
		return false;
	text[length] = '\0';
	return true;
}

static void pause_ms(long ms)
{
	const struct timespec time = { ms / 1000, ms % 1000 * 1000000 };

	nanosleep(&time, NULL);
}

/* --- the rings ---------------------------------------------------------------- */

static void take_turn(struct seat *seat)
{
	seat->ring->turns++;
	seat->turns++;
	atomic_store_explicit(&seat->ring->seen, seat->ring->turns, memory_order_relaxed);
}

/* A signal may end the wait half of a switch, not undo the resume. */
static void wait_for_turn(pid_t from)
{
	while (from < 0 && errno == EINTR)
		from = switchto_wait(NULL);
	if (from < 0)
		fail("switch");
}

static void *sit(void *arg)
{
	struct seat *seat = arg;
	struct ring *ring = seat->ring;
	int next = (seat->index + 1) % ring->threads;

	ring->tids[seat->index] = switchto_self();
	pthread_barrier_wait(&ring->start);
	if (seat->index)
		wait_for_turn(switchto_wait(NULL));

	for (;;) {
		take_turn(seat);
		if (ring->turns >= ring->limit || stop)
			break;
		wait_for_turn(switchto_switch(ring->tids[next]));
	}

	/* The last in the ring finds that the first has ended: ESRCH. */
	switchto_resume(ring->tids[next]);
	return NULL;
}

static void live(struct ring *ring)
{
	struct seat seats[MOST_THREADS];
	long sum = 0;

	ring->turns = 0;
	ring->limit = SWITCHES_PER_LIFE;
	pthread_barrier_init(&ring->start, NULL, ring->threads);

	for (int i = 0; i < ring->threads; i++) {
		seats[i] = (struct seat){ .ring = ring, .index = i };
		errno = pthread_create(&ring->pthreads[i], NULL, sit, &seats[i]);
		if (errno)
			fail("pthread_create");
	}
	for (int i = 0; i < ring->threads; i++) {
		pthread_join(ring->pthreads[i], NULL);
		ring->tids[i] = 0;
		sum += seats[i].turns;
	}
	pthread_barrier_destroy(&ring->start);
	if (sum != ring->turns) {
		fprintf(stderr, "handoff_stress: %ld turns taken, %ld counted: two threads had the turn at a time\n",
			sum, ring->turns);
		exit(1);
	}
	ring->done += ring->turns;
	ring->seen = 0;
}

static void *host(void *arg)
{
	while (!stop)
		live(arg);
	return NULL;
}

/* --- what happens to them ------------------------------------------------------ */

struct dice {
	unsigned int state;
};

static int roll(struct dice *dice, int sides)
{
	return rand_r(&dice->state) % sides;
}

/* A thread of some ring, or 0 if there is none just now. It may end any time. */
static pid_t somebody(struct dice *dice)
{
	struct ring *ring = &rings[roll(dice, RINGS)];

	return ring->tids[roll(dice, ring->threads)];
}

/*
 * The same, or mostly all threads of one ring: a hand-off is between equals, so
 * if each were changed for itself there would be few left.
 */
static int some(struct dice *dice, pid_t *tids)
{
	struct ring *ring = &rings[roll(dice, RINGS)];

	if (!roll(dice, 8)) {
		tids[0] = somebody(dice);
		return 1;
	}
	for (int i = 0; i < ring->threads; i++)
		tids[i] = ring->tids[i];
	return ring->threads;
}

static bool allowed(int result, const char *what)
{
	if (result == 0 || errno == ESRCH)
		return true;
	left_out(what);
	return false;
}

static void *change_nice(void *arg)
{
	static const int values[] = { 0, 0, 0, 5, 5, -5, 10, 19 };
	struct dice dice = { 1 };
	pid_t tids[MOST_THREADS];

	for (; !stop; pause_ms(3)) {
		int n = some(&dice, tids), value = values[roll(&dice, 8)];

		for (int i = 0; i < n; i++)
			if (tids[i] && !allowed(setpriority(PRIO_PROCESS, tids[i], value), "nice values"))
				return arg;
	}
	return arg;
}

static void *change_affinity(void *arg)
{
	int cpus = sysconf(_SC_NPROCESSORS_CONF);
	struct dice dice = { 2 };
	pid_t tids[MOST_THREADS];
	cpu_set_t set;

	for (; !stop; pause_ms(5)) {
		int n = some(&dice, tids);

		CPU_ZERO(&set);
		if (roll(&dice, 2))
			CPU_SET(roll(&dice, cpus), &set);
		else
			for (int i = 0; i < cpus; i++)
				CPU_SET(i, &set);
		/* EINVAL: of these CPUs none is there. */
		for (int i = 0; i < n; i++)
			if (tids[i] && sched_setaffinity(tids[i], sizeof(set), &set) &&
			    errno != EINVAL && !allowed(-1, "affinity"))
				return arg;
	}
	return arg;
}

static void *change_class(void *arg)
{
	static const int policies[] = { SCHED_OTHER, SCHED_OTHER, SCHED_BATCH, SCHED_IDLE };
	const struct sched_param none = { 0 }, lowest = { 1 };
	struct dice dice = { 3 };
	pid_t tid;

	for (; !stop; pause_ms(10)) {
		tid = somebody(&dice);
		if (!tid)
			continue;
		/* Not for long: a ring of them leaves nothing to anybody else. */
		if (!roll(&dice, 3)) {
			if (!allowed(sched_setscheduler(tid, roll(&dice, 2) ? SCHED_FIFO : SCHED_RR,
							&lowest), "real-time classes"))
				break;
			pause_ms(2);
		}
		if (!allowed(sched_setscheduler(tid, policies[roll(&dice, 4)], &none), "classes"))
			break;
	}
	return arg;
}

static void handler(int sig)
{
	(void)sig;
}

static void *send_signals(void *arg)
{
	struct dice dice = { 4 };
	pid_t tid;

	for (; !stop; pause_ms(2)) {
		tid = somebody(&dice);
		if (tid)
			syscall(SYS_tgkill, getpid(), tid, roll(&dice, 2) ? SIGUSR1 : SIGUSR2);
	}
	return arg;
}

/* Where threads go; the last one is empty, see make_groups(). */
static const char *const groups[] = { "", "/a", "/b", "/b/c", "/quota" };

static void *change_group(void *arg)
{
	struct dice dice = { 5 };
	pid_t tids[MOST_THREADS];
	char path[512], text[32];

	for (; !stop; pause_ms(5)) {
		int n = some(&dice, tids);

		snprintf(path, sizeof(path), "%s%s/cgroup.threads", group, groups[roll(&dice, 4)]);
		for (int i = 0; i < n; i++) {
			snprintf(text, sizeof(text), "%d", tids[i]);
			if (tids[i] && !write_file(path, text) && !allowed(-1, path))
				return arg;
		}
		if (!roll(&dice, 10)) {
			snprintf(path, sizeof(path), "%s/a/cpu.max", group);
			if (!write_file(path, roll(&dice, 2) ? "max 10000" : "4000 10000"))
				left_out(path);
		}
		if (!roll(&dice, 10)) {
			snprintf(path, sizeof(path), "%s/b/cpu.weight", group);
			if (!write_file(path, roll(&dice, 2) ? "100" : "300"))
				left_out(path);
		}
	}
	return arg;
}

static bool set_online(int cpu, bool online)
{
	char path[128];

	snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/online", cpu);
	return write_file(path, online ? "1" : "0");
}

static void *change_cpus(void *arg)
{
	int cpus = sysconf(_SC_NPROCESSORS_CONF), cpu;
	struct dice dice = { 6 };

	for (; !stop; pause_ms(100 + roll(&dice, 300))) {
		cpu = 1 + roll(&dice, cpus - 1);
		/* EBUSY: the kernel is at it elsewhere. */
		if (!set_online(cpu, false) && errno != EBUSY) {
			left_out("CPU hotplug");
			break;
		}
		pause_ms(50 + roll(&dice, 100));
		while (!set_online(cpu, true) && errno == EBUSY)
			;
	}
	return arg;
}

static void *hog(void *arg)
{
	while (!stop)
		;
	return arg;
}

/* --- around it ------------------------------------------------------------------ */

static bool make_groups(const char *root)
{
	char path[512];

	snprintf(path, sizeof(path), "%s/cgroup.subtree_control", root);
	if (!write_file(path, "+cpu"))
		return false;
	snprintf(group, sizeof(group), "%s/handoff_stress.%d", root, getpid());
	for (int i = 0; i < 5; i++) {
		snprintf(path, sizeof(path), "%s%s", group, groups[i]);
		if (mkdir(path, 0755))
			return false;
		if (!i)
			continue;
		strcat(path, "/cgroup.type");
		if (!write_file(path, "threaded"))
			return false;
	}
	snprintf(path, sizeof(path), "%s/cgroup.procs", group);
	if (!write_file(path, "0"))
		return false;
	for (int i = 0; i < 3; i += 2) {
		snprintf(path, sizeof(path), "%s%s/cgroup.subtree_control", group, groups[i]);
		if (!write_file(path, "+cpu"))
			return false;
	}

	/*
	 * The first quota in the system and the end of the last one patch the
	 * code of the scheduler, by way of int3. In QEMU 7.2's TCG with several
	 * CPUs, one was seen to execute that int3 when it was gone from memory
	 * already, with interrupts off, so before the other could be told that
	 * all CPUs are past it; the kernel can only oops. So one quota is there
	 * from before the first switch to after the last.
	 */
	snprintf(path, sizeof(path), "%s/quota/cpu.max", group);
	return write_file(path, "10000 10000");
}

static void remove_groups(const char *root)
{
	char path[512];

	snprintf(path, sizeof(path), "%s/cgroup.procs", root);
	write_file(path, "0");
	for (int i = 4; i >= 0; i--) {
		snprintf(path, sizeof(path), "%s%s", group, groups[i]);
		rmdir(path);
	}
}

/* The kernel's check of its own sums. It warns in its log as well. */
static void verify_averages(void)
{
	char text[64];

	if (!read_file("/sys/kernel/debug/sched/verify_averages", text, sizeof(text)))
		return;
	if (strcmp(text, "0\n")) {
		fprintf(stderr, "handoff_stress: the averages of %d cfs_rqs are wrong\n", atoi(text));
		exit(1);
	}
}

static long total(void)
{
	long sum = 0;

	for (int i = 0; i < RINGS; i++)
		sum += rings[i].done + rings[i].seen;
	return sum;
}

/* Nobody may stand still for longer than our patience. */
static void watch(void)
{
	long before[RINGS] = { 0 };
	int still[RINGS] = { 0 };

	for (int seconds = 0; total() < switches; seconds++) {
		pause_ms(1000);
		for (int i = 0; i < RINGS; i++) {
			long now = rings[i].done + rings[i].seen;

			still[i] = now == before[i] ? still[i] + 1 : 0;
			before[i] = now;
			if (still[i] < patience)
				continue;
			fprintf(stderr, "handoff_stress: ring %d of %d threads stood still for %d s after %ld turns\n",
				i, rings[i].threads, patience, now);
			abort();
		}
		if (seconds % 5 == 4)
			verify_averages();
		if (seconds % 30 == 29)
			printf("%ld switches after %d s\n", total(), seconds + 1);
	}
}

static void begin(pthread_t *thread, void *(*function)(void *), void *arg)
{
	errno = pthread_create(thread, NULL, function, arg);
	if (errno)
		fail("pthread_create");
}

static void parse(int argc, char **argv)
{
	static const struct option options[] = {
		{ "switches", required_argument, NULL, 's' },
		{ "patience", required_argument, NULL, 'p' },
		{ "need-all", no_argument, NULL, 'a' },
		{ 0 },
	};
	int option;

	while ((option = getopt_long(argc, argv, "", options, NULL)) >= 0) {
		switch (option) {
		case 's':
			switches = atol(optarg);
			break;
		case 'p':
			patience = atoi(optarg);
			break;
		case 'a':
			need_all = true;
			break;
		default:
			fprintf(stderr, "usage: handoff_stress [--switches=N] [--patience=SECONDS] [--need-all]\n");
			exit(1);
		}
	}
	if (switches <= 0 || patience <= 0) {
		fprintf(stderr, "handoff_stress: wanted numbers above 0\n");
		exit(1);
	}
}

int main(int argc, char **argv)
{
	static const char root[] = "/sys/fs/cgroup";
	static const char counts[] = "/sys/kernel/debug/futex_swap";
	static const char features[] = "/sys/kernel/debug/sched/features";
	void *(*meddlers[8])(void *) = { change_nice, change_affinity, change_class, send_signals, hog };
	pthread_t hosts[RINGS], threads[8];
	struct sigaction action = { .sa_handler = handler };
	char text[2048];
	int n = 5;

	parse(argc, argv);
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (!switchto_backend())
		fail("switchto_backend");
	printf("backend %s\n", switchto_backend());
	if (strcmp(switchto_backend(), "swap") && need_all) {
		fprintf(stderr, "handoff_stress: skipped: this kernel has no FUTEX_SWAP\n");
		return EXIT_SKIP;
	}

	sigaction(SIGUSR1, &action, NULL);
	action.sa_flags = SA_RESTART;
	sigaction(SIGUSR2, &action, NULL);
	/* A run beside other work on a machine must not change what is the machine's. */
	if (need_all) {
		if (make_groups(root))
			meddlers[n++] = change_group;
		else
			left_out("control groups");
		if (sysconf(_SC_NPROCESSORS_CONF) > 1)
			meddlers[n++] = change_cpus;
	} else {
		printf("left out without --need-all: control groups, CPU hotplug\n");
	}
	if (write_file(features, "VERIFY_SUMS"))
		printf("the kernel verifies its sums\n");
	for (int i = 0; i < RINGS; i++)
		begin(&hosts[i], host, &rings[i]);
	for (int i = 0; i < n; i++)
		begin(&threads[i], meddlers[i], NULL);

	watch();

	stop = true;
	for (int i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < RINGS; i++)
		pthread_join(hosts[i], NULL);
	verify_averages();
	write_file(features, "NO_VERIFY_SUMS");
	printf("%ld switches\n", total());
	if (read_file(counts, text, sizeof(text)))
		fputs(text, stdout);
	if (need_all)
		remove_groups(root);

	return 0;
}
