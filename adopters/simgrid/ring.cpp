// SPDX-License-Identifier: MIT
/*
 * ring: SimGrid actors that pass a token, each to the next one, as its example app-token-ring,
 * with as many actors and turns as wanted. Two actors are a ping-pong.
 *
 *	ring PLATFORM ACTORS TURNS [--cfg=OPTION:VALUE ...]
 */
#include <cstdio>
#include <cstdlib>
#include <simgrid/s4u.hpp>
#include <string>

namespace sg4 = simgrid::s4u;

static void pass(long me, long actors, long turns)
{
	auto *from = sg4::Mailbox::by_name(std::to_string(me));
	auto *to = sg4::Mailbox::by_name(std::to_string((me + 1) % actors));
	long *token;

	/* Each turn is one hop; the actors share the turns. */
	for (long turn = me; turn < turns; turn += actors) {
		token = turn == 0 ? new long(0) : from->get<long>();
		++*token;
		if (turn + 1 == turns) {
			std::printf("%ld hops, simulated time %.6f\n", *token,
				    sg4::Engine::get_clock());
			delete token;
			return;
		}
		to->put(token, 1000);
	}
}

int main(int argc, char **argv)
{
	sg4::Engine engine(&argc, argv);

	if (argc != 4) {
		std::fprintf(stderr, "ring: wanted PLATFORM ACTORS TURNS, found %d arguments\n",
			     argc - 1);
		return EXIT_FAILURE;
	}
	const long actors = std::atol(argv[2]), turns = std::atol(argv[3]);
	engine.load_platform(argv[1]);
	const auto hosts = engine.get_all_hosts();
	for (long i = 0; i < actors; i++)
		sg4::Actor::create(std::to_string(i), hosts[i % hosts.size()], pass, i, actors,
				   turns);
	engine.run();
	return 0;
}
