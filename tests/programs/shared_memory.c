/*
 * shared_memory LIBRARY [FILE]: a process that shares its parent's memory runs the code of a library that the parent loads once
 * the process is there, and FILE as well. With -DNAME=... this is the library, whose function is called so.
 */
#define _GNU_SOURCE
#ifdef NAME
#include <time.h>

static volatile unsigned long counter;

__attribute__((noinline)) void NAME(void)
{
	for (int i = 0; i < 1000000; i++)
		counter++;
}

void entry(void)
{
	for (clock_t end = clock() + CLOCKS_PER_SEC; clock() < end;)
		NAME();
}
#else
#include <dlfcn.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void (*volatile entry)(void);
static volatile int is_running;

static int child(void *unused)
{
	(void)unused;
	is_running = 1;
	while (!entry)
		;
	entry();
	return 0;
}

int main(int argc, char **argv)
{
	char *stack = malloc(1 << 20);
	int status, pid = clone(child, stack + (1 << 20), CLONE_VM | SIGCHLD, NULL);
	void *library;

	if (argc < 2 || pid < 0)
		return 1;
	while (!is_running)
		;
	while (argc > 2 && access(argv[2], F_OK))
		usleep(1000);
	library = dlopen(argv[1], RTLD_NOW);
	if (!library)
		return 1;
	entry = (void (*)(void))dlsym(library, "entry");
	return waitpid(pid, &status, 0) != pid || status;
}
#endif
