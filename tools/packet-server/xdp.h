/* SPDX-License-Identifier: MIT */
/*
 * AF_XDP: packets of one queue of an interface, past the kernel's stack. An answer goes back in the
 * frame that the packet came in.
 */
#ifndef PACKET_XDP_H
#define PACKET_XDP_H

#include "batch.h"
#include "server.h"

#include <time.h>

struct xdp;

/* NULL and *@reason: it can't be. Slot n takes queue n. @port: as in sockaddr_in. */
struct xdp *xdp_new(const struct options *options, unsigned int slot, uint16_t port,
		    const char **reason);
void xdp_free(struct xdp *xdp);
/* Fills batch->bursts. The number of packets, or -1 and errno. */
int xdp_receive(struct xdp *xdp, struct batch *batch, const struct timespec *deadline);
struct refuse xdp_refused(const struct xdp *xdp);
/* Sends the answers; the other frames are the kernel's again. */
void xdp_send(struct xdp *xdp, struct batch *batch, struct counters *counters);

#endif /* PACKET_XDP_H */
