// SPDX-License-Identifier: Apache-2.0 OR MIT
// CaDiCaL: pigeons into holes (unsatisfiable) and random clauses. Argument: repetitions.
#include "cadical.hpp"
#include <cstdint>
#include <cstdio>
#include <cstdlib>

static int pigeons(int holes)
{
	CaDiCaL::Solver solver;
	auto sits = [&](int pigeon, int hole) { return pigeon * holes + hole + 1; };

	for (int pigeon = 0; pigeon <= holes; pigeon++) {
		for (int hole = 0; hole < holes; hole++)
			solver.add(sits(pigeon, hole));
		solver.add(0);
	}
	for (int hole = 0; hole < holes; hole++)
		for (int a = 0; a <= holes; a++)
			for (int b = 0; b < a; b++)
				solver.clause(-sits(a, hole), -sits(b, hole));
	return solver.solve();
}

static int clauses(int variables, int n)
{
	CaDiCaL::Solver solver;
	std::uint64_t state = 88172645463325252u;

	for (int i = 0; i < 3 * n; i++) {
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		int variable = 1 + int((state >> 8) % std::uint64_t(variables));

		solver.add(state & 1 ? variable : -variable);
		if (i % 3 == 2)
			solver.add(0);
	}
	return solver.solve();
}

int main(int argc, char **argv)
{
	int sum = 0;

	for (int i = argc > 1 ? std::atoi(argv[1]) : 1; i > 0; i--)
		sum += pigeons(6) + clauses(120, 510);
	std::printf("%d\n", sum);
}
