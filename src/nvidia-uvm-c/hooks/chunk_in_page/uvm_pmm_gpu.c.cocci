// SPDX-License-Identifier: GPL-2.0-only OR MIT
// A CPU faults on a page of a GPU's, which leads to its VA space by its chunk's va_block. Another process may free that meanwhile.
@@
identifier vmf, space;
@@
devmem_fault(struct vm_fault *vmf)
{
- uvm_va_space_t *space = uvm_pmm_devmem_page_to_va_space(vmf->page);
+ uvm_va_space_t *space = uvm_rust_va_space_of_fault(vmf->page);
...
}
