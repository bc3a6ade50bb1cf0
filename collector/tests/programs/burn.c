/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * burn MS [remove | FILE]: burns; with `remove` after deleting its own file, with FILE after replacing its file by
 * that.
 */
#include "burn.h"
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	if (argc > 2 && (strcmp(argv[2], "remove") ? rename(argv[2], argv[0]) : unlink(argv[0])))
		return 1;
	burn_ms(atol(argv[1]));
	return 0;
}
