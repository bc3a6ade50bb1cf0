/* SPDX-License-Identifier: Apache-2.0 OR MIT */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* A word that encodes its address. */
#define KEY 0x5aa5000012340000UL
#define MARK(p) ((unsigned long)(p) ^ KEY)

static volatile unsigned long sink;

/*
 * Uses this much CPU time, nearly all of it in user mode: the number of samples does not depend on the machine's load.
 */
static inline __attribute__((always_inline)) void burn_ms(long ms)
{
	struct timespec begin, now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
	do {
		for (int i = 0; i < 2000000; i++)
			sink += i;
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	} while ((now.tv_sec - begin.tv_sec) * 1000 + (now.tv_nsec - begin.tv_nsec) / 1000000 < ms);
}
