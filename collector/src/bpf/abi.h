/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What the BPF programs and user space share: the record of a sample, the control block of a CPU,
 * and the names of what is counted. Values and padding are explicit. Nothing of it is kept: both
 * sides are built from this file.
 */
#ifndef FPPROF_ABI_H
#define FPPROF_ABI_H

/* Sizes both sides count with. An enumeration, so that they reach user space with the types. */
enum limit {
	/* Longest frame-pointer chain. */
	MAX_FRAMES = 512,
	/* Longest kernel chain: the default of kernel.perf_event_max_stack. */
	MAX_KERNEL_FRAMES = 127,
	PAGE_BYTES = 4096,
	CACHE_LINE_BYTES = 64,
	/* Copied below the stack pointer: a function may keep something there without moving it. */
	RED_ZONE_BYTES = ARCH_RED_ZONE_BYTES,
	/*
	 * Largest chunk that can be asked for, and the pages it can touch with its red zone (one more
	 * each when it starts inside a page).
	 */
	MAX_CHUNK_BYTES = 16 << 20,
	MAX_CHUNK_PAGES = MAX_CHUNK_BYTES / PAGE_BYTES + 2,
	HOLE_WORDS = (MAX_CHUNK_PAGES + 63) / 64,
	/*
	 * `fp` mode copies so much of the stack to walk in it: one copy of a page costs what five
	 * single reads cost.
	 */
	FP_SCRATCH_BYTES = 4096,
	/*
	 * A pthread's control block lies at most so far below the end of the mapping that holds its
	 * stack.
	 */
	THREAD_BLOCK_BYTES = 64 << 10,
	/* Processes of ours that are not profiled: the recorder, the one that analyses for `top`, two that parse files. */
	MAX_EXCLUDED = 4,
	/* Threads whose stack's mapping a CPU remembers, a power of two. */
	STACK_MAPPINGS = 256,
	/* Threads whose stack's mapping user space tells of, a power of two. */
	STACK_HINTS = 4096,
	/*
	 * The kernel keeps so many bytes below a growing stack free of other mappings
	 * (stack_guard_gap).
	 */
	STACK_GUARD_BYTES = 1 << 20,
	/*
	 * Chunks are not cut below this when a ring fills up: less holds no caller's frame of most
	 * programs.
	 */
	SHED_LEAST_BYTES = 1 << 10,
	/* Segments of a ring: as many as a word has bits. */
	MAX_SEGMENTS = 64,
	/* Control groups above one another that are looked at. */
	MAX_CGROUP_DEPTH = 64,
};

/*
 * What a CPU counts. `fired` + `lost_nested` = `recorded` + all `lost_*` + all `skipped_*`.
 */
#define FPPROF_COUNTERS(X)              \
	X(COUNT_FIRED, 0)               \
	X(COUNT_RECORDED, 1)            \
	X(COUNT_LOST_RING_FULL, 2)      \
	X(COUNT_LOST_TABLE_FULL, 3)     \
	X(COUNT_SKIPPED_IDLE, 4)        \
	X(COUNT_SKIPPED_SELF, 5)        \
	X(COUNT_SKIPPED_UNTRACKED, 6)   \
	/* Not part of the balance: */  \
	X(COUNT_KERNEL_CHAIN_FAILED, 7) \
	X(COUNT_STACK_END_UNKNOWN, 8)   \
	X(COUNT_TRACKED_FULL, 9)        \
	X(COUNT_BYTES, 10)              \
	X(COUNT_SHED, 11)               \
	/* Not in COUNT_FIRED, see take_probe: */ \
	X(COUNT_LOST_NESTED, 12)     \
	/* Of waits (off_cpu.bpf.h), in their own control blocks: */ \
	X(COUNT_SKIPPED_SHORT, 13)   \
	X(COUNT_SKIPPED_PREEMPTED, 14) \
	/* Not part of the balance, nanoseconds: */ \
	X(COUNT_SHORT_NS, 15) \
	/* On a CPU that came online later than the rings were made: */ \
	X(COUNT_LOST_NO_RING, 16) \
	/* Not part of the balance: what the overflows of a counter that fired have counted together. */ \
	X(COUNT_PERIODS, 17)

/* Why samples are lost: what gaps are told by. */
#define FPPROF_GAP_CAUSES(X)  \
	X(GAP_RING_FULL, 0)   \
	X(GAP_TABLE_FULL, 1)  \
	X(GAP_NO_RING, 2)

/* Why a frame-pointer chain ended. */
#define FPPROF_FP_ENDS(X)                \
	X(FP_END_NONE, 0)                \
	X(FP_END_ZERO, 1)                \
	X(FP_END_UNREADABLE, 2)          \
	X(FP_END_NOT_ASCENDING, 3)       \
	X(FP_END_ZERO_RETURN_ADDRESS, 4) \
	X(FP_END_MAX_DEPTH, 5)

/* How the end of a stack is known. */
#define FPPROF_STACK_ENDS(X)        \
	X(STACK_END_UNKNOWN, 0)     \
	X(STACK_END_START_STACK, 1) \
	X(STACK_END_THREAD_BASE, 2) \
	X(STACK_END_ALT_STACK, 3)   \
	X(STACK_END_MAPPING, 4)

/* Facts about a sample, as bits. */
#define FPPROF_SAMPLE_FLAGS(X) \
	X(SAMPLE_IN_KERNEL, 1) \
	X(SAMPLE_HAS_USER, 2)  \
	X(SAMPLE_ABI32, 4)     \
	X(SAMPLE_KERNEL_CHAIN_FAILED, 8) \
	/* Not with SAMPLE_HAS_USER: between two programs, see is_between_programs. */ \
	X(SAMPLE_IN_EXEC, 16) \
	/* Halves of the sample of a wait (off_cpu.bpf.h): its stacks, with its beginning as the weight; */ \
	X(SAMPLE_WAIT_BEGUN, 32) \
	/* its end and its length, with nothing behind the head. */ \
	X(SAMPLE_WAIT_ENDED, 64) \
	/* The chunk begins RED_ZONE_BYTES below the stack pointer. */ \
	X(SAMPLE_HAS_RED_ZONE, 128) \
	/* A struct interrupted follows the holes. */ \
	X(SAMPLE_HAS_INTERRUPTED, 256) \
	/* Not with SAMPLE_HAS_USER: the kernel had not saved the user registers yet. */ \
	X(SAMPLE_ENTERING_KERNEL, 512) \
	/* No byte of the stack was to be copied, see is_dumpable. */ \
	X(SAMPLE_WITHHELD, 1024)

/* Whose samples a ring holds. */
#define FPPROF_EVENTS(X)     \
	X(EVENT_SAMPLED, 0)  \
	X(EVENT_WAITS, 1)

/* What is collected of the user stack, as bits of the configuration. */
#define FPPROF_COLLECT_FLAGS(X) \
	X(COLLECT_CHUNK, 1)     \
	X(COLLECT_FRAMES, 2)    \
	X(COLLECT_KERNEL, 4)

/* Whom to sample. */
#define FPPROF_FILTERS(X)    \
	X(FILTER_SYSTEM, 1)  \
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
enum stack_end_source { FPPROF_STACK_ENDS(FPPROF_ENUMERATOR) };
enum sample_flag { FPPROF_SAMPLE_FLAGS(FPPROF_ENUMERATOR) };
enum collect_flag { FPPROF_COLLECT_FLAGS(FPPROF_ENUMERATOR) };
enum filter { FPPROF_FILTERS(FPPROF_ENUMERATOR) };
enum tracked_state { FPPROF_TRACKED_STATES(FPPROF_ENUMERATOR) };

/*
 * A sample in a ring. Behind it and n_skipped bytes, each part padded to 8 bytes:
 *   chunk_bytes of stack, from the stack pointer or RED_ZONE_BYTES below it up;
 *   n_hole_words of u64, a bit for each page of the chunk that could not be read;
 *   with SAMPLE_HAS_INTERRUPTED a struct interrupted and what follows it;
 *   n_frames of struct fp_frame, leaf first;
 *   n_kernel of u64, leaf first;
 *   n_gaps of struct gap, by enum gap_cause: what this CPU lost since its sample before.
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
	/* First address above the stack, 0 when it is not known. */
	__u64 stack_end;
	__u32 chunk_bytes;
	__u16 n_hole_words;
	__u16 n_frames;
	__u16 n_kernel;
	__u8 n_gaps;
	/* Up to where the chunk lies, see next_line. */
	__u8 n_skipped;
	/* What the chunk would have been from the stack pointer up, had the ring had room for it; 0 when it had. */
	__u32 asked_bytes;
	/* With the tid, tells the thread from a later one. */
	__u64 start_boottime;
	/* As at kernel entry; valid with SAMPLE_HAS_USER. */
	struct user_regs regs;
};

/*
 * Of a thread on its alternate signal stack, the stack it was on before. Behind it, padded to 8 bytes:
 *   chunk_bytes of that stack, from RED_ZONE_BYTES below the stack pointer up;
 *   n_hole_words of u64, as of the other chunk.
 */
struct interrupted {
	/* Stack pointer when the signal came. */
	__u64 sp;
	/* First address above the stack, 0 when it is not known. */
	__u64 stack_end;
	__u32 chunk_bytes;
	__u16 n_hole_words;
	__u8 stack_end_source;
	__u8 pad;
};

/* Samples lost one after the other for one cause, with none recorded between. */
struct gap {
	/* CLOCK_MONOTONIC of the first and the last of them. */
	__u64 first_ns;
	__u64 last_ns;
	__u64 n;
};

/*
 * One step of a frame-pointer chain: the frame lies at frame_address, its return address 8 bytes
 * above.
 */
struct fp_frame {
	__u64 address;
	__u64 frame_address;
};

/* A frame-pointer walk under way, kept out of the BPF stack. */
struct fp_walk {
	__u64 fp;
	__u64 last_fp;
	__u64 chunk_start;
	__u64 chunk_bytes;
	__u64 chunk_at;
	__u64 frames_at;
	__u32 n_frames;
	__u32 end;
	/* 32-bit code: words of 4 bytes. */
	__u32 is_32;
	__u32 pad;
};

/* A copy page by page under way. */
struct page_copy {
	__u64 start;
	__u64 bytes;
	__u64 chunk_at;
	/* End of the last page that could be read, as an offset in the chunk. */
	__u64 readable_bytes;
	__u64 holes[HOLE_WORDS];
	__u64 n_holes;
};

/* A search under way for the frame that the kernel has left on an alternate stack, see interrupted.bpf.h. */
struct signal_frame {
	/* The alternate stack. */
	__u64 stack;
	__u64 bytes;
	/* The thread's stack pointer: no frame lies below. */
	__u64 sp;
	/* The highest place of the frame's uc_stack. */
	__u64 first;
	/* What is looked for, 0 until it is found. */
	__u64 interrupted_sp;
};

/* Where the next record goes. */
struct slot {
	/* What of its segment is filled, and so the record's offset in it. */
	__u64 filled;
	/* What is filled and not given back yet. */
	__u64 used;
	/* A bit for each segment that is free besides. */
	__u64 free;
	/* Bytes there are for a chunk. */
	__u64 room;
	__u32 segment;
	__u32 pad;
};

/* The mapping a thread's stack pointer was last seen in, by a CPU. */
struct stack_mapping {
	__u64 start;
	__u64 end;
	/* With the tid, tells the thread from a later one. */
	__u64 start_boottime;
	__u32 tid;
	__u32 pad;
};

/*
 * The mapping that a thread's stack lies in, where bpf_find_vma cannot tell (on PREEMPT_RT it never can): user space looks
 * it up for the first sample of the thread, and tells it here. A reader that comes in the middle of a write sees that
 * check is not the exclusive or of the other words.
 */
struct stack_hint {
	__u64 start;
	__u64 end;
	__u64 start_boottime;
	__u64 tid;
	__u64 check;
};

/*
 * One CPU's side of its ring, on pages that user space maps. Only that CPU writes it, `tail`
 * excepted.
 */
struct cpu_control {
	/* Where the next record goes, counted over all segments ever filled. */
	__u64 head;
	/*
	 * A bit for each segment, flipped whenever it is taken: those equal here and in given_back are
	 * free (ring.bpf.h).
	 */
	__u64 taken;
	/* Which segment is, or was, the nth that was taken: at n % MAX_SEGMENTS. */
	__u8 order[MAX_SEGMENTS];
	__u64 counters[N_COUNTERS];
	struct slot slot;
	struct fp_walk walk;
	struct page_copy copy;
	struct signal_frame signal_frame;
	struct stack_mapping stack_mappings[STACK_MAPPINGS];
	/* What was lost since the last sample. */
	struct gap gaps[N_GAP_CAUSES];
	/* Of a tracepoint or probe, ticks or not. */
	__u64 hits;
	/* A probe's program is under way. */
	__u64 is_busy;
	__u64 pad0[1];
	/*
	 * Up to where it was read. With what follows written by user space alone, on a cache line of
	 * its own.
	 */
	__u64 tail __attribute__((aligned(64)));
	/* A bit for each segment, flipped whenever all of it was read. */
	__u64 given_back;
	__u64 pad1[6];
};

/* What is known of a tracked process. */
struct tracked {
	/* Tells the process from a later one with the same pid; 0 when user space put it in and it was not seen yet. */
	__u64 start_boottime;
	__u32 state;
	__u32 pad;
};

/* A thread that is profiled by the time it is off its CPU, by its tid. */
struct wait {
	/* Tells the thread from a later one with the same tid. */
	__u64 start_boottime;
	/* CLOCK_MONOTONIC since when it is blocked; 0 when it is not. */
	__u64 since_ns;
	/* CPU time it had had then, by which it is told whether it has run since. */
	__u64 run_ns;
	/* Its stacks were handed over when it was blocked, see stacks_at_block. */
	__u64 has_stacks;
};

/* A wait that goes on while the recording ends. n_kernel of u64 follow, the kernel's chain, leaf first. */
struct open_wait {
	__u32 pid;
	__u32 tid;
	/* As in struct wait. */
	__u64 since_ns;
	__u64 run_ns;
	/* Where the thread's control block is. */
	__u64 thread_base;
	/* Whether it has not run since; without that, neither registers nor chain are those of the wait. */
	__u32 is_blocked;
	/* Whether it has an address space and registers. */
	__u32 has_user;
	__u32 n_kernel;
	/* Between two programs, see is_between_programs. */
	__u32 in_exec;
	/* No byte of the stack is to be copied, see is_dumpable. */
	__u32 withheld;
	__u32 reserved;
	struct user_regs regs;
};

/* Keeps all of this in the BTF, where user space takes it from. */
struct abi {
	struct sample_head sample_head;
	struct fp_frame fp_frame;
	struct cpu_control cpu_control;
	struct gap gap;
	struct interrupted interrupted;
	struct stack_hint stack_hint;
	struct tracked tracked;
	struct wait wait;
	struct open_wait open_wait;
	enum limit limit;
	enum counter counter;
	enum gap_cause gap_cause;
	enum fp_end fp_end;
	enum stack_end_source stack_end_source;
	enum sample_flag sample_flag;
	enum collect_flag collect_flag;
	enum filter filter;
	enum tracked_state tracked_state;
};

_Static_assert(sizeof(struct sample_head) == 80 + sizeof(struct user_regs), "no hidden padding");
_Static_assert(sizeof(struct sample_head) % 8 == 0, "records are padded to 8 bytes");
_Static_assert(sizeof(struct interrupted) == 24, "no hidden padding");
_Static_assert(sizeof(struct open_wait) == 56 + sizeof(struct user_regs), "no hidden padding");
_Static_assert(sizeof(struct cpu_control) % 64 == 0, "whole cache lines");
_Static_assert(__builtin_offsetof(struct cpu_control, pad0) + sizeof(((struct cpu_control *)0)->pad0) ==
		       __builtin_offsetof(struct cpu_control, tail),
	       "no hidden padding");

#endif
