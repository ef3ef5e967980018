/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * nv_uvm_interface.h, NVIDIA's header of what RM offers UVM, includes a file of
 * this name when UVM's build includes it. Standing in for it, this one spares
 * vgpu.ko UVM's own headers and the configuration tests they need.
 */
#ifndef VGPU_SHIM_UVM_LINUX_H
#define VGPU_SHIM_UVM_LINUX_H

#include <linux/pci.h>
#include <linux/types.h>

#endif
