/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Of upstream and of Linux, what uvm_rust_discard.c uses beyond shim.h: as little of each type as
 * it touches.
 */
#ifndef SEAM_DISCARD_H
#define SEAM_DISCARD_H

#include <stdbool.h>
#include <stdint.h>

#define UVM_RUST_FLASH_H
#define TEST_GPUS	4

typedef struct { uint64_t words[8]; } uvm_page_mask_t;
#define SEAM_GPU_STATE_FIELDS	uvm_page_mask_t resident; bool pte_is_2m;
typedef struct { bool held; } uvm_mutex_t;
/* Bit n for the processor with the value n; 0 is the CPU. */
typedef struct { uint32_t bits; } uvm_processor_mask_t;
struct test_gpu_state;
struct test_gpu;

#define SEAM_VA_SPACE_FIELDS					\
	int lock;						\
	uvm_processor_mask_t registered_gpus;			\
	struct test_gpu *gpus[1 + TEST_GPUS];
#define SEAM_VA_BLOCK_FIELDS					\
	uvm_mutex_t lock;					\
	struct { uvm_page_mask_t resident; } cpu;		\
	uvm_processor_mask_t mapped;				\
	struct test_gpu_state *states[1 + TEST_GPUS];		\
	int tracker;						\
	struct uvm_rust_block *uvm_rust;

#include "shim.h"

/* --- Linux ----------------------------------------------------------------------- */

#define PAGE_SIZE		4096
#define BUILD_BUG_ON(wrong)	_Static_assert(!(wrong), #wrong)
int num_possible_nodes(void);
#define list_for_each_entry(at, list, member)						\
	for ((at) = container_of((list)->next, __typeof__(*(at)), member);		\
	     &(at)->member != (list);							\
	     (at) = container_of((at)->member.next, __typeof__(*(at)), member))

/* --- upstream -------------------------------------------------------------------- */

void uvm_mutex_lock(uvm_mutex_t *lock);
bool uvm_down_read_trylock(int *lock);
void uvm_up_read(int *lock);
extern struct test_global { struct { int lock; } pm; } g_uvm_global;
void uvm_mutex_unlock(uvm_mutex_t *lock);

enum { UVM_VA_RANGE_TYPE_MANAGED = 1 };
typedef struct uvm_va_range_struct {
	uvm_va_space_t *va_space;
	int type;
	struct { NvU64 start, end; } node;
	struct uvm_va_range_struct *next;
} uvm_va_range_t;
uvm_va_range_t *uvm_va_space_iter_first(uvm_va_space_t *va_space, NvU64 start, NvU64 end);
typedef struct { uvm_gpu_id_t preferred_location; bool duplicates; } uvm_va_policy_t;
#define uvm_rust_is_read_duplicate(policy, va_space) ((policy)->duplicates)
uvm_va_policy_t *uvm_va_range_get_policy(uvm_va_range_t *range);
size_t uvm_va_range_block_index(uvm_va_range_t *range, NvU64 address);
uvm_va_block_t *uvm_va_range_block(uvm_va_range_t *range, size_t index);

struct test_gpu {
	uvm_gpu_t gpu;
	bool evicts;
};

#define UVM_ID_IS_VALID(id)	((id).val <= TEST_GPUS)
#define uvm_gpu_id_next(id)	((uvm_gpu_id_t){ (id).val + 1 })
uvm_gpu_id_t uvm_processor_mask_find_next_id(const uvm_processor_mask_t *mask, uvm_gpu_id_t from);
#define for_each_gpu_id_in_mask(id, mask)							\
	for ((id) = uvm_processor_mask_find_next_id(mask, uvm_gpu_id_from_index(0));		\
	     UVM_ID_IS_VALID(id);								\
	     (id) = uvm_processor_mask_find_next_id(mask, uvm_gpu_id_next(id)))
#define uvm_va_block_size(block) ((block)->end - (block)->start + 1)

typedef struct { int entries; } uvm_tracker_t;
#define UVM_TRACKER_INIT() { 0 }
NV_STATUS uvm_tracker_wait_deinit(uvm_tracker_t *tracker);
/* The other one is a block's, which is a number here. */
NV_STATUS uvm_tracker_add_tracker_safe(uvm_tracker_t *tracker, const int *work);

typedef int uvm_perf_event_t;
typedef union { struct { uvm_va_block_t *block; } block_destroy; } uvm_perf_event_data_t;
NV_STATUS uvm_global_get_status(void);
#define uvm_assert_mutex_locked(lock) UVM_ASSERT((lock)->held)

uvm_gpu_chunk_t *uvm_va_block_lookup_gpu_chunk(uvm_va_block_t *block, uvm_gpu_t *gpu, NvU64 address);

/* --- the seam -------------------------------------------------------------------------- */

static inline const struct uvm_rust_mask *uvm_rust_mask(const uvm_page_mask_t *mask)
{
	return (const struct uvm_rust_mask *)mask;
}
#define uvm_rust_memory(id)	(UVM_ID_IS_CPU(id) ? UVM_RUST_MEMORY_HOST : UVM_RUST_MEMORY_GPU(uvm_id_gpu_index(id)))
void uvm_rust_on_any_node(uvm_va_block_context_t *context);
bool uvm_rust_gpu_supports_eviction(uvm_gpu_t *gpu);
bool uvm_rust_has_non_faultable(uvm_va_space_t *va_space);
void uvm_rust_resident_anywhere(uvm_va_block_t *block, uvm_page_mask_t *out);
#include "uvm_rust_on_events.h"
void uvm_rust_on_block_destroy(UVM_RUST_EVENT_SPACE uvm_perf_event_t event_id, uvm_perf_event_data_t *data);

struct uvm_rust_flash_block;
void uvm_rust_flash_block_gone(uvm_va_block_t *block);

#endif
