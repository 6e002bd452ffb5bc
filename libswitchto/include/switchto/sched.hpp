// SPDX-License-Identifier: MIT
//
// switchto/sched.h for C++17. An error of a call is thrown as std::system_error, with errno as its
// code. A deadline that passes is not an error, but a result. switchto/sched.h says what each call
// does and promises.
//
//	switchto::scheduler sched;
//	switchto::task task = sched.spawn([] { switchto::this_task::sleep_for(1s); });
//	sched.run();
//	task.join();
//
// Time points are of std::chrono::steady_clock, which on Linux is CLOCK_MONOTONIC, in any unit. A
// time that is out of range counts as the nearest one in range. There are no functions for other
// clocks. Each call with a deadline has a form ..._until(time_point) and one ..._for(duration),
// which is ..._until(now + duration). For I/O they are until() and within().
//
// A task's function, with all that it has captured, is destroyed before the task ends, as with
// std::thread. An exception of a detached task calls std::terminate(). But a detached task that was
// cancelled, for example by stop(true), may end by the exception of ECANCELED.
//
// thread_local
// ------------
// A task has one thread from its begin to its end, whatever it waits for. So its thread_local
// variables, errno and what libraries keep for each thread stay its own across all waits. But the
// next task on the thread finds them as this one left them, and their destructors run when the
// thread ends: at the latest with the scheduler, not with the task. So
// - set such a variable at the begin of a task, and do not rely on its initial value;
// - free in the task what belongs to the task: keep it in an automatic variable, and in the
//   thread_local one a pointer to it;
// - caches are as good as with threads: there are as many as threads, see max_threads and
//   idle_threads;
// - their destructors may use other schedulers, but not the one whose thread ends.
#ifndef SWITCHTO_SCHED_HPP
#define SWITCHTO_SCHED_HPP

#include <switchto/sched.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include <poll.h>

namespace switchto {

using time_point = std::chrono::steady_clock::time_point;
template <typename Duration>
using steady_time = std::chrono::time_point<std::chrono::steady_clock, Duration>;

namespace detail {

inline void check(int result, const char *call)
{
	if (result == -1)
		throw std::system_error(errno, std::generic_category(), call);
}

// False: the deadline has passed.
inline bool check_time(int result, const char *call)
{
	if (result == -1 && errno == ETIMEDOUT)
		return false;
	check(result, call);
	return true;
}

// Never early, but not before the clock's beginning, nor after the last time that there is.
template <typename Duration>
time_point clamp(steady_time<Duration> time)
{
	using precise = std::chrono::duration<long double, time_point::period>;
	const long double ticks = precise(time.time_since_epoch()).count();

	if (!(ticks > 0))
		return time_point();
	if (ticks >= precise(time_point::max().time_since_epoch()).count())
		return time_point::max();
	return time_point(time_point::duration(static_cast<time_point::rep>(std::ceil(ticks))));
}

// The usual unit, without floating point.
inline time_point clamp(time_point time)
{
	return time < time_point() ? time_point() : time;
}

template <typename Duration>
timespec to_timespec(steady_time<Duration> time)
{
	const auto ns =
		std::chrono::duration_cast<std::chrono::nanoseconds>(clamp(time).time_since_epoch())
			.count();

	return { static_cast<time_t>(ns / 1000000000), static_cast<long>(ns % 1000000000) };
}

// @time from now.
template <typename Rep, typename Period>
time_point from_now(const std::chrono::duration<Rep, Period> &time)
{
	using precise = std::chrono::duration<long double, time_point::period>;
	const precise now = std::chrono::steady_clock::now().time_since_epoch();

	return clamp(steady_time<precise>(now + precise(time)));
}

// Misuse that a destructor finds.
[[noreturn]] inline void misused(const char *text) noexcept
{
	std::fprintf(stderr, "libswitchto-sched: %s\n", text);
	std::terminate();
}

struct job {
	std::exception_ptr thrown;
	// The task has ended, or its handle was detached: the second of the two deletes the job.
	std::atomic<bool> left{ false };

	job() = default;
	job(const job &) = delete;
	job &operator=(const job &) = delete;
	virtual ~job() = default;
	virtual void run() = 0;
	virtual void destroy_function() = 0;
};

template <typename F>
struct job_of final : job {
	std::optional<F> function;

	explicit job_of(F f)
		: function(std::move(f))
	{
	}
	void run() override { std::move (*function)(); }
	void destroy_function() override { function.reset(); }
};

inline bool is_cancelled() noexcept
{
	const timespec past = {};
	const int before = errno;
	const bool result = switchto_sleep_until(&past) == -1 && errno == ECANCELED;

	errno = before;
	return result;
}

// Nobody could catch an exception of a detached task: it calls std::terminate().
template <typename F>
void run_uncaught(F function)
{
	try {
		function();
	} catch (const std::system_error &error) {
		if (error.code() != std::errc::operation_canceled || !is_cancelled())
			throw;
	}
}

inline void run_detached(void *arg) noexcept
{
	const std::unique_ptr<job> own(static_cast<job *>(arg));

	run_uncaught([&] { own->run(); });
}

// As run_detached(), but the scheduler owns the job, until a step has let the task go.
inline void run_early(void *arg) noexcept
{
	job *j = static_cast<job *>(arg);

	run_uncaught([&] { j->run(); });
	j->destroy_function();
	if (j->left.exchange(true))
		const std::unique_ptr<job> own(j);
}

inline void run_joined(void *arg) noexcept
{
	job *j = static_cast<job *>(arg);

	try {
		j->run();
	} catch (...) {
		j->thrown = std::current_exception();
	}
	j->destroy_function();
	if (!j->left.exchange(true))
		return;
	const std::unique_ptr<job> own(j);
	if (own->thrown)
		run_uncaught([&] { std::rethrow_exception(own->thrown); });
}

inline unsigned int slot_of(const switchto_task *handle)
{
	const int slot = switchto_task_slot(handle);

	check(slot, "switchto_task_slot");
	return static_cast<unsigned int>(slot);
}

// The task that calls.
inline switchto_task *self(const char *call)
{
	switchto_task *task = switchto_task_self();

	if (!task)
		throw std::system_error(EPERM, std::generic_category(), call);
	return task;
}

} // namespace detail

// A task. The destructor cancels and joins it, like the one of std::jthread; the destructor of the
// task's own handle, called in the task, detaches it. A task must not outlive its scheduler, also if
// it has ended: declare the scheduler before.
class task {
public:
	task() = default;
	// Takes over a handle of switchto_spawn(); then @job is nullptr.
	task(switchto_task *handle, std::unique_ptr<detail::job> job)
		: handle_(handle),
		  job_(std::move(job))
	{
	}
	task(task &&other) noexcept
		: handle_(std::exchange(other.handle_, nullptr)),
		  job_(std::move(other.job_))
	{
	}
	task &operator=(task &&other) noexcept
	{
		if (this != &other) {
			end();
			handle_ = std::exchange(other.handle_, nullptr);
			job_ = std::move(other.job_);
		}
		return *this;
	}
	task(const task &) = delete;
	task &operator=(const task &) = delete;
	~task() { end(); }

	bool joinable() const noexcept { return handle_; }
	switchto_task *native_handle() const noexcept { return handle_; }

	// Throws what the task has thrown. All of these throw std::errc::invalid_argument if the
	// task is not joinable().
	void join()
	{
		detail::check(switchto_join(handle_), "switchto_join");
		joined();
	}
	// False: it has not ended in time, and is still joinable().
	template <typename Duration = time_point::duration>
	bool join_until(steady_time<Duration> time)
	{
		const timespec deadline = detail::to_timespec(time);

		if (!detail::check_time(switchto_join_until(handle_, &deadline),
					"switchto_join_until"))
			return false;
		joined();
		return true;
	}
	template <typename Rep, typename Period>
	bool join_for(const std::chrono::duration<Rep, Period> &time)
	{
		return join_until(detail::from_now(time));
	}
	// It goes on without its handle, and must have begun before its scheduler is destroyed. If
	// it has ended, this throws what it has thrown.
	void detach()
	{
		detail::check(switchto_detach(handle_), "switchto_detach");
		handle_ = nullptr;
		std::unique_ptr<detail::job> job = std::move(job_);
		if (job && !job->left.exchange(true))
			job.release(); // NOLINT(bugprone-unused-return-value): the task's
		else if (job && job->thrown)
			std::rethrow_exception(job->thrown);
	}
	// False: it has ended.
	bool cancel() { return lives(switchto_cancel(handle_), "switchto_cancel"); }
	bool unpark() { return lives(switchto_unpark(handle_), "switchto_unpark"); }
	bool set_attr(const switchto_task_attr &attr)
	{
		return lives(switchto_task_set_attr(handle_, &attr), "switchto_task_set_attr");
	}
	unsigned int slot() const { return detail::slot_of(handle_); }
	// Of a scheduler with SWITCHTO_MEASURE.
	struct switchto_task_stats stats() const
	{
		struct switchto_task_stats result = {};

		detail::check(switchto_task_stats(handle_, &result), "switchto_task_stats");
		return result;
	}

private:
	switchto_task *handle_ = nullptr;
	std::unique_ptr<detail::job> job_;

	void joined()
	{
		handle_ = nullptr;
		const std::unique_ptr<detail::job> job = std::move(job_);
		if (job && job->thrown)
			std::rethrow_exception(job->thrown);
	}

	static bool lives(int result, const char *call)
	{
		if (result == -1 && errno == ESRCH)
			return false;
		detail::check(result, call);
		return true;
	}

	// A caller that is cancelled itself waits, too: the task uses memory that is freed next.
	void end() noexcept
	{
		if (!handle_)
			return;
		if (switchto_end(handle_) == -1) {
			// A task may have its own handle, in what it captured, or in a static
			// object when it calls exit().
			if (errno == EDEADLK)
				return detach();
			// In the child of a fork, the task is the parent's.
			if (errno != EPERM)
				detail::misused("the handle of a switchto::task was given back "
						"by others");
			job_.release(); // NOLINT(bugprone-unused-return-value): in use
		}
		handle_ = nullptr;
	}
};

namespace detail {

template <typename F>
std::unique_ptr<job> make_job(F &&function)
{
	return std::make_unique<job_of<std::decay_t<F>>>(std::forward<F>(function));
}

inline task spawn(switchto_sched *sched, int slot, std::unique_ptr<job> job,
		  const switchto_task_attr *attr, void (*run)(void *) = run_joined)
{
	switchto_task *handle = nullptr;

	check(switchto_spawn_on(sched, slot, run, job.get(), attr, &handle), "switchto_spawn");
	return task(handle, std::move(job));
}

inline void spawn_detached(switchto_sched *sched, int slot, std::unique_ptr<job> job,
			   const switchto_task_attr *attr)
{
	check(switchto_spawn_on(sched, slot, run_detached, job.get(), attr, nullptr),
	      "switchto_spawn");
	job.release(); // NOLINT(bugprone-unused-return-value): the task's
}

struct nothing {};

// What a function's result is kept as.
template <typename T>
using result = std::optional<std::conditional_t<
	std::is_void_v<T>, nothing,
	std::conditional_t<std::is_reference_v<T>, std::add_pointer_t<T>, std::remove_cv_t<T>>>>;

} // namespace detail

// What the function of async() returns or throws. The destructor cancels and joins its task. As a
// task, it must not outlive its scheduler.
template <typename T>
class future {
public:
	future() = default;
	// By async().
	future(task task, std::shared_ptr<detail::result<T>> result)
		: task_(std::move(task)),
		  result_(std::move(result))
	{
	}

	bool valid() const noexcept { return result_ != nullptr; }
	bool cancel() { return task_.joinable() && task_.cancel(); }
	void wait()
	{
		ready([this] {
			task_.join();
			return true;
		});
	}
	// False: the result is not there yet.
	template <typename Duration = time_point::duration>
	bool wait_until(steady_time<Duration> time)
	{
		return ready([&] { return task_.join_until(time); });
	}
	template <typename Rep, typename Period>
	bool wait_for(const std::chrono::duration<Rep, Period> &time)
	{
		return wait_until(detail::from_now(time));
	}
	// Takes the result: the future is not valid() any more. All that wait throw
	// std::errc::invalid_argument then.
	T get()
	{
		wait();
		const std::shared_ptr<detail::result<T>> result = std::move(result_);
		if (thrown_)
			std::rethrow_exception(std::exchange(thrown_, nullptr));
		if constexpr (std::is_reference_v<T>)
			return static_cast<T>(***result);
		else if constexpr (!std::is_void_v<T>)
			return std::move(**result);
	}

private:
	template <typename Join>
	bool ready(Join join)
	{
		if (!valid())
			throw std::system_error(EINVAL, std::generic_category(),
						"switchto::future");
		if (!task_.joinable())
			return true;
		try {
			return join();
		} catch (...) {
			// Either the wait has failed, or the function.
			if (task_.joinable())
				throw;
			thrown_ = std::current_exception();
			return true;
		}
	}

	task task_;
	std::exception_ptr thrown_;
	std::shared_ptr<detail::result<T>> result_;
};

namespace detail {

template <typename F>
auto async(switchto_sched *sched, F &&function, const switchto_task_attr *attr)
{
	using T = std::invoke_result_t<std::decay_t<F>>;
	static_assert(!std::is_rvalue_reference_v<T>, "async() keeps no T &&: return a T");
	auto result = std::make_shared<detail::result<T>>();
	auto job = make_job([result, own = std::decay_t<F>(std::forward<F>(function))]() mutable {
		if constexpr (std::is_void_v<T>)
			std::move(own)();
		else if constexpr (std::is_reference_v<T>)
			*result = std::addressof(std::move(own)());
		else
			result->emplace(std::move(own)());
	});

	return future<T>(detail::spawn(sched, SWITCHTO_NEAR, std::move(job), attr),
			 std::move(result));
}

} // namespace detail

class executor;

class scheduler {
public:
	// With 0 slots: one for each CPU.
	explicit scheduler(unsigned int slots = 0, const switchto_policy *policy = nullptr)
		: scheduler(options_of(slots, policy))
	{
	}
	// With all options; their size is filled in.
	explicit scheduler(switchto_sched_options options)
	{
		options.size = sizeof(options);
		detail::check(switchto_sched_create(&sched_, &options), "switchto_sched_create");
	}
	scheduler(const scheduler &) = delete;
	scheduler &operator=(const scheduler &) = delete;
	// Drops detached tasks that have not begun, as after an exception of run(), if there was no
	// step(). There must be no others any more, unless exit() ends the program: declare a
	// switchto::task after its scheduler.
	~scheduler()
	{
		early_.clear();
		if (switchto_sched_destroy(sched_))
			detail::misused("a scheduler was destroyed while it was in use");
	}

	void run()
	{
		std::vector<task> early;

		{
			const std::lock_guard<std::mutex> guard(lock_);
			running_++;
			early.swap(early_);
		}
		const int result = switchto_sched_run(sched_), error = errno;
		{
			const std::lock_guard<std::mutex> guard(lock_);
			running_--;
			// Of two runs at once, one has them.
			if (result && !early.empty())
				early.swap(early_);
		}
		errno = error;
		detail::check(result, "switchto_sched_run");
	}
	// As switchto_sched_step() and switchto_sched_fd(). False: there are no tasks or work_guards. A
	// loop that ends before calls stop(true), and goes on with steps until there are none.
	// Between steps, nobody runs tasks. So the thread of the loop must not wait for a task then: not
	// by join(), nor by the destructor of a switchto::task or future whose task has begun, nor by
	// assigning to it. cancel() such a task, and give its handle back when the task has ended.
	bool step()
	{
		std::vector<task> early;
		bool first;

		{
			const std::lock_guard<std::mutex> guard(lock_);
			first = !std::exchange(stepped_, true);
			if (first)
				running_++;
			early.swap(early_);
		}
		const int result = switchto_sched_step(sched_), error = errno;
		if (result != -1) {
			for (task &own : early)
				own.detach();
		} else {
			const std::lock_guard<std::mutex> guard(lock_);
			if (first) {
				running_--;
				stepped_ = false;
			}
			// Also those that a run() gave back: it might be a long wait to drop them here.
			if (!early.empty())
				early.swap(early_);
		}
		errno = error;
		detail::check(result, "switchto_sched_step");
		return result;
	}
	int fd() const
	{
		const int result = switchto_sched_fd(sched_);

		detail::check(result, "switchto_sched_fd");
		return result;
	}
	// From now on, spawning throws ECANCELED. A detached task that is not cancelled and lets
	// that exception out calls std::terminate().
	void stop(bool cancel = false)
	{
		detail::check(switchto_sched_stop(sched_, cancel ? SWITCHTO_STOP_CANCEL : 0),
			      "switchto_sched_stop");
	}
	void restart() { detail::check(switchto_sched_restart(sched_), "switchto_sched_restart"); }

	template <typename F>
	[[nodiscard]] task spawn(F &&function, const switchto_task_attr *attr = nullptr)
	{
		return spawn_on(SWITCHTO_NEAR, std::forward<F>(function), attr);
	}
	template <typename F>
	[[nodiscard]] task spawn_on(int slot, F &&function,
				    const switchto_task_attr *attr = nullptr)
	{
		return detail::spawn(sched_, slot, detail::make_job(std::forward<F>(function)),
				     attr);
	}
	// Other threads than the scheduler's may call this before run(), while there is a work_guard, or
	// with step(). At another time run() might return without the task, and the scheduler could not
	// be destroyed.
	template <typename F>
	void spawn_detached(F &&function, const switchto_task_attr *attr = nullptr)
	{
		spawn_detached_on(SWITCHTO_NEAR, std::forward<F>(function), attr);
	}
	template <typename F>
	void spawn_detached_on(int slot, F &&function, const switchto_task_attr *attr = nullptr)
	{
		// Before the lock: a copy of the function may do anything.
		auto job = detail::make_job(std::forward<F>(function));

		if (running_ == 0) {
			const std::lock_guard<std::mutex> guard(lock_);
			if (running_ == 0) {
				early_.push_back(detail::spawn(sched_, slot, std::move(job), attr,
							       detail::run_early));
				return;
			}
		}
		detail::spawn_detached(sched_, slot, std::move(job), attr);
	}
	template <typename F>
	[[nodiscard]] auto async(F &&function, const switchto_task_attr *attr = nullptr)
	{
		return detail::async(sched_, std::forward<F>(function), attr);
	}
	// Of tasks that are spread over all slots, if nothing else is said.
	executor get_executor(int slot = SWITCHTO_ANY) noexcept;

	unsigned int slots() const noexcept { return switchto_sched_slots(sched_); }
	const char *engine() const noexcept { return switchto_sched_engine(sched_); }
	// Of a scheduler with SWITCHTO_MEASURE.
	struct switchto_slot_stats stats(unsigned int number) const
	{
		struct switchto_slot_stats result = {};

		detail::check(switchto_slot_stats(sched_, number, &result), "switchto_slot_stats");
		return result;
	}
	switchto_sched *native_handle() const noexcept { return sched_; }

private:
	static switchto_sched_options options_of(unsigned int slots, const switchto_policy *policy)
	{
		switchto_sched_options options = {};

		options.slots = slots;
		options.policy = policy;
		return options;
	}

	switchto_sched *sched_ = nullptr;
	std::mutex lock_;			 // of the rest
	std::vector<task> early_;		 // detached ones that wait for run()
	bool stepped_ = false;			 // counts in running_, too
	std::atomic<unsigned int> running_{ 0 }; // calls of run()
};

// run() does not return as long as there is one: switchto_sched_hold().
class work_guard {
public:
	explicit work_guard(scheduler &sched)
		: sched_(sched.native_handle())
	{
		detail::check(switchto_sched_hold(sched_), "switchto_sched_hold");
	}
	work_guard(const work_guard &) = delete;
	work_guard &operator=(const work_guard &) = delete;
	~work_guard() { reset(); }

	void reset() noexcept
	{
		if (sched_)
			switchto_sched_release(std::exchange(sched_, nullptr));
	}

private:
	switchto_sched *sched_;
};

// Each function that is handed to execute() runs in a detached task; execute() does not wait. See
// scheduler::spawn_detached() for other threads than the scheduler's. It is an executor to Asio (its
// concept execution::executor, Boost 1.74 and later): for dispatch(), post(), defer() and
// bind_executor(). any_io_executor and make_strand() do not take it: it has no execution_context.
// It is no scheduler of std::execution, which has senders.
class executor {
public:
	explicit executor(scheduler &sched, int slot = SWITCHTO_ANY) noexcept
		: sched_(&sched),
		  slot_(slot)
	{
	}

	template <typename F>
	void execute(F &&function) const
	{
		sched_->spawn_detached_on(slot_, std::forward<F>(function));
	}
	// Asio's blocking.never, which is how it is. Known by its shape, without Asio's headers.
	template <typename P, typename = std::enable_if_t<std::is_same_v<
				      P, typename P::polymorphic_query_result_type::never_t>>>
	executor require(P) const noexcept
	{
		return *this;
	}
	friend bool operator==(const executor &a, const executor &b) noexcept
	{
		return a.sched_ == b.sched_ && a.slot_ == b.slot_;
	}
	friend bool operator!=(const executor &a, const executor &b) noexcept { return !(a == b); }

private:
	scheduler *sched_;
	int slot_;
};

inline executor scheduler::get_executor(int slot) noexcept
{
	return executor(*this, slot);
}

// For tasks: in the caller's scheduler.
template <typename F>
[[nodiscard]] task spawn_on(int slot, F &&function, const switchto_task_attr *attr = nullptr)
{
	return detail::spawn(nullptr, slot, detail::make_job(std::forward<F>(function)), attr);
}

template <typename F>
[[nodiscard]] task spawn(F &&function, const switchto_task_attr *attr = nullptr)
{
	return switchto::spawn_on(SWITCHTO_NEAR, std::forward<F>(function), attr);
}

template <typename F>
void spawn_detached_on(int slot, F &&function, const switchto_task_attr *attr = nullptr)
{
	detail::spawn_detached(nullptr, slot, detail::make_job(std::forward<F>(function)), attr);
}

template <typename F>
void spawn_detached(F &&function, const switchto_task_attr *attr = nullptr)
{
	switchto::spawn_detached_on(SWITCHTO_NEAR, std::forward<F>(function), attr);
}

template <typename F>
[[nodiscard]] auto async(F &&function, const switchto_task_attr *attr = nullptr)
{
	return detail::async(nullptr, std::forward<F>(function), attr);
}

namespace this_task {

inline void yield()
{
	detail::check(switchto_yield(), "switchto_yield");
}

inline void park()
{
	detail::check(switchto_park(nullptr), "switchto_park");
}

// False: nobody unparked it in time.
template <typename Duration = time_point::duration>
bool park_until(steady_time<Duration> time)
{
	const timespec deadline = detail::to_timespec(time);

	return detail::check_time(switchto_park(&deadline), "switchto_park");
}

template <typename Rep, typename Period>
bool park_for(const std::chrono::duration<Rep, Period> &time)
{
	return park_until(detail::from_now(time));
}

template <typename Duration = time_point::duration>
void sleep_until(steady_time<Duration> time)
{
	const timespec deadline = detail::to_timespec(time);

	detail::check(switchto_sleep_until(&deadline), "switchto_sleep_until");
}

template <typename Rep, typename Period>
void sleep_for(const std::chrono::duration<Rep, Period> &time)
{
	sleep_until(detail::from_now(time));
}

// For one that computes: has it been cancelled? False while a shield holds the cancellation off, and
// in a blocking region. May wait for the slot.
using detail::is_cancelled;

inline unsigned int slot()
{
	return detail::slot_of(detail::self("switchto_task_slot"));
}

inline void set_name(const char *name)
{
	detail::check(switchto_task_name(name), "switchto_task_name");
}

inline void set_attr(const switchto_task_attr &attr)
{
	constexpr auto call = "switchto_task_set_attr";

	detail::check(switchto_task_set_attr(detail::self(call), &attr), call);
}

} // namespace this_task

// A blocking region, as long as it lives.
class blocking_region {
public:
	blocking_region() { detail::check(switchto_block_begin(), "switchto_block_begin"); }
	blocking_region(const blocking_region &) = delete;
	blocking_region &operator=(const blocking_region &) = delete;
	~blocking_region() { switchto_block_end(); }
};

// A trace of all schedulers, as long as it lives: switchto_trace_start().
class trace {
public:
	explicit trace(const char *file, std::size_t bytes = 0)
	{
		detail::check(switchto_trace_start(file, bytes), "switchto_trace_start");
	}
	trace(const trace &) = delete;
	trace &operator=(const trace &) = delete;
	~trace() { switchto_trace_stop(); }
};

// No cancellation ends a wait of the task, as long as it lives.
class shield {
public:
	shield() { detail::check(switchto_shield_begin(), "switchto_shield_begin"); }
	shield(const shield &) = delete;
	shield &operator=(const shield &) = delete;
	~shield() { switchto_shield_end(); }
};

struct strict_t {
	explicit strict_t() = default;
};
inline constexpr strict_t strict{};

// For std::lock_guard, std::unique_lock and std::scoped_lock: a std::timed_mutex whose times are of
// steady_clock. mutex m(switchto::strict) is one that is given to the task that has waited longest,
// see SWITCHTO_MUTEX_STRICT.
class mutex {
public:
	constexpr mutex() noexcept = default;
	explicit constexpr mutex(strict_t) noexcept
		: mutex_(SWITCHTO_MUTEX_STRICT)
	{
	}
	mutex(const mutex &) = delete;
	mutex &operator=(const mutex &) = delete;

	void lock() { detail::check(switchto_mutex_lock(&mutex_), "switchto_mutex_lock"); }
	bool try_lock() { return switchto_mutex_trylock(&mutex_) == 0; }
	template <typename Duration = time_point::duration>
	bool try_lock_until(steady_time<Duration> time)
	{
		const timespec deadline = detail::to_timespec(time);

		return detail::check_time(switchto_mutex_lock_until(&mutex_, &deadline),
					  "switchto_mutex_lock_until");
	}
	template <typename Rep, typename Period>
	bool try_lock_for(const std::chrono::duration<Rep, Period> &time)
	{
		return try_lock_until(detail::from_now(time));
	}
	// Throws std::errc::operation_not_permitted if the caller does not have it.
	void unlock() { detail::check(switchto_mutex_unlock(&mutex_), "switchto_mutex_unlock"); }
	switchto_mutex *native_handle() noexcept { return &mutex_; }

private:
	switchto_mutex mutex_ = {};
};

class condition_variable {
public:
	constexpr condition_variable() noexcept = default;
	condition_variable(const condition_variable &) = delete;
	condition_variable &operator=(const condition_variable &) = delete;

	void notify_one() noexcept { switchto_cond_signal(&cond_); }
	void notify_all() noexcept { switchto_cond_broadcast(&cond_); }
	switchto_cond *native_handle() noexcept { return &cond_; }
	void wait(std::unique_lock<mutex> &lock)
	{
		detail::check(switchto_cond_wait(&cond_, native(lock), nullptr),
			      "switchto_cond_wait");
	}
	template <typename Predicate>
	void wait(std::unique_lock<mutex> &lock, Predicate predicate)
	{
		while (!predicate())
			wait(lock);
	}
	template <typename Duration = time_point::duration>
	std::cv_status wait_until(std::unique_lock<mutex> &lock, steady_time<Duration> time)
	{
		const timespec deadline = detail::to_timespec(time);
		const int result = switchto_cond_wait(&cond_, native(lock), &deadline);

		return detail::check_time(result, "switchto_cond_wait") ?
			       std::cv_status::no_timeout :
			       std::cv_status::timeout;
	}
	template <typename Duration = time_point::duration, typename Predicate>
	bool wait_until(std::unique_lock<mutex> &lock, steady_time<Duration> time,
			Predicate predicate)
	{
		while (!predicate())
			if (wait_until(lock, time) == std::cv_status::timeout)
				return predicate();
		return true;
	}
	template <typename Rep, typename Period, typename... Predicate>
	auto wait_for(std::unique_lock<mutex> &lock, const std::chrono::duration<Rep, Period> &time,
		      Predicate... predicate)
	{
		return wait_until(lock, detail::from_now(time), std::move(predicate)...);
	}

private:
	static switchto_mutex *native(const std::unique_lock<mutex> &lock)
	{
		if (!lock.mutex())
			throw std::system_error(EPERM, std::generic_category(),
						"switchto_cond_wait");
		return lock.mutex()->native_handle();
	}

	switchto_cond cond_ = {};
};

class semaphore {
public:
	explicit semaphore(unsigned long count = 0) noexcept { sem_.count = count; }
	semaphore(const semaphore &) = delete;
	semaphore &operator=(const semaphore &) = delete;

	void acquire() { detail::check(switchto_sem_wait(&sem_, nullptr), "switchto_sem_wait"); }
	bool try_acquire() { return try_acquire_until(time_point()); }
	template <typename Duration = time_point::duration>
	bool try_acquire_until(steady_time<Duration> time)
	{
		const timespec deadline = detail::to_timespec(time);

		return detail::check_time(switchto_sem_wait(&sem_, &deadline), "switchto_sem_wait");
	}
	template <typename Rep, typename Period>
	bool try_acquire_for(const std::chrono::duration<Rep, Period> &time)
	{
		return try_acquire_until(detail::from_now(time));
	}
	void release() noexcept { switchto_sem_post(&sem_); }
	switchto_sem *native_handle() noexcept { return &sem_; }

private:
	switchto_sem sem_ = {};
};

class wait_group {
public:
	constexpr wait_group() noexcept = default;
	wait_group(const wait_group &) = delete;
	wait_group &operator=(const wait_group &) = delete;

	switchto_group *native_handle() noexcept { return &group_; }
	void add(unsigned long count = 1) noexcept { switchto_group_add(&group_, count); }
	void done() { detail::check(switchto_group_done(&group_), "switchto_group_done"); }
	void wait() { detail::check(switchto_group_wait(&group_, nullptr), "switchto_group_wait"); }
	template <typename Duration = time_point::duration>
	bool wait_until(steady_time<Duration> time)
	{
		const timespec deadline = detail::to_timespec(time);

		return detail::check_time(switchto_group_wait(&group_, &deadline),
					  "switchto_group_wait");
	}
	template <typename Rep, typename Period>
	bool wait_for(const std::chrono::duration<Rep, Period> &time)
	{
		return wait_until(detail::from_now(time));
	}

private:
	switchto_group group_ = {};
};

// --- cancellation from one place: like std::stop_token and so on ---

namespace detail {

// What a stop of a stop_state calls.
class stop_call {
public:
	stop_call() = default;
	stop_call(const stop_call &) = delete;
	stop_call &operator=(const stop_call &) = delete;

	virtual void call() noexcept = 0;

	stop_call *next_ = nullptr, *previous_ = nullptr;
	bool listed_ = false;

protected:
	~stop_call() = default;
};

class stop_state {
public:
	bool is_stopped() const noexcept { return stopped_; }
	bool stop()
	{
		if (stopped_.exchange(true))
			return false;
		for (;;) {
			const std::lock_guard<mutex> busy(busy_);
			stop_call *const call = next();

			if (!call)
				return true;
			call->call();
		}
	}
	void add(stop_call *call)
	{
		if (!put_in(call))
			call->call();
	}
	// Waits while another thread is in it.
	void remove(stop_call *call) noexcept
	{
		if (is_gone(call))
			return;
		// It fails if the call ends itself, with EDEADLK, and in the child of a fork.
		switchto_mutex *busy = busy_.native_handle();
		if (switchto_mutex_lock(busy) == 0)
			switchto_mutex_unlock(busy);
	}

private:
	stop_call *next()
	{
		const std::lock_guard<mutex> guard(lock_);

		running_ = first_;
		if (first_)
			take_out(first_);
		return running_;
	}
	bool put_in(stop_call *call)
	{
		const std::lock_guard<mutex> guard(lock_);

		if (stopped_)
			return false;
		call->next_ = first_;
		if (first_)
			first_->previous_ = call;
		first_ = call;
		call->listed_ = true;
		return true;
	}
	// False: it may be running.
	bool is_gone(stop_call *call)
	{
		const std::lock_guard<mutex> guard(lock_);

		if (call->listed_)
			take_out(call);
		else if (call == running_)
			return false;
		return true;
	}
	void take_out(stop_call *call) noexcept
	{
		(call->previous_ ? call->previous_->next_ : first_) = call->next_;
		if (call->next_)
			call->next_->previous_ = call->previous_;
		call->previous_ = nullptr;
		call->listed_ = false;
	}

	mutex busy_; // held while a call runs
	mutex lock_; // of the rest
	stop_call *first_ = nullptr;
	stop_call *running_ = nullptr; // or the last one that ran
	std::atomic<bool> stopped_{ false };
};

} // namespace detail

class stop_token {
public:
	stop_token() = default;
	bool stop_requested() const noexcept { return state_ && state_->is_stopped(); }
	bool stop_possible() const noexcept { return state_ != nullptr; }

private:
	friend class stop_source;
	template <typename F>
	friend class stop_callback;
	explicit stop_token(std::shared_ptr<detail::stop_state> state)
		: state_(std::move(state))
	{
	}

	std::shared_ptr<detail::stop_state> state_;
};

class stop_source {
public:
	// Any thread may call it; the callbacks run in it. False: this was requested before, or the
	// source was moved from.
	bool request_stop()
	{
		const auto state = state_; // a callback may end the source

		return state && state->stop();
	}
	bool stop_requested() const noexcept { return state_ && state_->is_stopped(); }
	stop_token get_token() const { return stop_token(state_); }

private:
	std::shared_ptr<detail::stop_state> state_ = std::make_shared<detail::stop_state>();
};

// Like std::stop_callback: the destructor waits if another thread is in the callback. An exception
// of it calls std::terminate().
template <typename F>
class stop_callback final : detail::stop_call {
public:
	stop_callback(const stop_token &token, F function)
		: function_(std::move(function)),
		  state_(token.state_)
	{
		if (state_)
			state_->add(this);
	}
	~stop_callback()
	{
		if (state_)
			state_->remove(this);
	}

private:
	void call() noexcept override { function_(); }

	F function_;
	std::shared_ptr<detail::stop_state> state_;
};
template <typename F>
stop_callback(stop_token, F) -> stop_callback<F>;

// In a task: a stop cancels the task, as long as this lives. With C++20's tokens:
//	std::stop_callback c(token, [self = switchto_task_self()] { switchto_cancel(self); });
class cancel_on_stop {
public:
	explicit cancel_on_stop(const stop_token &token)
		: callback_(token, cancel{ detail::self("switchto::cancel_on_stop") })
	{
	}
	cancel_on_stop(const cancel_on_stop &) = delete;
	cancel_on_stop &operator=(const cancel_on_stop &) = delete;

private:
	struct cancel {
		switchto_task *task;
		void operator()() const noexcept { switchto_cancel(task); }
	};

	stop_callback<cancel> callback_;
};

// --- channels ---

enum class channel_status { done, closed, timeout };

namespace detail {

// Such items travel as memory, others on the heap.
template <typename T>
inline constexpr bool is_plain =
	std::is_trivially_copyable_v<T> &&std::is_default_constructible_v<T>;

// What travels for an item that is to be sent. Its destructor gives back an item that was moved into
// it and did not travel.
template <typename T, bool plain = is_plain<T>>
class parcel {
public:
	using cargo = T;
	explicit parcel(const T &item)
		: cargo_(item)
	{
	}
	explicit parcel(T &&item)
		: cargo_(std::move(item))
	{
	}
	parcel(const parcel &) = delete;
	parcel &operator=(const parcel &) = delete;
	cargo *get() noexcept { return &cargo_; }
	void sent() noexcept {}
	static T open(cargo &item) { return std::move(item); }

private:
	T cargo_;
};

template <typename T>
class parcel<T, false> {
public:
	using cargo = T *;
	explicit parcel(const T &item)
		: own_(std::make_unique<T>(item)),
		  cargo_(own_.get())
	{
	}
	explicit parcel(T &&item)
		: own_(std::make_unique<T>(std::move(item))),
		  cargo_(own_.get()),
		  from_(&item)
	{
	}
	parcel(const parcel &) = delete;
	parcel &operator=(const parcel &) = delete;
	~parcel()
	{
		if (own_ && from_)
			*from_ = std::move(*own_);
	}
	cargo *get() noexcept { return &cargo_; }
	void sent() noexcept { own_.release(); } // NOLINT(bugprone-unused-return-value)
	static T open(cargo &item)
	{
		const std::unique_ptr<T> own(item);

		return std::move(*own);
	}

private:
	std::unique_ptr<T> own_;
	T *cargo_;
	T *from_ = nullptr;
};

} // namespace detail

// Items of any type that can be moved and move-assigned; an exception of that assignment calls
// std::terminate(). A T that was not sent is left as it was. An argument of another type is not: it
// has been converted to a T for the call.
template <typename T>
class channel {
	using parcel = detail::parcel<T>;

public:
	using value_type = T;

	explicit channel(std::size_t capacity = 0)
	{
		detail::check(switchto_chan_create(&chan_, sizeof(typename parcel::cargo),
						   capacity),
			      "switchto_chan_create");
	}
	channel(const channel &) = delete;
	channel &operator=(const channel &) = delete;
	// Destroys the items that are left.
	~channel()
	{
		if constexpr (!detail::is_plain<T>) {
			const timespec past = {};
			T *item;

			while (switchto_chan_recv(chan_, &item, &past) == 0)
				delete item;
		}
		if (switchto_chan_destroy(chan_))
			detail::misused("a channel was destroyed while it was in use");
	}

	// False: it is closed.
	bool send(const T &item) { return send_item(item, nullptr) == channel_status::done; }
	bool send(T &&item) { return send_item(std::move(item), nullptr) == channel_status::done; }
	// Without waiting.
	channel_status try_send(const T &item) { return send_until(item, time_point()); }
	channel_status try_send(T &&item) { return send_until(std::move(item), time_point()); }
	template <typename Duration = time_point::duration>
	channel_status send_until(const T &item, steady_time<Duration> time)
	{
		const timespec deadline = detail::to_timespec(time);

		return send_item(item, &deadline);
	}
	template <typename Duration = time_point::duration>
	channel_status send_until(T &&item, steady_time<Duration> time)
	{
		const timespec deadline = detail::to_timespec(time);

		return send_item(std::move(item), &deadline);
	}
	template <typename Rep, typename Period>
	channel_status send_for(const T &item, const std::chrono::duration<Rep, Period> &time)
	{
		return send_until(item, detail::from_now(time));
	}
	template <typename Rep, typename Period>
	channel_status send_for(T &&item, const std::chrono::duration<Rep, Period> &time)
	{
		return send_until(std::move(item), detail::from_now(time));
	}

	// Nothing: it is closed and empty.
	std::optional<T> receive()
	{
		std::optional<T> item;

		receive_item(item, nullptr);
		return item;
	}
	// Without waiting.
	channel_status try_receive(std::optional<T> &item)
	{
		return receive_until(item, time_point());
	}
	template <typename Duration = time_point::duration>
	channel_status receive_until(std::optional<T> &item, steady_time<Duration> time)
	{
		const timespec deadline = detail::to_timespec(time);

		return receive_item(item, &deadline);
	}
	template <typename Rep, typename Period>
	channel_status receive_for(std::optional<T> &item,
				   const std::chrono::duration<Rep, Period> &time)
	{
		return receive_until(item, detail::from_now(time));
	}

	void close() noexcept { switchto_chan_close(chan_); }
	switchto_chan *native_handle() const noexcept { return chan_; }

private:
	static channel_status status_of(int result, const char *call)
	{
		if (result == -1 && errno == EPIPE)
			return channel_status::closed;
		return detail::check_time(result, call) ? channel_status::done :
							  channel_status::timeout;
	}

	template <typename U>
	channel_status send_item(U &&item, const timespec *deadline)
	{
		parcel out(std::forward<U>(item));
		const int result = switchto_chan_send(chan_, out.get(), deadline);

		if (result == 0)
			out.sent();
		return status_of(result, "switchto_chan_send");
	}
	channel_status receive_item(std::optional<T> &item, const timespec *deadline)
	{
		typename parcel::cargo in;
		const int result = switchto_chan_recv(chan_, &in, deadline);

		if (result == 0)
			item.emplace(parcel::open(in));
		return status_of(result, "switchto_chan_recv");
	}

	switchto_chan *chan_ = nullptr;
};

namespace detail {

struct ignore {
	template <typename T>
	void operator()(T &&) const noexcept
	{
	}
};

// An item that is moved in several cases of one select() travels in one parcel.
struct moved {
	const void *item, *type;
	void *parcel;
};
template <typename T>
inline constexpr char type_mark = 0;

template <typename T, typename F>
class receive_case {
public:
	receive_case(channel<T> *from, F function)
		: chan_(from ? from->native_handle() : nullptr),
		  function_(std::move(function))
	{
	}
	template <typename All>
	switchto_case native(All &) noexcept
	{
		return { chan_, SWITCHTO_RECEIVE, &item_, false };
	}
	void sent() noexcept {}
	void settle() noexcept {}
	void done(bool closed)
	{
		function_(closed ? std::optional<T>() : std::optional<T>(parcel<T>::open(item_)));
	}

private:
	switchto_chan *chan_;
	typename parcel<T>::cargo item_;
	F function_;
};

// Item: const T & or T &&.
template <typename T, typename Item, typename F>
class send_case {
public:
	send_case(channel<T> *to, Item item, F function)
		: chan_(to ? to->native_handle() : nullptr),
		  item_(static_cast<Item>(item)),
		  function_(std::move(function))
	{
	}
	template <std::size_t n>
	switchto_case native(std::array<moved, n> &all)
	{
		const bool moves = std::is_rvalue_reference_v<Item>;
		std::size_t i = 0;

		while (moves && all[i].item &&
		       (all[i].item != &item_ || all[i].type != &type_mark<T>))
			i++;
		used_ = moves && all[i].item ? static_cast<parcel<T> *>(all[i].parcel) :
					       &parcel_.emplace(static_cast<Item>(item_));
		if (moves)
			all[i] = { &item_, &type_mark<T>, used_ };
		return { chan_, SWITCHTO_SEND, used_->get(), false };
	}
	void sent() { used_->sent(); }
	void settle() { parcel_.reset(); }
	void done(bool closed) { function_(!closed); }

private:
	switchto_chan *chan_;
	Item item_;
	std::optional<parcel<T>> parcel_;
	parcel<T> *used_ = nullptr; // or that of another case
	F function_;
};

template <typename F>
class poll_case {
public:
	poll_case(int fd, short events, F function)
		: poll_{ fd, events, 0 },
		  function_(std::move(function))
	{
	}
	template <typename All>
	switchto_case native(All &) noexcept
	{
		return { nullptr, SWITCHTO_POLL, &poll_, false };
	}
	void sent() noexcept {}
	void settle() noexcept {}
	void done(bool) { function_(poll_.revents); }

private:
	pollfd poll_;
	F function_;
};

template <typename... Cases>
std::optional<std::size_t> select(const timespec *deadline, Cases &&...cases)
{
	static_assert((!std::is_lvalue_reference_v<Cases> && ...),
		      "make the cases in the call of select(): they refer to their items");
	std::array<moved, sizeof...(cases) + 1> all = {};
	std::array<switchto_case, sizeof...(cases)> native = { cases.native(all)... };
	const int index = switchto_select(native.data(), native.size(), deadline), error = errno;
	const auto chosen = static_cast<std::size_t>(index);
	std::size_t i = 0;

	// Before a function is called, or an exception thrown: items that were not sent are back.
	((i == chosen && !native[i].closed ? cases.sent() : void(), i++), ...);
	(cases.settle(), ...);
	errno = error;
	if (!check_time(index == -1 ? -1 : 0, "switchto_select"))
		return std::nullopt;
	i = 0;
	((i++ == chosen ? cases.done(native[chosen].closed) : void()), ...);
	return chosen;
}

} // namespace detail

// The cases of select(). @function is called if the case is the one that was done: with a
// std::optional<T>, which is empty if the channel is closed and empty; with a bool, false if it is
// closed; with revents. A case without a channel, or with a negative descriptor, is off. Make the
// cases in the call: they refer to their items. An item may be moved in several cases, and is then
// sent once.
template <typename T, typename F = detail::ignore>
detail::receive_case<T, F> on_receive(channel<T> *from, F function = F())
{
	return { from, std::move(function) };
}
template <typename T, typename F = detail::ignore>
detail::send_case<T, const T &, F> on_send(channel<T> *to,
					   const typename channel<T>::value_type &item,
					   F function = F())
{
	return { to, item, std::move(function) };
}
template <typename T, typename F = detail::ignore>
detail::send_case<T, T &&, F> on_send(channel<T> *to, typename channel<T>::value_type &&item,
				      F function = F())
{
	return { to, std::move(item), std::move(function) };
}
template <typename F = detail::ignore>
detail::poll_case<F> on_ready(int fd, short events, F function = F())
{
	return { fd, events, std::move(function) };
}

// The first case that is possible, and its index:
//	switchto::select(switchto::on_receive(&jobs, [](std::optional<job> j) { ... }),
//			 switchto::on_ready(fd, POLLIN));
template <typename... Cases>
std::size_t select(Cases &&...cases)
{
	return *detail::select(nullptr, std::forward<Cases>(cases)...);
}
// Nothing: none was possible in time.
template <typename Duration = time_point::duration, typename... Cases>
std::optional<std::size_t> select_until(steady_time<Duration> time, Cases &&...cases)
{
	const timespec deadline = detail::to_timespec(time);

	return detail::select(&deadline, std::forward<Cases>(cases)...);
}
template <typename Rep, typename Period, typename... Cases>
std::optional<std::size_t> select_for(const std::chrono::duration<Rep, Period> &time,
				      Cases &&...cases)
{
	return select_until(detail::from_now(time), std::forward<Cases>(cases)...);
}
template <typename... Cases>
std::optional<std::size_t> try_select(Cases &&...cases)
{
	return select_until(time_point(), std::forward<Cases>(cases)...);
}

// --- I/O ---

namespace detail {

template <typename... P>
struct list {
};

// The function of C with the parameters P and a deadline.
template <auto Call, typename R, typename P>
class timed_call;

template <auto Call, typename R, typename... P>
class timed_call<Call, R, list<P...>> {
	// What can't be negative: a length; but a descriptor stays an int.
	using result = std::conditional_t<std::is_same_v<R, ssize_t>, std::size_t, R>;

public:
	explicit constexpr timed_call(const char *name) noexcept
		: name_(name)
	{
	}
	result operator()(P... args) const
	{
		const R n = Call(args..., nullptr);

		if (n == -1)
			check(-1, name_);
		return static_cast<result>(n);
	}
	// Nothing: the deadline has passed.
	template <typename Duration = time_point::duration>
	std::optional<result> until(steady_time<Duration> time, P... args) const
	{
		const timespec deadline = to_timespec(time);
		const R n = Call(args..., &deadline);

		if (!check_time(n == -1 ? -1 : 0, name_))
			return std::nullopt;
		return static_cast<result>(n);
	}
	template <typename Rep, typename Period>
	std::optional<result> within(const std::chrono::duration<Rep, Period> &time,
				     P... args) const
	{
		return until(from_now(time), args...);
	}

private:
	const char *name_;
};

// Parts the last parameter, the deadline, from the others.
template <typename Before, typename... Rest>
struct without_last;
template <typename... Before, typename Last>
struct without_last<list<Before...>, Last> {
	using type = list<Before...>;
};
template <typename... Before, typename First, typename... Rest>
struct without_last<list<Before...>, First, Rest...>
	: without_last<list<Before..., First>, Rest...> {
};

template <auto Call, typename R, typename... P>
constexpr timed_call<Call, R, typename without_last<list<>, P...>::type> timed(
	R (*)(P...), const char *name) noexcept
{
	return timed_call<Call, R, typename without_last<list<>, P...>::type>(name);
}

} // namespace detail

// The calls of switchto/sched.h, without the deadline at the end:
//	size_t n = io::read(fd, buffer, size);				an error is thrown
//	std::optional<size_t> n = io::read.within(5s, fd, buffer, size);	nothing: too late
// and io::read.until(time, ...).
namespace io {

#define SWITCHTO_TIMED(name)                                                         \
	inline constexpr auto name = detail::timed<switchto_##name>(switchto_##name, \
								    "switchto_" #name)
SWITCHTO_TIMED(read);
SWITCHTO_TIMED(write);
SWITCHTO_TIMED(readv);
SWITCHTO_TIMED(writev);
SWITCHTO_TIMED(pread);
SWITCHTO_TIMED(pwrite);
SWITCHTO_TIMED(preadv);
SWITCHTO_TIMED(pwritev);
SWITCHTO_TIMED(recv);
SWITCHTO_TIMED(send);
SWITCHTO_TIMED(recvfrom);
SWITCHTO_TIMED(sendto);
SWITCHTO_TIMED(recvmsg);
SWITCHTO_TIMED(sendmsg);
SWITCHTO_TIMED(recvmmsg);
SWITCHTO_TIMED(sendmmsg);
SWITCHTO_TIMED(accept);
SWITCHTO_TIMED(connect);
SWITCHTO_TIMED(splice);
SWITCHTO_TIMED(sendfile);
SWITCHTO_TIMED(poll);
SWITCHTO_TIMED(await);
#if defined(WEXITED) && (defined(__GLIBC__) || defined(SI_USER))
SWITCHTO_TIMED(waitid);
#endif
#undef SWITCHTO_TIMED

inline int openat(int folder, const char *path, int flags, mode_t mode = 0)
{
	const int fd = switchto_openat(folder, path, flags, mode);

	detail::check(fd, "switchto_openat");
	return fd;
}

inline void fsync(int fd)
{
	detail::check(switchto_fsync(fd), "switchto_fsync");
}

inline void close(int fd)
{
	detail::check(switchto_close(fd), "switchto_close");
}

inline void forget(int fd) noexcept
{
	switchto_forget(fd);
}

} // namespace io

} // namespace switchto

#endif // SWITCHTO_SCHED_HPP
