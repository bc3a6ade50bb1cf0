// Starts programs while a thread keeps the address space locked: the kernel lets the parent of a vfork go on before the child
// gets that lock, which it needs to leave the address space. The parent uses the child's stack again at once.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOCKED (256UL << 20)
#define STACK (64UL << 10)

static void *lock(void *memory)
{
	for (;;) {
		mprotect(memory, LOCKED, PROT_READ);
		mprotect(memory, LOCKED, PROT_READ | PROT_WRITE);
	}
	return NULL;
}

static int child(void *program)
{
	execl(program, program, NULL);
	_exit(127);
}

static char *populated(size_t bytes)
{
	char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (memory == MAP_FAILED)
		exit(1);
	return memory;
}

int main(int argc, char **argv)
{
	char *stack = populated(STACK);
	pthread_t thread;

	if (pthread_create(&thread, NULL, lock, populated(LOCKED)))
		return 1;
	for (int left = argc > 1 ? atoi(argv[1]) : 100; left; left--) {
		pid_t pid = clone(child, stack + STACK, CLONE_VM | CLONE_VFORK | SIGCHLD, "/bin/true");

		memset(stack, 'A', STACK);
		if (pid < 0 || waitpid(pid, NULL, 0) < 0)
			return 1;
	}
	return 0;
}
