/* SPDX-License-Identifier: MIT */
/*
 * io_uring's futex operations, a ring per thread: one io_uring_enter(2) that
 * submits a wake and, linked to it, a wait, and sleeps until the wait is done.
 */
#include "hand_off.h"

#ifdef HAVE_LIBURING
#include <cstdlib>
#include <liburing.h>

#include "die.h"
#include "futex_call.h"

namespace {

/*
 * Linux 6.7. liburing has names and helpers for these from 2.5 on, <linux/futex.h>
 * the flags from 6.7 on; the numbers are part of the kernel's ABI.
 */
constexpr int op_futex_wait = 51;
constexpr int op_futex_wake = 52;
constexpr int futex2_u32_private = 0x02 | 128;
constexpr uint64_t any_waiter = 0xffffffff;

struct IoUringFutex {
	static constexpr Switches rule = Switches::ONE_PER_ITERATION;

	Word words[2];
	io_uring rings[2];

	static const char *unavailable()
	{
		io_uring_probe *probe = io_uring_get_probe();

		if (!probe)
			return "io_uring is absent or not allowed here";

		bool both = io_uring_opcode_supported(probe, op_futex_wait) &&
			    io_uring_opcode_supported(probe, op_futex_wake);
		io_uring_free_probe(probe);
		return both ? nullptr : "no io_uring futex operations, Linux 6.7 has them";
	}

	~IoUringFutex()
	{
		io_uring_queue_exit(&rings[MAIN]);
		io_uring_queue_exit(&rings[PARTNER]);
	}

	/* Each thread makes and uses its own ring: such a ring costs least. */
	void enter(Side me)
	{
		int error = io_uring_queue_init(4, &rings[me],
						IORING_SETUP_SINGLE_ISSUER |
							IORING_SETUP_DEFER_TASKRUN);

		if (error)
			die("io_uring_queue_init", -error);
	}

	void post(Side to)
	{
		add_wake(rings[other(to)], to);
		if (io_uring_submit(&rings[other(to)]) != 1)
			die("io_uring_submit");
	}

	void wait(Side me)
	{
		while (!words[me].turn.load(std::memory_order_acquire)) {
			add_wait(me);
			submit_and_wait(me);
		}
		words[me].turn.store(0, std::memory_order_relaxed);
	}

	void hand_off(Side me)
	{
		add_wake(rings[me], other(me))->flags |= IOSQE_IO_LINK;
		add_wait(me);
		submit_and_wait(me);
		wait(me);
	}

	io_uring_sqe *add(io_uring &ring, int op, Side side, uint64_t val)
	{
		io_uring_sqe *sqe = io_uring_get_sqe(&ring);

		*sqe = io_uring_sqe();
		sqe->opcode = op;
		sqe->fd = futex2_u32_private;
		sqe->addr = reinterpret_cast<uintptr_t>(&words[side].turn);
		sqe->addr2 = val;
		sqe->addr3 = any_waiter;
		return sqe;
	}

	/* Success makes no completion: only the wait's is waited for. */
	io_uring_sqe *add_wake(io_uring &ring, Side to)
	{
		words[to].turn.store(1, std::memory_order_release);

		io_uring_sqe *sqe = add(ring, op_futex_wake, to, 1);
		sqe->flags = IOSQE_CQE_SKIP_SUCCESS;
		return sqe;
	}

	void add_wait(Side me) { add(rings[me], op_futex_wait, me, 0); }

	void submit_and_wait(Side me)
	{
		io_uring_cqe *cqe;
		int submitted = io_uring_submit_and_wait(&rings[me], 1);

		if (submitted < 0)
			die("io_uring_submit_and_wait", -submitted);
		if (io_uring_peek_cqe(&rings[me], &cqe))
			die("io_uring_peek_cqe", ENODATA);
		/* EAGAIN: the turn came before the sleep. */
		if (cqe->res < 0 && cqe->res != -EAGAIN)
			die("a futex operation of io_uring", -cqe->res);
		io_uring_cqe_seen(&rings[me], cqe);
	}
};

} // namespace

void add_io_uring_rows(const Plan &plan)
{
	add_hand_off_rows<IoUringFutex>("BM_IoUringFutex", plan);
}
#else
void add_io_uring_rows(const Plan &plan)
{
	add_missing_hand_off_rows("BM_IoUringFutex", plan, "built without liburing");
}
#endif
