/* SPDX-License-Identifier: MIT */
/* switchto/sched.h with the warnings that a program may have: as C99 and as C++, see CMakeLists.txt. */
#include <switchto/sched.h>

int use_header(struct switchto_chan *chan);

int use_header(struct switchto_chan *chan)
{
	static struct switchto_mutex mutex, strict = SWITCHTO_MUTEX_STRICT;
	struct switchto_case first = { chan, SWITCHTO_RECEIVE, NULL, false };
	enum switchto_op op = SWITCHTO_SEND;

	first.op = op;
	return switchto_mutex_lock(&mutex) + switchto_mutex_lock(&strict) +
	       switchto_select(&first, 1, NULL);
}
