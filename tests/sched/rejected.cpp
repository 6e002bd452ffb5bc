// SPDX-License-Identifier: MIT
// What the compiler is to reject, with a sentence of switchto/sched.hpp for each.
#include <switchto/sched.hpp>

#include <string>

void rejected(switchto::channel<std::string> &texts, std::string &text)
{
	auto dangles = switchto::on_send(&texts, std::string("gone"));

	switchto::async([&]() -> std::string && { return std::move(text); });
	switchto::select(dangles);
}
