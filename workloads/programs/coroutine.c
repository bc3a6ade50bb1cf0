/* __start_context < coroutine < burn, on a stack from the heap; `main` is on another stack and waits for it. */
#include "program.h"
#include <ucontext.h>

static ucontext_t outside, inside;
static char stack[1 << 16];

NOINLINE void burn(void)
{
	work(250);
}

static void coroutine(void)
{
	while (!stop) {
		burn();
		if (swapcontext(&inside, &outside))
			exit(1);
	}
}

int main(int argc, char **argv)
{
	start_clock(argc, argv);
	if (getcontext(&inside))
		return 1;
	inside.uc_stack.ss_sp = stack;
	inside.uc_stack.ss_size = sizeof(stack);
	inside.uc_link = &outside;
	makecontext(&inside, coroutine, 0);
	while (!stop)
		if (swapcontext(&outside, &inside))
			return 1;
	return 0;
}
