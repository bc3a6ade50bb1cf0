/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * known SECONDS chain ROUNDS:   main < level_1 < ... < level_12 < burn, in which all the time is spent.
 * known SECONDS private ROUNDS: the same in a process that must not be dumped.
 * known SECONDS threads ROUNDS: thread_main < worker < burn, in each of four threads.
 * known SECONDS waits ROUNDS:   main < rest < nap, which sleeps for some milliseconds, so many times.
 *
 * It is the work that is given, and the seconds only bound it: on a busy machine it takes longer, and gets as many samples.
 */
#include "../../programs/program.h"
#include <pthread.h>
#include <sys/prctl.h>
#include <time.h>

#define CALL(caller, callee)            \
	static NOINLINE void caller(void) \
	{                               \
		callee();               \
		NO_TAIL_CALL();         \
	}

static unsigned long rounds;

static NOINLINE void burn(void)
{
	work(rounds);
}

CALL(level_12, burn)
CALL(level_11, level_12)
CALL(level_10, level_11)
CALL(level_9, level_10)
CALL(level_8, level_9)
CALL(level_7, level_8)
CALL(level_6, level_7)
CALL(level_5, level_6)
CALL(level_4, level_5)
CALL(level_3, level_4)
CALL(level_2, level_3)
CALL(level_1, level_2)

CALL(worker, burn)

static void *thread_main(void *argument)
{
	worker();
	NO_TAIL_CALL();
	return argument;
}

static NOINLINE void nap(void)
{
	struct timespec time = { 0, 3000000 };

	nanosleep(&time, NULL);
	NO_TAIL_CALL();
}

static NOINLINE void rest(void)
{
	for (unsigned long i = 0; i < rounds && !stop; i++)
		nap();
}

int main(int argc, char **argv)
{
	const char *what = argc == 4 ? argv[2] : "";
	pthread_t threads[4];

	/* Who records it comes first. */
	nice(19);
	start_clock(argc, argv);
	rounds = argc == 4 ? strtoul(argv[3], NULL, 10) : 0;
	if (!strcmp(what, "chain")) {
		level_1();
	} else if (!strcmp(what, "private")) {
		if (prctl(PR_SET_DUMPABLE, 0))
			return 1;
		level_1();
	} else if (!strcmp(what, "threads")) {
		for (int i = 0; i < 4; i++)
			if (pthread_create(&threads[i], NULL, thread_main, NULL))
				return 1;
		for (int i = 0; i < 4; i++)
			if (pthread_join(threads[i], NULL))
				return 1;
	} else if (!strcmp(what, "waits")) {
		rest();
	} else {
		fprintf(stderr, "usage: %s SECONDS chain|private|threads|waits ROUNDS\n", argv[0]);
		return 2;
	}
	NO_TAIL_CALL();
	return 0;
}
