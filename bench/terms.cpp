/* SPDX-License-Identifier: MIT */
#include "terms.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <sstream>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static const std::string root = "/sys/fs/cgroup";

const char *Terms::refused() const
{
	for (const std::string &reason : reasons_) {
		if (!reason.empty())
			return reason.c_str();
	}
	return nullptr;
}

void Terms::refuse(Side side, const std::string &reason)
{
	if (reasons_[side].empty())
		reasons_[side] = reason;
}

/* A control file takes its text in one write(2). */
static bool write_text(const std::string &file, const std::string &text)
{
	int fd = open(file.c_str(), O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return false;

	bool written = write(fd, text.data(), text.size()) == ssize_t(text.size());
	int error = errno;

	close(fd);
	errno = error;
	return written;
}

static bool has_word(const std::string &file, const std::string &wanted)
{
	std::ifstream words(file);
	std::string word;

	while (words >> word) {
		if (word == wanted)
			return true;
	}
	return false;
}

/* The group that this process is in, "" without cgroup v2. */
static std::string own_group()
{
	std::ifstream file("/proc/self/cgroup");
	std::string line;

	while (std::getline(file, line)) {
		if (!line.rfind("0::/", 0))
			return root + line.substr(3);
	}
	return "";
}

Groups::Groups()
	: top_(root + "/switchto-bench." + std::to_string(getpid()))
{
	const std::string own = own_group();

	if (geteuid()) {
		refuse(MAIN, "not root: no control groups");
		return;
	}
	if (own.empty() || !has_word(root + "/cgroup.controllers", "cpu")) {
		refuse(MAIN, "no cpu controller of cgroup v2 at " + root);
		return;
	}

	home_ = own;
	if (!has_word(root + "/cgroup.subtree_control", "cpu")) {
		put(root + "/cgroup.subtree_control", "+cpu");
		enabled_ = !refused();
	}
	make(top_);
}

void Groups::make(const std::string &group)
{
	if (refused())
		return;
	if (mkdir(group.c_str(), 0755))
		return refuse(MAIN, "mkdir " + group + ": " + strerror(errno));
	made_.push_back(group);
}

void Groups::put(const std::string &file, const std::string &text)
{
	if (!refused())
		put_as(MAIN, file, text);
}

void Groups::put_as(Side me, const std::string &file, const std::string &text)
{
	if (!write_text(file, text))
		refuse(me, "'" + text + "' to " + file + ": " + strerror(errno));
}

/* The joined partner may still be in its group for its last steps. */
static bool remove(const std::string &group)
{
	for (int ms = 0; ms < 1000; ms++) {
		if (!rmdir(group.c_str()))
			return true;
		if (errno != EBUSY)
			break;
		usleep(1000);
	}
	return false;
}

Groups::~Groups()
{
	if (home_.empty())
		return;

	if (!made_.empty() && !write_text(home_ + "/cgroup.procs", std::to_string(getpid())))
		perror("switchto-bench: back to the control group it came from");
	for (auto group = made_.rbegin(); group != made_.rend(); ++group) {
		if (!remove(*group))
			perror(("switchto-bench: rmdir " + *group).c_str());
	}
	if (enabled_ && !write_text(root + "/cgroup.subtree_control", "-cpu"))
		perror("switchto-bench: the cpu controller stays enabled");
}

/* Only the innermost group may hold a process: the others have the controller on. */
OneGroup::OneGroup(int depth)
{
	std::string group = top_;

	for (int i = 1; i < depth; i++) {
		put(group + "/cgroup.subtree_control", "+cpu");
		group += "/" + std::to_string(i);
		make(group);
	}
	put(group + "/cgroup.procs", std::to_string(getpid()));
}

static const char *const sides[] = { "/a", "/b" };

/* Threads of one process may be in different groups where these are threaded. */
TwoGroups::TwoGroups()
{
	put(top_ + "/cgroup.procs", std::to_string(getpid()));
	for (const char *side : sides) {
		make(top_ + side);
		put(top_ + side + "/cgroup.type", "threaded");
	}
	put(top_ + "/cgroup.subtree_control", "+cpu");
}

void TwoGroups::enter(Side me)
{
	put_as(me, top_ + sides[me] + "/cgroup.threads", std::to_string(syscall(SYS_gettid)));
}

/* Unless nice can be lowered again, the next row is impossible. */
Nice::Nice(int main, int partner)
	: nice_{ main, partner },
	  before_(getpriority(PRIO_PROCESS, 0))
{
	if (geteuid())
		refuse(MAIN, "not root: no way back from being nice");
}

/* On Linux, each thread has its own nice. */
void Nice::enter(Side me)
{
	if (setpriority(PRIO_PROCESS, 0, nice_[me]))
		refuse(me, std::string("setpriority: ") + strerror(errno));
}

Nice::~Nice()
{
	if (setpriority(PRIO_PROCESS, 0, before_))
		perror("switchto-bench: setpriority");
}
