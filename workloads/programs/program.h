/*
 * What every program here has in common: it takes the seconds to run as its first argument, burns CPU in a known
 * function, and exits with status 0.
 */
#ifndef PROGRAM_H
#define PROGRAM_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

/* A function with a frame of its own in every stack: neither inlined nor copied. */
#ifdef __clang__
#define NOINLINE __attribute__((noinline))
#else
#define NOINLINE __attribute__((noinline, noclone))
#endif

/* Behind a call: it is not the last thing the function does, so it can't become a jump. */
#define NO_TAIL_CALL() __asm__ volatile("" ::: "memory")

/* Set when the time is over. */
volatile int stop;
/* Keeps the work from being optimised away. */
volatile unsigned long result;

static void time_is_over(int signo)
{
	(void)signo;
	stop = 1;
}

/* Starts the clock; to be called once, first. */
static inline void start_clock(int argc, char **argv)
{
	double seconds = argc > 1 ? atof(argv[1]) : 1;
	struct sigaction action;
	struct itimerval timer;

	memset(&action, 0, sizeof(action));
	action.sa_handler = time_is_over;
	action.sa_flags = SA_ONSTACK | SA_RESTART;
	memset(&timer, 0, sizeof(timer));
	timer.it_value.tv_sec = (time_t)seconds;
	timer.it_value.tv_usec = (suseconds_t)((seconds - (double)timer.it_value.tv_sec) * 1e6);
	if (!(seconds > 0 && seconds < 86400) || sigaction(SIGALRM, &action, NULL) ||
	    setitimer(ITIMER_REAL, &timer, NULL)) {
		fprintf(stderr, "usage: %s SECONDS [...]\n", argv[0]);
		exit(2);
	}
}

#ifdef WITH_LEAF_FRAME
/* gcc gives a leaf function a frame pointer only when it is used, whatever the flags. */
#define USE_FRAME() __asm__ volatile("" : : "r"(__builtin_frame_address(0)))
#else
#define USE_FRAME() ((void)0)
#endif

/*
 * Burns CPU for about ROUNDS times 4 microseconds, or until the time is over. Calls nothing, and is no function, so that
 * no debug information speaks of an inlined one.
 */
#define work(ROUNDS)                                                                                \
	do {                                                                                        \
		unsigned long x_ = result, rounds_ = (ROUNDS);                                      \
                                                                                                    \
		USE_FRAME();                                                                        \
		while (!stop && rounds_--)                                                          \
			for (int i_ = 0; i_ < 4096; i_++) {                                         \
				x_ = x_ * 6364136223846793005UL + 1442695040888963407UL;            \
				__asm__ volatile("" : "+r"(x_));                                    \
			}                                                                           \
		result = x_;                                                                        \
	} while (0)

#define FOREVER (~0UL)

#endif
