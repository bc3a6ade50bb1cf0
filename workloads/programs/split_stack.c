/* main < recurse (200 times) < burn, on a stack that grows by pieces (gcc -fsplit-stack): __morestack is between two. */
#include "program.h"

NOINLINE void burn(void)
{
	work(2000);
}

NOINLINE void recurse(int depth)
{
	volatile char room[4000];

	room[depth] = 1;
	if (depth)
		recurse(depth - 1);
	else
		burn();
	result += (unsigned long)room[depth];
}

int main(int argc, char **argv)
{
	start_clock(argc, argv);
	while (!stop)
		recurse(200);
	return 0;
}
