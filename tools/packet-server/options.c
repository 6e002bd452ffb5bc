// SPDX-License-Identifier: MIT
#define _GNU_SOURCE
#include "server.h"

#include <arpa/inet.h>
#include <getopt.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
	"usage: packet-server [options] udp|reliable|tcp|http [ADDRESS:]PORT\n"
	"udp: sends each packet back. reliable: the same for streams of bytes over UDP (stream.h).\n"
	"tcp: sends back what it reads. http: sends the files below --root. Port 0: any; the first\n"
	"line says which. SIGINT and SIGTERM end it.\n"
	"  --slots N            slots, each on a CPU of its own (as many as CPUs)\n"
	"  --io plain|mmsg|ring recvfrom and sendto; recvmmsg and sendmmsg; io_uring and sendmmsg\n"
	"                       (mmsg)\n"
	"  --batch N            messages of one call (64)\n"
	"  --gso, --gro         the kernel cuts large messages into packets, and joins packets\n"
	"  --steer hash|cpu|session\n"
	"                       which slot takes a packet: by its addresses, the CPU that\n"
	"                       receives it, or the number of the session (hash)\n"
	"  --xdp INTERFACE      udp: by AF_XDP; without the kernel's stack\n"
	"  --crypto none|user|afalg\n"
	"                       packets are sealed with AES-256-GCM, by libcrypto or by the kernel\n"
	"  --key FILE           the key, 32 bytes\n"
	"  --sessions N         of each slot, at most; or connections (4096)\n"
	"  --idle SECONDS       until a session or connection without traffic ends (60)\n"
	"  --root DIR           what http sends (.)\n"
	"  --interval SECONDS   report so often (only at the end)\n"
	"  --json               report as JSON\n"
	"  --plot               report with the last 60 rates of each slot as a chart\n"
	"  --trace FILE         record what the slots do, for switchto-trace\n";

static int fail(const char *option, const char *wanted, const char *found)
{
	complain(0, "%s: wanted %s, found '%s'", option, wanted, found);
	return 2;
}

/* -1: it is no number in this range. */
static long number(const char *text, long least, long largest)
{
	char *end;
	const long n = strtol(text, &end, 10);

	return end == text || *end || n < least || n > largest ? -1 : n;
}

/* The place of @text among @words, or -1. */
static int word(const char *text, const char *const *words)
{
	for (int i = 0; words[i]; i++)
		if (strcmp(text, words[i]) == 0)
			return i;
	return -1;
}

static int read_key(const char *path, uint8_t *key)
{
	FILE *file = fopen(path, "re");
	uint8_t bytes[KEY_SIZE + 1];
	size_t size = 0;

	if (file) {
		size = fread(bytes, 1, sizeof(bytes), file);
		fclose(file);
	}
	if (size != KEY_SIZE)
		return fail("--key", "a file of 32 bytes", path);
	memcpy(key, bytes, KEY_SIZE);
	return 0;
}

static int parse_address(const char *text, struct sockaddr_in *address)
{
	const char *colon = strrchr(text, ':'), *port = colon ? colon + 1 : text;
	char host[INET_ADDRSTRLEN] = "127.0.0.1";
	const long n = number(port, 0, 65535);

	address->sin_family = AF_INET;
	address->sin_port = htons((uint16_t)n);
	if (colon && (size_t)(colon - text) < sizeof(host)) {
		memcpy(host, text, (size_t)(colon - text));
		host[colon - text] = 0;
	}
	if (n < 0 || inet_pton(AF_INET, host, &address->sin_addr) != 1)
		return fail("address", "[ADDRESS:]PORT with an address of IPv4", text);
	return 0;
}

enum {
	SLOTS,
	IO,
	BATCH,
	GSO,
	GRO,
	STEER,
	XDP,
	CRYPTO,
	KEY,
	SESSIONS,
	IDLE,
	ROOT,
	INTERVAL,
	JSON,
	PLOT,
	TRACE,
	HELP
};

static const struct option names[] = {
	{ "slots", required_argument, NULL, SLOTS },
	{ "io", required_argument, NULL, IO },
	{ "batch", required_argument, NULL, BATCH },
	{ "gso", no_argument, NULL, GSO },
	{ "gro", no_argument, NULL, GRO },
	{ "steer", required_argument, NULL, STEER },
	{ "xdp", required_argument, NULL, XDP },
	{ "crypto", required_argument, NULL, CRYPTO },
	{ "key", required_argument, NULL, KEY },
	{ "sessions", required_argument, NULL, SESSIONS },
	{ "idle", required_argument, NULL, IDLE },
	{ "root", required_argument, NULL, ROOT },
	{ "interval", required_argument, NULL, INTERVAL },
	{ "json", no_argument, NULL, JSON },
	{ "plot", no_argument, NULL, PLOT },
	{ "trace", required_argument, NULL, TRACE },
	{ "help", no_argument, NULL, HELP },
	{ NULL, 0, NULL, 0 },
};

static int parse_number(const char *name, const char *text, long largest, unsigned int *to)
{
	const long n = number(text, 1, largest);
	char wanted[32];

	snprintf(wanted, sizeof(wanted), "1 to %ld", largest);
	if (n < 0)
		return fail(name, wanted, text);
	*to = (unsigned int)n;
	return 0;
}

static int parse_word(const char *name, const char *wanted, const char *const *words, int *to)
{
	*to = word(optarg, words);
	return *to == -1 ? fail(name, wanted, optarg) : 0;
}

static int parse_one(int which, struct options *options, bool *key)
{
	static const char *const ios[] = { "plain", "mmsg", "ring", NULL };
	static const char *const steers[] = { "hash", "cpu", "session", NULL };
	static const char *const ciphers[] = { "none", "user", "afalg", NULL };
	int n = 0, status = 0;

	switch (which) {
	case SLOTS:
		return parse_number("--slots", optarg, 64, &options->slots);
	case IO:
		status = parse_word("--io", "plain, mmsg or ring", ios, &n);
		options->io = (enum io)n;
		return status;
	case BATCH:
		return parse_number("--batch", optarg, 256, &options->batch);
	case GSO:
		options->gso = true;
		return 0;
	case GRO:
		options->gro = true;
		return 0;
	case STEER:
		status = parse_word("--steer", "hash, cpu or session", steers, &n);
		options->steer = (enum steer)n;
		return status;
	case XDP:
		options->xdp = optarg;
		return 0;
	case CRYPTO:
		status = parse_word("--crypto", "none, user or afalg", ciphers, &n);
		options->cipher = (enum cipher)n;
		return status;
	case KEY:
		*key = true;
		return read_key(optarg, options->key);
	case SESSIONS:
		return parse_number("--sessions", optarg, 1000000, &options->sessions);
	case IDLE:
		return parse_number("--idle", optarg, 86400, &options->idle);
	case ROOT:
		options->root = optarg;
		return 0;
	case INTERVAL:
		return parse_number("--interval", optarg, 86400, &options->interval);
	case JSON:
		options->json = true;
		return 0;
	case PLOT:
		options->plot = true;
		return 0;
	case TRACE:
		options->trace = optarg;
		return 0;
	case HELP:
		fputs(usage, stdout);
		exit(0);
	default:
		fputs(usage, stderr);
		return 2;
	}
}

int parse_options(int argc, char **argv, struct options *options)
{
	static const char *const kinds[] = { "udp", "reliable", "tcp", "http", NULL };
	bool key = false;
	cpu_set_t cpus;
	int n, status;

	*options = (struct options){
		.io = IO_MMSG, .batch = 64, .sessions = 4096, .idle = 60, .root = "."
	};
	options->slots = sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ?
				 (unsigned int)CPU_COUNT(&cpus) :
				 1;
	if (options->slots > 64)
		options->slots = 64;
	while ((n = getopt_long(argc, argv, "", names, NULL)) != -1) {
		status = parse_one(n, options, &key);
		if (status)
			return status;
	}
	n = argc - optind == 2 ? word(argv[optind], kinds) : -1;
	if (n == -1) {
		fputs(usage, stderr);
		return 2;
	}
	options->what = (enum what)n;
	if (options->xdp && options->what != UDP_ECHO)
		return fail("--xdp", "udp", argv[optind]);
	if (options->steer == STEER_SESSION && options->what != UDP_RELIABLE)
		return fail("--steer session", "reliable", argv[optind]);
	if (options->steer == STEER_SESSION && options->cipher != CIPHER_NONE)
		return fail("--steer session", "no --crypto, which hides the session", "--crypto");
	if (options->cipher != CIPHER_NONE && options->what > UDP_RELIABLE)
		return fail("--crypto", "udp or reliable", argv[optind]);
	if ((options->cipher != CIPHER_NONE) != key)
		return fail("--crypto and --key", "both or none", key ? "--key" : "--crypto");
	return parse_address(argv[optind + 1], &options->address);
}
