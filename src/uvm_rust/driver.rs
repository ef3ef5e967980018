// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Adapters: what the policies are attached to inside the driver.

#![forbid(unsafe_code)]

mod choose;
pub(crate) mod discard;
pub(crate) mod evict;
#[cfg(not(uvm_native))]
pub(crate) mod fault;
pub(crate) mod fdinfo;
#[cfg(not(uvm_native))]
pub(crate) mod flash;
pub(crate) mod ioctl;
#[cfg(not(uvm_native))]
pub(crate) mod life;
#[cfg(not(uvm_native))]
pub(crate) mod link;
#[cfg(not(uvm_native))]
pub(crate) mod moves;
mod params;
#[cfg(not(uvm_native))]
pub(crate) mod places;
#[cfg(not(uvm_native))]
pub(crate) mod prefetch;
#[cfg(not(uvm_native))]
pub(crate) mod quota;
pub(crate) mod space;
pub(crate) mod stats;
#[cfg(not(uvm_native))]
pub(crate) mod tenant;
#[cfg(not(uvm_native))]
pub(crate) mod tree;
