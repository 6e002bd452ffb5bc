// SPDX-License-Identifier: MIT
// switchto/sched.hpp: that each class calls what it should, its errors, and exceptions of tasks.
#include <switchto/sched.hpp>

#include <array>
#include <csetjmp>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

// Not with a sanitizer: its headers are most of what is compiled here.
#if __has_include(<boost/asio/post.hpp>) && !defined(SANITIZED)
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/execution/executor.hpp>
#include <boost/asio/post.hpp>
#define HAVE_ASIO
#endif

extern "C" {
#include <cmocka.h>
}

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <switchto/switchto.h>

namespace {

using namespace std::chrono_literals;

std::chrono::steady_clock::time_point soon()
{
	return std::chrono::steady_clock::now() + 2ms;
}

// In the order of the file.
std::vector<CMUnitTest> &tests()
{
	static std::vector<CMUnitTest> all;
	return all;
}

#define TEST(name)                                                                 \
	void name(void **);                                                        \
	const bool has_##name = (tests().push_back(cmocka_unit_test(name)), true); \
	void name(void **)

// The code of the error that it throws; 0: none.
template <typename F>
int error_of(F function)
{
	try {
		function();
	} catch (const std::system_error &error) {
		return error.code().value();
	}
	return 0;
}

// Checks in tasks: cmocka's would jump out of them.
void want(bool so, const char *what)
{
	if (!so)
		throw std::runtime_error(what);
}

#define WANT(x) want(x, #x)

// Runs a task, and fails with what it throws.
template <typename F>
void in_task(F function)
{
	switchto::scheduler sched(2);
	switchto::task task = sched.spawn(function);

	sched.run();
	try {
		task.join();
	} catch (const std::exception &error) {
		fail_msg("%s", error.what());
	}
}

#define TEST_IN_TASK(name)            \
	void name##_task();           \
	TEST(name)                    \
	{                             \
		in_task(name##_task); \
	}                             \
	void name##_task()

TEST(exceptions)
{
	switchto::scheduler sched(1);
	switchto::task task = sched.spawn([] { throw std::string("thrown"); });

	sched.run();
	assert_true(task.joinable());
	try {
		task.join();
		fail();
	} catch (const std::string &text) {
		assert_string_equal(text.c_str(), "thrown");
	}
	assert_false(task.joinable());
	assert_false(switchto::task().joinable());
}

TEST(errors)
{
	assert_int_equal(error_of([] { switchto::this_task::yield(); }), EPERM);
	assert_int_equal(error_of([] { switchto::this_task::slot(); }), EPERM);
	assert_int_equal(error_of([] { switchto::this_task::set_attr({}); }), EPERM);
}

TEST_IN_TASK(tasks_and_time)
{
	int done = 0;
	switchto::task a = switchto::spawn([&] {
		switchto::this_task::park();
		done++;
	});
	switchto::spawn_detached([] { switchto::this_task::yield(); });
	WANT(!switchto::this_task::park_until(soon()));
	const auto before = std::chrono::steady_clock::now();
	switchto::this_task::sleep_for(2ms);
	WANT(std::chrono::steady_clock::now() - before >= 2ms);
	WANT(a.unpark());
	a.join();
	WANT(done == 1);
	const switchto::blocking_region region;
}

TEST(traces)
{
	char file[] = "/dev/shm/switchto-cpp-XXXXXX", name[16];
	const int fd = mkstemp(file);

	assert_true(fd >= 0);
	{
		const switchto::trace trace(file);

		assert_int_equal(error_of([&] { const switchto::trace second(file); }), EBUSY);
		in_task([&] {
			switchto::this_task::set_name("named");
			pthread_getname_np(pthread_self(), name, sizeof(name));
		});
	}
	assert_string_equal(name, "named");
	assert_true(lseek(fd, 0, SEEK_END) > 0);
	close(fd);
	unlink(file);
}

// Cancels and joins it.
TEST_IN_TASK(destructor)
{
	bool cancelled = false;
	{
		switchto::task a = switchto::spawn([&] {
			cancelled = error_of([] { switchto::this_task::park(); }) == ECANCELED;
		});
		switchto::task b = std::move(a);
		WANT(!a.joinable()); // NOLINT(bugprone-use-after-move): what is tested
	}
	WANT(cancelled);
}

TEST_IN_TASK(locks)
{
	switchto::mutex mutex;
	switchto::condition_variable changed;
	int value = 0;

	{
		const std::lock_guard<switchto::mutex> guard(mutex);
		WANT(!mutex.try_lock());
		WANT(error_of([&] { mutex.lock(); }) == EDEADLK);
	}
	switchto::task other = switchto::spawn([&] {
		std::unique_lock<switchto::mutex> lock(mutex);
		changed.wait(lock, [&] { return value == 1; });
		value = 2;
		changed.notify_all();
	});
	std::unique_lock<switchto::mutex> lock(mutex);
	WANT(changed.wait_until(lock, soon()) == std::cv_status::timeout);
	WANT(!changed.wait_until(lock, soon(), [&] { return value == 2; }));
	value = 1;
	changed.notify_one();
	changed.wait(lock, [&] { return value == 2; });
	lock.unlock();
	other.join();
}

TEST_IN_TASK(counts)
{
	switchto::semaphore semaphore(1);
	switchto::wait_group group;
	std::vector<switchto::task> tasks;
	int sum = 0;

	semaphore.acquire();
	WANT(!semaphore.try_acquire_until(soon()));
	group.add(3);
	WANT(!group.wait_until(soon()));
	for (int i = 1; i <= 3; i++)
		tasks.push_back(switchto::spawn([&, i] {
			sum += i;
			group.done();
		}));
	group.wait();
	WANT(sum == 6);
	semaphore.release();
	WANT(semaphore.try_acquire_until(soon()));
	WANT(error_of([&] { group.done(); }) == EINVAL);
}

TEST_IN_TASK(channels)
{
	switchto::channel<long> channel;
	switchto::task sender = switchto::spawn([&] {
		for (long i = 1; i <= 10; i++)
			WANT(channel.send(i));
		channel.close();
		WANT(!channel.send(0));
	});
	long sum = 0;

	while (const auto item = channel.receive())
		sum += *item;
	WANT(sum == 55);
	sender.join();
}

TEST(stop)
{
	switchto::scheduler sched(1);
	switchto::task task = sched.spawn([&] {
		sched.stop(true);
		switchto::this_task::park();
	});

	sched.run();
	assert_int_equal(error_of([&] { task.join(); }), ECANCELED);
	assert_int_equal(error_of([&] { sched.spawn_detached([] {}); }), ECANCELED);
}

TEST(not_joinable)
{
	switchto::scheduler sched(1);
	switchto::task joined = sched.spawn([] {}), moved = sched.spawn([] {}), empty;
	switchto::task other = std::move(moved);

	sched.run();
	assert_false(joined.cancel());
	assert_false(joined.unpark());
	joined.join();
	other.join();
	for (switchto::task *task : { &joined, &moved, &empty }) {
		assert_int_equal(error_of([&] { task->join(); }), EINVAL);
		assert_int_equal(error_of([&] { task->cancel(); }), EINVAL);
		assert_int_equal(error_of([&] { task->unpark(); }), EINVAL);
	}
}

// Its destructor does not wait for what can't run, and what it was given is freed.
TEST(never_run)
{
	const auto given = std::make_shared<int>(1);
	bool ran = false;

	try {
		switchto::scheduler sched(1);
		switchto::task task = sched.spawn([given, &ran] { ran = true; });

		throw std::runtime_error("before the run");
	} catch (const std::runtime_error &) {
	}
	assert_false(ran);
	assert_int_equal(given.use_count(), 1);
}

TEST(all_options)
{
	switchto_sched_options options = {};
	bool ran = false;

	options.slots = 1;
	options.place = SWITCHTO_NO_PLACE;
	switchto::scheduler sched(options);
	sched.spawn_detached([&] { ran = true; });
	sched.run();
	assert_true(ran);
	options.place = 1;
	assert_int_equal(error_of([&] { const switchto::scheduler impossible(options); }), EINVAL);
}

// One that starves others, and is cancelled itself.
TEST(destructor_in_a_cancelled_task)
{
	const switchto_task_attr high = { 10, 0, {} };
	switchto::scheduler sched(1, &switchto_priority);
	bool ran = false;

	sched.spawn_detached(
		[&] {
			const switchto::task task = switchto::spawn([&] { ran = true; });

			switchto_cancel(switchto_task_self());
		},
		&high);
	sched.run();
	assert_true(ran);
}

template <typename F>
void want_for_ever(F function)
{
	int code = 0;
	switchto::task task = switchto::spawn([&] { code = error_of(function); });

	switchto::this_task::sleep_for(2ms);
	WANT(task.cancel());
	task.join();
	WANT(code == ECANCELED);
}

TEST_IN_TASK(long_ago_and_for_ever)
{
	using std::chrono::steady_clock;
	switchto::semaphore semaphore;

	want_for_ever([] { switchto::this_task::sleep_for(std::chrono::hours::max()); });
	want_for_ever([] { switchto::this_task::sleep_for(std::chrono::nanoseconds::max()); });
	want_for_ever([] { switchto::this_task::sleep_for(std::chrono::duration<double>(1e300)); });
	want_for_ever([] { switchto::this_task::sleep_until(steady_clock::time_point::max()); });
	switchto::this_task::sleep_for(std::chrono::hours::min());
	switchto::this_task::sleep_for(-1ns);
	switchto::this_task::sleep_until(steady_clock::time_point::min());
	WANT(!semaphore.try_acquire_until(steady_clock::time_point::min()));
	WANT(!switchto::this_task::park_until(steady_clock::time_point() - 1ns));
	const auto before = steady_clock::now();
	switchto::this_task::sleep_for(std::chrono::duration<double>(0.002));
	WANT(steady_clock::now() - before >= 2ms);
}

TEST_IN_TASK(strict_mutex)
{
	switchto::mutex mutex(switchto::strict);
	std::unique_lock<switchto::mutex> lock(mutex);
	switchto::task other =
		switchto::spawn([&] { const std::lock_guard<switchto::mutex> guard(mutex); });

	lock.unlock();
	other.join();
	WANT(mutex.try_lock());
	mutex.unlock();
}

// Other units than the clock's own do not overflow on the way.
TEST(other_units)
{
	using std::chrono::steady_clock;
	using seconds = switchto::steady_time<std::chrono::seconds>;
	using thirds = switchto::steady_time<std::chrono::duration<long, std::ratio<1, 3>>>;
	using floats = switchto::steady_time<std::chrono::duration<double>>;

	in_task([] {
		switchto::mutex mutex;
		switchto::condition_variable changed;
		switchto::wait_group group;

		group.add();
		want_for_ever([] { switchto::this_task::park_until(seconds::max()); });
		want_for_ever([] { switchto::this_task::sleep_until(floats::max()); });
		want_for_ever([] { switchto::semaphore().try_acquire_until(thirds::max()); });
		want_for_ever([&] { group.wait_until(seconds::max()); });
		want_for_ever([&] {
			std::unique_lock<switchto::mutex> lock(mutex);
			changed.wait_until(lock, seconds::max());
		});
		want_for_ever([&] {
			std::unique_lock<switchto::mutex> lock(mutex);
			changed.wait_until(lock, seconds::max(), [] { return false; });
		});
		want_for_ever(
			[] { switchto::this_task::sleep_for(thirds::max().time_since_epoch()); });
		switchto::this_task::sleep_until(seconds::min());
		switchto::this_task::sleep_until(thirds::min());
		switchto::this_task::sleep_until(floats::min());
		WANT(!switchto::this_task::park_until(seconds::min()));
		WANT(!switchto::this_task::park_until({}));
		WANT(!group.wait_until(floats::min()));
		const floats later = steady_clock::now() + std::chrono::duration<double>(0.002);
		switchto::this_task::sleep_until(later);
		WANT(steady_clock::now() >= later);
	});
}

// Ends the channel when the task ends, also by an exception, whoever started the task.
struct closer {
	switchto::channel<int> *channel;

	explicit closer(switchto::channel<int> *of)
		: channel(of)
	{
	}
	closer(closer &&other) noexcept
		: channel(std::exchange(other.channel, nullptr))
	{
	}
	closer(const closer &) = delete;
	closer &operator=(const closer &) = delete;
	closer &operator=(closer &&) = delete;
	~closer()
	{
		if (channel)
			channel->close();
	}
};

TEST(captured)
{
	in_task([] {
		switchto::channel<int> channel(1), detached, thrown;
		switchto::task task =
			switchto::spawn([&channel, end = closer(&channel)] { channel.send(1); });
		switchto::task thrower =
			switchto::spawn([end = closer(&thrown)] { throw std::string("thrown"); });

		switchto::spawn_detached([end = closer(&detached)] {});
		WANT(channel.receive() == 1);
		WANT(!channel.receive());
		WANT(!detached.receive());
		WANT(!thrown.receive());
		task.join();
		try {
			thrower.join();
			WANT(false);
		} catch (const std::string &) {
		}
	});
	switchto::scheduler sched(1);
	switchto::channel<int> channel;

	sched.spawn_detached([end = closer(&channel)] {});
	sched.spawn_detached([&] { channel.receive(); });
	sched.run();
}

// Such a task ends, and the program goes on.
TEST(cancelled_detached)
{
	switchto::scheduler sched(1);

	sched.spawn_detached([] { switchto::this_task::sleep_for(1h); });
	sched.spawn_detached([&] {
		switchto::spawn_detached([] { switchto::this_task::park(); });
		switchto::this_task::yield();
		sched.stop(true);
	});
	sched.run();
}

// A loop of one's own. Detached tasks may begin before, between and in the steps.
TEST(stepped)
{
	const auto given = std::make_shared<int>(1);
	int ran = 0;

	{
		switchto::scheduler sched(1);
		pollfd events = { sched.fd(), POLLIN, 0 };

		assert_int_equal(poll(&events, 1, 0), 0);
		for (int i = 0; i < 3; i++) {
			sched.spawn_detached([given, &ran] {
				switchto::this_task::sleep_for(1ms);
				switchto::spawn_detached([given, &ran] { ran++; });
			});
			do
				assert_int_equal(poll(&events, 1, 60000), 1);
			while (sched.step());
			assert_int_equal(ran, i + 1);
			assert_int_equal(given.use_count(), 1);
		}
	}
	{
		// The loop is to end: a task waits for long, another one has not begun.
		switchto::scheduler sched(1);
		pollfd events = { sched.fd(), POLLIN, 0 };

		sched.spawn_detached([given] { switchto::this_task::sleep_for(1h); });
		assert_true(sched.step());
		sched.spawn_detached([given] { switchto::this_task::sleep_for(1h); });
		sched.stop(true);
		while (sched.step())
			assert_int_equal(poll(&events, 1, 60000), 1);
		assert_int_equal(given.use_count(), 1);
		// One that is given back before it begins makes no work.
		sched.restart();
		const switchto::task dropped = sched.spawn([] { WANT(false); });
	}
	in_task([given, &ran] {
		switchto::scheduler other(1);

		other.spawn_detached([given, &ran] { ran++; });
		WANT(error_of([&] { other.step(); }) == EPERM);
		// It is dropped.
	});
	assert_int_equal(ran, 3);
	assert_int_equal(given.use_count(), 1);
	assert_int_equal(error_of([&] {
				 switchto::scheduler two(2);

				 two.fd();
			 }),
			 ENOTSUP);
}

// What an exception before the run, or of it, leaves: tasks that have not begun.
TEST(dropped)
{
	const auto given = std::make_shared<int>(1);
	bool ran = false, caught = false;

	try {
		switchto::scheduler sched(1);

		sched.spawn_detached([given, &ran] { ran = true; });
		throw std::runtime_error("before the run");
	} catch (const std::runtime_error &) {
		caught = true;
	}
	assert_true(caught);
	in_task([given, &ran] {
		switchto::scheduler none(1), other(1);

		none.spawn_detached([] { WANT(false); });
		other.spawn_detached([given, &ran] { ran = true; });
		WANT(error_of([&] { other.run(); }) == EPERM);
		// They are still there for the next one.
		std::thread([&] { other.run(); }).join();
	});
	assert_true(ran);
	assert_int_equal(given.use_count(), 1);
}

// What a child of fork() ends with that calls @function. @text: what it says on stderr.
template <typename F>
int end_of_child(F function, std::string *text = nullptr)
{
	int pipes[2], status = -1;
	char buffer[1000];

	assert_int_equal(pipe(pipes), 0);
	const pid_t child = fork();
	if (child == 0) {
		const rlimit none = {};

		setrlimit(RLIMIT_CORE, &none);
		alarm(240);
		dup2(pipes[1], 2);
		signal(SIGABRT, SIG_DFL);
		function();
		_exit(0);
	}
	close(pipes[1]);
	for (ssize_t n; (n = read(pipes[0], buffer, sizeof(buffer))) > 0;)
		if (text)
			text->append(buffer, static_cast<std::size_t>(n));
	close(pipes[0]);
	assert_int_equal(waitpid(child, &status, 0), child);
	return status;
}

void run_without_threads()
{
	switchto::scheduler sched(2);
	const rlimit none = {};

	sched.spawn_detached([] {});
	setrlimit(RLIMIT_NPROC, &none);
	sched.run();
}

// The error of run() reaches the caller.
TEST(no_threads)
{
	const int status = end_of_child([] {
		if (geteuid() == 0 && (setgid(65534) || setuid(65534)))
			_exit(77);
		_exit(error_of(run_without_threads) == EAGAIN ? 0 : 1);
	});

	assert_true(status == 0 || status == 77 << 8);
}

// exit() with a scheduler in a static object, whose tasks have not begun.
TEST(static_scheduler)
{
	const int status = end_of_child([] {
		static switchto::scheduler sched(1);

		sched.spawn_detached([] {});
		std::exit(7);
	});
	const int in_a_task = end_of_child([] {
		switchto::scheduler sched(1);

		sched.spawn_detached([] {
			static switchto::scheduler other(1);

			other.spawn_detached([] {});
			std::exit(7);
		});
		sched.run();
	});

	assert_int_equal(status, 7 << 8);
	assert_int_equal(in_a_task, 7 << 8);
}

template <typename F>
void want_abort(const char *why, F function)
{
	std::string text;
	const int status = end_of_child(function, &text);

	if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT ||
	    text.find(why) == std::string::npos)
		fail_msg("wanted '%s', found %#x and '%s'", why, static_cast<unsigned int>(status),
			 text.c_str());
}

TEST(misuse)
{
	in_task([] {
		switchto::mutex mutex;
		switchto::condition_variable changed;
		std::unique_lock<switchto::mutex> none, deferred(mutex, std::defer_lock);

		WANT(error_of([&] { mutex.unlock(); }) == EPERM);
		WANT(error_of([&] { changed.wait(none); }) == EPERM);
		WANT(error_of([&] { changed.wait_until(none, soon()); }) == EPERM);
		WANT(error_of([&] { changed.wait(deferred); }) == EPERM);
	});

	// A handle of C.
	switchto::scheduler sched(1);
	switchto_task *handle = nullptr;
	assert_int_equal(switchto_spawn(
				 sched.native_handle(), [](void *) {}, nullptr, nullptr, &handle),
			 0);
	switchto::task adopted(handle, nullptr);
	sched.run();
	adopted.join();

	want_abort("given back by others", [] {
		switchto::scheduler own(1);
		const switchto::task task = own.spawn([] {});

		switchto_detach(task.native_handle());
	});
	want_abort("scheduler was destroyed while it was in use", [] {
		switchto::scheduler own(1);

		own.spawn_detached([] {
			auto *other = new switchto::scheduler(1);
			switchto::semaphore begun;
			std::thread([&] {
				other->spawn_detached([&] {
					begun.release();
					switchto::this_task::park();
				});
				other->run();
			}).detach();
			begun.acquire();
			delete other;
		});
		own.run();
	});
	want_abort("a stranger", [] {
		switchto::scheduler own(1);

		own.spawn_detached([] { throw std::runtime_error("a stranger"); });
		own.run();
	});
	want_abort("spawn", [] {
		switchto::scheduler own(1);

		own.stop();
		own.spawn_detached([] {});
	});
}

TEST(detached_later)
{
	in_task([] {
		bool done = false;
		switchto::semaphore begin;
		switchto::wait_group ended;
		switchto::task waits = switchto::spawn([&] {
			begin.acquire();
			done = true;
			ended.done();
		});
		switchto::task thrower = switchto::spawn([] { throw std::string("thrown"); });

		ended.add();
		WANT(!waits.join_for(2ms));
		WANT(waits.joinable());
		waits.detach();
		WANT(!waits.joinable());
		begin.release();
		ended.wait();
		WANT(done);
		while (thrower.unpark())
			switchto::this_task::yield();
		try {
			thrower.detach();
			WANT(false);
		} catch (const std::string &) {
		}
		switchto::task quick = switchto::spawn([] {});
		WANT(quick.join_until(switchto::time_point::max()));
	});
	want_abort("a late stranger", [] {
		switchto::scheduler own(1);
		switchto::semaphore begin;

		own.spawn_detached([&] {
			switchto::spawn([&] {
				begin.acquire();
				throw std::runtime_error("a late stranger");
			}).detach();
			begin.release();
		});
		own.run();
	});
}

// A task that ends its own handle is detached.
TEST(own_handle)
{
	switchto::scheduler sched(1);
	std::optional<switchto::task> task;
	bool ended = false;

	task = sched.spawn([&] {
		task.reset();
		switchto::this_task::yield();
		ended = true;
	});
	sched.run();
	assert_true(ended);
}

TEST(places)
{
	switchto_sched_options options = {};
	options.slots = 2;
	options.flags = SWITCHTO_MEASURE;
	options.policy = &switchto_priority;
	switchto::scheduler sched(options);
	const switchto_task_attr high = { 3, 0, {} };
	unsigned int at[] = { 9, 9 };

	assert_int_equal(sched.slots(), 2);
	assert_non_null(sched.engine());
	switchto::task a = sched.spawn_on(1, [&] {
		switchto::this_task::set_attr(high);
		switchto::spawn_on(SWITCHTO_THIS, [&] {
			at[1] = switchto::this_task::slot();
		}).join();
		switchto::spawn_detached_on(0, [] {});
	});
	sched.spawn_detached_on(0, [&] { at[0] = switchto::this_task::slot(); });
	assert_int_equal(a.slot(), 1);
	assert_true(a.set_attr(high));
	sched.run();
	assert_int_equal(at[0], 0);
	assert_int_equal(at[1], 1);
	assert_false(a.set_attr(high));
	assert_true(a.stats().runs >= 1);
	assert_true(sched.stats(1).runs >= 1);
	assert_int_equal(error_of([&] { sched.stats(2); }), EINVAL);
}

TEST_IN_TASK(futures)
{
	int number = 7;
	switchto::semaphore begin;
	switchto::future<std::unique_ptr<int>> moved =
		switchto::async([] { return std::make_unique<int>(1); });
	switchto::future<int &> reference = switchto::async([&]() -> int & { return number; });
	switchto::future<void> late = switchto::async([&] { begin.acquire(); });
	switchto::future<int> thrower =
		switchto::async([]() -> int { throw std::string("thrown"); });
	switchto::future<void> none;

	WANT(!none.valid());
	WANT(*moved.get() == 1);
	WANT(!moved.valid());
	WANT(error_of([&] { moved.get(); }) == EINVAL);
	WANT(error_of([&] { none.wait(); }) == EINVAL);
	WANT(&reference.get() == &number);
	WANT(!late.wait_for(2ms));
	begin.release();
	late.wait();
	WANT(late.wait_until(soon()));
	late.get();
	thrower.wait();
	WANT(thrower.valid());
	try {
		thrower.get();
		WANT(false);
	} catch (const std::string &) {
	}
	// Its destructor cancels.
	none = switchto::async([] { switchto::this_task::park(); });
}

struct base {
	virtual ~base() = default;
	virtual int number() const { return 1; }
};

struct derived final : base {
	int number() const override { return 2; }
};

// Trivially copyable, but it can only be moved.
struct moved_only {
	int number = 0;

	moved_only() = default;
	moved_only(moved_only &&) = default;
	moved_only &operator=(moved_only &&) = delete;
	moved_only(const moved_only &) = delete;
	moved_only &operator=(const moved_only &) = delete;
};

// An argument becomes an item as in any call: by implicit conversions only.
template <typename C, typename U, typename = void>
constexpr bool takes = false;
template <typename C, typename U>
constexpr bool takes<C, U, std::void_t<decltype(std::declval<C &>().try_send(std::declval<U>()))>> =
	true;
static_assert(takes<switchto::channel<std::unique_ptr<int>>, std::unique_ptr<int>>);
static_assert(!takes<switchto::channel<std::unique_ptr<int>>, int *>);

TEST_IN_TASK(kinds_of_items)
{
	switchto::channel<std::unique_ptr<base>> bases(1);
	switchto::channel<moved_only> moved(1);
	switchto::channel<std::optional<std::string>> maybe;
	std::optional<std::unique_ptr<base>> in;
	std::optional<std::string> text = std::string(100, 'x');
	moved_only five;

	WANT(bases.try_send(std::make_unique<derived>()) == switchto::channel_status::done);
	WANT(bases.try_receive(in) == switchto::channel_status::done);
	WANT((*in)->number() == 2);
	five.number = 5;
	WANT(moved.send(std::move(five)));
	WANT(moved.receive()->number == 5);
	WANT(maybe.send_for(std::move(text), 2ms) == switchto::channel_status::timeout);
	// NOLINTNEXTLINE(bugprone-use-after-move): what is tested
	WANT(text && text->size() == 100);
}

TEST(items)
{
	const auto given = std::make_shared<int>(1);

	in_task([given] {
		switchto::channel<std::string> strings;
		switchto::channel<std::unique_ptr<int>> pointers(1);
		switchto::channel<std::shared_ptr<int>> left(3);
		switchto::channel<int> numbers;
		std::unique_ptr<int> one = std::make_unique<int>(1), two = std::make_unique<int>(2);
		std::optional<std::unique_ptr<int>> in;
		std::optional<int> number;
		switchto::task sender = switchto::spawn([&] {
			const std::string text(100, 'x');

			WANT(strings.send(text));
			WANT(strings.send(text + "y"));
			strings.close();
			WANT(!strings.send(text));
		});

		WANT(strings.receive() == std::string(100, 'x'));
		WANT(strings.receive()->size() == 101);
		WANT(!strings.receive());
		WANT(pointers.try_receive(in) == switchto::channel_status::timeout);
		WANT(pointers.try_send(std::move(one)) == switchto::channel_status::done);
		WANT(pointers.send_for(std::move(two), 2ms) == switchto::channel_status::timeout);
		WANT(two && *two == 2); // NOLINT(bugprone-use-after-move): what is tested
		WANT(pointers.receive_for(in, 1h) == switchto::channel_status::done);
		WANT(**in == 1);
		pointers.close();
		WANT(pointers.try_send(std::move(two)) == switchto::channel_status::closed);
		WANT(two && *two == 2); // NOLINT(bugprone-use-after-move): what is tested
		WANT(pointers.receive_until(in, soon()) == switchto::channel_status::closed);
		WANT(numbers.send_until(1, soon()) == switchto::channel_status::timeout);
		WANT(numbers.try_receive(number) == switchto::channel_status::timeout);
		for (int i = 0; i < 3; i++)
			left.send(given);
		sender.join();
	});
	assert_int_equal(given.use_count(), 1);
}

TEST_IN_TASK(selects)
{
	switchto::channel<std::string> strings(1);
	switchto::channel<int> numbers(1), *const off = nullptr;
	std::string got;
	int pipes[2], calls = 0;
	short events = 0;
	const auto get = [&](const std::optional<std::string> &text) {
		got = text.value_or("none");
	};

	WANT(pipe(pipes) == 0);
	WANT(!switchto::try_select(switchto::on_receive(&strings, get),
				   switchto::on_ready(pipes[0], POLLIN), switchto::on_send(off, 1),
				   switchto::on_ready(-1, POLLIN)));
	WANT(switchto::select(switchto::on_receive(&numbers),
			      switchto::on_send(&strings, "text",
						[&](bool sent) { calls += sent; })) == 1);
	WANT(calls == 1);
	WANT(!switchto::select_for(2ms, switchto::on_send(&strings, std::string("lost"))));
	WANT(switchto::select(switchto::on_receive(&strings, get)) == 0);
	WANT(got == "text");
	switchto::task writer = switchto::spawn([&] { switchto::io::write(pipes[1], "x", 1); });
	WANT(switchto::select(switchto::on_receive(&strings, get),
			      switchto::on_ready(pipes[0], POLLIN,
						 [&](short what) { events = what; })) == 1);
	WANT(events == POLLIN);
	writer.join();
	strings.close();
	WANT(switchto::select_until(soon(), switchto::on_receive(&strings, get)) == 0U);
	WANT(got == "none");
	WANT(switchto::select(
		     switchto::on_send(&strings, "late", [&](bool sent) { calls += !sent; })) == 0);
	WANT(calls == 2);
	switchto::io::close(pipes[0]);
	switchto::io::close(pipes[1]);
}

// In each way of not being sent, also before the function of the case is called.
TEST_IN_TASK(unsent)
{
	switchto::channel<std::unique_ptr<int>> pointers, open, room(1);
	switchto::channel<int> ready(1);
	auto one = std::make_unique<int>(1);
	int calls = 0;

	WANT(!switchto::try_select(switchto::on_send(&pointers, std::move(one))));
	WANT(one && *one == 1); // NOLINT(bugprone-use-after-move): what is tested
	// NOLINTBEGIN(bugprone-use-after-move): it is sent once
	WANT(!switchto::try_select(switchto::on_send(&pointers, std::move(one)),
				   switchto::on_send(&open, std::move(one))));
	WANT(one && *one == 1);
	WANT(switchto::select(switchto::on_send(&pointers, std::move(one)),
			      switchto::on_send(&room, std::move(one))) == 1);
	WANT(!one);
	one = room.receive().value();
	WANT(one && *one == 1);
	// NOLINTEND(bugprone-use-after-move)
	ready.send(7);
	WANT(switchto::select(switchto::on_send(&pointers, std::move(one)),
			      switchto::on_receive(&ready, [&](std::optional<int>) {
				      calls += one && *one == 1;
			      })) == 1);
	pointers.close();
	WANT(switchto::select(switchto::on_send(&pointers, std::move(one), [&](bool sent) {
		     calls += !sent && one && *one == 1;
	     })) == 0);
	WANT(calls == 2);
	switchto_cancel(switchto_task_self());
	WANT(error_of([&] { switchto::select(switchto::on_send(&open, std::move(one))); }) ==
	     ECANCELED);
	WANT(one && *one == 1); // NOLINT(bugprone-use-after-move): what is tested
}

TEST_IN_TASK(descriptors)
{
	int pipes[2];
	char buffer[4] = "";

	WANT(pipe(pipes) == 0);
	WANT(!switchto::io::read.within(2ms, pipes[0], buffer, sizeof(buffer)));
	WANT(!switchto::io::poll.until(soon(), pipes[0], POLLIN));
	WANT(switchto::io::write(pipes[1], "abc", 3) == 3);
	WANT(switchto::io::read.within(1h, pipes[0], buffer, sizeof(buffer)) == 3U);
	WANT(std::string(buffer) == "abc");
	switchto::io::forget(pipes[0]);
	switchto::io::close(pipes[0]);
	switchto::io::close(pipes[1]);
	WANT(error_of([&] { switchto::io::read(pipes[0], buffer, sizeof(buffer)); }) == EBADF);
	WANT(error_of([&] { switchto::io::close(pipes[0]); }) == EBADF);
	const int file = switchto::io::openat(AT_FDCWD, "/dev/null", O_RDONLY);
	WANT(switchto::io::read(file, buffer, sizeof(buffer)) == 0);
	switchto::io::close(file);
	WANT(error_of([] { switchto::io::openat(AT_FDCWD, "/nowhere/at/all", 0); }) == ENOENT);
	sockaddr_in address = {};
	socklen_t length = sizeof(address);
	const int listener = socket(AF_INET, SOCK_STREAM, 0);
	auto *const any = reinterpret_cast<sockaddr *>(&address);
	address.sin_family = AF_INET;
	WANT(bind(listener, any, length) == 0 && listen(listener, 1) == 0);
	WANT(getsockname(listener, any, &length) == 0);
	WANT(!switchto::io::accept.until(soon(), listener, nullptr, nullptr, 0));
	const int client = socket(AF_INET, SOCK_STREAM, 0);
	switchto::io::connect(client, any, length);
	const int server = switchto::io::accept(listener, nullptr, nullptr, 0);
	WANT(switchto::io::send(client, "x", 1, MSG_NOSIGNAL) == 1);
	WANT(switchto::io::recv(server, buffer, sizeof(buffer), 0) == 1);
	for (const int fd : { listener, client, server })
		switchto::io::close(fd);
}

// None of them happens in time.
TEST_IN_TASK(in_vain)
{
	switchto::mutex mutex;
	switchto::condition_variable changed;
	switchto::wait_group group;
	switchto::semaphore semaphore;

	group.add();
	WANT(!switchto::this_task::park_for(2ms));
	WANT(!semaphore.try_acquire());
	WANT(!semaphore.try_acquire_for(2ms));
	WANT(!group.wait_for(2ms));
	std::unique_lock<switchto::mutex> lock(mutex);
	WANT(changed.wait_for(lock, 2ms) == std::cv_status::timeout);
	WANT(!changed.wait_for(lock, 2ms, [] { return false; }));
	switchto::spawn([&] {
		std::unique_lock<switchto::mutex> other(mutex, 2ms);
		WANT(!other);
		WANT(!other.try_lock_until(soon()));
	}).join();
	lock.unlock();
	WANT(mutex.try_lock_for(2ms));
	mutex.unlock();
}

TEST_IN_TASK(shields)
{
	bool slept = false, cancelled = false;
	switchto::task task = switchto::spawn([&] {
		try {
			switchto::this_task::park();
		} catch (const std::system_error &) {
			const switchto::shield shield;

			WANT(!switchto::this_task::is_cancelled());
			switchto::this_task::sleep_for(1ms);
			slept = true;
		}
		errno = ENODATA;
		cancelled = switchto::this_task::is_cancelled() && errno == ENODATA;
	});

	task.cancel();
	task.join();
	WANT(slept && cancelled);
}

TEST(stop_tokens)
{
	switchto::stop_source source;
	int calls = 0;

	assert_false(switchto::stop_token().stop_possible());
	{
		const switchto::stop_callback gone(source.get_token(), [&] { calls += 100; });
		const switchto::stop_callback last(source.get_token(), [&] { calls++; });
	}
	std::optional<switchto::stop_callback<std::function<void()>>> itself;
	itself.emplace(source.get_token(), [&] {
		calls++;
		itself.reset();
	});
	const switchto::stop_callback kept(source.get_token(), [&] { calls++; });
	switchto::scheduler sched(2);
	std::vector<switchto::task> tasks;
	std::atomic<int> cancelled{ 0 };
	tasks.reserve(20);
	for (int i = 0; i < 20; i++)
		tasks.push_back(sched.spawn([&, token = source.get_token()] {
			const switchto::cancel_on_stop end(token);
			try {
				switchto::this_task::sleep_for(1h);
			} catch (const std::system_error &) {
				cancelled += token.stop_requested();
			}
		}));
	sched.spawn_detached([&] {
		switchto::this_task::sleep_for(2ms);
		source.request_stop();
	});
	sched.run();
	assert_int_equal(cancelled, 20);
	assert_int_equal(calls, 2);
	assert_false(source.request_stop());
	const switchto::stop_callback late(source.get_token(), [&] { calls++; });
	assert_int_equal(calls, 3);
	assert_int_equal(error_of([&] {
				 const switchto::cancel_on_stop outside(source.get_token());
			 }),
			 EPERM);
}

// Callbacks that stop another source, which stops this one; that wait for a callback to end; and that
// end the source.
TEST(stop_callbacks)
{
	std::array<switchto::stop_source, 2> pair;
	std::array<std::thread, 2> threads;
	std::atomic<int> inside{ 0 };

	for (std::size_t i = 0; i < 2; i++)
		threads.at(i) = std::thread([&, i] {
			const switchto::stop_callback other(pair.at(i).get_token(), [&, i] {
				inside++;
				while (inside != 2)
					std::this_thread::yield();
				assert_false(pair.at(1 - i).request_stop());
			});
			pair.at(i).request_stop();
		});
	for (std::thread &thread : threads)
		thread.join();

	in_task([] {
		switchto::stop_source source;
		switchto::semaphore begun;
		switchto::task waiter;
		const switchto::stop_callback join(source.get_token(), [&] { waiter.join(); });

		waiter = switchto::spawn([&] {
			const switchto::cancel_on_stop cancel(source.get_token());
			begun.release();
			WANT(error_of([] { switchto::this_task::park(); }) == ECANCELED);
		});
		begun.acquire();
		WANT(source.request_stop());
	});

	auto source = std::make_unique<switchto::stop_source>();
	std::optional<switchto::stop_callback<std::function<void()>>> callback;
	callback.emplace(source->get_token(), [&] {
		source.reset();
		callback.reset();
	});
	assert_true(source->request_stop());
	switchto::stop_source from, to = std::move(from);
	assert_false(from.request_stop()); // NOLINT(bugprone-use-after-move): what is tested
	assert_false(from.stop_requested());
	assert_true(to.request_stop());
}

// When the destructor has returned, no callback runs any more.
TEST(stop_races)
{
	for (int i = 0; i < 100; i++) {
		switchto::stop_source source;
		std::atomic<bool> begun{ false }, gone{ false }, late{ false };
		std::thread stopper;

		{
			const switchto::stop_callback callback(source.get_token(), [&] {
				begun = true;
				std::this_thread::sleep_for(100us);
				late = gone.load();
			});
			stopper = std::thread([&] { source.request_stop(); });
			while (i % 2 && !begun)
				std::this_thread::yield();
		}
		gone = true;
		stopper.join();
		assert_false(late);
	}
}

TEST(guards)
{
	switchto::scheduler sched(1);
	std::atomic<bool> ran{ false };
	switchto::work_guard guard(sched);
	std::thread other([&] {
		std::this_thread::sleep_for(2ms);
		sched.spawn_detached([&] { ran = true; });
		guard.reset();
	});

	sched.run();
	other.join();
	assert_true(ran);
	sched.stop();
	sched.restart();
	ran = false;
	sched.spawn_detached([&] { ran = true; });
	sched.run();
	assert_true(ran);
}

// A function whose copy spawns.
struct spawns_when_copied {
	switchto::scheduler *sched;
	std::atomic<int> *ran;

	spawns_when_copied(switchto::scheduler *in, std::atomic<int> *counter)
		: sched(in),
		  ran(counter)
	{
	}
	spawns_when_copied(const spawns_when_copied &other)
		: sched(other.sched),
		  ran(other.ran)
	{
		sched->spawn_detached([counter = ran] { ++*counter; });
	}
	spawns_when_copied(spawns_when_copied &&other) = default;
	spawns_when_copied &operator=(const spawns_when_copied &) = delete;
	spawns_when_copied &operator=(spawns_when_copied &&) = delete;
	void operator()() const { ++*ran; }
};

TEST(spawning_copies)
{
	switchto::scheduler sched(1);
	std::atomic<int> ran{ 0 };
	const spawns_when_copied function(&sched, &ran);

	sched.spawn_detached(function);
	sched.run();
	assert_int_equal(ran, 2);
}

// What Asio's concept execution::executor demands.
template <typename E>
constexpr bool is_executor =
	std::is_nothrow_copy_constructible_v<E> &&std::is_nothrow_destructible_v<E> &&noexcept(
		std::declval<const E &>() ==
		std::declval<const E &>()) &&noexcept(std::declval<const E &>() !=
						      std::declval<const E &>()) &&
	std::is_void_v<decltype(std::declval<const E &>().execute(std::declval<void (*)()>()))>;
static_assert(is_executor<switchto::executor>);
#ifdef HAVE_ASIO
static_assert(boost::asio::execution::is_executor_v<switchto::executor>);
#endif

TEST(executors)
{
	switchto::scheduler sched(2);
	const switchto::executor any = sched.get_executor(), first = sched.get_executor(0);
	std::atomic<unsigned int> seen{ 0 };
	const auto count = [&] {
		seen += 1 + 100 * switchto::this_task::slot();
	};
	unsigned int jobs = 6;

	assert_true(any == sched.get_executor() && any != first);
	for (int i = 0; i < 4; i++)
		any.execute(count);
	first.execute(count);
	first.execute([own = std::make_unique<int>(1), &seen] {
		seen += static_cast<unsigned int>(*own);
	});
#ifdef HAVE_ASIO
	boost::asio::post(first, count);
	boost::asio::dispatch(boost::asio::bind_executor(first, count));
	jobs += 2;
#endif
	sched.run();
	assert_int_equal(seen, jobs + 200);
}

// A task keeps its thread, and a thread_local its value, whatever the task waits for.
TEST(thread_locals)
{
	thread_local int mine = 0;

	in_task([] {
		std::vector<switchto::task> tasks;

		for (int i = 1; i <= 10; i++)
			tasks.push_back(switchto::spawn([i] {
				mine = i;
				switchto::this_task::yield();
				switchto::this_task::sleep_for(1ms);
				WANT(mine == i);
			}));
		for (switchto::task &task : tasks)
			task.join();
	});
}

} // namespace

int main()
{
	if (!switchto_backend() && errno == ENOSYS)
		return 77;
	return _cmocka_run_group_tests("tests", tests().data(), tests().size(), nullptr, nullptr);
}
