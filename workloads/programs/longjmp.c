/* main < outer < eight times recurse < burn, which goes back to `outer` with longjmp, again and again. */
#include "program.h"
#include <setjmp.h>

static jmp_buf target;

NOINLINE void burn(void)
{
	work(50);
	if (result)
		longjmp(target, 1);
}

NOINLINE void recurse(int depth)
{
	if (depth == 1)
		burn();
	else
		recurse(depth - 1);
	NO_TAIL_CALL();
}

NOINLINE void outer(void)
{
	if (!setjmp(target))
		recurse(8);
	NO_TAIL_CALL();
}

int main(int argc, char **argv)
{
	start_clock(argc, argv);
	while (!stop)
		outer();
	return 0;
}
