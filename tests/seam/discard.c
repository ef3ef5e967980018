// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * What the walk of a discard asks of C (uvm_rust_discard.c): that each operation is the one that
 * Rust takes it for. Upstream and Rust are made up here.
 */
#include <stdlib.h>
#include <string.h>

#include "discard.h"

int uvm_enable_builtin_tests;

/* --- what was done, in order ------------------------------------------------------------ */

static char did[1024];

static void note(const char *what)
{
	if (strlen(did) + strlen(what) + 2 < sizeof(did)) {
		strcat(did, what);
		strcat(did, " ");
	}
}

/* --- upstream, and Linux ----------------------------------------------------------------- */

static struct uvm_va_space_struct space;
static uvm_va_block_t block;
static uvm_va_block_gpu_state_t states[1 + TEST_GPUS];
static struct test_gpu gpus[1 + TEST_GPUS];
static uvm_gpu_chunk_t chunks[1 + TEST_GPUS];
static int nodes;
static NV_STATUS fails;
static const char *failing;

static NV_STATUS may_fail(const char *what)
{
	note(what);
	return failing && !strcmp(failing, what) ? fails : NV_OK;
}

int num_possible_nodes(void) { return nodes; }

bool uvm_down_read_trylock(int *lock) { return true; }
void uvm_up_read(int *lock) { }
struct test_global g_uvm_global;

void uvm_mutex_lock(uvm_mutex_t *lock) { note("lock"); lock->held = true; }
void uvm_mutex_unlock(uvm_mutex_t *lock) { note("unlock"); lock->held = false; }

static uvm_va_range_t ranges[2] = {
	{ &space, UVM_VA_RANGE_TYPE_MANAGED, { 0x200000, 0x3fffff }, &ranges[1] },
	{ &space, UVM_VA_RANGE_TYPE_MANAGED + 1, { 0x400000, 0x5fffff }, NULL },
};

uvm_va_range_t *uvm_va_space_iter_first(uvm_va_space_t *va_space, NvU64 start, NvU64 end)
{
	uvm_va_range_t *range;

	note("first");
	for (range = ranges; range; range = range->next)
		if (start <= range->node.end && end >= range->node.start)
			break;
	return range;
}

/* The host, the first GPU, ..., or nothing. */
static NvU32 prefers;

uvm_va_policy_t *uvm_va_range_get_policy(uvm_va_range_t *range)
{
	static uvm_va_policy_t policy;

	if (range->type != UVM_VA_RANGE_TYPE_MANAGED)
		note("wrong");
	policy = (uvm_va_policy_t){ { prefers }, !prefers };
	return &policy;
}

size_t uvm_va_range_block_index(uvm_va_range_t *range, NvU64 address) { return address / UVM_CHUNK_SIZE_MAX; }
uvm_va_block_t *uvm_va_range_block(uvm_va_range_t *range, size_t index) { return index == 1 ? &block : NULL; }

uvm_gpu_id_t uvm_gpu_id_from_index(NvU32 index)
{
	if (index >= TEST_GPUS)
		note("wrong");
	return (uvm_gpu_id_t){ index + 1 };
}

uvm_gpu_id_t uvm_processor_mask_find_next_id(const uvm_processor_mask_t *mask, uvm_gpu_id_t from)
{
	while (UVM_ID_IS_VALID(from) && !(mask->bits >> from.val & 1))
		from.val++;
	return from;
}

uvm_va_block_gpu_state_t *uvm_va_block_gpu_state_get(uvm_va_block_t *of, uvm_gpu_id_t id)
{
	return of->states[id.val];
}

uvm_gpu_t *uvm_rust_gpu(uvm_va_space_t *va_space, uvm_gpu_id_t id)
{
	return &va_space->gpus[id.val]->gpu;
}

NV_STATUS uvm_tracker_wait_deinit(uvm_tracker_t *tracker)
{
	note(tracker->entries ? "wait-for-work" : "wait");
	return NV_OK;
}

NV_STATUS uvm_tracker_add_tracker_safe(uvm_tracker_t *tracker, const int *work)
{
	tracker->entries += *work;
	return may_fail("track");
}

/* Not asked for here. */
uvm_gpu_chunk_t *uvm_va_block_lookup_gpu_chunk(uvm_va_block_t *of, uvm_gpu_t *gpu, NvU64 address) { abort(); }

/* --- the seam's other files ---------------------------------------------------------------- */

bool uvm_rust_gpu_supports_eviction(uvm_gpu_t *gpu) { return container_of(gpu, struct test_gpu, gpu)->evicts; }

void uvm_rust_resident_anywhere(uvm_va_block_t *of, uvm_page_mask_t *out)
{
	*out = (uvm_page_mask_t){ { 11 } };
}

void uvm_rust_flash_block_gone(uvm_va_block_t *of) { note("flash-gone"); }

/* --- Rust ------------------------------------------------------------------------------------ */

struct uvm_rust_block {
	int nothing;
};
static struct uvm_rust_block state;

/* No state is none: of that there is nothing to tell. */
void uvm_rust_block_destroy(struct uvm_rust_block *gone)
{
	if (gone)
		note(gone == &state ? "destroy" : "wrong");
}

/* What is counted of the block's memory is its VA space's. */
uvm_va_space_t *uvm_va_block_get_va_space(uvm_va_block_t *block) { return block->va_space; }

void uvm_rust_block_freed(struct uvm_rust_space *in, __u64 address)
{
	note(in == space.uvm_rust && address == block.start ? "freed" : "wrong");
}

/* What a call is asked for. */
static struct uvm_seam_space *const of = (struct uvm_seam_space *)&space;
static struct mm_struct *const the_mm = (struct mm_struct *)&did;
static void (*run)(struct uvm_seam_tracker *tracker);

__u32 uvm_rust_discard_range(struct uvm_seam_space *in, struct mm_struct *mm, struct uvm_seam_tracker *tracker,
			     __u64 base, __u64 length, _Bool eager, struct uvm_seam_discarded *counts)
{
	if (in != of || mm != the_mm || base != 1 || length != 2 || !eager || uvm_rust_discard_granule != 64 || !counts)
		note("wrong");
	run(tracker);
	return NV_ERR_INVALID_DEVICE;
}

/* --- tests ------------------------------------------------------------------------------------ */

static int tests, failed;

static void say(const char *name, bool holds)
{
	failed |= !holds;
	printf("%s %d - seam of discard: %s # %s\n", holds ? "ok" : "not ok", ++tests, name, did);
}

static void begin(void)
{
	NvU32 i;

	did[0] = '\0';
	failing = NULL;
	nodes = 1;
	space = (struct uvm_va_space_struct){ 0 };
	block = (uvm_va_block_t){ .va_space = &space, .start = 0x200000, .end = 0x3fffff, .cpu.resident.words = { 3 } };
	for (i = 1; i <= TEST_GPUS; i++) {
		gpus[i] = (struct test_gpu){ .evicts = true };
		states[i] = (uvm_va_block_gpu_state_t){ .resident.words = { 10 + i }, .chunks = { &chunks[i] } };
		space.registered_gpus.bits |= 1u << i;
		space.gpus[i] = &gpus[i];
		block.states[i] = &states[i];
	}
}

/* Asks for what @what asks for, with a call of which Rust holds what is said. */
static bool asked(void (*what)(struct uvm_seam_tracker *tracker))
{
	struct uvm_seam_discarded counts = { 0 };

	run = what;
	return uvm_seam_discard(of, the_mm, 1, 2, true, &counts) == NV_ERR_INVALID_DEVICE &&
	       !strstr(did, "wrong");
}

static bool holds;

/* What is chosen: where it is, and the block at @at. */
static uvm_va_block_t *chosen(NvU64 at, struct uvm_rust_range *range)
{
	uvm_va_range_t *found = uvm_seam_range(of, at, at, range);

	return found ? uvm_seam_range_block(found, at) : NULL;
}

static void whole_call(struct uvm_seam_tracker *tracker)
{
	struct uvm_rust_range range;
	struct uvm_rust_span span;

	/* The one that holds the address, the next to it, and no more. */
	holds = chosen(0x201000, &range) == &block && range.first == 0x200000 && range.last == 0x3fffff &&
		 range.managed && range.preferred == UVM_RUST_MEMORY_HOST && range.read_duplicated;
	prefers = 2;
	holds &= chosen(0x201000, &range) && range.preferred == UVM_RUST_MEMORY_GPU(1) && !range.read_duplicated;
	prefers = TEST_GPUS + 1;
	holds &= chosen(0x201000, &range) && range.preferred == UVM_RUST_MEMORY_NONE;
	prefers = 0;
	uvm_seam_block_span(&block, &span);
	holds &= span.first == 0x200000 && span.last == 0x3fffff;
	uvm_seam_block_lock(&block);
	block.tracker = 1;
	holds &= uvm_seam_tracker_add(tracker, &block) == NV_OK;
	uvm_seam_block_unlock(&block);
	holds &= !chosen(0x400000, &range) && range.first == 0x400000 && !range.managed &&
		 range.preferred == UVM_RUST_MEMORY_NONE && !range.read_duplicated;
	holds &= !uvm_seam_range(of, 0x600000, 0x600000, &range);
	holds &= uvm_seam_tracker_end(tracker) == NV_OK;
}

static void memories(struct uvm_seam_tracker *tracker)
{
	struct uvm_rust_held held;
	__u32 from;

	holds = uvm_seam_discard_held(of, &block, UVM_RUST_MEMORY_HOST, &held) && held.memory == UVM_RUST_MEMORY_HOST &&
		held.one_place && !held.root_chunk && held.resident.words[0] == 3;
	nodes = 2;
	holds &= uvm_seam_discard_held(of, &block, UVM_RUST_MEMORY_HOST, &held) && !held.one_place;
	/* The first GPU is not registered, the second has nothing in the block. */
	space.registered_gpus.bits &= ~(1u << 1);
	block.states[2] = NULL;
	for (from = UVM_RUST_MEMORY_GPU(0); from <= UVM_RUST_MEMORY_GPU(2); from++)
		holds &= uvm_seam_discard_held(of, &block, from, &held) && held.memory == UVM_RUST_MEMORY_GPU(2) &&
			 held.one_place && held.root_chunk && held.resident.words[0] == 13;
	states[4].chunks[0] = NULL;
	holds &= uvm_seam_discard_held(of, &block, UVM_RUST_MEMORY_GPU(3), &held) && held.memory == UVM_RUST_MEMORY_GPU(3) &&
		 !held.root_chunk;
	states[4].chunks[0] = &chunks[4];
	gpus[4].evicts = false;
	holds &= uvm_seam_discard_held(of, &block, UVM_RUST_MEMORY_GPU(3), &held) && !held.root_chunk;
	block.end -= PAGE_SIZE;
	holds &= uvm_seam_discard_held(of, &block, UVM_RUST_MEMORY_GPU(2), &held) && !held.root_chunk;
	holds &= !uvm_seam_discard_held(of, &block, UVM_RUST_MEMORY_GPU(4), &held) &&
		 !uvm_seam_discard_held(of, &block, 0xffff, &held);
}

static void fails_to(struct uvm_seam_tracker *tracker)
{
	fails = NV_ERR_NO_MEMORY;
	failing = "track";
	holds = uvm_seam_tracker_add(tracker, &block) == NV_ERR_NO_MEMORY;
}

static void facts(struct uvm_seam_tracker *tracker)
{
	struct uvm_rust_mask resident;
	struct uvm_rust_block **place = uvm_seam_block_lock(&block);

	states[2].pte_is_2m = true;
	block.mapped.bits = 1u << 1 | 1;
	holds = !uvm_seam_discard_facts(&block, &resident) && resident.words[0] == 11;
	block.mapped.bits = 1u << 1 | 1u << 2;
	holds &= uvm_seam_discard_facts(&block, &resident);
	holds &= !*place;
	*place = &state;
	holds &= block.uvm_rust == &state;
}

int main(void)
{
	uvm_perf_event_data_t event = { .block_destroy.block = &block };

	printf("TAP version 13\n1..5\n");
	begin();
	say("a call takes and lets go of what it should, in order", asked(whole_call) && holds &&
	    !strcmp(did, "first first first lock track unlock first first wait-for-work "));
	begin();
	say("it finds the memories that a block has pages in", asked(memories) && holds);
	begin();
	say("it says what failed", asked(fails_to) && holds);
	begin();
	say("it says what a block is", asked(facts) && holds);

	begin();
	block.uvm_rust = &state;
	uvm_rust_on_block_destroy(0, &event);
	uvm_rust_on_block_destroy(0, &event);
	say("the state dies with its block, and once", !block.uvm_rust && !strcmp(did, "freed destroy flash-gone freed flash-gone "));
	return failed;
}
