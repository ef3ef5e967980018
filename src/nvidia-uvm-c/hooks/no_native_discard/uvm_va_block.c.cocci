// SPDX-License-Identifier: GPL-2.0-only OR MIT
// A chunk that is there already was zeroed when it came, which after a discard is
// not enough: let us say what is missing.
@ chunk_there @
typedef uvm_va_block_t, uvm_va_block_retry_t, uvm_gpu_t, uvm_va_block_region_t;
identifier block, retry, gpu, idx, region, st;
@@
block_populate_gpu_chunk(uvm_va_block_t *block, uvm_va_block_retry_t *retry, uvm_gpu_t *gpu, size_t idx, uvm_va_block_region_t region)
{
<...
if (st->chunks[idx])
-    return NV_OK;
+    return uvm_rust_prepare_gpu_chunk(block, gpu, st->chunks[idx], region);
...>
}
