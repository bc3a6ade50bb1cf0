/* main < outer < burn, where every call through a pointer goes through a thunk that calls, moves its return address, returns. */
#include "program.h"

NOINLINE void burn(void)
{
	work(25);
}

static void (*volatile pointer)(void) = burn;

NOINLINE void outer(void)
{
	while (!stop)
		pointer();
}

int main(int argc, char **argv)
{
	start_clock(argc, argv);
	outer();
	NO_TAIL_CALL();
	return 0;
}
