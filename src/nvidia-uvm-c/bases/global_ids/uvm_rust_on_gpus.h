/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * How a GPU is found, where a VA space's GPUs have numbers of their own. Only for uvm_rust_compat.h.
 */
/* A GPU that is registered in the VA space. */
static inline uvm_gpu_t *uvm_rust_gpu(uvm_va_space_t *va_space, uvm_gpu_id_t id)
{
	return uvm_va_space_get_gpu(va_space, id);
}

/* Memory of the host is asked for on any of its NUMA nodes. */
#define UVM_CPU_CHUNK_ALLOC_FLAGS_STRICT	0
