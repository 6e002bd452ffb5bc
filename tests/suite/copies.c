// SPDX-License-Identifier: MIT
/*
 * Two copies of the library in one process: this program is linked with the static
 * one, the plugins that it opens with the shared one. The copy that is called first
 * is in use, every call of the other one fails.
 *
 * Each case is a process of its own, in which neither has been called.
 *
 * Arguments: the paths of two plugins.
 */
#include "copies.h"
#include "support.h"

#include <switchto/switchto.h>

#include <dlfcn.h>

static const char *paths[2];

static const struct calls program_calls = {
	switchto_self,	       switchto_wait,	 switchto_wait_until,
	switchto_resume,       switchto_switch,	 switchto_switch_timed,
	switchto_switch_until, switchto_backend, switchto_version,
};

static const struct timespec no_time;

static const struct calls *open_plugin(unsigned int which)
{
	void *handle = dlopen(paths[which], RTLD_NOW | RTLD_LOCAL), *symbol;

	symbol = handle ? dlsym(handle, "plugin_calls") : NULL;
	if (!symbol)
		give_up("dlopen: wanted %s and its calls, got %s", paths[which], dlerror());
	return symbol;
}

/* --- what is said on standard error ------------------------------------------------- */

static FILE *said;
static int stderr_was;

static void listen(void)
{
	said = tmpfile();
	if (!said)
		give_up("tmpfile: wanted one, got %s", strerror(errno));
	stderr_was = dup(STDERR_FILENO);
	dup2(fileno(said), STDERR_FILENO);
}

/* How often it was said that there are two copies; and nothing else was. */
static void was_said(struct verdict *v, int times)
{
	char line[500];
	int lines = 0;

	dup2(stderr_was, STDERR_FILENO);
	close(stderr_was);
	rewind(said);
	while (fgets(line, sizeof(line), said)) {
		CHECK(v, strstr(line, "libswitchto: wanted to be the only copy") == line);
		lines++;
	}
	fclose(said);
	CHECK_EQ(v, lines, times);
}

/* --- what a copy does --------------------------------------------------------------- */

struct user {
	struct worker w;
	const struct calls *calls;
	pid_t target;
};

static void waits_in_copy(struct worker *w)
{
	struct user *u = w->arg;

	CHECK_EQ(&w->v, u->calls->wait(NULL), w->starter);
	CHECK_EQ(&w->v, u->calls->resume(w->starter), 0);
}

static void copy_works(struct verdict *v, const struct calls *c)
{
	struct user u = { .calls = c };

	CHECK(v, c->backend() != NULL);
	CHECK_EQ(v, c->self(), gettid());
	CHECK_EQ(v, c->resume(gettid()), 0);
	CHECK_EQ(v, c->wait(&no_time), gettid());
	CHECK_ERR(v, c->wait_until(&no_time), ETIMEDOUT);
	worker_start_parked(&u.w, waits_in_copy, &u);
	CHECK_EQ(v, c->switch_(u.w.tid), u.w.tid);
	workers_join(&u.w, 1, v);
}

static void refuses(struct verdict *v, const struct calls *c, pid_t target)
{
	CHECK_ERR(v, c->resume(target), ELIBMAX);
	CHECK_ERR(v, c->self(), ELIBMAX);
	CHECK_ERR(v, c->wait(NULL), ELIBMAX);
	CHECK_ERR(v, c->wait(&no_time), ELIBMAX);
	CHECK_ERR(v, c->wait_until(&no_time), ELIBMAX);
	CHECK_ERR(v, c->switch_(target), ELIBMAX);
	CHECK_ERR(v, c->switch_timed(target, &no_time), ELIBMAX);
	CHECK_ERR(v, c->switch_until(target, &no_time), ELIBMAX);
	errno = 0;
	CHECK(v, c->backend() == NULL);
	CHECK_EQ(v, errno, ELIBMAX);
	CHECK(v, strcmp(c->version(), switchto_version()) == 0);
}

static void refuses_in_thread(struct worker *w)
{
	struct user *u = w->arg;

	refuses(&w->v, u->calls, w->tid);
	refuses(&w->v, u->calls, u->target);
}

/* For all threads, whether the other copy knows them or not. */
static void copy_refuses(struct verdict *v, const struct calls *c)
{
	struct user u = { .calls = c, .target = gettid() };

	refuses(v, c, gettid());
	worker_run(&u.w, refuses_in_thread, &u, v);
}

/* --- who is first ------------------------------------------------------------------- */

enum first { BY_SELF, BY_BACKEND, BY_RESUME, FIRSTS };

static void calls_first(struct verdict *v, const struct calls *c, enum first first)
{
	switch (first) {
	case BY_SELF:
		CHECK_EQ(v, c->self(), gettid());
		break;
	case BY_BACKEND:
		CHECK(v, c->backend() != NULL);
		break;
	case BY_RESUME:
		/* Alone: no other call has told the copies of each other by then. */
		CHECK_EQ(v, c->resume(gettid()), 0);
		break;
	default:
		break;
	}
}

struct order {
	enum first first;
	bool opened_before;
};

CHILD(program_first)
{
	const struct order *o = arg;
	const struct calls *plugin = NULL;

	listen();
	if (o->opened_before)
		plugin = open_plugin(0);
	calls_first(v, &program_calls, o->first);
	if (!plugin)
		plugin = open_plugin(0);
	copy_refuses(v, plugin);
	copy_works(v, &program_calls);
	copy_refuses(v, plugin);
	was_said(v, 1);
}

CHILD(plugin_first)
{
	const struct order *o = arg;
	const struct calls *plugin;

	listen();
	plugin = open_plugin(0);
	calls_first(v, plugin, o->first);
	copy_refuses(v, &program_calls);
	copy_works(v, plugin);
	copy_refuses(v, &program_calls);
	was_said(v, 1);
}

TEST(the_other_refuses)
{
	for (enum first first = BY_SELF; first < FIRSTS; first++) {
		struct order order = { first, false };

		assert_int_equal(run_child(plugin_first, &order), 0);
		assert_int_equal(run_child(program_first, &order), 0);
		order.opened_before = true;
		assert_int_equal(run_child(program_first, &order), 0);
	}
}

CHILD(calls_one_copy)
{
	const struct calls *plugin = open_plugin(0);

	listen();
	copy_works(v, *(bool *)arg ? plugin : &program_calls);
	was_said(v, 0);
}

TEST(only_one_is_called)
{
	for (int i = 0; i < 2; i++) {
		bool of_plugin = i;

		assert_int_equal(run_child(calls_one_copy, &of_plugin), 0);
	}
}

/* In the child of a fork the copy in use is the same. */
CHILD(refuses_still)
{
	listen();
	copy_works(v, &program_calls);
	copy_refuses(v, arg);
	/* The parent has. */
	was_said(v, 0);
}

TEST_IN_CHILD(fork_with_two_copies)
{
	const struct calls *plugin = open_plugin(0);

	listen();
	calls_first(v, &program_calls, BY_SELF);
	copy_refuses(v, plugin);
	was_said(v, 1);
	CHECK_EQ(v, run_child(refuses_still, (void *)(uintptr_t)plugin), 0);
}

/* Both plugins are linked with the same shared library: that is one copy. */
TEST_IN_CHILD(two_plugins_one_copy)
{
	const struct calls *first = open_plugin(0), *second = open_plugin(1);
	struct user u = { .calls = second };

	listen();
	CHECK(v, first != second);
	copy_works(v, first);
	copy_works(v, second);
	worker_start_parked(&u.w, waits_in_copy, &u);
	CHECK_EQ(v, first->switch_(u.w.tid), u.w.tid);
	workers_join(&u.w, 1, v);
	was_said(v, 0);
}

/* --- both there from the start, and unloaded at the end ----------------------------- */

#if !defined(UNDER_TSAN) && !defined(UNDER_ASAN) /* they want to be first */
static int loaded_at_start(const char *path)
{
	const struct calls *plugin;
	struct verdict v = { 0 };

	paths[0] = path;
	listen();
	plugin = open_plugin(0);
	calls_first(&v, &program_calls, BY_SELF);
	copy_refuses(&v, plugin);
	was_said(&v, 1);
	return verdict_status(&v);
}

static int execs_preloaded(void *arg)
{
	setenv("LD_PRELOAD", paths[0], 1);
	execl("/proc/self/exe", "copies", "preloaded", paths[0], (char *)NULL);
	return EXIT_FAILURE;
}

TEST(two_from_the_start)
{
	assert_int_equal(run_child(execs_preloaded, NULL), 0);
}
#endif

int main(int argc, char **argv)
{
	if (argc != 3) {
		fprintf(stderr, "copies: wanted the paths of two plugins, got %d arguments\n",
			argc - 1);
		return EXIT_FAILURE;
	}
#if !defined(UNDER_TSAN) && !defined(UNDER_ASAN)
	if (strcmp(argv[1], "preloaded") == 0)
		return loaded_at_start(argv[2]);
#endif
	paths[0] = argv[1];
	paths[1] = argv[2];
	return run_watched_group(NULL);
}
