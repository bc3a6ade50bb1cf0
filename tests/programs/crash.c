/*
 * Dies of a bad address in `leaf`, below `deep` four times:
 *   crash qsort    in a callback of the C library, below `outer` and `main`
 *   crash signal   in a signal handler, which interrupted `outer`
 *   crash thread   in a thread that began in `thread_main`
 *   crash context  in a context of makecontext that began in `coroutine`
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define NOINLINE __attribute__((noinline, noclone))

static volatile int sink;

NOINLINE void leaf(volatile int *p)
{
	*p = 1;
}

NOINLINE int deep(int n, volatile char *below)
{
	volatile char room[24];

	room[0] = below[0];
	if (n)
		sink = deep(n - 1, room);
	else
		leaf((volatile int *)8);
	return room[0];
}

NOINLINE int compare(const void *a, const void *b)
{
	volatile char c = 1;

	sink = deep(3, &c);
	return *(const int *)a - *(const int *)b;
}

NOINLINE void on_signal(int number)
{
	volatile char c = 1;

	(void)number;
	sink = deep(3, &c);
}

/* A frame of a size that the stack pointer alone does not tell. */
NOINLINE int outer(int bytes, int by_signal)
{
	volatile char room[bytes];
	int values[4] = { 3, 1, 2, 0 };

	memset((void *)room, 1, (size_t)bytes);
	if (by_signal)
		raise(SIGUSR1);
	else
		qsort(values, 4, sizeof(*values), compare);
	return room[bytes - 1] + values[0];
}

NOINLINE void *thread_main(void *data)
{
	volatile char c = 1;

	sink = deep(3, &c);
	return data;
}

NOINLINE void coroutine(void)
{
	volatile char c = 1;

	sink = deep(3, &c);
}

int main(int argc, char **argv)
{
	static char stack[65536] __attribute__((aligned(16)));
	static ucontext_t here, there;
	pthread_t thread;

	if (argc != 2)
		return 2;
	switch (argv[1][0]) {
	case 's':
		signal(SIGUSR1, on_signal);
		return outer(argc * 50, 1);
	case 't':
		pthread_create(&thread, NULL, thread_main, NULL);
		pthread_join(thread, NULL);
		return 0;
	case 'c':
		getcontext(&there);
		there.uc_stack.ss_sp = stack;
		there.uc_stack.ss_size = sizeof(stack);
		there.uc_link = &here;
		makecontext(&there, coroutine, 0);
		swapcontext(&here, &there);
		return 0;
	default:
		return outer(argc * 50, 0);
	}
}
