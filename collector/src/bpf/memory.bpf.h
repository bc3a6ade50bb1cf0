/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Reading memory of the profiled program: two words for a walk, or pages of a stack with their holes. */
#ifndef FPPROF_MEMORY_H
#define FPPROF_MEMORY_H

#include "abi.h"
#include "maps.bpf.h"

#define ALIGN8(n) (((n) + 7) & ~7ULL)

/*
 * Pointers that a callback needs; everything that changes is in the control block, or the verifier would follow every
 * iteration.
 */
struct loop_context {
	struct cpu_control *control;
	/* The segment of the CPU's ring that contains the record; see find_segment. */
	__u8 *segment;
	/* Index of the first segment of the CPU's ring. */
	__u32 first_segment;
	bool has_ring;
};

/*
 * verifier: a number that went through a map is unknown (seen on 6.18). If paths that only differ in it meet, the code
 * after that is followed once.
 */
static __always_inline __u64 any_number(struct cpu_control *control, __u64 number)
{
	*(volatile __u64 *)&control->any_number = number;
	return *(volatile __u64 *)&control->any_number;
}

/*
 * Copies the next part of the stack. Most of the time of a read is that of the call: on a Zen 4, 16 bytes take 65 ns
 * and 16 KiB 350 ns, so this pays where frames are small. Not inline, or the verifier would follow it for each call.
 */
static __noinline void move_window(struct loop_context *context, __u64 address)
{
	struct stack_window *window = &context->control->window;
	__u64 at = window->next_at, start = address & ~(CACHE_LINE_BYTES - 1ULL), bytes = NEXT_WINDOW_BYTES;

	if (window->end && window->end - start < bytes)
		bytes = window->end - start;
	window->start = start;
	window->bytes = 0;
	window->at = at;
	/* verifier: the bounds must hold for the registers that are used (seen on 6.1) */
	barrier_var(at);
	barrier_var(bytes);
	if (at > segment_room || bytes > NEXT_WINDOW_BYTES)
		return;
	if (bpf_probe_read_user(context->segment + at, bytes, (void *)start))
		/* The end of the stack is near. */
		window->next_at = 0;
	else
		window->bytes = bytes;
}

static __always_inline bool window_contains(struct stack_window *window, __u64 address)
{
	__u64 offset = address - window->start;

	return offset < window->bytes && window->bytes - offset >= 16;
}

/*
 * Reads two words of the program, from the copy of its stack if it contains them; 0 if they could be read. They belong
 * to a frame that begins at `frame`.
 */
static __always_inline int read_window(struct loop_context *context, __u64 pair[2], __u64 address,
				       __u64 frame)
{
	struct stack_window *window = &context->control->window;
	__u64 at;

	if (!window_contains(window, address)) {
		if (address - frame <= SMALL_FRAME_BYTES && window->next_at)
			move_window(context, address);
		if (!window_contains(window, address))
			return bpf_probe_read_user(pair, 16, (void *)address);
	}
	at = window->at + (address - window->start);
	/* verifier: forgets the bounds of a value that went through a map (seen on 6.18) */
	if (at > segment_room)
		return -1;
	pair[0] = *(__u64 *)(context->segment + at);
	pair[1] = *(__u64 *)(context->segment + at + 8);
	return 0;
}

static __always_inline int read_pair(struct loop_context *context, __u64 pair[2], __u64 address)
{
	struct fp_walk *walk = &context->control->walk;
	__u32 words[2];

	if (!walk->is_32)
		return read_window(context, pair, address, walk->last_fp);
	if (bpf_probe_read_user(words, sizeof(words), (void *)address))
		return -1;
	pair[0] = words[0];
	pair[1] = words[1];
	return 0;
}

#define READ_USER(reader, pair, address) read_pair(reader, pair, address)

static long page_iteration(__u32 iteration, void *data)
{
	struct loop_context *context = data;
	struct page_copy *copy = &context->control->copy;
	__u64 first = PAGE_BYTES - (copy->start & (PAGE_BYTES - 1));
	__u64 offset = iteration ? first + (iteration - 1) * PAGE_BYTES : 0;
	__u64 size = iteration ? PAGE_BYTES : first;
	__u64 at = copy->chunk_at + offset;
	__u32 word = iteration / 64;

	if (offset >= copy->bytes)
		return 1;
	if (size > copy->bytes - offset)
		size = copy->bytes - offset;
	/* verifier: as in read_window */
	barrier_var(size);
	if (at > segment_room || size > PAGE_BYTES || word >= HOLE_WORDS)
		return 1;
	if (bpf_probe_read_user(context->segment + at, size, (void *)(copy->start + offset))) {
		copy->holes[word] |= 1ULL << (iteration & 63);
		copy->n_holes++;
	} else {
		copy->readable_bytes = offset + size;
	}
	return 0;
}

/* verifier: follows a global function once, not for each path to a call of it. */
__noinline int clear_page_copy(struct page_copy *copy)
{
	if (copy)
		__builtin_memset(copy, 0, sizeof(*copy));
	return 0;
}

/*
 * Copies what is readable, page by page, and notes the holes. Returns the size up to the last useful byte.
 */
static __always_inline __u64 copy_pages(struct loop_context *context, __u64 start, __u64 bytes, __u64 at,
					bool end_known)
{
	struct page_copy *copy = &context->control->copy;
	__u64 n_pages = ((start & (PAGE_BYTES - 1)) + bytes + PAGE_BYTES - 1) / PAGE_BYTES;

	clear_page_copy(copy);
	copy->start = start;
	copy->bytes = bytes;
	copy->chunk_at = at;
	bpf_loop(n_pages, page_iteration, context, 0);
	if (!copy->readable_bytes || !end_known) {
		/* What follows the last readable page may not be stack. */
		bytes = copy->readable_bytes;
	}
	return bytes;
}

/* Appends the bitmap of holes and returns its number of words. */
static __always_inline __u64 append_holes(struct loop_context *context, __u64 at, __u64 chunk_bytes)
{
	struct page_copy *copy = &context->control->copy;
	__u64 n_words =
		((copy->start & (PAGE_BYTES - 1)) + chunk_bytes + PAGE_BYTES * 64 - 1) / (PAGE_BYTES * 64);

	if (n_words > HOLE_WORDS)
		n_words = HOLE_WORDS;
	barrier_var(n_words);
	if (at > segment_room || n_words > HOLE_WORDS)
		return 0;
	barrier_var(at);
	bpf_probe_read_kernel(context->segment + at, n_words * 8, copy->holes);
	return n_words;
}

#endif
