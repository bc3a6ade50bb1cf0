/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* memfd MS: copies itself into memory without a file, and burns from there. */
#define _GNU_SOURCE
#include "burn.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	char *again[] = { "memfd", argv[1], "again", NULL };
	int from, to;
	char part[65536];
	long n;

	if (argc > 2) {
		burn_ms(atol(argv[1]));
		return 0;
	}
	from = open("/proc/self/exe", O_RDONLY);
	to = memfd_create("nowhere", MFD_CLOEXEC);
	while ((n = read(from, part, sizeof(part))) > 0)
		if (write(to, part, n) != n)
			return 1;
	fexecve(to, again, environ);
	return 1;
}
