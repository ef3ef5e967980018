// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! One GPU, emulated: what nvidia-uvm.ko and its users can see of it.
//!
//! [`Gpu`] owns everything and is driven by calls: UVM's (address spaces,
//! channels, memory), the users' (kernels), and the emulator thread's
//! ([`Gpu::run`]), which executes what the others queued. There is no lock here:
//! every call takes `&mut Gpu`, so whoever holds the `Gpu` serializes them.
//!
//! No `unsafe`, no C types, no clocks and no I/O below this module; the outside
//! world is a [`Machine`].

// Imports are one per line and modules in the order a byte travels: memory, page
// tables, channels, faults, kernels.
mod bits;
mod ce;
mod channel;
mod copies;
mod counters;
mod entries;
mod fault;
mod gpu;
mod host;
mod interrupt;
mod kernel;
mod late;
mod machine;
mod order;
mod peer;
mod personality;
mod pma;
mod sm;
mod space;
mod stats;
mod tlb;
mod walk;

pub use channel::ChannelId;
pub use channel::ChannelPlace;
pub use gpu::reg;
pub use gpu::Config;
pub use gpu::Error;
pub use gpu::Gpu;
pub use gpu::Injection;
pub use gpu::Progress;
pub use kernel::Op;
pub use kernel::Outcome;
pub use kernel::State;
pub use machine::BadAddress;
pub use machine::Loc;
pub use machine::Machine;
pub use machine::PeerId;
pub use machine::Slot;
pub use machine::Space;
pub use machine::MAX_PEERS;
pub use order::Order;
pub use personality::Personality;
pub use pma::AllocRequest;
pub use pma::Counts;
pub use sm::Launch;
pub use sm::Owner;
pub use sm::UserChannel;
pub use space::SpaceId;
pub use stats::Stats;
