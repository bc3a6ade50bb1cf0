/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * One step of the walk by call frame information. It accesses memory and rules only through two macros, so that it
 * compiles for the host too:
 *   __u32 FIND_RULE(reader, __u64 address, __u64 *rule)
 *     the rule of the code at address; CFI_END_NONE if there is one, else why not
 *   int READ_PAIR(reader, __u64 pair[2], __u64 address)
 *     two words of the program at address; 0 if they could be read
 *
 * Rules are those of unwind/src/rule.rs (x86-64): how ip, sp and fp of the caller are found.
 *
 *   bits 0-3    kind: 8 CFA = sp + offset, 9 CFA = fp + offset, 1 lazy PLT entry, 3 stop, 4 signal frame; others need
 *               more registers
 *   bit  4      fp was saved
 *   bit  5      fp has its value back if its slot is below sp
 *   bits 8-15   reason of a stop: the first N_ROOTS are root frames
 *   bits 16-31  slot of the saved fp, words above the CFA, signed
 *   bits 32-63  offset of the CFA, bytes, signed; for a PLT entry, instruction offset from which on CFA = sp + 16
 *
 *   higher   |                |  cfa
 *            | return address |  cfa - 8
 *            | saved fp ...   |
 *   lower    |                |  sp
 */
#ifndef FPPROF_CFI_WALK_H
#define FPPROF_CFI_WALK_H

#define RULE_KIND(rule) (15 & (rule))
#define RULE_BY_FP 1
#define RULE_PLT 1
#define RULE_STOP 3
#define RULE_SIGNAL 4
#define RULE_SIMPLE 8
#define RULE_FP_SAVED (1 << 4)
#define RULE_FP_RESTORED (1 << 5)
#define RULE_STOP_REASON(rule) (((rule) >> 8) & 255)
#define RULE_FP_OFFSET(rule) (((__s64)((rule) << 32) >> 48) * 8)
#define RULE_CFA_OFFSET(rule) ((__s64)(rule) >> 32)
#define N_ROOTS CFI_END_G0
/* Offsets in struct ucontext, arch/x86/include/uapi/asm/{ucontext,sigcontext}.h; ip follows sp, and fp follows rsi. */
#define UCONTEXT_RSI 112
#define UCONTEXT_SP 160

/* The step from a signal frame to the interrupted one; otherwise as cfi_step. */
static __always_inline __u32 signal_step(struct cfi_walk *walk, void *reader)
{
	__u64 sp = walk->sp;

	/* The interrupted code may use another stack, so its sp is not compared with this one. */
	if (READ_PAIR(reader, walk->below_cfa, sp + UCONTEXT_SP) ||
	    READ_PAIR(reader, walk->pair, sp + UCONTEXT_RSI))
		return CFI_MISS_UNREADABLE;
	if ((walk->below_cfa[0] & 7) || !walk->below_cfa[0] || walk->below_cfa[0] == sp)
		return CFI_MISS_NOT_ASCENDING;
	walk->frame.cfa = walk->below_cfa[0] | !walk->is_caller;
	walk->sp = walk->below_cfa[0];
	walk->ip = walk->below_cfa[1];
	walk->fp = walk->pair[1];
	walk->is_caller = 0;
	return CFI_END_NONE;
}

/*
 * Finds the caller and stores the current frame in walk->frame; CFI_END_NONE to continue, or why there is no caller
 * (enum cfi_end). A root frame is stored, too, but no frame on a miss.
 */
static __always_inline __u32 cfi_step(struct cfi_walk *walk, void *reader)
{
	__u64 rule = 0, cfa, fp_at, sp = walk->sp, fp = walk->fp, ip = walk->ip;
	__u32 end = FIND_RULE(reader, ip - !!walk->is_caller, &rule);

	if (end != CFI_END_NONE)
		return end;
	walk->frame.address = ip;
	walk->frame.cfa = !walk->is_caller;
	if (rule & RULE_SIMPLE)
		cfa = (rule & RULE_BY_FP ? fp : sp) + RULE_CFA_OFFSET(rule);
	else if (RULE_KIND(rule) == RULE_PLT)
		cfa = sp + ((__s64)(ip & 15) >= RULE_CFA_OFFSET(rule) ? 16 : 8);
	else if (RULE_KIND(rule) == RULE_STOP && RULE_STOP_REASON(rule) < N_ROOTS)
		return RULE_STOP_REASON(rule) + 1;
	else if (RULE_KIND(rule) == RULE_SIGNAL)
		return signal_step(walk, reader);
	else
		return CFI_MISS_OTHER_REGISTERS;
	if ((cfa & 7) || cfa <= sp)
		return CFI_MISS_NOT_ASCENDING;
	if (READ_PAIR(reader, walk->below_cfa, cfa - 16))
		return CFI_MISS_UNREADABLE;
	if (rule & RULE_FP_SAVED) {
		fp_at = cfa + RULE_FP_OFFSET(rule);
		if (fp_at < sp && (walk->is_caller || READ_PAIR(reader, walk->pair, fp_at))) {
			/* A callee may have overwritten memory below sp. */
			if (!(rule & RULE_FP_RESTORED))
				return CFI_MISS_RED_ZONE;
		} else if (fp_at < sp) {
			fp = walk->pair[0];
		} else if (fp_at == cfa - 16) {
			fp = walk->below_cfa[0];
		} else if (READ_PAIR(reader, walk->pair, fp_at)) {
			return CFI_MISS_UNREADABLE;
		} else {
			fp = walk->pair[0];
		}
	}
	walk->frame.cfa = cfa | !walk->is_caller;
	walk->fp = fp;
	walk->sp = cfa;
	walk->ip = walk->below_cfa[1];
	walk->is_caller = 1;
	return CFI_END_NONE;
}

#endif
