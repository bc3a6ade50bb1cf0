/*
 * main < outer < realigned < burn. `realigned` aligns its stack to 32 bytes for a vector and has arguments on the
 * stack: gcc keeps the address of those in a register of its own (DRAP) and describes the CFA by an expression.
 */
#include "program.h"

typedef long vector __attribute__((vector_size(32)));

NOINLINE void burn(vector *values)
{
	work(FOREVER);
	(*values)[0]++;
}

NOINLINE long realigned(long a, long b, long c, long d, long e, long f, long g, int size)
{
	vector values = { a, b, c, d };
	volatile char *bytes = __builtin_alloca((size_t)size);

	bytes[0] = 1;
	burn(&values);
	return values[0] + values[3] + e + f + g + bytes[0];
}

NOINLINE void outer(int size)
{
	result = (unsigned long)realigned(1, 2, 3, 4, 5, 6, 7, size);
}

int main(int argc, char **argv)
{
	start_clock(argc, argv);
	outer(argc * 100);
	return 0;
}
