/*
 * main < outer < (a function of the last of 2,000 libraries) < burn: the library is copied under as many names as the second
 * argument says into the directory that the first one names, and every copy is loaded. Built as a library with -DLIBRARY.
 */
#define _GNU_SOURCE
#ifdef LIBRARY
void call(void (*f)(void));
void call(void (*f)(void))
{
	f();
	__asm__ volatile("" ::: "memory");
}
#else
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef void (*caller)(void (*)(void));

volatile unsigned long result;

__attribute__((noinline)) void burn(void)
{
	clock_t end = clock() + CLOCKS_PER_SEC / 2;

	while (clock() < end)
		for (int i = 0; i < 1000000; i++)
			result += (unsigned long)i;
}

__attribute__((noinline)) void outer(caller call)
{
	call(burn);
	__asm__ volatile("" ::: "memory");
}

int main(int argc, char **argv)
{
	char path[4096];
	void *call = NULL;
	struct stat stat;
	int n = argc == 3 ? atoi(argv[2]) : 0, from;

	snprintf(path, sizeof(path), "%s/libcall.so", argc == 3 ? argv[1] : ".");
	from = open(path, O_RDONLY);
	if (n < 1 || from < 0 || fstat(from, &stat))
		return 2;
	for (int i = 0; i < n; i++) {
		off_t offset = 0;
		void *library;
		int copy;

		snprintf(path, sizeof(path), "%s/lib%d.so", argv[1], i);
		copy = open(path, O_WRONLY | O_CREAT | O_EXCL, 0700);
		if (sendfile(copy, from, &offset, (size_t)stat.st_size) != stat.st_size || close(copy))
			return 3;
		library = dlopen(path, RTLD_NOW);
		call = library ? dlsym(library, "call") : NULL;
		if (!call)
			return 4;
	}
	outer((caller)call);
	return 0;
}
#endif
