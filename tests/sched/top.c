// SPDX-License-Identifier: MIT
/* What tools/switchto-top says of schedulers whose figures are known, of their end, and of lies. */
#include "sched.h"

static char out[65536];

/* As @user, if not 0: its status; out: what it wrote. */
static int top(unsigned int user, const char *options, pid_t pid)
{
	char command[512], who[64] = "";
	size_t length;
	FILE *pipe;

	if (user)
		snprintf(who, sizeof(who), "setpriv --reuid %u --clear-groups", user);
	/* That user may see nothing of the source. */
	snprintf(command, sizeof(command), "timeout 100 %s /usr/bin/python3 - %s %d 2>&1 < %s", who,
		 options, pid, TOP_TOOL);
	// NOLINTNEXTLINE(cert-env33-c): it is the test's own
	pipe = popen(command, "re");
	if (!pipe)
		return -1;
	length = fread(out, 1, sizeof(out) - 1, pipe);
	out[length] = 0;
	return WEXITSTATUS(pclose(pipe));
}

#define JSON "--json -n 1 --interval 0.02"

/* It fails, and one line says so. */
static void fails(unsigned int user, pid_t pid, const char *text)
{
	const int status = top(user, JSON, pid);
	const char *end = strchr(out, '\n');

	if (status != 1 || !strstr(out, text) || !end || end[1])
		fail_msg("wanted status 1 and '%s', found %d: %s", text, status, out);
}

/* The number behind @key, the first one after @at. */
static double number(const char *at, const char *key)
{
	char text[64];
	const char *found;

	snprintf(text, sizeof(text), "\"%s\": ", key);
	found = strstr(at, text);
	return found ? strtod(found + strlen(text), NULL) : -1;
}

/* The sum of all slots. */
static double sum(const char *key)
{
	double total = 0;

	for (const char *at = out; (at = strstr(at, "{\"slot\": ")); at++)
		total += number(at, key);
	return total;
}

/* --- a program whose answer is known --- */

enum { SLEEPING = 3, PARKED = 5, LOCKING = 2, ROUNDS = 2000 };

static struct switchto_mutex mutex;
static struct switchto_task *players[2];
static atomic_bool seen_blocked, over;
static atomic_int played;

static void park(void *arg)
{
	switchto_park(NULL);
}

static void lock(void *arg)
{
	switchto_mutex_lock(&mutex);
	switchto_park(NULL);
	switchto_mutex_unlock(&mutex);
}

static void nap(void *arg)
{
	const struct timespec late = in(3600 * 1000 * MSEC);

	switchto_block_begin();
	while (!atomic_load(&seen_blocked))
		nanosleep(&(struct timespec){ .tv_nsec = MSEC }, NULL);
	switchto_block_end();
	switchto_sleep_until(&late);
}

static void compute(void *arg)
{
	switchto_task_name("\033computes");
	while (!atomic_load(&over))
		;
}

static void play(void *arg)
{
	const long me = (long)arg;

	switchto_park(NULL);
	for (int i = 0; i < ROUNDS; i++) {
		switchto_unpark(players[!me]);
		switchto_park(NULL);
	}
	/* The other one is in its last round. */
	if (!me)
		switchto_unpark(players[1]);
	atomic_fetch_add(&played, 1);
	switchto_park(NULL);
}

/* All at their places: what comes before is to pass. */
static bool settled(unsigned int parked)
{
	for (int i = 0; i < 60; i++) {
		if (top(0, JSON, getpid()) == 0 && strstr(out, "\"answered\": true") &&
		    number(out, "parked") == parked && number(out, "waiting") == SLEEPING &&
		    number(out, "locking") == LOCKING && number(out, "ready") == 0 &&
		    number(out, "running") + number(out, "without_slot") == 1)
			return true;
	}
	printf("%s", out);
	return false;
}

static void count(struct switchto_sched *sched, double *runs, double *retakes)
{
	struct switchto_slot_stats stats;

	*runs = *retakes = 0;
	for (unsigned int i = 0; i < slots; i++) {
		CHECK_EQ(&verdict, switchto_slot_stats(sched, i, &stats), 0);
		*runs += (double)stats.runs;
		*retakes += (double)stats.retakes;
	}
}

static void look(void *arg)
{
	struct switchto_sched *sched = arg;
	double switches, runs, retakes, before;

	for (int i = 0; i < 200 && number(out, "without_slot") < SLEEPING; i++)
		top(0, JSON, getpid());
	CHECK(&verdict, number(out, "without_slot") >= SLEEPING);
	atomic_store(&seen_blocked, true);
	CHECK(&verdict, settled(PARKED + 1 + 2));
	switches = sum("switches");
	switchto_unpark(players[0]);
	while (atomic_load(&played) < 2)
		nanosleep(&(struct timespec){ .tv_nsec = MSEC }, NULL);
	CHECK(&verdict, settled(PARKED + 1 + 2));
	switches = sum("switches") - switches;
	/* A player that loses its slot makes it more, or less. */
	CHECK(&verdict, switches >= 1.5 * ROUNDS && switches <= 3.0 * ROUNDS);
	/* The one that computes may lose its slot meanwhile. */
	do {
		count(sched, &runs, &retakes);
		CHECK(&verdict, settled(PARKED + 1 + 2));
		before = retakes;
		count(sched, &runs, &retakes);
	} while (retakes != before);
	CHECK(&verdict, sum("runs") == runs && sum("retakes") == retakes);
	CHECK(&verdict, strstr(out, "\"longest_running\": {\"task\": \"\\\\x1bcomputes\"") != NULL);
	CHECK(&verdict, number(strstr(out, "longest_running"), "running_s") > 0);
	CHECK(&verdict, number(out, "threads") >= PARKED + SLEEPING + LOCKING);
	CHECK(&verdict, top(0, "-n 1 --interval 0.02", getpid()) == 0 && !strchr(out, '\033'));
	atomic_store(&over, true);
	switchto_sched_stop(sched, SWITCHTO_STOP_CANCEL);
}

TEST(known)
{
	struct switchto_sched *sched;

	setenv("SWITCHTO_STATS", "1", 1);
	sched = new_sched(NULL);
	for (int i = 0; i < PARKED; i++)
		spawn(sched, park, NULL);
	for (int i = 0; i < SLEEPING; i++)
		spawn(sched, nap, NULL);
	for (int i = 0; i < LOCKING + 1; i++)
		assert_int_equal(switchto_spawn_on(sched, 0, lock, NULL, NULL, NULL), 0);
	for (long i = 0; i < 2; i++)
		assert_int_equal(switchto_spawn_on(sched, 0, play, (void *)i, NULL, &players[i]),
				 0);
	/* Last of its slot. */
	assert_int_equal(switchto_spawn_on(sched, slots - 1, compute, NULL, NULL, NULL), 0);
	run_with_thread(sched, look, sched);
	fails(0, getpid(), "found none with SWITCHTO_STATS=1");
}

/* --- processes that end, stop, fork, exec --- */

static void become_another(int number)
{
	execl("/bin/sleep", "sleep", "1000", (char *)NULL);
}

/* It ends with the test, also if that fails. */
static pid_t fork_child(void)
{
	const pid_t pid = fork();

	if (!pid)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	return pid;
}

static pid_t start(void)
{
	const pid_t pid = fork_child();

	if (!pid) {
		struct switchto_sched *sched = new_sched(NULL);

		signal(SIGUSR1, become_another);
		spawn(sched, park, NULL);
		_exit(switchto_sched_run(sched));
	}
	assert_true(pid > 0);
	for (int i = 0; i < 200 && (top(0, JSON, pid) || number(out, "parked") != 1); i++)
		;
	assert_true(number(out, "parked") == 1);
	return pid;
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* Each slot, the switches, and both times of ready tasks have a line. */
static void is_drawn(pid_t pid)
{
	char file[] = "/tmp/switchto-top-XXXXXX", options[64];
	const int fd = mkstemp(file);
	ssize_t length;
	int lines = 0;

	assert_int_not_equal(fd, -1);
	snprintf(options, sizeof(options), "-n 3 --interval 0.02 --plot %s", file);
	assert_int_equal(top(0, options, pid), 0);
	length = pread(fd, out, sizeof(out) - 1, 0);
	assert_true(length > 0);
	out[length] = '\0';
	for (const char *at = out; (at = strstr(at, "<polyline")); at++)
		lines++;
	assert_true(lines >= 4);
	assert_non_null(strstr(out, "</svg>\n"));
	unlink(file);
	close(fd);
}

TEST(processes)
{
	char line[512];
	FILE *pipe;
	pid_t pid;

	setenv("SWITCHTO_STATS", "1", 1);
	pid = start();
	kill(pid, SIGSTOP);
	assert_int_equal(top(0, JSON, pid), 0);
	assert_non_null(strstr(out, "\"runs\": true, \"answered\": false"));
	kill(pid, SIGCONT);
	if (geteuid() == 0)
		fails(65534, pid, "another user's");
	is_drawn(pid);

	snprintf(line, sizeof(line), "timeout 100 %s --interval 0.02 %d 2>&1", TOP_TOOL, pid);
	// NOLINTNEXTLINE(cert-env33-c): it is the test's own
	pipe = popen(line, "re");
	assert_non_null(pipe);
	assert_non_null(fgets(line, sizeof(line), pipe));
	end(pid);
	while (fgets(out, sizeof(out), pipe))
		;
	assert_int_equal(pclose(pipe), 0);
	assert_non_null(strstr(out, "has ended\n"));
	fails(0, pid, "wanted a process, found none");

	pid = start();
	kill(pid, SIGUSR1);
	for (int i = 0; i < 200 && top(0, JSON, pid) == 0; i++)
		;
	fails(0, pid, "found none with SWITCHTO_STATS=1");
	end(pid);
}

/* The child has its parent's descriptors, and is not its parent. What it destroys is its own. */
TEST(forks)
{
	struct switchto_sched *sched;
	int ready[2];
	char byte;
	pid_t pid;

	setenv("SWITCHTO_STATS", "1", 1);
	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	sched = new_sched(NULL);
	pid = fork_child();
	if (!pid) {
		pause();
		_exit(1);
	}
	fails(0, pid, "found none with SWITCHTO_STATS=1");
	end(pid);
	pid = fork_child();
	if (!pid) {
		struct switchto_sched *own = new_sched_with(&switchto_edf, 0, 1);

		if (!own || switchto_sched_destroy(sched) || write(ready[1], "", 1) != 1)
			_exit(1);
		pause();
	}
	assert_int_equal(read(ready[0], &byte, 1), 1);
	assert_int_equal(top(0, JSON, pid), 0);
	assert_non_null(strstr(out, "\"policy\": \"edf\""));
	assert_null(strstr(out, "\"policy\": \"fifo\""));
	assert_int_equal(top(0, JSON, getpid()), 0);
	assert_null(strstr(out, "\"policy\": \"edf\""));
	assert_non_null(strstr(out, "\"policy\": \"fifo\""));
	end(pid);
	close_both(ready);
	assert_int_equal(switchto_sched_destroy(sched), 0);
}

/* --- what can't be offered, and lies --- */

TEST(not_offered)
{
	const int error = dup(STDERR_FILENO);
	rlim_t old;
	struct switchto_sched *sched;
	char line[256] = "";
	int said[2];

	setenv("SWITCHTO_STATS", "1", 1);
	/* A log may be longer than the limit. */
	assert_int_equal(pipe2(said, O_CLOEXEC), 0);
	assert_int_equal(dup2(said[1], STDERR_FILENO), STDERR_FILENO);
	old = set_limit(RLIMIT_FSIZE, 64);
	sched = new_sched(NULL);
	set_limit(RLIMIT_FSIZE, old);
	assert_int_equal(dup2(error, STDERR_FILENO), STDERR_FILENO);
	close(error);
	close(said[1]);
	assert_true(read(said[0], line, sizeof(line) - 1) > 0);
	close(said[0]);
	assert_string_equal(line,
			    "libswitchto-sched: SWITCHTO_STATS=1: not offered: File too large\n");
	fails(0, getpid(), "found none with SWITCHTO_STATS=1");
	spawn(sched, compute, NULL);
	atomic_store(&over, true);
	run_tasks(sched);
	setenv("SWITCHTO_STATS", "0", 1);
	sched = new_sched(NULL);
	fails(0, getpid(), "found none with SWITCHTO_STATS=1");
	assert_int_equal(switchto_sched_destroy(sched), 0);
}

static void write_at(char *data, size_t at, uint32_t value)
{
	memcpy(data + at, &value, sizeof(value));
}

/* An offer of @size bytes. */
static int lie(const char *data, size_t size)
{
	const int fd = memfd_create("switchto-stats", MFD_CLOEXEC);

	assert_true(fd != -1);
	assert_int_equal(write(fd, data, size), size);
	return fd;
}

/* Offsets of struct offer. */
enum { SLOTS = 12, NAME = 16, VERSION = 72, ANSWERS = 76, FIGURES = 80, HEAD = 168 };

TEST(lies)
{
	static char true_one[65536], data[sizeof(true_one)];
	struct switchto_sched *sched;
	char link[64] = "";
	ssize_t size = 0;
	int fd;

	setenv("SWITCHTO_STATS", "1", 1);
	sched = new_sched(NULL);
	for (fd = 0; fd < 1024 && !strstr(link, "switchto-stats"); fd++) {
		if (readlink(text_of("/proc/self/fd/%d", fd), link, sizeof(link) - 1) > 0)
			size = pread(fd, true_one, sizeof(true_one), 0);
	}
	assert_int_equal(fcntl(fd - 1, F_GET_SEALS), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
	assert_int_equal(switchto_sched_destroy(sched), 0);
	assert_true(size > FIGURES && !memcmp(true_one, "SWSTATS1", 8));

	fd = lie(true_one, 50);
	fails(0, getpid(), "byte 0: wanted the head");
	close(fd);
	fd = lie(true_one, (size_t)size - 1);
	fails(0, getpid(), "wanted the end at ");
	close(fd);
	memcpy(data, true_one, sizeof(data));
	write_at(data, SLOTS, UINT32_MAX);
	fd = lie(data, (size_t)size);
	fails(0, getpid(), "byte 12: wanted 1024 slots at most, found 4294967295");
	close(fd);
	memcpy(data, true_one, sizeof(data));
	write_at(data, VERSION, 7);
	fd = lie(data, (size_t)size);
	fails(0, getpid(), "byte 72: wanted figures that stand still within 2 s, found 7");
	close(fd);
	memset(data, 0xff, 8);
	fd = lie(data, (size_t)size);
	fails(0, getpid(), "byte 0: wanted the head");
	/* As one that is about to be filled. */
	assert_int_equal(ftruncate(fd, 0), 0);
	fails(0, getpid(), "found none with SWITCHTO_STATS=1");
	close(fd);

	/* Any figures, and names that would change a terminal; no slot. */
	memcpy(data, true_one, sizeof(data));
	memset(data + NAME, '\033', 48);
	memset(data + FIGURES, 0xff, (size_t)size - FIGURES);
	fd = lie(data, (size_t)size);
	assert_int_equal(top(0, "-n 1 --interval 0.02", getpid()), 0);
	assert_null(strchr(out, '\033'));
	assert_int_equal(top(0, JSON, getpid()), 0);
	assert_null(strchr(out, '\033'));
	close(fd);
	memcpy(data, true_one, sizeof(data));
	write_at(data, SLOTS, 0);
	fd = lie(data, HEAD);
	assert_int_equal(top(0, "-n 1 --interval 0.02", getpid()), 0);
	assert_non_null(strstr(out, "0 running"));
	close(fd);
	assert_int_equal(top(0, "--interval x", getpid()), 2);
}

/* A program may close all its descriptors, and use their numbers. */
TEST(closed_by_the_program)
{
	struct switchto_sched *sched;
	char name[64], file[64] = "";
	int fd = 2, other;

	setenv("SWITCHTO_STATS", "1", 1);
	sched = new_sched(NULL);
	while (!strstr(file, "switchto-stats") && ++fd < 1000) {
		snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
		memset(file, 0, sizeof(file));
		if (readlink(name, file, sizeof(file) - 1) == -1)
			file[0] = '\0';
	}
	assert_true(fd < 1000);
	other = memfd_create("other", MFD_CLOEXEC);
	assert_int_equal(dup2(other, fd), fd);
	run_tasks(sched);
	assert_int_equal(fcntl(fd, F_GETFD), 0);
	close(fd);
	close(other);
}
