// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * uvm_rust_anew.h: a chunk that no page has gone to is freed. Upstream is made up here.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Two GPUs with four pages of a va_block each. */
#define GPUS	2
#define PAGES	4
typedef unsigned int uvm_page_index_t;
typedef struct { uvm_page_index_t first, outer; } uvm_va_block_region_t;
typedef struct { int of; } uvm_pmm_gpu_t;
typedef struct { int id; uvm_pmm_gpu_t pmm; } uvm_gpu_t;
typedef struct { int pushes; } uvm_tracker_t;
typedef struct { uvm_gpu_t *gpu; uvm_page_index_t place; bool is_mapped, is_free; } uvm_gpu_chunk_t;
typedef struct { uvm_gpu_chunk_t *chunks[PAGES]; } uvm_va_block_gpu_state_t;
typedef struct { struct { bool held; } lock; uvm_tracker_t tracker; uvm_va_block_gpu_state_t gpus[GPUS]; } uvm_va_block_t;

bool uvm_rust_fix_anew = true;
static uvm_gpu_t gpus[GPUS] = { { 0, { 0 } }, { 1, { 1 } } };
static uvm_va_block_t block;
static bool is_wrong, waits;

static uvm_gpu_t *uvm_gpu_chunk_get_gpu(uvm_gpu_chunk_t *chunk) { return chunk->gpu; }
static uvm_va_block_gpu_state_t *uvm_va_block_gpu_state_get(uvm_va_block_t *of, int id) { return &of->gpus[id]; }
static void uvm_assert_mutex_locked(const void *lock) { is_wrong |= lock != &block.lock || !block.lock.held; }

static void uvm_mmu_chunk_unmap(uvm_gpu_chunk_t *chunk, uvm_tracker_t *tracker)
{
	is_wrong |= !chunk->is_mapped || tracker != &block.tracker;
	chunk->is_mapped = false;
}

static void uvm_pmm_gpu_free(uvm_pmm_gpu_t *pmm, uvm_gpu_chunk_t *chunk, uvm_tracker_t *tracker)
{
	is_wrong |= pmm != &chunk->gpu->pmm || chunk->is_free || (tracker && tracker != &block.tracker);
	chunk->is_free = true;
	waits = tracker;
}

static uvm_va_block_region_t uvm_rust_place_of(const uvm_gpu_chunk_t *chunk)
{
	return (uvm_va_block_region_t){ chunk->place, chunk->place + 1 };
}

#include "anew.h"

static int number, failed;

static void say(const char *name, bool holds)
{
	failed |= !holds;
	printf("%s %d - anew: %s\n", holds ? "ok" : "not ok", ++number, name);
}

/* Frees a chunk of the second GPU for page 2; what is there is @there. Returns whether nothing else came of it. */
static bool frees(uvm_gpu_chunk_t *chunk, uvm_gpu_chunk_t *there)
{
	static uvm_gpu_chunk_t others[GPUS][PAGES];

	*chunk = (uvm_gpu_chunk_t){ .gpu = &gpus[1], .place = 2, .is_mapped = chunk == there };
	is_wrong = false;
	block.lock.held = true;
	for (int gpu = 0; gpu < GPUS; gpu++)
		for (int page = 0; page < PAGES; page++)
			block.gpus[gpu].chunks[page] = &others[gpu][page];
	block.gpus[1].chunks[2] = there;
	uvm_rust_free_unused(&block, chunk);
	for (int gpu = 0; gpu < GPUS; gpu++)
		for (int page = 0; page < PAGES; page++)
			is_wrong |= (gpu != 1 || page != 2) && block.gpus[gpu].chunks[page] != &others[gpu][page];
	return !is_wrong && chunk->is_free;
}

int main(void)
{
	uvm_gpu_chunk_t chunk, next = { .gpu = &gpus[1], .place = 2, .is_mapped = true };

	printf("TAP version 13\n");
	say("its va_block has it no more, nor a mapping of it", frees(&chunk, &chunk) && !block.gpus[1].chunks[2] && !chunk.is_mapped);
	say("who gets it waits for what the GPU has still to do there", waits);
	say("one that the va_block has given up is freed", frees(&chunk, NULL) && !block.gpus[1].chunks[2] && waits);
	say("and one that came after it stays", frees(&chunk, &next) && block.gpus[1].chunks[2] == &next && next.is_mapped);
	uvm_rust_fix_anew = false;
	say("without the mend the va_block has it still", frees(&chunk, &chunk) && block.gpus[1].chunks[2] == &chunk && !waits);
	printf("1..%d\n", number);
	return failed;
}
