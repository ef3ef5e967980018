// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Attaching and detaching a device, and its statistics.

use super::dev::{Dev, Seam};
use super::drain::drain;
use super::io::Io;
use super::room::owner_of;
use super::tier::{self, current};
use super::{bindings, trim, workers, USED};
use crate::ffi::path::Path;
use crate::ffi::seam::VaSpace;
use crate::mem::TryVec;
use crate::policy::flash::drain::Stays;
use crate::policy::flash::pool::{Pool, LEAST};
use bindings::uvm_rust_flash_stats;
use core::ffi::c_int;
use core::ptr::null_mut;
use core::sync::atomic::Ordering::Relaxed;
use kernel::prelude::*;
use kernel::sync::Arc;

/// `CAP_SYS_ADMIN` of the kernel's `capability.h`, which attaching and detaching ask for.
const CAP_SYS_ADMIN: c_int = 21;

/// The most workers that a device has.
const WORKERS_MOST: u32 = 64;

/// The most va_blocks that are read at the same time.
const SETS_MOST: usize = 1024;

/// The attach lock held in read mode: what is attached stays attached.
pub(super) struct Reading(());

impl Reading {
    /// Waits until nobody attaches or detaches; false if a signal comes first. The caller holds no lock but a
    /// tenant's turn.
    pub(super) fn wait() -> bool {
        // SAFETY: by this function's contract; `Drop` gives the lock back at once.
        let taken = unsafe {
            bindings::down_read_interruptible(&raw mut bindings::uvm_rust_flash_attach_lock) == 0
        };
        drop(taken.then(|| Self(())));
        taken
    }

    /// Takes the lock if nobody attaches or detaches right now.
    pub(super) fn try_lock() -> Option<Self> {
        // SAFETY: `Drop` gives it back; it does not sleep.
        let taken = unsafe {
            bindings::down_read_trylock(&raw mut bindings::uvm_rust_flash_attach_lock) != 0
        };
        // Made only if it is taken: what `then_some` is given would be dropped otherwise, and unlock.
        taken.then(|| Self(()))
    }

    /// The device that is attached, if one is.
    pub(super) fn attached(&self) -> Option<Arc<Dev>> {
        there().and_then(|(dev, attached)| attached.then_some(dev))
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        // SAFETY: `wait` or `try_lock` took it.
        unsafe { bindings::up_read(&raw mut bindings::uvm_rust_flash_attach_lock) };
    }
}

/// The attach lock held in write mode. Invariant: there is a tier.
pub(crate) struct Writing(());

impl Writing {
    /// Takes the lock, for which it may sleep; `None` without a tier.
    pub(crate) fn lock() -> Option<Self> {
        if current().is_null() {
            return None;
        }
        // SAFETY: as for `Reading`.
        unsafe { bindings::down_write(&raw mut bindings::uvm_rust_flash_attach_lock) };
        Some(Self(()))
    }

    /// Whether there is a device, attached or leaving.
    pub(crate) fn has_device(&mut self) -> bool {
        there().is_some()
    }

    /// Attaches `dev` to the tier, which has no device, and starts its workers. More than `limit` pages of host
    /// memory are then too many.
    ///
    /// # Errors
    ///
    /// `ENOMEM` without memory for its workers, and `EEXIST` where there is a device.
    pub(crate) fn attach(&mut self, dev: Arc<Dev>, limit: u64) -> Result {
        if self.has_device() {
            return Err(EEXIST);
        }
        let workers = workers_of_parameter();
        // SAFETY: there is a tier, and no workers, and the lock of attaching is held. The hooks that are needed from the
        // first spill on are there before anybody can spill; workers do nothing before the tier has the device.
        unsafe {
            bindings::uvm_seam_flash_hook(true);
            USED.store(true, Relaxed);
            workers::start(&dev, workers)?;
            tier::set_there(current(), Some((dev.clone(), true)));
            tier::attach(current(), dev, limit, workers);
        }
        Ok(())
    }

    /// Stops spilling to the device. Returns the device, if there is one.
    pub(crate) fn stop(&mut self) -> Option<Arc<Dev>> {
        let (dev, attached) = there()?;
        if attached {
            // SAFETY: there is a tier, which had the device; no worker is woken when they are stopped.
            unsafe {
                tier::set_there(current(), Some((dev.clone(), false)));
                tier::detach(current());
                workers::stop();
            }
        }
        Some(dev)
    }

    /// Brings all data on the stopped device to host memory, and lets the device go. Sleeps.
    ///
    /// # Errors
    ///
    /// Some data stay there; then the device is kept.
    pub(crate) fn drain(&mut self) -> Result<(), Stays> {
        let Some((dev, false)) = there() else {
            return Ok(());
        };
        // SAFETY: there is a tier.
        unsafe { drain(dev.clone()) }?;
        // SAFETY: nothing is on it, and nobody uses it (N-file); its workers have stopped. There is a tier.
        unsafe {
            tier::set_there(current(), None);
            trim::last(&dev);
            dev.close();
        }
        Ok(())
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        // SAFETY: `lock` took it.
        unsafe { bindings::up_write(&raw mut bindings::uvm_rust_flash_attach_lock) };
    }
}

/// How many workers a device gets, by the module parameter.
pub(crate) fn workers_of_parameter() -> u32 {
    let depth = read_parameter!(uvm_rust_flash_depth);
    depth.clamp(1, WORKERS_MOST)
}

/// Makes all sets of buffers for reads of a device.
///
/// # Errors
///
/// `ENOMEM` where there is no memory for it.
pub(crate) fn sets(dev: &Seam) -> Result<Pool<Io>> {
    let asked = read_parameter!(uvm_rust_flash_sets);
    let count = (asked as usize).clamp(LEAST, SETS_MOST);
    let mut sets = TryVec::with_capacity(count).map_err(|_| ENOMEM)?;
    for _ in 0..count {
        let set = Io::for_reads(dev).ok_or(ENOMEM)?;
        sets.push(set).map_err(|_| ENOMEM)?;
    }
    Ok(Pool::new(sets))
}

/// Opens the device or file at a path, and makes its key. Also returns its length in bytes.
pub(crate) fn open(path: &Path) -> Result<(Seam, u64)> {
    let (mut dev, mut bytes, mut request) = (null_mut(), 0, 0);
    // SAFETY: the path ends with a NUL; all others are written once, and `dev` is ours from then on.
    unsafe {
        let opened =
            bindings::uvm_seam_flash_open(path.as_ptr(), &mut dev, &mut bytes, &mut request);
        let dev = Seam::new(dev, request)?;
        checked(opened)?;
        Ok((dev, bytes))
    }
}

/// Marks a device as ours. Without `force` the device has to be ours already, or empty.
pub(crate) fn mark(dev: &Seam, force: bool) -> Result {
    let mut io = Io::new(true, false).ok_or(ENOMEM)?;
    // SAFETY: who calls has just opened the device, and nobody else knows of it yet.
    checked(unsafe { io.mark(dev, force) })
}

fn checked(result: c_int) -> Result {
    match result {
        0 => Ok(()),
        errno => Err(Error::from_errno(errno)),
    }
}

/// Fails unless the caller may attach and detach, for which it needs `CAP_SYS_ADMIN`.
pub(crate) fn is_admin() -> Result {
    // SAFETY: no preconditions.
    if unsafe { bindings::capable(CAP_SYS_ADMIN) } {
        Ok(())
    } else {
        Err(EPERM)
    }
}

/// Fills in the statistics of the device that is attached or leaving, and of the VA space's tenant there. Fills in
/// nothing without a device. Does not wait for an attach or detach.
pub(crate) fn stats(space: Option<&VaSpace<'_>>, stats: &mut uvm_rust_flash_stats) {
    let Some((dev, attached)) = there() else {
        return;
    };
    let flash = dev.flash();
    flash.fill(stats);
    stats.fault_waits_most = dev.most_ahead_of_faults();
    stats.attached = attached.into();
    stats.pages_mine = space.map_or(0, |space| held(&dev, space));
    // SAFETY: there is a tier.
    let (pages, peak) = unsafe { tier::host(current()) };
    (stats.host_pages, stats.host_peak) = (pages, peak);
}

/// How many pages a VA space's tenant has on the device that is attached or leaving; `None` without one.
pub(crate) fn pages_of_tenant(space: &VaSpace<'_>) -> Option<u64> {
    Some(held(&there()?.0, space))
}

/// The device, if there is one, and whether it is attached, or leaving.
fn there() -> Option<(Arc<Dev>, bool)> {
    let tier = current();
    // SAFETY: it is not null.
    (!tier.is_null()).then(|| unsafe { tier::there(tier) })?
}

/// How many pages a VA space's tenant has on `dev`.
fn held(dev: &Dev, space: &VaSpace<'_>) -> u64 {
    // SAFETY: a VA space that there is has been set up, and keeps its tenant.
    let owner = unsafe { owner_of(space.as_ptr()) };
    owner.map_or(0, |owner| dev.flash().table.lock().held(owner.key()))
}

/// Lets all devices go before the module is unloaded. No VA space exists any more, and no call is under way.
pub(super) fn let_go() {
    if let Some(mut lock) = Writing::lock() {
        if let Some(dev) = lock.stop() {
            // SAFETY: there is a tier still; without VA spaces nobody needs anything of the device, nor uses it.
            unsafe {
                tier::set_there(current(), None);
                trim::last(&dev);
            }
        }
    }
}
