/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * exiting RATE N MS: starts N threads, of which RATE per second exit, one after the other. The main thread computes in
 * main < outer < mid < burn until all have exited, and then for MS of CPU time.
 */
#include "burn.h"
#include <limits.h>
#include <pthread.h>

static volatile int n_left;
static struct timespec begin;
static long rate;

static void *sleeper(void *index)
{
	long long ns = begin.tv_nsec + (long)index * 1000000000LL / rate;
	struct timespec until = {begin.tv_sec + ns / 1000000000, ns % 1000000000};

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL))
		;
	__atomic_sub_fetch(&n_left, 1, __ATOMIC_RELAXED);
	return NULL;
}

__attribute__((noinline)) static void burn(long ms)
{
	do
		burn_ms(ms);
	while (n_left > 0);
	burn_ms(ms);
}

__attribute__((noinline)) static void mid(long ms)
{
	burn(ms);
	sink++;
}

__attribute__((noinline)) static void outer(long ms)
{
	mid(ms);
	sink++;
}

int main(int argc, char **argv)
{
	pthread_attr_t attributes;
	pthread_t thread;

	(void)argc;
	rate = atol(argv[1]);
	n_left = atoi(argv[2]);
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, PTHREAD_STACK_MIN);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	clock_gettime(CLOCK_MONOTONIC, &begin);
	for (long i = 0, n = n_left; i < n; i++)
		if (pthread_create(&thread, &attributes, sleeper, (void *)i))
			return 1;
	outer(atol(argv[3]));
	return 0;
}
