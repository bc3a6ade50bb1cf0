/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* undumpable MS FILE: makes itself non-dumpable, creates FILE, and burns. */
#include "burn.h"
#include <sys/prctl.h>

int main(int argc, char **argv)
{
	(void)argc;
	if (prctl(PR_SET_DUMPABLE, 0) || !fopen(argv[2], "w"))
		return 1;
	burn_ms(atol(argv[1]));
	return 0;
}
