/* A library with the way (NAME)_work < (NAME)_burn, about a millisecond long. Built with -DNAME=a and the like. */
#include "program.h"

#define PASTE2(a, b) a##b
#define PASTE(a, b) PASTE2(a, b)

NOINLINE void PASTE(NAME, _burn)(void)
{
	work(250);
}

NOINLINE void PASTE(NAME, _work)(void)
{
	PASTE(NAME, _burn)();
	NO_TAIL_CALL();
}

/* Almost nothing, so that the way here is what costs. */
NOINLINE void PASTE(NAME, _nothing)(void)
{
	NO_TAIL_CALL();
}
