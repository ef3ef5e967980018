// SPDX-License-Identifier: GPL-2.0-only OR MIT
// A CPU fault on ordinary memory within a range of UVM's has no va_block, as where its mm has gone: see uvm_rust_in_range.h.
@@
typedef uvm_va_space_t;
identifier space, vma, vmf, hmm;
@@
uvm_va_space_cpu_fault(uvm_va_space_t *space, ..., struct vm_fault *vmf, bool hmm)
{
<...
- space->va_space_mm.mm == vma->vm_mm
+ uvm_rust_has_block(space, vmf)
...>
}
