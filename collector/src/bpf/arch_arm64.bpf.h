/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* arm64: a thread's registers, and what the programs need to know about them. */
#ifndef FPPROF_ARCH_H
#define FPPROF_ARCH_H

/*
 * struct user_pt_regs in arch/arm64/include/uapi/asm/ptrace.h, with which struct pt_regs begins: a user API, hence
 * without relocation.
 */
struct user_regs {
	__u64 regs[31];
	__u64 sp;
	__u64 pc;
	__u64 pstate;
};

struct thread_struct {
	struct {
		unsigned long tp_value;
	} uw;
} __attribute__((preserve_access_index));

/* arch/arm64/include/uapi/asm/ptrace.h: exception level 0 is user mode, of 64-bit or of 32-bit code. */
#define PSR_MODE_MASK 0xf
#define PSR_MODE_EL0t 0x0
#define PSR_MODE32_BIT 0x10

/* AAPCS64, section 6.4.5: no function may use memory below the stack pointer. */
#define ARCH_RED_ZONE_BYTES 0

#define REGS_IP(user) ((user).pc)
#define REGS_SP(user) ((user).sp)
#define REGS_FP(user) ((user).regs[29])
#define REGS_IN_KERNEL(user) (((user).pstate & PSR_MODE_MASK) != PSR_MODE_EL0t)
#define REGS_ARE_32(user) ((user).pstate & PSR_MODE32_BIT)

/* All kinds of exceptions are masked until the registers are saved: kernel_entry in arch/arm64/kernel/entry.S. */
#define ARE_REGS_UNSAVED(sp, saved) ((void)(sp), (void)(saved), false)

/* Address of a thread's control block in the C library; the thread's stack ends below it. */
#define THREAD_BASE(task) ((task)->thread.uw.tp_value)

/*
 * Where the kernel puts struct rt_sigframe on an alternate stack: below a frame record, at a multiple of 16 bytes, and
 * further down if the SVE or SME state does not fit in it. get_sigframe and struct rt_sigframe in
 * arch/arm64/kernel/signal.c, struct sigcontext in arch/arm64/include/uapi/asm/sigcontext.h.
 */
#define SIGNAL_FRAME_STEP 16
#define SIGNAL_FRAME_PLACES 1024
/* clang-format would take (end) for a cast. */
/* clang-format off */
#define FIRST_UC_STACK(end) ((((end) - 16) & ~15ULL) - 4688 + 144)
/* clang-format on */
/* From uc_stack to uc_mcontext's sp. */
#define UC_STACK_TO_SP 416

/* 32-bit code has no reliable frame records. */
#define WALKS_32 false

/* The address bits of a return address: the others contain a tag and a signature (pointer authentication). */
const volatile __u64 code_mask = 0x0000ffffffffffff;
#define CODE_ADDRESS(word) (code_mask & (word))

#endif
