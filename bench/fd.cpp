/* SPDX-License-Identifier: MIT */
/* Hand-offs through file descriptors: eventfd(2) and pipe(2), one per side. */
#include "descriptors.h"

namespace {

template <class Ends>
struct FdPair : Ends {
	static constexpr Switches rule = Switches::ONE_PER_ITERATION;

	static const char *unavailable() { return nullptr; }
	void enter(Side) {}

	void hand_off(Side me)
	{
		this->post(other(me));
		this->wait(me);
	}
};

} // namespace

void add_fd_rows(const Plan &plan)
{
	add_hand_off_rows<FdPair<Eventfd>>("BM_Eventfd", plan);
	add_hand_off_rows<FdPair<Pipe>>("BM_Pipe", plan);
}
