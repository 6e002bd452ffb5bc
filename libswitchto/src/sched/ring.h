/* SPDX-License-Identifier: MIT */
/*
 * The engine io_uring: a ring for each slot. Only the owner of the slot touches it, inside.
 * Without liburing there is none.
 */
#ifndef SWITCHTO_SCHED_RING_H
#define SWITCHTO_SCHED_RING_H

#include "wake.h"

/* What the kernel is to do: in the call that waits for it. */
struct operation {
	struct waiter waiter; /* fires when the operation is complete */
	int result;
	uint32_t flags;
};

#ifdef SWITCHTO_URING
/* 0 or an error number. The slot polls already. */
int switchto_ring_begin(struct slot *slot);
void switchto_ring_end(struct slot *slot);
/* Begins the polls of the ring by @epoll: 0, or -1 and errno. */
int switchto_ring_poll(struct slot *slot, int epoll);
/* Submits @wanted. False: the ring is full of what the kernel does not take. */
bool switchto_ring_start(struct slot *slot, const struct io_uring_sqe *wanted,
			 struct operation *operation);
/* Submits what is to be, and wakes the tasks whose operations are complete. */
void switchto_ring_submit(struct slot *slot);
void switchto_ring_reap(struct slot *slot);
#else
static inline int switchto_ring_begin(struct slot *slot)
{
	return ENOSYS;
}

static inline int switchto_ring_poll(struct slot *slot, int epoll)
{
	return 0;
}

#define switchto_ring_end(slot) ((void)(slot))
#define switchto_ring_submit(slot) ((void)(slot))
#define switchto_ring_reap(slot) ((void)(slot))
#endif

#endif /* SWITCHTO_SCHED_RING_H */
