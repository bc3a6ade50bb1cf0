/*
 * main < outer < burn_inside, where the last is code in the middle of a file that is no ELF file: a page of junk, then a copy
 * of this program's own code, as of a library inside an archive.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096UL

/* Calls nothing and touches no data, so that it runs anywhere. */
__attribute__((noinline, aligned(4096))) unsigned long burn_inside(unsigned long rounds)
{
	unsigned long x = 1;

	while (rounds--) {
		x = x * 6364136223846793005UL + 1442695040888963407UL;
		__asm__ volatile("" : "+r"(x));
	}
	return x;
}

volatile unsigned long result;

__attribute__((noinline)) void outer(unsigned long (*burn)(unsigned long))
{
	clock_t end = clock() + CLOCKS_PER_SEC / 2;

	while (clock() < end)
		result += burn(50000000);
}

int main(int argc, char **argv)
{
	char page[PAGE];
	void *code;
	int file = argc == 2 ? open(argv[1], O_RDWR | O_CREAT | O_EXCL, 0700) : -1;

	memset(page, 'Z', sizeof(page));
	if (file < 0 || write(file, page, PAGE) != (ssize_t)PAGE)
		return 2;
	memcpy(page, (void *)((uintptr_t)burn_inside & ~(PAGE - 1)), PAGE);
	if (write(file, page, PAGE) != (ssize_t)PAGE)
		return 3;
	code = mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, PAGE);
	if (code == MAP_FAILED)
		return 4;
	outer((unsigned long (*)(unsigned long))code);
	return 0;
}
