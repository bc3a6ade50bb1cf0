/*
 * main < outer < recurse < recurse < ... until the stack is full, again and again. The pages of the stack are given back
 * each time, so that the stack pointer is often in a page that is not there.
 */
#include "program.h"
#include <setjmp.h>
#include <sys/mman.h>

static char alternate[1 << 16];
static sigjmp_buf again;

static void on_overflow(int signo)
{
	(void)signo;
	siglongjmp(again, 1);
}

NOINLINE unsigned long recurse(unsigned long depth)
{
	volatile unsigned long local[32];

	local[depth % 32] = depth;
	if (stop)
		return depth;
	return recurse(depth + 1) + local[depth % 32];
}

NOINLINE void outer(char *below)
{
	sigsetjmp(again, 1);
	/* The stack is 8 MiB at most (RLIMIT_STACK); its lowest part need not be mapped. */
	for (size_t i = 1; i < 2000 && !madvise(below - i * 4096, 4096, MADV_DONTNEED); i++)
		;
	if (!stop)
		result = recurse(0);
}

int main(int argc, char **argv)
{
	stack_t stack = { .ss_sp = alternate, .ss_size = sizeof(alternate) };
	struct sigaction overflow = { .sa_handler = on_overflow, .sa_flags = SA_ONSTACK };
	char *here = __builtin_frame_address(0);

	start_clock(argc, argv);
	if (sigaltstack(&stack, NULL) || sigaction(SIGSEGV, &overflow, NULL))
		return 1;
	outer((char *)((unsigned long)here & ~4095UL) - 16 * 4096);
	return 0;
}
