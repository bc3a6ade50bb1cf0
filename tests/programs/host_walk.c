/*
 * The walk by call frame information that runs in the kernel, as ordinary C. From standard input it takes walks, in words of
 * 8 bytes:
 *
 *   ip, sp, fp; address and bytes of a copy of the stack; number of rules; address and rule of each; the copy, whole words
 *
 * and writes for each how it ended (enum cfi_end), the number of frames, and address and CFA of each.
 */
#include <linux/types.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARCH_RED_ZONE_BYTES 128
struct user_regs {
	__u64 ip;
};
#include "abi.h"

struct walk_input {
	__u64 n_rules;
	__u64 (*rules)[2];
	__u64 start;
	__u64 bytes;
	__u8 *copy;
};

static __u32 find_rule(struct walk_input *input, __u64 address, __u64 *rule)
{
	for (__u64 i = 0; i < input->n_rules; i++) {
		if (input->rules[i][0] == address) {
			*rule = input->rules[i][1];
			return CFI_END_NONE;
		}
	}
	return CFI_MISS_NO_RULE;
}

static int read_pair(struct walk_input *input, __u64 pair[2], __u64 address)
{
	__u64 offset = address - input->start;

	if (address + 8 == input->start && input->bytes >= 8) {
		/* The page below was never touched, and is not in the copy: the first word is of no use to anybody. */
		pair[0] = 0;
		memcpy(&pair[1], input->copy, 8);
		return 0;
	}
	if (offset >= input->bytes || input->bytes - offset < 16)
		return -1;
	memcpy(pair, input->copy + offset, 16);
	return 0;
}

#define FIND_RULE(reader, address, rule) find_rule(reader, address, rule)
#define READ_PAIR(reader, pair, address) read_pair(reader, pair, address)
#include "cfi_walk.bpf.h"

static void read_all(void *to, size_t bytes)
{
	if (bytes && fread(to, bytes, 1, stdin) != 1)
		exit(2);
}

int main(void)
{
	static struct cfi_frame frames[MAX_FRAMES];
	__u64 head[6];

	while (fread(head, sizeof(head), 1, stdin) == 1) {
		struct cfi_walk walk = { .ip = head[0], .sp = head[1], .fp = head[2] };
		struct walk_input input = { .start = head[3], .bytes = head[4], .n_rules = head[5] };
		__u64 result[2] = { CFI_END_NONE, 0 };

		input.rules = calloc(input.n_rules + 1, sizeof(*input.rules));
		input.copy = calloc(input.bytes + 8, 1);
		if (!input.rules || !input.copy)
			return 3;
		read_all(input.rules, input.n_rules * sizeof(*input.rules));
		read_all(input.copy, (input.bytes + 7) & ~7ULL);
		while (result[0] == CFI_END_NONE && result[1] < MAX_FRAMES) {
			result[0] = cfi_step(&walk, &input);
			if (result[0] < CFI_MISS_NO_RULE)
				frames[result[1]++] = walk.frame;
		}
		fwrite(result, sizeof(result), 1, stdout);
		fwrite(frames, sizeof(*frames), result[1], stdout);
		free(input.rules);
		free(input.copy);
	}
	return 0;
}
