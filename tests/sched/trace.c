// SPDX-License-Identifier: MIT
/* Traces: begun and ended at any time; files that can't be; names; children. */
#include "sched.h"

#include <spawn.h>

/* Not of the file system of the machine's root, which may be 9p. */
static char folder[] = "/dev/shm/sched-trace-XXXXXX";
static char path[64], other[64];

static void begin_files(void)
{
	if (path[0])
		return;
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/a", folder);
	snprintf(other, sizeof(other), "%s/b", folder);
}

static void end_files(void)
{
	unlink(path);
	unlink(other);
	rmdir(folder);
	strcpy(folder, "/dev/shm/sched-trace-XXXXXX");
	path[0] = 0;
}

/* Its status: 0, the trace is true. */
static int check_trace(const char *file)
{
	char command[256];

	snprintf(command, sizeof(command), "timeout 100 %s --check %s >&2", TRACE_TOOL, file);
	// NOLINTNEXTLINE(cert-env33-c): it is the test's own
	return system(command);
}

static void refused(const char *file, size_t bytes, int error)
{
	CHECK_ERR(&verdict, switchto_trace_start(file, bytes), error);
}

TEST(refuses)
{
	rlim_t old;

	begin_files();
	refused(NULL, 0, EINVAL);
	refused(path, 4096, EINVAL);
	refused(folder, 0, EINVAL);
	refused("/dev/null", 0, EINVAL);
	refused("/nowhere/at/all", 0, ENOENT);
	assert_int_equal(mkfifo(path, 0600), 0);
	refused(path, 0, EINVAL);
	unlink(path);
	old = set_limit(RLIMIT_FSIZE, 1 << 20);
	refused(path, 0, EFBIG);
	set_limit(RLIMIT_FSIZE, old);
	CHECK_ERR(v, switchto_trace_stop(), EINVAL);
	assert_int_equal(switchto_trace_start(path, 1 << 20), 0);
	refused(other, 0, EBUSY);
	assert_int_equal(switchto_trace_stop(), 0);
	assert_int_equal(switchto_trace_stop(), -1);
	end_files();
}

static atomic_bool over;

static void yield_all(void *arg)
{
	YIELD_UNTIL(atomic_load(&over));
}

static void park_all(void *arg)
{
	while (!atomic_load(&over)) {
		const struct timespec soon = { 0, 1 };

		switchto_park(&soon);
		switchto_yield();
	}
}

/* Slots that run, that sleep, and with little room. */
static void start_and_stop(void *arg)
{
	for (int i = 0; i < LOOPS(40); i++) {
		CHECK_EQ(&verdict, switchto_trace_start(path, i % 3 ? 1 << 20 : 65536 * 4), 0);
		nanosleep(&(struct timespec){ .tv_nsec = (i % 8) * MSEC }, NULL);
		CHECK_EQ(&verdict, switchto_trace_stop(), 0);
		if (i % 10 == 0)
			CHECK_EQ(&verdict, check_trace(path), 0);
	}
	atomic_store(&over, true);
}

static void restart(const struct switchto_policy *policy, unsigned int flags)
{
	struct switchto_sched *sched = new_sched_with(policy, flags, slots);

	begin_files();
	atomic_store(&over, false);
	for (int i = 0; i < 4; i++) {
		spawn(sched, yield_all, NULL);
		spawn(sched, park_all, NULL);
	}
	run_with_thread(sched, start_and_stop, NULL);
	end_files();
}

TEST(restart_fifo)
{
	restart(NULL, 0);
}

TEST(restart_priority)
{
	restart(&switchto_priority, SWITCHTO_STEAL | SWITCHTO_MEASURE);
}

static void named(void *arg)
{
	char before[16], now[16];

	CHECK_ERR(&verdict, switchto_task_name(NULL), EINVAL);
	prctl(PR_GET_NAME, before);
	CHECK_EQ(&verdict, switchto_task_name("a name that is too long"), 0);
	prctl(PR_GET_NAME, now);
	CHECK_EQ(&verdict, strcmp(now, "a name that is "), 0);
	CHECK_EQ(&verdict, switchto_task_name(""), 0);
	prctl(PR_GET_NAME, now);
	CHECK_EQ(&verdict, strcmp(now, before), 0);
	CHECK_EQ(&verdict, switchto_task_name("brief"), 0);
}

static void unnamed(void *arg)
{
	char now[16];

	prctl(PR_GET_NAME, now);
	CHECK(&verdict, strcmp(now, "brief") != 0);
}

TEST(names)
{
	CHECK_ERR(v, switchto_task_name("thread"), EPERM);
	for (int i = 0; i < 8; i++) {
		add_task(named, NULL);
		add_task(unnamed, NULL);
	}
	run_added();
}

/* Events of slots, and of threads that have none. */
static uint64_t used(const char *file)
{
	const int fd = open(file, O_RDONLY | O_CLOEXEC);
	uint64_t all = 0, one;
	uint32_t lanes = 0;

	CHECK_EQ(&verdict, pread(fd, &lanes, sizeof(lanes), 8), (ssize_t)sizeof(lanes));
	for (uint32_t i = 1; i < lanes; i++) {
		CHECK_EQ(&verdict, pread(fd, &one, sizeof(one), 4096 + 64 * i),
			 (ssize_t)sizeof(one));
		all += one;
	}
	close(fd);
	return all;
}

static void leave_soon(void *arg) {}

/* A child records nothing, can't disturb its parent's trace, and can have one of its own. */
TEST(child)
{
	struct switchto_sched *sched;
	uint64_t before;
	int status;
	pid_t pid;

	begin_files();
	assert_int_equal(switchto_trace_start(path, 1 << 20), 0);
	sched = new_sched(NULL);
	spawn(sched, leave_soon, NULL);
	before = used(path);
	pid = fork();
	if (!pid) {
		struct switchto_sched *own = new_sched(NULL);

		spawn(own, leave_soon, NULL);
		if (switchto_trace_stop() != -1 || switchto_sched_run(own))
			_exit(1);
		if (switchto_trace_start(path, 1 << 20) != -1 || errno != EBUSY)
			_exit(2);
		if (switchto_trace_start(other, 1 << 20) || switchto_trace_stop())
			_exit(3);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(used(path), before);
	run_tasks(sched);
	assert_true(used(path) > before);
	assert_int_equal(switchto_trace_stop(), 0);
	assert_int_equal(check_trace(path), 0);
	assert_int_equal(check_trace(other), 0);
	end_files();
}

static void become_another(void *arg)
{
	execl("/bin/sleep", "sleep", "1000", (char *)NULL);
}

/* What was recorded before stays, and the program that is run instead does not have the file. */
TEST(exec)
{
	char comm[32], program[16] = "";
	int again;
	pid_t pid;

	begin_files();
	pid = fork();
	if (!pid) {
		struct switchto_sched *sched;

		if (switchto_trace_start(path, 1 << 20))
			_exit(1);
		sched = new_sched(NULL);
		spawn(sched, leave_soon, NULL);
		spawn(sched, become_another, NULL);
		_exit(switchto_sched_run(sched) ? 2 : 3);
	}
	snprintf(comm, sizeof(comm), "/proc/%d/comm", pid);
	while (strcmp(program, "sleep\n") != 0 && waitpid(pid, NULL, WNOHANG) == 0) {
		const int fd = open(comm, O_RDONLY | O_CLOEXEC);

		memset(program, 0, sizeof(program));
		if (fd == -1 || read(fd, program, sizeof(program) - 1) < 0)
			program[0] = '\0';
		close(fd);
	}
	CHECK(&verdict, used(path) > 2);
	CHECK_EQ(&verdict, check_trace(path), 0);
	again = switchto_trace_start(path, 1 << 20);
	/* Before anything fails: what sleeps would stay. */
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	assert_string_equal(program, "sleep\n");
	assert_int_equal(again, 0);
	assert_int_equal(switchto_trace_stop(), 0);
	verdict_assert(&verdict);
	end_files();
}

static atomic_bool starts_programs;

static void start_programs(void *unused)
{
	char *const none[] = { NULL }, *const arguments[] = { "true", NULL };
	pid_t pid;

	while (atomic_load(&starts_programs))
		if (!posix_spawn(&pid, "/bin/true", NULL, NULL, arguments, none))
			waitpid(pid, NULL, 0);
}

/* A program that is about to begin has all files open. */
TEST(again_beside_programs)
{
	pthread_t starter;

	begin_files();
	atomic_store(&starts_programs, true);
	starter = start_thread(start_programs, NULL);
	for (int i = 0; i < 100; i++) {
		CHECK_EQ(&verdict, switchto_trace_start(path, 1 << 20), 0);
		CHECK_EQ(&verdict, switchto_trace_stop(), 0);
	}
	atomic_store(&starts_programs, false);
	pthread_join(starter, NULL);
	end_files();
}

/* Memory that may not be locked: a trace does not begin, and ends all the same. */
CHILD(start_and_stop_in_locked_memory)
{
	const struct rlimit few = { 1 << 20, 1 << 20 };
	struct stat status;

	CHECK_EQ(v, setrlimit(RLIMIT_MEMLOCK, &few), 0);
	/* Root may lock what it likes. */
	CHECK(v, geteuid() || !setresuid(65534, 65534, 65534));
	CHECK_EQ(v, switchto_trace_start(path, 8 << 20), 0);
	CHECK_EQ(v, mlockall(MCL_FUTURE), 0);
	CHECK_EQ(v, switchto_trace_stop(), 0);
	/* What is late is written there. */
	CHECK_ERR(v, switchto_trace_start(path, 8 << 20), EBUSY);
	CHECK_ERR(v, switchto_trace_start(other, 8 << 20), ENOMEM);
	CHECK_EQ(v, stat(other, &status), 0);
	CHECK_EQ(v, status.st_size, 0);
}

TEST(locked_memory)
{
#if defined(UNDER_ASAN) || defined(UNDER_TSAN)
	skip(); /* Their own memory can't be locked. */
#endif
	begin_files();
	close(open(path, O_CREAT | O_RDWR, 0666));
	chmod(path, 0666);
	chmod(folder, 0777);
	assert_int_equal(run_child(start_and_stop_in_locked_memory, NULL), 0);
	end_files();
}
