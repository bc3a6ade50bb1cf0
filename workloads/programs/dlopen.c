/*
 * main < outer < a_work < a_burn and main < outer < b_work < b_burn in turns. The libraries are alike, and each is
 * unloaded before the other comes: they have the same address, one after the other. Exits with status 1 if they had not.
 * The libraries are beside the program.
 */
#include "program.h"
#include <dlfcn.h>

static char directory[4096];

NOINLINE void outer(void (*function)(void))
{
	for (int i = 0; i < 20 && !stop; i++)
		function();
	NO_TAIL_CALL();
}

static void *in_library(const char *file, const char *symbol)
{
	char path[4200];
	void *function, *library;

	snprintf(path, sizeof(path), "%s/%s", directory, file);
	library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	function = library ? dlsym(library, symbol) : NULL;
	if (!function) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
	outer((void (*)(void))function);
	if (dlclose(library))
		exit(1);
	return function;
}

int main(int argc, char **argv)
{
	ssize_t len = readlink("/proc/self/exe", directory, sizeof(directory) - 1);
	char *slash = len < 0 ? NULL : strrchr(directory, '/');
	int is_reused = 1;

	if (!slash)
		return 1;
	*slash = 0;
	start_clock(argc, argv);
	while (!stop)
		is_reused &= in_library("liba.so", "a_work") == in_library("libb.so", "b_work");
	return !is_reused;
}
