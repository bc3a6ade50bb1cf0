/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * chain MS FILE: burns DEPTH calls deep, in frames of some 300 bytes; first writes its chain to FILE, leaf first:
 * return address and frame address of each frame up to main. Build with frame pointers.
 */
#include "burn.h"

#ifndef DEPTH
#define DEPTH 40
#endif

static __attribute__((noinline)) void leaf(long ms, const char *path)
{
	unsigned long *frame = __builtin_frame_address(0);
	FILE *file = fopen(path, "w");

	for (int i = 0; i < DEPTH + 2; i++) {
		fprintf(file, "%lx %lx\n", frame[1], (unsigned long)frame);
		frame = (unsigned long *)frame[0];
	}
	fclose(file);
	burn_ms(ms);
}

static __attribute__((noinline)) void deeper(int n, long ms, const char *path)
{
	volatile char room[256];

	room[0] = n;
	if (n == 0)
		leaf(ms, path);
	else
		deeper(n - 1, ms, path);
	sink += room[0];
}

int main(int argc, char **argv)
{
	(void)argc;
	deeper(DEPTH - 1, atol(argv[1]), argv[2]);
	return 0;
}
