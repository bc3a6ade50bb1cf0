/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The file that a code address is mapped from at this moment: from the tree of mappings, read without a lock. Readers
 * in the kernel take no lock either (lock_vma_under_rcu in mm/mmap_lock.c): nodes are replaced, not changed, and live
 * until all readers are done. In case a node or mapping is gone all the same, what is read is checked: a mapping
 * counts only if it contains the address.
 *
 * A maple tree: bits 3-6 of a pointer to a node are its type, and the node begins at a multiple of 256. The pointer to
 * the root also has bit 1 set; without that, it is the only entry itself. The slots of a leaf point to the mappings.
 *   leaf_64, range_64:  parent, pivot[15], slot[16]; the last slot may hold the number of the last slot in use instead
 *   arange_64:          parent, pivot[9], slot[10], gap[10], the number of the last slot in use
 * Slot n covers addresses up to pivot n, inclusive. include/linux/maple_tree.h, mtree_range_walk and ma_data_end in
 * lib/maple_tree.c: the same in 6.1 and 7.3.
 */
#ifndef FPPROF_CODE_MAPPING_H
#define FPPROF_CODE_MAPPING_H

#include <bpf/bpf_core_read.h>
#include "abi.h"
#include "compat.bpf.h"
#include "maps.bpf.h"
#include "memory.bpf.h"

#define ALL_CODE_MAPPINGS (CODE_SPACES * CODE_MAPPINGS)
/* A file that is overwritten in place, although it is mapped, is another file after this time. */
#define MAPPINGS_AGE_NS 1000000000ULL

#define MAPLE_LEAF_64 1
#define MAPLE_RANGE_64 2
#define MAPLE_ARANGE_64 3
#define MAPLE_IS_ROOT(entry) ((3 & (entry)) == 2 && (entry) > 4096)
#define MAPLE_NODE(entry) ((entry) & ~255ULL)
#define MAPLE_TYPE(entry) (((entry) >> 3) & 15)
#define RANGE_PIVOTS 15
#define ARANGE_PIVOTS 9
#define ARANGE_META 30

/* include/linux/mm.h */
#define VM_EXEC 4
/* include/linux/fs.h: FMODE_BACKING is bit 25 before 6.14, and bit 24 since. */
#define MAY_BE_BACKING (3U << 24)
/* include/uapi/linux/magic.h */
#define OVERLAYFS_SUPER_MAGIC 0x794c7630
/* Since 6.13: the timestamp has been queried. */
#define CTIME_QUERIED (1U << 31)

/* Descends one level, to maple_entry. Comparisons have no branches, all of which the verifier would follow. */
static long maple_iteration(__u32 iteration, void *data)
{
	struct cfi_walk *walk = *(struct cfi_walk **)data;
	__u64 entry = walk->maple_entry, page = walk->maple_address / PAGE_BYTES;
	__u64 type = MAPLE_TYPE(entry), n_pivots = type == MAPLE_ARANGE_64 ? ARANGE_PIVOTS : RANGE_PIVOTS,
	      below = 0, last;
	__u64 pivot_less_page, place_less_last;
	int i;

	walk->maple_entry = 0;
	if (type < MAPLE_LEAF_64 || type > MAPLE_ARANGE_64)
		return 1;
	if (bpf_probe_read_kernel(walk->node, sizeof(walk->node), (void *)MAPLE_NODE(entry)))
		return 1;
	last = n_pivots;
	if (type == MAPLE_ARANGE_64)
		last = walk->node[ARANGE_META] & 255;
	else if (!walk->node[RANGE_PIVOTS])
		last = walk->node[MAPLE_WORDS - 1] & 255;
	if (last > n_pivots)
		return 1;
	barrier_var(last);
#pragma clang loop unroll(disable)
	for (i = 0; i < RANGE_PIVOTS; i++) {
		/* Pivots are the last bytes of pages. */
		pivot_less_page = walk->node[1 + i] / PAGE_BYTES - page;
		place_less_last = (__u64)i - last;
		barrier_var(pivot_less_page);
		barrier_var(place_less_last);
		below += (pivot_less_page & place_less_last) >> 63;
	}
	below += 1 + n_pivots;
	barrier_var(below);
	walk->maple_entry = walk->node[below & (MAPLE_WORDS - 1)];
	if (type != MAPLE_LEAF_64)
		return 0;
	walk->maple_mapping = walk->maple_entry;
	return 1;
}

/* The mapping that contains an address, or the next one; NULL if there is none. */
static __always_inline struct vm_area_struct *find_mapping(struct cfi_walk *walk, struct mm_struct *mm,
							   __u64 address)
{
	walk->maple_entry = (__u64)mm->mm_mt.ma_root;
	walk->maple_address = address;
	walk->maple_mapping = 0;
	if (MAPLE_IS_ROOT(walk->maple_entry))
		bpf_loop(MAPLE_DEPTH, maple_iteration, &walk, 0);
	return (void *)walk->maple_mapping;
}

/* A field of a structure whose first bytes were copied to walk->node: one copy costs as much as reading one field. */
#define COPIED(walk, type, field) \
	({ \
		__u64 offset_ = bpf_core_field_offset(((struct type *)0)->field); \
		offset_ <= sizeof((walk)->node) - sizeof(((struct type *)0)->field) \
			? *(typeof(((struct type *)0)->field) *)((void *)(walk)->node + offset_) \
			: 0; \
	})

/* The inode that /proc shows for a mapping: overlayfs's own, not that of the underlying file (file_user_inode). */
static __always_inline struct inode *user_inode(struct file *vm_file)
{
	struct backing_file *backing = (void *)vm_file;
	struct inode *inode;

	if (bpf_core_field_exists(backing->user_path) && (BPF_CORE_READ(vm_file, f_mode) & MAY_BE_BACKING)) {
		/* A plain file has something else there, which leads to no file system. */
		inode = BPF_CORE_READ(backing, user_path.dentry, d_inode);
		if (BPF_CORE_READ(inode, i_sb, s_magic) == OVERLAYFS_SUPER_MAGIC)
			return inode;
	}
	return BPF_CORE_READ(vm_file, f_path.dentry, d_inode);
}

/* Reads the identity of a mapped file; false if it cannot be read. */
static __always_inline bool read_file(struct cfi_walk *walk, struct code_mapping *found, struct file *vm_file)
{
	struct inode *inode = user_inode(vm_file);
	struct super_block *super;

	if (bpf_probe_read_kernel(walk->node, sizeof(walk->node), inode))
		return false;
	found->file.inode = COPIED(walk, inode, i_ino);
	super = COPIED(walk, inode, i_sb);
	if (bpf_core_field_exists(inode->i_ctime_sec)) {
		found->file.ctime_sec = COPIED(walk, inode, i_ctime_sec);
		found->file.ctime_nsec = COPIED(walk, inode, i_ctime_nsec) & ~CTIME_QUERIED;
	} else if (bpf_core_field_exists(((struct inode___ctime *)inode)->__i_ctime)) {
		found->file.ctime_sec = COPIED(walk, inode___ctime, __i_ctime.tv_sec);
		found->file.ctime_nsec = COPIED(walk, inode___ctime, __i_ctime.tv_nsec);
	} else {
		found->file.ctime_sec = COPIED(walk, inode___old, i_ctime.tv_sec);
		found->file.ctime_nsec = COPIED(walk, inode___old, i_ctime.tv_nsec);
	}
	found->file.device = BPF_CORE_READ(super, s_dev);
	return found->file.device;
}

static __always_inline struct code_space *current_space(struct cfi_walk *walk)
{
	return &walk->spaces[walk->space & (CODE_SPACES - 1)];
}

/* Index of the first of its cached mappings. */
static __always_inline __u32 first_mapping(struct cfi_walk *walk)
{
	return (walk->space & (CODE_SPACES - 1)) * CODE_MAPPINGS;
}

/*
 * Stores the mapping of which a copy is in walk->node if it contains the address: of a file, or of the vDSO; otherwise
 * sets `miss` to the reason.
 */
static __always_inline void store_mapping(struct cfi_walk *walk, struct code_range *range,
					  struct code_mapping *found, __u64 address)
{
	__u64 start = COPIED(walk, vm_area_struct, vm_start), end = COPIED(walk, vm_area_struct, vm_end);
	struct file *vm_file;

	if (address < start || address >= end || !(COPIED(walk, vm_area_struct, vm_flags) & VM_EXEC))
		return;
	range->start = start;
	range->end = end;
	found->miss = CFI_END_NONE;
	vm_file = COPIED(walk, vm_area_struct, vm_file);
	if (vm_file) {
		found->offset = COPIED(walk, vm_area_struct, vm_pgoff) * PAGE_BYTES;
		if (!read_file(walk, found, vm_file))
			found->miss = CFI_MISS_UNREADABLE;
	} else if (start != (__u64)bpf_get_current_task_btf()->mm->context.vdso) {
		found->miss = CFI_MISS_NO_FILE;
	}
}

/*
 * Reads the mapping of an address into the cache, in place of another, and makes it the current one.
 *
 * verifier: global, as ends_with_call.
 */
__noinline int read_mapping(struct cfi_walk *walk, __u64 address)
{
	struct vm_area_struct *vma;
	struct code_space *space;
	bool is_read;
	__u32 number;

	if (!walk)
		return 0;
	vma = find_mapping(walk, bpf_get_current_task_btf()->mm, address);
	is_read = vma && !bpf_probe_read_kernel(walk->node, sizeof(walk->node), vma);
	space = current_space(walk);
	walk->mapping = first_mapping(walk) + (space->n_mappings & (CODE_MAPPINGS - 1));
	number = *(volatile __u32 *)&walk->mapping & (ALL_CODE_MAPPINGS - 1);
	__builtin_memset(&walk->ranges[number], 0, sizeof(walk->ranges[number]));
	__builtin_memset(&walk->mappings[number], 0, sizeof(walk->mappings[number]));
	walk->mappings[number].miss = CFI_MISS_NO_MAPPING;
	if (is_read)
		store_mapping(walk, &walk->ranges[number], &walk->mappings[number], address);
	/* What is not code takes no room: few words of a stack are (scan_word). */
	if (walk->ranges[number].end)
		space->n_mappings++;
	return 0;
}

/*
 * Finds the cached mappings of an address space, which share their place with others'. Forgets them if they are of
 * another, if anything was mapped in this one since, or if they are old. Kernels that cannot tell (before 6.4): always.
 */
static __always_inline void begin_mappings(struct cfi_walk *walk, struct task_struct *task,
					   struct mm_struct *mm, __u64 now)
{
	struct code_space *space;
	__u32 sequence = 0;
	bool has_sequence = mappings_sequence(mm, &sequence);

	walk->space = task->tgid & (CODE_SPACES - 1);
	walk->mapping = first_mapping(walk);
	space = current_space(walk);
	if (has_sequence && now - space->since_ns < MAPPINGS_AGE_NS && space->mm == (__u64)mm &&
	    space->sequence == sequence &&
	    space->program.start_boottime == task->group_leader->start_boottime &&
	    space->program.exec_id == task->self_exec_id)
		return;
	space->since_ns = now;
	space->mm = (__u64)mm;
	space->sequence = sequence;
	space->program.start_boottime = task->group_leader->start_boottime;
	space->program.exec_id = task->self_exec_id;
	space->n_mappings = 0;
	__builtin_memset(&walk->ranges[first_mapping(walk)], 0, CODE_MAPPINGS * sizeof(walk->ranges[0]));
}

#endif
