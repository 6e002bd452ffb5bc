/* SPDX-License-Identifier: MIT */
/* libswitchto-sched: tasks on one slot. */
#include "rows.h"

#include <cstring>

#include <switchto/sched.h>
#include <switchto/switchto.h>

#include "../die.h"

namespace {

struct Tasks {
	template <class F>
	static void call(void *f)
	{
		(*static_cast<F *>(f))();
	}

	template <class F>
	static void run(F &f)
	{
		switchto_sched_options options = {};
		switchto_sched *sched;

		options.size = sizeof(options);
		options.slots = 1;
		if (switchto_sched_create(&sched, &options) ||
		    switchto_spawn(sched, call<F>, &f, nullptr, nullptr) ||
		    switchto_sched_run(sched) || switchto_sched_destroy(sched))
			die("switchto-sched");
	}

	template <class F>
	class Task {
	public:
		explicit Task(F &f)
		{
			if (switchto_spawn(nullptr, call<F>, &f, nullptr, &task_))
				die("switchto_spawn");
		}
		void join()
		{
			if (switchto_join(task_))
				die("switchto_join");
		}
		switchto_task *get() const { return task_; }

	private:
		switchto_task *task_;
	};

	static void yield()
	{
		if (switchto_yield())
			die("switchto_yield");
	}

	class Mutex {
	public:
		Mutex() = default;
		explicit Mutex(switchto_mutex mutex)
			: mutex_(mutex)
		{
		}
		void lock()
		{
			if (switchto_mutex_lock(&mutex_))
				die("switchto_mutex_lock");
		}
		void unlock()
		{
			if (switchto_mutex_unlock(&mutex_))
				die("switchto_mutex_unlock");
		}

	private:
		switchto_mutex mutex_ = {};
	};

	class StrictMutex : public Mutex {
	public:
		StrictMutex()
			: Mutex(SWITCHTO_MUTEX_STRICT)
		{
		}
	};

	static void give_way() {}

	/* After a blocking region, a task that had lost its slot has it again. */
	static void settle()
	{
		if (switchto_block_begin() || switchto_block_end())
			die("switchto_block_begin or _end");
	}

	class Channel {
	public:
		explicit Channel(std::size_t capacity)
		{
			if (switchto_chan_create(&channel_, sizeof(long), capacity))
				die("switchto_chan_create");
		}
		~Channel() { switchto_chan_destroy(channel_); }
		Channel(const Channel &) = delete;
		Channel &operator=(const Channel &) = delete;

		void send(long item)
		{
			if (switchto_chan_send(channel_, &item, nullptr))
				die("switchto_chan_send");
		}
		long receive()
		{
			long item;

			if (switchto_chan_recv(channel_, &item, nullptr))
				die("switchto_chan_recv");
			return item;
		}

	private:
		switchto_chan *channel_;
	};

	static Switches switches() { return Switches::ONE_PER_ITERATION; }
	static HandOffs hand_offs()
	{
		return strcmp(switchto_backend(), "swap") ? HandOffs::NOT_COUNTED :
							    HandOffs::CLAIMED;
	}
};

/* Two unpark each other. An iteration is one switch. */
void park_row(benchmark::State &state)
{
	long answers = 0;
	bool stop = false;
	switchto_task *main_task;
	const auto park = [] {
		if (switchto_park(nullptr))
			die("switchto_park");
	};
	const auto unpark = [](switchto_task *task) {
		if (switchto_unpark(task))
			die("switchto_unpark");
	};
	auto partner = [&] {
		park();
		while (!stop) {
			answers++;
			unpark(main_task);
			park();
		}
	};
	auto main = [&] {
		TaskOf<Tasks, decltype(partner)> task(partner);
		long turns;

		main_task = switchto_task_self();
		turns = measure(state, 2, Tasks::switches(), Tasks::hand_offs(), [&] {
			unpark(task.get());
			park();
		});
		stop = true;
		unpark(task.get());
		task.join();
		check_count(state, "answers", answers, turns);
	};
	Placed placed(Placement::ONE_CPU);

	Tasks::run(main);
}

} // namespace

void add_task_rows(const Plan &plan)
{
	add_rows<Tasks>("BM_Task", plan, 1);
	plan.add("BM_TaskPark/one_cpu", park_row);
}
