/* SPDX-License-Identifier: MIT */
/*
 * libswitchto doors: hand the CPU to a thread of another process, with a message.
 *
 * A door is a file in memory. One thread serves at it, and up to SWITCHTO_DOOR_CALLERS threads
 * call, from any processes that have the file. A call is one switch to the server, and the
 * answer is one switch back. Each carries SWITCHTO_DOOR_WORDS words. Link with -lswitchto-door
 * (pkg-config switchto-door, CMake's switchto::door).
 *
 *	// The server. Errors are left out.
 *	struct switchto_door_message m;
 *	struct switchto_door *door = switchto_door_serve(fd, 0);
 *
 *	for (switchto_door_wait(door, &m, NULL);; switchto_door_reply_wait(door, &m, NULL))
 *		m.word[0] = work(m.word[0]);
 *
 *	// A caller, in another process.
 *	struct switchto_door *door = switchto_door_connect(fd, 0);
 *
 *	m.word[0] = 42;
 *	switchto_door_call(door, &m, NULL);	// m.word[0] is the answer now
 *
 * Which threads
 * -------------
 * A handle belongs to the thread that made it: only this thread may use and close it. With it,
 * a call fails with EPERM in another thread and in the child of a fork(). A thread may have
 * several handles. Close a handle before its thread ends. Otherwise its memory is lost, nobody may
 * use it any more, and the others at the door see a death, as described below. The functions do not
 * use switchto_wait() or pending resumes, and switchto_resume() does not end them.
 *
 * Threads are told apart by their TIDs. So all servers of a door must be in one PID namespace, and
 * all its callers in one, which may be another. /proc need not be mounted.
 *
 * Order
 * -----
 * Calls are served one at a time, in the order in which they were made. Calls that are made at
 * the same moment may be served in any order.
 *
 * When the other side dies
 * ------------------------
 * The kernel notices when a thread ends, is killed or calls execve() (by a robust list, see
 * set_robust_list(2)). This needs no descriptor and no thread. A process that crashes dies after
 * its core is written.
 *  - The server dies, or closes the door: every call that waits fails with EOWNERDEAD, and so
 *    does every later call, until a thread serves at the door again. After EOWNERDEAD you cannot
 *    know how much of its work the server did: none, a part, or all.
 *  - A caller dies: its call is served or not, and its answer is dropped. Its place becomes free
 *    when the server has answered. switchto_door_wait() goes on waiting, for the other callers. If
 *    there are none, use a deadline, and then check whether the caller's process lives (SIGCHLD,
 *    pidfd_open(2)).
 * Not noticed: execve() by a thread that is not the first of its process. Until that process has
 * closed the file, calls end at their deadlines only, and the door stays taken (EBUSY): close the
 * handles first, or use posix_spawn(3). A stopped thread is not dead. Use deadlines against stopped
 * threads, and against a server that does not answer. switchto-door(7) has two rarer cases.
 *
 * Trust
 * -----
 * A server is safe from its callers, and a caller from its server: whatever the other side writes,
 * a call returns an answer or an error, at its deadline at the latest. The program must check the
 * content of messages. The callers of one door are not safe from each other: if they do not trust
 * each other, make one door for each caller, with one thread that serves at it. A file that can be
 * truncated is a risk: see SWITCHTO_DOOR_UNSEALED. SECURITY.md of the sources says more.
 *
 * Signals and cancellation
 * ------------------------
 * As in <switchto/switchto.h>: a handler does not end a wait, there is no EINTR, and the calls
 * are not cancellation points. A handler may not call these functions. It may siglongjmp() out of
 * switchto_door_call(). The next call then behaves as after ETIMEDOUT. Do not jump out of any
 * other function of doors. If a handler calls fork(), it must not return in the child.
 *
 * Memory ordering: the server that takes a call sees what the caller wrote before the call, and the
 * caller that gets an answer sees what the server wrote before the answer. This holds for other
 * shared memory, too.
 *
 * Needs Linux 4.14, and glibc on a 64-bit machine (ENOTSUP elsewhere: the robust list). Sealed
 * files need Linux 3.17. The backends are those of switchto_backend(); on kernels without
 * FUTEX_SWAP a switch is FUTEX_WAKE and FUTEX_WAIT. switchto-door(7) has the rest.
 */
#ifndef SWITCHTO_DOOR_H
#define SWITCHTO_DOOR_H

#include <stdint.h>
#include <time.h>

#define SWITCHTO_DOOR_WORDS 8
#define SWITCHTO_DOOR_CALLERS 32

/*
 * For switchto_door_serve() and switchto_door_connect(): accept a file that is not sealed
 * against truncation (shm_open(3), a file on a disk, a memfd without F_SEAL_SHRINK and F_SEAL_SEAL).
 * A process that can truncate the file can end this process with SIGBUS, and keep the kernel from
 * noticing deaths. A file on a network or in FUSE can keep a call waiting beyond its deadline.
 */
#define SWITCHTO_DOOR_UNSEALED 1u

struct timespec; /* under -std=c99 time.h has none */

struct switchto_door; /* a handle, in memory of this process only */

struct switchto_door_message {
	uint64_t word[SWITCHTO_DOOR_WORDS];
};

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

/**
 * switchto_door_create() - make a door
 * @fd:	an empty file, open for reading and writing, that becomes the door; or -1: make a
 *	memfd, sealed against truncation and closed by execve()
 *
 * Pass the descriptor to the other processes: by inheritance, by SCM_RIGHTS (unix(7)), or as
 * a file with a name. The program owns the descriptor, and may close it when its handles are made.
 *
 * Return: @fd, or the new descriptor, or -1 and errno.
 *
 * errno: EEXIST, the file is not empty; the errors of memfd_create(2), ftruncate(2), fcntl(2) and
 * mmap(2).
 *
 * Thread-safe. Not async-signal-safe.
 */
int switchto_door_create(int fd);

/**
 * switchto_door_serve() - become the server of a door
 * @fd:		a door
 * @flags:	0 or SWITCHTO_DOOR_UNSEALED
 *
 * A server may be restarted: after the server died or closed the door, another can serve.
 *
 * Return: a handle for switchto_door_wait(), reply_wait() and reply(), or NULL and errno.
 * switchto_door_close() frees it.
 *
 * errno: EBUSY, another thread serves; EINVAL, @fd is no door of this version and page size, or
 * @flags is wrong; EPERM, the file is not sealed against truncation and more seals, or it is sealed
 * against writing; ENOTSUP, this thread has no robust list of the wanted form (another C library, a
 * bare clone(2)); ENOMEM, also for the limit of locked memory; the initialization errors of
 * switchto.h; the errors of fstat(2) and mmap(2).
 *
 * Thread-safe. Not async-signal-safe, not async-cancel-safe. Registers the thread.
 */
struct switchto_door *switchto_door_serve(int fd, unsigned int flags);

/**
 * switchto_door_connect() - become a caller of a door
 * @fd, @flags:	as for switchto_door_serve()
 *
 * The server need not be there yet.
 *
 * Return: a handle for switchto_door_call(), or NULL and errno.
 *
 * errno: EAGAIN, all SWITCHTO_DOOR_CALLERS places are taken (also an initialization error); the
 * others as for switchto_door_serve(), without EBUSY.
 *
 * Safety: as switchto_door_serve().
 */
struct switchto_door *switchto_door_connect(int fd, unsigned int flags);

/**
 * switchto_door_call() - call the server, and wait for its answer
 * @door:	a caller's handle of this thread
 * @message:	the message; after success the answer. Unchanged after an error.
 * @deadline:	a time on CLOCK_MONOTONIC, or NULL: for ever
 *
 * After ETIMEDOUT the server may still work on the call. Then the next call first waits until the
 * server has finished, and drops that answer.
 *
 * Return: 0, or -1 and errno.
 *
 * errno: EOWNERDEAD, the server died or left; ENOTCONN, there has been no server yet; ETIMEDOUT;
 * EINVAL, @deadline is no valid time, or @door is a server's; EPERM, @door belongs to another
 * thread or to the parent process; EPROTO, the other side wrote what it must not write.
 *
 * Thread-safe: only for threads with a handle each. Not async-signal-safe, not async-cancel-safe.
 * Releases to the server, acquires from it.
 *
 * One futex(2) call if the server waits and answers: FUTEX_SWAP, or FUTEX_WAKE and FUTEX_WAIT.
 */
int switchto_door_call(struct switchto_door *door, struct switchto_door_message *message,
		       const struct timespec *deadline);

/**
 * switchto_door_wait() - wait for a call
 * @door:	a server's handle of this thread
 * @message:	where to put the caller's message. Unchanged after an error.
 * @deadline:	as for switchto_door_call()
 *
 * Return: the number of the caller's place, 0 ... SWITCHTO_DOOR_CALLERS - 1, or -1 and errno.
 * A caller keeps its place until it closes its handle or dies.
 *
 * errno: ETIMEDOUT; EBUSY, this server has taken a call and not answered it; EINVAL, @deadline is
 * no valid time, or @door is a caller's; EPERM as switchto_door_call().
 *
 * Safety: as switchto_door_call(). Acquires from the caller.
 */
int switchto_door_wait(struct switchto_door *door, struct switchto_door_message *message,
		       const struct timespec *deadline);

/**
 * switchto_door_reply_wait() - answer the call, and wait for the next one
 * @door:	a server's handle of this thread
 * @message:	the answer; after success the next call's message. Unchanged after an error.
 * @deadline:	as for switchto_door_call()
 *
 * Return: as switchto_door_wait(). After ETIMEDOUT the answer has been given.
 *
 * errno: ETIMEDOUT; EINVAL, EPERM as switchto_door_wait(), and EINVAL if there is no call to
 * answer. After EINVAL and EPERM nothing has happened.
 *
 * Safety: as switchto_door_call(). Releases to the caller, acquires from the next.
 *
 * One futex(2) call if nobody else calls meanwhile: FUTEX_SWAP, or FUTEX_WAKE and FUTEX_WAIT.
 */
int switchto_door_reply_wait(struct switchto_door *door, struct switchto_door_message *message,
			     const struct timespec *deadline);

/**
 * switchto_door_reply() - answer the call, and go on
 * @door:	a server's handle of this thread
 * @message:	the answer
 *
 * Return: 0, or -1 and errno: EINVAL, EPERM as switchto_door_reply_wait().
 *
 * Safety: as switchto_door_call(). Releases to the caller.
 */
int switchto_door_reply(struct switchto_door *door, const struct switchto_door_message *message);

/**
 * switchto_door_close() - free a handle
 * @door:	a handle of this thread, or NULL: nothing is done
 *
 * A server leaves the door: calls fail with EOWNERDEAD, the one being served among them. A
 * caller gives up its place. The door stays.
 *
 * Return: 0, or -1 and errno: EPERM, @door belongs to another thread or to the parent process.
 *
 * Thread-safe. Not async-signal-safe, not async-cancel-safe.
 */
int switchto_door_close(struct switchto_door *door);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif /* SWITCHTO_DOOR_H */
