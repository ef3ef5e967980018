// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Whether memory has so many mappings that a thread which services all faults does not isolate it: uvm_rust_crowd.c and uvm_rust_crowd.h as
 * they are, but for the headers that they include. Linux's mappings and locks, and upstream's va_blocks, are made up.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define PAGE_SHIFT	12
#define min(a, b)	((a) < (b) ? (a) : (b))
#define max(a, b)	((a) > (b) ? (a) : (b))
#define min_t(type, a, b)	min((type)(a), (type)(b))
#define max_t(type, a, b)	max((type)(a), (type)(b))

typedef unsigned long long NvU64;
typedef unsigned int NvU32;
struct list_head { struct list_head *next, *prev; };
struct rb_root_cached { int unused; };
struct rw_semaphore { int unused; };
struct anon_vma { struct anon_vma *root; struct rw_semaphore rwsem; struct rb_root_cached rb_root; struct anon_vma_chain *chains; int number; };
struct mm_struct { int page_table_lock; };
struct vm_area_struct { struct mm_struct *vm_mm; struct list_head anon_vma_chain; unsigned long vm_start, vm_end, vm_pgoff; };
struct anon_vma_chain { struct vm_area_struct *vma; struct anon_vma *anon_vma; struct list_head same_vma; };
typedef struct { bool is_hmm; unsigned long start, end; } uvm_va_block_t;
typedef struct { struct { struct vm_area_struct *vma; } hmm; } uvm_va_block_context_t;

#define list_empty(head)	((head)->next == (head))
#define list_last_entry(head, type, member)	((type *)((char *)(head)->prev - offsetof(type, member)))

static bool uvm_rust_fix_isolation = true, puts_off, is_busy, upstream_says;
static int locks, read_locks, looked_at;

static void spin_lock(int *lock) { locks += !read_locks; }
static void spin_unlock(int *lock) { locks--; }
static unsigned long vma_pages(const struct vm_area_struct *vma) { return (vma->vm_end - vma->vm_start) >> PAGE_SHIFT; }
static bool uvm_va_block_is_hmm(uvm_va_block_t *block) { return block->is_hmm; }
static void *uvm_va_block_get_va_space(uvm_va_block_t *block) { return block; }
static bool uvm_rust_puts_off(void *va_space) { return puts_off; }
enum { UVM_FAULT_ACCESS_TYPE_WRITE = 2, UVM_FAULT_ACCESS_TYPE_ATOMIC_WEAK, UVM_FAULT_ACCESS_TYPE_ATOMIC_STRONG };
static NvU32 uvm_fault_access_type_mask_highest(NvU32 mask) { return 31 - __builtin_clz(mask); }
static bool uvm_hmm_must_use_sysmem(uvm_va_block_t *block, void *of) { return upstream_says; }

static unsigned long linear_page_index(const struct vm_area_struct *vma, unsigned long address)
{
	return ((address - vma->vm_start) >> PAGE_SHIFT) + vma->vm_pgoff;
}

/* Of the oldest of all anon_vmas, which is no one's here. */
static struct anon_vma root;

/* Not with another lock: who has a spinlock must not. */
static bool down_read_trylock(struct rw_semaphore *of)
{
	read_locks += !is_busy && !locks && of == &root.rwsem;
	return !is_busy;
}

static void up_read(struct rw_semaphore *of) { read_locks--; }

/* Linux's tree of mappings is an array here; those that have nothing of what is asked for are passed over. */
#define INTERVAL_TREE_DEFINE(type, node, of, sub, first_of, last_of, how, name)				\
	static struct anon_vma *tree_of;								\
	static type *name##_from(int i, of first, of last)						\
	{												\
		for (; i < tree_of->number; i++) {							\
			looked_at += read_locks == 1;							\
			if (first_of(&tree_of->chains[i]) <= last && last_of(&tree_of->chains[i]) >= first)	\
				return &tree_of->chains[i];						\
		}											\
		return NULL;										\
	}												\
	static type *name##_iter_first(struct rb_root_cached *root, of first, of last)			\
	{												\
		tree_of = (struct anon_vma *)((char *)root - offsetof(struct anon_vma, rb_root));	\
		return name##_from(0, first, last);							\
	}												\
	static type *name##_iter_next(type *at, of first, of last)					\
	{												\
		return name##_from(at - tree_of->chains + 1, first, last);				\
	}

bool uvm_rust_is_crowded(struct vm_area_struct *vma, unsigned long start, unsigned long end);

#include "crowd.h"

static int number, failed;

static void say(const char *name, bool holds)
{
	failed |= !holds;
	printf("%s %d - crowd: %s\n", holds ? "ok" : "not ok", ++number, name);
}

#define START	(4096ul << PAGE_SHIFT)
#define PAGES	512ul

static struct mm_struct mm;
/* The memory that is asked about, and its own anon_vma, which it alone has, and the one that it has in common with others. */
static struct vm_area_struct own = { .vm_mm = &mm, .vm_start = START, .vm_end = START + (PAGES << PAGE_SHIFT), .vm_pgoff = 100 };
static struct vm_area_struct others[2000];
static struct anon_vma_chain chains[2000], newest;
static struct anon_vma of_own = { &root, .chains = &newest, .number = 1 }, common = { &root, .chains = chains };

/* So many mappings have those pages, of each other's; the first is the memory's own. */
static void has(int mappings, unsigned long first, unsigned long pages)
{
	struct list_head *all = &own.anon_vma_chain, *new = &newest.same_vma, *old = &chains[0].same_vma;

	for (int i = 0; i < mappings; i++) {
		others[i] = (struct vm_area_struct){ .vm_start = 0, .vm_end = pages << PAGE_SHIFT, .vm_pgoff = 100 + first };
		chains[i] = (struct anon_vma_chain){ .vma = i ? &others[i] : &own, .anon_vma = &common };
	}
	newest = (struct anon_vma_chain){ .vma = &own, .anon_vma = &of_own };
	common.number = mappings;
	*all = (struct list_head){ new, old };
	*new = (struct list_head){ old, all };
	*old = (struct list_head){ all, new };
	looked_at = 0;
}

static bool is_crowded(unsigned long first, unsigned long pages)
{
	unsigned long start = START + (first << PAGE_SHIFT);

	return uvm_rust_is_crowded(&own, start, start + (pages << PAGE_SHIFT)) && !locks && !read_locks;
}

/* As upstream calls it where it decides where a page goes. */
static bool stays_for(uvm_va_block_t *va_block, NvU32 access_type_mask)
{
	uvm_va_block_context_t context = { { &own } };
	bool by_vma = uvm_hmm_must_use_sysmem(va_block, &own);

	/* As 535 calls it. */
	return by_vma == uvm_hmm_must_use_sysmem(va_block, &context) && by_vma;
}

/* And where it decides who gets a mapping. */
static bool is_mapped(uvm_va_block_t *block)
{
	return uvm_hmm_must_use_sysmem(block, &own);
}

static bool stays(unsigned long start, unsigned long end, bool is_hmm)
{
	uvm_va_block_t block = { is_hmm, start, end - 1 };
	bool goes_there = stays_for(&block, 1u << UVM_FAULT_ACCESS_TYPE_WRITE);

	return goes_there == is_mapped(&block) && goes_there;
}

int main(void)
{
	uvm_va_block_t all = { true, START, own.vm_end - 1 };

	own.anon_vma_chain = (struct list_head){ &own.anon_vma_chain, &own.anon_vma_chain };
	say("memory that nobody has touched is not", !is_crowded(0, PAGES));
	has(1, 0, PAGES);
	say("nor is that of one process", !is_crowded(0, PAGES) && looked_at == 1);
	has(256, 0, PAGES);
	say("256 mappings are no crowd", !is_crowded(0, PAGES));
	has(257, 0, PAGES);
	say("257 are, also where the newest anon_vma is its own", is_crowded(0, PAGES));
	say("but not for a part of the pages", !is_crowded(0, PAGES - 2) && !is_crowded(1, PAGES - 2));
	has(511, 0, PAGES / 2);
	say("mappings of the first half count by half", !is_crowded(0, PAGES));
	has(512, 0, PAGES / 2);
	say("and are a crowd when they are twice as many", is_crowded(0, PAGES));
	has(511, PAGES / 2, PAGES);
	say("so do those of the second half, of what goes on behind", !is_crowded(0, PAGES));
	has(512, PAGES / 2, PAGES);
	say("which are one as well", is_crowded(0, PAGES));
	say("what they do not have counts for nothing", !is_crowded(0, PAGES / 2));
	has(1024, 3, 1);
	say("1024 mappings are no crowd", !is_crowded(0, PAGES));
	has(1025, 3, 1);
	say("1025 are, of a page each", is_crowded(0, PAGES));
	has(2000, 3, 1);
	say("and but one more is looked at", is_crowded(0, PAGES) && looked_at == 1026);
	has(2000, 0, PAGES);
	say("as of so many pages", is_crowded(0, PAGES) && looked_at == 258);
	has(257, 0, PAGES);
	is_busy = true;
	say("nobody waits for who changes them, or takes that for a crowd", !is_crowded(0, PAGES) && !looked_at && !read_locks);
	is_busy = false;
	uvm_rust_fix_isolation = false;
	say("without the mend there is none", !is_crowded(0, PAGES));
	uvm_rust_fix_isolation = true;

	say("a thread that others do not wait for does not ask", !stays(START, own.vm_end, true));
	puts_off = true;
	say("who services faults does", stays(START, own.vm_end, true));
	say("but not for an atomic of the system's, as its page may be part of a huge one",
	    !stays_for(&all, 1u << UVM_FAULT_ACCESS_TYPE_WRITE | 1u << UVM_FAULT_ACCESS_TYPE_ATOMIC_STRONG) &&
	    stays_for(&all, 1u << UVM_FAULT_ACCESS_TYPE_ATOMIC_WEAK));
	say("not of managed memory", !stays(START, own.vm_end, false));
	say("nor of more than the va_block has", !stays(START + (2ul << PAGE_SHIFT), own.vm_end, true) &&
	    !stays(START, own.vm_end - (2ul << PAGE_SHIFT), true));
	say("or than the mapping", stays(START - (9ul << PAGE_SHIFT), own.vm_end + (9ul << PAGE_SHIFT), true));
	has(1, 0, PAGES);
	upstream_says = true;
	say("what upstream leaves in the host stays", stays(START, own.vm_end, true));
	printf("1..%d\n", number);
	return failed;
}
