/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The part of abi.h that concerns walks by call frame information. */
#ifndef FPPROF_CFI_ABI_H
#define FPPROF_CFI_ABI_H

/* Parts of a rule, see cfi_walk.bpf.h, and values of its kind and its stop reason. */
enum rule_layout {
	RULE_KIND_MASK = 15,
	RULE_PLT = 1,
	RULE_FULL = 2,
	RULE_STOP = 3,
	RULE_SIGNAL = 4,
	/* JIT-compiled code, which belongs to no file. */
	RULE_JIT = 5,
	RULE_SIMPLE = 8,
	RULE_BY_FP = 1,
	RULE_FP_SAVED = 1 << 4,
	RULE_FP_RESTORED = 1 << 5,
	RULE_AT_ENTRY = 1 << 6,
	RULE_STOP_SHIFT = 8,
	RULE_FP_SHIFT = 16,
	RULE_CFA_SHIFT = 32,
	/* Stop reasons below are root frames. */
	RULE_ROOTS = 6,
	RULE_NO_CFI = 8,
};

/* A file's number, which of the granule's ways it is, and the index of the granule in the file. */
#define RULE_KEY(number, offset, n) ((__u64)(number) << 40 | (__u64)(n) << 32 | (offset) / GRANULE_BYTES)
#define RECENT_KEY(number, offset) ((__u64)(number) << 40 | (offset))
/*
 * Fibonacci hashing, after folding the upper half into the lower. A key is in either of two sets, so that sets fill
 * evenly.
 */
#define KEY_PRODUCT(key) (((key) ^ (key) >> 32) * 0x9e3779b97f4a7c15ULL)
#define KEY_HASH(key) (KEY_PRODUCT(key) >> 40)
#define SECOND_KEY_HASH(key) (KEY_PRODUCT(key) >> 23)
/* Offsets from here on have no keys, so code there has no rules. */
#define KEY_OFFSETS (1ULL << KEY_OFFSET_BITS)

/* A frame of a walk, with its CFA, a multiple of 8 (0: root), and enum cfi_frame_flag. */
struct cfi_frame {
	__u64 address;
	__u64 cfa;
};

/* A file as the kernel identifies it: once changed or replaced it is another. Device and inode are 0 for the vDSO. */
struct code_file {
	__u64 inode;
	/* Time of the last change of contents or attributes. */
	__u64 ctime_sec;
	__u32 ctime_nsec;
	__u32 device;
};

/* A program as run by a process, see struct code_space: of another program, or another process, one field differs. */
struct program_run {
	__u64 start_boottime;
	__u64 exec_id;
};

/* Code that a walk had no rule for, or with CFI_MISS_NO_FILE only the program. */
struct cfi_miss {
	struct code_file file;
	/* Address of the code, and its offset in the file. */
	__u64 address;
	__u64 offset;
	/* The mapping that contains it. */
	__u64 start;
	__u64 end;
	struct program_run program;
};

/*
 * Rules of some granules, each named by a key; key 0 is unused. User space writes them, BPF sets `used`.
 * Rows ascend, and those of a granule's first way start with it; unused rows are copies of the last, but start at 255.
 */
struct rule_set {
	__u64 keys[RULE_WAYS];
	/* Whether a walk has used the way; the sequence is incremented before and after its rows are written. */
	struct {
		__u32 used, sequence;
	} ways[RULE_WAYS];
	/* Offset in its granule where each row starts. */
	__u8 starts[RULE_WAYS * WAY_ROWS] __attribute__((aligned(8)));
	/* Index of its rule in the map of rules; 0 for none. */
	__u16 places[RULE_WAYS * WAY_ROWS];
};

/* A per-CPU cache of rules, in front of the shared tables: one cache line is read instead of three. */
struct recent_rule {
	/* Number of a file and offset in it; 0 for none. */
	__u64 key;
	__u64 rule;
};

/* Address range of a mapping. */
struct code_range {
	__u64 start;
	__u64 end;
};

/* What a code mapping maps, as found by a walk. */
struct code_mapping {
	/* File offset of its start. */
	__u64 offset;
	struct code_file file;
	/* Number of the file in keys; 0 for a file without rules so far. */
	__u32 number;
	/* enum cfi_end: why there is no file. */
	__u32 miss;
};

/* An address space whose code mappings are cached: its identity, and that of its state. */
struct code_space {
	/* When its mappings began to be cached. */
	__u64 since_ns;
	__u64 mm;
	struct program_run program;
	__u32 sequence;
	/* Mappings found so far; the last CODE_MAPPINGS of them are cached. */
	__u32 n_mappings;
};

/* State of a walk by call frame information. */
struct cfi_walk {
	__u64 ip;
	__u64 sp;
	__u64 fp;
	__u64 frames_at;
	__u32 n_frames;
	__u32 end;
	/* ip is a return address. */
	__u32 is_caller;
	/* enum cfi_frame_flag: how the frame was found, if not by a rule. */
	__u32 found_by;
	/* Frames without rows, of which it is not known yet whether JIT-compiled code has called them. */
	__u32 n_between;
	/* Whether frame pointers are followed in executable memory without a file: 0 not known yet, 1 yes, 2 no. */
	__u32 jit_state;
	/* The current address space, and the current mapping. */
	__u32 space;
	__u32 mapping;
	__u32 has_stack_end;
	__u32 is_scanned;
	/* sp of the innermost frame on the current stack, which a signal may have interrupted, and that stack's end. */
	__u64 first_sp;
	__u64 stack_end;
	/* Of the words between sp and the end of the stack, those that can be return addresses: how many, and the last. */
	__u32 n_found;
	__u32 found_at;
	__u64 return_address;
	struct code_space spaces[CODE_SPACES];
	/* CODE_MAPPINGS for each space. Separate, since all its ranges are searched and only one mapping is used. */
	struct code_range ranges[CODE_SPACES * CODE_MAPPINGS];
	struct code_mapping mappings[CODE_SPACES * CODE_MAPPINGS];
	struct cfi_miss miss;
	/* A copy of a node of the mappings' maple tree. */
	__u64 node[MAPLE_WORDS];
	/* Input and output of a step: not on the BPF stack, of which a program and its callees have only 512 bytes. */
	__u64 below_cfa[2];
	__u64 pair[2];
	struct cfi_frame frame;
	__u64 maple_entry;
	__u64 maple_address;
	__u64 maple_mapping;
};

#endif
