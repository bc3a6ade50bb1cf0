/* main < ask < clock_gettime < (vDSO). Exits with status 1 if the clock is not read in the vDSO here. */
#include "program.h"
#include <time.h>

NOINLINE void ask(void)
{
	struct timespec now;

	while (!stop)
		for (int i = 0; i < 10000; i++)
			if (clock_gettime(CLOCK_MONOTONIC, &now))
				exit(1);
	result = (unsigned long)now.tv_nsec;
}

int main(int argc, char **argv)
{
	start_clock(argc, argv);
	ask();
	return 0;
}
