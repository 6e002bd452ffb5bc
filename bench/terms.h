/* SPDX-License-Identifier: MIT */
/*
 * What the scheduler knows of a row's two threads besides their CPU: their
 * control groups and their weights. Set up by the main thread
 * before there is a partner, undone on destruction.
 */
#ifndef BENCH_TERMS_H
#define BENCH_TERMS_H

#include <string>
#include <sys/types.h>
#include <vector>

enum Side { MAIN, PARTNER };

static inline Side other(Side side)
{
	return side == MAIN ? PARTNER : MAIN;
}

class Terms {
public:
	Terms() = default;
	virtual ~Terms() = default;
	Terms(const Terms &) = delete;
	Terms &operator=(const Terms &) = delete;

	/* The calling thread's part, before its first hand-off. */
	virtual void enter(Side) {}

	/* nullptr, or why these terms can't be had. */
	const char *refused() const;

protected:
	/* Only the first reason of each side is kept. */
	void refuse(Side side, const std::string &reason);

private:
	std::string reasons_[2]; /* one each: the threads don't share */
};

/*
 * The process in a control group of its own, below the root of cgroup v2. What
 * was made is removed again, also when not all of it could be made.
 */
class Groups : public Terms {
public:
	~Groups() override;

protected:
	Groups();

	/* These do nothing once something has been refused. */
	void make(const std::string &group);
	void put(const std::string &file, const std::string &text);

	/* Both threads may call this at the same time. */
	void put_as(Side me, const std::string &file, const std::string &text);

	std::string top_;

private:
	std::string home_;     /* "": nothing to undo */
	bool enabled_ = false; /* the cpu controller, by us */
	std::vector<std::string> made_;
};

/* Both threads in the innermost of @depth groups. */
class OneGroup : public Groups {
public:
	explicit OneGroup(int depth);
};

/* Each thread in a group of its own, side by side. */
class TwoGroups : public Groups {
public:
	TwoGroups();
	void enter(Side me) override;
};

class Nice : public Terms {
public:
	Nice(int main, int partner);
	~Nice() override;
	void enter(Side me) override;

private:
	const int nice_[2];
	const int before_;
};

#endif
