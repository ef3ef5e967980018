// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Who services all faults takes ordinary memory for a GPU only where the cgroup of its process has room: uvm_rust_room.c as it is, and from
 * uvm_rust_hmm.h what asks it, which is not compiled here but for that. Linux's cgroups and pages, and upstream's migration, are made up.
 */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define CONFIG_MEMCG		1
#define MIGRATE_PFN_VALID	1ul
#define MIGRATE_PFN_MIGRATE	2ul
#define VM_WRITE		2ul
#define READ_ONCE(what)		(what)
#define PAGES			8
#define CPUS			2
#define ROOM			(CPUS * 64)
#define NV_OK			0
#define NV_ERR_NOT_READY	1
#define NV_WARN_MORE_PROCESSING_REQUIRED	2

typedef int NV_STATUS;
typedef struct { unsigned short first, outer; } uvm_va_block_region_t;
typedef struct { bool has[512]; } uvm_page_mask_t;
typedef struct { int unused; } uvm_va_block_retry_t;
typedef struct { struct { unsigned long *src_pfns; } hmm; } uvm_rust_hmm_context_t;
typedef struct { struct { void *va_space; } hmm; } uvm_va_block_t;
struct page_counter { unsigned long usage, max; };
struct mem_cgroup { struct page_counter memory, memsw; struct mem_cgroup *parent; };
struct mm_struct { struct mem_cgroup *memcg; };
struct vm_area_struct { struct mm_struct *vm_mm; unsigned long vm_flags; bool unshares; };
struct migrate_vma { struct vm_area_struct *vma; unsigned long *src, npages; };

static bool uvm_rust_fix_charge, puts_off, reclaims = true;
static int held, given_back, moved_in_reserve, moved;
static uvm_page_mask_t moving, touched;
static NV_STATUS touching;
/* Which call of those that touch says so, the others that the pages are there; how many there were. */
static int touching_at, touches;

static void uvm_page_mask_zero(uvm_page_mask_t *mask) { memset(mask, 0, sizeof(*mask)); }
static void uvm_page_mask_set(uvm_page_mask_t *mask, unsigned long page) { mask->has[page] = true; }
static bool uvm_page_mask_test(const uvm_page_mask_t *mask, unsigned long page) { return mask->has[page]; }

/* Whether cgroups are of the second kind, in which memsw is another counter. */
static bool of_second_kind = true;
#define cgroup_subsys_on_dfl(subsystem)	of_second_kind

static unsigned int num_online_cpus(void)
{
	return CPUS;
}

static unsigned long page_counter_read(const struct page_counter *counter)
{
	return counter->usage;
}

static struct mem_cgroup *parent_mem_cgroup(struct mem_cgroup *memcg)
{
	return memcg->parent;
}

static struct mem_cgroup *get_mem_cgroup_from_mm(struct mm_struct *mm)
{
	held += !!mm->memcg;
	return mm->memcg;
}

static void mem_cgroup_put(struct mem_cgroup *memcg)
{
	held -= !!memcg;
}

static bool uvm_rust_puts_off(void *va_space)
{
	return va_space && puts_off;
}

/* A page by what Linux says of it; one is on a GPU that the VA space has not registered. */
struct page;
#define AWAY	(MIGRATE_PFN_VALID | 64ul)

static struct page *migrate_pfn_to_page(unsigned long pfn)
{
	return pfn & MIGRATE_PFN_VALID ? (struct page *)pfn : NULL;
}

static bool uvm_rust_is_strangers(void *va_space, const struct page *page)
{
	return va_space && page == (struct page *)AWAY;
}

static bool uvm_rust_unshares_zeros(const struct vm_area_struct *vma)
{
	return vma->unshares;
}

/* Nobody reads then what was isolated. */
static void migrate_vma_finalize(struct migrate_vma *args)
{
	given_back += args->npages;
	memset(args->src, 0, args->npages * sizeof(*args->src));
}

static unsigned int memalloc_noreclaim_save(void)
{
	unsigned int before = !reclaims;

	reclaims = false;
	return before;
}

static void memalloc_noreclaim_restore(unsigned int before)
{
	reclaims = !before;
}

static void migrate_vma_pages(struct migrate_vma *args)
{
	moved += args->npages;
	moved_in_reserve += !reclaims;
}

#define uvm_rust_free_ahead(va_block, retry)	((void)0)
#define uvm_rust_hmm_block_context(context)	(context)
#define uvm_rust_make_resident_cpu(va_block, retry, vma, pfns, region)	((void)(vma), (void)(pfns), touch(region))

static NV_STATUS touch(uvm_va_block_region_t region)
{
	for (unsigned long page = region.first; page < region.outer; page++)
		uvm_page_mask_set(&touched, page);
	return touches++ == touching_at ? touching : NV_OK;
}

static inline NV_STATUS uvm_rust_fault_shared(NV_STATUS status)
{
	return status == NV_OK ? NV_WARN_MORE_PROCESSING_REQUIRED : status;
}

#include "room.h"

static int failed, number;
/* Whether all that was expected since the last line is so. */
static bool holds = true;

#define expect(what)							\
	do {								\
		if (!(what)) {						\
			printf("# room.c:%d: not %s\n", __LINE__, #what);	\
			holds = false;					\
		}							\
	} while (0)

static void say(const char *name)
{
	printf("%s %d - room: %s\n", holds ? "ok" : "not ok", ++number, name);
	failed += !holds;
	holds = true;
}

static struct mem_cgroup above, own = { .parent = &above };
static struct mm_struct mm = { &own };
static struct vm_area_struct vma = { &mm, VM_WRITE, false };
static uvm_va_block_t block = { { &block } };
static unsigned long src[PAGES];
/* Where the pages begin in the va_block. */
static const uvm_va_block_region_t region = { 3, 3 + PAGES };

/* A cgroup with so many pages free, below one with so many; all of the pages were touched, and are to move. */
static struct migrate_vma begin(unsigned long free, unsigned long free_above)
{
	own.memory = (struct page_counter){ 1000, 1000 + free };
	above.memory = (struct page_counter){ 5000, 5000 + free_above };
	mm.memcg = &own;
	uvm_rust_fix_charge = puts_off = true;
	uvm_page_mask_zero(&moving);
	for (int i = 0; i < PAGES; i++) {
		src[i] = MIGRATE_PFN_VALID | MIGRATE_PFN_MIGRATE;
		uvm_page_mask_set(&moving, region.first + i);
	}
	return (struct migrate_vma){ &vma, src, PAGES };
}

static void asks_for_what_is_new(void)
{
	struct migrate_vma args = begin(0, 0);

	expect(!uvm_rust_finds_no_room(&args, &block, region, &moving));
	src[2] = MIGRATE_PFN_VALID;
	src[3] = 0;
	expect(!uvm_rust_finds_no_room(&args, &block, region, &moving));
	src[4] = MIGRATE_PFN_MIGRATE;
	expect(uvm_rust_finds_no_room(&args, &block, region, &moving));
	puts_off = false;
	expect(!uvm_rust_finds_no_room(&args, &block, region, &moving));
	puts_off = true;
	uvm_rust_fix_charge = false;
	expect(!uvm_rust_finds_no_room(&args, &block, region, &moving));
}

/* What is for reading only a work item has pages for if it can have Linux take that of zeros away. */
static void asks_where_it_helps(void)
{
	struct migrate_vma args = begin(0, 0);

	src[4] = MIGRATE_PFN_MIGRATE;
	vma.vm_flags = 0;
	expect(!uvm_rust_finds_no_room(&args, &block, region, &moving));
	vma.unshares = true;
	expect(uvm_rust_finds_no_room(&args, &block, region, &moving));
	vma = (struct vm_area_struct){ &mm, VM_WRITE, false };
	expect(uvm_rust_finds_no_room(&args, &block, region, &moving));
}

static void counts_all_cgroups(void)
{
	for (unsigned long new = 1; new <= 2; new++) {
		for (int which = 0; which < 2; which++) {
			for (unsigned long lacks = 0; lacks < 2; lacks++) {
				unsigned long free = ROOM + new - lacks;
				struct migrate_vma args = begin(which ? 9999 : free, which ? free : 9999);

				memset(src, 0, sizeof(src));
				src[0] = src[new - 1] = MIGRATE_PFN_MIGRATE;
				expect(uvm_rust_finds_no_room(&args, &block, region, &moving) == lacks);
				expect(!held);
			}
		}
	}
	begin(0, 0);
	mm.memcg = NULL;
	expect(!uvm_rust_lacks_room(&mm, PAGES));
}

/* Pages in between that no fault wants come neither to a GPU nor to the host. */
static void counts_what_moves(void)
{
	struct migrate_vma args = begin(ROOM, ROOM);

	memset(src, 0, sizeof(src));
	src[1] = src[2] = src[5] = MIGRATE_PFN_MIGRATE;
	uvm_page_mask_zero(&moving);
	uvm_page_mask_set(&moving, region.first);
	uvm_page_mask_set(&moving, region.outer);
	expect(!uvm_rust_finds_no_room(&args, &block, region, &moving));
	uvm_page_mask_set(&moving, region.first + 2);
	expect(uvm_rust_finds_no_room(&args, &block, region, &moving));
	own.memory.max++;
	above.memory.max++;
	expect(!uvm_rust_finds_no_room(&args, &block, region, &moving));
	uvm_page_mask_set(&moving, region.first + 5);
	expect(uvm_rust_finds_no_room(&args, &block, region, &moving));
}

/* Whether the pages of @what, a digit each, and no others were touched. */
static bool only_touched(const char *what)
{
	bool is_so = true;

	for (unsigned long page = 0; page < 512; page++) {
		bool is_in = page >= region.first && page < region.outer;

		is_so &= touched.has[page] == (is_in && what[page - region.first] == '1');
	}
	return is_so;
}

/* Of which pages @moves and which are @new, a digit each, or A where a page is away; call @at says @status, of those that touch. */
static NV_STATUS touch_first(const char *moves, const char *new, int at, NV_STATUS status)
{
	struct migrate_vma args = begin(0, 0);
	uvm_rust_hmm_context_t context = { { src } };

	uvm_page_mask_zero(&moving);
	uvm_page_mask_zero(&touched);
	for (int i = 0; i < PAGES; i++) {
		if (moves[i] == '1')
			uvm_page_mask_set(&moving, region.first + i);
		if (new[i] == '1')
			src[i] = MIGRATE_PFN_MIGRATE;
		else if (new[i] == 'A')
			src[i] = AWAY;
	}
	/* What is behind the region is another try's. */
	uvm_page_mask_set(&moving, region.outer);
	given_back = touches = 0;
	touching_at = at;
	touching = status;
	return uvm_rust_touch_first(&block, NULL, &context, region, &moving, &args);
}

/* Pages that are swapped out count for memory and swap together, in cgroups of the first kind. */
static void counts_swap(void)
{
	for (int which = 0; which < 2; which++) {
		for (unsigned long lacks = 0; lacks < 2; lacks++) {
			struct migrate_vma args = begin(9999, 9999);

			src[0] = MIGRATE_PFN_MIGRATE;
			own.memsw = above.memsw = (struct page_counter){ 7000, 7000 + 9999 };
			(which ? &own : &above)->memsw.max = 7000 + ROOM + 1 - lacks;
			of_second_kind = false;
			expect(uvm_rust_finds_no_room(&args, &block, region, &moving) == lacks);
			of_second_kind = true;
			expect(!uvm_rust_finds_no_room(&args, &block, region, &moving));
			expect(!held);
		}
	}
}

static void gives_back_and_touches(void)
{
	expect(touch_first("11111111", "11111111", 9, NV_OK) == NV_WARN_MORE_PROCESSING_REQUIRED);
	expect(given_back == PAGES && only_touched("11111111") && touches == 1);
	expect(touch_first("11111111", "11111111", 0, NV_ERR_NOT_READY) == NV_ERR_NOT_READY);
	expect(given_back == PAGES && only_touched("11111111"));
	/* What is there already comes along where it is in the way, and not before or without. */
	expect(touch_first("11101111", "01010100", 9, NV_OK) == NV_WARN_MORE_PROCESSING_REQUIRED);
	expect(only_touched("01100111") && touches == 2);
	expect(touch_first("10000001", "11111111", 9, NV_OK) == NV_WARN_MORE_PROCESSING_REQUIRED);
	expect(only_touched("10000001") && touches == 2);
	expect(touch_first("10101010", "11111111", 1, NV_ERR_NOT_READY) == NV_ERR_NOT_READY);
	expect(only_touched("10100000") && touches == 2);
}

static void nobody_reclaims_for_a_race(void)
{
	struct migrate_vma args = begin(0, 0);

	uvm_rust_migrate_pages(&args, &block);
	expect(moved == PAGES && moved_in_reserve == 1 && reclaims);
	puts_off = false;
	uvm_rust_migrate_pages(&args, &block);
	puts_off = true;
	uvm_rust_fix_charge = false;
	uvm_rust_migrate_pages(&args, &block);
	expect(moved == 3 * PAGES && moved_in_reserve == 1 && reclaims);
}

/* It is not moved, whatever room there is, and whoever services its fault. */
static void touches_what_is_away(void)
{
	struct migrate_vma args = begin(9999, 9999);

	src[4] = AWAY;
	expect(uvm_rust_finds_no_room(&args, &block, region, &moving));
	puts_off = false;
	expect(uvm_rust_finds_no_room(&args, &block, region, &moving));
	uvm_page_mask_zero(&moving);
	uvm_page_mask_set(&moving, region.first + 3);
	expect(!uvm_rust_finds_no_room(&args, &block, region, &moving));
	expect(touch_first("11111111", "000A0000", 9, NV_OK) == NV_WARN_MORE_PROCESSING_REQUIRED);
	expect(only_touched("00011111") && touches == 1);
}

int main(void)
{
	printf("TAP version 13\n");
	asks_for_what_is_new();
	say("who services all faults asks where pages are new that move");
	asks_where_it_helps();
	say("in memory for reading only if Linux gives pages in place of that of zeros");
	counts_all_cgroups();
	say("there is room if each cgroup has it, beside what Linux charges ahead");
	counts_swap();
	say("and in cgroups of the first kind for memory and swap together");
	counts_what_moves();
	say("pages that no fault wants do not count");
	gives_back_and_touches();
	say("where there is none the pages are given back, those that faults want are touched, and these come again");
	touches_what_is_away();
	say("what is on a GPU that the VA space has not registered is touched first");
	nobody_reclaims_for_a_race();
	say("what others took since then is not reclaimed, in this thread");
	printf("1..%d\n", number);
	return !!failed;
}
