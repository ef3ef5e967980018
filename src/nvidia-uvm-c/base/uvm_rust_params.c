// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Module parameters, where the kernel wants them defined.
 */
#include <linux/module.h>

#include "uvm_rust_params_ffi.h"

#define DEFINE_PARAM(type, name, value, mode, text)	\
	UVM_RUST_TYPE_##type name = value;		\
	module_param(name, type, mode);			\
	MODULE_PARM_DESC(name, text);

UVM_RUST_PARAMS_ALWAYS(DEFINE_PARAM)
#ifndef UVM_RUST_NATIVE
UVM_RUST_PARAMS_HOOKED(DEFINE_PARAM)
#endif
