/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Taking a sample: writing a record of the current thread, and counting the outcome. */
#ifndef FPPROF_SAMPLE_H
#define FPPROF_SAMPLE_H

#include "abi.h"
#include "capture.bpf.h"
#include "maps.bpf.h"
#include "ring.bpf.h"
#include "target.bpf.h"

/*
 * Writes a record of the current thread and publishes it; false if there is no room. `ctx` is the running program's
 * own.
 */
static __always_inline bool write_record(void *ctx, struct loop_context *context, __u32 cpu, __u16 flags,
					 __u64 weight)
{
	__u64 pid_tid = bpf_get_current_pid_tgid(), pos, bytes = sizeof(struct sample_head);
	struct cpu_control *control = context->control;
	struct task_struct *task;
	struct sample_head *head;
	struct mm_struct *mm;

	if (!find_segment(context))
		return false;
	find_room(control);
	/*
	 * verifier: a value that went through a map is unknown (seen on 6.18). The bound holds for the register that
	 * is compared, and not for an earlier copy of it (6.1): hence the barrier.
	 */
	pos = *(volatile __u64 *)&control->slot.filled;
	if (pos > segment_bytes)
		return false;
	barrier_var(pos);
	head = (struct sample_head *)(context->segment + pos);
	begin_record(control, head, flags, pid_tid, weight);
	task = bpf_get_current_task_btf();
	head->start_boottime = task->start_boottime;
	mm = task->mm;
	if (!mm || has_no_user_side(task))
		head->flags &= ~SAMPLE_ENTERING_KERNEL;
	else if (!(flags & SAMPLE_ENTERING_KERNEL))
		bytes += any_number(control, append_user(context, head, pos, task, mm));
	if ((flags & SAMPLE_IN_KERNEL) && (collect & COLLECT_KERNEL))
		bytes += append_kernel(ctx, context, head, pos + bytes);
	bytes += append_gaps(context, head, pos + bytes);
	head->total_bytes = bytes;
	publish(control, context->segment, cpu, bytes);
	return true;
}

/* Counts the outcome of a sample. */
static __always_inline void count_sample(struct loop_context *context, bool is_written)
{
	struct cpu_control *control = context->control;

	if (is_written)
		control->counters[COUNT_RECORDED]++;
	else if (context->has_ring)
		lose(control, COUNT_LOST_RING_FULL, GAP_RING_FULL);
	else
		lose(control, COUNT_LOST_NO_RING, GAP_NO_RING);
}

/* Takes a sample of the current thread. */
static __always_inline void take(void *ctx, struct loop_context *context, __u32 cpu, __u16 flags,
				 __u64 weight)
{
	context->control->counters[COUNT_FIRED]++;
	if (is_wanted(context->control, bpf_get_current_pid_tgid()))
		count_sample(context, write_record(ctx, context, cpu, flags, weight));
}

#endif
