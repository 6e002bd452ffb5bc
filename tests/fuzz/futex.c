// SPDX-License-Identifier: MIT
/*
 * futex(2) with everything that it can be called with, from many threads of
 * several processes at once, FUTEX_SWAP above all, with both its halves or one or
 * none. Whether the kernel survives it is for its own checks to say
 * (kernel/config/debug.config); this says whether each answer is one that the call
 * may give, and whether every sleep ends.
 *
 * A supervisor, of one thread, starts the processes, sends their threads signals
 * at a steady rate so that they go on, stops and kills processes, and watches.
 */
#include "files.h"
#include "fuzz.h"

#include <getopt.h>

#define NAME "fuzz_futex"
#define SIGNAL_INTERRUPT SIGUSR1 /* without SA_RESTART */
#define SIGNAL_RESTART SIGUSR2	 /* with it */
#define EXIT_LOST 3		 /* a process that a fault has ended */

struct settings set = {
	.threads = 4,
	.processes = 3,
	.patience = 60,
	.only = -1,
	.seconds = 0,
};
struct shared *shared;
_Thread_local struct worker *this_worker;

static struct worker workers[MOST_WORKERS];

/* --- what all parts use ----------------------------------------------------------- */

long long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ll + now.tv_nsec;
}

void pause_us(long us)
{
	const struct timespec time = { us / 1000000, us % 1000000 * 1000 };

	nanosleep(&time, NULL);
}

/* One write() each, so that lines of several processes stay whole. */
static void line(const char *prefix, const char *format, va_list args)
{
	char text[1000];
	size_t length;

	snprintf(text, sizeof(text), "%s", prefix);
	length = strlen(text);
	vsnprintf(text + length, sizeof(text) - length - 1, format, args);
	strcat(text, "\n");
	/* A fault may be injected here as well. */
	for (int i = 0; i < 100; i++)
		if (write(STDERR_FILENO, text, strlen(text)) > 0)
			break;
}

void say(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	line("", format, args);
	va_end(args);
}

void found(const char *format, ...)
{
	va_list args;

	atomic_store(&shared->failed, true);
	atomic_store(&shared->stop, true);
	va_start(args, format);
	line(NAME ": FOUND: ", format, args);
	va_end(args);
}

void give_up(const char *format, ...)
{
	va_list args;

	if (shared) {
		atomic_store(&shared->failed, true);
		atomic_store(&shared->stop, true);
	}
	va_start(args, format);
	line(NAME ": ", format, args);
	va_end(args);
	if (getpid() == set.supervisor)
		faults_end();
	_exit(1);
}

/* --- workers ---------------------------------------------------------------------- */

static void on_signal(int sig) {}

/* Asked to end: not before all is as it was. */
static void on_end(int sig)
{
	atomic_store(&shared->stop, true);
	atomic_store(&shared->failed, true);
}

/* Of a call that no signal ends: a PI lock is taken up again after every handler. */
static void on_leave(int sig)
{
	struct worker *me = this_worker;

	if (me && me->in_call) {
		me->in_call = 0;
		siglongjmp(me->out, 1);
	}
}

static void on_fault(int sig, siginfo_t *info, void *context)
{
	struct worker *me = this_worker;

	if (me && me->in_access && info->si_code > 0)
		siglongjmp(me->fault, 1);
	/*
	 * A signal that could not be delivered, or returned from, as the stack
	 * could not be written or read: that, too, is injected.
	 */
	if (set.faults && (info->si_code == SI_KERNEL || info->si_code <= 0)) {
		atomic_fetch_add(&shared->lost, 1);
		_exit(EXIT_LOST);
	}
	give_up("signal %d, code %d, at %p in process %d, worker %d", sig, info->si_code,
		info->si_addr, getpid(), me ? me->index : -1);
}

static void unblock_signals(void)
{
	sigset_t none;

	sigemptyset(&none);
	while (sigprocmask(SIG_SETMASK, &none, NULL))
		;
}

static void set_handlers(void)
{
	struct sigaction action = { .sa_handler = on_signal };

	sigaction(SIGNAL_INTERRUPT, &action, NULL);
	action.sa_flags = SA_RESTART;
	sigaction(SIGNAL_RESTART, &action, NULL);
	action.sa_flags = 0;
	action.sa_handler = on_end;
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGHUP, &action, NULL);
	action.sa_handler = on_leave;
	sigaction(SIGRTMIN, &action, NULL);
	action.sa_handler = NULL;
	action.sa_flags = SA_SIGINFO | SA_NODEFER;
	action.sa_sigaction = on_fault;
	sigaction(SIGSEGV, &action, NULL);
	sigaction(SIGBUS, &action, NULL);
}

static bool is_over(const struct worker *me)
{
	if (atomic_load(&shared->stop))
		return true;
	if (set.calls && (long)(me->next - set.first) >= set.calls)
		return true;
	return set.end && now_ns() >= set.end;
}

static void *work(void *arg)
{
	struct worker *me = arg;
	uint32_t stack_word = 0;

	this_worker = me;
	me->stack_word = &stack_word;
	me->class_left = 0;
	me->is_ending = false;
	me->next = atomic_load(&me->slot->done);
	atomic_store(&me->slot->process, getpid());
	atomic_store(&me->slot->tid, gettid());
	faults_here(true);

	/* Comes back here from a call that was left. */
	if (sigsetjmp(me->out, 0)) {
		unblock_signals();
		call_left(me);
	}
	while (!me->is_ending && !is_over(me)) {
		uint64_t number = me->next++;

		atomic_store(&me->slot->number, number);
		atomic_store(&me->slot->since, now_ns());
		/* Done is what need not be made again should it be the last thing we do. */
		atomic_store(&me->slot->done, me->next);
		call_make(me, number);
		atomic_store(&me->slot->since, 0);
	}
	atomic_store(&me->slot->since, 0);
	faults_here(false);
	atomic_store(&me->ended, true);
	return NULL;
}

/* --- a process ---------------------------------------------------------------------- */

static bool start_worker(struct worker *me)
{
	atomic_store(&me->ended, false);
	me->in_call = me->in_access = 0;
	me->started = pthread_create(&me->thread, NULL, work, me) == 0;
	return me->started;
}

static void end_worker(struct worker *me)
{
	struct slot *slot = me->slot;

	pthread_join(me->thread, NULL);
	me->started = false;
	atomic_store(&slot->since, 0);
	atomic_store(&slot->tid, 0);
}

static int process(int which)
{
	struct worker *mine = &workers[which * set.threads];
	int first = 0, n = set.threads;
	pthread_t sky;
	bool is_done;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != set.supervisor)
		return 1;
	memory_make_own();
	if (set.machine && !write_text(text_of("%s/cgroup.procs", set.group), "0"))
		give_up("%s: wanted to enter the group, got %s", set.group, strerror(errno));
	if (set.only >= 0)
		first = set.only % set.threads, n = 1;
	errno = pthread_create(&sky, NULL, weather, (void *)(uintptr_t)which);
	if (errno)
		give_up("pthread_create: wanted a thread, got %s", strerror(errno));
	do {
		is_done = true;
		for (int i = first; i < first + n; i++) {
			if (mine[i].started && atomic_load(&mine[i].ended))
				end_worker(&mine[i]);
			if (!mine[i].started) {
				mine[i].next = atomic_load(&mine[i].slot->done);
				if (!is_over(&mine[i]))
					start_worker(&mine[i]);
			}
			is_done = is_done && !mine[i].started;
		}
		pause_us(1000);
	} while (!is_done);

	/* The others may still have calls to make; our weather ends with us. */
	return 0;
}

/* --- the supervisor ------------------------------------------------------------------ */

static pid_t processes[MOST_WORKERS];
static bool was_killed[MOST_WORKERS];
static long long stopped_until;
static int stopped = -1;

static bool wants_process(int which)
{
	for (int i = which * set.threads; i < (which + 1) * set.threads; i++) {
		struct worker probe = { .next = atomic_load(&shared->slots[i].done) };

		if ((set.only < 0 || set.only == i) && !is_over(&probe))
			return true;
	}
	return false;
}

static void start_process(int which)
{
	for (int i = which * set.threads; i < (which + 1) * set.threads; i++) {
		atomic_store(&shared->slots[i].tid, 0);
		atomic_store(&shared->slots[i].since, 0);
	}
	was_killed[which] = false;
	processes[which] = fork();
	if (processes[which] < 0)
		give_up("fork: wanted a process, got %s", strerror(errno));
	if (processes[which] == 0)
		_exit(process(which));
}

static void reap(int which, int status)
{
	const pid_t pid = processes[which];

	processes[which] = 0;
	if (stopped == which)
		stopped = -1;
	for (int i = which * set.threads; i < (which + 1) * set.threads; i++) {
		atomic_store(&shared->slots[i].tid, 0);
		atomic_store(&shared->slots[i].since, 0);
	}
	if (WIFEXITED(status) &&
	    (WEXITSTATUS(status) == 0 || (set.faults && WEXITSTATUS(status) == EXIT_LOST)))
		return;
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && was_killed[which])
		return;
	/* Where not even a handler could be entered. */
	if (set.faults && WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV) {
		atomic_fetch_add(&shared->lost, 1);
		return;
	}
	if (!atomic_load(&shared->failed))
		found("process %d ended with status %#x", pid, status);
}

static bool keep_processes(void)
{
	bool is_any = false;
	int status;

	for (int i = 0; i < set.processes; i++) {
		if (processes[i] && waitpid(processes[i], &status, WNOHANG) == processes[i])
			reap(i, status);
		if (!processes[i] && wants_process(i))
			start_process(i);
		is_any = is_any || processes[i];
	}
	return is_any;
}

/* Who sleeps for a while is sent a signal, so that every sleep ends; now and then others. */
static void send_signals(struct dice *dice)
{
	const long long now = now_ns();

	for (int i = 0; i < set.threads * set.processes; i++) {
		struct slot *slot = &shared->slots[i];
		pid_t process = atomic_load(&slot->process), tid = atomic_load(&slot->tid);
		long long since = atomic_load(&slot->since);
		bool is_long = since && now - since > 3000000;
		int sig = roll(dice, 4) ? SIGNAL_INTERRUPT : SIGNAL_RESTART;

		if (!tid || roll(dice, is_long ? 2 : 64))
			continue;
		/* Whom that doesn't help: a PI lock is waited for until it is had. */
		if (since && now - since > 2000000000)
			sig = SIGRTMIN;
		syscall(SYS_tgkill, process, tid, sig);
	}
}

static void stop_and_kill(struct dice *dice)
{
	int which = (int)roll(dice, (uint32_t)set.processes);

	if (stopped >= 0 && now_ns() >= stopped_until) {
		if (processes[stopped])
			kill(processes[stopped], SIGCONT);
		stopped = -1;
	}
	if (set.only >= 0 || !processes[which] || stopped >= 0)
		return;
	if (!roll(dice, 40)) {
		kill(processes[which], SIGSTOP);
		atomic_fetch_add(&shared->stops, 1);
		stopped = which;
		stopped_until = now_ns() + roll(dice, 5000000);
	} else if (!roll(dice, 1000)) {
		was_killed[which] = true;
		atomic_fetch_add(&shared->kills, 1);
		kill(processes[which], SIGKILL);
	}
}

static void freeze(struct dice *dice)
{
	const char *path = text_of("%s/cgroup.freeze", set.group);

	if (!set.machine || roll(dice, 100))
		return;
	write_text(path, "1");
	pause_us(roll(dice, 3000));
	if (!write_text(path, "0"))
		give_up("%s: wanted to thaw, got %s", path, strerror(errno));
}

/* For who reads it when it is stuck: what each one is in. */
static void tell_all(void)
{
	char text[4000], what[300];

	for (int i = 0; i < set.threads * set.processes; i++) {
		struct slot *slot = &shared->slots[i];
		pid_t process = atomic_load(&slot->process), tid = atomic_load(&slot->tid);
		long long since = atomic_load(&slot->since);

		call_describe(i, atomic_load(&slot->number), what, sizeof(what));
		say("  worker %d, process %d, thread %d, for %lld ms in call %llu: %s", i, process,
		    tid, since ? (now_ns() - since) / 1000000 : 0,
		    (unsigned long long)atomic_load(&slot->number), what);
		for (int file = 0; tid && file < 3; file++) {
			static const char *const files[] = { "stat", "syscall", "stack" };

			if (read_text(text_of("/proc/%d/task/%d/%s", process, tid, files[file]),
				      text, 800))
				say("    %s: %s", files[file], text);
		}
	}
}

static void watch(long long *moved, uint64_t *before)
{
	const long long now = now_ns();

	for (int i = 0; i < set.threads * set.processes; i++) {
		uint64_t done = atomic_load(&shared->slots[i].done);

		if (done != before[i] || !atomic_load(&shared->slots[i].since)) {
			before[i] = done;
			moved[i] = now;
		}
		if (now - moved[i] < set.patience * 1000000000ll)
			continue;
		found("worker %d stood still for %d s; seed=%#llx", i, set.patience,
		      (unsigned long long)set.seed);
		tell_all();
		for (int j = 0; j < set.processes; j++)
			if (processes[j])
				kill(processes[j], SIGKILL);
		faults_end();
		_exit(1);
	}
}

static void supervise(void)
{
	uint64_t before[MOST_WORKERS] = { 0 };
	long long moved[MOST_WORKERS];
	struct dice dice = dice_of(set.seed, UINT64_MAX - 1, 0);

	for (int i = 0; i < MOST_WORKERS; i++)
		moved[i] = now_ns();
	while (keep_processes()) {
		send_signals(&dice);
		stop_and_kill(&dice);
		freeze(&dice);
		watch(moved, before);
		pause_us(1000);
	}
}

/* --- around it ------------------------------------------------------------------------ */

static void make_groups(void)
{
	static const char *const groups[] = { "", "/a", "/b" };

	write_text("/sys/fs/cgroup/cgroup.subtree_control", "+cpu");
	snprintf(set.group, sizeof(set.group), "/sys/fs/cgroup/" NAME ".%d", getpid());
	for (int i = 0; i < 3; i++) {
		const char *path = text_of("%s%s", set.group, groups[i]);

		if (mkdir(path, 0755))
			give_up("--machine: mkdir %s: wanted a control group, got %s", path,
				strerror(errno));
		if (i && !write_text(text_of("%s/cgroup.type", path), "threaded"))
			give_up("--machine: %s: wanted a threaded group, got %s", path,
				strerror(errno));
	}
	if (!write_text(text_of("%s/cgroup.subtree_control", set.group), "+cpu"))
		give_up("--machine: %s: wanted the controller cpu, got %s", set.group,
			strerror(errno));
}

static void remove_groups(void)
{
	static const char *const groups[] = { "/b", "/a", "" };

	for (int i = 0; i < 3; i++)
		for (int tries = 0; rmdir(text_of("%s%s", set.group, groups[i])) && tries < 1000;
		     tries++)
			pause_us(10000);
}

/* FUTEX_WAKE with FUTEX_ROBUST_UNLOCK. NULL cannot be unlocked. */
static bool kernel_has_robust_unlock(void)
{
	return syscall(SYS_futex, NULL, FUTEX_WAKE | 0x200, 0, NULL, NULL, 0) >= 0 ||
	       errno != ENOSYS;
}

static bool kernel_has_swap(void)
{
	const int op = FUTEX_SWAP | FUTEX_PRIVATE_FLAG;
	uint32_t word = 0;

	return syscall(SYS_futex, &word, op, 1, NULL, &word, 0) == -1 && errno == EAGAIN;
}

static long summary(long long start)
{
	static const char *const names[OUTCOMES] = { "refused", "changed", "slept",
						     "woken",	"nobody",  "left" };
	long all[COUNTS][OUTCOMES] = { 0 }, sums[OUTCOMES] = { 0 }, calls = 0;
	char text[1000];
	int at = 0;

	for (int i = 0; i < set.threads * set.processes; i++)
		for (int c = 0; c < COUNTS; c++)
			for (int o = 0; o < OUTCOMES; o++)
				all[c][o] += atomic_load(&shared->slots[i].count[c][o]);
	for (int c = 0; c < COUNTS; c++) {
		long sum = 0;

		for (int o = 0; o < OUTCOMES; o++) {
			sum += all[c][o];
			sums[o] += all[c][o];
		}
		calls += sum;
		at += snprintf(text + at, sizeof(text) - (size_t)at, " %s=%ld", counted_names[c],
			       sum);
		if (c != COUNT_SWAP && c != COUNT_WAIT_ONLY && c != COUNT_WAKE_ONLY)
			continue;
		for (int o = 0; o < OUTCOMES; o++)
			at += snprintf(text + at, sizeof(text) - (size_t)at, " %s_%s=%ld",
				       counted_names[c], names[o], all[c][o]);
	}
	printf("summary seed=%#llx seconds=%.1f calls=%ld", (unsigned long long)set.seed,
	       (double)(now_ns() - start) / 1e9, calls);
	for (int o = 0; o < OUTCOMES; o++)
		printf(" %s=%ld", names[o], sums[o]);
	printf("%s lives=%ld forks=%ld execs=%ld kills=%ld stops=%ld lost=%ld\n", text,
	       shared->lives, shared->forks, shared->execs, shared->kills, shared->stops,
	       shared->lost);
	return calls;
}

static _Noreturn void usage(void)
{
	fprintf(stderr,
		"usage: " NAME
		" [--seconds=S | --calls=N] [--threads=N] [--processes=N] [--seed=N]\n"
		"	[--patience=SECONDS] [--need-swap] [--machine] [--faults]\n"
		"	[--only=WORKER [--first=N]] [--print]\n"
		"--calls     of each worker\n"
		"--need-swap fail where the kernel has no FUTEX_SWAP\n"
		"--machine   scheduling classes and control groups too: it is there for this\n"
		"--faults    inject faults, on a kernel of debug.config\n"
		"--only      one worker alone, from its N-th call on, as in a run of that seed\n"
		"--print     each call on standard error\n");
	exit(1);
}

static long number_of(const char *text, long least)
{
	char *end;
	long number;

	errno = 0;
	number = strtol(text, &end, 0);
	if (errno || *end || end == text || number < least) {
		fprintf(stderr, NAME ": wanted a number from %ld on, found '%s'\n", least, text);
		exit(1);
	}
	return number;
}

static void parse(int argc, char **argv)
{
	static const struct option options[] = {
		{ "seconds", required_argument, NULL, 's' },
		{ "calls", required_argument, NULL, 'c' },
		{ "threads", required_argument, NULL, 't' },
		{ "processes", required_argument, NULL, 'p' },
		{ "seed", required_argument, NULL, 'r' },
		{ "patience", required_argument, NULL, 'w' },
		{ "need-swap", no_argument, NULL, 'n' },
		{ "machine", no_argument, NULL, 'm' },
		{ "faults", no_argument, NULL, 'f' },
		{ "only", required_argument, NULL, 'o' },
		{ "first", required_argument, NULL, 'F' },
		{ "print", no_argument, NULL, 'P' },
		{ 0 },
	};
	int option;

	while ((option = getopt_long(argc, argv, "", options, NULL)) >= 0) {
		switch (option) {
		case 's':
			set.seconds = (double)number_of(optarg, 1);
			break;
		case 'c':
			set.calls = number_of(optarg, 1);
			break;
		case 't':
			set.threads = (int)number_of(optarg, 1);
			break;
		case 'p':
			set.processes = (int)number_of(optarg, 1);
			break;
		case 'r':
			set.seed = strtoull(optarg, NULL, 0);
			break;
		case 'w':
			set.patience = (int)number_of(optarg, 1);
			break;
		case 'n':
			set.need_swap = true;
			break;
		case 'm':
			set.machine = true;
			break;
		case 'f':
			set.faults = true;
			break;
		case 'o':
			set.only = (int)number_of(optarg, 0);
			break;
		case 'F':
			set.first = (uint64_t)number_of(optarg, 0);
			break;
		case 'P':
			set.print = true;
			break;
		default:
			usage();
		}
	}
	if (optind < argc)
		usage();
	/* The private words of the workers of a process are in half a page. */
	if (set.threads > 32 || set.processes > MOST_WORKERS ||
	    set.threads * set.processes > MOST_WORKERS || set.only >= set.threads * set.processes) {
		fprintf(stderr,
			NAME ": wanted at most 32 threads, %d in all, and --only one of them\n",
			MOST_WORKERS);
		exit(1);
	}
	if (!set.seconds && !set.calls)
		set.seconds = 10;
}

int main(int argc, char **argv)
{
	long long start;

	/* What the workers replace their process with. */
	if (argc == 2 && strcmp(argv[1], "--nothing") == 0)
		return 0;
	set.seed = (uint64_t)now_ns() ^ (uint64_t)getpid() << 40;
	parse(argc, argv);
	setvbuf(stdout, NULL, _IOLBF, 0);

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (shared == MAP_FAILED)
		give_up("mmap: wanted memory to share, got %s", strerror(errno));
	set.supervisor = getpid();
	set.cpus = (int)sysconf(_SC_NPROCESSORS_ONLN);
	set.has_swap = kernel_has_swap();
	set.has_robust_unlock = kernel_has_robust_unlock();
	if (!set.has_swap && (set.need_swap || set.faults)) {
		fprintf(stderr,
			NAME
			": wanted FUTEX_SWAP (futex operation %d), this kernel has none; run it "
			"with vm/run\n",
			FUTEX_SWAP);
		return set.need_swap ? 1 : EXIT_SKIP;
	}
	/*
	 * A fault injected while a page of the program is read would hit the file
	 * system, and of vm/run's (9P) the guest can lose the whole of it so.
	 */
	if (set.faults && mlockall(MCL_CURRENT))
		give_up("--faults: mlockall: wanted the program in memory, got %s",
			strerror(errno));
	memory_make();
	set.has_compat = compat_works();
	printf("seed=%#llx threads=%d processes=%d cpus=%d FUTEX_SWAP: %s, 32-bit entry: %s\n",
	       (unsigned long long)set.seed, set.threads, set.processes, set.cpus,
	       set.has_swap ? "yes" : "no", set.has_compat ? "yes" : "no");

	for (int i = 0; i < set.threads * set.processes; i++) {
		workers[i].slot = &shared->slots[i];
		workers[i].index = i;
		workers[i].sibling = i % set.threads;
		atomic_store(&shared->slots[i].done, set.first);
	}
	set_handlers();
	start = now_ns();
	if (set.faults) {
		if (!faults_begin())
			return EXIT_SKIP;
		faults_each();
		if (!faults_at_random())
			atomic_store(&shared->failed, true);
	}
	if (set.machine)
		make_groups();
	if (set.seconds)
		set.end = now_ns() + (long long)(set.seconds * 1e9);
	if (!atomic_load(&shared->failed))
		supervise();
	if (set.machine)
		remove_groups();
	if (set.faults)
		faults_end();

	if (!atomic_load(&shared->has_served) || !atomic_load(&shared->has_ring))
		printf("left out:%s%s\n", shared->has_served ? "" : " userfaultfd",
		       shared->has_ring ? "" : " io_uring");
	if (!summary(start)) {
		fprintf(stderr, NAME ": wanted calls, made none\n");
		return 1;
	}
	return atomic_load(&shared->failed) ? 1 : 0;
}
