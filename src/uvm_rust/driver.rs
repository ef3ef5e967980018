// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Adapters: what the policies are attached to inside the driver.

pub(crate) mod discard;
pub(crate) mod fault;
pub(crate) mod flash;
pub(crate) mod ioctl;
pub(crate) mod prefetch;
pub(crate) mod stats;
