/* (thread start) < thread_main < burn, in threads of about a millisecond, four at a time, thousands in all. */
#include "program.h"
#include <pthread.h>

NOINLINE void burn(void)
{
	work(250);
}

static void *thread_main(void *argument)
{
	burn();
	NO_TAIL_CALL();
	return argument;
}

int main(int argc, char **argv)
{
	pthread_t threads[4];

	start_clock(argc, argv);
	while (!stop) {
		for (int i = 0; i < 4; i++)
			if (pthread_create(&threads[i], NULL, thread_main, NULL))
				return 1;
		for (int i = 0; i < 4; i++)
			if (pthread_join(threads[i], NULL))
				return 1;
	}
	return 0;
}
