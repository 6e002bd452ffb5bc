// SPDX-License-Identifier: MIT
/*
 * Tortures the scheduling layer: rounds of tasks and other threads that make all its calls, at
 * random, but switchto_policy_queue(), which is for policies. A round is one scheduler, with a
 * policy, a number of slots and all else from its seed.
 *
 * What must hold: who waits without a deadline is woken (or the watchdog ends the program), what
 * is sent is received once, nothing is counted twice, and nothing is left at the end of a round.
 *
 *	sched_torture SLOTS [EVENTS [SEED]]		SLOTS 0: 1 to 4, by the seed; EVENTS 20s: for
 *							20 seconds
 *	sched_torture_windows ...			the same, with delays between atomic steps, and
 *							with calls that fail: faults.h
 */
#include "sched.h"

#include <inttypes.h>
#include <linux/io_uring.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

enum { MUTEXES = 3, CHANS = 3, PAIRS = 2, WORKERS = 24, HELPERS = 2, TOKENS = 3 };

/* Two pipes, the two ends of sockets, and the pipe that io_uring reads and writes: it blocks. */
enum { STREAM = 2, DATAGRAMS, AWAITED, PIPES };

/* A message has at most so many bytes, and so has the file. */
enum { BYTES = 3000 };

/* The leader, readers, pairs and workers, and a child of each of these. */
enum { THREADS_NEEDED = 1 + 2 + PAIRS * 2 + 2 * WORKERS };

/* Of these channels, the first has a reader that never stops, the second such a sender. */
enum { DRAINED, FED, FREE };

static struct {
	struct switchto_sched *sched;
	unsigned int workers, ops, helpers;
	bool stops; /* it is stopped in the middle, and all tasks are cancelled */
	bool blocks;
	bool cancels;
	bool awaits;				   /* the engine is io_uring */
	struct switchto_task *handle[WORKERS + 1]; /* the leader is the first */
	atomic_uint handles;
	atomic_uint left; /* tasks that others have handles of, and that use these */
	atomic_bool over; /* the workers have ended: the helpers are to end */
	pthread_t helper[HELPERS];

	struct switchto_mutex mutex[MUTEXES];
	struct switchto_cond cond[MUTEXES];
	unsigned long counted[MUTEXES]; /* under the mutex */
	atomic_ulong count[MUTEXES];
	struct switchto_sem sem;
	struct switchto_group group;
	struct switchto_chan *chan[CHANS];
	atomic_ulong sent[CHANS], received[CHANS];
	int pipe[PIPES][2];
	atomic_ulong written[PIPES], read[PIPES];
	atomic_ulong content; /* the sum of all that is in the pipes */
	int file;	      /* each byte is that of its offset */
	int listener;	      /* of UNIX, at @address */
	struct sockaddr_un address;
	socklen_t address_size;
	pid_t process; /* that ends soon; or 0 */
	struct pair {
		struct switchto_task *task[2];
		atomic_uint turn;
	} pair[PAIRS];
	struct switchto_group working;
	uint64_t seed;
} round_;

/* One who acts: its dice, and whether it is a task. */
struct actor {
	uint32_t dice;
	bool task;
	bool cancelled;
};

static atomic_ulong events, rounds, faults;

/* Roughly: signals cut it short. */
static void nap(long ns)
{
	nanosleep(&(struct timespec){ .tv_nsec = ns }, NULL);
}

#ifdef SWITCHTO_DELAY_POINTS
#include "faults.h"

#define set_windows(of_round) \
	(windows = (struct windows){ 200, 200000, 2, (uint32_t)(of_round)*0x9e3779b9U })
#else
#define set_windows(of_round) ((void)(of_round))
#define faults_random(seed, one_in) ((void)(one_in))
#define faults_made(error) 0UL
#define faults_left() 0L
#endif

/* An error that was put into the layer. Of these two, the layer tries again. */
static bool put_in(int error)
{
	return error != EINTR && error != EBUSY && faults_made(error);
}

/* Is a call with this result to be made again? */
static bool again(int result)
{
	if (result && put_in(errno))
		return true;
	CHECK_EQ(&verdict, result, 0);
	return false;
}

static unsigned int roll(struct actor *a, unsigned int sides)
{
	return random_next(&a->dice) % sides;
}

static struct actor actor(uint64_t index, bool task)
{
	const uint64_t mixed = (round_.seed + index * 0x10001 + 1) * 0x9e3779b97f4a7c15;

	return (struct actor){ .dice = (uint32_t)(mixed >> 32) | 1, .task = task };
}

/* Mostly soon. */
static struct timespec soon(struct actor *a)
{
	return in(roll(a, 4) ? roll(a, 300) * USEC : -1);
}

/* What a wait may end with beside success. */
static bool went_well(struct actor *a, long result)
{
	if (result >= 0)
		return true;
	if (errno == ECANCELED) {
		CHECK(&verdict, a->task && (round_.cancels || round_.stops));
		a->cancelled = true;
	} else if (errno == EAGAIN || !put_in(errno)) {
		CHECK_EQ(&verdict, errno, ETIMEDOUT);
	}
	return false;
}

/* --- what an actor does: tasks and other threads ---------------------------------- */

static void lock_and_count(struct actor *a)
{
	unsigned int which = roll(a, MUTEXES);
	struct switchto_mutex *mutex = &round_.mutex[which];
	struct timespec at;

	switch (roll(a, 4)) {
	case 0:
		if (switchto_mutex_trylock(mutex)) {
			CHECK_EQ(&verdict, errno, EBUSY);
			return;
		}
		break;
	case 1:
		at = soon(a);
		if (switchto_mutex_lock_until(mutex, &at)) {
			CHECK(&verdict, errno == ETIMEDOUT || put_in(errno));
			return;
		}
		break;
	default:
		CHECK_EQ(&verdict, switchto_mutex_lock(mutex), 0);
		break;
	}
	round_.counted[which]++;
	atomic_fetch_add(&round_.count[which], 1);
	switch (roll(a, 6)) {
	case 0:
		if (a->task && switchto_yield())
			a->cancelled = true;
		break;
	case 1:
		at = soon(a);
		went_well(a, switchto_cond_wait(&round_.cond[which], mutex, &at));
		round_.counted[which]++;
		atomic_fetch_add(&round_.count[which], 1);
		break;
	case 2:
		switchto_cond_signal(&round_.cond[which]);
		break;
	default:
		break;
	}
	CHECK_EQ(&verdict, switchto_mutex_unlock(mutex), 0);
	if (!roll(a, 4))
		switchto_cond_broadcast(&round_.cond[which]);
}

static void take_token(struct actor *a)
{
	struct timespec at = soon(a);

	/* Who has one gives it back: so a wait may be for ever. */
	if (!went_well(a, switchto_sem_wait(&round_.sem, roll(a, 2) ? &at : NULL)))
		return;
	if (a->task && !roll(a, 2) && switchto_yield())
		a->cancelled = true;
	switchto_sem_post(&round_.sem);
}

static void send_item(struct actor *a)
{
	struct timespec at = soon(a);
	unsigned long item = roll(a, 1000);
	unsigned int which = roll(a, 2) ? DRAINED : FREE;

	if (went_well(a,
		      switchto_chan_send(round_.chan[which], &item,
					 a->task && which == DRAINED && roll(a, 2) ? NULL : &at)))
		atomic_fetch_add(&round_.sent[which], item);
}

static void receive_item(struct actor *a)
{
	struct timespec at = soon(a);
	unsigned long item = 0;
	unsigned int which = roll(a, 2) ? FED : FREE;

	if (went_well(a, switchto_chan_recv(round_.chan[which], &item, &at)))
		atomic_fetch_add(&round_.received[which], item);
}

static void select_one(struct actor *a)
{
	struct timespec at = soon(a);
	unsigned long in = 0, in2 = 0, out = roll(a, 1000);
	struct switchto_case cases[] = {
		{ .chan = round_.chan[FREE], .op = SWITCHTO_RECEIVE, .item = &in },
		{ .chan = round_.chan[DRAINED], .op = SWITCHTO_SEND, .item = &out },
		{ .chan = round_.chan[FED], .op = SWITCHTO_RECEIVE, .item = &in2 },
	};
	unsigned int first = roll(a, 3), count = 1 + roll(a, 3 - first);
	int done = switchto_select(cases + first, count, &at);

	if (!went_well(a, done))
		return;
	CHECK(&verdict, !cases[first + done].closed);
	switch (first + done) {
	case 0:
		atomic_fetch_add(&round_.received[FREE], in);
		break;
	case 1:
		atomic_fetch_add(&round_.sent[DRAINED], out);
		break;
	default:
		atomic_fetch_add(&round_.received[FED], in2);
		break;
	}
}

static struct switchto_task *somebody(struct actor *a)
{
	return round_.handle[roll(a, atomic_load(&round_.handles))];
}

static void wake_somebody(struct actor *a)
{
	if (switchto_unpark(somebody(a)))
		CHECK_EQ(&verdict, errno, ESRCH);
}

static void change_somebody(struct actor *a)
{
	const struct switchto_task_attr attr = {
		.priority = (int)roll(a, SWITCHTO_PRIORITIES),
		.weight = roll(a, 5),
		.deadline = roll(a, 2) ? soon(a) : (struct timespec){ 0 },
	};

	if (switchto_task_set_attr(somebody(a), &attr))
		CHECK(&verdict, errno == ESRCH || put_in(errno));
}

static void cancel_somebody(struct actor *a)
{
	if (round_.stops && !roll(a, 500))
		CHECK_EQ(&verdict, switchto_sched_stop(round_.sched, SWITCHTO_STOP_CANCEL), 0);
	if (round_.cancels && !roll(a, 16) && switchto_cancel(somebody(a)))
		CHECK_EQ(&verdict, errno, ESRCH);
}

static void use_group(struct actor *a)
{
	struct timespec at = soon(a);

	if (roll(a, 2)) {
		went_well(a, switchto_group_wait(&round_.group, &at));
		return;
	}
	switchto_group_add(&round_.group, 2);
	CHECK_EQ(&verdict, switchto_group_done(&round_.group), 0);
	if (a->task && switchto_yield())
		a->cancelled = true;
	CHECK_EQ(&verdict, switchto_group_done(&round_.group), 0);
}

/* --- tasks only -------------------------------------------------------------------- */

static void park(struct actor *a)
{
	struct timespec at = soon(a);

	went_well(a, switchto_park(&at));
}

static void sleep_a_while(struct actor *a)
{
	struct timespec at = soon(a);

	went_well(a, switchto_sleep_until(&at));
}

/* In a shield, no wait ends because it was cancelled. */
static void wait_in_shield(struct actor *a)
{
	struct timespec at = soon(a);
	bool nests = roll(a, 2);

	CHECK_EQ(&verdict, switchto_shield_begin(), 0);
	if (nests) {
		CHECK_EQ(&verdict, switchto_shield_begin(), 0);
		CHECK_EQ(&verdict, switchto_shield_end(), 0);
	}
	if (roll(a, 2) ? switchto_park(&at) : switchto_sleep_until(&at))
		CHECK(&verdict, errno == ETIMEDOUT || put_in(errno));
	CHECK_EQ(&verdict, switchto_shield_end(), 0);
}

static void lock_file(int fd, long ns)
{
	int error;

	do
		error = flock(fd, LOCK_EX) ? errno : 0;
	while (error == EINTR);
	CHECK_EQ(&verdict, error, 0);
	nap(ns);
}

/* As in code that knows nothing of tasks. The last page of this program is one that nothing has mapped. */
static void block_for(struct actor *a, long ns)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	const int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

	switch (roll(a, 6)) {
	case 0:
		pthread_mutex_lock(&lock);
		nap(ns / 8);
		pthread_mutex_unlock(&lock);
		break;
	case 1:
		lock_file(fd, ns / 8);
		break;
	case 2:
		touch_cold_page(fd, (lseek(fd, 0, SEEK_END) - 1) & -65536);
		break;
	default:
		nap(ns);
	}
	close(fd);
}

static void block(struct actor *a)
{
	bool region = roll(a, 4);
	long pause = roll(a, 200) * USEC;

	if (!round_.blocks)
		return;
	/* A longer one outside a region: the monitor is to see it. */
	if (!region && !roll(a, 8))
		pause = 10000 * USEC;
	if (region)
		CHECK_EQ(&verdict, switchto_block_begin(), 0);
	block_for(a, pause);
	if (region && !roll(a, 2))
		wake_somebody(a);
	if (region)
		CHECK_EQ(&verdict, switchto_block_end(), 0);
}

static ssize_t await_io(bool write, void *data, size_t size, const struct timespec *deadline)
{
	const struct io_uring_sqe sqe = {
		.opcode = write ? IORING_OP_WRITE : IORING_OP_READ,
		.fd = round_.pipe[AWAITED][write],
		.addr = (uintptr_t)data,
		.len = (uint32_t)size,
		.off = (uint64_t)-1,
	};

	return switchto_await(&sqe, NULL, deadline);
}

/* A pipe has the first ones only. Then all that write follow. */
enum { READ, READV, OF_PIPES, RECV = OF_PIPES, RECVFROM, RECVMSG, RECVMMSG, WRITES };
enum {
	WRITE = WRITES,
	WRITEV,
	SENDFILE,
	TO_PIPES,
	SEND = TO_PIPES,
	SENDTO,
	SENDMSG,
	SENDMMSG,
	ALL
};

static ssize_t move_bytes(unsigned int how, int fd, char *data, size_t size, int flags,
			  const struct timespec *deadline)
{
	struct iovec parts[2] = { { data, size / 2 }, { data + size / 2, size - size / 2 } };
	struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2 };
	struct mmsghdr two[2] = { { .msg_hdr = { .msg_iov = &parts[0], .msg_iovlen = 1 } },
				  { .msg_hdr = { .msg_iov = &parts[1], .msg_iovlen = 1 } } };
	struct sockaddr_un from;
	socklen_t length = sizeof(from);
	off_t offset = (unsigned char)data[0]; /* the file goes on like data */
	int done;

	switch (how) {
	case READ:
		return switchto_read(fd, data, size, deadline);
	case READV:
		return switchto_readv(fd, parts, 2, deadline);
	case RECV:
		return switchto_recv(fd, data, size, flags, deadline);
	case RECVFROM:
		return switchto_recvfrom(fd, data, size, flags, (struct sockaddr *)&from, &length,
					 deadline);
	case RECVMSG:
		return switchto_recvmsg(fd, &message, flags, deadline);
	case WRITE:
		return switchto_write(fd, data, size, deadline);
	case WRITEV:
		return switchto_writev(fd, parts, 2, deadline);
	case SENDFILE:
		return switchto_sendfile(fd, round_.file, &offset, size, deadline);
	case SEND:
		return switchto_send(fd, data, size, 0, deadline);
	case SENDTO:
		return switchto_sendto(fd, data, size, 0, NULL, 0, deadline);
	case SENDMSG:
		return switchto_sendmsg(fd, &message, 0, deadline);
	default:
		done = how == RECVMMSG ? switchto_recvmmsg(fd, two, 2, flags, deadline) :
					 switchto_sendmmsg(fd, two, 2, 0, deadline);
		return done < 0	 ? -1 :
		       done == 1 ? two[0].msg_len :
				   two[0].msg_len + (ssize_t)two[1].msg_len;
	}
}

/* The ring is full of what the kernel did not take. */
static bool is_full(long result)
{
	return result < 0 && errno == EAGAIN && put_in(EAGAIN);
}

static unsigned long sum_of(const char *data, size_t size)
{
	unsigned long sum = 0;

	for (size_t i = 0; i < size; i++)
		sum += (unsigned char)data[i];
	return sum;
}

static void use_pipe(struct actor *a)
{
	const unsigned int which = roll(a, round_.awaits ? PIPES : AWAITED);
	const bool write = roll(a, 2), socket = which == STREAM || which == DATAGRAMS;
	const struct timespec at = soon(a);
	/* Two messages have room. An empty one would look like the end. */
	char data[2 * BYTES] = { 0 };
	const size_t size = which == DATAGRAMS && !write ? sizeof(data) : 2 + roll(a, BYTES - 1);
	const unsigned int first = roll(a, 256);
	ssize_t done;

	for (unsigned int i = 0; write && i < size; i++)
		data[i] = (char)(first + i);
	if (which == AWAITED)
		done = await_io(write, data, size, &at);
	else
		done = move_bytes(write ? WRITES + roll(a, (socket ? ALL : TO_PIPES) - WRITES) :
					  roll(a, socket ? WRITES : OF_PIPES),
				  round_.pipe[which][write], data, size,
				  roll(a, 2) ? MSG_WAITALL : 0, &at);
	if (is_full(done) || !went_well(a, done))
		return;
	atomic_fetch_add(write ? &round_.written[which] : &round_.read[which], done);
	/* What was read may be in two parts, with zeros between them. */
	atomic_fetch_add(&round_.content, write ? sum_of(data, done) : -sum_of(data, sizeof(data)));
}

static void splice_pipes(struct actor *a)
{
	const unsigned int from = roll(a, 2);
	const struct timespec at = soon(a);
	const ssize_t done = switchto_splice(round_.pipe[from][0], NULL, round_.pipe[!from][1],
					     NULL, 1 + roll(a, BYTES), 0, &at);

	if (!went_well(a, done))
		return;
	atomic_fetch_add(&round_.read[from], done);
	atomic_fetch_add(&round_.written[!from], done);
}

static void use_file(struct actor *a)
{
	const unsigned int offset = roll(a, BYTES), size = 1 + roll(a, BYTES - offset);
	const struct timespec at = soon(a);
	char data[BYTES];
	struct iovec part = { data, size };
	const unsigned int how = roll(a, 5);
	ssize_t done = 0;

	for (unsigned int i = 0; i < size; i++)
		data[i] = how < 2 ? 0 : (char)(offset + i);
	switch (how) {
	case 0:
		done = switchto_pread(round_.file, data, size, offset, &at);
		break;
	case 1:
		done = switchto_preadv(round_.file, &part, 1, offset, &at);
		break;
	case 2:
		done = switchto_pwrite(round_.file, data, size, offset, &at);
		break;
	case 3:
		done = switchto_pwritev(round_.file, &part, 1, offset, &at);
		break;
	default:
		done = switchto_fsync(round_.file);
		break;
	}
	if (is_full(done) || !went_well(a, done))
		return;
	for (unsigned int i = 0; i < (unsigned int)done; i++)
		CHECK_EQ(&verdict, data[i], (char)(offset + i));
}

/* As a library does it that closes by itself. The number is another one's at once. */
static void poll_copy(struct actor *a)
{
	const unsigned int which = roll(a, AWAITED), write = roll(a, 2);
	const struct timespec at = soon(a);
	const int fd = dup(round_.pipe[which][write]);

	CHECK(&verdict, fd >= 0);
	went_well(a, switchto_poll(fd, write ? POLLOUT : POLLIN, &at));
	CHECK_EQ(&verdict, switchto_forget(fd), 0);
	close(fd);
}

/* A descriptor of one's own, or the reason for none. */
static void use_descriptor(struct actor *a, int fd)
{
	if (went_well(a, fd))
		CHECK_EQ(&verdict, switchto_close(fd), 0);
}

static void open_one(struct actor *a)
{
	use_descriptor(a, switchto_openat(AT_FDCWD, "/dev/null", O_RDWR | O_CLOEXEC, 0));
}

static void connect_one(struct actor *a)
{
	const struct timespec at = soon(a);
	const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	CHECK(&verdict, fd >= 0);
	went_well(a, switchto_connect(fd, (struct sockaddr *)&round_.address, round_.address_size,
				      &at));
	CHECK_EQ(&verdict, switchto_close(fd), 0);
}

static void accept_one(struct actor *a)
{
	const struct timespec at = soon(a);

	use_descriptor(a, switchto_accept(round_.listener, NULL, NULL, SOCK_CLOEXEC, &at));
}

static void wait_for_process(struct actor *a)
{
	const struct timespec at = soon(a);
	siginfo_t info = { 0 };

	if (round_.process && went_well(a, switchto_waitid(P_PID, (id_t)round_.process, &info,
							   WEXITED | WNOWAIT, &at)))
		CHECK_EQ(&verdict, info.si_pid, round_.process);
}

static void leave(void *unused)
{
	atomic_fetch_sub(&round_.left, 1);
}

/* Nobody waits for this one. */
static void let_one_go(struct actor *a)
{
	struct switchto_task_stats stats;
	struct switchto_task *task;
	const unsigned int slots_there = switchto_sched_slots(round_.sched);

	atomic_fetch_add(&round_.left, 1);
	if (switchto_spawn(NULL, leave, NULL, NULL, &task)) {
		CHECK(&verdict, put_in(errno) || (errno == ECANCELED && round_.stops));
		atomic_fetch_sub(&round_.left, 1);
		return;
	}
	CHECK(&verdict, (unsigned int)switchto_task_slot(task) < slots_there);
	if (switchto_task_stats(task, &stats))
		CHECK_EQ(&verdict, errno, ENOTSUP);
	CHECK_EQ(&verdict, switchto_detach(task), 0);
}

/* A byte of a pipe, or an item. */
static void select_pipe(struct actor *a)
{
	const unsigned int which = roll(a, DATAGRAMS);
	struct pollfd poller = { .fd = round_.pipe[which][0], .events = POLLIN };
	const struct timespec at = soon(a), past = { 0 };
	unsigned long item = 0;
	struct switchto_case cases[] = {
		{ .op = SWITCHTO_POLL, .item = &poller },
		{ .chan = roll(a, 2) ? round_.chan[FREE] : NULL,
		  .op = SWITCHTO_RECEIVE,
		  .item = &item },
	};
	const int done = switchto_select(cases, 2, &at);
	char byte;

	if (!went_well(a, done))
		return;
	if (done == 1) {
		atomic_fetch_add(&round_.received[FREE], item);
	} else if (switchto_read(poller.fd, &byte, 1, &past) == 1) {
		atomic_fetch_add(&round_.read[which], 1);
		atomic_fetch_sub(&round_.content, sum_of(&byte, 1));
	}
}

struct family {
	uint64_t index;
	int socket;
};

static void child(void *arg)
{
	struct family *family = arg;
	struct actor a = actor(family->index, true);
	char byte;
	ssize_t done;

	if (roll(&a, 2))
		switchto_yield();
	if (family->socket < 0)
		return;
	done = switchto_recv(family->socket, &byte, 1, 0, NULL);
	if (done < 0)
		CHECK(&verdict,
		      put_in(errno) || (errno == ECANCELED && (round_.stops || round_.cancels)));
	else
		CHECK(&verdict, done <= 1);
}

/*
 * Long: where the policy says so, one who comes back again and again keeps others from running. And
 * longer each time: on a machine that is starved, the monitor may take longer than that.
 */
static void pause_in_region(long *pause)
{
	CHECK_EQ(&verdict, switchto_block_begin(), 0);
	nap(*pause);
	CHECK_EQ(&verdict, switchto_block_end(), 0);
	if (*pause < NSEC_PER_SEC / 4)
		*pause *= 2;
}

/* One who is cancelled asks again and again, or in a shield. */
static void join(struct actor *a, struct switchto_task *task)
{
	struct timespec at = soon(a);
	long pause = 3000 * USEC;

	if (!roll(a, 4)) {
		CHECK_EQ(&verdict, switchto_shield_begin(), 0);
		if (switchto_join_until(task, &at)) {
			CHECK(&verdict, errno == ETIMEDOUT || put_in(errno));
			CHECK_EQ(&verdict, switchto_join(task), 0);
		}
		CHECK_EQ(&verdict, switchto_shield_end(), 0);
		return;
	}
	while (switchto_join(task)) {
		CHECK_EQ(&verdict, errno, ECANCELED);
		CHECK(&verdict, round_.cancels || round_.stops);
		a->cancelled = true;
		pause_in_region(&pause);
	}
}

/* A child that may wait for a byte of its parent, or for the end of its descriptor. */
static void have_child(struct actor *a)
{
	int sockets[2] = { -1, -1 };
	struct family family = { .index = random_next(&a->dice) };
	struct switchto_task *task;
	bool ends, cancel;

	if (roll(a, 2) && socketpair(AF_UNIX, SOCK_STREAM, 0, sockets)) {
		CHECK_EQ(&verdict, errno, 0);
		return;
	}
	family.socket = sockets[0];
	if (switchto_spawn_on(NULL, -1 - (int)roll(a, 3), child, &family, NULL, &task)) {
		CHECK(&verdict, put_in(errno) || (errno == ECANCELED && round_.stops));
		a->cancelled = true;
		task = NULL;
	}
	ends = task && round_.cancels && !roll(a, 8);
	cancel = ends && roll(a, 2);
	if (cancel && switchto_cancel(task))
		CHECK_EQ(&verdict, errno, ESRCH);
	if (roll(a, 2) && switchto_yield())
		a->cancelled = true;
	/* The child's end stays open: when the child reads, the number might be another's by then. */
	if (sockets[0] >= 0) {
		if (roll(a, 2))
			CHECK(&verdict, switchto_send(sockets[1], "", 1, 0, NULL) == 1 ||
						errno == ECANCELED || put_in(errno));
		CHECK_EQ(&verdict, switchto_close(sockets[1]), 0);
	}
	/* The other end is closed, so the child ends by itself. */
	if (ends && !cancel)
		CHECK_EQ(&verdict, switchto_end(task), 0);
	else if (task)
		join(a, task);
	if (sockets[0] >= 0)
		CHECK_EQ(&verdict, switchto_close(sockets[0]), 0);
}

static void act(struct actor *a)
{
	static void (*const of_all[])(struct actor *) = {
		lock_and_count, take_token,	 send_item, receive_item,   select_one,
		wake_somebody,	cancel_somebody, use_group, change_somebody
	};
	static void (*const of_tasks[])(struct actor *) = {
		park,	      sleep_a_while,	wait_in_shield, block,	  use_pipe,    select_pipe,
		splice_pipes, use_file,		poll_copy,	open_one, connect_one, accept_one,
		have_child,   wait_for_process, let_one_go
	};
	enum {
		ANY = sizeof(of_all) / sizeof(of_all[0]),
		TASKS = sizeof(of_tasks) / sizeof(of_tasks[0])
	};
	unsigned int what = roll(a, a->task ? ANY + TASKS + 3 : ANY);

	atomic_fetch_add_explicit(&events, 1, memory_order_relaxed);
	if (what < ANY)
		of_all[what](a);
	else if (what < ANY + TASKS)
		of_tasks[what - ANY](a);
	else if (switchto_yield())
		a->cancelled = true;
}

/* --- who acts ---------------------------------------------------------------------- */

static void worker(void *arg)
{
	struct actor a = actor((uintptr_t)arg, true);

	for (unsigned int i = 0; i < round_.ops && !a.cancelled; i++)
		act(&a);
	switchto_group_done(&round_.working);
	atomic_fetch_sub(&round_.left, 1);
}

static void guest(void *arg)
{
	struct actor a = actor((uintptr_t)arg, true);

	for (unsigned int i = 0; i < 3; i++)
		act(&a);
	atomic_fetch_sub(&round_.left, 1);
}

static void *helper(void *arg)
{
	struct actor a = actor(1000 + (uintptr_t)arg, false);

	while (!atomic_load(&round_.over)) {
		act(&a);
		if (!roll(&a, 8)) {
			atomic_fetch_add(&round_.left, 1);
			if (switchto_spawn(round_.sched, guest, (void *)(uintptr_t)roll(&a, 10000),
					   NULL, NULL)) {
				CHECK(&verdict,
				      put_in(errno) || (errno == ECANCELED && round_.stops));
				atomic_fetch_sub(&round_.left, 1);
			}
		}
		if (!roll(&a, 8)) {
			CHECK_EQ(&verdict, switchto_sched_hold(round_.sched), 0);
			nap(roll(&a, 20) * USEC);
			CHECK_EQ(&verdict, switchto_sched_release(round_.sched), 0);
		}
		nap(roll(&a, 100) * USEC);
	}
	return NULL;
}

/* Two that wait for each other without a deadline. Strangers unpark nobody here. */
static void play(void *arg)
{
	struct pair *pair = &round_.pair[(uintptr_t)arg / 2];
	unsigned int side = (uintptr_t)arg % 2, turn;
	bool plays = true;

	while (plays && (turn = atomic_load(&pair->turn)) < round_.ops) {
		if (turn % 2 != side) {
			plays = !switchto_park(NULL);
			CHECK(&verdict, plays || (errno == ECANCELED && round_.stops));
			continue;
		}
		atomic_fetch_add(&events, 1);
		atomic_store(&pair->turn, turn + 1);
		/* The other one may have had the last turn before that. */
		if (switchto_unpark(pair->task[!side]))
			CHECK(&verdict, errno == ESRCH && (round_.stops || turn + 2 >= round_.ops));
	}
	switchto_group_done(&round_.working);
	atomic_fetch_sub(&round_.left, 1);
}

static void drain(void *arg)
{
	unsigned long item;

	while (!switchto_chan_recv(round_.chan[DRAINED], &item, NULL))
		atomic_fetch_add(&round_.received[DRAINED], item);
	CHECK(&verdict, errno == EPIPE || (errno == ECANCELED && round_.stops));
}

static void feed(void *arg)
{
	unsigned long item = 1;

	while (!switchto_chan_send(round_.chan[FED], &item, NULL))
		atomic_fetch_add(&round_.sent[FED], item++);
	CHECK(&verdict, errno == EPIPE || (errno == ECANCELED && round_.stops));
}

/* --- a round ----------------------------------------------------------------------- */

/* False: the scheduler has been stopped. */
static bool begin(void (*fn)(void *), uintptr_t arg, const struct switchto_task_attr *attr,
		  struct switchto_task **task)
{
	do {
		// NOLINTNEXTLINE(performance-no-int-to-ptr)
		if (!switchto_spawn(NULL, fn, (void *)arg, attr, task))
			return true;
	} while (put_in(errno));
	CHECK(&verdict, errno == ECANCELED && round_.stops);
	return false;
}

static bool begin_counted(void (*fn)(void *), uintptr_t arg, const struct switchto_task_attr *attr,
			  struct switchto_task **task)
{
	atomic_fetch_add(&round_.left, 1);
	switchto_group_add(&round_.working, 1);
	if (begin(fn, arg, attr, task))
		return true;
	CHECK_EQ(&verdict, switchto_group_done(&round_.working), 0);
	atomic_fetch_sub(&round_.left, 1);
	return false;
}

static void begin_workers(struct actor *a)
{
	for (uintptr_t i = 0; i < round_.workers; i++) {
		const struct switchto_task_attr attr = {
			.priority = (int)roll(a, SWITCHTO_PRIORITIES),
			.weight = roll(a, 5),
			.deadline = roll(a, 2) ? soon(a) : (struct timespec){ 0 },
		};

		if (!begin_counted(worker, i, &attr, &round_.handle[i + 1]))
			return;
		atomic_store(&round_.handles, i + 2);
	}
}

/* Where others may still use the handles of tasks, nobody gives them back. */
static void lead(void *arg)
{
	struct actor a = actor(10000, true);
	struct switchto_task *readers[2] = { NULL };
	unsigned int helpers = 0;
	long pause = 3000 * USEC;

	round_.handle[0] = switchto_task_self();
	atomic_store(&round_.handles, 1);
	begin(drain, 0, NULL, &readers[0]);
	begin(feed, 0, NULL, &readers[1]);
	/* The second of a pair has the first turn: then both handles are known. */
	for (unsigned int i = 0; i < PAIRS; i++)
		atomic_store(&round_.pair[i].turn, 1);
	for (uintptr_t i = 0; i < PAIRS * 2; i++)
		if (!begin_counted(play, i, NULL, &round_.pair[i / 2].task[i % 2]))
			break;
	begin_workers(&a);
	for (; helpers < round_.helpers; helpers++)
		if (pthread_create(&round_.helper[helpers], NULL, helper,
				   (void *)(uintptr_t)helpers))
			break;

	if (switchto_group_wait(&round_.working, NULL))
		CHECK_EQ(&verdict, errno, ECANCELED);
	atomic_store(&round_.over, true);
	switchto_block_begin();
	while (helpers)
		pthread_join(round_.helper[--helpers], NULL);
	switchto_block_end();
	while (atomic_load(&round_.left))
		pause_in_region(&pause);

	for (unsigned int i = 1; i < atomic_load(&round_.handles); i++)
		join(&a, round_.handle[i]);
	for (unsigned int i = 0; i < PAIRS * 2; i++)
		if (round_.pair[i / 2].task[i % 2])
			join(&a, round_.pair[i / 2].task[i % 2]);
	for (unsigned int i = 0; i < CHANS; i++)
		CHECK_EQ(&verdict, switchto_chan_close(round_.chan[i]), 0);
	for (unsigned int i = 0; i < 2; i++)
		if (readers[i])
			join(&a, readers[i]);
	for (unsigned int i = 0; i < PIPES; i++) {
		char data[4096];
		ssize_t size;

		CHECK_EQ(&verdict, fcntl(round_.pipe[i][0], F_SETFL, O_NONBLOCK), 0);
		while ((size = read(round_.pipe[i][0], data, sizeof(data))) > 0) {
			atomic_fetch_add(&round_.read[i], size);
			atomic_fetch_sub(&round_.content, sum_of(data, size));
		}
		CHECK_EQ(&verdict, switchto_close(round_.pipe[i][0]), 0);
		CHECK_EQ(&verdict, switchto_close(round_.pipe[i][1]), 0);
	}
	CHECK_EQ(&verdict, switchto_close(round_.file), 0);
	CHECK_EQ(&verdict, switchto_close(round_.listener), 0);
}

static void open_file(void)
{
	char data[BYTES];

	for (unsigned int i = 0; i < BYTES; i++)
		data[i] = (char)i;
	round_.file = memfd_create("torture", MFD_CLOEXEC);
	CHECK_EQ(&verdict, write(round_.file, data, BYTES), BYTES);
}

static void listen_somewhere(void)
{
	struct sockaddr *address = (struct sockaddr *)&round_.address;

	round_.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	round_.address.sun_family = AF_UNIX;
	round_.address_size = sizeof(round_.address);
	CHECK_EQ(&verdict, bind(round_.listener, address, sizeof(sa_family_t)), 0);
	CHECK_EQ(&verdict, getsockname(round_.listener, address, &round_.address_size), 0);
	CHECK_EQ(&verdict, listen(round_.listener, 2), 0);
}

static void begin_process(long ns)
{
	round_.process = fork();
	if (!round_.process) {
		nap(ns);
		_exit(0);
	}
	CHECK(&verdict, round_.process > 0);
	if (round_.process < 0)
		round_.process = 0;
}

static void end_process(void)
{
	pid_t ended;

	do
		ended = round_.process ? waitpid(round_.process, NULL, 0) : 0;
	while (ended == -1 && errno == EINTR);
	CHECK_EQ(&verdict, ended, round_.process);
}

static void open_all(struct actor *a)
{
	for (unsigned int i = 0; i < CHANS; i++) {
		const size_t capacity = roll(a, 2) ? roll(a, 9) : 0;

		while (again(switchto_chan_create(&round_.chan[i], sizeof(long), capacity)))
			;
	}
	for (unsigned int i = 0; i < PIPES; i++)
		CHECK_EQ(&verdict,
			 i == STREAM	? socketpair(AF_UNIX, SOCK_STREAM, 0, round_.pipe[i]) :
			 i == DATAGRAMS ? socketpair(AF_UNIX, SOCK_DGRAM, 0, round_.pipe[i]) :
					  pipe2(round_.pipe[i], i == AWAITED ? 0 : O_NONBLOCK),
			 0);
	open_file();
	listen_somewhere();
	if (!roll(a, 4))
		begin_process(roll(a, 2) ? roll(a, 5000) * USEC : 0);
	round_.sem.count = TOKENS;
}

static void count_all(void)
{
	unsigned long item;

	for (unsigned int i = 0; i < MUTEXES; i++)
		CHECK_EQ(&verdict, round_.counted[i], atomic_load(&round_.count[i]));
	CHECK_EQ(&verdict, round_.sem.count, TOKENS);
	CHECK_EQ(&verdict, round_.group.count, 0);
	for (unsigned int i = 0; i < PIPES; i++)
		CHECK_EQ(&verdict, atomic_load(&round_.written[i]), atomic_load(&round_.read[i]));
	CHECK_EQ(&verdict, atomic_load(&round_.content), 0);
	for (unsigned int i = 0; i < CHANS; i++) {
		while (!switchto_chan_recv(round_.chan[i], &item, NULL))
			atomic_fetch_add(&round_.received[i], item);
		CHECK_EQ(&verdict, errno, EPIPE);
		CHECK_EQ(&verdict, atomic_load(&round_.sent[i]), atomic_load(&round_.received[i]));
		switchto_chan_destroy(round_.chan[i]);
	}
}

/* Each run was ready before. */
static void count_runs(unsigned int slots_there)
{
	struct switchto_slot_stats stats;

	for (unsigned int i = 0; i < slots_there; i++) {
		CHECK_EQ(&verdict, switchto_slot_stats(round_.sched, i, &stats), 0);
		for (unsigned int j = 0; j < SWITCHTO_READY_BUCKETS; j++)
			stats.runs -= stats.ready[j];
		CHECK_EQ(&verdict, stats.runs, 0);
	}
}

/* In a loop of this thread; perhaps only at first. */
static void step_some(struct actor *a)
{
	struct pollfd events = { .events = POLLIN };
	int left = 1;

	do
		events.fd = switchto_sched_fd(round_.sched);
	while (events.fd == -1 && again(-1));
	while (left && roll(a, 1000)) {
		poll(&events, 1, -1);
		left = switchto_sched_step(round_.sched);
		if (left == -1)
			again(-1);
	}
}

static void play_round(uint64_t seed, unsigned int slots_wanted)
{
	struct switchto_sched_options options = OPTIONS(.slots = 0);
	unsigned int files = entries("/proc/self/fd");
	struct actor a;

	memset(&round_, 0, sizeof(round_));
	round_.seed = seed;
	set_windows(seed);
	a = actor(20000, false);
	options.slots = 1 + roll(&a, 4);
	if (slots_wanted)
		options.slots = slots_wanted;
	options.policy = all_policies[roll(&a, 4)];
	options.flags = roll(&a, 4);
	options.idle_threads = roll(&a, 3);
	options.guard_size = roll(&a, 4) ? 0 : SWITCHTO_NO_GUARD;
	options.name = roll(&a, 2) ? "torture" : NULL;
	if (!options.policy->steal)
		options.flags &= ~(unsigned int)SWITCHTO_STEAL;
	round_.workers = 1 + roll(&a, WORKERS - 1);
	round_.ops = 1 + roll(&a, 200);
	round_.helpers = roll(&a, HELPERS + 1);
	round_.stops = !roll(&a, 4);
	round_.cancels = !roll(&a, 2);
	round_.blocks = roll(&a, 2);
	/* With fewer, or any number of guests, those that wait for each other could have all. */
	if (!roll(&a, 4)) {
		options.max_threads = THREADS_NEEDED + roll(&a, 8);
		round_.helpers = 0;
	}
	faults_random(seed, roll(&a, 2) ? 0 : 4U << roll(&a, 8));
	open_all(&a);
	while (again(switchto_sched_create(&round_.sched, &options)))
		;
	round_.awaits = strcmp(switchto_sched_engine(round_.sched), "io_uring") == 0;
	for (int i = 0; i < 2; i++) {
		/* The second run, after a stop or not, has a single task. */
		if (i)
			atomic_fetch_add(&round_.left, 1);
		while (again(switchto_spawn(round_.sched, i ? leave : lead, NULL, NULL, NULL)))
			;
		if (!i && options.slots == 1 && roll(&a, 2))
			step_some(&a);
		while (again(switchto_sched_run(round_.sched)))
			;
		CHECK_EQ(&verdict, switchto_sched_restart(round_.sched), 0);
	}
	CHECK_EQ(&verdict, atomic_load(&round_.left), 0);
	end_process();
	if (options.flags & SWITCHTO_MEASURE)
		count_runs(options.slots);
	CHECK_EQ(&verdict, switchto_sched_destroy(round_.sched), 0);
	count_all();
	CHECK_EQ(&verdict, entries("/proc/self/fd"), files);
	CHECK_EQ(&verdict, faults_left(), 0);
	atomic_fetch_add(&faults, faults_made(0));
}

static void *watch(void *arg)
{
	unsigned long before = ULONG_MAX, now;

	while ((now = atomic_load(&rounds)) != before) {
		before = now;
		sleep(120);
	}
	fprintf(stderr, "sched_torture: a round took 120 s, seed %" PRIu64 "\n", round_.seed);
	abort();
}

static void ignore(int signal) {}

static unsigned long number(const char *text, const char *suffix)
{
	char *end;
	unsigned long value;

	errno = 0;
	value = strtoul(text, &end, 10);
	if (errno || strcmp(end, suffix) != 0 || end == text) {
		fprintf(stderr,
			"sched_torture: wanted SLOTS [EVENTS [SEED]], numbers, found '%s'\n", text);
		exit(2);
	}
	return value;
}

static bool ends_with_s(const char *text)
{
	return *text && text[strlen(text) - 1] == 's';
}

int main(int argc, char **argv)
{
	unsigned int slots_wanted = argc > 1 ? (unsigned int)number(argv[1], "") : 0;
	const bool timed = argc > 2 && ends_with_s(argv[2]);
	const unsigned long wanted = argc > 2 ? number(argv[2], timed ? "s" : "") :
						(unsigned long)LOOPS(50000);
	const time_t begin = time(NULL);
	uint64_t seed = argc > 3 ? number(argv[3], "") : (uint64_t)begin;
	const struct itimerval often = { .it_interval.tv_usec = 3001, .it_value.tv_usec = 3001 };
	const struct sigaction action = { .sa_handler = ignore };
	pthread_t watcher;
	sigset_t alarm;

	/* With SWITCHTO_TRACE, the first one leaves a descriptor open. */
	if (!switchto_sched_create(&round_.sched, NULL))
		switchto_sched_destroy(round_.sched);
	if (!switchto_backend() && errno == ENOSYS) {
		printf("sched_torture: skipped: the kernel lacks what SWITCHTO_BACKEND wants\n");
		return SKIPPED;
	}
	/* Signals would cut the sleep of the watch short. */
	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	pthread_sigmask(SIG_BLOCK, &alarm, NULL);
	if (pthread_create(&watcher, NULL, watch, NULL)) {
		fprintf(stderr, "sched_torture: wanted a thread, found none\n");
		return 1;
	}
	pthread_sigmask(SIG_UNBLOCK, &alarm, NULL);
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &often, NULL);
	while ((timed ? (unsigned long)(time(NULL) - begin) : atomic_load(&events)) < wanted &&
	       !atomic_load(&verdict.failed)) {
		play_round(seed + atomic_load(&rounds), slots_wanted);
		atomic_fetch_add(&rounds, 1);
	}
	if (atomic_load(&verdict.failed)) {
		fprintf(stderr, "sched_torture: %s; seed %" PRIu64 "\n", verdict.text, round_.seed);
		return 1;
	}
	printf("sched_torture: ok rounds=%lu events=%lu faults=%lu seed=%" PRIu64 "\n",
	       atomic_load(&rounds), atomic_load(&events), atomic_load(&faults), seed);
	return 0;
}
