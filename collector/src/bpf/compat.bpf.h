/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Differences between kernels. */
#ifndef FPPROF_COMPAT_H
#define FPPROF_COMPAT_H

#include <bpf/bpf_core_read.h>

/*
 * include/linux/sched.h; PF_IO_WORKER since 5.12 (3bfe6106693b), PF_USER_WORKER since 6.4
 * (54e6842d0775).
 */
#define PF_EXITING 0x00000004
#define PF_IO_WORKER 0x00000010
#define PF_USER_WORKER 0x00004000
#define PF_KTHREAD 0x00200000

/*
 * Whether a task has no user side: it may borrow an address space, but its user registers are meaningless. Bit 0x4000
 * was PF_USED_ASYNC before 5.17 and unused until 6.4.
 */
static __always_inline bool has_no_user_side(struct task_struct *task)
{
	return task->flags & (PF_KTHREAD | PF_IO_WORKER | PF_USER_WORKER);
}

/*
 * A number that changes whenever anything is mapped or unmapped in an address space: since 6.4 the kernel increments it
 * under the lock for that. False if the kernel has none.
 */
static __always_inline bool mappings_sequence(struct mm_struct *mm, __u32 *sequence)
{
	struct mm_struct___seqcount *newer = (void *)mm;

	/* CO-RE takes a field whose type is of another kind for missing. */
	if (bpf_core_field_exists(newer->mm_lock_seq))
		*sequence = newer->mm_lock_seq.sequence;
	else if (bpf_core_field_exists(mm->mm_lock_seq))
		*sequence = mm->mm_lock_seq;
	else
		return false;
	return true;
}

/*
 * Whether a task is inside execve, between two programs: it already has the address space of the new program, but
 * still the user registers of the old one. The kernel records where code and stack start right before it sets new
 * registers (load_elf_binary), with the stack pointer at the stack's start. In between, the old stack pointer points
 * to nothing, or above the new stack's start, or to where nothing has been pushed yet. The start of code is recorded
 * first: until the stack's start is, it is that of the arguments (setup_arg_pages), below which the kernel has pushed.
 */
static __always_inline bool is_between_programs(struct task_struct *task, struct mm_struct *mm, __u64 sp)
{
	__u64 word, pushed[4], start;

	if (!mm->start_code)
		return true;
	if (!bpf_core_field_exists(task->in_execve) || !BPF_CORE_READ_BITFIELD(task, in_execve))
		return false;
	start = mm->start_stack;
	if (start == mm->arg_start)
		return true;
	if (sp >= start)
		return sp != start;
	if (bpf_probe_read_user(&word, sizeof(word), (void *)sp))
		return true;
	if (bpf_probe_read_user(pushed, sizeof(pushed), (void *)(start - sizeof(pushed))))
		return true;
	return !(pushed[0] | pushed[1] | pushed[2] | pushed[3]);
}

/*
 * Whether others may already use the stack of a task that exits or executes a program. In both cases the kernel wakes
 * the parent of a vfork and whoever joins the thread (mm_release in kernel/fork.c) before the task gives up the
 * address space (exec_mmap in fs/exec.c, exit_mm in kernel/exit.c).
 */
static __always_inline bool has_released_stack(struct task_struct *task, struct mm_struct *mm)
{
	bool is_leaving = task->flags & PF_EXITING;

	if (bpf_core_field_exists(task->in_execve))
		is_leaving |= BPF_CORE_READ_BITFIELD(task, in_execve);
	return is_leaving && mm->mm_users.counter > 1 && !task->vfork_done && !task->clear_child_tid;
}

/* include/linux/mm_types.h (sched/coredump.h before 6.18) */
#define MMF_DUMPABLE_MASK 3
#define SUID_DUMP_USER 1

/*
 * Whether a process may be dumped and traced by its own user: not after it executed a setuid program or one that the
 * user cannot read, changed its user, or asked for it (PR_SET_DUMPABLE in prctl(2)). A non-dumpable process may have
 * secrets in memory.
 */
static __always_inline bool is_dumpable(struct task_struct *task, struct mm_struct *mm)
{
	struct mm_struct___bitmap *bitmap = (void *)mm;

	if (bpf_core_field_exists(task->exec_state))
		return task->exec_state->dumpable == TASK_DUMPABLE_OWNER;
	if (bpf_core_field_exists(mm->flags))
		return (mm->flags & MMF_DUMPABLE_MASK) == SUID_DUMP_USER;
	return (bitmap->flags.__mm_flags[0] & MMF_DUMPABLE_MASK) == SUID_DUMP_USER;
}

/*
 * Whether a process has this real, effective and saved user, as required for that user to trace it
 * (__ptrace_may_access).
 */
static __always_inline bool is_of_user(struct task_struct *task, __u32 user)
{
	return BPF_CORE_READ(task, cred, uid.val) == user && BPF_CORE_READ(task, cred, euid.val) == user &&
	       BPF_CORE_READ(task, cred, suid.val) == user;
}

#endif
