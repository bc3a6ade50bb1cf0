/* main < mid < target < burn. `mid` calls `tailcaller`, which jumps to `target` and is on the stack no more. */
#include "program.h"

NOINLINE void burn(void)
{
	work(FOREVER);
}

NOINLINE void target(void)
{
	burn();
	NO_TAIL_CALL();
}

NOINLINE void tailcaller(void)
{
	result++;
	target();
}

NOINLINE void mid(void)
{
	tailcaller();
	NO_TAIL_CALL();
}

int main(int argc, char **argv)
{
	start_clock(argc, argv);
	mid();
	return 0;
}
