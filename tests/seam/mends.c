// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Mends of upstream that are small, each as it is. From 570 on: what a failed copy to a GPU frees, which GPUs a CPU fault keeps
 * while it asks RM about them, what a discard leaves that fails, and what UVM_MIGRATE says of two moves. Before it: what a
 * notification of an access counter waits for. Upstream is made up here.
 */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef struct { uint64_t words[8]; } uvm_page_mask_t;
/* Bit n for the processor with the value n; 0 is the CPU. */
typedef struct { uint32_t bits; } uvm_processor_mask_t;

#define SEAM_CHUNKS		4
#define SEAM_GPU_STATE_FIELDS	uvm_page_mask_t resident;
#define SEAM_VA_SPACE_FIELDS	int lock; uvm_processor_mask_t registered_gpus; bool non_faultable;
#define SEAM_VA_BLOCK_FIELDS	uvm_page_mask_t discarded_pages, read_duplicated_pages; void *uvm_rust_flash;
#include "shim.h"

#define __uninitialized
#define PAGE_SIZE		4096u
enum { UVM_PMM_GPU_CHUNK_STATE_TEMP_PINNED = 8 };
typedef unsigned int uvm_page_index_t;
typedef struct { uvm_page_index_t first, outer; } uvm_va_block_region_t;
struct uvm_va_block_context_struct {
	struct { uvm_page_mask_t discarded_pages; } discard;
	uvm_page_mask_t caller_page_mask;
};

static void uvm_page_mask_copy(uvm_page_mask_t *to, const uvm_page_mask_t *from) { *to = *from; }

static bool uvm_page_mask_and(uvm_page_mask_t *to, const uvm_page_mask_t *a, const uvm_page_mask_t *b)
{
	uint64_t any = 0;

	for (int i = 0; i < 8; i++)
		any |= to->words[i] = a->words[i] & b->words[i];
	return any;
}

static bool uvm_page_mask_andnot(uvm_page_mask_t *to, const uvm_page_mask_t *a, const uvm_page_mask_t *b)
{
	uint64_t any = 0;

	for (int i = 0; i < 8; i++)
		any |= to->words[i] = a->words[i] & ~b->words[i];
	return any;
}

static bool uvm_page_mask_test(const uvm_page_mask_t *mask, uvm_page_index_t page)
{
	return mask->words[page / 64] >> page % 64 & 1;
}

static bool uvm_page_mask_region_empty(const uvm_page_mask_t *mask, uvm_va_block_region_t region)
{
	while (region.first < region.outer)
		if (uvm_page_mask_test(mask, region.first++))
			return false;
	return true;
}

static uvm_page_mask_t mask_of(uvm_page_index_t first, uvm_page_index_t outer)
{
	uvm_page_mask_t mask = {};

	for (; first < outer; first++)
		mask.words[first / 64] |= 1ull << first % 64;
	return mask;
}

static bool is_mask(const uvm_page_mask_t *mask, uvm_page_index_t first, uvm_page_index_t outer)
{
	const uvm_page_mask_t wanted = mask_of(first, outer);

	return !memcmp(mask, &wanted, sizeof(wanted));
}

static int number, failed;

static void say(const char *name, bool holds)
{
	failed |= !holds;
	printf("%s %d - mends: %s\n", holds ? "ok" : "not ok", ++number, name);
}

static uvm_va_space_t va_space;
static uvm_va_block_t va_block = { .va_space = &va_space, .start = 0x400000, .end = 0x5fffff };
uvm_va_space_t *uvm_va_block_get_va_space(uvm_va_block_t *block) { return block->va_space; }

bool uvm_rust_fix_copies = true, uvm_rust_fix_nvlink_lock = true, uvm_rust_fix_kept_mapped = true, uvm_rust_fix_duplicates = true,
     uvm_rust_fix_cpu_fault = true, uvm_rust_fix_context;

/* --- a copy to a GPU that fails -------------------------------------------------------------- */

typedef NvU32 uvm_chunk_size_t;
#define uvm_va_block_num_cpu_pages(block)	((uvm_page_index_t)(64 * ((block) == &va_block)))
static uvm_gpu_t gpu = { .id = { 2 } };
static uvm_va_block_gpu_state_t state;

uvm_gpu_t *uvm_rust_gpu(uvm_va_space_t *space, uvm_gpu_id_t id) { return space == &va_space && id.val == 2 ? &gpu : NULL; }

static uvm_va_block_region_t uvm_va_block_region(uvm_page_index_t first, uvm_page_index_t outer)
{
	return (uvm_va_block_region_t){ first, outer };
}

/* Two chunks of 64 KiB, one of 4 KiB, and one of the rest. */
static size_t block_gpu_chunk_index(uvm_va_block_t *block, uvm_gpu_t *of, uvm_page_index_t page, uvm_chunk_size_t *size)
{
	size_t index = page < 32 ? page / 16 : page == 32 ? 2 : 3;

	if (of != &gpu)
		explore_wrong("another GPU's chunks");
	*size = (index < 2 ? 16 : index == 2 ? 1 : 31) * PAGE_SIZE;
	return index;
}

uvm_va_block_gpu_state_t *uvm_va_block_gpu_state_get(uvm_va_block_t *block, uvm_gpu_id_t id)
{
	return block == &va_block && id.val == 2 ? &state : NULL;
}

#include "uvm_rust_failed_copy.h"

/*
 * As upstream cleans up, with our hook. Of four chunks the first and the third are pinned, the second was there before, and the
 * fourth is not there. These pages are resident; the chunks that are left are told by a bit each.
 */
static unsigned int left_of(uvm_page_index_t first, uvm_page_index_t outer)
{
	static uvm_gpu_chunk_t chunks[SEAM_CHUNKS];
	unsigned int left = 0;

	state.resident = mask_of(first, outer);
	for (int i = 0; i < SEAM_CHUNKS; i++) {
		chunks[i] = (uvm_gpu_chunk_t){ .state = UVM_PMM_GPU_CHUNK_STATE_TEMP_PINNED };
		state.chunks[i] = i == 3 ? NULL : &chunks[i];
	}
	chunks[1].state = UVM_PMM_GPU_CHUNK_STATE_ALLOCATED;
	for (int i = 0; i < SEAM_CHUNKS; i++) {
		uvm_gpu_chunk_t *chunk = state.chunks[i];

		if (uvm_rust_chunk_has_data(&va_block, (uvm_gpu_id_t){ 2 }, chunk))
			continue;
		if (chunk && chunk->state == UVM_PMM_GPU_CHUNK_STATE_TEMP_PINNED)
			state.chunks[i] = NULL;
	}
	for (int i = 0; i < SEAM_CHUNKS; i++)
		left |= !!state.chunks[i] << i;
	return left;
}

static void copy_tests(void)
{
	say("a failed copy frees the chunks that came for it", left_of(0, 0) == 2 && left_of(16, 32) == 2);
	say("and none that an earlier move has filled", left_of(32, 33) == 6 && left_of(0, 16) == 3 && left_of(0, 64) == 7);
	say("nor one that has a single page of it", left_of(0, 1) == 3 && left_of(15, 16) == 3 && left_of(15, 33) == 7);
	say("what lies beside a chunk is not its own", left_of(16, 32) == 2 && left_of(33, 64) == 2);
	uvm_rust_fix_copies = false;
	say("without the mend they go with their data", left_of(0, 64) == 2);
}

/* --- GPUs that RM is asked about --------------------------------------------------------- */

typedef struct { int gpus_to_check_for_nvlink_errors; } uvm_service_block_context_t;
static uint32_t retained, released;

static void uvm_processor_mask_and(uvm_processor_mask_t *to, const uvm_processor_mask_t *a, const uvm_processor_mask_t *b)
{
	to->bits = a->bits & b->bits;
}

static bool uvm_processor_mask_empty(const uvm_processor_mask_t *mask) { return !mask->bits; }
static int rests;
static void usleep_range(int min, int max) { rests += min < max; }

static void uvm_global_gpu_retain(const uvm_processor_mask_t *gpus) { retained |= gpus->bits; }
static void uvm_global_gpu_release(const uvm_processor_mask_t *gpus) { released |= gpus->bits; }

#include "uvm_rust_on_links.h"

/*
 * Asks about these GPUs, with our hook: which are kept meanwhile, and whether just these are let go after that. If there are none, the
 * fault comes again, and has rested.
 */
static bool asks(uint32_t gpus, uint32_t about, uint32_t kept)
{
	uvm_processor_mask_t mask = { gpus };
	bool holds;

	va_space.registered_gpus.bits = 0x6;
	retained = released = 0;
	if (!uvm_rust_retain_asked(&va_space, &mask)) {
		uvm_rust_rest_asked();
		return !about && !mask.bits && !retained;
	}
	holds = mask.bits == about && retained == kept && !released;
	uvm_rust_release_asked(&mask);
	return holds && about && released == kept;
}

static void nvlink_tests(void)
{
	say("GPUs that RM is asked about stay as long", asks(0x2, 0x2, 0x2) && asks(0x6, 0x6, 0x6));
	say("it is not asked about those that the VA space does not keep", asks(0xc, 0x4, 0x4) && !rests);
	say("if these are all, the fault comes again after a rest", asks(0x8, 0, 0) && rests == 1);
	uvm_rust_fix_nvlink_lock = false;
	say("without the mend it is asked about what may go", asks(0xc, 0xc, 0));
}

/* --- a discard that fails -------------------------------------------------------------------- */

#define UVM_RUST_NATIVE
#define UVM_MAKE_RESIDENT_CAUSE_API_HINT 1
typedef struct { int chunks; } uvm_va_block_retry_t;
typedef struct { int pushes; } uvm_tracker_t;
typedef int uvm_make_resident_cause_t;
static uvm_page_mask_t mapped;
static bool uvm_rust_has_non_faultable(uvm_va_space_t *space) { return space->non_faultable; }
static NV_STATUS uvm_va_block_make_resident(uvm_va_block_t *block, uvm_va_block_retry_t *retry, uvm_va_block_context_t *context,
					    uvm_processor_id_t to, uvm_va_block_region_t region, const uvm_page_mask_t *pages,
					    const uvm_page_mask_t *prefetched, uvm_make_resident_cause_t cause) { return NV_OK; }

#include "uvm_rust_native_discard.h"

/* A step of a discard: what it unmaps before it ends so. */
static struct { uvm_page_index_t first, outer; NV_STATUS status; } step;

static void block_discarded_mapped_pages_get(uvm_va_block_t *block, uvm_page_mask_t *pages)
{
	uvm_page_mask_and(pages, &mapped, &block->discarded_pages);
}

/* As upstream goes about an eager one: it marks, has the context say what is to be done, and unmaps. */
static NV_STATUS va_block_discard_locked(uvm_va_block_t *block, uvm_va_block_retry_t *retry, uvm_va_block_context_t *context,
					 NvU64 flags, uvm_tracker_t *tracker)
{
	uvm_page_mask_t *todo = &context->discard.discarded_pages, again, gone = mask_of(step.first, step.outer);

	uvm_page_mask_and(&again, todo, &block->discarded_pages);
	uvm_page_mask_and(&again, &again, &mapped);
	uvm_page_mask_andnot(todo, todo, &block->discarded_pages);
	for (int i = 0; i < 8; i++)
		block->discarded_pages.words[i] |= todo->words[i] |= again.words[i];
	uvm_page_mask_andnot(&mapped, &mapped, &gone);
	return step.status;
}

static void begin_discard(uvm_va_block_context_t *context)
{
	context->discard.discarded_pages = mask_of(100, 200);
	va_block.discarded_pages = (uvm_page_mask_t){};
	mapped = mask_of(0, 300);
}

static bool discards(uvm_va_block_context_t *context, uvm_page_index_t first, uvm_page_index_t outer, NV_STATUS status)
{
	step.first = first;
	step.outer = outer;
	step.status = status;
	return uvm_rust_discard_locked(&va_block, NULL, context, 1, NULL) == status;
}

static void discard_tests(void)
{
	uvm_va_block_context_t context;

	begin_discard(&context);
	say("a discard that is done has discarded", discards(&context, 100, 200, NV_OK) && is_mask(&va_block.discarded_pages, 100, 200));
	begin_discard(&context);
	say("one that fails leaves nothing discarded that is mapped",
	    discards(&context, 0, 0, NV_ERR_NO_MEMORY) && is_mask(&va_block.discarded_pages, 0, 0));
	begin_discard(&context);
	say("and nothing live that is not, as it may show what the memory held",
	    discards(&context, 100, 130, NV_ERR_NO_MEMORY) && is_mask(&va_block.discarded_pages, 100, 130));
	begin_discard(&context);
	say("one that is to be tried again is still under way", discards(&context, 100, 130, NV_ERR_MORE_PROCESSING_REQUIRED) &&
	    is_mask(&va_block.discarded_pages, 100, 200));
	say("and fails at the second try like at the first",
	    discards(&context, 130, 150, NV_ERR_NO_MEMORY) && is_mask(&va_block.discarded_pages, 100, 150));
	begin_discard(&context);
	va_block.discarded_pages = mask_of(90, 100);
	say("what was discarded before, and was not asked for, stays so",
	    discards(&context, 0, 0, NV_ERR_NO_MEMORY) && is_mask(&va_block.discarded_pages, 90, 100));
	uvm_rust_fix_kept_mapped = false;
	begin_discard(&context);
	say("without the mend it is discarded and mapped",
	    discards(&context, 0, 0, NV_ERR_NO_MEMORY) && is_mask(&va_block.discarded_pages, 100, 200));
}

/* --- two moves ---------------------------------------------------------------------------------- */

#define static_branch_unlikely(key)	(*(key))
static bool uvm_rust_flash_used_key;
#define UVM_RUST_FLASH_H
#define uvm_rust_mask_out(mask)		((struct uvm_rust_mask *)(mask))
#define UVM_ID_INVALID			((uvm_processor_id_t){ 99 })
void uvm_rust_flash_leave_copied(struct uvm_rust_flash_block *block, struct uvm_rust_mask *pages) { }
typedef struct test_migration {
	struct { uvm_processor_id_t residency; } prefetch_hint;
	int thrashing_pin_count, read_duplicate_count;
} test_migration_t;
#define uvm_service_block_context_t	test_migration_t
static uvm_service_block_context_t *uvm_service_block_context_alloc(struct mm_struct *mm) { return NULL; }

#include "uvm_rust_migrate.h"

/* As upstream migrates what is read-duplicated, with our hook: what becomes of it where the two moves end so. */
static NV_STATUS migrates(NV_STATUS duplicates, NV_STATUS discarded)
{
	NV_STATUS status = duplicates;

	if (uvm_rust_goes_on(status))
		status = discarded;
	return status;
}

static void migrate_tests(void)
{
	say("a migration fails that could not duplicate", migrates(NV_ERR_NO_MEMORY, NV_OK) == NV_ERR_NO_MEMORY &&
	    migrates(NV_OK, NV_ERR_NO_MEMORY) == NV_ERR_NO_MEMORY && migrates(NV_OK, NV_OK) == NV_OK);
	say("and is tried again if it is to be",
	    migrates(NV_ERR_MORE_PROCESSING_REQUIRED, NV_OK) == NV_ERR_MORE_PROCESSING_REQUIRED);
	uvm_rust_fix_duplicates = false;
	say("without the mend it says what became of the discarded pages", migrates(NV_ERR_NO_MEMORY, NV_OK) == NV_OK);
}

/* --- notifications of access counters ------------------------------------------------------- */

#define UVM_ACCESS_COUNTER_ACTION_CLEAR	2
#define UVM_RUST_FILES_H
static bool puts_off, is_held, waited;
static int begun, finished;
static bool uvm_rust_puts_off(uvm_va_space_t *space) { return space == &va_space && puts_off; }
static NV_STATUS uvm_hmm_migrate_begin(uvm_va_block_t *block)
{
	begun += !is_held;
	return is_held ? NV_ERR_MORE_PROCESSING_REQUIRED : NV_OK;
}
static void uvm_hmm_migrate_begin_wait(uvm_va_block_t *block)
{
	waited = is_held;
	begun++;
}
static void uvm_hmm_migrate_finish(uvm_va_block_t *block) { finished++; }

#include "uvm_rust_gpu_access_counters.h"

/* As upstream services one, of a va_block whose service ends so. Whether its locks are let go. */
static bool notifies(NV_STATUS ends, NV_STATUS *out_status, NvU32 *out_flags)
{
	NV_STATUS status = NV_OK;
	bool is_locked = true;

	begun = finished = 0;
	*out_flags = 0;
	uvm_hmm_migrate_begin_wait(&va_block);
	status = ends;
	uvm_hmm_migrate_finish(&va_block);
	if (status == NV_OK)
		*out_flags |= UVM_ACCESS_COUNTER_ACTION_CLEAR;
done: __attribute__((unused));
	is_locked = false;
	*out_status = status;
	return !is_locked && begun == finished;
}

static void notification_tests(void)
{
	NV_STATUS status;
	NvU32 flags;

	puts_off = is_held = true;
	say("a notification does not wait while somebody moves pages of its va_block", notifies(NV_OK, &status, &flags) && !begun && !waited);
	say("nor does it end the batch, and its counter counts anew", status == NV_OK && flags == UVM_ACCESS_COUNTER_ACTION_CLEAR);
	is_held = false;
	say("else it is serviced", notifies(NV_OK, &status, &flags) && begun == 1 && status == NV_OK && flags);
	say("one whose page has yet to come out of a file does not end the batch", notifies(NV_ERR_NOT_READY, &status, &flags) &&
	    status == NV_OK && flags == UVM_ACCESS_COUNTER_ACTION_CLEAR);
	say("one that fails does", notifies(NV_ERR_NO_MEMORY, &status, &flags) && status == NV_ERR_NO_MEMORY && !flags);
	puts_off = false;
	is_held = true;
	say("where faults are not put off it waits as upstream's does", notifies(NV_OK, &status, &flags) && begun == 1 && waited);
}

int main(void)
{
	printf("TAP version 13\n");
	copy_tests();
	nvlink_tests();
	discard_tests();
	migrate_tests();
	notification_tests();
	printf("1..%d\n", number);
	return failed;
}
