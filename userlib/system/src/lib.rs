// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What a machine has for unified memory, for `uvmrun --check` and `uvmtop`.
//!
//! [`Root`] reads /proc and /sys, below any folder, so that tests have machines of their
//! own; [`Gpu`], [`Module`], [`Users`], [`Process`], [`FdInfo`] and [`Limits`] are what is found
//! there.
//! [`Device`] is /dev/nvidia-uvm, which tests replace.

mod cuda;
mod debugfs;
mod device;
mod fdinfo;
mod gpus;
mod limits;
mod module;
mod nvml;
mod root;
mod tools;
mod users;
mod uuid;

pub use cuda::Cuda;
pub use debugfs::{processes, ByCause, ByQueue, Counts, Prefetching, Process};
pub use device::{Descriptor, Device, Linux, NodeError};
pub use fdinfo::{fdinfo, FdInfo};
pub use gpus::{gpus, Debug, Gpu};
pub use limits::{HostMemory, Limits};
pub use module::{Driver, Module, Whose};
pub use nvml::{Nvml, NvmlGpu, NvmlProcess};
pub use root::Root;
pub use tools::{ToolCounts, Tools};
pub use users::{User, Users};
pub use uuid::Uuid;
