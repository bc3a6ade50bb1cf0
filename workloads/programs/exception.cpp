// main < outer < eight times recurse < thrower < (C++ run-time library): an exception that is caught in `outer`.
#include "program.h"

extern "C" NOINLINE void thrower(int value)
{
	if (!stop)
		throw value;
}

extern "C" NOINLINE void recurse(int depth)
{
	if (depth == 1)
		thrower(depth);
	else
		recurse(depth - 1);
	NO_TAIL_CALL();
}

extern "C" NOINLINE void outer()
{
	try {
		recurse(8);
	} catch (int value) {
		result = result + static_cast<unsigned long>(value);
	}
}

int main(int argc, char **argv)
{
	start_clock(argc, argv);
	while (!stop)
		outer();
	return 0;
}
