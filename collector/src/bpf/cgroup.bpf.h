/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Whether a task belongs to a control group. */
#ifndef FPPROF_CGROUP_H
#define FPPROF_CGROUP_H

#include <bpf/bpf_core_read.h>
#include "abi.h"

/*
 * Whether the task is in the profiled control group or in one below it. The kernel's helpers cannot tell: they only
 * know the unified hierarchy (version 2). A task has one css for each controller, whose parents are those of the
 * parent groups in the controller's hierarchy.
 */
static __always_inline bool is_in_cgroup(struct task_struct *task)
{
	struct css_set *set = BPF_CORE_READ(task, cgroups);
	struct cgroup_subsys_state *css = NULL;
	struct cgroup *cgroup;
	__u64 at;
	int i;

	if (cgroup_subsystem == CGROUP_UNIFIED) {
		at = (__u64)BPF_CORE_READ(set, dfl_cgrp) + bpf_core_field_offset(struct cgroup, self);
		css = (struct cgroup_subsys_state *)at;
	} else {
		at = (__u64)set + bpf_core_field_offset(struct css_set, subsys);
		bpf_probe_read_kernel(&css, sizeof(css), (void *)(at + cgroup_subsystem * 8));
	}
	for (i = 0; i < MAX_CGROUP_DEPTH && css; i++) {
		cgroup = BPF_CORE_READ(css, cgroup);
		if (BPF_CORE_READ(cgroup, kn, id) == cgroup_id)
			return true;
		css = BPF_CORE_READ(css, parent);
	}
	return false;
}

#endif
