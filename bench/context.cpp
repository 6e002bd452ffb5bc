/* SPDX-License-Identifier: MIT */
#include "context.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <sys/utsname.h>

#include <benchmark/benchmark.h>

#include "futex_call.h"
#include "placement.h"

using std::string;

static string first_line(const string &path)
{
	std::ifstream file(path);
	string line;

	std::getline(file, line);
	return line;
}

static string or_unknown(const string &value)
{
	return value.empty() ? "unknown" : value;
}

/* What follows @key and its colon in the first processor's /proc/cpuinfo. */
static string cpuinfo(const string &key)
{
	std::ifstream file("/proc/cpuinfo");
	string line;

	while (std::getline(file, line)) {
		size_t colon = line.find(':');

		if (!line.rfind(key, 0) && colon != string::npos && colon + 2 <= line.size())
			return line.substr(colon + 2);
	}
	return "";
}

static bool in_a_guest()
{
	return (" " + cpuinfo("flags") + " ").find(" hypervisor ") != string::npos;
}

static string accelerator()
{
	if (const char *told = getenv("SWITCHTO_ACCEL"))
		return told;
	return in_a_guest() ? "unknown hypervisor" : "none (bare host)";
}

static string host_cpu()
{
	if (const char *told = getenv("SWITCHTO_HOST_CPU"))
		return told;

	string model = or_unknown(cpuinfo("model name"));
	return in_a_guest() ? model + " (as the guest sees it)" : model;
}

static string mitigations()
{
	const std::filesystem::path dir = "/sys/devices/system/cpu/vulnerabilities";
	int mitigated = 0, vulnerable = 0, not_affected = 0;
	std::istringstream options(first_line("/proc/cmdline"));
	std::error_code absent;
	string option, asked = "default";

	while (options >> option) {
		if (!option.rfind("mitigations=", 0))
			asked = option;
	}

	for (const auto &file : std::filesystem::directory_iterator(dir, absent)) {
		string state = first_line(file.path());

		if (!state.rfind("Not affected", 0))
			not_affected++;
		else if (!state.rfind("Mitigation", 0))
			mitigated++;
		else
			vulnerable++;
	}
	if (absent)
		return asked + " (none in this kernel)";

	return asked + " (" + std::to_string(mitigated) + " mitigated, " +
	       std::to_string(vulnerable) + " vulnerable, " + std::to_string(not_affected) +
	       " not affected)";
}

/* Lines of the kernel's configuration that are set and begin with @prefix. */
static string kernel_config(const string &prefix, const string &release)
{
	string command = "{ zcat /proc/config.gz || cat '/boot/config-" + release +
			 "'; } 2>/dev/null | grep -E '^CONFIG_" + prefix + "'";
	string found;
	char line[256];
	FILE *pipe = popen(command.c_str(), "r");

	if (!pipe)
		return "";
	while (fgets(line, sizeof(line), pipe))
		found += line;
	pclose(pipe);
	return found;
}

static string tick_rate(const string &release)
{
	string line = kernel_config("HZ=", release);

	return line.empty() ? "unknown" :
			      line.substr(line.find('=') + 1, line.find('\n') - line.find('=') - 1);
}

static string preemption(const utsname &kernel)
{
	string config = kernel_config("PREEMPT(_RT|_NONE|_VOLUNTARY|_LAZY|_DYNAMIC)?=y",
				      kernel.release);
	string version = kernel.version;

	for (const char *model : { "RT", "DYNAMIC", "NONE", "VOLUNTARY", "LAZY" }) {
		string name = string("PREEMPT_") + model;

		if (config.find("CONFIG_" + name + "=") != string::npos ||
		    version.find(name) != string::npos)
			return name;
	}
	if (config.find("CONFIG_PREEMPT=") != string::npos ||
	    version.find("PREEMPT") != string::npos)
		return "PREEMPT";
	return "unknown";
}

/*
 * How many groups the scheduler goes through for this process: those of the
 * cpu controller, or of the one hierarchy of cgroup v2.
 */
static string cgroup_depth()
{
	std::ifstream file("/proc/self/cgroup");
	string line, path;

	while (std::getline(file, line)) {
		size_t first = line.find(':');
		size_t second = line.find(':', first + 1);
		string controllers = "," + line.substr(first + 1, second - first - 1) + ",";

		if (controllers.find(",cpu,") != string::npos) {
			path = line.substr(second + 1);
			break;
		}
		if (controllers == ",,")
			path = line.substr(second + 1);
	}
	if (path.empty())
		return "unknown";

	int depth = 0;
	for (const auto &part : std::filesystem::path(path).relative_path())
		depth += !part.empty();
	return std::to_string(depth);
}

const char *add_context(const char *backend, long parked)
{
	const string cpu = "/sys/devices/system/cpu/";
	const char *unit = getenv("SWITCHTO_UNIT");
	utsname kernel;

	if (!unit)
		unit = "ns";
	if (strcmp(unit, "ns") && strcmp(unit, "insn"))
		return "SWITCHTO_UNIT is neither ns nor insn";

	uname(&kernel);
	benchmark::AddCustomContext("backend", backend);
	benchmark::AddCustomContext("futex_swap", have_futex_swap() ? "yes" : "no");
	benchmark::AddCustomContext("unit", unit);
	benchmark::AddCustomContext("accelerator", accelerator());
	benchmark::AddCustomContext("kernel", kernel.release);
	benchmark::AddCustomContext("boot_id",
				    or_unknown(first_line("/proc/sys/kernel/random/boot_id")));
	benchmark::AddCustomContext("cpus", std::to_string(allowed_cpus()));
	benchmark::AddCustomContext("host_cpu", host_cpu());
	benchmark::AddCustomContext("mitigations", mitigations());
	benchmark::AddCustomContext("hz", tick_rate(kernel.release));
	benchmark::AddCustomContext("preemption", preemption(kernel));
	benchmark::AddCustomContext(
		"clocksource",
		or_unknown(first_line(
			"/sys/devices/system/clocksource/clocksource0/current_clocksource")));
	benchmark::AddCustomContext("cgroup_depth", cgroup_depth());
	benchmark::AddCustomContext("governor",
				    or_unknown(first_line(cpu + "cpu0/cpufreq/scaling_governor")));
	benchmark::AddCustomContext("smt", or_unknown(first_line(cpu + "smt/control")));
	benchmark::AddCustomContext("parked_threads", std::to_string(parked));
	return nullptr;
}
