// SPDX-License-Identifier: MIT
/*
 * The kernel's fault injection, for fuzz_futex --faults: memory that is not to be
 * had, memory of the program that can't be read, and the points of FAIL_FUTEX.
 *
 * Twice: at random in all workers while they run, and before that one by one.
 * /proc/thread-self/fail-nth makes the n-th point that a thread comes to fail; a
 * call is made with n = 1, 2, ... until it comes to no n-th one. Each time in a
 * thread of its own, for what FUTEX_SWAP keeps for a thread is allocated in its
 * first call.
 */
#include "files.h"
#include "fuzz.h"

#define DEBUG "/sys/kernel/debug/"

/* In the order in which they are set; put back in the other. */
static struct setting {
	const char *path, *text;
	char before[32];
} settings[] = {
	/* The log is for what the kernel finds wrong, not for what we do. */
	{ .path = DEBUG "failslab/verbose", .text = "0" },
	{ .path = DEBUG "fail_page_alloc/verbose", .text = "0" },
	{ .path = DEBUG "fail_usercopy/verbose", .text = "0" },
	{ .path = DEBUG "fail_futex/verbose", .text = "0" },
	/* For those that ask for it (make-it-fail) and nobody else. */
	{ .path = DEBUG "failslab/task-filter", .text = "Y" },
	{ .path = DEBUG "fail_page_alloc/task-filter", .text = "Y" },
	{ .path = DEBUG "fail_usercopy/task-filter", .text = "Y" },
	{ .path = DEBUG "fail_futex/task-filter", .text = "Y" },
	/* Where the caller could wait for memory as well. */
	{ .path = DEBUG "failslab/ignore-gfp-wait", .text = "N" },
	{ .path = DEBUG "fail_page_alloc/ignore-gfp-wait", .text = "N" },
	{ .path = DEBUG "fail_page_alloc/min-order", .text = "0" },
	{ .path = DEBUG "fail_futex/ignore-private", .text = "N" },
	{ .path = DEBUG "failslab/times", .text = "-1" },
	{ .path = DEBUG "fail_page_alloc/times", .text = "-1" },
	{ .path = DEBUG "fail_usercopy/times", .text = "-1" },
	{ .path = DEBUG "fail_futex/times", .text = "-1" },
	{ .path = DEBUG "failslab/interval", .text = "7" },
	{ .path = DEBUG "fail_page_alloc/interval", .text = "7" },
	{ .path = DEBUG "fail_usercopy/interval", .text = "7" },
	{ .path = DEBUG "fail_futex/interval", .text = "7" },
};

/* Percent, of every seventh. Set last, and for as long as the workers run. */
static struct setting probabilities[] = {
	{ .path = DEBUG "failslab/probability", .text = "10" },
	{ .path = DEBUG "fail_page_alloc/probability", .text = "5" },
	/* Few: what is copied to a stack for a signal ends the process. */
	{ .path = DEBUG "fail_usercopy/probability", .text = "1" },
	{ .path = DEBUG "fail_futex/probability", .text = "10" },
};

#define LENGTH(array) (sizeof(array) / sizeof(*(array)))

static bool change(struct setting *setting)
{
	if (!read_text(setting->path, setting->before, sizeof(setting->before)) ||
	    !write_text(setting->path, setting->text)) {
		say("fuzz_futex: --faults: wanted to set %s to %s, got %s; run it as root, "
		    "on a kernel of kernel/config/debug.config, with debugfs mounted",
		    setting->path, setting->text, strerror(errno));
		setting->before[0] = '\0';
		return false;
	}
	return true;
}

static void put_back(struct setting *setting)
{
	if (setting->before[0] && !write_text(setting->path, setting->before))
		found("wanted to put %s back to %s, got %s", setting->path, setting->before,
		      strerror(errno));
	setting->before[0] = '\0';
}

void faults_end(void)
{
	for (size_t i = 0; i < LENGTH(probabilities); i++)
		put_back(&probabilities[i]);
	for (size_t i = LENGTH(settings); i-- > 0;)
		put_back(&settings[i]);
}

bool faults_begin(void)
{
	for (size_t i = 0; i < LENGTH(settings); i++) {
		if (change(&settings[i]))
			continue;
		faults_end();
		return false;
	}
	return true;
}

bool faults_at_random(void)
{
	for (size_t i = 0; i < LENGTH(probabilities); i++)
		if (!change(&probabilities[i]))
			return false;
	return true;
}

void faults_here(bool on)
{
	if (!set.faults)
		return;
	/* Writing it is among the things that can be made to fail. */
	for (int i = 0; i < 1000; i++)
		if (write_text("/proc/thread-self/make-it-fail", on ? "1" : "0"))
			return;
	found("wanted to write make-it-fail, got %s", strerror(errno));
}

/* --- one by one ------------------------------------------------------------------- */

/* One call, and what it answers if nothing fails. */
struct scenario {
	const char *name;
	bool is_shared;
	bool has_target;   /* somebody waits on the word to be woken */
	bool target_swaps; /* in FUTEX_SWAP, so a hint finds it */
	bool hint;
	bool wait_only; /* uaddr2 NULL */
	bool wake_only; /* uaddr NULL */
	bool changed;	/* the value expected isn't there */
	bool is_timed;
	int answer; /* error number; 0 for how many were woken */
};

static const struct scenario scenarios[] = {
	{ "swap", .has_target = true, .is_timed = true, .answer = ETIMEDOUT },
	{ "swap, hint", .has_target = true, .target_swaps = true, .hint = true, .is_timed = true,
	  .answer = ETIMEDOUT },
	{ "swap, wrong hint", .has_target = true, .hint = true, .is_timed = true,
	  .answer = ETIMEDOUT },
	{ "swap, changed", .has_target = true, .changed = true, .answer = EAGAIN },
	{ "swap, nobody", .is_timed = true, .answer = ETIMEDOUT },
	{ "swap, shared", .is_shared = true, .has_target = true, .is_timed = true,
	  .answer = ETIMEDOUT },
	{ "swap, shared, changed", .is_shared = true, .has_target = true, .changed = true,
	  .answer = EAGAIN },
	{ "only wait", .wait_only = true, .is_timed = true, .answer = ETIMEDOUT },
	{ "only wait, changed", .wait_only = true, .changed = true, .answer = EAGAIN },
	{ "only wait, shared", .is_shared = true, .wait_only = true, .is_timed = true,
	  .answer = ETIMEDOUT },
	{ "only wait, shared, changed", .is_shared = true, .wait_only = true, .changed = true,
	  .answer = EAGAIN },
	{ "only wake, wrong hint", .wake_only = true, .has_target = true, .hint = true },
	{ "only wake, hint", .wake_only = true, .has_target = true, .target_swaps = true,
	  .hint = true },
	{ "only wake, shared", .is_shared = true, .wake_only = true, .has_target = true },
};

/* One try: a caller and a target that were never there before. */
struct attempt {
	const struct scenario *scenario;
	int nth;
	_Alignas(64) _Atomic uint32_t word;
	_Alignas(64) _Atomic uint32_t target_word;
	_Atomic pid_t target_tid;
	atomic_bool target_back;
	long ret;
	int error;
	bool failed; /* the n-th point was reached */
};

static int private_flag(const struct scenario *s)
{
	return s->is_shared ? 0 : FUTEX_PRIVATE_FLAG;
}

static long swap(struct attempt *a, const struct timespec *time, uint32_t hint)
{
	const struct scenario *s = a->scenario;

	return syscall(SYS_futex, s->wake_only ? NULL : &a->word, FUTEX_SWAP | private_flag(s),
		       s->changed ? 1 : 0, time, s->wait_only ? NULL : &a->target_word, hint);
}

static void *be_target(void *arg)
{
	struct attempt *a = arg;
	int op = (a->scenario->target_swaps ? FUTEX_SWAP : FUTEX_WAIT) | private_flag(a->scenario);

	atomic_store(&a->target_tid, gettid());
	/* Until the word is changed, which is how an attempt that wakes nobody ends it. */
	while (atomic_load(&a->target_word) == 0)
		if (syscall(SYS_futex, &a->target_word, op, 0, NULL, NULL, 0) == 0)
			break;
	atomic_store(&a->target_back, true);
	return NULL;
}

static void *be_caller(void *arg)
{
	struct attempt *a = arg;
	const struct timespec time = { 0, 1000000 };
	uint32_t hint = a->scenario->hint ? (uint32_t)atomic_load(&a->target_tid) : 0;
	char text[16] = "", nth[16];
	ssize_t length;
	int fd;

	fd = open("/proc/thread-self/fail-nth", O_RDWR | O_CLOEXEC);
	if (fd < 0) {
		found("wanted /proc/thread-self/fail-nth, got %s", strerror(errno));
		return NULL;
	}
	length = snprintf(nth, sizeof(nth), "%d", a->nth);
	if (write(fd, nth, (size_t)length) != length)
		found("wanted to write fail-nth, got %s", strerror(errno));

	a->ret = swap(a, a->scenario->is_timed ? &time : NULL, hint);
	a->error = a->ret < 0 ? errno : 0;

	/* Reading is a point itself: if that was the n-th, the call had fewer. */
	length = pread(fd, text, sizeof(text) - 1, 0);
	a->failed = length > 0 && atoi(text) == 0;
	while (write(fd, "0", 1) != 1)
		;
	close(fd);
	return NULL;
}

static bool is_asleep(pid_t tid)
{
	char text[512], *end;

	if (!read_text(text_of("/proc/self/task/%d/stat", tid), text, sizeof(text)))
		return false;
	end = strrchr(text, ')');
	return end && end[2] == 'S';
}

static void start(pthread_t *thread, void *(*function)(void *), void *arg)
{
	errno = pthread_create(thread, NULL, function, arg);
	if (errno)
		give_up("pthread_create: wanted a thread, got %s", strerror(errno));
}

static long no_memory(void)
{
	char text[2048], *at;

	if (!read_text(DEBUG "futex_swap", text, sizeof(text)))
		return -1;
	at = strstr(text, "no_memory ");
	return at ? atol(at + strlen("no_memory ")) : -1;
}

/*
 * Whether @a answered as it must. One failed point: either that is what the call
 * answers with, and nobody was woken; or it made do without, and all is as ever.
 * A shared futex to wait on has a key, too, to be found after the wake.
 */
static const char *attempt_fault(const struct attempt *a, bool was_woken)
{
	const struct scenario *s = a->scenario;
	bool as_ever = s->answer ? a->ret < 0 && a->error == s->answer : a->ret == 1;
	bool is_failure = a->ret < 0 && (a->error == EFAULT || a->error == ENOMEM);

	if (!as_ever && !(a->failed && is_failure))
		return "wanted the usual answer, or that of the failure";
	if (as_ever && s->has_target && !was_woken)
		return "the usual answer, but the target was not woken";
	if (!as_ever && a->error == ENOMEM && !s->is_shared)
		return "a private futex needs no memory";
	if (!as_ever && (!s->is_shared || s->wake_only) && was_woken)
		return "refused, but the target was woken";
	return NULL;
}

/* Returns whether the call came to an n-th point. */
static bool attempt(const struct scenario *scenario, int nth, int *without_memory)
{
	struct attempt *a = aligned_alloc(64, sizeof(*a));
	pthread_t caller, target = 0;
	long before, after;
	const char *fault;
	bool was_woken = false, failed;

	if (!a)
		give_up("malloc: wanted %zu bytes, got none", sizeof(*a));
	memset(a, 0, sizeof(*a));
	a->scenario = scenario;
	a->nth = nth;
	if (scenario->has_target) {
		start(&target, be_target, a);
		while (!atomic_load(&a->target_tid) || !is_asleep(atomic_load(&a->target_tid)))
			pause_us(100);
	}

	before = no_memory();
	start(&caller, be_caller, a);
	pthread_join(caller, NULL);
	after = no_memory();

	if (scenario->has_target) {
		/* Who was woken is on its way back. Who was not is asleep. */
		for (int i = 0; i < 10 || !is_asleep(atomic_load(&a->target_tid)); i++) {
			was_woken = atomic_load(&a->target_back);
			if (was_woken)
				break;
			pause_us(200);
		}
		atomic_store(&a->target_word, 1);
		syscall(SYS_futex, &a->target_word, FUTEX_WAKE | private_flag(scenario), 1, NULL,
			NULL, 0);
		pthread_join(target, NULL);
	}

	fault = attempt_fault(a, was_woken);
	if (fault)
		found("%s: \"%s\" with point %d failing: %ld, error %d, target %swoken", fault,
		      scenario->name, nth, a->ret, a->error, was_woken ? "" : "not ");
	*without_memory += after > before;
	failed = a->failed;
	free(a);
	return failed;
}

void faults_each(void)
{
	enum { MOST_POINTS = 200 };
	int points = 0, without_memory = 0, nth;

	for (size_t i = 0; i < LENGTH(scenarios); i++) {
		int here = 0;

		for (nth = 1; nth < MOST_POINTS && attempt(&scenarios[i], nth, &here); nth++)
			points++;
		if (nth == MOST_POINTS)
			found("\"%s\": wanted fewer than %d points, found no end",
			      scenarios[i].name, nth);
		if (nth == 1)
			found("\"%s\": wanted points where a fault is injected, found none",
			      scenarios[i].name);
		/* It is the first thing that a private swap asks for. */
		if (!scenarios[i].is_shared && !here)
			found("\"%s\": wanted no_memory to be counted in " DEBUG
			      "futex_swap, it was not",
			      scenarios[i].name);
		without_memory += here;
		say("faults: %s: %d points failed, %d of them with no_memory", scenarios[i].name,
		    nth - 1, here);
	}
	say("faults points=%d no_memory=%d", points, without_memory);
}
