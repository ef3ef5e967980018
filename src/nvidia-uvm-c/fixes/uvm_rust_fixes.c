// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* The switches of uvm_rust_fixes.h, which are read while the module is loaded, and stay; and what is too little for a file. */
#include <linux/rwsem.h>

#include "uvm_common.h"

#include "uvm_rust_fixes.h"

#define DEFINE_FIX(name, text)						\
	bool uvm_rust_fix_##name = true;				\
	module_param(uvm_rust_fix_##name, bool, 0444);			\
	MODULE_PARM_DESC(uvm_rust_fix_##name, text " (default 1)");
UVM_RUST_FIXES(DEFINE_FIX)

DECLARE_RWSEM(uvm_rust_calls);
