/* main < outer < burn in a program that executes a copy of itself that is in memory only, first. */
#include "program.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>

extern char **environ;

NOINLINE void burn(void)
{
	work(FOREVER);
}

NOINLINE void outer(void)
{
	burn();
	NO_TAIL_CALL();
}

static int execute_copy(char **argv)
{
	int file = open("/proc/self/exe", O_RDONLY), copy = memfd_create("copy", MFD_CLOEXEC);
	char *arguments[] = { argv[0], argv[1], "copy", NULL };

	if (file < 0 || copy < 0)
		return 1;
	while (sendfile(copy, file, NULL, 1 << 20) > 0)
		;
	fexecve(copy, arguments, environ);
	perror("fexecve");
	return 1;
}

int main(int argc, char **argv)
{
	if (argc == 2)
		return execute_copy(argv);
	start_clock(argc, argv);
	outer();
	return 0;
}
