/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Waits: how long a thread was off its CPU because it was blocked, with the stack that blocked.
 *
 *   sched_switch          the thread is still the current one: only the time is noted
 *   ...                   blocked, then runnable until it has a CPU
 *   sched_exit            it is the current one again, on whatever CPU, and its memory can be read: its stacks are what
 *                         they were, the kernel's too, and how long it took is known. So a wait that is too short to be
 *                         of interest costs two looks into a table, and no copy.
 *
 * What is blocked already when the recording begins is looked up then, and what still is when it ends, too: its stacks
 * are read by user space, as long as it has not run meanwhile.
 *
 * The two above run where the kernel does not switch threads, so that they never meet on a CPU; but a program that samples may
 * interrupt the second. Waits have control blocks and rings of their own.
 */
#ifndef FPPROF_OFF_CPU_H
#define FPPROF_OFF_CPU_H

/* include/linux/sched.h: the thread ends and is not coming back. */
#define TASK_DEAD 0x00000080

/* The current CPU's control block and ring for waits. */
static __always_inline bool find_wait_memory(struct loop_context *context, __u32 *cpu)
{
	*cpu = bpf_get_smp_processor_id();
	return find_memory(context, first_wait_ring + *cpu);
}

/* A profiled thread leaves its CPU. Kernel threads wait for work all their time, and have no user stack. */
SEC("tp_btf/sched_switch")
int BPF_PROG(note_wait, bool preempt, struct task_struct *prev, struct task_struct *next,
	     unsigned int prev_state)
{
	struct wait *wait, new_wait = {};
	struct loop_context context;
	__u32 tid = prev->pid, cpu;

	if ((prev_state & TASK_DEAD) || has_no_user_side(prev) || !is_target(prev))
		return 0;
	if (!find_wait_memory(&context, &cpu))
		return 0;
	wait = bpf_map_lookup_elem(&waits, &tid);
	if (preempt || !prev_state) {
		context.control->counters[COUNT_FIRED]++;
		context.control->counters[COUNT_SKIPPED_PREEMPTED]++;
		/* begin_waits may have found it blocked the moment before it ran. */
		if (wait)
			wait->since_ns = 0;
		return 0;
	}
	if (wait && wait->start_boottime == prev->start_boottime) {
		wait->run_ns = prev->se.sum_exec_runtime;
		wait->since_ns = bpf_ktime_get_ns();
		return 0;
	}
	new_wait.start_boottime = prev->start_boottime;
	new_wait.run_ns = prev->se.sum_exec_runtime;
	new_wait.since_ns = bpf_ktime_get_ns();
	if (bpf_map_update_elem(&waits, &tid, &new_wait, BPF_ANY)) {
		context.control->counters[COUNT_FIRED]++;
		lose(context.control, COUNT_LOST_TABLE_FULL, GAP_TABLE_FULL);
	}
	return 0;
}

/* A thread has its CPU back. */
SEC("tp_btf/sched_exit_tp")
int BPF_PROG(take_wait, bool is_switch)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct loop_context context;
	__u32 tid = task->pid, cpu;
	__u64 since_ns, now_ns;
	struct wait *wait;

	wait = bpf_map_lookup_elem(&waits, &tid);
	if (!wait || !wait->since_ns || wait->start_boottime != task->start_boottime)
		return 0;
	if (!find_wait_memory(&context, &cpu))
		return 0;
	since_ns = wait->since_ns;
	wait->since_ns = 0;
	now_ns = bpf_ktime_get_ns();
	if (now_ns - since_ns < least_wait_ns) {
		context.control->counters[COUNT_FIRED]++;
		context.control->counters[COUNT_SKIPPED_SHORT]++;
		context.control->counters[COUNT_SHORT_NS] += now_ns - since_ns;
		return 0;
	}
	take(ctx, &context, cpu, true, now_ns - since_ns);
	return 0;
}

/*
 * The threads that are blocked when the recording begins: they wait from then on. Tells user space the tid of each for
 * which there is no room.
 */
SEC("iter/task")
int begin_waits(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct wait wait = {};
	__u32 tid;

	if (!task || task->on_cpu || !task->__state || (task->__state & TASK_DEAD))
		return 0;
	if (has_no_user_side(task) || !is_target(task))
		return 0;
	tid = task->pid;
	wait.start_boottime = task->start_boottime;
	wait.run_ns = task->se.sum_exec_runtime;
	wait.since_ns = bpf_ktime_get_ns();
	/* It may have blocked anew meanwhile, which is noted already. */
	if (bpf_map_update_elem(&waits, &tid, &wait, BPF_NOEXIST) &&
	    !bpf_map_lookup_elem(&waits, &tid))
		bpf_seq_write(ctx->meta->seq, &tid, sizeof(tid));
	return 0;
}

/* What end_waits tells of one thread; it is run for one after the other. */
struct open_wait_record {
	struct open_wait wait;
	__u64 kernel[MAX_KERNEL_FRAMES];
};
struct open_wait_record open_wait_record;

/*
 * The threads that are blocked when the recording has ended, when nothing is sampled any more. The kernel leaves its
 * scheduler's functions out of the chain of a task that is not the current one.
 */
SEC("iter/task")
int end_waits(struct bpf_iter__task *ctx)
{
	struct open_wait *open = &open_wait_record.wait;
	struct task_struct *task = ctx->task;
	struct mm_struct *mm;
	struct wait *wait;
	__u64 chain_bytes;
	long bytes = 0;
	__u32 tid;

	if (!task)
		return 0;
	tid = task->pid;
	wait = bpf_map_lookup_elem(&waits, &tid);
	if (!wait || !wait->since_ns || wait->start_boottime != task->start_boottime)
		return 0;
	open->pid = task->tgid;
	open->tid = tid;
	open->since_ns = wait->since_ns;
	open->run_ns = wait->run_ns;
	open->fsbase = task->thread.fsbase;
	mm = has_no_user_side(task) ? NULL : task->mm;
	open->in_exec = mm && !mm->start_code;
	open->has_user = mm && !open->in_exec;
	bpf_probe_read_kernel(&open->regs, sizeof(open->regs), (void *)bpf_task_pt_regs(task));
	if (collect & COLLECT_KERNEL)
		bytes = bpf_get_task_stack(task, open_wait_record.kernel, KERNEL_ROOM, 0);
	if (bytes < 0)
		bytes = 0;
	chain_bytes = bytes;
	/* verifier: as in append_user */
	barrier_var(chain_bytes);
	if (chain_bytes > KERNEL_ROOM)
		chain_bytes = 0;
	open->n_kernel = chain_bytes / 8;
	open->is_blocked = !task->on_cpu && task->se.sum_exec_runtime == wait->run_ns;
	bpf_seq_write(ctx->meta->seq, &open_wait_record, sizeof(*open) + chain_bytes);
	return 0;
}

/* Its place in the table is free for others. */
static __always_inline void forget_wait(struct task_struct *task)
{
	__u32 tid = task->pid;
	struct wait *wait;

	if (!takes_waits)
		return;
	wait = bpf_map_lookup_elem(&waits, &tid);
	if (wait && wait->start_boottime == task->start_boottime)
		bpf_map_delete_elem(&waits, &tid);
}

#endif
