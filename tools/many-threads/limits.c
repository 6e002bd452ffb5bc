// SPDX-License-Identifier: MIT
/*
 * Which limit was it? Whatever a thread lacks, pthread_create() says EAGAIN,
 * "Resource temporarily unavailable". That can mean seven limits, each with a
 * counter of its own somewhere in /proc or in a control group. A limit was hit
 * if its counter has reached it.
 */
#include "many-threads.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

char *read_text(const char *path, char *text, size_t size)
{
	size_t length = 0;
	ssize_t n = 0;
	int fd;

	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return NULL;
	while (length < size - 1) {
		n = read(fd, text + length, size - 1 - length);
		if (n <= 0)
			break;
		length += (size_t)n;
	}
	close(fd);
	text[length] = '\0';
	return n < 0 ? NULL : text;
}

long long field(const char *text, const char *key)
{
	size_t length = strlen(key);

	for (; text; text = strchr(text, '\n')) {
		if (*text == '\n')
			text++;
		if (!strncmp(text, key, length) && text[length] == ':')
			return strtoll(text + length + 1, NULL, 10);
	}
	return -1;
}

/* -1 if it can't be read, or is no number: "max". */
static long long number_in(const char *path)
{
	char text[64];

	if (!read_text(path, text, sizeof(text)) || !isdigit((unsigned char)*text))
		return -1;
	return strtoll(text, NULL, 10);
}

/* What is said: the limits that were hit, and the others. */
struct line {
	size_t length;
	char text[2048];
};

static struct line hit, others;

static void add(struct line *line, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void add(struct line *line, const char *format, ...)
{
	size_t room = sizeof(line->text) - line->length;
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(line->text + line->length, room, format, args);
	va_end(args);
	line->length += n < 0 ? 0 : (size_t)n < room ? (size_t)n : room - 1;
}

/*
 * It is hit if @used + @more exceeds @most. @used -1: not known. @most -1: no
 * limit.
 */
static void limit(const char *name, long long most, long long used, long long more)
{
	struct line *line = most >= 0 && used >= 0 && used + more > most ? &hit : &others;
	const char *comma = line->length ? ", " : "";

	if (most < 0)
		add(line, "%s%s: none", comma, name);
	else if (used < 0)
		add(line, "%s%s = %lld", comma, name, most);
	else
		add(line, "%s%s = %lld (%lld used)", comma, name, most, used);
}

/* Every thread there is: "0.00 0.01 0.05 RUNNABLE/ALL LAST". */
static long long all_threads(void)
{
	char text[128], *slash;

	if (!read_text("/proc/loadavg", text, sizeof(text)))
		return -1;
	slash = strchr(text, '/');
	return slash ? strtoll(slash + 1, NULL, 10) : -1;
}

static long long threads_of_user(uid_t uid)
{
	char path[300], text[4096];
	long long n = 0;
	struct dirent *entry;
	DIR *proc;

	proc = opendir("/proc");
	if (!proc)
		return -1;
	while ((entry = readdir(proc))) {
		if (!isdigit((unsigned char)*entry->d_name))
			continue;
		snprintf(path, sizeof(path), "/proc/%s/status", entry->d_name);
		if (read_text(path, text, sizeof(text)) && field(text, "Uid") == (long long)uid)
			n += field(text, "Threads");
	}
	closedir(proc);
	return n;
}

/* Threads of root and of users who may exceed limits are not counted. */
static bool exempt_from_nproc(const char *status)
{
	const unsigned long long sys_admin = 1ULL << 21, sys_resource = 1ULL << 24;
	const char *effective = strstr(status, "\nCapEff:");

	if (getuid() == 0)
		return true;
	return effective &&
	       strtoull(effective + sizeof("\nCapEff:"), NULL, 16) & (sys_admin | sys_resource);
}

static void limit_nproc(const char *status)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_NPROC, &r))
		return;
	if (r.rlim_cur == RLIM_INFINITY)
		limit("RLIMIT_NPROC", -1, -1, 0);
	else if (exempt_from_nproc(status))
		limit("RLIMIT_NPROC (not for this user)", (long long)r.rlim_cur, -1, 0);
	else
		limit("RLIMIT_NPROC (ulimit -u)", (long long)r.rlim_cur, threads_of_user(getuid()),
		      1);
}

static void limit_bytes(const char *name, int which, long long used_kib, size_t bytes)
{
	struct rlimit r;

	if (!getrlimit((unsigned int)which, &r) && r.rlim_cur != RLIM_INFINITY)
		limit(name, (long long)r.rlim_cur, used_kib * 1024, (long long)bytes);
}

/* The folder where control groups of @type are mounted; false: nowhere. */
static bool cgroup_mount(const char *type, const char *option, char *folder, size_t size)
{
	static char text[65536];
	char *line, *next, *column[4];

	if (!read_text("/proc/self/mounts", text, sizeof(text)))
		return false;
	for (line = text; *line; line = next) {
		next = line + strcspn(line, "\n");
		if (*next)
			*next++ = '\0';
		for (int i = 0; i < 4; i++) {
			column[i] = line;
			line += strcspn(line, " ");
			if (*line)
				*line++ = '\0';
		}
		if (!strcmp(column[2], type) && (!option || strstr(column[3], option)))
			return snprintf(folder, size, "%s", column[1]) < (int)size;
	}
	return false;
}

/* pids.max of the group and of each above it: any may be the limit hit. */
static void limit_cgroup(const char *line, const char *type, const char *option)
{
	char folder[1024], path[4096], file[4200], name[4300], *slash;
	size_t root;

	line = strchr(line, ':');
	line = line ? strchr(line + 1, ':') : NULL;
	if (!line || !cgroup_mount(type, option, folder, sizeof(folder)))
		return;
	root = strlen(folder);
	snprintf(path, sizeof(path), "%s%.*s", folder, (int)strcspn(line + 1, "\n"), line + 1);

	while (strlen(path) > root) {
		long long max, used;

		snprintf(file, sizeof(file), "%s/pids.max", path);
		max = number_in(file);
		snprintf(name, sizeof(name), "pids.max (%s)", file);
		snprintf(file, sizeof(file), "%s/pids.current", path);
		used = number_in(file);
		if (max >= 0)
			limit(name, max, used, 1);
		slash = strrchr(path, '/');
		if (!slash)
			break;
		*slash = '\0';
	}
}

static void limit_cgroups(void)
{
	char text[4096], *line;

	if (!read_text("/proc/self/cgroup", text, sizeof(text)))
		return;
	line = strstr(text, "0::/");
	if (line && (line == text || line[-1] == '\n'))
		limit_cgroup(line, "cgroup2", NULL);
	line = strstr(text, ":pids:");
	if (line)
		limit_cgroup(line - 1, "cgroup", "pids");
}

/* In KiB. Under overcommit mode 2 even memory that is never touched is counted. */
static void limit_memory(size_t bytes)
{
	static char text[8192];
	long long available, total;

	if (!read_text("/proc/meminfo", text, sizeof(text)))
		return;
	available = field(text, "MemAvailable");
	total = field(text, "MemTotal");
	limit("memory, KiB", total, total - available, total / 100);
	if (number_in("/proc/sys/vm/overcommit_memory") == 2)
		limit("CommitLimit, KiB (vm.overcommit_memory = 2)", field(text, "CommitLimit"),
		      field(text, "Committed_AS"), (long long)(bytes / 1024));
}

void say_limits(long wanted, long made, const char *what, int error, size_t bytes)
{
	/*
	 * The TIDs below 300 are given once, after boot (RESERVED_PIDS), and a
	 * TID is also taken while it is only the name of a process group.
	 */
	enum { PIDS_ASIDE = 512 };
	static char status[8192];
	long long all = all_threads();

	hit.length = others.length = 0;
	hit.text[0] = others.text[0] = '\0';

	if (!read_text("/proc/self/status", status, sizeof(status)))
		status[0] = '\0';
	limit("kernel.threads-max", number_in("/proc/sys/kernel/threads-max"), all, 1);
	limit("kernel.pid_max", number_in("/proc/sys/kernel/pid_max"), all, PIDS_ASIDE);
	limit_cgroups();
	limit_nproc(status);
	limit_memory(bytes);
	limit_bytes("RLIMIT_AS, bytes (ulimit -v)", RLIMIT_AS, field(status, "VmSize"), bytes);
	limit_bytes("RLIMIT_DATA, bytes (ulimit -d)", RLIMIT_DATA, field(status, "VmData"), bytes);

	fflush(stdout);
	if (hit.length)
		fprintf(stderr,
			"many-threads: wanted %ld threads, made %ld: %s: %s; at its limit, so raise it: %s; not: %s; those that were made are resumed and joined\n",
			wanted, made, what, strerror(error), hit.text, others.text);
	else
		fprintf(stderr,
			"many-threads: wanted %ld threads, made %ld: %s: %s; no limit was found to be hit, raise the likeliest: %s; those that were made are resumed and joined\n",
			wanted, made, what, strerror(error), others.text);
}
