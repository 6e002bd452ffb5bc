// SPDX-License-Identifier: MIT
/*
 * Marks of descriptors, and what is polled for them. A descriptor is added to the epoll instance of a
 * slot at its first use, and stays there until it is closed: so a wait for it needs no system call of
 * its own.
 *
 * Any thread may close a descriptor, also with close(2), which the layer does not see. Then the number
 * may belong to another descriptor. But epoll knows: EPOLL_CTL_MOD fails if the number's descriptor is
 * not the one that was added. So the monitor verifies the marks in which tasks wait.
 *
 * A descriptor that was closed, but not everywhere (dup(2), fork(2)), stays in the epoll instance.
 * There it is a stray: nothing can remove it, and it may be reported for ever if it is level-triggered.
 * Then the slot makes a new instance, with all that it should have: poll.c.
 */
#define _GNU_SOURCE
#include "mark.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/*
 * All marks, in leaves that stay until the program ends: any thread may look at them at any time.
 * Pages whose marks nobody uses cost nothing.
 */
_Atomic(struct mark *) switchto_marks[LEAVES];

_Atomic uint64_t switchto_mark_closes = 1;

/* No descriptor with this number or a larger one has a mark. */
static atomic_uint marks_end;

/* The mark of @number: 0 or an error number. */
static int get_mark(int number, struct mark **mark)
{
	const unsigned int fd = (unsigned int)number;
	unsigned int end = atomic_load(&marks_end);
	struct mark *leaf, *other = NULL;

	if (fd >= MARKS * LEAVES)
		return fcntl(number, F_GETFD) == -1 ? EBADF : ENOMEM;
	if (!mark_of(fd)) {
		leaf = mmap(NULL, MARKS * sizeof(*leaf), PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (leaf == MAP_FAILED)
			return ENOMEM;
		if (!atomic_compare_exchange_strong(&switchto_marks[fd / MARKS], &other, leaf))
			munmap(leaf, MARKS * sizeof(*leaf));
	}
	while (end <= fd && !atomic_compare_exchange_weak(&marks_end, &end, fd + 1))
		;
	*mark = mark_of(fd);
	return 0;
}

/* --- what a slot polls --- */

/* With the lock of @mark. */
static struct epoll_event event_of(struct mark *mark)
{
	const uint32_t output = atomic_load(&mark->out.word) == UNARMED ? 0 : EPOLLOUT;
	const uint32_t edge = atomic_load(&mark->edge) ? EPOLLET : 0;

	return (struct epoll_event){
		.events = EPOLLIN | EPOLLRDHUP | output | edge,
		.data.ptr = mark,
	};
}

/* Changes what @slot polls: 0 or an error number. With the lock of @mark. */
static int control(struct slot *slot, int op, struct mark *mark)
{
	struct epoll_event event = event_of(mark);
	int error;

	__tsan_release(&slot->epoll);
	pthread_mutex_lock(&slot->adds);
	error = epoll_ctl(slot->epoll, op, mark->fd, &event) ? errno : 0;
	if (unlikely(slot->next_epoll != -1))
		epoll_ctl(slot->next_epoll, op, mark->fd, &event);
	pthread_mutex_unlock(&slot->adds);
	return error;
}

/* --- one mark --- */

/* Whose wait ends with EBADF. Others try again. */
enum gone { NOBODY, THE_VERIFIED, EVERYBODY };

static inline bool ends(enum gone gone, bool verified)
{
	return gone == EVERYBODY || (gone == THE_VERIFIED && verified);
}

/* The mark's word becomes @value. A task in it goes on. */
static void set_word(struct direction *direction, uintptr_t value, enum gone gone)
{
	const uintptr_t before = atomic_exchange(&direction->word, value);
	struct switchto_task *task = mark_task(before);

	window();
	if (task)
		task_wake(NULL, task, WAITING, ends(gone, before & VERIFIED) ? EBADF : 0,
			  SWITCHTO_IO);
}

/* With the lock: the same of those who wait for their turn. */
static void end_turns(struct direction *direction, enum gone gone)
{
	struct turn *turn = atomic_load(&direction->first), *next;

	atomic_store(&direction->first, NULL);
	for (; turn; turn = next) {
		next = turn->next;
		if (ends(gone, turn->verified)) {
			turn->error = EBADF;
			turn->listed = false;
			switchto_waiter_fire(NULL, &turn->waiter);
		} else {
			append_turn(direction, turn);
		}
	}
	/* A call that ended just now may have seen no list. */
	wake_first(direction);
}

/* With the lock: no slot polls @mark any more. */
static void drop(struct mark *mark, enum gone gone)
{
	set_word(&mark->in, UNKNOWN, gone);
	set_word(&mark->out, UNKNOWN, gone);
	if (gone) {
		end_turns(&mark->in, gone);
		end_turns(&mark->out, gone);
	}
	mark->slot = NULL;
	atomic_store(&mark->sched, NULL);
}

/* There may have been strays in a slot. */
static atomic_bool some_strays;

/* Whatever was added may be open elsewhere, and a stray. */
static void expect_strays(struct slot *slot)
{
	atomic_store(&some_strays, true);
	atomic_compare_exchange_strong(&slot->strays, &(unsigned int){ 0 }, 1);
}

/*
 * An event that nobody has a use for: if there may be strays, it may be of one. What is
 * edge-triggered, and slow to be read, counts as well then.
 */
static void count_stray(struct slot *slot)
{
	if (atomic_load(&slot->strays))
		atomic_fetch_add(&slot->strays, 1);
}

/* With the lock: 0 if the descriptor that was added still has the number, without an event. */
static int find(const struct mark *mark)
{
	struct epoll_event none = { .data.ptr = (void *)mark };
	struct slot *slot = mark->slot;
	int error;

	pthread_mutex_lock(&slot->adds);
	error = epoll_ctl(slot->epoll, EPOLL_CTL_ADD, mark->fd, &none) ? errno : ESTALE;
	if (error == ESTALE)
		epoll_ctl(slot->epoll, EPOLL_CTL_DEL, mark->fd, NULL);
	pthread_mutex_unlock(&slot->adds);
	return error == EEXIST ? 0 : ESTALE;
}

/*
 * With the lock: the kernel looks at the descriptor anew, and unless @silent makes an event if there is
 * something. 0 or an error number. ESTALE: the number has been given to another descriptor, or to none,
 * since @mark was added. Then @mark is dropped. A task that waits tries again, and has the new one added.
 * But if @mark was verified during its wait, that was a wait for a descriptor that is gone: EBADF.
 */
static int look_anew(struct mark *mark, bool silent)
{
	const int error = silent ? find(mark) : control(mark->slot, EPOLL_CTL_MOD, mark);

	/* Of a file, the kernel says so before it looks for what was added. */
	if (!error || error == ENOMEM || error == ENOSPC)
		return error;
	expect_strays(mark->slot);
	drop(mark, THE_VERIFIED);
	return ESTALE;
}

static int renew(struct mark *mark)
{
	return look_anew(mark, false);
}

bool switchto_mark_is_valid(struct mark *mark)
{
	bool valid;

	pthread_mutex_lock(&mark->lock);
	valid = mark->slot && renew(mark) != ESTALE;
	pthread_mutex_unlock(&mark->lock);
	return valid;
}

/* With the lock: edge-triggered from now on, or no longer. */
static void set_edge(struct mark *mark, bool edge)
{
	int error;

	if (atomic_load(&mark->edge) == edge)
		return;
	/*
	 * Before the change in the kernel: what is reported from now on is STICKY, or not. The kernel
	 * reports again what is there.
	 */
	atomic_store(&mark->edge, edge);
	window();
	error = renew(mark);
	if (error && error != ESTALE)
		atomic_store(&mark->edge, !edge);
}

void switchto_mark_unawaited(struct slot *slot, struct mark *mark, uintptr_t word)
{
	bool stray;

	if (word != UNKNOWN && word % POLL < (uintptr_t)REPORTS * EVENT)
		return;
	pthread_mutex_lock(&mark->lock);
	stray = mark->slot != slot;
	if (!stray && word != UNKNOWN && !atomic_load(&mark->edge)) {
		atomic_store(&mark->calm, 1);
		set_edge(mark, true);
	}
	pthread_mutex_unlock(&mark->lock);
	if (stray)
		expect_strays(slot);
	count_stray(slot);
}

bool switchto_mark_calm(struct mark *mark)
{
	unsigned char calm = atomic_load_explicit(&mark->calm, memory_order_relaxed);
	bool is_level;

	if (!calm || (calm < CALM && atomic_compare_exchange_strong(&mark->calm, &calm, calm + 1)))
		return false;
	pthread_mutex_lock(&mark->lock);
	if (mark->slot && atomic_load(&mark->calm) >= CALM) {
		atomic_store(&mark->calm, 0);
		set_edge(mark, false);
	}
	is_level = !atomic_load(&mark->edge);
	pthread_mutex_unlock(&mark->lock);
	return is_level;
}

void switchto_mark_edge(struct mark *mark)
{
	pthread_mutex_lock(&mark->lock);
	atomic_store(&mark->calm, 0);
	if (mark->slot)
		set_edge(mark, true);
	pthread_mutex_unlock(&mark->lock);
}

void switchto_mark_in_vain(struct mark *mark)
{
	/* What is edge-triggered is read until EAGAIN. But it may have been a stray that was ready. */
	if (atomic_load(&mark->edge) && !atomic_load(&some_strays))
		return;
	pthread_mutex_lock(&mark->lock);
	if (mark->slot && !atomic_load(&mark->edge)) {
		/* STICKY may be from before it was level-triggered again: that is no reason for good. */
		atomic_store(&mark->calm, atomic_load(&mark->in_vain) <= IN_VAIN);
		set_edge(mark, true);
	} else if (mark->slot) {
		count_stray(mark->slot);
	}
	pthread_mutex_unlock(&mark->lock);
}

/* With the lock: has @mark polled for output, too. 0 or an error number, as renew(). */
static int add_output(struct mark *mark)
{
	const unsigned char calm = atomic_load(&mark->calm);
	const bool edge = atomic_load(&mark->edge);
	int error;

	atomic_store(&mark->calm, 0);
	atomic_store(&mark->edge, true);
	atomic_store(&mark->out.word, READY | STICKY);
	window();
	error = renew(mark);
	if (error && error != ESTALE) {
		/* A task that waits by now finds it so, and tries again. */
		set_word(&mark->out, UNARMED, NOBODY);
		atomic_store(&mark->edge, edge);
		atomic_store(&mark->calm, calm);
	}
	return error;
}

/* A stream socket, or a pipe that does not keep packets apart. @kind: of what is no socket. */
static bool is_stream(struct mark *mark, int flags, mode_t *kind)
{
	socklen_t size = sizeof(int);
	struct stat found;
	int type;

	atomic_store(&mark->socket, !getsockopt(mark->fd, SOL_SOCKET, SO_TYPE, &type, &size));
	if (atomic_load(&mark->socket))
		return type == SOCK_STREAM;
	*kind = fstat(mark->fd, &found) ? 0 : found.st_mode;
	return S_ISFIFO(*kind) && !(flags & O_DIRECT);
}

/* The master of a pseudoterminal has the settings of the terminal, but does not follow them. */
static bool is_terminal(int fd)
{
	unsigned int number;

	return isatty(fd) && ioctl(fd, TIOCGPTN, &number);
}

/*
 * With the lock. A slot of another scheduler than the caller's polls @mark: that ends. 0 or EBUSY, if a
 * task of the other one waits.
 */
static int leave_other(struct mark *mark)
{
	/* Paired with the load in slot_wait_once(). */
	atomic_store(&mark->sched, NULL);
	window();
	if (mark_task(atomic_load(&mark->in.word)) || mark_task(atomic_load(&mark->out.word))) {
		atomic_store(&mark->sched, mark->slot->sched);
		return EBUSY;
	}
	control(mark->slot, EPOLL_CTL_DEL, mark);
	mark->slot = NULL;
	/* Nobody waits in it. */
	set_word(&mark->in, UNKNOWN, NOBODY);
	set_word(&mark->out, UNKNOWN, NOBODY);
	return 0;
}

/* With the lock: 0 or an error number. */
static int add(struct slot *slot, struct mark *mark, bool output)
{
	int error, flags = fcntl(mark->fd, F_GETFL);
	mode_t kind = 0;
	bool stream;

	if (flags == -1)
		return errno;
	/*
	 * Some files can be polled, but that says nothing of what a read or write does: of FUSE, it
	 * blocks all the same; of a control group, EAGAIN is an error.
	 */
	stream = is_stream(mark, flags, &kind);
	if (S_ISREG(kind))
		return EPERM;
	/* Nobody waits in it. */
	set_word(&mark->in, UNKNOWN, NOBODY);
	set_word(&mark->out, output ? UNKNOWN : UNARMED, NOBODY);
	atomic_store(&mark->in_vain, 0);
	atomic_store(&mark->hung_up, false);
	atomic_store(&mark->terminal, S_ISCHR(kind) && is_terminal(mark->fd));
	atomic_store(&mark->waits_first,
		     stream && (flags & O_ACCMODE) != O_WRONLY ? NOT_YET_FIRST : NEVER_FIRST);
	atomic_store(&mark->calm, 0);
	atomic_store(&mark->edge, !stream || output);
	error = control(slot, EPOLL_CTL_ADD, mark);
	if (error == EEXIST) /* a stray that is back */
		error = control(slot, EPOLL_CTL_MOD, mark);
	if (!error && !(flags & O_NONBLOCK) && fcntl(mark->fd, F_SETFL, flags | O_NONBLOCK))
		error = errno;
	if (error) {
		drop(mark, NOBODY);
		return error;
	}
	mark->slot = slot;
	/* Only a system call says whether it is ready. */
	set_word(&mark->in, atomic_load(&mark->edge) ? READY | STICKY : READY, NOBODY);
	set_word(&mark->out, output ? READY | STICKY : UNARMED, NOBODY);
	atomic_store(&mark->sched, slot->sched);
	return 0;
}

int switchto_mark_add(struct slot *slot, int fd, bool output)
{
	struct mark *mark;
	int error = get_mark(fd, &mark);

	if (error)
		return error;
	/* Two tasks may come here at once. */
	pthread_mutex_lock(&mark->lock);
	__atomic_store_n(&mark->fd, fd, __ATOMIC_RELAXED);
	if (mark->slot && mark->slot->sched != slot->sched)
		error = leave_other(mark);
	if (!error && mark->slot && output && atomic_load(&mark->out.word) == UNARMED)
		error = add_output(mark);
	if (error == ESTALE || (!error && !mark->slot))
		error = add(slot, mark, output);
	pthread_mutex_unlock(&mark->lock);
	return error;
}

/*
 * Closes @fd, or has the caller do so. A socket that waits for what it has not sent yet (SO_LINGER), or
 * a device, has another number then. A file has no waits that a new descriptor might be mixed up with.
 */
static int close_now(int fd, int *left)
{
	socklen_t size = sizeof(struct linger);
	struct linger linger;
	struct stat found;
	int error;

	if (!getsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, &size)) {
		if (linger.l_onoff && linger.l_linger)
			*left = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	} else if (!fstat(fd, &found)) {
		if (S_ISCHR(found.st_mode) || S_ISBLK(found.st_mode))
			*left = fcntl(fd, F_DUPFD_CLOEXEC, 0);
		if (S_ISREG(found.st_mode)) {
			*left = fd;
			return 0;
		}
	}
	error = (int)-sure_close(fd);
	/* Interrupted, it is closed all the same. */
	return error == EINTR ? 0 : error;
}

int switchto_mark_forget(int fd, int *left)
{
	struct mark *mark = NULL;
	int error = 0;

	if (left)
		*left = -1;

	if (!get_mark(fd, &mark)) {
		/*
		 * Until the number is free: another task may use the descriptor meanwhile, and add
		 * it. close(2) would not remove it if it was duplicated, or a child has it.
		 */
		pthread_mutex_lock(&mark->lock);
		atomic_store(&mark->closed, atomic_fetch_add(&switchto_mark_closes, 1) + 1);
		if (mark->slot && control(mark->slot, EPOLL_CTL_DEL, mark))
			expect_strays(mark->slot);
		drop(mark, EVERYBODY);
	}
	if (left)
		error = close_now(fd, left);
	if (mark)
		pthread_mutex_unlock(&mark->lock);
	return error;
}

void switchto_mark_new(int fd)
{
	struct mark *mark = mark_of((unsigned int)fd);

	if (unlikely(mark && atomic_load_explicit(&mark->sched, memory_order_relaxed)))
		switchto_mark_forget(fd, NULL);
}

/* --- all marks --- */

/* To a new instance of epoll. With the lock of @mark. */
static bool add_to(int epoll, struct mark *mark)
{
	struct epoll_event event = event_of(mark);

	/* It may be there already, or have been closed. */
	return !epoll_ctl(epoll, EPOLL_CTL_ADD, mark->fd, &event) || errno == EEXIST ||
	       errno == EBADF || errno == EPERM;
}

bool switchto_mark_add_all(struct slot *slot, int epoll)
{
	const unsigned int end = atomic_load(&marks_end);
	bool good = true;

	for (unsigned int fd = 0; good && fd < end; fd++) {
		struct mark *mark = mark_of(fd);

		if (!mark || atomic_load(&mark->sched) != slot->sched)
			continue;
		pthread_mutex_lock(&mark->lock);
		if (mark->slot == slot) {
			good = add_to(epoll, mark);
			/* By then, the number may have been another descriptor's. */
			if (renew(mark) == ESTALE)
				epoll_ctl(epoll, EPOLL_CTL_DEL, (int)fd, NULL);
		}
		pthread_mutex_unlock(&mark->lock);
	}
	return good;
}

/*
 * What is verified: waits that were not yet, those for output, and others. Of each kind, so many marks
 * are looked at in one go, from where the last one ended, and so many verified.
 */
enum { UNVERIFIED, FOR_OUTPUT, FOR_INPUT, LOOKED_AT = 1024 };

static const unsigned int at_a_time[] = { 16, 16, 2 };

/* A slot that has not polled for so long is busy. */
#define DEAF (NSEC_PER_SEC / 10)

/* With the lock. */
static void set_verified(struct direction *direction)
{
	uintptr_t word = atomic_load(&direction->word);

	if (mark_task(word))
		atomic_compare_exchange_strong(&direction->word, &word, word | VERIFIED);
	for (struct turn *turn = atomic_load(&direction->first); turn; turn = turn->next)
		turn->verified = true;
}

static bool waits_unverified(struct direction *direction)
{
	/* An acquire: the descriptor was made before a task waited for it. */
	const uintptr_t word = atomic_load_explicit(&direction->word, memory_order_acquire);

	return mark_task(word) && !(word & VERIFIED);
}

static int socket_option(int fd, int option)
{
	socklen_t size = sizeof(int);
	/* For clang-tidy, which does not see that the kernel writes it. */
	int value = 0;

	return CALL(getsockopt, fd, SOL_SOCKET, option, &value, &size) ? -1 : value;
}

bool switchto_mark_is_shut(int fd)
{
	struct pollfd poller = { .fd = fd };
	struct timespec none = { 0 };
	bool packets;

	if (socket_option(fd, SO_DOMAIN) != AF_UNIX)
		return false;
	packets = socket_option(fd, SO_TYPE) != SOCK_STREAM;
	/* A send of packets would take a pending error with it. But then there is an event. */
	if (packets && SURE_CALL(ppoll, &poller, 1, &none, NULL, 0))
		return false;
	/* It is of nothing, which is possible of a stream; or of a byte that can't be read. */
	return CALL(sendto, fd, NULL, packets, MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0) == -EPIPE;
}

/*
 * Does nobody poll for @slot? It has ended, or a task computes there that keeps it. A task that waits
 * may be one of another slot, and has the descriptor polled there when it is woken.
 */
static bool is_deaf(const struct slot *slot, nsec_t now)
{
	return slot->sched->slots > 1 && now - slot->seen.polled >= DEAF;
}

static bool is_of_kind(struct mark *mark, int kind)
{
	if (kind == UNVERIFIED)
		return waits_unverified(&mark->in) || waits_unverified(&mark->out);
	return mark_task(atomic_load(kind == FOR_OUTPUT ? &mark->out.word : &mark->in.word));
}

static void verify(const struct switchto_sched *sched, struct mark *mark, nsec_t now)
{
	pthread_mutex_lock(&mark->lock);
	/* What is unread would make an event each time. */
	if (mark->slot && mark->slot->sched == sched &&
	    look_anew(mark, is_unread(atomic_load(&mark->in.word))) != ESTALE) {
		set_verified(&mark->in);
		set_verified(&mark->out);
		if (mark_task(atomic_load(&mark->out.word)) && switchto_mark_is_shut(mark->fd)) {
			atomic_store(&mark->hung_up, true);
			set_word(&mark->out, READY | STICKY, NOBODY);
		}
		if (is_deaf(mark->slot, now)) {
			control(mark->slot, EPOLL_CTL_DEL, mark);
			drop(mark, NOBODY);
		}
	}
	pthread_mutex_unlock(&mark->lock);
}

void switchto_mark_verify(struct switchto_sched *sched)
{
	const unsigned int end = atomic_load(&marks_end);
	const nsec_t now = switchto_now();

	for (int kind = UNVERIFIED; kind <= FOR_INPUT; kind++) {
		unsigned int *next = &sched->next_mark[kind], left = at_a_time[kind];

		for (unsigned int n = 0; n < end && n < LOOKED_AT && left; n++) {
			const unsigned int fd = *next < end ? *next : 0;
			struct mark *mark = mark_of(fd);

			*next = fd + 1;
			if (!mark || !is_of_kind(mark, kind) ||
			    atomic_load_explicit(&mark->sched, memory_order_relaxed) != sched)
				continue;
			left--;
			verify(sched, mark, now);
		}
	}
}

void switchto_mark_leave(const struct switchto_sched *sched)
{
	const unsigned int end = atomic_load(&marks_end);

	for (unsigned int fd = 0; fd < end; fd++) {
		struct mark *mark = mark_of(fd);

		if (!mark)
			continue;
		/* Somebody may be closing it, or, in set_word(), be about to look at a task of @sched. */
		pthread_mutex_lock(&mark->lock);
		if (mark->slot && mark->slot->sched == sched)
			drop(mark, NOBODY);
		pthread_mutex_unlock(&mark->lock);
	}
}

/* The instances of epoll are the parent's, too: nothing may be removed from them. */
void switchto_mark_forked(void)
{
	for (unsigned int fd = 0; fd < atomic_load(&marks_end); fd += MARKS)
		atomic_store(&switchto_marks[fd / MARKS], NULL);
	atomic_store(&marks_end, 0);
}
