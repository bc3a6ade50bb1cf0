/*
 * Two builds of this program, with another BYTES each, have the same functions at the same addresses with frames of
 * other sizes: main < outer < framed < burn. They take each other's place until the time is over, 5 ms each:
 *   replaced SECONDS exec OTHER   in one process, by execve
 *   replaced SECONDS pid OTHER    in two children, one after the other, that have the same process number
 */
#include "program.h"
#include <errno.h>
#include <linux/sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

/* The number of the children; the next one if a process of the machine has it. */
static pid_t reused_pid = 31337;

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

NOINLINE void burn(double until)
{
	while (now() < until)
		work(20);
}

NOINLINE void framed(double until)
{
	volatile char frame[BYTES];

	frame[0] = 1;
	burn(until);
	frame[BYTES - 1] = 1;
}

NOINLINE void outer(double until)
{
	framed(until);
	NO_TAIL_CALL();
}

/* Runs a program in a child with this number; returns whether that worked. */
static int run_in_child(char **arguments)
{
	struct clone_args args = { .exit_signal = SIGCHLD, .set_tid = (unsigned long)&reused_pid, .set_tid_size = 1 };
	long child;
	int status;

	while ((child = syscall(SYS_clone3, &args, sizeof(args))) < 0 && errno == EEXIST)
		reused_pid++;
	if (!child) {
		execv(arguments[0], arguments);
		_exit(1);
	}
	return child > 0 && waitpid(child, &status, 0) == child && !status;
}

int main(int argc, char **argv)
{
	char until[32], *mode = argc > 2 ? argv[2] : "";
	double end = argc > 4 ? atof(argv[4]) : now() + (argc > 1 ? atof(argv[1]) : 0);
	int is_child = !strcmp(mode, "once");

	if (argc < 4)
		return 2;
	snprintf(until, sizeof(until), "%.3f", end);
	if (!is_child && !strcmp(mode, "pid")) {
		char *own[] = { argv[0], "0", "once", argv[3], until, NULL };
		char *other[] = { argv[3], "0", "once", argv[0], until, NULL };

		while (now() < end)
			if (!run_in_child(own) || !run_in_child(other))
				return 1;
		return 0;
	}
	outer(now() + 0.005);
	if (is_child || now() >= end)
		return 0;
	execv(argv[3], (char *[]){ argv[3], "0", mode, argv[0], until, NULL });
	return 1;
}
