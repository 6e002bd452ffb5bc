// SPDX-License-Identifier: MIT
/* UDP: how a batch is sent and received, by sockets, a ring or AF_XDP. */
#include "udp.h"

/* Packets after which the leader gives way: some of the ways to receive never wait under a flood. */
enum { TURN = 128 };

/* --- send --- */

/* Without the kernel's help in cutting it: the interface can't, or packets are larger than its MTU. */
static void send_one_by_one(struct udp *udp, const struct msghdr *message)
{
	const unsigned int packets = batch_segments(message);

	for (unsigned int i = 0; i < packets; i++) {
		struct iovec part;
		const struct msghdr one = batch_one(message, i, &part);

		count(udp->counters, sends, 1);
		if (switchto_sendmsg(udp->fd, &one, 0, NULL) < 0) {
			count(udp->counters, unsent, 1);
			count_more(&udp->counters->packets_out, (uint64_t)-1);
			count_more(&udp->counters->bytes_out, -(uint64_t)part.iov_len);
		}
	}
}

static ssize_t send_plain(struct udp *udp, const struct msghdr *message)
{
	ssize_t n = -1;

	if (!message->msg_controllen)
		n = sendto(udp->fd, message->msg_iov->iov_base, message->msg_iov->iov_len,
			   MSG_DONTWAIT, message->msg_name, message->msg_namelen);
	if (n == -1)
		n = switchto_sendmsg(udp->fd, message, 0, NULL);
	return n < 0 ? -1 : 1;
}

static void send_gathered(struct udp *udp, unsigned int messages, unsigned int packets)
{
	struct mmsghdr *out = udp->batch->out;

	/* Those that the kernel refuses are taken off again. */
	count(udp->counters, packets_out, packets);
	count(udp->counters, bytes_out, udp->batch->bytes);
	for (unsigned int done = 0; done < messages;) {
		ssize_t n = udp->options->io == IO_PLAIN ?
				    send_plain(udp, &out[done].msg_hdr) :
				    switchto_sendmmsg(udp->fd, out + done, messages - done, 0,
						      NULL);

		if (n > 0) {
			count(udp->counters, sends, 1);
			done += (unsigned int)n;
			continue;
		}
		if (errno == ECANCELED)
			return;
		send_one_by_one(udp, &out[done++].msg_hdr);
	}
}

void udp_flush(struct udp *udp)
{
	unsigned int messages, packets;

	if (udp->xdp) {
		xdp_send(udp->xdp, udp->batch, udp->counters);
		return;
	}
	while ((messages = batch_gather(udp->batch, &packets)))
		send_gathered(udp, messages, packets);
}

/* --- receive --- */

static int receive_plain(struct udp *udp, const struct timespec *deadline)
{
	struct msghdr *message = &udp->batch->in[0].msg_hdr;
	ssize_t n = -1;

	if (!udp->options->gro) {
		n = recvfrom(udp->fd, message->msg_iov->iov_base, message->msg_iov->iov_len,
			     MSG_DONTWAIT | MSG_TRUNC, message->msg_name, &message->msg_namelen);
		message->msg_flags = n > (ssize_t)message->msg_iov->iov_len ? MSG_TRUNC : 0;
	}
	if (n == -1)
		n = switchto_recvmsg(udp->fd, message, 0, deadline);
	if (n == -1)
		return -1;
	udp->batch->in[0].msg_len = (unsigned int)n;
	return 1;
}

int udp_receive(struct udp *udp, const struct timespec *deadline)
{
	if (udp->taken >= TURN) {
		udp->taken = 0;
		if (switchto_yield())
			return -1;
	}
	if (is_server_over()) {
		errno = ECANCELED;
		return -1;
	}
	if (udp->xdp)
		return xdp_receive(udp->xdp, udp->batch, deadline);
	if (udp->ring)
		return ring_receive(udp->ring, udp->batch, deadline);
	if (udp->options->io == IO_PLAIN)
		return receive_plain(udp, deadline);
	return switchto_recvmmsg(udp->fd, udp->batch->in, udp->batch->capacity, MSG_WAITFORONE,
				 deadline);
}
