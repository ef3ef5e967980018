// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The parts of the policies that threads share without a lock, built on loom's atomics instead of the processor's, and
//! how a VA space's worker is woken and ends. The files are those of the driver; `tests/` runs them.

extern crate alloc;

pub mod evict;
pub mod policy {
    //! Where the files look for their atomics.
    pub mod sync;
}

#[path = "../../../src/uvm_rust/policy/flash/arbiter.rs"]
pub mod arbiter;
#[path = "../../../src/uvm_rust/policy/prefetch/lane.rs"]
pub mod lane;
#[path = "../../../src/uvm_rust/policy/mem.rs"]
pub mod mem;
#[path = "../../../src/uvm_rust/policy/link/sharers.rs"]
pub mod sharers;
#[path = "../../../src/uvm_rust/policy/wakes.rs"]
pub mod wakes;
