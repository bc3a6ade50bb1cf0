/*
 * Blocks in three ways, each below functions of its own, and prints for each how long it took by its own clock and for how
 * much of that it was blocked and nothing else by the kernel's, nanoseconds:
 *   off_cpu sleep N MS | futex N MS | pipe N MS | all N MS
 * Each has two callers, of which the second waits twice as long. `all` does one after the other.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define KEEP __attribute__((noinline, noclone))

static long turns, ms;

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

/* For how long the thread was on a CPU, or waited for one: /proc/thread-self/schedstat. */
static uint64_t ready_ns(void)
{
	uint64_t on_cpu, waiting;
	FILE *file = fopen("/proc/thread-self/schedstat", "r");

	if (!file || fscanf(file, "%lu %lu", &on_cpu, &waiting) != 2)
		exit(1);
	fclose(file);
	return on_cpu + waiting;
}

static void nap(long part)
{
	struct timespec time = { part / 1000, part % 1000 * 1000000 };

	while (nanosleep(&time, &time) && errno == EINTR)
		;
}

KEEP static void do_sleep(long part)
{
	nap(part);
	__asm__ volatile("" ::: "memory");
}

static uint32_t word;

/* Woken by another thread, so that two are off their CPUs. */
static void *waker(void *part)
{
	nap((long)part);
	__atomic_store_n(&word, 1, __ATOMIC_RELEASE);
	syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
	return NULL;
}

KEEP static void do_futex(long part)
{
	pthread_t thread;

	__atomic_store_n(&word, 0, __ATOMIC_RELEASE);
	pthread_create(&thread, NULL, waker, (void *)part);
	while (!__atomic_load_n(&word, __ATOMIC_ACQUIRE))
		syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
	pthread_join(thread, NULL);
	__asm__ volatile("" ::: "memory");
}

static int ends[2];

static void *writer(void *part)
{
	nap((long)part);
	return write(ends[1], "x", 1) == 1 ? part : NULL;
}

KEEP static void do_pipe(long part)
{
	pthread_t thread;
	char byte;

	pthread_create(&thread, NULL, writer, (void *)part);
	if (read(ends[0], &byte, 1) != 1)
		abort();
	pthread_join(thread, NULL);
	__asm__ volatile("" ::: "memory");
}

#define CALLERS(what)                                                                              \
	KEEP static void what##_short(void)                                                        \
	{                                                                                          \
		do_##what(ms);                                                                     \
		__asm__ volatile("" ::: "memory");                                                 \
	}                                                                                          \
	KEEP static void what##_long(void)                                                         \
	{                                                                                          \
		do_##what(2 * ms);                                                                 \
		__asm__ volatile("" ::: "memory");                                                 \
	}                                                                                          \
	static void run_##what(void)								\
	{												\
		uint64_t took[2] = { 0, 0 }, blocked[2] = { 0, 0 };				\
		for (long turn = 0; turn < turns; turn++)						\
			for (int i = 0; i < 2; i++) {						\
				uint64_t ready = ready_ns(), began = now_ns(), ns;			\
				if (i)								\
					what##_long();						\
				else								\
					what##_short();						\
				ns = now_ns() - began;						\
				took[i] += ns;							\
				blocked[i] += ns - (ready_ns() - ready);				\
			}										\
		printf(#what "_short %lu %lu\n" #what "_long %lu %lu\n", took[0], blocked[0], took[1], blocked[1]);	\
		fflush(stdout);									\
	}

CALLERS(sleep)
CALLERS(futex)
CALLERS(pipe)

/* Spins for so long: never blocked. */
static void run_spin(void)
{
	uint64_t end = now_ns() + turns * ms * 1000000ull;

	while (now_ns() < end)
		;
}

/* Its caller is what a walk by frame pointers misses from within the C library. */
KEEP static void rest(void)
{
	pause();
	__asm__ volatile("" ::: "memory");
}

KEEP static void *forever(void *unused)
{
	rest();
	return unused;
}

/* A thread that is still blocked when the process is: until somebody ends it. */
KEEP static void stay_blocked(void)
{
	pthread_t thread;

	pthread_create(&thread, NULL, forever, NULL);
	nap(turns * ms);
	__asm__ volatile("" ::: "memory");
}

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	turns = atol(argv[2]);
	ms = atol(argv[3]);
	if (pipe(ends))
		return 1;
	const char *what = argv[1];
	int all = !strcmp(what, "all");

	if (all || !strcmp(what, "sleep"))
		run_sleep();
	if (all || !strcmp(what, "futex"))
		run_futex();
	if (all || !strcmp(what, "pipe"))
		run_pipe();
	if (!strcmp(what, "spin"))
		run_spin();
	if (!strcmp(what, "stay"))
		stay_blocked();
	return 0;
}
