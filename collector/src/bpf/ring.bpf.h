/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The CPU's side of its rings: finding room for a record, and handing it over. The reader's side is collector/src/ring.rs.
 *
 *   segments in the order in which they were taken, each filled from its start:
 *
 *         segment 2                  segment 0                  segment 5
 *       +-----------+-----------+  +-----------+---+----------+  +-----------+-----------+
 *       |  records  |  records  |  |  records  | 0 |   left   |  |  records  |   free    |
 *       +-----------+-----------+  +-----------+---+----------+  +-----------+-----------+
 *                   ^ tail                                                   ^ head
 *
 * head and tail count bytes over all segments ever taken: head / segment_bytes is the sequence number of a segment, and
 * order[] says which segment has it; head % segment_bytes says where in it.
 *
 *   this CPU, for a record                              the reader
 *     writes it at head                                   reads head, then the records from tail up to it
 *     in a new segment: sets order[], flips its           of each segment that is read to its end: flips
 *       bit in taken                                        its bit in given_back
 *     moves head when all of that is written              moves tail
 *
 * A segment is free when its bits in taken and given_back are equal. Nobody waits: without a free segment the sample is
 * lost.
 */
#ifndef FPPROF_RING_H
#define FPPROF_RING_H

#include "abi.h"
#include "maps.bpf.h"
#include "memory.bpf.h"

/*
 * Where a program of this CPU counts and writes. Every CPU has a place to count; one that came online later than the rings
 * were made has no ring.
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
 * Number of the lowest bit of a word that has one: counts the bits below it. By hand, since clang 14
 * dies of __builtin_ctzll, and without branches, of which the verifier would follow all.
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
 * Finds where the next record goes: behind the last one, or in a segment that is free; false when none is. The segment
 * that the reader is in counts as used as a whole, since it is given back as a whole.
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

/* The same, with the memory of the segment. */
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
 * How many bytes of stack there is room for, by how full the ring is: all up to three quarters, and
 * then a quarter, a sixteenth, a sixty-fourth of it. So the ring lasts longer than it would with
 * whole stacks, and what is lost then is said of each stack.
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
	/* A ring of two samples has no room for a whole one long before. */
	for (i = 0; i < 3; i++)
		if (!slot->free && slot->filled + other_bytes + ALIGN8(room) > segment_bytes)
			room >>= 2;
	slot->room = room < least ? least : room;
}

/* Hands the record over, and wakes the reader when the ring passes the mark. */
static __always_inline void publish(struct cpu_control *control, __u8 *segment, __u32 cpu, __u64 bytes)
{
	struct slot *slot = &control->slot;
	__u64 left = segment_bytes - slot->filled, grown = bytes < left ? bytes : left;
	__u64 end = slot->filled + bytes;

	if (slot->filled + grown >= hot_bytes && grown < left && slot->free && slot->used < ring_bytes / 4 &&
	    end <= segment_room) {
		/*
		 * Tells the reader that no other record comes here. It looks only below the head it
		 * saw, which passes this word and the rest behind it in one step, after they are
		 * written: so what it finds behind a record is the next one or this, never what lay
		 * here before. Records are multiples of 8 bytes, as segments are: the word fits.
		 */
		*(__u64 *)(segment + end) = 0;
		grown = left;
	}
	if (!slot->filled) {
		control->order[(control->head >> segment_shift) & (MAX_SEGMENTS - 1)] = slot->segment;
		control->taken ^= 1ULL << (slot->segment & (MAX_SEGMENTS - 1));
	}
	control->counters[COUNT_BYTES] += bytes;
	/* A full barrier: what was written before must be seen before the new head. */
	__sync_lock_test_and_set(&control->head, control->head + grown);
	if (slot->used < wakeup_bytes && slot->used + grown >= wakeup_bytes)
		bpf_ringbuf_output(&doorbell, &cpu, sizeof(cpu), BPF_RB_FORCE_WAKEUP);
}

#endif
