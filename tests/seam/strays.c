// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Which pages of ordinary memory an eviction takes to the host by way of Linux: those whose chunk names a va_block that
 * has not got it. uvm_rust_pmm_fixes.h as it is, where a chunk knows its place in a va_block, and, with STALE, where
 * a split and mremap() leave it as it was. Upstream and Linux are made up here.
 */
#include <string.h>

#define PAGES_PER_UVM_VA_BLOCK	512
#define SEAM_CHUNKS		PAGES_PER_UVM_VA_BLOCK
#define SEAM_CHUNK_FIELDS	int type; unsigned int va_block_page_index : 10;
#define SEAM_VA_SPACE_FIELDS
#define SEAM_VA_BLOCK_FIELDS	size_t pages;
#include "shim.h"

#define UVM_IS_CONFIG_HMM()	1
#define PAGE_SIZE		4096u
#define NV_ERR_BUSY_RETRY	((NV_STATUS)100)
#define NV_ERR_IN_USE		((NV_STATUS)101)
#define min_t(type, a, b)	min((type)(a), (type)(b))
#define time_after(a, b)	((a) > (b))
#define msecs_to_jiffies(ms)	(ms)
#define usleep_range(least, most)	((void)0)
#define INIT_LIST_HEAD(list)	((void)(list))
#define list_add_tail(at, list)	((void)(list))
#define list_first_entry(list, type, member)	list_entry((list)->next, type, member)
/* The lock of a va_block, of a PMM and of PMA: nobody else wants them here. */
#define uvm_mutex_lock(lock)	((void)0)
#define uvm_mutex_unlock(lock)	((void)0)
#define uvm_down_write(lock)	((void)0)
#define uvm_up_write(lock)	((void)0)
static unsigned long jiffies;

enum { UVM_PMM_GPU_CHUNK_STATE_TEMP_PINNED = 8 };
typedef __typeof__(*((uvm_pmm_gpu_t *)0)->root_chunks.array) uvm_gpu_root_chunk_t;
typedef struct { int pushes; } uvm_tracker_t;
typedef uint16_t uvm_page_index_t;
typedef struct { uvm_page_index_t first, outer; } uvm_va_block_region_t;
struct page { uvm_gpu_chunk_t *zone_device_data; };

static uvm_va_block_region_t uvm_va_block_region(uvm_page_index_t first, uvm_page_index_t outer)
{
	return (uvm_va_block_region_t){ first, outer };
}

static uvm_va_block_region_t uvm_va_block_region_for_page(uvm_page_index_t page)
{
	return uvm_va_block_region(page, page + 1);
}

static struct page pages[PAGES_PER_UVM_VA_BLOCK];
static uvm_gpu_chunk_t chunk, other;
static uvm_va_block_t va_block, another;
static struct test_gpu_state state;
static uvm_gpu_t gpu = { .id = { 1 } };
static uvm_gpu_root_chunk_t root_chunk;
static int evicted;

#define pfn_to_page(pfn)	(&pages[pfn])
static unsigned long uvm_pmm_gpu_devmem_get_pfn(uvm_pmm_gpu_t *pmm, uvm_gpu_chunk_t *of) { return 0; }
static bool asked_nobody;

/* As upstream's assert has it: a dead va_block has no length. */
static size_t uvm_va_block_num_cpu_pages(uvm_va_block_t *block)
{
	asked_nobody |= !block->pages;
	return block->pages;
}
static bool uvm_va_block_is_hmm(uvm_va_block_t *block) { return true; }
static NV_STATUS uvm_va_block_evict_chunks__c(uvm_va_block_t *block, uvm_gpu_t *of, uvm_gpu_chunk_t *root,
					      uvm_tracker_t *tracker) { return NV_OK; }
uvm_va_block_gpu_state_t *uvm_va_block_gpu_state_get(uvm_va_block_t *block, uvm_gpu_id_t id)
{
	return block->pages ? &state : NULL;
}

#include "uvm_rust_pmm_fixes.h"

static uvm_gpu_chunk_t *devmem_page_to_chunk_locked(struct page *page) { return page->zone_device_data; }
static uvm_gpu_root_chunk_t *pick_root_chunk_to_evict(uvm_pmm_gpu_t *pmm) { return NULL; }
static NV_STATUS chunk_walk_pre_order(uvm_pmm_gpu_t *pmm, uvm_gpu_chunk_t *start, uvm_rust_walk_fn *fn, void *data) { return NV_OK; }
static NV_STATUS free_first_pinned_chunk_func(uvm_pmm_gpu_t *pmm, uvm_gpu_chunk_t *of, void *data) { return NV_OK; }
bool uvm_rust_fix_strays = true, uvm_rust_fix_in_vain, uvm_rust_fix_batch;
bool uvm_rust_is_nobody(const uvm_va_block_t *block) { return false; }
void uvm_rust_test_freed(void) { }
void uvm_assert_spinlock_locked(const uvm_spinlock_t *lock) { }
void nv_kthread_q_flush(nv_kthread_q_t *q) { }
static bool locked;
void uvm_spin_lock(uvm_spinlock_t *lock) { locked = true; }
void uvm_spin_unlock(uvm_spinlock_t *lock) { locked = false; }

NV_STATUS uvm_rust_hmm_evict_pfn(unsigned long pfn)
{
	evicted += pfn == 7 && !locked;
	return NV_OK;
}

static int number, failed;

static void say(const char *name, bool holds)
{
	failed |= !holds;
	printf("%s %d - strays%s: %s\n", holds ? "ok" : "not ok", ++number,
#ifdef STALE
	       ", of a split that tells no chunk",
#else
	       "",
#endif
	       name);
}

/* The eighth page of a root chunk has a chunk that says @index; the va_block of @length pages has it @at, or nowhere. */
static bool stays(NvU32 index, int at, size_t length)
{
	NV_STATUS status = NV_OK;
	unsigned int left;

	memset(&state, 0, sizeof(state));
	state.chunks[100] = &other;
	va_block.pages = length;
	chunk = (uvm_gpu_chunk_t){ .va_block = &va_block, .va_block_page_index = index };
	pages[7].zone_device_data = &chunk;
	if (at >= 0)
		state.chunks[at] = &chunk;
	evicted = 0;
	left = evict_strays(&gpu.pmm, &root_chunk, &va_block, &status);
	return status == NV_OK && left == 1 && !evicted;
}

static bool goes(NvU32 index, int at, size_t length)
{
	return !stays(index, at, length) && evicted == 1;
}

int main(void)
{
	const size_t all = PAGES_PER_UVM_VA_BLOCK;

	printf("TAP version 13\n");
	say("what its va_block has stays", stays(3, 3, all) && stays(0, 0, 1) && stays(511, 511, all));
	say("what its va_block has not goes to the host", goes(3, -1, all) && goes(100, -1, all));
	/* A chunk that was split off has the place that it had before, where no split tells it. */
	say("beyond a va_block's end there is nothing", goes(300, -1, 256) && goes(300, 300, 256) && goes(512, -1, all));
#ifdef STALE
	say("what its va_block has elsewhere stays", stays(300, 44, 256) && stays(512, 0, all));
#else
	say("a va_block is asked for the one place that the chunk says", goes(3, 4, all) && goes(3, 2, all));
#endif
	say("of a dead va_block nothing is there, and no length is asked for", goes(3, 3, 0) && !asked_nobody);
	chunk.va_block = &another;
	evicted = 0;
	say("what names another va_block is left alone",
	    !evict_strays(&gpu.pmm, &root_chunk, &va_block, &(NV_STATUS){ NV_OK }) && !evicted);
	printf("1..%d\n", number);
	return failed;
}
