/* Maps and unmaps N pages as fast as it can, then runs code that it mapped last, and writes its address to FILE.
 * flood KIND N FILE: KIND is "data" or "code", and "one" place, "two" alternating places, or "many". */
#define _GNU_SOURCE
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { PAGE = 4096 };

__attribute__((noinline)) void spin(volatile unsigned long *n)
{
	for (int i = 0; i < 1000000; i++)
		++*n;
}

struct code {
	uintptr_t start, offset;
	size_t len;
};

static int own_code(struct dl_phdr_info *info, size_t size, void *to)
{
	struct code *code = to;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *header = &info->dlpi_phdr[i];
		if (header->p_type == PT_LOAD && (header->p_flags & PF_X)) {
			uintptr_t in_page = header->p_vaddr % PAGE;
			code->start = info->dlpi_addr + header->p_vaddr - in_page;
			code->offset = header->p_offset - in_page;
			code->len = header->p_memsz + in_page;
		}
	}
	return 1;
}

static uint64_t random_number(void)
{
	static uint64_t state = 88172645463325252u;
	state ^= state << 13;
	state ^= state >> 7;
	return state ^= state << 17;
}

int main(int argc, char **argv)
{
	if (argc != 5)
		return 2;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	int is_code = !strcmp(argv[1], "code"), file = open("/proc/self/exe", O_RDONLY);
	uint64_t places = !strcmp(argv[2], "one") ? 1 : !strcmp(argv[2], "two") ? 2 : 1u << 30;
	int prot = is_code ? PROT_READ | PROT_EXEC : PROT_READ | PROT_WRITE;
	int flags = MAP_PRIVATE | MAP_FIXED_NOREPLACE | (is_code ? 0 : MAP_ANONYMOUS);
	for (long i = 0, n = atol(argv[3]); i < n; i++) {
		uint64_t place = places > 2 ? random_number() % places : i % places;
		void *at = (void *)(0x100000000000 + place * 2 * PAGE);
		if (mmap(at, PAGE, prot, flags, is_code ? file : -1, 0) == at)
			munmap(at, PAGE);
	}
	struct code code = {0};
	dl_iterate_phdr(own_code, &code);
	char *copy = mmap(NULL, code.len, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, code.offset);
	if (copy == MAP_FAILED)
		return 1;
	void (*copied)(volatile unsigned long *) = (void *)(copy + ((uintptr_t)spin - code.start));
	char part[4096];
	snprintf(part, sizeof part, "%s.part", argv[4]);
	FILE *said = fopen(part, "w");
	fprintf(said, "%lx\n", (unsigned long)copy);
	fclose(said);
	rename(part, argv[4]);
	for (volatile unsigned long n = 0;;)
		copied(&n);
}
