/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * callers MS: the main thread takes MS of CPU time in often() < burn() and half of it in seldom() < burn(), a thread
 * named "other one" twice MS in thread() < burn().
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

static volatile unsigned long sink;

__attribute__((noinline)) static void burn(long ms)
{
	struct timespec begin, now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
	do {
		for (int i = 0; i < 1000000; i++)
			sink += i;
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	} while ((now.tv_sec - begin.tv_sec) * 1000 + (now.tv_nsec - begin.tv_nsec) / 1000000 < ms);
}

__attribute__((noinline)) static void often(long ms)
{
	burn(ms);
	sink++;
}

__attribute__((noinline)) static void seldom(long ms)
{
	burn(ms / 2);
	sink++;
}

static void *thread(void *ms)
{
	burn(2 * (long)ms);
	return NULL;
}

int main(int argc, char **argv)
{
	long ms = argc > 1 ? atol(argv[1]) : 100;
	pthread_t other;

	if (pthread_create(&other, NULL, thread, (void *)ms) || pthread_setname_np(other, "other one"))
		return 1;
	often(ms);
	seldom(ms);
	return pthread_join(other, NULL);
}
