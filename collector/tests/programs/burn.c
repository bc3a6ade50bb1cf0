/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* burn MS [remove]: burns; with `remove` after deleting its own file. */
#include "burn.h"
#include <unistd.h>

int main(int argc, char **argv)
{
	if (argc > 2 && unlink(argv[0]))
		return 1;
	burn_ms(atol(argv[1]));
	return 0;
}
