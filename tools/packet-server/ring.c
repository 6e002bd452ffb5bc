// SPDX-License-Identifier: MIT
#include "ring.h"

#include <errno.h>
#include <stdlib.h>

#include <switchto/sched.h>

#ifdef HAVE_LIBURING
#include <fcntl.h>
#include <liburing.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { BUFFERS = 512, CONTROL = 64 };

struct ring {
	struct io_uring ring;
	struct io_uring_buf_ring *buffers;
	uint8_t *memory;
	size_t buffer_size;
	struct msghdr message; /* what is wanted of each: the name and control data */
	int fd;
	int event; /* written when there are completions to be made; polling the ring does not say it */
	bool armed;
	struct refuse refuse;
};

static void give(struct ring *ring, unsigned int buffer, int nth)
{
	io_uring_buf_ring_add(ring->buffers, ring->memory + buffer * ring->buffer_size,
			      (unsigned int)ring->buffer_size, (unsigned short)buffer,
			      io_uring_buf_ring_mask(BUFFERS), nth);
}

struct ring *ring_new(int fd, unsigned int batch, bool gro)
{
	/* Not with IORING_SETUP_DEFER_TASKRUN: on Linux 6.12, the eventfd then missed some packets. */
	struct io_uring_params params = { .flags = IORING_SETUP_CQSIZE, .cq_entries = BUFFERS };
	struct io_uring_buf_reg registration = { .ring_entries = BUFFERS };
	struct ring *ring = calloc(1, sizeof(*ring));
	int error;

	if (!ring)
		return NULL;
	ring->fd = fd;
	ring->message.msg_namelen = sizeof(struct sockaddr_in);
	ring->message.msg_controllen = gro ? CONTROL : 0;
	ring->buffer_size = sizeof(struct io_uring_recvmsg_out) + sizeof(struct sockaddr_in) +
			    CONTROL + (gro ? GRO_MAX : PACKET_MAX);
	error = -io_uring_queue_init_params(8, &ring->ring, &params);
	if (error) {
		free(ring);
		errno = error;
		return NULL;
	}
	ring->memory = malloc(BUFFERS * ring->buffer_size);
	ring->buffers = aligned_alloc(4096, BUFFERS * sizeof(struct io_uring_buf));
	ring->event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	error = ENOMEM;
	if (ring->event != -1 && ring->memory && ring->buffers) {
		memset(ring->buffers, 0, BUFFERS * sizeof(struct io_uring_buf));
		registration.ring_addr = (uintptr_t)ring->buffers;
		error = -io_uring_register_buf_ring(&ring->ring, &registration, 0);
		if (!error)
			error = -io_uring_register_eventfd(&ring->ring, ring->event);
	}
	if (error) {
		ring_free(ring);
		errno = error;
		return NULL;
	}
	for (unsigned int i = 0; i < BUFFERS; i++)
		give(ring, i, (int)i);
	io_uring_buf_ring_advance(ring->buffers, BUFFERS);
	return ring;
}

void ring_free(struct ring *ring)
{
	if (!ring)
		return;
	io_uring_queue_exit(&ring->ring);
	if (ring->event != -1)
		close(ring->event);
	free(ring->memory);
	free(ring->buffers);
	free(ring);
}

static int arm(struct ring *ring)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&ring->ring);
	int submitted;

	/* Of a descriptor that does not block, older kernels say EAGAIN instead of waiting. */
	fcntl(ring->fd, F_SETFL, 0);

	io_uring_prep_recvmsg_multishot(sqe, ring->fd, &ring->message, 0);
	sqe->flags |= IOSQE_BUFFER_SELECT;
	submitted = io_uring_submit(&ring->ring);
	if (submitted < 0)
		errno = -submitted;
	ring->armed = submitted == 1;
	return ring->armed ? 0 : -1;
}

/* One completion: a message of the batch, or nothing. -1 and errno. */
static int take(struct ring *ring, struct batch *batch, const struct io_uring_cqe *cqe)
{
	const unsigned int buffer = cqe->flags >> IORING_CQE_BUFFER_SHIFT;
	struct io_uring_recvmsg_out *out;
	struct msghdr control = { 0 };

	if (!(cqe->flags & IORING_CQE_F_MORE))
		ring->armed = false;
	if (cqe->res == -ENOBUFS) /* all are in the batch, or not taken yet */
		return 0;
	if (cqe->res < 0) {
		errno = -cqe->res;
		return -1;
	}
	out = io_uring_recvmsg_validate(ring->memory + buffer * ring->buffer_size, cqe->res,
					&ring->message);
	batch->bursts[batch->received].size = 0;
	batch->bursts[batch->received].answer = 0;
	batch->bursts[batch->received].frame = buffer;
	if (out) {
		control.msg_control = (uint8_t *)io_uring_recvmsg_name(out) +
				      ring->message.msg_namelen;
		control.msg_controllen = out->controllen;
		batch_set(batch, batch->received, io_uring_recvmsg_payload(out, &ring->message),
			  io_uring_recvmsg_payload_length(out, cqe->res, &ring->message),
			  (int)out->flags, io_uring_recvmsg_name(out),
			  out->controllen ? &control : NULL, &ring->refuse);
	}
	batch->received++;
	return 0;
}

int ring_receive(struct ring *ring, struct batch *batch, const struct timespec *deadline)
{
	ring->refuse = (struct refuse){ 0, 0 };
	for (;;) {
		struct io_uring_cqe *cqe;
		uint64_t events;
		int result = 0;

		if (!ring->armed && arm(ring))
			return -1;
		io_uring_get_events(&ring->ring);
		while (!result && batch->received < batch->capacity &&
		       io_uring_peek_cqe(&ring->ring, &cqe) == 0) {
			result = take(ring, batch, cqe);
			io_uring_cqe_seen(&ring->ring, cqe);
		}
		if (batch->received)
			return (int)batch->received;
		if (result)
			return -1;
		if (ring->armed &&
		    switchto_read(ring->event, &events, sizeof(events), deadline) == -1)
			return -1;
	}
}

struct refuse ring_refused(const struct ring *ring)
{
	return ring->refuse;
}

void ring_recycle(struct ring *ring, struct batch *batch)
{
	for (unsigned int i = 0; i < batch->received; i++)
		give(ring, (unsigned int)batch->bursts[i].frame, (int)i);
	io_uring_buf_ring_advance(ring->buffers, (int)batch->received);
}
#else
struct ring *ring_new(int fd, unsigned int batch, bool gro)
{
	errno = ENOSYS;
	return NULL;
}

void ring_free(struct ring *ring) {}

int ring_receive(struct ring *ring, struct batch *batch, const struct timespec *deadline)
{
	errno = ENOSYS;
	return -1;
}

struct refuse ring_refused(const struct ring *ring)
{
	return (struct refuse){ 0, 0 };
}

void ring_recycle(struct ring *ring, struct batch *batch) {}
#endif
