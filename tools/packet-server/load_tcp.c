// SPDX-License-Identifier: MIT
#include "load.h"

static void send_request(struct session *session)
{
	const struct head head = { (uint32_t)(session - sessions), session->number, now_ns() };

	fill(buffer, &head);
	session->begun = head.sent;
	session->received = 0;
	if (send(session->fd, buffer, options.size, MSG_NOSIGNAL) != (ssize_t)options.size)
		die("send");
}

/* True: the answer is whole. */
static bool take_bytes(struct session *session)
{
	const uint32_t number = (uint32_t)(session - sessions);
	const ssize_t n = recv(session->fd, buffer, options.size - session->received, 0);

	if (n <= 0)
		die("recv");
	for (ssize_t i = 0; i < n; i++, session->received++)
		if (session->received >= sizeof(struct head) &&
		    buffer[i] != *pattern(number, session->number, session->received))
			wrong++;
	if (session->received < options.size)
		return false;
	add_latency(now_ns() - session->begun);
	session->number++;
	return true;
}

int run_tcp(void)
{
	struct result result = { 0, 0, 0, 0 };
	int64_t begin, cpu;

	open_sessions(SOCK_STREAM);
	begin = now_ns();
	cpu = server_time();
	for (unsigned long i = 0; i < options.sessions; i++, result.sent++)
		send_request(&sessions[i]);
	while (result.received < options.packets) {
		struct epoll_event events[128];
		const int count = epoll_wait(poller, events, 128, (int)(options.patience * 1000));

		if (count == 0) {
			fprintf(stderr, "packet-load: no answer in %lu s\n", options.patience);
			return 1;
		}
		for (int i = 0; i < count; i++)
			if (take_bytes(&sessions[events[i].data.u32])) {
				result.received++;
				send_request(&sessions[events[i].data.u32]);
				result.sent++;
			}
	}
	result.ns = now_ns() - begin;
	result.server_ns = server_time() - cpu;
	print_result("tcp", &result);
	puts("}");
	close_sessions();
	return wrong ? 1 : 0;
}
