/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* storm MS FILE: makes processes that end at once, as fast as it can, and writes to FILE how many it made. */
#define _GNU_SOURCE
#include "burn.h"
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	struct timespec begin, now;
	unsigned long n = 0;
	FILE *file;
	int pid;

	(void)argc;
	clock_gettime(CLOCK_MONOTONIC, &begin);
	do {
		pid = vfork();
		if (!pid)
			_exit(0);
		if (pid < 0 || waitpid(pid, NULL, 0) != pid)
			return 1;
		n++;
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while ((now.tv_sec - begin.tv_sec) * 1000 + (now.tv_nsec - begin.tv_nsec) / 1000000 < atol(argv[1]));
	file = fopen(argv[2], "w");
	fprintf(file, "%lx\n", n);
	fclose(file);
	return 0;
}
