/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Makes something happen so many times, in a function that is named for it: events WHAT TIMES [FILE]. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096
#define NOINLINE __attribute__((noinline, noclone))
#define N_THREADS 4

static volatile unsigned long sink;

/* New memory, a page at a time. */
NOINLINE static void touch(long times)
{
	char *memory = mmap(NULL, times * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED || madvise(memory, times * PAGE, MADV_NOHUGEPAGE))
		exit(1);
	for (long i = 0; i < times; i++)
		((volatile char *)memory)[i * PAGE] = 1;
}

/* Pages of a file that is on the disk alone. */
NOINLINE static void fetch(long times, const char *path)
{
	char page[PAGE], *memory;
	int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);

	memset(page, 1, sizeof(page));
	for (long i = 0; i < times; i++)
		if (write(file, page, sizeof(page)) != sizeof(page))
			exit(1);
	if (fsync(file) || posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED))
		exit(1);
	memory = mmap(NULL, times * PAGE, PROT_READ, MAP_PRIVATE, file, 0);
	if (memory == MAP_FAILED || madvise(memory, times * PAGE, MADV_RANDOM))
		exit(1);
	for (long i = 0; i < times; i++)
		sink += ((volatile char *)memory)[i * PAGE];
}

/* How often the thread went off its CPU. */
static long switches(void)
{
	struct rusage usage;

	if (getrusage(RUSAGE_THREAD, &usage))
		exit(1);
	return usage.ru_nvcsw + usage.ru_nivcsw;
}

/* Prints how often it went off its CPU, which on a busy machine is more often than it sleeps. */
NOINLINE static void nap(long times)
{
	struct timespec pause = { .tv_nsec = 200000 };
	long before = switches();

	for (long i = 0; i < times; i++)
		nanosleep(&pause, NULL);
	printf("%ld\n", switches() - before);
}

/* From one CPU to the other and back. */
NOINLINE static void wander(long times)
{
	cpu_set_t cpus;

	for (long i = 0; i < times; i++) {
		CPU_ZERO(&cpus);
		CPU_SET(i & 1, &cpus);
		if (sched_setaffinity(0, sizeof(cpus), &cpus))
			exit(1);
	}
	sink++;
}

NOINLINE static void open_files(long times)
{
	for (long i = 0; i < times; i++)
		close(open("/dev/null", O_RDONLY));
	sink++;
}

NOINLINE void probed(long i)
{
	sink += i;
	__asm__ volatile("");
}

NOINLINE static void call(long times)
{
	for (long i = 0; i < times; i++)
		probed(i);
	sink++;
}

static void *thread(void *times)
{
	call(*(long *)times);
	return NULL;
}

NOINLINE static void call_in_threads(long times)
{
	pthread_t threads[N_THREADS];

	for (int i = 0; i < N_THREADS; i++)
		pthread_create(&threads[i], NULL, thread, &times);
	for (int i = 0; i < N_THREADS; i++)
		pthread_join(threads[i], NULL);
}

int main(int argc, char **argv)
{
	long times = argc > 2 ? atol(argv[2]) : 0;
	const char *what = argc > 2 ? argv[1] : "";

	if (!strcmp(what, "touch"))
		touch(times);
	else if (!strcmp(what, "fetch") && argc > 3)
		fetch(times, argv[3]);
	else if (!strcmp(what, "nap"))
		nap(times);
	else if (!strcmp(what, "wander"))
		wander(times);
	else if (!strcmp(what, "open"))
		open_files(times);
	else if (!strcmp(what, "call"))
		call(times);
	else if (!strcmp(what, "threads"))
		call_in_threads(times);
	else
		return 2;
	return 0;
}
