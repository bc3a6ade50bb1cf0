/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* registers N: reads N times 1 MiB of zeros, with known values in the callee-saved registers. */
#include <fcntl.h>
#include <stdlib.h>

static char zeros[1 << 20];

int main(int argc, char **argv)
{
	long fd = open("/dev/zero", O_RDONLY);

	(void)argc;
	__asm__ volatile("push %%rbp\n\t"
			 "mov $0xb0b0b0b0, %%ebx\n\t"
			 "mov $0xbbbbbbbb, %%ebp\n\t"
			 "mov $0x12121212, %%r12d\n\t"
			 "mov $0x13131313, %%r13d\n\t"
			 "mov $0x14141414, %%r14d\n\t"
			 "mov %%rax, %%r15\n\t"
			 "1: xor %%eax, %%eax\n\t"
			 "mov $1048576, %%edx\n\t"
			 "syscall\n\t"
			 "dec %%r15\n\t"
			 "jnz 1b\n\t"
			 "pop %%rbp"
			 :
			 : "D"(fd), "S"(zeros), "c"(0L), "a"(atol(argv[1]))
			 : "rbx", "rdx", "r11", "r12", "r13", "r14", "r15", "memory", "cc");
	return 0;
}
