/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * tree MS FILE: a parent, a child that burns in two threads, and a child that executes itself and then burns. Writes
 * to FILE: pid of the parent, pid and second tid of the first child, pid of the second. `tree MS` only burns.
 */
#include "burn.h"
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static long ms;
static int tids[2];

static void *thread(void *unused)
{
	int tid = syscall(SYS_gettid);

	if (write(tids[1], &tid, sizeof(tid)) != sizeof(tid))
		abort();
	burn_ms(ms);
	return unused;
}

int main(int argc, char **argv)
{
	int first, second, tid;
	pthread_t id;
	FILE *file;

	ms = atol(argv[1]);
	if (argc == 2) {
		burn_ms(ms);
		return 0;
	}
	if (pipe(tids))
		return 1;
	first = fork();
	if (!first) {
		pthread_create(&id, NULL, thread, NULL);
		burn_ms(ms);
		pthread_join(id, NULL);
		_exit(0);
	}
	second = fork();
	if (!second) {
		execl("/proc/self/exe", "again", argv[1], NULL);
		_exit(1);
	}
	if (read(tids[0], &tid, sizeof(tid)) != sizeof(tid))
		return 1;
	file = fopen(argv[2], "w");
	fprintf(file, "%d %d %d %d\n", getpid(), first, tid, second);
	fclose(file);
	burn_ms(ms);
	while (wait(NULL) > 0)
		;
	return 0;
}
