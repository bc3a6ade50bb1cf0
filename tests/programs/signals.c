/*
 * signals: in main and in a thread, begin < here (9 times), on a stack of its own (signal frame) < on_fault < there (9 times),
 * and on the same one (signal frame) < on_illegal < burn. The thread's is on the heap, main's in a frame of main itself.
 */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))
#define STACK_BYTES (1 << 14)

#ifdef __x86_64__
#define ILLEGAL "ud2"
#else
#define ILLEGAL "udf #0"
#endif

static volatile unsigned long result;

static void end(int signo)
{
	(void)signo;
	_exit(0);
}

NOINLINE void burn(void)
{
	for (;;)
		result++;
}

static void on_illegal(int signo)
{
	result += signo;
	burn();
	result++;
}

NOINLINE void there(int depth)
{
	volatile char room[200];

	room[depth] = 1;
	if (depth)
		there(depth - 1);
	else
		__asm__ volatile(ILLEGAL);
	result += room[depth];
}

static void on_fault(int signo)
{
	result += signo;
	there(8);
	result++;
}

NOINLINE void here(int depth)
{
	volatile char room[300];

	room[depth] = 1;
	if (depth)
		here(depth - 1);
	else
		*(volatile int *)(result & 0) = 1;
	result += room[depth];
}

NOINLINE void begin(void *alternate)
{
	stack_t stack = { .ss_sp = alternate, .ss_size = STACK_BYTES };

	sigaltstack(&stack, NULL);
	here(8);
	result++;
}

static void *thread(void *unused)
{
	begin(malloc(STACK_BYTES));
	return unused;
}

int main(int argc, char **argv)
{
	struct sigaction fault = { .sa_handler = on_fault, .sa_flags = SA_ONSTACK };
	struct sigaction illegal = { .sa_handler = on_illegal, .sa_flags = SA_ONSTACK };
	char alternate[STACK_BYTES];
	pthread_t id;

	(void)argc;
	sigaction(SIGSEGV, &fault, NULL);
	sigaction(SIGILL, &illegal, NULL);
	signal(SIGALRM, end);
	alarm(atoi(argv[1]));
	pthread_create(&id, NULL, thread, NULL);
	begin(alternate);
	return alternate[result & 0xff];
}
