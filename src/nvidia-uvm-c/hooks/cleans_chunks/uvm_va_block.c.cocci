// SPDX-License-Identifier: GPL-2.0-only OR MIT
// A copy to a GPU that fails takes the va_block's chunks back that came for it, and not those that earlier moves of the same
// operation have filled (uvm_rust_failed_copy.h).
@ failed_copy @
typedef uvm_va_block_t, uvm_gpu_id_t;
identifier block, id, pinned;
statement S;
@@
block_cleanup_temp_pinned_gpu_chunks(uvm_va_block_t *block, uvm_gpu_id_t id)
{
<...
+ if (uvm_rust_chunk_has_data(block, id, pinned))
+ 	continue;
if (pinned && pinned->state == UVM_PMM_GPU_CHUNK_STATE_TEMP_PINNED) S
...>
}
