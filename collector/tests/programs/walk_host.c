/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The frame-pointer step of the BPF program, compiled for the host: over made-up memory, and over this program's own
 * stack, where it must find the chain that the compiler sees. Build with frame pointers. Exits with the number of the
 * first case that fails.
 */
#include <linux/types.h>
#include <stdbool.h>
#include <stddef.h>

/* Replaces the architecture's headers. */
struct user_regs {
	__u64 sp;
};
static __u64 code_mask = ~0ULL;
#define CODE_ADDRESS(word) ((word) & code_mask)
#define ARCH_RED_ZONE_BYTES 128
#include "../../src/bpf/abi.h"

struct memory {
	__u64 start;
	__u64 words[8];
};

static int read_memory(struct memory *memory, __u64 pair[2], __u64 address)
{
	__u64 at = (address - memory->start) / 8;

	if (address < memory->start || at + 2 > 8)
		return -1;
	pair[0] = memory->words[at];
	pair[1] = memory->words[at + 1];
	return 0;
}

static int read_own(void *unused, __u64 pair[2], __u64 address)
{
	(void)unused;
	pair[0] = ((__u64 *)address)[0];
	pair[1] = ((__u64 *)address)[1];
	return 0;
}

static bool is_own;
#define READ_USER(reader, pair, address) \
	(is_own ? read_own(reader, pair, address) : read_memory(reader, pair, address))
#include "../../src/bpf/walk.bpf.h"

static __u32 step(struct memory *memory, __u64 fp, __u64 last_fp, bool is_32, struct fp_frame *frame)
{
	struct fp_walk walk = { .fp = fp, .last_fp = last_fp, .is_32 = is_32 };

	return fp_step(&walk, memory, frame);
}

static int made_up(void)
{
	/* Frames at 0x1000 and 0x1020; the second is the outermost. */
	struct memory memory = { 0x1000, { 0x1020, 0xaa, 0, 0, 0, 0xbb, 0x1000, 0 } };
	struct fp_walk walk = { .fp = 0x1000 };
	struct fp_frame frame = {};

	if (fp_step(&walk, &memory, &frame) != FP_END_NONE || frame.address != 0xaa || frame.frame_address != 0x1000)
		return 1;
	if (fp_step(&walk, &memory, &frame) != FP_END_NONE || frame.address != 0xbb || frame.frame_address != 0x1020)
		return 2;
	if (fp_step(&walk, &memory, &frame) != FP_END_ZERO)
		return 3;
	if (step(&memory, 0x1001, 0, false, &frame) != FP_END_NOT_ASCENDING)
		return 4;
	if (step(&memory, 0x1004, 0, false, &frame) != FP_END_NOT_ASCENDING)
		return 5;
	if (step(&memory, 0x1004, 0, true, &frame) == FP_END_NOT_ASCENDING)
		return 6;
	if (step(&memory, 0x1000, 0x1000, false, &frame) != FP_END_NOT_ASCENDING)
		return 7;
	if (step(&memory, 0x1038, 0, false, &frame) != FP_END_UNREADABLE)
		return 8;
	if (step(&memory, 0x1030, 0, false, &frame) != FP_END_ZERO_RETURN_ADDRESS)
		return 9;
	/* Signed return addresses, of a valid address and of none. */
	code_mask = 0xffff;
	memory.words[1] = 0x3f00000000aa;
	if (step(&memory, 0x1000, 0, false, &frame) != FP_END_NONE || frame.address != 0xaa)
		return 10;
	memory.words[1] = 0x3f0000000000;
	if (step(&memory, 0x1000, 0, false, &frame) != FP_END_ZERO_RETURN_ADDRESS)
		return 11;
	code_mask = ~0ULL;
	return 0;
}

static __attribute__((noinline)) int own_stack(int depth)
{
	struct fp_walk walk = { .fp = (__u64)__builtin_frame_address(0) };
	volatile int result;
	struct fp_frame frame;
	__u64 *fp;

	if (depth) {
		result = own_stack(depth - 1);
		return result;
	}
	is_own = true;
	fp = __builtin_frame_address(0);
	for (int i = 0; i < 20; i++, fp = (__u64 *)fp[0])
		if (fp_step(&walk, NULL, &frame) != FP_END_NONE || frame.frame_address != (__u64)fp || frame.address != fp[1])
			return 20 + i;
	return 0;
}

int main(void)
{
	int wrong = made_up();

	return wrong ? wrong : own_stack(20);
}
