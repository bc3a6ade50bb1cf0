/* main < outer < mid < burn, in which all the time is spent. */
#include "program.h"

NOINLINE void burn(void)
{
	work(FOREVER);
}

NOINLINE void mid(void)
{
	burn();
	NO_TAIL_CALL();
}

NOINLINE void outer(void)
{
	mid();
	NO_TAIL_CALL();
}

int main(int argc, char **argv)
{
	start_clock(argc, argv);
	outer();
	return 0;
}
