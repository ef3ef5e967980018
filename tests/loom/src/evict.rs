// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Who reclaims memory of a GPU, and the row of evictions that goes with it.

#[path = "../../../src/uvm_rust/policy/evict/reclaim.rs"]
pub mod reclaim;
#[path = "../../../src/uvm_rust/policy/evict/wait.rs"]
pub mod wait;
