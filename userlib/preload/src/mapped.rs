// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Memory that a program maps by itself (`cuMemCreate`, `cuMemMap`). It stays CUDA's: managed memory
//! is where CUDA puts it, and a program has the addresses of a reservation before it says what will
//! be mapped there. That may be memory which no managed memory can stand for: with a handle for other
//! processes, or mapped twice.
//!
//! So a program may be told that devices map nothing. One that can do without takes other memory
//! then, which becomes managed.
//!
//! And where memory becomes managed, a program is told that no other device of the bus may access GPUs' memory:
//! "CUDA Unified Memory is not explicitly supported in combination with GPUDirect RDMA" (GPUDirect RDMA, Changes in
//! CUDA 6.0). Its pages move, so such a device may read what is stale, and what it writes may be lost.

use core::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::config::Config;
use crate::real::{Code, MemProps};
use crate::say::say;

/// `CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED`: whether a device maps memory.
const MAPS: c_int = 102;
/// `CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED`: other devices may access a GPU's memory, by NVIDIA's own calls.
const RDMA: c_int = 116;
/// `CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED`: the same by dma-buf.
const DMA_BUF: c_int = 124;
/// `CUDA_ERROR_OUT_OF_MEMORY`, where a device is full.
const OUT_OF_MEMORY: Code = 2;
/// `CU_MEM_LOCATION_TYPE_DEVICE`: memory of a GPU.
const DEVICE: c_int = 1;

/// What a program is told of a device's attribute, of which CUDA has told `value`.
pub(crate) fn attribute(attribute: c_int, value: c_int) -> c_int {
    let hidden = match attribute {
        MAPS => Config::get().hide_mapping,
        RDMA | DMA_BUF => Config::get().managed_min.is_some(),
        _ => false,
    };
    match hidden {
        true => 0,
        false => value,
    }
}

/// Says, where CUDA has no more memory of a device for the program to map, how it can do without.
pub(crate) fn created(code: Code, props: &MemProps) {
    static SAID: AtomicBool = AtomicBool::new(false);
    let managed = Config::get().managed_min.is_some();
    if code != OUT_OF_MEMORY || props.place.kind != DEVICE || !managed {
        return;
    }
    if !SAID.swap(true, Relaxed) {
        say(
            "CUDA has no memory left for what the program maps by itself (cuMemCreate), \
             which is not managed. PyTorch takes managed memory without expandable_segments in \
             PYTORCH_CUDA_ALLOC_CONF, other programs may with UVMRUST_MAPPING=0; \
             uvmrun --no-mapping sets both",
        );
    }
}
