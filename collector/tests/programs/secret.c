/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* secret MS [undumpable]: may make itself non-dumpable; then keeps recognisable words on its stack, and burns. */
#include "burn.h"
#include <sys/prctl.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	volatile unsigned long words[256];
	unsigned i;

	if (argc > 2 && prctl(PR_SET_DUMPABLE, 0))
		return 1;
	usleep(500000);
	for (i = 0; i < 256; i++)
		words[i] = 0x5ec2e75ec2e70000 + i;
	burn_ms(atol(argv[1]));
	return words[255] == 0;
}
