/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The CPU's side of its rings: finding room for a record, and publishing it. The reader's side is
 * collector/src/ring.rs.
 *
 *   segments in the order in which they were taken, each filled from its start:
 *
 *         segment 2                  segment 0                  segment 5
 *       +-----------+-----------+  +-----------+---+----------+  +-----------+-----------+
 *       |  records  |  records  |  |  records  | 0 |   left   |  |  records  |   free    |
 *       +-----------+-----------+  +-----------+---+----------+  +-----------+-----------+
 *                   ^ tail                                                   ^ head
 *
 * head and tail count bytes over all segments ever taken: head / segment_bytes is the sequence number of a segment,
 * which order[] maps to the segment; head % segment_bytes is the offset in it.
 *
 *   this CPU, for a record                              the reader
 *     writes it at head                                   reads head, then the records from tail up to it
 *     in a new segment: sets order[], flips its           for each segment that is read to its end: flips
 *       bit in taken                                        its bit in given_back
 *     moves head when all of that is written              moves tail
 *
 * A segment is free if its bits in taken and given_back are equal. Nobody waits: without a free segment the sample is
 * lost.
 */
#ifndef FPPROF_RING_H
#define FPPROF_RING_H

#include "abi.h"
#include "maps.bpf.h"
#include "memory.bpf.h"

/*
 * Finds the control block and ring that a program on this CPU uses. Every CPU has a control block; one that came
 * online after the rings were created has no ring.
 */
static __always_inline bool find_memory(struct loop_context *context, __u32 cpu, __u32 event)
{
	__u32 number = event * n_possible_cpus + cpu;

	if (cpu >= n_possible_cpus)
		return false;
	context->has_ring = cpu < n_ring_cpus;
	context->first_segment = (event * n_ring_cpus + cpu) * n_segments;
	context->control = bpf_map_lookup_elem(&controls, &number);
	return context->control;
}

/*
 * Index of the lowest set bit of a nonzero word: counts the bits below it. Done by hand, since clang 14 crashes on
 * __builtin_ctzll, and without branches, all of which the verifier would follow.
 */
static __always_inline __u32 lowest_bit(__u64 word)
{
	word = (word & -word) - 1;
	word -= (word >> 1) & 0x5555555555555555;
	word = (word & 0x3333333333333333) + ((word >> 2) & 0x3333333333333333);
	word = (word + (word >> 4)) & 0x0f0f0f0f0f0f0f0f;
	return (word * 0x0101010101010101) >> 56;
}

/*
 * Finds room for the next record: after the last one, or in a free segment; false if there is none. The segment that
 * the reader is in counts as fully used, since it is returned as a whole.
 */
static __always_inline bool find_slot(struct cpu_control *control)
{
	struct slot *slot = &control->slot;
	__u64 tail = *(volatile __u64 *)&control->tail;

	slot->filled = control->head & (segment_bytes - 1);
	slot->used = control->head - (tail & ~(segment_bytes - 1));
	slot->free = ~(control->taken ^ *(volatile __u64 *)&control->given_back) & all_segments;
	if (slot->filled) {
		slot->segment = control->order[(control->head >> segment_shift) & (MAX_SEGMENTS - 1)];
	} else {
		if (!slot->free)
			return false;
		slot->segment = lowest_bit(slot->free);
		slot->free &= slot->free - 1;
	}
	return true;
}

/* Likewise, and looks up the segment's memory. */
static __always_inline bool find_segment(struct loop_context *context)
{
	struct cpu_control *control = context->control;
	__u32 number;

	if (!context->has_ring || !find_slot(control))
		return false;
	number = context->first_segment + control->slot.segment;
	context->segment = bpf_map_lookup_elem(&segments, &number);
	return context->segment;
}

/*
 * Decides how many bytes of stack may be copied, by how full the ring is: all of them up to three quarters, and then a
 * quarter, a sixteenth, a sixty-fourth. So the ring lasts longer than with whole stacks, and each cut stack records
 * what it lacks.
 */
static __always_inline void find_room(struct cpu_control *control)
{
	__u64 other_bytes = max_record_bytes - ALIGN8(max_chunk_bytes), room = max_chunk_bytes;
	struct slot *slot = &control->slot;
	__u64 used = slot->used;
	__u64 least = max_chunk_bytes < SHED_LEAST_BYTES ? max_chunk_bytes : SHED_LEAST_BYTES;
	int i;

	if (used > ring_bytes / 16 * 15)
		room >>= 6;
	else if (used > ring_bytes / 8 * 7)
		room >>= 4;
	else if (used > ring_bytes / 4 * 3)
		room >>= 2;
	/* A ring for two samples runs out of room for a whole one long before that. */
	for (i = 0; i < 3; i++)
		if (!slot->free && slot->filled + other_bytes + ALIGN8(room) > segment_bytes)
			room >>= 2;
	slot->room = room < least ? least : room;
}

/* Publishes the record, and wakes the reader if the ring passes wakeup_bytes. */
static __always_inline void publish(struct cpu_control *control, __u8 *segment, __u32 cpu, __u64 bytes)
{
	struct slot *slot = &control->slot;
	__u64 left = segment_bytes - slot->filled, grown = bytes < left ? bytes : left;
	__u64 end = slot->filled + bytes;

	if (slot->filled + grown >= hot_bytes && grown < left && slot->free && slot->used < ring_bytes / 4 &&
	    end <= segment_room) {
		/*
		 * Tells the reader that no other record follows here. It only looks below the head that it read, which
		 * passes this word and the rest of the segment in one step, after they are written: so after a record
		 * it finds either the next one or this word, never older data. Records are multiples of 8 bytes, as
		 * segments are, so the word fits.
		 */
		*(__u64 *)(segment + end) = 0;
		grown = left;
	}
	if (!slot->filled) {
		control->order[(control->head >> segment_shift) & (MAX_SEGMENTS - 1)] = slot->segment;
		control->taken ^= 1ULL << (slot->segment & (MAX_SEGMENTS - 1));
	}
	control->counters[COUNT_BYTES] += bytes;
	/* A full barrier: what was written before must be visible before the new head. */
	__sync_lock_test_and_set(&control->head, control->head + grown);
	if (slot->used < wakeup_bytes && slot->used + grown >= wakeup_bytes)
		bpf_ringbuf_output(&doorbell, &cpu, sizeof(cpu), BPF_RB_FORCE_WAKEUP);
}

#endif
