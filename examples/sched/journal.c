// SPDX-License-Identifier: MIT
/*
 * Requests whose lines are in a file, and on disk, before they are answered.
 *
 * usage: journal [each] [FILE]
 *
 * With "each", a request writes its line and waits for the disk with a lock held, so all others wait
 * behind it: a convoy. Without, one task writes the lines that have come meanwhile, all at once.
 * docs/debugging.md finds the difference with a trace.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include <switchto/sched.h>

enum { CLIENTS = 16, REQUESTS = 20 };

struct line {
	char text[32];
	int error; /* of the write */
	struct switchto_sem written;
};

static int file;
static struct switchto_mutex lock;
static struct switchto_chan *lines; /* of struct line * */
static struct switchto_group clients;

/* Two clients at once would mix their lines, so it wants the lock, or one task. */
static int write_lines(struct line *const *all, int count)
{
	struct iovec parts[CLIENTS];
	ssize_t size = 0;

	for (int i = 0; i < count; i++) {
		parts[i] = (struct iovec){ all[i]->text, strlen(all[i]->text) };
		size += (ssize_t)parts[i].iov_len;
	}
	if (switchto_writev(file, parts, count, NULL) != size || switchto_fsync(file))
		return errno ? errno : EIO;
	return 0;
}

static void write_each(struct line *line)
{
	switchto_mutex_lock(&lock);
	line->error = write_lines(&line, 1);
	switchto_mutex_unlock(&lock);
}

static void write_together(struct line *line)
{
	switchto_chan_send(lines, &line, NULL);
	switchto_sem_wait(&line->written, NULL);
}

static void journal(void *unused)
{
	static const struct timespec past; /* only what is there */
	struct line *all[CLIENTS];

	switchto_task_name("journal");
	(void)unused;
	while (switchto_chan_recv(lines, &all[0], NULL) == 0) {
		int count = 1, error;

		while (count < CLIENTS && switchto_chan_recv(lines, &all[count], &past) == 0)
			count++;
		error = write_lines(all, count);
		while (count--) {
			all[count]->error = error;
			switchto_sem_post(&all[count]->written);
		}
	}
}

static void client(void *write_line)
{
	void (*const *write_one)(struct line *) = write_line;

	switchto_task_name("client");
	for (int i = 0; i < REQUESTS; i++) {
		struct line line = { 0 };

		snprintf(line.text, sizeof(line.text), "request %d\n", i);
		(*write_one)(&line);
		if (line.error)
			fprintf(stderr, "journal: %s\n", strerror(line.error));
	}
	switchto_group_done(&clients);
}

static void end(void *unused)
{
	switchto_task_name("end");
	(void)unused;
	switchto_group_wait(&clients, NULL);
	switchto_chan_close(lines);
}

int main(int argc, char **argv)
{
	const int each = argc > 1 && !strcmp(argv[1], "each");
	void (*write_line)(struct line *) = each ? write_each : write_together;
	char name[] = "/tmp/journal-XXXXXX";
	struct switchto_sched *sched;
	off_t size;

	if (switchto_sched_create(&sched, NULL) ||
	    switchto_chan_create(&lines, sizeof(void *), CLIENTS)) {
		const int status = errno == ENOSYS ? 77 : 1; /* 77: not in this kernel */

		perror("switchto_sched_create");
		return status;
	}
	if (argc > 1 + each) {
		file = open(argv[1 + each], O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0666);
	} else {
		file = mkstemp(name);
		unlink(name);
	}
	if (file < 0) {
		perror("journal: open");
		return 1;
	}
	switchto_group_add(&clients, CLIENTS);
	for (int i = 0; i < CLIENTS; i++)
		switchto_spawn(sched, client, &write_line, NULL, NULL);
	switchto_spawn(sched, journal, NULL, NULL, NULL);
	switchto_spawn(sched, end, NULL, NULL, NULL);
	if (switchto_sched_run(sched) || switchto_sched_destroy(sched)) {
		perror("switchto_sched_run");
		return 1;
	}
	switchto_chan_destroy(lines);
	size = lseek(file, 0, SEEK_END);
	printf("%lld bytes\n", (long long)size);
	return size == CLIENTS * (10 * 10 + 10 * 11) ? 0 : 1;
}
