/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The stack that a thread was on before it switched to its alternate signal stack (sigaltstack).
 *
 * When the kernel starts a handler on another stack, it saves the interrupted registers at that stack's upper end, in
 * a struct rt_sigframe:
 *
 *   end of the stack ──▶ extended state (x86), of a size that differs between processors and threads
 *                        siginfo, ucontext: uc_stack, uc_mcontext      further down if the state is larger
 *                        the handler's frames
 *                 sp ──▶
 */
#ifndef FPPROF_INTERRUPTED_H
#define FPPROF_INTERRUPTED_H

#include "abi.h"
#include "memory.bpf.h"
#include "stack_end.bpf.h"

/*
 * Checks the next possible address of the frame. The frame is identified by its uc_stack, in which the kernel saves
 * the arguments of sigaltstack.
 */
static long signal_frame_iteration(__u32 iteration, void *data)
{
	struct loop_context *context = data;
	struct signal_frame *search = &context->control->signal_frame;
	__u64 at = search->first - iteration * SIGNAL_FRAME_STEP, uc_stack[3];

	if (at < search->sp || at > search->first ||
	    bpf_probe_read_user(uc_stack, sizeof(uc_stack), (void *)at))
		return 1;
	if (uc_stack[0] != search->stack || uc_stack[2] != search->bytes)
		return 0;
	bpf_probe_read_user(&search->interrupted_sp, sizeof(__u64), (void *)(at + UC_STACK_TO_SP));
	return 1;
}

/* The stack pointer that the thread had on the stack it left; 0 if it is not found. */
static __always_inline __u64 interrupted_sp(struct loop_context *context, struct task_struct *task, __u64 sp)
{
	struct signal_frame *search = &context->control->signal_frame;

	search->stack = task->sas_ss_sp;
	search->bytes = task->sas_ss_size;
	search->sp = sp;
	search->first = FIRST_UC_STACK(search->stack + search->bytes);
	search->interrupted_sp = 0;
	bpf_loop(SIGNAL_FRAME_PLACES, signal_frame_iteration, context, 0);
	sp = search->interrupted_sp;
	return sp - search->stack < search->bytes ? 0 : sp;
}

/*
 * Appends the interrupted stack, within what is left after `asked` bytes of the current stack were wanted and `bytes`
 * copied: both stacks together have no more than max_chunk_bytes, and fit into the room. Returns the size. Copies page
 * by page, since the verifier cannot see that two chunks fit.
 */
static __always_inline __u64 append_interrupted(struct loop_context *context, struct sample_head *head,
						__u64 at, struct task_struct *task, struct mm_struct *mm,
						__u64 asked, __u64 bytes)
{
	__u64 sp = interrupted_sp(context, task, REGS_SP(head->regs)), room = context->control->slot.room;
	__u64 end, wanted, chunk_bytes = 0, n_hole_words = 0;
	struct interrupted *interrupted;

	/* verifier: as in read_window, and in write_record */
	if (!sp || at > segment_room)
		return 0;
	barrier_var(at);
	interrupted = (struct interrupted *)(context->segment + at);
	__builtin_memset(interrupted, 0, sizeof(*interrupted));
	at += sizeof(*interrupted);
	end = find_stack_end(context->control, task, mm, sp, &interrupted->stack_end_source, true);
	end = any_number(context->control, end);
	wanted = max_chunk_bytes - asked;
	if (end && end - sp < wanted)
		wanted = end - sp;
	room = room > bytes ? room - bytes : 0;
	if (wanted > room) {
		if (!head->asked_bytes)
			context->control->counters[COUNT_SHED]++;
		head->asked_bytes = asked + wanted;
		wanted = room;
	}
	if (wanted)
		chunk_bytes = copy_pages(context, sp - RED_ZONE_BYTES, wanted + RED_ZONE_BYTES, at, end);
	if (chunk_bytes > max_chunk_bytes + RED_ZONE_BYTES)
		chunk_bytes = max_chunk_bytes + RED_ZONE_BYTES;
	if (chunk_bytes && context->control->copy.n_holes)
		n_hole_words = append_holes(context, at + ALIGN8(chunk_bytes), chunk_bytes);
	interrupted->sp = sp;
	interrupted->stack_end = end;
	interrupted->chunk_bytes = chunk_bytes;
	interrupted->n_hole_words = n_hole_words;
	head->flags |= SAMPLE_HAS_INTERRUPTED;
	return sizeof(*interrupted) + ALIGN8(chunk_bytes) + n_hole_words * 8;
}

#endif
