// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Whether Linux would take long to isolate ordinary memory. It goes through all mappings that a page may have: twice where several
 * processes have the page, and once, to put the mapping back, where one has it (remove_migration_ptes()). Those are the mappings of all that
 * have the page's anon_vma, whether they have the page or not: of each child, and of children's children, which may have pages of their own there
 * by now; and of one process as many as it likes, as mremap() makes them. Each page costs as much again.
 *
 * A thread that services the faults of all processes leaves such memory where it is, in the host, and maps it there (uvm_rust_crowd.h).
 * What is on a GPU the work item of uvm_rust_files.c brings to the host first. Neither holds for an eviction, nor for an
 * atomic (docs/fault.md).
 */
#include <linux/interval_tree_generic.h>
#include <linux/list.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/rmap.h>
#include <linux/rwsem.h>
#include <linux/spinlock.h>

#include "uvm_rust_files.h"

/*
 * How many pages of mappings Linux may go through, each time that it goes through all: what 256 mappings have of a va_block. And how many
 * mappings there may be, so that to count them takes no longer.
 */
#define MOST_PAGES	(256ul * 512)
#define MOST_MAPPINGS	1024

#define FIRST_OF(chain)	((chain)->vma->vm_pgoff)
#define LAST_OF(chain)	((chain)->vma->vm_pgoff + vma_pages((chain)->vma) - 1)

/* An anon_vma's mappings, as Linux keeps them: its own functions for that are for no module. */
INTERVAL_TREE_DEFINE(struct anon_vma_chain, rb, unsigned long, rb_subtree_last, FIRST_OF, LAST_OF, static inline, mappings)

/*
 * Of the anon_vmas that pages of @vma may have, the oldest, which has the mappings of all others; NULL if there are none. It stays
 * as long as the caller has the lock of the memory.
 */
static struct anon_vma *oldest_of(struct vm_area_struct *vma)
{
	struct anon_vma *oldest = NULL;

	/* Who faults on the first page adds the first one, with that lock for reading. */
	spin_lock(&vma->vm_mm->page_table_lock);
	if (!list_empty(&vma->anon_vma_chain))
		oldest = list_last_entry(&vma->anon_vma_chain, struct anon_vma_chain, same_vma)->anon_vma;
	spin_unlock(&vma->vm_mm->page_table_lock);
	return oldest;
}

bool uvm_rust_is_crowded(struct vm_area_struct *vma, unsigned long start, unsigned long end)
{
	unsigned long first = linear_page_index(vma, start), last = first + ((end - start) >> PAGE_SHIFT) - 1;
	unsigned long mappings = 0, pages = 0;
	struct anon_vma_chain *at;
	struct anon_vma *oldest;

	if (!uvm_rust_fix_isolation)
		return false;
	oldest = oldest_of(vma);
	if (!oldest)
		return false;
	/*
	 * Who changes the mappings, or splits a huge page, has this lock, as does each migration of one that is mapped as a whole. That says nothing of how
	 * many mappings there are, and what is left in the host stays there. So the memory is isolated as if nobody had counted.
	 */
	if (!down_read_trylock(&oldest->root->rwsem))
		return false;
	for (at = mappings_iter_first(&oldest->rb_root, first, last); at && mappings <= MOST_MAPPINGS && pages <= MOST_PAGES;
	     at = mappings_iter_next(at, first, last)) {
		mappings++;
		pages += min(last, LAST_OF(at)) - max(first, FIRST_OF(at)) + 1;
	}
	up_read(&oldest->root->rwsem);
	return mappings > MOST_MAPPINGS || pages > MOST_PAGES;
}
