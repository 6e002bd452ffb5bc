// SPDX-License-Identifier: GPL-2.0
/*
 * FUTEX_SWAP and interruptions: signal handlers, stops and tracers. A handler
 * ends the call. After any other interruption the wait half alone is restarted,
 * so that no second waiter is woken.
 */
#include <sys/ptrace.h>

#include "futex_swap_common.h"

/* Signals with a handler, while the caller sleeps. */

FIXTURE(handler) {
};

FIXTURE_VARIANT(handler) {
	int sa_flags;
	bool timed;
};

FIXTURE_VARIANT_ADD(handler, plain_untimed) {
	.sa_flags = 0,
};

FIXTURE_VARIANT_ADD(handler, plain_timed) {
	.sa_flags = 0,
	.timed = true,
};

FIXTURE_VARIANT_ADD(handler, sa_restart_untimed) {
	.sa_flags = SA_RESTART,
};

FIXTURE_VARIANT_ADD(handler, sa_restart_timed) {
	.sa_flags = SA_RESTART,
	.timed = true,
};

FIXTURE_SETUP(handler)
{
	make_arena(_metadata, 0);
	/* On one CPU, where swaps of private futexes are hand-offs. */
	ASSERT_TRUE(pin_to(0, sched_getcpu()));
}

FIXTURE_TEARDOWN(handler)
{
}

TEST_F(handler, eintr_no_second_wake)
{
	struct timespec timeout = { .tv_sec = 1000 };
	int i;

	handle(_metadata, SIGUSR1, variant->sa_flags);
	for (i = 0; i < 2; i++) {
		const int fl = i ? FUTEX_PRIVATE_FLAG : 0;

		queue_waiters(_metadata, 3, fl);
		prepare_swap(swapper, &arena->own, &arena->peer, fl);
		if (variant->timed)
			swapper->timeout = &timeout;
		START_ASLEEP(swapper);
		check_woken(_metadata, 3, 1);

		signal_thread(_metadata, swapper, SIGUSR1);
		ASSERT_RETURNS(-1, EINTR, swapper);
		EXPECT_EQ(i + 1, arena->handled);
		end_waiters(_metadata, 3, 1, fl);
		EXPECT_EQ(0, futex_wake(&arena->own, INT_MAX, fl));
	}
}

FIXTURE(no_uaddr2_handler) {
};

FIXTURE_VARIANT(no_uaddr2_handler) {
	int sa_flags;
	bool timed;
	int opflags;
};

FIXTURE_VARIANT_ADD(no_uaddr2_handler, plain) {
	.sa_flags = 0, .opflags = FUTEX_PRIVATE_FLAG,
};

FIXTURE_VARIANT_ADD(no_uaddr2_handler, restart) {
	.sa_flags = SA_RESTART, .opflags = FUTEX_PRIVATE_FLAG,
};

FIXTURE_VARIANT_ADD(no_uaddr2_handler, restart_shared) {
	.sa_flags = SA_RESTART, .opflags = 0,
};

FIXTURE_VARIANT_ADD(no_uaddr2_handler, restart_timed) {
	.sa_flags = SA_RESTART, .timed = true, .opflags = FUTEX_PRIVATE_FLAG,
};

FIXTURE_SETUP(no_uaddr2_handler)
{
	make_arena(_metadata, 0);
}

FIXTURE_TEARDOWN(no_uaddr2_handler)
{
}

/* As with uaddr2: a handler ends the call with EINTR, even with SA_RESTART. */
TEST_F(no_uaddr2_handler, ends_the_wait_eintr)
{
	struct call *c = prepare_swap(&arena->other, &arena->own, NULL,
				      variant->opflags);

	handle(_metadata, SIGUSR1, variant->sa_flags);
	arena->ts = (struct timespec){ .tv_sec = 100 };
	if (variant->timed)
		c->timeout = &arena->ts;
	START_ASLEEP(c);
	signal_thread(_metadata, c, SIGUSR1);
	ASSERT_RETURNS(-1, EINTR, c);
	EXPECT_EQ(0, futex_wake(&arena->own, INT_MAX, variant->opflags));
}

/* Stops, which run no handler: the wait half goes on. */

static bool stop_by_attach(struct call *c)
{
	return !ptrace(PTRACE_ATTACH, c->tid, NULL, NULL) && wait_stopped(c->tid);
}

static bool stop_by_interrupt(struct call *c)
{
	return !ptrace(PTRACE_SEIZE, c->tid, NULL, NULL) &&
	       !ptrace(PTRACE_INTERRUPT, c->tid, NULL, NULL) && wait_stopped(c->tid);
}

static bool continue_by_detach(struct call *c)
{
	return !ptrace(PTRACE_DETACH, c->tid, NULL, NULL);
}

FIXTURE(stop) {
};

FIXTURE_VARIANT(stop) {
	bool (*halt)(struct call *c);
	bool (*resume)(struct call *c);
	int opflags;
	bool parks;		/* no uaddr2 */
};

FIXTURE_VARIANT_ADD(stop, sigstop_sigcont) {
	.halt = stop_by_signal,
	.resume = continue_by_signal,
};

FIXTURE_VARIANT_ADD(stop, ptrace_attach_detach) {
	.halt = stop_by_attach,
	.resume = continue_by_detach,
};

FIXTURE_VARIANT_ADD(stop, ptrace_seize_interrupt_detach) {
	.halt = stop_by_interrupt,
	.resume = continue_by_detach,
};

FIXTURE_VARIANT_ADD(stop, private_sigstop_sigcont) {
	.halt = stop_by_signal,
	.resume = continue_by_signal,
	.opflags = FUTEX_PRIVATE_FLAG,
};

FIXTURE_VARIANT_ADD(stop, private_ptrace_attach_detach) {
	.halt = stop_by_attach,
	.resume = continue_by_detach,
	.opflags = FUTEX_PRIVATE_FLAG,
};

FIXTURE_VARIANT_ADD(stop, private_ptrace_seize_interrupt_detach) {
	.halt = stop_by_interrupt,
	.resume = continue_by_detach,
	.opflags = FUTEX_PRIVATE_FLAG,
};

FIXTURE_VARIANT_ADD(stop, no_uaddr2_sigstop_sigcont) {
	.halt = stop_by_signal,
	.resume = continue_by_signal,
	.opflags = FUTEX_PRIVATE_FLAG,
	.parks = true,
};

FIXTURE_VARIANT_ADD(stop, no_uaddr2_ptrace_attach_detach) {
	.halt = stop_by_attach,
	.resume = continue_by_detach,
	.opflags = FUTEX_PRIVATE_FLAG,
	.parks = true,
};

FIXTURE_SETUP(stop)
{
	make_arena(_metadata, 0);
	/* On one CPU, so that the stopped swap is a hand-off. */
	if (variant->opflags)
		start_host(_metadata, sched_getcpu());
}

FIXTURE_TEARDOWN(stop)
{
	if (host)
		kill(host, SIGKILL);
}

TEST_F(stop, twice_still_asleep_no_second_wake)
{
	const int fl = variant->opflags, woken = !variant->parks;
	const long handed = swap_count("handoff");
	int i;

	queue_waiters(_metadata, 3, fl);
	start_apart(_metadata,
		    prepare_swap(swapper, &arena->own,
				 variant->parks ? NULL : &arena->peer, fl));
	ASSERT_ASLEEP(swapper);
	check_woken(_metadata, 3, woken);

	for (i = 0; i < 2; i++) {
		ASSERT_TRUE(variant->halt(swapper));
		ASSERT_FALSE(is_asleep(swapper));
		ASSERT_TRUE(variant->resume(swapper));
		ASSERT_ASLEEP(swapper);
		check_woken_and_asleep(_metadata, 3, woken);
	}

	end_swapper(_metadata, swapper, &arena->own, fl);
	end_waiters(_metadata, 3, woken, fl);
	if (fl && !variant->parks)
		EXPECT_COUNTED("handoff", handed);
}

TEST_F(stop, twice_timeout_keeps_its_deadline)
{
	const long long timeout = 2400 * NSEC_PER_MSEC;
	const int fl = variant->opflags, woken = !variant->parks;
	long long first_resume = 0;
	int i;

	queue_waiters(_metadata, 3, fl);
	prepare_swap(swapper, &arena->own, variant->parks ? NULL : &arena->peer, fl);
	arena->ts.tv_sec = timeout / NSEC_PER_SEC;
	arena->ts.tv_nsec = timeout % NSEC_PER_SEC;
	swapper->timeout = &arena->ts;
	start_apart(_metadata, swapper);

	for (i = 1; i <= 2; i++) {
		ASSERT_ASLEEP(swapper);
		ASSERT_TRUE(variant->halt(swapper));
		sleep_until(nsec(&swapper->start) + i * timeout / 3);
		if (!first_resume)
			first_resume = now();
		ASSERT_TRUE(variant->resume(swapper));
	}

	ASSERT_RETURNS(-1, ETIMEDOUT, swapper);
	EXPECT_LE(timeout, nsec(&swapper->end) - nsec(&swapper->start));
	/* A timeout that began again at a restart would not be over yet. */
	EXPECT_LT(nsec(&swapper->end), first_resume + timeout);
	check_woken_and_asleep(_metadata, 3, woken);
	end_waiters(_metadata, 3, woken, fl);
}

TEST_F(stop, value_changed_meanwhile_eagain)
{
	const int fl = variant->opflags, woken = !variant->parks;

	queue_waiters(_metadata, 3, fl);
	start_apart(_metadata,
		    prepare_swap(swapper, &arena->own,
				 variant->parks ? NULL : &arena->peer, fl));
	ASSERT_ASLEEP(swapper);
	ASSERT_TRUE(variant->halt(swapper));
	arena->own++;
	ASSERT_TRUE(variant->resume(swapper));
	ASSERT_RETURNS(-1, EAGAIN, swapper);
	check_woken_and_asleep(_metadata, 3, woken);
	end_waiters(_metadata, 3, woken, fl);
}

/*
 * A stopped target cannot run, so the caller just sleeps. A caller that sleeps
 * can be killed.
 */
TEST_F(stop, target_stopped_caller_sleeps_and_can_be_killed)
{
	struct call *target = &arena->other;
	const int fl = variant->opflags;
	int status;

	/* A signal that stops the process stops the swapper, too. */
	if (fl && variant->halt == stop_by_signal)
		SKIP(return, "of a process' own threads one can be stopped by a tracer only");
	if (variant->parks)
		SKIP(return, "there is no target");

	start_apart(_metadata, prepare_wait(target, &arena->peer, fl));
	ASSERT_ASLEEP(target);
	ASSERT_TRUE(variant->halt(target));

	arena->peer++;
	start_apart(_metadata,
		    prepare_swap(swapper, &arena->own, &arena->peer, fl));
	ASSERT_ASLEEP(swapper);
	EXPECT_FALSE(is_done(target));

	if (fl) {
		ASSERT_TRUE(variant->resume(target));
		ASSERT_RETURNS(-1, EAGAIN, target);
		EXPECT_STILL_ASLEEP(swapper);
	}
	ASSERT_EQ(0, kill(swapper->pid, SIGKILL));
	ASSERT_EQ(swapper->pid, waitpid(swapper->pid, &status, 0));
	EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	if (fl) {
		/* The swapper was the host. Its PID may be reused now. */
		host = 0;
		return;
	}

	EXPECT_EQ(0, futex_wake(&arena->own, INT_MAX, 0));
	EXPECT_FALSE(is_done(target));
	ASSERT_TRUE(variant->resume(target));
	/* The stop took the target off the queue, so it finds the new value. */
	ASSERT_RETURNS(-1, EAGAIN, target);
}

/*
 * A signal that is pending when the call begins. It is sent while a tracer holds
 * the caller at the entry of the system call.
 */

static bool at_entry_of_swap(struct call *c)
{
	char path[64], buf[256];
	unsigned long arg0, op;
	long nr;

	snprintf(path, sizeof(path), "/proc/%d/syscall", c->tid);
	if (read_file(path, buf, sizeof(buf)) <= 0 ||
	    sscanf(buf, "%ld %lx %lx", &nr, &arg0, &op) != 3)
		return false;
	return nr == SYS_futex && (op & FUTEX_CMD_MASK) == FUTEX_SWAP;
}

static long enter_swap_traced(struct call *c)
{
	ptrace(PTRACE_TRACEME, 0, NULL, NULL);
	/* Only its tracer may call waitpid() for a thread. */
	__atomic_store_n(&arena->go, 1, __ATOMIC_RELEASE);
	syscall(SYS_tgkill, getpid(), c->tid, SIGSTOP);
	return futex(c->uaddr, c->op, c->val, c->timeout, c->uaddr2, c->val3, 0);
}

FIXTURE(pending) {
};

FIXTURE_VARIANT(pending) {
	int opflags;
	bool timed;
};

FIXTURE_VARIANT_ADD(pending, shared) {
	.opflags = 0,
};

FIXTURE_VARIANT_ADD(pending, shared_timed) {
	.timed = true,
};

FIXTURE_VARIANT_ADD(pending, private) {
	.opflags = FUTEX_PRIVATE_FLAG,
};

FIXTURE_VARIANT_ADD(pending, private_timed) {
	.opflags = FUTEX_PRIVATE_FLAG,
	.timed = true,
};

/*
 * Sets up three waiters and a swapper that enters its swap with SIGUSR1
 * pending. The swap has woken the first waiter, and the tracer has stopped the
 * swapper at the delivery of SIGUSR1.
 */
FIXTURE_SETUP(pending)
{
	long refused;
	int status;

	make_arena(_metadata, 0);
	handle(_metadata, SIGUSR1, SA_RESTART);
	if (variant->opflags)
		start_host(_metadata, sched_getcpu());
	queue_waiters(_metadata, 3, variant->opflags);
	prepare_swap(swapper, &arena->own, &arena->peer, variant->opflags);
	arena->ts.tv_sec = 1000;
	if (variant->timed)
		swapper->timeout = &arena->ts;
	swapper->enter = enter_swap_traced;
	start_apart(_metadata, swapper);
	while (!__atomic_load_n(&arena->go, __ATOMIC_ACQUIRE))
		sched_yield();

	ASSERT_TRUE(wait_stopped(swapper->tid));
	ASSERT_EQ(0, ptrace(PTRACE_SETOPTIONS, swapper->tid, NULL,
			    PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL));
	do {
		ASSERT_EQ(0, ptrace(PTRACE_SYSCALL, swapper->tid, NULL, NULL));
		ASSERT_EQ(swapper->tid, waitpid(swapper->tid, &status, __WALL));
		ASSERT_TRUE(WIFSTOPPED(status));
		ASSERT_EQ(SIGTRAP | 0x80, WSTOPSIG(status));
	} while (!at_entry_of_swap(swapper));
	check_woken(_metadata, 3, 0);

	refused = swap_count("signal");
	signal_thread(_metadata, swapper, SIGUSR1);
	ASSERT_EQ(0, ptrace(PTRACE_CONT, swapper->tid, NULL, NULL));
	ASSERT_EQ(swapper->tid, waitpid(swapper->tid, &status, __WALL));
	ASSERT_TRUE(WIFSTOPPED(status));
	ASSERT_EQ(SIGUSR1, WSTOPSIG(status));
	check_woken(_metadata, 3, 1);
	if (variant->opflags)
		EXPECT_COUNTED("signal", refused);
}

FIXTURE_TEARDOWN(pending)
{
	if (host)
		kill(host, SIGKILL);
}

TEST_F(pending, signal_pending_on_entry_eintr_target_woken)
{
	ASSERT_EQ(0, ptrace(PTRACE_DETACH, swapper->tid, NULL, SIGUSR1));
	ASSERT_RETURNS(-1, EINTR, swapper);
	EXPECT_EQ(1, arena->handled);
	end_waiters(_metadata, 3, 1, variant->opflags);
}

TEST_F(pending, signal_pending_on_entry_restart_target_woken)
{
	ASSERT_EQ(0, ptrace(PTRACE_DETACH, swapper->tid, NULL, NULL));
	ASSERT_ASLEEP(swapper);
	EXPECT_EQ(0, arena->handled);
	end_waiters(_metadata, 3, 1, variant->opflags);
	end_swapper(_metadata, swapper, &arena->own, variant->opflags);
}

/*
 * A wakeup together with a signal or with the end of the timeout is reported as a
 * wakeup. The test occupies the sleeper's only CPU with a higher real-time
 * priority. Until the test sleeps, the sleeper cannot run between the two events.
 */

struct race {
	int opflags;
	bool parks;		/* no uaddr2 */
	bool fair;		/* the sleeper is not real-time, the test is */
};

FIXTURE(together) {
};

FIXTURE_VARIANT(together) {
	struct race race;
};

FIXTURE_VARIANT_ADD(together, shared) {
	.race = { .opflags = 0 },
};

FIXTURE_VARIANT_ADD(together, private) {
	.race = { .opflags = FUTEX_PRIVATE_FLAG },
};

FIXTURE_VARIANT_ADD(together, private_handoff) {
	.race = { .opflags = FUTEX_PRIVATE_FLAG, .fair = true },
};

FIXTURE_VARIANT_ADD(together, no_uaddr2) {
	.race = { .opflags = FUTEX_PRIVATE_FLAG, .parks = true },
};

FIXTURE_SETUP(together)
{
	make_arena(_metadata, 0);
	ASSERT_TRUE(pin_to(0, sched_getcpu()));
	if (!become_fifo(0))
		SKIP(return, "may not set SCHED_FIFO: %s", strerror(errno));
	/*
	 * The other threads must not run until this thread sleeps. So this
	 * thread must not wait for a page, not even for one of its code.
	 */
	if (mlockall(MCL_CURRENT))
		SKIP(return, "may not lock its memory: %s", strerror(errno));
	handle(_metadata, SIGUSR1, 0);
}

FIXTURE_TEARDOWN(together)
{
}

static void *run_thread_below(void *arg)
{
	struct sched_param param = { .sched_priority = 1 };

	sched_setscheduler(0, SCHED_FIFO, &param);
	run(arg);
	return NULL;
}

static void *run_thread_fair(void *arg)
{
	sched_setscheduler(0, SCHED_OTHER, &(struct sched_param){});
	run(arg);
	return NULL;
}

/*
 * Starts three waiters and a swapper, and waits until the swapper sleeps. False
 * if it has returned already.
 */
static bool start_race(struct __test_metadata *_metadata, struct call *c,
		       const struct race *race,
		       struct timespec *timeout)
{
	int i;

	for (i = 0; i < 3; i++) {
		struct call *w = &arena->waiter[i];

		prepare_wait(w, &arena->peer, race->opflags);
		if (pthread_create(&w->thread, NULL,
				   race->fair ? run_thread_fair : run_thread, w) ||
		    !wait_asleep(w))
			return false;
	}
	prepare_swap(c, &arena->own, race->parks ? NULL : &arena->peer,
		     race->opflags);
	c->timeout = timeout;
	if (pthread_create(&c->thread, NULL,
			   race->fair ? run_thread_fair : run_thread_below, c))
		return false;
	poll_call(c, is_asleep_or_done);
	return !is_done(c);
}

/* The swapper must report that it was woken. */
static void end_race(struct __test_metadata *_metadata, struct call *c,
		     const struct race *race)
{
	ASSERT_RETURNS(0, 0, c);
	end_waiters(_metadata, 3, !race->parks, race->opflags);
}

TEST_F(together, wake_and_signal_together_return_0)
{
	struct call *c = &arena->swapper[0];

	ASSERT_TRUE(start_race(_metadata, c, &variant->race, NULL));
	EXPECT_EQ(1, futex_wake(&arena->own, 1, variant->race.opflags));
	signal_thread(_metadata, c, SIGUSR1);
	end_race(_metadata, c, &variant->race);
	EXPECT_EQ(1, arena->handled);
}

TEST_F(together, signal_and_wake_together_return_0)
{
	struct call *c = &arena->swapper[0];

	ASSERT_TRUE(start_race(_metadata, c, &variant->race, NULL));
	signal_thread(_metadata, c, SIGUSR1);
	EXPECT_EQ(1, futex_wake(&arena->own, 1, variant->race.opflags));
	end_race(_metadata, c, &variant->race);
	EXPECT_EQ(1, arena->handled);
}

TEST_F(together, timeout_and_wake_together_return_0)
{
	struct timespec timeout = { .tv_nsec = 50 * NSEC_PER_MSEC };
	const struct race *race = &variant->race;
	struct call *c = &arena->swapper[0];
	struct utsname uts;
	bool starved;
	int try;

	/*
	 * Since 6.13, PREEMPT_RT has a thread of a low priority run the timers of those
	 * that have no real-time priority: not while this thread spins.
	 */
	ASSERT_EQ(0, uname(&uts));
	starved = race->fair && strstr(uts.version, "PREEMPT_RT");

	for (try = 0; try < 10; try++) {
		/*
		 * The timeout may have ended before this thread saw the sleep.
		 * Try a longer one.
		 */
		if (!start_race(_metadata, c, race, &timeout)) {
			timeout.tv_nsec += timeout.tv_nsec;
			ASSERT_LT(timeout.tv_nsec, NSEC_PER_SEC);
		} else {
			/*
			 * This thread spins, so the sleeper does not run when
			 * its timer wakes it.
			 */
			while (task_state(c->tid) == 'S' &&
			       now() < nsec(&c->start) + (starved ? 2 * nsec(&timeout) : PATIENCE))
				;
			if (!starved)
				ASSERT_NE('S', task_state(c->tid));
			EXPECT_LE(nsec(&timeout), now() - nsec(&c->start));
			if (task_state(c->tid) != 'S' &&
			    futex_wake(&arena->own, 1, race->opflags) == 1) {
				end_race(_metadata, c, race);
				return;
			}
		}
		/*
		 * On PREEMPT_RT reading /proc may wait for a lock, and the
		 * sleeper runs.
		 */
		ASSERT_RETURNS(-1, ETIMEDOUT, c);
		end_waiters(_metadata, 3, !race->parks, race->opflags);
	}
	SKIP(return, "the sleeper was never met between its timer and its CPU");
}

int main(int argc, char **argv)
{
	need_futex_swap();
	return test_harness_run(argc, argv);
}
