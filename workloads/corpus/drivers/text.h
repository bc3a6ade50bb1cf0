/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Text that compresses as text does, the same in every run. */
#include <stddef.h>
#include <stdint.h>

static void fill_text(char *buffer, size_t size)
{
	static const char *const words[] = { "stack", "frame", "pointer", "caller", "unwind", "return", "sample", "the",
					     "of", "a", "to", "profile", "kernel", "mail@example.org", "2026-11-20", "x=1;" };
	uint64_t state = 88172645463325252u;

	for (size_t at = 0; at < size;) {
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		for (const char *c = words[(state >> 20) % 16]; *c && at < size; c++)
			buffer[at++] = *c;
		if (at < size)
			buffer[at++] = state % 11 ? ' ' : '\n';
	}
}
