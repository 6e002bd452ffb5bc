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
// Time points are of std::chrono::steady_clock, which on Linux is CLOCK_MONOTONIC, in any unit. A time
// that is out of range counts as the nearest one in range. There are no functions for other clocks, and
// no wait_for(): add to steady_clock::now().
//
// A task's function, with all that it has captured, is destroyed before the task ends, as with
// std::thread. An exception of a detached task calls std::terminate(). But a detached task that was
// cancelled, for example by stop(true), may end by the exception of ECANCELED.
#ifndef SWITCHTO_SCHED_HPP
#define SWITCHTO_SCHED_HPP

#include <switchto/sched.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

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
	void run() override { (*function)(); }
	void destroy_function() override { function.reset(); }
};

inline bool is_cancelled() noexcept
{
	const timespec past = {};

	return switchto_sleep_until(&past) == -1 && errno == ECANCELED;
}

// Nobody could catch an exception of a detached task: it calls std::terminate().
inline void run_uncaught(job *job)
{
	try {
		job->run();
	} catch (const std::system_error &error) {
		if (error.code() != std::errc::operation_canceled || !is_cancelled())
			throw;
	}
}

inline void run_detached(void *arg) noexcept
{
	run_uncaught(std::unique_ptr<job>(static_cast<job *>(arg)).get());
}

// As run_detached(), but the scheduler owns the job.
inline void run_early(void *arg) noexcept
{
	job *j = static_cast<job *>(arg);

	run_uncaught(j);
	j->destroy_function();
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
}

} // namespace detail

// A task that must be joined. The destructor cancels and joins it, like the one of std::jthread. A
// task must not outlive its scheduler, also if it has ended: declare the scheduler before.
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

	// Throws what the task has thrown. All three of a task that is not joinable() throw
	// std::errc::invalid_argument.
	void join()
	{
		detail::check(switchto_join(handle_), "switchto_join");
		handle_ = nullptr;
		const std::unique_ptr<detail::job> job = std::move(job_);
		if (job && job->thrown)
			std::rethrow_exception(job->thrown);
	}
	// False: it has ended.
	bool cancel() { return lives(switchto_cancel(handle_), "switchto_cancel"); }
	bool unpark() { return lives(switchto_unpark(handle_), "switchto_unpark"); }

private:
	switchto_task *handle_ = nullptr;
	std::unique_ptr<detail::job> job_;

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
			// A task that calls exit() may have its own handle in a static object. In the
			// child of a fork, the task is the parent's.
			if (errno != EDEADLK && errno != EPERM)
				detail::misused("the handle of a switchto::task was given back "
						"by others");
			job_.release(); // NOLINT(bugprone-unused-return-value): in use
		}
		handle_ = nullptr;
	}
};

namespace detail {

template <typename F>
task spawn(switchto_sched *sched, F &&function, const switchto_task_attr *attr,
	   void (*run)(void *) = run_joined)
{
	auto job = std::make_unique<job_of<std::decay_t<F>>>(std::forward<F>(function));
	switchto_task *handle = nullptr;

	check(switchto_spawn(sched, run, static_cast<detail::job *>(job.get()), attr, &handle),
	      "switchto_spawn");
	return task(handle, std::move(job));
}

template <typename F>
void spawn_detached(switchto_sched *sched, F &&function, const switchto_task_attr *attr)
{
	auto job = std::make_unique<job_of<std::decay_t<F>>>(std::forward<F>(function));

	check(switchto_spawn(sched, run_detached, static_cast<detail::job *>(job.get()), attr,
			     nullptr),
	      "switchto_spawn");
	job.release(); // NOLINT(bugprone-unused-return-value): the task's
}

} // namespace detail

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
	// Drops detached tasks that have not begun, as after an exception of run(). There must be no
	// others any more, unless exit() ends the program: declare a switchto::task after its
	// scheduler.
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
	void stop(bool cancel = false)
	{
		detail::check(switchto_sched_stop(sched_, cancel ? SWITCHTO_STOP_CANCEL : 0),
			      "switchto_sched_stop");
	}
	template <typename F>
	[[nodiscard]] task spawn(F &&function, const switchto_task_attr *attr = nullptr)
	{
		return detail::spawn(sched_, std::forward<F>(function), attr);
	}
	template <typename F>
	void spawn_detached(F &&function, const switchto_task_attr *attr = nullptr)
	{
		if (running_ == 0) {
			const std::lock_guard<std::mutex> guard(lock_);
			if (running_ == 0) {
				early_.push_back(detail::spawn(sched_, std::forward<F>(function),
							       attr, detail::run_early));
				return;
			}
		}
		detail::spawn_detached(sched_, std::forward<F>(function), attr);
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
	std::atomic<unsigned int> running_{ 0 }; // calls of run()
};

// For tasks: in the caller's scheduler.
template <typename F>
[[nodiscard]] task spawn(F &&function, const switchto_task_attr *attr = nullptr)
{
	return detail::spawn(nullptr, std::forward<F>(function), attr);
}

template <typename F>
void spawn_detached(F &&function, const switchto_task_attr *attr = nullptr)
{
	detail::spawn_detached(nullptr, std::forward<F>(function), attr);
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

} // namespace this_task

// A blocking region, as long as it lives.
class blocking_region {
public:
	blocking_region() { detail::check(switchto_block_begin(), "switchto_block_begin"); }
	blocking_region(const blocking_region &) = delete;
	blocking_region &operator=(const blocking_region &) = delete;
	~blocking_region() { switchto_block_end(); }
};

struct strict_t {
	explicit strict_t() = default;
};
inline constexpr strict_t strict{};

// For std::lock_guard, std::unique_lock and std::scoped_lock. mutex m(switchto::strict) is one that is
// given to whoever has waited longest, see SWITCHTO_MUTEX_STRICT.
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
	template <typename Duration = time_point::duration>
	bool try_acquire_until(steady_time<Duration> time)
	{
		const timespec deadline = detail::to_timespec(time);

		return detail::check_time(switchto_sem_wait(&sem_, &deadline), "switchto_sem_wait");
	}
	void release() noexcept { switchto_sem_post(&sem_); }

private:
	switchto_sem sem_ = {};
};

class wait_group {
public:
	constexpr wait_group() noexcept = default;
	wait_group(const wait_group &) = delete;
	wait_group &operator=(const wait_group &) = delete;

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

private:
	switchto_group group_ = {};
};

// Items are copied as memory.
template <typename T>
class channel {
	static_assert(std::is_trivially_copyable_v<T> && std::is_default_constructible_v<T>);

public:
	explicit channel(std::size_t capacity = 0)
	{
		detail::check(switchto_chan_create(&chan_, sizeof(T), capacity),
			      "switchto_chan_create");
	}
	channel(const channel &) = delete;
	channel &operator=(const channel &) = delete;
	~channel()
	{
		if (switchto_chan_destroy(chan_))
			detail::misused("a channel was destroyed while it was in use");
	}

	// False: it is closed.
	bool send(const T &item)
	{
		if (switchto_chan_send(chan_, &item, nullptr) == 0)
			return true;
		if (errno == EPIPE)
			return false;
		detail::check(-1, "switchto_chan_send");
		return false;
	}
	// Nothing: it is closed and empty.
	std::optional<T> receive()
	{
		T item;

		if (switchto_chan_recv(chan_, &item, nullptr) == 0)
			return item;
		if (errno == EPIPE)
			return std::nullopt;
		detail::check(-1, "switchto_chan_recv");
		return std::nullopt;
	}
	void close() noexcept { switchto_chan_close(chan_); }
	switchto_chan *native_handle() const noexcept { return chan_; }

private:
	switchto_chan *chan_ = nullptr;
};

} // namespace switchto

#endif // SWITCHTO_SCHED_HPP
