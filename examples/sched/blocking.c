// SPDX-License-Identifier: MIT
/*
 * Libraries that know nothing of tasks, and block: getaddrinfo(), and SQLite, which waits in
 * sleeps of its own until a locked database is free. On the same single slot another task
 * counts milliseconds: it must not stop.
 */
#include <errno.h>
#include <netdb.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <switchto/sched.h>

#include "deadline.h"

enum { LOCKED_MS = 300 };

static char path[] = "/tmp/switchto-blocking-XXXXXX";
/* Atomic: a task whose slot was taken runs beside the others until it next calls the scheduler. */
static atomic_int ticks;
static int ticks_while_locked = -1;
static atomic_bool inserts, over;

static void tick(void *unused)
{
	switchto_task_name("tick");
	(void)unused;
	for (; !atomic_load(&over); atomic_fetch_add(&ticks, 1)) {
		struct timespec next = ms_from_now(1);

		switchto_sleep_until(&next);
	}
}

static void run_sql(sqlite3 *base, const char *sql)
{
	if (sqlite3_exec(base, sql, NULL, NULL, NULL) == SQLITE_OK)
		return;
	fprintf(stderr, "%s: %s\n", sql, sqlite3_errmsg(base));
	exit(1);
}

static sqlite3 *open_base(void)
{
	sqlite3 *base;

	if (sqlite3_open(path, &base) != SQLITE_OK) {
		fprintf(stderr, "%s: %s\n", path, sqlite3_errmsg(base));
		exit(1);
	}
	sqlite3_busy_timeout(base, 60000);
	return base;
}

static void insert_while_locked(void *unused)
{
	sqlite3 *base = open_base();
	const int before = atomic_load(&ticks);

	switchto_task_name("insert");
	(void)unused;
	atomic_store(&inserts, true);
	run_sql(base, "INSERT INTO t VALUES (1)");
	ticks_while_locked = atomic_load(&ticks) - before;
	sqlite3_close(base);
}

static void hold_lock(void *unused)
{
	sqlite3 *base = open_base();
	struct switchto_task *other;
	struct timespec later;

	switchto_task_name("hold lock");
	(void)unused;
	run_sql(base, "CREATE TABLE t (n)");
	run_sql(base, "BEGIN EXCLUSIVE");
	if (switchto_spawn(NULL, insert_while_locked, NULL, NULL, &other))
		exit(1);
	while (!atomic_load(&inserts))
		switchto_yield();
	later = ms_from_now(LOCKED_MS);
	switchto_sleep_until(&later);
	run_sql(base, "COMMIT");
	switchto_join(other);
	sqlite3_close(base);
}

static void resolve(void *unused)
{
	struct addrinfo *found = NULL;
	int error;

	switchto_task_name("resolve");
	(void)unused;
	/* It may take long: a region tells the monitor at once. Without one it finds out. */
	switchto_block_begin();
	error = getaddrinfo("localhost", NULL, NULL, &found);
	switchto_block_end();
	printf("localhost: %s\n", error ? gai_strerror(error) : "found");
	freeaddrinfo(found);
}

static void main_task(void *unused)
{
	struct switchto_task *tasks[3];
	void (*const functions[])(void *) = { resolve, hold_lock, tick };

	(void)unused;
	for (int i = 3; i-- > 0;)
		if (switchto_spawn(NULL, functions[i], NULL, NULL, &tasks[i]))
			exit(1);
	switchto_join(tasks[0]);
	switchto_join(tasks[1]);
	atomic_store(&over, true);
	switchto_join(tasks[2]);
}

int main(void)
{
	const struct switchto_sched_options options = { .size = sizeof(options), .slots = 1 };
	struct switchto_sched *sched;
	int fd;

	if (switchto_sched_create(&sched, &options)) {
		const int status = errno == ENOSYS ? 77 : 1; /* 77: not in this kernel */

		perror("switchto_sched_create");
		return status;
	}
	fd = mkstemp(path);
	if (fd == -1) {
		perror(path);
		return 1;
	}
	close(fd);
	switchto_spawn(sched, main_task, NULL, NULL, NULL);
	if (switchto_sched_run(sched) || switchto_sched_destroy(sched)) {
		perror("switchto_sched_run");
		return 1;
	}
	unlink(path);
	printf("while SQLite waited for its lock: %d ticks\n", ticks_while_locked);
	return ticks_while_locked > 0 ? 0 : 1;
}
