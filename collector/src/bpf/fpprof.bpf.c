// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The programs: one takes samples, by what fires them, two of waits if asked for, three follow the profiled processes.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include "abi.h"
#include "compat.bpf.h"
#include "maps.bpf.h"
#include "capture.bpf.h"
#include "cgroup.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

const struct abi *unused_abi __attribute__((unused));

/*
 * Whether a tracked process is still the one that was meant: a number is free for others before follow_free sees the
 * process that had it.
 */
static __always_inline bool is_tracked(struct tracked *process, struct task_struct *task)
{
	__u64 start_boottime = filter == FILTER_THREADS ? task->start_boottime :
							  task->group_leader->start_boottime;

	if (!process || process->state != TRACKED_ACTIVE)
		return false;
	/* Put in by user space: the first that is seen. Other CPUs may write the same. */
	if (!process->start_boottime)
		process->start_boottime = start_boottime;
	return process->start_boottime == start_boottime;
}

static __always_inline bool is_excluded(__u32 pid)
{
	bool is_excluded = false;

#pragma unroll
	for (int i = 0; i < MAX_EXCLUDED; i++)
		is_excluded |= pid == excluded_pids[i];
	return is_excluded;
}

/* Whether a thread is to be profiled. */
static __always_inline bool is_target(struct task_struct *task)
{
	__u32 pid = task->tgid, tid = task->pid, key = filter == FILTER_THREADS ? tid : pid;

	if (!tid)
		return false;
	if (filter == FILTER_SYSTEM)
		return !is_excluded(pid);
	if (filter == FILTER_CGROUP)
		return !is_excluded(pid) && is_in_cgroup(task);
	return is_tracked(bpf_map_lookup_elem(&tracked, &key), task);
}

/* Counts a tick that is not to be sampled. */
static __always_inline bool is_wanted(struct cpu_control *control, __u64 pid_tid)
{
	bool has_self = filter == FILTER_SYSTEM || filter == FILTER_CGROUP;

	if (is_target(bpf_get_current_task_btf()))
		return true;
	if (!pid_tid)
		control->counters[COUNT_SKIPPED_IDLE]++;
	else if (has_self && is_excluded(pid_tid >> 32))
		control->counters[COUNT_SKIPPED_SELF]++;
	else
		control->counters[COUNT_SKIPPED_UNTRACKED]++;
	return false;
}

/* Hands the record over, and wakes the reader when the ring passes the mark. */
static __always_inline void publish(struct cpu_control *control, __u8 *part, __u32 cpu, __u64 bytes)
{
	struct place *place = &control->place;
	__u64 left = part_bytes - place->filled, grown = bytes < left ? bytes : left;
	__u64 end = place->filled + bytes;

	if (place->filled + grown >= hot_bytes && grown < left && place->free &&
	    place->used < ring_bytes / 4 && end <= part_room) {
		/*
		 * Tells the reader that no other record comes here. It looks only below the head it
		 * saw, which passes this word and the rest behind it in one step, after they are
		 * written: so what it finds behind a record is the next one or this, never what lay
		 * here before. Records are multiples of 8 bytes, as parts are: the word fits.
		 */
		*(__u64 *)(part + end) = 0;
		grown = left;
	}
	if (!place->filled) {
		control->order[(control->head >> part_shift) & (MAX_PARTS - 1)] = place->part;
		control->taken ^= 1ULL << (place->part & (MAX_PARTS - 1));
	}
	control->counters[COUNT_BYTES] += bytes;
	/* A full barrier: what was written before must be seen before the new head. */
	__sync_lock_test_and_set(&control->head, control->head + grown);
	if (place->used < wakeup_bytes && place->used + grown >= wakeup_bytes)
		bpf_ringbuf_output(&doorbell, &cpu, sizeof(cpu), BPF_RB_FORCE_WAKEUP);
}

/*
 * Where a program of this CPU counts and writes. Every CPU has a place to count; one that came online later than the rings
 * were made has no ring.
 */
static __always_inline bool find_memory(struct loop_context *context, __u32 cpu, __u32 event)
{
	__u32 number = event * n_possible_cpus + cpu;

	if (cpu >= n_possible_cpus)
		return false;
	context->has_ring = cpu < n_ring_cpus;
	context->first_part = (event * n_ring_cpus + cpu) * n_parts;
	context->control = bpf_map_lookup_elem(&controls, &number);
	return context->control;
}

/* Finds where the next record goes; false when there is no room. */
static __always_inline bool find_part(struct loop_context *context)
{
	struct cpu_control *control = context->control;
	__u32 number;

	if (!context->has_ring || !find_place(control))
		return false;
	number = context->first_part + control->place.part;
	context->part = bpf_map_lookup_elem(&parts, &number);
	return context->part;
}

/* Writes a record of the current thread and hands it over; false when there is no room. `ctx` is the running program's own. */
static __always_inline bool write_record(void *ctx, struct loop_context *context, __u32 cpu, __u16 flags,
					 __u64 weight)
{
	__u64 pid_tid = bpf_get_current_pid_tgid(), pos, bytes = sizeof(struct sample_head);
	struct cpu_control *control = context->control;
	struct task_struct *task;
	struct sample_head *head;
	struct mm_struct *mm;

	if (!find_part(context))
		return false;
	find_room(control);
	/*
	 * verifier: what goes through a map is any number (seen on 6.18). The bound holds of the register that is compared,
	 * and not of a copy made before (6.1): hence the barrier.
	 */
	pos = *(volatile __u64 *)&control->place.filled;
	if (pos > part_bytes)
		return false;
	barrier_var(pos);
	head = (struct sample_head *)(context->part + pos);
	begin_record(control, head, flags, pid_tid, weight);
	task = bpf_get_current_task_btf();
	head->start_boottime = task->start_boottime;
	mm = task->mm;
	if (!mm || has_no_user_side(task))
		head->flags &= ~SAMPLE_ENTERING_KERNEL;
	else if (!(flags & SAMPLE_ENTERING_KERNEL))
		bytes += append_user(context, head, pos, task, mm);
	if ((flags & SAMPLE_IN_KERNEL) && (collect & COLLECT_KERNEL))
		bytes += append_kernel(ctx, context, head, pos + bytes);
	bytes += append_gaps(context, head, pos + bytes);
	head->total_bytes = bytes;
	publish(control, context->part, cpu, bytes);
	return true;
}

/* Counts what became of a sample. */
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

/* Each overflow of a counter: hardware, or one of the kernel's own. */
SEC("perf_event")
int take_sample(struct bpf_perf_event_data *ctx)
{
	__u64 sp = REGS_SP(ctx->regs), saved = bpf_task_pt_regs(bpf_get_current_task_btf());
	__u32 cpu = bpf_get_smp_processor_id();
	struct loop_context context;
	__u16 flags = 0;

	if (!find_memory(&context, cpu, EVENT_SAMPLED))
		return 0;
	if (REGS_IN_KERNEL(ctx->regs))
		flags = ARE_REGS_UNSAVED(sp, saved) ? SAMPLE_IN_KERNEL | SAMPLE_ENTERING_KERNEL : SAMPLE_IN_KERNEL;
	context.control->counters[COUNT_PERIODS] += ctx->sample_period;
	take(ctx, &context, cpu, flags, ctx->sample_period);
	return 0;
}

/* Each hit of a tracepoint, on any CPU. The kernel never runs one such program inside another. */
SEC("tracepoint")
int take_tracepoint(void *ctx)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct loop_context context;

	if (find_memory(&context, cpu, EVENT_SAMPLED) && ++context.control->hits % tick_hits == 0)
		take(ctx, &context, cpu, SAMPLE_IN_KERNEL, tick_hits);
	return 0;
}

/*
 * Each hit of a probe in a program. Another thread may run meanwhile, on this CPU, and hit one too: that tick is lost.
 * It touches nothing that this one may be about to write back.
 */
SEC("uprobe")
int take_probe(struct pt_regs *ctx)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct loop_context context;

	if (!find_memory(&context, cpu, EVENT_SAMPLED))
		return 0;
	if ((__sync_fetch_and_add(&context.control->hits, 1) + 1) % tick_hits)
		return 0;
	if (__sync_lock_test_and_set(&context.control->is_busy, 1)) {
		__sync_fetch_and_add(&context.control->counters[COUNT_LOST_NESTED], 1);
		return 0;
	}
	take(ctx, &context, cpu, 0, tick_hits);
	__sync_lock_test_and_set(&context.control->is_busy, 0);
	return 0;
}

#include "off_cpu.bpf.h"

/* The child of a profiled process is profiled from before it first runs. */
SEC("tp_btf/sched_process_fork")
int BPF_PROG(follow_fork, struct task_struct *parent, struct task_struct *child)
{
	__u32 cpu = bpf_get_smp_processor_id(), parent_pid = parent->tgid, pid = child->tgid;
	struct tracked *process, entry = { .state = TRACKED_ACTIVE };
	struct cpu_control *control;

	if (pid == parent_pid)
		return 0;
	process = bpf_map_lookup_elem(&tracked, &parent_pid);
	if (!is_tracked(process, parent))
		return 0;
	entry.start_boottime = child->start_boottime;
	if (bpf_map_update_elem(&tracked, &pid, &entry, BPF_ANY)) {
		control = bpf_map_lookup_elem(&controls, &cpu);
		if (control)
			control->counters[COUNT_TRACKED_FULL]++;
	}
	return 0;
}

/* A command is profiled from the exec that starts it: what ran before was fpprof. */
SEC("tp_btf/sched_process_exec")
int BPF_PROG(follow_exec, struct task_struct *task)
{
	__u32 pid = task->tgid;
	struct tracked *process = bpf_map_lookup_elem(&tracked, &pid);

	if (process && process->state == TRACKED_UNTIL_EXEC)
		process->state = TRACKED_ACTIVE;
	return 0;
}

/* Not sched_process_exit: the time a process or thread takes to die is its own. */
SEC("tp_btf/sched_process_free")
int BPF_PROG(follow_free, struct task_struct *task)
{
	__u32 pid = task->pid;
	struct tracked *process;

	forget_wait(task);
	if (filter != FILTER_THREADS && task->pid != task->tgid)
		return 0;
	process = bpf_map_lookup_elem(&tracked, &pid);
	if (process &&
	    (!process->start_boottime || process->start_boottime == task->start_boottime))
		bpf_map_delete_elem(&tracked, &pid);
	return 0;
}
