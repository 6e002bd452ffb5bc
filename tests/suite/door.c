// SPDX-License-Identifier: MIT
/*
 * Doors: what a call means, its errors, deadlines and order, and who dies when. Built twice:
 * with the library as it is, and with its delay points, where a process can be killed at each
 * step (DeathAt...).
 */
#include "seccomp.h"
#include "support.h"

#include <switchto/door.h>
#include <switchto/switchto.h>

#ifdef SWITCHTO_DELAY_POINTS
#include "delay.h"

/* The process that reaches this point the next time is killed. -1: none. */
static int deadly = -1;

/* What this thread does when it is about to be the server. */
static _Thread_local void (*before_serving)(void);

void switchto_delay_point(enum switchto_delay where)
{
	if (where == SWITCHTO_DELAY_DOOR_SERVE && before_serving) {
		void (*act)(void) = before_serving;

		before_serving = NULL;
		act();
	}
	if ((int)where == deadly) {
		syscall(SYS_kill, getpid(), SIGKILL);
		for (;;)
			pause();
	}
}
#endif

static const struct timespec past; /* a deadline */

/* What a server does with a call, in the first word. */
enum { ECHO, HOLD, EXIT, EXEC, CLOSE, END_THREAD };

#define MOST_CALLS 64

/* In memory that all processes of a test share. */
struct server {
	int fd;
	int die_at; /* a delay point, or -1 */
	atomic_bool ready, release, held;
	atomic_uint served;
	uint64_t order[MOST_CALLS]; /* the second word of each call */
	int places[MOST_CALLS];
};

static int new_door(void)
{
	int fd = switchto_door_create(-1);

	if (fd < 0)
		give_up("switchto_door_create: wanted a door, got %s", strerror(errno));
	return fd;
}

static struct switchto_door *connected(int fd)
{
	struct switchto_door *door = switchto_door_connect(fd, 0);

	if (!door)
		give_up("switchto_door_connect: wanted a handle, got %s", strerror(errno));
	return door;
}

static struct timespec in_ms(long ms)
{
	return to_timespec(now_ns() + ms * 1000000);
}

static void fill(struct switchto_door_message *m, uint64_t what, uint64_t number)
{
	m->word[0] = what;
	m->word[1] = number;
	for (unsigned int i = 2; i < SWITCHTO_DOOR_WORDS; i++)
		m->word[i] = number * i;
}

static void work(struct switchto_door_message *m)
{
	for (unsigned int i = 1; i < SWITCHTO_DOOR_WORDS; i++)
		m->word[i] = m->word[i] * 3 + i;
}

static bool is_answer(const struct switchto_door_message *m, uint64_t number)
{
	for (unsigned int i = 2; i < SWITCHTO_DOOR_WORDS; i++)
		if (m->word[i] != number * i * 3 + i)
			return false;
	return m->word[1] == number * 3 + 1;
}

/* One call of @what; 0 or the error number, -1: a wrong answer. */
static int call(struct switchto_door *door, uint64_t what, uint64_t number,
		const struct timespec *deadline)
{
	struct switchto_door_message m;

	fill(&m, what, number);
	if (switchto_door_call(door, &m, deadline))
		return errno;
	return is_answer(&m, number) ? 0 : -1;
}

/* The whole life of a server. */
static int serve(void *arg)
{
	struct server *s = arg;
	struct switchto_door *door;
	struct switchto_door_message m;
	int place;

#ifdef SWITCHTO_DELAY_POINTS
	deadly = s->die_at;
#endif
	door = switchto_door_serve(s->fd, 0);
	if (!door)
		give_up("switchto_door_serve: wanted a handle, got %s", strerror(errno));
	atomic_store(&s->ready, true);
	for (place = switchto_door_wait(door, &m, NULL); place >= 0;
	     place = switchto_door_reply_wait(door, &m, NULL)) {
		unsigned int n = atomic_load(&s->served);

		if (n < MOST_CALLS) {
			s->order[n] = m.word[1];
			s->places[n] = place;
		}
		atomic_store(&s->served, n + 1);
		work(&m);
		switch (m.word[0]) {
		case HOLD:
			atomic_store(&s->held, true);
			AWAIT(atomic_load(&s->release));
			break;
		case EXIT:
			return switchto_door_reply(door, &m) ? 1 : 0;
		case EXEC:
			exec_self("sleep");
		case CLOSE:
			if (switchto_door_close(door))
				return 1;
			for (;;)
				pause();
		case END_THREAD:
			pthread_exit(NULL);
		}
	}
	give_up("server: wanted a call, got %s", strerror(errno));
}

static struct server *new_server(int fd)
{
	struct server *s = map_shared(-1, sizeof(*s));

	s->fd = fd;
	s->die_at = -1;
	return s;
}

static pid_t server_start(struct server *s)
{
	pid_t child;

	atomic_store(&s->ready, false);
	child = start_child(serve, s);
	AWAIT(atomic_load(&s->ready));
	return child;
}

static void end(pid_t child)
{
	kill(child, SIGKILL);
	child_status(child);
}

static void server_end(struct server *s, pid_t child)
{
	end(child);
	close(s->fd);
	munmap(s, sizeof(*s));
}

/* A thread that makes one call. */
struct caller {
	struct worker w;
	int fd;
	uint64_t what, number;
	atomic_bool connected;
	int error;
};

static void caller_body(struct worker *w)
{
	struct caller *c = w->arg;
	struct switchto_door *door = connected(c->fd);

	atomic_store(&c->connected, true);
	await_release(w);
	c->error = call(door, c->what, c->number, NULL);
	CHECK_EQ(&w->v, switchto_door_close(door), 0);
}

static void caller_start(struct caller *c, int fd, uint64_t what, uint64_t number)
{
	c->fd = fd;
	c->what = what;
	c->number = number;
	worker_start(&c->w, caller_body, c);
	AWAIT(atomic_load(&c->connected));
}

/* Until its call is posted. */
static void caller_call(struct caller *c)
{
	worker_release(&c->w);
	await_parked(c->w.tid);
}

static void caller_join(struct caller *c, struct verdict *v, int error)
{
	workers_join(&c->w, 1, v);
	CHECK_EQ(v, c->error, error);
}

/* --- meaning ---------------------------------------------------------------------- */

TEST(calls_are_answered)
{
	struct server *s = new_server(new_door());
	pid_t child = server_start(s);
	struct switchto_door *door = connected(s->fd);
	const struct timespec hour = in_ms(3600 * 1000);

	for (int i = 0; i < LOOPS(2000); i++)
		CHECK_EQ(v, call(door, ECHO, (uint64_t)i, i & 1 ? &hour : NULL), 0);
	CHECK_EQ(v, atomic_load(&s->served), LOOPS(2000));
	CHECK_EQ(v, switchto_door_close(door), 0);
	server_end(s, child);
}

/* A process with one of several callers. */
struct many {
	int fd, loops;
	uint64_t number;
};

static int calls_often(void *arg)
{
	const struct many *m = arg;
	struct switchto_door *door = connected(m->fd);
	const struct timespec hour = in_ms(3600 * 1000);

	for (int i = 0; i < m->loops; i++)
		if (call(door, ECHO, m->number << 32 | (uint32_t)i, i & 1 ? &hour : NULL))
			return 1;
	return switchto_door_close(door) ? 1 : 0;
}

TEST(each_caller_gets_its_answer)
{
	struct server *s = new_server(new_door());
	pid_t server = server_start(s), child[5];

	for (int i = 0; i < 5; i++) {
		struct many m = { .fd = s->fd, .loops = LOOPS(1000), .number = (uint64_t)i };

		child[i] = start_child(calls_often, &m);
	}
	for (int i = 0; i < 5; i++)
		CHECK_EQ(v, child_status(child[i]), 0);
	CHECK_EQ(v, atomic_load(&s->served), 5 * LOOPS(1000));
	server_end(s, server);
}

/* Both in one process, the server a thread. */
static void server_body(struct worker *w)
{
	serve(w->arg);
}

TEST(threads_of_one_process)
{
	struct server *s = new_server(new_door());
	struct worker w = { 0 };
	struct switchto_door *door;

	worker_start(&w, server_body, s);
	AWAIT(atomic_load(&s->ready));
	door = connected(s->fd);
	for (int i = 0; i < LOOPS(500); i++)
		CHECK_EQ(v, call(door, ECHO, (uint64_t)i, NULL), 0);
	CHECK_EQ(v, call(door, EXIT, 1, NULL), 0);
	workers_join(&w, 1, v);
	CHECK_EQ(v, switchto_door_close(door), 0);
	close(s->fd);
}

TEST(served_in_order)
{
	enum { CALLERS = 6 };
	struct server *s = new_server(new_door());
	pid_t server = server_start(s);
	struct caller first = { 0 }, c[CALLERS] = { 0 };

	caller_start(&first, s->fd, HOLD, 100);
	/* Their places are in another order than their calls. */
	for (int i = 0; i < CALLERS; i++)
		caller_start(&c[i], s->fd, ECHO, (uint64_t)i);
	caller_call(&first);
	AWAIT(atomic_load(&s->held));
	for (int i = 0; i < CALLERS; i++)
		caller_call(&c[i * 5 % CALLERS]);
	atomic_store(&s->release, true);
	caller_join(&first, v, 0);
	for (int i = 0; i < CALLERS; i++)
		caller_join(&c[i], v, 0);
	CHECK_EQ(v, atomic_load(&s->served), CALLERS + 1);
	for (int i = 0; i < CALLERS; i++)
		CHECK_EQ(v, s->order[i + 1], i * 5 % CALLERS);
	server_end(s, server);
}

/* A file with a name instead of a memfd. */
TEST(file_and_shared_memory)
{
	char name[] = "/tmp/switchto-door-XXXXXX";
	int fd = mkstemp(name);
	struct switchto_door *door, *server;
	struct switchto_door_message m;

	if (fd < 0)
		give_up("mkstemp: wanted a file, got %s", strerror(errno));
	unlink(name);
	CHECK_EQ(v, switchto_door_create(fd), fd);
	CHECK_ERR(v, switchto_door_create(fd), EEXIST);
	CHECK(v, !switchto_door_serve(fd, 0) && errno == EPERM);
	CHECK(v, !switchto_door_connect(fd, 0) && errno == EPERM);
	server = switchto_door_serve(fd, SWITCHTO_DOOR_UNSEALED);
	door = switchto_door_connect(fd, SWITCHTO_DOOR_UNSEALED);
	CHECK(v, server && door);
	verdict_assert(v);
	fill(&m, ECHO, 7);
	CHECK_ERR(v, switchto_door_call(door, &m, &past), ETIMEDOUT);
	CHECK_ERR(v, switchto_door_wait(server, &m, &past), ETIMEDOUT);
	CHECK_EQ(v, switchto_door_close(door), 0);
	CHECK_EQ(v, switchto_door_close(server), 0);
	close(fd);
}

/* --- errors ----------------------------------------------------------------------- */

TEST(misuse)
{
	const struct timespec bad[] = { { -1, 0 }, { 0, -1 }, { 0, 1000000000 } };
	int fd = new_door(), null = open("/dev/null", O_RDWR | O_CLOEXEC);
	int open_to_seals = memfd_create("open to seals", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int no_door = memfd_create("no door", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	char name[] = "/tmp/switchto-door-XXXXXX";
	int readable = mkstemp(name), unreadable = open(name, O_WRONLY | O_CLOEXEC);
	off_t size = lseek(fd, 0, SEEK_END);
	struct switchto_door_message m;
	struct switchto_door *server, *door;

	CHECK(v, !switchto_door_serve(-1, 0) && errno == EBADF);
	CHECK(v, !switchto_door_serve(fd, 2) && errno == EINVAL);
	CHECK(v, !switchto_door_connect(fd, 2) && errno == EINVAL);
	CHECK(v, !switchto_door_connect(null, SWITCHTO_DOOR_UNSEALED) && errno == EINVAL);
	CHECK(v, fcntl(fd, F_GETFD) & FD_CLOEXEC);
	CHECK_EQ(v, ftruncate(fd, 0), -1);
	/* One more seal would come later: against writing. */
	CHECK_EQ(v, ftruncate(open_to_seals, size), 0);
	CHECK_EQ(v, fcntl(open_to_seals, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	CHECK(v, !switchto_door_serve(open_to_seals, 0) && errno == EPERM);
	CHECK(v, !switchto_door_connect(open_to_seals, 0) && errno == EPERM);
	close(open_to_seals);
	CHECK_EQ(v, ftruncate(no_door, size), 0);
	CHECK_EQ(v, fcntl(no_door, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL), 0);
	CHECK(v, !switchto_door_connect(no_door, 0) && errno == EINVAL);
	close(no_door);
	CHECK_ERR(v, switchto_door_create(1 << 30), EBADF);
	CHECK_ERR(v, switchto_door_create(unreadable), EACCES);
	close(readable);
	close(unreadable);
	unlink(name);

	door = connected(fd);
	fill(&m, ECHO, 1);
	CHECK_ERR(v, switchto_door_call(door, &m, NULL), ENOTCONN);
	server = switchto_door_serve(fd, 0);
	CHECK(v, server);
	CHECK(v, !switchto_door_serve(fd, 0) && errno == EBUSY);
	CHECK_ERR(v, switchto_door_call(server, &m, NULL), EINVAL);
	CHECK_ERR(v, switchto_door_wait(door, &m, NULL), EINVAL);
	CHECK_ERR(v, switchto_door_reply_wait(door, &m, NULL), EINVAL);
	CHECK_ERR(v, switchto_door_reply(door, &m), EINVAL);
	CHECK_ERR(v, switchto_door_reply(server, &m), EINVAL);
	CHECK_ERR(v, switchto_door_reply_wait(server, &m, NULL), EINVAL);
	for (int i = 0; i < 3; i++) {
		CHECK_ERR(v, switchto_door_call(door, &m, &bad[i]), EINVAL);
		CHECK_ERR(v, switchto_door_wait(server, &m, &bad[i]), EINVAL);
	}
	CHECK_EQ(v, m.word[1], 1);
	CHECK_EQ(v, switchto_door_close(NULL), 0);
	CHECK_EQ(v, switchto_door_close(server), 0);
	CHECK_EQ(v, switchto_door_close(door), 0);
	close(fd);
	close(null);
}

/* In a process of a bare clone(2), as launchers of sandboxes make it, the kernel has no robust list. */
static int no_robust_list(void *arg)
{
	const int *fd = arg;
	struct robust_list_head *head;
	size_t size;

	if (syscall(SYS_set_robust_list, NULL, sizeof(*head)) ||
	    syscall(SYS_get_robust_list, 0, &head, &size) || head)
		return 1;
	if (switchto_door_serve(*fd, 0) || errno != ENOTSUP)
		return 1;
	return switchto_door_connect(*fd, 0) || errno != ENOTSUP;
}

TEST(thread_without_robust_list)
{
	int fd = new_door();

	CHECK_EQ(v, run_child(no_robust_list, &fd), 0);
	close(fd);
}

struct handles {
	struct switchto_door *door, *server;
};

static bool refuses(const struct handles *h)
{
	struct switchto_door_message m = { 0 };

	return switchto_door_call(h->door, &m, &past) == -1 && errno == EPERM &&
	       switchto_door_wait(h->server, &m, &past) == -1 && errno == EPERM &&
	       switchto_door_reply_wait(h->server, &m, &past) == -1 && errno == EPERM &&
	       switchto_door_reply(h->server, &m) == -1 && errno == EPERM &&
	       switchto_door_close(h->door) == -1 && errno == EPERM &&
	       switchto_door_close(h->server) == -1 && errno == EPERM;
}

/* The library knows the TID of a thread once the thread has a handle of its own. */
static bool refuses_still(const struct handles *h)
{
	const bool refused = refuses(h);
	const int fd = new_door();
	struct switchto_door *own = switchto_door_connect(fd, 0);

	close(fd);
	return refused && own && refuses(h) && switchto_door_close(own) == 0;
}

static void refuses_thread(struct worker *w)
{
	CHECK(&w->v, refuses_still(w->arg));
}

static int refuses_child(void *arg)
{
	return refuses_still(arg) ? 0 : 1;
}

TEST(handles_belong_to_a_thread)
{
	int fd = new_door();
	struct handles h = { switchto_door_connect(fd, 0), switchto_door_serve(fd, 0) };
	struct switchto_door_message m = { 0 };
	struct worker w = { 0 };

	worker_run(&w, refuses_thread, &h, v);
	CHECK_EQ(v, run_child(refuses_child, &h), 0);
	/* The child has changed nothing. */
	CHECK_ERR(v, switchto_door_call(h.door, &m, &past), ETIMEDOUT);
	CHECK_EQ(v, switchto_door_close(h.door), 0);
	CHECK_EQ(v, switchto_door_close(h.server), 0);
	close(fd);
}

TEST(places_run_out)
{
	struct switchto_door *door[SWITCHTO_DOOR_CALLERS];
	int fd = new_door();

	for (int i = 0; i < SWITCHTO_DOOR_CALLERS; i++)
		door[i] = connected(fd);
	CHECK(v, !switchto_door_connect(fd, 0) && errno == EAGAIN);
	CHECK_EQ(v, switchto_door_close(door[5]), 0);
	door[5] = connected(fd);
	CHECK(v, !switchto_door_connect(fd, 0) && errno == EAGAIN);
	for (int i = 0; i < SWITCHTO_DOOR_CALLERS; i++)
		CHECK_EQ(v, switchto_door_close(door[i]), 0);
	close(fd);
}

/* --- time ------------------------------------------------------------------------- */

TEST(call_is_withdrawn)
{
	int fd = new_door();
	struct switchto_door *server = switchto_door_serve(fd, 0), *door = connected(fd);
	struct switchto_door_message m;
	struct timespec soon = in_ms(5);

	CHECK_EQ(v, call(door, ECHO, 1, &soon), ETIMEDOUT);
	CHECK(v, now_ns() >= to_ns(&soon));
	CHECK_EQ(v, call(door, ECHO, 2, &past), ETIMEDOUT);
	soon = in_ms(5);
	CHECK_ERR(v, switchto_door_wait(server, &m, &soon), ETIMEDOUT);
	CHECK(v, now_ns() >= to_ns(&soon));
	CHECK_ERR(v, switchto_door_wait(server, &m, &past), ETIMEDOUT);
	CHECK_EQ(v, switchto_door_close(door), 0);
	CHECK_EQ(v, switchto_door_close(server), 0);
	close(fd);
}

TEST(late_answer_is_dropped)
{
	struct server *s = new_server(new_door());
	pid_t server = server_start(s);
	struct switchto_door *door = connected(s->fd);
	struct timespec soon = in_ms(5);

	/* The server has the call by then, or gets it with a later one. */
	while (call(door, HOLD, 1, &soon) == ETIMEDOUT && !atomic_load(&s->held))
		soon = in_ms(5);
	CHECK_EQ(v, call(door, ECHO, 2, &past), ETIMEDOUT);
	soon = in_ms(5);
	CHECK_EQ(v, call(door, ECHO, 3, &soon), ETIMEDOUT);
	atomic_store(&s->release, true);
	CHECK_EQ(v, call(door, ECHO, 4, NULL), 0);
	CHECK_EQ(v, atomic_load(&s->served), 2);
	CHECK_EQ(v, s->order[1], 4);
	CHECK_EQ(v, switchto_door_close(door), 0);
	server_end(s, server);
}

/* Deadlines that pass at any moment of a call. */
TEST(deadline_races_with_the_answer)
{
	struct server *s = new_server(new_door());
	pid_t server = server_start(s);
	struct switchto_door *door = connected(s->fd);
	uint32_t seed = 3;

	for (int i = 0; i < LOOPS(1000); i++) {
		struct timespec soon = to_timespec(now_ns() + random_next(&seed) % 200000);
		int error = call(door, ECHO, (uint64_t)i, &soon);

		CHECK(v, error == 0 || error == ETIMEDOUT);
	}
	CHECK_EQ(v, call(door, ECHO, 1000000, NULL), 0);
	CHECK_EQ(v, switchto_door_close(door), 0);
	server_end(s, server);
}

/* --- two calls at once: the server is in this thread -------------------------------- */

TEST(second_call_waits)
{
	const struct timespec bad = { -1, 0 };
	struct switchto_door_message m;
	struct caller c[2] = { 0 };
	struct switchto_door *server;
	int fd = new_door();

	server = switchto_door_serve(fd, 0);
	CHECK(v, server);
	for (uint64_t i = 0; i < 2; i++)
		caller_start(&c[i], fd, ECHO, i);
	for (int i = 0; i < 2; i++)
		caller_call(&c[i]);
	CHECK_EQ(v, switchto_door_wait(server, &m, NULL), 0);
	CHECK_ERR(v, switchto_door_wait(server, &m, NULL), EBUSY);
	CHECK_ERR(v, switchto_door_reply_wait(server, &m, &bad), EINVAL);
	work(&m);
	CHECK_EQ(v, switchto_door_reply_wait(server, &m, NULL), 1);
	work(&m);
	CHECK_EQ(v, switchto_door_reply(server, &m), 0);
	for (int i = 0; i < 2; i++)
		caller_join(&c[i], v, 0);
	CHECK_EQ(v, switchto_door_close(server), 0);
	close(fd);
}

/* --- system calls that fail --------------------------------------------------------- */

/* In this thread, whichever kind of sleep it is. */
static void forbid_sleeps(void)
{
	filter_swap(ANSWER(EPERM));
	filter_futex_range(FUTEX_WAIT, FUTEX_WAIT, ANSWER(EPERM));
}

CHILD(no_sleep)
{
	struct switchto_door_message m;
	struct switchto_door *server, *door;
	struct caller c = { 0 };
	int fd = new_door();

	server = switchto_door_serve(fd, 0);
	door = connected(fd);
	caller_start(&c, fd, ECHO, 1);
	caller_call(&c);
	CHECK(v, switchto_door_wait(server, &m, NULL) >= 0);
	forbid_sleeps();
	work(&m);
	CHECK_ERR(v, switchto_door_reply_wait(server, &m, NULL), EPERM);
	caller_join(&c, v, 0);
	CHECK_EQ(v, call(door, ECHO, 1, NULL), EPERM);
	/* The call was taken back. */
	CHECK_ERR(v, switchto_door_wait(server, &m, NULL), EPERM);
}

/* The same, when the server still has the last call. */
CHILD(no_sleep_after_a_call)
{
	struct server *s = arg;
	struct switchto_door *door = connected(s->fd);
	struct timespec soon = in_ms(5);

	while (call(door, HOLD, 1, &soon) == ETIMEDOUT && !atomic_load(&s->held))
		soon = in_ms(5);
	forbid_sleeps();
	CHECK_EQ(v, call(door, ECHO, 2, NULL), EPERM);
}

TEST(sleep_is_forbidden)
{
	struct server *s = new_server(new_door());
	pid_t server = server_start(s);

	CHECK_EQ(v, run_child(no_sleep, NULL), 0);
	CHECK_EQ(v, run_child(no_sleep_after_a_call, s), 0);
	server_end(s, server);
}

/* The one of these calls that fails is the one at which @left is 1. */
struct refusal {
	long nr;
	int error, also; /* what is returned to the library; what it may make of that */
	atomic_int left, listener;
};

static void supervise(struct worker *w)
{
	struct refusal *r = w->arg;
	struct seccomp_notif one;

	AWAIT(atomic_load(&r->listener) >= 0);
	for (;;) {
		if (!next_call(atomic_load(&r->listener), &one))
			continue;
		if (atomic_fetch_sub(&r->left, 1) == 1)
			answer_call(atomic_load(&r->listener), &one, -r->error);
		else
			allow_call(atomic_load(&r->listener), &one);
	}
}

/* 0, or the error number of what failed first. */
static int open_and_close(void)
{
	struct switchto_door *server, *door;
	int fd = switchto_door_create(-1), error = 0;

	if (fd < 0)
		return errno;
	server = switchto_door_serve(fd, 0);
	if (!server)
		error = errno;
	door = server ? switchto_door_connect(fd, 0) : NULL;
	if (server && !door)
		error = errno;
	if (switchto_door_close(door) || switchto_door_close(server))
		error = -1;
	close(fd);
	return error;
}

static int each_fails(void *arg)
{
	struct refusal *r = arg;
	struct verdict v = { 0 };
	struct worker w = { 0 };
	bool all = false;

	/* It goes on to the end of the process, whose calls wait for it, too. */
	worker_start(&w, supervise, r);
	atomic_store(&r->listener, supervise_call(r->nr));
	if (atomic_load(&r->listener) < 0)
		return SKIPPED;
	/* The first ones, and some of the others. */
	for (int n = 1; !all; n += n < 8 ? 1 : n) {
		int error;

		atomic_store(&r->left, n);
		error = open_and_close();
		all = atomic_load(&r->left) > 0;
		CHECK(&v, error == 0 || (!all && (error == r->error || error == r->also)));
	}
	atomic_store(&r->left, 0);
	CHECK_EQ(&v, open_and_close(), 0);
	return verdict_status(&v);
}

TEST(each_call_fails_once)
{
	static struct refusal refusals[] = {
		/* EINVAL: the flag is not known; it tries again. */
		{ .nr = SYS_memfd_create, .error = EINVAL },
		{ .nr = SYS_memfd_create, .error = EMFILE },
		{ .nr = SYS_ftruncate, .error = ENOSPC },
		{ .nr = SYS_fcntl, .error = EPERM },
#ifdef SYS_newfstatat
		{ .nr = SYS_newfstatat, .error = ENOMEM },
#endif
#if !defined(UNDER_TSAN) && !defined(UNDER_ASAN) /* they use these themselves */
		/* EAGAIN: the memory is locked. */
		{ .nr = SYS_mmap, .error = EAGAIN, .also = ENOMEM },
		/* EINVAL: the advice is not known. */
		{ .nr = SYS_madvise, .error = EINVAL, .also = ENOSYS },
#endif
	};

	for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
		int status;

		atomic_store(&refusals[i].listener, -1);
		status = run_child(each_fails, &refusals[i]);
		CHECK(v, status == 0 || status == SKIPPED);
	}
}

/* --- signals ------------------------------------------------------------------------ */

static sigjmp_buf out;

static void does_nothing(int signal) {}

static void jumps(int signal)
{
	siglongjmp(out, 1);
}

TEST(handlers_do_not_end_a_call)
{
	struct server *s = new_server(new_door());
	pid_t server = server_start(s);
	struct caller c = { 0 };

	set_handler(SIGUSR1, does_nothing);
	caller_start(&c, s->fd, HOLD, 1);
	caller_call(&c);
	AWAIT(atomic_load(&s->held));
	for (int i = 0; i < 20; i++) {
		pthread_kill(c.w.thread, SIGUSR1);
		await_parked(c.w.tid);
	}
	atomic_store(&s->release, true);
	caller_join(&c, v, 0);
	server_end(s, server);
}

static void jumper_body(struct worker *w)
{
	struct caller *c = w->arg;
	struct switchto_door *door = connected(c->fd);

	atomic_store(&c->connected, true);
	await_release(w);
	if (!sigsetjmp(out, 1))
		CHECK(&w->v, call(door, HOLD, 1, NULL) == 0 && false);
	CHECK_EQ(&w->v, call(door, ECHO, 2, NULL), 0);
	CHECK_EQ(&w->v, switchto_door_close(door), 0);
}

TEST(handler_leaves_a_call)
{
	struct server *s = new_server(new_door());
	pid_t server = server_start(s);
	struct caller c = { .fd = s->fd };

	/* Such a jump out of a system call that the runtime does not know is not for it. */
	if (HANDLERS_RUN_LATE) {
		server_end(s, server);
		return;
	}
	set_handler(SIGUSR1, jumps);
	worker_start(&c.w, jumper_body, &c);
	AWAIT(atomic_load(&c.connected));
	caller_call(&c);
	AWAIT(atomic_load(&s->held));
	pthread_kill(c.w.thread, SIGUSR1);
	atomic_store(&s->release, true);
	workers_join(&c.w, 1, v);
	server_end(s, server);
}

TEST(stopped_and_continued)
{
	struct server *s = new_server(new_door());
	pid_t server = server_start(s);
	struct switchto_door *door = connected(s->fd);
	struct timespec soon;
	int status;

	for (int i = 0; i < 5; i++) {
		kill(server, SIGSTOP);
		waitpid(server, &status, WUNTRACED);
		soon = in_ms(5);
		CHECK_EQ(v, call(door, ECHO, 1, &soon), ETIMEDOUT);
		kill(server, SIGCONT);
		CHECK_EQ(v, call(door, ECHO, 2, NULL), 0);
	}
	CHECK_EQ(v, switchto_door_close(door), 0);
	server_end(s, server);
}

/* --- ends --------------------------------------------------------------------------- */

static void kill_server(pid_t server)
{
	kill(server, SIGKILL);
}

static void no_act(pid_t server) {}

/*
 * One caller is being served, others wait, and the server ends by @what or by @act. All fail,
 * also later calls, until there is another server.
 */
static void server_ends(struct verdict *v, uint64_t what, void (*act)(pid_t server))
{
	struct server *s = new_server(new_door());
	struct switchto_door *door = connected(s->fd);
	struct caller first = { 0 }, c[3] = { 0 };
	pid_t server = server_start(s), other;

	/* Connected before there is a server that may end. */
	caller_start(&first, s->fd, HOLD, 1);
	for (int i = 0; i < 3; i++)
		caller_start(&c[i], s->fd, i == 0 ? what : ECHO, 2);
	caller_call(&first);
	AWAIT(atomic_load(&s->held));
	for (int i = 0; i < 3; i++)
		caller_call(&c[i]);
	act(server);
	atomic_store(&s->release, true);
	caller_join(&first, v, what == HOLD ? EOWNERDEAD : 0);
	for (int i = 0; i < 3; i++)
		caller_join(&c[i], v, EOWNERDEAD);
	for (int i = 0; i < 3; i++)
		CHECK_EQ(v, call(door, ECHO, 3, NULL), EOWNERDEAD);

	other = server_start(s);
	for (int i = 0; i < 10; i++)
		CHECK_EQ(v, call(door, ECHO, 4, NULL), 0);
	CHECK_EQ(v, switchto_door_close(door), 0);
	end(server);
	server_end(s, other);
	verdict_assert(v);
}

TEST(server_is_killed)
{
	server_ends(v, HOLD, kill_server);
}

TEST(server_calls_exec)
{
	server_ends(v, EXEC, no_act);
}

TEST(server_closes)
{
	server_ends(v, CLOSE, no_act);
}

TEST(server_thread_ends)
{
	struct server *s = new_server(new_door());
	struct switchto_door *door = connected(s->fd);

	for (int i = 0; i < 10; i++) {
		struct worker w = { 0 };

		atomic_store(&s->ready, false);
		worker_start(&w, server_body, s);
		AWAIT(atomic_load(&s->ready));
		CHECK_EQ(v, call(door, END_THREAD, 1, NULL), EOWNERDEAD);
		workers_join(&w, 1, v);
	}
	CHECK_EQ(v, switchto_door_close(door), 0);
	close(s->fd);
}

/* An answer is not lost because its server ends right after it. */
TEST(last_answer_arrives)
{
	struct server *s = new_server(new_door());
	struct switchto_door *door = connected(s->fd);

	for (int i = 0; i < LOOPS(100); i++) {
		pid_t server = server_start(s);

		CHECK_EQ(v, call(door, EXIT, (uint64_t)i, NULL), 0);
		CHECK_EQ(v, child_status(server), 0);
	}
	CHECK_EQ(v, switchto_door_close(door), 0);
	close(s->fd);
}

static int calls_once(void *arg)
{
	struct caller *c = arg;
	struct switchto_door *door = connected(c->fd);

	atomic_store(&c->connected, true);
	return call(door, c->what, c->number, NULL);
}

static unsigned int connections(int fd)
{
	struct switchto_door *door[SWITCHTO_DOOR_CALLERS];
	unsigned int n = 0;

	while (n < SWITCHTO_DOOR_CALLERS && (door[n] = switchto_door_connect(fd, 0)))
		n++;
	for (unsigned int i = 0; i < n; i++)
		switchto_door_close(door[i]);
	return n;
}

/* While it is served: the server goes on, and the place can be taken when the answer is given. */
TEST(caller_is_killed)
{
	struct server *s = new_server(new_door());
	struct caller *dies = map_shared(-1, sizeof(*dies));
	pid_t server = server_start(s), child;
	struct switchto_door *door;

	dies->fd = s->fd;
	dies->what = HOLD;
	dies->number = 1;
	child = start_child(calls_once, dies);
	AWAIT(atomic_load(&s->held));
	end(child);
	CHECK_EQ(v, connections(s->fd), SWITCHTO_DOOR_CALLERS - 1);
	door = connected(s->fd);
	atomic_store(&s->release, true);
	for (uint64_t i = 2; i < 10; i++)
		CHECK_EQ(v, call(door, ECHO, i, NULL), 0);
	CHECK(v, s->places[0] != s->places[1]);
	CHECK_EQ(v, switchto_door_close(door), 0);
	CHECK_EQ(v, connections(s->fd), SWITCHTO_DOOR_CALLERS);
	server_end(s, server);
}

/* While it waits, behind another one. Its call is served or not. */
TEST(queued_caller_is_killed)
{
	struct server *s = new_server(new_door());
	struct caller first = { 0 }, *dies = map_shared(-1, sizeof(*dies)), last = { 0 };
	pid_t server = server_start(s), child;

	caller_start(&first, s->fd, HOLD, 1);
	caller_start(&last, s->fd, ECHO, 3);
	caller_call(&first);
	AWAIT(atomic_load(&s->held));
	dies->fd = s->fd;
	dies->what = ECHO;
	dies->number = 2;
	child = start_child(calls_once, dies);
	AWAIT(atomic_load(&dies->connected));
	end(child);
	caller_call(&last);
	atomic_store(&s->release, true);
	caller_join(&first, v, 0);
	caller_join(&last, v, 0);
	CHECK_EQ(v, s->order[atomic_load(&s->served) - 1], 3);
	CHECK_EQ(v, connections(s->fd), SWITCHTO_DOOR_CALLERS);
	server_end(s, server);
}

#ifdef SWITCHTO_DELAY_POINTS
struct mortal {
	struct many many;
	int die_at;
};

static int calls_until_death(void *arg)
{
	struct mortal *m = arg;
	struct timespec soon;
	struct switchto_door *door;

	deadly = m->die_at;
	door = connected(m->many.fd);
	for (int i = 0; i < 100; i++) {
		soon = m->die_at == SWITCHTO_DELAY_DOOR_LATE ? past : in_ms(60000);
		call(door, ECHO, (uint64_t)i, &soon);
	}
	return 0;
}

TEST(caller_dies_at_each_step)
{
	/* DOOR_BACK is not come to if the answer is there. */
	static const int points[] = { SWITCHTO_DELAY_DOOR_CLAIM, SWITCHTO_DELAY_DOOR_MESSAGE,
				      SWITCHTO_DELAY_DOOR_POSTED, SWITCHTO_DELAY_DOOR_RUNG,
				      SWITCHTO_DELAY_DOOR_LATE };
	struct server *s = new_server(new_door());
	pid_t server = server_start(s);
	struct switchto_door *door = connected(s->fd);

	for (size_t i = 0; i < sizeof(points) / sizeof(points[0]); i++) {
		struct mortal m = { .many.fd = s->fd, .die_at = points[i] };

		for (int n = 0; n < SWITCHTO_DOOR_CALLERS + 3; n++)
			CHECK_EQ(v, run_child(calls_until_death, &m), 128 + SIGKILL);
		CHECK_EQ(v, call(door, ECHO, i, NULL), 0);
		CHECK_EQ(v, connections(s->fd), SWITCHTO_DOOR_CALLERS - 1);
	}
	CHECK_EQ(v, switchto_door_close(door), 0);
	server_end(s, server);
}

/* Another thread that serves the same door, and is faster. */
static struct rival {
	struct worker w;
	int fd;
	atomic_bool serves;
} rival;

static void rival_body(struct worker *w)
{
	struct switchto_door *server = switchto_door_serve(rival.fd, 0);

	CHECK(&w->v, server);
	atomic_store(&rival.serves, true);
	await_release(w);
	CHECK_EQ(&w->v, switchto_door_close(server), 0);
}

static void let_rival_serve(void)
{
	worker_start(&rival.w, rival_body, NULL);
	AWAIT(atomic_load(&rival.serves));
}

TEST(one_of_two_serves)
{
	rival.fd = new_door();
	before_serving = let_rival_serve;
	CHECK(v, !switchto_door_serve(rival.fd, 0) && errno == EBUSY);
	worker_end(&rival.w, v);
	close(rival.fd);
}

/* A process that serves until the point, with a call before that or not. */
TEST(server_dies_at_each_step)
{
	static const int points[] = { SWITCHTO_DELAY_DOOR_SEEN, SWITCHTO_DELAY_DOOR_CLEARED,
				      SWITCHTO_DELAY_DOOR_TAKEN, SWITCHTO_DELAY_DOOR_ANSWER,
				      SWITCHTO_DELAY_DOOR_ANSWERED };
	struct server *s = new_server(new_door());
	struct switchto_door *door = connected(s->fd);

	for (size_t i = 0; i < sizeof(points) / sizeof(points[0]); i++) {
		bool answered = points[i] == SWITCHTO_DELAY_DOOR_ANSWERED;
		pid_t server;

		for (int n = 0; n < 5; n++) {
			s->die_at = points[i];
			server = server_start(s);
			CHECK_EQ(v, call(door, ECHO, i, NULL), answered ? 0 : EOWNERDEAD);
			CHECK_EQ(v, child_status(server), 128 + SIGKILL);
			CHECK_EQ(v, call(door, ECHO, i, NULL), EOWNERDEAD);
		}
		s->die_at = -1;
		server = server_start(s);
		CHECK_EQ(v, call(door, ECHO, i, NULL), 0);
		end(server);
	}
	/* Before it is the server, and in the middle of a close: with a call that waits. */
	s->die_at = SWITCHTO_DELAY_DOOR_SERVE;
	CHECK_EQ(v, run_child(serve, s), 128 + SIGKILL);
	s->die_at = SWITCHTO_DELAY_DOOR_CLOSE;
	for (int n = 0; n < 5; n++) {
		pid_t server = server_start(s);

		CHECK_EQ(v, call(door, CLOSE, 1, NULL), EOWNERDEAD);
		CHECK_EQ(v, child_status(server), 128 + SIGKILL);
	}
	CHECK_EQ(v, switchto_door_close(door), 0);
	close(s->fd);
}
#endif

int main(int argc, char **argv)
{
	if (argc == 2 && strcmp(argv[1], "sleep") == 0)
		for (;;)
			pause();
	if (wants_absent_swap("door"))
		return SKIPPED;
	return run_watched_group(NULL);
}
