// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * What becomes of pages that are dropped: uvm_seam_block_drop() as it is in uvm_rust_va_block.h, and uvm_rust_drop_leaving(),
 * which has Rust drop pages. The rest of that file is not compiled here. Here are upstream and Rust.
 */
#define PAGES	64

typedef struct { unsigned long word; } uvm_page_mask_t;

#define SEAM_VA_SPACE_FIELDS
#define SEAM_VA_BLOCK_FIELDS	struct { uvm_page_mask_t resident; } cpu; uvm_page_mask_t read_duplicated_pages; \
				NvU32 resident, evicted_gpus; struct uvm_rust_block *uvm_rust;
#define SEAM_GPU_STATE_FIELDS	uvm_page_mask_t resident, evicted;
#include "shim.h"

static bool uvm_page_mask_andnot(uvm_page_mask_t *to, const uvm_page_mask_t *of, const uvm_page_mask_t *without)
{
	to->word = of->word & ~without->word;
	return to->word;
}
#define uvm_page_mask_empty(mask)		(!(mask)->word)
#define uvm_page_mask_intersects(a, b)		(((a)->word & (b)->word) != 0)
#define uvm_processor_mask_clear(mask, id)	((void)(*(mask) &= ~(1u << (id).val)))
#define block_clear_resident_processor(block, id)	((void)((block)->resident &= ~(1u << (id).val)))
#define UVM_ID_CPU				((uvm_processor_id_t){ 0 })
#define for_each_gpu_id(id)			for ((id).val = 1; (id).val <= UVM_ID_MAX_GPUS; (id).val++)
#define uvm_rust_drop_cpu_residency(block, drop) \
	((void)uvm_page_mask_andnot(&(block)->cpu.resident, &(block)->cpu.resident, drop))

static uvm_va_block_t va_block;
static uvm_va_block_gpu_state_t state;
static uvm_gpu_t gpu = { .id = { 1 } };
/* What the host's memory is said to have that its preferred location has not; and how often that was said of pages. */
static uvm_page_mask_t dirty;
static int marked;

/* The first GPU has memory for the block, and no other. */
uvm_va_block_gpu_state_t *uvm_va_block_gpu_state_get(uvm_va_block_t *block, uvm_gpu_id_t id)
{
	return id.val == 1 ? &state : NULL;
}

/* Of pages that are resident. */
static void uvm_va_block_mark_cpu_dirty(uvm_va_block_t *block)
{
	dirty.word |= block->cpu.resident.word;
	marked++;
}

#define uvm_rust_resident_mask(block, id)	(&state.resident)
#define uvm_rust_mask(mask)			((const struct uvm_rust_mask *)(mask))
/* How often Rust was asked to drop what leaves, and whether by the places of what the block has. */
static int asked;
static bool by_places;

void uvm_rust_block_drop_leaving(uvm_va_block_t *block, struct uvm_rust_block **place, const struct uvm_rust_mask *resident)
{
	asked++;
	by_places = block == &va_block && place == &va_block.uvm_rust && (void *)resident == &state.resident;
}

#include "drop.h"

static int number, failed;

static void say(const char *name, bool holds)
{
	failed |= !holds;
	printf("%s %d - dropped pages: %s\n", holds ? "ok" : "not ok", ++number, name);
}

/* The host has the pages of @host, all of them clean, and the GPU the others. */
static void drop(unsigned long host, unsigned long pages, bool stays)
{
	const uvm_page_mask_t mask = { pages };

	va_block = (uvm_va_block_t){ .cpu.resident = { host }, .read_duplicated_pages = { ~0ul }, .resident = 3, .evicted_gpus = 2 };
	state = (uvm_va_block_gpu_state_t){ .resident = { ~host }, .evicted = { host } };
	dirty.word = 0;
	marked = 0;
	uvm_seam_block_drop(&va_block, (const struct uvm_rust_mask *)&mask, stays);
}

int main(void)
{
	printf("TAP version 13\n");
	drop(0xff, 0x0f, true);
	say("are resident nowhere", va_block.cpu.resident.word == 0xf0 && state.resident.word == ~0xfful &&
	    state.evicted.word == 0xf0 && va_block.read_duplicated_pages.word == ~0xful);
	say("others are where they were", va_block.resident == 3 && va_block.evicted_gpus == 2);
	say("of those in host memory none is clean, as if a preferred location had it", !(~dirty.word & 0xf));
	drop(0xff, ~0xfful, true);
	say("those that only a GPU has cost nothing there", marked == 0 && state.resident.word == 0 && va_block.resident == 1);
	drop(0xff, 0x0f, false);
	say("nor have those whose memory goes as well", marked == 0 && va_block.cpu.resident.word == 0xf0);
	drop(0xff, ~0ul, true);
	say("nobody has a block of which all is dropped", va_block.resident == 0 && va_block.evicted_gpus == 0 && marked == 1);
	uvm_rust_drop_leaving(&va_block, &gpu);
	say("of a block that was never discarded nothing is dropped as its GPU leaves", !asked);
	va_block.uvm_rust = (struct uvm_rust_block *)&va_block;
	uvm_rust_drop_leaving(&va_block, &gpu);
	say("of another Rust drops what it finds there each time it looks", asked == 1 && by_places);
	printf("1..%d\n", number);
	return failed;
}
