/* SPDX-License-Identifier: MIT */
#include "options.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include <benchmark/benchmark.h>

#include <switchto/switchto.h>

#include "context.h"

/* The status by which test drivers know "this kernel can't". */
static const int exit_skip = 77;

bool take_numbers(std::vector<char *> &args, const char *option, const char *what, long least,
		  long most, std::vector<long> &numbers)
{
	const size_t length = strlen(option);

	for (auto arg = args.begin(); arg != args.end();) {
		char *end;
		long number;

		if (strncmp(*arg, option, length)) {
			++arg;
			continue;
		}

		errno = 0;
		number = strtol(*arg + length, &end, 10);
		if (end == *arg + length || *end || errno || number < least || number > most) {
			fprintf(stderr, "%s: %s wants a number of %s, %ld to %ld, not '%s'\n",
				program_invocation_short_name,
				std::string(option, length - 1).c_str(), what, least, most,
				*arg + length);
			return false;
		}
		numbers.push_back(number);
		arg = args.erase(arg);
	}
	return true;
}

static int no_backend()
{
	const char *asked = getenv("SWITCHTO_BACKEND");
	const int status = errno == ENOSYS ? exit_skip : 1;

	fprintf(stderr, "%s: no backend (SWITCHTO_BACKEND is %s): %s%s\n",
		program_invocation_short_name, asked ? asked : "not set", strerror(errno),
		errno == ENOSYS	 ? "; swap needs the patched kernel" :
		errno == ENOTSUP ? "; it may be swap or wake-wait" :
				   "");
	return status;
}

int begin_benchmarks(std::vector<char *> &args, void (*help)(), long parked)
{
	int argc = args.size();

	args.push_back(nullptr);
	benchmark::Initialize(&argc, args.data(), help);
	if (benchmark::ReportUnrecognizedArguments(argc, args.data()))
		return 1;

	const char *backend = switchto_backend();
	if (!backend)
		return no_backend();
	if (const char *wrong = add_context(backend, parked)) {
		fprintf(stderr, "%s: %s\n", program_invocation_short_name, wrong);
		return 1;
	}
	return -1;
}
