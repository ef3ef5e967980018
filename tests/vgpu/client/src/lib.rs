// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What a CUDA program would do, on nvidia-uvm.ko and the software GPU.
//!
//! ```no_run
//! use vgpu_client::{Buffer, Kernel, Op, Process};
//! # fn main() -> vgpu_client::Result<()> {
//! let process = Process::new()?;
//! let gpu = process.gpu(0)?;
//! let data = Buffer::<u64>::managed(&process, 1 << 20)?;
//! data.fill(|i| i as u64);
//! let add = Op::atomic_add(&data).pattern(1, 0).warps(64);
//! gpu.launch(&Kernel::new().op(add))?.wait()?.ok()?;
//! assert_eq!(data.get(7), 8);
//! # Ok(())
//! # }
//! ```
//!
//! - [`Process`]: an address space of nvidia-uvm.ko; its calls are UVM's.
//! - [`Gpu`]: a software GPU registered with it, with its address space and a
//!   channel, on which [`Kernel`]s run.
//! - [`Buffer`]: managed memory, or ordinary memory that the GPU reaches through
//!   HMM. The CPU reads and writes it as atomics, because a GPU may do the same
//!   at any time.
//! - [`EventQueue`]: UVM's tools events, which say what moved and why on any
//!   driver; [`DriverStats`]: what our driver counts itself.
//!
//! All `unsafe` code is in the private module `ffi`.

mod access;
pub mod announce;
pub mod discard;
pub mod driver;
mod error;
mod events;
mod facts;
mod ffi;
pub mod flash;
mod gpu;
mod idle;
mod kernel;
mod layout;
mod memory;
mod process;
mod quota;
pub mod uvm;
pub mod vgpu;

pub use announce::PrefetchStats;
pub use discard::{AllocList, Discard, DiscardBatch, DiscardRange};
pub use driver::{driver_version, DriverStats, Traffic};
pub use error::{Error, NvStatus, Result};
pub use events::{Cause, Event, EventCounts, EventQueue};
pub use facts::{Fact, Facts};
pub use ffi::{raw_ioctl, BadPointer};
pub use flash::{Flash, FlashStats};
pub use gpu::{Channel, Copies, Gpu, Launch, VaSpace, Vgpu};
pub use idle::Idle;
pub use kernel::{Kernel, Op, Outcome, Report};
pub use layout::{c_check_program, Layout};
pub use memory::{Buffer, Element};
pub use process::{Process, Residency};

/// Size of UVM's va_block and of a root chunk of GPU memory, in bytes.
pub const BLOCK: u64 = 2 << 20;

/// Size of a page of host memory, in bytes.
pub const PAGE: u64 = 4096;
