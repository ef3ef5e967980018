// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The walk of a discard over the va_blocks of a range: a kernel without preemption has only
 * cond_resched() to let others run, and only a look at the signals to end.
 */
#include "shim.h"

#include "uvm_rust_walk.h"

#define BLOCK	(2ull << 20)
#define BLOCKS	3000

enum kind { EMPTY, PINNED, PLAIN };

static enum kind kinds[BLOCKS];
static uvm_va_block_t blocks[BLOCKS];
static uvm_va_range_t range;

/* Blocks looked at since others could run, and the most of them. */
static int busy, busiest;
static int looked_at, visited, dies_after, fails_at;

static void reset(enum kind kind)
{
	size_t i;

	for (i = 0; i < BLOCKS; i++) {
		kinds[i] = kind;
		blocks[i] = (uvm_va_block_t){ .start = i * BLOCK, .end = (i + 1) * BLOCK - 1 };
	}
	busy = busiest = looked_at = visited = 0;
	dies_after = fails_at = -1;
}

void cond_resched(void)
{
	busy = 0;
}

bool fatal_signal_pending(void *task)
{
	return dies_after >= 0 && looked_at > dies_after;
}

size_t uvm_va_range_block_index(uvm_va_range_t *of, NvU64 address)
{
	return address / BLOCK;
}

uvm_va_block_t *uvm_va_range_block(uvm_va_range_t *of, size_t index)
{
	looked_at++;
	if (++busy > busiest)
		busiest = busy;
	return kinds[index] == EMPTY ? NULL : &blocks[index];
}

bool uvm_range_group_all_migratable(uvm_va_space_t *va_space, NvU64 start, NvU64 end)
{
	return kinds[start / BLOCK] != PINNED;
}

uvm_va_block_region_t uvm_va_block_region_from_start_end(uvm_va_block_t *block, NvU64 start, NvU64 end)
{
	return (uvm_va_block_region_t){ (start - block->start) >> 12, ((end - block->start) >> 12) + 1 };
}

static uvm_va_block_region_t first_region, last_region;

static NV_STATUS visit(uvm_va_block_t *block, uvm_va_block_region_t region, void *data)
{
	if (!visited)
		first_region = region;
	last_region = region;
	return visited++ == fails_at ? NV_ERR_NO_MEMORY : NV_OK;
}

static int number, failed;

static void say(const char *name, bool holds)
{
	failed |= !holds;
	printf("%s %d - seam: %s # %d blocks, %d at a time\n", holds ? "ok" : "not ok", number++, name, looked_at,
	       busiest);
}

static NV_STATUS walk(__u64 *skipped)
{
	*skipped = 0;
	return uvm_rust_walk_blocks(&range, 0, BLOCKS * BLOCK - 1, skipped, visit, NULL);
}

/*
 * As many ranges as a batch may have, each of one page of one block: every call must let others
 * run, as the caller, which is Rust, does nothing between them.
 */
static bool small_ranges_let_others_run(void)
{
	bool holds = true;
	__u64 skipped = 0;
	enum kind kind;
	int i;

	for (kind = EMPTY; kind <= PLAIN; kind++) {
		reset(kind);
		for (i = 0; i < BLOCKS; i++)
			holds &= uvm_rust_walk_blocks(&range, 0x5000, 0x5fff, &skipped, visit, NULL) == NV_OK;
		holds &= looked_at == BLOCKS && busiest == 1;
	}
	return holds && visited == BLOCKS && skipped == 2 * BLOCKS;
}

int walk_tests(int first)
{
	NV_STATUS status;
	__u64 skipped;
	size_t i;

	number = first;

	/* Any of them alone, and in turns. */
	reset(EMPTY);
	status = walk(&skipped);
	say("a walk over empty blocks lets others run", status == NV_OK && busiest == 1 && skipped == BLOCKS);

	reset(PINNED);
	status = walk(&skipped);
	say("a walk over blocks that may not migrate lets others run",
	    status == NV_OK && busiest == 1 && skipped == BLOCKS);

	reset(PLAIN);
	for (i = 0; i < BLOCKS; i++)
		kinds[i] = i % 3;
	status = walk(&skipped);
	say("a walk over all kinds of blocks lets others run and visits what it should",
	    status == NV_OK && busiest == 1 && visited == BLOCKS / 3 && skipped == BLOCKS - visited);

	say("a walk of one block, again and again, lets others run each time", small_ranges_let_others_run());

	/* A signal that kills, an error, and a part at either end. */
	reset(EMPTY);
	dies_after = 10;
	status = walk(&skipped);
	{
		bool killed = status == NV_ERR_SIGNAL_PENDING && looked_at < 13;

		reset(PLAIN);
		fails_at = 4;
		status = walk(&skipped);
		killed &= status == NV_ERR_NO_MEMORY && visited == 5;
		reset(PLAIN);
		status = uvm_rust_walk_blocks(&range, 0x3000, 2 * BLOCK + 0x4fff, &skipped, visit, NULL);
		killed &= status == NV_OK && visited == 3 && first_region.first == 3 && first_region.outer == 512 &&
			  last_region.first == 0 && last_region.outer == 5;
		say("a walk ends when the thread is to die, where a visit fails, and at its ends", killed);
	}
	return failed;
}
