// SPDX-License-Identifier: MIT
/* Channels: each item arrives once, in order, whoever waits; close, deadlines, select. */
#include "sched.h"

#include <malloc.h>

enum { SENDERS = 5, RECEIVERS = 3, ITEMS = 500 };

struct item {
	int sender, number;
	char text[20];
};

static struct switchto_chan *chan, *other;
static struct switchto_group senders;
static PER_TEST atomic_bool last_step;
static _Atomic unsigned char seen[SENDERS + 1][ITEMS];

static void send_all(void *arg)
{
	struct item item = { .sender = (int)(long)arg };

	for (item.number = 0; item.number < LOOPS(ITEMS); item.number++) {
		memset(item.text, item.number % 100, sizeof(item.text));
		CHECK_EQ(&verdict, switchto_chan_send(chan, &item, NULL), 0);
	}
	CHECK_EQ(&verdict, switchto_group_done(&senders), 0);
}

static void receive_all(void *arg)
{
	int last[SENDERS + 1];
	struct item item;

	memset(last, -1, sizeof(last));
	while (switchto_chan_recv(chan, &item, NULL) == 0) {
		CHECK_EQ(&verdict, atomic_fetch_add(&seen[item.sender][item.number], 1), 0);
		CHECK(&verdict, item.number > last[item.sender]);
		CHECK_EQ(&verdict, item.text[19], item.number % 100);
		last[item.sender] = item.number;
	}
	CHECK_EQ(&verdict, errno, EPIPE);
}

static void close_at_last(void *arg)
{
	CHECK_EQ(&verdict, switchto_group_wait(&senders, NULL), 0);
	CHECK_EQ(&verdict, switchto_chan_close(chan), 0);
	CHECK_ERR(&verdict, switchto_chan_close(chan), EPIPE);
}

/* Tasks and a thread send, tasks receive. */
TEST(items_arrive_once)
{
	static const size_t capacities[] = { 0, 1, 16 };

	for (int i = 0; i < 3; i++) {
		struct switchto_sched *sched = new_sched(NULL);

		memset(seen, 0, sizeof(seen));
		senders = (struct switchto_group){ 0 };
		switchto_group_add(&senders, SENDERS + 1);
		assert_int_equal(switchto_chan_create(&chan, sizeof(struct item), capacities[i]),
				 0);
		for (long sender = 0; sender < SENDERS; sender++)
			spawn(sched, send_all, (void *)sender);
		for (int receiver = 0; receiver < RECEIVERS; receiver++)
			spawn(sched, receive_all, NULL);
		spawn(sched, close_at_last, NULL);
		run_with_thread(sched, send_all, (void *)(long)SENDERS);
		for (int sender = 0; sender <= SENDERS; sender++)
			for (int number = 0; number < LOOPS(ITEMS); number++)
				assert_int_equal(atomic_load(&seen[sender][number]), 1);
		switchto_chan_destroy(chan);
	}
}

/* --- select --- */

static void send_numbers(void *arg)
{
	struct switchto_chan *to = *(struct switchto_chan **)arg;

	for (int i = 0; i < LOOPS(ITEMS); i++)
		CHECK_EQ(&verdict, switchto_chan_send(to, &i, NULL), 0);
	CHECK_EQ(&verdict, switchto_chan_close(to), 0);
}

static void receive_from_both(void *arg)
{
	int items[2], next[2] = { 0, 0 }, open = 2;
	struct switchto_case cases[2] = {
		{ chan, SWITCHTO_RECEIVE, &items[0], false },
		{ other, SWITCHTO_RECEIVE, &items[1], false },
	};

	while (open) {
		/* A channel that is closed is always ready: look at the other one alone then. */
		int first = next[0] < 0, done;

		done = switchto_select(cases + first, open == 2 ? 2 : 1, NULL) + first;
		CHECK(&verdict, done == 0 || done == 1);
		if (cases[done].closed) {
			CHECK_EQ(&verdict, next[done], LOOPS(ITEMS));
			next[done] = -1;
			open--;
		} else {
			CHECK_EQ(&verdict, items[done], next[done]++);
		}
	}
}

TEST(select_of_two)
{
	static const size_t capacities[] = { 0, 3 };

	for (int i = 0; i < 2; i++) {
		assert_int_equal(switchto_chan_create(&chan, sizeof(int), capacities[i]), 0);
		assert_int_equal(switchto_chan_create(&other, sizeof(int), 0), 0);
		add_task(receive_from_both, NULL);
		add_task(send_numbers, &chan);
		add_task(send_numbers, &other);
		run_added();
		switchto_chan_destroy(chan);
		switchto_chan_destroy(other);
	}
}

/* Tasks that send to and receive from the same two channels, at the same time. */
static void send_or_receive(void *arg)
{
	int out = 1, in_ = 0;
	struct switchto_case cases[2] = {
		{ arg ? chan : other, SWITCHTO_SEND, &out, false },
		{ arg ? other : chan, SWITCHTO_RECEIVE, &in_, false },
	};
	int sent = 0, received = 0;

	while (sent < LOOPS(ITEMS) || received < LOOPS(ITEMS)) {
		int first = sent == LOOPS(ITEMS);
		size_t count = sent < LOOPS(ITEMS) && received < LOOPS(ITEMS) ? 2 : 1;

		if (switchto_select(cases + first, count, NULL) + first == 0) {
			sent++;
		} else {
			CHECK_EQ(&verdict, in_, 1);
			received++;
		}
	}
}

TEST(select_both_ways)
{
	assert_int_equal(switchto_chan_create(&chan, sizeof(int), 0), 0);
	assert_int_equal(switchto_chan_create(&other, sizeof(int), 0), 0);
	for (long i = 0; i < 6; i++)
		add_task(send_or_receive, (void *)(i % 2));
	run_added();
	switchto_chan_destroy(chan);
	switchto_chan_destroy(other);
}

/* --- waits that end without an item --- */

static void wait_in_vain(void *arg)
{
	struct timespec soon = in(3000000);
	const struct timespec bad = { 0, -1 };
	struct switchto_case bad_case = { chan, (int)7, NULL, false };
	int item = 1;

	CHECK_ERR(&verdict, switchto_chan_recv(chan, &item, &soon), ETIMEDOUT);
	CHECK_ERR(&verdict, switchto_chan_send(chan, &item, &soon), ETIMEDOUT);
	CHECK_ERR(&verdict, switchto_chan_recv(chan, &item, &bad), EINVAL);
	CHECK_ERR(&verdict, switchto_select(&bad_case, 1, NULL), EINVAL);
	CHECK_ERR(&verdict, switchto_select(&bad_case, 0, NULL), EINVAL);
	CHECK_ERR(&verdict, switchto_select(&bad_case, SWITCHTO_SELECT_MAX + 1, NULL), EINVAL);
	atomic_store(&last_step, true);
	if (arg)
		CHECK_ERR(&verdict, switchto_chan_recv(chan, &item, NULL), ECANCELED);
}

static void cancel_it(void *task)
{
	YIELD_UNTIL(atomic_load(&last_step));
	CHECK_EQ(&verdict, switchto_cancel(task), 0);
	CHECK_EQ(&verdict, switchto_join(task), 0);
}

TEST(in_vain)
{
	assert_int_equal(switchto_chan_create(&chan, sizeof(int), 0), 0);
	add_task(cancel_it, add_handle(wait_in_vain, &chan));
	run_added();
	/* In a thread that is no task. */
	wait_in_vain(NULL);
	verdict_assert(&verdict);
	switchto_chan_destroy(chan);
}

/* --- who is done with a channel may destroy it, though the other side has not returned --- */

enum { BY_SEND, BY_RECEIVE, BY_CLOSE, BY_SELECT, WAYS };

static void take_part(void *way)
{
	int item = 1, elsewhere;
	struct switchto_case cases[2] = {
		{ chan, SWITCHTO_RECEIVE, &item, false },
		{ other, SWITCHTO_RECEIVE, &elsewhere, false },
	};

	switch ((long)way) {
	case BY_RECEIVE:
		CHECK_EQ(&verdict, switchto_chan_send(chan, &item, NULL), 0);
		break;
	case BY_CLOSE:
		CHECK_ERR(&verdict, switchto_chan_recv(chan, &item, NULL), EPIPE);
		break;
	case BY_SELECT:
		CHECK_EQ(&verdict, switchto_select(cases, 2, NULL), 0);
		break;
	default:
		CHECK_EQ(&verdict, switchto_chan_recv(chan, &item, NULL), 0);
	}
}

static void be_done(long way)
{
	int item = 2;

	if (way == BY_RECEIVE)
		CHECK_EQ(&verdict, switchto_chan_recv(chan, &item, NULL), 0);
	else if (way == BY_CLOSE)
		CHECK_EQ(&verdict, switchto_chan_close(chan), 0);
	else
		CHECK_EQ(&verdict, switchto_chan_send(chan, &item, NULL), 0);
}

/* Its memory is somebody else's at once. */
static void *destroy_and_use(void)
{
	const size_t size = malloc_usable_size(chan);
	void *memory;

	CHECK_EQ(&verdict, switchto_chan_destroy(chan), 0);
	memory = malloc(size);
	memset(memory, 0x5a, size);
	return memory;
}

/*
 * @task was woken by the other channel of its select, and waits for this one, too, until it runs. False:
 * it has run already, as a call gave way after its time, or as a slot was taken.
 */
static bool other_is_busy(const struct switchto_task *task)
{
	struct switchto_task_stats stats = { 0 };

	if (switchto_chan_destroy(other) == -1) {
		CHECK(&verdict, errno == EBUSY);
		return true;
	}
	CHECK_EQ(&verdict, switchto_task_stats(task, &stats), 0);
	CHECK(&verdict, stats.runs > 1);
	CHECK_EQ(&verdict, switchto_chan_create(&other, sizeof(int), 0), 0);
	return false;
}

static void destroy_when_done(void *sched)
{
	int busy = 0;

	for (long i = 0; i < WAYS * LOOPS(50); i++) {
		const unsigned long long before = retakes_of(sched);
		const long way = i % WAYS;
		struct switchto_task *task;
		void *memory = NULL;
		pthread_t thread;

		CHECK_EQ(&verdict, switchto_chan_create(&chan, sizeof(int), 0), 0);
		CHECK_EQ(&verdict, switchto_chan_create(&other, sizeof(int), 0), 0);
		task = spawn_handle(NULL, take_part, (void *)way);
		CHECK_EQ(&verdict, switchto_yield(), 0);
		be_done(way);
		/* Otherwise it may not have waited before, but had no CPU: it is to be there first. */
		if (retakes_of(sched) == before)
			memory = destroy_and_use();
		if (memory && way == BY_SELECT && slots == 1 && other_is_busy(task)) {
			CHECK_EQ(&verdict, switchto_chan_close(other), 0);
			busy += other_is_busy(task);
		}
		CHECK_EQ(&verdict, switchto_join(task), 0);
		CHECK_EQ(&verdict, switchto_chan_destroy(other), 0);
		if (!memory)
			CHECK_EQ(&verdict, switchto_chan_destroy(chan), 0);
		free(memory);

		CHECK_EQ(&verdict, switchto_chan_create(&chan, sizeof(int), 0), 0);
		CHECK_EQ(&verdict, switchto_chan_create(&other, sizeof(int), 0), 0);
		thread = start_thread(take_part, (void *)way);
		if (way == BY_CLOSE)
			usleep(100);
		be_done(way);
		if (way != BY_CLOSE)
			free(destroy_and_use());
		pthread_join(thread, NULL);
		CHECK_EQ(&verdict, switchto_chan_destroy(other), 0);
		if (way == BY_CLOSE)
			CHECK_EQ(&verdict, switchto_chan_destroy(chan), 0);
	}
	CHECK(&verdict, busy || slots > 1);
}

TEST(destroyed_when_done)
{
	struct switchto_sched *sched = new_sched_with(NULL, SWITCHTO_MEASURE, slots);

	run_one_in_time(sched, destroy_when_done, sched);
}

TEST(bad_channels)
{
	CHECK_ERR(v, switchto_chan_create(&chan, 0, 1), EINVAL);
	CHECK_ERR(v, switchto_chan_create(&chan, SIZE_MAX / 2, 3), ENOMEM);
}
