/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * How a GPU is found. A GPU and its parent share one number space, which has no name of its own. Only for uvm_rust_compat.h.
 */
#define UVM_PARENT_ID_MAX_GPUS		UVM_ID_MAX_GPUS
#define uvm_parent_id_gpu_index(id)	uvm_id_gpu_index(id)
typedef uvm_gpu_id_t uvm_parent_gpu_id_t;

/* A GPU that is registered in the VA space. */
static inline uvm_gpu_t *uvm_rust_gpu(uvm_va_space_t *va_space, uvm_gpu_id_t id)
{
	return uvm_va_space_get_gpu(va_space, id);
}

/* Memory of the host is asked for on any of its NUMA nodes. */
#define UVM_CPU_CHUNK_ALLOC_FLAGS_STRICT	0
