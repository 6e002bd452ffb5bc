// SPDX-License-Identifier: MIT
/*
 * The event loop beside tools/packet-server: the same batches, answers, GSO, GRO and table of
 * sessions, and a loop on epoll instead of tasks. Its sessions are a count each.
 *
 * usage: udp_epoll [plain|mmsg] [gso] [gro]
 */
#include "batch.h"
#include "table.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/udp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#ifndef UDP_GRO
#define UDP_GRO 104
#endif

enum { BATCH = 64, SESSIONS = 4096, QUEUE = 4 << 20 };

struct session {
	struct sockaddr_in peer;
	unsigned long packets;
};

static struct batch *batch;
static struct table table;
static bool plain;

static _Noreturn void die(const char *what)
{
	perror(what);
	exit(1);
}

static void answer(struct burst *burst)
{
	const struct key key = key_of(&burst->peer);
	struct session *session = table_find(&table, &key);

	if (!session) {
		session = calloc(1, sizeof(*session));
		if (!session || table_add(&table, &key, session)) {
			free(session);
			return;
		}
		session->peer = burst->peer;
	}
	session->packets += packets_of(burst);
	burst->answer = burst->size;
}

/* What is there now. -1: nothing. */
static int receive(int fd)
{
	struct msghdr *message = &batch->in[0].msg_hdr;
	ssize_t n;

	if (!plain)
		return recvmmsg(fd, batch->in, batch->capacity, MSG_DONTWAIT, NULL);
	n = recvfrom(fd, message->msg_iov->iov_base, message->msg_iov->iov_len, MSG_DONTWAIT,
		     message->msg_name, &message->msg_namelen);
	message->msg_flags = 0;
	batch->in[0].msg_len = n > 0 ? (unsigned int)n : 0;
	return n < 0 ? -1 : 1;
}

static void send_answers(int fd)
{
	unsigned int messages, packets;

	while ((messages = batch_gather(batch, &packets)))
		for (unsigned int done = 0; done < messages;) {
			struct msghdr *message = &batch->out[done].msg_hdr;
			int n;

			if (plain)
				n = sendto(fd, message->msg_iov->iov_base,
					   message->msg_iov->iov_len, 0, message->msg_name,
					   message->msg_namelen) < 0 ?
					    -1 :
					    1;
			else
				n = sendmmsg(fd, batch->out + done, messages - done, 0);
			if (n < 0)
				die("send");
			done += (unsigned int)n;
		}
}

/* All that is there. A short batch has emptied the socket. */
static void serve(int fd)
{
	struct refuse refuse = { 0, 0 };
	int n;

	do {
		batch_prepare(batch);
		n = receive(fd);
		if (n < 0)
			break;
		batch_take(batch, (unsigned int)n, &refuse);
		for (int i = 0; i < n; i++)
			if (batch->bursts[i].size)
				answer(&batch->bursts[i]);
		send_answers(fd);
	} while (plain || n == (int)batch->capacity);
}

int main(int argc, char **argv)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	struct epoll_event event = { .events = EPOLLIN | EPOLLET }, events[128];
	const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0), poller = epoll_create1(0),
		  one = 1, queue = QUEUE;
	socklen_t length = sizeof(address);
	bool gso = false, gro = false;

	for (int i = 1; i < argc; i++) {
		plain = plain || strcmp(argv[i], "plain") == 0;
		gso = gso || strcmp(argv[i], "gso") == 0;
		gro = gro || strcmp(argv[i], "gro") == 0;
	}
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	batch = batch_new(plain ? 1 : BATCH, gso, gro);
	if (!batch || table_init(&table, SESSIONS))
		die("buffers");
	setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &queue, sizeof(queue));
	setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &queue, sizeof(queue));
	if (bind(fd, (struct sockaddr *)&address, length) ||
	    getsockname(fd, (struct sockaddr *)&address, &length) ||
	    (gro && setsockopt(fd, SOL_UDP, UDP_GRO, &one, sizeof(one))) ||
	    epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event))
		die("socket");
	printf("listening on 127.0.0.1:%d\n", ntohs(address.sin_port));
	fflush(stdout);
	for (;;)
		if (epoll_wait(poller, events, 128, -1) > 0)
			serve(fd);
}
