/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * One step of the walk by call frame information. It accesses memory and rules only through macros, so that it
 * compiles for the host too:
 *   __u32 FIND_RULE(reader, __u64 address, __u64 *rule)
 *     the rule of the code at address; CFI_END_NONE if there is one, else why not
 *   int READ_PAIR(reader, __u64 pair[2], __u64 address)
 *     two words of the program at address; 0 if they could be read
 *   int READ_FAR_PAIR(reader, __u64 pair[2], __u64 address)
 *     the same, where they are not expected next to what was read before
 *   int READ_CODE(reader, __u64 *code, __u64 address)
 *     the eight bytes of a file's code before a return address: 0 if they could be read, 1 if the address is not one of
 *     executable memory, else -1. In the kernel, the mapping must have been found before.
 *   void FIND_MAPPING(reader, __u64 address)
 *     finds it
 *
 * A step may also return CFI_NEEDS_END; the caller provides that, and repeats the step. Calls from within the step
 * would take more stack than BPF programs have (seen on 6.1).
 *
 * Rules are those of unwind/src/rule.rs (x86-64): how ip, sp and fp of the caller are found.
 *
 *   bits 0-3    kind: 8 CFA = sp + offset, 9 CFA = fp + offset, 1 lazy PLT entry, 3 stop, 4 signal frame, 5
 *               JIT-compiled code, which belongs to no file (RULE_JIT, from FIND_RULE); others need more registers
 *   bit  4      fp was saved
 *   bit  5      fp has its value back if its slot is below sp
 *   bit  6      code of the entry point, if the reason of a stop is RULE_NO_CFI
 *   bits 8-15   reason of a stop: the first RULE_ROOTS are root frames
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

#define RULE_KIND(rule) (RULE_KIND_MASK & (rule))
#define RULE_STOP_REASON(rule) (((rule) >> RULE_STOP_SHIFT) & 255)
#define RULE_FP_OFFSET(rule) \
	(((__s64)((rule) << (64 - RULE_CFA_SHIFT)) >> (64 - RULE_CFA_SHIFT + RULE_FP_SHIFT)) * 8)
#define RULE_CFA_OFFSET(rule) ((__s64)(rule) >> RULE_CFA_SHIFT)
/*
 * The first address above the stack that contains walk->first_sp is needed, in walk->stack_end, 0 if unknown; and calls
 * of scan_word for the first n_words(walk) words from sp up.
 */
#define CFI_NEEDS_END 254
/* A walk is continued once. */
#define CFI_ROUNDS 2
/* Offsets in struct ucontext, arch/x86/include/uapi/asm/{ucontext,sigcontext}.h; ip follows sp, and fp follows rsi. */
#define UCONTEXT_RSI 112
#define UCONTEXT_SP 160

/* 1 if two bytes are equal, else 0. verifier: `==` would be a branch. */
#define IS_SAME(one, other) ((((__u64)(one) ^ (other)) - 1) >> 63)

/*
 * Whether eight bytes of code end with a call: the opcode E8, or FF /2 with an operand of any length. As ends_with_call
 * in unwind/src/arch/x86_64.rs.
 *
 * verifier: follows a global function once, not for each path to a call of it; and branches would be many paths.
 */
__noinline bool ends_with_call(__u64 code)
{
	__u64 is_call = IS_SAME((code >> 24) & 255, 0xe8), i;

	for (i = 2; i <= 7; i++) {
		__u64 opcode = (code >> (64 - 8 * i)) & 255, operand = (code >> (72 - 8 * i)) & 255;
		__u64 scale = i > 2 ? (code >> ((80 - 8 * i) & 63)) & 255 : 0;
		__u64 mode = operand >> 6, is_scaled = IS_SAME(operand & 7, 4);
		__u64 has_no_base = IS_SAME(operand & 7, 5) | (is_scaled & IS_SAME(scale & 7, 5));
		__u64 bytes = 2 + (is_scaled & ~IS_SAME(mode, 3)) + IS_SAME(mode, 1) +
			      4 * (IS_SAME(mode, 2) | (IS_SAME(mode, 0) & has_no_base));

		is_call |= IS_SAME(opcode, 0xff) & IS_SAME((operand >> 3) & 7, 2) & IS_SAME(bytes, i);
		barrier_var(is_call);
	}
	return is_call;
}

/*
 * The caller of a frame without rows by its frame pointer, as follow_frame_pointer in unwind/src/unwinder/fallback.rs.
 * Whether the word above it is a return address is checked with the next step.
 */
static __always_inline __u32 frame_pointer_step(struct cfi_walk *walk, void *reader)
{
	__u64 fp = walk->fp, end = walk->stack_end;

	if (fp < walk->sp || (fp & 7) || fp > end || end - fp < 16)
		return CFI_MISS_NO_CALLER;
	if (READ_PAIR(reader, walk->pair, fp))
		return CFI_MISS_UNREADABLE;
	walk->is_scanned = 0;
	walk->frame.cfa |= fp + 16;
	walk->sp = fp + 16;
	walk->fp = walk->pair[0];
	walk->ip = walk->pair[1];
	walk->is_caller = 1;
	walk->found_by = CFI_FRAME_BY_FP;
	return CFI_END_NONE;
}

/* The words from sp to the end of the stack, if it is near. */
static __always_inline __u32 n_words(struct cfi_walk *walk)
{
	__u64 bytes = walk->stack_end - walk->sp;

	return bytes <= MAX_START_BYTES ? bytes / 8 : 0;
}

/* Prepares calls of scan_word. */
static __always_inline void begin_scan(struct cfi_walk *walk)
{
	walk->n_found = 0;
	walk->found_at = 0;
	walk->is_scanned = 1;
}

/* Notes whether the nth word from sp up can be a return address; non-zero if that is not known. */
static __always_inline long scan_word(struct cfi_walk *walk, void *reader, __u32 n)
{
	int is_unread = READ_FAR_PAIR(reader, walk->below_cfa, walk->sp + n * 8ULL - 8);

	if (!is_unread) {
		FIND_MAPPING(reader, walk->below_cfa[1] - 1);
		is_unread = READ_CODE(reader, &walk->pair[0], walk->below_cfa[1]);
	}
	if (is_unread < 0 || (!is_unread && ends_with_call(walk->pair[0]))) {
		walk->return_address = walk->below_cfa[1];
		walk->found_at = n;
		walk->n_found++;
	}
	/* Two are as bad as one that is unknown. */
	if (is_unread < 0)
		walk->n_found++;
	return is_unread < 0;
}

/*
 * The caller of a frame without rows just below the end of its stack, as in unwind/src/unwinder/outermost.rs: the entry
 * point has none, and is that of another frame if only the last word can be a return address.
 */
static __always_inline __u32 start_step(struct cfi_walk *walk, __u64 rule)
{
	__u64 end = walk->stack_end;

	if (walk->n_between || ((walk->sp | end) & 7))
		return CFI_MISS_NO_CALLER;
	if (!n_words(walk))
		begin_scan(walk);
	if (!walk->is_scanned)
		return CFI_NEEDS_END;
	walk->is_scanned = 0;
	if ((rule & RULE_AT_ENTRY) && !walk->n_found)
		return CFI_END_START;
	if ((rule & RULE_AT_ENTRY) || walk->found_by == CFI_FRAME_AT_END || walk->n_found != 1 ||
	    walk->found_at + 1 != n_words(walk))
		return CFI_MISS_NO_CALLER;
	walk->frame.cfa |= end;
	walk->sp = end;
	walk->fp = 0;
	walk->ip = walk->return_address;
	walk->is_caller = 1;
	walk->found_by = CFI_FRAME_AT_END;
	return CFI_END_NONE;
}

/*
 * The step from code without rows: JIT-compiled code, start code, and other code that JIT-compiled code has called,
 * with only such code in between. The unwinder looks ahead for that (is_of_jit in unwind/src/unwinder/fallback.rs); this
 * walk goes on, and misses if there is none.
 */
static __always_inline __u32 step_without_rows(struct cfi_walk *walk, void *reader, __u64 rule)
{
	__u64 end = walk->stack_end;

	if (!walk->has_stack_end)
		return CFI_NEEDS_END;
	if (RULE_KIND(rule) == RULE_JIT) {
		walk->n_between = 0;
		return frame_pointer_step(walk, reader);
	}
	if (!end || (walk->sp > end && walk->sp - end > MAX_ARGUMENT_BYTES))
		return CFI_MISS_NO_CALLER;
	if (walk->sp > end || end - walk->sp <= MAX_START_BYTES)
		return start_step(walk, rule);
	if ((walk->found_by != CFI_FRAME_BY_FP || walk->n_between) && ++walk->n_between > MAX_BETWEEN)
		return CFI_MISS_NO_CALLER;
	return frame_pointer_step(walk, reader);
}

/* Whether a frame that was not found by a row can be there. */
static __always_inline bool is_plausible(struct cfi_walk *walk, void *reader, __u64 rule, bool has_rows)
{
	if (walk->found_by == CFI_FRAME_AT_END)
		return !has_rows && (rule & RULE_AT_ENTRY);
	/* In JIT-compiled code, any address may be a return address. */
	if (RULE_KIND(rule) == RULE_JIT)
		return true;
	return !(has_rows && walk->n_between) && !READ_CODE(reader, &walk->pair[0], walk->ip) &&
	       ends_with_call(walk->pair[0]);
}

/* The step from a signal frame to the interrupted one; otherwise as cfi_step. */
static __always_inline __u32 signal_step(struct cfi_walk *walk, void *reader)
{
	__u64 sp = walk->sp;

	/* The interrupted code may use another stack, so its sp is not compared with this one. */
	if (READ_FAR_PAIR(reader, walk->below_cfa, sp + UCONTEXT_SP) ||
	    READ_FAR_PAIR(reader, walk->pair, sp + UCONTEXT_RSI))
		return CFI_MISS_UNREADABLE;
	if ((walk->below_cfa[0] & 7) || !walk->below_cfa[0] || walk->below_cfa[0] == sp)
		return CFI_MISS_NOT_ASCENDING;
	walk->frame.cfa |= walk->below_cfa[0];
	walk->sp = walk->below_cfa[0];
	walk->ip = walk->below_cfa[1];
	walk->fp = walk->pair[1];
	walk->is_caller = 0;
	walk->first_sp = walk->sp;
	walk->has_stack_end = 0;
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
	bool has_rows;

	if (end != CFI_END_NONE)
		return end;
	walk->frame.address = ip;
	walk->frame.cfa = (!walk->is_caller) | walk->found_by;
	if (!(rule & RULE_SIMPLE) || walk->found_by) {
		has_rows = RULE_KIND(rule) != RULE_JIT &&
			   !(RULE_KIND(rule) == RULE_STOP && RULE_STOP_REASON(rule) == RULE_NO_CFI);
		if (walk->found_by && !is_plausible(walk, reader, rule, has_rows))
			return CFI_MISS_NO_CALLER;
		if (!has_rows)
			return step_without_rows(walk, reader, rule);
		walk->found_by = 0;
	}
	if (rule & RULE_SIMPLE)
		cfa = (rule & RULE_BY_FP ? fp : sp) + RULE_CFA_OFFSET(rule);
	else if (RULE_KIND(rule) == RULE_PLT)
		cfa = sp + ((__s64)(ip & 15) >= RULE_CFA_OFFSET(rule) ? 16 : 8);
	else if (RULE_KIND(rule) == RULE_STOP && RULE_STOP_REASON(rule) < RULE_ROOTS)
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
		if (fp_at < sp && (walk->is_caller || READ_FAR_PAIR(reader, walk->pair, fp_at))) {
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
	walk->frame.cfa |= cfa;
	walk->fp = fp;
	walk->sp = cfa;
	walk->ip = walk->below_cfa[1];
	walk->is_caller = 1;
	return CFI_END_NONE;
}

#endif
