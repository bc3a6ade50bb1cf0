/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A program without a C library, for 64 and 32 bits: burns in leaf, called by caller, called by the entry point, from
 * its first instruction to its last. Build with frame pointers and -nostdlib -static.
 */
static volatile unsigned long sink;

__attribute__((noinline)) void leaf(void)
{
	for (unsigned long i = 0; i < 120000000; i++)
		sink += i;
}

__attribute__((noinline)) void caller(void)
{
	leaf();
	sink++;
}

void _start(void)
{
	caller();
#ifdef __x86_64__
	__asm__ volatile("syscall" ::"a"(60L), "D"(0L));
#else
	__asm__ volatile("int $0x80" ::"a"(1), "b"(0));
#endif
	__builtin_unreachable();
}
