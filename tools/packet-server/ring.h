/* SPDX-License-Identifier: MIT */
/*
 * The receiving side of a socket by io_uring: one multishot RECVMSG, into buffers that the kernel
 * chooses. Its entries belong to the thread that made it, which alone may call these functions,
 * but for ring_recycle().
 */
#ifndef PACKET_RING_H
#define PACKET_RING_H

#include "batch.h"

#include <time.h>

struct ring;

/* NULL and errno. */
struct ring *ring_new(int fd, unsigned int batch, bool gro);
void ring_free(struct ring *ring);
/* Fills batch->bursts. The number of messages, or -1 and errno. */
int ring_receive(struct ring *ring, struct batch *batch, const struct timespec *deadline);
struct refuse ring_refused(const struct ring *ring);
/* The buffers of the batch are the kernel's again. */
void ring_recycle(struct ring *ring, struct batch *batch);

#endif /* PACKET_RING_H */
