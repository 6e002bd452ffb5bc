// SPDX-License-Identifier: MIT
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

/* What an option sets in struct options. */
static const struct known {
	const char *name;
	enum { FLAG, NUMBER, WORD, TEXT, KEY, HELP } kind;
	size_t at;
	long largest;
	const char *const *words;
	const char *wanted;
} known[] = {
#define AT(member) offsetof(struct options, member)
	{ "--slots", NUMBER, AT(slots), 64, NULL, NULL },
	{ "--io", WORD, AT(io), 0, (const char *const[]){ "plain", "mmsg", "ring", NULL },
	  "plain, mmsg or ring" },
	{ "--batch", NUMBER, AT(batch), 256, NULL, NULL },
	{ "--gso", FLAG, AT(gso), 0, NULL, NULL },
	{ "--gro", FLAG, AT(gro), 0, NULL, NULL },
	{ "--steer", WORD, AT(steer), 0, (const char *const[]){ "hash", "cpu", "session", NULL },
	  "hash, cpu or session" },
	{ "--xdp", TEXT, AT(xdp), 0, NULL, NULL },
	{ "--crypto", WORD, AT(cipher), 0, (const char *const[]){ "none", "user", "afalg", NULL },
	  "none, user or afalg" },
	{ "--key", KEY, AT(key), 0, NULL, NULL },
	{ "--sessions", NUMBER, AT(sessions), 1000000, NULL, NULL },
	{ "--idle", NUMBER, AT(idle), 86400, NULL, NULL },
	{ "--root", TEXT, AT(root), 0, NULL, NULL },
	{ "--interval", NUMBER, AT(interval), 86400, NULL, NULL },
	{ "--json", FLAG, AT(json), 0, NULL, NULL },
	{ "--plot", FLAG, AT(plot), 0, NULL, NULL },
	{ "--trace", TEXT, AT(trace), 0, NULL, NULL },
	{ "--help", HELP, 0, 0, NULL, NULL },
};

enum { KNOWN = sizeof(known) / sizeof(*known) };

static int parse_one(const struct known *k, struct options *options, bool *key)
{
	void *to = (char *)options + k->at;
	char wanted[32];
	long n = 0;

	switch (k->kind) {
	case FLAG:
		*(bool *)to = true;
		return 0;
	case NUMBER:
		n = number(optarg, 1, k->largest);
		snprintf(wanted, sizeof(wanted), "1 to %ld", k->largest);
		*(unsigned int *)to = (unsigned int)n;
		return n < 0 ? fail(k->name, wanted, optarg) : 0;
	case WORD:
		/* An enum, all of which are unsigned. */
		n = word(optarg, k->words);
		*(unsigned int *)to = (unsigned int)n;
		return n < 0 ? fail(k->name, k->wanted, optarg) : 0;
	case TEXT:
		*(const char **)to = optarg;
		return 0;
	case KEY:
		*key = true;
		return read_key(optarg, to);
	default:
		fputs(usage, stdout);
		exit(0);
	}
}

int parse_options(int argc, char **argv, struct options *options)
{
	static const char *const kinds[] = { "udp", "reliable", "tcp", "http", NULL };
	struct option names[KNOWN + 1] = { 0 };
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
	for (int i = 0; i < KNOWN; i++)
		names[i] = (struct option){ known[i].name + 2,
					    known[i].kind == FLAG || known[i].kind == HELP ?
						    no_argument :
						    required_argument,
					    NULL, i };
	while ((n = getopt_long(argc, argv, "", names, NULL)) != -1 && n != '?') {
		status = parse_one(&known[n], options, &key);
		if (status)
			return status;
	}
	n = n == -1 && argc - optind == 2 ? word(argv[optind], kinds) : -1;
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
