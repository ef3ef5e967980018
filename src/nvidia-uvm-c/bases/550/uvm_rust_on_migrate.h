/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What UVM_MIGRATE works with. Only for uvm_rust_migrate.h.
 */
/*
 * A context for UVM_MIGRATE, which has nothing to say about prefetching, thrashing and
 * read duplication. Upstream leaves these fields as it finds the memory. With ordinary
 * memory, clear_service_context_masks() reads them for each page that Linux does not let go,
 * and takes what another process left there for a processor's number.
 */
static inline uvm_service_block_context_t *uvm_rust_migrate_context(struct mm_struct *mm)
{
	uvm_service_block_context_t *context = uvm_service_block_context_alloc(mm);

	if (context && uvm_rust_fix_context) {
		context->prefetch_hint.residency = UVM_ID_INVALID;
		context->thrashing_pin_count = 0;
		context->read_duplicate_count = 0;
	}
	return context;
}
#define uvm_service_block_context_alloc uvm_rust_migrate_context
