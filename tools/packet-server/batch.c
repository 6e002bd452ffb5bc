// SPDX-License-Identifier: MIT
#include "batch.h"

#include <netinet/udp.h>
#include <stdlib.h>
#include <string.h>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

/* Room for one number. */
union control {
	struct cmsghdr header;
	// cppcheck-suppress unusedStructMember
	char space[CMSG_SPACE(sizeof(int))];
};

struct batch *batch_new(unsigned int capacity, bool gso, bool gro)
{
	struct batch *batch = calloc(1, sizeof(*batch));

	if (!batch)
		return NULL;
	batch->capacity = capacity;
	batch->gso = gso;
	batch->gro = gro;
	batch->buffer_size = gro ? GRO_MAX : PACKET_MAX;
	batch->buffers = malloc(capacity * batch->buffer_size);
	batch->made_buffers = malloc((size_t)MADE_MAX * PACKET_MAX);
	batch->in = calloc(capacity, sizeof(*batch->in));
	batch->in_parts = calloc(capacity, sizeof(*batch->in_parts));
	batch->in_controls = calloc(capacity, sizeof(*batch->in_controls));
	batch->peers = calloc(capacity, sizeof(*batch->peers));
	batch->bursts = calloc(capacity, sizeof(*batch->bursts));
	batch->made = calloc(MADE_MAX, sizeof(*batch->made));
	batch->out = calloc(OUT_MAX, sizeof(*batch->out));
	batch->out_parts = calloc((size_t)OUT_MAX, sizeof(*batch->out_parts));
	batch->out_controls = calloc(OUT_MAX, sizeof(*batch->out_controls));
	if (!batch->buffers || !batch->made_buffers || !batch->in || !batch->in_parts ||
	    !batch->in_controls || !batch->peers || !batch->bursts || !batch->made || !batch->out ||
	    !batch->out_parts || !batch->out_controls) {
		batch_free(batch);
		return NULL;
	}
	/* The first batch_prepare() sets up all of them. */
	for (unsigned int i = 0; i < capacity; i++) {
		batch->in_parts[i].iov_base = batch->buffers + i * batch->buffer_size;
		batch->in[i].msg_hdr.msg_iov = &batch->in_parts[i];
		batch->in[i].msg_hdr.msg_iovlen = 1;
		batch->in[i].msg_hdr.msg_name = &batch->peers[i];
		batch->in[i].msg_hdr.msg_control = gro ? &batch->in_controls[i] : NULL;
	}
	batch->used = capacity;
	return batch;
}

void batch_free(struct batch *batch)
{
	if (!batch)
		return;
	free(batch->buffers);
	free(batch->made_buffers);
	free(batch->in);
	free(batch->in_parts);
	free(batch->in_controls);
	free(batch->peers);
	free(batch->bursts);
	free(batch->made);
	free(batch->out);
	free(batch->out_parts);
	free(batch->out_controls);
	free(batch);
}

void batch_prepare(struct batch *batch)
{
	for (unsigned int i = 0; i < batch->used; i++) {
		struct msghdr *message = &batch->in[i].msg_hdr;

		batch->in_parts[i].iov_len = batch->buffer_size;
		message->msg_namelen = sizeof(struct sockaddr_in);
		message->msg_controllen = batch->gro ? sizeof(union control) : 0;
	}
	batch->received = batch->used = 0;
}

/* The size of the packets in a burst; 0: it is one packet. */
static uint32_t segment_of(struct msghdr *message)
{
	struct cmsghdr *header = CMSG_FIRSTHDR(message);
	int segment = 0;

	if (header && header->cmsg_level == SOL_UDP && header->cmsg_type == UDP_GRO)
		memcpy(&segment, CMSG_DATA(header), sizeof(segment));
	return segment > 0 ? (uint32_t)segment : 0;
}

bool batch_set(struct batch *batch, unsigned int n, uint8_t *data, size_t size, int flags,
	       const struct sockaddr_in *peer, struct msghdr *control, struct refuse *refuse)
{
	struct burst *burst = &batch->bursts[n];

	burst->answer = 0;
	burst->next = NULL;
	burst->data = data;
	burst->size = burst->segment = 0;
	if (flags & MSG_TRUNC) {
		refuse->oversized++;
		return false;
	}
	if (size == 0) {
		refuse->empty++;
		return false;
	}
	burst->size = (uint32_t)size;
	burst->peer = *peer;
	burst->segment = control ? segment_of(control) : 0;
	if (!burst->segment || burst->segment > burst->size)
		burst->segment = burst->size;
	return true;
}

unsigned int batch_take(struct batch *batch, unsigned int count, struct refuse *refuse)
{
	unsigned int packets = 0;

	for (unsigned int i = 0; i < count; i++) {
		struct msghdr *message = &batch->in[i].msg_hdr;

		if (batch_set(batch, i, batch->in_parts[i].iov_base, batch->in[i].msg_len,
			      message->msg_flags, &batch->peers[i], batch->gro ? message : NULL,
			      refuse))
			packets += packets_of(&batch->bursts[i]);
	}
	batch->received = batch->used = count;
	return packets;
}

uint8_t *batch_make(struct batch *batch, const struct sockaddr_in *peer, uint32_t size)
{
	struct burst *made;

	if (batch->made_count == MADE_MAX || size > PACKET_MAX)
		return NULL;
	made = &batch->made[batch->made_count];
	made->data = batch->made_buffers + (size_t)batch->made_count * PACKET_MAX;
	made->size = made->segment = made->answer = size;
	made->peer = *peer;
	batch->made_count++;
	return made->data;
}

static struct burst *nth_burst(struct batch *batch, unsigned int n)
{
	return n < batch->received ? &batch->bursts[n] : &batch->made[n - batch->received];
}

static void set_segment(struct msghdr *message, union control *control, uint32_t segment)
{
	const uint16_t size = (uint16_t)segment;

	message->msg_control = control;
	message->msg_controllen = CMSG_SPACE(sizeof(size));
	control->header.cmsg_level = SOL_UDP;
	control->header.cmsg_type = UDP_SEGMENT;
	control->header.cmsg_len = CMSG_LEN(sizeof(size));
	memcpy(CMSG_DATA(&control->header), &size, sizeof(size));
}

/* What the last message of batch->out is made of. */
struct last {
	struct msghdr *message;
	union control *control;
	const struct sockaddr_in *peer;
	uint32_t segment, size;
	unsigned int packets;
	bool open; /* all its packets are of the same size: more may follow */
};

/* Adds a burst to the last message, if the kernel can send both as one. */
static bool join(struct last *last, const struct burst *burst, unsigned int packets,
		 struct iovec *part)
{
	if (!last->open || last->peer->sin_port != burst->peer.sin_port ||
	    last->peer->sin_addr.s_addr != burst->peer.sin_addr.s_addr ||
	    burst->segment > last->segment || (burst->segment < last->segment && packets > 1) ||
	    last->size + burst->answer > SEGMENTED_MAX || last->packets + packets > SEGMENTS_MAX)
		return false;
	part->iov_base = burst->data;
	part->iov_len = burst->answer;
	last->message->msg_iovlen++;
	last->size += burst->answer;
	last->packets += packets;
	last->open = burst->answer % last->segment == 0;
	set_segment(last->message, last->control, last->segment);
	return true;
}

unsigned int batch_gather(struct batch *batch, unsigned int *packets_out)
{
	const unsigned int all = batch->received + batch->made_count;
	unsigned int count = 0, parts = 0, total = 0;
	size_t bytes = 0;
	struct last last = { .open = false };

	for (; batch->gathered < all && count < OUT_MAX && parts < OUT_MAX; batch->offset = 0) {
		struct burst *burst = nth_burst(batch, batch->gathered);
		struct msghdr *message;
		unsigned int packets;
		uint32_t size;

		if (!burst->answer) {
			batch->gathered++;
			continue;
		}
		packets = burst->answer == burst->segment ?
				  1 :
				  (burst->answer + burst->segment - 1) / burst->segment;
		if (batch->gso && join(&last, burst, packets, &batch->out_parts[parts])) {
			parts++;
			total += packets;
			bytes += burst->answer;
			batch->gathered++;
			continue;
		}
		/* All of it as one message; or one packet, without the kernel's help. */
		for (; batch->offset < burst->answer && count < OUT_MAX && parts < OUT_MAX;
		     batch->offset += size) {
			size = burst->answer - batch->offset;
			if (packets > SEGMENTS_MAX && size > burst->segment * SEGMENTS_MAX)
				size = burst->segment * SEGMENTS_MAX;
			if (!batch->gso && size > burst->segment)
				size = burst->segment;
			batch->out_parts[parts].iov_base = burst->data + batch->offset;
			batch->out_parts[parts].iov_len = size;
			message = &batch->out[count].msg_hdr;
			message->msg_name = &burst->peer;
			message->msg_namelen = sizeof(burst->peer);
			message->msg_iov = &batch->out_parts[parts];
			message->msg_iovlen = 1;
			message->msg_control = NULL;
			message->msg_controllen = 0;
			message->msg_flags = 0;
			last = (struct last){
				message,
				&batch->out_controls[count],
				&burst->peer,
				burst->segment,
				size,
				(size + burst->segment - 1) / burst->segment,
				batch->gso && size % burst->segment == 0,
			};
			if (size > burst->segment)
				set_segment(message, last.control, burst->segment);
			total += last.packets;
			bytes += size;
			count++;
			parts++;
		}
		if (batch->offset < burst->answer)
			break; /* the rest of it next time */
		batch->gathered++;
	}
	*packets_out = total;
	batch->bytes = bytes;
	if (!count) {
		for (unsigned int i = 0; i < batch->received; i++)
			batch->bursts[i].answer = 0;
		batch->made_count = batch->gathered = batch->offset = 0;
	}
	return count;
}

static uint32_t segment_of_out(const struct msghdr *message)
{
	const struct cmsghdr *header = message->msg_control;
	uint16_t segment;

	if (!header)
		return UINT32_MAX;
	memcpy(&segment, CMSG_DATA(header), sizeof(segment));
	return segment;
}

unsigned int batch_segments(const struct msghdr *message)
{
	const uint32_t segment = segment_of_out(message);
	unsigned int count = 0;

	for (size_t i = 0; i < message->msg_iovlen; i++)
		count += segment == UINT32_MAX ?
				 1 :
				 (unsigned int)((message->msg_iov[i].iov_len + segment - 1) /
						segment);
	return count;
}

struct msghdr batch_one(const struct msghdr *message, unsigned int n, struct iovec *part)
{
	const uint32_t segment = segment_of_out(message);
	struct msghdr one = { .msg_name = message->msg_name,
			      .msg_namelen = message->msg_namelen,
			      .msg_iov = part,
			      .msg_iovlen = 1 };

	for (size_t i = 0; i < message->msg_iovlen; i++) {
		const struct iovec *all = &message->msg_iov[i];

		for (size_t offset = 0; offset < all->iov_len; offset += segment)
			if (n-- == 0) {
				part->iov_base = (uint8_t *)all->iov_base + offset;
				part->iov_len = all->iov_len - offset < segment ?
							all->iov_len - offset :
							segment;
				return one;
			}
	}
	part->iov_len = 0;
	return one;
}
