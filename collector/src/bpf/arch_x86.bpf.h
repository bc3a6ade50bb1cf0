/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* x86-64: a thread's registers, and what the programs want to know of them. */
#ifndef FPPROF_ARCH_H
#define FPPROF_ARCH_H

/* struct pt_regs in arch/x86/include/uapi/asm/ptrace.h: user API, hence without relocation. */
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

/* CPU_ENTRY_AREA_BASE in arch/x86/include/asm/pgtable_areas.h: the stacks on which interrupts begin. */
#define CPU_ENTRY_AREA 0xfffffe0000000000ULL
#define CPU_ENTRY_AREA_BYTES (1ULL << 39)

/*
 * Whether a non-maskable interrupt, which counters use, came before the kernel had saved the user registers at `saved`,
 * given the stack pointer that it has interrupted: a system call begins on the user's stack, and then pushes them from the
 * end of struct pt_regs down (entry_SYSCALL_64, PUSH_AND_CLEAR_REGS); interrupts and faults begin on a stack of their own,
 * from which they are copied (error_entry, sync_regs). perf asks for the second only (perf_get_regs_user). On the way out
 * the kernel goes through the same places with registers that are still right: these few are given up, too.
 */
/* clang-format would take (sp) for a cast. */
/* clang-format off */
#define ARE_REGS_UNSAVED(sp, saved) \
	((__s64)(sp) >= 0 || ((sp) > (saved) && (sp) <= (saved) + sizeof(struct user_regs)) || \
	 (sp) - CPU_ENTRY_AREA < CPU_ENTRY_AREA_BYTES)
/* clang-format on */

/* Where the C library has a thread's control block; its stack ends below. */
#define THREAD_BASE(task) ((task)->thread.fsbase)

/*
 * Where the kernel puts struct rt_sigframe on a stack that it goes over to: below the extended state, which lies at a
 * multiple of 64 bytes and takes from 512 bytes (fxsave) to some 11 KiB (AMX). get_sigframe in
 * arch/x86/kernel/signal.c, struct rt_sigframe in arch/x86/include/asm/sigframe.h, struct sigcontext_64.
 */
#define SIGNAL_FRAME_STEP 64
#define SIGNAL_FRAME_PLACES 256
#define FIRST_UC_STACK(end) (((end) & ~63ULL) - 512 - 456 + 24)
/* From uc_stack to uc_mcontext's sp. */
#define UC_STACK_TO_SP 144

/* 32-bit code has frames as 64-bit code has, of 4-byte words. */
#define WALKS_32 true

/* The address in a return address on the stack. */
#define CODE_ADDRESS(word) (word)

#endif
