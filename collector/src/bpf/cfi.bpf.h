/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The walk by call frame information. Rules belong to files, and are found by the offset of code in its file: all
 * processes that map a file share them, and user space need not provide anything per process. Code without a rule is
 * reported as missed, with its file and offset, and the stack is copied.
 *
 *   mapping of the address -> file -> its number     code_files
 *   number, granule of the file -> set and way       rule_sets, by a key of both
 *   byte of the granule -> row -> index of a rule    rules
 *
 * The last row of a way may refer to a further way, with the granule's next rows, which was written before.
 *
 * User space replaces a way by clearing its key first and writing the new key last; and it increments the way's
 * sequence before and after it writes the rows. If key and sequence are the same before and after reading, what was
 * read belongs to the key. The key alone does not suffice: the rows of the same key may be rewritten.
 */
#ifndef FPPROF_CFI_H
#define FPPROF_CFI_H

#include "abi.h"
#include "code_mapping.bpf.h"
#include "maps.bpf.h"
#include "memory.bpf.h"
#include "stack_end.bpf.h"

/* How many bytes of a word are at most this one. All at once: one by one takes longer, also to verify. */
static __always_inline __u64 count_at_most(__u64 word, __u64 byte)
{
	const __u64 ones = 0x0101010101010101, tops = ones << 7;
	__u64 bytes = byte * ones, by_low_bits = (bytes | tops) - (word & ~tops);
	__u64 at_most = ((bytes & ~word) | (~(bytes ^ word) & by_low_bits)) & tops;

	return (at_most >> 7) * ones >> 56;
}

/* Index of a byte's rule in a way with this key, 0 for none. */
static __always_inline __u32 place_in_way(struct rule_set *set, __u32 way, __u64 key, __u64 byte)
{
	__u32 place, sequence = *(volatile __u32 *)&set->ways[way].sequence;
	__u64 row = 0;
	int i;

#pragma unroll
	for (i = 0; i < WAY_ROWS; i += 8)
		row += count_at_most(*(volatile __u64 *)&set->starts[way * WAY_ROWS + i], byte);
	/* The way before has been written again since it was read, and has this byte now. */
	if (!row)
		return 0;
	row = way * WAY_ROWS + ((row - 1) & (WAY_ROWS - 1));
	/* verifier: the bounds must hold for the register that is added (seen on 6.1) */
	barrier_var(row);
	row &= RULE_WAYS * WAY_ROWS - 1;
	place = *(volatile __u16 *)&set->places[row];
	if (*(volatile __u64 *)&set->keys[way] != key ||
	    *(volatile __u32 *)&set->ways[way].sequence != sequence)
		return 0;
	if (!set->ways[way].used)
		set->ways[way].used = 1;
	return place;
}

/*
 * Index of the rule of an offset in the file with this number, 0 for none.
 *
 * verifier: global, as ends_with_call. One loop for ways and sets, since of the 512 bytes of stack little is left.
 */
__noinline __u32 find_place(__u32 number, __u64 offset)
{
	__u32 set_number, place, way, i;
	struct rule_set *set;
	__u64 key;
	int n;

	for (i = 0; i < 2 * GRANULE_WAYS; i++) {
		key = RULE_KEY(number, offset, i / 2);
		set_number = (i & 1 ? SECOND_KEY_HASH(key) : KEY_HASH(key)) & rule_set_mask;
		set = bpf_map_lookup_elem(&rule_sets, &set_number);
		if (!set)
			return 0;
		way = RULE_WAYS;
#pragma unroll
		for (n = 0; n < RULE_WAYS; n++)
			if (*(volatile __u64 *)&set->keys[n] == key)
				way = n;
		barrier_var(way);
		if (way >= RULE_WAYS && i & 1)
			return 0;
		if (way >= RULE_WAYS)
			continue;
		place = place_in_way(set, way & (RULE_WAYS - 1), key, offset & (GRANULE_BYTES - 1));
		if (place != PLACE_IN_NEXT_WAY)
			return place;
		i |= 1;
	}
	return 0;
}

/* 1 if a range contains an address, else 0. verifier: a comparison would be a branch. */
static __always_inline __u64 range_contains(struct code_range *range, __u64 address)
{
	return (~(address - range->start) & (address - range->end)) >> 63;
}

/* Index of the cached mapping that contains an address. */
static __always_inline __u32 mapping_of_code(struct loop_context *context, __u64 address)
{
	struct cfi_walk *walk = &context->control->cfi_walk;
	__u64 number = walk->mapping & (ALL_CODE_MAPPINGS - 1), contains;
	struct code_range *ranges;
	int i;

	/* Usually the previous frame's mapping. */
	if (range_contains(&walk->ranges[number], address))
		return number;
	/* verifier: a pointer, since it forgets the bounds of a number that is spilled (seen on 6.1) */
	ranges = &walk->ranges[first_mapping(walk)];
	number = CODE_MAPPINGS;
#pragma unroll
	for (i = 0; i < CODE_MAPPINGS; i++) {
		contains = range_contains(&ranges[i], address);
		number ^= (number ^ i) & -contains;
		barrier_var(number);
	}
	walk->mapping = first_mapping(walk) + number;
	if (number >= CODE_MAPPINGS)
		read_mapping(walk, address);
	/* verifier: a value that went through a map is unknown; otherwise it would follow each number */
	return *(volatile __u32 *)&walk->mapping & (ALL_CODE_MAPPINGS - 1);
}

/* The rule of executable memory without a file, unless it may be described by a jitdump. */
static __always_inline __u32 find_jit_rule(struct cfi_walk *walk, __u64 *rule)
{
	struct program_run *released, *program = &current_space(walk)->program;
	__u32 pid = bpf_get_current_pid_tgid() >> 32;

	if (!walk->jit_state) {
		released = bpf_map_lookup_elem(&jit_processes, &pid);
		walk->jit_state = released && released->start_boottime == program->start_boottime &&
						  released->exec_id == program->exec_id
					  ? 1
					  : 2;
	}
	if (walk->jit_state != 1) {
		walk->miss.program = *program;
		return CFI_MISS_NO_FILE;
	}
	*rule = RULE_JIT;
	return CFI_END_NONE;
}

static __always_inline __u32 find_rule(struct loop_context *context, __u64 address, __u64 *rule)
{
	struct cfi_walk *walk = &context->control->cfi_walk;
	__u32 number = mapping_of_code(context, address), place = 0, *known_number;
	struct code_mapping *mapping = &walk->mappings[number];
	struct code_range *range = &walk->ranges[number];
	struct recent_rule *recent;
	__u64 offset, *known, key;

	if (mapping->miss == CFI_MISS_NO_FILE)
		return find_jit_rule(walk, rule);
	if (mapping->miss)
		return mapping->miss;
	offset = address - range->start + mapping->offset;
	if (offset >= KEY_OFFSETS)
		return CFI_MISS_OTHER_REGISTERS;
	if (!mapping->number) {
		known_number = bpf_map_lookup_elem(&code_files, &mapping->file);
		if (known_number)
			mapping->number = *known_number;
	}
	key = RECENT_KEY(mapping->number, offset);
	recent = &context->control->recent_rules[KEY_HASH(key) & (RECENT_RULES - 1)];
	if (mapping->number && recent->key == key) {
		*rule = recent->rule;
		return CFI_END_NONE;
	}
	if (mapping->number)
		place = find_place(mapping->number, offset);
	if (!place) {
		/* User space may have forgotten all numbers. */
		mapping->number = 0;
		walk->miss.file = mapping->file;
		walk->miss.address = address;
		walk->miss.offset = offset;
		walk->miss.start = range->start;
		walk->miss.end = range->end;
		return CFI_MISS_NO_RULE;
	}
	known = bpf_map_lookup_elem(&rules, &place);
	if (!known)
		return CFI_MISS_NO_RULE;
	*rule = *known;
	recent->key = key;
	recent->rule = *rule;
	return CFI_END_NONE;
}

static __always_inline int read_code(struct loop_context *context, __u64 *code, __u64 address)
{
	struct cfi_walk *walk = &context->control->cfi_walk;
	__u32 number = walk->mapping & (ALL_CODE_MAPPINGS - 1);

	if (walk->mappings[number].miss == CFI_MISS_NO_MAPPING)
		return 1;
	/* User space looks at 16 bytes, and cannot say anything if they are not all in the file's code. */
	if (walk->mappings[number].miss || address - walk->ranges[number].start < 16)
		return -1;
	return bpf_probe_read_user(code, sizeof(*code), (void *)(address - 8)) ? -1 : 0;
}

#define FIND_RULE(reader, address, rule) find_rule(reader, address, rule)
#define READ_PAIR(reader, pair, address) \
	read_window(reader, pair, address, ((struct loop_context *)(reader))->control->cfi_walk.sp)
#define READ_FAR_PAIR(reader, pair, address) bpf_probe_read_user(pair, 16, (void *)(address))
#define READ_CODE(reader, code, address) read_code(reader, code, address)
#define FIND_MAPPING(reader, address) mapping_of_code(reader, address)
#include "cfi_walk.bpf.h"

static long scan_iteration(__u32 iteration, void *data)
{
	struct loop_context *context = data;

	return scan_word(&context->control->cfi_walk, context, iteration);
}

/* As FP_STEPS. Not four: the verifier would need 50 ms more when a recording starts, for 2 ns a frame. */
#define CFI_STEPS 2

static long cfi_iteration(__u32 iteration, void *data)
{
	struct loop_context *context;
	struct cfi_walk *walk;
	__u64 at;
	int i;

#pragma clang loop unroll(disable)
	for (i = 0; i < CFI_STEPS; i++) {
		context = data;
		/* Or clang keeps on the stack what it can compute before the loop. */
		barrier_var(context);
		walk = &context->control->cfi_walk;
		if (walk->n_frames >= MAX_FRAMES)
			return 1;
		walk->end = cfi_step(walk, context);
		if (walk->end >= CFI_MISS_NO_RULE)
			return 1;
		/* Or clang reads n_frames before the step, and keeps it on the stack. */
		barrier();
		at = walk->frames_at + walk->n_frames * sizeof(walk->frame);
		/* verifier: as in read_window */
		if (at > segment_room)
			return 1;
		*(struct cfi_frame *)(context->segment + at) = walk->frame;
		walk->n_frames++;
		if (walk->end != CFI_END_NONE)
			return 1;
	}
	return 0;
}

/* Stores the end of the current stack. Not inline, or the verifier would follow each way to find it to the end. */
static __noinline void store_stack_end(struct loop_context *context)
{
	struct cfi_walk *walk = &context->control->cfi_walk;
	struct task_struct *task = bpf_get_current_task_btf();
	__u8 source;

	walk->stack_end = find_stack_end(context->control, task, task->mm, walk->first_sp, &source, true);
	walk->has_stack_end = 1;
}

/* Walks until a step needs the end of the stack, and provides it: a walk is continued once. */
static long walk_round(__u32 round, void *data)
{
	struct loop_context *context = data;
	struct cfi_walk *walk = &context->control->cfi_walk;

	walk->end = CFI_END_NONE;
	bpf_loop(MAX_FRAMES / CFI_STEPS, cfi_iteration, context, 0);
	if (walk->end < CFI_NEEDS_END)
		return 1;
	store_stack_end(context);
	begin_scan(walk);
	bpf_loop(n_words(walk), scan_iteration, context, 0);
	return 0;
}

/*
 * Walks the stack of the current thread with the frames at `at`, and returns their size: all frames, or none if one
 * misses.
 */
static __always_inline __u64 append_cfi_frames(struct loop_context *context, struct sample_head *head,
					       __u64 at, struct task_struct *task, struct mm_struct *mm)
{
	struct cfi_walk *walk = &context->control->cfi_walk;
	__u64 n_frames;

	walk->ip = REGS_IP(head->regs);
	walk->sp = REGS_SP(head->regs);
	walk->fp = REGS_FP(head->regs);
	walk->frames_at = at;
	walk->n_frames = 0;
	walk->is_caller = 0;
	walk->found_by = 0;
	walk->n_between = 0;
	walk->jit_state = 0;
	walk->has_stack_end = 0;
	walk->is_scanned = 0;
	walk->first_sp = walk->sp;
	begin_mappings(walk, task, mm, head->time_ns);
	walk->end = CFI_MISS_ABI32;
	if (!(head->flags & SAMPLE_ABI32)) {
		bpf_loop(CFI_ROUNDS, walk_round, context, 0);
		if (walk->end >= CFI_NEEDS_END)
			walk->end = CFI_MISS_NO_CALLER;
		else if (walk->end == CFI_END_NONE)
			walk->end = CFI_MISS_MAX_DEPTH;
	}
	head->cfi_end = walk->end;
	if (walk->end >= CFI_MISS_NO_RULE)
		return 0;
	n_frames = walk->n_frames;
	if (n_frames > MAX_FRAMES)
		n_frames = MAX_FRAMES;
	head->n_cfi_frames = n_frames;
	return n_frames * sizeof(struct cfi_frame);
}

/* Appends what user space needs to make the missed rule, and returns its size. */
static __always_inline __u64 append_miss(struct loop_context *context, struct sample_head *head, __u64 at)
{
	if ((head->cfi_end != CFI_MISS_NO_RULE && head->cfi_end != CFI_MISS_NO_FILE) || at > segment_room)
		return 0;
	/* verifier: as in write_record */
	barrier_var(at);
	*(struct cfi_miss *)(context->segment + at) = context->control->cfi_walk.miss;
	head->flags |= SAMPLE_HAS_MISS;
	return sizeof(struct cfi_miss);
}

#endif
