/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Maps and configuration. User space sets sizes given as 1 or PAGE_BYTES before loading. */
#ifndef FPPROF_MAPS_H
#define FPPROF_MAPS_H

#include "abi.h"

/* enum collect_flag: what each sample carries. */
const volatile __u32 collect = COLLECT_CHUNK | COLLECT_FRAMES | COLLECT_KERNEL;
/* enum filter: what to sample. */
const volatile __u32 filter = FILTER_TRACKED;
/*
 * Processes not sampled with FILTER_SYSTEM and FILTER_CGROUP (fpprof itself and its workers); 0 for none. User space
 * changes them when a worker ends, whose pid may become another process's, and when one starts.
 */
volatile __u32 excluded_pids[MAX_EXCLUDED] = { 1, 1, 1, 1, 1 };
/* The process whose children are not sampled either, from their first instruction on; 0 for none. */
const volatile __u32 excluded_parent = 1;
/* The control group of FILTER_CGROUP, by the inode of its directory. */
const volatile __u64 cgroup_id = 1;
/*
 * A controller of its hierarchy (enum cgroup_subsys_id of the running kernel), or CGROUP_UNIFIED for version 2.
 */
#define CGROUP_UNIFIED 0xffffffff
const volatile __u32 cgroup_subsystem = 1;
/* For a tracepoint or probe, one tick per this many hits on a CPU. */
const volatile __u64 tick_hits = 1;
/* Control blocks of each event: one for each CPU that can ever come online. */
const volatile __u32 n_possible_cpus = 1;
/* Rings of each event: one for each CPU up to the last that was online when they were created. */
const volatile __u32 n_ring_cpus = 1;
/* Segments of a ring. */
const volatile __u32 n_segments = 16;
/* Whether waits are sampled. */
const volatile bool takes_waits = true;
/* Whether their stacks are copied when the thread blocks, for want of sched_exit. */
const volatile bool stacks_at_block = true;
/* Shorter waits are only counted. */
const volatile __u64 least_wait_ns = 1000;
/* The most bytes copied of a stack from the stack pointer up, at most MAX_CHUNK_BYTES. */
const volatile __u64 max_chunk_bytes = 65536;
/* Whether stacks of non-dumpable processes are copied, too. */
const volatile bool includes_privileged = true;
/* Whether only stacks of one user's processes are copied, and that user. */
const volatile bool has_only_user = true;
const volatile __u32 only_user = 0;
/* With COLLECT_CFI: for one walk in this many, the stack is copied, too; 0 for none. */
const volatile __u64 copy_every = 1;
/* Number of rule sets, a power of two, minus one. */
const volatile __u32 rule_set_mask = 1;
/* Bytes of a segment, a power of two, and that power. */
const volatile __u64 segment_bytes = 1 << 16;
const volatile __u32 segment_shift = 16;
/* While most of the ring is free, a segment filled up to this is left for the next. */
const volatile __u64 hot_bytes = 1 << 15;
/* A mask of all segments. */
const volatile __u64 all_segments = 0xffff;
/* Bytes of all segments. */
const volatile __u64 ring_bytes = 1 << 20;
/* The most bytes of one record, including what is written next to it temporarily. */
const volatile __u64 max_record_bytes = 1 << 17;
/* The last offset in a segment after which a page can still be written. */
const volatile __u64 segment_room = (1 << 16) + (1 << 17);
/* A ring filled up to this wakes the reader. */
const volatile __u64 wakeup_bytes = 1 << 19;

/*
 * The rings, one for each CPU, and another for each CPU's waits: memory that BPF writes in place and user space maps.
 * A BPF ring buffer would require a constant record size (bpf_ringbuf_reserve), or provide no memory to walk frame
 * pointers in (dynptr); and since only one CPU writes a ring, and the kernel never nests programs of perf events and
 * tracepoints on a CPU (bpf_prog_active), no lock is needed. Probe programs can be preempted: they use is_busy. Wait
 * programs can be interrupted by a sampling program: they have rings of their own.
 *
 * A ring (ring.bpf.h) consists of segments, one array element each (kernels before 6.0 refuse elements above 4 MiB).
 * They are filled in turn, always the first that is free. So a reader that keeps up needs only a few of them, which
 * stay in the cache: cycling through all of them costs more per sample than the copy does (examples/cost.rs). Segments
 * are as large as the largest samples need; while most of the ring is free they are left after hot_bytes. The slack
 * after each holds the rest of a record that starts at its end.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, PAGE_BYTES);
} segments SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cpu_control);
} controls SEC(".maps");

/* Indexed by the lowest bits of the tid. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, STACK_HINTS);
	__type(key, __u32);
	__type(value, struct stack_hint);
} stack_hints SEC(".maps");

/* Numbers of files that have rules. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct code_file);
	__type(value, __u32);
} code_files SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct rule_set);
} rule_sets SEC(".maps");

/* The rules that sets refer to, see cfi_walk.bpf.h; the first and the last entry are unused. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} rules SEC(".maps");

/*
 * Programs, by the number of their process, that write no jitdump: code without a file is walked by frame pointers
 * there, like user space would. Others are unwound by their dumps.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct program_run);
} jit_processes SEC(".maps");

/* Wakes the reader when a ring passes wakeup_bytes; contains CPU numbers. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, PAGE_BYTES);
} doorbell SEC(".maps");

/*
 * Threads that are, or were, blocked. Preallocated, since nothing can be allocated during a context switch; an entry
 * stays until its thread ends.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct wait);
} waits SEC(".maps");

/* The profiled processes (FILTER_TRACKED) or threads (FILTER_THREADS). */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, __u32);
	__type(value, struct tracked);
} tracked SEC(".maps");

#endif
