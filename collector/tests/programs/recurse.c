/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * recurse MS: recurses down to 6 MiB of stack, frees the pages, and starts over: nearly all of its time it grows its
 * stack into pages that are not present yet.
 */
#define _GNU_SOURCE
#include "burn.h"
#include <stdint.h>
#include <sys/mman.h>

#define DEEP (6 << 20)

static __attribute__((noinline)) unsigned long down(char *top)
{
	volatile unsigned long frame[400];

	frame[0] = MARK(&frame[0]);
	if (top - (char *)frame < DEEP)
		frame[1] = down(top);
	return frame[0] + frame[1];
}

int main(int argc, char **argv)
{
	long ms = atol(argv[1]);
	struct timespec now;
	char here;
	uintptr_t page = ((uintptr_t)&here - 8192) & -4096UL;

	(void)argc;
	do {
		sink += down(&here);
		madvise((void *)(page - DEEP), DEEP, MADV_DONTNEED);
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	} while (now.tv_sec * 1000 + now.tv_nsec / 1000000 < ms);
	return 0;
}
