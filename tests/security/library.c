// SPDX-License-Identifier: MIT
/*
 * What the library takes from its surroundings and leaves there, on any kernel: in
 * a set-user-ID program the environment does not choose its backend; all that it
 * asks the kernel for is on one short list; it opens no file but one of /proc on its
 * own threads, for reading, and has closed it when it returns; its memory is bounded.
 */
#include "pair.h"
#include "seccomp.h"
#include "tracer.h"

#include <switchto/switchto.h>

#include <sys/auxv.h>
#include <sys/ptrace.h>
#include <sys/sendfile.h>
#include <sys/statvfs.h>

#define NOBODY 65534

/* --- a set-user-ID program ------------------------------------------------------- */

/* In a copy of this program, with a variable that names no backend. */
static int chooses_nevertheless(void)
{
	struct verdict v = { 0 };
	const char *backend = switchto_backend();

	if (!getauxval(AT_SECURE))
		give_up("AT_SECURE: wanted it set in a set-user-ID program, found it clear");
	CHECK(&v, backend && strcmp(backend, kernel_has_swap() ? "swap" : "wake-wait") == 0);
	CHECK_EQ(&v, switchto_self(), gettid());
	pair_works(&v, 10);
	return verdict_status(&v);
}

static int obeys(void)
{
	struct verdict v = { 0 };

	CHECK(&v, switchto_backend() == NULL);
	CHECK_EQ(&v, errno, ENOTSUP);
	return verdict_status(&v);
}

struct copy {
	char path[64];
	const char *mode;
};

static int run_copy_as_nobody(void *arg)
{
	const struct copy *copy = arg;

	if (setresuid(NOBODY, NOBODY, NOBODY))
		give_up("setresuid: wanted user %d, got %s", NOBODY, strerror(errno));
	setenv("SWITCHTO_BACKEND", "nonsense", 1);
	execl(copy->path, "test", copy->mode, (char *)NULL);
	give_up("exec: wanted %s, got %s", copy->path, strerror(errno));
}

/* Where a set-user-ID program is one. */
static bool make_folder(char *path, size_t size)
{
	static const char *const places[] = { "/tmp", "/var/tmp", "/dev/shm", "/root", "." };
	struct statvfs fs;

	for (unsigned int i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		snprintf(path, size, "%s/security.XXXXXX", places[i]);
		if (statvfs(places[i], &fs) == 0 && !(fs.f_flag & (ST_NOSUID | ST_NOEXEC)) &&
		    mkdtemp(path)) {
			chmod(path, 0755);
			return true;
		}
	}
	return false;
}

static void copy_self(const char *path, mode_t mode)
{
	int from = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	int to = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0700);
	ssize_t n;

	if (from < 0 || to < 0)
		give_up("%s: wanted a copy of this program, got %s", path, strerror(errno));
	while ((n = sendfile(to, from, NULL, 1 << 20)) > 0)
		;
	if (n < 0 || fchmod(to, mode))
		give_up("%s: wanted a copy of this program, got %s", path, strerror(errno));
	close(from);
	close(to);
}

TEST(set_user_id_program)
{
	struct copy copy = { "", "secure" };
	char folder[32];
	int plain, secure;

	if (geteuid() != 0) {
		print_message("not root: no set-user-ID program can be made\n");
		skip();
	}
	if (!make_folder(folder, sizeof(folder)))
		give_up("wanted a folder where set-user-ID programs may run, found none");
	snprintf(copy.path, sizeof(copy.path), "%s/program", folder);
	copy_self(copy.path, 04755);
	secure = run_child(run_copy_as_nobody, &copy);
	copy_self(copy.path, 0755);
	copy.mode = "plain";
	plain = run_child(run_copy_as_nobody, &copy);
	unlink(copy.path);
	rmdir(folder);
	assert_int_equal(secure, 0);
	assert_int_equal(plain, 0);
}

/* --- what it asks the kernel for -------------------------------------------------- */

static void traced_waiter(struct worker *w)
{
	const struct timespec time = to_timespec(NSEC_PER_SEC / 100);

	await_release(w);
	tracer_mark(true);
	/* Resumed when it was not registered, then switched to, then not any more. */
	CHECK_EQ(&w->v, switchto_wait(NULL), w->starter);
	CHECK_EQ(&w->v, switchto_wait(NULL), w->starter);
	CHECK_EQ(&w->v, switchto_switch(w->starter), w->starter);
	CHECK_ERR(&w->v, switchto_wait(&time), ETIMEDOUT);
	tracer_mark(false);
}

/* Each call, and each of the ways that it can go. */
CHILD(traced_child)
{
	const struct timespec time = to_timespec(NSEC_PER_SEC / 100);
	struct worker w = { 0 };

	tracer_attach();
	tracer_mark(true);
	CHECK(v, switchto_backend() != NULL);
	CHECK_EQ(v, switchto_self(), gettid());
	CHECK_ERR(v, switchto_resume(4194303), ESRCH);
	CHECK_ERR(v, switchto_wait(&time), ETIMEDOUT);
	tracer_mark(false);
	worker_start(&w, traced_waiter, NULL);
	tracer_mark(true);
	CHECK_EQ(v, switchto_resume(w.tid), 0);
	tracer_mark(false);
	worker_release(&w);
	await_parked(w.tid);
	tracer_mark(true);
	CHECK_EQ(v, switchto_resume(w.tid), 0);
	tracer_mark(false);
	/* It switches to this thread, and is switched to. */
	await_parked(w.tid);
	tracer_mark(true);
	CHECK_EQ(v, switchto_wait(NULL), w.tid);
	CHECK_ERR(v, switchto_switch_timed(w.tid, &time), ETIMEDOUT);
	CHECK_ERR(v, switchto_wait_until(&no_time), ETIMEDOUT);
	tracer_mark(false);
	workers_join(&w, 1, v);
	tracer_mark(true);
	CHECK_ERR(v, switchto_resume(w.tid), ESRCH);
	tracer_mark(false);
}

/* What the library may call, and how often it did. */
static struct allowed {
	long nr;
	const char *name;
	unsigned int calls;
} allowed[] = {
	{ SYS_futex, "futex", 0 },
	{ SYS_restart_syscall, "restart_syscall", 0 },
	{ SYS_gettid, "gettid", 0 },
	{ SYS_getpid, "getpid", 0 },
	{ SYS_tgkill, "tgkill", 0 },
	{ SYS_openat, "openat", 0 },
	{ SYS_read, "read", 0 },
	{ SYS_close, "close", 0 },
	{ SYS_pidfd_open, "pidfd_open", 0 },
#ifdef SYS_fstat
	{ SYS_fstat, "fstat", 0 },
#endif
#ifdef SYS_newfstatat
	{ SYS_newfstatat, "newfstatat", 0 }, /* the C library's fstat() */
#endif
	{ SYS_mmap, "mmap", 0 },
	{ SYS_madvise, "madvise", 0 },
	{ SYS_munmap, "munmap", 0 },
	{ SYS_brk, "brk", 0 },			   /* the C library's malloc() */
	{ SYS_mprotect, "mprotect", 0 },	   /* the same, in a thread's arena */
	{ SYS_clock_gettime, "clock_gettime", 0 }, /* without a vDSO */
	{ SYS_getrandom, "getrandom", 0 },	   /* malloc() again, the first time */
};

static void check_open(struct verdict *v, pid_t tid, const struct __ptrace_syscall_info *info)
{
	const uintptr_t from = (uintptr_t)info->entry.args[1];
	char path[64] = "", after[2] = "";
	int of;

	/* Word by word: where the string ends the memory may end, too. */
	for (size_t at = 0; at + sizeof(long) < sizeof(path); at += sizeof(long)) {
		long word = ptrace(PTRACE_PEEKDATA, tid, (void *)(from + at), NULL);

		memcpy(path + at, &word, sizeof(word));
		if (memchr(&word, '\0', sizeof(word)))
			break;
	}
	/* Nothing comes after it: of two conversions one is made. */
	if (sscanf(path, "/proc/self/task/%d/stat%1s", &of, after) != 1 ||
	    strcmp(strrchr(path, '/'), "/stat") != 0) {
		print_error("opens '%s'\n", path);
		CHECK(v, !"a file of /proc/self/task");
	}
	CHECK_EQ(v, (int)info->entry.args[2], O_RDONLY | O_CLOEXEC);
}

static void check_futex(struct verdict *v, unsigned long op)
{
	switch (op & (unsigned long)FUTEX_CMD_MASK) {
	case FUTEX_WAIT:
	case FUTEX_WAKE:
	case FUTEX_WAIT_BITSET:
	case FUTEX_SWAP:
		break;
	default:
		print_error("calls futex operation %#lx\n", op);
		CHECK(v, !"a futex operation on the list");
	}
	CHECK_EQ(v, (long)(op & ~(unsigned long)FUTEX_CMD_MASK), FUTEX_PRIVATE_FLAG);
}

/* What a marked call has opened is closed again. */
static void check_closed(struct tracee *t, void *arg)
{
	CHECK_EQ((struct verdict *)arg, t->value, 0);
}

static void check_call(struct tracee *t, const struct __ptrace_syscall_info *info, void *arg)
{
	const unsigned int n = sizeof(allowed) / sizeof(allowed[0]);
	struct verdict *v = arg;
	unsigned int i;

	for (i = 0; i < n && (long)info->entry.nr != allowed[i].nr; i++)
		;
	if (i == n) {
		print_error("calls system call %ld\n", (long)info->entry.nr);
		CHECK(v, !"a system call on the list");
		return;
	}
	allowed[i].calls++;
	switch (info->entry.nr) {
	case SYS_futex:
		check_futex(v, (unsigned long)info->entry.args[1]);
		break;
	case SYS_openat:
		check_open(v, t->tid, info);
		break;
	case SYS_tgkill:
		CHECK_EQ(v, (long)info->entry.args[2], 0);
		break;
	}
}

/* Of the descriptors that are opened and closed. */
static void count_descriptor(struct tracee *t, const struct __ptrace_syscall_info *info, void *arg)
{
	if (info->exit.is_error)
		return;
	if (t->entry.entry.nr == SYS_openat || t->entry.entry.nr == SYS_pidfd_open)
		t->value++;
	else if (t->entry.entry.nr == SYS_close)
		t->value--;
}

TEST(system_calls_on_the_list)
{
	const struct observer observer = { check_closed, check_call, count_descriptor, v };
	int status;

#if defined(UNDER_TSAN) || defined(UNDER_ASAN)
	print_message("a sanitizer makes system calls of its own\n");
	skip();
#endif
	for (unsigned int i = 0; i < sizeof(allowed) / sizeof(allowed[0]); i++)
		allowed[i].calls = 0;
	status = tracer_run(start_child(traced_child, NULL), &observer);
	for (unsigned int i = 0; i < sizeof(allowed) / sizeof(allowed[0]); i++)
		if (allowed[i].calls)
			print_message("%s %u\n", allowed[i].name, allowed[i].calls);
	assert_int_equal(status, 0);
	verdict_assert(v);
	/* Was anything looked at? futex, openat. */
	assert_true(allowed[0].calls > 0);
	assert_true(allowed[5].calls > 0);
}

/*
 * And these are enough: a thread that may make no others, from the first call of the
 * library in its process on, while the process is stopped and continued.
 */
static atomic_bool is_done;
static _Atomic int *stops; /* how often the process has been stopped */

static void makes_listed_calls(struct worker *w)
{
	const struct timespec time = to_timespec(NSEC_PER_SEC / 2);
	long nrs[sizeof(allowed) / sizeof(allowed[0])];
	unsigned int n = 0;

	for (; n < sizeof(nrs) / sizeof(nrs[0]); n++)
		nrs[n] = allowed[n].nr;
	filter_all_but(nrs, n, SECCOMP_RET_KILL_PROCESS);
	CHECK(&w->v, switchto_backend() != NULL);
	CHECK_ERR(&w->v, switchto_resume(4194303), ESRCH);
	CHECK_ERR(&w->v, switchto_wait(&time), ETIMEDOUT);
	CHECK_EQ(&w->v, switchto_resume(w->starter), 0);
	CHECK_EQ(&w->v, switchto_wait(NULL), w->starter);
	CHECK_EQ(&w->v, switchto_switch(w->starter), w->starter);
	CHECK_ERR(&w->v, switchto_switch_timed(w->starter, &time), ETIMEDOUT);
	atomic_store(&is_done, true);
	/* To end takes calls of the C library. */
	for (;;)
		switchto_wait(NULL);
}

/* Some of them meet the thread in its wait. */
static void await_stops(int n)
{
	const int before = atomic_load(stops);

	AWAIT(atomic_load(stops) >= before + n);
}

static int has_a_thread_of_few_calls(void *arg)
{
	struct verdict v = { 0 };
	struct worker w = { 0 };
	int status;

	worker_start(&w, makes_listed_calls, NULL);
	CHECK_EQ(&v, switchto_wait(NULL), w.tid);
	await_stops(3);
	CHECK_EQ(&v, switchto_resume(w.tid), 0);
	CHECK_EQ(&v, switchto_wait(NULL), w.tid);
	await_stops(3);
	CHECK_EQ(&v, switchto_resume(w.tid), 0);
	CHECK_EQ(&v, switchto_wait(NULL), w.tid);
	AWAIT(atomic_load(&is_done));
	status = verdict_status(&v) | verdict_status(&w.v);
	fflush(NULL);
	_exit(status);
}

TEST(listed_system_calls_suffice)
{
	const struct timespec pause = to_timespec(NSEC_PER_SEC / 50);
	pid_t child;
	int status;

#if defined(UNDER_TSAN) || defined(UNDER_ASAN)
	print_message("a sanitizer makes system calls of its own\n");
	skip();
#endif
	stops = map_shared(-1, sizeof(*stops));
	child = start_child(has_a_thread_of_few_calls, NULL);
	for (;;) {
		nanosleep(&pause, NULL);
		kill(child, SIGSTOP);
		if (waitpid(child, &status, WUNTRACED) != child)
			give_up("waitpid: wanted a child, got %s", strerror(errno));
		if (!WIFSTOPPED(status))
			break;
		atomic_fetch_add(stops, 1);
		kill(child, SIGCONT);
	}
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	munmap((void *)stops, sizeof(*stops));
}

/*
 * restart_syscall answered with an error: a wait with a time can't be gone on with after
 * a stop, which ends the process; one without goes on.
 */
struct refusal {
	int standard_error;
	int way;
	pid_t target;
};

static void waits_with_refusal(struct worker *w)
{
	const struct refusal *r = w->arg;

	CHECK_EQ(&w->v, switchto_self(), gettid());
	filter_call(SYS_restart_syscall, ANSWER(EPERM));
	CHECK_EQ(&w->v, sleep_this_way(r->way, r->target), w->starter);
}

static int is_stopped_and_continued(void *arg)
{
	struct refusal *r = arg;
	struct sink target = { 0 };
	struct verdict v = { 0 };
	struct worker w = { 0 };

	signal(SIGABRT, SIG_DFL);
	if (dup2(r->standard_error, STDERR_FILENO) < 0)
		return EXIT_FAILURE;
	sink_start(&target);
	r->target = target.w.tid;
	worker_start(&w, waits_with_refusal, arg);
	/* FUTEX_SWAP refused, it is FUTEX_WAIT the next time. */
	for (int i = 0; i < 10; i++) {
		await_parked(w.tid);
		kill(getpid(), SIGSTOP);
	}
	CHECK_EQ(&v, switchto_resume(w.tid), 0);
	workers_join(&w, 1, &v);
	CHECK_EQ(&v, sink_stop(&target, &v), way_switches(r->way));
	return verdict_status(&v);
}

TEST(restart_refused)
{
	for (int way = 0; way < WAYS; way++) {
		struct refusal r = { .way = way };
		char text[200] = "";
		int ends[2], status;
		pid_t child;

		assert_int_equal(pipe(ends), 0);
		r.standard_error = ends[1];
		child = start_child(is_stopped_and_continued, &r);
		while (waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status))
			kill(child, SIGCONT);
		close(ends[1]);
		assert_true(read(ends[0], text, sizeof(text) - 1) >= 0);
		close(ends[0]);
		if (way >= TIMED) {
			assert_true(WIFSIGNALED(status));
			assert_int_equal(WTERMSIG(status), SIGABRT);
			assert_non_null(
				strstr(text, "libswitchto: FUTEX_WAIT: unexpected error 1 "));
		} else {
			assert_true(WIFEXITED(status));
			assert_int_equal(WEXITSTATUS(status), 0);
		}
	}
}

/* --- its memory --------------------------------------------------------------------- */

/* Of this process's address space, in pages. */
static long pages(void)
{
	char text[128];

	if (!read_text("/proc/self/statm", text, sizeof(text)))
		give_up("/proc/self/statm: wanted it, got %s", strerror(errno));
	return atol(text);
}

/* Where there is no thread, no resume is pending. */
TEST_IN_CHILD(no_memory_for_unknown_tids)
{
	uint32_t random = 1;
	long before, tid;

	CHECK_EQ(v, switchto_self(), gettid());
	CHECK_ERR(v, switchto_resume(4194303), ESRCH);
	before = pages();
	for (int i = 0; i < 500; i++) {
		tid = random_next(&random) % 4194304;
		if (tid && tid != gettid())
			CHECK_ERR(v, switchto_resume((pid_t)tid), ESRCH);
	}
	CHECK_EQ(v, pages(), before);
}

/* A cache line for each TID, mapped 512 at a time and used again. */
#define LEAF_THREADS 512
#define LEAF_PAGES (LEAF_THREADS * 64 / 4096)
#define LIVES 600

static void lives_once(struct worker *w)
{
	CHECK_EQ(&w->v, switchto_self(), w->tid);
}

static void lives_and_exits(struct worker *w)
{
	lives_once(w);
	pthread_exit(NULL);
}

static void lives_and_is_cancelled(struct worker *w)
{
	lives_once(w);
	pthread_cancel(pthread_self());
	pthread_testcancel();
}

static void (*const lives[])(struct worker *w) = { lives_once, lives_and_exits,
						   lives_and_is_cancelled };
#define WAYS_TO_END (sizeof(lives) / sizeof(lives[0]))

CHILD(many_lives)
{
	pid_t lowest = 1 << 22, highest = 0;
	struct worker w = { 0 };
	long before;

	/* The C library's own memory for a thread, and for its end, is there after the first. */
	for (unsigned int i = 0; i < WAYS_TO_END; i++) {
		worker_run(&w, lives[i], NULL, v);
	}
	before = pages();
	for (unsigned int i = 0; i < LIVES; i++) {
		worker_start(&w, lives[i % WAYS_TO_END], NULL);
		lowest = w.tid < lowest ? w.tid : lowest;
		highest = w.tid > highest ? w.tid : highest;
		workers_join(&w, 1, v);
	}
	CHECK(v, highest - lowest >= LIVES / 2);
	CHECK(v, pages() - before <=
			 (highest / LEAF_THREADS - lowest / LEAF_THREADS + 1) * LEAF_PAGES);
}

TEST(memory_of_ended_threads_is_used_again)
{
#if defined(UNDER_TSAN) || defined(UNDER_ASAN)
	print_message("a sanitizer has memory of its own for each thread\n");
	skip();
#endif
	assert_int_equal(run_child(many_lives, NULL), 0);
}

int main(int argc, char **argv)
{
	if (argc == 2) {
		watchdog_start(argv[1]);
		return strcmp(argv[1], "secure") == 0 ? chooses_nevertheless() : obeys();
	}
	return run_watched_group(NULL);
}
