/*
 * main < outer < (code made at run time, with a frame pointer and without a file) < burn. With `mapped`, a file
 * /tmp/perf-PID.map names that code while the program runs.
 */
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

static void write_map(const char *path, const void *code, size_t size)
{
	FILE *map = fopen(path, "wx");

	if (!map || fprintf(map, "%lx %zx made_at_run_time\n", (unsigned long)code, size) < 0 || fclose(map)) {
		perror(path);
		exit(1);
	}
}

int main(int argc, char **argv)
{
	/* push %rbp; mov %rsp, %rbp; call *%rdi; pop %rbp; ret */
	static const unsigned char bytes[] = { 0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3 };
	void *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int is_mapped = argc > 2 && !strcmp(argv[2], "mapped");
	char path[64];

	start_clock(argc, argv);
	if (code == MAP_FAILED)
		return 1;
	memcpy(code, bytes, sizeof(bytes));
	if (mprotect(code, 4096, PROT_READ | PROT_EXEC))
		return 1;
	snprintf(path, sizeof(path), "/tmp/perf-%d.map", (int)getpid());
	if (is_mapped)
		write_map(path, code, sizeof(bytes));
	outer((void (*)(void (*)(void)))code);
	return is_mapped && unlink(path);
}
