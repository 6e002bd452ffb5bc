// SPDX-License-Identifier: MIT
/*
 * How a thread is registered, how it ends, and what is done with a resume for
 * one that lives and is not registered yet. Nothing here is on the hot path.
 */
#define _GNU_SOURCE
#include "thread.h"

#include "../delay.h"
#include "backend.h"
#include "copy.h"
#include "place.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

_Thread_local struct this_thread switchto_this __attribute__((tls_model("initial-exec")));
_Atomic(struct thread *) switchto_threads[TID_LIMIT / LEAF_THREADS];

static pthread_once_t chosen = PTHREAD_ONCE_INIT;
static int choice_error;
static pthread_key_t thread_key;

/* thread_key's destructor: runs in the thread that ends. */
static void thread_end(void *arg)
{
	struct thread *thread = arg;
	uint32_t generation = switchto_this.running & WORD_GENERATION;

	switchto_this.thread = switchto_this.swap = NULL;
	delay_point(END_FORGOTTEN);
	/*
	 * A pending resume ends with the thread. ->early comes first: a resume that finds the word
	 * UNREGISTERED must not find ->early closed.
	 */
	atomic_store(&thread->early, EARLY_NONE);
	delay_point(END_EARLY);
	switchto_place_end(thread);
	atomic_exchange_explicit(&thread->word, UNREGISTERED | generation, memory_order_acq_rel);
	atomic_store_explicit(&thread->placing, 0, memory_order_release);
}

/*
 * The child's only thread has a TID of its own, and the table is wiped. If its word
 * is not, then the thread was registered in the child already, by a handler of the
 * program that runs before this one.
 */
static void forked(void)
{
	struct thread *me = switchto_this.thread;

	switchto_this.loans = false;
	if (me && (atomic_load(&me->word) & WORD_STATE) != UNREGISTERED)
		return;
	switchto_this.thread = switchto_this.swap = NULL;
	pthread_setspecific(thread_key, NULL);
}

static void choose(void)
{
	choice_error = switchto_copy_use();
	if (!choice_error)
		choice_error = switchto_choose_backend();
	if (!choice_error)
		choice_error = pthread_key_create(&thread_key, thread_end);
	if (!choice_error)
		choice_error = switchto_place_choose();
	if (!choice_error)
		choice_error = pthread_atfork(switchto_place_fork, switchto_place_forked, forked);
}

/*
 * thread_of(), with the leaf mapped if need be. 0, ENOMEM, or ENOSYS where the
 * kernel can't wipe on fork: threads of the parent would live on in the child.
 */
static int thread_at(pid_t tid, struct thread **thread)
{
	size_t size = LEAF_THREADS * sizeof(struct thread);
	struct thread *leaf, *other = NULL;

	*thread = thread_of(tid);
	if (*thread)
		return 0;

	leaf = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (leaf == MAP_FAILED)
		return ENOMEM;
	if (madvise(leaf, size, MADV_WIPEONFORK)) {
		int error = errno == EINVAL ? ENOSYS : ENOMEM;

		munmap(leaf, size);
		return error;
	}

	delay_point(BEGIN_LEAF);
	if (!atomic_compare_exchange_strong(&switchto_threads[tid >> LEAF_BITS], &other, leaf))
		munmap(leaf, size);

	*thread = thread_of(tid);
	return 0;
}

void switchto_task_path(char path[SWITCHTO_TASK_PATH], pid_t tid, const char *file)
{
	char *at = stpcpy(path, "/proc/self/task/");

	/* No snprintf() here: the signal may have interrupted one. */
	for (pid_t unit = 1000000; unit; unit /= 10)
		if (tid >= unit)
			*at++ = (char)('0' + tid / unit % 10);
	*at++ = '/';
	strcpy(at, file);
}

/* From /proc/self/task/TID/stat. */
struct task_stat {
	unsigned long flags;
	unsigned long long start_time; /* in clock ticks since boot */
};

/*
 * 0 or an error number. System calls and not their wrappers: open(), read() and
 * close() are cancellation points, and the calls of the library are not.
 */
static int read_task_stat(pid_t tid, struct task_stat *stat)
{
	/* Field 2 is the name in parentheses, which may hold any character. */
	enum { FLAGS = 9, START_TIME = 22 };
	char path[SWITCHTO_TASK_PATH], text[512] = "", *at;
	long length;
	int fd, field;

	*stat = (struct task_stat){ 0 };
	switchto_task_path(path, tid, "stat");
	fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno;
	length = syscall(SYS_read, fd, text, sizeof(text) - 1);
	syscall(SYS_close, fd);
	if (length <= 0)
		return ESRCH;
	text[length] = '\0';

	at = strrchr(text, ')');
	for (field = 2; at && field < FLAGS; field++)
		at = strchr(at + 1, ' ');
	if (!at)
		return ESRCH;
	stat->flags = strtoul(at, NULL, 10);
	for (; at && field < START_TIME; field++)
		at = strchr(at + 1, ' ');
	if (!at)
		return ESRCH;
	stat->start_time = strtoull(at, NULL, 10);
	return 0;
}

/*
 * Is @tid a live thread of this process? One that has been joined is not, even
 * though tgkill(2) finds it for a moment longer: pthread_join() returns when
 * the kernel clears the thread's TID in user space, well before the task is
 * unhashed, but after PF_EXITING is set. Without /proc that moment is missed.
 */
static bool thread_lives(pid_t tid)
{
	const unsigned long pf_exiting = 0x4; /* include/linux/sched.h, Linux 6.12 */
	struct task_stat stat;

	if (!read_task_stat(tid, &stat))
		return !(stat.flags & pf_exiting);

	/* Asked after /proc, not before: it may have gone in between. */
	return syscall(SYS_tgkill, getpid(), tid, 0) == 0;
}

static bool out_of_resources(int error)
{
	return error == EMFILE || error == ENFILE || error == ENOMEM;
}

/* The kind of an identity, in its lowest bit. */
enum { START_TIME, PIDFD_INODE, IDENTITY_KINDS };

/*
 * A number of the thread that has @tid now, which no earlier or later owner of @tid has. From
 * Linux 6.9 on the inode number of its pidfd, never given twice; before that its start time, in
 * ticks of 10 ms. A thread may find one kind for itself, and others the other kind: if a seccomp
 * filter refuses it pidfd_open(2).
 *
 * 0, or an error number: ENOMEM without a descriptor, as a start time instead could not be compared
 * with the inode number that others find; ESRCH; ENOSYS on an older kernel without /proc.
 */
static int thread_identity(pid_t tid, uint64_t *identity)
{
	struct task_stat task;
	int error;
#if defined(SYS_pidfd_open)
	const unsigned int pidfd_thread = O_EXCL; /* PIDFD_THREAD of linux/pidfd.h */
	int fd = (int)syscall(SYS_pidfd_open, tid, pidfd_thread);

	if (fd >= 0) {
		struct stat stat;

		error = fstat(fd, &stat) ? errno : 0;
		syscall(SYS_close, fd);
		if (!error) {
			*identity = stat.st_ino * IDENTITY_KINDS + PIDFD_INODE;
			return 0;
		}
	} else if (errno == ESRCH) {
		return ESRCH;
	} else if (out_of_resources(errno)) {
		return ENOMEM;
	}
#endif
	error = read_task_stat(tid, &task);
	if (out_of_resources(error))
		return ENOMEM;
	/*
	 * No such file: there is no /proc, or the thread has ended since. Of one
	 * that ends at that moment pidfd_open() may have said something else
	 * than ESRCH, too (EINVAL, Linux 6.12).
	 */
	if (error)
		return error == ESRCH || syscall(SYS_tgkill, getpid(), tid, 0) ? ESRCH : ENOSYS;

	*identity = task.start_time * IDENTITY_KINDS + START_TIME;
	return 0;
}

/* What thread.early has of a pending resume of @tid by @by. 0 or as above. */
static int early_resume(pid_t tid, pid_t by, uint64_t *early)
{
	uint64_t identity;
	int error = thread_identity(tid, &identity);

	if (!error)
		*early = identity << TID_BITS | (uint32_t)by;
	return error;
}

static bool is_resume(uint64_t early)
{
	return early != EARLY_NONE && early != EARLY_CLOSED;
}

/*
 * Identities of different kinds can't be compared. They are taken for the same
 * thread's: the other way round a resume would be lost.
 */
static bool same_thread(uint64_t early, uint64_t other)
{
	uint64_t difference = (early ^ other) >> TID_BITS;

	return difference == 0 || difference % IDENTITY_KINDS != 0;
}

int switchto_thread_register(void)
{
	uint64_t early, mine = 0;
	struct thread *thread;
	uint32_t running;
	pid_t tid;
	int error;

	pthread_once(&chosen, choose);
	tid = (pid_t)syscall(SYS_gettid);
	error = choice_error;
	if (!error)
		error = thread_at(tid, &thread);
	/* Asked while it is not too late to fail. */
	if (!error && is_resume(atomic_load(&thread->early)))
		error = early_resume(tid, 0, &mine);
	delay_point(BEGIN_ASKED);
	if (!error)
		error = pthread_setspecific(thread_key, thread);
	if (error) {
		errno = error;
		return -1;
	}

	running = RUNNING | ((atomic_load_explicit(&thread->word, memory_order_relaxed) +
			      WORD_GENERATION_ONE) &
			     WORD_GENERATION);
	/* What the TID's former owner left. */
	atomic_store_explicit(&thread->given, 0, memory_order_relaxed);
	atomic_store_explicit(&thread->cpu, 0, memory_order_relaxed);
	atomic_store_explicit(&thread->refused, false, memory_order_relaxed);
	thread->looked = thread->forks = 0;
	thread->lost = false;
	atomic_store_explicit(&thread->place, (unsigned char)switchto_place_default,
			      memory_order_relaxed);
	switchto_this.tid = tid;
	switchto_this.running = running;
	/* A handler that finds the thread set uses the others. */
	atomic_signal_fence(memory_order_release);
	switchto_this.thread = thread;
	switchto_this.swap = switchto_is_swap ? thread : NULL;

	/* From the first of these on a resume goes to the word. */
	delay_point(BEGIN_SET);
	atomic_exchange(&thread->word, running);
	delay_point(BEGIN_WORD);
	early = atomic_exchange(&thread->early, EARLY_CLOSED);
	if (!is_resume(early))
		return 0;
	delay_point(BEGIN_CLOSED);

	/*
	 * Recheck a resume that raced with the lookup; accept it if it cannot be
	 * identified. To drop it might lose a resume. It is for another thread only
	 * if the TID was recycled since the giver looked (tests/model/,
	 * BEGIN_GUESSES). A resume for a thread that had this TID and never called is
	 * dropped. If the word has a resume by now, the two are one.
	 */
	if (!mine && early_resume(tid, 0, &mine))
		mine = early;
	delay_point(BEGIN_EARLY);
	if (same_thread(early, mine))
		atomic_compare_exchange_strong(&thread->word, &running,
					       RESUMED | (running & WORD_GENERATION) |
						       (uint32_t)(early & WORD_TID));

	return 0;
}

int switchto_thread_resume_unregistered(pid_t tid, pid_t by)
{
	uint64_t early, other, now;
	struct thread *thread;
	uint32_t seen;
	int error;

	error = switchto_copy_use();
	if (error)
		return error;
	if (!thread_lives(tid))
		return ESRCH;

	delay_point(EARLY_LIVES);
	error = early_resume(tid, by, &early);
	if (!error)
		error = thread_at(tid, &thread);
	if (error)
		return error;

	/*
	 * Leave it for the thread to find, in the place of what is there: an
	 * earlier resume of the same thread, which becomes one with this, or
	 * one for a thread that is gone. If it is the other way round, and @tid
	 * got a new owner since we asked, what is there must stay. So we ask again
	 * unless the two identities are equal, kinds included.
	 */
	delay_point(EARLY_ASKED);
	other = atomic_load(&thread->early);
	while (other != EARLY_CLOSED) {
		if (is_resume(other) && other >> TID_BITS != early >> TID_BITS) {
			error = early_resume(tid, by, &now);
			if (error || !same_thread(now, early))
				return error ? error : ESRCH;
			/* The same, but for its kind: then this is the newer answer. */
			early = now;
		}
		delay_point(EARLY_SEEN);
		if (atomic_compare_exchange_weak(&thread->early, &other, early))
			return 0;
	}

	/*
	 * It has been registered meanwhile. The word is read before the identity: then it
	 * belongs to the thread we mean, or to none.
	 */
	delay_point(EARLY_CLOSED);
	seen = atomic_load(&thread->word);
	delay_point(EARLY_WORD);
	error = early_resume(tid, by, &now);
	if (error || !same_thread(now, early))
		return error ? error : ESRCH;
	if ((seen & WORD_STATE) == UNREGISTERED || !thread_give(thread, &seen, by))
		return ESRCH;
	if ((seen & WORD_STATE) == WAITING) {
		place_resumed(thread, tid);
		thread_wake(thread, tid);
	}
	return 0;
}
