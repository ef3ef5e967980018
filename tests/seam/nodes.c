// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Which of a page's memories on the host the SSD tier takes, where NUMA nodes have one each: that where the page is resident.
 * And whether somebody holds it, while others map and unmap what they have of the same folio.
 * uvm_rust_flash_block.h as it is. Upstream and Linux are made up here; with OLD_LINUX that is a Linux before 6.10.
 */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef struct { unsigned long bitmap[8]; } uvm_page_mask_t;

#define SEAM_VA_SPACE_FIELDS
#define SEAM_VA_BLOCK_FIELDS	struct { uvm_page_mask_t resident; } cpu; void *uvm_rust, *uvm_rust_flash;
#include "shim.h"

/* --- Linux ----------------------------------------------------------------------- */

#define PAGE_SIZE		4096u
#define BUILD_BUG_ON(wrong)	_Static_assert(!(wrong), #wrong)
#define PF_KTHREAD		1
#undef current
#define current			(&(struct { unsigned int flags; }){ 0 })
#ifdef OLD_LINUX
#define LINUX_VERSION_CODE	0
#else
#define LINUX_VERSION_CODE	2
#endif
#define KERNEL_VERSION(a, b, c)	1
#define smp_mb()		((void)0)
#define smp_rmb()		((void)0)
#undef min
#define min(a, b)		({ typeof(a) min_a = (a), min_b = (b); min_a < min_b ? min_a : min_b; })
#define static_branch_unlikely(key)	(*(key))
#define pr_err_ratelimited(...)	((void)0)
typedef uint16_t u16;
typedef uint32_t u32;
/* A page without a head is the first of its folio, of as many pages, or of one. */
struct page { int references, _mapcount; struct page *head; long pages; };
struct folio { struct page page; };
static struct page *compound_head(struct page *page) { return page->head ? page->head : page; }
static long compound_nr(struct page *page) { return page->pages ? page->pages : 1; }
#define page_folio(at)		((struct folio *)compound_head(at))
#define folio_nr_pages(folio)	compound_nr(&(folio)->page)
#define get_page(page)		((void)(page)->references++)

static bool test_bit(unsigned long bit, const unsigned long *of)
{
	return of[bit / 64] >> bit % 64 & 1;
}

/* The first bit from @at on that is as it is asked for; @size for none. */
static unsigned long find_next(const unsigned long *of, unsigned long size, unsigned long at, bool set)
{
	while (at < size && test_bit(at, of) != set)
		at++;
	return at < size ? at : size;
}
#define find_next_bit(of, size, at)		find_next(of, size, at, true)
#define find_next_zero_bit(of, size, at)	find_next(of, size, at, false)

/* Whoever reads a number here lets the others go on first. */
static int goes_on(const int *number);
#define atomic_read(number)	goes_on(number)
#define folio_ref_count(folio)	goes_on(&(folio)->page.references)
static long folio_mapcount(struct folio *folio)
{
	long i, count = 0;

	goes_on(&folio->page.references);
	for (i = 0; i < folio_nr_pages(folio); i++)
		count += (&folio->page)[i]._mapcount + 1;
	return count;
}

/* --- upstream -------------------------------------------------------------------- */

enum { UVM_PROT_NONE, UVM_PROT_READ_ONLY, UVM_PROT_READ_WRITE };
enum { UVM_MAKE_RESIDENT_CAUSE_REPLAYABLE_FAULT };
#define UVM_ID_CPU		((uvm_processor_id_t){ 0 })
typedef int uvm_prot_t;
typedef int UvmEventMapRemoteCause;
typedef int uvm_tracker_t;
typedef int uvm_memcg_context_t;
typedef unsigned int uvm_page_index_t;
typedef struct { uvm_page_index_t first, outer; } uvm_va_block_region_t;
struct uvm_va_block_context_struct {
	struct mm_struct *mm;
	struct { int cause; } make_resident;
};
typedef struct {
	struct page *page;
	unsigned int size;
	unsigned int dirty;
} uvm_cpu_chunk_t;
#define uvm_cpu_chunk_get_size(chunk)	((chunk)->size)
#define uvm_va_block_is_hmm(block)	((block)->start == 1)
#define uvm_rust_memcg_context_start(context, block, mm)	((void)(context), (void)(block), (void)(mm))
#define uvm_memcg_context_end(context)	((void)0)
uvm_va_space_t *uvm_va_block_get_va_space(uvm_va_block_t *block) { return block->va_space; }
uvm_gpu_t *uvm_rust_gpu(uvm_va_space_t *space, uvm_gpu_id_t id) { return NULL; }

static bool uvm_page_mask_test(const uvm_page_mask_t *mask, uvm_page_index_t page)
{
	return test_bit(page, mask->bitmap);
}

static void uvm_page_mask_clear(uvm_page_mask_t *mask, uvm_page_index_t page)
{
	mask->bitmap[page / 64] &= ~(1ul << page % 64);
}

static void uvm_page_mask_set(uvm_page_mask_t *mask, uvm_page_index_t page)
{
	mask->bitmap[page / 64] |= 1ul << page % 64;
}

#define for_each_va_block_page_in_mask(page, mask, block)	\
	for ((page) = 0; (page) < 512; (page)++)		\
		if (uvm_page_mask_test(mask, page))
#define uvm_va_block_region_from_block(block)	((uvm_va_block_region_t){ 0, 512 })
/* As upstream's, which looks for the next run behind @run's end. */
#define for_each_va_block_subregion_in_mask(run, mask, region)						\
	for ((run).outer = (region).first;								\
	     (run).first = find_next_bit((mask)->bitmap, (region).outer, (run).outer),			\
	     (run).outer = find_next_zero_bit((mask)->bitmap, (region).outer, (run).first),		\
	     (run).first != (region).outer;)

static uvm_va_block_region_t uvm_va_block_region(uvm_page_index_t first, uvm_page_index_t outer)
{
	return (uvm_va_block_region_t){ first, outer };
}

static uvm_va_block_region_t uvm_va_block_chunk_region(uvm_va_block_t *block, unsigned int size, uvm_page_index_t page)
{
	page -= page % (size / PAGE_SIZE);
	return uvm_va_block_region(page, page + size / PAGE_SIZE);
}

/* Not asked for here. */
static bool uvm_page_mask_region_full(const uvm_page_mask_t *mask, uvm_va_block_region_t region) { return false; }
static void uvm_page_mask_init_from_region(uvm_page_mask_t *to, uvm_va_block_region_t region, const uvm_page_mask_t *mask) { }
static uvm_va_block_region_t uvm_va_block_region_from_mask(uvm_va_block_t *block, const uvm_page_mask_t *mask)
{
	return uvm_va_block_region(0, 512);
}
static void uvm_va_block_remove_cpu_chunks(uvm_va_block_t *block, uvm_va_block_region_t region) { }
NV_STATUS uvm_va_block_map(uvm_va_block_t *block, uvm_va_block_context_t *context, uvm_processor_id_t id,
			   uvm_va_block_region_t region, const uvm_page_mask_t *mask, uvm_prot_t prot,
			   UvmEventMapRemoteCause cause, uvm_tracker_t *tracker);
NV_STATUS uvm_va_block_map__c(uvm_va_block_t *block, uvm_va_block_context_t *context, uvm_processor_id_t id,
			      uvm_va_block_region_t region, const uvm_page_mask_t *mask, uvm_prot_t prot,
			      UvmEventMapRemoteCause cause, uvm_tracker_t *tracker) { return NV_OK; }
uvm_prot_t uvm_va_block_page_compute_highest_permission(uvm_va_block_t *block, uvm_va_block_context_t *context,
							uvm_processor_id_t id, uvm_page_index_t index);
uvm_prot_t uvm_va_block_page_compute_highest_permission__c(uvm_va_block_t *block, uvm_va_block_context_t *context,
							   uvm_processor_id_t id, uvm_page_index_t index) { return UVM_PROT_NONE; }

/* --- the seam -------------------------------------------------------------------------- */

#define UVM_RUST_FLASH_H
static bool uvm_rust_flash_used_key;
#define UVM_RUST_CONTEXT(...)	__VA_ARGS__
#define uvm_rust_mask(mask)	((const struct uvm_rust_mask *)(mask))
#define uvm_rust_mask_out(mask)	((struct uvm_rust_mask *)(mask))
#define uvm_rust_populate_pages_cpu(block, pages, region, context)	((void)(region), NV_OK)
static bool uvm_rust_has_non_faultable(uvm_va_space_t *space) { return false; }

/* Two nodes, if they have any: one has a chunk of all of the va_block, the other one of its pages 16 to 31. */
static struct page pages[2][512];
static uvm_cpu_chunk_t chunks[2] = { { .page = pages[0], .size = 512 * 4096 }, { .page = &pages[1][16], .size = 16 * 4096 } };
static uvm_page_mask_t resident_on[2];
static bool has[2] = { true, true };
/* The one that has all; the chunks are in this order. */
static int with_all;
/* How often a chunk was asked for. */
static int asked;

#define for_each_rust_node(nid)	for ((nid) = 0; (nid) < 2; (nid)++)
#define uvm_rust_resident_on(block, nid)	(&resident_on[nid])
#define uvm_rust_set_resident_page(block, nid, page)	uvm_page_mask_set(&resident_on[nid], page)
#define uvm_rust_mark_dirty(chunk, page)	((void)(page), (void)(chunk)->dirty++)

static uvm_cpu_chunk_t *uvm_rust_cpu_chunk(uvm_va_block_t *block, int nid, uvm_page_index_t page)
{
	bool is_small = nid != with_all;

	asked++;
	return has[nid] && (!is_small || (page >= 16 && page < 32)) ? &chunks[is_small] : NULL;
}

#include "uvm_rust_flash_block.h"

/* Upstream's, and what Rust has; not looked at here. */
static void block_set_resident_processor(uvm_va_block_t *block, uvm_processor_id_t id) { }
void uvm_rust_block_prepare(struct uvm_rust_block *block, __u32 memory, const struct uvm_rust_mask *of) { }
void uvm_rust_flash_add_stored(struct uvm_rust_flash_block *block, struct uvm_rust_mask *of) { }
__u32 uvm_rust_flash_before_populate(struct uvm_va_block_struct *block, struct uvm_seam_context *context, struct uvm_gpu_struct *to,
				     __u32 cause, bool shared, const struct uvm_rust_mask *wanted) { return NV_OK; }
void uvm_rust_flash_maps(struct uvm_rust_flash_block *block, const struct uvm_rust_mask *of, bool writes) { }
bool uvm_rust_flash_may_only_read(struct uvm_rust_flash_block *block, __u32 page, bool some_cannot_fault) { return false; }

static uvm_va_block_t va_block;
static int number, failed;

static void say(const char *name, bool holds)
{
	failed |= !holds;
	printf("%s %d - host memory: %s\n", holds ? "ok" : "not ok", ++number, name);
}

/* On which node a page is: of pages 16 to 31 the even ones on the first, or on the second. */
static int node_of(uvm_page_index_t page, int even)
{
	return page >= 16 && page < 32 ? (page + even) % 2 : 0;
}

static void begin(int even)
{
	memset(resident_on, 0, sizeof(resident_on));
	memset(&va_block.cpu.resident, 0xff, sizeof(va_block.cpu.resident));
	for (uvm_page_index_t page = 0; page < 512; page++)
		uvm_page_mask_set(&resident_on[node_of(page, even)], page);
}

/* Of these pages, whether each is held where it is resident. */
static bool holds(uvm_page_index_t first, uvm_page_index_t outer, int even)
{
	static struct page *held[512];
	uvm_page_mask_t mask = {};
	bool right = true;

	begin(even);
	for (uvm_page_index_t page = first; page < outer; page++)
		uvm_page_mask_set(&mask, page);
	memset(held, 0, sizeof(held));
	uvm_seam_flash_host(&va_block, (struct uvm_rust_mask *)&mask, held, true);
	for (uvm_page_index_t page = first; page < outer; page++)
		right &= held[page] == &pages[node_of(page, even)][page] && uvm_page_mask_test(&mask, page);
	return right;
}

/* Of every third page nothing is resident: what is held of any run of pages is what was held of all of them. */
static bool holds_always(void)
{
	static struct page *held[512];
	uvm_page_index_t first, outer, page;
	bool right = true;

	begin(0);
	for (page = 0; page < 512; page += 3) {
		uvm_page_mask_clear(&va_block.cpu.resident, page);
		uvm_page_mask_clear(&resident_on[0], page);
		uvm_page_mask_clear(&resident_on[1], page);
	}
	for (first = 0; first < 40; first++)
		for (outer = first + 1; outer <= 40; outer++) {
			uvm_page_mask_t mask = {}, same;

			for (page = first; page < outer; page++)
				uvm_page_mask_set(&mask, page);
			same = mask;
			if (first == 0 && outer == 1) {
				memset(&mask, 0xff, sizeof(mask));
				uvm_seam_flash_host(&va_block, (struct uvm_rust_mask *)&mask, held, true);
			}
			uvm_seam_flash_host(&va_block, (struct uvm_rust_mask *)&same, held, false);
			for (page = first; page < outer; page++)
				right &= uvm_page_mask_test(&same, page);
		}
	return right;
}

/* Of two runs of pages with one between them; whether what is no longer held, or was not asked for, is left out. */
static bool notices(void)
{
	static struct page *held[512];
	uvm_page_mask_t mask = {};
	bool right;

	begin(0);
	uvm_page_mask_set(&mask, 3);
	uvm_page_mask_set(&mask, 5);
	uvm_page_mask_set(&mask, 6);
	uvm_seam_flash_host(&va_block, (struct uvm_rust_mask *)&mask, held, true);
	right = held[3] == &pages[0][3] && !held[4] && held[5] == &pages[0][5] && held[6] == &pages[0][6] && mask.bitmap[0] == 0x68;
	held[5] = held[6];
	uvm_seam_flash_host(&va_block, (struct uvm_rust_mask *)&mask, held, false);
	return right && mask.bitmap[0] == 0x48;
}

/* How often chunks are asked for, for all pages of a block that has one. */
static int asks(void)
{
	static struct page *held[512];
	uvm_page_mask_t mask;

	begin(0);
	memset(resident_on, 0xff, sizeof(resident_on));
	memset(&mask, 0xff, sizeof(mask));
	asked = 0;
	uvm_seam_flash_host(&va_block, (struct uvm_rust_mask *)&mask, held, true);
	return asked;
}

/* Whether the chunk of a page, and those that meet it, has these pages, and nobody holds it; or if it has none, that page. */
static bool chunk_is(uvm_page_index_t page, u16 first, u16 outer, bool is_there)
{
	u16 from = page, to = page + 1;

	return uvm_seam_host_chunk(&va_block, page, &from, &to) == is_there && from == first && to == outer;
}

/* Whether of the pages 17 and 40, which are in chunks of two nodes, @page alone is left, if somebody holds the other one's. */
static bool is_left(uvm_page_index_t page)
{
	bool is_left = true;

	for (int hold = 0; hold < 2; hold++) {
		uvm_page_mask_t mask = {};

		uvm_page_mask_set(&mask, 17);
		uvm_page_mask_set(&mask, 40);
		uvm_seam_flash_host(&va_block, (struct uvm_rust_mask *)&mask, NULL, hold);
		is_left &= uvm_page_mask_test(&mask, page) && uvm_page_mask_test(&mask, 17) + uvm_page_mask_test(&mask, 40) == 1;
	}
	return is_left;
}

/* What came for the pages from @first on: which node's memory it is taken to be in, where no page is resident. */
static bool arrives(uvm_page_index_t first, uvm_page_index_t outer, bool on_first, bool on_second)
{
	uvm_page_mask_t mask = {};
	bool right = true;

	memset(resident_on, 0, sizeof(resident_on));
	memset(&va_block.cpu.resident, 0, sizeof(va_block.cpu.resident));
	for (uvm_page_index_t page = first; page < outer; page++)
		uvm_page_mask_set(&mask, page);
	uvm_seam_flash_arrived(&va_block, (struct uvm_rust_mask *)&mask);
	for (uvm_page_index_t page = first; page < outer; page++)
		right &= uvm_page_mask_test(&resident_on[0], page) == on_first && uvm_page_mask_test(&resident_on[1], page) == on_second;
	return right;
}

/* Where the second node has all, what comes before, for and behind the pages that the first has. */
static bool arrives_in_turn(void)
{
	bool right = !arrives(0, 512, true, false);

	for (uvm_page_index_t page = 0; page < 512; page++)
		right &= uvm_page_mask_test(&resident_on[0], page) == (page >= 16 && page < 32) &&
			 uvm_page_mask_test(&resident_on[1], page) == !(page >= 16 && page < 32);
	return right;
}

/* --- who holds a page ------------------------------------------------------------------- */

/* What others do to the folio, each at some look of ours: that of the number @at, if it has not been before. */
enum { NOTHING, GET, MAP, UNMAP, PUT };
static struct { int does, page, at; } others[4];
static int looks;

/* Of a folio of 32 pages, the first 16 are our chunk's; its first page and those of the others. */
static struct page *const ours = &pages[1][16];
#define THEIRS	20

static int goes_on(const int *number)
{
	for (unsigned int i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		struct page *page = &ours[others[i].page];

		if (others[i].at != looks)
			continue;
		ours->references += others[i].does == GET ? 1 : others[i].does == PUT ? -1 : 0;
		page->_mapcount += others[i].does == MAP ? 1 : others[i].does == UNMAP ? -1 : 0;
	}
	looks++;
	return *number;
}

/* Page 3 of our chunk, with @held references of others', as many mappings of @page as there are, and UVM's own reference. */
static bool seems_free(int held, int page, int mappings, bool guess)
{
	uvm_page_mask_t mask = {};

	for (int i = 0; i < 32; i++)
		ours[i]._mapcount = -1;
	ours->references = 1 + held + mappings;
	ours[page]._mapcount += mappings;
	looks = 0;
	uvm_page_mask_set(&mask, 19);
	uvm_seam_flash_host(&va_block, (struct uvm_rust_mask *)&mask, NULL, guess);
	return uvm_page_mask_test(&mask, 19);
}

/* The same with one who holds it, whenever @page is mapped or unmapped @does times, in turn; whether it ever seems free. */
static bool ever_free(int page, int mappings, const int *does)
{
	bool is_free = false;
	int last;

	memset(others, 0, sizeof(others));
	is_free |= seems_free(1, page, mappings, false);
	/* Behind them is the guess. */
	last = looks < 2 * 16 + 1 ? looks : 2 * 16 + 1;
	for (int i = 0; i < 4; i++)
		others[i] = (typeof(others[0])){ does[i], page, 0 };
	for (others[0].at = 0; others[0].at <= last; others[0].at++)
		for (others[1].at = others[0].at; others[1].at <= last; others[1].at++)
			for (others[2].at = others[1].at; others[2].at <= last; others[2].at++)
				for (others[3].at = others[2].at; others[3].at <= last; others[3].at += does[2] ? 1 : last + 1)
					is_free |= seems_free(1, page, mappings, false);
	memset(others, 0, sizeof(others));
	return is_free;
}

/* All pages of a block are in one chunk, every third of them resident nowhere. */
static bool looks_once(void)
{
	uvm_page_mask_t mask = {};
	int once;

	begin(0);
	memset(resident_on, 0xff, sizeof(resident_on));
	uvm_page_mask_set(&mask, 1);
	looks = 0;
	uvm_seam_flash_host(&va_block, (struct uvm_rust_mask *)&mask, NULL, true);
	once = looks;
	memset(&mask, 0xff, sizeof(mask));
	for (uvm_page_index_t page = 0; page < 512; page += 3)
		uvm_page_mask_clear(&va_block.cpu.resident, page);
	looks = 0;
	uvm_seam_flash_host(&va_block, (struct uvm_rust_mask *)&mask, NULL, true);
	return once && looks == once;
}

static void who_holds(void)
{
	static const int maps[4] = { GET, MAP }, unmaps[4] = { UNMAP, PUT }, both[4] = { UNMAP, PUT, GET, MAP };
	bool is_free;

	begin(0);
	memset(&resident_on[1], 0xff, sizeof(resident_on[1]));
	has[0] = false;
	has[1] = true;
	for (int i = 1; i < 32; i++)
		ours[i].head = ours;
	ours->pages = 32;
	say("a page that nobody holds or maps is free", seems_free(0, 3, 0, false) && seems_free(0, 3, 0, true));
	say("also with pages of its chunk mapped", seems_free(0, 4, 2, false) && seems_free(0, 4, 2, true));
	say("one that somebody holds is not", !seems_free(1, 4, 2, false) && !seems_free(1, 4, 2, true));
	say("where a folio has chunks of several va_blocks, others' mappings hold it", !seems_free(0, THEIRS, 1, false));
	say("as long as the page is mapped that does not count", seems_free(0, THEIRS, 1, true) && !seems_free(1, THEIRS, 1, true));
	is_free = ever_free(THEIRS, 0, maps) || ever_free(THEIRS, 1, maps);
	say("one that somebody holds never is, while others map their parts of the folio", !is_free);
	is_free = ever_free(THEIRS, 1, unmaps) || ever_free(THEIRS, 2, unmaps) || ever_free(THEIRS, 1, both);
	say("or unmap them, or do both", !is_free);
	say("or a process unmaps pages of ours", !ever_free(4, 1, unmaps) && !ever_free(4, 2, unmaps));
	say("or forks", !ever_free(4, 1, maps));
	ours->pages = 16;
	say("nor where all of a folio is ours", !ever_free(4, 1, unmaps) && !ever_free(4, 1, maps) && seems_free(0, 4, 1, false));
}

int main(void)
{
	printf("TAP version 13\n");
	say("a page is taken from the node where it is resident, whichever had the page before",
	    holds(16, 32, 0) && holds(16, 32, 1) && holds(17, 32, 0) && holds(17, 32, 1));
	say("also where a larger chunk of another node is around it", holds(0, 512, 0) && holds(0, 512, 1));
	say("and behind a chunk's end", holds(31, 40, 0) && holds(31, 40, 1));
	say("and of any run of pages it is the same, some of which are resident nowhere", holds_always());
	say("who holds a chunk is looked at once, however many runs of its pages there are", looks_once());
	say("a page that was not asked for, or has got other memory, is left out", notices());
	say("pages that are in a chunk one behind the other are looked for once", asks() == 1);
	begin(0);
	memset(&pages, 0, sizeof(pages));
	for (int i = 0; i < 512; i++)
		pages[0][i]._mapcount = pages[1][i]._mapcount = -1;
	say("chunks of two nodes that meet go together", chunk_is(20, 0, 512, true) && chunk_is(40, 0, 512, true));
	has[0] = false;
	say("where there is one, it goes alone, and none is none", chunk_is(21, 16, 32, true) && chunk_is(40, 40, 41, false));
	has[0] = true;
	pages[0][0].references = 2;
	say("a chunk that somebody holds is not for the taking", chunk_is(40, 0, 512, false));
	say("nor one of another node that meets it, where the page is resident", chunk_is(17, 0, 512, false));
	say("and its pages are left out, but not those of another chunk", is_left(17));
	pages[0][0].references = 0;
	pages[1][16].references = 2;
	say("whichever of the two is looked at first", is_left(40));
	say("nor one around a smaller one that somebody holds", chunk_is(40, 0, 512, false));
	pages[1][16].references = 0;
	say("what is resident nowhere has its memory on the first node that has some", arrives(0, 40, true, false));
	with_all = 1;
	say("also where that has a smaller chunk", arrives(16, 32, true, false) && arrives(0, 16, false, true) && arrives_in_turn());
	with_all = 0;
	has[0] = false;
	say("which may be the second", arrives(16, 32, false, true));
	say("or none", arrives(32, 40, false, false) && arrives(0, 16, false, false));
	who_holds();
	printf("1..%d\n", number);
	return failed;
}
