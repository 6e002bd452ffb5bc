// SPDX-License-Identifier: MIT
/*
 * chain: JACK clients in series, a process each, and a freewheel recording of what the
 * last one hears.
 *
 *	chain CLIENTS CYCLES
 *
 * The first client makes noise, the others are filters, and this process records. Only the
 * transport's position decides what is played. So all recordings are the same.
 *
 * The sample rate is low: until the recording begins, the server keeps time, also on a slow
 * machine.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <jack/jack.h>
#include <jack/transport.h>
#include <semaphore.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_CLIENTS 64

extern char **environ;

static jack_client_t *client;
static jack_port_t *in, *out;
static float state; /* of the filter */

/* The recording, by the thread of process(). */
static atomic_bool freewheel;
static jack_nframes_t cycles, done;
static uint64_t digest = 0xcbf29ce484222325;
static double seconds, cpu_seconds;
static pid_t parts[2 + MAX_CLIENTS]; /* this process, the server, the other clients */
static sem_t recorded;

/* Without exit(): the threads of the JACK library may run. */
_Noreturn static void fail(const char *wanted)
{
	fprintf(stderr, "chain: wanted %s: %s; see jackd.log\n", wanted, strerror(errno));
	_exit(EXIT_FAILURE);
}

static double clock_seconds(clockid_t clock)
{
	struct timespec now = { 0 };

	clock_gettime(clock, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Of all parts together. */
static double cpu_clock(void)
{
	double sum = 0;
	clockid_t clock;

	for (int i = 0; parts[i]; i++)
		if (!clock_getcpuclockid(parts[i], &clock))
			sum += clock_seconds(clock);
	return sum;
}

static void on_freewheel(int starting, void *unused)
{
	(void)unused;
	atomic_store(&freewheel, starting);
}

static int make_noise(jack_nframes_t frames, void *unused)
{
	float *to = jack_port_get_buffer(out, frames);
	jack_position_t at;

	(void)unused;
	jack_transport_query(client, &at);
	for (jack_nframes_t i = 0; i < frames; i++)
		to[i] = (float)((at.frame + i) * 2654435761U) / 4294967296.0F;
	return 0;
}

static int filter(jack_nframes_t frames, void *unused)
{
	const float *from = jack_port_get_buffer(in, frames);
	float *to = jack_port_get_buffer(out, frames);
	jack_position_t at;

	(void)unused;
	jack_transport_query(client, &at);
	if (at.frame == 0)
		state = 0;
	for (jack_nframes_t i = 0; i < frames; i++)
		to[i] = state = 0.5F * (state + from[i]);
	return 0;
}

static int record(jack_nframes_t frames, void *unused)
{
	const uint32_t *from = jack_port_get_buffer(in, frames);
	jack_position_t at;

	(void)unused;
	if (!atomic_load(&freewheel))
		return 0;
	if (done == cycles) {
		/* The server goes on until it is told to stop: few cycles, not thousands. */
		usleep(1000);
		return 0;
	}
	if (jack_transport_query(client, &at) != JackTransportRolling) {
		jack_transport_start(client);
		return 0;
	}
	if (done == 0) {
		cpu_seconds = -cpu_clock();
		seconds = -clock_seconds(CLOCK_MONOTONIC);
	}
	digest = (digest ^ at.frame) * 0x100000001b3;
	for (jack_nframes_t i = 0; i < frames; i++)
		digest = (digest ^ from[i]) * 0x100000001b3;
	if (++done == cycles) {
		seconds += clock_seconds(CLOCK_MONOTONIC);
		cpu_seconds += cpu_clock();
		sem_post(&recorded);
	}
	return 0;
}

static void silent(const char *message)
{
	(void)message;
}

/* Waits until there is a server. */
static void open_client(const char *name, JackProcessCallback process, bool has_in, bool has_out)
{
	jack_set_info_function(silent);
	jack_set_error_function(silent);
	for (int tries = 0; !client; tries++) {
		client = jack_client_open(name, JackNoStartServer | JackUseExactName, NULL);
		if (!client && (tries == 6000 || waitpid(-1, NULL, WNOHANG) > 0))
			fail("a JACK server within a minute");
		if (!client)
			usleep(10000);
	}
	if (has_in)
		in = jack_port_register(client, "in", JACK_DEFAULT_AUDIO_TYPE, JackPortIsInput, 0);
	if (has_out)
		out = jack_port_register(client, "out", JACK_DEFAULT_AUDIO_TYPE, JackPortIsOutput,
					 0);
	if ((has_in && !in) || (has_out && !out) ||
	    jack_set_process_callback(client, process, NULL) ||
	    jack_set_freewheel_callback(client, on_freewheel, NULL) || jack_activate(client))
		fail("an active client");
}

/* A client other than the last: says that it is there, and stays until its input is closed. */
static int be_client(const char *number)
{
	const bool first = strcmp(number, "0") == 0;
	char name[32], byte = 0;

	snprintf(name, sizeof(name), "client-%s", number);
	open_client(name, first ? make_noise : filter, !first, true);
	if (write(STDOUT_FILENO, &byte, 1) != 1 || read(STDIN_FILENO, &byte, 1) != 0)
		fail("a parent process");
	jack_client_close(client);
	return 0;
}

/* With @from and @to as its standard streams, and jackd.log for errors. */
static pid_t start(char *const *arguments, int from, int to)
{
	const int append = O_WRONLY | O_CREAT | O_APPEND;
	posix_spawn_file_actions_t files;
	pid_t pid;

	posix_spawn_file_actions_init(&files);
	posix_spawn_file_actions_adddup2(&files, from, STDIN_FILENO);
	posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "jackd.log", append, 0644);
	posix_spawn_file_actions_adddup2(&files, to >= 0 ? to : STDERR_FILENO, STDOUT_FILENO);
	errno = posix_spawn(&pid, arguments[0], &files, NULL, arguments, environ);
	if (errno)
		fail(arguments[0]);
	posix_spawn_file_actions_destroy(&files);
	return pid;
}

static void connect_to(const char *name, int from)
{
	char source[32], target[32];

	snprintf(source, sizeof(source), "client-%d:out", from);
	snprintf(target, sizeof(target), "%s:in", name);
	if (jack_connect(client, source, target))
		fail("two clients to be connected");
}

int main(int argc, char **argv)
{
	int stay[2], ready[2], clients, status, failed = 0;
	char server[32], name[32], number[16], byte;
	char *jackd[] = { "bin/jackd", "-n", server, "-T", "-r",   "-m", "-d",
			  "dummy",     "-p", "64",   "-r", "6400", NULL };
	char *child[] = { argv[0], "--client", number, NULL };

	if (argc == 3 && strcmp(argv[1], "--client") == 0)
		return be_client(argv[2]);
	clients = argc == 3 ? atoi(argv[1]) : 0;
	cycles = argc == 3 ? atoi(argv[2]) : 0;
	if (clients < 2 || clients > MAX_CLIENTS || cycles < 1) {
		fprintf(stderr, "chain: wanted CLIENTS, 2 to %d, and CYCLES, 1 or more\n",
			MAX_CLIENTS);
		return EXIT_FAILURE;
	}

	snprintf(server, sizeof(server), "chain-%d", getpid());
	setenv("JACK_DEFAULT_SERVER", server, true);
	unlink("jackd.log");
	if (pipe2(stay, O_CLOEXEC) || sem_init(&recorded, 0, 0))
		fail("pipes");
	parts[0] = getpid();
	parts[1] = start(jackd, STDIN_FILENO, -1);
	open_client("last", record, true, false);
	for (int i = 0; i < clients - 1; i++) {
		snprintf(number, sizeof(number), "%d", i);
		if (pipe2(ready, O_CLOEXEC))
			fail("a pipe");
		parts[2 + i] = start(child, stay[0], ready[1]);
		close(ready[1]);
		if (read(ready[0], &byte, 1) != 1)
			fail("a client");
		close(ready[0]);
	}
	for (int i = 1; i < clients - 1; i++) {
		snprintf(name, sizeof(name), "client-%d", i);
		connect_to(name, i - 1);
	}
	connect_to("last", clients - 2);

	if (jack_set_freewheel(client, 1))
		fail("freewheel mode");
	while (sem_wait(&recorded))
		;
	jack_set_freewheel(client, 0);
	printf("%u cycles of %d clients, recording %016llx\n", done, clients,
	       (unsigned long long)digest);
	printf("measured %.9f s, CPU %.9f s\n", seconds, cpu_seconds);

	/* The server ends with its last client. */
	close(stay[1]);
	jack_client_close(client);
	while (wait(&status) > 0)
		failed |= status;
	if (failed)
		fail("clients and a server that end with status 0");
	return 0;
}
