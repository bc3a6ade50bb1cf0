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

/* Burns CPU for about ROUNDS times 4 microseconds, or until the time is over. Calls nothing. */
static inline __attribute__((always_inline)) void work(unsigned long rounds)
{
	unsigned long x = result;

#ifdef WITH_LEAF_FRAME
	/* gcc gives a leaf function a frame pointer only when it is used, whatever the flags. */
	__asm__ volatile("" : : "r"(__builtin_frame_address(0)));
#endif
	while (!stop && rounds--)
		for (int i = 0; i < 4096; i++) {
			x = x * 6364136223846793005UL + 1442695040888963407UL;
			__asm__ volatile("" : "+r"(x));
		}
	result = x;
}

#define FOREVER (~0UL)

#endif
