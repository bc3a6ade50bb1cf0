/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The program of the recordings beside it: _start -> run -> level, 12 deep -> leaf, over and over for some seconds, return
 * addresses signed. It needs no C library. Built by
 *   aarch64-linux-gnu-gcc -O2 -fno-optimize-sibling-calls -fno-inline -nostdlib -static -mbranch-protection=standard
 *     -Wl,--build-id -DROUNDS=20000 signed.c -o signed
 */
__attribute__((noinline)) static unsigned long leaf(unsigned long x)
{
	for (int i = 0; i < 20000; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
	}
	return x;
}

__attribute__((noinline)) static unsigned long level(int depth, unsigned long x)
{
	return depth ? level(depth - 1, x) + depth : leaf(x) + 1;
}

/* As in the start code of C libraries: there is no caller. */
__asm__(".globl _start\n"
	".type _start, %function\n"
	"_start:\n"
	"	.cfi_startproc\n"
	"	.cfi_undefined x30\n"
	"	mov x29, #0\n"
	"	mov x30, #0\n"
	"	bl run\n"
	"	mov x8, #93\n"
	"	mov x0, #0\n"
	"	svc #0\n"
	"	.cfi_endproc\n"
	".size _start, . - _start\n");

volatile unsigned long result;

__attribute__((noinline, used)) static void run(void)
{
	for (int i = 0; i < ROUNDS; i++)
		result = level(11, result);
}
