/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Which threads are profiled. */
#ifndef FPPROF_TARGET_H
#define FPPROF_TARGET_H

#include "abi.h"
#include "cgroup.bpf.h"
#include "maps.bpf.h"

/*
 * Whether a tracked process is still the intended one: a pid can be reused before follow_free sees the process that
 * had it.
 */
static __always_inline bool is_tracked(struct tracked *process, struct task_struct *task)
{
	__u64 start_boottime =
		filter == FILTER_THREADS ? task->start_boottime : task->group_leader->start_boottime;

	if (!process || process->state != TRACKED_ACTIVE)
		return false;
	/* Added by user space: the first process seen with this pid is the one. Other CPUs may write the same. */
	if (!process->start_boottime)
		process->start_boottime = start_boottime;
	return process->start_boottime == start_boottime;
}

static __always_inline bool is_excluded(struct task_struct *task)
{
	__u32 pid = task->tgid, parent = task->real_parent->tgid;
	bool is_excluded = excluded_parent && parent == excluded_parent;

#pragma unroll
	for (int i = 0; i < MAX_EXCLUDED; i++)
		is_excluded |= pid == excluded_pids[i];
	return is_excluded;
}

/* Whether a thread is profiled. */
static __always_inline bool is_target(struct task_struct *task)
{
	__u32 pid = task->tgid, tid = task->pid, key = filter == FILTER_THREADS ? tid : pid;

	if (!tid)
		return false;
	if (filter == FILTER_SYSTEM)
		return !is_excluded(task);
	if (filter == FILTER_CGROUP)
		return !is_excluded(task) && is_in_cgroup(task);
	return is_tracked(bpf_map_lookup_elem(&tracked, &key), task);
}

/* Whether a tick is to be sampled; counts it as skipped if not. */
static __always_inline bool is_wanted(struct cpu_control *control, __u64 pid_tid)
{
	bool has_self = filter == FILTER_SYSTEM || filter == FILTER_CGROUP;
	struct task_struct *task = bpf_get_current_task_btf();

	if (is_target(task))
		return true;
	if (!pid_tid)
		control->counters[COUNT_SKIPPED_IDLE]++;
	else if (has_self && is_excluded(task))
		control->counters[COUNT_SKIPPED_SELF]++;
	else
		control->counters[COUNT_SKIPPED_UNTRACKED]++;
	return false;
}

#endif
