// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Evictions of ordinary memory: what the hooks of uvm_va_block.c call, in upstream's
 * uvm_va_block_evict_chunks().
 */
#include <linux/delay.h>
#include <linux/list.h>
#include <linux/spinlock.h>

#include "uvm_common.h"
#include "uvm_hmm.h"
#include "uvm_kvmalloc.h"
#include "uvm_test.h"
#include "uvm_va_block.h"
#include "uvm_va_space.h"

#include "uvm_rust_fixes.h"
#include "uvm_rust_hooks.h"
#include "uvm_rust_on_nobody.h"

/*
 * The va_block of chunks that no va_block has, one for each VA space. A va_block gives a chunk of ordinary memory up
 * when its page is unmapped or moves; the chunk is freed when Linux lets the page go, which is later,
 * by a thread of upstream's, or not at all, as mremap() only moves the page. Until then
 * the chunk can be evicted, and upstream goes to the va_block that it names, which may have been
 * freed. This one has no pages and no GPUs.
 *
 * A VA space that ends has no pages on a GPU any more. A chunk that waits to be freed may still lead to its one, and an
 * eviction may have a reference of it, so it is freed with the module; the next VA space has it meanwhile. An
 * eviction that finds such a chunk waits for the thread.
 */
struct nobody {
	uvm_va_block_t va_block;
	/* Under unused_lock: one of those that no VA space has. */
	struct list_head unused;
};

static LIST_HEAD(unused_nobodies);
static DEFINE_SPINLOCK(unused_lock);

static struct nobody *take_unused(void)
{
	struct nobody *nobody;

	spin_lock(&unused_lock);
	nobody = list_first_entry_or_null(&unused_nobodies, struct nobody, unused);
	if (nobody)
		list_del(&nobody->unused);
	spin_unlock(&unused_lock);
	return nobody;
}

NV_STATUS uvm_rust_nobody_of(uvm_va_space_t *va_space)
{
	struct nobody *nobody;

	if (!uvm_hmm_is_enabled_system_wide() || !uvm_rust_fix_nobody)
		return NV_OK;
	nobody = take_unused();
	if (!nobody) {
		nobody = uvm_kvmalloc_zero(sizeof(*nobody));
		if (!nobody)
			return NV_ERR_NO_MEMORY;
		nv_kref_init(&nobody->va_block.kref);
		uvm_mutex_init(&nobody->va_block.lock, UVM_LOCK_ORDER_VA_BLOCK);
		/* Of no length, as no other va_block is. */
		nobody->va_block.start = 1;
	}
	uvm_rust_name_nobody(&nobody->va_block, va_space);
	va_space->uvm_rust_nobody = &nobody->va_block;
	return NV_OK;
}

void uvm_rust_nobody_gone(uvm_va_space_t *va_space)
{
	struct nobody *nobody;

	if (!va_space->uvm_rust_nobody)
		return;
	nobody = container_of(va_space->uvm_rust_nobody, struct nobody, va_block);
	va_space->uvm_rust_nobody = NULL;
	uvm_rust_name_nobody(&nobody->va_block, NULL);
	spin_lock(&unused_lock);
	list_add(&nobody->unused, &unused_nobodies);
	spin_unlock(&unused_lock);
}

void uvm_rust_nobodies_exit(void)
{
	struct nobody *nobody;

	while ((nobody = take_unused()))
		uvm_kvfree(nobody);
}

bool uvm_rust_is_nobody(const uvm_va_block_t *va_block)
{
	return va_block->start > va_block->end;
}

/* Called where @va_block, whose lock is held, gives @chunk up. */
void uvm_rust_chunk_is_nobodys(uvm_va_block_t *va_block, uvm_gpu_chunk_t *chunk)
{
#if UVM_IS_CONFIG_HMM()
	uvm_pmm_gpu_t *pmm = &uvm_gpu_chunk_get_gpu(chunk)->pmm;
	uvm_va_block_t *nobody = va_block->hmm.va_space->uvm_rust_nobody;

	/* One that a fault has only allocated for a page is the fault's, which gives it back. */
	if (!nobody || !chunk->is_referenced)
		return;
	/* Evictions take the name of the va_block, and a reference, under this lock. */
	uvm_spin_lock(&pmm->list_lock);
	if (chunk->va_block == va_block)
		chunk->va_block = nobody;
	uvm_spin_unlock(&pmm->list_lock);
#endif
}

static unsigned int uvm_rust_test_held;
module_param(uvm_rust_test_held, uint, 0600);
MODULE_PARM_DESC(uvm_rust_test_held,
		 "For tests, with uvm_enable_builtin_tests=1: evictions find all ordinary memory held by somebody; 2: and free slowly what they have got (default 0)");

bool uvm_rust_all_held(void)
{
	return unlikely(READ_ONCE(uvm_rust_test_held)) && uvm_enable_builtin_tests;
}

#define TEST_COPY_FAILS		1
#define TEST_COPY_WAITS		2
#define TEST_ISOLATING_WAITS	3
#define TEST_ISOLATING_IS_SLOW	4
/* How long a test may have others wait, and how long isolating then takes, in ms. */
#define TEST_WAITS_MS		10000
#define TEST_SLOW_MS		10

static unsigned int uvm_rust_test_copy;
module_param(uvm_rust_test_copy, uint, 0600);
MODULE_PARM_DESC(uvm_rust_test_copy,
		 "For tests, with uvm_enable_builtin_tests=1: 1: copies of ordinary memory to the host fail; 2: an eviction or UVM_MIGRATE that has isolated pages for one waits as long as this is so; 3: who is about to isolate pages waits; 4: isolating takes 10 ms (default 0)");

static bool test_copy_is(unsigned int what)
{
	return unlikely(READ_ONCE(uvm_rust_test_copy) == what) && uvm_enable_builtin_tests;
}

static void wait_while_it_is(unsigned int what)
{
	unsigned long until = jiffies + msecs_to_jiffies(TEST_WAITS_MS);

	while (test_copy_is(what) && time_before(jiffies, until))
		msleep(1);
}

bool uvm_rust_test_copy_fails(void)
{
	return test_copy_is(TEST_COPY_FAILS);
}

void uvm_rust_test_isolated(void)
{
	wait_while_it_is(TEST_COPY_WAITS);
}

void uvm_rust_test_isolates(void)
{
	wait_while_it_is(TEST_ISOLATING_WAITS);
	if (test_copy_is(TEST_ISOLATING_IS_SLOW))
		msleep(TEST_SLOW_MS);
}

void uvm_rust_test_freed(void)
{
	if (uvm_rust_all_held() && READ_ONCE(uvm_rust_test_held) == 2)
		usleep_range(20, 50);
}

/*
 * Called before the pages to evict are collected.
 *
 * Upstream's hmm_va_block_evict_chunks() passes the page frame numbers of all
 * pages of a block to migrate_device_pages(), but only those of the evicted root
 * chunk have been set; the rest is what the context's memory held before. Linux
 * skips entries that are 0. uvm_hmm_va_block_evict_pages_from_gpu(), upstream's
 * other caller, clears them.
 */
void uvm_rust_clear_hmm_pfns(void *block_context)
{
#if UVM_IS_CONFIG_HMM()
	uvm_va_block_context_t *context = block_context;

	if (!uvm_rust_fix_pfns)
		return;
	memset(context->hmm.src_pfns, 0, sizeof(context->hmm.src_pfns));
	memset(context->hmm.dst_pfns, 0, sizeof(context->hmm.dst_pfns));
#endif
}

/*
 * Called when all that is to be evicted is in the context's
 * caller_page_mask and Linux was asked for it.
 *
 * Linux clears MIGRATE_PFN_MIGRATE of a page that it will not let go, as somebody has one
 * more reference of it. Upstream then asks whether the page is in a mask, which is NULL when
 * it evicts.
 */
void uvm_rust_leave_held_pages(uvm_va_block_t *block, void *block_context)
{
#if UVM_IS_CONFIG_HMM()
	uvm_va_block_context_t *context = block_context;
	uvm_page_index_t page;
	bool all_held;

	if (!uvm_va_block_is_hmm(block) || !uvm_rust_fix_held)
		return;
	all_held = uvm_rust_all_held();
	for_each_va_block_page_in_mask(page, &context->caller_page_mask, block) {
		if (all_held || !(context->hmm.src_pfns[page] & MIGRATE_PFN_MIGRATE))
			uvm_page_mask_clear(&context->caller_page_mask, page);
	}
#endif
}

/*
 * Called for each chunk that the va_block still has in a
 * root chunk whose pages were migrated to the host. Caller holds the va_block's lock.
 *
 * Linux lets no page go that somebody has one more reference of, such as a CPU that
 * faulted on it and waits for the va_block's lock. Its chunk must stay as well: upstream
 * took the memory, to which the page still led.
 */
bool uvm_rust_chunk_stays(uvm_gpu_chunk_t *chunk)
{
#if UVM_IS_CONFIG_HMM()
	return uvm_rust_fix_held && chunk->is_referenced;
#else
	return false;
#endif
}
