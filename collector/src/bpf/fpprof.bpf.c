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

/* Whether a thread is to be profiled. */
static __always_inline bool is_target(struct task_struct *task)
{
	__u32 pid = task->tgid, tid = task->pid, key = filter == FILTER_THREADS ? tid : pid;

	if (!tid)
		return false;
	if (filter == FILTER_SYSTEM)
		return pid != excluded_pid;
	if (filter == FILTER_CGROUP)
		return pid != excluded_pid && is_in_cgroup(task);
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
	else if (has_self && pid_tid >> 32 == excluded_pid)
		control->counters[COUNT_SKIPPED_SELF]++;
	else
		control->counters[COUNT_SKIPPED_UNTRACKED]++;
	return false;
}

/* Hands the record over, and wakes the reader when the ring passes the mark. */
static __always_inline void publish(struct cpu_control *control, __u8 *ring, __u32 cpu, __u64 bytes)
{
	struct place *place = &control->place;
	__u64 left = part_bytes - place->filled, grown = bytes < left ? bytes : left;
	__u64 end = place->pos + bytes;

	if (place->filled + grown >= hot_bytes && grown < left && place->free &&
	    place->used < ring_bytes / 4 && end <= ring_room) {
		/*
		 * Tells the reader that no other record comes here. It looks only below the head it
		 * saw, which passes this word and the rest behind it in one step, after they are
		 * written: so what it finds behind a record is the next one or this, never what lay
		 * here before. Records are multiples of 8 bytes, as parts are: the word fits.
		 */
		*(__u64 *)(ring + end) = 0;
		grown = left;
	}
	if (!place->filled) {
		control->order[(control->head >> part_shift) & (MAX_PARTS - 1)] = place->part;
		control->taken ^= 1ULL << (place->part & (MAX_PARTS - 1));
	}
	control->counters[COUNT_RECORDED]++;
	control->counters[COUNT_BYTES] += bytes;
	/* A full barrier: what was written before must be seen before the new head. */
	__sync_lock_test_and_set(&control->head, control->head + grown);
	if (place->used < wakeup_bytes && place->used + grown >= wakeup_bytes)
		bpf_ringbuf_output(&doorbell, &cpu, sizeof(cpu), BPF_RB_FORCE_WAKEUP);
}

/* Where a program of this CPU counts and writes; without the one or the other there is nothing to count in. */
static __always_inline bool find_memory(struct loop_context *context, __u32 number)
{
	context->control = bpf_map_lookup_elem(&controls, &number);
	context->ring = bpf_map_lookup_elem(&rings, &number);
	return context->control && context->ring;
}

/* Takes a sample of the current thread. `ctx` is the running program's own. */
static __always_inline void take(void *ctx, struct loop_context *context, __u32 cpu, bool in_kernel,
				 __u64 weight)
{
	__u64 pid_tid = bpf_get_current_pid_tgid(), pos, bytes, nested;
	struct cpu_control *control = context->control;
	struct sample_head *head;
	struct task_struct *task;
	struct mm_struct *mm;
	bool has_place;

	control->counters[COUNT_FIRED]++;
	if (!is_wanted(control, pid_tid))
		return;
	has_place = find_place(control);
	/*
	 * verifier: what goes through a map is any number (seen on 6.18): it must be told the bounds,
	 * and does not follow every way it came about
	 */
	pos = *(volatile __u64 *)&control->place.pos;
	if (!has_place || pos > last_pos) {
		lose(control, COUNT_LOST_RING_FULL, GAP_RING_FULL);
		return;
	}
	find_room(control);
	head = (struct sample_head *)(context->ring + pos);
	__builtin_memset(head, 0, sizeof(*head) - sizeof(head->regs));
	head->flags = in_kernel ? SAMPLE_IN_KERNEL : 0;
	head->time_ns = bpf_ktime_get_ns();
	head->pid = pid_tid >> 32;
	head->tid = (__u32)pid_tid;
	head->weight = weight;
	/* What a probe lost inside another one's program is counted there alone, see take_probe. */
	nested = *(volatile __u64 *)&control->counters[COUNT_LOST_NESTED];
	head->cpu_fired = control->counters[COUNT_FIRED] + nested;
	head->cpu_lost = control->counters[COUNT_LOST_RING_FULL] +
			 control->counters[COUNT_LOST_TABLE_FULL] + nested;
	bytes = sizeof(*head);
	task = bpf_get_current_task_btf();
	mm = task->mm;
	if (mm && !has_no_user_side(task))
		bytes += append_user(context, head, pos, task, mm);
	if (in_kernel && (collect & COLLECT_KERNEL))
		bytes += append_kernel(ctx, context, head, pos + bytes);
	bytes += append_gaps(context, head, pos + bytes);
	head->total_bytes = bytes;
	publish(control, context->ring, cpu, bytes);
}

/* Each overflow of a counter: hardware, or one of the kernel's own. */
SEC("perf_event")
int take_sample(struct bpf_perf_event_data *ctx)
{
	bool in_kernel = !(ctx->regs.cs & 3);
	__u32 cpu = bpf_get_smp_processor_id();
	struct loop_context context;

	if (find_memory(&context, cpu))
		take(ctx, &context, cpu, in_kernel, ctx->sample_period);
	return 0;
}

/* Each hit of a tracepoint, on any CPU. The kernel never runs one such program inside another. */
SEC("tracepoint")
int take_tracepoint(void *ctx)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct loop_context context;

	if (find_memory(&context, cpu) && ++context.control->hits % tick_hits == 0)
		take(ctx, &context, cpu, true, tick_hits);
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

	if (!find_memory(&context, cpu))
		return 0;
	if ((__sync_fetch_and_add(&context.control->hits, 1) + 1) % tick_hits)
		return 0;
	if (__sync_lock_test_and_set(&context.control->is_busy, 1)) {
		__sync_fetch_and_add(&context.control->counters[COUNT_LOST_NESTED], 1);
		return 0;
	}
	take(ctx, &context, cpu, false, tick_hits);
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
