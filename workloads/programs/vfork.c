/* main < burn in children of vfork, each about a millisecond, while the parent, whose stack it is, waits. */
#include "program.h"
#include <sys/wait.h>

NOINLINE void burn(void)
{
	work(250);
}

int main(int argc, char **argv)
{
	start_clock(argc, argv);
	while (!stop) {
		int status;
		pid_t child = vfork();

		if (child == 0) {
			burn();
			_exit(0);
		}
		if (child < 0 || waitpid(child, &status, 0) != child || status)
			return 1;
	}
	return 0;
}
