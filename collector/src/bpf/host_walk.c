/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The kernel's walk by call frame information as ordinary C: over a copied stack, with rules from a callback. Called
 * by sys/host_walk.rs.
 */
#include <linux/types.h>
#include <stdbool.h>
#include <string.h>

#define ARCH_RED_ZONE_BYTES 128
struct user_regs {
	__u64 ip;
};
#define barrier_var(var)
#define __noinline
#include "abi.h"

/* As in sys/host_walk.rs. */
struct stack_copy {
	const __u8 *copy;
	/* Address of the copy's first byte, and size of the copy. */
	__u64 start;
	__u64 bytes;
};

struct host_walk {
	__u32 (*find_rule)(void *context, __u64 address, __u64 *rule);
	int (*read_code)(void *context, __u64 *code, __u64 address);
	void *context;
	/* The thread's stack, and the one that a signal interrupted. */
	struct stack_copy stacks[2];
	/* Ends of the stacks, 0 if unknown. */
	__u64 stack_ends[2];
};

static __u32 find_host_rule(struct host_walk *input, __u64 address, __u64 *rule)
{
	return input->find_rule(input->context, address, rule);
}

static int read_copy(const struct stack_copy *stack, __u64 pair[2], __u64 address)
{
	__u64 offset = address - stack->start;

	if (address + 8 == stack->start && stack->bytes >= 8) {
		/* The page below was never touched and is not in the copy; the value of its word does not matter. */
		pair[0] = 0;
		memcpy(&pair[1], stack->copy, 8);
		return 0;
	}
	if (offset >= stack->bytes || stack->bytes - offset < 16)
		return -1;
	memcpy(pair, stack->copy + offset, 16);
	return 0;
}

static int read_copies(struct host_walk *input, __u64 pair[2], __u64 address)
{
	return read_copy(&input->stacks[0], pair, address) && read_copy(&input->stacks[1], pair, address);
}

static int read_host_code(struct host_walk *input, __u64 *code, __u64 address)
{
	return input->read_code(input->context, code, address);
}

static __u64 host_stack_end(struct host_walk *input, __u64 sp)
{
	const struct stack_copy *interrupted = &input->stacks[1];
	bool is_interrupted = sp - interrupted->start < interrupted->bytes;

	return input->stack_ends[is_interrupted];
}

#define FIND_RULE(reader, address, rule) find_host_rule(reader, address, rule)
#define READ_PAIR(reader, pair, address) read_copies(reader, pair, address)
#define READ_FAR_PAIR(reader, pair, address) read_copies(reader, pair, address)
#define READ_CODE(reader, code, address) read_host_code(reader, code, address)
#define FIND_MAPPING(reader, address)
#include "cfi_walk.bpf.h"

/* Provides what a step needs. */
static void provide(struct cfi_walk *walk, struct host_walk *input)
{
	__u32 i;

	walk->stack_end = host_stack_end(input, walk->first_sp);
	walk->has_stack_end = 1;
	begin_scan(walk);
	for (i = 0; i < n_words(walk) && !scan_word(walk, input, i); i++)
		;
}

/* The keys of rules and their hashes, for user space, which writes the rules. */
__u64 fpprof_rule_key(__u32 number, __u64 offset, __u32 n)
{
	return RULE_KEY(number, offset, n);
}

__u32 fpprof_key_hash(__u64 key)
{
	return KEY_HASH(key);
}

__u32 fpprof_second_key_hash(__u64 key)
{
	return SECOND_KEY_HASH(key);
}

/*
 * Walks from these registers (ip, sp, fp), and returns how the walk ended (enum cfi_end). Writes up to MAX_FRAMES
 * frames and their number to *n_frames: all frames of a complete walk, or none.
 */
__u32 fpprof_host_walk(struct host_walk *input, const __u64 registers[3], struct cfi_frame *frames,
		       __u32 *n_frames)
{
	struct cfi_walk walk = {
		.ip = registers[0], .sp = registers[1], .fp = registers[2], .first_sp = registers[1]
	};
	__u32 end = CFI_END_NONE, n = 0, n_rounds = 1;

	*n_frames = 0;
	while (end == CFI_END_NONE && n < MAX_FRAMES) {
		end = cfi_step(&walk, input);
		for (; end >= CFI_NEEDS_END && n_rounds < CFI_ROUNDS; n_rounds++) {
			provide(&walk, input);
			end = cfi_step(&walk, input);
		}
		if (end < CFI_MISS_NO_RULE)
			frames[n++] = walk.frame;
	}
	if (end >= CFI_NEEDS_END)
		return CFI_MISS_NO_CALLER;
	if (end == CFI_END_NONE)
		return CFI_MISS_MAX_DEPTH;
	if (end < CFI_MISS_NO_RULE)
		*n_frames = n;
	return end;
}
