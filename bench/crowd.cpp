/* SPDX-License-Identifier: MIT */
#include "crowd.h"

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#include <utility>

#include <switchto/switchto.h>

#include "die.h"

/* Stack for the bodies, on top of what the C library and a signal frame need. */
static const size_t stack_to_work_in = 16 * 1024;

/*
 * How many threads may be on their way to their wait at a time. With all of them
 * on its run queue, the scheduler would slow down with their number.
 */
static const long batch = 1000;

static std::string first_word(const std::string &path)
{
	std::ifstream file(path);
	std::string word;

	file >> word;
	return word.empty() ? "unknown" : word;
}

/* The lowest pids.max of this process's control group and of its ancestors. */
static std::string cgroup_pids_max()
{
	std::ifstream file("/proc/self/cgroup");
	std::string line, lowest = "none";

	while (std::getline(file, line)) {
		size_t first = line.find(':');
		size_t second = line.find(':', first + 1);
		std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
		std::filesystem::path top = "/sys/fs/cgroup", group;

		if (controllers.find(",pids,") != std::string::npos)
			top /= "pids";
		else if (controllers != ",,")
			continue;

		group = std::filesystem::path(line.substr(second + 1)).relative_path();
		for (;; group = group.parent_path()) {
			std::string max = first_word(top / group / "pids.max");

			if (isdigit(max[0]) &&
			    (!isdigit(lowest[0]) || atol(max.c_str()) < atol(lowest.c_str())))
				lowest = max;
			if (group.empty())
				break;
		}
	}
	return lowest;
}

static std::string most_processes()
{
	rlimit limit;

	if (getrlimit(RLIMIT_NPROC, &limit))
		die("getrlimit");
	return limit.rlim_cur == RLIM_INFINITY ? "none" : std::to_string(limit.rlim_cur);
}

static void sleep_ms(long ms)
{
	timespec left = { 0, ms * 1000000 };

	while (nanosleep(&left, &left) && errno == EINTR)
		;
}

Crowd::Crowd(long size, Body body)
	: body_(std::move(body))
{
	if (!size)
		return;
	map_stacks(size);
	if (!refused_.empty())
		return;

	members_.reserve(size);
	make(size);
	wait_for_arrivals();
	/* An arrived thread sleeps, or is one system call away from that. */
	sleep_ms(10);
}

Crowd::~Crowd()
{
	dismiss();
	if (stacks_)
		munmap(stacks_, stacks_size_);
}

/* One at a time, so that there is never a crowd on the run queue. */
void Crowd::dismiss()
{
	for (Member &member : members_) {
		if (switchto_resume(member.tid))
			die("switchto_resume");
		if (int error = pthread_join(member.thread, nullptr))
			die("pthread_join", error);
	}
	members_.clear();
}

/*
 * All stacks in one mapping, without guard pages between them: each stack that
 * is a mapping of its own, or has other rights on one of its pages, counts
 * twice against vm.max_map_count, which is 65530.
 */
void Crowd::map_stacks(long size)
{
	const size_t page = sysconf(_SC_PAGESIZE);

	stack_size_ = sysconf(_SC_THREAD_STACK_MIN) + stack_to_work_in;
	stack_size_ = (stack_size_ + page - 1) / page * page;
	stacks_size_ = size * stack_size_;

	void *stacks = mmap(nullptr, stacks_size_, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
	if (stacks == MAP_FAILED)
		return refuse(size, "mmap of their stacks", errno);

	stacks_ = static_cast<char *>(stacks);
	/* Two pages are used of each stack. A kernel without huge pages says EINVAL. */
	madvise(stacks_, stacks_size_, MADV_NOHUGEPAGE);
}

void Crowd::make(long size)
{
	pthread_attr_t attr;

	pthread_attr_init(&attr);
	for (long i = 0; i < size; i++) {
		members_.push_back({ this, pthread_t(), 0 });
		if (int error = pthread_attr_setstack(&attr, stacks_ + i * stack_size_,
						      stack_size_))
			die("pthread_attr_setstack", error);
		if (int error = pthread_create(&members_.back().thread, &attr, begin,
					       &members_.back())) {
			members_.pop_back();
			refuse(size, "pthread_create", error);
			break;
		}
		if (i % batch == batch - 1)
			wait_for_arrivals();
	}
	pthread_attr_destroy(&attr);
}

void *Crowd::begin(void *arg)
{
	Member &self = *static_cast<Member *>(arg);
	Crowd &crowd = *self.crowd;

	self.tid = switchto_self();
	if (self.tid < 0)
		die("switchto_self");
	crowd.arrived_.fetch_add(1, std::memory_order_release);
	crowd.body_(crowd, &self - crowd.members_.data());
	return nullptr;
}

/* Asleep, so that they come to run where there is one CPU for all. */
void Crowd::wait_for_arrivals()
{
	while (arrived_.load(std::memory_order_acquire) < size())
		sleep_ms(1);
}

void Crowd::refuse(long wanted, const char *call, int error)
{
	refused_ = "wanted " + std::to_string(wanted) + " more threads, made " +
		   std::to_string(size()) + ", then " + call + " failed: " + strerror(error) +
		   "; make room in memory or raise the limit that is too low: kernel.threads-max " +
		   first_word("/proc/sys/kernel/threads-max") + ", kernel.pid_max " +
		   first_word("/proc/sys/kernel/pid_max") + ", cgroup pids.max " +
		   cgroup_pids_max() + ", RLIMIT_NPROC " + most_processes();
}
