/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Waits: how long a thread was blocked, off its CPU, with the stack that blocked.
 *
 * With sched_exit (Linux 6.15):
 *   sched_switch          the thread is still current: only the time is noted
 *   ...                   blocked, then runnable until it gets a CPU
 *   sched_exit            it is current again, on some CPU, and its memory can be read: its stacks are unchanged, the
 *                         kernel's too, and the length of the wait is known. So a wait that is too short to be sampled
 *                         costs two map lookups, and no copy.
 *
 * Without (stacks_at_block):
 *   sched_switch          the thread is still current: the time is noted and its stacks are copied, as a record with
 *                         SAMPLE_WAIT_BEGUN
 *   ...
 *   sched_switch to it    another thread is still current: its memory cannot be read, but the length of the wait is
 *                         known and written as a record with SAMPLE_WAIT_ENDED; user space joins the two, and drops the
 *                         copies of waits that were too short.
 *
 * Threads that are already blocked when the recording begins are looked up then, and those still blocked when it ends,
 * too: user space reads their stacks, if they have not run meanwhile.
 *
 * The programs run where the kernel does not switch threads, so that they are never nested on a CPU; but a sampling
 * program may interrupt them. Waits have control blocks and rings of their own.
 */
#ifndef FPPROF_OFF_CPU_H
#define FPPROF_OFF_CPU_H

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "abi.h"
#include "capture.bpf.h"
#include "compat.bpf.h"
#include "maps.bpf.h"
#include "ring.bpf.h"
#include "sample.bpf.h"
#include "target.bpf.h"

/* include/linux/sched.h: the thread ends and is not coming back. */
#define TASK_DEAD 0x00000080

/* The current CPU's control block and ring for waits. */
static __always_inline bool find_wait_memory(struct loop_context *context, __u32 *cpu)
{
	*cpu = bpf_get_smp_processor_id();
	return find_memory(context, *cpu, EVENT_WAITS);
}

/*
 * Notes that a profiled thread leaves its CPU. Kernel threads are skipped: they mostly wait for work, and have no user
 * stack.
 */
static __always_inline void begin_wait(void *ctx, bool preempt, struct task_struct *prev,
				       unsigned int prev_state)
{
	struct wait *wait, new_wait = {};
	struct loop_context context;
	__u32 tid = prev->pid, cpu;

	if ((prev_state & TASK_DEAD) || has_no_user_side(prev) || !is_target(prev))
		return;
	if (!find_wait_memory(&context, &cpu))
		return;
	wait = bpf_map_lookup_elem(&waits, &tid);
	if (preempt || !prev_state) {
		context.control->counters[COUNT_FIRED]++;
		context.control->counters[COUNT_SKIPPED_PREEMPTED]++;
		/* begin_waits may have found it blocked just before it ran. */
		if (wait)
			wait->since_ns = 0;
		return;
	}
	new_wait.start_boottime = prev->start_boottime;
	new_wait.run_ns = prev->se.sum_exec_runtime;
	new_wait.since_ns = bpf_ktime_get_ns();
	if (stacks_at_block)
		new_wait.has_stacks = write_record(ctx, &context, cpu, SAMPLE_IN_KERNEL | SAMPLE_WAIT_BEGUN,
						   new_wait.since_ns);
	if (wait && wait->start_boottime == prev->start_boottime) {
		wait->run_ns = new_wait.run_ns;
		wait->has_stacks = new_wait.has_stacks;
		wait->since_ns = new_wait.since_ns;
		return;
	}
	if (bpf_map_update_elem(&waits, &tid, &new_wait, BPF_ANY)) {
		context.control->counters[COUNT_FIRED]++;
		lose(context.control, COUNT_LOST_TABLE_FULL, GAP_TABLE_FULL);
	}
}

/* Ends the wait of a thread that gets its CPU back; 0 if it is not to be sampled. */
static __always_inline __u64 end_wait(struct wait *wait, struct cpu_control *control)
{
	__u64 blocked_ns = bpf_ktime_get_ns() - wait->since_ns;

	wait->since_ns = 0;
	if (blocked_ns >= least_wait_ns)
		return blocked_ns;
	control->counters[COUNT_FIRED]++;
	control->counters[COUNT_SKIPPED_SHORT]++;
	control->counters[COUNT_SHORT_NS] += blocked_ns;
	return 0;
}

static __always_inline struct wait *find_wait(struct task_struct *task)
{
	__u32 tid = task->pid;
	struct wait *wait = bpf_map_lookup_elem(&waits, &tid);

	return wait && wait->since_ns && wait->start_boottime == task->start_boottime ? wait : NULL;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(note_wait, bool preempt, struct task_struct *prev, struct task_struct *next,
	     unsigned int prev_state)
{
	begin_wait(ctx, preempt, prev, prev_state);
	return 0;
}

/* Runs when a thread has its CPU back. */
SEC("tp_btf/sched_exit_tp")
int BPF_PROG(take_wait, bool is_switch)
{
	struct wait *wait = find_wait(bpf_get_current_task_btf());
	struct loop_context context;
	__u64 blocked_ns;
	__u32 cpu;

	if (!wait || !find_wait_memory(&context, &cpu))
		return 0;
	blocked_ns = end_wait(wait, context.control);
	if (blocked_ns)
		take(ctx, &context, cpu, SAMPLE_IN_KERNEL, blocked_ns);
	return 0;
}

/* Writes the second half of a wait's sample; false if there is no room. */
static __always_inline bool write_wait_end(struct loop_context *context, struct task_struct *task, __u32 cpu,
					   __u64 since_ns, __u64 blocked_ns)
{
	struct cpu_control *control = context->control;
	__u64 pid_tid = (__u64)task->tgid << 32 | task->pid, pos, bytes = sizeof(struct sample_head);
	struct sample_head *head;

	if (!find_segment(context))
		return false;
	/* verifier: as in write_record */
	pos = *(volatile __u64 *)&control->slot.filled;
	if (pos > segment_bytes)
		return false;
	barrier_var(pos);
	head = (struct sample_head *)(context->segment + pos);
	begin_record(control, head, SAMPLE_IN_KERNEL | SAMPLE_WAIT_ENDED, pid_tid, blocked_ns);
	/* Joins the halves; elsewhere, the end of the chunk's stack. */
	head->stack_end = since_ns;
	bytes += append_gaps(context, head, pos + bytes);
	head->total_bytes = bytes;
	publish(control, context->segment, cpu, bytes);
	return true;
}

/* Combines note_wait and take_wait if there is no sched_exit. */
SEC("tp_btf/sched_switch")
int BPF_PROG(switch_waits, bool preempt, struct task_struct *prev, struct task_struct *next,
	     unsigned int prev_state)
{
	struct wait *wait = find_wait(next);
	struct loop_context context;
	__u64 since_ns, blocked_ns;
	__u32 cpu;

	if (wait && find_wait_memory(&context, &cpu)) {
		since_ns = wait->since_ns;
		blocked_ns = end_wait(wait, context.control);
		if (blocked_ns) {
			context.control->counters[COUNT_FIRED]++;
			count_sample(&context, wait->has_stacks && write_wait_end(&context, next, cpu,
										  since_ns, blocked_ns));
		}
	}
	begin_wait(ctx, preempt, prev, prev_state);
	return 0;
}

/*
 * Adds the threads that are blocked when the recording begins: their waits start now. Reports to user space the tid of
 * each thread for which there is no room.
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
	/* User space reads the stacks. */
	wait.has_stacks = true;
	/* It may have blocked again meanwhile, which has already been noted. */
	if (bpf_map_update_elem(&waits, &tid, &wait, BPF_NOEXIST) && !bpf_map_lookup_elem(&waits, &tid))
		bpf_seq_write(ctx->meta->seq, &tid, sizeof(tid));
	return 0;
}

/* Output of end_waits for one thread; global, since the program runs for one thread after the other. */
struct open_wait_record {
	struct open_wait wait;
	__u64 kernel[MAX_KERNEL_FRAMES];
};
struct open_wait_record open_wait_record;

/*
 * Reports the threads that are blocked when the recording has ended and nothing is sampled any more. The kernel leaves
 * its scheduler's functions out of the chain of a task that is not current.
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
	open->thread_base = THREAD_BASE(task);
	mm = has_no_user_side(task) ? NULL : task->mm;
	open->in_exec = mm && !mm->start_code;
	open->has_user = mm && !open->in_exec;
	open->withheld = mm && !may_copy(task, mm);
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

/*
 * Frees the place of a thread that executes a program and thereby gets the tid of its process: the start time by which
 * forget_wait would find it is then that of the first thread (de_thread, fs/exec.c).
 */
static __always_inline void forget_wait_of_tid(__u32 old_tid)
{
	if (takes_waits)
		bpf_map_delete_elem(&waits, &old_tid);
}

/* Frees the thread's place in the table. */
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
