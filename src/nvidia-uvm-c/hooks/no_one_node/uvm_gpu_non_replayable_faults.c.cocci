// SPDX-License-Identifier: GPL-2.0-only OR MIT
// A page that cannot be moved is used in place, as upstream does for one of which it knows that. 535 has no way to.
@@
expression of;
idexpression status;
symbol fault_entry, hmm_migratable;
@@
service_fault(...)
{
<...
+ hmm_migratable = hmm_migratable && uvm_rust_copy_moves(uvm_rust_parent_of(of), fault_entry);
  status = service_fault_once(of, fault_entry, hmm_migratable);
...>
}
