// SPDX-License-Identifier: GPL-2.0-only OR MIT
// The system goes to sleep once no call is under way: see uvm_rust_calls.h.
@@
@@
uvm_suspend(...)
{
<...
- uvm_down_write(&g_uvm_global.pm.lock);
+ uvm_rust_down_write_pm();
...>
}
