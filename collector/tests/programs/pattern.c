/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* pattern MS: burns above 128 KiB of marked stack. */
#include "burn.h"

int main(int argc, char **argv)
{
	volatile unsigned long words[16384];

	(void)argc;
	for (int i = 0; i < 16384; i++)
		words[i] = MARK(&words[i]);
	burn_ms(atol(argv[1]));
	sink += words[7];
	return 0;
}
