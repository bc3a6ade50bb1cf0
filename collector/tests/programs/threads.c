/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * threads MS FILE: two threads burn, the first for MS, the second and the main thread for five times that. Writes the
 * IDs of the two to FILE and then renames it to FILE.done.
 */
#include "burn.h"
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

static long ms;
static int tids[2];
static pthread_barrier_t started;

static void *thread(void *times)
{
	tids[(long)times == 5] = syscall(SYS_gettid);
	pthread_barrier_wait(&started);
	burn_ms((long)times * ms);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t first, second;
	char done[4096];
	FILE *file;

	(void)argc;
	ms = atol(argv[1]);
	pthread_barrier_init(&started, NULL, 3);
	pthread_create(&first, NULL, thread, (void *)1L);
	pthread_create(&second, NULL, thread, (void *)5L);
	pthread_barrier_wait(&started);
	file = fopen(argv[2], "w");
	fprintf(file, "%x %x\n", tids[0], tids[1]);
	fclose(file);
	snprintf(done, sizeof(done), "%s.done", argv[2]);
	rename(argv[2], done);
	burn_ms(5 * ms);
	pthread_join(first, NULL);
	pthread_join(second, NULL);
	return 0;
}
