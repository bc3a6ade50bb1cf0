/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* mimalloc: blocks of mixed sizes, freed in another order. Argument: repetitions of 100,000. */
#include "planted.h"
#include "mimalloc.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { SLOTS = 4096 };

int main(int argc, char **argv)
{
	static char *slots[SLOTS];
	uint64_t state = 88172645463325252u, sum = 0;

	for (long n = planted((argc > 1 ? atol(argv[1]) : 1) * 100000); n > 0; n--) {
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		size_t slot = state % SLOTS, size = 8 + (state >> 32) % ((state >> 60) ? 256 : 8192);

		if (slots[slot])
			sum += (unsigned char)slots[slot][0];
		mi_free(slots[slot]);
		slots[slot] = mi_malloc(size);
		if (!slots[slot])
			return 1;
		slots[slot][0] = (char)size;
	}
	printf("%llu\n", (unsigned long long)sum);
	return 0;
}
