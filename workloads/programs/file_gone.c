/*
 * main < outer < burn in a program that removes its own file first (`delete`), or moves the file `replacement` that is
 * beside it over its own (`replace`): another program, with other functions at the same addresses.
 */
#include "program.h"

NOINLINE void burn(void)
{
	work(FOREVER);
}

NOINLINE void outer(void)
{
	burn();
	NO_TAIL_CALL();
}

int main(int argc, char **argv)
{
	char path[4096] = "", replacement[4200];
	char *slash;

	if (argc < 3 || readlink("/proc/self/exe", path, sizeof(path) - 1) < 0 || !(slash = strrchr(path, '/')))
		return 2;
	snprintf(replacement, sizeof(replacement), "%.*s/replacement", (int)(slash - path), path);
	if (strcmp(argv[2], "replace") ? unlink(path) : rename(replacement, path)) {
		perror(path);
		return 1;
	}
	start_clock(argc, argv);
	outer();
	return 0;
}
