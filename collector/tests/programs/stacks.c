/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * stacks MS FILE: burns in a thread, then in a signal handler on an alternate stack, then on a stack that it created
 * (makecontext). Writes to FILE where each of these stacks ends: the thread's control block, the end of the alternate
 * stack, the end of the mapping that contains the last; and the end of the mapping that contains the thread's.
 */
#include "burn.h"
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

static long ms;

static void *thread(void *unused)
{
	burn_ms(ms);
	return unused;
}

static void handler(int signal)
{
	(void)signal;
	burn_ms(ms);
}

static void coroutine(void)
{
	burn_ms(ms);
}

static unsigned long mapping_end(unsigned long address)
{
	unsigned long start, end;
	FILE *maps = fopen("/proc/self/maps", "r");

	while (fscanf(maps, "%lx-%lx%*[^\n]", &start, &end) == 2)
		if (start <= address && address < end)
			break;
	fclose(maps);
	return end;
}

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_handler = handler, .sa_flags = SA_ONSTACK };
	static char alternate[65536];
	stack_t stack = { .ss_sp = alternate, .ss_size = sizeof(alternate) };
	ucontext_t here, there;
	/* Inaccessible pages on both sides keep the mapping from being merged with a neighbour. */
	char *area = mmap(NULL, 24 * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	FILE *file = fopen(argv[2], "w");
	pthread_t id;

	(void)argc;
	ms = atol(argv[1]);
	mprotect(area + 4 * 4096, 16 * 4096, PROT_READ | PROT_WRITE);
	pthread_create(&id, NULL, thread, NULL);
	fprintf(file, "%lx %lx %lx %lx\n", (unsigned long)id, (unsigned long)(alternate + sizeof(alternate)),
		(unsigned long)(area + 20 * 4096), mapping_end(id));
	fclose(file);
	pthread_join(id, NULL);
	sigaltstack(&stack, NULL);
	sigaction(SIGUSR1, &action, NULL);
	raise(SIGUSR1);
	getcontext(&there);
	there.uc_stack.ss_sp = area + 4 * 4096;
	there.uc_stack.ss_size = 16 * 4096;
	there.uc_link = &here;
	makecontext(&there, coroutine, 0);
	swapcontext(&here, &there);
	return 0;
}
