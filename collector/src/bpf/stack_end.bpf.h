/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The ends of stacks. */
#ifndef FPPROF_STACK_END_H
#define FPPROF_STACK_END_H

#include "abi.h"
#include "maps.bpf.h"

static long note_mapping(struct task_struct *task, struct vm_area_struct *vma, void *data)
{
	struct stack_mapping *found = data;

	found->start = vma->vm_start;
	found->end = vma->vm_end;
	return 0;
}

/* The CPU's cache entry for the thread. Several threads share one; the last wins. */
static __always_inline struct stack_mapping *mapping_of(struct cpu_control *control, __u32 tid)
{
	return &control->stack_mappings[tid & (STACK_MAPPINGS - 1)];
}

/* The mapping of a thread's stack as provided by user space; false if there is none. */
static __always_inline bool read_hint(struct task_struct *task, struct stack_mapping *found)
{
	__u32 slot = task->pid & (STACK_HINTS - 1);
	volatile struct stack_hint *hint = bpf_map_lookup_elem(&stack_hints, &slot);
	__u64 start_boottime, tid;

	if (!hint)
		return false;
	found->start = hint->start;
	found->end = hint->end;
	start_boottime = hint->start_boottime;
	tid = hint->tid;
	return hint->check == (found->start ^ found->end ^ start_boottime ^ tid) && tid == (__u32)task->pid &&
	       start_boottime == task->start_boottime;
}

/*
 * End of the mapping that contains sp; 0 if it cannot be determined. A look-up costs the CPU an interrupt to itself
 * (5-8 us), so it is made once for each thread and stack. Not kept in task storage: its allocation was not safe in an
 * NMI before 6.4.
 */
static __always_inline __u64 mapping_end(struct cpu_control *control, struct task_struct *task, __u64 sp)
{
	struct stack_mapping *known = mapping_of(control, task->pid), found = {};

	if (known->tid == (__u32)task->pid && known->start_boottime == task->start_boottime &&
	    known->start <= sp && sp < known->end)
		return known->end;
	if (bpf_find_vma(task, sp, note_mapping, &found, 0) &&
	    !(read_hint(task, &found) && found.start <= sp && sp < found.end))
		return 0;
	known->start = found.start;
	known->end = found.end;
	known->start_boottime = task->start_boottime;
	known->tid = task->pid;
	return found.end;
}

/*
 * First address above the stack that contains sp, and how that was determined (enum stack_end_source); 0 if unknown.
 * Unless `is_recorded`, it only sizes a copy to walk in. The main thread's stack extends down to where no mapping may
 * be for another guard gap; a frame bigger than that would fault anyway.
 */
static __always_inline __u64 find_stack_end(struct cpu_control *control, struct task_struct *task,
					    struct mm_struct *mm, __u64 sp, __u8 *source, bool is_recorded)
{
	__u64 alt = task->sas_ss_sp, alt_bytes = task->sas_ss_size, start = mm->start_stack, base, end;

	if (alt_bytes && sp - alt < alt_bytes) {
		*source = STACK_END_ALT_STACK;
		return alt + alt_bytes;
	}
	if (start - sp <= mm->stack_vm * PAGE_BYTES + STACK_GUARD_BYTES) {
		*source = STACK_END_START_STACK;
		return start;
	}
	base = THREAD_BASE(task);
	*source = STACK_END_UNKNOWN;
	if (!is_recorded)
		return base - sp < FIRST_WINDOW_BYTES ? base : 0;
	end = mapping_end(control, task, sp);
	if (!end)
		return 0;
	/* A new thread starts right there. */
	if (sp <= base && base <= end && end - base <= THREAD_BLOCK_BYTES) {
		*source = STACK_END_THREAD_BASE;
		return base;
	}
	*source = STACK_END_MAPPING;
	return end;
}

#endif
