/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Collecting a sample: the stack, the frame-pointer chain, the kernel's chain, earlier losses. */
#ifndef FPPROF_CAPTURE_H
#define FPPROF_CAPTURE_H

#include <bpf/bpf_tracing.h>
#include "abi.h"
#include "cfi.bpf.h"
#include "compat.bpf.h"
#include "interrupted.bpf.h"
#include "maps.bpf.h"
#include "memory.bpf.h"
#include "stack_end.bpf.h"
#include "walk.bpf.h"

#define FRAMES_ROOM (MAX_FRAMES * sizeof(struct fp_frame))
#define KERNEL_ROOM (MAX_KERNEL_FRAMES * sizeof(__u64))
/*
 * Steps of a walk for each call from bpf_loop, a divisor of MAX_FRAMES: a call takes 10 ns on a Zen 4, whose returns
 * are slow (spec_rstack_overflow).
 */
#define FP_STEPS 4

static long walk_iteration(__u32 iteration, void *data)
{
	struct loop_context *context = data;
	struct fp_walk *walk = &context->control->walk;
	struct fp_frame frame;
	__u64 at;
	int i;

#pragma clang loop unroll(disable)
	for (i = 0; i < FP_STEPS; i++) {
		if (walk->n_frames >= MAX_FRAMES)
			return 1;
		at = walk->frames_at + walk->n_frames * sizeof(frame);
		frame = (struct fp_frame){};
		walk->end = fp_step(walk, context, &frame);
		if (walk->end != FP_END_NONE)
			return 1;
		/* verifier: as in read_window */
		if (at > segment_room)
			return 1;
		*(struct fp_frame *)(context->segment + at) = frame;
		walk->n_frames++;
	}
	return 0;
}

/* Appends the frame-pointer chain, starting with the sampled instruction, and returns its size. */
static __always_inline __u64 append_frames(struct loop_context *context, struct sample_head *head, __u64 at)
{
	struct fp_walk *walk = &context->control->walk;
	struct fp_frame leaf = { .address = REGS_IP(head->regs) };
	__u64 n_frames;

	if (at > segment_room)
		return 0;
	/* verifier: as in write_record */
	barrier_var(at);
	*(struct fp_frame *)(context->segment + at) = leaf;
	walk->fp = REGS_FP(head->regs);
	walk->last_fp = 0;
	walk->frames_at = at;
	walk->n_frames = 1;
	walk->end = FP_END_NONE;
	walk->is_32 = head->flags & SAMPLE_ABI32;
	if (!WALKS_32 && walk->is_32) {
		head->n_frames = 1;
		return sizeof(leaf);
	}
	bpf_loop(MAX_FRAMES / FP_STEPS, walk_iteration, context, 0);
	n_frames = walk->n_frames;
	if (n_frames > MAX_FRAMES)
		n_frames = MAX_FRAMES;
	head->n_frames = n_frames;
	head->fp_end = walk->end == FP_END_NONE ? FP_END_MAX_DEPTH : walk->end;
	return n_frames * sizeof(leaf);
}

/*
 * Stack copies start and end at cache line boundaries (except if sp is not a multiple of 8): the kernel copies with
 * `rep movsb`, which is fast when source and target have the same alignment in their lines. On a Zen 5 it takes up to
 * twice as long if the target starts less than a line further in its page than the source does in its own, on a Zen 3
 * many times as long if it starts within a line (https://lunnova.dev/articles/ryzen-slow-short-rep-mov/).
 */
static __always_inline __u64 next_line(__u64 at)
{
	return (at + CACHE_LINE_BYTES - 1) & ~(CACHE_LINE_BYTES - 1ULL);
}

/* Whether the stack of a process may be copied. */
static __always_inline bool may_copy(struct task_struct *task, struct mm_struct *mm)
{
	return (includes_privileged || is_dumpable(task, mm)) &&
	       (!has_only_user || is_of_user(task, only_user));
}

/*
 * Walks by call frame information in a copy of the innermost part of the stack, which is not kept, and returns the
 * size of the frames at `at`: 0 for a walk that failed.
 */
static __always_inline __u64 walk_by_cfi(struct loop_context *context, struct sample_head *head, __u64 at,
					 struct task_struct *task, struct mm_struct *mm)
{
	struct stack_window *window = &context->control->window;
	__u64 room = FRAMES_ROOM * (collect & COLLECT_FRAMES ? 2 : 1) + KERNEL_ROOM;
	__u64 sp = REGS_SP(head->regs), below = sp & (CACHE_LINE_BYTES - 8);
	__u64 copy_at = next_line(at + room), bytes = FIRST_WINDOW_BYTES, copied, end;
	__u8 source;

	end = find_stack_end(context->control, task, mm, sp, &source, false);
	if (end && end - sp < bytes)
		bytes = end - sp;
	copied = bytes + below;
	/* verifier: as in append_user */
	barrier_var(copied);
	if (copy_at > segment_room || copied > FIRST_WINDOW_BYTES + CACHE_LINE_BYTES)
		return 0;
	barrier_var(copied);
	if (bpf_probe_read_user(context->segment + copy_at, copied, (void *)(sp - below)))
		copied = 0;
	window->start = sp - below;
	window->bytes = copied;
	window->at = copy_at;
	window->next_at = copy_at;
	window->end = end;
	return append_cfi_frames(context, head, at, task, mm);
}

/* Collects the user side after the head, if the thread has one now, and returns its size. */
static __always_inline __u64 append_user(struct loop_context *context, struct sample_head *head, __u64 pos,
					 struct task_struct *task, struct mm_struct *mm)
{
	bool keeps_chunk = collect & (COLLECT_CHUNK | COLLECT_CFI);
	__u64 at = pos + sizeof(*head), copy_at = next_line(at), chunk_at, used = 0;
	/* verifier: a constant, since older ones do not compare two unknown numbers */
	__u64 limit = keeps_chunk ? max_chunk_bytes : FIRST_WINDOW_BYTES;
	__u64 room = context->control->slot.room;
	__u64 sp, end, asked, bytes, below, copied, chunk_bytes, red_zone = 0, walked = 0;
	bool is_copied;

	bpf_probe_read_kernel(&head->regs, sizeof(head->regs), (void *)bpf_task_pt_regs(task));
	sp = REGS_SP(head->regs);
	if (is_between_programs(task, mm, sp)) {
		head->flags |= SAMPLE_IN_EXEC;
		return 0;
	}
	if (has_released_stack(task, mm)) {
		head->flags |= task->flags & PF_EXITING ? 0 : SAMPLE_IN_EXEC;
		return 0;
	}
	head->flags |= SAMPLE_HAS_USER;
	if (REGS_ARE_32(head->regs))
		head->flags |= SAMPLE_ABI32;
	if ((collect & COLLECT_CHUNK) && copy_every > 1) {
		if (limit < FIRST_WINDOW_BYTES)
			limit = FIRST_WINDOW_BYTES;
		if (context->control->n_walked++ % copy_every) {
			head->flags |= SAMPLE_CHAIN_ONLY;
			keeps_chunk = false;
		}
	}
	if (collect & COLLECT_CFI) {
		walked = any_number(context->control, walk_by_cfi(context, head, at, task, mm));
		/* verifier: which has forgotten the bound */
		if (walked > FRAMES_ROOM)
			return 0;
		at += walked;
		if (walked && (!copy_every || context->control->n_walked++ % copy_every)) {
			if (collect & COLLECT_FRAMES)
				walked += append_frames(context, head, at);
			return walked;
		}
		copy_at = next_line(at);
	}
	end = find_stack_end(context->control, task, mm, sp, &head->stack_end_source, keeps_chunk);
	end = any_number(context->control, end);
	context->control->window.end = end;
	asked = end ? end - sp : limit;
	if (asked > limit)
		asked = limit;
	if ((collect & COLLECT_CHUNK) && copy_every > 1) {
		bytes = keeps_chunk ? max_chunk_bytes : FIRST_WINDOW_BYTES;
		if (asked > bytes)
			asked = bytes;
	}
	if (keeps_chunk && !may_copy(task, mm)) {
		head->flags |= SAMPLE_WITHHELD;
		asked = 0;
	}
	asked = any_number(context->control, asked);
	bytes = asked;
	if (keeps_chunk) {
		if (bytes > room)
			bytes = room;
		if (bytes && !(head->flags & SAMPLE_ABI32))
			red_zone = RED_ZONE_BYTES;
		head->stack_end = end;
		if (!end)
			context->control->counters[COUNT_STACK_END_UNKNOWN]++;
	} else {
		copy_at = next_line(at + FRAMES_ROOM + KERNEL_ROOM);
	}
	below = sp & (CACHE_LINE_BYTES - 8);
	/* verifier: or clang makes an `or` of the sum, whose bounds the verifier does not track */
	barrier_var(below);
	chunk_at = copy_at + below;
	copied = bytes + red_zone + below;
	if (copy_at > segment_room)
		return 0;
	barrier_var(copy_at);
	context->control->window.at = copy_at;
	/*
	 * verifier: the bound must hold for the register passed to the helper, not only for a copy that is spilled
	 * before (seen on 6.1 and 6.18, clang 14)
	 */
	barrier_var(copied);
	if (copied > limit + RED_ZONE_BYTES + CACHE_LINE_BYTES)
		return 0;
	barrier_var(copied);
	context->control->window.start = sp - red_zone - below;
	context->control->window.bytes = copied;
	is_copied = !bpf_probe_read_user(context->segment + copy_at, copied, (void *)(sp - red_zone - below));
	if (!is_copied && red_zone > (sp & (PAGE_BYTES - 1))) {
		/* The stack was never deeper: nothing uses the page below. */
		copied -= red_zone;
		barrier_var(copied);
		if (copied > limit + CACHE_LINE_BYTES)
			return 0;
		barrier_var(copied);
		context->control->window.start = sp - below;
		context->control->window.bytes = copied;
		is_copied = !bpf_probe_read_user(context->segment + copy_at, copied, (void *)(sp - below));
		if (is_copied)
			red_zone = 0;
	}
	if (keeps_chunk) {
		chunk_bytes = bytes + red_zone;
		if (!is_copied) {
			chunk_bytes = copy_pages(context, sp - red_zone, chunk_bytes, chunk_at, end);
			mapping_of(context->control, task->pid)->end = 0;
		}
		chunk_bytes = any_number(context->control, chunk_bytes);
		if (chunk_bytes > max_chunk_bytes + RED_ZONE_BYTES)
			chunk_bytes = max_chunk_bytes + RED_ZONE_BYTES;
		/* If less could be read than there was room for, the room was not the limit. */
		if (chunk_bytes == room + red_zone && room < asked) {
			head->asked_bytes = asked;
			context->control->counters[COUNT_SHED]++;
		}
		if (red_zone)
			head->flags |= SAMPLE_HAS_RED_ZONE;
		head->chunk_bytes = chunk_bytes;
		head->n_skipped = chunk_at - at;
		used = head->n_skipped + ALIGN8(chunk_bytes);
		if (!is_copied && chunk_bytes) {
			head->n_hole_words = append_holes(context, at + used, chunk_bytes);
			used += head->n_hole_words * 8;
		}
		used = any_number(context->control, used);
		if (head->stack_end_source == STACK_END_ALT_STACK &&
		    !(head->flags & (SAMPLE_ABI32 | SAMPLE_WITHHELD)))
			used += append_interrupted(context, head, at + used, task, mm, asked, bytes);
	}
	if (collect & COLLECT_FRAMES) {
		if (!is_copied)
			context->control->window.bytes = 0;
		context->control->window.next_at = keeps_chunk ? 0 : context->control->window.at;
		used += append_frames(context, head, at + used);
	}
	if (collect & COLLECT_CFI)
		used += append_miss(context, head, at + used);
	return walked + used;
}

/* Appends the kernel's chain and returns its size. `ctx` is the running program's own. */
static __always_inline __u64 append_kernel(void *ctx, struct loop_context *context, struct sample_head *head,
					   __u64 at)
{
	long bytes;

	if (at > segment_room)
		return 0;
	/* verifier: as in write_record */
	barrier_var(at);
	bytes = bpf_get_stack(ctx, context->segment + at, KERNEL_ROOM, 0);
	if (bytes <= 0) {
		head->flags |= SAMPLE_KERNEL_CHAIN_FAILED;
		context->control->counters[COUNT_KERNEL_CHAIN_FAILED]++;
		return 0;
	}
	head->n_kernel = (__u64)bytes / 8;
	return bytes;
}

/* Fills a record's head, except for what describes the parts after it, and the registers. */
static __always_inline void begin_record(struct cpu_control *control, struct sample_head *head, __u16 flags,
					 __u64 pid_tid, __u64 weight)
{
	__u64 nested;

	__builtin_memset(head, 0, sizeof(*head) - sizeof(head->regs));
	head->flags = flags;
	head->time_ns = bpf_ktime_get_ns();
	head->pid = pid_tid >> 32;
	head->tid = (__u32)pid_tid;
	head->weight = weight;
	/* Losses of a probe inside another one's program are only counted there, see take_probe. */
	nested = *(volatile __u64 *)&control->counters[COUNT_LOST_NESTED];
	head->cpu_fired = control->counters[COUNT_FIRED] + nested;
	head->cpu_lost =
		control->counters[COUNT_LOST_RING_FULL] + control->counters[COUNT_LOST_TABLE_FULL] + nested;
}

/* Counts a lost sample, and notes when it was lost. */
static __always_inline void lose(struct cpu_control *control, enum counter counter, enum gap_cause cause)
{
	struct gap *gap = &control->gaps[cause];

	control->counters[counter]++;
	gap->last_ns = bpf_ktime_get_ns();
	if (!gap->n++)
		gap->first_ns = gap->last_ns;
}

/* Appends the losses since the last sample, if any, and returns their size. */
static __always_inline __u64 append_gaps(struct loop_context *context, struct sample_head *head, __u64 at)
{
	struct cpu_control *control = context->control;

	if (!control->gaps[GAP_RING_FULL].n && !control->gaps[GAP_TABLE_FULL].n)
		return 0;
	/* verifier: as in read_window */
	if (at > segment_room)
		return 0;
	barrier_var(at);
	__builtin_memcpy(context->segment + at, control->gaps, sizeof(control->gaps));
	__builtin_memset(control->gaps, 0, sizeof(control->gaps));
	head->n_gaps = N_GAP_CAUSES;
	return sizeof(control->gaps);
}

#endif
