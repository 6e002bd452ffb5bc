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
// Time points are of std::chrono::steady_clock, which on Linux is CLOCK_MONOTONIC.
#ifndef SWITCHTO_SCHED_HPP
#define SWITCHTO_SCHED_HPP

#include <switchto/sched.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <type_traits>
#include <utility>

namespace switchto {

using time_point = std::chrono::steady_clock::time_point;

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

// A time before the clock's beginning has passed, as the beginning itself has.
inline timespec to_timespec(time_point time)
{
	const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(
				std::max(time, time_point()).time_since_epoch())
				.count();

	return { static_cast<time_t>(ns / 1000000000), static_cast<long>(ns % 1000000000) };
}

// @time from now, never early; or the last time that there is.
template <typename Rep, typename Period>
time_point from_now(const std::chrono::duration<Rep, Period> &time)
{
	using seconds = std::chrono::duration<long double>;
	const time_point now = std::chrono::steady_clock::now();

	if (!(seconds(time) > seconds(0)))
		return now;
	// A double has no nanoseconds in so long a time, but nobody waits so long either.
	if (seconds(time) >= seconds(time_point::max() - now) - seconds(1))
		return time_point::max();
	return now + std::chrono::ceil<time_point::duration>(time);
}

// A destructor of an object that is in use.
[[noreturn]] inline void in_use(const char *what) noexcept
{
	std::fprintf(stderr, "libswitchto-sched: a %s was destroyed while it was in use\n", what);
	std::terminate();
}

struct job {
	std::exception_ptr thrown;

	job() = default;
	job(const job &) = delete;
	job &operator=(const job &) = delete;
	virtual ~job() = default;
	virtual void run() = 0;
};

template <typename F>
struct job_of final : job {
	F function;

	explicit job_of(F f)
		: function(std::move(f))
	{
	}
	void run() override { function(); }
};

// Nobody could catch an exception of a detached task: it calls std::terminate().
inline void run_detached(void *arg) noexcept
{
	std::unique_ptr<job>(static_cast<job *>(arg))->run();
}

inline void run_joined(void *arg) noexcept
{
	job *j = static_cast<job *>(arg);

	try {
		j->run();
	} catch (...) {
		j->thrown = std::current_exception();
	}
}

} // namespace detail

// A task that must be joined. The destructor cancels and joins it, like the one of std::jthread. A
// task must not outlive its scheduler, also if it has ended: declare the scheduler before.
class task {
public:
	task() = default;
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
		if (job->thrown)
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
				std::terminate();
			job_.release(); // NOLINT(bugprone-unused-return-value): in use
		}
		handle_ = nullptr;
	}
};

namespace detail {

template <typename F>
task spawn(switchto_sched *sched, F &&function, const switchto_task_attr *attr)
{
	auto job = std::make_unique<job_of<std::decay_t<F>>>(std::forward<F>(function));
	switchto_task *handle = nullptr;

	check(switchto_spawn(sched, run_joined, static_cast<detail::job *>(job.get()), attr,
			     &handle),
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
	// There must be no tasks any more, unless exit() ends the program.
	~scheduler()
	{
		if (switchto_sched_destroy(sched_) && !switchto_task_self())
			detail::in_use("scheduler");
	}

	void run() { detail::check(switchto_sched_run(sched_), "switchto_sched_run"); }
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
inline bool park_until(time_point time)
{
	const timespec deadline = detail::to_timespec(time);

	return detail::check_time(switchto_park(&deadline), "switchto_park");
}

inline void sleep_until(time_point time)
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
	void unlock() { switchto_mutex_unlock(&mutex_); }
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
		detail::check(switchto_cond_wait(&cond_, lock.mutex()->native_handle(), nullptr),
			      "switchto_cond_wait");
	}
	template <typename Predicate>
	void wait(std::unique_lock<mutex> &lock, Predicate predicate)
	{
		while (!predicate())
			wait(lock);
	}
	std::cv_status wait_until(std::unique_lock<mutex> &lock, time_point time)
	{
		const timespec deadline = detail::to_timespec(time);
		const int result = switchto_cond_wait(&cond_, lock.mutex()->native_handle(),
						      &deadline);

		return detail::check_time(result, "switchto_cond_wait") ?
			       std::cv_status::no_timeout :
			       std::cv_status::timeout;
	}
	template <typename Predicate>
	bool wait_until(std::unique_lock<mutex> &lock, time_point time, Predicate predicate)
	{
		while (!predicate())
			if (wait_until(lock, time) == std::cv_status::timeout)
				return predicate();
		return true;
	}

private:
	switchto_cond cond_ = {};
};

class semaphore {
public:
	explicit semaphore(unsigned long count = 0) noexcept { sem_.count = count; }
	semaphore(const semaphore &) = delete;
	semaphore &operator=(const semaphore &) = delete;

	void acquire() { detail::check(switchto_sem_wait(&sem_, nullptr), "switchto_sem_wait"); }
	bool try_acquire_until(time_point time)
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
	bool wait_until(time_point time)
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
			detail::in_use("channel");
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
