/* main < outer < big < burn, with 100,000 bytes of stack in `big`: more than a 64 KiB chunk. */
#include "program.h"
#include <alloca.h>

NOINLINE void burn(volatile char *bytes)
{
	work(FOREVER);
	bytes[0] = 1;
}

NOINLINE void big(int size)
{
	volatile char *bytes = alloca((size_t)size);

	bytes[size - 1] = 1;
	burn(bytes);
	NO_TAIL_CALL();
}

NOINLINE void outer(int size)
{
	big(size);
	NO_TAIL_CALL();
}

int main(int argc, char **argv)
{
	start_clock(argc, argv);
	outer(argc > 2 ? atoi(argv[2]) : 100000);
	return 0;
}
