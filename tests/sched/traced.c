// SPDX-License-Identifier: MIT
/* traced SLOTS [NAME]: tasks that do a bit of everything, for a trace. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <switchto/sched.h>
#include <switchto/switchto.h>

enum { ROUNDS = 400 };

static struct switchto_chan *bread;
static struct switchto_mutex oven;
static struct switchto_sem orders;
static const char *name;

static void sure(bool good)
{
	if (!good)
		abort();
}

static void work(int us)
{
	struct timespec now, end;

	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_nsec += us * 1000L;
	do
		clock_gettime(CLOCK_MONOTONIC, &now);
	while (now.tv_sec == end.tv_sec && now.tv_nsec < end.tv_nsec);
}

static void bake(void *arg)
{
	if (name)
		switchto_task_name(name);
	for (long i = 0; i < ROUNDS; i++) {
		switchto_sem_wait(&orders, NULL);
		switchto_mutex_lock(&oven);
		work(5);
		switchto_yield();
		switchto_mutex_unlock(&oven);
		sure(!switchto_chan_send(bread, &i, NULL));
	}
}

static void buy(void *arg)
{
	char byte;
	long item;
	const int fd = switchto_openat(AT_FDCWD, "/dev/zero", O_RDONLY | O_CLOEXEC, 0);

	switchto_task_name("buyer");
	for (int i = 0; i < ROUNDS; i++) {
		switchto_sem_post(&orders);
		sure(!switchto_chan_recv(bread, &item, NULL));
		if (i % 100 == 0)
			sure(switchto_pread(fd, &byte, 1, 0, NULL) == 1);
	}
	switchto_close(fd);
}

static void nap(void *arg)
{
	struct timespec at;

	for (int i = 0; i < 10; i++) {
		clock_gettime(CLOCK_MONOTONIC, &at);
		at.tv_nsec += 300000;
		if (at.tv_nsec >= 1000000000) {
			at.tv_nsec -= 1000000000;
			at.tv_sec++;
		}
		switchto_sleep_until(&at);
	}
}

static void play(void *arg)
{
	struct switchto_task *task[6];

	for (int i = 0; i < 6; i++)
		sure(!switchto_spawn_on(NULL, SWITCHTO_ANY, i < 3 ? bake : buy, NULL, NULL,
					&task[i]));
	switchto_spawn(NULL, nap, NULL, NULL, NULL);
	for (int i = 0; i < 6; i++)
		switchto_join(task[i]);
}

int main(int argc, char **argv)
{
	struct switchto_sched_options options = { .size = sizeof(options), .name = "bakery" };
	struct switchto_sched *sched;

	options.slots = argc > 1 ? (unsigned int)strtoul(argv[1], NULL, 10) : 1;
	name = argc > 2 ? argv[2] : NULL;
	/* The kernel has no FUTEX_SWAP. */
	if (!switchto_backend() && errno == ENOSYS)
		return 77;
	if (switchto_sched_create(&sched, &options) ||
	    switchto_chan_create(&bread, sizeof(long), 2) ||
	    switchto_spawn(sched, play, NULL, NULL, NULL) || switchto_sched_run(sched))
		return 1;
	switchto_chan_destroy(bread);
	return switchto_sched_destroy(sched) ? 1 : 0;
}
