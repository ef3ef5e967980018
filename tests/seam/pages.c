// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * A page of device memory leads to its chunk, the chunk to its va_block, and that to its VA space. A va_block gives
 * the chunk up and is freed, while others go that way. Upstream and the fix `nobody` are made up here.
 */
#include "pages.h"

bool uvm_rust_fix_nobody = true;

static uvm_va_space_t va_space;
static uvm_va_block_t va_block, nobody;
static uvm_gpu_chunk_t chunk;
static struct page page;
static uvm_gpu_t gpu;

void uvm_spin_lock(uvm_spinlock_t *lock)
{
	explore_point();
	while (lock->held)
		explore_wait(&lock->held);
	lock->held = true;
}

void uvm_spin_unlock(uvm_spinlock_t *lock)
{
	lock->held = false;
}

uvm_gpu_t *uvm_gpu_chunk_get_gpu(uvm_gpu_chunk_t *of) { return &gpu; }
uvm_gpu_chunk_t *uvm_pmm_devmem_page_to_chunk(struct page *of) { return of->zone_device_data; }

/* As upstream goes: from one to the next, with no lock. */
uvm_va_space_t *uvm_pmm_devmem_page_to_va_space(struct page *of)
{
	uvm_va_block_t *block = of->zone_device_data->va_block;

	explore_point();
	if (block->freed)
		explore_wrong("a va_block is read that was freed");
	return block->hmm.va_space;
}

#include "uvm_rust_on_devmem.h"
#include "uvm_rust_on_pages.h"

static void begin(void)
{
	va_block = nobody = (uvm_va_block_t){ .hmm.va_space = &va_space };
	chunk.va_block = &va_block;
	page.zone_device_data = &chunk;
	gpu.pmm.list_lock.held = false;
}

static void end(void)
{
	if (chunk.va_block != &nobody || !va_block.freed)
		explore_wrong("the va_block was not freed");
}

/* Another process unmaps the page, and has managed memory in its place. */
static void gives_up(void)
{
	uvm_spin_lock(&gpu.pmm.list_lock);
	chunk.va_block = &nobody;
	uvm_spin_unlock(&gpu.pmm.list_lock);
	explore_point();
	va_block.freed = true;
}

static void faults(void)
{
	if (uvm_rust_va_space_of_fault(&page) != &va_space)
		explore_wrong("a fault has another VA space");
}

static void unregisters(void)
{
	if (!uvm_rust_page_is_of(&gpu, &page, &va_space))
		explore_wrong("a VA space has lost its page");
}

static int number, failed;

static void say(const char *name, void (*reader)(void), bool fixed)
{
	const struct explore what = { begin, end, { gives_up, reader } };
	unsigned long orders;
	const char *why;
	bool holds;

	uvm_rust_fix_nobody = fixed;
	orders = explore(&what, &why);
	holds = fixed == !why;
	failed |= !holds;
	printf("%s %d - pages: %s # %lu orders%s%s\n", holds ? "ok" : "not ok", ++number, name, orders, why ? ", " : "",
	       why ? why : "");
}

int main(void)
{
	printf("TAP version 13\n");
	say("a CPU fault finds the VA space, in whichever order its va_block goes", faults, true);
	say("and without the fix reads a va_block that was freed", faults, false);
	say("who unregisters a GPU finds its pages", unregisters, true);
	say("and without the fix reads a va_block that was freed", unregisters, false);
	printf("1..%d\n", number);
	return failed;
}
