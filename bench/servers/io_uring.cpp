// SPDX-License-Identifier: MIT
//
// A loop on io_uring. A multishot receive for each connection takes its buffers from a ring of
// them. The sends of a round are submitted in the system call that waits for the next.
#include "server.h"

#include <array>
#include <cstdint>
#include <liburing.h>
#include <unistd.h>
#include <vector>

namespace {

// A connection has one request under way, so there are always buffers for 4096 of them.
constexpr unsigned int entries = 4096, completions = 16384, buffer_count = 4096;

io_uring ring;
io_uring_buf_ring *free_buffers;
std::vector<std::array<char, buffer_size>> buffers(buffer_count);

// What a completion is of: in its user data, with the descriptor or the number of the buffer.
enum class kind : std::uint64_t { accept, receive, send };

io_uring_sqe *next_entry()
{
	if (!io_uring_sq_space_left(&ring))
		io_uring_submit(&ring);
	return io_uring_get_sqe(&ring);
}

void set_data(io_uring_sqe *entry, kind kind, unsigned int number)
{
	io_uring_sqe_set_data64(entry, static_cast<std::uint64_t>(kind) << 32 | number);
}

void accept_all()
{
	io_uring_sqe *entry = next_entry();

	io_uring_prep_multishot_accept(entry, listener, nullptr, nullptr, 0);
	set_data(entry, kind::accept, listener);
}

void receive(int fd)
{
	io_uring_sqe *entry = next_entry();

	io_uring_prep_recv_multishot(entry, fd, nullptr, 0, 0);
	io_uring_sqe_set_flags(entry, IOSQE_BUFFER_SELECT);
	set_data(entry, kind::receive, static_cast<unsigned int>(fd));
}

void answer(int fd, unsigned int buffer, std::size_t size)
{
	io_uring_sqe *entry = next_entry();

	block_if_asked(buffers[buffer].data());
	io_uring_prep_send(entry, fd, buffers[buffer].data(), size, MSG_NOSIGNAL | MSG_WAITALL);
	set_data(entry, kind::send, buffer);
}

void give_back(unsigned int buffer)
{
	io_uring_buf_ring_add(free_buffers, buffers[buffer].data(), buffer_size,
			      static_cast<unsigned short>(buffer),
			      io_uring_buf_ring_mask(buffer_count), 0);
	io_uring_buf_ring_advance(free_buffers, 1);
}

void complete(const io_uring_cqe *cqe)
{
	const auto number = static_cast<unsigned int>(cqe->user_data);
	const bool more = cqe->flags & IORING_CQE_F_MORE;

	switch (static_cast<kind>(cqe->user_data >> 32)) {
	case kind::accept:
		if (cqe->res < 0)
			die("accept", -cqe->res);
		receive(cqe->res);
		if (!more)
			accept_all();
		return;
	case kind::receive:
		if (cqe->res > 0)
			answer(static_cast<int>(number), cqe->flags >> IORING_CQE_BUFFER_SHIFT,
			       static_cast<std::size_t>(cqe->res));
		if (cqe->res > 0 && !more)
			receive(static_cast<int>(number));
		if (cqe->res <= 0)
			close(static_cast<int>(number));
		return;
	case kind::send:
		// If it failed, the receive finds the same.
		give_back(number);
	}
}

// 0 or a negative error number.
int begin()
{
	io_uring_params params = {};
	io_uring_buf_reg registration = {};
	void *memory = nullptr;

	params.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN |
		       IORING_SETUP_CQSIZE;
	params.cq_entries = completions;
	const int error = io_uring_queue_init_params(entries, &ring, &params);
	if (error)
		return error;
	if (posix_memalign(&memory, 4096, buffer_count * sizeof(io_uring_buf)))
		return -ENOMEM;
	free_buffers = static_cast<io_uring_buf_ring *>(memory);
	io_uring_buf_ring_init(free_buffers);
	registration.ring_addr = reinterpret_cast<std::uintptr_t>(memory);
	registration.ring_entries = buffer_count;
	for (unsigned int i = 0; i < buffer_count; i++)
		give_back(i);
	return io_uring_register_buf_ring(&ring, &registration, 0);
}

} // namespace

int main()
{
	io_uring_cqe *cqe;
	unsigned int head;
	const int error = begin();

	if (error)
		leave_out("io_uring, as the kernel says " + std::string(std::strerror(-error)));
	accept_all();
	be_ready("io_uring");
	for (;;) {
		unsigned int seen = 0;

		io_uring_submit_and_wait(&ring, 1);
		io_uring_for_each_cqe(&ring, head, cqe)
		{
			complete(cqe);
			seen++;
		}
		io_uring_cq_advance(&ring, seen);
	}
}
