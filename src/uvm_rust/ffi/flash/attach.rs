// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Attaching and detaching a device, and what is known of it.

// What each asks of its caller is in uvm_rust_flash_ffi.h, where the caller looks.
#![allow(clippy::missing_safety_doc)]

use super::drain::drain;
use super::tier::{self, current, OwnerHandle};
use super::{bindings, flash, read_parameter, table_of};
use crate::driver::flash::Flash;
use crate::ffi::seam::VaSpace;
use crate::policy::flash::drain::Stays;
use crate::policy::flash::table::RESERVED_SLOTS;
use crate::policy::flash::Config;
use bindings::{uvm_rust_flash_attach, uvm_rust_flash_stats, uvm_seam_flash_dev};
use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::ptr::null_mut;
use kernel::page::PAGE_SIZE;
use kernel::prelude::*;
use kernel::types::ForeignOwnable;

crate::ffi::check_exports!(uvm_rust_flash_let_go);

const _: () = assert!(RESERVED_SLOTS == bindings::UVM_RUST_FLASH_RESERVED_SLOTS);

/// The kernel's `CAP_SYS_ADMIN`.
const CAP_SYS_ADMIN: c_int = 21;

/// So many workers at most.
const WORKERS_MOST: u32 = 64;

/// The devices that there are. Each pointer is null, or owns a reference.
struct Devices {
    attached: *mut uvm_seam_flash_dev,
    /// One that was not let go, as something is still on it.
    leaving: *mut uvm_seam_flash_dev,
}

/// Used with `uvm_rust_flash_attach_lock`, by [`Reading`] and [`Writing`] only.
struct Guarded(UnsafeCell<Devices>);

// SAFETY: it is used with the lock that its documentation names.
unsafe impl Sync for Guarded {}

static DEVICES: Guarded = Guarded(UnsafeCell::new(Devices {
    attached: null_mut(),
    leaving: null_mut(),
}));

/// Holds the lock of attaching in read mode: what is attached stays so.
pub(super) struct Reading(());

impl Reading {
    /// Sleeps.
    pub(super) fn lock() -> Self {
        // SAFETY: it is given back by `Drop`, and outside all locks but a tenant's turn.
        unsafe { bindings::down_read(&raw mut bindings::uvm_rust_flash_attach_lock) };
        Self(())
    }

    fn devices(&self) -> &Devices {
        // SAFETY: the lock is held, so that nobody writes.
        unsafe { &*DEVICES.0.get() }
    }

    /// The attached device, or null.
    pub(super) fn attached(&self) -> *mut uvm_seam_flash_dev {
        self.devices().attached
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        // SAFETY: `lock` took it.
        unsafe { bindings::up_read(&raw mut bindings::uvm_rust_flash_attach_lock) };
    }
}

/// Holds the lock of attaching in write mode.
struct Writing(());

impl Writing {
    /// Sleeps.
    fn lock() -> Self {
        // SAFETY: as for `Reading`.
        unsafe { bindings::down_write(&raw mut bindings::uvm_rust_flash_attach_lock) };
        Self(())
    }

    fn devices(&mut self) -> &mut Devices {
        // SAFETY: the lock is held, so that nobody else uses it.
        unsafe { &mut *DEVICES.0.get() }
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        // SAFETY: `lock` took it.
        unsafe { bindings::up_write(&raw mut bindings::uvm_rust_flash_attach_lock) };
    }
}

impl Devices {
    /// Nobody spills to the attached device any more, if there is one.
    fn stop(&mut self) {
        if self.attached.is_null() {
            return;
        }
        self.leaving = core::mem::replace(&mut self.attached, null_mut());
        // SAFETY: there is a tier, which had the device; no worker is woken when they are stopped.
        unsafe {
            tier::detach(current());
            bindings::uvm_seam_flash_stop_workers();
        }
    }
}

/// A device that is being attached. Invariant: this owns a reference, which is given back if it is dropped,
/// and all that was made of the device with it.
struct Opened(*mut uvm_seam_flash_dev);

impl Opened {
    /// Opens the device, and makes a key.
    fn open(path: u64) -> Result<Self> {
        let mut dev = null_mut();
        // SAFETY: the path is looked up in user space as such; `dev` is written once.
        checked(unsafe { bindings::uvm_seam_flash_open(path, &mut dev) })?;
        Ok(Self(dev))
    }

    fn bytes(&self) -> u64 {
        // SAFETY: by the type's invariant.
        unsafe { bindings::uvm_seam_flash_bytes(self.0) }
    }

    /// Marks the device as ours, which it has to be already, or empty, unless by force.
    fn mark(&self, force: bool) -> Result {
        // SAFETY: by the type's invariant.
        checked(unsafe { bindings::uvm_seam_flash_probe(self.0, force) })
    }

    fn make_table(&self, config: Config) -> Result {
        let table = Flash::new(config)?.into_foreign().cast_mut();
        // SAFETY: by the type's invariant; nobody else knows of the device yet.
        unsafe { *bindings::uvm_seam_flash_table(self.0) = table.cast() };
        Ok(())
    }

    /// Makes those who spill to it. They do nothing before the tier has the device.
    fn make_workers(&self, count: u32) -> Result {
        // SAFETY: by the type's invariant; the lock of attaching is held, and there are no others.
        checked(unsafe { bindings::uvm_seam_flash_start_workers(self.0, count) })
    }

    fn keep(self) -> *mut uvm_seam_flash_dev {
        core::mem::ManuallyDrop::new(self).0
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: by the type's invariant.
        unsafe { bindings::uvm_seam_flash_dev_put(self.0) };
    }
}

fn checked(result: c_int) -> Result {
    match result {
        0 => Ok(()),
        errno => Err(Error::from_errno(errno)),
    }
}

/// Whoever attaches and detaches needs `CAP_SYS_ADMIN`.
fn is_admin() -> Result {
    // SAFETY: no preconditions.
    if unsafe { bindings::capable(CAP_SYS_ADMIN) } {
        Ok(())
    } else {
        Err(EPERM)
    }
}

/// Attaches a device. There is a tier.
pub(crate) fn attach(attach: &uvm_rust_flash_attach) -> Result {
    is_admin()?;
    let mut lock = Writing::lock();
    let devices = lock.devices();
    if !devices.attached.is_null() || !devices.leaving.is_null() {
        return Err(EEXIST);
    }
    let opened = Opened::open(attach.path)?;
    let slots = Config::slots_of(opened.bytes()).ok_or(ENOSPC)?;
    opened.mark(attach.flags & bindings::UVM_RUST_FLASH_FORCE != 0)?;
    opened.make_table(Config {
        slots,
        checksums: attach.flags & bindings::UVM_RUST_FLASH_NO_CHECKSUMS == 0,
        quota: Config::quota_of(attach.quota_bytes),
    })?;
    let workers = read_parameter(&raw const bindings::uvm_rust_flash_depth).clamp(1, WORKERS_MOST);
    opened.make_workers(workers)?;
    devices.attached = opened.keep();
    let limit = attach.host_bytes / PAGE_SIZE as u64;
    // SAFETY: there is a tier; `devices` keeps the device until the tier has it no more.
    unsafe { tier::attach(current(), devices.attached, limit, workers) };
    pr_info!("flash: attached, {slots} slots\n");
    Ok(())
}

/// Detaches it. There is a tier.
pub(crate) fn detach() -> Result {
    is_admin()?;
    let mut lock = Writing::lock();
    let devices = lock.devices();
    devices.stop();
    let dev = devices.leaving;
    if dev.is_null() {
        return Err(ENODEV);
    }
    // SAFETY: `devices` keeps it. Nobody has to wait for room any more.
    unsafe { bindings::uvm_seam_flash_tell(dev, false) };
    // SAFETY: there is a tier, and `devices` keeps the device.
    unsafe { drain(dev) }.map_err(|stays| match stays {
        Stays::Interrupted => EINTR,
        Stays::Busy => EBUSY,
    })?;
    devices.leaving = null_mut();
    // SAFETY: nothing is on it, and nobody uses it (N-file); the reference was that of `devices`.
    unsafe {
        bindings::uvm_seam_flash_close(dev);
        bindings::uvm_seam_flash_dev_put(dev);
    }
    pr_info!("flash: detached\n");
    Ok(())
}

/// What is known of the device that is attached or leaving, and of what a VA space's tenant has of it. Fills
/// in nothing without one.
pub(crate) fn stats(space: Option<&VaSpace<'_>>, stats: &mut uvm_rust_flash_stats) {
    let lock = Reading::lock();
    let devices = lock.devices();
    let attached = !devices.attached.is_null();
    let dev = if attached {
        devices.attached
    } else {
        devices.leaving
    };
    if dev.is_null() {
        return;
    }
    // SAFETY: `devices` keeps it, and it has been attached.
    let flash = unsafe { flash(table_of(dev)) };
    flash.fill(stats);
    stats.attached = attached.into();
    stats.pages_mine = space.map_or(0, |space| {
        // SAFETY: a VA space that there is has a tenant, if there is a tier, which outlives it.
        let owner = unsafe { OwnerHandle::new(bindings::uvm_seam_flash_owner_of(space.as_ptr())) };
        flash.table.lock().held(owner.key())
    });
    // SAFETY: there is a tier.
    let host = unsafe { tier::host(current()) };
    (stats.host_pages, stats.host_peak) = host;
}

#[no_mangle]
unsafe extern "C" fn uvm_rust_flash_let_go() {
    let mut lock = Writing::lock();
    let devices = lock.devices();
    devices.stop();
    let dev = core::mem::replace(&mut devices.leaving, null_mut());
    if !dev.is_null() {
        // SAFETY: the reference was that of `devices`.
        unsafe { bindings::uvm_seam_flash_dev_put(dev) };
    }
}
