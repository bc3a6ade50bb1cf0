/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * strangers host IN OUT: for each process ID read from IN, forks a process that has it and burns in code at MARKED,
 * and confirms on OUT. strangers guest OUT IN N: creates children that end at once, until N were followed by a
 * stranger with their ID. Fails if that takes a hundred times as many.
 */
#define _GNU_SOURCE
#include "burn.h"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MARKED ((void *)0x123400000000)

static void burn_marked(void)
{
	/* jmp to itself */
	static const unsigned char code[] = { 0xeb, 0xfe };
	void *page = mmap(MARKED, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);

	memcpy(page, code, sizeof(code));
	ualarm(20000, 0);
	((void (*)(void))page)();
}

static int host(FILE *in, FILE *out)
{
	char line[32];

	while (fgets(line, sizeof(line), in)) {
		int file = open("/proc/sys/kernel/ns_last_pid", O_WRONLY), pid = atoi(line), child;
		char number[32];

		snprintf(number, sizeof(number), "%d", pid - 1);
		if (file < 0 || write(file, number, strlen(number)) < 0)
			return 1;
		close(file);
		child = fork();
		if (!child) {
			if (getpid() == pid)
				burn_marked();
			_exit(0);
		}
		waitpid(child, NULL, 0);
		fprintf(out, "%d\n", child == pid);
		fflush(out);
	}
	return 0;
}

static int guest(FILE *out, FILE *in, int n)
{
	int had = 0;
	char line[32];

	for (int i = 0; had < n && i < 100 * n; i++) {
		int child = fork();

		if (!child)
			_exit(0);
		waitpid(child, NULL, 0);
		fprintf(out, "%d\n", child);
		fflush(out);
		if (!fgets(line, sizeof(line), in))
			return 1;
		had += atoi(line);
		burn_ms(1);
	}
	return had < n;
}

int main(int argc, char **argv)
{
	int is_host = argc > 3 && !strcmp(argv[1], "host");
	FILE *first = fopen(argv[2], is_host ? "r" : "w"), *second = fopen(argv[3], is_host ? "w" : "r");

	if (!first || !second)
		return 1;
	return is_host ? host(first, second) : guest(first, second, atoi(argv[4]));
}
