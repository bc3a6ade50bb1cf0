/* main < DEPTH times recurse < burn. */
#include "program.h"

NOINLINE void burn(void)
{
	work(FOREVER);
}

NOINLINE void recurse(int depth)
{
	if (depth <= 1)
		burn();
	else
		recurse(depth - 1);
	NO_TAIL_CALL();
}

int main(int argc, char **argv)
{
	start_clock(argc, argv);
	recurse(argc > 2 ? atoi(argv[2]) : 200);
	return 0;
}
