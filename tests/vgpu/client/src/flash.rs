// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The SSD tier of our driver.
#![allow(missing_docs)]

use std::ffi::CString;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::Path;

use crate::layout::{c_struct, Layout};
use crate::uvm::Uuid;
use crate::{Error, Process, Result};

c_struct!(
    FlashAttach, "struct uvm_rust_flash_attach", "UVM_RUST_FLASH_ATTACH" = 0x1010, 32, {
        size "size": u32,
        flags "flags": u32,
        path "path": u64,
        host_bytes "host_bytes": u64,
        quota_bytes "quota_bytes": u64,
    }
);

c_struct!(
    FlashDetach, "struct uvm_rust_flash_detach", "UVM_RUST_FLASH_DETACH" = 0x1011, 8, {
        size "size": u32,
        flags "flags": u32,
    }
);

c_struct!(
    /// What the SSD tier did; the header says what each means.
    FlashStats, "struct uvm_rust_flash_stats", "UVM_RUST_FLASH_GET_STATS" = 0x1012, 176, {
        size "size": u32,
        flags "flags": u32,
        attached "attached": u32,
        slots "slots": u32,
        free_slots "free_slots": u32,
        extents "extents": u32,
        pages "pages": u64,
        pages_mine "pages_mine": u64,
        host_pages "host_pages": u64,
        host_peak "host_peak": u64,
        written "written": u64,
        spilled "spilled": u64,
        fetched "fetched": u64,
        relocated "relocated": u64,
        dropped "dropped": u64,
        write_errors "write_errors": u64,
        read_errors "read_errors": u64,
        lost_pages "lost_pages": u64,
        refused "refused": u64,
        unwritten "unwritten": u64,
        parked "parked": u64,
        throttled "throttled": u64,
        rested_us "rested_us": u64,
        fault_waits_most "fault_waits_most": u64,
        trimmed "trimmed": u64,
    }
);

c_struct!(
    FlashMove, "struct uvm_rust_flash_move_range", "UVM_RUST_FLASH_MOVE" = 0x1013, 40, {
        size "size": u32,
        flags "flags": u32,
        base "base": u64,
        length "length": u64,
        gpu_uuid "gpu_uuid": Uuid,
    }
);

c_struct!(
    /// A range that is to be moved; `flags` as for `UVM_RUST_FLASH_MOVE`.
    FlashRequest, "struct uvm_rust_flash_request", "" = 0, 48, {
        base "base": u64,
        length "length": u64,
        user_data "user_data": u64,
        flags "flags": u32,
        reserved "reserved": u32,
        gpu_uuid "gpu_uuid": Uuid,
    }
);

c_struct!(
    FlashSubmit, "struct uvm_rust_flash_submit", "UVM_RUST_FLASH_SUBMIT" = 0x1014, 40, {
        size "size": u32,
        flags "flags": u32,
        requests "requests": u64,
        request_count "request_count": u32,
        request_size "request_size": u32,
        event_fd "event_fd": i32,
        taken "taken": u32,
        queue "queue": u64,
    }
);

c_struct!(
    /// What became of a request.
    FlashCompletion, "struct uvm_rust_flash_completion", "" = 0, 24, {
        user_data "user_data": u64,
        order "order": u64,
        status "status": i32,
        reserved "reserved": u32,
    }
);

c_struct!(
    FlashReap, "struct uvm_rust_flash_reap", "UVM_RUST_FLASH_REAP" = 0x1015, 48, {
        size "size": u32,
        flags "flags": u32,
        completions "completions": u64,
        completion_count "completion_count": u32,
        completion_size "completion_size": u32,
        wait_for "wait_for": u32,
        wait_ms "wait_ms": u32,
        reaped "reaped": u32,
        pending "pending": u32,
        queue "queue": u64,
    }
);

/// Each completion adds 1 to an event.
pub const EVENT: u32 = 1 << 0;
/// From the device to host memory.
pub const TO_HOST: u32 = 1 << 0;
/// From the device and from host memory to a GPU.
pub const TO_GPU: u32 = 1 << 1;
/// What is on GPUs goes to host memory first.
pub const FROM_GPUS: u32 = 1 << 2;

/// The layouts of this module.
pub const LAYOUTS: &[Layout] = &[
    FlashRequest::LAYOUT,
    FlashSubmit::LAYOUT,
    FlashCompletion::LAYOUT,
    FlashReap::LAYOUT,
    FlashAttach::LAYOUT,
    FlashDetach::LAYOUT,
    FlashStats::LAYOUT,
    FlashMove::LAYOUT,
];

/// Even if something seems to be on the device.
pub const FORCE: u32 = 1 << 0;
/// Trust the device to give back what was written.
pub const NO_CHECKSUMS: u32 = 1 << 1;

/// How a device is attached.
#[derive(Clone, Copy, Debug)]
pub struct Flash<'a> {
    pub path: &'a Path,
    /// Host memory above which pages are written to the device.
    pub host_bytes: u64,
    /// What a process may have there; 0 for all.
    pub quota_bytes: u64,
    pub flags: u32,
}

impl Process {
    /// Attaches a device as SSD tier.
    pub fn flash_attach(&self, flash: Flash<'_>) -> Result<()> {
        let path = CString::new(flash.path.as_os_str().as_encoded_bytes())
            .map_err(|e| Error::os("path", e.into()))?;
        let mut attach = FlashAttach {
            size: size_of::<FlashAttach>() as u32,
            flags: flash.flags,
            path: path.as_ptr() as u64,
            host_bytes: flash.host_bytes,
            quota_bytes: flash.quota_bytes,
        };
        self.ask("UVM_RUST_FLASH_ATTACH", FlashAttach::LAYOUT, &mut attach)
    }

    /// Brings all back from it and lets it go.
    pub fn flash_detach(&self) -> Result<()> {
        let mut detach = FlashDetach {
            size: size_of::<FlashDetach>() as u32,
            flags: 0,
        };
        self.ask("UVM_RUST_FLASH_DETACH", FlashDetach::LAYOUT, &mut detach)
    }

    pub fn flash_stats(&self) -> Result<FlashStats> {
        let mut stats = FlashStats {
            size: size_of::<FlashStats>() as u32,
            ..Default::default()
        };
        self.ask("UVM_RUST_FLASH_GET_STATS", FlashStats::LAYOUT, &mut stats)?;
        Ok(stats)
    }

    /// Moves a range from host memory to the device, or back.
    pub fn flash_move(&self, base: u64, length: u64, to_host: bool) -> Result<()> {
        let mut range = FlashMove {
            size: size_of::<FlashMove>() as u32,
            flags: u32::from(to_host),
            base,
            length,
            gpu_uuid: Uuid([0; 16]),
        };
        self.ask("UVM_RUST_FLASH_MOVE", FlashMove::LAYOUT, &mut range)
    }

    /// Moves a range from the device and from host memory to a GPU.
    pub fn flash_move_to_gpu(&self, base: u64, length: u64, gpu_uuid: Uuid) -> Result<()> {
        let mut range = FlashMove {
            size: size_of::<FlashMove>() as u32,
            flags: TO_GPU,
            base,
            length,
            gpu_uuid,
        };
        self.ask("UVM_RUST_FLASH_MOVE", FlashMove::LAYOUT, &mut range)
    }

    /// Submits requests, with an event to signal; how many were taken.
    pub fn flash_submit(
        &self,
        requests: &[FlashRequest],
        event: Option<BorrowedFd<'_>>,
    ) -> Result<u32> {
        let mut submit = FlashSubmit {
            size: size_of::<FlashSubmit>() as u32,
            flags: if event.is_some() { EVENT } else { 0 },
            requests: requests.as_ptr() as u64,
            request_count: requests.len() as u32,
            request_size: size_of::<FlashRequest>() as u32,
            event_fd: event.map_or(0, |fd| fd.as_raw_fd()),
            ..Default::default()
        };
        self.ask("UVM_RUST_FLASH_SUBMIT", FlashSubmit::LAYOUT, &mut submit)?;
        Ok(submit.taken)
    }

    /// Up to `most` completions, once `wait_for` are there or `wait_ms` are over; and how many requests are
    /// not done.
    pub fn flash_reap(
        &self,
        most: usize,
        wait_for: u32,
        wait_ms: u32,
    ) -> Result<(Vec<FlashCompletion>, u32)> {
        let mut completions = vec![FlashCompletion::default(); most];
        let mut reap = FlashReap {
            size: size_of::<FlashReap>() as u32,
            completions: completions.as_mut_ptr() as u64,
            completion_count: most as u32,
            completion_size: size_of::<FlashCompletion>() as u32,
            wait_for,
            wait_ms,
            ..Default::default()
        };
        self.ask("UVM_RUST_FLASH_REAP", FlashReap::LAYOUT, &mut reap)?;
        completions.truncate(reap.reaped as usize);
        Ok((completions, reap.pending))
    }
}
