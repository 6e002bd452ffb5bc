// SPDX-License-Identifier: MIT
/*
 * Hand-overs, as many as are wanted, between threads to which all sorts of things
 * happen meanwhile: see party.c and meddle.c. Whether the kernel's
 * own books are right is for its checks to say (CONFIG_SCHED_DEBUG), which this
 * turns on where they are.
 *
 * All decisions follow from the seed: those of a thread from the seed, its party,
 * its seat, and how many sat there before; those of a meddler from the seed and
 * its name's place in the list. So the same seed gives each of them the same
 * sequence of random numbers. What a thread draws the next one for depends on
 * which token comes when, that is on the scheduler, so a run is replayed only as
 * far as that lets it: the same mixture, not the same run.
 *
 * As `torture` with the library as it is installed, and as `torture_delays` with
 * one that waits in between, at some of its delay points (delay.h).
 */
#include "files.h"
#include "torture.h"

#include <switchto/switchto.h>

#include <dirent.h>
#include <getopt.h>
#include <inttypes.h>
#include <sys/random.h>

#define EXIT_SKIP 77

/* What the threads form, in this order, again and again until there are enough. */
static const struct plan plans[] = {
	{ .name = "pair", .seats = 2, .tokens = 1, .wild = 256, .ring = true, .strict = true },
	{ .name = "duel", .seats = 2, .tokens = 2, .wild = 32, .ring = true },
	{ .name = "ring", .seats = 3, .tokens = 1, .wild = 64, .ring = true, .strict = true },
	{ .name = "mortals", .seats = 5, .tokens = 2, .wild = 16, .mortal = true },
	{ .name = "crowd", .seats = 6, .tokens = 2, .wild = 16 },
	{ .name = "long ring", .seats = 8, .tokens = 1, .wild = 256, .ring = true, .strict = true },
};

#define PLANS (sizeof(plans) / sizeof(plans[0]))

struct shared *shared;
uint64_t seed;
int patience = 60;
bool need_all;
unsigned int delay_permille, calm_percent = 50;
static unsigned int verify_percent = 100;
static bool some_left_out, swaps;

static long wanted_handovers;
static double wanted_seconds;
static unsigned int wanted_threads = 26;

void die(const char *what)
{
	fprintf(stderr, "torture: %s: %s\n", what, strerror(errno));
	_exit(1);
}

void left_out(const char *what)
{
	fprintf(stderr, "torture: %s: %s: %s\n", need_all ? "wanted" : "left out", what,
		strerror(errno));
	if (need_all) {
		atomic_store(&shared->failed, true);
		_exit(1);
	}
}

void pause_ns(long long ns)
{
	const struct timespec time = { ns / NSEC_PER_SEC, ns % NSEC_PER_SEC };

	nanosleep(&time, NULL);
}

long long now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * NSEC_PER_SEC + t.tv_nsec;
}

/* The finaliser of splitmix64: Sebastiano Vigna, prng.di.unimi.it, public domain. */
uint64_t seed_for(uint64_t from, uint64_t kind, uint64_t index)
{
	uint64_t z = from + kind * UINT64_C(0x9e3779b97f4a7c15) +
		     index * UINT64_C(0xd1342543de82ef95);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	z ^= z >> 31;
	return z ? z : 1;
}

/* --- what there is to see when it goes wrong ------------------------------------ */

static void print_tasks(void)
{
	static const char *const files[] = { "stat", "wchan", "syscall" };
	DIR *tasks = opendir("/proc/self/task");
	struct dirent *task;

	while (tasks && (task = readdir(tasks))) {
		if (task->d_name[0] == '.')
			continue;
		for (int i = 0; i < 3; i++) {
			char text[512];

			if (!read_text(text_of("/proc/self/task/%s/%s", task->d_name, files[i]),
				       text, sizeof(text)))
				continue;
			text[strcspn(text, "\n")] = '\0';
			fprintf(stderr, "task %s %s: %s\n", task->d_name, files[i], text);
		}
	}
	if (tasks)
		closedir(tasks);
}

static long printed[MOST_PARTIES][MOST_SEATS];
static double slept_through;

static void print_parties(void)
{
	for (unsigned int p = 0; p < shared->parties; p++) {
		struct party *party = &shared->party[p];
		char text[512];

		fprintf(stderr, "party %u, %s\n", p, party->plan.name);
		for (unsigned int t = 0; t < party->plan.tokens; t++) {
			uint32_t owner = atomic_load(&party->tokens[t].owner);

			printed[p][t] = atomic_load(&party->tokens[t].seen);
			fprintf(stderr,
				"  token %u: in the %s of seat %u after %ld moves, given by %d\n",
				t, owner & 1 ? "hand" : "box", owner >> 1, printed[p][t],
				party->tokens[t].giver);
		}
		for (unsigned int i = 0; i < party->plan.seats; i++)
			fprintf(stderr, "  %s\n", party_state(party, i, text, sizeof(text)));
	}
}

/* What has moved since it was printed was slow, and not lost. */
static void print_still(void)
{
	for (unsigned int p = 0; p < shared->parties; p++)
		for (unsigned int t = 0; t < shared->party[p].plan.tokens; t++)
			if (atomic_load(&shared->party[p].tokens[t].seen) == printed[p][t])
				fprintf(stderr, "party %u, token %u: still there\n", p, t);
}

void broken(const char *format, ...)
{
	static atomic_flag one = ATOMIC_FLAG_INIT;
	va_list args;

	/* The others would only tell what comes of it. */
	while (atomic_flag_test_and_set(&one))
		pause();
	atomic_store(&shared->over, true);
	fprintf(stderr, "torture: BROKEN: ");
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fprintf(stderr, "; seed %" PRIu64 ", process %d\n", seed, (int)getpid());
	print_parties();
	print_tasks();
	print_still();
	fprintf(stderr, "the watch had slept through %.1f s\n", slept_through);
	abort();
}

/* --- the watch -------------------------------------------------------------------- */

static const char features[] = "/sys/kernel/debug/sched/features";
static const char handoff_counts[] = "/sys/kernel/debug/futex_swap";

/* The kernel's check of its own sums. It warns in its log as well. */
static void verify_averages(void)
{
	char text[64];

	if (!read_text("/sys/kernel/debug/sched/verify_averages", text, sizeof(text)))
		return;
	if (strcmp(text, "0\n"))
		broken("the averages of %d cfs_rqs are wrong", atoi(text));
}

static long total(enum count what)
{
	long sum = 0;

	for (unsigned int i = 0; i < shared->parties; i++)
		sum += party_count(&shared->party[i], what);
	return sum;
}

static long handovers(void)
{
	return total(SWITCHES) + total(RESUMES);
}

#define WATCH_NS 50000000LL

/*
 * The time since the last call, before each of which the watch slept for WATCH_NS. What
 * came on top of that counts only up to as much again: a host that keeps the whole guest
 * waiting keeps the watch waiting as well, and is no fault of the tokens'. Of that time
 * the guest's kernel knows nothing, and who was on a CPU then is charged for it, so that
 * its turn may come minutes later.
 */
static double watched(long long *last)
{
	long long now = now_ns(), time = now - *last;

	*last = now;
	if (time > 2 * WATCH_NS) {
		slept_through += (double)(time - 2 * WATCH_NS) / 1e9;
		time = 2 * WATCH_NS;
	}
	return (double)time / 1e9;
}

/* No token may stand still for longer than our patience. */
static void check_tokens(double seconds)
{
	static long before[MOST_PARTIES][MOST_SEATS];
	static double since[MOST_PARTIES][MOST_SEATS];

	for (unsigned int p = 0; p < shared->parties; p++) {
		for (unsigned int t = 0; t < shared->party[p].plan.tokens; t++) {
			struct token *token = &shared->party[p].tokens[t];
			long now = atomic_load(&token->seen);
			uint32_t owner;

			if (now != before[p][t] || !since[p][t]) {
				before[p][t] = now;
				since[p][t] = seconds;
			} else if (seconds - since[p][t] > patience) {
				owner = atomic_load(&token->owner);
				broken("party %u, token %u stood still for %d s after %ld moves, in the %s of seat %u",
				       p, t, patience, now, owner & 1 ? "hand" : "box", owner >> 1);
			}
		}
	}
}

/*
 * A resume that was lost just before the end would be made up for by the resumes
 * that end the parties: so each token is to be handed over once more before those.
 */
static void let_tokens_move(void)
{
	long before[MOST_PARTIES][MOST_SEATS] = { 0 };
	long long last = now_ns();
	double seconds = 0;

	for (unsigned int p = 0; p < shared->parties; p++)
		for (unsigned int t = 0; t < shared->party[p].plan.tokens; t++)
			before[p][t] = atomic_load(&shared->party[p].tokens[t].seen);
	for (unsigned int p = 0; p < shared->parties; p++) {
		for (unsigned int t = 0; t < shared->party[p].plan.tokens; t++) {
			while (atomic_load(&shared->party[p].tokens[t].seen) == before[p][t]) {
				if (seconds > patience)
					broken("party %u, token %u stood still for %d s after %ld moves, at the end",
					       p, t, patience, before[p][t]);
				pause_ns(WATCH_NS);
				seconds += watched(&last);
			}
		}
	}
}

/* The kernel computes its sums anew with each switch, or only for a part of the time. */
static bool verify_sums(void)
{
	static int verifying = -1;
	const long long period = 3 * NSEC_PER_SEC;
	int now = now_ns() % period < period / 100 * verify_percent;

	if (now == verifying)
		return true;
	verifying = now;
	return write_text(features, now ? "VERIFY_SUMS" : "NO_VERIFY_SUMS");
}

static const char *const deed_names[DEEDS] = { "signals", "stops",   "traces",	 "kills",
					       "exits",	  "forks",   "cancels",	 "changes",
					       "moves",	  "freezes", "hotplugs", "hashes" };

/*
 * Of a run that needs all and is not too short for it, what has not happened yet of all
 * that it is about; or NULL.
 */
static const char *missing(double seconds)
{
	char counts[2048];

	if (!need_all || some_left_out || calm_percent == 100 || seconds < 30)
		return NULL;
	for (int i = 0; i < DEEDS; i++)
		if (!atomic_load(&shared->deeds[i]) &&
		    (i != HOTPLUGS || sysconf(_SC_NPROCESSORS_CONF) > 1) &&
		    (i != HASHES || hash_can_be_replaced()))
			return deed_names[i];
	/* Else it takes a walk round the few that there are. */
	if (!total(REUSED) && (tids_are_chosen() || total(LIVES) > 1000))
		return "TIDs used again";
	if (swaps && (!read_text(handoff_counts, counts, sizeof(counts)) ||
		      !strncmp(counts, "handoff 0\n", strlen("handoff 0\n"))))
		return "hand-offs";
	return NULL;
}

static double watch(void)
{
	bool verifies = verify_sums();
	long long start = now_ns();
	double seconds = 0, enough_at = 0, checked = 0, verified = 0, said = 0, counted = 0;
	long long last = start;

	if (verifies && verify_percent)
		printf("the kernel verifies its sums, %u %% of the time\n", verify_percent);
	for (;;) {
		bool enough = (wanted_handovers && handovers() >= wanted_handovers) ||
			      (wanted_seconds && seconds >= wanted_seconds);

		/* On a slow machine it goes on until all has happened, as long as we are patient. */
		if (enough && (!missing(seconds) || seconds > enough_at + patience))
			return seconds;
		if (!enough)
			enough_at = seconds;
		pause_ns(WATCH_NS);
		seconds = (double)(now_ns() - start) / 1e9;
		counted += watched(&last);
		if (verifies)
			verify_sums();
		if (seconds - checked > 1) {
			check_tokens(counted);
			checked = seconds;
		}
		if (seconds - verified > 5) {
			verify_averages();
			verified = seconds;
		}
		if (seconds - said > 30) {
			printf("%ld hand-overs after %.0f s\n", handovers(), seconds);
			said = seconds;
		}
	}
}

static void print_parties_counts(void)
{
	for (unsigned int p = 0; p < shared->parties; p++) {
		struct party *party = &shared->party[p];

		printf("party %u: %-9s %2u threads, %u tokens: %10ld hand-overs, %5.1f %% by switch, %ld timeouts, %ld merged, %ld empty, %ld gone, %ld lives, %ld reused\n",
		       p, party->plan.name, party->plan.seats, party->plan.tokens,
		       party_handovers(party),
		       100.0 * (double)party_count(party, SWITCHES) /
			       (double)(party_handovers(party) ? party_handovers(party) : 1),
		       party_count(party, TIMEOUTS), party_count(party, MERGED),
		       party_count(party, EMPTY), party_count(party, GONE),
		       party_count(party, LIVES), party_count(party, REUSED));
	}
}

static void print_summary(double seconds)
{
	long sum = handovers();

	printf("torture: ok handovers=%ld switches=%ld timeouts=%ld merged=%ld lives=%ld reused=%ld",
	       sum, total(SWITCHES), total(TIMEOUTS), total(MERGED), total(LIVES), total(REUSED));
	for (int i = 0; i < DEEDS; i++)
		printf(" %s=%ld", deed_names[i], atomic_load(&shared->deeds[i]));
	printf(" delays=%ld backend=%s cpus=%ld seconds=%.1f rate=%.0f seed=%" PRIu64 "\n",
	       delays_made(), switchto_backend(), sysconf(_SC_NPROCESSORS_CONF), seconds,
	       (double)sum / seconds, seed);
}

/* --- the worker ------------------------------------------------------------------- */

/*
 * A thread that gets a dead mortal's TID may be resumed in its place. All other
 * parties count their resumes, so their threads, of which none is ever replaced, must
 * all be there before the first mortal ends.
 */
static void begin_parties(void)
{
	struct plan planned[MOST_PARTIES];
	unsigned int threads = 0, parties = 0;

	for (; threads < wanted_threads && parties < MOST_PARTIES; parties++) {
		struct plan *plan = &planned[parties];

		*plan = plans[parties % PLANS];
		/* One is no party: the last may have one more than wanted. */
		if (plan->seats > wanted_threads - threads)
			plan->seats = wanted_threads - threads > 1 ? wanted_threads - threads : 2;
		if (plan->tokens > plan->seats)
			plan->tokens = plan->seats;
		threads += plan->seats;
	}
	shared->parties = parties;
	for (int mortal = 0; mortal <= 1; mortal++)
		for (unsigned int number = 0; number < parties; number++)
			if (planned[number].mortal == mortal)
				party_begin(&shared->party[number], &planned[number], seed, number);
	atomic_store(&shared->started, 1);
}

static int work(void)
{
	struct sigaction action = { .sa_handler = resuming_handler };
	char text[2048];
	double seconds;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	enrol(seed);
	if (!switchto_backend())
		die("switchto_backend");
	printf("backend %s\n", switchto_backend());
	swaps = !strcmp(switchto_backend(), "swap");
	if (!swaps && !getenv("SWITCHTO_BACKEND") && need_all) {
		fprintf(stderr, "torture: skipped: this kernel has no FUTEX_SWAP\n");
		return EXIT_SKIP;
	}
	sigaction(SIGUSR1, &action, NULL);
	action.sa_flags = SA_RESTART;
	sigaction(SIGUSR2, &action, NULL);

	begin_parties();
	meddlers_begin();
	seconds = watch();
	meddlers_end();
	let_tokens_move();
	for (unsigned int i = 0; i < shared->parties; i++)
		party_end(&shared->party[i]);
	verify_averages();
	write_text(features, "NO_VERIFY_SUMS");
	meddlers_clean_up();

	print_parties_counts();
	if (slept_through > 1)
		printf("the watch slept through %.1f s\n", slept_through);
	if (delay_permille)
		print_delays();
	if (read_text(handoff_counts, text, sizeof(text)))
		fputs(text, stdout);
	if (missing(seconds)) {
		fprintf(stderr, "torture: wanted some %s, found none in all of the run\n",
			missing(seconds));
		return 1;
	}
	print_summary(seconds);
	return 0;
}

/* --- around it -------------------------------------------------------------------- */

static _Noreturn void usage(int status)
{
	fprintf(status ? stderr : stdout,
		"usage: torture [--switches=N | --seconds=S] [--threads=N] [--seed=S] [--delays=PERMILLE]\n"
		"               [--calm=PERCENT] [--verify=PERCENT]\n"
		"               [--patience=SECONDS] [--need-all] [--only=NAME,...] [--without=NAME,...]\n"
		"meddlers: %s\n",
		meddlers_names());
	exit(status);
}

static double number(const char *option, const char *text, double least, double most)
{
	char *end;
	double value = strtod(text, &end);

	if (!*text || *end || !(value >= least && value <= most)) {
		fprintf(stderr, "torture: --%s: wanted a number from %.0f to %.0f, found '%s'\n",
			option, least, most, text);
		exit(2);
	}
	return value;
}

static void choose_meddlers(const char *option, const char *names, bool only)
{
	some_left_out = true;
	if (meddlers_choose(names, only))
		return;
	fprintf(stderr, "torture: --%s: wanted some of %s; found '%s'\n", option, meddlers_names(),
		names);
	exit(2);
}

static void parse(int argc, char **argv)
{
	static const struct option options[] = {
		{ "switches", required_argument, NULL, 'n' },
		{ "seconds", required_argument, NULL, 's' },
		{ "threads", required_argument, NULL, 't' },
		{ "seed", required_argument, NULL, 'r' },
		{ "delays", required_argument, NULL, 'd' },
		{ "calm", required_argument, NULL, 'c' },
		{ "verify", required_argument, NULL, 'v' },
		{ "patience", required_argument, NULL, 'p' },
		{ "need-all", no_argument, NULL, 'a' },
		{ "only", required_argument, NULL, 'o' },
		{ "without", required_argument, NULL, 'w' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	int option, index;
	char *end;

#ifdef SWITCHTO_DELAY_POINTS
	delay_permille = 2;
#endif
	while ((option = getopt_long(argc, argv, "", options, &index)) >= 0) {
		const char *name = options[index].name;

		switch (option) {
		case 'n':
			wanted_handovers = (long)number(name, optarg, 1, 1e15);
			break;
		case 's':
			wanted_seconds = number(name, optarg, 1, 1e9);
			break;
		case 't':
			wanted_threads = (unsigned int)number(name, optarg, 2, 256);
			break;
		case 'r':
			errno = 0;
			seed = strtoull(optarg, &end, 10);
			if (errno || *optarg < '0' || *optarg > '9' || *end) {
				fprintf(stderr, "torture: --seed: wanted a number, found '%s'\n",
					optarg);
				exit(2);
			}
			break;
		case 'd':
			delay_permille = (unsigned int)number(name, optarg, 0, 1000);
			break;
		case 'c':
			calm_percent = (unsigned int)number(name, optarg, 0, 100);
			break;
		case 'v':
			verify_percent = (unsigned int)number(name, optarg, 0, 100);
			break;
		case 'p':
			patience = (int)number(name, optarg, 1, 1e6);
			break;
		case 'a':
			need_all = true;
			break;
		case 'o':
		case 'w':
			choose_meddlers(name, optarg, option == 'o');
			break;
		case 'h':
			usage(0);
		default:
			usage(2);
		}
	}
	if (optind < argc)
		usage(2);
#ifndef SWITCHTO_DELAY_POINTS
	if (delay_permille) {
		fprintf(stderr,
			"torture: --delays: wanted 0 with the library as it is installed, found %u; use torture_delays\n",
			delay_permille);
		exit(2);
	}
#endif
	if (!wanted_handovers && !wanted_seconds)
		wanted_seconds = 10;
}

int main(int argc, char **argv)
{
	pid_t worker, children;
	int status;

	if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed))
		die("getrandom");
	parse(argc, argv);
	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("torture: seed %" PRIu64 "\n", seed);

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (shared == MAP_FAILED)
		die("mmap");
	children = children_begin();
	fflush(NULL);
	worker = fork();
	if (worker < 0)
		die("fork");
	if (!worker) {
		/* As main() would return, for a sanitizer to say what it found. */
		exit(work());
	}
	status = meddle_with(worker);
	atomic_store(&shared->over, true);
	if (children) {
		kill(children, SIGKILL);
		waitpid(children, NULL, 0);
	}
	if (WIFEXITED(status) && !atomic_load(&shared->failed))
		return WEXITSTATUS(status);
	if (WIFSIGNALED(status))
		fprintf(stderr, "torture: the threads' process ended with signal %d (%s)\n",
			WTERMSIG(status), strsignal(WTERMSIG(status)));
	fprintf(stderr, "torture: FAILED; seed %" PRIu64 "\n", seed);
	return 1;
}
