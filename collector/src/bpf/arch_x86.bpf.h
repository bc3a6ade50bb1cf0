/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* x86-64: a thread's registers, and what the programs need to know about them. */
#ifndef FPPROF_ARCH_H
#define FPPROF_ARCH_H

/* struct pt_regs in arch/x86/include/uapi/asm/ptrace.h: a user API, hence without relocation. */
struct user_regs {
	unsigned long r15;
	unsigned long r14;
	unsigned long r13;
	unsigned long r12;
	unsigned long bp;
	unsigned long bx;
	unsigned long r11;
	unsigned long r10;
	unsigned long r9;
	unsigned long r8;
	unsigned long ax;
	unsigned long cx;
	unsigned long dx;
	unsigned long si;
	unsigned long di;
	unsigned long orig_ax;
	unsigned long ip;
	unsigned long cs;
	unsigned long flags;
	unsigned long sp;
	unsigned long ss;
};

struct thread_struct {
	unsigned long fsbase;
} __attribute__((preserve_access_index));

/* __USER32_CS in arch/x86/include/asm/segment.h. */
#define USER32_CS 0x23

/* System V psABI for AMD64, section 3.2.2. */
#define ARCH_RED_ZONE_BYTES 128

#define REGS_IP(user) ((user).ip)
#define REGS_SP(user) ((user).sp)
#define REGS_FP(user) ((user).bp)
#define REGS_IN_KERNEL(user) (!((user).cs & 3))
#define REGS_ARE_32(user) (((user).cs & 0xffff) == USER32_CS)

/* CPU_ENTRY_AREA_BASE in arch/x86/include/asm/pgtable_areas.h: the stacks on which interrupts start. */
#define CPU_ENTRY_AREA 0xfffffe0000000000ULL
#define CPU_ENTRY_AREA_BYTES (1ULL << 39)

/*
 * Whether a non-maskable interrupt, which counters use, came before the kernel had saved the user registers at
 * `saved`, given the stack pointer it interrupted: a system call starts on the user's stack, and then pushes the
 * registers from the end of struct pt_regs down (entry_SYSCALL_64, PUSH_AND_CLEAR_REGS); interrupts and faults start
 * on a stack of their own, from which the registers are copied (error_entry, sync_regs). perf only checks the latter
 * (perf_get_regs_user). On the way out the kernel passes the same places with registers that are still valid: these
 * few samples are given up, too.
 */
/* clang-format would take (sp) for a cast. */
/* clang-format off */
#define ARE_REGS_UNSAVED(sp, saved) \
	((__s64)(sp) >= 0 || ((sp) > (saved) && (sp) <= (saved) + sizeof(struct user_regs)) || \
	 (sp) - CPU_ENTRY_AREA < CPU_ENTRY_AREA_BYTES)
/* clang-format on */

/* Address of a thread's control block in the C library; the thread's stack ends below it. */
#define THREAD_BASE(task) ((task)->thread.fsbase)

/*
 * Where the kernel puts struct rt_sigframe on an alternate stack: below the extended state, which is at a multiple of
 * 64 bytes and takes from 512 bytes (fxsave) to some 11 KiB (AMX). get_sigframe in arch/x86/kernel/signal.c, struct
 * rt_sigframe in arch/x86/include/asm/sigframe.h, struct sigcontext_64.
 */
#define SIGNAL_FRAME_STEP 64
#define SIGNAL_FRAME_PLACES 256
#define FIRST_UC_STACK(end) (((end) & ~63ULL) - 512 - 456 + 24)
/* From uc_stack to uc_mcontext's sp. */
#define UC_STACK_TO_SP 144

/* 32-bit code has frames like 64-bit code, with 4-byte words. */
#define WALKS_32 true

/* The address in a return address on the stack. */
#define CODE_ADDRESS(word) (word)

#endif
