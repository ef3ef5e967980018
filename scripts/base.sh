#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# What is so in a tree of NVIDIA's driver and matters to the seam: each fact that is, one word a line, the
# newest first. It is asked of the source, as branches get each other's changes in an order that version
# numbers do not show. src/nvidia-uvm-c/bases/FACT has the headers, and hooks/FACT the hooks, of trees where
# it is so; where several of those have one, the first counts.
#
#   base.sh TREE     TREE: the folder with nvidia-uvm
set -eu
uvm=$1/nvidia-uvm
[ -r "$uvm/uvm_va_block.c" ] || { echo "base.sh: no $uvm/uvm_va_block.c: this is no tree of NVIDIA's driver" >&2; exit 1; }

# fact WORD COMMAND...: it is so if the command says so.
fact() {
	word=$1
	shift
	if "$@"; then echo "$word"; fi
}

has() { grep -qwE -e "$2" "$uvm/$1"; }
lacks() { ! has "$@"; }
# body FUNCTION FILE: from the line that it is defined in to its end.
body() { awk -v name="$1" '$0 ~ "^static .*[ *]" name "\\(" { held = ""; on = 1 } on { held = held $0 "\n" } on && /;$/ && held !~ /\{/ { on = 0 } on && /^}/ { printf "%s", held; exit }' "$uvm/$2"; }
has_in() { body "$1" "$2" | grep -qw -e "$3"; }
# There is such a function, and it has no such word.
lacks_in() { [ -n "$(body "$1" "$2")" ] && ! has_in "$@"; }
# follows FILE REGEX NEXT: is there a line like this, and is the next one like that?
follows() { awk -v a="$2" -v b="$3" 'was && $0 ~ b { found = 1 } { was = $0 ~ a } END { exit !found }' "$uvm/$1"; }

# has_member FILE STRUCTURE WORD: has that structure a line with the word?
has_member() { awk -v a="^struct $2\$" -v w="$3" '$0 ~ a { on = 1 } on && index($0, w) { found = 1 } /^}/ { on = 0 } END { exit !found }' "$uvm/$1"; }

# 595: Maxwell, Pascal and Volta are gone.
fact all_gpus_fault lacks uvm_gpu.h replayable_faults_supported
# 590: the lists of root chunks are an array.
fact alloc_list has uvm_pmm_gpu.h UVM_PMM_ALLOC_LIST_USED
# The same: a split does not tell a chunk its new place in a va_block, nor does mremap().
fact stale_index lacks_in block_copy_split_gpu_chunks uvm_va_block.c va_block_page_index
# 590: which GPUs only ever reach a range where it is, its managed part says.
fact lite_of_managed has_member uvm_va_range.h uvm_va_range_managed_struct uvm_lite_gpus
# 580: it discards by itself, and tells a perf event's callback the VA space.
fact native_discard has uvm_va_range.h uvm_va_range_discard
fact event_space has uvm_perf_events.h 'uvm_perf_event_callback_t\)\(uvm_va_space_t \*va_space,.*'
# The same: a CPU fault that is given up early says that it moved nothing.
fact did_migrate has uvm_va_space.c 'cpu_fault.did_migrate = false'
# 570.190, 580: a CPU's pages are populated by a mask that may be none; in the first two of 580 a word still says whether
# a copy goes by way of the host.
populates_const() { follows uvm_va_block.c '^static NV_STATUS block_populate_pages_cpu' 'const uvm_page_mask_t'; }
populates_staged() { populates_const && has_in block_populate_pages_cpu uvm_va_block.c 'bool staged'; }
fact populate_staged populates_staged
fact populate_const populates_const
# The same: it gives up the new pages of a migration that fails without a look at the old ones; and a page of
# device memory that Linux lets go pins its chunk at once, which is freed later.
fact clean_up_by_dst lacks_in clean_up_non_migrating_pages uvm_hmm.c src_pfns
fact lazy_pins has_in devmem_page_free uvm_pmm_gpu.c chunk_pin
# 570: a migration of ordinary memory that fails gives up the new pages, when a CPU faults or for UVM_MIGRATE.
fact hmm_cleans_up lacks uvm_hmm.c 'return uvm_va_block_service_copy\(processor_id, UVM_ID_CPU'
# 570.133: one fault buffer, of one type.
fact fault_buffer has uvm_forward_decl.h uvm_replayable_fault_buffer_t
# 570.124: a page of device memory leads to its chunk.
fact chunk_in_page lacks uvm_pmm_gpu.c devmem_page_to_chunk_locked
# 570: GPU memory has two types, of programs and of the kernel.
fact two_types lacks uvm_pmm_gpu.h uvm_pmm_gpu_memory_type_is_user
# 570: a copy to a GPU that fails frees chunks of its va_block.
fact cleans_chunks has uvm_va_block.c block_cleanup_temp_pinned_gpu_chunks
# 570: migrations note which links they use.
fact nvlink_errors has uvm_gpu.h gpus_to_check_for_nvlink_errors
# 565: managed ranges have a type of their own.
fact managed_ranges has uvm_va_range.h uvm_va_range_to_managed
# 560: the fault loop serves a parent GPU.
fact parent_faults has uvm_gpu_replayable_faults.h uvm_parent_gpu_service_replayable_faults
# 545, 550 until 550.142, and 555 to 565: a copy of a stray page of device memory does not say whether it could.
fact copy_is_void has uvm_hmm.c '(static void |uvm_)hmm_copy_devmem_page'
# Of what is so until a release, the oldest first.
# 535 until 535.98: a prefetch hint is a va_block's, as no other memory has one.
fact one_hint lacks uvm_perf_prefetch.h uvm_perf_prefetch_get_hint_va_block
# 535: the host's NUMA nodes are one.
fact one_node lacks uvm_processors.h for_each_possible_uvm_node
# 535 until 535.113.01, and 545: what ATS has to invalidate is named for writes, and the kind of an access has a wrong type.
fact write_batch lacks uvm_gpu.h tlb_batch_pending
# 535: whatever CPU fault there is on ordinary memory is of the VA space's mm.
fact one_mm lacks uvm_hmm.c uvm_hmm_remote_cpu_fault
# 535 and 545: a GPU has a number in a VA space, and another outside.
fact global_ids has uvm_global.h 'uvm_gpu_get\(uvm_global_gpu_id_t.*'
# Until 550.40.07: a fault buffer is a GPU's by name, and which GPUs cannot fault is not kept.
fact gpu_faults lacks uvm_gpu_replayable_faults.h uvm_parent_gpu_fault_buffer_init
# The same: functions that read of a va_block have no context.
fact plain_block has uvm_va_block.h 'uvm_va_block_read_to_cpu\(uvm_va_block_t \*va_block, uvm_mem_t.*'
# Until 550.54.15: UVM_MIGRATE works with a va_block context.
fact plain_moves lacks uvm_global.h uvm_service_block_context_alloc
# What the seam is written for.
echo 550
