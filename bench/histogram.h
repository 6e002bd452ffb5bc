/* SPDX-License-Identifier: MIT */
#ifndef BENCH_HISTOGRAM_H
#define BENCH_HISTOGRAM_H

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

/*
 * Counts of intervals, log-linear: exact below 128 ns, and above in 64 steps
 * from one power of two to the next, so within 1.6 %.
 */
class Histogram {
public:
	void add(uint64_t value)
	{
		counts_[bucket(value)]++;
		total_++;
		max_ = std::max(max_, value);
	}

	long total() const { return total_; }
	uint64_t max() const { return max_; }

	/* The end of the bucket up to which @part of all values are. */
	uint64_t percentile(double part) const
	{
		double left = part * total_;
		std::size_t i = 0;

		while (i + 1 < counts_.size() && (left -= counts_[i]) > 0)
			i++;
		return std::min(last_of(i), max_);
	}

private:
	static const int bits = 6;

	static std::size_t bucket(uint64_t value)
	{
		int shift = 0;

		if (value >> (bits + 1))
			shift = 63 - __builtin_clzll(value) - bits;
		return (std::size_t(shift) << bits) + (value >> shift);
	}

	static uint64_t last_of(std::size_t bucket)
	{
		int shift = std::max(0, int(bucket >> bits) - 1);

		return ((bucket - (std::size_t(shift) << bits) + 1) << shift) - 1;
	}

	std::vector<uint64_t> counts_ = std::vector<uint64_t>((65 - bits) << bits);
	long total_ = 0;
	uint64_t max_ = 0;
};

#endif
