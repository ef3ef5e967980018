// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What `/proc/PID/fdinfo/FD` says of an open file (`policy/stats/fdinfo.rs`).
//!
//! Linux shows the file to processes that may ptrace this one, and to the process itself. The file tells of its VA space
//! and tenant what the ioctls tell, and nothing of others.
//!
//! The counts, and how much is held on GPUs, are read without a lock of upstream's. A walk (`driver/places.rs`) counts what is in host
//! memory; it tries to take the VA space's lock for some va_blocks at a time. Reading the SSD tier takes two locks of ours, as
//! `UVM_RUST_FLASH_GET_STATS` does.

use crate::ffi::seam;
use crate::policy::stats::fdinfo;
use crate::policy::stats::places::Places;
use core::fmt::{self, Write};

/// Writes the text of a file, which need not be initialized.
pub(crate) fn show(file: &seam::File<'_>, out: &mut dyn Write) -> fmt::Result {
    writeln!(out, "drm-driver:\tnvidia-uvm")?;
    let (Some(space), Some(state)) = (file.space(), file.state()) else {
        return Ok(());
    };
    let gpus = state.stats().map(|stats| stats.told(space.holder()));
    fdinfo::show(out, state.client(), gpus, ssd(file), places(file))
}

/// How many bytes of the VA space are in host memory and on the SSD; `None` if that is not known.
#[cfg(not(uvm_native))]
fn places(file: &seam::File<'_>) -> Option<Places> {
    crate::driver::places::bytes(file.space()?)
}

#[cfg(uvm_native)]
fn places(_: &seam::File<'_>) -> Option<Places> {
    None
}

/// How many bytes the tenant has on the SSD tier's device; `None` without one.
#[cfg(not(uvm_native))]
fn ssd(file: &seam::File<'_>) -> Option<u64> {
    if !seam::flash_enabled() {
        return None;
    }
    let pages = crate::ffi::flash::pages_of_tenant(&file.space()?)?;
    Some(pages.saturating_mul(kernel::page::PAGE_SIZE as u64))
}

#[cfg(uvm_native)]
fn ssd(_: &seam::File<'_>) -> Option<u64> {
    None
}
