/* main < outer < (code made at run time, with a frame pointer and without a file) < burn. */
#include "program.h"
#include <sys/mman.h>

NOINLINE void burn(void)
{
	work(FOREVER);
}

NOINLINE void outer(void (*code)(void (*)(void)))
{
	code(burn);
	NO_TAIL_CALL();
}

int main(int argc, char **argv)
{
	/* push %rbp; mov %rsp, %rbp; call *%rdi; pop %rbp; ret */
	static const unsigned char bytes[] = { 0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3 };
	void *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	start_clock(argc, argv);
	if (code == MAP_FAILED)
		return 1;
	memcpy(code, bytes, sizeof(bytes));
	if (mprotect(code, 4096, PROT_READ | PROT_EXEC))
		return 1;
	outer((void (*)(void (*)(void)))code);
	return 0;
}
