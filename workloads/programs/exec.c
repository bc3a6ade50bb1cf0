/* main < before_exec < burn in the first half of the time, then the program executes itself: main < after_exec < burn. */
#include "program.h"

NOINLINE void burn(void)
{
	work(FOREVER);
}

NOINLINE void before_exec(void)
{
	burn();
	NO_TAIL_CALL();
}

NOINLINE void after_exec(void)
{
	burn();
	NO_TAIL_CALL();
}

int main(int argc, char **argv)
{
	char half[32];

	if (argc > 2) {
		start_clock(argc, argv);
		after_exec();
		return 0;
	}
	snprintf(half, sizeof(half), "%f", argc > 1 ? atof(argv[1]) / 2 : 0.5);
	start_clock(2, (char *[]){ argv[0], half, NULL });
	before_exec();
	execl("/proc/self/exe", argv[0], half, "after", NULL);
	return 1;
}
