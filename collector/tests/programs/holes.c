/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* holes MS: burns below 256 KiB of stack that were never touched, with 512 marked words on either side. */
#include "burn.h"

static __attribute__((noinline)) void below(long ms)
{
	volatile unsigned long words[512];

	for (int i = 0; i < 512; i++)
		words[i] = MARK(&words[i]);
	burn_ms(ms);
	sink += words[7];
}

static __attribute__((noinline)) void middle(long ms)
{
	char untouched[256 << 10];

	__asm__ volatile("" ::"r"(untouched) : "memory");
	below(ms);
	__asm__ volatile("" ::"r"(untouched) : "memory");
}

int main(int argc, char **argv)
{
	volatile unsigned long words[512];

	(void)argc;
	for (int i = 0; i < 512; i++)
		words[i] = MARK(&words[i]);
	middle(atol(argv[1]));
	sink += words[7];
	return 0;
}
