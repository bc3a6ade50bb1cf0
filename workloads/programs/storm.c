/*
 * main < in_child < burn in children of a millisecond, which fork (`fork`), or fork and execute this program anew
 * (`exec`). With `reuse` every child that executes has the process id of the one before; exits with status 1 if none had.
 */
#include "program.h"
#include <fcntl.h>
#include <sys/wait.h>

NOINLINE void burn(void)
{
	work(250);
}

NOINLINE void in_child(void)
{
	burn();
	NO_TAIL_CALL();
}

/* Makes `wanted` the next process id, unless another process is made before. Needs CAP_SYS_ADMIN. */
static void choose_next(pid_t wanted)
{
	char text[32];
	int len = snprintf(text, sizeof(text), "%d", wanted - 1);
	int file = open("/proc/sys/kernel/ns_last_pid", O_WRONLY);

	if (file < 0 || write(file, text, (size_t)len) != len) {
		perror("/proc/sys/kernel/ns_last_pid");
		exit(1);
	}
	close(file);
}

int main(int argc, char **argv)
{
	const char *mode = argc > 2 ? argv[2] : "";
	int is_reuse = !strcmp(mode, "reuse"), n_reused = 0;
	pid_t last = 0;

	if (!strcmp(mode, "child")) {
		in_child();
		return 0;
	}
	start_clock(argc, argv);
	while (!stop) {
		int status;
		pid_t child;

		if (is_reuse && last)
			choose_next(last);
		child = fork();
		if (child == 0) {
			if (strcmp(mode, "fork")) {
				execl("/proc/self/exe", argv[0], "1", "child", NULL);
				_exit(1);
			}
			in_child();
			_exit(0);
		}
		if (child < 0 || waitpid(child, &status, 0) != child || status)
			return 1;
		n_reused += child == last;
		last = child;
	}
	return is_reuse && !n_reused;
}
