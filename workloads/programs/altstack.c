/*
 * main < outer < interrupted, and on a stack of its own: (signal frame) < on_illegal < burn. `interrupted` runs into an
 * illegal instruction. With `disarmed` the kernel forgets the stack while the handler runs on it.
 */
#include "program.h"

/* SS_AUTODISARM in include/uapi/linux/signal.h. */
#define AUTODISARM (1 << 31)

static char alternate[1 << 16];

NOINLINE void burn(void)
{
	work(FOREVER);
}

static void on_illegal(int signo)
{
	(void)signo;
	burn();
	exit(0);
}

NOINLINE void interrupted(void)
{
	__asm__ volatile("ud2");
}

NOINLINE void outer(void)
{
	interrupted();
	NO_TAIL_CALL();
}

int main(int argc, char **argv)
{
	int is_disarmed = argc == 3 && !strcmp(argv[2], "disarmed");
	stack_t stack = { .ss_sp = alternate, .ss_size = sizeof(alternate), .ss_flags = is_disarmed ? AUTODISARM : 0 };
	int is_alternate = argc < 3 || strcmp(argv[2], "same-stack");
	struct sigaction illegal = { .sa_handler = on_illegal, .sa_flags = is_alternate ? SA_ONSTACK : 0 };

	start_clock(argc, argv);
	if (sigaltstack(&stack, NULL) || sigaction(SIGILL, &illegal, NULL))
		return 1;
	outer();
	return 1;
}
