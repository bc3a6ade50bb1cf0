/*
 * main < caller_ends_here < finish < burn. The call of `finish` is the last instruction of `caller_ends_here`, so that
 * the return address is that of the function behind it, `innocent_next`.
 */
#include "program.h"

NOINLINE void burn(void)
{
	work(FOREVER);
}

NOINLINE __attribute__((noreturn)) void finish(void)
{
	burn();
	exit(0);
}

NOINLINE void caller_ends_here(void)
{
	finish();
}

NOINLINE void innocent_next(void)
{
	work(1);
}

int main(int argc, char **argv)
{
	start_clock(argc, argv);
	if (argc > 100)
		innocent_next();
	caller_ends_here();
	return 0;
}
