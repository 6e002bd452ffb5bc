// SPDX-License-Identifier: MIT
/*
 * The library loaded late, and given back while threads that it knows live on:
 * they end after dlclose(). And with next to no address space. This program is
 * not linked to the library; its path is the first argument, that of doors the second.
 */
#include "support.h"

#include <dlfcn.h>

static const char *path, *door_path;

struct library {
	void *handle;
	const char *(*backend)(void);
	pid_t (*self)(void);
	pid_t (*wait)(const struct timespec *timeout);
	int (*resume)(pid_t tid);
	pid_t (*switch_)(pid_t tid);
};

/* ISO C has no conversion from void * to a function. */
static void look_up(void *handle, const char *name, void *function)
{
	void *symbol = dlsym(handle, name);

	if (!symbol)
		give_up("dlsym: wanted %s, got %s", name, dlerror());
	memcpy(function, &symbol, sizeof(symbol));
}

static void *open_file(const char *file)
{
	void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);

	if (!handle)
		give_up("dlopen: wanted %s, got %s", file, dlerror());
	return handle;
}

static void open_library(struct library *l)
{
	l->handle = open_file(path);
	look_up(l->handle, "switchto_backend", &l->backend);
	look_up(l->handle, "switchto_self", &l->self);
	look_up(l->handle, "switchto_wait", &l->wait);
	look_up(l->handle, "switchto_resume", &l->resume);
	look_up(l->handle, "switchto_switch", &l->switch_);
}

struct guest {
	struct worker w;
	const struct library *l;
	atomic_bool leave;
};

static void uses_and_stays(struct worker *w)
{
	struct guest *g = w->arg;

	CHECK_EQ(&w->v, g->l->self(), w->tid);
	CHECK_EQ(&w->v, g->l->wait(NULL), w->starter);
	CHECK_EQ(&w->v, g->l->resume(w->starter), 0);
	worker_release(w);
	AWAIT(atomic_load(&g->leave));
}

TEST(closed_before_threads_end)
{
	for (int i = 0; i < 5; i++) {
		struct guest guests[4] = { 0 };
		struct library l;

		open_library(&l);
		CHECK_EQ(v, l.self(), gettid());
		for (int g = 0; g < 4; g++) {
			guests[g].l = &l;
			worker_start(&guests[g].w, uses_and_stays, &guests[g]);
			CHECK_EQ(v, l.switch_(guests[g].w.tid), guests[g].w.tid);
			await_release(&guests[g].w);
		}
		CHECK_EQ(v, dlclose(l.handle), 0);
		for (int g = 0; g < 4; g++) {
			atomic_store(&guests[g].leave, true);
			workers_join(&guests[g].w, 1, v);
		}
	}
}

/* Opened in a thread that then ends; closed in another; used in a third. */
static void opens(struct worker *w)
{
	struct library *l = w->arg;

	open_library(l);
	CHECK_EQ(&w->v, l->resume(w->tid), 0);
	CHECK_EQ(&w->v, l->wait(NULL), w->tid);
}

static void closes(struct worker *w)
{
	struct library *l = w->arg;

	CHECK_EQ(&w->v, dlclose(l->handle), 0);
}

TEST(opened_and_closed_in_threads)
{
	struct library l;

	for (int i = 0; i < 5; i++) {
		struct worker w[2] = { 0 };

		worker_run(&w[0], opens, &l, v);
		CHECK_EQ(v, l.resume(gettid()), 0);
		CHECK_EQ(v, l.wait(NULL), gettid());
		worker_run(&w[1], closes, &l, v);
	}
}

struct switchto_door;

/* Which brings the core along. */
static void opens_doors(struct worker *w)
{
	void *handle = open_file(door_path);
	int (*create)(int file);
	struct switchto_door *(*serve)(int fd, unsigned int flags);
	int (*close_door)(struct switchto_door * door);
	struct switchto_door *door;
	int fd;

	look_up(handle, "switchto_door_create", &create);
	look_up(handle, "switchto_door_serve", &serve);
	look_up(handle, "switchto_door_close", &close_door);
	fd = create(-1);
	door = serve(fd, 0);
	CHECK(&w->v, door != NULL);
	close(fd);
	CHECK_EQ(&w->v, dlclose(handle), 0);
	CHECK_EQ(&w->v, close_door(door), 0);
}

TEST(doors_opened_in_threads)
{
	for (int i = 0; i < 5; i++) {
		struct worker w = { 0 };

		worker_run(&w, opens_doors, NULL, v);
	}
}

#ifdef TEST_ADDRESS_SPACE
static rlim_t address_space(void)
{
	unsigned long pages = 0;
	FILE *statm = fopen("/proc/self/statm", "re");

	if (!statm || fscanf(statm, "%lu", &pages) != 1)
		give_up("/proc/self/statm: wanted the size of this process, got %s",
			strerror(errno));
	fclose(statm);
	return pages * (rlim_t)sysconf(_SC_PAGESIZE);
}

/*
 * A first use with @arg bytes of address space to spare. It works or says
 * ENOMEM, and a call that said so works once there is room.
 */
CHILD(first_use_with)
{
	const rlim_t *spare = arg;
	const struct timespec no_time = { 0, 0 };
	rlim_t whole;
	struct library l;
	const char *backend;
	int error;
	pid_t self;

	open_library(&l);
	whole = set_limit(RLIMIT_AS, address_space() + *spare);

	errno = 0;
	backend = l.backend();
	error = errno;
	CHECK(v, backend || error == ENOMEM);
	errno = 0;
	self = l.self();
	error = errno;
	CHECK(v, self == gettid() || (self == -1 && error == ENOMEM));
	/* A machine with this much to spare has room for one thread's state. */
	if (*spare >= 1 << 20)
		CHECK_EQ(v, self, gettid());
	if (*spare == 0)
		CHECK_EQ(v, self, -1);

	set_limit(RLIMIT_AS, whole);
	CHECK(v, l.backend() != NULL);
	CHECK_EQ(v, l.self(), gettid());
	CHECK_ERR(v, l.wait(&no_time), ETIMEDOUT);
	CHECK_EQ(v, l.resume(gettid()), 0);
	CHECK_EQ(v, l.wait(NULL), gettid());
}

enum first_call { FIRST_RESUME, FIRST_WAIT, FIRST_SWITCH };

struct first_call_with {
	rlim_t spare;
	enum first_call call;
};

/* The same where the first call is another: it is done, or has no effect at all. */
CHILD(first_call_with)
{
	const struct first_call_with *first = arg;
	const struct timespec no_time = { 0, 0 };
	rlim_t whole;
	struct library l;
	int ret, error;

	open_library(&l);
	whole = set_limit(RLIMIT_AS, address_space() + first->spare);
	errno = 0;
	if (first->call == FIRST_RESUME)
		ret = l.resume(gettid());
	else if (first->call == FIRST_WAIT)
		ret = l.wait(&no_time);
	else
		ret = l.switch_(gettid());
	error = errno;
	set_limit(RLIMIT_AS, whole);

	switch (first->call) {
	case FIRST_RESUME:
		CHECK(v, ret == 0 || (ret == -1 && error == ENOMEM));
		if (ret == -1)
			CHECK_EQ(v, l.resume(gettid()), 0);
		CHECK_EQ(v, l.wait(NULL), gettid());
		break;
	case FIRST_WAIT:
		CHECK(v, ret == -1 && (error == ETIMEDOUT || error == ENOMEM));
		break;
	case FIRST_SWITCH:
		CHECK(v, ret == gettid() || (ret == -1 && error == ENOMEM));
		break;
	}
	CHECK_ERR(v, l.wait(&no_time), ETIMEDOUT);
	CHECK_EQ(v, l.switch_(gettid()), gettid());
}

TEST_FIRST(little_address_space)
{
	const rlim_t spare[] = { 0, 4096, 16384, 65536, 262144, 1 << 20, 16 << 20, 256 << 20 };

	for (unsigned int i = 0; i < sizeof(spare) / sizeof(spare[0]); i++) {
		rlim_t bytes = spare[i];

		assert_int_equal(run_child(first_use_with, &bytes), 0);
		for (enum first_call c = FIRST_RESUME; c <= FIRST_SWITCH; c++) {
			struct first_call_with first = { bytes, c };

			assert_int_equal(run_child(first_call_with, &first), 0);
		}
	}
}
#endif

int main(int argc, char **argv)
{
	if (argc != 3) {
		fprintf(stderr,
			"dlopen: wanted the paths of libswitchto.so and libswitchto-door.so, got %d arguments\n",
			argc - 1);
		return EXIT_FAILURE;
	}
	if (wants_absent_swap("dlopen"))
		return SKIPPED;
	path = argv[1];
	door_path = argv[2];
	return run_watched_group(NULL);
}
