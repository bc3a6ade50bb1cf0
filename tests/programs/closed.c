/*
 * closed FILE [seccomp]: forbids others to look into it, makes FILE, and runs until it is killed: main < outer < burn.
 * With `seccomp` it forbids itself every system call but read, write and exit.
 */
#include <linux/seccomp.h>
#include <stdio.h>
#include <sys/prctl.h>

static volatile unsigned long sum;

__attribute__((noinline)) static void burn(void)
{
	for (unsigned long i = 0;; i++)
		sum += i;
}

__attribute__((noinline)) static void outer(void)
{
	burn();
	sum++;
}

int main(int argc, char **argv)
{
	FILE *file;

	if (argc < 2 || prctl(PR_SET_DUMPABLE, 0))
		return 1;
	file = fopen(argv[1], "w");
	if (!file || fclose(file))
		return 1;
	if (argc > 2 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT))
		return 1;
	outer();
	return 0;
}
