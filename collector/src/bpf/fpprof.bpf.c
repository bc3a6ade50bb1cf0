// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The programs: one of three takes samples, depending on the event; two sample waits if requested; three follow the
 * profiled processes.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include "abi.h"
#include "maps.bpf.h"
#include "off_cpu.bpf.h"
#include "ring.bpf.h"
#include "sample.bpf.h"
#include "target.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

const struct abi *unused_abi __attribute__((unused));

/* Runs at each overflow of a hardware or software counter. */
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
		flags = ARE_REGS_UNSAVED(sp, saved) ? SAMPLE_IN_KERNEL | SAMPLE_ENTERING_KERNEL
						    : SAMPLE_IN_KERNEL;
	context.control->counters[COUNT_PERIODS] += ctx->sample_period;
	take(ctx, &context, cpu, flags, ctx->sample_period);
	return 0;
}

/* Runs at each hit of a tracepoint, on any CPU. The kernel never nests such programs. */
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
 * Runs at each hit of a uprobe. It can be preempted by another thread on this CPU that also hits a probe: that tick is
 * lost. The nested program changes nothing that the first one may be about to write back.
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
int BPF_PROG(follow_exec, struct task_struct *task, pid_t old_tid)
{
	__u32 pid = task->tgid;
	struct tracked *process;

	if (old_tid != task->pid)
		forget_wait_of_tid(old_tid);
	process = bpf_map_lookup_elem(&tracked, &pid);
	if (process && process->state == TRACKED_UNTIL_EXEC)
		process->state = TRACKED_ACTIVE;
	return 0;
}

/* Not sched_process_exit: the time that a process or thread takes to exit belongs to it. */
SEC("tp_btf/sched_process_free")
int BPF_PROG(follow_free, struct task_struct *task)
{
	__u32 pid = task->pid;
	struct tracked *process;

	forget_wait(task);
	if (filter != FILTER_THREADS && task->pid != task->tgid)
		return 0;
	process = bpf_map_lookup_elem(&tracked, &pid);
	if (process && (!process->start_boottime || process->start_boottime == task->start_boottime))
		bpf_map_delete_elem(&tracked, &pid);
	return 0;
}
