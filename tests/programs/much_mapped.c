/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Has most of 32 bits of addresses mapped, and words on its stack that look like text and point there; then burns. */
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#define MARKS 256

volatile unsigned long sink;

__attribute__((noinline)) void burn(volatile unsigned *words, long seconds)
{
	for (time_t end = time(0) + seconds; time(0) < end;)
		for (int i = 0; i < 1000000; i++)
			sink += i;
	sink += words[0];
}

int main(int argc, char **argv)
{
	volatile unsigned words[MARKS];

	for (int i = 0; i < 2600; i++)
		mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	for (int i = 0; i < MARKS; i++)
		words[i] = 0x74657200 + i;
	burn(words, argc > 1 ? atol(argv[1]) : 1);
	return words[3] == 0;
}
