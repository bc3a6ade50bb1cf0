/*
 * main < outer < recurse < recurse < ... until the stack is full, again and again. The pages of the stack are given back
 * each time, so that the stack pointer is often in a page that is not there.
 */
#include "program.h"
#include <setjmp.h>
#include <sys/mman.h>

static char alternate[1 << 16];
static sigjmp_buf again;

static char *bottom;

static void on_overflow(int signo, siginfo_t *info, void *context)
{
	(void)signo, (void)context;
	bottom = (char *)((unsigned long)info->si_addr & ~4095UL);
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
	/* The page the stack could not grow into is not mapped, which is reported, and those above it are given back. */
	if (bottom)
		madvise(bottom, (size_t)(below - bottom), MADV_DONTNEED);
	if (!stop)
		result = recurse(0);
}

int main(int argc, char **argv)
{
	stack_t stack = { .ss_sp = alternate, .ss_size = sizeof(alternate) };
	struct sigaction overflow = { .sa_sigaction = on_overflow, .sa_flags = SA_ONSTACK | SA_SIGINFO };
	char *here = __builtin_frame_address(0);

	start_clock(argc, argv);
	if (sigaltstack(&stack, NULL) || sigaction(SIGSEGV, &overflow, NULL))
		return 1;
	outer((char *)((unsigned long)here & ~4095UL) - 16 * 4096);
	return 0;
}
