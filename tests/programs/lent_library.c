/*
 * lent_library LIBRARY [COPY] runs the library's code until it is ended: from its file, or with COPY from an anonymous copy
 * of it. With -DNAME=... this is the library, whose function is called so.
 */
#define _GNU_SOURCE
#ifdef NAME
static volatile unsigned long counter;

__attribute__((noinline)) void NAME(void)
{
	for (int i = 0; i < 1000000; i++)
		counter++;
}

void entry(void)
{
	for (;;)
		NAME();
}
#else
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	static char path[64], buffer[65536];
	void *library;
	ssize_t n;

	if (argc < 2)
		return 1;
	if (argc > 2) {
		int from = open(argv[1], O_RDONLY), to = memfd_create("copy", 0);

		while ((n = read(from, buffer, sizeof(buffer))) > 0)
			if (write(to, buffer, n) != n)
				return 1;
		snprintf(path, sizeof(path), "/proc/self/fd/%d", to);
	}
	library = dlopen(argc > 2 ? path : argv[1], RTLD_NOW);
	if (!library)
		return 1;
	((void (*)(void))dlsym(library, "entry"))();
	return 0;
}
#endif
