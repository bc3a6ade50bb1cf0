/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * frames BYTES SECONDS: burns FRAMES calls deep (main and what calls it not counted) above a stack of some BYTES, all of
 * them touched. To be built with frame pointers.
 *
 * Built with ALTERNATE it prints its work by CPU time with and without profilers (alternate.c).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef ALTERNATE
#include "alternate.h"
#endif

#ifndef FRAMES
#define FRAMES 20
#endif

static volatile unsigned long sink;

static void turn(int n)
{
	for (int i = 0; i < n; i++)
		sink += i;
}

#ifdef ALTERNATE
static __attribute__((noinline)) void burn(double seconds)
{
	for (;; ++*work_done)
		turn(10000);
}
#else
static __attribute__((noinline)) void burn(double seconds)
{
	struct timespec start, now;

	clock_gettime(CLOCK_MONOTONIC, &start);
	do {
		turn(100000);
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while ((now.tv_sec - start.tv_sec) + (now.tv_nsec - start.tv_nsec) / 1e9 < seconds);
}
#endif

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

static size_t bytes_per_call;

static void run(void *seconds)
{
	deeper(FRAMES - 1, bytes_per_call, *(double *)seconds);
}

int main(int argc, char **argv)
{
	/* What a call takes beside its room, and the frames outside. */
	size_t overhead = 96, outside = 512, bytes;
	double seconds;

	if (argc < 3)
		return 2;
	bytes = strtoul(argv[1], NULL, 10);
	bytes = bytes > outside ? (bytes - outside) / FRAMES : 0;
	bytes_per_call = bytes > overhead + 16 ? bytes - overhead : 16;
	seconds = atof(argv[2]);
#ifdef ALTERNATE
	return alternate(seconds, run, &seconds);
#else
	run(&seconds);
	return 0;
#endif
}
