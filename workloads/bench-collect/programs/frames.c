/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * frames BYTES SECONDS: burns FRAMES calls deep (main and what calls it not counted) above a stack of some BYTES, all of
 * them touched. To be built with frame pointers.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifndef FRAMES
#define FRAMES 20
#endif

static volatile unsigned long sink;

static __attribute__((noinline)) void burn(double seconds)
{
	struct timespec start, now;

	clock_gettime(CLOCK_MONOTONIC, &start);
	do {
		for (int i = 0; i < 100000; i++)
			sink += i;
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while ((now.tv_sec - start.tv_sec) + (now.tv_nsec - start.tv_nsec) / 1e9 < seconds);
}

static __attribute__((noinline)) void deeper(int n, size_t bytes, double seconds)
{
	char *room = __builtin_alloca(bytes);

	memset(room, n + 1, bytes);
	if (n == 0)
		burn(seconds);
	else
		deeper(n - 1, bytes, seconds);
	sink += room[bytes / 2];
}

int main(int argc, char **argv)
{
	/* What a call takes beside its room, and the frames outside. */
	size_t overhead = 96, outside = 512, bytes;

	if (argc < 3)
		return 2;
	bytes = strtoul(argv[1], NULL, 10);
	bytes = bytes > outside ? (bytes - outside) / FRAMES : 0;
	deeper(FRAMES - 1, bytes > overhead + 16 ? bytes - overhead : 16, atof(argv[2]));
	return 0;
}
