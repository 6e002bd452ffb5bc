// SPDX-License-Identifier: MIT
// Results, a time limit, and one place that cancels what is not wanted any more, in C++.
#include <switchto/sched.hpp>

#include <atomic>
#include <iostream>
#include <string>
#include <vector>

using namespace std::chrono_literals;

static constexpr int SERVERS = 10;

// Servers 3 and 8 answer at once.
static std::string ask(int server, const switchto::stop_token &enough)
{
	const switchto::cancel_on_stop cancel(enough);

	if (server % 5 != 3)
		switchto::this_task::sleep_for(1h);
	return "server " + std::to_string(server);
}

// Asks all at once, and takes the first answer.
static std::string first_answer(std::atomic<int> &cancelled)
{
	// There is room for all: a second answer waits for nobody, and is not cancelled.
	switchto::channel<std::string> answers(SERVERS);
	switchto::stop_source enough;
	std::vector<switchto::task> tasks;
	std::string first;

	for (int i = 0; i < SERVERS; i++)
		tasks.push_back(switchto::spawn([&, i] {
			switchto::this_task::set_name("ask");
			try {
				answers.send(ask(i, enough.get_token()));
			} catch (const std::system_error &error) {
				if (error.code() != std::errc::operation_canceled)
					throw;
				cancelled++;
			}
		}));
	switchto::select_for(10s, switchto::on_receive(&answers, [&](auto got) { first = *got; }));
	enough.request_stop();
	for (switchto::task &task : tasks)
		task.join();
	return first;
}

int main()
try {
	switchto::scheduler sched;
	std::atomic<int> cancelled{ 0 };
	auto answer = sched.async([&] { return first_answer(cancelled); });
	auto failure = sched.async([]() -> int { throw std::runtime_error("no such job"); });

	sched.run();
	const std::string first = answer.get();
	std::cout << first << " was first, " << cancelled << " were cancelled\n";
	try {
		failure.get();
	} catch (const std::runtime_error &error) {
		std::cout << "the other job failed: " << error.what() << '\n';
	}
	return !first.empty() && cancelled == SERVERS - 2 ? 0 : 1;
} catch (const std::system_error &error) {
	std::cerr << error.what() << '\n';
	return error.code().value() == ENOSYS ? 77 : 1; // 77: not in this kernel
}
