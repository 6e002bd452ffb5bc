/* SPDX-License-Identifier: MIT */
/*
 * Hand-offs between two processes: a door of the library, and what else a program has. The
 * same ping-pong as hand_off.h, with a child instead of a partner thread. The links are in
 * memory that both share, and are made before the fork.
 */
#include <atomic>
#include <new>
#include <semaphore.h>
#include <string>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <csignal>
#include <cstring>
#include <unistd.h>

#include <switchto/door.h>
#include <switchto/switchto.h>

#include "descriptors.h"
#include "die.h"
#include "futex_call.h"
#include "hand_off.h"

namespace {

/* What belongs to the row, beside the link. */
template <class Link>
struct Shared {
	Link link;
	std::atomic<bool> entered{ false };
	bool stop = false; /* handed over with the turn, as is all that follows */
	bool partner_placed = false;
	long answers = 0;
};

template <class Link>
[[noreturn]] void partner_process(Shared<Link> &shared, const Placed &placed)
{
	Link &link = shared.link;
	bool held = placed.holds();
	long n = 0;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	link.enter(PARTNER);
	shared.entered = true;
	link.wait(PARTNER);
	while (!shared.stop) {
		link.hand_off(PARTNER);
		n++;
	}
	shared.answers = n;
	shared.partner_placed = held && placed.holds();
	_exit(0);
}

template <class Link>
void between_processes(benchmark::State &state, Placement placement, Terms *terms = nullptr)
{
	const long rounds = (state.max_iterations + 1) / 2;
	int status;

	if (terms && terms->refused())
		return skip(state, terms->refused());
	if (const char *reason = Link::unavailable(placement))
		return skip(state, reason);
	if (placement == Placement::FREE && allowed_cpus() < 2)
		return skip(state, "one CPU only, the same as one_cpu");

	void *memory = mmap(nullptr, sizeof(Shared<Link>), PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		die("mmap");

	Placed placed(placement);
	auto &shared = *new (memory) Shared<Link>;
	Link &link = shared.link;
	pid_t partner = fork();

	if (partner < 0)
		die("fork");
	if (partner == 0)
		partner_process(shared, placed);

	/* Only now: a handle of a door belongs to the thread that made it. */
	link.enter(MAIN);
	while (!shared.entered)
		sched_yield();
	for (long i = 0; i < warm_up; i++)
		link.hand_off(MAIN);

	Census before = take_census_with(partner);
	while (state.KeepRunningBatch(2 * rounds)) {
		for (long i = rounds; i; i--)
			link.hand_off(MAIN);
	}
	Census after = take_census_with(partner);

	shared.stop = true;
	link.post(PARTNER);
	if (waitpid(partner, &status, 0) != partner || status)
		invalid(state, "the other process ended with status %d", status);
	link.leave();

	check(state, placement, Link::rule(), before, after);
	if (shared.answers != warm_up + rounds)
		invalid(state, "%ld answers to %ld hand-offs", shared.answers, warm_up + rounds);
	if (!shared.partner_placed || !placed.holds())
		invalid(state, "a process ran on a CPU that is not its own");
	shared.~Shared<Link>();
	munmap(memory, sizeof(Shared<Link>));
}

struct Door {
	/* With wake-wait, who is woken may preempt the waker before it waits. */
	static Switches rule()
	{
		return strcmp(switchto_backend(), "swap") == 0 ? Switches::ONE_PER_ITERATION :
								 Switches::REPORTED;
	}

	/* Of each process its own copy is used. */
	static inline switchto_door *door;
	static inline switchto_door_message message;

	int fd = switchto_door_create(-1);

	Door()
	{
		if (fd < 0)
			die("switchto_door_create");
	}

	~Door() { close(fd); }

	static const char *unavailable(Placement) { return nullptr; }

	void enter(Side me)
	{
		door = me == MAIN ? switchto_door_connect(fd, 0) : switchto_door_serve(fd, 0);
		if (!door)
			die("a handle of a door");
	}

	void leave() { switchto_door_close(door); }

	/* The server ends instead of an answer. */
	void post(Side)
	{
		if (!switchto_door_call(door, &message, nullptr) || errno != EOWNERDEAD)
			die("switchto_door_call");
	}

	void wait(Side)
	{
		if (switchto_door_wait(door, &message, nullptr) < 0)
			die("switchto_door_wait");
	}

	void hand_off(Side me)
	{
		if (me == MAIN) {
			if (switchto_door_call(door, &message, nullptr))
				die("switchto_door_call");
		} else if (switchto_door_reply_wait(door, &message, nullptr) < 0) {
			die("switchto_door_reply_wait");
		}
	}
};

/* The links that have a post and a wait. */
template <class Link>
struct PostAndWait : Link {
	static Switches rule() { return Switches::ONE_PER_ITERATION; }

	static const char *unavailable(Placement) { return nullptr; }
	void enter(Side) {}
	void leave() {}

	void hand_off(Side me)
	{
		this->post(other(me));
		this->wait(me);
	}
};

struct Futex {
	Word words[2];

	static long call(Word &word, int op, uint32_t val)
	{
		return syscall(SYS_futex, &word.turn, op, val, nullptr, nullptr, 0);
	}

	void post(Side to)
	{
		words[to].turn.store(1, std::memory_order_release);
		if (call(words[to], FUTEX_WAKE, 1) < 0)
			die("FUTEX_WAKE");
	}

	void wait(Side me)
	{
		while (!words[me].turn.load(std::memory_order_acquire))
			if (call(words[me], FUTEX_WAIT, 0) < 0 && errno != EAGAIN && errno != EINTR)
				die("FUTEX_WAIT");
		words[me].turn.store(0, std::memory_order_relaxed);
	}
};

struct Semaphore {
	sem_t turn[2];

	Semaphore()
	{
		for (sem_t &sem : turn)
			if (sem_init(&sem, 1, 0))
				die("sem_init");
	}

	void post(Side to)
	{
		if (sem_post(&turn[to]))
			die("sem_post");
	}

	void wait(Side me)
	{
		while (sem_wait(&turn[me]))
			if (errno != EINTR)
				die("sem_wait");
	}
};

/* Of the pair each process reads its own end, and writes to it. */
struct Socket : Descriptors<char> {
	Socket()
	{
		int ends[2];

		if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
			die("socketpair");
		for (Side side : { MAIN, PARTNER }) {
			readable[side] = ends[side];
			writable[side] = dup(ends[other(side)]);
			if (writable[side] < 0)
				die("dup");
		}
	}
};

struct Spin {
	Word words[2];

	void post(Side to) { words[to].turn.store(1, std::memory_order_release); }

	void wait(Side me)
	{
		while (!words[me].turn.load(std::memory_order_acquire))
			std::atomic_signal_fence(std::memory_order_seq_cst);
		words[me].turn.store(0, std::memory_order_relaxed);
	}
};

/* The writer may be preempted by the reader, and sleeps on its own lock then: no fixed number. */
struct ProcessSocket : PostAndWait<Socket> {
	static Switches rule() { return Switches::REPORTED; }
};

struct ProcessSpin : PostAndWait<Spin> {
	static Switches rule() { return Switches::REPORTED; }

	static const char *unavailable(Placement placement)
	{
		return placement == Placement::ONE_CPU ? "spins for whole time slices on one CPU" :
							 nullptr;
	}
};

template <class Link>
void add_rows(const std::string &name, const Plan &plan)
{
	plan.add(name + "/free",
		 [](benchmark::State &state) { between_processes<Link>(state, Placement::FREE); });
	plan.add(name + "/one_cpu", [](benchmark::State &state) {
		between_processes<Link>(state, Placement::ONE_CPU);
	});
}

/* The partner is forked in the group. */
template <class Link>
void add_deep_row(const std::string &name, const Plan &plan)
{
	plan.add(name + "/one_cpu/depth:4", [](benchmark::State &state) {
		OneGroup group(4);

		between_processes<Link>(state, Placement::ONE_CPU, &group);
	});
}

} // namespace

void add_process_rows(const Plan &plan)
{
	add_rows<Door>("BM_Door", plan);
	add_deep_row<Door>("BM_Door", plan);
	add_rows<PostAndWait<Futex>>("BM_ProcessFutex", plan);
	add_deep_row<PostAndWait<Futex>>("BM_ProcessFutex", plan);
	add_rows<PostAndWait<Semaphore>>("BM_ProcessSemaphore", plan);
	add_rows<PostAndWait<Eventfd>>("BM_ProcessEventfd", plan);
	add_rows<PostAndWait<Pipe>>("BM_ProcessPipe", plan);
	add_deep_row<PostAndWait<Pipe>>("BM_ProcessPipe", plan);
	add_rows<ProcessSocket>("BM_ProcessSocket", plan);
	add_rows<ProcessSpin>("BM_ProcessSpin", plan);
}
