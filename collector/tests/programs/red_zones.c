/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * red_zones MS FILE: burns with the stack pointer at an address below which there are marks, and then at the start of
 * a mapping. Writes these stack pointers to FILE.
 */
#include "burn.h"
#include <sys/mman.h>

/* Burns for this many rounds with this stack pointer. Pushes nothing. */
static void burn_at(unsigned long sp, unsigned long rounds)
{
	__asm__ volatile("mov %%rsp, %%r8\n\t"
			 "mov %1, %%rsp\n\t"
			 "1: dec %0\n\t"
			 "jnz 1b\n\t"
			 "mov %%r8, %%rsp"
			 : "+r"(rounds)
			 : "r"(sp)
			 : "r8", "cc", "memory");
}

static void burn_there(unsigned long sp, long ms)
{
	for (clock_t end = clock() + ms * (CLOCKS_PER_SEC / 1000); clock() < end;)
		burn_at(sp, 20000000);
}

int main(int argc, char **argv)
{
	/* Pages without access on both sides. */
	char *area = mmap(NULL, 6 * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned long *first = (unsigned long *)(area + 4096), *marked = first + 700;
	FILE *file = fopen(argv[2], "w");

	(void)argc;
	mprotect(first, 4 * 4096, PROT_READ | PROT_WRITE);
	for (unsigned long *word = first; word < first + 2048; word++)
		*word = MARK(word);
	fprintf(file, "%lx %lx\n", (unsigned long)marked, (unsigned long)first);
	fclose(file);
	burn_there((unsigned long)marked, atol(argv[1]));
	burn_there((unsigned long)first, atol(argv[1]));
	return 0;
}
