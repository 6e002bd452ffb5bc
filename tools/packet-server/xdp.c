// SPDX-License-Identifier: MIT
#include "xdp.h"

#include <errno.h>
#include <stdlib.h>

#ifdef HAVE_LIBXDP
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/ethtool.h>
#include <linux/if_link.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#include <xdp/xsk.h>

enum {
	FRAMES = 2048,
	FRAME_SIZE = 2048,
	/* Ethernet, IPv4 without options, UDP. */
	MACS = 12,
	IP = 14,
	UDP = 34,
	PAYLOAD = 42,
	QUEUES = 64,
};

struct xdp {
	struct xsk_umem *umem;
	struct xsk_socket *socket;
	struct xsk_ring_prod fill, tx;
	struct xsk_ring_cons completed, rx;
	uint8_t *memory;
	unsigned int under_way; /* frames that the kernel sends */
	struct refuse refuse;
};

/* One for all slots: it is gone when the process is. */
static struct {
	int map, link;
	unsigned int users;
} program = { -1, -1, 0 };

/* --- the program at the interface --- */

#define LOAD(size, to, from, where)                                                     \
	{                                                                               \
		.code = BPF_LDX | (size) | BPF_MEM, .dst_reg = (to), .src_reg = (from), \
		.off = (where)                                                          \
	}
#define MOVE(to, from)                                                                  \
	{                                                                               \
		.code = BPF_ALU64 | BPF_MOV | BPF_X, .dst_reg = (to), .src_reg = (from) \
	}
#define SET(to, value)                                                               \
	{                                                                            \
		.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = (to), .imm = (value) \
	}
#define ADD(to, value)                                                               \
	{                                                                            \
		.code = BPF_ALU64 | BPF_ADD | BPF_K, .dst_reg = (to), .imm = (value) \
	}
#define AND(to, value)                                                               \
	{                                                                            \
		.code = BPF_ALU64 | BPF_AND | BPF_K, .dst_reg = (to), .imm = (value) \
	}
#define UNLESS(reg, value, skip)                                                                   \
	{                                                                                          \
		.code = BPF_JMP | BPF_JNE | BPF_K, .dst_reg = (reg), .off = (skip), .imm = (value) \
	}

/*
 * UDP for the port goes to the socket of its queue. All else, like ARP, fragments and IPv4 with
 * options, goes to the kernel.
 */
static int load(uint16_t port)
{
	const struct bpf_insn code[] = {
		MOVE(6, 1),
		LOAD(BPF_W, 2, 1, 0), /* data */
		LOAD(BPF_W, 3, 1, 4), /* its end */
		MOVE(4, 2),
		ADD(4, PAYLOAD),
		{ .code = BPF_JMP | BPF_JGT | BPF_X, .dst_reg = 4, .src_reg = 3, .off = 17 },
		LOAD(BPF_H, 5, 2, MACS),
		UNLESS(5, htons(0x0800), 15),
		LOAD(BPF_B, 5, 2, IP),
		UNLESS(5, 0x45, 13),
		LOAD(BPF_H, 5, 2, IP + 6),
		AND(5, htons(0x3fff)),
		UNLESS(5, 0, 10),
		LOAD(BPF_B, 5, 2, IP + 9),
		UNLESS(5, IPPROTO_UDP, 8),
		LOAD(BPF_H, 5, 2, UDP + 2),
		UNLESS(5, port, 6),
		{ .code = BPF_LD | BPF_DW | BPF_IMM,
		  .dst_reg = 1,
		  .src_reg = BPF_PSEUDO_MAP_FD,
		  .imm = program.map },
		{ .imm = 0 },
		LOAD(BPF_W, 2, 6, 16), /* the queue */
		SET(3, XDP_PASS),
		{ .code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_redirect_map },
		{ .code = BPF_JMP | BPF_EXIT },
		SET(0, XDP_PASS),
		{ .code = BPF_JMP | BPF_EXIT },
	};

	return bpf_prog_load(BPF_PROG_TYPE_XDP, "packet_server", "GPL", code,
			     sizeof(code) / sizeof(*code), NULL);
}

static const char *attach(unsigned int interface, uint16_t port)
{
	struct bpf_link_create_opts options = { .sz = sizeof(options),
						.flags = XDP_FLAGS_DRV_MODE };
	int loaded;

	if (program.users)
		return NULL;
	program.map = bpf_map_create(BPF_MAP_TYPE_XSKMAP, "packet_server", sizeof(int), sizeof(int),
				     QUEUES, NULL);
	if (program.map < 0)
		return errno == EPERM ? "no permission (CAP_BPF, CAP_NET_ADMIN, CAP_NET_RAW)" :
					"the kernel has no map of AF_XDP sockets";
	loaded = load(port);
	if (loaded < 0)
		return errno == EPERM ? "no permission (CAP_BPF, CAP_NET_ADMIN, CAP_NET_RAW)" :
					"the kernel does not take the program";
	program.link = bpf_link_create(loaded, (int)interface, BPF_XDP, &options);
	if (program.link < 0) { /* a driver without XDP */
		options.flags = XDP_FLAGS_SKB_MODE;
		program.link = bpf_link_create(loaded, (int)interface, BPF_XDP, &options);
	}
	close(loaded);
	if (program.link >= 0)
		return NULL;
	return errno == EBUSY ? "the interface has another XDP program" :
				"the interface does not take an XDP program";
}

static void detach(void)
{
	if (program.users)
		return;
	if (program.link >= 0)
		close(program.link);
	if (program.map >= 0)
		close(program.map);
	program.link = program.map = -1;
}

/* --- the socket --- */

/* sysfs shows queues only if the kernel was built with CONFIG_RPS. */
static unsigned int queues_of(const char *interface)
{
	struct ethtool_channels channels = { .cmd = ETHTOOL_GCHANNELS };
	struct ifreq request = { .ifr_data = (void *)&channels };
	const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int result;

	strncpy(request.ifr_name, interface, sizeof(request.ifr_name) - 1);
	result = ioctl(fd, SIOCETHTOOL, &request);
	close(fd);
	if (result)
		return 1;
	return channels.combined_count ? channels.combined_count : channels.rx_count;
}

static const char *open_xdp(struct xdp *xdp, const struct options *options, unsigned int slot,
			    uint16_t port)
{
	const struct xsk_umem_config memory = { .fill_size = FRAMES,
						.comp_size = FRAMES,
						.frame_size = FRAME_SIZE };
	/* Without a copy if the driver can do that; the kernel decides. */
	const struct xsk_socket_config config = {
		.rx_size = FRAMES,
		.tx_size = FRAMES,
		.libxdp_flags = XSK_LIBXDP_FLAGS__INHIBIT_PROG_LOAD,
		.bind_flags = XDP_USE_NEED_WAKEUP,
	};
	const struct rlimit unlimited = { RLIM_INFINITY, RLIM_INFINITY };
	const unsigned int interface = if_nametoindex(options->xdp);
	const char *reason;
	uint32_t at = 0;
	int fd, error;

	if (!interface)
		return "there is no such interface";
	/* What comes in a queue without a socket would wait for nobody. */
	if (options->slots != queues_of(options->xdp))
		return "wanted as many slots as the interface has queues (--slots, ethtool -L)";
	setrlimit(RLIMIT_MEMLOCK, &unlimited); /* older kernels count it there */
	reason = attach(interface, port);
	if (reason)
		return reason;
	xdp->memory = mmap(NULL, (size_t)FRAMES * FRAME_SIZE, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (xdp->memory == MAP_FAILED) {
		xdp->memory = NULL;
		return "no memory";
	}
	error = -xsk_umem__create(&xdp->umem, xdp->memory, (uint64_t)FRAMES * FRAME_SIZE,
				  &xdp->fill, &xdp->completed, &memory);
	if (!error)
		error = -xsk_socket__create(&xdp->socket, options->xdp, slot, xdp->umem, &xdp->rx,
					    &xdp->tx, &config);
	if (error == EPERM)
		return "no permission (CAP_BPF, CAP_NET_ADMIN, CAP_NET_RAW)";
	if (error == EBUSY)
		return "another program has the queue";
	if (error)
		return "the kernel has no AF_XDP for this interface";
	fd = xsk_socket__fd(xdp->socket);
	if (bpf_map_update_elem(program.map, &slot, &fd, BPF_ANY))
		return "the map does not take the socket";
	xsk_ring_prod__reserve(&xdp->fill, FRAMES, &at);
	for (uint32_t i = 0; i < FRAMES; i++)
		*xsk_ring_prod__fill_addr(&xdp->fill, at + i) = (uint64_t)i * FRAME_SIZE;
	xsk_ring_prod__submit(&xdp->fill, FRAMES);
	return NULL;
}

static void close_xdp(struct xdp *xdp)
{
	if (xdp->socket)
		xsk_socket__delete(xdp->socket);
	if (xdp->umem)
		xsk_umem__delete(xdp->umem);
	if (xdp->memory)
		munmap(xdp->memory, (size_t)FRAMES * FRAME_SIZE);
	free(xdp);
	detach();
}

struct xdp *xdp_new(const struct options *options, unsigned int slot, uint16_t port,
		    const char **reason)
{
	struct xdp *xdp = calloc(1, sizeof(*xdp));

	*reason = "no memory";
	if (!xdp)
		return NULL;
	libbpf_set_print(NULL);
	*reason = open_xdp(xdp, options, slot, port);
	if (*reason) {
		close_xdp(xdp);
		return NULL;
	}
	program.users++;
	return xdp;
}

void xdp_free(struct xdp *xdp)
{
	if (!xdp)
		return;
	program.users--;
	close_xdp(xdp);
}

/* The frame is the kernel's, to receive into. Each frame is in one ring: there is always room. */
static void give(struct xdp *xdp, uint64_t frame)
{
	uint32_t at = 0;

	if (xsk_ring_prod__reserve(&xdp->fill, 1, &at) != 1)
		return;
	*xsk_ring_prod__fill_addr(&xdp->fill, at) = frame / FRAME_SIZE * FRAME_SIZE;
	xsk_ring_prod__submit(&xdp->fill, 1);
}

static void take_completed(struct xdp *xdp)
{
	uint32_t at = 0;
	const unsigned int count = xsk_ring_cons__peek(&xdp->completed, FRAMES, &at);

	for (unsigned int i = 0; i < count; i++)
		give(xdp, *xsk_ring_cons__comp_addr(&xdp->completed, at + i));
	xsk_ring_cons__release(&xdp->completed, count);
	xdp->under_way -= count;
}

static uint16_t get16(const uint8_t *from)
{
	return (uint16_t)(from[0] << 8 | from[1]);
}

/* The program has seen to the rest of the headers. */
static void take(struct xdp *xdp, struct batch *batch, const struct xdp_desc *frame)
{
	uint8_t *data = xsk_umem__get_data(xdp->memory, frame->addr);
	struct sockaddr_in peer = { .sin_family = AF_INET };
	const uint32_t size = get16(data + UDP + 4);

	batch->bursts[batch->received].frame = frame->addr;
	batch->bursts[batch->received].size = batch->bursts[batch->received].answer = 0;
	memcpy(&peer.sin_addr, data + IP + 12, sizeof(peer.sin_addr));
	memcpy(&peer.sin_port, data + UDP, sizeof(peer.sin_port));
	if (size < PAYLOAD - UDP || size + UDP > frame->len || size + 20U != get16(data + IP + 2))
		xdp->refuse.empty++;
	else
		batch_set(batch, batch->received, data + PAYLOAD, size - (PAYLOAD - UDP), 0, &peer,
			  NULL, &xdp->refuse);
	batch->received++;
}

int xdp_receive(struct xdp *xdp, struct batch *batch, const struct timespec *deadline)
{
	const int fd = xsk_socket__fd(xdp->socket);

	xdp->refuse = (struct refuse){ 0, 0 };
	for (;;) {
		uint32_t at = 0;
		const unsigned int count = xsk_ring_cons__peek(&xdp->rx, batch->capacity, &at);

		for (unsigned int i = 0; i < count; i++)
			take(xdp, batch, xsk_ring_cons__rx_desc(&xdp->rx, at + i));
		xsk_ring_cons__release(&xdp->rx, count);
		if (count)
			return (int)count;
		if (switchto_poll(fd, POLLIN, deadline) == -1)
			return -1;
	}
}

struct refuse xdp_refused(const struct xdp *xdp)
{
	return xdp->refuse;
}

static void swap(uint8_t *a, uint8_t *b, size_t size)
{
	uint8_t kept[6];

	memcpy(kept, a, size);
	memcpy(a, b, size);
	memcpy(b, kept, size);
}

/* The sum over the header of IPv4 stays the same. That of UDP may be left out. */
static void turn_round(uint8_t *data)
{
	swap(data, data + 6, 6);
	swap(data + IP + 12, data + IP + 16, 4);
	swap(data + UDP, data + UDP + 2, 2);
	memset(data + UDP + 6, 0, 2);
}

void xdp_send(struct xdp *xdp, struct batch *batch, struct counters *counters)
{
	const int fd = xsk_socket__fd(xdp->socket);
	unsigned int queued = 0;
	uint32_t at = 0;

	for (unsigned int i = 0; i < batch->received; i++) {
		struct burst *burst = &batch->bursts[i];
		struct xdp_desc *frame;

		if (!burst->answer || xsk_ring_prod__reserve(&xdp->tx, 1, &at) != 1) {
			if (burst->answer)
				count(counters, unsent, 1);
			give(xdp, burst->frame);
			continue;
		}
		turn_round(xsk_umem__get_data(xdp->memory, burst->frame));
		frame = xsk_ring_prod__tx_desc(&xdp->tx, at);
		frame->addr = burst->frame;
		frame->len = PAYLOAD + burst->answer;
		frame->options = 0;
		burst->answer = 0;
		queued++;
		count(counters, bytes_out, frame->len - PAYLOAD);
	}
	batch->received = 0;
	if (queued) {
		xsk_ring_prod__submit(&xdp->tx, queued);
		xdp->under_way += queued;
		count(counters, packets_out, queued);
	}
	/* In copy mode, one call sends up to 32, and says EAGAIN if there are more. */
	for (unsigned int calls = 0; xdp->under_way && calls <= queued / 16 + 1; calls++) {
		count(counters, sends, 1);
		if (sendto(fd, NULL, 0, MSG_DONTWAIT, NULL, 0) == 0 ||
		    (errno != EAGAIN && errno != EBUSY))
			break;
		take_completed(xdp);
	}
	take_completed(xdp);
}
#else
struct xdp *xdp_new(const struct options *options, unsigned int slot, uint16_t port,
		    const char **reason)
{
	*reason = "built without libxdp (Debian: libxdp-dev, libbpf-dev)";
	return NULL;
}

void xdp_free(struct xdp *xdp) {}

int xdp_receive(struct xdp *xdp, struct batch *batch, const struct timespec *deadline)
{
	errno = ENOSYS;
	return -1;
}

struct refuse xdp_refused(const struct xdp *xdp)
{
	return (struct refuse){ 0, 0 };
}

void xdp_send(struct xdp *xdp, struct batch *batch, struct counters *counters) {}
#endif
