/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What the BPF programs and user space share: the record of a sample, the control block of a CPU, and the names of
 * what is counted. Values and padding are explicit. None of it is a stable format: both sides are built from this
 * file.
 */
#ifndef FPPROF_ABI_H
#define FPPROF_ABI_H

/* Sizes that both sides use. An enumeration, so that they reach user space through BTF. */
enum limit {
	/* The longest frame-pointer chain. */
	MAX_FRAMES = 512,
	/* The longest kernel chain: the default of kernel.perf_event_max_stack. */
	MAX_KERNEL_FRAMES = 127,
	PAGE_BYTES = 4096,
	CACHE_LINE_BYTES = 64,
	/* Copied below the stack pointer: a leaf function may use this area without moving sp. */
	RED_ZONE_BYTES = ARCH_RED_ZONE_BYTES,
	/*
	 * The largest chunk that can be requested, and the pages it can touch with its red zone (one more each when it
	 * starts inside a page).
	 */
	MAX_CHUNK_BYTES = 16 << 20,
	MAX_CHUNK_PAGES = MAX_CHUNK_BYTES / PAGE_BYTES + 2,
	HOLE_WORDS = (MAX_CHUNK_PAGES + 63) / 64,
	/* Bytes of stack that are copied for a walk: copying a page costs as much as two single reads. */
	FIRST_WINDOW_BYTES = 4096,
	/*
	 * Bytes that are copied next, if the walk gets there and frames are small: of at most SMALL_FRAME_BYTES. Copying
	 * them takes as long as some four single reads.
	 */
	NEXT_WINDOW_BYTES = 8192,
	SMALL_FRAME_BYTES = 2048,
	/* The most bytes from a pthread's control block to the end of the mapping that contains its stack. */
	THREAD_BLOCK_BYTES = 64 << 10,
	/* Our processes, which are not profiled: the recorder, the analyser of `top`, three that parse files. */
	MAX_EXCLUDED = 5,
	/* Threads per CPU whose stack's mapping is cached, a power of two. */
	STACK_MAPPINGS = 256,
	/* Threads whose stack's mapping user space provides, a power of two. */
	STACK_HINTS = 4096,
	/*
	 * Bytes below a growing stack that the kernel keeps free of other mappings (stack_guard_gap).
	 */
	STACK_GUARD_BYTES = 1 << 20,
	/*
	 * Chunks are not cut below this when a ring fills up: a smaller one contains no caller's frame in most
	 * programs.
	 */
	SHED_LEAST_BYTES = 1 << 10,
	/* Segments of a ring: as many as the bits of a word. */
	MAX_SEGMENTS = 64,
	/* The most nested control groups that are checked. */
	MAX_CGROUP_DEPTH = 64,
	/* Bytes of code whose rules are in a way of a set (cfi.bpf.h), or several: 256, so that one byte holds a position. */
	GRANULE_BYTES = 256,
	/* Ways of a set. */
	RULE_WAYS = 4,
	/* Rows of a way: one for each change of rule. */
	WAY_ROWS = 16,
	/* The most ways with rows of one granule. */
	GRANULE_WAYS = 8,
	/* Offsets in files that have keys, and numbers of files in keys. */
	KEY_OFFSET_BITS = 38,
	KEY_NUMBERS = 1 << 24,
	/* In the last row of a way, in place of a rule's index: another way has the rows from there on. */
	PLACE_IN_NEXT_WAY = 0xffff,
	/* Address spaces whose code mappings are cached per CPU, and mappings of each: powers of two. */
	CODE_SPACES = 8,
	CODE_MAPPINGS = 8,
	/* Rules cached per CPU, a power of two. */
	RECENT_RULES = 1024,
	/* The most frames without rows between a frame and the JIT-compiled code that called it. */
	MAX_BETWEEN = 16,
	/* How far below the end of its stack a frame of start code may be. */
	MAX_START_BYTES = 512,
	/* How far above the end of its stack a stack pointer may be, once the program has popped its arguments. */
	MAX_ARGUMENT_BYTES = 1 << 19,
	/* Words of a node of a maple tree (MAPLE_NODE_SLOTS + 1 in include/linux/maple_tree.h). */
	MAPLE_WORDS = 32,
	/* Depth of a maple tree: a node has at least four children, a process at most 65,530 mappings. */
	MAPLE_DEPTH = 9,
};

/* What a CPU counts. `fired` + `lost_nested` = `recorded` + all `lost_*` + all `skipped_*`. */
#define FPPROF_COUNTERS(X) \
	X(COUNT_FIRED, 0) \
	X(COUNT_RECORDED, 1) \
	X(COUNT_LOST_RING_FULL, 2) \
	X(COUNT_LOST_TABLE_FULL, 3) \
	X(COUNT_SKIPPED_IDLE, 4) \
	X(COUNT_SKIPPED_SELF, 5) \
	X(COUNT_SKIPPED_UNTRACKED, 6) \
	/* Not part of the balance: */ \
	X(COUNT_KERNEL_CHAIN_FAILED, 7) \
	X(COUNT_STACK_END_UNKNOWN, 8) \
	X(COUNT_TRACKED_FULL, 9) \
	X(COUNT_BYTES, 10) \
	X(COUNT_SHED, 11) \
	/* Not in COUNT_FIRED, see take_probe: */ \
	X(COUNT_LOST_NESTED, 12) \
	/* Of waits (off_cpu.bpf.h), in their own control blocks: */ \
	X(COUNT_SKIPPED_SHORT, 13) \
	X(COUNT_SKIPPED_PREEMPTED, 14) \
	/* Not part of the balance, nanoseconds: */ \
	X(COUNT_SHORT_NS, 15) \
	/* On a CPU that came online after the rings were created: */ \
	X(COUNT_LOST_NO_RING, 16) \
	/* Not part of the balance: the sum of the periods of a counter's overflows. */ \
	X(COUNT_PERIODS, 17)

/* Causes of lost samples, by which gaps are kept. */
#define FPPROF_GAP_CAUSES(X) \
	X(GAP_RING_FULL, 0) \
	X(GAP_TABLE_FULL, 1) \
	X(GAP_NO_RING, 2)

/* Why a frame-pointer chain ended. */
#define FPPROF_FP_ENDS(X) \
	X(FP_END_NONE, 0) \
	X(FP_END_ZERO, 1) \
	X(FP_END_UNREADABLE, 2) \
	X(FP_END_NOT_ASCENDING, 3) \
	X(FP_END_ZERO_RETURN_ADDRESS, 4) \
	X(FP_END_MAX_DEPTH, 5)

/*
 * How a walk by call frame information ended (cfi_walk.bpf.h). Values below CFI_MISS_NO_RULE mean that it reached the
 * root frame: the value is the reason in the stop rule plus one.
 */
#define FPPROF_CFI_ENDS(X) \
	X(CFI_END_NONE, 0) \
	X(CFI_END_UNDEFINED_RA, 1) \
	X(CFI_END_START, 2) \
	X(CFI_END_THREAD_START, 3) \
	X(CFI_END_START_CONTEXT, 4) \
	X(CFI_END_GOEXIT, 5) \
	X(CFI_END_G0, 6) \
	/* The maps have no rule for the address. */ \
	X(CFI_MISS_NO_RULE, 16) \
	/* Executable memory without a file, in a process that user space has not released (jit_processes). */ \
	X(CFI_MISS_NO_FILE, 17) \
	/* No executable mapping contains the address, or it could not be found. */ \
	X(CFI_MISS_NO_MAPPING, 18) \
	/* A rule of eight bytes cannot express the caller's registers. */ \
	X(CFI_MISS_OTHER_REGISTERS, 19) \
	X(CFI_MISS_UNREADABLE, 20) \
	/* The CFA is not above sp, or not aligned. */ \
	X(CFI_MISS_NOT_ASCENDING, 21) \
	/* fp was saved below sp, and may be overwritten. */ \
	X(CFI_MISS_RED_ZONE, 22) \
	X(CFI_MISS_MAX_DEPTH, 23) \
	X(CFI_MISS_ABI32, 24) \
	/* Code without call frame information, and which frame called it is not certain. */ \
	X(CFI_MISS_NO_CALLER, 25)

/* How a walk found a frame, as bits. */
#define FPPROF_CFI_FRAME_FLAGS(X) \
	/* The address was sampled or interrupted; it is not a return address. */ \
	X(CFI_FRAME_INSTRUCTION, 1) \
	/* By the frame pointer of JIT-compiled code, or of code that it had called. */ \
	X(CFI_FRAME_BY_FP, 2) \
	/* In the last word of the stack: the entry point. */ \
	X(CFI_FRAME_AT_END, 4)

/* How the end of a stack was determined. */
#define FPPROF_STACK_ENDS(X) \
	X(STACK_END_UNKNOWN, 0) \
	X(STACK_END_START_STACK, 1) \
	X(STACK_END_THREAD_BASE, 2) \
	X(STACK_END_ALT_STACK, 3) \
	X(STACK_END_MAPPING, 4)

/* Properties of a sample, as bits. */
#define FPPROF_SAMPLE_FLAGS(X) \
	X(SAMPLE_IN_KERNEL, 1) \
	X(SAMPLE_HAS_USER, 2) \
	X(SAMPLE_ABI32, 4) \
	X(SAMPLE_KERNEL_CHAIN_FAILED, 8) \
	/* Not with SAMPLE_HAS_USER: between two programs, see is_between_programs. */ \
	X(SAMPLE_IN_EXEC, 16) \
	/* Halves of the sample of a wait (off_cpu.bpf.h): its stacks, with the start time as the weight; */ \
	X(SAMPLE_WAIT_BEGUN, 32) \
	/* its end and its length, with nothing after the head. */ \
	X(SAMPLE_WAIT_ENDED, 64) \
	/* The chunk begins RED_ZONE_BYTES below the stack pointer. */ \
	X(SAMPLE_HAS_RED_ZONE, 128) \
	/* A struct interrupted follows the holes. */ \
	X(SAMPLE_HAS_INTERRUPTED, 256) \
	/* Not with SAMPLE_HAS_USER: the kernel had not saved the user registers yet. */ \
	X(SAMPLE_ENTERING_KERNEL, 512) \
	/* The stack must not be copied, see is_dumpable. */ \
	X(SAMPLE_WITHHELD, 1024) \
	/* A struct cfi_miss follows the frames of the walk by call frame information. */ \
	X(SAMPLE_HAS_MISS, 2048) \
	/* Only the chain was to be taken, not the chunk, see copy_every. */ \
	X(SAMPLE_CHAIN_ONLY, 4096)

/* The event whose samples a ring contains. */
#define FPPROF_EVENTS(X) \
	X(EVENT_SAMPLED, 0) \
	X(EVENT_WAITS, 1)

/* What is collected of the user stack, as configuration bits. */
#define FPPROF_COLLECT_FLAGS(X) \
	X(COLLECT_CHUNK, 1) \
	X(COLLECT_FRAMES, 2) \
	X(COLLECT_KERNEL, 4) \
	/* The frames of a walk by call frame information, and a chunk if it fails. */ \
	X(COLLECT_CFI, 8)

/* What to sample. */
#define FPPROF_FILTERS(X) \
	X(FILTER_SYSTEM, 1) \
	X(FILTER_TRACKED, 2) \
	X(FILTER_THREADS, 3) \
	X(FILTER_CGROUP, 4)

/* State of a tracked process. */
#define FPPROF_TRACKED_STATES(X) \
	X(TRACKED_UNTIL_EXEC, 1) \
	X(TRACKED_ACTIVE, 2)

#define FPPROF_ENUMERATOR(name, value) name = value,
enum counter { FPPROF_COUNTERS(FPPROF_ENUMERATOR) };
#define FPPROF_ONE(name, value) +1
enum { N_COUNTERS = 0 FPPROF_COUNTERS(FPPROF_ONE) };
enum gap_cause { FPPROF_GAP_CAUSES(FPPROF_ENUMERATOR) };
enum { N_GAP_CAUSES = 0 FPPROF_GAP_CAUSES(FPPROF_ONE) };
enum event { FPPROF_EVENTS(FPPROF_ENUMERATOR) };
enum fp_end { FPPROF_FP_ENDS(FPPROF_ENUMERATOR) };
enum cfi_end { FPPROF_CFI_ENDS(FPPROF_ENUMERATOR) };
enum cfi_frame_flag { FPPROF_CFI_FRAME_FLAGS(FPPROF_ENUMERATOR) };
enum stack_end_source { FPPROF_STACK_ENDS(FPPROF_ENUMERATOR) };
enum sample_flag { FPPROF_SAMPLE_FLAGS(FPPROF_ENUMERATOR) };
enum collect_flag { FPPROF_COLLECT_FLAGS(FPPROF_ENUMERATOR) };
enum filter { FPPROF_FILTERS(FPPROF_ENUMERATOR) };
enum tracked_state { FPPROF_TRACKED_STATES(FPPROF_ENUMERATOR) };

/*
 * A sample in a ring. After it, each part padded to 8 bytes:
 *   n_cfi_frames of struct cfi_frame, leaf first, and n_skipped bytes;
 *   chunk_bytes of stack, from the stack pointer or RED_ZONE_BYTES below it up;
 *   n_hole_words of u64, a bit for each page of the chunk that could not be read;
 *   with SAMPLE_HAS_INTERRUPTED a struct interrupted and what follows it;
 *   n_frames of struct fp_frame, leaf first;
 *   with SAMPLE_HAS_MISS a struct cfi_miss;
 *   n_kernel of u64, leaf first;
 *   n_gaps of struct gap, by enum gap_cause: this CPU's losses since its previous sample.
 */
struct sample_head {
	/* Bytes to the next record, a multiple of 8. */
	__u32 total_bytes;
	__u16 flags;
	__u8 fp_end;
	__u8 stack_end_source;
	/* CLOCK_MONOTONIC. */
	__u64 time_ns;
	__u32 pid;
	__u32 tid;
	__u64 weight;
	/* Ticks of this CPU, this one included; samples it lost before this one. */
	__u64 cpu_fired;
	__u64 cpu_lost;
	/* First address above the stack, 0 if unknown. */
	__u64 stack_end;
	__u32 chunk_bytes;
	__u16 n_hole_words;
	__u16 n_frames;
	__u16 n_kernel;
	__u8 n_gaps;
	/* Padding before the chunk, see next_line. */
	__u8 n_skipped;
	/* Size of the chunk from the stack pointer up, had the ring had room for it; 0 if it had. */
	__u32 asked_bytes;
	/* With the tid, distinguishes the thread from a later one. */
	__u64 start_boottime;
	__u16 n_cfi_frames;
	/* enum cfi_end. */
	__u8 cfi_end;
	__u8 pad[5];
	/* At kernel entry; valid with SAMPLE_HAS_USER. */
	struct user_regs regs;
};

/*
 * For a thread on its alternate signal stack, the stack it was on before. After it, padded to 8 bytes:
 *   chunk_bytes of that stack, from RED_ZONE_BYTES below the stack pointer up;
 *   n_hole_words of u64, as for the other chunk.
 */
struct interrupted {
	/* Stack pointer when the signal came. */
	__u64 sp;
	/* First address above the stack, 0 if unknown. */
	__u64 stack_end;
	__u32 chunk_bytes;
	__u16 n_hole_words;
	__u8 stack_end_source;
	__u8 pad;
};

/* Consecutive samples lost for one cause, with none recorded between them. */
struct gap {
	/* CLOCK_MONOTONIC of the first and the last one. */
	__u64 first_ns;
	__u64 last_ns;
	__u64 n;
};

/*
 * One frame of a frame-pointer chain: the frame is at frame_address, its return address 8 bytes above.
 */
struct fp_frame {
	__u64 address;
	__u64 frame_address;
};

#include "cfi_abi.h"

/* State of a frame-pointer walk, kept off the BPF stack. */
struct fp_walk {
	__u64 fp;
	__u64 last_fp;
	__u64 frames_at;
	__u32 n_frames;
	__u32 end;
	/* 32-bit code: words of 4 bytes. */
	__u32 is_32;
	__u32 pad;
};

/* The copied part of a stack in which a walk reads. */
struct stack_window {
	/* Address of its first byte. */
	__u64 start;
	__u64 bytes;
	/* Offset of the copy in the segment. */
	__u64 at;
	/*
	 * Offset in the segment where the next part may be copied to; 0 if what is there must be kept, or if no more
	 * could be read.
	 */
	__u64 next_at;
	/* The end of the stack; 0 if unknown. */
	__u64 end;
};

/* State of a copy made page by page. */
struct page_copy {
	__u64 start;
	__u64 bytes;
	__u64 chunk_at;
	/* End of the last readable page, as an offset in the chunk. */
	__u64 readable_bytes;
	__u64 holes[HOLE_WORDS];
	__u64 n_holes;
};

/* State of a search for the signal frame that the kernel put on an alternate stack, see interrupted.bpf.h. */
struct signal_frame {
	/* The alternate stack. */
	__u64 stack;
	__u64 bytes;
	/* The thread's stack pointer: no frame is below it. */
	__u64 sp;
	/* The highest possible address of the frame's uc_stack. */
	__u64 first;
	/* The result; 0 until it is found. */
	__u64 interrupted_sp;
};

/* Where the next record goes. */
struct slot {
	/* Bytes used in its segment, and so the record's offset in it. */
	__u64 filled;
	/* Bytes used and not returned yet. */
	__u64 used;
	/* A mask of the other free segments. */
	__u64 free;
	/* Bytes available for a chunk. */
	__u64 room;
	__u32 segment;
	__u32 pad;
};

/* The mapping a thread's stack pointer was last found in, by a CPU. */
struct stack_mapping {
	__u64 start;
	__u64 end;
	/* With the tid, distinguishes the thread from a later one. */
	__u64 start_boottime;
	__u32 tid;
	__u32 pad;
};

/*
 * The mapping that contains a thread's stack, if bpf_find_vma cannot find it (on PREEMPT_RT it never can): user space
 * looks it up for the thread's first sample, and stores it here. A reader that interrupts a write sees that check is
 * not the exclusive or of the other words.
 */
struct stack_hint {
	__u64 start;
	__u64 end;
	__u64 start_boottime;
	__u64 tid;
	__u64 check;
};

/*
 * One CPU's side of its ring, on pages that user space maps. Only that CPU writes it, except for `tail` and what
 * follows.
 */
struct cpu_control {
	/* Position of the next record, counted over all segments ever filled. */
	__u64 head;
	/*
	 * A bit for each segment, flipped whenever the segment is taken: it is free if the bits here and in given_back
	 * are equal (ring.bpf.h).
	 */
	__u64 taken;
	/* The segment that was taken as the nth, at index n % MAX_SEGMENTS. */
	__u8 order[MAX_SEGMENTS];
	__u64 counters[N_COUNTERS];
	struct slot slot;
	struct stack_window window;
	struct fp_walk walk;
	struct cfi_walk cfi_walk;
	struct recent_rule recent_rules[RECENT_RULES];
	/* Stacks walked so far: for one in copy_every, the stack is copied as well. */
	__u64 n_walked;
	struct page_copy copy;
	struct signal_frame signal_frame;
	struct stack_mapping stack_mappings[STACK_MAPPINGS];
	/* Losses since the last sample. */
	struct gap gaps[N_GAP_CAUSES];
	/* Hits of a tracepoint or probe, whether they are ticks or not. */
	__u64 hits;
	/* A probe's program is running. */
	__u64 is_busy;
	/* See any_number. */
	__u64 any_number;
	__u64 pad0[6];
	/*
	 * Position up to which the ring was read. This and what follows are only written by user space, on a cache
	 * line of their own.
	 */
	__u64 tail __attribute__((aligned(64)));
	/* A bit for each segment, flipped whenever all of it was read. */
	__u64 given_back;
	__u64 pad1[6];
};

/* State of a tracked process. */
struct tracked {
	/*
	 * Distinguishes the process from a later one with the same pid; 0 if user space added it and it was not seen
	 * yet.
	 */
	__u64 start_boottime;
	__u32 state;
	__u32 pad;
};

/* The wait state of a profiled thread, by its tid. */
struct wait {
	/* Distinguishes the thread from a later one with the same tid. */
	__u64 start_boottime;
	/* CLOCK_MONOTONIC of when it blocked; 0 if it is not blocked. */
	__u64 since_ns;
	/* Its CPU time at that moment, which shows whether it has run since. */
	__u64 run_ns;
	/* Its stacks were written when it blocked, see stacks_at_block. */
	__u64 has_stacks;
};

/* A wait that has not ended when the recording ends. n_kernel of u64 follow: the kernel's chain, leaf first. */
struct open_wait {
	__u32 pid;
	__u32 tid;
	/* As in struct wait. */
	__u64 since_ns;
	__u64 run_ns;
	/* Address of the thread's control block. */
	__u64 thread_base;
	/* Whether it has not run since; otherwise neither registers nor chain belong to the wait. */
	__u32 is_blocked;
	/* Whether it has an address space and registers. */
	__u32 has_user;
	__u32 n_kernel;
	/* Between two programs, see is_between_programs. */
	__u32 in_exec;
	/* The stack must not be copied, see is_dumpable. */
	__u32 withheld;
	__u32 reserved;
	struct user_regs regs;
};

/* Keeps all of these types in the BTF, from which user space takes them. */
struct abi {
	struct sample_head sample_head;
	struct fp_frame fp_frame;
	struct cfi_frame cfi_frame;
	struct cfi_miss cfi_miss;
	struct program_run program_run;
	struct rule_set rule_set;
	struct cpu_control cpu_control;
	struct gap gap;
	struct interrupted interrupted;
	struct stack_hint stack_hint;
	struct tracked tracked;
	struct wait wait;
	struct open_wait open_wait;
	enum limit limit;
	enum rule_layout rule_layout;
	enum counter counter;
	enum gap_cause gap_cause;
	enum fp_end fp_end;
	enum cfi_end cfi_end;
	enum cfi_frame_flag cfi_frame_flag;
	enum stack_end_source stack_end_source;
	enum sample_flag sample_flag;
	enum collect_flag collect_flag;
	enum filter filter;
	enum tracked_state tracked_state;
};

_Static_assert(sizeof(struct sample_head) == 88 + sizeof(struct user_regs), "no hidden padding");
_Static_assert(sizeof(struct sample_head) % 8 == 0, "records are padded to 8 bytes");
_Static_assert(sizeof(struct cfi_miss) == 72, "no hidden padding");
_Static_assert(sizeof(struct interrupted) == 24, "no hidden padding");
_Static_assert(sizeof(struct open_wait) == 56 + sizeof(struct user_regs), "no hidden padding");
_Static_assert(sizeof(struct cpu_control) % 64 == 0, "whole cache lines");
_Static_assert(__builtin_offsetof(struct cpu_control, pad0) + sizeof(((struct cpu_control *)0)->pad0) ==
		       __builtin_offsetof(struct cpu_control, tail),
	       "no hidden padding");

#endif
