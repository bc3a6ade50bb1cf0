/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * One step of the frame-pointer walk. It accesses memory only through READ_USER, so that it compiles for the host too:
 *   int READ_USER(reader, __u64 pair[2], __u64 address)
 *     two words of the program at address; 0 if they could be read
 *   __u64 CODE_ADDRESS(__u64 word)
 *     the address in a return address
 *
 * A frame is [saved frame pointer][return address] at the frame pointer:
 *
 *   higher   | return address |  frame_address + 8 (4 in 32-bit code)
 *            | saved fp       |  frame_address = fp
 *   lower    | locals ...     |
 */
#ifndef FPPROF_WALK_H
#define FPPROF_WALK_H

/* Finds the caller's frame; FP_END_NONE to continue, or why there is no caller (enum fp_end). */
static __always_inline __u32 fp_step(struct fp_walk *walk, void *reader, struct fp_frame *frame)
{
	__u64 pair[2] = {};
	__u64 fp = walk->fp;

	if (!fp)
		return FP_END_ZERO;
	if ((fp & (walk->is_32 ? 3 : 7)) || fp <= walk->last_fp)
		return FP_END_NOT_ASCENDING;
	if (READ_USER(reader, pair, fp))
		return FP_END_UNREADABLE;
	frame->address = CODE_ADDRESS(pair[1]);
	if (!frame->address)
		return FP_END_ZERO_RETURN_ADDRESS;
	frame->frame_address = fp;
	walk->last_fp = fp;
	walk->fp = pair[0];
	return FP_END_NONE;
}

#endif
