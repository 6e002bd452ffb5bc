// SPDX-License-Identifier: MIT
/*
 * UDP: a task for each session. There is no task that receives for the others. One of the sessions
 * leads: it sends the answers of all, receives the next batch, and gives each session its packets.
 * Then it is a session like the others. The last session that is done with its packets leads next:
 * so a batch takes one switch for each session in it, and not one more.
 *
 * The main task of the slot leads if no session does, as at the start.
 */
#include "udp.h"

#include <sys/timerfd.h>

/* How many places of a full table are looked at; at least a quarter of all is taken, or one of 16. */
enum { LOOKS = 64 };

/* Leaves those packets of @burst that are not forged; the text is where the sealed packet was. */
static void open_burst(struct udp *udp, struct burst *burst)
{
	uint32_t kept = 0, size;

	for (uint32_t offset = 0; offset < burst->size; offset += size) {
		uint8_t *packet = burst->data + offset;

		size = segment_size(burst, offset);
		if (size < CRYPTO_OVERHEAD) {
			count(udp->counters, short_packets, 1);
		} else if (crypto_open(udp->crypto, packet, size) < 0) {
			count(udp->counters, forged, 1);
		} else {
			if (kept != offset)
				memmove(burst->data + kept, packet, size);
			kept += size;
		}
	}
	burst->size = kept;
}

/*
 * Does a packet seem to come from this very port? The answer to it would be the next such packet, and
 * so on. An address that can be bound is one of this machine.
 */
static bool is_own(const struct udp *udp, const struct sockaddr_in *peer)
{
	const struct sockaddr_in *own = &udp->options->address;
	struct sockaddr_in local = *peer;
	bool found = true;
	int fd;

	if (peer->sin_port != own->sin_port)
		return false;
	if (own->sin_addr.s_addr != INADDR_ANY)
		return peer->sin_addr.s_addr == own->sin_addr.s_addr;
	local.sin_port = 0;
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd != -1) {
		found = bind(fd, (const struct sockaddr *)&local, sizeof(local)) == 0;
		close(fd);
	}
	return found;
}

/*
 * The table is full: a session of the echo that waits for packets serves another client from now on.
 * The former client may do the same later. So nobody can keep others out. A session of the reliable
 * mode has more to lose. NULL: all have packets.
 */
static struct session *take_over(struct udp *udp, const struct key *key, const struct burst *burst)
{
	for (unsigned int looks = 0; looks < LOOKS; looks++) {
		struct session *session = udp->table.entries[udp->hand++ & udp->table.mask].value;
		struct key former;

		if (!session || session->busy || session->idle)
			continue;
		former = key_of(&session->peer);
		table_remove(&udp->table, &former);
		session->peer = burst->peer;
		table_add(&udp->table, key, session);
		count(udp->counters, begun, 1);
		count(udp->counters, ended, 1);
		return session;
	}
	return NULL;
}

/* NULL: there is no room. */
static struct session *begin(struct udp *udp, const struct burst *burst)
{
	const struct key key = key_of(&burst->peer);
	const bool reliable = udp->options->what == UDP_RELIABLE;
	struct session *session;
	uint32_t number = 0;

	if (is_own(udp, &burst->peer)) {
		count(udp->counters, strays, packets_of(burst));
		return NULL;
	}
	if (!reliable && udp->table.count == udp->table.limit) {
		session = take_over(udp, &key, burst);
		if (!session)
			count(udp->counters, refused, packets_of(burst));
		return session;
	}
	session = calloc(1, sizeof(*session));
	if (reliable) {
		const uint32_t head = udp->crypto ? NONCE_SIZE : 0,
			       more = udp->crypto ? CRYPTO_OVERHEAD : 0;

		if (burst->segment < STREAM_HEADER + more)
			count(udp->counters, short_packets, packets_of(burst));
		else if (!stream_begins(burst->data + head, segment_size(burst, 0) - more, &number))
			count(udp->counters, strays, packets_of(burst));
		else
			goto admit;
		free(session);
		return NULL;
	}
admit:
	if (!session || table_add(&udp->table, &key, session))
		goto refuse;
	session->udp = udp;
	session->peer = burst->peer;
	if (reliable) {
		session->stream = malloc(sizeof(*session->stream));
		if (!session->stream)
			goto remove;
		stream_init(session->stream, number);
	}
	if (switchto_spawn(NULL, reliable ? reliable_session : echo_session, session, NULL,
			   &session->task) == 0) {
		count(udp->counters, begun, 1);
		return session;
	}
	free(session->stream);
remove:
	table_remove(&udp->table, &key);
refuse:
	free(session);
	count(udp->counters, refused, packets_of(burst));
	return NULL;
}

/*
 * Gives the sessions the packets of the batch. With the lock. First all packets, then the sessions:
 * one that is ready takes its packets without the lock.
 */
static void distribute(struct udp *udp, struct session *leader)
{
	struct session *found = NULL;
	unsigned int woken = 0;

	for (unsigned int i = 0; i < udp->batch->received; i++) {
		struct burst *burst = &udp->batch->bursts[i];
		struct session *session;
		struct key key;

		if (burst->size && udp->crypto)
			open_burst(udp, burst);
		if (!burst->size)
			continue;
		key = key_of(&burst->peer);
		session = table_find(&udp->table, &key);
		if (!session && !(session = begin(udp, burst)))
			continue;
		if (session->first) {
			session->last->next = burst;
			session->last = burst;
			continue;
		}
		session->first = session->last = burst;
		session->epoch = udp->epoch;
		session->next = found;
		found = session;
		atomic_store_explicit(&session->idle, false, memory_order_relaxed);
		atomic_store_explicit(&session->busy, true, memory_order_relaxed);
		woken++;
	}
	atomic_store(&udp->busy, woken);
	count(udp->counters, parks, woken);
	while (found) {
		struct session *session = found;

		found = session->next;
		atomic_store_explicit(&session->ready, true, memory_order_release);
		if (session != leader)
			switchto_unpark(session->task);
	}
}

/*
 * Sends what there is, and receives and distributes a batch. With the lock, but not while it waits.
 * 0, or -1 and errno. @leader: NULL in the main task.
 */
static int lead(struct udp *udp, struct session *leader, const struct timespec *deadline)
{
	struct refuse refuse = { 0, 0 };
	unsigned int packets;
	int n, error;

	udp->led = true;
	udp_flush(udp);
	if (udp->ring)
		ring_recycle(udp->ring, udp->batch);
	batch_prepare(udp->batch);
	unlock(udp);
	n = udp_receive(udp, deadline);
	error = errno;
	lock(udp);
	udp->led = false;
	if (n < 0) {
		errno = error;
		return -1;
	}
	/* A ring and AF_XDP have made bursts of them. */
	packets = udp->xdp || udp->ring ? udp->batch->received :
					  batch_take(udp->batch, (unsigned int)n, &refuse);
	if (udp->xdp || udp->ring) {
		packets = 0;
		for (unsigned int i = 0; i < udp->batch->received; i++)
			packets += udp->batch->bursts[i].size ? packets_of(&udp->batch->bursts[i]) :
								0;
		refuse = udp->ring ? ring_refused(udp->ring) : xdp_refused(udp->xdp);
	}
	count(udp->counters, short_packets, refuse.empty);
	count(udp->counters, oversized, refuse.oversized);
	count(udp->counters, receives, 1);
	count(udp->counters, packets_in, packets);
	udp->taken += (unsigned int)n;
	for (unsigned int i = 0; i < udp->batch->received; i++)
		count(udp->counters, bytes_in, udp->batch->bursts[i].size);
	count_batch(udp->counters, (unsigned int)n);
	distribute(udp, leader);
	return 0;
}

/* What a failed wait means: true if the task is to end. */
static bool is_over(struct udp *udp, int error)
{
	const struct timespec soon = as_timespec(now_ns() + 10000000);

	/* A lack of memory, say, will pass. But a task that is cancelled does not sleep. */
	if (error != ECANCELED && error != EBADF && error != ETIMEDOUT && error != EINTR &&
	    switchto_sleep_until(&soon))
		error = errno;
	if (error == ECANCELED || error == EBADF)
		udp->over = true;
	return udp->over;
}

/* The ring's entries are its main task's. */
static bool may_lead(const struct udp *udp, const struct session *session)
{
	return !udp->busy && !udp->led && (!udp->ring || !session);
}

/* The packets of @session, or NULL if it has none. */
static struct burst *take_bursts(struct session *session)
{
	struct burst *found;

	if (!atomic_load_explicit(&session->ready, memory_order_acquire))
		return NULL;
	atomic_store_explicit(&session->ready, false, memory_order_relaxed);
	found = session->first;
	session->first = NULL;
	session->taken = true;
	return found;
}

/* It is done with its packets. True: it was the last one of the batch. */
static bool is_last(struct session *session)
{
	session->taken = false;
	atomic_store_explicit(&session->busy, false, memory_order_relaxed);
	return atomic_fetch_sub(&session->udp->busy, 1) == 1;
}

/* As next_bursts(), with the lock: leads if nobody does. */
static struct burst *lead_or_wait(struct session *session, const struct timespec *deadline)
{
	struct udp *udp = session->udp;
	int error = 0;

	lock(udp);
	while (!atomic_load(&session->ready) && !udp->over && !session->idle && !error) {
		if (may_lead(udp, session)) {
			if (lead(udp, session, deadline)) {
				error = errno;
				is_over(udp, error);
			}
			continue;
		}
		if (!udp->busy && !udp->led)
			switchto_unpark(udp->main);
		else if (!udp->busy && udp->batch->made_count)
			udp_flush(udp);
		unlock(udp);
		if (switchto_park(deadline))
			error = errno;
		lock(udp);
		if (error == ECANCELED)
			udp->over = true;
	}
	unlock(udp);
	return udp->over ? NULL : take_bursts(session);
}

struct burst *next_bursts(struct session *session, const struct timespec *deadline)
{
	struct burst *found;

	if (session->taken && !is_last(session) && switchto_park(deadline) == 0) {
		found = take_bursts(session);
		if (found)
			return found;
	}
	return lead_or_wait(session, deadline);
}

void end_session(struct session *session)
{
	struct udp *udp = session->udp;
	struct key key;

	lock(udp);
	key = key_of(&session->peer);
	/* Packets that came meanwhile are lost with it. */
	if (session->busy)
		is_last(session);
	table_remove(&udp->table, &key);
	if (session->stream) {
		count(udp->counters, retransmitted, session->stream->retransmitted);
		stream_end(session->stream);
		free(session->stream);
	}
	count(udp->counters, ended, 1);
	if (session->idle)
		count(udp->counters, timed_out, 1);
	if (!udp->busy && !udp->led)
		switchto_unpark(udp->main);
	switchto_detach(session->task);
	unlock(udp);
	free(session);
}

/* --- the slot --- */

static void end_idle_sessions(struct udp *udp)
{
	lock(udp);
	udp->epoch++;
	for (uint32_t i = 0; i <= udp->table.mask; i++) {
		struct session *session = udp->table.entries[i].value;

		if (session && !session->busy && udp->epoch - session->epoch > 2) {
			session->idle = true;
			switchto_unpark(session->task);
		}
	}
	unlock(udp);
}

/*
 * Ends sessions that have had no packets for a while. Not by a deadline: with one in the slot, each
 * of its waits for packets would set a timer, for 1,400 instructions.
 */
static void reap(void *arg)
{
	struct udp *udp = arg;
	const struct timespec pause = as_timespec((int64_t)udp->options->idle * 500000000);
	const struct itimerspec turns = { pause, pause };
	const int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	uint64_t passed;

	switchto_task_name("reap");
	if (timer == -1 || timerfd_settime(timer, 0, &turns, NULL))
		complain(errno, "no timer that ends idle sessions");
	else
		while (switchto_read(timer, &passed, sizeof(passed), NULL) > 0)
			end_idle_sessions(udp);
	if (timer != -1)
		switchto_close(timer);
}

void udp_main(void *arg)
{
	struct udp *udp = arg;

	stay_on_cpu_of(udp->slot);
	switchto_task_name("receive");
	if (udp->options->io == IO_RING && !udp->xdp) {
		udp->ring = ring_new(udp->fd, udp->options->batch, udp->options->gro);
		if (!udp->ring) {
			complain(errno, "--io ring: wanted multishot RECVMSG (Linux 6.0), can't "
					"have it; recvmmsg(2) instead");
			errno = 0;
		}
	}
	lock(udp);
	udp->main = switchto_task_self();
	if (switchto_spawn(NULL, reap, udp, NULL, NULL))
		complain(errno, "no task that ends idle sessions");
	while (!udp->over) {
		if (may_lead(udp, NULL)) {
			if (lead(udp, NULL, NULL) == 0)
				continue;
			if (is_over(udp, errno))
				break;
			continue;
		}
		unlock(udp);
		if (switchto_park(NULL) && errno == ECANCELED)
			udp->over = true;
		lock(udp);
	}
	unlock(udp);
}

struct udp *udp_new(const struct options *options, unsigned int slot, struct counters *counters)
{
	struct udp *udp = calloc(1, sizeof(*udp));
	const char *reason;

	if (!udp)
		return NULL;
	udp->options = options;
	udp->slot = slot;
	udp->counters = counters;
	udp->fd = open_socket(options, SOCK_DGRAM, slot);
	atomic_store(&counters->fd, udp->fd);
	udp->batch = batch_new(options->io == IO_PLAIN && !options->xdp ? 1 : options->batch,
			       options->gso, options->gro);
	if (udp->fd == -1)
		goto fail;
	if (!udp->batch || table_init(&udp->table, options->sessions)) {
		complain(ENOMEM, "buffers");
		goto fail;
	}
	if (options->cipher != CIPHER_NONE) {
		udp->crypto = crypto_new(options->cipher == CIPHER_AFALG, options->key, true,
					 &reason);
		if (!udp->crypto) {
			complain(0, "--crypto: %s", reason);
			goto fail;
		}
	}
	if (options->xdp) {
		struct sockaddr_in address = { 0 };
		socklen_t length = sizeof(address);

		getsockname(udp->fd, (struct sockaddr *)&address, &length);
		udp->xdp = xdp_new(options, slot, address.sin_port, &reason);
		/* All slots fail for the same reason. */
		if (!udp->xdp && slot == 0)
			complain(0, "--xdp %s: %s; sockets instead", options->xdp, reason);
	}
	return udp;
fail:
	udp_free(udp);
	return NULL;
}

void udp_free(struct udp *udp)
{
	if (!udp)
		return;
	ring_free(udp->ring);
	xdp_free(udp->xdp);
	crypto_free(udp->crypto);
	batch_free(udp->batch);
	free(udp->table.entries);
	if (udp->fd != -1)
		close(udp->fd);
	free(udp);
}
