/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * execs N TEXT: executes itself N times, each time in the same place, with a known value in rbx and at its stack
 * pointer. The length of the text moves the stack's start.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/personality.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	long n = atol(argv[1]);
	char left[24], *arguments[] = { argv[0], left, argv[2], NULL };

	(void)argc;
	if (!n)
		return 0;
	if (personality(ADDR_NO_RANDOMIZE) < 0)
		return 1;
	snprintf(left, sizeof(left), "%ld", n - 1);
	/* rbx last: a sample between the two, as in the push's page fault, would have only one of them. */
	__asm__ volatile("sub $128, %%rsp\n\t"
			 "mov $0xeceb0000, %%ecx\n\t"
			 "push %%rcx\n\t"
			 "mov %%ecx, %%ebx\n\t"
			 "syscall\n\t"
			 "add $136, %%rsp"
			 :
			 : "a"((long)SYS_execve), "D"(argv[0]), "S"(arguments), "d"(environ)
			 : "rbx", "rcx", "r11", "memory", "cc");
	return 1;
}
