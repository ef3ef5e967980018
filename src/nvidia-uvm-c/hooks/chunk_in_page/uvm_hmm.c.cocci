// SPDX-License-Identifier: GPL-2.0-only OR MIT
// Who lets a GPU go looks for its VA space's pages, by a page's chunk and that chunk's va_block, while others may free both.
@@
typedef uvm_va_space_t, uvm_gpu_t;
identifier space, gpu, page;
@@
uvm_hmm_unregister_gpu(uvm_va_space_t *space, uvm_gpu_t *gpu, ...)
{
<...
- uvm_pmm_devmem_page_to_va_space(page) == space
+ uvm_rust_page_is_of(gpu, page, space)
...>
}
