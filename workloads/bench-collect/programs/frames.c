/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * frames BYTES SECONDS: burns FRAMES calls deep (main and what calls it not counted) above a stack of some BYTES, all of
 * them touched. To be built with frame pointers.
 *
 * Built with FIXED it does the same work for each of SECONDS, however long that takes, and prints the work by CPU time.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#ifndef FRAMES
#define FRAMES 20
#endif

static volatile unsigned long sink;

static void turn(void)
{
	for (int i = 0; i < 100000; i++)
		sink += i;
}

#ifdef FIXED
static __attribute__((noinline)) void burn(double seconds)
{
	for (int i = 0; i < 2000 * seconds; i++)
		turn();
}

static void print_work(double seconds)
{
	struct rusage used;
	double cpu_s;

	getrusage(RUSAGE_SELF, &used);
	cpu_s = used.ru_utime.tv_sec + used.ru_stime.tv_sec +
		(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
	printf("%f IOPS\n", 2000 * seconds / cpu_s);
}
#else
static void print_work(double seconds)
{
	(void)seconds;
}

static __attribute__((noinline)) void burn(double seconds)
{
	struct timespec start, now;

	clock_gettime(CLOCK_MONOTONIC, &start);
	do {
		turn();
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

int main(int argc, char **argv)
{
	/* What a call takes beside its room, and the frames outside. */
	size_t overhead = 96, outside = 512, bytes;

	if (argc < 3)
		return 2;
	bytes = strtoul(argv[1], NULL, 10);
	bytes = bytes > outside ? (bytes - outside) / FRAMES : 0;
	deeper(FRAMES - 1, bytes > overhead + 16 ? bytes - overhead : 16, atof(argv[2]));
	print_work(atof(argv[2]));
	return 0;
}
