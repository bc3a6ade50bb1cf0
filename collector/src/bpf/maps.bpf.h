/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Maps and configuration. Sizes given as 1 or PAGE_BYTES are set by user space before loading. */
#ifndef FPPROF_MAPS_H
#define FPPROF_MAPS_H

#include "abi.h"

/* enum collect_flag: what each sample carries. */
const volatile __u32 collect = COLLECT_CHUNK | COLLECT_FRAMES | COLLECT_KERNEL;
/* enum filter: whom to sample. */
const volatile __u32 filter = FILTER_TRACKED;
/* Processes not to be sampled with FILTER_SYSTEM and FILTER_CGROUP (fpprof itself and its workers); 0 for none. */
const volatile __u32 excluded_pids[MAX_EXCLUDED] = { 1, 1, 1, 1, 1 };
/* The control group of FILTER_CGROUP, by the inode of its directory. */
const volatile __u64 cgroup_id = 1;
/*
 * A controller of its hierarchy (enum cgroup_subsys_id of the running kernel), or CGROUP_UNIFIED for
 * version 2.
 */
#define CGROUP_UNIFIED 0xffffffff
const volatile __u32 cgroup_subsystem = 1;
/* Of a tracepoint or probe, one hit in so many on a CPU is a tick. */
const volatile __u64 tick_hits = 1;
/* Control blocks there are of each event: one for each CPU that can ever come online. */
const volatile __u32 n_possible_cpus = 1;
/* Rings there are of each event: one for each CPU up to the last that was online when they were made. */
const volatile __u32 n_ring_cpus = 1;
/* Segments of a ring. */
const volatile __u32 n_segments = 16;
/* Whether there are any. */
const volatile bool takes_waits = true;
/* Whether their stacks are copied when the thread is blocked, for want of sched_exit. */
const volatile bool stacks_at_block = true;
/* Waits shorter than this are counted only. */
const volatile __u64 least_wait_ns = 1000;
/* Most bytes copied of a stack from the stack pointer up, at most MAX_CHUNK_BYTES. */
const volatile __u64 max_chunk_bytes = 65536;
/* Whether stacks of processes that may not be dumped are copied, too. */
const volatile bool includes_privileged = true;
/* Whether only stacks of one user's processes are copied, and which user's. */
const volatile bool has_only_user = true;
const volatile __u32 only_user = 0;
/* With COLLECT_CFI: of one walk in so many the stack is copied, too; of none for 0. */
const volatile __u64 cfi_verify = 100;
/* Sets of rules less one, a power of two less one. */
const volatile __u32 rule_set_mask = 1;
/* Bytes of a segment, a power of two, and that power. */
const volatile __u64 segment_bytes = 1 << 16;
const volatile __u32 segment_shift = 16;
/* A segment that holds so much is left while most of the ring is free. */
const volatile __u64 hot_bytes = 1 << 15;
/* A bit for each segment there is. */
const volatile __u64 all_segments = 0xffff;
/* Bytes of all segments. */
const volatile __u64 ring_bytes = 1 << 20;
/* Most bytes of one record, and what is written beside it on the way. */
const volatile __u64 max_record_bytes = 1 << 17;
/* Last offset in a segment behind which a page can still be written. */
const volatile __u64 segment_room = (1 << 16) + (1 << 17);
/* A ring filled so far wakes the reader. */
const volatile __u64 wakeup_bytes = 1 << 19;

/*
 * The rings, one for each CPU, and another for each CPU's waits: bytes that BPF writes in place and user space maps. A
 * BPF ring buffer would take the size of a record as a constant (bpf_ringbuf_reserve), or give no
 * memory to walk frame pointers in (dynptr); and since only one CPU writes a ring, and the kernel
 * never nests programs of perf events and tracepoints on a CPU (bpf_prog_active), no lock is needed.
 * Those of probes can be preempted: they have is_busy. Those of waits can be interrupted by one that samples: they have
 * rings of their own.
 *
 * A ring (ring.bpf.h) is made of segments, an array element each (kernels before 6.0 refuse elements above 4 MiB). They
 * are filled one after the other, each time the first that is free. A
 * reader that keeps up so makes do with few of them, which stay in the cache: a whole turn through
 * all of them costs more for each sample than the copy does (examples/cost.rs). Segments are as large
 * as the largest samples want; while most of the ring is free they are left after hot_bytes. The slack
 * behind each holds the rest of a record that starts at its end.
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

/* By the lowest bits of the tid. */
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

/* The rules that sets name, see cfi_walk.bpf.h; the first and the last are none. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} rules SEC(".maps");

/* Wakes the reader when a ring passes wakeup_bytes; holds the numbers of CPUs. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, PAGE_BYTES);
} doorbell SEC(".maps");

/*
 * Threads that are, or were, blocked. Made beforehand, since nothing can be allocated where threads are switched; an
 * entry stays until its thread ends.
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
