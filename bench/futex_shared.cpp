/* SPDX-License-Identifier: MIT */
/*
 * FUTEX_SWAP on shared futexes: two threads, two processes, or two processes that
 * use one word in both directions. The protocol of a word for each side is that of
 * futex.cpp. The one word says whose turn it is.
 *
 * A process can't share the ping-pong's promise and flag, so this has its own, in
 * memory that the partner inherits. The partner's counts are its process's.
 */
#include <csignal>
#include <fstream>
#include <memory>
#include <new>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>

#include "die.h"
#include "futex_call.h"
#include "hand_off.h"

namespace {

enum Words { ONE_WORD, TWO_WORDS };
enum Partner { THREAD, PROCESS };

long shared_futex(Word &word, int op, uint32_t val, Word *word2)
{
	return syscall(SYS_futex, &word.turn, op, val, nullptr, word2 ? &word2->turn : nullptr, 0);
}

/* EAGAIN: the turn came before the sleep. */
void slept(long result, const char *call)
{
	if (result < 0 && errno != EAGAIN && errno != EINTR)
		die(call);
}

/* What both sides see. */
struct Board {
	Word words[2];
	bool stop = false; /* handed over with the turn, as is all that follows */
	bool placed = false;
	long answers = 0;
	std::atomic<pid_t> tid{ 0 };
};

template <Words how>
struct Link {
	Word *const words;

	void post(Side to)
	{
		give(to);
		if (shared_futex(word(to), FUTEX_WAKE, 1, nullptr) < 0)
			die("FUTEX_WAKE");
	}

	void wait(Side me)
	{
		while (!mine(me))
			slept(shared_futex(word(me), FUTEX_WAIT, absent(me), nullptr),
			      "FUTEX_WAIT");
		if (how == TWO_WORDS)
			words[me].turn.store(0, std::memory_order_relaxed);
	}

	void hand_off(Side me)
	{
		give(other(me));
		slept(shared_futex(word(me), FUTEX_SWAP, absent(me), &word(other(me))),
		      "FUTEX_SWAP");
		wait(me);
	}

private:
	Word &word(Side side) { return words[how == ONE_WORD ? 0 : side]; }

	/* The one word has the side that has the turn, plus 1. */
	static uint32_t present(Side side) { return how == ONE_WORD ? side + 1 : 1; }
	static uint32_t absent(Side side) { return how == ONE_WORD ? other(side) + 1 : 0; }

	void give(Side to) { word(to).turn.store(present(to), std::memory_order_release); }
	bool mine(Side me) { return word(me).turn.load(std::memory_order_acquire) == present(me); }
};

template <Words how>
void be_partner(Board &board, Placed &placed)
{
	Link<how> link{ board.words };
	bool held = placed.holds();
	long n = 0;

	board.tid = gettid();
	link.wait(PARTNER);
	while (!board.stop) {
		link.hand_off(PARTNER);
		n++;
	}
	board.answers = n;
	board.placed = held && placed.holds();
}

/* Voluntary and involuntary ones of a process with one thread. */
long switches_of(pid_t process)
{
	std::ifstream file("/proc/" + std::to_string(process) + "/status");
	std::string word;
	long sum = 0, count;

	while (file >> word) {
		if (word == "voluntary_ctxt_switches:" || word == "nonvoluntary_ctxt_switches:") {
			file >> count;
			sum += count;
		}
	}
	return sum;
}

template <Words how, Partner partner>
Census census_with(pid_t tid)
{
	if (partner == THREAD)
		return take_census({ gettid(), tid });

	Census census = take_census({ gettid() });

	census.switches += switches_of(tid);
	return census;
}

struct Unmap {
	void operator()(Board *board) const { munmap(board, sizeof(*board)); }
};

template <Words how, Partner partner>
void shared_ping_pong(benchmark::State &state, Placement placement, HandOffs hand_offs,
		      Terms *terms = nullptr)
{
	const long rounds = (state.max_iterations + 1) / 2;

	if (!have_futex_swap())
		return skip(state, "this kernel has no FUTEX_SWAP");
	if (terms && terms->refused())
		return skip(state, terms->refused());
	if (placement == Placement::FREE && allowed_cpus() < 2)
		return skip(state, "one CPU only, the same as one_cpu");

	Placed placed(placement);
	void *memory = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		die("mmap");

	std::unique_ptr<Board, Unmap> board(new (memory) Board);
	Link<how> link{ board->words };
	std::thread thread;
	pid_t child = 0;

	if (how == ONE_WORD)
		board->words[0].turn = MAIN + 1;
	if (partner == THREAD) {
		thread = std::thread([&] { be_partner<how>(*board, placed); });
	} else {
		child = fork();
		if (child < 0)
			die("fork");
		if (!child) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			be_partner<how>(*board, placed);
			_exit(0);
		}
	}
	while (!board->tid)
		sched_yield();
	for (long i = 0; i < warm_up; i++)
		link.hand_off(MAIN);

	SwapCounts swaps_before = read_swap_counts();
	Census before = census_with<how, partner>(board->tid);
	while (state.KeepRunningBatch(2 * rounds)) {
		for (long i = rounds; i; i--)
			link.hand_off(MAIN);
	}
	Census after = census_with<how, partner>(board->tid);
	SwapCounts swaps_after = read_swap_counts();

	board->stop = true;
	link.post(PARTNER);
	if (partner == THREAD)
		thread.join();
	else if (waitpid(child, nullptr, 0) != child)
		die("waitpid");

	check(state, placement, Switches::ONE_PER_ITERATION, before, after);
	check_hand_offs(state, hand_offs, swaps_before, swaps_after);
	if (board->answers != warm_up + rounds)
		invalid(state, "%ld answers to %ld hand-offs", board->answers, warm_up + rounds);
	if (!board->placed || !placed.holds())
		invalid(state, "a side ran on a CPU that is not its own");
}

template <Words how, Partner partner>
void add_rows(const std::string &name, const Plan &plan)
{
	plan.add(name + "/free", [](benchmark::State &state) {
		shared_ping_pong<how, partner>(state, Placement::FREE, HandOffs::NOT_COUNTED);
	});
	plan.add(name + "/one_cpu", [](benchmark::State &state) {
		shared_ping_pong<how, partner>(state, Placement::ONE_CPU, HandOffs::CLAIMED);
	});
	plan.add(name + "/one_cpu/depth:4", [](benchmark::State &state) {
		OneGroup group(4);

		shared_ping_pong<how, partner>(state, Placement::ONE_CPU, HandOffs::CLAIMED,
					       &group);
	});
}

} // namespace

void add_futex_shared_rows(const Plan &plan)
{
	add_rows<TWO_WORDS, THREAD>("BM_FutexSwapShared", plan);
	add_rows<TWO_WORDS, PROCESS>("BM_FutexSwapProcesses", plan);
	add_rows<ONE_WORD, PROCESS>("BM_FutexSwapOneWord", plan);
}
