/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The few kernel types we use, with the few fields we read. Offsets are relocated against the BTF of the running
 * kernel when the program is loaded (CO-RE), so neither the order nor the completeness of fields matters here.
 */
#ifndef FPPROF_VMLINUX_H
#define FPPROF_VMLINUX_H

typedef signed char __s8;
typedef unsigned char __u8;
typedef short __s16;
typedef unsigned short __u16;
typedef int __s32;
typedef unsigned int __u32;
typedef long long __s64;
typedef unsigned long long __u64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;
typedef int pid_t;

#define true 1
#define false 0
#define NULL ((void *)0)

/* include/uapi/linux/bpf.h */
enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_RINGBUF = 27,
};

enum {
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
	BPF_F_NO_PREALLOC = 1U << 0,
	BPF_F_MMAPABLE = 1U << 10,
	BPF_RB_FORCE_WAKEUP = 1 << 1,
};

#if defined(__TARGET_ARCH_x86)
#include "arch_x86.bpf.h"
#elif defined(__TARGET_ARCH_arm64)
#include "arch_arm64.bpf.h"
#else
#error "no registers are known for this architecture"
#endif

/* include/uapi/linux/bpf_perf_event.h */
struct bpf_perf_event_data {
	struct user_regs regs;
	__u64 sample_period;
	__u64 addr;
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct super_block {
	__u32 s_dev;
	unsigned long s_magic;
};

struct timespec64 {
	__s64 tv_sec;
	long tv_nsec;
};

struct inode {
	unsigned long i_ino;
	struct super_block *i_sb;
	/* Since 6.11; see the others below. */
	__s64 i_ctime_sec;
	__u32 i_ctime_nsec;
};

/* Since 6.6, and before. */
struct inode___ctime {
	struct timespec64 __i_ctime;
};

struct inode___old {
	struct timespec64 i_ctime;
};

struct dentry {
	struct inode *d_inode;
};

struct path {
	struct dentry *dentry;
};

struct file {
	unsigned int f_mode;
	struct path f_path;
};

/*
 * fs/file_table.c: the file under an overlayfs file. Since 6.8 user_path is the overlayfs path, which f_path was
 * before.
 */
struct backing_file {
	struct path user_path;
};

struct vm_area_struct {
	unsigned long vm_start;
	unsigned long vm_end;
	unsigned long vm_flags;
	unsigned long vm_pgoff;
	struct file *vm_file;
};

/* The tree of mappings, since 6.1. */
struct maple_tree {
	void *ma_root;
};

typedef struct {
	void *vdso;
} mm_context_t;

typedef struct {
	int counter;
} atomic_t;

struct mm_struct {
	atomic_t mm_users;
	struct maple_tree mm_mt;
	mm_context_t context;
	/* From 6.4 to 6.13; see struct mm_struct___seqcount. */
	int mm_lock_seq;
	/* Until 6.17; see struct mm_struct___bitmap. */
	unsigned long flags;
	unsigned long stack_vm;
	unsigned long start_stack;
	unsigned long arg_start;
	unsigned long start_code;
};

typedef struct seqcount {
	unsigned int sequence;
} seqcount_t;

/* Since 6.14. */
struct mm_struct___seqcount {
	seqcount_t mm_lock_seq;
};

/* mm_flags_t, since 6.18. */
struct mm_flags {
	unsigned long __mm_flags[1];
};

struct mm_struct___bitmap {
	struct mm_flags flags;
};

/* Since 7.2. */
enum task_dumpable {
	TASK_DUMPABLE_OFF = 0,
	TASK_DUMPABLE_OWNER = 1,
	TASK_DUMPABLE_ROOT = 2,
};

struct task_exec_state {
	enum task_dumpable dumpable;
};

struct kernfs_node {
	__u64 id;
};

struct cgroup;

struct cgroup_subsys_state {
	struct cgroup *cgroup;
	struct cgroup_subsys_state *parent;
};

struct cgroup {
	struct cgroup_subsys_state self;
	struct kernfs_node *kn;
};

struct css_set {
	struct cgroup_subsys_state *subsys[1];
	struct cgroup *dfl_cgrp;
};

struct completion;

struct sched_entity {
	__u64 sum_exec_runtime;
};

typedef struct {
	unsigned int val;
} kuid_t;

struct cred {
	kuid_t uid;
	kuid_t euid;
	kuid_t suid;
};

struct task_struct {
	unsigned int __state;
	/* A __u8 on 7.3: unsigned, so that the size of the load can be adjusted. */
	unsigned int on_cpu;
	struct sched_entity se;
	unsigned int flags;
	unsigned int in_execve : 1;
	pid_t pid;
	pid_t tgid;
	struct task_struct *real_parent;
	struct task_struct *group_leader;
	__u64 start_boottime;
	__u64 self_exec_id;
	struct mm_struct *mm;
	struct completion *vfork_done;
	int *clear_child_tid;
	struct task_exec_state *exec_state;
	unsigned long sas_ss_sp;
	unsigned long sas_ss_size;
	struct css_set *cgroups;
	const struct cred *cred;
	struct thread_struct thread;
};

/* include/linux/bpf.h and kernel/bpf/task_iter.c */
struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

#pragma clang attribute pop

#endif
