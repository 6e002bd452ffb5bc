// SPDX-License-Identifier: MIT
/*
 * The other side of packet-server: sessions that send packets, check what comes back, and count
 * what is lost. It can start the server, and then also says how much CPU time a packet took there.
 */
#include "load.h"

#include <arpa/inet.h>
#include <getopt.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>

static const char usage[] =
	"usage: packet-load [options] udp|reliable|tcp ADDRESS:PORT\n"
	"       packet-load [options] udp|reliable|tcp -- SERVER [ARGUMENT...]\n"
	"Prints a line of JSON. With SERVER, starts it, and measures its CPU time, too.\n"
	"  --sessions N         each with a socket of its own (64)\n"
	"  --size BYTES         of the payload of a packet (64)\n"
	"  --burst N            packets that a session sends at once (1)\n"
	"  --packets N          how many to have answered, in all (100000)\n"
	"  --rate N             udp: so many each second, whether or not others are answered\n"
	"  --search             udp: find the highest rate without loss, then run at 0.9 of it\n"
	"  --seconds N          of a run with a rate (60)\n"
	"  --plain              without UDP_SEGMENT and UDP_GRO\n"
	"  --bytes N            reliable: of each session (100000)\n"
	"  --lose, --reorder, --double PERCENT\n"
	"                       reliable: of the packets, in both directions\n"
	"  --seed N             of what is lost (1)\n"
	"  --patience SECONDS   until a run without progress fails (60)\n"
	"  --crypto user|afalg, --key FILE  as the server\n"
	"  --apart              the server on the first CPU, this program on the second\n"
	"  --name TEXT          of the row\n";

struct options options = { .sessions = 64,
			   .size = 64,
			   .burst = 1,
			   .packets = 100000,
			   .seconds = 60,
			   .bytes = 100000,
			   .seed = 1,
			   .patience = 60,
			   .name = "" };

static _Noreturn void bad_usage(const char *option, const char *wanted, const char *found)
{
	fprintf(stderr, "packet-load: %s: wanted %s, found '%s'\n", option, wanted, found);
	exit(2);
}

static void read_key(const char *path)
{
	FILE *file = fopen(path, "re");

	if (!file || fread(options.key, 1, sizeof(options.key), file) != sizeof(options.key))
		bad_usage("--key", "a file of 32 bytes", path);
	fclose(file);
}

static void parse_address(const char *text)
{
	const char *colon = strrchr(text, ':');
	char host[INET_ADDRSTRLEN] = "";

	if (!colon || (size_t)(colon - text) >= sizeof(host))
		bad_usage("address", "ADDRESS:PORT", text);
	memcpy(host, text, (size_t)(colon - text));
	options.address.sin_family = AF_INET;
	if (inet_pton(AF_INET, host, &options.address.sin_addr) != 1)
		bad_usage("address", "ADDRESS:PORT", text);
	options.address.sin_port = htons((uint16_t)atol(colon + 1));
}

static const struct option names[] = {
	{ "sessions", required_argument, NULL, 0 }, { "size", required_argument, NULL, 1 },
	{ "burst", required_argument, NULL, 2 },    { "packets", required_argument, NULL, 3 },
	{ "rate", required_argument, NULL, 4 },	    { "seconds", required_argument, NULL, 5 },
	{ "bytes", required_argument, NULL, 6 },    { "lose", required_argument, NULL, 7 },
	{ "reorder", required_argument, NULL, 8 },  { "double", required_argument, NULL, 9 },
	{ "seed", required_argument, NULL, 10 },    { "patience", required_argument, NULL, 11 },
	{ "plain", no_argument, NULL, 'p' },	    { "search", no_argument, NULL, 's' },
	{ "apart", no_argument, NULL, 'a' },	    { "crypto", required_argument, NULL, 'c' },
	{ "key", required_argument, NULL, 'k' },    { "name", required_argument, NULL, 'n' },
	{ "help", no_argument, NULL, 'h' },	    { NULL, 0, NULL, 0 },
};

static void parse_option(int which)
{
	unsigned long *const numbers[] = {
		&options.sessions, &options.size,    &options.burst, &options.packets,
		&options.rate,	   &options.seconds, &options.bytes, &options.lose,
		&options.reorder,  &options.twice,   &options.seed,  &options.patience,
	};

	switch (which) {
	case 'p':
		options.plain = true;
		break;
	case 's':
		options.search = true;
		break;
	case 'a':
		options.apart = true;
		break;
	case 'c':
		options.sealed = true;
		options.kernel = strcmp(optarg, "afalg") == 0;
		if (!options.kernel && strcmp(optarg, "user") != 0)
			bad_usage("--crypto", "user or afalg", optarg);
		break;
	case 'k':
		read_key(optarg);
		break;
	case 'n':
		options.name = optarg;
		break;
	case 'h':
		fputs(usage, stdout);
		exit(0);
	case '?':
		fputs(usage, stderr);
		exit(2);
	default: {
		char *end;

		*numbers[which] = strtoul(optarg, &end, 10);
		if (*optarg < '0' || *optarg > '9' || *end || *numbers[which] > 1000000000 ||
		    (which < 4 && *numbers[which] == 0))
			bad_usage(names[which].name, "a number up to 1000000000", optarg);
	}
	}
}

static void parse(int argc, char **argv)
{
	static const char *const modes[] = { "udp", "reliable", "tcp" };
	int n, mode = 3;

	while ((n = getopt_long(argc, argv, "+", names, NULL)) != -1)
		parse_option(n);
	if (argc - optind >= 2)
		for (mode = 0; mode < 3 && strcmp(argv[optind], modes[mode]) != 0;)
			mode++;
	if (mode == 3 || options.size < sizeof(struct head) || options.size > PACKET_MAX ||
	    options.burst > GRO_MAX / options.size || options.burst * packet_size() > GRO_MAX) {
		fputs(usage, stderr);
		exit(2);
	}
	options.mode = (enum mode)mode;
	if (strcmp(argv[optind + 1], "--") == 0 && argc - optind >= 3)
		options.server = argv + optind + 2;
	else
		parse_address(argv[optind + 1]);
}

/* On one CPU, neither side preempts the other in the middle of a batch. */
static void prepare(void)
{
	const struct sched_param none = { 0 };
	struct rlimit files;
	cpu_set_t cpus;

	if (sched_getaffinity(0, sizeof(cpus), &cpus) == 0 && CPU_COUNT(&cpus) == 1)
		sched_setscheduler(0, SCHED_BATCH, &none);
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	prctl(PR_SET_TIMERSLACK, 1);
}

int main(int argc, char **argv)
{
	const char *reason;
	int status;

	parse(argc, argv);
	prepare();
	if (options.server && !start_server())
		return 0;
	if (options.apart)
		stay_on(1);
	buffer = allocate(1, GRO_MAX + CRYPTO_OVERHEAD);
	make_pattern();
	if (options.sealed) {
		crypto = crypto_new(options.kernel, options.key, false, &reason);
		if (!crypto) {
			fprintf(stderr, "packet-load: --crypto: %s\n", reason);
			return 1;
		}
	}
	status = options.mode == UDP	  ? run_udp() :
		 options.mode == RELIABLE ? run_reliable() :
					    run_tcp();
	stop_server();
	crypto_free(crypto);
	free(buffer);
	return status;
}
