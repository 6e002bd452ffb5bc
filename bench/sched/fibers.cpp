/* SPDX-License-Identifier: MIT */
/* Boost.Fiber: all fibers in one thread. */
#include "rows.h"

#ifdef HAVE_BOOST_FIBER
#include <memory>

#include <boost/fiber/all.hpp>
#include <boost/version.hpp>

namespace {

namespace fibers = boost::fibers;

struct Fibers {
	template <class F>
	static void run(F &f)
	{
		f();
	}

	/* Stacks are used again, as the threads of tasks are. */
	static fibers::pooled_fixedsize_stack &stacks()
	{
		static fibers::pooled_fixedsize_stack pool;

		return pool;
	}

	template <class F>
	class Task {
	public:
		explicit Task(F &f)
			: fiber_(std::allocator_arg, stacks(), [&f] { f(); })
		{
		}
		void join() { fiber_.join(); }

	private:
		fibers::fiber fiber_;
	};

	static void yield() { boost::this_fiber::yield(); }

	using Mutex = fibers::mutex;
	using StrictMutex = Mutex;
	static void give_way() { yield(); }
	static void settle() {}

	/* Two classes there. The one with a buffer takes a power of two, and holds one item less. */
	class Channel {
	public:
		explicit Channel(std::size_t capacity)
		{
			if (capacity)
				buffered_ =
					std::make_unique<fibers::buffered_channel<long>>(capacity);
			else
				unbuffered_ = std::make_unique<fibers::unbuffered_channel<long>>();
		}
		void send(long item)
		{
			if (buffered_)
				buffered_->push(item);
			else
				unbuffered_->push(item);
		}
		long receive()
		{
			return buffered_ ? buffered_->value_pop() : unbuffered_->value_pop();
		}

	private:
		std::unique_ptr<fibers::buffered_channel<long>> buffered_;
		std::unique_ptr<fibers::unbuffered_channel<long>> unbuffered_;
	};

	static Switches switches() { return Switches::REPORTED; }
	static HandOffs hand_offs() { return HandOffs::NOT_COUNTED; }
};

} // namespace

void add_fiber_rows(const Plan &plan)
{
	benchmark::AddCustomContext("boost", BOOST_LIB_VERSION);
	add_rows<Fibers>("BM_Fiber", plan, 10);
}
#else
void add_fiber_rows(const Plan &plan)
{
	for (const char *row : { "Yield", "Mutex", "HandOver", "Spawn", "Channel0", "Channel64" })
		plan.add(std::string("BM_Fiber") + row + "/one_cpu",
			 [](benchmark::State &state) { skip(state, "built without Boost.Fiber"); });
}
#endif
