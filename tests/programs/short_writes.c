/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* A library that is loaded before others: writes to regular files take a part of what they are given, as they may. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

ssize_t write(int fd, const void *bytes, size_t n)
{
	static ssize_t (*next)(int, const void *, size_t);
	static unsigned calls;
	struct stat status;

	if (!next)
		next = (ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
	if (n > 1 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode))
		n = ++calls % 3 ? n / 2 : 1;
	return next(fd, bytes, n);
}
