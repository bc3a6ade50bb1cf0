/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* main < outer, which calls functions of the C library through its stubs, and returns from signal handlers. */
#include <signal.h>
#include <stdlib.h>
#include <time.h>

static void handler(int signal)
{
}

static __attribute__((noinline)) int outer(void)
{
	int i, sum = 0;

	raise(SIGUSR1);
	for (i = 0; i < 1000; i++)
		sum += abs(i) ^ abs(sum);
	return sum;
}

int main(int argc, char **argv)
{
	time_t end = time(0) + atoi(argv[1]) + 1;
	volatile int sum = 0;

	signal(SIGUSR1, handler);
	while (time(0) < end)
		sum += outer();
	return 0;
}
