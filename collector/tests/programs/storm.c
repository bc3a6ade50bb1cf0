/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* storm N: creates N processes that end at once, one after the other, as fast as it can. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	long n = atol(argv[1]);
	int pid;

	(void)argc;
	while (n--) {
		pid = vfork();
		if (!pid)
			_exit(0);
		if (pid < 0 || waitpid(pid, NULL, 0) != pid)
			return 1;
	}
	return 0;
}
