// SPDX-License-Identifier: MIT
// Boost.Asio: callbacks on one thread.
#include "server.h"

#include <array>
#include <boost/asio.hpp>
#include <memory>
#include <utility>

namespace {

using boost::asio::ip::tcp;
using boost::system::error_code;

class connection : public std::enable_shared_from_this<connection> {
public:
	explicit connection(tcp::socket socket)
		: socket_(std::move(socket))
	{
	}

	void receive()
	{
		socket_.async_read_some(boost::asio::buffer(buffer_),
					[self = shared_from_this()](error_code error,
								    std::size_t n) {
						if (!error)
							self->answer(n);
					});
	}

private:
	void answer(std::size_t size)
	{
		block_if_asked(buffer_.data());
		boost::asio::async_write(socket_, boost::asio::buffer(buffer_, size),
					 [self = shared_from_this()](error_code error,
								     std::size_t) {
						 if (!error)
							 self->receive();
					 });
	}

	tcp::socket socket_;
	std::array<char, buffer_size> buffer_;
};

void accept_all(tcp::acceptor &acceptor)
{
	acceptor.async_accept([&acceptor](error_code error, tcp::socket socket) {
		if (error)
			die("async_accept", error.value());
		std::make_shared<connection>(std::move(socket))->receive();
		accept_all(acceptor);
	});
}

} // namespace

int main()
{
	boost::asio::io_context context(1); // thread: locks are left out
	tcp::acceptor acceptor(context, tcp::v4(), listener);

	accept_all(acceptor);
	be_ready("asio");
	context.run();
}
