// SPDX-License-Identifier: MIT
#include "support.h"

/*
 * Of the slowest place the tests run in: an emulated machine that shares its
 * host. A test takes a second or so there.
 */
#define WATCHDOG_SECONDS 300

static void note(struct verdict *v, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void note(struct verdict *v, const char *format, ...)
{
	char text[sizeof(v->text)];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);

	if (!atomic_load(&v->failed)) {
		memcpy(v->text, text, sizeof(text));
		atomic_store(&v->failed, true);
	}
}

void check(struct verdict *v, bool ok, const char *what, const char *file, int line)
{
	if (!ok)
		note(v, "%s:%d: not so: %s", file, line, what);
}

void check_eq(struct verdict *v, long long got, long long want, const char *what, const char *file,
	      int line)
{
	int error = errno;

	if (got != want)
		note(v, "%s:%d: %s is %lld (errno %d, %s), wanted %lld", file, line, what, got,
		     error, strerror(error), want);
}

void check_err(struct verdict *v, long long got, int error, int want, const char *what,
	       const char *file, int line)
{
	if (got != -1 || error != want)
		note(v, "%s:%d: %s is %lld (errno %d, %s), wanted -1 (errno %d, %s)", file, line,
		     what, got, error, strerror(error), want, strerror(want));
}

static struct test *tests;

static bool comes_before(const struct test *a, const struct test *b)
{
	if (a->first != b->first)
		return a->first;
	return strcmp(a->file, b->file) == 0 && a->line < b->line;
}

void add_test(struct test *test)
{
	struct test **at = &tests;

	while (*at && !comes_before(test, *at))
		at = &(*at)->next;
	test->next = *at;
	*at = test;
}

const char *test_name(void **state)
{
	const struct test *test = *state;

	return test->name;
}

struct verdict *shared_verdict;

/* The linker's, if there are such variables. */
extern char __start_per_test[] __attribute__((weak)), __stop_per_test[] __attribute__((weak));

static void run_case(void **state)
{
	const struct test *test = *state;
	struct verdict v = { 0 };

	if (__start_per_test)
		memset(__start_per_test, 0, (size_t)(__stop_per_test - __start_per_test));
	test->run(&v);
	verdict_assert(&v);
	if (shared_verdict)
		verdict_assert(shared_verdict);
}

int run_group(const char *group, CMFixtureFunction start, CMFixtureFunction end)
{
	struct CMUnitTest units[100];
	size_t n = 0;

	for (struct test *test = tests; test; test = test->next) {
		if (group ? !test->group || strcmp(test->group, group) != 0 : !!test->group)
			continue;
		if (n == sizeof(units) / sizeof(units[0]))
			give_up("%s: wanted at most %zu tests, found more", test->name, n);
		units[n++] = (struct CMUnitTest){ test->name, run_case, start, end, test };
	}
	if (n == 0)
		give_up("%s: wanted tests of that group, found none", group ? group : "(none)");
	return _cmocka_run_group_tests(group ? group : "tests", units, n, NULL, NULL) != 0;
}

static int start_watched(void **state)
{
	watchdog_start(test_name(state));
	return 0;
}

static int end_watched(void **state)
{
	watchdog_stop();
	return 0;
}

int run_watched_group(const char *group)
{
	return run_group(group, start_watched, end_watched);
}

void verdict_assert(struct verdict *v)
{
	char text[sizeof(v->text)];

	if (!atomic_load(&v->failed))
		return;
	memcpy(text, v->text, sizeof(text));
	/* The next test, which may use it too, has not failed. */
	*v = (struct verdict){ 0 };
	fail_msg("%s", text);
}

int verdict_status(struct verdict *v)
{
	if (!atomic_load(&v->failed))
		return 0;

	fprintf(stderr, "process %d: %s\n", (int)getpid(), v->text);
	return 1;
}

static void *worker_main(void *arg)
{
	struct worker *w = arg;

	atomic_store(&w->tid, gettid());
	w->body(w);
	return NULL;
}

int worker_try_start(struct worker *w, void (*body)(struct worker *w), void *arg)
{
	int error;

	w->body = body;
	w->arg = arg;
	if (!w->starter)
		w->starter = gettid();
	atomic_store(&w->released, false);
	atomic_store(&w->tid, 0);
	error = pthread_create(&w->thread, NULL, worker_main, w);
	if (!error)
		AWAIT(atomic_load(&w->tid));
	return error;
}

void worker_start(struct worker *w, void (*body)(struct worker *w), void *arg)
{
	int error = worker_try_start(w, body, arg);

	if (error)
		give_up("pthread_create: wanted a thread, got %s", strerror(error));
}

void worker_start_parked(struct worker *w, void (*body)(struct worker *w), void *arg)
{
	worker_start(w, body, arg);
	await_parked(w->tid);
}

struct start {
	void (*fn)(void *arg);
	void *arg;
};

static void *thread_main(void *arg)
{
	const struct start start = *(struct start *)arg;

	free(arg);
	start.fn(start.arg);
	return NULL;
}

pthread_t start_thread(void (*fn)(void *arg), void *arg)
{
	struct start *start = malloc(sizeof(*start));
	pthread_t thread;
	int error;

	*start = (struct start){ fn, arg };
	error = pthread_create(&thread, NULL, thread_main, start);
	if (error)
		give_up("pthread_create: wanted a thread, got %s", strerror(error));
	return thread;
}

void worker_release(struct worker *w)
{
	atomic_store(&w->released, true);
}

void await_release(struct worker *w)
{
	AWAIT(atomic_load(&w->released));
}

void workers_join(struct worker *w, unsigned int n, struct verdict *v)
{
	for (unsigned int i = 0; i < n; i++) {
		pthread_join(w[i].thread, NULL);
		if (atomic_load(&w[i].v.failed))
			note(v, "thread %u of %u: %s", i, n, w[i].v.text);
	}
}

void worker_run(struct worker *w, void (*body)(struct worker *w), void *arg, struct verdict *v)
{
	worker_start(w, body, arg);
	workers_join(w, 1, v);
}

void worker_end(struct worker *w, struct verdict *v)
{
	worker_release(w);
	workers_join(w, 1, v);
}

void await_pause(unsigned int rounds)
{
	const struct timespec nap = { 0, 20000 };

	if (rounds < 1000)
		atomic_signal_fence(memory_order_seq_cst);
	else
		nanosleep(&nap, NULL);
}

/* One line of /proc/self/task/TID/@file; empty if the thread is gone. */
static void read_task_file(pid_t tid, const char *file, char *text, size_t size)
{
	read_text(text_of("/proc/self/task/%d/%s", (int)tid, file), text, size);
}

/*
 * The file says "running" of a thread that does not sleep, else the system call
 * with its arguments; restart_syscall keeps those of the call it goes on with.
 * Read several times: the runtime of a sanitizer sleeps in short futex waits of
 * its own.
 */
bool is_parked(pid_t tid)
{
	char first[256], text[256];
	unsigned long op;
	long nr;

	read_task_file(tid, "syscall", first, sizeof(first));
	if (sscanf(first, "%ld %*x %lx", &nr, &op) != 2 ||
	    (nr != SYS_futex && nr != SYS_restart_syscall))
		return false;

	op &= FUTEX_CMD_MASK;
	if (op != FUTEX_WAIT && op != FUTEX_WAIT_BITSET && op != FUTEX_SWAP)
		return false;

	for (int again = 0; again < 3; again++) {
		read_task_file(tid, "syscall", text, sizeof(text));
		if (strcmp(first, text) != 0)
			return false;
	}
	/* Not stopped by a tracer, with the system call yet to begin. */
	return thread_state(tid) == 'S';
}

void await_parked(pid_t tid)
{
	AWAIT(is_parked(tid));
}

void *parked_on(pid_t tid)
{
	unsigned long word = 0;
	char text[256];

	await_parked(tid);
	read_task_file(tid, "syscall", text, sizeof(text));
	sscanf(text, "%*d %lx", &word);
	return (void *)word;
}

int two_cpus(int cpu[2])
{
	cpu_set_t set;
	int n = 0;

	if (sched_getaffinity(0, sizeof(set), &set))
		give_up("sched_getaffinity: wanted the CPUs of this thread, got %s",
			strerror(errno));
	for (int i = 0; i < CPU_SETSIZE && n < 2; i++)
		if (CPU_ISSET(i, &set))
			cpu[n++] = i;
	return n;
}

void pin_to(pid_t tid, int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(tid, sizeof(set), &set))
		give_up("sched_setaffinity: wanted thread %d on CPU %d, got %s", (int)tid, cpu,
			strerror(errno));
}

char thread_state(pid_t tid)
{
	char text[512], *name_end;

	read_task_file(tid, "stat", text, sizeof(text));
	name_end = strrchr(text, ')');
	return name_end ? name_end[2] : 0;
}

long long now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return to_ns(&t);
}

struct timespec to_timespec(long long ns)
{
	return (struct timespec){ ns / NSEC_PER_SEC, ns % NSEC_PER_SEC };
}

long long to_ns(const struct timespec *t)
{
	return t->tv_sec * NSEC_PER_SEC + t->tv_nsec;
}

uint32_t random_next(uint32_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 17;
	*state ^= *state << 5;
	return *state;
}

void random_delay(uint32_t *state, uint32_t limit)
{
	for (uint32_t n = random_next(state) % limit; n; n--)
		atomic_signal_fence(memory_order_seq_cst);
}

static const char *watched;

static void watchdog_bites(int signal)
{
	static const char text[] = ": hangs; a wake-up was lost, or this machine is very slow\n";

	if (write(STDERR_FILENO, watched, strlen(watched)) < 0 ||
	    write(STDERR_FILENO, text, sizeof(text) - 1) < 0)
		_exit(2);
	_exit(1);
}

void watchdog_start(const char *what)
{
	watched = what;
	set_handler(SIGALRM, watchdog_bites);
	alarm(WATCHDOG_SECONDS);
}

void watchdog_stop(void)
{
	alarm(0);
}

pid_t start_child(int (*body)(void *arg), void *arg)
{
	pid_t child;

	fflush(NULL);
	child = fork();
	if (child < 0)
		give_up("fork: wanted a process, got %s", strerror(errno));
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		watchdog_start(watched ? watched : "child process");
		_exit(body(arg));
	}
	return child;
}

int child_status(pid_t child)
{
	int status;

	if (waitpid(child, &status, 0) != child)
		give_up("waitpid: wanted process %d, got %s", (int)child, strerror(errno));
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int run_child(int (*body)(void *arg), void *arg)
{
	return child_status(start_child(body, arg));
}

void abort_quietly(void)
{
	set_limit(RLIMIT_CORE, 0);
	signal(SIGABRT, SIG_DFL);
	/* Also in a handler. */
	dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), STDERR_FILENO);
}

void exec_self(const char *mode)
{
	execl("/proc/self/exe", "test", mode, (char *)NULL);
	give_up("exec: wanted %s, got %s", mode, strerror(errno));
}

void set_handler(int signal, void (*handler)(int signal))
{
	const struct sigaction action = { .sa_handler = handler };

	if (sigaction(signal, &action, NULL))
		give_up("sigaction: wanted a handler, got %s", strerror(errno));
}

rlim_t set_limit(int which, rlim_t limit)
{
	struct rlimit old, new;

	getrlimit(which, &old);
	new = old;
	new.rlim_cur = limit;
	if (setrlimit(which, &new))
		give_up("setrlimit: wanted a limit of %llu, got %s", (unsigned long long)limit,
			strerror(errno));
	return old.rlim_cur;
}

void *map_shared(int fd, size_t size)
{
	void *map = mmap(NULL, size, PROT_READ | PROT_WRITE,
			 fd < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED, fd, 0);

	if (map == MAP_FAILED)
		give_up("mmap: wanted memory to share, got %s", strerror(errno));
	return map;
}

void give_up(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	_exit(1);
}

bool kernel_has_swap(void)
{
	uint32_t word = 0, wake = 0;

	/* The value expected is not the one there: EAGAIN from a kernel that has it. */
	if (syscall(SYS_futex, &word, FUTEX_SWAP | FUTEX_PRIVATE_FLAG, 1, NULL, &wake, 0) == 0 ||
	    (errno != EAGAIN && errno != ENOSYS))
		give_up("futex operation %d: wanted EAGAIN (patched kernel) or ENOSYS (stock), "
			"got %s; is there a seccomp filter around the tests?",
			FUTEX_SWAP, strerror(errno));

	return errno == EAGAIN;
}

int loops(int n)
{
	const char *divisor = getenv("TEST_LOOPS_DIVISOR");
	int by = divisor ? atoi(divisor) : 1;

	return by > 1 ? n / by : n;
}

bool wants_absent_swap(const char *program)
{
	const char *forced = getenv("SWITCHTO_BACKEND");

	if (!forced || strcmp(forced, "swap") != 0 || kernel_has_swap())
		return false;
	fprintf(stderr,
		"%s: skipped: backend swap needs the patched kernel, this one has no FUTEX_SWAP "
		"(vm/test runs it there)\n",
		program);
	return true;
}

bool lacks_swap(const char *program)
{
	if (kernel_has_swap())
		return false;
	fprintf(stderr,
		"%s: skipped: needs the patched kernel, this one has no FUTEX_SWAP (vm/test runs it "
		"there)\n",
		program);
	return true;
}
