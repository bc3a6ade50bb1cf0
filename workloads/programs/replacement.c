/* What file_gone.c is replaced with: never run, and its functions lie where those of the other are. */
#include "program.h"

NOINLINE void wrong_name_1(void)
{
	work(FOREVER);
}

NOINLINE void wrong_name_2(void)
{
	wrong_name_1();
	NO_TAIL_CALL();
}

int main(int argc, char **argv)
{
	start_clock(argc, argv);
	wrong_name_2();
	return 3;
}
